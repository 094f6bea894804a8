//! Erasing entities: by their shards, so that it has its place among their reports.
//!
//! A large history is erased a part at a time, oldest first, each part one batch, so that a shard is never busy with it for
//! long; rows agree in between. The last part has the newest point, the row of the index, and the name; each says which tables are
//! to be merged. Parts end with a bucket of visits, so that each visit goes with the last of its points. Only a bucket of very many
//! points is cut, where a visit goes with the first of its points that a part has: what is left of it has none until it goes, too.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use base::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use super::purge::{self, Range};
use super::visits::take_notes;
use crate::geo::cell::Cell;
use crate::model::key::{CellKey, Entity, EntityKey, Fleet, VisitKey, behind};
use crate::model::name::Name;
use crate::model::newest::Newest;
use crate::model::time::{Bucket, Time};
use crate::read::{self, point_rows};
use crate::store::{Batch, Family, Store, View};

/// So many points are a part, and those of the bucket that is begun, up to [`PART_MAX`].
const PART: usize = 10_000;
/// No part has more: it is in memory, and one batch, and nobody else has a turn meanwhile.
const PART_MAX: usize = 20_000;

/// What is erased of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Erasure {
    /// All.
    All,
    /// All, where its newest point is older.
    Before(Time),
    /// Its row in the index, where its newest point is older.
    Silent(Time),
}

/// Whose.
#[derive(Clone, Debug)]
pub(super) enum Whose {
    Name(Name),
    Number(Entity),
}

/// What a part came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// There is no such entity, or it is not old enough.
    Nothing,
    /// There is more.
    Part,
    /// All is done, but for the events up to this one.
    All(Entity, u64),
}

/// A part of an erasure that a shard is to do. Dropping it tells who waits that it is not done.
#[derive(Debug)]
pub(super) struct Erase {
    pub(super) fleet: Fleet,
    pub(super) whose: Whose,
    pub(super) erasure: Erasure,
    pub(super) answer: oneshot::Sender<Result<Done>>,
}

/// One that was done, but may not be durable.
pub(super) struct Erased {
    pub(super) entity: Option<Entity>,
    batch: Option<WriteOf>,
}

struct WriteOf {
    ops: ironstone::WriteBatch,
    done: Done,
}

impl Erase {
    /// Does a part, and answers when it is durable. Returns whose rows have changed.
    pub(super) fn run(self, store: &dyn Store, last_event: u64) -> Option<Entity> {
        let Self {
            fleet,
            whose,
            erasure,
            answer,
        } = self;
        let tell = |answer: oneshot::Sender<Result<Done>>, done| {
            // Nobody waits any more: that is their matter.
            drop(answer.send(done));
        };
        let erased = match prepare(store, (fleet, &whose), erasure, last_event) {
            Ok(erased) => erased,
            Err(e) => {
                tell(answer, Err(e));
                return None;
            }
        };
        let Some(WriteOf { ops, done }) = erased.batch else {
            tell(answer, Ok(Done::Nothing));
            return None;
        };
        // The store calls it once, or not at all where the write fails.
        let cell = std::sync::Arc::new(base::sync::Mutex::new(Some(answer)));
        let take = |cell: &base::sync::Mutex<Option<_>>| {
            let mut answer = cell
                .lock()
                .unwrap_or_else(base::sync::PoisonError::into_inner);
            answer.take()
        };
        let its = std::sync::Arc::clone(&cell);
        let told = move |_, result: Result<()>| {
            if let Some(answer) = take(&its) {
                tell(answer, result.map(|()| done));
            }
        };
        if let Err(e) = store.write(ops, Some(Box::new(told)))
            && let Some(answer) = take(&cell)
        {
            tell(answer, Err(e));
        }
        erased.entity
    }
}

fn prepare(
    store: &dyn Store,
    (fleet, whose): (Fleet, &Whose),
    erasure: Erasure,
    last_event: u64,
) -> Result<Erased> {
    let none = Erased {
        entity: None,
        batch: None,
    };
    let view = store.view();
    let found = match whose {
        Whose::Name(name) => read::find(&*view, fleet, name)?,
        Whose::Number(entity) => Some(*entity),
    };
    let Some(entity) = found else {
        return Ok(none);
    };
    let at = Place::of(&*view, (fleet, entity), erasure)?;
    let mut batch = Batch::new(store);
    let is_older = |before| at.time.is_some_and(|time| time < before);
    let done = match erasure {
        Erasure::Silent(before) if is_older(before) => {
            for row in at.rows((fleet, entity)) {
                batch.delete(Family::Geohash, &row)?;
            }
            Done::All(entity, last_event)
        }
        Erasure::Before(before) if !is_older(before) => return Ok(none),
        Erasure::Silent(_) => return Ok(none),
        Erasure::Before(_) | Erasure::All => {
            let of = (fleet, entity);
            erase_part(store, &*view, (of, at), (erasure, last_event), &mut batch)?
        }
    };
    Ok(Erased {
        entity: Some(entity),
        batch: Some(WriteOf {
            ops: batch.ops,
            done,
        }),
    })
}

