//! Fetches the block of a handle: reads, verifies and decompresses it.
//!
//! ```text
//!   stored:  size bytes (perhaps compressed) | u8 compression | u32 checksum
//! ```
#![deny(clippy::indexing_slicing)]

use std::borrow::Cow;
use std::cell::Cell;
use std::ops::Range;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::coding::u32_at;
use base::stats::Activity;
use base::{Comparator, Error, Result};
use io::{File, IoPriority, LargeVec};

use super::ReadOptions;
use super::meter::ReadMeter;
use crate::block::{Block, Room};
use crate::checksum::{self, ChecksumType};
use crate::compress::{self, CompressionType};
use crate::footer::{BLOCK_TRAILER_LEN, Footer};
use crate::handle::BlockHandle;
use crate::options::TableOptions;

/// The file from which blocks are read, and the parameters to verify and decode them.
#[derive(Debug)]
pub(crate) struct Fetch {
    pub(crate) file: Arc<dyn File>,
    meter: ReadMeter,
    /// The purpose of reads of meta blocks.
    activity: Activity,
    /// Blocks, with their trailers, end at or before this offset.
    end: u64,
    checksum: ChecksumType,
    base_context: u32,
    format_version: u32,
    /// For data blocks only; empty if the table has none.
    pub(crate) dictionary: Vec<u8>,
    /// The end of the file, kept while the table is being opened.
    tail: Vec<u8>,
    tail_at: u64,
    /// Whether the last large data block was not compressed: the next one is then read into its final place.
    plain: AtomicBool,
}

/// Maximum size in bytes of the scratch memory that a thread keeps.
const SCRATCH_BYTES_MAX: usize = 4 << 20;

/// Larger blocks, in bytes, are read from the device even if the page cache may have them: asking needs memory for them.
const AT_HAND_MAX: usize = 256 << 10;

/// Blocks from this size in bytes on are read or decompressed into their final place.
const IN_PLACE_MIN: usize = 32 << 10;

thread_local! {
    /// The buffer into which this thread reads stored blocks.
    static SCRATCH: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The buffer of this thread, until it is dropped.
struct Scratch {
    buffer: Vec<u8>,
    len: usize,
}

impl Scratch {
    /// With room for `len` bytes.
    #[inline]
    fn take(len: usize) -> Self {
        let mut buffer = SCRATCH.take();
        if buffer.len() < len {
            buffer.resize(len, 0);
        }
        Self { buffer, len }
    }

    #[inline]
    fn bytes(&mut self) -> &mut [u8] {
        self.buffer.get_mut(..self.len).unwrap_or_default()
    }
}

impl Drop for Scratch {
    #[inline]
    fn drop(&mut self) {
        if self.buffer.len() <= SCRATCH_BYTES_MAX {
            // A thread that ends has no buffer to keep.
            SCRATCH
                .try_with(|slot| slot.set(std::mem::take(&mut self.buffer)))
                .ok();
        }
    }
}

/// How a data block is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Read {
    /// Whether its checksum is verified.
    pub(crate) verify: bool,
    pub(crate) activity: Activity,
    /// The priority for the rate limiter; `None` bypasses it.
    pub(crate) priority: Option<IoPriority>,
}

impl From<ReadOptions> for Read {
    #[inline]
    fn from(options: ReadOptions) -> Self {
        Self {
            verify: options.verify_checksums,
            activity: options.activity,
            priority: options.rate_limiter_priority,
        }
    }
}

/// The bytes of a file to read for a block: the block with its trailer, and what direct I/O needs around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset in the file.
    pub offset: u64,
    /// How many bytes to read. The file may end before, but not before the block does.
    pub len: usize,
    /// Where the block begins in them.
    pub(super) skip: usize,
    /// The length of the block with its trailer.
    pub(super) stored: usize,
}

/// The kind of a block, as far as it matters for decompression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// Decompressed with the dictionary, if there is one.
    Data,
    /// Index, properties and the like.
    Meta,
}

impl Fetch {
    pub(crate) fn new(
        file: Arc<dyn File>,
        footer: &Footer,
        end: u64,
        (meter, activity): (ReadMeter, Activity),
    ) -> Self {
        Self {
            file,
            meter,
            activity,
            end,
            checksum: footer.checksum_type,
            base_context: footer.base_context,
            format_version: footer.format_version,
            dictionary: Vec::new(),
            tail: Vec::new(),
            tail_at: u64::MAX,
            plain: AtomicBool::new(false),
        }
    }

