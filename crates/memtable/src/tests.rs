//! Tests of both representations: they give the same results.

use std::sync::Arc;

use base::rng::Rng;
use base::{Comparator, FileNumber, SequenceNumber, SliceTransform, ValueType, key};
use table::InternalIterator;

use super::*;

fn memtable(factory: MemtableFactory, bloom_bytes: usize) -> Arc<Memtable> {
    let settings = Settings {
        factory,
        bloom_bytes,
        whole_keys: true,
        arena_block_size: 4096,
        ..Settings::new(Comparator::bytewise())
    };
    Arc::new(Memtable::with(1, FileNumber(1), settings))
}

fn both() -> [Arc<Memtable>; 3] {
    [
        memtable(MemtableFactory::SkipList, 0),
        memtable(MemtableFactory::Vector, 0),
        memtable(MemtableFactory::SkipList, 4096),
    ]
}

/// The versions that a lookup sees.
fn seen(m: &Memtable, seek: &[u8]) -> Vec<(u64, Vec<u8>)> {
    let mut out = Vec::new();
    m.versions(seek, |found, value| {
        out.push((found.sequence.0, value.bytes().to_vec()));
        true
    });
    out
}

fn contents(m: &Arc<Memtable>) -> Vec<Vec<u8>> {
    let (mut it, mut out) = (m.iter(), Vec::new());
    it.seek_to_first();
    while it.valid() {
        out.push([it.key(), it.value()].concat());
        it.next();
    }
    let mut back = Vec::new();
    it.seek_to_last();
    while it.valid() {
        back.push([it.key(), it.value()].concat());
        it.prev();
    }
    back.reverse();
    assert_eq!(out, back);
    out
}

#[test]
fn representations_agree_while_active_and_when_sealed() {
    let tables = both();
    let mut rng = Rng::new(7);
    let n = if cfg!(miri) { 40 } else { 600 };
    for seq in 1..=n {
        let key = format!("{:03}", rng.below(100));
        let kind = if rng.one_in(5) {
            ValueType::Deletion
        } else {
            ValueType::Value
        };
        for m in &tables {
            m.insert(
                key.as_bytes(),
                SequenceNumber(seq),
                kind,
                &seq.to_le_bytes(),
            );
        }
    }
    for sealed in [false, true] {
        if sealed {
            for m in &tables {
                m.seal(FileNumber(9));
            }
        }
        let want = contents(&tables[0]);
        assert_eq!(want.len(), n as usize);
        for m in &tables {
            assert_eq!(contents(m), want);
            assert_eq!(m.len(), n as usize);
            assert_eq!(m.num_deletes(), tables[0].num_deletes());
        }
        for _ in 0..200 {
            let key = format!("{:03}", rng.below(110));
            let seek = key::encode(
                key.as_bytes(),
                SequenceNumber(rng.below(n + 2)),
                ValueType::FOR_SEEK,
            );
            for m in &tables[1..] {
                assert_eq!(seen(m, &seek), seen(&tables[0], &seek), "{key}");
                let (mut a, mut b) = (tables[0].iter(), m.iter());
                a.seek(&seek);
                b.seek(&seek);
                assert_eq!(a.valid().then(|| a.key()), b.valid().then(|| b.key()));
                a.seek_for_prev(&seek);
                b.seek_for_prev(&seek);
                assert_eq!(a.valid().then(|| a.key()), b.valid().then(|| b.key()));
            }
        }
    }
}

#[test]
fn a_filter_of_prefixes_lets_through_what_has_none() {
    let settings = Settings {
        bloom_bytes: 4096,
        prefixes: Some(SliceTransform::fixed_prefix(3)),
        arena_block_size: 4096,
        ..Settings::new(Comparator::bytewise())
    };
    let m = Memtable::with(1, FileNumber(1), settings);
    for key in ["abc1", "ab", "xyz"] {
        m.insert(key.as_bytes(), SequenceNumber(1), ValueType::Value, b"v");
    }
    let get = |key: &str| {
        let seek = key::encode(key.as_bytes(), SequenceNumber(5), ValueType::FOR_SEEK);
        !seen(&m, &seek).is_empty()
    };
    assert!(get("abc1") && get("ab") && get("xyz"));
    assert!(!get("abc2") && !get("a") && !get("zzz9"));
}