/// Where an entity is, as far as that can be read.
#[derive(Default)]
struct Place {
    time: Option<Time>,
    /// One of them is that of its row in the index.
    cells: BTreeSet<Cell>,
}

impl Place {
    fn of(view: &dyn View, (fleet, entity): (Fleet, Entity), erasure: Erasure) -> Result<Self> {
        match read::latest(view, fleet, entity) {
            Ok(latest) => Ok(Self {
                time: latest.as_ref().map(|latest| latest.time),
                cells: latest.map(|latest| latest.cell).into_iter().collect(),
            }),
            // Who asks for it gets it.
            Err(e) if erasure == Erasure::All && is_damage(&e) => {
                let key = EntityKey { fleet, entity }.to_bytes();
                let bytes = view.get(Family::Latest, &key).ok().flatten();
                let cell = bytes.and_then(|bytes| Newest::cell_of(&bytes));
                Ok(Self {
                    time: None,
                    cells: cell.into_iter().collect(),
                })
            }
            Err(e) => Err(e),
        }
    }

    /// The keys in the index that may be its.
    fn rows(&self, (fleet, entity): (Fleet, Entity)) -> impl Iterator<Item = [u8; CellKey::LEN]> {
        self.cells.iter().map(move |cell| {
            let cell = *cell;
            let key = CellKey {
                fleet,
                cell,
                entity,
            };
            key.to_bytes()
        })
    }
}

/// Whether what was to be read cannot be read, now or later.
fn is_damage(e: &Error) -> bool {
    e.is_corruption() || e.kind() == ErrorKind::NotSupported
}

/// Erases a part of an entity, or the last of it.
fn erase_part(
    store: &dyn Store,
    view: &dyn View,
    (of, mut at): ((Fleet, Entity), Place),
    (erasure, last_event): (Erasure, u64),
    batch: &mut Batch<'_>,
) -> Result<Done> {
    let (fleet, entity) = of;
    let part = points(view, of, erasure, batch)?;
    let mut ranges = part.visits;
    if part.is_more {
        if erasure == Erasure::All {
            purge::note(store, batch, of, &ranges)?;
        }
        return Ok(Done::Part);
    }
    if at.time.is_none() {
        // Its newest point says where its row is, as far as points can be read.
        at.cells.extend(part.last);
    }
    let key = EntityKey { fleet, entity }.to_bytes();
    for row in at.rows(of) {
        batch.delete(Family::Geohash, &row)?;
        ranges.push(Range::new(Family::Geohash, &row, &row));
    }
    batch.delete(Family::Latest, &key)?;
    batch.delete(Family::Inside, &key)?;
    // Not deleted: those behind it in the row of seeds are found still.
    batch.put(Family::Entities, &key, &[])?;
    let owes = match erasure {
        // Its events may be newer than its points, and whoever asks for it gets them erased.
        Erasure::Before(time) => u64::try_from(time.0).is_ok_and(|time| last_event >= time),
        _ => true,
    };
    if erasure == Erasure::All {
        purge::note(store, batch, of, &ranges)?;
    }
    if owes {
        purge::owe_events(batch, of, last_event)?;
    }
    Ok(Done::All(entity, last_event))
}

/// Points that are deleted together.
#[derive(Default)]
struct Points {
    is_more: bool,
    /// Where its visits were, and the rows of those that may have had no point.
    visits: Vec<Range>,
    /// Where the last one is that could be read.
    last: Option<Cell>,
}

