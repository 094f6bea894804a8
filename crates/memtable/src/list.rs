//! A sorted list of internal keys under an index of blocks: lock-free reads, inserts one at a time.
//!
//! There is one allocation per entry. Nothing is ever removed or moved, so readers need no protection other
//! than that the list stays alive.
//!
//! ```text
//!   | next entry | key_len u32 | value_len u32 | key | value |
//!                                                └ internal key
//! ```
//!
//! The entries are linked in key order, so a cursor steps without searching and stays valid while entries
//! are added. The [`index`], a B+ tree over all entries, finds the place of a key. A search spends nearly
//! all its time waiting for memory: here it waits for one block of the lowest level and for one entry (ADR
//! 0019).
//!
//! An insert first searches without a lock, which brings the needed memory into the cache. It then holds
//! the index's lock only while it adds the entry. The searches for entries that are inserted together run
//! side by side: [`together`].
//!
//! Casts from bytes to entries are sound: allocations are 8-aligned, and entries lie at multiples of 8.
//!
//! Invariants: keys are unique (each sequence number is used once per user key). An entry is fully written
//! before it is added to the index or linked (release), and is read only after its pointer was loaded
//! (acquire). Every linked entry is in the index.

#![expect(unsafe_code, reason = "a part of the unsafe island of memtables")]
#![expect(
    clippy::cast_ptr_alignment,
    reason = "the arena aligns to 8, and blocks are aligned by hand"
)]

use std::cmp::Ordering as Order;
use std::ptr;

use base::prefetch::{LINE, prefetch};
use base::sync::Memory;
use base::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use base::{Comparator, key};

use crate::arena::Arena;
use index::Index;

pub(crate) use index::Ahead;

mod index;
pub(crate) mod together;

#[repr(C)]
pub(crate) struct Entry {
    next: AtomicPtr<Entry>,
    key_len: u32,
    value_len: u32,
    /// Stands for all fields but the link in models.
    memory: Memory,
    // Key and value follow the header: see the picture in the module's documentation.
}

const HEADER: usize = size_of::<Entry>();

impl Entry {
    /// The internal key.
    ///
    /// # Safety
    /// `entry` must be a live entry, and its list must outlive `'a`.
    #[inline]
    unsafe fn key<'a>(entry: *const Entry) -> &'a [u8] {
        // SAFETY: `List::new_entry` put `key_len` bytes after the header.
        unsafe {
            (*entry).memory.read();
            std::slice::from_raw_parts(entry.byte_add(HEADER).cast(), (*entry).key_len as usize)
        }
    }

    /// The value.
    ///
    /// # Safety
    /// As for [`Entry::key`].
    #[inline]
    unsafe fn value<'a>(entry: *const Entry) -> &'a [u8] {
        // SAFETY: `List::new_entry` put `value_len` bytes after the key.
        unsafe {
            (*entry).memory.read();
            let at = entry.byte_add(HEADER + (*entry).key_len as usize);
            std::slice::from_raw_parts(at.cast(), (*entry).value_len as usize)
        }
    }

    /// How the entry compares with the target.
    ///
    /// # Safety
    /// As for [`Entry::key`].
    #[inline]
    unsafe fn compare(entry: *const Entry, target: &Target<'_>, comparator: &Comparator) -> Order {
        // SAFETY: the caller's contract.
        let internal = unsafe { Entry::key(entry) };
        let (user, packed) = key::split(internal).unwrap_or((internal, 0));
        comparator
            .compare(user, target.user_key)
            .then_with(|| target.packed.cmp(&packed))
    }
}

/// Arena memory is prefetched this many bytes (some entries) before it is written.
const AHEAD: usize = 1024;

/// A key to be searched for: user key and packed trailer.
#[derive(Clone, Copy)]
pub(crate) struct Target<'a> {
    user_key: &'a [u8],
    packed: u64,
}

