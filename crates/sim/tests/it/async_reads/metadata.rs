//! Indexes and filters that are kept in the block cache, and read again when they were evicted.

use ironstone::{DbIterator, FilterPolicy};
use table::options::IndexType;

use super::*;

/// Indexes and filters in the cache, in partitions of a few entries or whole.
fn cached(o: &mut Options, partitioned: bool) {
    let table = &mut o.cf.table;
    table.no_block_cache = false;
    table.cache_index_and_filter_blocks = true;
    table.filter_policy = FilterPolicy::Bloom { bits_per_key: 10.0 };
    if partitioned {
        table.index_type = IndexType::TwoLevel;
        table.partition_filters = true;
        table.metadata_block_size = 200;
    }
}

fn everything(it: &mut DbIterator) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut all = Vec::new();
    it.seek_to_first();
    while it.valid() {
        all.push((it.key().to_vec(), it.value().to_vec()));
        it.next();
    }
    it.status().unwrap();
    all
}

/// How often tables were read.
fn table_reads(s: &Simulated) -> u64 {
    let s = s.options.env.statistics.as_ref().unwrap();
    s.get(Ticker::LastLevelReadCount) + s.get(Ticker::NonLastLevelReadCount)
}

/// Lookups and scans in all modes, with caches that hold everything, a little, or nothing.
#[test]
fn all_modes_agree() {
    for mode in MODES {
        for (cache, partitioned, direct) in [
            (0, true, false),
            (0, false, true),
            (20_000, true, true),
            (60_000, false, false),
            (8 << 20, true, false),
        ] {
            let dir = dirs::scratch().unwrap();
            let Some(mut o) = options_in(dir.path(), mode, (cache, direct)) else {
                continue;
            };
            cached(&mut o, partitioned);
            let (db, families) = fill(dir.path(), &o, 11);
            check(&db, &families, &mut Rng::new(1), 8);
            let family = &families[0];
            let scanned = everything(&mut db.cf(family).iterator().unwrap());
            for n in 0..KEYS {
                let found = db.cf(family).get(key(n)).unwrap();
                let at = scanned.binary_search_by(|(k, _)| k.as_slice().cmp(key(n).as_bytes()));
                assert_eq!(found.as_ref(), at.ok().map(|at| &scanned[at].1));
            }
            let shared = o.env.block_cache.as_ref().unwrap();
            assert!(shared.usage() - shared.reserved() <= shared.capacity());
            db.close().unwrap();
        }
    }
}

/// Blocks of indexes and filters that a lookup lacks are queued as data blocks are, and arrive in any order.
#[test]
fn what_lookups_lack_is_queued() {
    for partitioned in [true, false] {
        let s = Simulated::new(0, |o| cached(o, partitioned));
        let keys = wanted(&mut Rng::new(3), 300);
        let expected: Vec<_> = keys.iter().map(|k| s.db().get(k).unwrap()).collect();
        let (queued, read) = (s.disk.queued_reads(), table_reads(&s));
        let got = s.db().multi_get(&keys).into_iter().map(Result::unwrap);
        assert_eq!(got.collect::<Vec<_>>(), expected);
        let (queued, read) = (s.disk.queued_reads() - queued, table_reads(&s) - read);
        assert!(
            queued > 100 && queued == read,
            "{queued} of {read} reads were queued"
        );
        check(s.db(), &s.families, &mut Rng::new(5), 20);
        let futures: Vec<_> = keys.iter().map(|k| s.db().get_async(k)).collect();
        for (future, expected) in futures.into_iter().zip(expected) {
            assert_eq!(futures::executor::block_on(future).unwrap(), expected);
        }
    }
}

/// A read of an index or a filter that fails is an error of the keys that need it, and is done again.
#[test]
fn a_failed_read_fails_its_keys_only() {
    for nth in [1, 2, 3, 7, 20, 50] {
        let s = Simulated::new(0, |o| cached(o, true));
        let keys: Vec<_> = (0..KEYS).step_by(40).map(key).collect();
        let expected: Vec<_> = keys.iter().map(|k| s.db().get(k).unwrap()).collect();
        let failed = fail_nth_read(&s, nth, &keys, &expected);
        assert!((1..keys.len()).contains(&failed), "{failed} keys failed");
        s.disk.clear_faults();
        let again = s.db().multi_get(&keys).into_iter().map(Result::unwrap);
        assert_eq!(again.collect::<Vec<_>>(), expected);
        // A read of a seek that fails together with others is done again alone. One that goes on failing is said.
        let tables =
            |act, path: &Path| act == Act::Read && path.extension().is_some_and(|e| e == "sst");
        let mut it = s.db().iterator().unwrap();
        s.disk.fail_on(Fault::Eio, Repeat::Once, tables);
        it.seek(key(1500).as_bytes());
        assert!(it.valid() && it.status().is_ok());
        s.disk.fail_on(Fault::Eio, Repeat::Forever, tables);
        it.seek(key(700).as_bytes());
        assert_eq!(it.status().unwrap_err().kind(), ErrorKind::IoError);
        s.disk.clear_faults();
        it.seek(key(1500).as_bytes());
        assert!(it.valid() && it.status().is_ok());
    }
}

