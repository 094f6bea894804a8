//! Range tombstones as reads need them: cut into fragments that do not overlap.
//!
//! A tombstone `[start, end) @ s` hides every version that is older than `s` of the keys in it.
//! Tombstones may overlap in any way. Fragments do not, so one binary search finds what hides a key:
//!
//! ```text
//!   tombstones   a────────────e @ 7         fragments   a───c───e───g
//!                        c────────g @ 9                  7   9,7  9
//! ```
//!
//! A fragment stores the sequence numbers of all tombstones over it, newest first, because a read at a
//! snapshot needs the newest one that is visible at the snapshot. With many nested tombstones this would
//! take quadratic space. Such a set is split into several lists, each of which is searched.
//!
//! Bounds are internal keys. A user key `k` as a bound is the position before every version of
//! `k`; the tombstones of a table are clipped to the table's bounds, which may lie between two
//! versions of a key.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use base::{Comparator, SequenceNumber, ValueType, key};

/// The limit of sequence numbers in one list of fragments: this many for each tombstone, …
const NUMBERS_PER_SPAN: usize = 128;

/// … plus this many.
const NUMBERS_MIN: usize = 4096;

/// A set with at most this many tombstones is not split: it has fewer than [`NUMBERS_MIN`] numbers.
const SPANS_MIN: usize = 32;

/// A tombstone between two internal keys; the end is exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: Vec<u8>,
    pub(crate) end: Vec<u8>,
    pub(crate) sequence: SequenceNumber,
}

impl Span {
    /// The tombstone over the user keys from `begin` (inclusive) to `end` (exclusive).
    pub(crate) fn new(begin: &[u8], end: &[u8], sequence: SequenceNumber) -> Self {
        Self {
            start: before_versions(begin),
            end: before_versions(end),
            sequence,
        }
    }

    /// The part between two positions; `None` if it is empty.
    fn clip(mut self, cmp: &Comparator, from: &[u8], to: &[u8]) -> Option<Self> {
        if key::compare(cmp, &self.start, from).is_lt() {
            self.start.clear();
            self.start.extend_from_slice(from);
        }
        if key::compare(cmp, &self.end, to).is_gt() {
            self.end.clear();
            self.end.extend_from_slice(to);
        }
        key::compare(cmp, &self.start, &self.end)
            .is_lt()
            .then_some(self)
    }
}

/// The position before every version of a user key.
pub(crate) fn before_versions(user_key: &[u8]) -> Vec<u8> {
    key::encode(user_key, SequenceNumber::MAX, ValueType::FOR_SEEK)
}

/// Whether a file's largest key is not an entry but the exclusive end of a tombstone.
pub(crate) fn is_sentinel(largest: &[u8]) -> bool {
    key::split(largest).is_some_and(|(_, packed)| {
        packed == key::pack(SequenceNumber::MAX, ValueType::RangeDeletion)
    })
}

/// The largest key of a file whose last item is a tombstone that ends at `end`.
pub(crate) fn sentinel(end: &[u8]) -> Vec<u8> {
    key::encode(end, SequenceNumber::MAX, ValueType::RangeDeletion)
}

/// Changes the type of a table's smallest key to one that older releases know too, because a new
/// MANIFEST stores this key.
pub(crate) fn make_readable(smallest: &mut [u8]) {
    if let Some((_, packed)) = key::split(smallest)
        && packed as u8 == key::CUT_TOMBSTONE
        && let Some(t) = smallest.len().checked_sub(key::TRAILER_LEN)
    {
        smallest[t] = ValueType::RangeDeletion as u8;
    }
}

/// What is known about a position: between `from` (inclusive) and `to` (exclusive), the newest tombstone
/// has the number `sequence`; 0 if there is none. `None` is unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Window<'a> {
    pub(crate) from: Option<&'a [u8]>,
    pub(crate) to: Option<&'a [u8]>,
    pub(crate) sequence: u64,
}

impl<'a> Window<'a> {
    /// The overlap of both windows, with the newer of their tombstones.
    pub(crate) fn and(self, other: Window<'a>, cmp: &Comparator) -> Self {
        let tighter = |a: Option<&'a [u8]>, b: Option<&'a [u8]>, later: bool| match (a, b) {
            (Some(a), Some(b)) => Some(if key::compare(cmp, a, b).is_gt() == later {
                a
            } else {
                b
            }),
            (a, b) => a.or(b),
        };
        Self {
            from: tighter(self.from, other.from, true),
            to: tighter(self.to, other.to, false),
            sequence: self.sequence.max(other.sequence),
        }
    }
}

