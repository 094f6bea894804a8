//! Parses one report from JSON: the plain form, or a GeoJSON Feature.

use std::borrow::Cow;
use std::fmt;

use base::Error;
use serde::Deserialize;
use serde::de::Error as _;

use super::problem::text;
use crate::files::{geojson, json};
use crate::model::report::Report;

/// A report, and the names of its tags; their bits are not set yet.
#[derive(Debug)]
pub(crate) struct Parsed {
    pub(crate) report: Report,
    pub(crate) tags: Vec<String>,
}

/// Text that is borrowed if it has no escapes.
#[derive(Debug, Deserialize)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
struct Typed<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Text<'a>>,
}

/// The member `type` of a JSON object.
pub(crate) fn type_of(bytes: &[u8]) -> Option<String> {
    let typed: Typed<'_> = serde_json::from_slice(bytes).ok()?;
    typed.kind.map(|kind| kind.0.into_owned())
}

/// Parses a report. Errors say what is wrong with it.
pub(crate) fn parse(bytes: &[u8]) -> Result<Parsed, String> {
    let json = str::from_utf8(bytes).map_err(|e| format!("not JSON: {e}"))?;
    let found = json::report(json).or_else(|e| match type_of(bytes).as_deref() {
        Some("Feature") => geojson::point(json),
        Some(other) if !other.is_empty() => Err(Error::invalid_argument(format!(
            "{other:.40?} is no type of a report: a GeoJSON Feature of a Point is taken"
        ))),
        _ => Err(e),
    });
    let (report, tags) = found.map_err(|e| text(&e))?;
    Ok(Parsed { report, tags })
}

/// Parses a JSON object. Errors name the invalid member.
pub(crate) fn read<'a, T: Deserialize<'a>>(bytes: &'a [u8]) -> Result<T, String> {
    // Serde would accept an array with the members in order.
    if bytes.trim_ascii_start().starts_with(b"[") {
        return Err("an array, and not a JSON object".to_owned());
    }
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

/// The text of a JSON error, with the line only if there are several.
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

/// An error in a document other than a report.
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
    fn a_feature_is_a_report_too() {
        let feature = r#"{"type":"Feature","id":"a","geometry":{"type":"Point",
            "coordinates":[18.1,59.3,7]},"properties":null}"#;
        let report = parse(feature.as_bytes()).unwrap().report;
        assert_eq!((report.entity.as_str(), report.time), ("a", None));
        assert_eq!(report.point.altitude, Some(700));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
        let line = r#"{"type":"LineString","coordinates":[]}"#;
        let cases = [
            (r#"{"lat":1,"lon":2}"#.to_owned(), "entity is missing"),
            (line.to_owned(), "LineString"),
            (
                format!(r#"{{"type":"Feature","geometry":{line},"properties":{{}}}}"#),
                "LineString",
            ),
            (
                r#"{"type":"Feature","geometry":null,"properties":{}}"#.to_owned(),
                "without geometry",
            ),
            (r#"{"entity":"#.to_owned(), "not JSON"),
            (deep, "expected"),
        ];
        for (json, why) in cases {
            let e = error(&json);
            assert!(e.contains(why) && e.len() < 600, "{why}: {e}");
        }
    }
}
