//! Answers, compared with those of looking at everything.

use base::rng::Rng;
use tracks::geo::polygon::Polygon;
use tracks::geo::position::Position;
use tracks::geo::shape::{Circle, Rectangle, Shape};
use tracks::geo::surface::Surface;
use tracks::model::key::Fleet;
use tracks::model::report::Report;
use tracks::model::time::{SECOND, Time};
use tracks::read::{self, Choice, Cursor, Filter, Patience};
use tracks::store::View;

use crate::world::{NOW, World, around, at, near, report};

/// How many questions each test asks; `IRONSTONE_TRACKS_SHAPES` asks more.
fn questions() -> u64 {
    let more = std::env::var("IRONSTONE_TRACKS_SHAPES");
    more.map_or(20_000, |n| n.parse().unwrap())
}

/// Entities, some at one place, and where each is.
fn scattered(world: &World, rng: &mut Rng, count: usize) -> Vec<Report> {
    let mut reports: Vec<Report> = Vec::new();
    for n in 0..count {
        let position = match reports.last() {
            Some(last) if rng.one_in(8) => last.point.position,
            _ => {
                let (near, width) = (near(rng), 10_f64.powi(-(rng.below(5) as i32)));
                around(rng, near, width)
            }
        };
        let mut report = report(&format!("e{n}"), -(rng.below(1000) as i64), position);
        report.point.tags = rng.below(8) as u32;
        reports.push(report);
    }
    assert!(world.send(reports.clone()).iter().all(|o| o.is_ok()));
    reports
}

fn some_filter(rng: &mut Rng) -> Filter {
    let mut filter = Filter::default();
    if rng.one_in(3) {
        filter.tags = rng.below(8) as u32;
    }
    if rng.one_in(3) {
        filter.since = Time(NOW.0 - rng.below(1000) as i64 * SECOND);
    }
    filter
}

fn is_meant(filter: Filter, report: &Report) -> bool {
    report.point.tags & filter.tags == filter.tags && report.time.unwrap() >= filter.since
}

/// A star around a place, in degrees; its corners in order.
fn star(rng: &mut Rng, (lat, lon): (f64, f64), width: f64, corners: u64) -> Vec<Position> {
    let corner = |n: u64, rng: &mut Rng| {
        let angle = (n as f64 + 0.8 * rng.below(1000) as f64 / 1000.0) / corners as f64;
        let (sin, cos) = (angle * std::f64::consts::TAU).sin_cos();
        let far = width * (0.4 + 0.6 * rng.below(1000) as f64 / 1000.0);
        let lon = (lon + far * cos + 540.0).rem_euclid(360.0) - 180.0;
        at((lat + far * sin).clamp(-90.0, 90.0), lon)
    };
    (0..corners).map(|n| corner(n, rng)).collect()
}

/// Seldom the one that takes long.
fn some_surface(rng: &mut Rng) -> Surface {
    if rng.one_in(16) {
        Surface::Ellipsoid
    } else {
        Surface::Sphere
    }
}

fn some_shape(rng: &mut Rng) -> Option<Box<dyn Shape>> {
    let centre = near(rng);
    let width = 10_f64.powi(-(rng.below(5) as i32)) * 3.0;
    Some(match rng.below(3) {
        0 => {
            let [a, b] = [0; 2].map(|_| around(rng, centre, width).degrees());
            let (south, north) = (a.0.min(b.0), a.0.max(b.0));
            Box::new(Rectangle::of_degrees(a.1, south, b.1, north).unwrap())
        }
        1 => {
            let middle = around(rng, centre, width);
            let circle = Circle::new(middle, width * rng.below(100_000) as f64);
            Box::new(circle.unwrap().on(some_surface(rng)))
        }
        _ => {
            let corners = 3 + rng.below(12);
            let outer = star(rng, centre, width, corners);
            let hole = star(rng, centre, width * 0.3, corners);
            let with_hole = Polygon::new(&[&outer, &hole]);
            Box::new(with_hole.or_else(|_| Polygon::new(&[&outer])).ok()?)
        }
    })
}

