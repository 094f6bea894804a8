//! Manual flushes and compactions, the end of background work, and the steps before a close.

use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use base::sync::atomic::{AtomicBool, Ordering};
use base::{Error, ErrorKind, FileNumber, Result};
use log::LogEnd;
use memtable::Memtable;

use crate::background::Background;
use crate::background::state::{ManualCompaction, check_not_canceled};
use crate::catalog::Catalog;
use crate::catalog::family::Family;
use crate::commit::Writes;
use crate::compaction::{self, touch};
use crate::outbox;
use crate::shared::gate::patience;
use crate::shared::{Shared, persist};
use crate::wal::Wal;
use crate::write::{pace, resume, rotate, submit};
use options::hooks::listener::FlushReason;
use options::{BottommostLevelCompaction, CompactRangeOptions, CompactionOptions, FlushOptions};
use picking::manual::Request;

/// Makes the families' active memtables immutable and, with `wait`, waits for their flush.
pub(crate) fn flush(db: &Shared, families: &[Arc<Family>], options: &FlushOptions) -> Result<()> {
    flush_because(db, families, options, (FlushReason::ManualFlush, None))
}

/// [`flush`] for the given reason. Errors: also `Incomplete` if it was canceled; a flush that has begun goes on.
pub(crate) fn flush_because(
    db: &Shared,
    families: &[Arc<Family>],
    options: &FlushOptions,
    (reason, canceled): (FlushReason, Option<&Arc<AtomicBool>>),
) -> Result<()> {
    db.check_writable()?;
    if options.wait {
        db.background.check_may_wait("flush")?;
    }
    let due: Vec<_> = families.iter().filter_map(Active::of).collect();
    // A thread that flushes or compacts must not wait for room: it would wait for itself.
    if !options.allow_write_stall && outbox::job_for(db.instance).is_none() {
        for active in &due {
            pace::wait_for_room(&db.background, &db.info, active.family, canceled)?;
        }
    }
    // A memtable that another thread has made immutable meanwhile is being flushed. Its successor stays
    // active: there was room for one more immutable memtable, but there may be none for a second.
    let begun = db.alone(|| {
        let due = due.iter().filter(|a| a.is_active());
        let mut rotated: Vec<_> = due.map(|a| Arc::clone(a.family)).collect();
        if !rotated.is_empty() && db.options.db.atomic_flush {
            rotated = families.to_vec();
        }
        begin_flush_of(db, families, reason, &rotated)
    })?;
    if options.wait {
        begun.wait(&db.background, canceled)
    } else {
        Ok(())
    }
}

/// A memtable with data that was active when a flush was called.
struct Active<'a> {
    family: &'a Arc<Family>,
    memtable: u64,
}

impl<'a> Active<'a> {
    fn of(family: &'a Arc<Family>) -> Option<Self> {
        let view = family.view.load();
        (!view.mem.is_empty()).then(|| Self {
            family,
            memtable: view.mem.id(),
        })
    }

    fn is_active(&self) -> bool {
        self.family.view.load().mem.id() == self.memtable
    }
}

/// The memtables of some families whose flush was requested.
pub(crate) struct BegunFlush(Vec<(Arc<Family>, Vec<Arc<Memtable>>)>);

/// Makes the families' active memtables immutable and requests their flush. The gate of the order of
/// writes is closed.
pub(crate) fn begin_flush(
    db: &Shared,
    families: &[Arc<Family>],
    reason: FlushReason,
) -> Result<BegunFlush> {
    if families.iter().all(|f| f.view.load().mem.is_empty()) {
        return begin_flush_of(db, families, reason, &[]);
    }
    begin_flush_of(db, families, reason, families)
}

/// [`begin_flush`], with new memtables for the families in `rotated` only.
fn begin_flush_of(
    db: &Shared,
    families: &[Arc<Family>],
    reason: FlushReason,
    rotated: &[Arc<Family>],
) -> Result<BegunFlush> {
    for family in families {
        family.set_flush_reason(reason);
    }
    if !rotated.is_empty() {
        rotate::rotate(db, rotated)?;
    }
    for family in families {
        family.want_flush();
    }
    db.background.wake();
    // The memtables that are immutable now; later ones are not waited for.
    let pending = families
        .iter()
        .map(|f| (Arc::clone(f), f.view.load().imm.clone()));
    Ok(BegunFlush(pending.collect()))
}

impl BegunFlush {
    fn is_done(&self) -> bool {
        !self.0.iter().any(|(f, memtables)| {
            let view = f.view.load();
            !f.is_dropped()
                && view
                    .imm
                    .iter()
                    .any(|m| memtables.iter().any(|p| p.id() == m.id()))
        })
    }

