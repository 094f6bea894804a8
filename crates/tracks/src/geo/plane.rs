//! The tangent plane at a position: accurate enough within some hundred kilometres.

use super::distance::RADIUS;
use super::position::{Position, degrees, short_way};

/// The position relative to `origin`, metres east and north; longitudes go the short way.
pub(super) fn in_plane(origin: Position, position: Position, scale: f64) -> (f64, f64) {
    let east = short_way(i64::from(position.lon()) - i64::from(origin.lon()));
    let north = position.lat() - origin.lat();
    let metres = |units: f64| (units / 1e7).to_radians() * RADIUS;
    (metres(east as f64) * scale, metres(f64::from(north)))
}

/// The distance of a place from the segment between the origin and `end`.
pub(super) fn from_line((x, y): (f64, f64), (end_x, end_y): (f64, f64)) -> f64 {
    let squared = end_x * end_x + end_y * end_y;
    let along = if squared > 0.0 {
        ((x * end_x + y * end_y) / squared).clamp(0.0, 1.0)
    } else {
        0.0
    };
    (x - along * end_x).hypot(y - along * end_y)
}

/// The distance from a position to the segment between two others, metres, in the tangent plane at
/// the position.
pub(super) fn to_line(from: Position, a: Position, b: Position) -> f64 {
    let scale = degrees(from.lat()).to_radians().cos();
    let (a, b) = (in_plane(from, a, scale), in_plane(from, b, scale));
    from_line((-a.0, -a.1), (b.0 - a.0, b.1 - a.1))
}
