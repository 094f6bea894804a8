//! Live positions for listeners: the newest one of each entity, once reads see it.
//!
//! ```text
//!   shard ─> publish ─> pending: the newest of each entity ─> take ─> the streams
//! ```
//!
//! While nobody listens, a shard only reads one number. A shard never waits for a listener: all
//! pending positions are taken at once, under a short lock. A position that was not taken is
//! replaced by a newer one of the same entity. If too many entities are pending, further ones are
//! dropped and counted; their next report is published again.

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

/// The most entities that may be pending.
const PENDING_MAX: usize = 65_536;

/// A new position of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moved {
    /// The fleet of the entity.
    pub fleet: Fleet,
    /// The number of the entity.
    pub entity: Entity,
    /// The name of the entity.
    pub name: Name,
    /// The time of its report.
    pub time: Time,
    /// The position.
    pub position: Position,
    /// Speed over ground, cm/s.
    pub speed: Option<u16>,
    /// Course, clockwise from north, 10⁻² degrees.
    pub course: Option<u16>,
    /// Tags: each bit has a meaning that is set by the fleet.
    pub tags: u32,
    /// The cell of its previous position. `None` if the entity is new.
    pub before: Option<Cell>,
}

/// The fleets with listeners, and the number of their listeners.
pub type Wanted = BTreeMap<Fleet, usize>;

/// The pending positions and the listeners of all fleets.
#[derive(Debug, Default)]
pub struct Live {
    listeners: AtomicUsize,
    wanted: RwLock<Arc<Wanted>>,
    pending: Mutex<HashMap<(Fleet, Entity), Moved>>,
    changed: Notify,
    coalesced: AtomicU64,
    dropped: AtomicU64,
}

/// A registered listener; dropping it unregisters it.
#[derive(Debug)]
pub struct Listening {
    live: Arc<Live>,
    fleet: Fleet,
}

impl Live {
    /// Registers a listener of a fleet.
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

    /// The fleets with listeners. `None` if there are none.
    pub fn wanted(&self) -> Option<Arc<Wanted>> {
        if self.listeners.load(Ordering::Acquire) == 0 {
            return None;
        }
        let wanted = self.wanted.read().unwrap_or_else(PoisonError::into_inner);
        Some(Arc::clone(&wanted))
    }

    /// Publishes new positions, each newer than the one published before.
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
                    // The receiver has not seen the position between.
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

    /// Returns when something may be pending; it wakes one waiter.
    pub async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Takes all pending positions.
    pub fn take(&self) -> Vec<Moved> {
        let pending = {
            let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *pending)
        };
        pending.into_values().collect()
    }

    /// Drops the pending position of an entity that was erased.
    pub(crate) fn forget(&self, fleet: Fleet, name: &Name) {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.retain(|(of, _), moved| *of != fleet || moved.name != *name);
    }

    /// The number of positions that were replaced by newer ones, and of those that were dropped
    /// because too many were pending.
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