#[test]
fn memory_is_counted_until_the_memtable_is_gone() {
    use crate::write_buffers::WriteBuffers;
    let budget = Arc::new(WriteBuffers::new(1 << 20, None, false));
    let settings = Settings {
        tracker: Some(Tracker::new(Arc::clone(&budget))),
        bloom_bytes: 640,
        whole_keys: true,
        arena_block_size: 4096,
        ..Settings::new(Comparator::bytewise())
    };
    let m = Memtable::with(1, FileNumber(1), settings);
    for seq in 0..100 {
        m.insert(b"key", SequenceNumber(seq), ValueType::Value, &[0; 100]);
    }
    assert_eq!(budget.used(), m.memory_usage());
    assert_eq!(budget.active(), m.memory_usage());
    m.seal(FileNumber(2));
    assert_eq!(budget.active(), 0);
    drop(m);
    assert_eq!(budget.used(), 0);
}

/// A pass prefetches entries. That must do no harm while entries are added before and after its position.
#[test]
fn a_pass_meets_all_that_was_there_while_more_is_added() {
    let m = memtable(MemtableFactory::SkipList, 0);
    let n = if cfg!(miri) { 150 } else { 20_000u64 };
    let put = |i: u64| {
        let key = format!("{:016x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        m.insert(
            key.as_bytes(),
            SequenceNumber(i + 1),
            ValueType::Value,
            b"v",
        );
    };
    assert!(!m.pass().valid());
    (0..n).for_each(put);
    base::sync::thread::scope(|s| {
        s.spawn(|| (n..2 * n).for_each(put));
        for _ in 0..3 {
            let mut it = m.pass();
            it.seek_to_first();
            let (mut old, mut last) = (0, Vec::new());
            while it.valid() {
                assert!(last.as_slice() < it.key());
                last.clear();
                last.extend_from_slice(it.key());
                let (_, packed) = key::split(it.key()).unwrap();
                old += u64::from(packed >> 8 <= n);
                it.next();
            }
            assert_eq!(old, n);
        }
    });
}

/// A backward search looks twice. An entry that is added in between, after the target, must not be found.
#[test]
fn a_search_backwards_never_ends_behind_its_target() {
    let m = memtable(MemtableFactory::SkipList, 0);
    m.insert(b"a", SequenceNumber(1), ValueType::Value, b"");
    let n = if cfg!(miri) { 100 } else { 30_000u64 };
    let target = key::encode(b"m", SequenceNumber(1), ValueType::FOR_SEEK);
    base::sync::thread::scope(|s| {
        let writer = s.spawn(|| {
            for i in 0..n {
                let key = format!("z{:08}", n - i);
                m.insert(key.as_bytes(), SequenceNumber(2 + i), ValueType::Value, b"");
            }
        });
        while !writer.is_finished() {
            let mut it = m.iter();
            it.seek_for_prev(&target);
            assert_eq!(key::user_key(it.key()), b"a");
        }
    });
}

#[test]
fn a_pinned_value_outlives_its_memtable() {
    for factory in [MemtableFactory::SkipList, MemtableFactory::Vector] {
        let (m, other) = (memtable(factory, 0), memtable(factory, 0));
        m.insert(b"k", SequenceNumber(1), ValueType::Value, b"a value");
        let seek = key::encode(b"k", SequenceNumber(9), ValueType::FOR_SEEK);
        let mut pinned = Vec::new();
        m.versions(&seek, |_, value| {
            let bytes = value.bytes();
            assert!(value.pin(&other, bytes).is_none(), "another memtable's");
            assert!(value.pin(&m, b"a value").is_none(), "equal, but elsewhere");
            pinned.extend(value.pin(&m, bytes));
            pinned.extend(value.pin(&m, &bytes[2..]));
            false
        });
        // Entries after it, in the same memory.
        for n in 0..100u64 {
            m.insert(b"l", SequenceNumber(2 + n), ValueType::Value, b"another");
        }
        drop(m);
        base::sync::thread::scope(|scope| {
            let read = scope.spawn(move || {
                let read: Vec<_> = pinned.iter().map(|p| p.to_vec()).collect();
                assert_eq!(read, [&b"a value"[..], b"value"]);
            });
            read.join().unwrap();
        });
    }
}
