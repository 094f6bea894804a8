//! One replica of a group: consensus, and what is built on it. Only [`apply`] applies entries.
//!
//! ```text
//!            propose, step, tick                     persisted(n), applied(i)
//!                    │                                        │
//!                    v                                        v
//!   raft::Node ── ready ──> now       messages that may leave at once
//!                      ├──> items     to be appended to the RaftLog ──> durable ──> persisted(n)
//!                      ├──> committed entries to be applied, in their order
//!                      └──> reads, needs_copy, role
//! ```
//!
//! Everything here is a state machine without threads, files and clocks. The store's thread drives it.
#![deny(clippy::indexing_slicing)]

pub mod apply;
pub mod command;
pub mod members;
pub mod message;
pub mod raft;
#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;
pub mod volumes;
