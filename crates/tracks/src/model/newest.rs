//! The newest position of an entity, as `geohash` and `latest` store it.
//!
//! ```text
//!   geohash   0+8 time  8+4 latitude  12+4 longitude, 10⁻⁷ degrees  16+2 speed, cm/s  18+2 course, 10⁻² degrees
//!             20+4 tags  24… the entity's name
//!   latest    0+8 time  8+5 cell  13+1 length of the name  14… the entity's name  … the point
//! ```
//!
//! Little-endian, except the cell, which is stored as in keys. An unknown speed or course is all
//! ones. The name is in the index so that a search reads one row for each hit, and in `latest` so
//! that a report of an entity that is not in the shard's cache does.

use base::coding::{Decoder, put_u16, put_u32, put_u64};
use base::{Error, Result};

use super::point::{self, Point};
use super::time::Time;
use crate::geo::cell::{self, Cell};
use crate::geo::position::Position;

/// The value for an unknown speed or course.
const UNKNOWN: u16 = u16::MAX;

/// The newest position of an entity, as stored in `geohash`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Here<'a> {
    /// The time of its newest report.
    pub time: Time,
    /// The position.
    pub position: Position,
    /// Speed over ground, cm/s.
    pub speed: Option<u16>,
    /// Course, clockwise from north, 10⁻² degrees.
    pub course: Option<u16>,
    /// Tags: each bit has a meaning that is set by the fleet.
    pub tags: u32,
    /// The name of the entity.
    pub name: &'a str,
}

impl<'a> Here<'a> {
    /// Takes these fields from an entity's newest point.
    pub fn of(name: &'a str, time: Time, point: &Point) -> Self {
        Self {
            time,
            position: point.position,
            speed: point.speed,
            course: point.course,
            tags: point.tags,
            name,
        }
    }

    /// The bytes of the value.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(24 + self.name.len());
        put_u64(&mut out, self.time.0.cast_unsigned());
        put_u32(&mut out, self.position.lat().cast_unsigned());
        put_u32(&mut out, self.position.lon().cast_unsigned());
        put_u16(&mut out, self.speed.unwrap_or(UNKNOWN));
        put_u16(&mut out, self.course.unwrap_or(UNKNOWN));
        put_u32(&mut out, self.tags);
        out.extend_from_slice(self.name.as_bytes());
        out
    }

    /// Decodes a value. Errors: Corruption.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let mut d = Decoder::new(bytes);
        let mut read = || {
            let known = |n: u16| (n != UNKNOWN).then_some(n);
            Some(Self {
                time: Time(d.u64()?.cast_signed()),
                position: point::position(&mut d)?,
                speed: known(d.u16()?),
                course: known(d.u16()?),
                tags: d.u32()?,
                name: str::from_utf8(d.rest()).ok()?,
            })
        };
        read().ok_or_else(|| Error::corruption("geohash: a value that cannot be"))
    }
}

/// The newest point of an entity, as stored in `latest`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Newest<'a> {
    /// The name of the entity.
    pub name: &'a str,
    /// When the entity was there.
    pub time: Time,
    /// The cell of its row in `geohash`.
    pub cell: Cell,
    /// The point.
    pub point: Point,
}

impl<'a> Newest<'a> {
    /// The bytes of a value; `point` is the encoded point. A [name](super::name::Name) has at most
    /// 128 bytes.
    pub fn encode(name: &str, (time, cell): (Time, Cell), point: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(8 + cell::BYTES + 1 + name.len() + point.len());
        put_u64(&mut out, time.0.cast_unsigned());
        out.extend_from_slice(&Cell::to_bytes(cell.range().0));
        out.push(name.len() as u8);
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(point);
        out
    }

    /// The cell of a value whose point may be damaged.
    pub(crate) fn cell_of(bytes: &[u8]) -> Option<Cell> {
        let (_, rest) = bytes.split_at_checked(8)?;
        Some(Cell::of_bytes(*rest.first_chunk()?))
    }

    /// Decodes a value. Errors: Corruption; `NotSupported` if a newer release wrote it.
    pub fn decode(bytes: &'a [u8]) -> Result<Self> {
        let Parts {
            time,
            cell,
            name,
            point,
        } = Self::parts(bytes)?;
        let name = str::from_utf8(name)
            .map_err(|e| Error::corruption(format!("latest: the name of an entity: {e}")))?;
        let point = Point::decode(point)?;
        Ok(Self {
            name,
            time,
            cell,
            point,
        })
    }

    /// The parts of a value. Errors: Corruption.
    pub(crate) fn parts(bytes: &'a [u8]) -> Result<Parts<'a>> {
        let mut d = Decoder::new(bytes);
        let mut read = || {
            let time = Time(d.u64()?.cast_signed());
            let (cell, _) = d
                .bytes(cell::BYTES)?
                .split_first_chunk::<{ cell::BYTES }>()?;
            let len = d.u8()?;
            let name = d.bytes(usize::from(len))?;
            Some(Parts {
                time,
                cell: Cell::of_bytes(*cell),
                name,
                point: d.rest(),
            })
        };
        read().ok_or_else(|| Error::corruption("latest: a value that is too short"))
    }
}

/// The parts of a value of `latest`, of which name and point are not decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) time: Time,
    pub(crate) cell: Cell,
    pub(crate) name: &'a [u8],
    pub(crate) point: &'a [u8],
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use base::rng::Rng;

    use super::*;
    use crate::geo::position::at;

    #[test]
    fn what_is_written_is_read_and_what_is_hostile_is_refused() {
        let mut rng = Rng::new(8);
        let mut maybe = |below: u64| rng.one_in(2).then(|| rng.below(below));
        for n in 0..2000_i64 {
            let mut point = Point::at(at(n as f64 / 100.0, -(n as f64) / 50.0));
            point.speed = maybe(65_535).map(|n| n as u16);
            point.course = maybe(36_000).map(|n| n as u16);
            point.tags = maybe(1 << 32).map_or(0, |n| n as u32);
            let here = Here::of("car ü", Time(n - 1000), &point);
            let bytes = here.encode();
            assert_eq!(Here::decode(&bytes).unwrap(), here);
            assert!(Here::decode(&bytes[..23]).unwrap_err().is_corruption());
            assert!(
                Here::decode(&bytes[..bytes.len() - 1])
                    .unwrap_err()
                    .is_corruption()
            );

            let cell = Cell::of(point.position);
            let bytes = Newest::encode("car ü", (here.time, cell), &point.encode().unwrap());
            let newest = Newest {
                name: "car ü",
                time: here.time,
                cell,
                point,
            };
            assert_eq!(Newest::decode(&bytes).unwrap(), newest);
            for len in [0, 12, 13, 14, 19, 20, bytes.len() - 1] {
                assert!(Newest::decode(&bytes[..len]).unwrap_err().is_corruption());
            }
        }
    }
}
