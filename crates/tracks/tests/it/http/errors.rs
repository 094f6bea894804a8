//! Refused calls, and their errors.

use super::{T, World, line};
use serde_json::{Value, json};

#[test]
fn bad_reports_are_refused_by_name() {
    let world = World::new();
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let long = "x".repeat(129);
    let with = |more: &str| format!(r#"{{"entity":"a","lat":1,"lon":2,{more}}}"#);
    let cases = [
        (with(r#""sped":1"#), "the key \"sped\" is not known"),
        (with(r#""speed":NaN"#), "not JSON"),
        (with(r#""speed":1e400"#), "too large"),
        (with(&format!(r#""speed":{deep}"#)), "speed"),
        (
            with(&format!(r#""attributes":{{"a":{deep}}}"#)),
            "attributes",
        ),
        (
            r#"{"entity":"a","lat":90.0000001,"lon":2}"#.to_owned(),
            "latitude 90.0000001",
        ),
        (
            r#"{"entity":"a","lat":1,"lon":-180.1}"#.to_owned(),
            "longitude -180.1",
        ),
        (
            r#"{"entity":"a\u0000b","lat":1,"lon":2}"#.to_owned(),
            "U+0000",
        ),
        (
            r#"{"entity":"a/../b","lat":1,"lon":2}"#.to_owned(),
            "\"..\"",
        ),
        (
            format!(r#"{{"entity":"{long}","lat":1,"lon":2}}"#),
            "129 bytes",
        ),
        (r#"{"entity":"a","lat":1}"#.to_owned(), "lon is missing"),
        (line("a", 1_700_000_000_000.0, 1.0, 2.0), "year 55840"),
    ];
    for (body, why) in cases {
        let answer = world.post("/v1/fleets/f/reports", &body);
        assert_eq!(
            answer.problem(),
            (400, "reports-refused".to_owned()),
            "{why}"
        );
        assert!(answer.detail().contains(why), "{why}: {}", answer.text);
        assert_eq!(answer.json()["refused"][0]["index"], 0);
    }
}

#[test]
fn good_reports_are_kept_beside_bad_ones() {
    let world = World::new();
    let deep = format!("{}{}", "[".repeat(10_000), "]".repeat(10_000));
    let mixed = format!(
        "[{},{deep},{}]",
        line("a", T, 1.0, 2.0),
        line("b", T, 1.0, 2.0)
    );
    let answer = world.report(&mixed);
    assert_eq!(
        (&answer["stored"], &answer["refused"][0]["index"]),
        (&json!(2), &json!(1))
    );
    for (body, kind) in [
        ("", "invalid-body"),
        ("7", "invalid-body"),
        (deep.as_str(), "reports-refused"),
        ("[", "reports-refused"),
    ] {
        let answer = world.post("/v1/fleets/f/reports", body);
        assert_eq!(answer.problem(), (400, kind.to_owned()), "{body:.20}");
    }
    assert_eq!(world.report("[]")["stored"], 0);
    // A refused report does not make a fleet.
    let refused = world.post("/v1/fleets/none/reports", "{}");
    assert_eq!(refused.status, 400);
    assert_eq!(
        world.get("/v1/fleets/none").problem(),
        (404, "no-such-fleet".to_owned())
    );
}

/// A report that is refused for its time makes neither its fleet nor its tags.
#[test]
fn what_is_refused_makes_neither_fleets_nor_tags() {
    let world = World::new();
    let report = |entity: &str, time: f64, tag: &str| {
        json!({"entity": entity, "lat": 1, "lon": 2, "time": time, "tags": [tag]}).to_string()
    };
    // The year 2100, which is ahead of the real clock.
    let ahead = 4_102_444_800.0;
    let post = |fleet: &str, body: &str| world.post(&format!("/v1/fleets/{fleet}/reports"), body);
    let is_there = |fleet: &str| world.get(&format!("/v1/fleets/{fleet}")).status == 200;
    let refused = post("none", &report("a", ahead, "ghost"));
    assert_eq!(refused.problem(), (400, "reports-refused".to_owned()));
    assert!(refused.detail().contains("ahead"), "{}", refused.text);
    assert!(!is_there("none"));
    let good = report("a", T, "bus");
    assert_eq!(post("f", &good).status, 200);
    let tags = || world.get("/v1/fleets/f").json()["tags"].clone();
    assert_eq!(
        post("f", &report("a", ahead, "ghost")).problem().1,
        "reports-refused"
    );
    assert_eq!(tags(), json!(["bus"]));
    // Beside valid ones, in the order of the call.
    let all = format!(
        "[{},{{}},{},{},{}]",
        report("a", ahead, "ghost"),
        report("b", T, "taxi"),
        report("c", ahead, "other"),
        report("d", T, "bus")
    );
    let answer = world.report(&all);
    assert_eq!(answer["stored"], 2);
    let indexes: Vec<&Value> = answer["refused"]
        .as_array()
        .unwrap()
        .iter()
        .map(|refused| &refused["index"])
        .collect();
    assert_eq!(indexes, [0, 1, 3]);
    assert_eq!(tags(), json!(["bus", "taxi"]));
    // If there would be too many tags, the reports with new tags are refused, and the others are
    // not.
    let many: Vec<String> = (0..31)
        .map(|n| report("e", T + f64::from(n), &format!("t{n}")))
        .collect();
    let answer = world.report(&format!("[{}]", many.join(",")));
    assert_eq!(
        (&answer["stored"], &answer["refused"][0]["index"]),
        (&json!(30), &json!(30))
    );
    // Devices are answered with 200, but make no fleets in this case either.
    let query = format!("/osmand?fleet=none&id=b&lat=1&lon=2&timestamp={ahead}");
    assert_eq!(world.get(&query).status, 200);
    let body = json!({"_type": "location", "lat": 1, "lon": 2, "tst": ahead}).to_string();
    assert_eq!(
        world.post("/owntracks?fleet=none&u=a&d=b", &body).status,
        200
    );
    assert!(!is_there("none"));
}

/// Paths, statuses, types, and a part of the detail.
const CALLS: &[(&str, u16, &str, &str)] = &[
    ("/v1/fleets/g/entities/a", 404, "no-such-fleet", "g"),
    ("/v1/fleets/f/entities/b", 404, "no-such-entity", "b"),
    (
        "/v1/fleets/f/entities/a%00",
        400,
        "invalid-parameter",
        "U+0000",
    ),
    (
        "/v1/fleets/f/entities/%ff",
        400,
        "invalid-parameter",
        "path",
    ),
    (
        "/v1/fleets/..%2F/within?bbox=1,2,3,4",
        400,
        "invalid-parameter",
        "no name",
    ),
    ("/v1/fleets/f/within", 400, "invalid-parameter", "bbox"),
    (
        "/v1/fleets/f/within?bbox=1,2,3,4&circle=1,2,3",
        400,
        "invalid-parameter",
        "bbox",
    ),
    (
        "/v1/fleets/f/within?bbox=1,2,3",
        400,
        "invalid-parameter",
        "west,south,east,north",
    ),
    (
        "/v1/fleets/f/within?bbox=1,NaN,3,4",
        400,
        "invalid-parameter",
        "latitude",
    ),
    (
        "/v1/fleets/f/within?bbox=1,5,3,4",
        400,
        "invalid-parameter",
        "south",
    ),
    (
        "/v1/fleets/f/within?circle=1,2,-3",
        400,
        "invalid-parameter",
        "circle",
    ),
    (
        "/v1/fleets/f/within?bbox=1,2,3,4&limit=0",
        400,
        "invalid-parameter",
        "limit",
    ),
    (
        "/v1/fleets/f/within?bbox=1,2,3,4&limit=99999",
        400,
        "invalid-parameter",
        "10000",
    ),
    (
        "/v1/fleets/f/within?bbox=1,2,3,4&cursor=x",
        400,
        "invalid-parameter",
        "cursor",
    ),
    (
        "/v1/fleets/f/within?bbox=1,2,3,4&from=0&cursor=x",
        400,
        "invalid-parameter",
        "cursor",
    ),
    (
        "/v1/fleets/f/within?bbox=1,2,3,4&from=2&to=1",
        400,
        "invalid-parameter",
        "later",
    ),
    (
        "/v1/fleets/f/within?bbox=1,2,3,4&form=2",
        400,
        "invalid-parameter",
        "\"form\"",
    ),
    (
        "/v1/fleets/f/within?bbox=1,2,3,4&from=x",
        400,
        "invalid-parameter",
        "RFC 3339",
    ),
    (
        "/v1/fleets/f/within?bbox=1,2,3,4&from=0&max_age=1",
        400,
        "invalid-parameter",
        "max_age",
    ),
    ("/v1/fleets/f/nearby?lat=1", 400, "invalid-parameter", "lon"),
    (
        "/v1/fleets/f/nearby?lat=1&lon=2&lat=3",
        400,
        "invalid-parameter",
        "2 times",
    ),
    (
        "/v1/fleets/f/nearby?lat=1&lon=2&k=1000000",
        400,
        "invalid-parameter",
        "10000",
    ),
    (
        "/v1/fleets/f/density?bbox=1,2,3,4&precision=9",
        400,
        "invalid-parameter",
        "precision",
    ),
    (
        "/v1/fleets/f/entities/a/track?format=xml",
        400,
        "invalid-parameter",
        "geojson",
    ),
    (
        "/v1/fleets/f/entities/a/track?simplify=-1",
        400,
        "invalid-parameter",
        "simplify",
    ),
    ("/v1/durable/x", 400, "invalid-receipt", "receipt"),
    (
        "/v1/durable/0123456789abcdef0123456789abcdef-7",
        410,
        "receipt-expired",
        "again",
    ),
    ("/v2", 404, "no-such-path", "openapi"),
    ("/v1/fleets/f/reports", 405, "method-not-allowed", "Allow"),
];

#[test]
fn bad_calls_are_refused_by_name() {
    let world = World::new();
    world.report(&line("a", T, 1.0, 2.0));
    for &(path, status, kind, detail) in CALLS {
        let answer = world.get(path);
        assert_eq!(answer.problem(), (status, kind.to_owned()), "{path}");
        assert!(answer.detail().contains(detail), "{path}: {}", answer.text);
    }
}

#[test]
fn bad_bodies_are_refused_by_name() {
    let world = World::new();
    world.report(&line("a", T, 1.0, 2.0));
    let post =
        |headers: &[(&str, &str)]| world.send("/v1/fleets/f/reports", headers, b"{}").problem();
    assert_eq!(
        post(&[("content-type", "text/csv")]),
        (415, "unsupported-media-type".to_owned())
    );
    assert_eq!(
        post(&[("content-encoding", "br")]),
        (415, "unsupported-media-type".to_owned())
    );
    let ack = world.post("/v1/fleets/f/reports?ack=soon", "{}");
    assert_eq!(ack.problem(), (400, "invalid-parameter".to_owned()));
    // An array is not accepted in place of an object.
    for body in [r#"[true,["bus"]]"#, "[null,null]"] {
        let refused = world.put("/v1/fleets/f", body);
        assert_eq!(refused.problem(), (400, "invalid-body".to_owned()));
    }
    let nameless = r#"[["a",1,2,null,null,null,null,null,null,null,null]]"#;
    assert_eq!(
        world.post("/v1/fleets/f/reports", nameless).problem().1,
        "reports-refused"
    );
    for (polygon, why) in [
        ("{}", "type"),
        (r#"{"type":"Point","coordinates":[]}"#, "Point"),
        (r#"{"type":"Polygon","coordinates":[]}"#, "ring"),
        (
            r#"{"type":"Polygon","coordinates":[[[1,91],[2,3],[4,5]]]}"#,
            "latitude 91",
        ),
        (
            r#"{"type":"Polygon","coordinates":[[[1],[2,3],[4,5]]]}"#,
            "1 numbers",
        ),
    ] {
        let answer = world.post("/v1/fleets/f/within", polygon);
        assert_eq!(answer.problem(), (400, "invalid-body".to_owned()));
        assert!(answer.detail().contains(why), "{}", answer.text);
    }
}
