//! The logs that are written by stores into memory.
//!
//! A growing log that is a new file is a [`MappedFile`], where the file system allows it: after some bytes without a sync,
//! an unsynced write costs no system call. The thread that fills the pool makes the windows, ahead of the writers.

use std::sync::{Arc, Weak};

use base::sync::{Mutex, PoisonError, ranked};
use io::{File, MappedFile};

use crate::locks;

/// The mapped logs that are still open.
pub(crate) struct MappedLogs {
    /// `wal_mapped`.
    wanted: bool,
    /// In the order in which they were made.
    files: Mutex<Vec<Weak<MappedFile>>>,
}

impl MappedLogs {
    pub(super) fn new(wanted: bool) -> Self {
        Self {
            wanted,
            files: ranked(locks::LEAF, Vec::new()),
        }
    }

    /// Makes a new log's empty file a mapped one; `None` if that is impossible or not wanted.
    pub(super) fn map(&self, file: &Arc<dyn File>) -> Option<Arc<MappedFile>> {
        if !self.wanted {
            return None;
        }
        // The new log continues the one before it.
        let unsynced = self.alive().last().map_or(0, |file| file.unsynced());
        let mapped = MappedFile::new(file, unsynced)?;
        self.files
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(Arc::downgrade(&mapped));
        Some(mapped)
    }

    /// Whether a log is mapped.
    pub(crate) fn is_used(&self) -> bool {
        !self.alive().is_empty()
    }

    /// A log for which [`MappedFile::prepare`] is to be called. It may close the files of older logs.
    pub(crate) fn due(&self) -> Option<Arc<MappedFile>> {
        self.alive().into_iter().find(|file| file.is_due())
    }

    /// They are dropped by the caller, without the lock.
    fn alive(&self) -> Vec<Arc<MappedFile>> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.retain(|file| file.strong_count() > 0);
        files.iter().filter_map(Weak::upgrade).collect()
    }
}
