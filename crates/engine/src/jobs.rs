//! The background threads. Only this module and `background/` start threads.
//!
//! A quarter of the `max_background_jobs` threads flush, the others compact; there is at least one of each. They
//! look for work under the state lock, do it without the lock, and sleep when there is none. A compaction that is
//! split into parts uses one more thread for each part after the first.
//!
//! When the options change, threads are added if needed. Surplus threads stay idle.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::time::Duration;

use base::stats::Ticker;
use base::sync::thread::JoinHandle;
use base::{Error, ErrorKind, Result};
use log::Next;

use crate::background::state::State;
use crate::background::{Background, lacks_space};
use crate::info::Info;
use crate::info::log::InfoLog;
use crate::outbox::{self, Job};
use crate::shared::{Shared, Work, courier, persist};
use crate::wal::log_files::LogFiles;
use crate::write::{debt, pending};
use crate::{compaction, flush, properties};
use options::DbOptions;
use options::hooks::listener::BackgroundErrorReason;

/// The rate in bytes per second at which log files are filled with zeros while there are no synced writes.
const POOL_BYTES_PER_SECOND: u64 = 128 << 20;
/// How long to wait after a log file could not be prepared.
const POOL_RETRY: Duration = Duration::from_secs(1);

/// How long a thread sleeps if nothing wakes it.
const LOOK_AGAIN: Duration = Duration::from_secs(60);
/// How long no automatic compaction begins after a compaction failed because the device was full.
const NO_SPACE_PAUSE: Duration = Duration::from_secs(1);

/// The number of flush threads and of compaction threads, by RocksDB's rule: if `max_background_flushes` or
/// `max_background_compactions` is set, these two count; otherwise `max_background_jobs` is divided.
fn limits(options: &DbOptions) -> (usize, usize) {
    let at_least_one = |n: i32| n.max(1).unsigned_abs() as usize;
    let (flushes, compactions) = (
        options.max_background_flushes,
        options.max_background_compactions,
    );
    if flushes != -1 || compactions != -1 {
        return (at_least_one(flushes), at_least_one(compactions));
    }
    let all = at_least_one(options.max_background_jobs);
    let flushers = (all / 4).max(1);
    (flushers, all.saturating_sub(flushers).max(1))
}

/// The purpose of a thread.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    Flush,
    Compact,
}

impl Role {
    /// How many threads have this role.
    fn limit(self, options: &DbOptions) -> usize {
        let (flushers, compactors) = limits(options);
        match self {
            Self::Flush => flushers,
            Self::Compact => compactors,
        }
    }

    fn next(self, db: &Arc<Shared>, state: &mut State) -> Option<Work> {
        match self {
            Self::Flush => flush::next(db, state),
            Self::Compact => compaction::next(db, state),
        }
    }

    fn reason(self) -> BackgroundErrorReason {
        match self {
            Self::Flush => BackgroundErrorReason::Flush,
            Self::Compact => BackgroundErrorReason::Compaction,
        }
    }
}

/// The running threads.
#[derive(Default)]
pub(crate) struct Jobs {
    threads: Vec<JoinHandle<()>>,
    flushers: usize,
    compactors: usize,
    /// Whether the thread that dumps statistics runs.
    dumps_stats: bool,
}

impl Jobs {
    /// Starts the threads of a database. After an error, some of them may run: the caller must stop them as at a
    /// close.
    pub(crate) fn start(&mut self, db: &Arc<Shared>) -> Result<()> {
        self.follow_options(db)?;
        if let Ok(files) = db.wal.log_files() {
            if files.prepares_ahead() {
                self.spawn("ironstone:pool", db, prepare_logs)?;
            } else {
                files.mapped().give_up(); // the first log could not be mapped
            }
        }
        self.spawn("ironstone:wal", db, pending::run)?;
        if !db.env().listeners.is_empty() {
            self.spawn("ironstone:tell", db, |db| {
                courier::run(&db.background, &db.info);
            })?;
        }
        if db.wal.directory.archives() {
            self.spawn("ironstone:purge", db, purge_archive)?;
        }
        Ok(())
    }

