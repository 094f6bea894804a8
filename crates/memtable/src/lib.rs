//! Memtables: recent writes, sorted, in memory.
//!
//! ```text
//!   Memtable ── filter ── list under an index, or vector ── arena ── pool of large memory
//!            └─ range tombstones                              └───── budget of all memtables
//! ```
//!
//! | module | what it has |
//! |---|---|
//! | `memtable` | [`Memtable`]: inserts and lookups at the same time, from many threads |
//! | `factory` | [`MemtableFactory`]: the representation, as an option |
//! | `iter` | [`Iter`]: cursors |
//! | `pinned` | [`PinnedBytes`]: values without a copy |
//! | `list` | the default representation: entries linked in key order under an index of blocks |
//! | `vector` | the representation for bulk loads: sorted when it is read |
//! | `bloom` | the filter of whole keys and prefixes |
//! | `tombstones` | range deletions |
//! | [`history`] | flushed memtables that are kept for transactions |
//! | `arena` | memory that is freed all at once |
//! | `pool` | memory of dropped memtables, for active ones |
//! | [`write_buffers`] | [`WriteBuffers`]: the limit of the memory of several databases' memtables |
//!
//! The representation is an enum, not a trait object: inserts and lookups cost only one more predictable
//! branch, and searches can be inlined. `unsafe` code is in `arena`, `list`, `vector`, `iter`
//! and `pinned`.
//!
//! ```
//! use std::sync::Arc;
//! use base::{Comparator, FileNumber, SequenceNumber, ValueType, key};
//! use memtable::{Memtable, Settings};
//! use table::InternalIterator;
//!
//! let memtable = Arc::new(Memtable::with(1, FileNumber(7), Settings::new(Comparator::bytewise())));
//! memtable.insert(b"k", SequenceNumber(1), ValueType::Value, b"old");
//! memtable.insert(b"k", SequenceNumber(2), ValueType::Value, b"new");
//! // As a snapshot at 1 sees it.
//! let seek = key::encode(b"k", SequenceNumber(1), ValueType::FOR_SEEK);
//! memtable.versions(&seek, |_, value| {
//!     assert_eq!(value.bytes(), b"old");
//!     false
//! });
//! let mut iter = memtable.iter();
//! iter.seek_to_first();
//! assert_eq!(iter.value(), b"new");
//! ```

mod arena;
mod bloom;
mod factory;
pub mod history;
mod iter;
mod list;
mod locks;
mod memtable;
#[cfg(loom)]
pub mod models;
mod pinned;
mod pool;
#[cfg(shuttle)]
pub mod schedules;
mod tombstones;
mod vector;
pub mod write_buffers;

pub use factory::MemtableFactory;
pub use history::History;
pub use iter::Iter;
pub use memtable::{Memtable, Prepared, Settings, TOGETHER, Value, link_all};
pub use pinned::PinnedBytes;
pub use write_buffers::{Tracker, WriteBuffers};

#[cfg(test)]
mod tests;
