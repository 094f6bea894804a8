//! A report as a JSON object: a line of an NDJSON file, a request's body, or the properties of a
//! GeoJSON feature.
//!
//! ```text
//!   {"entity":"car1", "lat":59.3, "lon":18.1, "time":1700000000.5, "speed":13.9, "course":90, "altitude":12,
//!    "accuracy":5, "battery":80, "tags":["night"], "attributes":{"driver":7}}
//! ```
//!
//! Degrees of WGS84; time in seconds since 1970 with a fraction, or as RFC 3339; m/s; degrees
//! clockwise from north; metres; metres; per cent. `entity`, `lat` and `lon` are required; `null`
//! is the same as a missing member; a duplicate key is refused. The format is this project's own,
//! in JSON by RFC 8259 (<https://www.rfc-editor.org/rfc/rfc8259>).
//!
//! Values are first cut out as text, and then read field by field: each error names its field,
//! numbers are not rounded before they are read, and attributes stay as they were sent, except for
//! spaces.

use std::fmt;

use base::Result;
use serde::de::{DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::number;
use super::record::{self, LINE_BYTES_MAX, bad, shown};
use super::times;
use crate::fleets::check_tags;
use crate::geo::position::Position;
use crate::model::name::Name;
use crate::model::point::{ATTRIBUTES_BYTES_MAX, Point};
use crate::model::report::Report;
use crate::model::time::Time;

/// The members besides the position, in the order in which `told` takes them.
pub(super) const TOLD: [&str; 9] = [
    "entity",
    "time",
    "speed",
    "course",
    "altitude",
    "accuracy",
    "battery",
    "tags",
    "attributes",
];
/// All keys of a report.
const KEYS: [&str; 11] = told_and(["lat", "lon"]);

/// [`TOLD`] and two more keys.
pub(super) const fn told_and(more: [&'static str; 2]) -> [&'static str; 11] {
    let [a, b, c, d, e, f, g, h, i] = TOLD;
    let [j, k] = more;
    [a, b, c, d, e, f, g, h, i, j, k]
}

/// Reads a report, and the names of its tags.
///
/// Errors: `InvalidArgument` names the invalid field, or the unknown key.
///
/// ```
/// use tracks::files::json::report;
/// let (report, tags) = report(r#"{"entity":"car1","lat":59.3,"lon":18.1,"tags":["night"]}"#)?;
/// assert_eq!((report.entity.as_str(), report.time, &tags[..]), ("car1", None, &["night".to_owned()][..]));
/// # Ok::<(), base::Error>(())
/// ```
pub fn report(text: &str) -> Result<(Report, Vec<String>)> {
    report_of(text, None, false)
}

/// Like [`report`], with a default entity, and ignoring unknown keys if `ignore_unknown` is set.
pub(super) fn report_of(
    text: &str,
    named: Option<&Name>,
    ignore_unknown: bool,
) -> Result<(Report, Vec<String>)> {
    let members = members(text, &KEYS, ignore_unknown)?;
    let [told_of @ .., lat, lon] = members;
    let text = |what: &str, raw: Option<&str>| -> Result<()> {
        raw.map_or(Ok(()), |raw| number_of(what, raw).map(drop))
    };
    text("lat", lat)?;
    text("lon", lon)?;
    told(&told_of, named, number::position(lat, lon)?)
}

/// The report of members in the order of [`TOLD`]. Errors: `InvalidArgument`.
pub(super) fn told(
    members: &[Option<&str>; TOLD.len()],
    named: Option<&Name>,
    position: Position,
) -> Result<(Report, Vec<String>)> {
    let [
        entity,
        time,
        speed,
        course,
        altitude,
        accuracy,
        battery,
        tags,
        attributes,
    ] = *members;
    let entity = entity.map(|raw| string("entity", raw)).transpose()?;
    let entity = record::entity(entity.as_deref(), named)?;
    let of = |what: &str, raw: Option<&str>| raw.map(|raw| number_of(what, raw)).transpose();
    let mut point = Point::at(position);
    point.speed = of("speed", speed)?.map(number::speed).transpose()?;
    point.course = of("course", course)?.map(number::course).transpose()?;
    point.altitude = of("altitude", altitude)?
        .map(number::altitude)
        .transpose()?;
    point.accuracy = of("accuracy", accuracy)?
        .map(number::accuracy)
        .transpose()?;
    point.battery = of("battery", battery)?.map(number::battery).transpose()?;
    point.attributes = attributes.map_or(Ok(String::new()), self::attributes)?;
    let report = Report {
        entity,
        time: time.map(self::time).transpose()?,
        point,
    };
    let tags = tags.map_or(Ok(Vec::new()), self::tags)?;
    Ok((report, tags))
}

/// The members of an object, in the order of `keys`; `null` is `None`. Errors: `InvalidArgument`.
pub(super) fn members<'a, const N: usize>(
    text: &'a str,
    keys: &[&str; N],
    ignore_unknown: bool,
) -> Result<[Option<&'a str>; N]> {
    let wanted = Wanted {
        keys,
        ignore_unknown,
    };
    let mut json = serde_json::Deserializer::from_str(text);
    let found = wanted.deserialize(&mut json).map_err(|e| wrong(&e))?;
    json.end().map_err(|e| wrong(&e))?;
    Ok(found)
}

/// The message of serde_json, with the column as a byte, and without the line if there is only one.
fn wrong(e: &serde_json::Error) -> base::Error {
    let text = e.to_string();
    let place = format!(" at line {} column {}", e.line(), e.column());
    let kind = if e.is_data() { "" } else { "not JSON: " };
    match text.strip_suffix(&place) {
        Some(text) if e.line() == 1 => bad(format!("{kind}{text}, at byte {}", e.column())),
        _ => bad(format!("{kind}{text}")),
    }
}

struct Wanted<'k, const N: usize> {
    keys: &'k [&'k str; N],
    ignore_unknown: bool,
}

