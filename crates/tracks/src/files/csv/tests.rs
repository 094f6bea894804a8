//! CSV: accepted and refused files.

use std::path::Path;

use super::super::layout::geolife_entity;
use super::super::{Format, open};
use super::*;
use crate::model::time::SECOND;

fn read(format: Format, text: &str, options: &Options) -> Vec<Result<Record>> {
    open(format, text.as_bytes(), options).collect()
}

fn with(layout: Layout) -> Options {
    Options {
        layout,
        ..Options::default()
    }
}

fn units(record: &Record) -> (i32, i32) {
    let position = record.report.point.position;
    (position.lat(), position.lon())
}

fn ok(found: &[Result<Record>], nth: usize) -> &Record {
    found.get(nth).unwrap().as_ref().unwrap()
}

fn error(found: &[Result<Record>], nth: usize) -> String {
    found.get(nth).unwrap().as_ref().unwrap_err().to_string()
}

#[test]
fn the_layout_of_ours() {
    let text = "\u{feff}entity,time,lat,lon,speed,course,altitude,accuracy,battery,tags,attributes\r\n\
        \"a,\"\"b\",2023-11-14T22:13:20Z,59.3293,-18.0686,13.9,90,-1.5,5,80,\"[\"\"night\"\"]\",\"{\"\"d\"\": 7}\"\r\n\
        \r\n\
        c,1700000000.5, 1 , 2 ,,,,,,,\r\n";
    let found = read(Format::Csv, text, &Options::default());
    assert_eq!(found.len(), 2);
    let Record {
        report,
        tags,
        place,
    } = ok(&found, 0);
    assert_eq!(
        (report.entity.as_str(), *place),
        ("a,\"b", record::Place::Line(2))
    );
    assert_eq!(report.time, Some(Time(1_700_000_000 * SECOND)));
    let point = &report.point;
    assert_eq!(units(ok(&found, 0)), (593_293_000, -180_686_000));
    assert_eq!(
        (point.speed, point.course, point.altitude),
        (Some(1390), Some(9000), Some(-150))
    );
    assert_eq!((point.accuracy, point.battery), (Some(50), Some(80)));
    assert_eq!(
        (tags.join("+"), point.attributes.as_str()),
        ("night".into(), "{\"d\":7}")
    );
    let second = ok(&found, 1);
    assert_eq!(second.report.time, Some(Time(1_700_000_000_500_000)));
    assert_eq!(second.report.point, Point::at(second.report.point.position));
}

