//! Queries about the present, compared with brute force.

use std::collections::BTreeMap;

use base::clock::{Clock, SystemClock};
use base::rng::Rng;
use tracks::geo::position::Position;
use tracks::geo::shape::{Circle, Rectangle, Shape};
use tracks::geo::surface::Surface;
use tracks::model::key::Fleet;
use tracks::model::report::Report;
use tracks::model::time::{SECOND, Time};
use tracks::read::{self, Cursor, Filter, Patience};
use tracks::store::View;

use crate::shapes::{Drawn, HALF_AROUND, Has, Place, circle, some_shape};
use crate::world::{NOW, World, around, at, near, part, report};

/// The number of queries of each test; `IRONSTONE_TRACKS_SHAPES` overrides it.
pub(crate) fn questions() -> u64 {
    let more = std::env::var("IRONSTONE_TRACKS_SHAPES");
    more.map_or(20_000, |n| n.parse().unwrap())
}

/// Entities, some at the same place, at a pole, on the antimeridian, or anywhere, with their
/// positions.
fn scattered(world: &World, rng: &mut Rng, count: usize) -> Vec<(Report, Place)> {
    let mut reports: Vec<Report> = Vec::new();
    for n in 0..count {
        let position = match (reports.last(), rng.below(16)) {
            (Some(last), 0 | 1) => last.point.position,
            (_, 2) => at([90.0, -90.0][rng.below(2) as usize], 0.0),
            (_, 3) => at(part(rng, 180.0) - 90.0, 180.0),
            (_, 4) => at(part(rng, 180.0) - 90.0, part(rng, 360.0) - 180.0),
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
    let with_place = |r: Report| {
        let place = r.point.position.into();
        (r, place)
    };
    reports.into_iter().map(with_place).collect()
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

/// Mostly the sphere, because the ellipsoid is slow.
fn some_surface(rng: &mut Rng) -> Surface {
    if rng.one_in(16) {
        Surface::Ellipsoid
    } else {
        Surface::Sphere
    }
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

/// Statistics of the queries and their results.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    questions: u64,
    hits: u64,
    crossers: u64,
    polygons: u64,
    large: u64,
    /// Places in a hole.
    in_holes: u64,
    /// Answers with places on both sides of the antimeridian, near it or not.
    on_both_sides: u64,
    /// Places so near to an edge that rounding decides: there the service's own result is taken.
    doubts: u64,
}

/// Whether a place is in an area, by independent formulas.
pub(crate) fn is_in(drawn: &Drawn, place: &Place, counts: &mut Counts) -> bool {
    match drawn.has(place) {
        Has::Yes => true,
        Has::No => false,
        Has::Hole => {
            counts.in_holes += 1;
            false
        }
        Has::Doubt => {
            counts.doubts += 1;
            drawn.shape.has(place.position)
        }
    }
}

impl Counts {
    /// Prints how long it took, for long runs.
    fn said(&self, clock: &dyn Clock) {
        let seconds = clock.monotonic_nanos() / 1_000_000_000;
        eprintln!("{self:?}, 0 differences, {seconds} s");
    }
}

#[test]
fn areas_have_what_brute_force_finds() {
    let (world, clock) = (World::new(), SystemClock::shared());
    let mut rng = Rng::new(41);
    let reports = scattered(&world, &mut rng, 400);
    let places: Vec<Place> = reports.iter().map(|(_, place)| *place).collect();
    let (view, fleet) = (world.tracks.view(), world.fleet().fleet);
    let mut counts = Counts::default();
    for n in 0..questions() {
        let drawn = some_shape(&mut rng, &places, n % 3 == 0);
        counts.questions += 1;
        counts.crossers += u64::from(drawn.crosses());
        counts.polygons += u64::from(drawn.is_polygon());
        counts.large += u64::from(drawn.is_large());
        let filter = some_filter(&mut rng);
        let limit = [1_000_000, 7][usize::from(rng.one_in(4))];
        let patience = world.tracks.patience();
        let found = all_within(&*view, fleet, (&*drawn.shape, filter), limit, &patience);
        let (mut right, mut sides) = (Vec::new(), [false; 2]);
        for (report, place) in reports.iter().filter(|(r, _)| is_meant(filter, r)) {
            if is_in(&drawn, place, &mut counts) {
                right.push(report.entity.to_string());
                sides[usize::from(place.is_east())] = true;
            }
        }
        right.sort_unstable();
        assert_eq!(found, right, "question {n}: {drawn:?}");
        counts.hits += found.len() as u64;
        counts.on_both_sides += u64::from(drawn.crosses() && sides == [true; 2]);
    }
    counts.said(&*clock);
    let n = counts.questions;
    assert_eq!(n, questions());
    assert!(counts.hits > n && counts.in_holes > n / 50, "{counts:?}");
    assert!(
        counts.crossers >= n / 3 && counts.on_both_sides > n / 10,
        "{counts:?}"
    );
    // Each has a hole.
    assert!(counts.polygons > n * 3 / 10, "{counts:?}");
    assert!(
        counts.large > n / 20 && counts.doubts < 10 + n / 100,
        "{counts:?}"
    );
}

/// Circles of about 20,000 km, whose edge is a small ring around the antipode; also in nearest and
/// density queries.
#[test]
fn circles_around_half_of_the_earth_are_exact() {
    let world = World::new();
    let mut rng = Rng::new(48);
    let reports = scattered(&world, &mut rng, 400);
    let (view, fleet) = (world.tracks.view(), world.fleet().fleet);
    let (mut counts, mut left_out) = (Counts::default(), 0);
    for n in 0..questions() / 20 {
        // The antipodes of some entities.
        let (lat, lon) = reports[rng.below(400) as usize].1.position.degrees();
        let opposite = (-lat, (lon + 360.0).rem_euclid(360.0) - 180.0);
        let width = [0.0, 0.1, 1.0, 5.0][rng.below(4) as usize];
        let centre = around(&mut rng, opposite, width);
        let surface = [Surface::Sphere, Surface::Ellipsoid][usize::from(rng.one_in(4))];
        let radius = match rng.below(4) {
            0 => HALF_AROUND,
            1 => 20_000_000.0,
            _ => 19_000_000.0 + part(&mut rng, 1_015_000.0),
        };
        let drawn = circle(centre, radius, surface);
        let patience = world.tracks.patience();
        let question = (&*drawn.shape, Filter::default());
        let found = all_within(&*view, fleet, question, 1000, &patience);
        let is_right = |(_, place): &&(Report, Place)| is_in(&drawn, place, &mut counts);
        let mut right: Vec<_> = reports
            .iter()
            .filter(is_right)
            .map(|(r, _)| r.entity.to_string())
            .collect();
        right.sort_unstable();
        assert_eq!(found, right, "question {n}: {drawn:?}");
        left_out += reports.len() - found.len();
        let how = (1000, radius, surface);
        let from = (centre, Filter::default());
        let near = read::nearby(&*view, fleet, from, how, &patience).unwrap();
        let mut near: Vec<_> = near.into_iter().map(|hit| hit.name).collect();
        near.sort_unstable();
        assert_eq!(near, right, "question {n}: {drawn:?}");
        let counted = read::density(&*view, fleet, question, 10, &patience).unwrap();
        assert_eq!(counted.values().sum::<u64>(), right.len() as u64);
        counts.hits += found.len() as u64;
    }
    assert!(
        left_out > 500 && counts.doubts < counts.hits / 50,
        "{left_out} {counts:?}"
    );
}

/// The place of a nearest query: for a third of them, the answer crosses the antimeridian or a
/// pole.
fn some_from(rng: &mut Rng, must_cross: bool, reports: &[(Report, Place)]) -> Position {
    let (centre, line) = (near(rng), (part(rng, 4.0) - 18.0, 180.0));
    match rng.below(4) {
        _ if must_cross && rng.one_in(2) => at(90.0 - part(rng, 0.1), part(rng, 360.0) - 180.0),
        _ if must_cross => around(rng, line, 0.1),
        0 => reports[rng.below(400) as usize].1.position,
        1 => at(part(rng, 180.0) - 90.0, part(rng, 360.0) - 180.0),
        _ => around(rng, centre, 3.0),
    }
}

/// Whether two formulas agree: rounding is a part in 10⁹, and half a millimetre on the ellipsoid.
/// Within a kilometre of the antipode the haversine formula is off by decimetres; see
/// [`HALF_AROUND`].
fn is_near(a: f64, b: f64) -> bool {
    let most = if b > HALF_AROUND - 1000.0 {
        0.5
    } else {
        0.001 + 1e-9 * b
    };
    (a - b).abs() <= most
}

/// Checks nearest hits: distances agree with the independent formulas, are in order, and no entity
/// that was left out is nearer.
fn assert_nearest(
    hits: &[read::Hit],
    right: &[(Option<f64>, &Report)],
    (k, within): (usize, f64),
    doubts: &mut u64,
) {
    let said: BTreeMap<_, _> = hits
        .iter()
        .map(|hit| (hit.name.as_str(), hit.distance.unwrap()))
        .collect();
    assert!(said.len() == hits.len() && hits.len() <= k);
    let order = |hit: &read::Hit| (hit.distance.unwrap(), hit.entity.0);
    let is_sorted = |a: &read::Hit, b: &read::Hit| {
        let ((a, x), (b, y)) = (order(a), order(b));
        a.total_cmp(&b).then(x.cmp(&y)).is_lt()
    };
    assert!(hits.is_sorted_by(is_sorted));
    // No entity nearer than this may be missing.
    let reach = match hits.last() {
        Some(hit) if hits.len() == k => hit.distance.unwrap(),
        _ if k == 0 => -1.0,
        _ => within,
    };
    let mut seen = 0;
    for (distance, report) in right {
        let found = said.get(report.entity.as_str()).copied();
        seen += usize::from(found.is_some());
        let last = hits
            .last()
            .filter(|last| last.position == report.point.position);
        match (distance, found) {
            // At equal distances, lower numbers come first.
            (Some(_), None) if hits.len() == k && last.is_some() => {
                assert!(last.unwrap().entity < report.entity.number(0));
            }
            (None, _) => *doubts += 1,
            (Some(d), Some(found)) => {
                assert!(
                    is_near(found, *d) && (*d <= within || is_near(*d, within)),
                    "{report:?} at {found}, and at {d} by another formula"
                );
            }
            (Some(d), None) if is_near(*d, reach) => *doubts += 1,
            (Some(d), None) => assert!(*d > reach, "{report:?} at {d}"),
        }
    }
    // All results are among the entities of the query.
    assert_eq!(seen, hits.len());
}

#[test]
fn the_nearest_are_those_of_brute_force() {
    let (world, clock) = (World::new(), SystemClock::shared());
    let mut rng = Rng::new(42);
    let reports = scattered(&world, &mut rng, 400);
    let (view, fleet) = (world.tracks.view(), world.fleet().fleet);
    let mut counts = Counts::default();
    for n in 0..questions() {
        let must_cross = n % 5 < 2;
        let from = some_from(&mut rng, must_cross, &reports);
        let filter = some_filter(&mut rng);
        let (k, within) = if must_cross {
            ([10, 100, 1000][rng.below(3) as usize], f64::INFINITY)
        } else {
            let within = [f64::INFINITY, 1e7, 1e5, 1e3, 0.0][rng.below(5) as usize];
            ([1, 10, 100, 1000, 0][rng.below(5) as usize], within)
        };
        let (patience, surface) = (world.tracks.patience(), some_surface(&mut rng));
        let how = (k, within, surface);
        let hits = read::nearby(&*view, fleet, (from, filter), how, &patience).unwrap();
        let from = Place::from(from);
        let right: Vec<_> = reports
            .iter()
            .filter(|(r, _)| is_meant(filter, r))
            .map(|(r, place)| (from.distance(place, surface), r))
            .collect();
        assert_nearest(&hits, &right, (k, within), &mut counts.doubts);
        counts.questions += 1;
        counts.hits += hits.len() as u64;
        let reach = hits.last().map_or(0.0, |hit| hit.distance.unwrap());
        counts.crossers += u64::from(from.crosses_within(reach));
    }
    counts.said(&*clock);
    let n = counts.questions;
    assert!(
        n == questions() && counts.crossers >= n / 3 && counts.hits > n * 10,
        "{counts:?}"
    );
    assert!(counts.doubts < n / 2, "{counts:?}");
    let patience = world.tracks.patience();
    let all = (at(0.0, 0.0), Filter::default());
    let how = (1_000_000_000, 1.0, Surface::Sphere);
    let e = read::nearby(&*view, fleet, all, how, &patience).unwrap_err();
    assert!(e.to_string().contains("10000 at most"), "{e}");
}

/// Thousands of entities at one place are found, although their cell cannot be halved.
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
    let places: Vec<Place> = reports.iter().map(|(_, place)| *place).collect();
    let (view, fleet) = (world.tracks.view(), world.fleet().fleet);
    let mut seen = Counts::default();
    for _ in 0..500 {
        let drawn = some_shape(&mut rng, &places, false);
        let (depth, filter) = (rng.below(41) as u8, some_filter(&mut rng));
        let patience = world.tracks.patience();
        let question = (&*drawn.shape, filter);
        let counts = read::density(&*view, fleet, question, depth, &patience).unwrap();
        let mut right = read::Density::new();
        for (r, place) in reports.iter().filter(|(r, _)| is_meant(filter, r)) {
            if is_in(&drawn, place, &mut seen) {
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

#[test]
fn a_question_that_takes_too_long_is_ended() {
    let world = World::new();
    let mut rng = Rng::new(47);
    scattered(&world, &mut rng, 2000);
    let (view, fleet) = (world.tracks.view(), world.fleet().fleet);
    let all = Rectangle::of_degrees(-180.0, -90.0, 180.0, 90.0).unwrap();
    let clock = SystemClock::shared();
    let patience = Patience::new(clock, std::time::Duration::ZERO);
    let question = (&all as &dyn Shape, Filter::default());
    let e = read::within(&*view, fleet, question, (usize::MAX, None), &patience).unwrap_err();
    assert_eq!(e.kind(), base::ErrorKind::TimedOut);
    assert!(e.to_string().contains("smaller area"), "{e}");
}
