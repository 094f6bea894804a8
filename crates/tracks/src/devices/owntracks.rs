//! OwnTracks: JSON over HTTP or MQTT, as <https://owntracks.org/booklet/tech/json/> describes it.
//!
//! ```text
//!   {"_type":"location","lat":59.3,"lon":18.1,"tst":1700000000,"acc":10,"alt":30,"batt":80,"cog":90,"vel":50,…}
//! ```
//!
//! `vel` is in km/h. An entity is called `USER/DEVICE`, as in the topic `owntracks/USER/DEVICE`.
//! Over HTTP, the headers `X-Limit-U` and `X-Limit-D` or the parameters `u` and `d` give the same;
//! without them the member `topic` does, and as a last resort the user of the authorization alone.

use super::fields::{
    Fields, KILOMETRE_PER_HOUR, Members, cut, members, number_of, said, text_of, time_of,
};
use super::{Heard, Reason, Unusable};
use crate::model::name::Name;

/// The owner of a message, as far as it is known without reading the message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// The user that the request names.
    pub user: Option<String>,
    /// The device that the request names.
    pub device: Option<String>,
    /// The user of the authorization.
    pub login: Option<String>,
    /// The topic of MQTT.
    pub topic: Option<String>,
}

/// Members that become fields, or have nothing to do with the position.
const NOT_ATTRIBUTES: [&str; 12] = [
    "_type", "_id", "topic", "lat", "lon", "tst", "acc", "alt", "batt", "cog", "vel", "image",
];

/// Reads a message. Errors: the device's settings have to be changed first.
///
/// ```
/// use tracks::devices::{Heard, Owner, owntracks};
/// let owner = Owner { topic: Some("owntracks/jane/phone".to_owned()), ..Owner::default() };
/// let json = br#"{"_type":"location","lat":59.3,"lon":18.1,"tst":1700000000,"vel":36}"#;
/// let Ok(Heard::Report(report, _)) = owntracks(json, &owner) else { panic!() };
/// assert_eq!((report.entity.as_str(), report.point.speed), ("jane/phone", Some(1000)));
/// ```
pub fn owntracks(json: &[u8], owner: &Owner) -> Result<Heard, Unusable> {
    // An empty message removes a friend from an app's list.
    if json.is_empty() {
        return Ok(Heard::Nothing(Reason::OtherType));
    }
    let all = match members(json) {
        Ok(all) => all,
        Err(e) => return Ok(Heard::Wrong(e)),
    };
    let kind = all.get("_type").and_then(|raw| text_of(raw));
    match kind.as_deref() {
        Some("location") => location(&all, owner),
        Some("encrypted") => Err(Unusable::Encrypted),
        Some(_) => Ok(Heard::Nothing(Reason::OtherType)),
        None => Ok(Heard::Wrong("the member `_type` is missing".to_owned())),
    }
}

fn location(all: &Members<'_>, owner: &Owner) -> Result<Heard, Unusable> {
    let name = name(all, owner).ok_or(Unusable::NoName)?;
    let entity = match Name::new(&name) {
        Ok(entity) => entity,
        Err(e) => return Ok(Heard::Wrong(said(&e))),
    };
    let number = |name: &str| all.get(name).and_then(|raw| number_of(raw));
    for name in ["lat", "lon"] {
        if all.contains_key(name) && number(name).is_none() {
            return Ok(Heard::Wrong(format!("{name} is no number")));
        }
    }
    let time = match all.get("tst").filter(|raw| raw.get() != "null") {
        None => None,
        Some(raw) => match text_of(raw)
            .ok_or_else(|| cut("tst is no time"))
            .and_then(|text| time_of(&text))
        {
            Ok(time) => Some(time),
            Err(e) => return Ok(Heard::Wrong(format!("tst: {e}"))),
        },
    };
    let mut fields = Fields {
        lat: number("lat"),
        lon: number("lon"),
        time,
        speed: number("vel").map(|v| v * KILOMETRE_PER_HOUR),
        course: number("cog"),
        altitude: number("alt"),
        accuracy: number("acc"),
        battery: number("batt"),
        ..Fields::default()
    };
    for (name, raw) in all {
        if !NOT_ATTRIBUTES.contains(&name.as_ref()) {
            fields.attributes.add_raw(name, raw);
        }
    }
    Ok(fields.heard(entity))
}

/// The entity's name, if it is given anywhere.
fn name(all: &Members<'_>, owner: &Owner) -> Option<String> {
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    if let Some(name) = owner.topic.as_deref().and_then(of_topic) {
        return Some(name);
    }
    let (user, device) = (given(&owner.user), given(&owner.device));
    if let (Some(user), Some(device)) = (&user, &device) {
        return Some(format!("{user}/{device}"));
    }
    let topic = all.get("topic").and_then(|raw| text_of(raw));
    if let Some(name) = topic.as_deref().and_then(of_topic) {
        return Some(name);
    }
    match (user.or_else(|| given(&owner.login)), device) {
        (Some(user), Some(device)) => Some(format!("{user}/{device}")),
        (user, device) => user.or(device),
    }
}

/// `USER/DEVICE` of `owntracks/USER/DEVICE` and its subtopics.
fn of_topic(topic: &str) -> Option<String> {
    let mut parts = topic.trim_start_matches('/').split('/').skip(1);
    let (user, device) = (parts.next()?, parts.next()?);
    (!user.is_empty() && !device.is_empty()).then(|| format!("{user}/{device}"))
}
