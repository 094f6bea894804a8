//! Layouts of CSV files: which column has which field, in which unit; and the layouts of three
//! public data sets.
//!
//! ```text
//!   default    entity,time,lat,lon,speed,course,altitude,accuracy,battery,tags,attributes
//!              car1,2023-11-14T22:13:20Z,59.3293,18.0686,13.9,90,12,5,80,"[""night""]","{""driver"":7}"
//!   GeoLife    six lines of a header, then: lat, lon, 0, altitude in feet, days since 1899-12-30, date, time
//!              39.906631,116.385564,0,492,40097.5864583333,2009-10-11,14:04:30
//!   T-Drive    taxi, time in Beijing, lon, lat
//!              1,2008-02-02 15:36:08,116.51172,39.92123
//!   Porto      "TRIP_ID","CALL_TYPE","ORIGIN_CALL","ORIGIN_STAND","TAXI_ID","TIMESTAMP","DAY_TYPE","MISSING_DATA",
//!              "POLYLINE", and a position each 15 s
//!              "1","C","","","20000589","1372636858","A","False","[[-8.618643,41.141412],[-8.618499,41.141376]]"
//! ```
//!
//! Sources: the GeoLife user guide 1.3 (an altitude of −777 is unknown; times are UTC; the entity
//! is the folder), the user guide of the T-Drive sample, and the description of the data of
//! ECML/PKDD 15's taxi challenge, which are all public. Quotation marks follow RFC 4180
//! (<https://www.rfc-editor.org/rfc/rfc4180>), but a record is one line.

use std::path::Path;

use base::Result;

use super::record::{LINE_BYTES_MAX, bad};
use crate::model::name::Name;
use crate::model::time::SECOND;

/// The longest line of Porto, bytes: the longest trips have thousands of positions.
const TRIP_BYTES_MAX: usize = 1 << 20;

/// A column of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Column {
    /// A column by its number, from 1 on.
    Number(usize),
    /// A column by its name in the header.
    Name(String),
    /// A column by its name, if the header has it.
    NameIfThere(String),
}

impl Column {
    /// Parses a number or a name, as a user writes it.
    pub fn of(text: &str) -> Self {
        text.parse()
            .map_or_else(|_| Self::Name(text.to_owned()), Self::Number)
    }
}

/// The unit of a speed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Speed {
    /// m/s.
    #[default]
    MetresPerSecond,
    /// km/h.
    KilometresPerHour,
    /// Nautical miles per hour.
    Knots,
}

/// The unit of an altitude.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Length {
    /// Metres.
    #[default]
    Metres,
    /// Feet of 0.3048 m.
    Feet,
}

/// The format of times.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Times {
    /// Seconds since 1970 with a fraction, or RFC 3339.
    #[default]
    SecondsOrRfc3339,
    /// Milliseconds since 1970.
    Millis,
    /// Microseconds since 1970.
    Micros,
    /// A pattern of `strptime`, such as `%Y-%m-%d %H:%M:%S`.
    Pattern(String),
}

/// Where the positions are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Positions {
    /// One in each record, in degrees.
    Columns {
        /// Latitude.
        lat: Column,
        /// Longitude.
        lon: Column,
    },
    /// Many in each record, as JSON: `[[lon, lat], …]`.
    Polyline {
        /// The column with the list.
        column: Column,
        /// The time between two positions, microseconds; the first is at the record's time.
        every: i64,
    },
}

/// The layout of a CSV file. The default is the one that [`Writer`](super::Writer) writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// The separator of columns, an ASCII character.
    pub separator: u8,
    /// How many lines to skip at the beginning.
    pub skip_lines: u64,
    /// Whether the next line names the columns.
    pub header: bool,
    /// The entity of a record. `None` means [`Options::entity`](super::Options::entity).
    pub entity: Option<Column>,
    /// The positions of a record.
    pub positions: Positions,
    /// The time: the texts of these columns, joined by spaces.
    pub time: Vec<Column>,
    /// The format of the time.
    pub times: Times,
    /// Seconds by which times without an offset are ahead of UTC. `None` if times must have an
    /// offset.
    pub utc_offset: Option<i32>,
    /// Speed over ground.
    pub speed: Option<(Column, Speed)>,
    /// Course, degrees clockwise from north.
    pub course: Option<Column>,
    /// Altitude.
    pub altitude: Option<(Column, Length)>,
    /// The number that stands for an unknown altitude.
    pub altitude_unknown: Option<f64>,
    /// Accuracy, metres.
    pub accuracy: Option<Column>,
    /// Battery, per cent.
    pub battery: Option<Column>,
    /// Names of tags, as a JSON array.
    pub tags: Option<Column>,
    /// Attributes, as a JSON object.
    pub attributes: Option<Column>,
    /// Columns that become attributes, with the attributes' names. Not together with `attributes`.
    pub extra: Vec<(String, Column)>,
    /// The longest line, bytes.
    pub line_bytes_max: usize,
}

