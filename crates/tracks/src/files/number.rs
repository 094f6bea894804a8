//! Numbers in files: decimal text, in SI units or those of a column, and the integers that a point
//! stores.
//!
//! `NaN`, infinity, and numbers that are too large for their field are refused, with the field's
//! name.

use base::{Error, Result};

use super::record::{bad, shown};
use crate::geo::position::Position;
use crate::model::point::{BATTERY_MAX, COURSE_END, SPEED_END};

/// Metres in a foot.
pub(super) const FOOT: f64 = 0.3048;
/// Metres per second in a kilometre per hour.
pub(super) const KILOMETRE_PER_HOUR: f64 = 1000.0 / 3600.0;
/// Metres per second in a knot.
pub(super) const KNOT: f64 = 1852.0 / 3600.0;

/// Parses a number; `what` names it. Errors: `InvalidArgument` if it is not a finite number.
pub(super) fn number(what: &str, text: &str) -> Result<f64> {
    let is_decimal = text
        .bytes()
        .all(|b| b.is_ascii_digit() || matches!(b, b'+' | b'-' | b'.' | b'e' | b'E'));
    let value = text.parse().ok().filter(|_| is_decimal);
    let value: f64 =
        value.ok_or_else(|| bad(format!("{what} is {}, which is no number", shown(text))))?;
    if value.is_finite() {
        return Ok(value);
    }
    Err(bad(format!(
        "{what} is {}, which is too large",
        shown(text)
    )))
}

/// Parses a position in degrees. Errors: `InvalidArgument`.
pub(super) fn position(lat: Option<&str>, lon: Option<&str>) -> Result<Position> {
    let of = |what: &str, text: Option<&str>| {
        number(what, text.ok_or_else(|| bad(format!("{what} is missing")))?)
    };
    Position::of_degrees(of("lat", lat)?, of("lon", lon)?)
}

/// Converts a speed from m/s to cm/s. Errors: `InvalidArgument` below 0 and from 655.345 on.
pub(super) fn speed(metres_per_second: f64) -> Result<u16> {
    let most = i64::from(SPEED_END) - 1;
    whole("speed", "m/s", metres_per_second, 100, (0, most)).map(|n| n as u16)
}

/// Converts a course from degrees to 10⁻² degrees; 360 becomes 0. Errors: `InvalidArgument` below 0
/// and above 360.
pub(super) fn course(degrees: f64) -> Result<u16> {
    let turn = i64::from(COURSE_END);
    whole("course", "degrees", degrees, 100, (0, turn)).map(|n| (n % turn) as u16)
}

/// Converts an altitude from metres to cm. Errors: `InvalidArgument` beyond 21,474 km.
pub(super) fn altitude(metres: f64) -> Result<i32> {
    let range = (i32::MIN.into(), i32::MAX.into());
    whole("altitude", "m", metres, 100, range).map(|n| n as i32)
}

/// Converts an accuracy from metres to dm; more than 6553.5 becomes 6553.5. Errors:
/// `InvalidArgument` below 0.
pub(super) fn accuracy(metres: f64) -> Result<u16> {
    let most = u16::MAX;
    let shown = metres.min(f64::from(most) / 10.0);
    // NaN is kept, so that it is refused.
    let metres = if metres.is_nan() { metres } else { shown };
    whole("accuracy", "m", metres, 10, (0, most.into())).map(|n| n as u16)
}

/// Converts a battery's charge, per cent. Errors: `InvalidArgument` below 0 and above 100.
pub(super) fn battery(per_cent: f64) -> Result<u8> {
    whole("battery", "per cent", per_cent, 1, (0, BATTERY_MAX.into())).map(|n| n as u8)
}

/// The nearest whole number of parts; `parts` is how many a unit has.
fn whole(what: &str, unit: &str, value: f64, parts: i64, (least, most): (i64, i64)) -> Result<i64> {
    let parts = parts as f64;
    let found = (value * parts).round();
    if (least as f64..=most as f64).contains(&found) {
        return Ok(found as i64);
    }
    let (least, most) = (least as f64 / parts, most as f64 / parts);
    Err(Error::invalid_argument(format!(
        "{what} {value} is not within {least} and {most} {unit}"
    )))
}

/// A whole number of parts as an exact decimal number; a part is 10⁻ᵈ units, where d is `digits`.
pub(super) fn decimal(parts: i64, digits: u32) -> String {
    let per = 10_u64.pow(digits);
    let sign = if parts < 0 { "-" } else { "" };
    let (units, rest) = (parts.unsigned_abs() / per, parts.unsigned_abs() % per);
    if rest == 0 {
        return format!("{sign}{units}");
    }
    let rest = format!("{rest:0width$}", width = digits as usize);
    format!("{sign}{units}.{}", rest.trim_end_matches('0'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_number_is_refused_by_name() {
        for text in [
            "NaN",
            "inf",
            "-Infinity",
            "",
            " 1",
            "1,5",
            "0x10",
            "1e400",
            "--1",
            "1_0",
        ] {
            let e = number("lat", text).unwrap_err().to_string();
            assert!(e.contains("lat is"), "{e}");
        }
        let e = number("lat", &"9".repeat(100_000)).unwrap_err().to_string();
        assert!(e.len() < 200, "{e}");
        assert!((number("x", "-1.5e2").unwrap() + 150.0).abs() < 1e-9);
    }

    #[test]
    fn fields_have_a_range() {
        assert_eq!(speed(655.34).unwrap(), 65534);
        assert_eq!((course(360.0).unwrap(), course(359.996).unwrap()), (0, 0));
        assert_eq!(altitude(-12.344).unwrap(), -1234);
        assert_eq!(
            (accuracy(6553.5).unwrap(), accuracy(1e5).unwrap()),
            (65535, 65535)
        );
        assert_eq!(battery(99.6).unwrap(), 100);
        let bad = [
            (
                speed(655.35).err(),
                "speed 655.35 is not within 0 and 655.34 m/s",
            ),
            (speed(-1.0).err(), "speed -1"),
            (course(-0.1).err(), "course"),
            (course(360.1).err(), "course"),
            (altitude(3e7).err(), "altitude"),
            (accuracy(f64::NAN).err(), "accuracy"),
            (
                battery(101.0).err(),
                "battery 101 is not within 0 and 100 per cent",
            ),
        ];
        for (e, what) in bad {
            let e = e.unwrap().to_string();
            assert!(e.contains(what), "{e}");
        }
        let e = position(Some("1"), None).unwrap_err().to_string();
        assert!(e.contains("lon is missing"), "{e}");
    }

    #[test]
    fn decimals_are_exact() {
        let cases = [
            ((593_293_000, 7), "59.3293"),
            ((-5, 7), "-0.0000005"),
            ((1_700_000_000_000_000, 6), "1700000000"),
            ((i64::MIN, 6), "-9223372036854.775808"),
            ((0, 2), "0"),
            ((-7, 0), "-7"),
        ];
        for ((parts, digits), text) in cases {
            assert_eq!(decimal(parts, digits), text);
        }
    }
}
