//! The rows of some ranges of cells, by one iterator.

use base::Result;

use super::patience::Patience;
use crate::geo::cell::Cell;
use crate::geo::cover::Range;
use crate::model::key::{CellKey, Entity, Fleet, behind};
use crate::model::newest::Here;
use crate::store::{Family, Rows, View, damaged};

/// A range that begins so few rows farther on is reached by as many steps: a step costs a tenth of a seek.
const STEPS: u32 = 8;

/// A row of the index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    pub(super) cell: Cell,
    pub(super) entity: Entity,
    pub(super) here: Here<'a>,
    /// All of the range is in the area.
    pub(super) is_inside: bool,
}

/// See the module.
pub(super) struct Scan<'a> {
    rows: Box<dyn Rows + 'a>,
    fleet: Fleet,
    patience: &'a Patience,
}

impl<'a> Scan<'a> {
    pub(super) fn new(view: &'a dyn View, fleet: Fleet, patience: &'a Patience) -> Result<Self> {
        let prefix = fleet.prefix();
        let rows = view.rows(Family::Geohash, &prefix, behind(&prefix).as_deref())?;
        Ok(Self {
            rows,
            fleet,
            patience,
        })
    }

    /// Gives `each` the rows of ranges, which are in order, from a key on, until it says that it is enough. Returns whether
    /// it did.
    pub(super) fn ranges(
        &mut self,
        ranges: &[Range],
        from: Option<CellKey>,
        each: &mut dyn FnMut(Found<'_>) -> Result<bool>,
    ) -> Result<bool> {
        let mut steps = 0;
        for range in ranges {
            let Some(start) = self.start(range, from) else {
                continue;
            };
            self.go_to(&start.to_bytes(), steps)?;
            steps = STEPS;
            if self.range(range, each)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Where a range begins; `None`: it lies before `from`.
    fn start(&self, range: &Range, from: Option<CellKey>) -> Option<CellKey> {
        let first = CellKey {
            fleet: self.fleet,
            cell: Cell::of_number(range.first),
            entity: Entity(0),
        };
        match from {
            Some(from) if from.cell.range().0 > range.last => None,
            Some(from) => Some(first.max(from)),
            None => Some(first),
        }
    }

    /// Goes to the first row that is not before `key`: by steps from where it is, if it is not behind and these are enough.
    fn go_to(&mut self, key: &[u8], steps: u32) -> Result<()> {
        for _ in 0..steps {
            match self.rows.row() {
                Some((at, _)) if at < key => self.next()?,
                Some(_) => return Ok(()),
                None => return self.rows.status(),
            }
        }
        if steps == 0 || self.rows.row().is_some_and(|(at, _)| at < key) {
            self.rows.seek(key);
        }
        Ok(())
    }

    fn next(&mut self) -> Result<()> {
        self.rows.next();
        self.patience.row()
    }

    fn range(
        &mut self,
        range: &Range,
        each: &mut dyn FnMut(Found<'_>) -> Result<bool>,
    ) -> Result<bool> {
        loop {
            let Some((key, value)) = self.rows.row() else {
                self.rows.status()?;
                return Ok(false);
            };
            let CellKey { cell, entity, .. } = CellKey::of_bytes(key)?;
            if cell.range().0 > range.last {
                return Ok(false);
            }
            let here = Here::decode(value).map_err(|e| damaged(Family::Geohash, key, &e))?;
            let found = Found {
                cell,
                entity,
                here,
                is_inside: range.is_inside,
            };
            let is_enough = each(found)?;
            self.next()?;
            if is_enough {
                return Ok(true);
            }
        }
    }
}
