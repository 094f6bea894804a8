//! Models of the memtable, which is read without a lock while it is written. Loom runs each model in every
//! order of its threads' steps, and with every value that a weak memory order lets a load return
//! (`cargo xtask loom`). The models run the product's code; blocks of the index are smaller, so that few
//! inserts split one. `base::sync::Memory` tracks memory that is not atomic: entries, blocks of the index,
//! chunks of the arena.
//!
//! Mutants show that the models can fail. Their files are named `weak-*` (`cargo xtask mutants
//! --only weak`): each weakens one memory order, and a model must find it. The following memory orders are
//! stronger than necessary. With any of them relaxed all models pass, as they should:
//!
//! - The release with which an entry is linked (`List::link`), and that of its slot in the index: both
//!   stores come after the release fence of `Block::begin`, and the entry was written before the fence. So
//!   the mutant links the entry before that fence. Slots above the lowest level need their release, because
//!   the blocks that they point to are made after the fence.
//! - `used` of a block: values read from a block count only if its version is unchanged.

use std::sync::Arc;

use base::sync::thread::{JoinHandle, spawn};
use base::{Comparator, FileNumber, SequenceNumber, ValueType, key};
use table::InternalIterator;

use crate::arena::Arena;
use crate::{Iter, Memtable, Settings};

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        assert!(thread.join().is_ok());
    }
}

/// A memtable with these keys; each has the value "v", and its place in the list as its sequence number.
pub fn memtable(keys: &[&str]) -> Arc<Memtable> {
    let settings = Settings {
        arena_block_size: 4096,
        ..Settings::new(Comparator::bytewise())
    };
    let memtable = Arc::new(Memtable::with(1, FileNumber(1), settings));
    for (i, key) in keys.iter().enumerate() {
        insert(&memtable, key, i as u64 + 1);
    }
    memtable
}

/// Adds a version with the value "v".
pub fn insert(memtable: &Memtable, key: &str, seq: u64) {
    memtable.insert(key.as_bytes(), SequenceNumber(seq), ValueType::Value, b"v");
}

/// Whether a key is there. Checks that its value is complete.
pub fn has(memtable: &Memtable, key: &str) -> bool {
    let seek = key::encode(key.as_bytes(), SequenceNumber::MAX, ValueType::FOR_SEEK);
    let mut found = false;
    memtable.versions(&seek, |_, value| {
        assert_eq!(value.bytes(), b"v", "half of an entry");
        found = true;
        false
    });
    found
}

/// Number of entries. Checks that they are complete and in order.
fn count(memtable: &Arc<Memtable>) -> usize {
    count_by(memtable.iter())
}

fn count_by(mut it: Iter) -> usize {
    let (mut entries, mut last) = (0, Vec::new());
    it.seek_to_first();
    while it.valid() {
        assert!(last.as_slice() < it.key(), "out of order");
        assert_eq!(it.value(), b"v", "half of an entry");
        last = it.key().to_vec();
        entries += 1;
        it.next();
    }
    entries
}

/// Two threads allocate, after `before` allocations of a quarter of a chunk.
fn allocate(before: usize) {
    let arena = Arc::new(Arena::new(4096, None));
    let alloc = |arena: &Arena| arena.alloc(1024).as_ptr() as usize;
    let mut taken: Vec<_> = (0..before).map(|_| alloc(&arena)).collect();
    let threads = [(); 2].map(|()| {
        let arena = Arc::clone(&arena);
        spawn(move || alloc(&arena))
    });
    taken.extend(threads.into_iter().filter_map(|t| t.join().ok()));
    taken.push(alloc(&arena));
    taken.sort_unstable();
    assert_eq!(taken.len(), before + 3);
    assert!(taken.windows(2).all(|w| w[0] + 1024 <= w[1]), "{taken:?}");
    assert!(arena.reserved() >= taken.len() * 1024);
}

