//! The block cache: capacity, eviction, pins, and hits under concurrency.

use super::*;
use crate::block::BlockBuilder;
use base::rng::Rng;
use base::sync::atomic::AtomicBool;

/// A block of about `bytes` bytes that names its key.
fn block(key: CacheKey, bytes: usize) -> Block {
    let mut b = BlockBuilder::new(16);
    b.add(&key.id.to_be_bytes(), &key.offset.to_be_bytes());
    b.add(&[0xff; 8], &vec![7; bytes]);
    Block::new(&b.finish()).unwrap()
}

fn names(block: &Block) -> CacheKey {
    let e = block.entries();
    let number = |at: usize| u64::from_be_bytes(e[at..at + 8].try_into().unwrap());
    CacheKey {
        id: number(3),
        offset: number(11),
    }
}

fn key(id: u64, offset: u64) -> CacheKey {
    CacheKey { id, offset }
}

#[test]
fn what_was_put_in_is_found_until_it_is_evicted() {
    // The tables of all shards are filled: too slow for Miri.
    let (capacity, n) = if cfg!(miri) {
        (40_000, 80)
    } else {
        (1 << 20, 5000u64)
    };
    let cache = BlockCache::new(capacity);
    for i in 0..n {
        let k = key(i % 7, i * 4096);
        assert!(cache.get(k).is_none());
        assert!(cache.insert(k, &block(k, 1000)));
        assert_eq!(names(&cache.get(k).unwrap()), k);
        assert!(!cache.insert(k, &block(k, 1000)), "it is there already");
        assert!(cache.usage() <= cache.capacity());
    }
    assert!(cache.usage() > cache.capacity() - 4096);
    let n = cache.len();
    assert!(cfg!(miri) || (800..1000).contains(&n), "{n}");
    assert_eq!(cache.pinned_usage(), 0);
    cache.set_capacity(capacity / 10);
    assert!(cache.usage() <= capacity / 10);
    cache.set_capacity(0);
    assert!(cache.is_empty());
    assert_eq!(cache.usage(), 0);
    assert!(!cache.insert(key(1, 1), &block(key(1, 1), 1)));
}

#[test]
fn blocks_in_use_are_not_evicted_and_not_exceeded() {
    let cache = Arc::new(BlockCache::new(100_000));
    let held = key(1, 1);
    let first = block(held, 60_000);
    assert!(cache.insert(held, &first));
    // `first` is a counted reference, as an iterator has one.
    assert!(!cache.insert(key(1, 2), &block(key(1, 2), 60_000)));
    assert!(cache.get(held).is_some());
    assert!(cache.pinned_usage() > 60_000);
    drop(first);
    assert_eq!(cache.pinned_usage(), 0);
    {
        let _pinned = cache.get(held).unwrap();
        assert!(!cache.insert(key(1, 2), &block(key(1, 2), 60_000)));
        assert!(cache.pinned_usage() > 60_000);
    }
    assert!(cache.insert(key(1, 2), &block(key(1, 2), 60_000)));
    assert!(cache.get(held).is_none());
    cache.erase(key(1, 2));
    assert!(cache.get(key(1, 2)).is_none());

    let charge = cache.reserve(99_000);
    assert_eq!((cache.usage(), cache.pinned_usage()), (99_000, 99_000));
    assert!(!cache.insert(held, &block(held, 60_000)));
    drop(charge);
    assert!(cache.insert(held, &block(held, 60_000)));
}

