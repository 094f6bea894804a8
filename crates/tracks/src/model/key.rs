//! Keys of the column families.

use base::{Error, Result};

use super::time::{Bucket, Time};
use crate::geo::cell::{self, Cell};

/// The number of a fleet: a set of entities with one owner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fleet(pub u32);

/// The number of an entity: something that moves and belongs to a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Entity(pub u64);

impl Time {
    fn to_bytes(self) -> [u8; 8] {
        (self.0 as u64 ^ 1 << 63).to_be_bytes()
    }

    fn of_bytes(bytes: [u8; 8]) -> Self {
        Self((u64::from_be_bytes(bytes) ^ 1 << 63) as i64)
    }
}

impl Bucket {
    fn to_bytes(self) -> [u8; 4] {
        (self.0 as u32 ^ 1 << 31).to_be_bytes()
    }

    fn of_bytes(bytes: [u8; 4]) -> Self {
        Self((u32::from_be_bytes(bytes) ^ 1 << 31) as i32)
    }
}

/// The key of a point in `default`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PointKey {
    /// The fleet.
    pub fleet: Fleet,
    /// The entity.
    pub entity: Entity,
    /// When the entity was there.
    pub time: Time,
}

impl PointKey {
    /// Bytes of a key.
    pub const LEN: usize = 20;

    /// The bytes of the key.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        fill(
            &mut out,
            &[
                &self.fleet.0.to_be_bytes(),
                &self.entity.0.to_be_bytes(),
                &self.time.to_bytes(),
            ],
        );
        out
    }

    /// Decodes a key. Errors: Corruption if it does not have 20 bytes.
    pub fn of_bytes(bytes: &[u8]) -> Result<Self> {
        let mut parts = Parts::of("default", bytes, Self::LEN)?;
        Ok(Self {
            fleet: Fleet(u32::from_be_bytes(parts.next()?)),
            entity: Entity(u64::from_be_bytes(parts.next()?)),
            time: Time::of_bytes(parts.next()?),
        })
    }
}

/// The key of an entity's newest position in `geohash`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CellKey {
    /// The fleet.
    pub fleet: Fleet,
    /// The cell, at a depth of 40.
    pub cell: Cell,
    /// The entity.
    pub entity: Entity,
}

impl CellKey {
    /// Bytes of a key.
    pub const LEN: usize = 17;

    /// The bytes of the key.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let cell = Cell::to_bytes(self.cell.range().0);
        let mut out = [0; Self::LEN];
        fill(
            &mut out,
            &[
                &self.fleet.0.to_be_bytes(),
                &cell,
                &self.entity.0.to_be_bytes(),
            ],
        );
        out
    }

    /// Decodes a key. Errors: Corruption if it does not have 17 bytes.
    pub fn of_bytes(bytes: &[u8]) -> Result<Self> {
        let mut parts = Parts::of("geohash", bytes, Self::LEN)?;
        Ok(Self {
            fleet: Fleet(u32::from_be_bytes(parts.next()?)),
            cell: Cell::of_bytes(parts.next::<{ cell::BYTES }>()?),
            entity: Entity(u64::from_be_bytes(parts.next()?)),
        })
    }
}

/// The key of an entity's newest point in `latest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EntityKey {
    /// The fleet.
    pub fleet: Fleet,
    /// The entity.
    pub entity: Entity,
}

impl EntityKey {
    /// Bytes of a key.
    pub const LEN: usize = 12;

    /// The bytes of the key.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        fill(
            &mut out,
            &[&self.fleet.0.to_be_bytes(), &self.entity.0.to_be_bytes()],
        );
        out
    }

    /// Decodes a key. Errors: Corruption if it does not have 12 bytes.
    pub fn of_bytes(bytes: &[u8]) -> Result<Self> {
        let mut parts = Parts::of("latest", bytes, Self::LEN)?;
        Ok(Self {
            fleet: Fleet(u32::from_be_bytes(parts.next()?)),
            entity: Entity(u64::from_be_bytes(parts.next()?)),
        })
    }
}

/// The key in `visits` of an entity that was in a cell during ten minutes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct VisitKey {
    /// The fleet.
    pub fleet: Fleet,
    /// The ten minutes.
    pub bucket: Bucket,
    /// The cell, at a depth of [`VisitKey::DEPTH`].
    pub cell: Cell,
    /// The entity.
    pub entity: Entity,
}

impl VisitKey {
    /// Bytes of a key.
    pub const LEN: usize = 20;
    /// Depth of its cell, which is 1.2 km wide and 0.6 km high at the equator.
    pub const DEPTH: u8 = 30;

    /// The bytes of the key.
    pub fn to_bytes(self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        let cell = self.cell.at_depth(Self::DEPTH).coarse();
        fill(
            &mut out,
            &[
                &self.fleet.0.to_be_bytes(),
                &self.bucket.to_bytes(),
                &cell.to_be_bytes(),
                &self.entity.0.to_be_bytes(),
            ],
        );
        out
    }

    /// Decodes a key. Errors: Corruption if it does not have 20 bytes or its cell is invalid.
    pub fn of_bytes(bytes: &[u8]) -> Result<Self> {
        let mut parts = Parts::of("visits", bytes, Self::LEN)?;
        Ok(Self {
            fleet: Fleet(u32::from_be_bytes(parts.next()?)),
            bucket: Bucket::of_bytes(parts.next()?),
            cell: Cell::of_coarse(u32::from_be_bytes(parts.next()?), Self::DEPTH)
                .ok_or_else(|| Error::corruption("visits: a key whose cell is none"))?,
            entity: Entity(u64::from_be_bytes(parts.next()?)),
        })
    }
}

