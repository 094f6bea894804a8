//! The rules by which versions of a key survive a flush or a compaction, and how they are written.
//!
//! Snapshots divide the sequence numbers into stripes. Of each stripe, readers can see only the newest
//! version of a key; the others are dropped. Versions hidden by a range tombstone of the same stripe are
//! removed from the input before any other rule applies.
//!
//! ```text
//!   newest first, one key       result
//!   value    value              the first
//!   deletion value              the deletion; nothing if no version of the key is older, or below
//!   single   value              nothing: they go together
//!   operand  operand value      their merge: a value
//!   operand  operand            the same, if no version of the key is older or below;
//!                               else one operand, if the operator can; else both
//! ```
//!
//! A single deletion is not dropped merely because a newer version hides it. Otherwise its value would
//! remain, and would reappear when a later single deletion is dropped together with that newer version. A
//! compaction filter is called before the rules apply: it may change the newest version of a key.
//!
//! If an operator fails, nothing is lost: the operands and the version under them stay as they are.

use std::cell::Cell;
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use base::merge::{self, MergeOperator};
use base::stats::{Statistics, Ticker};
use base::{Comparator, Error, Result, SequenceNumber, ValueType, key};
use keyspan::stripes::Hidden;
use table::InternalIterator;

use super::filter::Filter;
use super::input::{Input, Watch};
use super::output::OutputContext;
use base::values::entity::WideColumns;
use base::values::{self, Base, is_deletion};
use options::hooks::filter::{FilterDecision, FilterValue};

/// Whether a user key may exist in a level below the output.
pub(crate) type MayExistBelow = Box<dyn FnMut(&[u8]) -> bool>;

/// The rules for one flush or compaction.
pub(crate) struct DropRules {
    comparator: Comparator,
    /// In ascending order.
    snapshots: Vec<SequenceNumber>,
    /// `None` keeps all deletions.
    may_exist_below: Option<MayExistBelow>,
    merge_operator: Option<Arc<dyn MergeOperator>>,
    filter: Option<Filter>,
    /// The entries that the inputs' range tombstones hide; `None` if there are no range tombstones.
    hidden: Option<Hidden>,
    enforce_single_del_contracts: bool,
    statistics: Option<Arc<Statistics>>,
    /// Number of single deletions over a version that they must not delete.
    mismatches: Cell<u64>,
    /// Number of single deletions over no version.
    fallthrough: u64,
}

impl DropRules {
    /// The rules of a flush: the versions that a deletion hides may be in any table.
    pub(crate) fn keep_deletions(comparator: Comparator, snapshots: Vec<SequenceNumber>) -> Self {
        Self {
            comparator,
            snapshots,
            may_exist_below: None,
            merge_operator: None,
            filter: None,
            hidden: None,
            enforce_single_del_contracts: true,
            statistics: None,
            mismatches: Cell::new(0),
            fallthrough: 0,
        }
    }

    /// The rules of a compaction.
    pub(crate) fn drop_deletions(
        comparator: Comparator,
        snapshots: Vec<SequenceNumber>,
        may_exist_below: MayExistBelow,
    ) -> Self {
        Self {
            may_exist_below: Some(may_exist_below),
            ..Self::keep_deletions(comparator, snapshots)
        }
    }

    /// Sets the merge operator of the family and the settings of the job. Without an operator, operands stay as
    /// they are.
    pub(crate) fn family(mut self, ctx: &OutputContext<'_>) -> Self {
        self.merge_operator.clone_from(&ctx.family.merge_operator);
        self.enforce_single_del_contracts = ctx.enforce_single_del_contracts;
        self.statistics.clone_from(&ctx.statistics);
        self
    }

    /// Leaves out the entries that these range tombstones hide.
    pub(crate) fn without(mut self, hidden: Option<Hidden>) -> Self {
        self.hidden = hidden;
        self
    }

    /// Sets the compaction filter.
    pub(crate) fn filter(mut self, filter: Option<Filter>) -> Self {
        self.filter = filter;
        self
    }

