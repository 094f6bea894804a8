//! The memtable: recent writes, sorted, in memory.
//!
//! The representation determines how entries are stored: a list under an index of blocks (named
//! `SkipListFactory`, as RocksDB's default), or for bulk loads a vector that is sorted when it is read. It
//! is an enum, not a trait object: inserts and lookups cost only one more predictable branch, and searches
//! can be inlined.
//!
//! `unsafe` code is in [`arena`], [`list`] and [`vector`], and in the calls here that resume their cursors.
#![expect(
    unsafe_code,
    reason = "the memtable is one of the project's unsafe islands"
)]

pub(crate) mod arena;
mod bloom;
pub(crate) mod history;
mod list;
mod tombstones;
mod vector;

use std::sync::Arc;

use base::perf::{self, PerfCounter};
use base::{Comparator, FileNumber, Result, SequenceNumber, SliceTransform, ValueType, key};
use std::sync::atomic::{AtomicU64, Ordering};
use table::{InternalIterator, Prefix};

use crate::options::MemtableFactory;
use crate::read::range_del::{Fragments, Span};
use crate::write_buffer_manager::Tracker;
use arena::Arena;
use bloom::Bloom;
use list::together::{self, Unlinked};
use list::{List, Position, Target};
use tombstones::Tombstones;
use vector::{Sorted, Vector};

/// A sorted set of (internal key, value). Inserts and reads may run at the same time.
pub(crate) struct Memtable {
    rep: Rep,
    filter: Option<Filter>,
    comparator: Comparator,
    tombstones: Tombstones,
    /// Memtables are numbered in order of creation.
    id: u64,
    /// The log that was active when this memtable became active: nothing in the memtable is in an older
    /// log.
    log_number: FileNumber,
    /// The log that became active when this memtable stopped being active; 0 while it is active.
    next_log_number: AtomicU64,
    /// Deletions of single keys of all kinds, for the flushed file's properties and compaction heuristics.
    deletes: AtomicU64,
    /// Key and value bytes.
    data_bytes: AtomicU64,
}

enum Rep {
    List(List),
    Vector(Vector),
}

impl Rep {
    #[inline]
    fn arena(&self) -> &Arena {
        match self {
            Self::List(list) => list.arena(),
            Self::Vector(vector) => vector.arena(),
        }
    }

    /// Bytes taken from the system.
    fn reserved(&self) -> usize {
        match self {
            Self::List(list) => list.arena().reserved(),
            Self::Vector(vector) => vector.arena().reserved() + vector.overhead(),
        }
    }
}

/// Says which keys the memtable certainly does not have.
struct Filter {
    bloom: Bloom,
    whole_keys: bool,
    prefixes: Option<SliceTransform>,
}

impl Filter {
    #[inline]
    fn add(&self, user_key: &[u8]) {
        if self.whole_keys {
            self.bloom.add(user_key);
        }
        if let Some(prefix) = self.prefix(user_key) {
            self.bloom.add(prefix);
        }
    }

    #[inline]
    fn may_contain(&self, user_key: &[u8]) -> bool {
        if self.whole_keys {
            return self.bloom.may_contain(user_key);
        }
        self.prefix(user_key)
            .is_none_or(|prefix| self.bloom.may_contain(prefix))
    }

    /// False only if no key with the prefix was added.
    fn may_contain_prefix(&self, prefix: Prefix<'_>) -> bool {
        self.prefixes.as_ref() != Some(prefix.transform) || self.bloom.may_contain(prefix.bytes)
    }

    #[inline]
    fn prefix<'k>(&self, user_key: &'k [u8]) -> Option<&'k [u8]> {
        self.prefixes.as_ref().and_then(|p| p.prefix(user_key))
    }
}

/// The settings of a new memtable.
pub(crate) struct Settings {
    pub(crate) comparator: Comparator,
    pub(crate) arena_block_size: usize,
    pub(crate) factory: MemtableFactory,
    /// Bytes of the filter; 0 for none.
    pub(crate) bloom_bytes: usize,
    /// Whether the filter contains whole keys besides their prefixes.
    pub(crate) whole_keys: bool,
    pub(crate) prefixes: Option<SliceTransform>,
    /// Counts the memory that the memtable takes.
    pub(crate) tracker: Option<Tracker>,
}

impl Settings {
    /// A sorted list without a filter, whose memory is not counted.
    #[cfg(test)]
    pub(crate) fn plain(comparator: Comparator, arena_block_size: usize) -> Self {
        Self {
            comparator,
            arena_block_size,
            factory: MemtableFactory::SkipList,
            bloom_bytes: 0,
            whole_keys: false,
            prefixes: None,
            tracker: None,
        }
    }

