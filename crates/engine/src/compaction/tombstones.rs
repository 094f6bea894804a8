//! Range tombstones in a flush or compaction: what they hide is dropped, and they are dropped themselves
//! once they have nothing left to hide.
//!
//! The tombstones of all inputs are cut into pieces that do not overlap. As for versions of a key,
//! snapshots divide the sequence numbers into strata, and of each stratum only the newest tombstone over a
//! piece is kept. An entry is dropped if a newer tombstone of its own stratum covers it: no reader can see
//! the entry without the tombstone.
//!
//! A tombstone of the oldest stratum is not written again if no file below the output has anything in its
//! range. It still hides entries of the inputs.

use std::sync::Arc;

use base::{Comparator, Result, SequenceNumber, ValueType, key};
use table::InternalIterator;

use crate::read::range_del::{FileTombstones, Span, sweep};
use crate::version::TableFile;

/// Whether a file below the output may have a user key in the range, whose end is exclusive.
pub(crate) type RangeExistsBelow<'a> = &'a dyn Fn(&[u8], &[u8]) -> bool;

/// A tombstone between user keys that is to be written; the end is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tombstone<'a> {
    pub(crate) begin: &'a [u8],
    pub(crate) end: &'a [u8],
    pub(crate) sequence: SequenceNumber,
}

struct Piece {
    begin: Vec<u8>,
    end: Vec<u8>,
    /// The newest tombstone of each stratum that has one, newest first.
    numbers: Vec<u64>,
    /// How many of these numbers are written.
    written: usize,
}

/// The tombstones of the inputs.
pub(crate) struct Tombstones {
    comparator: Comparator,
    pieces: Vec<Piece>,
}

impl Tombstones {
    /// Cuts tombstones into pieces. `snapshots` are in ascending order. `None` if there are no tombstones.
    pub(crate) fn new(
        comparator: &Comparator,
        spans: &[Span],
        snapshots: &[SequenceNumber],
    ) -> Option<Self> {
        let mut pieces: Vec<Piece> = Vec::new();
        let spans: Vec<&Span> = spans.iter().collect();
        sweep(comparator, &spans, |start, end, active| {
            let newest = |limit: u64| active.range(..=limit).next_back().map(|(&n, _)| n);
            let limits = snapshots.iter().map(|s| s.0).chain([SequenceNumber::MAX.0]);
            let mut numbers: Vec<u64> = limits.rev().filter_map(newest).collect();
            numbers.dedup();
            let (begin, end) = (key::user_key(start), key::user_key(end));
            match pieces.last_mut() {
                Some(last) if last.end == begin && last.numbers == numbers => {
                    last.end.clear();
                    last.end.extend_from_slice(end);
                }
                _ => pieces.push(Piece {
                    begin: begin.to_vec(),
                    end: end.to_vec(),
                    written: numbers.len(),
                    numbers,
                }),
            }
            true
        });
        (!pieces.is_empty()).then(|| Self {
            comparator: comparator.clone(),
            pieces,
        })
    }

    /// The tombstones of these files.
    pub(crate) fn of_files<'a>(
        comparator: &Comparator,
        files: impl Iterator<Item = &'a Arc<TableFile>>,
        snapshots: &[SequenceNumber],
    ) -> Result<Option<Self>> {
        let mut spans = Vec::new();
        for file in files.filter(|f| f.tombstones().is_some()) {
            let all = file
                .reader()?
                .range_tombstones()
                .map_err(|e| e.or_file(file.path()))?;
            let meta = &file.meta;
            spans.extend(FileTombstones::of_file(
                comparator,
                &meta.smallest,
                &meta.largest,
                all,
            ));
        }
        Ok(Self::new(comparator, &spans, snapshots))
    }

    /// Marks tombstones that hide nothing below the output as not to be written.
    pub(crate) fn drop_obsolete(
        &mut self,
        snapshots: &[SequenceNumber],
        exists_below: RangeExistsBelow<'_>,
    ) {
        let oldest = snapshots.first().map_or(SequenceNumber::MAX.0, |s| s.0);
        for piece in &mut self.pieces {
            // The tombstone is not newer than any snapshot, so every reader sees it.
            if piece.numbers.last().is_some_and(|&n| n <= oldest)
                && !exists_below(&piece.begin, &piece.end)
            {
                piece.written = piece.numbers.len() - 1;
            }
        }
    }

    /// The tombstones to be written to a table that begins with the user key `from` (inclusive) and ends at
    /// `to` (exclusive); `None` is unbounded.
    pub(crate) fn between<'a>(
        &'a self,
        from: Option<&'a [u8]>,
        to: Option<&'a [u8]>,
    ) -> impl Iterator<Item = Tombstone<'a>> {
        let cmp = &self.comparator;
        let first = from.map_or(0, |from| {
            self.pieces
                .partition_point(|p| cmp.compare(&p.end, from).is_le())
        });
        self.pieces[first..]
            .iter()
            .map(move |p| {
                let begin = from
                    .filter(|from| cmp.compare(from, &p.begin).is_gt())
                    .unwrap_or(&p.begin);
                let end = to
                    .filter(|to| cmp.compare(to, &p.end).is_lt())
                    .unwrap_or(&p.end);
                (begin, end, p)
            })
            .take_while(move |(begin, end, _)| cmp.compare(begin, end).is_lt())
            .flat_map(|(begin, end, p)| {
                p.numbers[..p.written].iter().map(move |&n| Tombstone {
                    begin,
                    end,
                    sequence: SequenceNumber(n),
                })
            })
    }
}

