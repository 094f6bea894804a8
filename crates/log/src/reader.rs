//! Reads a log back: logical records in order, and how the log ended.
//!
//! How recovery handles damage depends on the [`RecoveryMode`]; the behaviour is RocksDB's, case by
//! case (`docs/formats.md`, "How readers treat the tail"; the tests compare that table with results of
//! real RocksDB). In short:
//!
//! - *A cut at the end of the file* (a header or body that is not in the file in full, or a FIRST
//!   without its LAST) is refused by AbsoluteConsistency only.
//! - *A record with a wrong checksum or length elsewhere* is refused by the first two modes, ends
//!   the log in PointInTime, and costs the rest of its block in SkipAny.
//! - *Zeros* in place of a header silently skip the rest of the block in every mode. The caller must
//!   detect from the sequence numbers whether that hid a hole.
//!
//! A MANIFEST is read by [`Reader::manifest`] under stricter rules (module `strict`).
#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::sync::Arc;

use base::{Error, Result};
use io::File;

use crate::fence;
use crate::inflate::Inflate;
use crate::note;
use crate::options::{ReaderOptions, RecoveryMode};
use crate::physical::Blocks;
use recover::Step;

mod recover;

/// How a log ended. `offset` is the end of its last complete record, where a writer may continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With its last record; nothing follows.
    Clean {
        /// Bytes of the log.
        offset: u64,
    },
    /// Only zeros follow.
    ZeroTail {
        /// Bytes of the log.
        offset: u64,
    },
    /// Records of an older log in a recycled file follow.
    OldRecord {
        /// Bytes of the log.
        offset: u64,
    },
    /// What follows is incomplete or damaged and was not read.
    Torn {
        /// Bytes of the log.
        offset: u64,
        /// What is wrong there.
        reason: &'static str,
        /// Bytes from `offset` to the end of the file.
        dropped_bytes: u64,
    },
}

impl End {
    /// Where the last complete record ends.
    pub fn offset(&self) -> u64 {
        match *self {
            Self::Clean { offset }
            | Self::ZeroTail { offset }
            | Self::OldRecord { offset }
            | Self::Torn { offset, .. } => offset,
        }
    }
}

/// A place where [`RecoveryMode::SkipAnyCorruptedRecords`] skipped something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// Where, bytes from the start of the file.
    pub offset: u64,
    /// Bytes that were skipped.
    pub bytes: u64,
    /// What is wrong.
    pub reason: &'static str,
}

/// Facts about the log before this one, which RocksDB records on request (record types 130, 131).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predecessor {
    /// Its file number.
    pub log_number: u64,
    /// Its size in bytes.
    pub size: u64,
    /// The last sequence number in it.
    pub last_sequence: u64,
}

/// The rules by which damage is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Recover(RecoveryMode),
    Strict,
}

/// Reads the logical records of one log file.
#[derive(Debug)]
pub struct Reader {
    pub(crate) blocks: Blocks,
    /// The log whose fences count; `None` where fences are not looked for.
    pub(crate) fenced: Option<u64>,
    /// The log's nonce, as the MANIFEST has it.
    nonce: Option<u64>,
    /// The offset of zeros that were skipped before the last record read, until fences are checked.
    hole: Option<u64>,
    policy: Policy,
    end: End,
    pub(crate) ended: bool,
    failure: Option<Error>,
    record_offset: u64,
    /// Where the last complete record ended.
    pub(crate) log_end: u64,
    /// Zero-filled space was skipped since then.
    pub(crate) zeros: bool,
    pub(crate) old_records: bool,
    /// Recyclable records were seen.
    pub(crate) recycled: bool,
    pub(crate) data_seen: bool,
    /// A "set compression" record was seen.
    pub(crate) compression_seen: bool,
    pub(crate) inflate: Option<Inflate>,
    pub(crate) timestamp_sizes: BTreeMap<u32, u16>,
    pub(crate) predecessor: Option<Predecessor>,
    pub(crate) damages: Vec<Damage>,
    pub(crate) damages_count: u64,
    pub(crate) damages_bytes: u64,
}

/// The logical record being put together.
#[derive(Debug, Default)]
pub(crate) struct Partial {
    /// A FIRST was read and no LAST yet.
    pub(crate) open: bool,
    /// Where the FIRST lies.
    pub(crate) offset: u64,
    /// Payload bytes of it that were read. An empty FIRST at the end of a block may stand alone: old
    /// writers left such records.
    pub(crate) bytes: u64,
}

impl Partial {
    /// A record whose first fragment lies at `offset`.
    pub(crate) fn at(offset: u64) -> Self {
        Self {
            open: true,
            offset,
            bytes: 0,
        }
    }

    /// True if bytes are lost when the record does not continue.
    pub(crate) fn has_bytes(&self) -> bool {
        self.open && self.bytes > 0
    }
}

