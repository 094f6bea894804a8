//! The answers of calls.

use std::io::Write;

use serde_json::{Value, json};
use tracks::http::{Config, routes};
use tracks::service::Options;

use super::{T, World, line, start};

/// The names of the results, in order.
fn names(world: &World, path: &str) -> Vec<String> {
    let json = world.get(path).json();
    let all = json["results"]
        .as_array()
        .unwrap_or_else(|| panic!("{json}"));
    let names = all.iter().map(|r| r["entity"].as_str().unwrap().to_owned());
    let mut names: Vec<String> = names.collect();
    names.sort();
    names
}

#[test]
fn reports_in_all_forms_are_found_again() {
    let world = World::new();
    let [a, b] = [line("a", T, 59.0, 18.0), line("x/b", T, 59.001, 18.0)];
    assert_eq!(
        world.report(&a),
        json!({"stored": 1, "late": 0, "same": 0, "refused": []})
    );
    assert_eq!(world.report(&format!("[{a},{b}]"))["same"], 1);
    let late = line("a", T - 60.0, 58.9, 18.0);
    let lines = format!("{late}\n\n{{\"entity\":\"a\"}}\n{b}\n");
    let ndjson = [("content-type", "application/x-ndjson")];
    let answer = world
        .send("/v1/fleets/f/reports", &ndjson, lines.as_bytes())
        .json();
    assert_eq!(
        (&answer["stored"], &answer["late"], &answer["same"]),
        (&json!(1), &json!(1), &json!(1))
    );
    let refused = &answer["refused"][0];
    assert_eq!(
        (&refused["index"], &refused["line"]),
        (&json!(1), &json!(3))
    );
    assert!(
        refused["error"]
            .as_str()
            .unwrap()
            .contains("lat is missing"),
        "{refused}"
    );
    let feature = json!({"type": "Feature", "id": "g", "properties": {"time": T, "speed": 2},
        "geometry": {"type": "Point", "coordinates": [18.0, 59.002]}});
    let collection = json!({"type": "FeatureCollection", "features": [feature]}).to_string();
    let geo = [("content-type", "application/geo+json")];
    let answer = world.send("/v1/fleets/f/reports", &geo, collection.as_bytes());
    assert_eq!(answer.json()["stored"], 1);

    let newest = world.get("/v1/fleets/f/entities/x%2Fb").json();
    assert_eq!(
        newest,
        json!({"entity": "x/b", "lat": 59.001, "lon": 18.0, "time": T})
    );
    let names = |path: &str| names(&world, path);
    assert_eq!(
        names("/v1/fleets/f/within?bbox=17,58,19,60"),
        ["a", "g", "x/b"]
    );
    assert_eq!(names("/v1/fleets/f/within?circle=59,18,150"), ["a", "x/b"]);
    assert_eq!(
        names("/v1/fleets/f/within?bbox=17,58,19,58.95&from=0"),
        ["a"]
    );
    assert_eq!(
        names("/v1/fleets/f/within?bbox=17,58,19,60&max_age=60"),
        [""; 0]
    );
    assert_eq!(names("/v1/fleets/f/nearby?lat=59.0001&lon=18&k=1"), ["a"]);
    assert_eq!(
        names("/v1/fleets/f/nearby?lat=59&lon=18&within=120"),
        ["a", "x/b"]
    );
    let near = world.get("/v1/fleets/f/nearby?lat=59&lon=18").json();
    let distances = near["results"]
        .as_array()
        .unwrap()
        .iter()
        .map(|r| r["distance"].as_f64().unwrap());
    let distances: Vec<f64> = distances.collect();
    assert!(
        distances.is_sorted() && (distances[1] - 111.2).abs() < 0.1,
        "{distances:?}"
    );
}

#[test]
fn bodies_may_be_compressed() {
    let world = World::new();
    let c = line("c", T, 59.003, 18.0);
    let mut gz = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gz.write_all(c.as_bytes()).unwrap();
    let d = line("d", T, 59.004, 18.0);
    let zstd = zstd::encode_all(d.as_bytes(), 1).unwrap();
    for (coding, body) in [("gzip", gz.finish().unwrap()), ("zstd", zstd)] {
        let headers = [("content-encoding", coding)];
        let answer = world.send("/v1/fleets/f/reports", &headers, &body);
        assert_eq!(answer.json()["stored"], 1, "{coding}");
        let answer = world.send("/v1/fleets/f/reports", &headers, &body[..body.len() - 3]);
        assert_eq!(answer.problem(), (400, "invalid-body".to_owned()));
    }
}

