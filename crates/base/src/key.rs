//! Internal keys: the keys by which memtables and SST files are sorted.
//!
//! ```text
//!   user key (any bytes) | u64 little-endian: (sequence << 8) | value type
//! ```
//!
//! Order: user key ascending by the column family's comparator, then that `u64` *descending*, so
//! the newest version of a key comes first. Source: RocksDB `db/dbformat.h`.
#![deny(clippy::indexing_slicing)]

use std::cmp::Ordering;
use std::fmt;

use crate::comparator::Comparator;

/// Bytes by which an internal key is longer than its user key.
pub const TRAILER_LEN: usize = 8;

/// The sequence number of a write: each counted record of a batch gets the next one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SequenceNumber(pub u64);

impl SequenceNumber {
    /// The largest sequence number that the format can hold: 56 bits.
    pub const MAX: Self = Self((1 << 56) - 1);
}

impl fmt::Display for SequenceNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number in the name of a file. One counter per database serves all kinds of files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileNumber(pub u64);

impl fmt::Display for FileNumber {
    /// At least six digits, as in file names.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:06}", self.0)
    }
}

/// The type of a record. The numbers are RocksDB's, and are stored on disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[expect(
    missing_docs,
    reason = "the names are the documentation; RocksDB db/dbformat.h"
)]
pub enum ValueType {
    Deletion = 0x00,
    Value = 0x01,
    Merge = 0x02,
    LogData = 0x03,
    ColumnFamilyDeletion = 0x04,
    ColumnFamilyValue = 0x05,
    ColumnFamilyMerge = 0x06,
    SingleDeletion = 0x07,
    ColumnFamilySingleDeletion = 0x08,
    BeginPrepareXid = 0x09,
    EndPrepareXid = 0x0a,
    CommitXid = 0x0b,
    RollbackXid = 0x0c,
    Noop = 0x0d,
    ColumnFamilyRangeDeletion = 0x0e,
    RangeDeletion = 0x0f,
    ColumnFamilyBlobIndex = 0x10,
    BlobIndex = 0x11,
    BeginPersistedPrepareXid = 0x12,
    BeginUnprepareXid = 0x13,
    DeletionWithTimestamp = 0x14,
    CommitXidAndTimestamp = 0x15,
    WideColumnEntity = 0x16,
    ColumnFamilyWideColumnEntity = 0x17,
    ValuePreferredSeqno = 0x18,
    ColumnFamilyValuePreferredSeqno = 0x19,
}

impl ValueType {
    /// The type for a seek key, so that it sorts before every record with its sequence number.
    pub const FOR_SEEK: Self = Self::ColumnFamilyValuePreferredSeqno;

    /// The type with the number `b`, or `None` if RocksDB 11.8 has none.
    #[inline]
    pub fn from_u8(b: u8) -> Option<Self> {
        use ValueType as T;
        const ALL: [ValueType; 26] = [
            T::Deletion,
            T::Value,
            T::Merge,
            T::LogData,
            T::ColumnFamilyDeletion,
            T::ColumnFamilyValue,
            T::ColumnFamilyMerge,
            T::SingleDeletion,
            T::ColumnFamilySingleDeletion,
            T::BeginPrepareXid,
            T::EndPrepareXid,
            T::CommitXid,
            T::RollbackXid,
            T::Noop,
            T::ColumnFamilyRangeDeletion,
            T::RangeDeletion,
            T::ColumnFamilyBlobIndex,
            T::BlobIndex,
            T::BeginPersistedPrepareXid,
            T::BeginUnprepareXid,
            T::DeletionWithTimestamp,
            T::CommitXidAndTimestamp,
            T::WideColumnEntity,
            T::ColumnFamilyWideColumnEntity,
            T::ValuePreferredSeqno,
            T::ColumnFamilyValuePreferredSeqno,
        ];
        ALL.get(b as usize).copied()
    }
}

/// `(sequence << 8) | type`: the trailer of an internal key as an integer.
#[inline]
pub fn pack(seq: SequenceNumber, t: ValueType) -> u64 {
    (seq.0 << 8) | t as u64
}

