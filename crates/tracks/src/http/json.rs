//! One report from its JSON: the plain form, or a GeoJSON Feature.

use std::borrow::Cow;
use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, Visitor};
use serde_json::value::RawValue;

use super::problem::text;
use super::time;
use crate::fleets::TAGS_MAX;
use crate::geo::position::Position;
use crate::model::name::Name;
use crate::model::point::{ATTRIBUTES_BYTES_MAX, COURSE_END, Point, SPEED_END};
use crate::model::report::Report;
use crate::model::time::Time;

/// The most bytes of a tag.
pub(crate) const TAG_BYTES_MAX: usize = 64;
/// Attributes may be nested so deep.
const DEPTH_MAX: usize = 32;

/// A report, and the names of its tags, whose bits it does not have yet.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) report: Report,
    pub(crate) tags: Vec<String>,
}

/// A time as it was written.
#[derive(Clone, Copy, Debug)]
struct Moment(Time);

impl<'de> Deserialize<'de> for Moment {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Either;

        impl Visitor<'_> for Either {
            type Value = Moment;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time: seconds since 1970, or RFC 3339")
            }

            fn visit_f64<E: serde::de::Error>(self, n: f64) -> Result<Moment, E> {
                time::of_seconds(n).map(Moment).map_err(E::custom)
            }

            fn visit_u64<E: serde::de::Error>(self, n: u64) -> Result<Moment, E> {
                self.visit_f64(n as f64)
            }

            fn visit_i64<E: serde::de::Error>(self, n: i64) -> Result<Moment, E> {
                self.visit_f64(n as f64)
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Moment, E> {
                time::of_rfc3339(text).map(Moment).map_err(E::custom)
            }
        }
        from.deserialize_any(Either)
    }
}

/// Text that is borrowed where it has no escapes.
#[derive(Debug, Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Plain<'a> {
    #[serde(borrow)]
    entity: Text<'a>,
    lat: f64,
    lon: f64,
    time: Option<Moment>,
    speed: Option<f64>,
    course: Option<f64>,
    altitude: Option<f64>,
    accuracy: Option<f64>,
    battery: Option<f64>,
    tags: Option<Vec<String>>,
    #[serde(borrow)]
    attributes: Option<&'a RawValue>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Feature<'a> {
    #[serde(rename = "type")]
    _type: Text<'a>,
    #[serde(borrow)]
    id: Option<Text<'a>>,
    geometry: PointGeometry<'a>,
    #[serde(borrow)]
    properties: Option<Properties<'a>>,
    #[serde(rename = "bbox")]
    _bbox: Option<Vec<f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct PointGeometry<'a> {
    #[serde(rename = "type", borrow)]
    kind: Text<'a>,
    coordinates: Vec<f64>,
    #[serde(rename = "bbox")]
    _bbox: Option<Vec<f64>>,
}

/// The plain form without a position.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Properties<'a> {
    #[serde(borrow)]
    entity: Option<Text<'a>>,
    time: Option<Moment>,
    speed: Option<f64>,
    course: Option<f64>,
    altitude: Option<f64>,
    accuracy: Option<f64>,
    battery: Option<f64>,
    tags: Option<Vec<String>>,
    #[serde(borrow)]
    attributes: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Typed<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Text<'a>>,
}

/// The value of the member `type` of a JSON object.
pub(crate) fn type_of(bytes: &[u8]) -> Option<String> {
    let typed: Typed<'_> = serde_json::from_slice(bytes).ok()?;
    typed.kind.map(|kind| kind.0.into_owned())
}

/// A report from its JSON. Errors say what is wrong with it.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, String> {
    if let Ok(plain) = serde_json::from_slice::<Plain<'_>>(bytes) {
        return report(plain);
    }
    match type_of(bytes).as_deref() {
        Some("Feature") => report(plain_of(read::<Feature<'_>>(bytes)?)?),
        Some(other) if !other.is_empty() => Err(format!(
            "{other:.40?} is no type of a report: a GeoJSON Feature of a Point is taken"
        )),
        _ => report(read(bytes)?),
    }
}

/// Reads JSON. Errors name the member that is wrong.
pub(crate) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    let mut json = serde_json::Deserializer::from_slice(bytes);
    let value = serde_path_to_error::deserialize(&mut json).map_err(|e| {
        let path = e.path().to_string();
        let path: String = path.chars().take(100).collect();
        match path.as_str() {
            "." | "?" => said(e.inner()),
            _ => format!("{path}: {}", said(e.inner())),
        }
    })?;
    json.end().map_err(|e| said(&e))?;
    Ok(value)
}