fn all_within(
    view: &dyn View,
    fleet: Fleet,
    (shape, filter): (&dyn Shape, Filter),
    limit: usize,
    patience: &Patience,
) -> Vec<String> {
    let mut names = Vec::new();
    let mut from = None;
    loop {
        let page = read::within(view, fleet, (shape, filter), (limit, from), patience).unwrap();
        assert!(page.hits.len() <= limit);
        names.extend(page.hits.into_iter().map(|hit| hit.name));
        let Some(next) = page.next else {
            break;
        };
        from = Some(Cursor::of_text(&next.to_text()).unwrap());
    }
    names.sort_unstable();
    names
}

#[test]
fn areas_have_what_brute_force_finds() {
    let world = World::new();
    let mut rng = Rng::new(41);
    let reports = scattered(&world, &mut rng, 400);
    let (view, fleet) = (world.tracks.view(), world.fleet().fleet);
    let (mut hits, mut polygons) = (0, 0);
    for n in 0..questions() {
        let Some(shape) = some_shape(&mut rng) else {
            continue;
        };
        polygons += 1;
        let filter = some_filter(&mut rng);
        let limit = [1_000_000, 7][usize::from(rng.one_in(4))];
        let patience = world.tracks.patience();
        let found = all_within(&*view, fleet, (&*shape, filter), limit, &patience);
        let is_hit = |r: &&Report| is_meant(filter, r) && shape.has(r.point.position);
        let mut right: Vec<_> = reports
            .iter()
            .filter(is_hit)
            .map(|r| r.entity.to_string())
            .collect();
        right.sort_unstable();
        assert_eq!(found, right, "question {n}");
        hits += found.len();
    }
    assert!(
        hits > 10_000 && polygons > questions() * 9 / 10,
        "{hits} {polygons}"
    );
}

#[test]
fn the_nearest_are_those_of_brute_force() {
    let world = World::new();
    let mut rng = Rng::new(42);
    let reports = scattered(&world, &mut rng, 400);
    let (view, fleet) = (world.tracks.view(), world.fleet().fleet);
    for n in 0..questions() / 2 {
        let centre = near(&mut rng);
        let from = if rng.one_in(4) {
            reports[rng.below(400) as usize].point.position
        } else {
            around(&mut rng, centre, 3.0)
        };
        let k = [1, 10, 100, 1000, 0][rng.below(5) as usize];
        let within = [f64::INFINITY, 1e5, 1e3, 0.0][rng.below(4) as usize];
        let filter = some_filter(&mut rng);
        let patience = world.tracks.patience();
        let surface = some_surface(&mut rng);
        let how = (k, within, surface);
        let hits = read::nearby(&*view, fleet, (from, filter), how, &patience).unwrap();
        let found: Vec<_> = hits
            .iter()
            .map(|hit| (hit.distance.unwrap(), hit.entity.0))
            .collect();
        let meant = reports.iter().filter(|r| is_meant(filter, r));
        let mut right: Vec<_> = meant
            .map(|r| {
                (
                    surface.distance(from, r.point.position),
                    r.entity.number(0).0,
                )
            })
            .filter(|(d, _)| *d <= within)
            .collect();
        right.sort_unstable_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        right.truncate(k);
        assert_eq!(found, right, "question {n}");
    }
    let patience = world.tracks.patience();
    let all = (at(0.0, 0.0), Filter::default());
    let how = (1_000_000_000, 1.0, Surface::Sphere);
    let e = read::nearby(&*view, fleet, all, how, &patience).unwrap_err();
    assert!(e.to_string().contains("10000 at most"), "{e}");
}

