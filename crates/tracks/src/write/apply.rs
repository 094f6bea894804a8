//! Turns reports into the rows of one batch.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, Result};

use super::admit::Outcome;
use super::hot::{Fenced, Hot, Known, Newest};
use super::visits::{self, Replaced, Visit};
use crate::fence::{self, Event, Fences, Index, Judged, Moved, State, judge};
use crate::geo::cell::Cell;
use crate::live::{Moved as Live, Wanted};
use crate::model::key::{CellKey, Entity, EntityKey, Fleet, PointKey, VisitKey};
use crate::model::name::{Name, TURNS};
use crate::model::newest::{self, Here};
use crate::model::point::Point;
use crate::model::report::Dated;
use crate::model::time::Time;
use crate::store::{Batch, Family, Store, damaged};

/// The fleet that the reports belong to, and its limits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Of {
    pub(super) fleet: Fleet,
    /// The worst accuracy, dm, and the highest speed, m/s, at which reports count for fences.
    pub(super) limits: (u16, f64),
}

/// A batch under construction, and the state after the reports in it.
pub(super) struct Round<'a> {
    store: &'a dyn Store,
    hot: &'a mut Hot,
    batch: Batch<'a>,
    /// The points of this batch, which the store does not show yet.
    points: Vec<(PointKey, Vec<u8>)>,
    replaced: Replaced,
    /// The events of fences.
    events: Vec<(Fleet, Event)>,
    fences: &'a Fences,
    /// The fences of the fleets of this round, as of its beginning. A later round never sees older
    /// ones.
    indexes: BTreeMap<Fleet, Option<Arc<Index>>>,
    /// The entities with rows in the batch.
    touched: Vec<(Fleet, Entity)>,
    /// The fleets whose positions have listeners.
    wanted: Option<Arc<Wanted>>,
    moved: Vec<Live>,
    with_visits: bool,
}

/// The result of a round.
pub(super) struct Done<'a> {
    /// The batch to write, or why it cannot be built.
    pub(super) batch: Result<Batch<'a>>,
    /// The entities with rows in the batch.
    pub(super) touched: Vec<(Fleet, Entity)>,
    /// The entities that have moved, of fleets with listeners.
    pub(super) moved: Vec<Live>,
}

impl<'a> Round<'a> {
    pub(super) fn new(
        (store, fences): (&'a dyn Store, &'a Fences),
        hot: &'a mut Hot,
        with_visits: bool,
    ) -> Self {
        Self {
            store,
            hot,
            batch: Batch::new(store),
            points: Vec::new(),
            replaced: Replaced::default(),
            events: Vec::new(),
            fences,
            indexes: BTreeMap::new(),
            touched: Vec::new(),
            wanted: None,
            moved: Vec::new(),
            with_visits,
        }
    }

    /// Sets the fleets that have listeners.
    pub(super) fn listened(&mut self, wanted: Option<Arc<Wanted>>) {
        self.wanted = wanted;
    }

    /// Prefetches entities whose reports will be added soon.
    pub(super) fn warm(&self, entities: impl Iterator<Item = (Fleet, Entity)>) {
        self.hot.warm(entities);
    }

