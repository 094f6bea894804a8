//! The nearest entities: best-first search in the tree of cells.
//!
//! The cell whose nearest place is the nearest is examined next. A cell with few rows is read, one
//! with more is halved. The search ends when that cell is farther away than the last of enough
//! hits. No radius is needed.
//!
//! Around the place itself, cells are halved without being read: bisection finds the depth at which
//! the cell there has few rows. Otherwise each step down from the whole Earth would read rows in
//! vain.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use base::{Error, Result};

use super::patience::Patience;
use super::scan::{Found, Scan};
use super::within::{Filter, Hit};
use crate::geo::cell::{Cell, DEPTH_MAX};
use crate::geo::cover::Range;
use crate::geo::position::Position;
use crate::geo::shape::ROUNDING;
use crate::geo::surface::Surface;
use crate::model::key::{Entity, Fleet};
use crate::store::View;

/// The largest `k`.
pub const K_MAX: usize = 10_000;
/// A cell with more rows is halved.
const ROWS_MAX: usize = 64;

/// A cell that was not examined yet; the nearest sorts first.
struct Open {
    distance: f64,
    cell: Cell,
}

/// A hit; the farthest sorts first, and among equal ones that with the greatest number.
struct Near(Hit);

impl Near {
    fn rank(&self) -> (f64, Entity) {
        (self.0.distance.unwrap_or(f64::MAX), self.0.entity)
    }
}

macro_rules! ordered {
    ($name:ident, $cmp:expr) => {
        impl Ord for $name {
            fn cmp(&self, other: &Self) -> Ordering {
                let cmp: fn(&Self, &Self) -> Ordering = $cmp;
                cmp(self, other)
            }
        }
        impl PartialOrd for $name {
            fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
                Some(self.cmp(other))
            }
        }
        impl PartialEq for $name {
            fn eq(&self, other: &Self) -> bool {
                self.cmp(other) == Ordering::Equal
            }
        }
        impl Eq for $name {}
    };
}

ordered!(Open, |a, b| {
    let by_distance = b.distance.total_cmp(&a.distance);
    by_distance.then_with(|| b.cell.cmp(&a.cell))
});
ordered!(Near, |a, b| {
    let ((a, a_entity), (b, b_entity)) = (a.rank(), b.rank());
    a.total_cmp(&b).then_with(|| a_entity.cmp(&b_entity))
});

struct Search<'a> {
    scan: Scan<'a>,
    from: Position,
    surface: Surface,
    filter: Filter,
    k: usize,
    best: BinaryHeap<Near>,
    open: BinaryHeap<Open>,
    /// Cells of a smaller depth than this, within this distance, are halved without being read.
    cut: (u8, f64),
}

/// The `k` entities of a fleet that are nearest to a place, at most `within` metres away on a
/// surface, in the order of their distance, and of their numbers if distances are equal.
///
/// Errors: `InvalidArgument` if `k` is more than [`K_MAX`]; the store's; `TimedOut`.
pub fn nearby(
    view: &dyn View,
    fleet: Fleet,
    (from, filter): (Position, Filter),
    (k, within, surface): (usize, f64, Surface),
    patience: &Patience,
) -> Result<Vec<Hit>> {
    if k > K_MAX {
        return Err(Error::invalid_argument(format!(
            "k is {k}, and {K_MAX} at most"
        )));
    }
    if within.is_nan() {
        return Err(Error::invalid_argument("within is not a number of metres"));
    }
    let mut search = Search {
        scan: Scan::new(view, fleet, patience)?,
        from,
        surface,
        filter,
        k,
        best: BinaryHeap::new(),
        open: BinaryHeap::new(),
        cut: (0, 0.0),
    };
    search.cut = search.around()?;
    search.push(Cell::EARTH);
    while let Some(Open { distance, cell }) = search.open.pop() {
        let is_enough = k == 0
            || distance > within + ROUNDING
            || (search.best.len() == k
                && search
                    .best
                    .peek()
                    .is_some_and(|far| far.rank().0 + ROUNDING < distance));
        if is_enough {
            break;
        }
        search.look_at(cell, distance)?;
    }
    let mut hits: Vec<Hit> = search
        .best
        .into_sorted_vec()
        .into_iter()
        .map(|n| n.0)
        .collect();
    hits.retain(|hit| hit.distance.is_some_and(|d| d <= within));
    Ok(hits)
}

