//! Writers: many threads, groups, options of writes and of write buffers.

use std::path::Path;

use ironstone::{
    ColumnFamilyDescriptor, ColumnFamilyOptions, Db, ErrorKind, FlushOptions, Options, ReadOptions,
    WriteBatch, WriteOptions,
};

fn creating() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o
}

fn property(db: &Db, name: &str) -> u64 {
    db.property(name).unwrap().parse().unwrap()
}

/// Batches of `records` from `threads` threads, some synced, some not logged: all must be there.
fn hammer(options: &Options, threads: u64, batches: u64, records: u64) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), options).unwrap();
    std::thread::scope(|s| {
        for t in 0..threads {
            let db = &db;
            s.spawn(move || {
                for b in 0..batches {
                    let mut batch = WriteBatch::new();
                    for r in 0..records {
                        let key = format!("{r:03}-{b:06}-{t}");
                        batch.put(key, [t as u8; 20]).unwrap();
                    }
                    let options = WriteOptions {
                        sync: b % 10 == 3,
                        disable_wal: b % 10 == 7,
                        ..WriteOptions::default()
                    };
                    db.with(&options).write(&mut batch).unwrap();
                }
            });
        }
    });
    let count = |db: &Db| {
        let mut it = db.iterator().unwrap();
        it.seek_to_first();
        let mut n = 0;
        while it.valid() {
            n += 1;
            it.next();
        }
        it.status().unwrap();
        n
    };
    assert_eq!(count(&db), threads * batches * records);
    assert_eq!(db.latest_sequence_number(), threads * batches * records);
    db.close().unwrap();
    let db = Db::open(dir.path(), options).unwrap();
    assert_eq!(count(&db), threads * batches * records, "after a reopen");
}

#[test]
fn groups_of_small_batches_lose_nothing() {
    hammer(&creating(), 8, 200, 3);
}

#[test]
fn groups_of_large_batches_are_inserted_in_parallel_and_lose_nothing() {
    hammer(&creating(), 4, 100, 100);
    let mut serial = creating();
    serial.db.allow_concurrent_memtable_write = false;
    serial.cf.write_buffer_size = 128 << 10;
    hammer(&serial, 4, 60, 100);
}

#[test]
fn batches_are_atomic_over_column_families() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = creating();
    options.db.create_missing_column_families = true;
    let families = ["default", "a", "b"]
        .map(|n| ColumnFamilyDescriptor::new(n, ColumnFamilyOptions::default()));
    let db = Db::open_cf(dir.path(), &options, &families).unwrap();
    let [a, b] = ["a", "b"].map(|n| db.column_family(n).unwrap());
    std::thread::scope(|s| {
        s.spawn(|| {
            for i in 0..2000u32 {
                let mut batch = WriteBatch::new();
                batch.cf(&a).put(b"k", i.to_be_bytes()).unwrap();
                batch.cf(&b).put(b"k", i.to_be_bytes()).unwrap();
                db.write(&mut batch).unwrap();
                if i % 500 == 250 {
                    db.cf(&a).flush().unwrap();
                }
            }
        });
        for _ in 0..2000 {
            let o = ReadOptions {
                snapshot: Some(db.snapshot()),
                ..ReadOptions::default()
            };
            let (x, y) = (
                db.cf(&a).with(&o).get(b"k").unwrap(),
                db.cf(&b).with(&o).get(b"k").unwrap(),
            );
            assert_eq!(x, y, "a snapshot shows half a batch");
        }
    });
    drop(db);
    let e = Db::open(dir.path(), &options).unwrap_err();
    assert!(
        e.to_string().contains("Column families not opened: a, b"),
        "{e}"
    );
}

