//! The memtable: its representation, its filter, its range tombstones and its counters.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::perf::{self, PerfCounter};
use base::{Comparator, FileNumber, SequenceNumber, SliceTransform, ValueType, key};
use keyspan::{Fragments, Span};
use table::Prefix;

use crate::arena::Arena;
use crate::bloom::Bloom;
use crate::factory::MemtableFactory;
use crate::list::together::{self, Unlinked};
use crate::list::{List, Target};
use crate::tombstones::Tombstones;
use crate::vector::Vector;
use crate::write_buffers::Tracker;

/// A sorted set of (internal key, value). Inserts and reads may run at the same time.
pub struct Memtable {
    pub(crate) rep: Rep,
    pub(crate) filter: Option<Filter>,
    comparator: Comparator,
    tombstones: Tombstones,
    /// Memtables are numbered in order of creation.
    id: u64,
    /// The log that was active when this memtable became active: nothing in the memtable is in an older
    /// log.
    log_number: AtomicU64,
    /// The log that became active when this memtable stopped being active; 0 while it is active.
    next_log_number: AtomicU64,
    /// Deletions of single keys of all kinds, for the flushed file's properties and compaction heuristics.
    deletes: AtomicU64,
    /// Key and value bytes.
    data_bytes: AtomicU64,
}

pub(crate) enum Rep {
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
pub(crate) struct Filter {
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
    pub(crate) fn may_contain_prefix(&self, prefix: Prefix<'_>) -> bool {
        self.prefixes.as_ref() != Some(prefix.transform) || self.bloom.may_contain(prefix.bytes)
    }

    #[inline]
    fn prefix<'k>(&self, user_key: &'k [u8]) -> Option<&'k [u8]> {
        self.prefixes.as_ref().and_then(|p| p.prefix(user_key))
    }
}

/// The settings of a new memtable.
pub struct Settings {
    /// The order of user keys.
    pub comparator: Comparator,
    /// Bytes of the arena's larger chunks; smaller ones come first.
    pub arena_block_size: usize,
    /// The representation.
    pub factory: MemtableFactory,
    /// Bytes of the filter; 0 for none.
    pub bloom_bytes: usize,
    /// Whether the filter contains whole keys besides their prefixes.
    pub whole_keys: bool,
    /// The prefixes that the filter contains.
    pub prefixes: Option<SliceTransform>,
    /// Counts the memory that the memtable takes.
    pub tracker: Option<Tracker>,
}

impl Settings {
    /// A sorted list without a filter, whose memory is not counted, and whose larger chunks have as many
    /// bytes as with RocksDB's default options.
    pub fn new(comparator: Comparator) -> Self {
        Self {
            comparator,
            arena_block_size: 1 << 20,
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

/// A value that a lookup visits.
#[derive(Clone, Copy)]
pub struct Value<'a> {
    /// Only [`Memtable::versions`] makes values: the bytes are in the memory of this memtable, and do not change any more.
    memtable: &'a Memtable,
    bytes: &'a [u8],
}

impl<'a> Value<'a> {
    /// The bytes of the value.
    #[inline]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// The memtable that has the value in its memory, where nothing changes it.
    pub(crate) fn memtable(self) -> &'a Memtable {
        self.memtable
    }
}

impl Memtable {
    /// A memtable. Nothing in it is in a log older than `log_number`.
    pub fn with(id: u64, log_number: FileNumber, mut settings: Settings) -> Self {
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
            log_number: AtomicU64::new(log_number.0),
            next_log_number: AtomicU64::new(0),
            deletes: AtomicU64::new(0),
            data_bytes: AtomicU64::new(0),
        }
    }

    /// Memtables are numbered in order of creation.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The oldest log that may contain anything of this memtable.
    pub fn log_number(&self) -> FileNumber {
        FileNumber(self.log_number.load(Ordering::Acquire))
    }

    /// Later entries are in no log older than `n`. The memtable is empty, and nobody writes to it in this moment.
    pub fn begin_with_log(&self, n: FileNumber) {
        debug_assert!(self.is_empty() && n >= self.log_number());
        self.log_number.store(n.0, Ordering::Release);
    }

    /// The oldest log that is still needed once this memtable and all older ones are flushed.
    pub fn next_log_number(&self) -> FileNumber {
        FileNumber(self.next_log_number.load(Ordering::Relaxed))
    }

    /// The memtable stops being active; new writes go to log `n`.
    pub fn seal(&self, n: FileNumber) {
        self.next_log_number.store(n.0, Ordering::Release);
        self.rep.arena().seal();
    }

