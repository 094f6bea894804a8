//! The rows of some ranges of cells, by one iterator.
//!
//! Each cell that an entity leaves has a deletion, until compaction meets it. Where a reader passes over far more of them
//! than it finds rows, it tells the store.

use base::Result;

use super::patience::Patience;
use crate::geo::cell::{Cell, DEPTH_MAX};
use crate::geo::cover::Range;
use crate::model::key::{CellKey, Entity, Fleet, behind};
use crate::model::newest::Here;
use crate::store::{Family, Rows, View, damaged};

/// A range that begins so few rows farther on is reached by as many steps: a step costs a tenth of a seek.
const STEPS: u32 = 8;

/// A reader that has passed over so many times as many dead rows as it found tells the store…
const DEAD_PER_ROW: u64 = 8;
/// …if they are so many.
const DEAD_MIN: u64 = 500;
/// The store is told of a whole cell of so many bits, 40 by 20 km at the equator: neighbours have the same dead rows.
const TOLD_DEPTH: u8 = 20;

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
    view: &'a dyn View,
    rows: Box<dyn Rows + 'a>,
    fleet: Fleet,
    patience: &'a Patience,
    /// Rows that were read.
    found: u64,
    /// The first and the last cell of what was read.
    between: Option<(u64, u64)>,
}

impl<'a> Scan<'a> {
    pub(super) fn new(view: &'a dyn View, fleet: Fleet, patience: &'a Patience) -> Result<Self> {
        let prefix = fleet.prefix();
        let rows = view.rows(Family::Geohash, &prefix, behind(&prefix).as_deref())?;
        Ok(Self {
            view,
            rows,
            fleet,
            patience,
            found: 0,
            between: None,
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
            let (first, last) = self.between.unwrap_or((range.first, range.last));
            self.between = Some((first.min(range.first), last.max(range.last)));
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
        self.found += 1;
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

impl Drop for Scan<'_> {
    fn drop(&mut self) {
        let skipped = self.rows.skipped();
        self.patience.skipped_more(skipped);
        let Some((first, last)) = self.between else {
            return;
        };
        if skipped < DEAD_MIN.max(DEAD_PER_ROW * self.found) {
            return;
        }
        let shift = DEPTH_MAX - TOLD_DEPTH;
        let (first, next) = (first >> shift << shift, ((last >> shift) + 1) << shift);
        let prefix = self.fleet.prefix();
        let key = |number| {
            let cell = Cell::of_number(number);
            let (fleet, entity) = (self.fleet, Entity(0));
            CellKey {
                fleet,
                cell,
                entity,
            }
            .to_bytes()
        };
        let is_last = next >> DEPTH_MAX != 0;
        let end = if is_last {
            behind(&prefix)
        } else {
            Some(key(next).to_vec())
        };
        self.view
            .has_dead_rows(Family::Geohash, &key(first), end.as_deref());
    }
}
