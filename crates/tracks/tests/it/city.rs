//! The simulated city, whose truth is known: what its devices report, with all their faults, is stored as it was
//! reported, and each true crossing of a fence makes one event.

use std::collections::BTreeMap;

use tracks::fence::{Area, Definition, When};
use tracks::geo::distance::distance;
use tracks::geo::position::Position;
use tracks::geo::shape::{Circle, Shape as _};
use tracks::model::key::PointKey;
use tracks::model::name::Name;
use tracks::model::point::Point;
use tracks::model::time::{SECOND, Time};
use tracks::read;
use tracks::sim::noise::{Clock, Faults};
use tracks::sim::plan::Plan;
use tracks::sim::{Options, Sent, Traffic, Way};
use tracks::store::Family;
use tracks::write::Ack;

use crate::fences::events;
use crate::world::{World, at};

const CENTRE: (f64, f64) = (59.3293, 18.0686);
/// Reports with times further ahead than this are refused.
const AHEAD_MAX: i64 = 300 * SECOND;

fn city(faults: Faults) -> Options {
    Options {
        objects: 60,
        plan: Plan {
            radius_m: 3000.0,
            destinations: 30,
            ..Plan::around(at(CENTRE.0, CENTRE.1))
        },
        stop_ms: 60_000,
        faults,
        ..Options::default()
    }
}

/// Sends a report at the time of its arrival. Returns whether it was taken.
fn send(world: &World, sent: &Sent) -> bool {
    let reports = vec![sent.report.clone()];
    let fleet = world.fleet();
    let ticket = world
        .tracks
        .report_at(&fleet, reports, Ack::Visible, sent.arrival);
    ticket.unwrap().wait().outcomes[0].is_ok()
}

/// All points that are stored.
fn stored(world: &World) -> BTreeMap<PointKey, Position> {
    let rows = world.rows().into_iter();
    let points = rows.filter(|(family, ..)| *family == Family::Default);
    points
        .map(|(_, key, value)| {
            let point = Point::decode(&value).unwrap();
            (PointKey::of_bytes(&key).unwrap(), point.position)
        })
        .collect()
}

#[test]
fn what_faulty_devices_report_is_stored_as_it_was_reported() {
    let mut traffic = Traffic::new(&city(Faults {
        gaps: 0.1,
        bursts: 0.2,
        duplicates: 0.1,
        wrong_clocks: 0.3,
        no_clocks: 0.1,
        ..Faults::default()
    }))
    .unwrap();
    let all: Vec<Sent> = traffic.by_ref().take(3000).collect();
    let (world, mut refused) = (World::new(), 0);
    let fleet = world.fleet().fleet;
    let mut right: BTreeMap<PointKey, Position> = BTreeMap::new();
    for sent in &all {
        let time = sent.report.time.unwrap_or(sent.arrival);
        let is_ahead = time.0 - sent.arrival.0 > AHEAD_MAX;
        assert_eq!(send(&world, sent), !is_ahead, "{sent:?}");
        if is_ahead {
            refused += 1;
            continue;
        }
        let entity = sent.report.entity.number(0);
        let key = PointKey {
            fleet,
            entity,
            time,
        };
        right.insert(key, sent.report.point.position);
    }
    let of = |is: fn(&Sent) -> bool| all.iter().filter(|sent| is(sent)).count();
    assert!(refused > 20 && of(|s| s.way == Way::Kept) > 200 && of(|s| s.way == Way::Again) > 100);
    assert!(of(|s| s.clock == Clock::None) > 100);
    let there = stored(&world);
    assert!(
        there == right,
        "{} points and not {}",
        there.len(),
        right.len()
    );
    world.check();

    // Where each was last, by the clock of its device.
    let view = world.tracks.view();
    let mut newest: BTreeMap<_, (Time, Position)> = BTreeMap::new();
    for (key, position) in &right {
        newest.insert(key.entity, (key.time, *position));
    }
    for (entity, (time, position)) in newest {
        let latest = read::latest(&*view, fleet, entity).unwrap().unwrap();
        assert_eq!((latest.time, latest.point.position), (time, position));
    }

    // And where it truly was.
    for sent in all
        .iter()
        .filter(|sent| sent.clock == Clock::Right)
        .step_by(5)
    {
        let key = PointKey {
            fleet,
            entity: sent.report.entity.number(0),
            time: sent.time,
        };
        let truth = traffic.truth(sent.object, sent.time).unwrap();
        let off = distance(there[&key], truth.position);
        assert!(off <= 3.5 * 5.0 * 1.5, "{off} m: {sent:?}");
    }
}

/// Although reports come twice, late and in bursts.
#[test]
fn each_true_crossing_makes_one_event() {
    let mut traffic = Traffic::new(&city(Faults {
        noise_m: 0.0,
        gaps: 0.1,
        bursts: 0.2,
        duplicates: 0.2,
        wrong_clocks: 0.0,
        no_clocks: 0.0,
        ..Faults::default()
    }))
    .unwrap();
    let world = World::new();
    let fences: Vec<(String, Circle)> = (0..12)
        .map(|n| {
            let (part, name) = (f64::from(n), format!("f{n}"));
            let centre = [
                CENTRE.1 + 0.03 * (part * 0.9).cos() * (part / 12.0),
                CENTRE.0 + 0.015 * (part * 0.9).sin() * (part / 12.0),
            ];
            let radius = 200.0 + 40.0 * part;
            let definition = Definition {
                area: Area::Circle { centre, radius },
                when: When::default(),
                tags: Vec::new(),
            };
            let its = Name::new(&name).unwrap();
            world
                .tracks
                .put_fence(&world.fleet(), &its, definition)
                .unwrap();
            (name, Circle::new(at(centre[1], centre[0]), radius).unwrap())
        })
        .collect();
    let all: Vec<Sent> = traffic.by_ref().take(4000).collect();
    assert!(all.iter().all(|sent| send(&world, sent)));

    // In the order of their true times, which is that of each object's arrivals.
    let mut reported: BTreeMap<(u32, Time), &Sent> = BTreeMap::new();
    for sent in &all {
        reported.insert((sent.object, sent.time), sent);
    }
    assert!(reported.len() + 100 < all.len());
    let mut inside: BTreeMap<(u32, usize), bool> = BTreeMap::new();
    let mut right = Vec::new();
    for ((object, time), sent) in reported {
        let position = traffic.truth(object, time).unwrap().position;
        for (nth, (fence, circle)) in fences.iter().enumerate() {
            let is = circle.has(position);
            let was = inside.insert((object, nth), is).unwrap_or(false);
            if is != was {
                let kind = if is { "Enter" } else { "Exit" };
                right.push(format!("{kind} {fence} {} {}", sent.report.entity, time.0));
            }
        }
    }
    let said = events(&world).into_iter();
    let mut said: Vec<String> = said
        .map(|e| format!("{:?} {} {} {}", e.kind, e.fence, e.entity, e.time))
        .collect();
    said.sort();
    right.sort();
    assert!(right.len() > 200, "{}", right.len());
    assert_eq!(said, right);
}
