//! The client of volumes: where their bytes are, and how operations on them become requests to stores.
//!
//! ```text
//!   nbd::Exports ── run (attachments, a timer) ── stores (a connection to each)
//!   nbd::Op ── volume (attach, split, number, send again) ── wire::Request ── a session to each store
//!                │ operation: the order among them, the reply
//!                ├ target: a group's leader, numbers, window
//!                └ map: which group has which bytes
//! ```
#![deny(clippy::indexing_slicing)]

pub mod map;
mod operation;
pub mod run;
pub mod stats;
mod stores;
mod target;
pub mod volume;
