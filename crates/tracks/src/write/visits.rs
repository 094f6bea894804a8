//! The visits of points that are replaced. A visit is deleted with the last point of its cell and
//! bucket, because an erasure finds visits only by the points that are there.
//!
//! A bucket is read once in a round, however many of its points are replaced, and only up to a
//! limit, because the shard takes no reports meanwhile. If that does not tell whether a cell has
//! another point, its visit stays, and a row notes this:
//!
//! ```text
//!   meta   "visits/" fleet 4  entity 8  bucket 4  cell 4 → nothing: a visit that may have no point
//! ```
//!
//! Such a row stays until its entity is erased, which deletes the visit as well, or until it is too
//! old, like the visit. Only checks read it otherwise, so that a row is harmless if its visit has a
//! point again, or is gone.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use base::Result;

use super::purge::{Range, are_done};
use crate::geo::cell::Cell;
use crate::model::key::{Entity, EntityKey, Fleet, PointKey, VisitKey, behind};
use crate::model::point::Point;
use crate::model::time::{Bucket, Time};
use crate::read::point_rows;
use crate::store::{Batch, Family, Store, View};

const KEY: &[u8] = b"visits/";
/// The most points of a bucket that are read.
const LOOK_MAX: usize = 10_000;
/// The most points that are read for all buckets of a round.
const ROUND_MAX: usize = 100_000;

/// The cell of a point's visit.
pub(super) fn cell_of(point: &Point) -> Cell {
    Cell::of(point.position).at_depth(VisitKey::DEPTH)
}

/// The fate of the visit of a replaced point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Visit {
    /// Another point has the visit.
    Stays,
    /// No point has the visit.
    Goes,
    /// Perhaps no point has the visit.
    Unknown,
}

/// The number of points in each cell.
#[derive(Default)]
struct Counts {
    cells: BTreeMap<Cell, u64>,
    /// Whether all points were counted; otherwise cells may have more.
    are_all: bool,
}

/// The cells of the buckets in which points were replaced in this round.
#[derive(Default)]
pub(super) struct Replaced {
    all: BTreeMap<(Fleet, Entity, Bucket), Counts>,
    /// How many points were read for that.
    read: usize,
}

impl Replaced {
    /// Records a point that replaces `old`, or is new. Returns the fate of the visit of `old`.
    /// `points` are the earlier ones of the round. Errors: the store's.
    pub(super) fn put(
        &mut self,
        (store, points): (&dyn Store, &[(PointKey, Vec<u8>)]),
        key: PointKey,
        (old, new): (Option<Cell>, Cell),
    ) -> Result<Visit> {
        if old == Some(new) {
            return Ok(Visit::Stays);
        }
        let counts = match self.all.entry((key.fleet, key.entity, key.time.bucket())) {
            Entry::Vacant(_) if old.is_none() => return Ok(Visit::Stays),
            Entry::Vacant(place) => place.insert(read(store, points, key, &mut self.read)?),
            Entry::Occupied(place) => place.into_mut(),
        };
        *counts.cells.entry(new).or_default() += 1;
        let Some(old) = old else {
            return Ok(Visit::Stays);
        };
        let left = counts.cells.get(&old).copied().unwrap_or_default();
        let left = left.saturating_sub(1);
        if left > 0 {
            counts.cells.insert(old, left);
            return Ok(Visit::Stays);
        }
        counts.cells.remove(&old);
        Ok(if counts.are_all {
            Visit::Goes
        } else {
            Visit::Unknown
        })
    }
}

