//! Finds the place of a key in the list: a B+ tree whose lowest blocks point at all entries.
//!
//! ```text
//!   block   version · slots used · bytes skipped · level · lowest entry · next block of its level
//!           slots, sorted:  | integer prefix | -> entry (level 0), block (levels above) |
//! ```
//!
//! A slot stores the comparator's integer prefix of its key. The prefix is taken after the bytes that all
//! keys of the block share: those that the block's lowest entry and the next block's lowest entry have in
//! common. So a search in a block compares integers, and reads keys only where the integers are equal. The
//! slots of a lowest block lie in a few adjacent cache lines, which are prefetched together.
//!
//! Blocks are written under a lock and read without one. A block's version is odd while the block changes,
//! and what was read is valid only if the version is the same before and after. When a reader descends, it
//! checks the upper block once more after it has loaded the lower block's version. A split makes the
//! versions of all blocks that it changes odd before it changes the first. A reader that fails too often
//! takes the lock. (V. Leis et al., "The ART of Practical Synchronization", DaMoN 2016, section 3.1; H.-J.
//! Boehm, "Can Seqlocks Get Along With Programming Language Memory Models?", MSPC 2012.)
//!
//! Nothing is ever removed. A block lives as long as the arena, and its level and lowest entry never
//! change. A slot that has been filled points at an entry, or at a block of the level below, from then on.
//! So following a pointer that a later check rejects is harmless.

mod writer;

use std::cmp::Ordering as Order;
use std::marker::PhantomData;
use std::ptr;

use base::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use base::sync::{Memory, Mutex, PoisonError, ranked};
use base::{Comparator, key};

use super::{Arena, Entry, Target};
use crate::locks;
use base::prefetch::{LINE, prefetch};

/// Slots of a block: with the header, a block fills thirteen cache lines. In models, blocks are split after
/// few inserts.
const SLOTS: usize = if cfg!(loom) { 3 } else { 49 };
/// Entries are prefetched this many entries before the cursor reaches them.
const AHEAD: usize = 8;
/// Number of attempts after which a reader takes the lock.
const TRIES: usize = if cfg!(loom) { 2 } else { 64 };

struct Slot {
    prefix: AtomicU64,
    /// An entry or a block.
    to: AtomicPtr<()>,
}

impl Slot {
    /// Slots that have never been filled.
    #[cfg(not(loom))]
    #[inline(always)]
    fn empty() -> [Self; SLOTS] {
        [const {
            Self {
                prefix: AtomicU64::new(0),
                to: AtomicPtr::new(ptr::null_mut()),
            }
        }; SLOTS]
    }

    /// The same for models, where atomics cannot be constants.
    #[cfg(loom)]
    fn empty() -> [Self; SLOTS] {
        std::array::from_fn(|_| Self {
            prefix: AtomicU64::new(0),
            to: AtomicPtr::new(ptr::null_mut()),
        })
    }
}

#[repr(C)]
struct Block {
    /// Odd while the block changes.
    version: AtomicU64,
    used: AtomicU32,
    /// Bytes of user keys that the slots' prefixes leave out.
    skip: AtomicU32,
    level: u32,
    /// The number of inserts in a row that each came right after the previous one, and the slot of the last
    /// insert; only the writer uses them.
    run: AtomicU32,
    last: AtomicU32,
    /// The lowest entry; no key that belongs here is before it. Null in the first block of each level.
    low: *mut Entry,
    /// Stands for `level` and `low` in models.
    memory: Memory,
    /// The next block of the level. Keys that belong in this block are before the next block's lowest
    /// entry.
    next: AtomicPtr<Block>,
    slots: [Slot; SLOTS],
}

/// The place of a key, at one version of a block.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    found: Found<'a>,
    at: usize,
    /// The last entry before the key; null if there is none.
    pub(super) before: *mut Entry,
    /// The first entry at or after the key; null if it is not in this block.
    pub(super) at_or_behind: *mut Entry,
}

/// A block at a version.
#[derive(Clone, Copy)]
struct Found<'a> {
    block: &'a Block,
    version: u64,
}

