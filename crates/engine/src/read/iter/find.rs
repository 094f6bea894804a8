//! Moves the iterator from the inner cursor's position to the next entry, in either direction.

use std::cmp::Ordering;

use base::perf::{self, PerfCounter};
use base::stats::Ticker;
use base::{Error, ErrorKind, Result, SequenceNumber, ValueType, key};
use table::InternalIterator;

use super::{DbIterator, Place};
use base::values::{self, Base, Stored, is_deletion, no_operator, visible_value};

impl DbIterator {
    /// Ends a movement: the iterator is at an entry, or has failed.
    fn settle(&mut self, positioned: Result<()>) {
        self.valid = positioned.is_ok();
        self.failure = positioned;
    }

    /// Moves forward from the cursor's position to the first visible version of a living key. With
    /// `skipping`, versions of the saved key are skipped.
    pub(super) fn find_next(&mut self, mut skipping: bool) {
        self.valid = false;
        self.place = Place::Cursor;
        // Versions of the saved key skipped in a row.
        let mut skipped = 0;
        loop {
            if !self.inner.valid() {
                if self.scope.is_open() && self.inner.complete() {
                    continue;
                }
                return;
            }
            let Some(entry) = key::parse(self.inner.key()) else {
                return self.settle(Err(unknown_type()));
            };
            if self.scope.is_left_by(entry.user_key) {
                if self.leave_prefix() {
                    continue;
                }
                return;
            }
            if let Some(upper) = &self.upper
                && self.comparator.compare(entry.user_key, upper) != Ordering::Less
            {
                return;
            }
            if self.looks_left == 0 {
                return self.settle(Err(too_many()));
            }
            self.looks_left -= 1;
            let passed = skipping
                && self.comparator.compare(entry.user_key, &self.saved_key) != Ordering::Greater;
            let too_new = !passed && entry.sequence > self.sequence;
            if passed || too_new {
                if !passed && (skipped == 0 || entry.user_key != self.saved_key) {
                    self.saved_key.clear();
                    self.saved_key.extend_from_slice(entry.user_key);
                    skipping = false;
                    skipped = 0;
                }
                skipped += 1;
                if skipped == self.skips_max.saturating_add(1) {
                    self.jump(passed);
                    continue;
                }
            } else if is_deletion(entry.value_type) {
                self.saved_key.clear();
                self.saved_key.extend_from_slice(entry.user_key);
                perf::count(PerfCounter::InternalDeleteSkippedCount, 1);
                skipping = true;
                skipped = 0;
            } else {
                self.kind = entry.value_type;
                let positioned = match self.kind {
                    ValueType::Value => Ok(()),
                    ValueType::Merge => self.merge_forward(),
                    _ => self.find_value(),
                };
                return self.settle(positioned);
            }
            self.count(Ticker::NumberIterSkip);
            perf::count(
                if too_new {
                    PerfCounter::InternalRecentSkippedCount
                } else {
                    PerfCounter::InternalKeySkippedCount
                },
                1,
            );
            self.inner.next();
        }
    }

    /// The cursor has left the prefix of the last seek. Returns false if the iteration ends there;
    /// otherwise moves the cursor to where it would be without the prefix.
    #[cold]
    fn leave_prefix(&mut self) -> bool {
        if self.scope.ends() {
            return false;
        }
        self.inner.complete();
        self.scope.forget();
        true
    }

    /// Seeks past the remaining versions of the saved key: past all of them if the key is `passed`,
    /// otherwise past those that are too new.
    #[cold]
    fn jump(&mut self, passed: bool) {
        self.count(Ticker::NumberOfReseeksInIteration);
        let at = if passed {
            key::encode(&self.saved_key, SequenceNumber(0), ValueType::Deletion)
        } else {
            key::encode(&self.saved_key, self.sequence, ValueType::FOR_SEEK)
        };
        self.inner.seek(&at);
    }

    /// Finds the visible part of a stored value that is not a plain value.
    fn find_value(&mut self) -> Result<()> {
        self.value_range = Some(plain_range(self.kind, self.stored())?);
        Ok(())
    }

