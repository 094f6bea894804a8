//! Imports make the same rows as the reports would one by one, all of them or none.

use std::io::{BufReader, Read};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use base::rng::Rng;
use tracks::check;
use tracks::files::{self, Format, Record};
use tracks::import::{Import, Options, Summary};
use tracks::model::key::EntityKey;
use tracks::model::name::Name;
use tracks::model::newest::Newest;
use tracks::model::point::Point;
use tracks::model::report::Ahead;
use tracks::service::{self, Tracks};
use tracks::store::{Engine, Family, SCRATCH, Store, View};
use tracks::write::Ack;

use crate::world::{NOW, around, near};

pub(crate) type All = Vec<(Family, Vec<u8>, Vec<u8>)>;

fn fleet() -> Name {
    Name::new("fleet").unwrap()
}

fn all_of(view: &dyn View) -> All {
    let mut out = Vec::new();
    for family in Family::ALL {
        let mut rows = view.rows(family, &[], None).unwrap();
        rows.seek(&[]);
        while let Some((key, value)) = rows.row() {
            out.push((family, key.to_vec(), value.to_vec()));
            rows.next();
        }
    }
    out
}

/// All rows of a folder, which must be consistent.
pub(crate) fn rows(dir: &Path) -> All {
    let engine = Engine::open(dir).unwrap();
    let found = crate::world::check(&engine);
    assert_eq!(found.problems, []);
    assert!(!dir.join(SCRATCH).exists());
    all_of(&*engine.view())
}

fn options(format: Format) -> files::Options {
    let entity = (format == Format::GeoLife).then(|| Name::new("010").unwrap());
    files::Options {
        entity,
        ..files::Options::default()
    }
}

/// Reports the content of a file, as over HTTP; returns how many records were bad.
fn by_service(dir: &Path, format: Format, file: &[u8]) -> u64 {
    let tracks = Tracks::open(dir, &service::Options::default()).unwrap();
    let mut bad = 0;
    let mut call = Vec::new();
    let store = tracks.store();
    let fleets = tracks.fleets();
    let send = |reports: Vec<_>| {
        let info = fleets.get_or_make(&**store, &fleet()).unwrap();
        let ticket = tracks.report_at(&info, reports, Ack::Visible, NOW).unwrap();
        let answer = ticket.wait();
        answer.outcomes.iter().filter(|o| o.is_err()).count() as u64
    };
    for record in files::open(format, file, &options(format)) {
        let Ok(Record {
            mut report, tags, ..
        }) = record
        else {
            bad += 1;
            continue;
        };
        if report.check(NOW, Ahead::Refuse).is_err() {
            bad += 1;
            continue;
        }
        let info = fleets.get_or_make(&**store, &fleet()).unwrap();
        let bits = info.settings.bits(&tags).or_else(|_| {
            let info = fleets.with_tags(&**store, &fleet(), &tags)?;
            info.settings.bits(&tags)
        });
        let Ok(bits) = bits else {
            bad += 1;
            continue;
        };
        report.point.tags = bits;
        call.push(report);
        if call.len() == 50 {
            bad += send(std::mem::take(&mut call));
        }
    }
    bad + send(call)
}

pub(crate) fn by_import(dir: &Path, format: Format, file: &[u8], memory: usize) -> Summary {
    let engine = Engine::open_for_import(dir).unwrap();
    import_into(&engine, format, file, memory).unwrap()
}

fn import_into(
    engine: &Engine,
    format: Format,
    file: impl Read,
    memory: usize,
) -> base::Result<Summary> {
    let how = Options {
        memory,
        ..Options::default()
    };
    let mut import = Import::begin(engine, &fleet(), NOW, &how)?;
    let mut reader = files::open(format, BufReader::new(file), &options(format));
    import.read("file", &mut reader, &mut |_| Ok(()), &mut |_| ())?;
    import.finish(&mut |_| Ok(()), &mut |_| ())
}

