//! The tracking service under power cuts: every write that was answered as durable is there, the rows agree,
//! and each crossing of a fence has one event; an import is there as a whole or not at all; and RocksDB reads
//! its database.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ::tracks::check;
use ::tracks::fence::{Area, Definition, When};
use ::tracks::files::{self, Format};
use ::tracks::fleets::Info;
use ::tracks::geo::position::Position;
use ::tracks::geo::shape::{Circle, Shape};
use ::tracks::import::{self, Import};
use ::tracks::model::key::PointKey;
use ::tracks::model::name::Name;
use ::tracks::model::point::Point;
use ::tracks::model::report::Report;
use ::tracks::model::time::{SECOND, Time};
use ::tracks::service::{self, Tracks};
use ::tracks::store::{Engine, Family, SCRATCH, Store, View};
use ::tracks::write::Ack;
use base::ErrorKind;
use base::clock::SystemClock;
use base::rng::Rng;
use base::sync::atomic::{AtomicU64, Ordering};
use base::threads::SystemThreads;
use ironstone::{Env, Options, Profile};
use sim::disk::{Config, CrashKind, CrashWhen, Fault, Repeat, SimDisk};

mod hooks;
mod model;
mod ops;
mod subscriber;
mod walk;

const NOW: Time = Time(1_700_000_000 * SECOND);
const ENTITIES: u64 = 12;

fn options(disk: &SimDisk) -> Options {
    let mut options = Options {
        env: Env {
            fs: disk.shared(),
            ..Env::default()
        },
        ..Options::default()
    };
    options.db.stats_dump_period_sec = 0;
    // Small, so that tables are written and merged while the service runs.
    options.cf.write_buffer_size = 64 << 10;
    options.cf.level0_file_num_compaction_trigger = 2;
    options
}

fn engine(disk: &SimDisk) -> base::Result<Engine> {
    Engine::open_with("/tracks", options(disk))
}

fn open(disk: &SimDisk) -> base::Result<Tracks> {
    let mut options = service::Options::default();
    options.write.shards = 2;
    let store: Arc<dyn Store> = Arc::new(engine(disk)?);
    Tracks::over(store, &options, SystemClock::shared(), &SystemThreads)
}

fn at(lat: f64, lon: f64) -> Position {
    Position::of_degrees(lat, lon).unwrap()
}

fn fences() -> Vec<(Name, [f64; 2], f64)> {
    let fence = |n: u32| {
        let centre = [18.0 + f64::from(n) * 0.01, 59.0];
        (Name::new(&format!("f{n}")).unwrap(), centre, 600.0)
    };
    (0..5).map(fence).collect()
}

fn info(tracks: &Tracks) -> base::Result<Arc<Info>> {
    let fleet = Name::new("fleet")?;
    tracks.fleets().get_or_make(&**tracks.store(), &fleet)
}

/// Walks of some entities, in calls of a few reports each; the reports of an entity are in order.
fn calls(rng: &mut Rng) -> Vec<Vec<Report>> {
    let mut seconds = -100_000;
    let mut call = |rng: &mut Rng| {
        let count = 1 + rng.below(8);
        let reports = (0..count).map(|_| {
            seconds += 60;
            let lon = 17.99 + rng.below(700) as f64 / 1e4;
            Report {
                entity: Name::new(&format!("e{}", rng.below(ENTITIES))).unwrap(),
                time: Some(Time(NOW.0 + seconds * SECOND)),
                point: Point::at(at(58.999 + rng.below(200) as f64 / 1e5, lon)),
            }
        });
        reports.collect()
    };
    (0..60).map(|_| call(rng)).collect()
}

