//! Positions as they come, for who listens now: the newest of each entity, once reads see it.
//!
//! ```text
//!   shard ─> publish ─> pending: the newest of each entity ─> take ─> whoever gives them out
//! ```
//!
//! Shards ask one number, and do no more while nobody listens. A shard never waits for who listens: what is pending is taken whole
//! under a short lock. What nobody takes is replaced by what is newer of the same entity. Where too many entities are pending, those
//! that come then are left out, and counted; their next report is seen.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use base::sync::{Mutex, PoisonError, RwLock};
use tokio::sync::Notify;

use crate::geo::cell::Cell;
use crate::geo::position::Position;
use crate::model::key::{Entity, Fleet};
use crate::model::name::Name;
use crate::model::time::Time;

/// So many entities may be pending.
const PENDING_MAX: usize = 65_536;

/// Where an entity is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// Of which fleet.
    pub fleet: Fleet,
    /// Its number.
    pub entity: Entity,
    /// Its name.
    pub name: Name,
    /// Since when.
    pub time: Time,
    /// Where.
    pub position: Position,
    /// Over ground, cm/s.
    pub speed: Option<u16>,
    /// From north over east, 10⁻² degrees.
    pub course: Option<u16>,
    /// Bits whose meaning the fleet knows.
    pub tags: u32,
    /// The cell where it was before. `None`: it is new.
    pub before: Option<Cell>,
}

/// The fleets that somebody listens to, and how many do.
pub type Wanted = BTreeMap<Fleet, usize>;

/// See the module.
#[derive(Debug, Default)]
pub struct Live {
    listeners: AtomicUsize,
    wanted: RwLock<Arc<Wanted>>,
    pending: Mutex<HashMap<(Fleet, Entity), Moved>>,
    changed: Notify,
    coalesced: AtomicU64,
    dropped: AtomicU64,
}

/// Somebody listens, until this is dropped.
#[derive(Debug)]
pub struct Listening {
    live: Arc<Live>,
    fleet: Fleet,
}

impl Live {
    /// Listens to a fleet.
    pub fn listen(self: &Arc<Self>, fleet: Fleet) -> Listening {
        self.change(|wanted| *wanted.entry(fleet).or_default() += 1);
        self.listeners.fetch_add(1, Ordering::Release);
        Listening {
            live: Arc::clone(self),
            fleet,
        }
    }

    fn change(&self, change: impl FnOnce(&mut Wanted)) {
        let mut wanted = self.wanted.write().unwrap_or_else(PoisonError::into_inner);
        let mut new = Wanted::clone(&wanted);
        change(&mut new);
        *wanted = Arc::new(new);
    }

    /// The fleets whose positions are wanted. `None`: nobody listens.
    pub fn wanted(&self) -> Option<Arc<Wanted>> {
        if self.listeners.load(Ordering::Acquire) == 0 {
            return None;
        }
        let wanted = self.wanted.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&wanted))
    }

    /// Entities have moved, each later than what was told of it before.
    pub fn publish(&self, moved: Vec<Moved>) {
        if moved.is_empty() {
            return;
        }
        let (mut coalesced, mut dropped) = (0, 0);
        {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            for mut one in moved {
                let is_full = pending.len() >= PENDING_MAX;
                let key = (one.fleet, one.entity);
                if let Some(old) = pending.get_mut(&key) {
                    // Whoever takes it has not seen what was between.
                    one.before = old.before;
                    *old = one;
                    coalesced += 1;
                } else if is_full {
                    dropped += 1;
                } else {
                    pending.insert(key, one);
                }
            }
        }
        self.coalesced.fetch_add(coalesced, Ordering::Relaxed);
        self.dropped.fetch_add(dropped, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Returns when something may be pending, to one who waits.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// All that is pending.
    pub fn take(&self) -> Vec<Moved> {
        let pending = {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *pending)
        };
        pending.into_values().collect()
    }

    /// An entity of this name was erased: what is pending of it goes, too.
    pub(crate) fn forget(&self, fleet: Fleet, name: &Name) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|(of, _), moved| *of != fleet || moved.name != *name);
    }

    /// Positions that were replaced by newer ones, and that were left out as too many were pending.
    pub fn lost(&self) -> (u64, u64) {
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        (load(&self.coalesced), load(&self.dropped))
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        let fleet = self.fleet;
        self.live.listeners.fetch_sub(1, Ordering::Release);
        self.live.change(|wanted| {
            if let Some(count) = wanted.get_mut(&fleet) {
                *count -= 1;
                if *count == 0 {
                    wanted.remove(&fleet);
                }
            }
        });
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::geo::position::at;

    fn moved(entity: u64, time: i64) -> Moved {
        Moved {
            fleet: Fleet(1),
            entity: Entity(entity),
            name: Name::new(&format!("e{entity}")).unwrap(),
            time: Time(time),
            position: at(1.0, 2.0),
            speed: None,
            course: None,
            tags: 0,
            before: (time > 0).then(|| Cell::of(at(0.0, time as f64))),
        }
    }

    #[test]
    fn the_newest_of_each_is_kept_and_what_is_pending_is_bounded() {
        let live = Arc::new(Live::default());
        assert!(live.wanted().is_none());
        let first = live.listen(Fleet(1));
        let second = live.listen(Fleet(1));
        drop(first);
        assert_eq!(live.wanted().unwrap().get(&Fleet(1)), Some(&1));
        live.publish(vec![moved(1, 1), moved(2, 1), moved(1, 2)]);
        let mut all = live.take();
        all.sort_unstable_by_key(|m| m.entity);
        let times: Vec<i64> = all.iter().map(|m| m.time.0).collect();
        assert_eq!((times, live.lost()), (vec![2, 1], (1, 0)));
        assert_eq!(all[0].before, moved(1, 1).before);
        live.publish((0..70_000).map(|n| moved(n, 0)).collect());
        assert_eq!(live.take().len(), PENDING_MAX);
        assert_eq!(live.lost(), (1, 70_000 - PENDING_MAX as u64));
        drop(second);
        assert!(live.wanted().is_none());
    }
}
