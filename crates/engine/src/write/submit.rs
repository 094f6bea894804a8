//! From the log's buffer to the device: the one place where writes wait for the device.
//!
//! The log is locked while a group is appended, but not while the device works. A write on its way to the
//! device is a [`LogFlight`], and the thread that began it runs it. At most `wal_pipeline_depth` flights
//! are under way at once; a thread that finds no slot waits until one lands.
//!
//! A flight that fails ends its log. If the process still has all records that are not durable, the
//! file is cut back to its durable part, the rest is written to a new log, and no writer gets an error.
//! Otherwise the database refuses writes until `resume`.

use std::time::Duration;

use base::perf::{self, PerfCounter};
use base::stats::{HistogramKind, Ticker};
use base::{Error, ErrorKind, Result};
use io::SyncKind;

use super::rotate::switch_log;
use crate::background::Background;
use crate::commit::order::Ticket;
use crate::commit::pipeline::{InFlight, Logged};
use crate::commit::plan::Patience;
use crate::commit::queue::{Group, Lead};
use crate::shared::Shared;
use crate::wal::active::{ActiveLog, Guard, LogFlight};
use crate::wal::{LogStep, MENDING, Wal, read_only};

/// How long a group waits before it tries again on a full device.
const NO_SPACE_RETRY: Duration = Duration::from_millis(50);

/// A flight that counts as landed even if its thread panics, because other threads wait for it. It is created
/// after the log was unlocked.
#[must_use = "the log waits until it is settled"]
pub(crate) struct Flying<'a> {
    db: &'a Shared,
    flight: Option<LogFlight>,
}

impl Drop for Flying<'_> {
    fn drop(&mut self) {
        if let Some(flight) = self.flight.take() {
            let error = Error::aborted("a writer panicked while its log write was on its way");
            let mut guard = self.db.wal.lock();
            if let Some(log) = guard.as_mut() {
                drop(log.landed(flight, Err(error.clone())));
            }
            drop(guard);
            self.db.fail("log write", &error);
        }
    }
}

fn active<'a>(guard: &'a mut Guard<'_>) -> Result<&'a mut ActiveLog> {
    guard.as_mut().ok_or_else(read_only)
}

/// Gives the group its sequence numbers, appends it to the log, and begins the flight that `step` requires. On a
/// full device it waits for space, for at most `wal_no_space_wait_ms`.
pub(crate) fn log_group<'a>(
    db: &'a Shared,
    lead: &Lead<'_>,
    step: LogStep,
    group: &mut Group,
) -> Result<Logged<'a, Flying<'a>>> {
    let bytes = group.bytes();
    let wait = if group.lead.plan.patience.bears_stalls() {
        db.options.db.wal_no_space_wait_ms
    } else {
        0
    };
    let mut held = None;
    let clock = &db.env().clock;
    let mut began = None;
    let logged = loop {
        match try_log_group(db, step, group, bytes) {
            Err(e) if e.kind() == ErrorKind::NoSpace && !db.background.is_closing() => {
                let now = clock.monotonic_nanos();
                let since = *began.get_or_insert_with(|| {
                    db.info.count(Ticker::WalNoSpace, 1);
                    now
                });
                // Others may find space for less.
                let lasts = lacks_space(db, &e).max(now - since);
                if lasts >= wait * 1_000_000 || db.background.state().failure.is_some() {
                    return Err(e.hint("make room on the device; writes then succeed again"));
                }
                held.get_or_insert_with(|| lead.hold(&e, Patience::Job));
                clock.sleep(NO_SPACE_RETRY);
            }
            other => break other?,
        }
    };
    drop(held);
    if let Some(since) = began {
        let micros = (clock.monotonic_nanos() - since) / 1000;
        db.info.count(Ticker::StallMicros, micros);
    }
    db.info.count(Ticker::WalFileBytes, bytes);
    perf::count(PerfCounter::IoBytesWritten, bytes);
    db.info.count(Ticker::BytesWritten, bytes);
    db.info.count(Ticker::WriteWithWal, 1);
    db.wal.logs.add(bytes);
    if step != LogStep::Sync && !group.lead.plan.detached {
        db.wal.demand.lazily();
    }
    Ok(logged)
}