/// Counts the points of the bucket of a point, in the store and in the round. It begins with the
/// points after it, because points that are replaced together are usually neighbours.
fn read(
    store: &dyn Store,
    points: &[(PointKey, Vec<u8>)],
    of: PointKey,
    all: &mut usize,
) -> Result<Counts> {
    let bucket = of.time.bucket();
    let is_of = |key: &PointKey| {
        (key.fleet, key.entity, key.time.bucket()) == (of.fleet, of.entity, bucket)
    };
    // The last point at each time is the one that will be stored.
    let mut ours: BTreeMap<Time, Cell> = BTreeMap::new();
    for (key, bytes) in points.iter().filter(|(key, _)| is_of(key)) {
        ours.insert(key.time, cell_of(&Point::decode(bytes)?));
    }
    let mut counts = Counts {
        cells: BTreeMap::new(),
        are_all: true,
    };
    for cell in ours.values() {
        *counts.cells.entry(*cell).or_default() += 1;
    }
    let view = store.view();
    let mut left = LOOK_MAX.min(ROUND_MAX.saturating_sub(*all));
    for times in [of.time..bucket.end(), bucket.start()..of.time] {
        let read = point_rows(&*view, (of.fleet, of.entity), times, &mut |row| {
            if left == 0 {
                counts.are_all = false;
                return Ok(ControlFlow::Break(()));
            }
            left -= 1;
            *all += 1;
            if ours.contains_key(&row.key.time) {
                return Ok(ControlFlow::Continue(()));
            }
            match row.point() {
                Ok(point) => *counts.cells.entry(cell_of(&point)).or_default() += 1,
                // The point may be in any cell.
                Err(_) => counts.are_all = false,
            }
            Ok(ControlFlow::Continue(()))
        });
        match read {
            // A damaged block of a table: the other range of times is still read.
            Err(e) if e.is_corruption() => counts.are_all = false,
            read => read?,
        }
    }
    Ok(counts)
}

/// The key of the note about a visit.
fn key(visit: &VisitKey) -> Option<Vec<u8>> {
    let bytes = visit.to_bytes();
    let (place, _) = bytes.split_last_chunk::<8>()?;
    let (_, place) = place.split_first_chunk::<4>()?;
    let VisitKey { fleet, entity, .. } = *visit;
    Some([KEY, &EntityKey { fleet, entity }.to_bytes(), place].concat())
}

/// The visit that a note is about. `None` if the key is invalid.
fn visit_of(key: &[u8]) -> Option<VisitKey> {
    let (of, place) = key.strip_prefix(KEY)?.split_at_checked(EntityKey::LEN)?;
    let (fleet, entity) = of.split_at_checked(4)?;
    VisitKey::of_bytes(&[fleet, place, entity].concat()).ok()
}

/// Adds a note to a batch that a visit may have no point.
pub(super) fn note(batch: &mut Batch<'_>, visit: &VisitKey) -> Result<()> {
    let Some(key) = key(visit) else {
        return Ok(());
    };
    batch.put(Family::Meta, &key, &[])
}

/// Whether there is a note that a visit may have no point. Errors: the store's.
pub(crate) fn is_noted(view: &dyn View, visit: &VisitKey) -> Result<bool> {
    let Some(key) = key(visit) else {
        return Ok(false);
    };
    Ok(view.get(Family::Meta, &key)?.is_some())
}

/// Visits of an entity that may have no point.
#[derive(Default)]
pub(super) struct Notes {
    pub(super) visits: BTreeSet<(Bucket, Cell)>,
    /// The range of the notes, whose keys say where the entity was.
    pub(super) range: Option<Range>,
    /// Whether there are more notes.
    pub(super) is_cut: bool,
}

/// Deletes the notes of an entity, at most `most`, and returns their visits. Unreadable notes are
/// deleted, too; their visits stay, and tell that some entity was there. Errors: the store's.
pub(super) fn take_notes(
    view: &dyn View,
    (fleet, entity): (Fleet, Entity),
    most: usize,
    batch: &mut Batch<'_>,
) -> Result<Notes> {
    let first = [KEY, &EntityKey { fleet, entity }.to_bytes()].concat();
    let mut out = Notes::default();
    let mut end = behind(&first);
    match read_notes(view, &first, most, &mut out) {
        Ok(None) => {}
        Ok(more) => end = more,
        Err(e) if e.is_corruption() => {
            let last = [&first[..], &[u8::MAX; 8]].concat();
            out.range = Some(Range::new(Family::Meta, &first, &last));
        }
        Err(e) => return Err(e),
    }
    // One range tombstone, so that the next read need not skip a tombstone for each row.
    if let (Some(_), Some(end)) = (&out.range, end) {
        batch.delete_range(Family::Meta, &first, &end)?;
    }
    Ok(out)
}

