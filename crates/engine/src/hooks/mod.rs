//! What applications give to the engine, which calls it when no lock is held: listeners, filters, partitioners.

pub(crate) mod filter;
pub mod listener;
pub(crate) mod outbox;
pub(crate) mod partitioner;
