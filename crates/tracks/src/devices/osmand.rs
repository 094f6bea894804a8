//! The query of OsmAnd, Traccar Client before 9, and many trackers: <https://www.traccar.org/osmand/>.
//!
//! ```text
//!   ?id=7&lat=59.3&lon=18.1&timestamp=1700000000&speed=10&bearing=90&altitude=30&accuracy=5&batt=80&…
//! ```
//!
//! `speed` is in knots; `timestamp` is seconds or milliseconds since 1970, RFC 3339, or
//! `yyyy-MM-dd HH:mm:ss`, which is taken as UTC. Unknown parameters become attributes.

use super::fields::{Fields, KNOT, finite, said, time_of};
use super::{Heard, Reason, Unusable};
use crate::model::name::Name;

/// Reads the pairs of a query or a form. Errors: the device's settings have to be changed first.
///
/// ```
/// use tracks::devices::{Heard, osmand};
/// let pairs = [("id", "7"), ("lat", "59.3"), ("lon", "18.1"), ("speed", "10")];
/// let Ok(Heard::Report(report, _)) = osmand(pairs) else { panic!() };
/// assert_eq!((report.entity.as_str(), report.point.speed), ("7", Some(514)));
/// ```
pub fn osmand<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Result<Heard, Unusable> {
    let mut fields = Fields::default();
    let (mut id, mut is_valid, mut wrong) = (None, true, None);
    for (name, value) in pairs {
        let mut number = || {
            let number = finite(value);
            if number.is_none() {
                fields.attributes.add_text(name, value);
            }
            number
        };
        match name {
            "id" | "deviceid" => id = Some(value),
            "valid" => is_valid = matches!(value, "1" | "true"),
            "timestamp" => match time_of(value) {
                Ok(time) => fields.time = Some(time),
                Err(e) => wrong = Some(format!("timestamp: {e}")),
            },
            "lat" | "lon" => match finite(value) {
                Some(degrees) if name == "lat" => fields.lat = Some(degrees),
                Some(degrees) => fields.lon = Some(degrees),
                None => wrong = Some(format!("{name}={value:.40}: this is no number")),
            },
            "location" => match value
                .split_once(',')
                .and_then(|(lat, lon)| finite(lat).zip(finite(lon)))
            {
                Some((lat, lon)) => (fields.lat, fields.lon) = (Some(lat), Some(lon)),
                None => wrong = Some(format!("location={value:.40}: it is latitude,longitude")),
            },
            "speed" => fields.speed = number().map(|knots| knots * KNOT),
            "bearing" | "heading" => fields.course = number(),
            "altitude" => fields.altitude = number(),
            "accuracy" => fields.accuracy = number(),
            "batt" => fields.battery = number(),
            _ => fields.attributes.add_text(name, value),
        }
    }
    let id = id.filter(|id| !id.is_empty()).ok_or(Unusable::NoName)?;
    let entity = match (Name::new(id), wrong) {
        (Err(e), _) => return Ok(Heard::Wrong(said(&e))),
        (_, Some(wrong)) => return Ok(Heard::Wrong(wrong)),
        (Ok(entity), None) => entity,
    };
    if !is_valid {
        return Ok(Heard::Nothing(Reason::NoFix));
    }
    Ok(fields.heard(entity))
}