/// A million at one place is as good as one cell: it cannot be cut any more.
#[test]
fn many_at_one_place_are_found() {
    let world = World::new();
    let mut rng = Rng::new(43);
    let centre = near(&mut rng);
    let place = around(&mut rng, centre, 0.1);
    let reports: Vec<_> = (0..5000)
        .map(|n| report(&format!("e{n}"), 0, place))
        .collect();
    world.send(reports);
    let (view, fleet) = (world.tracks.view(), world.fleet().fleet);
    let patience = world.tracks.patience();
    let hits = read::nearby(
        &*view,
        fleet,
        (place, Filter::default()),
        (10, f64::MAX, Surface::Sphere),
        &patience,
    );
    assert_eq!(hits.unwrap().len(), 10);
    assert!(patience.rows() < 12_000, "{}", patience.rows());
    let circle = Circle::new(place, 0.0).unwrap();
    assert_eq!(
        all_within(&*view, fleet, (&circle, Filter::default()), 999, &patience).len(),
        5000
    );
}

#[test]
fn density_counts_what_is_in_each_cell() {
    let world = World::new();
    let mut rng = Rng::new(44);
    let reports = scattered(&world, &mut rng, 300);
    let (view, fleet) = (world.tracks.view(), world.fleet().fleet);
    for _ in 0..500 {
        let Some(shape) = some_shape(&mut rng) else {
            continue;
        };
        let (depth, filter) = (rng.below(41) as u8, some_filter(&mut rng));
        let patience = world.tracks.patience();
        let counts = read::density(&*view, fleet, (&*shape, filter), depth, &patience).unwrap();
        let mut right = read::Density::new();
        for r in reports.iter().filter(|r| is_meant(filter, r)) {
            if shape.has(r.point.position) {
                let cell = tracks::geo::cell::Cell::of(r.point.position).at_depth(depth);
                *right.entry(cell).or_default() += 1;
            }
        }
        assert_eq!(counts, right);
    }
    let shape = Circle::new(at(0.0, 0.0), 1.0).unwrap();
    let patience = world.tracks.patience();
    let e = read::density(&*view, fleet, (&shape, Filter::default()), 41, &patience).unwrap_err();
    assert!(e.to_string().contains("40 at most"), "{e}");
}

/// Some entities that walk, with all their points.
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
    let (view, fleet) = (world.tracks.view(), world.fleet().fleet);
    let mut found = 0;
    for n in 0..questions() / 20 {
        let Some(shape) = some_shape(&mut rng) else {
            continue;
        };
        let start = NOW.0 - rng.below(100_000) as i64 * SECOND - rng.below(1_000_000) as i64;
        let (from, to) = (Time(start), Time(start + rng.below(20_000) as i64 * SECOND));
        let patience = world.tracks.patience();
        let (mut visits, mut after) = (Vec::new(), None);
        loop {
            let question = (&*shape, from, to);
            let page = read::visitors(&*view, fleet, question, (3, after), &patience).unwrap();
            visits.extend(page.visits);
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        let mut right = std::collections::BTreeMap::new();
        for r in &reports {
            let time = r.time.unwrap();
            if (from..=to).contains(&time) && shape.has(r.point.position) {
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

/// What is simplified in pieces has the ends of the pieces, and none is twice.
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

#[test]
fn a_question_that_takes_too_long_is_ended() {
    let world = World::new();
    let mut rng = Rng::new(47);
    scattered(&world, &mut rng, 2000);
    let (view, fleet) = (world.tracks.view(), world.fleet().fleet);
    let all = Rectangle::of_degrees(-180.0, -90.0, 180.0, 90.0).unwrap();
    let clock = base::clock::SystemClock::shared();
    let patience = Patience::new(clock, std::time::Duration::ZERO);
    let question = (&all as &dyn Shape, Filter::default());
    let e = read::within(&*view, fleet, question, (usize::MAX, None), &patience).unwrap_err();
    assert_eq!(e.kind(), base::ErrorKind::TimedOut);
    assert!(e.to_string().contains("smaller area"), "{e}");
}