impl<'a> Target<'a> {
    /// The search form of an internal key.
    #[inline]
    pub(crate) fn new(internal: &'a [u8]) -> Self {
        let (user_key, packed) = key::split(internal).unwrap_or((internal, u64::MAX));
        Self { user_key, packed }
    }
}

/// The list.
pub(crate) struct List {
    arena: Arena,
    comparator: Comparator,
    first: AtomicPtr<Entry>,
    index: Index,
    entries: AtomicUsize,
}

// SAFETY: entries are reached through atomics only, and are immutable once linked except for their link.
unsafe impl Send for List {}
// SAFETY: as above.
unsafe impl Sync for List {}

impl List {
    pub(crate) fn new(comparator: Comparator, arena: Arena) -> Self {
        Self {
            // SAFETY: the list owns both the index and the arena.
            index: unsafe { Index::new(&arena) },
            arena,
            comparator,
            first: AtomicPtr::default(),
            entries: AtomicUsize::new(0),
        }
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    /// Adds an entry; its internal key must not be in the list yet.
    pub(crate) fn insert(&self, user_key: &[u8], packed: u64, value: &[u8]) {
        let target = Target { user_key, packed };
        let entry = self.new_entry(&target, value);
        let place = self.index.find(&target, &self.comparator);
        self.link(entry, &target, place);
    }

    fn new_entry(&self, target: &Target<'_>, value: &[u8]) -> *mut Entry {
        let key_len = target.user_key.len() + key::TRAILER_LEN;
        let size = HEADER + key_len + value.len();
        let entry = self.arena.alloc(size).as_ptr().cast::<Entry>();
        // Prefetch the memory of later entries. Otherwise, whatever waits for earlier stores to complete
        // would also wait for these cache misses.
        for line in 0..2 {
            prefetch(entry.wrapping_byte_add(AHEAD + line * LINE));
        }
        // SAFETY: the arena gave `size` bytes, 8-aligned, to this thread alone; header and the three
        // copies lie inside them one after the other.
        unsafe {
            entry.write(Entry {
                next: AtomicPtr::default(),
                key_len: key_len as u32,
                value_len: value.len() as u32,
                memory: Memory::default(),
            });
            let at = entry.cast::<u8>().add(HEADER);
            ptr::copy_nonoverlapping(target.user_key.as_ptr(), at, target.user_key.len());
            let at = at.add(target.user_key.len());
            at.cast::<[u8; 8]>()
                .write_unaligned(target.packed.to_le_bytes());
            ptr::copy_nonoverlapping(value.as_ptr(), at.add(8), value.len());
            (*entry).memory.written();
        }
        entry
    }

    /// Adds a new entry to the index and links it; `place` may be out of date.
    fn link(&self, entry: *mut Entry, target: &Target<'_>, place: Option<index::Place<'_>>) {
        let mut index = self.index.lock(&self.arena, &self.comparator);
        let place = index.room(target, place);
        let link = self.behind(place.before);
        // SAFETY: `entry` is ours until it is linked.
        unsafe { &(*entry).next }.store(link.load(Ordering::Relaxed), Ordering::Relaxed);
        index.put(&place, target, entry);
        link.store(entry, Ordering::Release);
        drop(index);
        self.entries.fetch_add(1, Ordering::Relaxed);
    }

    /// The link to the entry after `entry`, or to the first entry if `entry` is null.
    #[inline]
    fn behind(&self, entry: *mut Entry) -> &AtomicPtr<Entry> {
        if entry.is_null() {
            return &self.first;
        }
        // SAFETY: it is an entry of this list.
        unsafe { &(*entry).next }
    }

    /// The first entry at or after the target; null if there is none.
    #[inline]
    fn lower_bound(&self, target: &Target<'_>) -> *mut Entry {
        let place = self.index.find_for_sure(target, &self.comparator);
        if !place.at_or_behind.is_null() {
            return place.at_or_behind;
        }
        // The entry is in the next block of the index. Entries added meanwhile may lie before the target.
        let mut at = self.behind(place.before).load(Ordering::Acquire);
        let is_before = |at: *mut Entry| {
            // SAFETY: a linked entry of this list.
            unsafe { Entry::compare(at, target, &self.comparator) == Order::Less }
        };
        while !at.is_null() && is_before(at) {
            at = self.behind(at).load(Ordering::Acquire);
        }
        at
    }

    /// The last entry before the target; null if there is none.
    fn before(&self, target: &Target<'_>) -> *mut Entry {
        self.index.find_for_sure(target, &self.comparator).before
    }

    /// Begins to prefetch entries, for a cursor that will pass through all of them.
    pub(crate) fn ahead(&self) -> Ahead {
        self.index.ahead()
    }

    /// A cursor without a position.
    #[cfg(test)]
    pub(crate) fn cursor(&self) -> Cursor<'_> {
        Cursor {
            list: self,
            at: ptr::null_mut(),
        }
    }

