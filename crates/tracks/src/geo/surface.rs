//! Surfaces to measure distances on: the sphere, which is fast, or the ellipsoid of WGS84, which is
//! exact.
//!
//! On the ellipsoid, distances are C. Karney's (Algorithms for geodesics, 2013,
//! <https://doi.org/10.1007/s00190-012-0578-z>), by the crate `geographiclib-rs`. One takes about a
//! microsecond.
//!
//! A short distance on the ellipsoid is the distance between the same coordinates on the sphere
//! times a factor: M / R northwards, N / R eastwards. The radius of curvature M is between a (1 -
//! e²) = 6,335,439 m and a² / b = 6,399,594 m, and N is between a = 6,378,137 m and a² / b. So all
//! ways, and with them the shortest, are longer by a factor between `LEAST` and `MOST`.

use std::sync::LazyLock;

use geographiclib_rs::{Geodesic, InverseGeodesic};

use super::cell::Span;
use super::distance;
use super::position::Position;

/// 6,335,439 / 6,371,008.8, rounded down.
const LEAST: f64 = 0.9944;
/// 6,399,594 / 6,371,008.8, rounded up.
const MOST: f64 = 1.0045;

static WGS84: LazyLock<Geodesic> = LazyLock::new(Geodesic::wgs84);

/// The surface of the Earth on which distances are measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Surface {
    /// With the Earth's mean radius: errors are up to 0.56 %.
    #[default]
    Sphere,
    /// The ellipsoid of WGS84.
    Ellipsoid,
}

impl Surface {
    /// Metres between two positions, along the surface.
    ///
    /// ```
    /// use tracks::geo::{position::Position, surface::Surface};
    /// let [stockholm, uppsala] = [(59.3293, 18.0686), (59.8586, 17.6389)]
    ///     .map(|(lat, lon)| Position::of_degrees(lat, lon).unwrap());
    /// assert_eq!(Surface::Sphere.distance(stockholm, uppsala).round(), 63_630.0);
    /// assert_eq!(Surface::Ellipsoid.distance(stockholm, uppsala).round(), 63_766.0);
    /// ```
    pub fn distance(self, a: Position, b: Position) -> f64 {
        match self {
            Self::Sphere => distance::distance(a, b),
            Self::Ellipsoid => {
                let ((a_lat, a_lon), (b_lat, b_lon)) = (a.degrees(), b.degrees());
                WGS84.inverse(a_lat, a_lon, b_lat, b_lon)
            }
        }
    }

    /// A lower bound of the distance to any place of a span, metres.
    pub(crate) fn nearest(self, from: Position, span: &Span) -> f64 {
        let nearest = distance::nearest(from, span);
        match self {
            Self::Sphere => nearest,
            Self::Ellipsoid => nearest * LEAST,
        }
    }

    /// An upper bound of the distance to any place of a span, metres.
    pub(crate) fn farthest(self, from: Position, span: &Span) -> f64 {
        let farthest = distance::farthest(from, span);
        match self {
            Self::Sphere => farthest,
            Self::Ellipsoid => farthest * MOST,
        }
    }
}

#[cfg(test)]
mod tests {
    use base::rng::Rng;

    use super::super::position::at;
    use super::*;

    #[test]
    fn known_distances_on_the_ellipsoid() {
        let d =
            |a: (f64, f64), b: (f64, f64)| Surface::Ellipsoid.distance(at(a.0, a.1), at(b.0, b.1));
        // A degree of the equator, and a quarter of a meridian (10,001,965.729 m on WGS84).
        assert!((d((0.0, 0.0), (0.0, 1.0)) - 111_319.491).abs() < 0.001);
        assert!((d((0.0, 5.0), (90.0, 5.0)) - 10_001_965.729).abs() < 0.001);
        assert!((d((0.0, 179.5), (0.0, -179.5)) - 111_319.491).abs() < 0.001);
        // The shortest way between antipodes on the equator goes over a pole.
        assert!((d((0.0, 0.0), (0.0, -180.0)) - 20_003_931.459).abs() < 0.001);
    }

    #[test]
    fn the_ellipsoid_is_as_far_from_the_sphere_as_is_said() {
        let mut rng = Rng::new(8);
        let (mut least, mut most) = (f64::MAX, 0.0_f64);
        for _ in 0..20_000 {
            let lat = rng.below(180_001) as f64 / 1000.0 - 90.0;
            let lon = rng.below(360_001) as f64 / 1000.0 - 180.0;
            let step = 10_f64.powi(rng.below(4) as i32 - 2);
            let to_lat = (lat + step * (rng.below(201) as f64 / 100.0 - 1.0)).clamp(-90.0, 90.0);
            let to_lon = (lon + step * (rng.below(201) as f64 / 100.0 - 1.0)).clamp(-180.0, 180.0);
            let (a, b) = (at(lat, lon), at(to_lat, to_lon));
            let sphere = Surface::Sphere.distance(a, b);
            if sphere > 1.0 {
                let ratio = Surface::Ellipsoid.distance(a, b) / sphere;
                (least, most) = (least.min(ratio), most.max(ratio));
            }
        }
        assert!((LEAST..0.9950).contains(&least), "{least}");
        assert!((1.0040..=MOST).contains(&most), "{most}");
    }
}
