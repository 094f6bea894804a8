//! The memtable representation for bulk loads: entries are appended, and sorted when they are read.
//!
//! This is RocksDB's `VectorRepFactory`. An insert costs a copy and a push; reads are expensive. While the
//! memtable is active, a lookup scans all of it, and an iterator sorts a copy. Once it is immutable, it is
//! sorted once.
//!
//! ```text
//!   | key_len u32 | value_len u32 | internal key | value |      one allocation of the arena
//! ```
//!
//! Threads may insert at the same time: they copy in parallel and push one at a time.
//!
//! Invariant: an [`Entry`] points at memory that the arena provided and `insert` has written. The memory is
//! not written again and lives as long as the arena.

#![expect(unsafe_code, reason = "a part of the unsafe island of memtables")]

use std::cmp::Ordering;
use std::ptr::{self, NonNull};
use std::sync::{Arc, OnceLock};

use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use base::{Comparator, key};

use crate::arena::Arena;
use crate::locks;

const HEADER: usize = 8;

/// The address of an entry.
#[derive(Clone, Copy)]
pub(crate) struct Entry(NonNull<u8>);

// SAFETY: the memory that it points at is not written any more.
unsafe impl Send for Entry {}
// SAFETY: as above.
unsafe impl Sync for Entry {}

impl Entry {
    /// The internal key and the value.
    ///
    /// # Safety
    /// The vector that created it must outlive `'a`.
    unsafe fn parts<'a>(self) -> (&'a [u8], &'a [u8]) {
        // SAFETY: `insert` wrote header, key and value one after the other, with these lengths.
        unsafe {
            let [key_len, value_len] = self.0.cast::<[u32; 2]>().read();
            let at = self.0.add(HEADER).as_ptr();
            let key = std::slice::from_raw_parts(at, key_len as usize);
            let value = at.add(key_len as usize);
            (key, std::slice::from_raw_parts(value, value_len as usize))
        }
    }
}

/// Entries in key order.
pub(crate) type Sorted = Arc<[Entry]>;

/// The representation.
pub(crate) struct Vector {
    arena: Arena,
    comparator: Comparator,
    entries: Mutex<Vec<Entry>>,
    /// Created once nothing is added any more.
    sorted: OnceLock<Sorted>,
}

impl Vector {
    pub(crate) fn new(comparator: Comparator, arena: Arena) -> Self {
        Self {
            arena,
            comparator,
            entries: ranked(locks::MEMTABLE, Vec::new()),
            sorted: OnceLock::new(),
        }
    }

    pub(crate) fn arena(&self) -> &Arena {
        &self.arena
    }

    fn entries(&self) -> MutexGuard<'_, Vec<Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries().len()
    }

    /// Bytes of memory besides the arena's.
    pub(crate) fn overhead(&self) -> usize {
        self.entries().capacity() * size_of::<Entry>()
    }

    /// Adds an entry.
    pub(crate) fn insert(&self, user_key: &[u8], packed: u64, value: &[u8]) {
        let key_len = user_key.len() + key::TRAILER_LEN;
        let at = self.arena.alloc(HEADER + key_len + value.len());
        // SAFETY: the arena gave this many bytes, 8-aligned, to this thread alone; header and the
        // three copies lie inside them one after the other.
        unsafe {
            at.cast::<[u32; 2]>()
                .write([key_len as u32, value.len() as u32]);
            let to = at.add(HEADER).as_ptr();
            ptr::copy_nonoverlapping(user_key.as_ptr(), to, user_key.len());
            let to = to.add(user_key.len());
            to.cast::<[u8; 8]>().write_unaligned(packed.to_le_bytes());
            ptr::copy_nonoverlapping(value.as_ptr(), to.add(8), value.len());
        }
        self.entries().push(Entry(at));
    }

    #[expect(clippy::unused_self, reason = "the borrow is what makes it safe")]
    fn entry(&self, entry: Entry) -> (&[u8], &[u8]) {
        // SAFETY: entries are this vector's own, and it is borrowed for the result's life.
        unsafe { entry.parts() }
    }

    fn compare(&self, a: Entry, b: &[u8]) -> Ordering {
        key::compare(&self.comparator, self.entry(a).0, b)
    }

    /// Calls `visit` with the entries from an internal key on, in order, until `visit` returns false. While
    /// the vector is not sorted, only with those of the same user key.
    pub(crate) fn walk(&self, target: &[u8], mut visit: impl FnMut(&[u8], &[u8]) -> bool) {
        let mut passed = |e: Entry| {
            let (key, value) = self.entry(e);
            visit(key, value)
        };
        if let Some(sorted) = self.sorted.get() {
            let from = self.position(sorted, target);
            for e in sorted.iter().skip(from) {
                if !passed(*e) {
                    break;
                }
            }
            return;
        }
        // Only the entries with the same user key: the caller needs no others.
        let same = |e: &Entry| {
            let (key, _) = self.entry(*e);
            let user_key = self
                .comparator
                .compare(key::user_key(key), key::user_key(target));
            user_key == Ordering::Equal && self.compare(*e, target) != Ordering::Less
        };
        let mut found: Vec<Entry> = self.entries().iter().copied().filter(same).collect();
        found.sort_unstable_by(|a, b| self.compare(*a, self.entry(*b).0));
        for e in found {
            if !passed(e) {
                break;
            }
        }
    }

    /// The position of the first entry at or after an internal key.
    pub(crate) fn position(&self, sorted: &Sorted, target: &[u8]) -> usize {
        sorted.partition_point(|e| self.compare(*e, target) == Ordering::Less)
    }

    /// The entry at a position in [`Vector::sorted`].
    ///
    /// # Safety
    /// `sorted` must come from this vector.
    pub(crate) unsafe fn at(&self, sorted: &Sorted, i: usize) -> Option<(&[u8], &[u8])> {
        sorted.get(i).map(|e| self.entry(*e))
    }

    /// All current entries in order. `sealed` promises that nothing is added any more.
    pub(crate) fn sorted(&self, sealed: bool) -> Sorted {
        let sort = || {
            let mut entries = self.entries().clone();
            entries.sort_unstable_by(|a, b| self.compare(*a, self.entry(*b).0));
            Sorted::from(entries)
        };
        if sealed {
            Arc::clone(self.sorted.get_or_init(sort))
        } else {
            sort()
        }
    }
}
