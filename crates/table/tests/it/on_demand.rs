//! Indexes and filters that are kept in the block cache give the same answers as those in memory.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base::perf::{self, PerfCounter};
use base::rng::Rng;
use base::stats::{Statistics, Ticker};
use base::{ErrorKind, key};
use table::compress::CompressionType;
use table::filter::FilterPolicy;
use table::options::IndexType;
use table::{
    BlockCache, BuilderOptions, InternalIterator as _, Metadata, Pinning, ReadOptions, Reader,
    ReaderOptions, TableOptions,
};

use crate::round_trip::{check_against_model, check_prefixes, random_table};
use crate::util::{Entries, build, get_all, ikey, open, scan, seek_key};

fn any_pinning(rng: &mut Rng) -> Pinning {
    Pinning {
        top_level: rng.one_in(2),
        partitions: rng.one_in(2),
        unpartitioned: rng.one_in(2),
        high_priority: rng.one_in(2),
    }
}

fn on_demand(pinning: Pinning, cache: &Arc<BlockCache>) -> ReaderOptions {
    ReaderOptions {
        block_cache: Some(Arc::clone(cache)),
        metadata: Metadata::Cached(pinning),
        ..ReaderOptions::default()
    }
}

/// [`get_all`] by a get that stops at each block that is not in the cache, and its number of stops.
fn get_in_steps(reader: &Reader, user: &[u8], sequence: u64) -> (Entries, usize) {
    let (options, seek_key) = (ReadOptions::default(), seek_key(user, sequence));
    let (mut out, mut stops) = (Entries::new(), 0);
    let mut visit = |k: &[u8], v: table::Value<'_>| {
        out.push((k.to_vec(), v.bytes().to_vec()));
        true
    };
    let mut missing = reader.begin_get(&options, &seek_key, &mut visit).unwrap();
    while let Some(lacks) = missing {
        stops += 1;
        let block = if stops % 2 == 0 {
            reader.read_missing(&lacks, &options).unwrap()
        } else {
            let (file, span) = reader.prepare_read(&lacks, &options).unwrap();
            let mut bytes = vec![0; span.len];
            let n = file.read_at(&mut bytes, span.offset).unwrap();
            let read = (&lacks, span);
            reader
                .finish_read(read, &options, &bytes[..n], None)
                .unwrap()
        };
        missing = reader
            .resume_get(&options, &seek_key, (lacks, block), &mut visit)
            .unwrap();
    }
    (out, stops)
}

#[test]
fn random_tables_of_every_format_read_as_their_model() {
    let mut most_stops = 0;
    for seed in 0..150 {
        let mut rng = Rng::new(seed);
        let (model, options) = random_table(seed, &mut rng);
        let cmp = options.comparator.clone();
        let (bytes, _) = build(&model, options.clone());
        let in_memory = ReaderOptions {
            comparator: cmp.clone(),
            ..ReaderOptions::default()
        };
        let in_memory = open(bytes.clone(), in_memory).unwrap();
        let cache = Arc::new(BlockCache::new(
            [0, 5000, 60_000, 8 << 20][rng.below(4) as usize],
        ));
        let how = ReaderOptions {
            comparator: cmp.clone(),
            ..on_demand(any_pinning(&mut rng), &cache)
        };
        let reader = open(bytes, how).unwrap();
        check_against_model(&reader, &model, &cmp, &mut rng);
        check_prefixes(&reader, &model, options.prefix_extractor.as_ref());
        assert_eq!(
            reader.data_blocks().unwrap(),
            in_memory.data_blocks().unwrap()
        );
        for count in [1, 7, 1000] {
            assert_eq!(
                reader.anchors(count).unwrap(),
                in_memory.anchors(count).unwrap()
            );
        }
        for (k, _) in model.iter().step_by(7) {
            let (ours, theirs) = (
                reader.approximate_offset_of(k).unwrap(),
                in_memory.approximate_offset_of(k).unwrap(),
            );
            assert_eq!(ours, theirs);
            let user = key::user_key(k);
            let (found, stops) = get_in_steps(&reader, user, 1000);
            assert_eq!(found, get_all(&in_memory, user, 1000).unwrap());
            most_stops = most_stops.max(stops);
        }
        assert!(cache.usage() - cache.reserved() <= cache.capacity());
        drop(reader);
        assert_eq!(cache.reserved(), 0);
    }
    assert!(most_stops >= 5, "{most_stops}");
}