/// The events that all walks must make.
fn right_events(calls: &[Vec<Report>]) -> BTreeSet<String> {
    let mut inside: BTreeMap<(String, String), bool> = BTreeMap::new();
    let mut out = BTreeSet::new();
    for report in calls.iter().flatten() {
        for (name, [lon, lat], radius) in fences() {
            let is = Circle::new(at(lat, lon), radius)
                .unwrap()
                .has(report.point.position);
            let key = (report.entity.to_string(), name.to_string());
            let was = inside.insert(key, is).unwrap_or(false);
            if was != is {
                let kind = if is { "Enter" } else { "Exit" };
                let time = report.time.unwrap().0;
                out.insert(format!("{kind} {name} {} {time}", report.entity));
            }
        }
    }
    out
}

/// Asserts that every report that was answered as durable is there.
fn assert_there(tracks: &Tracks, info: &Info, answered: &[Report]) {
    let view = tracks.view();
    for report in answered {
        let key = PointKey {
            fleet: info.fleet,
            entity: report.entity.number(0),
            time: report.time.unwrap(),
        };
        let found = view.get(Family::Default, &key.to_bytes()).unwrap();
        let point = Point::decode(&found.expect("an answered report is lost")).unwrap();
        assert_eq!(point.position, report.point.position);
    }
    let options = check::Options { visits: true };
    let findings = check::check(&**tracks.store(), options, &mut |_| ()).unwrap();
    assert_eq!(findings.problems, []);
}

/// Sends all calls, some at once, and notes the reports that were answered. Returns whether all were.
fn send(tracks: &Tracks, info: &Info, calls: &[Vec<Report>], answered: &mut Vec<Report>) -> bool {
    let mut is_all = true;
    for some in calls.chunks(5) {
        let tickets = some.iter().map(|call| {
            let ticket = tracks.report_at(info, call.clone(), Ack::Durable, NOW);
            (call, ticket)
        });
        for (call, ticket) in tickets.collect::<Vec<_>>() {
            let Ok(answer) = ticket.map(::tracks::write::Ticket::wait) else {
                is_all = false;
                continue;
            };
            for (report, outcome) in call.iter().zip(answer.outcomes) {
                match outcome {
                    Ok(_) => answered.push(report.clone()),
                    Err(_) => is_all = false,
                }
            }
        }
    }
    is_all
}

fn event_ids(tracks: &Tracks, info: &Info) -> Vec<(u64, String)> {
    let store = &**tracks.store();
    let events = tracks
        .events()
        .read(store, info.fleet, 0, usize::MAX)
        .unwrap_or_default();
    let said = |e: ::tracks::fence::Event| {
        (
            e.id,
            format!("{:?} {} {} {}", e.kind, e.fence, e.entity, e.time),
        )
    };
    events.into_iter().map(said).collect()
}

/// The number of disk events of opening the service and sending all calls.
fn events_of(disk: &SimDisk, calls: &[Vec<Report>]) -> u64 {
    let disk = disk.kill_image();
    let before = disk.events();
    let tracks = open(&disk).unwrap();
    let of = info(&tracks).unwrap();
    assert!(send(&tracks, &of, calls, &mut Vec::new()));
    disk.events() - before
}

