//! What the threads of one open database share. Its locks are in the order of [`crate::locks`].
//!
//! Reads take none of them: they load a family's View and the last sequence number.

pub(crate) mod change;
pub(crate) mod courier;
pub(crate) mod exclusive;
pub(crate) mod obsolete;
pub(crate) mod persist;
pub(crate) mod resume;
pub(crate) mod snapshot;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard as Loaded};
use base::stats::{HistogramKind, Ticker};
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, ErrorKind, FileNumber, Result};

use crate::background::Background;
use crate::catalog::Catalog;
use crate::catalog::family::Family;
use crate::commit::Writes;
use crate::info::log::InfoLog;
use crate::info::stats::DbStats;
use crate::locks;
use crate::outbox::Outbox;
use crate::shared::snapshot::SnapshotList;
use crate::wal::{Wal, read_only};
use options::hooks::listener::{BackgroundErrorReason, EventListener};
use options::{DbOptions, Env, Options};

/// An open database.
pub(crate) struct Shared {
    /// See [`Family::instance`].
    pub(crate) instance: u64,
    pub(crate) dir: PathBuf,
    /// The options as they were when the database was opened. Those of `db` that can change later are
    /// read from [`Shared::db_options`].
    pub(crate) options: Options,
    /// The options of the whole database that are in force.
    db_options: ArcSwap<DbOptions>,
    /// Held while options change, and while an OPTIONS file is written. Before all other locks.
    options_change: Mutex<()>,
    /// When (monotonic nanoseconds) a stale OPTIONS file is to be written again; 0 if it is not stale.
    pub(crate) options_due: AtomicU64,
    pub(crate) info_log: InfoLog,
    pub(crate) read_only: bool,
    /// What the database did since it was opened.
    pub(crate) db_stats: DbStats,

    pub(crate) snapshots: Arc<SnapshotList>,

    /// Work for the first of the database's threads that ends: see [`Shared::leave`].
    left: Mutex<Option<Rest>>,
    pub(crate) catalog: Catalog,
    pub(crate) writes: Writes,
    pub(crate) background: Background,
    pub(crate) wal: Wal,

    /// What listeners are to be told.
    pub(crate) outbox: Outbox,
    /// How often deletions were disabled; held while files are deleted. Before all other locks.
    pub(crate) no_deletions: Mutex<u32>,
}

/// How long a thread that waits for another one to mend the log sleeps before it looks again.
pub(crate) const MENDING: Duration = Duration::from_millis(10);

/// A piece of work, which is done without the state lock.
pub(crate) type Work = Box<dyn FnOnce(&Arc<Shared>) -> Result<()>>;

/// Work that is left to a thread of the database when it ends.
pub(crate) type Rest = Box<dyn FnOnce(&Shared) + Send>;