/// A file with late reports, duplicates, other content at the same time, tags, and bad lines.
pub(crate) fn some(rng: &mut Rng, format: Format, count: u64) -> String {
    let mut out = String::new();
    if format == Format::Csv {
        out.push_str("entity,time,lat,lon,speed,tags,attributes\n");
    }
    if format == Format::GeoLife {
        out.push_str(&"a line of the header\n".repeat(6));
    }
    if format == Format::Porto {
        out.push_str("\"TRIP_ID\",\"TAXI_ID\",\"TIMESTAMP\",\"POLYLINE\"\n");
    }
    let mut features = Vec::new();
    let mut centre = near(rng);
    for _ in 0..count {
        let position = around(rng, centre, 0.01);
        centre = position.degrees();
        let (mut lat, lon) = centre;
        if rng.one_in(50) {
            lat = 91.0;
        }
        // Few different times, so that many repeat; some are too far ahead.
        let seconds = NOW.0 / 1_000_000 - 60 * rng.below(40) as i64;
        let seconds = seconds + i64::from(rng.one_in(60)) * 1000;
        let car = rng.below(6);
        let speed = rng.below(3);
        let tags = ["[]", "[\"free\"]", "[\"bus\",\"free\"]"][rng.below(3) as usize];
        let at = jiff::Timestamp::from_second(seconds).unwrap();
        match format {
            Format::Csv => {
                let tags = tags.replace('"', "\"\"");
                out.push_str(&format!(
                    "car{car},{seconds},{lat},{lon},{speed},\"{tags}\",\n"
                ));
            }
            Format::Ndjson => out.push_str(&format!(
                "{{\"entity\":\"car{car}\",\"time\":{seconds},\"lat\":{lat},\"lon\":{lon},\"speed\":{speed},\
                 \"tags\":{tags}}}\n"
            )),
            Format::GeoJson => features.push(format!(
                "{{\"type\":\"Feature\",\"geometry\":{{\"type\":\"Point\",\"coordinates\":[{lon},{lat}]}},\
                 \"properties\":{{\"entity\":\"car{car}\",\"time\":{seconds},\"tags\":{tags}}}}}"
            )),
            Format::Gpx => features.push(format!(
                "<trk><name>car{car}</name><trkseg><trkpt lat=\"{lat}\" lon=\"{lon}\"><time>{at}</time></trkpt>\
                 </trkseg></trk>"
            )),
            Format::GeoLife => {
                let text = at.strftime("%Y-%m-%d,%H:%M:%S");
                out.push_str(&format!("{lat},{lon},0,492,40097.58,{text}\n"));
            }
            Format::TDrive => {
                let text = at.strftime("%Y-%m-%d %H:%M:%S");
                out.push_str(&format!("{car},{text},{lon},{lat}\n"));
            }
            Format::Porto => out.push_str(&format!(
                "\"1\",\"{car}\",\"{seconds}\",\"[[{lon},{lat}],[{lon},{lat}]]\"\n"
            )),
        }
    }
    match format {
        Format::GeoJson => format!(
            "{{\"type\":\"FeatureCollection\",\"features\":[{}]}}",
            features.join(",")
        ),
        Format::Gpx => format!("<gpx version=\"1.1\">{}</gpx>", features.concat()),
        _ => out,
    }
}

const FORMATS: [Format; 7] = [
    Format::Csv,
    Format::Ndjson,
    Format::GeoJson,
    Format::Gpx,
    Format::GeoLife,
    Format::TDrive,
    Format::Porto,
];

#[test]
fn an_import_is_what_the_same_reports_are() {
    let mut rng = Rng::new(41);
    for format in FORMATS {
        for before in [0, 150] {
            let dirs = [0; 2].map(|_| tempfile::tempdir().unwrap());
            let first = some(&mut rng, Format::Ndjson, before);
            for dir in dirs.iter().filter(|_| before > 0) {
                by_service(dir.path(), Format::Ndjson, first.as_bytes());
            }
            let file = some(&mut rng, format, 400);
            let bad = by_service(dirs[0].path(), format, file.as_bytes());
            let done = by_import(dirs[1].path(), format, file.as_bytes(), 1 << 20);
            assert_eq!(done.bad, bad, "{format}");
            let right = rows(dirs[0].path());
            let found = rows(dirs[1].path());
            // GeoLife has one entity: a point and a visit for each of 40 times, and its other rows.
            assert!(right.len() > 80, "{format}: {}", right.len());
            assert!(found == right, "{format} behind {before}: {done:?}");
            // Importing it again changes nothing.
            by_import(dirs[1].path(), format, file.as_bytes(), 1 << 20);
            assert!(rows(dirs[1].path()) == right, "{format}: again");
        }
    }
}

