//! The block cache: sharded, with CLOCK eviction and hits that take no lock.
//!
//! ```text
//!   key ─hash─> shard ─┬─ table: open addressing, words of (hash tag | entry number)
//!                      └─ entries: chunks that never move, one cache line each
//!                           state: | 2 bits EMPTY/BUSY/LIVE | 2 bits CLOCK | pins |
//! ```
//!
//! **A hit** probes the table without a lock, adds a pin to the state of the entry that the table
//! names, and only then checks that the entry is LIVE and holds the key. A pinned entry cannot change,
//! so a stale word of the table does no harm. At worst, a hit misses a block that is being moved in the
//! table at that moment, which costs one read. The only shared cache line that a hit writes is the
//! entry's own.
//!
//! **Insert and evict** run under the shard's mutex. To take an entry, the writer changes its state
//! from (LIVE, no pins) to BUSY atomically, so that no reader is using it. A reader that pins a BUSY
//! entry sees that state, and removes its pin without accessing anything else.
//!
//! Neither tables nor entries are freed before the cache is, so that readers need no protection
//! against reclamation. A table that was outgrown is kept; all outgrown tables together are smaller
//! than the current one.
//!
//! **Capacity is strict**: a block that does not fit, after evicting what may be evicted, is not
//! cached; the caller keeps its own copy. Blocks that are still in use are not evicted, as that would
//! free no memory. [`BlockCache::reserve`] charges memory outside of the cache (pinned indexes and filters).
//!
//! The capacity is that of all shards together, so that a block may be larger than a shard's share. A block evicts
//! from its own shard as long as that keeps half of its share; then all shards give room evenly.
#![expect(
    unsafe_code,
    reason = "lock-free hits read a value that the entry's pin protects"
)]

mod compressed;
mod key;
mod shard;

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use crate::block::Block;
pub use compressed::{CompressedSecondaryCache, CompressedSecondaryCacheOptions};
pub use key::{BlockKind, CacheKey, Priority, Tier};
use shard::Shard;

/// The cache's own memory per block, in bytes: the entry and its share of the table.
const OVERHEAD: usize = 64 + 16;
/// Minimum capacity of a shard in bytes: in smaller ones, large blocks would evict each other.
const SHARD_BYTES_MIN: usize = 2 << 20;
const SHARDS_MAX: usize = 64;
/// A shard does not give more room to its own blocks than leaves it this part of its share of the capacity.
const KEPT_PART: usize = 2;
/// A block of at least this part of the capacity is refused if blocks in use would not leave room for it. Otherwise it
/// would evict everything else in vain.
const LARGE_PART: usize = 8;
/// How many other shards a usual block asks for room. If these have none, it is not cached.
const ASKED: usize = 4;

/// A cache of blocks, shared by tables and databases.
pub struct BlockCache {
    shards: Box<[Shard]>,
    capacity: AtomicUsize,
    reserved: AtomicUsize,
    counts: Counts,
    next_id: AtomicU64,
    secondary: Option<Box<CompressedSecondaryCache>>,
}

/// What insertions change, apart from what hits read.
#[derive(Default)]
#[repr(align(128))]
struct Counts {
    /// Bytes of the blocks of all shards.
    used: AtomicUsize,
    /// Bytes of the blocks that are being inserted.
    coming: AtomicUsize,
    /// The shard that gives room first.
    next_shard: AtomicUsize,
}

/// How an insertion makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MakesRoom {
    /// What it evicts goes to the second tier, which takes time.
    Demoting,
    /// What it evicts is dropped: for threads that may hold a lock.
    Dropping,
    /// Not at all.
    Never,
}

/// The outcome of an insertion into a shard.
enum Inserted {
    Yes,
    /// There is a block under the key already, or the shard has no more entries.
    No,
    /// The shard has evicted only so many bytes.
    LacksRoom(usize),
}

/// Blocks that have left the cache. They are freed, or compressed for the second tier, after the locks are released: this
/// is dropped last.
struct Evicted<'a> {
    blocks: Vec<(CacheKey, Block)>,
    secondary: Option<&'a CompressedSecondaryCache>,
}

impl Evicted<'_> {
    fn push(&mut self, key: CacheKey, block: Block) {
        self.blocks.push((key, block));
    }
}

impl Drop for Evicted<'_> {
    fn drop(&mut self) {
        for (key, block) in self.blocks.drain(..) {
            if let Some(secondary) = self.secondary {
                secondary.demote(key, &block);
            }
            block.recycle();
        }
    }
}

