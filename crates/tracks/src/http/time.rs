//! Times as clients write them: seconds since 1970, or RFC 3339.

use crate::files::times;
use crate::model::time::{SECOND, Time};

/// Parses either form in a query, where a plus sign may have become a space; with the same rules as
/// reports, so that a report is found by its own text. Errors: it is neither, or cannot be stored.
pub(crate) fn of_text(text: &str) -> Result<Time, String> {
    let text = match text.rsplit_once(' ') {
        Some((time, zone)) if zone.len() == 5 && time.len() > 10 => format!("{time}+{zone}"),
        _ => text.to_owned(),
    };
    times::seconds_or_rfc3339(&text, None).map_err(|e| super::problem::text(&e))
}

/// Converts to seconds since 1970.
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
            ("1700000000.1234567", 1_700_000_000_123_456),
            ("2023-11-14T22:13:20Z", 1_700_000_000_000_000),
            ("2023-11-14T23:13:20.000001+01:00", 1_700_000_000_000_001),
            ("2023-11-14T23:13:20 01:00", 1_700_000_000_000_000),
        ];
        for (text, micros) in right {
            assert_eq!(of_text(text), Ok(Time(micros)), "{text}");
        }
        for micros in [1_700_000_000_123_457, 4_102_444_800_000_001, -1] {
            let text = seconds(Time(micros)).to_string();
            assert_eq!(of_text(&text), Ok(Time(micros)));
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
