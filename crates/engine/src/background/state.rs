//! The state of the database under the state lock: running jobs, the sticky error.

use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, ErrorKind, Result};

use crate::locks;
use picking::Running;
use picking::manual::{Progress, Request};

/// The job number of the recovery in LOG. Flushes and compactions get the numbers after it.
pub(crate) const RECOVERY_JOB: u64 = 1;

/// The data that the state lock protects.
#[derive(Default)]
pub(crate) struct State {
    /// Set by the first failure that makes further writes unsafe; cleared by `resume`.
    pub(crate) failure: Option<Error>,
    /// Families with a flush under way.
    pub(crate) flushing: Vec<u32>,
    /// Compactions under way.
    pub(crate) compacting: Vec<Running>,
    /// Families whose compactions may not begin.
    pub(crate) held: Vec<u32>,
    /// The family that was compacted last.
    pub(crate) last_compacted: u32,
    /// No automatic compaction begins before this time (monotonic nanoseconds), because a compaction ran out of
    /// space; 0 if that never happened.
    pub(crate) starved_until: u64,
    /// How often compactions ran out of space.
    pub(crate) starvations: u64,
    /// The error of the last compaction that ran out of space, until a compaction has succeeded.
    pub(crate) starved_by: Option<Error>,
    /// The number of the last job: an opening, a flush, a compaction or a deletion of files.
    jobs: u64,
    /// A job has left obsolete tables for a compaction thread to delete when it has nothing else to do.
    pub(crate) tables_left: bool,
    /// Calls that delete obsolete files, also those of jobs.
    pub(crate) callers_delete: usize,
    /// The number of pauses of background work that have not ended.
    pub(crate) paused: u32,
    /// Background threads that are not waiting for work. The cleanup after a job counts as work.
    pub(crate) busy: usize,
    /// Compactions that callers wait for, oldest first.
    pub(crate) manual: Vec<Arc<ManualCompaction>>,
    pub(crate) closing: bool,
    /// A thread is bringing the database out of its failure.
    pub(crate) resuming: bool,
}

/// Errors: `Incomplete` if the caller has canceled the operation.
pub(crate) fn check_not_canceled(canceled: Option<&Arc<AtomicBool>>) -> Result<()> {
    if canceled.is_some_and(|c| c.load(Ordering::Relaxed)) {
        return Err(Error::new(
            ErrorKind::Incomplete,
            "Manual compaction paused: it was canceled",
        ));
    }
    Ok(())
}

impl State {
    /// The state of a database that is opened.
    pub(crate) fn new() -> Self {
        Self {
            jobs: RECOVERY_JOB,
            ..Self::default()
        }
    }

    /// How long automatic compactions still pause because one ran out of space.
    pub(crate) fn starved_for(&self, clock: &Arc<dyn Clock>) -> Option<Duration> {
        if self.starved_until == 0 {
            return None;
        }
        let left = self.starved_until.saturating_sub(clock.monotonic_nanos());
        (left > 0).then(|| Duration::from_nanos(left))
    }

    /// The number of the next job, for LOG.
    pub(crate) fn next_job(&mut self) -> u64 {
        self.jobs += 1;
        self.jobs
    }

    pub(crate) fn check_not_failed(&self) -> Result<()> {
        match &self.failure {
            Some(e) => Err(e.clone()),
            None => Ok(()),
        }
    }

    pub(crate) fn check_writable(&self) -> Result<()> {
        self.check_not_failed()?;
        if self.closing {
            return Err(Error::new(
                ErrorKind::ShutdownInProgress,
                "the database is being closed",
            ));
        }
        Ok(())
    }
}

pub(crate) struct ManualCompaction {
    pub(crate) family: u32,
    pub(crate) request: Request,
    /// Whether no other compaction may run at the same time.
    pub(crate) exclusive: bool,
    /// 0 means the value in the database's options.
    pub(crate) max_subcompactions: u32,
    /// Ends the call when it becomes true.
    pub(crate) canceled: Option<Arc<AtomicBool>>,
    /// Whether a compaction for this call is under way.
    pub(crate) running: AtomicBool,
    progress: Mutex<Progress>,
    result: Mutex<Option<Result<()>>>,
}

impl ManualCompaction {
    pub(crate) fn new(family: u32, request: Request) -> Self {
        Self {
            family,
            request,
            exclusive: false,
            max_subcompactions: 0,
            canceled: None,
            running: AtomicBool::new(false),
            progress: ranked(locks::MANUAL, Progress::default()),
            result: ranked(locks::MANUAL, None),
        }
    }

    pub(crate) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends the call with this result.
    pub(crate) fn finish(&self, result: Result<()>) {
        *self.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
    }

    /// The result, once there is one.
    pub(crate) fn take_result(&self) -> Option<Result<()>> {
        self.result
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take()
    }
}