impl Fleet {
    /// The common prefix of all keys of the fleet.
    pub fn prefix(self) -> [u8; 4] {
        self.0.to_be_bytes()
    }
}

/// The first key after all keys that begin with `prefix`. `None` if there is none.
pub fn behind(prefix: &[u8]) -> Option<Vec<u8>> {
    let kept = prefix.iter().rposition(|&byte| byte != u8::MAX)?;
    let mut out = prefix.get(..=kept)?.to_vec();
    *out.last_mut()? += 1;
    Some(out)
}

fn fill(out: &mut [u8], parts: &[&[u8]]) {
    let bytes = parts.iter().flat_map(|part| part.iter());
    out.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
}

/// The bytes of a key that are not read yet.
struct Parts<'a> {
    family: &'a str,
    rest: &'a [u8],
}

impl<'a> Parts<'a> {
    fn of(family: &'a str, bytes: &'a [u8], len: usize) -> Result<Self> {
        if bytes.len() == len {
            return Ok(Self {
                family,
                rest: bytes,
            });
        }
        Err(Error::corruption(format!(
            "{family}: a key of {} bytes, and not of {len}",
            bytes.len()
        )))
    }

    fn next<const N: usize>(&mut self) -> Result<[u8; N]> {
        let (part, rest) = self.rest.split_first_chunk().ok_or_else(|| {
            Error::corruption(format!("{}: a key that is too short", self.family))
        })?;
        self.rest = rest;
        Ok(*part)
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use base::rng::Rng;

    use super::*;
    use crate::geo::position::Position;

    fn some(rng: &mut Rng) -> (Fleet, Entity, Time, Cell) {
        // Few distinct values, so that each part decides the order of some pairs.
        let time = [i64::MIN, -1, 0, 1, i64::MAX][rng.below(5) as usize];
        let lon = (rng.below(5) as i32 - 2) * 1_700_000;
        (
            Fleet(rng.below(2) as u32 * 256),
            Entity(rng.below(3) << 40),
            Time(time),
            Cell::of(Position::of_units(17, lon).unwrap()),
        )
    }

    #[test]
    fn keys_have_the_order_of_what_they_mean() {
        let mut rng = Rng::new(6);
        for _ in 0..5000 {
            let [a, b] = [0; 2].map(|_| some(&mut rng));
            let point = |(fleet, entity, time, _)| PointKey {
                fleet,
                entity,
                time,
            };
            let cell = |(fleet, entity, _, cell)| CellKey {
                fleet,
                cell,
                entity,
            };
            let entity = |(fleet, entity, _, _)| EntityKey { fleet, entity };
            let visit = |(fleet, entity, time, cell): (_, _, Time, Cell)| VisitKey {
                fleet,
                bucket: time.bucket(),
                cell: cell.at_depth(VisitKey::DEPTH),
                entity,
            };
            assert_eq!(
                visit(a).cmp(&visit(b)),
                visit(a).to_bytes().cmp(&visit(b).to_bytes())
            );
            assert_eq!(VisitKey::of_bytes(&visit(a).to_bytes()).unwrap(), visit(a));
            assert_eq!(
                point(a).cmp(&point(b)),
                point(a).to_bytes().cmp(&point(b).to_bytes())
            );
            assert_eq!(
                cell(a).cmp(&cell(b)),
                cell(a).to_bytes().cmp(&cell(b).to_bytes())
            );
            assert_eq!(
                entity(a).cmp(&entity(b)),
                entity(a).to_bytes().cmp(&entity(b).to_bytes())
            );
            assert_eq!(PointKey::of_bytes(&point(a).to_bytes()).unwrap(), point(a));
            assert_eq!(CellKey::of_bytes(&cell(a).to_bytes()).unwrap(), cell(a));
            assert_eq!(
                EntityKey::of_bytes(&entity(a).to_bytes()).unwrap(),
                entity(a)
            );
        }
    }

    #[test]
    fn keys_of_another_length_are_refused_by_family() {
        for len in 0..30 {
            let bytes = vec![7; len];
            let found = [
                PointKey::of_bytes(&bytes).err(),
                CellKey::of_bytes(&bytes).err(),
                EntityKey::of_bytes(&bytes).err(),
                VisitKey::of_bytes(&bytes).err(),
            ];
            for ((e, right), family) in found
                .into_iter()
                .zip([20, 17, 12, 20])
                .zip(["default", "geohash", "latest", "visits"])
            {
                assert_eq!(e.is_none(), len == right);
                assert!(e.is_none_or(|e| e.to_string().contains(family)));
            }
        }
    }

    #[test]
    fn what_is_behind_a_prefix() {
        assert_eq!(behind(&[1, 2]), Some(vec![1, 3]));
        assert_eq!(behind(&[1, 255, 255]), Some(vec![2]));
        assert_eq!((behind(&[255, 255]), behind(&[])), (None, None));
        let mut none = [7; VisitKey::LEN];
        none[8] = 0xff;
        assert!(VisitKey::of_bytes(&none).unwrap_err().is_corruption());
    }
}