    /// Sets bytes from the end of the file, from which blocks are taken without another read.
    pub(crate) fn set_tail(&mut self, tail: Vec<u8>, at: u64) {
        self.tail = tail;
        self.tail_at = at;
    }

    /// Drops the bytes of [`Fetch::set_tail`].
    pub(crate) fn drop_tail(&mut self) {
        self.tail = Vec::new();
        self.tail_at = u64::MAX;
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// End of the blocks in the file.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// Length in bytes of a block with its trailer. Errors: it does not lie inside the file.
    fn stored_len(&self, handle: BlockHandle) -> Result<usize> {
        let len = handle.size.checked_add(BLOCK_TRAILER_LEN);
        let end = len.and_then(|n| handle.offset.checked_add(n));
        match (len, end) {
            (Some(len), Some(end)) if end <= self.end => Ok(len as usize),
            _ => Err(Error::corruption(format!(
                "a block of {} bytes here would not lie inside the file",
                handle.size
            ))),
        }
    }

    /// Adds file and offset to an error about a block.
    pub(crate) fn locate(&self, e: Error, handle: BlockHandle) -> Error {
        let e = e.or_file(self.path());
        if e.at().is_some() {
            e
        } else {
            e.offset(handle.offset)
        }
    }

    /// Reads, verifies and decompresses a meta block.
    pub(crate) fn meta_block(&self, handle: BlockHandle) -> Result<LargeVec<u8>> {
        let read = || {
            let mut stored = self.stored(handle)?;
            let opened = self.decode(&stored, handle, Role::Meta, true)?;
            if let Cow::Owned(bytes) = opened {
                return Ok(LargeVec::from(&*bytes));
            }
            stored.truncate(handle.size as usize);
            Ok(stored)
        };
        read().map_err(|e| self.locate(e, handle))
    }

    /// Reads, verifies and decompresses a data block, from `ahead` if it is there.
    pub(crate) fn data_block(
        &self,
        handle: BlockHandle,
        comparator: &Comparator,
        how: Read,
        ahead: Option<&mut ReadAhead>,
    ) -> Result<Block> {
        let read = || {
            let len = self.stored_len(handle)?;
            let open = |stored: &[u8]| self.open(stored, handle, comparator, how.verify);
            if let Some(ahead) = ahead
                && let Some(stored) = self.read_ahead(handle, len, ahead, how)?
            {
                return open(stored);
            }
            let block = self.read_and_open(len, (handle, comparator, how.verify), |bytes| {
                self.read(bytes, handle.offset, how).map(|()| true)
            })?;
            block.ok_or_else(cut_short)
        };
        read().map_err(|e| self.locate(e, handle))
    }

    /// A data block, if it can be read without waiting for the device.
    pub(crate) fn data_block_at_hand(
        &self,
        handle: BlockHandle,
        comparator: &Comparator,
        how: Read,
    ) -> Result<Option<Block>> {
        let timer = self.meter.block_timer();
        let read = || {
            let len = self.stored_len(handle)?;
            if len > AT_HAND_MAX {
                return Ok(None);
            }
            self.read_and_open(len, (handle, comparator, how.verify), |bytes| {
                let at_hand = self.file.read_cached_at(bytes, handle.offset)?;
                if at_hand {
                    self.meter.was_read(len as u64, how.activity, timer);
                    self.meter.charge(len as u64, how.priority);
                }
                Ok(at_hand)
            })
        };
        read().map_err(|e| self.locate(e, handle))
    }

    /// What to read for a block. Errors: it does not lie inside the file.
    pub(crate) fn span(&self, handle: BlockHandle) -> Result<Span> {
        let stored = self
            .stored_len(handle)
            .map_err(|e| self.locate(e, handle))?;
        let unit = self.file.read_alignment();
        let skip = (handle.offset % unit as u64) as usize;
        Ok(Span {
            offset: handle.offset - skip as u64,
            len: (skip + stored).next_multiple_of(unit),
            skip,
            stored,
        })
    }

    /// The data block in the bytes of its [`Span`].
    pub(crate) fn open_span(
        &self,
        span: Span,
        bytes: &[u8],
        handle: BlockHandle,
        comparator: &Comparator,
        verify: bool,
    ) -> Result<Block> {
        let stored = bytes.get(span.skip..span.skip + span.stored);
        let opened = stored
            .ok_or_else(cut_short)
            .and_then(|stored| self.open(stored, handle, comparator, verify));
        opened.map_err(|e| self.locate(e, handle))
    }

    /// A data block of `len` bytes with its trailer, which `read` reads, if it returns true. A large one that is probably not
    /// compressed is read into its final place.
    fn read_and_open(
        &self,
        len: usize,
        (handle, comparator, verify): (BlockHandle, &Comparator, bool),
        read: impl FnOnce(&mut [u8]) -> Result<bool>,
    ) -> Result<Option<Block>> {
        if len < IN_PLACE_MIN || !self.plain.load(Ordering::Relaxed) {
            let mut scratch = Scratch::take(len);
            if !read(scratch.bytes())? {
                return Ok(None);
            }
            let block = self.open(scratch.bytes(), handle, comparator, verify);
            return block.map(Some);
        }
        let mut room = Room::new(len);
        if !read(room.bytes())? {
            return Ok(None);
        }
        let stored = room.bytes();
        let block = match self.verified(stored, handle, verify)? {
            (payload, Some(kind)) => self.decompressed(payload, kind, comparator),
            (payload, None) => {
                let len = payload.len();
                room.into_block(len, comparator)
            }
        };
        block.map(Some)
    }

    /// The data block in stored bytes.
    fn open(
        &self,
        stored: &[u8],
        handle: BlockHandle,
        comparator: &Comparator,
        verify: bool,
    ) -> Result<Block> {
        let (payload, kind) = self.verified(stored, handle, verify)?;
        if let Some(kind) = kind {
            return self.decompressed(payload, kind, comparator);
        }
        if payload.len() < IN_PLACE_MIN {
            return Block::searchable(payload, comparator);
        }
        if !self.plain.load(Ordering::Relaxed) {
            self.plain.store(true, Ordering::Relaxed);
        }
        Block::filled(payload.len(), comparator, |out| {
            out.copy_from_slice(payload);
            Ok(())
        })
    }

    /// The data block in a compressed payload.
    fn decompressed(
        &self,
        payload: &[u8],
        kind: CompressionType,
        comparator: &Comparator,
    ) -> Result<Block> {
        if self.plain.load(Ordering::Relaxed) {
            self.plain.store(false, Ordering::Relaxed);
        }
        let size = compress::size_in_place(kind, payload, self.format_version)?;
        if let Some(size) = size.filter(|&size| size >= IN_PLACE_MIN) {
            return Block::filled(size, comparator, |out| {
                let into = || compress::decompress_into(kind, payload, &self.dictionary, out);
                self.meter.decompress(payload.len(), into, |()| size)
            });
        }
        Block::searchable(&self.decompress(kind, payload, Role::Data)?, comparator)
    }

    /// The stored bytes of a block, trailer included.
    pub(crate) fn stored(&self, handle: BlockHandle) -> Result<LargeVec<u8>> {
        let len = self.stored_len(handle)?;
        if let Some(from) = handle.offset.checked_sub(self.tail_at)
            && let Some(bytes) = self.tail.get(from as usize..from as usize + len)
        {
            return Ok(LargeVec::from(bytes));
        }
        let mut stored = LargeVec::new();
        stored.resize(len, 0);
        let how = Read {
            verify: true,
            activity: self.activity,
            priority: None,
        };
        self.read(&mut stored, handle.offset, how)?;
        Ok(stored)
    }

    fn read(&self, bytes: &mut [u8], offset: u64, how: Read) -> Result<()> {
        self.meter.charge(bytes.len() as u64, how.priority);
        self.meter.read(&*self.file, bytes, offset, how.activity)
    }

    /// Waits until the bytes may be read. To be called before a read that [`Fetch::read`] does not do.
    pub(crate) fn charge(&self, span: Span, how: Read) {
        self.meter.charge(span.stored as u64, how.priority);
    }

    /// The stored bytes of a block from `ahead`, after filling it if necessary; `None` if the block
    /// should be read alone.
    fn read_ahead<'a>(
        &self,
        handle: BlockHandle,
        len: usize,
        ahead: &'a mut ReadAhead,
        how: Read,
    ) -> Result<Option<&'a [u8]>> {
        if !ahead.has(handle.offset, len) {
            let want = ahead.plan(handle.offset, len, self.end);
            if want <= len {
                return Ok(None);
            }
            if let Some(soon) = ahead.tell(handle.offset, want, self.end) {
                self.file.advise(io::Advice::WillNeed {
                    offset: soon.start,
                    len: soon.end - soon.start,
                });
            }
            ahead.bytes.resize(want, 0);
            ahead.at = handle.offset;
            if let Err(e) = self.read(&mut ahead.bytes, handle.offset, how) {
                ahead.bytes.clear();
                return Err(e);
            }
        }
        Ok(ahead.find(handle.offset, len))
    }

    /// Verifies and decompresses stored bytes; borrows them if they are not compressed.
    pub(crate) fn decode<'a>(
        &self,
        stored: &'a [u8],
        handle: BlockHandle,
        role: Role,
        verify: bool,
    ) -> Result<Cow<'a, [u8]>> {
        let (payload, kind) = self.verified(stored, handle, verify)?;
        match kind {
            None => Ok(Cow::Borrowed(payload)),
            Some(kind) => self.decompress(kind, payload, role).map(Cow::Owned),
        }
    }

    /// The payload in stored bytes, verified, and its codec; `None` if it is not compressed.
    fn verified<'a>(
        &self,
        stored: &'a [u8],
        handle: BlockHandle,
        verify: bool,
    ) -> Result<(&'a [u8], Option<CompressionType>)> {
        let size = handle.size as usize;
        let (Some(payload), Some(&type_byte)) = (stored.get(..size), stored.get(size)) else {
            return Err(cut_short());
        };
        if verify {
            self.meter
                .checksum(|| self.verify(payload, type_byte, stored, handle))?;
        }
        if type_byte == 0 {
            return Ok((payload, None));
        }
        let kind = CompressionType::from_u8(type_byte).ok_or_else(|| unknown_type(type_byte))?;
        Ok((payload, Some(kind)))
    }

    fn decompress(&self, kind: CompressionType, payload: &[u8], role: Role) -> Result<Vec<u8>> {
        let dictionary: &[u8] = match role {
            Role::Data => &self.dictionary,
            Role::Meta => &[],
        };
        let decompress = || compress::decompress(kind, payload, self.format_version, dictionary);
        self.meter.decompress(payload.len(), decompress, Vec::len)
    }

    fn verify(&self, payload: &[u8], type_byte: u8, stored: &[u8], at: BlockHandle) -> Result<()> {
        if self.checksum == ChecksumType::None {
            return Ok(());
        }
        let found = checksum::block_checksum(self.checksum, payload, type_byte)
            .wrapping_add(checksum::context(self.base_context, at.offset));
        let expected = u32_at(stored, payload.len() + 1).unwrap_or_default();
        if found == expected {
            return Ok(());
        }
        Err(Error::corruption(format!(
            "block checksum mismatch: stored {expected:#010x}, computed {found:#010x}, \
             block of {} bytes",
            payload.len()
        )))
    }
}

