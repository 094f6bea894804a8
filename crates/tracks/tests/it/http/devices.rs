//! Phones and trackers over HTTP.

use serde_json::{Value, json};
use tracks::http::Config;
use tracks::http::tokens::{self, Scope, Tokens, Wanted};
use tracks::service::Options;

use super::{Answer, World, answer};

const OWNTRACKS: &str =
    r#"{"_type":"location","lat":59.3,"lon":18.1,"tst":1700000000,"vel":36,"batt":80,"tid":"JP"}"#;

fn entity(world: &World, fleet: &str, name: &str) -> Value {
    let name = name.replace('/', "%2F");
    let answer = world.get(&format!("/v1/fleets/{fleet}/entities/{name}"));
    assert_eq!(answer.status, 200, "{}", answer.text);
    answer.json()
}

/// The value of a counter in the metrics.
fn count(world: &World, protocol: &str, outcome: &str) -> u64 {
    let text = world.get("/metrics").text;
    let name =
        format!("tracks_device_messages_total{{protocol=\"{protocol}\",outcome=\"{outcome}\"}} ");
    let line = text.lines().find_map(|line| line.strip_prefix(&name));
    line.unwrap_or_else(|| panic!("{name}: {text:.3000}"))
        .parse()
        .unwrap()
}

fn is_empty_list(answer: &Answer) {
    assert_eq!((answer.status, answer.text.as_str()), (200, "[]"));
    assert_eq!(answer.header("content-type"), "application/json");
}

