//! Listeners to positions: for each, the newest position of each entity that it has not taken yet.
//!
//! ```text
//!   Live ─> pump: one task ─> each listener of the fleet: is it in the area, has it the tags? ─> the listener's queue
//! ```
//!
//! The queue is bounded: if it is full, further entities are dropped and counted until the listener has taken some. A
//! listener remembers for a limited number of entities whether they were in its area; for others it uses the cell of
//! their former position. So a `gone` is sent at least once for an entity that leaves, and exactly once if the entity
//! is remembered.
//!
//! An erasure removes the positions of its entity wherever they are: pending, with the pump, or in a queue. The pump
//! takes and gives positions under one lock, so that none slips through. A listener that was given a position of the
//! entity, and no `gone` since, is sent a `gone`: otherwise it would show the entity at its last place for ever.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, PoisonError};
use tokio::sync::Notify;

use super::App;
use crate::geo::shape::{Relation, Shape};
use crate::live::{Listening, Live, Moved};
use crate::model::key::{Entity, Fleet};
use crate::model::name::Name;

/// The most entities in a listener's queue.
const WAITING_MAX: usize = 16_384;
/// The most entities that a listener remembers.
const SEEN_MAX: usize = 65_536;
/// The pause between two rounds of the pump.
const PACE: Duration = Duration::from_millis(20);
/// After this many positions the pump yields to other tasks.
const TURN: usize = 1024;

/// A message to a listener.
#[derive(Clone, Debug)]
pub(crate) enum Told {
    /// The entity is in the area.
    Here(Arc<Moved>),
    /// The entity has left the area, or was erased.
    Gone(Name),
}

impl Told {
    fn name(&self) -> &Name {
        match self {
            Self::Here(moved) => &moved.name,
            Self::Gone(name) => name,
        }
    }
}

/// Which entities a listener wants.
pub(crate) struct Wanted {
    /// `None` means everywhere.
    pub(crate) area: Option<Box<dyn Shape + Send + Sync>>,
    /// Only entities with all these tags.
    pub(crate) tags: u32,
}

impl Wanted {
    fn has(&self, moved: &Moved) -> bool {
        let has_tags = moved.tags & self.tags == self.tags;
        let area = self.area.as_ref();
        has_tags && area.is_none_or(|area| area.has(moved.position))
    }

    /// Whether a forgotten entity may have been in the area before, by its former cell. Without an area, it may have
    /// had the tags, which no cell tells: then it counts if it is in `forgotten`.
    fn had(&self, moved: &Moved, forgotten: &Forgotten) -> bool {
        let Some(area) = &self.area else {
            return forgotten.may_have(moved.entity);
        };
        let cell = moved.before;
        cell.is_some_and(|cell| area.relation(&cell.span()) != Relation::Outside)
    }
}

/// What a listener remembers of an entity.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// Whether it is in the area.
    is_in: bool,
    /// Whether the listener was given a position of it, and no `gone` since.
    is_given: bool,
}

#[derive(Debug, Default)]
struct Inner {
    seen: HashMap<Entity, Seen>,
    told: HashMap<Entity, Told>,
    /// In the order of arrival.
    order: VecDeque<Entity>,
    forgotten: Forgotten,
}

/// Entities that were in the area or given to the listener when there were too many to remember. A bitmap by hash:
/// other entities may share a bit.
#[derive(Debug, Default)]
struct Forgotten(Vec<u64>);

impl Forgotten {
    /// The number of 64-bit words.
    const WORDS: usize = 1 << 15;

    /// Numbers of entities are hashes already.
    fn place(entity: Entity) -> (usize, u64) {
        let word = (entity.0 >> 6) as usize % Self::WORDS;
        (word, 1 << (entity.0 & 63))
    }

