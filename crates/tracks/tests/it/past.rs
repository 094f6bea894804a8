//! Queries about the past, compared with brute force.

use std::collections::BTreeMap;

use base::rng::Rng;
use tracks::geo::surface::Surface;
use tracks::model::report::Report;
use tracks::model::time::{SECOND, Time};
use tracks::read::{self, Choice};

use crate::queries::{Counts, is_in, questions};
use crate::shapes::{Place, some_shape};
use crate::world::{NOW, World, around, at, near, report};

/// Some walking entities, with all their points.
fn walks(world: &World, rng: &mut Rng) -> Vec<Report> {
    let mut reports = Vec::new();
    for n in 0..20 {
        let mut position = near(rng);
        let mut seconds = -100_000 + rng.below(50_000) as i64;
        for _ in 0..100 {
            position = around(rng, position, 0.02).degrees();
            seconds += rng.below(900) as i64 + 1;
            let mut report = report(&format!("e{n}"), seconds.min(0), at(position.0, position.1));
            report.point.speed = Some(rng.below(3000) as u16);
            reports.push(report);
        }
    }
    assert!(world.send(reports.clone()).iter().all(|o| o.is_ok()));
    reports
}

#[test]
fn the_past_of_an_area_is_that_of_brute_force() {
    let world = World::new();
    let mut rng = Rng::new(45);
    let reports = walks(&world, &mut rng);
    let places: Vec<Place> = reports.iter().map(|r| r.point.position.into()).collect();
    let (view, fleet) = (world.tracks.view(), world.fleet().fleet);
    let (mut found, mut seen) = (0, Counts::default());
    for n in 0..questions() / 20 {
        let drawn = some_shape(&mut rng, &places, false);
        let start = NOW.0 - rng.below(100_000) as i64 * SECOND - rng.below(1_000_000) as i64;
        let (from, to) = (Time(start), Time(start + rng.below(20_000) as i64 * SECOND));
        let patience = world.tracks.patience();
        let (mut visits, mut after) = (Vec::new(), None);
        loop {
            let question = (&*drawn.shape, from, to);
            let page = read::visitors(&*view, fleet, question, (3, after), &patience).unwrap();
            visits.extend(page.visits);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut right = BTreeMap::new();
        for (r, place) in reports.iter().zip(&places) {
            let time = r.time.unwrap();
            if (from..=to).contains(&time) && is_in(&drawn, place, &mut seen) {
                let visit =
                    right
                        .entry(r.entity.number(0))
                        .or_insert((r.entity.clone(), time, time, 0));
                visit.1 = visit.1.min(time);
                visit.2 = visit.2.max(time);
                visit.3 += 1;
            }
        }
        let visits: Vec<_> = visits
            .into_iter()
            .map(|v| (v.entity, (v.name, v.first, v.last, v.points)))
            .collect();
        assert_eq!(
            visits,
            right.into_iter().collect::<Vec<_>>(),
            "question {n}"
        );
        found += visits.len();
    }
    assert!(found > 100, "{found}");
}

#[test]
fn tracks_have_the_points_that_are_wanted() {
    let world = World::new();
    let mut rng = Rng::new(46);
    let reports = walks(&world, &mut rng);
    let (view, fleet) = (world.tracks.view(), world.fleet().fleet);
    let of = |n: u64| {
        let mut all: Vec<_> = reports
            .iter()
            .filter(|r| r.entity.as_str() == format!("e{n}"))
            .collect();
        all.sort_by_key(|r| r.time);
        all.dedup_by_key(|r| r.time);
        all
    };
    for _ in 0..500 {
        let n = rng.below(20);
        let all = of(n);
        let entity = all[0].entity.number(0);
        let start = NOW.0 - rng.below(100_000) as i64 * SECOND;
        let mut choice = Choice {
            from: Time(start),
            to: Time(start + rng.below(100_000) as i64 * SECOND),
            gap: [i64::MAX, 700 * SECOND][rng.below(2) as usize],
            every: [0, 600 * SECOND][rng.below(2) as usize],
            max_points: [1000, 10][rng.below(2) as usize],
            simplify: None,
        };
        let mut right: Vec<Vec<Time>> = Vec::new();
        let (mut count, mut next, mut last, mut chosen) = (0, None, None::<Time>, None::<Time>);
        for r in &all {
            let time = r.time.unwrap();
            if !(choice.from..=choice.to).contains(&time) {
                continue;
            }
            let is_cut = last.is_none_or(|last| time.0 - last.0 > choice.gap);
            last = Some(time);
            if !is_cut && chosen.is_some_and(|c| time.0 - c.0 < choice.every) {
                continue;
            }
            if count == choice.max_points {
                next = Some(time);
                break;
            }
            if is_cut {
                right.push(Vec::new());
            }
            chosen = Some(time);
            right.last_mut().unwrap().push(time);
            count += 1;
        }
        let patience = world.tracks.patience();
        let track = read::track(&*view, (fleet, entity), &choice, &patience).unwrap();
        let found: Vec<Vec<Time>> = track
            .parts
            .iter()
            .map(|p| p.iter().map(|l| l.time).collect())
            .collect();
        assert_eq!((found, track.next), (right, next));

        choice.simplify = Some(1000.0);
        choice.max_points = 1000;
        let simple = read::track(&*view, (fleet, entity), &choice, &patience).unwrap();
        choice.simplify = None;
        let whole = read::track(&*view, (fleet, entity), &choice, &patience).unwrap();
        assert_eq!(simple.parts.len(), whole.parts.len());
        for (simple, whole) in simple.parts.iter().zip(&whole.parts) {
            let positions: Vec<_> = whole.iter().map(|l| l.point.position).collect();
            let keep = tracks::geo::simplify::simplify(&positions, 1000.0);
            let right: Vec<_> = keep.into_iter().map(|nth| whole[nth].clone()).collect();
            assert_eq!(*simple, right);
        }
    }
}

/// A track that is simplified in pieces keeps the ends of the pieces, without duplicates.
#[test]
fn long_tracks_are_simplified_in_pieces() {
    let world = World::new();
    let reports: Vec<_> = (0..25_000_i64)
        .map(|n| report("a", n - 30_000, at(50.0, n as f64 / 1e5)))
        .collect();
    world.send(reports);
    let (view, fleet) = (world.tracks.view(), world.fleet());
    let entity = tracks::model::name::Name::new("a").unwrap().number(0);
    let choice = Choice {
        simplify: Some(5.0),
        ..Choice::default()
    };
    let patience = world.tracks.patience();
    let track = read::track(&*view, (fleet.fleet, entity), &choice, &patience).unwrap();
    let seconds: Vec<_> = track.parts[0]
        .iter()
        .map(|l| (l.time.0 - NOW.0) / SECOND + 30_000)
        .collect();
    assert_eq!(seconds, [0, 10_000, 20_000, 24_999]);
    assert_eq!(patience.rows(), 25_000);
}

#[test]
fn summaries_say_how_far_and_where_it_stayed() {
    let world = World::new();
    let mut reports = Vec::new();
    // An hour at one place, with noise; ten kilometres in 20 minutes; then a short rest.
    for n in 0..60 {
        reports.push(report(
            "a",
            -10_000 + n * 60,
            at(50.0 + f64::from(n as i32 % 3) * 1e-4, 10.0),
        ));
    }
    for n in 0..20 {
        let mut r = report(
            "a",
            -6340 + n * 60,
            at(50.0 + f64::from(n as i32 + 1) * 0.0045, 10.0),
        );
        r.point.speed = Some(833 + n as u16);
        reports.push(r);
    }
    reports.push(report("a", -5100, at(50.09, 10.0)));
    world.send(reports);
    let (view, fleet) = (world.tracks.view(), world.fleet());
    let entity = tracks::model::name::Name::new("a").unwrap().number(0);
    let times = (Time::MIN, Time::MAX, Surface::Sphere);
    let patience = world.tracks.patience();
    let s = read::summary(&*view, (fleet.fleet, entity), times, &patience).unwrap();
    assert_eq!((s.points, s.speed_max), (81, Some(852)));
    assert!((10_000.0..12_000.0).contains(&s.metres), "{}", s.metres);
    assert_eq!(s.stays.len(), 1);
    assert_eq!(s.stays[0].to.0 - s.stays[0].from.0, 59 * 60 * SECOND);
    assert_eq!(s.moving(), (4900 - 59 * 60) * SECOND);
}