impl Reader {
    /// A reader of the WAL `log_number`.
    pub fn new(file: Arc<dyn File>, log_number: u64, options: ReaderOptions) -> Self {
        let salvage = options.mode == RecoveryMode::SkipAnyCorruptedRecords;
        let mut reader = Self::with(
            Blocks::new(file, log_number, false),
            Policy::Recover(options.mode),
        );
        reader.fenced = (options.fences && !salvage).then_some(log_number);
        reader
    }

    /// Sets the end of the log, as the [`Note`](crate::Note) of a later log states it. Bytes of the
    /// file behind `end` are ignored.
    #[must_use]
    pub fn ending_at(mut self, end: u64) -> Self {
        self.blocks.end_at(end);
        self
    }

    /// Sets the log's nonce as the MANIFEST has it, in case the log's own note is damaged.
    #[must_use]
    pub fn with_nonce(mut self, nonce: Option<u64>) -> Self {
        self.nonce = nonce;
        self
    }

    /// A reader of a MANIFEST, which distinguishes a torn tail from damage: a record that is cut off
    /// by the end of the file, or by zeros up to the end of the file, is ignored. Everything else that
    /// no writer writes is Corruption.
    pub fn manifest(file: Arc<dyn File>) -> Self {
        Self::with(Blocks::new(file, 0, true), Policy::Strict)
    }

    fn with(blocks: Blocks, policy: Policy) -> Self {
        Self {
            blocks,
            fenced: None,
            nonce: None,
            hole: None,
            policy,
            end: End::Clean { offset: 0 },
            ended: false,
            failure: None,
            record_offset: 0,
            log_end: 0,
            zeros: false,
            old_records: false,
            recycled: false,
            data_seen: false,
            compression_seen: false,
            inflate: None,
            timestamp_sizes: BTreeMap::new(),
            predecessor: None,
            damages: Vec::new(),
            damages_count: 0,
            damages_bytes: 0,
        }
    }

    /// Reads the next logical record into `out`, replacing its content; false at the end of the
    /// log, and [`Reader::end`] then says how it ended. Corruption where the mode refuses damage;
    /// an error is returned again by later calls.
    pub fn read(&mut self, out: &mut Vec<u8>) -> Result<bool> {
        out.clear();
        if let Some(e) = &self.failure {
            return Err(e.clone());
        }
        if self.ended {
            return Ok(false);
        }
        let result = match self.policy {
            Policy::Strict => self.read_strict(out),
            Policy::Recover(mode) => self.read_recovering(mode, out),
        };
        let result = match result {
            Ok(true) if self.hole.is_none() => return Ok(true),
            Ok(more) => self.check_fences(more),
            Err(e) => Err(e),
        };
        if !matches!(result, Ok(true)) {
            out.clear();
        }
        result.map_err(|e| {
            let e = e.or_file(self.blocks.file().path());
            self.failure = Some(e.clone());
            e
        })
    }

    /// To be called where the log ended or a hole was skipped. Errors: a fence shows that records behind
    /// that place were durable.
    #[cold]
    fn check_fences(&mut self, more: bool) -> Result<bool> {
        let suspect = match (self.hole.take(), &self.end) {
            (Some(hole), _) => Some((hole, "zeros between records")),
            (None, _) if more => None,
            (None, End::Clean { .. }) => None,
            (None, End::ZeroTail { offset }) => Some((*offset, "zeros")),
            (None, End::OldRecord { offset }) => Some((*offset, "a record of another log")),
            (None, End::Torn { offset, reason, .. }) => Some((*offset, *reason)),
        };
        let (Some((offset, reason)), Some(log_number)) = (suspect, self.fenced) else {
            return Ok(more);
        };
        let file = self.blocks.file();
        let trust = note::trust(file, log_number, self.nonce)?;
        match fence::strongest(file, log_number, offset, trust)? {
            Some(fence) if fence.durable > offset => Err(self
                .corruption(
                    offset,
                    &format!(
                        "{reason}, but the log was durable up to offset {}: {} bytes of synced \
                         writes are damaged here",
                        fence.durable,
                        fence.durable - offset
                    ),
                )
                .hint(
                    "this is no torn tail. Restore the file, or open with \
                     wal_recovery_mode=kSkipAnyCorruptedRecords to keep what can still be read",
                )),
            _ => Ok(more),
        }
    }

    /// How the log ended, once [`Reader::read`] has returned false. Before that: `Clean`, with the end
    /// of the last record read.
    pub fn end(&self) -> &End {
        &self.end
    }