impl Found<'_> {
    /// Whether the block still has this version, so that all that was read since is valid.
    #[inline]
    fn is_still(&self) -> bool {
        fence(Ordering::Acquire);
        self.block.version.load(Ordering::Relaxed) == self.version
    }
}

/// The block of the lowest level that a key belongs in. Unless it is the root, its version is loaded only
/// later, by `Near::found`.
#[derive(Clone, Copy)]
pub(super) struct Near<'a> {
    /// The root, or the block that points to `below`.
    found: Found<'a>,
    below: Option<&'a Block>,
}

impl<'a> Near<'a> {
    /// The block with its current version, unless it is changing or the block that points to it has
    /// changed.
    #[inline]
    fn found(self) -> Option<Found<'a>> {
        let Some(below) = self.below else {
            return Some(self.found);
        };
        let below = below.now()?;
        self.found.is_still().then_some(below)
    }
}

/// Memory for a block.
struct Room<'a>(*mut Block, PhantomData<&'a Arena>);

impl<'a> Room<'a> {
    fn new(arena: &'a Arena) -> Self {
        let raw = arena.alloc(size_of::<Block>() + LINE - 8).as_ptr();
        let block = raw.wrapping_add(raw.align_offset(LINE));
        Self(block.cast(), PhantomData)
    }
}

impl Block {
    /// A block without slots.
    fn make(room: Room<'_>, level: u32, low: *mut Entry) -> &Self {
        let block = room.0;
        let empty = Self {
            version: AtomicU64::new(0),
            used: AtomicU32::new(0),
            skip: AtomicU32::new(0),
            level,
            run: AtomicU32::new(0),
            last: AtomicU32::new(0),
            low,
            memory: Memory::default(),
            next: AtomicPtr::default(),
            slots: Slot::empty(),
        };
        // SAFETY: the arena gave a line less 8 bytes more than the block's size to this room alone,
        // 8-aligned, so that an aligned block lies inside it; they live as long as the arena.
        let block = unsafe {
            block.write(empty);
            &*block
        };
        block.memory.written();
        block
    }

    #[inline(always)]
    fn level(&self) -> u32 {
        self.memory.read();
        self.level
    }

    #[inline(always)]
    fn low(&self) -> *mut Entry {
        self.memory.read();
        self.low
    }

    /// The pointer that slots and links store.
    fn pointer(&self) -> *mut Self {
        ptr::from_ref(self).cast_mut()
    }

    /// The next block of the same level.
    fn next(&self) -> Option<&Self> {
        // SAFETY: it is null or a block, and blocks live equally long.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// The block that a slot points to; `None` in the lowest level, and for a slot that was never filled.
    #[inline]
    fn below(&self, at: usize) -> Option<&Self> {
        let to = self.slots.get(at)?.to.load(Ordering::Acquire);
        if self.level() == 0 {
            return None;
        }
        // SAFETY: above the lowest level, a slot is null or points at a block, and blocks live equally long.
        unsafe { to.cast::<Self>().as_ref() }
    }

    /// In the lowest level, the entry that a slot points to; above it, the lowest entry of the block that
    /// the slot points to. Null only in the first slot of the first block of a level, and for a slot that
    /// was never filled.
    #[inline]
    fn entry(&self, at: usize) -> *mut Entry {
        if self.level() > 0 {
            return self.below(at).map_or(ptr::null_mut(), |b| b.low());
        }
        let slot = self.slots.get(at);
        slot.map_or(ptr::null_mut(), |s| s.to.load(Ordering::Acquire).cast())
    }

    /// The lowest user key of the block, which must not be the first of its level.
    fn lowest(&self) -> &[u8] {
        debug_assert!(!self.low().is_null(), "the first block has no lowest key");
        // SAFETY: an entry, which lives as long as the block.
        key::user_key(unsafe { Entry::key(self.low()) })
    }

    /// Prefetches the block's cache lines.
    #[inline]
    fn prefetch(&self) {
        for line in 0..size_of::<Self>() / LINE {
            prefetch(ptr::from_ref(self).wrapping_byte_add(line * LINE));
        }
    }

    #[inline]
    fn used(&self) -> usize {
        (self.used.load(Ordering::Acquire) as usize).min(SLOTS)
    }

    fn is_full(&self) -> bool {
        self.used() == SLOTS
    }

    /// The block with its current version, unless it is changing.
    #[inline]
    fn now(&self) -> Option<Found<'_>> {
        let version = self.version.load(Ordering::Acquire);
        (version & 1 == 0).then_some(Found {
            block: self,
            version,
        })
    }

