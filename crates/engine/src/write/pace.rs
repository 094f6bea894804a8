//! Writers that are held back: paced while flushes and compactions do not keep up, stopped when they are far behind
//! or when memtables use too much memory.
//!
//! A leader spends from an allowance, and asks the [controller](crate::commit::write_controller) when the allowance
//! is used up, about once per millisecond.

use std::sync::Arc;
use std::time::Duration;

use base::stats::{HistogramKind, Ticker};
use base::sync::atomic::{AtomicBool, Ordering};
use base::{Error, ErrorKind, Result};
use memtable::WriteBuffers;

use super::debt::{debt_of, fill, written};
use super::rotate::look_closer;
use crate::background::Background;
use crate::background::state::check_not_canceled;
use crate::catalog::Catalog;
use crate::catalog::family::Family;
use crate::commit::Writes;
use crate::commit::plan::{Patience, Plan};
use crate::commit::queue::Lead;
use crate::commit::write_controller::{self, Limits};
use crate::info::Info;
use crate::shared::Shared;
use options::Env;
use options::hooks::listener::{WriteStallCause, WriteStallCondition};

/// Holds a group of `bytes` back for as long as the debt requires.
#[cold]
pub(super) fn pace(db: &Shared, lead: &Lead<'_>, plan: &Plan, bytes: usize) -> Result<()> {
    db.info.leave_letters(); // that writers are held back, for one
    // A stop may begin at any moment. A leader that waits for its end first marks itself as held back, so that
    // impatient writers in the queue are refused. A leader that must not wait never waits here.
    if plan.patience.bears_stalls()
        && (db.writes.stall.is_stopped() || db.writes.buffers().should_stall())
    {
        let _held = lead.hold(&impatient(&db.writes, db.env()), Patience::Job);
        wait_for_memory(db)?;
        if db.writes.stall.is_stopped() {
            wait_until(&db.background, &db.info, None, || {
                !db.writes.stall.is_stopped()
            })?;
        }
    }
    let bytes = bytes as u64;
    let spent = i64::try_from(bytes).unwrap_or(i64::MAX);
    let left = db
        .writes
        .stall
        .allowance
        .fetch_sub(spent, Ordering::Relaxed);
    if left >= spent {
        return Ok(());
    }
    let nanos = ask(db, bytes);
    if nanos > 0 && plan.patience.bears_stalls() {
        let ticker = if db.writes.stall.is_normal() {
            Ticker::WritePacedMicros
        } else {
            Ticker::StallMicros
        };
        let _held = (!db.writes.stall.is_normal())
            .then(|| lead.hold(&impatient(&db.writes, db.env()), Patience::Job));
        hold_back(&db.info, Duration::from_nanos(nanos), ticker);
    }
    Ok(())
}

#[cold]
pub(super) fn impatient(writes: &Writes, env: &Env) -> Error {
    let (condition, cause) = writes.stall.lock().worst();
    let cause = cause.map_or(WriteStallCause::WriteBufferManagerLimit, |(c, _)| c);
    Error::new(
        ErrorKind::Incomplete,
        format!("Write stall: {}", cause.name()),
    )
    .hint(format!(
        "raise {}, or write with no_slowdown = false",
        match cause {
            WriteStallCause::WriteBufferManagerLimit if env.write_buffer_manager.is_some() => {
                "buffer_size of the WriteBufferManager"
            }
            _ => cause.option(condition),
        }
    ))
}

/// Asks the controller for `bytes` and a new allowance. Returns the nanoseconds that the writer must
/// wait for both.
fn ask(db: &Shared, bytes: u64) -> u64 {
    let families = db.catalog.families.load();
    let now = db.env().clock.monotonic_nanos();
    let mut controller = db.writes.stall.lock();
    for f in families.iter() {
        controller.fill(f.id, fill(f));
    }
    controller.tick(now, written(&families));
    let allowance = controller.allowance();
    let nanos = controller.admit(now, bytes + allowance);
    db.writes.stall.allowance.store(
        i64::try_from(allowance).unwrap_or(i64::MAX),
        Ordering::Relaxed,
    );
    db.writes.stall.publish(&controller);
    nanos
}

