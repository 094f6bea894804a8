//! Filters that RocksDB 7.8.3 wrote, and our own.

use super::*;
use proptest::prelude::*;

const BLOOM3: &str = "00000200000000000800000000000400000010090000000000000008800000000800080000100000000008040200000000010000000000000110100000000000ff00060000";
const LEGACY3: &str = "100000008200000000000080000000200040800000000800000000040002000800000000000000008000000000000080000000010000900000400000008000000601000000";
const RIBBON200: &str = "13b6f0bcba52855bc515faeb1899660be75d8fad9b6c1097f62c6f6e310af24fa10d109fa86a16909e140f744d12f88456eb98ae920705122aca6a7c90b52f286d3d9b1781bd58dc48f991558d4ae15dae45ac13189ade1acfc7f4cc18230f03fe688f7b128470de90799bda65dd8c51b3ad93b9af7adb2909000000000000006a6f31bbe97bccef4a00000000000000b2dc2fd5a5c069ceae0000000000000053cd6a49feb68f8a0e00000000000000efee00fd277717ccba000000000000006de8a3de04fa6a84450000000000000006011b31d92391f21000000000000000fe90020000";

fn hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2)
        .map(|i| u8::from_str_radix(&text[2 * i..2 * i + 2], 16).unwrap())
        .collect()
}

fn key(i: usize) -> Vec<u8> {
    format!("key{i:06}").into_bytes()
}

/// How many of 10,000 keys that were not added match.
fn false_positives(filter: &Filter) -> usize {
    (0..10_000)
        .filter(|i| filter.may_match(format!("absent{i}").as_bytes()))
        .count()
}

#[test]
fn hash32_vectors_of_rocksdb() {
    let all: serde_json::Value =
        serde_json::from_str(include_str!("../../tests/data/hashes.json")).unwrap();
    let parse = |v: &serde_json::Value| u32::from_str_radix(v.as_str().unwrap(), 16).unwrap();
    for (field, seed) in [
        ("bloom_hash32", legacy::SEED),
        ("slice_hash32_seed397", 397),
    ] {
        for (n, want) in all[field].as_object().unwrap() {
            let n: usize = n.parse().unwrap();
            let data: Vec<u8> = (0..n).map(|i| (7 * i + 3) as u8).collect();
            assert_eq!(hash32(&data, seed), parse(want), "{field} {n}");
        }
    }
    let high = hex("fffefdfc808182");
    assert_eq!(
        hash32(&high, legacy::SEED),
        parse(&all["bloom_hash32_highbit"])
    );
}

#[test]
fn a_bloom_filter_equals_rocksdbs_byte_by_byte() {
    let mut builder = FilterBuilder::bloom(10.0);
    for i in 0..3 {
        builder.add_key(&key(i));
        builder.add_key(&key(i));
    }
    assert_eq!(builder.num_added(), 3);
    assert_eq!(builder.estimated_size(), 69);
    assert_eq!(builder.finish(), hex(BLOOM3));
    assert_eq!(builder.num_added(), 0);
    assert_eq!(builder.finish(), Vec::<u8>::new());
}

#[test]
fn a_ribbon_filter_equals_rocksdbs_byte_by_byte() {
    let mut builder = FilterBuilder::ribbon(10.0);
    (0..200).for_each(|i| builder.add_key(&key(i)));
    assert_eq!(builder.estimated_size(), 229);
    let theirs = hex(RIBBON200);
    let hashes: Vec<u64> = (0..200).map(|i| hash64(&key(i))).collect();
    assert_eq!(ribbon::build_from(&hashes, 105.0, 0x90), Some(theirs));
    assert_eq!(builder.finish_checked().unwrap().len(), 229);
}

#[test]
fn ribbon_filters_hold_their_keys_and_are_smaller() {
    for (keys, bits, passed_max) in [
        (1usize, 10.0, 130),
        (150, 10.0, 200),
        (1000, 10.0, 150),
        (30_000, 10.0, 130),
        (30_000, 5.0, 1200),
        (5000, 20.0, 10),
        (5000, 100.0, 0),
        (2000, 1.0, 8000),
    ] {
        let mut builder = FilterBuilder::ribbon(bits);
        (0..keys).for_each(|i| builder.add_key(&key(i)));
        let bytes = builder.finish_checked().unwrap();
        let bloom = (keys as f64 * bits / 8.0) as usize;
        if keys >= 1000 && bits >= 5.0 {
            assert!(bytes.len() < bloom * 8 / 10, "{} of {bloom}", bytes.len());
            assert_eq!(bytes[bytes.len() - 5], 0xfe);
        }
        let filter = Filter::new(&bytes);
        assert!(
            (0..keys).all(|i| filter.may_match(&key(i))),
            "{keys} {bits}"
        );
        let passed = false_positives(&filter);
        assert!(passed <= passed_max, "{passed} of 10000, {keys} {bits}");
    }
}

