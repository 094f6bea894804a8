//! Range deletions, as memtables, tables, Versions and compactions store and read them.
//!
//! A range deletion, or *tombstone*, `[start, end) @ s` deletes all versions of the keys in its range that are
//! older than the sequence number `s`. Tombstones may overlap in any way. Each use has its own form of them:
//!
//! | module | what it has |
//! |---|---|
//! | [`span`] | [`RangeTombstone`]: between user keys, as stored; [`Span`]: between internal keys |
//! | [`mod@sweep`] | the pieces between the bounds of tombstones, in key order |
//! | [`fragments`] | for reads: [`Fragments`], which do not overlap, and the [`Window`](fragments::Window) around a key |
//! | [`clip`] | the tombstones of a table, cut at the table's bounds |
//! | [`stripes`] | for compactions: which entries tombstones hide, and which tombstones are written again |
//!
//! ```
//! use base::{Comparator, SequenceNumber, ValueType, key};
//! use keyspan::fragments::{covering, fragment};
//! use keyspan::Span;
//!
//! let cmp = Comparator::bytewise();
//! let spans = [Span::new(b"a", b"e", SequenceNumber(7)), Span::new(b"c", b"g", SequenceNumber(9))];
//! let lists = fragment(&cmp, &spans);
//! let at = key::encode(b"d", SequenceNumber(3), ValueType::Value);
//! assert_eq!(covering(&lists, &cmp, &at, SequenceNumber(100)), 9);
//! assert_eq!(covering(&lists, &cmp, &at, SequenceNumber(8)), 7, "as a snapshot at 8 sees it");
//! ```
//!
//! RocksDB's counterparts are `FragmentedRangeTombstoneList`, `TruncatedRangeDelIterator` and
//! `CompactionRangeDelAggregator`.

pub mod clip;
pub mod fragments;
pub mod span;
pub mod stripes;
pub mod sweep;

pub use fragments::Fragments;
pub use span::{RangeTombstone, Span};