    /// A cursor at the first entry at or after the target.
    #[inline]
    pub(crate) fn cursor_at(&self, target: &Target<'_>) -> Cursor<'_> {
        Cursor {
            list: self,
            at: self.lower_bound(target),
        }
    }
}

/// A position in the list. It stays valid while entries are added.
#[derive(Clone, Copy)]
pub(crate) struct Cursor<'a> {
    list: &'a List,
    at: *mut Entry,
}

impl<'a> Cursor<'a> {
    /// The entry under the cursor as (internal key, value).
    #[inline]
    pub(crate) fn entry(&self) -> Option<(&'a [u8], &'a [u8])> {
        if self.at.is_null() {
            return None;
        }
        // SAFETY: a non-null cursor is at an entry, and the list is borrowed for 'a.
        Some(unsafe { (Entry::key(self.at), Entry::value(self.at)) })
    }

    pub(crate) fn seek_to_first(&mut self) {
        self.at = self.list.first.load(Ordering::Acquire);
    }

    pub(crate) fn seek_to_last(&mut self) {
        self.at = self.list.index.last();
    }

    /// Moves to the first entry at or after the internal key.
    pub(crate) fn seek(&mut self, internal: &[u8]) {
        self.at = self.list.lower_bound(&Target::new(internal));
    }

    /// Moves to the last entry at or before the internal key.
    pub(crate) fn seek_for_prev(&mut self, internal: &[u8]) {
        let target = Target::new(internal);
        self.at = self.list.lower_bound(&target);
        // Search for what is before the target. The predecessor of the entry found may by now be an entry
        // after the target.
        if self.entry().is_none_or(|(key, _)| key != internal) {
            self.at = self.list.before(&target);
        }
    }

    /// Moves to the next entry.
    ///
    /// # Panics
    /// If there is no entry under the cursor.
    #[inline]
    pub(crate) fn next(&mut self) {
        assert!(!self.at.is_null(), "next() on an invalid cursor");
        self.at = self.list.behind(self.at).load(Ordering::Acquire);
    }

    /// Moves to the previous entry by a search, because entries have no back pointers.
    pub(crate) fn prev(&mut self) {
        if let Some((internal, _)) = self.entry() {
            self.at = self.list.before(&Target::new(internal));
        }
    }

    /// The cursor's position as an opaque token for [`List::resume`].
    pub(crate) fn save(&self) -> Position {
        Position(self.at)
    }
}

/// A saved position of a [`Cursor`]; only valid for the list it came from.
#[derive(Clone, Copy)]
pub(crate) struct Position(*mut Entry);

// SAFETY: it is dereferenced only through `List::resume`, whose contract covers it.
unsafe impl Send for Position {}

impl Position {
    pub(crate) const NOWHERE: Self = Self(ptr::null_mut());
}

impl List {
    /// The cursor that was saved as `position`.
    ///
    /// # Safety
    /// `position` must come from a cursor of this same list.
    pub(crate) unsafe fn resume(&self, position: Position) -> Cursor<'_> {
        Cursor {
            list: self,
            at: position.0,
        }
    }
}

#[cfg(test)]
#[path = "list/tests.rs"]
mod tests;
