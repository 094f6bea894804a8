//! The tracking service: what files of positions say.

use base::{Error, Result};
use tracks::files::layout::{Column, Layout, Times};
use tracks::files::{Format, Options, Record, goes_on, json, open, write};
use tracks::model::name::Name;
use tracks::model::point::Point;
use tracks::model::time::Time;

/// CSV of our own layout, of another one, or of a collection, as the last byte says.
pub fn tracks_csv(data: &[u8]) {
    let Some((how, content)) = super::split(data) else {
        return;
    };
    let (format, layout) = match how & 7 {
        0 | 1 => (Format::Csv, Layout::default()),
        2 => (Format::GeoLife, Layout::default()),
        3 => (Format::TDrive, Layout::default()),
        4 => (Format::Porto, Layout::default()),
        _ => (Format::Csv, other(how)),
    };
    read(format, Format::Csv, content, &options(how, layout));
}

/// Columns by number, and a pattern for times.
fn other(how: u8) -> Layout {
    Layout {
        separator: b';',
        entity: Some(Column::Number(3)),
        time: vec![Column::Number(4)],
        times: match how >> 4 & 3 {
            0 => Times::Millis,
            1 => Times::Micros,
            _ => Times::Pattern("%d/%m/%y %I:%M %p".to_owned()),
        },
        utc_offset: Some(3600),
        extra: vec![("x".to_owned(), Column::Number(5))],
        ..Layout::of(Column::Number(1), Column::Number(2), false)
    }
}

/// NDJSON, and each line as one report.
pub fn tracks_ndjson(data: &[u8]) {
    let Some((how, content)) = super::split(data) else {
        return;
    };
    for line in content.split(|b| *b == b'\n') {
        if let Ok(text) = std::str::from_utf8(line) {
            let _ = json::report(text);
        }
    }
    let options = options(how, Layout::default());
    read(Format::Ndjson, Format::Ndjson, content, &options);
}

/// GeoJSON.
pub fn tracks_geojson(data: &[u8]) {
    let Some((how, content)) = super::split(data) else {
        return;
    };
    let options = options(how, Layout::default());
    read(Format::GeoJson, Format::GeoJson, content, &options);
}

/// GPX.
pub fn tracks_gpx(data: &[u8]) {
    let Some((how, content)) = super::split(data) else {
        return;
    };
    let options = options(how, Layout::default());
    read(Format::Gpx, Format::Gpx, content, &options);
}

fn options(how: u8, layout: Layout) -> Options {
    Options {
        entity: (how & 64 != 0).then(|| Name::new("someone").expect("it is a name")),
        ignore_unknown: how & 128 != 0,
        layout,
        utc_offset: None,
    }
}

/// Reads a file; what it says is written, and read to the same again.
fn read(format: Format, again: Format, content: &[u8], options: &Options) {
    let mut reader = open(format, content, options);
    let mut points = Vec::new();
    let mut tags = Vec::new();
    let mut is_over = false;
    // No byte makes more than one record, or error; the end of the file may make one.
    for found in reader.by_ref().take(content.len() + 2) {
        assert!(!is_over, "nothing follows an error that ends a file");
        match found {
            Ok(record) => points.extend(point(record, &mut tags)),
            Err(e) => {
                assert!(e.to_string().len() < 2000, "{e}");
                is_over = !goes_on(&e);
            }
        }
    }
    assert!(reader.next().is_none(), "more records than bytes");
    let all = points.iter().cloned().map(Ok::<_, Error>);
    let Ok(file) = write(again, Vec::new(), &tags, all) else {
        // XML does not have every character.
        assert_eq!(again, Format::Gpx);
        return;
    };
    if points.is_empty() {
        return;
    }
    let found: Result<Vec<Record>> = open(again, &file[..], &Options::default()).collect();
    let found = found.unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&file)));
    let found = found
        .into_iter()
        .filter_map(|record| point(record, &mut tags));
    assert_eq!(found.collect::<Vec<_>>(), points);
}

