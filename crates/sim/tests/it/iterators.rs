//! Iterators under random options against RocksDB's, each on its own copy of one directory: memtables and
//! several levels, range tombstones, merges, snapshots, and prefix filters.
//!
//! Without `prefix_same_as_start`, what RocksDB's iterators show beyond the prefix of a seek is not
//! defined. Ironstone's show everything, so they are compared with RocksDB's `total_order_seek`. With both
//! options, RocksDB's iterators lose keys when they turn around; Ironstone's stay in the prefix all the
//! same.

use std::path::Path;
use std::sync::Arc;

use base::rng::Rng;
use ironstone::{Db, DbIterator, Error, ErrorKind, Options, ReadOptions};
use sim::dirs;
use sim::oracle::{self, Library, RocksDb, RocksIter, RocksOptions, RocksReadOptions};

/// The environment variable with the number of databases.
const SEEDS: &str = "IRONSTONE_ITERATOR_SEEDS";

/// Prefix extractors; the empty name is none.
const EXTRACTORS: [&str; 5] = [
    "",
    "rocksdb.FixedPrefix.2",
    "rocksdb.FixedPrefix.3",
    "rocksdb.CappedPrefix.3",
    "rocksdb.Noop",
];

/// A key of one to five letters of a small alphabet: keys share prefixes, and some are prefixes of others.
fn key(rng: &mut Rng) -> Vec<u8> {
    let n = 1 + rng.below(5);
    (0..n).map(|_| b'a' + rng.below(4) as u8).collect()
}

/// The options of one database.
#[derive(Debug)]
struct Shape {
    extractor: &'static str,
    whole_keys: bool,
    memtable_bloom: bool,
    partitioned: bool,
}

fn ours(shape: &Shape) -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o.db.avoid_flush_during_recovery = true;
    o.db.avoid_flush_during_shutdown = true;
    o.cf.merge_operator = ironstone::merge_operators::parse("stringappend").unwrap();
    o.cf.prefix_extractor = ironstone::SliceTransform::by_name(shape.extractor);
    let table = &mut o.cf.table;
    table.apply("block_size", "128").unwrap();
    table
        .apply("filter_policy", "bloomfilter:12:false")
        .unwrap();
    let yes = shape.whole_keys.to_string();
    table.apply("whole_key_filtering", &yes).unwrap();
    if shape.partitioned {
        table.apply("index_type", "kTwoLevelIndexSearch").unwrap();
        table.apply("partition_filters", "true").unwrap();
        table.apply("metadata_block_size", "256").unwrap();
    }
    if shape.memtable_bloom {
        o.cf.memtable_prefix_bloom_size_ratio = 0.1;
    }
    o.cf.write_buffer_size = 1 << 20;
    o.cf.disable_auto_compactions = true;
    o.cf.target_file_size_base = 2048;
    o
}

fn theirs(lib: &Arc<Library>, shape: &Shape) -> RocksOptions {
    let mut o = lib.options();
    o.create_if_missing(true);
    let mut set = |name: &str, value: &str| {
        o.set(name, value).unwrap();
    };
    set("avoid_flush_during_recovery", "true");
    set("avoid_flush_during_shutdown", "true");
    set("merge_operator", "stringappend");
    if !shape.extractor.is_empty() {
        set("prefix_extractor", shape.extractor);
    }
    let partitions = if shape.partitioned {
        "index_type=kTwoLevelIndexSearch;partition_filters=true;metadata_block_size=256;"
    } else {
        ""
    };
    let table = format!(
        "{{block_size=128;filter_policy=bloomfilter:12:false;whole_key_filtering={};{partitions}}}",
        shape.whole_keys
    );
    set("block_based_table_factory", &table);
    if shape.memtable_bloom {
        set("memtable_prefix_bloom_size_ratio", "0.1");
    }
    set("write_buffer_size", "1048576");
    set("disable_auto_compactions", "true");
    set("target_file_size_base", "2048");
    o
}

