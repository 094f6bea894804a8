//! A block of sorted entries, and a cursor over it: data blocks, the metaindex, properties and
//! range tombstones are all stored like this.
//!
//! ```text
//!   entries | u32 restart offsets… | [hash index] | [u32 values offset] | u32 packed
//!
//!   entry:  varint32 shared | varint32 non_shared | varint32 value_len | key suffix | value
//!   packed: bits 0–27 number of restarts · 28 separated values · 29 uniform keys (ignored)
//!           30 must be 0 · 31 data-block hash index (ignored but for its length)
//! ```
//!
//! With separated values (RocksDB 11), the entries hold no values; those follow one another from
//! the *values offset* on, and the entry at a restart point says where its value starts:
//! `shared, non_shared, value_len, varint32 value_offset, key suffix`.
//!
//! A [`Block`] is a counted reference and a few numbers, 32 bytes: the block cache keeps it in the
//! cache line of its entry, so that a hit leads from there straight to the entries.
//!
//! [`Cursor`] does not borrow the block: every method takes it as an argument. So an iterator can
//! own both, and a `get` can reuse one cursor's key buffer for block after block.
//!
//! Invariants: [`Block::new`] has checked that the parts named above lie inside the bytes;
//! everything inside the entries is checked when a cursor meets it, and a violation is
//! `Corruption`. A key is never longer than the block.
#![deny(clippy::indexing_slicing)]

#[expect(
    clippy::indexing_slicing,
    reason = "builds blocks; reads nothing from disk"
)]
mod builder;
mod cursor;

use std::sync::Arc;

use base::coding::{Decoder, u32_at};
use base::{Error, Result};

pub use builder::BlockBuilder;
pub(crate) use builder::common_prefix;
pub use cursor::{Cursor, Target};

/// Bytes of the counts in an `Arc`.
const ARC_COUNTS: usize = 16;

const RESTARTS_MASK: u32 = 0x0fff_ffff;
const SEPARATED: u32 = 1 << 28;
const RESERVED: u32 = 1 << 30;
const HASH_INDEX: u32 = 1 << 31;

/// What the keys of a block are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    /// Any bytes: metaindex, properties.
    #[default]
    Plain,
    /// Internal keys.
    Internal,
    /// Internal keys of an ingested file: stored with sequence 0, all of them valid as of this
    /// sequence.
    Ingested(u64),
}

/// The bytes of a block, decompressed and taken apart. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Block {
    data: Arc<[u8]>,
    /// End of the entries, or of their key parts.
    entries_end: u32,
    restarts_at: u32,
    restarts: u32,
    separated: bool,
}

/// The start of an entry: everything before the key suffix.
#[derive(Clone, Copy, Debug)]
struct Head {
    shared: u32,
    suffix_at: u32,
    suffix_len: u32,
    value_len: u32,
    /// Separated values: where this value starts after the values offset; restart points only.
    value_offset: u32,
}

#[cold]
#[inline(never)]
fn bad(what: &str) -> Error {
    Error::corruption(format!("block: {what}"))
}

impl Block {
    /// Takes a decompressed block apart. Corruption if its parts do not fit its length.
    pub fn new(data: &[u8]) -> Result<Self> {
        Self::from_shared(Arc::from(data), data.len())
    }