/// Tells for each entry, in ascending order of user keys, whether a tombstone hides it.
pub(crate) struct Hidden {
    tombstones: Arc<Tombstones>,
    /// In ascending order.
    snapshots: Vec<SequenceNumber>,
    /// The first piece that does not end before the last key.
    at: usize,
    count: u64,
}

impl Hidden {
    pub(crate) fn by(tombstones: Arc<Tombstones>, snapshots: &[SequenceNumber]) -> Self {
        Self {
            tombstones,
            snapshots: snapshots.to_vec(),
            at: 0,
            count: 0,
        }
    }

    /// Whether a newer tombstone of the entry's stratum covers it.
    fn hides(&mut self, internal_key: &[u8]) -> bool {
        let Some((user_key, packed)) = key::split(internal_key) else {
            return false;
        };
        let sequence = key::packed_sequence(packed);
        // A reader that sees the entry but not the tombstone is at a snapshot between them.
        let older = self.snapshots.partition_point(|&s| s < sequence);
        let next = self.snapshots.get(older).copied();
        let stratum_end = next.unwrap_or(SequenceNumber::MAX);
        let Tombstones { comparator, pieces } = &*self.tombstones;
        while let Some(p) = pieces.get(self.at) {
            if comparator.compare(&p.end, user_key).is_gt() {
                let over = comparator.compare(&p.begin, user_key).is_le();
                let newer = |&n: &u64| n > sequence.0 && n <= stratum_end.0;
                return over && p.numbers.iter().any(newer);
            }
            self.at += 1;
        }
        false
    }
}

fn is_single_deletion(internal_key: &[u8]) -> bool {
    key::split(internal_key)
        .is_some_and(|(_, packed)| packed as u8 == ValueType::SingleDeletion as u8)
}

/// The input of a flush or compaction without what range tombstones hide.
pub(crate) struct Input {
    iter: Box<dyn InternalIterator>,
    /// `None` if there are no tombstones, the usual case.
    hidden: Option<Hidden>,
    /// Number of entries that were passed and not hidden.
    passed: u64,
    /// The current entry is a single deletion that is hidden.
    at_hidden: bool,
}

impl Input {
    pub(crate) fn new(iter: Box<dyn InternalIterator>, hidden: Option<Hidden>) -> Self {
        Self {
            iter,
            hidden,
            passed: 0,
            at_hidden: false,
        }
    }

    /// Number of entries hidden so far.
    pub(crate) fn num_hidden(&self) -> u64 {
        self.hidden.as_ref().map_or(0, |h| h.count)
    }

    /// Number of entries passed so far.
    pub(crate) fn num_passed(&self) -> u64 {
        self.passed + self.num_hidden()
    }

    #[inline]
    pub(crate) fn valid(&self) -> bool {
        self.iter.valid()
    }

    pub(crate) fn seek_to_first(&mut self) {
        self.iter.seek_to_first();
        self.pass_hidden();
    }

    /// Seeks forward only.
    pub(crate) fn seek(&mut self, target: &[u8]) {
        self.iter.seek(target);
        self.pass_hidden();
    }

    #[inline]
    pub(crate) fn next(&mut self) {
        self.step();
        if self.hidden.is_some() {
            self.pass_hidden();
        }
    }

    /// Moves to the next entry, hidden or not. [`Input::pass_hidden`] then moves on to one that counts.
    #[inline]
    pub(crate) fn step(&mut self) {
        self.passed += 1;
        self.iter.next();
    }

    /// Moves to the first entry from here on that is not hidden or is a single deletion.
    pub(crate) fn pass_hidden(&mut self) {
        self.at_hidden = false;
        if let Some(hidden) = &mut self.hidden {
            while self.iter.valid() && hidden.hides(self.iter.key()) {
                if is_single_deletion(self.iter.key()) {
                    self.at_hidden = true;
                    return;
                }
                hidden.count += 1;
                self.iter.next();
            }
        }
    }

    /// Whether the current entry is hidden. A hidden single deletion is shown all the same, because it must
    /// meet the version that it was written for.
    #[inline]
    pub(crate) fn is_hidden(&self) -> bool {
        self.at_hidden
    }

    #[inline]
    pub(crate) fn key(&self) -> &[u8] {
        self.iter.key()
    }

