//! `--ttl`: databases whose values end with the time at which they were written, as seconds since
//! 1970 in four bytes; and the display of times.
//!
//! Times are printed in UTC. `ldb` prints them in the time zone of the machine.

use base::clock::SystemClock;
use clap::Args;

use crate::fail::{Failure, Outcome};

/// No value has an earlier time.
const FIRST: i64 = 1_368_146_402;
/// The last time that fits in four bytes.
const LAST: i64 = i32::MAX as i64;
/// Length of a time in bytes.
const LEN: usize = 4;

/// Whether values have times.
#[derive(Debug, Args)]
pub(crate) struct Ttl {
    /// Values end with the time at which they were written (a database of `DBWithTTL`)
    #[arg(long)]
    pub(crate) ttl: bool,
}

/// The range of times, and whether times are printed. Without --ttl these flags have no effect.
#[derive(Debug, Args)]
pub(crate) struct TimeRange {
    /// With --ttl: print the time of each value
    #[arg(long)]
    pub(crate) timestamp: bool,
    /// With --ttl: only values written at this time or later, in seconds since 1970
    #[arg(long = "start_time", alias = "start-time", value_name = "SECONDS")]
    start_time: Option<String>,
    /// With --ttl: only values written before this time
    #[arg(long = "end_time", alias = "end-time", value_name = "SECONDS")]
    end_time: Option<String>,
}

/// The selected values, and how their times are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Times {
    /// Whether values have times at all.
    pub(crate) on: bool,
    /// Whether times are printed.
    pub(crate) print: bool,
    /// The start of the range of times, included.
    pub(crate) start: i64,
    /// The end of the range of times, excluded.
    pub(crate) end: i64,
}

impl Times {
    /// The selection of the flags.
    pub(crate) fn new(ttl: &Ttl, range: &TimeRange) -> Outcome<Self> {
        let number = |text: &Option<String>, name: &str, default: i64| match text {
            None => Ok(default),
            Some(text) => text
                .parse::<i32>()
                .map(i64::from)
                .map_err(|_| Failure::message(format!("{name} has an invalid value: {text}"))),
        };
        let start = number(&range.start_time, "start_time", FIRST)?;
        let end = number(&range.end_time, "end_time", LAST)?;
        if ttl.ttl && end < start {
            return Err(Failure::message(format!(
                "End time can't be less than start time: --end_time={end}, --start_time={start}"
            )));
        }
        Ok(Self {
            on: ttl.ttl,
            print: ttl.ttl && range.timestamp,
            start,
            end,
        })
    }

    /// The value without its time, and the time; `None` if the value is not selected.
    pub(crate) fn take<'a>(&self, value: &'a [u8]) -> Outcome<Option<(&'a [u8], i64)>> {
        if !self.on {
            return Ok(Some((value, 0)));
        }
        let (value, time) = split(value)?;
        Ok((self.start..self.end)
            .contains(&time)
            .then_some((value, time)))
    }

    /// `from <start> to <end>`.
    pub(crate) fn span(&self) -> String {
        format!("from {} to {}", human(self.start), human(self.end))
    }
}

/// A stored value and its time.
pub(crate) fn split(stored: &[u8]) -> Outcome<(&[u8], i64)> {
    let parts = stored.split_last_chunk::<LEN>();
    let (value, time) = parts.ok_or_else(|| {
        Failure::message(format!(
            "Corruption: a value of {} bytes has no time: the database is read without --ttl",
            stored.len()
        ))
    })?;
    Ok((value, i64::from(i32::from_le_bytes(*time))))
}

/// The value in its stored form: with the current time, if values have times.
pub(crate) fn stored(mut value: Vec<u8>, ttl: &Ttl) -> Vec<u8> {
    if ttl.ttl {
        let seconds = (SystemClock::shared().wall_micros() / 1_000_000) as i32;
        value.extend_from_slice(&seconds.to_le_bytes());
    }
    value
}

/// `Fri May 10 00:40:02 2013`, in UTC.
pub(crate) fn human(seconds: i64) -> String {
    const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (mut year, mut left) = (1970, days);
    while left < 0 {
        year -= 1;
        left += days_of(year);
    }
    while left >= days_of(year) {
        left -= days_of(year);
        year += 1;
    }
    let mut month = 0;
    while month < 11 && left >= days_in(month, year) {
        left -= days_in(month, year);
        month += 1;
    }
    let weekday = DAYS.get(days.rem_euclid(7) as usize).unwrap_or(&"?");
    let name = MONTHS.get(month).unwrap_or(&"?");
    let (h, m, s) = (second / 3600, second / 60 % 60, second % 60);
    format!(
        "{weekday} {name} {:2} {h:02}:{m:02}:{s:02} {year}",
        left + 1
    )
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_of(year: i64) -> i64 {
    365 + i64::from(is_leap(year))
}

fn days_in(month: usize, year: i64) -> i64 {
    match month {
        1 => 28 + i64::from(is_leap(year)),
        3 | 5 | 8 | 10 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_read_as_those_of_the_c_library() {
        for (seconds, text) in [
            (0, "Thu Jan  1 00:00:00 1970"),
            (-1, "Wed Dec 31 23:59:59 1969"),
            (951_782_400, "Tue Feb 29 00:00:00 2000"),
            (1_000_000_000, "Sun Sep  9 01:46:40 2001"),
            (FIRST, "Fri May 10 00:40:02 2013"),
            (LAST, "Tue Jan 19 03:14:07 2038"),
        ] {
            assert_eq!(human(seconds), text);
        }
    }

    #[test]
    fn a_value_without_a_time_is_an_error() {
        assert!(split(b"abc").is_err());
        assert_eq!(split(b"abc\x01\0\0\0").unwrap(), (&b"abc"[..], 1));
    }
}
