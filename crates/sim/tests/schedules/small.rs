//! The concurrent parts of the engine, each by itself.

use std::sync::Arc;

use base::rng::Rng;
use base::sync::explore::explore;
use base::sync::thread;
use ironstone::schedules;
use table::block::{Block, BlockBuilder};
use table::cache::{BlockCache, CacheKey};

#[test]
fn queue() {
    explore("queue", 100, schedules::queue);
}

#[test]
fn commit() {
    explore("commit", 100, schedules::commit);
}

#[test]
fn order() {
    explore("order", 100, schedules::order);
}

#[test]
fn watermark() {
    explore("watermark", 100, schedules::watermark);
}

#[test]
fn memtable() {
    explore("memtable", 5, memtable::schedules::inserts_beside_readers);
}

/// Each hit is the block of the requested key, while other threads insert, evict and erase.
#[test]
fn cache() {
    explore("cache", 50, one_cache);
}

fn block(key: CacheKey) -> Block {
    let mut b = BlockBuilder::new(16);
    b.add(
        &key.id.to_be_bytes(),
        &vec![7; 100 + 100 * key.offset as usize],
    );
    Block::new(&b.finish()).unwrap()
}

fn one_cache(seed: u64) {
    let mut rng = Rng::new(seed);
    let cache = Arc::new(BlockCache::new(1000 + rng.below(2000) as usize));
    let threads: Vec<_> = (0..2 + rng.below(2))
        .map(|_| {
            let cache = Arc::clone(&cache);
            let mut rng = Rng::new(rng.next_u64());
            thread::spawn(move || {
                for _ in 0..6 {
                    let key = CacheKey {
                        id: 1,
                        offset: rng.below(4),
                    };
                    match rng.below(6) {
                        0 => cache.erase(key),
                        1 => cache.set_capacity(rng.below(3000) as usize),
                        2..4 => drop(cache.insert(key, &block(key))),
                        _ => {
                            let Some(found) = cache.get(key) else {
                                continue;
                            };
                            base::sync::time::switch();
                            let (found, wanted) = (found.to_block(), block(key));
                            let [found, wanted] = [&found, &wanted].map(BlockCache::charge);
                            assert_eq!(found, wanted, "another block");
                        }
                    }
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    assert_eq!(cache.pinned_usage(), 0, "somebody still holds a block");
    cache.set_capacity(0);
    assert!(cache.is_empty());
}
