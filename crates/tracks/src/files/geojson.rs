//! GeoJSON (RFC 7946, <https://www.rfc-editor.org/rfc/rfc7946>): a Feature, or a FeatureCollection of any size.
//!
//! ```text
//!   {"type":"FeatureCollection", "features":[
//!     {"type":"Feature", "geometry":{"type":"Point", "coordinates":[lon, lat, altitude?]},
//!      "properties":{"entity":"car1", "time":1700000000.5, "speed":13.9, …}},
//!     {"type":"Feature", "geometry":{"type":"LineString", "coordinates":[[lon, lat, altitude?], …]},
//!      "properties":{"entity":"car1", "coordTimes":["2023-11-14T22:13:20Z", …]}}]}
//! ```
//!
//! The properties are the members of [`json`](super::json), except the position. The times of a
//! line are in `times` or `coordTimes`, as converters from GPX write them; its other properties
//! apply to all its positions. If the properties name no entity, the feature's `id` does if it is a
//! string. The file is read as a stream: one feature is in memory, of at most 8 MiB; a larger one
//! is refused, and skipped without being kept. Members that are not needed are skipped in the same
//! way.

use std::io::BufRead;

use base::{Error, Result};

use super::options::Options;
use super::record::{
    FEATURE_BYTES_MAX, LINE_BYTES_MAX, Place, Record, bad, empty, goes_on, message, shown,
};
use super::scan::{Stream, element, elements};
use super::{json, number};
use crate::geo::position::Position;
use crate::model::report::Report;

/// The members of a feature that are read.
const FEATURE: [&str; 4] = ["type", "geometry", "properties", "id"];
/// [`json::TOLD`], and the times of a line.
const PROPERTIES: [&str; 11] = json::told_and(["times", "coordTimes"]);

#[derive(Debug)]
enum State {
    /// Nothing has been read.
    Start,
    /// A member of the outermost object comes next, or its end.
    Members { is_first: bool },
    /// A feature comes next, or the end of the list.
    Features { is_first: bool },
    /// Positions of a line come next.
    Line(Box<Line>),
    /// Nothing but spaces may follow.
    End,
    /// Everything has been read.
    Over,
}

/// Reports of a GeoJSON file.
#[derive(Debug)]
pub(super) struct GeoJson<R> {
    stream: Stream<R>,
    options: Options,
    state: State,
    /// The members of the outermost object that are named in [`FEATURE`].
    top: [Option<String>; 4],
    has_features: bool,
    buffer: Vec<u8>,
}

/// The content of a feature.
enum Feature {
    One(Box<(Report, Vec<String>)>),
    Line(Box<Line>),
}

impl<R: BufRead> GeoJson<R> {
    pub(super) fn new(read: R, options: Options) -> Self {
        Self {
            stream: Stream::new(read),
            options,
            state: State::Start,
            top: [const { None }; 4],
            has_features: false,
            buffer: Vec::new(),
        }
    }

    fn step(&mut self) -> Result<Option<Record>> {
        match &mut self.state {
            State::Start => self.start()?,
            State::Members { is_first } => {
                let is_first = std::mem::take(is_first);
                return self.member(is_first);
            }
            State::Features { is_first } => {
                let is_first = std::mem::take(is_first);
                return self.feature(is_first);
            }
            State::Line(line) => match line.next() {
                Some(found) => return found.map(Some),
                None if self.has_features => self.state = State::Features { is_first: false },
                None => self.state = State::End,
            },
            State::End => {
                if self.stream.peek_token()?.is_some() {
                    return Err(Error::corruption("something follows the object")
                        .hint("a GeoJSON file is one Feature or one FeatureCollection")
                        .offset(self.stream.at()));
                }
                self.state = State::Over;
            }
            State::Over => {}
        }
        Ok(None)
    }

    fn start(&mut self) -> Result<()> {
        self.stream.take_mark(b"\xef\xbb\xbf")?;
        if self.stream.peek()?.is_none() {
            return Err(empty());
        }
        self.stream.token(b"{", "a GeoJSON file")?;
        self.state = State::Members { is_first: true };
        Ok(())
    }

    /// Reads a member of the outermost object.
    fn member(&mut self, is_first: bool) -> Result<Option<Record>> {
        let within = "the outermost object";
        if self.stream.peek_token()? == Some(b'}') {
            self.stream.token(b"}", within)?;
            return self.end_members();
        }
        if !is_first {
            self.stream.token(b",", within)?;
        }
        let key = self.key(within)?;
        self.stream.token(b":", within)?;
        self.stream.peek_token()?;
        self.state = State::Members { is_first: false };
        if key == "features" {
            self.stream.token(b"[", "the list of features")?;
            self.has_features = true;
            self.state = State::Features { is_first: true };
            return Ok(None);
        }
        let slot = FEATURE.iter().position(|name| *name == key);
        let most = slot.map_or(0, |_| FEATURE_BYTES_MAX);
        let (at, text) = self.value(most, within)?;
        let slot = slot.and_then(|nth| self.top.get_mut(nth));
        match (slot, text) {
            (None, _) => {}
            (Some(slot), Some(text)) => *slot = Some(text),
            (Some(_), None) => {
                let most = FEATURE_BYTES_MAX;
                let e = Error::not_supported(format!("the feature has over {most} bytes"));
                return Err(e.offset(at));
            }
        }
        Ok(None)
    }