    /// Continues to read a log that another thread or process is still writing: at `offset`, which is
    /// the end of a record, with the current content of the file. An earlier failure is cleared.
    ///
    /// ```
    /// # use io::{FileSystem, OpenHow, posix::Posix};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let file = Posix.open(&dir.path().join("000004.log"), OpenHow::CREATE_NEW)?;
    /// let mut writer = log::Writer::new(file.clone(), log::LogOptions::default());
    /// let mut reader = log::Reader::new(file, 4, log::ReaderOptions::default());
    /// let mut record = Vec::new();
    /// assert!(!reader.read(&mut record)?);
    /// writer.append(b"one")?;
    /// writer.submit()?;
    /// reader.resume(reader.end().offset());
    /// assert!(reader.read(&mut record)? && record == b"one");
    /// # Ok::<(), base::Error>(())
    /// ```
    pub fn resume(&mut self, offset: u64) {
        self.blocks.seek(offset);
        self.log_end = offset;
        self.end = End::Clean { offset };
        self.failure = None;
        self.ended = false;
        self.zeros = false;
        self.old_records = false;
        self.hole = None;
    }

    /// Where the last record read begins, bytes from the start of the file.
    pub fn record_offset(&self) -> u64 {
        self.record_offset
    }

    /// Sizes of user timestamps by column family, from the records read so far. A family that is
    /// missing here has no timestamps.
    pub fn timestamp_sizes(&self) -> &BTreeMap<u32, u16> {
        &self.timestamp_sizes
    }

    /// What the log says about the one before it.
    pub fn predecessor(&self) -> Option<Predecessor> {
        self.predecessor
    }

    /// What was skipped; only [`RecoveryMode::SkipAnyCorruptedRecords`] skips. At most the first
    /// hundred; see [`Reader::damage_totals`].
    pub fn damages(&self) -> &[Damage] {
        &self.damages
    }

    /// Number of damages skipped, and their bytes.
    pub fn damage_totals(&self) -> (u64, u64) {
        (self.damages_count, self.damages_bytes)
    }

    /// Treats the record just read as damaged, for a caller that cannot decode its content although its
    /// checksum is correct. The mode decides: an error, the end of the log, or a skip.
    pub fn reject(&mut self, reason: &'static str) -> Result<()> {
        let offset = self.record_offset;
        let bytes = self.log_end.saturating_sub(offset);
        let result = match self.policy {
            Policy::Strict => Err(self.corruption(offset, reason)),
            Policy::Recover(mode) => {
                let skipped_to = self.log_end;
                self.log_end = offset;
                let step = self.damage(mode, offset, bytes, reason);
                if matches!(step, Ok(Step::More)) {
                    self.log_end = skipped_to;
                }
                step.map(|_| ())
            }
        };
        if let Err(e) = &result {
            self.failure = Some(e.clone());
        }
        result
    }

    pub(crate) fn corruption(&self, offset: u64, reason: &str) -> Error {
        Error::corruption(reason)
            .file(self.blocks.file().path())
            .offset(offset)
    }

    /// Accepts a complete logical record that begins at `offset`.
    pub(crate) fn accept(&mut self, offset: u64) {
        if self.zeros {
            self.hole = Some(self.log_end);
        }
        self.record_offset = offset;
        self.data_seen = true;
        self.step_over();
    }

    /// The record just examined is whole: the log now ends behind it.
    pub(crate) fn step_over(&mut self) {
        self.log_end = self.blocks.position();
        self.zeros = false;
        self.end = End::Clean {
            offset: self.log_end,
        };
    }

    /// Ends the log, with a reason if bytes are dropped.
    pub(crate) fn finish(&mut self, torn: Option<&'static str>) -> Result<()> {
        let offset = self.log_end;
        self.ended = true;
        self.end = match torn {
            Some(reason) => End::Torn {
                offset,
                reason,
                dropped_bytes: self.blocks.len()?.saturating_sub(offset),
            },
            None if self.old_records => End::OldRecord { offset },
            None if self.zeros => End::ZeroTail { offset },
            None => End::Clean { offset },
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{LogOptions, Writer};
    use io::{FileSystem, OpenHow, posix::Posix};

    /// A reader that reads after each append sees each record once, wherever it lies in its block, in
    /// a file that grows and in a zero-filled one.
    #[test]
    fn a_reader_follows_a_growing_log() {
        for filled in [0, 4 << 20] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("000004.log");
            let file = Posix.open(&path, OpenHow::CREATE_NEW).unwrap();
            file.truncate(filled).unwrap();
            let mut writer = Writer::new(Arc::clone(&file), LogOptions::default());
            let mut reader = Reader::new(file, 4, ReaderOptions::default());
            let mut seen = Vec::new();
            for i in 0..2000usize {
                let record = vec![1; i * 7919 % 900 + usize::from(i % 90 == 0) * 70_000];
                writer.append(&record).unwrap();
                writer.submit().unwrap();
                assert!(
                    reader.read(&mut seen).unwrap() && seen == record,
                    "record {i}"
                );
                let end = reader.end().offset();
                assert_eq!(end, writer.size());
                assert!(!reader.read(&mut seen).unwrap());
                reader.resume(end);
            }
        }
    }
}
