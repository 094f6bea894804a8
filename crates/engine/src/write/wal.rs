//! The database's logs: how a new one is made, the active one, and older ones that are not durable
//! yet.
//!
//! A log is one of two kinds for its whole life. A *direct* one is a file from the pool, filled
//! with zeros ahead and written past the page cache: a synced group is one device write. A
//! *buffered* one grows through the page cache: unsynced writes are cheapest there. Which kind the
//! next log is follows the writes (`wal_io_mode = auto`); a log is left early when the writes have
//! changed, or when a direct one is full, because extending it would cost what it saves.

use std::collections::{BTreeSet, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;

use base::stats::{Statistics, Ticker};
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError};
use base::{Error, FileNumber, Result, ValueType};
use io::{FileSystem, OpenHow, Probe};
use log::{Fence, LogOptions, Lsn, Names, Note, Pool, PoolOptions, TailPolicy, Taken, WalSync};

use super::pace::{self, Pace};
use super::plan::LogStep;
use super::unit::direct_unit;
use crate::batch::HEADER_LEN;
use crate::files;
use crate::options::{Options, WalCompression, WalIoMode, WalTailPolicy};

/// After so many more synced groups than others in a growing log, a direct one is begun.
const SYNCED_RUN: u32 = 4;
/// The same for groups that are not synced, each of which costs a direct log a device write.
const UNSYNCED_RUN: u32 = 32;
/// Bytes that framing may add to a group, over all its records.
const FRAMING_SLACK: u64 = 64 << 10;
/// Bytes of the log that may wait in the process with `manual_wal_flush`, about: RocksDB's
/// `writable_file_max_buffer_size`.
const PENDING_BYTES_MAX: usize = 1 << 20;

/// Groups are filled up with empty batches.
const PAD: TailPolicy = TailPolicy::Pad {
    payload_min: HEADER_LEN as u32,
};
/// Units that a block of the log has, at least.
const UNITS_MIN: u32 = 2;

/// Bytes that go from the page cache to the device as a whole: a page of memory, or a larger block of
/// the device.
fn page(probe: Option<&Probe>) -> u32 {
    let physical = probe.map_or(0, |p| p.physical_block);
    let largest = log::format::BLOCK as u32 / UNITS_MIN;
    physical
        .next_power_of_two()
        .clamp(io::buffer::PAGE as u32, largest)
}

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogKind {
    /// A file from the pool, past the page cache.
    Direct,
    /// A growing file, through the page cache.
    Buffered,
}

/// Bytes of a buffered log for which blocks are reserved at once, at most; with small memtables as many
/// as one takes.
const ALLOCATE_AHEAD_MAX: u64 = 4 << 20;

/// Makes log files.
pub(crate) struct LogFiles {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    mode: WalIoMode,
    /// The write unit of direct logs; `None` where every log is buffered.
    unit: Option<u32>,
    /// Files for direct logs, and old ones to be overwritten; `None` if there are neither.
    pool: Option<Pool>,
    /// Somebody has synced: the pool is worth its space.
    wanted: AtomicBool,
    /// How fast the pool is filled.
    pace: Pace,
    bytes_per_sync: AtomicU64,
    /// See [`LogOptions::allocate_ahead`].
    allocate_ahead: u64,
    tail: TailPolicy,
    /// What the system writes back as a whole: see [`LogOptions::sync_unit`].
    page: u32,
    depth: u32,
    /// Records carry the log's number, so that files can be overwritten by later logs.
    recyclable: bool,
    compressed: bool,
    /// Logs that this process wrote in recyclable records.
    recyclable_logs: Mutex<BTreeSet<FileNumber>>,
    names: Arc<Names>,
    /// What the nonces of the logs are made of.
    secret: u64,
    statistics: Option<Arc<Statistics>>,
}

