//! A look at all fleets: what is too old is dropped, and what is old is thinned.
//!
//! It may be cut off anywhere, and goes on there.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base::{Error, ErrorKind, Result};

use super::{Kept, Shared, lock};
use crate::again::{Several, caught};
use crate::fence;
use crate::fleets::Info;
use crate::keep::hide::visits_from;
use crate::keep::thin::{Left, Thinning};
use crate::keep::{Horizon, Horizons};
use crate::model::key::{CellKey, Entity, EntityKey, Fleet, behind};
use crate::model::name::Name;
use crate::model::newest::Newest;
use crate::model::time::Time;
use crate::store::{Batch, Family, View, damaged};
use crate::write::{Erasure, events_are_gone, notes_are_gone};

/// Thinning takes so long of a look; the rest has its turn in the next one.
const THINNING_MAX: Duration = Duration::from_secs(600);
/// A part of the entities are looked at in one state, so that none is held for long.
const PART: usize = 10_000;
/// So many are on their way to the device together.
const AT_ONCE: usize = 64;
/// Where so many fail one behind the other, a fleet's others are left to the next look.
pub(in crate::keep) const FAILURES_MAX: usize = 10;

/// One look at all fleets, as far as it is.
pub(super) struct Look {
    now: Time,
    /// Those whose old rows are to be dropped.
    fleets: VecDeque<Arc<Info>>,
    /// Where it goes on in the first one. What was found there is not looked for again.
    found: Option<Old>,
    /// Those that are to be thinned behind that. `None`: it is not begun.
    thin: Option<VecDeque<Name>>,
    /// Nanoseconds for that.
    left: u64,
    kept: Kept,
    kind: Option<ErrorKind>,
    wrong: Several,
}

impl Look {
    fn is_wrong(&mut self, fleet: &Name, e: &Error) {
        self.kind.get_or_insert(e.kind());
        self.wrong.add(format!("fleet {fleet}: {e}"));
    }

    pub(super) fn end(self) -> Result<Kept> {
        match (self.kind, self.wrong.text()) {
            (Some(kind), Some(text)) => Err(Error::new(kind, text)),
            _ => Ok(self.kept),
        }
    }
}

/// What earlier looks have come to, since the start.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// Up to where what lies by time was dropped.
    dropped: Horizons,
    thinning: Left,
    /// Where entities failed, one behind the other: the next look goes on there.
    behind: BTreeMap<Fleet, Vec<u8>>,
    /// The fleet at which the last look had to stop thinning.
    thinned: Option<Name>,
}

/// What is to be done with some entities.
#[derive(Default)]
struct Old {
    todo: VecDeque<(Entity, Erasure)>,
    /// Where the next ones begin.
    next: Option<Vec<u8>>,
    /// What made reading end early.
    failed: Option<Error>,
}

impl Shared {
    /// Begins one.
    pub(super) fn look(&self) -> Look {
        Look {
            now: self.now(),
            fleets: self.of.fleets.all().into(),
            found: None,
            thin: None,
            left: THINNING_MAX.as_nanos() as u64,
            kept: Kept::default(),
            kind: None,
            wrong: Several::default(),
        }
    }

    /// Goes on until it is to stop. Returns whether it is done.
    pub(super) fn go_on(&self, look: &mut Look, stops: &dyn Fn() -> bool) -> bool {
        let mut looked = lock(&self.looking);
        while let Some(info) = look.fleets.front().cloned() {
            // What is wrong with one fleet keeps no other one.
            let done = caught("housekeeping", || {
                self.keep_of(&info, &mut looked, look, stops)
            });
            match done {
                Ok(true) => {}
                Ok(false) => return false,
                Err(e) => look.is_wrong(&info.name, &e),
            }
            look.fleets.pop_front();
            look.found = None;
            // Also where nothing is to be erased: each has its writes.
            if stops() {
                return false;
            }
        }
        self.thin_all(look, &mut looked, stops)
    }

