//! Event listeners: the database notifies the application of its background work.
//!
//! Callbacks run on the thread on which the event happened, or on a thread of the database, while this
//! thread holds no lock of the database. So they may call the database, and also write. They should be
//! short, because the thread continues only when they return. A flush or a compaction must not wait for
//! itself. So on a thread that flushes or compacts, a write that would have to wait for room fails with
//! `Incomplete`; `resume` and manual flushes and compactions fail with `Busy` if they would have to wait.
//! A callback that panics is reported in LOG, and the database continues.

use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::Arc;

use base::sync::thread_local;
use base::{Error, FileNumber, Result};
use table::Properties;

use crate::hooks::filter::TableCreationReason;

thread_local! {
    /// Whether this thread runs the application's code.
    static TELLING: Cell<bool> = const { Cell::new(false) };
}

/// Whether the application's code, called by a database, runs on this thread.
#[doc(hidden)]
pub fn is_telling() -> bool {
    TELLING.with(Cell::get)
}

/// Runs the application's code.
#[doc(hidden)]
pub fn telling<T>(f: impl FnOnce() -> T) -> T {
    struct Back(bool);
    impl Drop for Back {
        fn drop(&mut self) {
            TELLING.with(|t| t.set(self.0));
        }
    }
    let _back = Back(TELLING.with(|t| t.replace(true)));
    f()
}

/// The write stall condition of a column family.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteStallCondition {
    /// Writes are not stalled.
    #[default]
    Normal,
    /// Writes are slowed down.
    Delayed,
    /// Writes are stopped.
    Stopped,
}

impl WriteStallCondition {
    /// RocksDB's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Delayed => "delays",
            Self::Stopped => "stops",
        }
    }
}

/// The cause of a write stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WriteStallCause {
    /// Flushes lag behind: there are too many memtables.
    MemtableLimit,
    /// Compaction lags behind: there are too many files in level 0.
    L0FileCountLimit,
    /// Compaction lags behind: there are too many pending compaction bytes.
    PendingCompactionBytes,
    /// The memtables of all databases that share a write-buffer manager are too large.
    WriteBufferManagerLimit,
}

impl WriteStallCause {
    /// RocksDB's name of it.
    pub fn name(self) -> &'static str {
        match self {
            Self::MemtableLimit => "memtable-limit",
            Self::L0FileCountLimit => "l0-file-count-limit",
            Self::PendingCompactionBytes => "pending-compaction-bytes",
            Self::WriteBufferManagerLimit => "write-buffer-manager-limit",
        }
    }

    /// The option whose larger value clears the stall. If the application has its own write-buffer
    /// manager, this is the manager's buffer size instead of `memory_limit`.
    pub fn option(self, condition: WriteStallCondition) -> &'static str {
        match (self, condition) {
            (Self::MemtableLimit, _) => "max_write_buffer_number",
            (Self::L0FileCountLimit, WriteStallCondition::Stopped) => "level0_stop_writes_trigger",
            (Self::L0FileCountLimit, _) => "level0_slowdown_writes_trigger",
            (Self::PendingCompactionBytes, WriteStallCondition::Stopped) => {
                "hard_pending_compaction_bytes_limit"
            }
            (Self::PendingCompactionBytes, _) => "soft_pending_compaction_bytes_limit",
            (Self::WriteBufferManagerLimit, _) => "memory_limit",
        }
    }
}

/// The reason of a flush.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FlushReason {
    /// Another reason.
    #[default]
    Others,
    /// The database is being closed.
    ShutDown,
    /// A file is being ingested.
    ExternalFileIngestion,
    /// A manual compaction needs all data in tables.
    ManualCompaction,
    /// The memtables of all families together are too large.
    WriteBufferManager,
    /// The memtable is as large as `write_buffer_size`.
    WriteBufferFull,
    /// The application requested the flush.
    ManualFlush,
    /// The database recovers from an error by flushing all memtables.
    ErrorRecovery,
    /// The logs are larger than `max_total_wal_size`, or the family keeps many logs alive for little
    /// data.
    WalFull,
    /// The files of the database are being listed.
    GetLiveFiles,
}

impl FlushReason {
    const ALL: [Self; 10] = [
        Self::Others,
        Self::ShutDown,
        Self::ExternalFileIngestion,
        Self::ManualCompaction,
        Self::WriteBufferManager,
        Self::WriteBufferFull,
        Self::ManualFlush,
        Self::ErrorRecovery,
        Self::WalFull,
        Self::GetLiveFiles,
    ];

    /// The reason with this number.
    #[doc(hidden)]
    pub fn from_number(n: u8) -> Self {
        let found = Self::ALL.into_iter().find(|r| *r as u8 == n);
        found.unwrap_or_default()
    }

