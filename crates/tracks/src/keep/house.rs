//! Housekeeping: a thread that drops what is too old, now and then, merges tables where an entity was erased, and has the store
//! clean up what readers have found dead.
//!
//! What fails is said and done again after a pause that grows, and stops nothing else: no other entity, no other fleet, no later
//! turn. A panic is such a failure, too. What cannot be decoded is never dropped.

mod purging;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::clock::{Clock, wait_timeout};
use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::thread::JoinHandle;
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use base::threads::Threads;
use base::{Error, ErrorKind, Result};

use self::purging::{Purging, Round};
use super::hide::visits_from;
use super::thin::{Left, Thinning};
use super::{Horizon, Horizons, marks, with_settings};
use crate::again::{Again, Several, caught};
use crate::fence;
use crate::fleets::{Fleets, Info};
use crate::model::key::{CellKey, Entity, EntityKey, Fleet};
use crate::model::name::Name;
use crate::model::newest::Newest;
use crate::model::time::Time;
use crate::notices::Notices;
use crate::store::{Batch, Family, Store, View, damaged};
use crate::write::{Erasure, Shards};

/// It looks so often.
const EVERY: Duration = Duration::from_secs(3600);
/// The store cleans up so often.
const TIDIED: Duration = Duration::from_secs(60);
/// What has failed is done again after so long at first, and after [`EVERY`] at most.
const AGAIN: Duration = Duration::from_secs(60);
/// Thinning takes so long of a look; the rest has its turn in the next one.
const THINNING_MAX: Duration = Duration::from_secs(600);
/// A part of the entities are looked at in one state, so that none is held for long.
const PART: usize = 10_000;
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
}

/// One look at all fleets.
#[derive(Default)]
struct Look {
    kept: Kept,
    kind: Option<ErrorKind>,
    wrong: Several,
}

impl Look {
    fn is_wrong(&mut self, fleet: &Name, e: &Error) {
        self.kind.get_or_insert(e.kind());
        self.wrong.add(format!("fleet {fleet}: {e}"));
    }

    fn end(self) -> Result<Kept> {
        match (self.kind, self.wrong.text()) {
            (Some(kind), Some(text)) => Err(Error::new(kind, text)),
            _ => Ok(self.kept),
        }
    }
}

/// What earlier looks have come to, since the start.
#[derive(Debug, Default)]
struct Looked {
    /// Up to where what lies by time was dropped.
    dropped: Horizons,
    thinning: Left,
    /// The fleet at which the last look had to stop thinning.
    thinned: Option<Name>,
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

    /// What is hidden now.
    pub(crate) fn horizons(&self) -> Horizons {
        let shared = &self.shared;
        let marks = lock(&shared.marks).clone();
        if shared.of.fleets.keep_all() {
            return marks;
        }
        with_settings(marks, &shared.of.fleets, shared.now())
    }

