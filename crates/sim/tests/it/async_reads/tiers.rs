//! The second, compressed tier of the block cache.

use ironstone::{CacheTier, CompressedSecondaryCacheOptions, FilterPolicy};
use table::options::IndexType;

use super::*;

/// A cache with room for a few blocks, and a second tier with room for more.
pub(super) fn two_tiers(first: usize, second: usize) -> Arc<BlockCache> {
    let second = CompressedSecondaryCacheOptions {
        capacity: second,
        ..CompressedSecondaryCacheOptions::default()
    };
    Arc::new(BlockCache::with_secondary(first, &second))
}

pub(super) fn with_metadata(o: &mut Options) {
    let table = &mut o.cf.table;
    table.cache_index_and_filter_blocks = true;
    table.filter_policy = FilterPolicy::Bloom { bits_per_key: 10.0 };
    table.index_type = IndexType::TwoLevel;
    table.partition_filters = true;
    table.metadata_block_size = 200;
}

fn ticks(options: &Options, ticker: Ticker) -> u64 {
    options.env.statistics.as_ref().unwrap().get(ticker)
}

#[test]
fn all_modes_agree_with_gets() {
    for mode in MODES {
        for (first, second, direct) in [
            (0, 1 << 20, true),
            (20_000, 60_000, false),
            (40_000, 4 << 20, true),
        ] {
            let dir = dirs::scratch().unwrap();
            let Some(mut o) = options_in(dir.path(), mode, (first.max(1), direct)) else {
                continue;
            };
            let cache = two_tiers(first, second);
            o.env.block_cache = Some(Arc::clone(&cache));
            with_metadata(&mut o);
            let (db, families) = fill(dir.path(), &o, 5);
            check(&db, &families, &mut Rng::new(1), 12);
            let mut it = db.cf(&families[1]).iterator().unwrap();
            for _ in 0..2 {
                it.seek_to_first();
                while it.valid() {
                    it.next();
                }
                it.status().unwrap();
            }
            drop(it);
            db.close().unwrap();
            let second = cache.secondary().unwrap();
            assert!(second.usage() <= second.capacity(), "{second:?}");
            // Nothing is evicted from a first tier that has room for nothing.
            assert_eq!(second.is_empty(), first == 0, "{second:?}");
        }
    }
}

/// What the second tier has is not read again, also by reads that may not read; it is counted by kind.
#[test]
fn what_it_has_is_not_read() {
    for tier in [
        CacheTier::Volatile,
        CacheTier::VolatileCompressed,
        CacheTier::NonVolatileBlock,
    ] {
        let mut s = Simulated::new(20_000, |o| {
            with_metadata(o);
            o.db.lowest_used_cache_tier = tier;
        });
        s.db.take().unwrap().close().unwrap();
        let cache = two_tiers(20_000, 8 << 20);
        s.options.env.block_cache = Some(Arc::clone(&cache));
        let (db, _) = open(Path::new("/db"), &s.options);
        let keys: Vec<_> = (0..KEYS).map(key).collect();
        for _ in 0..4 {
            db.multi_get(&keys)
                .into_iter()
                .for_each(|v| drop(v.unwrap()));
        }
        let second = cache.secondary().unwrap();
        let uses = tier != CacheTier::Volatile;
        assert_eq!(!second.is_empty(), uses);
        let count = |ticker| ticks(&s.options, ticker);
        let reads = || count(Ticker::LastLevelReadCount) + count(Ticker::NonLastLevelReadCount);
        let hits = || {
            [
                Ticker::SecondaryCacheDataHits,
                Ticker::SecondaryCacheIndexHits,
                Ticker::SecondaryCacheFilterHits,
            ]
            .map(count)
        };
        let (before, misses) = (reads(), count(Ticker::BlockCacheMiss));
        db.multi_get(&keys)
            .into_iter()
            .for_each(|v| drop(v.unwrap()));
        assert!(hits().iter().all(|&n| (n > 0) == uses), "{:?}", hits());
        let all: u64 = hits().iter().sum();
        assert_eq!(count(Ticker::SecondaryCacheHits), all);
        assert_eq!(count(Ticker::CompressedSecondaryCacheHits), all);
        let misses = count(Ticker::BlockCacheMiss) - misses;
        let read = reads() - before;
        assert_eq!(read < 200, uses, "{read} reads, {misses} misses");
        let cached = ReadOptions {
            read_tier: ReadTier::BlockCache,
            ..ReadOptions::default()
        };
        let found = keys.iter().filter(|k| db.with(&cached).get(k).is_ok());
        assert_eq!(found.count() > 2000, uses);
        db.close().unwrap();
    }
}
