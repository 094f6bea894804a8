//! The protocol between the processes of a cluster: frames on a stream, and the messages in them.
//!
//! ```text
//!   client ── Request, Response ──┐
//!   raft ──── Message ────────────┼── Frame (head, fields, payload) ── Session (no I/O) ── Link: a socket
//!   hello ────────────────────────┘
//! ```
//!
//! Everything that a peer sends is checked before it is used: lengths are bounded, heads and fields have a crc,
//! and blocks have the crcs that came with them.
#![deny(clippy::indexing_slicing)]

pub mod client;
pub mod frame;
pub mod hello;
pub mod link;
pub mod raft;
pub(crate) mod remedy;
pub mod session;
