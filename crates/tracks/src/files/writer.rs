//! Writes positions to files: CSV in the default [layout](super::layout), [NDJSON](super::json),
//! GeoJSON and GPX 1.1, in the formats of the readers.
//!
//! A file is a stream: each point is written as it comes. GPX begins another track when the entity
//! changes, so that points are best given entity by entity. Numbers are written exactly: reading
//! them gives the stored values, except the lag.

use std::fmt::Write as _;
use std::io::Write;

use base::{Error, ErrorKind, Result};

use super::format::Format;
use super::gpx::PREFIX;
use super::number::decimal;
use super::record::{bad, shown};
use super::{json, times};
use crate::geo::position::Position;
use crate::model::name::Name;
use crate::model::point::Point;
use crate::model::time::Time;

const CSV_HEADER: &str =
    "entity,time,lat,lon,speed,course,altitude,accuracy,battery,tags,attributes\n";
const GPX_HEADER: &str = concat!(
    "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n",
    "<gpx version=\"1.1\" creator=\"ironstone-tracks\" xmlns=\"http://www.topografix.com/GPX/1/1\" ",
    "xmlns:ironstone=\"urn:ironstone:tracks\">\n"
);

/// Writes a file.
#[derive(Debug)]
pub struct Writer<W> {
    out: W,
    format: Format,
    tags: Vec<String>,
    /// Text that is to be written next.
    text: String,
    /// The entity of the last point.
    last: Option<Name>,
}

impl<W: Write> Writer<W> {
    /// Begins a file. `tags` are those of the fleet: the first one is the lowest bit of a point's
    /// tags.
    ///
    /// Errors: `NotSupported` if the format can only be read; `IoError`; `NoSpace`.
    pub fn new(format: Format, out: W, tags: &[String]) -> Result<Self> {
        let text = match format {
            Format::Csv => CSV_HEADER,
            Format::Ndjson => "",
            Format::GeoJson => "{\"type\":\"FeatureCollection\",\"features\":[",
            Format::Gpx => GPX_HEADER,
            Format::GeoLife | Format::TDrive | Format::Porto => {
                return Err(Error::not_supported(format!(
                    "files of {format} are read only"
                )));
            }
        };
        Ok(Self {
            out,
            format,
            tags: tags.to_vec(),
            text: text.to_owned(),
            last: None,
        })
    }

    /// Writes one point.
    ///
    /// Errors: `InvalidArgument` if it has a tag without a name, a time that cannot be stored,
    /// attributes that are not a JSON object, or characters that are not allowed in XML: nothing of
    /// it is written; `IoError`; `NoSpace`.
    pub fn add(&mut self, entity: &Name, time: Time, point: &Point) -> Result<()> {
        let begun = self.text.len();
        let added = match self.format {
            Format::Csv => self.csv(entity, time, point),
            Format::Ndjson => self.ndjson(entity, time, point),
            Format::GeoJson => self.geojson(entity, time, point),
            _ => self.gpx(entity, time, point),
        };
        if let Err(e) = added {
            self.text.truncate(begun);
            return Err(e);
        }
        if self.last.as_ref() != Some(entity) {
            self.last = Some(entity.clone());
        }
        self.write()
    }

    /// Ends the file. Errors: `IoError`; `NoSpace`.
    pub fn finish(mut self) -> Result<W> {
        match (self.format, &self.last) {
            (Format::GeoJson, _) => self.text.push_str("\n]}\n"),
            (Format::Gpx, Some(_)) => self.text.push_str("</trkseg></trk>\n</gpx>\n"),
            (Format::Gpx, None) => self.text.push_str("</gpx>\n"),
            _ => {}
        }
        self.write()?;
        self.out.flush().map_err(unwritten)?;
        Ok(self.out)
    }

    fn write(&mut self) -> Result<()> {
        self.out
            .write_all(self.text.as_bytes())
            .map_err(unwritten)?;
        self.text.clear();
        Ok(())
    }

