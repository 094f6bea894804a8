//! The table of all flags. Here are those of the benchmarks; behind them come those of the engines.

use super::engines::and_engines;
use super::{Flag, Place, Value};

and_engines! { flags! {
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
        /// Open the database for reading only. It must exist, as with use_existing_db.
        readonly: bool = false;
        /// Use the keys that the database has: num is how many there are. Needs use_existing_db.
        use_existing_keys: bool = false;
        /// Databases, in the directories 0, 1 … of db: each operation picks one. 0 and 1: db itself.
        num_multi_db: i32 = 0;
        /// Open the database as a secondary instance: another process may be writing it.
        use_secondary_db: bool = false;
        /// The directory of its LOG; empty: dbbench_secondary in the directory for tests.
        secondary_path: String = String::new();
        /// Seconds from one catching up with the primary to the next; 0: never.
        secondary_update_interval: i32 = 5;
        /// An OPTIONS file: its options, those of the default family, are used instead of the flags'.
        options_file: String = String::new();
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
        /// Print how db_bench was built, and run nothing.
        build_info: bool = false;
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
        /// Of 100 values, how many are the same.
        same_value_percentage: i32 = 0;
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
        /// Number of column families. The number of a key picks its family, where random keys are put,
        /// got and merged; other benchmarks use the default one.
        num_column_families: i32 = 1;
        /// Families that are used at a time; 0: all. Fill benchmarks go on to the next ones when these
        /// have their share of the puts.
        num_hot_column_families: i32 = 0;
        /// Of 100 operations, how many each family gets: numbers separated by commas; empty: all alike.
        column_family_distribution: String = String::new();
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
        /// Threads that open the tables. librocksdb only.
        ingest_external_file_file_opening_threads: i32 = 1;
        /// Blocks that ingestion reads go into the block cache. librocksdb only.
        ingest_external_file_fill_cache: bool = true;
        /// Ingestion reads indexes and filters of the last level at once. librocksdb only.
        ingest_external_file_prefetch_lmax_index_and_filter_blocks: bool = true;
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
        /// How many keys seekrandom deletes behind those.
        seek_nexts_to_delete: i32 = 0;
        /// Seek prefixes that no key has. Needs a prefix_size above 8.
        seek_missing_prefix: bool = false;
        /// Cursors show a snapshot that is taken when a thread starts.
        explicit_snapshot: bool = false;
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
        /// Read ahead no further than a cursor's bound, where the engine can.
        auto_readahead_size: bool = false;
        /// MultiGet reads several levels at once, where the engine can.
        optimize_multiget_for_io: bool = true;
        /// Cursors at a snapshot change over to newer files.
        auto_refresh_iterator_with_snapshot: bool = false;
        /// The rate limiter limits the reads of operations too, if it limits reads.
        rate_limit_user_ops: bool = false;
        /// It limits what puts write to the log. librocksdb only.
        rate_limit_auto_wal_flush: bool = false;
        /// Bytes of a checksum for each entry of a batch: 0 or 8. librocksdb only.
        write_batch_protection_bytes_per_key: u32 = 0;
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
        /// The limit of writes is a * sin(b*x + c) + d bytes a second after x seconds.
        sine_write_rate: bool = false;
        /// Milliseconds from one change of it to the next.
        sine_write_rate_interval_milliseconds: u64 = 10_000;
        /// See sine_write_rate.
        sine_a: f64 = 1.0;
        /// See sine_write_rate.
        sine_b: f64 = 1.0;
        /// See sine_write_rate.
        sine_c: f64 = 0.0;
        /// See sine_write_rate.
        sine_d: f64 = 1.0;
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
        /// Without effect, as in RocksDB's db_bench.
        mix_accesses: i64 = -1;
        /// The operations of a second follow the curve of sine_write_rate.
        sine_mix_rate: bool = false;
        /// Milliseconds from one change of them to the next.
        sine_mix_rate_interval_milliseconds: u64 = 10_000;
        /// How much of sine_a they stray at random: 0 to 1.
        sine_mix_rate_noise: f64 = 0.0;
    }
    "What is shown" {
        /// Show the distribution of the operations' times.
        histogram: bool = false;
        /// Write how many nanoseconds each operation took to this file, a line each, one thread's after the
        /// other's, of the last benchmark. Exact, where a histogram estimates inside of its buckets.
        times_file: String = String::new();
        /// Show operations that take so many microseconds, with histogram and without stats_interval.
        slow_usecs: u64 = 1_000_000;
        /// Where a benchmark is repeated, show the confidence interval after each run instead of the mean.
        confidence_interval_only: bool = false;
        /// After each so many operations say `paused: PID` and wait for a line on standard input, so that
        /// another program can measure in between; counted in no operation. Needs one thread; 0: do not.
        pause_every: u64 = 0;
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
        /// Which counters, instead of statistics: BasicStatistics.
        statistics_string: String = String::new();
        /// What they count: 0 nothing, 1 events, 2 sizes too, 3 most times, 4 and 5 more of them.
        stats_level: i32 = 3;
        /// Show what each thread's operations cost: 1 nothing, 2 counts, 3 and more times.
        perf_level: i32 = 1;
        /// Show a line each so many operations; 0: show progress.
        stats_interval: i64 = 0;
        /// Show a line each so many seconds.
        stats_interval_seconds: i64 = 0;
        /// Show rocksdb.stats with each line of stats_interval.
        stats_per_interval: i32 = 0;
        /// Show the properties of each level's tables with it.
        show_table_properties: bool = false;
        /// Show how many reads, writes and syncs of files there were. Ironstone only.
        report_file_operations: bool = false;
        /// Show the memory of the process at the end.
        print_malloc_stats: bool = false;
        /// Messages go to standard error instead of the LOG. librocksdb only.
        use_stderr_info_logger: bool = false;
        /// Show how far a benchmark is.
        progress_reports: bool = true;
    }
} }
