//! The names of all tickers and histograms of RocksDB 11.8, in its order, and after them Ironstone's own.
//!
//! `docs/statistics.md` lists which of them the code counts; the others stay 0.

macro_rules! named {
    ($(#[$about:meta])* $kind:ident { $( $(#[$doc:meta])* $variant:ident = $name:literal, )* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(usize)]
        pub enum $kind {
            $( #[doc = concat!("`", $name, "`")] #[doc = ""] $(#[$doc])* $variant, )*
        }

        impl $kind {
            /// All of them.
            pub const ALL: &'static [Self] = &[ $( Self::$variant ),* ];

            /// The name in reports, RocksDB's where RocksDB has it.
            pub fn name(self) -> &'static str {
                match self {
                    $( Self::$variant => $name, )*
                }
            }

            /// The variant with this name.
            pub fn by_name(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|t| t.name() == name)
            }
        }
    };
}

named! {
/// What is counted.
Ticker {
    /// Blocks that had to be read from a file.
    BlockCacheMiss = "rocksdb.block.cache.miss",
    /// Data, index and filter blocks found in the block cache.
    BlockCacheHit = "rocksdb.block.cache.hit",
    /// Blocks put into the cache.
    BlockCacheAdd = "rocksdb.block.cache.add",
    BlockCacheAddFailures = "rocksdb.block.cache.add.failures",
    BlockCacheIndexMiss = "rocksdb.block.cache.index.miss",
    BlockCacheIndexHit = "rocksdb.block.cache.index.hit",
    BlockCacheIndexAdd = "rocksdb.block.cache.index.add",
    BlockCacheIndexBytesInsert = "rocksdb.block.cache.index.bytes.insert",
    BlockCacheFilterMiss = "rocksdb.block.cache.filter.miss",
    BlockCacheFilterHit = "rocksdb.block.cache.filter.hit",
    BlockCacheFilterAdd = "rocksdb.block.cache.filter.add",
    BlockCacheFilterBytesInsert = "rocksdb.block.cache.filter.bytes.insert",
    BlockCacheDataMiss = "rocksdb.block.cache.data.miss",
    BlockCacheDataHit = "rocksdb.block.cache.data.hit",
    BlockCacheDataAdd = "rocksdb.block.cache.data.add",
    BlockCacheDataBytesInsert = "rocksdb.block.cache.data.bytes.insert",
    BlockCacheBytesRead = "rocksdb.block.cache.bytes.read",
    /// Bytes of blocks put into the cache.
    BlockCacheBytesWrite = "rocksdb.block.cache.bytes.write",
    BlockCacheCompressionDictMiss = "rocksdb.block.cache.compression.dict.miss",
    BlockCacheCompressionDictHit = "rocksdb.block.cache.compression.dict.hit",
    BlockCacheCompressionDictAdd = "rocksdb.block.cache.compression.dict.add",
    BlockCacheCompressionDictBytesInsert = "rocksdb.block.cache.compression.dict.bytes.insert",
    BlockCacheAddRedundant = "rocksdb.block.cache.add.redundant",
    BlockCacheIndexAddRedundant = "rocksdb.block.cache.index.add.redundant",
    BlockCacheFilterAddRedundant = "rocksdb.block.cache.filter.add.redundant",
    BlockCacheDataAddRedundant = "rocksdb.block.cache.data.add.redundant",
    BlockCacheCompressionDictAddRedundant = "rocksdb.block.cache.compression.dict.add.redundant",
    SecondaryCacheHits = "rocksdb.secondary.cache.hits",
    SecondaryCacheFilterHits = "rocksdb.secondary.cache.filter.hits",
    SecondaryCacheIndexHits = "rocksdb.secondary.cache.index.hits",
    SecondaryCacheDataHits = "rocksdb.secondary.cache.data.hits",
    CompressedSecondaryCacheDummyHits = "rocksdb.compressed.secondary.cache.dummy.hits",
    CompressedSecondaryCacheHits = "rocksdb.compressed.secondary.cache.hits",
    CompressedSecondaryCachePromotions = "rocksdb.compressed.secondary.cache.promotions",
    CompressedSecondaryCachePromotionSkips = "rocksdb.compressed.secondary.cache.promotion.skips",
    /// Keys that a Bloom or Ribbon filter showed to be absent from a file.
    BloomFilterUseful = "rocksdb.bloom.filter.useful",
    /// Keys that passed a filter and were then looked for in the file.
    BloomFilterFullPositive = "rocksdb.bloom.filter.full.positive",
    BloomFilterFullTruePositive = "rocksdb.bloom.filter.full.true.positive",
    BloomFilterPrefixChecked = "rocksdb.bloom.filter.prefix.checked",
    BloomFilterPrefixUseful = "rocksdb.bloom.filter.prefix.useful",
    BloomFilterPrefixTruePositive = "rocksdb.bloom.filter.prefix.true.positive",
    PersistentCacheHit = "rocksdb.persistent.cache.hit",
    PersistentCacheMiss = "rocksdb.persistent.cache.miss",
    SimBlockCacheHit = "rocksdb.sim.block.cache.hit",
    SimBlockCacheMiss = "rocksdb.sim.block.cache.miss",
    /// Gets answered by a memtable.
    MemtableHit = "rocksdb.memtable.hit",
    /// Gets that no memtable could answer.
    MemtableMiss = "rocksdb.memtable.miss",
    /// Gets answered by level 0.
    GetHitL0 = "rocksdb.l0.hit",
    /// Gets answered by level 1.
    GetHitL1 = "rocksdb.l1.hit",
    /// Gets answered by level 2 or deeper.
    GetHitL2AndUp = "rocksdb.l2andup.hit",
    /// Values that a compaction left out because a newer one hides them.
    CompactionKeyDropNewerEntry = "rocksdb.compaction.key.drop.new",
    /// Deletions that a compaction left out because nothing older is left.
    CompactionKeyDropObsolete = "rocksdb.compaction.key.drop.obsolete",
    /// Entries that compactions dropped because of a range deletion.
    CompactionKeyDropRangeDel = "rocksdb.compaction.key.drop.range_del",
    /// Values that a compaction filter removed.
    CompactionKeyDropUser = "rocksdb.compaction.key.drop.user",
    CompactionRangeDelDropObsolete = "rocksdb.compaction.range_del.drop.obsolete",
    CompactionOptimizedDelDropObsolete = "rocksdb.compaction.optimized.del.drop.obsolete",
    CompactionCancelled = "rocksdb.compaction.cancelled",
    CompactionAborted = "rocksdb.compaction.aborted",
    /// Counted records written.
    NumberKeysWritten = "rocksdb.number.keys.written",
    /// Keys read by Get.
    NumberKeysRead = "rocksdb.number.keys.read",
    NumberKeysUpdated = "rocksdb.number.keys.updated",
    /// Bytes of batches written.
    BytesWritten = "rocksdb.bytes.written",
    /// Bytes of values returned by Get.
    BytesRead = "rocksdb.bytes.read",
    /// Iterator seeks.
    NumberDbSeek = "rocksdb.number.db.seek",
    /// Iterator steps forward.
    NumberDbNext = "rocksdb.number.db.next",
    /// Iterator steps backward.
    NumberDbPrev = "rocksdb.number.db.prev",
    NumberDbSeekFound = "rocksdb.number.db.seek.found",
    NumberDbNextFound = "rocksdb.number.db.next.found",
    NumberDbPrevFound = "rocksdb.number.db.prev.found",
    IterBytesRead = "rocksdb.db.iter.bytes.read",
    NumberIterSkip = "rocksdb.number.iter.skip",
    NumberOfReseeksInIteration = "rocksdb.number.reseeks.iteration",
    NoIteratorCreated = "rocksdb.num.iterator.created",
    NoIteratorDeleted = "rocksdb.num.iterator.deleted",
    NoFileOpens = "rocksdb.no.file.opens",
    NoFileErrors = "rocksdb.no.file.errors",
    /// Microseconds that writers were held back or stopped.
    StallMicros = "rocksdb.stall.micros",
    DbMutexWaitMicros = "rocksdb.db.mutex.wait.micros",
    NumberMultigetCalls = "rocksdb.number.multiget.get",
    NumberMultigetKeysRead = "rocksdb.number.multiget.keys.read",
    NumberMultigetBytesRead = "rocksdb.number.multiget.bytes.read",
    NumberMultigetKeysFound = "rocksdb.number.multiget.keys.found",
    /// Merges that the merge operator gave up, or panicked on.
    NumberMergeFailures = "rocksdb.number.merge.failures",
    /// Calls of `get_updates_since`.
    GetUpdatesSinceCalls = "rocksdb.getupdatessince.calls",
    /// Synced log writes.
    WalFileSynced = "rocksdb.wal.synced",
    /// Bytes appended to the log.
    WalFileBytes = "rocksdb.wal.bytes",
    /// Logs that were begun with a file from the pool.
    WalPrecreateHit = "rocksdb.wal.precreate.hit",
    /// Logs that were begun when the pool had no file ready: they grow.
    WalPrecreateMiss = "rocksdb.wal.precreate.miss",
    WalPrecreateWaited = "rocksdb.wal.precreate.waited",
    WalPrecreateWaitMicros = "rocksdb.wal.precreate.wait.micros",
    /// Log files that could not be prepared.
    WalPrecreateFailed = "rocksdb.wal.precreate.failed",
    /// Writes that their own thread wrote to the log.
    WriteDoneBySelf = "rocksdb.write.self",
    /// Writes that another thread wrote as part of its group.
    WriteDoneByOther = "rocksdb.write.other",
    /// Groups written to the log.
    WriteWithWal = "rocksdb.write.wal",
    /// Bytes read by compactions.
    CompactReadBytes = "rocksdb.compact.read.bytes",
    /// Bytes written by compactions.
    CompactWriteBytes = "rocksdb.compact.write.bytes",
    /// Bytes written by flushes.
    FlushWriteBytes = "rocksdb.flush.write.bytes",
    CompactReadBytesMarked = "rocksdb.compact.read.marked.bytes",
    CompactReadBytesPeriodic = "rocksdb.compact.read.periodic.bytes",
    CompactReadBytesTtl = "rocksdb.compact.read.ttl.bytes",
    CompactWriteBytesMarked = "rocksdb.compact.write.marked.bytes",
    CompactWriteBytesPeriodic = "rocksdb.compact.write.periodic.bytes",
    CompactWriteBytesTtl = "rocksdb.compact.write.ttl.bytes",
    NumberDirectLoadTableProperties = "rocksdb.number.direct.load.table.properties",
    NumberSuperversionAcquires = "rocksdb.number.superversion_acquires",
    NumberSuperversionReleases = "rocksdb.number.superversion_releases",
    NumberSuperversionCleanups = "rocksdb.number.superversion_cleanups",
    /// Blocks of tables that were stored compressed.
    NumberBlockCompressed = "rocksdb.number.block.compressed",
    NumberBlockDecompressed = "rocksdb.number.block.decompressed",
    BytesCompressedFrom = "rocksdb.bytes.compressed.from",
    BytesCompressedTo = "rocksdb.bytes.compressed.to",
    BytesCompressionBypassed = "rocksdb.bytes.compression_bypassed",
    BytesCompressionRejected = "rocksdb.bytes.compression.rejected",
    NumberBlockCompressionBypassed = "rocksdb.number.block_compression_bypassed",
    NumberBlockCompressionRejected = "rocksdb.number.block_compression_rejected",
    BytesDecompressedFrom = "rocksdb.bytes.decompressed.from",
    BytesDecompressedTo = "rocksdb.bytes.decompressed.to",
    MergeOperationTotalTime = "rocksdb.merge.operation.time.nanos",
    FilterOperationTotalTime = "rocksdb.filter.operation.time.nanos",
    CompactionCpuTotalTime = "rocksdb.compaction.total.time.cpu_micros",
    RowCacheHit = "rocksdb.row.cache.hit",
    RowCacheMiss = "rocksdb.row.cache.miss",
    ReadAmpEstimateUsefulBytes = "rocksdb.read.amp.estimate.useful.bytes",
    ReadAmpTotalReadBytes = "rocksdb.read.amp.total.read.bytes",
    NumberRateLimiterDrains = "rocksdb.number.rate_limiter.drains",
    RateLimiterBytesRead = "rocksdb.rate.limiter.bytes.read",
    RateLimiterBytesWrite = "rocksdb.rate.limiter.bytes.write",
    RateLimiterRequestsRead = "rocksdb.rate.limiter.requests.read",
    RateLimiterRequestsWrite = "rocksdb.rate.limiter.requests.write",
    RateLimiterDelayedRequestsRead = "rocksdb.rate.limiter.delayed.requests.read",
    RateLimiterDelayedRequestsWrite = "rocksdb.rate.limiter.delayed.requests.write",
    RateLimiterTotalWaitMicrosRead = "rocksdb.rate.limiter.total.wait.micros.read",
    RateLimiterTotalWaitMicrosWrite = "rocksdb.rate.limiter.total.wait.micros.write",
    BlobDbNumPut = "rocksdb.blobdb.num.put",
    BlobDbNumWrite = "rocksdb.blobdb.num.write",
    BlobDbNumGet = "rocksdb.blobdb.num.get",
    BlobDbNumMultiget = "rocksdb.blobdb.num.multiget",
    BlobDbNumSeek = "rocksdb.blobdb.num.seek",
    BlobDbNumNext = "rocksdb.blobdb.num.next",
    BlobDbNumPrev = "rocksdb.blobdb.num.prev",
    BlobDbNumKeysWritten = "rocksdb.blobdb.num.keys.written",
    BlobDbNumKeysRead = "rocksdb.blobdb.num.keys.read",
    BlobDbBytesWritten = "rocksdb.blobdb.bytes.written",
    BlobDbBytesRead = "rocksdb.blobdb.bytes.read",
    BlobDbWriteInlinedDeprecated = "rocksdb.blobdb.write.inlined",
    BlobDbWriteInlinedTtlDeprecated = "rocksdb.blobdb.write.inlined.ttl",
    BlobDbWriteBlob = "rocksdb.blobdb.write.blob",
    BlobDbWriteBlobTtl = "rocksdb.blobdb.write.blob.ttl",
    BlobDbBlobFileBytesWritten = "rocksdb.blobdb.blob.file.bytes.written",
    BlobDbBlobFileBytesRead = "rocksdb.blobdb.blob.file.bytes.read",
    BlobDbBlobFileSynced = "rocksdb.blobdb.blob.file.synced",
    BlobdbBlobIndexExpiredCount = "rocksdb.blobdb.blob.index.expired.count",
    BlobDbBlobIndexExpiredSize = "rocksdb.blobdb.blob.index.expired.size",
    BlobdbBlobIndexEvictedCount = "rocksdb.blobdb.blob.index.evicted.count",
    BlobDbBlobIndexEvictedSize = "rocksdb.blobdb.blob.index.evicted.size",
    BlobDbGcNumFiles = "rocksdb.blobdb.gc.num.files",
    BlobDbGcNumNewFiles = "rocksdb.blobdb.gc.num.new.files",
    BlobDbGcFailures = "rocksdb.blobdb.gc.failures",
    BlobDbGcNumKeysRelocated = "rocksdb.blobdb.gc.num.keys.relocated",
    BlobDbGcBytesRelocated = "rocksdb.blobdb.gc.bytes.relocated",
    BlobDbFifoNumFilesEvicted = "rocksdb.blobdb.fifo.num.files.evicted",
    BlobDbFifoNumKeysEvicted = "rocksdb.blobdb.fifo.num.keys.evicted",
    BlobDbFifoBytesEvicted = "rocksdb.blobdb.fifo.bytes.evicted",
    BlobDbCacheMiss = "rocksdb.blobdb.cache.miss",
    BlobDbCacheHit = "rocksdb.blobdb.cache.hit",
    BlobDbCacheAdd = "rocksdb.blobdb.cache.add",
    BlobDbCacheAddFailures = "rocksdb.blobdb.cache.add.failures",
    BlobDbCacheBytesRead = "rocksdb.blobdb.cache.bytes.read",
    BlobDbCacheBytesWrite = "rocksdb.blobdb.cache.bytes.write",
    TxnPrepareMutexOverhead = "rocksdb.txn.overhead.mutex.prepare",
    TxnOverheadMutexOldCommitMap = "rocksdb.txn.overhead.mutex.old.commit.map",
    TxnDuplicateKeyOverhead = "rocksdb.txn.overhead.duplicate.key",
    TxnSnapshotMutexOverhead = "rocksdb.txn.overhead.mutex.snapshot",
    TxnGetTryAgain = "rocksdb.txn.get.tryagain",
    FilesMarkedTrash = "rocksdb.files.marked.trash",
    FilesDeletedFromTrashQueue = "rocksdb.files.marked.trash.deleted",
    FilesDeletedImmediately = "rocksdb.files.deleted.immediately",
    ErrorHandlerBgErrorCount = "rocksdb.error.handler.bg.error.count",
    ErrorHandlerBgIoErrorCount = "rocksdb.error.handler.bg.io.error.count",
    ErrorHandlerBgRetryableIoErrorCount = "rocksdb.error.handler.bg.retryable.io.error.count",
    ErrorHandlerAutoresumeCount = "rocksdb.error.handler.autoresume.count",
    ErrorHandlerAutoresumeRetryTotalCount = "rocksdb.error.handler.autoresume.retry.total.count",
    ErrorHandlerAutoresumeSuccessCount = "rocksdb.error.handler.autoresume.success.count",
    MemtablePayloadBytesAtFlush = "rocksdb.memtable.payload.bytes.at.flush",
    MemtableGarbageBytesAtFlush = "rocksdb.memtable.garbage.bytes.at.flush",
    VerifyChecksumReadBytes = "rocksdb.verify_checksum.read.bytes",
    BackupReadBytes = "rocksdb.backup.read.bytes",
    BackupWriteBytes = "rocksdb.backup.write.bytes",
    RemoteCompactReadBytes = "rocksdb.remote.compact.read.bytes",
    RemoteCompactWriteBytes = "rocksdb.remote.compact.write.bytes",
    RemoteCompactResumedBytes = "rocksdb.remote.compact.resumed.bytes",
    HotFileReadBytes = "rocksdb.hot.file.read.bytes",
    WarmFileReadBytes = "rocksdb.warm.file.read.bytes",
    CoolFileReadBytes = "rocksdb.cool.file.read.bytes",
    ColdFileReadBytes = "rocksdb.cold.file.read.bytes",
    IceFileReadBytes = "rocksdb.ice.file.read.bytes",
    HotFileReadCount = "rocksdb.hot.file.read.count",
    WarmFileReadCount = "rocksdb.warm.file.read.count",
    CoolFileReadCount = "rocksdb.cool.file.read.count",
    ColdFileReadCount = "rocksdb.cold.file.read.count",
    IceFileReadCount = "rocksdb.ice.file.read.count",
    LastLevelReadBytes = "rocksdb.last.level.read.bytes",
    LastLevelReadCount = "rocksdb.last.level.read.count",
    NonLastLevelReadBytes = "rocksdb.non.last.level.read.bytes",
    NonLastLevelReadCount = "rocksdb.non.last.level.read.count",
    LastLevelSeekFiltered = "rocksdb.last.level.seek.filtered",
    LastLevelSeekFilterMatch = "rocksdb.last.level.seek.filter.match",
    LastLevelSeekData = "rocksdb.last.level.seek.data",
    LastLevelSeekDataUsefulNoFilter = "rocksdb.last.level.seek.data.useful.no.filter",
    LastLevelSeekDataUsefulFilterMatch = "rocksdb.last.level.seek.data.useful.filter.match",
    NonLastLevelSeekFiltered = "rocksdb.non.last.level.seek.filtered",
    NonLastLevelSeekFilterMatch = "rocksdb.non.last.level.seek.filter.match",
    NonLastLevelSeekData = "rocksdb.non.last.level.seek.data",
    NonLastLevelSeekDataUsefulNoFilter = "rocksdb.non.last.level.seek.data.useful.no.filter",
    NonLastLevelSeekDataUsefulFilterMatch = "rocksdb.non.last.level.seek.data.useful.filter.match",
    BlockChecksumComputeCount = "rocksdb.block.checksum.compute.count",
    BlockChecksumMismatchCount = "rocksdb.block.checksum.mismatch.count",
    MultigetCoroutineCount = "rocksdb.multiget.coroutine.count",
    ReadAsyncMicros = "rocksdb.read.async.micros",
    AsyncReadErrorCount = "rocksdb.async.read.error.count",
    TableOpenPrefetchTailMiss = "rocksdb.table.open.prefetch.tail.miss",
    TableOpenPrefetchTailHit = "rocksdb.table.open.prefetch.tail.hit",
    TimestampFilterTableChecked = "rocksdb.timestamp.filter.table.checked",
    TimestampFilterTableFiltered = "rocksdb.timestamp.filter.table.filtered",
    ReadaheadTrimmed = "rocksdb.readahead.trimmed",
    FifoMaxSizeCompactions = "rocksdb.fifo.max.size.compactions",
    FifoTtlCompactions = "rocksdb.fifo.ttl.compactions",
    FifoChangeTemperatureCompactions = "rocksdb.fifo.change_temperature.compactions",
    PrefetchBytes = "rocksdb.prefetch.bytes",
    PrefetchBytesUseful = "rocksdb.prefetch.bytes.useful",
    PrefetchHits = "rocksdb.prefetch.hits",
    SstFooterCorruptionCount = "rocksdb.footer.corruption.count",
    FileReadCorruptionRetryCount = "rocksdb.file.read.corruption.retry.count",
    FileReadCorruptionRetrySuccessCount = "rocksdb.file.read.corruption.retry.success.count",
    NumberWbwiIngest = "rocksdb.number.wbwi.ingest",
    SstUserDefinedIndexLoadFailCount = "rocksdb.sst.user.defined.index.load.fail.count",
    MultiscanPrepareCalls = "rocksdb.multiscan.prepare.calls",
    MultiscanPrepareErrors = "rocksdb.multiscan.prepare.errors",
    MultiscanBlocksPrefetched = "rocksdb.multiscan.blocks.prefetched",
    MultiscanBlocksFromCache = "rocksdb.multiscan.blocks.from.cache",
    MultiscanPrefetchBytes = "rocksdb.multiscan.prefetch.bytes",
    MultiscanPrefetchBlocksWasted = "rocksdb.multiscan.prefetch.blocks.wasted",
    MultiscanIoRequests = "rocksdb.multiscan.io.requests",
    MultiscanIoCoalescedNonadjacent = "rocksdb.multiscan.io.coalesced.nonadjacent",
    MultiscanSeekErrors = "rocksdb.multiscan.seek.errors",
    PrefetchMemoryBytesGranted = "rocksdb.prefetch.memory.bytes.granted",
    PrefetchMemoryBytesReleased = "rocksdb.prefetch.memory.bytes.released",
    PrefetchMemoryRequestsBlocked = "rocksdb.prefetch.memory.requests.blocked",
    ReadPathRangeTombstonesInserted = "rocksdb.read.path.range.tombstones.inserted",
    ReadPathRangeTombstonesDiscarded = "rocksdb.read.path.range.tombstones.discarded",
    FileOpenMetadataRetrieved = "rocksdb.file.open.metadata.retrieved",
    FileOpenMetadataPassed = "rocksdb.file.open.metadata.passed",
    ManifestValidationFailureCount = "rocksdb.manifest.validation.failure.count",
    FlushReasonWriteBufferFull = "rocksdb.flush.reason.write_buffer_full",
    FlushReasonWriteBufferManager = "rocksdb.flush.reason.write_buffer_manager",
    FlushReasonMemtableMaxRangeDeletions = "rocksdb.flush.reason.memtable_max_range_deletions",
    AtomicFlushRequestReasonWriteBufferFull = "rocksdb.atomic_flush.request.reason.write_buffer_full",
    AtomicFlushRequestReasonWriteBufferManager = "rocksdb.atomic_flush.request.reason.write_buffer_manager",
    AtomicFlushRequestReasonMemtableMaxRangeDeletions = "rocksdb.atomic_flush.request.reason.memtable_max_range_deletions",
    AtomicFlushRequestReasonOther = "rocksdb.atomic_flush.request.reason.other",
    CheckpointReadBytes = "rocksdb.checkpoint.read.bytes",
    CheckpointWriteBytes = "rocksdb.checkpoint.write.bytes",
    FileSubmitAsyncReadFallback = "rocksdb.file.submit.async.read.fallback",
    /// Bytes of zeros written to log files ahead of use.
    WalZeroedBytes = "ironstone.wal.zeroed.bytes",
    /// Logs that were begun with the file of an older log.
    WalRecycled = "ironstone.wal.recycled",
    /// Log writes that took longer than `wal_slow_io_ms`.
    WalSlowIo = "ironstone.wal.slow.io",
    /// Failed logs whose tail went to a new one.
    WalRelogged = "ironstone.wal.relogged",
    /// Groups that a full disk refused.
    WalNoSpace = "ironstone.wal.no.space",
    /// Microseconds that writers were paced before any trigger of a stall was met.
    WritePacedMicros = "ironstone.write.paced.micros",
    /// Single deletions under which a compaction found no value, or another deletion.
    CompactionSingleDelMismatch = "ironstone.compaction.single.del.mismatch",
}
}

