//! A table's index: decoded once, when the table is opened, or in parts that are read on demand (`stored`, `walk`).
//!
//! ```text
//!   prefixes: [u64]   the comparator's 8-byte prefix of each separator, searched first
//!   samples:  [u64]   every 64th prefix: few cache lines, which stay in the CPU cache
//!   slots:    [(offset, size, end)]   the data block whose keys are ≤ separator i, and the end of
//!   keys:     bytes                   that separator in `keys`; separators are contiguous
//! ```
//!
//! A search is a binary search over arrays of integers; only separators with the same prefix
//! are compared as keys. Under the default comparator the prefixes are taken *after* the common
//! prefix of all separators, so that they also distinguish keys that begin alike (`user0000…`).
//!
//! All index types are decoded to this form: binary search, hash (whose binary-search part is
//! complete), two-level (the partitions one after the other) and with first keys (which are not
//! needed). Searching the encoded index block through the cache has to decode an entry at each
//! step, and a table's index takes only about 1/200 of the memory of its data. Where that is too much,
//! blocks of indexes are kept in the block cache instead, as they are stored: see `stored`.
#![deny(clippy::indexing_slicing)]

mod stored;
mod walk;

use std::cmp::Ordering;

use base::coding::Decoder;
use base::{Comparator, Error, Result, key};
use io::LargeVec;

use crate::block::{Block, Cursor, Keys, Stored, Target};
use crate::handle::BlockHandle;
pub(crate) use stored::{StoredIndex, prepare};
pub(crate) use walk::{Aim, Root, Step, Walk};

/// Bytes of the trailer after each block.
const TRAILER_LEN: u64 = 5;

/// The encoding of a table's index blocks, from its properties.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Encoding {
    /// Separators are user keys, not internal keys.
    pub(crate) user_keys: bool,
    /// Handles follow the key without a length, most of them as a size difference.
    pub(crate) delta: bool,
    /// Each handle is followed by the block's first key.
    pub(crate) first_keys: bool,
}

/// The decoded index.
#[derive(Debug)]
pub(crate) struct Index {
    comparator: Comparator,
    user_keys: bool,
    /// Common prefix of all separators; empty unless the order is bytewise.
    common: Vec<u8>,
    samples: Vec<u64>,
    prefixes: LargeVec<u64>,
    keys: LargeVec<u8>,
    slots: LargeVec<Slot>,
}

/// A data block.
#[derive(Clone, Copy, Debug)]
struct Slot {
    offset: u64,
    size: u32,
    /// End of its separator in `keys`.
    key_end: u32,
}

/// Number of prefixes per sample.
const SAMPLE: usize = 64;

#[cold]
fn bad(what: &str) -> Error {
    Error::corruption(format!("index: {what}"))
}

/// The offset of no block is so large: the two highest bits of a block's place in the cache say what it is.
const OFFSET_MAX: u64 = (1 << 62) - 1;

impl Encoding {
    /// The encoding of a top level: of an index, or of filters.
    pub(crate) fn of_top_level(self) -> Self {
        Self {
            first_keys: false,
            ..self
        }
    }
}

/// Errors: no file has such a block.
fn check(handle: BlockHandle) -> Result<BlockHandle> {
    if handle.size > u64::from(u32::MAX) {
        return Err(bad("a block of 4 GiB or more"));
    }
    if handle.offset > OFFSET_MAX {
        return Err(bad("a block behind the end of every file"));
    }
    Ok(handle)
}

/// The handles that an index block holds.
pub(crate) fn handles(bytes: &[u8], encoding: Encoding) -> Result<Vec<BlockHandle>> {
    let mut out = Vec::new();
    for_each(bytes, encoding, &mut |_, handle| {
        out.push(handle);
        Ok(())
    })?;
    Ok(out)
}

impl Index {
    /// An empty index.
    pub(crate) fn new(comparator: Comparator, user_keys: bool) -> Self {
        Self {
            comparator,
            user_keys,
            common: Vec::new(),
            samples: Vec::new(),
            prefixes: LargeVec::new(),
            keys: LargeVec::new(),
            slots: LargeVec::new(),
        }
    }