    /// The number of snapshots older than `seq`. Versions with equal numbers are in the same stripe.
    #[inline]
    fn stripe(&self, seq: SequenceNumber) -> usize {
        if self.snapshots.is_empty() {
            0
        } else {
            self.snapshots.partition_point(|&s| s < seq)
        }
    }

    /// Whether no level below the output has the key; never known in a flush.
    fn nothing_below(&mut self, user_key: &[u8]) -> bool {
        self.may_exist_below.as_mut().is_some_and(|f| !f(user_key))
    }

    /// Adds to a ticker. Entries dropped by flushes are not counted, as in RocksDB.
    fn count(&self, t: Ticker, n: u64) {
        if self.may_exist_below.is_none() {
            return;
        }
        if t == Ticker::CompactionSingleDelMismatch {
            self.mismatches.set(self.mismatches.get() + n);
        }
        if let Some(s) = &self.statistics {
            s.add(t, n);
        }
    }
}

/// An entry that was created here, or that was saved while the input moved on.
struct Entry {
    internal_key: Vec<u8>,
    value: Vec<u8>,
}

/// Where the current survivor is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    /// At the input's cursor.
    Input,
    /// The first entry of `made`; the input has already moved past it.
    Made,
    End,
}

/// What happens to the entry at the input's cursor.
enum Verdict {
    Survives,
    Dropped,
    /// The input has moved on; `made` has the result, which may be empty.
    Replaced,
}

/// How a run of versions in one stripe ended; the input's cursor is after the run.
enum RunEnd {
    /// At a version of the key in an older stripe.
    OlderStratum,
    /// At a version of the key in the same stripe that is not an operand.
    Base(ValueType),
    /// There are no more versions in the input.
    NoMore,
    /// A filter removed the key.
    Skipped,
}

/// Iterates over the surviving entries of a sorted input.
pub(crate) struct Merge<'a> {
    input: Input<'a>,
    rules: DropRules,
    at: At,
    made: VecDeque<Entry>,
    /// The user key of the last entry that was examined.
    user_key: Vec<u8>,
    have_key: bool,
    /// The stripe in which older versions of the current key are hidden.
    hidden_from: Option<usize>,
}

impl<'a> Merge<'a> {
    pub(crate) fn new(input: Box<dyn InternalIterator>, mut rules: DropRules) -> Self {
        Self {
            input: Input::new(input, rules.hidden.take()),
            rules,
            at: At::End,
            made: VecDeque::new(),
            user_key: Vec::new(),
            have_key: false,
            hidden_from: None,
        }
    }

    /// The same with a call of `watch` now and then.
    pub(crate) fn watched(mut self, watch: Watch<'a>) -> Self {
        self.input.watch(watch);
        self
    }

    /// Counts the current survivor, which was written.
    #[inline]
    pub(crate) fn note_written(&mut self) {
        let bytes = self.key().len() + self.value().len();
        // Others are counted when the input moves on.
        self.input.note_written(bytes, self.at == At::Made);
    }

    /// Number of entries that range tombstones have hidden so far.
    pub(crate) fn num_hidden(&self) -> u64 {
        self.input.num_hidden()
    }

    /// Number of single deletions over a version that they must not delete, and over no version.
    pub(crate) fn single_deletions(&self) -> (u64, u64) {
        (self.rules.mismatches.get(), self.rules.fallthrough)
    }

    /// Moves to the first survivor.
    pub(crate) fn start(&mut self) -> Result<()> {
        self.input.seek_to_first();
        self.settle()
    }

