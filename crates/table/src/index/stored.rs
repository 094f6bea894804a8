//! An index block as it is kept in the block cache: searched as it was stored.
//!
//! If each entry is a restart point, as with the default `index_block_restart_interval` of 1, the bytes are those of the file.
//! Otherwise they are encoded so, once, when the block is read. Then entry i is where restart point i says.
//!
//! ```text
//!   u32 common | u64 samples… | the block
//!        │         └ the comparator's 8-byte prefix of every 16th separator, after the common bytes of all
//!        └ how many bytes all separators have in common
//! ```
//!
//! A search looks at the samples first, which lie together, and then at few of the separators, which do not.
#![deny(clippy::indexing_slicing)]

use base::coding::{Decoder, put_varint};
use base::{Comparator, Error, Result, key};

use super::{Encoding, TRAILER_LEN, bad, check, for_each, is_before};
use crate::block::{Block, Stored, Target, common_prefix, keys_bytes_max};
use crate::handle::BlockHandle;

/// Number of separators per sample.
const SAMPLE: usize = 16;

/// An index block: see the module.
#[derive(Clone, Debug)]
pub(crate) struct StoredIndex {
    block: Block,
    encoding: Encoding,
}

/// An entry, and where the next one begins.
struct Entry<'a> {
    separator: &'a [u8],
    handle: BlockHandle,
    end: usize,
}

impl Entry<'_> {
    /// The entry at a restart point.
    fn at(entries: &[u8], at: usize, encoding: Encoding) -> Option<Entry<'_>> {
        let mut d = Decoder::new(entries.get(at..)?);
        if d.varint32()? != 0 {
            return None; // a separator that needs the one before it
        }
        let len = d.varint32()? as usize;
        if !encoding.delta {
            let value_len = d.varint32()? as usize;
            let separator = d.bytes(len)?;
            let handle = BlockHandle::decode(&mut Decoder::new(d.bytes(value_len)?))?;
            let end = entries.len() - d.len();
            return Some(Entry {
                separator,
                handle,
                end,
            });
        }
        let separator = d.bytes(len)?;
        let handle = BlockHandle::decode(&mut d)?;
        if encoding.first_keys {
            d.slice()?;
        }
        let end = entries.len() - d.len();
        Some(Entry {
            separator,
            handle,
            end,
        })
    }
}

/// What to keep for an index block with these bytes: at most `limit` bytes.
///
/// Errors: the block is damaged; `NotSupported` if it needs more bytes.
pub(crate) fn prepare(
    bytes: &[u8],
    encoding: Encoding,
    comparator: &Comparator,
    limit: usize,
) -> Result<Block> {
    let too_large =
        || Error::not_supported(format!("an index block that takes more than {limit} bytes"));
    let stored = Stored::new(bytes)?;
    let first = Entry::at(stored.entries, 0, encoding).filter(|_| !stored.separated);
    // A restart point behind the last one lies behind everything.
    let is_dense = first.is_some_and(|e| e.end == stored.restart(1).min(stored.entries.len()));
    if stored.entries.is_empty() {
        return Block::raw(&[], &0_u32.to_le_bytes()); // RocksDB writes a restart point without an entry
    }
    let with_samples = |bytes: &[u8]| {
        let head = samples(&Stored::new(bytes)?, encoding, comparator)?;
        if head.len() + bytes.len() > limit {
            return Err(too_large());
        }
        Block::raw(&head, bytes)
    };
    if is_dense {
        return with_samples(bytes);
    }
    let (mut out, mut restarts) = (Vec::with_capacity(bytes.len() * 2), Vec::new());
    let mut left = keys_bytes_max(bytes.len());
    for_each(bytes, encoding, &mut |separator, handle| {
        left = left
            .checked_sub(separator.len())
            .ok_or_else(|| bad("separators share more than is believable"))?;
        let at = u32::try_from(out.len()).map_err(|_| bad("more than 4 GiB of separators"))?;
        restarts.push(at);
        put_entry(&mut out, separator, handle, encoding);
        if out.len() + restarts.len() * 4 > limit {
            return Err(too_large());
        }
        Ok(())
    })?;
    let count = u32::try_from(restarts.len()).map_err(|_| bad("too many entries"))?;
    for at in restarts {
        out.extend_from_slice(&at.to_le_bytes());
    }
    out.extend_from_slice(&count.to_le_bytes());
    with_samples(&out)
}

