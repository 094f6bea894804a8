//! Where a key belongs in the list: a B+ tree whose lowest blocks point at all entries.
//!
//! ```text
//!   block   version · slots used · bytes skipped · level · lowest entry · next block of its level
//!           slots, sorted:  | integer prefix | -> entry (level 0), block (levels above) |
//! ```
//!
//! A slot has the comparator's integer prefix of its key, counted from where the keys of the block begin
//! to differ: what all keys between the block's lowest entry and the next block's have in common is
//! skipped. So a search in a block compares integers; it reads keys only where those are equal. The
//! slots of a lowest block lie in a few neighbouring cache lines, which are asked for all at once.
//!
//! Blocks are written under a lock and read without: a block's version is odd while it changes, and what
//! was read counts only if the version is the same before and after. Of a block and the one it points
//! to, the upper is checked once more after the lower one's version is known; a split makes the
//! versions of all blocks that it changes odd before it changes the first. A reader that is unlucky too
//! often takes the lock. (V. Leis et al., "The ART of Practical Synchronization", DaMoN 2016,
//! section 3.1; H.-J. Boehm, "Can Seqlocks Get Along With Programming Language Memory Models?", MSPC 2012.)
//!
//! Nothing is ever removed: a block lives as long as the arena, its level and its lowest entry never
//! change, and a slot that was filled once points at an entry or a block of the level below ever
//! after, so that following what a later check rejects is harmless.

use std::cmp::Ordering as Order;
use std::marker::PhantomData;
use std::ptr;

use base::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering, fence};
use base::sync::{Memory, Mutex, MutexGuard, PoisonError};
use base::{Comparator, key};

use super::{Arena, Entry, LINE, Target, prefetch};

/// Slots of a block: with the header thirteen cache lines. Models cut blocks after few inserts.
const SLOTS: usize = if cfg!(loom) { 3 } else { 49 };
/// Levels are at most this many: in any order of keys a block is split after five inserts or more on average.
const LEVELS: usize = 24;
/// After so many inserts each right behind the last, a block is split where the next goes: entries that come
/// in ascending order leave full blocks.
const RUN: u32 = 4;
/// So many entries before a cursor gets there they are asked for.
const AHEAD: usize = 8;
/// Why there is memory for a new block.
const ROOMS: &str = "each full block has brought one";
/// After so many tries a reader takes the lock.
const TRIES: usize = if cfg!(loom) { 2 } else { 64 };

struct Slot {
    prefix: AtomicU64,
    /// An entry or a block.
    to: AtomicPtr<()>,
}

impl Slot {
    /// Slots that were never filled.
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

    /// The same where atomics are not constants.
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
    /// Odd while it changes.
    version: AtomicU64,
    used: AtomicU32,
    /// Bytes of user keys that the slots' prefixes leave out.
    skip: AtomicU32,
    level: u32,
    /// Inserts one right behind the other, and where the last was; the writer's.
    run: AtomicU32,
    last: AtomicU32,
    /// No key that belongs here is before it; null in the first block of each level.
    low: *mut Entry,
    /// `level` and `low`.
    memory: Memory,
    /// Keys that belong here are before its lowest entry.
    next: AtomicPtr<Block>,
    slots: [Slot; SLOTS],
}

/// Where a key belongs, as of a version of a block.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    found: Found<'a>,
    at: usize,
    /// The last entry before the key; null if there is none.
    pub(super) before: *mut Entry,
    /// The first entry at or behind it; null if that is not in this block.
    pub(super) at_or_behind: *mut Entry,
}

/// A block at a version.
#[derive(Clone, Copy)]
struct Found<'a> {
    block: &'a Block,
    version: u64,
}

impl Found<'_> {
    /// Whether all that was read of the block since it was found is of this version.
    #[inline]
    fn is_still(&self) -> bool {
        fence(Ordering::Acquire);
        self.block.version.load(Ordering::Relaxed) == self.version
    }
}

/// The block of the lowest level that a key belongs in. Where it is not the root, it is read later than what
/// points to it.
#[derive(Clone, Copy)]
pub(super) struct Near<'a> {
    /// The root, or what points to `below`.
    found: Found<'a>,
    below: Option<&'a Block>,
}

impl<'a> Near<'a> {
    /// The block as it is now, unless it, or what points to it, has changed.
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

    /// As what a slot or a link has it.
    fn pointer(&self) -> *mut Self {
        ptr::from_ref(self).cast_mut()
    }

