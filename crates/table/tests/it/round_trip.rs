//! The reader finds the entries that the builder wrote; the model is a sorted list.

use std::sync::Arc;

use base::rng::Rng;
use base::{Comparator, SliceTransform, key};
use proptest::prelude::*;
use table::checksum::ChecksumType;
use table::compress::CompressionType;
use table::filter::FilterPolicy;
use table::options::{DataBlockIndexType, FlushBlockPolicy, IndexShortening, IndexType};
use table::{
    BlockCache, BuilderOptions, InternalIterator, Metadata, ReadOptions, Reader, ReaderOptions,
    TableOptions,
};

use crate::util::{
    Entries, Threads, build, get_all, ikey, open, scan, scan_back, seek_key, sorted,
};

/// Entries with repeated and neighbouring user keys of all lengths.
fn random_entries(rng: &mut Rng, n: usize, cmp: &Comparator) -> Entries {
    let mut out = Vec::new();
    for _ in 0..n {
        let mut user = match rng.below(4) {
            0 => format!("user{:08}", rng.below(n as u64 * 2)).into_bytes(),
            1 => vec![rng.below(3) as u8 * 127; rng.below(12) as usize],
            _ => {
                let mut k = vec![0; rng.below(20) as usize];
                rng.fill(&mut k);
                k
            }
        };
        for _ in 0..=rng.below(3) {
            let mut value = vec![b'v'; rng.below(200) as usize];
            let half = value.len() / 2;
            rng.fill(&mut value[..half]);
            out.push((ikey(&user, rng.below(1000)), value));
        }
        user.clear();
    }
    sorted(out, cmp)
}

pub(crate) fn check_against_model(
    reader: &Arc<Reader>,
    model: &Entries,
    cmp: &Comparator,
    rng: &mut Rng,
) {
    assert_eq!(&scan(reader).unwrap(), model);
    assert_eq!(&scan_back(reader).unwrap(), model);
    let mut it = reader.iter(ReadOptions::default());
    for _ in 0..300 {
        let target = if rng.one_in(2) && !model.is_empty() {
            let k = &model[rng.below(model.len() as u64) as usize].0;
            seek_key(key::user_key(k), rng.below(1000))
        } else {
            seek_key(format!("user{:08}", rng.below(500)).as_bytes(), 5)
        };
        let at = model.partition_point(|(k, _)| key::compare(cmp, k, &target).is_lt());
        it.seek(&target);
        check_at(&it, model.get(at));
        if it.valid() {
            // A few steps in a random direction.
            let mut at = at;
            for _ in 0..rng.below(30) {
                if rng.one_in(2) {
                    it.next();
                    at += 1;
                } else if at == 0 {
                    it.prev();
                    check_at(&it, None);
                    break;
                } else {
                    it.prev();
                    at -= 1;
                }
                check_at(&it, model.get(at));
                if !it.valid() {
                    break;
                }
            }
        }
        it.seek_for_prev(&target);
        let upto = model.partition_point(|(k, _)| key::compare(cmp, k, &target).is_le());
        check_at(&it, upto.checked_sub(1).and_then(|i| model.get(i)));

        let user = key::user_key(&target);
        let expected: Entries = model[at..]
            .iter()
            .take_while(|(k, _)| key::user_key(k) == user)
            .cloned()
            .collect();
        let sequence = key::split(&target).unwrap().1 >> 8;
        assert_eq!(get_all(reader, user, sequence).unwrap(), expected);
    }
    reader.verify_checksums().unwrap();
}

fn check_at(it: &impl InternalIterator, expected: Option<&(Vec<u8>, Vec<u8>)>) {
    it.status().unwrap();
    let found = it.valid().then(|| (it.key().to_vec(), it.value().to_vec()));
    assert_eq!(found.as_ref(), expected);
}

