//! Room for a write group: rotates full memtables, and paces or stops writers when flushes and
//! compactions do not keep up.
//!
//! The fast path is a few loads. A thread that fills a memtable or meets an error raises [`Attention`];
//! only then does the leader look closer. [`Stall::is_shaping`] is true while there is any debt: the
//! leader then spends from an allowance, and asks the controller ([`crate::commit::write_controller`]) when
//! the allowance is used up, about once per millisecond.
//!
//! Every operation that changes the debt (a rotation, a flush, a compaction, a change of the set of
//! families) calls [`debt_changed`], which hands the debt of all families to the controller.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use base::stats::{HistogramKind, Ticker};
use base::sync::atomic::{AtomicBool, Ordering};
use base::{Error, ErrorKind, Result};
use memtable::WriteBuffers;

use super::rotate::{idle_log_holders, logs_too_large, oldest_log_holders, rotate};
use crate::background::Background;
use crate::background::state::check_not_canceled;
use crate::catalog::Catalog;
use crate::catalog::family::{Family, FamilySet};
use crate::commit::Writes;
use crate::commit::order::Closed;
use crate::commit::pipeline::at_the_gate;
use crate::commit::plan::{Patience, Plan};
use crate::commit::queue::Lead;
use crate::commit::stall::Attention;
use crate::commit::write_controller::{self, Change, Debt, Limits};
use crate::info::Info;
use crate::info::log::Event;
use crate::shared::Shared;
use crate::shared::gate::patience;
use options::Env;
use options::hooks::listener::{FlushReason, WriteStallCause, WriteStallCondition, WriteStallInfo};
use picking::candidates::pending_compaction_bytes;

/// Lets a group of `bytes` through, after rotating memtables and waiting as needed.
#[inline]
pub(crate) fn admit(db: &Shared, lead: &Lead<'_>, plan: &Plan, bytes: usize) -> Result<()> {
    if db.writes.attention.raised() {
        let gate = |p| db.writes.order.close(p);
        look_closer_by(db, || at_the_gate(lead, plan.patience, gate))?;
    }
    if db.writes.stall.is_shaping() || db.writes.buffers().should_stall() {
        pace(db, lead, plan, bytes)?;
    }
    Ok(())
}

/// Fails a write that would have to wait but must not, before it queues behind a write that waits.
#[inline]
pub(crate) fn check_patience(writes: &Writes, env: &Env, plan: &Plan) -> Result<()> {
    if !plan.patience.bears_stalls()
        && (!writes.stall.is_normal() || writes.buffers().should_stall())
    {
        return Err(impatient(writes, env));
    }
    Ok(())
}

#[cold]
fn impatient(writes: &Writes, env: &Env) -> Error {
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

/// Rotates the memtables that are to become immutable. Errors: the database refuses writes; the new log cannot be
/// created; the gate is closed and this thread must not wait.
#[cold]
pub(crate) fn look_closer(db: &Shared) -> Result<()> {
    look_closer_by(db, || db.writes.order.close(patience(&db.background)))
}

/// [`look_closer`] for a thread that does not write. If the gate is kept closed, maybe by this thread,
/// the work is left to the next writer.
pub(crate) fn look_closer_soon(db: &Shared) {
    drop(look_closer_by(db, || db.writes.order.close(Patience::Job)));
}

/// [`look_closer`], with the gate closed by `close`.
#[cold]
fn look_closer_by<'a>(db: &'a Shared, close: impl FnOnce() -> Result<Closed<'a>>) -> Result<()> {
    db.writes.attention.clear();
    // A rotation that fails now is still due: the next group must try it again.
    let mut due = StillDue(Some(&db.writes.attention));
    rotate_what_is_due(db, close)?;
    due.0 = None;
    Ok(())
}

/// When dropped, raises the attention of the next group, unless it is empty.
struct StillDue<'a>(Option<&'a Attention>);

impl Drop for StillDue<'_> {
    fn drop(&mut self) {
        if let Some(attention) = self.0 {
            attention.raise();
        }
    }
}

