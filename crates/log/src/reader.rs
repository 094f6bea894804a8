//! Reads a log back: logical records in order, and how the log ended.
//!
//! What recovery does with damage depends on the [`RecoveryMode`]; the behaviour is RocksDB's,
//! case by case (`docs/formats.md`, "How readers treat the tail"; the tests hold the table against
//! results of real RocksDB). In short:
//!
//! - *A cut at the end of the file* (a header or body that the file does not have in full, a FIRST
//!   without its LAST) is refused by AbsoluteConsistency only.
//! - *A record with a wrong checksum or length elsewhere* is refused by the first two modes, ends
//!   the log in PointInTime, and costs the rest of its block in SkipAny.
//! - *Zeros* where a header should be skip the rest of the block in every mode, silently: whether
//!   that hid a hole is for the caller to see from the sequence numbers.
//!
//! A MANIFEST is read by [`Reader::manifest`] under stricter rules (module `strict`).
#![deny(clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::sync::Arc;

use base::coding::{Decoder, u32_at};
use base::{Error, Result};
use io::File;

use crate::format::{Fragment, RecordType};
use crate::inflate::{Inflate, ZSTD};
use crate::options::{ReaderOptions, RecoveryMode};
use crate::physical::{Blocks, Found};

/// Damages that [`Reader::damages`] lists at most; all are counted.
const DAMAGES_MAX: usize = 100;

/// How a log ended. `offset` is where its last complete record ends: a writer may continue there.
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

/// Which rules hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Policy {
    Recover(RecoveryMode),
    Strict,
}

/// Reads the logical records of one log file.
#[derive(Debug)]
pub struct Reader {
    pub(crate) blocks: Blocks,
    policy: Policy,
    end: End,
    ended: bool,
    failure: Option<Error>,
    record_offset: u64,
    /// Where the last complete record ended.
    pub(crate) log_end: u64,
    /// Zero-filled space was skipped since then.
    pub(crate) zeros: bool,
    old_records: bool,
    /// Recyclable records were seen.
    recycled: bool,
    data_seen: bool,
    /// A "set compression" record was seen.
    compression_seen: bool,
    inflate: Option<Inflate>,
    timestamp_sizes: BTreeMap<u32, u16>,
    predecessor: Option<Predecessor>,
    damages: Vec<Damage>,
    damages_count: u64,
    damages_bytes: u64,
}

/// What one physical record made of the logical one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Not complete yet.
    More,
    /// Complete.
    Complete,
    /// There is no further one.
    Ended,
}

/// The logical record being put together.
#[derive(Debug, Default)]
pub(crate) struct Partial {
    /// A FIRST was read and no LAST yet.
    pub(crate) open: bool,
    /// Where the FIRST lies.
    pub(crate) offset: u64,
}

impl Reader {
    /// A reader of the WAL `log_number`.
    pub fn new(file: Arc<dyn File>, log_number: u64, options: ReaderOptions) -> Self {
        Self::with(
            Blocks::new(file, log_number, false),
            Policy::Recover(options.mode),
        )
    }

    /// A reader of a MANIFEST, which tells a torn tail from damage: a record that the end of the
    /// file, or zeros up to the end of the file, cut off is ignored; everything else that is not
    /// what a writer writes is Corruption.
    pub fn manifest(file: Arc<dyn File>) -> Self {
        Self::with(Blocks::new(file, 0, true), Policy::Strict)
    }

    fn with(blocks: Blocks, policy: Policy) -> Self {
        Self {
            blocks,
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
            return Err(e.duplicate());
        }
        if self.ended {
            return Ok(false);
        }
        let result = match self.policy {
            Policy::Strict => self.read_strict(out),
            Policy::Recover(mode) => self.read_recovering(mode, out),
        };
        if !matches!(result, Ok(true)) {
            out.clear();
        }
        result.map_err(|e| {
            let e = e.or_file(self.blocks.file().path());
            self.failure = Some(e.duplicate());
            e
        })
    }

    /// How the log ended, once [`Reader::read`] has returned false. Before that: `Clean`, where the
    /// last record read ended.
    pub fn end(&self) -> &End {
        &self.end
    }

    /// Where the last record read begins, bytes from the start of the file.
    pub fn record_offset(&self) -> u64 {
        self.record_offset
    }

    /// Sizes of user timestamps by column family, from the records read so far. A family that is
    /// not in it has none.
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