/// Blocks larger than a shard's share are cached as long as the whole cache has room for them.
#[test]
fn large_blocks_share_the_whole_capacity() {
    let (shards, bytes) = if cfg!(miri) {
        (2, 3 << 20)
    } else {
        (32, 3 << 20)
    };
    let cache = BlockCache::new(shards * SHARD_BYTES_MIN);
    assert_eq!(cache.shards.len(), shards);
    let fit = (cache.capacity() / (bytes + 200)) as u64;
    let large: Vec<_> = (0..fit).map(|i| key(1, i)).collect();
    for k in &large {
        assert!(cache.insert(*k, &block(*k, bytes)), "{k:?}");
    }
    for k in &large {
        assert!(cache.get(*k).is_some(), "{k:?} of {fit}");
    }
    // One more evicts one, and small blocks find room among large ones.
    assert!(cache.insert(key(2, 0), &block(key(2, 0), bytes)));
    assert_eq!(cache.len(), large.len());
    for i in 0..200 {
        let small = key(3, i);
        assert!(cache.insert(small, &block(small, 1000)));
        assert!(cache.usage() <= cache.capacity());
    }
    assert!(cache.len() > large.len() + 190, "{}", cache.len());
    let too_large = block(key(4, 0), cache.capacity());
    assert!(!cache.insert(key(4, 0), &too_large));
    assert!(cache.len() > large.len() + 190, "nothing is evicted for it");
}

/// A block evicts from all shards, not everything from its own.
#[test]
#[cfg_attr(miri, ignore = "too slow")]
fn a_large_block_takes_a_little_from_each_shard() {
    let cache = BlockCache::new(16 * SHARD_BYTES_MIN);
    for i in 0..40_000 {
        cache.insert(key(1, i), &block(key(1, i), 1000));
    }
    assert!(cache.usage() > cache.capacity() - 4096);
    let before: Vec<_> = cache.shards.iter().map(Shard::usage).collect();
    assert!(cache.insert(key(2, 0), &block(key(2, 0), 8 << 20)));
    let home = cache.shard(key(2, 0).hash());
    for (shard, before) in cache.shards.iter().zip(before) {
        let left = shard.usage();
        assert!(
            std::ptr::eq(shard, home) || left > before * 2 / 3,
            "{left} of {before}"
        );
    }
}

/// With 64 shards, nothing stays above the capacity, whatever the sizes of the blocks.
#[test]
#[cfg_attr(miri, ignore = "too slow")]
fn a_smaller_capacity_holds_at_once() {
    for (bytes, count) in [(4000, 40_000u64), (1 << 20, 200)] {
        let cache = BlockCache::new(64 * SHARD_BYTES_MIN);
        assert_eq!(cache.shards.len(), 64);
        for i in 0..count {
            cache.insert(key(1, i), &block(key(1, i), bytes));
        }
        for part in [2, 10, 100] {
            cache.set_capacity(64 * SHARD_BYTES_MIN / part);
            assert!(cache.usage() <= cache.capacity(), "{bytes} in 1/{part}");
        }
        cache.set_capacity(0);
        assert_eq!((cache.usage(), cache.len()), (0, 0), "{bytes}");
    }
}

/// Memory that is reserved leaves less to all shards, and all go on caching.
#[test]
#[cfg_attr(miri, ignore = "too slow")]
fn with_much_reserved_every_shard_caches() {
    let cache = Arc::new(BlockCache::new(32 * SHARD_BYTES_MIN));
    let _reserved = cache.reserve(24 * SHARD_BYTES_MIN);
    for i in 0..20_000 {
        cache.insert(key(1, i), &block(key(1, i), 4000));
    }
    let share = cache.limit() / cache.shards.len();
    for (i, shard) in cache.shards.iter().enumerate() {
        let usage = shard.usage();
        assert!(usage > share / 4, "shard {i}: {usage} of {share}");
    }
    assert!(cache.usage() <= cache.capacity());
}