#[test]
fn pages_polygons_and_cells() {
    let world = World::new();
    let lines: Vec<String> = (0..25)
        .map(|n| line(&format!("e{n:02}"), T, 10.0 + f64::from(n) / 100.0, 20.0))
        .collect();
    assert_eq!(world.report(&lines.join("\n"))["stored"], 25);
    for times in ["", "&from=1600000000&to=2030-01-01T00:00:00Z"] {
        let (mut all, mut cursor, mut pages) = (Vec::new(), String::new(), 0);
        loop {
            let path = format!("/v1/fleets/f/within?bbox=19,9,21,11&limit=10{times}{cursor}");
            let page = world.get(&path).json();
            let results = page["results"]
                .as_array()
                .unwrap_or_else(|| panic!("{page}"));
            all.extend(
                results
                    .iter()
                    .map(|r| r["entity"].as_str().unwrap().to_owned()),
            );
            pages += 1;
            match page["cursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => break,
            }
        }
        all.sort();
        assert_eq!((pages, all.len()), (3, 25));
        assert_eq!(all[24], "e24");
    }
    let ring = json!([[19, 9.9], [21, 9.9], [21, 10.105], [19, 10.105], [19, 9.9]]);
    let hole = json!([
        [19.5, 10.015],
        [20.5, 10.015],
        [20.5, 10.085],
        [19.5, 10.085],
        [19.5, 10.015]
    ]);
    let polygon = json!({"type": "Polygon", "coordinates": [ring, hole]});
    let feature = json!({"type": "Feature", "properties": {}, "geometry": polygon});
    for body in [&polygon, &feature] {
        let found = world.post("/v1/fleets/f/within", &body.to_string()).json();
        let names: Vec<&str> = found["results"]
            .as_array()
            .unwrap()
            .iter()
            .map(|r| r["entity"].as_str().unwrap())
            .collect();
        assert_eq!(names.len(), 4, "{names:?}");
        for name in ["e00", "e01", "e09", "e10"] {
            assert!(names.contains(&name), "{names:?}");
        }
    }
    let cells = world
        .get("/v1/fleets/f/density?bbox=19,9,21,11&precision=3")
        .json();
    let cells = cells["cells"].as_array().unwrap();
    let sum: u64 = cells
        .iter()
        .map(|cell| cell["count"].as_u64().unwrap())
        .sum();
    assert_eq!(sum, 25);
    for cell in cells {
        let theirs = geohash::decode_bbox(cell["geohash"].as_str().unwrap()).unwrap();
        let (min, max) = (theirs.min(), theirs.max());
        assert_eq!(cell["bounds"], json!([min.x, min.y, max.x, max.y]));
    }
}

#[test]
fn tracks_and_summaries() {
    let world = World::new();
    let at = |n: u32| {
        line(
            "car",
            T + 60.0 * f64::from(n),
            10.0 + f64::from(n) / 1000.0,
            20.0,
        )
    };
    let lines: Vec<String> = (0..10).chain(20..22).map(at).collect();
    world.report(&lines.join("\n"));
    let track = |query: &str| {
        world
            .get(&format!("/v1/fleets/f/entities/car/track{query}"))
            .json()
    };
    let lens = |track: &Value| -> Vec<usize> {
        let parts = track["parts"]
            .as_array()
            .unwrap_or_else(|| panic!("{track}"))
            .iter();
        parts.map(|part| part.as_array().unwrap().len()).collect()
    };
    assert_eq!(lens(&track("")), [12]);
    assert_eq!(lens(&track("?gap=300")), [10, 2]);
    assert_eq!(lens(&track("?every=120")), [6]);
    assert_eq!(lens(&track("?simplify=5")), [2]);
    assert_eq!(
        lens(&track(&format!("?from={}&to={}", T + 60.0, T + 180.0))),
        [3]
    );
    assert_eq!(
        lens(&track(
            "?from=2023-11-14T23:14:20%2B01:00&to=2023-11-14T22:15:20Z"
        )),
        [2]
    );
    let part = track("?max_points=5");
    assert_eq!((lens(&part), &part["next"]), (vec![5], &json!(T + 300.0)));
    let geo = world.get("/v1/fleets/f/entities/car/track?gap=300&format=geojson");
    assert_eq!(geo.header("content-type"), "application/geo+json");
    let geo = geo.json();
    assert_eq!(geo["features"][0]["geometry"]["type"], "LineString");
    assert_eq!(
        geo["features"][1]["geometry"]["coordinates"][0],
        json!([20.0, 10.02])
    );
    let summary = world.get("/v1/fleets/f/entities/car/summary").json();
    assert_eq!(
        (&summary["points"], &summary["duration"]),
        (&json!(12), &json!(21.0 * 60.0))
    );
    assert!(
        (summary["distance"].as_f64().unwrap() - 2335.0).abs() < 1.0,
        "{summary}"
    );
}