    /// Treats the record just read as damaged, for a caller that cannot make sense of its content
    /// although its checksum is right: an error, the end of the log, or a skip, as the mode says.
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
            self.failure = Some(e.duplicate());
        }
        result
    }

    pub(crate) fn corruption(&self, offset: u64, reason: &str) -> Error {
        Error::corruption(reason)
            .file(self.blocks.file().path())
            .offset(offset)
    }

    /// A complete logical record begins at `offset`.
    pub(crate) fn accept(&mut self, offset: u64) {
        self.record_offset = offset;
        self.data_seen = true;
        self.step_over();
    }

    /// The record just looked at is whole: the log reaches behind it.
    fn step_over(&mut self) {
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
                dropped_bytes: self.blocks.file().len()?.saturating_sub(offset),
            },
            None if self.old_records => End::OldRecord { offset },
            None if self.zeros => End::ZeroTail { offset },
            None => End::Clean { offset },
        };
        Ok(())
    }

    /// Damage: an error, the end, or a skip.
    fn damage(
        &mut self,
        mode: RecoveryMode,
        offset: u64,
        bytes: u64,
        reason: &'static str,
    ) -> Result<Step> {
        match mode {
            RecoveryMode::TolerateCorruptedTailRecords | RecoveryMode::AbsoluteConsistency => {
                Err(self.corruption(offset, reason).hint(
                    "wal_recovery_mode=kPointInTimeRecovery opens with everything before this \
                     record; kSkipAnyCorruptedRecords also keeps what can be read behind it",
                ))
            }
            RecoveryMode::PointInTimeRecovery => {
                self.finish(Some(reason))?;
                Ok(Step::Ended)
            }
            RecoveryMode::SkipAnyCorruptedRecords => {
                self.damages_count += 1;
                self.damages_bytes += bytes;
                if self.damages.len() < DAMAGES_MAX {
                    self.damages.push(Damage {
                        offset,
                        bytes,
                        reason,
                    });
                }
                Ok(Step::More)
            }
        }
    }

    fn read_recovering(&mut self, mode: RecoveryMode, out: &mut Vec<u8>) -> Result<bool> {
        let mut partial = Partial::default();
        loop {
            let found = self.blocks.next()?;
            let step = match found {
                Found::Record {
                    offset,
                    kind,
                    payload,
                } => {
                    self.recycled |= kind.is_recyclable();
                    match kind.fragment() {
                        Some(f) => self.fragment(mode, f, offset, payload, &mut partial, out)?,
                        None => {
                            self.about_the_log(mode, kind, offset, payload, &mut partial, out)?
                        }
                    }
                }
                other => self.no_record(mode, other, &mut partial, out)?,
            };
            match step {
                Step::More => {}
                Step::Complete => return Ok(true),
                Step::Ended => return Ok(false),
            }
        }
    }

    /// A part of a logical record.
    fn fragment(
        &mut self,
        mode: RecoveryMode,
        fragment: Fragment,
        offset: u64,
        payload: std::ops::Range<usize>,
        partial: &mut Partial,
        out: &mut Vec<u8>,
    ) -> Result<Step> {
        let bytes = payload.len() as u64;
        let begins = matches!(fragment, Fragment::Full | Fragment::First);
        if begins {
            // An empty FIRST at the end of a block may stand alone: old writers left some.
            if partial.open && !out.is_empty() {
                let lost = out.len() as u64;
                let reason = "partial record without end";
                if self.damage(mode, partial.offset, lost, reason)? == Step::Ended {
                    return Ok(Step::Ended);
                }
            }
            out.clear();
            *partial = Partial { open: true, offset };
        } else if !partial.open {
            return self.damage(
                mode,
                offset,
                bytes,
                "fragment without the start of its record",
            );
        }
        if let Err(reason) = self.take(begins, payload, out) {
            partial.open = false;
            out.clear();
            return self.damage(mode, offset, bytes, reason);
        }
        if matches!(fragment, Fragment::First | Fragment::Middle) {
            return Ok(Step::More);
        }
        if let Some(Err(reason)) = self.inflate.as_ref().map(Inflate::finish) {
            partial.open = false;
            out.clear();
            return self.damage(mode, partial.offset, bytes, reason);
        }
        self.accept(partial.offset);
        Ok(Step::Complete)
    }

    /// Appends a fragment's bytes, decompressed if the log is compressed.
    fn take(
        &mut self,
        begins: bool,
        payload: std::ops::Range<usize>,
        out: &mut Vec<u8>,
    ) -> Result<(), &'static str> {
        let bytes = self.blocks.bytes(payload);
        let Some(inflate) = &mut self.inflate else {
            out.try_reserve(bytes.len())
                .map_err(|_| "no memory for a record")?;
            out.extend_from_slice(bytes);
            return Ok(());
        };
        if begins {
            inflate.begin()?;
        }
        inflate.push(bytes, out)
    }

    /// A record that is not a part of a logical one.
    fn about_the_log(
        &mut self,
        mode: RecoveryMode,
        kind: RecordType,
        offset: u64,
        payload: std::ops::Range<usize>,
        partial: &mut Partial,
        out: &mut Vec<u8>,
    ) -> Result<Step> {
        let bytes = payload.len() as u64;
        let interspersed = partial.open && !out.is_empty();
        let outcome = match kind {
            RecordType::SET_COMPRESSION => self.set_compression(payload),
            RecordType::TIMESTAMP_SIZES | RecordType::RECYCLABLE_TIMESTAMP_SIZES => {
                if interspersed {
                    Err("timestamp sizes inside a record")
                } else {
                    self.set_timestamp_sizes(payload)
                }
            }
            RecordType::PREDECESSOR | RecordType::RECYCLABLE_PREDECESSOR => {
                self.set_predecessor(payload)
            }
            kind if kind.is_ignorable() => Ok(()),
            _ => Err("unknown record type"),
        };
        match outcome {
            Ok(()) if partial.open => Ok(Step::More),
            Ok(()) => {
                self.step_over();
                Ok(Step::More)
            }
            Err(reason) => {
                partial.open = false;
                out.clear();
                self.damage(mode, offset, bytes, reason)
            }
        }
    }

    fn set_compression(&mut self, payload: std::ops::Range<usize>) -> Result<(), &'static str> {
        if self.compression_seen {
            return Err("a second record that sets the compression");
        }
        if self.data_seen {
            return Err("the compression is set after the first record");
        }
        let kind = u32_at(self.blocks.bytes(payload), 0).ok_or("compression record too short")?;
        self.inflate = match kind {
            0 => None,
            ZSTD => Some(Inflate::new()?),
            _ => return Err("unknown compression of the log"),
        };
        self.compression_seen = true;
        Ok(())
    }

    fn set_timestamp_sizes(&mut self, payload: std::ops::Range<usize>) -> Result<(), &'static str> {
        let mut d = Decoder::new(self.blocks.bytes(payload));
        while !d.is_empty() {
            let (Some(family), Some(size)) = (d.u32(), d.u16()) else {
                return Err("timestamp sizes are cut off");
            };
            if size == 0 || self.timestamp_sizes.insert(family, size).is_some() {
                return Err("timestamp sizes contradict themselves");
            }
        }
        Ok(())
    }

    fn set_predecessor(&mut self, payload: std::ops::Range<usize>) -> Result<(), &'static str> {
        let mut d = Decoder::new(self.blocks.bytes(payload));
        let (Some(log_number), Some(size), Some(last_sequence)) = (d.u64(), d.u64(), d.u64())
        else {
            return Err("predecessor record too short");
        };
        self.predecessor = Some(Predecessor {
            log_number,
            size,
            last_sequence,
        });
        Ok(())
    }

    /// Something other than a record with the right checksum.
    fn no_record(
        &mut self,
        mode: RecoveryMode,
        found: Found,
        partial: &mut Partial,
        out: &mut Vec<u8>,
    ) -> Result<Step> {
        use RecoveryMode::{
            AbsoluteConsistency, PointInTimeRecovery, SkipAnyCorruptedRecords,
            TolerateCorruptedTailRecords,
        };
        let cuts_matter = matches!(mode, AbsoluteConsistency | PointInTimeRecovery);
        match found {
            Found::Record { .. } | Found::DirtyTrailer { .. } => Ok(Step::More),
            Found::End => self.cut(mode, partial, None),
            Found::ShortHeader { offset, bytes } => {
                if cuts_matter {
                    return self.damage(mode, offset, bytes, "truncated header");
                }
                self.cut(mode, partial, Some("truncated header"))
            }
            Found::BadLength {
                offset,
                bytes,
                last_block: true,
                ..
            } => {
                if cuts_matter {
                    return self.damage(mode, offset, bytes, "truncated record body");
                }
                self.finish(Some("truncated record body"))?;
                Ok(Step::Ended)
            }
            Found::OldRecord { .. } if mode != SkipAnyCorruptedRecords => {
                self.old_records = true;
                self.cut(mode, partial, None)
            }
            Found::OldRecord { .. } | Found::Zeros { .. } => {
                match found {
                    Found::OldRecord { .. } => self.old_records = true,
                    _ => self.zeros = true,
                }
                self.interrupt(mode, partial, out)
            }
            Found::BadLength { offset, bytes, .. } | Found::BadCrc { offset, bytes, .. } => {
                let reason = if matches!(found, Found::BadCrc { .. }) {
                    "checksum mismatch"
                } else {
                    "bad record length"
                };
                if self.recycled && mode == TolerateCorruptedTailRecords {
                    // In a recycled file what is left of the older log looks like this.
                    self.finish(Some(reason))?;
                    return Ok(Step::Ended);
                }
                match self.damage(mode, offset, bytes, reason)? {
                    Step::More => self.interrupt(mode, partial, out),
                    other => Ok(other),
                }
            }
        }
    }

    /// The log ends here; a logical record that has begun is cut off.
    fn cut(
        &mut self,
        mode: RecoveryMode,
        partial: &Partial,
        reason: Option<&'static str>,
    ) -> Result<Step> {
        let reason = if partial.open {
            Some("the last record is cut off")
        } else {
            reason
        };
        if partial.open && mode == RecoveryMode::AbsoluteConsistency {
            let bytes = self.blocks.position().saturating_sub(partial.offset);
            return self.damage(mode, partial.offset, bytes, "the last record is cut off");
        }
        self.finish(reason)?;
        Ok(Step::Ended)
    }

    /// Something lies where a logical record should go on.
    fn interrupt(
        &mut self,
        mode: RecoveryMode,
        partial: &mut Partial,
        out: &mut Vec<u8>,
    ) -> Result<Step> {
        if !partial.open {
            return Ok(Step::More);
        }
        partial.open = false;
        let lost = out.len() as u64;
        out.clear();
        self.damage(
            mode,
            partial.offset,
            lost,
            "error in the middle of a record",
        )
    }
}
