//! Tombstones in a flush or compaction: what they hide is dropped, and they are dropped themselves
//! once they have nothing left to hide.
//!
//! The tombstones of all inputs are cut into pieces that do not overlap. As for versions of a key,
//! snapshots divide the sequence numbers into stripes, and of each stripe only the newest tombstone over a
//! piece is kept. An entry is dropped if a newer tombstone of its own stripe covers it: no reader can see
//! the entry without the tombstone.
//!
//! A tombstone of the oldest stripe is not written again if no file below the output has anything in its
//! range. It still hides entries of the inputs.

use std::sync::Arc;

use base::{Comparator, SequenceNumber, key};

use crate::span::Span;
use crate::sweep::sweep;

/// Whether a file below the output may have a user key in the range, whose end is exclusive.
pub type RangeExistsBelow<'a> = &'a dyn Fn(&[u8], &[u8]) -> bool;

/// A tombstone between user keys that is to be written; the end is exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tombstone<'a> {
    /// The first user key.
    pub begin: &'a [u8],
    /// The first user key after the range.
    pub end: &'a [u8],
    /// The sequence number of the deletion.
    pub sequence: SequenceNumber,
}

struct Piece {
    begin: Vec<u8>,
    end: Vec<u8>,
    /// The newest tombstone of each stripe that has one, newest first.
    numbers: Vec<u64>,
    /// How many of these numbers are written.
    written: usize,
}

/// The tombstones of the inputs.
pub struct Tombstones {
    comparator: Comparator,
    pieces: Vec<Piece>,
}

impl Tombstones {
    /// Cuts tombstones into pieces. `snapshots` are in ascending order. `None` if there are no tombstones.
    pub fn new(
        comparator: &Comparator,
        spans: &[Span],
        snapshots: &[SequenceNumber],
    ) -> Option<Self> {
        let mut pieces: Vec<Piece> = Vec::new();
        let spans: Vec<&Span> = spans.iter().collect();
        sweep(comparator, &spans, |start, end, active| {
            // From one stripe with tombstones to the next: there may be many stripes without any.
            let mut numbers: Vec<u64> = Vec::new();
            let mut next = active.keys().next_back().copied();
            while let Some(n) = next {
                numbers.push(n);
                let older = snapshots.partition_point(|s| s.0 < n).checked_sub(1);
                let limit = older.and_then(|i| snapshots.get(i));
                next = limit.and_then(|l| active.range(..=l.0).next_back().map(|(&n, _)| n));
            }
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

    /// Marks tombstones that hide nothing below the output as not to be written.
    pub fn drop_obsolete(
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
    pub fn between<'a>(
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

/// Finds out for each entry, in ascending order of user keys, whether a tombstone hides it.
pub struct Hidden {
    tombstones: Arc<Tombstones>,
    /// In ascending order.
    snapshots: Vec<SequenceNumber>,
    /// The first piece that does not end before the last key.
    at: usize,
}

impl Hidden {
    /// The entries that these tombstones hide. `snapshots` are those of [`Tombstones::new`].
    pub fn by(tombstones: Arc<Tombstones>, snapshots: &[SequenceNumber]) -> Self {
        Self {
            tombstones,
            snapshots: snapshots.to_vec(),
            at: 0,
        }
    }

    /// Whether a newer tombstone of the entry's stripe covers it.
    pub fn hides(&mut self, internal_key: &[u8]) -> bool {
        let Some((user_key, packed)) = key::split(internal_key) else {
            return false;
        };
        let sequence = key::packed_sequence(packed);
        // A reader that sees the entry but not the tombstone is at a snapshot between them.
        let older = self.snapshots.partition_point(|&s| s < sequence);
        let next = self.snapshots.get(older).copied();
        let stripe_end = next.unwrap_or(SequenceNumber::MAX);
        let Tombstones { comparator, pieces } = &*self.tombstones;
        while let Some(p) = pieces.get(self.at) {
            if comparator.compare(&p.end, user_key).is_gt() {
                let over = comparator.compare(&p.begin, user_key).is_le();
                let visible = p.numbers.partition_point(|&n| n > stripe_end.0);
                return over && p.numbers.get(visible).is_some_and(|&n| n > sequence.0);
            }
            self.at += 1;
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use base::ValueType;

    use super::*;

    fn numbers(of: &[u64]) -> Vec<SequenceNumber> {
        of.iter().copied().map(SequenceNumber).collect()
    }

    /// Parses "a-e@7 c-g@9".
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
    fn of_each_stripe_the_newest_is_written() {
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
            // A snapshot is older: older entries in the range must stay hidden.
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
    fn entries_are_hidden_by_newer_tombstones_of_their_stripe() {
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
