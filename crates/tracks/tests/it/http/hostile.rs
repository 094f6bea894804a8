//! Hostile numbers, times, areas and bodies over HTTP: each is refused by name, or answered in
//! time.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};

use serde_json::{Value, json};

use super::{T, TIMEOUT, World, line, thread, timed};

/// More positions than any real polygon has.
const MILLION: usize = 1_000_000;

/// Posts a body that consists of a repeated piece, and reads the answer meanwhile: the server may
/// stop reading before the end. If the headers say that it is chunked, each piece is a chunk, and the length is not
/// announced.
pub(super) fn post_large(
    address: SocketAddr,
    (method, path): (&str, &str),
    headers: &str,
    (piece, times): (Vec<u8>, usize),
) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    // Many calls at once take long if tests share few cores; the time of the neighbour is what is
    // bounded.
    stream.set_read_timeout(Some(TIMEOUT * 4)).unwrap();
    let mut writing = stream.try_clone().unwrap();
    let len = piece.len() * times;
    let is_chunked = headers.contains("chunked");
    let mut head = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\n{headers}");
    let mut piece = piece;
    if is_chunked {
        let size = format!("{:x}\r\n", piece.len());
        piece = [size.as_bytes(), &piece, b"\r\n"].concat();
    } else {
        head.push_str(&format!("content-length: {len}\r\n"));
    }
    head.push_str("\r\n");
    let writer = thread(move || {
        // The server may have closed the connection.
        drop(writing.write_all(head.as_bytes()));
        for _ in 0..times {
            if writing.write_all(&piece).is_err() {
                return;
            }
        }
        if is_chunked {
            drop(writing.write_all(b"0\r\n\r\n"));
        }
    });
    let mut bytes = Vec::new();
    let mut piece = [0; 4096];
    let answer = loop {
        let text = String::from_utf8_lossy(&bytes).into_owned();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let len = head
                .lines()
                .find_map(|l| l.strip_prefix("content-length: "));
            if body.len() >= len.map_or(0, |len| len.parse().unwrap()) {
                let status = head.split(' ').nth(1).unwrap().parse().unwrap();
                break (status, body.to_owned());
            }
        }
        let len = stream.read(&mut piece).unwrap();
        assert!(len > 0, "{path}: no whole answer: {text:.300}");
        bytes.extend_from_slice(&piece[..len]);
    };
    drop(stream.shutdown(Shutdown::Both));
    writer.join().unwrap();
    answer
}

/// A ring with this many positions on a circle around 10, 10.
fn ring(count: usize) -> Value {
    let at = |n: usize| {
        let turn = n as f64 / count as f64 * std::f64::consts::TAU;
        json!([10.0 + turn.cos(), 10.0 + turn.sin()])
    };
    (0..count).map(at).chain([at(0)]).collect()
}

pub(super) fn polygon(rings: &[Value]) -> String {
    json!({ "type": "Polygon", "coordinates": rings }).to_string()
}

/// A comb with this many teeth: each edge is as long as the whole comb, so that all pairs have to
/// be compared.
pub(super) fn comb(teeth: usize) -> Value {
    let tooth = |n: usize| {
        let lat = n as f64 / teeth as f64;
        [json!([0.0, lat]), json!([10.0, lat + 0.4 / teeth as f64])]
    };
    let last = [json!([-1.0, 1.0]), json!([-1.0, 0.0]), json!([0.0, 0.0])];
    (0..teeth).flat_map(tooth).chain(last).collect()
}

