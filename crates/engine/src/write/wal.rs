//! The database's logs: how a new one is made, the active one, and older ones that are not durable
//! yet.
//!
//! A log is one of two kinds for its whole life. A *direct* one is a file from the pool, filled
//! with zeros ahead and written past the page cache: a synced group is one device write. A
//! *buffered* one grows through the page cache: unsynced writes are cheapest there. Which kind the
//! next log is follows the writes (`wal_io_mode = auto`); a log is left early when the writes have
//! changed, or when a direct one is full, because extending it would cost what it saves.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::{FileNumber, Result, ValueType};
use io::{FileSystem, OpenHow, Probe};
use log::{Fence, LogOptions, Pool, PoolOptions, WalSync};

use super::plan::LogStep;
use crate::files;
use crate::options::{Options, WalIoMode};

/// After so many groups of the other sort, a log of the fitting kind is begun.
const SYNCED_RUN: u32 = 4;
/// The same for groups that are not synced, each of which costs a direct log a device write.
const UNSYNCED_RUN: u32 = 32;
/// Bytes that framing may add to a group, over all its records.
const FRAMING_SLACK: u64 = 64 << 10;

/// How a log is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogKind {
    /// A file from the pool, past the page cache.
    Direct,
    /// A growing file, through the page cache.
    Buffered,
}

/// Makes log files.
pub(crate) struct LogFiles {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    mode: WalIoMode,
    /// The write unit of direct logs, and the pool; `None` where every log is buffered.
    direct: Option<(u32, Pool)>,
    /// Somebody has synced: the pool is worth its space.
    wanted: AtomicBool,
    bytes_per_sync: u64,
}

impl LogFiles {
    /// The logs in `dir`; `probe` tells what can be done there.
    pub(crate) fn open(dir: PathBuf, options: &Options, probe: Option<&Probe>) -> Result<Self> {
        let fs = Arc::clone(&options.env.fs);
        let mode = options.db.wal_io_mode;
        let unit = probe
            .filter(|p| !p.copy_on_write && !p.in_memory && mode != WalIoMode::Buffered)
            .and_then(Probe::write_unit)
            .filter(|_| options.db.wal_pool_files > 0);
        let direct = match unit {
            None => None,
            Some(unit) => {
                let buffer = options.cf.cf.write_buffer_size;
                let limit = options.db.max_total_wal_size;
                let pool_options = PoolOptions {
                    file_bytes: log::pool::file_bytes_for(buffer, limit)?,
                    ready: options.db.wal_pool_files as usize,
                    direct: true,
                };
                Some((unit, Pool::open(Arc::clone(&fs), &dir, pool_options)?))
            }
        };
        Ok(Self {
            fs,
            dir,
            mode,
            direct,
            wanted: AtomicBool::new(mode == WalIoMode::Direct),
            bytes_per_sync: options.db.wal_bytes_per_sync,
        })
    }

    /// The pool, if it is worth keeping filled.
    pub(crate) fn pool(&self) -> Option<&Pool> {
        let (_, pool) = self.direct.as_ref()?;
        self.wanted.load(Ordering::Relaxed).then_some(pool)
    }

    /// Whether there is a pool at all.
    pub(crate) fn uses_pool(&self) -> bool {
        self.direct.is_some()
    }

    /// Whether a direct log can be begun at once.
    fn direct_ready(&self) -> bool {
        self.direct
            .as_ref()
            .is_some_and(|(_, pool)| pool.ready() > 0)
    }

    /// Notes that a write is synced; true the first time, when the pool is to be filled.
    fn note_sync(&self) -> bool {
        self.direct.is_some()
            && !self.wanted.load(Ordering::Relaxed)
            && !self.wanted.swap(true, Ordering::Relaxed)
    }

    /// A new log, direct if it can be; its directory entry is durable.
    pub(crate) fn create(&self, number: FileNumber, kind: LogKind) -> Result<NewLog> {
        let path = files::wal_path(&self.dir, number);
        let mut options = LogOptions {
            log_number: number.0,
            filler: Some(ValueType::Noop as u8),
            ..LogOptions::default()
        };
        if kind == LogKind::Direct
            && let Some((unit, pool)) = &self.direct
            && pool.take(&path)?
        {
            let file = self.fs.open(&path, OpenHow::UPDATE.direct())?;
            let capacity = file.len()?;
            self.fs.sync_dir(&self.dir)?;
            options.direct_unit = Some(*unit);
            options.sync = WalSync::Dsync;
            return Ok(NewLog {
                writer: log::Writer::new(file, options),
                number,
                kind,
                capacity,
            });
        }
        let file = self.fs.open(&path, OpenHow::CREATE_NEW)?;
        self.fs.sync_dir(&self.dir)?;
        let kind = LogKind::Buffered;
        Ok(NewLog {
            writer: log::Writer::new(file, options),
            number,
            kind,
            capacity: u64::MAX,
        })
    }

