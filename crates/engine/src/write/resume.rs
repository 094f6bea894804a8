//! `resume`: brings the database out of the state in which it refuses writes.
//!
//! After a failure the log on disk may lack writes that the memtables have. So a new log and a new MANIFEST are
//! begun, and all memtables are flushed to tables. Only then are writers let in again. All acknowledged writes
//! are durable by then. Whether other writes took effect stays unknown, as after any failed write.

use std::cell::Cell;
use std::sync::Arc;

use base::stats::Ticker;
use base::sync::thread_local;
use base::{Error, ErrorKind, FileNumber, Result};

use super::rotate::install_memtables;
use crate::background::Background;
use crate::catalog::family::Family;
use crate::shared::Shared;
use crate::wal::active::ActiveLog;
use crate::wal::log_files::{LogKind, NewLog};
use options::hooks::listener::{BackgroundErrorReason, BackgroundErrorRecoveryInfo, FlushReason};

/// The shortest and the longest pause between two attempts to resume on a full device.
const PAUSE_MIN_NANOS: u64 = 250_000_000;
const PAUSE_MAX_NANOS: u64 = 30_000_000_000;

thread_local! {
    /// The database that this thread resumes.
    static RESUMED: Cell<Option<u64>> = const { Cell::new(None) };
}

/// Marks the thread that resumes. A listener that is called because of a resume runs on this thread. If it called
/// `resume`, it would be called because of that resume too, without end.
struct Resumed(Option<u64>);

/// Whether this thread resumes the database: if it waited for a resume, it would wait for itself.
pub(crate) fn is_mine(instance: u64) -> bool {
    RESUMED.with(Cell::get) == Some(instance)
}

impl Resumed {
    fn begin(instance: u64) -> Result<Self> {
        if is_mine(instance) {
            return Err(Error::new(
                ErrorKind::Busy,
                "resume was called by a listener that is told of a resume: call it later, or on another thread",
            ));
        }
        Ok(Self(RESUMED.with(|r| r.replace(Some(instance)))))
    }
}

impl Drop for Resumed {
    fn drop(&mut self) {
        RESUMED.with(|r| r.set(self.0));
    }
}

/// See [`Db::resume`](crate::Db::resume).
pub(crate) fn resume(db: &Shared) -> Result<()> {
    let _resumed = Resumed::begin(db.instance)?;
    if db.read_only || db.background.is_closing() {
        return db.check_writable();
    }
    let Some(old_bg_error) = failure(&db.background)? else {
        return Ok(());
    };
    db.info
        .tell(|l| l.on_error_recovery_begin(BackgroundErrorReason::WriteCallback, &old_bg_error));
    let result = in_turn(db, &old_bg_error);
    let info = BackgroundErrorRecoveryInfo {
        old_bg_error,
        new_bg_error: result.clone(),
    };
    db.info.tell(|l| l.on_error_recovery_end(&info));
    if result.is_ok() {
        db.info.count(Ticker::ErrorHandlerAutoresumeSuccessCount, 1);
    }
    match &result {
        Ok(()) => db
            .info
            .log
            .info(format_args!("resumed: writes are accepted again")),
        Err(e) => db.info.log.error(format_args!("cannot resume: {e}")),
    }
    result
}

/// Waits for its turn, and resumes unless another thread has done so.
fn in_turn(db: &Shared, old_bg_error: &Error) -> Result<()> {
    // Listeners are called after the turn: they may pause background work, resume, or close the database.
    let _courier = db.courier();
    let Some(_turn) = Turn::take(&db.background)? else {
        return Ok(());
    };
    let _closed = db.writes.order.close_to_resume();
    let refused = Refused::begin(db, old_bg_error);
    db.info.count(Ticker::ErrorHandlerAutoresumeCount, 1);
    let (families, log) = begin_anew(db)?;
    flushed(db, &families)?;
    if let Some(log) = db.wal.lock().as_mut() {
        log.lacks_nothing();
    }
    leave_older_logs(db, log)?;
    refused.end();
    Ok(())
}