/// The sequence number in a packed trailer.
#[inline]
pub fn packed_sequence(packed: u64) -> SequenceNumber {
    SequenceNumber(packed >> 8)
}

/// Appends `user_key` and its trailer to `out`.
#[inline]
pub fn append(out: &mut Vec<u8>, user_key: &[u8], seq: SequenceNumber, t: ValueType) {
    out.extend_from_slice(user_key);
    out.extend_from_slice(&pack(seq, t).to_le_bytes());
}

/// A new internal key.
pub fn encode(user_key: &[u8], seq: SequenceNumber, t: ValueType) -> Vec<u8> {
    let mut out = Vec::with_capacity(user_key.len() + TRAILER_LEN);
    append(&mut out, user_key, seq, t);
    out
}

/// Splits an internal key into user key and packed trailer; `None` if it is shorter than 8 bytes.
#[inline]
pub fn split(internal: &[u8]) -> Option<(&[u8], u64)> {
    let (user, trailer) = internal.split_last_chunk::<TRAILER_LEN>()?;
    Some((user, u64::from_le_bytes(*trailer)))
}

/// The user key of an internal key; the whole of it if it is too short to have a trailer.
#[inline]
pub fn user_key(internal: &[u8]) -> &[u8] {
    split(internal).map_or(internal, |(u, _)| u)
}

/// A parsed internal key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parsed<'a> {
    /// The key that the user gave.
    pub user_key: &'a [u8],
    /// The sequence number of the record.
    pub sequence: SequenceNumber,
    /// The type of the record.
    pub value_type: ValueType,
}

/// Parses an internal key; `None` if it is too short or its type is unknown.
#[inline]
pub fn parse(internal: &[u8]) -> Option<Parsed<'_>> {
    let (user_key, packed) = split(internal)?;
    Some(Parsed {
        user_key,
        sequence: packed_sequence(packed),
        value_type: ValueType::from_u8(packed as u8)?,
    })
}

/// The type that RocksDB 11 gives to a table's smallest key if it cut a range tombstone at the
/// table's start. No record has this type.
pub const CUT_TOMBSTONE: u8 = 0x1a;

/// Whether the bytes can be a table's smallest or largest internal key.
pub fn is_boundary(internal: &[u8]) -> bool {
    split(internal).is_some_and(|(_, packed)| {
        ValueType::from_u8(packed as u8).is_some() || packed as u8 == CUT_TOMBSTONE
    })
}

/// Compares two internal keys under the user comparator `cmp`. Keys without a trailer (which only
/// damaged files have) sort as if the trailer were 0.
#[inline]
pub fn compare(cmp: &Comparator, a: &[u8], b: &[u8]) -> Ordering {
    let (ua, ta) = split(a).unwrap_or((a, 0));
    let (ub, tb) = split(b).unwrap_or((b, 0));
    cmp.compare(ua, ub).then_with(|| tb.cmp(&ta))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newer_versions_come_first() {
        let c = Comparator::bytewise();
        let old = encode(b"k", SequenceNumber(1), ValueType::Value);
        let new = encode(b"k", SequenceNumber(2), ValueType::Deletion);
        let next = encode(b"k\0", SequenceNumber(9), ValueType::Value);
        assert_eq!(compare(&c, &new, &old), Ordering::Less);
        assert_eq!(compare(&c, &old, &next), Ordering::Less);
        let p = parse(&new).unwrap();
        assert_eq!((p.user_key, p.sequence.0), (&b"k"[..], 2));
        assert_eq!(parse(b"short"), None);
    }

    #[test]
    fn type_numbers_are_rocksdbs() {
        for b in 0..=0x19u8 {
            assert_eq!(ValueType::from_u8(b).unwrap() as u8, b);
        }
        assert_eq!(ValueType::from_u8(CUT_TOMBSTONE), None);
        let cut = [&b"k"[..], &[CUT_TOMBSTONE, 9, 0, 0, 0, 0, 0, 0]].concat();
        assert!(is_boundary(&cut) && parse(&cut).is_none());
        assert!(!is_boundary(&[b'k', 0x1b, 9, 0, 0, 0, 0, 0, 0]) && !is_boundary(b"short"));
    }
}