    fn key(&mut self, within: &str) -> Result<String> {
        if self.stream.peek_token()? != Some(b'"') {
            // Fails, and says what was found instead.
            self.stream.token(b"\"", within)?;
        }
        let (at, text) = self.value(LINE_BYTES_MAX, within)?;
        let key = text.and_then(|text| serde_json::from_str(&text).ok());
        key.ok_or_else(|| Error::corruption(format!("{within} has a key that is none")).offset(at))
    }

    /// Reads a value. `None` if it is too long, or not UTF-8.
    fn value(&mut self, most: usize, within: &str) -> Result<(u64, Option<String>)> {
        let at = self.stream.at();
        let mut bytes = Vec::new();
        let is_whole = self.stream.value(&mut bytes, most, within)?;
        Ok((at, String::from_utf8(bytes).ok().filter(|_| is_whole)))
    }

    /// Handles the end of the outermost object: it was a collection, or is a feature itself.
    fn end_members(&mut self) -> Result<Option<Record>> {
        self.state = State::End;
        let [kind, geometry, properties, id] = std::mem::take(&mut self.top);
        let kind = kind.unwrap_or_else(|| "null".to_owned());
        let wanted = if self.has_features {
            "\"FeatureCollection\""
        } else {
            "\"Feature\""
        };
        if kind != wanted {
            return Err(
                Error::not_supported(format!("the file's type is {}", shown(&kind)))
                    .hint("a GeoJSON file is read that is a Feature, or a FeatureCollection"),
            );
        }
        if self.has_features {
            return Ok(None);
        }
        let of = |member: Option<String>| member.unwrap_or_else(|| "null".to_owned());
        let (geometry, properties, id) = (of(geometry), of(properties), of(id));
        let text = format!(
            r#"{{"type":{kind},"geometry":{geometry},"properties":{properties},"id":{id}}}"#
        );
        self.found(&text, 0)
    }

    /// Reads a feature of the list.
    fn feature(&mut self, is_first: bool) -> Result<Option<Record>> {
        let within = "the list of features";
        if self.stream.peek_token()? == Some(b']') {
            self.stream.token(b"]", within)?;
            self.state = State::Members { is_first: false };
            return Ok(None);
        }
        if !is_first {
            self.stream.token(b",", within)?;
        }
        if self.stream.peek_token()? != Some(b'{') {
            // Fails, and says what was found instead.
            self.stream.token(b"{", within)?;
            return Err(Error::broken("a feature that is none"));
        }
        let at = self.stream.at();
        let mut bytes = std::mem::take(&mut self.buffer);
        bytes.clear();
        let is_whole = self
            .stream
            .value(&mut bytes, FEATURE_BYTES_MAX, "a feature")?;
        let place = Place::Offset(at);
        let text = std::str::from_utf8(&bytes);
        let found = match text {
            _ if !is_whole => {
                Err(place.error(bad(format!("a feature of over {FEATURE_BYTES_MAX} bytes"))))
            }
            Err(_) => Err(place.error(bad("a feature that is not UTF-8"))),
            Ok(text) => self.found(text, at),
        };
        self.buffer = bytes;
        found
    }

    fn found(&mut self, text: &str, at: u64) -> Result<Option<Record>> {
        let place = Place::Offset(at);
        match feature(text, &self.options, place).map_err(|e| place.error(e))? {
            Feature::One(found) => place.record(Ok(*found)).map(Some),
            Feature::Line(line) => {
                self.state = State::Line(line);
                Ok(None)
            }
        }
    }
}

impl<R: BufRead> Iterator for GeoJson<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        while !matches!(self.state, State::Over) {
            match self.step() {
                Ok(None) => {}
                Ok(Some(record)) => return Some(Ok(record)),
                Err(e) => {
                    if !goes_on(&e) {
                        self.state = State::Over;
                    }
                    return Some(Err(e));
                }
            }
        }
        None
    }
}

/// The report of a Feature of a Point, and the names of its tags. Errors: `InvalidArgument` says what is wrong.
pub(crate) fn point(text: &str) -> Result<(Report, Vec<String>)> {
    let whole = json::members(text, &["geometry"], true)?;
    let kind = whole.map(|geometry| json::members(geometry?, &["type"], true).ok()?[0]);
    if let [Some(kind)] = kind
        && kind != "\"Point\""
    {
        let kind = shown(kind);
        let text = format!("a geometry of type {kind}: only a Point can be a report");
        return Err(bad(text));
    }
    match feature(text, &Options::default(), Place::Offset(0))? {
        Feature::One(found) => Ok(*found),
        Feature::Line(_) => Err(Error::broken("a point that is a line")),
    }
}