/// The failure because of which writes are refused, if there is one. While another thread resumes, writes are
/// refused although the failure is already cleared, for the flushes of the resume. So this waits for that thread.
fn failure(background: &Background) -> Result<Option<Error>> {
    let mut state = background.state();
    while state.failure.is_none() && state.resuming {
        check_may_wait(background)?;
        state = background.wait(state);
    }
    Ok(state.failure.clone())
}

/// Errors: this thread must not wait. A resume waits for flushes, which wait for the MANIFEST and may
/// wait for compactions.
fn check_may_wait(background: &Background) -> Result<()> {
    background.check_may_wait("resume")
}

/// Every writer is refused at the gate until [`Refused::end`]. If the resume fails before that, the
/// refusal stays: the log is new and lacks writes that the memtables have. A writer that checked for a
/// failure while it was cleared must not write to this log.
struct Refused<'a> {
    db: &'a Shared,
    /// The failure; `None` after [`Refused::end`].
    error: Option<&'a Error>,
}

impl<'a> Refused<'a> {
    fn begin(db: &'a Shared, error: &'a Error) -> Self {
        db.writes.order.refuse(error);
        Self {
            db,
            error: Some(error),
        }
    }

    fn end(mut self) {
        self.error = None;
        self.db.writes.order.accept();
    }
}

/// If the resume did not complete, some memtables are not in tables: the failure is set again. There may be no
/// other failure, for example if background work was canceled or a thread panicked.
impl Drop for Refused<'_> {
    fn drop(&mut self) {
        let Some(error) = self.error else { return };
        let mut state = self.db.background.state();
        state.failure.get_or_insert_with(|| error.clone());
        self.db.wal.durable.fail(error);
        drop(state);
        self.db.writes.attention.raise();
    }
}

/// The turn to resume. One thread resumes at a time, and background work cannot be paused meanwhile.
struct Turn<'a>(&'a Background);

impl<'a> Turn<'a> {
    /// Waits for its turn, and for flushes that are under way. `None` if there is no failure any more.
    ///
    /// Errors: the memtables could not be flushed, because background work is paused or was canceled, or the
    /// database is being closed; this thread must not wait.
    fn take(background: &'a Background) -> Result<Option<Self>> {
        let mut state = background.state();
        // A flush that began before the failure relies on the logs as they were.
        while state.resuming || (state.failure.is_some() && !state.flushing.is_empty()) {
            check_may_wait(background)?;
            state = background.wait(state);
        }
        if state.failure.is_none() {
            return Ok(None);
        }
        if state.paused > 0 {
            return Err(Error::aborted("resume: background work is paused")
                .hint("continue_background_work first: memtables must be flushed"));
        }
        if state.closing {
            let what = "resume: the database is being closed";
            return Err(Error::new(ErrorKind::ShutdownInProgress, what));
        }
        check_not_canceled(background)?;
        check_may_wait(background)?;
        state.resuming = true;
        Ok(Some(Self(background)))
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state().resuming = false;
        self.0.notify();
    }
}

fn check_not_canceled(background: &Background) -> Result<()> {
    if background.is_canceled() {
        return Err(Error::new(
            ErrorKind::ShutdownInProgress,
            "resume: background work was canceled",
        ));
    }
    Ok(())
}

