//! Values of `default`: points.
//!
//! ```text
//!   point     0+1 version  1+2 flags: which fields follow  3+4 latitude  7+4 longitude, 10⁻⁷ degrees
//!             11… arrival − time, ms, a zigzag varint; then of these what there is:
//!             4 altitude, cm   2 speed, cm/s   2 course, 10⁻² degrees   2 accuracy, dm   1 battery, %
//!             4 tags   a varint and as many bytes of attributes
//! ```
//!
//! Little-endian.

use base::coding::{Decoder, put_slice, put_u16, put_u32, put_varint_signed};
use base::{Error, Result};

use crate::geo::position::Position;

/// The version that this code writes, and the newest that it reads.
pub const VERSION: u8 = 1;
/// The most bytes of attributes.
pub const ATTRIBUTES_BYTES_MAX: usize = 1024;
/// A full turn, 10⁻² degrees; courses are smaller.
pub const COURSE_END: u16 = 36_000;
/// A full battery, per cent.
pub const BATTERY_MAX: u8 = 100;
/// The lowest speed that cannot be stored, cm/s.
pub const SPEED_END: u16 = u16::MAX;

mod flag {
    pub(super) const ALTITUDE: u16 = 1;
    pub(super) const SPEED: u16 = 2;
    pub(super) const COURSE: u16 = 4;
    pub(super) const ACCURACY: u16 = 8;
    pub(super) const BATTERY: u16 = 16;
    pub(super) const TAGS: u16 = 32;
    pub(super) const ATTRIBUTES: u16 = 64;
    pub(super) const ALL: u16 = 127;
}

/// A reported position, and what else the device reported with it. Its time is in its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// The position.
    pub position: Position,
    /// Time from the position to the arrival of its report, ms; negative if the device's clock is
    /// ahead.
    pub lag: i64,
    /// Altitude above the ellipsoid of WGS84, or as the device defines it, cm.
    pub altitude: Option<i32>,
    /// Speed over ground, cm/s, less than [`SPEED_END`].
    pub speed: Option<u16>,
    /// Course, clockwise from north, 10⁻² degrees, less than [`COURSE_END`].
    pub course: Option<u16>,
    /// Accuracy: how far off the position may be, dm.
    pub accuracy: Option<u16>,
    /// Battery charge, per cent, at most [`BATTERY_MAX`].
    pub battery: Option<u8>,
    /// Tags: each bit has a meaning that is set by the fleet.
    pub tags: u32,
    /// A JSON object of at most [`ATTRIBUTES_BYTES_MAX`] bytes; empty if there is none.
    pub attributes: String,
}

impl Point {
    /// A point of which only the position is known.
    pub fn at(position: Position) -> Self {
        Self {
            position,
            lag: 0,
            altitude: None,
            speed: None,
            course: None,
            accuracy: None,
            battery: None,
            tags: 0,
            attributes: String::new(),
        }
    }

    /// The bytes of the point. Errors: `InvalidArgument` if a field is out of its range.
    pub fn encode(&self) -> Result<Vec<u8>> {
        self.check()?;
        let flags = [
            (flag::ALTITUDE, self.altitude.is_some()),
            (flag::SPEED, self.speed.is_some()),
            (flag::COURSE, self.course.is_some()),
            (flag::ACCURACY, self.accuracy.is_some()),
            (flag::BATTERY, self.battery.is_some()),
            (flag::TAGS, self.tags != 0),
            (flag::ATTRIBUTES, !self.attributes.is_empty()),
        ];
        let flags = flags
            .into_iter()
            .filter(|(_, is_there)| *is_there)
            .fold(0, |all, (flag, _)| all | flag);
        let mut out = Vec::with_capacity(32 + self.attributes.len());
        out.push(VERSION);
        put_u16(&mut out, flags);
        put_u32(&mut out, self.position.lat().cast_unsigned());
        put_u32(&mut out, self.position.lon().cast_unsigned());
        put_varint_signed(&mut out, self.lag);
        if let Some(altitude) = self.altitude {
            put_u32(&mut out, altitude.cast_unsigned());
        }
        let numbers = [self.speed, self.course, self.accuracy];
        numbers
            .into_iter()
            .flatten()
            .for_each(|n| put_u16(&mut out, n));
        out.extend(self.battery);
        if self.tags != 0 {
            put_u32(&mut out, self.tags);
        }
        if !self.attributes.is_empty() {
            put_slice(&mut out, self.attributes.as_bytes());
        }
        Ok(out)
    }

    /// Checks the ranges. Errors: `InvalidArgument` if a field is out of its range.
    pub fn check(&self) -> Result<()> {
        let wrong = if self.speed == Some(SPEED_END) {
            "a speed of 655.35 m/s or more"
        } else if self.course.is_some_and(|c| c >= COURSE_END) {
            "a course of 360 degrees or more"
        } else if self.battery.is_some_and(|b| b > BATTERY_MAX) {
            "a battery of more than 100 per cent"
        } else if self.attributes.len() > ATTRIBUTES_BYTES_MAX {
            "attributes of more than 1024 bytes"
        } else {
            return Ok(());
        };
        Err(Error::invalid_argument(format!("a point with {wrong}")))
    }

