//! What applications give to the engine, which calls it when no lock is held: listeners, filters, partitioners.

pub mod filter;
pub mod listener;
pub mod partitioner;
