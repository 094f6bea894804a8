//! Fences and their events: making, showing, deleting and querying them.

use std::time::Duration;

use serde_json::{Value, json};
use tracks::http::Config;
use tracks::http::tokens::{self, Scope, Tokens, Wanted};
use tracks::service::Options;

use super::{T, World, answer, eventually, line, thread, timed};

fn said(events: &[Value]) -> Vec<String> {
    let text = |e: &Value, name: &str| e[name].as_str().unwrap().to_owned();
    let said = |e: &Value| {
        format!(
            "{} {} {}",
            text(e, "kind"),
            text(e, "fence"),
            text(e, "entity")
        )
    };
    events.iter().map(said).collect()
}

#[test]
fn fences_are_made_shown_and_deleted() {
    let world = World::new();
    let areas = [
        json!({"type": "Circle", "center": [18.0, 59.0], "radius": 500.0}),
        json!({"type": "Rectangle", "bbox": [177.0, -19.0, -178.0, -15.0]}),
        json!({"type": "Polygon", "coordinates": [[[18.0, 59.0], [19.0, 59.0], [19.0, 60.0], [18.0, 59.0]]]}),
        json!({"type": "Corridor", "coordinates": [[18.0, 59.0], [18.1, 59.0]], "width": 50.0}),
    ];
    let mut number = 0;
    for (nth, area) in areas.iter().enumerate() {
        let path = format!("/v1/fleets/f/fences/n{nth}%2Fx");
        let made = world.put(&path, &json!({ "area": area }).to_string());
        assert_eq!(made.status, 200, "{}", made.text);
        let fence = made.json();
        assert_eq!(
            (
                &fence["name"],
                &fence["area"],
                &fence["tags"],
                &fence["dwell"]
            ),
            (&json!(format!("n{nth}/x")), area, &json!([]), &Value::Null)
        );
        assert!(fence["number"].as_u64().unwrap() > number);
        number = fence["number"].as_u64().unwrap();
        assert_eq!(world.get(&path).json(), fence);
    }
    let body = json!({"area": areas[0], "tags": ["free"], "dwell": 60}).to_string();
    let again = world.put("/v1/fleets/f/fences/n0%2Fx", &body).json();
    assert_eq!(
        (&again["tags"], &again["dwell"]),
        (&json!(["free"]), &json!(60))
    );
    assert!(again["number"].as_u64().unwrap() > number);
    assert_eq!(world.get("/v1/fleets/f").json()["tags"], json!(["free"]));
    let list = world.get("/v1/fleets/f/fences").json();
    let names = list["fences"].as_array().unwrap().iter();
    let names: Vec<&str> = names.map(|f| f["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["n1/x", "n2/x", "n3/x", "n0/x"]);

    let deleted = world.delete("/v1/fleets/f/fences/n1%2Fx");
    assert_eq!((deleted.status, deleted.text.as_str()), (204, ""));
    for answer in [
        world.delete("/v1/fleets/f/fences/n1%2Fx"),
        world.get("/v1/fleets/f/fences/n1%2Fx"),
    ] {
        assert_eq!(answer.problem(), (404, "no-such-fence".to_owned()));
        assert!(answer.detail().contains("n1/x"));
    }
    for path in ["fences", "fences/a", "events", "stream", "webhooks"] {
        let answer = world.get(&format!("/v1/fleets/none/{path}"));
        assert_eq!(
            answer.problem(),
            (404, "no-such-fleet".to_owned()),
            "{path}"
        );
    }
}

/// Areas that are none, and a part of the error.
fn bad_areas() -> Vec<(Value, &'static str)> {
    let circle =
        |center: Value, radius: i32| json!({"type": "Circle", "center": center, "radius": radius});
    let rectangle = |bbox: Value| json!({"type": "Rectangle", "bbox": bbox});
    let polygon = |ring: Value| json!({"type": "Polygon", "coordinates": [ring]});
    let corridor =
        |line: Value, width: f64| json!({"type": "Corridor", "coordinates": line, "width": width});
    let ring: Vec<[f64; 2]> = (0..10_001).map(|n| [f64::from(n) / 1e3, 1.0]).collect();
    let zigzag: Vec<[f64; 2]> = (0..60)
        .map(|n| [f64::from(n % 2 - 1) * 170.0, f64::from(n) / 2.0])
        .collect();
    vec![
        (json!({"type": "Square"}), "Square"),
        (circle(json!([18.0]), 5), "1 numbers"),
        (circle(json!([18.0, 91.0]), 5), "latitude 91"),
        (circle(json!([540, 9]), 5), "longitude 540"),
        (circle(json!([1, 9]), -5), "radius"),
        (
            json!({"type": "Circle", "centre": [1, 9], "radius": 5}),
            "centre",
        ),
        (rectangle(json!([1, 9, 2])), "length 4"),
        (rectangle(json!([1, 9, 2, 8])), "south 9"),
        (polygon(json!([[1, 9], [2, 9]])), "area"),
        (polygon(json!(ring)), "10001 positions"),
        (corridor(json!([[1, 9]]), 5.0), "1 positions"),
        (corridor(json!([[1, 9], [2, 9]]), 1e9), "metres"),
        (corridor(json!(zigzag), 1.0), "area: 20120 positions"),
    ]
}

/// Bodies that are not valid fences, and a part of the error.
fn bad_fences() -> Vec<(String, &'static str)> {
    let circle = json!({"type": "Circle", "center": [18.0, 59.0], "radius": 500});
    let with = |name: &str, value: Value| json!({"area": circle, name: value}).to_string();
    let deep = format!("{}1{}", "[".repeat(10_000), "]".repeat(10_000));
    let mut all = vec![
        (String::new(), "not JSON"),
        ("[]".to_owned(), ""),
        ("{}".to_owned(), "`area`"),
        (
            "{\"area\":{\"type\":\"Circle\",\"center\":[1,9],\"radius\":1e400}}".to_owned(),
            "",
        ),
        (
            "{\"area\":{\"type\":\"Circle\",\"center\":[NaN,9],\"radius\":1}}".to_owned(),
            "not JSON",
        ),
        (with("tags", json!(["a\u{0}b"])), "tags"),
        (with("dwell", json!(0)), "dwell"),
        (with("dwell", json!(-1)), "dwell"),
        (with("dwell", json!(1.5)), "dwell"),
        (with("cross", json!(1)), "cross"),
        (with("leave", json!(true)), "leave"),
        (
            json!({"area": circle, "enter": false, "exit": false, "cross": false}).to_string(),
            "no event",
        ),
        (format!("{{\"area\":{deep}}}"), ""),
    ];
    all.extend(
        bad_areas()
            .into_iter()
            .map(|(area, why)| (json!({ "area": area }).to_string(), why)),
    );
    all
}

#[test]
fn what_is_no_fence_is_refused_and_named() {
    let world = World::new();
    let circle = json!({"type": "Circle", "center": [18.0, 59.0], "radius": 500});
    for (body, why) in bad_fences() {
        let answer = world.put("/v1/fleets/f/fences/a", &body);
        let shown = &body[..body.len().min(100)];
        assert_eq!(
            answer.problem(),
            (400, "invalid-body".to_owned()),
            "{shown}"
        );
        let detail = answer.detail();
        assert!(
            detail.contains(why) && detail.len() < 600,
            "{shown}: {detail}"
        );
    }
    let long = "x".repeat(129);
    let right = json!({ "area": circle }).to_string();
    for name in ["..%2Fa", "a%00", &long, "%2F", "%FF"] {
        let answer = world.put(&format!("/v1/fleets/f/fences/{name}"), &right);
        assert_eq!(
            answer.problem(),
            (400, "invalid-parameter".to_owned()),
            "{name}"
        );
    }
    let large = format!("{{\"area\":{}{}}}", " ".repeat(1 << 20), circle);
    let answer = world.put("/v1/fleets/f/fences/a", &large);
    assert_eq!(answer.problem(), (413, "too-large".to_owned()));
    // Nothing was made.
    assert_eq!(world.get("/v1/fleets/f/fences").status, 404);
    assert_eq!(world.put("/v1/fleets/f/fences/a?x=1", &right).status, 400);
    let post = world.post("/v1/fleets/f/fences/a", &right);
    assert_eq!(post.problem(), (405, "method-not-allowed".to_owned()));
}

#[test]
fn fixed_fleets_and_too_many_are_named() {
    let options = Options {
        fleets_max: 2,
        ..Options::default()
    };
    let world = World::with(&options, Config::default(), None);
    world.report(&line("a", T, 1.0, 2.0));
    let circle =
        json!({"area": {"type": "Circle", "center": [18.0, 59.0], "radius": 5}}).to_string();
    assert_eq!(world.put("/v1/fleets/g/fences/a", &circle).status, 200);
    for answer in [
        world.put("/v1/fleets/h/fences/a", &circle),
        world.post("/v1/fleets/h/reports", &line("a", T, 1.0, 2.0)),
    ] {
        assert_eq!(answer.problem(), (403, "too-many-fleets".to_owned()));
        assert!(answer.detail().contains("--max-fleets"), "{}", answer.text);
    }
    // A fleet can still be made explicitly.
    assert_eq!(world.put("/v1/fleets/h", "{}").status, 200);
    world.report(&line("a", T + 1.0, 1.0, 2.0));

    let options = Options {
        fixed_fleets: true,
        ..Options::default()
    };
    let world = World::with(&options, Config::default(), None);
    let answer = world.put("/v1/fleets/f/fences/a", &circle);
    assert_eq!(answer.problem(), (404, "no-such-fleet".to_owned()));
}

#[test]
fn a_fence_makes_the_kinds_of_events_that_it_is_to() {
    let world = World::new();
    let area = |lon| json!({"type": "Circle", "center": [lon, 59.0], "radius": 500});
    let fences = [
        (
            "in",
            json!({"area": area(18.0), "exit": false, "cross": false}),
        ),
        ("out", json!({"area": area(18.1), "enter": false})),
        (
            "by",
            json!({"area": area(18.2), "enter": false, "exit": false}),
        ),
        (
            "long",
            json!({"area": area(18.3), "enter": false, "exit": false, "cross": false, "dwell": 120}),
        ),
    ];
    for (name, body) in fences {
        let made = world.put(&format!("/v1/fleets/f/fences/{name}"), &body.to_string());
        assert_eq!(made.status, 200, "{}", made.text);
        let made = made.json();
        for kind in ["enter", "exit", "cross"] {
            let right = body.get(kind).cloned().unwrap_or(json!(true));
            assert_eq!(made[kind], right, "{name}, {kind}");
        }
    }
    for round in 0..2_u32 {
        let there = [
            17.9, 18.0, 18.05, 18.1, 18.15, 18.2, 18.25, 18.3, 18.3, 18.4,
        ];
        // First through all fences, then across all of them.
        let places = if round == 0 {
            &there[..]
        } else {
            &[17.9, 18.4]
        };
        for (nth, lon) in (0_u32..).zip(places) {
            let time = T + 120.0 * f64::from(nth + 20 * round);
            world.report(&line("a", time, 59.0, *lon));
        }
    }
    let right = [
        "enter in a",
        "exit out a",
        "dwell long a",
        "cross by a",
        "cross out a",
        // There and back.
        "cross by a",
        "cross out a",
    ];
    let (mut said, mut right) = (said(&world.events()), right.map(str::to_owned).to_vec());
    said.sort_unstable();
    right.sort_unstable();
    assert_eq!(said, right);
}

#[test]
fn events_are_found_by_what_they_are() {
    let world = World::new();
    world.fence("depot", 18.0);
    world.fence("rank", 18.1);
    let area = json!({"type": "Circle", "center": [18.2, 59.0], "radius": 500});
    let body = json!({"area": area, "dwell": 60}).to_string();
    assert_eq!(world.put("/v1/fleets/f/fences/slow", &body).status, 200);
    let places = [17.9, 18.0, 18.05, 18.15, 18.2, 18.2, 18.25];
    for (nth, lon) in (0_u32..).zip(places) {
        let time = T + 60.0 * f64::from(nth);
        world.report(&line("a", time, 59.0, lon));
        world.report(&line("b", time, 59.0, 17.0));
    }
    let all = world.events();
    let right = [
        "enter depot a",
        "exit depot a",
        "cross rank a",
        "enter slow a",
        "dwell slow a",
        "exit slow a",
    ];
    assert_eq!(said(&all), right);
    assert_eq!(
        (&all[0]["time"], &all[0]["lat"], &all[0]["lon"]),
        (&json!(T + 60.0), &json!(59.0), &json!(18.0))
    );
    let find = |query: &str| {
        let json = world.get(&format!("/v1/fleets/f/events?{query}")).json();
        (
            said(json["events"].as_array().unwrap()),
            json["next"].as_u64().unwrap(),
        )
    };
    let id = |nth: usize| all[nth]["id"].as_u64().unwrap();
    assert_eq!(
        find("kind=enter&kind=cross&fence=slow&fence=rank").0,
        ["cross rank a", "enter slow a"]
    );
    assert!(find("entity=b").0.is_empty());
    let (found, next) = find("entity=b&limit=1");
    assert!(found.is_empty() && next >= id(5));
    let (found, next) = find("kind=exit&limit=1");
    assert_eq!((found, next), (vec!["exit depot a".to_owned()], id(1)));
    let (found, next) = find(&format!("kind=exit&limit=1&after={next}"));
    assert_eq!((found, next), (vec!["exit slow a".to_owned()], id(5)));
    assert_eq!(find(&format!("after={}", id(3))).0, right[4..]);
    assert_eq!(find("limit=2").1, id(1));
    let wrong = [
        "after=x",
        "after=-1",
        "after=1e3",
        "limit=0",
        "limit=10001",
        "kind=Enter",
        "fence=..",
        "wait=61",
        "wait=x",
        "after=1&after=2",
        "since=1",
        "entity=%00",
    ];
    for query in wrong {
        let answer = world.get(&format!("/v1/fleets/f/events?{query}"));
        assert_eq!(
            answer.problem(),
            (400, "invalid-parameter".to_owned()),
            "{query}"
        );
    }
}

#[test]
fn who_waits_for_events_gets_them_when_they_come() {
    let mut world = World::new();
    world.fence("depot", 18.0);
    world.report(&line("a", T, 59.0, 17.0));
    let next = |json: &Value| json["next"].as_u64().unwrap();
    let (none, time) = timed(|| world.get("/v1/fleets/f/events?wait=0.3").json());
    assert_eq!(none["events"], json!([]));
    assert!(time >= Duration::from_millis(290), "{time:?}");
    let wait = |after: u64, query: &str| {
        let url = world.url(&format!("/v1/fleets/f/events?after={after}&wait=10{query}"));
        let agent = world.agent.clone();
        thread(move || timed(|| answer(agent.get(url).call()).json()))
    };
    let (any, exits) = (wait(next(&none), ""), wait(0, "&kind=exit"));
    super::SystemClock::shared().sleep(Duration::from_millis(100));
    world.report(&line("a", T + 600.0, 59.0, 18.0));
    let (json, time) = any.join().unwrap();
    assert_eq!(said(json["events"].as_array().unwrap()), ["enter depot a"]);
    assert!(time < Duration::from_secs(5), "{time:?}");
    world.report(&line("a", T + 1200.0, 59.0, 17.0));
    let (json, _) = exits.join().unwrap();
    assert_eq!(said(json["events"].as_array().unwrap()), ["exit depot a"]);
    assert_eq!(
        world
            .get(&format!(
                "/v1/fleets/f/events?after={}&wait=0.1",
                next(&json)
            ))
            .json()["events"],
        json!([])
    );
    // A call that still waits when the server stops is answered.
    let last = wait(next(&json), "");
    eventually("it waits", || {
        let text = world.get("/metrics").text;
        text.contains("\ntracks_requests_in_flight 2\n")
    });
    let (stopped, time) = timed(|| world.server.take().unwrap().stop());
    stopped.unwrap();
    assert!(time < Duration::from_secs(6), "{time:?}");
    let (json, _) = last.join().unwrap();
    assert_eq!((&json["events"], next(&json)), (&json!([]), next(&json)));
}

#[test]
fn calls_about_fences_need_their_scopes() {
    let make = |scope, fleet: &str| {
        tokens::make(Wanted {
            name: format!("{scope:?}{fleet}"),
            scopes: vec![scope],
            fleets: vec![fleet.to_owned()],
            reports_per_second: None,
        })
        .unwrap()
    };
    let all = [
        make(Scope::Read, "f"),
        make(Scope::Fences, "f"),
        make(Scope::Admin, "f"),
        make(Scope::Read, "g"),
    ];
    let file: Vec<&str> = all.iter().map(|(_, entry)| entry.as_str()).collect();
    let tokens = Tokens::parse(&file.join("\n")).unwrap();
    let world = World::with(&Options::default(), Config::default(), Some(tokens));
    let body = json!({"area": {"type": "Circle", "center": [18.0, 59.0], "radius": 5}}).to_string();
    let call = |method: &str, path: &str, token: usize| {
        let request = ureq::http::Request::builder()
            .method(method)
            .uri(world.url(path))
            .header("authorization", format!("Bearer {}", all[token].0))
            .body(if method == "PUT" {
                body.clone()
            } else {
                String::new()
            });
        answer(world.agent.run(request.unwrap())).status
    };
    let fence = "/v1/fleets/f/fences/a";
    assert_eq!([0, 2, 3].map(|token| call("PUT", fence, token)), [403; 3]);
    assert_eq!(call("PUT", fence, 1), 200);
    let reads = [fence, "/v1/fleets/f/fences", "/v1/fleets/f/events"];
    for path in reads {
        assert_eq!(
            [0, 1, 2, 3].map(|token| call("GET", path, token)),
            [200, 403, 403, 403],
            "{path}"
        );
    }
    let stream = "/v1/fleets/f/stream";
    assert_eq!([1, 2, 3].map(|token| call("GET", stream, token)), [403; 3]);
    let hooks = "/v1/fleets/f/webhooks";
    assert_eq!(
        [0, 1, 2, 3].map(|token| call("GET", hooks, token)),
        [403, 403, 200, 403]
    );
    assert_eq!(
        [0, 1, 2].map(|token| call("DELETE", fence, token)),
        [403, 204, 403]
    );
}