impl BlockCache {
    /// An empty cache that will hold at most `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        let wanted = (capacity / SHARD_BYTES_MIN).clamp(1, SHARDS_MAX);
        let shards = 1usize << wanted.ilog2();
        Self {
            shards: (0..shards).map(|_| Shard::new()).collect(),
            capacity: AtomicUsize::new(capacity),
            reserved: AtomicUsize::new(0),
            counts: Counts::default(),
            next_id: AtomicU64::new(1),
            secondary: None,
        }
    }

    /// An empty cache of `capacity` bytes with a second tier, which has blocks that were evicted from it, compressed, in so
    /// many bytes more. It is worth its time where a block is read from a device again otherwise.
    ///
    /// Blocks that are evicted because memory is charged to the cache, or because its capacity falls, are dropped.
    pub fn with_secondary(capacity: usize, secondary: &CompressedSecondaryCacheOptions) -> Self {
        let mut cache = Self::new(capacity);
        cache.secondary = Some(Box::new(CompressedSecondaryCache::new(secondary)));
        cache
    }

    /// The second tier.
    pub fn secondary(&self) -> Option<&CompressedSecondaryCache> {
        self.secondary.as_deref()
    }

    /// A number for a file's blocks that no other file in this cache has.
    #[doc(hidden)]
    pub fn new_id(&self) -> u64 {
        self.next_id.fetch_add(1, Ordering::Relaxed)
    }

    /// The same, for a file whose blocks stay out of the second tier.
    #[doc(hidden)]
    pub fn new_id_of_first_tier(&self) -> u64 {
        CacheKey::id_of_first_tier(self.new_id())
    }

    /// The block under `key` in the second tier. If it is asked for the second time, it is put into the first tier with this
    /// priority; the second result says whether it was.
    #[doc(hidden)]
    pub fn get_secondary(&self, key: CacheKey, promote: Option<Priority>) -> Option<(Block, bool)> {
        if key.is_of_first_tier() {
            return None;
        }
        let second = self.secondary()?;
        let hit = second.get(key, promote.is_some())?;
        let is_promoted = match promote.filter(|_| hit.is_again) {
            None => false,
            // Two entries for the same memory would each keep the other one from being evicted.
            Some(_) if hit.is_as_kept && !second.take(key) => false,
            Some(priority) => {
                let inserted = self.insert_with(key, &hit.block, priority);
                if !inserted && hit.is_as_kept {
                    second.insert(key, &hit.block, MakesRoom::Dropping);
                }
                inserted
            }
        };
        Some((hit.block, is_promoted))
    }

    /// The data blocks of each tier, by their keys: each is passed to `visit`, with the tier.
    #[doc(hidden)]
    pub fn data_blocks(&self, visit: &mut dyn FnMut(CacheKey, Tier)) {
        let second = self.secondary().map(CompressedSecondaryCache::blocks);
        for (tier, cache) in [(Tier::First, Some(self)), (Tier::Second, second)] {
            for shard in cache.iter().flat_map(|cache| &cache.shards) {
                let keys = shard.keys();
                let data = keys.into_iter().filter(|key| key.kind() == BlockKind::Data);
                data.for_each(|key| visit(key, tier));
            }
        }
    }

    /// The tier for a block that was in this one: there may be no second one any more.
    pub(crate) fn tier_for(&self, key: CacheKey, tier: Tier) -> Tier {
        if self.secondary().is_none() || key.is_of_first_tier() {
            Tier::First
        } else {
            tier
        }
    }

    /// Whether a tier has a block, which is not seen as asked for.
    pub(crate) fn has(&self, key: CacheKey, tier: Tier) -> bool {
        match tier {
            Tier::First => self.holds(key),
            Tier::Second => self
                .secondary()
                .is_some_and(|second| second.blocks().holds(key)),
        }
    }

    fn holds(&self, key: CacheKey) -> bool {
        let hash = key.hash();
        self.shard(hash).has(key, hash)
    }

    /// Whether a tier has more than `bytes` bytes left.
    pub(crate) fn has_room_in(&self, tier: Tier, bytes: usize) -> bool {
        match tier {
            Tier::First => self.has_room(bytes),
            Tier::Second => self
                .secondary()
                .is_some_and(|second| second.blocks().has_room(bytes)),
        }
    }

    /// Whether more than `bytes` bytes are left.
    fn has_room(&self, bytes: usize) -> bool {
        self.usage().saturating_add(bytes) < self.capacity()
    }

    /// Inserts a block into one of the tiers, if there is room without evicting others. Returns the bytes that the tier is
    /// charged for it; 0 if it was not inserted.
    pub(crate) fn insert_into(&self, key: CacheKey, block: &Block, tier: Tier) -> usize {
        let never = MakesRoom::Never;
        match (tier, self.secondary()) {
            (Tier::First, _) if self.insert_making_room((key, block, Priority::Low), never) => {
                Self::charge(block)
            }
            (Tier::Second, Some(second)) if !key.is_of_first_tier() => {
                second.insert(key, block, never)
            }
            _ => 0,
        }
    }

    /// For blocks that leave the cache for others.
    fn evicted(&self, makes_room: MakesRoom) -> Evicted<'_> {
        let demotes = makes_room == MakesRoom::Demoting;
        Evicted {
            blocks: Vec::new(),
            secondary: self.secondary().filter(|_| demotes),
        }
    }

    /// The block under `key`, pinned while the result lives; `None` if it is not in the cache.
    #[doc(hidden)]
    #[inline]
    pub fn get(&self, key: CacheKey) -> Option<Pinned<'_>> {
        let hash = key.hash();
        self.shard(hash).get(key, hash)
    }

    /// [`BlockCache::get`], which does not count as asking for the block.
    #[inline]
    pub(crate) fn peek(&self, key: CacheKey) -> Option<Pinned<'_>> {
        let hash = key.hash();
        self.shard(hash).peek(key, hash)
    }

    /// Asks for the memory in which [`BlockCache::get`] looks first.
    #[inline]
    pub(crate) fn prefetch_place(&self, key: CacheKey) {
        let hash = key.hash();
        self.shard(hash).prefetch_place(hash);
    }

    /// Asks for the memory in which [`BlockCache::get`] looks then.
    #[inline]
    pub(crate) fn prefetch_entry(&self, key: CacheKey) {
        let hash = key.hash();
        self.shard(hash).prefetch_entry(hash);
    }

    /// Bytes that a block is charged for.
    #[doc(hidden)]
    pub fn charge(block: &Block) -> usize {
        block.memory() + OVERHEAD
    }

    /// Inserts a block with a low priority, unless there is one under `key` already or it does not fit. True if it was
    /// inserted.
    #[doc(hidden)]
    pub fn insert(&self, key: CacheKey, block: &Block) -> bool {
        self.insert_with(key, block, Priority::Low)
    }

    /// [`BlockCache::insert`] with a priority.
    #[doc(hidden)]
    pub fn insert_with(&self, key: CacheKey, block: &Block, priority: Priority) -> bool {
        self.insert_making_room((key, block, priority), MakesRoom::Demoting)
    }

    /// [`BlockCache::insert_with`], which makes room in this way.
    pub(crate) fn insert_making_room(
        &self,
        (key, block, priority): (CacheKey, &Block, Priority),
        makes_room: MakesRoom,
    ) -> bool {
        let (charge, limit) = (Self::charge(block), self.limit());
        if u32::try_from(charge).is_err() || charge > limit {
            return false;
        }
        let large = self.shards.len() > 1 && charge > limit / LARGE_PART;
        if large && charge + self.pinned_blocks() > limit {
            return false;
        }
        let mut evicted = self.evicted(makes_room);
        let coming = Coming::new(self, charge);
        if makes_room == MakesRoom::Never && coming.need > 0 {
            return false;
        }
        let what = (key, block, priority);
        let inserted = match self.insert_evicting(what, coming.need, &mut evicted) {
            Inserted::LacksRoom(freed) => {
                let need = coming.need - freed;
                let asked = if large { self.shards.len() } else { ASKED };
                if self.make_room(asked, &mut evicted, |freed| need.saturating_sub(freed)) < need {
                    return false;
                }
                self.insert_evicting(what, 0, &mut evicted)
            }
            done => done,
        };
        drop(coming);
        if !matches!(inserted, Inserted::Yes) {
            return false;
        }
        // The limit may have fallen meanwhile, and whoever lowered it may have missed this block.
        if self.excess() > 0 && makes_room == MakesRoom::Never {
            self.erase(key);
            return false;
        }
        if self.excess() > 0 {
            self.make_room(ASKED, &mut evicted, |freed| {
                (2 * charge).saturating_sub(freed).min(self.excess())
            });
            if self.excess() > 0 {
                self.erase(key);
                return false;
            }
        }
        true
    }

    /// Inserts a block if its shard can evict `need` bytes before.
    fn insert_evicting(
        &self,
        (key, block, priority): (CacheKey, &Block, Priority),
        need: usize,
        evicted: &mut Evicted<'_>,
    ) -> Inserted {
        let hash = key.hash();
        let room = |shard: &Shard, writer: &mut shard::Writer| {
            let freed = shard.make_room(writer, need, self.kept(), evicted);
            self.counts.used.fetch_sub(freed, Ordering::SeqCst);
            freed
        };
        let count = |charge| {
            self.counts.used.fetch_add(charge, Ordering::SeqCst);
        };
        self.shard(hash)
            .insert((key, hash), (block, priority), (need, room, count))
    }

    /// The bytes that a shard keeps when its own blocks need room.
    fn kept(&self) -> usize {
        self.limit() / self.shards.len() / KEPT_PART
    }

    /// The bytes that all blocks together may have.
    fn limit(&self) -> usize {
        let reserved = self.reserved.load(Ordering::SeqCst);
        self.capacity
            .load(Ordering::SeqCst)
            .saturating_sub(reserved)
    }

    /// How many bytes of blocks are too many. After [`BlockCache::limit`] was changed, and after a block was counted:
    /// all of these are sequentially consistent, so that at least one of the two sees the other.
    fn excess(&self) -> usize {
        let used = self.counts.used.load(Ordering::SeqCst);
        used.saturating_sub(self.limit())
    }

    /// Evicts from `asked` shards until `rest` is 0, which is told how many bytes were evicted, or until what remains is
    /// in use. Returns the number of bytes.
    fn make_room(
        &self,
        asked: usize,
        evicted: &mut Evicted<'_>,
        rest: impl Fn(usize) -> usize,
    ) -> usize {
        let shards = self.shards.len();
        let asked = asked.min(shards);
        let first = self
            .counts
            .next_shard
            .fetch_add(asked + 1, Ordering::Relaxed);
        let mut freed = 0;
        // First in equal parts, from what shards have beyond the part that they keep; then from all they have; at last
        // as much as any shard has.
        for (keep, evenly) in [(self.kept(), true), (0, true), (0, false)] {
            for i in 0..asked {
                let rest = rest(freed);
                if rest == 0 {
                    return freed;
                }
                let part = if evenly {
                    rest.div_ceil(asked - i)
                } else {
                    rest
                };
                let shard = &self.shards[(first + i) % shards];
                freed += shard.evict_some(part, keep, evicted, |bytes| {
                    self.counts.used.fetch_sub(bytes, Ordering::SeqCst);
                });
            }
        }
        freed
    }

    /// Called after the limit has changed: evicts what is too much.
    fn evict_excess(&self) {
        if self.excess() > 0 {
            let mut dropped = self.evicted(MakesRoom::Dropping);
            self.make_room(self.shards.len(), &mut dropped, |_| self.excess());
        }
    }

    /// Removes the block under `key`, unless it is pinned.
    #[doc(hidden)]
    pub fn erase(&self, key: CacheKey) {
        self.remove(key);
    }

    /// [`BlockCache::erase`]; true if there was a block.
    pub(crate) fn remove(&self, key: CacheKey) -> bool {
        let hash = key.hash();
        let freed = self.shard(hash).erase(key, hash);
        self.counts.used.fetch_sub(freed, Ordering::SeqCst);
        freed > 0
    }

    /// Capacity in bytes, for blocks and reservations together.
    pub fn capacity(&self) -> usize {
        self.capacity.load(Ordering::Relaxed)
    }

    /// Changes the capacity, and evicts blocks that no longer fit.
    pub fn set_capacity(&self, bytes: usize) {
        self.capacity.store(bytes, Ordering::SeqCst);
        self.evict_excess();
    }

    /// Bytes of the blocks in the cache, and of reservations.
    pub fn usage(&self) -> usize {
        let blocks: usize = self.shards.iter().map(Shard::usage).sum();
        blocks + self.reserved.load(Ordering::Relaxed)
    }

    /// Bytes of the blocks in the cache.
    pub(crate) fn used(&self) -> usize {
        self.counts.used.load(Ordering::Relaxed)
    }

    /// Bytes of reservations.
    pub fn reserved(&self) -> usize {
        self.reserved.load(Ordering::Relaxed)
    }

    /// Bytes of the blocks that are in use at the moment, and of reservations.
    pub fn pinned_usage(&self) -> usize {
        self.pinned_blocks() + self.reserved.load(Ordering::Relaxed)
    }

    fn pinned_blocks(&self) -> usize {
        self.shards.iter().map(Shard::pinned_usage).sum()
    }

    /// Number and bytes of the blocks in the cache, in the order of [`BlockKind::ALL`]. Looks at each block.
    pub fn kinds(&self) -> [(usize, usize); 4] {
        let mut kinds = [(0, 0); 4];
        for shard in &self.shards {
            shard.add_kinds(&mut kinds);
        }
        kinds
    }

    /// Number of blocks in the cache.
    pub fn len(&self) -> usize {
        self.shards.iter().map(Shard::len).sum()
    }

    /// True if there is no block.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Charges `bytes` of memory outside of the cache to its capacity while the result lives. Never
    /// refused: the memory is in use anyway.
    #[doc(hidden)]
    pub fn reserve(self: &Arc<Self>, bytes: usize) -> Reservation {
        self.reserved.fetch_add(bytes, Ordering::SeqCst);
        self.evict_excess();
        Reservation {
            cache: Arc::clone(self),
            bytes,
        }
    }

    #[inline]
    fn shard(&self, hash: u64) -> &Shard {
        // The number of shards is a power of two; the table uses other bits.
        &self.shards[(hash >> 57) as usize & (self.shards.len() - 1)]
    }
}

