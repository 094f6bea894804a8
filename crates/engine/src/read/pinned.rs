//! Values without a copy.

use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use memtable::Memtable;

/// The value of a key, without a copy: the memory of the block or the memtable in which it was found. This stays in
/// memory while the `PinnedValue` lives, also after the database was closed. So keep it only as long as it is needed: a
/// small value can hold a memtable of 64 MiB, which counts for the write-buffer manager, and a block that the cache cannot
/// evict. [`PinnedValue::into_vec`] is for values that are kept. Merged and empty values hold nothing.
///
/// It is what [`Cf::get_pinned`](crate::Cf::get_pinned) returns, RocksDB's `PinnableSlice`, and reads like a slice of
/// bytes.
pub struct PinnedValue(Bytes);

enum Bytes {
    Memtable(memtable::PinnedBytes),
    Block(table::PinnedBytes),
    Owned(Vec<u8>),
}

impl PinnedValue {
    pub(super) fn owned(bytes: Vec<u8>) -> Self {
        Self(Bytes::Owned(bytes))
    }

    /// Whether a block or a memtable is kept in memory. Otherwise the value is a copy.
    pub fn is_pinned(&self) -> bool {
        !matches!(self.0, Bytes::Owned(_))
    }

    /// A copy that keeps nothing else in memory; a value that is a copy already is not copied again.
    pub fn into_vec(self) -> Vec<u8> {
        match self.0 {
            Bytes::Owned(bytes) => bytes,
            _ => self.to_vec(),
        }
    }
}

impl Deref for PinnedValue {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        match &self.0 {
            Bytes::Memtable(bytes) => bytes,
            Bytes::Block(bytes) => bytes,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

impl AsRef<[u8]> for PinnedValue {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl From<PinnedValue> for Vec<u8> {
    fn from(value: PinnedValue) -> Self {
        value.into_vec()
    }
}

impl<T: AsRef<[u8]> + ?Sized> PartialEq<T> for PinnedValue {
    fn eq(&self, other: &T) -> bool {
        **self == *other.as_ref()
    }
}

impl fmt::Debug for PinnedValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PinnedValue").field(&&**self).finish()
    }
}

/// Where a lookup has found a value.
#[derive(Clone, Copy)]
pub(super) enum Place<'a> {
    Memtable(&'a Arc<Memtable>, memtable::Value<'a>),
    Block(table::Value<'a>),
}

impl<'a> Place<'a> {
    /// The value as it is stored.
    #[inline]
    pub(super) fn stored(self) -> &'a [u8] {
        match self {
            Self::Memtable(_, value) => value.bytes(),
            Self::Block(value) => value.bytes(),
        }
    }

    /// `part` of the value, without a copy if it is there.
    pub(super) fn pin(self, part: &[u8]) -> PinnedValue {
        let pinned = match self {
            _ if part.is_empty() => None,
            Self::Memtable(memtable, value) => value.pin(memtable, part).map(Bytes::Memtable),
            Self::Block(value) => value.pin(part).map(Bytes::Block),
        };
        pinned.map_or_else(|| PinnedValue::owned(part.to_vec()), PinnedValue)
    }
}
