//! The output file: appends blocks with their trailers, buffered into large writes.

use std::path::Path;
use std::sync::Arc;

use base::{Error, Result};
use io::{File, LargeVec, WriteSync, write_all_at};

use super::meter::{Compression, WriteMeter};
use crate::checksum::{self, ChecksumType};
use crate::handle::BlockHandle;

/// Number of bytes that are buffered before they are written to the file.
const BUFFER_BYTES: usize = 1 << 20;

/// The file to which blocks are written, with its buffer.
#[derive(Debug)]
pub(super) struct Sink {
    file: Arc<dyn File>,
    checksum: ChecksumType,
    /// See [`checksum::context`].
    base_context: u32,
    /// Bytes not written yet; `buffer_at` is their offset in the file.
    buffer: LargeVec<u8>,
    buffer_at: u64,
    /// Counts of compression.
    pub(super) compression: Compression,
    meter: WriteMeter,
    /// A write failed; the table cannot be completed.
    failed: bool,
}

impl Sink {
    pub(super) fn new(
        file: Arc<dyn File>,
        checksum: ChecksumType,
        base_context: u32,
        meter: WriteMeter,
    ) -> Self {
        Self {
            file,
            checksum,
            base_context,
            buffer: LargeVec::with_capacity(BUFFER_BYTES + BUFFER_BYTES / 8),
            buffer_at: 0,
            compression: Compression::default(),
            meter,
            failed: false,
        }
    }

    pub(super) fn path(&self) -> &Path {
        self.file.path()
    }

    /// File offset of the next byte.
    pub(super) fn offset(&self) -> u64 {
        self.buffer_at + self.buffer.len() as u64
    }

    /// File offset up to which bytes are written.
    pub(super) fn written(&self) -> u64 {
        self.buffer_at
    }

    /// Appends a block in its stored form, and its trailer.
    pub(super) fn block(&mut self, stored: &[u8], type_byte: u8) -> Result<BlockHandle> {
        let sum = checksum::block_checksum(self.checksum, stored, type_byte);
        self.summed_block(stored, type_byte, sum)
    }

    /// Like [`Sink::block`], with a checksum that was computed before, without its context.
    pub(super) fn summed_block(
        &mut self,
        stored: &[u8],
        type_byte: u8,
        sum: u32,
    ) -> Result<BlockHandle> {
        let timer = self.meter.timer();
        let handle = BlockHandle {
            offset: self.offset(),
            size: stored.len() as u64,
        };
        let context = checksum::context(self.base_context, handle.offset);
        if stored.len() < BUFFER_BYTES {
            self.buffer.extend_from_slice(stored);
        } else {
            self.flush()?;
            self.write(stored)?;
        }
        self.buffer.push(type_byte);
        let sum = sum.wrapping_add(context);
        self.buffer.extend_from_slice(&sum.to_le_bytes());
        if self.buffer.len() >= BUFFER_BYTES {
            self.flush()?;
        }
        self.meter.block(timer);
        Ok(handle)
    }

    /// Appends zeros up to a multiple of `alignment`.
    pub(super) fn pad(&mut self, alignment: u64) {
        let missing = self.offset().next_multiple_of(alignment) - self.offset();
        self.buffer.resize(self.buffer.len() + missing as usize, 0);
    }

    /// Appends bytes that are no block.
    pub(super) fn raw(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// Writes the buffered bytes.
    pub(super) fn flush(&mut self) -> Result<()> {
        let buffer = std::mem::replace(&mut self.buffer, LargeVec::new());
        let written = self.write(&buffer);
        self.buffer = buffer;
        self.buffer.clear();
        written
    }

    /// Writes bytes at the offset of the buffer.
    fn write(&mut self, bytes: &[u8]) -> Result<()> {
        let timer = self.meter.timer();
        let written = write_all_at(&*self.file, bytes, self.buffer_at, WriteSync::None);
        self.failed |= written.is_err();
        written?;
        self.meter.written(bytes.len() as u64, timer);
        self.buffer_at += bytes.len() as u64;
        Ok(())
    }

    pub(super) fn check_usable(&self) -> Result<()> {
        if self.failed {
            return Err(
                Error::aborted("an earlier write to the table failed").file(self.file.path())
            );
        }
        Ok(())
    }
}
