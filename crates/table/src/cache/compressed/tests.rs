//! The second tier of the block cache: what is admitted, what comes back, and how much it holds.

use std::sync::Arc;

use base::rng::Rng;

use super::*;
use crate::block::BlockBuilder;
use crate::cache::{Priority, Tier};

fn key(offset: u64) -> CacheKey {
    CacheKey { id: 1, offset }
}

/// A block of about `bytes` bytes, which can be compressed to half of that or not at all.
fn block(key: CacheKey, bytes: usize, compressible: bool) -> Block {
    let mut rng = Rng::new(key.offset);
    let mut b = BlockBuilder::new(16);
    b.add(&key.offset.to_be_bytes(), &key.id.to_be_bytes());
    for n in 0..(bytes / 100) as u64 {
        let random = if compressible { 30 } else { 90 };
        let mut value: Vec<_> = (0..random).map(|_| rng.next_u64() as u8).collect();
        value.resize(90, 7);
        b.add(&(key.offset + 1 + n).to_be_bytes(), &value);
    }
    Block::new(&b.finish()).unwrap()
}

fn same(a: &Block, b: &Block) -> bool {
    a.for_compression() == b.for_compression()
}

/// A cache whose first tier has room for one of the blocks.
fn tiers(capacity: usize, kind: CompressionType) -> BlockCache {
    let secondary = CompressedSecondaryCacheOptions {
        capacity,
        compression_type: kind,
        ..CompressedSecondaryCacheOptions::default()
    };
    BlockCache::with_secondary(6000, &secondary)
}

/// Inserts blocks one after the other, each of which evicts the one before.
fn pass(cache: &BlockCache, keys: std::ops::Range<u64>) {
    for n in keys {
        cache.insert(key(n), &block(key(n), 4000, true));
    }
}

const KINDS: [CompressionType; 7] = [
    CompressionType::None,
    CompressionType::Snappy,
    CompressionType::Zlib,
    CompressionType::BZip2,
    CompressionType::Lz4,
    CompressionType::Lz4hc,
    CompressionType::Zstd,
];

#[test]
#[cfg_attr(miri, ignore = "C code")]
fn what_is_evicted_twice_comes_back() {
    for kind in KINDS {
        let cache = tiers(1 << 20, kind);
        let second = cache.secondary().unwrap();
        pass(&cache, 0..100);
        assert!(second.is_empty(), "each was evicted once");
        pass(&cache, 0..100);
        // Two may share a tag, and then one of them is seen as new.
        assert!((60..=100).contains(&second.len()), "{kind:?}: {second:?}");
        let whole = 100 * (block(key(1), 4000, true).memory() + 80);
        let part = second.usage() * 100 / second.len() * 100 / whole;
        let fits = match kind {
            CompressionType::None => part > 95,
            _ => part < 60,
        };
        assert!(fits, "{kind:?}: {part} % of the bytes");
        let mut found = 0;
        for n in 0..100 {
            if let Some((got, promoted)) = cache.get_secondary(key(n), Some(Priority::Low)) {
                assert!(same(&got, &block(key(n), 4000, true)) && !promoted);
                found += 1;
            }
        }
        assert_eq!(found, second.len());
    }
}

#[test]
#[cfg_attr(miri, ignore = "C code")]
fn the_second_hit_promotes() {
    let cache = tiers(1 << 20, CompressionType::Lz4);
    for _ in 0..2 {
        pass(&cache, 0..2);
    }
    assert!(cache.get(key(0)).is_none());
    let low = Some(Priority::Low);
    let hit = |promote| cache.get_secondary(key(0), promote).unwrap().1;
    assert!(
        !hit(None) && !hit(None),
        "of reads that do not fill the cache"
    );
    assert!(!hit(low) && cache.get(key(0)).is_none());
    assert!(hit(low) && cache.get(key(0)).is_some());
    let second = cache.secondary().unwrap();
    assert_eq!(second.len(), 2, "the other one was evicted for it");
    // Evicted again, it need not be compressed, and is asked for twice again.
    pass(&cache, 5..6);
    assert!(cache.get(key(0)).is_none() && !hit(low) && !hit(None));
    assert!(
        cache.get(key(0)).is_none(),
        "a read that does not fill the cache"
    );
}

