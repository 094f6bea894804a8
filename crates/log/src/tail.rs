//! The end of the log in memory: what is not written yet, and the image of the last unit.
//!
//! A buffered file takes bytes as they come: the unit is 1, and nothing is kept after a write. A
//! direct file takes whole units only, so the partial last one stays here after it was written,
//! zeros behind the content, and is written again with what follows:
//!
//! ```text
//!            base (multiple of unit)                end of the log
//!   file ────┼── written before ──┼── pending ──────┼─ zeros ─┤ multiple of unit
//!            └──────────────────── one write ────────────────┘
//! ```
//!
//! The old and the new image of the last unit share the bytes written before, so any mix of them
//! that a torn write leaves has those bytes: this needs units that the device writes as a whole
//! or not at all, which is what [`crate::LogOptions::direct_unit`] asks for.

use base::{Error, Result};
use io::{AlignedBuf, File, WriteSync};

use crate::format::LEGACY_HEADER;

/// Memory that is kept between groups; a larger buffer goes back after its group.
const KEEP_MAX: usize = 4 << 20;

#[derive(Debug)]
pub(crate) struct Tail {
    /// File offset of `buf`'s first byte.
    base: u64,
    buf: AlignedBuf,
    /// Bytes of `buf` that are written already.
    written: usize,
    unit: usize,
}

impl Tail {
    /// The tail of an empty log; `unit` is a power of two.
    pub(crate) fn empty(unit: u32) -> Self {
        Self {
            base: 0,
            buf: AlignedBuf::new(unit as usize),
            written: 0,
            unit: unit as usize,
        }
    }

    /// The tail of a log that ends at `offset`. Reads the partial last unit, if there is one.
    pub(crate) fn at(offset: u64, unit: u32, file: &dyn File) -> Result<Self> {
        if !unit.is_power_of_two() {
            return Err(Error::invalid_argument(format!(
                "the write unit of a log must be a power of two, not {unit}"
            ))
            .file(file.path()));
        }
        let unit = unit as usize;
        let partial = (offset % unit as u64) as usize;
        let base = offset - partial as u64;
        let mut buf = AlignedBuf::new(unit);
        if partial > 0 {
            buf.resize(unit)?;
            let n = file.read_at(&mut buf, base)?;
            if n < partial {
                return Err(Error::invalid_argument(format!(
                    "a log cannot go on at offset {offset}: the file ends before"
                ))
                .file(file.path()));
            }
            buf.resize(partial)?;
        }
        Ok(Self {
            base,
            buf,
            written: partial,
            unit,
        })
    }

    /// File offset of the end of the log.
    pub(crate) fn end(&self) -> u64 {
        self.base + self.buf.len() as u64
    }

    /// True if there is something to write.
    pub(crate) fn is_pending(&self) -> bool {
        self.buf.len() > self.written
    }

    /// Where records are framed into; its next byte lies at [`Tail::end`].
    pub(crate) fn buf(&mut self) -> &mut AlignedBuf {
        &mut self.buf
    }

    /// Writes everything pending, in one call unless the system takes less. After an error the
    /// tail says nothing about the file any more.
    pub(crate) fn write(&mut self, file: &dyn File, sync: WriteSync) -> Result<()> {
        let content = self.buf.len();
        self.buf.pad_to_alignment()?;
        if (1..LEGACY_HEADER).contains(&(self.buf.len() - content)) {
            // At the end of the file, RocksDB's AbsoluteConsistency mode would take so few zeros
            // for a header that was cut off.
            self.buf.resize(self.buf.len() + self.unit)?;
        }
        io::write_all_at(file, &self.buf, self.base, sync)?;
        let keep = content % self.unit;
        let done = content - keep;
        self.buf.resize(content)?;
        self.buf.drain_front(done);
        self.base += done as u64;
        self.written = keep;
        if self.buf.capacity() > KEEP_MAX {
            let mut small = AlignedBuf::new(self.unit);
            small.extend_from_slice(&self.buf)?;
            self.buf = small;
        }
        Ok(())
    }
}
