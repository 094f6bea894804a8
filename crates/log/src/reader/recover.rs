//! The rules for a WAL: how each [`RecoveryMode`] handles damage.
//!
//! The decisions are RocksDB's, made by the same checks in the same order; the test `recovery_cases`
//! compares them with what real RocksDB recovered.
#![deny(clippy::indexing_slicing)]

use std::ops::Range;

use base::coding::{Decoder, u32_at};
use base::{Error, Result};

use crate::format::{Fragment, RecordType};
use crate::inflate::{Inflate, ZSTD};
use crate::options::RecoveryMode;
use crate::physical::Found;
use crate::reader::{Damage, Partial, Predecessor, Reader};

const UNKNOWN_TYPE: &str = "unknown record type";
const UNKNOWN_COMPRESSION: &str = "unknown compression of the log";
/// Reasons that indicate a log of a newer format. RocksDB ends the log there; with
/// [`ReaderOptions::fences`](crate::ReaderOptions::fences) the log is refused.
const NEWER: [&str; 2] = [UNKNOWN_TYPE, UNKNOWN_COMPRESSION];

/// Maximum number of damages that [`Reader::damages`] lists; all are counted.
const DAMAGES_MAX: usize = 100;

/// The state of the logical record after one physical record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// Not complete yet.
    More,
    /// Complete.
    Complete,
    /// The log has ended.
    Ended,
}

impl Reader {
    /// Handles damage as `mode` says: an error, the end of the log, or a skip.
    pub(crate) fn damage(
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

    /// The next logical record under the rules of `mode`.
    pub(crate) fn read_recovering(
        &mut self,
        mode: RecoveryMode,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
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

    /// Handles a fragment of a logical record.
    fn fragment(
        &mut self,
        mode: RecoveryMode,
        fragment: Fragment,
        offset: u64,
        payload: Range<usize>,
        partial: &mut Partial,
        out: &mut Vec<u8>,
    ) -> Result<Step> {
        let bytes = payload.len() as u64;
        let begins = matches!(fragment, Fragment::Full | Fragment::First);
        if begins {
            if partial.has_bytes() {
                let lost = partial.bytes;
                let reason = "partial record without end";
                if self.damage(mode, partial.offset, lost, reason)? == Step::Ended {
                    return Ok(Step::Ended);
                }
            }
            out.clear();
            *partial = Partial::at(offset);
        } else if !partial.open {
            return self.damage(
                mode,
                offset,
                bytes,
                "fragment without the start of its record",
            );
        }
        partial.bytes += bytes;
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
        payload: Range<usize>,
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

    /// Handles a record about the log itself, which is no part of a logical record.
    fn about_the_log(
        &mut self,
        mode: RecoveryMode,
        kind: RecordType,
        offset: u64,
        payload: Range<usize>,
        partial: &mut Partial,
        out: &mut Vec<u8>,
    ) -> Result<Step> {
        let bytes = payload.len() as u64;
        let interspersed = partial.has_bytes();
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
            _ => Err(UNKNOWN_TYPE),
        };
        match outcome {
            Ok(()) if partial.open => Ok(Step::More),
            Ok(()) => {
                self.step_over();
                Ok(Step::More)
            }
            // The checksum is correct: this is not damage, and ending here would drop whole records.
            Err(reason) if self.fenced.is_some() && NEWER.contains(&reason) => {
                Err(Error::not_supported(format!("{reason} ({kind})"))
                    .file(self.blocks.file().path())
                    .offset(offset)
                    .hint(
                        "open with the version that wrote this log, and flush; or with \
                         wal_recovery_mode=kSkipAnyCorruptedRecords, which drops what it cannot read",
                    ))
            }
            Err(reason) => {
                partial.open = false;
                out.clear();
                self.damage(mode, offset, bytes, reason)
            }
        }
    }

    fn set_compression(&mut self, payload: Range<usize>) -> Result<(), &'static str> {
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
            _ => return Err(UNKNOWN_COMPRESSION),
        };
        self.compression_seen = true;
        Ok(())
    }

    fn set_timestamp_sizes(&mut self, payload: Range<usize>) -> Result<(), &'static str> {
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

    fn set_predecessor(&mut self, payload: Range<usize>) -> Result<(), &'static str> {
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

    /// Handles a recyclable record with another log's number: in a recycled file, the end of this log.
    fn old_record(
        &mut self,
        mode: RecoveryMode,
        offset: u64,
        partial: &mut Partial,
    ) -> Result<Step> {
        let alone = self.data_seen && !self.recycled;
        if alone && mode == RecoveryMode::PointInTimeRecovery {
            // No writer mixes legacy and recyclable records; a flipped bit in the type byte turns a
            // legacy record into a recyclable one. Ending here as usual would let recovery continue
            // with the next log behind a hole.
            let bytes = self.blocks.position().saturating_sub(offset);
            return self.damage(
                mode,
                offset,
                bytes,
                "record of another log among legacy ones",
            );
        }
        self.old_records = true;
        self.cut(mode, partial, None)
    }

    /// Handles anything but a record with a correct checksum.
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
            Found::OldRecord {
                offset,
                damaged: true,
            } => {
                let bytes = self.blocks.position().saturating_sub(offset);
                self.bad(mode, offset, bytes, "damaged record header", partial, out)
            }
            Found::OldRecord { offset, .. } if mode != SkipAnyCorruptedRecords => {
                self.old_record(mode, offset, partial)
            }
            Found::OldRecord { .. } | Found::Zeros { .. } => {
                match found {
                    Found::OldRecord { .. } => self.old_records = true,
                    _ => self.zeros = true,
                }
                self.interrupt(mode, partial, out)
            }
            Found::BadLength {
                offset,
                bytes,
                header,
                ..
            }
            | Found::BadCrc {
                offset,
                bytes,
                header,
            } => {
                self.recycled |= header.kind.is_recyclable();
                let reason = if matches!(found, Found::BadCrc { .. }) {
                    "checksum mismatch"
                } else {
                    "bad record length"
                };
                if self.recycled && mode == TolerateCorruptedTailRecords {
                    // In a recycled file, remains of the older log look like this.
                    self.finish(Some(reason))?;
                    return Ok(Step::Ended);
                }
                self.bad(mode, offset, bytes, reason, partial, out)
            }
        }
    }

    /// Handles a damaged record: the logical record that it was part of is lost too.
    fn bad(
        &mut self,
        mode: RecoveryMode,
        offset: u64,
        bytes: u64,
        reason: &'static str,
        partial: &mut Partial,
        out: &mut Vec<u8>,
    ) -> Result<Step> {
        match self.damage(mode, offset, bytes, reason)? {
            Step::More => self.interrupt(mode, partial, out),
            other => Ok(other),
        }
    }

    /// Ends the log here; a logical record that has begun is cut off.
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

    /// Handles anything in the place where a logical record should continue: the record is lost.
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
        let lost = partial.bytes;
        out.clear();
        self.damage(
            mode,
            partial.offset,
            lost,
            "error in the middle of a record",
        )
    }
}