/// A polygon with this many positions, in few bytes.
pub(super) fn flat_polygon(count: usize) -> String {
    let ring = vec!["[0,0]"; count].join(",");
    format!(r#"{{"type":"Polygon","coordinates":[[{ring}]]}}"#)
}

pub(super) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

/// The rest of the path after the fleet, and a part of the detail.
const REFUSED: &[(&str, &str)] = &[
    // Texts that are not numbers, and numbers that are too large.
    ("within?bbox=inf,2,3,4", "longitude inf"),
    ("within?bbox=1,2,3,-Infinity", "latitude -inf"),
    ("within?bbox=1,2,1e400,4", "longitude inf"),
    ("within?bbox=NaN,2,3,4", "longitude NaN"),
    ("within?bbox=-540,2,3,4", "longitude -540"),
    ("within?bbox=1,-90.0000001,3,4", "latitude -90.0000001"),
    ("within?bbox=1,2,3,4&max_age=inf", "max_age=inf"),
    ("within?bbox=1,2,3,4&max_age=NaN", "max_age=NaN"),
    ("within?circle=1,2,Infinity", "a radius of inf"),
    ("within?circle=1,2,NaN", "a radius of NaN"),
    ("within?circle=inf,2,3", "latitude inf"),
    ("within?circle=1,540,3", "longitude 540"),
    ("within?circle=1,2,20100000", "20015115"),
    ("density?bbox=inf,2,3,4", "longitude inf"),
    ("density?circle=1,2,inf", "a radius of inf"),
    ("nearby?lat=inf&lon=2", "lat=inf"),
    ("nearby?lat=1&lon=-infinity", "lon=-infinity"),
    ("nearby?lat=90.0000001&lon=2", "lat=90.0000001"),
    ("nearby?lat=1&lon=2&within=inf", "within=inf"),
    ("nearby?lat=1&lon=2&within=NaN", "within=NaN"),
    ("nearby?lat=1&lon=2&k=1000000000", "10000"),
    ("nearby?lat=1&lon=2&k=1e9", "no whole number"),
    (
        "nearby?lat=1&lon=2&k=99999999999999999999999",
        "no whole number",
    ),
    ("nearby?lat=1&lon=2&k=-1", "no whole number"),
    ("within?bbox=1,2,3,4&limit=1000000000", "10000"),
    ("entities/a/track?simplify=inf", "simplify=inf"),
    ("entities/a/track?every=inf", "every=inf"),
    ("entities/a/track?gap=1e400", "gap=1e400"),
    (
        "entities/a/track?max_points=1000000000",
        "max_points=1000000000",
    ),
    ("events?wait=inf", "wait=inf"),
    ("events?after=99999999999999999999", "no id"),
    // Years of clocks that were never set, and years that no calendar has.
    (
        "within?bbox=1,2,3,4&from=0001-01-01T00:00:00Z",
        "the year 1 ",
    ),
    ("within?bbox=1,2,3,4&to=-62135596800", "the year 1 "),
    ("entities/a/track?from=0001-01-01T00:00:00Z", "the year 1 "),
    ("entities/a/summary?to=0001-06-30T23:59:59Z", "the year 1 "),
    ("export?from=-62135596800", "the year 1 "),
    ("within?bbox=1,2,3,4&to=253402300800", "the year 10000 "),
    ("entities/a/track?to=253402300800", "the year 10000 "),
    ("entities/a/track?to=inf", "to=inf"),
    ("entities/a/track?to=1e300", "to=1e300"),
    ("entities/a/track?from=NaN", "from=NaN"),
    // Times in the wrong order.
    ("within?bbox=1,2,3,4&from=2&to=1", "from is later than to"),
    ("entities/a/track?from=2&to=1", "from is later than to"),
    (
        "entities/a/summary?from=2&to=1.999999",
        "from is later than to",
    ),
    ("export?from=2&to=1", "from is later than to"),
    ("export?entity=a&from=2&to=1", "from is later than to"),
    (
        "entities/a/track?from=9999-12-31T23:59:59Z&to=1900-01-01T00:00:00Z",
        "from is later than to",
    ),
];

#[test]
fn hostile_numbers_and_times_are_refused_by_name() {
    let world = World::new();
    world.report(&line("a", T, 1.0, 2.0));
    for (path, why) in REFUSED {
        let answer = world.get(&format!("/v1/fleets/f/{path}"));
        assert_eq!(answer.status, 400, "{path}: {:.300}", answer.text);
        assert_eq!(answer.problem().1, "invalid-parameter", "{path}");
        assert!(answer.detail().contains(why), "{path}: {}", answer.text);
    }
    // The greatest year is valid, and has no reports.
    let last = "from=1900-01-01T00:00:00Z&to=9999-12-31T23:59:59.999999Z";
    for (path, has) in [
        (format!("within?bbox=1,0,3,4&{last}"), "\"a\""),
        (format!("entities/a/track?{last}"), "\"parts\":[[{"),
        (format!("entities/a/summary?{last}"), "\"points\":1"),
        (format!("export?format=ndjson&{last}"), "\"a\""),
        (
            "entities/a/track?from=9999-01-01T00:00:00Z".to_owned(),
            "\"parts\":[]",
        ),
        (
            "entities/a/track?from=253402300799.999999".to_owned(),
            "\"parts\":[]",
        ),
    ] {
        let answer = world.get(&format!("/v1/fleets/f/{path}"));
        assert_eq!(answer.status, 200, "{path}: {}", answer.text);
        assert!(answer.text.contains(has), "{path}: {}", answer.text);
    }
}

#[test]
fn reports_of_the_years_1_and_9999_are_refused_by_name() {
    let report = |time: Value| json!({"entity": "a", "lat": 1, "lon": 2, "time": time}).to_string();
    refused_alone_and_beside_a_valid_one(&[
        (report(json!("0001-01-01T00:00:00Z")), "the year 1 "),
        (report(json!(-62_135_596_800_i64)), "the year 1 "),
        (report(json!("9999-12-31T23:59:59Z")), "ahead"),
        (report(json!(253_402_300_799_i64)), "ahead"),
        (report(json!(253_402_300_800_i64)), "the year 10000 "),
        (report(json!(1e300)), "time"),
        (report(json!("+inf")), "time"),
        (report(json!(-1e300)), "time"),
    ]);
}

#[test]
fn reports_from_impossible_places_are_refused_by_name() {
    let at =
        |lat: &str, lon: &str| format!(r#"{{"entity":"a","lat":{lat},"lon":{lon},"time":{T}}}"#);
    let with = |field: &str| format!(r#"{{"entity":"a","lat":1,"lon":2,"time":{T},{field}}}"#);
    let named = |name: &str| format!(r#"{{"entity":"{name}","lat":1,"lon":2,"time":{T}}}"#);
    refused_alone_and_beside_a_valid_one(&[
        (at("90.0000001", "2"), "latitude 90.0000001"),
        (at("-91", "2"), "latitude -91"),
        (at("1", "540"), "longitude 540"),
        (at("1", "-180.5"), "longitude -180.5"),
        (at("1e400", "2"), "lat"),
        (at("1", "-1e400"), "lon"),
        (at("\"NaN\"", "2"), "lat"),
        (at("null", "2"), "lat"),
        (with("\"speed\":-1"), "speed"),
        (with("\"speed\":1e400"), "speed"),
        (with("\"course\":720"), "course"),
        (with("\"battery\":101"), "battery"),
        (named("a\\u0000b"), "name"),
        (named(".."), "name"),
        (named(&"n".repeat(129)), "129 bytes"),
        (named(""), "name"),
    ]);
}

/// Each body is refused with its reason. Beside a valid report, each is refused with its index, and the valid one is
/// stored.
fn refused_alone_and_beside_a_valid_one(cases: &[(String, &str)]) {
    let world = World::new();
    world.report(&line("a", T, 1.0, 2.0));
    for (body, why) in cases {
        let answer = world.post("/v1/fleets/f/reports", body);
        assert_eq!(
            answer.problem(),
            (400, "reports-refused".to_owned()),
            "{body}"
        );
        assert!(answer.detail().contains(why), "{body}: {}", answer.text);
    }
    let bodies: Vec<&str> = cases.iter().map(|(body, _)| body.as_str()).collect();
    let valid = line("b", T, 1.0, 2.0);
    let answer = world.report(&format!("{}\n{valid}", bodies.join("\n")));
    assert_eq!(answer["stored"], 1);
    let refused = answer["refused"].as_array().unwrap();
    let indices: Vec<u64> = refused.iter().filter_map(|r| r["index"].as_u64()).collect();
    assert!(
        indices.iter().copied().eq(0..cases.len() as u64),
        "{answer}"
    );
    for entity in ["a", "b"] {
        let path = format!("/v1/fleets/f/entities/{entity}/summary");
        assert_eq!(world.get(&path).json()["points"], 1);
    }
}

/// The rings of polygons that are none, and a part of the error.
fn bad_rings() -> Vec<(Vec<Value>, &'static str)> {
    vec![
        // A bow, a line there and back, a point, a spike, two rings that cross, a hole outside.
        (
            vec![json!([[0, 0], [2, 2], [2, 0], [0, 2], [0, 0]])],
            "cross",
        ),
        (vec![json!([[0, 0], [1, 1], [2, 2], [0, 0]])], "ring 0"),
        (vec![json!([[0, 0], [1, 1], [0, 0]])], "ring 0"),
        (vec![json!([[5, 5], [5, 5], [5, 5], [5, 5]])], "ring 0"),
        (vec![json!([])], "ring 0"),
        (vec![], "rings with 0 positions"),
        (
            vec![ring(4), json!([[10, 10], [12, 10], [10.2, 10.2], [10, 10]])],
            "cross",
        ),
        (
            vec![ring(4), json!([[50, 50], [51, 50], [51, 51], [50, 50]])],
            "not within ring 0",
        ),
        (vec![json!([[0, 0], [540, 0], [1, 1], [0, 0]])], "540"),
        (
            vec![json!([[0, 0], [1, 90.000_000_1], [1, 1], [0, 0]])],
            "90.0000001",
        ),
        (vec![ring(10_000)], "10000 at most"),
    ]
}

/// Other areas that are none, and a part of the error.
const BAD_AREAS: &[(&str, &str)] = &[
    (
        r#"{"type":"Circle","center":[10,10],"radius":1e999}"#,
        "out of range",
    ),
    (
        r#"{"type":"Circle","center":[10,10],"radius":1e300}"#,
        "a radius of 1",
    ),
    (
        r#"{"type":"Circle","center":[10,10],"radius":-1}"#,
        "a radius of -1",
    ),
    (r#"{"type":"Circle","center":[540,10],"radius":1}"#, "540"),
    (r#"{"type":"Rectangle","bbox":[0,2,1,1]}"#, "south"),
    (
        r#"{"type":"Corridor","coordinates":[[1,1]],"width":1}"#,
        "positions",
    ),
    (
        r#"{"type":"Corridor","coordinates":[[1,1],[2,2]],"width":1e9}"#,
        "metres",
    ),
    (
        r#"{"type":"Corridor","coordinates":[[1,1],[2,2]],"width":NaN}"#,
        "expected value",
    ),
];

/// The same areas are used in queries and in fences.
#[test]
fn hostile_areas_are_refused_by_name() {
    let world = World::new();
    world.report(&line("a", T, 10.0, 10.0));
    for (rings, why) in bad_rings() {
        let asked = world.post("/v1/fleets/f/within", &polygon(&rings));
        assert_eq!(asked.status, 400, "{why}: {:.300}", asked.text);
        assert_eq!(
            asked.problem(),
            (400, "invalid-body".to_owned()),
            "{why}: {:.300}",
            asked.text
        );
        let body = format!(r#"{{"area":{}}}"#, polygon(&rings));
        let made = world.put("/v1/fleets/f/fences/x", &body);
        assert_eq!(
            made.problem(),
            (400, "invalid-body".to_owned()),
            "{why}: {:.300}",
            made.text
        );
        for answer in [asked, made] {
            assert!(answer.detail().contains(why), "{why}: {}", answer.text);
            assert!(answer.text.len() < 1000, "{}", answer.text);
        }
    }
    for (area, why) in BAD_AREAS {
        let made = world.put("/v1/fleets/f/fences/x", &format!(r#"{{"area":{area}}}"#));
        assert_eq!(
            made.problem(),
            (400, "invalid-body".to_owned()),
            "{area}: {}",
            made.text
        );
        assert!(made.detail().contains(why), "{area}: {}", made.text);
    }
    assert_eq!(world.get("/v1/fleets/f/fences").json()["fences"], json!([]));
    // A polygon with the most positions is accepted, and answered soon.
    world.report(&line("b", T, 0.5, -0.5));
    for most in [ring(9_999), comb(4_998)] {
        let most = polygon(&[most]);
        let (found, time) = timed(|| world.post("/v1/fleets/f/within", &most));
        assert_eq!(
            found.json()["results"].as_array().unwrap().len(),
            1,
            "{:.300}",
            found.text
        );
        assert!(time.as_secs() < 10, "{time:?}");
    }
}

/// A large compressed body is refused at the limit of a polygon's body, before it is decompressed
/// as a whole.
#[test]
fn polygons_of_a_million_positions_are_refused_at_the_limit_of_their_bodies() {
    let world = World::new();
    world.report(&line("a", T, 1.0, 2.0));
    let polygon = flat_polygon(MILLION);
    let fence = format!(r#"{{"area":{polygon}}}"#);
    let (plain, packed) = (polygon.clone().into_bytes(), gzip(polygon.as_bytes()));
    assert!(plain.len() > 5 << 20 && packed.len() < 64 << 10);
    for (headers, body) in [("", plain), ("content-encoding: gzip\r\n", packed)] {
        let (status, text) = post_large(
            world.address(),
            ("POST", "/v1/fleets/f/within"),
            headers,
            (body, 1),
        );
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(
            (status, &json["type"]),
            (413, &json!("/problems/too-large")),
            "{text}"
        );
        assert_eq!(json["limit"], 1 << 20, "{text}");
    }
    // Empty positions take even fewer bytes each; and other calls have limits of their own.
    let nothing = format!(
        "{{\"area\":{{\"type\":\"Polygon\",\"coordinates\":[[{}]]}}}}",
        "[],".repeat(20 << 20)
    );
    for (path, body, limit) in [
        ("/v1/fleets/f/fences/x", fence.as_bytes(), 1 << 20),
        ("/v1/fleets/f/fences/x", nothing.as_bytes(), 1 << 20),
        ("/v1/fleets/f/webhooks/x", nothing.as_bytes(), 64 << 10),
        ("/v1/fleets/f", nothing.as_bytes(), 64 << 10),
    ] {
        let request = world
            .agent
            .put(world.url(path))
            .header("content-encoding", "gzip");
        let answer = super::answer(request.send(gzip(body)));
        assert_eq!(
            answer.problem(),
            (413, "too-large".to_owned()),
            "{path}: {:.300}",
            answer.text
        );
        assert_eq!(answer.json()["limit"], limit, "{path}: {}", answer.text);
    }
    assert_eq!(world.get("/v1/fleets/f/entities/a").status, 200);
}

/// 20,000 km are nearly half of the way around the Earth: the circle contains everything except the
/// surroundings of the antipode.
#[test]
fn circles_of_20_000_km_are_answered_in_time() {
    let world = World::new();
    let places = [
        ("a", 1.0, 2.0),
        ("b", 89.9, -120.0),
        ("c", -60.0, 179.9),
        ("other side", -1.0, -178.0),
    ];
    let lines: Vec<String> = places
        .iter()
        .map(|(name, lat, lon)| line(name, T, *lat, *lon))
        .collect();
    assert_eq!(world.report(&lines.join("\n"))["stored"], 4);
    let names = |json: &Value| {
        let all = json["results"].as_array().unwrap().iter();
        let mut all: Vec<String> = all
            .map(|e| {
                e["entity"]
                    .as_str()
                    .unwrap_or_else(|| panic!("{json}"))
                    .to_owned()
            })
            .collect();
        all.sort();
        all
    };
    for more in ["", "&geodesic=true", "&from=0", "&geodesic=true&from=0"] {
        let path = format!("/v1/fleets/f/within?circle=1,2,20000000{more}");
        let (found, time) = timed(|| world.get(&path));
        assert_eq!(found.status, 200, "{path}: {}", found.text);
        assert_eq!(names(&found.json()), ["a", "b", "c"], "{path}");
        assert!(time.as_secs() < 5, "{path}: {time:?}");
    }
    let near = world.get("/v1/fleets/f/nearby?lat=1&lon=2&k=10000&within=20000000");
    assert_eq!(names(&near.json()), ["a", "b", "c"]);
    let all = world.get("/v1/fleets/f/nearby?lat=1&lon=2&k=10000&within=1e308");
    assert_eq!(names(&all.json()).len(), 4);
    let density = world.get("/v1/fleets/f/density?circle=1,2,20000000&precision=8");
    assert_eq!(density.status, 200, "{}", density.text);
    // As a fence, too: it makes one event when an entity comes from the other side.
    let area = json!({"type": "Circle", "center": [2, 1], "radius": 20_000_000});
    let fence = world.put(
        "/v1/fleets/f/fences/x",
        &json!({"area": area, "cross": false}).to_string(),
    );
    assert_eq!(fence.status, 200, "{}", fence.text);
    world.report(&line("other side", T + 100_000.0, 0.0, 90.0));
    let events = world.events();
    assert_eq!(events.len(), 1, "{events:?}");
    assert_eq!(
        (&events[0]["kind"], &events[0]["entity"]),
        (&json!("enter"), &json!("other side"))
    );
}
