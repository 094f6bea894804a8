//! Housekeeping with failures: the other tasks are done, and the failed ones are tried again.

use base::ErrorKind;
use base::sync::atomic::AtomicU64;
use base::threads::SystemThreads;

use super::*;
use crate::fence;
use crate::fleets::Info;
use crate::geo::cell::Cell;
use crate::geo::position::at;
use crate::model::key::{CellKey, EntityKey};
use crate::model::name::Name;
use crate::model::point::Point;
use crate::model::report::Report;
use crate::model::time::SECOND;
use crate::service::{Options, Tracks};
use crate::store::faulty::{Act, Faulty, count};
use crate::store::{Batch, Engine, Family};
use crate::write::{Ack, Range, are_done, note, purges};

mod purges;

pub(super) const DAY: i64 = 86_400 * SECOND;
pub(super) const NOW: i64 = 20_000 * DAY;
pub(super) const MINUTE: u64 = 60_000_000_000;
pub(super) const SECRET: &str = "who-was-erased";

/// A clock that a test moves by hand; waiting threads poll it. It records how long they wanted to wait.
#[derive(Debug, Default)]
pub(super) struct Hands(pub(super) AtomicU64, pub(super) Mutex<Vec<Duration>>);

impl Clock for Hands {
    fn wall_micros(&self) -> u64 {
        NOW as u64
    }

