//! Deletes files that are not needed any more.
//!
//! A log is deleted when every family's data in it is in tables, and only after the MANIFEST records that; it
//! may be archived or recycled instead. Obsolete tables come from the janitor, which collects tables whose
//! last user is gone. Nothing is deleted while deletions are disabled.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use base::stats::Ticker;
use base::{Error, FileNumber, Result};

use crate::catalog::Catalog;
use crate::info::Info;
use crate::info::log::{Event, InfoLog};
use crate::outbox::Job;
use crate::shared::Shared;
use crate::shared::deletions::Permit;
use crate::wal::Fate;
use crate::wal::directory::Directory;
use files::{self, FileKind};
use manifest::janitor::Obsolete;
use options::hooks::listener::TableFileDeletionInfo;

/// How long a job deletes tables if there may be other work to do.
const AT_ONCE: Duration = Duration::from_millis(100);

/// Files that are to be removed. Those that remain go back to the janitor, and a compaction thread removes those that
/// nobody has tried to remove.
struct Rest<'a> {
    db: &'a Shared,
    files: VecDeque<Obsolete>,
    /// The file that is being removed counts as failed until it is gone: the file system may panic.
    failed: Vec<Obsolete>,
}

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        // Those that have failed are tried again after the next job.
        let untried = self.files.iter().any(|f| !f.failed);
        for file in self.files.drain(..).chain(self.failed.drain(..)) {
            self.db.catalog.tables.janitor.give_back(file);
        }
        if untried {
            self.db.background.state().tables_left = true;
            self.db.background.notify();
        }
    }
}

/// A call that deletes obsolete files. Jobs leave theirs to it, so that whoever waits for the jobs waits for the call,
/// too. What they have left and the call has not seen goes to a compaction thread.
struct Caller<'a>(&'a Shared);

impl<'a> Caller<'a> {
    fn new(db: &'a Shared) -> Self {
        db.background.state().callers_delete += 1;
        Self(db)
    }
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        let untried = self.0.catalog.tables.janitor.has_untried();
        let mut state = self.0.background.state();
        state.callers_delete -= 1;
        state.tables_left |= untried;
        drop(state);
        self.0.background.notify();
    }
}

impl Shared {
    /// Returns the first log that is needed, after the MANIFEST has recorded it. Families without unflushed data
    /// move to newer logs without a record in the MANIFEST. The record is written here, before the logs are deleted,
    /// so that every log that the MANIFEST counts as needed exists.
    fn declare_obsolete_logs(&self) -> FileNumber {
        let mut change = self.change();
        let needed = change.families().iter().map(|f| f.log_number()).min();
        let needed = needed.unwrap_or_default();
        let declared = change.needed_logs();
        if self.wal.logs.bytes_of(declared..needed).is_none() {
            return declared.min(needed);
        }
        change.needs_logs_from(needed);
        match change.log_and_apply() {
            Ok(()) => needed,
            Err(e) => {
                self.info
                    .log
                    .warn(format_args!("logs cannot be deleted: {e}"));
                declared
            }
        }
    }

    /// Deletes files that are not needed any more: logs that no family needs, unless they are archived;
    /// archived logs that are too old or too many; and files that the janitor collected. A job leaves the last to
    /// others if they take long and there may be other work, or if somebody waits for it. For other callers they are
    /// gone when this returns, unless deletions are disabled or an attempt has failed.
    pub(crate) fn delete_obsolete_files(&self) {
        let _courier = self.courier();
        let Some(permit) = self.deletions.begin() else {
            return;
        };
        // A file system that panics here must not keep the tables.
        let logs = catch_unwind(AssertUnwindSafe(|| self.delete_logs()));
        self.delete_tables_too(permit);
        if let Err(panic) = logs {
            resume_unwind(panic);
        }
    }

    /// The part of [`Shared::delete_obsolete_files`] after the logs.
    fn delete_tables_too(&self, permit: Permit<'_>) {
        if self.background.job_of_this_thread().is_some() {
            let permit = permit.for_tables(); // jobs do not wait for each other
            if permit.is_some() {
                self.delete_tables();
            }
            return;
        }
        drop(permit);
        // Other callers expect that the files are gone: also those that a job has taken, or left.
        let _caller = Caller::new(self); // ends after `wanted`: then jobs leave nothing to it any more
        let wanted = self.deletions.want();
        let permit = wanted.alone();
        if permit.is_some() {
            self.delete_tables();
        }
    }

    fn delete_logs(&self) {
        let needed = self.declare_obsolete_logs();
        let logs = self.wal.logs.not_needed_before(needed);
        // A database that is open for reading only has no active log.
        let unneeded = self.wal.lock().as_mut().map(|l| l.take_unneeded(needed));
        drop(unneeded);
        for &number in &logs {
            if let Ok(files) = self.wal.log_files() {
                files.mapped().forget(&self.wal.directory.path(number));
            }
            let discard = || self.wal.log_files()?.discard(number);
            if obsolete_log(&self.wal.directory, &self.info.log, number, discard) {
                self.wal.logs.is_deleted(number);
            }
        }
        if let Ok(files) = self.wal.log_files() {
            files.remove_left();
        }
        self.wal.directory.purge(&self.info.log);
        if !logs.is_empty() {
            self.background.want_logs(); // the pool may have a file to fill again
        }
    }

