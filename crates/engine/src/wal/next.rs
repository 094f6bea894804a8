//! Rotation: a new file becomes the active log. There are three occasions for it: the log is full or memtables were
//! sealed, a failed log is replaced, a resume begins anew. They differ in what happens to the old log.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use base::sync::thread;
use base::{FileNumber, Result};

use super::active::{ActiveLog, Guard};
use super::log_files::{LogFiles, LogKind, NewLog};
use super::{MENDING, Wal, read_only};
use manifest::FileNumbers;

/// The file of the next log. If it does not become the active log, it is removed when this is dropped, which is done
/// without the log's lock.
pub(crate) struct NextLog<'a> {
    wal: &'a Wal,
    files: &'a LogFiles,
    number: FileNumber,
    /// `None` once [`NextLog::begin`] was called.
    new: Option<NewLog>,
    is_used: bool,
    /// How it is written, as a text for LOG.
    pub(crate) how: String,
}

impl Drop for NextLog<'_> {
    fn drop(&mut self) {
        if self.is_used {
            return;
        }
        // A file system that panics may panic again.
        if thread::panicking() {
            self.files.leave(self.number);
        } else {
            self.files.discard_unused(self.number);
        }
    }
}

impl Wal {
    /// Creates the file of the next log, if possible of this kind. Errors: the database is open for reading only; the
    /// file cannot be created.
    pub(crate) fn create_next(&self, numbers: &FileNumbers, kind: LogKind) -> Result<NextLog<'_>> {
        let files = self.log_files()?;
        let number = numbers.take();
        let new = files.create(number, kind)?;
        Ok(NextLog {
            wal: self,
            files,
            number,
            how: new.describe(kind),
            new: Some(new),
            is_used: false,
        })
    }
}

impl<'a> NextLog<'a> {
    /// Locks the active log once it is `ready`. After each wait for a flight, `check` may give up.
    ///
    /// `None`: this file cannot be the next log, and another must be made. A failed log was replaced meanwhile by a log
    /// with a higher number, and recovery reads logs in the order of their numbers.
    pub(crate) fn lock(
        &self,
        ready: impl Fn(&ActiveLog) -> bool,
        check: impl Fn() -> Result<()>,
    ) -> Result<Option<Guard<'a>>> {
        let mut guard = self.wal.lock();
        loop {
            let log = guard.as_ref().ok_or_else(read_only)?;
            if ready(log) {
                let is_next = log.number < self.number;
                return Ok(is_next.then_some(guard));
            }
            guard = self.wal.wait_for_landing(guard, Some(MENDING));
            check()?;
        }
    }

    /// Makes this the active log: `swap` puts it in the place of the old log. Returns its number. Errors: those of `swap`,
    /// after which either may be the active log.
    pub(crate) fn begin(
        &mut self,
        log: &mut ActiveLog,
        swap: impl FnOnce(&mut ActiveLog, NewLog) -> Result<()>,
    ) -> Result<FileNumber> {
        let Some(new) = self.new.take() else {
            return Ok(self.number);
        };
        let old = log.number;
        // If it panics, either may be the active log, too.
        let swapped = catch_unwind(AssertUnwindSafe(|| swap(log, new)));
        self.is_used = log.number == self.number;
        if self.is_used {
            self.wal.logs.rotated(old, self.number);
        }
        let swapped = swapped.unwrap_or_else(|panic| resume_unwind(panic));
        swapped.map(|()| self.number)
    }
}