/// Deletes a part of an entity's points, and their visits.
fn points(
    view: &dyn View,
    (fleet, entity): (Fleet, Entity),
    erasure: Erasure,
    batch: &mut Batch<'_>,
) -> Result<Points> {
    let mut place = None;
    let mut visits: BTreeSet<(Bucket, Cell)> = BTreeSet::new();
    let mut last: Option<Bucket> = None;
    let mut count = 0;
    let mut more = None;
    let read = point_rows(view, (fleet, entity), .., &mut |row| {
        let bucket = row.key.time.bucket();
        if count >= PART_MAX || (count >= PART && last != Some(bucket)) {
            more = Some(row.key.to_bytes().to_vec());
            return Ok(ControlFlow::Break(()));
        }
        match row.point() {
            Ok(point) => {
                let cell = Cell::of(point.position);
                visits.insert((bucket, cell.at_depth(VisitKey::DEPTH)));
                place = Some(cell);
            }
            // Who asks for it gets it. Its visit stays, which says where a number may have been.
            Err(_) if erasure == Erasure::All => {}
            // What is only old stays until somebody has looked at it.
            Err(e) => return Err(e),
        }
        last = Some(bucket);
        count += 1;
        Ok(ControlFlow::Continue(()))
    });
    match read {
        // A block of a table: all goes, also what lies behind it.
        Err(e) if erasure == Erasure::All && e.is_corruption() => count += 1,
        read => read?,
    }
    // Those that may have no point go with what is there of their bucket.
    let through = last.filter(|_| more.is_some());
    let notes = take_notes(view, (fleet, entity), through, batch, &mut visits)?;
    let its = delete_visits((fleet, entity), &visits, batch)?;
    let is_more = more.is_some();
    if count > 0 {
        let first = EntityKey { fleet, entity }.to_bytes();
        let to = more.or_else(|| behind(&first));
        let to = to.ok_or_else(|| Error::broken("a key without one behind it"))?;
        batch.delete_range(Family::Default, &first, &to)?;
    }
    Ok(Points {
        is_more,
        visits: its.into_iter().chain(notes).collect(),
        last: place,
    })
}

/// Deletes visits of an entity, and returns where they are.
fn delete_visits(
    (fleet, entity): (Fleet, Entity),
    visits: &BTreeSet<(Bucket, Cell)>,
    batch: &mut Batch<'_>,
) -> Result<Option<Range>> {
    let key = |&(bucket, cell): &(Bucket, Cell)| {
        VisitKey {
            fleet,
            bucket,
            cell,
            entity,
        }
        .to_bytes()
    };
    for visit in visits {
        batch.delete(Family::Visits, &key(visit))?;
    }
    let ends = visits.first().zip(visits.last());
    Ok(ends.map(|(first, last)| Range::new(Family::Visits, &key(first), &key(last))))
}

/// What waits for a shard.
pub(super) fn gone() -> Error {
    Error::new(
        ErrorKind::ShutdownInProgress,
        "the service stopped before the entity was erased",
    )
    .hint("ask again: what is erased already stays so")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::position::at;
    use crate::model::key::PointKey;
    use crate::model::point::Point;
    use crate::store::{Engine, faulty};

    fn count(store: &dyn Store, family: Family) -> usize {
        faulty::count(&*store.view(), family, &[])
    }

    /// All points of a bucket were one part, however many there were.
    #[test]
    fn a_part_has_a_bound_within_a_bucket() {
        let dir = tempfile::tempdir().unwrap();
        let store = Engine::open(dir.path()).unwrap();
        let (fleet, entity) = (Fleet(1), Entity(7));
        let mut batch = Batch::new(&store);
        // All in one bucket, in few cells which come again and again.
        for n in 0..PART_MAX + 500 {
            let point = Point::at(at(50.0 + (n % 50) as f64 / 10.0, 18.0));
            let (time, cell) = (Time(n as i64), Cell::of(point.position));
            let (bucket, cell) = (time.bucket(), cell.at_depth(VisitKey::DEPTH));
            let key = PointKey {
                fleet,
                entity,
                time,
            };
            let visit = VisitKey {
                fleet,
                bucket,
                cell,
                entity,
            };
            let value = point.encode().unwrap();
            batch.put(Family::Default, &key.to_bytes(), &value).unwrap();
            batch.put(Family::Visits, &visit.to_bytes(), &[]).unwrap();
        }
        batch.write(None).unwrap();
        let part = || {
            let mut batch = Batch::new(&store);
            let part = points(&*store.view(), (fleet, entity), Erasure::All, &mut batch);
            batch.write(None).unwrap();
            let left = [Family::Default, Family::Visits].map(|family| count(&store, family));
            (part.unwrap().is_more, left)
        };
        assert_eq!(count(&store, Family::Visits), 50);
        assert_eq!(part(), (true, [500, 0]));
        assert_eq!(part(), (false, [0, 0]));
    }
}
