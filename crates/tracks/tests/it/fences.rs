//! Fences, from reports to events.

use std::collections::BTreeMap;

use base::rng::Rng;
use tracks::fence::{Area, Definition, Event, When};
use tracks::geo::position::Position;
use tracks::geo::shape::{Circle, Shape};
use tracks::model::name::Name;
use tracks::service::{Options, Tracks};
use tracks::write::Ack;

use crate::world::{NOW, World, at, report};

fn circle(lat: f64, lon: f64, radius: f64, when: When) -> Definition {
    Definition {
        area: Area::Circle {
            centre: [lon, lat],
            radius,
        },
        when,
        tags: Vec::new(),
    }
}

fn put(world: &World, name: &str, definition: Definition) {
    let name = Name::new(name).unwrap();
    world
        .tracks
        .put_fence(&world.fleet(), &name, definition)
        .unwrap();
}

/// All events, once they are durable.
pub(crate) fn events(world: &World) -> Vec<Event> {
    let store = world.tracks.store();
    let number = last_number(world);
    store.wait_durable(number).unwrap();
    // The callback for durability may come a little later.
    let fleet = world.fleet().fleet;
    for _ in 0..2000 {
        let view = world.tracks.view();
        let mut rows = view.rows(tracks::store::Family::Events, &[], None).unwrap();
        rows.seek(&[]);
        let mut count = 0;
        while rows.row().is_some() {
            count += 1;
            rows.next();
        }
        let read = world
            .tracks
            .events()
            .read(&**store, fleet, 0, usize::MAX)
            .unwrap();
        if read.len() == count {
            return read;
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    panic!("events are not given out");
}

fn last_number(world: &World) -> u64 {
    let fleet = world.fleet();
    let one = vec![report("last", 0, at(-60.0, 0.0))];
    let ticket = world
        .tracks
        .report_at(&fleet, one, Ack::Durable, NOW)
        .unwrap();
    ticket.wait().number
}

fn said(world: &World) -> Vec<String> {
    let said = |e: Event| format!("{:?} {} {}", e.kind, e.fence, e.entity);
    events(world).into_iter().map(said).collect()
}

#[test]
fn who_goes_in_and_out_makes_events_that_stay() {
    let world = World::new();
    put(&world, "depot", circle(59.0, 18.0, 500.0, When::default()));
    world.send(vec![
        report("a", -600, at(59.1, 18.0)),
        report("b", -600, at(59.0, 18.0)),
    ]);
    // The first report of an entity that is inside makes an `enter` event.
    assert_eq!(said(&world), ["Enter depot b"]);
    world.send(vec![
        report("a", -300, at(59.0, 18.0)),
        report("b", -300, at(59.1, 18.0)),
    ]);
    world.send(vec![report("a", -400, at(59.1, 18.0))]); // Late.
    let mut all = said(&world);
    all[1..].sort_unstable();
    assert_eq!(all, ["Enter depot b", "Enter depot a", "Exit depot b"]);
    let ids: Vec<u64> = events(&world).iter().map(|event| event.id).collect();
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]));

    let World { tracks, dir } = world;
    drop(tracks);
    let tracks = Tracks::open(dir.path(), &Options::default()).unwrap();
    let world = World { tracks, dir };
    world.send(vec![
        report("a", -100, at(59.1, 18.0)),
        report("b", -100, at(59.1, 18.0)),
    ]);
    let again = said(&world);
    assert_eq!(again[..3], all[..]);
    assert_eq!(again[3..], ["Exit depot a"]);
    world.check();
}

