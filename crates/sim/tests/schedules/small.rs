//! The concurrent parts of the engine, each by itself.

use std::collections::VecDeque;
use std::sync::Arc;

use base::rng::Rng;
use base::rounds::Rounds;
use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::explore::explore;
use base::sync::{Mutex, thread};
use ironstone::schedules;
use table::block::{Block, BlockBuilder};
use table::cache::{BlockCache, CacheKey, CompressedSecondaryCacheOptions, Priority};

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
fn rounds() {
    explore("rounds", 100, one_worker);
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
    let capacity = 1000 + rng.below(2000) as usize;
    let cache = Arc::new(if rng.one_in(2) {
        BlockCache::new(capacity)
    } else {
        let second = CompressedSecondaryCacheOptions {
            capacity: rng.below(3000) as usize,
            ..CompressedSecondaryCacheOptions::default()
        };
        BlockCache::with_secondary(capacity, &second)
    });
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
                        how => {
                            let pinned = cache.get(key).filter(|_| how == 4);
                            base::sync::time::switch();
                            let found = match pinned {
                                Some(pinned) => pinned.to_block(),
                                None => match cache.get_secondary(key, Some(Priority::Low)) {
                                    Some((found, _)) => found,
                                    None => continue,
                                },
                            };
                            let wanted = block(key);
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

/// Threads that wait for the rounds of a worker get their answers: the worker may leave some of what it took for later
/// rounds, take more in the middle of one, and end while some are waiting.
fn one_worker(seed: u64) {
    let mut rng = Rng::new(seed);
    let rounds = Arc::new(Rounds::default());
    let sent = Arc::new(Mutex::new(VecDeque::new()));
    let clients = 1 + rng.below(3);
    let each = 1 + rng.below(3);
    let threads: Vec<_> = (0..clients)
        .map(|_| {
            let (rounds, sent) = (Arc::clone(&rounds), Arc::clone(&sent));
            thread::spawn(move || {
                for _ in 0..each {
                    let answered = Arc::new(AtomicBool::new(false));
                    let mut round = rounds.next();
                    let part = (round, Arc::clone(&answered));
                    sent.lock().unwrap().push_back(part);
                    while !answered.load(Ordering::SeqCst) {
                        round = rounds.wait(round);
                    }
                }
            })
        })
        .collect();
    let mut left = clients * each;
    let mut taken = VecDeque::new();
    while left > 0 {
        let mut expected = None;
        for _ in 0..1 + rng.below(2) {
            if taken.is_empty() || rng.one_in(2) {
                rounds.begin();
                taken.append(&mut sent.lock().unwrap());
            }
            for _ in 0..rng.below(3) {
                let Some((round, answered)) = taken.pop_front() else {
                    break;
                };
                expected = expected.max(Some(round));
                answered.store(true, Ordering::SeqCst);
                left -= 1;
            }
        }
        match expected {
            // The last ones are told in another way that no round comes.
            Some(_) if left == 0 && rng.one_in(2) => rounds.end_all(),
            Some(expected) => rounds.end(expected),
            None => thread::yield_now(),
        }
    }
    for thread in threads {
        thread.join().unwrap();
    }
}
