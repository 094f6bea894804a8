//! Blocks: RocksDB's bytes, models of every layout, hostile bytes.

use super::*;
use base::SequenceNumber;
use base::ValueType;
use proptest::prelude::*;

fn vector(name: &str) -> Vec<u8> {
    let text = include_str!("../../tests/data/vectors.json");
    let all: serde_json::Value = serde_json::from_str(text).unwrap();
    let hex = all[name].as_str().unwrap();
    (0..hex.len() / 2)
        .map(|i| u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

fn entries(block: &Block, keys: Keys) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut c = Cursor::new(keys);
    let mut out = Vec::new();
    let mut more = c.seek_to_first(block)?;
    while more {
        out.push((c.key().to_vec(), c.value(block).to_vec()));
        more = c.next(block)?;
    }
    Ok(out)
}

fn entries_back(block: &Block, keys: Keys) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
    let mut c = Cursor::new(keys);
    let mut out = Vec::new();
    let mut more = c.seek_to_last(block)?;
    while more {
        out.push((c.key().to_vec(), c.value(block).to_vec()));
        more = c.prev(block)?;
    }
    out.reverse();
    Ok(out)
}

fn filled(stored: &[u8], cmp: &Comparator) -> Result<Block> {
    Block::filled(stored.len(), cmp, |to| {
        to.copy_from_slice(stored);
        Ok(())
    })
}

fn ikey(user: &[u8], sequence: u64) -> Vec<u8> {
    base::key::encode(user, SequenceNumber(sequence), ValueType::Value)
}

#[test]
fn a_block_with_hash_index_that_rocksdb_wrote() {
    let block = Block::new(&vector("hash6.data")).unwrap();
    assert_eq!(block.restarts(), 3);
    let all = entries(&block, Keys::Internal).unwrap();
    assert_eq!(all.len(), 6);
    for (i, (k, v)) in all.iter().enumerate() {
        assert_eq!(k, &ikey(format!("key{i:06}").as_bytes(), 0));
        assert_eq!(v, b"vvvv");
    }
    assert_eq!(entries_back(&block, Keys::Internal).unwrap(), all);
    // In an ingested file the same bytes mean another sequence.
    let ingested = entries(&block, Keys::Ingested(77)).unwrap();
    assert_eq!(ingested[5].0, ikey(b"key000005", 77));
}

#[test]
fn the_builder_writes_rocksdbs_bytes() {
    // The block above without its hash index.
    let mut b = BlockBuilder::new(2);
    for i in 0..6 {
        b.add(&ikey(format!("key{i:06}").as_bytes(), 0), b"vvvv");
    }
    let size = b.size();
    let bytes = b.finish();
    assert_eq!(bytes.len(), size);
    let theirs = vector("hash6.data");
    let end = bytes.len() - 4;
    assert_eq!(bytes[..end], theirs[..end]);
    assert_eq!(bytes[end..], [3, 0, 0, 0]);
    assert!(b.is_empty());
}

/// Lays entries out with separated values, as RocksDB 11 does.
fn separated(all: &[(Vec<u8>, Vec<u8>)], interval: usize) -> Vec<u8> {
    use base::coding::{put_u32, put_varint};
    let (mut keys, mut values, mut restarts) = (Vec::new(), Vec::new(), Vec::new());
    let mut last: &[u8] = &[];
    for (i, (k, v)) in all.iter().enumerate() {
        let restart = i % interval == 0;
        let shared = if restart { 0 } else { common_prefix(last, k) };
        if restart {
            restarts.push(keys.len() as u32);
        }
        put_varint(&mut keys, shared as u64);
        put_varint(&mut keys, (k.len() - shared) as u64);
        put_varint(&mut keys, v.len() as u64);
        if restart {
            put_varint(&mut keys, values.len() as u64);
        }
        keys.extend_from_slice(&k[shared..]);
        values.extend_from_slice(v);
        last = k;
    }
    if restarts.is_empty() {
        restarts.push(0);
    }
    let values_at = keys.len() as u32;
    keys.extend_from_slice(&values);
    for r in &restarts {
        put_u32(&mut keys, *r);
    }
    put_u32(&mut keys, values_at);
    put_u32(&mut keys, restarts.len() as u32 | SEPARATED | 1 << 29);
    keys
}

