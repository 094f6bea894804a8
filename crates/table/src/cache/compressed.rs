//! The second tier of a block cache: blocks that the first one evicts, compressed.
//!
//! ```text
//!   first tier ── evicts ──> seen before? ─no──> its number is noted
//!       ^                        └─yes─> compressed ──> second tier
//!       └──── hit again ──── decompressed <──── hit ────────┘
//! ```
//!
//! A block is admitted the second time that it is evicted, so that a scan over cold data compresses nothing and evicts
//! nothing. A hit decompresses the block for the reader; the second hit puts it into the first tier too. Its compressed form
//! stays, until the CLOCK of this tier evicts it because it is not asked for any more: so a block that goes back and forth
//! is compressed once.
//!
//! What was seen is a table of 32-bit tags, one for each KiB of the capacity, in which a newer block takes the place of an
//! older one. A tag that two blocks share admits one of them too early, and nothing else.
#![deny(clippy::indexing_slicing)]

use std::fmt;
use std::sync::OnceLock;

use base::perf::{self, PerfCounter};
use base::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use super::{BlockCache, BlockKind, CacheKey, MakesRoom, Priority};
use crate::block::Block;
use crate::compress::{self, CompressionSettings, CompressionType};

/// Bytes of the capacity for each tag.
const BYTES_PER_TAG: usize = 1 << 10;
/// The smallest table of tags has two to the power of this many.
const LEVEL_MIN: usize = 6;
/// The largest has 2^24, which take 64 MiB: enough for 16 GiB of blocks; a larger tier shares them.
const LEVELS: usize = 25;
/// Changes the hash of a key, so that hits are noted apart from evictions.
const HIT: u64 = 0x517c_c1b7_2722_0a95;
/// The layout of compressed payloads.
const FORMAT: u32 = 2;

/// Settings of a [`CompressedSecondaryCache`].
///
/// ```
/// use std::sync::Arc;
/// use table::cache::{BlockCache, CompressedSecondaryCacheOptions};
/// let second = CompressedSecondaryCacheOptions {
///     capacity: 96 << 20,
///     ..CompressedSecondaryCacheOptions::default()
/// };
/// let cache = Arc::new(BlockCache::with_secondary(32 << 20, &second));
/// assert_eq!(cache.secondary().map(|second| second.capacity()), Some(96 << 20));
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompressedSecondaryCacheOptions {
    /// Bytes of the tier, beside those of the first tier.
    pub capacity: usize,
    /// How blocks are compressed. Filters, and blocks that hardly become smaller, are kept as they are.
    pub compression_type: CompressionType,
    /// The level of compression, in the meaning of its type: that of `compression_opts`.
    pub compression_level: i32,
}

impl Default for CompressedSecondaryCacheOptions {
    /// LZ4 with its default level, and no bytes.
    fn default() -> Self {
        Self {
            capacity: 0,
            compression_type: CompressionType::Lz4,
            compression_level: compress::DEFAULT_LEVEL,
        }
    }
}

/// A block of the second tier.
pub(super) struct Hit {
    pub(super) block: Block,
    /// Whether it was asked for before.
    pub(super) is_again: bool,
    /// Whether its memory is that of the tier, because it is not compressed.
    pub(super) is_as_kept: bool,
}

/// The second tier of a [`BlockCache`], which holds blocks compressed: see [`BlockCache::with_secondary`].
pub struct CompressedSecondaryCache {
    /// Bytes of the blocks and of `seen`.
    capacity: AtomicUsize,
    blocks: BlockCache,
    /// What was evicted once, and what was hit once.
    seen: Seen,
    kind: CompressionType,
    settings: CompressionSettings,
}

impl CompressedSecondaryCache {
    pub(super) fn new(options: &CompressedSecondaryCacheOptions) -> Self {
        let seen = Seen::new(options.capacity);
        Self {
            capacity: AtomicUsize::new(options.capacity),
            blocks: BlockCache::new(options.capacity.saturating_sub(seen.memory())),
            seen,
            kind: options.compression_type,
            settings: CompressionSettings {
                level: options.compression_level,
                ..CompressionSettings::default()
            },
        }
    }

    /// Capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes the capacity, and evicts blocks that no longer fit. The memory in which evictions are noted, 4 bytes for each KiB
    /// of the largest capacity so far and at most 128 MiB, is not given back.
    pub fn set_capacity(&self, bytes: usize) {
        self.capacity.store(bytes, Ordering::Relaxed);
        self.seen.fit(bytes);
        let blocks = bytes.saturating_sub(self.seen.memory());
        self.blocks.set_capacity(blocks);
    }

    /// Bytes of the blocks in this tier, as they are kept.
    pub fn usage(&self) -> usize {
        self.blocks.usage()
    }

    /// Number of blocks in this tier.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// True if there is no block.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// A block, decompressed. With `notes`, it is noted that it was asked for.
    pub(super) fn get(&self, key: CacheKey, notes: bool) -> Option<Hit> {
        let kept = self.blocks.get(key)?;
        let parts = kept.compressed_parts();
        let block = match parts {
            None => kept.to_block(),
            Some(parts) => self.restore(parts)?,
        };
        Some(Hit {
            block,
            is_again: notes && self.seen.again(key.hash() ^ HIT),
            is_as_kept: parts.is_none(),
        })
    }

    /// Takes a block out, for the first tier, and admits it as soon as that evicts it. False if it is not there any more, or
    /// somebody reads it at the moment.
    pub(super) fn take(&self, key: CacheKey) -> bool {
        let taken = self.blocks.remove(key);
        if taken {
            self.seen.note(key.hash());
        }
        taken
    }

