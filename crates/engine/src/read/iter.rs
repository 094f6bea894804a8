//! The iterator that applications use: one entry per living user key.
//!
//! It moves an inner cursor over all versions of all keys, newest version first. Forward, the first visible
//! version of a key is the entry, and older versions are skipped. In reverse, the versions of a key come oldest
//! first, so the newest visible version is known only when the cursor reaches the previous key. The entry is
//! therefore saved, and the inner cursor is before it.
//!
//! If the newest visible version of a key is a merge operand, the operands are merged as soon as the key is
//! reached, and the result is saved. Forward, the inner cursor is then after the merged operands: at their base,
//! or after it.
//!
//! The iterator does not step through many versions of one key: after `max_sequential_skip_in_iterations`
//! versions, the inner cursor seeks.

mod find;
mod refresh;
mod together;

use std::cmp::Ordering;

use base::perf::{self, PerfCounter, PerfLevel};
use base::stats::{HistogramKind, Ticker};
use base::{Comparator, Error, Result, SequenceNumber, ValueType, key};
use table::InternalIterator;

use super::operands::Operands;
use super::prefix::Scope;
use super::sources::Origin;
use base::values::entity::WideColumns;
use merging::MergingIter;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Reverse,
}

/// Where the current entry is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Under the inner cursor.
    Cursor,
    /// In `saved_key` and `saved_value`.
    Saved,
}

/// A cursor over a column family as it was when the iterator was made.
///
/// Initially it has no position: seek before use. An error makes it invalid; [`DbIterator::status`]
/// distinguishes an error from the end.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let mut options = ironstone::Options::default();
/// # options.db.create_if_missing = true;
/// # let db = ironstone::Db::open(dir.path(), &options).unwrap();
/// db.put(b"a", b"1")?;
/// db.put(b"b", b"2")?;
/// let mut it = db.iterator()?;
/// it.seek_to_first();
/// while it.valid() {
///     println!("{:?} = {:?}", it.key(), it.value());
///     it.next();
/// }
/// it.status()?;
/// # Ok::<(), ironstone::Error>(())
/// ```
pub struct DbIterator {
    comparator: Comparator,
    inner: MergingIter,
    sequence: SequenceNumber,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    scope: Scope,
    direction: Direction,
    place: Place,
    valid: bool,
    failure: Result<()>,
    /// The key of the current entry, if the entry is saved; otherwise the user key whose older versions are
    /// skipped.
    saved_key: Vec<u8>,
    saved_value: Vec<u8>,
    /// The type of the current entry; in reverse, of the saved entry.
    kind: ValueType,
    /// Operands of the key being examined: newest first when moving forward, oldest first in reverse.
    operands: Operands,
    origin: Box<Origin>,
    /// The range of the plain value within the stored value, if it is only a part of it.
    value_range: Option<(usize, usize)>,
    /// The number of versions of one key in a row after which the cursor seeks.
    skips_max: u64,
    /// How many internal keys one movement may examine, and how many of them are left.
    looks_max: u64,
    looks_left: u64,
    tailing: bool,
    auto_refresh: bool,
}

impl Drop for DbIterator {
    fn drop(&mut self) {
        self.count(Ticker::NoIteratorDeleted);
    }
}

/// The scope given by the family's current options.
fn scope_of(origin: &Origin) -> Scope {
    let family = origin.family.options();
    let extractor = family.prefix_extractor.as_ref();
    Scope::new(&origin.options, extractor, origin.family.comparator())
}

