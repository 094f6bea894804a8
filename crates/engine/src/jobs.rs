//! The background threads: the only place in the engine that starts threads.
//!
//! A quarter of `max_background_jobs` flush, the others compact; at least one each. They look for
//! work under the state lock, do it without, and sleep when there is none. A compaction that is
//! done in parts has a further thread for each part but the first.

mod compressors;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use base::stats::Ticker;
use base::{Error, ErrorKind, Result};

use crate::compaction;
use crate::flush;
use crate::listener::BackgroundErrorReason;
use crate::options::DbOptions;
use crate::properties;
use crate::shared::Shared;
use crate::write::wal::LogFiles;
use crate::write::{admit, pending};

pub(crate) use compressors::CompressionPool;

/// How fast log files are filled with zeros.
const POOL_BYTES_PER_SECOND: u64 = 128 << 20;
/// How long to wait after a file could not be made.
const POOL_RETRY: Duration = Duration::from_secs(1);

/// How long a thread sleeps when nothing calls it.
const LOOK_AGAIN: Duration = Duration::from_secs(60);

/// How many threads flush, and how many compact.
fn limits(options: &DbOptions) -> (usize, usize) {
    let all = options.max_background_jobs.max(1).unsigned_abs() as usize;
    let flushers = (all / 4).max(1);
    (flushers, all.saturating_sub(flushers).max(1))
}

/// Runs the tasks at the same time: the first on this thread, each other on its own. The results
/// are in the order of the tasks. A task whose thread cannot be started runs here.
pub(crate) fn in_parallel<T, F>(name: &str, tasks: Vec<F>) -> Vec<Result<T>>
where
    T: Send,
    F: FnOnce() -> Result<T> + Send,
{
    let slots: Vec<Mutex<Option<F>>> = tasks.into_iter().map(|t| Mutex::new(Some(t))).collect();
    let run = |slot: &Mutex<Option<F>>| {
        let task = slot.lock().unwrap_or_else(PoisonError::into_inner).take();
        task.map(|task| task())
    };
    let run = &run;
    std::thread::scope(|scope| {
        let start = |slot| {
            let builder = std::thread::Builder::new().name(name.to_owned());
            builder.spawn_scoped(scope, move || run(slot)).ok()
        };
        let threads: Vec<_> = slots.iter().skip(1).map(start).collect();
        let mut out = Vec::with_capacity(slots.len());
        out.extend(slots.first().and_then(run));
        for (thread, slot) in threads.into_iter().zip(slots.iter().skip(1)) {
            let result = match thread {
                // Whoever started the job deals with its panic.
                Some(thread) => thread.join().unwrap_or_else(|p| resume_unwind(p)),
                None => run(slot),
            };
            out.extend(result);
        }
        out
    })
}

/// The running threads.
#[derive(Default)]
pub(crate) struct Jobs {
    threads: Vec<JoinHandle<()>>,
}

impl Jobs {
    /// Starts the threads of a database.
    pub(crate) fn start(db: &Arc<Shared>) -> Result<Self> {
        let (flushers, compactors) = limits(&db.options.db);
        let mut jobs = Self::default();
        for i in 0..flushers {
            jobs.spawn(&format!("ironstone:high{i}"), db, |db| {
                work(db, flush::next, BackgroundErrorReason::Flush);
            })?;
        }
        for i in 0..compactors {
            jobs.spawn(&format!("ironstone:low{i}"), db, move |db| {
                work(db, compaction::next, BackgroundErrorReason::Compaction);
            })?;
        }
        if db.log_files().is_ok_and(LogFiles::uses_pool) {
            jobs.spawn("ironstone:pool", db, fill_pool)?;
        }
        jobs.spawn("ironstone:wal", db, pending::run)?;
        if db.wal.archives() {
            jobs.spawn("ironstone:purge", db, purge_archive)?;
        }
        let seconds = db.options.db.stats_dump_period_sec;
        if seconds > 0 {
            let period = Duration::from_secs(u64::from(seconds));
            jobs.spawn("ironstone:stats", db, move |db| dump_stats(db, period))?;
        }
        Ok(jobs)
    }

