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
//! With separated values (RocksDB 11), the entries hold no values; the values are contiguous from the
//! *values offset* on, and the entry at a restart point says where its value starts:
//! `shared, non_shared, value_len, varint32 value_offset, key suffix`.
//!
//! In memory, the data that a search needs first is at the front. So a search costs one cache miss
//! instead of one for the restart offsets after the entries and one for each key that it compares:
//!
//! ```text
//!   u32 restart offsets… | u32 skip | u64 prefixes… | entries | separated values
//!                          └ data blocks in bytewise order: length of the common prefix of the keys
//!                            at the restart points, and each key's next 8 bytes as an integer
//! ```
//!
//! A [`Block`] is a counted reference to that memory and a few numbers, 32 bytes in total, so that it
//! fits the cache line of its entry in the block cache.
//!
//! [`Cursor`] does not borrow the block: every method takes it as an argument. So an iterator can
//! own both, and a `get` can reuse one cursor's key buffer for many blocks.
//!
//! Invariants: [`Block::new`] has checked that the parts above lie inside the bytes. A cursor checks
//! each entry when it decodes it, and a violation is `Corruption`. A key is never longer than the
//! block.
#![deny(clippy::indexing_slicing)]

#[expect(
    clippy::indexing_slicing,
    reason = "builds blocks; reads nothing from disk"
)]
mod builder;
mod cursor;
#[expect(
    clippy::indexing_slicing,
    reason = "builds blocks; reads nothing from disk"
)]
mod hash_index;
mod pinned;
mod spare;

use std::sync::Arc;

use base::coding::{Decoder, u32_at};
use base::prefetch::prefetch_bytes;
use base::{Comparator, Error, Result, key};

pub use builder::BlockBuilder;
pub(crate) use builder::common_prefix;
pub use cursor::{Cursor, Target};
pub use pinned::{PinnedBytes, Value};

/// Bytes of the reference counts in an `Arc`.
const ARC_COUNTS: usize = 16;

const RESTARTS_MASK: u32 = 0x0fff_ffff;
const SEPARATED: u32 = 1 << 28;
const RESERVED: u32 = 1 << 30;
const HASH_INDEX: u32 = 1 << 31;
/// In [`Block::packed`] only: the block has prefixes.
const PREFIXES: u32 = 1 << 29;
/// In [`Block::packed`] only: the memory is that of another block, compressed.
const COMPRESSED: u32 = 1 << 31;
/// Cache lines of entries to ask for before a search: the processor sees by itself that more are read one after the other.
const ENTRY_LINES: usize = 12;
/// Bytes of the numbers of a block, before its compressed memory.
const SHAPE_LEN: usize = 12;
/// Bytes before the entries of a block that is decompressed in place: for at most 16 restart points.
const HEAD_ROOM: usize = 64;
/// Prefixes are made if they take at most one byte for this many bytes of the block.
const BYTES_PER_PREFIX_BYTE: usize = 8;

/// The kind of keys in a block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keys {
    /// Any bytes: metaindex, properties.
    #[default]
    Plain,
    /// Internal keys.
    Internal,
    /// Internal keys of an ingested file: stored with sequence number 0, read with this one.
    Ingested(u64),
}

/// A decompressed block in its in-memory layout. Cheap to clone.
///
/// Offsets are counted from the start of that memory, so no entry has offset 0.
#[derive(Clone, Debug)]
pub struct Block {
    memory: Arc<[u8]>,
    /// Where the entries start.
    base: u32,
    /// End of the entries, or of their key parts.
    entries_end: u32,
    /// Number of restart points, and the flags [`SEPARATED`] and [`PREFIXES`].
    packed: u32,
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

/// Where the parts of a stored block lie.
#[derive(Clone, Copy, Debug)]
struct Parts {
    entries_end: u32,
    restarts_at: u32,
    restarts: u32,
    separated: bool,
}

impl Parts {
    fn of(data: &[u8]) -> Result<Self> {
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
            entries_end,
            restarts_at,
            restarts,
            separated,
        })
    }
}

/// Upper bound of the bytes that the keys of a valid block of `len` bytes take together. Common prefixes
/// of keys are stored once, so a small malicious block could otherwise expand to any amount of memory.
pub(crate) fn keys_bytes_max(len: usize) -> usize {
    len.saturating_mul(256).saturating_add(1 << 20)
}

/// A stored block, for one pass over its entries without a copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stored<'a> {
    /// The entries, or their key parts.
    pub(crate) entries: &'a [u8],
    /// The values, if they are separated.
    pub(crate) values: &'a [u8],
    restarts: &'a [u8],
    /// True if the values follow all keys.
    pub(crate) separated: bool,
}

