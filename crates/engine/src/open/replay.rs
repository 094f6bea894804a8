//! Recovery of the logs: writes that are not in a table yet are inserted into memtables again.
//!
//! Logs are read in the order of their numbers. The recovery mode decides how damage ends a log. In point-in-time
//! mode, damage ends the whole recovery, unless the next log begins with exactly the next sequence number: this is
//! the case if the database was reopened after the damage.
//!
//! Each log that Ironstone wrote records where the previous log ended (`log::note`). A log that is missing, or that
//! ends before that place, has lost writes. If a fence in a later log proves that these writes were durable, this
//! is corruption, and the open fails. Otherwise a crash lost them before they were acknowledged as durable. Recovery
//! then stops there, so that the recovered data is a prefix of all writes; later logs are ignored. The open
//! that finds this moves every family to a new log, so that the ignored data does not come back.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base::{Error, FileNumber, Result};
use io::OpenHow;
use log::chain::Stage;
use log::{Chain, LogEnd, Lsn, RecoveryMode};

use super::Opening;
use crate::background::state::RECOVERY_JOB;
use crate::batch::WriteBatch;
use crate::catalog::family::FamilySet;
use crate::info::log::Event;
use crate::write::apply::{Inserter, Replay};
use files::{self, FileKind};
use manifest::Recovered;

/// A batch begins with its sequence number and its record count.
const BATCH_HEADER: usize = 12;

/// How many bytes of batches are inserted at once: the smallest write buffer divided by `PART_OF_BUFFER`, but at
/// least `PART_MIN` and at most `PART_MAX`. After each part, the sizes of the memtables are checked.
const PART_MIN: usize = 64 << 10;
const PART_MAX: usize = 1 << 20;
const PART_OF_BUFFER: usize = 8;
/// The most threads that insert.
const SHARES_MAX: usize = 4;

/// The hint on how to open the database without the lost data.
const WAY_OUT: &str = "this is no torn tail. Restore the file, or open with \
     wal_recovery_mode=kSkipAnyCorruptedRecords to keep what can still be read";

/// The outcome of the replay.
#[derive(Debug, Default)]
pub(super) struct Replayed {
    /// The last sequence number used.
    pub(super) last_sequence: u64,
    /// The sequence number after the last record read. A log that was begun after damage starts with it. It does
    /// not come from the MANIFEST, whose number may already include later logs.
    next_in_logs: Option<u64>,
    /// The logs that were read, with their sizes in bytes.
    pub(super) logs: Vec<(FileNumber, u64)>,
    /// The end of each log that holds records.
    pub(super) ends: Vec<LogEnd>,
    /// Whether part of the logs was given up as damaged, or is missing.
    pub(super) cut: bool,
}

impl Replayed {
    /// The end offsets of the logs from number `first` on, by log number.
    pub(super) fn ends_from(&self, first: u64) -> BTreeMap<u64, u64> {
        let ends = self.ends.iter().map(|log| (log.number.0, log.end.0));
        ends.filter(|(n, _)| *n >= first).collect()
    }
}

/// The log in which recovery stopped, and the sequence number with which a later log must begin to continue it.
type Stop = (FileNumber, Option<u64>);

