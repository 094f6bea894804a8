//! The client of volumes: where their bytes are, and how operations on them become requests to stores.
//!
//! ```text
//!   nbd::Op ── volume (attach, split, number, send again) ── wire::Request ── a session to each store
//!                │ operation: the order among them, the reply
//!                ├ target: a group's leader, numbers, window
//!                └ map: which group has which bytes
//! ```
#![deny(clippy::indexing_slicing)]

pub mod map;
mod operation;
mod target;
pub mod volume;
