//! Positions: latitude and longitude in whole 10⁻⁷ degrees, which is about a centimetre.

use base::{Error, Result};

/// Units in a degree.
pub const PER_DEGREE: i32 = 10_000_000;
/// The greatest latitude; its negative is the least.
pub const LATITUDE_MAX: i32 = 90 * PER_DEGREE;
/// The longitude of the antimeridian, with a positive sign: longitudes are smaller. The least
/// longitude is its negative.
pub const LONGITUDE_END: i32 = 180 * PER_DEGREE;

/// A place on the Earth. Each place has one position: longitude 180 becomes −180, and at a pole the
/// longitude is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    lat: i32,
    lon: i32,
}

impl Position {
    /// The nearest position. Errors: `InvalidArgument` if a number is not a latitude or longitude
    /// in degrees.
    ///
    /// ```
    /// use tracks::geo::position::Position;
    /// let stockholm = Position::of_degrees(59.3293, 18.0686)?;
    /// assert_eq!((stockholm.lat(), stockholm.lon()), (593_293_000, 180_686_000));
    /// assert!(Position::of_degrees(90.0000001, 0.0).is_err());
    /// # Ok::<(), base::Error>(())
    /// ```
    pub fn of_degrees(lat: f64, lon: f64) -> Result<Self> {
        let (lat, lon) = units(lat, lon)?;
        Ok(Self::canonical(lat, lon))
    }

    /// A position in whole 10⁻⁷ degrees. Errors: `InvalidArgument`, as for
    /// [`Position::of_degrees`].
    pub fn of_units(lat: i32, lon: i32) -> Result<Self> {
        let is_right = lat.unsigned_abs() <= LATITUDE_MAX.unsigned_abs()
            && lon.unsigned_abs() <= LONGITUDE_END.unsigned_abs();
        if is_right {
            return Ok(Self::canonical(lat, lon));
        }
        Err(Error::invalid_argument(format!(
            "latitude {lat}, longitude {lon} in 10⁻⁷ degrees is no place"
        )))
    }

    fn canonical(lat: i32, lon: i32) -> Self {
        let lon = match (lat.abs(), lon) {
            (LATITUDE_MAX, _) => 0,
            (_, LONGITUDE_END) => -LONGITUDE_END,
            (_, lon) => lon,
        };
        Self { lat, lon }
    }

    /// The latitude, 10⁻⁷ degrees.
    pub fn lat(self) -> i32 {
        self.lat
    }

    /// The longitude, 10⁻⁷ degrees, at least −180 and below 180 degrees.
    pub fn lon(self) -> i32 {
        self.lon
    }

    /// Latitude and longitude in degrees.
    pub fn degrees(self) -> (f64, f64) {
        (degrees(self.lat), degrees(self.lon))
    }
}

/// Latitude and longitude in whole 10⁻⁷ degrees. Errors: `InvalidArgument` if a number is not one
/// in degrees.
pub(super) fn units(lat: f64, lon: f64) -> Result<(i32, i32)> {
    let check = |what: &str, value: f64, max: f64| {
        if value.abs() <= max {
            return Ok((value * f64::from(PER_DEGREE)).round() as i32);
        }
        Err(
            Error::invalid_argument(format!("{what} {value} is not within −{max} and {max}"))
                .hint("positions are degrees of WGS84: latitude first, then longitude"),
        )
    };
    Ok((
        check("latitude", lat, 90.0)?,
        check("longitude", lon, 180.0)?,
    ))
}

/// The longitudes of the two ends of the straight line between two positions, without a jump at the
/// antimeridian; a pole gets the longitude of the other end.
pub(super) fn straight(a: Position, b: Position) -> (i64, i64) {
    let [from, to] = [a, b].map(|position| i64::from(position.lon));
    let is_pole = |position: Position| position.lat.abs() == LATITUDE_MAX;
    match (is_pole(a), is_pole(b)) {
        (true, _) => (to, to),
        (_, true) => (from, from),
        _ => (from, from + short_way(to - from)),
    }
}

/// A whole turn.
pub(super) const TURN: i64 = 2 * LONGITUDE_END as i64;

/// A difference of longitudes the short way around: at least −180 and less than 180 degrees, in
/// units.
pub(super) fn short_way(difference: i64) -> i64 {
    (difference + TURN / 2).rem_euclid(TURN) - TURN / 2
}

/// Converts units to degrees.
pub(super) fn degrees(units: i32) -> f64 {
    f64::from(units) / f64::from(PER_DEGREE)
}

/// A position in degrees, whose longitude may be beyond the antimeridian.
#[cfg(test)]
pub(crate) fn at(lat: f64, lon: f64) -> Position {
    let lon = if lon.abs() > 180.0 {
        (lon + 540.0).rem_euclid(360.0) - 180.0
    } else {
        lon
    };
    Position::of_degrees(lat, lon).unwrap()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_place_has_one_position() {
        let of = |lat, lon| Position::of_degrees(lat, lon).unwrap();
        assert_eq!(of(10.0, 180.0), of(10.0, -180.0));
        assert_eq!(of(90.0, 77.0), of(90.0, -12.0));
        assert_eq!(of(-90.0, 180.0), of(-90.0, 0.0));
        assert_ne!(of(90.0, 0.0), of(-90.0, 0.0));
        // A longitude that rounds to the antimeridian is on it.
        assert_eq!(of(1.0, 179.999_999_99).lon(), -LONGITUDE_END);
        assert_eq!(
            Position::of_units(5, LONGITUDE_END).unwrap().lon(),
            -LONGITUDE_END
        );
        let (lat, lon) = of(59.329_3, -18.068_6).degrees();
        assert!((lat - 59.329_3).abs() < 1e-7 && (lon + 18.068_6).abs() < 1e-7);
    }

    #[test]
    fn what_is_no_place_is_refused_by_name() {
        let bad = [
            (f64::NAN, 0.0),
            (f64::INFINITY, 0.0),
            (90.000_000_1, 0.0),
            (-90.1, 0.0),
            (0.0, 540.0),
            (0.0, f64::NEG_INFINITY),
            (0.0, 180.000_000_1),
            (1e300, 1e300),
        ];
        for (lat, lon) in bad {
            let e = Position::of_degrees(lat, lon).unwrap_err().to_string();
            let what = if lat.abs() <= 90.0 {
                "longitude"
            } else {
                "latitude"
            };
            assert!(e.contains(what) && e.contains("WGS84"), "{e}");
        }
        assert!(Position::of_units(LATITUDE_MAX + 1, 0).is_err());
        assert!(Position::of_units(0, i32::MIN).is_err());
    }
}
