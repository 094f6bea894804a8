//! Times as clients write them: seconds since 1970, or RFC 3339.

use crate::model::time::{SECOND, Time};

const WHAT: &str = "a time is seconds since 1970, or RFC 3339 as in 2026-11-26T09:30:00Z";

/// Of seconds since 1970. Errors: it cannot be stored.
pub(crate) fn of_seconds(seconds: f64) -> Result<Time, String> {
    let time = Time((seconds * SECOND as f64).round() as i64);
    time.check().map_err(|e| super::problem::text(&e))
}

/// Of RFC 3339. Errors: it is not that, or it cannot be stored.
pub(crate) fn of_rfc3339(text: &str) -> Result<Time, String> {
    // Other calendars and time zones in brackets, as in RFC 9557, are not taken.
    let parsed = if text.len() > 64 || text.contains('[') {
        None
    } else {
        text.parse::<jiff::Timestamp>().ok()
    };
    let stamp = parsed.ok_or_else(|| format!("{text:.64?} is no time: {WHAT}"))?;
    let time = Time(stamp.as_microsecond());
    time.check().map_err(|e| super::problem::text(&e))
}

/// Of either, in a query, where a plus sign may have become a space.
pub(crate) fn of_text(text: &str) -> Result<Time, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return if seconds.is_finite() {
            of_seconds(seconds)
        } else {
            Err(WHAT.to_owned())
        };
    }
    let text = match text.rsplit_once(' ') {
        Some((time, zone)) if zone.len() == 5 && time.len() > 10 => format!("{time}+{zone}"),
        _ => text.to_owned(),
    };
    of_rfc3339(&text)
}

/// As seconds since 1970.
pub(crate) fn seconds(time: Time) -> f64 {
    time.0 as f64 / SECOND as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_written_alike() {
        let right = [
            ("1700000000.5", 1_700_000_000_500_000),
            ("-1", -1_000_000),
            ("2023-11-14T22:13:20Z", 1_700_000_000_000_000),
            ("2023-11-14T23:13:20.000001+01:00", 1_700_000_000_000_001),
            ("2023-11-14T23:13:20 01:00", 1_700_000_000_000_000),
        ];
        for (text, micros) in right {
            assert_eq!(of_text(text), Ok(Time(micros)), "{text}");
        }
        for micros in [1_700_000_000_123_457, 4_102_444_800_000_001, -1] {
            assert_eq!(of_seconds(seconds(Time(micros))), Ok(Time(micros)));
        }
        for text in [
            "",
            "NaN",
            "inf",
            "1e300",
            "yesterday",
            "2023-11-14",
            "2023-13-01T00:00:00Z",
        ] {
            assert!(of_text(text).is_err(), "{text}");
        }
        assert!(of_text("1700000000000").unwrap_err().contains("55840"));
    }
}
