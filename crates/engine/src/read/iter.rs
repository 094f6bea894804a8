//! The iterator that applications use: one entry per living user key.
//!
//! Below it is a cursor over all versions of all keys, newest version first. Forward, the first
//! visible version of a key decides and the others are skipped. In reverse the versions of a key
//! come oldest first, so the newest visible one is known only once the key before it is reached:
//! the entry is saved, and the cursor below stands before it.
//!
//! A key whose newest visible version is a merge operand is merged when it is reached; the result
//! is saved. Forward, the cursor then stands behind what was merged: at the base, or behind it.

use std::cmp::Ordering;
use std::sync::Arc;

use base::stats::{Statistics, Ticker};
use base::{Comparator, Error, Result, SequenceNumber, ValueType, key};
use table::InternalIterator;

use super::cover::{Cover, Lists};
use super::level::LevelIter;
use super::merging::MergingIter;
use super::snapshot::Snapshot;
use super::view::View;
use crate::entity::WideColumns;
use crate::family::Family;
use crate::options::ReadOptions;
use crate::stored::{self, Base, Stored, is_deletion, no_operator, visible_value};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Reverse,
}

/// Where the current entry is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Under the cursor below.
    Cursor,
    /// In `saved_key` and `saved_value`.
    Saved,
}

/// A cursor over a column family as it was when the iterator was made.
///
/// Not positioned at first: seek before use. An error makes it invalid;
/// [`DbIterator::status`] tells an error from the end.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let mut options = ironstone::Options::default();
/// # options.db.create_if_missing = true;
/// # let db = ironstone::Db::open(dir.path(), &options).unwrap();
/// db.put(b"a", b"1")?;
/// db.put(b"b", b"2")?;
/// let mut it = db.iterator(&ironstone::ReadOptions::default());
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
    direction: Direction,
    place: Place,
    valid: bool,
    failure: Result<()>,
    /// Why the iterator shows nothing at all.
    refused: Option<Error>,
    /// The entry, if that is its place; else the user key whose older versions are skipped.
    saved_key: Vec<u8>,
    saved_value: Vec<u8>,
    /// What the current entry, or in reverse the saved one, is.
    kind: ValueType,
    /// Operands of the key that is being looked at: newest first forward, oldest first in reverse.
    operands: Vec<Vec<u8>>,
    /// `None` if the iterator shows nothing.
    family: Option<Arc<Family>>,
    statistics: Option<Arc<Statistics>>,
    /// Keeps what the iterator shows alive.
    _snapshot: Option<Snapshot>,
    /// Where a value that is not plainly stored begins and ends in the current value.
    value_range: Option<(usize, usize)>,
}

/// The cursors of everything in a View, from new to old.
fn children(
    view: &View,
    comparator: &Comparator,
    options: &table::ReadOptions,
) -> Vec<Box<dyn InternalIterator>> {
    let mut out: Vec<Box<dyn InternalIterator>> = Vec::new();
    for mem in std::iter::once(&view.mem).chain(&view.imm) {
        if mem.has_points() {
            out.push(Box::new(mem.iter()));
        }
    }
    for file in view.version.level(0) {
        out.push(Box::new(LevelIter::new(
            comparator.clone(),
            vec![Arc::clone(file)],
            *options,
        )));
    }
    for level in 1..view.version.num_levels() {
        if !view.version.level(level).is_empty() {
            out.push(Box::new(LevelIter::over(
                &view.version,
                comparator,
                level,
                *options,
            )));
        }
    }
    out
}

/// What the range tombstones of a View hide from a reader at `sequence`; `None` if it has none.
/// Goes with [`children`].
fn cover(view: &View, comparator: &Comparator, sequence: SequenceNumber) -> Option<Box<Cover>> {
    let mut out = Cover::new(comparator.clone(), sequence);
    let mut child = 0;
    for mem in std::iter::once(&view.mem).chain(&view.imm) {
        child += usize::from(mem.has_points());
        let lists = mem.tombstone_fragments();
        if !lists.is_empty() {
            out.add(Lists::One(lists), child);
        }
    }
    for file in view.version.level(0) {
        child += 1;
        if let Some(t) = file.tombstones() {
            out.add(Lists::One(t.lists.clone()), child);
        }
    }
    for level in 1..view.version.num_levels() {
        child += usize::from(!view.version.level(level).is_empty());
        let files = view.version.with_tombstones(level);
        if !files.is_empty() {
            out.add(Lists::Level(files), child);
        }
    }
    out.if_any()
}

