//! Turns sorted records into the rows that the same reports would make, as tables; see [`write`](crate::write) for
//! the rules.
//!
//! ```text
//!   an item of points   20 key of the point   8 number of the record   1 length of the name   the name   the point
//!   of visits           20 key of the visit   1 a fact about it: see `Said`
//!   of the index        17 key   1 put or delete   the value
//! ```
//!
//! Items of points come in the order of the rows of `default`. The rows of `latest` and `entities` have the same
//! order. Rows of `visits` and `geohash` are sorted separately.
//!
//! Whether the visits of replaced points must be deleted is known at the end of their bucket. If a bucket has too
//! many cells for memory, the facts for and against each visit are sorted as well, and counted afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};

use base::{Error, Result};

use super::Progress;
use super::sorter::Sorter;
use super::tables::Tables;
use crate::geo::cell::Cell;
use crate::model::key::{CellKey, Entity, EntityKey, Fleet, PointKey, VisitKey};
use crate::model::newest::{Here, Newest};
use crate::model::point::Point;
use crate::model::time::{Bucket, Time};
use crate::read::point_rows;
use crate::store::{Engine, Family, Rows, View, damaged};

/// How many steps are tried to reach the next stored point, before a seek.
const STEPS: u32 = 8;
/// The approximate memory for a cell of a bucket.
const CELL_BYTES: usize = 128;
/// Progress is reported once for this many records.
const TOLD_EVERY: u64 = 16_384;

/// One record, as it was sorted.
pub(super) struct Item<'a> {
    pub(super) key: PointKey,
    pub(super) nth: [u8; 8],
    pub(super) name: &'a str,
    pub(super) point: &'a [u8],
}

impl<'a> Item<'a> {
    pub(super) fn decode(bytes: &'a [u8]) -> Result<Self> {
        let read = || {
            let (key, rest) = bytes.split_first_chunk::<{ PointKey::LEN }>()?;
            let (nth, rest) = rest.split_first_chunk::<8>()?;
            let (len, rest) = rest.split_first()?;
            let (name, point) = rest.split_at_checked(usize::from(*len))?;
            Some(Self {
                key: PointKey::of_bytes(key).ok()?,
                nth: *nth,
                name: str::from_utf8(name).ok()?,
                point,
            })
        };
        read().ok_or_else(|| Error::broken("a sorted record that is none"))
    }

    pub(super) fn add_to(&self, sorter: &mut Sorter) -> Result<()> {
        let (name, len) = (self.name.as_bytes(), self.name.len() as u8);
        sorter.add(&[&self.key.to_bytes(), &self.nth, &[len], name, self.point])
    }
}

/// The number of records of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    pub(super) done: u64,
    /// Records that changed something.
    pub(super) stored: u64,
    /// Records that were there already, in the input or in the database.
    pub(super) same: u64,
    pub(super) entities: u64,
    /// Entities that have moved.
    pub(super) moved: u64,
}

/// The entity whose records are being read.
struct Going<'a> {
    entity: Entity,
    name: String,
    /// Whether it has stored rows.
    is_there: bool,
    /// Its stored points, if it has any.
    rows: Option<Box<dyn Rows + 'a>>,
    has_sought: bool,
    /// Its newest point. `before` is the newest point before the import.
    newest: Option<(Time, Cell, Vec<u8>)>,
    before: Option<(Time, Cell)>,
    has_changed: bool,
    visits: Option<InBucket>,
}

/// The bucket whose records are being read. As with reports, the visit of a replaced point is deleted with the last
/// point of its cell.
struct InBucket {
    bucket: Bucket,
    /// Cells that have a point of these records.
    came: BTreeSet<Cell>,
    /// For each cell, how many of its stored points were replaced by points in other cells.
    left: BTreeMap<Cell, u64>,
    /// Set once there are too many cells: the facts are sorted then.
    sorted: Option<Sorted>,
}

/// A bucket with many cells.
struct Sorted {
    /// Whether all its stored points are readable.
    is_known: bool,
    has_left: bool,
    /// The cell of the last record.
    last: Option<Cell>,
}

/// A fact about a visit.
#[derive(Clone, Copy)]
enum Said {
    /// It is to be deleted.
    Delete = 0,
    /// It is to be written.
    Put = 1,
    /// It stays, if it is there.
    Stay = 2,
    /// One of its stored points was replaced by a point in another cell.
    Left = 3,
    /// One of its stored points.
    There = 4,
}

/// All facts about one visit.
#[derive(Default)]
struct Visit {
    key: Vec<u8>,
    /// By the value of [`Said`].
    counts: [u64; 5],
}