    /// Adds a report's rows to the batch. On an error, none of them is added. Errors: the store's;
    /// those of a point that cannot be stored. `first` is the number of the report's name, unless
    /// another name has it.
    pub(super) fn add(&mut self, of: &Of, first: Entity, report: &Dated) -> Result<Outcome> {
        let fleet = of.fleet;
        let Dated {
            entity: name,
            time,
            point,
        } = report;
        let encoded = point.encode()?;
        let entity = self.resolve(fleet, first, name)?;
        let at = (fleet, entity);
        let time = *time;
        let key = PointKey {
            fleet,
            entity,
            time,
        };
        let newest = self.hot.get(at).and_then(|known| known.newest);
        let is_late = newest.is_some_and(|n| time < n.time);
        let old = match newest {
            Some(newest) if time <= newest.time => self.there(key)?,
            _ => None,
        };
        if old.as_ref().is_some_and(|old| is_same(old, point)) {
            return Ok(Outcome::Same);
        }
        let judged = if is_late {
            Judged::default()
        } else {
            self.judge(of, at, report)?
        };
        self.touched.push(at);
        let visit = (time.bucket(), visits::cell_of(point));
        self.replace(key, (old.as_ref(), visit.1))?;
        let known = self.hot.get(at).ok_or_else(forgotten)?;
        let row = EntityKey { fleet, entity }.to_bytes();
        if !std::mem::replace(&mut known.is_named, true) {
            let name = name.as_str().as_bytes();
            self.batch.put(Family::Entities, &row, name)?;
        }
        self.batch.put(Family::Default, &key.to_bytes(), &encoded)?;
        let cell = Cell::of(point.position);
        if self.with_visits && known.visit() != Some(visit) {
            let key = visit_of(key, visit.1).to_bytes();
            self.batch.put(Family::Visits, &key, &[])?;
        }
        if !is_late {
            known.newest = Some(Newest::new(time, cell));
            known.visited(visit);
            let value = newest::Newest::encode(name.as_str(), (time, cell), &encoded);
            self.batch.put(Family::Latest, &row, &value)?;
            let old = newest.map(Newest::cell).filter(|&old| old != cell);
            self.index(at, (name.as_str(), time, cell), point, old)?;
            self.fenced(at, report, judged)?;
            self.told(at, report, newest.map(Newest::cell));
        }
        self.points.push((key, encoded));
        Ok(if is_late {
            Outcome::Late
        } else {
            Outcome::Moved
        })
    }

    fn index(
        &mut self,
        (fleet, entity): (Fleet, Entity),
        (name, time, cell): (&str, Time, Cell),
        point: &Point,
        old: Option<Cell>,
    ) -> Result<()> {
        let key = |cell| {
            CellKey {
                fleet,
                cell,
                entity,
            }
            .to_bytes()
        };
        if let Some(old) = old {
            self.batch.delete(Family::Geohash, &key(old))?;
        }
        let here = Here::of(name, time, point).encode();
        self.batch.put(Family::Geohash, &key(cell), &here)
    }

    /// Notes the position of an entity for listeners.
    fn told(&mut self, (fleet, entity): (Fleet, Entity), report: &Dated, before: Option<Cell>) {
        let is_wanted = |wanted: &Arc<Wanted>| wanted.contains_key(&fleet);
        if !self.wanted.as_ref().is_some_and(is_wanted) {
            return;
        }
        let point = &report.point;
        self.moved.push(Live {
            fleet,
            entity,
            name: report.entity.clone(),
            time: report.time,
            position: point.position,
            speed: point.speed,
            course: point.course,
            tags: point.tags,
            before,
        });
    }

    /// The effect of a report that moves an entity on its fences.
    fn judge(&mut self, of: &Of, at: (Fleet, Entity), report: &Dated) -> Result<Judged> {
        let fences = self.fences;
        let index = self
            .indexes
            .entry(of.fleet)
            .or_insert_with(|| fences.of(of.fleet));
        let index = index.clone().filter(|index| !index.is_empty());
        let known = self.hot.get(at).ok_or_else(forgotten)?;
        let Some(index) = index else {
            // Without fences, it is not kept up to date.
            known.fenced = None;
            return Ok(Judged::default());
        };
        if known.fenced.is_none() {
            let fenced = match known.newest {
                Some(newest) => self.read_fenced(at, newest.time)?,
                None => Fenced {
                    state: State::default(),
                    last: None,
                },
            };
            let known = self.hot.get(at).ok_or_else(forgotten)?;
            known.fenced = Some(Box::new(fenced));
        }
        let known = self.hot.get(at).ok_or_else(forgotten)?;
        let fenced = known.fenced.as_deref().ok_or_else(forgotten)?;
        let moved = Moved {
            before: fenced.last,
            time: report.time,
            position: report.point.position,
            tags: report.point.tags,
            accuracy: report.point.accuracy,
        };
        Ok(judge(&index, &fenced.state, moved, of.limits))
    }