fn rotate_what_is_due<'a>(
    db: &'a Shared,
    close: impl FnOnce() -> Result<Closed<'a>>,
) -> Result<()> {
    db.check_writable()?;
    if to_rotate(db).is_empty() {
        return Ok(());
    }
    let _courier = db.courier();
    let _closed = close()?;
    // The leader of the other queue may have rotated the memtables meanwhile.
    let chosen = to_rotate(db);
    if chosen.is_empty() {
        return Ok(());
    }
    for (family, reason) in &chosen {
        family.set_flush_reason(*reason);
    }
    let (to_seal, sealed): (Vec<_>, Vec<_>) = chosen.iter().partition(|(family, reason)| {
        *reason == FlushReason::WriteBufferFull || !family.view.load().mem.is_empty()
    });
    // Families whose active memtable is empty need no new log.
    for (family, _) in sealed {
        family.want_flush();
    }
    let to_seal: Vec<_> = to_seal.iter().map(|(f, _)| Arc::clone(f)).collect();
    let rotated = if to_seal.is_empty() {
        Ok(())
    } else {
        rotate(db, &to_seal).inspect_err(|_| db.background.wake())
    };
    if let Err(e) = rotated {
        let must = |reason: &FlushReason| *reason != FlushReason::WalFull || logs_too_large(db);
        if chosen.iter().any(|(_, reason)| must(reason)) {
            return Err(e);
        }
        // Only idle families were chosen: there is still room for writes, and the next new log raises the
        // attention again.
        db.info
            .log
            .warn(format_args!("idle families keep their logs: {e}"));
        return db.check_writable();
    }
    for (family, reason) in &chosen {
        if *reason != FlushReason::WriteBufferFull {
            family.want_flush();
        }
    }
    db.background.wake();
    Ok(())
}

/// The families whose active memtable is to become immutable, and the reason. The memtable is full; or it
/// keeps old logs alive while the logs together exceed `max_total_wal_size`; or it belongs to an idle family
/// that keeps many logs alive for little data; or it is the oldest memtable while all memtables together are
/// too large. With `atomic_flush`, all other families with data are included.
fn to_rotate(db: &Shared) -> Vec<(Arc<Family>, FlushReason)> {
    let families = db.catalog.families.load();
    let mut chosen: Vec<(Arc<Family>, FlushReason)> = Vec::new();
    let mut choose = |family: &Arc<Family>, reason| {
        if !chosen.iter().any(|(f, _)| f.id == family.id) {
            chosen.push((Arc::clone(family), reason));
        }
    };
    for f in families.iter() {
        if f.flush_wanted.load(Ordering::Relaxed) {
            choose(f, FlushReason::WriteBufferFull);
        }
    }
    if logs_too_large(db) {
        for f in oldest_log_holders(&db.background, &families) {
            choose(&f, FlushReason::WalFull);
        }
    }
    let limited = db.writes.max_total_wal_size.load(Ordering::Relaxed) > 0;
    if !limited && !db.options.db.atomic_flush {
        for f in idle_log_holders(&db.background, &families) {
            choose(&f, FlushReason::WalFull);
        }
    }
    if db.writes.buffers().should_flush()
        && let Some(f) = oldest_memtable(&families)
    {
        choose(f, FlushReason::WriteBufferManager);
    }
    if let Some((_, reason)) = chosen.first()
        && db.options.db.atomic_flush
    {
        let reason = *reason;
        for f in families.iter() {
            if !f.view.load().mem.is_empty() && !chosen.iter().any(|(c, _)| c.id == f.id) {
                chosen.push((Arc::clone(f), reason));
            }
        }
    }
    chosen
}

/// The family with the oldest memtable; of several such families, the family with the most data. Families that
/// are due for a flush anyway do not count.
fn oldest_memtable(families: &FamilySet) -> Option<&Arc<Family>> {
    let idle = |f: &&Arc<Family>| {
        let view = f.view.load();
        let has_some = !(view.imm.is_empty() && view.mem.is_empty());
        has_some && !f.is_being_flushed(&view)
    };
    families.iter().filter(idle).min_by_key(|f| {
        let view = f.view.load();
        let oldest = view.imm.last().unwrap_or(&view.mem);
        (oldest.log_number(), Reverse(view.mem.data_bytes()))
    })
}

