//! The files of a database as files: their names, CURRENT, and copies of them.

pub(crate) mod copies;
mod names;

pub use names::*;