#[test]
fn fences_are_for_tags_and_bad_ones_are_refused() {
    let world = World::new();
    let store = world.tracks.store();
    let fleet = Name::new("fleet").unwrap();
    let tags = ["taxi".to_owned(), "free".to_owned()];
    world
        .tracks
        .fleets()
        .with_tags(&**store, &fleet, &tags)
        .unwrap();
    let mut definition = circle(59.0, 18.0, 500.0, When::default());
    definition.tags = vec!["free".to_owned()];
    put(&world, "rank", definition.clone());
    for (entity, tags) in [("a", 1), ("b", 2), ("c", 3)] {
        let mut inside = report(entity, -60, at(59.0, 18.0));
        inside.point.tags = tags;
        world.send(vec![inside]);
    }
    // An entity that loses the tag is outside of the fence.
    world.send(vec![report("b", -30, at(59.0, 18.0))]);
    assert_eq!(
        said(&world),
        ["Enter rank b", "Enter rank c", "Exit rank b"]
    );

    definition.tags = vec!["bus".to_owned()];
    let name = Name::new("bad").unwrap();
    let fail = |definition| {
        let e = world
            .tracks
            .put_fence(&world.fleet(), &name, definition)
            .unwrap_err();
        e.to_string()
    };
    assert!(fail(definition).contains("\"bus\""));
    assert!(fail(circle(91.0, 0.0, 5.0, When::default())).contains("latitude 91"));
    assert!(fail(circle(0.0, 0.0, f64::NAN, When::default())).contains("radius"));
    let e = world
        .tracks
        .delete_fence(&world.fleet(), &name)
        .unwrap_err();
    assert!(e.to_string().contains("no fence bad"), "{e}");
    world
        .tracks
        .delete_fence(&world.fleet(), &Name::new("rank").unwrap())
        .unwrap();
    world.send(vec![report("c", -10, at(58.0, 18.0))]);
    assert_eq!(said(&world).len(), 3);
}

/// The events of walks among many fences, with batches and shards, are those of testing each report
/// against each fence.
#[test]
fn events_are_those_of_brute_force() {
    for seed in 0..3 {
        let world = World::new();
        let mut rng = Rng::new(100 + seed);
        let mut fences: BTreeMap<String, Circle> = BTreeMap::new();
        let place = |rng: &mut Rng| {
            let part = |rng: &mut Rng| rng.below(1_000_001) as f64 / 1e6 * 0.1;
            at(59.0 + part(rng), 18.0 + part(rng))
        };
        let mut last: BTreeMap<String, (Position, i64)> = BTreeMap::new();
        let mut right: Vec<String> = Vec::new();
        for round in 0..40 {
            if round % 4 == 0 {
                for n in 0..5 {
                    let (name, centre) = (format!("f{round}-{n}"), place(&mut rng));
                    let radius = (50 + rng.below(2000)) as f64;
                    let (lat, lon) = centre.degrees();
                    put(&world, &name, circle(lat, lon, radius, When::default()));
                    fences.insert(name, Circle::new(centre, radius).unwrap());
                }
            }
            let mut reports = Vec::new();
            for _ in 0..rng.below(60) {
                let entity = format!("e{}", rng.below(20));
                let to = place(&mut rng);
                let time = last.get(&entity).map_or(-100_000, |l| l.1) + 60;
                for (name, fence) in &fences {
                    let was = last.get(&entity).is_some_and(|l| fence.has(l.0));
                    let is = fence.has(to);
                    let kind = match (was, is) {
                        (false, true) => "Enter",
                        (true, false) => "Exit",
                        _ => continue,
                    };
                    right.push(format!(
                        "{kind} {name} {entity} {}",
                        NOW.0 + time * 1_000_000
                    ));
                }
                last.insert(entity.clone(), (to, time));
                reports.push(report(&entity, time, to));
            }
            let outcomes = world.send(reports);
            assert!(outcomes.iter().all(|o| o.is_ok()));
        }
        let said = |e: Event| format!("{:?} {} {} {}", e.kind, e.fence, e.entity, e.time);
        let mut found: Vec<String> = events(&world).into_iter().map(said).collect();
        found.sort_unstable();
        right.sort_unstable();
        assert!(right.len() > 200, "{}", right.len());
        assert_eq!(found, right);
    }
}

/// A late point in the same round does not count as the entity's former position.
#[test]
fn late_points_of_a_round_are_not_where_an_entity_was() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.write.shards = 1;
    let tracks = Tracks::open(dir.path(), &options).unwrap();
    let world = World { tracks, dir };
    world.send(vec![report("a", -600, at(59.0, 18.0))]);
    put(&world, "f", circle(59.0, 18.0, 500.0, When::default()));
    world.send(vec![
        report("a", -900, at(59.05, 18.0)),
        report("a", -300, at(59.0, 18.001)),
    ]);
    world.send(vec![report("b", -600, at(59.05, 18.0))]);
    put(&world, "g", circle(59.0, 18.0, 600.0, When::default()));
    world.send(vec![
        report("b", -900, at(59.0, 18.0)),
        report("b", -300, at(59.05, 18.001)),
    ]);
    assert_eq!(said(&world), Vec::<String>::new());
}