impl LogFiles {
    /// The logs in `dir`; `probe` tells what can be done there. `secret`: see [`log::secret`].
    pub(crate) fn open(
        dir: PathBuf,
        options: &Options,
        probe: Option<&Probe>,
        secret: u64,
    ) -> Result<Self> {
        let fs = Arc::clone(&options.env.fs);
        let db = &options.db;
        let unit = probe.and_then(|p| direct_unit(db, p));
        let recycle = options.recycled_logs();
        let pool = if unit.is_some() || recycle > 0 {
            let pool_options = PoolOptions {
                file_bytes: log::pool::file_bytes_for(
                    options.cf.cf.write_buffer_size,
                    db.max_total_wal_size,
                )?,
                ready: unit.map_or(0, |_| db.wal_pool_files as usize),
                direct: unit.is_some(),
                recycle,
            };
            Some(Pool::open(
                Arc::clone(&fs),
                Arc::clone(&options.env.clock),
                &dir,
                pool_options,
            )?)
        } else {
            None
        };
        Ok(Self {
            names: Arc::new(Names::new(Arc::clone(&fs), dir.clone())),
            fs,
            dir,
            secret,
            mode: db.wal_mode(),
            unit,
            pool,
            wanted: AtomicBool::new(db.wal_mode() == WalIoMode::Direct),
            pace: Pace::new(options.cf.cf.write_buffer_size),
            bytes_per_sync: AtomicU64::new(db.wal_bytes_per_sync),
            allocate_ahead: if db.allow_fallocate {
                options.cf.cf.write_buffer_size.min(ALLOCATE_AHEAD_MAX)
            } else {
                0
            },
            page: page(probe),
            tail: match db.wal_tail_policy {
                WalTailPolicy::Pad => PAD,
                WalTailPolicy::Rewrite => TailPolicy::Rewrite,
                WalTailPolicy::Atomic => TailPolicy::Atomic,
            },
            depth: db.wal_pipeline_depth,
            recyclable: recycle > 0,
            compressed: db.wal_compression == WalCompression::Zstd,
            recyclable_logs: Mutex::default(),
            statistics: options.env.statistics.clone(),
        })
    }

    /// The logs' names: those that the MANIFEST relies on must be durable.
    pub(crate) fn names(&self) -> &Arc<Names> {
        &self.names
    }

    /// Changes `wal_bytes_per_sync`.
    pub(crate) fn set_bytes_per_sync(&self, bytes: u64) {
        self.bytes_per_sync.store(bytes, Ordering::Relaxed);
    }

    fn count(&self, ticker: Ticker) {
        if let Some(s) = &self.statistics {
            s.add(ticker, 1);
        }
    }

    /// The pool, if there is something to do in it now.
    pub(crate) fn pool_to_fill(&self) -> Option<&Pool> {
        let wanted = self.wanted.load(Ordering::Relaxed);
        let pool = self.pool.as_ref().filter(|_| wanted)?;
        pool.next().filter(|n| self.pace.is_due(n)).map(|_| pool)
    }

    /// Whether files are made ahead at all.
    pub(crate) fn uses_pool(&self) -> bool {
        self.unit.is_some()
    }

    /// Whether a direct log can be begun at once.
    fn direct_ready(&self) -> bool {
        self.unit.is_some() && self.pool.as_ref().is_some_and(Pool::has_some)
    }

    /// Notes that a write is synced; true the first time, when the pool is to be filled.
    fn note_sync(&self) -> bool {
        self.unit.is_some()
            && !self.wanted.load(Ordering::Relaxed)
            && !self.wanted.swap(true, Ordering::Relaxed)
    }