/// Called when memtables may have become too large.
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
        let oldest = families.iter().map(|f| f.log_number().0).min().unwrap_or(0);
        let first = FileNumber(recovered.min_log_number_to_keep.max(oldest));
        self.check_tracked(recovered, first)?;
        let chain = self.chain(first, recovered)?;
        self.tell_started(&chain, first);
        let mut stopped: Option<Stop> = None;
        for stage in chain.stages(first.0) {
            self.replay_stage(
                &chain,
                stage,
                families,
                &mut out,
                &mut stopped,
                &mut *overflow,
            )?;
        }
        if let Some((number, _)) = stopped {
            self.check_consistent(families, number)?;
        }
        Ok(out)
    }

    /// Writes to LOG which logs are being recovered, if there are any.
    fn tell_started(&self, chain: &Chain, first: FileNumber) {
        let logs: Vec<u64> = chain.stages(first.0).iter().map(|s| s.number).collect();
        if !logs.is_empty() {
            self.info_log.event(
                &Event::new("recovery_started")
                    .number("job", RECOVERY_JOB)
                    .numbers("wal_files", logs),
            );
        }
    }

    /// Replays one log, or handles a missing log.
    fn replay_stage(
        &self,
        chain: &Chain,
        stage: Stage,
        families: &FamilySet,
        out: &mut Replayed,
        stopped: &mut Option<Stop>,
        overflow: Overflow<'_>,
    ) -> Result<()> {
        let number = FileNumber(stage.number);
        let path = files::wal_path(self.logs.dir(), number);
        let short = Short {
            opening: self,
            chain,
            number,
            path: &path,
        };
        let Some(file) = stage.file else {
            return match stage.end {
                Some(end) if stopped.is_none() => short.found(0, end, true, out, stopped),
                _ => Ok(()),
            };
        };
        let size = file.len()?;
        let options = log::ReaderOptions {
            mode: self.options.db.wal_recovery_mode,
            fences: true,
        };
        let reader = log::Reader::new(file, number.0, options);
        let mut one = OneLog {
            opening: self,
            families,
            number,
            path: &path,
            reader: reader
                .ending_at(stage.end.unwrap_or(u64::MAX))
                .with_nonce(chain.nonce(number.0)),
        };
        let before = out.last_sequence;
        let read = one.replay(out, stopped, overflow)?;
        out.logs.push((number, size));
        if !read {
            self.info_log.warn(format_args!(
                "log {number}: its {size} bytes are not replayed: it does not go on where recovery \
                 stopped"
            ));
            return Ok(());
        }
        let end = one.reader.end().offset();
        self.info_log.info(format_args!(
            "Recovered log {number}: sequences {} to {}, ended at {end}",
            before + 1,
            out.last_sequence,
        ));
        if end > 0 {
            out.ends.push(LogEnd {
                number,
                end: Lsn(end),
            });
        }
        match stage.end.max(chain.mark(number.0)) {
            Some(noted) if end < noted => short.found(end, noted, false, out, stopped),
            _ => Ok(()),
        }
    }

    /// Errors: a log that the MANIFEST tracks is missing or too short.
    fn check_tracked(&self, recovered: &Recovered, first: FileNumber) -> Result<()> {
        if self.salvages() {
            return Ok(());
        }
        let ends = recovered.log_ends.range(first.0..);
        let ends = ends.map(|(&number, &end)| (number, Some(end)));
        let tracked = recovered.wals.range(first.0..);
        for (number, size) in tracked.map(|(&number, &size)| (number, size)).chain(ends) {
            let path = files::wal_path(self.logs.dir(), FileNumber(number));
            let have = match self.options.env.fs.metadata(&path) {
                Ok(m) => m.len,
                Err(e) if e.is_not_found() => {
                    return Err(Error::corruption(
                        "the MANIFEST tracks this log, but it is missing",
                    )
                    .file(path)
                    .offset(0)
                    .hint(WAY_OUT));
                }
                Err(e) => return Err(e),
            };
            if let Some(size) = size.filter(|&size| have < size) {
                return Err(Error::corruption(format!(
                    "the MANIFEST says that {size} bytes of this log are durable, it has {have}"
                ))
                .file(path)
                .offset(have)
                .hint(WAY_OUT));
            }
        }
        Ok(())
    }

    /// The logs from number `first` on.
    fn chain(&self, first: FileNumber, recovered: &Recovered) -> Result<Chain> {
        let fs = &*self.options.env.fs;
        let mut logs = Vec::new();
        for entry in files::list(fs, self.logs.dir())? {
            if entry.kind == FileKind::Wal && entry.number >= first {
                let path: PathBuf = self.logs.dir().join(&entry.name);
                let file = fs.open(&path, OpenHow::READ)?;
                if !self.read_only {
                    // A log that stays in use is synced at the end of recovery; the device can start writing now.
                    file.start_writeback(0, file.len()?)?;
                }
                logs.push((entry.number.0, file));
            }
        }
        let sizes = recovered.wals.iter();
        let sizes = sizes.filter_map(|(&number, &size)| Some((number, size?)));
        let marks = sizes.chain(recovered.log_ends.iter().map(|(&n, &end)| (n, end)));
        Ok(Chain::read(logs, &recovered.log_secrets)?.marked(marks))
    }

    /// Whether damage is skipped and everything that can be read is kept.
    fn salvages(&self) -> bool {
        self.options.db.wal_recovery_mode == RecoveryMode::SkipAnyCorruptedRecords
    }

    /// Recovery stopped in log `at`. Errors: a family has tables with newer data than that.
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

