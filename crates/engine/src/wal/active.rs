//! The active log, and older ones that are not durable yet.
//!
//! With `wal_io_mode = auto`, the kind of the next log ([`LogKind`]) depends on the writes. A log is closed
//! early when the writes no longer suit its kind, or when a direct log is full: extending its file would
//! cost as much as a direct log saves.

use std::collections::VecDeque;
use std::sync::Arc;

use base::sync::MutexGuard;
use base::{Error, FileNumber, Result, ValueType};
use io::MappedFile;
use log::{Fence, LogEnd, Lsn, Note};

use super::log_files::{LogFiles, LogKind, NewLog};
use super::pace;
use crate::batch::HEADER_LEN;
use options::WalIoMode;

/// A direct log replaces a buffered log when synced groups outnumber unsynced groups by more than this.
const SYNCED_RUN: u32 = 4;
/// A buffered log replaces a direct log when unsynced groups outnumber synced groups by more than this.
/// Each unsynced group costs a direct log a device write.
const UNSYNCED_RUN: u32 = 32;
/// Bytes that framing may add to a group, over all its records.
const FRAMING_SLACK: u64 = 64 << 10;
/// With `manual_wal_flush`, about how many bytes of the log may wait in the process: RocksDB's
/// `writable_file_max_buffer_size`.
const PENDING_BYTES_MAX: usize = 1 << 20;

/// After so many bytes it is looked whether a mapped log needs a window.
const LOOK_FOR_WINDOWS: u64 = 128 << 10;

/// How far the log must be written before a write is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum LogStep {
    /// In the memory of the process: `manual_wal_flush`. Does not survive the death of the process.
    Append,
    /// In the operating system: survives the death of the process.
    Submit,
    /// On the device: survives a power cut.
    Sync,
}

/// The active log, and the older logs that must be durable before it counts as durable.
pub(crate) struct ActiveLog {
    writer: log::Writer,
    /// The writer's file, if it is written by stores.
    mapped: Option<Arc<MappedFile>>,
    pub(crate) number: FileNumber,
    /// The nonce that the log's note and fences carry.
    nonce: u64,
    kind: LogKind,
    capacity: u64,
    recycled: bool,
    /// The last earlier log that is not empty; none if no earlier log is needed.
    previous: LogEnd,
    /// Groups that the log's kind does not suit, minus groups that it suits; never below 0.
    unsuited: u32,
    /// Closed logs with bytes that are not durable yet, oldest first. They are
    /// synced before any record of the active log is acknowledged as durable.
    unsynced: Vec<(log::Syncer, LogEnd)>,
    /// The ends of closed logs that are durable, until [`ActiveLog::take_closed`] takes them.
    closed: Vec<LogEnd>,
    /// Offset up to which writeback of the active file was started.
    writeback_from: u64,
    /// The last sequence number in this log or an earlier one.
    last_sequence: u64,
    /// Synced flights of this log that are not counted as durable yet: the end of each, and its last
    /// sequence number.
    flying: VecDeque<(Lsn, u64)>,
    /// How often logs were given up together with the flights under way.
    given_up: u64,
    /// See [`ActiveLog::lacks_earlier`].
    lacks: Option<Error>,
    /// Used bytes, as last reported to the thread that prepares files.
    used_told: u64,
    /// Threads that wait for a flight to land.
    pub(crate) waiting: usize,
}

/// The active log, locked; `None` if the database is open for reading only.
pub(crate) type Guard<'a> = MutexGuard<'a, Option<ActiveLog>>;

/// The device operations that a group waits for: first the syncs of older logs, then the write of the active log.
#[must_use = "the log waits until it is settled"]
pub(crate) struct LogFlight {
    older: Vec<log::Syncer>,
    own: Option<log::Flight>,
    /// The last sequence number that the flight covers.
    pub(crate) last_sequence: u64,
    /// Whether the flight makes all records up to that number durable.
    pub(crate) synced: bool,
    /// [`ActiveLog::given_up`] when the flight began.
    pub(crate) given_up: u64,
}

impl LogFlight {
    /// Bytes that the flight writes.
    pub(crate) fn bytes(&self) -> u64 {
        self.own.as_ref().map_or(0, log::Flight::bytes)
    }

    /// Waits for the device.
    pub(crate) fn run(&self) -> Result<()> {
        for log in &self.older {
            log.sync()?;
        }
        self.own.as_ref().map_or(Ok(()), log::Flight::run)
    }
}