    /// The next block of the same level.
    fn next(&self) -> Option<&Self> {
        // SAFETY: null or a block, and those live equally long.
        unsafe { self.next.load(Ordering::Acquire).as_ref() }
    }

    /// The block that a slot points to; `None` in the lowest level, and for a slot that is not filled.
    #[inline]
    fn below(&self, at: usize) -> Option<&Self> {
        let to = self.slots.get(at)?.to.load(Ordering::Acquire);
        if self.level() == 0 {
            return None;
        }
        // SAFETY: above the lowest level slots point at blocks, which live equally long, or are null.
        unsafe { to.cast::<Self>().as_ref() }
    }

    /// The entry that a slot of the lowest level points to, or else the lowest entry of the block that it
    /// points to. Null only in the first slot of the first block of a level, or for a slot that is not
    /// filled.
    #[inline]
    fn entry(&self, at: usize) -> *mut Entry {
        if self.level() > 0 {
            return self.below(at).map_or(ptr::null_mut(), |b| b.low());
        }
        let slot = self.slots.get(at);
        slot.map_or(ptr::null_mut(), |s| s.to.load(Ordering::Acquire).cast())
    }

    /// The lowest user key of a block that is not the first of its level.
    fn lowest(&self) -> &[u8] {
        debug_assert!(!self.low().is_null(), "the first block has no lowest key");
        // SAFETY: an entry, which lives as long as the block.
        key::user_key(unsafe { Entry::key(self.low()) })
    }

    /// Asks for its cache lines.
    #[inline]
    fn prefetch(&self) {
        for line in 0..size_of::<Self>() / LINE {
            prefetch(ptr::from_ref(self).wrapping_byte_add(line * LINE));
        }
    }

    fn used(&self) -> usize {
        (self.used.load(Ordering::Acquire) as usize).min(SLOTS)
    }

    fn is_full(&self) -> bool {
        self.used() == SLOTS
    }

    /// It as it is now, unless it is changing.
    #[inline]
    fn now(&self) -> Option<Found<'_>> {
        let version = self.version.load(Ordering::Acquire);
        (version & 1 == 0).then_some(Found {
            block: self,
            version,
        })
    }

    /// The prefix that a slot of this block has for a key.
    #[inline]
    fn prefix(&self, user_key: &[u8], comparator: &Comparator) -> u64 {
        let skip = self.skip.load(Ordering::Relaxed) as usize;
        comparator.prefix(user_key.get(skip..).unwrap_or_default())
    }

    /// How many slots are before the target, of those from `from` on.
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
        // Keys that the prefixes do not tell apart. Mostly it is one: the key that is looked for.
        let is_before = |at: usize| match self.entry(from + at) {
            // The block has just changed: what comes out does not count.
            entry if entry.is_null() => false,
            // SAFETY: a live entry: it was loaded with acquire.
            entry => unsafe { Entry::compare(entry, target, comparator) == Order::Less },
        };
        let (mut low, mut high) = (base, base);
        while prefix_of(high) == Some(prefix) && is_before(high) {
            // Twice as far each time.
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

    /// The slot that a search above the lowest level goes on with.
    #[inline]
    fn way(&self, target: &Target<'_>, comparator: &Comparator) -> usize {
        // The lowest entry of the first slot is this block's, and so before the target.
        self.count(1, target, comparator)
    }
}

/// How far entries were asked for, for a cursor that goes through all of them from the first. What is
/// added meanwhile makes it wrong by as much, and it is no more than a hint.
#[derive(Clone, Copy)]
pub(in crate::memtable) struct Ahead {
    block: *const Block,
    at: usize,
}

// SAFETY: it is dereferenced only by `Ahead::go_on`, whose contract covers it.
unsafe impl Send for Ahead {}