/// A table of 20,000 keys whose index and filter have several partitions, or none.
fn large_table(partitioned: bool) -> Vec<u8> {
    let table = TableOptions {
        filter_policy: FilterPolicy::Bloom { bits_per_key: 10.0 },
        index_type: if partitioned {
            IndexType::TwoLevel
        } else {
            IndexType::BinarySearch
        },
        partition_filters: partitioned,
        ..TableOptions::default()
    };
    let entries: Entries = (0..20_000u32)
        .map(|i| (ikey(&i.to_be_bytes(), 1), vec![7; 100]))
        .collect();
    let options = BuilderOptions {
        table,
        compression: CompressionType::None,
        ..BuilderOptions::default()
    };
    build(&entries, options).0
}

/// The blocks of a lookup, by the statistics: hits and misses of indexes, of filters and of data.
fn counts(s: &Statistics) -> [u64; 6] {
    [
        Ticker::BlockCacheIndexHit,
        Ticker::BlockCacheIndexMiss,
        Ticker::BlockCacheFilterHit,
        Ticker::BlockCacheFilterMiss,
        Ticker::BlockCacheDataHit,
        Ticker::BlockCacheDataMiss,
    ]
    .map(|t| s.get(t))
}

#[test]
fn a_lookup_reads_the_blocks_that_it_needs_once() {
    for (partitioned, parts) in [(false, 1), (true, 2)] {
        let bytes = large_table(partitioned);
        let (statistics, cache) = (
            Arc::new(Statistics::new()),
            Arc::new(BlockCache::new(8 << 20)),
        );
        let how = ReaderOptions {
            statistics: Some(Arc::clone(&statistics)),
            ..on_demand(Pinning::default(), &cache)
        };
        // The end of the file, which is read anyway, has the top levels.
        let reader = open(bytes.clone(), how).unwrap();
        let warm = if partitioned { 2 } else { 1 };
        assert!(cache.len() >= warm, "{cache:?}");
        let before = counts(&statistics);
        assert_eq!(before, [0; 6]);
        let user = 777u32.to_be_bytes();
        for round in 0..3 {
            assert_eq!(get_all(&reader, &user, 9).unwrap().len(), 1);
            let [
                index_hit,
                index_miss,
                filter_hit,
                filter_miss,
                data_hit,
                data_miss,
            ] = counts(&statistics);
            assert_eq!((data_hit, data_miss), (round, 1));
            assert_eq!(index_hit + index_miss, parts * (round + 1));
            assert_eq!(filter_hit + filter_miss, parts * (round + 1));
            let missed = u64::from(partitioned);
            assert_eq!((index_miss, filter_miss), (missed, missed));
        }
        assert_eq!(reader.metadata_memory(), 0);
        // What is pinned is not asked of the cache, and is charged to it.
        let pinning = Pinning {
            top_level: true,
            partitions: true,
            unpartitioned: true,
            high_priority: true,
        };
        let (statistics, cache) = (
            Arc::new(Statistics::new()),
            Arc::new(BlockCache::new(1 << 20)),
        );
        let how = ReaderOptions {
            statistics: Some(Arc::clone(&statistics)),
            ..on_demand(pinning, &cache)
        };
        let reader = open(bytes, how).unwrap();
        assert!(
            cache.reserved() > 20_000 * 10 / 8 && cache.is_empty(),
            "{cache:?}"
        );
        assert_eq!(get_all(&reader, &user, 9).unwrap().len(), 1);
        assert_eq!(counts(&statistics), [0, 0, 0, 0, 0, 1]);
    }
}