impl ActiveLog {
    pub(crate) fn new(new: NewLog, last_sequence: u64) -> Self {
        Self {
            writer: new.writer,
            mapped: new.mapped,
            number: new.number,
            nonce: new.nonce,
            kind: new.kind,
            capacity: new.capacity,
            recycled: new.recycled,
            previous: LogEnd::NONE,
            unsuited: 0,
            unsynced: Vec::new(),
            closed: Vec::new(),
            writeback_from: 0,
            last_sequence,
            flying: VecDeque::new(),
            given_up: 0,
            lacks: None,
            used_told: 0,
            waiting: 0,
        }
    }

    /// Sets the previous log, all of which is durable.
    pub(crate) fn following(mut self, previous: LogEnd) -> Self {
        self.previous = previous;
        self
    }

    fn end_at(&self, end: Lsn) -> LogEnd {
        LogEnd {
            number: self.number,
            end,
        }
    }

    /// Makes `new` the active log. The records of the old log must still be synced. No flight may be under way.
    pub(crate) fn switch(&mut self, new: NewLog) -> Result<()> {
        self.submit_all()?;
        let left = self.end_at(Lsn(self.writer.size()));
        let old_records = self.recycled && self.kind == LogKind::Buffered;
        if let Some(mapped) = &self.mapped {
            mapped.leave(Some(left.end.0)); // as below
        } else if old_records || self.writer.has_room_ahead() {
            // If a sequence number is in no log, RocksDB takes records of an older log after the end for
            // damage. Blocks after the end are not needed any more. If the truncation fails, the file is no
            // worse than before.
            drop(self.writer.file().truncate(left.end.0));
        }
        if self.writer.durable() < left.end {
            self.unsynced.push((self.writer.syncer(), left));
        } else if !left.is_empty() {
            self.closed.push(left);
        }
        self.leave(left, new);
        Ok(())
    }

    /// Replaces a failed log. The failed log ends where its durable part ends.
    pub(crate) fn replace(&mut self, new: NewLog) {
        let left = self.end_at(self.writer.durable());
        if !left.is_empty() {
            self.closed.push(left);
        }
        self.leave(left, new);
    }

    /// Gives up all earlier logs: the memtables are flushed to tables instead. The logs count as durable up to the
    /// sequence number `durable`, and no further.
    pub(crate) fn begin_anew(&mut self, new: NewLog, durable: u64) {
        self.replace(new);
        self.given_up += 1;
        self.unsynced.clear();
        self.last_sequence = durable;
    }

    /// Takes note that acknowledged records may be in no log because of `error`, or not as durable as was promised. The
    /// database has failed, or fails now.
    pub(crate) fn lacks_earlier(&mut self, error: &Error) {
        self.lacks.get_or_insert_with(|| error.clone());
    }

    /// Takes note that all that this log may lack is in tables.
    pub(crate) fn lacks_nothing(&mut self) {
        self.lacks = None;
    }

    /// Whether nothing can make durable what was logged: this log has failed or lacks earlier records, or an earlier log
    /// has failed.
    pub(crate) fn is_in_vain(&self) -> bool {
        let failed = |(log, _): &(log::Syncer, _)| log.marks().failure().is_some();
        self.failure().is_some() || self.lacks.is_some() || self.unsynced.iter().any(failed)
    }

    /// For a database that has failed: hands all records to the operating system and, if they are `promised` to become
    /// durable without being asked for, brings them to the device. No flight is under way. Errors: records are lost, or
    /// not durable.
    pub(crate) fn keep(&mut self, promised: bool) -> Result<()> {
        let kept = match self.failure() {
            Some(_) if promised && self.is_durable() => Ok(()),
            Some(_) if !promised && self.submitted() == self.end().0 => Ok(()),
            Some(e) => Err(e),
            None if promised => self.submit_all().and_then(|()| self.sync_all()),
            None => self.submit_all(),
        };
        self.lacks.clone().map_or(kept, Err)
    }

    fn leave(&mut self, left: LogEnd, new: NewLog) {
        if !left.is_empty() {
            self.previous = left;
        }
        let old_mapped = std::mem::replace(&mut self.mapped, new.mapped);
        let old_writer = std::mem::replace(&mut self.writer, new.writer);
        self.number = new.number;
        self.nonce = new.nonce;
        self.kind = new.kind;
        self.capacity = new.capacity;
        self.recycled = new.recycled;
        self.unsuited = 0;
        self.writeback_from = 0;
        self.flying.clear();
        self.used_told = 0;
        // Last: if the file system panics here, this is the new log.
        if let Some(mapped) = old_mapped {
            mapped.leave(None);
        }
        drop(old_writer);
    }

