//! The fences of a fleet, by cell: which may have a position, or a place of a way.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::definition::Fence;
use crate::geo::cell::{Cell, DEPTH_MAX};
use crate::geo::cover::{cells, cover};
use crate::geo::position::Position;
use crate::geo::shape::Rectangle;

/// Cells of one fence, at most.
const CELLS: usize = 32;
/// Ranges of cells that have a way between two positions.
const WAY: usize = 8;

/// A fence that has something of a cell, and whether all of that is inside.
type OfCell = (Arc<Fence>, bool);

/// See the module. It is made anew for each change.
#[derive(Debug, Default)]
pub struct Index {
    all: BTreeMap<u64, Arc<Fence>>,
    /// By cell: its first number, and its depth.
    cells: BTreeMap<(u64, u8), Vec<OfCell>>,
    /// The depths that some cell has.
    depths: Vec<u8>,
    has_crossings: bool,
}

impl Index {
    /// Of these fences.
    pub fn new(fences: impl IntoIterator<Item = Arc<Fence>>) -> Self {
        let mut index = Self::default();
        for fence in fences {
            for (cell, is_inside) in cells(&*fence.shape, CELLS) {
                let key = (cell.range().0, cell.depth());
                let of_cell = index.cells.entry(key).or_default();
                of_cell.push((Arc::clone(&fence), is_inside));
                index.depths.push(cell.depth());
            }
            index.has_crossings |= fence.definition.when.cross;
            index.all.insert(fence.number, fence);
        }
        index.depths.sort_unstable();
        index.depths.dedup();
        index
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All, by number.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Fence>> {
        self.all.values()
    }

    /// Those with greater numbers.
    pub(crate) fn newer(&self, than: u64) -> impl Iterator<Item = &Arc<Fence>> {
        self.all
            .range(than.saturating_add(1)..)
            .map(|(_, fence)| fence)
    }

    /// The greatest number; 0: there is none.
    pub fn newest(&self) -> u64 {
        self.all.last_key_value().map_or(0, |(number, _)| *number)
    }

    /// The fence of a number.
    pub fn get(&self, number: u64) -> Option<&Arc<Fence>> {
        self.all.get(&number)
    }

    /// The fences that an entity with these tags is inside of, by number.
    pub(crate) fn around(&self, position: Position, tags: u32) -> Vec<Arc<Fence>> {
        let cell = Cell::of(position);
        let mut out = Vec::new();
        for &depth in &self.depths {
            let key = (cell.at_depth(depth).range().0, depth);
            for (fence, is_inside) in self.cells.get(&key).into_iter().flatten() {
                let is_meant = tags & fence.tags == fence.tags;
                if is_meant && (*is_inside || fence.shape.has(position)) {
                    out.push(Arc::clone(fence));
                }
            }
        }
        out.sort_unstable_by_key(|fence| fence.number);
        out
    }

    /// The fences that want to know, and that the way between two positions crosses, by number.
    pub(crate) fn crossed(&self, (a, b): (Position, Position), tags: u32) -> Vec<Arc<Fence>> {
        if !self.has_crossings {
            return Vec::new();
        }
        let mut out: BTreeMap<u64, Arc<Fence>> = BTreeMap::new();
        let mut add = |fences: &[OfCell]| {
            for (fence, _) in fences {
                let wants = fence.definition.when.cross && tags & fence.tags == fence.tags;
                if wants && !out.contains_key(&fence.number) && fence.shape.is_crossed(a, b) {
                    out.insert(fence.number, Arc::clone(fence));
                }
            }
        };
        for range in way(a, b) {
            // What has the range's first cell, and what begins in the range.
            let first = Cell::of_number(range.first);
            for &depth in &self.depths {
                let key = (first.at_depth(depth).range().0, depth);
                self.cells
                    .get(&key)
                    .into_iter()
                    .for_each(|fences| add(fences));
            }
            let within = (range.first, 0)..=(range.last, DEPTH_MAX);
            for (_, fences) in self.cells.range(within) {
                add(fences);
            }
        }
        out.into_values().collect()
    }
}

/// Ranges of cells that have the rectangle around two positions, the short way.
fn way(a: Position, b: Position) -> Vec<crate::geo::cover::Range> {
    let ((a_lat, a_lon), (b_lat, b_lon)) = (a.degrees(), b.degrees());
    let (west, east) = if (b_lon - a_lon).rem_euclid(360.0) < 180.0 {
        (a_lon, b_lon)
    } else {
        (b_lon, a_lon)
    };
    let rectangle = Rectangle::of_degrees(west, a_lat.min(b_lat), east, a_lat.max(b_lat));
    rectangle.map_or_else(|_| Vec::new(), |rectangle| cover(&rectangle, WAY))
}