impl DbIterator {
    pub(crate) fn new(
        view: &View,
        family: &Arc<Family>,
        options: &ReadOptions,
        sequence: SequenceNumber,
        statistics: Option<Arc<Statistics>>,
    ) -> Self {
        let comparator = family.comparator();
        let children = children(view, comparator, &options.for_tables());
        let cover = if options.ignore_range_deletions {
            None
        } else {
            cover(view, comparator, sequence)
        };
        Self {
            sequence,
            lower: options.iterate_lower_bound.clone(),
            upper: options.iterate_upper_bound.clone(),
            family: Some(Arc::clone(family)),
            statistics,
            _snapshot: options.snapshot.clone(),
            ..Self::over(
                comparator,
                MergingIter::new(comparator.clone(), children).covered_by(cover),
            )
        }
    }

    /// Without bounds, at sequence 0.
    fn over(comparator: &Comparator, inner: MergingIter) -> Self {
        Self {
            inner,
            comparator: comparator.clone(),
            sequence: SequenceNumber(0),
            lower: None,
            upper: None,
            direction: Direction::Forward,
            place: Place::Cursor,
            valid: false,
            failure: Ok(()),
            refused: None,
            saved_key: Vec::new(),
            saved_value: Vec::new(),
            kind: ValueType::Value,
            operands: Vec::new(),
            family: None,
            statistics: None,
            _snapshot: None,
            value_range: None,
        }
    }

    /// An iterator that is never valid and whose status is `error`.
    pub(crate) fn refusing(error: Error) -> Self {
        let comparator = Comparator::bytewise();
        let nothing = MergingIter::new(comparator.clone(), Vec::new());
        Self {
            refused: Some(error),
            ..Self::over(&comparator, nothing)
        }
    }

    /// Whether the iterator is at an entry.
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The error that ended the iteration, if one did.
    pub fn status(&self) -> Result<()> {
        if let Some(e) = &self.refused {
            return Err(e.duplicate());
        }
        if let Err(e) = &self.failure {
            return Err(e.duplicate());
        }
        self.inner.status()
    }

