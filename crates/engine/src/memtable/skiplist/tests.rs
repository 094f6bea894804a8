//! The list against a sorted set, alone and from several threads.

use super::*;
use base::rng::Rng;
use base::{SequenceNumber, ValueType};
use std::collections::BTreeSet;

fn list() -> SkipList {
    SkipList::new(Comparator::bytewise(), Arena::new(4096, None))
}

fn packed(seq: u64) -> u64 {
    key::pack(SequenceNumber(seq), ValueType::Value)
}

fn all(list: &SkipList) -> Vec<(Vec<u8>, Vec<u8>)> {
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
            interleaved::link_all(entries.into_iter());
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
    std::thread::scope(|s| {
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
                        interleaved::link_all(together.drain(..));
                    }
                }
                interleaved::link_all(together.drain(..));
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
        list.cursor_at(&list.target(&t)).entry().map(|(_, v)| v[0])
    };
    assert_eq!(
        (seek(100), seek(8), seek(5), seek(4)),
        (Some(9), Some(7), Some(5), None)
    );
}
