//! The visits of points that others replace: each goes with the last point of its cell and bucket, as an erasure finds visits by the
//! points that are there.
//!
//! A bucket is read once for a round, however many of its points are replaced.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::ControlFlow;

use base::Result;

use crate::geo::cell::Cell;
use crate::model::key::{Entity, Fleet, PointKey, VisitKey};
use crate::model::point::Point;
use crate::model::time::{Bucket, Time};
use crate::read::point_rows;
use crate::store::Store;

/// The cell of a point's visit.
pub(super) fn cell_of(point: &Point) -> Cell {
    Cell::of(point.position).at_depth(VisitKey::DEPTH)
}

/// How many points each cell has. `None`: one of them cannot be read, and may be in any.
type Counts = Option<BTreeMap<Cell, u64>>;

/// The cells of an entity in a bucket, where points of that were replaced in this round.
#[derive(Default)]
pub(super) struct Replaced {
    all: BTreeMap<(Fleet, Entity, Bucket), Counts>,
}

impl Replaced {
    /// A point comes in the place of `old`, whose cell is another one, or where there was none. Returns whether the visit of `old`
    /// has no point any more. `points` are those of the round before it. Errors: the store's.
    pub(super) fn put(
        &mut self,
        (store, points): (&dyn Store, &[(PointKey, Vec<u8>)]),
        key: PointKey,
        (old, new): (Option<Cell>, Cell),
    ) -> Result<bool> {
        let is_replaced = old.is_some_and(|old| old != new);
        let cells = match self.all.entry((key.fleet, key.entity, key.time.bucket())) {
            Entry::Vacant(_) if !is_replaced => return Ok(false),
            Entry::Vacant(place) => place.insert(read(store, points, key)?),
            Entry::Occupied(place) => place.into_mut(),
        };
        let Some(cells) = cells else {
            return Ok(false);
        };
        *cells.entry(new).or_default() += 1;
        let Some(old) = old else {
            return Ok(false);
        };
        let left = cells.get(&old).map_or(0, |count| count.saturating_sub(1));
        if left > 0 {
            cells.insert(old, left);
        } else {
            cells.remove(&old);
        }
        Ok(left == 0)
    }
}

/// The cells of the bucket of a point: of the store, and of the round.
fn read(store: &dyn Store, points: &[(PointKey, Vec<u8>)], of: PointKey) -> Result<Counts> {
    let bucket = of.time.bucket();
    let is_of = |key: &PointKey| {
        (key.fleet, key.entity, key.time.bucket()) == (of.fleet, of.entity, bucket)
    };
    // The last of each moment is what will be there.
    let mut ours: BTreeMap<Time, Cell> = BTreeMap::new();
    for (key, bytes) in points.iter().filter(|(key, _)| is_of(key)) {
        ours.insert(key.time, cell_of(&Point::decode(bytes)?));
    }
    let mut cells: BTreeMap<Cell, u64> = BTreeMap::new();
    for cell in ours.values() {
        *cells.entry(*cell).or_default() += 1;
    }
    let mut is_known = true;
    let times = bucket.start()..bucket.end();
    let view = store.view();
    point_rows(&*view, (of.fleet, of.entity), times, &mut |row| {
        if ours.contains_key(&row.key.time) {
            return Ok(ControlFlow::Continue(()));
        }
        let Ok(point) = row.point() else {
            is_known = false;
            return Ok(ControlFlow::Break(()));
        };
        *cells.entry(cell_of(&point)).or_default() += 1;
        Ok(ControlFlow::Continue(()))
    })?;
    Ok(is_known.then_some(cells))
}
