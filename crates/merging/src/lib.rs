//! The union of sorted cursors, without the entries that range tombstones hide.
//!
//! ```text
//!   MergingIter ── children: memtables, tables of level 0, a LevelIter for each deeper level
//!               └─ Cover: the range tombstones of all of them
//! ```
//!
//! Reads, flushes and compactions read their sources through it.

mod cover;
mod level;
mod merging;

pub use cover::{Cover, Lists};
pub use level::LevelIter;
pub use merging::MergingIter;
