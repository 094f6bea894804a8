//! Entities in an area.

use base::{Error, Result};

use super::patience::Patience;
use super::scan::{Found, Scan};
use crate::geo::cell::{self, Cell};
use crate::geo::cover::{RANGES_MAX, cover};
use crate::geo::position::Position;
use crate::geo::shape::Shape;
use crate::model::key::{CellKey, Entity, Fleet};
use crate::model::newest::Here;
use crate::model::time::Time;
use crate::store::{Hex, View};

/// An entity and its newest position.
#[derive(Clone, Debug, PartialEq)]
pub struct Hit {
    /// The number of the entity.
    pub entity: Entity,
    /// The name of the entity.
    pub name: String,
    /// The time of its newest report.
    pub time: Time,
    /// The position.
    pub position: Position,
    /// Speed over ground, cm/s.
    pub speed: Option<u16>,
    /// Course, clockwise from north, 10⁻² degrees.
    pub course: Option<u16>,
    /// Tags: each bit has a meaning that is set by the fleet.
    pub tags: u32,
    /// The distance from the place of the query, metres; `None` if the query has no place.
    pub distance: Option<f64>,
}

impl Hit {
    pub(super) fn new(entity: Entity, here: &Here<'_>, distance: Option<f64>) -> Self {
        Self {
            entity,
            name: here.name.to_owned(),
            time: here.time,
            position: here.position,
            speed: here.speed,
            course: here.course,
            tags: here.tags,
            distance,
        }
    }
}

/// Which entities to return.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Filter {
    /// Only entities that have all these tags.
    pub tags: u32,
    /// Only entities whose newest point is not older.
    pub since: Time,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            tags: 0,
            since: Time::MIN,
        }
    }
}

impl Filter {
    pub(super) fn has(&self, here: &Here<'_>) -> bool {
        here.tags & self.tags == self.tags && here.time >= self.since
    }
}

/// Where a search continues. An entity that moves meanwhile may be found twice or not at all; a
/// single page shows one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    cell: Cell,
    entity: Entity,
}

impl Cursor {
    /// Bytes of the text form.
    const LEN: usize = 2 * (cell::BYTES + 8);

    /// The text form: hexadecimal digits.
    pub fn to_text(self) -> String {
        let cell = Cell::to_bytes(self.cell.range().0);
        let entity = self.entity.0.to_be_bytes();
        format!("{}{}", Hex(&cell), Hex(&entity))
    }

    /// Parses the text form. Errors: `InvalidArgument` if it is invalid.
    pub fn of_text(text: &str) -> Result<Self> {
        let is_hex = text.len() == Self::LEN && text.bytes().all(|b| b.is_ascii_hexdigit());
        let parts = text.split_at_checked(2 * cell::BYTES).filter(|_| is_hex);
        let parsed = parts.and_then(|(cell, entity)| {
            let cell = Cell::of_number(u64::from_str_radix(cell, 16).ok()?);
            let entity = Entity(u64::from_str_radix(entity, 16).ok()?);
            Some(Self { cell, entity })
        });
        parsed.ok_or_else(|| {
            Error::invalid_argument(format!("{text:.40?} is no cursor"))
                .hint("give the one of the answer before, or none")
        })
    }
}

/// A page of hits.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    /// In the order of cells, and of numbers in a cell.
    pub hits: Vec<Hit>,
    /// Where the next page begins. `None` if there is none.
    pub next: Option<Cursor>,
}

/// The entities of a fleet that are in an area, at most `limit`. A moving entity is found exactly
/// once.
///
/// Errors: the store's; `TimedOut`.
pub fn within(
    view: &dyn View,
    fleet: Fleet,
    (shape, filter): (&dyn Shape, Filter),
    (limit, from): (usize, Option<Cursor>),
    patience: &Patience,
) -> Result<Page> {
    let ranges = cover(shape, RANGES_MAX);
    let from = from.map(|Cursor { cell, entity }| CellKey {
        fleet,
        cell,
        entity,
    });
    let mut page = Page {
        hits: Vec::new(),
        next: None,
    };
    let mut each = |found: Found<'_>| {
        let is_hit = filter.has(&found.here) && (found.is_inside || shape.has(found.here.position));
        if !is_hit {
            return Ok(false);
        }
        if page.hits.len() >= limit {
            page.next = Some(Cursor {
                cell: found.cell,
                entity: found.entity,
            });
            return Ok(true);
        }
        page.hits.push(Hit::new(found.entity, &found.here, None));
        Ok(false)
    };
    Scan::new(view, fleet, patience)?.ranges(&ranges, from, &mut each)?;
    Ok(page)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_are_text() {
        let cursor = Cursor {
            cell: Cell::of_number(0x12_3456_789a),
            entity: Entity(u64::MAX - 1),
        };
        assert_eq!(cursor.to_text(), "123456789afffffffffffffffe");
        assert_eq!(Cursor::of_text(&cursor.to_text()).unwrap(), cursor);
        for bad in [
            "",
            "12",
            "é",
            "123456789afffffffffffffffg",
            "+23456789affffffffffffffff",
        ] {
            assert!(
                Cursor::of_text(bad)
                    .unwrap_err()
                    .to_string()
                    .contains("no cursor")
            );
        }
    }
}
