//! The list against a sorted set, alone and from several threads.

use super::*;
use base::rng::Rng;
use base::{SequenceNumber, ValueType};
use std::collections::BTreeSet;

fn list() -> List {
    List::new(Comparator::bytewise(), Arena::new(4096, None))
}

fn packed(seq: u64) -> u64 {
    key::pack(SequenceNumber(seq), ValueType::Value)
}

fn all(list: &List) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut out = Vec::new();
    let mut c = list.cursor();
    c.seek_to_first();
    while let Some((k, v)) = c.entry() {
        out.push((k.to_vec(), v.to_vec()));
        c.next();
    }
    out
}

#[test]
fn agrees_with_a_sorted_set_for_every_insertion_order() {
    let n = if cfg!(miri) { 60 } else { 3000 };
    for order in 0..4 {
        let (list, mut model, mut rng) = (list(), BTreeSet::new(), Rng::new(order));
        for i in 0..n {
            let key = match order {
                0 => format!("{i:08}"),
                1 => format!("{:08}", n - i),
                2 => format!("{}", rng.below(200)),
                _ => format!("common-prefix-{}", rng.below(1 << 40)),
            };
            list.insert(key.as_bytes(), packed(i), key.as_bytes());
            model.insert((key, std::cmp::Reverse(i)));
        }
        let got = all(&list);
        let want: Vec<_> = model
            .iter()
            .map(|(k, i)| {
                let internal = key::encode(k.as_bytes(), SequenceNumber(i.0), ValueType::Value);
                (internal, k.as_bytes().to_vec())
            })
            .collect();
        assert_eq!(got, want);
        assert_eq!(list.len(), n as usize);
        let mut back = list.cursor();
        back.seek_to_last();
        for (k, _) in want.iter().rev() {
            assert_eq!(back.entry().unwrap().0, k);
            back.prev();
        }
        assert!(back.entry().is_none());
    }
}

#[test]
fn entries_that_come_together_go_where_single_ones_do() {
    let n = if cfg!(miri) { 40 } else { 2000 };
    for order in 0..4 {
        let (one, two, mut rng) = (list(), list(), Rng::new(order));
        let mut model = BTreeSet::new();
        let mut seq = 0;
        while seq < n {
            let mut entries = Vec::new();
            for _ in 0..=rng.below(40) {
                seq += 1;
                let key = match order {
                    0 => format!("{seq:08}"),
                    1 => format!("{:08}", 2 * n - seq),
                    2 => format!("{}", rng.below(20)),
                    _ => format!("common-prefix-{}", rng.below(1 << 40)),
                };
                let to = if rng.below(3) == 0 { &one } else { &two };
                entries.push((to, to.prepare(key.as_bytes(), packed(seq), key.as_bytes())));
                model.insert((key, std::cmp::Reverse(seq), ptr::eq(to, &raw const one)));
            }
            together::link_all(entries.into_iter());
            if rng.below(4) == 0 {
                seq += 1;
                let key = format!("{:08}", rng.below(n));
                one.insert(key.as_bytes(), packed(seq), key.as_bytes());
                model.insert((key, std::cmp::Reverse(seq), true));
            }
        }
        for (list, first) in [(&one, true), (&two, false)] {
            let want: Vec<_> = model
                .iter()
                .filter(|(_, _, in_first)| *in_first == first)
                .map(|(k, i, _)| {
                    let seq = SequenceNumber(i.0);
                    let internal = key::encode(k.as_bytes(), seq, ValueType::Value);
                    (internal, k.as_bytes().to_vec())
                })
                .collect();
            assert_eq!(all(list), want, "order {order}");
            assert_eq!(list.len(), want.len());
        }
    }
}

#[test]
fn concurrent_inserts_lose_nothing_and_readers_see_order() {
    let list = list();
    let per_thread = if cfg!(miri) { 30 } else { 5000u64 };
    base::sync::thread::scope(|s| {
        for t in 0..4u64 {
            let list = &list;
            s.spawn(move || {
                let (mut rng, mut together) = (Rng::new(t), Vec::new());
                for i in 0..per_thread {
                    let seq = t * per_thread + i;
                    let k = rng.below(1000).to_be_bytes();
                    if t % 2 == 0 {
                        list.insert(&k, packed(seq), &seq.to_le_bytes());
                    } else {
                        together.push((list, list.prepare(&k, packed(seq), &k)));
                    }
                    if together.len() as u64 > i % 20 {
                        together::link_all(together.drain(..));
                    }
                }
                together::link_all(together.drain(..));
            });
        }
        let list = &list;
        s.spawn(move || {
            for _ in 0..20 {
                let seen = all(list);
                let cmp = Comparator::bytewise();
                assert!(
                    seen.windows(2)
                        .all(|w| key::compare(&cmp, &w[0].0, &w[1].0) == Order::Less)
                );
            }
        });
    });
    assert_eq!(all(&list).len() as u64, 4 * per_thread);
}

#[test]
fn seeks_find_the_newest_visible_version() {
    let list = list();
    for seq in [5, 9, 7] {
        list.insert(b"k", packed(seq), &[seq as u8]);
    }
    let seek = |seq| {
        let t = key::encode(b"k", SequenceNumber(seq), ValueType::FOR_SEEK);
        list.cursor_at(&Target::new(&t)).entry().map(|(_, v)| v[0])
    };
    assert_eq!(
        (seek(100), seek(8), seek(5), seek(4)),
        (Some(9), Some(7), Some(5), None)
    );
}

/// Compares lengths first, then the bytes backwards: no integer prefix can express this order.
struct Odd;

