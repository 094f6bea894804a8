//! The immediate effects of changed options.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use base::ErrorKind;
use ironstone::options::ParsedOptions;
use ironstone::options::codec::Unsupported;
use ironstone::{ColumnFamilyDescriptor, Db, Env, FlushOptions, WriteOptions};
use sim::dirs;

use super::{log_of, number, open, options, set, wait_until, with_other};

/// A memtable that is larger than a new, smaller `write_buffer_size` is flushed with the next write.
#[test]
fn a_smaller_write_buffer_is_full_at_once() {
    let dir = dirs::scratch().unwrap();
    let db = open(dir.path());
    set(&db, &[("disable_auto_compactions", "true")]).unwrap();
    for i in 0..64 {
        db.put(format!("{i:04}"), vec![b'x'; 4096]).unwrap();
    }
    assert_eq!(number(&db, "rocksdb.num-files-at-level0"), 0);
    set(&db, &[("write_buffer_size", "65536")]).unwrap();
    db.put("last", "x").unwrap();
    wait_until("a flush", || number(&db, "rocksdb.num-files-at-level0") > 0);
    for i in 0..200 {
        db.put(format!("{i:04}"), vec![b'y'; 4096]).unwrap();
    }
    db.flush().unwrap();
    assert!(number(&db, "rocksdb.num-files-at-level0") > 5);
}

/// A memtable with many range deletions is flushed with the next write, as in RocksDB.
#[test]
fn range_deletions_fill_a_memtable() {
    let dir = dirs::scratch().unwrap();
    let db = open(dir.path());
    let changes = [
        ("disable_auto_compactions", "true"),
        ("memtable_max_range_deletions", "3"),
    ];
    for i in 0..5 {
        db.delete_range(format!("{i}"), format!("{i}x")).unwrap();
    }
    assert_eq!(number(&db, "rocksdb.num-files-at-level0"), 0);
    set(&db, &changes).unwrap();
    db.put("key", "value").unwrap();
    wait_until("a flush", || {
        number(&db, "rocksdb.num-files-at-level0") == 1
    });
}

#[test]
fn compactions_follow_at_once() {
    let dir = dirs::scratch().unwrap();
    let db = open(dir.path());
    set(&db, &[("disable_auto_compactions", "true")]).unwrap();
    let file = |db: &Db, byte: u8| {
        for i in 0..200 {
            db.put(format!("{i:04}"), vec![byte; 1000]).unwrap();
        }
        db.flush().unwrap();
    };
    for byte in 0..6 {
        file(&db, byte);
    }
    db.wait_for_compact().unwrap();
    assert_eq!(number(&db, "rocksdb.num-files-at-level0"), 6);
    // Compactions are enabled, but none is due.
    let changes = [
        ("disable_auto_compactions", "false"),
        ("level0_file_num_compaction_trigger", "7"),
    ];
    set(&db, &changes).unwrap();
    db.wait_for_compact().unwrap();
    assert_eq!(number(&db, "rocksdb.num-files-at-level0"), 6);
    // A compaction is due, with small files and without compression.
    let changes = [
        ("level0_file_num_compaction_trigger", "3"),
        ("target_file_size_base", "50000"),
        ("compression", "kNoCompression"),
    ];
    set(&db, &changes).unwrap();
    db.wait_for_compact().unwrap();
    assert_eq!(number(&db, "rocksdb.num-files-at-level0"), 0);
    let files = db.get_live_files_metadata();
    assert!(files.len() >= 3, "{files:?}");
    assert!(
        files.iter().map(|f| f.size).sum::<u64>() > 200_000,
        "{files:?}"
    );
}

