//! Written files can be read again, and hostile files are refused.

use std::path::Path;

use base::rng::Rng;

use super::*;
use crate::fleets::Settings;
use crate::geo::position::Position;
use crate::model::name::Name;
use crate::model::point::{Point, SPEED_END};
use crate::model::time::Time;

const WRITTEN: [Format; 4] = [Format::Csv, Format::Ndjson, Format::GeoJson, Format::Gpx];

fn settings() -> Settings {
    let tags = ["night", "a,\"b\"", "ü<&>;", "]]>"];
    Settings {
        tags: tags.map(str::to_owned).to_vec(),
        ..Settings::default()
    }
}

fn some(rng: &mut Rng) -> (Name, Time, Point) {
    let names = [
        "car1",
        " a, \"b\" ",
        "<é>&amp;'",
        "c/d\\e",
        "\u{feff}x",
        "7",
        "]]>",
    ];
    let name = names.get(rng.below(names.len() as u64) as usize).unwrap();
    let span = 253_402_300_800_000_000 + 2_208_988_800_000_000;
    let time = Time(rng.below(span) as i64 - 2_208_988_800_000_000);
    let lat = rng.below(1_800_000_001) as i64 - 900_000_000;
    let lon = rng.below(3_600_000_000) as i64 - 1_800_000_000;
    let position = Position::of_units(lat as i32, lon as i32).unwrap();
    let mut maybe = |below: u64| rng.one_in(2).then(|| rng.below(below));
    let texts = [
        "",
        "{\"a\":[1,\"x, \\\"<>&'\\n\"],\"ü\":null}",
        "{\"n\":1.50}",
    ];
    let point = Point {
        altitude: maybe(1 << 32).map(|n| n as i32),
        speed: maybe(SPEED_END.into()).map(|n| n as u16),
        course: maybe(36_000).map(|n| n as u16),
        accuracy: maybe(1 << 16).map(|n| n as u16),
        battery: maybe(101).map(|n| n as u8),
        tags: maybe(16).map_or(0, |n| n as u32),
        attributes: texts
            .get(maybe(3).unwrap_or(0) as usize)
            .map_or("", |text| text)
            .to_owned(),
        ..Point::at(position)
    };
    (Name::new(name).unwrap(), time, point)
}

fn written(format: Format, points: &[(Name, Time, Point)]) -> Vec<u8> {
    write(
        format,
        Vec::new(),
        &settings().tags,
        points.iter().cloned().map(Ok),
    )
    .unwrap()
}

#[test]
fn what_is_written_is_read() {
    for seed in 0..200 {
        let mut rng = Rng::new(seed);
        let points: Vec<_> = (0..=rng.below(20)).map(|_| some(&mut rng)).collect();
        for format in WRITTEN {
            let file = written(format, &points);
            let read = open(format, &file[..], &Options::default()).map(|found| {
                let found =
                    found.unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&file)));
                let mut report = found.report;
                report.point.tags = settings().bits(&found.tags).unwrap();
                (report.entity, report.time.unwrap(), report.point)
            });
            assert_eq!(read.collect::<Vec<_>>(), points, "{format}");
        }
    }
}

#[test]
fn files_of_nothing() {
    for format in WRITTEN {
        let file = written(format, &[]);
        let mut reader = open(format, &file[..], &Options::default());
        match format {
            Format::Ndjson => assert!(reader.next().unwrap().is_err()),
            _ => assert!(reader.next().is_none(), "{format}"),
        }
    }
    assert!(Writer::new(Format::TDrive, Vec::new(), &[]).is_err());
}

#[test]
fn what_cannot_be_written_is_refused_and_leaves_nothing() {
    let at = || Point::at(Position::of_units(1, 2).unwrap());
    let name = |text| Name::new(text).unwrap();
    let refused = [
        (
            name("a"),
            Time(0),
            Point { tags: 16, ..at() },
            "bit 4 has no name",
        ),
        (name("a"), Time::MIN, at(), "year"),
        (
            name("a"),
            Time(0),
            Point {
                attributes: "[]".into(),
                ..at()
            },
            "no JSON object",
        ),
        (name("a\u{ffff}"), Time(0), at(), "XML"),
    ];
    for format in WRITTEN {
        let mut writer = Writer::new(format, Vec::new(), &settings().tags).unwrap();
        writer.add(&name("b"), Time(0), &at()).unwrap();
        for (name, time, point, why) in &refused {
            match writer.add(name, *time, point) {
                Ok(()) => assert!(format != Format::Gpx && *why == "XML", "{format}: {why}"),
                Err(e) => assert!(e.to_string().contains(why), "{e}"),
            }
        }
        writer.add(&name("c"), Time(1), &at()).unwrap();
        let file = writer.finish().unwrap();
        let read: Result<Vec<_>> = open(format, &file[..], &Options::default()).collect();
        assert_eq!(
            read.unwrap().len(),
            if format == Format::Gpx { 2 } else { 3 }
        );
    }
}

#[test]
fn formats_have_names() {
    for (name, format) in Format::NAMES {
        assert_eq!(
            (name.parse::<Format>().unwrap(), format.to_string().as_str()),
            (format, name)
        );
    }
    let e = "kml".parse::<Format>().unwrap_err().to_string();
    assert!(e.contains("there are csv, ndjson"), "{e}");
    let of = |name: &str| Format::of_path(Path::new(name)).ok();
    assert_eq!(
        (of("a.jsonl"), of("a.plt"), of("a")),
        (Some(Format::Ndjson), Some(Format::GeoLife), None)
    );
}

/// Randomly changed files give records and errors, and reading them ends.
#[test]
fn whatever_a_file_has_it_ends() {
    let splices: [&[u8]; 10] = [
        b"\"",
        b"{",
        b"]",
        b"<",
        b"&",
        b"\n",
        b"\xff",
        b"1e999",
        b"<!DOCTYPE x>",
        b"\0",
    ];
    let mut rng = Rng::new(11);
    for round in 0..4000 {
        let points: Vec<_> = (0..3).map(|_| some(&mut rng)).collect();
        let (_, format) = *Format::NAMES.get(round % 7).unwrap();
        let kind = if WRITTEN.contains(&format) {
            format
        } else {
            Format::Csv
        };
        let mut file = written(kind, &points);
        for _ in 0..=rng.below(4) {
            let at = rng.below(file.len() as u64) as usize;
            let end = (at + rng.below(4) as usize).min(file.len());
            let with = splices.get(rng.below(10) as usize).unwrap();
            file.splice(at..end, with.iter().copied());
        }
        let options = Options {
            ignore_unknown: rng.one_in(2),
            entity: rng.one_in(2).then(|| Name::new("me").unwrap()),
            ..Options::default()
        };
        let mut reader = open(format, &file[..], &options);
        let found = reader.by_ref().take(file.len() + 2).collect::<Vec<_>>();
        assert!(found.len() <= file.len() + 1, "{format}");
        assert!(reader.next().is_none());
        for record in found.into_iter().flatten() {
            record.report.point.check().unwrap();
        }
    }
}
