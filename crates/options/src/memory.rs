//! `memory_limit`: one number that determines the sizes of the block cache and of the memtables.
//!
//! ```text
//!   memory_limit ─┬─ 7/8  block cache: blocks, indexes, filters and memtables together
//!                 │        └─ at most 2/8 for memtables, charged in steps; beyond that writers wait
//!                 └─ 1/8  not counted: buffers of flushes, compactions and logs
//! ```
//!
//! The cache never exceeds its capacity, and memory that is charged to it leaves less room for blocks. So the sum
//! stays below the limit, as long as indexes and filters leave room for the memtables. They are in memory, unless
//! `cache_index_and_filter_blocks` keeps them in the cache like other blocks.

use base::{Error, Result};

use super::{DbOptions, Env};

/// The smallest limit in bytes. Below it, not even a memtable with one arena block fits.
const LIMIT_MIN: u64 = 4 << 20;

/// The parts of a limit, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// The capacity of the block cache.
    pub cache: usize,
    /// The limit for all memtables, which are charged to the cache.
    pub write_buffers: usize,
}

impl Budget {
    /// The parts of `memory_limit`; `None` if it is 0.
    pub fn of(options: &DbOptions) -> Option<Self> {
        let limit = usize::try_from(options.memory_limit).ok()?;
        (limit > 0).then(|| Self {
            cache: limit - limit / 8,
            write_buffers: limit / 4,
        })
    }
}

/// Refuses a limit that is too small, or that is combined with settings that it replaces. Errors:
/// `InvalidArgument`, naming the settings.
pub fn check(options: &DbOptions, env: &Env) -> Result<()> {
    let limit = options.memory_limit;
    if limit == 0 {
        return Ok(());
    }
    if limit < LIMIT_MIN {
        return Err(
            Error::invalid_argument(format!("option memory_limit = {limit} is too small"))
                .hint(format!("0, or at least {LIMIT_MIN}")),
        );
    }
    let beside = [
        (options.db_write_buffer_size > 0, "db_write_buffer_size"),
        (env.block_cache.is_some(), "env.block_cache"),
        (
            env.write_buffer_manager.is_some(),
            "env.write_buffer_manager",
        ),
    ];
    match beside.iter().find(|(set, _)| *set) {
        None => Ok(()),
        Some((_, other)) => Err(Error::invalid_argument(format!(
            "option memory_limit = {limit} contradicts {other}, which it would replace"
        ))
        .hint("set one of them only")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use table::BlockCache;

    use super::*;
    use crate::Options;
    use crate::write_buffer_manager::WriteBufferManager;

    fn limited(bytes: u64) -> Options {
        let mut options = Options::default();
        options.db.memory_limit = bytes;
        options
    }

    #[test]
    fn the_parts_fit_into_the_limit() {
        assert_eq!(Budget::of(&DbOptions::default()), None);
        let budget = Budget::of(&limited(16 << 20).db).unwrap();
        assert_eq!((budget.cache, budget.write_buffers), (14 << 20, 4 << 20));
    }

    #[test]
    fn what_the_limit_replaces_is_refused_beside_it() {
        limited(0).validate().unwrap();
        limited(64 << 20).validate().unwrap();
        let refused = |options: Options, why: &str| {
            let e = options.validate().unwrap_err().to_string();
            assert!(e.contains(why), "{e}");
        };
        refused(limited(1 << 20), "memory_limit = 1048576 is too small");
        let mut options = limited(64 << 20);
        options.db.db_write_buffer_size = 1 << 20;
        refused(options, "contradicts db_write_buffer_size");
        let mut options = limited(64 << 20);
        options.env.block_cache = Some(Arc::new(BlockCache::new(1 << 20)));
        refused(options, "contradicts env.block_cache");
        let mut options = limited(64 << 20);
        let manager = WriteBufferManager::new(1 << 20, None, false);
        options.env.write_buffer_manager = Some(Arc::new(manager));
        refused(options, "contradicts env.write_buffer_manager");
    }
}
