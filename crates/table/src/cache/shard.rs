//! One shard of the cache: see [`cache`](crate::cache) for the protocol.

use std::cell::UnsafeCell;
use std::fmt;
use std::ptr;
use std::sync::OnceLock;

use base::prefetch::prefetch;
use base::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use base::sync::{Memory, Mutex, MutexGuard, PoisonError, ranked};

use super::{BlockCache, BlockKind, CacheKey, Evicted, Inserted, Pinned, Priority};
use crate::block::Block;
use crate::locks;

/// State of an entry: two bits for EMPTY, BUSY or LIVE, then the CLOCK count, then the number of pins.
const STATE_SHIFT: u32 = 62;
const BUSY: u64 = 1 << STATE_SHIFT;
const LIVE: u64 = 2 << STATE_SHIFT;
const STATE_MASK: u64 = 3 << STATE_SHIFT;
const CLOCK_SHIFT: u32 = 60;
const CLOCK_ONE: u64 = 1 << CLOCK_SHIFT;
const CLOCK_MASK: u64 = 3 << CLOCK_SHIFT;
const PINS_MASK: u64 = CLOCK_ONE - 1;

/// Entries of the first chunk; each further chunk is twice as large.
const FIRST_CHUNK: usize = if cfg!(loom) { 2 } else { 64 };
const CHUNKS: usize = 26;
/// Slots of the first table; each further table is twice as long.
const FIRST_TABLE: usize = if cfg!(loom) { 4 } else { 128 };
const TABLES: usize = 26;

/// One block and its state, in a separate cache line; [`Block`] is small enough for that.
#[repr(align(64))]
pub(super) struct Entry {
    state: AtomicU64,
    id: AtomicU64,
    offset: AtomicU64,
    charge: AtomicU32,
    value: UnsafeCell<Option<Block>>,
    /// Stands for the memory of `value` in the checks of a model checker.
    memory: Memory,
}

#[cfg(not(any(shuttle, loom)))]
const _: () = assert!(size_of::<Entry>() == 64);

// SAFETY: `value` is written only by the thread that has set the state to BUSY (under the shard's
// mutex, when there were no pins), and read only under a pin taken while the state was LIVE. The
// state's Acquire/Release operations order the two. The value itself is Send + Sync.
unsafe impl Sync for Entry {}

impl Entry {
    fn new() -> Self {
        Self {
            state: AtomicU64::new(0),
            id: AtomicU64::new(0),
            offset: AtomicU64::new(0),
            charge: AtomicU32::new(0),
            value: UnsafeCell::new(None),
            memory: Memory::default(),
        }
    }

    fn key(&self) -> CacheKey {
        CacheKey {
            id: self.id.load(Ordering::Relaxed),
            offset: self.offset.load(Ordering::Relaxed),
        }
    }

    #[inline]
    fn holds(&self, key: CacheKey) -> bool {
        self.offset.load(Ordering::Relaxed) == key.offset
            && self.id.load(Ordering::Relaxed) == key.id
    }