    /// The key of the current entry.
    ///
    /// # Panics
    /// If the iterator is not valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        assert!(self.valid, "key() on an iterator that is not valid");
        match self.place {
            Place::Cursor => key::user_key(self.inner.key()),
            Place::Saved => &self.saved_key,
        }
    }

    /// The value of the current entry; of a wide-column entity the default column, or nothing.
    ///
    /// # Panics
    /// If the iterator is not valid.
    #[inline]
    pub fn value(&self) -> &[u8] {
        assert!(self.valid, "value() on an iterator that is not valid");
        let stored = self.stored();
        match self.value_range {
            None => stored,
            Some((from, to)) => &stored[from..to],
        }
    }

    /// The columns of the current entry; a plain value is the default column.
    ///
    /// # Panics
    /// If the iterator is not valid.
    pub fn columns(&self) -> WideColumns {
        assert!(self.valid, "columns() on an iterator that is not valid");
        if self.kind == ValueType::WideColumnEntity {
            // It was looked through when the iterator came to it.
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

    /// To the first entry.
    pub fn seek_to_first(&mut self) {
        if let Some(lower) = self.lower.clone() {
            self.seek(&lower);
        } else {
            self.begin(Direction::Forward);
            self.inner.seek_to_first();
            self.find_next(false);
        }
    }

    /// To the last entry.
    pub fn seek_to_last(&mut self) {
        self.begin(Direction::Reverse);
        match self.upper.clone() {
            // Everything before the first version of the bound.
            Some(upper) => self.inner.seek_for_prev(&key::encode(
                &upper,
                SequenceNumber::MAX,
                ValueType::FOR_SEEK,
            )),
            None => self.inner.seek_to_last(),
        }
        self.find_prev();
    }

    /// To the first entry whose key is at or behind `target`.
    pub fn seek(&mut self, target: &[u8]) {
        self.begin(Direction::Forward);
        let from = match &self.lower {
            Some(lower) if self.comparator.compare(target, lower) == Ordering::Less => lower,
            _ => target,
        };
        self.inner
            .seek(&key::encode(from, self.sequence, ValueType::FOR_SEEK));
        self.find_next(false);
    }

    /// To the last entry whose key is at or before `target`.
    pub fn seek_for_prev(&mut self, target: &[u8]) {
        if self
            .upper
            .as_ref()
            .is_some_and(|u| self.comparator.compare(target, u) != Ordering::Less)
        {
            self.seek_to_last();
            return;
        }
        self.begin(Direction::Reverse);
        self.inner
            .seek_for_prev(&key::encode(target, SequenceNumber(0), ValueType::Deletion));
        self.find_prev();
    }

    /// To the next entry.
    ///
    /// # Panics
    /// If the iterator is not valid.
    pub fn next(&mut self) {
        assert!(self.valid, "next() on an iterator that is not valid");
        self.count(Ticker::NumberDbNext);
        self.value_range = None;
        match self.direction {
            Direction::Forward => {
                if self.place == Place::Cursor {
                    self.save_key();
                    self.inner.next();
                }
            }
            Direction::Reverse => {
                // The cursor stands before the versions of the saved key, or at its end.
                self.direction = Direction::Forward;
                let at = key::encode(&self.saved_key, SequenceNumber(0), ValueType::Deletion);
                self.inner.seek(&at);
            }
        }
        self.find_next(true);
    }

    /// To the previous entry.
    ///
    /// # Panics
    /// If the iterator is not valid.
    pub fn prev(&mut self) {
        assert!(self.valid, "prev() on an iterator that is not valid");
        self.count(Ticker::NumberDbPrev);
        self.value_range = None;
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
    }

    fn begin(&mut self, direction: Direction) {
        self.count(Ticker::NumberDbSeek);
        self.direction = direction;
        self.valid = false;
        self.failure = Ok(());
        self.value_range = None;
    }

    #[inline]
    fn count(&self, t: Ticker) {
        if let Some(s) = &self.statistics {
            s.add(t, 1);
        }
    }

    /// Saves the user key under the cursor.
    fn save_key(&mut self) {
        self.saved_key.clear();
        self.saved_key
            .extend_from_slice(key::user_key(self.inner.key()));
    }

    /// Ends the positioning: the iterator is at an entry, or failed.
    fn settle(&mut self, positioned: Result<()>) {
        self.valid = positioned.is_ok();
        self.failure = positioned;
    }

    /// Forward, from the cursor's position: stops at the first visible version of a living key.
    /// With `skipping`, versions of the saved key are passed over.
    fn find_next(&mut self, mut skipping: bool) {
        self.valid = false;
        self.place = Place::Cursor;
        while self.inner.valid() {
            let Some(entry) = key::parse(self.inner.key()) else {
                self.failure = Err(unknown_type());
                return;
            };
            if let Some(upper) = &self.upper
                && self.comparator.compare(entry.user_key, upper) != Ordering::Less
            {
                return;
            }
            let hidden = entry.sequence > self.sequence
                || (skipping
                    && self.comparator.compare(entry.user_key, &self.saved_key)
                        != Ordering::Greater);
            if !hidden {
                let kind = entry.value_type;
                if is_deletion(kind) {
                    self.saved_key.clear();
                    self.saved_key.extend_from_slice(entry.user_key);
                    skipping = true;
                } else {
                    self.kind = kind;
                    let positioned = match kind {
                        ValueType::Value => Ok(()),
                        ValueType::Merge => self.merge_forward(),
                        _ => self.find_value(),
                    };
                    return self.settle(positioned);
                }
            }
            self.inner.next();
        }
    }

    /// Finds the part of a stored value of a kind of its own that is shown.
    fn find_value(&mut self) -> Result<()> {
        self.value_range = Some(plain_range(self.kind, self.stored())?);
        Ok(())
    }

    /// Merges the operand under the cursor and those behind it onto what they lie on, saves the
    /// result, and leaves the cursor behind them.
    fn merge_forward(&mut self) -> Result<()> {
        self.save_key();
        self.operands.clear();
        self.operands.push(self.inner.value().to_vec());
        let mut base = None;
        loop {
            self.inner.next();
            if !self.inner.valid() {
                break;
            }
            let entry = key::parse(self.inner.key()).ok_or_else(unknown_type)?;
            if self.comparator.compare(entry.user_key, &self.saved_key) != Ordering::Equal {
                break;
            }
            if entry.value_type != ValueType::Merge {
                base = Some(entry.value_type);
                break;
            }
            self.operands.push(self.inner.value().to_vec());
        }
        self.inner.status()?;
        let base = match base {
            Some(kind) => Base::of(kind, self.inner.value())?,
            None => Base::Nothing,
        };
        let operands: Vec<&[u8]> = self.operands.iter().rev().map(|o| &o[..]).collect();
        let stored = self.apply(base, &operands)?;
        self.show(stored)
    }

    /// Applies operands, oldest first, to the base under the saved key.
    fn apply(&self, base: Base<'_>, operands: &[&[u8]]) -> Result<Stored> {
        let family = self.family.as_ref();
        let operator = family.and_then(|f| f.merge_operator.as_deref());
        let operator =
            operator.ok_or_else(|| no_operator(family.map_or("", |f| f.name.as_str())))?;
        let statistics = self.statistics.as_deref();
        stored::apply(operator, statistics, &self.saved_key, base, operands)
    }

    /// Saves a merged value as the one to be shown.
    fn show(&mut self, stored: Stored) -> Result<()> {
        self.place = Place::Saved;
        self.saved_value = stored.bytes;
        if stored.is_entity {
            self.kind = ValueType::WideColumnEntity;
            return self.find_value();
        }
        self.kind = ValueType::Value;
        self.value_range = None;
        Ok(())
    }

    /// In reverse, from the cursor's position: saves the newest visible version of the first
    /// living key found and leaves the cursor before that key.
    fn find_prev(&mut self) {
        self.valid = false;
        self.place = Place::Saved;
        self.kind = ValueType::Deletion; // there is no entry yet
        self.operands.clear();
        while self.inner.valid() {
            let Some(entry) = key::parse(self.inner.key()) else {
                self.failure = Err(unknown_type());
                return;
            };
            let none_yet = is_deletion(self.kind) && self.operands.is_empty();
            if !none_yet
                && self
                    .comparator
                    .compare(entry.user_key, &self.saved_key)
                    .is_ne()
            {
                break; // the saved entry is complete
            }
            if let Some(lower) = &self.lower
                && self.comparator.compare(entry.user_key, lower) == Ordering::Less
            {
                break;
            }
            if entry.sequence <= self.sequence {
                let kind = entry.value_type;
                if none_yet {
                    self.saved_key.clear();
                    self.saved_key.extend_from_slice(entry.user_key);
                }
                if kind == ValueType::Merge {
                    self.operands.push(self.inner.value().to_vec());
                } else {
                    self.kind = kind;
                    self.operands.clear();
                    self.saved_value.clear();
                    if !is_deletion(kind) {
                        self.saved_value.extend_from_slice(self.inner.value());
                    }
                }
            }
            self.inner.prev();
        }
        if self.inner.status().is_err() {
            return;
        }
        let positioned = match self.kind {
            _ if !self.operands.is_empty() => self.merge_backward(),
            ValueType::Value => Ok(()),
            kind if is_deletion(kind) => return,
            _ => self.find_value(),
        };
        self.settle(positioned);
    }

    /// Merges the operands that were collected onto the saved value.
    fn merge_backward(&mut self) -> Result<()> {
        let base = Base::of(self.kind, &self.saved_value)?;
        let operands: Vec<&[u8]> = self.operands.iter().map(|o| &o[..]).collect();
        let stored = self.apply(base, &operands)?;
        self.show(stored)
    }
}

#[cold]
fn unknown_type() -> Error {
    Error::corruption("a key of unknown type")
}

/// Where in `stored` the plain value is.
fn plain_range(kind: ValueType, stored: &[u8]) -> Result<(usize, usize)> {
    let plain = visible_value(kind, stored)?;
    if plain.is_empty() {
        return Ok((0, 0));
    }
    let from = plain.as_ptr() as usize - stored.as_ptr() as usize;
    Ok((from, from + plain.len()))
}
