//! Tombstones as reads need them: cut into fragments that do not overlap.
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
//! take quadratic space. Such a set is split into several lists, each of which is searched. Before them comes a list
//! with the newest number of each fragment alone: a read that sees the whole set searches only that one.

use std::ops::Range;
use std::sync::Arc;

use base::{Comparator, SequenceNumber, key};

use crate::span::Span;
use crate::sweep::sweep;

/// The limit of sequence numbers in one list of fragments: this many for each tombstone, …
const NUMBERS_PER_SPAN: usize = 128;

/// … plus this many.
const NUMBERS_MIN: usize = 4096;

/// A set with at most this many tombstones is not split: it has fewer than [`NUMBERS_MIN`] numbers.
const SPANS_MIN: usize = 32;

/// What is known about a position: between `from` (inclusive) and `to` (exclusive), the newest tombstone
/// has the number `sequence`; 0 if there is none. `None` is unbounded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window<'a> {
    /// An internal key.
    pub from: Option<&'a [u8]>,
    /// An internal key.
    pub to: Option<&'a [u8]>,
    /// The number of the newest tombstone.
    pub sequence: u64,
}

impl<'a> Window<'a> {
    /// The overlap of both windows, with the newer of their tombstones.
    #[must_use]
    pub fn and(self, other: Window<'a>, cmp: &Comparator) -> Self {
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
pub struct Fragments {
    list: Vec<Fragment>,
    /// The sequence numbers of all fragments; those of one fragment are adjacent, newest first.
    numbers: Vec<u64>,
    newest: Option<Newest>,
}

/// A list with the newest number of each fragment alone.
#[derive(Clone, Copy, Debug)]
struct Newest {
    /// How many lists after this one have all numbers.
    lists: usize,
    /// The newest number of all: reads that see it need no other list.
    sequence: u64,
}

impl Fragments {
    /// Adds a fragment with the numbers from `from` on, or extends the last one if that has the same.
    fn add(&mut self, start: &[u8], end: &[u8], from: usize) {
        let numbers = &self.numbers;
        let adjacent =
            |f: &&mut Fragment| *f.end == *start && numbers[f.numbers.clone()] == numbers[from..];
        if let Some(last) = self.list.last_mut().filter(adjacent) {
            last.end = end.into();
            self.numbers.truncate(from);
            return;
        }
        self.list.push(Fragment {
            start: start.into(),
            end: end.into(),
            numbers: from..self.numbers.len(),
        });
    }

    fn shrink_to_fit(mut self) -> Self {
        self.list.shrink_to_fit();
        self.numbers.shrink_to_fit();
        self
    }

    /// The window at the internal key `at`; tombstones newer than `limit` are ignored.
    pub fn window(&self, cmp: &Comparator, at: &[u8], limit: SequenceNumber) -> Window<'_> {
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
pub fn fragment(cmp: &Comparator, spans: &[Span]) -> Vec<Arc<Fragments>> {
    let mut out = Vec::new();
    let mut spans: Vec<&Span> = spans.iter().collect();
    // By age, so that the halves of a set that is split are of different ages.
    spans.sort_by_key(|s| s.sequence);
    fragment_into(cmp, &spans, &mut out);
    if out.len() > 1 {
        out.insert(0, Arc::new(newest(cmp, &spans, out.len())));
    }
    out
}

/// The list that comes before the `lists` of these tombstones, which are sorted by age.
fn newest(cmp: &Comparator, spans: &[&Span], lists: usize) -> Fragments {
    let mut all = Fragments {
        newest: Some(Newest {
            lists,
            sequence: spans.last().map_or(0, |s| s.sequence.0),
        }),
        ..Fragments::default()
    };
    sweep(cmp, spans, |start, end, numbers| {
        let from = all.numbers.len();
        all.numbers.extend(numbers.keys().next_back());
        all.add(start, end, from);
        true
    });
    all.shrink_to_fit()
}

/// The lists that a read at `limit` must search.
fn to_search(
    lists: &[Arc<Fragments>],
    limit: SequenceNumber,
) -> impl Iterator<Item = &Arc<Fragments>> {
    let mut rest = lists;
    std::iter::from_fn(move || {
        loop {
            let (list, after) = rest.split_first()?;
            rest = after;
            match list.newest {
                None => return Some(list),
                Some(newest) if newest.sequence <= limit.0 => {
                    rest = rest.get(newest.lists..).unwrap_or_default();
                    return Some(list);
                }
                Some(_) => {}
            }
        }
    })
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
        all.add(start, end, from);
        all.numbers.len() <= budget
    });
    if whole {
        if !all.list.is_empty() {
            out.push(Arc::new(all.shrink_to_fit()));
        }
        return;
    }
    let (old, new) = spans.split_at(spans.len() / 2);
    fragment_into(cmp, new, out);
    fragment_into(cmp, old, out);
}

/// The combined window of several lists of fragments.
pub fn window<'a>(
    lists: &'a [Arc<Fragments>],
    cmp: &Comparator,
    at: &[u8],
    limit: SequenceNumber,
) -> Window<'a> {
    to_search(lists, limit).fold(Window::default(), |w, list| {
        w.and(list.window(cmp, at, limit), cmp)
    })
}

/// The sequence number of the newest tombstone over the internal key `at` that is not newer than `limit`; 0
/// if there is none.
pub fn covering(
    lists: &[Arc<Fragments>],
    cmp: &Comparator,
    at: &[u8],
    limit: SequenceNumber,
) -> u64 {
    let newest = |list: &Arc<Fragments>| list.window(cmp, at, limit).sequence;
    to_search(lists, limit).map(newest).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::rng::Rng;
    use base::{ValueType, key};

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
            // A tombstone inside another.
            ("a-z@1 f-g@2", "a-f:1 f-g:2,1 g-z:1"),
            // The same tombstone twice, and the same range twice.
            ("a-c@5 a-c@5", "a-c:5"),
            ("a-c@5 a-c@8", "a-c:8,5"),
            // Neighbours with the same sequence number are joined.
            ("a-c@5 c-e@5", "a-e:5"),
            ("a-c@5 c-e@6", "a-c:5 c-e:6"),
            ("a-c@5 d-e@5", "a-c:5 d-e:5"),
            // The same start, the same end.
            ("a-c@5 a-e@6 a-d@7", "a-c:7,6,5 c-d:7,6 d-e:6"),
            ("a-e@5 b-e@6", "a-b:5 b-e:6,5"),
            // Empty and inverted ranges.
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
    fn nested_tombstones_do_not_grow_without_bound() {
        let cmp = Comparator::bytewise();
        let n = 3000u64;
        let spans: Vec<Span> = (0..n)
            .map(|i| Span::new(b"", &(i + 1).to_be_bytes(), SequenceNumber(i + 1)))
            .collect();
        let lists = fragment(&cmp, &spans);
        let searched = |limit| to_search(&lists, SequenceNumber(limit)).count();
        assert_eq!((searched(n), searched(n - 1)), (1, lists.len() - 1));
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
