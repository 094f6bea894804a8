//! RocksDB's options, from the flags.

use std::sync::Arc;

use base::{Error, Result};
use tools::librocksdb::{
    FilterVerdict, KeyOrder, Library, PoolThreads, RateLimit, RocksCache, RocksOptions,
    RocksReadOptions,
};

use crate::engine;
use crate::flags::{self, Flags, Place};
use crate::options::EngineOption;

/// The library that `--engine` names: `librocksdb` or `librocksdb:PATH`.
pub(crate) fn library(flags: &Flags) -> Result<Arc<Library>> {
    match flags.engine.strip_prefix("librocksdb:") {
        Some(path) => Library::open(path),
        None => Library::discover(),
    }
}

/// The read options from the flags.
pub(super) fn read_options(lib: &Arc<Library>, flags: &Flags) -> Result<RocksReadOptions<'static>> {
    let options = lib
        .read_options()
        .verify_checksums(flags.verify_checksum)
        .tailing(flags.use_tailing_iterator)
        .readahead_size(flags.readahead_size as usize)
        .total_order_seek(flags.total_order_seek)
        .prefix_same_as_start(flags.prefix_same_as_start)
        .auto_prefix_mode(flags.auto_prefix_mode)
        .async_io(flags.async_io)
        .adaptive_readahead(flags.adaptive_readahead)
        .auto_readahead_size(flags.auto_readahead_size)
        .optimize_multiget_for_io(flags.optimize_multiget_for_io)
        .auto_refresh_iterator_with_snapshot(flags.auto_refresh_iterator_with_snapshot);
    if flags.rate_limit_user_ops {
        return options.limited_as_users();
    }
    Ok(options)
}

/// The options from the flags. An option that RocksDB does not have is refused unless it has its
/// default value.
pub(super) fn options(flags: &Flags) -> Result<RocksOptions> {
    if let Some(error) = flags::refused_by(flags, "librocksdb") {
        return Err(Error::not_supported(error));
    }
    let lib = library(flags)?;
    let mut options = lib.options();
    options.create_if_missing(true);
    let all = crate::options::options(flags)?;
    if let Some(own) = all.iter().find(|o| o.own && !o.is_default) {
        return Err(Error::not_supported(format!(
            "flag '{}' with --engine=librocksdb: it is an option of Ironstone's own",
            own.name
        )));
    }
    let all: Vec<_> = all.into_iter().filter(|o| !o.own).collect();
    for option in all.iter().filter(|o| o.place != Place::Table) {
        set(&mut options, &option.name, &option.value, option.is_default)?;
    }
    let cache = cache(&lib, flags)?;
    tables(&mut options, flags, &all, cache.as_ref())?;
    memory(&mut options, flags, cache.as_ref())?;
    threads(&lib, flags)?;
    others(&mut options, flags)?;
    Ok(options)
}

/// Sets an option. An option at its default may be missing in an older library.
fn set(options: &mut RocksOptions, name: &str, value: &str, is_default: bool) -> Result<()> {
    match options.set(name, value) {
        Err(e) if !is_default => Err(e),
        _ => Ok(()),
    }
}

/// The block cache that `--cache_type` asks for. `None` if it is created from an options text: in a
/// library without clock caches, or with priority pools.
fn cache(lib: &Arc<Library>, flags: &Flags) -> Result<Option<RocksCache>> {
    let (bytes, shards) = (flags.cache_size as usize, flags.cache_numshardbits);
    let pools = flags.cache_high_pri_pool_ratio > 0.0 || flags.cache_low_pri_pool_ratio > 0.0;
    if bytes == 0 {
        return Ok(None);
    }
    match flags.cache_type.as_str() {
        "hyper_clock_cache" => Ok(lib.hyper_clock_cache(bytes, 0, shards).ok()),
        "auto_hyper_clock_cache" => lib.hyper_clock_cache(bytes, 0, shards).map(Some),
        "fixed_hyper_clock_cache" => {
            let charge = flags.block_size.max(1).unsigned_abs() as usize;
            lib.hyper_clock_cache(bytes, charge, shards).map(Some)
        }
        "lru_cache" if pools => Ok(None),
        "lru_cache" => Ok(lib.lru_cache_of(bytes, shards).ok()),
        other => Err(Error::invalid_argument(format!(
            "cache_type {other}: must be hyper_clock_cache, auto_hyper_clock_cache, \
             fixed_hyper_clock_cache or lru_cache"
        ))),
    }
}

