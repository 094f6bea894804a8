//! Messages of devices, good and bad.

use super::*;
use crate::model::time::Time;

fn report(heard: &Heard) -> &Report {
    match heard {
        Heard::Report(report, _) => report,
        other => panic!("{other:?}"),
    }
}

fn wrong(heard: &Heard) -> &str {
    match heard {
        Heard::Wrong(why) => why,
        other => panic!("{other:?}"),
    }
}

fn jane() -> Owner {
    Owner {
        user: Some("jane".to_owned()),
        device: Some("phone".to_owned()),
        ..Owner::default()
    }
}

fn of(json: &str) -> Heard {
    owntracks(json.as_bytes(), &jane()).unwrap()
}

#[test]
fn owntracks_locations_are_read() {
    let heard = of(
        r#"{"_type":"location","acc":12,"alt":31,"batt":80,"bs":1,"cog":270,"conn":"m","lat":59.3293,
        "lon":18.0686,"t":"p","tid":"JP","tst":1700000000,"vac":5,"vel":50,"inregions":["home","a \"b\""],
        "created_at":1700000001,"topic":"owntracks/x/y","image":"AAAA","_id":"1","SSID":null}"#,
    );
    let r = report(&heard);
    assert_eq!(r.entity.as_str(), "jane/phone");
    assert_eq!(r.time, Some(Time(1_700_000_000_000_000)));
    assert_eq!(
        (r.point.position.lat(), r.point.position.lon()),
        (593_293_000, 180_686_000)
    );
    assert_eq!((r.point.speed, r.point.course), (Some(1389), Some(27_000)));
    assert_eq!(
        (r.point.altitude, r.point.accuracy, r.point.battery),
        (Some(3100), Some(120), Some(80))
    );
    let attributes: serde_json::Value = serde_json::from_str(&r.point.attributes).unwrap();
    let expected = serde_json::json!({"bs": 1, "conn": "m", "t": "p", "tid": "JP", "vac": 5,
        "inregions": ["home", "a \"b\""], "created_at": 1_700_000_001});
    assert_eq!(attributes, expected);
}

