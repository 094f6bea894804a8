//! Entities that were in an area during a time, by their reported points, not by the line between
//! them.

use std::ops::ControlFlow;

use base::{Error, ErrorKind, Result};

use super::entity::name_of;
use super::patience::Patience;
use super::track::points;
use crate::geo::cell::{Cell, DEPTH_MAX};
use crate::geo::cover::{RANGES_MAX, Range, cover};
use crate::geo::shape::Shape;
use crate::model::key::{Entity, Fleet, VisitKey, behind};
use crate::model::name::Name;
use crate::model::time::{BUCKET, Bucket, Time};
use crate::store::{Family, Rows, View};

/// The most visits that one query may look at.
const VISITS_MAX: usize = 1_000_000;

/// An entity that was in the area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The number of the entity.
    pub entity: Entity,
    /// The name of the entity.
    pub name: Name,
    /// Its first point in the area.
    pub first: Time,
    /// Its last point in the area.
    pub last: Time,
    /// The number of its points in the area.
    pub points: u64,
}

/// A page of visits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visitors {
    /// In the order of their numbers.
    pub visits: Vec<Visit>,
    /// The entity after which the next page begins. `None` if there are no more.
    pub next: Option<Entity>,
}

/// The entities of a fleet that have a point in an area between two times, both included: at most
/// `limit`, with numbers greater than `after`. Points that were stored while no visits were written
/// are not found.
///
/// Errors: `InvalidArgument` if more than a million visits would have to be read; the store's;
/// Corruption; `TimedOut`.
pub fn visitors(
    view: &dyn View,
    fleet: Fleet,
    (shape, from, to): (&dyn Shape, Time, Time),
    (limit, after): (usize, Option<Entity>),
    patience: &Patience,
) -> Result<Visitors> {
    let mut candidates = Candidates::behind(after);
    if from <= to {
        let ranges = coarse(&cover(shape, RANGES_MAX));
        candidates.find(view, fleet, (from.bucket(), to.bucket()), &ranges, patience)?;
    }
    candidates.sort()?;
    let mut out = Visitors::default();
    for buckets in candidates.all.chunk_by(|a, b| a.0 == b.0) {
        let Some(&(entity, _)) = buckets.first() else {
            continue;
        };
        let mut visit: Option<(Time, Time, u64)> = None;
        for (_, bucket) in buckets {
            // Each bucket is a separate seek, and may have no points.
            patience.row()?;
            let end = Time(bucket.start().0.saturating_add(BUCKET - 1));
            let times = (bucket.start().max(from), end.min(to));
            points(view, (fleet, entity), times, patience, &mut |at| {
                if shape.has(at.point.position) {
                    let (first, _, count) = visit.unwrap_or((at.time, at.time, 0));
                    visit = Some((first, at.time, count + 1));
                }
                ControlFlow::Continue(())
            })?;
        }
        let Some((first, last, points)) = visit else {
            continue;
        };
        if out.visits.len() >= limit {
            out.next = out.visits.last().map(|visit| visit.entity);
            break;
        }
        // An entity that is being erased has no name any more.
        if let Some(name) = name_of(view, fleet, entity)? {
            out.visits.push(Visit {
                entity,
                name,
                first,
                last,
                points,
            });
        }
    }
    Ok(out)
}

/// Ranges of the cells of visits that contain those of a cover.
fn coarse(ranges: &[Range]) -> Vec<(u32, u32)> {
    let by = DEPTH_MAX - VisitKey::DEPTH;
    let mut out: Vec<(u32, u32)> = Vec::new();
    for range in ranges {
        let (first, last) = ((range.first >> by) as u32, (range.last >> by) as u32);
        match out.last_mut() {
            Some(before) if first <= before.1.saturating_add(1) => before.1 = before.1.max(last),
            _ => out.push((first, last)),
        }
    }
    out
}

/// Entities and buckets that may match: 16 bytes each, and at most two for each visit that may be
/// read.
#[derive(Debug)]
struct Candidates {
    after: Option<Entity>,
    all: Vec<(Entity, Bucket)>,
}

impl Candidates {
    fn behind(after: Option<Entity>) -> Self {
        Self {
            after,
            all: Vec::new(),
        }
    }