    /// The stored state of an entity at fences; `newest` is the time of its newest point.
    fn read_fenced(&self, (fleet, entity): (Fleet, Entity), newest: Time) -> Result<Fenced> {
        let key = EntityKey { fleet, entity }.to_bytes();
        let state = match self.store.get(Family::Inside, &key)? {
            Some(bytes) => State::decode(&bytes).map_err(|e| damaged(Family::Inside, &key, &e))?,
            None => State::default(),
        };
        // The newest point may be in this batch.
        let its = PointKey {
            fleet,
            entity,
            time: newest,
        };
        let ours = self.points.iter().rev().find(|(k, _)| *k == its);
        let last = match ours {
            Some((_, bytes)) => Some((newest, Point::decode(bytes)?)),
            None => self
                .store
                .get(Family::Latest, &key)?
                .map_or(Ok(None), |bytes| {
                    let newest = newest::Newest::decode(&bytes)
                        .map_err(|e| damaged(Family::Latest, &key, &e))?;
                    Ok::<_, Error>(Some((newest.time, newest.point)))
                })?,
        };
        Ok(Fenced {
            state,
            last: last.map(|(time, point)| (time, point.position, point.tags)),
        })
    }

    /// Adds the new state at fences and the events of a report to the batch.
    fn fenced(&mut self, at: (Fleet, Entity), report: &Dated, judged: Judged) -> Result<()> {
        let (fleet, entity) = at;
        let known = self.hot.get(at).ok_or_else(forgotten)?;
        let Some(fenced) = known.fenced.as_deref_mut() else {
            return Ok(());
        };
        let (position, tags) = (report.point.position, report.point.tags);
        fenced.last = Some((report.time, position, tags));
        if let Some(state) = judged.state {
            let key = EntityKey { fleet, entity }.to_bytes();
            self.batch.put(Family::Inside, &key, &state.encode())?;
            fenced.state = state;
        }
        let (lat, lon) = position.degrees();
        let events = judged.events.into_iter().map(|(kind, fence)| Event {
            id: 0,
            kind,
            fence: fence.name.to_string(),
            entity: report.entity.to_string(),
            time: report.time.0,
            lat,
            lon,
        });
        self.events.extend(events.map(|event| (fleet, event)));
        Ok(())
    }

    /// Deletes the visit of a point that is replaced, if no other point has it.
    fn replace(&mut self, key: PointKey, (old, new): (Option<&Point>, Cell)) -> Result<()> {
        let old = old.map(visits::cell_of);
        let points = (self.store, &*self.points);
        let visit = self.replaced.put(points, key, (old, new))?;
        let Some(its) = old.map(|old| visit_of(key, old)) else {
            return Ok(());
        };
        match visit {
            Visit::Goes => self.batch.delete(Family::Visits, &its.to_bytes()),
            // Also if visits are no longer written: there may be visits from before.
            Visit::Unknown => visits::note(&mut self.batch, &its),
            Visit::Stays => Ok(()),
        }
    }

    /// The point at a time.
    fn there(&self, key: PointKey) -> Result<Option<Point>> {
        let ours = self.points.iter().rev().find(|(k, _)| *k == key);
        let stored = match ours {
            Some((_, bytes)) => Some(bytes.clone()),
            None => self.store.get(Family::Default, &key.to_bytes())?,
        };
        let there = stored.map(|bytes| Point::decode(&bytes)).transpose();
        there.map_err(|e| damaged(Family::Default, &key.to_bytes(), &e))
    }

    /// The number of the entity with a name, whose entity is then in the cache. If there is none,
    /// it gets the first of its numbers that is erased or unused.
    fn resolve(&mut self, fleet: Fleet, first: Entity, name: &Name) -> Result<Entity> {
        let mut free = None;
        for turn in 0..TURNS {
            let entity = match turn {
                0 => first,
                _ => name.number(turn),
            };
            let at = (fleet, entity);
            if let Some(known) = self.hot.get(at) {
                if known.name == *name {
                    return Ok(entity);
                }
                continue;
            }
            let key = EntityKey { fleet, entity }.to_bytes();
            match self.owner(&key, name)? {
                Owner::This(newest) => {
                    self.hot.insert(at, Known::new(name.clone(), true, newest));
                    return Ok(entity);
                }
                Owner::Other => {}
                Owner::Erased => free = free.or(Some(entity)),
                Owner::Nobody => {
                    free = free.or(Some(entity));
                    break;
                }
            }
        }
        let Some(entity) = free else {
            return Err(Error::not_supported(format!(
                "{name}: {TURNS} other names of the fleet have the same hash"
            ))
            .hint("use another name"));
        };
        self.hot
            .insert((fleet, entity), Known::new(name.clone(), false, None));
        Ok(entity)
    }

