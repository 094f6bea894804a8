//! GeoJSON: accepted and refused files.

use std::io::{BufReader, Read};

use super::super::{Format, open};
use super::*;
use crate::model::time::{SECOND, Time};

fn read(text: &str) -> Vec<Result<Record>> {
    // Small buffers, so that values span several.
    let file = BufReader::with_capacity(7, text.as_bytes());
    open(Format::GeoJson, file, &Options::default()).collect()
}

fn texts(found: &[Result<Record>]) -> Vec<String> {
    let text = |found: &Result<Record>| match found {
        Ok(record) => {
            let Report {
                entity,
                time,
                point,
            } = &record.report;
            let (lat, lon) = point.position.degrees();
            let time = time.map_or(-1, |time| time.0 / SECOND);
            format!("{entity} {lat} {lon} {time} {:?}", point.altitude)
        }
        Err(e) => e.to_string(),
    };
    found.iter().map(text).collect()
}

const POINT: &str = r#"{"type":"Feature","id":7,"bbox":[1,2,3,4],"properties":{"entity":"a","time":5,"speed":1.5},
    "geometry":{"type":"Point","coordinates":[2,1,3.5]}}"#;
const LINE: &str = r#"{"type":"Feature","geometry":{"coordinates":[[2,1],[2.5,1.5,7],[3,91],[3,2],[4,4]],
    "type":"LineString"},"properties":{"entity":"b","coordTimes":["1970-01-01T00:00:01Z",2,3,"x",5],"speed":2}}"#;

#[test]
fn points_and_lines_in_a_collection() {
    let text = format!(
        "\u{feff} {{\"name\":[[{{}}]],\
          \"type\":\"FeatureCollection\",\n\"features\" : [ {POINT} ,{LINE},{POINT}],\"x\":1}}\n "
    );
    let found = read(&text);
    let said = texts(&found);
    assert_eq!(said.first().unwrap(), "a 1 2 5 Some(350)");
    assert_eq!(
        said.get(1..3).unwrap(),
        ["b 1 2 1 None", "b 1.5 2.5 2 Some(700)"]
    );
    let at = text.find(LINE).unwrap();
    let e = said.get(3).unwrap();
    assert!(
        e.contains(&format!(
            "at offset {at}: position 3 of the line: latitude 91"
        )),
        "{e}"
    );
    assert!(
        said.get(4)
            .unwrap()
            .contains("position 4 of the line: time is \"x\"")
    );
    assert_eq!(
        said.get(5..).unwrap(),
        ["b 4 4 5 None", "a 1 2 5 Some(350)"]
    );
    assert_eq!(
        found.get(1).unwrap().as_ref().unwrap().report.point.speed,
        Some(200)
    );
}

#[test]
fn a_lone_feature_and_none() {
    assert_eq!(texts(&read(POINT)), ["a 1 2 5 Some(350)"]);
    assert_eq!(read(LINE).len(), 5);
    let none = r#"{"features":[],"type":"FeatureCollection"}"#;
    assert!(read(none).is_empty());
}

