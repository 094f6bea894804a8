//! Retention, erasure, and export followed by import.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use base::clock::Clock;
use base::threads::SystemThreads;
use tracks::export::{Choice, export};
use tracks::fence::{Area, Definition, When};
use tracks::files::{self, Format, Writer};
use tracks::fleets::Info;
use tracks::geo::shape::Rectangle;
use tracks::import::{self, Import};
use tracks::keep::Kept;
use tracks::model::key::PointKey;
use tracks::model::name::Name;
use tracks::model::report::Report;
use tracks::model::time::{SECOND, Time};
use tracks::read::{self, Filter};
use tracks::service::{Options, Tracks};
use tracks::store::{Engine, Family, Store};
use tracks::write::Ack;

use crate::world::{NOW, World, at, check, report};

const DAY: i64 = 86_400;

#[derive(Debug)]
struct TestClock(AtomicU64);

impl TestClock {
    fn go_on(&self, days: i64) {
        let micros = (days * DAY * SECOND) as u64;
        self.0.fetch_add(micros, Ordering::Relaxed);
    }
}

impl Clock for TestClock {
    fn wall_micros(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn monotonic_nanos(&self) -> u64 {
        0
    }
}

struct Fleet1 {
    tracks: Tracks,
    engine: Engine,
    info: Arc<Info>,
}

fn open(dir: &std::path::Path, clock: &Arc<TestClock>, days: (u32, u32)) -> Fleet1 {
    let engine = Engine::open(dir).unwrap();
    let store: Arc<dyn Store> = Arc::new(engine.clone());
    let clock: Arc<dyn Clock> = Arc::clone(clock) as Arc<dyn Clock>;
    let tracks = Tracks::over(store, &Options::default(), clock, &SystemThreads).unwrap();
    let fleet = Name::new("fleet").unwrap();
    let set = tracks
        .fleets()
        .change(&**tracks.store(), &fleet, |settings| {
            (settings.keep_days, settings.silent_days) = days;
            Ok(())
        });
    Fleet1 {
        info: set.unwrap(),
        tracks,
        engine,
    }
}

impl Fleet1 {
    fn send(&self, entity: &str, days: i64) {
        let position = at(59.0 + days as f64 / 100.0, 18.0);
        let reports = vec![report(entity, days * DAY, position)];
        let ticket = self
            .tracks
            .report_at(&self.info, reports, Ack::Durable, self.tracks.now());
        assert!(ticket.unwrap().wait().outcomes[0].is_ok());
    }

    /// The number of visible points, whether there is a newest one, and the number of entities in
    /// the index.
    fn seen(&self, entity: &str) -> (usize, bool, usize) {
        let view = self.tracks.view();
        let name = Name::new(entity).unwrap();
        let of = self.info.fleet;
        let all = Rectangle::of_degrees(17.0, 50.0, 19.0, 70.0).unwrap();
        let patience = self.tracks.patience();
        let filter = Filter::default();
        let page = read::within(&*view, of, (&all, filter), (100, None), &patience).unwrap();
        let Some(number) = read::find(&*view, of, &name).unwrap() else {
            return (0, false, page.hits.len());
        };
        let track = read::track(&*view, (of, number), &read::Choice::default(), &patience).unwrap();
        let latest = read::latest(&*view, of, number).unwrap();
        let count = track.parts.iter().map(Vec::len).sum();
        (count, latest.is_some(), page.hits.len())
    }

