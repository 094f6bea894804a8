//! JSON of Traccar Client 9 and later.
//!
//! ```text
//!   {"device_id":"7","location":{"timestamp":"2023-11-14T22:13:20.000Z",
//!     "coords":{"latitude":59.3,"longitude":18.1,"accuracy":5,"speed":5.1,"heading":90,"altitude":30},
//!     "battery":{"level":0.8,"is_charging":false},"is_moving":true,"odometer":1234,"event":"motionchange",
//!     "activity":{"type":"in_vehicle"},"extras":{…}}}
//! ```
//!
//! `speed` is in m/s; −1 means that a speed, a heading or a level is not known. `location` may be
//! an array.

use serde_json::Value;
use serde_json::value::RawValue;

use super::fields::{Fields, Members, cut, members, number_of, said, text_of, time_of};
use super::{Heard, POSITIONS_MAX, Unusable};
use crate::model::name::Name;

/// Reads a message, for each of its positions. Errors: the device's settings have to be changed
/// first.
///
/// ```
/// use tracks::devices::{Heard, traccar};
/// let json = br#"{"device_id":"7","location":{"coords":{"latitude":59.3,"longitude":18.1}}}"#;
/// let heard = traccar(json).unwrap();
/// let [Heard::Report(report, _)] = heard.as_slice() else { panic!() };
/// assert_eq!(report.entity.as_str(), "7");
/// ```
pub fn traccar(json: &[u8]) -> Result<Vec<Heard>, Unusable> {
    let wrong = |text: &str| Ok(vec![Heard::Wrong(text.to_owned())]);
    let all = match members(json) {
        Ok(all) => all,
        Err(e) => return wrong(&e),
    };
    let id = all.get("device_id").and_then(|raw| text_of(raw));
    let id = id.filter(|id| !id.is_empty()).ok_or(Unusable::NoName)?;
    let entity = match Name::new(&id) {
        Ok(entity) => entity,
        Err(e) => return wrong(&said(&e)),
    };
    let Some(location) = all.get("location") else {
        return wrong("the member `location` is missing");
    };
    if !location.get().starts_with('[') {
        return Ok(vec![one(location, &entity)]);
    }
    let list: Vec<&RawValue> = match serde_json::from_str(location.get()) {
        Ok(list) => list,
        Err(e) => return wrong(&cut(&format!("location: {e}"))),
    };
    if list.len() > POSITIONS_MAX {
        return wrong(&format!(
            "{} positions, and {POSITIONS_MAX} at most",
            list.len()
        ));
    }
    Ok(list.into_iter().map(|raw| one(raw, &entity)).collect())
}

fn one(raw: &RawValue, entity: &Name) -> Heard {
    match fields(raw) {
        Ok(fields) => fields.heard(entity.clone()),
        Err(e) => Heard::Wrong(e),
    }
}

/// The members of a member that is an object; none if it is missing.
fn object<'a>(all: &Members<'a>, name: &str) -> Result<Members<'a>, String> {
    match all.get(name).filter(|raw| raw.get() != "null") {
        None => Ok(Members::new()),
        Some(raw) => members(raw.get().as_bytes()).map_err(|e| format!("{name}: {e}")),
    }
}

fn fields(raw: &RawValue) -> Result<Fields, String> {
    let all = members(raw.get().as_bytes()).map_err(|e| format!("location: {e}"))?;
    let (coords, battery) = (object(&all, "coords")?, object(&all, "battery")?);
    let number = |name: &str| coords.get(name).and_then(|raw| number_of(raw));
    for name in ["latitude", "longitude"] {
        if coords.contains_key(name) && number(name).is_none() {
            return Err(format!("{name} is no number"));
        }
    }
    let time = match all.get("timestamp").filter(|raw| raw.get() != "null") {
        None => None,
        Some(raw) => {
            let text = text_of(raw).ok_or_else(|| "timestamp: it is no text".to_owned())?;
            Some(time_of(&text).map_err(|e| format!("timestamp: {e}"))?)
        }
    };
    let known = |value: Option<f64>| value.filter(|n| *n >= 0.0);
    let level = battery.get("level").and_then(|raw| number_of(raw));
    let mut fields = Fields {
        lat: number("latitude"),
        lon: number("longitude"),
        time,
        speed: known(number("speed")),
        course: known(number("heading")),
        altitude: number("altitude"),
        accuracy: known(number("accuracy")),
        battery: known(level).map(|level| level * 100.0),
        ..Fields::default()
    };
    for name in ["event", "is_moving", "odometer", "mock", "alarm"] {
        if let Some(raw) = all.get(name) {
            fields.attributes.add_raw(name, raw);
        }
    }
    if let Some(kind) = object(&all, "activity")?
        .get("type")
        .and_then(|raw| text_of(raw))
    {
        fields
            .attributes
            .add("activity", &Value::String(cut(&kind)));
    }
    if battery
        .get("is_charging")
        .is_some_and(|raw| raw.get() == "true")
    {
        fields.attributes.add("charge", &Value::Bool(true));
    }
    for (name, raw) in object(&all, "extras")? {
        fields.attributes.add_raw(&name, raw);
    }
    Ok(fields)
}
