//! Erasing entities. Their shards do it, so that an erasure has a place in the order of their
//! reports.
//!
//! A large history is erased in parts, oldest first. Each part is one batch, so that a shard is
//! never busy for long; rows are consistent in between. The last part has the newest point, the row
//! of the index, and the name. Each part records which tables are to be compacted. Parts end at the
//! end of a bucket of visits, so that each visit is deleted with the last of its points. Only a
//! bucket with very many points is cut. Its visits stay, with notes that they may have no point:
//! [`visits`]. Visits with such notes are deleted last, many of them in parts of their own.
//!
//! [`visits`]: super::visits

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use base::{Error, ErrorKind, Result};
use tokio::sync::oneshot;

use super::purge::{self, Range};
use super::visits::{note as note_visit, take_notes};
use crate::geo::cell::Cell;
use crate::model::key::{CellKey, Entity, EntityKey, Fleet, PointKey, VisitKey, behind};
use crate::model::name::Name;
use crate::model::newest::Newest;
use crate::model::time::{Bucket, Time};
use crate::read::{self, point_rows};
use crate::store::{Batch, Family, Store, View};

/// Points of a part; it goes on to the end of their bucket, up to [`PART_MAX`].
const PART: usize = 10_000;
/// The most points of a part, which is in memory and in one batch, and holds up all other work of
/// the shard.
const PART_MAX: usize = 20_000;

/// What to erase of an entity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Erasure {
    /// Everything.
    All,
    /// Everything, if its newest point is older.
    Before(Time),
    /// Its row in the index, if its newest point is older.
    Silent(Time),
}

/// The entity to erase.
#[derive(Clone, Debug)]
pub(super) enum Whose {
    Name(Name),
    Number(Entity),
}

/// The result of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Done {
    /// There is no such entity, or it is not old enough.
    Nothing,
    /// There is more to erase.
    Part,
    /// Everything is erased, except the events up to this id.
    All(Entity, u64),
}

/// A part of an erasure, for a shard. If it is dropped, the caller learns that it was not done.
#[derive(Debug)]
pub(super) struct Erase {
    pub(super) fleet: Fleet,
    pub(super) whose: Whose,
    pub(super) erasure: Erasure,
    pub(super) answer: oneshot::Sender<Result<Done>>,
}

/// A part that is ready to be written.
pub(super) struct Erased {
    pub(super) entity: Option<Entity>,
    batch: Option<WriteOf>,
}

struct WriteOf {
    ops: ironstone::WriteBatch,
    done: Done,
}