    /// The age of the oldest stored point in days, and the number of points.
    fn stored(&self) -> (i64, usize) {
        let view = self.engine.view();
        let mut rows = view.rows(Family::Default, &[], None).unwrap();
        rows.seek(&[]);
        let mut times = Vec::new();
        while let Some((key, _)) = rows.row() {
            times.push(PointKey::of_bytes(key).unwrap().time);
            rows.next();
        }
        let oldest = times.iter().min().map_or(0, |time| time.0 - NOW.0);
        (oldest / SECOND / DAY, times.len())
    }
}

#[test]
fn what_is_too_old_is_hidden_at_once_and_dropped_later() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TestClock(AtomicU64::new(NOW.0 as u64)));
    let kept = open(dir.path(), &clock, (0, 0));
    for day in -30..=0 {
        kept.send("a", day);
    }
    kept.send("b", -20);
    kept.send("c", -5);
    assert_eq!(kept.seen("a"), (31, true, 3));
    assert_eq!(kept.tracks.keep_house().unwrap(), Kept::default());
    drop(kept);
    let kept = open(dir.path(), &clock, (10, 3));
    assert_eq!(kept.seen("a"), (11, true, 1));
    assert_eq!(
        (kept.seen("b"), kept.seen("c")),
        ((0, false, 1), (1, true, 1))
    );
    let old = (Time::MIN, Time(NOW.0 - 11 * DAY * SECOND));
    let all = Rectangle::of_degrees(17.0, 50.0, 19.0, 70.0).unwrap();
    let visitors = |kept: &Fleet1| {
        let view = kept.tracks.view();
        let area = (&all as &dyn tracks::geo::shape::Shape, old.0, old.1);
        let patience = kept.tracks.patience();
        read::visitors(&*view, kept.info.fleet, area, (10, None), &patience)
            .unwrap()
            .visits
            .len()
    };
    assert_eq!(visitors(&kept), 0);
    assert_eq!(kept.stored(), (-30, 33));
    check(&kept.engine);
    let done = kept.tracks.keep_house().unwrap();
    assert_eq!((done.entities, done.silent), (1, 1));
    assert_eq!(kept.tracks.keep_house().unwrap(), Kept::default());
    assert_eq!(check(&kept.engine).problems, []);
    let db = kept.engine.db();
    let points = db.default_column_family();
    assert_eq!(
        db.cf(&points).options().cf.periodic_compaction_seconds,
        10 * 86_400 / 4
    );
    db.cf(&points).compact_range(None, None).unwrap();
    assert_eq!(kept.stored(), (-10, 12));
    assert_eq!(check(&kept.engine).problems, []);
    // Its next report brings it back into the index.
    kept.send("c", 0);
    assert_eq!(kept.seen("c"), (2, true, 2));
    clock.go_on(8);
    kept.send("a", 8);
    assert_eq!(
        (kept.seen("a"), kept.seen("c")),
        ((4, true, 1), (1, true, 1))
    );
    kept.tracks.keep_house().unwrap();
    assert_eq!(check(&kept.engine).problems, []);
    drop(kept);
    // Dropped points stay hidden even if more is kept from now on.
    let kept = open(dir.path(), &clock, (0, 0));
    assert_eq!(kept.seen("a"), (4, true, 1));
    assert_eq!(check(&kept.engine).problems, []);
    let visits = check(&kept.engine).visits;
    assert!(visits < 10, "{visits}");
}

/// A day of driving: straight on, a stop, and a turn.
fn drive(day: i64) -> Vec<Report> {
    let place = |minute: i64| match minute {
        0..400 => at(59.0 + minute as f64 / 1000.0, 18.0),
        400..900 => at(59.4, 18.0),
        _ => at(59.4, 18.0 + (minute - 900) as f64 / 1000.0),
    };
    let midnight = NOW.0.div_euclid(DAY * SECOND) * DAY - NOW.0 / SECOND;
    let minutes = (0..1440).map(|minute| (midnight + day * DAY + minute * 60, place(minute)));
    minutes
        .map(|(time, place)| report("a", time, place))
        .collect()
}

#[test]
fn of_what_is_old_the_points_stay_that_others_do_not_say() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(TestClock(AtomicU64::new(NOW.0 as u64)));
    let kept = open(dir.path(), &clock, (0, 0));
    let send = |kept: &Fleet1, reports: Vec<Report>| {
        for part in reports.chunks(500) {
            let now = kept.tracks.now();
            let ticket = kept
                .tracks
                .report_at(&kept.info, part.to_vec(), Ack::Durable, now);
            assert!(ticket.unwrap().wait().outcomes.iter().all(Result::is_ok));
        }
    };
    for day in -12..-8 {
        send(&kept, drive(day));
    }
    // Two entities that have been silent since, and one with a single point.
    kept.send("b", -11);
    kept.send("b", -10);
    kept.send("c", -11);
    let thin = |kept: &Fleet1, days, metres| {
        let fleet = Name::new("fleet").unwrap();
        let store = &**kept.tracks.store();
        let set = kept.tracks.fleets().change(store, &fleet, |settings| {
            (settings.thin_days, settings.thin_metres) = (days, metres);
            Ok(())
        });
        set.unwrap();
    };
    let count = |kept: &Fleet1| kept.stored().1;
    assert_eq!(count(&kept), 4 * 1440 + 3);
    assert_eq!(kept.tracks.keep_house().unwrap().thinned, 0);
    thin(&kept, 10, 10);
    // Of each of the two completed days, four points are kept: the begin and the end, and both ends
    // of the stop.
    assert_eq!(kept.tracks.keep_house().unwrap().thinned, 2 * (1440 - 4));
    assert_eq!(count(&kept), 2 * 1440 + 2 * 4 + 3);
    assert_eq!(kept.tracks.keep_house().unwrap(), Kept::default());
    assert_eq!((kept.seen("b").0, kept.seen("c").0), (2, 1));
    assert_eq!(check(&kept.engine).problems, []);
    // Late points stay, also after a restart; the next day is thinned in its turn.
    send(&kept, drive(-12)[100..101].to_vec());
    drop(kept);
    clock.go_on(1);
    let kept = open(dir.path(), &clock, (0, 0));
    assert_eq!(kept.tracks.keep_house().unwrap().thinned, 1440 - 4);
    assert_eq!(count(&kept), 1440 + 3 * 4 + 1 + 3);
    // The remaining point is the newest of its entity.
    clock.go_on(30);
    assert_eq!(kept.tracks.keep_house().unwrap().thinned, 1440 - 4);
    assert_eq!(kept.seen("a"), (4 * 4 + 1, true, 3));
    assert_eq!(check(&kept.engine).problems, []);
    // After the erasure, nothing tells where the entity was.
    for name in ["a", "b", "c"] {
        let name = Name::new(name).unwrap();
        assert!(kept.tracks.erase(&kept.info, &name).unwrap());
    }
    let left = check(&kept.engine);
    assert_eq!((left.visits, left.points, left.problems), (0, 0, vec![]));
}

