//! The protocol that the processes of a cluster speak: frames on a stream, and what is in them.
//!
//! ```text
//!   client ── Request, Response ──┐
//!   raft ──── Message ────────────┼── Frame (head, fields, payload) ── Session (no I/O) ── Link: a socket
//!   hello ────────────────────────┘
//! ```
//!
//! Nothing that a peer says is believed before it is checked: lengths have bounds, heads and fields a crc, and
//! blocks the crcs that came with them.
#![deny(clippy::indexing_slicing)]

pub mod client;
pub mod frame;
pub mod hello;
pub mod link;
pub mod raft;
pub(crate) mod remedy;
pub mod session;