/// The options of tables, and the block cache.
fn tables(
    options: &mut RocksOptions,
    flags: &Flags,
    all: &[EngineOption],
    cache: Option<&RocksCache>,
) -> Result<()> {
    const FACTORY: &str = "block_based_table_factory";
    if let Some(cache) = cache {
        let mut table = options.library().table_options();
        table.block_cache(cache);
        options.table(&table);
    } else {
        let text = format!(
            "{{block_cache={{capacity={};num_shard_bits={};high_pri_pool_ratio={};\
             low_pri_pool_ratio={}}}}}",
            flags.cache_size,
            flags.cache_numshardbits,
            flags.cache_high_pri_pool_ratio,
            flags.cache_low_pri_pool_ratio
        );
        options.set(FACTORY, &text)?;
    }
    let of_tables = || all.iter().filter(|o| o.place == Place::Table);
    let texts: Vec<String> = of_tables()
        .map(|o| format!("{}={}", o.name, o.value))
        .collect();
    if options
        .set(FACTORY, &format!("{{{}}}", texts.join(";")))
        .is_ok()
    {
        return Ok(());
    }
    // One by one: an older library may lack some that are at their default.
    for option in of_tables() {
        let text = format!("{{{}={}}}", option.name, option.value);
        set(options, FACTORY, &text, option.is_default)?;
    }
    Ok(())
}

/// Assigns memory to budgets.
fn memory(options: &mut RocksOptions, flags: &Flags, cache: Option<&RocksCache>) -> Result<()> {
    let budget = flags.db_write_buffer_size.max(0).unsigned_abs() as usize;
    match cache {
        Some(cache) if flags.cost_write_buffer_to_cache => {
            options.write_buffers_in(budget, cache)?;
        }
        // So does RocksDB's db_bench. An older library has the option alone.
        Some(cache) if budget > 0 => drop(options.write_buffers_in(budget, cache)),
        None if flags.cost_write_buffer_to_cache => {
            return Err(Error::not_supported(
                "cost_write_buffer_to_cache with a cache that has pools, or without a cache",
            ));
        }
        _ => {}
    }
    if flags.row_cache_size > 0 {
        let rows = options
            .library()
            .lru_cache(flags.row_cache_size.unsigned_abs() as usize);
        options.row_cache(&rows)?;
    }
    Ok(())
}

/// Sets the background threads, which all databases of the process share.
fn threads(lib: &Library, flags: &Flags) -> Result<()> {
    let threads = PoolThreads {
        high: flags.num_high_pri_threads,
        low: flags.num_low_pri_threads,
        bottom: flags.num_bottom_pri_threads,
    };
    if threads != PoolThreads::default() {
        lib.background_threads(threads)?;
    }
    if flags.enable_io_prio {
        lib.lower_priority(true)?;
    }
    if flags.enable_cpu_prio {
        lib.lower_priority(false)?;
    }
    Ok(())
}

fn others(options: &mut RocksOptions, flags: &Flags) -> Result<()> {
    let lib = options.library();
    if flags.rate_limit_auto_wal_flush && !lib.limits_log() {
        return Err(Error::not_supported(
            "rate_limit_auto_wal_flush with this RocksDB",
        ));
    }
    if flags.write_batch_protection_bytes_per_key > 0 && !lib.checks_batches() {
        let error = "write_batch_protection_bytes_per_key with this RocksDB";
        return Err(Error::not_supported(error));
    }
    if flags.rate_limiter_bytes_per_sec > 0 {
        let how = RateLimit {
            bytes_per_second: flags.rate_limiter_bytes_per_sec as i64,
            refill_period_us: flags.rate_limiter_refill_period_us,
            auto_tuned: flags.rate_limiter_auto_tuned,
            reads: flags.rate_limit_bg_reads,
        };
        options.rate_limit(how)?;
    }
    if crate::options::statistics(flags)? {
        options.enable_statistics();
        if flags.stats_level != Flags::default().stats_level {
            options.statistics_level(flags.stats_level)?;
        }
    }
    if flags.use_keep_filter {
        options.compaction_filter(|_, _, _| FilterVerdict::Keep);
    }
    if flags.use_uint64_comparator {
        options.comparator(KeyOrder {
            name: engine::UINT64_ORDER,
            compare: engine::compare_uint64,
        });
    }
    if flags.use_stderr_info_logger {
        options.log_to_stderr()?;
    }
    Ok(())
}