    /// Whose a number is. An entity with points has its name in `latest`, too, so that one read finds it. A new one is in
    /// neither family. Since new ones often come one after another, what the last one was decides where to look first.
    fn owner(&mut self, key: &[u8], name: &Name) -> Result<Owner> {
        let is_its = |its: &[u8]| its == name.as_str().as_bytes();
        let were_new = self.hot.were_new;
        let mut latest = None;
        if !were_new {
            latest = self.in_latest(key, is_its)?;
            if let Some((newest, true)) = latest {
                return Ok(Owner::This(Some(newest)));
            }
        }
        let bytes = self.store.get(Family::Entities, key)?;
        self.hot.were_new = bytes.is_none();
        match bytes {
            None => return Ok(Owner::Nobody),
            Some(bytes) if bytes.is_empty() => return Ok(Owner::Erased),
            Some(bytes) if !is_its(&bytes) => return Ok(Owner::Other),
            Some(_) => {}
        }
        if were_new {
            latest = self.in_latest(key, is_its)?;
        }
        match latest {
            None => Ok(Owner::This(None)),
            Some((newest, true)) => Ok(Owner::This(Some(newest))),
            Some((_, false)) => {
                let e = Error::corruption("its name is not that in entities");
                Err(damaged(Family::Latest, key, &e))
            }
        }
    }

    /// The newest point under a number, and whether it is that of the wanted name.
    fn in_latest(
        &self,
        key: &[u8],
        is_its: impl Fn(&[u8]) -> bool,
    ) -> Result<Option<(Newest, bool)>> {
        let Some(bytes) = self.store.get(Family::Latest, key)? else {
            return Ok(None);
        };
        let parts = newest::Newest::parts(&bytes).map_err(|e| damaged(Family::Latest, key, &e))?;
        let newest = Newest::new(parts.time, parts.cell);
        Ok(Some((newest, is_its(parts.name))))
    }

    /// Whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.batch.ops.is_empty()
    }

    /// The number of events.
    pub(super) fn events(&self) -> usize {
        self.events.len()
    }

    /// The fleets of the events, in order.
    pub(super) fn fleets_of_events(&self) -> Vec<Fleet> {
        self.events.iter().map(|(fleet, _)| *fleet).collect()
    }

    /// The batch, with the events under these ids.
    pub(super) fn finish(mut self, ids: impl Iterator<Item = u64>) -> Done<'a> {
        let mut put = |id, fleet, event: &Event| {
            let value = serde_json::to_vec(event).map_err(|e| Error::broken(e.to_string()))?;
            self.batch
                .put(Family::Events, &fence::key(fleet, id), &value)
        };
        let mut all = ids.zip(&self.events);
        let done = all.try_for_each(|(id, (fleet, event))| put(id, *fleet, event));
        Done {
            batch: done.map(|()| self.batch),
            touched: self.touched,
            moved: self.moved,
        }
    }
}

/// Whose the number of an entity is.
enum Owner {
    /// The name's. `None`: it has no points.
    This(Option<Newest>),
    /// Another name's, which has the same hash.
    Other,
    /// That of an entity that was erased.
    Erased,
    Nobody,
}

/// Whether a point has the same content as another one, whose arrival may differ.
fn is_same(there: &Point, point: &Point) -> bool {
    let lag = point.lag;
    let there = Point {
        lag,
        ..there.clone()
    };
    there == *point
}

fn visit_of(of: PointKey, cell: Cell) -> VisitKey {
    VisitKey {
        fleet: of.fleet,
        bucket: of.time.bucket(),
        cell,
        entity: of.entity,
    }
}

fn forgotten() -> Error {
    Error::broken("an entity that was just looked up is not known")
}