#[test]
fn handles_of_another_database_are_refused() {
    let (d1, d2) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let one = Db::open(d1.path(), &creating()).unwrap();
    let two = Db::open(d2.path(), &creating()).unwrap();
    let stray = one.default_column_family();
    assert_eq!(
        two.cf(&stray).put(b"k", b"v").unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    assert_eq!(
        two.cf(&stray).get(b"k").unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    let o = ReadOptions {
        snapshot: Some(one.snapshot()),
        ..ReadOptions::default()
    };
    let e = two.with(&o).get(b"k").unwrap_err();
    assert!(
        e.to_string().contains("snapshot is of another database"),
        "{e}"
    );
    let e = two.with(&o).iterator().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
}

#[test]
fn dropped_families_refuse_writes_and_still_read() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), &creating()).unwrap();
    let cf = db
        .create_column_family("gone", &ColumnFamilyOptions::default())
        .unwrap();
    db.cf(&cf).put(b"k", b"v").unwrap();
    db.cf(&cf).flush().unwrap();
    db.drop_column_family(&cf).unwrap();
    assert_eq!(db.cf(&cf).get(b"k").unwrap().unwrap(), b"v");
    assert_eq!(
        db.cf(&cf).put(b"k", b"w").unwrap_err().kind(),
        ErrorKind::InvalidArgument
    );
    assert!(db.drop_column_family(&cf).is_err());
    assert!(db.drop_column_family(&db.default_column_family()).is_err());
    drop(cf);
    // The id is not used again.
    let again = db
        .create_column_family("gone", &ColumnFamilyOptions::default())
        .unwrap();
    assert_eq!(again.id(), 2);
    assert_eq!(db.cf(&again).get(b"k").unwrap(), None);
    drop(db);
    assert_eq!(
        Db::list_column_families(dir.path(), &ironstone::Env::default()).unwrap(),
        ["default", "gone"]
    );
}

#[test]
fn min_write_buffer_number_to_merge_merges_memtables_into_one_table() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = creating();
    options.cf.write_buffer_size = 64 << 10;
    options.cf.max_write_buffer_number = 6;
    options.cf.min_write_buffer_number_to_merge = 3;
    options.cf.disable_auto_compactions = true;
    let db = Db::open(dir.path(), &options).unwrap();
    let mut i = 0u64;
    // Many times: a flush that begins beside a call of `flush` must leave nothing behind.
    for files in 1..40 {
        while property(&db, "rocksdb.num-immutable-mem-table") < 2 {
            db.put(i.to_be_bytes(), [0; 100]).unwrap();
            i += 1;
        }
        assert_eq!(property(&db, "rocksdb.num-files-at-level0"), files - 1);
        db.flush().unwrap(); // does not wait for a third
        assert_eq!(property(&db, "rocksdb.num-files-at-level0"), files);
    }
    assert_eq!(property(&db, "rocksdb.estimate-num-keys"), i);
}

#[test]
fn db_write_buffer_size_bounds_all_memtables_together() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = creating();
    options.db.db_write_buffer_size = 1 << 20;
    let db = Db::open(dir.path(), &options).unwrap();
    let other = db.create_column_family("other", &options.cf).unwrap();
    for i in 0..40_000u64 {
        db.put(i.to_be_bytes(), [0; 50]).unwrap();
        db.cf(&other).put(i.to_be_bytes(), [0; 50]).unwrap();
    }
    db.wait_for_compact().unwrap();
    let files: usize = db.property("rocksdb.sstables").unwrap().lines().count();
    assert!(files > 7, "{}", db.property("rocksdb.sstables").unwrap());
    let memory = property(&db, "rocksdb.cur-size-all-mem-tables");
    assert!(memory < 4 << 20, "{memory}");
}

#[test]
fn max_total_wal_size_flushes_the_family_that_holds_old_logs() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = creating();
    options.db.max_total_wal_size = 256 << 10;
    options.cf.write_buffer_size = 128 << 10;
    let db = Db::open(dir.path(), &options).unwrap();
    let idle = db.create_column_family("idle", &options.cf).unwrap();
    db.cf(&idle).put(b"k", b"v").unwrap();
    for i in 0..20_000u64 {
        db.put(i.to_be_bytes(), [0; 100]).unwrap();
    }
    db.wait_for_compact().unwrap();
    assert_eq!(
        db.cf(&idle)
            .property("rocksdb.num-files-at-level0")
            .unwrap(),
        "1"
    );
    let logs = std::fs::read_dir(dir.path())
        .unwrap()
        .filter(|e| {
            e.as_ref()
                .unwrap()
                .path()
                .extension()
                .is_some_and(|x| x == "log")
        })
        .count();
    assert!(logs <= 5, "{logs} logs");
}

