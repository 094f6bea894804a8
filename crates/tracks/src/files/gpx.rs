//! GPX 1.0 and 1.1 (<https://www.topografix.com/GPX/1/1/>): the points of tracks.
//!
//! ```text
//!   <gpx version="1.1"><trk><name>car1</name><trkseg>
//!     <trkpt lat="59.3293" lon="18.0686"><ele>12</ele><time>2023-11-14T22:13:20Z</time>
//!       <extensions>…<speed>13.9</speed><course>90</course>…</extensions></trkpt>
//!   </trkseg></trk></gpx>
//! ```
//!
//! `speed` (m/s) and `course` (degrees) are children of a point in 1.0, and extensions in any
//! namespace in 1.1, as in Garmin's TrackPointExtension. `ironstone:accuracy`, `battery`, `tags`
//! and `attributes` are extensions of this project. Times are UTC, also without a `Z`, as GPX says.
//! Points of routes, and waypoints, are counted and left out.
//!
//! One tag or text is in memory, of at most 1 MiB. Document types are refused, so that only the
//! five entities of XML itself are expanded. Malformed XML ends the file.

use std::io::{self, BufRead, Read};

use base::{Error, Result};
use quick_xml::Reader;
use quick_xml::events::{BytesDecl, BytesRef, BytesStart, Event};

use super::options::Options;
use super::record::{self, LINE_BYTES_MAX, Place, Record, bad, cut_off, goes_on, shown};
use super::{json, number, times};
use crate::model::name::Name;
use crate::model::point::Point;
use crate::model::report::Report;

/// The largest tag, text or comment, bytes.
const EVENT_BYTES_MAX: u64 = 1 << 20;
/// The deepest nesting of elements.
const DEPTH_MAX: usize = 64;
/// The longest name of a tag, bytes: the names of open elements are kept.
const NAME_BYTES_MAX: usize = 1 << 10;
/// The most attributes of a point that are read; it needs two.
const ATTRIBUTES_MAX: usize = 32;
/// The namespace prefix of this project's extensions.
pub(super) const PREFIX: &str = "ironstone";

/// The elements of a point that are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaf {
    Time,
    Altitude,
    Speed,
    Course,
    Accuracy,
    Battery,
    Tags,
    Attributes,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Element {
    Gpx,
    Track,
    TrackName,
    Segment,
    Point,
    Extensions,
    Leaf(Leaf),
    Route,
    Other,
}

impl Element {
    /// The element with this name in a parent.
    fn of(parent: Option<Self>, name: &str) -> Self {
        let local = name.rsplit(':').next().unwrap_or(name);
        match (parent, local) {
            (None, "gpx") => Self::Gpx,
            (Some(Self::Gpx), "trk") => Self::Track,
            (Some(Self::Gpx), "rte") => Self::Route,
            (Some(Self::Track), "name") => Self::TrackName,
            (Some(Self::Track), "trkseg") => Self::Segment,
            (Some(Self::Segment), "trkpt") => Self::Point,
            (Some(Self::Point), "time") => Self::Leaf(Leaf::Time),
            (Some(Self::Point), "ele") => Self::Leaf(Leaf::Altitude),
            (Some(Self::Point | Self::Extensions), "speed") => Self::Leaf(Leaf::Speed),
            (Some(Self::Point | Self::Extensions), "course") => Self::Leaf(Leaf::Course),
            (Some(Self::Point), "extensions") => Self::Extensions,
            (Some(Self::Extensions), _) => match name.strip_prefix(PREFIX) {
                Some(":accuracy") => Self::Leaf(Leaf::Accuracy),
                Some(":battery") => Self::Leaf(Leaf::Battery),
                Some(":tags") => Self::Leaf(Leaf::Tags),
                Some(":attributes") => Self::Leaf(Leaf::Attributes),
                _ => Self::Extensions,
            },
            _ => Self::Other,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Gpx => "gpx",
            Self::Track => "trk",
            Self::TrackName => "a track's name",
            Self::Segment => "trkseg",
            Self::Point => "trkpt",
            Self::Extensions => "extensions",
            Self::Leaf(_) => "an element of trkpt",
            Self::Route => "rte",
            Self::Other => "an element",
        }
    }
}

