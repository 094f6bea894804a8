//! Housekeeping: a thread that drops what is too old, now and then, merges tables where an entity was erased, and has the store
//! clean up what readers have found dead.
//!
//! What fails is said and done again after a pause that grows, and stops nothing else: no other entity, no other fleet, no later
//! turn. A panic is such a failure, too. What cannot be decoded is never dropped.

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

/// It looks so often.
const EVERY: Duration = Duration::from_secs(3600);
/// The store cleans up so often.
const TIDIED: Duration = Duration::from_secs(60);
/// What has failed is done again after so long at first, and after [`EVERY`] at most.
const AGAIN: Duration = Duration::from_secs(60);
/// Where entities are erased all the time, dropping what is too old goes on for so long between.
const SLICE: Duration = Duration::from_secs(1);
/// After a turn it rests for so long at least, unless an entity was erased.
const REST: Duration = Duration::from_secs(1);
/// All tables with points are merged within a fourth of the time that points are kept, but no more often than this.
const MERGED_MIN: Duration = Duration::from_secs(86_400);
const MERGED_MAX: Duration = Duration::from_secs(30 * 86_400);

/// What one look has dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// Entities that have nothing left.
    pub entities: u64,
    /// Entities that were silent, and left the index.
    pub silent: u64,
    /// Points that were dropped, as their neighbours say the same.
    pub thinned: u64,
}

/// What housekeeping works on.
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
    /// Something was erased since rows were looked at.
    is_erased: bool,
}

/// What may fail, each for itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum What {
    /// A turn, in none of its parts.
    Turn,
    /// Looking for what was erased.
    Purges,
    /// Merging the tables of one that was erased.
    Purge(Fleet, Entity),
    /// Merging the tables of a fleet where those were among others.
    Rest(Fleet),
    /// Merging the tables of the rows that said where those were.
    Rows,
    /// Dropping what is too old.
    Keep,
    /// Having the store clean up.
    Tidy,
}

/// What the thread knows.
struct Work {
    again: Again<What>,
    /// When what is too old was dropped last.
    kept: u64,
    /// When the store was to clean up last.
    tidied: u64,
    purging: Purging,
    /// A look that is begun and not done.
    look: Option<Look>,
}

#[derive(Debug)]
struct Shared {
    of: Of,
    marks: Mutex<Horizons>,
    /// One look at a time.
    looking: Mutex<Looked>,
    todo: Mutex<Todo>,
    /// Ends merging when it is over.
    canceled: Arc<AtomicBool>,
    changed: Condvar,
    failed: Mutex<Option<String>>,
    /// Who is told what has failed.
    notices: Mutex<Notices>,
}

/// See the module. Dropping it ends its thread.
#[derive(Debug)]
pub(crate) struct House {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl House {
    /// Errors: the store's; there can be no more threads.
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

    /// What is hidden now of all fleets.
    pub(crate) fn horizons(&self) -> Horizons {
        let shared = &self.shared;
        let marks = lock(&shared.marks).clone();
        if shared.of.fleets.keep_all() {
            return marks;
        }
        with_settings(marks, &shared.of.fleets, shared.now())
    }

    /// What is hidden now of one fleet, however many others there are.
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

    /// Drops now what is too old. Errors: the store's.
    pub(crate) fn keep(&self) -> Result<Kept> {
        let mut look = self.shared.look();
        self.shared.go_on(&mut look, &|| self.shared.is_over());
        look.end()
    }

    /// An entity was erased: its bytes are in tables still, as rows say.
    pub(crate) fn is_erased(&self) {
        lock(&self.shared.todo).is_erased = true;
        self.shared.changed.notify_all();
    }

    /// Says from now on what has failed.
    pub(crate) fn say_to(&self, notices: Notices) {
        *lock(&self.shared.notices) = notices;
    }

    /// What has failed the last time that it was done. `None`: nothing.
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
            // One that panicked has nothing to be waited for.
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
                // Not at once: it may do so again.
                work.kept = self.of.clock.monotonic_nanos();
                work.tidied = work.kept;
                work.purging.round = Round::Done;
            }
            self.note(&mut work, What::Turn, turn);
            *lock(&self.failed) = work.again.said();
        }
    }

    /// Waits until there is something to do. Returns whether it goes on.
    fn wait(&self, work: &mut Work) -> bool {
        let clock = &*self.of.clock;
        let mut todo = lock(&self.todo);
        let is_idle = work.purging.round == Round::Done && work.look.is_none();
        if !todo.is_over && !todo.is_erased && is_idle {
            let now = clock.monotonic_nanos();
            let left = |every: Duration, last| {
                every.saturating_sub(Duration::from_nanos(now.saturating_sub(last)))
            };
            // What failed is in `again` alone.
            let tidied = (!work.again.has(&What::Tidy)).then(|| left(TIDIED, work.tidied));
            let purged = work.purging.due(&work.again);
            let purged = purged.map(|due| Duration::from_nanos(due.saturating_sub(now)));
            let others = [tidied, purged, work.again.pause(now)];
            let pause = others.into_iter().flatten().min().unwrap_or(TIDIED);
            let pause = pause.min(left(EVERY, work.kept)).min(TIDIED);
            // Whatever is due and cannot be done: never again at once.
            todo = wait_timeout(clock, &self.changed, todo, pause.max(REST));
        }
        if work.purging.round == Round::Done {
            todo.is_erased = false;
            work.purging.round = Round::Due;
        }
        !todo.is_over
    }

    /// What became of a part.
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

    /// Drops what is too old, where it is time to: for a slice where something is erased, or waits to be purged, and for as
    /// long as it takes otherwise. Purging has its turn first, and then this goes on.
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

    /// Lets the store drop the points that are behind the marks.
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
