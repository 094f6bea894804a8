//! Distances on a sphere of the Earth's mean radius, by the haversine formula.

use std::f64::consts::PI;

use super::cell::Span;
use super::position::{Position, degrees};

/// The mean radius of the Earth, metres: (2a + b) / 3 of WGS84.
pub const RADIUS: f64 = 6_371_008.8;

/// Metres between two positions, along the surface.
///
/// ```
/// use tracks::geo::{distance::distance, position::Position};
/// let [stockholm, uppsala] = [(59.3293, 18.0686), (59.8586, 17.6389)]
///     .map(|(lat, lon)| Position::of_degrees(lat, lon).unwrap());
/// assert_eq!(distance(stockholm, uppsala).round(), 63_630.0);
/// ```
pub fn distance(a: Position, b: Position) -> f64 {
    let ((a_lat, a_lon), (b_lat, b_lon)) = (radians(a), radians(b));
    RADIUS * angle(a_lat, b_lat, a_lon - b_lon)
}

/// The least distance from a position to any place of a span, metres.
pub fn nearest(from: Position, span: &Span) -> f64 {
    let (lat, lon) = radians(from);
    RADIUS * least_angle(lat, lon, span)
}

/// The greatest distance from a position to any place of a span, metres.
pub fn farthest(from: Position, span: &Span) -> f64 {
    let (lat, lon) = radians(from);
    // The place farthest from here is the one nearest to the antipode.
    RADIUS * (PI - least_angle(-lat, lon + PI, span))
}

fn radians(position: Position) -> (f64, f64) {
    let (lat, lon) = position.degrees();
    (lat.to_radians(), lon.to_radians())
}

/// The angle between two places whose longitudes differ by `lon`.
fn angle(a_lat: f64, b_lat: f64, lon: f64) -> f64 {
    let by_lat = ((a_lat - b_lat) / 2.0).sin().powi(2);
    let by_lon = (lon / 2.0).sin().powi(2);
    let h = by_lat + a_lat.cos() * b_lat.cos() * by_lon;
    2.0 * h.clamp(0.0, 1.0).sqrt().asin()
}

/// The least angle from a place to a span. If the span contains the place's longitude, the nearest
/// place is on that meridian; otherwise it is on the west or east side of the span.
fn least_angle(lat: f64, lon: f64, span: &Span) -> f64 {
    let [south, north, west, east] =
        [span.south, span.north, span.west, span.east].map(|units| degrees(units).to_radians());
    let from_west = (lon - west).rem_euclid(2.0 * PI);
    if from_west <= east - west {
        return (lat - lat.clamp(south, north)).abs();
    }
    let to_side = |side: f64| {
        let lon = lon - side;
        // Along a meridian, the cosine of the angle is a cosine itself, and has its maximum here.
        let best = lat.sin().atan2(lat.cos() * lon.cos());
        if (south..=north).contains(&best) {
            angle(lat, best, lon)
        } else {
            angle(lat, south, lon).min(angle(lat, north, lon))
        }
    };
    to_side(west).min(to_side(east))
}

#[cfg(test)]
mod tests {
    use base::rng::Rng;

    use super::super::cell::Cell;
    use super::super::position::at;
    use super::*;

    #[test]
    fn known_distances() {
        let quarter = RADIUS * PI / 2.0;
        assert!((distance(at(0.0, 0.0), at(0.0, 90.0)) - quarter).abs() < 0.01);
        assert!((distance(at(90.0, 0.0), at(0.0, -120.0)) - quarter).abs() < 0.01);
        assert!((distance(at(0.0, 0.0), at(0.0, -180.0)) - 2.0 * quarter).abs() < 0.5);
        // Over the antimeridian, it is the short way.
        assert!((distance(at(0.0, 179.5), at(0.0, -179.5)) - quarter / 90.0).abs() < 0.01);
        assert!(distance(at(12.3, 45.6), at(12.3, 45.6)) <= 0.0);
        // A difference of a centimetre is visible.
        let one = Position::of_units(593_293_001, 180_686_000).unwrap();
        let cm = distance(at(59.3293, 18.0686), one);
        assert!((0.011..0.0112).contains(&cm), "{cm}");
    }

    /// All distances to places of a span are between the least and the greatest one, and both are
    /// reached.
    #[test]
    fn spans_lie_between_their_nearest_and_farthest_places() {
        let mut rng = Rng::new(4);
        let mut anywhere = || {
            let lat = rng.below(180_001) as f64 / 1000.0 - 90.0;
            let lon = rng.below(360_001) as f64 / 1000.0 - 180.0;
            at(lat, lon)
        };
        for depth in 0..18 {
            for _ in 0..200 {
                let span = Cell::of(anywhere()).at_depth(depth).span();
                let from = anywhere();
                let (least, most) = (nearest(from, &span), farthest(from, &span));
                let part = |a: i32, b: i32, n: i64| {
                    (i64::from(a) + (i64::from(b) - i64::from(a)) * n / 40) as i32
                };
                let (mut seen_least, mut seen_most) = (f64::MAX, 0.0_f64);
                for n in 0..=40 {
                    for m in 0..=40 {
                        let (lat, lon) = (
                            part(span.south, span.north, n),
                            part(span.west, span.east, m),
                        );
                        let d = distance(from, Position::of_units(lat, lon).unwrap());
                        (seen_least, seen_most) = (seen_least.min(d), seen_most.max(d));
                    }
                }
                assert!(
                    least <= seen_least + 0.5 && seen_most <= most + 0.5,
                    "{from:?} {span:?}"
                );
                // The samples are at most this far apart.
                let apart = RADIUS
                    * f64::from(span.north - span.south)
                        .max(f64::from(span.east) - f64::from(span.west))
                    / 1e7
                    / 40.0
                    * PI
                    / 180.0;
                assert!(
                    seen_least - least <= apart && most - seen_most <= apart,
                    "{from:?} {span:?}"
                );
            }
        }
    }
}
