//! The table of all flags: first the flags for benchmarks, in this file, then the flags for
//! engines.

use super::engines::and_engines;
use super::{Flag, Place, Value};

and_engines! { flags! {
    "What to run" {
        /// Benchmarks to run in this order, separated by commas. name[X3] runs a benchmark three times and
        /// prints the mean and the median; name[W1-X3] also runs it once before, as a warm-up.
        benchmarks: String = "fillseq,fillrandom,overwrite,readrandom,readseq".to_owned();
        /// The engine: ironstone; librocksdb (the library that cargo xtask peers fetched, otherwise the
        /// system's); librocksdb:PATH; or null, which does nothing and so measures the driver's own cost.
        engine: String = "ironstone".to_owned();
        /// The database's directory. Empty: dbbench in the directory for tests.
        db: String = String::new();
        /// Use the existing database. If false, its files are deleted first.
        use_existing_db: bool = false;
        /// Open the database read-only. It must exist, as with use_existing_db.
        readonly: bool = false;
        /// Use the keys that the database has; num is their number. Needs use_existing_db.
        use_existing_keys: bool = false;
        /// Number of databases, in the directories 0, 1 … of db; each operation picks one. 0 and 1: one
        /// database in db itself.
        num_multi_db: i32 = 0;
        /// Open the database as a secondary instance; another process may write it.
        use_secondary_db: bool = false;
        /// The directory of the secondary instance's LOG; empty: dbbench_secondary in the directory for tests.
        secondary_path: String = String::new();
        /// Seconds between two updates of the secondary instance from the primary; 0: never.
        secondary_update_interval: i32 = 5;
        /// An OPTIONS file. Its options, those of the default family, replace the flags.
        options_file: String = String::new();
        /// Number of keys in the database.
        num: i64 = 1_000_000;
        /// Number of reads of each thread; -1: as many as num.
        reads: i64 = -1;
        /// Number of writes of each thread; -1: as many as num.
        writes: i64 = -1;
        /// Number of deletions of each thread; -1: as many as num.
        deletes: i64 = -1;
        /// Number of distinct keys of mergerandom and readrandommergerandom; -1: as many as num.
        merge_keys: i64 = -1;
        /// Number of distinct keys of randomwithverify and randomreplacekeys.
        numdistinct: i64 = 1000;
        /// Number of distinct keys of the writer of readwhilewriting and similar benchmarks; 0: as many as num.
        bgwriter_num: i64 = 0;
        /// Seconds that random reads and writes run, independent of their number; 0: no limit.
        duration: i32 = 0;
        /// Number of operations between two checks of duration.
        ops_between_duration_checks: i32 = 1000;
        /// Number of threads.
        threads: i32 = 1;
        /// Seed of the random numbers; 0: from the clock. With the same seed, every engine gets the same keys.
        seed: i64 = 0;
        /// Print how db_bench was built, and run no benchmark.
        build_info: bool = false;
    }
    "Keys, values and operations" {
        /// Bytes of a key.
        key_size: i32 = 16;
        /// Bytes of a value.
        value_size: i32 = 100;
        /// Distribution of value sizes: fixed, uniform or normal (between value_size_min and value_size_max).
        value_size_distribution_type: String = "fixed".to_owned();
        /// The minimum value size of a distribution, in bytes.
        value_size_min: i32 = 100;
        /// The maximum value size of a distribution, in bytes.
        value_size_max: i32 = 102_400;
        /// Size of the key prefix that several keys share, in bytes; 0: none.
        prefix_size: i32 = 0;
        /// Number of keys with the same prefix; 0: one.
        keys_per_prefix: i64 = 0;
        /// Values are generated so that they compress to this fraction of their size.
        compression_ratio: f64 = 0.5;
        /// Percentage of values that are the same.
        same_value_percentage: i32 = 0;
        /// Skew of the keys of random reads: the exponent of e over the range of keys; 0: all keys are equally
        /// likely.
        read_random_exp_range: f64 = 0.0;
        /// Number of keys in a batch, and in one MultiGet.
        batch_size: i64 = 1;
        /// Distance between the keys of one MultiGet; 0: random keys.
        multiread_stride: i64 = 0;
        /// Without effect: multireadrandom always looks up all keys in one call.
        multiread_batched: bool = false;
        /// Gets do not copy values: the engine keeps them in memory until they were read.
        pinned_gets: bool = false;
        /// multireadrandom looks up the keys of a batch with this many asynchronous gets at a time; 0: with one
        /// MultiGet.
        async_gets: i64 = 0;
        /// Make each write durable before the next one.
        sync: bool = false;
        /// Number of column families. Benchmarks with random puts, gets and merges choose the family by the
        /// number of the key; other benchmarks use only the default family.
        num_column_families: i32 = 1;
        /// Number of families in use at a time; 0: all. Fill benchmarks continue with the next families when
        /// these have received their share of the puts.
        num_hot_column_families: i32 = 0;
        /// Percentage of operations for each family: numbers separated by commas; empty: all families are
        /// equally likely.
        column_family_distribution: String = String::new();
        /// Do not write the WAL.
        disable_wal: bool = false;
        /// Each thread makes the WAL durable (FlushWAL with sync) after this many puts; 0: never.
        flush_wal_every: i64 = 0;
        /// Each thread takes a snapshot after this many puts and keeps it until all puts are done; 0: never.
        writes_per_snapshot: i64 = 0;
        /// Each thread makes an iterator after this many puts and keeps it until all puts are done; 0: never.
        writes_per_iterator: i64 = 0;
        /// The database that verify compares with.
        truth_db: String = String::new();
        /// Number of tables that ingestexternalfile ingests at once.
        ingest_external_file_batch_size: i32 = 10;
        /// Number of batches that ingestexternalfile ingests.
        ingest_external_file_num_batches: i32 = 1;
        /// Number of threads that open the ingested tables. librocksdb only.
        ingest_external_file_file_opening_threads: i32 = 1;
        /// Insert the blocks that ingestion reads into the block cache. librocksdb only.
        ingest_external_file_fill_cache: bool = true;
        /// Ingestion prefetches the indexes and filters of tables of the last level. librocksdb only.
        ingest_external_file_prefetch_lmax_index_and_filter_blocks: bool = true;
        /// Probability that filluniquerandom overwrites a key instead of writing a new one.
        overwrite_probability: f64 = 0.0;
        /// The overwritten key is one of this many newest keys.
        overwrite_window_size: u64 = 1;
        /// fillanddeleteuniquerandom writes sets of entries; when a set is complete, this many entries of it
        /// are deleted. 0: no sets.
        disposable_entries_batch_size: u64 = 0;
        /// Value size of the deleted entries, in bytes.
        disposable_entries_value_size: i32 = 64;
        /// Microseconds before the entries of a set are deleted.
        disposable_entries_delete_delay: u64 = 0;
        /// Number of entries that are put before the entries of a set are deleted.
        persistent_entries_batch_size: u64 = 0;
        /// Value size of the persistent entries, in bytes.
        persistent_entries_value_size: i32 = 64;
        /// multiscan and multiscanrandom read their ranges with one call instead of one after the other;
        /// must be false with librocksdb.
        use_multiscan: bool = true;
        /// Number of ranges of multiscan.
        multiscan_size: u64 = 10;
        /// Number of keys between two ranges of multiscan.
        multiscan_stride: u64 = 100;
        /// Verify the checksums of blocks that are read.
        verify_checksum: bool = true;
        /// Number of keys that seekrandom reads after each seek, and of a range of multiscan (0: 50).
        seek_nexts: i32 = 0;
        /// Number of keys that seekrandom deletes after the keys that it reads.
        seek_nexts_to_delete: i32 = 0;
        /// Seek prefixes that no key has. Needs a prefix_size above 8.
        seek_missing_prefix: bool = false;
        /// Iterators use a snapshot that each thread takes at its start.
        explicit_snapshot: bool = false;
        /// seekrandom reads backwards.
        reverse_iterator: bool = false;
        /// seekrandom sets an iterator bound at this many keys after the seek; 0: no bound.
        max_scan_distance: i64 = 0;
        /// Use tailing iterators, which show later writes; seekrandom keeps one iterator.
        use_tailing_iterator: bool = false;
        /// Seeks consider all files, regardless of prefixes.
        total_order_seek: bool = false;
        /// Iterators end at the end of the prefix that was sought.
        prefix_same_as_start: bool = false;
        /// Seeks use prefix filters where the bounds allow it.
        auto_prefix_mode: bool = false;
        /// Bytes that iterators read ahead; 0: automatic.
        readahead_size: i32 = 0;
        /// Read several blocks at once if the engine supports it.
        async_io: bool = false;
        /// Keep the read-ahead size from file to file if the engine supports it.
        adaptive_readahead: bool = false;
        /// Read ahead no further than an iterator's bound if the engine supports it.
        auto_readahead_size: bool = false;
        /// MultiGet reads several levels at once if the engine supports it.
        optimize_multiget_for_io: bool = true;
        /// Iterators with a snapshot switch to newer files.
        auto_refresh_iterator_with_snapshot: bool = false;
        /// The rate limiter also limits reads of user operations, if it limits reads.
        rate_limit_user_ops: bool = false;
        /// The rate limiter also limits WAL writes of puts. librocksdb only.
        rate_limit_auto_wal_flush: bool = false;
        /// Bytes of the checksum of each entry of a write batch: 0 or 8. librocksdb only.
        write_batch_protection_bytes_per_key: u32 = 0;
        /// Percentage of reads in readrandomwriterandom and randomwithverify.
        readwritepercent: i32 = 90;
        /// Percentage of merges in readrandommergerandom.
        mergereadpercent: i32 = 70;
        /// Percentage of deletions in randomwithverify.
        deletepercent: i32 = 2;
        /// randomreplacekeys deletes with SingleDelete.
        use_single_deletes: bool = true;
        /// Standard deviation of the distance from the middle key in randomreplacekeys.
        stddev: f64 = 2000.0;
        /// Number of distinct keys of timeseries.
        key_id_range: i32 = 100_000;
        /// How timeseries expires old entries: none or delete.
        expire_style: String = "none".to_owned();
        /// Number of time steps that timeseries keeps entries for.
        time_range: u64 = 100_000;
        /// Number of threads of timeseries that delete.
        num_deletion_threads: i32 = 1;
        /// Number of writes before the first range deletion.
        writes_before_delete_range: i64 = 0;
        /// Number of writes between two range deletions; 0: no range deletions.
        writes_per_range_tombstone: i64 = 0;
        /// Number of keys that a range deletion covers.
        range_tombstone_width: i64 = 100;
        /// Maximum number of range deletions.
        max_num_range_tombstones: i64 = 0;
        /// Delete the keys of each range one by one instead.
        expand_range_tombstones: bool = false;
        /// Bytes a second that all writing threads together may write; 0: no limit.
        benchmark_write_rate_limit: u64 = 0;
        /// Keys a second that all reading threads together may read; 0: no limit.
        benchmark_read_rate_limit: u64 = 0;
        /// Limit writes to a * sin(b*x + c) + d bytes a second after x seconds.
        sine_write_rate: bool = false;
        /// Milliseconds between two changes of this write limit.
        sine_write_rate_interval_milliseconds: u64 = 10_000;
        /// See sine_write_rate.
        sine_a: f64 = 1.0;
        /// See sine_write_rate.
        sine_b: f64 = 1.0;
        /// See sine_write_rate.
        sine_c: f64 = 0.0;
        /// See sine_write_rate.
        sine_d: f64 = 1.0;
        /// The writer of readwhilewriting and similar benchmarks continues until all its writes are done.
        finish_after_writes: bool = false;
        /// The directory that backup writes to and restore reads from.
        backup_dir: String = String::new();
        /// The directory that restore restores to.
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
        /// Maximum length of a scan, in keys.
        mix_max_scan_len: i64 = 10_000;
        /// Maximum size of a value, in bytes.
        mix_max_value_size: i64 = 1024;
        /// Popularity of key ranges: a * e^(b*x) + c * e^(d*x) for range x.
        keyrange_dist_a: f64 = 0.0;
        /// See keyrange_dist_a.
        keyrange_dist_b: f64 = 0.0;
        /// See keyrange_dist_a.
        keyrange_dist_c: f64 = 0.0;
        /// See keyrange_dist_a.
        keyrange_dist_d: f64 = 0.0;
        /// Number of key ranges.
        keyrange_num: i64 = 1;
        /// Popularity of keys: a * x^b; 0: all keys are equally likely.
        key_dist_a: f64 = 0.0;
        /// See key_dist_a.
        key_dist_b: f64 = 0.0;
        /// Value sizes: location of a generalized Pareto distribution.
        value_theta: f64 = 0.0;
        /// Value sizes: shape of the distribution.
        value_k: f64 = 0.2615;
        /// Value sizes: scale of the distribution.
        value_sigma: f64 = 25.45;
        /// Scan lengths: location of a generalized Pareto distribution.
        iter_theta: f64 = 0.0;
        /// Scan lengths: shape of the distribution.
        iter_k: f64 = 2.517;
        /// Scan lengths: scale of the distribution.
        iter_sigma: f64 = 14.236;
        /// Without effect, as in RocksDB's db_bench.
        mix_accesses: i64 = -1;
        /// The operations per second follow the curve of sine_write_rate.
        sine_mix_rate: bool = false;
        /// Milliseconds between two changes of this operation rate.
        sine_mix_rate_interval_milliseconds: u64 = 10_000;
        /// Random deviation of the operation rate, as a share of sine_a: 0 to 1.
        sine_mix_rate_noise: f64 = 0.0;
    }
    "What is shown" {
        /// Show a histogram of the operation times.
        histogram: bool = false;
        /// Write the time of each operation of the last benchmark to this file, in nanoseconds, one per line,
        /// thread by thread. These times are exact; a histogram estimates within its buckets.
        times_file: String = String::new();
        /// Show operations that take at least this many microseconds, with histogram and without
        /// stats_interval.
        slow_usecs: u64 = 1_000_000;
        /// For a repeated benchmark, show the confidence interval after each run instead of the mean.
        confidence_interval_only: bool = false;
        /// Each time this many operations are done, print `paused: PID` and wait for a line on standard input,
        /// so that another program can measure meanwhile. The wait counts in no operation. Needs one thread; 0:
        /// do not pause.
        pause_every: u64 = 0;
        /// Write the rate of each interval of this many seconds to report_file; 0: do not.
        report_interval_seconds: i64 = 0;
        /// The file for report_interval_seconds.
        report_file: String = "report.csv".to_owned();
        /// Show the process's memory, bytes written and CPU time at the end.
        process_stats: bool = false;
        /// Show how long opening the database took.
        report_open_timing: bool = false;
        /// Show the engine's counters at the end.
        statistics: bool = false;
        /// The set of counters to show, instead of statistics: BasicStatistics.
        statistics_string: String = String::new();
        /// What the statistics measure: 0 nothing, 1 events, 2 also sizes, 3 also most times, 4 and 5 more
        /// times.
        stats_level: i32 = 3;
        /// Show the perf counters of each thread's operations: 1 nothing, 2 counts, 3 and more also times.
        perf_level: i32 = 1;
        /// Show a line each time this many operations are done; 0: show progress.
        stats_interval: i64 = 0;
        /// Show a line each time this many seconds have passed.
        stats_interval_seconds: i64 = 0;
        /// Show rocksdb.stats with each line of stats_interval.
        stats_per_interval: i32 = 0;
        /// Show the properties of each level's tables with each line of stats_interval.
        show_table_properties: bool = false;
        /// Show the number of file reads, writes and syncs. Ironstone only.
        report_file_operations: bool = false;
        /// Show the memory of the process at the end.
        print_malloc_stats: bool = false;
        /// Send messages to standard error instead of the LOG. librocksdb only.
        use_stderr_info_logger: bool = false;
        /// Show the progress of a benchmark.
        progress_reports: bool = true;
    }
} }