/// Two threads that allocate from the same chunk get separate memory.
pub fn a_chunk_is_shared() {
    allocate(1);
}

/// The chunk is full: one of two threads makes a new one, and the other uses it.
pub fn a_chunk_is_full() {
    allocate(4);
}

/// A reader that reaches an entry sees all of it.
pub fn entries_are_whole() {
    let memtable = memtable(&["b"]);
    let writer = {
        let memtable = Arc::clone(&memtable);
        spawn(move || {
            insert(&memtable, "a", 2);
            insert(&memtable, "c", 3);
        })
    };
    assert!(count(&memtable) >= 1);
    join([writer]);
    assert_eq!(count(&memtable), 3);
}

/// The slots of a block move while a reader searches for their keys. A key may be found before it is
/// visible, but then it is complete.
pub fn slots_move_beside_a_reader() {
    let memtable = memtable(&["b", "d"]);
    let writer = {
        let memtable = Arc::clone(&memtable);
        spawn(move || insert(&memtable, "a", 3))
    };
    assert!(has(&memtable, "b"), "lost");
    has(&memtable, "a");
    join([writer]);
    assert!(["a", "b", "d"].iter().all(|k| has(&memtable, k)));
}

/// A block of the index is split, and gets a root above it, while a reader searches for earlier keys.
pub fn the_index_is_cut_beside_a_reader() {
    let memtable = memtable(&["a", "c", "e"]);
    let writer = {
        let memtable = Arc::clone(&memtable);
        spawn(move || insert(&memtable, "b", 4))
    };
    assert!(has(&memtable, "c"), "lost");
    join([writer]);
    assert_eq!(count(&memtable), 4);
    assert!(["a", "b", "c", "e"].iter().all(|k| has(&memtable, k)));
}

/// The same while a reader passes through all entries, and prefetches them through the index.
pub fn the_index_is_cut_beside_a_pass() {
    let memtable = memtable(&["a", "c", "e"]);
    let writer = {
        let memtable = Arc::clone(&memtable);
        spawn(move || insert(&memtable, "b", 4))
    };
    assert!(count_by(memtable.pass()) >= 3, "lost");
    join([writer]);
    assert_eq!(count(&memtable), 4);
}

/// A block below the root is split, so that the root gets another slot between two others.
pub fn a_lower_block_is_cut_beside_a_reader() {
    // Root over [a b d], which is full, and [e f g].
    let memtable = memtable(&["d", "e", "f", "g", "a", "b"]);
    let writer = {
        let memtable = Arc::clone(&memtable);
        spawn(move || insert(&memtable, "c", 7))
    };
    assert!(has(&memtable, "d"), "lost");
    join([writer]);
    assert_eq!(count(&memtable), 7);
    assert!(["a", "b", "c", "d", "e"].iter().all(|k| has(&memtable, k)));
}

/// Two threads insert; the first splits the block in which the second has searched for its place.
pub fn two_insert() {
    let memtable = memtable(&["b", "d", "f"]);
    let writers = ["a", "e"].map(|key| {
        let memtable = Arc::clone(&memtable);
        spawn(move || insert(&memtable, key, 4 + u64::from(key == "e")))
    });
    join(writers);
    assert_eq!(count(&memtable), 5);
    assert!(["a", "b", "d", "e", "f"].iter().all(|k| has(&memtable, k)));
}

/// The same below a root: the block that points to the split one changes too.
pub fn two_insert_below_a_root() {
    // Root over [a b d], which is full, and [e f g].
    let memtable = memtable(&["d", "e", "f", "g", "a", "b"]);
    let writer = {
        let memtable = Arc::clone(&memtable);
        spawn(move || insert(&memtable, "c", 7))
    };
    insert(&memtable, "cc", 8);
    join([writer]);
    assert_eq!(count(&memtable), 8);
    assert!(
        ["a", "b", "c", "cc", "d", "e"]
            .iter()
            .all(|k| has(&memtable, k))
    );
}
