//! Checks whether the rows of a store are consistent.
//!
//! Each entity has one row in the index, in the cell of its newest point; `latest` has that point
//! and the entity's name.
//! Each point has its visit, and an entity with a name. Each visit has a point, or a row in `meta`
//! notes that it may have none. Each fleet has a number of its own. Rows before the marks of a
//! fleet's retention may be gone: see [`keep`].

use std::collections::BTreeMap;
use std::fmt;
use std::ops::ControlFlow;

use base::Result;

use crate::fleets;
use crate::geo::cell::Cell;
use crate::keep::{self, Horizon};
use crate::model::key::{CellKey, Entity, EntityKey, Fleet, PointKey, VisitKey};
use crate::model::newest::{Here, Newest};
use crate::model::point::Point;
use crate::model::time::{Bucket, Time};
use crate::read::point_rows;
use crate::store::{Family, Hex, Rows, Store, View};
use crate::write::is_noted;

/// The most problems that are listed; the others are only counted.
const KEPT_MAX: usize = 100;
/// If an entity has more points than this in a bucket, they are read once for all its visits there,
/// as long as memory suffices.
const FEW: usize = 64;
/// The most cells in memory for this.
const CELLS_MAX: usize = 4_000_000;

/// A row that is invalid or contradicts others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The family of the row.
    pub family: Family,
    /// The key of the row.
    pub key: Vec<u8>,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (family, key) = (self.family.name(), Hex(&self.key));
        write!(f, "{family}, key {key}: {}", self.what)
    }
}

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// The number of points.
    pub points: u64,
    /// The number of entities with points.
    pub entities: u64,
    /// The number of visits.
    pub visits: u64,
    /// The number of visits without a point, which are problems as well: they may reveal an erased
    /// entity.
    pub alone: u64,
    /// The problems; at most the first hundred.
    pub problems: Vec<Problem>,
    /// The number of all problems.
    pub count: u64,
}

impl Findings {
    fn add(&mut self, family: Family, key: &[u8], what: impl fmt::Display) {
        self.count += 1;
        if self.problems.len() < KEPT_MAX {
            self.problems.push(Problem {
                family,
                key: key.to_vec(),
                what: what.to_string(),
            });
        }
    }
}

/// The options of a check.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Whether each point must have its visit.
    pub visits: bool,
}

/// Checks all rows of one state. `told` is called now and then with the number of rows read so far.
/// Errors: `NotSupported` if another release wrote the store; the store's.
pub fn check(store: &dyn Store, options: Options, told: &mut dyn FnMut(u64)) -> Result<Findings> {
    let view = store.view();
    fleets::has_version(&*view)?;
    let mut check = Check {
        marks: keep::marks(&*view)?,
        view: &*view,
        options,
        told,
        rows: 0,
        gathered: Gathered::default(),
        out: Findings::default(),
    };
    check.fleets()?;
    check.points()?;
    let newest = check.latest()?;
    let index = check.index()?;
    check.visits()?;
    let mut out = check.out;
    if newest != index && out.count == 0 {
        let what = format!("it has {index} rows, and latest has {newest}");
        out.add(Family::Geohash, &[], what);
    }
    Ok(out)
}

struct Check<'a> {
    view: &'a dyn View,
    marks: BTreeMap<Fleet, Horizon>,
    options: Options,
    told: &'a mut dyn FnMut(u64),
    rows: u64,
    gathered: Gathered,
    out: Findings,
}

/// The cells of entities that have many points in one bucket of a fleet.
#[derive(Default)]
struct Gathered {
    of: Option<(Fleet, Bucket)>,
    /// Sorted. `None` if a point is unreadable, so that it may be in any cell.
    cells: BTreeMap<Entity, Option<Vec<Cell>>>,
    count: usize,
}