/// The entity of a track's points.
#[derive(Debug)]
enum Whose {
    NotSaid,
    Named(Name),
    /// An error was reported, and the points are left out.
    Refused,
}

/// A point that is being read.
#[derive(Debug)]
struct Draft {
    at: u64,
    lat: Option<String>,
    lon: Option<String>,
    texts: [Option<String>; 8],
}

/// Reports of a GPX file.
#[derive(Debug)]
pub(super) struct Gpx<R> {
    xml: Reader<Limited<R>>,
    named: Option<Name>,
    /// The open elements, outermost first.
    path: Vec<Element>,
    whose: Whose,
    draft: Option<Draft>,
    text: String,
    buffer: Vec<u8>,
    ignored: u64,
    has_root: bool,
    is_over: bool,
}

impl<R: BufRead> Gpx<R> {
    pub(super) fn new(read: R, options: &Options) -> Self {
        let mut xml = Reader::from_reader(Limited { read, left: 0 });
        xml.config_mut().expand_empty_elements = true;
        Self {
            xml,
            named: options.entity.clone(),
            path: Vec::new(),
            whose: Whose::NotSaid,
            draft: None,
            text: String::new(),
            buffer: Vec::new(),
            ignored: 0,
            has_root: false,
            is_over: false,
        }
    }

    /// The number of points that were left out.
    pub(super) fn ignored(&self) -> u64 {
        self.ignored
    }

    fn step(&mut self) -> Result<Option<Record>> {
        let at = self.xml.buffer_position();
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        self.xml.get_mut().left = EVENT_BYTES_MAX;
        let step = match self.xml.read_event_into(&mut buffer) {
            Ok(event) => self.event(event, at),
            Err(e) => Err(self.broken(e)),
        };
        self.buffer = buffer;
        step
    }

    fn broken(&self, e: quick_xml::Error) -> Error {
        let e = match e {
            quick_xml::Error::Io(e) if e.get_ref().is_some_and(|e| e.is::<TooLong>()) => {
                Error::not_supported(format!("a tag or text of over {EVENT_BYTES_MAX} bytes"))
            }
            quick_xml::Error::Io(e) => {
                Error::new(base::ErrorKind::IoError, format!("read: {e}")).because(e)
            }
            quick_xml::Error::Syntax(e) => {
                Error::corruption(format!("the file is cut off, or is no XML: {e}"))
            }
            e => {
                let text: String = e.to_string().chars().take(200).collect();
                Error::corruption(format!("the file is no XML: {text}"))
            }
        };
        e.offset(self.xml.error_position())
    }

    fn event(&mut self, event: Event<'_>, at: u64) -> Result<Option<Record>> {
        let here = |e: Error| e.offset(at);
        match event {
            Event::Start(tag) => self.start(&tag, at).map_err(here)?,
            Event::End(_) => return self.end(at),
            Event::Text(text) => self.append(&text.xml10_content()),
            Event::CData(text) => self.append(&text.xml10_content()),
            Event::GeneralRef(reference) => {
                let c = character(&reference).map_err(here)?;
                self.append(c.encode_utf8(&mut [0; 4]));
            }
            Event::Decl(declaration) => encoding(&declaration).map_err(here)?,
            Event::DocType(_) => {
                return Err(here(
                    Error::not_supported("a document type (DOCTYPE)")
                        .hint("GPX files need none, and entities of their own are not expanded"),
                ));
            }
            Event::Eof => return self.eof(at).map(|()| None),
            Event::Empty(_) | Event::Comment(_) | Event::PI(_) => {}
        }
        Ok(None)
    }

    fn start(&mut self, tag: &BytesStart<'_>, at: u64) -> Result<()> {
        let name = tag.name();
        let element = Element::of(self.path.last().copied(), name.as_ref());
        if self.path.is_empty() && (self.has_root || element != Element::Gpx) {
            let name = shown(name.as_ref());
            return Err(Error::not_supported(format!(
                "a file of {name}, and not of one gpx"
            )));
        }
        if self.path.len() >= DEPTH_MAX {
            return Err(Error::not_supported(format!("elements {DEPTH_MAX} deep")));
        }
        if name.as_ref().len() > NAME_BYTES_MAX {
            let name = shown(name.as_ref());
            return Err(Error::not_supported(format!(
                "a tag of a long name, {name}"
            )));
        }
        self.has_root = true;
        let parent = self.path.last();
        match (parent, tag.local_name().as_ref()) {
            (Some(Element::Gpx), "wpt") | (Some(Element::Route), "rtept") => self.ignored += 1,
            _ => {}
        }
        self.path.push(element);
        self.text.clear();
        match element {
            Element::Track => self.whose = Whose::NotSaid,
            Element::Point => self.draft = Some(Draft::of(tag, at)),
            _ => {}
        }
        Ok(())
    }

