//! Dropping points of the past, by the shard of their entity: none goes that was reported anew since it was looked at.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use crate::geo::cell::Cell;
use crate::model::key::{Entity, Fleet, PointKey, VisitKey};
use crate::model::point::Point;
use crate::model::time::{Bucket, Time};
use crate::read::{PointRow, point_rows};
use crate::store::{Batch, Family, Store, View};

/// Points of one entity that a shard is to drop, as far as they are still these. Dropping it tells who waits that it is not done.
#[derive(Debug)]
pub(super) struct Thin {
    /// None of them is its entity's newest.
    pub(super) points: Vec<(PointKey, Vec<u8>)>,
    /// How many were dropped.
    pub(super) answer: oneshot::Sender<Result<u64>>,
}

impl Thin {
    /// Does it, and answers when it is visible: what is lost is done again.
    pub(super) fn run(self, store: &Arc<dyn Store>) {
        let done = drop_points(&**store, &self.points);
        // Nobody waits any more: that is their matter.
        drop(self.answer.send(done));
    }
}

fn drop_points(store: &dyn Store, points: &[(PointKey, Vec<u8>)]) -> Result<u64> {
    let mut batch = Batch::new(store);
    let mut gone: BTreeMap<VisitsOf, Gone> = BTreeMap::new();
    let mut count = 0;
    for (key, value) in points {
        let bytes = key.to_bytes();
        if store.get(Family::Default, &bytes)?.as_ref() != Some(value) {
            continue;
        }
        let (key, value) = (*key, value.as_slice());
        let point = PointRow { key, value }.point()?;
        let of = gone.entry((key.fleet, key.entity, key.time.bucket()));
        let of = of.or_default();
        of.times.insert(key.time);
        of.cells.insert(visit_cell(&point));
        batch.delete(Family::Default, &bytes)?;
        count += 1;
    }
    if count == 0 {
        return Ok(0);
    }
    let view = store.view();
    for (of, gone) in &gone {
        gone.delete_visits(&*view, *of, &mut batch)?;
    }
    batch.write(None)?;
    Ok(count)
}

type VisitsOf = (Fleet, Entity, Bucket);

/// What is dropped of a bucket.
#[derive(Default)]
struct Gone {
    times: BTreeSet<Time>,
    cells: BTreeSet<Cell>,
}

impl Gone {
    /// Deletes the visits of cells in which no point is left: an erasure finds those of points alone.
    fn delete_visits(
        &self,
        view: &dyn View,
        (fleet, entity, bucket): VisitsOf,
        batch: &mut Batch<'_>,
    ) -> Result<()> {
        let times = bucket.start()..bucket.end();
        let mut left = BTreeSet::new();
        let mut is_known = true;
        point_rows(view, (fleet, entity), times, &mut |row| {
            if !self.times.contains(&row.key.time) {
                let Ok(point) = row.point() else {
                    is_known = false;
                    return Ok(ControlFlow::Break(()));
                };
                left.insert(visit_cell(&point));
            }
            Ok(ControlFlow::Continue(()))
        })?;
        if !is_known {
            // One of those that are left may have been anywhere.
            return Ok(());
        }
        for cell in self.cells.difference(&left) {
            let visit = VisitKey {
                fleet,
                bucket,
                cell: *cell,
                entity,
            };
            batch.delete(Family::Visits, &visit.to_bytes())?;
        }
        Ok(())
    }
}

fn visit_cell(point: &Point) -> Cell {
    Cell::of(point.position).at_depth(VisitKey::DEPTH)
}

/// What waits for a shard.
pub(super) fn gone() -> Error {
    Error::new(
        ErrorKind::ShutdownInProgress,
        "the service stopped before points were dropped",
    )
    .hint("housekeeping does it again")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::position::at;
    use crate::store::Engine;

    #[test]
    fn what_was_reported_anew_stays_and_visits_go_with_their_last_point() {
        let dir = tempfile::tempdir().unwrap();
        let store = Engine::open(dir.path()).unwrap();
        let key = |time| PointKey {
            fleet: Fleet(1),
            entity: Entity(2),
            time: Time(time),
        };
        let value = |lat| Point::at(at(lat, 18.0)).encode().unwrap();
        // Three in one cell, of which one comes anew, and one in another.
        let all = [(0, 59.0), (1, 59.0), (2, 59.0), (3, 60.0)];
        let visit = |lat| {
            VisitKey {
                fleet: Fleet(1),
                bucket: Time(0).bucket(),
                cell: visit_cell(&Point::at(at(lat, 18.0))),
                entity: Entity(2),
            }
            .to_bytes()
        };
        let mut batch = Batch::new(&store);
        for (time, lat) in all {
            let key = key(time).to_bytes();
            batch.put(Family::Default, &key, &value(lat)).unwrap();
            batch.put(Family::Visits, &visit(lat), &[]).unwrap();
        }
        batch.write(None).unwrap();
        let visits = || {
            let there = |lat| store.get(Family::Visits, &visit(lat)).unwrap().is_some();
            (there(59.0), there(60.0))
        };
        let old = [
            (key(0), value(59.0)),
            (key(1), value(7.0)),
            (key(9), value(59.0)),
        ];
        assert_eq!(drop_points(&store, &old).unwrap(), 1);
        assert_eq!(drop_points(&store, &old).unwrap(), 0);
        let is_there = |time| {
            let found = store.get(Family::Default, &key(time).to_bytes());
            found.unwrap().is_some()
        };
        assert_eq!([0, 1, 2, 3].map(is_there), [false, true, true, true]);
        assert_eq!(visits(), (true, true));
        let rest = [(key(1), value(59.0)), (key(3), value(60.0))];
        assert_eq!(drop_points(&store, &rest).unwrap(), 2);
        assert_eq!(visits(), (true, false));
        assert_eq!(drop_points(&store, &[(key(2), value(59.0))]).unwrap(), 1);
        assert_eq!(visits(), (false, false));
    }
}
