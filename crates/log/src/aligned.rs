//! Appends batches that share no write unit of the device: the framing of a log whose payloads come
//! from other buffers and go to a file, to peers and to a cache without being copied.
//!
//! ```text
//!   head            payload     payload          head     payload
//!   ├─ framed ─ 0 ─┤───────────┤───────────┤     ├─────┤──────────┤
//!   multiple of unit            one write         the next write
//! ```
//!
//! A batch is one durable write. No two batches touch the same unit, so several may be in flight at
//! once, and none is ever overwritten. The caller defines the content of a head.

use std::sync::Arc;

use base::{Error, Result};
use bytes::Bytes;
use io::{AlignedBuf, File};

use crate::appender::{Appender, Framing};
use crate::options::{AppendOptions, TailPolicy, WalSync};
use crate::sync::Lsn;
use crate::tail::{Content, Tail};

/// Appends batches to a log.
pub type Batches = Appender<Aligned>;

/// The framing of batches: see the module.
#[derive(Debug)]
pub struct Aligned;

/// A batch: the head and the payloads of one append.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    /// Its offset in the file.
    pub offset: u64,
    /// Its head, padded with zeros to a whole unit.
    pub head: Vec<u8>,
    /// The payloads behind the head, as they were appended.
    pub payloads: Vec<Bytes>,
}

impl Framing for Aligned {
    type Record = Batch;

    fn unframe(&self, content: Content<'_>, out: &mut Vec<Batch>) -> Option<()> {
        if !content.framed.is_empty() {
            out.push(Batch {
                offset: content.offset,
                head: content.framed.to_vec(),
                payloads: content.behind.to_vec(),
            });
        }
        Some(())
    }
}

impl Batches {
    /// A log that continues at `offset` of a direct file, whose bytes up to there are durable. `unit`: the
    /// write unit in bytes, see [`io::Probe::write_unit`]. `depth`: how many batches may be in flight at
    /// once, at least 1.
    ///
    /// Errors: `unit` is not a power of two, or `offset` is not a multiple of it.
    pub fn at(file: Arc<dyn File>, offset: u64, unit: u32, depth: u32) -> Result<Self> {
        if !unit.is_power_of_two() || !offset.is_multiple_of(u64::from(unit)) {
            return Err(Error::invalid_argument(format!(
                "a log of batches cannot go on at offset {offset} in units of {unit}"
            ))
            .file(file.path()));
        }
        let options = AppendOptions {
            direct_unit: Some(unit),
            sync: WalSync::Dsync,
            tail: TailPolicy::Pad { payload_min: 0 },
            depth,
            outlives_full_disk: false,
            allocate_ahead: 0,
        };
        let tail = Tail::at(offset, unit, &*file)?;
        Ok(Self::with(file, Aligned, tail, offset, options))
    }

    /// Appends a batch and returns where it begins. `frame` appends the head to the buffer it is given;
    /// the head is then padded to a whole unit. `payloads` follow it; each must be whole units and aligned
    /// as the file requires.
    ///
    /// Errors: the last batch is not in flight yet ([`Appender::begin`]), `frame` fails or appends nothing,
    /// or a payload is not whole units; nothing is appended then.
    pub fn append(
        &mut self,
        frame: impl FnOnce(u64, &mut AlignedBuf) -> Result<()>,
        payloads: impl IntoIterator<Item = Bytes>,
    ) -> Result<Lsn> {
        self.marks.check()?;
        let start = self.tail.end();
        if self.tail.is_pending() {
            return Err(Error::broken(
                "a batch was appended before the last one was begun",
            ));
        }
        let appended = frame(start, self.tail.buf())
            .and_then(|()| {
                if self.tail.is_pending() {
                    self.tail.buf().pad_to_alignment()
                } else {
                    Err(Error::broken("a batch has no head"))
                }
            })
            .and_then(|()| self.tail.push_behind(payloads));
        if let Err(e) = appended {
            let e = e.or_file(self.file().path());
            self.tail.clear_pending().map_err(|e| self.end_with(e))?;
            return Err(e);
        }
        self.marks.set_appended(self.tail.end());
        Ok(Lsn(start))
    }
}
