//! A group: replicas of some chunks of volumes, kept equal by Raft.
#![deny(clippy::indexing_slicing)]

pub mod apply;
pub mod command;
pub mod volumes;