    /// Called before a group is logged: notes whether its step suits the log's kind. Returns true if the
    /// pool is needed from now on and was not needed before.
    pub(crate) fn note_step(&mut self, files: &LogFiles, step: LogStep) -> bool {
        let unsuited = match (self.kind, files.mode, step) {
            (LogKind::Buffered, WalIoMode::Direct, _)
            | (LogKind::Buffered, WalIoMode::Auto, LogStep::Sync)
            | (LogKind::Direct, WalIoMode::Auto, LogStep::Submit) => 1,
            (_, _, LogStep::Append) => 0,
            _ => -1,
        };
        self.unsuited = self.unsuited.saturating_add_signed(unsuited);
        step == LogStep::Sync && files.note_sync()
    }

    /// The kind of the log to begin before a group of `bytes` is logged, if this log is full or
    /// does not suit the writes.
    pub(crate) fn successor(&self, files: &LogFiles, bytes: u64) -> Option<LogKind> {
        let full = self.writer.size().saturating_add(bytes + FRAMING_SLACK) > self.capacity;
        if full {
            // A group that does not fit into a pool file goes to a buffered log.
            let fits = bytes + FRAMING_SLACK <= self.capacity;
            return Some(if fits {
                LogKind::Direct
            } else {
                LogKind::Buffered
            });
        }
        match (self.kind, files.mode) {
            (LogKind::Buffered, WalIoMode::Direct) => {
                (self.unsuited > 0 && files.direct_ready()).then_some(LogKind::Direct)
            }
            (LogKind::Buffered, WalIoMode::Auto) => {
                (self.unsuited > SYNCED_RUN && files.direct_ready()).then_some(LogKind::Direct)
            }
            (LogKind::Direct, WalIoMode::Auto) => {
                (self.unsuited > UNSYNCED_RUN).then_some(LogKind::Buffered)
            }
            _ => None,
        }
    }

    /// How many bytes of the log were submitted to the operating system.
    pub(crate) fn submitted(&self) -> u64 {
        self.writer.marks().submitted().0
    }

    /// The kind of the log. The next log has the same kind, unless the writes need another kind.
    pub(crate) fn kind(&self) -> LogKind {
        self.kind
    }

    /// Where the log ends.
    pub(crate) fn end(&self) -> Lsn {
        Lsn(self.writer.size())
    }

    /// Where the durable part of the log ends.
    pub(crate) fn durable_end(&self) -> Lsn {
        self.writer.durable()
    }

    /// The file of the log.
    pub(crate) fn file(&self) -> Arc<dyn io::File> {
        Arc::clone(self.writer.file())
    }