    fn delete_tables(&self) {
        let clock = &self.env().clock;
        let files = self.catalog.tables.janitor.take();
        if files.is_empty() {
            return;
        }
        check_unused(&self.catalog, &files);
        let mut rest = Rest {
            db: self,
            files: files.into(),
            failed: Vec::new(),
        };
        let job = self.background.state().next_job();
        let began = clock.monotonic_nanos();
        while let Some(file) = rest.files.pop_front() {
            rest.failed.push(Obsolete {
                failed: true,
                ..file.clone()
            });
            if self.is_removed(&file.path, job) {
                rest.failed.pop();
            }
            let passed = Duration::from_nanos(clock.monotonic_nanos().saturating_sub(began));
            if self.has_to_stop(passed) {
                break;
            }
        }
    }

    /// Removes a file, and tells of it. Returns whether it is gone.
    fn is_removed(&self, path: &Path, job: u64) -> bool {
        let removed = self.env().fs.remove(path);
        if removed.is_ok() {
            self.info.count(Ticker::FilesDeletedImmediately, 1);
        }
        table_deleted(&self.info, &self.dir, path, job, &removed);
        match removed {
            Ok(()) => self
                .info
                .log
                .info(format_args!("Delete {}", path.display())),
            Err(e) if e.is_not_found() => {}
            Err(e) => {
                self.info.log.warn(format_args!("cannot delete: {e}"));
                return false;
            }
        }
        true
    }

    /// Whether this thread, which has deleted tables for so long, leaves the rest to others.
    fn has_to_stop(&self, passed: Duration) -> bool {
        let Some(job) = self.background.job_of_this_thread() else {
            return !self.deletions.are_enabled();
        };
        if self.deletions.is_wanted() {
            return true;
        }
        if passed < AT_ONCE || self.background.is_closing() {
            return false;
        }
        match job {
            Job::Flush => {
                self.background.is_held_up()
                    || self.catalog.families.load().iter().any(|f| f.flush_due())
            }
            Job::Compact => true,
        }
    }

    /// Ends one [`Deletions::disable`](crate::shared::deletions::Deletions::disable). Ending the last one deletes
    /// the files that are obsolete by then.
    pub(crate) fn enable_file_deletions(&self) {
        if self.deletions.enable() && !self.read_only && !self.background.is_closing() {
            self.delete_obsolete_files();
        }
    }

    /// Removes archived logs that are too old or too many, unless deletions are disabled.
    pub(crate) fn purge_archive(&self) {
        if let Some(_held) = self.deletions.begin() {
            self.wal.directory.purge(&self.info.log);
        }
    }
}

/// Checks that no family still has one of these tables.
fn check_unused(catalog: &Catalog, obsolete: &[Obsolete]) {
    if !base::INVARIANTS || obsolete.is_empty() {
        return;
    }
    let families = catalog.families.load();
    for Obsolete { path, .. } in obsolete {
        let Some((FileKind::Table, number)) = path.file_name().and_then(files::parse_name) else {
            continue;
        };
        for family in families.iter() {
            let version = Arc::clone(&family.view.load().version);
            let used = version.files().any(|(_, f)| f.number() == number);
            assert!(!used, "table {number} goes, and {} has it", family.name);
        }
    }
}

/// Reports the deletion of a file, if it is a table.
fn table_deleted(info: &Info, dir: &Path, path: &Path, job: u64, removed: &Result<()>) {
    let parsed = path.file_name().and_then(files::parse_name);
    let Some((FileKind::Table, number)) = parsed else {
        return;
    };
    if removed.as_ref().is_err_and(Error::is_not_found) {
        return; // the database never had it
    }
    let status = match removed {
        Ok(()) => "OK".to_owned(),
        Err(e) => e.to_string(),
    };
    info.log.event(
        &Event::new("table_file_deletion")
            .number("job", job)
            .number("file_number", number.0)
            .text("status", &status),
    );
    if !info.listeners().is_empty() {
        let deleted = TableFileDeletionInfo {
            db_name: dir.to_path_buf(),
            file_path: path.to_path_buf(),
            job_id: job,
            status: removed.clone(),
        };
        info.tell_later(move |l| l.on_table_file_deleted(&deleted));
    }
}

/// Archives or removes a log that is not needed any more. Returns false if it is still there.
pub(crate) fn obsolete_log(
    directory: &Directory,
    log: &InfoLog,
    number: FileNumber,
    discard: impl FnOnce() -> Result<()>,
) -> bool {
    let path = directory.path(number);
    match directory.obsolete(number, discard) {
        Ok(Fate::Gone) => log.info(format_args!("Delete {}", path.display())),
        Ok(Fate::Archived) => log.info(format_args!("Archive {}", path.display())),
        Err(e) if e.is_not_found() => {}
        Err(e) => {
            log.warn(format_args!("cannot remove a log: {e}"));
            return false;
        }
    }
    true
}
