//! A shard's cache of its entities: the rows in `entities` and `latest`, bounded.
//!
//! There are two maps; new entries go to the younger one. When it is full, it becomes the older
//! one, and the entries of the former older map that were not used since are dropped. So nothing is
//! moved on each use, and what is used stays. Up to the size of one map, all entities stay even if
//! they report in turn; a least-recently-used list that is too short would drop each one just
//! before it is needed again.

use std::hint::black_box;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use io::HugeAlloc;

use crate::fence::State;
use crate::geo::cell::Cell;
use crate::geo::position::Position;
use crate::model::key::{Entity, Fleet, VisitKey};
use crate::model::name::Name;
use crate::model::time::{Bucket, Time};

/// An entity's newest point, without its content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Newest {
    pub(super) time: Time,
    /// As a number it takes half the space of a [`Cell`]: there are millions.
    cell: u64,
}

impl Newest {
    pub(super) fn new(time: Time, cell: Cell) -> Self {
        Self {
            time,
            cell: cell.range().0,
        }
    }

    pub(super) fn cell(self) -> Cell {
        Cell::of_number(self.cell)
    }
}

/// The cached state of an entity.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) name: Name,
    /// Whether its row in `entities` is written, or in the batch.
    pub(super) is_named: bool,
    /// `None` if it has no points.
    pub(super) newest: Option<Newest>,
    /// The last visit that was written; `None` if it is not known.
    visit: Option<(Bucket, u32)>,
    /// Its state at the fences of its fleet. `None` if it is not known, or if there are no fences.
    pub(super) fenced: Option<Box<Fenced>>,
}

/// The state of an entity at fences.
#[derive(Clone, Debug)]
pub(super) struct Fenced {
    pub(super) state: State,
    /// Its newest report: time, position, tags. `None` if it has none.
    pub(super) last: Option<(Time, Position, u32)>,
}

impl Known {
    pub(super) fn new(name: Name, is_named: bool, newest: Option<Newest>) -> Self {
        Self {
            name,
            is_named,
            newest,
            visit: None,
            fenced: None,
        }
    }

    /// The last visit that was written, if it is known.
    pub(super) fn visit(&self) -> Option<(Bucket, Cell)> {
        let (bucket, cell) = self.visit?;
        Some((bucket, Cell::of_coarse(cell, VisitKey::DEPTH)?))
    }

    pub(super) fn visited(&mut self, (bucket, cell): (Bucket, Cell)) {
        self.visit = Some((bucket, cell.coarse()));
    }
}

/// Clients choose names and so can choose their numbers, but they do not know the seed of this
/// hash.
type Map = HashMap<(Fleet, Entity), Known, RandomState, HugeAlloc>;

fn empty() -> Map {
    Map::with_hasher_in(RandomState::default(), HugeAlloc)
}

/// The cache; see the module.
pub(super) struct Hot {
    young: Map,
    old: Map,
    /// The most entries of one map.
    most: usize,
    /// Whether the last entity that was not in the cache was new.
    pub(super) were_new: bool,
}

impl Hot {
    /// A cache that keeps at least the last `most` entities that were used, and at most twice as
    /// many.
    pub(super) fn new(most: usize) -> Self {
        Self {
            young: empty(),
            old: empty(),
            most: most.max(1),
            were_new: true,
        }
    }

    /// Looks entries up only to bring them into the processor's caches before they are needed. Here
    /// the look-ups are independent of each other, so that the processor loads several at once.
    pub(super) fn warm(&self, keys: impl Iterator<Item = (Fleet, Entity)>) {
        let known = keys.filter_map(|key| self.young.get(&key).or_else(|| self.old.get(&key)));
        black_box(known.fold(0, |sum, known| sum ^ known.name.as_str().len()));
    }

    pub(super) fn get(&mut self, key: (Fleet, Entity)) -> Option<&mut Known> {
        if !self.young.contains_key(&key) {
            let known = self.old.remove(&key)?;
            self.insert(key, known);
        }
        self.young.get_mut(&key)
    }

    pub(super) fn insert(&mut self, key: (Fleet, Entity), known: Known) {
        if self.young.len() >= self.most {
            self.old = std::mem::replace(&mut self.young, empty());
        }
        self.old.remove(&key);
        self.young.insert(key, known);
    }

    pub(super) fn forget(&mut self, key: (Fleet, Entity)) {
        self.young.remove(&key);
        self.old.remove(&key);
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_used_stays_and_the_rest_is_bounded() {
        let mut hot = Hot::new(100);
        let known = |n: u64| Known::new(Name::new(&format!("e{n}")).unwrap(), true, None);
        let key = |n| (Fleet(1), Entity(n));
        hot.insert(key(0), known(0));
        for n in 1..1000 {
            hot.insert(key(n), known(n));
            assert_eq!(hot.get(key(0)).unwrap().name.as_str(), "e0");
            assert!(hot.len() <= 200, "{}", hot.len());
        }
        assert!(hot.get(key(1)).is_none());
        assert!((900..1000).all(|n| hot.get(key(n)).is_some()));
        assert!(hot.get((Fleet(2), Entity(0))).is_none());
        hot.forget(key(0));
        hot.forget(key(998));
        assert!(hot.get(key(0)).is_none() && hot.get(key(998)).is_none());
    }
}