/// The memory for the cells of a bucket is bounded.
#[test]
fn a_bucket_of_many_cells_is_as_reports_make_it() {
    let dirs = [0; 2].map(|_| tempfile::tempdir().unwrap());
    // A hundred reports per second; three consecutive ones share a cell.
    let line = |n: u64, cell: u64| {
        let (minute, second, part) = (11 + n / 6000, n / 100 % 60, n % 100);
        let time = format!("2023-11-14T22:{minute}:{second:02}.{part:02}Z");
        let (lat, lon) = ((cell / 3) as f64 / 50.0, (cell % 7) as f64 / 100_000.0);
        format!("car,{time},{lat},{lon}\n")
    };
    let head = || std::iter::once("entity,time,lat,lon\n".to_owned());
    let first: String = head().chain((0..9000).map(|n| line(n, n))).collect();
    for dir in &dirs {
        by_service(dir.path(), Format::Csv, first.as_bytes());
    }
    // In some cells all points move, in others one, and some points return to former places of
    // others.
    let moves = (0..9000).filter(|n| n % 9 < 4 || n % 1000 == 8);
    let moves = moves.map(|n| line(n, if n % 2 == 0 { n + 4000 } else { 8999 - n }));
    let file: String = head().chain(moves).collect();
    by_service(dirs[0].path(), Format::Csv, file.as_bytes());
    by_import(dirs[1].path(), Format::Csv, file.as_bytes(), 1 << 20);
    let (right, found) = (rows(dirs[0].path()), rows(dirs[1].path()));
    assert!(right.len() > 11_000, "{}", right.len());
    assert!(found == right, "{} {}", found.len(), right.len());
}

#[test]
fn names_whose_numbers_are_taken_get_the_next_ones() {
    let dirs = [0; 2].map(|_| tempfile::tempdir().unwrap());
    let file = "{\"entity\":\"b\",\"lat\":1,\"lon\":1,\"time\":1}\n\
                {\"entity\":\"a\",\"lat\":1,\"lon\":1,\"time\":1}\n\
                {\"entity\":\"a\",\"lat\":1,\"lon\":1.5,\"time\":2}\n\
                {\"entity\":\"full\",\"lat\":1,\"lon\":1.5,\"time\":2}\n";
    for dir in &dirs {
        let tracks = Tracks::open(dir.path(), &service::Options::default()).unwrap();
        let info = tracks
            .fleets()
            .get_or_make(&**tracks.store(), &fleet())
            .unwrap();
        let mut batch = ironstone::WriteBatch::new();
        let others = [("a", 0, "x"), ("a", 1, ""), ("b", 0, "")].into_iter();
        for (name, turn, row) in others.chain((0..8).map(|turn| ("full", turn, "y"))) {
            let key = EntityKey {
                fleet: info.fleet,
                entity: Name::new(name).unwrap().number(turn),
            };
            let id = tracks.store().id(Family::Entities);
            batch.cf_id(id).put(key.to_bytes(), row.as_bytes()).unwrap();
        }
        tracks.store().write(batch, None).unwrap();
    }
    let bad = by_service(dirs[0].path(), Format::Ndjson, file.as_bytes());
    let done = by_import(dirs[1].path(), Format::Ndjson, file.as_bytes(), 0);
    assert_eq!((bad, done.bad), (1, 1));
    assert!(rows(dirs[0].path()) == rows(dirs[1].path()));
}