impl Visit {
    fn add(&mut self, said: u8) -> Result<()> {
        let count = self.counts.get_mut(usize::from(said));
        *count.ok_or_else(|| Error::broken("a sorted visit that says nothing"))? += 1;
        Ok(())
    }

    fn end(&self, tables: &mut Tables) -> Result<()> {
        let [deleted, put, stays, left, there] = self.counts;
        let is_left = stays == 0 && left > 0 && left == there;
        if put > 0 {
            tables.put(&self.key, &[])
        } else if deleted > 0 || is_left {
            tables.delete(&self.key)
        } else {
            Ok(())
        }
    }
}

/// The time whose records are being read.
struct Moment {
    key: PointKey,
    /// The point at this time so far.
    point: Option<(Point, Vec<u8>)>,
    /// The cell of the stored point's visit.
    before: Option<Cell>,
    has_changed: bool,
}

/// Makes the rows and tables.
pub(super) struct Making<'a> {
    view: &'a dyn View,
    fleet: Fleet,
    with_visits: bool,
    points: Tables,
    latest: Tables,
    entities: Tables,
    visits: Sorter,
    index: Sorter,
    /// A bucket with more cells is sorted.
    cells_max: usize,
    going: Option<Going<'a>>,
    moment: Option<Moment>,
    pub(super) counts: Counts,
}