/// A log that lacks data which it had according to a later log or the MANIFEST.
struct Short<'a> {
    opening: &'a Opening,
    chain: &'a Chain,
    number: FileNumber,
    path: &'a Path,
}

impl Short<'_> {
    /// Handles a log that is missing or ends at `end` instead of `noted`. Returns an error, or stops the recovery.
    /// With `SkipAnyCorruptedRecords`, the recovery continues.
    fn found(
        &self,
        end: u64,
        noted: u64,
        missing: bool,
        out: &mut Replayed,
        stopped: &mut Option<Stop>,
    ) -> Result<()> {
        let mode = self.opening.options.db.wal_recovery_mode;
        let lost = noted - end;
        let what = if missing {
            format!("this log is missing; it had {noted} bytes")
        } else {
            format!("this log ends here; it had {noted} bytes")
        };
        out.cut = true;
        if mode != RecoveryMode::SkipAnyCorruptedRecords {
            let error = |why: String| {
                Error::corruption(format!("{what}, {why}: {lost} bytes are lost"))
                    .file(self.path)
                    .offset(end)
                    .hint(WAY_OUT)
            };
            if !missing
                && self
                    .chain
                    .mark(self.number.0)
                    .is_some_and(|mark| end < mark)
            {
                return Err(error(
                    "and the MANIFEST says that all of it was durable".to_owned(),
                ));
            }
            if let Some(by) = self.chain.proof(self.number.0)? {
                let by = FileNumber(by);
                return Err(error(format!(
                    "and log {by} proves that all of it was durable"
                )));
            }
            if mode == RecoveryMode::AbsoluteConsistency {
                return Err(error("not known to be durable".to_owned()));
            }
            stopped.get_or_insert((self.number, out.next_in_logs));
        }
        self.opening.info_log.warn(format_args!(
            "{}: at offset {end}: {what}, not known to be durable: {lost} bytes are lost{}",
            self.path.display(),
            if stopped.is_some() {
                "; recovery stops here"
            } else {
                ""
            }
        ));
        Ok(())
    }
}

struct OneLog<'a> {
    opening: &'a Opening,
    families: &'a FamilySet,
    number: FileNumber,
    path: &'a Path,
    reader: log::Reader,
}

/// Consecutive batches of a log, each with the file offset of its record.
#[derive(Default)]
struct Part {
    batches: Vec<(u64, WriteBatch)>,
    bytes: usize,
    /// Whether the log ends after this part.
    last: bool,
}