    /// The error that ended the log, if it has failed.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.writer.marks().failure()
    }

    /// How many bytes of a pool file are used, if the number has grown by at least a step since the last report. The
    /// pool is filled at this pace.
    pub(crate) fn newly_used(&mut self) -> Option<u64> {
        let used = self.writer.size();
        let more = used.saturating_sub(self.used_told);
        if self.kind != LogKind::Direct || more < pace::step(self.capacity) {
            return None;
        }
        self.used_told = used;
        Some(used)
    }

    /// Whether a window of the log is to be made, if it was not asked for a while.
    pub(crate) fn needs_window(&mut self) -> bool {
        let used = self.writer.size();
        let Some(mapped) = &self.mapped else {
            return false;
        };
        if used.saturating_sub(self.used_told) < LOOK_FOR_WINDOWS {
            return false;
        }
        self.used_told = used;
        mapped.is_due()
    }

    /// Cuts off what was prepared behind the end of a mapped log, because the database closes. If that fails, zeros
    /// remain, which are an end too.
    pub(crate) fn trim(&self) {
        if let Some(mapped) = &self.mapped
            && self.failure().is_none()
        {
            drop(mapped.end(self.submitted()));
        }
    }

    /// Whether a fence may be written now. A fence records that the logs before this log are durable. A group in
    /// a direct log is written only after they are. A group in a buffered log is in the page cache earlier: a power
    /// cut may keep it and yet lose the end of a closed log.
    fn may_fence(&self) -> bool {
        let durable =
            |(log, _): &(log::Syncer, _)| log.marks().durable() >= log.marks().submitted();
        self.kind == LogKind::Direct || self.unsynced.iter().all(durable)
    }

    /// Appends a batch. The first batch of a log has a note about the previous log right after its
    /// header. With `fence`, a fence at the end of the batch records how far the log is durable, if a fence may
    /// be written.
    pub(crate) fn append(&mut self, record: &[u8], fence: bool) -> Result<()> {
        const NOTE: [u8; 2] = [ValueType::LogData as u8, log::note::LEN as u8];
        const FENCE: [u8; 2] = [ValueType::LogData as u8, log::fence::LEN as u8];
        let LogEnd { number, end } = self.previous;
        let (previous_log, previous_end) = (number.0, end.0);
        let log_number = self.number.0;
        let note = (self.writer.size() == 0).then(|| {
            let note = Note {
                log_number,
                previous_log,
                previous_end,
                nonce: self.nonce,
            };
            note.encode()
        });
        let fence = (fence && self.may_fence()).then(|| {
            let fence = Fence {
                log_number,
                durable: self.writer.durable().0,
                previous_log,
                previous_end,
                nonce: self.nonce,
            };
            fence.encode()
        });
        let (header, body) = record.split_at(HEADER_LEN.min(record.len()));
        let mut parts: [&[u8]; 6] = [header, &[], &[], body, &[], &[]];
        if let Some(note) = &note {
            parts[1..3].copy_from_slice(&[&NOTE, note]);
        }
        if let Some(fence) = &fence {
            parts[4..].copy_from_slice(&[&FENCE, fence]);
        }
        // Recovery looks for the note and the fence. So they are not compressed, nor is a header before a note.
        let packed = if note.is_some() { 3..4 } else { 0..4 };
        self.writer.append_around(&parts, packed)?;
        Ok(())
    }

    /// Takes note of the last sequence number of the group that was just appended.
    pub(crate) fn note_sequence(&mut self, last: u64) {
        self.last_sequence = self.last_sequence.max(last);
    }

    /// The end of the last log that is not empty.
    pub(crate) fn last_end(&self) -> LogEnd {
        match self.writer.size() {
            0 => self.previous,
            size => self.end_at(Lsn(size)),
        }
    }

    /// Whether all records of the logs are durable.
    pub(crate) fn is_durable(&mut self) -> bool {
        self.note_closed();
        self.unsynced.is_empty() && self.writer.durable() == self.end()
    }

    /// The last sequence number in this log or an earlier one.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Removes the records that were appended from `to` on. Errors: the log has failed.
    pub(crate) fn cut_back(&mut self, to: Lsn) -> Result<()> {
        self.writer.cut_back(to)
    }

    /// The step of a group whose plan has `step`. If many bytes of the log wait in the process, the group is
    /// submitted to the operating system; otherwise memory would grow until the next call of `flush_wal`.
    pub(crate) fn step_for(&self, step: LogStep) -> LogStep {
        if step == LogStep::Append && self.writer.pending() >= PENDING_BYTES_MAX {
            LogStep::Submit
        } else {
            step
        }
    }

    /// Whether [`ActiveLog::begin`] may be called for `step`.
    pub(crate) fn can_begin(&self, step: LogStep) -> bool {
        self.takes_at_once(step) || self.writer.can_begin(step == LogStep::Sync)
    }

    /// Whether a group may be appended now and then begin `step`.
    pub(crate) fn has_slot(&self, step: LogStep) -> bool {
        self.takes_at_once(step) || self.writer.has_slot(step == LogStep::Sync)
    }

    /// Whether `step` does not wait for the device: the page cache takes bytes at any time.
    fn takes_at_once(&self, step: LogStep) -> bool {
        match step {
            LogStep::Append => true,
            LogStep::Submit => self.kind == LogKind::Buffered,
            LogStep::Sync => false,
        }
    }

    /// Begins to write all appended records as far as `step` requires; `None` if there is nothing to wait for.
    pub(crate) fn begin(&mut self, files: &LogFiles, step: LogStep) -> Result<Option<LogFlight>> {
        match step {
            LogStep::Append => Ok(None),
            LogStep::Submit if self.kind == LogKind::Buffered => {
                self.writer.hand_over()?;
                self.start_writeback(files)?;
                Ok(None)
            }
            LogStep::Submit => {
                self.pad()?; // direct: the device writes it
                let own = self.writer.begin(false)?;
                Ok(own.map(|own| LogFlight {
                    older: Vec::new(),
                    own: Some(own),
                    last_sequence: self.last_sequence,
                    synced: false,
                    given_up: self.given_up,
                }))
            }
            LogStep::Sync => {
                self.pad()?;
                let own = self.writer.begin(true)?;
                if own.is_none() && self.unsynced.is_empty() {
                    return Ok(None);
                }
                // A flight without bytes of this log waits for older logs only, and for no other flight.
                if own.is_some() {
                    let end = Lsn(self.writer.size());
                    self.flying.push_back((end, self.last_sequence));
                }
                Ok(Some(LogFlight {
                    older: self.closed_unsynced(),
                    own,
                    last_sequence: self.last_sequence,
                    synced: true,
                    given_up: self.given_up,
                }))
            }
        }
    }

    /// Fills up the last unit with a batch of no-ops, if the tail must not be rewritten.
    fn pad(&mut self) -> Result<()> {
        let payload = self.writer.padding();
        if payload > 0 {
            let mut batch = vec![ValueType::Noop as u8; payload];
            // The next sequence number: readers refuse a batch whose number goes back.
            let head = (self.last_sequence + 1).to_le_bytes();
            batch[..8].copy_from_slice(&head);
            batch[8..HEADER_LEN].fill(0);
            self.writer.append_padding(&batch)?;
        }
        Ok(())
    }

    /// How often logs were given up together with their flights. Waiting for a flight that began before is in vain.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up
    }

    /// Takes note that a flight has landed. Returns the sequence number up to which all logged records are
    /// durable; 0 if that has not changed.
    pub(crate) fn landed(&mut self, flight: LogFlight, outcome: Result<()>) -> Result<u64> {
        self.note_closed();
        let Some(own) = flight.own else {
            outcome?;
            return Ok(flight.last_sequence);
        };
        self.writer.landed(own, outcome)?;
        let mut durable = 0;
        let reached = self.writer.durable();
        while let Some(&(end, last)) = self.flying.front()
            && end <= reached
        {
            durable = last;
            self.flying.pop_front();
        }
        Ok(durable)
    }

    /// Whether a flight is under way.
    pub(crate) fn is_flying(&self) -> bool {
        self.writer.is_flying()
    }

    /// See [`log::Writer::all_landed`].
    pub(crate) fn all_landed(&self) -> bool {
        self.writer.all_landed()
    }

    /// See [`log::Writer::unacknowledged`].
    pub(crate) fn unacknowledged(&self) -> Option<Vec<Vec<u8>>> {
        self.writer.unacknowledged()
    }

    fn start_writeback(&mut self, files: &LogFiles) -> Result<()> {
        let (from, size) = (self.writeback_from, self.writer.size());
        let step = files.bytes_per_sync();
        if step > 0 && size - from >= step {
            self.writer.file().start_writeback(from, size - from)?;
            self.writeback_from = size;
        }
        Ok(())
    }

    /// The closed logs that are not durable.
    pub(crate) fn closed_unsynced(&self) -> Vec<log::Syncer> {
        self.unsynced.iter().map(|(log, _)| log.clone()).collect()
    }

    /// Moves the closed logs that have become durable from `unsynced` to `closed`.
    pub(crate) fn note_closed(&mut self) {
        let closed = &mut self.closed;
        self.unsynced.retain(|(log, left)| {
            let durable = log.marks().durable() >= log.marks().submitted();
            if durable {
                closed.push(*left);
            }
            !durable
        });
    }

    /// Takes out the closed logs below `needed` that are not durable. Nothing needs them any more, so they need not
    /// be synced. The caller closes their files by dropping them, after it has unlocked the log: closing a file may
    /// take time, because the memory of its unwritten pages is freed.
    pub(crate) fn take_unneeded(&mut self, needed: FileNumber) -> Vec<log::Syncer> {
        let gone = self
            .unsynced
            .extract_if(.., |(_, left)| left.number < needed);
        gone.map(|(log, _)| log).collect()
    }

    /// Whether [`ActiveLog::take_closed`] would return any log.
    pub(crate) fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// The closed logs that have become durable since the last call.
    pub(crate) fn take_closed(&mut self) -> Vec<LogEnd> {
        std::mem::take(&mut self.closed)
    }

    /// Makes all records durable, older logs first, while the log is locked.
    pub(crate) fn sync_all(&mut self) -> Result<()> {
        for (log, _) in &self.unsynced {
            log.sync()?;
        }
        self.note_closed();
        self.pad()?;
        self.writer.sync()?;
        Ok(())
    }

    /// Hands all appended records to the operating system, while the log is locked.
    pub(crate) fn submit_all(&mut self) -> Result<()> {
        if self.kind == LogKind::Direct {
            self.pad()?;
        }
        self.writer.submit()?;
        Ok(())
    }
}
