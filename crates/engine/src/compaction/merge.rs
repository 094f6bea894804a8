//! Which versions of a key survive a flush or a compaction.
//!
//! The snapshots cut the sequence numbers into strata. Readers can see, of each stratum, only the
//! newest version of a key; the others are dropped. (After a merge operand the older versions of
//! its stratum stay: it needs them.) A deletion is dropped too once nothing older of its key can
//! exist below, and every snapshot is newer than it. What a range tombstone of the same stratum
//! hides is dropped before any other rule sees it.

use std::cmp::Ordering;

use base::{Comparator, Error, Result, SequenceNumber, ValueType, key};
use table::InternalIterator;

use super::tombstones::Hidden;

/// Whether a user key may exist in a level below the output.
pub(crate) type MayExistBelow = Box<dyn FnMut(&[u8]) -> bool>;

/// The rules for one flush or compaction.
pub(crate) struct DropRules {
    comparator: Comparator,
    /// Ascending.
    snapshots: Vec<SequenceNumber>,
    /// `None`: deletions stay.
    may_exist_below: Option<MayExistBelow>,
    /// What the inputs' range tombstones hide; `None` if they have none.
    hidden: Option<Hidden>,
}

impl DropRules {
    /// For a flush: what a deletion hides may be in any table.
    pub(crate) fn keep_deletions(comparator: Comparator, snapshots: Vec<SequenceNumber>) -> Self {
        Self {
            comparator,
            snapshots,
            may_exist_below: None,
            hidden: None,
        }
    }

    /// For a compaction.
    pub(crate) fn drop_deletions(
        comparator: Comparator,
        snapshots: Vec<SequenceNumber>,
        may_exist_below: MayExistBelow,
    ) -> Self {
        Self {
            comparator,
            snapshots,
            may_exist_below: Some(may_exist_below),
            hidden: None,
        }
    }

    /// The same rules, and what range tombstones hide is dropped.
    pub(crate) fn without(mut self, hidden: Option<Hidden>) -> Self {
        self.hidden = hidden;
        self
    }

    /// Whether a range tombstone of the entry's stratum hides it.
    #[inline]
    fn is_hidden(&mut self, user_key: &[u8], seq: SequenceNumber, stratum: usize) -> bool {
        let Some(hidden) = &mut self.hidden else {
            return false;
        };
        let end = self.snapshots.get(stratum);
        hidden.hides(user_key, seq, end.copied().unwrap_or(SequenceNumber::MAX))
    }

    /// The number of snapshots that are older than `seq`: equal numbers are one stratum.
    #[inline]
    fn stratum(&self, seq: SequenceNumber) -> usize {
        if self.snapshots.is_empty() {
            0
        } else {
            self.snapshots.partition_point(|&s| s < seq)
        }
    }
}

/// Walks over the surviving entries of a sorted input.
pub(crate) struct Merge {
    input: Box<dyn InternalIterator>,
    rules: DropRules,
    /// The user key of the last entry that was looked at.
    user_key: Vec<u8>,
    have_key: bool,
    /// The stratum whose older versions are hidden.
    hidden_from: Option<usize>,
}

impl Merge {
    pub(crate) fn new(input: Box<dyn InternalIterator>, rules: DropRules) -> Self {
        Self {
            input,
            rules,
            user_key: Vec::new(),
            have_key: false,
            hidden_from: None,
        }
    }

    /// How many entries range tombstones have hidden so far.
    pub(crate) fn num_hidden(&self) -> u64 {
        self.rules.hidden.as_ref().map_or(0, Hidden::count)
    }

    /// To the first survivor.
    pub(crate) fn start(&mut self) -> Result<()> {
        self.input.seek_to_first();
        self.settle()
    }

    /// To the next survivor.
    pub(crate) fn next(&mut self) -> Result<()> {
        self.input.next();
        self.settle()
    }

    pub(crate) fn valid(&self) -> bool {
        self.input.valid()
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.input.key()
    }

    pub(crate) fn value(&self) -> &[u8] {
        self.input.value()
    }

    /// Goes on until the entry under the cursor survives.
    fn settle(&mut self) -> Result<()> {
        while self.input.valid() {
            if self.survives()? {
                return Ok(());
            }
            self.input.next();
        }
        self.input.status()
    }