impl base::comparator::UserComparator for Odd {
    fn name(&self) -> &'static str {
        "odd"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Order {
        let backwards = || a.iter().rev().cmp(b.iter().rev());
        a.len().cmp(&b.len()).then_with(backwards)
    }
}

/// Keys that share long prefixes, none, or all bytes; in three orders.
#[test]
fn places_are_found_whatever_the_keys_share() {
    let n = if cfg!(miri) { 80 } else { 4000 };
    let orders = [
        Comparator::bytewise(),
        Comparator::reverse_bytewise(),
        Comparator::user(std::sync::Arc::new(Odd)),
    ];
    for (comparator, kind) in orders.iter().flat_map(|c| (0..5).map(move |k| (c, k))) {
        let list = List::new(comparator.clone(), Arena::new(4096, None));
        let (mut rng, mut model) = (Rng::new(kind), Vec::new());
        for seq in 1..=n {
            let key = match kind {
                0 => format!("a-long-prefix-of-all-keys/{:09}", rng.below(1 << 30)).into_bytes(),
                1 => vec![0; rng.below(40) as usize],
                2 => rng.next_u64().to_le_bytes()[..rng.below(9) as usize].to_vec(),
                3 => format!("stream{}/{seq:020}", rng.below(5)).into_bytes(),
                _ => [vec![7; rng.below(3) as usize * 9], vec![rng.below(4) as u8]].concat(),
            };
            list.insert(&key, packed(seq), &seq.to_le_bytes());
            model.push(key::encode(&key, SequenceNumber(seq), ValueType::Value));
        }
        model.sort_by(|a, b| key::compare(comparator, a, b));
        let got: Vec<_> = all(&list).into_iter().map(|(k, _)| k).collect();
        assert_eq!(got, model, "{} {kind}", comparator.name());
        for _ in 0..n {
            let i = rng.below(n) as usize;
            let (mut at, mut before) = (list.cursor(), list.cursor());
            at.seek(&model[i]);
            assert_eq!(at.entry().unwrap().0, model[i]);
            before.seek(&model[i]);
            before.prev();
            assert_eq!(
                before.entry().map(|e| e.0),
                i.checked_sub(1).map(|i| &model[i][..])
            );
            let user_key = key::user_key(&model[i]);
            let newest = key::encode(user_key, SequenceNumber(n), ValueType::FOR_SEEK);
            at.seek(&newest);
            let first = model.partition_point(|m| key::compare(comparator, m, &newest).is_lt());
            assert_eq!(at.entry().unwrap().0, model[first]);
        }
        let mut end = list.cursor();
        end.seek_to_last();
        assert_eq!(end.entry().unwrap().0, model[n as usize - 1]);
    }
}

/// An inserted entry is found at once and from then on, while searches run and blocks split.
#[test]
fn searches_beside_inserts_miss_nothing() {
    let list = list();
    let n = if cfg!(miri) { 150 } else { 40_000u64 };
    let done = AtomicUsize::new(0);
    // Ascending, descending and scattered: each number once.
    let key = |i: u64| match i % 3 {
        0 => format!("up/{i:012}"),
        1 => format!("down/{:012}", n - i),
        _ => format!("{:016x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15)),
    };
    base::sync::thread::scope(|s| {
        let (list, done) = (&list, &done);
        for t in 0..3 {
            s.spawn(move || {
                let mut rng = Rng::new(t);
                while (done.load(Ordering::Acquire) as u64) < n {
                    let there = done.load(Ordering::Acquire) as u64;
                    if there == 0 {
                        base::sync::thread::yield_now();
                        continue;
                    }
                    // Near the writer, or anywhere.
                    let i = match rng.below(2) {
                        0 => there - 1,
                        _ => rng.below(there),
                    };
                    let target = key::encode(
                        key(i).as_bytes(),
                        SequenceNumber(i + 1),
                        ValueType::FOR_SEEK,
                    );
                    let found = list.cursor_at(&Target::new(&target)).entry().unwrap();
                    assert_eq!(key::user_key(found.0), key(i).as_bytes());
                    let mut back = list.cursor_at(&Target::new(found.0));
                    back.prev();
                    if let Some((before, _)) = back.entry() {
                        let order = key::compare(&Comparator::bytewise(), before, found.0);
                        assert_eq!(order, Order::Less);
                    }
                    let mut last = list.cursor();
                    last.seek_to_last();
                    assert!(key::user_key(last.entry().unwrap().0) >= key(0).as_bytes());
                }
            });
        }
        for i in 0..n {
            list.insert(key(i).as_bytes(), packed(i + 1), b"");
            done.store(i as usize + 1, Ordering::Release);
        }
    });
    assert_eq!(all(&list).len() as u64, n);
}

/// Overhead of an entry in bytes.
#[test]
#[cfg_attr(miri, ignore = "an average over many blocks")]
fn keys_in_ascending_order_leave_full_blocks() {
    let n = 20_000u64;
    let bytes = |key: &dyn Fn(u64) -> String| {
        let list = List::new(Comparator::bytewise(), Arena::new(1 << 20, None));
        for i in 0..n {
            list.insert(key(i).as_bytes(), packed(i + 1), b"");
        }
        (list.arena.reserved() - list.arena.unused()) as f64 / n as f64
    };
    let plain = (HEADER + 12 + key::TRAILER_LEN + 4) as f64; // rounded up to 8
    let one = bytes(&|i| format!("{i:012}"));
    let streams = bytes(&|i| format!("{:02}/{:09}", i % 7, i / 7));
    let scattered = bytes(&|i| format!("{:012x}", i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16));
    assert!(one < plain + 23.0, "{one} {plain}");
    assert!(streams < plain + 42.0, "{streams} {plain}");
    assert!(scattered < plain + 34.0, "{scattered} {plain}");
}
