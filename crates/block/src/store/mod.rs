//! A store: a directory with one log, one data file and one thread that owns both.
#![deny(clippy::indexing_slicing)]

pub mod data;
pub mod dirty;
pub mod flush;
pub mod in_place;
pub mod page;
pub mod superblock;
pub mod sync;
#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;
pub mod trailer;
