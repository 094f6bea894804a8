//! A view without rows that are older than their fleet keeps: readers see the same, whatever was
//! dropped already.

use base::{Error, Result};

use super::{Horizon, Horizons};
use crate::fence;
use crate::geo::cell::Cell;
use crate::model::key::{CellKey, Entity, EntityKey, Fleet, PointKey, VisitKey};
use crate::model::time::Time;
use crate::read::Patience;
use crate::store::{Family, Rows, View};

/// A view that hides rows before the horizons. Skipping them counts for the reader's patience.
pub(crate) fn hidden<'a>(
    view: Box<dyn View + 'a>,
    horizons: Horizons,
    patience: Option<&'a Patience>,
) -> Box<dyn View + 'a> {
    if horizons.is_empty() {
        return view;
    }
    Box::new(Hidden {
        view,
        horizons,
        patience,
    })
}

struct Hidden<'a> {
    view: Box<dyn View + 'a>,
    horizons: Horizons,
    patience: Option<&'a Patience>,
}

impl View for Hidden<'_> {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let found = self.view.get(family, key)?;
        Ok(found.filter(|value| next(&self.horizons, family, key, value).is_none()))
    }

    fn rows(&self, family: Family, from: &[u8], to: Option<&[u8]>) -> Result<Box<dyn Rows + '_>> {
        let rows = self.view.rows(family, from, to)?;
        Ok(match family {
            Family::Entities | Family::Meta | Family::Fences | Family::Inside => rows,
            _ => Box::new(HiddenRows {
                rows,
                family,
                horizons: &self.horizons,
                patience: self.patience,
                over: None,
            }),
        })
    }

    fn has_dead_rows(&self, family: Family, from: &[u8], to: Option<&[u8]>) {
        self.view.has_dead_rows(family, from, to);
    }
}

struct HiddenRows<'a> {
    rows: Box<dyn Rows + 'a>,
    family: Family,
    horizons: &'a Horizons,
    patience: Option<&'a Patience>,
    /// The error once the reader's patience has ended.
    over: Option<Error>,
}

impl HiddenRows<'_> {
    /// Moves on while the row is hidden.
    fn skip(&mut self) {
        while let Some((key, value)) = self.rows.row() {
            match next(self.horizons, self.family, key, value) {
                None => return,
                Some(Next::Row) => self.rows.next(),
                Some(Next::Key(key)) => self.rows.seek(&key),
            }
            if let Some(Err(e)) = self.patience.map(Patience::row) {
                self.over = Some(e);
                return;
            }
        }
    }
}

impl Rows for HiddenRows<'_> {
    fn seek(&mut self, key: &[u8]) {
        self.rows.seek(key);
        self.skip();
    }

    fn next(&mut self) {
        self.rows.next();
        self.skip();
    }

    fn row(&self) -> Option<(&[u8], &[u8])> {
        self.rows.row().filter(|_| self.over.is_none())
    }

    fn status(&self) -> Result<()> {
        match &self.over {
            Some(e) => Err(e.clone()),
            None => self.rows.status(),
        }
    }

    fn skipped(&self) -> u64 {
        self.rows.skipped()
    }
}

/// Where to go on after a hidden row.
enum Next {
    Row,
    Key(Vec<u8>),
}

/// `None` if the row is not hidden. Invalid rows are left to the reader.
fn next(horizons: &Horizons, family: Family, key: &[u8], value: &[u8]) -> Option<Next> {
    let fleet = Fleet(u32::from_be_bytes(*key.first_chunk()?));
    let Horizon { points, index } = *horizons.get(&fleet)?;
    // Both values begin with a time.
    let time = || {
        let bytes = value.first_chunk()?;
        Some(Time(i64::from_le_bytes(*bytes)))
    };
    match family {
        Family::Default => {
            let at = PointKey::of_bytes(key).ok().filter(|at| at.time < points)?;
            let to = PointKey { time: points, ..at };
            Some(Next::Key(to.to_bytes().to_vec()))
        }
        Family::Latest => {
            EntityKey::of_bytes(key).ok()?;
            (time()? < points).then_some(Next::Row)
        }
        Family::Geohash => {
            CellKey::of_bytes(key).ok()?;
            (time()? < index.max(points)).then_some(Next::Row)
        }
        Family::Visits => {
            let first = points.bucket();
            VisitKey::of_bytes(key)
                .ok()
                .filter(|at| at.bucket < first)?;
            Some(Next::Key(visits_from(fleet, points)))
        }
        Family::Events => {
            let first = fence::key(fleet, u64::try_from(points.0).unwrap_or(0));
            (key < &first[..]).then(|| Next::Key(first.to_vec()))
        }
        _ => None,
    }
}

/// The first key of the visits in the bucket of a time.
pub(super) fn visits_from(fleet: Fleet, time: Time) -> Vec<u8> {
    let key = VisitKey {
        fleet,
        bucket: time.bucket(),
        cell: Cell::of_number(0),
        entity: Entity(0),
    };
    key.to_bytes().to_vec()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use base::ErrorKind;
    use base::clock::SystemClock;

    use super::*;
    use crate::store::{Batch, Engine, Store as _};

    /// Skipping hidden rows counts for the patience of a query, so that it can be ended.
    #[test]
    fn passing_over_what_is_hidden_takes_patience() {
        let dir = tempfile::tempdir().unwrap();
        let store = Engine::open(dir.path()).unwrap();
        let mut batch = Batch::new(&store);
        for entity in 0..1000 {
            let fleet = Fleet(1);
            let key = EntityKey {
                fleet,
                entity: Entity(entity),
            };
            let value = [&5_i64.to_le_bytes()[..], &[0; 20]].concat();
            batch.put(Family::Latest, &key.to_bytes(), &value).unwrap();
        }
        batch.write(None).unwrap();
        let horizon = Horizon {
            points: Time(9),
            index: Time(9),
        };
        let ask = |most| {
            let patience = Patience::new(SystemClock::shared(), most);
            let horizons = [(Fleet(1), horizon)].into_iter().collect();
            let view = hidden(store.view(), horizons, Some(&patience));
            let mut rows = view.rows(Family::Latest, &[], None).unwrap();
            rows.seek(&[]);
            assert!(rows.row().is_none());
            rows.status()
        };
        assert!(ask(Duration::from_secs(60)).is_ok());
        assert_eq!(ask(Duration::ZERO).unwrap_err().kind(), ErrorKind::TimedOut);
    }
}
