//! GPX: accepted and refused files.

use std::io::BufReader;

use super::super::{Format, open};
use super::*;
use crate::model::time::{SECOND, Time};

fn read_as(text: &str, named: Option<&str>) -> (Vec<Result<Record>>, u64) {
    let options = Options {
        entity: named.map(|name| Name::new(name).unwrap()),
        ..Options::default()
    };
    let mut reader = open(
        Format::Gpx,
        BufReader::with_capacity(5, text.as_bytes()),
        &options,
    );
    (reader.by_ref().collect(), reader.ignored())
}

fn read(text: &str) -> Vec<Result<Record>> {
    read_as(text, None).0
}

fn error(found: &[Result<Record>], nth: usize) -> String {
    let text = found.get(nth).unwrap().as_ref().unwrap_err().to_string();
    assert!(text.len() < 400, "{text}");
    text
}

fn ok(found: &[Result<Record>], nth: usize) -> &Record {
    found.get(nth).unwrap().as_ref().unwrap()
}

/// A file with one track that has these points.
fn track(points: &str) -> String {
    format!("<gpx><trk><name>a</name><trkseg>{points}</trkseg></trk></gpx>")
}

const POINT: &str = r#"<trkpt lat="1" lon="2"><time>1970-01-01T00:00:05Z</time></trkpt>"#;

#[test]
fn version_1_1_with_extensions() {
    let text = r#"<?xml version="1.0" encoding="utf-8"?>
        <!-- made by hand -->
        <gpx version="1.1" xmlns="http://www.topografix.com/GPX/1/1" xmlns:x="urn:x">
        <metadata><name>not this</name><time>2000-01-01T00:00:00Z</time></metadata>
        <wpt lat="7" lon="7"><name>nor this</name></wpt>
        <rte><name>nor that</name><rtept lat="1" lon="1"/><rtept lat="1" lon="1"/></rte>
        <trk><name>A &amp; B&#x21;</name><trkseg>
          <trkpt lon='-18.0686' lat='59.3293'><ele> -1.5 </ele><time>2023-11-14T22:13:20.5Z</time>
            <name>no</name><extensions><x:deep><x:speed>13.9</x:speed><x:course>90</x:course>
            <x:battery>far too much</x:battery></x:deep><speed>99</speed></extensions></trkpt>
          <trkpt lat="1" lon="2"><time>2023-11-14T22:13:19</time></trkpt>
        </trkseg><trkseg/></trk>
        <trk><name><![CDATA[second]]></name><trkseg><trkpt lat="3" lon="4"><time>2023-11-14T22:13:20+01:00</time>
        </trkpt></trkseg></trk></gpx>"#;
    let (found, ignored) = read_as(text, None);
    assert_eq!((found.len(), ignored), (3, 3));
    let first = ok(&found, 0);
    assert_eq!(first.report.entity.as_str(), "A & B!");
    assert_eq!(
        first.place,
        Place::Offset(text.find("<trkpt").unwrap() as u64)
    );
    let point = &first.report.point;
    assert_eq!(
        (point.position.lat(), point.position.lon()),
        (593_293_000, -180_686_000)
    );
    assert_eq!(
        (point.speed, point.course, point.altitude),
        (Some(1390), Some(9000), Some(-150))
    );
    assert_eq!(point.battery, None);
    let seconds = |nth| ok(&found, nth).report.time.unwrap().0 / SECOND - 1_700_000_000;
    assert_eq!([seconds(0), seconds(1), seconds(2)], [0, -1, -3600]);
    assert_eq!(ok(&found, 2).report.entity.as_str(), "second");
    let (found, _) = read_as(text, Some("me"));
    assert!(
        found
            .iter()
            .all(|found| found.as_ref().unwrap().report.entity.as_str() == "me")
    );
}

#[test]
fn version_1_0() {
    let text = r#"<?xml version="1.0"?><gpx version="1.0"><trk><name>
        a b
        </name><trkseg><trkpt lat="1" lon="2"><course>360</course><speed>2</speed>
        <time>1970-01-01T00:00:01Z</time></trkpt></trkseg></trk></gpx>"#;
    let found = read(text);
    let report = &ok(&found, 0).report;
    assert_eq!(
        (report.entity.as_str(), report.time),
        ("a b", Some(Time(SECOND)))
    );
    assert_eq!(
        (report.point.speed, report.point.course),
        (Some(200), Some(0))
    );
}