/// Writes 150 MiB to the default family beside one entry in another, and returns how many tables that has at the end, and how
/// many bytes the logs.
fn beside_an_idle_family(options: &Options, idle_entries: u64) -> (String, u64) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), options).unwrap();
    let idle = db.create_column_family("idle", &options.cf).unwrap();
    for i in 0..idle_entries {
        db.cf(&idle).put(i.to_be_bytes(), [1; 1000]).unwrap();
    }
    for i in 0..2400u64 {
        db.put(i.to_be_bytes(), vec![i as u8; 64 << 10]).unwrap();
        if i % 64 == 0 {
            // The default family needs logs until it is flushed.
            db.wait_for_compact().unwrap();
        }
    }
    db.wait_for_compact().unwrap();
    let tables = db.cf(&idle).property("rocksdb.num-files-at-level0");
    let files = std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap);
    let logs = files.filter(|e| e.path().extension().is_some_and(|x| x == "log"));
    let bytes = logs.map(|e| e.metadata().unwrap().len()).sum();
    drop(db);
    let db = Db::open_all(dir.path(), options).unwrap();
    let idle = db.column_family("idle").unwrap();
    let last = (idle_entries - 1).to_be_bytes();
    assert_eq!(db.cf(&idle).get(last).unwrap().unwrap(), [1; 1000]);
    assert_eq!(
        db.get(2399u64.to_be_bytes()).unwrap().unwrap().len(),
        64 << 10
    );
    (tables.unwrap(), bytes)
}

#[test]
fn a_family_that_keeps_many_logs_for_little_is_flushed() {
    let mut options = creating();
    options.cf.write_buffer_size = 4 << 20;
    options.cf.max_write_buffer_number = 20; // four times all write buffers are more than is written
    let (tables, logs) = beside_an_idle_family(&options, 1);
    assert_eq!(tables, "1");
    assert!(logs < 120 << 20, "{logs} bytes of logs");
    // An eighth of its write buffer is not little.
    let (tables, logs) = beside_an_idle_family(&options, 600);
    assert_eq!(tables, "0");
    assert!(logs > 150 << 20, "{logs} bytes of logs");
    // Who says how large logs may become gets that.
    options.db.max_total_wal_size = 1 << 30;
    let (tables, logs) = beside_an_idle_family(&options, 1);
    assert_eq!(tables, "0");
    assert!(logs > 150 << 20, "{logs} bytes of logs");
    // Families that are flushed together stay together.
    options.db.max_total_wal_size = 0;
    options.db.atomic_flush = true;
    assert_ne!(beside_an_idle_family(&options, 1).0, "0");
}

