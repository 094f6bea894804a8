//! Background work: the running jobs, the waits for them, and their end.
//!
//! [`Background`] owns the [`State`] with its lock, and the signal for changes in it: a waiter checks the state under
//! the lock, and is woken by [`Background::notify`].

pub(crate) mod compressors;
pub(crate) mod load;
pub(crate) mod parallel;
pub(crate) mod state;

use std::sync::Arc;
use std::time::Duration;

use base::clock::{self, Clock};
use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, ErrorKind, Result};

use crate::background::load::JobLoad;
use crate::background::state::State;
use crate::locks;
use crate::outbox::{self, Job};

/// Interval at which a call that may be canceled checks whether it was.
const LOOK_FOR_CANCEL: Duration = Duration::from_millis(20);

/// See the module.
pub(crate) struct Background {
    /// The number of the database.
    instance: u64,
    state: Mutex<State>,
    changed: Condvar,
    /// Signaled for the thread that prepares logs, which is woken much more often than the others.
    logs_wanted: Condvar,
    closing: AtomicBool,
    /// Background work has been ended for good.
    canceled: AtomicBool,
    /// The flushes and compactions at work.
    pub(crate) load: JobLoad,
    clock: Arc<dyn Clock>,
}

impl Background {
    /// The state before any job runs.
    pub(crate) fn new(instance: u64, clock: &Arc<dyn Clock>) -> Self {
        Self {
            instance,
            state: ranked(locks::STATE, State::new()),
            changed: Condvar::new(),
            logs_wanted: Condvar::new(),
            closing: AtomicBool::new(false),
            canceled: AtomicBool::new(false),
            load: JobLoad::default(),
            clock: Arc::clone(clock),
        }
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for [`Background::notify`], at most `timeout`.
    pub(crate) fn wait_timeout<'a>(
        &self,
        guard: MutexGuard<'a, State>,
        timeout: Duration,
    ) -> MutexGuard<'a, State> {
        clock::wait_timeout(&*self.clock, &self.changed, guard, timeout)
    }

    /// Waits for [`Background::notify`]. If the call may be canceled, the wait is short, so that the caller
    /// can check for that.
    pub(crate) fn wait_or_cancel<'a>(
        &self,
        guard: MutexGuard<'a, State>,
        canceled: Option<&Arc<AtomicBool>>,
    ) -> MutexGuard<'a, State> {
        match canceled {
            Some(_) => self.wait_timeout(guard, LOOK_FOR_CANCEL),
            None => self.wait(guard),
        }
    }

    /// Waits for [`Background::notify`].
    pub(crate) fn wait<'a>(&self, guard: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed
            .wait(guard)
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until logs are to be prepared or the state has changed, at most `timeout`.
    pub(crate) fn wait_for_logs<'a>(
        &self,
        guard: MutexGuard<'a, State>,
        timeout: Option<Duration>,
    ) -> MutexGuard<'a, State> {
        match timeout {
            Some(timeout) => clock::wait_timeout(&*self.clock, &self.logs_wanted, guard, timeout),
            None => self
                .logs_wanted
                .wait(guard)
                .unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// Wakes all jobs and waiters, so that they check the state again.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
        self.logs_wanted.notify_all();
    }

    /// Wakes only the thread that prepares logs. The caller must not hold the lock.
    pub(crate) fn want_logs(&self) {
        drop(self.state());
        self.logs_wanted.notify_all();
    }

    /// [`Background::notify`] after a change that was made without the state lock. Waiters check under the
    /// lock, so each has seen the change or sleeps already. The caller must not hold the lock.
    pub(crate) fn wake(&self) {
        drop(self.state());
        self.notify();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// Marks the database as being closed: no new work begins.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        // Under the lock: a thread that sees `self.closing` must also see `state.closing`.
        self.closing.store(true, Ordering::Release);
        state.closing = true;
    }

    pub(crate) fn is_canceled(&self) -> bool {
        self.canceled.load(Ordering::Acquire)
    }

    /// Whether jobs may not begin: they are paused, or were canceled. Somebody may wait for those that have not ended.
    pub(crate) fn is_held_up(&self) -> bool {
        self.is_canceled() || self.state().paused > 0
    }

    /// Whether obsolete tables are left that a compaction thread may delete now.
    pub(crate) fn has_left_tables(&self, state: &State) -> bool {
        state.tables_left && state.paused == 0 && !self.is_canceled()
    }

    /// The same, for a thread that deletes them then.
    pub(crate) fn takes_left_tables(&self, state: &mut State) -> bool {
        let has_some = self.has_left_tables(state);
        state.tables_left &= !has_some;
        has_some
    }

    /// Errors: background work was canceled, so no thread may wait for it.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_canceled() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::ShutdownInProgress,
            "background work was canceled",
        ))
    }

    /// Cancels background work: no flush and no compaction begins any more, and running compactions end soon.
    pub(crate) fn cancel(&self) {
        let state = self.state();
        self.canceled.store(true, Ordering::Release);
        drop(state);
        self.notify();
    }

    /// The job of this thread for the database, if it flushes or compacts.
    pub(crate) fn job_of_this_thread(&self) -> Option<Job> {
        outbox::job_for(self.instance)
    }

    /// Errors: this thread flushes or compacts for the database and runs a listener, and `what` would
    /// wait for a flush or a compaction. Each may wait for the other: a flush for room that a compaction
    /// makes, a compaction's listener for a flush, and both for a thread that pauses them.
    pub(crate) fn check_may_wait(&self, what: &str) -> Result<()> {
        let does = match self.job_of_this_thread() {
            None => return Ok(()),
            Some(Job::Flush) => "flushes",
            Some(Job::Compact) => "compacts",
        };
        let message = format!("{what}: it would wait for this thread, which {does}");
        Err(Error::busy(message).hint("a listener may leave it to a thread of its own"))
    }

    /// Asserts, after all threads have ended, that no thread is busy and no flush or compaction is registered.
    pub(crate) fn check_idle(&self) {
        // No check on a thread of the database: a callback there may have dropped the last handle.
        if !base::INVARIANTS || base::sync::thread::panicking() || outbox::belongs_to(self.instance)
        {
            return;
        }
        let state = self.state();
        assert_eq!(state.busy, 0, "threads have ended that are at work");
        assert!(
            state.flushing.is_empty() && state.compacting.is_empty(),
            "flushes and compactions that nobody ends"
        );
    }
}

/// Whether a table could not be written because the device is full. Nothing is lost then: the inputs of the table
/// still exist, and nothing names the unfinished table.
pub(crate) fn lacks_space(e: &Error) -> bool {
    let table = e.path().and_then(std::path::Path::extension);
    e.kind() == ErrorKind::NoSpace && table.is_some_and(|x| x == "sst")
}
