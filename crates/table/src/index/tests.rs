//! The decoded index: RocksDB's bytes, a sorted list as the model, hostile bytes.

use super::*;
use base::coding::{put_u32, put_varint, put_varint_signed};
use base::{SequenceNumber, ValueType};
use proptest::prelude::*;

fn vector(name: &str) -> Vec<u8> {
    let text = include_str!("../../tests/data/vectors.json");
    let all: serde_json::Value = serde_json::from_str(text).unwrap();
    let hex = all[name].as_str().unwrap();
    (0..hex.len() / 2)
        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

fn decode(bytes: &[u8], encoding: Encoding) -> Result<Vec<(Vec<u8>, BlockHandle)>> {
    let mut out = Vec::new();
    for_each(bytes, encoding, &mut |k, h| {
        out.push((k.to_vec(), h));
        Ok(())
    })?;
    Ok(out)
}

#[test]
fn a_delta_encoded_index_that_rocksdb_wrote() {
    let encoding = Encoding {
        user_keys: true,
        delta: true,
        first_keys: false,
    };
    let all = decode(&vector("index_delta.index"), encoding).unwrap();
    assert_eq!(all.len(), 15);
    for (i, (_, h)) in all.iter().enumerate() {
        assert_eq!(
            *h,
            BlockHandle {
                offset: 67 * i as u64,
                size: 62
            }
        );
    }
    assert_eq!(all[4].0, b"key00001");
    assert_eq!(all[14].0, b"key000029");
}

#[test]
fn separated_delta_handles_with_first_keys() {
    // Two restart points of two entries each, as RocksDB 11 could write them.
    let (mut keys, mut values) = (Vec::new(), Vec::new());
    let handles = [(0u64, 50u64), (55, 60), (120, 10), (135, 70)];
    for (i, (offset, size)) in handles.into_iter().enumerate() {
        let restart = i % 2 == 0;
        put_varint(&mut keys, u64::from(!restart));
        put_varint(&mut keys, if restart { 2 } else { 1 });
        if restart {
            put_varint(&mut keys, values.len() as u64);
            keys.push(b'k');
            put_varint(&mut values, offset);
            put_varint(&mut values, size);
        } else {
            put_varint_signed(&mut values, size as i64 - handles[i - 1].1 as i64);
        }
        keys.push(b'0' + i as u8);
        base::coding::put_slice(&mut values, b"first");
    }
    let (second, values_at) = (8u32, keys.len() as u32);
    keys.extend_from_slice(&values);
    put_u32(&mut keys, 0);
    put_u32(&mut keys, second);
    put_u32(&mut keys, values_at);
    put_u32(&mut keys, 2 | 1 << 28);
    let encoding = Encoding {
        user_keys: true,
        delta: true,
        first_keys: true,
    };
    let all = decode(&keys, encoding).unwrap();
    let found: Vec<_> = all.iter().map(|(_, h)| (h.offset, h.size)).collect();
    assert_eq!(found, handles);
    assert_eq!(all[3].0, b"k3");
}

/// An index block with one restart point for all, so that it is encoded anew, or with one for each entry.
fn encoded(separators: &[Vec<u8>], encoding: Encoding) -> Vec<u8> {
    let (mut bytes, mut restarts) = (Vec::new(), Vec::new());
    for (i, separator) in separators.iter().enumerate() {
        restarts.push(bytes.len() as u32);
        let mut value = Vec::new();
        put_varint(&mut value, i as u64);
        put_varint(&mut value, 1);
        put_varint(&mut bytes, 0);
        put_varint(&mut bytes, separator.len() as u64);
        if !encoding.delta {
            put_varint(&mut bytes, value.len() as u64);
        }
        bytes.extend_from_slice(separator);
        bytes.extend_from_slice(&value);
    }
    if separators.len().is_multiple_of(3) {
        restarts.truncate(1);
    }
    for restart in &restarts {
        put_u32(&mut bytes, *restart);
    }
    put_u32(&mut bytes, restarts.len() as u32);
    bytes
}

proptest! {
    #[test]
    fn a_search_finds_the_first_separator_not_before(
        prefix in proptest::collection::vec(any::<u8>(), 0..10),
        mut keys: Vec<Vec<u8>>,
        mut targets: Vec<Vec<u8>>,
        user_keys: bool,
        reverse: bool,
        delta: bool,
        count in 1usize..230,
    ) {
        let cmp = if reverse { Comparator::reverse_bytewise() } else { Comparator::bytewise() };
        keys.extend((0..200u8).map(|i| vec![7, i]));
        for k in &mut keys {
            *k = [prefix.as_slice(), k].concat();
        }
        keys.sort_by(|a, b| cmp.compare(a, b));
        keys.dedup();
        keys.truncate(count);
        targets.extend(keys.iter().cloned());
        targets.push(prefix[..prefix.len() / 2].to_vec());
        let stored = |k: &[u8]| if user_keys {
            k.to_vec()
        } else {
            key::encode(k, SequenceNumber(9), ValueType::Value)
        };
        let mut index = Index::new(cmp.clone(), user_keys);
        for (i, k) in keys.iter().enumerate() {
            index.push(&stored(k), BlockHandle { offset: i as u64, size: 1 }).unwrap();
        }
        index.seal();
        let encoding = Encoding { user_keys, delta, first_keys: false };
        let stored_keys: Vec<_> = keys.iter().map(|k| stored(k)).collect();
        let bytes = encoded(&stored_keys, encoding);
        let block = prepare(&bytes, encoding, &cmp, 1 << 20).unwrap();
        let kept = StoredIndex::new(block, encoding);
        prop_assert_eq!(kept.len().unwrap(), keys.len());
        for t in &targets {
            for sequence in [8, 9, 10] {
                let t = Target { user: t, packed: sequence << 8 | 1 };
                let expected = keys.partition_point(|k| {
                    let order = cmp.compare(k, t.user);
                    // A separator with a higher sequence lies before its user key's older ones.
                    order.is_lt() || order.is_eq() && !user_keys && 9 > sequence
                });
                prop_assert_eq!(index.seek(&t), expected);
                prop_assert_eq!(kept.seek(&cmp, &t).unwrap(), expected);
                let handle = kept.handle(expected).unwrap();
                prop_assert_eq!(handle.map(|h| h.offset as usize), index.handle(expected).map(|h| h.offset as usize));
            }
        }
        prop_assert_eq!(index.handle(keys.len()), None);
    }

    #[test]
    fn any_bytes_are_an_index_or_an_error(mut b: Vec<u8>, restarts in 0u32..5, bits in 0u32..16) {
        b.extend_from_slice(&(restarts | bits << 28).to_le_bytes());
        for delta in [false, true] {
            for first_keys in [false, true] {
                let encoding = Encoding { user_keys: false, delta, first_keys };
                let decoded = decode(&b, encoding);
                if let Ok(block) = prepare(&b, encoding, &Comparator::bytewise(), 1 << 20) {
                    let stored = StoredIndex::new(block, encoding);
                    check_stored(&stored, decoded.ok());
                }
            }
        }
    }
}

/// What an index that is searched as it is stored tells, which is what the decoded one has, unless it is damaged.
fn check_stored(stored: &StoredIndex, decoded: Option<Vec<(Vec<u8>, BlockHandle)>>) {
    let n = stored.len().unwrap();
    let all: Result<Vec<_>> = (0..n)
        .map(|i| {
            let separator = stored.separator(i)?.unwrap().to_vec();
            Ok((separator, stored.handle(i)?.unwrap()))
        })
        .collect();
    if let (Ok(all), Some(decoded)) = (all, decoded) {
        assert_eq!(all, decoded);
    }
    let target = base::key::encode(b"k", SequenceNumber(1), ValueType::Value);
    let target = Target::new(&target).unwrap();
    drop(stored.seek(&Comparator::bytewise(), &target));
    drop(stored.seek_or_last(&Comparator::bytewise(), &target));
    drop(stored.first_ending_after(0, 100));
    drop(stored.first_ending_after(n, u64::MAX));
}

/// A walk over an index in partitions that were made for it.
fn walk_over(root: &[(&str, u64)], parts: &[(u64, &[u64])], aim: Aim) -> Result<Vec<u64>> {
    let encoding = Encoding {
        user_keys: true,
        delta: true,
        first_keys: false,
    };
    let index = |entries: &[(String, u64)]| {
        let mut bytes = Vec::new();
        for (i, (key, offset)) in entries.iter().enumerate() {
            put_varint(&mut bytes, 0);
            put_varint(&mut bytes, key.len() as u64);
            bytes.extend_from_slice(key.as_bytes());
            put_varint(&mut bytes, *offset);
            put_varint(&mut bytes, 5 + i as u64 % 2);
        }
        // One restart point, so that it is encoded anew.
        put_u32(&mut bytes, 0);
        put_u32(&mut bytes, 1);
        let block = prepare(&bytes, encoding, &Comparator::bytewise(), 1 << 20)?;
        Ok::<_, Error>(StoredIndex::new(block, encoding))
    };
    let handle = BlockHandle {
        offset: 1_000_000,
        size: 9,
    };
    let root_at = Root {
        handle,
        is_partitioned: true,
    };
    let (mut walk, mut out) = (Walk::new(aim), Vec::new());
    for _ in 0..1000 {
        match walk.step(root_at, &Comparator::bytewise(), None)? {
            Step::At(block) => {
                out.push(block.offset);
                if aim == Aim::Last {
                    walk.prev();
                } else {
                    walk.next();
                }
            }
            Step::End => return Ok(out),
            Step::Needs(of) if of == handle => {
                let entries: Vec<_> = root.iter().map(|(k, o)| ((*k).to_owned(), *o)).collect();
                walk.give(root_at, of, index(&entries)?);
            }
            Step::Needs(of) => {
                let part = parts.iter().find(|(at, _)| *at == of.offset).unwrap();
                let entries: Vec<_> = part.1.iter().map(|o| (format!("k{o:06}"), *o)).collect();
                walk.give(root_at, of, index(&entries)?);
            }
        }
    }
    panic!("a walk without an end");
}

#[test]
fn a_walk_visits_every_block_in_both_directions() {
    let root = [("a", 100), ("b", 200), ("c", 300), ("d", 400)];
    let parts: [(u64, &[u64]); 4] = [(100, &[]), (200, &[1, 2, 3]), (300, &[]), (400, &[7])];
    assert_eq!(walk_over(&root, &parts, Aim::First).unwrap(), [1, 2, 3, 7]);
    assert_eq!(walk_over(&root, &parts, Aim::Last).unwrap(), [7, 3, 2, 1]);
    let empty: [(u64, &[u64]); 2] = [(100, &[]), (200, &[])];
    assert!(
        walk_over(&root[..2], &empty, Aim::First)
            .unwrap()
            .is_empty()
    );
    assert!(walk_over(&root[..2], &empty, Aim::Last).unwrap().is_empty());
    assert!(walk_over(&[], &[], Aim::First).unwrap().is_empty());
    assert!(walk_over(&[], &[], Aim::Last).unwrap().is_empty());
}

/// Otherwise a small file would be a walk over any number of blocks.
#[test]
fn partitions_that_overlap_are_damage() {
    for root in [
        [("a", 100), ("b", 100)],
        [("a", 200), ("b", 100)],
        [("a", 100), ("b", 104)],
    ] {
        let parts: [(u64, &[u64]); 3] = [(100, &[1]), (200, &[2]), (104, &[3])];
        let e = walk_over(&root, &parts, Aim::First).unwrap_err();
        assert!(e.to_string().contains("partitions overlap"), "{e}");
        assert!(walk_over(&root, &parts, Aim::Last).is_err());
    }
}

#[test]
fn the_first_block_that_ends_after_an_offset() {
    let mut index = Index::new(Comparator::bytewise(), true);
    let far = OFFSET_MAX; // of a hostile index
    for (i, offset) in [0, 100, 300, far].into_iter().enumerate() {
        let handle = BlockHandle { offset, size: 95 };
        index.push(format!("k{i}").as_bytes(), handle).unwrap();
    }
    for (offset, size) in [(OFFSET_MAX + 1, 95), (400, 1 << 32)] {
        let e = index.push(b"z", BlockHandle { offset, size }).unwrap_err();
        assert!(e.is_corruption(), "{e}");
    }
    let mut index = Index::new(Comparator::bytewise(), true);
    for (i, offset) in [0, 100, 300, far].into_iter().enumerate() {
        let handle = BlockHandle { offset, size: 95 };
        index.push(format!("k{i}").as_bytes(), handle).unwrap();
    }
    index.seal();
    for (offset, first) in [(0, 0), (99, 0), (100, 100), (200, 300), (400, far)] {
        let found = index.first_ending_after(offset).unwrap();
        assert_eq!((found.offset, found.size), (first, 95), "{offset}");
    }
    assert_eq!(index.first_ending_after(u64::MAX), None);
}