#[cold]
fn cut_short() -> Error {
    Error::corruption("a block is cut short")
}

#[cold]
fn unknown_type(b: u8) -> Error {
    if b >= 0x80 {
        return Error::not_supported(format!(
            "a block compressed by a custom compression manager (type {b:#04x})"
        ));
    }
    Error::corruption(format!("a block has the unknown compression type {b:#04x}"))
}

/// When and how much iterators read ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAheadSizes {
    /// Bytes of the first read-ahead; 0 turns it off.
    pub initial: usize,
    /// Largest read-ahead; 0 turns it off.
    pub max: usize,
    /// Number of consecutive reads after which it starts.
    pub after: u64,
    /// Bytes after each read that the operating system is advised to read ahead; 0 is none.
    pub told: u64,
}

/// Bytes per read of a steady read-ahead: small enough for the CPU cache.
const STEADY_BYTES: usize = 256 << 10;

impl ReadAheadSizes {
    /// Reads `bytes` ahead from the first block on: the operating system reads them into the page
    /// cache, from where they are copied in smaller pieces.
    pub(crate) fn steady(bytes: usize) -> Self {
        let at_once = bytes.min(STEADY_BYTES);
        Self {
            initial: at_once,
            max: at_once,
            after: 0,
            told: if bytes > at_once { bytes as u64 } else { 0 },
        }
    }
}