    /// Starts the threads that the options require and that do not run yet.
    pub(crate) fn follow_options(&mut self, db: &Arc<Shared>) -> Result<()> {
        let options = db.live_options.get();
        let (flushers, compactors) = limits(&options);
        while self.flushers < flushers {
            let i = self.flushers;
            let name = format!("ironstone:high{i}");
            self.spawn(&name, db, move |db| work(db, Role::Flush, i))?;
            self.flushers += 1;
        }
        while self.compactors < compactors {
            let i = self.compactors;
            let name = format!("ironstone:low{i}");
            self.spawn(&name, db, move |db| work(db, Role::Compact, i))?;
            self.compactors += 1;
        }
        if options.stats_dump_period_sec > 0 && !self.dumps_stats {
            self.spawn("ironstone:stats", db, dump_stats)?;
            self.dumps_stats = true;
        }
        Ok(())
    }

    fn spawn(
        &mut self,
        name: &str,
        db: &Arc<Shared>,
        run: impl FnOnce(&Arc<Shared>) + Send + 'static,
    ) -> Result<()> {
        let shared = Arc::clone(db);
        let thread = db
            .env()
            .threads
            .start(
                name,
                Box::new(move || {
                    outbox::belong_to(shared.instance);
                    // `finish` must run even after a panic: no other code calls it for this thread.
                    let ran = catch_unwind(AssertUnwindSafe(|| run(&shared)));
                    shared.left.finish(&shared);
                    ran.unwrap_or_else(|p| resume_unwind(p));
                }),
            )
            .map_err(|e| {
                Error::new(
                    ErrorKind::IoError,
                    format!("cannot start the background thread {name}: {e}"),
                )
            })?;
        self.threads.push(thread);
        Ok(())
    }

    /// Waits for the threads to end, except for the calling thread. [`Shared::begin_close`] must have been called.
    pub(crate) fn join(&mut self) {
        let me = base::sync::thread::current().id();
        for thread in self.threads.drain(..) {
            if thread.thread().id() == me {
                continue; // a callback on this thread dropped the last handle
            }
            // The panic hook has already reported a panic in a job.
            drop(thread.join());
        }
    }
}

/// Makes windows of the mapped logs, and keeps the pool of log files filled.
fn prepare_logs(db: &Arc<Shared>) {
    let Ok(files) = db.wal.log_files() else {
        return;
    };
    let mut state = db.background.state();
    while !state.closing {
        // Without the lock: this may close files. A window that becomes due meanwhile is asked for again.
        drop(state);
        let made_window = make_window(&db.info.log, files);
        state = db.background.state();
        if made_window {
            continue;
        }
        let Some(pool) = files.pool_to_fill() else {
            if state.closing {
                return;
            }
            let again = files.pool_has_unfit().then_some(POOL_RETRY);
            state = db.background.wait_for_logs(state, again);
            continue;
        };
        drop(state);
        let tidies = pool.next() == Some(Next::Tidy);
        let filled = catch_unwind(AssertUnwindSafe(|| {
            pool.step(&mut |bytes| give_way(db, bytes))
        }))
        .unwrap_or_else(|_| Err(Error::aborted("the file system panicked")));
        if let Ok(bytes) = filled {
            db.info.count(Ticker::WalZeroedBytes, bytes);
        }
        state = db.background.state();
        if let Err(e) = filled {
            if tidies {
                db.info.log.warn(format_args!(
                    "a file of the log pool that is of no use cannot be removed, which is tried again: {e}"
                ));
                continue; // filling does not wait for the removal
            }
            db.info.count(Ticker::WalPrecreateFailed, 1);
            db.info.log.warn(format_args!(
                "cannot prepare a log file; one is kept in reserve, then logs are buffered: {e}"
            ));
            state = db.background.wait_for_logs(state, Some(POOL_RETRY));
        }
    }
}