/// Each reservation holds a reference to the cache, so none can be left here.
impl Drop for BlockCache {
    fn drop(&mut self) {
        base::invariant!(
            base::sync::thread::panicking() || self.reserved() == 0,
            "{} bytes are reserved in a cache that nobody has",
            self.reserved()
        );
        let (used, usage) = (self.counts.used.load(Ordering::Relaxed), self.usage());
        base::invariant!(
            base::sync::thread::panicking() || used == usage,
            "{used} bytes count as used, the shards have {usage}"
        );
    }
}

impl fmt::Debug for BlockCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockCache")
            .field("capacity", &self.capacity())
            .field("usage", &self.usage())
            .field("blocks", &self.len())
            .finish_non_exhaustive()
    }
}

/// Memory charged to a cache; see [`BlockCache::reserve`].
#[derive(Debug)]
pub struct Reservation {
    cache: Arc<BlockCache>,
    bytes: usize,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let before = self.cache.reserved.fetch_sub(self.bytes, Ordering::Relaxed);
        base::invariant!(before >= self.bytes, "more is given back than was reserved");
    }
}

/// A block that is being inserted: its bytes count until it is in its shard, or refused.
struct Coming<'a> {
    cache: &'a BlockCache,
    bytes: usize,
    /// How many bytes this block must evict. Each of several blocks that come at once evicts its own.
    need: usize,
}

