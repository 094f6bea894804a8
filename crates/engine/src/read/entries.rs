//! The entries of a range, as Rust's iterators give them.

use std::cmp::Ordering;
use std::iter::FusedIterator;
use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use base::{Comparator, Error, Result};

use super::iter::DbIterator;
use crate::options::ReadOptions;

/// A range of keys: where it begins and where it ends.
pub(crate) type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The keys and values of a range, in the order of the keys; [`Iterator::rev`] goes the other way. What is
/// shown is the state in which the iterator was made.
///
/// An error is the last item. [`Db::range`](crate::Db::range) and [`Db::prefix`](crate::Db::prefix) make one;
/// a [`DbIterator`] is the cursor for who moves back and forth, does not want copies, or goes on behind an
/// `Incomplete` of `max_skippable_internal_keys`.
///
/// With a comparator other than the default, a range with an included end is read up to the first key behind it.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let mut options = ironstone::Options::default();
/// # options.db.create_if_missing = true;
/// # let db = ironstone::Db::open(dir.path(), &options)?;
/// for key in ["a/1", "a/2", "b/1"] {
///     db.put(key, "value")?;
/// }
/// for entry in db.range("a/2".."b/2")? {
///     let (key, value) = entry?;
///     println!("{} = {}", key.escape_ascii(), value.escape_ascii());
/// }
/// let newest = db.prefix("a/")?.rev().next().transpose()?;
/// assert_eq!(newest.unwrap().0, b"a/2");
/// # Ok::<(), ironstone::Error>(())
/// ```
#[must_use = "iterators are lazy and do nothing unless consumed"]
pub struct Entries {
    cursor: DbIterator,
    comparator: Comparator,
    /// What is left, but for what is behind `at`.
    left: KeyRange,
    at: At,
}

/// Where the cursor is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Nowhere,
    /// At the entry that was given last from the front.
    Front,
    /// The same from the back.
    Back,
    /// Nothing is left.
    End,
}

impl Entries {
    /// `cursor` has the bounds that [`bounded`] gives it for the same range.
    pub(crate) fn new(cursor: DbIterator, comparator: Comparator, range: KeyRange) -> Self {
        Self {
            cursor,
            comparator,
            left: range,
            at: At::Nowhere,
        }
    }

    /// The cursor goes to the first entry that is left.
    fn go_to_front(&mut self) {
        match self.at {
            At::Front => return self.cursor.next(),
            At::Back => self.left.1 = Bound::Excluded(self.cursor.key().to_vec()),
            At::Nowhere | At::End => {}
        }
        match &self.left.0 {
            Bound::Unbounded => self.cursor.seek_to_first(),
            Bound::Included(key) => self.cursor.seek(key),
            Bound::Excluded(key) => {
                self.cursor.seek(key);
                if self.cursor.valid() && self.comparator.compare(self.cursor.key(), key).is_eq() {
                    self.cursor.next();
                }
            }
        }
    }

    /// The cursor goes to the last entry that is left.
    fn go_to_back(&mut self) {
        match self.at {
            At::Back => return self.cursor.prev(),
            At::Front => self.left.0 = Bound::Excluded(self.cursor.key().to_vec()),
            At::Nowhere | At::End => {}
        }
        match &self.left.1 {
            Bound::Unbounded => self.cursor.seek_to_last(),
            Bound::Included(key) => self.cursor.seek_for_prev(key),
            Bound::Excluded(key) => {
                self.cursor.seek_for_prev(key);
                if self.cursor.valid() && self.comparator.compare(self.cursor.key(), key).is_eq() {
                    self.cursor.prev();
                }
            }
        }
    }

    /// Whether the cursor's key is in what is left.
    fn is_left(&self) -> bool {
        let key = self.cursor.key();
        let order = |bound: &[u8]| self.comparator.compare(key, bound);
        let behind_start = match &self.left.0 {
            Bound::Unbounded => true,
            Bound::Included(start) => order(start) != Ordering::Less,
            Bound::Excluded(start) => order(start) == Ordering::Greater,
        };
        behind_start
            && match &self.left.1 {
                Bound::Unbounded => true,
                Bound::Included(end) => order(end) != Ordering::Greater,
                Bound::Excluded(end) => order(end) == Ordering::Less,
            }
    }

