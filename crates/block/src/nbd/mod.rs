//! The NBD server: what any NBD client sees of a volume.
//!
//! ```text
//!   sockets ── serve (epoll, one thread) ── Session (no I/O): Handshake, then requests ── Exports
//!                                            │ codec: the bytes          │ command: what may be asked
//!                                            └ output: what is to be sent, without copies
//! ```
//!
//! The protocol's text is doc/proto.md of <https://github.com/NetworkBlockDevice/nbd>. What is spoken:
//! fixed newstyle, structured replies, `base:allocation`. What is not: TLS, extended headers, resizing.
//!
//! Nothing that a client says is believed before it is checked. What it can make the server hold is
//! bounded: by requests and bytes on their way, counted until the reply has left.
#![deny(clippy::indexing_slicing)]

pub mod codec;
pub mod command;
mod connection;
pub mod exports;
pub mod handshake;
mod output;
mod payload;
mod replies;
pub mod serve;
pub mod session;
pub mod socket;
