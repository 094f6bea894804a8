//! The table of all flags.

use super::{Flag, Place, Value};

flags! {
    "What to run" {
        /// Benchmarks in their order, separated by commas. name[X3] runs one three times and tells mean
        /// and median; name[W1-X3] runs it once before, to warm up.
        benchmarks: String = "fillseq,fillrandom,overwrite,readrandom,readseq".to_owned();
        /// The engine: ironstone, librocksdb (the one that cargo xtask peers fetched, else the
        /// system's), librocksdb:PATH, or null, which does nothing: the driver's own cost.
        engine: String = "ironstone".to_owned();
        /// The database's directory. Empty: dbbench in the directory for tests.
        db: String = String::new();
        /// Use the database that is there; without it, its files are deleted first.
        use_existing_db: bool = false;
        /// Number of keys in the database.
        num: i64 = 1_000_000;
        /// Number of reads of each thread; -1: as many as num.
        reads: i64 = -1;
        /// Number of writes of each thread; -1: as many as num.
        writes: i64 = -1;
        /// Number of deletions of each thread; -1: as many as num.
        deletes: i64 = -1;
        /// Number of different keys of mergerandom and readrandommergerandom; -1: as many as num.
        merge_keys: i64 = -1;
        /// Number of different keys of randomwithverify and randomreplacekeys.
        numdistinct: i64 = 1000;
        /// Number of different keys of the writer of readwhilewriting and the like; 0: as many as num.
        bgwriter_num: i64 = 0;
        /// Seconds that random reads and writes run, whatever their number; 0: no limit.
        duration: i32 = 0;
        /// Operations between two looks at the clock where duration is a limit.
        ops_between_duration_checks: i32 = 1000;
        /// Number of threads.
        threads: i32 = 1;
        /// Seed of the random numbers; 0: from the clock. A seed gives every engine the same keys.
        seed: i64 = 0;
    }
    "Keys, values and operations" {
        /// Bytes of a key.
        key_size: i32 = 16;
        /// Bytes of a value.
        value_size: i32 = 100;
        /// How long values are: fixed, uniform or normal (between value_size_min and value_size_max).
        value_size_distribution_type: String = "fixed".to_owned();
        /// Bytes of the shortest value of a distribution.
        value_size_min: i32 = 100;
        /// Bytes of the longest value of a distribution.
        value_size_max: i32 = 102_400;
        /// Bytes at the start of a key that many keys share; 0: none.
        prefix_size: i32 = 0;
        /// Keys of each prefix; 0: one.
        keys_per_prefix: i64 = 0;
        /// Values are made so that they compress to this fraction of their size.
        compression_ratio: f64 = 0.5;
        /// How much hotter some keys are that random reads ask for: the exponent of e over the keys; 0: all
        /// alike.
        read_random_exp_range: f64 = 0.0;
        /// Keys in a batch, and of one MultiGet.
        batch_size: i64 = 1;
        /// The distance of the keys of one MultiGet; 0: random ones.
        multiread_stride: i64 = 0;
        /// Without effect: multireadrandom always asks for all keys in one call.
        multiread_batched: bool = false;
        /// Make each write durable before the next.
        sync: bool = false;
        /// Number of column families; more than 1 for the benchmark requests only.
        num_column_families: i32 = 1;
        /// Do not write the log.
        disable_wal: bool = false;
        /// Make the log durable (FlushWAL with sync) after each so many puts of a thread; 0: never.
        flush_wal_every: i64 = 0;
        /// The database that verify compares with.
        truth_db: String = String::new();
        /// Tables that ingestexternalfile ingests at once.
        ingest_external_file_batch_size: i32 = 10;
        /// How often it does.
        ingest_external_file_num_batches: i32 = 1;
        /// How likely it is that filluniquerandom writes a key again instead of a new one.
        overwrite_probability: f64 = 0.0;
        /// It is one of so many that were new last.
        overwrite_window_size: u64 = 1;
        /// fillanddeleteuniquerandom writes sets of entries: so many of a set are deleted when it is
        /// complete. 0: no sets.
        disposable_entries_batch_size: u64 = 0;
        /// Bytes of their values.
        disposable_entries_value_size: i32 = 64;
        /// Microseconds after which a set is completed.
        disposable_entries_delete_delay: u64 = 0;
        /// How many entries are put then, before those are deleted.
        persistent_entries_batch_size: u64 = 0;
        /// Bytes of their values.
        persistent_entries_value_size: i32 = 64;
        /// multiscanrandom reads its ranges by MultiScan, which neither engine offers: must be false.
        use_multiscan: bool = true;
        /// Compare the checksums of blocks read.
        verify_checksum: bool = true;
        /// How many keys seekrandom reads after each seek.
        seek_nexts: i32 = 0;
        /// seekrandom reads backwards.
        reverse_iterator: bool = false;
        /// seekrandom looks no further than so many keys; 0: no bound.
        max_scan_distance: i64 = 0;
        /// Cursors show what is written after they were made; seekrandom keeps one.
        use_tailing_iterator: bool = false;
        /// Seeks look at all files, whatever their prefixes.
        total_order_seek: bool = false;
        /// Cursors end where the prefix of the key that was sought does.
        prefix_same_as_start: bool = false;
        /// Seeks use filters for prefixes where the bounds allow it.
        auto_prefix_mode: bool = false;
        /// Bytes that cursors read ahead; 0 adapts.
        readahead_size: i32 = 0;
        /// Read several blocks at once where the engine can.
        async_io: bool = false;
        /// Keep the size of the read-ahead from file to file, where the engine can.
        adaptive_readahead: bool = false;
        /// Of 100 operations of readrandomwriterandom and randomwithverify, how many read.
        readwritepercent: i32 = 90;
        /// Of 100 operations of readrandommergerandom, how many merge.
        mergereadpercent: i32 = 70;
        /// Of 100 operations of randomwithverify, how many delete.
        deletepercent: i32 = 2;
        /// randomreplacekeys deletes with SingleDelete.
        use_single_deletes: bool = true;
        /// How far randomreplacekeys spreads around the middle key: the standard deviation.
        stddev: f64 = 2000.0;
        /// Number of different keys of timeseries.
        key_id_range: i32 = 100_000;
        /// What timeseries does with old entries: none or delete.
        expire_style: String = "none".to_owned();
        /// How many time steps timeseries keeps entries for.
        time_range: u64 = 100_000;
        /// Threads of timeseries that delete.
        num_deletion_threads: i32 = 1;
        /// After how many writes range deletions begin.
        writes_before_delete_range: i64 = 0;
        /// Writes between two range deletions; 0: none.
        writes_per_range_tombstone: i64 = 0;
        /// Keys that a range deletion covers.
        range_tombstone_width: i64 = 100;
        /// The most range deletions.
        max_num_range_tombstones: i64 = 0;
        /// Delete the keys of each range one by one.
        expand_range_tombstones: bool = false;
        /// Bytes that all writing threads together write in a second; 0: no limit.
        benchmark_write_rate_limit: u64 = 0;
        /// Keys that all reading threads together read in a second; 0: no limit.
        benchmark_read_rate_limit: u64 = 0;
        /// The writer of readwhilewriting and the like goes on until all its writes are done.
        finish_after_writes: bool = false;
        /// Where backup writes to, and restore reads from.
        backup_dir: String = String::new();
        /// Where restore restores to.
        restore_dir: String = String::new();
        /// Bytes a second that backup copies; 0: no limit.
        backup_rate_limit: u64 = 0;
        /// Bytes a second that restore copies; 0: no limit.
        restore_rate_limit: u64 = 0;
    }
    "The mix of mixgraph (Cao et al., FAST 2020)" {
        /// Share of gets.
        mix_get_ratio: f64 = 1.0;
        /// Share of puts.
        mix_put_ratio: f64 = 0.0;
        /// Share of scans.
        mix_seek_ratio: f64 = 0.0;
        /// The longest scan, in keys.
        mix_max_scan_len: i64 = 10_000;
        /// The longest value, in bytes.
        mix_max_value_size: i64 = 1024;
        /// Key ranges: how hot each is, a * e^(b*x) + c * e^(d*x) for range x.
        keyrange_dist_a: f64 = 0.0;
        /// See keyrange_dist_a.
        keyrange_dist_b: f64 = 0.0;
        /// See keyrange_dist_a.
        keyrange_dist_c: f64 = 0.0;
        /// See keyrange_dist_a.
        keyrange_dist_d: f64 = 0.0;
        /// Number of key ranges.
        keyrange_num: i64 = 1;
        /// Keys: how hot each is, a * x^b; 0: all alike.
        key_dist_a: f64 = 0.0;
        /// See key_dist_a.
        key_dist_b: f64 = 0.0;
        /// Sizes of values: location of a generalized Pareto distribution.
        value_theta: f64 = 0.0;
        /// Its shape.
        value_k: f64 = 0.2615;
        /// Its scale.
        value_sigma: f64 = 25.45;
        /// Lengths of scans: location of a generalized Pareto distribution.
        iter_theta: f64 = 0.0;
        /// Its shape.
        iter_k: f64 = 2.517;
        /// Its scale.
        iter_sigma: f64 = 14.236;
    }
    "What is shown" {
        /// Show the distribution of the operations' times.
        histogram: bool = false;
        /// Where a benchmark is repeated, show the confidence interval after each run instead of the mean.
        confidence_interval_only: bool = false;
        /// Write the rate of each so many seconds to report_file; 0: do not.
        report_interval_seconds: i64 = 0;
        /// The file of report_interval_seconds.
        report_file: String = "report.csv".to_owned();
        /// Show the memory, the bytes written and the CPU time of the process at the end.
        process_stats: bool = false;
        /// Show how long opening the database took.
        report_open_timing: bool = false;
        /// Show the engine's counters at the end.
        statistics: bool = false;
        /// Show what each thread's operations cost: 1 nothing, 2 counts, 3 and more times.
        perf_level: i32 = 1;
        /// Show a line each so many operations; 0: show progress.
        stats_interval: i64 = 0;
        /// Show a line each so many seconds.
        stats_interval_seconds: i64 = 0;
        /// Show rocksdb.stats with each line of stats_interval.
        stats_per_interval: i32 = 0;
        /// Show how far a benchmark is.
        progress_reports: bool = true;
    }
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
        /// How logs are written: auto, direct or buffered. Ironstone only, as the next two.
        wal_io_mode: String = "auto".to_owned(), option Db "wal_io_mode";
        /// What becomes of the last sector of a log: rewrite, atomic or pad.
        wal_tail_policy: String = "rewrite".to_owned(), option Db "wal_tail_policy";
        /// Log writes that may be on their way at once; more than 1 needs wal_tail_policy=pad.
        wal_pipeline_depth: i32 = 1, option Db "wal_pipeline_depth";
    }
    "Caches and tables" {
        /// Bytes of the block cache.
        cache_size: i64 = 32 << 20;
        /// Parts of the block cache, as a power of 2; -1: from its size. librocksdb only.
        cache_numshardbits: i32 = -1;
        /// Share of the block cache for indexes and filters. librocksdb only.
        cache_high_pri_pool_ratio: f64 = 0.0;
        /// Share of the block cache for data blocks before blob values. librocksdb only.
        cache_low_pri_pool_ratio: f64 = 0.0;
        /// Bytes of a data block before compression.
        block_size: i32 = 4096, option Table "block_size";
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
        /// Map files into memory for reading.
        mmap_read: bool = false, option Db "allow_mmap_reads";
        /// Map files into memory for writing.
        mmap_write: bool = false, option Db "allow_mmap_writes";
        /// Bytes of a table file after which writing it to the device begins; 0 leaves it to the system.
        bytes_per_sync: u64 = 0, option Db "bytes_per_sync";
        /// Bytes that the writer of a table collects.
        writable_file_max_buffer_size: i64 = 1 << 20, option Db "writable_file_max_buffer_size";
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
    }
    "Background work" {
        /// Number of background jobs.
        max_background_jobs: i32 = 2, option Db "max_background_jobs";
        /// Compactions among them; -1: from max_background_jobs.
        max_background_compactions: i32 = -1, option Db "max_background_compactions";
        /// Flushes among them; -1: from max_background_jobs.
        max_background_flushes: i32 = -1, option Db "max_background_flushes";
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
    }
}