#[test]
fn little_memory_makes_many_runs() {
    let dirs = [0; 2].map(|_| tempfile::tempdir().unwrap());
    let line = |n: u64| {
        let (car, at) = (n * 7919 % 3000, n * 31 % 1_000_003);
        format!("car{car},{at},{},{}\n", at % 80, (at as f64 / 9.0) % 170.0)
    };
    let file: String = std::iter::once("entity,time,lat,lon\n".to_owned())
        .chain((0..80_000).map(line))
        .collect();
    let few = by_import(dirs[0].path(), Format::Csv, file.as_bytes(), 64 << 20);
    let many = by_import(dirs[1].path(), Format::Csv, file.as_bytes(), 1 << 20);
    assert!(few.runs == 1 && many.runs > 10, "{few:?} {many:?}");
    assert_eq!((few.stored, few.entities), (many.stored, 3000));
    assert!(rows(dirs[0].path()) == rows(dirs[1].path()));
}

#[test]
fn refused_records_make_neither_fleets_nor_tags() {
    let dir = tempfile::tempdir().unwrap();
    let line = |time: i64, tags: &[String]| {
        format!(
            "{{\"entity\":\"a\",\"lat\":1,\"lon\":1,\"time\":{time},\"tags\":[{}]}}\n",
            tags.join(",")
        )
    };
    let many: Vec<String> = (0..32).map(|n| format!("\"t{n}\"")).collect();
    let mut file = line(NOW.0 / 1_000_000 + 100_000, &many);
    let done = by_import(dir.path(), Format::Ndjson, file.as_bytes(), 0);
    assert_eq!((done.bad, done.stored), (1, 0));
    let info = || {
        let engine = Engine::open(dir.path()).unwrap();
        tracks::fleets::Fleets::open(&engine).unwrap().get(&fleet())
    };
    assert_eq!(info(), None);
    file += &line(1, &["\"bus\"".to_owned()]);
    let done = by_import(dir.path(), Format::Ndjson, file.as_bytes(), 0);
    assert_eq!((done.bad, done.stored), (1, 1));
    assert_eq!(info().unwrap().settings.tags, ["bus"]);
}

#[test]
fn what_cannot_be_imported_is_said_and_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path()).unwrap();
    tracks::fleets::Fleets::open(&engine).unwrap();
    let before = all_of(&*engine.view());
    let how = Options {
        bad_max: Some(1),
        ..Options::default()
    };
    let lines = "{\"entity\":\"a\",\"lat\":1,\"lon\":1,\"time\":1}\nno\nnor this\n";
    let mut import = Import::begin(&engine, &fleet(), NOW, &how).unwrap();
    let e = Import::begin(&engine, &fleet(), NOW, &how).unwrap_err();
    assert_eq!(e.kind(), base::ErrorKind::Busy);
    let mut reader = files::open(Format::Ndjson, lines.as_bytes(), &options(Format::Ndjson));
    let mut said = Vec::new();
    let mut bad = |what: &str| {
        said.push(what.to_owned());
        Ok(())
    };
    let e = import
        .read("x", &mut reader, &mut bad, &mut |_| ())
        .unwrap_err();
    drop(import);
    assert!(e.to_string().contains("more than 1 bad"), "{e}");
    assert!(said.iter().all(|s| s.starts_with("x: ")) && said[1].contains("line 3"));
    assert!(before == all_of(&*engine.view()));

    let many: Vec<String> = (0..33).map(|n| format!("\"t{n}\"")).collect();
    let tagged = |tags: &[String]| {
        format!(
            "{{\"entity\":\"a\",\"lat\":1,\"lon\":1,\"time\":1,\"tags\":[{}]}}\n",
            tags.join(",")
        )
    };
    let files = [
        ("1", tagged(&many[..20]) + &tagged(&many[10..]), 1),
        (
            "years",
            "{\"entity\":\"a\",\"lat\":1,\"lon\":1,\"time\":\"0001-01-01T00:00:00Z\"}\n\
                   {\"entity\":\"a\",\"lat\":1,\"lon\":1,\"time\":\"9999-01-01T00:00:00Z\"}\n"
                .to_owned(),
            2,
        ),
    ];
    for (name, file, bad) in files {
        let done = import_into(&engine, Format::Ndjson, file.as_bytes(), 0).unwrap();
        assert_eq!(done.bad, bad, "{name}");
    }
    // A truncated GPX file: the points before its end are imported, and the error is reported.
    let gpx = "<gpx><trk><name>g</name><trkseg><trkpt lat=\"1\" lon=\"1\"><time>2020-01-01T00:00:00Z</time></trkpt><trkpt";
    let done = import_into(&engine, Format::Gpx, gpx.as_bytes(), 0).unwrap();
    assert_eq!((done.stored, done.bad), (1, 1));
    // A line of 1 GiB is skipped.
    let long = std::io::repeat(b'x').take(1 << 30);
    let file = long.chain(&b"\n{\"entity\":\"l\",\"lat\":1,\"lon\":1,\"time\":1}\n"[..]);
    let done = import_into(&engine, Format::Ndjson, file, 0).unwrap();
    assert_eq!((done.stored, done.bad), (1, 1));
    assert_eq!(
        check::check(&engine, check::Options { visits: true }, &mut |_| ())
            .unwrap()
            .problems,
        []
    );
}