#[test]
fn policies_as_text() {
    use base::options::OptionValue;
    for (text, printed) in [
        ("ribbonfilter:10", "ribbonfilter:10:0"),
        ("ribbonfilter:9.5:-1", "ribbonfilter:9.5:-1"),
        (
            "{id=ribbonfilter:10;bloom_before_level=3;}",
            "ribbonfilter:10:3",
        ),
        ("{id=bloomfilter:10:false;}", "bloomfilter:10:false"),
        ("bloomfilter:7", "bloomfilter:7:false"),
    ] {
        let policy = FilterPolicy::parse(text).unwrap();
        assert_eq!(policy.print(), printed);
        assert_eq!(FilterPolicy::parse(printed), Some(policy));
    }
    for bad in [
        "ribbonfilter",
        "ribbonfilter:x",
        "ribbonfilter:10:y",
        "bloomfilter:10:2",
        "x:1",
    ] {
        assert_eq!(FilterPolicy::parse(bad), None, "{bad}");
    }
    let ribbon = FilterPolicy::parse("ribbonfilter:10:1").unwrap();
    assert_eq!(ribbon.builder(0).unwrap().ribbon_one_in, None);
    assert!(ribbon.builder(1).unwrap().ribbon_one_in.is_some());
    assert!(ribbon.builder(i32::MAX).unwrap().ribbon_one_in.is_some());
}

#[test]
fn filters_of_rocksdb_hold_their_keys() {
    for (text, keys, passed_max) in [(BLOOM3, 3, 10), (LEGACY3, 3, 10), (RIBBON200, 200, 150)] {
        let filter = Filter::new(&hex(text));
        assert!(!filter.is_useless());
        for i in 0..keys {
            assert!(filter.may_match(&key(i)), "key {i} of {text}");
            assert!(filter.may_match_hash(hash64(&key(i))));
        }
        let passed = false_positives(&filter);
        assert!(passed <= passed_max, "{passed} of 10000 pass {text}");
    }
}

#[test]
fn false_positive_rates() {
    for (bits, at_most) in [(5.0, 1200), (10.0, 130), (16.0, 15), (24.0, 3)] {
        let mut builder = FilterBuilder::bloom(bits);
        (0..20_000).for_each(|i| builder.add_key(&key(i)));
        let filter = Filter::new(&builder.finish());
        assert!((0..20_000).all(|i| filter.may_match(&key(i))));
        let passed = false_positives(&filter);
        assert!(passed <= at_most, "{passed} of 10000 pass at {bits} bits");
    }
}

#[test]
fn layouts_that_are_not_known_let_every_key_pass() {
    let mut bytes = hex(BLOOM3);
    let n = bytes.len();
    for (at, value) in [
        (5, 0),
        (5, 0x80),
        (4, 1),
        (3, 0),
        (3, 0x26),
        (3, 31),
        (2, 1),
        (1, 1),
    ] {
        let before = std::mem::replace(&mut bytes[n - at], value);
        let filter = Filter::new(&bytes);
        assert!(
            filter.is_useless() && filter.may_match(b"x"),
            "byte -{at} = {value}"
        );
        bytes[n - at] = before;
    }
    for len in 0..=5 {
        let filter = Filter::new(&vec![0xff; len]);
        assert!(!filter.may_match(b"x") && !filter.may_match_hash(7));
    }
    // A Ribbon of one block, and legacy filters with no lines or lines of 3 bytes.
    for tail in [[0xfe, 0, 1, 0, 0], [6, 0, 0, 0, 0], [6, 21, 0, 0, 0]] {
        let filter = Filter::new(&[&[0; 63][..], &tail].concat());
        assert!(filter.may_match(b"x"));
    }
}

