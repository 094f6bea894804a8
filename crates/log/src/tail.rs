//! The end of the log in memory: bytes not written yet, and the image of the last unit.
//!
//! A buffered file can be written at any length: the unit is 1, and nothing is kept after a write. A
//! direct file can be written in whole units only. So its partial last unit is padded with zeros,
//! stays here after it was written, and is written again with the bytes that follow:
//!
//! ```text
//!            base (multiple of unit)                end of the log
//!   file ────┼── written before ──┼── pending ──────┼─ zeros ─┤ multiple of unit
//!            └──────────────────── one chunk ───────────────┘
//! ```
//!
//! The old and the new image of the last unit both begin with the bytes written before. This is safe
//! only if the device writes a unit atomically, as [`crate::LogOptions::direct_unit`] requires: then
//! the unit holds one image or the other after a crash. A log with [`crate::TailPolicy::Pad`] never
//! has a partial unit here: its caller pads each group to a whole unit.
//!
//! A chunk that is taken to be written owns its bytes. Bytes appended meanwhile go to another buffer:
//! a buffer that the device may be reading is never modified.

use std::io::IoSlice;
use std::ops::{Deref, Range};
use std::sync::Arc;

use base::{Error, Result};
use bytes::Bytes;
use io::{AlignedBuf, File, WriteSync};

use crate::format::{LEGACY_HEADER, RECYCLABLE_HEADER};

/// Capacity in bytes up to which a buffer is kept for reuse; larger ones are freed after their group.
const KEEP_MAX: usize = 4 << 20;
/// How many buffers are kept for the next chunks.
const SPARE_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct Tail {
    /// File offset of `buf`'s first byte.
    base: u64,
    buf: AlignedBuf,
    /// Shared slices that follow `buf` in the file; none of them is in an earlier chunk. If there are
    /// any, each of them and `buf` are whole units.
    behind: Vec<Bytes>,
    /// Bytes in `behind`.
    behind_bytes: usize,
    /// Bytes of `buf` that are in an earlier chunk already.
    written: usize,
    unit: usize,
    /// Minimum number of zeros behind the content, if there are any.
    zeros: usize,
    spare: Vec<AlignedBuf>,
}

/// Bytes to be written to the file: a list of slices.
#[derive(Debug)]
pub struct Chunk {
    /// File offset of the first byte.
    offset: u64,
    buf: Framed,
    /// See [`Tail::behind`].
    behind: Vec<Bytes>,
    /// The part of `buf` that is in no earlier chunk, without the padding at the end.
    fresh: Range<usize>,
}

/// The framed bytes of a chunk.
#[derive(Debug)]
enum Framed {
    /// Owned by the chunk alone.
    Own(AlignedBuf),
    /// Shared with a request that writes them.
    Lent(Arc<AlignedBuf>),
}

impl Framed {
    /// The buffer, unless a request still holds it.
    fn into_buf(self) -> Option<AlignedBuf> {
        match self {
            Self::Own(buf) => Some(buf),
            Self::Lent(buf) => Arc::try_unwrap(buf).ok(),
        }
    }
}

impl Deref for Framed {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(buf) => buf,
            Self::Lent(buf) => buf,
        }
    }
}

/// A shared reference to the bytes of a [`Framed`].
struct Loan(Arc<AlignedBuf>);

impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Bytes that were appended.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// File offset of the first byte.
    pub offset: u64,
    /// The framed bytes.
    pub framed: &'a [u8],
    /// The shared slices that follow them.
    pub behind: &'a [Bytes],
}

fn bytes_in(behind: &[Bytes]) -> usize {
    behind.iter().map(Bytes::len).sum()
}

impl Chunk {
    /// Number of bytes that are written, padding included.
    pub(crate) fn bytes(&self) -> u64 {
        (self.buf.len() + bytes_in(&self.behind)) as u64
    }

    /// File offset at which the chunk is written.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// Shares all of its bytes with a request that will write them.
    pub(crate) fn lend(&mut self) -> Vec<Bytes> {
        let buf = match std::mem::replace(&mut self.buf, Framed::Own(AlignedBuf::new(1))) {
            Framed::Own(buf) => Arc::new(buf),
            Framed::Lent(buf) => buf,
        };
        self.buf = Framed::Lent(Arc::clone(&buf));
        let framed = Bytes::from_owner(Loan(buf));
        std::iter::once(framed)
            .chain(self.behind.iter().cloned())
            .collect()
    }

