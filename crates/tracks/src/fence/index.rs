//! The fences of a fleet, indexed by cell: which fences may contain a position, or a part of the
//! straight line between two positions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::definition::Fence;
use crate::geo::cell::{Cell, DEPTH_MAX};
use crate::geo::cover::cover;
use crate::geo::position::Position;
use crate::geo::shape::Rectangle;

/// The most fences that one entity can be inside of. Where more contain it, the oldest count.
pub const INSIDE_MAX: usize = 128;
/// The most cell ranges that cover the way between two positions.
const WAY: usize = 8;

/// A fence that covers a part of a cell, and whether the whole cell is inside the fence.
type OfCell = (Arc<Fence>, bool);

/// The index of one fleet's fences. It is rebuilt on each change.
#[derive(Debug, Default)]
pub struct Index {
    all: BTreeMap<u64, Arc<Fence>>,
    /// The key is the first number of the cell, and its depth.
    cells: BTreeMap<(u64, u8), Vec<OfCell>>,
    /// The depths at which some fence has a cell.
    depths: Vec<u8>,
    has_crossings: bool,
}

impl Index {
    /// Builds the index of these fences.
    pub fn new(fences: impl IntoIterator<Item = Arc<Fence>>) -> Self {
        let mut index = Self::default();
        for fence in fences {
            for (cell, is_inside) in &fence.cells {
                let key = (cell.range().0, cell.depth());
                let of_cell = index.cells.entry(key).or_default();
                of_cell.push((Arc::clone(&fence), *is_inside));
                index.depths.push(cell.depth());
            }
            index.has_crossings |= fence.definition.when.cross;
            index.all.insert(fence.number, fence);
        }
        index.depths.sort_unstable();
        index.depths.dedup();
        index
    }

    /// Whether there is no fence.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// All fences, by number.
    pub fn all(&self) -> impl Iterator<Item = &Arc<Fence>> {
        self.all.values()
    }

    /// The fences whose number is greater than `than`, by number.
    pub(crate) fn newer(&self, than: u64) -> impl Iterator<Item = &Arc<Fence>> {
        self.all
            .range(than.saturating_add(1)..)
            .map(|(_, fence)| fence)
    }

    /// The greatest number; 0 if there is no fence.
    pub fn newest(&self) -> u64 {
        self.all.last_key_value().map_or(0, |(number, _)| *number)
    }

    /// The smallest number; 0 if there is no fence.
    pub(crate) fn oldest(&self) -> u64 {
        self.all.first_key_value().map_or(0, |(number, _)| *number)
    }

    /// The fence with this number.
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
        out.truncate(INSIDE_MAX);
        out
    }

    /// The fences with `cross` events, for an entity with these tags, that the way between two
    /// positions crosses, by number.
    pub(crate) fn crossed(&self, (a, b): (Position, Position), tags: u32) -> Vec<Arc<Fence>> {
        if !self.has_crossings {
            return Vec::new();
        }
        let mut out: BTreeMap<u64, Arc<Fence>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        let mut add = |fences: &[OfCell]| {
            for (fence, _) in fences {
                let wants = fence.definition.when.cross && tags & fence.tags == fence.tags;
                let is_full = out.len() >= INSIDE_MAX;
                let looks = wants && !is_full && seen.insert(fence.number);
                if looks && fence.shape.is_crossed(a, b) {
                    out.insert(fence.number, Arc::clone(fence));
                }
            }
        };
        for range in way(a, b) {
            // The cells that contain the start of the range, and those that begin inside the range.
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

/// Ranges of cells that cover the rectangle between two positions, in the shorter direction.
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