    /// Deletes a log that is not needed any more, or gives its file back to the pool.
    pub(crate) fn discard(&self, number: FileNumber) -> Result<()> {
        let path = files::wal_path(&self.dir, number);
        match self.pool() {
            Some(pool) => pool.retire(&path),
            None => self.fs.remove(&path),
        }
    }
}

/// A log that was just made.
pub(crate) struct NewLog {
    writer: log::Writer,
    pub(crate) number: FileNumber,
    kind: LogKind,
    /// Bytes that it may grow to.
    capacity: u64,
}

/// The active log and what must be durable before it counts as durable.
pub(crate) struct ActiveLog {
    writer: log::Writer,
    pub(crate) number: FileNumber,
    kind: LogKind,
    capacity: u64,
    /// Number and end of the log before; 0 if this process had none.
    previous: (u64, u64),
    /// Groups in a row that the log's kind does not suit.
    unsuited: u32,
    /// Logs that were left behind with bytes that are not durable yet, oldest first. They are
    /// synced before anything in the active log is acknowledged as durable.
    unsynced: Vec<log::Syncer>,
    /// Up to where writeback of the active file was started.
    writeback_from: u64,
}

impl ActiveLog {
    pub(crate) fn new(new: NewLog) -> Self {
        Self {
            writer: new.writer,
            number: new.number,
            kind: new.kind,
            capacity: new.capacity,
            previous: (0, 0),
            unsuited: 0,
            unsynced: Vec::new(),
            writeback_from: 0,
        }
    }

    /// Makes another log the active one. What the old one holds stays to be synced.
    pub(crate) fn switch(&mut self, new: NewLog) -> Result<()> {
        self.writer.submit()?;
        if self.writer.durable().0 < self.writer.size() {
            self.unsynced.push(self.writer.syncer());
        }
        self.previous = (self.number.0, self.writer.size());
        self.writer = new.writer;
        self.number = new.number;
        self.kind = new.kind;
        self.capacity = new.capacity;
        self.unsuited = 0;
        self.writeback_from = 0;
        Ok(())
    }

    /// Before a group of `bytes` is logged: the kind of the log to begin first, if this one is
    /// full or does not suit the writes. `ask_for_pool` is called when the pool is first wanted.
    pub(crate) fn successor(
        &mut self,
        files: &LogFiles,
        step: LogStep,
        bytes: u64,
        ask_for_pool: impl FnOnce(),
    ) -> Option<LogKind> {
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
        if step == LogStep::Sync && files.note_sync() {
            ask_for_pool();
        }
        let (suits, run) = match (self.kind, files.mode, step) {
            (LogKind::Buffered, WalIoMode::Direct, _) => (!files.direct_ready(), 0),
            (LogKind::Buffered, WalIoMode::Auto, LogStep::Sync) => {
                (!files.direct_ready(), SYNCED_RUN)
            }
            (LogKind::Direct, WalIoMode::Auto, LogStep::Submit) => (false, UNSYNCED_RUN),
            _ => (true, 0),
        };
        if suits {
            self.unsuited = 0;
            return None;
        }
        self.unsuited += 1;
        (self.unsuited > run).then_some(match self.kind {
            LogKind::Direct => LogKind::Buffered,
            LogKind::Buffered => LogKind::Direct,
        })
    }

    /// The kind that the log after this one should have.
    pub(crate) fn kind(&self) -> LogKind {
        self.kind
    }

    /// Appends a batch; with `fence`, what is durable so far is noted behind it.
    pub(crate) fn append(&mut self, record: &[u8], fence: bool) -> Result<()> {
        if !fence {
            self.writer.append(record)?;
            return Ok(());
        }
        let fence = Fence {
            log_number: self.number.0,
            durable: self.writer.durable().0,
            previous_log: self.previous.0,
            previous_end: self.previous.1,
        };
        let head = [ValueType::LogData as u8, log::fence::LEN as u8];
        self.writer
            .append_parts(&[record, &head, &fence.encode()])?;
        Ok(())
    }

    /// Hands everything appended to the operating system.
    pub(crate) fn submit(&mut self, files: &LogFiles) -> Result<()> {
        self.writer.submit()?;
        let (from, size) = (self.writeback_from, self.writer.size());
        if files.bytes_per_sync > 0
            && self.kind == LogKind::Buffered
            && size - from >= files.bytes_per_sync
        {
            self.writer.file().start_writeback(from, size - from)?;
            self.writeback_from = size;
        }
        Ok(())
    }

    /// Makes the logs durable that were left behind.
    pub(crate) fn sync_closed(&mut self) -> Result<()> {
        while let Some(older) = self.unsynced.first() {
            older.sync()?;
            self.unsynced.remove(0);
        }
        Ok(())
    }

    /// Makes everything appended durable, older logs first.
    pub(crate) fn sync(&mut self) -> Result<()> {
        self.sync_closed()?;
        self.writer.sync()?;
        Ok(())
    }
}