    /// Waits until all of the memtables are in tables, or until the wait is canceled.
    pub(crate) fn wait(
        &self,
        background: &Background,
        canceled: Option<&Arc<AtomicBool>>,
    ) -> Result<()> {
        let mut state = background.state();
        while !self.is_done() {
            state.check_writable()?;
            background.check()?;
            check_not_canceled(canceled)?;
            state = background.wait_or_cancel(state, canceled);
        }
        Ok(())
    }

    /// [`BegunFlush::wait`] for at most `at_most`. While background work is paused, waits only for
    /// flushes that run already. Returns whether all of the memtables are in tables.
    pub(crate) fn wait_unless_paused(
        &self,
        background: &Background,
        clock: &dyn Clock,
        at_most: Duration,
    ) -> Result<bool> {
        let until = clock.monotonic_nanos() + at_most.as_nanos() as u64;
        let mut state = background.state();
        while !self.is_done() {
            state.check_writable()?;
            background.check()?;
            let left = until.saturating_sub(clock.monotonic_nanos());
            let under_way = self.0.iter().any(|(f, _)| state.flushing.contains(&f.id));
            if left == 0 || (state.paused > 0 && !under_way) {
                return Ok(false);
            }
            state = background.wait_timeout(state, Duration::from_nanos(left));
        }
        Ok(true)
    }
}

/// Flushes the family if its memtables have keys of a range. Then compacts the range and waits for that.
pub(crate) fn compact_range(
    db: &Shared,
    family: &Arc<Family>,
    (begin, end): (Option<&[u8]>, Option<&[u8]>),
    options: &CompactRangeOptions,
) -> Result<()> {
    check_not_canceled(options.canceled.as_ref())?;
    if touch::in_memory(&family.view.load(), begin, end) {
        flush_because(
            db,
            std::slice::from_ref(family),
            &FlushOptions::default(),
            // The flush may take long, if background work is paused or level 0 is full. So it can be canceled.
            (FlushReason::ManualCompaction, options.canceled.as_ref()),
        )?;
    }
    let mut how = options.clone();
    if how.bottommost_level_compaction == BottommostLevelCompaction::IfHaveCompactionFilter
        && family.options().has_compaction_filter()
    {
        how.bottommost_level_compaction = BottommostLevelCompaction::ForceOptimized;
    }
    let request = Request::Range {
        begin: begin.map(<[u8]>::to_vec),
        end: end.map(<[u8]>::to_vec),
        options: how,
        first_level: touch::first_level(family, begin, end),
        first_new_file: FileNumber(db.catalog.numbers.peek()),
    };
    let mut manual = ManualCompaction::new(family.id, request);
    manual.exclusive = options.exclusive_manual_compaction;
    manual.max_subcompactions = options.max_subcompactions;
    manual.canceled.clone_from(&options.canceled);
    wait_for_manual(&db.background, manual)
}

/// Compacts these table files, together with the files that must be added, and waits for that.
pub(crate) fn compact_files(
    background: &Background,
    family: &Arc<Family>,
    files: &[u64],
    output_level: usize,
    options: &CompactionOptions,
) -> Result<()> {
    let request = Request::Files {
        numbers: files.to_vec(),
        output_level,
        output_file_bytes: options.output_file_size_limit,
    };
    let mut manual = ManualCompaction::new(family.id, request);
    manual.max_subcompactions = options.max_subcompactions;
    manual.canceled.clone_from(&options.canceled);
    wait_for_manual(background, manual)
}

fn wait_for_manual(background: &Background, manual: ManualCompaction) -> Result<()> {
    background.check_may_wait("a compaction by call")?;
    let manual = Arc::new(manual);
    let mut state = background.state();
    state.manual.push(Arc::clone(&manual));
    background.notify();
    loop {
        if let Some(result) = manual.take_result() {
            return result;
        }
        let running = manual.running.load(Ordering::Relaxed);
        let given_up = state
            .check_writable()
            .and_then(|()| background.check())
            .and_then(|()| check_not_canceled(manual.canceled.as_ref()));
        // A compaction that is running ends by itself and then has a result.
        if let (Err(e), false) = (given_up, running) {
            state.manual.retain(|m| !Arc::ptr_eq(m, &manual));
            return Err(e);
        }
        state = background.wait_or_cancel(state, manual.canceled.as_ref());
    }
}