    /// The prefix that a slot of this block stores for a key.
    #[inline]
    fn prefix(&self, user_key: &[u8], comparator: &Comparator) -> u64 {
        let skip = self.skip.load(Ordering::Relaxed) as usize;
        comparator.prefix(user_key.get(skip..).unwrap_or_default())
    }

    /// How many of the slots from `from` on are before the target.
    #[inline]
    fn count(&self, from: usize, target: &Target<'_>, comparator: &Comparator) -> usize {
        let prefix = self.prefix(target.user_key, comparator);
        let slots = self.slots.get(from..self.used()).unwrap_or_default();
        let prefix_of = |at: usize| slots.get(at).map(|s| s.prefix.load(Ordering::Relaxed));
        let (mut base, mut left) = (0, slots.len());
        while left > 1 {
            let half = left / 2;
            let is_below = slots[base + half - 1].prefix.load(Ordering::Relaxed) < prefix;
            base += half * usize::from(is_below);
            left -= half;
        }
        base += usize::from(prefix_of(base).is_some_and(|p| p < prefix));
        if prefix_of(base) != Some(prefix) {
            return base;
        }
        // These keys have the same prefix as the target. Usually there is one, the key being searched for.
        let is_before = |at: usize| match self.entry(from + at) {
            // The block has just changed, so the result will be discarded.
            entry if entry.is_null() => false,
            // SAFETY: a live entry: it was loaded with acquire.
            entry => unsafe { Entry::compare(entry, target, comparator) == Order::Less },
        };
        let (mut low, mut high) = (base, base);
        while prefix_of(high) == Some(prefix) && is_before(high) {
            // Double the distance each time.
            (low, high) = (high + 1, (2 * high - base + 1).min(slots.len()));
        }
        while low < high {
            let middle = low.midpoint(high);
            if prefix_of(middle) == Some(prefix) && is_before(middle) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }

    /// The slot that a search above the lowest level follows.
    #[inline]
    fn way(&self, target: &Target<'_>, comparator: &Comparator) -> usize {
        // The lowest entry of the first slot is also this block's lowest, so it is before the target.
        self.count(1, target, comparator)
    }
}

/// How far entries have been prefetched, for a cursor that passes through all of them from the first.
/// Entries added meanwhile put it off by their number; it is only a hint.
#[derive(Clone, Copy)]
pub(crate) struct Ahead {
    block: *const Block,
    at: usize,
}

// SAFETY: it is dereferenced only by `Ahead::go_on`, whose contract covers it.
unsafe impl Send for Ahead {}

impl Ahead {
    /// Prefetches one more entry.
    ///
    /// # Safety
    /// The index must still be alive.
    #[inline]
    pub(crate) unsafe fn go_on(&mut self) {
        // SAFETY: blocks live as long as the index.
        let mut block = unsafe { &*self.block };
        if self.at >= block.used() {
            let Some(next) = block.next() else { return };
            (block, *self) = (next, Self { block: next, at: 0 });
            if let Some(following) = next.next() {
                following.prefetch();
            }
        }
        let entry = block.entry(self.at);
        for line in 0..3 {
            prefetch(entry.wrapping_byte_add(line * LINE));
        }
        self.at += 1;
    }
}

/// The tree.
pub(super) struct Index {
    root: AtomicPtr<Block>,
    writing: Mutex<()>,
}

impl Index {
    /// An empty index, with its blocks in the arena.
    ///
    /// # Safety
    /// The index must not be used after the arena has been dropped.
    pub(super) unsafe fn new(arena: &Arena) -> Self {
        Self {
            root: AtomicPtr::new(Block::make(Room::new(arena), 0, ptr::null_mut()).pointer()),
            writing: ranked(locks::MEMTABLE, ()),
        }
    }