    #[inline]
    pub(crate) fn value(&self) -> &[u8] {
        self.iter.value()
    }

    pub(crate) fn status(&self) -> Result<()> {
        self.iter.status()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(of: &[u64]) -> Vec<SequenceNumber> {
        of.iter().copied().map(SequenceNumber).collect()
    }

    /// Of "a-e@7 c-g@9".
    fn tombstones(text: &str, snapshots: &[u64]) -> Tombstones {
        let spans: Vec<Span> = text
            .split_whitespace()
            .map(|t| {
                let (keys, n) = t.split_once('@').unwrap();
                let (a, b) = keys.split_once('-').unwrap();
                let n = SequenceNumber(n.parse().unwrap());
                Span::new(a.as_bytes(), b.as_bytes(), n)
            })
            .collect();
        Tombstones::new(&Comparator::bytewise(), &spans, &numbers(snapshots)).unwrap()
    }

    fn written(t: &Tombstones, from: Option<&str>, to: Option<&str>) -> String {
        let text = |b: &[u8]| String::from_utf8_lossy(b).into_owned();
        let shown = |t: Tombstone<'_>| format!("{}-{}@{}", text(t.begin), text(t.end), t.sequence);
        let all = t.between(from.map(str::as_bytes), to.map(str::as_bytes));
        all.map(shown).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn of_each_stratum_the_newest_is_written() {
        for (text, snapshots, expected) in [
            ("a-e@7 c-g@9", &[][..], "a-c@7 c-g@9"),
            ("a-e@7 c-g@9", &[8], "a-c@7 c-e@9 c-e@7 e-g@9"),
            ("a-e@7 c-g@9", &[9], "a-c@7 c-g@9"),
            ("a-e@7 c-g@9", &[7, 8], "a-c@7 c-e@9 c-e@7 e-g@9"),
            ("a-e@1 a-e@2 a-e@3 a-e@4", &[2], "a-e@4 a-e@2"),
            ("a-c@5 c-e@5", &[], "a-e@5"),
            ("a-c@5 d-e@5", &[], "a-c@5 d-e@5"),
        ] {
            let t = tombstones(text, snapshots);
            assert_eq!(written(&t, None, None), expected, "{text} {snapshots:?}");
        }
    }

    #[test]
    fn outputs_get_what_is_between_their_bounds() {
        let t = tombstones("a-e@7 g-k@9 k-z@3", &[]);
        assert_eq!(written(&t, None, Some("c")), "a-c@7");
        assert_eq!(written(&t, Some("c"), Some("h")), "c-e@7 g-h@9");
        assert_eq!(written(&t, Some("h"), Some("k")), "h-k@9");
        assert_eq!(written(&t, Some("k"), Some("l")), "k-l@3");
        assert_eq!(written(&t, Some("e"), Some("g")), "");
        assert_eq!(written(&t, Some("l"), None), "l-z@3");
        assert_eq!(written(&t, Some("z"), None), "");
    }

    #[test]
    fn obsolete_tombstones_hide_but_are_not_written() {
        let cmp = Comparator::bytewise();
        let below = |begin: &[u8], end: &[u8]| {
            cmp.compare(begin, b"d").is_le() && cmp.compare(b"d", end).is_lt()
        };
        for (snapshots, expected) in [
            (&[][..], "a-e@7"),
            // A snapshot is older: what is under the tombstones must stay hidden.
            (&[5], "a-e@7 g-k@9"),
            (&[7], "a-e@7 g-k@9"),
            // The snapshot sees both tombstones.
            (&[9], "a-e@7"),
        ] {
            let mut t = tombstones("a-e@7 g-k@9", snapshots);
            t.drop_obsolete(&numbers(snapshots), &below);
            assert_eq!(written(&t, None, None), expected, "{snapshots:?}");
            let mut hidden = Hidden::by(Arc::new(t), &[]);
            let entry = key::encode(b"h", SequenceNumber(1), ValueType::Value);
            assert!(hidden.hides(&entry));
        }
    }

    #[test]
    fn entries_are_hidden_by_newer_tombstones_of_their_stratum() {
        let t = tombstones("b-e@7 c-g@9 m-p@4", &[8]);
        let mut h = Hidden::by(Arc::new(t), &numbers(&[8]));
        let mut ask = |k: &str, n: u64| {
            let entry = key::encode(k.as_bytes(), SequenceNumber(n), ValueType::Value);
            h.hides(&entry)
        };
        assert!(!ask("a", 1));
        assert!(
            !ask("b", 7),
            "a tombstone hides what is older, not what is as old"
        );
        assert!(ask("b", 6));
        assert!(!ask("c", 9));
        assert!(
            !ask("c", 8),
            "the snapshot at 8 sees it, and not the tombstone"
        );
        assert!(ask("d", 6));
        assert!(!ask("f", 6));
        assert!(!ask("g", 1));
        assert!(ask("o", 3));
        assert!(!ask("p", 3));
    }
}
