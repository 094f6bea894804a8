//! Appends records to a log, in three steps that the caller times: to the process, to the
//! operating system, to the device.
//!
//! Any number of records appended before one [`Writer::submit`] or [`Writer::sync`] make a group:
//! they reach the file in one write. The first failed write or sync poisons the log: what the file
//! holds then is unknown, so every later call returns the same error, and nothing is tried again.
//! (A second `fdatasync` may succeed although the pages of the first are lost.)

use std::ops::Range;
use std::sync::Arc;

use base::{Error, Result};
use io::{File, WriteSync};

use crate::format::Framer;
use crate::options::{LogOptions, WalSync};
use crate::sync::{Lsn, Syncer, Watermarks};
use crate::tail::Tail;

/// Appends to one log file.
#[derive(Debug)]
pub struct Writer {
    file: Arc<dyn File>,
    framer: Framer,
    tail: Tail,
    sync: WalSync,
    marks: Arc<Watermarks>,
}

impl Writer {
    /// A log from the start of `file`. What the file holds is overwritten as the log grows, never
    /// cut off: it must be empty, zero-filled, or, with recyclable records, another log's.
    ///
    /// # Panics
    /// If [`LogOptions::direct_unit`] is not a power of two.
    pub fn new(file: Arc<dyn File>, options: LogOptions) -> Self {
        let unit = options.direct_unit.unwrap_or(1);
        assert!(unit.is_power_of_two(), "direct_unit {unit}");
        let marks = Arc::new(Watermarks::new(0));
        Self {
            framer: framer(options),
            tail: Tail::empty(unit),
            sync: options.sync,
            marks,
            file,
        }
    }

    /// Continues a log that ends at `offset`, where the reader's
    /// [`End`](crate::End) says. What lies before counts as durable: the caller syncs the file
    /// first if it may not be. What lies after is the caller's to cut off or to zero. The record
    /// family must be the one that the file has.
    pub fn resume(file: Arc<dyn File>, offset: u64, options: LogOptions) -> Result<Self> {
        let len = file.len()?;
        if offset > len {
            return Err(Error::invalid_argument(format!(
                "a log cannot go on at offset {offset}: the file has {len} bytes"
            ))
            .file(file.path()));
        }
        Ok(Self {
            framer: framer(options),
            tail: Tail::at(offset, options.direct_unit.unwrap_or(1), &*file)?,
            sync: options.sync,
            marks: Arc::new(Watermarks::new(offset)),
            file,
        })
    }

    /// Frames one record into the process's buffer and returns the part of the log it takes.
    /// Nothing is written yet.
    pub fn append(&mut self, record: &[u8]) -> Result<Range<Lsn>> {
        self.append_parts(&[record])
    }

    /// The same for a record that lies in several pieces.
    pub fn append_parts(&mut self, parts: &[&[u8]]) -> Result<Range<Lsn>> {
        self.marks.check()?;
        let start = self.tail.end();
        self.framer
            .frame(parts, start, self.tail.buf())
            .map_err(|e| e.or_file(self.file.path()))?;
        let end = self.tail.end();
        self.marks.set_appended(end);
        Ok(Lsn(start)..Lsn(end))
    }

    /// Writes everything appended to the operating system, in one write: it then survives the
    /// process, not a power cut.
    pub fn submit(&mut self) -> Result<Lsn> {
        self.marks.check()?;
        if self.tail.is_pending() {
            self.write(WriteSync::None)?;
        }
        Ok(self.marks.submitted())
    }

    /// Makes everything appended durable: one durable write, or a write and an `fdatasync`, as
    /// [`LogOptions::sync`] says.
    pub fn sync(&mut self) -> Result<Lsn> {
        self.marks.check()?;
        // A durable write covers its own bytes only.
        let alone = self.marks.durable() == self.marks.submitted();
        if self.tail.is_pending() {
            if self.sync == WalSync::Dsync && alone {
                let marks = Arc::clone(&self.marks);
                let _one_at_a_time = marks.device();
                marks.check()?;
                self.write(WriteSync::Dsync)?;
                marks.raise_durable(marks.submitted());
                return Ok(marks.durable());
            }
            self.write(WriteSync::None)?;
        }
        self.syncer().sync()
    }

    /// Bytes of the log, those not yet written included.
    pub fn size(&self) -> u64 {
        self.tail.end()
    }

    /// Everything before it is on the device.
    pub fn durable(&self) -> Lsn {
        self.marks.durable()
    }

    /// How far the log has come, to watch from other threads.
    pub fn marks(&self) -> &Arc<Watermarks> {
        &self.marks
    }

    /// Something that syncs this log while others append.
    pub fn syncer(&self) -> Syncer {
        Syncer::new(Arc::clone(&self.file), Arc::clone(&self.marks))
    }

    /// The file.
    pub fn file(&self) -> &Arc<dyn File> {
        &self.file
    }

    fn write(&mut self, sync: WriteSync) -> Result<()> {
        self.tail
            .write(&*self.file, sync)
            .map_err(|e| self.marks.poison(e))?;
        self.marks.set_submitted(self.tail.end());
        Ok(())
    }
}

fn framer(options: LogOptions) -> Framer {
    Framer {
        log_number: options.recyclable.then_some(options.log_number as u32),
        filler: options.filler,
    }
}