    /// Adds a separator and its block at the end.
    pub(crate) fn push(&mut self, separator: &[u8], handle: BlockHandle) -> Result<()> {
        if !self.user_keys && separator.len() < key::TRAILER_LEN {
            return Err(bad("a separator is shorter than 8 bytes"));
        }
        let size = check(handle)?.size as u32;
        self.keys.extend_from_slice(separator);
        let key_end = u32::try_from(self.keys.len())
            .map_err(|_| Error::not_supported("an index with 4 GiB of separators or more"))?;
        self.slots.push(Slot {
            offset: handle.offset,
            size,
            key_end,
        });
        Ok(())
    }

    /// Prepares for searching, after the last [`Index::push`].
    pub(crate) fn seal(&mut self) {
        let n = self.len();
        if self.comparator.is_bytewise() && n > 0 {
            let (first, last) = (self.user_separator(0), self.user_separator(n - 1));
            let common = first.iter().zip(last).take_while(|(a, b)| a == b).count();
            self.common = first.get(..common).unwrap_or_default().to_vec();
        }
        self.prefixes = (0..n)
            .map(|i| {
                let rest = self.user_separator(i).get(self.common.len()..);
                self.comparator.prefix(rest.unwrap_or_default())
            })
            .collect();
        self.samples = self.prefixes.iter().copied().step_by(SAMPLE).collect();
        self.keys.shrink_to_fit();
        self.slots.shrink_to_fit();
    }

    /// Number of data blocks.
    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Bytes that the index occupies in memory.
    pub(crate) fn memory(&self) -> usize {
        self.keys.capacity() + self.len() * (8 + size_of::<Slot>())
    }

    /// True if entries of one user key may lie in two blocks.
    pub(crate) fn splits_user_keys(&self) -> bool {
        !self.user_keys
    }

    /// The first data block that ends after this offset of the file.
    pub(crate) fn first_ending_after(&self, offset: u64) -> Option<BlockHandle> {
        let before = |slot: &Slot| {
            let len = u64::from(slot.size) + TRAILER_LEN;
            slot.offset.saturating_add(len) <= offset
        };
        let next = self.slots.partition_point(before);
        self.handle(next)
    }

    /// Where data block `i` is.
    #[inline]
    pub(crate) fn handle(&self, i: usize) -> Option<BlockHandle> {
        let slot = self.slots.get(i)?;
        Some(BlockHandle {
            offset: slot.offset,
            size: u64::from(slot.size),
        })
    }

    /// Separator `i` as stored.
    #[inline]
    fn separator(&self, i: usize) -> &[u8] {
        let end = |i| self.slots.get(i).map_or(0, |s: &Slot| s.key_end);
        let start = i.checked_sub(1).map_or(0, end);
        let end = end(i);
        self.keys
            .get(start as usize..end as usize)
            .unwrap_or_default()
    }

    /// The user key of separator `i`.
    pub(crate) fn user_separator(&self, i: usize) -> &[u8] {
        let s = self.separator(i);
        if self.user_keys { s } else { key::user_key(s) }
    }

    /// True if separator `i` lies before the target.
    #[inline]
    fn is_before(&self, i: usize, target: &Target<'_>) -> bool {
        is_before(&self.comparator, self.user_keys, self.separator(i), target)
    }

    /// The first block that can hold an entry not before `target`; [`Index::len`] if none can.
    #[inline]
    pub(crate) fn seek(&self, target: &Target<'_>) -> usize {
        let n = self.len();
        let Some(rest) = target.user.strip_prefix(self.common.as_slice()) else {
            return if target.user < self.common.as_slice() {
                0
            } else {
                n
            };
        };
        let prefix = self.comparator.prefix(rest);
        // The first prefix not below the target's comes after the last sample that is below it.
        let segment = self.samples.partition_point(|&p| p < prefix);
        let from = segment.saturating_sub(1) * SAMPLE;
        let to = (segment * SAMPLE).min(n);
        let inside = self.prefixes.get(from..to).unwrap_or_default();
        let lo = from + inside.partition_point(|&p| p < prefix);
        // Few separators share a prefix, so a linear scan finds the range of equal ones.
        let equal = self.prefixes.iter().skip(lo);
        let equal = equal.take_while(|&&p| p == prefix).count();
        let (mut lo, mut hi) = (lo, lo + equal);
        while lo < hi {
            let mid = lo.midpoint(hi);
            if self.is_before(mid, target) {
                lo = mid + 1;
            } else {
                hi = mid;
            }
        }
        lo
    }
}

