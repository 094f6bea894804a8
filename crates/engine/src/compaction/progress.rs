//! How far a compaction of level 0 is: files that it is nearly through with are no debt any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::version::TableFile;

/// Counts what the parts of a compaction have read.
pub(super) struct Progress {
    level0: Vec<Arc<TableFile>>,
    /// Entries of all inputs.
    all: u64,
    read: AtomicU64,
}

impl Progress {
    /// Of a compaction with these files of level 0, and with so many entries in all its files.
    pub(super) fn new(level0: Vec<Arc<TableFile>>, all: u64) -> Self {
        Self {
            level0,
            all: all.max(1),
            read: AtomicU64::new(0),
        }
    }

    /// So many entries more were read.
    pub(super) fn add(&self, entries: u64) {
        let read = self.read.fetch_add(entries, Ordering::Relaxed) + entries;
        let part = read as f64 / self.all as f64;
        for file in &self.level0 {
            file.set_compacted(part);
        }
    }
}