    fn filter(&mut self) -> Option<Filter> {
        let useful = self.whole_keys || self.prefixes.is_some();
        (self.bloom_bytes > 0 && useful).then(|| Filter {
            bloom: Bloom::new(self.bloom_bytes),
            whole_keys: self.whole_keys,
            prefixes: self.prefixes.take(),
        })
    }
}

impl Memtable {
    /// A sorted list without a filter, whose memory is not counted.
    #[cfg(test)]
    pub(crate) fn new(
        id: u64,
        comparator: Comparator,
        arena_block_size: usize,
        log_number: FileNumber,
    ) -> Self {
        Self::with(
            id,
            log_number,
            Settings::plain(comparator, arena_block_size),
        )
    }

    pub(crate) fn with(id: u64, log_number: FileNumber, mut settings: Settings) -> Self {
        let filter = settings.filter();
        if let (Some(tracker), Some(f)) = (&settings.tracker, &filter) {
            tracker.reserve(f.bloom.memory());
        }
        let arena = Arena::new(settings.arena_block_size, settings.tracker);
        Self {
            comparator: settings.comparator.clone(),
            tombstones: Tombstones::default(),
            rep: match settings.factory {
                MemtableFactory::SkipList => Rep::List(List::new(settings.comparator, arena)),
                MemtableFactory::Vector => Rep::Vector(Vector::new(settings.comparator, arena)),
            },
            filter,
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

    /// The oldest log that may contain anything of this memtable.
    pub(crate) fn log_number(&self) -> FileNumber {
        self.log_number
    }

    /// The oldest log that is still needed once this memtable and all older ones are flushed.
    pub(crate) fn next_log_number(&self) -> FileNumber {
        FileNumber(self.next_log_number.load(Ordering::Relaxed))
    }

    /// The memtable stops being active; new writes go to log `n`.
    pub(crate) fn seal(&self, n: FileNumber) {
        self.next_log_number.store(n.0, Ordering::Release);
        self.rep.arena().seal();
    }

    /// The memtable stays in memory after its flush.
    fn keep(&self) {
        self.rep.arena().keep();
    }

    fn is_sealed(&self) -> bool {
        self.next_log_number.load(Ordering::Acquire) != 0
    }

    /// Adds a version of a key.
    #[inline]
    pub(crate) fn insert(&self, user_key: &[u8], seq: SequenceNumber, t: ValueType, value: &[u8]) {
        self.note(user_key, t, value);
        match &self.rep {
            Rep::List(list) => list.insert(user_key, key::pack(seq, t), value),
            Rep::Vector(vector) => vector.insert(user_key, key::pack(seq, t), value),
        }
    }

    /// Begins to add a version of a key; [`link_all`] completes it. `None` if the version has already been
    /// added.
    #[inline]
    pub(crate) fn prepare(
        &self,
        user_key: &[u8],
        seq: SequenceNumber,
        t: ValueType,
        value: &[u8],
    ) -> Option<Prepared> {
        self.note(user_key, t, value);
        match &self.rep {
            Rep::List(list) => {
                let entry = list.prepare(user_key, key::pack(seq, t), value);
                Some(Prepared(entry))
            }
            Rep::Vector(vector) => {
                vector.insert(user_key, key::pack(seq, t), value);
                None
            }
        }
    }

    /// Counts a version that is being added, and adds its key to the filter.
    #[inline]
    fn note(&self, user_key: &[u8], t: ValueType, value: &[u8]) {
        if let Some(filter) = &self.filter {
            filter.add(user_key);
        }
        self.data_bytes.fetch_add(
            (user_key.len() + key::TRAILER_LEN + value.len()) as u64,
            Ordering::Relaxed,
        );
        if matches!(t, ValueType::Deletion | ValueType::SingleDeletion) {
            self.deletes.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Calls `visit` with the versions of the user key in `seek_key` that are not newer than its sequence
    /// number, newest first, until `visit` returns false.
    #[inline]
    pub(crate) fn versions(
        &self,
        seek_key: &[u8],
        mut visit: impl FnMut(key::Parsed<'_>, &[u8]) -> bool,
    ) {
        if self.points() == 0 {
            return;
        }
        let user_key = key::user_key(seek_key);
        if let Some(filter) = &self.filter {
            if !filter.may_contain(user_key) {
                perf::count(PerfCounter::BloomMemtableMissCount, 1);
                return;
            }
            perf::count(PerfCounter::BloomMemtableHitCount, 1);
        }
        // Returns false where the key's versions end, or when the caller has seen enough.
        let mut goes_on = |internal: &[u8], value: &[u8]| match key::parse(internal) {
            Some(found) if found.user_key == user_key => visit(found, value),
            _ => false,
        };
        match &self.rep {
            Rep::List(list) => {
                let mut cursor = list.cursor_at(&Target::new(seek_key));
                while let Some((internal, value)) = cursor.entry() {
                    if !goes_on(internal, value) {
                        return;
                    }
                    cursor.next();
                }
            }
            Rep::Vector(vector) => vector.walk(seek_key, goes_on),
        }
    }

    /// Removes the user keys from `begin` (inclusive) to `end` (exclusive); does nothing if the range is
    /// empty or inverted.
    pub(crate) fn delete_range(&self, begin: &[u8], end: &[u8], seq: SequenceNumber) {
        if self.comparator.compare(begin, end).is_lt() {
            self.tombstones.insert(begin, end, seq);
            self.data_bytes.fetch_add(
                (begin.len() + key::TRAILER_LEN + end.len()) as u64,
                Ordering::Relaxed,
            );
        }
    }

    /// The sequence number of the newest range tombstone that covers the user key in `seek_key` and is not
    /// newer than its sequence number; 0 if there is none.
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

    /// The range tombstones in the order of insertion.
    pub(crate) fn tombstone_spans(&self) -> Vec<Span> {
        self.tombstones.spans()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Number of entries other than range tombstones.
    #[inline]
    fn points(&self) -> usize {
        match &self.rep {
            Rep::List(list) => list.len(),
            Rep::Vector(vector) => vector.len(),
        }
    }

    /// Whether the memtable has entries other than range tombstones.
    pub(crate) fn has_points(&self) -> bool {
        self.points() > 0
    }

    /// Number of entries, range tombstones included.
    pub(crate) fn len(&self) -> usize {
        self.points() + self.tombstones.len()
    }

    /// Number of deletions of single keys.
    pub(crate) fn num_deletes(&self) -> u64 {
        self.deletes.load(Ordering::Relaxed)
    }

    pub(crate) fn num_range_deletes(&self) -> u64 {
        self.tombstones.len() as u64
    }

    /// Bytes of keys and values, without overhead.
    pub(crate) fn data_bytes(&self) -> u64 {
        self.data_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of memory that the memtable holds.
    pub(crate) fn memory_usage(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, |f| f.bloom.memory());
        self.rep.reserved() + filter + self.tombstones.bytes()
    }

    /// True once the memtable has reached the write buffer size and should become immutable.
    ///
    /// RocksDB's heuristic: no chunk is begun that would exceed the limit by more than 60 % of the chunk's
    /// size, and the last chunk is used up to three quarters.
    pub(crate) fn should_flush(&self, write_buffer_size: usize, arena_block_size: usize) -> bool {
        let reserved = self.rep.reserved() + self.tombstones.bytes();
        if reserved + arena_block_size < write_buffer_size + arena_block_size * 3 / 5 {
            return false;
        }
        if reserved > write_buffer_size + arena_block_size * 3 / 5 {
            return true;
        }
        self.rep.arena().unused() < arena_block_size / 4
    }

    /// Whether cursors see what is inserted after they were made.
    pub(crate) fn cursors_live(&self) -> bool {
        matches!(self.rep, Rep::List(_))
    }

    /// A cursor over all entries. A vector's cursor shows what was there when the cursor was created.
    pub(crate) fn iter(self: &Arc<Self>) -> Iter {
        Iter {
            at: match &self.rep {
                Rep::List(_) => At::List(Position::NOWHERE),
                Rep::Vector(vector) => At::Vector(vector.sorted(self.is_sealed()), usize::MAX),
            },
            ahead: None,
            memtable: Arc::clone(self),
        }
    }

    /// The same for one pass from the first entry to the last: entries are prefetched, because most of a
    /// pass is waiting for memory.
    pub(crate) fn pass(self: &Arc<Self>) -> Iter {
        let mut iter = self.iter();
        if let Rep::List(list) = &self.rep {
            iter.ahead = Some(list.ahead());
        }
        iter
    }
}

/// A version that has been allocated in a memtable, but cannot be read yet.
pub(crate) struct Prepared(Unlinked);

/// The number of versions worth collecting for [`link_all`].
pub(crate) const TOGETHER: usize = together::WIDTH;

/// Adds the results of [`Memtable::prepare`], each with its memtable.
pub(crate) fn link_all<'a>(versions: impl Iterator<Item = (&'a Memtable, Prepared)>) {
    together::link_all(
        versions.filter_map(|(memtable, version)| match &memtable.rep {
            Rep::List(list) => Some((list, version.0)),
            Rep::Vector(_) => None, // prepares nothing
        }),
    );
}

/// A cursor that keeps its memtable alive.
pub(crate) struct Iter {
    at: At,
    ahead: Option<list::Ahead>,
    memtable: Arc<Memtable>,
}

/// The position of a cursor, depending on the memtable's representation.
enum At {
    List(Position),
    /// An index; beyond the last entry, the cursor has no position.
    Vector(Sorted, usize),
}

impl Iter {
    /// Whether the memtable may have keys with the prefix; if not, the cursor loses its position.
    fn may_find(&mut self, prefix: Prefix<'_>) -> bool {
        let filter = self.memtable.filter.as_ref();
        let may = filter.is_none_or(|f| f.may_contain_prefix(prefix));
        if !may {
            match &mut self.at {
                At::List(at) => *at = Position::NOWHERE,
                At::Vector(_, at) => *at = usize::MAX,
            }
        }
        may
    }

    #[inline]
    fn current(&self) -> Option<(&[u8], &[u8])> {
        match (&self.at, &self.memtable.rep) {
            (At::List(at), Rep::List(list)) => {
                // SAFETY: `at` is only ever set from cursors of this memtable's list.
                unsafe { list.resume(*at) }.entry()
            }
            (At::Vector(sorted, at), Rep::Vector(vector)) => {
                // SAFETY: `sorted` is this vector's.
                unsafe { vector.at(sorted, *at) }
            }
            _ => None,
        }
    }

    /// Moves the cursor: `step` moves a cursor of the list, `place` returns a position in the vector.
    #[inline]
    fn go(
        &mut self,
        step: impl FnOnce(&mut list::Cursor<'_>),
        place: impl FnOnce(&Vector, &Sorted, usize) -> usize,
    ) {
        match (&mut self.at, &self.memtable.rep) {
            (At::List(at), Rep::List(list)) => {
                // SAFETY: as in `current`.
                let mut cursor = unsafe { list.resume(*at) };
                step(&mut cursor);
                *at = cursor.save();
            }
            (At::Vector(sorted, at), Rep::Vector(vector)) => *at = place(vector, sorted, *at),
            _ => {}
        }
    }

    #[inline]
    fn entry(&self) -> (&[u8], &[u8]) {
        self.current()
            .expect("key() and value() need a valid iterator")
    }
}

/// The position before `at`; before the first, an invalid one.
fn before(at: usize) -> usize {
    at.checked_sub(1).unwrap_or(usize::MAX)
}

impl InternalIterator for Iter {
    fn valid(&self) -> bool {
        self.current().is_some()
    }

    fn seek_to_first(&mut self) {
        self.go(|c| c.seek_to_first(), |_, _, _| 0);
    }

    fn seek_to_last(&mut self) {
        self.go(|c| c.seek_to_last(), |_, sorted, _| before(sorted.len()));
    }

    fn seek(&mut self, target: &[u8]) {
        perf::count(PerfCounter::SeekOnMemtableCount, 1);
        self.go(
            |c| c.seek(target),
            |vector, sorted, _| vector.position(sorted, target),
        );
    }

    fn seek_for_prev(&mut self, target: &[u8]) {
        perf::count(PerfCounter::SeekOnMemtableCount, 1);
        self.go(
            |c| c.seek_for_prev(target),
            |vector, sorted, _| {
                let at = vector.position(sorted, target);
                // SAFETY: `sorted` is this vector's.
                match unsafe { vector.at(sorted, at) } {
                    Some((k, _)) if k == target => at,
                    _ => before(at),
                }
            },
        );
    }

    fn seek_in_prefix(&mut self, target: &[u8], prefix: Prefix<'_>) -> bool {
        let may = self.may_find(prefix);
        if may {
            self.seek(target);
        }
        may
    }

    fn seek_for_prev_in_prefix(&mut self, target: &[u8], prefix: Prefix<'_>) -> bool {
        let may = self.may_find(prefix);
        if may {
            self.seek_for_prev(target);
        }
        may
    }

    fn next(&mut self) {
        perf::count(PerfCounter::NextOnMemtableCount, 1);
        self.go(|c| c.next(), |_, _, at| at + 1);
        if let Some(ahead) = &mut self.ahead {
            // SAFETY: `ahead` came from this memtable, which is kept alive.
            unsafe { ahead.go_on() };
        }
    }

    fn prev(&mut self) {
        perf::count(PerfCounter::PrevOnMemtableCount, 1);
        self.go(|c| c.prev(), |_, _, at| before(at));
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

    fn is_value_pinned(&self) -> bool {
        true
    }

    fn is_key_pinned(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests;