/// Applies one random change with the functions of either engine.
fn change(
    rng: &mut Rng,
    put: impl Fn(&[u8], &[u8]),
    delete: impl Fn(&[u8]),
    merge: impl Fn(&[u8], &[u8]),
    delete_range: impl Fn(&[u8], &[u8]),
) {
    let k = key(rng);
    match rng.below(20) {
        0..3 => delete(&k),
        3..6 => merge(&k, rng.below(100).to_string().as_bytes()),
        6 => {
            let (a, b) = (k, key(rng));
            delete_range(a.as_slice().min(&b), a.as_slice().max(&b));
        }
        7 => (0..30).for_each(|i| put(&k, format!("again{i}").as_bytes())),
        _ => put(&k, format!("v{}", rng.next_u64()).as_bytes()),
    }
}

const STAGES: u64 = 6;

/// Fills `dir` with one of the engines: levels, level 0 files and records that are still in the log.
fn fill(lib: &Arc<Library>, shape: &Shape, dir: &Path, rng: &mut Rng) {
    if rng.one_in(2) {
        let db = RocksDb::open(&theirs(lib, shape), dir).unwrap();
        let cf = db.default_cf();
        for stage in 0..STAGES {
            for _ in 0..rng.below(120) {
                change(
                    rng,
                    |k, v| db.put(k, v).unwrap(),
                    |k| db.delete(k).unwrap(),
                    |k, v| db.merge_cf(cf, k, v).unwrap(),
                    |a, b| db.delete_range_cf(cf, a, b).unwrap(),
                );
            }
            match stage {
                1 | 2 => {
                    db.flush().unwrap();
                    db.compact_range(cf, None, None);
                }
                3 | 4 => db.flush().unwrap(),
                _ => {}
            }
        }
        return;
    }
    let db = Db::open(dir, &ours(shape)).unwrap();
    let cf = db.default_column_family();
    for stage in 0..STAGES {
        for _ in 0..rng.below(120) {
            change(
                rng,
                |k, v| db.put(k, v).unwrap(),
                |k| db.delete(k).unwrap(),
                |k, v| db.merge(k, v).unwrap(),
                |a, b| db.delete_range(a, b).unwrap(),
            );
        }
        match stage {
            1 | 2 => db.cf(&cf).compact_range(None, None).unwrap(),
            3 | 4 => db.flush().unwrap(),
            _ => {}
        }
    }
}

/// Options of a read, for both engines.
#[derive(Debug, Default)]
struct How {
    snapshot: bool,
    lower: Option<Vec<u8>>,
    upper: Option<Vec<u8>>,
    total: bool,
    auto: bool,
    same: bool,
    pin: bool,
    ignore_ranges: bool,
    readahead: u64,
}

/// A key that has a prefix under every extractor.
fn long_key(rng: &mut Rng) -> Vec<u8> {
    [b"a", b"b", b"c", b"d"][rng.below(4) as usize]
        .iter()
        .copied()
        .chain(key(rng))
        .chain(*b"a")
        .collect()
}

fn how(rng: &mut Rng) -> How {
    let same = rng.one_in(2);
    let bound = |rng: &mut Rng| {
        rng.one_in(3)
            .then(|| if same { long_key(rng) } else { key(rng) })
    };
    How {
        snapshot: rng.one_in(3),
        lower: bound(rng),
        upper: bound(rng),
        total: rng.one_in(4),
        auto: rng.one_in(3),
        same,
        pin: rng.one_in(4),
        ignore_ranges: rng.one_in(6),
        readahead: [0, 0, 4096][rng.below(3) as usize],
    }
}

fn our_read(how: &How, db: &Db) -> ReadOptions {
    let snapshot = how.snapshot.then(|| db.snapshot());
    ReadOptions {
        snapshot,
        iterate_lower_bound: how.lower.clone(),
        iterate_upper_bound: how.upper.clone(),
        total_order_seek: how.total,
        auto_prefix_mode: how.auto,
        prefix_same_as_start: how.same,
        pin_data: how.pin,
        ignore_range_deletions: how.ignore_ranges,
        readahead_size: how.readahead,
        ..ReadOptions::default()
    }
}

