//! Tables of every kind, both ways. RocksDB 11.8.1 reads the tables of Ironstone, and Ironstone those of
//! RocksDB, by scans and by a get of each key, so that filters and hash indexes are used.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use base::SliceTransform;
use base::rng::Rng;
use io::posix::Posix;
use io::{FileSystem, OpenHow};
use ironstone::{CompressionType, Db, Options};
use sim::oracle::content::{everything, pair_difference};
use sim::oracle::{self, Library, RocksDb, ldb};
use sim::{dirs, oracle::content};
use table::{Reader, ReaderOptions};

type Model = BTreeMap<Vec<u8>, Vec<u8>>;

/// Options of the table, of its compression, and the codec.
const CASES: &[(&str, &str, CompressionType)] = &[
    (
        "format_version=6;checksum=kCRC32c",
        "",
        CompressionType::Lz4,
    ),
    (
        "format_version=6;checksum=kNoChecksum",
        "",
        CompressionType::None,
    ),
    ("format_version=7", "", CompressionType::Zstd),
    ("format_version=7", "", CompressionType::None),
    (
        "format_version=7;index_type=kTwoLevelIndexSearch;metadata_block_size=400;\
         partition_filters=true;filter_policy=ribbonfilter:10:-1",
        "max_dict_bytes=8000;zstd_max_train_bytes=100000",
        CompressionType::Zstd,
    ),
    (
        "index_type=kTwoLevelIndexSearch;metadata_block_size=300",
        "",
        CompressionType::Snappy,
    ),
    (
        "index_type=kTwoLevelIndexSearch;metadata_block_size=300;partition_filters=true;\
         format_version=4",
        "",
        CompressionType::None,
    ),
    (
        "index_type=kBinarySearchWithFirstKey;index_block_restart_interval=4",
        "",
        CompressionType::Lz4,
    ),
    ("filter_policy=ribbonfilter:10:-1", "", CompressionType::Lz4),
    (
        "filter_policy=ribbonfilter:15.5:3",
        "",
        CompressionType::Lz4,
    ),
    (
        "data_block_index_type=kDataBlockBinaryAndHash;data_block_hash_table_util_ratio=0.5;\
         block_size=8192",
        "",
        CompressionType::Lz4,
    ),
    (
        "block_align=true;block_size=2048",
        "",
        CompressionType::None,
    ),
    (
        "detect_filter_construct_corruption=true",
        "max_dict_bytes=4000",
        CompressionType::Lz4,
    ),
    (
        "block_size=16384",
        "max_dict_bytes=4000;level=9",
        CompressionType::Lz4hc,
    ),
    (
        "block_size=1024",
        "max_dict_bytes=4000;window_bits=-12;strategy=2",
        CompressionType::Zlib,
    ),
    (
        "block_size=1024",
        "max_dict_bytes=4000;zstd_max_train_bytes=50000;use_zstd_dict_trainer=false",
        CompressionType::Zstd,
    ),
    (
        "block_size=1024",
        "max_dict_bytes=4000;max_dict_buffer_bytes=30000;parallel_threads=3",
        CompressionType::Zstd,
    ),
    (
        "prepopulate_block_cache=kFlushOnly",
        "parallel_threads=4",
        CompressionType::Lz4,
    ),
];

fn key(i: u64) -> Vec<u8> {
    format!("{:03}/{:05}", i % 97, i).into_bytes()
}

/// Writes two batches of tables; `act` gets the value to put, or `None` to delete.
fn write(mut act: impl FnMut(&[u8], Option<&[u8]>), mut flush: impl FnMut()) -> Model {
    let mut rng = Rng::new(11);
    let mut model = Model::new();
    for round in 0..2 {
        for i in 0..1500 {
            let i = i * (round + 1);
            let word = rng.next_u64();
            let value = format!("{{\"field\":{i},\"word\":\"{word:x}\",\"flag\":true}}");
            act(&key(i), Some(value.as_bytes()));
            model.insert(key(i), value.into_bytes());
            if i % 17 == 0 {
                act(&key(i / 2), None);
                model.remove(&key(i / 2));
            }
        }
        flush();
    }
    model
}

fn pairs(model: &Model) -> Vec<(Vec<u8>, Vec<u8>)> {
    model.iter().map(|(k, v)| (k.clone(), v.clone())).collect()
}

/// The table options of a case, with a filter if it does not name one.
fn with_filter(table: &str) -> String {
    if table.contains("filter_policy") {
        table.to_owned()
    } else {
        format!("{table};filter_policy=bloomfilter:10:false")
    }
}

