//! The NBD server, which gives any NBD client access to volumes.
//!
//! ```text
//!   sockets ── serve (epoll, one thread) ── Session (no I/O): Handshake, then requests ── Exports
//!                                            │ codec: the bytes          │ command: what may be asked
//!                                            └ output: what is to be sent, without copies
//! ```
//!
//! The protocol is described in doc/proto.md of <https://github.com/NetworkBlockDevice/nbd>. Supported:
//! fixed newstyle, structured replies, `base:allocation`. Not supported: TLS, extended headers, resizing.
//!
//! Everything that a client sends is checked before it is used. The memory that a client can occupy is
//! bounded: by the requests and bytes on their way, which count until the reply is sent.
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
