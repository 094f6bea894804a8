//! The flags for engines: options, caches and files. They are rows of the table in `table.rs`.

/// Calls a macro with the given rows, followed by the rows of this file.
macro_rules! and_engines {
    ($flags:ident! { $($rows:tt)* }) => { $flags! {
    $($rows)*
    "Memtables and writing" {
        /// Bytes of a memtable.
        write_buffer_size: i64 = 64 << 20, option Cf "write_buffer_size";
        /// Bytes of all memtables together; 0: no limit.
        db_write_buffer_size: i64 = 0, option Db "db_write_buffer_size";
        /// Number of memtables, including the active one.
        max_write_buffer_number: i32 = 2, option Cf "max_write_buffer_number";
        /// Number of memtables that one flush merges.
        min_write_buffer_number_to_merge: i32 = 1, option Cf "min_write_buffer_number_to_merge";
        /// Bytes of flushed memtables that are kept for conflict checks.
        max_write_buffer_size_to_maintain: i64 = 0, option Cf "max_write_buffer_size_to_maintain";
        /// Bytes that a memtable allocates at a time; 0: derived from its size.
        arena_block_size: i64 = 0, option Cf "arena_block_size";
        /// The data structure of memtables: skip_list or vector.
        memtablerep: String = "skip_list".to_owned(), option Cf "memtable_factory";
        /// Share of a memtable's memory for a Bloom filter of prefixes or keys.
        memtable_bloom_size_ratio: f64 = 0.0, option Cf "memtable_prefix_bloom_size_ratio";
        /// The Bloom filter of memtables contains whole keys.
        memtable_whole_key_filtering: bool = false, option Cf "memtable_whole_key_filtering";
        /// Let several threads insert into one memtable at once.
        allow_concurrent_memtable_write: bool = true, option Db "allow_concurrent_memtable_write";
        /// Begin the next write group while a group is inserted into the memtables.
        enable_pipelined_write: bool = true, option Db "enable_pipelined_write";
        /// Do not keep the order of writes of different threads.
        unordered_write: bool = false, option Db "unordered_write";
        /// Let writes that insert nothing into a memtable pass other writes.
        two_write_queues: bool = false, option Db "two_write_queues";
        /// Number of operands of a key that are merged when a merge is inserted into the memtable; 0: never.
        max_successive_merges: i64 = 0, option Cf "max_successive_merges";
        /// The merge operator: put, uint64add, stringappend, max, sortlist …; empty: none.
        merge_operator: String = String::new(), option Cf "merge_operator";
        /// Number of shards of the table cache, as a power of two.
        table_cache_numshardbits: i32 = 4, option Db "table_cache_numshardbits";
        /// Write the allocator's statistics to the LOG with the other statistics.
        dump_malloc_stats: bool = true, option Db "dump_malloc_stats";
        /// Update values in place. If false, nothing in a memtable is overwritten.
        inplace_update_support: bool = false, option Cf "inplace_update_support";
        /// Number of locks for in-place updates.
        inplace_update_num_locks: u64 = 10_000, option Cf "inplace_update_num_locks";
        /// Number of keys that a skip list checks after the last one before it searches from the top.
        /// librocksdb only.
        skip_list_lookahead: i32 = 0;
        /// Number of buckets of the memtables prefix_hash and hash_linkedlist. librocksdb only.
        hash_bucket_count: i64 = 1 << 20;
        /// Use huge pages for memtables.
        memtable_use_huge_page: bool = false;
        /// Memtable filters keep the bits of a key close together.
        bloom_locality: i32 = 0, option Cf "bloom_locality";
        /// MultiGet looks up all its keys in a memtable at once.
        memtable_batch_lookup_optimization: bool = false,
            option Cf "memtable_batch_lookup_optimization";
        /// Insert with a hint for each prefix of this many bytes; 0: no hints.
        memtable_insert_with_hint_prefix_size: i32 = 0;
        /// Number of entries that an iterator may skip in a memtable before the memtable is flushed; 0: no
        /// limit.
        memtable_op_scan_flush_trigger: u32 = 0, option Cf "memtable_op_scan_flush_trigger";
        /// Bytes of the checksum of each memtable entry: 0, 1, 2, 4 or 8.
        memtable_protection_bytes_per_key: u32 = 0, option Cf "memtable_protection_bytes_per_key";
        /// Seeks verify the checksums of memtable entries.
        memtable_verify_per_key_checksum_on_seek: bool = false,
            option Cf "memtable_verify_per_key_checksum_on_seek";
        /// Reads of memtables verify the order of the keys.
        paranoid_memory_checks: bool = false, option Cf "paranoid_memory_checks";
        /// Number of consecutive deletions that a read converts to a range deletion; 0: never.
        min_tombstones_for_range_conversion: u32 = 0,
            option Cf "min_tombstones_for_range_conversion";
        /// Read tables if that is necessary to keep to max_successive_merges.
        strict_max_successive_merges: bool = false, option Cf "strict_max_successive_merges";
        /// Rewrite a memtable instead of flushing it if this share of it is obsolete; 0: never.
        experimental_mempurge_threshold: f64 = 0.0, option Cf "experimental_mempurge_threshold";
        /// Charge memtables to the block cache. Setting db_write_buffer_size does this too.
        cost_write_buffer_to_cache: bool = false;
        /// Waiting writers spin before they block.
        enable_write_thread_adaptive_yield: bool = true,
            option Db "enable_write_thread_adaptive_yield";
        /// Microseconds that a waiting writer spins at most.
        write_thread_max_yield_usec: u64 = 100, option Db "write_thread_max_yield_usec";
        /// A yield that takes this many microseconds shows that other threads want the processor.
        write_thread_slow_yield_usec: u64 = 3, option Db "write_thread_slow_yield_usec";
        /// Spin before blocking on a mutex.
        use_adaptive_mutex: bool = false, option Db "use_adaptive_mutex";
    }
    "The log" {
        /// The WAL directory; empty: the database's directory.
        wal_dir: String = String::new(), option Db "wal_dir";
        /// Write the WAL buffer to the file only when the application asks for it.
        manual_wal_flush: bool = false, option Db "manual_wal_flush";
        /// Compression of the WAL: none or zstd.
        wal_compression: String = "none".to_owned();
        /// Bytes of a WAL file after which writeback starts; 0: when the system decides.
        wal_bytes_per_sync: u64 = 0, option Db "wal_bytes_per_sync";
        /// Bytes of all WAL files at which memtables are flushed; 0: derived from the memtable sizes.
        max_total_wal_size: u64 = 0, option Db "max_total_wal_size";
        /// Seconds that archived WAL files are kept; 0: they are not archived.
        wal_ttl_seconds: u64 = 0, option Db "WAL_ttl_seconds";
        /// MiB of archived WAL files to keep; 0: none, or all within wal_ttl_seconds.
        wal_size_limit_MB: u64 = 0, option Db "WAL_size_limit_MB";
        /// Record closed WAL files in the MANIFEST.
        track_and_verify_wals_in_manifest: bool = false,
            option Db "track_and_verify_wals_in_manifest";
        /// Do not flush memtables when the database is opened.
        avoid_flush_during_recovery: bool = false, option Db "avoid_flush_during_recovery";
        /// Do not flush memtables at close if the WAL has their data.
        avoid_flush_during_shutdown: bool = false, option Db "avoid_flush_during_shutdown";
        /// Number of old WAL files that are kept to be overwritten.
        recycle_log_file_num: i64 = 0, option Db "recycle_log_file_num";
        /// Create the next WAL file before it is needed.
        async_wal_precreate: bool = false, option Db "async_wal_precreate";
        /// Bytes that recovery reads ahead in WAL files and the MANIFEST.
        log_readahead_size: i32 = 0, option Db "log_readahead_size";
        /// Each WAL file records its predecessor, and recovery verifies it.
        track_and_verify_wals: bool = false, option Db "track_and_verify_wals";
        /// Bytes of the MANIFEST at which a new one is created.
        max_manifest_file_size: i64 = 1 << 30, option Db "max_manifest_file_size";
        /// How much larger than its content the MANIFEST may become, in percent.
        max_manifest_space_amp_pct: i32 = 500, option Db "max_manifest_space_amp_pct";
        /// Read the MANIFEST again when the database is closed.
        verify_manifest_content_on_close: bool = false,
            option Db "verify_manifest_content_on_close";
        /// Include keys and values in error messages.
        allow_data_in_errors: bool = false, option Db "allow_data_in_errors";
    }
    "Caches and tables" {
        /// Bytes of the block cache.
        cache_size: i64 = 32 << 20;
        /// The kind of block cache: hyper_clock_cache, auto_hyper_clock_cache, fixed_hyper_clock_cache or
        /// lru_cache. Ironstone has a clock cache of its own.
        cache_type: String = "hyper_clock_cache".to_owned();
        /// Add a second tier to the block cache, of compressed blocks. Ironstone only.
        use_compressed_secondary_cache: bool = false;
        /// Bytes of the second tier, beside cache_size. Ironstone only.
        compressed_secondary_cache_size: i64 = 32 << 20;
        /// Compression of the second tier: any name that compression_type takes. Ironstone only.
        compressed_secondary_cache_compression_type: String = "lz4".to_owned();
        /// Level of that compression; 32767: its default. Ironstone only.
        compressed_secondary_cache_compression_level: i32 = 32767;
        /// Bytes of the row cache; 0: none.
        row_cache_size: i64 = 0;
        /// Number of shards of the block cache, as a power of two; -1: derived from its size. librocksdb only.
        cache_numshardbits: i32 = -1;
        /// Share of the block cache for indexes and filters. librocksdb only.
        cache_high_pri_pool_ratio: f64 = 0.0;
        /// Share of the block cache in which data blocks have priority over blob values. librocksdb only.
        cache_low_pri_pool_ratio: f64 = 0.0;
        /// Bytes of a data block before compression.
        block_size: i32 = 4096, option Table "block_size";
        /// Align blocks so that they do not cross pages. Needs compression_type=none.
        block_align: bool = false, option Table "block_align";
        /// Align blocks so that they do not cross multiples of this many bytes; 0: no alignment.
        super_block_alignment_size: u64 = 0, option Table "super_block_alignment_size";
        /// Alignment may waste one of this many bytes.
        super_block_alignment_space_overhead_ratio: u64 = 128,
            option Table "super_block_alignment_space_overhead_ratio";
        /// Checksum of blocks: 0 none, 1 CRC32c, 2 XXH32, 3 XXH64, 4 XXH3.
        checksum_type: i32 = 4;
        /// Store the keys of a data block separately from the values.
        separate_key_value_in_data_block: bool = false,
            option Table "separate_key_value_in_data_block";
        /// Bytes of the checksum of each entry of a block in memory: 0, 1, 2, 4 or 8.
        block_protection_bytes_per_key: u32 = 0, option Cf "block_protection_bytes_per_key";
        /// Decompress each block after its compression, and compare.
        verify_compression: bool = false, option Table "verify_compression";
        /// Estimate read amplification with one bit for this many bytes; 0: do not.
        read_amp_bytes_per_bit: i32 = 0, option Table "read_amp_bytes_per_bit";
        /// Bytes that the automatic read-ahead of iterators starts with.
        initial_auto_readahead_size: u64 = 8 << 10, option Table "initial_auto_readahead_size";
        /// Bytes that the automatic read-ahead grows to.
        max_auto_readahead_size: u64 = 256 << 10, option Table "max_auto_readahead_size";
        /// Number of sequential reads after which the automatic read-ahead starts.
        num_file_reads_for_auto_readahead: u64 = 2,
            option Table "num_file_reads_for_auto_readahead";
        /// Keys between two restart points of a block.
        block_restart_interval: i32 = 16, option Table "block_restart_interval";
        /// How index keys are shortened: 0: not, 1: between blocks, 2: the last key too.
        index_shortening_mode: i32 = 2;
        /// Keys between two restart points of an index block.
        index_block_restart_interval: i32 = 1, option Table "index_block_restart_interval";
        /// Version of the table format.
        format_version: i32 = 5, option Table "format_version";
        /// Keep indexes and filters in the block cache.
        cache_index_and_filter_blocks: bool = false, option Table "cache_index_and_filter_blocks";
        /// Pin the indexes and filters of level 0 in the block cache.
        pin_l0_filter_and_index_blocks_in_cache: bool = false,
            option Table "pin_l0_filter_and_index_blocks_in_cache";
        /// Pin the top level of partitioned indexes and filters in the block cache.
        pin_top_level_index_and_filter: bool = false,
            option Table "pin_top_level_index_and_filter";
        /// Partition indexes and filters.
        partition_index_and_filters: bool = false;
        /// Partition indexes.
        partition_index: bool = false;
        /// Partition filters by their own size, independently of the index.
        decouple_partitioned_filters: bool = true, option Table "decouple_partitioned_filters";
        /// The index stores the first key of each block.
        index_with_first_key: bool = false;
        /// The index has a hash table of prefixes. Needs a prefix_size.
        use_hash_search: bool = false;
        /// Search in index blocks: binary_search, interpolation_search or auto_search.
        index_block_search_type: String = "binary_search".to_owned();
        /// How evenly the keys must be distributed for auto_search to interpolate; -1: it never does.
        uniform_cv_threshold: f64 = -1.0, option Table "uniform_cv_threshold";
        /// Bytes of a partition of an index or filter.
        metadata_block_size: i64 = 4096, option Table "metadata_block_size";
        /// Compress indexes.
        enable_index_compression: bool = true, option Table "enable_index_compression";
        /// Data blocks have a hash index.
        use_data_block_hash_index: bool = false;
        /// Entries for each bucket of the hash index of a data block.
        data_block_hash_table_util_ratio: f64 = 0.75,
            option Table "data_block_hash_table_util_ratio";
        /// Insert new blocks into the block cache: 0 none, 1 blocks of flushes.
        prepopulate_block_cache: i32 = 0;
        /// Bits per key of a Bloom filter; 0 or less: no filter.
        bloom_bits: i32 = -1;
        /// Use Ribbon filters instead of Bloom filters.
        use_ribbon_filter: bool = false;
        /// Filters contain whole keys in addition to prefixes.
        whole_key_filtering: bool = true, option Table "whole_key_filtering";
        /// Write no filters for the last level.
        optimize_filters_for_hits: bool = false, option Cf "optimize_filters_for_hits";
        /// Choose filter sizes that waste little memory of the allocator.
        optimize_filters_for_memory: bool = true, option Table "optimize_filters_for_memory";
        /// Number of open files; -1: no limit.
        open_files: i32 = -1, option Db "max_open_files";
        /// Threads that open files when the database is opened.
        file_opening_threads: i32 = 16, option Db "max_file_opening_threads";
        /// Do not read the statistics of tables when the database is opened.
        skip_stats_update_on_db_open: bool = false, option Db "skip_stats_update_on_db_open";
        /// Read files with direct I/O.
        use_direct_reads: bool = false, option Db "use_direct_reads";
        /// Flushes and compactions write files with direct I/O.
        use_direct_io_for_flush_and_compaction: bool = false,
            option Db "use_direct_io_for_flush_and_compaction";
        /// Compactions read files with direct I/O.
        use_direct_io_for_compaction_reads: bool = false,
            option Db "use_direct_io_for_compaction_reads";
        /// Tell the operating system that tables are read at random.
        advise_random_on_open: bool = true, option Db "advise_random_on_open";
        /// Open table files in the background after the database is open.
        open_files_async: bool = false, option Db "open_files_async";
        /// Store a CRC32c checksum of each file in the MANIFEST.
        file_checksum: bool = false;
        /// How aggressively blocks of deleted files are removed from the block cache; 0: not at all.
        uncache_aggressiveness: u32 = 0, option Cf "uncache_aggressiveness";
        /// Map files into memory for reading.
        mmap_read: bool = false, option Db "allow_mmap_reads";
        /// Map files into memory for writing.
        mmap_write: bool = false, option Db "allow_mmap_writes";
        /// Bytes of a table file after which writeback starts; 0: when the system decides.
        bytes_per_sync: u64 = 0, option Db "bytes_per_sync";
        /// Bytes of the write buffer of a table file.
        writable_file_max_buffer_size: i64 = 1 << 20, option Db "writable_file_max_buffer_size";
        /// Keys are 8 bytes, ordered as native integers. Needs key_size=8.
        use_uint64_comparator: bool = false;
    }
    "Compression" {
        /// Compression: none, snappy, zlib, bzip2, lz4, lz4hc or zstd.
        compression_type: String = "snappy".to_owned();
        /// The first level that is compressed; -1: all.
        min_level_to_compress: i32 = -1;
        /// The compression level of the algorithm; 32767: the algorithm's default.
        compression_level: i32 = 32767;
        /// Bytes of the compression dictionary of each table; 0: none.
        compression_max_dict_bytes: i32 = 0;
        /// Bytes of samples for training the dictionary with zstd; 0: no training.
        compression_zstd_max_train_bytes: i32 = 0;
        /// Threads that compress one table.
        compression_parallel_threads: i32 = 1;
        /// Bytes of a table that are buffered until the dictionary is made; 0: the size of a table.
        compression_max_dict_buffer_bytes: u64 = 0;
        /// zstd trains dictionaries; if false, it makes them from samples without training.
        compression_use_zstd_dict_trainer: bool = true;
        /// Compress one of this many blocks with other algorithms too, and count the bytes; 0: none.
        sample_for_compression: i64 = 0, option Cf "sample_for_compression";
    }
    "Background work" {
        /// Number of background jobs.
        max_background_jobs: i32 = 2, option Db "max_background_jobs";
        /// Number of background compactions; -1: from max_background_jobs.
        max_background_compactions: i32 = -1, option Db "max_background_compactions";
        /// Number of background flushes; -1: from max_background_jobs.
        max_background_flushes: i32 = -1, option Db "max_background_flushes";
        /// Threads for flushes. Without effect: max_background_flushes and max_background_jobs decide.
        num_high_pri_threads: i32 = 0;
        /// Threads for compactions. Without effect: max_background_compactions and max_background_jobs decide.
        num_low_pri_threads: i32 = 0;
        /// Threads for compactions into the last level; 0: they use the threads of other compactions.
        /// librocksdb only.
        num_bottom_pri_threads: i32 = 0;
        /// Background threads have a lower I/O priority. librocksdb only.
        enable_io_prio: bool = false;
        /// Background threads have a lower CPU priority. librocksdb only.
        enable_cpu_prio: bool = false;
        /// Number of parallel subcompactions of one compaction.
        subcompactions: i32 = 1, option Db "max_subcompactions";
        /// 0 leveled, 1 universal, 2 FIFO, 3 none.
        compaction_style: i32 = 0;
        /// Which file is compacted first: 0 kByCompensatedSize to 4 kRoundRobin.
        compaction_pri: i32 = 3;
        /// Bytes of a compaction at most; 0: from target_file_size_base.
        max_compaction_bytes: u64 = 0, option Cf "max_compaction_bytes";
        /// Number of level-0 files that starts a compaction.
        level0_file_num_compaction_trigger: i32 = 4,
            option Cf "level0_file_num_compaction_trigger";
        /// Number of level-0 files that slows down writes.
        level0_slowdown_writes_trigger: i32 = 20, option Cf "level0_slowdown_writes_trigger";
        /// Number of level-0 files that stops writes.
        level0_stop_writes_trigger: i32 = 36, option Cf "level0_stop_writes_trigger";
        /// Bytes of pending compaction that slow down writes.
        soft_pending_compaction_bytes_limit: u64 = 64 << 30,
            option Cf "soft_pending_compaction_bytes_limit";
        /// Bytes of pending compaction that stop writes.
        hard_pending_compaction_bytes_limit: u64 = 128 << 30,
            option Cf "hard_pending_compaction_bytes_limit";
        /// Bytes a second to which writes are slowed down; 0: from the rate limiter.
        delayed_write_rate: u64 = 8 << 20, option Db "delayed_write_rate";
        /// Target size of a file on level 1, in bytes.
        target_file_size_base: i64 = 64 << 20, option Cf "target_file_size_base";
        /// Factor of the target file size from each level to the next.
        target_file_size_multiplier: i32 = 1, option Cf "target_file_size_multiplier";
        /// Target size of level 1, in bytes.
        max_bytes_for_level_base: u64 = 256 << 20, option Cf "max_bytes_for_level_base";
        /// Factor of the target size from each level to the next.
        max_bytes_for_level_multiplier: f64 = 10.0, option Cf "max_bytes_for_level_multiplier";
        /// Additional factors: num_levels numbers, separated by commas; empty: 1 for all levels.
        max_bytes_for_level_multiplier_additional: String = String::new();
        /// Derive the target sizes of levels from the size of the last level.
        level_compaction_dynamic_level_bytes: bool = false,
            option Cf "level_compaction_dynamic_level_bytes";
        /// Number of levels.
        num_levels: i32 = 7, option Cf "num_levels";
        /// Compact only when the application asks for it.
        disable_auto_compactions: bool = false, option Cf "disable_auto_compactions";
        /// Seconds after which a file is compacted again.
        periodic_compaction_seconds: u64 = 0xffff_ffff_ffff_fffe,
            option Cf "periodic_compaction_seconds";
        /// Seconds after which a file is compacted to a lower level.
        ttl_seconds: u64 = 0xffff_ffff_ffff_fffe, option Cf "ttl";
        /// Universal: by how much a run may be larger than those before it, in percent; 0: the default.
        universal_size_ratio: i32 = 0;
        /// Universal: the minimum number of runs that are merged; 0: the default.
        universal_min_merge_width: i32 = 0;
        /// Universal: the maximum number of runs that are merged; 0: the default.
        universal_max_merge_width: i32 = 0;
        /// Universal: the space that obsolete versions may take, in percent; 0: the default.
        universal_max_size_amplification_percent: i32 = 0;
        /// Universal: the share of the data that is compressed, in percent; -1: all.
        universal_compression_size_percent: i32 = -1;
        /// Universal: move files that need no merging.
        universal_allow_trivial_move: bool = false;
        /// Universal: merge only a part of the last level at a time.
        universal_incremental: bool = false;
        /// Universal: the condition that ends the choice of runs: 0 similar size, 1 total size.
        universal_stop_style: i32 = 1;
        /// Universal: the maximum number of runs; -1: the compaction trigger, 0: derived from the sizes.
        universal_max_read_amp: i32 = -1;
        /// Universal: lock fewer files during a compaction.
        universal_reduce_file_locking: bool = true;
        /// FIFO: MiB of all tables at which the oldest tables are deleted.
        fifo_compaction_max_table_files_size_mb: u64 = 0;
        /// FIFO: MiB of tables and blob files at which the oldest are deleted; 0: the size of the tables
        /// decides.
        fifo_compaction_max_data_files_size_mb: u64 = 0;
        /// FIFO: merge small tables.
        fifo_compaction_allow_compaction: bool = true;
        /// FIFO: merge tables by the ratio of keys to values.
        fifo_compaction_use_kv_ratio_compaction: bool = false;
        /// FIFO: seconds after which a table changes from hot to warm; 0: never.
        fifo_age_for_warm: u64 = 0;
        /// Without effect, as in RocksDB's db_bench: ttl_seconds decides.
        fifo_compaction_ttl: u64 = 0;
        /// Without effect, as in RocksDB's db_bench.
        disable_seek_compaction: i32 = 0;
        /// Compactions run a compaction filter of db_bench that keeps each entry.
        use_keep_filter: bool = false;
        /// Number of reads per byte of a table at which the table is compacted; 0: never.
        read_triggered_compaction_threshold: f64 = 0.0,
            option Cf "read_triggered_compaction_threshold";
        /// Seconds between two checks for due compactions.
        max_compaction_trigger_wakeup_seconds: u64 = 43_200,
            option Db "max_compaction_trigger_wakeup_seconds";
        /// Seconds during which new data is kept out of the last level; 0: none.
        preclude_last_level_data_seconds: i64 = 0, option Cf "preclude_last_level_data_seconds";
        /// Seconds for which write times are kept; 0: none.
        preserve_internal_time_seconds: i64 = 0, option Cf "preserve_internal_time_seconds";
        /// Bytes that compactions read ahead.
        compaction_readahead_size: u64 = 2 << 20, option Db "compaction_readahead_size";
        /// Without effect, as in RocksDB's db_bench.
        delete_obsolete_files_period_micros: u64 = 0;
        /// Measure the reads and writes of background jobs.
        report_bg_io_stats: bool = false, option Cf "report_bg_io_stats";
        /// The older name of report_bg_io_stats.
        compaction_measure_io_stats: bool = false;
        /// Bytes a second that background jobs may write; 0: no limit.
        rate_limiter_bytes_per_sec: u64 = 0;
        /// Microseconds between two refills of the rate limiter.
        rate_limiter_refill_period_us: i64 = 100_000;
        /// Adapt the rate limit to the load.
        rate_limiter_auto_tuned: bool = false;
        /// Limit the reads of background jobs instead of their writes.
        rate_limit_bg_reads: bool = false;
        /// Seconds between two dumps of rocksdb.stats to the LOG.
        stats_dump_period_sec: u64 = 600, option Db "stats_dump_period_sec";
        /// Seconds between two entries of the statistics history.
        stats_persist_period_sec: u64 = 600, option Db "stats_persist_period_sec";
        /// Store the statistics history in the database.
        persist_stats_to_disk: bool = false, option Db "persist_stats_to_disk";
        /// Bytes of the statistics history in memory.
        stats_history_buffer_size: u64 = 1 << 20, option Db "stats_history_buffer_size";
        /// Sync with fsync instead of fdatasync.
        use_fsync: bool = false, option Db "use_fsync";
        /// Check data more strictly when it is read and written.
        paranoid_checks: bool = true, option Db "paranoid_checks";
        /// Check the order of the files of each level.
        force_consistency_checks: bool = true, option Cf "force_consistency_checks";
    }
    "Blob files" {
        /// Keep large values in files of their own.
        enable_blob_files: bool = false, option Cf "enable_blob_files";
        /// The minimum size of a value that goes to a blob file, in bytes.
        min_blob_size: u64 = 0, option Cf "min_blob_size";
        /// Target size of a blob file, in bytes.
        blob_file_size: u64 = 256 << 20, option Cf "blob_file_size";
        /// Compression of blob files.
        blob_compression_type: String = "none".to_owned();
        /// Move values out of old blob files.
        enable_blob_garbage_collection: bool = false, option Cf "enable_blob_garbage_collection";
        /// The share of blob files that garbage collection covers, oldest first.
        blob_garbage_collection_age_cutoff: f64 = 0.25,
            option Cf "blob_garbage_collection_age_cutoff";
        /// The share of garbage that forces garbage collection.
        blob_garbage_collection_force_threshold: f64 = 1.0,
            option Cf "blob_garbage_collection_force_threshold";
        /// The first level whose values are separated into blob files.
        blob_file_starting_level: i32 = 0, option Cf "blob_file_starting_level";
        /// Bytes that compactions read ahead in blob files.
        blob_compaction_readahead_size: u64 = 0, option Cf "blob_compaction_readahead_size";
        /// Write values to blob files when they are put.
        enable_blob_direct_write: bool = false, option Cf "enable_blob_direct_write";
        /// Number of blob files that are written directly at the same time.
        blob_direct_write_partitions: u64 = 1, option Cf "blob_direct_write_partitions";
        /// Insert new values into the cache: 0 none, 1 values of flushes.
        prepopulate_blob_cache: i32 = 0;
    }
    } };
}
pub(super) use and_engines;