#[test]
fn owntracks_names_are_found() {
    let json = |more: &str| format!(r#"{{"_type":"location","lat":1,"lon":2{more}}}"#);
    let named = |owner: &Owner, more: &str| {
        owntracks(json(more).as_bytes(), owner).map(|heard| report(&heard).entity.to_string())
    };
    let some = |text: &str| Some(text.to_owned());
    let topic = |text: &str| Owner {
        topic: some(text),
        ..jane()
    };
    assert_eq!(named(&topic("owntracks/u/d"), "").unwrap(), "u/d");
    assert_eq!(named(&topic("/owntracks/u/d/more"), "").unwrap(), "u/d");
    assert_eq!(
        named(&Owner::default(), r#","topic":"owntracks/u/d""#).unwrap(),
        "u/d"
    );
    let login = Owner {
        login: some("joe"),
        ..Owner::default()
    };
    assert_eq!(named(&login, "").unwrap(), "joe");
    assert_eq!(
        named(
            &Owner {
                device: some("d"),
                ..login
            },
            ""
        )
        .unwrap(),
        "joe/d"
    );
    assert_eq!(named(&Owner::default(), "").unwrap_err(), Unusable::NoName);
    assert_eq!(
        named(&topic("owntracks"), r#","topic":"x""#).unwrap(),
        "jane/phone"
    );
    let heard = owntracks(json("").as_bytes(), &topic("owntracks/../d")).unwrap();
    assert!(wrong(&heard).contains("no name"));
}

#[test]
fn owntracks_messages_that_are_no_position() {
    for kind in [
        "transition",
        "waypoint",
        "waypoints",
        "lwt",
        "card",
        "cmd",
        "status",
        "steps",
        "new one",
    ] {
        let json = format!(r#"{{"_type":"{kind}","lat":1,"lon":2}}"#);
        assert_eq!(of(&json), Heard::Nothing(Reason::OtherType));
    }
    assert_eq!(of(""), Heard::Nothing(Reason::OtherType));
    let encrypted = owntracks(br#"{"_type":"encrypted","data":"x"}"#, &jane());
    assert_eq!(encrypted.unwrap_err(), Unusable::Encrypted);
    assert_eq!(
        of(r#"{"_type":"location","lat":0,"lon":0.0}"#),
        Heard::Nothing(Reason::NoFix)
    );
    assert_eq!(
        of(r#"{"_type":"location","tst":1}"#),
        Heard::Nothing(Reason::NoPosition)
    );
    let deep = format!(
        r#"{{"_type":"location","lat":{}1{}}}"#,
        "[".repeat(10_000),
        "]".repeat(10_000)
    );
    let cases = [
        ("{", "JSON"),
        ("[]", "JSON"),
        ("7", "JSON"),
        ("{}", "_type"),
        (r#"{"_type":7}"#, "_type"),
        (r#"{"_type":"location","lat":91,"lon":2}"#, "latitude 91"),
        (r#"{"_type":"location","lat":1,"lon":540}"#, "longitude 540"),
        (
            r#"{"_type":"location","lat":1e400,"lon":2}"#,
            "lat is no number",
        ),
        (
            r#"{"_type":"location","lat":"NaN","lon":2}"#,
            "lat is no number",
        ),
        (
            r#"{"_type":"location","lat":1,"lon":2,"tst":"soon"}"#,
            "soon",
        ),
        (
            r#"{"_type":"location","lat":1,"lon":2,"tst":-99999999999}"#,
            "year",
        ),
        (deep.as_str(), "lat"),
    ];
    for (json, why) in cases {
        let heard = of(json);
        if let Heard::Nothing(Reason::OtherType) = heard {
            assert_eq!(json, r#"{"_type":7}"#);
            continue;
        }
        let e = wrong(&heard);
        assert!(e.contains(why) && e.len() < 400, "{why}: {e}");
    }
}

#[test]
fn fields_out_of_range_are_left_out_and_attributes_are_bounded() {
    let long = "x".repeat(2000);
    let json = format!(
        r#"{{"_type":"location","lat":"1.5","lon":2,"vel":-1,"cog":-1,"batt":-1,"acc":1e9,"alt":1e300,"a":"{long}",
        "b":"{}","c":"{}","d":1}}"#,
        "y".repeat(600),
        "z".repeat(600)
    );
    let heard = of(&json);
    let Heard::Report(r, left_out) = &heard else {
        panic!("{heard:?}")
    };
    assert_eq!(
        (
            r.point.speed,
            r.point.course,
            r.point.battery,
            r.point.altitude
        ),
        (None, None, None, None)
    );
    assert_eq!(r.point.accuracy, Some(u16::MAX));
    // Speed, course, battery and altitude; the long member; and one that does not fit beside
    // another.
    assert_eq!(left_out.0, 6);
    assert!(r.point.attributes.len() <= 1024);
    let attributes: serde_json::Value = serde_json::from_str(&r.point.attributes).unwrap();
    assert_eq!(attributes["d"], 1);
    r.point.check().unwrap();
}

fn query(text: &str) -> Result<Heard, Unusable> {
    let pairs: Vec<(String, String)> = form_urlencoded::parse(text.as_bytes())
        .map(|(a, b)| (a.into_owned(), b.into_owned()))
        .collect();
    osmand(pairs.iter().map(|(a, b)| (a.as_str(), b.as_str())))
}

#[test]
fn osmand_queries_are_read() {
    let heard = query(
        "deviceid=123456&lat=59.3293&lon=18.0686&timestamp=1700000000&speed=10&bearing=90&altitude=30.5&accuracy=5\
         &hdop=1.2&batt=79.6&charge=true&ignition=false&driverUniqueId=007&name=a%20%22b%22\
         &big=12345678901234567890123",
    );
    let heard = heard.unwrap();
    let r = report(&heard);
    assert_eq!(r.entity.as_str(), "123456");
    assert_eq!(
        (r.point.speed, r.point.course, r.point.battery),
        (Some(514), Some(9000), Some(80))
    );
    let attributes: serde_json::Value = serde_json::from_str(&r.point.attributes).unwrap();
    let expected = serde_json::json!({"hdop": 1.2, "charge": true, "ignition": false, "driverUniqueId": "007",
        "name": "a \"b\"", "big": "12345678901234567890123"});
    assert_eq!(attributes, expected);
    for time in [
        "1700000000",
        "1700000000000",
        "1700000000.0",
        "2023-11-14T22:13:20Z",
        "2023-11-14T22:13:20.000%2B00:00",
        "2023-11-14T23:13:20+01:00",
        "2023-11-14%2022:13:20",
        "2023-11-14+22:13:20",
    ] {
        let heard = query(&format!("id=1&location=1,2&timestamp={time}")).unwrap();
        assert_eq!(
            report(&heard).time,
            Some(Time(1_700_000_000_000_000)),
            "{time}"
        );
    }
}

#[test]
fn osmand_queries_that_are_no_position() {
    assert_eq!(query("lat=1&lon=2").unwrap_err(), Unusable::NoName);
    assert_eq!(query("id=&lat=1&lon=2").unwrap_err(), Unusable::NoName);
    let nothing = |text: &str| match query(text).unwrap() {
        Heard::Nothing(reason) => reason,
        other => panic!("{other:?}"),
    };
    assert_eq!(nothing("id=1"), Reason::NoPosition);
    assert_eq!(nothing("id=1&notificationToken=x"), Reason::NoPosition);
    assert_eq!(nothing("id=1&lat=0&lon=0.000"), Reason::NoFix);
    assert_eq!(nothing("id=1&lat=1&lon=2&valid=false"), Reason::NoFix);
    let cases = [
        ("id=1&lat=x&lon=2", "lat=x"),
        ("id=1&lat=inf&lon=2", "lat=inf"),
        ("id=1&lat=90.0000001&lon=2", "latitude 90.0000001"),
        ("id=1&location=1", "location=1"),
        ("id=1&lat=1&lon=2&timestamp=yesterday", "yesterday"),
        ("id=1&lat=1&lon=2&timestamp=1e400", "1e400"),
        ("id=a%00b&lat=1&lon=2", "U+0000"),
    ];
    for (text, why) in cases {
        assert!(wrong(&query(text).unwrap()).contains(why), "{why}");
    }
}

#[test]
fn traccar_messages_are_read() {
    let json = r#"{"device_id":"abc","location":{"timestamp":"2023-11-14T22:13:20.500Z","uuid":"u",
        "coords":{"latitude":59.3293,"longitude":18.0686,"accuracy":4.9,"speed":5.1,"heading":90.5,"altitude":30},
        "is_moving":true,"odometer":1234.5,"event":"motionchange","activity":{"type":"in_vehicle","confidence":99},
        "battery":{"level":0.85,"is_charging":true},"extras":{"alarm":"sos","n":1}}}"#;
    let heard = traccar(json.as_bytes()).unwrap();
    let [one] = heard.as_slice() else {
        panic!("{heard:?}")
    };
    let r = report(one);
    assert_eq!(
        (r.entity.as_str(), r.time),
        ("abc", Some(Time(1_700_000_000_500_000)))
    );
    assert_eq!(
        (r.point.speed, r.point.course, r.point.battery),
        (Some(510), Some(9050), Some(85))
    );
    let attributes: serde_json::Value = serde_json::from_str(&r.point.attributes).unwrap();
    let expected = serde_json::json!({"event": "motionchange", "is_moving": true, "odometer": 1234.5,
        "activity": "in_vehicle", "charge": true, "alarm": "sos", "n": 1});
    assert_eq!(attributes, expected);
    let many = r#"{"device_id":7,"location":[{"coords":{"latitude":1,"longitude":2,"speed":-1,"heading":-1}},
        {"coords":{"latitude":0,"longitude":0}},{"event":"heartbeat"},{"coords":7},{"coords":{"latitude":"x"}},7]}"#;
    let heard = traccar(many.as_bytes()).unwrap();
    assert_eq!(
        (
            report(&heard[0]).entity.as_str(),
            report(&heard[0]).point.speed
        ),
        ("7", None)
    );
    assert_eq!(heard[1], Heard::Nothing(Reason::NoFix));
    assert_eq!(heard[2], Heard::Nothing(Reason::NoPosition));
    assert!(wrong(&heard[3]).contains("coords") && wrong(&heard[4]).contains("latitude"));
    assert!(wrong(&heard[5]).contains("location"));
    assert_eq!(
        traccar(br#"{"location":{}}"#).unwrap_err(),
        Unusable::NoName
    );
    assert!(wrong(&traccar(b"[").unwrap()[0]).contains("JSON"));
    assert!(wrong(&traccar(br#"{"device_id":"a"}"#).unwrap()[0]).contains("location"));
    let crowd = format!(
        r#"{{"device_id":"a","location":[{}]}}"#,
        vec!["{}"; 1001].join(",")
    );
    assert!(wrong(&traccar(crowd.as_bytes()).unwrap()[0]).contains("1000 at most"));
}
