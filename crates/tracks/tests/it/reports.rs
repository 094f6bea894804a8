//! The effect of reports on the rows.

use std::sync::atomic::{AtomicBool, Ordering};

use base::clock::SystemClock;
use base::rng::Rng;
use tracks::geo::shape::Rectangle;
use tracks::model::key::EntityKey;
use tracks::model::name::Name;
use tracks::model::report::Report;
use tracks::read::{self, Filter};
use tracks::service::{Options, Tracks};
use tracks::store::{Engine, Family};
use tracks::write::{Ack, Outcome};

use crate::world::{NOW, World, around, at, check, near, report};

fn outcome(world: &World, report: Report) -> Outcome {
    world.send(vec![report]).remove(0).unwrap()
}

#[test]
fn newer_reports_move_late_ones_are_history_and_equal_ones_change_nothing() {
    let world = World::new();
    let (here, there) = (at(59.0, 18.0), at(59.1, 18.1));
    assert_eq!(outcome(&world, report("a", 0, here)), Outcome::Moved);
    let rows = world.rows();
    assert_eq!(outcome(&world, report("a", 0, here)), Outcome::Same);
    assert_eq!(world.rows(), rows);
    assert_eq!(outcome(&world, report("a", -60, there)), Outcome::Late);
    let rows = world.rows();
    assert_eq!(outcome(&world, report("a", -60, there)), Outcome::Same);
    assert_eq!(world.rows(), rows);
    assert_eq!(outcome(&world, report("a", 60, there)), Outcome::Moved);
    // The same time, but another place: the later arrival replaces the point, and moves the entity.
    assert_eq!(outcome(&world, report("a", 60, here)), Outcome::Moved);
    assert_eq!(outcome(&world, report("a", -60, here)), Outcome::Late);
    let findings = world.check();
    assert_eq!((findings.points, findings.entities), (3, 1));

    let view = world.tracks.view();
    let fleet = world.fleet().fleet;
    let name = Name::new("a").unwrap();
    let entity = read::find(&*view, fleet, &name).unwrap().unwrap();
    let latest = read::latest(&*view, fleet, entity).unwrap().unwrap();
    assert_eq!(latest.point.position, here);
    assert_eq!(read::name_of(&*view, fleet, entity).unwrap(), Some(name));
    let other = Name::new("b").unwrap();
    assert_eq!(read::find(&*view, fleet, &other).unwrap(), None);
}

/// Reports of some entities, each with a different time.
fn some(rng: &mut Rng, count: i64) -> Vec<Report> {
    let mut centres: Vec<_> = (0..20).map(|_| near(rng)).collect();
    (0..count)
        .map(|n| {
            let nth = rng.below(20) as usize;
            let position = around(rng, centres[nth], 0.01);
            centres[nth] = position.degrees();
            let mut report = report(&format!("car{nth}"), n - count, position);
            report.point.speed = rng.one_in(2).then(|| rng.below(3000) as u16);
            report.point.tags = rng.below(4) as u32;
            report
        })
        .collect()
}

#[test]
fn neither_order_nor_repetition_nor_batching_matters() {
    let mut rng = Rng::new(31);
    for round in 0..5 {
        let reports = some(&mut rng, 600);
        let right = World::new();
        right.send(reports.clone());
        right.check();
        let rows = right.rows();
        for turn in 0..4 {
            let mut other = reports.clone();
            let again = (0..100).map(|_| reports[rng.below(600) as usize].clone());
            other.extend(again);
            if turn > 0 {
                let len = other.len() as u64;
                for n in 0..other.len() {
                    other.swap(n, rng.below(len) as usize);
                }
            }
            let world = World::new();
            while !other.is_empty() {
                let take = (1 + rng.below(1 << (2 * turn))) as usize;
                let rest = other.split_off(take.min(other.len()));
                let outcomes = world.send(std::mem::replace(&mut other, rest));
                assert!(outcomes.iter().all(|outcome| outcome.is_ok()));
            }
            assert!(world.rows() == rows, "round {round}, turn {turn}");
        }
    }
}

