//! A look at all fleets: old rows are dropped, and points are thinned.
//!
//! It may be interrupted anywhere, and then goes on from there.

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

/// The time of a look that thinning may take; the rest is done by the next look.
const THINNING_MAX: Duration = Duration::from_secs(600);
/// How many entities are looked at in one view, so that no view is held for long.
const PART: usize = 10_000;
/// How many erasures are on their way to the device together.
const AT_ONCE: usize = 64;
/// After this many failures in a row, the other entities of a fleet are left to the next look.
pub(in crate::keep) const FAILURES_MAX: usize = 10;

/// The progress of one look at all fleets.
pub(super) struct Look {
    now: Time,
    /// The fleets whose old rows are still to be dropped.
    fleets: VecDeque<Arc<Info>>,
    /// The entities of the first fleet that were found and are still to be erased. The search is
    /// not repeated.
    found: Option<Old>,
    /// The fleets to be thinned afterwards. `None` if that has not begun.
    thin: Option<VecDeque<Name>>,
    /// The time left for thinning, nanoseconds.
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

/// The results of earlier looks since the start.
#[derive(Debug, Default)]
pub(super) struct Looked {
    /// The horizons up to which visits and events were dropped.
    dropped: Horizons,
    /// The fleet whose mark moved last, if the store does not know that yet.
    unpublished: Option<Name>,
    thinning: Left,
    /// Where the next look at a fleet begins, after failures in a row.
    behind: BTreeMap<Fleet, Vec<u8>>,
    /// The fleet at which the last look had to stop thinning.
    thinned: Option<Name>,
}

/// Entities to be erased or removed from the index.
#[derive(Default)]
struct Old {
    todo: VecDeque<(Entity, Erasure)>,
    /// The key at which the next search begins.
    next: Option<Vec<u8>>,
    /// Why reading ended early.
    failed: Option<Error>,
}

impl Shared {
    /// Begins a look.
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

    /// Goes on until `stops` returns true. Returns whether the look is finished.
    pub(super) fn go_on(&self, look: &mut Look, stops: &dyn Fn() -> bool) -> bool {
        let mut looked = lock(&self.looking);
        // It may have failed in an earlier look, and the marks may not move again.
        self.publish_marks(&mut looked, look);
        while let Some(front) = look.fleets.front().cloned() {
            // Not the settings of when the look began: what is dropped never comes back.
            let info = self.of.fleets.get(&front.name).unwrap_or(front);
            // A failure of one fleet does not affect the others.
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
            // Also if nothing was erased: each fleet has writes.
            if stops() {
                return false;
            }
        }
        self.thin_all(look, &mut looked, stops)
    }

    /// Drops the old rows of a fleet. Returns whether this is finished.
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
        // Also if the fleet keeps everything from now on: rows before its mark stay hidden for
        // good.
        if wanted == Horizon::default() && old.is_none() {
            return Ok(true);
        }
        let old = old.unwrap_or_default();
        let new = old.max(wanted);
        if new != old {
            self.mark(fleet, new)?;
            looked.unpublished = Some(info.name.clone());
            self.publish_marks(looked, look);
        }
        // If this goes on, it was done or reported already.
        if look.found.is_none() {
            // Not the former mark: dropping may have failed after it was set, or was interrupted.
            let before = looked.dropped.get(&fleet).copied().unwrap_or_default();
            self.drop_old(fleet, before, new)?;
            match self.drop_what_tells(fleet, before, new) {
                Ok(()) => drop(looked.dropped.insert(fleet, new)),
                Err(e) => look.is_wrong(&info.name, &e),
            }
        }
        self.sweep((info, new), &mut looked.behind, look, stops)
    }

    /// Tells the store the marks, if one has moved. If that fails, the next look does it.
    fn publish_marks(&self, looked: &mut Looked, look: &mut Look) {
        let Some(name) = &looked.unpublished else {
            return;
        };
        match self.publish() {
            Ok(()) => looked.unpublished = None,
            Err(e) => look.is_wrong(name, &e),
        }
    }

    /// Moves the mark of a fleet.
    fn mark(&self, fleet: Fleet, new: Horizon) -> Result<()> {
        let store = &*self.of.store;
        let mut batch = Batch::new(store);
        let (key, value) = new.row(fleet);
        batch.put(Family::Meta, &key, &value)?;
        // Durable before anything is dropped, because points that a compaction drops never come
        // back.
        let number = batch.write(None)?;
        store.wait_durable(number)?;
        lock(&self.marks).insert(fleet, new);
        Ok(())
    }

    /// Drops visits and events, whose keys are in the order of time.
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

    /// Drops the notes about dropped visits and events. If those of one kind cannot be read, those
    /// of the other are still dropped.
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
        // Whole tables are removed, with the tombstones in them: what those hide must stay hidden
        // after a crash.
        store.wait_durable(number)?;
        store.reclaim(family, from, to)
    }

    /// Erases the entities of which nothing is kept, and removes silent ones from the index.
    /// Unreadable entities stay, and are reported. Returns whether this is finished.
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

    /// Erases these entities. A failure of one does not affect the others.
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
                // Damage concerns one entity; other errors may concern all.
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

    /// Finds entities to be erased or removed from the index.
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

    /// Thins old points as long as there is time, beginning after the fleet at which the last look
    /// ended. Returns whether this is finished.
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
                // If the fleet is not finished, it goes on there.
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

    /// Thins a fleet. Returns whether some of it is left.
    fn thin(
        &self,
        name: &Name,
        look: &mut Look,
        left: &mut Left,
        stops: &dyn Fn() -> bool,
    ) -> Result<bool> {
        // With its current settings, because thinning the others may have taken long.
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

/// The first id of an event that is kept.
fn first_event(horizon: Horizon) -> u64 {
    u64::try_from(horizon.points.0).unwrap_or(0)
}

/// What to erase of an entity.
fn erasure(
    view: &dyn View,
    EntityKey { fleet, entity }: EntityKey,
    newest: &Newest<'_>,
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
