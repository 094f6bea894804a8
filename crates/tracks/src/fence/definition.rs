//! Definitions of fences: an area, and which events it makes.

use base::{Error, Result};
use serde::{Deserialize, Serialize};

use crate::geo::cell::Cell;
use crate::geo::corridor::{Corridor, pieces};
use crate::geo::cover::cells;
use crate::geo::polygon::{Corner, Polygon};
use crate::geo::position::Position;
use crate::geo::shape::{Circle, Rectangle, Shape};
use crate::model::name::Name;

/// The most cells of one fence.
const CELLS: usize = 32;
/// The most fences of a fleet.
pub const FENCES_MAX: usize = 10_000;
/// The most positions of one fence. Its own limit for polygons and lines is less; but long lines are cut into pieces.
const POSITIONS_OF_ONE: usize = 20_000;
/// The most positions that all fences of a fleet may have together.
pub(super) const POSITIONS_MAX: usize = 1_000_000;

/// An area, as it is defined. Positions are longitude, latitude, as in GeoJSON.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Area {
    /// All within a distance of a position.
    Circle {
        /// Longitude, latitude.
        centre: [f64; 2],
        /// Metres.
        radius: f64,
    },
    /// Between two meridians and two parallels.
    Rectangle {
        /// West, south, east, north.
        bbox: [f64; 4],
    },
    /// A ring, and holes in it.
    Polygon {
        /// As in GeoJSON.
        coordinates: Vec<Vec<[f64; 2]>>,
    },
    /// All within a distance of a line.
    Corridor {
        /// Positions of the line.
        coordinates: Vec<[f64; 2]>,
        /// To either side, in metres: half of the whole width.
        width: f64,
    },
}

impl Area {
    /// How many positions it takes to evaluate it: those that define it, and those at which long lines of a corridor are
    /// cut.
    pub fn positions(&self) -> usize {
        let at = |[lon, lat]: [f64; 2]| Position::of_degrees(lat, lon).ok();
        let cut = |pair: &[[f64; 2]]| match pair {
            [a, b] => at(*a)
                .zip(at(*b))
                .map_or(1, |(a, b)| pieces(&[a, b]) as usize),
            _ => 0,
        };
        match self {
            Self::Circle { .. } => 1,
            Self::Rectangle { .. } => 2,
            Self::Polygon { coordinates } => coordinates.iter().map(Vec::len).sum(),
            Self::Corridor { coordinates, .. } => {
                1 + coordinates.windows(2).map(cut).sum::<usize>()
            }
        }
    }

    /// [`Area::positions`], for a fence that is to be made. It takes little memory, unlike [`Area::shape`].
    ///
    /// Errors: `InvalidArgument` if they are more than 20,000.
    pub fn check_positions(&self) -> Result<usize> {
        let positions = self.positions();
        if positions > POSITIONS_OF_ONE {
            return Err(Error::invalid_argument(format!(
                "{positions} positions, those included at which long lines are cut every half a degree: \
                 {POSITIONS_OF_ONE} are the most"
            )));
        }
        Ok(positions)
    }

    /// Builds the shape. Errors: `InvalidArgument` says what is invalid.
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

/// Which events a fence makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct When {
    /// For the first report inside after one outside.
    pub enter: bool,
    /// For the first report outside after one inside.
    pub exit: bool,
    /// For the first report that has been inside for this many seconds; 0 for never.
    pub dwell_seconds: u32,
    /// For two reports outside whose straight line has a place inside.
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

/// A fence, as it is requested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    /// The area.
    pub area: Area,
    /// Which events it makes.
    #[serde(default)]
    pub when: When,
    /// Only entities whose report has all these tags; if empty, all entities.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
}

/// A fence of a fleet.
pub struct Fence {
    /// Unique in the store, and increasing: a fence that is replaced gets a new, greater number.
    pub number: u64,
    /// Its name.
    pub name: Name,
    /// The definition, as requested.
    pub definition: Definition,
    /// The bits of its tags.
    pub(crate) tags: u32,
    pub(crate) shape: Box<dyn Shape + Send + Sync>,
    /// Cells that cover it, and whether the whole of each is inside.
    pub(crate) cells: Vec<(Cell, bool)>,
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Fence({}, number {})", self.name, self.number)
    }
}

impl Fence {
    /// Builds a fence whose tags have these bits. Errors: `InvalidArgument` if its area is invalid.
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

    /// Whether an entity with these tags is meant, and its position is inside.
    pub(crate) fn has(&self, position: Position, tags: u32) -> bool {
        tags & self.tags == self.tags && self.shape.has(position)
    }
}