    fn add(&mut self, entity: Entity) {
        self.0.resize(Self::WORDS, 0);
        let (word, bit) = Self::place(entity);
        if let Some(word) = self.0.get_mut(word) {
            *word |= bit;
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn may_have(&self, entity: Entity) -> bool {
        let (word, bit) = Self::place(entity);
        self.0.get(word).is_some_and(|word| word & bit != 0)
    }
}

/// A listener, until this is dropped.
pub(crate) struct Listener {
    wanted: Wanted,
    inner: Mutex<Inner>,
    changed: Notify,
    _listening: Listening,
}

impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Listener")
    }
}

impl Listener {
    fn new(wanted: Wanted, listening: Listening) -> Self {
        Self {
            wanted,
            inner: Mutex::default(),
            changed: Notify::new(),
            _listening: listening,
        }
    }

    /// Adds positions. Returns how many replaced an older one, and how many were dropped.
    fn look(&self, all: &[Arc<Moved>]) -> (u64, u64) {
        let (mut coalesced, mut dropped) = (0, 0);
        let mut is_told = false;
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        for moved in all {
            let entity = moved.entity;
            let is_in = self.wanted.has(moved);
            let was_in = inner.seen.get(&entity).map(|seen| seen.is_in);
            let told = match (is_in, was_in) {
                (true, _) => Told::Here(Arc::clone(moved)),
                (false, Some(true)) => Told::Gone(moved.name.clone()),
                (false, None) if self.wanted.had(moved, &inner.forgotten) => {
                    Told::Gone(moved.name.clone())
                }
                (false, _) => continue,
            };
            // A `gone` for an entity that was perhaps never given must not displace positions.
            let is_guess = !is_in && was_in.is_none();
            let room = if is_guess {
                WAITING_MAX / 2
            } else {
                WAITING_MAX
            };
            let is_full = inner.order.len() >= room;
            if let Some(old) = inner.told.get_mut(&entity) {
                *old = told;
                coalesced += 1;
            } else if is_full {
                // Not remembered, so that the former state still holds.
                dropped += 1;
                continue;
            } else {
                inner.told.insert(entity, told);
                inner.order.push_back(entity);
            }
            inner.remember(entity, is_in);
            is_told = true;
        }
        drop(inner);
        if is_told {
            self.changed.notify_one();
        }
        (coalesced, dropped)
    }

    /// Takes up to `most` messages, the oldest first.
    pub(crate) fn take(&self, most: usize) -> Vec<Told> {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let count = inner.order.len().min(most);
        let first: Vec<Entity> = inner.order.drain(..count).collect();
        let mut out = Vec::with_capacity(count);
        for entity in first {
            let Some(told) = inner.told.remove(&entity) else {
                continue;
            };
            if let Some(seen) = inner.seen.get_mut(&entity) {
                seen.is_given = matches!(told, Told::Here(_));
            }
            out.push(told);
        }
        out
    }

    /// Removes the position of this name from the queue. If a position of it was given before, queues a `gone`.
    fn forget(&self, name: &Name) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let Inner {
            seen,
            told,
            order,
            forgotten,
        } = &mut *inner;
        let waits = told.iter().filter(|(_, told)| told.name() == name);
        let mut all: BTreeSet<Entity> = waits.map(|(entity, _)| *entity).collect();
        // If nothing of it is queued, its number is usually the first one of its name.
        all.insert(name.number(0));
        let mut is_told = false;
        for entity in all {
            let known = seen.get_mut(&entity);
            // An entity that is remembered now may have been forgotten before.
            let is_given =
                !forgotten.is_empty() || known.as_ref().is_some_and(|seen| seen.is_given);
            let was_told = told.get(&entity);
            if was_told.is_some_and(|told| told.name() != name) {
                // The number belongs to another entity.
                continue;
            }
            if is_given {
                if let Some(seen) = known {
                    seen.is_in = false;
                }
                if told.insert(entity, Told::Gone(name.clone())).is_none() {
                    order.push_back(entity);
                }
                is_told = true;
            } else if matches!(was_told, Some(Told::Here(_))) {
                told.remove(&entity);
                order.retain(|other| *other != entity);
                seen.remove(&entity);
            } else if was_told.is_none() {
                seen.remove(&entity);
            }
        }
        drop(inner);
        if is_told {
            self.changed.notify_one();
        }
    }

    /// Returns when there may be messages.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }
}