#[test]
fn owntracks_reports_are_taken() {
    let world = World::new();
    let headers = [
        ("X-Limit-U", "jane"),
        ("X-Limit-D", "phone"),
        ("content-type", "application/json"),
    ];
    is_empty_list(&world.send("/owntracks", &headers, OWNTRACKS.as_bytes()));
    let at = entity(&world, "devices", "jane/phone");
    assert_eq!(
        (&at["speed"], &at["battery"], &at["time"]),
        (&json!(10.0), &json!(80), &json!(1_700_000_000.0))
    );
    assert_eq!(at["attributes"], json!({"tid": "JP"}));
    // Again, with the fleet and the names in the URL.
    is_empty_list(&world.post("/owntracks?fleet=family&u=joe&d=watch", OWNTRACKS));
    entity(&world, "family", "joe/watch");
    let basic = [("authorization", "Basic amFuZTpzZWNyZXQ=")];
    is_empty_list(&world.send("/owntracks", &basic, OWNTRACKS.as_bytes()));
    entity(&world, "devices", "jane");
    for (body, outcome) in [
        (OWNTRACKS, "same"),
        ("", "other_type"),
        (r#"{"_type":"lwt","tst":1}"#, "other_type"),
        (r#"{"_type":"location","lat":0,"lon":0}"#, "no_fix"),
        (r#"{"_type":"location"}"#, "no_position"),
        (r#"{"_type":"location","lat":95,"lon":0}"#, "refused"),
        (
            r#"{"_type":"location","lat":1,"lon":2,"tst":9999999999}"#,
            "refused",
        ),
        ("no JSON", "refused"),
    ] {
        let before = count(&world, "owntracks", outcome);
        is_empty_list(&world.send("/owntracks", &headers, body.as_bytes()));
        assert_eq!(
            count(&world, "owntracks", outcome),
            before + 1,
            "{outcome}: {body}"
        );
    }
    // A fault that a change of the app's settings can fix is an error.
    let encrypted = world.send(
        "/owntracks",
        &headers,
        br#"{"_type":"encrypted","data":"x"}"#,
    );
    assert_eq!(
        encrypted.problem(),
        (415, "unsupported-media-type".to_owned())
    );
    assert!(encrypted.detail().contains("encryption key"));
    let nobody = world.post("/owntracks", OWNTRACKS);
    assert_eq!(nobody.problem(), (400, "invalid-parameter".to_owned()));
    assert_eq!(count(&world, "owntracks", "unusable"), 2);
    assert_eq!(count(&world, "owntracks", "stored"), 3);
}

#[test]
fn a_clock_ahead_is_acknowledged_and_clamped_where_the_fleet_says_so() {
    let world = World::new();
    let ahead = "/osmand?fleet=f&id=7&lat=1&lon=2&timestamp=9999999999";
    assert_eq!(world.get(ahead).status, 200);
    assert_eq!(
        (
            count(&world, "osmand", "refused"),
            count(&world, "osmand", "stored")
        ),
        (1, 0)
    );
    assert_eq!(
        world.get("/v1/fleets/f/entities/7").problem().1,
        "no-such-fleet"
    );
    world.put("/v1/fleets/f", r#"{"clamp_times":true}"#);
    assert_eq!(world.get(ahead).status, 200);
    assert_eq!(count(&world, "osmand", "stored"), 1);
    entity(&world, "f", "7");
}

#[test]
fn osmand_reports_are_taken() {
    let world = World::new();
    let taken = world.get("/osmand?id=1&lat=59.3&lon=18.1&timestamp=2023-11-14%2022:13:20&speed=10&batt=79.6&hdop=1.2");
    assert_eq!((taken.status, taken.text.as_str()), (200, ""));
    let at = entity(&world, "devices", "1");
    assert_eq!((&at["speed"], &at["battery"]), (&json!(5.14), &json!(80)));
    assert_eq!(
        (&at["attributes"], &at["time"]),
        (&json!({"hdop": 1.2}), &json!(1_700_000_000.0))
    );
    let form = [("content-type", "application/x-www-form-urlencoded")];
    assert_eq!(
        world
            .send(
                "/osmand",
                &form,
                b"id=2&lat=1&lon=2&timestamp=1700000000000"
            )
            .status,
        200
    );
    assert_eq!(
        entity(&world, "devices", "2")["time"],
        json!(1_700_000_000.0)
    );
    assert_eq!(world.post("/osmand?id=3&lat=1&lon=2", "").status, 200);
    entity(&world, "devices", "3");
    assert_eq!(
        world.get("/osmand?lat=1&lon=2").problem(),
        (400, "invalid-parameter".to_owned())
    );
    assert_eq!(
        world.get("/osmand?id=1&lat=1&lon=2&fleet=..").problem(),
        (400, "invalid-parameter".to_owned())
    );
    // A picture on a page of another site reports nothing, although it is fetched by GET.
    for (header, site) in [
        ("sec-fetch-site", "cross-site"),
        ("origin", "https://elsewhere.example"),
    ] {
        let path = world.url("/osmand?id=4&lat=1&lon=2&fleet=made");
        let refused = answer(world.agent.get(path).header(header, site).call());
        assert_eq!(refused.problem(), (403, "forbidden".to_owned()));
    }
    assert_eq!(world.get("/v1/fleets/made").status, 404);
    // A message that is too large is acknowledged, so that it is not sent for ever.
    let large = format!("id=1&lat=1&lon=2&x={}", "x".repeat(1_100_000));
    assert_eq!(world.send("/osmand", &form, large.as_bytes()).status, 200);
    assert_eq!(count(&world, "osmand", "refused"), 1);
    let fixed = Options {
        fixed_fleets: true,
        ..Options::default()
    };
    let world = World::with(&fixed, Config::default(), None);
    assert_eq!(
        world.get("/osmand?id=1&lat=1&lon=2").problem(),
        (404, "no-such-fleet".to_owned())
    );
}

#[test]
fn traccar_client_reports_are_taken() {
    let world = World::new();
    let one = json!({"timestamp": "2023-11-14T22:13:20.000Z", "coords": {"latitude": 59.3, "longitude": 18.1,
        "speed": 5.0, "heading": -1}, "battery": {"level": 0.5, "is_charging": true}, "event": "motionchange"});
    let json = [("content-type", "application/json; charset=utf-8")];
    let body = json!({"device_id": "4", "location": one}).to_string();
    assert_eq!(
        world.send("/osmand?fleet=f", &json, body.as_bytes()).status,
        200
    );
    let at = entity(&world, "f", "4");
    assert_eq!(
        (&at["speed"], &at["battery"], &at["course"]),
        (&json!(5.0), &json!(50), &Value::Null)
    );
    assert_eq!(
        at["attributes"],
        json!({"event": "motionchange", "charge": true})
    );
    let two =
        json!({"device_id": "4", "location": [one, {"coords": {"latitude": 0, "longitude": 0}}]})
            .to_string();
    assert_eq!(
        world.send("/osmand?fleet=f", &json, two.as_bytes()).status,
        200
    );
    assert_eq!(
        (
            count(&world, "traccar", "same"),
            count(&world, "traccar", "no_fix")
        ),
        (1, 1)
    );
}

#[test]
fn tokens_come_in_the_way_that_a_device_can() {
    let make = |name: &str, fleets: &[&str], rate| {
        let fleets = fleets.iter().map(|f| (*f).to_owned()).collect();
        let wanted = Wanted {
            name: name.to_owned(),
            scopes: vec![Scope::Ingest],
            fleets,
            reports_per_second: rate,
        };
        tokens::make(wanted).unwrap()
    };
    let (one, a) = make("one", &["taxis"], None);
    let (two, b) = make("two", &["x", "devices"], Some(1));
    let tokens = Tokens::parse(&[a, b].join("\n")).unwrap();
    let world = World::with(&Options::default(), Config::default(), Some(tokens));
    let path = "/osmand?id=1&lat=1&lon=2";
    assert_eq!(world.get(path).problem(), (401, "unauthorized".to_owned()));
    assert_eq!(
        world.get(&format!("{path}&token=istk_wrong")).problem().0,
        401
    );
    // The device's fleet is the token's only one.
    assert_eq!(world.get(&format!("{path}&token={one}")).status, 200);
    assert_eq!(
        world.get(&format!("{path}&token={one}&fleet=taxis")).status,
        200
    );
    assert_eq!(world.get_as(path, &one).status, 200);
    let forbidden = world.get(&format!("{path}&token={one}&fleet=devices"));
    assert_eq!(forbidden.problem(), (403, "forbidden".to_owned()));
    use base64::Engine as _;
    let basic = format!(
        "Basic {}",
        base64::engine::general_purpose::STANDARD.encode(format!("jane:{two}"))
    );
    let send = || {
        answer(
            world
                .agent
                .post(world.url("/owntracks"))
                .header("authorization", &basic)
                .send(OWNTRACKS),
        )
    };
    assert_eq!(send().status, 200);
    let over = (0..5)
        .map(|_| send())
        .find(|answer| answer.status != 200)
        .unwrap();
    assert_eq!(over.problem(), (429, "rate-exceeded".to_owned()));
    // A token in the URL is only for devices.
    assert_eq!(
        world.get(&format!("/v1/fleets?token={one}")).problem().0,
        401
    );
}
