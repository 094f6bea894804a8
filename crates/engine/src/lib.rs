//! # Ironstone
//!
//! An embedded key-value engine that reads and writes RocksDB's files. Keys and values are byte strings, and keys
//! are sorted. Each write goes to a write-ahead log first, so that it survives a crash.
//!
//! ```
//! use ironstone::{Db, Options, ReadOptions, WriteBatch, WriteOptions};
//!
//! # fn main() -> ironstone::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("db");
//! let mut options = Options::default();
//! options.db.create_if_missing = true;
//! let db = Db::open(&path, &options)?;
//!
//! let mut batch = WriteBatch::new();
//! batch.put(b"apple", b"red")?;
//! batch.put(b"banana", b"yellow")?;
//! db.write_opt(&WriteOptions { sync: true, ..Default::default() }, batch)?; // durable now
//! assert_eq!(db.get(b"apple")?.as_deref(), Some(&b"red"[..]));
//!
//! let mut it = db.iterator(&ReadOptions::default());
//! it.seek(b"b");
//! assert_eq!((it.key(), it.value()), (&b"banana"[..], &b"yellow"[..]));
//! # Ok(())
//! # }
//! ```
//!
//! ## Errors
//! Every operation that can fail returns [`Error`]. [`Error::kind`] is RocksDB's `Status` code. The message names
//! the file and offset where they are known, and says what to do.
//!
//! ## Map of the crate
//! [`Db`] is in `db/`; it calls `write/` (the pipeline), `read/` (gets, iterators), `open/` (recovery). Behind them:
//! `flush`, `compaction/`, `version/` (MANIFEST), `jobs` (threads). ARCHITECTURE.md in the repository has the details.

mod background;
pub mod backup;
pub mod batch;
#[doc(hidden)]
pub mod bench_support;
mod catalog;
mod commit;
mod compaction;
mod db;
pub mod files;
mod flush;
mod hooks;
mod info;
mod ingest;
mod jobs;
mod locks;
#[cfg(loom)]
pub mod models;
mod open;
pub mod options;
mod picking;
mod properties;
mod read;
#[cfg(shuttle)]
pub mod schedules;
mod shared;
mod values;
pub mod version;
mod wal;
mod watermark;
mod write;

pub use backup::export::{ExportImportFilesMetaData, ImportColumnFamilyOptions};
pub use backup::live_files::{
    ColumnFamilyMetaData, LevelMetaData, LiveFileMetaData, LiveFileStorageInfo,
    LiveFilesStorageInfoOptions,
};
pub use backup::{
    BackupEngine, BackupEngineOptions, BackupInfo, CreateBackupOptions, RestoreOptions,
};
pub use base::comparator::UserComparator;
pub use base::merge::{
    self as merge_operators, MergeOperator, associative_merge_operator, merge_operator,
};
pub use base::options::{OptionFlag, OptionInfo, OptionTable, OptionValue};
pub use base::perf;
pub use base::slice_transform::UserSliceTransform;
pub use base::stats::{Histogram, HistogramKind, Statistics, StatsLevel, Ticker};
#[doc(hidden)]
pub use base::threads;
pub use base::{Comparator, Error, ErrorKind, FileNumber, Result, SliceTransform};
pub use batch::WriteBatch;
pub use db::sizes::{OpenRange, Range, SizeApproximationOptions};
pub use db::ttl::{DbWithTtl, TtlIterator};
pub use db::{ColumnFamily, Db};
pub use hooks::filter::{
    CompactionFilter, CompactionFilterFactory, FilterContext, FilterDecision, FilterValue,
    TableCreationReason, compaction_filter,
};
pub use hooks::listener;
pub use hooks::listener::EventListener;
pub use hooks::partitioner::{
    PartitionerContext, PartitionerRequest, SstPartitioner, SstPartitionerFactory,
    SstPartitionerFixedPrefix,
};
pub use ingest::sst_file_writer::{ExternalSstFileInfo, SstFileWriter};
pub use ingest::{IngestExternalFileArg, IngestExternalFileOptions};
pub use io::{IoPriority, RateLimiter, RateLimiterMode, RateLimiterOptions};
pub use log::RecoveryMode;
pub use options::write_buffer_manager::WriteBufferManager;
pub use options::{
    BottommostCompression, BottommostLevelCompaction, CfOptions, ColumnFamilyDescriptor,
    ColumnFamilyOptions, CompactRangeOptions, CompactionOptions, CompactionOptionsFifo,
    CompactionOptionsUniversal, CompactionPri, CompactionStopStyle, CompactionStyle,
    CompressionOptions, ContinueCallback, DbOptions, Env, FlushOptions, GetMergeOperandsOptions,
    InfoLogLevel, MemtableFactory, Options, PerLevel, Profile, ReadOptions, ReadTier, TableFilter,
    WalCompression, WalIoMode, WalTailPolicy, WriteOptions,
};
pub use read::entries::{Entries, KeyBounds};
pub use read::iter::DbIterator;
pub use read::updates::UpdatesIterator;
pub use shared::snapshot::Snapshot;
pub use table::filter::FilterPolicy;
pub use table::options::{
    DataBlockIndexType, FlushBlockPolicy, IndexShortening, IndexType, PrepopulateBlockCache,
};
pub use table::{
    BlockCache, ChecksumType, CompressionSettings, CompressionType, Properties as TableProperties,
    TableOptions,
};
pub use values::entity::WideColumns;
pub use wal::{WalFile, WalFileKind};
pub use write::pending::{Applied, Durable, PendingWrite};

/// The traits through which the engine uses the system: files and time. [`Env`] accepts other implementations.
pub mod env {
    pub use base::clock::{Clock, SystemClock};
    pub use io::posix::Posix;
    pub use io::{
        Advice, Create, File, FileLock, FileSystem, Metadata, OpenHow, Probe, SyncKind, WriteSync,
    };
}

/// Compiles and runs the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