#[test]
fn columns_by_name_or_number_and_units() {
    let layout = Layout {
        separator: b';',
        entity: Some(Column::of("who")),
        time: vec![Column::of("3")],
        times: Times::Millis,
        speed: Some((Column::of("v"), Speed::KilometresPerHour)),
        altitude: Some((Column::of("h"), Length::Feet)),
        extra: vec![
            ("line".into(), Column::of("route")),
            ("x".into(), Column::of("v")),
        ],
        ..Layout::of(Column::of("y"), Column::of("1"), true)
    };
    let text = "x;y;t;who;v;h;route\n2.5;1.5;1700000000123;bus 1;36;100;\"7;a\"\n2;1;1;b;;;\n";
    let found = read(Format::Csv, text, &with(layout.clone()));
    let report = &ok(&found, 0).report;
    assert_eq!(units(ok(&found, 0)), (15_000_000, 25_000_000));
    assert_eq!(report.time, Some(Time(1_700_000_000_123_000)));
    assert_eq!(
        (report.point.speed, report.point.altitude),
        (Some(1000), Some(3048))
    );
    assert_eq!(report.point.attributes, r#"{"line":"7;a","x":"36"}"#);
    assert_eq!(ok(&found, 1).report.point.attributes, "");
    let knots = Layout {
        speed: Some((Column::Number(5), Speed::Knots)),
        times: Times::Micros,
        ..layout
    };
    let found = read(Format::Csv, text, &with(knots));
    assert_eq!(ok(&found, 0).report.point.speed, Some(1852));
    assert_eq!(ok(&found, 0).report.time, Some(Time(1_700_000_000_123)));
}

#[test]
fn entities_may_be_given() {
    let options = Options {
        entity: Some(Name::new("me").unwrap()),
        layout: Layout::of(Column::Number(2), Column::Number(1), false),
        ..Options::default()
    };
    let found = read(Format::Csv, "2,1,x\n3\n", &options);
    assert_eq!(ok(&found, 0).report.entity.as_str(), "me");
    assert_eq!(ok(&found, 0).report.time, None);
    let e = error(&found, 1);
    assert!(e.contains("line 2: 1 fields, and 2 are needed"), "{e}");
}

#[test]
fn geolife() {
    let text = "Geolife trajectory\r\nWGS 84\r\nAltitude is in Feet\r\nReserved 3\r\n\
        0,2,255,My Track,0,0,2,8421376\r\n0\r\n\
        39.906631,116.385564,0,492,40097.5864583333,2009-10-11,14:04:30\r\n\
        39.9,116.4,0,-777,40097.5865,2009-10-11,14:04:35\r\n";
    let options = Options {
        entity: Some(geolife_entity(Path::new("Data/000/Trajectory/a.plt")).unwrap()),
        ..Options::default()
    };
    let found = read(Format::GeoLife, text, &options);
    let first = ok(&found, 0);
    assert_eq!(first.report.entity.as_str(), "000");
    assert_eq!(units(first), (399_066_310, 1_163_855_640));
    assert_eq!(first.report.time, Some(Time(1_255_269_870 * SECOND)));
    assert_eq!(first.report.point.altitude, Some(14_996));
    assert_eq!(ok(&found, 1).report.point.altitude, None);
    let e = error(&read(Format::GeoLife, "a\nb\n", &options), 0);
    assert!(e.contains("cut off within its header"), "{e}");
    assert_eq!(geolife_entity(Path::new("7/x.plt")).unwrap().as_str(), "7");
    assert!(geolife_entity(Path::new("x.plt")).is_err());
}

#[test]
fn t_drive() {
    let text = "1,2008-02-02 15:36:08,116.51172,39.92123\n1,2008-02-02 15:46:08,116.51135,39.93883";
    let found = read(Format::TDrive, text, &Options::default());
    let time = |found: &[_]| ok(found, 0).report.time;
    assert_eq!(units(ok(&found, 1)), (399_388_300, 1_165_113_500));
    assert_eq!(time(&found), Some(Time(1_201_937_768 * SECOND)));
    let utc = Options {
        utc_offset: Some(0),
        ..Options::default()
    };
    let found = read(Format::TDrive, text, &utc);
    assert_eq!(
        time(&found),
        Some(Time((1_201_937_768 + 8 * 3600) * SECOND))
    );
}

#[test]
fn porto() {
    let header = "\"TRIP_ID\",\"CALL_TYPE\",\"ORIGIN_CALL\",\"ORIGIN_STAND\",\"TAXI_ID\",\"TIMESTAMP\",\
        \"DAY_TYPE\",\"MISSING_DATA\",\"POLYLINE\"\n";
    let row = |line: &str| {
        format!("\"T1\",\"C\",\"\",\"\",\"20000589\",\"1372636858\",\"A\",\"False\",\"{line}\"\n")
    };
    let long = "[-8.6,41.1],".repeat(10_000);
    let text = [
        header.to_owned(),
        row("[[-8.618643,41.141412],[-8.618499,41.141376]]"),
        row("[]"),
        row("[[-8.6,91],[-8.6],[-8.6,41,1],7,[-8.6,41.5]]"),
        row("[[-8.6,41.5]"),
        row(&format!("[{long}[0,0]]")),
    ]
    .concat();
    let found = read(Format::Porto, &text, &Options::default());
    let times: Vec<_> = found
        .iter()
        .take(2)
        .map(|r| r.as_ref().unwrap().report.time)
        .collect();
    assert_eq!(
        times,
        [1_372_636_858, 1_372_636_873].map(|s| Some(Time(s * SECOND)))
    );
    assert_eq!(units(ok(&found, 1)), (411_413_760, -86_184_990));
    let wrong = [
        "line 4: position 1 of the polyline: latitude 91",
        "position 2 of the polyline: lat is missing",
        "position 3 of the polyline: \"[-8.6,41,1]\" is not",
        "position 4 of the polyline: lat is missing",
    ];
    for (nth, why) in wrong.into_iter().enumerate() {
        let e = error(&found, 2 + nth);
        assert!(e.contains(why), "{e}");
    }
    assert_eq!(
        ok(&found, 6).report.time,
        Some(Time((1_372_636_858 + 60) * SECOND))
    );
    let e = error(&found, 7);
    assert!(
        e.contains("line 5: the polyline") && e.contains("is no list"),
        "{e}"
    );
    assert_eq!(found.len(), 8 + 10_001);
    assert_eq!(ok(&found, 8).report.entity.as_str(), "20000589");
}

#[test]
fn layouts_that_the_file_does_not_have_are_refused() {
    let refused = |text: &str, layout: Layout| {
        let found = read(Format::Csv, text, &with(layout));
        assert_eq!(found.len(), 1, "{found:?}");
        let e = found.first().unwrap().as_ref().unwrap_err();
        assert!(!goes_on(e));
        e.to_string()
    };
    let cases = [
        (refused("", Layout::default()), "empty"),
        (refused("\u{feff}", Layout::default()), "empty"),
        (
            refused("\n", Layout::default()),
            "the column \"lat\": there are ",
        ),
        (
            refused("a,lon\n1,2\n", Layout::default()),
            "the column \"lat\": there are \"a\", \"lon\"",
        ),
        (refused("lat,lon,lat\n", Layout::default()), "\"lat\" twice"),
        (
            refused("\"lat,lon\n", Layout::default()),
            "header: line 1: a quotation mark",
        ),
        (
            refused(&"x".repeat(70_000), Layout::default()),
            "header: line 1: a line of over 65536",
        ),
        (
            refused(
                "1,2\n",
                Layout::of(Column::of("lat"), Column::Number(1), false),
            ),
            "no header",
        ),
        (
            refused(
                "1,2\n",
                Layout::of(Column::Number(0), Column::Number(1), false),
            ),
            "column 0",
        ),
        (
            refused(
                "lat,lon\n",
                Layout {
                    separator: b'"',
                    ..Layout::default()
                },
            ),
            "separator",
        ),
        (
            refused(
                "lat,lon\n",
                Layout {
                    extra: vec![("a".into(), Column::Number(1))],
                    ..Layout::default()
                },
            ),
            "attributes have a column",
        ),
    ];
    for (e, why) in cases {
        assert!(e.contains(why), "{why}: {e}");
    }
}

#[test]
fn what_is_wrong_is_refused_by_line_and_name() {
    let rows = [
        ("a,NaN,1,,", "lat is \"NaN\""),
        ("a,1,inf,,", "lon is \"inf\""),
        ("a,1e400,1,,", "lat is \"1e400\", which is too large"),
        ("a,90.0000001,1,,", "latitude 90.0000001"),
        ("a,1,540,,", "longitude 540"),
        ("a,,1,,", "lat is missing"),
        ("a,1,1,0001-01-01T00:00:00Z,", "year 1 "),
        ("a,1,1,never,", "time is \"never\""),
        ("a,1,1,,-5", "speed -5"),
        ("a,1,1,,1e5", "speed 100000"),
        ("a,1,1,,fast", "speed is \"fast\""),
        (",1,1,,", "entity is missing"),
        ("..,1,1,,", "entity: \"..\" is no name"),
        ("a\0b,1,1,,", "U+0000"),
        ("a,1,1,", "4 fields, and the header has 5"),
        ("a,1,1,,,", "6 fields, and the header has 5"),
        ("\"a,1,1,,", "a quotation mark that does not end"),
        ("a,1,1,,\"", "a quotation mark that does not end"),
    ];
    let long = format!("{},1,1,,", "x".repeat(129));
    let many = ",".repeat(5000);
    let rows = rows.iter().copied().chain([
        (long.as_str(), "129 bytes"),
        (many.as_str(), "more than 1024 columns"),
    ]);
    for (row, why) in rows {
        let text = format!("entity,lat,lon,time,speed\n{row}\nb,1,2,9999-12-31T23:59:59Z,655.34\n");
        let found = read(Format::Csv, &text, &Options::default());
        assert_eq!(found.len(), 2, "{row}");
        let e = error(&found, 0);
        assert!(
            e.contains("line 2: ") && e.contains(why) && e.len() < 300,
            "{row}: {e}"
        );
        assert_eq!(ok(&found, 1).report.entity.as_str(), "b");
    }
}

#[test]
fn lines_that_cannot_be_text_are_skipped() {
    let mut file = b"entity,lat,lon\na,1,2\n\xff,1,2\n".to_vec();
    file.extend(std::iter::repeat_n(b'"', 100_000));
    file.extend(b"\nb,1,2");
    let found: Vec<_> = open(Format::Csv, &file[..], &Options::default()).collect();
    assert_eq!(found.len(), 4);
    assert!(error(&found, 1).contains("line 3: byte 1 is not UTF-8"));
    assert!(error(&found, 2).contains("line 4: a line of over 65536 bytes"));
    assert_eq!(ok(&found, 3).place, record::Place::Line(5));
}