    fn survives(&mut self) -> Result<bool> {
        let entry = key::parse(self.input.key())
            .ok_or_else(|| Error::corruption("compaction input: a key of unknown type"))?;
        let same = self.have_key
            && self
                .rules
                .comparator
                .compare(entry.user_key, &self.user_key)
                == Ordering::Equal;
        if !same {
            self.user_key.clear();
            self.user_key.extend_from_slice(entry.user_key);
            self.have_key = true;
            self.hidden_from = None;
        }
        let stratum = self.rules.stratum(entry.sequence);
        if self.hidden_from == Some(stratum)
            || self
                .rules
                .is_hidden(entry.user_key, entry.sequence, stratum)
        {
            return Ok(false);
        }
        if entry.value_type != ValueType::Merge {
            self.hidden_from = Some(stratum);
        }
        let deletion = matches!(
            entry.value_type,
            ValueType::Deletion | ValueType::SingleDeletion
        );
        // Stratum 0: no snapshot is older, so nobody can see what the deletion hides.
        if deletion
            && stratum == 0
            && let Some(may_exist_below) = &mut self.rules.may_exist_below
            && !may_exist_below(entry.user_key)
        {
            return Ok(false);
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memtable::Memtable;
    use base::FileNumber;
    use std::sync::Arc;

    /// Runs `entries` (key, sequence, type) through the rules; returns "key@sequence" of survivors.
    fn survivors(
        entries: &[(&str, u64, ValueType)],
        snapshots: &[u64],
        below: Option<&'static [&'static str]>,
    ) -> Vec<String> {
        let c = Comparator::bytewise();
        let mem = Arc::new(Memtable::new(0, c.clone(), 4096, FileNumber(1)));
        for &(k, seq, t) in entries {
            mem.insert(k.as_bytes(), SequenceNumber(seq), t, b"");
        }
        let snapshots = snapshots.iter().copied().map(SequenceNumber).collect();
        let rules = match below {
            None => DropRules::keep_deletions(c, snapshots),
            Some(keys) => DropRules::drop_deletions(
                c,
                snapshots,
                Box::new(move |k| keys.iter().any(|b| b.as_bytes() == k)),
            ),
        };
        let mut merge = Merge::new(Box::new(mem.iter()), rules);
        let mut out = Vec::new();
        merge.start().unwrap();
        while merge.valid() {
            let p = key::parse(merge.key()).unwrap();
            out.push(format!(
                "{}@{}",
                String::from_utf8_lossy(p.user_key),
                p.sequence
            ));
            merge.next().unwrap();
        }
        out
    }

    use ValueType::{Deletion, Merge as Operand, Value};

    #[test]
    fn without_snapshots_only_the_newest_version_survives() {
        let e = [
            ("a", 1, Value),
            ("a", 3, Value),
            ("b", 2, Value),
            ("b", 4, Deletion),
        ];
        assert_eq!(survivors(&e, &[], None), ["a@3", "b@4"]);
    }

    #[test]
    fn a_snapshot_keeps_the_version_that_it_sees() {
        let e = [
            ("a", 1, Value),
            ("a", 3, Value),
            ("a", 5, Value),
            ("a", 7, Value),
        ];
        assert_eq!(survivors(&e, &[3], None), ["a@7", "a@3"]);
        assert_eq!(survivors(&e, &[1, 5], None), ["a@7", "a@5", "a@1"]);
        assert_eq!(survivors(&e, &[7], None), ["a@7"]);
    }

    #[test]
    fn deletions_go_when_nothing_is_below_and_no_snapshot_is_older() {
        let e = [("a", 1, Value), ("a", 3, Deletion), ("b", 4, Deletion)];
        assert_eq!(survivors(&e, &[], Some(&[])), Vec::<String>::new());
        assert_eq!(survivors(&e, &[], Some(&["a"])), ["a@3"]);
        // A snapshot at 2 still sees a@1, so the deletion above it must stay.
        assert_eq!(survivors(&e, &[2], Some(&[])), ["a@3", "a@1", "b@4"]);
        // A snapshot at 3 sees the deletion only: nothing of a is needed.
        assert_eq!(survivors(&e, &[3], Some(&[])), ["b@4"]);
    }

    #[test]
    fn merge_operands_keep_what_is_under_them() {
        let e = [("a", 1, Value), ("a", 2, Operand), ("a", 3, Operand)];
        assert_eq!(survivors(&e, &[], Some(&[])), ["a@3", "a@2", "a@1"]);
    }
}