    /// A new log, direct if it can be. The name of a file that was made ahead is durable. Another
    /// becomes so with the first bytes in it, or before the MANIFEST relies on it: nobody waits for it
    /// here, behind all that the file system has to write.
    pub(crate) fn create(&self, number: FileNumber, kind: LogKind) -> Result<NewLog> {
        let path = files::wal_path(&self.dir, number);
        let mut options = LogOptions {
            log_number: number.0,
            recyclable: self.recyclable,
            filler: Some(ValueType::Noop as u8),
            compressed: self.compressed,
            tail: self.tail,
            depth: self.depth,
            outlives_full_disk: true,
            ..LogOptions::default()
        };
        let unit = self.unit.filter(|_| kind == LogKind::Direct);
        // A buffered log of a database that has direct ones does not use up their files.
        let begun = self.names.begin();
        let taken = match &self.pool {
            Some(pool) if unit.is_some() || self.unit.is_none() => pool.take(&path)?,
            _ => None,
        };
        let made = match (unit, taken) {
            (Some(unit), Some(_)) => {
                let file = self.fs.open(&path, OpenHow::UPDATE.direct())?;
                let capacity = file.len()?;
                self.pace.begin(number, capacity);
                options.direct_unit = Some(unit);
                options.sync = WalSync::Dsync;
                self.count(Ticker::WalPrecreateHit);
                (file, LogKind::Direct, capacity)
            }
            (_, taken) => {
                let how = match taken {
                    Some(_) => OpenHow::UPDATE,
                    None => OpenHow::CREATE_NEW,
                };
                self.pace.begin(number, 0);
                if unit.is_some() {
                    self.count(Ticker::WalPrecreateMiss);
                }
                options.allocate_ahead = taken.map_or(self.allocate_ahead, |_| 0);
                (options.tail, options.sync_unit) = self.growing_tail();
                (self.fs.open(&path, how)?, LogKind::Buffered, u64::MAX)
            }
        };
        if taken == Some(Taken::Recycled) {
            self.count(Ticker::WalRecycled);
        }
        if self.recyclable {
            self.recyclable_logs().insert(number);
        }
        let nth = self.names.note(number.0, begun);
        let ((file, kind, capacity), nonce) = (made, log::secret::nonce(self.secret, number.0));
        let later = kind == LogKind::Buffered && taken.is_none();
        let writer =
            log::Writer::new(file, options).named(Arc::clone(&self.names), later.then_some(nth));
        if !later {
            self.names
                .make_durable(nth)
                .inspect_err(|_| self.discard_unused(number))?;
        }
        Ok(NewLog {
            writer,
            number,
            nonce,
            kind,
            capacity,
            recycled: taken == Some(Taken::Recycled),
        })
    }

    /// What becomes of the last page of a growing log. No unit of it is written atomically, so with a
    /// policy that needs that none may be written twice.
    fn growing_tail(&self) -> (TailPolicy, Option<u32>) {
        match self.tail {
            TailPolicy::Rewrite => (TailPolicy::Rewrite, None),
            TailPolicy::Atomic | TailPolicy::Pad { .. } => (PAD, Some(self.page)),
        }
    }

    fn recyclable_logs(&self) -> MutexGuard<'_, BTreeSet<FileNumber>> {
        self.recyclable_logs
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Deletes a log that is not needed any more, or gives its file back to the pool.
    pub(crate) fn discard(&self, number: FileNumber) -> Result<()> {
        let path = files::wal_path(&self.dir, number);
        self.names.forget(number.0);
        let recyclable = self.recyclable_logs().remove(&number);
        let wanted = recyclable || self.wanted.load(Ordering::Relaxed);
        match self.pool.as_ref().filter(|_| wanted) {
            Some(pool) => pool.retire(&path, recyclable),
            None => self.fs.remove(&path),
        }
    }

    /// Removes a log that was made and never used. If that fails, it is an empty log among others.
    pub(crate) fn discard_unused(&self, number: FileNumber) {
        self.names.forget(number.0);
        self.recyclable_logs().remove(&number);
        drop(self.fs.remove(&files::wal_path(&self.dir, number)));
    }

    /// So much of the active log, a pool file, is used.
    pub(crate) fn note_used(&self, log: FileNumber, bytes: u64) {
        self.pace.note_used(log, bytes);
    }

    /// The active log was begun because a memtable was sealed.
    pub(crate) fn note_sealed(&self) {
        self.pace.note_sealed();
    }

    /// See [`Pool::hold`].
    pub(crate) fn hold_pool(&self) {
        if let Some(pool) = &self.pool {
            pool.hold();
        }
    }

    /// Ends one [`LogFiles::hold_pool`].
    pub(crate) fn release_pool(&self) {
        if let Some(pool) = &self.pool {
            pool.release();
        }
    }
}

/// A log that was just made.
pub(crate) struct NewLog {
    writer: log::Writer,
    pub(crate) number: FileNumber,
    /// See [`log::note`].
    nonce: u64,
    kind: LogKind,
    /// Bytes that it may grow to.
    capacity: u64,
    /// It is an old log's file.
    recycled: bool,
}