/// The state of an entity at fences is ignored if it is older than all fences.
#[test]
fn rows_of_a_time_before_all_fences_say_nothing() {
    let world = World::new();
    put(&world, "old", circle(10.0, 10.0, 500.0, When::default()));
    world.send(vec![report("a", -6000, at(59.0, 18.0))]);
    let mut poor = report("a", -5900, at(59.0, 18.0));
    poor.point.accuracy = Some(5000);
    world.send(vec![poor]);
    world
        .tracks
        .delete_fence(&world.fleet(), &Name::new("old").unwrap())
        .unwrap();
    world.send(vec![
        report("a", -3000, at(59.1, 18.0)),
        report("a", -1000, at(59.2, 18.0)),
    ]);
    put(&world, "there", circle(59.2, 18.0, 500.0, When::default()));
    put(&world, "gone", circle(59.0, 18.0, 500.0, When::default()));
    world.send(vec![report("a", -500, at(59.2, 18.0))]);
    assert_eq!(said(&world), Vec::<String>::new());
}

/// An inexact first report does not count as a position of the entity.
#[test]
fn a_poor_first_report_is_nowhere() {
    let world = World::new();
    put(&world, "f", circle(59.0, 18.0, 500.0, When::default()));
    for (entity, lat) in [("a", 59.02), ("b", 59.0)] {
        let mut poor = report(entity, -900, at(59.0, 18.0));
        poor.point.accuracy = Some(20_000);
        world.send(vec![poor]);
        world.send(vec![report(entity, -800, at(lat, 18.0))]);
    }
    assert_eq!(said(&world), ["Enter f b"]);
}

/// All fences of a fleet together have a bounded number of positions, and so a bounded size in memory.
#[test]
fn the_positions_of_all_fences_together_are_bounded() {
    let world = World::new();
    let fleet = world.fleet();
    let store = world.tracks.store();
    let corner = |n: u32| {
        let angle = f64::from(n % 5000) / 5000.0 * std::f64::consts::TAU;
        [18.0 + 0.01 * angle.cos(), 59.0 + 0.01 * angle.sin()]
    };
    let area = Area::Polygon {
        coordinates: vec![(0..=5000).map(corner).collect()],
    };
    assert_eq!(area.positions(), 5001);
    let put = |n: u32| {
        let definition = Definition {
            area: area.clone(),
            when: When::default(),
            tags: Vec::new(),
        };
        let name = Name::new(&format!("f{n}")).unwrap();
        let fences = world.tracks.fences();
        fences.put(&**store, &fleet, (&name, definition), NOW)
    };
    for n in 0..199 {
        put(n).unwrap();
    }
    let e = put(199).unwrap_err().to_string();
    assert!(
        e.contains("f199 has 5001 positions") && e.contains("1000000"),
        "{e}"
    );
    // Replacing one takes no more room.
    put(0).unwrap();
    // A line that is cut into many pieces counts as these.
    let line = (0..60).map(|n| [[-170.0, 0.0][n % 2], n as f64 / 2.0]);
    let definition = Definition {
        area: Area::Corridor {
            coordinates: line.collect(),
            width: 1.0,
        },
        when: When::default(),
        tags: Vec::new(),
    };
    assert_eq!(definition.area.positions(), 1 + 59 * 341);
    let name = Name::new("long").unwrap();
    let made = world.tracks.put_fence(&fleet, &name, definition);
    let e = made.unwrap_err().to_string();
    assert!(e.contains("20120 positions"), "{e}");
}

/// However many fences there are, an entity is inside of the oldest 128, and making a thousand does
/// not take minutes.
#[test]
fn many_fences_over_one_place_are_bounded() {
    let world = World::new();
    let fleet = world.fleet();
    let store = world.tracks.store();
    for n in 0..1000_u32 {
        let definition = circle(59.0, 18.0, f64::from(500 + n), When::default());
        let name = Name::new(&format!("f{n}")).unwrap();
        let fences = world.tracks.fences();
        fences
            .put(&**store, &fleet, (&name, definition), NOW)
            .unwrap();
    }
    world.send(
        (0..64)
            .map(|n| report(&format!("e{n}"), -900, at(59.0, 18.0)))
            .collect(),
    );
    assert_eq!(events(&world).len(), 64 * tracks::fence::INSIDE_MAX);
    world.send(
        (0..64)
            .map(|n| report(&format!("e{n}"), -800, at(59.1, 18.0)))
            .collect(),
    );
    assert_eq!(events(&world).len(), 2 * 64 * tracks::fence::INSIDE_MAX);
}