#[test]
fn points_that_are_wrong_are_refused_and_the_next_one_follows() {
    let time = "<time>1970-01-01T00:00:05Z</time>";
    let point = |lat: &str, lon: &str, rest: &str| {
        format!(r#"<trkpt lat="{lat}" lon="{lon}">{rest}</trkpt>"#)
    };
    let with = |rest: &str| point("1", "2", &format!("{time}{rest}"));
    let cases = [
        (point("1", "2", ""), "a point without time"),
        (r#"<trkpt lat="1" lon="2"/>"#.into(), "a point without time"),
        (
            point("1", "2", "<time>0001-01-01T00:00:00Z</time>"),
            "year 1 ",
        ),
        (point("1", "2", "<time>12</time>"), "time is \"12\""),
        (point("NaN", "2", time), "lat is \"NaN\""),
        (point("1e400", "2", time), "lat is \"1e400\""),
        (point("90.0000001", "2", time), "latitude 90.0000001"),
        (point("1", "540", time), "longitude 540"),
        (format!("<trkpt lat=\"1\">{time}</trkpt>"), "lon is missing"),
        (
            format!("<trkpt lat=\"1\" lon>{time}</trkpt>"),
            "lon is missing",
        ),
        (with("<ele>high</ele>"), "ele is \"high\""),
        (with("<ele>1e9</ele>"), "altitude"),
        (with("<speed>-1</speed>"), "speed -1"),
        (
            with("<extensions><course>400</course></extensions>"),
            "course 400",
        ),
        (
            with("<extensions><ironstone:battery>101</ironstone:battery></extensions>"),
            "battery",
        ),
        (
            with("<extensions><ironstone:attributes>[]</ironstone:attributes></extensions>"),
            "attributes",
        ),
        (
            with(&format!("<ele>{}</ele>", "1<!-- -->".repeat(70_000))),
            "an element of over 65536 bytes",
        ),
    ];
    for (wrong, why) in cases {
        let found = read(&track(&format!("{wrong}{POINT}")));
        let e = error(&found, 0);
        assert!(
            e.contains("at offset 32: ") && e.contains(why),
            "{wrong:.80}: {e}"
        );
        assert_eq!(
            ok(&found, 1).report.time,
            Some(Time(5 * SECOND)),
            "{wrong:.80}"
        );
    }
}

#[test]
fn tracks_that_are_nobodys_are_said_once() {
    let two = format!("<trkseg>{POINT}{POINT}</trkseg>");
    for (name, why) in [
        ("", "a track without a name"),
        ("<name></name>", "is no name: it is empty"),
        ("<name>..</name>", "is no name"),
        ("<name>a\u{1}</name>", "U+0001"),
        (&format!("<name>{}</name>", "x".repeat(129)), "129 bytes"),
        (
            &format!("<name>{}</name>", "x".repeat(900_000)),
            "is no name",
        ),
    ] {
        let text = format!("<gpx><trk>{name}{two}</trk><trk><name>b</name>{two}</trk></gpx>");
        let (found, ignored) = read_as(&text, None);
        assert_eq!((found.len(), ignored), (3, 2), "{name:.80}");
        assert!(error(&found, 0).contains(why), "{}", error(&found, 0));
        assert!(read_as(&text, Some("me")).0.iter().all(Result::is_ok));
    }
}

#[test]
fn files_that_are_no_gpx_are_refused() {
    let deep = "<a>".repeat(10_000);
    let attributes: Vec<String> = (0..40_000).map(|n| format!(" a{n}=\"\"")).collect();
    let attributes = attributes.concat();
    let cases = [
        (String::new(), "the file is empty"),
        ("\u{feff}".into(), "the file is"),
        ("words".into(), "has no element"),
        ("<kml/>".into(), "a file of \"kml\""),
        ("<gpx/><gpx/>".into(), "not of one gpx"),
        ("<gpx><trk></gpx>".into(), "no XML"),
        (
            "<gpx>&x;</gpx>".into(),
            "the entity \"x\": it is not expanded",
        ),
        ("<gpx>&#0;</gpx>".into(), "the entity \"#0\""),
        ("<gpx>& </gpx>".into(), "no XML"),
        ("<!DOCTYPE gpx [<!ENTITY a \"b\">]><gpx/>".into(), "DOCTYPE"),
        (
            "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><gpx/>".into(),
            "\"ISO-8859-1\"",
        ),
        (format!("<gpx>{deep}"), "64 deep"),
        (
            format!("<gpx>{}", "x".repeat(2 << 20)),
            "over 1048576 bytes",
        ),
        (
            format!("<gpx><!--{}", "x".repeat(2 << 20)),
            "over 1048576 bytes",
        ),
        (
            format!("<gpx a=\"{}", "x".repeat(2 << 20)),
            "over 1048576 bytes",
        ),
        (
            track(&format!("<trkpt{attributes}></trkpt>")),
            "lat is missing",
        ),
    ];
    for (text, why) in cases {
        let found = read(&text);
        assert_eq!(found.len(), 1, "{text:.80}");
        let e = error(&found, 0);
        assert!(e.contains(why), "{text:.80}: {e}");
    }
    let options = Options::default();
    let mut bytes = track(POINT).into_bytes();
    let at = bytes.iter().position(|b| *b == b'5').unwrap();
    bytes.splice(at..=at, [0xff]);
    let found: Vec<_> = open(Format::Gpx, &bytes[..], &options).collect();
    assert!(error(&found, 0).contains("UTF-8"), "{found:?}");
}

#[test]
fn files_that_are_cut_off_say_where() {
    let whole = track(&format!("{POINT}{POINT}"));
    for end in 1..whole.len() {
        let found = read(whole.get(..end).unwrap());
        let e = error(&found, found.len() - 1);
        assert!(
            e.contains("cut off") || e.contains("no element"),
            "{end}: {e}"
        );
        let is_counted = found.len() <= 3 && found.iter().rev().skip(1).all(Result::is_ok);
        assert!(is_counted, "{end}");
    }
    let e = error(&read(whole.split_at(whole.len() - 12).0), 2);
    assert!(e.contains("cut off within trk"), "{e}");
}