named! {
/// What is measured: a distribution of values.
HistogramKind {
    DbGet = "rocksdb.db.get.micros",
    DbWrite = "rocksdb.db.write.micros",
    CompactionTime = "rocksdb.compaction.times.micros",
    CompactionCpuTime = "rocksdb.compaction.times.cpu_micros",
    SubcompactionSetupTime = "rocksdb.subcompaction.setup.times.micros",
    TableSyncMicros = "rocksdb.table.sync.micros",
    CompactionOutfileSyncMicros = "rocksdb.compaction.outfile.sync.micros",
    WalFileSyncMicros = "rocksdb.wal.file.sync.micros",
    ManifestFileSyncMicros = "rocksdb.manifest.file.sync.micros",
    TableOpenIoMicros = "rocksdb.table.open.io.micros",
    DbMultiget = "rocksdb.db.multiget.micros",
    ReadBlockCompactionMicros = "rocksdb.read.block.compaction.micros",
    ReadBlockGetMicros = "rocksdb.read.block.get.micros",
    WriteRawBlockMicros = "rocksdb.write.raw.block.micros",
    NumFilesInSingleCompaction = "rocksdb.numfiles.in.singlecompaction",
    DbSeek = "rocksdb.db.seek.micros",
    WriteStall = "rocksdb.db.write.stall",
    SstReadMicros = "rocksdb.sst.read.micros",
    FileReadFlushMicros = "rocksdb.file.read.flush.micros",
    FileReadCompactionMicros = "rocksdb.file.read.compaction.micros",
    FileReadDbOpenMicros = "rocksdb.file.read.db.open.micros",
    FileReadGetMicros = "rocksdb.file.read.get.micros",
    FileReadMultigetMicros = "rocksdb.file.read.multiget.micros",
    FileReadDbIteratorMicros = "rocksdb.file.read.db.iterator.micros",
    FileReadVerifyDbChecksumMicros = "rocksdb.file.read.verify.db.checksum.micros",
    FileReadVerifyFileChecksumsMicros = "rocksdb.file.read.verify.file.checksums.micros",
    SstWriteMicros = "rocksdb.sst.write.micros",
    FileWriteFlushMicros = "rocksdb.file.write.flush.micros",
    FileWriteCompactionMicros = "rocksdb.file.write.compaction.micros",
    FileWriteDbOpenMicros = "rocksdb.file.write.db.open.micros",
    NumSubcompactionsScheduled = "rocksdb.num.subcompactions.scheduled",
    BytesPerRead = "rocksdb.bytes.per.read",
    BytesPerWrite = "rocksdb.bytes.per.write",
    BytesPerMultiget = "rocksdb.bytes.per.multiget",
    CompressionTimesNanos = "rocksdb.compression.times.nanos",
    DecompressionTimesNanos = "rocksdb.decompression.times.nanos",
    ReadNumMergeOperands = "rocksdb.read.num.merge_operands",
    BlobDbKeySize = "rocksdb.blobdb.key.size",
    BlobDbValueSize = "rocksdb.blobdb.value.size",
    BlobDbWriteMicros = "rocksdb.blobdb.write.micros",
    BlobDbGetMicros = "rocksdb.blobdb.get.micros",
    BlobDbMultigetMicros = "rocksdb.blobdb.multiget.micros",
    BlobDbSeekMicros = "rocksdb.blobdb.seek.micros",
    BlobDbNextMicros = "rocksdb.blobdb.next.micros",
    BlobDbPrevMicros = "rocksdb.blobdb.prev.micros",
    BlobDbBlobFileWriteMicros = "rocksdb.blobdb.blob.file.write.micros",
    BlobDbBlobFileReadMicros = "rocksdb.blobdb.blob.file.read.micros",
    BlobDbBlobFileSyncMicros = "rocksdb.blobdb.blob.file.sync.micros",
    BlobDbCompressionMicros = "rocksdb.blobdb.compression.micros",
    BlobDbDecompressionMicros = "rocksdb.blobdb.decompression.micros",
    FlushTime = "rocksdb.db.flush.micros",
    SstBatchSize = "rocksdb.sst.batch.size",
    MultigetIoBatchSize = "rocksdb.multiget.io.batch.size",
    NumIndexAndFilterBlocksReadPerLevel = "rocksdb.num.index.and.filter.blocks.read.per.level",
    NumSstReadPerLevel = "rocksdb.num.sst.read.per.level",
    NumLevelReadPerMultiget = "rocksdb.num.level.read.per.multiget",
    ErrorHandlerAutoresumeRetryCount = "rocksdb.error.handler.autoresume.retry.count",
    AsyncReadBytes = "rocksdb.async.read.bytes",
    PollWaitMicros = "rocksdb.poll.wait.micros",
    CompactionPrefetchBytes = "rocksdb.compaction.prefetch.bytes",
    PrefetchedBytesDiscarded = "rocksdb.prefetched.bytes.discarded",
    AsyncPrefetchAbortMicros = "rocksdb.async.prefetch.abort.micros",
    TableOpenPrefetchTailReadBytes = "rocksdb.table.open.prefetch.tail.read.bytes",
    NumOpPerTransaction = "rocksdb.num.op.per.transaction",
    MultiscanOpPrepareIteratorsMicros = "rocksdb.multiscan.op.prepare.iterators.micros",
    MultiscanPrepareMicros = "rocksdb.multiscan.prepare.micros",
    MultiscanBlocksPerPrepare = "rocksdb.multiscan.blocks.per.prepare",
    IodispatcherAsyncReadObservedCompletionMicros = "rocksdb.iodispatcher.async.read.observed.completion.micros",
    IodispatcherAsyncReadPollWaitMicros = "rocksdb.iodispatcher.async.read.poll.wait.micros",
    IodispatcherAsyncReadPrefetchLeadMicros = "rocksdb.iodispatcher.async.read.prefetch.lead.micros",
    BlockKeyDistributionCv = "rocksdb.block.key.distribution.cv",
    IngestExternalFilePrepareMicros = "rocksdb.ingest.external.file.prepare.micros",
    IngestExternalFileRunTime = "rocksdb.ingest.external.file.run.micros",
    RateLimiterWaitMicrosRead = "rocksdb.rate.limiter.wait.micros.read",
    RateLimiterWaitMicrosWrite = "rocksdb.rate.limiter.wait.micros.write",
    FlushMemtableMemoryBytes = "rocksdb.flush.memtable.memory.bytes",
    FlushMemtableTotalDataSizeBytes = "rocksdb.flush.memtable.total.data.size.bytes",
    FlushWriteBufferFullMemtableMemoryBytes = "rocksdb.flush.write_buffer_full.memtable.memory.bytes",
    FlushWriteBufferManagerMemtableMemoryBytes = "rocksdb.flush.write_buffer_manager.memtable.memory.bytes",
    OpenAndCompactDbOpenMicros = "rocksdb.open.and.compact.db.open.micros",
}
}
