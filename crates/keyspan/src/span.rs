//! Tombstones as spans between internal keys, and the keys that bound them.
//!
//! Bounds are internal keys. A user key `k` as a bound is the position before every version of
//! `k`; the tombstones of a table are clipped to the table's bounds, which may lie between two
//! versions of a key.

use base::{Comparator, SequenceNumber, ValueType, key};

/// All versions of the keys from `start` to before `end` that are older than `sequence` are
/// deleted. This is a tombstone as a table stores it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RangeTombstone {
    /// First user key.
    pub start: Vec<u8>,
    /// The first user key after the range.
    pub end: Vec<u8>,
    /// The sequence number of the deletion.
    pub sequence: SequenceNumber,
}

/// A tombstone between two internal keys; the end is exclusive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Span {
    /// An internal key.
    pub start: Vec<u8>,
    /// An internal key.
    pub end: Vec<u8>,
    /// The sequence number of the deletion.
    pub sequence: SequenceNumber,
}

impl Span {
    /// The tombstone over the user keys from `begin` (inclusive) to `end` (exclusive).
    pub fn new(begin: &[u8], end: &[u8], sequence: SequenceNumber) -> Self {
        Self {
            start: before_versions(begin),
            end: before_versions(end),
            sequence,
        }
    }

    /// The part between two positions; `None` if it is empty.
    pub(crate) fn clip(mut self, cmp: &Comparator, from: &[u8], to: &[u8]) -> Option<Self> {
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
pub fn before_versions(user_key: &[u8]) -> Vec<u8> {
    key::encode(user_key, SequenceNumber::MAX, ValueType::FOR_SEEK)
}

/// Whether a file's largest key is not an entry but the exclusive end of a tombstone.
pub fn is_sentinel(largest: &[u8]) -> bool {
    key::split(largest).is_some_and(|(_, packed)| {
        packed == key::pack(SequenceNumber::MAX, ValueType::RangeDeletion)
    })
}

/// The largest key of a file whose last item is a tombstone that ends at `end`.
pub fn sentinel(end: &[u8]) -> Vec<u8> {
    key::encode(end, SequenceNumber::MAX, ValueType::RangeDeletion)
}

/// Changes the type of a table's smallest key to one that older releases know too, because a new
/// MANIFEST stores this key.
pub fn make_readable(smallest: &mut [u8]) {
    if let Some((_, packed)) = key::split(smallest)
        && packed as u8 == key::CUT_TOMBSTONE
        && let Some(t) = smallest.len().checked_sub(key::TRAILER_LEN)
    {
        smallest[t] = ValueType::RangeDeletion as u8;
    }
}

/// The first position after a table with this largest key.
pub(crate) fn behind(largest: &[u8]) -> Vec<u8> {
    match key::split(largest) {
        Some((user, packed)) if !is_sentinel(largest) => {
            let mut out = user.to_vec();
            out.extend_from_slice(&packed.saturating_sub(1).to_le_bytes());
            out
        }
        _ => before_versions(key::user_key(largest)),
    }
}
