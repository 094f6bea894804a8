//! Code of applications that the engine calls while it holds no lock: listeners, filters, partitioners.

pub mod filter;
pub mod listener;
pub mod partitioner;
