//! The write-ahead log of an open database: the only part that is durable when a synced write is acknowledged.
//!
//! ```text
//!   append ─> the active log's buffer ─> flight ─> device ─> `durable` rises, and its waiters are woken
//!                   active.rs            submit.rs
//!   asynchronous writes: demand.rs, a thread of the database brings the log to the device
//!   next log: log_files.rs makes it, of the kind and at the pace that suit the writes (unit.rs, pace.rs, mapped.rs);
//!             next.rs puts it in the place of the active log
//!   space.rs: how long a full device has held writers up; device.rs: a slow one
//!   old logs: live.rs knows which are needed; directory.rs keeps, archives or deletes them; updates.rs reads them
//! ```
//!
//! [`Wal`] owns the active log and its lock, the list of logs, the signal of flights that land, the state of the device,
//! and the watermark of durable writes. The write path (`write/submit.rs`, `write/rotate.rs`) decides what to do with a
//! group, or after a flight that fails.

pub(crate) mod active;
pub(crate) mod archive;
pub(crate) mod demand;
pub(crate) mod device;
pub(crate) mod directory;
pub(crate) mod live;
pub(crate) mod location;
pub(crate) mod log_files;
pub(crate) mod mapped;
mod next;
pub(crate) mod pace;
mod space;
pub(crate) mod unit;

use std::sync::Arc;
use std::time::Duration;

use base::clock::{self, Clock};
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, FileNumber, Result};

use crate::locks;
use crate::watermark::Watermark;
pub(crate) use active::LogStep;
use active::{ActiveLog, Guard};
pub(crate) use archive::ARCHIVE;
use demand::Demand;
use device::Device;
use directory::Directory;
pub(crate) use directory::Fate;
pub use directory::{WalFile, WalFileKind};
use live::LiveLogs;
use log_files::LogFiles;
use space::Space;

/// How long a thread that waits for another thread to mend the log sleeps before it checks again.
pub(crate) const MENDING: Duration = Duration::from_millis(10);

/// See the module.
pub(crate) struct Wal {
    /// The files of the logs.
    pub(crate) directory: Arc<Directory>,
    /// `None` if the database is open for reading only. The active log is then `None` too.
    log_files: Option<LogFiles>,
    active: Mutex<Option<ActiveLog>>,
    /// Signaled when a flight of the log has landed.
    landed: Condvar,
    /// Held while the next log is created.
    switching: Mutex<()>,
    /// The logs that are needed, and their sizes.
    pub(crate) logs: LiveLogs,
    pub(crate) device: Device,
    /// Whether there is space on it.
    pub(crate) space: Space,
    /// When the last synced group began (monotonic nanoseconds); for `wal_min_sync_interval`.
    last_sync_nanos: AtomicU64,
    /// The sequence number up to which all logged writes survive a power cut.
    pub(crate) durable: Watermark,
    /// What asynchronous writes demand.
    pub(crate) demand: Demand,
    clock: Arc<dyn Clock>,
}

impl Wal {
    /// The `logs` in `directory`, which are durable up to `last_sequence`. `sync_interval`: `wal_sync_interval_ms`.
    /// `log_files` and `active` are `None` if the database is open for reading only.
    pub(crate) fn new(
        (directory, logs): (Arc<Directory>, LiveLogs),
        (log_files, active): (Option<LogFiles>, Option<ActiveLog>),
        last_sequence: u64,
        sync_interval: Duration,
        clock: &Arc<dyn Clock>,
    ) -> Self {
        Self {
            directory,
            log_files,
            active: ranked(locks::LOG, active),
            landed: Condvar::new(),
            switching: ranked(locks::LOG_SWITCH, ()),
            logs,
            device: Device::default(),
            space: Space::new(),
            last_sync_nanos: AtomicU64::new(0),
            durable: Watermark::at(last_sequence),
            demand: Demand::new(last_sequence, sync_interval, clock),
            clock: Arc::clone(clock),
        }
    }

    /// Creates and discards logs. Errors: the database is open for reading only.
    pub(crate) fn log_files(&self) -> Result<&LogFiles> {
        self.log_files.as_ref().ok_or_else(read_only)
    }

    /// The active log; `None` inside if the database is open for reading only.
    pub(crate) fn lock(&self) -> Guard<'_> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `f` on the active log. Errors: the database is open for reading only.
    pub(crate) fn with<T>(&self, f: impl FnOnce(&mut ActiveLog) -> Result<T>) -> Result<T> {
        self.lock().as_mut().map_or_else(|| Err(read_only()), f)
    }

