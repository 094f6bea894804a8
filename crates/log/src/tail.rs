//! The end of the log in memory: what is not written yet, and the image of the last unit.
//!
//! A buffered file takes bytes as they come: the unit is 1, and nothing is kept after a write. A
//! direct file takes whole units only, so the partial last one stays here after it was written,
//! zeros behind the content, and is written again with what follows:
//!
//! ```text
//!            base (multiple of unit)                end of the log
//!   file ────┼── written before ──┼── pending ──────┼─ zeros ─┤ multiple of unit
//!            └──────────────────── one chunk ───────────────┘
//! ```
//!
//! The old and the new image of the last unit share the bytes written before, so any mix of them
//! that a torn write leaves has those bytes: this needs units that the device writes as a whole
//! or not at all, which is what [`crate::LogOptions::direct_unit`] asks for. A log whose policy is
//! to pad never has a partial unit here: its caller fills each group up to a whole one.
//!
//! A chunk that is taken to be written owns its bytes. What is appended meanwhile goes to another
//! buffer: nothing that a device may be reading is ever changed.

use std::io::IoSlice;
use std::ops::{Deref, Range};
use std::sync::Arc;

use base::{Error, Result};
use bytes::Bytes;
use io::{AlignedBuf, File, WriteSync};

use crate::format::{LEGACY_HEADER, RECYCLABLE_HEADER};

/// Memory that is kept between groups; a larger buffer goes back after its group.
const KEEP_MAX: usize = 4 << 20;
/// Buffers that are kept for the next chunks.
const SPARE_MAX: usize = 8;

#[derive(Debug)]
pub(crate) struct Tail {
    /// File offset of `buf`'s first byte.
    base: u64,
    buf: AlignedBuf,
    /// What lies behind `buf` and belongs to others too; nothing of it is in an earlier chunk. All of
    /// it, and `buf`, is whole units.
    behind: Vec<Bytes>,
    /// Bytes in `behind`.
    behind_bytes: usize,
    /// Bytes of `buf` that are in an earlier chunk already.
    written: usize,
    unit: usize,
    /// Zeros that lie behind the content at least, if there are any.
    zeros: usize,
    spare: Vec<AlignedBuf>,
}

/// Bytes on their way to the file: a list of slices.
#[derive(Debug)]
pub struct Chunk {
    /// Where they go in the file.
    offset: u64,
    buf: Framed,
    /// See [`Tail::behind`].
    behind: Vec<Bytes>,
    /// The part of `buf` that is in no earlier chunk, without the zeros at the end.
    fresh: Range<usize>,
}

/// The framed bytes of a chunk.
#[derive(Debug)]
enum Framed {
    /// Its own.
    Own(AlignedBuf),
    /// Somebody writes from them too.
    Lent(Arc<AlignedBuf>),
}

impl Framed {
    /// The buffer, unless somebody has it still.
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

/// What is lent of a [`Framed`].
struct Loan(Arc<AlignedBuf>);

impl AsRef<[u8]> for Loan {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// Bytes that were appended.
#[derive(Clone, Copy, Debug)]
pub struct Content<'a> {
    /// Where the first lies in the file.
    pub offset: u64,
    /// What was framed.
    pub framed: &'a [u8],
    /// What lies behind it.
    pub behind: &'a [Bytes],
}

fn bytes_in(behind: &[Bytes]) -> usize {
    behind.iter().map(Bytes::len).sum()
}

impl Chunk {
    /// How many bytes go to the device.
    pub(crate) fn bytes(&self) -> u64 {
        (self.buf.len() + bytes_in(&self.behind)) as u64
    }

    /// Where it goes in the file.
    pub(crate) fn offset(&self) -> u64 {
        self.offset
    }

    /// All of it, for somebody else to write.
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
    pub(crate) fn end(&self) -> u64 {
        self.offset + (self.fresh.end + bytes_in(&self.behind)) as u64
    }

    /// File offset of the first byte that is in no earlier chunk.
    pub(crate) fn fresh_from(&self) -> u64 {
        self.offset + self.fresh.start as u64
    }

    /// What is in no earlier chunk; `None` if the chunk does not have what it says.
    pub(crate) fn fresh(&self) -> Option<Content<'_>> {
        Some(Content {
            offset: self.fresh_from(),
            framed: self.buf.get(self.fresh.clone())?,
            behind: &self.behind,
        })
    }

    /// Writes what of the framed bytes lies at `from` and behind, up to `to` or the end.
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

    /// Writes it durably, and the first unit, which holds bytes of earlier chunks, as a whole or not
    /// at all. What lies behind that unit goes first: until the unit is there, the log ends where it
    /// did, with zeros behind, and with it the whole chunk is there. The other way round, a crash
    /// between the two would leave a torn record; and nothing acknowledged lies in either part but
    /// in the unit.
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

    /// Writes it, in one call unless the system takes less.
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

    /// The file holds another log's records: a header of zeros always lies between the content and
    /// them. Without it a reader would look for a header in the middle of an old record, and take
    /// what it finds for damage.
    pub(crate) fn over_old_records(mut self) -> Self {
        self.zeros = RECYCLABLE_HEADER;
        self
    }

    /// Whether the write of a whole unit reaches into the next one, with zeros: two writes that are
    /// out at once would overwrite each other.
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

    /// What is in no chunk yet; `None` if it is not there.
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

    /// Forgets what is pending from file offset `to` on: all that lies behind the framed bytes with it.
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

    /// Forgets all that is pending.
    pub(crate) fn clear_pending(&mut self) -> Result<()> {
        self.forget_behind();
        self.buf.resize(self.written)
    }

    fn forget_behind(&mut self) {
        self.behind.clear();
        self.behind_bytes = 0;
    }

    /// Appends what others have too, whole units, behind framed bytes that are whole units.
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

    /// Where records are framed into; its next byte lies at [`Tail::end`].
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
        // All that may lack memory comes before anything is taken: what fails leaves the tail as it was.
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

    /// Fills the buffer up with zeros behind its `content` bytes: to whole units, and a header of zeros where one
    /// must lie there.
    fn fill_up(&mut self, content: usize) -> Result<()> {
        self.buf.pad_to_alignment()?;
        let room = self.buf.len() - content;
        if (1..self.zeros).contains(&room) {
            // At the end of the file, RocksDB's AbsoluteConsistency mode would take so
            // few zeros for a header that was cut off.
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

    /// Keeps the memory of a chunk that is done for a later one.
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