fn feature(text: &str, options: &Options, place: Place) -> Result<Feature> {
    let [kind, geometry, properties, id] = json::members(text, &FEATURE, true)?;
    if kind != Some("\"Feature\"") {
        let kind = shown(kind.unwrap_or("null"));
        return Err(bad(format!("its type is {kind}, and not Feature")));
    }
    let geometry = geometry.ok_or_else(|| bad("a feature without geometry"))?;
    let within = |e: Error| bad(format!("the geometry: {}", message(&e)));
    let [kind, coordinates] =
        json::members(geometry, &["type", "coordinates"], true).map_err(within)?;
    let coordinates = coordinates.filter(|list| list.starts_with('['));
    let coordinates = coordinates.ok_or_else(|| bad("a geometry without a list of coordinates"))?;
    let properties = json::members(
        properties.unwrap_or("{}"),
        &PROPERTIES,
        options.ignore_unknown,
    )
    .map_err(|e| bad(format!("the properties: {}", message(&e))))?;
    let [mut told @ .., times, coord_times] = properties;
    let [entity, ..] = &mut told;
    *entity = entity.or(id.filter(|id| id.starts_with('"')));
    let named = options.entity.as_ref();
    match (kind, times.or(coord_times)) {
        (Some("\"Point\""), None) => {
            let (position, altitude) = position(coordinates)?;
            let (mut report, tags) = json::told(&told, named, position)?;
            report.point.altitude = report.point.altitude.or(altitude);
            Ok(Feature::One(Box::new((report, tags))))
        }
        (Some("\"LineString\""), Some(times)) => {
            if !times.starts_with('[') {
                return Err(bad(format!("times is {}, and no list", shown(times))));
            }
            // Each position has its own time.
            let [entity, time, rest @ ..] = told;
            if time.is_some() {
                return Err(bad("a line with time and with times"));
            }
            let [a, b, c, d, e, f, g] = rest;
            let told = [entity, None, a, b, c, d, e, f, g];
            let nowhere = Position::of_units(0, 0)?;
            Ok(Feature::Line(Box::new(Line {
                report: json::told(&told, named, nowhere)?,
                coordinates: List::of(coordinates),
                times: List::of(times),
                place,
                nth: 0,
            })))
        }
        (Some("\"Point\""), Some(_)) => Err(bad("a point with a list of times")),
        (Some("\"LineString\""), None) => {
            Err(bad("a line without times").hint("its properties must have times or coordTimes"))
        }
        (kind, _) => Err(bad(format!(
            "a geometry of type {}, and not Point or LineString",
            shown(kind.unwrap_or("null"))
        ))),
    }
}

/// A position and an altitude: longitude, latitude, metres. Further elements are ignored, as RFC
/// 7946 says.
fn position(list: &str) -> Result<(Position, Option<i32>)> {
    let mut numbers = elements(list);
    let (lon, lat) = (numbers.next(), numbers.next());
    let altitude = numbers.next().filter(|raw| *raw != "null");
    let position = number::position(lat, lon)?;
    let altitude = altitude
        .map(|raw| json::number_of("altitude", raw))
        .transpose()?;
    Ok((position, altitude.map(number::altitude).transpose()?))
}

/// A list whose elements are read one by one.
#[derive(Debug)]
struct List {
    text: String,
    at: usize,
}

impl List {
    fn of(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            at: 1,
        }
    }

    fn next(&mut self) -> Option<&str> {
        let range = element(&self.text, self.at)?;
        self.at = range.end;
        self.text.get(range)
    }
}

/// A line whose positions are not read yet.
#[derive(Debug)]
struct Line {
    /// The fields that all positions share.
    report: (Report, Vec<String>),
    coordinates: List,
    times: List,
    place: Place,
    nth: u64,
}

impl Line {
    fn next(&mut self) -> Option<Result<Record>> {
        self.nth += 1;
        let (at, time) = (self.coordinates.next(), self.times.next());
        let found = match (at, time) {
            (None, None) => return None,
            (Some(at), Some(time)) => {
                let (mut report, tags) = self.report.clone();
                position(at).and_then(|(position, altitude)| {
                    report.time = Some(json::time(time)?);
                    report.point.position = position;
                    report.point.altitude = altitude.or(report.point.altitude);
                    Ok((report, tags))
                })
            }
            (at, _) => {
                let more = if at.is_some() {
                    "coordinates than times"
                } else {
                    "times than coordinates"
                };
                // Reported once.
                self.coordinates.at = usize::MAX;
                self.times.at = usize::MAX;
                Err(bad(format!("there are more {more}")))
            }
        };
        let nth = self.nth;
        let found = found.map_err(|e| bad(format!("position {nth} of the line: {}", message(&e))));
        Some(self.place.record(found))
    }
}

#[cfg(test)]
mod tests;