/// With `min_write_buffer_number_to_merge` a memtable that is full waits for another one, which a quiet family never fills: it kept
/// every log behind it, also where these were larger than they may be.
#[test]
fn a_full_memtable_that_waits_for_another_keeps_few_logs() {
    let logs_of = |dir: &Path| -> u64 {
        let files = std::fs::read_dir(dir).unwrap().map(Result::unwrap);
        let logs = files.filter(|e| e.path().extension().is_some_and(|x| x == "log"));
        logs.map(|e| e.metadata().unwrap().len()).sum()
    };
    for (max_total_wal_size, last) in [(0, false), (0, true), (40 << 20, false), (40 << 20, true)] {
        let dir = tempfile::tempdir().unwrap();
        let mut options = creating();
        options.db.max_total_wal_size = max_total_wal_size;
        options.cf.write_buffer_size = 4 << 20;
        options.cf.max_write_buffer_number = 20;
        let db = Db::open(dir.path(), &options).unwrap();
        let mut quiet = options.cf.clone();
        quiet.cf.min_write_buffer_number_to_merge = 2;
        let quiet = db.create_column_family("quiet", &quiet).unwrap();
        let immutable = || {
            db.cf(&quiet)
                .property("rocksdb.num-immutable-mem-table")
                .unwrap()
        };
        for i in 0.. {
            db.cf(&quiet).put("k", vec![1; 64 << 10]).unwrap();
            // It is sealed before what is written next, to whichever family: its next one stays empty.
            db.put("k", "v").unwrap();
            assert!(i < 1000, "no memtable was full");
            if immutable() == "1" {
                break;
            }
        }
        if last {
            db.cf(&quiet).put("k", "last").unwrap();
        }
        for i in 0..2400u64 {
            db.put(i.to_be_bytes(), vec![i as u8; 64 << 10]).unwrap();
            if i % 64 == 0 {
                db.wait_for_compact().unwrap();
            }
        }
        db.wait_for_compact().unwrap();
        assert_eq!(immutable(), "0", "{max_total_wal_size}, {last}");
        let logs = logs_of(dir.path());
        assert!(logs < 120 << 20, "{logs} bytes of logs");
        drop(db);
        let db = Db::open_all(dir.path(), &options).unwrap();
        let quiet = db.column_family("quiet").unwrap();
        let value = db.cf(&quiet).get("k").unwrap().unwrap();
        assert_eq!(value.len(), if last { 4 } else { 64 << 10 });
    }
}

/// The family's active memtable was empty, and began with later logs at each rotation of another family: its flush left it
/// those before, which nobody needed, until the next rotation.
#[test]
fn the_flush_of_a_waiting_memtable_leaves_no_log_behind() {
    let dir = tempfile::tempdir().unwrap();
    let options = creating();
    let db = Db::open(dir.path(), &options).unwrap();
    let mut quiet = options.cf.clone();
    quiet.write_buffer_size = 1 << 20;
    quiet.max_write_buffer_number = 4;
    quiet.min_write_buffer_number_to_merge = 2;
    let quiet = db.create_column_family("quiet", &quiet).unwrap();
    let immutable = "rocksdb.num-immutable-mem-table";
    while db.cf(&quiet).property(immutable).unwrap() == "0" {
        db.cf(&quiet).put("k", vec![1; 16 << 10]).unwrap();
        // It is sealed before what is written next, to whichever family: its next one stays empty.
        db.put("k", "v").unwrap();
    }
    for _ in 0..3 {
        db.put("k", "v").unwrap();
        db.flush().unwrap();
    }
    db.cf(&quiet).flush().unwrap();
    db.wait_for_compact().unwrap();
    assert_eq!(db.cf(&quiet).property(immutable).unwrap(), "0");
    let files = std::fs::read_dir(dir.path()).unwrap().map(Result::unwrap);
    let logs = files.filter(|e| e.path().extension().is_some_and(|x| x == "log"));
    assert_eq!(logs.count(), 1);
}

/// A flush for each of many families costs more than to read their logs, and families that are full wait behind them.
#[test]
fn many_families_that_keep_logs_are_not_flushed_for_few_bytes_each() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = creating();
    options.cf.write_buffer_size = 4 << 20;
    options.cf.max_write_buffer_number = 20;
    let db = Db::open(dir.path(), &options).unwrap();
    let idle: Vec<_> = (0..12)
        .map(|i| db.create_column_family(&format!("idle{i}"), &options.cf))
        .map(Result::unwrap)
        .collect();
    let mut written = 0;
    let mut write = |bytes: u64| {
        for _ in 0..bytes / (64 << 10) {
            db.put(
                (written % 100_u64).to_be_bytes(),
                vec![written as u8; 64 << 10],
            )
            .unwrap();
            written += 1;
            if written % 64 == 0 {
                // The default family needs logs until it is flushed.
                db.wait_for_compact().unwrap();
            }
        }
        db.wait_for_compact().unwrap();
        let tables = |family| {
            db.cf(family)
                .property("rocksdb.num-files-at-level0")
                .unwrap()
        };
        idle.iter().filter(|family| tables(*family) == "1").count()
    };
    for family in &idle {
        db.cf(family).put(b"k", b"v").unwrap();
    }
    assert_eq!(write(150 << 20), 0);
    let flushed = write(60 << 20);
    assert!(flushed == 8 || flushed == 12, "eight at a time: {flushed}");
    assert_eq!(write(20 << 20), 12);
}