fn options(table: &str, compression_opts: &str, compression: CompressionType) -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o.cf.compression = compression;
    for option in with_filter(table).split(';') {
        let (name, value) = option.split_once('=').unwrap();
        o.cf.table.apply(name, value).unwrap();
    }
    let text = format!("{{{compression_opts}}}");
    o.cf.compression_opts = base::options::OptionValue::parse(&text).unwrap();
    o
}

fn check_rocksdb_reads(lib: &Arc<Library>, dir: &Path, model: &Model, what: &str) {
    let mut o = lib.options();
    o.set(
        "block_based_table_factory",
        "{filter_policy=bloomfilter:10:false}",
    )
    .unwrap();
    o.enable_statistics();
    let db = RocksDb::open_read_only(&o, dir).unwrap();
    let all = db.iterator().collect_all().unwrap();
    assert_eq!(pair_difference(&pairs(model), &all), None, "{what}");
    for i in 0..3000 {
        let found = db.get(&key(i)).unwrap();
        assert_eq!(found.as_ref(), model.get(&key(i)), "{what}: {i}");
        assert_eq!(db.get(format!("{:03}/x", i % 97).as_bytes()).unwrap(), None);
    }
    // RocksDB reads the filters, and they keep absent keys out.
    let text = o.statistics().unwrap();
    let useful = text
        .lines()
        .find_map(|l| l.strip_prefix("rocksdb.bloom.filter.useful COUNT : "))
        .unwrap();
    assert!(useful.parse::<u64>().unwrap() > 2000, "{what}: {useful}");
}

#[test]
fn rocksdb_reads_every_kind_of_table() {
    let lib = oracle::rocksdb();
    for (table, opts, compression) in CASES {
        let what = format!("{table} {opts} {compression:?}");
        for compact in [false, true] {
            let temp = dirs::scratch().unwrap();
            let dir = temp.path().join("db");
            let o = options(table, opts, *compression);
            let db = Db::open_all(&dir, &o).unwrap();
            let cf = db.default_column_family();
            let model = write(
                |k, v| match v {
                    Some(v) => db.put(k, v).unwrap(),
                    None => db.delete(k).unwrap(),
                },
                || db.flush().unwrap(),
            );
            if compact {
                db.cf(&cf).compact_range(None, None).unwrap();
            }
            let ours = content::family(&db, &cf).unwrap();
            assert_eq!(pair_difference(&pairs(&model), &ours), None, "{what}");
            drop(cf);
            db.close().unwrap();
            if ldb::available() && o.cf.table.format_version <= 5 {
                let theirs = ldb::scan(&dir, "default").unwrap();
                assert_eq!(pair_difference(&pairs(&model), &theirs), None, "{what}");
            }
            if let Some(lib) = &lib {
                check_rocksdb_reads(lib, &dir, &model, &what);
            }
        }
    }
}

#[test]
fn every_kind_of_table_of_rocksdb_is_read() {
    let Some(lib) = oracle::rocksdb() else { return };
    for (table, opts, compression) in CASES {
        let what = format!("{table} {opts} {compression:?}");
        let temp = dirs::scratch().unwrap();
        let dir = temp.path().join("db");
        let mut o = lib.options();
        o.create_if_missing(true).compression(compression.to_u8());
        if !opts.is_empty() {
            o.set("compression_opts", &format!("{{{opts}}}")).unwrap();
        }
        o.set(
            "block_based_table_factory",
            &format!("{{{}}}", with_filter(table)),
        )
        .unwrap();
        let db = RocksDb::open(&o, &dir).unwrap();
        let model = write(
            |k, v| match v {
                Some(v) => db.put(k, v).unwrap(),
                None => db.delete(k).unwrap(),
            },
            || db.flush().unwrap(),
        );
        db.close();
        let db = Db::open_all(&dir, &Options::default()).unwrap();
        let all = everything(&db).unwrap();
        assert_eq!(pair_difference(&pairs(&model), &all[0].1), None, "{what}");
        for i in 0..3000 {
            let found = db.get(key(i)).unwrap();
            assert_eq!(found.as_deref(), model.get(&key(i)).map(Vec::as_slice));
        }
    }
}

/// Options of tables with the prefixes of keys.
const PREFIX_CASES: &[&str] = &[
    "index_type=kHashSearch",
    "whole_key_filtering=false",
    "whole_key_filtering=false;filter_policy=ribbonfilter:10:-1",
    "index_type=kTwoLevelIndexSearch;metadata_block_size=300;partition_filters=true",
    "index_type=kTwoLevelIndexSearch;metadata_block_size=100;partition_filters=true;\
     whole_key_filtering=false;format_version=6",
];

fn prefix(i: u64) -> Vec<u8> {
    format!("{i:03}/").into_bytes()
}