impl<'a> Stored<'a> {
    /// Takes a decompressed block apart. Corruption if its parts do not fit its length.
    pub(crate) fn new(bytes: &'a [u8]) -> Result<Self> {
        let parts = Parts::of(bytes)?;
        let (entries_end, at) = (parts.entries_end as usize, parts.restarts_at as usize);
        let end = at + parts.restarts as usize * 4;
        Ok(Self {
            entries: bytes.get(..entries_end).unwrap_or_default(),
            values: bytes.get(entries_end..at).unwrap_or_default(),
            restarts: bytes.get(at..end).unwrap_or_default(),
            separated: parts.separated,
        })
    }

    /// Number of restart points.
    pub(crate) fn restarts(&self) -> usize {
        self.restarts.len() / 4
    }

    /// Offset of restart point `i` in the entries; beyond them if there are fewer restart points.
    pub(crate) fn restart(&self, i: usize) -> usize {
        u32_at(self.restarts, i * 4).map_or(usize::MAX, |at| at as usize)
    }
}

/// Memory for a large block, which is read or decompressed into it. If it does not become a block, the memory is left
/// to the next one.
pub(crate) struct Room {
    /// [`HEAD_ROOM`] bytes, then the block as it is stored, and perhaps more.
    memory: Arc<[u8]>,
    len: usize,
}

impl Room {
    /// Room for `len` bytes.
    pub(crate) fn new(len: usize) -> Self {
        let memory = spare::take(HEAD_ROOM + len);
        Self { memory, len }
    }

    /// The bytes to fill. Their content is anything.
    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        let all = Arc::get_mut(&mut self.memory); // nobody else has it
        let bytes = all.and_then(|m| m.get_mut(HEAD_ROOM..HEAD_ROOM + self.len));
        bytes.unwrap_or_default()
    }

    /// The block in the first `len` bytes.
    pub(crate) fn into_block(mut self, len: usize, comparator: &Comparator) -> Result<Block> {
        let stored = self.bytes().get(..len).ok_or_else(|| bad("no room"))?;
        let parts = Parts::of(stored)?;
        let n = parts.restarts as usize;
        if n * 4 > HEAD_ROOM || parts.restarts_at == 0 || parts.separated {
            return Block::searchable(stored, comparator);
        }
        let mut memory = std::mem::take(&mut self.memory);
        if let Some((head, rest)) =
            Arc::get_mut(&mut memory).and_then(|m| m.split_at_mut_checked(HEAD_ROOM))
        {
            Block::put_restarts(head, rest.get(parts.restarts_at as usize..), n, HEAD_ROOM);
        }
        Block::with_memory(memory, HEAD_ROOM, parts, false)
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        spare::keep(std::mem::take(&mut self.memory));
    }
}

impl Block {
    /// Takes a decompressed block apart. Corruption if its parts do not fit its length.
    pub fn new(stored: &[u8]) -> Result<Self> {
        let parts = Parts::of(stored)?;
        Self::lay_out(stored, parts, false)
    }

    /// Like [`Block::new`], for a block of internal keys in the order of `comparator` that will be
    /// searched: adds prefixes if they are small enough.
    pub fn searchable(stored: &[u8], comparator: &Comparator) -> Result<Self> {
        let parts = Parts::of(stored)?;
        let prefixes = comparator.is_bytewise()
            && parts.entries_end > 0
            && parts.restarts as usize * 8 * BYTES_PER_PREFIX_BYTE <= stored.len();
        let mut block = Self::lay_out(stored, parts, prefixes)?;
        if prefixes {
            block.make_prefixes(comparator)?;
        }
        Ok(block)
    }

    /// Any bytes, for the block cache, and others that help to search them. Errors: there are 4 GiB or more.
    pub(crate) fn raw(head: &[u8], bytes: &[u8]) -> Result<Self> {
        let len = head.len() + bytes.len();
        let len = u32::try_from(len).map_err(|_| bad("longer than 4 GiB"))?;
        let mut memory: Arc<[u8]> = std::iter::repeat_n(0, len as usize).collect();
        if let Some((to, rest)) =
            Arc::get_mut(&mut memory).and_then(|m| m.split_at_mut_checked(head.len()))
        {
            to.copy_from_slice(head);
            rest.copy_from_slice(bytes);
        }
        Ok(Self {
            memory,
            base: head.len() as u32,
            entries_end: len,
            packed: 0,
        })
    }

    /// What [`Block::raw`] was made of.
    pub(crate) fn raw_parts(&self) -> (&[u8], &[u8]) {
        let all = self.memory.get(..self.entries_end as usize);
        all.and_then(|all| all.split_at_checked(self.base as usize))
            .unwrap_or_default()
    }

