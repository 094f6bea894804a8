//! Scans rows of the index in ranges of cells, with one iterator.
//!
//! Each cell that an entity leaves has a tombstone until a compaction removes it. A reader that
//! skips far more of them than it finds rows tells the store.

use base::Result;

use super::patience::Patience;
use crate::geo::cell::{Cell, DEPTH_MAX};
use crate::geo::cover::Range;
use crate::model::key::{CellKey, Entity, Fleet, behind};
use crate::model::newest::Here;
use crate::store::{Family, Rows, View, damaged};

/// How many steps are tried to reach the next range before a seek: a step costs a tenth of a seek.
const STEPS: u32 = 8;

/// A reader tells the store if it has skipped this many times as many dead rows as it has found
/// rows…
const DEAD_PER_ROW: u64 = 8;
/// …and at least this many.
const DEAD_MIN: u64 = 500;
/// The depth of the cell that is reported, 40 by 20 km at the equator: its parts have the same dead
/// rows.
const TOLD_DEPTH: u8 = 20;

/// A row of the index.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found<'a> {
    pub(super) cell: Cell,
    pub(super) entity: Entity,
    pub(super) here: Here<'a>,
    /// Whether the whole range is inside the area.
    pub(super) is_inside: bool,
}

/// Reads ranges of the index; see the module.
pub(super) struct Scan<'a> {
    view: &'a dyn View,
    rows: Box<dyn Rows + 'a>,
    fleet: Fleet,
    patience: &'a Patience,
    /// The number of rows that were read.
    found: u64,
    /// The first and the last cell of the ranges that were read.
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

    /// Calls `each` with the rows of sorted ranges, from a key on, until it returns `true`. Returns
    /// whether it did.
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

    /// The first key of a range; `None` if the whole range is before `from`.
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

    /// Goes to the first row that is not before `key`: by up to `steps` steps, then by a seek.
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
