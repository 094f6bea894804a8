//! Tests of whole traffic: seeds, faults, order, and the truth.

use std::collections::{HashMap, HashSet};

use super::*;
use crate::geo::distance::distance;
use crate::geo::position::at;

fn options() -> Options {
    Options {
        objects: 200,
        plan: Plan {
            radius_m: 2000.0,
            destinations: 20,
            ..Plan::around(at(59.33, 18.07))
        },
        stop_ms: 120_000,
        ..Options::clean()
    }
}

fn take(options: &Options, count: usize) -> Vec<Sent> {
    Traffic::new(options).unwrap().take(count).collect()
}

/// Reports by object and number; the first one of duplicates.
fn by_number(sent: &[Sent]) -> HashMap<(u32, u32), &Sent> {
    let mut map = HashMap::new();
    for sent in sent {
        map.entry((sent.object, sent.nth)).or_insert(sent);
    }
    map
}

#[test]
fn an_object_is_small() {
    assert!(size_of::<Object>() <= 56);
}

#[test]
fn the_same_seed_gives_the_same_and_another_gives_another() {
    let mut options = Options {
        faults: Faults::default(),
        ..options()
    };
    let text = |options: &Options| format!("{:?}", take(options, 5000));
    let first = text(&options);
    assert!(first == text(&options));
    options.seed = 2;
    assert!(first != text(&options));
}

#[test]
fn an_object_does_the_same_whichever_others_there_are() {
    let mut options = Options {
        faults: Faults::default(),
        ..options()
    };
    let all = take(&options, 10_000);
    (options.first, options.objects) = (50, 3);
    let part = take(&options, 100);
    let same = all.into_iter().filter(|s| (50..53).contains(&s.object));
    assert!(same.zip(&part).all(|(a, b)| a == *b));
}

#[test]
fn clean_reports_are_the_truth_at_even_times() {
    let options = options();
    let mut traffic = Traffic::new(&options).unwrap();
    let (mut parked, mut counts) = (0, HashMap::new());
    let mut last = options.start;
    for _ in 0..20_000 {
        let sent = traffic.next().unwrap();
        assert!(sent.arrival >= last && traffic.now() == sent.arrival);
        last = sent.arrival;
        assert_eq!((sent.way, sent.clock), (Way::Live, Clock::Right));
        assert_eq!(sent.report.time, Some(sent.time));
        assert_eq!(
            (sent.time, sent.report.entity),
            (sent.arrival, traffic.name(sent.object))
        );
        let point = sent.report.point;
        point.check().unwrap();
        let truth = sent.truth;
        assert_eq!(traffic.truth(sent.object, sent.time), Some(truth));
        assert_eq!(point.position, truth.position);
        let speed = f64::from(point.speed.unwrap()) / 100.0;
        assert!((speed - truth.speed).abs() <= 0.0051);
        assert_eq!(point.course, (!truth.is_parked).then_some(truth.course));
        parked += u32::from(truth.is_parked);
        *counts.entry(sent.object).or_insert(0) += 1;
    }
    assert_eq!(traffic.name(7).as_str(), "car-000007");
    assert!(counts.len() == 200 && counts.values().all(|count| (97..=103).contains(count)));
    assert!((2000..10_000).contains(&parked), "{parked}");
    let seconds = (last.0 - options.start.0) / SECOND;
    assert!((990..1010).contains(&seconds), "{seconds}");
}

/// The truth agrees with the reports at their times, and with the direction of movement.
#[test]
fn the_truth_is_known_for_all_times() {
    let options = options();
    let mut traffic = Traffic::new(&options).unwrap();
    let sent: Vec<_> = traffic.by_ref().take(10_000).collect();
    let (mut moved, mut straight) = (0, 0);
    for sent in sent.iter().step_by(20) {
        let truth = |seconds| {
            let time = Time(sent.time.0 + seconds * SECOND);
            traffic.truth(sent.object, time).unwrap()
        };
        assert_eq!(truth(0), sent.truth);
        assert!(traffic.city().off_road(sent.truth.position) < 0.1);
        let (now, next) = (truth(0), truth(1));
        if now.speed.to_bits() == next.speed.to_bits() {
            let metres = distance(now.position, next.position);
            assert!((metres - now.speed).abs() < 0.05, "{metres} {now:?}");
            straight += 1;
        }
        moved += u32::from(distance(now.position, truth(300).position) > 200.0);
    }
    assert!(moved > 250 && straight > 400, "{moved} {straight}");
    assert_eq!(traffic.truth(200, options.start), None);
    assert_eq!(traffic.truth(0, Time(options.start.0 - 1)), None);
    assert!(traffic.truth(0, options.start).is_some());
}

#[test]
fn faults_change_reports_and_not_what_happens() {
    let clean = take(&options(), 30_000);
    let faulty = take(
        &Options {
            faults: Faults {
                noise_m: 20.0,
                latency_ms: 2000,
                gaps: 0.2,
                bursts: 0.2,
                duplicates: 0.2,
                wrong_clocks: 0.2,
                no_clocks: 0.2,
                ..Faults::none()
            },
            ..options()
        },
        20_000,
    );
    let (clean, faulty) = (by_number(&clean), by_number(&faulty));
    let mut compared = 0;
    for (key, a) in &faulty {
        if let Some(b) = clean.get(key) {
            assert_eq!((a.time, a.truth), (b.time, b.truth));
            assert_eq!(a.report.time, a.clock.shows(a.time));
            assert!(distance(a.report.point.position, a.truth.position) < 100.0);
            compared += 1;
        }
    }
    assert!(compared > 10_000, "{compared}");
}

