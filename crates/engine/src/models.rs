//! Models of code that shares data without locks, or whose memory order matters. Loom runs each model in every order
//! of its threads' steps, and with every value that a weak memory order lets a load return (`cargo xtask loom`). The
//! models run the product's code. [`Memory`] tracks memory that is not atomic, such as the values of the cache.
//! Memtables have [models of their own](memtable::models).
//!
//! Mutants show that the models can fail. Their files are named `weak-*` (`cargo xtask mutants
//! --only weak`): each weakens one memory order, and a model must find it. The following memory orders are stronger
//! than necessary. With any of them relaxed all models pass, as they should:
//!
//! - The release when an entry of the cache becomes empty, and the acquire when it is filled again: both are
//!   done under the shard's mutex, and readers do not touch an empty entry.
//! - The release of `appended` in a log's marks: the release of `submitted` comes after it.
//! - The acquire when a writer marks the queue or takes the lead under its lock: the lock orders them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::sync::Memory;
use base::sync::thread::{JoinHandle, spawn};
use memtable::models::{has, insert, memtable};
use table::BlockCache;
use table::block::{Block, BlockBuilder, Cursor, Keys};
use table::cache::CacheKey;

use crate::batch::WriteBatch;
use crate::catalog::family::Epoch;
use crate::commit::order::Order;
use crate::commit::plan::{Patience, Plan};
use crate::commit::queue::{Group, Queue, Request, Turn};
use crate::watermark::Watermark;
use options::WriteOptions;

fn join(threads: impl IntoIterator<Item = JoinHandle<()>>) {
    for thread in threads {
        assert!(thread.join().is_ok());
    }
}

/// A reader that sees that a write is visible finds the write.
pub fn what_is_visible_is_found() {
    let (memtable, visible) = (memtable(&[]), Arc::new(Watermark::at(0)));
    let writer = {
        let (memtable, visible) = (Arc::clone(&memtable), Arc::clone(&visible));
        spawn(move || {
            insert(&memtable, "b", 1);
            visible.raise(1);
        })
    };
    if visible.get() >= 1 {
        assert!(has(&memtable, "b"), "visible, and not there");
    }
    join([writer]);
    assert!(has(&memtable, "b"));
}

/// A thread that waits for a sequence number is woken, in whatever order the wait and the raise run.
pub fn watermark_wakes() {
    let mark = Arc::new(Watermark::at(0));
    let threads = [1, 2].map(|n| {
        let mark = Arc::clone(&mark);
        spawn(move || mark.raise(n))
    });
    assert!(mark.wait(2).is_ok());
    assert_eq!(mark.get(), 2);
    join(threads);
}

/// A callback is called exactly once after the raise has delivered.
pub fn watermark_calls_back() {
    let mark = Arc::new(Watermark::at(0));
    let called = Arc::new(AtomicU64::new(0));
    let raises = {
        let mark = Arc::clone(&mark);
        spawn(move || {
            mark.raise(1);
            mark.deliver();
        })
    };
    let calls = Arc::clone(&called);
    let tell = move |outcome: base::Result<()>| {
        assert!(outcome.is_ok());
        calls.fetch_add(1, Ordering::Relaxed);
    };
    mark.call(1, Box::new(tell));
    join([raises]);
    assert_eq!(called.load(Ordering::Relaxed), 1);
}

/// A reader that sees that a group is visible sees the writes of this group and of all groups before it.
pub fn groups_are_visible_in_their_order() {
    let order = Arc::new(Order::after(0));
    let memory = Arc::new([(); 2].map(|()| Memory::default()));
    let threads = [(); 2].map(|()| {
        let (order, memory) = (Arc::clone(&order), Arc::clone(&memory));
        spawn(move || {
            let mut ticket = order.begin(1);
            memory[ticket.last as usize - 1].written();
            ticket.end(true);
            ticket.wait();
            assert!(order.visible.get() >= ticket.last, "over, and not visible");
        })
    });
    let visible = order.visible.get() as usize;
    memory[..visible].iter().for_each(Memory::read);
    join(threads);
    assert_eq!(order.visible.get(), 2);
}