/// Begins a new MANIFEST, a new log and new memtables while the gate is closed. Clears the failure for the
/// flushes that must follow.
fn begin_anew(db: &Shared) -> Result<(Vec<Arc<Family>>, FileNumber)> {
    let families: Vec<Arc<Family>> = db.catalog.families.load().iter().cloned().collect();
    // The log first: the failure may be that the names of earlier logs could not be made durable.
    let create = || db.wal.create_next(&db.catalog.numbers, LogKind::Buffered);
    let mut next = create()?;
    db.start_manifest_anew()?;
    let (mut next, mut guard) = loop {
        if let Some(guard) = next.lock(ActiveLog::all_landed, || Ok(()))? {
            break (next, guard);
        }
        drop(next);
        next = create()?;
    };
    let log = guard.as_mut().ok_or_else(crate::wal::read_only)?;
    let number = next.begin(log, |log, new| {
        give_up(db, log, new);
        Ok(())
    })?;
    drop(guard);
    for family in &families {
        family.set_flush_reason(FlushReason::ErrorRecovery);
    }
    install_memtables(db, &families, number);
    // The failure is not cleared earlier: a flush of a memtable that was immutable already would make its
    // writes durable, and the logs may lack earlier writes to other families. The failures of the state and of
    // `durable` are cleared under one lock, because a new failure sets both under this lock.
    let mut state = db.background.state();
    state.failure = None;
    db.wal.durable.resume();
    drop(state);
    db.wal.demand.wake(); // it writes again
    Ok((families, number))
}

/// Gives up the active log and all earlier ones for `new`. What they have is kept as for a close, because it may be long
/// until it is in tables.
fn give_up(db: &Shared, log: &mut ActiveLog, new: NewLog) {
    let promised = db.wal.demand.has_interval();
    let (old, kept) = (log.number, log.keep(promised));
    if kept.is_ok() && promised {
        db.is_durable_through(log.last_sequence());
    }
    let durable = db.wal.durable.get();
    log.begin_anew(new, durable);
    if let Err(e) = kept {
        log.lacks_earlier(&e);
        db.info.log.warn(format_args!(
            "log {old}: {e}; until the memtables are in tables, some of what was written is not kept as was promised"
        ));
    }
}

/// Waits until all immutable memtables of the families are in tables.
fn flushed(db: &Shared, families: &[Arc<Family>]) -> Result<()> {
    for family in families {
        family.want_flush();
    }
    db.background.wake();
    let mut state = db.background.state();
    while families
        .iter()
        .any(|f| !f.is_dropped() && !f.view.load().imm.is_empty())
    {
        state.check_writable()?;
        check_not_canceled(&db.background)?;
        state = db.background.wait(state);
    }
    drop(state);
    db.is_durable_through(db.writes.visible().0);
    Ok(())
}

/// Records in the MANIFEST that no log before the new log is needed: all data is in tables, and the new log is
/// still empty. This is done before writers are let in: a failed log may end in half a record, and a recovery
/// that read it would stop there, before the writes that follow.
fn leave_older_logs(db: &Shared, log: FileNumber) -> Result<()> {
    let mut change = db.change();
    for family in Arc::clone(change.families()).iter() {
        change.leaves_logs(family, log);
    }
    change.needs_logs_from(log);
    change.log_and_apply()
}

/// Resumes the database automatically after the device was full. Each attempt creates files, so the pauses
/// between attempts grow.
#[derive(Default)]
pub(crate) struct AfterFullDevice {
    due_nanos: u64,
    pause_nanos: u64,
    /// Attempts since the device was found full.
    attempts: i32,
}

impl AfterFullDevice {
    /// Called at intervals: attempts a resume if that is due.
    pub(crate) fn look(&mut self, db: &Shared) {
        let state = db.background.state();
        let full = |e: &Error| e.kind() == ErrorKind::NoSpace;
        // While background work is paused, no attempt is made.
        let full = state.failure.as_ref().is_some_and(full)
            && state.paused == 0
            && !db.background.is_canceled();
        drop(state);
        let now = db.env().clock.monotonic_nanos();
        if !full {
            *self = Self::default();
        } else if now >= self.due_nanos && self.attempts < db.options.db.max_bgerror_resume_count {
            self.attempts += 1;
            let Err(e) = resume(db) else { return };
            self.pause_nanos = (self.pause_nanos * 2).clamp(PAUSE_MIN_NANOS, PAUSE_MAX_NANOS);
            self.due_nanos = now + self.pause_nanos;
            db.info
                .log
                .warn(format_args!("the device is still full: {e}"));
        }
    }
}