    /// Adds text of the innermost element, if that element is read.
    fn append(&mut self, text: &str) {
        let is_wanted = matches!(
            self.path.last(),
            Some(Element::TrackName | Element::Leaf(_))
        );
        // One byte more than allowed is kept, so that the text is refused at its end.
        if is_wanted && self.text.len() <= LINE_BYTES_MAX {
            self.text.push_str(text);
        }
    }

    fn end(&mut self, at: u64) -> Result<Option<Record>> {
        let text = std::mem::take(&mut self.text);
        match self.path.pop() {
            Some(Element::TrackName) => self.name(&text).map_err(|e| e.offset(at))?,
            Some(Element::Leaf(leaf)) => {
                let texts = self.draft.as_mut().map(|draft| &mut draft.texts);
                let slot = texts.and_then(|texts| texts.get_mut(leaf as usize));
                if let Some(slot) = slot.filter(|slot| slot.is_none()) {
                    *slot = Some(text);
                }
            }
            Some(Element::Point) => return self.point(),
            _ => {}
        }
        Ok(None)
    }

    fn name(&mut self, text: &str) -> Result<()> {
        if self.named.is_some() || !matches!(self.whose, Whose::NotSaid) {
            return Ok(());
        }
        self.whose = Whose::Refused;
        // Spaces belong to the name, unless the text is on lines of its own.
        let text = if text.contains('\n') {
            text.trim()
        } else {
            text
        };
        let name = Name::new(text);
        let name = name.map_err(|e| bad(format!("a track's name: {}", record::message(&e))))?;
        self.whose = Whose::Named(name);
        Ok(())
    }

    fn point(&mut self) -> Result<Option<Record>> {
        let Some(draft) = self.draft.take() else {
            return Ok(None);
        };
        let place = Place::Offset(draft.at);
        let entity = match (&self.named, &self.whose) {
            (Some(name), _) | (None, Whose::Named(name)) => name.clone(),
            (None, Whose::Refused) => {
                self.ignored += 1;
                return Ok(None);
            }
            (None, Whose::NotSaid) => {
                self.whose = Whose::Refused;
                self.ignored += 1;
                let e = bad("a track without a name before its points; they are left out")
                    .hint("give the entity that it is of");
                return Err(place.error(e));
            }
        };
        place.record(draft.report(entity)).map(Some)
    }

    fn eof(&mut self, at: u64) -> Result<()> {
        self.is_over = true;
        match self.path.last() {
            Some(element) => Err(cut_off(element.name()).offset(at)),
            None if self.has_root => Ok(()),
            None if at == 0 => Err(record::empty()),
            None => Err(Error::corruption("the file is no GPX: it has no element")),
        }
    }
}

impl<R: BufRead> Iterator for Gpx<R> {
    type Item = Result<Record>;

    fn next(&mut self) -> Option<Self::Item> {
        while !self.is_over {
            match self.step() {
                Ok(None) => {}
                Ok(Some(record)) => return Some(Ok(record)),
                Err(e) => {
                    self.is_over |= !goes_on(&e);
                    return Some(Err(e));
                }
            }
        }
        None
    }
}

impl Draft {
    fn of(tag: &BytesStart<'_>, at: u64) -> Self {
        let mut draft = Self {
            at,
            lat: None,
            lon: None,
            texts: [const { None }; 8],
        };
        // The check for duplicate names takes quadratic time.
        let mut attributes = tag.attributes();
        attributes.with_checks(false);
        for attribute in attributes.take(ATTRIBUTES_MAX).flatten() {
            let slot = match attribute.key.as_ref() {
                "lat" => &mut draft.lat,
                "lon" => &mut draft.lon,
                _ => continue,
            };
            slot.get_or_insert_with(|| attribute.value.trim_ascii().to_owned());
        }
        draft
    }