/// Reads notes from a key on. Returns the key of the first one that is not read, if there are more.
fn read_notes(
    view: &dyn View,
    first: &[u8],
    most: usize,
    out: &mut Notes,
) -> Result<Option<Vec<u8>>> {
    let mut rows = view.rows(Family::Meta, first, behind(first).as_deref())?;
    rows.seek(first);
    let mut count = 0;
    while let Some((key, _)) = rows.row() {
        if count == most {
            out.is_cut = true;
            return Ok(Some(key.to_vec()));
        }
        count += 1;
        if let Some(visit) = visit_of(key) {
            out.visits.insert((visit.bucket, visit.cell));
        }
        let range = out
            .range
            .get_or_insert_with(|| Range::new(Family::Meta, key, key));
        key.clone_into(&mut range.last);
        rows.next();
    }
    rows.status()?;
    Ok(None)
}

/// Deletes the notes of a fleet about visits before a bucket, which are dropped because they are
/// too old. Errors: the store's.
pub(crate) fn notes_are_gone(store: &dyn Store, fleet: Fleet, first: Bucket) -> Result<()> {
    /// The most deletions in one batch.
    const PART: usize = 1000;
    let of = [KEY, &fleet.prefix()].concat();
    let view = store.view();
    let mut rows = view.rows(Family::Meta, &of, behind(&of).as_deref())?;
    rows.seek(&of);
    let mut keys = Vec::new();
    while let Some((key, _)) = rows.row() {
        if visit_of(key).is_some_and(|visit| visit.bucket >= first) {
            // The following notes of this entity are newer.
            match key.get(..KEY.len() + EntityKey::LEN).and_then(behind) {
                Some(next) => rows.seek(&next),
                None => rows.next(),
            }
            continue;
        }
        keys.push(key.to_vec());
        if keys.len() == PART {
            are_done(store, &std::mem::take(&mut keys))?;
        }
        rows.next();
    }
    // If reading failed, the notes found before are still deleted.
    let read = rows.status();
    are_done(store, &keys)?;
    read
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use base::Error;
    use base::clock::SystemClock;
    use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
    use base::threads::SystemThreads;

    use super::*;
    use crate::check;
    use crate::geo::position::at;
    use crate::model::name::Name;
    use crate::model::report::Report;
    use crate::service::{Options, Tracks};
    use crate::store::Engine;
    use crate::store::faulty::{Act, Faulty, count};
    use crate::write::Ack;

    struct World {
        tracks: Tracks,
        rows: Arc<AtomicU64>,
        is_damaged: Arc<AtomicBool>,
        _dir: tempfile::TempDir,
    }

    impl World {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let (rows, is_damaged) = (Arc::<AtomicU64>::default(), Arc::<AtomicBool>::default());
            let its = (Arc::clone(&rows), Arc::clone(&is_damaged));
            let store = Faulty::new(Engine::open(dir.path()).unwrap(), move |act| {
                if matches!(act, Act::Row(Family::Default, _)) {
                    its.0.fetch_add(1, Ordering::Relaxed);
                    if its.1.load(Ordering::Relaxed) {
                        return Err(Error::corruption("a block of this test"));
                    }
                }
                Ok(())
            });
            let options = Options::default();
            let clock = SystemClock::shared();
            let tracks = Tracks::over(store, &options, clock, &SystemThreads).unwrap();
            Self {
                tracks,
                rows,
                is_damaged,
                _dir: dir,
            }
        }

        fn name() -> Name {
            Name::new("car").unwrap()
        }

        /// Reports of one entity in one bucket; the times are in microseconds.
        fn send(&self, all: impl Iterator<Item = (i64, f64)>) {
            let report = |(micros, lat)| Report {
                entity: Self::name(),
                time: Some(Time(1_700_000_400_000_000 + micros)),
                point: Point::at(at(lat, 18.0)),
            };
            let all = all.map(report).collect();
            let ticket = self.tracks.report(&Self::name(), all, Ack::Visible);
            let outcomes = ticket.unwrap().wait().outcomes;
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        }

        fn count(&self, family: Family, from: &[u8]) -> usize {
            count(&*self.tracks.store().view(), family, from)
        }

        /// The number of visits, and of visits that may have no point.
        fn visits(&self) -> (usize, usize) {
            (
                self.count(Family::Visits, &[]),
                self.count(Family::Meta, KEY),
            )
        }

        fn check(&self) {
            let options = check::Options { visits: true };
            let found = check::check(&**self.tracks.store(), options, &mut |_| ()).unwrap();
            assert_eq!(found.problems, []);
        }

        fn erase(&self) {
            let info = self.tracks.fleet(&Self::name()).unwrap();
            assert!(self.tracks.erase(&info, &Self::name()).unwrap());
            assert_eq!(self.visits(), (0, 0));
        }
    }

    /// A full bucket is not read as a whole for each round that replaces one of its points: the
    /// shard stays responsive.
    #[test]
    fn a_bucket_that_is_full_is_read_in_part_and_what_is_not_known_is_noted() {
        let world = World::new();
        let all: Vec<i64> = (0..25_000).collect();
        for some in all.chunks(5000) {
            // The last point is alone in its cell.
            world.send(
                some.iter()
                    .map(|n| (*n, if *n == 24_999 { 61.0 } else { 59.0 })),
            );
        }
        assert_eq!(world.visits(), (2, 0));
        for (nth, lat) in [62.0, 61.0, 62.0, 63.0].into_iter().enumerate() {
            let before = world.rows.load(Ordering::Relaxed);
            world.send([(7, lat)].into_iter());
            let read = world.rows.load(Ordering::Relaxed) - before;
            assert!(read <= LOOK_MAX as u64 + 2, "{read} of turn {nth}");
        }
        // The cell at 59 has other points among those that were read; the only point at 61 was not
        // reached.
        assert_eq!(world.visits(), (4, 2));
        world.check();
        world.erase();
    }

    /// A report that replaces a point is taken although another point of its ten minutes is
    /// damaged.
    #[test]
    fn a_point_is_replaced_where_others_cannot_be_read() {
        let world = World::new();
        world.send([(0, 59.0), (1, 60.0), (2, 61.0)].into_iter());
        world.is_damaged.store(true, Ordering::Relaxed);
        world.send([(1, 62.0)].into_iter());
        world.is_damaged.store(false, Ordering::Relaxed);
        assert_eq!(world.visits(), (4, 1));
        world.check();
        // A part of an erasure deletes at most this many.
        let (store, info) = (world.tracks.store(), world.tracks.fleet(&World::name()));
        let of = (info.unwrap().fleet, World::name().number(0));
        let bucket = Time(1_700_000_400_000_000).bucket();
        for (most, count) in [(0, 0), (1, 1)] {
            let mut batch = Batch::new(&**store);
            let notes = take_notes(&*store.view(), of, most, &mut batch).unwrap();
            assert_eq!(
                (notes.is_cut, notes.range.is_some()),
                (count == 0, count == 1)
            );
            let cell = cell_of(&Point::at(at(60.0, 18.0)));
            let all: Vec<_> = notes.visits.into_iter().collect();
            assert_eq!(all, vec![(bucket, cell); count]);
        }
        world.erase();
    }

    /// When retention drops visits, it also drops their notes, which would otherwise say for ever
    /// where an entity was.
    #[test]
    fn notes_before_a_bucket_go_and_those_of_others_stay() {
        let dir = tempfile::tempdir().unwrap();
        let store = Engine::open(dir.path()).unwrap();
        let mut batch = Batch::new(&store);
        let cell = cell_of(&Point::at(at(60.0, 18.0)));
        let mut all = Vec::new();
        for (fleet, entity) in [(1, 1), (1, 2), (1, u64::MAX), (2, 1)] {
            for bucket in 0..1500 {
                let visit = VisitKey {
                    fleet: Fleet(fleet),
                    bucket: Bucket(bucket - 3),
                    cell,
                    entity: Entity(entity),
                };
                note(&mut batch, &visit).unwrap();
                all.push(visit);
            }
        }
        batch.write(None).unwrap();
        notes_are_gone(&store, Fleet(1), Bucket(1200)).unwrap();
        let view = store.view();
        for visit in all {
            let is_there = is_noted(&*view, &visit).unwrap();
            let stays = visit.fleet == Fleet(2) || visit.bucket >= Bucket(1200);
            assert_eq!(is_there, stays, "{visit:?}");
        }
    }
}