    /// Pins the entry and returns its value, if the entry is live and holds `key`. If it is `ASKED` for, it stays longer.
    #[inline]
    fn pin<const ASKED: bool>(&self, key: CacheKey) -> Option<Pinned<'_>> {
        // Check without a write first, so that a stale table word costs no write.
        if !self.holds(key) {
            return None;
        }
        let before = self.state.fetch_add(1, Ordering::Acquire);
        if before & STATE_MASK != LIVE || !self.holds(key) {
            self.unpin();
            return None;
        }
        if ASKED && before & CLOCK_MASK != CLOCK_MASK {
            self.state.fetch_or(CLOCK_MASK, Ordering::Relaxed);
        }
        // SAFETY: the state was LIVE when the pin was added, so no writer is inside, and none can
        // enter before the pin is taken back, which `Pinned` does when it is dropped.
        let value = unsafe { &*self.value.get() };
        self.memory.read();
        if let Some(block) = value {
            return Some(Pinned { entry: self, block });
        }
        self.unpin();
        None
    }

    /// Removes a pin through which the value was read.
    #[inline]
    pub(super) fn let_go(&self) {
        self.memory.read();
        self.unpin();
    }

    #[inline]
    fn unpin(&self) {
        let before = self.state.fetch_sub(1, Ordering::Release);
        base::invariant!(before & PINS_MASK > 0, "a pin is given back twice");
    }

    /// Makes a live entry without pins BUSY. On success, only the caller may access the value.
    fn take(&self) -> bool {
        let s = self.state.load(Ordering::Relaxed);
        s & STATE_MASK == LIVE
            && s & PINS_MASK == 0
            && self
                .state
                .compare_exchange(
                    s,
                    BUSY | (s & CLOCK_MASK),
                    Ordering::Acquire,
                    Ordering::Relaxed,
                )
                .is_ok()
    }

    /// Changes the state from BUSY to LIVE. Keeps pins that readers have added meanwhile.
    fn publish(&self) {
        let before = self.state.fetch_add(LIVE - BUSY, Ordering::Release);
        base::invariant!(before & STATE_MASK == BUSY, "published, and not BUSY");
    }

    /// Decrements the CLOCK count; false if it was 0 already. Writers only.
    fn cool(&self) -> bool {
        if self.state.load(Ordering::Relaxed) & CLOCK_MASK == 0 {
            return false;
        }
        self.state.fetch_sub(CLOCK_ONE, Ordering::Relaxed);
        true
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("id", &self.id)
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

/// State that only writers use, under the shard's mutex.
#[derive(Debug, Default)]
pub(super) struct Writer {
    /// Number of entries created so far; entry numbers are below it.
    created: usize,
    /// Empty entries.
    free: Vec<u32>,
    /// Words in the current table that name an entry.
    live: usize,
    /// The entry number at which the CLOCK hand is.
    hand: usize,
}

/// A part of the cache with its own lock.
#[derive(Debug)]
pub(super) struct Shard {
    /// The number of the current table.
    level: AtomicUsize,
    tables: [OnceLock<Box<[AtomicU64]>>; TABLES],
    chunks: [OnceLock<Box<[Entry]>>; CHUNKS],
    usage: AtomicUsize,
    writer: Mutex<Writer>,
}

/// A table word: its upper half is that of the hash, its lower half the entry's number plus one. 0 is
/// an empty slot.
#[inline]
fn word(hash: u64, entry: usize) -> u64 {
    (hash & 0xffff_ffff_0000_0000) | (entry as u64 + 1)
}

impl Shard {
    pub(super) fn new() -> Self {
        let shard = Self {
            level: AtomicUsize::new(0),
            tables: [const { OnceLock::new() }; TABLES],
            chunks: [const { OnceLock::new() }; CHUNKS],
            usage: AtomicUsize::new(0),
            writer: ranked(locks::CACHE_SHARD, Writer::default()),
        };
        shard.table_at(0);
        shard
    }

    fn table_at(&self, level: usize) -> &[AtomicU64] {
        self.tables[level].get_or_init(|| {
            (0..FIRST_TABLE << level)
                .map(|_| AtomicU64::new(0))
                .collect()
        })
    }

    #[inline]
    fn table(&self) -> &[AtomicU64] {
        match self.tables[self.level.load(Ordering::Acquire)].get() {
            Some(t) => t,
            None => &[],
        }
    }

    /// Chunk `c` holds the entries from `FIRST_CHUNK * (2^c - 1)` on.
    #[inline]
    fn entry(&self, number: usize) -> Option<&Entry> {
        let chunk = (number / FIRST_CHUNK + 1).ilog2() as usize;
        let start = FIRST_CHUNK * ((1 << chunk) - 1);
        self.chunks.get(chunk)?.get()?.get(number - start)
    }

    #[inline]
    pub(super) fn get(&self, key: CacheKey, hash: u64) -> Option<Pinned<'_>> {
        let mut candidates = self.candidates(hash);
        candidates.find_map(|entry| entry.pin::<true>(key))
    }

    /// The same, without a trace.
    #[inline]
    pub(super) fn peek(&self, key: CacheKey, hash: u64) -> Option<Pinned<'_>> {
        let mut candidates = self.candidates(hash);
        candidates.find_map(|entry| entry.pin::<false>(key))
    }

    /// The entries that the words of the table name for a hash.
    #[inline]
    fn candidates(&self, hash: u64) -> impl Iterator<Item = &Entry> {
        let table = self.table();
        let mask = table.len().wrapping_sub(1);
        let slots = (0..table.len()).map(move |i| (hash as usize).wrapping_add(i) & mask);
        let words = slots.map(|slot| table[slot].load(Ordering::Acquire));
        let words = words.take_while(|&w| w != 0);
        let tagged = words.filter(move |w| (w ^ hash) >> 32 == 0);
        tagged.filter_map(|w| self.entry((w as u32 - 1) as usize))
    }

    #[inline]
    pub(super) fn prefetch_place(&self, hash: u64) {
        let table = self.table();
        if let Some(word) = table.get(hash as usize & table.len().wrapping_sub(1)) {
            prefetch(ptr::from_ref(word));
        }
    }

    #[inline]
    pub(super) fn prefetch_entry(&self, hash: u64) {
        if let Some(entry) = self.candidates(hash).next() {
            prefetch(ptr::from_ref(entry));
        }
    }

    fn lock(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn usage(&self) -> usize {
        self.usage.load(Ordering::Relaxed)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().live
    }

    /// The keys of all blocks.
    pub(super) fn keys(&self) -> Vec<CacheKey> {
        let w = self.lock();
        let mut keys = Vec::with_capacity(w.live);
        let entries = (0..w.created).filter_map(|n| self.entry(n));
        let live = entries.filter(|e| e.state.load(Ordering::Relaxed) & STATE_MASK == LIVE);
        keys.extend(live.map(Entry::key));
        keys
    }

    pub(super) fn has(&self, key: CacheKey, hash: u64) -> bool {
        let _writer = self.lock();
        self.find(key, hash).is_some()
    }

    pub(super) fn add_kinds(&self, kinds: &mut [(usize, usize); 4]) {
        let w = self.lock();
        for e in (0..w.created).filter_map(|n| self.entry(n)) {
            if e.state.load(Ordering::Relaxed) & STATE_MASK == LIVE {
                let kind = BlockKind::of_place(e.offset.load(Ordering::Relaxed));
                let of = &mut kinds[kind as usize];
                *of = (of.0 + 1, of.1 + e.charge.load(Ordering::Relaxed) as usize);
            }
        }
    }

    pub(super) fn pinned_usage(&self) -> usize {
        let w = self.lock();
        let mut pinned = 0;
        for e in (0..w.created).filter_map(|n| self.entry(n)) {
            if !e.take() {
                if e.state.load(Ordering::Relaxed) & STATE_MASK == LIVE {
                    pinned += e.charge.load(Ordering::Relaxed) as usize;
                }
                continue;
            }
            if is_held(e) {
                pinned += e.charge.load(Ordering::Relaxed) as usize;
            }
            e.publish();
        }
        pinned
    }

    /// Evicts at least `want` bytes, as [`Shard::make_room`] does, and tells `gone` how many, under the lock.
    pub(super) fn evict_some(
        &self,
        want: usize,
        keep: usize,
        out: &mut Evicted<'_>,
        gone: impl FnOnce(usize),
    ) -> usize {
        let mut w = self.lock();
        let freed = self.make_room(&mut w, want, keep, out);
        gone(freed);
        freed
    }

    /// Inserts a block, whose charge fits into 32 bits, if `room` frees `need` bytes for it. `count` is told its charge
    /// before any other thread can find or evict it.
    pub(super) fn insert(
        &self,
        (key, hash): (CacheKey, u64),
        (block, priority): (&Block, Priority),
        (need, room, count): (
            usize,
            impl FnOnce(&Self, &mut Writer) -> usize,
            impl FnOnce(usize),
        ),
    ) -> Inserted {
        let mut w = self.lock();
        if self.find(key, hash).is_some() {
            return Inserted::No;
        }
        let freed = if need > 0 { room(self, &mut w) } else { 0 };
        if freed < need {
            return Inserted::LacksRoom(freed);
        }
        let Some((number, entry)) = self.empty_entry(&mut w) else {
            return Inserted::No;
        };
        let charge = BlockCache::charge(block);
        entry.id.store(key.id, Ordering::Relaxed);
        entry.offset.store(key.offset, Ordering::Relaxed);
        entry.charge.store(charge as u32, Ordering::Relaxed);
        // SAFETY: the entry was empty and is BUSY now, and this thread has the mutex.
        unsafe { *entry.value.get() = Some(block.clone()) };
        entry.memory.written();
        let clock = match priority {
            Priority::Low => CLOCK_ONE,
            Priority::High => CLOCK_MASK,
        };
        entry.state.fetch_add(clock, Ordering::Relaxed);
        count(charge);
        entry.publish();
        self.usage.fetch_add(charge, Ordering::Relaxed);
        self.add_word(&mut w, hash, number);
        Inserted::Yes
    }

    /// Removes the block under `key`, unless it is pinned. Returns its charge; 0 if none was removed.
    pub(super) fn erase(&self, key: CacheKey, hash: u64) -> usize {
        let mut w = self.lock();
        let before = self.usage();
        let block = match self.find(key, hash) {
            Some((slot, number)) => self.evict(&mut w, slot, number, true),
            None => None,
        };
        let freed = before - self.usage();
        drop(w);
        drop(block);
        freed
    }

    /// Takes an empty entry, or creates one, and makes it BUSY.
    fn empty_entry(&self, w: &mut Writer) -> Option<(usize, &Entry)> {
        let number = if let Some(n) = w.free.pop() {
            n as usize
        } else {
            let chunk = (w.created / FIRST_CHUNK + 1).ilog2() as usize;
            let made = self.chunks.get(chunk)?;
            made.get_or_init(|| (0..FIRST_CHUNK << chunk).map(|_| Entry::new()).collect());
            w.created += 1;
            w.created - 1
        };
        let entry = self.entry(number)?;
        // EMPTY to BUSY; a reader with a stale word may have a pin on it for a moment.
        let before = entry.state.fetch_add(BUSY, Ordering::Acquire);
        base::invariant!(before & !PINS_MASK == 0, "a free entry is in use");
        Some((number, entry))
    }

    /// Slot and entry number of a key. Writers only.
    fn find(&self, key: CacheKey, hash: u64) -> Option<(usize, usize)> {
        let table = self.table();
        let mask = table.len() - 1;
        let mut slot = hash as usize & mask;
        loop {
            let w = table[slot].load(Ordering::Relaxed);
            if w == 0 {
                return None;
            }
            let number = (w as u32 - 1) as usize;
            if (w ^ hash) >> 32 == 0 && self.entry(number).is_some_and(|e| e.holds(key)) {
                return Some((slot, number));
            }
            slot = (slot + 1) & mask;
        }
    }

    /// Evicts at least `want` bytes, unless the shard has no more than `keep`, or what remains is in use. Returns the
    /// bytes that it evicted.
    pub(super) fn make_room(
        &self,
        w: &mut Writer,
        want: usize,
        keep: usize,
        out: &mut Evicted<'_>,
    ) -> usize {
        let before = self.usage();
        // Three rounds bring every count to 0 and the fourth evicts; what then remains is in use.
        let mut steps = w.created * 4 + 1;
        while before - self.usage() < want && self.usage() > keep {
            if steps == 0 || w.created == 0 {
                break;
            }
            steps -= 1;
            let number = w.hand;
            w.hand = (w.hand + 1) % w.created;
            let Some(e) = self.entry(number) else {
                continue;
            };
            if e.state.load(Ordering::Relaxed) & STATE_MASK != LIVE || e.cool() {
                continue;
            }
            let key = e.key();
            if let Some((slot, _)) = self.find(key, key.hash())
                && let Some(block) = self.evict(w, slot, number, false)
            {
                out.push(key, block);
            }
        }
        before - self.usage()
    }

    /// Removes an entry unless it is in use. With `force`, only a pin counts as use, not a counted reference.
    fn evict(&self, w: &mut Writer, slot: usize, number: usize, force: bool) -> Option<Block> {
        let entry = self.entry(number)?;
        if !entry.take() {
            return None;
        }
        if !force && is_held(entry) {
            entry.publish();
            return None;
        }
        self.remove_word(w, slot);
        // SAFETY: `take` made the entry BUSY when it had no pins, and this thread has the mutex.
        let block = unsafe { (*entry.value.get()).take() };
        entry.memory.written();
        let charge = entry.charge.load(Ordering::Relaxed) as usize;
        let before = self.usage.fetch_sub(charge, Ordering::Relaxed);
        base::invariant!(before >= charge, "{charge} bytes leave, of {before}");
        // BUSY to EMPTY and the CLOCK count to 0; keeps pins that readers hold for a moment.
        entry.state.fetch_and(PINS_MASK, Ordering::Release);
        w.free.push(number as u32);
        block
    }

    fn add_word(&self, w: &mut Writer, hash: u64, number: usize) {
        let mut table = self.table();
        let level = self.level.load(Ordering::Relaxed);
        if (w.live + 1) * 2 > table.len() && level + 1 < TABLES {
            let larger = self.table_at(level + 1);
            for e in table.iter().map(|s| s.load(Ordering::Relaxed)) {
                if e != 0 {
                    let number = (e as u32 - 1) as usize;
                    place(larger, self.hash_of(number), number);
                }
            }
            self.level.store(level + 1, Ordering::Release);
            table = larger;
        }
        place(table, hash, number);
        w.live += 1;
    }

    fn hash_of(&self, number: usize) -> u64 {
        self.entry(number).map_or(0, |e| e.key().hash())
    }

    /// Empties a slot and moves later words of its run back, so that no probe sequence is interrupted.
    fn remove_word(&self, w: &mut Writer, slot: usize) {
        let table = self.table();
        let mask = table.len() - 1;
        let mut hole = slot;
        let mut next = (slot + 1) & mask;
        loop {
            let word = table[next].load(Ordering::Relaxed);
            if word == 0 {
                break;
            }
            let home = self.hash_of((word as u32 - 1) as usize) as usize & mask;
            // The word may move into the hole if its home is not between hole and next.
            if next.wrapping_sub(home) & mask >= next.wrapping_sub(hole) & mask {
                table[hole].store(word, Ordering::Release);
                hole = next;
            }
            next = (next + 1) & mask;
        }
        table[hole].store(0, Ordering::Release);
        w.live -= 1;
    }
}