impl Default for Layout {
    fn default() -> Self {
        let named = |name: &str| Column::Name(name.to_owned());
        let optional = |name: &str| Some(Column::NameIfThere(name.to_owned()));
        Self {
            separator: b',',
            skip_lines: 0,
            header: true,
            entity: optional("entity"),
            positions: Positions::Columns {
                lat: named("lat"),
                lon: named("lon"),
            },
            time: optional("time").into_iter().collect(),
            times: Times::default(),
            utc_offset: None,
            speed: optional("speed").map(|column| (column, Speed::default())),
            course: optional("course"),
            altitude: optional("altitude").map(|column| (column, Length::default())),
            altitude_unknown: None,
            accuracy: optional("accuracy"),
            battery: optional("battery"),
            tags: optional("tags"),
            attributes: optional("attributes"),
            extra: Vec::new(),
            line_bytes_max: LINE_BYTES_MAX,
        }
    }
}

impl Layout {
    /// Positions in columns, and no other fields.
    pub fn of(lat: Column, lon: Column, header: bool) -> Self {
        Self {
            header,
            entity: None,
            positions: Positions::Columns { lat, lon },
            time: Vec::new(),
            speed: None,
            course: None,
            altitude: None,
            accuracy: None,
            battery: None,
            tags: None,
            attributes: None,
            ..Self::default()
        }
    }

    /// The layout of GeoLife.
    pub fn geolife() -> Self {
        Self {
            skip_lines: 6,
            time: vec![Column::Number(6), Column::Number(7)],
            times: Times::Pattern("%Y-%m-%d %H:%M:%S".to_owned()),
            utc_offset: Some(0),
            altitude: Some((Column::Number(4), Length::Feet)),
            altitude_unknown: Some(-777.0),
            ..Self::of(Column::Number(1), Column::Number(2), false)
        }
    }

    /// The layout of T-Drive.
    pub fn t_drive() -> Self {
        Self {
            entity: Some(Column::Number(1)),
            time: vec![Column::Number(2)],
            times: Times::Pattern("%Y-%m-%d %H:%M:%S".to_owned()),
            utc_offset: Some(8 * 3600),
            ..Self::of(Column::Number(4), Column::Number(3), false)
        }
    }

    /// The layout of Porto.
    pub fn porto() -> Self {
        let named = |name: &str| Column::Name(name.to_owned());
        Self {
            entity: Some(named("TAXI_ID")),
            positions: Positions::Polyline {
                column: named("POLYLINE"),
                every: 15 * SECOND,
            },
            time: vec![named("TIMESTAMP")],
            line_bytes_max: TRIP_BYTES_MAX,
            ..Self::of(named(""), named(""), true)
        }
    }
}

/// The entity of a file of GeoLife: its folder, or the one above `Trajectory`. Errors:
/// `InvalidArgument` if there is none.
///
/// ```
/// use std::path::Path;
/// use tracks::files::layout::geolife_entity;
/// let entity = geolife_entity(Path::new("Data/010/Trajectory/20070804033032.plt"))?;
/// assert_eq!(entity.as_str(), "010");
/// # Ok::<(), base::Error>(())
/// ```
pub fn geolife_entity(path: &Path) -> Result<Name> {
    let mut folders = path.ancestors().skip(1).filter_map(Path::file_name);
    let folder = folders.find(|name| *name != "Trajectory");
    let name = folder.and_then(|name| name.to_str());
    let name = name.ok_or_else(|| bad("no folder names the entity").file(path))?;
    Name::new(name).map_err(|e| e.file(path))
}
