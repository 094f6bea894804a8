//! The memtable: recent writes, sorted, in memory.
//!
//! `unsafe` lives in [`arena`] and [`skiplist`], and in the one call here that resumes a cursor.
#![expect(
    unsafe_code,
    reason = "the memtable is one of the project's unsafe islands"
)]

pub(crate) mod arena;
mod skiplist;
mod tombstones;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Comparator, FileNumber, Result, SequenceNumber, ValueType, key};
use table::InternalIterator;

use crate::read::range_del::{Fragments, Span};
use arena::Arena;
use skiplist::{Position, SkipList};
use tombstones::Tombstones;

/// A sorted set of (internal key, value). Inserts and reads may run at the same time.
pub(crate) struct Memtable {
    list: SkipList,
    comparator: Comparator,
    tombstones: Tombstones,
    /// Identifies the memtable in order of creation.
    id: u64,
    /// The log that was active when this memtable became active: nothing in it is older.
    log_number: FileNumber,
    /// The log that became active when this memtable stopped being active; 0 while it is active.
    next_log_number: AtomicU64,
    /// Deletions of single keys of all kinds, for the flushed file's properties and compaction heuristics.
    deletes: AtomicU64,
    /// Key and value bytes.
    data_bytes: AtomicU64,
}

impl Memtable {
    pub(crate) fn new(
        id: u64,
        comparator: Comparator,
        arena_block_size: usize,
        log_number: FileNumber,
    ) -> Self {
        Self {
            list: SkipList::new(comparator.clone(), Arena::new(arena_block_size)),
            comparator,
            tombstones: Tombstones::default(),
            id,
            log_number,
            next_log_number: AtomicU64::new(0),
            deletes: AtomicU64::new(0),
            data_bytes: AtomicU64::new(0),
        }
    }

    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// The oldest log that may hold something of this memtable.
    pub(crate) fn log_number(&self) -> FileNumber {
        self.log_number
    }

    /// The oldest log that is still needed once this memtable and all older ones are flushed.
    pub(crate) fn next_log_number(&self) -> FileNumber {
        FileNumber(self.next_log_number.load(Ordering::Relaxed))
    }

    pub(crate) fn set_next_log_number(&self, n: FileNumber) {
        self.next_log_number.store(n.0, Ordering::Relaxed);
    }

