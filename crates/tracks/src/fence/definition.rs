//! What a fence is.

use base::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::geo::cell::Cell;
use crate::geo::corridor::Corridor;
use crate::geo::cover::cells;
use crate::geo::polygon::{Corner, Polygon};
use crate::geo::position::Position;
use crate::geo::shape::{Circle, Rectangle, Shape};
use crate::model::name::Name;

/// Cells of one fence, at most.
const CELLS: usize = 32;
/// The most fences of a fleet.
pub const FENCES_MAX: usize = 10_000;

/// An area, as it is written. Positions are longitude, latitude, as in GeoJSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Area {
    /// So many metres around a position.
    Circle {
        /// Longitude, latitude.
        centre: [f64; 2],
        /// Metres.
        radius: f64,
    },
    /// Between two meridians and two latitudes.
    Rectangle {
        /// West, south, east, north.
        bbox: [f64; 4],
    },
    /// A ring, and holes in it.
    Polygon {
        /// As in GeoJSON.
        coordinates: Vec<Vec<[f64; 2]>>,
    },
    /// So many metres to either side of a line.
    Corridor {
        /// Positions of the line.
        coordinates: Vec<[f64; 2]>,
        /// Metres.
        width: f64,
    },
}

impl Area {
    /// The shape. Errors: `InvalidArgument` says what cannot be.
    pub fn shape(&self) -> Result<Box<dyn Shape + Send + Sync>> {
        let at = |[lon, lat]: [f64; 2]| Position::of_degrees(lat, lon);
        let all = |line: &[[f64; 2]]| line.iter().copied().map(at).collect::<Result<Vec<_>>>();
        Ok(match self {
            Self::Circle { centre, radius } => Box::new(Circle::new(at(*centre)?, *radius)?),
            Self::Rectangle { bbox } => {
                let [west, south, east, north] = *bbox;
                Box::new(Rectangle::of_degrees(west, south, east, north)?)
            }
            Self::Polygon { coordinates } => {
                let corner = |[lon, lat]: [f64; 2]| Corner::of_degrees(lat, lon);
                let rings: Vec<Vec<Corner>> = coordinates
                    .iter()
                    .map(|ring| ring.iter().copied().map(corner).collect::<Result<_>>())
                    .collect::<Result<_>>()?;
                let rings: Vec<&[Corner]> = rings.iter().map(Vec::as_slice).collect();
                Box::new(Polygon::new(&rings)?)
            }
            Self::Corridor { coordinates, width } => {
                Box::new(Corridor::new(&all(coordinates)?, *width)?)
            }
        })
    }
}

/// What makes an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct When {
    /// The first report inside behind one outside.
    pub enter: bool,
    /// The first report outside behind one inside.
    pub exit: bool,
    /// The first report that is inside for so many seconds already; 0: never.
    pub dwell_seconds: u32,
    /// Two reports outside, whose straight line has a place inside.
    pub cross: bool,
}

impl Default for When {
    fn default() -> Self {
        Self {
            enter: true,
            exit: true,
            dwell_seconds: 0,
            cross: false,
        }
    }
}

/// A fence, as it is asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// Where.
    pub area: Area,
    /// What makes an event.
    #[serde(default)]
    pub when: When,
    /// Only entities whose report has all these tags; none: all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// A fence that is there.
pub struct Fence {
    /// Its number in its fleet: a later one, and one that is defined anew, has a greater one.
    pub number: u64,
    /// Its name.
    pub name: Name,
    /// As it was asked for.
    pub definition: Definition,
    /// Bits of its tags.
    pub(crate) tags: u32,
    pub(crate) shape: Box<dyn Shape + Send + Sync>,
    /// Cells that have all of it, and whether all of each is inside.
    pub(crate) cells: Vec<(Cell, bool)>,
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fence({}, number {})", self.name, self.number)
    }
}

impl Fence {
    /// One of a definition, whose tags have these bits. Errors: `InvalidArgument`, where its area cannot be.
    pub(crate) fn new(
        (number, name): (u64, Name),
        definition: Definition,
        tags: u32,
    ) -> Result<Self> {
        let shape = definition
            .area
            .shape()
            .map_err(|e| Error::invalid_argument(format!("fence {name}: {e}")))?;
        Ok(Self {
            number,
            name,
            definition,
            tags,
            cells: cells(&*shape, CELLS),
            shape,
        })
    }

    /// Whether an entity is meant, and is inside.
    pub(crate) fn has(&self, position: Position, tags: u32) -> bool {
        tags & self.tags == self.tags && self.shape.has(position)
    }
}