#[test]
fn only_the_cache_may_be_read() {
    let cache = Arc::new(BlockCache::new(8 << 20));
    let reader = open(large_table(true), on_demand(Pinning::default(), &cache)).unwrap();
    let options = ReadOptions {
        cache_only: true,
        ..ReadOptions::default()
    };
    let (there, absent) = (777u32.to_be_bytes(), 900_000u32.to_be_bytes());
    let get = |user: &[u8]| {
        let mut found = 0;
        let result = reader.get(&options, &seek_key(user, 9), &mut |_, _| {
            found += 1;
            true
        });
        result.map(|()| found)
    };
    assert_eq!(get(&there).unwrap_err().kind(), ErrorKind::Incomplete);
    assert_eq!(get_all(&reader, &there, 9).unwrap().len(), 1);
    assert_eq!(get(&there).unwrap(), 1);
    assert!(get_all(&reader, &absent, 9).unwrap().is_empty());
    assert_eq!(get(&absent).unwrap(), 0);
    let mut it = reader.iter(options);
    it.seek_to_last();
    assert_eq!(it.status().unwrap_err().kind(), ErrorKind::Incomplete);
    // A scan that does not fill the cache leaves it as it is.
    let before = cache.len();
    let mut it = reader.iter(ReadOptions {
        fill_cache: false,
        ..ReadOptions::default()
    });
    it.seek_to_first();
    let mut n = 0;
    while it.valid() {
        n += 1;
        it.next();
    }
    assert_eq!((n, cache.len()), (20_000, before));
    assert_eq!(scan(&reader).unwrap().len(), 20_000);
}

/// Blocks of indexes and filters that nobody has asked for again survive more blocks in the cache if their priority is high.
#[test]
fn high_priority_outlives_new_blocks() {
    let missed = [false, true].map(|high_priority| {
        let cache = Arc::new(BlockCache::new(1 << 20));
        let pinning = Pinning {
            top_level: true,
            high_priority,
            ..Pinning::default()
        };
        let statistics = Arc::new(Statistics::new());
        let how = ReaderOptions {
            statistics: Some(Arc::clone(&statistics)),
            ..on_demand(pinning, &cache)
        };
        let bytes = large_table(true);
        let reader = open(bytes, how).unwrap();
        let every_partition = || {
            for i in (0..20_000u32).step_by(3000) {
                assert_eq!(get_all(&reader, &i.to_be_bytes(), 9).unwrap().len(), 1);
            }
        };
        every_partition();
        // As many new data blocks as fit, and a few more.
        let other = open(
            large_table(false),
            ReaderOptions {
                block_cache: Some(Arc::clone(&cache)),
                ..ReaderOptions::default()
            },
        );
        let mut it = other.unwrap().iter(ReadOptions::default());
        it.seek_to_first();
        for _ in 0..12_000 {
            it.next();
        }
        let before = statistics.get(Ticker::BlockCacheFilterMiss);
        every_partition();
        statistics.get(Ticker::BlockCacheFilterMiss) - before
    });
    assert!(missed[0] > 3 && missed[1] == 0, "{missed:?}");
}

/// Offsets and sizes that no file has, partitions that overlap, and blocks that would take any amount of memory.
#[test]
fn metadata_has_a_bound() {
    let entries: Entries = (0..2000u32)
        .map(|i| {
            (
                [vec![b'k'; 1000], ikey(&i.to_be_bytes(), 1)].concat(),
                vec![7; 10],
            )
        })
        .collect();
    let options = BuilderOptions {
        table: TableOptions {
            block_size: 1,
            index_block_restart_interval: 1000,
            ..TableOptions::default()
        },
        compression: CompressionType::Zstd,
        ..BuilderOptions::default()
    };
    let (bytes, _) = build(&entries, options);
    assert!(bytes.len() < 1_000_000);
    let cache = Arc::new(BlockCache::new(0));
    let user = key::user_key(&entries[1000].0).to_vec();
    for (bound, fits) in [(1 << 20, false), (100 << 20, true)] {
        let reader = open(
            bytes.clone(),
            ReaderOptions {
                metadata_bytes_max: bound,
                ..on_demand(Pinning::default(), &cache)
            },
        );
        let found = reader.and_then(|reader| {
            let mut found = 0;
            let seek_key = seek_key(&user, 9);
            reader
                .get(&ReadOptions::default(), &seek_key, &mut |_, _| {
                    found += 1;
                    true
                })
                .map(|()| found)
        });
        match found {
            Ok(n) => assert!(fits && n == 1),
            Err(e) => assert!(!fits && e.kind() == ErrorKind::NotSupported, "{e}"),
        }
    }
}