/// Makes a window of a mapped log, if one is due. Returns whether it was.
fn make_window(log: &InfoLog, files: &LogFiles) -> bool {
    let Some(file) = files.mapped().due() else {
        return false;
    };
    let made = catch_unwind(AssertUnwindSafe(|| file.prepare()))
        .unwrap_or_else(|_| Err(Error::aborted("the file system panicked")));
    if let Err(e) = made {
        file.leave(None);
        // It would fail for the next log too, but not for want of space.
        if e.kind() != ErrorKind::NoSpace {
            files.mapped().give_up();
        }
        log.warn(format_args!(
            "the log cannot be mapped, and is written by calls: {e}"
        ));
    }
    true
}

/// Waits until `bytes` more bytes may go to the device. Returns false if the database closes.
fn give_way(db: &Shared, bytes: u64) -> bool {
    let mut left = bytes;
    while left > 0 && !db.background.is_closing() {
        let grant = db.writes.courtesy.grant(&*db.env().clock, left);
        left -= grant.bytes;
        if !grant.beside {
            let micros = grant.bytes * 1_000_000 / POOL_BYTES_PER_SECOND;
            db.env().clock.sleep(Duration::from_micros(micros));
        }
    }
    !db.background.is_closing()
}

/// Deletes archived logs at regular intervals, even if no files become obsolete.
fn purge_archive(db: &Arc<Shared>) {
    let period = Duration::from_secs(db.wal.directory.purge_interval_seconds());
    every(
        &db.background,
        &db.info,
        || Some(period),
        || db.purge_archive(),
    );
}

/// Writes the statistics of the column families to LOG every `stats_dump_period_sec`.
fn dump_stats(db: &Arc<Shared>) {
    let period = || {
        let seconds = u64::from(db.live_options.get().stats_dump_period_sec);
        (seconds > 0).then(|| Duration::from_secs(seconds))
    };
    every(&db.background, &db.info, period, || {
        let text = properties::dump(db);
        db.info
            .log
            .info(format_args!("------- DUMPING STATS -------\n{text}"));
    });
}

/// Calls `act` once per `period` until the database closes. The period may change.
fn every(
    background: &Background,
    info: &Info,
    period: impl Fn() -> Option<Duration>,
    act: impl Fn(),
) {
    let clock = &info.clock;
    let mut last = clock.monotonic_nanos();
    let mut state = background.state();
    while !state.closing {
        state = background.wait_timeout(state, period().unwrap_or(LOOK_AGAIN));
        let now = clock.monotonic_nanos();
        let Some(period) = period() else {
            last = now;
            continue;
        };
        if u128::from(now - last) >= period.as_nanos() && !state.closing {
            last = now;
            drop(state);
            if catch_unwind(AssertUnwindSafe(&act)).is_err() {
                info.log
                    .warn(format_args!("what is done from time to time panicked"));
            }
            state = background.state();
        }
    }
}

/// Does the work of `role` until the database closes. The thread is idle while the options set at most `index`
/// threads for this role.
fn work(db: &Arc<Shared>, role: Role, index: usize) {
    let job = match role {
        Role::Flush => Job::Flush,
        Role::Compact => Job::Compact,
    };
    outbox::begin_work(db.instance, job);
    while let Some(job) = wait_for_work(db, role, index) {
        do_job(db, role, job);
    }
}