    fn find(
        &mut self,
        view: &dyn View,
        fleet: Fleet,
        (first, last): (Bucket, Bucket),
        ranges: &[(u32, u32)],
        patience: &Patience,
    ) -> Result<()> {
        let prefix = fleet.prefix();
        let mut rows = view.rows(Family::Visits, &prefix, behind(&prefix).as_deref())?;
        let mut bucket = first;
        while bucket <= last {
            patience.row()?;
            // If the bucket is empty, the seek finds the next one that is not.
            rows.seek(&start(fleet, bucket, 0));
            let Some((key, _)) = rows.row() else {
                return rows.status();
            };
            let found = VisitKey::of_bytes(key)?.bucket;
            if found > bucket {
                bucket = found;
                continue;
            }
            self.of_bucket(&mut *rows, (fleet, bucket), ranges, patience)?;
            let Some(next) = bucket.0.checked_add(1) else {
                return Ok(());
            };
            bucket = Bucket(next);
        }
        Ok(())
    }

    fn of_bucket(
        &mut self,
        rows: &mut dyn Rows,
        (fleet, bucket): (Fleet, Bucket),
        ranges: &[(u32, u32)],
        patience: &Patience,
    ) -> Result<()> {
        for &(first, last) in ranges {
            rows.seek(&start(fleet, bucket, first));
            while let Some((key, _)) = rows.row() {
                let key = VisitKey::of_bytes(key)?;
                if key.bucket != bucket || key.cell.coarse() > last {
                    break;
                }
                self.add(key.entity, bucket)?;
                rows.next();
                patience.row()?;
            }
            rows.status()?;
        }
        Ok(())
    }

    fn add(&mut self, entity: Entity, bucket: Bucket) -> Result<()> {
        if self.after.is_some_and(|after| entity <= after) {
            return Ok(());
        }
        self.all.push((entity, bucket));
        if self.all.len() < 2 * VISITS_MAX {
            return Ok(());
        }
        self.sort()
    }

    /// Sorts by number, without duplicates. Errors: there are too many.
    fn sort(&mut self) -> Result<()> {
        self.all.sort_unstable();
        self.all.dedup();
        if self.all.len() <= VISITS_MAX {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::InvalidArgument,
            format!("more than {VISITS_MAX} visits may have been in the area in that time"),
        )
        .hint("ask for a smaller area or a shorter time"))
    }
}

fn start(fleet: Fleet, bucket: Bucket, cell: u32) -> [u8; VisitKey::LEN] {
    VisitKey {
        fleet,
        bucket,
        cell: Cell::of_coarse(cell, VisitKey::DEPTH).unwrap_or(Cell::EARTH),
        entity: Entity(0),
    }
    .to_bytes()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base::clock::SystemClock;

    use super::*;
    use crate::geo::position::at;
    use crate::geo::shape::Circle;
    use crate::model::time::SECOND;
    use crate::store::{Batch, Engine, Store as _};

    /// Each bucket of a candidate is a seek and counts for the query's patience, also if it has no
    /// points.
    #[test]
    fn each_bucket_of_a_candidate_takes_patience() {
        let dir = tempfile::tempdir().unwrap();
        let store = Engine::open(dir.path()).unwrap();
        let here = at(59.0, 18.0);
        let mut batch = Batch::new(&store);
        for bucket in 0..600 {
            let key = VisitKey {
                fleet: Fleet(1),
                bucket: Bucket(bucket),
                cell: Cell::of(here).at_depth(VisitKey::DEPTH),
                entity: Entity(1),
            };
            batch.put(Family::Visits, &key.to_bytes(), &[]).unwrap();
        }
        batch.write(None).unwrap();
        let area = Circle::new(here, 100.0).unwrap();
        let of = (&area as &dyn Shape, Time(0), Time(600 * 600 * SECOND));
        let view = store.view();
        let rows = |after| {
            let patience = Patience::new(SystemClock::shared(), Duration::from_secs(60));
            let found = visitors(&*view, Fleet(1), of, (10, after), &patience).unwrap();
            assert_eq!(found, Visitors::default());
            patience.rows()
        };
        // Candidates up to the cursor are not kept.
        let (all, behind) = (rows(None), rows(Some(Entity(1))));
        assert_eq!(all, behind + 600);
    }
}
