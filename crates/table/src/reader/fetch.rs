//! Fetches the block of a handle: reads, verifies and decompresses it.
//!
//! ```text
//!   stored:  size bytes (perhaps compressed) | u8 compression | u32 checksum
//! ```
#![deny(clippy::indexing_slicing)]

use std::borrow::Cow;
use std::cell::Cell;
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
use crate::index::{self, Encoding};

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
pub(super) const AT_HAND_MAX: usize = 256 << 10;

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

/// The bytes of a file to read for a block, or for several in a row: the blocks with their trailers, and what direct I/O needs
/// around them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Offset in the file.
    pub offset: u64,
    /// How many bytes to read. The file may end before, but not before the block does.
    pub len: usize,
    /// Where the first block begins in them.
    pub(super) skip: usize,
    /// The length of the blocks with their trailers.
    pub(super) stored: usize,
}

impl Span {
    /// The blocks with their trailers, in the bytes that were read.
    pub(super) fn stored_in<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        bytes.get(self.skip..self.end_of_stored())
    }

    /// How many of the bytes must be read at least.
    pub(super) fn end_of_stored(&self) -> usize {
        self.skip + self.stored
    }
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
    pub(super) fn stored_len(&self, handle: BlockHandle) -> Result<usize> {
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

    /// The partitions that the top level with these bytes names.
    pub(super) fn partitions(
        &self,
        top: BlockHandle,
        bytes: &[u8],
        encoding: Encoding,
    ) -> Result<Vec<BlockHandle>> {
        let parts = index::handles(bytes, encoding.of_top_level());
        let checked = parts.and_then(|parts| {
            self.check_partitions(&parts)?;
            Ok(parts)
        });
        checked.map_err(|e| self.locate(e, top))
    }

    /// Refuses partitions that are together larger than the file: those of a valid table do not
    /// overlap. This also bounds how much is read.
    pub(super) fn check_partitions(&self, handles: &[BlockHandle]) -> Result<()> {
        let total = handles.iter().fold(0u64, |n, h| n.saturating_add(h.size));
        if total > self.end {
            return Err(Error::corruption("partitions are larger than the file"));
        }
        Ok(())
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

    /// A meta block as `keep` makes it of its bytes, verified and decompressed. With `AT_HAND`, `None` if the device would have
    /// to be waited for.
    pub(super) fn kept_block<const AT_HAND: bool>(
        &self,
        handle: BlockHandle,
        how: Read,
        keep: impl FnOnce(&[u8]) -> Result<Block>,
    ) -> Result<Option<Block>> {
        let read = || {
            let len = self.stored_len(handle)?;
            if AT_HAND && len > AT_HAND_MAX {
                return Ok(None);
            }
            let mut scratch = Scratch::take(len);
            let bytes = scratch.bytes();
            if !AT_HAND {
                self.read(bytes, handle.offset, how)?;
            } else if !self.read_at_hand(bytes, handle.offset, how)? {
                return Ok(None);
            }
            keep(&self.decode(bytes, handle, Role::Meta, true)?).map(Some)
        };
        read().map_err(|e| self.locate(e, handle))
    }

    /// A meta block as `keep` makes it of its bytes, in the bytes that are stored in the file.
    pub(super) fn kept_in(
        &self,
        stored: Option<&[u8]>,
        handle: BlockHandle,
        keep: impl FnOnce(&[u8]) -> Result<Block>,
    ) -> Result<Block> {
        let stored = stored.ok_or_else(cut_short);
        let kept =
            stored.and_then(|stored| keep(&self.decode(stored, handle, Role::Meta, true)?));
        kept.map_err(|e| self.locate(e, handle))
    }

    /// Reads bytes that the page cache has, or returns false.
    pub(super) fn read_at_hand(&self, bytes: &mut [u8], offset: u64, how: Read) -> Result<bool> {
        let timer = self.meter.block_timer();
        let at_hand = self.file.read_cached_at(bytes, offset)?;
        if at_hand {
            self.meter.was_read(bytes.len() as u64, how.activity, timer);
            self.meter.charge(bytes.len() as u64, how.priority);
        }
        Ok(at_hand)
    }

    /// Whether the block is in the bytes of [`Fetch::set_tail`].
    pub(crate) fn is_in_tail(&self, handle: BlockHandle) -> bool {
        handle.offset >= self.tail_at
    }

    /// Reads, verifies and decompresses a data block.
    pub(super) fn data_block(
        &self,
        handle: BlockHandle,
        comparator: &Comparator,
        how: Read,
    ) -> Result<Block> {
        let read = || {
            let len = self.stored_len(handle)?;
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
        let read = || {
            let len = self.stored_len(handle)?;
            if len > AT_HAND_MAX {
                return Ok(None);
            }
            self.read_and_open(len, (handle, comparator, how.verify), |bytes| {
                self.read_at_hand(bytes, handle.offset, how)
            })
        };
        read().map_err(|e| self.locate(e, handle))
    }

    /// What to read for a block. Errors: it does not lie inside the file.
    pub(crate) fn span(&self, handle: BlockHandle) -> Result<Span> {
        let stored = self
            .stored_len(handle)
            .map_err(|e| self.locate(e, handle))?;
        Ok(self.span_of(handle.offset, stored))
    }

    /// What to read for so many bytes from an offset on.
    pub(super) fn span_of(&self, offset: u64, stored: usize) -> Span {
        let unit = self.file.read_alignment();
        let skip = (offset % unit as u64) as usize;
        Span {
            offset: offset - skip as u64,
            len: (skip + stored).next_multiple_of(unit),
            skip,
            stored,
        }
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
        let opened = span
            .stored_in(bytes)
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
    pub(super) fn open(
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

    pub(super) fn meter(&self) -> &ReadMeter {
        &self.meter
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
pub(super) fn cut_short() -> Error {
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
