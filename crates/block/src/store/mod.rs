//! A store: a directory with one log, one data file and one thread that owns both.
#![deny(clippy::indexing_slicing)]

pub mod page;
pub mod superblock;