    fn csv(&mut self, entity: &Name, time: Time, point: &Point) -> Result<()> {
        let (lat, lon) = degrees(point.position);
        let numbers = numbers(point).map(|(_, number)| number.unwrap_or_default());
        let tags = self.names(point)?.unwrap_or_default();
        let time = times::to_rfc3339(time)?;
        let fields = [quoted(entity.as_str()), time, lat, lon];
        let more = [quoted(&tags), quoted(&attributes(point)?)];
        let all: Vec<&str> = fields
            .iter()
            .chain(&numbers)
            .chain(&more)
            .map(String::as_str)
            .collect();
        self.text.push_str(&all.join(","));
        self.text.push('\n');
        Ok(())
    }

    fn ndjson(&mut self, entity: &Name, time: Time, point: &Point) -> Result<()> {
        let (lat, lon) = degrees(point.position);
        let head = format!(
            "{{\"entity\":{},\"lat\":{lat},\"lon\":{lon}",
            text_of(entity)?
        );
        self.text.push_str(&head);
        self.members(time, &numbers(point), point)?;
        self.text.push_str("}\n");
        Ok(())
    }

    fn geojson(&mut self, entity: &Name, time: Time, point: &Point) -> Result<()> {
        let (lat, lon) = degrees(point.position);
        let [speed, course, (_, altitude), accuracy, battery] = numbers(point);
        let altitude = altitude.map_or(String::new(), |metres| format!(",{metres}"));
        self.text
            .push_str(if self.last.is_some() { ",\n" } else { "\n" });
        self.text
            .push_str("{\"type\":\"Feature\",\"geometry\":{\"type\":\"Point\",\"coordinates\":[");
        let rest = format!(
            "{lon},{lat}{altitude}]}},\"properties\":{{\"entity\":{}",
            text_of(entity)?
        );
        self.text.push_str(&rest);
        self.members(time, &[speed, course, accuracy, battery], point)?;
        self.text.push_str("}}");
        Ok(())
    }

    /// The members of an object after its first one.
    fn members(&mut self, time: Time, numbers: &[Number], point: &Point) -> Result<()> {
        let numbers = numbers.iter().map(|(name, number)| (*name, number.clone()));
        let attributes = Some(attributes(point)?).filter(|text| !text.is_empty());
        let first = ("time", Some(times::to_seconds(time.check()?)));
        let last = [("tags", self.names(point)?), ("attributes", attributes)];
        for (name, value) in std::iter::once(first).chain(numbers).chain(last) {
            if let Some(value) = value {
                self.push(format_args!(",\"{name}\":{value}"));
            }
        }
        Ok(())
    }

    fn gpx(&mut self, entity: &Name, time: Time, point: &Point) -> Result<()> {
        if self.last.as_ref() != Some(entity) {
            let before = if self.last.is_some() {
                "</trkseg></trk>\n"
            } else {
                ""
            };
            let name = escaped(entity.as_str())?;
            self.push(format_args!("{before}<trk><name>{name}</name><trkseg>\n"));
        }
        let (lat, lon) = degrees(point.position);
        let [speed, course, (_, altitude), accuracy, battery] = numbers(point);
        self.push(format_args!("<trkpt lat=\"{lat}\" lon=\"{lon}\">"));
        if let Some(metres) = altitude {
            self.push(format_args!("<ele>{metres}</ele>"));
        }
        let time = times::to_rfc3339(time)?;
        self.push(format_args!("<time>{time}</time>"));
        let attributes = Some(attributes(point)?).filter(|text| !text.is_empty());
        let more = [("tags", self.names(point)?), ("attributes", attributes)];
        let all = [speed, course, accuracy, battery].into_iter().chain(more);
        let mut extensions = String::new();
        for (name, value) in all {
            if let Some(value) = value {
                let value = escaped(&value)?;
                extensions.push_str(&format!("<{PREFIX}:{name}>{value}</{PREFIX}:{name}>"));
            }
        }
        if !extensions.is_empty() {
            self.push(format_args!("<extensions>{extensions}</extensions>"));
        }
        self.text.push_str("</trkpt>\n");
        Ok(())
    }

    fn push(&mut self, what: std::fmt::Arguments<'_>) {
        // Writing to a string never fails.
        self.text.write_fmt(what).unwrap_or_default();
    }