#[test]
fn new_tables_have_the_new_format() {
    let dir = dirs::scratch().unwrap();
    let db = open(dir.path());
    set(&db, &[("disable_auto_compactions", "true")]).unwrap();
    let blocks = |db: &Db, value: u8| {
        for i in 0..500 {
            db.put(format!("{i:04}"), vec![value; 100]).unwrap();
        }
        db.flush().unwrap();
        let newest = db.get_live_files_metadata();
        let newest = newest.iter().max_by_key(|f| f.file_number).unwrap();
        let path = dir.path().join(newest.name.trim_start_matches('/'));
        let fs = io::posix::Posix::shared();
        let file = fs.open(&path, io::OpenHow::READ).unwrap();
        let reader = table::Reader::open(file, newest.size, table::ReaderOptions::default());
        let reader = reader.unwrap();
        let p = reader.properties();
        (
            reader.data_blocks().unwrap().len(),
            p.compression.clone(),
            p.filter_policy.clone(),
        )
    };
    let (small, codec, filter) = blocks(&db, 1);
    assert_eq!((codec.as_str(), filter.as_str()), ("Snappy", ""));
    let table = "{block_size=32K;filter_policy=bloomfilter:10:false}";
    set(
        &db,
        &[
            ("block_based_table_factory", table),
            ("compression", "kLZ4Compression"),
        ],
    )
    .unwrap();
    let (large, codec, filter) = blocks(&db, 2);
    assert!(large < small && large > 1, "{large} blocks, {small} before");
    assert_eq!(codec, "LZ4");
    assert!(!filter.is_empty());
    assert_eq!(db.get("0123").unwrap(), Some(vec![2; 100]));
}

/// Stopped writers continue as soon as a higher limit allows it.
#[test]
fn a_higher_limit_frees_stopped_writers() {
    let dir = dirs::scratch().unwrap();
    let db = open(dir.path());
    set(&db, &[("disable_auto_compactions", "true")]).unwrap();
    for _ in 0..4 {
        db.put("key", "value").unwrap();
        db.flush().unwrap();
    }
    db.pause_background_work().unwrap();
    let changes = [
        ("disable_auto_compactions", "false"),
        ("level0_file_num_compaction_trigger", "2"),
        ("level0_slowdown_writes_trigger", "3"),
        ("level0_stop_writes_trigger", "4"),
    ];
    set(&db, &changes).unwrap();
    assert_eq!(number(&db, "rocksdb.is-write-stopped"), 1);
    let no_wait = WriteOptions {
        no_slowdown: true,
        ..WriteOptions::default()
    };
    let family = db.default_column_family();
    let e = db.cf(&family).with(&no_wait).put("k", "v").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Incomplete);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| db.put("key", "stopped"));
        let changes = [
            ("level0_stop_writes_trigger", "40"),
            ("level0_slowdown_writes_trigger", "30"),
        ];
        set(&db, &changes).unwrap();
        writer.join().unwrap().unwrap();
    });
    assert_eq!(number(&db, "rocksdb.is-write-stopped"), 0);
    db.continue_background_work().unwrap();
}

/// Whether this process has a thread of this name. Tests run at the same time, so only high numbers tell
/// something.
fn has_thread(name: &str) -> bool {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    tasks
        .filter_map(|t| std::fs::read_to_string(t.ok()?.path().join("comm")).ok())
        .any(|comm| comm.trim() == name)
}

#[test]
fn threads_come_with_the_options() {
    if !Path::new("/proc/self/task").exists() {
        return;
    }
    let dir = dirs::scratch().unwrap();
    let mut o = options();
    o.db.stats_dump_period_sec = 0;
    let db = Db::open(dir.path(), &o).unwrap();
    // Linux keeps 15 characters of a name.
    db.set_db_options(&[("max_background_jobs", "24")]).unwrap();
    wait_until("threads for compactions", || has_thread("ironstone:low17"));
    let changes = [
        ("max_background_flushes", "10"),
        ("max_background_compactions", "1"),
    ];
    db.set_db_options(&changes).unwrap();
    wait_until("threads for flushes", || has_thread("ironstone:high9"));
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    db.set_db_options(&[("stats_dump_period_sec", "1")])
        .unwrap();
    wait_until("statistics", || {
        log_of(dir.path()).contains("DUMPING STATS")
    });
    db.close().unwrap();
}

/// Families that keep logs alive beyond a new `max_total_wal_size` are flushed without a write.
#[test]
fn a_smaller_limit_of_logs_flushes_at_once() {
    let dir = dirs::scratch().unwrap();
    let (db, other) = with_other(dir.path());
    for i in 0..32 {
        db.put(format!("{i}"), vec![b'x'; 8192]).unwrap();
    }
    let flush = FlushOptions::default();
    db.with(&flush).flush().unwrap();
    let files = |db: &Db| {
        let text = db.cf(&other).property("rocksdb.num-files-at-level0");
        text.unwrap().parse::<u64>().unwrap()
    };
    assert_eq!(files(&db), 0);
    db.set_db_options(&[("max_total_wal_size", "100000")])
        .unwrap();
    wait_until("a flush", || files(&db) == 1);
}

