//! RocksDB 7.8.3 (`ldb`, `sst_dump`) and 11.8.1 (C API) read what Ironstone wrote: with each compression,
//! checksum and filter, after a close, in a copy of the open directory, and after the writer's process was
//! killed.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::Path;

use base::rng::Rng;
use ironstone::{
    ColumnFamily, ColumnFamilyDescriptor, ColumnFamilyOptions, Comparator, CompressionType, Db,
    Options, WriteBatch, WriteOptions,
};
use sim::dirs;
use sim::oracle::content::{FamilyContent, difference, everything};
use sim::oracle::{self, ldb};
use table::ChecksumType;
use table::filter::FilterPolicy;

use crate::damage::refusals::start_child;

const FAMILIES: [&str; 3] = ["default", "second", "reverse"];

fn reversed(options: &Options) -> ColumnFamilyOptions {
    let mut o = options.cf.clone();
    o.comparator = Comparator::reverse_bytewise();
    o
}

/// Values from 1 byte to 1 MiB, half of each compressible; empty keys and values.
fn fill(db: &Db, cf: &ColumnFamily, rng: &mut Rng, from: u32, to: u32) {
    let mut value = Vec::new();
    for i in from..to {
        let len = match i % 50 {
            0 => 0,
            1 => 1,
            2 => 70_000,
            _ => 1 + rng.below(200) as usize,
        };
        value.clear();
        value.resize(len, b'c');
        rng.fill(&mut value[..len / 2]);
        db.cf(cf)
            .put(format!("{:06}", i * 7919 % 1000), &value)
            .unwrap();
    }
    db.cf(cf).put("", "value of the empty key").unwrap();
    db.cf(cf).put([0xff; 40], "last").unwrap();
    db.cf(cf).put([0; 3], "").unwrap();
}

/// A database with tables in two levels, a log, deletions on both sides, and big values.
fn build(db: &Db, options: &Options) {
    let mut rng = Rng::new(7);
    // Both in one record group of the MANIFEST.
    db.create_column_families(&[
        ColumnFamilyDescriptor::new("second", options.cf.clone()),
        ColumnFamilyDescriptor::new("reverse", reversed(options)),
    ])
    .unwrap();
    for name in FAMILIES {
        let cf = db.column_family(name).unwrap();
        fill(db, &cf, &mut rng, 0, 300);
        db.cf(&cf).flush().unwrap();
        if name != "second" {
            db.cf(&cf).compact_range(None, None).unwrap();
        }
        fill(db, &cf, &mut rng, 250, 350);
        for i in 0..40 {
            db.cf(&cf).delete(format!("{:06}", i * 25)).unwrap();
        }
        db.cf(&cf).delete("").unwrap();
        db.cf(&cf).flush().unwrap();
    }
    let second = db.column_family("second").unwrap();
    let mut big = vec![0; 1 << 20];
    rng.fill(&mut big[..1 << 19]);
    db.cf(&second).put("1 MiB", &big).unwrap();
    db.cf(&second).flush().unwrap();
    // Records that stay in the log: one of 32 KiB and more, a batch over families, deletions.
    let mut batch = WriteBatch::new();
    for name in FAMILIES {
        let id = db.column_family(name).unwrap().id();
        batch.cf_id(id).put(b"in the log", b"").unwrap();
        batch.cf_id(id).put(b"", b"again").unwrap();
        batch.cf_id(id).delete(b"000007").unwrap();
    }
    db.write(&mut batch).unwrap();
    db.put("big in the log", &big).unwrap();
    db.put("after it", "x").unwrap();
}

/// Checks every table; a crash may also leave unfinished tables, which no MANIFEST names.
fn check_with_tables(what: &str, dir: &Path, want: &[FamilyContent]) {
    check(what, dir, want);
    for (name, path) in dirs::files(dir).unwrap() {
        if ldb::available() && Path::new(&name).extension().is_some_and(|e| e == "sst") {
            ldb::verify_table(&path).unwrap();
        }
    }
}

fn check(what: &str, dir: &Path, want: &[FamilyContent]) {
    if ldb::available() {
        let have = ldb::scan_all(dir, &FAMILIES).unwrap();
        assert_eq!(difference(want, &have), None, "{what}: ldb scan");
        ldb::check_consistency(dir).unwrap();
    }
    if let Some(lib) = oracle::rocksdb() {
        let have = oracle::scan(&lib, dir, |name| {
            let mut o = lib.options();
            if name == "reverse" {
                o.set("comparator", "rocksdb.ReverseBytewiseComparator")?;
            }
            Ok(o)
        });
        assert_eq!(difference(want, &have.unwrap()), None, "{what}: librocksdb");
    }
}