fn check_seeks(block: &Block, model: &[(Vec<u8>, Vec<u8>)], cmp: &Comparator, keys: Keys) {
    let mut c = Cursor::new(keys);
    let mut targets: Vec<Vec<u8>> = model.iter().map(|e| e.0.clone()).collect();
    targets.push(ikey(b"", 3));
    targets.push(ikey(b"\xff\xff\xff", 3));
    targets.extend(model.iter().map(|e| ikey(base::key::user_key(&e.0), 5)));
    for (k, _) in model {
        let mut longer = base::key::user_key(k).to_vec();
        longer.push(0);
        targets.push(ikey(&longer, 5));
        longer.truncate(longer.len() / 2);
        targets.push(ikey(&longer, 5));
    }
    for t in &targets {
        let at = model.partition_point(|(k, _)| base::key::compare(cmp, k, t).is_lt());
        let found = c.seek(block, cmp, &Target::new(t).unwrap()).unwrap();
        assert_eq!(found, at < model.len());
        if found {
            assert_eq!(
                (c.key(), c.value(block)),
                (&model[at].0[..], &model[at].1[..])
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 200 }))]
    #[test]
    fn every_layout_reads_as_its_model(
        prefix in proptest::collection::vec(any::<u8>(), 0..12),
        raw: Vec<(Vec<u8>, Vec<u8>)>,
        interval in 1usize..20,
        reverse: bool,
    ) {
        let cmp = if reverse { Comparator::reverse_bytewise() } else { Comparator::bytewise() };
        let mut model: Vec<_> = raw
            .into_iter()
            .map(|(k, v)| (ikey(&[prefix.clone(), k].concat(), v.len() as u64), v))
            .collect();
        model.sort_by(|a, b| base::key::compare(&cmp, &a.0, &b.0));
        model.dedup_by(|a, b| a.0 == b.0);
        let mut b = BlockBuilder::new(interval as u32);
        for (k, v) in &model {
            let limit = b.size_after(k, v);
            b.add(k, v);
            prop_assert!(b.size() <= limit);
        }
        for stored in [b.finish(), separated(&model, interval)] {
            let plain = Block::new(&stored).unwrap();
            let fast = Block::searchable(&stored, &cmp).unwrap();
            let filled = filled(&stored, &cmp).unwrap();
            for block in [&plain, &fast, &filled] {
                prop_assert_eq!(&entries(block, Keys::Internal).unwrap(), &model);
                prop_assert_eq!(&entries_back(block, Keys::Internal).unwrap(), &model);
                check_seeks(block, &model, &cmp, Keys::Internal);
            }
        }
    }

    #[test]
    fn any_bytes_are_a_block_or_an_error(mut b: Vec<u8>, restarts in 0u32..5, bits in 0u32..16) {
        b.extend_from_slice(&(restarts | bits << 28).to_le_bytes());
        let cmp = Comparator::bytewise();
        let all = [Block::new(&b), Block::searchable(&b, &cmp), filled(&b, &cmp)];
        for block in all.into_iter().flatten() {
            for keys in [Keys::Plain, Keys::Internal, Keys::Ingested(3)] {
                drop(entries(&block, keys));
                drop(entries_back(&block, keys));
                let mut c = Cursor::new(keys);
                drop(c.seek(&block, &cmp, &Target { user: b"key", packed: 7 }));
            }
        }
    }
}

#[test]
fn walking_back_and_forth_stays_on_the_entries() {
    let mut b = BlockBuilder::new(4);
    let model: Vec<_> = (0..40u64)
        .map(|i| ikey(format!("k{i:03}").as_bytes(), i))
        .collect();
    for k in &model {
        b.add(k, &k[..3]);
    }
    let block = Block::new(&b.finish()).unwrap();
    let mut rng = base::rng::Rng::new(5);
    let mut c = Cursor::new(Keys::Internal);
    assert!(c.seek_to_first(&block).unwrap());
    let mut at = 0usize;
    for _ in 0..20_000 {
        if rng.one_in(2) && at + 1 < model.len() {
            assert!(c.next(&block).unwrap());
            at += 1;
        } else if at > 0 {
            assert!(c.prev(&block).unwrap());
            at -= 1;
        }
        assert_eq!(
            (c.key(), c.value(&block)),
            (&model[at][..], &model[at][..3])
        );
    }
}
