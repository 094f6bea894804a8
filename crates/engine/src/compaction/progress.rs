//! Progress of a compaction of level 0: input files that are nearly done no longer count as compaction
//! debt.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use manifest::TableFile;

/// Counts the entries that the parts of a compaction have read.
pub(super) struct Progress {
    level0: Vec<Arc<TableFile>>,
    /// Number of entries of all inputs.
    all: u64,
    read: AtomicU64,
}

impl Progress {
    /// For a compaction with these level 0 files, and `all` entries in all its input files.
    pub(super) fn new(level0: Vec<Arc<TableFile>>, all: u64) -> Self {
        Self {
            level0,
            all: all.max(1),
            read: AtomicU64::new(0),
        }
    }

    /// Adds `entries` entries that were read.
    pub(super) fn add(&self, entries: u64) {
        let read = self.read.fetch_add(entries, Ordering::Relaxed) + entries;
        let part = read as f64 / self.all as f64;
        for file in &self.level0 {
            file.set_compacted(part);
        }
    }
}
