//! Many objects at one place: they share one cell, which cannot be halved, and still each query
//! reads no more rows than necessary, and ends in time.

use std::time::Duration;

use base::clock::SystemClock;
use tracks::geo::shape::{Circle, Rectangle};
use tracks::geo::surface::Surface;
use tracks::read::{self, Cursor, Filter};

use crate::world::{World, at, report};

/// The number of objects; `IRONSTONE_TRACKS_AT_ONE_PLACE` overrides it, for example with 1000000.
fn objects() -> u64 {
    let more = std::env::var("IRONSTONE_TRACKS_AT_ONE_PLACE");
    more.map_or(100_000, |n| n.parse().unwrap())
}

/// Checks the time of a run: a millisecond for a hundred rows is far more than any build needs.
fn in_time<T>(what: &str, rows: u64, run: impl FnOnce() -> T) -> T {
    let clock = SystemClock::shared();
    let since = clock.monotonic_nanos();
    let done = run();
    let time = Duration::from_nanos(clock.monotonic_nanos() - since);
    let most = Duration::from_secs(2) + Duration::from_micros(10) * u32::try_from(rows).unwrap();
    eprintln!("{what}: {time:?}");
    assert!(time < most, "{what}: {time:?} for {rows} rows");
    done
}

#[test]
fn a_crowd_at_one_place_is_asked_about_in_bounded_work() {
    let (world, count) = (World::new(), objects());
    // At the corner of a cell, and others not far from there.
    let place = at(0.0, 0.0);
    let far = at(0.0, 0.01);
    for from in (0..count).step_by(5000) {
        let names = from..(from + 5000).min(count);
        let mut reports: Vec<_> = names.map(|n| report(&format!("e{n}"), 0, place)).collect();
        if from == 0 {
            reports.push(report("far", 0, far));
        }
        assert!(world.send(reports).iter().all(Result::is_ok));
    }
    let (view, fleet) = (world.tracks.view(), world.fleet().fleet);
    let all = Filter::default();

    // Page by page, each object is found once, and read once, except the first one of the next
    // page.
    let circle = Circle::new(place, 10.0).unwrap();
    let patience = world.tracks.patience();
    let (mut found, mut pages, mut from) = (0, 0, None);
    in_time("all pages", count, || {
        loop {
            let page =
                read::within(&*view, fleet, (&circle, all), (10_000, from), &patience).unwrap();
            found += page.hits.len() as u64;
            pages += 1;
            let Some(next) = page.next else { break };
            from = Some(Cursor::of_text(&next.to_text()).unwrap());
        }
    });
    assert_eq!(found, count);
    assert!(
        patience.rows() <= count + 10 * pages,
        "{} rows",
        patience.rows()
    );

    // One page reads no more than that.
    let patience = world.tracks.patience();
    let page = in_time("a page", 100, || {
        read::within(&*view, fleet, (&circle, all), (100, None), &patience).unwrap()
    });
    assert_eq!((page.hits.len(), page.next.is_some()), (100, true));
    assert!(patience.rows() <= 110, "{} rows", patience.rows());

    // A search beside the crowd does not read it.
    let patience = world.tracks.patience();
    let beside = Rectangle::of_degrees(0.009, -0.01, 0.02, 0.01).unwrap();
    let page = in_time("beside it", 100, || {
        read::within(&*view, fleet, (&beside, all), (100, None), &patience).unwrap()
    });
    assert_eq!(page.hits.len(), 1);
    assert!(patience.rows() <= 10, "{} rows", patience.rows());

    // Among equally near objects, those with the lowest numbers are returned: the crowd is read,
    // but only once.
    let patience = world.tracks.patience();
    let hits = in_time("nearest", count, || {
        let how = (10, f64::MAX, Surface::Sphere);
        read::nearby(&*view, fleet, (place, all), how, &patience).unwrap()
    });
    assert_eq!(hits.len(), 10);
    assert!(hits.iter().all(|hit| hit.distance == Some(0.0)));
    assert!(
        patience.rows() <= count + 10_000,
        "{} rows",
        patience.rows()
    );

    let patience = world.tracks.patience();
    let density = in_time("density", count, || {
        let earth = Rectangle::of_degrees(-180.0, -90.0, 180.0, 90.0).unwrap();
        read::density(&*view, fleet, (&earth, all), 40, &patience).unwrap()
    });
    let mut counts: Vec<u64> = density.into_values().collect();
    counts.sort_unstable();
    assert_eq!(counts, [1, count]);
    assert!(patience.rows() <= count + 100, "{} rows", patience.rows());
}