impl Gathered {
    /// Whether a visit has a point. `None` if the entity's cells are not known.
    fn has(&mut self, visit: &VisitKey) -> Option<bool> {
        let of = Some((visit.fleet, visit.bucket));
        if self.of != of {
            *self = Self {
                of,
                ..Self::default()
            };
        }
        let cells = self.cells.get(&visit.entity)?.as_ref();
        Some(cells.is_none_or(|cells| cells.binary_search(&visit.cell).is_ok()))
    }

    fn keep(&mut self, entity: Entity, cells: Option<Vec<Cell>>) {
        let count = cells.as_ref().map_or(1, Vec::len);
        if self.count.saturating_add(count) <= CELLS_MAX {
            self.count += count;
            self.cells.insert(entity, cells);
        }
    }
}

/// The points of one entity, as they are read.
struct Going {
    at: (Fleet, Entity),
    last: Time,
    value: Vec<u8>,
    visit: Option<(Bucket, Cell)>,
}

impl<'a> Check<'a> {
    fn all(&self, family: Family) -> Result<Box<dyn Rows + 'a>> {
        let mut rows = self.view.rows(family, &[], None)?;
        rows.seek(&[]);
        Ok(rows)
    }

    fn horizon(&self, fleet: Fleet) -> Horizon {
        self.marks.get(&fleet).copied().unwrap_or_default()
    }

    fn tick(&mut self) {
        self.rows += 1;
        if self.rows.is_multiple_of(65_536) {
            (self.told)(self.rows);
        }
    }

    fn fleets(&mut self) -> Result<()> {
        let (view, out) = (self.view, &mut self.out);
        let mut names = BTreeMap::new();
        fleets::rows(view, &mut |key, info| {
            match info {
                Ok(info) => {
                    let before = names.insert(info.fleet, info.name.clone());
                    if let Some(other) = before {
                        out.add(Family::Meta, key, fleets::mixed(&info.name, &other));
                    }
                }
                Err(e) => out.add(Family::Meta, key, e),
            }
            Ok(())
        })
    }

    fn points(&mut self) -> Result<()> {
        let mut rows = self.all(Family::Default)?;
        let mut going: Option<Going> = None;
        while let Some((key, value)) = rows.row() {
            self.out.points += 1;
            match (PointKey::of_bytes(key), Point::decode(value)) {
                (Ok(at), Ok(point)) => self.point(&mut going, at, &point, value)?,
                (Err(e), _) | (_, Err(e)) => self.out.add(Family::Default, key, e),
            }
            rows.next();
            self.tick();
        }
        rows.status()?;
        going.map_or(Ok(()), |going| self.end(&going))
    }

    fn point(
        &mut self,
        going: &mut Option<Going>,
        key: PointKey,
        point: &Point,
        value: &[u8],
    ) -> Result<()> {
        let at = (key.fleet, key.entity);
        if going.as_ref().is_none_or(|going| going.at != at) {
            let new = Going {
                at,
                last: key.time,
                value: Vec::new(),
                visit: None,
            };
            if let Some(done) = going.replace(new) {
                self.end(&done)?;
            }
        }
        let Some(going) = going else {
            return Ok(());
        };
        going.last = key.time;
        value.clone_into(&mut going.value);
        let cell = Cell::of(point.position).at_depth(VisitKey::DEPTH);
        let visit = (key.time.bucket(), cell);
        let is_kept = key.time >= self.horizon(key.fleet).points;
        if is_kept && self.options.visits && going.visit != Some(visit) {
            going.visit = Some(visit);
            let visit = VisitKey {
                fleet: key.fleet,
                bucket: visit.0,
                cell,
                entity: key.entity,
            };
            if self.view.get(Family::Visits, &visit.to_bytes())?.is_none() {
                self.out
                    .add(Family::Default, &key.to_bytes(), "its visit is missing");
            }
        }
        Ok(())
    }

    /// Checks an entity after its last point.
    fn end(&mut self, going: &Going) -> Result<()> {
        let (fleet, entity) = going.at;
        self.out.entities += 1;
        if going.last < self.horizon(fleet).points {
            return Ok(());
        }
        let key = EntityKey { fleet, entity }.to_bytes();
        let name = self.view.get(Family::Entities, &key)?;
        if name.is_none_or(|name| name.is_empty()) {
            self.out
                .add(Family::Entities, &key, "an entity with points has no name");
        }
        let Some(bytes) = self.view.get(Family::Latest, &key)? else {
            self.out
                .add(Family::Latest, &key, "the newest point is missing");
            return Ok(());
        };
        // The times are compared, too: two points of an entity that stands still may be equal
        // otherwise.
        let parts = Newest::parts(&bytes).ok();
        if parts.map(|parts| (parts.time, parts.point)) != Some((going.last, &going.value)) {
            self.out
                .add(Family::Latest, &key, "it is not the newest point's");
        }
        Ok(())
    }

    fn latest(&mut self) -> Result<u64> {
        let mut rows = self.all(Family::Latest)?;
        let mut count = 0;
        while let Some((key, value)) = rows.row() {
            match (EntityKey::of_bytes(key), Newest::decode(value)) {
                (Ok(at), Ok(newest)) => count += u64::from(self.newest(at, &newest)?),
                (Err(e), _) | (_, Err(e)) => self.out.add(Family::Latest, key, e),
            }
            rows.next();
            self.tick();
        }
        rows.status()?;
        Ok(count)
    }

    /// Checks a row of `latest`. Returns whether the index must have, or has, a row of the entity.
    fn newest(&mut self, at: EntityKey, newest: &Newest<'_>) -> Result<bool> {
        let EntityKey { fleet, entity } = at;
        let key = at.to_bytes();
        if newest.cell != Cell::of(newest.point.position) {
            self.out
                .add(Family::Latest, &key, "its cell is not its position's");
        }
        let point = PointKey {
            fleet,
            entity,
            time: newest.time,
        };
        let horizon = self.horizon(fleet);
        let is_kept = newest.time >= horizon.points;
        if is_kept && self.view.get(Family::Default, &point.to_bytes())?.is_none() {
            self.out
                .add(Family::Latest, &key, "the point is not in default");
        }
        let row = CellKey {
            fleet,
            cell: newest.cell,
            entity,
        };
        let name = self.view.get(Family::Entities, &key)?.unwrap_or_default();
        if name != newest.name.as_bytes() {
            self.out
                .add(Family::Latest, &key, "its name is not the entity's");
        }
        let here = str::from_utf8(&name).map(|name| Here::of(name, newest.time, &newest.point));
        let here = here.map(|here| here.encode()).unwrap_or_default();
        let found = self.view.get(Family::Geohash, &row.to_bytes())?;
        if found.is_none() && newest.time < horizon.index.max(horizon.points) {
            return Ok(false);
        }
        if found != Some(here) {
            self.out.add(
                Family::Geohash,
                &row.to_bytes(),
                "it is not as latest has it",
            );
        }
        Ok(true)
    }

    fn index(&mut self) -> Result<u64> {
        let mut rows = self.all(Family::Geohash)?;
        let mut count = 0;
        while let Some((key, value)) = rows.row() {
            count += 1;
            match (CellKey::of_bytes(key), Here::decode(value)) {
                (Ok(at), Ok(_)) => {
                    let CellKey { fleet, entity, .. } = at;
                    let newest = EntityKey { fleet, entity }.to_bytes();
                    let bytes = self.view.get(Family::Latest, &newest)?;
                    let cell = bytes.and_then(|bytes| Some(Newest::decode(&bytes).ok()?.cell));
                    if cell != Some(at.cell) {
                        let what = "the entity is in another cell";
                        self.out.add(Family::Geohash, key, what);
                    }
                }
                (Err(e), _) | (_, Err(e)) => self.out.add(Family::Geohash, key, e),
            }
            rows.next();
            self.tick();
        }
        rows.status()?;
        Ok(count)
    }

    fn visits(&mut self) -> Result<()> {
        let mut rows = self.all(Family::Visits)?;
        while let Some((key, _)) = rows.row() {
            self.out.visits += 1;
            match VisitKey::of_bytes(key) {
                Ok(visit) if !self.has_point(&visit)? && !is_noted(self.view, &visit)? => {
                    let what = "the entity has no point there: an erasure leaves it";
                    self.out.alone += 1;
                    self.out.add(Family::Visits, key, what);
                }
                Ok(_) => {}
                Err(e) => self.out.add(Family::Visits, key, e),
            }
            rows.next();
            self.tick();
        }
        rows.status()
    }

    /// Whether a visit has a point, or may have one that is unreadable or was dropped.
    fn has_point(&mut self, visit: &VisitKey) -> Result<bool> {
        let VisitKey { fleet, entity, .. } = *visit;
        let (start, end) = (visit.bucket.start(), visit.bucket.end());
        if start < self.horizon(fleet).points {
            return Ok(true);
        }
        if let Some(has) = self.gathered.has(visit) {
            return Ok(has);
        }
        let (mut has, mut count, mut is_known) = (false, 0, true);
        // `None` once there are too many: then each visit is looked up separately.
        let mut cells = Some(Vec::new());
        point_rows(self.view, (fleet, entity), start..end, &mut |row| {
            count += 1;
            let cell = row.point().map(|point| Cell::of(point.position));
            let Ok(cell) = cell.map(|cell| cell.at_depth(VisitKey::DEPTH)) else {
                (has, is_known) = (true, false);
                return Ok(ControlFlow::Break(()));
            };
            has |= cell == visit.cell;
            if let Some(all) = cells.as_mut().filter(|all| all.last() != Some(&cell)) {
                all.push(cell);
                if all.len() > CELLS_MAX {
                    cells = None;
                }
            }
            let is_enough = has && (count <= FEW || cells.is_none());
            Ok(if is_enough {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            })
        })?;
        if !is_known {
            self.gathered.keep(entity, None);
        } else if count > FEW
            && let Some(mut cells) = cells
        {
            cells.sort_unstable();
            cells.dedup();
            self.gathered.keep(entity, Some(cells));
        }
        Ok(has)
    }
}