#[test]
fn rocksdb_reads_every_compression_filter_and_checksum() {
    let compressions = [
        CompressionType::None,
        CompressionType::Snappy,
        CompressionType::Zlib,
        CompressionType::BZip2,
        CompressionType::Lz4,
        CompressionType::Lz4hc,
        CompressionType::Zstd,
    ];
    let bloom = FilterPolicy::Bloom { bits_per_key: 10.0 };
    let mut checked = 0;
    for (i, compression) in compressions.into_iter().enumerate() {
        for (j, filter_policy) in [FilterPolicy::None, bloom].into_iter().enumerate() {
            for (k, checksum) in [ChecksumType::Crc32c, ChecksumType::Xxh3]
                .into_iter()
                .enumerate()
            {
                let mut o = Options::default();
                o.db.create_if_missing = true;
                o.cf.compression = compression;
                o.cf.table.filter_policy = filter_policy;
                o.cf.table.checksum = checksum;
                o.cf.table.format_version = [5, 4, 3, 2][(i + j + k) % 4];
                let what = format!("{compression:?}, {filter_policy:?}, {checksum:?}");
                one(&what, &o, (i + j + k) % 2 == 0);
                checked += 1;
            }
        }
    }
    eprintln!("written by Ironstone: {checked} sets of options, closed and crashed each");
}

/// Builds a database with these options. RocksDB reads a copy that was made while it was open, and the
/// closed database; then Ironstone reads what RocksDB left.
fn one(what: &str, options: &Options, keep_logs: bool) {
    let temp = dirs::scratch().unwrap();
    let (dir, crashed) = (temp.path().join("db"), temp.path().join("crashed"));
    let db = Db::open(&dir, options).unwrap();
    build(&db, options);
    db.wait_for_compact().unwrap();
    let want = everything(&db).unwrap();
    assert!(want.iter().all(|(_, pairs)| pairs.len() > 250));
    dirs::copy(&dir, &crashed).unwrap();
    db.close().unwrap();
    check_with_tables(&format!("{what}, closed"), &dir, &want);
    check_with_tables(&format!("{what}, crashed"), &crashed, &want);
    let mut options = options.clone();
    options.db.avoid_flush_during_recovery = keep_logs;
    let db = Db::open_all(&crashed, &options).unwrap();
    assert_eq!(difference(&want, &everything(&db).unwrap()), None, "{what}");
    db.close().unwrap();
    check_with_tables(&format!("{what}, recovered"), &crashed, &want);
}

const WRITE_TO: &str = "IRONSTONE_TEST_WRITE_TO";

/// Not a test of its own: writes until it is killed, and prints the writes that were acknowledged.
#[test]
fn child_that_writes() {
    let Some(dir) = std::env::var_os(WRITE_TO) else {
        return;
    };
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.db.create_missing_column_families = true;
    options.cf.write_buffer_size = 64 << 10;
    options.cf.level0_file_num_compaction_trigger = 2;
    let families = FAMILIES.map(|name| {
        let o = if name == "reverse" {
            reversed(&options)
        } else {
            options.cf.clone()
        };
        ironstone::ColumnFamilyDescriptor::new(name, o)
    });
    let db = Db::open_cf(Path::new(&dir), &options, &families).unwrap();
    let cfs = FAMILIES.map(|name| db.column_family(name).unwrap());
    let start = db.latest_sequence_number();
    for i in start.. {
        let value = vec![b'v'; (i * 37 % 500) as usize];
        let options = WriteOptions {
            sync: i % 100 == 0,
            ..WriteOptions::default()
        };
        let key = format!("{:04}/{i}", i % 1000);
        db.cf(&cfs[i as usize % 3])
            .with(&options)
            .put(&key, &value)
            .unwrap();
        eprintln!("put {i}");
        if i == start + 20_000 {
            std::process::abort();
        }
    }
}

/// The process dies in the middle of its work, also of flushes and compactions: no acknowledged write is
/// lost, for Ironstone and for RocksDB.
#[test]
fn a_killed_process_loses_nothing_acknowledged() {
    let temp = dirs::scratch().unwrap();
    let dir = temp.path().join("db");
    let mut rng = Rng::new(3);
    let mut acknowledged: BTreeSet<u64> = BTreeSet::new();
    let rounds = 8;
    for round in 0..rounds {
        let mut child = start_child("written::child_that_writes", WRITE_TO, &dir);
        let lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let enough = 200 + rng.below(6000);
        let mut heard = 0;
        for line in lines {
            let line = line.unwrap();
            if let Some(i) = line.strip_prefix("put ").and_then(|n| n.parse().ok()) {
                acknowledged.insert(i);
                heard += 1;
                if heard == enough && round + 1 < rounds {
                    child.kill().unwrap(); // the last round aborts by itself
                }
            }
        }
        assert!(!child.wait().unwrap().success());
        let copy = temp.path().join("copy");
        dirs::copy(&dir, &copy).unwrap();
        let db = Db::open_all(&copy, &Options::default()).unwrap();
        let content = everything(&db).unwrap();
        drop(db);
        for &i in &acknowledged {
            let key = format!("{:04}/{i}", i % 1000).into_bytes();
            let pairs = &content.iter().find(|(n, _)| n == FAMILIES[i as usize % 3]);
            let found = pairs
                .unwrap()
                .1
                .iter()
                .any(|(k, v)| *k == key && v.len() as u64 == i * 37 % 500);
            assert!(found, "round {round}: write {i} is lost");
        }
        // RocksDB recovers the crashed directory itself.
        std::fs::remove_dir_all(&copy).unwrap();
        dirs::copy(&dir, &copy).unwrap();
        check(&format!("killed, round {round}"), &copy, &content);
        std::fs::remove_dir_all(&copy).unwrap();
    }
    eprintln!(
        "killed processes: {rounds}, {} acknowledged writes, none lost",
        acknowledged.len()
    );
}