/// Blocks that were in use are evicted as soon as they are not.
#[test]
fn what_was_in_use_makes_room_afterwards() {
    let cache = Arc::new(BlockCache::new(100_000));
    let held = block(key(1, 1), 45_000);
    assert!(cache.insert(key(1, 1), &held));
    assert!(!cache.insert(key(1, 2), &block(key(1, 2), 60_000)));
    drop(held);
    assert!(cache.insert(key(1, 2), &block(key(1, 2), 60_000)));

    // A capacity that falls while all is in use.
    let held = cache.get(key(1, 2)).unwrap().to_block();
    cache.set_capacity(50_000);
    drop(held);
    let mut refused = 0;
    for i in 0..200u64 {
        let bytes = if i % 2 == 0 { 20_000 } else { 40_000 };
        let new = block(key(2, i), bytes);
        refused += u64::from(!cache.insert(key(2, i), &new));
        assert!(cache.usage() <= 50_000);
    }
    assert!(refused < 2, "{refused} of 200");

    // Reservations while all is in use, and afterwards.
    cache.set_capacity(100_000);
    let all: Vec<_> = (0..9).map(|i| block(key(3, i), 10_000)).collect();
    for (i, b) in all.iter().enumerate() {
        cache.insert(key(3, i as u64), b);
    }
    let mut reserved = vec![cache.reserve(20_000)];
    drop(all);
    for _ in 0..15 {
        reserved.push(cache.reserve(5000));
        assert!(cache.usage() <= 100_000, "{}", cache.usage());
    }
}

/// What cannot fit beside the blocks that are in use evicts nothing.
#[test]
#[cfg_attr(miri, ignore = "too slow")]
fn a_block_that_cannot_fit_evicts_nothing() {
    let bytes = 1 << 20;
    let cache = BlockCache::new(16 * bytes);
    let held: Vec<_> = (0..8)
        .map(|i| {
            let b = block(key(1, i), bytes);
            assert!(cache.insert(key(1, i), &b));
            b
        })
        .collect();
    let small = block(key(2, 0), 1000);
    assert!(cache.insert(key(2, 0), &small));
    drop(small);
    for _ in 0..3 {
        assert!(!cache.insert(key(3, 0), &block(key(3, 0), 9 * bytes)));
        assert!(cache.get(key(2, 0)).is_some());
    }
    drop(held);
    assert!(cache.insert(key(3, 0), &block(key(3, 0), 9 * bytes)));
}

#[test]
fn what_is_used_again_stays_longer() {
    let cache = BlockCache::new(1 << 20);
    let (rounds, few) = if cfg!(miri) { (1, 20) } else { (20u64, 1) };
    let hot: Vec<_> = (0..200 / few).map(|i| key(1, i)).collect();
    for k in &hot {
        cache.insert(*k, &block(*k, 1000));
    }
    let mut misses = 0;
    for round in 0..rounds {
        for i in 0..400 / few {
            let k = key(2, round * 1000 + i);
            cache.insert(k, &block(k, 1000));
        }
        misses += hot.iter().filter(|k| cache.get(**k).is_none()).count();
    }
    assert!(
        misses < rounds as usize,
        "{misses} of {} were evicted by a scan",
        20 * hot.len()
    );
}