#[test]
fn fleets_tags_and_times() {
    let world = World::new();
    assert_eq!(world.get("/v1/fleets").json(), json!({"fleets": []}));
    let fleet = world
        .put("/v1/fleets/f", r#"{"clamp_times":true,"tags":["bus"]}"#)
        .json();
    assert_eq!(
        fleet,
        json!({"name": "f", "clamp_times": true, "tags": ["bus"], "keep_days": 0, "silent_days": 0,
            "thin_days": 0, "thin_metres": 10})
    );
    let report = |tags: Value| json!({"entity": "a", "lat": 1, "lon": 2, "tags": tags}).to_string();
    world.report(&report(json!(["taxi", "free"])));
    let all = |path: &str| world.get(path).json()["results"].as_array().unwrap().len();
    assert_eq!(
        world.get("/v1/fleets/f").json()["tags"],
        json!(["bus", "taxi", "free"])
    );
    assert_eq!(
        all("/v1/fleets/f/within?circle=1,2,10&tag=taxi&tag=free"),
        1
    );
    assert_eq!(all("/v1/fleets/f/within?circle=1,2,10&tag=taxi&tag=bus"), 0);
    assert_eq!(all("/v1/fleets/f/within?circle=1,2,10&max_age=60"), 1);
    let unknown = world.get("/v1/fleets/f/within?circle=1,2,10&tag=tram");
    assert!(unknown.detail().contains("\"tram\""));
    let many: Vec<String> = (0..30).map(|n| n.to_string()).collect();
    let refused = world.post("/v1/fleets/f/reports", &report(json!(many)));
    assert_eq!(refused.problem(), (400, "reports-refused".to_owned()));
    assert!(refused.detail().contains("33 tags"), "{}", refused.text);
    // A time too far ahead is clamped in this fleet, and refused in others.
    let ahead = line("late", 4e9, 1.0, 2.0);
    assert_eq!(world.report(&ahead)["stored"], 1);
    let refused = world.post("/v1/fleets/other/reports", &ahead);
    assert!(refused.detail().contains("ahead"), "{}", refused.text);
    let changed = world.put("/v1/fleets/f", r#"{"tags":["taxi"]}"#);
    assert_eq!(changed.problem().0, 400);
    assert!(changed.detail().contains("change their meaning"));
    assert_eq!(
        world.put("/v1/fleets/f", r#"{"tag":[]}"#).problem().1,
        "invalid-body"
    );

    let fixed = Options {
        fixed_fleets: true,
        ..Options::default()
    };
    let world = World::with(&fixed, Config::default(), None);
    let refused = world.post("/v1/fleets/f/reports", &line("a", T, 1.0, 2.0));
    assert_eq!(refused.problem(), (404, "no-such-fleet".to_owned()));
    assert_eq!(world.put("/v1/fleets/f", "{}").status, 200);
    world.report(&line("a", T, 1.0, 2.0));
}

#[test]
fn many_reports_at_once_are_all_stored() {
    let world = World::new();
    let lines: Vec<String> = (0..20_000)
        .map(|n| line(&format!("e{}", n % 50), T + f64::from(n), 1.0, 2.0))
        .collect();
    let answer = world.post("/v1/fleets/f/reports?ack=visible", &lines.join("\n"));
    assert_eq!(answer.json()["stored"], 20_000, "{:.300}", answer.text);
    let again = world.post("/v1/fleets/f/reports", &format!("[{}]", lines.join(",")));
    assert_eq!(again.json()["same"], 20_000, "{:.300}", again.text);
    let bad: Vec<&str> = vec!["{}"; 3000];
    let answer = world.post("/v1/fleets/f/reports", &bad.join("\n")).json();
    assert_eq!(answer["refused"].as_array().unwrap().len(), 1000);
    assert_eq!(answer["refused_more"], 2000);
    // At some point, the rest is not read any more.
    let answer = world.post("/v1/fleets/f/reports", &"{}\n".repeat(150_000));
    assert_eq!(answer.problem(), (400, "reports-refused".to_owned()));
    assert!(
        answer
            .detail()
            .contains("nothing behind the first 102400 was read"),
        "{:.300}",
        answer.text
    );
    let more = answer.json()["refused_more"].as_u64().unwrap();
    assert!((99_000..110_000).contains(&more), "{more}");
    let one = line("one", T, 1.0, 2.0) + "\n" + &"{}\n".repeat(150_000);
    let answer = world.post("/v1/fleets/f/reports?ack=visible", &one);
    assert_eq!(answer.problem(), (400, "invalid-body".to_owned()));
    assert_eq!(answer.json()["stored"], 1);
    assert!(answer.json()["receipt"].is_string(), "{:.300}", answer.text);
    // If that was all, nothing was left out.
    let answer = world.post("/v1/fleets/f/reports", &"{}\n".repeat(102_000));
    assert_eq!(answer.problem(), (400, "reports-refused".to_owned()));
    assert!(
        answer.detail().starts_with("line 1: "),
        "{}",
        answer.detail()
    );
}

#[test]
fn receipts_tell_when_reports_are_durable_and_end_with_the_start() {
    let mut world = World::new();
    let visible = "/v1/fleets/f/reports?ack=visible";
    let report = line("a", T, 1.0, 2.0);
    let receipt = world.post(visible, &report).json()["receipt"]
        .as_str()
        .unwrap()
        .to_owned();
    let path = format!("/v1/durable/{receipt}");
    assert_eq!(world.get(&path).json(), json!({"durable": true}));
    let again = world.post(visible, &report).json();
    assert_eq!(again["same"], 1);
    assert!(again["receipt"].is_string());
    let forged = format!("{path}999999");
    assert_eq!(
        world.get(&forged).problem(),
        (400, "invalid-receipt".to_owned())
    );
    world.server.take().unwrap().stop().unwrap();
    let (options, config) = (Options::default(), Config::default());
    world.server = Some(start(world.dir.path(), &options, config, None));
    let gone = world.get(&path);
    assert_eq!(gone.problem(), (410, "receipt-expired".to_owned()));
    assert!(gone.detail().contains("again"));
    // Reports that were stored when it started are durable.
    let again = world.post(visible, &report).json();
    assert_eq!(again["same"], 1);
    let path = format!("/v1/durable/{}", again["receipt"].as_str().unwrap());
    assert_eq!(world.get(&path).json(), json!({"durable": true}));
}

#[test]
fn the_description_has_all_calls() {
    let world = World::new();
    let api = world.get("/openapi.json").json();
    assert!(api["openapi"].as_str().unwrap().starts_with("3.1"));
    let (mut described, mut ids) = (Vec::new(), std::collections::BTreeSet::new());
    for (path, item) in api["paths"].as_object().unwrap() {
        for (method, call) in item.as_object().unwrap() {
            described.push((method.clone(), path.clone()));
            let answers = call["responses"].as_object().unwrap();
            assert!(
                call["summary"].is_string() && answers.keys().any(|status| status.starts_with('2')),
                "{path}"
            );
            assert!(ids.insert(call["operationId"].to_string()), "{path}");
            for name in path
                .split('{')
                .skip(1)
                .filter_map(|part| part.split('}').next())
            {
                let all = call["parameters"]
                    .as_array()
                    .unwrap_or_else(|| panic!("{path}"));
                assert!(
                    all.iter().any(|p| p["name"] == name && p["in"] == "path"),
                    "{path}: {name}"
                );
            }
        }
    }
    let mut routes: Vec<_> = routes()
        .into_iter()
        .map(|(m, p)| (m.to_owned(), p.to_owned()))
        .collect();
    described.sort();
    routes.sort();
    assert_eq!(described, routes);
    assert!(api["components"]["schemas"]["Within"]["anyOf"].is_array());
    // Each referenced schema exists.
    let text = api.to_string();
    for part in text.split("#/components/schemas/").skip(1) {
        let name = part.split('"').next().unwrap();
        assert!(api["components"]["schemas"][name].is_object(), "{name}");
    }
    let metrics = world.get("/metrics").text;
    for name in [
        "tracks_requests_total{route=\"/openapi.json\",status=\"200\"} 1",
        "tracks_ack_seconds_count",
        "rocksdb_",
        "tracks_fences 0",
        "tracks_streams 0",
        "tracks_events_lag_seconds 0",
        "tracks_webhook_deliveries_total{outcome=\"failed\"} 0",
    ] {
        assert!(metrics.contains(name), "{name}");
    }
}

#[test]
fn metrics_count_what_was_done() {
    let world = World::new();
    let value = |text: &str, name: &str| -> f64 {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let value = line.and_then(|rest| rest.strip_prefix(' '));
        value
            .unwrap_or_else(|| panic!("{name}: {text}"))
            .parse()
            .unwrap()
    };
    let reports = [(0.0, 1.0), (0.0, 1.0), (-1.0, 1.5), (1.0, 1.0)];
    let reports = reports.map(|(after, lat)| line("a", T + after, lat, 2.0));
    world.report(&reports.join("\n"));
    let visible = "/v1/fleets/f/reports?ack=visible";
    assert_eq!(world.post(visible, &line("b", T, 1.0, 2.0)).status, 200);
    let refused = world.post(visible, &line("b", T, 91.0, 2.0));
    assert_eq!(refused.status, 400);
    let found = world.get("/v1/fleets/f/within?circle=1,2,10").json();
    assert_eq!(found["results"].as_array().unwrap().len(), 2);
    assert_eq!(world.get("/v1/fleets/f/entities/c").status, 404);
    let text = world.get("/metrics").text;
    for (name, count) in [
        ("tracks_reports_total{outcome=\"moved\"}", 3.0),
        ("tracks_reports_total{outcome=\"same\"}", 1.0),
        ("tracks_reports_total{outcome=\"late\"}", 1.0),
        ("tracks_reports_total{outcome=\"refused\"}", 1.0),
        ("tracks_reports_total{outcome=\"failed\"}", 0.0),
        ("tracks_ack_seconds_count{ack=\"durable\"}", 1.0),
        (
            "tracks_ack_seconds_bucket{ack=\"durable\",le=\"+Inf\"}",
            1.0,
        ),
        ("tracks_ack_seconds_bucket{ack=\"durable\",le=\"30\"}", 1.0),
        ("tracks_ack_seconds_count{ack=\"visible\"}", 2.0),
        ("tracks_query_hits_total", 2.0),
        ("tracks_requests_in_flight", 1.0),
        ("tracks_reports_in_flight", 0.0),
        ("tracks_connections", 1.0),
    ] {
        assert!(
            (value(&text, name) - count).abs() < 0.5,
            "{name} is not {count}: {text}"
        );
    }
    assert!(value(&text, "tracks_query_rows_total") >= 2.0);
    assert!(value(&text, "tracks_ack_seconds_sum{ack=\"durable\"}") > 0.0);
    for (status, count) in [(200, 2.0), (400, 1.0)] {
        let name = format!(
            "tracks_requests_total{{route=\"/v1/fleets/{{fleet}}/reports\",status=\"{status}\"}}"
        );
        assert!((value(&text, &name) - count).abs() < 0.5, "{name}: {text}");
    }
}

#[test]
fn distances_are_geodesic_where_that_is_asked_for() {
    let world = World::new();
    world.report(&line("a", T, 59.8586, 17.6389));
    let near = |more: &str| {
        let path = format!("/v1/fleets/f/nearby?lat=59.3293&lon=18.0686{more}");
        let answer = world.get(&path).json();
        answer["results"][0]["distance"].as_f64().unwrap()
    };
    assert!((near("") - 63_630.0).abs() < 1.0);
    assert!((near("&geodesic=true") - 63_766.0).abs() < 1.0);
    // The distance is between both radii, so that one circle contains the place and the other does
    // not.
    let circle = "/v1/fleets/f/within?circle=59.3293,18.0686,63700";
    let count = |path: &str| world.get(path).json()["results"].as_array().unwrap().len();
    assert_eq!(count(circle), 1);
    assert_eq!(count(&format!("{circle}&geodesic=true")), 0);
    for path in [
        "/v1/fleets/f/within?bbox=1,2,3,4&geodesic=true",
        "/v1/fleets/f/nearby?lat=1&lon=2&geodesic=yes",
    ] {
        let answer = world.get(path);
        assert_eq!(answer.problem(), (400, "invalid-parameter".to_owned()));
        assert!(answer.detail().contains("geodesic"), "{}", answer.text);
    }
}