impl Inner {
    fn remember(&mut self, entity: Entity, is_in: bool) {
        if self.seen.len() >= SEEN_MAX && !self.seen.contains_key(&entity) {
            self.seen.retain(|_, seen| seen.is_in || seen.is_given);
            if self.seen.len() >= SEEN_MAX {
                // For these, their former cells tell whether they were in the area.
                for (entity, _) in self.seen.drain() {
                    self.forgotten.add(entity);
                }
            }
        }
        self.seen.entry(entity).or_default().is_in = is_in;
    }
}

/// Entities that were erased while the pump gives out positions.
#[derive(Debug, Default)]
struct Erased {
    gives: bool,
    names: BTreeSet<(Fleet, Name)>,
}

/// The listeners of all fleets.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    all: Mutex<BTreeMap<Fleet, Vec<Arc<Listener>>>>,
    /// Locked before the other locks.
    erased: Mutex<Erased>,
    coalesced: AtomicU64,
    dropped: AtomicU64,
}

/// A registered listener, which is removed when this is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    app: Arc<App>,
    fleet: Fleet,
    pub(crate) listener: Arc<Listener>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.app.positions.change(self.fleet, |all| {
            all.retain(|other| !Arc::ptr_eq(other, &self.listener));
        });
    }
}

impl Positions {
    fn change(&self, fleet: Fleet, change: impl FnOnce(&mut Vec<Arc<Listener>>)) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        let of_fleet = all.entry(fleet).or_default();
        change(of_fleet);
        if of_fleet.is_empty() {
            all.remove(&fleet);
        }
    }

    fn of(&self, fleet: Fleet) -> Vec<Arc<Listener>> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&fleet).cloned().unwrap_or_default()
    }

    /// An entity of this name was erased: none of its earlier positions is given out any more.
    pub(crate) fn forget(&self, live: &Live, fleet: Fleet, name: &Name) {
        let mut erased = self.erased.lock().unwrap_or_else(PoisonError::into_inner);
        if erased.gives {
            erased.names.insert((fleet, name.clone()));
        }
        live.forget(fleet, name);
        for listener in self.of(fleet) {
            listener.forget(name);
        }
    }

    /// Takes all pending positions, by fleet.
    fn take(&self, live: &Live) -> BTreeMap<Fleet, Vec<Arc<Moved>>> {
        let mut erased = self.erased.lock().unwrap_or_else(PoisonError::into_inner);
        erased.gives = true;
        let mut by_fleet: BTreeMap<Fleet, Vec<Arc<Moved>>> = BTreeMap::new();
        for moved in live.take() {
            let of_fleet = by_fleet.entry(moved.fleet).or_default();
            of_fleet.push(Arc::new(moved));
        }
        by_fleet
    }

    /// Records that all taken positions were given.
    fn given(&self) {
        let mut erased = self.erased.lock().unwrap_or_else(PoisonError::into_inner);
        *erased = Erased::default();
    }

    /// Gives positions of a fleet to a listener, except those of entities that were erased since they were taken.
    fn give(&self, fleet: Fleet, listener: &Listener, some: &[Arc<Moved>]) {
        let erased = self.erased.lock().unwrap_or_else(PoisonError::into_inner);
        let (coalesced, dropped) = if erased.names.is_empty() {
            listener.look(some)
        } else {
            let is_erased = |moved: &Moved| erased.names.contains(&(fleet, moved.name.clone()));
            let left = some.iter().filter(|moved| !is_erased(moved));
            listener.look(&left.cloned().collect::<Vec<_>>())
        };
        drop(erased);
        self.coalesced.fetch_add(coalesced, Ordering::Relaxed);
        self.dropped.fetch_add(dropped, Ordering::Relaxed);
    }

    /// The number of positions that were replaced by newer ones, and of those that were dropped.
    pub(crate) fn lost(&self, live: &Live) -> (u64, u64) {
        let (coalesced, dropped) = live.lost();
        let load = |n: &AtomicU64| n.load(Ordering::Relaxed);
        (
            coalesced + load(&self.coalesced),
            dropped + load(&self.dropped),
        )
    }
}