/// Holds a group of `bytes` back for as long as the debt requires.
#[cold]
fn pace(db: &Shared, lead: &Lead<'_>, plan: &Plan, bytes: usize) -> Result<()> {
    check_patience(&db.writes, db.env(), plan)?;
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

/// The rate to which writers are limited now, in bytes per second; 0 if they are not held back.
pub(crate) fn rate(db: &Shared) -> u64 {
    let now = db.env().clock.monotonic_nanos();
    let written = written(&db.catalog.families.load());
    let mut controller = db.writes.stall.lock();
    controller.tick(now, written);
    db.writes.stall.publish(&controller);
    controller.felt_rate(now).map_or(0, |r| r as u64)
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

/// How full the active memtable is: 0 to 1.
fn fill(family: &Family) -> f64 {
    let bytes = family.view.load().mem.memory_usage() as f64;
    (bytes / family.write_buffer_size() as f64).min(1.0)
}

/// Bytes written to all families so far.
fn written(families: &FamilySet) -> u64 {
    families.iter().map(|f| f.written()).sum()
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

/// Waits until `ready` returns true, or until the wait is canceled. Only operations that end with [`debt_changed`]
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

fn debt_of(family: &Family) -> Debt {
    let view = family.view.load();
    let level0 = view.version.level(0);
    Debt {
        immutable: view.imm.len(),
        fill: fill(family),
        l0_files: level0.len(),
        l0_done: level0.iter().map(|f| f.compacted()).sum(),
        pending_bytes: pending_compaction_bytes(&view.version, &family.options().cf),
        l0_compacting: level0.iter().any(|f| f.is_being_compacted()),
    }
}

/// Measures the debt of all families, and reports changes of the write stall conditions in LOG and to listeners.
/// The caller must not hold the state lock.
pub(crate) fn debt_changed(db: &Shared) {
    let families = db.catalog.families.load();
    let now = db.env().clock.monotonic_nanos();
    let mut changes = Vec::new();
    {
        let mut controller = db.writes.stall.lock();
        let written = written(&families);
        for f in families.iter() {
            let debt = debt_of(f);
            let limits = Limits::of(&f.options().cf);
            if let Some(change) = controller.observe(now, f.id, limits, debt, written) {
                changes.push((Arc::clone(f), change, debt));
            }
        }
        controller.keep(|id| families.get(id).is_some());
        db.writes.stall.allowance.store(0, Ordering::Relaxed);
        db.writes.stall.publish(&controller);
    }
    for (family, change, debt) in &changes {
        tell(db, family, *change, debt);
    }
    db.background.wake();
}

fn tell(db: &Shared, family: &Family, change: Change, debt: &Debt) {
    let Change { prev, cur, cause } = change;
    let name = &family.name;
    let option = cause.map_or("", |c| c.option(cur));
    if let Some(cause) = cause {
        let value = base::options::OptionTable::get(&family.options().cf, option);
        db.info.log.warn(format_args!(
            "[{name}] {}; option {option} = {} allows more",
            describe(db, family, cur, cause, debt),
            value.unwrap_or_default()
        ));
    } else {
        db.info
            .log
            .info(format_args!("[{name}] writes are free again"));
    }
    db.info.log.event(
        &Event::new("write_stall")
            .text("cf_name", name)
            .text("condition", cur.name())
            .text("previous", prev.name())
            .text("cause", cause.map_or("", WriteStallCause::name))
            .text("option", option),
    );
    let info = WriteStallInfo {
        cf_name: name.clone(),
        cur,
        prev,
        cause,
        option,
    };
    db.info
        .tell_later(move |l| l.on_stall_conditions_changed(&info));
}

/// Describes a stall in RocksDB's words.
fn describe(
    db: &Shared,
    family: &Family,
    condition: WriteStallCondition,
    cause: WriteStallCause,
    debt: &Debt,
) -> String {
    let delayed = condition == WriteStallCondition::Delayed;
    let verb = if delayed { "Stalling" } else { "Stopping" };
    let what = match cause {
        WriteStallCause::MemtableLimit => format!(
            "we have {} immutable memtables (waiting for flush), max_write_buffer_number is set \
             to {}",
            debt.immutable,
            family.options().cf.max_write_buffer_number
        ),
        WriteStallCause::L0FileCountLimit => format!("we have {} level-0 files", debt.l0_files),
        WriteStallCause::PendingCompactionBytes => {
            format!(
                "of estimated pending compaction bytes {}",
                debt.pending_bytes
            )
        }
        WriteStallCause::WriteBufferManagerLimit => "memtables use too much memory".to_owned(),
    };
    let at = if delayed {
        format!(" rate {}", rate(db))
    } else {
        String::new()
    };
    format!("{verb} writes because {what}{at}")
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