/// A number that no other database opened by this process has.
pub(crate) fn new_instance() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The parts that `open` has made before the database exists.
pub(crate) struct Parts {
    pub(crate) instance: u64,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) info_log: InfoLog,
    pub(crate) read_only: bool,
    pub(crate) catalog: Catalog,
    pub(crate) writes: Writes,
    pub(crate) wal: Wal,
    pub(crate) logs: BTreeMap<FileNumber, u64>,
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Self {
        for family in parts.catalog.families.load().iter() {
            family.listen(&parts.options.env.listeners);
        }
        let db_stats = DbStats::new(parts.options.env.clock.monotonic_nanos());
        let background = Background::new(parts.logs, &parts.options.env.clock);
        Self {
            instance: parts.instance,
            dir: parts.dir,
            db_options: ArcSwap::from_pointee(parts.options.db.clone()),
            options_change: ranked(locks::OPTIONS, ()),
            options_due: AtomicU64::new(0),
            options: parts.options,
            info_log: parts.info_log,
            read_only: parts.read_only,
            db_stats,
            snapshots: Arc::default(),
            left: ranked(locks::LEAF, None),
            catalog: parts.catalog,
            writes: parts.writes,
            background,
            wal: parts.wal,
            outbox: Outbox::default(),
            no_deletions: ranked(locks::DELETIONS, 0),
        }
    }

    /// Leaves `rest` to the first of the database's threads that ends. The database is closing.
    pub(crate) fn leave(&self, rest: Rest) {
        *self.left.lock().unwrap_or_else(PoisonError::into_inner) = Some(rest);
    }

    /// Called at the end of each of the database's threads: does what [`Shared::leave`] left to them.
    pub(crate) fn do_the_rest(&self) {
        let left = self.left.lock();
        let rest = left.unwrap_or_else(PoisonError::into_inner).take();
        if let Some(rest) = rest {
            rest(self);
        }
    }

    pub(crate) fn env(&self) -> &Env {
        &self.options.env
    }

    /// The options of the whole database that are in force.
    pub(crate) fn db_options(&self) -> Loaded<Arc<DbOptions>> {
        self.db_options.load()
    }

    /// Puts other options of the whole database in force. The caller holds [`Shared::lock_options`].
    pub(crate) fn set_db_options(&self, options: DbOptions) {
        self.writes
            .max_total_wal_size
            .store(options.max_total_wal_size, Ordering::Relaxed);
        self.db_options.store(Arc::new(options));
    }

    /// Held while options change, and while an OPTIONS file is written.
    pub(crate) fn lock_options(&self) -> MutexGuard<'_, ()> {
        self.options_change
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the listeners now. No lock may be held: see also [`Shared::tell_later`].
    pub(crate) fn tell(&self, f: impl Fn(&dyn EventListener)) {
        let panicked = self.env().listeners.tell(f);
        if panicked > 0 {
            self.info_log
                .error(format_args!("{panicked} event listeners panicked"));
        }
    }

    #[inline]
    pub(crate) fn count(&self, t: Ticker, n: u64) {
        self.db_stats.count(t, n);
        if let Some(s) = &self.options.env.statistics {
            s.add(t, n);
        }
    }

    /// Adds a value that is no time to a histogram.
    #[inline]
    pub(crate) fn record(&self, h: HistogramKind, value: u64) {
        if let Some(s) = &self.options.env.statistics {
            s.record(h, value);
        }
    }

    /// The time in nanoseconds, if times are recorded; to be given to [`Shared::timed`].
    #[inline]
    pub(crate) fn timer(&self) -> Option<u64> {
        let statistics = self.options.env.statistics.as_ref()?;
        statistics
            .wants_times()
            .then(|| self.options.env.clock.monotonic_nanos())
    }

    /// Adds the microseconds since [`Shared::timer`] to a histogram.
    #[inline]
    pub(crate) fn timed(&self, h: HistogramKind, since: Option<u64>) {
        if let (Some(s), Some(since)) = (&self.options.env.statistics, since) {
            let nanos = self.options.env.clock.monotonic_nanos() - since;
            s.record_time(h, nanos / 1000);
        }
    }

    /// Whether nothing more is written to the log, because there is a newer one.
    pub(crate) fn is_whole(&self, number: FileNumber) -> Result<bool> {
        match self.background.newest_log() {
            Some(newest) => Ok(number < newest),
            None => Ok(self.wal.directory.numbers()?.keys().any(|n| *n > number)),
        }
    }

    /// Errors: the handle is of a family of another open database.
    #[inline]
    pub(crate) fn check_handle(&self, family: &Family) -> Result<()> {
        if family.instance == self.instance {
            Ok(())
        } else {
            Err(foreign_handle(&family.name))
        }
    }

    /// Takes note that everything logged up to this sequence number survives a power cut.
    #[inline]
    pub(crate) fn is_durable_through(&self, sequence: u64) {
        base::invariant!(
            sequence <= self.writes.order.allocated(),
            "durable through {sequence}, which nobody has written"
        );
        self.wal.durable.raise(sequence);
    }

    /// Refuses new writes and tells the jobs to end.
    pub(crate) fn begin_close(&self) {
        self.background.close();
        self.writes.attention.raise();
        self.background.notify();
        self.wal.wake();
        self.outbox.wake();
    }

    /// Errors: the sticky failure, a read-only database, or one that is being closed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only {
            return Err(read_only());
        }
        self.background.state().check_writable()
    }

    /// Makes `error` sticky: every later write gets it, reads go on. The caller may hold any lock except
    /// that of the state.
    pub(crate) fn fail(&self, what: &str, error: &Error) {
        self.fail_in(BackgroundErrorReason::WriteCallback, what, error);
    }

    /// [`Shared::fail`], with a reason for listeners.
    pub(crate) fn fail_in(&self, reason: BackgroundErrorReason, what: &str, error: &Error) {
        let mut state = self.background.state();
        let first = state.failure.is_none();
        if first {
            state.failure = Some(
                error
                    .clone()
                    .hint("the database refuses writes until it is resumed or reopened"),
            );
        }
        // A thread that sees the failure must not find a write path that does not see it.
        self.writes.attention.raise();
        // Under the lock: a resume clears both failures together.
        self.wal.durable.fail(error);
        drop(state);
        // Before anything that may panic: nobody else wakes those who wait.
        self.background.notify();
        self.wal.wake_waiting();
        if first {
            self.info_log.error(format_args!(
                "{what} failed, the database refuses writes: {error}"
            ));
            self.count(Ticker::ErrorHandlerBgErrorCount, 1);
            if matches!(error.kind(), ErrorKind::IoError | ErrorKind::NoSpace) {
                self.count(Ticker::ErrorHandlerBgIoErrorCount, 1);
            }
            let error = error.clone();
            self.tell_later(move |l| l.on_background_error(reason, &error));
        }
        self.wal.wake(); // callbacks are to be told
    }

    /// Records in the MANIFEST which closed logs have become durable, if
    /// `track_and_verify_wals_in_manifest` is set. Locks `versions` and `log_file`.
    pub(crate) fn track_closed_logs(&self) -> Result<()> {
        if !self.options.db.track_and_verify_wals_in_manifest {
            return Ok(());
        }
        let closed = self.wal.with(|log| Ok(log.take_closed()))?;
        if closed.is_empty() {
            return Ok(());
        }
        self.manifest().track_logs(closed)
    }
}

#[cold]
fn foreign_handle(name: &str) -> Error {
    Error::invalid_argument(format!(
        "the handle of column family {name:?} is of another database"
    ))
}