impl Default for ReadAheadSizes {
    /// RocksDB's defaults.
    fn default() -> Self {
        Self {
            initial: 8 << 10,
            max: 256 << 10,
            after: 2,
            told: 0,
        }
    }
}

impl From<&TableOptions> for ReadAheadSizes {
    fn from(o: &TableOptions) -> Self {
        Self {
            initial: o.initial_auto_readahead_size as usize,
            max: o.max_auto_readahead_size as usize,
            after: o.num_file_reads_for_auto_readahead,
            told: 0,
        }
    }
}

/// The read-ahead of one iterator: bytes read at once for the blocks to come.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    sizes: ReadAheadSizes,
    bytes: LargeVec<u8>,
    /// Offset of `bytes` in the file.
    at: u64,
    /// File offset at which a read would continue the last one.
    expected: u64,
    consecutive: u64,
    next_size: usize,
    /// The range that the operating system was last advised to read.
    told: Range<u64>,
}

impl ReadAhead {
    pub(crate) fn new(sizes: ReadAheadSizes) -> Self {
        Self {
            sizes,
            bytes: LargeVec::new(),
            at: 0,
            expected: u64::MAX,
            consecutive: 0,
            next_size: sizes.initial,
            told: 0..0,
        }
    }

    /// The range to advise the operating system to read, before `len` bytes at `offset` are read:
    /// everything ahead, once half of the range advised before is used up; `None` until then.
    fn tell(&mut self, offset: u64, len: usize, end: u64) -> Option<Range<u64>> {
        let (ahead, read_to) = (self.sizes.told, offset + len as u64);
        if ahead == 0 {
            return None;
        }
        let known = self.told.contains(&offset);
        if known && read_to + ahead / 2 <= self.told.end {
            return None;
        }
        let from = if known { self.told.end } else { offset };
        let to = read_to.saturating_add(ahead).min(end);
        self.told = offset..to;
        (from < to).then_some(from..to)
    }