impl DbIterator {
    pub(crate) fn new(mut origin: Box<Origin>, sequence: SequenceNumber) -> Self {
        let lower = origin.options.iterate_lower_bound.take();
        let upper = origin.options.iterate_upper_bound.take();
        let options = &origin.options;
        let comparator = origin.family.comparator().clone();
        let made = Self {
            sequence,
            lower,
            upper,
            scope: scope_of(&origin),
            skips_max: origin.family.options().cf.max_sequential_skip_in_iterations,
            looks_max: match options.max_skippable_internal_keys {
                0 => u64::MAX,
                n => n.saturating_add(1),
            },
            tailing: options.tailing,
            auto_refresh: options.auto_refresh_iterator_with_snapshot && options.snapshot.is_some(),
            inner: origin.cursors(sequence),
            direction: Direction::Forward,
            place: Place::Cursor,
            valid: false,
            failure: Ok(()),
            saved_key: Vec::new(),
            saved_value: Vec::new(),
            kind: ValueType::Value,
            operands: Operands::new(),
            value_range: None,
            looks_left: 0,
            comparator,
            origin,
        };
        made.count(Ticker::NoIteratorCreated);
        made
    }

    /// Whether the iterator is at an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The error that ended the iteration, if one did.
    pub fn status(&self) -> Result<()> {
        if let Err(e) = &self.failure {
            return Err(e.clone());
        }
        self.inner.status()
    }