    /// The numbers of the block, for [`Block::compressed`], and the memory to compress.
    pub(crate) fn for_compression(&self) -> ([u8; SHAPE_LEN], &[u8]) {
        let mut shape = [0; SHAPE_LEN];
        let numbers = [self.base, self.entries_end, self.packed];
        for (to, number) in shape.chunks_exact_mut(4).zip(numbers) {
            to.copy_from_slice(&number.to_le_bytes());
        }
        // A large block may have more memory than it needs.
        let end = if self.packed & SEPARATED != 0 {
            self.memory.len()
        } else {
            self.entries_end as usize
        };
        (shape, self.memory.get(..end).unwrap_or_default())
    }

    /// A block that stands for another one, whose memory was compressed to `payload`. It cannot be searched.
    ///
    /// Errors: there are 4 GiB or more.
    pub(crate) fn compressed(shape: &[u8; SHAPE_LEN], payload: &[u8]) -> Result<Self> {
        let block = Self::raw(shape, payload)?;
        Ok(Self {
            packed: COMPRESSED,
            ..block
        })
    }

    /// What [`Block::compressed`] was made of; `None` for any other block.
    pub(crate) fn compressed_parts(&self) -> Option<(&[u8], &[u8])> {
        (self.packed & COMPRESSED != 0).then(|| self.raw_parts())
    }