/// One run; returns the number of events.
fn run(seed: u64) -> usize {
    let mut rng = Rng::new(seed);
    let calls = calls(&mut rng);
    let mut disk = SimDisk::new(Config::default());
    let tracks = open(&disk).unwrap();
    let of = info(&tracks).unwrap();
    for (name, centre, radius) in fences() {
        let definition = Definition {
            area: Area::Circle { centre, radius },
            when: When::default(),
            tags: Vec::new(),
        };
        tracks.put_fence(&of, &name, definition).unwrap();
    }
    let mut answered = Vec::new();
    // Events that were given out must stay, and later ones must follow them.
    let mut given: Vec<(u64, String)> = Vec::new();
    assert!(send(&tracks, &of, &calls[..1], &mut answered));
    drop(tracks);
    for _ in 0..3 {
        // The cut is at any event of the work that is left, opening included.
        let count = events_of(&disk, &calls);
        disk.crash_at(disk.events() + 1 + rng.below(count), CrashWhen::During);
        let opened = open(&disk).and_then(|tracks| Ok((info(&tracks)?, tracks)));
        let now = opened.as_ref().map_or_else(
            |_| Vec::new(),
            |(of, tracks)| {
                send(tracks, of, &calls, &mut answered);
                event_ids(tracks, of)
            },
        );
        assert!(now.starts_with(&given) || now.is_empty(), "seed {seed}");
        if now.len() > given.len() {
            given = now;
        }
        let kind = CrashKind::any(&mut rng);
        let image = if rng.one_in(3) {
            disk.kill_image()
        } else {
            disk.crash_image(&mut rng, kind)
        };
        drop(opened);
        disk = image;
        let tracks = open(&disk).unwrap();
        let of = info(&tracks).unwrap();
        assert_there(&tracks, &of, &answered);
        let now = event_ids(&tracks, &of);
        assert!(
            now.starts_with(&given),
            "seed {seed}: an event that was given out is lost"
        );
        given = now;
    }
    let tracks = open(&disk).unwrap();
    let of = info(&tracks).unwrap();
    assert!(send(&tracks, &of, &calls, &mut answered), "seed {seed}");
    assert_there(&tracks, &of, &answered);
    let through = tracks.events().through();
    let right = right_events(&calls);
    for _ in 0..1000 {
        if event_ids(&tracks, &of).len() >= right.len() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let found = event_ids(&tracks, &of);
    let said: BTreeSet<String> = found.iter().map(|(_, said)| said.clone()).collect();
    assert_eq!(said.len(), found.len(), "seed {seed}: an event twice");
    assert_eq!(said, right, "seed {seed}: through {}", *through.borrow());
    found.len()
}

/// `IRONSTONE_TRACKS_SEEDS` sets the number of seeds.
#[test]
fn power_cuts_lose_nothing_that_was_answered_and_make_no_event_twice() {
    let seeds = std::env::var("IRONSTONE_TRACKS_SEEDS").map_or(30, |n| n.parse().unwrap());
    let events: usize = (0..seeds).map(run).sum();
    assert!(events > 20 * seeds as usize, "{events}");
}

type Rows = Vec<(&'static str, Vec<u8>, Vec<u8>)>;

fn all_of(view: &dyn View) -> Rows {
    let mut out = Vec::new();
    for family in Family::ALL {
        let mut rows = view.rows(family, &[], None).unwrap();
        rows.seek(&[]);
        while let Some((key, value)) = rows.row() {
            out.push((family.name(), key.to_vec(), value.to_vec()));
            rows.next();
        }
    }
    out
}

/// Lines that move known and unknown entities, some of them late or twice.
fn lines(rng: &mut Rng, count: u64) -> String {
    let line = |_| {
        let (entity, seconds) = (rng.below(2 * ENTITIES), rng.below(400_000));
        let time = NOW.0 / SECOND - 200_000 + seconds as i64 / 1000 * 1000;
        let lon = 17.99 + rng.below(700) as f64 / 1e4;
        format!(
            "{{\"entity\":\"e{entity}\",\"lat\":59,\"lon\":{lon},\"time\":{time},\"tags\":[\"x\"]}}\n"
        )
    };
    (0..count).map(line).collect()
}

fn import(engine: &Engine, lines: &str) -> base::Result<import::Summary> {
    let options = import::Options {
        memory: 0,
        ..import::Options::default()
    };
    let fleet = Name::new("fleet")?;
    let mut import = Import::begin(engine, &fleet, Time(NOW.0 + 300_000 * SECOND), &options)?;
    let mut reader = files::open(Format::Ndjson, lines.as_bytes(), &files::Options::default());
    import.read("lines", &mut reader, &mut |_| Ok(()), &mut |_| ())?;
    import.finish(&mut |_| Ok(()), &mut |_| ())
}

/// The rows on a disk, after a check that they agree.
fn rows_of(disk: &SimDisk) -> Rows {
    let engine = engine(disk).unwrap();
    let options = check::Options { visits: true };
    let findings = check::check(&engine, options, &mut |_| ()).unwrap();
    assert_eq!(findings.problems, []);
    let scratch = std::path::Path::new("/tracks").join(SCRATCH);
    assert!(!disk.shared().exists(&scratch).unwrap());
    all_of(&*engine.view())
}

/// A disk with the database of a service that has taken reports.
fn with_reports(rng: &mut Rng) -> SimDisk {
    let disk = SimDisk::new(Config::default());
    let tracks = open(&disk).unwrap();
    let of = info(&tracks).unwrap();
    assert!(send(&tracks, &of, &calls(rng), &mut Vec::new()));
    drop(tracks);
    disk
}

/// Opens a store as an import into a new folder does.
fn engine_for_import(disk: &SimDisk) -> base::Result<Engine> {
    let ours = options(disk);
    let mut bulk = Options::for_profile(Profile::BulkLoad);
    (bulk.env, bulk.db.stats_dump_period_sec) = (ours.env, 0);
    bulk.cf.num_levels = ours.cf.num_levels;
    Engine::open_with("/tracks", bulk)
}

/// Imports into the database of a disk, which `open` opens, and cuts the power somewhere: all of the import is there
/// afterwards, or nothing.
fn cut_imports(rng: &mut Rng, disk: &SimDisk, open: fn(&SimDisk) -> base::Result<Engine>) {
    let lines = lines(rng, 30_000);
    let before = rows_of(&disk.kill_image());
    // The result without a cut, and the number of its events.
    let whole = disk.kill_image();
    let opened = open(&whole).unwrap();
    let start = whole.events();
    let done = import(&opened, &lines).unwrap();
    assert!(done.runs > 3 && done.moved > ENTITIES, "{done:?}");
    let count = whole.events() - start;
    drop(opened);
    let after = rows_of(&whole);
    assert!(after.len() > before.len());
    let seeds = std::env::var("IRONSTONE_TRACKS_SEEDS").map_or(30, |n| n.parse().unwrap());
    let mut ends = [0; 2];
    for round in 0..seeds {
        let disk = disk.kill_image();
        let opened = open(&disk).unwrap();
        // Half of the cuts are near the end, where the import becomes part of the database.
        let at = if round % 2 == 0 {
            rng.below(count)
        } else {
            count - 1 - rng.below((count / 8).max(1))
        };
        disk.crash_at(disk.events() + at, CrashWhen::During);
        let is_done = import(&opened, &lines).is_ok();
        let image = if rng.one_in(3) {
            disk.kill_image()
        } else {
            let kind = CrashKind::any(rng);
            disk.crash_image(rng, kind)
        };
        drop(opened);
        let found = rows_of(&image);
        let is_all = found == after;
        assert!(
            is_all || is_as_before(&found, &before),
            "round {round}: a part of an import"
        );
        assert!(is_all || !is_done, "round {round}: an import is lost");
        ends[usize::from(is_all)] += 1;
    }
    assert!(ends.iter().all(|n| *n > 0), "{ends:?}");
}

/// Whether an import has changed nothing. The version of the rows may be there already: an import into a new folder
/// writes that first.
fn is_as_before(found: &Rows, before: &Rows) -> bool {
    let is_version = |family: &str, key: &[u8]| family == Family::Meta.name() && key == b"schema";
    found == before
        || before.is_empty() && found.iter().all(|(family, key, _)| is_version(family, key))
}

#[test]
fn an_import_is_there_or_not_after_a_power_cut() {
    let mut rng = Rng::new(17);
    let disk = with_reports(&mut rng);
    cut_imports(&mut rng, &disk, engine);
}

#[test]
fn an_import_into_a_new_folder_is_there_or_not_after_a_power_cut() {
    let disk = SimDisk::new(Config::default());
    cut_imports(&mut Rng::new(18), &disk, engine_for_import);
}

/// A full disk or a failing one ends an import with an error that names it, and nothing of it is there.
#[test]
fn an_import_that_fails_changes_nothing() {
    let mut rng = Rng::new(19);
    let disk = with_reports(&mut rng);
    let lines = lines(&mut rng, 30_000);
    let before = rows_of(&disk.kill_image());
    for (fault, kind) in [
        (Fault::NoSpace, ErrorKind::NoSpace),
        (Fault::Eio, ErrorKind::IoError),
    ] {
        let mut failed = 0;
        for round in 0..8 {
            let disk = disk.kill_image();
            let opened = engine(&disk).unwrap();
            // Within the files that become a part of the database at the end.
            let (nth, from) = (AtomicU64::new(0), rng.below(60));
            disk.fail_on(fault, Repeat::Forever, move |_, path| {
                path.starts_with("/tracks/import") && nth.fetch_add(1, Ordering::Relaxed) >= from
            });
            let done = import(&opened, &lines);
            drop(opened);
            disk.clear_faults();
            let found = rows_of(&disk.kill_image());
            let Err(e) = done else { continue };
            failed += 1;
            assert_eq!(e.kind(), kind, "round {round}: {e}");
            assert!(
                found == before,
                "round {round}: {} rows, {} before: {e}",
                found.len(),
                before.len()
            );
        }
        assert!(failed > 4, "{failed}");
    }
}

/// Asserts that RocksDB 11.8.1 finds the same rows in a folder. Returns false if there is no RocksDB; CI
/// has it.
fn assert_rocksdb_reads(dir: &std::path::Path, ours: &Rows, at_least: usize) -> bool {
    let Some(library) = sim::oracle::rocksdb() else {
        assert!(
            std::env::var_os("CI").is_none(),
            "CI has no RocksDB: cargo xtask peers fetches it"
        );
        return false;
    };
    let version = library.version().unwrap();
    if version != "11.8.1" {
        eprintln!("skipped: RocksDB {version} is not 11.8.1, which cargo xtask peers fetches");
        return false;
    }
    let db = tools::librocksdb::RocksDb::open_all(&library.options(), dir).unwrap();
    let mut theirs = Vec::new();
    for family in Family::ALL {
        let cf = db.cf(family.name()).unwrap();
        let rows = db.iterator_cf(cf).collect_all().unwrap();
        theirs.extend(
            rows.into_iter()
                .map(|(key, value)| (family.name(), key, value)),
        );
    }
    let differs = ours.iter().zip(&theirs).find(|(a, b)| a != b);
    assert!(
        ours.len() == theirs.len() && differs.is_none(),
        "{} and {} rows: {differs:?}",
        ours.len(),
        theirs.len()
    );
    assert!(ours.len() >= at_least, "{} rows", ours.len());
    true
}

/// The column families and the order of keys are plain, so RocksDB reads all of it, also after imports.
#[test]
fn rocksdb_reads_the_rows() {
    let dir = tempfile::tempdir().unwrap();
    let tracks = Tracks::open(dir.path(), &service::Options::default()).unwrap();
    let of = info(&tracks).unwrap();
    let mut rng = Rng::new(1);
    assert!(send(&tracks, &of, &calls(&mut rng), &mut Vec::new()));
    let ours = all_of(&*tracks.view());
    drop(tracks);
    assert_rocksdb_reads(dir.path(), &ours, 500);
    let new = tempfile::tempdir().unwrap();
    for dir in [dir.path(), new.path()] {
        let engine = Engine::open_for_import(dir).unwrap();
        import(&engine, &lines(&mut rng, 3000)).unwrap();
        let ours = all_of(&*engine.view());
        drop(engine);
        assert_rocksdb_reads(dir, &ours, 500);
    }
}