fn their_read(how: &How, lib: &Arc<Library>) -> RocksReadOptions<'static> {
    let mut o = lib
        .read_options()
        .total_order_seek(!how.same)
        .prefix_same_as_start(how.same)
        .pin_data(how.pin)
        .ignore_range_deletions(how.ignore_ranges);
    if let Some(k) = &how.lower {
        o = o.lower_bound(k);
    }
    if let Some(k) = &how.upper {
        o = o.upper_bound(k);
    }
    o
}

/// Moves both iterators. With `same`, it seeks only keys that have a prefix: otherwise RocksDB asks the
/// filters for the prefixes of keys that it passes, without being confined to one.
fn step(rng: &mut Rng, same: bool, a: &mut DbIterator, b: &mut RocksIter<'_>) -> String {
    let target = if same { long_key(rng) } else { key(rng) };
    let draw = if a.valid() { 14 } else { 6 };
    match rng.below(draw) {
        0 if !same => {
            a.seek_to_first();
            b.seek_to_first();
            "to first".to_owned()
        }
        1 if !same => {
            a.seek_to_last();
            b.seek_to_last();
            "to last".to_owned()
        }
        0..=3 => {
            a.seek(&target);
            b.seek(&target);
            format!("seek {}", target.escape_ascii())
        }
        4 | 5 => {
            a.seek_for_prev(&target);
            b.seek_for_prev(&target);
            format!("for prev {}", target.escape_ascii())
        }
        6..11 => {
            a.next();
            b.next();
            "next".to_owned()
        }
        _ => {
            a.prev();
            b.prev();
            "prev".to_owned()
        }
    }
}

fn at(valid: bool, key: &[u8], value: &[u8]) -> Option<(String, String)> {
    let text = |b: &[u8]| b.escape_ascii().to_string();
    valid.then(|| (text(key), text(value)))
}

fn ours_at(it: &DbIterator) -> Option<(String, String)> {
    if it.valid() {
        at(true, it.key(), it.value())
    } else {
        None
    }
}

fn kind(status: ironstone::Result<()>) -> Option<ErrorKind> {
    status.err().as_ref().map(Error::kind)
}

#[test]
fn random_reads_agree_with_rocksdb() {
    let Some(lib) = oracle::rocksdb() else { return };
    let seeds = std::env::var(SEEDS).map_or(20, |n| n.parse().unwrap());
    for seed in 0..seeds {
        let mut rng = Rng::new(seed);
        let shape = Shape {
            extractor: EXTRACTORS[rng.below(5) as usize],
            whole_keys: rng.one_in(2),
            memtable_bloom: rng.one_in(2),
            partitioned: rng.one_in(3),
        };
        let temp = dirs::scratch().unwrap();
        let (a_dir, b_dir) = (temp.path().join("a"), temp.path().join("b"));
        fill(&lib, &shape, &a_dir, &mut rng);
        dirs::copy(&a_dir, &b_dir).unwrap();
        let mut shape = shape;
        if rng.one_in(3) {
            // The filters were made with another extractor.
            shape.extractor = EXTRACTORS[rng.below(5) as usize];
        }
        let a = Db::open(&a_dir, &ours(&shape)).unwrap();
        let b = RocksDb::open(&theirs(&lib, &shape), &b_dir).unwrap();
        for _ in 0..40 {
            let how = how(&mut rng);
            let (read_a, read_b) = (our_read(&how, &a), their_read(&how, &lib));
            let mut it_a = a.with(&read_a).iterator().unwrap();
            let mut it_b = b.iterator_opt(&read_b, b.default_cf());
            let mut done = Vec::new();
            for _ in 0..40 {
                done.push(step(&mut rng, how.same, &mut it_a, &mut it_b));
                let wanted = at(it_b.valid(), it_b.key(), it_b.value());
                let story = || format!("seed {seed}, {shape:?}, {how:?}, {done:?}");
                assert_eq!(ours_at(&it_a), wanted, "{}", story());
                assert_eq!(kind(it_a.status()), kind(it_b.status()), "{}", story());
            }
        }
    }
}