    /// Drops what is too old of a fleet. Returns whether that is done.
    fn keep_of(
        &self,
        info: &Info,
        looked: &mut Looked,
        look: &mut Look,
        stops: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let fleet = info.fleet;
        let wanted = Horizon::of(&info.settings, look.now);
        let old = lock(&self.marks).get(&fleet).copied();
        // Also where it keeps all from now on: what is behind its mark is hidden for good.
        if wanted == Horizon::default() && old.is_none() {
            return Ok(true);
        }
        let old = old.unwrap_or_default();
        let new = old.max(wanted);
        if new != old {
            self.mark(fleet, new)?;
        }
        // Where this goes on, it was done or said.
        if look.found.is_none() {
            // Not what the mark was before: dropping may have failed then, or been cut off.
            let before = looked.dropped.get(&fleet).copied().unwrap_or_default();
            self.drop_old(fleet, before, new)?;
            match self.drop_what_tells(fleet, before, new) {
                Ok(()) => drop(looked.dropped.insert(fleet, new)),
                Err(e) => look.is_wrong(&info.name, &e),
            }
        }
        self.sweep((info, new), &mut looked.behind, look, stops)
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
        if first_event(old) < first_event(new) {
            let events = fence::key(fleet, first_event(new));
            self.drop_range(Family::Events, &first, &events)?;
        }
        Ok(())
    }

