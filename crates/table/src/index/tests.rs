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

proptest! {
    #[test]
    fn a_search_finds_the_first_separator_not_before(
        prefix in proptest::collection::vec(any::<u8>(), 0..10),
        mut keys: Vec<Vec<u8>>,
        mut targets: Vec<Vec<u8>>,
        user_keys: bool,
        reverse: bool,
    ) {
        let cmp = if reverse { Comparator::reverse_bytewise() } else { Comparator::bytewise() };
        keys.extend((0..200u8).map(|i| vec![7, i]));
        for k in &mut keys {
            *k = [prefix.as_slice(), k].concat();
        }
        keys.sort_by(|a, b| cmp.compare(a, b));
        keys.dedup();
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
        for t in &targets {
            for sequence in [8, 9, 10] {
                let t = Target { user: t, packed: sequence << 8 | 1 };
                let expected = keys.partition_point(|k| {
                    let order = cmp.compare(k, t.user);
                    // A separator with a higher sequence lies before its user key's older ones.
                    order.is_lt() || order.is_eq() && !user_keys && 9 > sequence
                });
                prop_assert_eq!(index.seek(&t), expected);
            }
        }
        prop_assert_eq!(index.handle(keys.len()), None);
    }

    #[test]
    fn any_bytes_are_an_index_or_an_error(mut b: Vec<u8>, restarts in 0u32..5, bits in 0u32..16) {
        b.extend_from_slice(&(restarts | bits << 28).to_le_bytes());
        for delta in [false, true] {
            for first_keys in [false, true] {
                drop(decode(&b, Encoding { user_keys: false, delta, first_keys }));
            }
        }
    }
}

#[test]
fn the_first_block_that_ends_after_an_offset() {
    let mut index = Index::new(Comparator::bytewise(), true);
    let far = u64::MAX - 3; // of a hostile index
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