/// The keys with a prefix.
fn range(model: &Model, prefix: &[u8]) -> Vec<Vec<u8>> {
    let from = model.range(prefix.to_vec()..);
    let keys = from.map(|(k, _)| k.clone());
    keys.take_while(|k| k.starts_with(prefix)).collect()
}

#[test]
fn rocksdb_seeks_by_the_prefixes_of_our_tables() {
    let Some(lib) = oracle::rocksdb() else { return };
    for table in PREFIX_CASES {
        let temp = dirs::scratch().unwrap();
        let dir = temp.path().join("db");
        let mut o = options(table, "", CompressionType::Lz4);
        o.cf.prefix_extractor = Some(SliceTransform::fixed_prefix(4));
        let db = Db::open_all(&dir, &o).unwrap();
        let model = write(
            |k, v| match v {
                Some(v) => db.put(k, v).unwrap(),
                None => db.delete(k).unwrap(),
            },
            || db.flush().unwrap(),
        );
        for i in 0..3000 {
            let found = db.get(key(i)).unwrap();
            assert_eq!(found.as_deref(), model.get(&key(i)).map(Vec::as_slice));
            assert_eq!(db.get(key(i + 1_000_000)).unwrap(), None);
        }
        db.close().unwrap();

        let mut o = lib.options();
        o.set("prefix_extractor", "rocksdb.FixedPrefix.4").unwrap();
        o.set(
            "block_based_table_factory",
            "{filter_policy=bloomfilter:10:false;index_type=kHashSearch}",
        )
        .unwrap();
        o.enable_statistics();
        let db = RocksDb::open_read_only(&o, &dir).unwrap();
        let mut it = db.iterator();
        for i in 0..300 {
            let p = prefix(i);
            let mut found = Vec::new();
            it.seek(&p);
            while it.valid() && it.key().starts_with(&p) {
                found.push(it.key().to_vec());
                it.next();
            }
            assert_eq!(found, range(&model, &p), "{table}: {i}");
        }
        for i in 0..3000 {
            let found = db.get(&key(i)).unwrap();
            assert_eq!(found.as_ref(), model.get(&key(i)), "{table}: {i}");
        }
        drop(it);
        let text = o.statistics().unwrap();
        let count = |name: &str| {
            let line = text.lines().find_map(|l| l.strip_prefix(name)).unwrap();
            line.trim_start_matches(" COUNT : ").parse::<u64>().unwrap()
        };
        let filtered = count("rocksdb.non.last.level.seek.filtered")
            + count("rocksdb.last.level.seek.filtered")
            + count("rocksdb.bloom.filter.prefix.useful");
        assert!(filtered > 200, "{table}: {filtered}");
    }
}

#[test]
fn the_prefixes_of_rocksdbs_tables_are_asked() {
    let Some(lib) = oracle::rocksdb() else { return };
    for table in PREFIX_CASES {
        let temp = dirs::scratch().unwrap();
        let dir = temp.path().join("db");
        let mut o = lib.options();
        o.create_if_missing(true);
        o.set("prefix_extractor", "rocksdb.FixedPrefix.4").unwrap();
        let table_options = format!("{{{}}}", with_filter(table));
        o.set("block_based_table_factory", &table_options).unwrap();
        let db = RocksDb::open(&o, &dir).unwrap();
        let model = write(
            |k, v| match v {
                Some(v) => db.put(k, v).unwrap(),
                None => db.delete(k).unwrap(),
            },
            || db.flush().unwrap(),
        );
        db.close();
        let mut o = Options::default();
        o.cf.prefix_extractor = Some(SliceTransform::fixed_prefix(4));
        let db = Db::open_all(&dir, &o).unwrap();
        for i in 0..3000 {
            let found = db.get(key(i)).unwrap();
            assert_eq!(found.as_deref(), model.get(&key(i)).map(Vec::as_slice));
        }
        db.close().unwrap();
        for (name, path) in dirs::files(&dir).unwrap() {
            if Path::new(&name).extension().is_none_or(|e| e != "sst") {
                continue;
            }
            let file = Posix.open(&path, OpenHow::READ).unwrap();
            let len = file.len().unwrap();
            let reader = Reader::open(file, len, ReaderOptions::default()).unwrap();
            let extractor = reader.prefix_extractor().unwrap();
            assert_eq!(extractor.name(), "rocksdb.FixedPrefix.4");
            assert!((0..97).all(|i| reader.prefix_may_match(&prefix(i))));
            let passed = (100..1000).filter(|i| reader.prefix_may_match(&prefix(*i)));
            assert!(passed.count() < 60, "{table}");
        }
    }
}