    /// Decodes a point. Errors: Corruption; `NotSupported` if a newer release wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut d = Decoder::new(bytes);
        let version = d.u8();
        if version.is_some_and(|v| v > VERSION) {
            return Err(Error::not_supported(format!(
                "points of version {}: this release knows {VERSION}",
                version.unwrap_or_default()
            ))
            .hint("a newer release wrote it: start that one"));
        }
        let point =
            Self::decode_rest(&mut d).filter(|p| version == Some(VERSION) && p.check().is_ok());
        point
            .filter(|_| d.is_empty())
            .ok_or_else(|| Error::corruption("a point that cannot be"))
    }

    fn decode_rest(d: &mut Decoder<'_>) -> Option<Self> {
        let flags = d.u16().filter(|flags| flags & !flag::ALL == 0)?;
        let has = |flag| flags & flag != 0;
        let mut point = Self::at(position(d)?);
        point.lag = d.varint_signed()?;
        if has(flag::ALTITUDE) {
            point.altitude = Some(d.u32()?.cast_signed());
        }
        let numbers = [
            (flag::SPEED, &mut point.speed),
            (flag::COURSE, &mut point.course),
            (flag::ACCURACY, &mut point.accuracy),
        ];
        for (_, number) in numbers.into_iter().filter(|(flag, _)| has(*flag)) {
            *number = Some(d.u16()?);
        }
        if has(flag::BATTERY) {
            point.battery = Some(d.u8()?);
        }
        if has(flag::TAGS) {
            point.tags = d.u32().filter(|tags| *tags != 0)?;
        }
        if has(flag::ATTRIBUTES) {
            let bytes = d.slice().filter(|bytes| !bytes.is_empty())?;
            point.attributes = String::from_utf8(bytes.to_vec()).ok()?;
        }
        Some(point)
    }
}

/// Decodes a position; `None` for units that are not the canonical form of a position.
pub(crate) fn position(d: &mut Decoder<'_>) -> Option<Position> {
    let (lat, lon) = (d.u32()?.cast_signed(), d.u32()?.cast_signed());
    let position = Position::of_units(lat, lon).ok()?;
    ((position.lat(), position.lon()) == (lat, lon)).then_some(position)
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use base::rng::Rng;

    use super::*;

    fn some(seed: u64) -> Point {
        let mut rng = Rng::new(seed);
        let position = Position::of_units(
            rng.below(900_000_000) as i32,
            -(rng.below(1_800_000_000) as i32),
        );
        let mut maybe = |below: u64| rng.one_in(2).then(|| rng.below(below));
        let number = |n: Option<u64>| n.map(|n| n as u16);
        Point {
            position: position.unwrap(),
            lag: maybe(1 << 40).map_or(-5000, |n| n as i64),
            altitude: maybe(1 << 32).map(|n| n as i32),
            speed: number(maybe(SPEED_END.into())),
            course: number(maybe(COURSE_END.into())),
            accuracy: number(maybe(1 << 16)),
            battery: maybe(101).map(|n| n as u8),
            tags: maybe(1 << 32).map_or(0, |n| n as u32),
            attributes: maybe(1000).map_or(String::new(), |n| format!("{{\"n\":{n}}}")),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for seed in 0..2000 {
            let point = some(seed);
            let bytes = point.encode().unwrap();
            assert_eq!(Point::decode(&bytes).unwrap(), point);
            let longer = [&bytes[..], &[0]].concat();
            assert!(Point::decode(&longer).unwrap_err().is_corruption());
            assert!(
                Point::decode(&bytes[..bytes.len() - 1])
                    .unwrap_err()
                    .is_corruption()
            );
        }
        let least = Point::at(Position::of_units(0, 0).unwrap());
        assert_eq!(least.encode().unwrap().len(), 12);
    }

    #[test]
    fn fields_out_of_range_are_refused_by_name() {
        let at = || Point::at(Position::of_units(0, 0).unwrap());
        let bad = [
            (
                Point {
                    course: Some(COURSE_END),
                    ..at()
                },
                "course",
            ),
            (
                Point {
                    speed: Some(SPEED_END),
                    ..at()
                },
                "speed",
            ),
            (
                Point {
                    battery: Some(101),
                    ..at()
                },
                "battery",
            ),
            (
                Point {
                    attributes: "x".repeat(1025),
                    ..at()
                },
                "attributes",
            ),
        ];
        for (point, what) in bad {
            let e = point.encode().unwrap_err().to_string();
            assert!(e.contains(what), "{e}");
        }
    }

    /// Any bytes are a point or an error; a point is encoded as the same bytes again.
    #[test]
    fn hostile_bytes_are_refused_or_mean_one_thing() {
        let mut rng = Rng::new(7);
        let mut read = 0;
        for seed in 0..100_000 {
            let mut bytes = some(seed % 50).encode().unwrap();
            for _ in 0..=rng.below(3) {
                let at = rng.below(bytes.len() as u64) as usize;
                bytes[at] = rng.next_u64() as u8;
            }
            if let Ok(point) = Point::decode(&bytes) {
                // Except for varints that are longer than necessary.
                let again = point.encode().unwrap();
                assert_eq!(Point::decode(&again).unwrap(), point);
                read += 1;
            }
        }
        assert!(read > 1000, "{read}");
        let mut later = some(1).encode().unwrap();
        later[0] = VERSION + 1;
        let e = Point::decode(&later).unwrap_err().to_string();
        assert!(
            e.contains("version 2") && e.contains("start that one"),
            "{e}"
        );
    }
}
