//! Changes of the index: entries are added, and full blocks are split.

use std::ptr;

use base::sync::atomic::{Ordering, fence};
use base::sync::{MutexGuard, PoisonError};
use base::{Comparator, key};

use super::{Arena, Block, Entry, Index, Place, Room, Target};

/// The maximum number of levels: in any key order, a block is split after five inserts or more on average.
const LEVELS: usize = 24;
/// After this many inserts, each right after the previous one, a block is split at the next insert's place:
/// entries in ascending order leave full blocks.
const RUN: u32 = 4;
/// Why there is memory for a new block: a panic message.
const ROOMS: &str = "each full block has brought one";

/// What only the writer may do.
impl Block {
    /// Begins a change.
    fn begin(&self) {
        let version = self.version.load(Ordering::Relaxed);
        debug_assert!(version & 1 == 0, "a block changes once at a time");
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
    }

    /// Ends a change.
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

    /// Makes room in slot `at` and fills it.
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

impl Index {
    /// Takes the lock for changes. `arena` must be the one that the index was created with.
    pub(in super::super) fn lock<'a>(
        &'a self,
        arena: &'a Arena,
        comparator: &'a Comparator,
    ) -> Writer<'a> {
        Writer {
            index: self,
            arena,
            comparator,
            _alone: self.writing.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }
}

/// The only writer of the index. Between [`Block::begin`] and [`Block::end`] it calls nothing that could
/// panic or wait: neither the arena nor a user-defined comparator.
pub(in super::super) struct Writer<'a> {
    index: &'a Index,
    arena: &'a Arena,
    comparator: &'a Comparator,
    _alone: MutexGuard<'a, ()>,
}

impl<'a> Writer<'a> {
    /// The target's place in a block that has room for it; `place` is where it was found before.
    pub(in super::super) fn room(
        &mut self,
        target: &Target<'_>,
        place: Option<Place<'a>>,
    ) -> Place<'a> {
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

    /// Adds an entry at a place from [`Writer::room`].
    pub(in super::super) fn put(
        &mut self,
        place: &Place<'_>,
        target: &Target<'_>,
        entry: *mut Entry,
    ) {
        let block = place.found.block;
        debug_assert!(place.at > 0 || block.low().is_null(), "behind the lowest");
        let prefix = block.prefix(target.user_key, self.comparator);
        block.begin();
        block.insert(place.at, prefix, entry.cast());
        block.end();
    }

    /// Splits the full block where the target belongs, and the full blocks above it.
    fn split(&mut self, target: &Target<'_>, place: &Place<'a>) {
        // The blocks on the way, with the slot followed in each, from the lowest level up to the root.
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
        // One room for each full block, and one for a new root. Allocate before the change begins:
        // allocation may take time, and readers must wait during the change.
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

    /// Puts `right` into slot `at` of a block. If the block is full, it is split first, and its new right
    /// part is returned, to be added to the level above.
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

    /// Moves the upper part of a full block to a new block after it. Returns the new block, which the level
    /// above does not point to yet. The caller will insert something at `at`.
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
            left.run.store(0, relaxed); // otherwise the run continues at the end of the left part
        }
        left.used.store(middle as u32, Ordering::Release);
        left.next.store(right.pointer(), Ordering::Release);
        self.skip_common(left);
        self.skip_common(right);
        right
    }

    /// Makes a block's prefixes skip the bytes that all keys of the block have in common.
    fn skip_common(&mut self, block: &Block) {
        let Some(next) = block.next().filter(|_| !block.low().is_null()) else {
            return; // a bound is missing
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
