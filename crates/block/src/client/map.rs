//! Where the bytes of a volume are: pure geometry.
//!
//! ```text
//!   stripe units of a volume, `count` 4:   0 1 2 3   4 5 6 7   8 …    then the next 4 chunks
//!   chunk                                  0 1 2 3   0 1 2 3   0 …
//! ```
//!
//! Stripe units rotate over `count` chunks until these chunks are full. Chunk i belongs to the group with the
//! number i mod n in the volume's list of n groups. So a range is spread over several groups, and a sequential
//! write touches few chunks.

use base::{Error, Result};

use crate::ids::{BLOCK, Chunk, Group, Layer, Tree};
use crate::wire::client::{BYTES_MAX, CHUNK_BYTES};

/// How a volume's bytes rotate over its chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Striping {
    /// Bytes of a stripe unit: a multiple of 4096, at most 1 MiB. A chunk holds a whole number of them.
    pub unit_bytes: u32,
    /// Number of chunks that the units rotate over.
    pub count: u32,
}

impl Default for Striping {
    fn default() -> Self {
        Self {
            unit_bytes: 1 << 20,
            count: 4,
        }
    }
}

/// A part of a range of a volume, in one stripe unit of one chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Piece {
    /// The group that has the chunk.
    pub group: Group,
    /// The chunk.
    pub chunk: Chunk,
    /// Offset of the piece in the chunk, in bytes.
    pub offset_in_chunk: u32,
    /// Length in bytes.
    pub len: u32,
    /// Offset of the piece in the requested range, in bytes.
    pub offset_in_request: u64,
}

/// A volume's geometry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    size: u64,
    tree: Tree,
    layer: Layer,
    striping: Striping,
    groups: Vec<Group>,
    chunk_bytes: u32,
}

impl Map {
    /// The map of a volume of `size` bytes whose head is `layer`. Errors: `InvalidArgument` names the
    /// impossible value.
    pub fn new(
        size: u64,
        (tree, layer): (Tree, Layer),
        striping: Striping,
        groups: Vec<Group>,
    ) -> Result<Self> {
        let unit = striping.unit_bytes;
        let map = Self {
            size,
            tree,
            layer,
            striping,
            groups,
            chunk_bytes: CHUNK_BYTES,
        };
        let wrong = if unit == 0 || unit > BYTES_MAX || !unit.is_multiple_of(BLOCK as u32) {
            "stripe units have 4 KiB to 1 MiB, a multiple of 4 KiB"
        } else if !CHUNK_BYTES.is_multiple_of(unit) {
            "a chunk has a whole number of stripe units"
        } else if striping.count == 0 || map.groups.is_empty() {
            "a volume has at least one chunk in a stripe, and one group"
        } else if map.chunks() > u64::from(u32::MAX) {
            "a volume has less than 2^32 chunks"
        } else {
            return Ok(map);
        };
        Err(Error::invalid_argument(format!("{wrong}: {map:?}")))
    }

    /// Size of the volume in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The tree of layers.
    pub fn tree(&self) -> Tree {
        self.tree
    }

    /// The head layer.
    pub fn layer(&self) -> Layer {
        self.layer
    }

    /// The groups, in the order in which chunks are assigned to them.
    pub fn groups(&self) -> &[Group] {
        &self.groups
    }

    /// Number of chunks that may hold bytes of the volume.
    pub fn chunks(&self) -> u64 {
        let count = u64::from(self.striping.count);
        let stripe = count * u64::from(self.chunk_bytes);
        self.size.div_ceil(stripe).saturating_mul(count)
    }

    /// The group that has a chunk.
    pub fn group(&self, chunk: Chunk) -> Group {
        let n = self.groups.len().max(1);
        let group = self.groups.get(chunk.0 as usize % n);
        group.copied().unwrap_or_default()
    }

    /// The piece from an offset to the end of its stripe unit.
    fn at(&self, offset: u64) -> Piece {
        let (unit, count) = (u64::from(self.striping.unit_bytes), self.striping.count);
        let units_of_chunk = u64::from(self.chunk_bytes) / unit;
        let units_of_set = units_of_chunk * u64::from(count);
        let (set, n) = (offset / unit / units_of_set, offset / unit % units_of_set);
        let chunk = Chunk((set * u64::from(count) + n % u64::from(count)) as u32);
        let within = offset % unit;
        Piece {
            group: self.group(chunk),
            chunk,
            offset_in_chunk: (n / u64::from(count) * unit + within) as u32,
            len: (unit - within) as u32,
            offset_in_request: 0,
        }
    }