    /// A block from its compressed form. `None` if that is damaged, which only broken memory does.
    fn restore(&self, (shape, payload): (&[u8], &[u8])) -> Option<Block> {
        let size = compress::size_in_place(self.kind, payload, FORMAT);
        let restored = match size {
            Ok(Some(size)) => Block::restore(shape, size, |out| {
                compress::decompress_into(self.kind, payload, &[], out)
            }),
            Ok(None) => {
                let memory = compress::decompress(self.kind, payload, FORMAT, &[]).ok()?;
                Block::restore(shape, memory.len(), |out| {
                    out.copy_from_slice(&memory);
                    Ok(())
                })
            }
            Err(e) => Err(e),
        };
        restored.ok()
    }

    pub(super) fn blocks(&self) -> &BlockCache {
        &self.blocks
    }

    /// Takes a block that the first tier has evicted, if it was evicted before.
    pub(super) fn demote(&self, key: CacheKey, block: &Block) {
        if self.blocks.capacity() == 0 || key.is_of_first_tier() {
            return;
        }
        if self.blocks.holds(key) {
            return;
        }
        if !self.seen.again(key.hash()) {
            perf::count(PerfCounter::CompressedSecCacheInsertDummyCount, 1);
            return;
        }
        self.insert(key, block, MakesRoom::Dropping);
    }

    /// Compresses and inserts a block. Returns the bytes that the tier is charged for it; 0 if it was not inserted.
    pub(super) fn insert(&self, key: CacheKey, block: &Block, makes_room: MakesRoom) -> usize {
        if makes_room == MakesRoom::Never && !self.blocks.has_room(0) {
            return 0;
        }
        let compressed = self.compress(key, block);
        let kept = compressed.as_ref().unwrap_or(block);
        let what = (key, kept, Priority::Low);
        let inserted = self.blocks.insert_making_room(what, makes_room);
        let charge = BlockCache::charge(kept);
        if inserted {
            let bytes = |block: &Block| block.memory() as u64;
            let kept = bytes(kept);
            perf::count(PerfCounter::CompressedSecCacheInsertRealCount, 1);
            perf::count(
                PerfCounter::CompressedSecCacheUncompressedBytes,
                bytes(block),
            );
            perf::count(PerfCounter::CompressedSecCacheCompressedBytes, kept);
        }
        if inserted { charge } else { 0 }
    }

    /// The compressed form of a block; `None` if it is to be kept as it is.
    fn compress(&self, key: CacheKey, block: &Block) -> Option<Block> {
        // Filters are random bits.
        if self.kind == CompressionType::None || key.kind() == BlockKind::Filter {
            return None;
        }
        let mut payload = Vec::new();
        let (shape, memory) = block.for_compression();
        match compress::compress(self.kind, &self.settings, &[], memory, &mut payload) {
            Ok(true) => Block::compressed(&shape, &payload).ok(),
            Ok(false) | Err(_) => None,
        }
    }
}

impl fmt::Debug for CompressedSecondaryCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompressedSecondaryCache")
            .field("capacity", &self.capacity())
            .field("usage", &self.usage())
            .field("blocks", &self.len())
            .field("compression_type", &self.kind)
            .finish_non_exhaustive()
    }
}

/// Hashes that came once.
struct Seen {
    /// The number of the table in use.
    level: AtomicUsize,
    /// The one with number n has 2^n tags. One that was outgrown is kept, because others may be reading it.
    tables: [OnceLock<Box<[AtomicU32]>>; LEVELS],
}

impl Seen {
    fn new(capacity: usize) -> Self {
        let seen = Self {
            level: AtomicUsize::new(0),
            tables: [const { OnceLock::new() }; LEVELS],
        };
        seen.fit(capacity);
        seen
    }

    /// Takes the table for a tier of so many bytes, in which other hashes are noted, or none.
    fn fit(&self, capacity: usize) {
        let level = (capacity / BYTES_PER_TAG).max(1).ilog2() as usize;
        let level = level.clamp(LEVEL_MIN, LEVELS - 1);
        if let Some(table) = self.tables.get(level) {
            table.get_or_init(|| (0..1 << level).map(|_| AtomicU32::new(0)).collect());
            self.level.store(level, Ordering::Release);
        }
    }

    fn tags(&self) -> &[AtomicU32] {
        let table = self.tables.get(self.level.load(Ordering::Acquire));
        table.and_then(OnceLock::get).map_or(&[], |tags| &**tags)
    }

    /// Bytes of the table in use.
    fn memory(&self) -> usize {
        size_of_val(self.tags())
    }

    /// Whether a hash has come before and is still noted; it is forgotten then. If not, it is noted.
    fn again(&self, hash: u64) -> bool {
        let Some((slot, tag)) = self.place(hash) else {
            return false;
        };
        let is_noted = slot.load(Ordering::Relaxed) == tag;
        slot.store(if is_noted { 0 } else { tag }, Ordering::Relaxed);
        is_noted
    }

    fn note(&self, hash: u64) {
        if let Some((slot, tag)) = self.place(hash) {
            slot.store(tag, Ordering::Relaxed);
        }
    }

    /// Where a hash is noted, and as what.
    fn place(&self, hash: u64) -> Option<(&AtomicU32, u32)> {
        let tags = self.tags();
        let slot = tags.get(hash as usize & tags.len().wrapping_sub(1))?;
        Some((slot, ((hash >> 32) as u32).max(1)))
    }
}

#[cfg(test)]
mod tests;