    /// The names of a point's tags, as a JSON array. `None` if it has no tags. Errors:
    /// `InvalidArgument`.
    fn names(&self, point: &Point) -> Result<Option<String>> {
        if point.tags == 0 {
            return Ok(None);
        }
        let bits = (0..u32::BITS).filter(|bit| point.tags >> bit & 1 == 1);
        let names = bits.map(|bit| {
            let name = self.tags.get(bit as usize);
            name.ok_or_else(|| bad(format!("the fleet's tag of bit {bit} has no name")))
        });
        let names: Vec<&String> = names.collect::<Result<_>>()?;
        let text = serde_json::to_string(&names);
        text.map(Some).map_err(|e| bad(format!("tags: {e}")))
    }
}

/// Writes a file of points, up to the first error. Errors: those of the points, and those of
/// [`Writer`].
///
/// ```
/// use tracks::files::{Format, write};
/// use tracks::geo::position::Position;
/// use tracks::model::{name::Name, point::Point, time::Time};
/// let point = Point::at(Position::of_degrees(59.3293, 18.0686)?);
/// let points = [Ok((Name::new("car1")?, Time(1_700_000_000_500_000), point))];
/// let out = write(Format::Ndjson, Vec::new(), &[], points)?;
/// let line = r#"{"entity":"car1","lat":59.3293,"lon":18.0686,"time":1700000000.5}"#;
/// assert_eq!(String::from_utf8_lossy(&out), format!("{line}\n"));
/// # Ok::<(), base::Error>(())
/// ```
pub fn write<W: Write>(
    format: Format,
    out: W,
    tags: &[String],
    points: impl IntoIterator<Item = Result<(Name, Time, Point)>>,
) -> Result<W> {
    let mut writer = Writer::new(format, out, tags)?;
    for point in points {
        let (entity, time, point) = point?;
        writer.add(&entity, time, &point)?;
    }
    writer.finish()
}

/// The name and the value of an optional number of a point, the same in all formats.
type Number = (&'static str, Option<String>);

fn numbers(point: &Point) -> [Number; 5] {
    let small = |number: Option<u16>, digits| number.map(|n| decimal(n.into(), digits));
    let altitude = point.altitude.map(|cm| decimal(cm.into(), 2));
    let battery = point.battery.map(|n| decimal(n.into(), 0));
    [
        ("speed", small(point.speed, 2)),
        ("course", small(point.course, 2)),
        ("altitude", altitude),
        ("accuracy", small(point.accuracy, 1)),
        ("battery", battery),
    ]
}

fn degrees(position: Position) -> (String, String) {
    let of = |units: i32| decimal(units.into(), 7);
    (of(position.lat()), of(position.lon()))
}

fn text_of(entity: &Name) -> Result<String> {
    serde_json::to_string(entity.as_str()).map_err(|e| bad(format!("entity {entity}: {e}")))
}

/// Attributes as one line of JSON.
fn attributes(point: &Point) -> Result<String> {
    if point.attributes.is_empty() {
        return Ok(String::new());
    }
    json::attributes(&point.attributes)
}

/// A field of CSV.
fn quoted(text: &str) -> String {
    // A field that begins with a byte order mark would be mistaken for the file's mark.
    if text.contains([',', '"', '\r', '\n', '\u{feff}']) {
        return format!("\"{}\"", text.replace('"', "\"\""));
    }
    text.to_owned()
}

/// Text of XML. Errors: `InvalidArgument` if it has characters that XML does not allow.
fn escaped(text: &str) -> Result<String> {
    let is_none = |c: char| matches!(c, '\u{fffe}' | '\u{ffff}') || c < ' ';
    if text.contains(is_none) {
        let e = bad(format!(
            "{} has characters that XML does not have",
            shown(text)
        ));
        return Err(e.hint("write it as NDJSON"));
    }
    Ok(quick_xml::escape::partial_escape(text).into_owned())
}

/// The error for a failed write.
fn unwritten(e: std::io::Error) -> Error {
    let kind = match e.kind() {
        std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => ErrorKind::NoSpace,
        _ => ErrorKind::IoError,
    };
    Error::new(kind, format!("write: {e}")).because(e)
}
