//! What a shard knows of its entities: a bounded cache of the rows in `entities` and `latest`.
//!
//! Two maps, of which the younger is filled. When it is full, it becomes the older one, and what that one had and nobody
//! asked for meanwhile is forgotten: nothing is moved for each use, and what is used stays. All that fits one map stays, even
//! where entities report in turn, which a list by last use would forget one by one just before they come again.

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

/// An entity's newest point, in short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Newest {
    pub(super) time: Time,
    /// A number takes half of a cell's place: there are millions.
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

/// What is known of an entity.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) name: Name,
    /// Its row in `entities` is written, or in the batch.
    pub(super) is_named: bool,
    /// `None`: it has no points.
    pub(super) newest: Option<Newest>,
    /// The last visit that was written; `None`: not known.
    visit: Option<(Bucket, u32)>,
    /// At the fences of its fleet. `None`: not known, or there are none.
    pub(super) fenced: Option<Box<Fenced>>,
}

/// An entity at fences.
#[derive(Clone, Debug)]
pub(super) struct Fenced {
    pub(super) state: State,
    /// Its newest report: time, position, tags. `None`: it has none.
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

    /// The last visit that was written, as far as that is known.
    pub(super) fn visit(&self) -> Option<(Bucket, Cell)> {
        let (bucket, cell) = self.visit?;
        Some((bucket, Cell::of_coarse(cell, VisitKey::DEPTH)?))
    }

    pub(super) fn visited(&mut self, (bucket, cell): (Bucket, Cell)) {
        self.visit = Some((bucket, cell.coarse()));
    }
}

/// Who sends names can choose their numbers, but does not know the seed of this hash.
type Map = HashMap<(Fleet, Entity), Known, RandomState, HugeAlloc>;

fn empty() -> Map {
    Map::with_hasher_in(RandomState::default(), HugeAlloc)
}

/// See the module.
pub(super) struct Hot {
    young: Map,
    old: Map,
    /// Of one map.
    most: usize,
}

impl Hot {
    /// For so many entities at least, and twice as many at most: as many as were got or inserted last stay.
    pub(super) fn new(most: usize) -> Self {
        Self {
            young: empty(),
            old: empty(),
            most: most.max(1),
        }
    }

    /// Looks these up for nothing, so that they are in the processor's caches when they are asked for. Here no look-up waits for
    /// the one before, and the processor asks memory for several at once.
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
