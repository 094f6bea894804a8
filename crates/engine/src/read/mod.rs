//! The read path.
//!
//! ```text
//!   get:       View ─ memtables, newest first ─ level 0, newest first ─ levels 1…, one file each
//!   multi_get: the same for each key; all blocks that they lack are read at once
//!   …_async:   the same as futures: the thread is free while blocks are read
//!   iterator:  View ─ one cursor per memtable, level 0 file and deeper level
//!                       └ MergingIter (by internal key; without what range tombstones hide)
//!                           └ DbIterator (versions, deletions, bounds, prefixes)
//!   multi_scan: several iterators, whose seeks read all blocks that they lack at once
//! ```

pub(crate) mod block_reads;
pub(crate) mod entries;
pub(crate) mod futures;
pub(crate) mod get;
pub(crate) mod iter;
pub(crate) mod multi_get;
pub(crate) mod multi_scan;
mod operands;
pub(crate) mod options;
pub(crate) mod pinned;
pub(crate) mod prefix;
pub(crate) mod sources;
pub(crate) mod updates;
