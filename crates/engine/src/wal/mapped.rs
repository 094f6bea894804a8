//! The logs that are written by stores into memory.
//!
//! A growing log that is a new file is a [`MappedFile`], where the file system allows it: after some bytes without a sync,
//! an unsynced write costs no system call. The thread that fills the pool makes the windows, ahead of the writers.
//!
//! A process that is killed in the middle of a store leaves half of a record with zeros behind it. So no log is mapped
//! with the recovery modes that refuse that.

use std::path::Path;
use std::sync::Arc;

use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{Mutex, PoisonError, ranked};
use io::{File, MappedFile};
use log::RecoveryMode;
use options::Options;

use crate::locks;

/// The least `write_buffer_size`, at open, with which logs are mapped: windows of smaller logs cost more than they save.
const WRITE_BUFFER_MIN: u64 = 8 << 20;

/// The mapped logs that are written, or still have something mapped.
pub(crate) struct MappedLogs {
    /// Whether new logs are mapped.
    wanted: AtomicBool,
    /// In the order in which they were made.
    files: Mutex<Vec<Arc<MappedFile>>>,
}

impl MappedLogs {
    pub(super) fn new(options: &Options) -> Self {
        let mode = options.db.wal_recovery_mode;
        let bears_halves = matches!(
            mode,
            RecoveryMode::PointInTimeRecovery | RecoveryMode::SkipAnyCorruptedRecords
        );
        let large = options.cf.write_buffer_size >= WRITE_BUFFER_MIN;
        Self {
            wanted: AtomicBool::new(options.db.wal_mapped && bears_halves && large),
            files: ranked(locks::LEAF, Vec::new()),
        }
    }

    /// Makes a new log's empty file a mapped one; `None` if that is impossible or not wanted.
    pub(super) fn map(&self, file: &Arc<dyn File>) -> Option<Arc<MappedFile>> {
        if !self.wanted.load(Ordering::Relaxed) {
            return None;
        }
        // The new log continues the one before it.
        let before = self.files(|files| files.last().cloned());
        let unsynced = before.map_or(0, |file| file.unsynced());
        let mapped = MappedFile::new(file, unsynced)?;
        self.files(|files| files.push(Arc::clone(&mapped)));
        Some(mapped)
    }

    /// Whether a log is mapped.
    pub(crate) fn is_used(&self) -> bool {
        self.files(|files| !files.is_empty())
    }

    /// Maps no further logs.
    pub(crate) fn give_up(&self) {
        self.wanted.store(false, Ordering::Relaxed);
    }

    /// A log for which [`MappedFile::prepare`] is to be called. Closes files of older logs that need that no more.
    pub(crate) fn due(&self) -> Option<Arc<MappedFile>> {
        let (due, _closed) = self.files(|files| {
            let last = files.len().saturating_sub(1);
            let closed: Vec<_> = files.extract_if(..last, |f| f.is_finished()).collect();
            let due = files.iter().find(|file| file.is_due());
            (due.cloned(), closed)
        });
        due
    }

    /// To be called before the file of an old log is deleted, may be overwritten, or is measured. Waits for a window that is
    /// being made.
    pub(crate) fn finish(&self, path: &Path) {
        let file = self.files(|files| files.iter().find(|f| f.path() == path).cloned());
        if let Some(file) = file {
            file.finish();
        }
    }

    /// [`MappedLogs::finish`], for a log that is deleted.
    pub(crate) fn forget(&self, path: &Path) {
        self.finish(path);
        let _closed = self.files(|files| {
            let nth = files.iter().position(|file| file.path() == path)?;
            Some(files.remove(nth))
        });
    }

    /// `f` closes no file: that takes long.
    fn files<T>(&self, f: impl FnOnce(&mut Vec<Arc<MappedFile>>) -> T) -> T {
        f(&mut self.files.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