    /// Moves to the next survivor.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<()> {
        match self.at {
            At::Input => self.input.next(),
            At::Made => {
                self.made.pop_front();
                if !self.made.is_empty() {
                    return Ok(());
                }
            }
            At::End => {}
        }
        self.settle()
    }

    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.at != At::End
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        match self.at {
            At::Made => self.made.front().map_or(&[], |e| &e.internal_key),
            _ => self.input.key(),
        }
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        match self.at {
            At::Made => self.made.front().map_or(&[], |e| &e.value),
            _ => self.input.value(),
        }
    }

    /// Moves on until there is a survivor.
    #[inline]
    fn settle(&mut self) -> Result<()> {
        while self.input.valid() {
            match self.judge()? {
                Verdict::Survives => {
                    self.at = At::Input;
                    return Ok(());
                }
                Verdict::Dropped => self.input.next(),
                Verdict::Replaced if self.made.is_empty() => {}
                Verdict::Replaced => {
                    self.at = At::Made;
                    return Ok(());
                }
            }
        }
        self.at = At::End;
        self.input.status()
    }

    fn judge(&mut self) -> Result<Verdict> {
        let entry = parse(self.input.key())?;
        let (sequence, mut kind) = (entry.sequence, entry.value_type);
        let same = self.have_key && self.is_current(entry.user_key);
        let mut changed = None;
        if !same {
            self.user_key.clear();
            self.user_key.extend_from_slice(entry.user_key);
            self.have_key = true;
            self.hidden_from = None;
            if self.rules.filter.is_some() {
                match self.ask_filter(kind)? {
                    FilterDecision::Keep => {}
                    FilterDecision::Remove => {
                        self.rules.count(Ticker::CompactionKeyDropUser, 1);
                        (kind, changed) = (ValueType::Deletion, Some(Vec::new()));
                    }
                    FilterDecision::ChangeValue(value) => {
                        (kind, changed) = (ValueType::Value, Some(value));
                    }
                    FilterDecision::ChangeWideColumnEntity(columns) => {
                        (kind, changed) = (ValueType::WideColumnEntity, Some(columns.encode()?));
                    }
                    FilterDecision::RemoveAndSkipUntil(until) => {
                        self.skip_until(&until);
                        return Ok(Verdict::Replaced);
                    }
                }
            }
        }
        let stripe = self.rules.stripe(sequence);
        if kind == ValueType::SingleDeletion {
            return self.single_deletion(stripe);
        }
        if self.hidden_from == Some(stripe) {
            self.rules.count(Ticker::CompactionKeyDropNewerEntry, 1);
            return Ok(Verdict::Dropped);
        }
        match kind {
            ValueType::Merge => return self.operands(stripe),
            ValueType::Deletion if self.rules.nothing_below(&self.user_key) => {
                return self.bottom_deletion(sequence, stripe);
            }
            _ => self.hidden_from = Some(stripe),
        }
        match changed {
            None => Ok(Verdict::Survives),
            Some(value) => {
                self.make(key::encode(&self.user_key, sequence, kind), value);
                self.input.next();
                Ok(Verdict::Replaced)
            }
        }
    }

    #[inline]
    fn is_current(&self, user_key: &[u8]) -> bool {
        self.rules.comparator.compare(user_key, &self.user_key) == Ordering::Equal
    }

    fn make(&mut self, internal_key: Vec<u8>, value: Vec<u8>) {
        self.made.push_back(Entry {
            internal_key,
            value,
        });
    }

    /// The next version of the current key in the input: its stripe and type.
    fn peek(&self) -> Result<Option<(usize, ValueType)>> {
        if !self.input.valid() {
            self.input.status()?;
            return Ok(None);
        }
        let entry = parse(self.input.key())?;
        Ok(self
            .is_current(entry.user_key)
            .then(|| (self.rules.stripe(entry.sequence), entry.value_type)))
    }

    /// The filter's decision about the newest version of a key.
    fn ask_filter(&self, kind: ValueType) -> Result<FilterDecision> {
        let Some(filter) = &self.rules.filter else {
            return Ok(FilterDecision::Keep);
        };
        let value = self.input.value();
        let decision = match kind {
            ValueType::Value => filter.decide(&self.user_key, FilterValue::Value(value))?,
            ValueType::WideColumnEntity => {
                let columns = WideColumns::decode(value)?;
                filter.decide(&self.user_key, FilterValue::WideColumnEntity(&columns))?
            }
            _ => FilterDecision::Keep,
        };
        Ok(self.checked(decision))
    }

    /// Replaces a decision that would not move forward by `Keep`.
    fn checked(&self, decision: FilterDecision) -> FilterDecision {
        match decision {
            FilterDecision::RemoveAndSkipUntil(until)
                if self.rules.comparator.compare(&until, &self.user_key) != Ordering::Greater =>
            {
                FilterDecision::Keep
            }
            other => other,
        }
    }

    fn skip_until(&mut self, until: &[u8]) {
        self.rules.count(Ticker::CompactionKeyDropUser, 1);
        let to = key::encode(until, SequenceNumber::MAX, ValueType::FOR_SEEK);
        self.input.seek(&to);
        self.have_key = false;
    }

    /// A deletion of a key that no deeper level has: it is needed only if an older version survives.
    fn bottom_deletion(&mut self, sequence: SequenceNumber, stripe: usize) -> Result<Verdict> {
        self.hidden_from = Some(stripe);
        self.input.next();
        // First drop the versions that the deletion hides. In stripe 0 there are no other versions.
        let mut older = self.peek()?;
        while older.is_some_and(|(s, _)| s == stripe) {
            self.rules.count(Ticker::CompactionKeyDropNewerEntry, 1);
            self.input.next();
            older = self.peek()?;
        }
        if older.is_some() {
            let deletion = key::encode(&self.user_key, sequence, ValueType::Deletion);
            self.make(deletion, Vec::new());
        } else {
            self.rules.count(Ticker::CompactionKeyDropObsolete, 1);
        }
        Ok(Verdict::Replaced)
    }

    /// Handles a single deletion. The version under it counts even if a range tombstone hides that version: the
    /// application wrote the single deletion for the version, not for the tombstone between them.
    fn single_deletion(&mut self, stripe: usize) -> Result<Verdict> {
        let internal_key = self.input.key().to_vec();
        let hidden = self.input.is_hidden();
        self.input.step();
        let under = self.peek()?;
        match under {
            Some((s, kind)) if s == stripe => {
                if is_deletion(kind) {
                    // The older deletion decides what is dropped; it is examined next.
                    self.rules.count(Ticker::CompactionKeyDropObsolete, 1);
                    self.input.pass_hidden();
                    return self.mismatch(kind).map(|()| Verdict::Replaced);
                }
                // Both are dropped.
                if kind == ValueType::Merge {
                    self.rules.count(Ticker::CompactionSingleDelMismatch, 1);
                }
                self.rules.count(Ticker::CompactionKeyDropNewerEntry, 1);
                self.rules.count(Ticker::CompactionKeyDropObsolete, 1);
                self.input.next();
            }
            None if stripe == 0 && self.rules.nothing_below(&self.user_key) => {
                self.input.pass_hidden();
                self.rules.count(Ticker::CompactionKeyDropObsolete, 1);
                self.rules.fallthrough += 1;
            }
            _ => {
                self.input.pass_hidden();
                if !hidden {
                    self.rules.fallthrough += 1;
                    self.make(internal_key, Vec::new());
                }
            }
        }
        self.hidden_from = Some(stripe);
        Ok(Verdict::Replaced)
    }

    /// A single deletion meets a deletion instead of the value that it was written for.
    #[cold]
    fn mismatch(&self, kind: ValueType) -> Result<()> {
        self.rules.count(Ticker::CompactionSingleDelMismatch, 1);
        if kind == ValueType::SingleDeletion || !self.rules.enforce_single_del_contracts {
            return Ok(());
        }
        Err(Error::corruption(format!(
            "key {} has a single deletion over a deletion, which breaks what single deletions are \
             for: a key is put once, and then removed by one of them",
            self.user_key.escape_ascii()
        ))
        .hint(
            "use delete and single_delete for different keys; \
             enforce_single_del_contracts = false lets such keys pass",
        ))
    }

    /// Handles the operands of a stripe, beginning with the operand at the cursor.
    fn operands(&mut self, stripe: usize) -> Result<Verdict> {
        let Some(operator) = self.rules.merge_operator.clone() else {
            return Ok(Verdict::Survives); // the versions under it survive too
        };
        let mut run = Vec::new(); // newest first
        let end = self.collect(stripe, &mut run)?;
        let Some(newest) = run.first().map(|e| e.internal_key.clone()) else {
            // No operand is left, so nothing hides the version under them.
            self.have_key = false;
            return Ok(Verdict::Replaced);
        };
        self.hidden_from = Some(stripe);
        let oldest_first: Vec<&[u8]> = run.iter().rev().map(|e| &e.value[..]).collect();
        let base = match end {
            RunEnd::Base(kind) => Some(Base::of(kind, self.input.value()).ok()),
            RunEnd::NoMore if self.rules.nothing_below(&self.user_key) => Some(Some(Base::Nothing)),
            _ => None,
        };
        let Some(base) = base else {
            let few = if operator.allow_single_operand() {
                1
            } else {
                2
            };
            let one = (run.len() >= few)
                .then(|| merge::partial(&*operator, &self.user_key, &oldest_first));
            match one.flatten() {
                Some(operand) => self.make(newest, operand),
                None => self.made.extend(run),
            }
            // As in RocksDB: the filter is called for the version under the operands, even if a snapshot
            // separates them.
            self.have_key = false;
            return Ok(Verdict::Replaced);
        };
        let statistics = self.rules.statistics.as_deref();
        let merged = base
            .map(|base| values::apply(&*operator, statistics, &self.user_key, base, &oldest_first));
        if let Some(Ok(stored)) = merged {
            let sequence = parse(&newest)?.sequence;
            let internal_key = key::encode(&self.user_key, sequence, stored.kind());
            self.make(internal_key, stored.bytes);
            if matches!(end, RunEnd::Base(_)) {
                self.input.next();
            }
        } else {
            self.made.extend(run);
            self.hidden_from = None;
        }
        Ok(Verdict::Replaced)
    }

    /// Takes the operands of a stripe out of the input, after the filter has decided about them.
    fn collect(&mut self, stripe: usize, run: &mut Vec<Entry>) -> Result<RunEnd> {
        loop {
            match self.filtered_operand()? {
                FilterDecision::Keep => run.push(self.copy()),
                FilterDecision::Remove => self.rules.count(Ticker::CompactionKeyDropUser, 1),
                FilterDecision::ChangeValue(value) => run.push(Entry {
                    internal_key: self.input.key().to_vec(),
                    value,
                }),
                FilterDecision::ChangeWideColumnEntity(_) => {
                    return Err(Error::invalid_argument(
                        "a compaction filter replaced a merge operand by an entity",
                    ));
                }
                FilterDecision::RemoveAndSkipUntil(until) => {
                    run.clear();
                    self.skip_until(&until);
                    return Ok(RunEnd::Skipped);
                }
            }
            self.input.next();
            match self.peek()? {
                None => return Ok(RunEnd::NoMore),
                Some((s, _)) if s != stripe => return Ok(RunEnd::OlderStratum),
                Some((_, ValueType::Merge)) => {}
                Some((_, kind)) => return Ok(RunEnd::Base(kind)),
            }
        }
    }

    fn copy(&self) -> Entry {
        Entry {
            internal_key: self.input.key().to_vec(),
            value: self.input.value().to_vec(),
        }
    }

    /// The filter's decision about the operand at the cursor; `Keep` if a snapshot may show the operand.
    fn filtered_operand(&self) -> Result<FilterDecision> {
        let Some(filter) = &self.rules.filter else {
            return Ok(FilterDecision::Keep);
        };
        let sequence = parse(self.input.key())?.sequence;
        if self.rules.snapshots.last().is_some_and(|&s| sequence <= s) {
            return Ok(FilterDecision::Keep);
        }
        let operand = FilterValue::MergeOperand(self.input.value());
        Ok(self.checked(filter.decide(&self.user_key, operand)?))
    }
}

fn parse(internal: &[u8]) -> Result<key::Parsed<'_>> {
    key::parse(internal).ok_or_else(|| Error::corruption("compaction input: a key of unknown type"))
}

#[cfg(test)]
mod tests;