#[test]
fn no_slowdown_writers_fail_instead_of_waiting() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = creating();
    options.cf.disable_auto_compactions = false;
    options.cf.level0_file_num_compaction_trigger = 2;
    options.cf.level0_slowdown_writes_trigger = 2;
    options.cf.level0_stop_writes_trigger = 40;
    options.cf.max_bytes_for_level_base = 1 << 40;
    let db = Db::open(dir.path(), &options).unwrap();
    let impatient = WriteOptions {
        no_slowdown: true,
        low_pri: true,
        ..WriteOptions::default()
    };
    let cf = db.default_column_family();
    let mut refused = 0;
    for i in 0..200u64 {
        match db.cf(&cf).with(&impatient).put(b"k", i.to_be_bytes()) {
            Ok(()) => {}
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Incomplete);
                refused += 1;
            }
        }
        db.put(b"k", i.to_be_bytes()).unwrap();
        db.cf(&cf)
            .with(&FlushOptions {
                wait: true,
                allow_write_stall: true,
            })
            .flush()
            .unwrap();
    }
    println!("{refused} of 200 were refused");
    assert!(refused > 0);
}

#[test]
fn manual_wal_flush_keeps_records_in_the_process_until_the_call() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = creating();
    options.db.manual_wal_flush = true;
    let db = Db::open(dir.path(), &options).unwrap();
    db.put(b"k", b"v").unwrap();
    let copy = || {
        let to = tempfile::tempdir().unwrap();
        for e in std::fs::read_dir(dir.path()).unwrap() {
            let e = e.unwrap();
            std::fs::copy(e.path(), to.path().join(e.file_name())).unwrap();
        }
        Db::open(to.path(), &Options::default())
            .unwrap()
            .get(b"k")
            .unwrap()
    };
    assert_eq!(copy(), None);
    db.flush_wal(false).unwrap();
    assert_eq!(copy().unwrap(), b"v");
    db.put(b"k", b"w").unwrap();
    db.close().unwrap();
    assert_eq!(copy().unwrap(), b"w");
}

#[test]
fn contradictory_options_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), &creating()).unwrap();
    let both = WriteOptions {
        sync: true,
        disable_wal: true,
        ..WriteOptions::default()
    };
    let e = db.with(&both).put(b"k", b"v").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    assert_eq!(db.get(b"k").unwrap(), None);
}

/// A recovery with `avoid_flush_during_recovery` filled a memtable, wrote it to a table, and kept the
/// logs for the rest: the next recovery had the same records in the table and in the logs, and
/// RocksDB 7.8.3 refused the database because two level 0 files had the same sequence numbers.
#[test]
fn a_recovery_that_flushes_a_part_flushes_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), &creating()).unwrap();
    for i in 0..3000u64 {
        db.put(i.to_be_bytes(), [7; 100]).unwrap();
    }
    drop(db);
    let mut options = Options::default();
    options.db.avoid_flush_during_recovery = true;
    options.cf.write_buffer_size = 64 << 10;
    options.cf.disable_auto_compactions = true;
    let db = Db::open(dir.path(), &options).unwrap();
    assert!(property(&db, "rocksdb.num-files-at-level0") > 1);
    assert_eq!(property(&db, "rocksdb.num-entries-active-mem-table"), 0);
    assert_eq!(property(&db, "rocksdb.estimate-num-keys"), 3000);
    drop(db);
    let db = Db::open(dir.path(), &options).unwrap();
    assert_eq!(property(&db, "rocksdb.estimate-num-keys"), 3000);
}
