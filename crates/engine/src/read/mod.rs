//! The read path.
//!
//! ```text
//!   get:       View ─ memtables, newest first ─ level 0, newest first ─ levels 1…, one file each
//!   iterator:  View ─ one cursor per memtable, level 0 file and deeper level
//!                       └ MergingIter (by internal key; without what range tombstones hide)
//!                           └ DbIterator (versions, deletions, bounds, prefixes)
//! ```

pub(crate) mod entries;
pub(crate) mod get;
pub(crate) mod iter;
mod operands;
pub(crate) mod options;
pub(crate) mod pinned;
pub(crate) mod prefix;
pub(crate) mod sources;
pub(crate) mod updates;
