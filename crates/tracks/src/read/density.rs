//! The number of entities in each cell of an area.

use std::collections::BTreeMap;

use base::{Error, ErrorKind, Result};

use super::patience::Patience;
use super::scan::{Found, Scan};
use super::within::Filter;
use crate::geo::cell::{Cell, DEPTH_MAX};
use crate::geo::cover::{RANGES_MAX, cover};
use crate::geo::shape::Shape;
use crate::model::key::Fleet;
use crate::store::View;

/// The most cells of an answer.
pub const CELLS_MAX: usize = 100_000;

/// Cells in order, with the number of entities in each; empty cells are left out.
pub type Density = BTreeMap<Cell, u64>;

/// The number of entities of a fleet in each cell of depth `depth`; only entities inside the area
/// count.
///
/// Errors: `InvalidArgument` if there is no such depth, or more than [`CELLS_MAX`] cells are not
/// empty; the store's; `TimedOut`.
pub fn density(
    view: &dyn View,
    fleet: Fleet,
    (shape, filter): (&dyn Shape, Filter),
    depth: u8,
    patience: &Patience,
) -> Result<Density> {
    if depth > DEPTH_MAX {
        return Err(Error::invalid_argument(format!(
            "cells of {depth} cuts: they have {DEPTH_MAX} at most"
        )));
    }
    let mut counts = Density::new();
    let mut each = |found: Found<'_>| {
        if filter.has(&found.here) && (found.is_inside || shape.has(found.here.position)) {
            *counts.entry(found.cell.at_depth(depth)).or_default() += 1;
        }
        Ok(counts.len() > CELLS_MAX)
    };
    let ranges = cover(shape, RANGES_MAX);
    if Scan::new(view, fleet, patience)?.ranges(&ranges, None, &mut each)? {
        let text = format!("more than {CELLS_MAX} cells of {depth} cuts have something in them");
        return Err(Error::new(ErrorKind::InvalidArgument, text)
            .hint("ask for cells of fewer cuts, or a smaller area"));
    }
    Ok(counts)
}