    /// The block whose memory of `len` bytes `fill` writes. Errors: those of `fill`.
    pub(crate) fn restore(
        shape: &[u8],
        len: usize,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Self> {
        let mut memory: Arc<[u8]> = std::iter::repeat_n(0, len).collect();
        fill(Arc::get_mut(&mut memory).unwrap_or_default())?; // nobody else has it
        let number = |i: usize| u32_at(shape, i * 4).ok_or_else(|| bad("no numbers"));
        Ok(Self {
            memory,
            base: number(0)?,
            entries_end: number(1)?,
            packed: number(2)?,
        })
    }

    /// Like [`Block::searchable`], for a large block of `len` bytes that `fill` writes: it is not copied if it has few
    /// restart points, as blocks of large values do.
    pub(crate) fn filled(
        len: usize,
        comparator: &Comparator,
        fill: impl FnOnce(&mut [u8]) -> Result<()>,
    ) -> Result<Self> {
        let mut room = Room::new(len);
        fill(room.bytes())?;
        room.into_block(len, comparator)
    }

    /// Leaves the memory to the next large block of this thread, if nobody else has it.
    pub(crate) fn recycle(self) {
        spare::keep(self.memory);
    }

    /// Writes the offsets of the `n` restart points, counted from the start of the memory, to its start.
    fn put_restarts(head: &mut [u8], stored: Option<&[u8]>, n: usize, base: usize) {
        let stored = stored.unwrap_or_default();
        let places = head.chunks_exact_mut(4).zip(stored.chunks_exact(4));
        for (to, from) in places.take(n) {
            let offset = u32_at(from, 0).unwrap_or(u32::MAX);
            to.copy_from_slice(&offset.saturating_add(base as u32).to_le_bytes());
        }
    }

    fn with_memory(memory: Arc<[u8]>, base: usize, parts: Parts, prefixes: bool) -> Result<Self> {
        if u32::try_from(memory.len()).is_err() {
            return Err(bad("longer than 4 GiB"));
        }
        Ok(Self {
            memory,
            base: base as u32,
            entries_end: base as u32 + parts.entries_end,
            packed: parts.restarts
                | if parts.separated { SEPARATED } else { 0 }
                | if prefixes { PREFIXES } else { 0 },
        })
    }

    fn lay_out(stored: &[u8], parts: Parts, prefixes: bool) -> Result<Self> {
        let n = parts.restarts as usize;
        let base = n * 4 + if prefixes { 4 + n * 8 } else { 0 };
        let body = stored.get(..parts.restarts_at as usize).unwrap_or_default();
        if u32::try_from(base + body.len()).is_err() {
            return Err(bad("longer than 4 GiB"));
        }
        let mut memory: Arc<[u8]> = std::iter::repeat_n(0, base + body.len()).collect();
        if let Some((head, rest)) =
            Arc::get_mut(&mut memory).and_then(|m| m.split_at_mut_checked(base))
        {
            rest.copy_from_slice(body);
            Self::put_restarts(head, stored.get(body.len()..), n, base);
        }
        Self::with_memory(memory, base, parts, prefixes)
    }

    /// Fills in the prefixes of the keys at the restart points.
    fn make_prefixes(&mut self, comparator: &Comparator) -> Result<()> {
        let n = self.restarts();
        let user_key = |i| {
            let key = self.restart_key(i)?;
            key::split(key)
                .map(|(user, _)| user)
                .ok_or_else(|| bad("a key is shorter than 8 bytes"))
        };
        let skip = common_prefix(user_key(0)?, user_key(n - 1)?);
        let mut head = Vec::with_capacity(4 + n as usize * 8);
        head.extend_from_slice(&(skip as u32).to_le_bytes());
        for i in 0..n {
            // Sorted keys share the common prefix of the first and the last one. Keys out of order,
            // which only damaged files have, are merely not found.
            let rest = user_key(i)?.get(skip..).unwrap_or_default();
            head.extend_from_slice(&comparator.prefix(rest).to_le_bytes());
        }
        let at = n as usize * 4;
        if let Some(to) =
            Arc::get_mut(&mut self.memory).and_then(|m| m.get_mut(at..at + head.len()))
        {
            to.copy_from_slice(&head);
        }
        Ok(())
    }

    /// Asks for the memory with the restart points.
    pub(crate) fn prefetch_head(&self) {
        prefetch_bytes(&self.memory, 2);
    }

    /// Asks for the memory of entries from the restart point on at which a search for a user key begins, as far as that is
    /// known without other memory.
    pub(crate) fn prefetch_entries(&self, comparator: &Comparator, user: &[u8]) {
        let (lo, _) = self.candidates(comparator, user);
        let at = self.restart(lo.saturating_sub(1)) as usize;
        prefetch_bytes(self.memory.get(at..).unwrap_or_default(), ENTRY_LINES);
    }

    /// The range of restart points whose keys must be compared to find the first one not before a
    /// user key: the keys before the range are before it, the keys after the range are not.
    #[inline]
    fn candidates(&self, comparator: &Comparator, user: &[u8]) -> (u32, u32) {
        let n = self.restarts();
        if self.packed & PREFIXES == 0 {
            return (0, n);
        }
        self.candidates_by_prefix(comparator, user)
            .unwrap_or((0, n))
    }

    #[inline]
    fn candidates_by_prefix(&self, comparator: &Comparator, user: &[u8]) -> Option<(u32, u32)> {
        let n = self.restarts();
        let at = n as usize * 4;
        let skip = u32_at(&self.memory, at)? as usize;
        let mut rest = user;
        if skip > 0 {
            let common = self.restart_key(0).ok()?.get(..skip)?;
            match user.strip_prefix(common) {
                Some(r) => rest = r,
                None if user < common => return Some((0, 0)),
                None => return Some((n, n)),
            }
        }
        let prefix = comparator.prefix(rest);
        let prefixes = self.memory.get(at + 4..self.base as usize)?;
        let (mut before, mut upto) = (0, 0);
        for p in prefixes.chunks_exact(8) {
            let p = u64::from_le_bytes(p.try_into().ok()?);
            before += u32::from(p < prefix);
            upto += u32::from(p <= prefix);
        }
        Some((before, upto))
    }

    /// Bytes that the block occupies in memory.
    pub fn memory(&self) -> usize {
        self.memory.len() + ARC_COUNTS
    }

    /// [`keys_bytes_max`] of this block.
    pub(crate) fn keys_bytes_max(&self) -> usize {
        keys_bytes_max(self.memory.len())
    }

    /// True if there is another reference to the same bytes.
    pub(crate) fn is_shared(&self) -> bool {
        Arc::strong_count(&self.memory) > 1
    }

    /// The entries, or their key parts.
    #[cfg(test)]
    pub(crate) fn entries(&self) -> &[u8] {
        self.memory
            .get(self.base as usize..self.entries_end as usize)
            .unwrap_or_default()
    }

    /// True if the values follow all keys.
    #[inline]
    pub(crate) fn is_separated(&self) -> bool {
        self.packed & SEPARATED != 0
    }

    /// Number of restart points.
    #[inline]
    pub fn restarts(&self) -> u32 {
        self.packed & RESTARTS_MASK
    }

    /// Offset of restart point `i`; beyond every entry if there is no such point.
    #[inline]
    pub(crate) fn restart(&self, i: u32) -> u32 {
        if i >= self.restarts() {
            return u32::MAX;
        }
        u32_at(&self.memory, i as usize * 4).unwrap_or(u32::MAX)
    }

    /// Reads the start of the entry at `at`.
    #[inline]
    fn head(&self, at: u32, is_restart: bool) -> Option<Head> {
        let entry = self.memory.get(at as usize..self.entries_end as usize)?;
        if let [shared, suffix_len, value_len, ..] = *entry
            && (shared | suffix_len | value_len) < 0x80
            && !self.is_separated()
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
        let value_offset = if self.is_separated() && is_restart {
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
        self.suffix(head.suffix_at as usize, head.suffix_len as usize)
            .ok_or_else(|| bad("a key runs over the end"))
    }

    /// `len` bytes of the entries. The memory may be longer than the block, and what follows is anything.
    #[inline]
    fn suffix(&self, from: usize, len: usize) -> Option<&[u8]> {
        let entries = self.memory.get(..self.entries_end as usize)?;
        entries.get(from..from + len)
    }
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a failed test may panic")]
mod tests;