fn command(dir: &Path, file: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ironstone-tracks"));
    command.args([
        "import", "--fleet", "fleet", "--format", "ndjson", "--memory", "1M", "--dir",
    ]);
    command
        .arg(dir)
        .arg(file)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    command
}

/// The layouts of GeoLife, T-Drive and Porto, as folders on a disk.
#[test]
fn folders_in_the_layouts_of_real_data_are_imported_by_the_command() {
    let top = tempfile::tempdir().unwrap();
    let dir = top.path().join("tracks");
    let write = |path: &str, text: &str| {
        let path = top.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    let header =
        "Geolife trajectory\nWGS 84\nAltitude is in Feet\nReserved 3\n0,2,255,My Track\n0\n";
    for (car, lat) in [("000", 39.9), ("001", 39.8)] {
        let line = |lon, second| format!("{lat},{lon},0,492,40097.58,2009-10-11,14:04:{second}\n");
        let text = [header.to_owned(), line(116.4, 30), line(116.5, 35)].concat();
        write(&format!("geolife/Data/{car}/Trajectory/2009.plt"), &text);
    }
    write("geolife/User Guide.pdf", "it is not read");
    let text =
        "1,2008-02-02 15:36:08,116.51172,39.92123\n1,2008-02-02 15:46:08,116.51135,39.93883\n";
    write("tdrive/1.txt", text);
    let text = "\"TRIP_ID\",\"TAXI_ID\",\"TIMESTAMP\",\"POLYLINE\"\n\
        \"T1\",\"20000589\",\"1372636858\",\"[[-8.618643,41.141412],[-8.618499,41.141376]]\"\n";
    write("porto/train.csv", text);
    write("empty/readme.md", "no data");
    let run = |format: &str, from: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ironstone-tracks"));
        command.args(["import", "--fleet", format, "--format", format, "--dir"]);
        command
            .arg(&dir)
            .arg(top.path().join(from))
            .output()
            .unwrap()
    };
    for (format, entities) in [("geolife", 2), ("tdrive", 1), ("porto", 1)] {
        let done = run(format, format);
        let said = String::from_utf8(done.stdout).unwrap();
        let right = format!("{} reports of {entities} entities", 2 * entities);
        assert!(
            done.status.success() && said.starts_with(&right),
            "{format}: {said}"
        );
    }
    let done = run("porto", "empty");
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(
        !done.status.success() && said.contains("ends as those of porto"),
        "{said}"
    );
    let points = rows(&dir)
        .into_iter()
        .filter(|(family, ..)| *family == Family::Default);
    assert_eq!(points.count(), 8);
}

/// A database in which some entities already have other positions.
fn begun(rng: &mut Rng) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    by_service(
        dir.path(),
        Format::Ndjson,
        some(rng, Format::Ndjson, 300).as_bytes(),
    );
    dir
}

/// The rows of a folder, but for the times at which reports arrived, which differ from process to process.
fn rows_without_arrival(dir: &Path) -> All {
    let without = |bytes: &[u8]| {
        let mut point = Point::decode(bytes).unwrap();
        point.lag = 0;
        point.encode().unwrap()
    };
    let mut all = rows(dir);
    for (family, _, value) in &mut all {
        match family {
            Family::Default => *value = without(value),
            Family::Latest => {
                let newest = Newest::decode(value).unwrap();
                let point = without(&newest.point.encode().unwrap());
                *value = Newest::encode(newest.name, (newest.time, newest.cell), &point);
            }
            _ => {}
        }
    }
    all
}