/// An error of JSON, on one line or more.
pub(crate) fn said(e: &serde_json::Error) -> String {
    let text = e.to_string();
    let place = format!(" at line {} column {}", e.line(), e.column());
    let what = text.strip_suffix(&place).unwrap_or(&text);
    let shown: String = what.chars().take(400).collect();
    let kind = if e.is_data() { "" } else { "not JSON: " };
    match (e.line(), e.column()) {
        (0, _) => format!("{kind}{shown}"),
        (1, column) => format!("{kind}{shown} (column {column})"),
        (line, column) => format!("{kind}{shown} (line {line}, column {column})"),
    }
}

fn plain_of(feature: Feature<'_>) -> Result<Plain<'_>, String> {
    let Feature {
        id,
        geometry,
        properties,
        ..
    } = feature;
    if geometry.kind.0 != "Point" {
        return Err(format!(
            "a geometry of type {:.40?}: only a Point can be a report",
            geometry.kind.0
        ));
    }
    let (lon, lat, altitude) = match geometry.coordinates.as_slice() {
        [lon, lat] => (*lon, *lat, None),
        [lon, lat, altitude] => (*lon, *lat, Some(*altitude)),
        other => {
            return Err(format!(
                "a point has {} coordinates, and not longitude, latitude and perhaps an altitude",
                other.len()
            ));
        }
    };
    let properties = properties.unwrap_or_default();
    let entity = properties.entity.or(id);
    let entity = entity.ok_or("the member `entity` of the properties is missing")?;
    Ok(Plain {
        entity,
        lat,
        lon,
        time: properties.time,
        speed: properties.speed,
        course: properties.course,
        altitude: properties.altitude.or(altitude),
        accuracy: properties.accuracy,
        battery: properties.battery,
        tags: properties.tags,
        attributes: properties.attributes,
    })
}

fn report(plain: Plain<'_>) -> Result<Parsed, String> {
    let entity = Name::new(&plain.entity.0).map_err(|e| format!("entity: {}", text(&e)))?;
    let position = Position::of_degrees(plain.lat, plain.lon).map_err(|e| text(&e))?;
    let mut point = Point::at(position);
    let speed_max = f64::from(SPEED_END - 1) / 100.0;
    let speed = scaled("speed", plain.speed, 100.0, (0.0, speed_max))?;
    point.speed = speed.map(|n| n as u16);
    let course = scaled("course", plain.course, 100.0, (0.0, 360.0))?;
    point.course = course.map(|n| n as u16 % COURSE_END);
    let altitude_max = 20_000_000.0;
    let altitude = scaled(
        "altitude",
        plain.altitude,
        100.0,
        (-altitude_max, altitude_max),
    )?;
    point.altitude = altitude.map(|n| n as i32);
    let accuracy = scaled("accuracy", plain.accuracy, 10.0, (0.0, f64::MAX))?;
    point.accuracy = accuracy.map(|n| n.min(f64::from(u16::MAX)) as u16);
    let battery = scaled("battery", plain.battery, 1.0, (0.0, 100.0))?;
    point.battery = battery.map(|n| n as u8);
    if let Some(raw) = plain.attributes {
        point.attributes = attributes(raw.get())?;
    }
    let tags = plain.tags.unwrap_or_default();
    check_tags(&tags)?;
    Ok(Parsed {
        report: Report {
            entity,
            time: plain.time.map(|moment| moment.0),
            point,
        },
        tags,
    })
}

/// A number in the unit that it is stored in.
fn scaled(
    name: &str,
    value: Option<f64>,
    by: f64,
    (least, most): (f64, f64),
) -> Result<Option<f64>, String> {
    let Some(value) = value else {
        return Ok(None);
    };
    if (least..=most).contains(&value) {
        return Ok(Some((value * by).round()));
    }
    Err(format!(
        "{name} {value} is not within {least} and {most}: leave it out where it is not known"
    ))
}

/// Errors: a tag is no name of one, or there are too many.
pub(crate) fn check_tags(tags: &[String]) -> Result<(), String> {
    if tags.len() > TAGS_MAX {
        return Err(format!("{} tags, and {TAGS_MAX} at most", tags.len()));
    }
    let is_bad = |tag: &&String| {
        tag.is_empty() || tag.len() > TAG_BYTES_MAX || tag.contains(char::is_control)
    };
    let bad = tags.iter().find(is_bad);
    bad.map_or(Ok(()), |tag| {
        Err(format!(
            "{tag:.40?} is no tag: it has 1 to {TAG_BYTES_MAX} bytes without control characters"
        ))
    })
}

/// An object's JSON without spaces. Errors: it is none, too long, or too deep.
fn attributes(raw: &str) -> Result<String, String> {
    if raw == "null" {
        return Ok(String::new());
    }
    if !raw.starts_with('{') {
        return Err("attributes are no JSON object".to_owned());
    }
    let mut out = String::with_capacity(raw.len().min(2 * ATTRIBUTES_BYTES_MAX));
    let (mut depth, mut in_text, mut escaped) = (0, false, false);
    for c in raw.chars() {
        if in_text {
            in_text = escaped || c != '"';
            escaped = !escaped && c == '\\';
        } else {
            match c {
                '"' => in_text = true,
                '{' | '[' => depth += 1,
                '}' | ']' => depth -= 1,
                ' ' | '\t' | '\r' | '\n' => continue,
                _ => {}
            }
        }
        out.push(c);
        if out.len() > ATTRIBUTES_BYTES_MAX {
            return Err(format!(
                "attributes of more than {ATTRIBUTES_BYTES_MAX} bytes"
            ));
        }
        if depth > DEPTH_MAX {
            return Err(format!("attributes nested deeper than {DEPTH_MAX}"));
        }
    }
    Ok(if out == "{}" { String::new() } else { out })
}

/// A problem in a document that is not a report's.
pub(crate) fn custom(text: impl fmt::Display) -> serde_json::Error {
    serde_json::Error::custom(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(json: &str) -> String {
        parse(json.as_bytes()).unwrap_err()
    }

    #[test]
    fn all_fields_are_read() {
        let json = r#"{"entity":"cår \"1","lat":59.3,"lon":18.1,"time":"2023-11-14T22:13:20.5Z",
            "speed":12.345,"course":360,"altitude":-3.2,"accuracy":99999,"battery":80.4,
            "tags":["taxi"],"attributes":{"a": [1, "x } \" y"], "n": 1e400}}"#;
        let Parsed { report, tags } = parse(json.as_bytes()).unwrap();
        assert_eq!(report.entity.as_str(), "cår \"1");
        assert_eq!(report.time, Some(Time(1_700_000_000_500_000)));
        let p = report.point;
        assert_eq!((p.speed, p.course), (Some(1235), Some(0)));
        assert_eq!((p.altitude, p.accuracy), (Some(-320), Some(u16::MAX)));
        assert_eq!((p.battery, tags), (Some(80), vec!["taxi".to_owned()]));
        assert_eq!(p.attributes, r#"{"a":[1,"x } \" y"],"n":1e400}"#);
        let feature = r#"{"type":"Feature","id":"a","geometry":{"type":"Point",
            "coordinates":[18.1,59.3,7]},"properties":null}"#;
        let report = parse(feature.as_bytes()).unwrap().report;
        assert_eq!((report.entity.as_str(), report.time), ("a", None));
        assert_eq!(report.point.altitude, Some(700));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let with = |more: &str| format!(r#"{{"entity":"a","lat":1,"lon":2{more}}}"#);
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let long = format!(r#","attributes":{{"a":"{}"}}"#, "x".repeat(1100));
        let cases = [
            (with(r#","sped":1"#), "`sped`"),
            (with(r#","lat":1"#), "duplicate field `lat`"),
            (with(r#","speed":-1"#), "speed -1"),
            (with(r#","course":361"#), "course 361"),
            (with(r#","battery":101"#), "battery 101"),
            (with(r#","time":1e300"#), "year"),
            (with(r#","time":"yesterday""#), "RFC 3339"),
            (with(r#","time":true"#), "a time"),
            (with(r#","speed":NaN"#), "not JSON"),
            (with(r#","speed":1e400"#), "out of range"),
            (with(r#","tags":[""]"#), "no tag"),
            (with(r#","attributes":[]"#), "no JSON object"),
            (with(&long), "1024"),
            (
                with(&format!(r#","attributes":{{"a":{deep}}}"#)),
                "attributes",
            ),
            (with(&format!(r#","speed":{deep}"#)), "speed"),
            (r#"{"lat":1,"lon":2}"#.to_owned(), "`entity`"),
            (
                r#"{"entity":"a","lat":90.0000001,"lon":2}"#.to_owned(),
                "latitude 90.0000001",
            ),
            (
                r#"{"entity":"a\u0000","lat":9,"lon":2}"#.to_owned(),
                "U+0000",
            ),
            (r#"{"entity":"..","lat":9,"lon":2}"#.to_owned(), "slashes"),
            (
                r#"{"type":"LineString","coordinates":[]}"#.to_owned(),
                "LineString",
            ),
            (
                r#"{"type":"Feature","geometry":null,"properties":{}}"#.to_owned(),
                "null",
            ),
            (deep, "expected"),
        ];
        for (json, why) in cases {
            let e = error(&json);
            assert!(e.contains(why) && e.len() < 600, "{why}: {e}");
        }
    }
}
