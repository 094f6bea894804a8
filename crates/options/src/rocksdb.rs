//! Determines what happens to each key that RocksDB 7.8.3 or 11.8.1 writes into an OPTIONS file: it is in
//! Ironstone's option tables, it has no effect here, or only its default value is accepted.
//!
//! [`super::codec`] writes all keys of 7.8.3, in this order, so that RocksDB's tools find a complete file.
//! [`unimplemented()`] lists the keys that no option table has, for `docs/compat.md`.

use base::options::{OptionInfo, OptionTable, OptionValue as _};
use table::TableOptions;

pub use super::keys::{CF_SECTION, DB_SECTION, KEYS, Key, Releases, TABLE_SECTION};
use super::{CfOptions, DbOptions};

/// Keys whose values are components that the codec handles itself.
pub const COMPONENT_KEYS: &[&str] = &[
    "comparator",
    "prefix_extractor",
    "merge_operator",
    "compaction_filter",
    "compaction_filter_factory",
];

/// The option table of a section.
pub(super) fn own(section: &str) -> &'static [OptionInfo] {
    match section {
        DB_SECTION => DbOptions::infos(),
        CF_SECTION => CfOptions::infos(),
        _ => TableOptions::infos(),
    }
}

/// The keys that Ironstone does not implement: they keep their default value.
pub fn unimplemented() -> impl Iterator<Item = &'static Key> {
    KEYS.iter().filter(|k| !is_implemented(k))
}

/// The row of a key of RocksDB.
pub fn find(section: &str, name: &str) -> Option<&'static Key> {
    KEYS.iter().find(|k| k.section == section && k.name == name)
}

/// Values that are accepted besides the default, because they request nothing that Ironstone lacks: section, name,
/// value.
const ALSO_ACCEPTED: &[(&str, &str, &str)] = &[
    // The default of 11.8.1.
    (DB_SECTION, "compaction_readahead_size", "2097152"),
    (DB_SECTION, "stats_persist_period_sec", "0"),
    // The id is always in the MANIFEST; this is also the default of 11.8.1.
    (DB_SECTION, "write_dbid_to_manifest", "true"),
];

/// Section and name of options that tune a mechanism which Ironstone lacks or controls itself, and that do not
/// change any result. Every value is accepted, with a warning that it has no effect.
pub const WITHOUT_EFFECT: &[(&str, &str)] = &[
    (DB_SECTION, "access_hint_on_compaction_start"),
    (DB_SECTION, "advise_random_on_open"),
    (DB_SECTION, "async_wal_precreate"),
    (DB_SECTION, "avoid_unnecessary_blocking_io"),
    (DB_SECTION, "background_close_inactive_wals"),
    (DB_SECTION, "compaction_readahead_size"),
    (DB_SECTION, "delete_obsolete_files_period_micros"),
    (DB_SECTION, "dump_malloc_stats"),
    (DB_SECTION, "enable_thread_tracking"),
    (DB_SECTION, "enable_write_thread_adaptive_yield"),
    (DB_SECTION, "follower_catchup_retry_count"),
    (DB_SECTION, "follower_catchup_retry_wait_ms"),
    (DB_SECTION, "follower_refresh_catchup_period_ms"),
    (DB_SECTION, "is_fd_close_on_exec"),
    (DB_SECTION, "log_readahead_size"),
    (DB_SECTION, "manifest_preallocation_size"),
    (DB_SECTION, "max_compaction_trigger_wakeup_seconds"),
    (DB_SECTION, "max_manifest_space_amp_pct"),
    (DB_SECTION, "open_files_async"),
    (DB_SECTION, "optimize_manifest_for_recovery"),
    // Damage is always an error.
    (DB_SECTION, "paranoid_checks"),
    (DB_SECTION, "random_access_max_buffer_size"),
    (DB_SECTION, "read_io_executor_threads"),
    (DB_SECTION, "reuse_manifest_on_open"),
    (DB_SECTION, "skip_stats_update_on_db_open"),
    (DB_SECTION, "stats_history_buffer_size"),
    (DB_SECTION, "strict_bytes_per_sync"),
    (DB_SECTION, "table_cache_numshardbits"),
    (DB_SECTION, "unordered_write"),
    (DB_SECTION, "use_adaptive_mutex"),
    // fdatasync makes everything durable that is needed to read a file again, including its length.
    (DB_SECTION, "use_fsync"),
    (DB_SECTION, "writable_file_max_buffer_size"),
    (DB_SECTION, "write_thread_max_yield_usec"),
    (DB_SECTION, "write_thread_slow_yield_usec"),
    (CF_SECTION, "bloom_locality"),
    // These are always done.
    (CF_SECTION, "force_consistency_checks"),
    (CF_SECTION, "memtable_batch_lookup_optimization"),
    (CF_SECTION, "memtable_huge_page_size"),
    (CF_SECTION, "optimize_filters_for_hits"),
    (CF_SECTION, "report_bg_io_stats"),
    (CF_SECTION, "sample_for_compression"),
    (CF_SECTION, "uncache_aggressiveness"),
];

/// Options without effect whose numbers have 32 bits, signed or unsigned. All other numbers have 64 bits.
const SIGNED: &[&str] = &[
    "max_manifest_space_amp_pct",
    "read_io_executor_threads",
    "table_cache_numshardbits",
];
const UNSIGNED: &[&str] = &["bloom_locality", "uncache_aggressiveness"];

/// False if a value of an option without effect has the wrong type, so that RocksDB would refuse to load an OPTIONS
/// file with it.
pub fn is_in_type(key: &Key, value: &str) -> bool {
    let number = key.default.parse::<u64>().is_ok();
    match key.name {
        // Nothing reads these any more.
        "access_hint_on_compaction_start" | "random_access_max_buffer_size" => true,
        name if SIGNED.contains(&name) => i32::parse(value).is_some(),
        name if UNSIGNED.contains(&name) => u32::parse(value).is_some(),
        _ => !number || u64::parse(value).is_some(),
    }
}

/// Whether the value is not the default, but requests nothing that Ironstone lacks.
pub fn is_also_accepted(key: &Key, value: &str) -> bool {
    ALSO_ACCEPTED.contains(&(key.section, key.name, value))
}

/// Whether the option has no effect, whatever its value.
pub fn is_without_effect(key: &Key) -> bool {
    WITHOUT_EFFECT.contains(&(key.section, key.name))
}

/// Whether an option table has the key, or the codec handles it.
pub fn is_implemented(key: &Key) -> bool {
    key.section == CF_SECTION && COMPONENT_KEYS.contains(&key.name)
        || own(key.section).iter().any(|i| i.name == key.name)
}
