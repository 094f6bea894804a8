//! Time: microseconds since 1970, and buckets of ten minutes for visits.

use base::{Error, Result};

/// Microseconds in a second.
pub const SECOND: i64 = 1_000_000;
/// Microseconds in a bucket of visits.
pub const BUCKET: i64 = 600 * SECOND;
/// The first time that can be stored, 1900-01-01: clocks that were never set say 0001, 1601 or
/// 1899.
const FIRST: i64 = -2_208_988_800 * SECOND;
/// The end of the times that can be stored, 10000-01-01.
const END: i64 = 253_402_300_800 * SECOND;

/// A time: microseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

/// A bucket of ten minutes, counted from 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bucket(pub i32);

impl Time {
    /// Before all other times.
    pub const MIN: Self = Self(i64::MIN);
    /// After all other times.
    pub const MAX: Self = Self(i64::MAX);

    /// Checks that the time can be stored. Errors: `InvalidArgument` before 1900 and after 9999.
    pub fn check(self) -> Result<Self> {
        if (FIRST..END).contains(&self.0) {
            return Ok(self);
        }
        // One day is added because years differ in length, so that the first day of a year does not
        // count as the year before.
        let days = self.0.div_euclid(86_400 * SECOND) + 1;
        let years = 1970 + (days * 86_400).div_euclid(31_556_952);
        Err(Error::invalid_argument(format!(
            "a time of about the year {years} is not within 1900 and 9999"
        ))
        .hint("times are seconds since 1970, or RFC 3339; a device without a clock sends none"))
    }

    /// The bucket that contains the time.
    pub fn bucket(self) -> Bucket {
        let bucket = self.0.div_euclid(BUCKET);
        Bucket(bucket.clamp(i32::MIN.into(), i32::MAX.into()) as i32)
    }
}

impl Bucket {
    /// The first time in the bucket.
    pub fn start(self) -> Time {
        Time(i64::from(self.0) * BUCKET)
    }

    /// The first time after the bucket.
    pub fn end(self) -> Time {
        Time((i64::from(self.0) + 1) * BUCKET)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_that_can_be_stored() {
        for seconds in [0, -2_208_988_800, 253_402_300_799, 1_700_000_000] {
            assert!(Time(seconds * SECOND).check().is_ok());
        }
        // The year 1, as in zero times of .NET and Go; milliseconds taken for seconds; the year
        // 10000.
        let bad = [
            (-62_135_596_800, " 1 "),
            (1_700_000_000_000, " 55840 "),
            (253_402_300_800, " 10000 "),
        ];
        for (seconds, year) in bad {
            let e = Time(seconds * SECOND).check().unwrap_err().to_string();
            assert!(e.contains(year), "{e}");
        }
        assert!(Time::MIN.check().is_err() && Time::MAX.check().is_err());
    }

    #[test]
    fn buckets_are_ten_minutes() {
        let bucket = |seconds: i64| Time(seconds * SECOND).bucket();
        assert_eq!(
            (bucket(0), bucket(599), bucket(600)),
            (Bucket(0), Bucket(0), Bucket(1))
        );
        assert_eq!(
            (bucket(-1), bucket(-600), bucket(-601)),
            (Bucket(-1), Bucket(-1), Bucket(-2))
        );
        assert_eq!(Bucket(-2).start(), Time(-1200 * SECOND));
        assert!(Time::MIN.bucket() < Time::MAX.bucket());
    }
}
