//! Fields of devices' messages. A field that is out of its range, such as −1 for an unknown speed,
//! is left out; the position is kept.

use std::borrow::Cow;
use std::collections::BTreeMap;

use base::Error;
use jiff::civil::DateTime;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Heard, LeftOut, Reason};
use crate::geo::position::Position;
use crate::model::name::Name;
use crate::model::point::{ATTRIBUTES_BYTES_MAX, COURSE_END, Point, SPEED_END};
use crate::model::report::Report;
use crate::model::time::{SECOND, Time};

/// Metres per second in a kilometre per hour.
pub(super) const KILOMETRE_PER_HOUR: f64 = 1000.0 / 3600.0;
/// Metres per second in a knot.
pub(super) const KNOT: f64 = 1852.0 / 3600.0;
/// Smaller numbers are seconds since 1970 (up to the year 5138), greater ones milliseconds (from
/// 1973 on).
const MILLIS_FROM: f64 = 1e11;

/// 1970.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// The members of a JSON object, as raw text.
pub(super) type Members<'a> = BTreeMap<Cow<'a, str>, &'a RawValue>;

/// Parses the members of a JSON object. Errors say what is wrong.
pub(super) fn members(json: &[u8]) -> Result<Members<'_>, String> {
    #[derive(Deserialize)]
    struct Object<'a>(#[serde(borrow)] BTreeMap<Text<'a>, &'a RawValue>);
    let Object(all) =
        serde_json::from_slice(json).map_err(|e| cut(&format!("not a JSON object: {e}")))?;
    Ok(all
        .into_iter()
        .map(|(name, value)| (name.0, value))
        .collect())
}

/// Text that is borrowed if it has no escapes.
#[derive(Deserialize, PartialEq, Eq, PartialOrd, Ord)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A text, cut if it is long.
pub(super) fn cut(text: &str) -> String {
    text.chars().take(200).collect()
}

/// An error's text without the name of its kind.
pub(super) fn said(e: &Error) -> String {
    let text = e.to_string();
    let label = e.kind().label();
    let rest = text.strip_prefix(label).and_then(|t| t.strip_prefix(": "));
    rest.map_or_else(|| text.clone(), ToOwned::to_owned)
}

/// A string, or a number as text. `None` for anything else.
pub(super) fn text_of(raw: &RawValue) -> Option<Cow<'_, str>> {
    let raw = raw.get();
    if raw.starts_with('"') {
        return serde_json::from_str::<Text<'_>>(raw)
            .ok()
            .map(|text| text.0);
    }
    let is_number = raw.starts_with(|c: char| c == '-' || c.is_ascii_digit());
    is_number.then_some(Cow::Borrowed(raw))
}

/// A number, or a string with a number.
pub(super) fn number_of(raw: &RawValue) -> Option<f64> {
    finite(&text_of(raw)?)
}

/// A finite number.
pub(super) fn finite(text: &str) -> Option<f64> {
    text.trim().parse().ok().filter(|n: &f64| n.is_finite())
}

/// A time: seconds or milliseconds since 1970, RFC 3339, or `yyyy-MM-dd HH:mm:ss` in UTC. Errors:
/// it is none of these.
pub(super) fn time_of(text: &str) -> Result<Time, String> {
    let text = text.trim();
    if let Some(number) = finite(text) {
        let seconds = if number.abs() < MILLIS_FROM {
            number
        } else {
            number / 1000.0
        };
        return Time((seconds * SECOND as f64).round() as i64)
            .check()
            .map_err(|e| said(&e));
    }
    let wrong = || format!("{:?} is no time", cut(text));
    if text.len() > 64 || text.contains('[') {
        return Err(wrong());
    }
    // A plus sign in a query may have become a space.
    let plus = match text.rsplit_once(' ') {
        Some((time, zone)) if zone.len() == 5 && time.contains('T') => {
            Cow::Owned(format!("{time}+{zone}"))
        }
        _ => Cow::Borrowed(text),
    };
    let micros = if let Ok(stamp) = plus.parse::<jiff::Timestamp>() {
        stamp.as_microsecond()
    } else {
        let utc: DateTime = text.parse().map_err(|_| wrong())?;
        // Dates with four digits fit into 64 bits of microseconds.
        utc.duration_since(EPOCH).as_nanos().div_euclid(1000) as i64
    };
    Time(micros).check().map_err(|e| said(&e))
}

/// The fields of a position, before they become a report.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) lat: Option<f64>,
    pub(super) lon: Option<f64>,
    pub(super) time: Option<Time>,
    /// m/s.
    pub(super) speed: Option<f64>,
    /// Degrees.
    pub(super) course: Option<f64>,
    /// Metres.
    pub(super) altitude: Option<f64>,
    /// Metres.
    pub(super) accuracy: Option<f64>,
    /// Per cent.
    pub(super) battery: Option<f64>,
    pub(super) attributes: Attributes,
}