/// Takes note that the log has no space. Returns for how many nanoseconds.
#[cold]
pub(super) fn lacks_space(db: &Shared, e: &Error) -> u64 {
    let lasts = db.wal.space.lacks(db.env().clock.monotonic_nanos());
    if lasts.is_none() {
        db.info.log.warn(format_args!(
            "Stalling writes: the log has no space: {e}; they go on when there is some"
        ));
    }
    lasts.unwrap_or(0)
}

/// Takes note that the log has space.
#[inline]
pub(super) fn has_space(db: &Shared) {
    let clock = &db.env().clock;
    if db.wal.space.is_there(|| clock.monotonic_nanos()).is_some() {
        db.info.log.info(format_args!("the log has space again"));
    }
}

fn try_log_group<'a>(
    db: &'a Shared,
    step: LogStep,
    group: &mut Group,
    bytes: u64,
) -> Result<Logged<'a, Flying<'a>>> {
    let files = db.wal.log_files()?;
    let (mut guard, step) = lock_for(db, step, bytes)?;
    let log = active(&mut guard)?;
    let ticket = db.writes.order.begin(group.count());
    group.number(ticket.first);
    let before = log.end();
    let begun = append(log, step, group, &ticket).and_then(|()| log.begin(files, step));
    match begun {
        Ok(flight) => {
            let used = log.newly_used();
            if let Some(used) = used {
                files.note_used(log.number, used);
            }
            let prepares = used.is_some() || log.needs_window();
            drop(guard);
            if step != LogStep::Append {
                has_space(db); // the system has taken it
            }
            if prepares {
                db.background.want_logs(); // the next file, or the next part of this one
            }
            let flight = flight.map(|flight| Flying {
                db,
                flight: Some(flight),
            });
            Ok(Logged { ticket, flight })
        }
        Err(e) => {
            // If the disk is full, the log goes on without the group.
            let goes_on = e.kind() == ErrorKind::NoSpace && log.cut_back(before).is_ok();
            if !goes_on {
                db.fail("log write", &e);
            }
            drop(guard);
            drop(ticket);
            Err(e)
        }
    }
}

fn append(log: &mut ActiveLog, step: LogStep, group: &Group, ticket: &Ticket<'_>) -> Result<()> {
    // The fence is part of the last batch of the group.
    let fence = step == LogStep::Sync;
    let followers = &group.followers;
    log.append(group.lead.batch.data(), fence && followers.is_empty())?;
    for (i, f) in followers.iter().enumerate() {
        let fence = fence && i + 1 == followers.len();
        f.try_batch(|b| log.append(b.data(), fence))?;
    }
    log.note_sequence(ticket.last);
    Ok(())
}

/// Locks the log for a group of `bytes`, once it has room, has a suitable kind, and can begin the flight that
/// `step` requires. Also returns the step of the group, which goes further than `step` if many bytes of the log
/// wait in the process.
fn lock_for(db: &Shared, step: LogStep, bytes: u64) -> Result<(Guard<'_>, LogStep)> {
    let files = db.wal.log_files()?;
    let mut guard = db.wal.lock();
    if active(&mut guard)?.note_step(files, step) {
        db.background.want_logs(); // the pool is wanted
    }
    loop {
        let log = active(&mut guard)?;
        if log.failure().is_some() {
            guard = wait_for_mending(&db.background, &db.wal, guard)?;
            continue;
        }
        let number = log.number;
        if let Some(kind) = log.successor(files, bytes) {
            drop(guard);
            switch_log(db, number, kind)?;
            guard = db.wal.lock();
            continue;
        }
        let step = log.step_for(step);
        if log.has_slot(step) {
            return Ok((guard, step));
        }
        guard = db.wal.wait_for_landing(guard, None);
    }
}

/// Waits for a moment for another thread to mend the log, which has failed; the caller then looks again.
/// Errors: the database refuses writes.
fn wait_for_mending<'a>(
    background: &Background,
    wal: &'a Wal,
    guard: Guard<'a>,
) -> Result<Guard<'a>> {
    background.state().check_writable()?;
    Ok(wal.wait_for_landing(guard, Some(MENDING)))
}

