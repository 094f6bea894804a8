//! A store in a process: its directory, and the one thread that owns it.
#![deny(clippy::indexing_slicing)]

pub mod core;
mod held;
pub mod layout;
pub mod member;
