//! Positions relative to others in metres north and east, for distances that are small against the
//! Earth.

use std::f64::consts::PI;

use crate::geo::distance::RADIUS;
use crate::geo::position::{LATITUDE_MAX, LONGITUDE_END, PER_DEGREE, Position};

/// Units of 10⁻⁷ degrees in a metre along a meridian.
pub(super) const UNITS_PER_METRE: f64 = PER_DEGREE as f64 * 180.0 / (PI * RADIUS);

/// The position that is `north` and `east` metres from another one, for distances that are small
/// against the Earth.
pub(super) fn shifted(from: Position, north: f64, east: f64) -> Position {
    let shrink = from.degrees().0.to_radians().cos().max(1e-3);
    let max = f64::from(LATITUDE_MAX);
    let lat = (f64::from(from.lat()) + north * UNITS_PER_METRE).clamp(-max, max);
    let lon = f64::from(from.lon()) + east * UNITS_PER_METRE / shrink;
    position(lat.round() as i32, lon.round() as i64)
}

/// A position in units; the longitude may be beyond the antimeridian, and the latitude is clamped.
pub(super) fn position(lat: i32, lon: i64) -> Position {
    let lat = lat.clamp(-LATITUDE_MAX, LATITUDE_MAX);
    Position::of_units(lat, wrapped(lon)).expect("both are brought into their ranges")
}

/// A longitude, or a difference of longitudes, in units, normalized to −180 to 180 degrees.
pub(super) fn wrapped(lon: i64) -> i32 {
    let (half, turn) = (i64::from(LONGITUDE_END), 2 * i64::from(LONGITUDE_END));
    ((lon + half).rem_euclid(turn) - half) as i32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::distance::distance;
    use crate::geo::position::at;

    #[test]
    fn metres_are_metres_everywhere() {
        for from in [
            at(0.0, 0.0),
            at(59.3, 18.0),
            at(-80.0, 179.9999),
            at(10.0, -180.0),
        ] {
            for (north, east) in [(0.0, 100.0), (-300.0, 400.0), (50.0, -1.0), (0.0, 0.0)] {
                let to = shifted(from, north, east);
                let metres = f64::hypot(north, east);
                assert!((distance(from, to) - metres).abs() < 0.02 + metres / 5000.0);
                assert_eq!(to.lat() > from.lat(), north > 0.0);
            }
        }
        // Nothing is north of a pole.
        assert_eq!(shifted(at(90.0, 0.0), 5.0, 5.0), at(90.0, 0.0));
        assert_eq!(wrapped(i64::from(LONGITUDE_END)), -LONGITUDE_END);
    }
}