/// True if a separator, a user key or an internal key, lies before the target.
#[inline]
fn is_before(
    comparator: &Comparator,
    user_keys: bool,
    separator: &[u8],
    target: &Target<'_>,
) -> bool {
    if user_keys {
        return comparator.compare(separator, target.user) == Ordering::Less;
    }
    let (user, packed) = key::split(separator).unwrap_or((separator, 0));
    target.order_of(comparator, user, packed) == Ordering::Less
}

/// Calls `visit` with each separator and handle of an encoded index block.
pub(crate) fn for_each(
    bytes: &[u8],
    encoding: Encoding,
    visit: &mut dyn FnMut(&[u8], BlockHandle) -> Result<()>,
) -> Result<()> {
    if encoding.delta {
        return for_each_delta(Stored::new(bytes)?, encoding, visit);
    }
    let block = &Block::new(bytes)?;
    let mut c = Cursor::new(Keys::Plain);
    let mut more = c.seek_to_first(block)?;
    while more {
        let mut d = Decoder::new(c.value(block));
        let handle = BlockHandle::decode(&mut d).ok_or_else(|| bad("a handle is cut short"))?;
        visit(c.key(), handle)?;
        more = c.next(block)?;
    }
    Ok(())
}

/// [`for_each`] for entries without a value length: `shared, non_shared, key suffix, handle`. If shared
/// is 0, the handle is whole; otherwise the block follows the previous one, and the handle is the size
/// difference. With separated values, the handles are in the value section.
fn for_each_delta(
    block: Stored<'_>,
    encoding: Encoding,
    visit: &mut dyn FnMut(&[u8], BlockHandle) -> Result<()>,
) -> Result<()> {
    let cut = || bad("an entry is cut short");
    let (entries, all_values) = (block.entries, block.values);
    let mut d = Decoder::new(entries);
    let mut values = Decoder::new(all_values);
    let mut restart = 0;
    let mut separator: Vec<u8> = Vec::new();
    let mut previous = BlockHandle { offset: 0, size: 0 };
    while !d.is_empty() {
        let at = entries.len() - d.len();
        let shared = d.varint32().ok_or_else(cut)? as usize;
        let suffix_len = d.varint32().ok_or_else(cut)? as usize;
        if block.restart(restart) == at {
            restart += 1;
            if block.separated {
                let from = d.varint32().ok_or_else(cut)? as usize;
                values = Decoder::new(all_values.get(from..).ok_or_else(cut)?);
            }
        }
        let suffix = d.bytes(suffix_len).ok_or_else(cut)?;
        if shared > separator.len() {
            return Err(bad("a separator shares more than there is"));
        }
        separator.truncate(shared);
        separator.extend_from_slice(suffix);
        let source = if block.separated { &mut values } else { &mut d };
        previous = if shared == 0 {
            BlockHandle::decode(source).ok_or_else(cut)?
        } else {
            following(previous, source).ok_or_else(cut)?
        };
        if encoding.first_keys {
            source.slice().ok_or_else(cut)?;
        }
        visit(&separator, previous)?;
    }
    Ok(())
}

/// The handle of the block directly after `previous`.
fn following(previous: BlockHandle, d: &mut Decoder<'_>) -> Option<BlockHandle> {
    Some(BlockHandle {
        offset: previous
            .offset
            .checked_add(previous.size)?
            .checked_add(TRAILER_LEN)?,
        size: previous.size.checked_add_signed(d.varint_signed()?)?,
    })
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a failed test may panic")]
mod tests;