#[test]
#[cfg_attr(miri, ignore = "C code")]
fn what_does_not_shrink_is_kept_as_it_is() {
    let cache = tiers(1 << 20, CompressionType::Lz4);
    let filter = CacheKey {
        id: 1,
        offset: BlockKind::Filter.place(9),
    };
    // Whoever holds a block keeps it in the first tier.
    let random = || block(key(3), 4000, false);
    let zeros = || Block::raw(&[1, 2, 3], &[0; 4000]).unwrap();
    for _ in 0..2 {
        assert!(cache.insert(key(3), &random()) && cache.insert(filter, &zeros()));
        pass(&cache, 100..101);
    }
    let second = cache.secondary().unwrap();
    for (key, block) in [(key(3), random()), (filter, zeros())] {
        let kept = second.blocks.get(key).unwrap();
        assert!(kept.compressed_parts().is_none());
        drop(kept);
        assert!(same(&cache.get_secondary(key, None).unwrap().0, &block));
    }
}

/// A block that is in both tiers has memory of its own in each: otherwise, each would keep the other one from leaving.
#[test]
#[cfg_attr(miri, ignore = "C code")]
fn what_was_promoted_can_be_evicted() {
    let cache = tiers(1 << 20, CompressionType::Lz4);
    let filter = CacheKey {
        id: 1,
        offset: BlockKind::Filter.place(9),
    };
    let make = |what: CacheKey| match what.kind() {
        BlockKind::Filter => Block::raw(&[1], &[0; 4000]).unwrap(),
        _ => block(what, 4000, what.offset == 4),
    };
    let all = [key(3), key(4), filter];
    for what in all {
        for _ in 0..2 {
            assert!(cache.insert(what, &make(what)));
            pass(&cache, 100..101);
        }
        let promoted = [0; 2].map(|_| cache.get_secondary(what, Some(Priority::Low)).unwrap().1);
        assert_eq!(promoted, [false, true]);
        assert!(same(&cache.get(what).unwrap(), &make(what)));
        assert_eq!(cache.pinned_usage(), 0);
        pass(&cache, 100..101);
        assert!(cache.get(what).is_none(), "{what:?}");
        // It is in the second tier at once, whether it was compressed or not.
        assert!(same(
            &cache.get_secondary(what, None).unwrap().0,
            &make(what)
        ));
    }
    let second = cache.secondary().unwrap();
    assert_eq!(second.blocks.pinned_usage(), 0);
    second.set_capacity(0);
    cache.set_capacity(0);
    assert!(second.is_empty() && cache.is_empty());
}

/// Large blocks have more memory than they need, and the memory of blocks that are gone. None of it comes back.
#[test]
#[cfg_attr(miri, ignore = "C code")]
fn large_blocks_come_back_as_they_were() {
    let secondary = CompressedSecondaryCacheOptions {
        capacity: 8 << 20,
        ..CompressedSecondaryCacheOptions::default()
    };
    let cache = BlockCache::with_secondary(150_000, &secondary);
    let cmp = base::Comparator::bytewise();
    for n in 0..40_u64 {
        let len = 33_000 + n as usize * 777;
        let bytes = vec![n as u8 + 1; len];
        let index = || Block::raw(&[9; 10], &bytes).unwrap();
        let values = || {
            let mut b = BlockBuilder::new(16);
            b.add(b"a key of 20 bytes...", &bytes);
            let stored = b.finish();
            let fill = |out: &mut [u8]| {
                out.copy_from_slice(&stored);
                Ok(())
            };
            Block::filled(stored.len(), &cmp, fill).unwrap()
        };
        let (at, data) = (CacheKey { id: 7, offset: n }, key(n));
        for _ in 0..3 {
            cache.insert(at, &index());
            cache.insert(data, &values());
            for filler in 0..3 {
                cache.insert(key(1000 + filler), &block(key(filler), 60_000, true));
            }
        }
        let (got, _) = cache.get_secondary(at, None).unwrap();
        assert_eq!(got.raw_parts(), (&[9; 10][..], &bytes[..]));
        assert_eq!(got.memory(), index().memory());
        let (got, _) = cache.get_secondary(data, None).unwrap();
        assert!(got.memory() <= values().memory());
        let mut cursor = crate::block::Cursor::new(crate::block::Keys::Plain);
        assert!(cursor.seek_to_first(&got).unwrap());
        assert_eq!(cursor.value(&got), bytes);
        assert!(!cursor.next(&got).unwrap());
    }
}

/// A tier that was made small, or without room, and grows admits as others do.
#[test]
#[cfg_attr(miri, ignore = "C code")]
fn a_tier_can_grow() {
    let cache = tiers(0, CompressionType::Lz4);
    let second = cache.secondary().unwrap();
    pass(&cache, 0..100);
    second.set_capacity(1 << 20);
    for _ in 0..2 {
        pass(&cache, 0..100);
    }
    second.set_capacity(1 << 30);
    second.set_capacity(1 << 20);
    assert!((60..=100).contains(&second.len()), "{second:?}");
}

