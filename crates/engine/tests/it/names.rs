//! Every type of the public interface can be named from outside, by this crate alone: whoever uses it need not depend on
//! the crates below.

use ironstone::{backup, env, listener, options, perf};

macro_rules! named {
    ($($t:ty),* $(,)?) => {
        [$(std::any::type_name::<$t>()),*]
    };
}

#[test]
fn databases() {
    let names = named![
        ironstone::Db,
        ironstone::DbWithTtl,
        ironstone::BatchCf<'static>,
        ironstone::Cf<'static>,
        ironstone::ColumnFamily,
        ironstone::TtlCf<'static>,
        ironstone::ColumnFamilyDescriptor,
        ironstone::WriteBatch,
        ironstone::DbIterator,
        ironstone::Entries,
        ironstone::MultiScan,
        dyn Iterator<Item = ironstone::Result<(Vec<u8>, Vec<u8>)>>,
        ironstone::TtlIterator,
        ironstone::UpdatesIterator,
        ironstone::Snapshot,
        ironstone::WideColumns,
        ironstone::PendingWrite,
        ironstone::Applied,
        ironstone::Durable,
        ironstone::Error,
        ironstone::ErrorKind,
        ironstone::Result<()>,
        ironstone::FileNumber,
    ];
    assert!(names.iter().all(|name| !name.is_empty()));
}

#[test]
fn components() {
    let names = named![
        ironstone::Comparator,
        dyn ironstone::UserComparator,
        dyn ironstone::MergeOperator,
        dyn ironstone::CompactionFilter,
        dyn ironstone::CompactionFilterFactory,
        ironstone::FilterContext,
        ironstone::FilterDecision,
        ironstone::FilterValue<'_>,
        ironstone::SliceTransform,
        dyn ironstone::UserSliceTransform,
        dyn ironstone::SstPartitioner,
        dyn ironstone::SstPartitionerFactory,
        ironstone::SstPartitionerFixedPrefix,
        ironstone::PartitionerContext,
        ironstone::PartitionerRequest<'_>,
        ironstone::BlockCache,
        ironstone::RowCache,
        ironstone::CompressedSecondaryCache,
        ironstone::CompressedSecondaryCacheOptions,
        ironstone::CacheTier,
        ironstone::CacheLoaded,
        ironstone::CacheProgress,
        ironstone::WriteBufferManager,
        ironstone::RateLimiter,
        ironstone::RateLimiterMode,
        ironstone::RateLimiterOptions,
        ironstone::IoPriority,
        ironstone::Statistics,
        ironstone::StatsLevel,
        ironstone::Ticker,
        ironstone::Histogram,
        ironstone::HistogramKind,
        perf::PerfLevel,
        perf::PerfCounter,
        dyn env::FileSystem,
        dyn env::File,
        dyn env::FileLock,
        env::Posix,
        env::Probe,
        env::Metadata,
        env::OpenHow,
        env::Create,
        env::Advice,
        env::SyncKind,
        env::WriteSync,
        dyn env::Clock,
        env::SystemClock,
        dyn env::Threads,
        env::SystemThreads,
    ];
    assert!(names.iter().all(|name| !name.is_empty()));
}

#[test]
fn settings() {
    let names = named![
        ironstone::Options,
        ironstone::DbOptions,
        ironstone::ColumnFamilyOptions,
        ironstone::CfOptions,
        ironstone::TableOptions,
        ironstone::Env,
        ironstone::Profile,
        ironstone::ReadOptions,
        ironstone::ReadTier,
        ironstone::TableFilter,
        ironstone::WriteOptions,
        ironstone::FlushOptions,
        ironstone::CompactRangeOptions,
        ironstone::BottommostLevelCompaction,
        ironstone::CompactionOptions,
        ironstone::CompactionOptionsUniversal,
        ironstone::CompactionOptionsFifo,
        ironstone::CompactionPri,
        ironstone::CompactionStyle,
        ironstone::CompactionStopStyle,
        ironstone::CompressionType,
        ironstone::CompressionOptions,
        ironstone::CompressionSettings,
        ironstone::BottommostCompression,
        ironstone::PerLevel<u64>,
        ironstone::MemtableFactory,
        ironstone::FilterPolicy,
        ironstone::ChecksumType,
        ironstone::IndexType,
        ironstone::IndexShortening,
        ironstone::DataBlockIndexType,
        ironstone::FlushBlockPolicy,
        ironstone::PrepopulateBlockCache,
        ironstone::RecoveryMode,
        ironstone::WalIoMode,
        ironstone::ReadIoMode,
        ironstone::WalTailPolicy,
        ironstone::WalCompression,
        ironstone::InfoLogLevel,
        ironstone::GetMergeOperandsOptions,
        ironstone::ContinueCallback,
        ironstone::OptionInfo,
        ironstone::OptionFlag,
        options::ParsedOptions,
        options::Kept,
    ];
    assert!(names.iter().all(|name| !name.is_empty()));
}

#[test]
fn files() {
    let names = named![
        ironstone::SstFileWriter,
        ironstone::ExternalSstFileInfo,
        ironstone::TableProperties,
        ironstone::TableCreationReason,
        ironstone::IngestExternalFileArg,
        ironstone::IngestExternalFileOptions,
        ironstone::ExportImportFilesMetaData,
        ironstone::ImportColumnFamilyOptions,
        ironstone::LiveFileMetaData,
        ironstone::LiveFileStorageInfo,
        ironstone::FileKind,
        ironstone::LiveFilesStorageInfoOptions,
        ironstone::ColumnFamilyMetaData,
        ironstone::LevelMetaData,
        ironstone::WalFile,
        ironstone::WalFileKind,
        ironstone::Range<'_>,
        ironstone::OpenRange<'_>,
        ironstone::SizeApproximationOptions,
        ironstone::BackupEngine,
        ironstone::BackupEngineOptions,
        ironstone::BackupInfo,
        ironstone::CreateBackupOptions,
        ironstone::RestoreOptions,
        backup::BackupStopper,
    ];
    assert!(names.iter().all(|name| !name.is_empty()));
}

#[test]
fn events() {
    let names = named![
        dyn ironstone::EventListener,
        listener::Listeners,
        listener::FlushReason,
        listener::FlushJobInfo,
        listener::CompactionJobInfo,
        listener::SubcompactionJobInfo,
        listener::TableFileCreationInfo,
        listener::TableFileCreationBriefInfo,
        listener::TableFileDeletionInfo,
        listener::MemTableInfo,
        listener::WriteStallInfo,
        listener::WriteStallCondition,
        listener::WriteStallCause,
        listener::ExternalFileIngestionInfo,
        listener::BackgroundErrorReason,
        listener::BackgroundErrorRecoveryInfo,
    ];
    assert!(names.iter().all(|name| !name.is_empty()));
}

/// Traits by which functions take what several types can be.
#[test]
fn bounds() {
    fn named<T: ironstone::OptionTable, V: ironstone::OptionValue>() {}
    fn ranges<B: ironstone::KeyBounds, O: ironstone::CallOptions>() {}
    named::<ironstone::DbOptions, u64>();
    ranges::<std::ops::RangeFull, ironstone::ReadOptions>();
}
