//! Dropping points of the past. The shard of the entity does it, so that no point is dropped that
//! was replaced meanwhile.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use super::visits;
use crate::geo::cell::Cell;
use crate::model::key::{Entity, Fleet, PointKey, VisitKey};
use crate::model::point::Point;
use crate::model::time::{Bucket, Time};
use crate::read::{PointRow, point_rows};
use crate::store::{Batch, Family, Store, View};

/// Points of one entity to drop, unless they have changed. If it is dropped, the caller learns that
/// it was not done.
#[derive(Debug)]
pub(super) struct Thin {
    /// None of them is its entity's newest.
    pub(super) points: Vec<(PointKey, Vec<u8>)>,
    /// Receives the number of dropped points.
    pub(super) answer: oneshot::Sender<Result<u64>>,
}

impl Thin {
    /// Drops the points, and answers once that is visible. If the write is lost, thinning does it
    /// again.
    pub(super) fn run(self, store: &Arc<dyn Store>) {
        let done = drop_points(&**store, &self.points);
        // The caller may have gone.
        drop(self.answer.send(done));
    }
}

fn drop_points(store: &dyn Store, points: &[(PointKey, Vec<u8>)]) -> Result<u64> {
    let mut gone: BTreeMap<VisitsOf, Gone> = BTreeMap::new();
    for (key, value) in points {
        if store.get(Family::Default, &key.to_bytes())?.as_ref() != Some(value) {
            continue;
        }
        let (key, value) = (*key, value.as_slice());
        let point = PointRow { key, value }.point()?;
        let of = gone.entry((key.fleet, key.entity, key.time.bucket()));
        let of = of.or_default();
        of.times.insert(key.time);
        of.cells.insert(visit_cell(&point), key.time);
    }
    if gone.is_empty() {
        return Ok(0);
    }
    let view = store.view();
    let mut batch = Batch::new(store);
    let mut count = 0;
    for (of, gone) in gone {
        count += gone.delete(&*view, of, &mut batch)?;
    }
    batch.write(None)?;
    Ok(count)
}

/// The most points of a bucket that are read to find those that stay in the cells of dropped
/// points: the shard takes no reports meanwhile.
const LOOK_MAX: usize = 10_000;

type VisitsOf = (Fleet, Entity, Bucket);

/// The points of a bucket that are dropped.
#[derive(Default)]
struct Gone {
    times: BTreeSet<Time>,
    /// Their cells, with the last dropped point in each.
    cells: BTreeMap<Cell, Time>,
}

/// The cells of dropped points in which no point that stays was found.
enum Left {
    /// The whole bucket was read: no point stays in these cells.
    None(Vec<Cell>),
    /// Not the whole bucket was read: perhaps no point stays in these cells.
    Unknown(Vec<Cell>),
    /// A point that stays cannot be read: it may be in any of these cells, or in none.
    Anywhere(Vec<Cell>),
}

impl Gone {
    /// Deletes the points, and the visits of cells in which no point stays, because an erasure
    /// finds visits only by points. If too many points would have to be read to know that, one
    /// point stays in the cell. Returns the number of deleted points.
    fn delete(
        mut self,
        view: &dyn View,
        (fleet, entity, bucket): VisitsOf,
        batch: &mut Batch<'_>,
    ) -> Result<u64> {
        let visit = |cell| VisitKey {
            fleet,
            bucket,
            cell,
            entity,
        };
        match self.left(view, (fleet, entity, bucket))? {
            Left::None(cells) => {
                for cell in cells {
                    batch.delete(Family::Visits, &visit(cell).to_bytes())?;
                }
            }
            Left::Unknown(cells) => {
                for cell in cells {
                    if let Some(time) = self.cells.get(&cell) {
                        self.times.remove(time);
                    }
                }
            }
            Left::Anywhere(cells) => {
                for cell in cells {
                    visits::note(batch, &visit(cell))?;
                }
            }
        }
        for time in &self.times {
            let time = *time;
            let key = PointKey {
                fleet,
                entity,
                time,
            };
            batch.delete(Family::Default, &key.to_bytes())?;
        }
        Ok(self.times.len() as u64)
    }