/// An insertion that evicts nothing is refused once the tier is full.
#[test]
#[cfg_attr(miri, ignore = "C code")]
fn room_is_not_made_for_a_warm_start() {
    let cache = tiers(20_000, CompressionType::Lz4);
    for tier in [Tier::First, Tier::Second] {
        let inserted = |n| cache.insert_into(key(n), &block(key(n), 3000, true), tier);
        let charges: Vec<_> = (0..50).map(inserted).collect();
        let usage = match tier {
            Tier::First => cache.usage(),
            Tier::Second => cache.secondary().unwrap().usage(),
        };
        assert_eq!(charges.iter().sum::<usize>(), usage);
        assert!(charges.first() > Some(&0) && charges.last() == Some(&0));
        assert!(cache.has(key(0), tier) && !cache.has(key(49), tier));
    }
    let no_second = BlockCache::new(6000);
    assert_eq!(
        no_second.insert_into(key(1), &block(key(1), 100, true), Tier::Second),
        0
    );
    assert_eq!(no_second.tier_for(key(1), Tier::Second), Tier::First);
}

#[test]
fn blocks_of_the_first_tier_only_stay_out() {
    let cache = tiers(1 << 20, CompressionType::Lz4);
    let id = cache.new_id_of_first_tier();
    for n in 0..20 {
        let key = CacheKey { id, offset: n % 2 };
        cache.insert(key, &block(key, 4000, true));
        assert!(cache.get_secondary(key, None).is_none());
    }
    assert!(cache.secondary().unwrap().is_empty());
    assert_ne!(id, cache.new_id_of_first_tier());
}

#[test]
#[cfg_attr(miri, ignore = "C code")]
fn the_capacity_is_kept() {
    for capacity in [0, 1, 300, 3000, 20_000, 100_000] {
        let cache = tiers(capacity, CompressionType::Lz4);
        let second = cache.secondary().unwrap();
        for _ in 0..4 {
            pass(&cache, 0..100);
            assert!(second.usage() + second.seen.memory() <= capacity.max(second.seen.memory()));
        }
        assert_eq!(second.is_empty(), capacity <= 300, "{capacity}");
        assert_eq!(second.capacity(), capacity);
        second.set_capacity(1000);
        assert!(second.usage() <= 1000 && second.capacity() == 1000);
        second.set_capacity(0);
        assert!(second.is_empty());
        pass(&cache, 0..100);
        assert!(second.is_empty());
    }
    let absurd = tiers(usize::MAX, CompressionType::Lz4);
    pass(&absurd, 0..2);
    pass(&absurd, 0..2);
    assert_eq!(absurd.secondary().unwrap().len(), 1);
}

/// Memory that is charged to the cache, and a lower capacity, evict without compression.
#[test]
fn what_is_evicted_for_memory_is_dropped() {
    let cache = Arc::new(tiers(1 << 20, CompressionType::Lz4));
    for n in 0..10 {
        let key = key(n % 2);
        assert!(cache.insert(key, &block(key, 4000, true)));
        if n % 4 < 2 {
            drop(cache.reserve(6000));
        } else {
            cache.set_capacity(0);
            cache.set_capacity(6000);
        }
        assert!(cache.is_empty());
    }
    assert!(cache.secondary().unwrap().is_empty());
}

#[test]
#[cfg_attr(miri, ignore = "C code")]
fn hits_beside_evictions_return_the_right_block() {
    let options = CompressedSecondaryCacheOptions {
        capacity: 60_000,
        ..CompressedSecondaryCacheOptions::default()
    };
    let cache = &BlockCache::with_secondary(30_000, &options);
    base::sync::thread::scope(|s| {
        for thread in 0..4 {
            s.spawn(move || {
                let mut rng = Rng::new(thread);
                for _ in 0..3000 {
                    let key = key(rng.below(40));
                    let found = match cache.get(key) {
                        Some(pinned) => Some(pinned.to_block()),
                        None => cache
                            .get_secondary(key, Some(Priority::Low))
                            .map(|(b, _)| b),
                    };
                    match found {
                        Some(found) => assert!(same(&found, &block(key, 3000, true))),
                        None => drop(cache.insert(key, &block(key, 3000, true))),
                    }
                }
            });
        }
    });
    let second = cache.secondary().unwrap();
    assert!(cache.pinned_usage() == 0 && second.blocks.pinned_usage() == 0 && !second.is_empty());
}