#[test]
fn the_perf_context_counts_blocks() {
    let cache = Arc::new(BlockCache::new(8 << 20));
    let reader = open(large_table(true), on_demand(Pinning::default(), &cache)).unwrap();
    perf::set_level(perf::PerfLevel::EnableCount);
    perf::reset();
    for _ in 0..2 {
        get_all(&reader, &777u32.to_be_bytes(), 9).unwrap();
    }
    // The top levels were read with the end of the file.
    assert_eq!(perf::get(PerfCounter::IndexBlockReadCount), 1);
    assert_eq!(perf::get(PerfCounter::FilterBlockReadCount), 1);
    assert_eq!(perf::get(PerfCounter::BlockCacheIndexHitCount), 3);
    assert_eq!(perf::get(PerfCounter::BlockCacheFilterHitCount), 3);
}

/// With `warm`, the first lookup finds everything but its data block in the cache; opening the table again reads nothing.
#[test]
fn blocks_are_in_the_cache_before_they_are_needed() {
    for partitioned in [false, true] {
        let statistics = Arc::new(Statistics::new());
        let cache = Arc::new(BlockCache::new(8 << 20));
        let how = ReaderOptions {
            statistics: Some(Arc::clone(&statistics)),
            warm: true,
            ..on_demand(Pinning::default(), &cache)
        };
        let bytes = large_table(partitioned);
        let reader = open(bytes.clone(), how).unwrap();
        let blocks = cache.kinds();
        assert!(blocks[1].0 > 0 && blocks[3].0 > 0, "{blocks:?}");
        assert_eq!(blocks[1].0 > 1, partitioned, "{blocks:?}");
        let added = statistics.get(Ticker::BlockCacheAdd);
        assert_eq!(added as usize, cache.len());
        for i in (0..20_000u32).step_by(500) {
            assert_eq!(get_all(&reader, &i.to_be_bytes(), 9).unwrap().len(), 1);
        }
        let [_, index_miss, _, filter_miss, _, _] = counts(&statistics);
        assert_eq!((index_miss, filter_miss), (0, 0));
        let added = statistics.get(Ticker::BlockCacheAdd);
        let again = open(bytes, reader.options_to_open_again()).unwrap();
        assert_eq!(statistics.get(Ticker::BlockCacheAdd), added);
        assert_eq!(get_all(&again, &500u32.to_be_bytes(), 9).unwrap().len(), 1);
    }
}

/// A file that panics once when it is read.
#[derive(Debug)]
struct Panicky(Arc<dyn io::File>, AtomicBool);

impl io::FileWrapper for Panicky {
    fn inner(&self) -> &dyn io::File {
        &*self.0
    }
    fn read_at(&self, buf: &mut [u8], offset: u64) -> base::Result<usize> {
        assert!(!self.1.swap(false, Ordering::Relaxed), "as planned");
        self.0.read_at(buf, offset)
    }
}

/// A seek that a panic has ended in the index leaves no block behind that a later seek would take for its own.
#[test]
fn an_iterator_goes_on_after_a_panic() {
    let bytes = large_table(true);
    let (n, cache) = (bytes.len() as u64, Arc::new(BlockCache::new(0)));
    let file = Arc::new(Panicky(
        io::testing::Memory::new("000007.sst", bytes),
        AtomicBool::new(false),
    ));
    let how = on_demand(Pinning::default(), &cache);
    let reader = Arc::new(Reader::open(Arc::clone(&file) as _, n, how).unwrap());
    let mut it = reader.iter(ReadOptions::default());
    let at = |i: u32| seek_key(&i.to_be_bytes(), 9);
    it.seek(&at(100));
    file.1.store(true, Ordering::Relaxed);
    let sought = catch_unwind(AssertUnwindSafe(|| it.seek(&at(15_000))));
    assert!(sought.is_err());
    it.seek_for_prev(&at(30_000));
    it.status().unwrap();
    assert_eq!(key::user_key(it.key()), 19_999u32.to_be_bytes());
    it.seek(&at(15_000));
    assert_eq!(key::user_key(it.key()), 15_000u32.to_be_bytes());
}
