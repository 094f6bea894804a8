//! Background work: which jobs run, what they and their callers wait for, and how they end.
//!
//! [`Background`] owns the [`State`] with its lock, and the signal that tells of changes in it: whoever waits looks under the
//! lock, and is woken by [`Background::notify`].

pub(crate) mod compressors;
pub(crate) mod load;
pub(crate) mod parallel;
pub(crate) mod state;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::clock::{self, Clock};
use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, ErrorKind, FileNumber, Result};

use crate::background::load::JobLoad;
use crate::background::state::State;
use crate::locks;

/// Interval at which a call that may be canceled checks whether it was.
const LOOK_FOR_CANCEL: Duration = Duration::from_millis(20);

/// See the module.
pub(crate) struct Background {
    state: Mutex<State>,
    changed: Condvar,
    closing: AtomicBool,
    /// Background work has been ended for good.
    canceled: AtomicBool,
    /// The flushes and compactions at work.
    pub(crate) load: JobLoad,
    clock: Arc<dyn Clock>,
}

impl Background {
    /// Nothing runs; these are the logs on disk.
    pub(crate) fn new(logs: BTreeMap<FileNumber, u64>, clock: &Arc<dyn Clock>) -> Self {
        Self {
            state: ranked(locks::STATE, State::new(logs)),
            changed: Condvar::new(),
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
    /// can check.
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

    /// Something that jobs or waiters look at has changed.
    pub(crate) fn notify(&self) {
        self.changed.notify_all();
    }

    /// [`Background::notify`] after a change that was made without the state lock. Waiters look under the
    /// lock, so each has seen the change or sleeps already. The caller must not hold the lock.
    pub(crate) fn wake(&self) {
        drop(self.state());
        self.notify();
    }

    pub(crate) fn is_closing(&self) -> bool {
        self.closing.load(Ordering::Acquire)
    }

    /// The database is being closed: nothing new begins.
    pub(crate) fn close(&self) {
        let mut state = self.state();
        // Under the lock: a thread that sees this and then looks at the state must find it there.
        self.closing.store(true, Ordering::Release);
        state.closing = true;
    }

    pub(crate) fn is_canceled(&self) -> bool {
        self.canceled.load(Ordering::Acquire)
    }

    /// Errors: background work was ended, so that nobody may wait for it.
    pub(crate) fn check(&self) -> Result<()> {
        if !self.is_canceled() {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::ShutdownInProgress,
            "background work was canceled",
        ))
    }

    /// No flush and no compaction begins any more, and those that run end soon.
    pub(crate) fn cancel(&self) {
        let state = self.state();
        self.canceled.store(true, Ordering::Release);
        drop(state);
        self.notify();
    }

    /// The newest log on disk; `None` if another process writes the logs.
    pub(crate) fn newest_log(&self) -> Option<FileNumber> {
        self.state().logs.keys().next_back().copied()
    }
}

/// Whether a table could not be written because the device is full. Nothing is lost then: the inputs of the table
/// still exist, and nothing names the unfinished table.
pub(crate) fn lacks_space(e: &Error) -> bool {
    let table = e.path().and_then(std::path::Path::extension);
    e.kind() == ErrorKind::NoSpace && table.is_some_and(|x| x == "sst")
}