    /// Merges the operand under the cursor and the older operands with their base, saves the result, and leaves
    /// the cursor after the merged operands: at their base, or after it.
    fn merge_forward(&mut self) -> Result<()> {
        self.save_key();
        self.operands.clear();
        self.operands.push(self.inner.value());
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
            self.operands.push(self.inner.value());
        }
        self.inner.status()?;
        let base = match base {
            Some(kind) => Base::of(kind, self.inner.value())?,
            None => Base::Nothing,
        };
        let operands: Vec<&[u8]> = self.operands.iter().rev().collect();
        let stored = self.apply(base, &operands)?;
        self.show(stored)
    }

    /// Applies operands, oldest first, to the base under the saved key.
    fn apply(&self, base: Base<'_>, operands: &[&[u8]]) -> Result<Stored> {
        let family = &self.origin.family;
        let operator = family.merge_operator.as_deref();
        let operator = operator.ok_or_else(|| no_operator(&family.name))?;
        let statistics = self.origin.statistics.as_deref();
        perf::count(PerfCounter::InternalMergeCount, operands.len() as u64);
        let began = self.clocked();
        let merged = values::apply(operator, statistics, &self.saved_key, base, operands);
        self.took(PerfCounter::MergeOperatorTimeNanos, began);
        merged
    }

    /// Saves a merged value as the value of the current entry.
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

    /// Moves in reverse from the cursor's position: saves the newest visible version of the first living
    /// key found, and leaves the cursor before that key.
    pub(super) fn find_prev(&mut self) {
        self.valid = false;
        self.place = Place::Saved;
        self.kind = ValueType::Deletion; // there is no entry yet
        self.operands.clear();
        // Visible versions of the saved key in a row.
        let mut versions = 0;
        loop {
            let none_yet = is_deletion(self.kind) && self.operands.is_empty();
            if none_yet && self.looks_left == 0 {
                return self.settle(Err(too_many()));
            }
            if !self.inner.valid() {
                if none_yet && self.scope.is_open() && self.inner.complete() {
                    continue;
                }
                break;
            }
            let Some(entry) = key::parse(self.inner.key()) else {
                return self.settle(Err(unknown_type()));
            };
            let same_key = versions > 0
                && self
                    .comparator
                    .compare(entry.user_key, &self.saved_key)
                    .is_eq();
            if !none_yet && !same_key {
                break; // the saved entry is complete
            }
            if self.scope.is_left_by(entry.user_key) {
                if self.leave_prefix() {
                    continue;
                }
                break;
            }
            if let Some(lower) = &self.lower
                && self.comparator.compare(entry.user_key, lower) == Ordering::Less
            {
                break;
            }
            if self.looks_left == 0 {
                return self.settle(Err(too_many()));
            }
            self.looks_left -= 1;
            if entry.sequence <= self.sequence {
                if !same_key {
                    self.saved_key.clear();
                    self.saved_key.extend_from_slice(entry.user_key);
                    versions = 0;
                }
                versions += 1;
                let kind = entry.value_type;
                if versions > self.skips_max {
                    match self.newest_version() {
                        Ok(false) => continue,
                        found => return self.settle(found.map(drop)),
                    }
                }
                self.collect(kind);
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

    /// In reverse: saves the version under the cursor, of type `kind`, which is newer than the saved versions.
    #[inline]
    fn collect(&mut self, kind: ValueType) {
        if kind == ValueType::Merge {
            self.operands.push(self.inner.value());
            return;
        }
        self.kind = kind;
        self.operands.clear();
        self.saved_value.clear();
        if !is_deletion(kind) {
            self.saved_value.extend_from_slice(self.inner.value());
        }
    }

    /// In reverse, among many versions of the saved key: finds the newest visible version with a seek, saves it,
    /// and leaves the cursor before the key. Returns false if the key is deleted.
    #[cold]
    fn newest_version(&mut self) -> Result<bool> {
        self.count(Ticker::NumberOfReseeksInIteration);
        let newest = key::encode(&self.saved_key, self.sequence, ValueType::FOR_SEEK);
        self.inner.seek(&newest);
        self.kind = ValueType::Deletion;
        self.operands.clear();
        if self.inner.valid() {
            let entry = key::parse(self.inner.key()).ok_or_else(unknown_type)?;
            if self
                .comparator
                .compare(entry.user_key, &self.saved_key)
                .is_eq()
            {
                self.kind = entry.value_type;
            }
        }
        match self.kind {
            ValueType::Merge => self.merge_forward()?,
            kind if is_deletion(kind) => {}
            kind => {
                self.saved_value.clear();
                self.saved_value.extend_from_slice(self.inner.value());
                if kind != ValueType::Value {
                    self.find_value()?;
                }
            }
        }
        self.inner.status()?;
        let before = key::encode(&self.saved_key, SequenceNumber::MAX, ValueType::FOR_SEEK);
        self.inner.seek_for_prev(&before);
        Ok(!is_deletion(self.kind))
    }

    /// Merges the collected operands with the saved value.
    fn merge_backward(&mut self) -> Result<()> {
        let base = Base::of(self.kind, &self.saved_value)?;
        let operands: Vec<&[u8]> = self.operands.iter().collect();
        let stored = self.apply(base, &operands)?;
        self.show(stored)
    }
}

#[cold]
fn unknown_type() -> Error {
    Error::corruption("a key of unknown type")
}

#[cold]
fn too_many() -> Error {
    Error::new(ErrorKind::Incomplete, "Too many internal keys skipped.")
        .hint("seek on from where it stopped, or raise max_skippable_internal_keys")
}

/// The range of the plain value within `stored`.
fn plain_range(kind: ValueType, stored: &[u8]) -> Result<(usize, usize)> {
    let plain = visible_value(kind, stored)?;
    if plain.is_empty() {
        return Ok((0, 0));
    }
    let from = plain.as_ptr() as usize - stored.as_ptr() as usize;
    Ok((from, from + plain.len()))
}