/// Options change from several threads while others write, flush and compact.
#[test]
fn options_change_under_load() {
    let dir = dirs::scratch().unwrap();
    let mut o = options();
    o.cf.write_buffer_size = 64 << 10;
    o.cf.target_file_size_base = 64 << 10;
    let db = Db::open(dir.path(), &o).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..2)
            .map(|t| {
                let db = &db;
                scope.spawn(move || {
                    for i in 0..1500u32 {
                        db.put(format!("{t}-{:04}", i % 500), vec![i as u8; 500])
                            .unwrap();
                    }
                })
            })
            .collect();
        for t in 0..2usize {
            let (db, done) = (&db, &done);
            scope.spawn(move || {
                let mut i = t;
                while !done.load(Ordering::Relaxed) {
                    i += 1;
                    let size = ["65536", "32768", "200000"][i % 3];
                    let codec = ["kNoCompression", "kLZ4Compression", "kZSTD"][i % 3];
                    let style = ["{block_size=1000}", "{block_size=9000}"][i % 2];
                    let changes = [
                        ("write_buffer_size", size),
                        ("compression", codec),
                        ("block_based_table_factory", style),
                        ("prefix_extractor", ["nullptr", "fixed:2"][i % 2]),
                    ];
                    set(db, &changes).unwrap();
                    let jobs = ["2", "4", "8"][i % 3];
                    db.set_db_options(&[("max_background_jobs", jobs)]).unwrap();
                }
            });
        }
        for writer in writers {
            writer.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    for t in 0..2 {
        for i in 1000..1500u32 {
            let value = db.get(format!("{t}-{:04}", i % 500)).unwrap();
            assert_eq!(value, Some(vec![i as u8; 500]));
        }
    }
    let latest = db.cf(&db.default_column_family()).options();
    db.close().unwrap();
    let parsed =
        ParsedOptions::load_latest(dir.path(), &Env::default(), Unsupported::Refuse).unwrap();
    assert_eq!(
        parsed.families[0].options.cf.compression,
        latest.cf.compression
    );
}

/// What the engine counts never exceeds the limit, however much is written and read.
#[test]
fn memory_stays_under_its_limit() {
    const LIMIT: u64 = 6 << 20;
    let dir = dirs::scratch().unwrap();
    let mut o = options();
    o.db.memory_limit = LIMIT;
    o.db.create_missing_column_families = true;
    let families = ["default", "other"].map(|n| ColumnFamilyDescriptor::new(n, o.cf.clone()));
    let db = Db::open_cf(dir.path(), &o, &families).unwrap();
    let handles = families
        .each_ref()
        .map(|f| db.column_family(&f.name).unwrap());
    let mut most = (0, 0);
    let mut look = |db: &Db| {
        let memtables: u64 = handles
            .iter()
            .map(|f| {
                let text = db
                    .cf(f)
                    .property("rocksdb.cur-size-all-mem-tables")
                    .unwrap();
                text.parse::<u64>().unwrap()
            })
            .sum();
        // The cache is charged for the memtables in steps, a little late.
        let all = number(db, "rocksdb.block-cache-usage").max(memtables);
        most = (most.0.max(memtables), most.1.max(all));
    };
    let value = |i: u32| i.to_le_bytes().repeat(500);
    for i in 0..6000u32 {
        db.cf(&handles[i as usize % 2])
            .put(format!("{i:06}"), value(i))
            .unwrap();
        if i % 16 == 0 {
            look(&db);
        }
    }
    for i in 0..6000u32 {
        let found = db
            .cf(&handles[i as usize % 2])
            .get(format!("{i:06}"))
            .unwrap();
        assert_eq!(found, Some(value(i)));
        if i % 16 == 0 {
            look(&db);
        }
    }
    let (memtables, all) = most;
    assert!(all <= LIMIT, "{all} bytes at most");
    assert!(memtables <= LIMIT / 2, "{memtables} bytes of memtables");
    assert!(all > LIMIT / 2, "the cache is used: {all}");
    db.set_db_options(&[("memory_limit", "4M")]).unwrap();
    assert!(number(&db, "rocksdb.block-cache-usage") <= 4 << 20);
    let e = db.set_db_options(&[("memory_limit", "0")]).unwrap_err();
    assert!(e.to_string().contains("memory_limit"), "{e}");
}