/// Waits for the next piece of work; `None` if the database is closing.
fn wait_for_work(db: &Arc<Shared>, role: Role, index: usize) -> Option<Work> {
    let mut state = db.background.state();
    loop {
        if state.closing {
            return None;
        }
        if state.failure.is_none()
            && state.paused == 0
            && !db.background.is_canceled()
            && index < role.limit(&db.live_options.get())
        {
            // The choice calls comparators and partitioners of the application, which may panic.
            let next = catch_unwind(AssertUnwindSafe(|| role.next(db, &mut state)));
            match next {
                Ok(Some(job)) => {
                    state.busy += 1;
                    return Some(job);
                }
                Ok(None) => {}
                Err(_) => {
                    drop(state);
                    let error = Error::aborted("the choice of a background job panicked");
                    db.fail_in(role.reason(), "background job", &error);
                    state = db.background.state();
                    continue;
                }
            }
        }
        if role == Role::Compact && db.background.takes_left_tables(&mut state) {
            state.busy += 1;
            drop(state);
            delete_obsolete_files(db);
            state = db.background.state();
            state.busy -= 1;
            db.background.notify();
            continue;
        }
        if role == Role::Flush {
            db.writes.buffers().rest(db.env().clock.monotonic_nanos());
        }
        // Wake up regularly: files become due for compaction by age.
        let starved = state.starved_for(&db.env().clock);
        let mut pause = starved.unwrap_or(LOOK_AGAIN);
        if role == Role::Flush
            && index == 0
            && state.paused == 0
            && let Some(due) = db.live_options.due_in()
        {
            if due.is_zero() {
                drop(state);
                // A file system that panics must not end the thread.
                if catch_unwind(AssertUnwindSafe(|| persist::write_if_stale(db))).is_err() {
                    db.live_options.put_off();
                    db.info
                        .log
                        .error(format_args!("writing the OPTIONS file panicked"));
                }
                state = db.background.state();
                continue;
            }
            pause = pause.min(due);
        }
        state = db.background.wait_timeout(state, pause);
    }
}

fn do_job(db: &Arc<Shared>, role: Role, job: Work) {
    // A panic is a bug in the engine or in the application. The thread must survive it, or the database would hang.
    let result = catch_unwind(AssertUnwindSafe(|| job(db)))
        .unwrap_or_else(|_| Err(Error::aborted("a background job panicked")));
    let mut starved = None;
    let compacted = role == Role::Compact && result.is_ok();
    match result {
        Err(e) if role.reason() == BackgroundErrorReason::Compaction && lacks_space(&e) => {
            db.info.log.warn(format_args!(
                "a compaction had no space and is tried again later: {e}"
            ));
            starved = Some(e.clone());
            db.info
                .tell_later(move |l| l.on_background_error(role.reason(), &e));
        }
        Err(e) => db.fail_in(role.reason(), "background job", &e),
        Ok(()) => {}
    }
    delete_obsolete_files(db);
    let mut state = db.background.state();
    state.busy -= 1;
    if starved.is_some() {
        state.starvations += 1;
        let now = db.env().clock.monotonic_nanos();
        state.starved_until = now + NO_SPACE_PAUSE.as_nanos() as u64;
    }
    if compacted || starved.is_some() {
        state.starved_by = starved;
    }
    drop(state);
    debt::debt_changed(db);
}

/// A panic here must not end the thread, which counts as busy.
fn delete_obsolete_files(db: &Shared) {
    if catch_unwind(AssertUnwindSafe(|| db.delete_obsolete_files())).is_err() {
        db.info
            .log
            .error(format_args!("the deletion of obsolete files panicked"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_numbered_as_rocksdb_numbers_them() {
        let of = |jobs, flushes, compactions| {
            limits(&DbOptions {
                max_background_jobs: jobs,
                max_background_flushes: flushes,
                max_background_compactions: compactions,
                ..DbOptions::default()
            })
        };
        assert_eq!(of(2, -1, -1), (1, 1));
        assert_eq!(of(1, -1, -1), (1, 1));
        assert_eq!(of(16, -1, -1), (4, 12));
        assert_eq!(of(16, 2, -1), (2, 1));
        assert_eq!(of(16, -1, 3), (1, 3));
        assert_eq!(of(16, 0, 5), (1, 5));
    }
}