#[derive(Debug)]
struct Fragment {
    start: Box<[u8]>,
    end: Box<[u8]>,
    /// Indexes in [`Fragments::numbers`].
    numbers: Range<usize>,
}

/// Sorted fragments that do not overlap.
#[derive(Debug, Default)]
pub(crate) struct Fragments {
    list: Vec<Fragment>,
    /// The sequence numbers of all fragments; those of one fragment are adjacent, newest first.
    numbers: Vec<u64>,
}

impl Fragments {
    /// The window at the internal key `at`; tombstones newer than `limit` are ignored.
    pub(crate) fn window(&self, cmp: &Comparator, at: &[u8], limit: SequenceNumber) -> Window<'_> {
        let i = self
            .list
            .partition_point(|f| key::compare(cmp, &f.end, at).is_le());
        let before = i.checked_sub(1).and_then(|i| self.list.get(i));
        let Some(f) = self.list.get(i) else {
            return Window {
                from: before.map(|f| &*f.end),
                ..Window::default()
            };
        };
        if key::compare(cmp, &f.start, at).is_gt() {
            return Window {
                from: before.map(|f| &*f.end),
                to: Some(&f.start),
                sequence: 0,
            };
        }
        let numbers = &self.numbers[f.numbers.clone()];
        let visible = numbers.partition_point(|&s| s > limit.0);
        Window {
            from: Some(&f.start),
            to: Some(&f.end),
            sequence: numbers.get(visible).copied().unwrap_or(0),
        }
    }

    /// The fragments as tombstones again.
    #[cfg(test)]
    fn spans(&self) -> Vec<Span> {
        let mut out = Vec::new();
        for f in &self.list {
            for &n in &self.numbers[f.numbers.clone()] {
                out.push(Span {
                    start: f.start.to_vec(),
                    end: f.end.to_vec(),
                    sequence: SequenceNumber(n),
                });
            }
        }
        out
    }
}

/// Cuts tombstones into fragments: one list, or several if one would be too large. Empty and
/// inverted tombstones are left out.
pub(crate) fn fragment(cmp: &Comparator, spans: &[Span]) -> Vec<Arc<Fragments>> {
    let mut out = Vec::new();
    let mut spans: Vec<&Span> = spans.iter().collect();
    // By age, so that the halves of a set that is split are of different ages.
    spans.sort_by_key(|s| s.sequence);
    fragment_into(cmp, &spans, &mut out);
    out
}

fn fragment_into(cmp: &Comparator, spans: &[&Span], out: &mut Vec<Arc<Fragments>>) {
    let budget = if spans.len() <= SPANS_MIN {
        usize::MAX
    } else {
        NUMBERS_MIN + NUMBERS_PER_SPAN * spans.len()
    };
    let mut all = Fragments::default();
    let whole = sweep(cmp, spans, |start, end, numbers| {
        let from = all.numbers.len();
        all.numbers.extend(numbers.keys().rev());
        let adjacent = all
            .list
            .last()
            .filter(|f| *f.end == *start && all.numbers[f.numbers.clone()] == all.numbers[from..]);
        if adjacent.is_some() {
            all.numbers.truncate(from);
            if let Some(last) = all.list.last_mut() {
                last.end = end.into();
            }
        } else {
            all.list.push(Fragment {
                start: start.into(),
                end: end.into(),
                numbers: from..all.numbers.len(),
            });
        }
        all.numbers.len() <= budget
    });
    if whole {
        if !all.list.is_empty() {
            all.list.shrink_to_fit();
            all.numbers.shrink_to_fit();
            out.push(Arc::new(all));
        }
        return;
    }
    let (old, new) = spans.split_at(spans.len() / 2);
    fragment_into(cmp, new, out);
    fragment_into(cmp, old, out);
}