    /// RocksDB's text for the reason, as in LOG.
    pub fn name(self) -> &'static str {
        match self {
            Self::Others => "Other Reasons",
            Self::ShutDown => "Shut down",
            Self::ExternalFileIngestion => "External File Ingestion",
            Self::ManualCompaction => "Manual Compaction",
            Self::WriteBufferManager => "Write Buffer Manager",
            Self::WriteBufferFull => "Write Buffer Full",
            Self::ManualFlush => "Manual Flush",
            Self::ErrorRecovery => "Error Recovery",
            Self::WalFull => "WAL Full",
            Self::GetLiveFiles => "Get Live Files",
        }
    }
}

/// The operation whose error made the database refuse writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BackgroundErrorReason {
    /// A flush.
    Flush,
    /// A compaction.
    Compaction,
    /// A write to the log, or to a memtable.
    WriteCallback,
    /// The MANIFEST.
    ManifestWrite,
}

/// A flush.
#[derive(Clone, Debug)]
pub struct FlushJobInfo {
    /// Id of the column family.
    pub cf_id: u32,
    /// Its name.
    pub cf_name: String,
    /// The table that is being made.
    pub file_number: FileNumber,
    /// Why.
    pub flush_reason: FlushReason,
    /// Memtables that go into it.
    pub num_memtables: usize,
    /// Size of the table in bytes; 0 before the flush is done, or if no entries were left to write.
    pub file_size: u64,
    /// The smallest and largest sequence number in the table; 0 before the flush is done.
    pub smallest_seqno: u64,
    /// See [`FlushJobInfo::smallest_seqno`].
    pub largest_seqno: u64,
    /// Whether writers are slowed down at this moment.
    pub triggered_writes_slowdown: bool,
    /// Whether writers wait at this moment.
    pub triggered_writes_stop: bool,
}

/// A compaction.
#[derive(Clone, Debug)]
pub struct CompactionJobInfo {
    /// Id of the column family.
    pub cf_id: u32,
    /// Its name.
    pub cf_name: String,
    /// RocksDB's name of the reason.
    pub compaction_reason: &'static str,
    /// The uppermost level that it reads.
    pub base_input_level: usize,
    /// The level that it writes.
    pub output_level: usize,
    /// The files that it reads.
    pub input_files: Vec<FileNumber>,
    /// The files that it wrote; empty before the compaction is done.
    pub output_files: Vec<FileNumber>,
    /// Bytes that it read.
    pub total_input_bytes: u64,
    /// Bytes that it wrote; 0 before the compaction is done.
    pub total_output_bytes: u64,
}

/// A subcompaction: a part of a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubcompactionJobInfo {
    /// Id of the column family.
    pub cf_id: u32,
    /// Its name.
    pub cf_name: String,
    /// The compaction's number in LOG.
    pub job_id: u64,
    /// The number of the subcompaction, from 0, in key order.
    pub subcompaction_job_id: usize,
    /// The uppermost level that it reads.
    pub base_input_level: usize,
    /// The level that it writes.
    pub output_level: usize,
    /// RocksDB's name of the reason.
    pub compaction_reason: &'static str,
}

/// The start of the creation of a table file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableFileCreationBriefInfo {
    /// The directory of the database.
    pub db_name: PathBuf,
    /// The column family.
    pub cf_name: String,
    /// The file.
    pub file_path: PathBuf,
    /// The number in LOG of the job that makes it.
    pub job_id: u64,
    /// Why.
    pub reason: TableCreationReason,
}

/// The end of the creation of a table file: the file is complete or was abandoned.
#[derive(Debug)]
pub struct TableFileCreationInfo {
    /// The facts that were known at the start.
    pub brief: TableFileCreationBriefInfo,
    /// Size of the file in bytes; 0 if it was abandoned.
    pub file_size: u64,
    /// The properties that the table stores.
    pub table_properties: Properties,
    /// The error if the file was abandoned.
    pub status: Result<()>,
}

/// The deletion of an obsolete table file.
#[derive(Debug)]
pub struct TableFileDeletionInfo {
    /// The directory of the database.
    pub db_name: PathBuf,
    /// The file.
    pub file_path: PathBuf,
    /// The number of the deletion in LOG.
    pub job_id: u64,
    /// The result of the deletion.
    pub status: Result<()>,
}

/// The ingestion of a table file.
#[derive(Clone, Debug)]
pub struct ExternalFileIngestionInfo {
    /// The column family.
    pub cf_name: String,
    /// The original path of the file.
    pub external_file_path: PathBuf,
    /// The path of the file in the database.
    pub internal_file_path: PathBuf,
    /// The global sequence number of its entries; 0 if none was needed.
    pub global_seqno: u64,
    /// The properties that the table stores.
    pub table_properties: Properties,
}

/// The result of a recovery from a background error.
#[derive(Debug)]
pub struct BackgroundErrorRecoveryInfo {
    /// The error because of which writes were refused.
    pub old_bg_error: Error,
    /// The error because of which they are still refused; `Ok` if they are not.
    pub new_bg_error: Result<()>,
}

