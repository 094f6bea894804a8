//! Long answers: pages of bounded size, memory that is reserved while they are built, and refusals.

use serde_json::{Value, json};
use tracks::http::Config;
use tracks::service::Options;

use super::{T, World};

/// Reports of one entity, one each second, with a thousand bytes of attributes.
fn heavy(world: &World, count: usize) {
    let text = "x".repeat(980);
    let lines: Vec<String> = (0..count)
        .map(|n| {
            let (lat, time) = (n as f64 / 1000.0, T + n as f64);
            json!({"entity": "a", "lat": lat, "lon": 18, "time": time, "tags": ["free", "night"],
                "attributes": {"n": n, "text": text}})
            .to_string()
        })
        .collect();
    for part in lines.chunks(1000) {
        world.report(&part.join("\n"));
    }
}

/// The times of a page's points.
fn times(page: &Value) -> Vec<f64> {
    let numbers = |all: &Value| {
        let all = all.as_array().unwrap().iter();
        all.map(|n| n.as_f64().unwrap()).collect::<Vec<_>>()
    };
    if let Some(features) = page["features"].as_array() {
        let all = features.iter();
        return all
            .flat_map(|f| numbers(&f["properties"]["times"]))
            .collect();
    }
    let parts = page["parts"].as_array().unwrap().iter();
    let points = parts.flat_map(|part| part.as_array().unwrap());
    points
        .map(|point| point["time"].as_f64().unwrap())
        .collect()
}

/// A page of points with many attributes has a bounded size.
#[test]
fn a_page_of_a_track_ends_where_its_text_would_be_too_long() {
    const MOST: usize = 100_000;
    let config = Config {
        page_max: MOST,
        ..Config::default()
    };
    let world = World::with(&Options::default(), config, None);
    heavy(&world, 1000);
    for query in ["", "format=geojson&", "simplify=0&", "every=2&"] {
        let (mut all, mut from, mut pages) = (Vec::new(), T, 0);
        loop {
            let path = format!(
                "/v1/fleets/f/entities/a/track?{query}from={from}&max_points=100000&gap=100"
            );
            let answer = world.get(&path);
            assert_eq!(answer.status, 200, "{}", answer.text);
            assert!(answer.text.len() <= MOST, "{}", answer.text.len());
            let page = answer.json();
            let found = times(&page);
            assert!(!found.is_empty());
            all.extend(found);
            pages += 1;
            match page["next"].as_f64() {
                Some(next) => from = next,
                None => break,
            }
        }
        let step = if query.starts_with("every") { 2 } else { 1 };
        let right: Vec<f64> = (0..1000).step_by(step).map(|n| T + n as f64).collect();
        if query.starts_with("simplify") {
            // On a line, each piece keeps its ends.
            assert_eq!((all.first(), all.last()), (right.first(), right.last()));
        } else {
            assert_eq!(all, right, "{query}");
            assert!((5..=30).contains(&pages), "{query} {pages}");
        }
    }
    // A point that is too long by itself is a page of its own.
    let config = Config {
        page_max: 1,
        ..Config::default()
    };
    let world = World::with(&Options::default(), config, None);
    heavy(&world, 3);
    let page = world.get("/v1/fleets/f/entities/a/track").json();
    assert_eq!(
        (times(&page), page["next"].as_f64()),
        (vec![T], Some(T + 1.0))
    );
}

#[test]
fn memory_is_asked_for_while_an_answer_is_made() {
    let config = Config {
        memory: 4 << 20,
        ..Config::default()
    };
    let world = World::with(&Options::default(), config, None);
    heavy(&world, 3000);
    let track = "/v1/fleets/f/entities/a/track?max_points=";
    // The memory is given back each time.
    for _ in 0..10 {
        let answer = world.get(&format!("{track}10000"));
        assert_eq!(answer.problem(), (503, "busy".to_owned()));
        assert!(answer.detail().contains("memory"), "{}", answer.detail());
        assert_eq!(world.get(&format!("{track}1000")).status, 200);
    }
}

#[test]
fn a_summary_has_so_many_stays() {
    const STAYS: usize = 100_001;
    let world = World::new();
    let mut body = String::new();
    for n in 0..STAYS {
        let lat = if n % 2 == 0 { 59.0 } else { 59.01 };
        for later in [0, 300] {
            let time = T as usize - 70_000_000 + n * 600 + later;
            let line = format!("{{\"entity\":\"a\",\"lat\":{lat},\"lon\":18,\"time\":{time}}}\n");
            body.push_str(&line);
        }
        if body.len() > 1 << 20 {
            world.report(&body);
            body.clear();
        }
    }
    world.report(&body);
    let summary = "/v1/fleets/f/entities/a/summary";
    let answer = world.get(summary);
    assert_eq!(answer.problem(), (400, "invalid-parameter".to_owned()));
    let detail = answer.detail();
    assert!(
        detail.contains("100000") && detail.contains("shorter"),
        "{detail}"
    );
    let to = T as usize - 70_000_000 + (STAYS - 1) * 600 - 1;
    let answer = world.get(&format!("{summary}?to={to}")).json();
    assert_eq!(answer["stays"].as_array().unwrap().len(), STAYS - 1);
}