/// Checks that no pin is left, and that the counts and charges match the entries.
impl Drop for Shard {
    fn drop(&mut self) {
        if !base::INVARIANTS || base::sync::thread::panicking() {
            return;
        }
        let (created, live) = {
            let w = self.lock();
            (w.created, w.live)
        };
        let (mut blocks, mut charged) = (0, 0);
        for e in (0..created).filter_map(|n| self.entry(n)) {
            let state = e.state.load(Ordering::Relaxed);
            assert!(state & PINS_MASK == 0, "a pin outlives the cache: {e:?}");
            assert!(state & STATE_MASK != BUSY, "nobody changes it: {e:?}");
            if state & STATE_MASK == LIVE {
                blocks += 1;
                charged += e.charge.load(Ordering::Relaxed) as usize;
            }
        }
        assert_eq!((blocks, charged), (live, self.usage()), "of a shard");
    }
}

/// True if someone else has a counted reference to the value. Only for an entry that the caller
/// has made BUSY.
fn is_held(entry: &Entry) -> bool {
    // SAFETY: the entry is BUSY, set by this thread, which has the shard's mutex.
    let value = unsafe { &*entry.value.get() };
    entry.memory.read();
    value.as_ref().is_some_and(Block::is_shared)
}

fn place(table: &[AtomicU64], hash: u64, number: usize) {
    let mask = table.len() - 1;
    let mut slot = hash as usize & mask;
    while table[slot].load(Ordering::Relaxed) != 0 {
        slot = (slot + 1) & mask;
    }
    table[slot].store(word(hash, number), Ordering::Release);
}