    /// To be held while the next log is created.
    pub(crate) fn lock_switch(&self) -> MutexGuard<'_, ()> {
        self.switching
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Unlocks the log until a flight has landed, or for `at_most`.
    pub(crate) fn wait_for_landing<'a>(
        &self,
        mut guard: Guard<'a>,
        at_most: Option<Duration>,
    ) -> Guard<'a> {
        if let Some(log) = guard.as_mut() {
            log.waiting += 1;
        }
        let mut guard = match at_most {
            None => self
                .landed
                .wait(guard)
                .unwrap_or_else(PoisonError::into_inner),
            Some(t) => clock::wait_timeout(&*self.clock, &self.landed, guard, t),
        };
        if let Some(log) = guard.as_mut() {
            log.waiting -= 1;
        }
        guard
    }

    /// Called after a flight has landed: wakes the threads that wait for a landing.
    pub(crate) fn tell_landed(&self, guard: &Guard<'_>) {
        if guard.as_ref().is_some_and(|log| log.waiting > 0) {
            self.landed.notify_all();
        }
    }

    /// Wakes the threads that wait for a flight to land, even if no flight has landed.
    pub(crate) fn wake_waiting(&self) {
        self.landed.notify_all();
    }

    /// Waits until `interval_micros` have passed since the last synced group began.
    fn keep_apart(&self, interval_micros: u64) {
        let interval = interval_micros * 1000;
        if interval == 0 {
            return;
        }
        let now = self.clock.monotonic_nanos();
        let due = self.last_sync_nanos.load(Ordering::Relaxed) + interval;
        if now < due {
            self.clock.sleep(Duration::from_nanos(due - now));
        }
        let now = self.clock.monotonic_nanos();
        self.last_sync_nanos.store(now, Ordering::Relaxed);
    }

    /// Waits until `min_interval_micros` have passed since the last synced group began, and until the log has a slot
    /// for a synced group.
    pub(crate) fn wait_for_slot(&self, min_interval_micros: u64) -> Result<()> {
        self.keep_apart(min_interval_micros);
        let mut guard = self.lock();
        while !guard
            .as_mut()
            .ok_or_else(read_only)?
            .has_slot(LogStep::Sync)
        {
            guard = self.wait_for_landing(guard, None);
        }
        Ok(())
    }

    /// For a close after the failure `e`: hands the log records that the process still has to the operating system, because
    /// some of them may be acknowledged; with `wal_sync_interval_ms`, makes them durable. Errors: that is not possible.
    pub(crate) fn hand_over_the_rest(&self, e: Error) -> Result<()> {
        let mut guard = self.lock_when(|log| log.failure().is_some() || log.all_landed());
        let Some(log) = guard.as_mut() else {
            return Ok(());
        };
        let has_failed = log.is_in_vain();
        let kept = log.keep(self.demand.has_interval());
        kept.map_err(|own| if has_failed { e } else { own })
    }

    /// For a database that has failed: makes durable what is in the log, if it is not a log that has failed. Nobody
    /// else does so until the database is resumed. Returns the last sequence number that is durable; `None` if that is in
    /// vain, or if `has_failed` is not true any more of the database.
    pub(crate) fn sync_in_spite_of_a_failure(
        &self,
        has_failed: impl Fn() -> bool,
    ) -> Result<Option<u64>> {
        let cannot = |log: &ActiveLog| log.is_in_vain() || !has_failed();
        let mut guard = self.lock_when(|log| cannot(log) || log.all_landed());
        // A resume replaces the log before it clears the failure. So the log cannot be a later one, whose failure would have
        // to be told.
        let Some(log) = guard.as_mut().filter(|log| !cannot(log)) else {
            return Ok(None);
        };
        log.sync_all()?;
        Ok(Some(log.last_sequence()))
    }

    /// Locks the log once it is `ready`.
    fn lock_when(&self, ready: impl Fn(&ActiveLog) -> bool) -> Guard<'_> {
        let mut guard = self.lock();
        while guard.as_ref().is_some_and(|log| !ready(log)) {
            guard = self.wait_for_landing(guard, Some(MENDING));
        }
        guard
    }

    /// The number of the active log. Errors: the database is open for reading only.
    pub(crate) fn number(&self) -> Result<FileNumber> {
        self.with(|log| Ok(log.number))
    }

    /// How many bytes of the log were handed to the operating system; `None` if it is not the active log.
    pub(crate) fn submitted(&self, number: FileNumber) -> Option<u64> {
        let log = self.lock();
        log.as_ref()
            .filter(|log| log.number == number)
            .map(ActiveLog::submitted)
    }

    /// How many bytes of the log are durable; `None` if it is not the active log.
    pub(crate) fn durable_end(&self, number: FileNumber) -> Option<u64> {
        let log = self.lock();
        log.as_ref()
            .filter(|log| log.number == number)
            .map(|log| log.durable_end().0)
    }
}

/// The error of operations that need a log, in a database that is open for reading only.
pub(crate) fn read_only() -> Error {
    Error::not_supported("writing to a database that is open for reading only")
}
