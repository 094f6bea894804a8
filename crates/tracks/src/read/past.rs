//! Who was in an area in a time: by reported points, not by the line between them.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow};

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

/// The most visits that one question may look at.
const VISITS_MAX: usize = 1_000_000;

/// Who was there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    /// Its number.
    pub entity: Entity,
    /// Its name.
    pub name: Name,
    /// Its first point in the area.
    pub first: Time,
    /// Its last.
    pub last: Time,
    /// How many there are.
    pub points: u64,
}

/// A part of those who were there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Visitors {
    /// In the order of their numbers.
    pub visits: Vec<Visit>,
    /// Behind whom there are more. `None`: there are not.
    pub next: Option<Entity>,
}

/// The entities of a fleet that have a point in an area between two moments, both included: `limit` at most, those behind
/// `after`. Points that came while no visits were written are not found.
///
/// Errors: `InvalidArgument`, where more than a million visits would have to be looked at; the store's; Corruption; `TimedOut`.
pub fn visitors(
    view: &dyn View,
    fleet: Fleet,
    (shape, from, to): (&dyn Shape, Time, Time),
    (limit, after): (usize, Option<Entity>),
    patience: &Patience,
) -> Result<Visitors> {
    let mut candidates = Candidates::default();
    if from <= to {
        let ranges = coarse(&cover(shape, RANGES_MAX));
        candidates.find(view, fleet, (from.bucket(), to.bucket()), &ranges, patience)?;
    }
    let mut out = Visitors::default();
    let start = after.map_or(Bound::Unbounded, Bound::Excluded);
    for (&entity, buckets) in candidates.buckets.range((start, Bound::Unbounded)) {
        let mut visit: Option<(Time, Time, u64)> = None;
        for bucket in buckets {
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
        // One that is being erased has no name any more.
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

/// Ranges of the cells of visits that have those of a cover.
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

/// Who may have been there, and when.
#[derive(Debug, Default)]
struct Candidates {
    buckets: BTreeMap<Entity, Vec<Bucket>>,
    count: usize,
}

impl Candidates {
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
            // Where a bucket has nothing, the next that has something follows.
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
        let buckets = self.buckets.entry(entity).or_default();
        if buckets.last() != Some(&bucket) {
            buckets.push(bucket);
            self.count += 1;
        }
        if self.count <= VISITS_MAX {
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