fn hold_back(info: &Info, time: Duration, ticker: Ticker) {
    let clock = &info.clock;
    let start = clock.monotonic_nanos();
    clock.sleep(time);
    let waited = clock.monotonic_nanos().saturating_sub(start) / 1000;
    if ticker == Ticker::StallMicros {
        stalled(info, waited);
    } else {
        info.count(ticker, waited);
    }
}

fn stalled(info: &Info, micros: u64) {
    info.count(Ticker::StallMicros, micros);
    info.record(HistogramKind::WriteStall, micros);
}

/// Waits while the memtables of all databases that share the write-buffer manager are too large, as long
/// as some of that memory may become free.
fn wait_for_memory(db: &Shared) -> Result<()> {
    const LOOK: Duration = Duration::from_millis(10);
    let memory = db.writes.buffers();
    if !memory.should_stall() {
        return Ok(());
    }
    db.writes.stall.memory_stops.fetch_add(1, Ordering::Relaxed);
    db.info.log.warn(format_args!(
        "Stopping writes because memtables use {} of {} bytes (write buffer manager); option \
         db_write_buffer_size, or the manager's buffer_size, allows more",
        memory.used(),
        memory.limit()
    ));
    let clock = &db.info.clock;
    let start = clock.monotonic_nanos();
    let mut hope = Hope::default();
    while memory.should_stall() {
        db.check_writable()?;
        db.background.check()?;
        // This database must flush its own memtables; other databases flush theirs.
        look_closer(db)?;
        if is_flushing(&db.background, &db.catalog) {
            hope.still_since = None;
        } else if !hope.is_left(memory, clock.monotonic_nanos()) {
            break;
        }
        // A listener may make room when it is called because of the stall.
        db.info.leave_letters();
        memory.wait(&**clock, LOOK);
    }
    stalled(
        &db.info,
        clock.monotonic_nanos().saturating_sub(start) / 1000,
    );
    Ok(())
}

/// How long a writer waits for memory that its own database does not flush.
#[derive(Default)]
struct Hope {
    /// The time at which the wait began (monotonic nanoseconds), and the last memtable that was sealed by then.
    since: Option<(u64, u64)>,
    /// The time since which no flush runs (monotonic nanoseconds).
    still_since: Option<u64>,
}

impl Hope {
    /// Longest wait for flushes of other databases, which may fail and begin again.
    const OTHERS_NANOS: u64 = 1_000_000_000;
    /// Longest wait while no flush runs. A flush may be about to begin, and most readers of a flushed
    /// memtable are done sooner. An iterator may keep the memtable longer, and may be this thread's own.
    const STILL_NANOS: u64 = 100_000_000;

    /// Whether to go on waiting. Memory that did not become free in time is not waited for again.
    fn is_left(&mut self, memory: &WriteBuffers, now: u64) -> bool {
        let Some(sealed) = memory.awaited() else {
            return false;
        };
        let (since, sealed) = *self.since.get_or_insert((now, sealed));
        let mut left = now.saturating_sub(since) < Self::OTHERS_NANOS;
        if memory.is_flushing() {
            self.still_since = None;
        } else {
            let still_since = *self.still_since.get_or_insert(now);
            left &= now.saturating_sub(still_since) < Self::STILL_NANOS;
        }
        if !left {
            memory.give_up(sealed);
        }
        left
    }
}

/// Whether memtables of this database are being written to tables, or about to be.
fn is_flushing(background: &Background, catalog: &Catalog) -> bool {
    let due = |f: &Arc<Family>| f.flush_due() && !f.is_dropped();
    !background.state().flushing.is_empty() || catalog.families.load().iter().any(due)
}

/// Waits until `ready` returns true, or until the wait is canceled. Only operations that end with [`debt_changed`](super::debt::debt_changed)
/// can make `ready` true.
fn wait_until(
    background: &Background,
    info: &Info,
    canceled: Option<&Arc<AtomicBool>>,
    ready: impl Fn() -> bool,
) -> Result<()> {
    let clock = &info.clock;
    let start = clock.monotonic_nanos();
    let mut state = background.state();
    while !ready() {
        state.check_writable()?;
        background.check()?;
        check_not_canceled(canceled)?;
        state = background.wait_or_cancel(state, canceled);
    }
    drop(state);
    stalled(info, clock.monotonic_nanos().saturating_sub(start) / 1000);
    Ok(())
}