#[test]
fn each_report_stands_for_itself() {
    let world = World::new();
    let mut bad = report("b", 0, at(1.0, 1.0));
    bad.point.course = Some(36_000);
    let ahead = report("c", 301, at(1.0, 1.0));
    let outcomes = world.send(vec![
        report("a", 0, at(0.0, 0.0)),
        bad,
        ahead,
        report("d", 300, at(0.0, 0.0)),
    ]);
    assert!(outcomes[0].is_ok() && outcomes[3].is_ok());
    let said = |nth: usize| outcomes[nth].as_ref().unwrap_err().to_string();
    assert!(
        said(1).contains("course") && said(2).contains("ahead"),
        "{outcomes:?}"
    );
    assert_eq!(world.check().entities, 2);
}

/// If another name has the number already, the next one is used; the number of an erased name is
/// used again.
#[test]
fn names_with_one_hash_are_different_entities() {
    let world = World::new();
    let fleet = world.fleet().fleet;
    let store = world.tracks.store();
    let [name, other] = ["car1", "elsewhere"].map(|name| Name::new(name).unwrap());
    let mut batch = ironstone::WriteBatch::new();
    for (turn, bytes) in [(0, other.as_str()), (1, "")] {
        let entity = name.number(turn);
        let key = EntityKey { fleet, entity }.to_bytes();
        batch
            .cf_id(store.id(Family::Entities))
            .put(key, bytes.as_bytes())
            .unwrap();
    }
    store.write(batch, None).unwrap();
    world.send(vec![
        report("car1", 0, at(1.0, 1.0)),
        report("car1", 1, at(1.0, 1.0)),
    ]);
    let view = world.tracks.view();
    assert_eq!(
        read::find(&*view, fleet, &name).unwrap(),
        Some(name.number(1))
    );
    assert_eq!(read::find(&*view, fleet, &other).unwrap(), None);
    assert_eq!(world.check().points, 2);
}

#[test]
fn what_was_answered_is_there_after_opening_again_and_known_again() {
    let world = World::new();
    let mut rng = Rng::new(5);
    let reports = some(&mut rng, 500);
    world.send(reports.clone());
    let rows = world.rows();
    let World { tracks, dir } = world;
    drop(tracks);
    let tracks = Tracks::open(dir.path(), &Options::default()).unwrap();
    let world = World { tracks, dir };
    assert!(world.rows() == rows);
    let outcomes = world.send(reports);
    assert!(
        outcomes
            .iter()
            .all(|o| *o.as_ref().unwrap() == Outcome::Same)
    );
    let e = Tracks::open(world.dir.path(), &Options::default()).unwrap_err();
    assert_eq!(e.kind(), base::ErrorKind::Busy, "{e}");
    world.check();
}

#[test]
fn answers_come_when_it_is_durable_also_for_what_was_there() {
    let world = World::new();
    let fleet = world.fleet();
    let one = || vec![report("a", 0, at(1.0, 1.0))];
    for (ack, outcome) in [
        (Ack::Visible, Outcome::Moved),
        (Ack::Visible, Outcome::Same),
        (Ack::Durable, Outcome::Same),
        (Ack::Durable, Outcome::Same),
    ] {
        let ticket = world.tracks.report_at(&fleet, one(), ack, NOW).unwrap();
        let answer = ticket.wait();
        assert_eq!(*answer.outcomes[0].as_ref().unwrap(), outcome);
        // Reports that were stored already have a number to wait for, too.
        assert!(answer.number > 0);
        if ack == Ack::Durable {
            world.tracks.store().wait_durable(answer.number).unwrap();
        }
    }
    assert!(
        world
            .tracks
            .report_at(&fleet, vec![], Ack::Durable, NOW)
            .unwrap()
            .wait()
            .outcomes
            .is_empty()
    );
}