fn fenced(world: &World) {
    let area = Area::Circle {
        centre: [18.0, 59.0],
        radius: 500.0,
    };
    let definition = Definition {
        area,
        when: When::default(),
        tags: Vec::new(),
    };
    let name = Name::new("home").unwrap();
    world
        .tracks
        .put_fence(&world.fleet(), &name, definition)
        .unwrap();
}

#[test]
fn an_erased_entity_leaves_nothing_and_comes_anew() {
    let world = World::new();
    fenced(&world);
    let positions = [at(59.0, 18.0), at(59.1, 18.1)];
    // One point each 20 seconds: more than one part; parts end with a bucket.
    let all: Vec<_> = (0..25_000)
        .map(|n| {
            report(
                "secret",
                n * 20 - 600_000,
                positions[(n / 1000 % 2) as usize],
            )
        })
        .collect();
    let other: Vec<_> = (0..10).map(|n| report("other", n, positions[0])).collect();
    world.send(other.clone());
    let alone = world.rows();
    for part in all.chunks(1000) {
        world.send(part.to_vec());
    }
    let (fleet, name) = (world.fleet(), Name::new("secret").unwrap());
    let events = |world: &World| {
        let rows = world.rows();
        rows.iter().filter(|row| row.0 == Family::Events).count()
    };
    assert!(events(&world) > 20);
    assert!(world.tracks.erase(&fleet, &name).unwrap());
    // Once its tables are compacted, the row that asks for that is gone.
    let is_rest =
        |row: &(Family, Vec<u8>, Vec<u8>)| row.0 == Family::Meta && row.1.starts_with(b"purge/");
    let rows = (0..3000).find_map(|_| {
        let rows = world.rows();
        if !rows.iter().any(is_rest) {
            return Some(rows);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
        None
    });
    let found: Vec<_> = rows
        .unwrap()
        .into_iter()
        .filter(|row| row.0 != Family::Entities || !row.2.is_empty())
        .collect();
    assert!(found == alone);
    assert!(!world.tracks.erase(&fleet, &name).unwrap());
    world.check();
    // Erasing works any number of times.
    for _ in 0..10 {
        world.send(vec![report("secret", 0, positions[0])]);
        let view = world.tracks.view();
        let number = read::find(&*view, fleet.fleet, &name).unwrap();
        assert_eq!(number, Some(name.number(0)));
        assert_eq!(world.check().points, 11);
        drop(view);
        assert!(world.tracks.erase(&fleet, &name).unwrap());
    }
}

#[test]
fn an_entity_with_a_damaged_point_can_be_erased() {
    let world = World::new();
    let alone = world.rows().len();
    let (fleet, name) = (world.fleet(), Name::new("a").unwrap());
    world.send((0..10).map(|n| report("a", n, at(59.0, 18.0))).collect());
    let key = PointKey {
        fleet: fleet.fleet,
        entity: name.number(0),
        time: Time(NOW.0 + 3 * SECOND),
    };
    let mut batch = ironstone::WriteBatch::new();
    batch.put(key.to_bytes(), b"no point").unwrap();
    world.tracks.store().write(batch, None).unwrap();
    assert!(world.tracks.erase(&fleet, &name).unwrap());
    let is_point = |row: &(Family, Vec<u8>, Vec<u8>)| row.0 == Family::Default;
    assert!(!world.rows().iter().any(is_point));
    assert!(world.rows().len() <= alone + 3, "{}", world.rows().len());
}

#[test]
fn reports_and_erasures_have_an_order() {
    let world = World::new();
    let (fleet, name) = (world.fleet(), Name::new("a").unwrap());
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut n = 0;
            while !is_over.load(Ordering::Relaxed) {
                n += 1;
                world.send(
                    (0..20)
                        .map(|k| report("a", n * 20 + k - 200_000, at(1.0, n as f64 / 1e4)))
                        .collect(),
                );
            }
        });
        for _ in 0..30 {
            std::thread::sleep(std::time::Duration::from_millis(5));
            world.tracks.erase(&fleet, &name).unwrap();
        }
        is_over.store(true, Ordering::Relaxed);
        sender.join().unwrap();
    });
    world.check();
}

