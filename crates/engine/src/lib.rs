//! # Ironstone
//!
//! An embedded key-value engine that reads and writes RocksDB's files. Keys and values are byte strings, and keys
//! are sorted. Each write goes to a write-ahead log first, so that it survives a crash.
//!
//! ```
//! use ironstone::{Db, Options, WriteBatch, WriteOptions};
//!
//! # fn main() -> ironstone::Result<()> {
//! # let dir = tempfile::tempdir().unwrap();
//! # let path = dir.path().join("db");
//! let options = Options::default().with_db(|db| db.create_if_missing = true);
//! let db = Db::open(&path, &options)?;
//!
//! let mut batch = WriteBatch::new();
//! batch.put(b"apple", b"red")?;
//! batch.put(b"banana", b"yellow")?;
//! let sync = WriteOptions { sync: true, ..Default::default() };
//! db.with(&sync).write(&mut batch)?; // durable now
//! assert_eq!(db.get(b"apple")?.as_deref(), Some(&b"red"[..]));
//!
//! for item in db.range("b"..)? {
//!     let (key, value) = item?;
//!     assert_eq!((&key[..], &value[..]), (&b"banana"[..], &b"yellow"[..]));
//! }
//! # Ok(())
//! # }
//! ```
//!
//! ## Errors
//! Every operation that can fail returns [`Error`]. [`Error::kind`] is RocksDB's `Status` code. The message names
//! the file and offset where they are known, and says what to do.
//!
//! ## Map of the crate
//! [`Db`] is in `db/`. It calls `write/` (the pipeline), `read/` (gets, iterators) and `open/` (recovery). Below them
//! are `flush`, `compaction/`, the crate `manifest` and `jobs` (threads). ARCHITECTURE.md in the repository has the
//! details.

mod background;
pub mod backup;
pub mod batch;
mod catalog;
mod commit;
mod compaction;
mod db;
mod flush;
mod info;
mod ingest;
mod jobs;
mod locks;
#[cfg(loom)]
pub mod models;
mod open;
mod outbox;
mod properties;
mod read;
#[cfg(shuttle)]
pub mod schedules;
mod shared;
mod wal;
mod watermark;
mod write;

pub use ::options::hooks::filter::{
    CompactionFilter, CompactionFilterFactory, FilterContext, FilterDecision, FilterValue,
    TableCreationReason, compaction_filter,
};
pub use ::options::hooks::listener;
pub use ::options::hooks::listener::EventListener;
pub use ::options::hooks::partitioner::{
    PartitionerContext, PartitionerRequest, SstPartitioner, SstPartitionerFactory,
    SstPartitionerFixedPrefix,
};
pub use ::options::write_buffer_manager::WriteBufferManager;
pub use ::options::{
    BottommostCompression, BottommostLevelCompaction, CacheTier, CfOptions, ColumnFamilyDescriptor,
    ColumnFamilyOptions, CompactRangeOptions, CompactionOptions, CompactionOptionsFifo,
    CompactionOptionsUniversal, CompactionPri, CompactionStopStyle, CompactionStyle,
    CompressionOptions, DbOptions, Env, FlushOptions, InfoLogLevel, MemtableFactory, Options,
    PerLevel, Profile, WalCompression, WalIoMode, WalTailPolicy, WriteOptions,
};
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
pub use base::values::entity::WideColumns;
pub use base::{Comparator, Error, ErrorKind, FileNumber, Result, SliceTransform};
pub use batch::WriteBatch;
pub use db::cache_dump::{CacheLoaded, CacheProgress};
pub use db::cf::{CallOptions, Cf};
pub use db::sizes::{OpenRange, Range, SizeApproximationOptions};
pub use db::ttl::{DbWithTtl, TtlCf, TtlIterator};
pub use db::{BatchCf, ColumnFamily, Db};
pub use files::FileKind;
pub use ingest::sst_file_writer::{ExternalSstFileInfo, SstFileWriter};
pub use ingest::{IngestExternalFileArg, IngestExternalFileOptions};
pub use io::ReadIoMode;
pub use io::{IoPriority, RateLimiter, RateLimiterMode, RateLimiterOptions};
pub use log::RecoveryMode;
pub use read::entries::{Entries, KeyBounds};
pub use read::futures::ReadFuture;
pub use read::iter::DbIterator;
pub use read::multi_scan::MultiScan;
pub use read::options::{
    ContinueCallback, GetMergeOperandsOptions, ReadOptions, ReadTier, TableFilter,
};
pub use read::pinned::PinnedValue;
pub use read::updates::UpdatesIterator;
pub use shared::snapshot::Snapshot;
pub use table::filter::FilterPolicy;
pub use table::options::{
    DataBlockIndexType, FlushBlockPolicy, IndexShortening, IndexType, PrepopulateBlockCache,
};
pub use table::{
    BlockCache, ChecksumType, CompressedSecondaryCache, CompressedSecondaryCacheOptions,
    CompressionSettings, CompressionType, Properties as TableProperties, RowCache, TableOptions,
};
pub use wal::{WalFile, WalFileKind};
pub use write::pending::{Applied, Durable, PendingWrite};

/// The traits through which the engine uses the system: files, time and threads. [`Env`] accepts other implementations.
pub mod env {
    pub use base::clock::{Clock, SystemClock};
    pub use base::threads::{SystemThreads, Threads};
    pub use io::posix::Posix;
    pub use io::{
        Advice, Create, File, FileLock, FileSystem, Metadata, OpenHow, Probe, SyncKind, WriteSync,
    };
}

/// Options as texts and files: RocksDB's OPTIONS file, and every key of it.
pub mod options {
    pub use ::options::{Kept, ParsedOptions, codec, rocksdb};
}

/// Compiles and runs the example in the README.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
pub struct Readme;