/// Readers on several threads, against inserts, evictions, erasures and changes of capacity: each
/// hit must be the block that was asked for, intact while it is held.
#[test]
fn concurrent_hits_always_return_the_right_block() {
    let cache = Arc::new(BlockCache::new(300_000));
    let stop = AtomicBool::new(false);
    let hits = AtomicU64::new(0);
    base::sync::thread::scope(|s| {
        for t in 0..3u64 {
            let (cache, stop, hits) = (&cache, &stop, &hits);
            s.spawn(move || {
                let mut rng = Rng::new(t);
                let mut held = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    let k = key(rng.below(3), rng.below(500));
                    if let Some(found) = cache.get(k) {
                        assert_eq!(names(&found), k);
                        hits.fetch_add(1, Ordering::Relaxed);
                        if rng.one_in(50) {
                            held.push((k, found.to_block()));
                        }
                    } else {
                        let size = rng.below(2000) as usize;
                        cache.insert(k, &block(k, size));
                    }
                    if held.len() > 20 {
                        for (k, b) in held.drain(..) {
                            assert_eq!(names(&b), k);
                        }
                    }
                }
            });
        }
        let mut rng = Rng::new(99);
        let (rounds, enough) = if cfg!(miri) { (60, 0) } else { (30_000, 1000) };
        let mut round = 0;
        // Lets the readers run even on a busy machine.
        while round < rounds || hits.load(Ordering::Relaxed) < enough {
            round += 1;
            match rng.below(100) {
                0 => cache.set_capacity(100_000 + rng.below(400_000) as usize),
                1 => drop(cache.reserve(rng.below(100_000) as usize)),
                2 => assert!(cache.pinned_usage() <= 600_000),
                3..30 => cache.erase(key(rng.below(3), rng.below(500))),
                _ => {
                    let k = key(rng.below(3), rng.below(500));
                    cache.insert(k, &block(k, 500));
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    });
    assert_eq!(cache.pinned_usage(), 0);
    cache.set_capacity(0);
    assert_eq!((cache.len(), cache.usage()), (0, 0));
}

/// Blocks of all sizes from several threads, into several shards: the capacity holds when all is quiet, the cache
/// stays full, and its counts agree with what is in it (checked when it is dropped).
#[test]
#[cfg_attr(miri, ignore = "too slow")]
fn blocks_of_all_sizes_come_at_once() {
    let cache = Arc::new(BlockCache::new(16 << 20));
    assert_eq!(cache.shards.len(), 8);
    for round in 0..20u64 {
        base::sync::thread::scope(|s| {
            for t in 0..4u64 {
                let cache = &cache;
                s.spawn(move || {
                    let mut rng = Rng::new(100 * round + t);
                    let mut held = Vec::new();
                    for _ in 0..300 {
                        let k = key(rng.below(3), rng.below(400));
                        if let Some(found) = cache.get(k) {
                            assert_eq!(names(&found), k);
                            held.push(found.to_block());
                            if held.len() > 2 {
                                held.remove(0);
                            }
                        } else {
                            let size = 1000 << rng.below(11);
                            cache.insert(k, &block(k, size));
                        }
                    }
                });
            }
            let mut rng = Rng::new(round);
            for _ in 0..500 {
                match rng.below(3) {
                    0 => cache.set_capacity((1 + rng.below(15) as usize) << 20),
                    1 => drop(cache.reserve(rng.below(8 << 20) as usize)),
                    _ => cache.erase(key(rng.below(3), rng.below(400))),
                }
            }
        });
        assert!(cache.usage() <= cache.capacity(), "{}", cache.usage());
        cache.set_capacity(16 << 20);
        for i in 0..64 {
            cache.insert(key(5 + round, i), &block(key(5 + round, i), 400_000));
        }
        assert!(cache.usage() <= cache.capacity());
        assert!(
            cache.usage() > 12 << 20,
            "{} in round {round}",
            cache.usage()
        );
    }
}

#[test]
fn a_shard_grows_its_table_and_chunks() {
    let cache = BlockCache::new(64 << 20);
    let n = if cfg!(miri) { 300 } else { 100_000 };
    let keys: Vec<_> = (0..n).map(|i| key(i % 3, i)).collect();
    for k in &keys {
        assert!(cache.insert(*k, &block(*k, 1)));
    }
    assert_eq!(cache.len(), keys.len());
    for k in &keys {
        assert_eq!(names(&cache.get(*k).unwrap()), *k);
    }
    for k in keys.iter().step_by(2) {
        cache.erase(*k);
    }
    for (i, k) in keys.iter().enumerate() {
        assert_eq!(cache.get(*k).is_some(), i % 2 == 1);
    }
}

/// Removing a pin that was not taken would remove another reader's, whose block could then be freed
/// while it is used.
#[test]
#[should_panic(expected = "a pin is given back twice")]
#[cfg_attr(not(debug_assertions), ignore = "not checked")]
fn a_pin_is_given_back_once() {
    let cache = BlockCache::new(1 << 20);
    let k = key(1, 1);
    assert!(cache.insert(k, &block(k, 100)));
    let pinned = cache.get(k).unwrap();
    pinned.entry.let_go();
}