    /// Adds a version of a key.
    #[inline]
    pub(crate) fn insert(&self, user_key: &[u8], seq: SequenceNumber, t: ValueType, value: &[u8]) {
        self.list.insert(user_key, key::pack(seq, t), value);
        self.data_bytes.fetch_add(
            (user_key.len() + key::TRAILER_LEN + value.len()) as u64,
            Ordering::Relaxed,
        );
        if matches!(t, ValueType::Deletion | ValueType::SingleDeletion) {
            self.deletes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Passes the versions of the user key in `seek_key` that are not newer than its sequence,
    /// newest first, to `visit`, until that returns false.
    #[inline]
    pub(crate) fn versions(
        &self,
        seek_key: &[u8],
        mut visit: impl FnMut(key::Parsed<'_>, &[u8]) -> bool,
    ) {
        if self.list.len() == 0 {
            return;
        }
        let mut cursor = self.list.cursor_at(&self.list.target(seek_key));
        let user_key = key::user_key(seek_key);
        while let Some((internal, value)) = cursor.entry() {
            match key::parse(internal) {
                Some(found) if found.user_key == user_key && visit(found, value) => cursor.next(),
                _ => return,
            }
        }
    }

    /// Removes the user keys from `begin` up to, and without, `end`; nothing if that is no range.
    pub(crate) fn delete_range(&self, begin: &[u8], end: &[u8], seq: SequenceNumber) {
        if self.comparator.compare(begin, end).is_lt() {
            self.tombstones.insert(begin, end, seq);
            self.data_bytes.fetch_add(
                (begin.len() + key::TRAILER_LEN + end.len()) as u64,
                Ordering::Relaxed,
            );
        }
    }

    /// The newest range tombstone over the user key in `seek_key` that is not newer than its
    /// sequence; 0 if there is none.
    #[inline]
    pub(crate) fn covering_tombstone(&self, seek_key: &[u8]) -> u64 {
        if self.tombstones.len() == 0 {
            return 0;
        }
        let limit = key::split(seek_key).map_or(0, |(_, packed)| packed >> 8);
        self.tombstones
            .covering(&self.comparator, seek_key, SequenceNumber(limit))
    }

    /// The range tombstones as fragments.
    pub(crate) fn tombstone_fragments(&self) -> Vec<Arc<Fragments>> {
        match self.tombstones.len() {
            0 => Vec::new(),
            _ => self.tombstones.lists(&self.comparator),
        }
    }

    /// The range tombstones as they came.
    pub(crate) fn tombstone_spans(&self) -> Vec<Span> {
        self.tombstones.spans()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.len() == 0 && self.tombstones.len() == 0
    }

    /// Whether it has entries other than range tombstones.
    pub(crate) fn has_points(&self) -> bool {
        self.list.len() > 0
    }

    /// Number of entries, range tombstones included.
    pub(crate) fn len(&self) -> usize {
        self.list.len() + self.tombstones.len()
    }

    /// Deletions of single keys.
    pub(crate) fn num_deletes(&self) -> u64 {
        self.deletes.load(Ordering::Relaxed)
    }

    pub(crate) fn num_range_deletes(&self) -> u64 {
        self.tombstones.len() as u64
    }

    /// Key and value bytes, without the structure around them.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of memory that it holds.
    pub(crate) fn memory_usage(&self) -> usize {
        self.list.arena().reserved() + self.tombstones.bytes()
    }

    /// True once it has as much data as the write buffer may have: it then becomes immutable.
    ///
    /// A chunk that would overshoot the limit by more than 60 % of its size is not begun, and one
    /// that was begun is used up to three quarters: RocksDB's rule of thumb.
    pub(crate) fn should_flush(&self, write_buffer_size: usize, arena_block_size: usize) -> bool {
        let arena = self.list.arena();
        let reserved = arena.reserved() + self.tombstones.bytes();
        if reserved + arena_block_size < write_buffer_size + arena_block_size * 3 / 5 {
            return false;
        }
        if reserved > write_buffer_size + arena_block_size * 3 / 5 {
            return true;
        }
        arena.unused() < arena_block_size / 4
    }

    /// A cursor over everything in it.
    pub(crate) fn iter(self: &Arc<Self>) -> Iter {
        Iter {
            at: Position::NOWHERE,
            memtable: Arc::clone(self),
        }
    }
}

/// A cursor that keeps its memtable alive.
pub(crate) struct Iter {
    at: Position,
    memtable: Arc<Memtable>,
}

impl Iter {
    #[inline]
    fn cursor(&self) -> skiplist::Cursor<'_> {
        // SAFETY: `at` is only ever set from cursors of this memtable's list.
        unsafe { self.memtable.list.resume(self.at) }
    }

    #[inline]
    fn go(&mut self, step: impl FnOnce(&mut skiplist::Cursor<'_>)) {
        let mut c = self.cursor();
        step(&mut c);
        self.at = c.save();
    }

    #[inline]
    fn entry(&self) -> (&[u8], &[u8]) {
        self.cursor()
            .entry()
            .expect("key() and value() need a valid iterator")
    }
}

impl InternalIterator for Iter {
    fn valid(&self) -> bool {
        self.cursor().entry().is_some()
    }

    fn seek_to_first(&mut self) {
        self.go(|c| c.seek_to_first());
    }

    fn seek_to_last(&mut self) {
        self.go(|c| c.seek_to_last());
    }

    fn seek(&mut self, target: &[u8]) {
        self.go(|c| c.seek(target));
    }

    fn seek_for_prev(&mut self, target: &[u8]) {
        self.go(|c| {
            c.seek(target);
            match c.entry() {
                Some((k, _)) if k == target => {}
                Some(_) => c.prev(),
                None => c.seek_to_last(),
            }
        });
    }

    fn next(&mut self) {
        self.go(|c| c.next());
    }

    fn prev(&mut self) {
        self.go(|c| c.prev());
    }

    fn key(&self) -> &[u8] {
        self.entry().0
    }

    fn value(&self) -> &[u8] {
        self.entry().1
    }

    fn status(&self) -> Result<()> {
        Ok(())
    }
}
