//! The protocol that the processes of a cluster speak: frames on a stream, and what is in them.
//!
//! ```text
//!   client ── Request, Response ──┐
//!                                 ├── Frame (head, fields, payload) ── Session (no I/O) ── a socket
//!   hello ────────────────────────┘
//! ```
//!
//! Nothing that a peer says is believed before it is checked: lengths have bounds, heads and fields a crc, and
//! blocks the crcs that came with them.
#![deny(clippy::indexing_slicing)]

pub mod client;
pub mod frame;
pub mod hello;
pub mod session;