impl OneLog<'_> {
    /// Replays the log. Returns false if it does not continue where recovery stopped.
    fn replay(
        &mut self,
        out: &mut Replayed,
        stopped: &mut Option<Stop>,
        overflow: Overflow<'_>,
    ) -> Result<bool> {
        let (families, number, path) = (self.families, self.number, self.path);
        let (bytes, shares) = (self.part_bytes(), self.shares());
        let insert = |part: &Part, share| insert(part, share, families, number, path);
        let Some(mut part) = self.read_part(bytes, out, stopped)? else {
            return Ok(false);
        };
        loop {
            // The next part is read while this part is inserted.
            let next = base::sync::thread::scope(|scope| {
                let mut inserting = Vec::new();
                let (part, insert) = (&part, &insert);
                let all = 0..if part.bytes < PART_MIN { 1 } else { shares };
                for share in all.clone() {
                    let thread =
                        base::sync::thread::Builder::new().name("ironstone:replay".to_owned());
                    let of = all.end;
                    let spawned = (of > 1)
                        .then(|| thread.spawn_scoped(scope, move || insert(part, (share, of))));
                    match spawned {
                        Some(Ok(running)) => inserting.push(running),
                        _ => insert(part, (share, of))?,
                    }
                }
                let next = if part.last {
                    Ok(None)
                } else {
                    self.read_part(bytes, out, stopped)
                };
                for running in inserting {
                    let panicked = |_| Error::aborted("the replay of a log panicked").file(path);
                    running.join().map_err(panicked)??;
                }
                next
            })?;
            overflow()?;
            match next {
                Some(next) => part = next,
                None => break,
            }
        }
        self.ended(out, stopped);
        Ok(true)
    }

    /// How many bytes a part has.
    fn part_bytes(&self) -> usize {
        let buffers = self.families.iter();
        let smallest = buffers
            .map(|f| f.options().cf.write_buffer_size as usize)
            .min();
        (smallest.unwrap_or(0) / PART_OF_BUFFER).clamp(PART_MIN, PART_MAX)
    }

    /// How many threads insert. Each handles the records of its own families: two threads that insert into the same
    /// memtable would be no faster than one, because they wait for each other's cache lines.
    fn shares(&self) -> usize {
        let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        let wanted = self
            .opening
            .options
            .db
            .max_file_opening_threads
            .unsigned_abs() as usize;
        let families = self.families.iter().count();
        processors.min(wanted).min(families).min(SHARES_MAX)
    }

    /// Reads a part of about `bytes` bytes; `None` if the log does not continue where recovery stopped.
    fn read_part(
        &mut self,
        bytes: usize,
        out: &mut Replayed,
        stopped: &mut Option<Stop>,
    ) -> Result<Option<Part>> {
        let mut part = Part::default();
        let mut record = Vec::new();
        while part.bytes < bytes {
            if !self.reader.read(&mut record)? {
                part.last = true;
                break;
            }
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
                    return Ok(None);
                }
                *stopped = None;
            }
            if first > out.last_sequence + 1 {
                self.opening.info_log.info(format_args!(
                    "log {}: at offset {at}: sequences {} to {} were not logged",
                    self.number,
                    out.last_sequence + 1,
                    first - 1
                ));
            }
            let next = first + u64::from(batch.count());
            out.next_in_logs = Some(next);
            if batch.count() > 0 {
                out.last_sequence = out.last_sequence.max(next - 1);
            }
            part.bytes += batch.data().len();
            part.batches.push((at, batch));
        }
        Ok(Some(part))
    }

    /// Records how the log ended.
    fn ended(&self, out: &mut Replayed, stopped: &mut Option<Stop>) {
        let (damages, bytes) = self.reader.damage_totals();
        if damages > 0 {
            out.cut = true;
            self.opening.info_log.warn(format_args!(
                "{}: {damages} damaged places skipped, {bytes} bytes",
                self.path.display(),
            ));
        }
        let log::End::Torn {
            offset,
            reason,
            dropped_bytes,
        } = self.reader.end()
        else {
            return;
        };
        out.cut = true;
        self.opening.info_log.warn(format_args!(
            "{}: at offset {offset}: {reason}; {dropped_bytes} bytes dropped",
            self.path.display(),
        ));
        if self.opening.options.db.wal_recovery_mode == RecoveryMode::PointInTimeRecovery {
            stopped.get_or_insert((self.number, out.next_in_logs));
        }
    }
}

/// Inserts a part's records for the families of one share into their memtables.
fn insert(
    part: &Part,
    share: (usize, usize),
    families: &FamilySet,
    log_number: FileNumber,
    path: &Path,
) -> Result<()> {
    let target = Replay {
        families,
        log_number,
        share,
    };
    let mut inserter = Inserter::new(&target, false);
    for (at, batch) in &part.batches {
        inserter
            .add(batch)
            .map_err(|e| e.or_file(path).offset(*at))?;
    }
    inserter.finish();
    Ok(())
}
