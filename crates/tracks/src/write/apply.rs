//! From reports to rows: what one batch has.

use base::{Error, Result};

use super::admit::Outcome;
use super::hot::{Hot, Known, Newest};
use crate::geo::cell::Cell;
use crate::model::key::{CellKey, Entity, EntityKey, Fleet, PointKey, VisitKey};
use crate::model::name::Name;
use crate::model::newest::{self, Here};
use crate::model::point::Point;
use crate::model::report::Dated;
use crate::model::time::Time;
use crate::store::{Batch, Family, Store, damaged};

/// So many names may have the same hash before one is refused.
pub(crate) const TURNS: u64 = 8;

/// What is put in a batch, and what is known behind it.
pub(super) struct Round<'a> {
    store: &'a dyn Store,
    hot: &'a mut Hot,
    batch: Batch<'a>,
    /// The points of this batch: the store does not show them yet.
    points: Vec<(PointKey, Vec<u8>)>,
    /// The entities whose rows are in the batch.
    touched: Vec<(Fleet, Entity)>,
    with_visits: bool,
}

impl<'a> Round<'a> {
    pub(super) fn new(store: &'a dyn Store, hot: &'a mut Hot, with_visits: bool) -> Self {
        Self {
            store,
            hot,
            batch: Batch::new(store),
            points: Vec::new(),
            touched: Vec::new(),
            with_visits,
        }
    }

    /// Puts a report's rows in the batch. Errors: none of them is; the store's, those of a point that cannot be stored.
    pub(super) fn add(&mut self, fleet: Fleet, report: &Dated) -> Result<Outcome> {
        let Dated {
            entity: name,
            time,
            point,
        } = report;
        let encoded = point.encode()?;
        let entity = self.resolve(fleet, name)?;
        let at = (fleet, entity);
        let time = *time;
        let key = PointKey {
            fleet,
            entity,
            time,
        };
        let newest = self.hot.get(at).and_then(|known| known.newest);
        let is_late = newest.is_some_and(|n| time < n.time);
        if newest.is_some_and(|n| time <= n.time) && self.is_there(key, point)? {
            return Ok(Outcome::Same);
        }
        self.touched.push(at);
        let known = self.hot.get(at).ok_or_else(forgotten)?;
        let row = EntityKey { fleet, entity }.to_bytes();
        if !std::mem::replace(&mut known.is_named, true) {
            let name = name.as_str().as_bytes();
            self.batch.put(Family::Entities, &row, name)?;
        }
        self.batch.put(Family::Default, &key.to_bytes(), &encoded)?;
        let cell = Cell::of(point.position);
        let visit = (time.bucket(), cell.at_depth(VisitKey::DEPTH));
        if self.with_visits && known.visit() != Some(visit) {
            let key = VisitKey {
                fleet,
                bucket: visit.0,
                cell: visit.1,
                entity,
            };
            self.batch.put(Family::Visits, &key.to_bytes(), &[])?;
        }
        if !is_late {
            known.newest = Some(Newest::new(time, cell));
            known.visited(visit);
            let value = newest::Newest::encode(time, cell, &encoded);
            self.batch.put(Family::Latest, &row, &value)?;
            let old = newest.map(Newest::cell).filter(|&old| old != cell);
            self.index(at, (name.as_str(), time, cell), point, old)?;
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

    /// Whether a point is there already, with the same content: it may have come at another time.
    fn is_there(&self, key: PointKey, point: &Point) -> Result<bool> {
        let ours = self.points.iter().rev().find(|(k, _)| *k == key);
        let stored = match ours {
            Some((_, bytes)) => Some(bytes.clone()),
            None => self.store.get(Family::Default, &key.to_bytes())?,
        };
        let Some(bytes) = stored else {
            return Ok(false);
        };
        let mut there =
            Point::decode(&bytes).map_err(|e| damaged(Family::Default, &key.to_bytes(), &e))?;
        there.lag = point.lag;
        Ok(there == *point)
    }

    /// The number of a name, whose entity is known then.
    fn resolve(&mut self, fleet: Fleet, name: &Name) -> Result<Entity> {
        for turn in 0..TURNS {
            let entity = name.number(turn);
            let at = (fleet, entity);
            if let Some(known) = self.hot.get(at) {
                if known.name == *name {
                    return Ok(entity);
                }
                continue;
            }
            let key = EntityKey { fleet, entity }.to_bytes();
            let is_named = match self.store.get(Family::Entities, &key)? {
                Some(bytes) if bytes == name.as_str().as_bytes() => true,
                Some(_) => continue, // Another's, or one that was erased.
                None => false,
            };
            let newest = if is_named { self.newest(&key)? } else { None };
            let known = Known::new(name.clone(), is_named, newest);
            self.hot.insert(at, known);
            return Ok(entity);
        }
        Err(Error::not_supported(format!(
            "{name}: {TURNS} other names of the fleet have the same hash"
        ))
        .hint("use another name"))
    }

    fn newest(&self, key: &[u8]) -> Result<Option<Newest>> {
        let Some(bytes) = self.store.get(Family::Latest, key)? else {
            return Ok(None);
        };
        let newest::Newest { time, cell, .. } =
            newest::Newest::decode(&bytes).map_err(|e| damaged(Family::Latest, key, &e))?;
        Ok(Some(Newest::new(time, cell)))
    }

    /// Whether there is nothing to write.
    pub(super) fn is_empty(&self) -> bool {
        self.batch.ops.is_empty()
    }

    /// The batch, and whose rows it has.
    pub(super) fn finish(self) -> (Batch<'a>, Vec<(Fleet, Entity)>) {
        (self.batch, self.touched)
    }
}

fn forgotten() -> Error {
    Error::broken("an entity that was just looked up is not known")
}