/// Waits until one more immutable memtable of the family and one more file in level 0 would hold no
/// writer back. A manual flush waits for this before it adds both.
pub(crate) fn wait_for_room(
    background: &Background,
    info: &Info,
    family: &Arc<Family>,
    canceled: Option<&Arc<AtomicBool>>,
) -> Result<()> {
    if has_room(family) {
        return Ok(());
    }
    family.want_flush();
    background.wake();
    wait_until(background, info, canceled, || has_room(family))
}

/// Whether [`wait_for_room`] need not wait.
pub(crate) fn has_room(family: &Family) -> bool {
    let limits = Limits::of(&family.options().cf);
    let mut debt = debt_of(family);
    let idle = debt.immutable < limits.min_write_buffer_number_to_merge
        && debt.l0_files < limits.l0_compaction;
    debt.immutable += 1;
    debt.l0_files += 1;
    idle || family.is_dropped()
        || write_controller::judge(&debt, &limits).0 == WriteStallCondition::Normal
}

/// Holds a `low_pri` write of `bytes` back while compactions are due: RocksDB's 1 MiB per second, but at most one
/// second per write.
pub(crate) fn give_way(catalog: &Catalog, info: &Info, plan: &Plan, bytes: usize) -> Result<()> {
    const LOW_PRI_BYTES_PER_SECOND: u64 = 1 << 20;
    let behind = catalog.families.load().iter().any(|f| {
        let options = f.options();
        let options = &options.cf;
        let files = f.view.load().version.level(0).len();
        !options.disable_auto_compactions
            && files >= options.level0_file_num_compaction_trigger.max(1) as usize
    });
    if !behind {
        return Ok(());
    }
    if !plan.patience.bears_stalls() {
        return Err(Error::new(
            ErrorKind::Incomplete,
            "Low priority write stall: compactions are due",
        ));
    }
    let micros = (bytes as u64).saturating_mul(1_000_000) / LOW_PRI_BYTES_PER_SECOND;
    let time = Duration::from_micros(micros.clamp(1, 1_000_000));
    hold_back(info, time, Ticker::StallMicros);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use memtable::Tracker;

    const MS: u64 = 1_000_000;

    fn sealed(m: &Arc<WriteBuffers>) -> Tracker {
        let tracker = Tracker::new(Arc::clone(m));
        tracker.reserve(10);
        tracker.seal();
        tracker
    }

    /// Regression: a thread that was put to sleep in the middle of a read kept a memtable alive after its
    /// flush, and writers at once exceeded the limit by hundreds of kilobytes.
    #[test]
    fn who_reads_what_was_flushed_has_a_moment_to_leave_it() {
        let m = Arc::new(WriteBuffers::new(10, None, true));
        let mut hope = Hope::default();
        assert!(!hope.is_left(&m, 0), "nothing is sealed");
        let _held = sealed(&m);
        assert!(hope.is_left(&m, MS) && hope.is_left(&m, 100 * MS));
        assert!(!hope.is_left(&m, 101 * MS));
        assert!(!Hope::default().is_left(&m, 102 * MS), "not once more");
        let mut hope = Hope::default();
        let _second = sealed(&m);
        assert!(hope.is_left(&m, 103 * MS), "it may come");
        let _third = sealed(&m);
        assert!(!hope.is_left(&m, 203 * MS));
        assert!(Hope::default().is_left(&m, 204 * MS), "one came later");
    }

    #[test]
    fn flushes_of_others_that_fail_and_begin_again_are_waited_for_a_second() {
        let m = Arc::new(WriteBuffers::new(10, None, true));
        let _held = sealed(&m);
        let mut hope = Hope::default();
        for ms in 0..1000 {
            let _flushes = (ms % 50 < 40).then(|| m.flush_begins());
            assert!(hope.is_left(&m, ms * MS), "{ms}");
        }
        let _flushes = m.flush_begins();
        assert!(!hope.is_left(&m, 1000 * MS));
        assert!(!Hope::default().is_left(&m, 1000 * MS), "not once more");
    }
}