#[test]
fn what_is_too_much_is_refused_whole_and_options_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.write.reports_in_flight = 2;
    let tracks = Tracks::open(dir.path(), &options).unwrap();
    let name = Name::new("fleet").unwrap();
    let mut busy = 0;
    let mut tickets = Vec::new();
    for n in 0..2000 {
        match tracks.report(
            &name,
            vec![report(&format!("e{n}"), n, at(1.0, 1.0))],
            Ack::Durable,
        ) {
            Ok(ticket) => tickets.push(ticket),
            Err(e) => {
                assert_eq!(e.kind(), base::ErrorKind::Busy);
                assert!(e.to_string().contains("reports_in_flight"), "{e}");
                busy += 1;
            }
        }
    }
    assert!(busy > 0);
    let taken = tickets.len() as u64;
    for ticket in tickets {
        drop(ticket.wait());
    }
    assert_eq!(check(&**tracks.store()).points, taken);
    assert_eq!(tracks.in_flight(), 0);
    drop(tracks);
    for (shards, in_flight, named) in [
        (0, 10, "shards"),
        (257, 1000, "shards"),
        (4, 3, "reports_in_flight"),
    ] {
        options.write.shards = shards;
        options.write.reports_in_flight = in_flight;
        let e = Tracks::open(dir.path(), &options).unwrap_err().to_string();
        assert!(e.contains(named), "{e}");
    }
}

#[test]
fn another_programs_database_is_not_taken() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = ironstone::Options::default();
    options.db.create_if_missing = true;
    let db = ironstone::Db::open(dir.path(), &options).unwrap();
    db.create_column_family("theirs", &options.cf).unwrap();
    drop(db);
    let e = Engine::open(dir.path()).unwrap_err().to_string();
    assert!(
        e.contains("\"theirs\"") && e.contains("another folder"),
        "{e}"
    );
}

/// Each object moves all the time, from cell to cell, and is found exactly once.
#[test]
fn moving_objects_are_found_exactly_once() {
    const OBJECTS: usize = 400;
    let world = World::new();
    let fleet = world.fleet();
    let names: Vec<String> = (0..OBJECTS).map(|n| format!("e{n}")).collect();
    world.send(
        names
            .iter()
            .map(|name| report(name, -100_000, at(0.0, 0.0)))
            .collect(),
    );
    let all = Rectangle::of_degrees(-180.0, -90.0, 180.0, 90.0).unwrap();
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..80 {
            let (world, fleet, ends, names) = (&world, &fleet, &ends, &names);
            scope.spawn(move || {
                let mut rng = Rng::new(writer);
                for n in 0.. {
                    if ends.load(Ordering::Relaxed) {
                        return;
                    }
                    let name = &names[writer as usize * 5 + rng.below(5) as usize];
                    let near = near(&mut rng);
                    let one = report(name, n - 90_000, around(&mut rng, near, 1.0));
                    let ticket = world.tracks.report_at(fleet, vec![one], Ack::Visible, NOW);
                    drop(ticket.unwrap().wait());
                }
            });
        }
        for _ in 0..300 {
            let view = world.tracks.view();
            let page = read::within(
                &*view,
                fleet.fleet,
                (&all, Filter::default()),
                (usize::MAX, None),
                &world.tracks.patience(),
            );
            let mut found: Vec<_> = page.unwrap().hits.into_iter().map(|hit| hit.name).collect();
            assert_eq!(found.len(), OBJECTS);
            found.sort_unstable();
            found.dedup();
            assert_eq!(found.len(), OBJECTS);
        }
        ends.store(true, Ordering::Relaxed);
    });
    world.check();
}

/// A durable report makes the visible ones of that moment durable as well, but they do not do that for each other.
#[test]
fn visible_reports_alone_leave_the_device_alone() {
    let world = World::new();
    let fleet = world.fleet();
    let send = |seconds, ack| {
        let reports = vec![report("a", seconds, at(1.0, 2.0))];
        let ticket = world.tracks.report_at(&fleet, reports, ack, NOW);
        assert!(ticket.unwrap().wait().outcomes[0].is_ok());
    };
    let store = world.tracks.store();
    assert!(!store.is_syncing());
    send(-100, Ack::Durable);
    assert!(!store.may_lose());
    let clock = SystemClock::shared();
    for n in 0..30 {
        send(n - 90, Ack::Visible);
        assert!(
            !store.may_lose(),
            "an answered report is in the process only"
        );
        clock.sleep(std::time::Duration::from_millis(10));
    }
    assert!(!store.is_syncing());
    // And so they need not be durable.
    send(-50, Ack::Visible);
    assert_eq!(store.last_number(), store.visible_number());
}
