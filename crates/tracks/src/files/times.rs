//! Times in files: numbers since 1970, RFC 3339, and patterns; and the first two as text.
//!
//! RFC 3339 (<https://www.rfc-editor.org/rfc/rfc3339>) is `2023-11-14T22:13:20.5Z` or `…+01:00`. A
//! time without an offset is accepted only if the caller gives one. Fractions of a microsecond are
//! cut off. All times are checked by [`Time::check`].

use base::Result;
use jiff::SignedDuration;
use jiff::civil::DateTime;
use jiff::fmt::strtime::BrokenDownTime;
use jiff::fmt::temporal::Pieces;

use super::number::{decimal, number};
use super::record::{bad, shown};
use crate::model::time::{SECOND, Time};

/// 1970.
const EPOCH: DateTime = DateTime::constant(1970, 1, 1, 0, 0, 0, 0);

/// The unit of a number of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Seconds,
    Millis,
    Micros,
}

/// Parses seconds since 1970 with a fraction, or RFC 3339. Errors: `InvalidArgument`.
pub(crate) fn seconds_or_rfc3339(text: &str, utc_offset: Option<i32>) -> Result<Time> {
    let is_word = text.contains(|c: char| c.is_ascii_alphabetic() && !matches!(c, 'e' | 'E'));
    if !is_word && text.parse::<f64>().is_ok() {
        since_1970(text, Unit::Seconds)
    } else {
        rfc3339(text, utc_offset)
    }
}

/// Parses a number of units since 1970 with a fraction, exactly. Errors: `InvalidArgument`.
pub(super) fn since_1970(text: &str, unit: Unit) -> Result<Time> {
    let digits = match unit {
        Unit::Seconds => 6,
        Unit::Millis => 3,
        Unit::Micros => 0,
    };
    let value = number("time", text)?;
    let micros = exact(text, digits)
        .or_else(|| {
            let micros = (value * 10_f64.powi(digits as i32)).round();
            (micros.abs() < 9e18).then_some(micros as i64)
        })
        .ok_or_else(|| bad(format!("time is {}, which is too large", shown(text))))?;
    Time(micros).check()
}

/// The decimal number times a power of ten, rounded down. `None` if it has an exponent, or is too
/// large.
fn exact(text: &str, digits: usize) -> Option<i64> {
    let (is_negative, text) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let mut value: i64 = if whole.is_empty() {
        0
    } else {
        whole.parse().ok()?
    };
    let mut fraction = fraction.bytes();
    for _ in 0..digits {
        let digit = fraction.next().unwrap_or(b'0');
        let digit = digit.is_ascii_digit().then(|| i64::from(digit - b'0'))?;
        value = value.checked_mul(10)?.checked_add(digit)?;
    }
    let mut rest = 0;
    for digit in fraction {
        rest |= digit.is_ascii_digit().then(|| digit - b'0')?;
    }
    if is_negative {
        value.checked_neg()?.checked_sub((rest != 0).into())
    } else {
        Some(value)
    }
}

/// Parses RFC 3339. A time without an offset is `utc_offset` seconds ahead of UTC. Errors:
/// `InvalidArgument`.
pub(super) fn rfc3339(text: &str, utc_offset: Option<i32>) -> Result<Time> {
    let wrong = |why: &str| bad(format!("time is {}: {why}", shown(text)));
    let hint = "times are seconds since 1970, or RFC 3339 as in 2023-11-14T22:13:20Z";
    let pieces = Pieces::parse(text).map_err(|_| wrong("no time").hint(hint))?;
    if pieces.time_zone_annotation().is_some() {
        return Err(wrong("a time zone's name is not of RFC 3339").hint(hint));
    }
    let time = pieces.time().ok_or_else(|| wrong("a date alone"))?;
    let offset = pieces.to_numeric_offset().map(|offset| offset.seconds());
    let offset = offset
        .or(utc_offset)
        .ok_or_else(|| wrong("it does not say how far it is ahead of UTC").hint(hint))?;
    moment(pieces.date().to_datetime(time), offset)
}

/// Parses a time by a pattern of `strptime`. Errors: `InvalidArgument`.
pub(super) fn of_pattern(pattern: &str, text: &str, utc_offset: Option<i32>) -> Result<Time> {
    let wrong = |why: &str| {
        let (text, pattern) = (shown(text), shown(pattern));
        bad(format!("time is {text}, by the pattern {pattern}: {why}"))
    };
    let parsed = BrokenDownTime::parse(pattern, text).map_err(|e| wrong(&e.to_string()))?;
    if let Some(timestamp) = parsed.timestamp() {
        return Time(timestamp.as_microsecond()).check();
    }
    if parsed.iana_time_zone().is_some() {
        return Err(wrong("time zones' names are not known"));
    }
    let offset = parsed.offset().map(|offset| offset.seconds());
    let offset = offset
        .or(utc_offset)
        .ok_or_else(|| wrong("it does not say how far it is ahead of UTC"))?;
    let local = parsed.to_datetime().map_err(|e| wrong(&e.to_string()))?;
    moment(local, offset)
}