    /// The key of the current entry; empty if the iterator is not valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        match self.place {
            _ if !self.valid => &[],
            Place::Cursor => key::user_key(self.inner.key()),
            Place::Saved => &self.saved_key,
        }
    }

    /// The value of the current entry; for a wide-column entity, its default column, or an empty value if
    /// it has none. Empty if the iterator is not valid.
    #[inline]
    pub fn value(&self) -> &[u8] {
        if !self.valid {
            return &[];
        }
        let stored = self.stored();
        match self.value_range {
            None => stored,
            Some((from, to)) => &stored[from..to],
        }
    }

    /// The columns of the current entry; a plain value is the default column. Empty if the iterator is not
    /// valid.
    pub fn columns(&self) -> WideColumns {
        if !self.valid {
            WideColumns::default()
        } else if self.kind == ValueType::WideColumnEntity {
            // The entity was checked when the iterator reached it.
            WideColumns::decode(self.stored()).unwrap_or_default()
        } else {
            WideColumns::plain(self.value())
        }
    }

    /// The current value as it is stored.
    #[inline]
    fn stored(&self) -> &[u8] {
        match self.place {
            Place::Cursor => self.inner.value(),
            Place::Saved => &self.saved_value,
        }
    }

    /// A property of the iterator, by RocksDB's name:
    ///
    /// - `rocksdb.iterator.internal-key`: the user key that the iterator is at, or stopped at.
    /// - `rocksdb.iterator.is-key-pinned`, `rocksdb.iterator.is-value-pinned`: `1` if key or value
    ///   stay in memory as long as the iterator lives, else `0`. See [`pin_data`](crate::ReadOptions::pin_data).
    /// - `rocksdb.iterator.super-version-number`: how many states of memtables and files the family
    ///   had, up to the state that the iterator shows.
    /// - `rocksdb.iterator.write-time`: when the entry was written, as a `u64` in little-endian
    ///   bytes; always `u64::MAX`, unknown.
    ///
    /// Errors: `InvalidArgument` for another name.
    pub fn property(&self, name: &str) -> Result<Vec<u8>> {
        let pinned = |yes: bool| match (self.valid, yes && self.pins()) {
            (false, _) => b"Iterator is not valid.".to_vec(),
            (true, true) => b"1".to_vec(),
            (true, false) => b"0".to_vec(),
        };
        let under_cursor = self.valid && self.place == Place::Cursor;
        Ok(match name {
            "rocksdb.iterator.is-key-pinned" => pinned(under_cursor && self.inner.is_key_pinned()),
            "rocksdb.iterator.is-value-pinned" => {
                let whole = self.value_range.is_none();
                pinned(under_cursor && whole && self.inner.is_value_pinned())
            }
            "rocksdb.iterator.internal-key" if self.valid => self.key().to_vec(),
            "rocksdb.iterator.internal-key" => self.saved_key.clone(),
            "rocksdb.iterator.super-version-number" => {
                let number = self.origin.view_number();
                number.to_string().into_bytes()
            }
            "rocksdb.iterator.write-time" => u64::MAX.to_le_bytes().to_vec(),
            _ => return Err(Error::invalid_argument("Unidentified property.")),
        })
    }

    fn pins(&self) -> bool {
        self.origin.options.pin_data
    }

    /// Moves to the first entry.
    pub fn seek_to_first(&mut self) {
        if let Some(lower) = self.lower.clone() {
            self.seek(&lower);
            return;
        }
        if self.begin(Direction::Forward) {
            self.inner.seek_to_first();
            self.find_next(false);
            self.arrive_at_end();
            self.count_arrival(Ticker::NumberDbSeekFound);
        }
    }

    /// Moves to the last entry.
    pub fn seek_to_last(&mut self) {
        if let Some(upper) = self.upper.clone() {
            self.seek_for_prev(&upper);
            return;
        }
        if self.begin(Direction::Reverse) {
            self.inner.seek_to_last();
            self.find_prev();
            self.arrive_at_end();
            self.count_arrival(Ticker::NumberDbSeekFound);
        }
    }

    /// After a move to the first or last entry: with `prefix_same_as_start`, the iterator stays within its
    /// prefix.
    fn arrive_at_end(&mut self) {
        if self.valid {
            let key = match self.place {
                Place::Cursor => key::user_key(self.inner.key()),
                Place::Saved => &self.saved_key,
            };
            self.scope.start_at(key);
        }
    }

    /// Moves to the first entry whose key is at or after `target`.
    pub fn seek(&mut self, target: &[u8]) {
        let timer = self.timer();
        if !self.begin(Direction::Forward) {
            return;
        }
        let from = match &self.lower {
            Some(lower) if self.comparator.compare(target, lower) == Ordering::Less => lower,
            _ => target,
        };
        let at = key::encode(from, self.sequence, ValueType::FOR_SEEK);
        let began = self.clocked();
        match self.scope.aim(target, from, self.upper.as_deref(), true) {
            None => self.inner.seek(&at),
            Some(prefix) => self.inner.seek_within(&at, prefix, true),
        }
        self.took(PerfCounter::SeekInternalSeekTime, began);
        let began = self.clocked();
        self.find_next(false);
        self.took(PerfCounter::FindNextUserEntryTime, began);
        self.count_arrival(Ticker::NumberDbSeekFound);
        self.timed(timer);
    }

    /// Moves to the last entry whose key is at or before `target`.
    pub fn seek_for_prev(&mut self, target: &[u8]) {
        let timer = self.timer();
        if !self.begin(Direction::Reverse) {
            return;
        }
        let (from, at) = match &self.upper {
            // The position before all versions of the bound.
            Some(upper) if self.comparator.compare(target, upper) != Ordering::Less => {
                let at = key::encode(upper, SequenceNumber::MAX, ValueType::FOR_SEEK);
                (upper.as_slice(), at)
            }
            _ => {
                let at = key::encode(target, SequenceNumber(0), ValueType::Deletion);
                (target, at)
            }
        };
        match self.scope.aim(target, from, None, false) {
            None => self.inner.seek_for_prev(&at),
            Some(prefix) => self.inner.seek_within(&at, prefix, false),
        }
        self.find_prev();
        self.count_arrival(Ticker::NumberDbSeekFound);
        self.timed(timer);
    }

    /// Moves to the next entry. Does nothing if the iterator is not valid.
    pub fn next(&mut self) {
        if !self.valid {
            return;
        }
        self.count(Ticker::NumberDbNext);
        // If a panic of the user's code ends the move, it has no position.
        self.valid = false;
        self.value_range = None;
        self.looks_left = self.looks_max;
        if self.tailing {
            return self.next_of_tailing();
        }
        match self.direction {
            Direction::Forward => {
                if self.place == Place::Cursor {
                    self.save_key();
                    self.inner.next();
                }
            }
            Direction::Reverse => {
                // The inner cursor is before the versions of the saved key, or before all entries.
                self.direction = Direction::Forward;
                let at = key::encode(&self.saved_key, SequenceNumber(0), ValueType::Deletion);
                self.inner.seek(&at);
            }
        }
        self.find_next(true);
        self.count_arrival(Ticker::NumberDbNextFound);
        if self.auto_refresh {
            self.refresh_here();
        }
    }

    /// Moves to the previous entry. Does nothing if the iterator is not valid.
    pub fn prev(&mut self) {
        if !self.valid {
            return;
        }
        self.count(Ticker::NumberDbPrev);
        self.valid = false;
        self.value_range = None;
        self.looks_left = self.looks_max;
        if self.tailing {
            return self.refuse_reverse();
        }
        if self.direction == Direction::Forward {
            // Go before every version of the current key.
            if self.place == Place::Cursor {
                self.save_key();
            }
            self.direction = Direction::Reverse;
            let first = key::encode(&self.saved_key, SequenceNumber::MAX, ValueType::FOR_SEEK);
            self.inner.seek_for_prev(&first);
        }
        self.find_prev();
        self.count_arrival(Ticker::NumberDbPrevFound);
        if self.auto_refresh {
            self.refresh_here();
        }
    }

    /// Prepares for a seek; returns false if the seek is refused.
    fn begin(&mut self, direction: Direction) -> bool {
        self.count(Ticker::NumberDbSeek);
        self.direction = direction;
        self.valid = false;
        self.failure = Ok(());
        self.value_range = None;
        self.looks_left = self.looks_max;
        self.scope.forget();
        if self.tailing {
            if direction == Direction::Reverse {
                self.refuse_reverse();
                return false;
            }
            self.follow();
        } else if self.auto_refresh {
            self.renew_if_changed();
        }
        true
    }

    #[inline]
    fn count(&self, t: Ticker) {
        if let Some(s) = &self.origin.statistics {
            s.add(t, 1);
        }
    }

    /// Counts the entry that a movement found, if any.
    #[inline]
    fn count_arrival(&self, found: Ticker) {
        let statistics = self.origin.statistics.as_ref();
        if !self.valid || (statistics.is_none() && perf::level() == PerfLevel::Disable) {
            return;
        }
        let bytes = (self.key().len() + self.value().len()) as u64;
        perf::count(PerfCounter::IterReadBytes, bytes);
        if let Some(s) = statistics {
            s.add(found, 1);
            s.add(Ticker::IterBytesRead, bytes);
        }
    }

    /// The current time in nanoseconds, if the statistics record times.
    fn timer(&self) -> Option<u64> {
        let origin = &self.origin;
        let wanted = origin.statistics.as_ref()?.wants_times();
        wanted.then(|| origin.clock.monotonic_nanos())
    }

    /// The current time, if this thread counts times.
    fn clocked(&self) -> Option<u64> {
        perf::start(&*self.origin.clock)
    }

    fn took(&self, what: PerfCounter, since: Option<u64>) {
        perf::stop(what, &*self.origin.clock, since);
    }

    /// Counts the time of a seek.
    fn timed(&self, since: Option<u64>) {
        let origin = &self.origin;
        if let (Some(s), Some(since)) = (&origin.statistics, since) {
            let nanos = origin.clock.monotonic_nanos().saturating_sub(since);
            s.record_time(HistogramKind::DbSeek, nanos / 1000);
        }
    }

    /// Saves the user key under the cursor.
    fn save_key(&mut self) {
        self.saved_key.clear();
        self.saved_key
            .extend_from_slice(key::user_key(self.inner.key()));
    }
}

impl std::fmt::Debug for DbIterator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DbIterator(valid: {})", self.valid)
    }
}
