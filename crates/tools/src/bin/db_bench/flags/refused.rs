//! Flags of RocksDB's db_bench that are refused, with reasons: flags that neither engine supports,
//! and flags that one engine does not support.
//!
//! A refused flag with RocksDB's default value is accepted, because it changes nothing.

use super::{FLAGS, Flags, Value};

/// A flag that is refused: name, type, RocksDB's default.
pub(super) type Refused = (&'static str, &'static str, &'static str);

const BOOL: &str = "bool";
const INT: &str = "int64";
const DOUBLE: &str = "double";
const STRING: &str = "string";

/// The flags that neither engine supports, by reason.
pub(super) const REFUSED: &[(&str, &[Refused])] = &[
    (
        "transactions are not in the engine yet",
        &[
            ("transaction_db", BOOL, "false"),
            ("optimistic_transaction_db", BOOL, "false"),
            ("transaction_lock_timeout", INT, "100"),
            ("transaction_set_snapshot", BOOL, "false"),
            ("transaction_sets", INT, "2"),
            ("transaction_sleep", INT, "0"),
        ],
    ),
    (
        "a BlobDB on top of a database is not in the engine; blob files replaced it",
        &[
            ("use_blob_db", BOOL, "false"),
            ("blob_db_enable_gc", BOOL, "false"),
            ("blob_db_file_size", INT, "268435456"),
            ("blob_db_max_db_size", INT, "0"),
            ("blob_db_max_ttl_range", INT, "0"),
            ("blob_db_ttl_range_secs", INT, "3600"),
        ],
    ),
    (
        "blob files are not in the engine yet",
        &[
            ("use_blob_cache", BOOL, "false"),
            ("use_shared_block_and_blob_cache", BOOL, "true"),
            ("blob_cache_size", INT, "8388608"),
            ("blob_cache_numshardbits", INT, "6"),
            ("charge_blob_cache", BOOL, "false"),
            ("embedded_blob_min_size", INT, "2048"),
        ],
    ),
    (
        "user-defined timestamps are not in the engine yet",
        &[
            ("user_timestamp_size", INT, "0"),
            ("read_with_latest_user_timestamp", BOOL, "true"),
        ],
    ),
    (
        "the tier has one pool, and as many shards as its size asks for",
        &[
            ("compressed_secondary_cache_numshardbits", INT, "6"),
            (
                "compressed_secondary_cache_high_pri_pool_ratio",
                DOUBLE,
                "0",
            ),
            ("compressed_secondary_cache_low_pri_pool_ratio", DOUBLE, "0"),
        ],
    ),
    (
        "use_compressed_secondary_cache is the only second tier",
        &[
            ("compressed_cache_size", INT, "-1"),
            ("secondary_cache_uri", STRING, ""),
            ("use_tiered_cache", BOOL, "false"),
            ("tiered_adm_policy", STRING, "auto"),
        ],
    ),
    (
        "persistent caches of blocks are not in the engine",
        &[
            ("read_cache_path", STRING, ""),
            ("read_cache_size", INT, "4294967296"),
            ("read_cache_direct_read", BOOL, "true"),
            ("read_cache_direct_write", BOOL, "true"),
        ],
    ),
    (
        "caches that are simulated, or made from a URI, are not in the engine",
        &[("simcache_size", INT, "-1"), ("cache_uri", STRING, "")],
    ),
    (
        "caches take their memory from the allocator of the process",
        &[
            ("use_cache_jemalloc_no_dump_allocator", BOOL, "false"),
            ("use_cache_memkind_kmem_allocator", BOOL, "false"),
        ],
    ),
    (
        "which kinds of memory the block cache is charged with cannot be chosen",
        &[
            (
                "charge_compression_dictionary_building_buffer",
                BOOL,
                "false",
            ),
            ("charge_file_metadata", BOOL, "false"),
            ("charge_filter_construction", BOOL, "false"),
            ("charge_table_reader", BOOL, "false"),
        ],
    ),
    (
        "traces are neither written nor replayed",
        &[
            ("trace_file", STRING, ""),
            ("trace_replay_fast_forward", DOUBLE, "1"),
            ("trace_replay_threads", INT, "1"),
            ("block_cache_trace_file", STRING, ""),
            ("block_cache_trace_sampling_frequency", INT, "1"),
            (
                "block_cache_trace_max_trace_file_size_in_bytes",
                INT,
                "68719476736",
            ),
        ],
    ),
    (
        "threads and memory are not bound to NUMA nodes",
        &[("enable_numa", BOOL, "false")],
    ),
    (
        "reads in coroutines are neither in the engine nor in RocksDB's C API",
        &[("coro_jobs_per_thread", INT, "1")],
    ),
    (
        "io_uring for reads cannot be switched when the program runs",
        &[("io_uring_enabled", BOOL, "true")],
    ),
    (
        "databases lie in the file systems of the machine",
        &[
            ("env_uri", STRING, ""),
            ("fs_uri", STRING, ""),
            ("tolerate_io_errors_for_remote_dbs", BOOL, "false"),
        ],
    ),
    (
        "devices and their faults are not simulated",
        &[
            ("simulate_hdd", BOOL, "false"),
            ("simulate_hybrid_fs_file", STRING, ""),
            ("simulate_hybrid_hdd_multipliers", INT, "1"),
            ("fault_injection_read_after_reads", INT, "0"),
        ],
    ),
    (
        "an error ends the run at once, without a watchdog",
        &[("fatal_shutdown_watchdog_seconds", INT, "180")],
    ),
    (
        "followers are not in the engine; use_secondary_db is",
        &[
            ("open_as_follower", BOOL, "false"),
            ("leader_path", STRING, ""),
        ],
    ),
    (
        "tables are block-based only",
        &[
            ("use_plain_table", BOOL, "false"),
            ("use_cuckoo_table", BOOL, "false"),
            ("cuckoo_hash_ratio", DOUBLE, "0.9"),
            ("identity_as_first_hash", BOOL, "false"),
        ],
    ),
    (
        "user-defined indexes are not in the engine",
        &[("use_trie_index", BOOL, "false")],
    ),
    (
        "compactions in another process are not in the engine",
        &[
            ("openandcompact_allow_resumption", BOOL, "false"),
            ("openandcompact_cancel_after_millseconds", INT, "1"),
            ("openandcompact_test_cancel_on_odd", BOOL, "false"),
        ],
    ),
    (
        "the engine does not tell what its threads do",
        &[("thread_status_per_interval", INT, "0")],
    ),
    (
        "the burst of a rate limiter can be set in neither engine",
        &[("rate_limiter_single_burst_bytes", INT, "0")],
    ),
    (
        "compression managers are not in the engine",
        &[("compression_manager", STRING, "none")],
    ),
    (
        "tables with blobs in them are not in the engine",
        &[
            ("num_wide_columns", INT, "4"),
            ("num_short_wide_columns", INT, "1"),
        ],
    ),
    (
        "readahead_size and max_auto_readahead_size say how much of a range is read at once",
        &[
            ("multiscan_coalesce_threshold", INT, "16384"),
            ("multiscan_max_prefetch_size", INT, "0"),
            ("multiscan_use_async_io", BOOL, "false"),
            ("io_dispatcher_max_prefetch_memory_bytes", INT, "0"),
        ],
    ),
    (
        "an ingested table is always read for its properties",
        &[("ingest_external_file_use_file_info", BOOL, "false")],
    ),
];

/// Flags for options that Ironstone knows under these names but refuses, by reason.
pub(crate) const ENGINE: &[(&str, &[&str])] = &[
    (
        "blob files are not in the engine yet",
        &[
            "enable_blob_files",
            "min_blob_size",
            "blob_file_size",
            "blob_file_starting_level",
            "blob_compaction_readahead_size",
            "blob_direct_write_partitions",
            "enable_blob_direct_write",
            "enable_blob_garbage_collection",
            "blob_garbage_collection_age_cutoff",
            "blob_garbage_collection_force_threshold",
        ],
    ),
    (
        "tables are written through the system's cache, and compactions read like all others",
        &[
            "use_direct_io_for_flush_and_compaction",
            "use_direct_io_for_compaction_reads",
            "mmap_read",
            "mmap_write",
        ],
    ),
    (
        "checksums of single entries are not in the engine",
        &[
            "block_protection_bytes_per_key",
            "memtable_protection_bytes_per_key",
            "memtable_verify_per_key_checksum_on_seek",
            "paranoid_memory_checks",
        ],
    ),
    (
        "it is not in the engine",
        &[
            "allow_data_in_errors",
            "experimental_mempurge_threshold",
            "memtable_op_scan_flush_trigger",
            "min_tombstones_for_range_conversion",
            "read_amp_bytes_per_bit",
            "read_triggered_compaction_threshold",
            "separate_key_value_in_data_block",
            "strict_max_successive_merges",
            "super_block_alignment_size",
            "super_block_alignment_space_overhead_ratio",
            "track_and_verify_wals",
            "uniform_cv_threshold",
            "verify_manifest_content_on_close",
        ],
    ),
    (
        "values are not updated in place",
        &["inplace_update_support", "inplace_update_num_locks"],
    ),
    (
        "statistics are not kept as a history",
        &["persist_stats_to_disk", "stats_persist_period_sec"],
    ),
    (
        "times of writes and temperatures of files are not in the engine",
        &[
            "preclude_last_level_data_seconds",
            "preserve_internal_time_seconds",
        ],
    ),
];

/// Flags without an option that work with librocksdb but not with Ironstone, by reason.
pub(super) const IRONSTONE: &[(&str, &[&str])] = &[
    (
        "checksums of single entries are not in the engine",
        &["write_batch_protection_bytes_per_key"],
    ),
    (
        "level0_file_num_compaction_trigger alone limits the runs",
        &["universal_max_read_amp"],
    ),
    (
        "blob files are not in the engine yet",
        &["prepopulate_blob_cache"],
    ),
    (
        "checksums of whole files are not in the engine",
        &["file_checksum"],
    ),
    (
        "background threads are all alike",
        &[
            "num_bottom_pri_threads",
            "enable_cpu_prio",
            "enable_io_prio",
        ],
    ),
    ("messages go to the LOG", &["use_stderr_info_logger"]),
    (
        "the rate limiter does not limit the log",
        &["rate_limit_auto_wal_flush"],
    ),
    (
        "there is one kind of block cache, a clock cache",
        &["cache_type"],
    ),
    (
        "the writer's thread opens a table that it ingests",
        &[
            "ingest_external_file_file_opening_threads",
            "ingest_external_file_fill_cache",
            "ingest_external_file_prefetch_lmax_index_and_filter_blocks",
        ],
    ),
    (
        "index blocks are searched by arrays of prefixes in memory",
        &["index_block_search_type"],
    ),
    (
        "skip lists do not begin where the last search ended",
        &["skip_list_lookahead"],
    ),
    (
        "entries have no hints",
        &["memtable_insert_with_hint_prefix_size"],
    ),
    (
        "blob files and temperatures are not in the engine",
        &[
            "fifo_compaction_max_data_files_size_mb",
            "fifo_compaction_use_kv_ratio_compaction",
            "fifo_age_for_warm",
        ],
    ),
];

/// Flags that work with Ironstone but that RocksDB's C API does not support, by reason.
pub(super) const LIBROCKSDB: &[(&str, &[&str])] = &[(
    "RocksDB's C API has nothing for it",
    &[
        "async_gets",
        "backup_rate_limit",
        "restore_rate_limit",
        "report_file_operations",
        "use_compressed_secondary_cache",
        "compressed_secondary_cache_size",
        "compressed_secondary_cache_compression_type",
        "compressed_secondary_cache_compression_level",
    ],
)];

/// The refused flag with this name, with the reason; also whether the name is `no` and the name of a
/// Boolean flag.
pub(super) fn find(name: &str) -> Option<(&'static str, &'static Refused, bool)> {
    let by_name = |name: &str| {
        let mut all = REFUSED
            .iter()
            .flat_map(|(reason, flags)| flags.iter().map(move |flag| (*reason, flag)));
        all.find(|(_, flag)| flag.0 == name)
    };
    if let Some((reason, flag)) = by_name(name) {
        return Some((reason, flag, false));
    }
    let (reason, flag) = by_name(name.strip_prefix("no")?)?;
    (flag.1 == BOOL).then_some((reason, flag, true))
}

/// Whether a value is the default of a refused flag, in any spelling.
pub(super) fn is_default(flag: &Refused, value: &str) -> bool {
    fn same<T: Value + PartialEq>(a: &str, b: &str) -> bool {
        T::parse(a).is_some_and(|a| T::parse(b) == Some(a))
    }
    let (_, kind, default) = flag;
    match *kind {
        BOOL => same::<bool>(value, default),
        INT => same::<i64>(value, default),
        DOUBLE => same::<f64>(value, default),
        _ => value == *default,
    }
}

/// Why Ironstone refuses a flag's option, if it does.
pub(crate) fn by_ironstone(flag: &str) -> Option<&'static str> {
    let found = ENGINE.iter().find(|(_, names)| names.contains(&flag));
    found.map(|(reason, _)| *reason)
}

/// Whether this engine refuses a flag of the table.
pub(super) fn is_others(flag: &str, engine: &str) -> bool {
    let lists: &[&[(&str, &[&str])]] = match engine {
        "ironstone" => &[ENGINE, IRONSTONE],
        "null" => &[],
        _ => &[LIBROCKSDB],
    };
    let mut names = lists
        .iter()
        .flat_map(|l| l.iter().flat_map(|(_, n)| n.iter()));
    names.any(|name| *name == flag)
}

/// The error for the first flag that is not at its default and that `engine` does not support.
pub(crate) fn check(flags: &Flags, engine: &str) -> Option<String> {
    let list = if engine == "ironstone" {
        IRONSTONE
    } else {
        LIBROCKSDB
    };
    let changed = |name: &str| {
        let flag = FLAGS.iter().find(|f| f.name == name);
        flag.is_some_and(|f| (f.get)(flags) != (f.default)())
    };
    let (reason, name) = list.iter().find_map(|(reason, names)| {
        let name = names.iter().find(|name| changed(name))?;
        Some((reason, name))
    })?;
    Some(format!("flag '{name}' with --engine={engine}: {reason}"))
}
