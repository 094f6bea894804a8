//! The entries of a range as a Rust iterator.

use std::cmp::Ordering;
use std::iter::FusedIterator;
use std::ops::{Bound, Range, RangeFrom, RangeFull, RangeInclusive, RangeTo, RangeToInclusive};

use base::{Comparator, Error, Result};

use super::iter::DbIterator;
use crate::read::options::ReadOptions;

/// A range of keys: where it begins and where it ends.
pub(crate) type KeyRange = (Bound<Vec<u8>>, Bound<Vec<u8>>);

/// The keys and values of a range in key order; [`Iterator::rev`] returns them in reverse order. The
/// iterator shows the state at the time of its creation.
///
/// An error is the last item. [`Db::range`](crate::Db::range), [`Db::prefix`](crate::Db::prefix) and
/// [`Db::multi_scan`](crate::Db::multi_scan) create an `Entries`. [`Entries::next_ref`] avoids copies on the way
/// forward. Use the cursor [`DbIterator`] instead to move back and forth, or to continue after an `Incomplete` caused by `max_skippable_internal_keys`.
///
/// With a comparator other than the default, a range with an inclusive end is read up to the first key
/// after it.
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
    /// The range that is left. It may still include the entries already returned from the side of `at`.
    left: KeyRange,
    at: At,
}

/// Where the cursor is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum At {
    Nowhere,
    /// Where it goes first if the first entry is asked for.
    Begun,
    /// On its way. If it is found there, a panic of the user's code has ended the move.
    Moving,
    /// At the last entry returned from the front.
    Front,
    /// At the last entry returned from the back.
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

    /// The same for a cursor that [`DbIterator::begin_together`] has positioned.
    pub(crate) fn begun(cursor: DbIterator, comparator: Comparator, range: KeyRange) -> Self {
        Self {
            at: At::Begun,
            ..Self::new(cursor, comparator, range)
        }
    }

    /// The next entry from the front, without a copy. [`Iterator::next`] goes on after it.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let mut options = ironstone::Options::default();
    /// # options.db.create_if_missing = true;
    /// # let db = ironstone::Db::open(dir.path(), &options)?;
    /// db.put("a", "1")?;
    /// let mut entries = db.range("a"..)?;
    /// while let Some(entry) = entries.next_ref() {
    ///     let (key, value) = entry?;
    ///     assert_eq!((key, value), (&b"a"[..], &b"1"[..]));
    /// }
    /// # Ok::<(), ironstone::Error>(())
    /// ```
    pub fn next_ref(&mut self) -> Option<Result<(&[u8], &[u8])>> {
        match self.at {
            At::End => return None,
            At::Moving => return Some(Err(self.broken())),
            _ => self.go_to_front(),
        }
        self.arrive(At::Front)
    }

    /// The error after a panic, which ends the iteration.
    #[cold]
    fn broken(&mut self) -> Error {
        self.at = At::End;
        Error::aborted("a panic ended the iteration").hint("read the range again")
    }

    /// Moves the cursor to the first entry that is left.
    fn go_to_front(&mut self) {
        let at = std::mem::replace(&mut self.at, At::Moving);
        match at {
            At::Front => return self.cursor.next(),
            At::Back => self.left.1 = Bound::Excluded(self.cursor.key().to_vec()),
            At::Nowhere | At::Begun | At::Moving | At::End => {}
        }
        let begun = at == At::Begun;
        match &self.left.0 {
            _ if begun && !matches!(self.left.0, Bound::Excluded(_)) => {}
            Bound::Unbounded => self.cursor.seek_to_first(),
            Bound::Included(key) => self.cursor.seek(key),
            Bound::Excluded(key) => {
                if !begun {
                    self.cursor.seek(key);
                }
                if self.cursor.valid() && self.comparator.compare(self.cursor.key(), key).is_eq() {
                    self.cursor.next();
                }
            }
        }
    }

    /// Moves the cursor to the last entry that is left.
    fn go_to_back(&mut self) {
        let at = std::mem::replace(&mut self.at, At::Moving);
        match at {
            At::Back => return self.cursor.prev(),
            At::Front => self.left.0 = Bound::Excluded(self.cursor.key().to_vec()),
            At::Nowhere | At::Begun | At::Moving | At::End => {}
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

    /// Whether the cursor's key lies in the range that is left.
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

    /// The entry at which the cursor has arrived, if it is left.
    fn arrive(&mut self, at: At) -> Option<Result<(&[u8], &[u8])>> {
        if self.cursor.valid() && self.is_left() {
            self.at = at;
            return Some(Ok((self.cursor.key(), self.cursor.value())));
        }
        self.at = At::End;
        // A valid cursor at an entry beyond the range has no error.
        self.cursor.status().err().map(Err)
    }
}

/// A copy of an entry.
fn owned(entry: Result<(&[u8], &[u8])>) -> Result<(Vec<u8>, Vec<u8>)> {
    entry.map(|(key, value)| (key.to_vec(), value.to_vec()))
}

impl Iterator for Entries {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next_ref().map(owned)
    }
}

impl DoubleEndedIterator for Entries {
    fn next_back(&mut self) -> Option<Self::Item> {
        match self.at {
            At::End => return None,
            At::Moving => return Some(Err(self.broken())),
            _ => self.go_to_back(),
        }
        self.arrive(At::Back).map(owned)
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
/// This is not [`std::ops::RangeBounds`], because with that trait the key type of `..` would be unknown.
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
/// Errors: `InvalidArgument` for a comparator that may not keep these keys together.
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

/// The read options with bounds that confine a cursor to the range as closely as bounds can. Only the range
/// determines where the cursor ends, never the prefix of one of its bounds.
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
        // The first possible key after it.
        Bound::Included(key) if comparator.is_bytewise() => Some([key, &[0][..]].concat()),
        Bound::Included(_) | Bound::Unbounded => None,
    };
    options
}
