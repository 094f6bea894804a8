//! Objects of reports: accepted and refused ones.

use super::*;

fn error(text: &str) -> String {
    let e = report(text).unwrap_err();
    assert!(record::goes_on(&e));
    let text = e.to_string();
    assert!(text.len() < 400, "{text}");
    text
}

#[test]
fn what_all_fields_say() {
    let (report, tags) = report(
        r#" {"entity":"caf\u00e9","lat":59.3293,"lon":-1.80686e1,"time":1700000000.123456,
        "speed":13.895,"course":360,"altitude":-0.5,"accuracy":5.25,"battery":79.6,
        "tags":["a","b\"c"],"attributes":{ "x" : [1.50, "a b\" "], "n":12345678901234567890123}} "#,
    )
    .unwrap();
    assert_eq!(report.entity.as_str(), "café");
    assert_eq!(report.time, Some(Time(1_700_000_000_123_456)));
    let point = report.point;
    assert_eq!(
        point.position,
        Position::of_units(593_293_000, -180_686_000).unwrap()
    );
    assert_eq!(
        (point.speed, point.course, point.altitude),
        (Some(1390), Some(0), Some(-50))
    );
    assert_eq!(
        (point.accuracy, point.battery, point.lag),
        (Some(53), Some(80), 0)
    );
    assert_eq!(tags, ["a", "b\"c"]);
    assert_eq!(
        point.attributes,
        r#"{"x":[1.50,"a b\" "],"n":12345678901234567890123}"#
    );
}

#[test]
fn what_is_not_there_is_not_known() {
    let (report, tags) = report(
        r#"{"lon":180,"lat":0,"entity":"a","time":null,"speed":null,"tags":null,"attributes":{ }}"#,
    )
    .unwrap();
    assert_eq!(
        report.point,
        Point::at(Position::of_degrees(0.0, 180.0).unwrap())
    );
    assert_eq!((report.time, tags.len()), (None, 0));
    let named = Name::new("other").unwrap();
    let found = report_of(r#"{"lat":1,"lon":2,"x":[[1]]}"#, Some(&named), true).unwrap();
    assert_eq!(found.0.entity, named);
}

#[test]
fn what_is_wrong_is_refused_by_name() {
    let with = |field: &str| format!(r#"{{"entity":"a","lat":1,"lon":2,{field}}}"#);
    let fields = [
        (r#""speed":-1"#, "speed -1"),
        (r#""speed":"3""#, "speed is \"\\\"3\\\"\", and not a number"),
        (r#""speed":1e400"#, "speed is \"1e400\", which is too large"),
        (r#""speed":NaN"#, "expected value"),
        (r#""course":361"#, "course 361"),
        (r#""altitude":1e9"#, "altitude"),
        (r#""accuracy":-0.1"#, "accuracy"),
        (r#""battery":101"#, "battery 101"),
        (r#""battery":true"#, "battery is \"true\", and not a number"),
        (r#""time":"0001-01-01T00:00:00Z""#, "year 1 "),
        (r#""time":1700000000000"#, "year 55840"),
        (r#""time":"now""#, "time is \"now\""),
        (r#""time":{}"#, "time is"),
        (r#""tags":"a""#, "tags is"),
        (r#""tags":[1]"#, "tags is"),
        (r#""tags":[""]"#, "is no tag"),
        (r#""attributes":[]"#, "attributes are no JSON object"),
        (
            r#""attributes":{"a":1e400}"#,
            "attributes are no JSON object",
        ),
        (r#""attributes":{"a":1 2}"#, "not JSON"),
        (
            r#""colour":1"#,
            "the key \"colour\" is not known; there are entity",
        ),
        (r#""lat":1"#, "\"lat\" is there twice"),
    ];
    for (field, why) in fields {
        let e = error(&with(field));
        assert!(e.contains(why), "{field}: {e}");
    }
    let many = format!(r#""tags":{:?}"#, ["t"; 33]);
    assert!(error(&with(&many)).contains("33 tags"));
    let large = format!(r#""attributes":{{"a":"{}"}}"#, "x".repeat(1020));
    assert!(error(&with(&large)).contains("1024"));
}

#[test]
fn what_is_no_report_is_refused() {
    let deep = |open: &str, close: &str| open.repeat(10_000) + &close.repeat(10_000);
    let deep_list = format!(
        r#"{{"entity":"a","lat":1,"lon":2,"attributes":{{"a":{}}}}}"#,
        deep("[", "]")
    );
    let deep_speed = format!(
        r#"{{"entity":"a","lat":1,"lon":2,"speed":{}}}"#,
        deep("[", "]")
    );
    let deep_entity = deep(r#"{"entity":"#, "}");
    let few = format!(
        r#"{{"entity":"a","lat":1,"lon":2,"attributes":{{"a":{}}}}}"#,
        "[".repeat(200) + &"]".repeat(200)
    );
    let long = format!(r#"{{"entity":"{}","lat":1,"lon":2}}"#, "x".repeat(129));
    let cases = [
        ("", "EOF"),
        ("[]", "an object"),
        ("7", "an object"),
        ("{} x", "trailing"),
        ("{", "EOF"),
        ("{}", "lat is missing"),
        (r#"{"lat":1,"lon":2}"#, "entity is missing"),
        (
            r#"{"entity":7,"lat":1,"lon":2}"#,
            "entity is \"7\", and not a string",
        ),
        (r#"{"entity":"","lat":1,"lon":2}"#, "empty"),
        (r#"{"entity":"..","lat":1,"lon":2}"#, "\"..\""),
        (r#"{"entity":"a\u0000","lat":1,"lon":2}"#, "U+0000"),
        (r#"{"entity":"\ud800","lat":1,"lon":2}"#, "not a string"),
        (long.as_str(), "129 bytes"),
        (
            r#"{"entity":"a","lat":90.0000001,"lon":2}"#,
            "latitude 90.0000001",
        ),
        (r#"{"entity":"a","lat":0,"lon":540}"#, "longitude 540"),
        (r#"{"entity":"a","lat":0}"#, "lon is missing"),
        (r#"{"entity":"a","lat":"0","lon":1}"#, "lat is"),
        (deep_list.as_str(), "attributes"),
        (few.as_str(), "recursion"),
        (deep_speed.as_str(), "speed is"),
        (deep_entity.as_str(), "expected value"),
    ];
    for (text, why) in cases {
        let e = error(text);
        assert!(e.contains(why), "{text:.60}: {e}");
    }
}

/// In CSV and GPX, attributes are unchecked text: they must be valid JSON before spaces are
/// removed.
#[test]
fn attributes_are_json_before_spaces_go() {
    assert_eq!(
        attributes(r#" { "a" : [1, 2] } "#).unwrap(),
        r#"{"a":[1,2]}"#
    );
    for bad in [r#"{"a":1 2}"#, r#"{"a":tr ue}"#, "", "{"] {
        let e = attributes(bad).unwrap_err().to_string();
        assert!(e.contains("no JSON object"), "{bad}: {e}");
    }
    let spaces = format!("{{{}}}", " ".repeat(1 << 20));
    assert!(attributes(&spaces).is_err());
}