impl Search<'_> {
    fn push(&mut self, cell: Cell) {
        let distance = self.surface.nearest(self.from, &cell.span());
        self.open.push(Open { distance, cell });
    }

    /// The depth down to which cells around the place are halved, and the distance up to which they
    /// are.
    fn around(&mut self) -> Result<(u8, f64)> {
        let (mut few, mut many) = (DEPTH_MAX, 0);
        let cell = Cell::of(self.from);
        while few - many > 1 {
            let depth = u8::midpoint(few, many);
            if self.count(cell.at_depth(depth))? > ROWS_MAX {
                many = depth;
            } else {
                few = depth;
            }
        }
        let width = self.surface.farthest(self.from, &cell.at_depth(few).span());
        Ok((few, 2.0 * width))
    }

    /// The number of rows of a cell, counted up to `ROWS_MAX` + 1.
    fn count(&mut self, cell: Cell) -> Result<usize> {
        let mut count = 0;
        let mut each = |_: Found<'_>| {
            count += 1;
            Ok(count > ROWS_MAX)
        };
        self.scan.cell(cell, &mut each)?;
        Ok(count)
    }

    fn look_at(&mut self, cell: Cell, distance: f64) -> Result<()> {
        let (depth, width) = self.cut;
        if cell.depth() < depth && distance <= width {
            self.cut(cell);
            return Ok(());
        }
        let is_last = cell.depth() == DEPTH_MAX;
        let (from, surface, filter, k) = (self.from, self.surface, self.filter, self.k);
        let mut rows = 0;
        let mut found = Vec::new();
        let best = &mut self.best;
        let mut each = |f: Found<'_>| {
            rows += 1;
            if filter.has(&f.here) {
                let distance = surface.distance(from, f.here.position);
                if is_last {
                    // It cannot be halved, however many rows it has.
                    keep(best, k, distance, &f);
                } else {
                    found.push(Hit::new(f.entity, &f.here, Some(distance)));
                }
            }
            Ok(!is_last && rows > ROWS_MAX)
        };
        if self.scan.cell(cell, &mut each)? {
            self.cut(cell);
        } else {
            for hit in found {
                self.add(hit);
            }
        }
        Ok(())
    }

    fn cut(&mut self, cell: Cell) {
        let halves = cell.halves();
        halves
            .into_iter()
            .flatten()
            .for_each(|half| self.push(half));
    }

    fn add(&mut self, hit: Hit) {
        let near = Near(hit);
        if self.best.len() < self.k {
            self.best.push(near);
        } else if let Some(mut farthest) = self.best.peek_mut()
            && near < *farthest
        {
            *farthest = near;
        }
    }
}

/// Adds a row if it is among the best.
fn keep(best: &mut BinaryHeap<Near>, k: usize, distance: f64, found: &Found<'_>) {
    let is_better = best.len() < k
        || best.peek().is_some_and(|far| {
            let (most, entity) = far.rank();
            distance < most || (distance <= most && found.entity < entity)
        });
    if is_better {
        best.push(Near(Hit::new(found.entity, &found.here, Some(distance))));
    }
    if best.len() > k {
        best.pop();
    }
}

impl Scan<'_> {
    /// Calls `each` with the rows of a cell until it returns `true`; returns whether it did.
    fn cell(
        &mut self,
        cell: Cell,
        each: &mut dyn FnMut(Found<'_>) -> Result<bool>,
    ) -> Result<bool> {
        let (first, last) = cell.range();
        let range = Range {
            first,
            last,
            is_inside: false,
        };
        self.ranges(&[range], None, each)
    }
}