/// Calls `emit` in key order for every piece between two adjacent bounds that has a tombstone over it.
/// `emit` gets the sequence numbers of these tombstones, and how often each occurs. Stops and returns false
/// as soon as `emit` returns false.
pub(crate) fn sweep(
    cmp: &Comparator,
    spans: &[&Span],
    mut emit: impl FnMut(&[u8], &[u8], &BTreeMap<u64, usize>) -> bool,
) -> bool {
    let order = |a: &[u8], b: &[u8]| key::compare(cmp, a, b);
    let mut starts: Vec<&Span> = spans
        .iter()
        .copied()
        .filter(|s| order(&s.start, &s.end).is_lt())
        .collect();
    let mut ends = starts.clone();
    starts.sort_by(|a, b| order(&a.start, &b.start));
    ends.sort_by(|a, b| order(&a.end, &b.end));
    let (mut starts, mut ends) = (starts.into_iter().peekable(), ends.into_iter().peekable());
    let mut active: BTreeMap<u64, usize> = BTreeMap::new();
    let mut from: &[u8] = &[];
    // The last bound is always an end, so as long as anything is left, there is an end.
    while let Some(end) = ends.peek() {
        let at: &[u8] = match starts.peek() {
            Some(s) if order(&s.start, &end.end).is_lt() => &s.start,
            _ => &end.end,
        };
        if !active.is_empty() && order(from, at).is_lt() && !emit(from, at, &active) {
            return false;
        }
        while let Some(s) = ends.next_if(|s| order(&s.end, at).is_eq()) {
            if let Some(n) = active.get_mut(&s.sequence.0) {
                *n -= 1;
                if *n == 0 {
                    active.remove(&s.sequence.0);
                }
            }
        }
        while let Some(s) = starts.next_if(|s| order(&s.start, at).is_eq()) {
            *active.entry(s.sequence.0).or_default() += 1;
        }
        from = at;
    }
    true
}

/// The combined window of several lists of fragments.
pub(crate) fn window<'a>(
    lists: &'a [Arc<Fragments>],
    cmp: &Comparator,
    at: &[u8],
    limit: SequenceNumber,
) -> Window<'a> {
    lists.iter().fold(Window::default(), |w, list| {
        w.and(list.window(cmp, at, limit), cmp)
    })
}

/// The sequence number of the newest tombstone over the internal key `at` that is not newer than `limit`; 0
/// if there is none.
pub(crate) fn covering(
    lists: &[Arc<Fragments>],
    cmp: &Comparator,
    at: &[u8],
    limit: SequenceNumber,
) -> u64 {
    let newest = |list: &Arc<Fragments>| list.window(cmp, at, limit).sequence;
    lists.iter().map(newest).max().unwrap_or(0)
}

/// The tombstones of a table, clipped to the bounds that the MANIFEST gives for it: RocksDB's compactions
/// cut a tombstone only by these bounds.
#[derive(Debug)]
pub(crate) struct FileTombstones {
    /// The end of the table: no tombstone reaches beyond it.
    pub(crate) upper: Vec<u8>,
    pub(crate) lists: Vec<Arc<Fragments>>,
}

impl FileTombstones {
    /// Clips the tombstones of a table between its smallest and largest internal key.
    pub(crate) fn new(
        cmp: &Comparator,
        smallest: &[u8],
        largest: &[u8],
        tombstones: Vec<table::RangeTombstone>,
    ) -> Self {
        // A lookup's key sorts before all versions of its user key, so the whole first user key is
        // included.
        let (lower, upper) = (before_versions(key::user_key(smallest)), behind(largest));
        let spans: Vec<Span> = tombstones
            .into_iter()
            .map(|t| Span::new(&t.start, &t.end, t.sequence))
            .filter_map(|s| s.clip(cmp, &lower, &upper))
            .collect();
        Self {
            lists: fragment(cmp, &spans),
            upper,
        }
    }

    /// As [`FileTombstones::new`], but clipped to user keys, and not cut into fragments: the form that
    /// compactions need.
    pub(crate) fn of_file(
        cmp: &Comparator,
        smallest: &[u8],
        largest: &[u8],
        tombstones: Vec<table::RangeTombstone>,
    ) -> Vec<Span> {
        let lower = before_versions(key::user_key(smallest));
        let upper = before_versions(key::user_key(largest));
        tombstones
            .into_iter()
            .map(|t| Span::new(&t.start, &t.end, t.sequence))
            .filter_map(|s| s.clip(cmp, &lower, &upper))
            .collect()
    }
}

