//! Housekeeping: a thread that drops what is too old, now and then, and merges tables where an entity was erased.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use base::clock::{Clock, wait_timeout};
use base::sync::thread::JoinHandle;
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use base::threads::Threads;
use base::{Error, Result};

use super::hide::visits_from;
use super::{Horizon, Horizons, marks, with_settings};
use crate::fence;
use crate::fleets::Fleets;
use crate::model::key::{CellKey, Entity, EntityKey, Fleet};
use crate::model::newest::Newest;
use crate::model::time::Time;
use crate::store::{Batch, Family, Store, damaged};
use crate::write::{Erasure, Shards, purges};

/// It looks so often.
const EVERY: Duration = Duration::from_secs(3600);
/// What has failed is done again after so long.
const AGAIN: Duration = Duration::from_secs(60);
/// A part of the entities are looked at in one state, so that none is held for long.
const PART: usize = 10_000;
/// So many that were erased are read at a time.
const PURGES: usize = 256;
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

#[derive(Debug)]
struct Shared {
    of: Of,
    marks: Mutex<Horizons>,
    /// One look at a time.
    looking: Mutex<()>,
    todo: Mutex<Todo>,
    changed: Condvar,
    failed: Mutex<Option<String>>,
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
            looking: Mutex::new(()),
            todo: Mutex::default(),
            changed: Condvar::new(),
            failed: Mutex::new(None),
        });
        shared.publish()?;
        let its = Arc::clone(&shared);
        let thread = threads
            .start("housekeeping", Box::new(move || its.run()))
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

    /// Why the last look has failed. `None`: it has not.
    pub(crate) fn failed(&self) -> Option<String> {
        lock(&self.shared.failed).clone()
    }
}

impl Drop for House {
    fn drop(&mut self) {
        lock(&self.shared.todo).is_over = true;
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

    fn run(&self) {
        let clock = &*self.of.clock;
        let mut last = clock.monotonic_nanos();
        let mut has_failed = false;
        // Also what was erased before a restart.
        let mut is_first = true;
        loop {
            {
                let mut todo = lock(&self.todo);
                if !todo.is_over && (!todo.is_erased || has_failed) && !is_first {
                    let pause = if has_failed { AGAIN } else { EVERY };
                    todo = wait_timeout(clock, &self.changed, todo, pause);
                }
                if todo.is_over {
                    return;
                }
                todo.is_erased = false;
            }
            is_first = false;
            let mut done = self.purge_all();
            let now = clock.monotonic_nanos();
            let is_due = now.saturating_sub(last) >= EVERY.as_nanos() as u64;
            if done.is_ok() && (is_due || has_failed) {
                last = now;
                done = self.keep().map(drop);
            }
            has_failed = done.is_err();
            *lock(&self.failed) = done.err().map(|e| e.to_string());
        }
    }

    /// Merges the tables that have what was erased.
    fn purge_all(&self) -> Result<()> {
        let store = &*self.of.store;
        let mut after = None;
        loop {
            // No state is held meanwhile: it would keep what is to go.
            let some = purges(&*store.view(), after, PURGES)?;
            if some.is_empty() {
                return Ok(());
            }
            for purge in some {
                if lock(&self.todo).is_over {
                    return Ok(());
                }
                after = Some(purge.of);
                self.purge(purge.of)?;
                purge.is_done(store)?;
            }
        }
    }

    /// Merges the tables that have what an entity had.
    fn purge(&self, (fleet, entity): (Fleet, Entity)) -> Result<()> {
        let store = &self.of.store;
        let key = EntityKey { fleet, entity }.to_bytes();
        let mut end = key.to_vec();
        end.push(u8::MAX);
        for family in [
            Family::Default,
            Family::Latest,
            Family::Inside,
            Family::Entities,
        ] {
            store.compact(family, &key, &end)?;
        }
        // Its rows lie anywhere among those of the fleet.
        let first = fleet.prefix();
        let end = crate::model::key::behind(&first);
        let view = store.view();
        for family in [Family::Geohash, Family::Visits, Family::Events] {
            view.has_dead_rows(family, &first, end.as_deref());
        }
        Ok(())
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
        let _one = lock(&self.looking);
        let mut kept = Kept::default();
        let now = self.now();
        for info in self.of.fleets.all() {
            let wanted = Horizon::of(&info.settings, now);
            let old = lock(&self.marks).get(&info.fleet).copied();
            let old = old.unwrap_or_default();
            let new = old.max(wanted);
            if wanted == Horizon::default() {
                continue;
            }
            if new != old {
                self.mark(info.fleet, old, new)?;
            }
            self.sweep(info.fleet, new, &mut kept)?;
        }
        Ok(kept)
    }

    /// Moves the marks of a fleet, and drops what lies by time.
    fn mark(&self, fleet: Fleet, old: Horizon, new: Horizon) -> Result<()> {
        let store = &*self.of.store;
        let mut batch = Batch::new(store);
        let (key, value) = new.row(fleet);
        batch.put(Family::Meta, &key, &value)?;
        // Before anything is dropped: a table that was merged is never lost again.
        let number = batch.write(None)?;
        store.wait_durable(number)?;
        lock(&self.marks).insert(fleet, new);
        self.publish()?;
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
        store.reclaim(family, from, to)?;
        let mut batch = Batch::new(store);
        batch.delete_range(family, from, to)?;
        batch.write(None).map(drop)
    }

    /// Erases the entities that have nothing left, and takes those that are silent from the index.
    fn sweep(&self, fleet: Fleet, horizon: Horizon, kept: &mut Kept) -> Result<()> {
        let mut from = fleet.prefix().to_vec();
        loop {
            let (todo, next) = self.old(fleet, horizon, &from)?;
            for (entity, erasure) in todo {
                if lock(&self.todo).is_over {
                    return Ok(());
                }
                let done = self.of.shards.erase_number(fleet, entity, erasure)?;
                match erasure {
                    _ if !done => {}
                    Erasure::Silent(_) => kept.silent += 1,
                    _ => kept.entities += 1,
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
        fleet: Fleet,
        horizon: Horizon,
        from: &[u8],
    ) -> Result<(Vec<(Entity, Erasure)>, Option<Vec<u8>>)> {
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
            let entity = EntityKey::of_bytes(key)?.entity;
            let newest = Newest::decode(value).map_err(|e| damaged(Family::Latest, key, &e))?;
            if newest.time < horizon.points {
                out.push((entity, Erasure::Before(horizon.points)));
            } else if newest.time < horizon.index {
                let row = CellKey {
                    fleet,
                    cell: newest.cell,
                    entity,
                };
                if view.get(Family::Geohash, &row.to_bytes())?.is_some() {
                    out.push((entity, Erasure::Silent(horizon.index)));
                }
            }
            rows.next();
        }
        rows.status()?;
        Ok((out, None))
    }
}