/// What is kept before a block, in which each entry is a restart point.
fn samples(stored: &Stored<'_>, encoding: Encoding, comparator: &Comparator) -> Result<Vec<u8>> {
    let user = |i| {
        let separator = separator_at(stored, i, encoding).ok_or_else(cut_short)?;
        Ok::<_, Error>(user_part(separator, encoding))
    };
    let n = stored.restarts();
    let mut common = 0;
    if comparator.is_bytewise() && n > 0 {
        common = common_prefix(user(0)?, user(n - 1)?);
    }
    let mut out = Vec::with_capacity(4 + n.div_ceil(SAMPLE) * 8);
    out.extend_from_slice(&(common as u32).to_le_bytes());
    for i in (0..n).step_by(SAMPLE) {
        let rest = user(i)?.get(common..).unwrap_or_default();
        out.extend_from_slice(&comparator.prefix(rest).to_le_bytes());
    }
    Ok(out)
}

/// The separator at restart point `i`.
#[inline]
fn separator_at<'a>(stored: &Stored<'a>, i: usize, encoding: Encoding) -> Option<&'a [u8]> {
    let mut d = Decoder::new(stored.entries.get(stored.restart(i)..)?);
    if d.varint32()? != 0 {
        return None;
    }
    let len = d.varint32()? as usize;
    if !encoding.delta {
        d.varint32()?;
    }
    d.bytes(len)
}

#[inline]
fn user_part(separator: &[u8], encoding: Encoding) -> &[u8] {
    if encoding.user_keys {
        separator
    } else {
        key::user_key(separator)
    }
}

fn put_entry(out: &mut Vec<u8>, separator: &[u8], handle: BlockHandle, encoding: Encoding) {
    put_varint(out, 0);
    put_varint(out, separator.len() as u64);
    let mut value = Vec::new();
    put_varint(&mut value, handle.offset);
    put_varint(&mut value, handle.size);
    if !encoding.delta {
        put_varint(out, value.len() as u64);
    } else if encoding.first_keys {
        value.push(0); // no key
    }
    out.extend_from_slice(separator);
    out.extend_from_slice(&value);
}

impl StoredIndex {
    /// The index in a block from [`prepare`].
    pub(crate) fn new(block: Block, encoding: Encoding) -> Self {
        Self { block, encoding }
    }