    /// The same for the first `len` bytes of memory that need not be copied.
    pub(crate) fn from_shared(shared: Arc<[u8]>, len: usize) -> Result<Self> {
        let data = shared.get(..len).unwrap_or_default();
        let len = u32::try_from(data.len()).map_err(|_| bad("longer than 4 GiB"))?;
        let mut end = len
            .checked_sub(4)
            .ok_or_else(|| bad("shorter than 4 bytes"))?;
        let packed = u32_at(data, end as usize).ok_or_else(|| bad("shorter than 4 bytes"))?;
        if packed & RESERVED != 0 {
            return Err(bad("a reserved bit of the footer is set"));
        }
        let separated = packed & SEPARATED != 0;
        let mut values_at = None;
        if separated {
            end = end.checked_sub(4).ok_or_else(|| bad("no values offset"))?;
            values_at = u32_at(data, end as usize);
        }
        if packed & HASH_INDEX != 0 {
            let buckets = end
                .checked_sub(2)
                .and_then(|at| data.get(at as usize..at as usize + 2))
                .and_then(|b| Decoder::new(b).u16())
                .ok_or_else(|| bad("no hash index"))?;
            end = end
                .checked_sub(2 + u32::from(buckets))
                .ok_or_else(|| bad("the hash index is longer than the block"))?;
        }
        let restarts = packed & RESTARTS_MASK;
        let restarts_at = restarts
            .checked_mul(4)
            .and_then(|n| end.checked_sub(n))
            .ok_or_else(|| bad("more restart points than fit"))?;
        let entries_end = values_at.unwrap_or(restarts_at);
        if entries_end > restarts_at {
            return Err(bad("the values start behind their end"));
        }
        if restarts == 0 && entries_end != 0 {
            return Err(bad("entries but no restart point"));
        }
        Ok(Self {
            data: shared,
            entries_end,
            restarts_at,
            restarts,
            separated,
        })
    }

    /// Bytes that the block occupies in memory.
    pub fn memory(&self) -> usize {
        self.data.len() + ARC_COUNTS
    }

    /// True if there is another reference to the same bytes.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.data) > 1
    }

    /// The decompressed bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.data
    }

    /// The bytes behind an entry's key parts: values of a block with separated values.
    pub(crate) fn is_separated(&self) -> bool {
        self.separated
    }

    /// Number of restart points.
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// End of the entries (their key parts, if the values are separated).
    pub(crate) fn entries_end(&self) -> u32 {
        self.entries_end
    }

    /// End of the values.
    pub(crate) fn values_end(&self) -> u32 {
        self.restarts_at
    }

    /// Offset of restart point `i`; beyond every entry if there is no such point.
    #[inline]
    pub(crate) fn restart(&self, i: u32) -> u32 {
        if i >= self.restarts {
            return u32::MAX;
        }
        u32_at(&self.data, (self.restarts_at + i * 4) as usize).unwrap_or(u32::MAX)
    }

    /// Reads the start of the entry at `at`.
    #[inline]
    fn head(&self, at: u32, is_restart: bool) -> Option<Head> {
        let entry = self.data.get(at as usize..self.entries_end as usize)?;
        if let [shared, suffix_len, value_len, ..] = *entry
            && (shared | suffix_len | value_len) < 0x80
            && !self.separated
        {
            return Some(Head {
                shared: u32::from(shared),
                suffix_at: at + 3,
                suffix_len: u32::from(suffix_len),
                value_len: u32::from(value_len),
                value_offset: 0,
            });
        }
        self.long_head(at, entry, is_restart)
    }

    fn long_head(&self, at: u32, entry: &[u8], is_restart: bool) -> Option<Head> {
        let mut d = Decoder::new(entry);
        let shared = d.varint32()?;
        let suffix_len = d.varint32()?;
        let value_len = d.varint32()?;
        let value_offset = if self.separated && is_restart {
            d.varint32()?
        } else {
            0
        };
        Some(Head {
            shared,
            suffix_at: at + (entry.len() - d.len()) as u32,
            suffix_len,
            value_len,
            value_offset,
        })
    }

    /// The whole key at restart point `i`, as stored.
    #[inline]
    fn restart_key(&self, i: u32) -> Result<&[u8]> {
        let head = self
            .head(self.restart(i), true)
            .filter(|h| h.shared == 0)
            .ok_or_else(|| bad("a restart point is not at an entry"))?;
        let from = head.suffix_at as usize;
        self.data
            .get(from..from + head.suffix_len as usize)
            .ok_or_else(|| bad("a key runs over the end"))
    }
}

#[cfg(test)]
mod tests;