impl<'a> Coming<'a> {
    fn new(cache: &'a BlockCache, bytes: usize) -> Self {
        let before = cache.counts.coming.fetch_add(bytes, Ordering::SeqCst);
        let all = cache.counts.used.load(Ordering::SeqCst) + before + bytes;
        let need = all.saturating_sub(cache.limit()).min(bytes);
        Self { cache, bytes, need }
    }
}

impl Drop for Coming<'_> {
    fn drop(&mut self) {
        self.cache
            .counts
            .coming
            .fetch_sub(self.bytes, Ordering::SeqCst);
    }
}

/// A block of the cache that cannot be evicted while this lives. Meant to be short-lived, because it
/// borrows the cache; use [`Pinned::to_block`] to hold the block for longer.
#[derive(Debug)]
pub struct Pinned<'c> {
    entry: &'c shard::Entry,
    block: &'c Block,
}

impl Pinned<'_> {
    /// A counted reference, for holding the block without borrowing the cache.
    pub fn to_block(&self) -> Block {
        self.block.clone()
    }
}

impl Deref for Pinned<'_> {
    type Target = Block;
    #[inline]
    fn deref(&self) -> &Block {
        self.block
    }
}

impl Drop for Pinned<'_> {
    #[inline]
    fn drop(&mut self) {
        self.entry.let_go();
    }
}

#[cfg(test)]
mod tests;