/// Marks the files of a range for compaction and returns. Picking ignores marked files on the lowest level.
pub(crate) fn suggest_compact_range(
    db: &Shared,
    family: &Family,
    (begin, end): (Option<&[u8]>, Option<&[u8]>),
) -> Result<()> {
    db.check_writable()?;
    let state = db.background.state();
    let version = Arc::clone(&family.view.load().version);
    for level in 0..version.num_levels() {
        for file in version.overlapping(level, begin, end) {
            file.suggest_compaction();
        }
    }
    drop(state);
    db.background.notify();
    Ok(())
}

/// Keeps flushes and compactions from beginning, and waits for those that are running.
pub(crate) fn pause_background_work(background: &Background) -> Result<()> {
    background.check_may_wait("pause_background_work")?;
    let mut state = background.state();
    state.check_writable()?;
    // A thread that resumes waits for flushes, which must not be paused meanwhile.
    while state.resuming {
        state = background.wait(state);
        state.check_writable()?;
    }
    state.paused += 1;
    background.notify(); // an ingestion may be waiting for a flush
    while state.busy > 0 {
        state = background.wait(state);
    }
    Ok(())
}

/// Ends one pause.
pub(crate) fn continue_background_work(background: &Background) -> Result<()> {
    let mut state = background.state();
    if state.paused == 0 {
        return Err(Error::invalid_argument(
            "continue_background_work: background work is not paused",
        ));
    }
    state.paused -= 1;
    drop(state);
    background.notify();
    Ok(())
}

/// More than a century.
const NO_LIMIT: Duration = Duration::from_secs(u32::MAX as u64);

/// Flushes writes that are in no log. Errors: also if background work is paused, possibly by the caller itself.
fn flush_unlogged(db: &Shared) -> Result<()> {
    db.check_writable()?;
    db.background.check_may_wait("cancel_all_background_work")?;
    let all: Vec<_> = db.catalog.families.load().iter().cloned().collect();
    let begun = db.alone(|| begin_flush(db, &all, FlushReason::ManualFlush))?;
    if begun.wait_unless_paused(&db.background, &*db.info.clock, NO_LIMIT)? {
        return Ok(());
    }
    Err(Error::aborted(
        "writes that are in no log stay in memory: background work is paused",
    ))
}

/// Ends background work for good, after a flush of writes that are in no log. With `wait`, returns when no job is
/// running any more.
pub(crate) fn cancel_all_background_work(db: &Shared, wait: bool) {
    let unlogged = db.writes.has_unlogged() && !db.live_options.get().avoid_flush_during_shutdown;
    if unlogged && let Err(e) = flush_unlogged(db) {
        db.info
            .log
            .warn(format_args!("before background work ends: {e}"));
    }
    db.background.cancel();
    let mut state = db.background.state();
    let wait = wait && outbox::job_for(db.instance).is_none();
    while wait && state.busy > 0 {
        state = db.background.wait(state);
    }
}

/// Waits until no flush and no compaction is running or due, and the files that they made obsolete are
/// deleted.
pub(crate) fn wait_for_jobs(db: &Shared) -> Result<()> {
    db.background.check_may_wait("wait_for_compact")?;
    let mut state = db.background.state();
    // Compactions that ran out of space before this call may have space by now: they are tried again first.
    let before = state.starvations;
    loop {
        state.check_writable()?;
        let families = db.catalog.families.load();
        let flushes = families.iter().any(|f| f.flush_due());
        let idle = state.busy == 0 && !db.background.has_left_tables(&state);
        let compacts = |f: &Arc<Family>| compaction::automatic(db, &state, f).is_some();
        let due = flushes || (idle && families.iter().any(compacts));
        if !due && idle && state.manual.is_empty() {
            if state.callers_delete == 0 {
                return Ok(());
            }
            // Jobs have left their tables to a call, which nothing pauses.
            state = db.background.wait(state);
            continue;
        }
        // A compaction that ran out of space is tried again, perhaps for a long time: return its error instead.
        let starved = state.starvations > before && idle && !flushes && state.manual.is_empty();
        if let Some(e) = state.starved_by.as_ref().filter(|_| starved) {
            let hint = "compactions are tried again; make space, then wait again";
            return Err(e.clone().hint(hint));
        }
        if state.busy == 0 {
            // A compaction may have become due by the end of a snapshot or by age, without a
            // notification.
            db.background.notify();
        }
        db.background.check()?;
        if state.paused > 0 {
            return Err(Error::aborted(
                "wait_for_compact: background work is paused",
            ));
        }
        state = db.background.wait(state);
    }
}