#[cfg(test)]
mod tests {
    use base::sync::atomic::{AtomicU64, Ordering};
    use std::sync::Arc;

    use super::*;
    use crate::geo::position::at;
    use crate::store::faulty::{Act, Faulty};
    use crate::store::{Batch, Engine};

    /// The points of a bucket are read once for all its visits.
    #[test]
    fn the_points_of_many_visits_are_read_once() {
        const COUNT: usize = 500;
        let dir = tempfile::tempdir().unwrap();
        let reads = Arc::new(AtomicU64::new(0));
        let its = Arc::clone(&reads);
        let store = Faulty::new(Engine::open(dir.path()).unwrap(), move |act| {
            if matches!(act, Act::Row(Family::Default, _)) {
                its.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        let (fleet, entity) = (Fleet(1), Entity(7));
        let mut batch = Batch::new(&*store);
        for n in 0..COUNT {
            let point = Point::at(at(50.0 + n as f64 / 100.0, 18.0));
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
            // One visit has no point.
            if n != 77 {
                let value = point.encode().unwrap();
                batch.put(Family::Default, &key.to_bytes(), &value).unwrap();
            }
            batch.put(Family::Visits, &visit.to_bytes(), &[]).unwrap();
        }
        batch.write(None).unwrap();
        let found = check(&*store, Options { visits: true }, &mut |_| ()).unwrap();
        assert_eq!((found.visits, found.alone), (COUNT as u64, 1));
        let reads = reads.load(Ordering::Relaxed);
        // Once for the points themselves, and once for their visits, except those that are found
        // among the first few.
        assert!(reads <= (2 * COUNT + FEW * FEW) as u64, "{reads}");
    }
}