    /// Errors: the block is damaged.
    fn stored(&self) -> Result<Stored<'_>> {
        Stored::new(self.block.raw_parts().1)
    }

    /// Number of entries. Errors: the block is damaged.
    pub(crate) fn len(&self) -> Result<usize> {
        Ok(self.stored()?.restarts())
    }

    /// The block with number `i`; `None` if there are not so many.
    ///
    /// Errors: the block is damaged.
    pub(crate) fn handle(&self, i: usize) -> Result<Option<BlockHandle>> {
        Ok(self.entry(i)?.map(|e| e.handle))
    }

    /// All blocks. Errors: as [`StoredIndex::handle`].
    pub(crate) fn handles(&self) -> Result<Vec<BlockHandle>> {
        let all = (0..self.len()?).filter_map(|i| self.handle(i).transpose());
        all.collect()
    }

    /// Separator `i`, as stored.
    ///
    /// Errors: as [`StoredIndex::handle`].
    pub(crate) fn separator(&self, i: usize) -> Result<Option<&[u8]>> {
        Ok(self.entry(i)?.map(|e| e.separator))
    }

    fn entry(&self, i: usize) -> Result<Option<Entry<'_>>> {
        let stored = self.stored()?;
        if i >= stored.restarts() {
            return Ok(None);
        }
        let entry = Entry::at(stored.entries, stored.restart(i), self.encoding);
        // Entries between restart points would be missed.
        let next = stored.restart(i + 1).min(stored.entries.len());
        match entry.filter(|e| e.end == next) {
            Some(entry) => check(entry.handle).map(|_| Some(entry)),
            None => Err(bad("an entry is cut short, or is no restart point")),
        }
    }

    /// The first block that can hold an entry not before `target`; [`StoredIndex::len`] if none can.
    ///
    /// Errors: the block is damaged.
    pub(crate) fn seek(&self, comparator: &Comparator, target: &Target<'_>) -> Result<usize> {
        let stored = self.stored()?;
        let (mut lo, mut hi) = self.candidates(&stored, comparator, target);
        while lo < hi {
            let mid = lo.midpoint(hi);
            let separator = separator_at(&stored, mid, self.encoding).ok_or_else(cut_short)?;
            if is_before(comparator, self.encoding.user_keys, separator, target) {
                lo = mid + 1;
            } else {
                hi = mid;
            }
        }
        Ok(lo)
    }

    /// The separators that must be compared: those before the range are before the target, those behind it are not.
    fn candidates(
        &self,
        stored: &Stored<'_>,
        comparator: &Comparator,
        target: &Target<'_>,
    ) -> (usize, usize) {
        let n = stored.restarts();
        self.by_samples(stored, comparator, target)
            .unwrap_or((0, n))
    }

    fn by_samples(
        &self,
        stored: &Stored<'_>,
        comparator: &Comparator,
        target: &Target<'_>,
    ) -> Option<(usize, usize)> {
        let (common, samples) = self.block.raw_parts().0.split_first_chunk::<4>()?;
        let (common, n) = (u32::from_le_bytes(*common) as usize, stored.restarts());
        let mut rest = target.user;
        if common > 0 {
            let first = user_part(separator_at(stored, 0, self.encoding)?, self.encoding);
            let common = first.get(..common)?;
            match target.user.strip_prefix(common) {
                Some(r) => rest = r,
                None if target.user < common => return Some((0, 0)),
                None => return Some((n, n)),
            }
        }
        let prefix = comparator.prefix(rest);
        let (samples, _) = samples.as_chunks::<8>();
        let before = samples.partition_point(|s| u64::from_le_bytes(*s) < prefix);
        let behind = samples.get(before..).unwrap_or_default();
        let equal = behind.partition_point(|s| u64::from_le_bytes(*s) <= prefix);
        let lo = before.checked_sub(1).map_or(0, |last| last * SAMPLE + 1);
        Some((lo, ((before + equal) * SAMPLE).min(n)))
    }

    /// The block that [`StoredIndex::seek`] finds, or the last one; `None` if there is none.
    ///
    /// Errors: the block is damaged.
    pub(crate) fn seek_or_last(
        &self,
        comparator: &Comparator,
        target: &Target<'_>,
    ) -> Result<Option<BlockHandle>> {
        let found = self.seek(comparator, target)?;
        self.handle(found.min(self.len()?.saturating_sub(1)))
    }

    /// The first block of those from number `from` on that ends after this offset of the file.
    ///
    /// Errors: the block is damaged.
    pub(crate) fn first_ending_after(
        &self,
        from: usize,
        offset: u64,
    ) -> Result<Option<BlockHandle>> {
        let (mut lo, mut hi) = (from, self.len()?);
        while lo < hi {
            let mid = lo.midpoint(hi);
            let handle = self.handle(mid)?.ok_or_else(cut_short)?;
            let end = handle.offset.saturating_add(handle.size);
            if end.saturating_add(TRAILER_LEN) <= offset {
                lo = mid + 1;
            } else {
                hi = mid;
            }
        }
        self.handle(lo)
    }
}

#[cold]
fn cut_short() -> Error {
    bad("an entry is cut short")
}