impl<'a> Making<'a> {
    pub(super) fn new(
        (engine, view): (&Engine, &'a dyn View),
        (dir, fleet): (&Path, Fleet),
        memory: usize,
        with_visits: bool,
    ) -> Self {
        let fs = &engine.options().env.fs;
        Self {
            view,
            fleet,
            with_visits,
            points: Tables::new(engine, dir, Family::Default),
            latest: Tables::new(engine, dir, Family::Latest),
            entities: Tables::new(engine, dir, Family::Entities),
            visits: Sorter::new(fs, dir, "visits", memory / 8),
            index: Sorter::new(fs, dir, "geohash", memory / 8),
            cells_max: memory / 8 / CELL_BYTES,
            going: None,
            moment: None,
            counts: Counts::default(),
        }
    }

    /// Processes all records.
    pub(super) fn run(
        &mut self,
        points: &mut Sorter,
        told: &mut dyn FnMut(Progress),
    ) -> Result<()> {
        let mut merged = points.merged()?;
        while let Some(bytes) = merged.next()? {
            let item = Item::decode(bytes)?;
            self.counts.done += 1;
            if self.counts.done.is_multiple_of(TOLD_EVERY) {
                told(Progress::Sorted(self.counts.done));
            }
            self.item(&item)?;
        }
        self.end_moment()?;
        self.end_entity()
    }

    fn item(&mut self, item: &Item<'_>) -> Result<()> {
        if self.moment.as_ref().is_none_or(|m| m.key != item.key) {
            self.end_moment()?;
            if self
                .going
                .as_ref()
                .is_none_or(|g| g.entity != item.key.entity)
            {
                self.end_entity()?;
                self.begin_entity(item.key.entity, item.name)?;
            }
            let point = self.there(item.key)?;
            self.moment = Some(Moment {
                key: item.key,
                before: point.as_ref().map(|(point, _)| visit_cell(point)),
                point,
                has_changed: false,
            });
        }
        let Some(moment) = &mut self.moment else {
            return Err(Error::broken("a record without an entity"));
        };
        let point = Point::decode(item.point)?;
        let is_same = moment.point.as_ref().is_some_and(|(there, _)| {
            Point {
                lag: point.lag,
                ..there.clone()
            } == point
        });
        if is_same {
            self.counts.same += 1;
            return Ok(());
        }
        self.counts.stored += 1;
        moment.point = Some((point, item.point.to_vec()));
        moment.has_changed = true;
        Ok(())
    }

    fn begin_entity(&mut self, entity: Entity, name: &str) -> Result<()> {
        let key = EntityKey {
            fleet: self.fleet,
            entity,
        };
        let key = key.to_bytes();
        let row = self.view.get(Family::Entities, &key)?;
        let is_there = row.is_some_and(|row| row == name.as_bytes());
        let mut before = None;
        if is_there && let Some(bytes) = self.view.get(Family::Latest, &key)? {
            let newest = Newest::decode(&bytes).map_err(|e| damaged(Family::Latest, &key, &e))?;
            before = Some((newest.time, newest.cell));
        }
        self.counts.entities += 1;
        self.going = Some(Going {
            entity,
            name: name.to_owned(),
            is_there,
            rows: None,
            has_sought: false,
            newest: None,
            before,
            has_changed: false,
            visits: None,
        });
        Ok(())
    }

    /// The stored point at a time.
    fn there(&mut self, key: PointKey) -> Result<Option<(Point, Vec<u8>)>> {
        let view = self.view;
        let Some(going) = self.going.as_mut().filter(|going| going.is_there) else {
            return Ok(None);
        };
        let bytes = key.to_bytes();
        let rows = match &mut going.rows {
            Some(rows) => rows,
            none => none.insert(view.rows(Family::Default, &bytes, None)?),
        };
        let mut steps = if std::mem::replace(&mut going.has_sought, true) {
            STEPS
        } else {
            0
        };
        while steps > 0 && rows.row().is_some_and(|(at, _)| at < &bytes[..]) {
            rows.next();
            steps -= 1;
        }
        if steps == 0 {
            rows.seek(&bytes);
        }
        rows.status()?;
        match rows.row().filter(|(at, _)| *at == bytes) {
            None => Ok(None),
            Some((_, value)) => {
                let point =
                    Point::decode(value).map_err(|e| damaged(Family::Default, &bytes, &e))?;
                Ok(Some((point, value.to_vec())))
            }
        }
    }

    fn end_moment(&mut self) -> Result<()> {
        let Some(moment) = self.moment.take() else {
            return Ok(());
        };
        let Some((point, bytes)) = moment.point.filter(|_| moment.has_changed) else {
            return Ok(());
        };
        self.visit(moment.key, (moment.before, visit_cell(&point)))?;
        let Some(going) = &mut self.going else {
            return Ok(());
        };
        self.points.put(&moment.key.to_bytes(), &bytes)?;
        going.has_changed = true;
        let time = moment.key.time;
        if going.before.is_none_or(|(before, _)| time >= before) {
            going.newest = Some((time, Cell::of(point.position), bytes));
        }
        Ok(())
    }

    /// Updates the bucket for a time whose point has changed.
    fn visit(&mut self, key: PointKey, (before, now): (Option<Cell>, Cell)) -> Result<()> {
        let bucket = key.time.bucket();
        let is_new = |visits: &InBucket| visits.bucket != bucket;
        let done = self
            .going
            .as_mut()
            .and_then(|g| g.visits.take_if(|v| is_new(v)));
        if let Some(done) = done {
            self.end_bucket(key.entity, &done)?;
        }
        let Some(going) = &mut self.going else {
            return Ok(());
        };
        let visits = going.visits.get_or_insert_with(|| InBucket {
            bucket,
            came: BTreeSet::new(),
            left: BTreeMap::new(),
            sorted: None,
        });
        let before = before.filter(|before| *before != now);
        let came = if self.with_visits {
            Said::Put
        } else {
            Said::Stay
        };
        if let Some(sorted) = &mut visits.sorted {
            if let Some(before) = before.filter(|_| sorted.is_known) {
                sorted.has_left = true;
                add(&mut self.visits, &visit_key(key, before), Said::Left)?;
            }
            if sorted.last.replace(now) != Some(now) {
                add(&mut self.visits, &visit_key(key, now), came)?;
            }
            return Ok(());
        }
        if let Some(before) = before {
            *visits.left.entry(before).or_default() += 1;
        }
        if visits.came.insert(now) && self.with_visits {
            add(&mut self.visits, &visit_key(key, now), came)?;
        }
        if visits.came.len() + visits.left.len() > self.cells_max {
            self.sort_bucket(key)?;
        }
        Ok(())
    }

    /// From now on the cells of this bucket are sorted, because there are too many.
    fn sort_bucket(&mut self, key: PointKey) -> Result<()> {
        let Some(visits) = self.going.as_mut().and_then(|going| going.visits.as_mut()) else {
            return Ok(());
        };
        let (came, left) = (
            std::mem::take(&mut visits.came),
            std::mem::take(&mut visits.left),
        );
        let mut is_known = true;
        each_there(self.view, key, &mut |cell| {
            is_known = cell.is_some();
            Ok(is_known)
        })?;
        visits.sorted = Some(Sorted {
            is_known,
            has_left: is_known && !left.is_empty(),
            last: None,
        });
        if !self.with_visits {
            for cell in came {
                add(&mut self.visits, &visit_key(key, cell), Said::Stay)?;
            }
        }
        for (cell, count) in left.into_iter().filter(|_| is_known) {
            for _ in 0..count {
                add(&mut self.visits, &visit_key(key, cell), Said::Left)?;
            }
        }
        Ok(())
    }

    /// Deletes the visits of a bucket whose points were all replaced.
    fn end_bucket(&mut self, entity: Entity, visits: &InBucket) -> Result<()> {
        let key = PointKey {
            fleet: self.fleet,
            entity,
            time: visits.bucket.start(),
        };
        if let Some(sorted) = &visits.sorted {
            if !sorted.has_left {
                return Ok(());
            }
            let its = &mut self.visits;
            return each_there(self.view, key, &mut |cell| {
                if let Some(cell) = cell {
                    add(its, &visit_key(key, cell), Said::There)?;
                }
                Ok(true)
            });
        }
        let mut left = visits.left.clone();
        left.retain(|cell, _| !visits.came.contains(cell));
        if left.is_empty() {
            return Ok(());
        }
        let mut is_known = true;
        // For each of these cells, the number of stored points.
        let mut there: BTreeMap<Cell, u64> = BTreeMap::new();
        each_there(self.view, key, &mut |cell| {
            is_known = cell.is_some();
            if let Some(cell) = cell.filter(|cell| left.contains_key(cell)) {
                *there.entry(cell).or_default() += 1;
            }
            Ok(is_known)
        })?;
        left.retain(|cell, count| is_known && there.get(cell) == Some(&*count));
        for cell in left.keys() {
            add(&mut self.visits, &visit_key(key, *cell), Said::Delete)?;
        }
        Ok(())
    }

    fn end_entity(&mut self) -> Result<()> {
        let Some(mut going) = self.going.take() else {
            return Ok(());
        };
        if let Some(visits) = going.visits.take() {
            self.end_bucket(going.entity, &visits)?;
        }
        let (fleet, entity) = (self.fleet, going.entity);
        let row = EntityKey { fleet, entity }.to_bytes();
        if going.has_changed && !going.is_there {
            self.entities.put(&row, going.name.as_bytes())?;
        }
        let Some((time, cell, bytes)) = going.newest else {
            return Ok(());
        };
        self.counts.moved += 1;
        let value = Newest::encode(&going.name, (time, cell), &bytes);
        self.latest.put(&row, &value)?;
        let key = |cell| {
            CellKey {
                fleet,
                cell,
                entity,
            }
            .to_bytes()
        };
        if let Some((_, old)) = going.before.filter(|(_, old)| *old != cell) {
            self.index.add(&[&key(old), &[0]])?;
        }
        let here = Here::of(&going.name, time, &Point::decode(&bytes)?).encode();
        self.index.add(&[&key(cell), &[1], &here])
    }

    /// The tables of all families that have any.
    pub(super) fn finish(
        mut self,
        engine: &Engine,
        dir: &Path,
    ) -> Result<Vec<(Family, Vec<PathBuf>)>> {
        let mut visits = Tables::new(engine, dir, Family::Visits);
        let mut merged = self.visits.merged()?;
        let mut visit = Visit::default();
        while let Some(item) = merged.next()? {
            let parts = item.split_last();
            let (said, key) = parts.ok_or_else(|| Error::broken("a sorted visit that is none"))?;
            if visit.key != key {
                visit.end(&mut visits)?;
                visit = Visit {
                    key: key.to_vec(),
                    ..Visit::default()
                };
            }
            visit.add(*said)?;
        }
        visit.end(&mut visits)?;
        let mut index = Tables::new(engine, dir, Family::Geohash);
        let mut merged = self.index.merged()?;
        while let Some(item) = merged.next()? {
            let parts = item.split_at_checked(CellKey::LEN);
            let parts = parts.and_then(|(key, rest)| Some((key, rest.split_first()?)));
            match parts {
                Some((key, (1, value))) => index.put(key, value)?,
                Some((key, _)) => index.delete(key)?,
                None => return Err(Error::broken("a sorted row of the index that is none")),
            }
        }
        let all = vec![self.points, self.latest, self.entities, visits, index];
        all.into_iter().map(Tables::finish).collect()
    }
}

fn visit_cell(point: &Point) -> Cell {
    Cell::of(point.position).at_depth(VisitKey::DEPTH)
}

fn visit_key(of: PointKey, cell: Cell) -> [u8; VisitKey::LEN] {
    VisitKey {
        fleet: of.fleet,
        bucket: of.time.bucket(),
        cell,
        entity: of.entity,
    }
    .to_bytes()
}

fn add(visits: &mut Sorter, key: &[u8], said: Said) -> Result<()> {
    visits.add(&[key, &[said as u8]])
}

/// Calls `each` with the cells of the stored points in the bucket of `key`, or `None` for an unreadable point, as
/// long as it returns `true`.
fn each_there(
    view: &dyn View,
    key: PointKey,
    each: &mut dyn FnMut(Option<Cell>) -> Result<bool>,
) -> Result<()> {
    let bucket = key.time.bucket();
    let (start, end) = (bucket.start(), bucket.end());
    point_rows(view, (key.fleet, key.entity), start..end, &mut |row| {
        let cell = row.point().ok().map(|point| visit_cell(&point));
        Ok(if each(cell)? {
            ControlFlow::Continue(())
        } else {
            ControlFlow::Break(())
        })
    })
}