    /// Drops now what is too old. Errors: the store's.
    pub(crate) fn keep(&self) -> Result<Kept> {
        self.shared.keep()
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
        if !todo.is_over && !todo.is_erased && work.purging.round == Round::Done {
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
        self.tidy(work);
        let now = self.of.clock.monotonic_nanos();
        let is_due = now.saturating_sub(work.kept) >= EVERY.as_nanos() as u64;
        if (is_due || work.again.has(&What::Keep)) && !work.again.waits(&What::Keep, now) {
            work.kept = now;
            let done = self.keep().map(drop);
            self.note(work, What::Keep, done);
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

    fn keep(&self) -> Result<Kept> {
        let mut looked = lock(&self.looking);
        let mut look = Look::default();
        let now = self.now();
        let fleets = self.of.fleets.all();
        for info in &fleets {
            if self.is_over() {
                break;
            }
            // What is wrong with one fleet keeps no other one.
            let done = caught("housekeeping", || {
                self.keep_of(info, now, &mut looked.dropped, &mut look)
            });
            if let Err(e) = done {
                look.is_wrong(&info.name, &e);
            }
        }
        // Behind that, as it may take long: first the fleets behind the one at which the last look ended.
        let end = self.of.clock.monotonic_nanos() + THINNING_MAX.as_nanos() as u64;
        let last = looked.thinned.take();
        let is_behind = |info: &&Arc<Info>| last.as_ref().is_some_and(|last| info.name > *last);
        let (behind, before): (Vec<_>, Vec<_>) = fleets.iter().partition(is_behind);
        for info in behind.into_iter().chain(before) {
            let name = &info.name;
            let done = caught("thinning", || {
                self.thin(name, (now, end), &mut looked.thinning, &mut look)
            });
            if let Err(e) = done {
                look.is_wrong(name, &e);
            }
            if self.is_to_stop(end) {
                looked.thinned = Some(name.clone());
                break;
            }
        }
        look.end()
    }

    /// Whether thinning is to leave the rest to the next look.
    fn is_to_stop(&self, end: u64) -> bool {
        let todo = lock(&self.todo);
        todo.is_over || todo.is_erased || self.of.clock.monotonic_nanos() >= end
    }

    fn keep_of(
        &self,
        info: &Info,
        now: Time,
        dropped: &mut Horizons,
        look: &mut Look,
    ) -> Result<()> {
        let wanted = Horizon::of(&info.settings, now);
        if wanted == Horizon::default() {
            return Ok(());
        }
        let fleet = info.fleet;
        let old = lock(&self.marks).get(&fleet).copied();
        let old = old.unwrap_or_default();
        let new = old.max(wanted);
        if new != old {
            self.mark(fleet, new)?;
        }
        // Not what the mark was before: dropping may have failed then, or been cut off.
        let before = dropped.get(&fleet).copied().unwrap_or_default();
        self.drop_old(fleet, before, new)?;
        dropped.insert(fleet, new);
        self.sweep(info, new, look)
    }

    fn thin(
        &self,
        name: &Name,
        (now, end): (Time, u64),
        left: &mut Left,
        look: &mut Look,
    ) -> Result<()> {
        // As its settings are now: others may have been thinned for long.
        let wanted = || {
            let info = self.of.fleets.get(name)?;
            let how = (info.settings.thin_days, info.settings.thin_metres);
            Some((info, how))
        };
        let Some((info, how)) = wanted() else {
            return Ok(());
        };
        let kept = lock(&self.marks).get(&info.fleet).map(|mark| mark.points);
        let wrong = &mut |e: &Error| look.is_wrong(name, e);
        let thinning = Thinning {
            of: &self.of,
            info: &info,
            stops: &|| self.is_to_stop(end) || wanted().is_none_or(|(_, now)| now != how),
            wrong,
        };
        look.kept.thinned += thinning.run(now, kept.unwrap_or(Time::MIN), left)?;
        Ok(())
    }

    /// Moves the marks of a fleet.
    fn mark(&self, fleet: Fleet, new: Horizon) -> Result<()> {
        let store = &*self.of.store;
        let mut batch = Batch::new(store);
        let (key, value) = new.row(fleet);
        batch.put(Family::Meta, &key, &value)?;
        // Before anything is dropped: a table that was merged is never lost again.
        let number = batch.write(None)?;
        store.wait_durable(number)?;
        lock(&self.marks).insert(fleet, new);
        self.publish()
    }

    /// Drops what lies by time.
    fn drop_old(&self, fleet: Fleet, old: Horizon, new: Horizon) -> Result<()> {
        let first = fleet.prefix();
        if old.points.bucket() < new.points.bucket() {
            let visits = visits_from(fleet, new.points);
            self.drop_range(Family::Visits, &first, &visits)?;
        }
        let event = |time: Time| fence::key(fleet, u64::try_from(time.0).unwrap_or(0));
        if event(old.points) < event(new.points) {
            self.drop_range(Family::Events, &first, &event(new.points))?;
        }
        Ok(())
    }

    fn drop_range(&self, family: Family, from: &[u8], to: &[u8]) -> Result<()> {
        let store = &*self.of.store;
        let mut batch = Batch::new(store);
        batch.delete_range(family, from, to)?;
        let number = batch.write(None)?;
        // Tables go for good, with deletions in them: what those hide must stay so after a crash.
        store.wait_durable(number)?;
        store.reclaim(family, from, to)
    }

    /// Erases the entities that have nothing left, and takes those that are silent from the index. Those whose rows are damaged
    /// stay, and are said.
    fn sweep(&self, info: &Info, horizon: Horizon, look: &mut Look) -> Result<()> {
        let fleet = info.fleet;
        let mut from = fleet.prefix().to_vec();
        loop {
            let (todo, next) = self.old(info, horizon, &from, look)?;
            for (entity, erasure) in todo {
                if self.is_over() {
                    return Ok(());
                }
                let done = match self.of.shards.erase_number(fleet, entity, erasure) {
                    Err(e) if e.is_corruption() => {
                        look.is_wrong(&info.name, &e);
                        false
                    }
                    done => done?,
                };
                match erasure {
                    _ if !done => {}
                    Erasure::Silent(_) => look.kept.silent += 1,
                    _ => look.kept.entities += 1,
                }
            }
            match next {
                Some(next) => from = next,
                None => return Ok(()),
            }
        }
    }

    /// What is to be done with some entities, and where the next ones begin.
    #[expect(clippy::type_complexity, reason = "a list and where it goes on")]
    fn old(
        &self,
        info: &Info,
        horizon: Horizon,
        from: &[u8],
        look: &mut Look,
    ) -> Result<(Vec<(Entity, Erasure)>, Option<Vec<u8>>)> {
        let fleet = info.fleet;
        let view = self.of.store.view();
        let end = crate::model::key::behind(&fleet.prefix());
        let mut rows = view.rows(Family::Latest, from, end.as_deref())?;
        rows.seek(from);
        let mut out = Vec::new();
        let mut count = 0;
        while let Some((key, value)) = rows.row() {
            if count == PART {
                return Ok((out, Some(key.to_vec())));
            }
            count += 1;
            let row = EntityKey::of_bytes(key).and_then(|at| Ok((at, Newest::decode(value)?)));
            match row {
                Ok((at, newest)) => {
                    let erasure = erasure(&*view, at, &newest, horizon)?;
                    out.extend(erasure.map(|erasure| (at.entity, erasure)));
                }
                Err(e) => look.is_wrong(&info.name, &damaged(Family::Latest, key, &e)),
            }
            rows.next();
        }
        rows.status()?;
        Ok((out, None))
    }
}

/// What is to be erased of an entity.
fn erasure(
    view: &dyn View,
    EntityKey { fleet, entity }: EntityKey,
    newest: &Newest,
    horizon: Horizon,
) -> Result<Option<Erasure>> {
    if newest.time < horizon.points {
        return Ok(Some(Erasure::Before(horizon.points)));
    }
    if newest.time >= horizon.index {
        return Ok(None);
    }
    let cell = newest.cell;
    let row = CellKey {
        fleet,
        cell,
        entity,
    };
    let is_there = view.get(Family::Geohash, &row.to_bytes())?.is_some();
    Ok(is_there.then_some(Erasure::Silent(horizon.index)))
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests;