fn moment(local: DateTime, utc_offset: i32) -> Result<Time> {
    let nanos = local.duration_since(EPOCH).as_nanos();
    // Dates with four digits fit into 64 bits of microseconds.
    let micros = nanos.div_euclid(1000) as i64;
    Time(micros.saturating_sub(i64::from(utc_offset) * SECOND)).check()
}

/// Seconds since 1970 as text, exactly.
pub(super) fn to_seconds(time: Time) -> String {
    decimal(time.0, 6)
}

/// RFC 3339, in UTC. Errors: `InvalidArgument` if the time cannot be stored.
pub(super) fn to_rfc3339(time: Time) -> Result<String> {
    let since = SignedDuration::from_micros(time.check()?.0);
    let utc = EPOCH.checked_add(since);
    let utc = utc.map_err(|e| bad(format!("time {}: {e}", time.0)))?;
    Ok(format!("{utc}Z"))
}

#[cfg(test)]
mod tests {
    use base::rng::Rng;

    use super::*;

    fn of(text: &str) -> Result<i64> {
        seconds_or_rfc3339(text, None).map(|time| time.0)
    }

    #[test]
    fn times_are_read_exactly() {
        let cases = [
            ("1700000000.5", 1_700_000_000_500_000),
            ("1700000000.1234569", 1_700_000_000_123_456),
            ("-0.0000001", -1),
            ("1.7e9", 1_700_000_000_000_000),
            ("253402300799.999999", 253_402_300_799_999_999),
            ("2023-11-14T22:13:20Z", 1_700_000_000_000_000),
            ("2023-11-14t23:13:20.5+01:00", 1_700_000_000_500_000),
            ("9999-12-31T23:59:59.999999Z", 253_402_300_799_999_999),
            ("1969-12-31T23:59:59.9999999Z", -1),
        ];
        for (text, micros) in cases {
            assert_eq!(of(text).unwrap(), micros, "{text}");
        }
        let millis = since_1970("1700000000123.4", Unit::Millis).unwrap();
        assert_eq!(millis.0, 1_700_000_000_123_400);
        assert_eq!(since_1970("17", Unit::Micros).unwrap().0, 17);
        let local = rfc3339("1970-01-01T08:00:00", Some(8 * 3600)).unwrap();
        assert_eq!(local.0, 0);
        let pattern = |p: &str, text, offset| of_pattern(p, text, offset).map(|t| t.0);
        assert_eq!(
            pattern("%d.%m.%Y %H:%M", "02.01.1970 00:00", Some(0)).unwrap(),
            86_400_000_000
        );
        assert_eq!(
            pattern("%Y%m%d%H%M%S %z", "19700101010000 +0100", None).unwrap(),
            0
        );
        assert_eq!(pattern("%s", "12", None).unwrap(), 12_000_000);
    }

    #[test]
    fn what_is_no_time_is_refused_and_said() {
        let bad = [
            ("0001-01-01T00:00:00Z", "year 1 "),
            ("1700000000000", "year 55840"),
            ("99999999999999999999", "too large"),
            ("1e400", "too large"),
            ("1e30", "too large"),
            ("NaN", "no time"),
            ("", "no time"),
            ("2023-11-14", "alone"),
            ("2023-11-14T22:13:20", "ahead of UTC"),
            ("2023-11-14T22:13:20+01:00[Europe/Oslo]", "zone"),
            ("2023-02-30T00:00:00Z", "no time"),
            ("10000-01-01T00:00:00Z", "no time"),
            ("yesterday", "RFC 3339"),
        ];
        for (text, why) in bad {
            let e = of(text).unwrap_err().to_string();
            assert!(e.contains(why), "{text}: {e}");
        }
        for (pattern, text) in [
            ("%Y", "2000"),
            ("%Y-%m-%d %Q", "2000-01-01 Europe/Oslo"),
            ("%!", "x"),
            ("%Y-%m-%d %H", "2000-13-01 00"),
            ("%", ""),
        ] {
            assert!(of_pattern(pattern, text, Some(0)).is_err(), "{pattern}");
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let mut rng = Rng::new(3);
        for _ in 0..2000 {
            let span = 253_402_300_800 + 2_208_988_800;
            let time = Time(rng.below(span * 1_000_000) as i64 - 2_208_988_800_000_000);
            assert_eq!(of(&to_seconds(time)).unwrap(), time.0);
            assert_eq!(of(&to_rfc3339(time).unwrap()).unwrap(), time.0);
        }
        assert_eq!(
            to_rfc3339(Time(1_700_000_000_500_000)).unwrap(),
            "2023-11-14T22:13:20.5Z"
        );
        assert!(to_rfc3339(Time::MAX).is_err());
    }
}
