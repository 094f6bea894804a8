//! The tracking service: what phones, trackers and brokers send.

use tracks::devices::{Heard, Owner, osmand, owntracks, traccar};
use tracks::mqtt::{PAYLOAD_BYTES_MAX, Packet, Reader};

/// What is heard can be stored.
fn check(heard: &Heard) {
    if let Heard::Report(report, _) = heard {
        report.point.check().expect("a point of a device can be stored");
        let text = &report.point.attributes;
        assert!(text.is_empty() || serde_json::from_str::<serde_json::Value>(text).is_ok_and(|json| json.is_object()));
    }
}

/// A message of OwnTracks, with a name from elsewhere or its own.
pub fn tracks_owntracks(data: &[u8]) {
    let Some((how, content)) = super::split(data) else {
        return;
    };
    let named = Owner { topic: Some("owntracks/u/d".to_owned()), ..Owner::default() };
    let owner = if how & 1 == 0 { named } else { Owner::default() };
    if let Ok(heard) = owntracks(content, &owner) {
        check(&heard);
    }
}

/// The pairs of a query of OsmAnd, and JSON of Traccar Client.
pub fn tracks_osmand(data: &[u8]) {
    if let Ok(all) = traccar(data) {
        all.iter().for_each(check);
    }
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    let pairs = text.split('&').filter_map(|pair| pair.split_once('='));
    if let Ok(heard) = osmand(pairs) {
        check(&heard);
    }
}

/// What a broker sends, in pieces: they do not matter.
pub fn tracks_mqtt(data: &[u8]) {
    let Some((how, content)) = super::split(data) else {
        return;
    };
    let read = |piece: usize| {
        let (mut reader, mut all) = (Reader::default(), Vec::new());
        for part in content.chunks(piece) {
            reader.add(part);
            loop {
                match reader.packet() {
                    Ok(Some(packet)) => all.push(packet),
                    Ok(None) => break,
                    Err(_) => return (all, false),
                }
            }
        }
        (all, true)
    };
    let (whole, parts) = (read(content.len().max(1)), read(usize::from(how) + 1));
    assert_eq!(whole, parts);
    for packet in whole.0 {
        if let Packet::Publish(publish) = packet {
            assert!(publish.payload.is_none_or(|payload| payload.len() <= PAYLOAD_BYTES_MAX + 70_000));
        }
    }
}

/// What fuzzing begins with.
pub fn seeds() -> Vec<(&'static str, Vec<u8>)> {
    let owntracks = "{\"_type\":\"location\",\"lat\":59.3,\"lon\":18.1,\"tst\":1700000000,\
        \"acc\":5,\"alt\":3,\"batt\":80,\
        \"cog\":90,\"vel\":50,\"tid\":\"AB\",\"topic\":\"owntracks/u/d\",\"inregions\":[\"a\"]}";
    let osmand = "id=7&lat=59.3&lon=18.1&timestamp=2023-11-14 22:13:20&speed=10&bearing=90&altitude=3\
        &accuracy=5&batt=80\
        &hdop=1.5&valid=true&location=1,2";
    let traccar = "{\"device_id\":\"7\",\"location\":[{\"timestamp\":\"2023-11-14T22:13:20.000Z\",\
        \"coords\":{\"latitude\":59.3,\
        \"longitude\":18.1,\"speed\":5,\"heading\":90,\"accuracy\":5,\"altitude\":3},\"battery\":{\"level\":0.8,\
        \"is_charging\":true},\"activity\":{\"type\":\"still\"},\"extras\":{\"a\":1}}]}";
    let mqtt = [
        &[0x20, 2, 1, 0, 0x90, 3, 0, 1, 1, 0xD0, 0, 0x32, 9][..],
        b"\0\x03a/b\0\x07{}",
        &[3],
    ];
    vec![
        ("tracks_owntracks", [owntracks.as_bytes(), &[0]].concat()),
        ("tracks_owntracks", [owntracks.as_bytes(), &[1]].concat()),
        ("tracks_osmand", osmand.as_bytes().to_vec()),
        ("tracks_osmand", traccar.as_bytes().to_vec()),
        ("tracks_mqtt", mqtt.concat()),
    ]
}