impl InFlight for Flying<'_> {
    /// Runs the flight and counts it as landed.
    fn settle(mut self) -> Result<()> {
        let db = self.db;
        let Some(flight) = &self.flight else {
            return Ok(());
        };
        let wanted = Wanted {
            last: flight.last_sequence,
            given_up: flight.given_up,
        };
        let synced = flight.synced;
        let outcome = run(db, flight);
        let mut guard = db.wal.lock();
        let log = active(&mut guard)?;
        let landed = match self.flight.take() {
            Some(flight) => log.landed(flight, outcome),
            None => outcome.map(|()| 0),
        };
        db.wal.tell_landed(&guard);
        match landed {
            Ok(durable) => db.is_durable_through(durable),
            Err(e) => return mend(db, guard, e, &wanted),
        }
        let closed = active(&mut guard)?.has_closed();
        if synced {
            guard = wait_for_earlier(db, guard, &wanted)?;
        }
        drop(guard);
        if synced && closed {
            db.track_closed_logs()
                .inspect_err(|e| db.fail("tracking of logs", e))?;
        }
        Ok(())
    }
}

/// The writes that a flight was to make durable.
struct Wanted {
    last: u64,
    /// [`ActiveLog::given_up`] when the flight began.
    given_up: u64,
}

/// Waits for the device, and counts how long that takes.
fn run(db: &Shared, flight: &LogFlight) -> Result<()> {
    let clock = &db.env().clock;
    let begun = clock.monotonic_nanos();
    db.wal.device.took_off(begun);
    let timer = perf::start(&**clock);
    let outcome = {
        let _others_wait = flight
            .synced
            .then(|| db.writes.courtesy.take_off(flight.bytes()));
        flight.run()
    };
    let nanos = clock.monotonic_nanos() - begun;
    let what = if flight.synced {
        PerfCounter::IoFsyncNanos
    } else {
        PerfCounter::IoWriteNanos
    };
    perf::stop(what, &**clock, timer);
    db.wal.device.landed();
    if flight.synced {
        db.info.count(Ticker::WalFileSynced, 1);
        if let Some(s) = &db.env().statistics {
            s.record_time(HistogramKind::WalFileSyncMicros, nanos / 1000);
        }
    }
    let limit_ms = db.options.db.wal_slow_io_ms;
    db.wal.device.report(&db.info, nanos, limit_ms);
    outcome
}

/// Waits for earlier flights: if several are under way, the earlier ones may not have landed yet. Errors: an
/// earlier flight failed, and its content could not be written again.
fn wait_for_earlier<'a>(
    db: &'a Shared,
    mut guard: Guard<'a>,
    wanted: &Wanted,
) -> Result<Guard<'a>> {
    while db.wal.durable.get() < wanted.last {
        let log = active(&mut guard)?;
        if let Some(e) = log.failure() {
            mend(db, guard, e, wanted)?;
            return Ok(db.wal.lock());
        }
        if log.given_up() != wanted.given_up {
            return Err(given_up());
        }
        db.background.state().check_not_failed()?;
        // The wait has a limit: a thread that makes the database fail does not hold the log's lock, so
        // its wake-up may be missed.
        guard = db.wal.wait_for_landing(guard, Some(MENDING));
    }
    Ok(guard)
}

#[cold]
fn given_up() -> Error {
    Error::aborted("the log of this write was given up: the database was resumed meanwhile")
}

/// Called after a flight has failed: writes the records that are not durable to a new log, or makes the
/// database refuse writes.
fn mend(db: &Shared, mut guard: Guard<'_>, error: Error, wanted: &Wanted) -> Result<()> {
    loop {
        if db.wal.durable.get() >= wanted.last {
            return Ok(()); // another thread did it
        }
        if db.background.state().failure.is_some() {
            return Err(error);
        }
        let log = active(&mut guard)?;
        if log.given_up() != wanted.given_up {
            return Err(error); // the log was given up
        }
        if log.failure().is_none() {
            db.fail("log sync", &error); // it was an older log that failed
            return Err(error);
        }
        if log.all_landed() {
            break;
        }
        guard = db.wal.wait_for_landing(guard, Some(MENDING));
    }
    let log = active(&mut guard)?;
    let old = log.number;
    match Mending::during(db, &error, || transfer(db, log)) {
        Ok(()) => {
            let sequence = log.last_sequence();
            db.info.log.warn(format_args!(
                "log {old}: {error}; what was not durable went to log {}",
                log.number
            ));
            db.info.count(Ticker::WalRelogged, 1);
            db.is_durable_through(sequence);
            db.wal.tell_landed(&guard);
            Ok(())
        }
        Err(e) => {
            db.fail("log write", &error);
            db.info
                .log
                .error(format_args!("log {old} cannot be replaced: {e}"));
            db.wal.tell_landed(&guard);
            Err(error)
        }
    }
}