/// Registers a listener of a fleet.
pub(crate) fn listen(app: &Arc<App>, fleet: Fleet, wanted: Wanted) -> Place {
    let listener = Arc::new(Listener::new(wanted, app.tracks.live().listen(fleet)));
    let added = Arc::clone(&listener);
    app.positions.change(fleet, |all| all.push(added));
    Place {
        app: Arc::clone(app),
        fleet,
        listener,
    }
}

/// Gives out positions until the server stops.
pub(crate) async fn pump(app: Arc<App>) {
    let mut stopping = app.stopping();
    loop {
        tokio::select! {
            () = app.tracks.live().changed() => {}
            () = stopping.wait() => return,
        }
        for (fleet, all) in app.positions.take(app.tracks.live()) {
            for listener in app.positions.of(fleet) {
                for some in all.chunks(TURN) {
                    app.positions.give(fleet, &listener, some);
                    tokio::task::yield_now().await;
                }
            }
        }
        app.positions.given();
        tokio::time::sleep(PACE).await;
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use super::*;
    use crate::geo::cell::Cell;
    use crate::geo::position::at;
    use crate::geo::shape::Rectangle;
    use crate::model::time::Time;

    fn moved(entity: u64, from: Option<f64>, to: f64, tags: u32) -> Arc<Moved> {
        Arc::new(Moved {
            fleet: Fleet(1),
            entity: Entity(entity),
            name: Name::new(&format!("e{entity}")).unwrap(),
            time: Time(0),
            position: at(50.0, to),
            speed: None,
            course: None,
            tags,
            before: from.map(|lon| Cell::of(at(50.0, lon))),
        })
    }

    /// A listener to the area between 10 and 11 degrees east.
    fn listener(live: &Arc<Live>, tags: u32) -> Listener {
        let area = Rectangle::of_degrees(10.0, 49.0, 11.0, 51.0).unwrap();
        let wanted = Wanted {
            area: Some(Box::new(area)),
            tags,
        };
        Listener::new(wanted, live.listen(Fleet(1)))
    }

    fn said(listener: &Listener) -> Vec<String> {
        let said = |told: Told| match told {
            Told::Here(m) => format!("{} {}", m.name, m.position.degrees().1),
            Told::Gone(name) => format!("{name} gone"),
        };
        listener.take(100).into_iter().map(said).collect()
    }

    #[test]
    fn who_leaves_is_told_of_once() {
        let live = Arc::default();
        let listener = listener(&live, 0);
        let look = |all: &[Arc<Moved>]| {
            listener.look(all);
            said(&listener)
        };
        assert_eq!(look(&[moved(1, None, 10.5, 0)]), ["e1 10.5"]);
        assert_eq!(look(&[moved(1, Some(10.5), 12.0, 0)]), ["e1 gone"]);
        assert_eq!(look(&[moved(1, Some(12.0), 13.0, 0)]), [""; 0]);
        // An entity that was there before the listener came.
        assert_eq!(look(&[moved(2, Some(10.2), 9.0, 0)]), ["e2 gone"]);
        assert_eq!(look(&[moved(2, Some(9.0), 9.1, 0)]), [""; 0]);
        assert_eq!(look(&[moved(3, Some(9.0), 9.1, 0)]), [""; 0]);
        // It enters and leaves before the listener takes anything.
        let both = [moved(4, Some(9.0), 10.1, 0), moved(4, Some(10.1), 9.0, 0)];
        assert_eq!(look(&both), ["e4 gone"]);
    }

    #[test]
    fn who_loses_its_tag_is_gone() {
        let live = Arc::default();
        let listener = listener(&live, 2);
        listener.look(&[moved(1, None, 10.5, 1), moved(2, None, 10.5, 3)]);
        assert_eq!(said(&listener), ["e2 10.5"]);
        listener.look(&[moved(2, Some(10.5), 10.5, 1)]);
        assert_eq!(said(&listener), ["e2 gone"]);
    }

    /// Positions that wait for a slow listener are not sent after the answer to the erasure of their entity.
    #[test]
    fn what_was_erased_is_not_told_wherever_it_waits() {
        let (live, positions) = (Arc::<Live>::default(), Positions::default());
        let listener = Arc::new(listener(&live, 0));
        let added = Arc::clone(&listener);
        positions.change(Fleet(1), |all| all.push(added));
        let publish = |entity| live.publish(vec![Moved::clone(&moved(entity, None, 10.5, 0))]);
        let forget = |name: &str| positions.forget(&live, Fleet(1), &Name::new(name).unwrap());
        let give = || {
            for (fleet, all) in positions.take(&live) {
                positions.give(fleet, &listener, &all);
            }
            positions.given();
        };
        // In the queue of the listener.
        [1, 2].into_iter().for_each(publish);
        give();
        forget("e1");
        assert_eq!(said(&listener), ["e2 10.5"]);
        // Pending.
        [1, 2].into_iter().for_each(publish);
        forget("e1");
        give();
        assert_eq!(said(&listener), ["e2 10.5"]);
        // With the pump.
        [1, 2].into_iter().for_each(publish);
        let taken = positions.take(&live);
        forget("e1");
        for (fleet, all) in taken {
            positions.give(fleet, &listener, &all);
        }
        positions.given();
        assert_eq!(said(&listener), ["e2 10.5"]);
        // The entity reports anew.
        publish(1);
        give();
        assert_eq!(said(&listener), ["e1 10.5"]);
    }

    /// A listener that was given a position of an entity is told when the entity is erased.
    #[test]
    fn who_was_given_a_place_of_what_was_erased_is_told_that_it_is_gone() {
        let (live, positions) = (Arc::<Live>::default(), Positions::default());
        let listener = Arc::new(listener(&live, 0));
        let added = Arc::clone(&listener);
        positions.change(Fleet(1), |all| all.push(added));
        let forget = |name: &str| positions.forget(&live, Fleet(1), &Name::new(name).unwrap());
        // The number is by the name, except one.
        let number = |name: &str| match name {
            "e4" => 4,
            name => Name::new(name).unwrap().number(0).0,
        };
        let go = |name: &str, to| {
            let name = Name::new(name).unwrap();
            let moved = Moved {
                name: name.clone(),
                ..Moved::clone(&moved(number(name.as_str()), None, to, 0))
            };
            listener.look(&[Arc::new(moved)]);
        };
        let all = ["e1", "e2", "e3", "e4", "e5"];
        all[..4].iter().for_each(|name| go(name, 10.5));
        assert_eq!(said(&listener).len(), 4);
        // The entities: a `gone` waits; one moved in the area; one stood still; one has left, under another number;
        // one came and left.
        go("e1", 12.0);
        go("e2", 10.6);
        go("e4", 12.0);
        go("e5", 10.6);
        go("e5", 12.0);
        all.into_iter().for_each(forget);
        assert_eq!(
            said(&listener),
            ["e1 gone", "e2 gone", "e4 gone", "e5 gone", "e3 gone"]
        );
        // Only once.
        all.into_iter().for_each(forget);
        assert_eq!(said(&listener), [""; 0]);
        // The entity is made and erased again before the message is taken: there is still one `gone`.
        go("e1", 10.5);
        assert_eq!(said(&listener), ["e1 10.5"]);
        forget("e1");
        go("e1", 10.7);
        forget("e1");
        assert_eq!(said(&listener), ["e1 gone"]);
        go("e1", 10.8);
        assert_eq!(said(&listener), ["e1 10.8"]);
    }

    #[test]
    fn a_slow_listener_gets_the_newest_of_each_within_bounds() {
        let live = Arc::default();
        let listener = listener(&live, 0);
        let lon = |n: u64| 10.0 + n as f64 / 1000.0;
        for n in 0..100 {
            listener.look(&[moved(1, None, lon(n), 0), moved(2, None, lon(n), 0)]);
        }
        assert_eq!(said(&listener), ["e1 10.099", "e2 10.099"]);
        let many: Vec<_> = (0..20_000).map(|n| moved(n, None, 10.5, 0)).collect();
        assert_eq!(listener.look(&many), (0, 20_000 - WAITING_MAX as u64));
        assert_eq!(listener.look(&many[..10]), (10, 0));
        assert_eq!(listener.take(usize::MAX).len(), WAITING_MAX);
        for part in 0..10 {
            let some: Vec<_> = (0..10_000)
                .map(|n| moved(part * 10_000 + n, None, 10.5, 0))
                .collect();
            listener.look(&some);
            listener.take(usize::MAX);
        }
        let seen = listener.inner.lock().unwrap().seen.len();
        assert!(seen <= SEEN_MAX, "{seen}");
    }

    /// An erased entity that was given but is no longer remembered is reported as gone.
    #[test]
    fn what_is_not_remembered_is_gone_when_it_is_erased() {
        let live = Arc::default();
        let listener = listener(&live, 0);
        let name = |n: u64| Name::new(&format!("e{n}")).unwrap();
        listener.forget(&name(1));
        assert_eq!(said(&listener), [""; 0]);
        let mut met = 0;
        while met <= SEEN_MAX as u64 {
            let some: Vec<_> = (met..met + 5000).map(|n| moved(n, None, 10.5, 0)).collect();
            met += 5000;
            listener.look(&some);
            listener.take(usize::MAX);
        }
        listener.forget(&name(1));
        assert_eq!(said(&listener), ["e1 gone"]);
        // It was given before, and waits to be given again.
        let mut anew = Arc::into_inner(moved(2, None, 10.5, 0)).unwrap();
        anew.entity = name(2).number(0);
        listener.look(&[Arc::new(anew)]);
        listener.forget(&name(2));
        assert_eq!(said(&listener), ["e2 gone"]);
    }

    /// An entity that loses a tag and is no longer remembered is reported as gone, although cells tell nothing about
    /// tags.
    #[test]
    fn who_loses_a_tag_and_is_not_remembered_is_gone() {
        let live = Arc::default();
        let wanted = Wanted {
            area: None,
            tags: 1,
        };
        let listener = Listener::new(wanted, Arc::<Live>::clone(&live).listen(Fleet(1)));
        listener.look(&[moved(0, None, 10.5, 0)]);
        assert_eq!(said(&listener), [""; 0]);
        let mut met = 1;
        while met <= SEEN_MAX as u64 + 1 {
            let some: Vec<_> = (met..met + 5000).map(|n| moved(n, None, 10.5, 1)).collect();
            met += 5000;
            listener.look(&some);
            listener.take(usize::MAX);
        }
        listener.look(&[moved(1, Some(10.5), 10.5, 0)]);
        assert_eq!(said(&listener), ["e1 gone"]);
        listener.look(&[moved(1, Some(10.5), 10.6, 0)]);
        assert_eq!(said(&listener), [""; 0]);
        // Few messages are about entities that were never given, and they displace no positions.
        let strangers = (1_000_000..1_040_000).map(|n| moved(n, None, 10.5, 0));
        let strangers: Vec<_> = strangers.collect();
        listener.look(&strangers);
        assert!(listener.take(usize::MAX).len() < 2000);
        listener.inner.lock().unwrap().forgotten.0.fill(u64::MAX);
        let strangers = (2_000_000..2_040_000).map(|n| moved(n, None, 10.5, 0));
        let strangers: Vec<_> = strangers.collect();
        listener.look(&strangers);
        assert_eq!(listener.look(&[moved(9_000_000, None, 10.5, 1)]), (0, 0));
        assert_eq!(listener.take(usize::MAX).len(), WAITING_MAX / 2 + 1);
    }
}