    /// Drops what tells of visits and events that were dropped. Where that of one kind cannot be read, that of the other goes.
    fn drop_what_tells(&self, fleet: Fleet, old: Horizon, new: Horizon) -> Result<()> {
        let store = &*self.of.store;
        let mut done = Ok(());
        if old.points.bucket() < new.points.bucket() {
            done = notes_are_gone(store, fleet, new.points.bucket());
        }
        if first_event(old) < first_event(new) {
            done = done.and(events_are_gone(store, fleet, first_event(new)));
        }
        done
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

    /// Erases the entities that have nothing left, and takes those that are silent from the index. Those that cannot be read stay,
    /// and are said. Returns whether that is done.
    fn sweep(
        &self,
        (info, horizon): (&Info, Horizon),
        behind: &mut BTreeMap<Fleet, Vec<u8>>,
        look: &mut Look,
        stops: &dyn Fn() -> bool,
    ) -> Result<bool> {
        let fleet = info.fleet;
        let key = |entity: Entity| EntityKey { fleet, entity }.to_bytes();
        let begin = |from: Option<Vec<u8>>| from.unwrap_or_else(|| fleet.prefix().to_vec());
        let mut old = match look.found.take() {
            Some(found) => found,
            None => self.old(info, horizon, &begin(behind.remove(&fleet)), look),
        };
        let mut failures = 0;
        loop {
            while !old.todo.is_empty() {
                if stops() {
                    look.found = Some(old);
                    return Ok(false);
                }
                let part: Vec<_> = old.todo.drain(..old.todo.len().min(AT_ONCE)).collect();
                self.erase_old(info, &part, &mut failures, look);
                if failures >= FAILURES_MAX {
                    if let Some((last, _)) = part.last() {
                        behind.insert(fleet, [&key(*last)[..], &[0]].concat());
                    }
                    let text = format!("{failures} entities one behind the other failed");
                    return Err(Error::aborted(text).hint("the next look goes on behind them"));
                }
            }
            if let Some(e) = old.failed {
                return Err(e);
            }
            let Some(next) = old.next else {
                return Ok(true);
            };
            if stops() {
                look.found = Some(Old {
                    next: Some(next),
                    ..Old::default()
                });
                return Ok(false);
            }
            old = self.old(info, horizon, &next, look);
        }
    }

    /// Does it. What is wrong with one entity keeps no other one.
    fn erase_old(
        &self,
        info: &Info,
        part: &[(Entity, Erasure)],
        failures: &mut usize,
        look: &mut Look,
    ) {
        let done = self.of.shards.erase_numbers(info.fleet, part);
        for (done, (_, erasure)) in done.into_iter().zip(part) {
            let is_done = done.unwrap_or_else(|e| {
                look.is_wrong(&info.name, &e);
                // What is damaged is one entity's; other errors may be everybody's.
                *failures += usize::from(!e.is_corruption());
                false
            });
            if is_done {
                *failures = 0;
            }
            match erasure {
                _ if !is_done => {}
                Erasure::Silent(_) => look.kept.silent += 1,
                _ => look.kept.entities += 1,
            }
        }
    }

    /// What is to be done with some entities.
    fn old(&self, info: &Info, horizon: Horizon, from: &[u8], look: &mut Look) -> Old {
        let mut old = Old::default();
        let done = caught("looking for what is old", || {
            self.find_old(info, horizon, from, (&mut old, look))
        });
        old.failed = done.err();
        old
    }

    fn find_old(
        &self,
        info: &Info,
        horizon: Horizon,
        from: &[u8],
        (old, look): (&mut Old, &mut Look),
    ) -> Result<()> {
        let view = self.of.store.view();
        let end = behind(&info.fleet.prefix());
        let mut rows = view.rows(Family::Latest, from, end.as_deref())?;
        rows.seek(from);
        let mut count = 0;
        while let Some((key, value)) = rows.row() {
            if count == PART {
                old.next = Some(key.to_vec());
                return Ok(());
            }
            count += 1;
            let row = EntityKey::of_bytes(key).and_then(|at| Ok((at, Newest::decode(value)?)));
            let erasure =
                row.map_err(|e| damaged(Family::Latest, key, &e))
                    .and_then(|(at, newest)| {
                        let erasure = erasure(&*view, at, &newest, horizon)?;
                        Ok(erasure.map(|erasure| (at.entity, erasure)))
                    });
            match erasure {
                Ok(erasure) => old.todo.extend(erasure),
                Err(e) => look.is_wrong(&info.name, &e),
            }
            rows.next();
        }
        rows.status()
    }

    /// Thins what is old, as long as there is time: first the fleets behind the one at which the last look ended. Returns whether
    /// that is done.
    fn thin_all(&self, look: &mut Look, looked: &mut Looked, stops: &dyn Fn() -> bool) -> bool {
        let mut todo = look.thin.take().unwrap_or_else(|| {
            let last = looked.thinned.take();
            let is_behind = |name: &Name| last.as_ref().is_some_and(|last| name > last);
            let fleets = self.of.fleets.all().into_iter();
            let names = fleets.map(|info| info.name.clone());
            let (behind, before): (Vec<_>, Vec<_>) = names.partition(is_behind);
            behind.into_iter().chain(before).collect()
        });
        let now = || self.of.clock.monotonic_nanos();
        let end = now().saturating_add(look.left);
        while let Some(name) = todo.front().cloned() {
            let done = caught("thinning", || {
                self.thin(&name, look, &mut looked.thinning, &|| {
                    stops() || now() >= end
                })
            });
            let is_left = done.unwrap_or_else(|e| {
                look.is_wrong(&name, &e);
                false
            });
            if now() >= end {
                looked.thinned = Some(name);
                return true;
            }
            if stops() {
                // Where its turn is not over it goes on where it is.
                if !is_left {
                    todo.pop_front();
                }
                look.left = end.saturating_sub(now());
                look.thin = Some(todo);
                return false;
            }
            todo.pop_front();
        }
        true
    }

    /// Returns whether more of it is left.
    fn thin(
        &self,
        name: &Name,
        look: &mut Look,
        left: &mut Left,
        stops: &dyn Fn() -> bool,
    ) -> Result<bool> {
        // As its settings are now: others may have been thinned for long.
        let wanted = || {
            let info = self.of.fleets.get(name)?;
            let how = (info.settings.thin_days, info.settings.thin_metres);
            Some((info, how))
        };
        let Some((info, how)) = wanted() else {
            return Ok(false);
        };
        let kept = lock(&self.marks).get(&info.fleet).map(|mark| mark.points);
        let now = look.now;
        let wrong = &mut |e: &Error| look.is_wrong(name, e);
        let thinning = Thinning {
            of: &self.of,
            info: &info,
            stops: &|| stops() || wanted().is_none_or(|(_, now)| now != how),
            wrong,
        };
        let count = thinning.run(now, kept.unwrap_or(Time::MIN), left)?;
        look.kept.thinned += count;
        Ok(left.contains_key(&info.fleet))
    }
}

/// The first id of an event that stays.
fn first_event(horizon: Horizon) -> u64 {
    u64::try_from(horizon.points.0).unwrap_or(0)
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
