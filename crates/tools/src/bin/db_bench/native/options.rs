//! The options of a database that the flags ask for.

use std::sync::Arc;

use base::stats::{Statistics, StatsLevel};
use base::{Error, Result};
use ironstone::options::codec;
use ironstone::{
    BlockCache, CompactionFilter, Comparator, CompressedSecondaryCacheOptions, FilterDecision,
    FilterValue, Options, RateLimiter, RateLimiterMode, RateLimiterOptions, RowCache,
    UserComparator, WriteBufferManager,
};

use crate::engine;
use crate::flags::{self, Flags, Place};

/// The flags' options. A flag for an option that Ironstone does not have is refused unless it has
/// its default value.
pub(super) fn options(flags: &Flags) -> Result<Options> {
    if let Some(error) = flags::refused_by(flags, "ironstone") {
        return Err(Error::not_supported(error));
    }
    let mut options = Options::default();
    options.db.create_if_missing = true;
    for option in crate::options::options(flags)? {
        let text = format!("{}={}", option.name, option.value);
        let set = match option.place {
            Place::Db => options.db.with_text(&text).map(|db| options.db = db),
            Place::Cf => options.cf.with_text(&text).map(|cf| options.cf = cf),
            Place::Table => {
                let text = format!("block_based_table_factory={{{text}}}");
                options.cf.with_text(&text).map(|cf| options.cf = cf)
            }
        };
        match set {
            // In an OPTIONS file.
            Err(_) if codec::is_object(&option.name) => {
                eprintln!(
                    "WARNING: option {} is an object; it is not used",
                    option.name
                );
            }
            Err(e) if !option.is_default => {
                let Some(reason) = flags::by_ironstone(option.flag) else {
                    return Err(e);
                };
                let flag = option.flag;
                return Err(Error::not_supported(format!(
                    "flag '{flag}' with --engine=ironstone: {reason}"
                )));
            }
            _ => {}
        }
    }
    objects(flags, &mut options)?;
    Ok(options)
}

/// Sets the options that have no text form.
fn objects(flags: &Flags, options: &mut Options) -> Result<()> {
    if flags.rate_limiter_bytes_per_sec > 0 {
        let limiter = RateLimiter::new(limiter(flags), Arc::clone(&options.env.clock));
        options.env.rate_limiter = Some(Arc::new(limiter));
    }
    if flags
        .own
        .get("memory_limit")
        .is_none_or(|bytes| bytes == "0")
    {
        caches(flags, options)?;
    }
    if flags.row_cache_size > 0 {
        let rows = RowCache::new(flags.row_cache_size as usize);
        options.env.row_cache = Some(Arc::new(rows));
    }
    if crate::options::statistics(flags)? {
        let statistics = Statistics::new();
        statistics.set_level(match flags.stats_level {
            0 => StatsLevel::DisableAll,
            1 => StatsLevel::ExceptHistogramOrTimers,
            2 => StatsLevel::ExceptTimers,
            3 => StatsLevel::ExceptDetailedTimers,
            _ => StatsLevel::All,
        });
        options.env.statistics = Some(Arc::new(statistics));
    }
    if flags.use_keep_filter {
        options.cf.compaction_filter = Some(Arc::new(KeepFilter));
    }
    if flags.use_uint64_comparator {
        options.cf.comparator = Comparator::user(Arc::new(Uint64Order));
    }
    Ok(())
}

/// The block cache, and the memory that is charged to it. `memory_limit` creates its own cache.
fn caches(flags: &Flags, options: &mut Options) -> Result<()> {
    let bytes = flags.cache_size as usize;
    let cache = Arc::new(if flags.use_compressed_secondary_cache {
        BlockCache::with_secondary(bytes, &second_tier(flags)?)
    } else {
        BlockCache::new(bytes)
    });
    if flags.cost_write_buffer_to_cache || flags.db_write_buffer_size != 0 {
        let bytes = flags.db_write_buffer_size.max(0).unsigned_abs() as usize;
        let manager = WriteBufferManager::new(bytes, Some(Arc::clone(&cache)), false);
        options.env.write_buffer_manager = Some(Arc::new(manager));
    }
    options.env.block_cache = Some(cache);
    Ok(())
}

fn second_tier(flags: &Flags) -> Result<CompressedSecondaryCacheOptions> {
    const KIND: &str = "compressed_secondary_cache_compression_type";
    let kind = &flags.compressed_secondary_cache_compression_type;
    Ok(CompressedSecondaryCacheOptions {
        capacity: flags.compressed_secondary_cache_size.max(0) as usize,
        compression_type: crate::options::compression_kind(KIND, kind)?,
        compression_level: flags.compressed_secondary_cache_compression_level,
    })
}

/// `--use_keep_filter`.
struct KeepFilter;

impl CompactionFilter for KeepFilter {
    fn name(&self) -> &'static str {
        "KeepFilter"
    }
    fn filter(&self, _: usize, _: &[u8], _: FilterValue<'_>) -> FilterDecision {
        FilterDecision::Keep
    }
}

/// `--use_uint64_comparator`.
struct Uint64Order;

impl UserComparator for Uint64Order {
    fn name(&self) -> &'static str {
        engine::UINT64_ORDER.to_str().unwrap_or_default()
    }
    fn compare(&self, a: &[u8], b: &[u8]) -> std::cmp::Ordering {
        engine::compare_uint64(a, b)
    }
}

fn limiter(flags: &Flags) -> RateLimiterOptions {
    RateLimiterOptions {
        refill_period_us: flags.rate_limiter_refill_period_us as u64,
        auto_tuned: flags.rate_limiter_auto_tuned,
        mode: if flags.rate_limit_bg_reads {
            RateLimiterMode::ReadsOnly
        } else {
            RateLimiterMode::WritesOnly
        },
        ..RateLimiterOptions::new(flags.rate_limiter_bytes_per_sec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A value other than the default, and the settings that the flag needs to have an effect.
    fn other(name: &str) -> Vec<String> {
        let value = match name {
            "experimental_mempurge_threshold" | "read_triggered_compaction_threshold" => "1.5",
            "blob_garbage_collection_age_cutoff"
            | "blob_garbage_collection_force_threshold"
            | "uniform_cv_threshold" => "0.5",
            name if name.contains("_per_key") && name.contains("bytes") => "8",
            _ => "",
        };
        if value.is_empty() {
            let on = [format!("--{name}"), format!("--{name}=77")];
            return on.to_vec();
        }
        vec![format!("--{name}={value}")]
    }

    #[test]
    fn what_the_engine_refuses_is_told_with_a_reason() {
        for (reason, names) in flags::ENGINE {
            for name in *names {
                let errors: Vec<String> = other(name)
                    .into_iter()
                    .filter_map(|text| match flags::parse(&[text]) {
                        Ok(flags::Command::Run(flags)) => options(&flags).err(),
                        _ => None,
                    })
                    .map(|e| e.to_string())
                    .collect();
                let wanted = format!("flag '{name}' with --engine=ironstone: {reason}");
                assert!(
                    errors.iter().any(|e| e.contains(&wanted)),
                    "{name}: {errors:?}"
                );
            }
        }
    }
}