fn table_options(rng: &mut Rng) -> TableOptions {
    fn any<T: Copy>(rng: &mut Rng, of: &[T]) -> T {
        of[rng.below(of.len() as u64) as usize]
    }
    let filters = [
        FilterPolicy::None,
        FilterPolicy::Bloom { bits_per_key: 10.0 },
        FilterPolicy::Ribbon {
            bits_per_key: 10.0,
            bloom_before_level: 0,
        },
    ];
    let index_type = any(rng, IndexType::ALL);
    TableOptions {
        block_size: any(rng, &[1, 128, 1024, 4096]),
        block_restart_interval: any(rng, &[1, 2, 16]),
        index_block_restart_interval: any(rng, &[1, 4]),
        format_version: 2 + rng.below(6) as u32,
        checksum: any(rng, ChecksumType::ALL),
        filter_policy: any(rng, &filters),
        index_shortening: any(rng, IndexShortening::ALL),
        verify_compression: rng.one_in(2),
        enable_index_compression: rng.one_in(2),
        index_type,
        partition_filters: index_type == IndexType::TwoLevel && rng.one_in(2),
        metadata_block_size: any(rng, &[1, 100, 4096]),
        whole_key_filtering: rng.one_in(2),
        data_block_index_type: any(rng, DataBlockIndexType::ALL),
        data_block_hash_table_util_ratio: any(rng, &[0.1, 0.75, 10.0]),
        flush_block_policy_factory: any(rng, FlushBlockPolicy::ALL),
        detect_filter_construct_corruption: rng.one_in(2),
        ..TableOptions::default()
    }
}

/// Blocks that are decompressed in place: with few entries, with one, and with too many for that.
#[test]
fn large_blocks_of_every_codec_read_as_their_model() {
    for (i, &compression) in CompressionType::ALL.iter().enumerate() {
        let mut rng = Rng::new(i as u64);
        let cmp = Comparator::bytewise();
        let mut model = Entries::new();
        for n in 0..60u64 {
            let len = [10, 3000, 40_000, 300_000][rng.below(4) as usize];
            let mut value = vec![b'v'; len];
            rng.fill(&mut value[..len / 2]);
            model.push((ikey(format!("user{n:08}").as_bytes(), n), value));
        }
        let small = (60..4000u64).map(|n| (ikey(format!("user{n:08}").as_bytes(), 7), vec![7; 30]));
        model.extend(small);
        let options = BuilderOptions {
            table: TableOptions {
                block_size: 64 << 10,
                ..TableOptions::default()
            },
            compression,
            ..BuilderOptions::default()
        };
        let (mut bytes, _) = build(&model, options);
        let reader = open(bytes.clone(), ReaderOptions::default()).unwrap();
        check_against_model(&reader, &model, &cmp, &mut rng);
        // Damage is found as in small blocks, with checksums and without.
        let at = bytes.len() / 3;
        bytes[at] ^= 0x55;
        let reader = open(bytes, ReaderOptions::default()).unwrap();
        assert!(scan(&reader).unwrap_err().is_corruption());
        let mut it = reader.iter(ReadOptions {
            verify_checksums: false,
            ..ReadOptions::default()
        });
        it.seek_to_first();
        while it.valid() {
            it.next();
        }
    }
}

/// Every existing prefix matches; a filter excludes most prefixes that do not exist.
pub(crate) fn check_prefixes(reader: &Reader, model: &Entries, extractor: Option<&SliceTransform>) {
    assert_eq!(reader.prefix_extractor(), extractor);
    let Some(extractor) = extractor else {
        assert!(reader.prefix_may_match(b"none"));
        return;
    };
    for (k, _) in model {
        let prefix = extractor.prefix(key::user_key(k)).unwrap();
        assert!(reader.prefix_may_match(prefix), "{prefix:?}");
    }
    let passed = (0..100).filter(|i| reader.prefix_may_match(format!("?{i:04}").as_bytes()));
    let has_filter = reader.properties().filter_size > 0;
    assert!(!has_filter || passed.count() < 20);
}