    /// The pieces of a range, in order. The part of the range beyond the volume's end is left out.
    pub fn pieces(&self, offset: u64, len: u64) -> impl Iterator<Item = Piece> + '_ {
        let end = offset.saturating_add(len).min(self.size);
        let mut from = offset;
        std::iter::from_fn(move || {
            let left = end.checked_sub(from).filter(|&left| left > 0)?;
            let mut piece = self.at(from);
            piece.len = left.min(u64::from(piece.len)) as u32;
            piece.offset_in_request = from - offset;
            from += u64::from(piece.len);
            Some(piece)
        })
    }

    /// The offset in the volume of a byte of a chunk; it may lie beyond the volume's end.
    pub fn offset_of(&self, chunk: Chunk, offset_in_chunk: u32) -> u64 {
        let (unit, count) = (self.striping.unit_bytes, u64::from(self.striping.count));
        let units_of_chunk = u64::from(self.chunk_bytes / unit);
        let (set, column) = (u64::from(chunk.0) / count, u64::from(chunk.0) % count);
        let row = u64::from(offset_in_chunk / unit);
        let n = (set * units_of_chunk + row) * count + column;
        n * u64::from(unit) + u64::from(offset_in_chunk % unit)
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn map(size: u64, unit_bytes: u32, count: u32, chunk_bytes: u32, groups: u32) -> Map {
        Map {
            size,
            tree: Tree(1),
            layer: Layer(2),
            striping: Striping { unit_bytes, count },
            groups: (10..10 + groups).map(Group).collect(),
            chunk_bytes,
        }
    }

    #[test]
    fn a_volume_as_it_is_made() {
        let groups = vec![Group(5), Group(6), Group(7)];
        let ids = (Tree(1), Layer(2));
        let map = Map::new(100 << 20, ids, Striping::default(), groups.clone()).unwrap();
        assert_eq!(map.chunks(), 8);
        let pieces: Vec<Piece> = map.pieces((1 << 20) - 5, (4 << 20) + 10).collect();
        let chunks: Vec<u32> = pieces.iter().map(|p| p.chunk.0).collect();
        assert_eq!(chunks, [0, 1, 2, 3, 0, 1]);
        let lens: Vec<u32> = pieces.iter().map(|p| p.len).collect();
        assert_eq!(lens, [5, 1 << 20, 1 << 20, 1 << 20, 1 << 20, 5]);
        assert_eq!(pieces[4].offset_in_chunk, 1 << 20);
        assert_eq!(pieces[4].offset_in_request, 5 + (3 << 20));
        assert_eq!(pieces[3].group, Group(5), "chunk 3 of 3 groups");
        let next = map.pieces(64 << 20, 1).next().unwrap();
        assert_eq!((next.chunk, next.group), (Chunk(4), Group(6)));
        assert_eq!(map.pieces(100 << 20, 9).next(), None);
        assert_eq!(map.pieces(0, 0).next(), None);
        let striping = |unit_bytes, count| Striping { unit_bytes, count };
        for (size, striping, groups) in [
            (1, striping(0, 4), groups.clone()),
            (1, striping(5000, 4), groups.clone()),
            (1, striping(3 * 4096, 4), groups.clone()),
            (1, striping(2 << 20, 4), groups.clone()),
            (1, striping(4096, 0), groups.clone()),
            (1, striping(4096, 4), vec![]),
            (u64::MAX, striping(4096, 4), groups),
        ] {
            assert!(Map::new(size, ids, striping, groups).is_err());
        }
    }

    /// Every byte of a small volume has a place of its own, and `offset_of` is the inverse.
    #[test]
    fn small_volumes_are_bijective() {
        for (unit, count, units, groups) in [
            (1, 1, 1, 1),
            (2, 3, 2, 2),
            (3, 2, 4, 5),
            (1, 4, 3, 3),
            (4, 4, 1, 1),
        ] {
            for size in 0..60 {
                let map = map(size, unit, count, unit * units, groups);
                let mut places = BTreeSet::new();
                for piece in map.pieces(0, size) {
                    for i in 0..piece.len {
                        let at = (piece.chunk, piece.offset_in_chunk + i);
                        assert!(places.insert(at), "{map:?}: {at:?} twice");
                        assert!(at.1 < map.chunk_bytes && u64::from(at.0.0) < map.chunks());
                        let back = map.offset_of(at.0, at.1);
                        assert_eq!(back, piece.offset_in_request + u64::from(i));
                    }
                }
                assert_eq!(places.len() as u64, size);
                for offset in 0..size {
                    for len in 0..=size - offset {
                        check(&map, offset, len);
                    }
                }
            }
        }
    }

    /// Pieces cover the range without gaps; none crosses a stripe unit or a chunk.
    fn check(map: &Map, offset: u64, len: u64) {
        let mut at = 0;
        for piece in map.pieces(offset, len) {
            assert_eq!(piece.offset_in_request, at);
            assert!(piece.len > 0);
            let unit = map.striping.unit_bytes;
            let last = piece.offset_in_chunk + piece.len - 1;
            assert_eq!(piece.offset_in_chunk / unit, last / unit);
            assert!(last < map.chunk_bytes);
            assert_eq!(piece.group, map.group(piece.chunk));
            let back = map.offset_of(piece.chunk, piece.offset_in_chunk);
            assert_eq!(back, offset + at);
            at += u64::from(piece.len);
        }
        assert_eq!(at, len.min(map.size.saturating_sub(offset)));
    }

    proptest! {
        #[test]
        fn any_range_of_a_volume_is_covered(
            size in 0_u64..1 << 45,
            unit in 0_u32..9,
            count in 1_u32..9,
            groups in 1_u32..9,
            offset in any::<u64>(),
            len in 0_u64..40 << 20,
        ) {
            let striping = Striping { unit_bytes: 4096 << unit, count };
            let groups = (0..groups).map(Group).collect();
            let map = Map::new(size, (Tree(1), Layer(1)), striping, groups).unwrap();
            check(&map, offset % (size + 1), len);
        }
    }
}