    /// File offset of the end of the content.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.offset + (self.fresh.end + bytes_in(&self.behind)) as u64
    }

    /// File offset of the first byte that is in no earlier chunk.
    pub(crate) fn fresh_from(&self) -> u64 {
        self.offset + self.fresh.start as u64
    }

    /// The content that is in no earlier chunk; `None` if the chunk is inconsistent.
    pub(crate) fn fresh(&self) -> Option<Content<'_>> {
        Some(Content {
            offset: self.fresh_from(),
            framed: self.buf.get(self.fresh.clone())?,
            behind: &self.behind,
        })
    }

    /// Writes the framed bytes from file offset `from` up to `to`, or to their end if that is less.
    pub(crate) fn write_between(&self, file: &dyn File, from: u64, to: u64) -> Result<()> {
        let end = self.offset + self.buf.len() as u64;
        let to = to.min(end);
        let part = from
            .checked_sub(self.offset)
            .zip(to.checked_sub(self.offset))
            .and_then(|(start, end)| self.buf.get(start as usize..end as usize))
            .ok_or_else(|| {
                let has = format!("a chunk of {}..{end}", self.offset);
                Error::broken(format!("{has} was to be written from {from} to {to}"))
                    .file(file.path())
            })?;
        io::write_all_at(file, part, from, WriteSync::None)
    }

    /// Writes the chunk durably, with an atomic write for the first unit, which holds bytes of earlier
    /// chunks. The bytes behind that unit are written first: until the first unit is written, the log
    /// ends where it did before, with zeros behind; then the whole chunk is there at once. In the other
    /// order, a crash between the two writes would leave a torn record. Of acknowledged bytes, only those
    /// in the first unit are overwritten.
    pub(crate) fn write_atomic(&self, file: &dyn File, unit: usize) -> Result<()> {
        if self.fresh.start == 0 {
            return self.write(file, WriteSync::Dsync);
        }
        let (first, rest) = self.buf.split_at(unit.min(self.buf.len()));
        if !rest.is_empty() {
            let at = self.offset + first.len() as u64;
            io::write_all_at(file, rest, at, WriteSync::Dsync)?;
        }
        let n = file.write_at(first, self.offset, WriteSync::AtomicDsync)?;
        if n < first.len() {
            let what = format!("an atomic write took {n} of {} bytes", first.len());
            return Err(Error::new(base::ErrorKind::IoError, what)
                .file(file.path())
                .offset(self.offset));
        }
        Ok(())
    }

    /// Writes the chunk, in one call unless the system writes less than asked for.
    pub(crate) fn write(&self, file: &dyn File, sync: WriteSync) -> Result<()> {
        if self.behind.is_empty() {
            return io::write_all_at(file, &self.buf, self.offset, sync);
        }
        let slices = std::iter::once(&self.buf[..]).chain(self.behind.iter().map(|b| &b[..]));
        let mut slices: Vec<IoSlice<'_>> = slices.map(IoSlice::new).collect();
        io::write_all_vectored_at(file, &mut slices, self.offset, sync)
    }
}

impl Tail {
    /// The tail of an empty log; `unit` is a power of two.
    pub(crate) fn empty(unit: u32) -> Self {
        Self {
            base: 0,
            buf: AlignedBuf::new(unit as usize),
            behind: Vec::new(),
            behind_bytes: 0,
            written: 0,
            unit: unit as usize,
            zeros: LEGACY_HEADER,
            spare: Vec::new(),
        }
    }

    /// For a file that holds another log's records: keeps at least a header's length of zeros between
    /// the content and those records. Otherwise a reader would parse a header from the middle of an old
    /// record and report damage.
    pub(crate) fn over_old_records(mut self) -> Self {
        self.zeros = RECYCLABLE_HEADER;
        self
    }

    /// Whether the write of a whole unit also writes zeros to the next unit: then two writes in flight
    /// would overwrite each other.
    pub(crate) fn reaches_beyond(&self) -> bool {
        self.zeros > LEGACY_HEADER
    }

    /// The tail of a log that ends at `offset`. Reads the partial last unit, if there is one.
    pub(crate) fn at(offset: u64, unit: u32, file: &dyn File) -> Result<Self> {
        if !unit.is_power_of_two() {
            return Err(Error::invalid_argument(format!(
                "the write unit of a log must be a power of two, not {unit}"
            ))
            .file(file.path()));
        }
        let mut tail = Self::empty(unit);
        let partial = (offset % u64::from(unit)) as usize;
        tail.base = offset - partial as u64;
        if partial > 0 {
            tail.buf.resize(tail.unit)?;
            let n = file.read_at(&mut tail.buf, tail.base)?;
            if n < partial {
                return Err(Error::invalid_argument(format!(
                    "a log cannot go on at offset {offset}: the file ends before"
                ))
                .file(file.path()));
            }
            tail.buf.resize(partial)?;
        }
        tail.written = partial;
        Ok(tail)
    }

    /// File offset of the end of the log.
    #[inline]
    pub(crate) fn end(&self) -> u64 {
        self.base + (self.buf.len() + self.behind_bytes) as u64
    }

    /// True if there is something to write.
    pub(crate) fn is_pending(&self) -> bool {
        self.buf.len() > self.written
    }