    fn has(&self, offset: u64, len: usize) -> bool {
        self.range(offset, len).is_some()
    }

    fn range(&self, offset: u64, len: usize) -> Option<Range<usize>> {
        let from = usize::try_from(offset.checked_sub(self.at)?).ok()?;
        let end = from.checked_add(len)?;
        (end <= self.bytes.len()).then_some(from..end)
    }

    fn find(&mut self, offset: u64, len: usize) -> Option<&[u8]> {
        let range = self.range(offset, len)?;
        self.expected = offset + len as u64;
        self.bytes.get(range)
    }

    /// How many bytes to read for a block of `len` bytes at `offset` that is not buffered.
    fn plan(&mut self, offset: u64, len: usize, end: u64) -> usize {
        if offset == self.expected {
            self.consecutive += 1;
        } else {
            self.consecutive = 1;
            self.next_size = self.sizes.initial;
        }
        self.expected = offset + len as u64;
        if self.consecutive <= self.sizes.after || self.sizes.max == 0 || self.sizes.initial == 0 {
            return len;
        }
        let size = self.next_size.min(self.sizes.max);
        self.next_size = (size * 2).min(self.sizes.max);
        // `len` lies inside the file, so the limit is not below it.
        let limit = usize::try_from(end - offset).unwrap_or(usize::MAX);
        size.max(len).min(limit)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_told_before_it_is_asked() {
        const MIB: u64 = 1 << 20;
        let end = 5 * MIB;
        let mut ahead = ReadAhead::new(ReadAheadSizes::steady(2 << 20));
        let (mut at, mut told) = (0, Vec::new());
        while at < end {
            let n = ahead.plan(at, 4096, end);
            if let Some(range) = ahead.tell(at, n, end) {
                assert!(
                    told.last()
                        .is_none_or(|l: &Range<u64>| l.end == range.start)
                );
                told.push(range);
            }
            at += n as u64;
            let known = told.last().unwrap().end;
            assert!(known == end || known >= at + MIB, "{at}: {told:?}");
        }
        assert_eq!(told.last().unwrap().end, end);
        assert!(told.len() <= 5, "{told:?}");
        // A read elsewhere: advised again.
        assert_eq!(ahead.tell(MIB, 4096, end).unwrap().start, MIB);
        let mut small = ReadAhead::new(ReadAheadSizes::steady(64 << 10));
        assert_eq!(small.tell(0, 64 << 10, end), None);
    }
}