impl Fields {
    /// Makes the report of an entity.
    pub(super) fn heard(mut self, entity: Name) -> Heard {
        let (Some(lat), Some(lon)) = (self.lat, self.lon) else {
            return Heard::Nothing(Reason::NoPosition);
        };
        if lat == 0.0 && lon == 0.0 {
            return Heard::Nothing(Reason::NoFix);
        }
        let position = match Position::of_degrees(lat, lon) {
            Ok(position) => position,
            Err(e) => return Heard::Wrong(said(&e)),
        };
        let mut point = Point::at(position);
        let speed_max = f64::from(SPEED_END - 1);
        point.speed = self
            .whole(self.speed, 100.0, (0.0, speed_max))
            .map(|n| n as u16);
        let course = self.whole(self.course, 100.0, (0.0, COURSE_END.into()));
        point.course = course.map(|n| n as u16 % COURSE_END);
        let altitude = self.whole(
            self.altitude,
            100.0,
            (f64::from(i32::MIN), f64::from(i32::MAX)),
        );
        point.altitude = altitude.map(|n| n as i32);
        // A very bad accuracy is clamped, not left out, because it matters.
        let accuracy = self
            .accuracy
            .map(|metres| metres.min(f64::from(u16::MAX) / 10.0));
        point.accuracy = self
            .whole(accuracy, 10.0, (0.0, u16::MAX.into()))
            .map(|n| n as u16);
        point.battery = self.whole(self.battery, 1.0, (0.0, 100.0)).map(|n| n as u8);
        let (attributes, left_out) = self.attributes.end();
        point.attributes = attributes;
        let report = Report {
            entity,
            time: self.time,
            point,
        };
        Heard::Report(Box::new(report), left_out)
    }

    /// The value in whole parts of its unit, if it is within bounds.
    fn whole(&mut self, value: Option<f64>, parts: f64, (least, most): (f64, f64)) -> Option<f64> {
        let whole = (value? * parts).round();
        let is_within = (least..=most).contains(&whole);
        if !is_within {
            self.attributes.left_out += 1;
        }
        is_within.then_some(whole)
    }
}

/// The other members of a message, as the JSON object that a point stores. Members that do not fit
/// are left out and counted.
#[derive(Debug, Default)]
pub(super) struct Attributes {
    json: String,
    names: Vec<String>,
    left_out: usize,
}

impl Attributes {
    /// Adds a member of a JSON object.
    pub(super) fn add_raw(&mut self, name: &str, raw: &RawValue) {
        if raw.get() == "null" {
            return;
        }
        let value = (raw.get().len() <= ATTRIBUTES_BYTES_MAX)
            .then(|| serde_json::from_str::<Value>(raw.get()).ok())
            .flatten();
        match value {
            Some(value) => self.add(name, &value),
            None => self.left_out += 1,
        }
    }

    /// Adds a parameter of a query: a number, `true`, `false`, or a text.
    pub(super) fn add_text(&mut self, name: &str, text: &str) {
        let value = match text {
            "true" => Value::Bool(true),
            "false" => Value::Bool(false),
            _ if text.len() > ATTRIBUTES_BYTES_MAX => {
                self.left_out += 1;
                return;
            }
            // Digits that a number would lose, such as those of a long id, stay a text.
            _ => match serde_json::from_str::<serde_json::Number>(text) {
                Ok(number) if number.to_string() == text => Value::Number(number),
                _ => Value::String(text.to_owned()),
            },
        };
        self.add(name, &value);
    }

    /// Adds a member. If there is one with this name already, that one stays.
    pub(super) fn add(&mut self, name: &str, value: &Value) {
        if name.len() > ATTRIBUTES_BYTES_MAX {
            self.left_out += 1;
            return;
        }
        let member = format!("{}:{value}", Value::String(name.to_owned()));
        let is_there = self.names.iter().any(|known| known == name);
        // The bracket or comma before it, and the final bracket.
        if is_there || self.json.len() + member.len() + 2 > ATTRIBUTES_BYTES_MAX {
            self.left_out += 1;
            return;
        }
        self.names.push(name.to_owned());
        self.json.push(if self.json.is_empty() { '{' } else { ',' });
        self.json.push_str(&member);
    }

    fn end(self) -> (String, LeftOut) {
        let mut json = self.json;
        if !json.is_empty() {
            json.push('}');
        }
        (json, LeftOut(self.left_out))
    }
}
