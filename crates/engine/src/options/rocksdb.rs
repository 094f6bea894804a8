//! Every key of an OPTIONS file that RocksDB 7.8.3 writes, with the value that it writes for
//! default options (measured: the file of a database opened with default options).
//!
//! [`super::codec`] writes all of them, in this order, so that RocksDB's tools find a complete file; keys
//! that no option table of Ironstone has are accepted with their default only. Their list,
//! [`unimplemented()`], is what `docs/compat.md` names as not supported.

use base::options::OptionTable;
use table::TableOptions;

use super::{CfOptions, DbOptions};

/// A key of RocksDB's OPTIONS file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The section that holds it, without the column family's name.
    pub section: &'static str,
    /// The option's name.
    pub name: &'static str,
    /// What RocksDB 7.8.3 writes for default options.
    pub default: &'static str,
}

/// The section of options of the whole database.
pub const DB_SECTION: &str = "DBOptions";
/// The section of options of a column family.
pub const CF_SECTION: &str = "CFOptions";
/// The section of options of a column family's tables.
pub const TABLE_SECTION: &str = "TableOptions/BlockBasedTable";

/// Keys whose values are components that the codec handles itself.
pub const COMPONENT_KEYS: &[&str] = &[
    "comparator",
    "prefix_extractor",
    "merge_operator",
    "compaction_filter",
    "compaction_filter_factory",
];

/// The keys of a section that Ironstone does not implement: they keep their default.
pub fn unimplemented() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(|k| !is_implemented(k))
}

/// The row of a key that RocksDB 7.8.3 knows.
pub fn find(section: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|k| k.section == section && k.name == name)
}

/// Values besides the default that ask for nothing that Ironstone lacks: section, name, value.
const ALSO_ACCEPTED: &[(&str, &str, &str)] = &[(DB_SECTION, "stats_persist_period_sec", "0")];

/// Options that tune a mechanism which Ironstone does not have or steers itself, and that change
/// no result: section and name. Any value is accepted, with a warning that it has no effect.
pub const WITHOUT_EFFECT: &[(&str, &str)] = &[
    (DB_SECTION, "access_hint_on_compaction_start"),
    (DB_SECTION, "advise_random_on_open"),
    (DB_SECTION, "allow_fallocate"),
    (DB_SECTION, "avoid_unnecessary_blocking_io"),
    (DB_SECTION, "compaction_readahead_size"),
    (DB_SECTION, "delete_obsolete_files_period_micros"),
    (DB_SECTION, "dump_malloc_stats"),
    (DB_SECTION, "enable_thread_tracking"),
    (DB_SECTION, "enable_write_thread_adaptive_yield"),
    (DB_SECTION, "is_fd_close_on_exec"),
    (DB_SECTION, "log_readahead_size"),
    (DB_SECTION, "manifest_preallocation_size"),
    (DB_SECTION, "max_background_compactions"),
    (DB_SECTION, "max_background_flushes"),
    (DB_SECTION, "random_access_max_buffer_size"),
    (DB_SECTION, "skip_stats_update_on_db_open"),
    (DB_SECTION, "stats_history_buffer_size"),
    (DB_SECTION, "strict_bytes_per_sync"),
    (DB_SECTION, "table_cache_numshardbits"),
    (DB_SECTION, "unordered_write"),
    (DB_SECTION, "use_adaptive_mutex"),
    (DB_SECTION, "write_thread_max_yield_usec"),
    (DB_SECTION, "write_thread_slow_yield_usec"),
    (CF_SECTION, "bloom_locality"),
    (CF_SECTION, "memtable_huge_page_size"),
    (CF_SECTION, "optimize_filters_for_hits"),
    (CF_SECTION, "report_bg_io_stats"),
    (CF_SECTION, "sample_for_compression"),
];

/// True if the value asks for nothing that Ironstone lacks, though it is not the default.
pub fn is_also_accepted(key: &Key, value: &str) -> bool {
    ALSO_ACCEPTED.contains(&(key.section, key.name, value))
}

