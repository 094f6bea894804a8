//! The flags that are about an engine: its options, caches and files. They are rows of the table in `table.rs`.

/// Calls a macro with the rows that it is given, and those of this file behind them.
macro_rules! and_engines {
    ($flags:ident! { $($rows:tt)* }) => { $flags! {
    $($rows)*
    "Memtables and writing" {
        /// Bytes of a memtable.
        write_buffer_size: i64 = 64 << 20, option Cf "write_buffer_size";
        /// Bytes of all memtables; 0: no limit.
        db_write_buffer_size: i64 = 0, option Db "db_write_buffer_size";
        /// Number of memtables, the active one included.
        max_write_buffer_number: i32 = 2, option Cf "max_write_buffer_number";
        /// Memtables that are merged in one flush.
        min_write_buffer_number_to_merge: i32 = 1, option Cf "min_write_buffer_number_to_merge";
        /// Bytes of flushed memtables that are kept for conflict checks.
        max_write_buffer_size_to_maintain: i64 = 0, option Cf "max_write_buffer_size_to_maintain";
        /// Bytes that a memtable takes at once; 0: from its size.
        arena_block_size: i64 = 0, option Cf "arena_block_size";
        /// How memtables hold their entries: skip_list or vector.
        memtablerep: String = "skip_list".to_owned(), option Cf "memtable_factory";
        /// Share of a memtable for a Bloom filter of prefixes or keys.
        memtable_bloom_size_ratio: f64 = 0.0, option Cf "memtable_prefix_bloom_size_ratio";
        /// That filter has whole keys.
        memtable_whole_key_filtering: bool = false, option Cf "memtable_whole_key_filtering";
        /// Let several threads insert into one memtable at once.
        allow_concurrent_memtable_write: bool = true, option Db "allow_concurrent_memtable_write";
        /// Begin the next write group while one is inserted into the memtables.
        enable_pipelined_write: bool = true, option Db "enable_pipelined_write";
        /// Give up the order of writes of different threads.
        unordered_write: bool = false, option Db "unordered_write";
        /// Let writes that have nothing for a memtable pass the others.
        two_write_queues: bool = false, option Db "two_write_queues";
        /// Merge at once into the memtable up to so many operands of a key; 0: never.
        max_successive_merges: i64 = 0, option Cf "max_successive_merges";
        /// The merge operator: put, uint64add, stringappend, max, sortlist …; empty: none.
        merge_operator: String = String::new(), option Cf "merge_operator";
        /// Parts of the cache of open tables, as a power of two.
        table_cache_numshardbits: i32 = 4, option Db "table_cache_numshardbits";
        /// Write the allocator's statistics into the LOG with the others.
        dump_malloc_stats: bool = true, option Db "dump_malloc_stats";
        /// Update values in place. Without it nothing is overwritten.
        inplace_update_support: bool = false, option Cf "inplace_update_support";
        /// Locks for that.
        inplace_update_num_locks: u64 = 10_000, option Cf "inplace_update_num_locks";
        /// Keys that a skip list looks at from the last one before it searches. librocksdb only.
        skip_list_lookahead: i32 = 0;
        /// Buckets of the memtables prefix_hash and hash_linkedlist. librocksdb only.
        hash_bucket_count: i64 = 1 << 20;
        /// Use huge pages for memtables.
        memtable_use_huge_page: bool = false;
        /// Filters of memtables have the bits of a key close together.
        bloom_locality: i32 = 0, option Cf "bloom_locality";
        /// MultiGet looks all its keys up in a memtable at once.
        memtable_batch_lookup_optimization: bool = false,
            option Cf "memtable_batch_lookup_optimization";
        /// Insert with a hint for each prefix of so many bytes; 0: without.
        memtable_insert_with_hint_prefix_size: i32 = 0;
        /// Entries that a cursor passes over in a memtable until it is flushed; 0: any number.
        memtable_op_scan_flush_trigger: u32 = 0, option Cf "memtable_op_scan_flush_trigger";
        /// Bytes of a checksum for each entry of a memtable: 0, 1, 2, 4 or 8.
        memtable_protection_bytes_per_key: u32 = 0, option Cf "memtable_protection_bytes_per_key";
        /// Seeks compare it.
        memtable_verify_per_key_checksum_on_seek: bool = false,
            option Cf "memtable_verify_per_key_checksum_on_seek";
        /// Reads of memtables check the order of the keys.
        paranoid_memory_checks: bool = false, option Cf "paranoid_memory_checks";
        /// Deletions in a row that reads turn into a range; 0: never.
        min_tombstones_for_range_conversion: u32 = 0,
            option Cf "min_tombstones_for_range_conversion";
        /// Read tables to keep within max_successive_merges.
        strict_max_successive_merges: bool = false, option Cf "strict_max_successive_merges";
        /// Rewrite memtables instead of flushing them if so much of them is out of date; 0: never.
        experimental_mempurge_threshold: f64 = 0.0, option Cf "experimental_mempurge_threshold";
        /// Charge memtables to the block cache. So it is too where db_write_buffer_size is set.
        cost_write_buffer_to_cache: bool = false;
        /// Writers that wait spin for a while.
        enable_write_thread_adaptive_yield: bool = true,
            option Db "enable_write_thread_adaptive_yield";
        /// Microseconds that they do.
        write_thread_max_yield_usec: u64 = 100, option Db "write_thread_max_yield_usec";
        /// Microseconds of a turn at which others want the processor.
        write_thread_slow_yield_usec: u64 = 3, option Db "write_thread_slow_yield_usec";
        /// Spin before a lock is waited for.
        use_adaptive_mutex: bool = false, option Db "use_adaptive_mutex";
    }
    "The log" {
        /// The directory of the log; empty: the database's.
        wal_dir: String = String::new(), option Db "wal_dir";
        /// Write the log's buffer only when asked to.
        manual_wal_flush: bool = false, option Db "manual_wal_flush";
        /// How the log is compressed: none or zstd.
        wal_compression: String = "none".to_owned();
        /// Bytes of a log file after which writing it to the device begins; 0 leaves it to the system.
        wal_bytes_per_sync: u64 = 0, option Db "wal_bytes_per_sync";
        /// Bytes of all logs after which memtables are flushed; 0: from the memtables.
        max_total_wal_size: u64 = 0, option Db "max_total_wal_size";
        /// Seconds for which archived logs are kept; 0: they are not.
        wal_ttl_seconds: u64 = 0, option Db "WAL_ttl_seconds";
        /// MiB of archived logs that are kept; 0: none, or all within wal_ttl_seconds.
        wal_size_limit_MB: u64 = 0, option Db "WAL_size_limit_MB";
        /// Record closed logs in the MANIFEST.
        track_and_verify_wals_in_manifest: bool = false,
            option Db "track_and_verify_wals_in_manifest";
        /// Do not flush when opening.
        avoid_flush_during_recovery: bool = false, option Db "avoid_flush_during_recovery";
        /// Do not flush when closing, where the log covers it.
        avoid_flush_during_shutdown: bool = false, option Db "avoid_flush_during_shutdown";
        /// Old log files that are kept to be overwritten.
        recycle_log_file_num: i64 = 0, option Db "recycle_log_file_num";
        /// Make the next log file before it is needed.
        async_wal_precreate: bool = false, option Db "async_wal_precreate";
        /// Bytes that recovery reads ahead in logs and the MANIFEST.
        log_readahead_size: i32 = 0, option Db "log_readahead_size";
        /// Logs know the log before them, and recovery compares.
        track_and_verify_wals: bool = false, option Db "track_and_verify_wals";
        /// Bytes of the MANIFEST at which a new one is begun.
        max_manifest_file_size: i64 = 1 << 30, option Db "max_manifest_file_size";
        /// How much larger than its content it may grow, in percent.
        max_manifest_space_amp_pct: i32 = 500, option Db "max_manifest_space_amp_pct";
        /// Read it again when the database is closed.
        verify_manifest_content_on_close: bool = false,
            option Db "verify_manifest_content_on_close";
        /// Write keys and values into error messages.
        allow_data_in_errors: bool = false, option Db "allow_data_in_errors";
    }
    "Caches and tables" {
        /// Bytes of the block cache.
        cache_size: i64 = 32 << 20;
        /// The kind of block cache: hyper_clock_cache, auto_hyper_clock_cache, fixed_hyper_clock_cache or
        /// lru_cache. Ironstone has a clock cache of its own.
        cache_type: String = "hyper_clock_cache".to_owned();
        /// Bytes of a cache of rows; 0: none. librocksdb only.
        row_cache_size: i64 = 0;
        /// Parts of the block cache, as a power of 2; -1: from its size. librocksdb only.
        cache_numshardbits: i32 = -1;
        /// Share of the block cache for indexes and filters. librocksdb only.
        cache_high_pri_pool_ratio: f64 = 0.0;
        /// Share of the block cache for data blocks before blob values. librocksdb only.
        cache_low_pri_pool_ratio: f64 = 0.0;
        /// Bytes of a data block before compression.
        block_size: i32 = 4096, option Table "block_size";
        /// Blocks do not cross pages. Needs compression_type=none.
        block_align: bool = false, option Table "block_align";
        /// Bytes that blocks do not cross; 0: any.
        super_block_alignment_size: u64 = 0, option Table "super_block_alignment_size";
        /// One of so many bytes may be lost by that.
        super_block_alignment_space_overhead_ratio: u64 = 128,
            option Table "super_block_alignment_space_overhead_ratio";
        /// Checksums of blocks: 0 none, 1 CRC32c, 2 XXH32, 3 XXH64, 4 XXH3.
        checksum_type: i32 = 4;
        /// Keys and values of a data block lie apart.
        separate_key_value_in_data_block: bool = false,
            option Table "separate_key_value_in_data_block";
        /// Bytes of a checksum for each entry of a block that was read: 0, 1, 2, 4 or 8.
        block_protection_bytes_per_key: u32 = 0, option Cf "block_protection_bytes_per_key";
        /// Read compressed blocks again when they are made, and compare.
        verify_compression: bool = false, option Table "verify_compression";
        /// Estimate read amplification with one bit for so many bytes; 0: do not.
        read_amp_bytes_per_bit: i32 = 0, option Table "read_amp_bytes_per_bit";
        /// Bytes that cursors read ahead first.
        initial_auto_readahead_size: u64 = 8 << 10, option Table "initial_auto_readahead_size";
        /// And at most.
        max_auto_readahead_size: u64 = 256 << 10, option Table "max_auto_readahead_size";
        /// After how many reads in their order.
        num_file_reads_for_auto_readahead: u64 = 2,
            option Table "num_file_reads_for_auto_readahead";
        /// Keys between two restart points of a block.
        block_restart_interval: i32 = 16, option Table "block_restart_interval";
        /// How index entries are shortened: 0: not, 1: between blocks, 2: the last one too.
        index_shortening_mode: i32 = 2;
        /// The same of an index block.
        index_block_restart_interval: i32 = 1, option Table "index_block_restart_interval";
        /// Version of the table format.
        format_version: i32 = 5, option Table "format_version";
        /// Keep indexes and filters in the block cache.
        cache_index_and_filter_blocks: bool = false, option Table "cache_index_and_filter_blocks";
        /// Those of level 0 stay there.
        pin_l0_filter_and_index_blocks_in_cache: bool = false,
            option Table "pin_l0_filter_and_index_blocks_in_cache";
        /// The top of partitioned ones stays there.
        pin_top_level_index_and_filter: bool = false,
            option Table "pin_top_level_index_and_filter";
        /// Split indexes and filters into parts.
        partition_index_and_filters: bool = false;
        /// Split indexes into parts.
        partition_index: bool = false;
        /// Split filters where their own size says, not where the index is split.
        decouple_partitioned_filters: bool = true, option Table "decouple_partitioned_filters";
        /// Indexes have the first key of each block.
        index_with_first_key: bool = false;
        /// Indexes have a hash table of prefixes. Needs a prefix_size.
        use_hash_search: bool = false;
        /// How indexes are searched: binary_search, interpolation_search or auto_search.
        index_block_search_type: String = "binary_search".to_owned();
        /// How evenly keys lie for an index that auto_search interpolates; -1: none does.
        uniform_cv_threshold: f64 = -1.0, option Table "uniform_cv_threshold";
        /// Bytes of a part.
        metadata_block_size: i64 = 4096, option Table "metadata_block_size";
        /// Compress indexes.
        enable_index_compression: bool = true, option Table "enable_index_compression";
        /// Put a hash index into data blocks.
        use_data_block_hash_index: bool = false;
        /// Entries for each bucket of it.
        data_block_hash_table_util_ratio: f64 = 0.75,
            option Table "data_block_hash_table_util_ratio";
        /// Put blocks of flushes into the cache: 0 none, 1 those of flushes.
        prepopulate_block_cache: i32 = 0;
        /// Bits a key in a Bloom filter; 0 or less: no filter.
        bloom_bits: i32 = -1;
        /// Ribbon filters instead of Bloom filters.
        use_ribbon_filter: bool = false;
        /// Filters have whole keys, beside prefixes.
        whole_key_filtering: bool = true, option Table "whole_key_filtering";
        /// Give up filters of the last level.
        optimize_filters_for_hits: bool = false, option Cf "optimize_filters_for_hits";
        /// Size filters so that memory is used well.
        optimize_filters_for_memory: bool = true, option Table "optimize_filters_for_memory";
        /// Number of open files; -1: all.
        open_files: i32 = -1, option Db "max_open_files";
        /// Threads that open files.
        file_opening_threads: i32 = 16, option Db "max_file_opening_threads";
        /// Do not look into tables for their statistics when opening.
        skip_stats_update_on_db_open: bool = false, option Db "skip_stats_update_on_db_open";
        /// Read files around the system's cache.
        use_direct_reads: bool = false, option Db "use_direct_reads";
        /// Write files of flushes and compactions around the system's cache.
        use_direct_io_for_flush_and_compaction: bool = false,
            option Db "use_direct_io_for_flush_and_compaction";
        /// Read the files of compactions around the system's cache.
        use_direct_io_for_compaction_reads: bool = false,
            option Db "use_direct_io_for_compaction_reads";
        /// Tell the system that tables are read at random.
        advise_random_on_open: bool = true, option Db "advise_random_on_open";
        /// Open the tables after the database.
        open_files_async: bool = false, option Db "open_files_async";
        /// Keep a checksum of each file in the MANIFEST: CRC32c.
        file_checksum: bool = false;
        /// How hard blocks of deleted files are driven out of the cache; 0: not.
        uncache_aggressiveness: u32 = 0, option Cf "uncache_aggressiveness";
        /// Map files into memory for reading.
        mmap_read: bool = false, option Db "allow_mmap_reads";
        /// Map files into memory for writing.
        mmap_write: bool = false, option Db "allow_mmap_writes";
        /// Bytes of a table file after which writing it to the device begins; 0 leaves it to the system.
        bytes_per_sync: u64 = 0, option Db "bytes_per_sync";
        /// Bytes that the writer of a table collects.
        writable_file_max_buffer_size: i64 = 1 << 20, option Db "writable_file_max_buffer_size";
        /// Keys are 8 bytes, in the order of the machine's numbers. Needs key_size=8.
        use_uint64_comparator: bool = false;
    }
    "Compression" {
        /// Compression: none, snappy, zlib, bzip2, lz4, lz4hc or zstd.
        compression_type: String = "snappy".to_owned();
        /// The first level that is compressed; -1: all.
        min_level_to_compress: i32 = -1;
        /// The level of the algorithm; 32767 is its default.
        compression_level: i32 = 32767;
        /// Bytes of a dictionary for each table; 0: none.
        compression_max_dict_bytes: i32 = 0;
        /// Bytes that zstd trains it with; 0: it is not trained.
        compression_zstd_max_train_bytes: i32 = 0;
        /// Threads that compress one table.
        compression_parallel_threads: i32 = 1;
        /// Bytes of a table that wait for the dictionary; 0: a table's size.
        compression_max_dict_buffer_bytes: u64 = 0;
        /// zstd trains dictionaries; without it, it takes samples.
        compression_use_zstd_dict_trainer: bool = true;
        /// Compress one block of so many also by other algorithms, and count the bytes; 0: none.
        sample_for_compression: i64 = 0, option Cf "sample_for_compression";
    }
    "Background work" {
        /// Number of background jobs.
        max_background_jobs: i32 = 2, option Db "max_background_jobs";
        /// Compactions among them; -1: from max_background_jobs.
        max_background_compactions: i32 = -1, option Db "max_background_compactions";
        /// Flushes among them; -1: from max_background_jobs.
        max_background_flushes: i32 = -1, option Db "max_background_flushes";
        /// Threads for flushes. Without effect: max_background_flushes and max_background_jobs decide.
        num_high_pri_threads: i32 = 0;
        /// Threads for compactions. Without effect, as the one before.
        num_low_pri_threads: i32 = 0;
        /// Threads for compactions into the last level; 0: those of others. librocksdb only.
        num_bottom_pri_threads: i32 = 0;
        /// Background threads give way to others at the disk. librocksdb only.
        enable_io_prio: bool = false;
        /// And at the processor. librocksdb only.
        enable_cpu_prio: bool = false;
        /// Parts that one compaction may be done in at the same time.
        subcompactions: i32 = 1, option Db "max_subcompactions";
        /// 0 levelled, 1 universal, 2 FIFO, 3 none.
        compaction_style: i32 = 0;
        /// Which file is compacted first: 0 kByCompensatedSize to 4 kRoundRobin.
        compaction_pri: i32 = 3;
        /// Bytes of a compaction; 0: from target_file_size_base.
        max_compaction_bytes: u64 = 0, option Cf "max_compaction_bytes";
        /// Files of level 0 that start a compaction.
        level0_file_num_compaction_trigger: i32 = 4,
            option Cf "level0_file_num_compaction_trigger";
        /// Files of level 0 that slow writes down.
        level0_slowdown_writes_trigger: i32 = 20, option Cf "level0_slowdown_writes_trigger";
        /// Files of level 0 that stop writes.
        level0_stop_writes_trigger: i32 = 36, option Cf "level0_stop_writes_trigger";
        /// Bytes that compactions have to write at which writes are slowed down.
        soft_pending_compaction_bytes_limit: u64 = 64 << 30,
            option Cf "soft_pending_compaction_bytes_limit";
        /// And stopped.
        hard_pending_compaction_bytes_limit: u64 = 128 << 30,
            option Cf "hard_pending_compaction_bytes_limit";
        /// Bytes a second of writes that are slowed down; 0: from the rate limiter.
        delayed_write_rate: u64 = 8 << 20, option Db "delayed_write_rate";
        /// Bytes of a file in level 1.
        target_file_size_base: i64 = 64 << 20, option Cf "target_file_size_base";
        /// How much larger files are on each level.
        target_file_size_multiplier: i32 = 1, option Cf "target_file_size_multiplier";
        /// Bytes of level 1.
        max_bytes_for_level_base: u64 = 256 << 20, option Cf "max_bytes_for_level_base";
        /// How much larger each level is than the one above.
        max_bytes_for_level_multiplier: f64 = 10.0, option Cf "max_bytes_for_level_multiplier";
        /// And how much more on each: num_levels numbers, separated by commas; empty: 1 on all.
        max_bytes_for_level_multiplier_additional: String = String::new();
        /// Size levels from the last one.
        level_compaction_dynamic_level_bytes: bool = false,
            option Cf "level_compaction_dynamic_level_bytes";
        /// Number of levels.
        num_levels: i32 = 7, option Cf "num_levels";
        /// Compact only when asked to.
        disable_auto_compactions: bool = false, option Cf "disable_auto_compactions";
        /// Seconds after which a file is compacted again.
        periodic_compaction_seconds: u64 = 0xffff_ffff_ffff_fffe,
            option Cf "periodic_compaction_seconds";
        /// Seconds after which a file goes down.
        ttl_seconds: u64 = 0xffff_ffff_ffff_fffe, option Cf "ttl";
        /// Universal: by how much a run may be larger than those before it, in percent; 0: the default.
        universal_size_ratio: i32 = 0;
        /// Universal: the fewest runs that are merged; 0: the default.
        universal_min_merge_width: i32 = 0;
        /// Universal: the most; 0: the default.
        universal_max_merge_width: i32 = 0;
        /// Universal: the space that old versions may take, in percent; 0: the default.
        universal_max_size_amplification_percent: i32 = 0;
        /// Universal: the share of the data that is compressed, in percent; -1: all.
        universal_compression_size_percent: i32 = -1;
        /// Universal: move files where nothing has to be merged.
        universal_allow_trivial_move: bool = false;
        /// Universal: merge a part of the last level at a time.
        universal_incremental: bool = false;
        /// Universal: what ends a merge: 0 runs of another size, 1 the size of all.
        universal_stop_style: i32 = 1;
        /// Universal: the most runs before one is merged; -1: the trigger, 0: from the sizes.
        universal_max_read_amp: i32 = -1;
        /// Universal: lock fewer files for a compaction.
        universal_reduce_file_locking: bool = true;
        /// FIFO: MiB of all tables at which the oldest go.
        fifo_compaction_max_table_files_size_mb: u64 = 0;
        /// FIFO: MiB of tables and blob files at which they do; 0: the size of the tables decides.
        fifo_compaction_max_data_files_size_mb: u64 = 0;
        /// FIFO: merge small tables.
        fifo_compaction_allow_compaction: bool = true;
        /// FIFO: merge tables by the share of keys in them.
        fifo_compaction_use_kv_ratio_compaction: bool = false;
        /// FIFO: seconds after which a table is warm, not hot; 0: never.
        fifo_age_for_warm: u64 = 0;
        /// Without effect, as in RocksDB's db_bench: ttl_seconds decides.
        fifo_compaction_ttl: u64 = 0;
        /// Without effect, as in RocksDB's db_bench.
        disable_seek_compaction: i32 = 0;
        /// Compactions keep each entry by a filter of db_bench's.
        use_keep_filter: bool = false;
        /// Reads of a table for each byte of it at which it is compacted; 0: never.
        read_triggered_compaction_threshold: f64 = 0.0,
            option Cf "read_triggered_compaction_threshold";
        /// Seconds from one look for compactions that are due to the next.
        max_compaction_trigger_wakeup_seconds: u64 = 43_200,
            option Db "max_compaction_trigger_wakeup_seconds";
        /// Seconds for which data stays out of the last level; 0: none.
        preclude_last_level_data_seconds: i64 = 0, option Cf "preclude_last_level_data_seconds";
        /// Seconds for which the times of writes are kept; 0: none.
        preserve_internal_time_seconds: i64 = 0, option Cf "preserve_internal_time_seconds";
        /// Bytes that compactions read ahead.
        compaction_readahead_size: u64 = 2 << 20, option Db "compaction_readahead_size";
        /// Without effect, as in RocksDB's db_bench.
        delete_obsolete_files_period_micros: u64 = 0;
        /// Measure the reads and writes of background jobs.
        report_bg_io_stats: bool = false, option Cf "report_bg_io_stats";
        /// The older name of report_bg_io_stats.
        compaction_measure_io_stats: bool = false;
        /// Bytes a second that background jobs write; 0: no limit.
        rate_limiter_bytes_per_sec: u64 = 0;
        /// Microseconds between two refills of that budget.
        rate_limiter_refill_period_us: i64 = 100_000;
        /// Adapt it to the load.
        rate_limiter_auto_tuned: bool = false;
        /// Limit what they read instead.
        rate_limit_bg_reads: bool = false;
        /// Seconds between two dumps of rocksdb.stats to the LOG.
        stats_dump_period_sec: u64 = 600, option Db "stats_dump_period_sec";
        /// Seconds between two entries of the history of statistics.
        stats_persist_period_sec: u64 = 600, option Db "stats_persist_period_sec";
        /// Keep that history in the database.
        persist_stats_to_disk: bool = false, option Db "persist_stats_to_disk";
        /// Bytes of that history in memory.
        stats_history_buffer_size: u64 = 1 << 20, option Db "stats_history_buffer_size";
        /// Sync with fsync instead of fdatasync.
        use_fsync: bool = false, option Db "use_fsync";
        /// Check what is read and written more closely.
        paranoid_checks: bool = true, option Db "paranoid_checks";
        /// Check the order of the files of each level.
        force_consistency_checks: bool = true, option Cf "force_consistency_checks";
    }
    "Blob files" {
        /// Keep large values in files of their own.
        enable_blob_files: bool = false, option Cf "enable_blob_files";
        /// Bytes of a value from which on.
        min_blob_size: u64 = 0, option Cf "min_blob_size";
        /// Bytes of a blob file.
        blob_file_size: u64 = 256 << 20, option Cf "blob_file_size";
        /// Their compression.
        blob_compression_type: String = "none".to_owned();
        /// Move values out of old blob files.
        enable_blob_garbage_collection: bool = false, option Cf "enable_blob_garbage_collection";
        /// Which files are old.
        blob_garbage_collection_age_cutoff: f64 = 0.25,
            option Cf "blob_garbage_collection_age_cutoff";
        /// The share of garbage that forces it.
        blob_garbage_collection_force_threshold: f64 = 1.0,
            option Cf "blob_garbage_collection_force_threshold";
        /// The level from which on values are separated.
        blob_file_starting_level: i32 = 0, option Cf "blob_file_starting_level";
        /// Bytes that compactions read ahead in them.
        blob_compaction_readahead_size: u64 = 0, option Cf "blob_compaction_readahead_size";
        /// Write them when values are put.
        enable_blob_direct_write: bool = false, option Cf "enable_blob_direct_write";
        /// Files that are written so at once.
        blob_direct_write_partitions: u64 = 1, option Cf "blob_direct_write_partitions";
        /// Put values of flushes into the cache: 0 none, 1 those of flushes.
        prepopulate_blob_cache: i32 = 0;
    }
    } };
}
pub(super) use and_engines;