/// Called before the jobs end: flushes writes that are in no log, and hands the log to the operating
/// system or, if the next open needs it, syncs it.
pub(crate) fn before_close(db: &Shared) -> Result<()> {
    // Also after a failure: a resume may be waiting for the gate, which `lock_wal` has closed.
    let locks = std::mem::take(&mut *db.writes.lock_wal_locks());
    if locks > 0 {
        db.writes.order.open();
    }
    let mut state = db.background.state();
    state.paused = 0;
    // The running resume decides whether there is a failure to report.
    let waits = outbox::job_for(db.instance).is_none() && !resume::is_mine(db.instance);
    while state.resuming && waits {
        state = db.background.wait(state);
    }
    drop(state);
    if !db.read_only {
        persist::write_if_stale(db);
    }
    if db.read_only {
        return Ok(());
    }
    let failure = db.background.state().failure.clone();
    if let Some(e) = failure {
        // Writes that are in no log are lost with the memtables.
        let in_memory = |f: &Arc<Family>| {
            let view = f.view.load();
            !view.mem.is_empty() || !view.imm.is_empty()
        };
        let lost = db.writes.has_unlogged() && db.catalog.families.load().iter().any(in_memory);
        let rest = db.wal.hand_over_the_rest(e.clone());
        return if lost { Err(e) } else { rest };
    }
    let result = if db.writes.has_unlogged() && !db.live_options.get().avoid_flush_during_shutdown {
        let all: Vec<_> = db.catalog.families.load().iter().cloned().collect();
        flush_because(
            db,
            &all,
            &FlushOptions::default(),
            (FlushReason::ShutDown, None),
        )
    } else {
        Ok(())
    };
    let wanted = db.wal.demand.is_open(&db.wal.durable);
    if let Some(log) = db.wal.lock().as_ref() {
        log.trim();
    }
    let log = needed_end(&db.catalog, &db.wal).and_then(|end| {
        if wanted || end.is_some() {
            submit::sync_unasked(db)?;
        } else {
            submit::flush_wal(db, false)?;
        }
        mark_end(db)
    });
    // A failure in the meantime is treated like one from before.
    let log = log.or_else(|e| {
        if db.background.state().failure.is_some() {
            db.wal.hand_over_the_rest(e)
        } else {
            Err(e)
        }
    });
    // That a flush fails because background work was ended must not hide a failure of the log.
    let known = |e: Error| match e.kind() {
        ErrorKind::ShutdownInProgress => Ok(()),
        _ => Err(e),
    };
    result.or_else(known).and(log.or_else(known))
}

/// The end of the last log, if it is needed.
fn needed_end(catalog: &Catalog, wal: &Wal) -> Result<Option<LogEnd>> {
    let needed = catalog.lock_versions().min_log_number_to_keep;
    let last = wal.with(|log| Ok(log.last_end()))?;
    Ok((!last.is_empty() && last.number.0 >= needed).then_some(last))
}

/// Records in the MANIFEST where the last log ends, if all of it is durable. The next open then knows
/// whether something is missing there.
fn mark_end(db: &Shared) -> Result<()> {
    // Read only now: a log may be padded when it is made durable, and then ends later than before.
    let Some(end) = needed_end(&db.catalog, &db.wal)? else {
        return Ok(());
    };
    if !db
        .wal
        .with(|log| Ok(log.is_durable() && log.last_end() == end))?
    {
        return Ok(()); // another thread is still writing
    }
    if let Err(e) = db.manifest().mark_log_end(end) {
        // The log has everything. The next open checks it no further than a log after a crash.
        db.info.log.warn(format_args!(
            "the end of log {} is not in the MANIFEST: {e}",
            end.number
        ));
    }
    Ok(())
}

/// See [`Db::lock_wal`](crate::Db::lock_wal).
pub(crate) fn lock_wal(db: &Shared) -> Result<()> {
    let _courier = db.courier();
    db.check_writable()?;
    let mut locks = db.writes.lock_wal_locks();
    if *locks == 0 {
        let closed = db.writes.order.close(patience(&db.background))?;
        submit::flush_wal(db, false)?;
        closed.keep();
    }
    *locks += 1;
    Ok(())
}

/// See [`Db::unlock_wal`](crate::Db::unlock_wal).
pub(crate) fn unlock_wal(writes: &Writes, wal: &Wal) -> Result<()> {
    let mut locks = writes.lock_wal_locks();
    match *locks {
        0 => return Err(Error::aborted("unlock_wal: the WAL is not locked")),
        1 => writes.order.open(),
        _ => {}
    }
    *locks -= 1;
    if *locks == 0 {
        // It may have been due meanwhile.
        wal.demand.lazily_again();
    }
    Ok(())
}
