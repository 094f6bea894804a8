//! Recovery of the logs: what was written but is in no table goes into memtables again.
//!
//! Logs are read in the order of their numbers. Damage ends a log as the recovery mode says; in
//! point-in-time mode it ends the recovery, unless the next log goes on with exactly the sequence
//! number that comes next: that is what a database that was reopened after damage looks like.

use std::path::PathBuf;

use base::{Error, FileNumber, Result};
use io::OpenHow;

use super::Opening;
use crate::batch::WriteBatch;
use crate::family::FamilySet;
use crate::files::{self, FileKind};
use crate::version::manifest::Recovered;
use crate::write::apply::{self, Replay};
use log::RecoveryMode;

/// A batch begins with its sequence number and its count.
const BATCH_HEADER: usize = 12;

/// What the logs gave.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    /// The last sequence number used.
    pub(super) last_sequence: u64,
    /// The one that follows the last record read, which is what a log that goes on behind damage
    /// begins with. Not the MANIFEST's: its numbers may already be those of later logs.
    next_in_logs: Option<u64>,
    /// The logs that were read, with their sizes.
    pub(super) logs: Vec<(FileNumber, u64)>,
    /// Whether something at the end of a log was cut off.
    pub(super) cut: bool,
}

/// Where recovery stopped, and the sequence number with which a later log goes on.
type Stop = (FileNumber, Option<u64>);

/// Called when memtables may have become too large to go on; gets the number of the log.
pub(super) type Overflow<'a> = &'a mut dyn FnMut() -> Result<()>;

impl Opening {
    /// Replays every log that the MANIFEST does not declare obsolete.
    pub(super) fn replay(
        &self,
        recovered: &Recovered,
        families: &FamilySet,
        overflow: Overflow<'_>,
    ) -> Result<Replayed> {
        let mut out = Replayed {
            last_sequence: recovered.last_sequence,
            ..Replayed::default()
        };
        let logs = self.live_logs(recovered, families)?;
        let mut stopped: Option<Stop> = None;
        for (number, path) in logs {
            let file = self.options.env.fs.open(&path, OpenHow::READ)?;
            let size = file.len()?;
            let mut one = OneLog {
                opening: self,
                families,
                number,
                path: &path,
                reader: log::Reader::new(
                    file,
                    number.0,
                    log::ReaderOptions {
                        mode: self.options.db.wal_recovery_mode,
                        fences: true,
                    },
                ),
            };
            let before = out.last_sequence;
            one.replay(&mut out, &mut stopped, &mut *overflow)?;
            self.log.info(format_args!(
                "Recovered log {number}: sequences {} to {}, ended at {}",
                before + 1,
                out.last_sequence,
                one.reader.end().offset()
            ));
            out.logs.push((number, size));
        }
        if let Some((number, _)) = stopped {
            self.check_consistent(families, number)?;
        }
        Ok(out)
    }

    /// The logs to read, in order. Errors: a log that the MANIFEST tracks is missing or short.
    fn live_logs(
        &self,
        recovered: &Recovered,
        families: &FamilySet,
    ) -> Result<Vec<(FileNumber, PathBuf)>> {
        let fs = &*self.options.env.fs;
        let oldest = families.iter().map(|f| f.log_number().0).min().unwrap_or(0);
        let first = FileNumber(recovered.min_log_number_to_keep.max(oldest));
        for (&number, &size) in recovered.wals.range(first.0..) {
            let path = files::wal_path(self.logs.dir(), FileNumber(number));
            let Some(size) = size else { continue };
            let have = match fs.metadata(&path) {
                Ok(m) => m.len,
                Err(e) if e.is_not_found() => {
                    return Err(Error::corruption(
                        "the MANIFEST tracks this log, but it is missing",
                    )
                    .file(path));
                }
                Err(e) => return Err(e),
            };
            if have < size {
                return Err(Error::corruption(format!(
                    "the MANIFEST says that {size} bytes of this log are durable, it has {have}"
                ))
                .file(path));
            }
        }
        Ok(files::list(fs, self.logs.dir())?
            .into_iter()
            .filter(|e| e.kind == FileKind::Wal && e.number >= first)
            .map(|e| (e.number, self.logs.dir().join(&e.name)))
            .collect())
    }

    /// Recovery stopped in log `at`: no family may have data in tables that is newer than that.
    fn check_consistent(&self, families: &FamilySet, at: FileNumber) -> Result<()> {
        let ahead = families
            .iter()
            .find(|f| f.log_number() > at && f.view.load().version.files().next().is_some());
        match ahead {
            None => Ok(()),
            Some(family) => Err(Error::corruption(format!(
                "this log is damaged, but column family {:?} has newer data in tables: the families would not be consistent",
                family.name
            ))
            .file(files::wal_path(self.logs.dir(), at))),
        }
    }
}

struct OneLog<'a> {
    opening: &'a Opening,
    families: &'a FamilySet,
    number: FileNumber,
    path: &'a std::path::Path,
    reader: log::Reader,
}

impl OneLog<'_> {
    fn replay(
        &mut self,
        out: &mut Replayed,
        stopped: &mut Option<Stop>,
        overflow: Overflow<'_>,
    ) -> Result<()> {
        let target = Replay {
            families: self.families,
            log_number: self.number,
        };
        let mut record = Vec::new();
        while self.reader.read(&mut record)? {
            if record.len() < BATCH_HEADER {
                self.reader.reject("log record too small")?;
                continue;
            }
            let at = self.reader.record_offset();
            let batch = WriteBatch::from_data(std::mem::take(&mut record))
                .map_err(|e| e.or_file(self.path).offset(at))?;
            let first = batch.sequence();
            if let Some((_, expected)) = *stopped {
                if expected != Some(first) {
                    return Ok(()); // this log does not go on where recovery stopped
                }
                *stopped = None;
            }
            if first > out.last_sequence + 1 {
                self.opening.log.info(format_args!(
                    "log {}: at offset {at}: sequences {} to {} were not logged",
                    self.number,
                    out.last_sequence + 1,
                    first - 1
                ));
            }
            apply::insert(&batch, &target).map_err(|e| e.or_file(self.path).offset(at))?;
            let next = first + u64::from(batch.count());
            out.next_in_logs = Some(next);
            if batch.count() > 0 {
                out.last_sequence = out.last_sequence.max(next - 1);
            }
            overflow()?;
            record = batch.into_data();
        }
        self.ended(out, stopped);
        Ok(())
    }

    /// Notes how the log ended.
    fn ended(&self, out: &mut Replayed, stopped: &mut Option<Stop>) {
        let log::End::Torn {
            offset,
            reason,
            dropped_bytes,
        } = self.reader.end()
        else {
            return;
        };
        out.cut = true;
        self.opening.log.warn(format_args!(
            "{}: at offset {offset}: {reason}; {dropped_bytes} bytes dropped",
            self.path.display(),
        ));
        if self.opening.options.db.wal_recovery_mode == RecoveryMode::PointInTimeRecovery {
            stopped.get_or_insert((self.number, out.next_in_logs));
        }
    }
}