/// The memory of indexes and filters is that of the cache, not of the readers; pinned ones are charged to it.
#[test]
fn the_cache_bounds_the_memory() {
    for (pins, partitioned) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut o = options(200_000);
        o.env.fs = Arc::new(SimDisk::new(Config::default()));
        cached(&mut o, partitioned);
        o.cf.table.pin_top_level_index_and_filter = pins;
        o.cf.table.pin_l0_filter_and_index_blocks_in_cache = pins;
        let (db, families) = fill(Path::new("/db"), &o, 4);
        db.flush().unwrap();
        let keys: Vec<_> = (0..KEYS).map(key).collect();
        for value in db.multi_get(&keys) {
            value.unwrap();
        }
        let readers = db.int_property("rocksdb.estimate-table-readers-mem");
        assert_eq!(readers, Some(0));
        let cache = o.env.block_cache.as_ref().unwrap();
        assert!(cache.usage() <= cache.capacity(), "{cache:?}");
        assert_eq!(cache.reserved() > 0, pins, "{} bytes", cache.reserved());
        // Nothing is pinned any more once nothing is on level 0 and top levels are not.
        db.cf(&families[0]).compact_range(None, None).unwrap();
        db.cf(&families[1]).compact_range(None, None).unwrap();
        if !partitioned {
            assert_eq!(cache.reserved(), 0);
        }
        drop((db, families));
        assert_eq!(cache.reserved(), 0);
    }
}

/// A seek reads the blocks of the indexes of all levels at the same time, and then the data blocks.
#[test]
fn seeks_read_indexes_at_once() {
    for partitioned in [true, false] {
        let s = Simulated::new(0, |o| cached(o, partitioned));
        let db = s.db();
        let read = ReadOptions {
            auto_readahead_size: false,
            ..ReadOptions::default()
        };
        let mut it = db.with(&read).iterator().unwrap();
        let (queued, read) = (s.disk.queued_reads(), table_reads(&s));
        for n in (0..KEYS).step_by(97) {
            it.seek(key(n).as_bytes());
            it.status().unwrap();
        }
        let (queued, read) = (s.disk.queued_reads() - queued, table_reads(&s) - read);
        assert!(queued * 2 > read, "{queued} of {read} reads were queued");
        let index_reads = read > 2 * KEYS / 97;
        assert!(index_reads, "{read}");
    }
}

/// Seeks within a prefix show the same, and ask the same filters once, whether these are in memory or in the cache.
#[test]
fn prefix_seeks_ask_each_filter_once() {
    let run = |on_demand: bool| {
        let s = Simulated::new(0, |o| {
            cached(o, true);
            o.cf.table.cache_index_and_filter_blocks = on_demand;
            o.cf.prefix_extractor = Some(ironstone::SliceTransform::fixed_prefix(8));
        });
        let read = ReadOptions {
            prefix_same_as_start: true,
            ..ReadOptions::default()
        };
        let mut it = s.db().with(&read).iterator().unwrap();
        let mut shown = Vec::new();
        for n in (0..KEYS + 300).step_by(37) {
            it.seek(key(n).as_bytes());
            while it.valid() {
                shown.push((it.key().to_vec(), it.value().to_vec()));
                it.next();
            }
            it.status().unwrap();
        }
        let statistics = s.options.env.statistics.as_ref().unwrap();
        let asked = [
            Ticker::LastLevelSeekFilterMatch,
            Ticker::NonLastLevelSeekFilterMatch,
            Ticker::LastLevelSeekFiltered,
            Ticker::NonLastLevelSeekFiltered,
        ];
        (shown, asked.map(|t| statistics.get(t)))
    };
    let (in_memory, on_demand) = (run(false), run(true));
    assert_eq!(in_memory.0, on_demand.0);
    assert_eq!(in_memory.1, on_demand.1);
    assert!(on_demand.1.iter().sum::<u64>() > 100, "{:?}", on_demand.1);
}