    fn monotonic_nanos(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn patience(&self, time: Duration) -> Duration {
        lock(&self.1).push(time);
        time.min(Duration::from_millis(2))
    }
}

pub(super) type Ill = dyn Fn(Act<'_>) -> Result<()> + Send + Sync;

pub(super) struct World {
    pub(super) tracks: Tracks,
    pub(super) clock: Arc<Hands>,
    /// The rule for failures.
    pub(super) ill: Arc<Mutex<Arc<Ill>>>,
    /// The entities whose tables were compacted.
    pub(super) merged: Arc<Mutex<Vec<Vec<u8>>>>,
    pub(super) db: Arc<ironstone::Db>,
    pub(super) dir: tempfile::TempDir,
}

/// Without compression, the content of a table is visible in its bytes.
fn plain() -> ironstone::Options {
    let mut options = ironstone::Options::default();
    options.cf.compression = ironstone::CompressionType::None;
    options
}

/// Whether any table in a folder contains these bytes.
fn tables_have(dir: &std::path::Path, bytes: &[u8]) -> bool {
    let entries = std::fs::read_dir(dir).unwrap();
    let names = entries.map(|entry| entry.unwrap().path());
    let mut tables = names.filter(|path| path.extension().is_some_and(|e| e == "sst"));
    tables.any(|path| {
        // It may have been deleted meanwhile.
        let all = std::fs::read(path).unwrap_or_default();
        all.windows(bytes.len()).any(|part| part == bytes)
    })
}

pub(super) fn open() -> World {
    open_in(tempfile::tempdir().unwrap())
}

fn open_in(dir: tempfile::TempDir) -> World {
    let well: Arc<Ill> = Arc::new(|_| Ok(()));
    let ill = Arc::new(Mutex::new(well));
    let merged = Arc::new(Mutex::new(Vec::new()));
    let (its, all) = (Arc::clone(&ill), Arc::clone(&merged));
    let engine = Engine::open_with(dir.path(), plain()).unwrap();
    let db = Arc::clone(engine.db());
    let store = Faulty::new(engine, move |act| {
        let rule = Arc::clone(&lock(&its));
        rule(act)?;
        if let Act::Compact(Family::Default, key) = act {
            lock(&all).push(key.to_vec());
        }
        Ok(())
    });
    let clock = Arc::new(Hands::default());
    let its = Arc::clone(&clock) as Arc<dyn Clock>;
    let options = Options::default();
    let tracks = Tracks::over(store, &options, its, &SystemThreads).unwrap();
    World {
        tracks,
        clock,
        ill,
        merged,
        db,
        dir,
    }
}

pub(super) fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

pub(super) fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    panic!("{what}");
}

pub(super) fn failure(text: &str) -> Error {
    Error::new(ErrorKind::IoError, text)
}

impl World {
    pub(super) fn is_ill(&self, rule: impl Fn(Act<'_>) -> Result<()> + Send + Sync + 'static) {
        *lock(&self.ill) = Arc::new(rule);
    }

    pub(super) fn go_on(&self, minutes: u64) {
        self.clock.0.fetch_add(minutes * MINUTE, Ordering::Relaxed);
    }

    /// A fleet that keeps ten days, and a report of an entity from `days` days ago.
    pub(super) fn report(&self, fleet: &str, entity: &str, days: i64) -> Arc<Info> {
        let ten = |settings: &mut crate::fleets::Settings| {
            settings.keep_days = 10;
            Ok(())
        };
        let info = self.tracks.change_fleet(&name(fleet), ten).unwrap();
        let report = Report {
            entity: name(entity),
            time: Some(Time(NOW - days * DAY)),
            point: Point::at(at(59.0, 18.0)),
        };
        let ticket = self.tracks.report_of(&info, vec![report], Ack::Durable);
        assert!(ticket.unwrap().wait().outcomes[0].is_ok());
        info
    }

    /// Whether an entity still has its newest point.
    pub(super) fn is_there(&self, info: &Info, entity: &str) -> bool {
        let (fleet, entity) = (info.fleet, name(entity).number(0));
        let key = EntityKey { fleet, entity }.to_bytes();
        let found = self.tracks.store().get(Family::Latest, &key).unwrap();
        found.is_some()
    }

    pub(super) fn failed(&self) -> String {
        self.tracks.house_failed().unwrap_or_default()
    }

    /// Whether any table contains these bytes.
    pub(super) fn tables_have(&self, bytes: &[u8]) -> bool {
        tables_have(self.dir.path(), bytes)
    }

    /// Rows and tombstones in tables of a family.
    pub(super) fn in_tables(&self, family: Family) -> u64 {
        let all = self.db.get_live_files_metadata().into_iter();
        let its = all.filter(|table| table.column_family_name == family.name());
        its.map(|table| table.num_entries).sum()
    }

    pub(super) fn merge(&self, family: Family) {
        let family = self.db.column_family(family.name()).unwrap();
        self.db.cf(&family).compact_range(None, None).unwrap();
    }

    /// Two entities that passed through a fence; some of their rows are in tables of the lowest level.
    pub(super) fn moved(&self) -> Arc<Info> {
        let info = self.report("f", "other", 1);
        let area = fence::Area::Circle {
            centre: [18.0, 59.0],
            radius: 500.0,
        };
        let definition = fence::Definition {
            area,
            when: fence::When::default(),
            tags: Vec::new(),
        };
        let fence = name("gate");
        self.tracks.put_fence(&info, &fence, definition).unwrap();
        for (nth, lat) in [58.0, 59.0, 58.5, 59.0, 58.2].into_iter().enumerate() {
            for entity in [SECRET, "other"] {
                let report = Report {
                    entity: name(entity),
                    time: Some(Time(NOW - DAY + nth as i64 * 3600 * SECOND)),
                    point: Point::at(at(lat, 18.0)),
                };
                let ticket = self.tracks.report_of(&info, vec![report], Ack::Durable);
                assert!(ticket.unwrap().wait().outcomes[0].is_ok());
            }
            self.db.flush().unwrap();
            if nth == 2 {
                for family in Family::ALL {
                    self.merge(family);
                }
            }
        }
        info
    }

    pub(super) fn left(&self) -> usize {
        let view = self.tracks.store().view();
        let found = purges(&*view, None, 100, &mut |e| panic!("{e}")).unwrap();
        found.len()
    }
}

/// A failure of one fleet does not affect the others.
#[test]
fn a_fleet_that_fails_keeps_no_other() {
    for does_panic in [false, true] {
        let world = open();
        let all = ["f", "g", "h", "i"].map(|fleet| world.report(fleet, "old", 11));
        let bad = [all[0].fleet.prefix(), all[2].fleet.prefix()];
        world.is_ill(move |act| match act {
            Act::Reclaim(Family::Visits, key) if bad.iter().any(|bad| key.starts_with(bad)) => {
                assert!(!does_panic, "of this test");
                Err(failure("of this test"))
            }
            _ => Ok(()),
        });
        let said = world.tracks.keep_house().unwrap_err().to_string();
        let parts = ["fleet f: ", "fleet h: ", "of this test"];
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        assert!(!said.contains("fleet g"), "{said}");
        let there = all.each_ref().map(|info| world.is_there(info, "old"));
        assert_eq!(there, [true, false, true, false]);
        world.go_on(61);
        eventually("it is said", || world.failed().contains("fleet h: "));
        world.is_ill(|_| Ok(()));
        world.go_on(2);
        eventually("all is well", || world.failed().is_empty());
        let there = all.each_ref().map(|info| world.is_there(info, "old"));
        assert_eq!(there, [false; 4]);
    }
}

/// The mark of a fleet has moved, but the store was not told: a later look tells it, although the mark stays.
#[test]
fn a_horizon_that_the_store_was_not_told_is_told_again() {
    let world = open();
    world.report("f", "old", 11);
    let told = Arc::new(AtomicU64::new(0));
    world.is_ill(|act| match act {
        Act::Keep => Err(failure("of this test")),
        _ => Ok(()),
    });
    let said = world.tracks.keep_house().unwrap_err().to_string();
    assert!(said.contains("of this test"), "{said}");
    let its = Arc::clone(&told);
    world.is_ill(move |act| {
        its.fetch_add(u64::from(act == Act::Keep), Ordering::Relaxed);
        Ok(())
    });
    for _ in 0..2 {
        world.tracks.keep_house().unwrap();
        assert_eq!(told.load(Ordering::Relaxed), 1);
    }
}

/// A damaged row stays, and does not keep other old rows.
#[test]
fn a_damaged_row_stays_and_others_go() {
    let world = open();
    let info = world.report("f", "a", 11);
    world.report("f", "b", 11);
    world.report("f", "c", 11);
    let other = world.report("g", "a", 11);
    let store = &**world.tracks.store();
    let number = |entity: &str| {
        EntityKey {
            fleet: info.fleet,
            entity: name(entity).number(0),
        }
        .to_bytes()
    };
    let mut batch = Batch::new(store);
    batch.put(Family::Latest, &number("a"), &[7; 3]).unwrap();
    batch
        .put(
            Family::Latest,
            &[&info.fleet.prefix()[..], &[9]].concat(),
            &[],
        )
        .unwrap();
    // Another entity with a damaged point.
    let point = crate::model::key::PointKey {
        fleet: info.fleet,
        entity: name("b").number(0),
        time: Time(NOW - 12 * DAY),
    };
    batch
        .put(Family::Default, &point.to_bytes(), &[99])
        .unwrap();
    batch.write(None).unwrap();
    let said = world.tracks.keep_house().unwrap_err();
    assert!(said.is_corruption());
    let said = said.to_string();
    assert_eq!(said.matches("fleet f: ").count(), 3, "{said}");
    assert!(
        said.contains("latest, key") && said.contains("default, key"),
        "{said}"
    );
    let there = ["a", "b", "c"].map(|entity| world.is_there(&info, entity));
    assert_eq!(
        (there, world.is_there(&other, "a")),
        ([true, true, false], false)
    );
}

#[test]
fn the_store_cleans_up_once_a_minute_and_again_where_it_failed() {
    let world = open();
    let (tries, fails) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
    let (its, bad) = (Arc::clone(&tries), Arc::clone(&fails));
    world.is_ill(move |act| match act {
        Act::Tidy => {
            its.fetch_add(1, Ordering::Relaxed);
            match bad.load(Ordering::Relaxed) {
                0 => Ok(()),
                _ => Err(failure("no flush")),
            }
        }
        _ => Ok(()),
    });
    let after = |minutes, count| {
        world.go_on(minutes);
        eventually("it is called", || tries.load(Ordering::Relaxed) >= count);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(tries.load(Ordering::Relaxed), count);
    };
    after(1, 1);
    after(1, 2);
    fails.store(1, Ordering::Relaxed);
    after(1, 3);
    eventually("it is said", || world.failed().contains("no flush"));
    // A minute later, then after two.
    after(1, 4);
    after(1, 4);
    after(1, 5);
    fails.store(0, Ordering::Relaxed);
    after(4, 6);
    eventually("all is well", || world.failed().is_empty());
}

/// Tables are removed only once the range deletion is durable: otherwise a crash could bring back rows that
/// tombstones in those tables had hidden.
#[test]
fn tables_are_given_back_once_the_deletion_is_durable() {
    let world = open();
    let info = world.report("f", "old", 11);
    let key = fence::key(info.fleet, (NOW - 11 * DAY) as u64);
    let mut batch = Batch::new(&**world.tracks.store());
    batch.put(Family::Events, &key, b"{}").unwrap();
    batch.write(None).unwrap();
    let acts = Arc::new(Mutex::new(Vec::new()));
    let its = Arc::clone(&acts);
    world.is_ill(move |act| {
        let said = match act {
            Act::Write => "write",
            Act::WaitDurable => "wait",
            Act::Reclaim(Family::Events, _) => return Err(failure("of this test")),
            Act::Reclaim(..) => "reclaim",
            _ => return Ok(()),
        };
        lock(&its).push(said);
        Ok(())
    });
    assert!(world.tracks.keep_house().is_err());
    let acts = lock(&acts).clone();
    // The mark, the visits, the events.
    assert_eq!(
        acts,
        ["write", "wait", "write", "wait", "reclaim", "write", "wait"]
    );
    let left = world.tracks.store().get(Family::Events, &key).unwrap();
    assert_eq!(left, None);
}

/// Compacting tables with rows of several entities takes at most a tenth of the time.
#[test]
fn behind_the_turn_of_a_fleet_there_is_a_pause() {
    let world = open();
    let all = ["f", "g"].map(|fleet| {
        world.report(fleet, "b", 1);
        world.report(fleet, "a", 1)
    });
    let clock = Arc::clone(&world.clock);
    world.is_ill(move |act| {
        if matches!(act, Act::Compact(Family::Visits, _)) {
            clock.0.fetch_add(MINUTE, Ordering::Relaxed);
        }
        Ok(())
    });
    let rest = |entity: &str, merged| {
        for info in &all {
            assert!(world.tracks.erase(info, &name(entity)).unwrap());
        }
        eventually("its own tables are merged", || {
            lock(&world.merged).len() == merged
        });
    };
    let turns = || {
        let before = lock(&world.clock.1).len();
        eventually("it looks", || lock(&world.clock.1).len() > before + 3);
        world.left()
    };
    rest("a", 2);
    eventually("one has its turn", || world.left() == 1);
    assert_eq!(turns(), 1);
    rest("b", 4);
    // One of f and two of g, or the other way round: the fleet that has waited longer is next, with both of its
    // erasures.
    assert_eq!(turns(), 3);
    world.go_on(9);
    assert_eq!(turns(), 3);
    world.go_on(1);
    eventually("the other one has its turn", || world.left() == 1);
    assert_eq!(turns(), 1);
    world.go_on(10);
    eventually("all is merged", || world.left() == 0);
}

/// The thread never spins if a task is due but cannot be done.
#[test]
fn the_thread_rests_whatever_fails() {
    let world = open();
    let info = world.report("f", "a", 1);
    let reads = Arc::new(AtomicU64::new(0));
    world.is_ill(|act| match act {
        Act::Compact(Family::Default, _) => Err(failure("a damaged table")),
        _ => Ok(()),
    });
    assert!(world.tracks.erase(&info, &name("a")).unwrap());
    eventually("it fails", || world.failed().contains("a damaged table"));
    let its = Arc::clone(&reads);
    world.is_ill(move |act| match act {
        Act::Rows(Family::Meta, key) if key.starts_with(b"purge/") => {
            its.fetch_add(1, Ordering::Relaxed);
            Err(failure("a damaged block"))
        }
        _ => Ok(()),
    });
    // The purge is due, but is not reached.
    world.go_on(2);
    eventually("it fails", || world.failed().contains("a damaged block"));
    let before = reads.load(Ordering::Relaxed);
    lock(&world.clock.1).clear();
    eventually("it looks again", || {
        reads.load(Ordering::Relaxed) > before + 3
    });
    let pauses = lock(&world.clock.1).clone();
    let least = pauses.iter().min().unwrap();
    assert!(*least >= Duration::from_secs(1), "{least:?}");
}

/// A failed clean-up that takes long is tried again when it is due, not at the next turn.
#[test]
fn cleaning_up_that_takes_long_is_done_when_it_is_due() {
    let world = open();
    let tries = Arc::new(AtomicU64::new(0));
    let (its, clock) = (Arc::clone(&tries), Arc::clone(&world.clock));
    world.is_ill(move |act| match act {
        Act::Tidy => {
            its.fetch_add(1, Ordering::Relaxed);
            clock.0.fetch_add(MINUTE / 2, Ordering::Relaxed);
            Err(failure("no flush"))
        }
        _ => Ok(()),
    });
    let count = || tries.load(Ordering::Relaxed);
    let turns = || {
        let before = lock(&world.clock.1).len();
        eventually("it looks", || lock(&world.clock.1).len() > before + 3);
    };
    world.go_on(1);
    eventually("it fails", || count() == 1);
    turns();
    // It began a minute ago, and ended half a minute ago.
    world
        .clock
        .0
        .fetch_add(MINUTE / 2 + MINUTE / 60, Ordering::Relaxed);
    turns();
    assert_eq!(count(), 1);
    lock(&world.clock.1).clear();
    turns();
    let pauses = lock(&world.clock.1).clone();
    assert_eq!(pauses.iter().min(), Some(&Duration::from_secs(29)));
    world.clock.0.fetch_add(MINUTE / 2, Ordering::Relaxed);
    eventually("it is done again", || count() == 2);
}

/// Stopping the service does not wait for a compaction.
#[test]
fn stopping_waits_for_no_merging() {
    // The erased rows may still be in memory: then a flush may not end either, if the device is full.
    for is_in_memory in [false, true] {
        stopping_waits_for_nothing(is_in_memory);
    }
}

fn stopping_waits_for_nothing(is_in_memory: bool) {
    let world = open();
    let info = world.report("f", "a", 1);
    world.is_ill(|act| match act {
        Act::Compact(Family::Default, _) => Err(failure("of this test")),
        _ => Ok(()),
    });
    assert!(world.tracks.erase(&info, &name("a")).unwrap());
    eventually("it fails", || !world.failed().is_empty());
    if !is_in_memory {
        world.db.flush().unwrap();
    }
    // As if the compaction took for ever.
    world.db.pause_background_work().unwrap();
    let begun = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&begun);
    world.is_ill(move |act| {
        if matches!(act, Act::Compact(Family::Default, _)) {
            its.store(true, Ordering::Relaxed);
        }
        Ok(())
    });
    world.go_on(2);
    eventually("it merges", || begun.load(Ordering::Relaxed));
    let World { tracks, db, .. } = world;
    let (tell, told) = std::sync::mpsc::channel();
    let stop = move || {
        drop(tracks);
        tell.send(()).unwrap();
    };
    let thread = SystemThreads.start("stopping", Box::new(stop)).unwrap();
    let is_stopped = told.recv_timeout(Duration::from_secs(20)).is_ok();
    db.continue_background_work().unwrap();
    thread.join().unwrap();
    assert!(is_stopped);
}

/// Old rows are dropped also while many erased entities wait to be compacted.
#[test]
fn what_is_too_old_goes_while_many_wait_to_be_merged() {
    let world = open();
    let info = world.report("f", "old", 11);
    let old = EntityKey {
        fleet: info.fleet,
        entity: name("old").number(0),
    };
    let (go, gone) = std::sync::mpsc::channel::<()>();
    let (begin, begun) = std::sync::mpsc::channel::<()>();
    let (gone, begin) = (Mutex::new(gone), Mutex::new(begin));
    let is_first = AtomicBool::new(true);
    let (merged, then) = (Arc::new(AtomicU64::new(0)), Arc::new(Mutex::new(None)));
    let (count, at) = (Arc::clone(&merged), Arc::clone(&then));
    let clock = Arc::clone(&world.clock);
    world.is_ill(move |act| {
        match act {
            Act::Compact(Family::Default, _) => {
                if is_first.swap(false, Ordering::Relaxed) {
                    lock(&begin).send(()).unwrap();
                    lock(&gone).recv().unwrap();
                }
                // As if it took long.
                clock.0.fetch_add(MINUTE / 6, Ordering::Relaxed);
                count.fetch_add(1, Ordering::Relaxed);
            }
            Act::Rows(Family::Default, key) if key.starts_with(&old.to_bytes()) => {
                lock(&at).get_or_insert(count.load(Ordering::Relaxed));
            }
            _ => {}
        }
        Ok(())
    });
    let mut batch = Batch::new(&**world.tracks.store());
    for n in 0..5 {
        let of = (info.fleet, crate::model::key::Entity(n));
        crate::write::note(&**world.tracks.store(), &mut batch, of, &[]).unwrap();
    }
    batch.write(None).unwrap();
    world.tracks.house().is_erased();
    // Only then is it too old: a turn could be at the end of its purges when they were noted.
    begun.recv().unwrap();
    world.go_on(61);
    go.send(()).unwrap();
    eventually("all are merged", || world.left() == 0);
    eventually("what is too old goes", || !world.is_there(&info, "old"));
    assert_eq!((*lock(&then), merged.load(Ordering::Relaxed)), (Some(1), 5));
    eventually("all is well", || world.failed().is_empty());
}