/// Held while the log is mended. If that panics, the database fails, so that the threads that wait for it
/// get an error.
struct Mending<'a> {
    db: &'a Shared,
    /// The error of the waiting threads; `None` once the attempt has ended.
    error: Option<&'a Error>,
}

impl<'a> Mending<'a> {
    /// Calls `f`, which mends the log after `error`.
    fn during(db: &'a Shared, error: &'a Error, f: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut mending = Self {
            db,
            error: Some(error),
        };
        let result = f();
        mending.error = None;
        result
    }
}

impl Drop for Mending<'_> {
    fn drop(&mut self) {
        if let Some(error) = self.error {
            self.db.fail("log write", error);
        }
    }
}

fn transfer(db: &Shared, log: &mut ActiveLog) -> Result<()> {
    let Some(records) = log.unacknowledged() else {
        return Err(Error::aborted(
            "some of what is not durable is not in the process any more",
        ));
    };
    // Records that are written again must not stay in the old log: they would be applied twice.
    log.file().truncate(log.durable_end().0)?;
    write_again(db, log, &records).inspect_err(|e| log.lacks_earlier(e))
}

/// Writes the records, which are cut off from the active log, to a new one.
fn write_again(db: &Shared, log: &mut ActiveLog, records: &[Vec<u8>]) -> Result<()> {
    log.file().sync(SyncKind::All)?;
    let mut next = db.wal.create_next(&db.catalog.numbers, log.kind())?;
    next.begin(log, |log, new| {
        log.replace(new);
        for record in records {
            log.append(record, false)?;
        }
        log.sync_all()
    })?;
    Ok(())
}

/// Hands the log's process buffer to the operating system, and makes it durable if `sync`.
pub(crate) fn flush_wal(db: &Shared, sync: bool) -> Result<()> {
    bring_along(db, sync, sync)
}

/// Makes all logged records durable, for a copy of the database or for its close. This does not count as a
/// synced write, for which log files would be prepared.
pub(crate) fn sync_unasked(db: &Shared) -> Result<()> {
    bring_along(db, true, false)
}

/// Brings the log to the device if `sync`, else to the operating system. `by_writer`: it counts as a
/// synced write.
fn bring_along(db: &Shared, sync: bool, by_writer: bool) -> Result<()> {
    let _courier = db.courier();
    db.check_writable()?;
    let files = db.wal.log_files()?;
    let step = if sync { LogStep::Sync } else { LogStep::Submit };
    let mut guard = db.wal.lock();
    if by_writer && active(&mut guard)?.note_step(files, step) {
        db.background.want_logs(); // the pool is wanted
    }
    loop {
        let log = active(&mut guard)?;
        if log.failure().is_some() {
            guard = wait_for_mending(&db.background, &db.wal, guard)?;
        } else if log.can_begin(step) {
            break;
        } else {
            guard = db.wal.wait_for_landing(guard, None);
        }
    }
    // While another thread resumes, earlier writes are in no log that counts, and not in tables yet.
    db.writes.order.check_refusal()?;
    let log = active(&mut guard)?;
    let last = log.last_sequence();
    let begun = log.begin(files, step);
    if let Err(e) = &begun
        && (e.kind() != ErrorKind::NoSpace || log.failure().is_some())
    {
        db.fail("flush_wal", e);
    }
    let prepares = log.needs_window();
    drop(guard);
    if prepares {
        db.background.want_logs();
    }
    if let Some(flight) = begun? {
        let flight = Some(flight);
        return Flying { db, flight }.settle();
    }
    if sync {
        db.is_durable_through(last);
    }
    Ok(())
}