    fn report(self, entity: Name) -> Result<(Report, Vec<String>)> {
        let is_long = |text: &String| text.len() > LINE_BYTES_MAX;
        if self.texts.iter().flatten().any(is_long) {
            return Err(bad(format!("an element of over {LINE_BYTES_MAX} bytes")));
        }
        let text = |leaf: Leaf| {
            let text = self.texts.get(leaf as usize)?.as_deref();
            text.map(str::trim_ascii).filter(|text| !text.is_empty())
        };
        let of = |what: &str, leaf| {
            text(leaf)
                .map(|text| number::number(what, text))
                .transpose()
        };
        let position = number::position(self.lat.as_deref(), self.lon.as_deref())?;
        let time = text(Leaf::Time).ok_or_else(|| bad("a point without time"))?;
        let mut point = Point::at(position);
        point.altitude = of("ele", Leaf::Altitude)?
            .map(number::altitude)
            .transpose()?;
        point.speed = of("speed", Leaf::Speed)?.map(number::speed).transpose()?;
        point.course = of("course", Leaf::Course)?
            .map(number::course)
            .transpose()?;
        point.accuracy = of("accuracy", Leaf::Accuracy)?
            .map(number::accuracy)
            .transpose()?;
        point.battery = of("battery", Leaf::Battery)?
            .map(number::battery)
            .transpose()?;
        let attributes = text(Leaf::Attributes).map(json::attributes).transpose()?;
        point.attributes = attributes.unwrap_or_default();
        let tags = text(Leaf::Tags).map(json::tags).transpose()?;
        let report = Report {
            entity,
            time: Some(times::rfc3339(time, Some(0))?),
            point,
        };
        Ok((report, tags.unwrap_or_default()))
    }
}

/// The character of a reference: by its number, or one of the five entities of XML itself.
fn character(reference: &BytesRef<'_>) -> Result<char> {
    let refused = |why: &str| {
        let name: &str = reference;
        Error::not_supported(format!("the entity {}: {why}", shown(name)))
    };
    let by_number = reference.resolve_char_ref();
    if let Some(c) = by_number.map_err(|_| refused("no character"))? {
        return Ok(c);
    }
    let name: &str = reference;
    match name {
        "amp" => Ok('&'),
        "lt" => Ok('<'),
        "gt" => Ok('>'),
        "quot" => Ok('"'),
        "apos" => Ok('\''),
        _ => Err(refused("it is not expanded")),
    }
}

/// Errors: `NotSupported` if the file declares an encoding other than UTF-8.
fn encoding(declaration: &BytesDecl<'_>) -> Result<()> {
    let Some(Ok(encoding)) = declaration.encoding() else {
        return Ok(());
    };
    let known = ["utf-8", "utf8", "us-ascii", "ascii"];
    if known
        .iter()
        .any(|known| encoding.eq_ignore_ascii_case(known))
    {
        return Ok(());
    }
    let encoding = shown(&encoding);
    Err(Error::not_supported(format!("the encoding {encoding}")).hint("convert it to UTF-8"))
}

/// A reader that gives a limited number of bytes, and then an error.
#[derive(Debug)]
struct Limited<R> {
    read: R,
    left: u64,
}

/// The error of a [`Limited`].
#[derive(Debug)]
struct TooLong;

impl std::fmt::Display for TooLong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("too long")
    }
}

impl std::error::Error for TooLong {}

impl<R: BufRead> Read for Limited<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let read = self.fill_buf()?.read(out)?;
        self.consume(read);
        Ok(read)
    }
}

impl<R: BufRead> BufRead for Limited<R> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        if self.left == 0 {
            return Err(io::Error::other(TooLong));
        }
        let chunk = self.read.fill_buf()?;
        let len = chunk
            .len()
            .min(usize::try_from(self.left).unwrap_or(usize::MAX));
        Ok(chunk.get(..len).unwrap_or_default())
    }

    fn consume(&mut self, bytes: usize) {
        self.left = self.left.saturating_sub(bytes as u64);
        self.read.consume(bytes);
    }
}

#[cfg(test)]
mod tests;