/// Entries and options of a table, with the codec that the seed names.
pub(crate) fn random_table(seed: u64, rng: &mut Rng) -> (Entries, BuilderOptions) {
    let cmp = if rng.one_in(3) {
        Comparator::reverse_bytewise()
    } else {
        Comparator::bytewise()
    };
    let n = rng.below(400) as usize;
    let model = random_entries(rng, n, &cmp);
    let mut options = BuilderOptions {
        table: table_options(rng),
        comparator: cmp,
        compression: CompressionType::ALL[(seed as usize) % CompressionType::ALL.len()],
        ..BuilderOptions::default()
    };
    if options.table.index_type == IndexType::Hash || rng.one_in(2) {
        options.prefix_extractor = Some(SliceTransform::capped_prefix(5));
    }
    options.table.block_align = options.compression == CompressionType::None;
    (model, options)
}

#[test]
fn random_tables_of_every_format_read_as_their_model() {
    for seed in 0..120 {
        let mut rng = Rng::new(seed);
        let (model, mut options) = random_table(seed, &mut rng);
        let cmp = options.comparator.clone();
        options.compression_opts.max_dict_bytes = rng.below(3) as u32 * 1000;
        options.compression_opts.zstd_max_train_bytes = rng.below(2) as u32 * 10_000;
        options.compression_opts.max_dict_buffer_bytes = rng.below(3) * 5000;
        let (bytes, done) = build(&model, options.clone());
        let mut parallel = options.clone();
        parallel.compression_opts.parallel_threads = 4;
        parallel.compressors = Some(Threads::shared());
        assert!(build(&model, parallel).0 == bytes, "seed {seed}");
        let p = &done.properties;
        assert_eq!(p.num_entries as usize, model.len());
        let cache = rng.one_in(2).then(|| Arc::new(BlockCache::new(20_000)));
        let reader = open(
            bytes,
            ReaderOptions {
                comparator: cmp.clone(),
                block_cache: cache.clone(),
                ..ReaderOptions::default()
            },
        )
        .unwrap();
        assert_eq!(**reader.properties(), *p);
        assert_eq!(
            reader.data_blocks().unwrap().len() as u64,
            p.num_data_blocks
        );
        check_against_model(&reader, &model, &cmp, &mut rng);
        check_prefixes(&reader, &model, options.prefix_extractor.as_ref());
        if let Some(cache) = cache {
            assert!(cache.usage() <= cache.capacity());
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn any_keys_round_trip(keys: Vec<(Vec<u8>, u16, Vec<u8>)>, block_size in 1u64..300) {
        let cmp = Comparator::bytewise();
        let entries = keys.into_iter().map(|(k, s, v)| (ikey(&k, u64::from(s)), v)).collect();
        let model = sorted(entries, &cmp);
        let options = BuilderOptions {
            table: TableOptions { block_size, ..TableOptions::default() },
            ..BuilderOptions::default()
        };
        let (bytes, _) = build(&model, options);
        let reader = open(bytes, ReaderOptions::default()).unwrap();
        prop_assert_eq!(&scan(&reader).unwrap(), &model);
        for (k, v) in &model {
            let (user, packed) = key::split(k).unwrap();
            let found = get_all(&reader, user, packed >> 8).unwrap();
            prop_assert_eq!(&found[0], &(k.clone(), v.clone()));
        }
    }
}

#[test]
fn an_empty_table_and_one_of_tombstones_only() {
    let (bytes, done) = build(&Vec::new(), BuilderOptions::default());
    assert_eq!(done.properties.num_data_blocks, 0);
    let reader = open(bytes, ReaderOptions::default()).unwrap();
    assert!(scan(&reader).unwrap().is_empty());
    assert!(scan_back(&reader).unwrap().is_empty());
    assert!(get_all(&reader, b"k", 9).unwrap().is_empty());
    assert!(!reader.has_range_tombstones());
    assert_eq!(reader.approximate_offset_of(&ikey(b"k", 1)).unwrap(), 0);

    let file = io::testing::Memory::new("000008.sst", Vec::new());
    let mut b = table::Builder::new(file.clone(), BuilderOptions::default()).unwrap();
    let t = base::ValueType::RangeDeletion;
    let start = |s: &[u8], n| key::encode(s, base::SequenceNumber(n), t);
    b.add_range_tombstone(&start(b"m", 7), b"p").unwrap();
    b.add_range_tombstone(&start(b"a", 9), b"c").unwrap();
    assert!(b.add_range_tombstone(&ikey(b"a", 9), b"c").is_err());
    let done = b.finish().unwrap();
    assert_eq!(done.properties.num_range_deletions, 2);
    let reader = open(file.content(), ReaderOptions::default()).unwrap();
    assert!(reader.has_range_tombstones());
    let all = reader.range_tombstones().unwrap();
    assert_eq!(all.len(), 2);
    assert_eq!(
        (&all[0].start[..], &all[0].end[..], all[0].sequence.0),
        (&b"a"[..], &b"c"[..], 9)
    );
    reader.verify_checksums().unwrap();
}

#[test]
fn keys_out_of_order_are_refused() {
    let file = io::testing::Memory::new("000009.sst", Vec::new());
    let mut b = table::Builder::new(file, BuilderOptions::default()).unwrap();
    b.add(&ikey(b"b", 5), b"").unwrap();
    let e = b.add(&ikey(b"b", 5), b"").unwrap_err().to_string();
    assert!(e.contains("000009.sst: keys added out of order"), "{e}");
    assert!(b.add(&ikey(b"a", 5), b"").is_err());
    assert!(b.add(b"short", b"").is_err());
    b.add(&ikey(b"b", 4), b"").unwrap();
    assert_eq!(b.num_entries(), 2);
}

#[test]
fn another_comparator_or_another_unique_id_is_refused() {
    let options = BuilderOptions {
        db_id: "f6047002-e844-458d-98ff-af9e0766b771".to_owned(),
        db_session_id: "GXC3PQQYFRHBHV9UG0Z2".to_owned(),
        file_number: 9,
        ..BuilderOptions::default()
    };
    let (bytes, done) = build(&vec![(ikey(b"k", 1), b"v".to_vec())], options);
    let hex = done
        .unique_id
        .iter()
        .fold(String::new(), |s, b| format!("{s}{b:02x}"));
    assert_eq!(hex, "ee3a00c0522ccb9c30f20216abe86247");
    let with = |comparator, expected_unique_id| {
        let o = ReaderOptions {
            comparator,
            expected_unique_id,
            ..ReaderOptions::default()
        };
        open(bytes.clone(), o)
    };
    with(Comparator::bytewise(), Some(done.unique_id)).unwrap();
    let e = with(Comparator::reverse_bytewise(), None)
        .unwrap_err()
        .to_string();
    assert!(e.contains("leveldb.BytewiseComparator"), "{e}");
    let e = with(Comparator::bytewise(), Some([1; 16])).unwrap_err();
    assert!(e.is_corruption(), "{e}");
}

#[test]
fn filters_are_counted_and_save_reads() {
    let statistics = Arc::new(base::stats::Statistics::new());
    let options = BuilderOptions {
        table: TableOptions {
            filter_policy: FilterPolicy::Bloom { bits_per_key: 10.0 },
            ..TableOptions::default()
        },
        ..BuilderOptions::default()
    };
    let entries: Entries = (0..1000u32)
        .map(|i| (ikey(&i.to_be_bytes(), 1), b"v".to_vec()))
        .collect();
    let (bytes, _) = build(&entries, options);
    let reader = open(
        bytes,
        ReaderOptions {
            statistics: Some(statistics.clone()),
            block_cache: Some(Arc::new(BlockCache::new(1 << 20))),
            metadata: Metadata::Charged,
            ..ReaderOptions::default()
        },
    )
    .unwrap();
    use base::stats::Ticker;
    for i in 0..1000u32 {
        assert_eq!(get_all(&reader, &i.to_be_bytes(), 9).unwrap().len(), 1);
        assert!(
            get_all(&reader, &(i + 5000).to_be_bytes(), 9)
                .unwrap()
                .is_empty()
        );
    }
    let useful = statistics.get(Ticker::BloomFilterUseful);
    assert!((950..=1000).contains(&useful), "{useful}");
    assert_eq!(
        statistics.get(Ticker::BloomFilterFullPositive),
        2000 - useful
    );
    assert_eq!(
        statistics.get(Ticker::BlockCacheMiss),
        reader.data_blocks().unwrap().len() as u64
    );
    assert!(statistics.get(Ticker::BlockCacheHit) > 900);
}