fn feature(geometry: &str, properties: &str) -> String {
    format!(r#"{{"type":"Feature","geometry":{geometry},"properties":{properties}}}"#)
}

fn point(coordinates: &str) -> String {
    format!(r#"{{"type":"Point","coordinates":{coordinates}}}"#)
}

const TWO: &str = r#"{"type":"LineString","coordinates":[[1,2],[3,4]]}"#;

/// Each case is refused in a collection, and the feature after it is read.
fn refused(cases: &[(String, &str)]) {
    for (wrong, why) in cases {
        let text = format!(r#"{{"type":"FeatureCollection","features":[{wrong},{POINT}]}}"#);
        let said = texts(&read(&text));
        let e = said.first().unwrap();
        let is_said = e.contains("at offset 40: ") && e.contains(why) && e.len() < 400;
        assert!(is_said, "{wrong:.80}: {e}");
        assert_eq!(said.last().unwrap(), "a 1 2 5 Some(350)", "{wrong:.80}");
    }
}

#[test]
fn geometries_that_are_wrong_are_refused_and_the_next_feature_follows() {
    let a = r#"{"entity":"a"}"#;
    let deep = "[".repeat(10_000) + &"]".repeat(10_000);
    refused(&[
        (feature("null", a), "without geometry"),
        (feature("[1]", a), "the geometry: invalid type"),
        (
            feature(r#"{"type":"Point"}"#, a),
            "without a list of coordinates",
        ),
        (
            feature(r#"{"type":"Polygon","coordinates":[]}"#, a),
            "Polygon",
        ),
        (feature(&point("[]"), a), "lat is missing"),
        (feature(&point("[1]"), a), "lat is missing"),
        (feature(&point("[540,1]"), a), "longitude 540"),
        (feature(&point("[1,90.0000001]"), a), "latitude 90.0000001"),
        (
            feature(&point("[1,1e400]"), a),
            "lat is \"1e400\", which is too large",
        ),
        (feature(&point("[1,2,1e9]"), a), "altitude"),
        (feature(&point("[1,2,true]"), a), "altitude"),
        (feature(&point("[\"1\",2]"), a), "lon is"),
        (feature(&point(&deep), a), "lat is missing"),
    ]);
}

#[test]
fn properties_that_are_wrong_are_refused_and_the_next_feature_follows() {
    let a = r#"{"entity":"a"}"#;
    refused(&[
        (feature(&point("[1,2]"), "{}"), "entity is missing"),
        (feature(&point("[1,2]"), "null"), "entity is missing"),
        (
            feature(&point("[1,2]"), "7"),
            "the properties: invalid type",
        ),
        (
            feature(&point("[1,2]"), r#"{"entity":"a","colour":1}"#),
            "\"colour\" is not known",
        ),
        (
            feature(&point("[1,2]"), r#"{"entity":"a","times":[]}"#),
            "a point with a list of times",
        ),
        (feature(TWO, a), "a line without times"),
        (
            feature(TWO, r#"{"entity":"a","times":3}"#),
            "times is \"3\", and no list",
        ),
        (
            feature(TWO, r#"{"entity":"a","times":[],"time":1}"#),
            "a line with time and with times",
        ),
        (feature(TWO, r#"{"entity":"..","times":[]}"#), "is no name"),
        (
            r#"{"type":"Other"}"#.into(),
            "its type is \"\\\"Other\\\"\"",
        ),
        ("{}".into(), "its type is \"null\""),
        ("{\"a\":}".into(), "expected value"),
        (
            r#"{"type":"Feature","type":"Feature"}"#.into(),
            "there twice",
        ),
    ]);
    let uneven = feature(TWO, r#"{"entity":"a","times":[1,2,3,4,5]}"#);
    let said = texts(&read(&uneven));
    assert_eq!(said.len(), 3);
    assert!(
        said.get(2).unwrap().contains("more times than coordinates"),
        "{said:?}"
    );
}

#[test]
fn files_that_are_no_geojson_are_refused() {
    let whole = format!(r#"{{"type":"FeatureCollection","features":[{POINT},{POINT}]}}"#);
    let cases = [
        ("", "the file is empty"),
        ("\u{feff}", "the file is empty"),
        ("  ", "cut off within a GeoJSON file"),
        ("[]", "has '[' where { is expected"),
        ("{", "cut off within the outermost object"),
        ("{x", "has 'x'"),
        ("{\"type\" 7", "has '7' where : is expected"),
        (
            r#"{"type":"Point","coordinates":[1,2]}"#,
            "the file's type is",
        ),
        (r#"{"type":"Feature","features":[]}"#, "the file's type is"),
        (r#"{"features":{}}"#, "has '{' where [ is expected"),
        (r#"{"features":[7]}"#, "has '7' where { is expected"),
        (r#"{"features":[{} {}]}"#, "its type is"),
        (r#"{"type":"Feature"} {}"#, "without geometry"),
    ];
    for (text, why) in cases {
        let said = texts(&read(text));
        assert!(said.first().unwrap().contains(why), "{text}: {said:?}");
    }
    assert!(
        texts(&read(r#"{"features":[{} {}]}"#))
            .last()
            .unwrap()
            .contains("is expected")
    );
    assert!(
        texts(&read(r#"{"type":"Feature"} {}"#))
            .last()
            .unwrap()
            .contains("something follows")
    );
    for end in 1..whole.len() {
        let found = read(whole.get(..end).unwrap());
        let e = found.last().unwrap().as_ref().unwrap_err().to_string();
        assert!(e.contains("cut off"), "{end}: {e}");
    }
    let mut bytes = whole.clone().into_bytes();
    bytes.splice(60..61, [0xff]);
    let found: Vec<_> = open(Format::GeoJson, &bytes[..], &Options::default()).collect();
    assert!(
        found
            .first()
            .unwrap()
            .as_ref()
            .unwrap_err()
            .to_string()
            .contains("not UTF-8")
    );
    assert_eq!(found.len(), 2);
}

/// A feature and a member of 64 MiB each are skipped without being kept.
#[test]
fn what_is_too_large_is_skipped() {
    let large = || std::io::repeat(b'x').take(64 << 20);
    let file = br#"{"junk":""#
        .chain(large())
        .chain(&br#"","type":"FeatureCollection","features":[{"a":""#[..])
        .chain(large())
        .chain(&b"\"},"[..])
        .chain(POINT.as_bytes())
        .chain(&b"]}"[..]);
    let file = BufReader::with_capacity(1 << 16, file);
    let mut reader = GeoJson::new(file, Options::default());
    let e = reader.next().unwrap().unwrap_err();
    assert!(
        goes_on(&e) && e.to_string().contains("8388608 bytes"),
        "{e}"
    );
    let record = reader.next().unwrap().unwrap();
    assert_eq!(record.report.time, Some(Time(5 * SECOND)));
    assert!(reader.next().is_none());
    assert!(reader.buffer.capacity() <= 2 * FEATURE_BYTES_MAX);
}