impl NewLog {
    /// How it is written, for the LOG.
    pub(crate) fn describe(&self, wanted: LogKind) -> String {
        match (self.kind, wanted) {
            (LogKind::Direct, _) => format!("direct, {} bytes made ahead", self.capacity),
            (LogKind::Buffered, LogKind::Direct) => {
                "buffered, because no file made ahead is ready".to_owned()
            }
            (LogKind::Buffered, LogKind::Buffered) => "buffered".to_owned(),
        }
    }
}

/// The active log and what must be durable before it counts as durable.
pub(crate) struct ActiveLog {
    writer: log::Writer,
    pub(crate) number: FileNumber,
    /// What the log's note and its fences bear.
    nonce: u64,
    kind: LogKind,
    capacity: u64,
    recycled: bool,
    /// Number and end of the last log before that is not empty; 0 if no log before is needed.
    previous: (u64, u64),
    /// Rises with groups that the log's kind does not suit, falls with others.
    unsuited: u32,
    /// Logs that were left behind with bytes that are not durable yet, oldest first. They are
    /// synced before anything in the active log is acknowledged as durable.
    unsynced: Vec<(log::Syncer, (u64, u64))>,
    /// Numbers and ends of logs that were left behind and are durable, until somebody takes them.
    closed: Vec<(u64, u64)>,
    /// Up to where writeback of the active file was started.
    writeback_from: u64,
    /// The last sequence number in the log, or before it.
    last_sequence: u64,
    /// Synced flights of this log that have not counted yet: where they end, and their last sequence
    /// number.
    flying: VecDeque<(Lsn, u64)>,
    /// How often logs were given up with what was on its way.
    given_up: u64,
    /// How much of a pool file the pool was told of.
    used_told: u64,
    /// Threads that wait for a flight to land.
    pub(crate) waiting: usize,
}

/// The active log, locked; `None` if the database is open for reading only.
pub(crate) type Guard<'a> = MutexGuard<'a, Option<ActiveLog>>;

/// What a group needs from the device: older logs first, then the active one.
#[must_use = "the log waits until it is settled"]
pub(crate) struct LogFlight {
    older: Vec<log::Syncer>,
    own: Option<log::Flight>,
    /// The last sequence number that it covers.
    pub(crate) last_sequence: u64,
    /// Whether it makes them durable.
    pub(crate) synced: bool,
    /// [`ActiveLog::given_up`] when it began.
    pub(crate) given_up: u64,
}