impl Erase {
    /// Erases a part, and answers once it is durable. Returns the entity whose rows have changed.
    pub(super) fn run(self, store: &dyn Store, last_event: u64) -> Option<Entity> {
        let Self {
            fleet,
            whose,
            erasure,
            answer,
        } = self;
        let tell = |answer: oneshot::Sender<Result<Done>>, done| {
            // The caller may have gone.
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
        // The store calls it once, or not at all if the write fails.
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
    /// The cells in which its row in the index may be.
    cells: BTreeSet<Cell>,
}

impl Place {
    fn of(view: &dyn View, (fleet, entity): (Fleet, Entity), erasure: Erasure) -> Result<Self> {
        match read::latest(view, fleet, entity) {
            Ok(latest) => Ok(Self {
                time: latest.as_ref().map(|latest| latest.time),
                cells: latest.map(|latest| latest.cell).into_iter().collect(),
            }),
            // An explicit erasure goes on in spite of damage.
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

    /// The possible keys of its row in the index.
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

/// Whether the data is unreadable, so that trying again does not help.
fn is_damage(e: &Error) -> bool {
    e.is_corruption() || e.kind() == ErrorKind::NotSupported
}

/// Erases a part of an entity, or the last part.
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
        // If the row of the newest point is damaged, the last readable point gives its cell.
        at.cells.extend(part.last);
    }
    let key = EntityKey { fleet, entity }.to_bytes();
    for row in at.rows(of) {
        batch.delete(Family::Geohash, &row)?;
        ranges.push(Range::new(Family::Geohash, &row, &row));
    }
    batch.delete(Family::Latest, &key)?;
    batch.delete(Family::Inside, &key)?;
    // Emptied, not deleted: a name whose hash collided with this one is still found at its later
    // number.
    batch.put(Family::Entities, &key, &[])?;
    let owes = match erasure {
        // Its events may be newer than its points: retention leaves them, and a later explicit
        // erasure must find them.
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
    /// Ranges of the deleted visits, and of the notes about visits.
    visits: Vec<Range>,
    /// The cell of the last readable point.
    last: Option<Cell>,
}

/// The points of a part.
#[derive(Default)]
struct Read {
    count: usize,
    /// The visits of its points.
    visits: BTreeSet<(Bucket, Cell)>,
    /// The bucket of its last point.
    bucket: Option<Bucket>,
    /// The cell of the last readable point.
    place: Option<Cell>,
    /// The first point of the next part.
    more: Option<PointKey>,
}

/// Reads the points of the next part.
fn read_part(view: &dyn View, of: (Fleet, Entity), erasure: Erasure) -> Result<Read> {
    let mut out = Read::default();
    let read = point_rows(view, of, .., &mut |row| {
        let bucket = row.key.time.bucket();
        if out.count >= PART_MAX || (out.count >= PART && out.bucket != Some(bucket)) {
            out.more = Some(row.key);
            return Ok(ControlFlow::Break(()));
        }
        match row.point() {
            Ok(point) => {
                let cell = Cell::of(point.position);
                out.visits.insert((bucket, cell.at_depth(VisitKey::DEPTH)));
                out.place = Some(cell);
            }
            // An explicit erasure deletes the point in spite of damage. Its visit stays, and tells
            // that some entity was there.
            Err(_) if erasure == Erasure::All => {}
            // Retention keeps damaged rows until somebody has looked at them.
            Err(e) => return Err(e),
        }
        out.bucket = Some(bucket);
        out.count += 1;
        Ok(ControlFlow::Continue(()))
    });
    match read {
        // A damaged block of a table: everything is deleted, also what is after it.
        Err(e) if erasure == Erasure::All && e.is_corruption() => out.count += 1,
        read => read?,
    }
    Ok(out)
}

/// Deletes a part of an entity's points, and their visits.
fn points(
    view: &dyn View,
    of: (Fleet, Entity),
    erasure: Erasure,
    batch: &mut Batch<'_>,
) -> Result<Points> {
    let part = read_part(view, of, erasure)?;
    let (mut visits, more) = (part.visits, part.more);
    let mut noted = None;
    if more.is_none() {
        let mut notes = take_notes(view, of, PART_MAX, batch)?;
        if notes.is_cut {
            // The points are deleted after the last of these notes, and keep their visits until
            // then.
            notes.visits.retain(|visit| !visits.contains(visit));
            let its = delete_visits(of, &notes.visits, batch)?;
            return Ok(Points {
                is_more: true,
                visits: its.into_iter().chain(notes.range).collect(),
                last: None,
            });
        }
        visits.append(&mut notes.visits);
        noted = notes.range;
    }
    let is_cut = |bucket| more.is_some_and(|more| more.time.bucket() == bucket);
    let cut = part.bucket.filter(|bucket| is_cut(*bucket));
    let visits = visits.into_iter();
    let (stay, go): (BTreeSet<_>, _) = visits.partition(|(bucket, _)| Some(*bucket) == cut);
    note_visits(of, &stay, batch)?;
    let its = delete_visits(of, &go, batch)?;
    if part.count > 0 {
        let (fleet, entity) = of;
        let first = EntityKey { fleet, entity }.to_bytes();
        let more = more.map(|more| more.to_bytes().to_vec());
        let to = more.or_else(|| behind(&first));
        let to = to.ok_or_else(|| Error::broken("a key without one behind it"))?;
        batch.delete_range(Family::Default, &first, &to)?;
    }
    Ok(Points {
        is_more: more.is_some(),
        visits: its.into_iter().chain(noted).collect(),
        last: part.place,
    })
}

fn visit_key((fleet, entity): (Fleet, Entity), &(bucket, cell): &(Bucket, Cell)) -> VisitKey {
    VisitKey {
        fleet,
        bucket,
        cell,
        entity,
    }
}

/// Writes notes that visits of an entity may have no point.
fn note_visits(
    of: (Fleet, Entity),
    visits: &BTreeSet<(Bucket, Cell)>,
    batch: &mut Batch<'_>,
) -> Result<()> {
    let mut all = visits.iter();
    all.try_for_each(|visit| note_visit(batch, &visit_key(of, visit)))
}

/// Deletes visits of an entity, and returns a range that contains them. It covers their buckets as
/// a whole, because visits of replaced or dropped points were there, too.
fn delete_visits(
    (fleet, entity): (Fleet, Entity),
    visits: &BTreeSet<(Bucket, Cell)>,
    batch: &mut Batch<'_>,
) -> Result<Option<Range>> {
    let key = |visit: &(Bucket, Cell)| visit_key((fleet, entity), visit).to_bytes();
    for visit in visits {
        batch.delete(Family::Visits, &key(visit))?;
    }
    let ends = visits.first().zip(visits.last());
    let end = |visit: &(Bucket, Cell), rest| {
        let bucket = key(visit);
        let bucket = bucket.split_last_chunk::<12>().map(|(bucket, _)| bucket);
        [bucket.unwrap_or_default(), &[rest; 12]].concat()
    };
    let range = |(first, last)| Range::new(Family::Visits, &end(first, 0), &end(last, u8::MAX));
    Ok(ends.map(range))
}

/// The error if the shard has ended.
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
    use crate::check;
    use crate::geo::position::at;
    use crate::model::point::Point;
    use crate::store::{Engine, faulty};

    fn count(store: &dyn Store, family: Family) -> usize {
        faulty::count(&*store.view(), family, &[])
    }

    /// Also within a bucket, a part has a bounded number of points, and the remaining ones keep
    /// their visits, so that a check finds no fault if the erasure is interrupted.
    #[test]
    fn a_part_has_a_bound_within_a_bucket() {
        let dir = tempfile::tempdir().unwrap();
        let store = Engine::open(dir.path()).unwrap();
        let (fleet, entity) = (Fleet(1), Entity(7));
        let mut batch = Batch::new(&store);
        // All in one bucket, and in few cells, which repeat.
        for n in 0..2 * PART_MAX + 500 {
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
            let part = part.unwrap();
            let families = [Family::Default, Family::Visits, Family::Meta];
            let left = families.map(|family| count(&store, family));
            // Only the rows of this test are there: names and newest points are missing.
            let options = check::Options { visits: true };
            let found = check::check(&store, options, &mut |_| ()).unwrap();
            assert!(found.problems.iter().all(|problem| {
                problem.family != Family::Visits && problem.family != Family::Default
            }));
            (part.is_more, part.visits.len(), left)
        };
        let meta = count(&store, Family::Meta);
        assert_eq!(count(&store, Family::Visits), 50);
        assert_eq!(part(), (true, 0, [PART_MAX + 500, 50, meta + 50]));
        assert_eq!(part(), (true, 0, [500, 50, meta + 50]));
        // The ranges of the visits, and of the notes about them.
        assert_eq!(part(), (false, 2, [0, 0, meta]));
    }

    /// Visits that may have no point are deleted in parts, however many of them a bucket has.
    #[test]
    fn visits_without_points_go_in_parts_before_the_last_points() {
        let dir = tempfile::tempdir().unwrap();
        let store = Engine::open(dir.path()).unwrap();
        let of = (Fleet(1), Entity(7));
        let (fleet, entity) = of;
        let mut batch = Batch::new(&store);
        let (bucket, cells) = (Time(0).bucket(), PART_MAX + 500);
        // Each in a different cell.
        let place = |n: usize| at((n / 200) as f64 / 50.0, (n % 200) as f64 / 50.0);
        let mut in_order = std::collections::BTreeMap::new();
        for n in 0..cells {
            let cell = Cell::of(place(n)).at_depth(VisitKey::DEPTH);
            in_order.insert(cell, n);
            let visit = visit_key(of, &(bucket, cell));
            batch.put(Family::Visits, &visit.to_bytes(), &[]).unwrap();
            note_visit(&mut batch, &visit).unwrap();
        }
        // The first and the last of them have points again.
        let ends = [in_order.first_key_value(), in_order.last_key_value()];
        for (n, time) in ends.map(|end| *end.unwrap().1).into_iter().zip([5, 6]) {
            let value = Point::at(place(n)).encode();
            let key = PointKey {
                fleet,
                entity,
                time: Time(time),
            };
            batch
                .put(Family::Default, &key.to_bytes(), &value.unwrap())
                .unwrap();
        }
        batch.write(None).unwrap();
        let count_all = || {
            let families = [Family::Default, Family::Visits, Family::Meta];
            families.map(|family| count(&store, family))
        };
        let [_, visits, notes] = count_all();
        assert_eq!(visits, cells);
        let part = || {
            let mut batch = Batch::new(&store);
            let part = points(&*store.view(), of, Erasure::All, &mut batch).unwrap();
            batch.write(None).unwrap();
            (part.is_more, part.visits.len(), count_all())
        };
        let left = visits - PART_MAX;
        assert_eq!(part(), (true, 2, [2, left + 1, notes - PART_MAX]));
        assert_eq!(part(), (false, 2, [0, 0, notes - visits]));
    }
}
