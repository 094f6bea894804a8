//! Under which key a block is in the cache, of which kind it is, and how long it stays.

/// What a block of the cache has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockKind {
    /// Entries of a table.
    Data,
    /// An index, or a part of one.
    Index,
    /// The top level of partitioned filters.
    FilterIndex,
    /// A filter, or a part of one.
    Filter,
}

impl BlockKind {
    /// All, in their order.
    pub const ALL: [Self; 4] = [Self::Data, Self::Index, Self::FilterIndex, Self::Filter];

    /// The offset of a block as a part of its key: other than that of any other kind of block, also if a damaged file has
    /// several in one place. No file is so long that the two highest bits are needed.
    pub(crate) fn place(self, offset: u64) -> u64 {
        offset | (self as u64) << Self::SHIFT
    }

    const SHIFT: u32 = 62;

    pub(super) fn of_place(place: u64) -> Self {
        Self::ALL[(place >> Self::SHIFT) as usize]
    }
}

/// In the cache id of a file: its blocks stay out of the second tier.
const FIRST_TIER: u64 = 1 << 63;

/// The key of a block: the file's cache id (see [`BlockCache::new_id`](super::BlockCache::new_id)) and the offset in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheKey {
    /// The file.
    pub id: u64,
    /// Offset of the block in bytes. The two highest bits say what kind of block it is.
    pub offset: u64,
}

impl CacheKey {
    /// Two multiplications, so that every bit of the key affects the upper half.
    #[inline]
    pub(super) fn hash(self) -> u64 {
        let a = (self.id ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let wide = u128::from(a ^ self.offset) * u128::from(0xd6e8_feb8_6659_fd93_u64);
        (wide >> 64) as u64 ^ wide as u64
    }

    pub(super) fn kind(self) -> BlockKind {
        BlockKind::of_place(self.offset)
    }

    pub(super) fn id_of_first_tier(id: u64) -> u64 {
        id | FIRST_TIER
    }

    pub(super) fn is_of_first_tier(self) -> bool {
        self.id & FIRST_TIER != 0
    }
}

/// A tier of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[doc(hidden)]
pub enum Tier {
    /// Blocks as they are used.
    First,
    /// Compressed blocks.
    Second,
}

/// How long a block stays in the cache although nobody asks for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[doc(hidden)]
pub enum Priority {
    /// Until the CLOCK hand has passed it once.
    #[default]
    Low,
    /// As long as a block that was asked for.
    High,
}