/// The first position after a table with this largest key.
fn behind(largest: &[u8]) -> Vec<u8> {
    match key::split(largest) {
        Some((user, packed)) if !is_sentinel(largest) => {
            let mut out = user.to_vec();
            out.extend_from_slice(&packed.saturating_sub(1).to_le_bytes());
            out
        }
        _ => before_versions(key::user_key(largest)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;

    const ALL: SequenceNumber = SequenceNumber::MAX;

    fn span(text: &str) -> Span {
        let (keys, seq) = text.split_once('@').unwrap();
        let (a, b) = keys.split_once('-').unwrap();
        Span::new(
            a.as_bytes(),
            b.as_bytes(),
            SequenceNumber(seq.parse().unwrap()),
        )
    }

    /// "a-e@7 c-g@9" to "a-c:7 c-e:9,7 e-g:9".
    fn fragments(text: &str) -> String {
        let cmp = Comparator::bytewise();
        let spans: Vec<Span> = text.split_whitespace().map(span).collect();
        let lists = fragment(&cmp, &spans);
        let mut out: Vec<String> = Vec::new();
        let mut last = None;
        for s in lists.iter().flat_map(|l| l.spans()) {
            let user = |k: &[u8]| String::from_utf8_lossy(key::user_key(k)).into_owned();
            let place = format!("{}-{}", user(&s.start), user(&s.end));
            if last.as_ref() == Some(&place) {
                *out.last_mut().unwrap() += &format!(",{}", s.sequence);
            } else {
                out.push(format!("{place}:{}", s.sequence));
                last = Some(place);
            }
        }
        out.join(" ")
    }

    #[test]
    fn tombstones_are_cut_where_others_begin_and_end() {
        for (tombstones, expected) in [
            ("", ""),
            ("a-c@5", "a-c:5"),
            ("a-e@7 c-g@9", "a-c:7 c-e:9,7 e-g:9"),
            ("c-g@9 a-e@7", "a-c:7 c-e:9,7 e-g:9"),
            // One inside the other.
            ("a-z@1 f-g@2", "a-f:1 f-g:2,1 g-z:1"),
            // The same one twice, and the same range twice.
            ("a-c@5 a-c@5", "a-c:5"),
            ("a-c@5 a-c@8", "a-c:8,5"),
            // Neighbours are joined if they are of one write.
            ("a-c@5 c-e@5", "a-e:5"),
            ("a-c@5 c-e@6", "a-c:5 c-e:6"),
            ("a-c@5 d-e@5", "a-c:5 d-e:5"),
            // The same start, the same end.
            ("a-c@5 a-e@6 a-d@7", "a-c:7,6,5 c-d:7,6 d-e:6"),
            ("a-e@5 b-e@6", "a-b:5 b-e:6,5"),
            // Nothing is in them.
            ("c-a@5", ""),
            ("a-a@5 b-c@1", "b-c:1"),
        ] {
            assert_eq!(fragments(tombstones), expected, "{tombstones}");
        }
    }

    #[test]
    fn a_window_tells_what_is_over_a_key_and_how_far() {
        let cmp = Comparator::bytewise();
        let spans: Vec<Span> = ["b-e@7", "c-g@9", "m-p@3"].map(span).to_vec();
        let lists = fragment(&cmp, &spans);
        let look = |k: &str, limit: u64| {
            let at = key::encode(k.as_bytes(), SequenceNumber(1), ValueType::Value);
            let w = window(&lists, &cmp, &at, SequenceNumber(limit));
            let user = |k: Option<&[u8]>| {
                k.map_or("-".to_owned(), |k| {
                    String::from_utf8_lossy(key::user_key(k)).into_owned()
                })
            };
            format!("{}..{} {}", user(w.from), user(w.to), w.sequence)
        };
        assert_eq!(look("a", 99), "-..b 0");
        assert_eq!(look("b", 99), "b..c 7");
        assert_eq!(look("c", 99), "c..e 9");
        assert_eq!(look("c", 8), "c..e 7");
        assert_eq!(look("c", 6), "c..e 0");
        assert_eq!(look("f", 8), "e..g 0");
        assert_eq!(look("g", 99), "g..m 0");
        assert_eq!(look("o", 3), "m..p 3");
        assert_eq!(look("p", 99), "p..- 0");
    }

    #[test]
    fn tables_clip_their_tombstones() {
        let cmp = Comparator::bytewise();
        let tombstone = |a: &str, b: &str| table::RangeTombstone {
            start: a.into(),
            end: b.into(),
            sequence: SequenceNumber(5),
        };
        let internal =
            |k: &str, s: u64, t: ValueType| key::encode(k.as_bytes(), SequenceNumber(s), t);
        let over = |f: &FileTombstones, k: &str, s: u64| {
            covering(&f.lists, &cmp, &internal(k, s, ValueType::Value), ALL) > 0
        };
        // The largest key is a real one: it and what is newer of its user key belongs to the table.
        // So does the smallest, with all that is newer.
        let f = FileTombstones::new(
            &cmp,
            &internal("c", 8, ValueType::Value),
            &internal("m", 3, ValueType::Value),
            vec![tombstone("a", "z")],
        );
        assert!(!over(&f, "b", 1) && over(&f, "c", 9) && over(&f, "c", 8) && over(&f, "c", 1));
        assert!(over(&f, "m", 4) && over(&f, "m", 3) && !over(&f, "m", 2) && !over(&f, "n", 1));
        // The largest key is the end of a tombstone, the smallest the start of one.
        let f = FileTombstones::new(
            &cmp,
            &internal("c", 5, ValueType::RangeDeletion),
            &sentinel(b"m"),
            vec![tombstone("a", "z")],
        );
        assert!(over(&f, "c", 9) && over(&f, "lz", 0));
        assert!(!over(&f, "m", 0) && !over(&f, "b", 0));
        let spans = FileTombstones::of_file(
            &cmp,
            &internal("c", 8, ValueType::Value),
            &sentinel(b"m"),
            vec![tombstone("a", "z"), tombstone("a", "b")],
        );
        assert_eq!(spans, [span("c-m@5")]);
    }

    #[test]
    fn nested_tombstones_do_not_grow_without_bound() {
        let cmp = Comparator::bytewise();
        let n = 3000u64;
        let spans: Vec<Span> = (0..n)
            .map(|i| Span::new(b"", &(i + 1).to_be_bytes(), SequenceNumber(i + 1)))
            .collect();
        let lists = fragment(&cmp, &spans);
        let numbers: usize = lists.iter().map(|l| l.numbers.len()).sum();
        assert!(
            numbers <= (n as usize) * (NUMBERS_PER_SPAN + 8),
            "{numbers}"
        );
        for i in [0, 1, 700, n - 1] {
            let at = key::encode(&i.to_be_bytes(), SequenceNumber(0), ValueType::Value);
            assert_eq!(covering(&lists, &cmp, &at, ALL), n);
            let own = SequenceNumber(i + 1);
            assert_eq!(covering(&lists, &cmp, &at, own), i + 1);
            assert_eq!(covering(&lists, &cmp, &at, SequenceNumber(i)), 0);
        }
    }

    #[test]
    fn fragments_say_what_the_tombstones_say() {
        let cmp = Comparator::bytewise();
        for seed in 0..200 {
            let mut rng = Rng::new(seed);
            let n = rng.below(40);
            let spans: Vec<Span> = (0..n)
                .map(|_| {
                    let (a, b) = (rng.below(30) as u8, rng.below(30) as u8);
                    Span::new(&[a], &[b], SequenceNumber(1 + rng.below(20)))
                })
                .collect();
            let lists = fragment(&cmp, &spans);
            for k in 0..31u8 {
                let at = key::encode(&[k], SequenceNumber(rng.below(9)), ValueType::Value);
                let limit = SequenceNumber(rng.below(22));
                let over = |s: &&Span| {
                    key::compare(&cmp, &s.start, &at).is_le()
                        && key::compare(&cmp, &at, &s.end).is_lt()
                        && s.sequence <= limit
                };
                let expected = spans.iter().filter(over).map(|s| s.sequence.0).max();
                let have = covering(&lists, &cmp, &at, limit);
                assert_eq!(have, expected.unwrap_or(0), "seed {seed}, key {k}");
            }
        }
    }
}