    /// Looks for points that stay. It begins after the dropped points, where there is usually one
    /// soon, while before them there may be many tombstones of points that were dropped earlier.
    fn left(&self, view: &dyn View, (fleet, entity, bucket): VisitsOf) -> Result<Left> {
        let mut cells: BTreeSet<Cell> = self.cells.keys().copied().collect();
        let last = self.times.last().copied().unwrap_or(bucket.start());
        let mut count = 0;
        let mut is_known = true;
        for times in [last..bucket.end(), bucket.start()..last] {
            if cells.is_empty() || count == LOOK_MAX || !is_known {
                break;
            }
            point_rows(view, (fleet, entity), times, &mut |row| {
                if count == LOOK_MAX {
                    return Ok(ControlFlow::Break(()));
                }
                count += 1;
                if self.times.contains(&row.key.time) {
                    return Ok(ControlFlow::Continue(()));
                }
                let Ok(point) = row.point() else {
                    is_known = false;
                    return Ok(ControlFlow::Break(()));
                };
                cells.remove(&visit_cell(&point));
                Ok(if cells.is_empty() {
                    ControlFlow::Break(())
                } else {
                    ControlFlow::Continue(())
                })
            })?;
        }
        let cells: Vec<Cell> = cells.into_iter().collect();
        Ok(if !is_known {
            Left::Anywhere(cells)
        } else if count == LOOK_MAX {
            Left::Unknown(cells)
        } else {
            Left::None(cells)
        })
    }
}

fn visit_cell(point: &Point) -> Cell {
    Cell::of(point.position).at_depth(VisitKey::DEPTH)
}

/// The error if the shard has ended.
pub(super) fn gone() -> Error {
    Error::new(
        ErrorKind::ShutdownInProgress,
        "the service stopped before points were dropped",
    )
    .hint("housekeeping does it again")
}

#[cfg(test)]
mod tests {
    use base::sync::atomic::{AtomicU64, Ordering};

    use super::*;
    use crate::geo::position::at;
    use crate::store::Engine;
    use crate::store::faulty::{Act, Faulty};

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
        // Three points in one cell, of which one is reported anew, and one in another cell.
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
    /// A full bucket is not read as a whole for each thousand points.
    #[test]
    fn a_bucket_that_is_full_is_read_in_parts() {
        let dir = tempfile::tempdir().unwrap();
        let rows = Arc::new(AtomicU64::new(0));
        let its = Arc::clone(&rows);
        let store = Faulty::new(Engine::open(dir.path()).unwrap(), move |act| {
            if matches!(act, Act::Row(Family::Default, _)) {
                its.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        let (store, reads) = (&*store, || rows.load(Ordering::Relaxed));
        let key = |time| PointKey {
            fleet: Fleet(1),
            entity: Entity(2),
            time: Time(time),
        };
        // Ten points in each cell, and later one more. All but the last point are to be dropped.
        let count: i64 = 60_000;
        let value = |time: i64| {
            let lon = (time / 10 % 1500) as f64 / 10.0;
            Point::at(at(59.0, lon)).encode().unwrap()
        };
        for part in (0..count).collect::<Vec<i64>>().chunks(1000) {
            let mut batch = Batch::new(store);
            for time in part {
                let (key, value) = (key(*time), value(*time));
                let cell = visit_cell(&Point::decode(&value).unwrap());
                let bytes = key.to_bytes();
                batch.put(Family::Default, &bytes, &value).unwrap();
                let visit = VisitKey {
                    fleet: key.fleet,
                    bucket: key.time.bucket(),
                    cell,
                    entity: key.entity,
                };
                batch.put(Family::Visits, &visit.to_bytes(), &[]).unwrap();
            }
            batch.write(None).unwrap();
        }
        let mut dropped = 0;
        for part in (0..count).collect::<Vec<i64>>().chunks(1000) {
            let old = part.iter().map(|time| (key(*time), value(*time)));
            let old: Vec<_> = old.filter(|(key, _)| key.time.0 + 1 < count).collect();
            let before = reads();
            dropped += drop_points(store, &old).unwrap();
            let read = reads() - before;
            assert!(read <= LOOK_MAX as u64 + 2, "{read}");
        }
        let view = store.view();
        let mut places = BTreeSet::new();
        let mut left = 0;
        point_rows(&*view, (Fleet(1), Entity(2)), .., &mut |row| {
            places.insert(visit_cell(&row.point()?));
            left += 1;
            Ok(ControlFlow::Continue(()))
        })
        .unwrap();
        assert_eq!(left + dropped, count as u64);
        // Each call leaves at most one point in each cell.
        assert!(left <= 60 * 100 + 1, "{left}");
        let mut visits = BTreeSet::new();
        let mut rows = view.rows(Family::Visits, &[], None).unwrap();
        rows.seek(&[]);
        while let Some((key, _)) = rows.row() {
            visits.insert(VisitKey::of_bytes(key).unwrap().cell);
            rows.next();
        }
        assert!(visits == places);
    }
}
