//! The index has a tombstone for each cell that an entity has left. A reader that skips many of
//! them reports this, and they are removed by a compaction.

use std::sync::Arc;
use std::time::Duration;

use base::clock::SystemClock;
use base::threads::SystemThreads;
use tracks::fleets::Info;
use tracks::geo::shape::Rectangle;
use tracks::model::name::Name;
use tracks::model::report::Report;
use tracks::read::{Filter, within};
use tracks::service::{Options, Tracks};
use tracks::store::{Engine, Store};
use tracks::write::Ack;

use crate::world::{NOW, at, report};

#[test]
fn dead_rows_that_readers_meet_are_cleaned_up() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path()).unwrap();
    let world = over(&engine);
    // Each move is in a separate table: within one, the tombstone would be dropped when the table
    // is written.
    for step in 0..3 {
        let reports = (0..1000).map(|n| {
            let lat = 59.0 + f64::from(n % 30) * 0.001 + f64::from(step) * 0.05;
            report(&format!("e{n}"), step.into(), at(lat, 18.0))
        });
        world.send(reports.collect());
        engine.db().flush().unwrap();
    }
    // The area of their former positions, which is empty.
    let area = Rectangle::of_degrees(17.9, 58.99, 18.1, 59.09).unwrap();
    let (before, hits) = world.skipped(&area);
    assert!(before >= 2000, "{before} dead rows were passed over");
    assert_eq!(hits, 0);
    world.is_soon_clean(&area);
}

/// The newest rows are in no table: a small fleet that reports often has most of its dead rows in
/// memory.
#[test]
fn dead_rows_in_memory_are_cleaned_up() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path()).unwrap();
    let world = over(&engine);
    let moves = |steps: std::ops::Range<u32>| {
        for step in steps {
            let lat = |n: u32| 59.0 + f64::from(n) * 0.001 + f64::from(step) * 0.0003;
            let reports = (0..200).map(|n| report(&format!("e{n}"), step.into(), at(lat(n), 18.0)));
            world.send(reports.collect());
        }
    };
    let area = Rectangle::of_degrees(17.9, 58.9, 18.1, 59.5).unwrap();
    // A few dead rows are left alone.
    moves(0..20);
    let (few, hits) = world.skipped(&area);
    assert_eq!(hits, 200);
    engine.tidy().unwrap();
    assert_eq!(world.skipped(&area), (few, hits));
    assert!(few >= 3000, "{few}");
    moves(20..80);
    let (many, _) = world.skipped(&area);
    assert!(many >= 12_000, "{many} dead rows were passed over");
    engine.tidy().unwrap();
    engine.db().wait_for_compact().unwrap();
    // The new table moves to the lowest level as it is. Its tombstones go once something was
    // written after them.
    world.skipped(&area);
    engine.db().wait_for_compact().unwrap();
    world.send(vec![report("elsewhere", 0, at(10.0, 10.0))]);
    engine.db().wait_for_compact().unwrap();
    assert_eq!(world.skipped(&area), (0, 200));
    // There are few in memory now, and no reader meets any before the next call.
    engine.tidy().unwrap();
    moves(80..160);
    engine.tidy().unwrap();
    assert!(world.skipped(&area).0 >= 12_000);
}

struct World {
    tracks: Tracks,
    fleet: Arc<Info>,
}

fn over(engine: &Engine) -> World {
    let store: Arc<dyn Store> = Arc::new(engine.clone());
    let clock = SystemClock::shared();
    let tracks = Tracks::over(store, &Options::default(), clock, &SystemThreads).unwrap();
    let name = Name::new("fleet").unwrap();
    let fleet = tracks.fleet_or_make(&name).unwrap();
    World { tracks, fleet }
}

impl World {
    fn send(&self, reports: Vec<Report>) {
        let ticket = self
            .tracks
            .report_at(&self.fleet, reports, Ack::Visible, NOW);
        let outcomes = ticket.unwrap().wait().outcomes;
        assert!(outcomes.iter().all(Result::is_ok));
    }

    /// The number of dead rows that a reader skips, and of objects that it finds.
    fn skipped(&self, area: &Rectangle) -> (u64, usize) {
        let patience = self.tracks.patience();
        let view = self.tracks.view();
        let asked = (area as _, Filter::default());
        let page = within(&*view, self.fleet.fleet, asked, (1000, None), &patience);
        let hits = page.unwrap().hits.len();
        (patience.skipped(), hits)
    }

    fn is_soon_clean(&self, area: &Rectangle) {
        for _ in 0..1500 {
            if self.skipped(area).0 == 0 {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("{:?} dead rows and hits stay", self.skipped(area));
    }
}