impl Ahead {
    /// Asks for one entry more.
    ///
    /// # Safety
    /// The index must still be there.
    #[inline]
    pub(in crate::memtable) unsafe fn go_on(&mut self) {
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

/// What only the writer does.
impl Block {
    /// Changes begin.
    fn begin(&self) {
        let version = self.version.load(Ordering::Relaxed);
        debug_assert!(version & 1 == 0, "a block changes once at a time");
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// Changes are done.
    fn end(&self) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Release);
    }

    fn get(&self, at: usize) -> (u64, *mut ()) {
        let slot = &self.slots[at];
        let prefix = slot.prefix.load(Ordering::Relaxed);
        (prefix, slot.to.load(Ordering::Acquire))
    }

    fn set(&self, at: usize, (prefix, to): (u64, *mut ())) {
        let slot = &self.slots[at];
        slot.prefix.store(prefix, Ordering::Relaxed);
        slot.to.store(to, Ordering::Release);
    }

    /// Makes room at `at` and fills it.
    fn insert(&self, at: usize, prefix: u64, to: *mut ()) {
        let used = self.used();
        for i in (at..used).rev() {
            self.set(i + 1, self.get(i));
        }
        self.set(at, (prefix, to));
        self.used.store(used as u32 + 1, Ordering::Release);
        let follows = at as u32 == self.last.load(Ordering::Relaxed) + 1;
        let run = if follows {
            self.run.load(Ordering::Relaxed) + 1
        } else {
            0
        };
        self.run.store(run, Ordering::Relaxed);
        self.last.store(at as u32, Ordering::Relaxed);
    }
}

/// The tree.
pub(super) struct Index {
    root: AtomicPtr<Block>,
    writing: Mutex<()>,
}

impl Index {
    /// An empty one, with its blocks in the arena.
    ///
    /// # Safety
    /// The index must not be used once the arena is gone.
    pub(super) unsafe fn new(arena: &Arena) -> Self {
        Self {
            root: AtomicPtr::new(Block::make(Room::new(arena), 0, ptr::null_mut()).pointer()),
            writing: Mutex::default(),
        }
    }

    #[inline]
    fn root(&self) -> &Block {
        // SAFETY: a block, and the contract of `new`.
        unsafe { &*self.root.load(Ordering::Acquire) }
    }

    /// The block of the lowest level that a search ends in, which goes from slot to slot as `way` says. It was
    /// asked for, and nothing of it was read.
    #[inline]
    fn approach(&self, way: impl Fn(&Block) -> usize) -> Option<Near<'_>> {
        let mut found = self.root().now()?;
        if !ptr::eq(self.root(), found.block) {
            return None; // it was split before it was looked at
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

    /// The same once it is read.
    #[inline]
    fn descend(&self, way: impl Fn(&Block) -> usize) -> Option<Found<'_>> {
        self.approach(way)?.found()
    }

    /// The block that the target belongs in, on its way into the cache.
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