    fn give(&mut self, at: At) -> Option<Result<(Vec<u8>, Vec<u8>)>> {
        if self.cursor.valid() && self.is_left() {
            self.at = at;
            let entry = (self.cursor.key().to_vec(), self.cursor.value().to_vec());
            return Some(Ok(entry));
        }
        self.at = At::End;
        // A cursor that is at an entry behind the end has no error.
        self.cursor.status().err().map(Err)
    }
}

impl Iterator for Entries {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at == At::End {
            return None;
        }
        self.go_to_front();
        self.give(At::Front)
    }
}

impl DoubleEndedIterator for Entries {
    fn next_back(&mut self) -> Option<Self::Item> {
        if self.at == At::End {
            return None;
        }
        self.go_to_back();
        self.give(At::Back)
    }
}

impl FusedIterator for Entries {}

impl std::fmt::Debug for Entries {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Entries({:?})", self.cursor)
    }
}

/// A range of keys in Rust's forms: `"a".."b"`, `"a"..="b"`, `"a"..`, `.."b"`, `..="b"`, `..`, or two [`Bound`]s.
///
/// It is not [`std::ops::RangeBounds`]: with that, `..` does not say of what it is a range.
pub trait KeyBounds {
    /// Where the range begins and where it ends.
    fn into_bounds(self) -> (Bound<Vec<u8>>, Bound<Vec<u8>>);
}

impl<K: AsRef<[u8]>> KeyBounds for (Bound<K>, Bound<K>) {
    fn into_bounds(self) -> KeyRange {
        let owned = |bound: Bound<K>| bound.map(|key| key.as_ref().to_vec());
        (owned(self.0), owned(self.1))
    }
}

impl KeyBounds for RangeFull {
    fn into_bounds(self) -> KeyRange {
        (Bound::Unbounded, Bound::Unbounded)
    }
}

impl<K: AsRef<[u8]>> KeyBounds for Range<K> {
    fn into_bounds(self) -> KeyRange {
        (Bound::Included(self.start), Bound::Excluded(self.end)).into_bounds()
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeInclusive<K> {
    fn into_bounds(self) -> KeyRange {
        let (start, end) = self.into_inner();
        (Bound::Included(start), Bound::Included(end)).into_bounds()
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeFrom<K> {
    fn into_bounds(self) -> KeyRange {
        (Bound::Included(self.start), Bound::Unbounded).into_bounds()
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeTo<K> {
    fn into_bounds(self) -> KeyRange {
        (Bound::Unbounded, Bound::Excluded(self.end)).into_bounds()
    }
}

impl<K: AsRef<[u8]>> KeyBounds for RangeToInclusive<K> {
    fn into_bounds(self) -> KeyRange {
        (Bound::Unbounded, Bound::Included(self.end)).into_bounds()
    }
}

/// The range of the keys that begin with `prefix`.
///
/// Errors: `InvalidArgument` for a comparator that does not keep them together.
pub(crate) fn of_prefix(prefix: &[u8], comparator: &Comparator) -> Result<KeyRange> {
    let first = Bound::Included(prefix.to_vec());
    let behind = match prefix.iter().rposition(|byte| *byte < u8::MAX) {
        None => Bound::Unbounded,
        Some(last) => {
            let mut behind = prefix[..=last].to_vec();
            behind[last] += 1;
            Bound::Excluded(behind)
        }
    };
    if comparator.is_bytewise() {
        return Ok((first, behind));
    }
    if comparator.name() == Comparator::reverse_bytewise().name() {
        return Ok((behind, first));
    }
    Err(Error::invalid_argument(format!(
        "comparator {} may not keep keys with one prefix together: use a range or a cursor",
        comparator.name()
    )))
}

/// The options with bounds that let a cursor show the range, and as little more as bounds can say. The range alone
/// says where it ends, not the prefix of either of its ends.
pub(crate) fn bounded(
    options: &ReadOptions,
    comparator: &Comparator,
    range: &KeyRange,
) -> ReadOptions {
    let mut options = options.clone();
    options.prefix_same_as_start = false;
    if let Bound::Included(key) | Bound::Excluded(key) = &range.0 {
        options.iterate_lower_bound = Some(key.clone());
    }
    options.iterate_upper_bound = match &range.1 {
        Bound::Excluded(key) => Some(key.clone()),
        // The first key behind it.
        Bound::Included(key) if comparator.is_bytewise() => Some([key, &[0][..]].concat()),
        Bound::Included(_) | Bound::Unbounded => None,
    };
    options
}
