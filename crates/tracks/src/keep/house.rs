//! Housekeeping: a thread that drops old rows at intervals, compacts tables after erasures, and has
//! the store clean up dead rows that readers have met.
//!
//! A failure is reported, and tried again after a growing pause. It stops nothing else: no other
//! entity, no other fleet, no later turn. A panic counts as such a failure. Rows that cannot be
//! decoded are never dropped.

mod keeping;
mod purging;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::clock::{Clock, wait_timeout};
use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::thread::JoinHandle;
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use base::threads::Threads;
use base::{Error, Result};

pub(super) use self::keeping::FAILURES_MAX;
use self::keeping::{Look, Looked};
use self::purging::{Purging, Round};
use super::{Horizon, Horizons, marks, with_settings};
use crate::again::{Again, caught};
use crate::fleets::Fleets;
use crate::model::key::{Entity, Fleet};
use crate::model::time::Time;
use crate::notices::Notices;
use crate::store::Store;
use crate::write::Shards;

/// How often old rows are dropped.
const EVERY: Duration = Duration::from_secs(3600);
/// How often the store cleans up.
const TIDIED: Duration = Duration::from_secs(60);
/// The first pause before a failed task is tried again; the longest is [`EVERY`].
const AGAIN: Duration = Duration::from_secs(60);
/// While entities are being erased all the time, old rows are dropped in slices of this length.
const SLICE: Duration = Duration::from_secs(1);
/// The shortest rest after a turn, unless an entity was erased.
const REST: Duration = Duration::from_secs(1);
/// All tables with points are compacted within a fourth of the time that points are kept, but that
/// interval is at least [`MERGED_MIN`] and at most [`MERGED_MAX`].
const MERGED_MIN: Duration = Duration::from_secs(86_400);
const MERGED_MAX: Duration = Duration::from_secs(30 * 86_400);

/// The result of one look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Erased entities, of which nothing was kept.
    pub entities: u64,
    /// Silent entities that were removed from the index.
    pub silent: u64,
    /// Points that were dropped by thinning.
    pub thinned: u64,
}

/// The parts of the service that housekeeping works on.
#[derive(Debug)]
pub(crate) struct Of {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) fleets: Arc<Fleets>,
    pub(crate) shards: Arc<Shards>,
    pub(crate) clock: Arc<dyn Clock>,
}

#[derive(Debug, Default)]
struct Todo {
    is_over: bool,
    /// Whether something was erased since the rows were last read.
    is_erased: bool,
}

/// The tasks that may fail separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A turn, outside of its tasks.
    Turn,
    /// Finding the erased entities.
    Purges,
    /// Compacting the own tables of an erased entity.
    Purge(Fleet, Entity),
    /// Compacting the tables of a fleet in which erased rows are among those of other entities.
    Rest(Fleet),
    /// Compacting the tables of the rows that name erased entities.
    Rows,
    /// Dropping old rows.
    Keep,
    /// Having the store clean up.
    Tidy,
}

/// The state of the thread.
struct Work {
    again: Again<What>,
    /// When old rows were last dropped.
    kept: u64,
    /// When the store last cleaned up.
    tidied: u64,
    purging: Purging,
    /// A look that is not finished.
    look: Option<Look>,
}

#[derive(Debug)]
struct Shared {
    of: Of,
    marks: Mutex<Horizons>,
    /// Allows one look at a time.
    looking: Mutex<Looked>,
    todo: Mutex<Todo>,
    /// Ends compactions when the service stops.
    canceled: Arc<AtomicBool>,
    changed: Condvar,
    failed: Mutex<Option<String>>,
    /// Where failures are reported.
    notices: Mutex<Notices>,
}