#[test]
fn an_import_that_is_killed_is_there_or_not() {
    let top = tempfile::tempdir().unwrap();
    let file = top.path().join("f.ndjson");
    let (mut rng, mut from) = (Rng::new(5), Rng::new(6));
    std::fs::write(&file, some(&mut rng, Format::Ndjson, 20_000)).unwrap();
    let begun = begun(&mut from);
    let before = rows_without_arrival(begun.path());
    let whole = {
        let dir = top.path().join("whole");
        copy(begun.path(), &dir);
        assert!(command(&dir, &file).output().unwrap().status.success());
        rows_without_arrival(&dir)
    };
    assert!(whole.len() > before.len());
    let since = std::time::Duration::from_millis;
    let mut ends = [0; 2];
    let mut longest = 200;
    // Until kills have hit both before and after the ingestion.
    for round in 0..100 {
        if round >= 24 && ends.iter().all(|n| *n > 0) {
            break;
        }
        let dir = top.path().join(format!("{round}"));
        copy(begun.path(), &dir);
        let mut child = command(&dir, &file).spawn().unwrap();
        std::thread::sleep(since(rng.below(longest)));
        child.kill().unwrap();
        let is_done = child.wait().unwrap().success();
        let found = rows_without_arrival(&dir);
        let is_all = found != before;
        if is_all {
            // Not by assert_eq!, because the rows fill screens.
            let other = found.iter().zip(&whole).find(|(a, b)| a != b);
            assert!(
                other.is_none() && found.len() == whole.len(),
                "round {round}: {other:?}"
            );
            let again = command(&dir, &file).output().unwrap();
            assert!(again.status.success());
            assert!(
                rows_without_arrival(&dir) == whole,
                "round {round}: the same import changes nothing"
            );
        } else {
            assert!(!is_done);
            longest += 40;
        }
        if is_done {
            longest = (longest * 3 / 4).max(50);
        }
        ends[usize::from(is_all)] += 1;
        std::fs::remove_dir_all(&dir).unwrap();
    }
    assert!(ends.iter().all(|n| *n > 0), "{ends:?}");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_file() {
            std::fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
        }
    }
}

#[test]
fn the_command_says_what_it_did() {
    let top = tempfile::tempdir().unwrap();
    let (dir, file, bad) = (
        top.path().join("d"),
        top.path().join("f"),
        top.path().join("bad"),
    );
    std::fs::write(
        &file,
        "id;y;x;t;v\nc1;59.1;18;1700000000;36\nc1;99;18;1700000001;36\n",
    )
    .unwrap();
    let run = |extra: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ironstone-tracks"));
        command.args([
            "import",
            "--fleet",
            "f",
            "--format",
            "csv",
            "--separator",
            ";",
        ]);
        command
            .args(["--speed-unit", "km/h", "--dir"])
            .arg(&dir)
            .arg("--bad-lines")
            .arg(&bad);
        command.args(extra).arg(&file);
        command.output().unwrap()
    };
    let done = run(&["--map", "entity=id,lat=y,lon=x,time=t,speed=v"]);
    let said = String::from_utf8(done.stdout).unwrap();
    assert!(
        done.status.success() && said.starts_with("1 reports of 1 entities"),
        "{said}"
    );
    let bad = std::fs::read_to_string(&bad).unwrap();
    assert!(
        bad.contains("line 3") && bad.contains("latitude 99"),
        "{bad}"
    );
    let done = run(&["--map", "entity=id,latitude=y"]);
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(
        !done.status.success() && said.contains("latitude"),
        "{said}"
    );
    let open = Engine::open(&dir).unwrap();
    let done = run(&["--map", "entity=id,lat=y,lon=x,time=t"]);
    let said = String::from_utf8(done.stderr).unwrap();
    assert!(
        !done.status.success() && said.to_lowercase().contains("busy"),
        "{said}"
    );
    drop(open);
    std::thread::sleep(Duration::from_millis(1));
}
