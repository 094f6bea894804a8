//! How new logs are created, and how obsolete logs are deleted or reused.
//!
//! A log has one of two kinds for its whole life. A *direct* log is a file from the pool, filled with
//! zeros in advance and written with direct I/O: a synced group is one device write. A *buffered*
//! log is a growing file, written through the page cache: this is cheapest for unsynced writes.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use base::stats::{Statistics, Ticker};
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError, ranked, thread};
use base::{FileNumber, Result, ValueType};
use io::{Create, File, FileSystem, MappedFile, OpenHow, Probe};
use log::{LogOptions, Names, Pool, PoolOptions, TailPolicy, Taken, WalSync};

use super::mapped::MappedLogs;
use super::pace::Pace;
use super::unit::direct_unit;
use crate::batch::HEADER_LEN;
use crate::locks;
use options::{Options, WalCompression, WalIoMode, WalTailPolicy};

/// Leaves a log to [`LogFiles::remove_left`] if the file system panics while its file is made.
struct LeftByPanic<'a> {
    files: &'a LogFiles,
    number: FileNumber,
    /// The thread unwinds already, for another reason.
    unwinds: bool,
}

impl<'a> LeftByPanic<'a> {
    fn during(files: &'a LogFiles, number: FileNumber) -> Self {
        Self {
            files,
            number,
            unwinds: thread::panicking(),
        }
    }
}

impl Drop for LeftByPanic<'_> {
    fn drop(&mut self) {
        if thread::panicking() && !self.unwinds {
            self.files.leave(self.number);
        }
    }
}

/// The last unit of a group is filled up with a batch of no-ops.
const PAD: TailPolicy = TailPolicy::Pad {
    payload_min: HEADER_LEN as u32,
};
/// The least number of units in a block of the log.
const UNITS_MIN: u32 = 2;

/// The bytes that the page cache writes to the device as one unit: a page of memory, or a block of the
/// device if that is larger.
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
    /// A file from the pool, written with direct I/O.
    Direct,
    /// A growing file, written through the page cache.
    Buffered,
}

/// The most bytes of a buffered log for which blocks are allocated at once. With a smaller write buffer, its size
/// is the limit.
const ALLOCATE_AHEAD_MAX: u64 = 4 << 20;

/// Creates log files.
pub(crate) struct LogFiles {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    pub(super) mode: WalIoMode,
    /// The write unit of direct logs in bytes; `None` if every log is buffered.
    unit: Option<u32>,
    /// Files for direct logs, and old logs to be overwritten; `None` if neither is used.
    pool: Option<Pool>,
    /// The buffered logs that are written by stores.
    mapped: MappedLogs,
    /// Set once a write was synced, or from the start with `wal_io_mode = direct`: the pool is then worth
    /// its space.
    wanted: AtomicBool,
    /// How fast the pool is filled.
    pace: Pace,
    bytes_per_sync: AtomicU64,
    /// See [`LogOptions::allocate_ahead`].
    allocate_ahead: u64,
    tail: TailPolicy,
    /// The bytes that the system writes back as one unit: see [`LogOptions::sync_unit`].
    page: u32,
    depth: u32,
    /// Records include the log's number, so that files can be overwritten by later logs.
    recyclable: bool,
    compressed: bool,
    /// The logs that this process wrote with recyclable records.
    recyclable_logs: Mutex<BTreeSet<FileNumber>>,
    /// Unused logs that were not removed yet.
    left: Mutex<BTreeSet<FileNumber>>,
    names: Arc<Names>,
    /// The secret that the nonces of the logs are derived from.
    secret: u64,
    statistics: Option<Arc<Statistics>>,
}