impl LogFlight {
    /// Bytes that it writes.
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
            number: new.number,
            nonce: new.nonce,
            kind: new.kind,
            capacity: new.capacity,
            recycled: new.recycled,
            previous: (0, 0),
            unsuited: 0,
            unsynced: Vec::new(),
            closed: Vec::new(),
            writeback_from: 0,
            last_sequence,
            flying: VecDeque::new(),
            given_up: 0,
            used_told: 0,
            waiting: 0,
        }
    }

    /// The log before it has this number and ends at this offset, and all of it is durable.
    pub(crate) fn following(mut self, previous: (u64, u64)) -> Self {
        self.previous = previous;
        self
    }

    /// Makes another log the active one. What the old one holds stays to be synced. No flight is
    /// out.
    pub(crate) fn switch(&mut self, new: NewLog) -> Result<()> {
        self.submit_all()?;
        let left = (self.number.0, self.writer.size());
        let old_records = self.recycled && self.kind == LogKind::Buffered;
        if old_records || self.writer.has_room_ahead() {
            // RocksDB takes what an old log left behind the end for damage, if a sequence number is
            // in no log. Blocks behind the end are not needed any more. Without success the file is as
            // good as before.
            drop(self.writer.file().truncate(left.1));
        }
        if self.writer.durable().0 < left.1 {
            self.unsynced.push((self.writer.syncer(), left));
        } else if left.1 > 0 {
            self.closed.push(left);
        }
        self.leave(left, new);
        Ok(())
    }

    /// Leaves a log behind that has failed: it ends where it was durable.
    pub(crate) fn replace(&mut self, new: NewLog) {
        let left = (self.number.0, self.writer.durable().0);
        if left.1 > 0 {
            self.closed.push(left);
        }
        self.leave(left, new);
    }

    /// Leaves everything behind: what the logs hold goes to tables, and nothing more is claimed of
    /// them than that they are durable up to the sequence number `durable`.
    pub(crate) fn begin_anew(&mut self, new: NewLog, durable: u64) {
        self.replace(new);
        self.given_up += 1;
        self.unsynced.clear();
        self.last_sequence = durable;
    }

    fn leave(&mut self, left: (u64, u64), new: NewLog) {
        if left.1 > 0 {
            self.previous = left;
        }
        self.writer = new.writer;
        self.number = new.number;
        self.nonce = new.nonce;
        self.kind = new.kind;
        self.capacity = new.capacity;
        self.recycled = new.recycled;
        self.unsuited = 0;
        self.writeback_from = 0;
        self.flying.clear();
        self.used_told = 0;
    }

    /// Before a group is logged: notes what sort it is. True if the pool is wanted now and was not
    /// before.
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

    /// The kind of the log to begin before a group of `bytes` is logged, if this one is full or
    /// does not suit the writes.
    pub(crate) fn successor(&self, files: &LogFiles, bytes: u64) -> Option<LogKind> {
        let full = self.writer.size().saturating_add(bytes + FRAMING_SLACK) > self.capacity;
        if full {
            // A group that fits no pool file goes to a growing one.
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

    /// How far the log is in the hands of the operating system, in bytes.
    pub(crate) fn submitted(&self) -> u64 {
        self.writer.marks().submitted().0
    }

    /// The kind that the log after this one should have.
    pub(crate) fn kind(&self) -> LogKind {
        self.kind
    }

    /// Where the log ends.
    pub(crate) fn end(&self) -> Lsn {
        Lsn(self.writer.size())
    }

    /// Where its durable part ends.
    pub(crate) fn durable_end(&self) -> Lsn {
        self.writer.durable()
    }

    /// Its file.
    pub(crate) fn file(&self) -> Arc<dyn io::File> {
        Arc::clone(self.writer.file())
    }

    /// What ended the log, if it has failed.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.writer.marks().failure()
    }

    /// How much of a pool file is used, now and then: the pool goes by it.
    pub(crate) fn newly_used(&mut self) -> Option<u64> {
        let used = self.writer.size();
        let more = used.saturating_sub(self.used_told);
        if self.kind != LogKind::Direct || more < pace::step(self.capacity) {
            return None;
        }
        self.used_told = used;
        Some(used)
    }

    /// Whether a fence may be written now. It says that the logs before this one are durable. A
    /// direct group is written when they are; a buffered one is in the page cache before, and a
    /// power cut may spare it and take the end of a closed log.
    fn may_fence(&self) -> bool {
        let durable =
            |(log, _): &(log::Syncer, _)| log.marks().durable() >= log.marks().submitted();
        self.kind == LogKind::Direct || self.unsynced.iter().all(durable)
    }

    /// Appends a batch. The first one of a log has a note of the log before right behind its
    /// header; with `fence`, what is durable so far is noted at its end, if it may be.
    pub(crate) fn append(&mut self, record: &[u8], fence: bool) -> Result<()> {
        const NOTE: [u8; 2] = [ValueType::LogData as u8, log::note::LEN as u8];
        const FENCE: [u8; 2] = [ValueType::LogData as u8, log::fence::LEN as u8];
        let (previous_log, previous_end) = self.previous;
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
        // A batch is compressed whole, but for what recovery looks for.
        let packed = if note.is_some() { 3..4 } else { 0..4 };
        self.writer.append_around(&parts, packed)?;
        Ok(())
    }

    /// The group just appended ends with this sequence number.
    pub(crate) fn note_sequence(&mut self, last: u64) {
        self.last_sequence = self.last_sequence.max(last);
    }

    /// Number and end of the last log that holds anything; 0 if there is none.
    pub(crate) fn last_end(&self) -> (u64, u64) {
        match self.writer.size() {
            0 => self.previous,
            size => (self.number.0, size),
        }
    }

    /// Whether everything in the logs is durable.
    pub(crate) fn is_durable(&mut self) -> bool {
        self.note_closed();
        self.unsynced.is_empty() && self.writer.durable() == self.end()
    }

    /// The last sequence number in the log, or before it.
    pub(crate) fn last_sequence(&self) -> u64 {
        self.last_sequence
    }

    /// Forgets what was appended from `to` on. Errors: the log has failed.
    pub(crate) fn cut_back(&mut self, to: Lsn) -> Result<()> {
        self.writer.cut_back(to)
    }

    /// What becomes of a group that asks for `step`: with much in the process, it goes on to the
    /// operating system, or memory would grow until somebody calls `flush_wal`.
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

    /// Whether a group that is appended first may then begin `step`.
    pub(crate) fn has_slot(&self, step: LogStep) -> bool {
        self.takes_at_once(step) || self.writer.has_slot(step == LogStep::Sync)
    }

    /// Whether `step` waits for no device: the page cache takes bytes at any time.
    fn takes_at_once(&self, step: LogStep) -> bool {
        match step {
            LogStep::Append => true,
            LogStep::Submit => self.kind == LogKind::Buffered,
            LogStep::Sync => false,
        }
    }

    /// Begins to bring everything appended as far as `step` says; `None` if that is done.
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
                // Without bytes of this log, it waits for older ones alone, and for no other flight.
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

    /// Fills the last unit up with a batch that does nothing, where the tail must not be written
    /// again.
    fn pad(&mut self) -> Result<()> {
        let payload = self.writer.padding();
        if payload > 0 {
            let mut batch = vec![ValueType::Noop as u8; payload];
            // The number that comes next: readers refuse one that goes back.
            let head = (self.last_sequence + 1).to_le_bytes();
            batch[..8].copy_from_slice(&head);
            batch[8..HEADER_LEN].fill(0);
            self.writer.append_padding(&batch)?;
        }
        Ok(())
    }

    /// How often logs were given up with what was on its way: whoever waits for a flight that began
    /// before waits in vain.
    pub(crate) fn given_up(&self) -> u64 {
        self.given_up
    }

    /// A flight has landed: returns up to which sequence number everything logged is durable.
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

    /// True while a flight is out.
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
        let step = files.bytes_per_sync.load(Ordering::Relaxed);
        if step > 0 && size - from >= step {
            self.writer.file().start_writeback(from, size - from)?;
            self.writeback_from = size;
        }
        Ok(())
    }

    /// The logs that were left behind and are not durable.
    pub(crate) fn closed_unsynced(&self) -> Vec<log::Syncer> {
        self.unsynced.iter().map(|(log, _)| log.clone()).collect()
    }

    /// Some of the logs that were left behind may have become durable.
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

    /// The logs below `needed` that were left behind and are not durable: nothing needs them any more,
    /// so that nobody shall sync them. The caller closes them by dropping them, and lets go of the log
    /// before: that gives back the memory of what was never written.
    pub(crate) fn take_unneeded(&mut self, needed: FileNumber) -> Vec<log::Syncer> {
        let gone = self
            .unsynced
            .extract_if(.., |(_, (number, _))| *number < needed.0);
        gone.map(|(log, _)| log).collect()
    }

    /// Whether [`ActiveLog::take_closed`] has something to give.
    pub(crate) fn has_closed(&self) -> bool {
        !self.closed.is_empty()
    }

    /// The logs that were left behind and have become durable since the last call.
    pub(crate) fn take_closed(&mut self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.closed)
    }

    /// Makes everything durable, older logs first, while the log is locked.
    pub(crate) fn sync_all(&mut self) -> Result<()> {
        for (log, _) in &self.unsynced {
            log.sync()?;
        }
        self.note_closed();
        self.pad()?;
        self.writer.sync()?;
        Ok(())
    }

    /// Hands everything appended to the operating system, while the log is locked.
    fn submit_all(&mut self) -> Result<()> {
        if self.kind == LogKind::Direct {
            self.pad()?;
        }
        self.writer.submit()?;
        Ok(())
    }
}