    /// The target's place, unless the blocks on the way are changing.
    #[inline]
    pub(super) fn find(&self, target: &Target<'_>, comparator: &Comparator) -> Option<Place<'_>> {
        Self::place(self.near(target, comparator)?, target, comparator)
    }

    /// The target's place.
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

    /// For a cursor that is to go to the first entry.
    pub(super) fn ahead(&self) -> Ahead {
        let mut ahead = Ahead {
            block: self.for_sure(|| Some(self.descend(|_| 0)?.block)),
            at: 0,
        };
        for _ in 0..AHEAD {
            // SAFETY: its index is this one.
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

    /// The right to change it. `arena` is the one that it was made with.
    pub(super) fn lock<'a>(&'a self, arena: &'a Arena, comparator: &'a Comparator) -> Writer<'a> {
        Writer {
            index: self,
            arena,
            comparator,
            _alone: self.writing.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// The only one who changes the index. Between [`Block::begin`] and [`Block::end`] nothing is called that
/// could panic or wait, neither the arena nor an order of the application's own.
pub(super) struct Writer<'a> {
    index: &'a Index,
    arena: &'a Arena,
    comparator: &'a Comparator,
    _alone: MutexGuard<'a, ()>,
}

impl<'a> Writer<'a> {
    /// The target's place in a block with room for it; `place` is where it was seen before.
    pub(super) fn room(&mut self, target: &Target<'_>, place: Option<Place<'a>>) -> Place<'a> {
        let place = place.filter(|p| p.found.is_still());
        let place = place.unwrap_or_else(|| self.find(target));
        if !place.found.block.is_full() {
            return place;
        }
        self.split(target, &place);
        self.find(target)
    }

    fn find(&self, target: &Target<'_>) -> Place<'a> {
        let found = self.index.find(target, self.comparator);
        found.expect("nothing changes while the lock is held")
    }

    /// Notes an entry at a place from [`Writer::room`].
    pub(super) fn put(&mut self, place: &Place<'_>, target: &Target<'_>, entry: *mut Entry) {
        let block = place.found.block;
        debug_assert!(place.at > 0 || block.low().is_null(), "behind the lowest");
        let prefix = block.prefix(target.user_key, self.comparator);
        block.begin();
        block.insert(place.at, prefix, entry.cast());
        block.end();
    }

    /// Splits the full block in which the target has its place, and full ones above it.
    fn split(&mut self, target: &Target<'_>, place: &Place<'a>) {
        // The blocks on the way, with the slot in each, from the lowest level up to the root.
        let mut path = [(place.found.block, place.at); LEVELS];
        let mut block = self.index.root();
        let height = block.level() as usize + 1;
        for level in (1..height).rev() {
            let way = block.way(target, self.comparator);
            path[level] = (block, way);
            block = block.below(way).expect("slots in use are filled");
        }
        let path = &path[..height];
        let full = path.iter().take_while(|(b, _)| b.is_full()).count();
        let changing = &path[..height.min(full + 1)];
        // One for each that is full, and one for a new root. Memory may take its time, and readers wait
        // from here on.
        let mut rooms: [Option<Room<'a>>; LEVELS + 1] = [const { None }; LEVELS + 1];
        rooms[..full + usize::from(full == height)].fill_with(|| Some(Room::new(self.arena)));
        let mut rooms = rooms.into_iter().flatten();
        for (block, _) in changing {
            block.begin();
        }
        let mut right = Some(self.halve(place.found.block, place.at, &mut rooms));
        for (block, way) in &changing[1..] {
            right = right.and_then(|right| self.add(block, way + 1, right, &mut rooms));
        }
        if let Some(right) = right {
            self.raise(self.index.root(), right, &mut rooms);
        }
        for (block, _) in changing {
            block.end();
        }
    }

    /// Puts `right` into slot `at` of a block. If that is full, it is split first, and its right part
    /// is what the level above lacks.
    fn add(
        &mut self,
        block: &'a Block,
        at: usize,
        right: &'a Block,
        rooms: &mut impl Iterator<Item = Room<'a>>,
    ) -> Option<&'a Block> {
        let (mut to, mut rest) = ((block, at), None);
        if block.is_full() {
            let upper = self.halve(block, at, rooms);
            if at > block.used() {
                to = (upper, at - block.used());
            }
            rest = Some(upper);
        }
        let (block, at) = to;
        let prefix = block.prefix(right.lowest(), self.comparator);
        block.insert(at, prefix, right.pointer().cast());
        rest
    }

    /// A new root over two blocks.
    fn raise(&mut self, left: &Block, right: &Block, rooms: &mut impl Iterator<Item = Room<'a>>) {
        let room = rooms.next().expect(ROOMS);
        let root = Block::make(room, left.level() + 1, ptr::null_mut());
        root.insert(0, 0, left.pointer().cast());
        let prefix = root.prefix(right.lowest(), self.comparator);
        root.insert(1, prefix, right.pointer().cast());
        self.index.root.store(root.pointer(), Ordering::Release);
    }

    /// Moves the upper part of a full block to a new one behind it, which is returned and which nothing
    /// above knows yet. Something is to be inserted at `at`.
    fn halve(
        &mut self,
        left: &Block,
        at: usize,
        rooms: &mut impl Iterator<Item = Room<'a>>,
    ) -> &'a Block {
        let used = left.used();
        let ascending = left.run.load(Ordering::Relaxed) >= RUN
            && at as u32 == left.last.load(Ordering::Relaxed) + 1;
        let middle = if ascending {
            at.clamp(1, used - 1)
        } else {
            used / 2
        };
        let room = rooms.next().expect(ROOMS);
        let right = Block::make(room, left.level(), left.entry(middle));
        for i in middle..used {
            right.set(i - middle, left.get(i));
        }
        let relaxed = Ordering::Relaxed;
        right.used.store((used - middle) as u32, relaxed);
        right.skip.store(left.skip.load(relaxed), relaxed);
        right.next.store(left.next.load(relaxed), relaxed);
        if middle != at {
            left.run.store(0, relaxed); // else it goes on at the end of the left part
        }
        left.used.store(middle as u32, Ordering::Release);
        left.next.store(right.pointer(), Ordering::Release);
        self.skip_common(left);
        self.skip_common(right);
        right
    }

    /// Leaves out of a block's prefixes what all keys that belong in it have in common.
    fn skip_common(&mut self, block: &Block) {
        let Some(next) = block.next().filter(|_| !block.low().is_null()) else {
            return; // there is no bound
        };
        let common = self.comparator.common_prefix(block.lowest(), next.lowest()) as u32;
        if common == block.skip.load(Ordering::Relaxed) {
            return;
        }
        block.skip.store(common, Ordering::Relaxed);
        for i in 0..block.used() {
            // SAFETY: a live entry, as the slot is in use and the block is not the first of its level.
            let internal = unsafe { Entry::key(block.entry(i)) };
            let prefix = block.prefix(key::user_key(internal), self.comparator);
            block.set(i, (prefix, block.get(i).1));
        }
    }
}