/// A memtable that became immutable.
#[derive(Clone, Debug)]
pub struct MemTableInfo {
    /// The column family.
    pub cf_name: String,
    /// Number of its entries.
    pub num_entries: u64,
    /// Number of deletions among these entries.
    pub num_deletes: u64,
}

/// The write stall condition of a column family changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteStallInfo {
    /// The column family.
    pub cf_name: String,
    /// The new condition.
    pub cur: WriteStallCondition,
    /// The previous condition.
    pub prev: WriteStallCondition,
    /// The cause; `None` when the stall is over.
    pub cause: Option<WriteStallCause>,
    /// The option whose larger value clears the stall; empty when the stall is over.
    pub option: &'static str,
}

/// Receives the events of a database. The default of every method does nothing.
pub trait EventListener: Send + Sync {
    /// A flush begins.
    fn on_flush_begin(&self, _info: &FlushJobInfo) {}
    /// A flush is done, and its table is part of the database.
    fn on_flush_completed(&self, _info: &FlushJobInfo) {}
    /// A compaction begins.
    fn on_compaction_begin(&self, _info: &CompactionJobInfo) {}
    /// A compaction is done, and its tables are part of the database.
    fn on_compaction_completed(&self, _info: &CompactionJobInfo) {}
    /// A subcompaction begins, on its own thread.
    fn on_subcompaction_begin(&self, _info: &SubcompactionJobInfo) {}
    /// A subcompaction is done; its tables are not part of the database yet.
    fn on_subcompaction_completed(&self, _info: &SubcompactionJobInfo) {}
    /// The creation of a table file begins.
    fn on_table_file_creation_started(&self, _info: &TableFileCreationBriefInfo) {}
    /// A table file is complete and durable, or was abandoned.
    fn on_table_file_created(&self, _info: &TableFileCreationInfo) {}
    /// A table file was deleted, or could not be.
    fn on_table_file_deleted(&self, _info: &TableFileDeletionInfo) {}
    /// A table file was ingested.
    fn on_external_file_ingested(&self, _info: &ExternalFileIngestionInfo) {}
    /// The last handle of the column family with this name is being dropped.
    fn on_column_family_handle_deletion_started(&self, _cf_name: &str) {}
    /// A memtable became immutable. The callback is called once the thread that sealed the memtable
    /// holds no lock: a flush of the memtable may have begun or even ended by then.
    fn on_memtable_sealed(&self, _info: &MemTableInfo) {}
    /// The write stall condition of a column family changed.
    fn on_stall_conditions_changed(&self, _info: &WriteStallInfo) {}
    /// The database refuses writes from now on.
    fn on_background_error(&self, _reason: BackgroundErrorReason, _error: &Error) {}
    /// The database begins to recover from a background error.
    fn on_error_recovery_begin(&self, _reason: BackgroundErrorReason, _error: &Error) {}
    /// The recovery has ended, successfully or not.
    fn on_error_recovery_end(&self, _info: &BackgroundErrorRecoveryInfo) {}
}

/// The listeners of a database; cheap to clone.
#[derive(Clone, Default)]
pub struct Listeners(Vec<Arc<dyn EventListener>>);

impl Listeners {
    /// Adds a listener.
    pub fn add(&mut self, listener: Arc<dyn EventListener>) {
        self.0.push(listener);
    }

    /// True if there are no listeners.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls `f` for each listener; returns how many panicked.
    #[doc(hidden)]
    pub fn tell(&self, f: impl Fn(&dyn EventListener)) -> usize {
        let panics = |l: &&Arc<dyn EventListener>| {
            let call = || telling(|| f(&***l));
            catch_unwind(AssertUnwindSafe(call)).is_err()
        };
        self.0.iter().filter(panics).count()
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} listeners", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    struct Counts(AtomicUsize);

    impl EventListener for Counts {
        fn on_memtable_sealed(&self, info: &MemTableInfo) {
            self.0.fetch_add(1, Ordering::Relaxed);
            assert_ne!(info.cf_name, "bad", "the listener does not like it");
        }
    }

    #[test]
    fn a_listener_that_panics_is_counted_and_the_others_are_told() {
        let counts = Arc::new(Counts(AtomicUsize::new(0)));
        let mut listeners = Listeners::default();
        listeners.add(Arc::clone(&counts) as Arc<dyn EventListener>);
        listeners.add(Arc::clone(&counts) as Arc<dyn EventListener>);
        let info = |cf_name: &str| MemTableInfo {
            cf_name: cf_name.to_owned(),
            num_entries: 0,
            num_deletes: 0,
        };
        assert_eq!(listeners.tell(|l| l.on_memtable_sealed(&info("good"))), 0);
        assert_eq!(listeners.tell(|l| l.on_memtable_sealed(&info("bad"))), 2);
        assert_eq!(counts.0.load(Ordering::Relaxed), 4);
    }

    #[test]
    fn reasons_have_their_numbers() {
        for reason in FlushReason::ALL {
            assert_eq!(FlushReason::from_number(reason as u8), reason);
        }
    }
}
