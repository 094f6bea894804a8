//! The files of a database as files: their names, CURRENT, and copies of them.

pub mod copies;
mod names;

pub use names::*;