    /// The memtable stays in memory after its flush.
    pub(crate) fn keep(&self) {
        self.rep.arena().keep();
    }

    pub(crate) fn is_sealed(&self) -> bool {
        self.next_log_number.load(Ordering::Acquire) != 0
    }

    /// Adds a version of a key.
    #[inline]
    pub fn insert(&self, user_key: &[u8], seq: SequenceNumber, t: ValueType, value: &[u8]) {
        self.note(user_key, t, value);
        match &self.rep {
            Rep::List(list) => list.insert(user_key, key::pack(seq, t), value),
            Rep::Vector(vector) => vector.insert(user_key, key::pack(seq, t), value),
        }
    }

    /// Begins to add a version of a key; [`link_all`] completes it. `None` if the version has already been
    /// added.
    #[inline]
    pub fn prepare(
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
    pub fn versions(
        &self,
        seek_key: &[u8],
        mut visit: impl FnMut(key::Parsed<'_>, Value<'_>) -> bool,
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
        let memtable = self;
        let mut goes_on = |internal: &[u8], bytes: &[u8]| match key::parse(internal) {
            Some(found) if found.user_key == user_key => visit(found, Value { memtable, bytes }),
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
    pub fn delete_range(&self, begin: &[u8], end: &[u8], seq: SequenceNumber) {
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
    pub fn covering_tombstone(&self, seek_key: &[u8]) -> u64 {
        if self.tombstones.len() == 0 {
            return 0;
        }
        let limit = key::split(seek_key).map_or(0, |(_, packed)| packed >> 8);
        self.tombstones
            .covering(&self.comparator, seek_key, SequenceNumber(limit))
    }

    /// The range tombstones as fragments.
    pub fn tombstone_fragments(&self) -> Vec<Arc<Fragments>> {
        match self.tombstones.len() {
            0 => Vec::new(),
            _ => self.tombstones.lists(&self.comparator),
        }
    }

    /// The range tombstones in the order of insertion.
    pub fn tombstone_spans(&self) -> Vec<Span> {
        self.tombstones.spans()
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
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
    pub fn has_points(&self) -> bool {
        self.points() > 0
    }

    /// Number of entries, range tombstones included.
    pub fn len(&self) -> usize {
        self.points() + self.tombstones.len()
    }

    /// Number of deletions of single keys.
    pub fn num_deletes(&self) -> u64 {
        self.deletes.load(Ordering::Relaxed)
    }

    /// Number of range deletions.
    pub fn num_range_deletes(&self) -> u64 {
        self.tombstones.len() as u64
    }

    /// Bytes of keys and values, without overhead.
    pub fn data_bytes(&self) -> u64 {
        self.data_bytes.load(Ordering::Relaxed)
    }

    /// Bytes of memory that the memtable holds.
    pub fn memory_usage(&self) -> usize {
        let filter = self.filter.as_ref().map_or(0, |f| f.bloom.memory());
        self.rep.reserved() + filter + self.tombstones.bytes()
    }

    /// True once the memtable has reached the write buffer size and should become immutable.
    ///
    /// RocksDB's heuristic: no chunk is begun that would exceed the limit by more than 60 % of the chunk's
    /// size, and the last chunk is used up to three quarters.
    pub fn should_flush(&self, write_buffer_size: usize, arena_block_size: usize) -> bool {
        let reserved = self.rep.reserved() + self.tombstones.bytes();
        if reserved + arena_block_size < write_buffer_size + arena_block_size * 3 / 5 {
            return false;
        }
        if reserved > write_buffer_size + arena_block_size * 3 / 5 {
            return true;
        }
        self.rep.arena().unused() < arena_block_size / 4
    }

    /// Whether cursors see entries that are inserted after the cursor was made.
    pub fn cursors_live(&self) -> bool {
        matches!(self.rep, Rep::List(_))
    }
}

/// A version that has been allocated in a memtable, but cannot be read yet.
pub struct Prepared(Unlinked);

/// The number of versions worth collecting for [`link_all`].
pub const TOGETHER: usize = together::WIDTH;

/// Adds the results of [`Memtable::prepare`], each with its memtable.
pub fn link_all<'a>(versions: impl Iterator<Item = (&'a Memtable, Prepared)>) {
    together::link_all(
        versions.filter_map(|(memtable, version)| match &memtable.rep {
            Rep::List(list) => Some((list, version.0)),
            Rep::Vector(_) => None, // prepares nothing
        }),
    );
}