impl<'de, const N: usize> DeserializeSeed<'de> for Wanted<'_, N> {
    type Value = [Option<&'de str>; N];

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_map(self)
    }
}

impl<'de, const N: usize> Visitor<'de> for Wanted<'_, N> {
    type Value = [Option<&'de str>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut found: [Option<&'de RawValue>; N] = [None; N];
        while let Some(nth) = map.next_key_seed(Key(&self.keys[..], self.ignore_unknown))? {
            let Some((slot, key)) = nth.and_then(|nth| Some((found.get_mut(nth)?, nth))) else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            if slot.replace(map.next_value()?).is_some() {
                let key = self.keys.get(key).copied().unwrap_or_default();
                return Err(A::Error::custom(format!("the key {key:?} is there twice")));
            }
        }
        Ok(found.map(|raw| raw.map(RawValue::get).filter(|text| *text != "null")))
    }
}

/// The index of a key among the known ones.
struct Key<'k>(&'k [&'k str], bool);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E: serde::de::Error>(self, key: &str) -> Result<Self::Value, E> {
        let nth = self.0.iter().position(|known| *known == key);
        if nth.is_none() && !self.1 {
            let known = self.0.join(", ");
            let key = shown(key);
            return Err(E::custom(format!(
                "the key {key} is not known; there are {known}"
            )));
        }
        Ok(nth)
    }
}

/// Reads a number from its JSON. Errors: `InvalidArgument`.
pub(super) fn number_of(what: &str, raw: &str) -> Result<f64> {
    if raw.starts_with(|c: char| c == '-' || c.is_ascii_digit()) {
        return number::number(what, raw);
    }
    Err(bad(format!("{what} is {}, and not a number", shown(raw))))
}

/// Reads a string from its JSON. Errors: `InvalidArgument`.
pub(super) fn string(what: &str, raw: &str) -> Result<String> {
    serde_json::from_str(raw)
        .map_err(|_| bad(format!("{what} is {}, and not a string", shown(raw))))
}

/// Reads a time from its JSON: a number or a string. Errors: `InvalidArgument`.
pub(super) fn time(raw: &str) -> Result<Time> {
    if raw.starts_with('"') {
        return times::rfc3339(&string("time", raw)?, None);
    }
    number_of("time", raw)?;
    times::since_1970(raw, times::Unit::Seconds)
}

/// Reads names of tags from their JSON. Errors: `InvalidArgument`, as for [`check_tags`].
pub(super) fn tags(raw: &str) -> Result<Vec<String>> {
    let too_large = raw.len() > LINE_BYTES_MAX;
    let tags = (!too_large).then(|| serde_json::from_str::<Vec<String>>(raw).ok());
    let tags = tags.flatten();
    let tags = tags.ok_or_else(|| bad(format!("tags is {}, and no list of tags", shown(raw))))?;
    check_tags(&tags)?;
    Ok(tags)
}

/// Attributes as they are stored: an object without spaces; empty if it has no members. Errors:
/// `InvalidArgument` if it is not an object, or has more than 1024 bytes.
pub(super) fn attributes(raw: &str) -> Result<String> {
    let no_object = |e| bad(format!("attributes are no JSON object: {e}"));
    // Checked before spaces are removed, because without them `1 2` would be `12`. A very long text
    // is refused anyway.
    let is_long = raw.len() > 16 * ATTRIBUTES_BYTES_MAX;
    if !is_long {
        serde_json::from_str::<Map<String, Value>>(raw).map_err(no_object)?;
    }
    let mut compact = String::new();
    let (mut in_string, mut is_escaped) = (false, false);
    for c in raw.chars() {
        if in_string || !c.is_ascii_whitespace() {
            compact.push(c);
        }
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = in_string,
            '"' => in_string = !in_string,
            _ => {}
        }
        if compact.len() > ATTRIBUTES_BYTES_MAX {
            return Err(bad(format!(
                "attributes of more than {ATTRIBUTES_BYTES_MAX} bytes"
            )));
        }
    }
    if is_long {
        return Err(bad("attributes that are nearly all spaces"));
    }
    let object = serde_json::from_str::<Map<String, Value>>(&compact).map_err(no_object)?;
    Ok(if object.is_empty() {
        String::new()
    } else {
        compact
    })
}

#[cfg(test)]
mod tests;
