//! A store in a process: its directory, and the thread that owns it.
#![deny(clippy::indexing_slicing)]

mod connection;
pub mod core;
pub mod doubts;
pub mod flusher;
mod held;
pub mod layout;
mod links;
pub mod member;
mod pending;
pub mod run;
pub mod stats;
pub mod time;

pub use links::Say;