    fn spawn(
        &mut self,
        name: &str,
        db: &Arc<Shared>,
        run: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) -> Result<()> {
        let db = Arc::clone(db);
        let thread = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(move || run(&db))
            .map_err(|e| {
                Error::new(
                    ErrorKind::IoError,
                    format!("cannot start a background thread: {e}"),
                )
            })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Waits for the threads; [`Shared::begin_close`] has told them to end.
    pub(crate) fn join(&mut self) {
        for thread in self.threads.drain(..) {
            // A panic in a job has been reported by the panic hook already.
            drop(thread.join());
        }
    }
}

/// Items for each thread of [`map_parallel`] below which it starts fewer: starting one takes time.
const ITEMS_PER_THREAD: usize = 8;

/// Calls `work` with each item, on at most `threads` threads named `ironstone:<name>`; the results
/// are in the order of the items. Errors: the first in that order. Items behind an error may be
/// left out.
pub(crate) fn map_parallel<T: Sync, R: Send + Sync>(
    name: &str,
    threads: usize,
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let threads = threads.min(items.len() / ITEMS_PER_THREAD);
    if threads < 2 {
        return items.iter().map(work).collect();
    }
    let results: Vec<OnceLock<Result<R>>> = items.iter().map(|_| OnceLock::new()).collect();
    let next = AtomicUsize::new(0);
    let failed = AtomicBool::new(false);
    let run = || {
        while !failed.load(Ordering::Relaxed) {
            let i = next.fetch_add(1, Ordering::Relaxed);
            let (Some(item), Some(slot)) = (items.get(i), results.get(i)) else {
                return;
            };
            let result = work(item);
            if result.is_err() {
                failed.store(true, Ordering::Relaxed);
            }
            drop(slot.set(result));
        }
    };
    std::thread::scope(|scope| {
        for i in 1..threads {
            let thread = std::thread::Builder::new().name(format!("ironstone:{name}{i}"));
            // One thread fewer, if the system has none: this one does the rest.
            drop(thread.spawn_scoped(scope, run));
        }
        run();
    });
    let done = results.into_iter().filter_map(OnceLock::into_inner);
    let done: Vec<R> = done.collect::<Result<_>>()?;
    debug_assert_eq!(done.len(), items.len(), "without an error, all was done");
    Ok(done)
}

/// Finds a piece of work and returns it, or `None` if there is nothing to do now.
type Step = fn(&Arc<Shared>, &mut crate::shared::State) -> Option<Work>;

/// A piece of work, to be done without the state lock.
pub(crate) type Work = Box<dyn FnOnce(&Arc<Shared>) -> Result<()>>;

/// Keeps the pool of log files filled.
fn fill_pool(db: &Arc<Shared>) {
    let Ok(files) = db.log_files() else { return };
    let mut state = db.state();
    while !state.closing {
        let Some(pool) = files.pool_to_fill() else {
            state = db.wait(state);
            continue;
        };
        drop(state);
        let mut pace = |bytes: u64| {
            // Zeros must not take the device from the writers.
            db.count(Ticker::WalZeroedBytes, bytes);
            let micros = bytes * 1_000_000 / POOL_BYTES_PER_SECOND;
            std::thread::sleep(Duration::from_micros(micros));
            !db.is_closing()
        };
        let filled = pool.fill_one(&mut pace);
        state = db.state();
        if let Err(e) = filled {
            db.count(Ticker::WalPrecreateFailed, 1);
            db.log.warn(format_args!(
                "cannot prepare a log file; one is kept in reserve, then logs are buffered: {e}"
            ));
            state = db.wait_timeout(state, POOL_RETRY);
        }
    }
}

/// Looks for archived logs to delete while nothing else calls for it.
fn purge_archive(db: &Arc<Shared>) {
    let period = Duration::from_secs(db.wal.purge_interval_seconds());
    every(db, period, || db.wal.purge(&db.log));
}

/// Writes the families' statistics to LOG every `period`.
fn dump_stats(db: &Arc<Shared>, period: Duration) {
    every(db, period, || {
        let text = properties::dump(db);
        db.log
            .info(format_args!("------- DUMPING STATS -------\n{text}"));
    });
}

/// Calls `act` every `period` until the database closes.
fn every(db: &Shared, period: Duration, act: impl Fn()) {
    let clock = &db.env().clock;
    let mut last = clock.monotonic_nanos();
    let mut state = db.state();
    while !state.closing {
        state = db.wait_timeout(state, period);
        let now = clock.monotonic_nanos();
        if u128::from(now - last) >= period.as_nanos() && !state.closing {
            last = now;
            drop(state);
            act();
            state = db.state();
        }
    }
}

/// Repeats `step` until the database closes.
fn work(db: &Arc<Shared>, step: Step, reason: BackgroundErrorReason) {
    loop {
        let mut state = db.state();
        let job = loop {
            if state.closing {
                return;
            }
            if state.failure.is_none()
                && state.paused == 0
                && !db.background_canceled()
                && let Some(job) = step(db, &mut state)
            {
                state.busy += 1;
                break job;
            }
            // Files grow old without anybody's doing.
            state = db.wait_timeout(state, LOOK_AGAIN);
        };
        drop(state);
        // A panic is a bug of ours; the database must not hang on the thread that is gone.
        let result = catch_unwind(AssertUnwindSafe(|| job(db)))
            .unwrap_or_else(|_| Err(Error::aborted("a background job panicked")));
        if let Err(e) = result {
            db.fail_in(reason, "background job", &e);
        }
        db.delete_obsolete_files();
        db.state().busy -= 1;
        admit::debt_changed(db);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parallel_work_keeps_its_order_and_its_first_error() {
        let items: Vec<usize> = (0..1000).collect();
        for threads in [1, 2, 7] {
            let doubled = map_parallel("test", threads, &items, |i| Ok(i * 2)).unwrap();
            assert!(doubled.iter().enumerate().all(|(i, d)| *d == 2 * i));
            let failing = map_parallel("test", threads, &items, |i| match i {
                500.. => Err(Error::aborted("late")),
                _ => Ok(()),
            });
            assert!(failing.is_err());
        }
        let none: [usize; 0] = [];
        assert!(
            map_parallel("test", 4, &none, |_| Ok(()))
                .unwrap()
                .is_empty()
        );
    }
}