    #[inline]
    fn root(&self) -> &Block {
        // SAFETY: it is a block, and the contract of `new` keeps it alive.
        unsafe { &*self.root.load(Ordering::Acquire) }
    }

    /// The block of the lowest level where a search ends that follows the slots chosen by `way`. The block
    /// has been prefetched, but not read.
    #[inline]
    fn approach(&self, way: impl Fn(&Block) -> usize) -> Option<Near<'_>> {
        let mut found = self.root().now()?;
        if !ptr::eq(self.root(), found.block) {
            return None; // the root was split before it was read
        }
        while found.block.level() > 0 {
            let below = found.block.below(way(found.block))?;
            below.prefetch();
            if found.block.level() == 1 {
                let below = Some(below);
                return Some(Near { found, below });
            }
            let below = below.now()?;
            if !found.is_still() {
                return None;
            }
            found = below;
        }
        Some(Near { found, below: None })
    }

    /// The same block, with its current version.
    #[inline]
    fn descend(&self, way: impl Fn(&Block) -> usize) -> Option<Found<'_>> {
        self.approach(way)?.found()
    }

    /// The block that the target belongs in; it is being prefetched.
    #[inline]
    pub(super) fn near(&self, target: &Target<'_>, comparator: &Comparator) -> Option<Near<'_>> {
        self.approach(|block| block.way(target, comparator))
    }

    /// The target's place in its block.
    #[inline]
    pub(super) fn place<'a>(
        near: Near<'a>,
        target: &Target<'_>,
        comparator: &Comparator,
    ) -> Option<Place<'a>> {
        let found = near.found()?;
        let block = found.block;
        let at = block.count(0, target, comparator);
        let before = at.checked_sub(1);
        let before = before.map_or(ptr::null_mut(), |before| block.entry(before));
        let at_or_behind = if at < block.used() {
            block.entry(at)
        } else {
            ptr::null_mut()
        };
        prefetch(before);
        found.is_still().then_some(Place {
            found,
            at,
            before,
            at_or_behind,
        })
    }

    /// The target's place; `None` if the blocks on the way are changing.
    #[inline]
    pub(super) fn find(&self, target: &Target<'_>, comparator: &Comparator) -> Option<Place<'_>> {
        Self::place(self.near(target, comparator)?, target, comparator)
    }

    /// The target's place; waits for changes to end.
    #[inline]
    pub(super) fn find_for_sure(&self, target: &Target<'_>, comparator: &Comparator) -> Place<'_> {
        self.for_sure(|| self.find(target, comparator))
    }

    /// The last entry; null if there is none.
    pub(super) fn last(&self) -> *mut Entry {
        self.for_sure(|| {
            let found = self.descend(|block| block.used().saturating_sub(1))?;
            let last = found.block.used().checked_sub(1);
            let last = last.map_or(ptr::null_mut(), |last| found.block.entry(last));
            found.is_still().then_some(last)
        })
    }

    /// The state of prefetching for a cursor that starts at the first entry.
    pub(super) fn ahead(&self) -> Ahead {
        let mut ahead = Ahead {
            block: self.for_sure(|| Some(self.descend(|_| 0)?.block)),
            at: 0,
        };
        for _ in 0..AHEAD {
            // SAFETY: `ahead` belongs to this index.
            unsafe { ahead.go_on() };
        }
        ahead
    }

    #[inline]
    fn for_sure<T>(&self, read: impl Fn() -> Option<T>) -> T {
        for _ in 0..TRIES {
            if let Some(done) = read() {
                return done;
            }
            base::sync::hint::spin_loop();
        }
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        read().expect("nothing changes while the lock is held")
    }
}