#[test]
fn policy_text() {
    let bloom = |bits_per_key| Some(FilterPolicy::Bloom { bits_per_key });
    for (text, policy) in [
        ("nullptr", Some(FilterPolicy::None)),
        ("bloomfilter:10", bloom(10.0)),
        ("bloomfilter:16.5:false", bloom(16.5)),
        ("bloomfilter:8:true", bloom(8.0)),
        ("{id=bloomfilter:12:false;}", bloom(12.0)),
        ("bloomfilter", None),
        ("bloomfilter:", None),
        ("bloomfilter:x:false", None),
        // As RocksDB takes them.
        ("bloomfilter:-1:false", bloom(0.0)),
        ("bloomfilter:0.3:false", bloom(0.0)),
        ("bloomfilter:0.7:false", bloom(1.0)),
        ("bloomfilter:1000:false", bloom(100.0)),
        ("bloomfilter:NaN:false", None),
        ("bloomfilter:10:maybe", None),
    ] {
        assert_eq!(FilterPolicy::parse(text), policy, "{text}");
    }
    for text in [
        "nullptr",
        "bloomfilter:10:false",
        "bloomfilter:16.5:false",
        "bloomfilter:1.125:false",
    ] {
        assert_eq!(FilterPolicy::parse(text).unwrap().print(), text);
    }
    assert!(
        FilterPolicy::Bloom { bits_per_key: 0.4 }
            .builder(0)
            .is_none()
    );
    assert!(FilterPolicy::None.builder(0).is_none());
    assert_eq!(FilterBuilder::bloom(f64::NAN).millibits_per_key, 1000);
    assert_eq!(FilterBuilder::bloom(1e9).millibits_per_key, 100_000);
}

proptest! {
    #[test]
    fn any_bytes_make_a_filter(mut bytes: Vec<u8>, kind in 0u8..4, key: Vec<u8>) {
        let n = bytes.len();
        if n >= 5 {
            match kind {
                0 => bytes[n - 5] = 0xff,
                1 => { bytes[n - 5] = 0xfe; bytes[n - 1] = 0; bytes[n - 2] = 0; }
                2 => { bytes[n - 5] = 6; bytes[n - 4..].copy_from_slice(&[1, 0, 0, 0]); }
                _ => {}
            }
        }
        let filter = Filter::new(&bytes);
        let _ = filter.may_match(&key);
        prop_assert!(filter.memory_usage() <= 2 * n + 300);
    }

    #[test]
    fn no_key_is_ever_missed(keys: Vec<Vec<u8>>, bits in 1.0f64..40.0) {
        let mut builder = FilterBuilder::bloom(bits);
        for key in &keys {
            builder.add_key(key);
        }
        let estimate = builder.estimated_size();
        let bytes = builder.finish();
        prop_assert_eq!(bytes.len(), estimate);
        let filter = Filter::new(&bytes);
        prop_assert!(keys.iter().all(|k| filter.may_match(k)));
    }
}

/// A filter that is not decoded says the same as one that is: of every kind, also if it is damaged.
#[test]
fn filters_say_the_same_without_being_decoded() {
    let mut blocks = vec![
        hex(BLOOM3),
        hex(LEGACY3),
        hex(RIBBON200),
        Vec::new(),
        vec![0xff; 4],
    ];
    for (bits, keys) in [(3.0, 1), (10.0, 500), (20.0, 3000)] {
        for mut builder in [FilterBuilder::bloom(bits), FilterBuilder::ribbon(bits)] {
            (0..keys).for_each(|i| builder.add_key(&key(i)));
            blocks.push(builder.finish());
        }
    }
    let mut rng = base::rng::Rng::new(1);
    for block in blocks {
        for damage in 0..40 {
            let mut bytes = block.clone();
            let len = bytes.len() as u64;
            match damage {
                0 => {}
                1..20 if len > 0 => bytes[rng.below(len) as usize] ^= 1 << rng.below(8),
                20..30 if len > 5 => {
                    bytes[(len - 1 - rng.below(5)) as usize] = rng.next_u64() as u8;
                }
                _ => bytes.truncate(rng.below(len + 1) as usize),
            }
            let filter = Filter::new(&bytes);
            for i in 0..300 {
                let k = key(rng.below(4000) as usize + i);
                assert_eq!(may_match_in(&bytes, &k), filter.may_match(&k), "{bytes:?}");
            }
        }
    }
}
