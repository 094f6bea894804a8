//! The row cache: what gets have found in tables, by table and key.
//!
//! ```text
//!   row:  u8 cut | entry…      entry:  u32 key length | u32 value length | internal key | value
//! ```
//!
//! A row has all entries of one user key in one table, newest first, as a get visited them. It is *cut* if the get did not
//! want the older ones; a get that does reads them from the table. A hit reads neither the filter nor the index nor a block. A
//! table never changes, so a row is right as long as the table is open; a get that may not see the newest entry of the table
//! does not use rows.
//!
//! Rows are found by the 64-bit hash of their key in a cache like that of blocks. Two keys with one hash share a place: the row
//! has the key, and a get of the other one does not find it.
#![deny(clippy::indexing_slicing)]

use std::fmt;
use std::sync::Arc;

use base::coding::u32_at;
use base::{Comparator, Result, key};

use crate::block::{Block, Target, Value};
use crate::cache::{BlockCache, CacheKey, Pinned};
use crate::xxph3;

/// A row has at most this part of the capacity, so that it does not evict all others.
const ROW_PART: usize = 8;
/// Larger rows are not kept.
const ROW_BYTES_MAX: usize = 1 << 30;
/// Bytes before each entry.
const ENTRY_HEAD: usize = 8;

/// A cache of rows, shared by tables and databases: what gets have found in tables, without the blocks around it.
///
/// It is worth its memory where gets ask for few of the keys of many blocks: a row takes its own bytes and about 110 more,
/// the block cache takes the whole block. A database uses it if it is in `Env::row_cache`.
pub struct RowCache {
    rows: BlockCache,
}

impl RowCache {
    /// An empty cache that will hold at most `capacity` bytes.
    pub fn new(capacity: usize) -> Self {
        Self {
            rows: BlockCache::new(capacity),
        }
    }

    /// Capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.rows.capacity()
    }

    /// Changes the capacity, and evicts rows that no longer fit.
    pub fn set_capacity(&self, bytes: usize) {
        self.rows.set_capacity(bytes);
    }

    /// Bytes of the rows in the cache.
    pub fn usage(&self) -> usize {
        self.rows.usage()
    }

    /// Bytes of the rows that are in use at the moment.
    pub fn pinned_usage(&self) -> usize {
        self.rows.pinned_usage()
    }

    /// Number of rows in the cache.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True if there is no row.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The rows of a table that is being opened.
    #[doc(hidden)]
    pub fn of_table(self: &Arc<Self>) -> Rows {
        Rows {
            cache: Arc::clone(self),
            id: self.rows.new_id(),
        }
    }
}

impl fmt::Debug for RowCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RowCache")
            .field("capacity", &self.capacity())
            .field("usage", &self.usage())
            .field("rows", &self.len())
            .finish()
    }
}

/// The rows of one table.
#[derive(Clone, Debug)]
pub struct Rows {
    cache: Arc<RowCache>,
    id: u64,
}

/// Passes an entry on, and returns whether older ones are wanted.
pub(crate) type Visit<'a> = dyn FnMut(&[u8], Value<'_>) -> bool + 'a;

/// How a row served a get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Replayed {
    /// The get has what it wants.
    Done,
    /// There is no row of this key.
    NoRow,
    /// The get wants more than these entries, and the row is cut.
    Wants(usize),
}

impl Rows {
    fn key(&self, user_key: &[u8]) -> CacheKey {
        CacheKey {
            id: self.id,
            offset: xxph3::hash64(user_key),
        }
    }

    /// Passes the entries of a row on to `visit`, until it returns false.
    pub(crate) fn replay(
        &self,
        comparator: &Comparator,
        target: &Target<'_>,
        visit: &mut Visit<'_>,
    ) -> Replayed {
        let Some(row) = self.cache.rows.get(self.key(target.user)) else {
            return Replayed::NoRow;
        };
        replay(&row, comparator, target, visit)
    }

    /// A row to fill, which does not become too large for the cache.
    pub(crate) fn new_row(&self) -> NewRow {
        NewRow {
            entries: Vec::new(),
            cut: false,
            room: (self.cache.capacity() / ROW_PART).min(ROW_BYTES_MAX),
        }
    }

    /// Puts a row into the cache, instead of the one that it `replaces`. Errors: it has 4 GiB or more.
    pub(crate) fn insert(&self, user_key: &[u8], row: &NewRow, replaces: bool) -> Result<()> {
        if row.entries.is_empty() {
            return Ok(());
        }
        let key = self.key(user_key);
        if replaces {
            self.cache.rows.erase(key);
        }
        let row = Block::raw(&[u8::from(row.cut)], &row.entries)?;
        self.cache.rows.insert(key, &row);
        Ok(())
    }
}

fn replay(
    row: &Pinned<'_>,
    comparator: &Comparator,
    target: &Target<'_>,
    visit: &mut Visit<'_>,
) -> Replayed {
    let (head, mut entries) = row.raw_parts();
    let mut visited = 0;
    while let Some((internal_key, value, rest)) = split_entry(entries) {
        let user_key = key::user_key(internal_key);
        if visited == 0 && !comparator.compare(user_key, target.user).is_eq() {
            return Replayed::NoRow;
        }
        if !visit(internal_key, Value::new(row, value)) {
            return Replayed::Done;
        }
        visited += 1;
        entries = rest;
    }
    if head == [1] {
        Replayed::Wants(visited)
    } else {
        Replayed::Done
    }
}

/// The first entry: its internal key and its value, and the other entries.
fn split_entry(entries: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let key_len = u32_at(entries, 0)? as usize;
    let value_len = u32_at(entries, 4)? as usize;
    let (internal_key, rest) = entries.get(ENTRY_HEAD..)?.split_at_checked(key_len)?;
    let (value, rest) = rest.split_at_checked(value_len)?;
    Some((internal_key, value, rest))
}