    /// The content that is in no chunk yet; `None` if the tail is inconsistent.
    pub(crate) fn pending(&self) -> Option<Content<'_>> {
        Some(Content {
            offset: self.base + self.written as u64,
            framed: self.buf.get(self.written..)?,
            behind: &self.behind,
        })
    }

    /// Bytes that are in no chunk yet.
    pub(crate) fn pending_len(&self) -> usize {
        self.buf.len().saturating_sub(self.written) + self.behind_bytes
    }

    /// Discards the pending bytes from file offset `to` on, and all shared slices with them.
    pub(crate) fn cut_pending(&mut self, to: u64) -> Result<()> {
        let pending = self.base + self.written as u64..=self.end();
        if !pending.contains(&to) {
            let pending = format!("{} to {}", pending.start(), pending.end());
            return Err(Error::broken(format!(
                "a log was to be cut back to {to}, and has {pending} in the process"
            )));
        }
        if to == self.end() {
            return Ok(());
        }
        let keep = (to - self.base) as usize;
        if keep > self.buf.len() {
            return Err(Error::broken(
                "a log was to be cut back into what others have too",
            ));
        }
        self.forget_behind();
        self.buf.resize(keep)
    }

    /// Discards all pending bytes.
    pub(crate) fn clear_pending(&mut self) -> Result<()> {
        self.forget_behind();
        self.buf.resize(self.written)
    }

    fn forget_behind(&mut self) {
        self.behind.clear();
        self.behind_bytes = 0;
    }

    /// Appends shared slices behind the framed bytes; the framed bytes and each slice must be whole units.
    pub(crate) fn push_behind(&mut self, slices: impl IntoIterator<Item = Bytes>) -> Result<()> {
        for slice in slices {
            let whole = |len: usize| len.is_multiple_of(self.unit);
            if !whole(self.buf.len()) || !whole(slice.len()) {
                let (framed, len) = (self.buf.len(), slice.len());
                return Err(Error::broken(format!(
                    "{len} bytes behind {framed} are no whole units of {}",
                    self.unit
                )));
            }
            self.behind_bytes += slice.len();
            self.behind.push(slice);
        }
        Ok(())
    }

    /// The buffer into which records are framed; its next byte has file offset [`Tail::end`].
    pub(crate) fn buf(&mut self) -> &mut AlignedBuf {
        &mut self.buf
    }

    /// Takes everything pending, in whole units.
    pub(crate) fn take(&mut self) -> Result<Chunk> {
        let content = self.buf.len();
        let keep = content % self.unit;
        if self.written > content {
            return Err(Error::broken(format!(
                "of a tail of {content} bytes {} are written",
                self.written
            )));
        }
        let Some(kept) = self.buf.get(content - keep..) else {
            return Err(Error::broken(format!("a tail has no last {keep} bytes")));
        };
        let mut next = self
            .spare
            .pop()
            .unwrap_or_else(|| AlignedBuf::new(self.unit));
        next.extend_from_slice(kept)?;
        // Everything that allocates memory comes before the first change: an error leaves the tail as it was.
        if let Err(e) = self.fill_up(content) {
            self.buf.resize(content)?;
            return Err(e);
        }
        let buf = std::mem::replace(&mut self.buf, next);
        let behind = std::mem::take(&mut self.behind);
        let further = std::mem::take(&mut self.behind_bytes);
        let chunk = Chunk {
            offset: self.base,
            fresh: self.written..content,
            behind,
            buf: Framed::Own(buf),
        };
        self.base += (content - keep + further) as u64;
        self.written = keep;
        Ok(chunk)
    }

    /// Pads the buffer with zeros behind its `content` bytes: to whole units, and with at least
    /// `zeros` of them where they are needed.
    fn fill_up(&mut self, content: usize) -> Result<()> {
        self.buf.pad_to_alignment()?;
        let room = self.buf.len() - content;
        if (1..self.zeros).contains(&room) {
            // At the end of the file, RocksDB's AbsoluteConsistency mode would take
            // fewer zeros than a header for a truncated header.
            self.buf.resize(self.buf.len() + self.unit)?;
        } else if room == 0 && self.reaches_beyond() {
            let zeros = self.zeros.next_multiple_of(self.unit);
            self.buf.resize(content + zeros)?;
        }
        Ok(())
    }

    /// Undoes the last [`Tail::take`]: its bytes are pending again.
    pub(crate) fn restore(&mut self, chunk: Chunk) -> Result<()> {
        let Some(buf) = chunk.buf.into_buf() else {
            return Err(Error::broken("a chunk that others write was to be undone"));
        };
        self.base = chunk.offset;
        self.written = chunk.fresh.start;
        self.buf = buf;
        self.behind_bytes = bytes_in(&chunk.behind);
        self.behind = chunk.behind;
        self.buf.resize(chunk.fresh.end)
    }

    /// Keeps the memory of a finished chunk for a later one.
    pub(crate) fn reuse(&mut self, chunk: Chunk) {
        let Some(mut buf) = chunk.buf.into_buf() else {
            return;
        };
        if buf.capacity() <= KEEP_MAX && self.spare.len() < SPARE_MAX {
            buf.clear();
            self.spare.push(buf);
        }
    }
}