/// A record that can be written: it has a time, and its tags have bits.
fn point(record: Record, tags: &mut Vec<String>) -> Option<(Name, Time, Point)> {
    let mut report = record.report;
    report
        .point
        .check()
        .expect("fields are within their ranges");
    for tag in record.tags {
        let nth = tags.iter().position(|known| *known == tag);
        let nth = nth.unwrap_or_else(|| {
            tags.push(tag);
            tags.len() - 1
        });
        if nth >= 32 {
            return None;
        }
        report.point.tags |= 1 << nth;
    }
    Some((report.entity, report.time?, report.point))
}

/// Small files of all formats.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let all = [
        (
            "tracks_csv",
            0,
            "entity,time,lat,lon,speed,course,altitude,accuracy,battery,tags,attributes\n\
             \"a,\"\"\",2023-11-14T22:13:20.5+01:00,59.3293,-18.0686,13.9,90,-1.5,5,80,\"[\"\"n\"\"]\",\"{\"\"d\"\":7}\"\n\
             b,1700000000.5,1e1,2,,,,,,,\n",
        ),
        (
            "tracks_csv",
            2 | 64,
            "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255\n0\n\
             39.906631,116.385564,0,492,40097.5864583333,2009-10-11,14:04:30\n",
        ),
        (
            "tracks_csv",
            3,
            "1,2008-02-02 15:36:08,116.51172,39.92123\n",
        ),
        (
            "tracks_csv",
            4,
            "\"TRIP_ID\",\"TAXI_ID\",\"TIMESTAMP\",\"POLYLINE\"\n\
             \"1\",\"2\",\"1372636858\",\"[[-8.618643,41.141412],[-8.618499,41.141376]]\"\n",
        ),
        ("tracks_csv", 5, "1;2;a;1700000000123;x\n"),
        ("tracks_csv", 5 | 32, "1;2;a;14/11/23 10:13 PM;x\n"),
        (
            "tracks_ndjson",
            0,
            "{\"entity\":\"a\",\"lat\":59.3,\"lon\":18.1,\"time\":1700000000.5,\"speed\":1,\"course\":360,\
             \"altitude\":-1,\"accuracy\":5,\"battery\":80,\"tags\":[\"n\"],\"attributes\":{\"d\":[7,null]}}\n\
             {\"entity\":\"b\",\"lat\":1,\"lon\":2,\"time\":\"2023-11-14T22:13:20Z\"}\n",
        ),
        (
            "tracks_geojson",
            0,
            "{\"type\":\"FeatureCollection\",\"features\":[{\"type\":\"Feature\",\"properties\":{\"entity\":\"a\",\
             \"time\":5},\"geometry\":{\"type\":\"Point\",\"coordinates\":[1,2,3]}},{\"type\":\"Feature\",\
             \"properties\":{\"entity\":\"b\",\"times\":[1,\"2023-11-14T22:13:20Z\"]},\"geometry\":\
             {\"type\":\"LineString\",\"coordinates\":[[1,2],[3,4]]}}]}",
        ),
        (
            "tracks_geojson",
            64,
            "{\"type\":\"Feature\",\"properties\":null,\"geometry\":{\"type\":\"Point\",\"coordinates\":[1,2]}}",
        ),
        (
            "tracks_gpx",
            0,
            "<?xml version=\"1.0\" encoding=\"UTF-8\"?><gpx version=\"1.1\"><wpt lat=\"1\" lon=\"2\"/><trk>\
             <name>a &amp; b&#33;</name><trkseg><trkpt lat=\"1\" lon=\"2\"><ele>3</ele>\
             <time>2023-11-14T22:13:20Z</time><extensions><x:speed>4</x:speed>\
             <ironstone:accuracy>5</ironstone:accuracy><ironstone:tags>[\"n\"]</ironstone:tags>\
             <ironstone:attributes>{\"a\":1}</ironstone:attributes></extensions></trkpt></trkseg></trk></gpx>",
        ),
        (
            "tracks_gpx",
            64,
            "<gpx><trk><trkseg><trkpt lat='1' lon='2'><time><![CDATA[2023-11-14T22:13:20]]></time>\
             <course>5</course><speed>6</speed></trkpt></trkseg></trk></gpx>",
        ),
    ];
    all.into_iter()
        .map(|(target, how, text)| (target, [text.as_bytes(), &[how]].concat()))
        .collect()
}