#[test]
fn shares_of_faults_are_as_asked() {
    let options = Options {
        objects: 1000,
        stop_ms: 0,
        faults: Faults {
            gaps: 0.1,
            bursts: 0.2,
            outage_reports: 5,
            duplicates: 0.1,
            latency_ms: 500,
            ..Faults::none()
        },
        ..options()
    };
    let sent = take(&options, 100_000);
    let count = |way| sent.iter().filter(|s| s.way == way).count() as f64;
    let (live, kept, again) = (count(Way::Live), count(Way::Kept), count(Way::Again));
    let share = again / live;
    assert!((0.095..0.105).contains(&share), "{share}");
    let mut last: HashMap<u32, u32> = HashMap::new();
    for s in &sent {
        last.insert(s.object, s.nth);
    }
    let made: f64 = last.values().map(|&nth| f64::from(nth) + 1.0).sum();
    let gaps = 1.0 - (live + kept) / made;
    assert!((0.09..0.11).contains(&gaps), "{gaps}");
    assert!((0.185..0.215).contains(&(kept / made)), "{}", kept / made);
    let live = sent.iter().filter(|s| s.way == Way::Live);
    let latency: f64 = live.map(|s| (s.arrival.0 - s.time.0) as f64).sum();
    let latency = latency / count(Way::Live) / 1000.0;
    assert!((480.0..520.0).contains(&latency), "{latency}");
}

#[test]
fn duplicates_are_equal_and_come_before_what_is_next() {
    let faults = Faults {
        duplicates: 0.5,
        latency_ms: 5000,
        noise_m: 9.0,
        ..Faults::default()
    };
    let mut last: HashMap<u32, Sent> = HashMap::new();
    for sent in take(
        &Options {
            faults,
            ..options()
        },
        20_000,
    ) {
        if let Some(before) = last.get(&sent.object) {
            assert!(sent.arrival >= before.arrival);
            if sent.way == Way::Again {
                assert_eq!(before.way, Way::Live);
                assert_eq!((&sent.report, sent.truth), (&before.report, before.truth));
                assert!(sent.arrival.0 - before.arrival.0 < 5 * SECOND);
            }
        }
        last.insert(sent.object, sent);
    }
}

#[test]
fn bursts_arrive_at_once_in_their_order() {
    for order in [Order::OldestFirst, Order::NewestFirst] {
        let faults = Faults {
            bursts: 0.3,
            latency_ms: 100,
            order,
            ..Faults::none()
        };
        let sent = take(
            &Options {
                faults,
                ..options()
            },
            20_000,
        );
        let mut bursts: HashMap<(u32, Time), Vec<&Sent>> = HashMap::new();
        for sent in &sent {
            bursts
                .entry((sent.object, sent.arrival))
                .or_default()
                .push(sent);
        }
        let mut seen = 0;
        for mut burst in bursts.into_values().filter(|burst| burst.len() > 1) {
            // The last burst may be incomplete.
            if burst.last().unwrap().arrival == sent.last().unwrap().arrival {
                continue;
            }
            if order == Order::NewestFirst {
                burst.reverse();
            }
            let (live, kept) = burst.split_last().unwrap();
            assert_eq!(live.way, Way::Live);
            assert!((2..=18).contains(&kept.len()));
            assert!(kept.iter().all(|s| s.way == Way::Kept));
            assert!(burst.is_sorted_by(|a, b| a.nth + 1 == b.nth && a.time < b.time));
            seen += 1;
        }
        assert!(seen > 300, "{seen}");
    }
}

#[test]
fn each_report_changes_its_cell_where_it_has_to() {
    for (noise_m, stop_ms) in [(0.0, 300_000), (10.0, 300_000), (10.0, 0)] {
        let options = Options {
            each_report_changes_cell: true,
            interval_ms: 1000,
            stop_ms,
            faults: Faults {
                noise_m,
                duplicates: 0.0,
                bursts: 0.1,
                ..Faults::default()
            },
            ..options()
        };
        let mut last = HashMap::new();
        let mut objects = HashSet::new();
        for sent in take(&options, 20_000) {
            assert!(!sent.truth.is_parked);
            let cell = Cell::of(sent.report.point.position);
            assert_ne!(last.insert(sent.object, cell), Some(cell));
            objects.insert(sent.object);
        }
        assert!(objects.len() > 150);
    }
}

#[test]
fn what_is_out_of_range_is_refused_by_name() {
    type Change = fn(&mut Options);
    let bad: [(&str, Change); 8] = [
        ("objects", |o| o.objects = 0),
        ("first", |o| o.first = u32::MAX),
        ("start", |o| o.start = Time::MAX),
        ("interval_ms", |o| o.interval_ms = 99),
        ("stop_ms", |o| o.stop_ms = u32::MAX),
        ("duplicates", |o| {
            (o.each_report_changes_cell, o.faults.duplicates) = (true, 0.1);
        }),
        ("radius_m", |o| o.plan.radius_m = 1.0),
        ("gaps", |o| o.faults.gaps = 7.0),
    ];
    for (option, change) in bad {
        let mut options = options();
        change(&mut options);
        let e = Traffic::new(&options).unwrap_err();
        assert_eq!(e.kind(), base::ErrorKind::InvalidArgument);
        assert!(e.to_string().contains(&format!("{option}: ")), "{e}");
    }
    let mut options = options();
    options.prefix = "a\n".to_owned();
    let e = Traffic::new(&options).unwrap_err().to_string();
    assert!(e.contains("is no name"), "{e}");
}