/// No group is inside while the gate is closed.
pub fn the_gate_is_closed() {
    let order = Arc::new(Order::after(0));
    let inside = Arc::new(Memory::default());
    let writers = [(); 2].map(|()| {
        let (order, inside) = (Arc::clone(&order), Arc::clone(&inside));
        spawn(move || {
            let gate = order.enter(Patience::All);
            assert!(gate.is_ok());
            inside.read();
        })
    });
    let closed = order.close(Patience::All).unwrap();
    inside.written();
    drop(closed);
    join(writers);
}

fn write(queue: &Queue, led: &Memory, written: &base::sync::atomic::AtomicU64) {
    let mut batch = WriteBatch::new();
    assert!(batch.put(b"k", b"v").is_ok());
    let request = Request {
        batch,
        plan: Plan::new(&WriteOptions::default(), false),
        checked: Epoch::default(),
    };
    match queue.enter(request, |_| Ok(())) {
        Turn::Done(_, result) => assert!(result.is_ok()),
        Turn::Lead(lead, guard) => {
            led.written();
            let followers = queue.followers(&lead, 1 << 20);
            let mut group = Group { lead, followers };
            written.fetch_add(group.count(), Ordering::Relaxed);
            drop(guard);
            group.finish(&Ok(()));
        }
    }
}

fn queue(barging: bool) {
    let queue = Arc::new(Queue::new(barging));
    let written = Arc::new(base::sync::atomic::AtomicU64::new(0));
    // The memory that a leader writes; the next leader comes after it.
    let led = Arc::new(Memory::default());
    let threads = [(); 2].map(|()| {
        let (queue, led, written) = (Arc::clone(&queue), Arc::clone(&led), Arc::clone(&written));
        spawn(move || write(&queue, &led, &written))
    });
    join(threads);
    assert_eq!(written.load(Ordering::Relaxed), 2, "each once");
}

/// Each writer is served, by itself or by a leader, and no writer sleeps forever.
pub fn writers_queue() {
    queue(false);
}

/// The same for the barging queue, where writers that are awake go first.
pub fn writers_barge() {
    queue(true);
}

fn block(key: CacheKey) -> Option<Block> {
    let mut builder = BlockBuilder::new(16);
    builder.add(&key.id.to_be_bytes(), &key.offset.to_be_bytes());
    Block::new(&builder.finish()).ok()
}

fn at(offset: u64) -> CacheKey {
    CacheKey { id: 1, offset }
}

/// The offset that a block was made for.
fn offset_of(block: &Block) -> Option<u64> {
    let mut cursor = Cursor::new(Keys::Plain);
    cursor.seek_to_first(block).ok()?;
    Some(u64::from_be_bytes(cursor.value(block).try_into().ok()?))
}

fn put(cache: &BlockCache, key: CacheKey) -> bool {
    block(key).is_some_and(|b| cache.insert(key, &b))
}

/// A hit returns the requested block, and the block does not change as long as it is pinned, whatever is put
/// in its place.
pub fn a_pinned_block_stays() {
    let blocks = [at(1), at(2)].map(|k| block(k).map_or(0, |b| BlockCache::charge(&b)));
    // Room for one block.
    let cache = Arc::new(BlockCache::new(blocks[0] + blocks[1] / 2));
    assert!(put(&cache, at(1)));
    let other = {
        let cache = Arc::clone(&cache);
        spawn(move || {
            put(&cache, at(2));
        })
    };
    for n in [1, 2] {
        if let Some(found) = cache.get(at(n)) {
            assert_eq!(offset_of(&found), Some(n));
        }
    }
    join([other]);
    assert!(cache.len() <= 1 && cache.pinned_usage() == 0);
}

/// While a reader runs, a block is erased and inserted again in the same entry, or another block in its place.
fn used_again(next: u64) {
    let cache = Arc::new(BlockCache::new(1 << 20));
    assert!(put(&cache, at(1)));
    let other = {
        let cache = Arc::clone(&cache);
        spawn(move || {
            cache.erase(at(1));
            put(&cache, at(next));
        })
    };
    for n in [1, next] {
        if let Some(found) = cache.get(at(n)) {
            assert_eq!(offset_of(&found), Some(n));
        }
    }
    join([other]);
    // A block that is requested while it is erased stays. The next block then has an entry of its own.
    assert!(cache.get(at(next)).is_some());
}

/// A block is erased and inserted again: a reader that has seen its old word in the table finds the new value.
pub fn a_block_comes_back() {
    used_again(1);
}

/// Another block gets the entry of a block that was erased.
pub fn an_entry_is_used_again() {
    used_again(2);
}