impl LogFiles {
    /// The logs in `dir`. `probe` has the capabilities of the device. `secret`: see [`log::secret`].
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
                    options.cf.write_buffer_size,
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
            mapped: MappedLogs::new(options),
            wanted: AtomicBool::new(db.wal_mode() == WalIoMode::Direct),
            pace: Pace::new(options.cf.write_buffer_size),
            bytes_per_sync: AtomicU64::new(db.wal_bytes_per_sync),
            allocate_ahead: if db.allow_fallocate {
                options.cf.write_buffer_size.min(ALLOCATE_AHEAD_MAX)
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
            recyclable_logs: ranked(locks::LEAF, BTreeSet::new()),
            left: ranked(locks::LEAF, BTreeSet::new()),
            statistics: options.env.statistics.clone(),
        })
    }

    /// The directory entries of the logs. Names that the MANIFEST relies on must be durable.
    pub(crate) fn names(&self) -> &Arc<Names> {
        &self.names
    }

    /// Changes `wal_bytes_per_sync`.
    pub(crate) fn set_bytes_per_sync(&self, bytes: u64) {
        self.bytes_per_sync.store(bytes, Ordering::Relaxed);
    }

    pub(super) fn bytes_per_sync(&self) -> u64 {
        self.bytes_per_sync.load(Ordering::Relaxed)
    }

    fn count(&self, ticker: Ticker) {
        if let Some(s) = &self.statistics {
            s.add(ticker, 1);
        }
    }

    /// The pool, if it has work to do now.
    pub(crate) fn pool_to_fill(&self) -> Option<&Pool> {
        let wanted = self.wanted.load(Ordering::Relaxed);
        let pool = self.pool.as_ref().filter(|_| wanted)?;
        pool.next().filter(|n| self.pace.is_due(n)).map(|_| pool)
    }

    /// Whether the pool has a file that it could not remove, and must try to remove again.
    pub(crate) fn pool_has_unfit(&self) -> bool {
        self.pool.as_ref().is_some_and(Pool::has_unfit)
    }

    /// The buffered logs that are written by stores.
    pub(crate) fn mapped(&self) -> &MappedLogs {
        &self.mapped
    }

    /// Whether files of logs, or parts of them, are prepared in advance at all.
    pub(crate) fn prepares_ahead(&self) -> bool {
        self.unit.is_some() || self.mapped.is_used()
    }

    /// Whether a direct log can be begun at once.
    pub(super) fn direct_ready(&self) -> bool {
        self.unit.is_some() && self.pool.as_ref().is_some_and(Pool::has_some)
    }

    /// Notes that a write is synced. Returns true the first time: the pool is then to be filled.
    pub(super) fn note_sync(&self) -> bool {
        self.unit.is_some()
            && !self.wanted.load(Ordering::Relaxed)
            && !self.wanted.swap(true, Ordering::Relaxed)
    }

    /// Creates a new log of this kind, or a buffered log if the pool has no file for a direct log. The name of
    /// a pool file is durable on return. The name of a new file becomes durable together with the first
    /// bytes in it, or before the MANIFEST relies on it. Waiting for that here could mean waiting for
    /// all data that the file system has to write.
    pub(crate) fn create(&self, number: FileNumber, kind: LogKind) -> Result<NewLog> {
        let _left = LeftByPanic::during(self, number);
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
        // A buffered log must not use up the files for direct logs.
        let begun = self.names.begin();
        let taken = match &self.pool {
            Some(pool) if unit.is_some() || self.unit.is_none() => pool.take(&path)?,
            _ => None,
        };
        let made = match (unit, taken) {
            (Some(unit), Some(_)) => {
                let (file, capacity) = self.open_new(number, OpenHow::UPDATE.direct())?;
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
                (self.open_new(number, how)?.0, LogKind::Buffered, u64::MAX)
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
        let mapped = if later { self.mapped.map(&file) } else { None };
        let file = mapped.clone().map_or(file, |mapped| mapped as _);
        let writer =
            log::Writer::new(file, options).named(Arc::clone(&self.names), later.then_some(nth));
        if !later {
            self.names
                .make_durable(nth)
                .inspect_err(|_| self.discard_unused(number))?;
        }
        Ok(NewLog {
            writer,
            mapped,
            number,
            nonce,
            kind,
            capacity,
            recycled: taken == Some(Taken::Recycled),
        })
    }

    /// Opens the file of a new log, and returns it with its length in bytes.
    fn open_new(&self, number: FileNumber, how: OpenHow) -> Result<(Arc<dyn File>, u64)> {
        let path = files::wal_path(&self.dir, number);
        let opened = self.fs.open(&path, how);
        // A file from the pool already has the name of a log.
        let is_there = opened.is_ok() || how.create == Create::Never;
        let opened = opened.and_then(|file| file.len().map(|len| (file, len)));
        if opened.is_err() && is_there {
            self.discard_unused(number);
        }
        opened
    }

    /// The tail policy and the sync unit of a buffered log. Its pages are not written atomically, so a
    /// policy that relies on atomic writes must not write a page twice.
    fn growing_tail(&self) -> (TailPolicy, Option<u32>) {
        match self.tail {
            TailPolicy::Rewrite => (TailPolicy::Rewrite, None),
            TailPolicy::Atomic | TailPolicy::Pad { .. } => (PAD, Some(self.page)),
        }
    }

    fn recyclable_logs(&self) -> MutexGuard<'_, BTreeSet<FileNumber>> {
        lock(&self.recyclable_logs)
    }

    /// Deletes a log that is not needed any more, or gives its file back to the pool. [`MappedLogs::forget`] must have been
    /// called.
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

    /// Removes a log that was created and never used. If that fails, a log without records remains,
    /// which does no harm, until [`LogFiles::remove_left`].
    pub(crate) fn discard_unused(&self, number: FileNumber) {
        let path = files::wal_path(&self.dir, number);
        self.mapped.forget(&path);
        self.names.forget(number.0);
        self.recyclable_logs().remove(&number);
        self.leave(number); // also if the file system panics
        let removed = self.fs.remove(&path);
        if removed.is_ok() || removed.is_err_and(|e| e.is_not_found()) {
            lock(&self.left).remove(&number);
        }
    }

    /// Leaves an unused log to [`LogFiles::remove_left`].
    pub(super) fn leave(&self, number: FileNumber) {
        lock(&self.left).insert(number);
    }

    /// Removes unused logs that were not removed yet, as far as possible.
    pub(crate) fn remove_left(&self) {
        let left = lock(&self.left).clone();
        for number in left {
            self.discard_unused(number);
        }
    }

    /// Takes note that `bytes` of the active log, a pool file, are used.
    pub(crate) fn note_used(&self, log: FileNumber, bytes: u64) {
        self.pace.note_used(log, bytes);
    }

    /// Takes note that the active log was begun because a memtable was sealed.
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

fn lock(numbers: &Mutex<BTreeSet<FileNumber>>) -> MutexGuard<'_, BTreeSet<FileNumber>> {
    numbers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A log that was just created.
pub(crate) struct NewLog {
    pub(super) writer: log::Writer,
    /// The writer's file, if it is written by stores.
    pub(super) mapped: Option<Arc<MappedFile>>,
    pub(crate) number: FileNumber,
    /// See [`log::note`].
    pub(super) nonce: u64,
    pub(super) kind: LogKind,
    /// The number of bytes that the log may grow to.
    pub(super) capacity: u64,
    /// Whether its file was the file of an obsolete log.
    pub(super) recycled: bool,
}

impl NewLog {
    /// How the log is written, as a text for LOG.
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