/// Does `get`, and with `makes_row` puts what it has found into the row cache. `visit` has had the first `known` entries
/// already. Returns what the get lacks, and how many of the entries that it will find then are known.
pub(crate) fn fill_row<M>(
    rows: &Rows,
    makes_row: bool,
    (target, known): (&Target<'_>, usize),
    visit: &mut Visit<'_>,
    get: impl FnOnce(&mut Visit<'_>) -> Result<Option<M>>,
) -> Result<(Option<M>, usize)> {
    let mut row = makes_row.then(|| rows.new_row());
    let mut passed = 0;
    let missing = get(&mut |key, value| {
        passed += 1;
        let more = passed <= known || visit(key, value);
        if let Some(row) = &mut row {
            row.push(key, value.bytes(), more);
        }
        more
    })?;
    // What was found before a block is lacking is not all; the get goes on later.
    if let (Some(row), None) = (row, &missing) {
        rows.insert(target.user, &row, known > 0)?;
    }
    Ok((missing, known.saturating_sub(passed)))
}

/// A row that is being filled.
#[derive(Debug)]
pub(crate) struct NewRow {
    entries: Vec<u8>,
    cut: bool,
    /// How many more bytes it may have. 0 once it was too small for an entry: the row is given up then.
    room: usize,
}

impl NewRow {
    /// Adds an entry that a get has visited; `more` says whether it wants older ones.
    pub(crate) fn push(&mut self, internal_key: &[u8], value: &[u8], more: bool) {
        let len = ENTRY_HEAD + internal_key.len() + value.len();
        let lens = (
            u32::try_from(internal_key.len()),
            u32::try_from(value.len()),
        );
        let (Ok(key_len), Ok(value_len), true) = (lens.0, lens.1, len <= self.room) else {
            *self = Self {
                entries: Vec::new(),
                cut: false,
                room: 0,
            };
            return;
        };
        self.room -= len;
        self.entries.reserve(len);
        self.entries.extend_from_slice(&key_len.to_le_bytes());
        self.entries.extend_from_slice(&value_len.to_le_bytes());
        self.entries.extend_from_slice(internal_key);
        self.entries.extend_from_slice(value);
        self.cut = !more;
    }
}

#[cfg(test)]
mod tests {
    use base::{SequenceNumber, ValueType};

    use super::*;

    fn ikey(user: &[u8], sequence: u64) -> Vec<u8> {
        key::encode(user, SequenceNumber(sequence), ValueType::Value)
    }

    /// What a get that takes `wants` entries is shown, and how it ends.
    fn replayed(rows: &Rows, user: &[u8], wants: usize) -> (Vec<Vec<u8>>, Replayed) {
        let seek = ikey(user, 1 << 40);
        let target = Target::new(&seek).unwrap();
        let mut seen = Vec::new();
        let end = rows.replay(&Comparator::bytewise(), &target, &mut |_, value| {
            seen.push(value.bytes().to_vec());
            seen.len() < wants
        });
        (seen, end)
    }

    fn row(rows: &Rows, entries: &[(Vec<u8>, &[u8])], cut: bool) -> NewRow {
        let mut row = rows.new_row();
        for (i, (key, value)) in entries.iter().enumerate() {
            row.push(key, value, !(cut && i + 1 == entries.len()));
        }
        row
    }

    #[test]
    fn a_row_serves_as_many_entries_as_it_has() {
        let rows = Arc::new(RowCache::new(1 << 20)).of_table();
        let two = [(ikey(b"k", 9), &b"new"[..]), (ikey(b"k", 3), b"")];
        rows.insert(b"k", &row(&rows, &two, true), false).unwrap();
        let new = || vec![b"new".to_vec()];
        assert_eq!(replayed(&rows, b"k", 1), (new(), Replayed::Done));
        let both = || vec![b"new".to_vec(), Vec::new()];
        assert_eq!(replayed(&rows, b"k", 2), (both(), Replayed::Done));
        assert_eq!(replayed(&rows, b"k", 3), (both(), Replayed::Wants(2)));
        rows.insert(b"k", &row(&rows, &two, false), true).unwrap();
        assert_eq!(replayed(&rows, b"k", 3), (both(), Replayed::Done));
        assert_eq!(replayed(&rows, b"other", 1), (vec![], Replayed::NoRow));
    }

    #[test]
    fn a_row_of_another_key_or_table_is_none() {
        let cache = Arc::new(RowCache::new(1 << 20));
        let (rows, others) = (cache.of_table(), cache.of_table());
        // As if both keys had one hash.
        let entries = [(ikey(b"another", 9), &b"value"[..])];
        rows.insert(b"k", &row(&rows, &entries, false), false)
            .unwrap();
        assert_eq!(replayed(&rows, b"k", 1), (vec![], Replayed::NoRow));
        assert_eq!(replayed(&others, b"another", 1), (vec![], Replayed::NoRow));
        assert_eq!(cache.len(), 1);
    }

    #[test]
    fn a_row_larger_than_the_cache_is_given_up() {
        let cache = Arc::new(RowCache::new(1000));
        let rows = cache.of_table();
        let entries = [
            (ikey(b"k", 9), &b"value"[..]),
            (ikey(b"k", 8), &[7; 2000]),
            (ikey(b"k", 7), b"v"),
        ];
        rows.insert(b"k", &row(&rows, &entries, false), false)
            .unwrap();
        assert!(cache.is_empty());
        rows.insert(b"k", &row(&rows, &entries[..1], false), false)
            .unwrap();
        assert_eq!(cache.len(), 1);
        cache.set_capacity(10);
        assert_eq!((cache.usage(), cache.pinned_usage()), (0, 0));
    }
}