/// True if the option has no effect, whatever its value.
pub fn is_without_effect(key: &Key) -> bool {
    WITHOUT_EFFECT.contains(&(key.section, key.name))
}

/// True if an option table has the key, or the codec handles it.
pub fn is_implemented(key: &Key) -> bool {
    let has = |infos: &[base::options::OptionInfo]| infos.iter().any(|i| i.name == key.name);
    match key.section {
        DB_SECTION => has(DbOptions::infos()),
        CF_SECTION => COMPONENT_KEYS.contains(&key.name) || has(CfOptions::infos()),
        _ => has(TableOptions::infos()),
    }
}

const fn key(section: &'static str, name: &'static str, default: &'static str) -> Key {
    Key {
        section,
        name,
        default,
    }
}

/// Every key, section by section.
pub const KEYS: &[Key] = &[
    key(DB_SECTION, "compaction_readahead_size", "0"),
    key(DB_SECTION, "strict_bytes_per_sync", "false"),
    key(DB_SECTION, "bytes_per_sync", "0"),
    key(DB_SECTION, "max_background_jobs", "2"),
    key(DB_SECTION, "avoid_flush_during_shutdown", "false"),
    key(DB_SECTION, "max_background_flushes", "-1"),
    key(DB_SECTION, "delayed_write_rate", "16777216"),
    key(DB_SECTION, "max_open_files", "-1"),
    key(DB_SECTION, "max_subcompactions", "1"),
    key(DB_SECTION, "writable_file_max_buffer_size", "1048576"),
    key(DB_SECTION, "wal_bytes_per_sync", "0"),
    key(DB_SECTION, "max_background_compactions", "-1"),
    key(DB_SECTION, "max_total_wal_size", "0"),
    key(
        DB_SECTION,
        "delete_obsolete_files_period_micros",
        "21600000000",
    ),
    key(DB_SECTION, "stats_dump_period_sec", "600"),
    key(DB_SECTION, "stats_history_buffer_size", "1048576"),
    key(DB_SECTION, "stats_persist_period_sec", "600"),
    key(DB_SECTION, "enforce_single_del_contracts", "true"),
    key(
        DB_SECTION,
        "lowest_used_cache_tier",
        "kNonVolatileBlockTier",
    ),
    key(DB_SECTION, "bgerror_resume_retry_interval", "1000000"),
    key(DB_SECTION, "best_efforts_recovery", "false"),
    key(DB_SECTION, "log_readahead_size", "0"),
    key(DB_SECTION, "write_dbid_to_manifest", "false"),
    key(DB_SECTION, "wal_compression", "kNoCompression"),
    key(DB_SECTION, "manual_wal_flush", "false"),
    key(DB_SECTION, "db_host_id", "__hostname__"),
    key(DB_SECTION, "two_write_queues", "false"),
    key(DB_SECTION, "random_access_max_buffer_size", "1048576"),
    key(DB_SECTION, "avoid_unnecessary_blocking_io", "false"),
    key(
        DB_SECTION,
        "skip_checking_sst_file_sizes_on_db_open",
        "false",
    ),
    key(DB_SECTION, "flush_verify_memtable_count", "true"),
    key(DB_SECTION, "fail_if_options_file_error", "false"),
    key(DB_SECTION, "atomic_flush", "false"),
    key(DB_SECTION, "verify_sst_unique_id_in_manifest", "true"),
    key(DB_SECTION, "skip_stats_update_on_db_open", "false"),
    key(DB_SECTION, "track_and_verify_wals_in_manifest", "false"),
    key(DB_SECTION, "paranoid_checks", "true"),
    key(DB_SECTION, "create_if_missing", "false"),
    key(DB_SECTION, "max_write_batch_group_size_bytes", "1048576"),
    key(DB_SECTION, "avoid_flush_during_recovery", "false"),
    key(DB_SECTION, "file_checksum_gen_factory", "nullptr"),
    key(DB_SECTION, "enable_thread_tracking", "false"),
    key(DB_SECTION, "allow_fallocate", "true"),
    key(DB_SECTION, "allow_data_in_errors", "false"),
    key(DB_SECTION, "error_if_exists", "false"),
    key(
        DB_SECTION,
        "use_direct_io_for_flush_and_compaction",
        "false",
    ),
    key(DB_SECTION, "create_missing_column_families", "false"),
    key(DB_SECTION, "WAL_size_limit_MB", "0"),
    key(DB_SECTION, "use_direct_reads", "false"),
    key(DB_SECTION, "persist_stats_to_disk", "false"),
    key(DB_SECTION, "allow_mmap_reads", "false"),
    key(DB_SECTION, "allow_mmap_writes", "false"),
    key(DB_SECTION, "use_adaptive_mutex", "false"),
    key(DB_SECTION, "allow_2pc", "false"),
    key(DB_SECTION, "is_fd_close_on_exec", "true"),
    key(DB_SECTION, "max_log_file_size", "0"),
    key(DB_SECTION, "access_hint_on_compaction_start", "NORMAL"),
    key(DB_SECTION, "max_file_opening_threads", "16"),
    key(DB_SECTION, "wal_filter", "nullptr"),
    key(DB_SECTION, "use_fsync", "false"),
    key(DB_SECTION, "table_cache_numshardbits", "6"),
    key(DB_SECTION, "dump_malloc_stats", "false"),
    key(DB_SECTION, "db_write_buffer_size", "0"),
    key(DB_SECTION, "allow_ingest_behind", "false"),
    key(DB_SECTION, "keep_log_file_num", "1000"),
    key(DB_SECTION, "max_bgerror_resume_count", "2147483647"),
    key(DB_SECTION, "allow_concurrent_memtable_write", "true"),
    key(DB_SECTION, "recycle_log_file_num", "0"),
    key(DB_SECTION, "log_file_time_to_roll", "0"),
    key(DB_SECTION, "manifest_preallocation_size", "4194304"),
    key(DB_SECTION, "enable_write_thread_adaptive_yield", "true"),
    key(DB_SECTION, "wal_dir", ""),
    key(DB_SECTION, "WAL_ttl_seconds", "0"),
    key(DB_SECTION, "max_manifest_file_size", "1073741824"),
    key(DB_SECTION, "wal_recovery_mode", "kPointInTimeRecovery"),
    key(DB_SECTION, "enable_pipelined_write", "false"),
    key(DB_SECTION, "write_thread_slow_yield_usec", "3"),
    key(DB_SECTION, "unordered_write", "false"),
    key(DB_SECTION, "write_thread_max_yield_usec", "100"),
    key(DB_SECTION, "advise_random_on_open", "true"),
    key(DB_SECTION, "info_log_level", "INFO_LEVEL"),
    key(
        CF_SECTION,
        "compression_opts",
        "{max_dict_buffer_bytes=0;enabled=false;max_dict_bytes=0;parallel_threads=1;zstd_max_train_bytes=0;level=32767;use_zstd_dict_trainer=true;strategy=0;window_bits=-14;}",
    ),
    key(CF_SECTION, "memtable_protection_bytes_per_key", "0"),
    key(CF_SECTION, "target_file_size_multiplier", "1"),
    key(CF_SECTION, "report_bg_io_stats", "false"),
    key(CF_SECTION, "write_buffer_size", "67108864"),
    key(CF_SECTION, "memtable_huge_page_size", "0"),
    key(CF_SECTION, "max_successive_merges", "0"),
    key(CF_SECTION, "max_write_buffer_number", "2"),
    key(CF_SECTION, "prefix_extractor", "nullptr"),
    key(
        CF_SECTION,
        "bottommost_compression_opts",
        "{max_dict_buffer_bytes=0;enabled=false;max_dict_bytes=0;parallel_threads=1;zstd_max_train_bytes=0;level=32767;use_zstd_dict_trainer=true;strategy=0;window_bits=-14;}",
    ),
    key(CF_SECTION, "paranoid_file_checks", "false"),
    key(
        CF_SECTION,
        "blob_garbage_collection_force_threshold",
        "1.000000",
    ),
    key(CF_SECTION, "enable_blob_files", "false"),
    key(CF_SECTION, "blob_file_starting_level", "0"),
    key(CF_SECTION, "memtable_prefix_bloom_size_ratio", "0.000000"),
    key(CF_SECTION, "inplace_update_num_locks", "10000"),
    key(CF_SECTION, "blob_compaction_readahead_size", "0"),
    key(CF_SECTION, "ignore_max_compaction_bytes_for_input", "true"),
    key(CF_SECTION, "arena_block_size", "1048576"),
    key(CF_SECTION, "level0_stop_writes_trigger", "36"),
    key(CF_SECTION, "blob_compression_type", "kNoCompression"),
    key(CF_SECTION, "level0_slowdown_writes_trigger", "20"),
    key(
        CF_SECTION,
        "hard_pending_compaction_bytes_limit",
        "274877906944",
    ),
    key(
        CF_SECTION,
        "soft_pending_compaction_bytes_limit",
        "68719476736",
    ),
    key(CF_SECTION, "target_file_size_base", "67108864"),
    key(CF_SECTION, "level0_file_num_compaction_trigger", "4"),
    key(CF_SECTION, "max_compaction_bytes", "1677721600"),
    key(CF_SECTION, "disable_auto_compactions", "false"),
    key(CF_SECTION, "check_flush_compaction_key_order", "true"),
    key(CF_SECTION, "min_blob_size", "0"),
    key(CF_SECTION, "memtable_whole_key_filtering", "false"),
    key(CF_SECTION, "max_bytes_for_level_base", "268435456"),
    key(CF_SECTION, "last_level_temperature", "kUnknown"),
    key(
        CF_SECTION,
        "compaction_options_fifo",
        "{allow_compaction=false;age_for_warm=0;max_table_files_size=1073741824;}",
    ),
    key(CF_SECTION, "max_bytes_for_level_multiplier", "10.000000"),
    key(
        CF_SECTION,
        "max_bytes_for_level_multiplier_additional",
        "1:1:1:1:1:1:1",
    ),
    key(CF_SECTION, "max_sequential_skip_in_iterations", "8"),
    key(CF_SECTION, "prepopulate_blob_cache", "kDisable"),
    key(CF_SECTION, "compression", "kSnappyCompression"),
    // Left out while it is empty, as RocksDB does.
    key(CF_SECTION, "compression_per_level", ""),
    key(
        CF_SECTION,
        "compaction_options_universal",
        "{incremental=false;compression_size_percent=-1;allow_trivial_move=false;max_size_amplification_percent=200;max_merge_width=4294967295;stop_style=kCompactionStopStyleTotalSize;min_merge_width=2;size_ratio=1;}",
    ),
    key(CF_SECTION, "blob_garbage_collection_age_cutoff", "0.250000"),
    key(CF_SECTION, "ttl", "2592000"),
    key(CF_SECTION, "periodic_compaction_seconds", "0"),
    key(CF_SECTION, "sample_for_compression", "0"),
    key(CF_SECTION, "blob_file_size", "268435456"),
    key(CF_SECTION, "enable_blob_garbage_collection", "false"),
    key(CF_SECTION, "experimental_mempurge_threshold", "0.000000"),
    key(
        CF_SECTION,
        "bottommost_compression",
        "kDisableCompressionOption",
    ),
    key(CF_SECTION, "min_write_buffer_number_to_merge", "1"),
    key(CF_SECTION, "preserve_internal_time_seconds", "0"),
    key(CF_SECTION, "preclude_last_level_data_seconds", "0"),
    key(CF_SECTION, "sst_partitioner_factory", "nullptr"),
    key(CF_SECTION, "num_levels", "7"),
    key(CF_SECTION, "force_consistency_checks", "true"),
    key(
        CF_SECTION,
        "memtable_insert_with_hint_prefix_extractor",
        "nullptr",
    ),
    key(CF_SECTION, "memtable_factory", "SkipListFactory"),
    key(CF_SECTION, "level_compaction_dynamic_file_size", "true"),
    key(CF_SECTION, "max_write_buffer_number_to_maintain", "0"),
    key(CF_SECTION, "optimize_filters_for_hits", "false"),
    // 7.8.3 writes false: true is the default since 8.4, and Ironstone's.
    key(CF_SECTION, "level_compaction_dynamic_level_bytes", "true"),
    key(CF_SECTION, "compaction_style", "kCompactionStyleLevel"),
    key(CF_SECTION, "compaction_filter", "nullptr"),
    key(CF_SECTION, "inplace_update_support", "false"),
    key(CF_SECTION, "merge_operator", "nullptr"),
    key(CF_SECTION, "table_factory", "BlockBasedTable"),
    key(CF_SECTION, "bloom_locality", "0"),
    key(CF_SECTION, "comparator", "leveldb.BytewiseComparator"),
    key(CF_SECTION, "compaction_filter_factory", "nullptr"),
    key(CF_SECTION, "max_write_buffer_size_to_maintain", "0"),
    key(CF_SECTION, "compaction_pri", "kMinOverlappingRatio"),
    key(TABLE_SECTION, "initial_auto_readahead_size", "8192"),
    key(TABLE_SECTION, "pin_top_level_index_and_filter", "true"),
    key(TABLE_SECTION, "block_align", "false"),
    key(TABLE_SECTION, "block_size_deviation", "10"),
    key(TABLE_SECTION, "checksum", "kXXH3"),
    key(TABLE_SECTION, "index_shortening", "kShortenSeparators"),
    key(TABLE_SECTION, "num_file_reads_for_auto_readahead", "2"),
    key(TABLE_SECTION, "whole_key_filtering", "true"),
    key(
        TABLE_SECTION,
        "data_block_index_type",
        "kDataBlockBinarySearch",
    ),
    key(TABLE_SECTION, "index_type", "kBinarySearch"),
    key(TABLE_SECTION, "no_block_cache", "false"),
    key(TABLE_SECTION, "index_block_restart_interval", "1"),
    key(
        TABLE_SECTION,
        "data_block_hash_table_util_ratio",
        "0.750000",
    ),
    key(TABLE_SECTION, "prepopulate_block_cache", "kDisable"),
    key(
        TABLE_SECTION,
        "pin_l0_filter_and_index_blocks_in_cache",
        "false",
    ),
    key(TABLE_SECTION, "filter_policy", "nullptr"),
    key(
        TABLE_SECTION,
        "cache_index_and_filter_blocks_with_high_priority",
        "true",
    ),
    key(TABLE_SECTION, "verify_compression", "false"),
    key(TABLE_SECTION, "block_restart_interval", "16"),
    key(TABLE_SECTION, "max_auto_readahead_size", "262144"),
    key(
        TABLE_SECTION,
        "flush_block_policy_factory",
        "FlushBlockBySizePolicyFactory",
    ),
    key(TABLE_SECTION, "partition_filters", "false"),
    key(TABLE_SECTION, "cache_index_and_filter_blocks", "false"),
    key(TABLE_SECTION, "block_size", "4096"),
    key(TABLE_SECTION, "metadata_block_size", "4096"),
    key(TABLE_SECTION, "optimize_filters_for_memory", "false"),
    key(TABLE_SECTION, "detect_filter_construct_corruption", "false"),
    key(TABLE_SECTION, "format_version", "5"),
    key(
        TABLE_SECTION,
        "metadata_cache_options",
        "{unpartitioned_pinning=kFallback;partition_pinning=kFallback;top_level_index_pinning=kFallback;}",
    ),
    key(TABLE_SECTION, "read_amp_bytes_per_bit", "0"),
    key(TABLE_SECTION, "enable_index_compression", "true"),
];