/// Housekeeping of a store. Dropping it ends its thread.
#[derive(Debug)]
pub(crate) struct House {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl House {
    /// Errors: the store's; no more threads can be started.
    pub(crate) fn start(of: Of, threads: &dyn Threads) -> Result<Self> {
        let marks = marks(&*of.store.view())?;
        let shared = Arc::new(Shared {
            of,
            marks: Mutex::new(marks),
            looking: Mutex::default(),
            todo: Mutex::default(),
            canceled: Arc::default(),
            changed: Condvar::new(),
            failed: Mutex::new(None),
            notices: Mutex::default(),
        });
        shared.publish()?;
        let its = Arc::clone(&shared);
        let now = shared.of.clock.monotonic_nanos();
        let thread = threads
            .start("housekeeping", Box::new(move || its.run(now)))
            .map_err(|e| Error::io("cannot start the thread of housekeeping", "", e))?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// The current horizons of all fleets.
    pub(crate) fn horizons(&self) -> Horizons {
        let shared = &self.shared;
        let marks = lock(&shared.marks).clone();
        if shared.of.fleets.keep_all() {
            return marks;
        }
        with_settings(marks, &shared.of.fleets, shared.now())
    }

    /// The current horizon of one fleet; the cost does not depend on the number of fleets.
    pub(crate) fn horizon(&self, fleet: Fleet) -> Horizon {
        let (marks, of) = (&self.shared.marks, &self.shared.of);
        let mark = lock(marks).get(&fleet).copied().unwrap_or_default();
        let info = of.fleets.of(fleet).filter(|_| !of.fleets.keep_all());
        let wanted = info.map(|info| Horizon::of(&info.settings, self.shared.now()));
        match wanted {
            Some(wanted) if wanted != Horizon::default() => mark.max(wanted),
            _ => mark,
        }
    }

    /// Drops old rows now. Errors: the store's.
    pub(crate) fn keep(&self) -> Result<Kept> {
        let mut look = self.shared.look();
        self.shared.go_on(&mut look, &|| self.shared.is_over());
        look.end()
    }

    /// Wakes the thread: an entity was erased, and rows say that its bytes are still in tables.
    pub(crate) fn is_erased(&self) {
        lock(&self.shared.todo).is_erased = true;
        self.shared.changed.notify_all();
    }

    /// Sets where failures are reported from now on.
    pub(crate) fn say_to(&self, notices: Notices) {
        *lock(&self.shared.notices) = notices;
    }

    /// The tasks whose last try failed. `None` if there are none.
    pub(crate) fn failed(&self) -> Option<String> {
        lock(&self.shared.failed).clone()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        lock(&self.shared.todo).is_over = true;
        self.shared.canceled.store(true, Ordering::Relaxed);
        self.shared.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended, too.
            drop(thread.join());
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn now(&self) -> Time {
        Time(i64::try_from(self.of.clock.wall_micros()).unwrap_or(i64::MAX))
    }

    fn is_over(&self) -> bool {
        lock(&self.todo).is_over
    }

    fn run(&self, start: u64) {
        let mut work = Work {
            again: Again::new(AGAIN, EVERY),
            kept: start,
            tidied: start,
            purging: Purging::default(),
            look: None,
        };
        while self.wait(&mut work) {
            let turn = caught("a turn of housekeeping", || {
                self.turn(&mut work);
                Ok(())
            });
            if turn.is_err() {
                // Not at once, because it might panic again.
                work.kept = self.of.clock.monotonic_nanos();
                work.tidied = work.kept;
                work.purging.round = Round::Done;
            }
            self.note(&mut work, What::Turn, turn);
            *lock(&self.failed) = work.again.said();
        }
    }

    /// Waits until there is something to do. Returns whether to go on.
    fn wait(&self, work: &mut Work) -> bool {
        let clock = &*self.of.clock;
        let mut todo = lock(&self.todo);
        let is_idle = work.purging.round == Round::Done && work.look.is_none();
        if !todo.is_over && !todo.is_erased && is_idle {
            let now = clock.monotonic_nanos();
            let left = |every: Duration, last| {
                every.saturating_sub(Duration::from_nanos(now.saturating_sub(last)))
            };
            // Failed tasks count only by `again`.
            let tidied = (!work.again.has(&What::Tidy)).then(|| left(TIDIED, work.tidied));
            let purged = work.purging.due(&work.again);
            let purged = purged.map(|due| Duration::from_nanos(due.saturating_sub(now)));
            let others = [tidied, purged, work.again.pause(now)];
            let pause = others.into_iter().flatten().min().unwrap_or(TIDIED);
            let pause = pause.min(left(EVERY, work.kept)).min(TIDIED);
            // Never less than this, so that a task that is due but cannot be done does not make the
            // thread spin.
            todo = wait_timeout(clock, &self.changed, todo, pause.max(REST));
        }
        if work.purging.round == Round::Done {
            todo.is_erased = false;
            work.purging.round = Round::Due;
        }
        !todo.is_over
    }

    /// Records the result of a task.
    fn note(&self, work: &mut Work, what: What, done: Result<()>) {
        let Err(e) = done else {
            work.again.done(&what);
            return;
        };
        let now = self.of.clock.monotonic_nanos();
        let text = match what {
            What::Purge(fleet, Entity(entity)) => {
                format!(
                    "the tables of entity {entity:016x} of fleet {}, which was erased, are not merged: {e}",
                    fleet.0
                )
            }
            What::Rest(fleet) => format!(
                "the tables of fleet {}, in which entities were erased, are not merged: {e}",
                fleet.0
            ),
            What::Rows => {
                format!("what is known of entities that were erased is in tables still: {e}")
            }
            What::Tidy => format!("dead rows stay in memory: {e}"),
            What::Turn | What::Purges | What::Keep => e.to_string(),
        };
        let notices = lock(&self.notices).clone();
        notices.say(
            "housekeeping",
            now,
            &format!("housekeeping has failed, and goes on: {text}"),
        );
        work.again.failed(what, now, text);
    }

    fn turn(&self, work: &mut Work) {
        self.purge_some(work);
        self.purge_rest(work);
        self.purge_rows(work);
        self.tidy(work);
        self.keep_some(work);
    }

    /// Drops old rows if that is due: in slices while something is erased or waits to be purged,
    /// and without interruption otherwise. After each slice, purging has its turn, and then this
    /// goes on.
    fn keep_some(&self, work: &mut Work) {
        let now = self.of.clock.monotonic_nanos();
        let is_due = now.saturating_sub(work.kept) >= EVERY.as_nanos() as u64;
        let is_due = is_due || work.again.has(&What::Keep);
        if work.look.is_none() && is_due && !work.again.waits(&What::Keep, now) {
            work.kept = now;
            work.look = Some(self.look());
        }
        let Some(mut look) = work.look.take() else {
            return;
        };
        let are_others_left = work.purging.round != Round::Done;
        let stops = || {
            let is_long = || {
                let now = self.of.clock.monotonic_nanos().saturating_sub(now);
                now >= SLICE.as_nanos() as u64
            };
            let todo = lock(&self.todo);
            todo.is_over || ((todo.is_erased || are_others_left) && is_long())
        };
        if self.go_on(&mut look, &stops) || self.is_over() {
            self.note(work, What::Keep, look.end().map(drop));
        } else {
            work.look = Some(look);
        }
    }

    fn tidy(&self, work: &mut Work) {
        let now = self.of.clock.monotonic_nanos();
        let is_due = if work.again.has(&What::Tidy) {
            !work.again.waits(&What::Tidy, now)
        } else {
            now.saturating_sub(work.tidied) >= TIDIED.as_nanos() as u64
        };
        if is_due {
            let done = caught("cleaning up", || self.of.store.tidy());
            // It may have taken long.
            work.tidied = self.of.clock.monotonic_nanos();
            self.note(work, What::Tidy, done);
        }
    }

    /// Allows the store to drop the points before the marks.
    fn publish(&self) -> Result<()> {
        let marks = lock(&self.marks).clone();
        let points = marks.iter().filter(|(_, h)| h.points > Time::MIN);
        let oldest: BTreeMap<Fleet, Time> = points.map(|(fleet, h)| (*fleet, h.points)).collect();
        let days = self.of.fleets.all().into_iter();
        let days = days.map(|info| info.settings.keep_days).filter(|n| *n > 0);
        let every = days.min().map(|days| {
            let every = Duration::from_secs(u64::from(days) * 86_400 / 4);
            every.clamp(MERGED_MIN, MERGED_MAX)
        });
        self.of.store.keep(oldest, every)
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;
