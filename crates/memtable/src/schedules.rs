//! Schedules of a memtable's threads: `cargo xtask schedules` draws them. Each function is the body of one
//! schedule, which `seed` varies.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::rng::Rng;
use base::sync::thread;
use base::{Comparator, FileNumber, SequenceNumber, ValueType, key};
use table::InternalIterator;

use crate::{Memtable, Settings};

/// A reader of a memtable finds all earlier entries, in order, while other threads insert.
pub fn inserts_beside_readers(seed: u64) {
    let mut rng = Rng::new(seed);
    let settings = Settings {
        arena_block_size: 4096,
        ..Settings::new(Comparator::bytewise())
    };
    let memtable = Arc::new(Memtable::with(1, FileNumber(1), settings));
    // Enough that blocks of the index are full, and are split while other threads search.
    let before = rng.below(200);
    let insert = |m: &Memtable, n: u64, seq: u64| {
        let key = format!("{:04}", n * 7919 % 10_000);
        m.insert(key.as_bytes(), SequenceNumber(seq), ValueType::Value, b"v");
    };
    for n in 0..before {
        insert(&memtable, n, n + 1);
    }
    let done = Arc::new(AtomicU64::new(0));
    let mut threads = Vec::new();
    let writers = 1 + rng.below(3);
    for w in 0..writers {
        let (memtable, done) = (Arc::clone(&memtable), Arc::clone(&done));
        threads.push(thread::spawn(move || {
            for i in 0..6 {
                let n = before + i * writers + w;
                insert(&memtable, n, n + 1);
                done.fetch_add(1, Ordering::SeqCst);
            }
        }));
    }
    for _ in 0..1 + rng.below(2) {
        let (memtable, done) = (Arc::clone(&memtable), Arc::clone(&done));
        let at = rng.below(10_000);
        threads.push(thread::spawn(move || {
            let least = before + done.load(Ordering::SeqCst);
            assert!(pass(&memtable) >= least, "an entry is not found");
            let mut it = memtable.iter();
            let target = format!("{at:04}");
            let target = key::encode(target.as_bytes(), SequenceNumber(1), ValueType::FOR_SEEK);
            it.seek_for_prev(&target);
            assert!(!it.valid() || key::user_key(it.key()) <= key::user_key(&target));
        }));
    }
    for thread in threads {
        assert!(thread.join().is_ok());
    }
    assert_eq!(pass(&memtable), before + 6 * writers);
}

/// Number of entries. Checks their order.
fn pass(memtable: &Arc<Memtable>) -> u64 {
    let mut it = memtable.iter();
    let (mut entries, mut last) = (0, Vec::new());
    it.seek_to_first();
    while it.valid() {
        assert!(last.as_slice() < it.key(), "out of order");
        last = it.key().to_vec();
        entries += 1;
        it.next();
    }
    entries
}