#[test]
fn what_is_exported_is_imported_as_it_was() {
    let world = World::new();
    let store = world.tracks.store();
    let tags = ["free".to_owned(), "night \"x\"".to_owned()];
    let fleet = Name::new("fleet").unwrap();
    world
        .tracks
        .fleets()
        .with_tags(&**store, &fleet, &tags)
        .unwrap();
    let reports = (0..500).map(|n| {
        let mut report = report(
            &format!("car {}/å", n % 7),
            n * 7 - 90_000,
            at(n as f64 / 9.0, -179.99 + n as f64 / 2.0),
        );
        let point = &mut report.point;
        point.speed = (n % 2 == 0).then_some(n as u16);
        point.altitude = (n % 3 == 0).then_some(-(n as i32));
        point.battery = (n % 5 == 0).then_some(7);
        point.tags = (n % 4) as u32;
        if n % 6 == 0 {
            point.attributes = "{\"driver\":\"<&,\\\"\"}".to_owned();
        }
        report
    });
    // The first report has all tags, so that the tags get the same order.
    let mut reports: Vec<_> = reports.collect();
    for report in &mut reports {
        report.point.tags |= 3;
    }
    world.send(reports);
    let info = world.fleet();
    let right = world.rows();
    for format in [Format::Csv, Format::Ndjson, Format::GeoJson, Format::Gpx] {
        let view = world.tracks.view();
        let choice = Choice {
            entity: None,
            from: Time::MIN,
            to: Time::MAX,
        };
        let mut writer = Writer::new(format, Vec::new(), &info.settings.tags).unwrap();
        let count = export(&*view, info.fleet, &choice, &mut writer, &mut |_| Ok(())).unwrap();
        assert_eq!(count, 500);
        let file = writer.finish().unwrap();
        let dir = tempfile::tempdir().unwrap();
        let engine = Engine::open_for_import(dir.path()).unwrap();
        let mut import = Import::begin(&engine, &fleet, NOW, &import::Options::default()).unwrap();
        let mut reader = files::open(format, &file[..], &files::Options::default());
        let bad = &mut |what: &str| panic!("{what}");
        import.read("file", &mut reader, bad, &mut |_| ()).unwrap();
        import.finish(&mut |_| Ok(()), &mut |_| ()).unwrap();
        drop(engine);
        let tracks = Tracks::open(dir.path(), &Options::default()).unwrap();
        let other = World { tracks, dir };
        assert!(other.rows() == right, "{format}");
        let part = Choice {
            entity: Some(Name::new("car 1/å").unwrap().number(0)),
            from: Time(NOW.0 - 89_000 * SECOND),
            to: Time(NOW.0 - 88_000 * SECOND),
        };
        let mut writer = Writer::new(format, Vec::new(), &info.settings.tags).unwrap();
        let count = export(&*view, info.fleet, &part, &mut writer, &mut |_| Ok(())).unwrap();
        let expected = (0..500).filter(|n| n % 7 == 1 && (1000..=2000).contains(&(n * 7)));
        assert_eq!(count as usize, expected.count());
    }
}

/// An export that finds no points can be stopped, too.
#[test]
fn an_export_that_finds_nothing_can_be_ended() {
    let world = World::new();
    for part in 0..9 {
        let some = (0..1000).map(|n| report(&format!("car {part} {n}"), 0, at(59.0, 18.0)));
        assert!(world.send(some.collect()).iter().all(Result::is_ok));
    }
    let info = world.fleet();
    let view = world.tracks.view();
    let choice = Choice {
        entity: None,
        from: Time(NOW.0 + SECOND),
        to: Time::MAX,
    };
    let run = |told: &mut dyn FnMut(u64) -> base::Result<()>| {
        let mut writer = Writer::new(Format::Csv, Vec::new(), &info.settings.tags).unwrap();
        export(&*view, info.fleet, &choice, &mut writer, told)
    };
    let mut told = 0;
    let count = run(&mut |_| {
        told += 1;
        Ok(())
    });
    assert_eq!(count.unwrap(), 0);
    assert!(told > 2, "{told}");
    run(&mut |_| Err(base::Error::aborted("the client is gone"))).unwrap_err();
}
