//! Which files are open: no more tables than `max_open_files` allows, and every read still works; and no
//! log that is not needed.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use base::ErrorKind;
use base::rng::Rng;
use base::stats::{Statistics, Ticker};
use ironstone::ReadTier;
use ironstone::{Db, Options, ReadOptions};
use sim::{dirs, oracle::content};

const TABLES: u64 = 60;
const KEYS: u64 = 50;

fn key(table: u64, i: u64) -> String {
    // A table on level 0 has keys of the whole range.
    format!("{i:04}/{table:04}")
}

/// A database of [`TABLES`] tables on level 0, each over the whole range of keys and with a range
/// tombstone over nothing.
fn made(dir: &Path, max_open_files: i32) -> (Options, Db) {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.disable_auto_compactions = true;
    options.cf.level0_slowdown_writes_trigger = 1000;
    options.cf.level0_stop_writes_trigger = 1000;
    options.env.statistics = Some(Arc::new(Statistics::new()));
    let db = Db::open(dir, &options).unwrap();
    for table in 0..TABLES {
        for i in 0..KEYS {
            db.put(key(table, i), format!("{table}")).unwrap();
        }
        db.delete_range(format!("x{table:04}"), format!("y{table:04}"))
            .unwrap();
        db.flush().unwrap();
    }
    db.close().unwrap();
    options.db.max_open_files = max_open_files;
    options.env.statistics = Some(Arc::new(Statistics::new()));
    let db = Db::open(dir, &options).unwrap();
    (options, db)
}

/// Files in `dir` that this process has open. A deleted one's name ends with ` (deleted)`.
fn open_files(dir: &Path) -> Vec<PathBuf> {
    let fds = fs::read_dir("/proc/self/fd").unwrap();
    let targets = fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
    targets.filter(|t| t.starts_with(dir)).collect()
}

/// The number of descriptors of this process on tables in `dir`.
fn open_tables(dir: &Path) -> u64 {
    let is_table = |t: &&PathBuf| t.extension().is_some_and(|e| e == "sst");
    open_files(dir).iter().filter(is_table).count() as u64
}

fn everything(db: &Db) -> content::Pairs {
    content::forward(db, &db.default_column_family(), &ReadOptions::default()).unwrap()
}

fn opens(options: &Options) -> u64 {
    let statistics = options.env.statistics.as_ref().unwrap();
    statistics.get(Ticker::NoFileOpens)
}

#[test]
fn no_more_are_open_than_the_limit() {
    let temp = dirs::scratch().unwrap();
    let (options, db) = made(temp.path(), 30);
    assert!(
        open_tables(temp.path()) <= 20,
        "{}",
        open_tables(temp.path())
    );
    let at_open = opens(&options);
    assert_eq!(at_open, TABLES);
    let mut rng = Rng::new(3);
    for _ in 0..2000 {
        let (table, i) = (rng.below(TABLES), rng.below(KEYS));
        let value = db.get(key(table, i)).unwrap();
        assert_eq!(value, Some(format!("{table}").into_bytes()));
        assert_eq!(db.get(format!("{i:04}/zzzz")).unwrap(), None);
    }
    assert!(open_tables(temp.path()) <= 20);
    assert!(opens(&options) > at_open + 100);
    // Blocks that were read before are found in the cache again, whatever was closed meanwhile.
    let statistics = options.env.statistics.as_ref().unwrap();
    let misses = statistics.get(Ticker::BlockCacheDataMiss);
    assert!(misses <= TABLES * 2, "{misses}");

    let all = everything(&db);
    assert_eq!(all.len() as u64, TABLES * KEYS);
    db.compact_range(None, None).unwrap();
    assert_eq!(everything(&db), all);
    assert!(open_tables(temp.path()) <= 20);
}

#[test]
fn without_limit_all_stay_open() {
    let temp = dirs::scratch().unwrap();
    let (options, db) = made(temp.path(), -1);
    assert_eq!(open_tables(temp.path()), TABLES);
    everything(&db);
    assert_eq!(opens(&options), TABLES);
}

/// RocksDB's minimum is 20, of which 10 are for other files; a smaller value is replaced by it.
#[test]
fn the_least_is_twenty() {
    for limit in [-2, 0, 1, 20] {
        let temp = dirs::scratch().unwrap();
        let (_, db) = made(temp.path(), limit);
        for table in 0..TABLES {
            assert!(db.get(key(table, 1)).unwrap().is_some());
        }
        assert_eq!(open_tables(temp.path()), 10);
    }
}

/// An iterator keeps the tables open that it reads; they are closed when the iterator is dropped.
#[test]
fn iterators_keep_what_they_read() {
    let temp = dirs::scratch().unwrap();
    let (_, db) = made(temp.path(), 20);
    let mut it = db.iterator().unwrap();
    it.seek_to_first();
    assert_eq!(open_tables(temp.path()), TABLES);
    let mut seen = 0;
    while it.valid() {
        seen += 1;
        it.next();
    }
    it.status().unwrap();
    assert_eq!(seen, TABLES * KEYS);
    drop(it);
    assert_eq!(open_tables(temp.path()), 10);
}

#[test]
fn several_threads_share_them() {
    let temp = dirs::scratch().unwrap();
    let (_, db) = made(temp.path(), 20);
    std::thread::scope(|scope| {
        for seed in 0..8 {
            let db = &db;
            scope.spawn(move || {
                let mut rng = Rng::new(seed);
                for n in 0..1000 {
                    let (table, i) = (rng.below(TABLES), rng.below(KEYS));
                    let value = db.get(key(table, i)).unwrap();
                    assert_eq!(value, Some(format!("{table}").into_bytes()));
                    if n % 200 == 0 {
                        assert_eq!(everything(db).len() as u64, TABLES * KEYS);
                    }
                }
            });
        }
        scope.spawn(|| {
            let family = db.default_column_family();
            db.cf(&family).compact_range(None, None).unwrap();
        });
    });
    assert!(open_tables(temp.path()) <= 10);
}

/// A read that may not open files returns an error, as RocksDB's does.
#[test]
fn reads_from_the_cache_open_nothing() {
    let temp = dirs::scratch().unwrap();
    let (options, db) = made(temp.path(), 20);
    everything(&db);
    assert!(db.get(key(TABLES - 1, 1)).unwrap().is_some());
    let before = opens(&options);
    let cached = ReadOptions {
        read_tier: ReadTier::BlockCache,
        ..ReadOptions::default()
    };
    let family = db.default_column_family();
    let read = |table| db.cf(&family).with(&cached).get(key(table, 1));
    let (mut found, mut not_open) = (0, 0);
    for table in 0..TABLES {
        match read(table) {
            Ok(value) => {
                assert!(value.is_some());
                found += 1;
            }
            Err(e) => {
                assert_eq!(e.kind(), ErrorKind::Incomplete, "{e}");
                not_open += 1;
            }
        }
    }
    assert!(found > 0 && not_open > 40, "{found} {not_open}");
    let mut it = db.with(&cached).iterator().unwrap();
    it.seek_to_first();
    assert!(!it.valid());
    assert_eq!(it.status().unwrap_err().kind(), ErrorKind::Incomplete);
    assert_eq!(opens(&options), before);
}

/// `SetDBOptions` closes files at once, and the database works on.
#[test]
fn the_limit_changes() {
    let temp = dirs::scratch().unwrap();
    let (_, db) = made(temp.path(), 1000);
    assert_eq!(open_tables(temp.path()), TABLES);
    db.set_db_options(&[("max_open_files", "25")]).unwrap();
    assert_eq!(open_tables(temp.path()), 15);
    db.set_db_options(&[("max_open_files", "-1")]).unwrap();
    everything(&db);
    assert_eq!(open_tables(temp.path()), TABLES);
    assert_eq!(db.db_options().max_open_files, -1);
}

/// A table that was closed and cannot be opened again fails the reads that need it, with its name, and
/// nothing else.
#[test]
fn a_table_that_is_gone_is_named() {
    let temp = dirs::scratch().unwrap();
    let (options, db) = made(temp.path(), 20);
    // Closes the oldest tables: the newest were used last.
    for _ in 0..2 {
        for table in (TABLES - 20..TABLES).rev() {
            assert!(db.get(key(table, 1)).unwrap().is_some());
        }
    }
    let mut tables: Vec<_> = fs::read_dir(temp.path())
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.extension().is_some_and(|e| e == "sst"))
        .collect();
    tables.sort();
    let away = temp.path().join("away");
    fs::rename(&tables[0], &away).unwrap();
    let e = db.get(key(0, 1)).unwrap_err();
    let name = tables[0].file_name().unwrap().to_string_lossy();
    assert!(e.is_corruption() && e.to_string().contains(&*name), "{e}");
    let mut it = db.iterator().unwrap();
    it.seek_to_first();
    assert!(it.status().unwrap_err().to_string().contains(&*name));
    drop(it);
    let statistics = options.env.statistics.as_ref().unwrap();
    assert!(statistics.get(Ticker::NoFileErrors) >= 2);
    assert!(db.get(key(TABLES - 1, 1)).unwrap().is_some());
    db.put("more", "values").unwrap();
    fs::rename(&away, &tables[0]).unwrap();
    assert!(db.get(key(0, 1)).unwrap().is_some());
}

/// A log that was never synced is closed when its data is in tables. Otherwise its bytes would stay on the
/// disk although it is deleted, and the next synced write would make them all durable.
#[test]
fn logs_that_nothing_needs_are_closed() {
    let dir = dirs::scratch().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    let db = Db::open(dir.path(), &options).unwrap();
    for i in 0..20 {
        db.put(key(i, 0), "unsynced").unwrap();
        db.flush().unwrap();
    }
    let logs = || -> Vec<PathBuf> {
        let is_log = |f: &PathBuf| f.to_string_lossy().contains(".log");
        open_files(dir.path()).into_iter().filter(is_log).collect()
    };
    // The last ones are deleted in the background.
    for _ in 0..3000 {
        if logs().len() == 1 {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(logs().len(), 1, "{:?}", logs());
    assert!(!logs()[0].to_string_lossy().ends_with("(deleted)"));
    db.close().unwrap();
}

/// An iterator finds its files although they were moved to another level and rewritten there, and are not
/// open any more.
#[test]
fn files_that_were_moved_stay_for_their_readers() {
    const FILES: u64 = 40;
    let dir = dirs::scratch().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.db.max_open_files = 20; // 10 tables
    options.cf.disable_auto_compactions = true;
    options.cf.level0_slowdown_writes_trigger = 1000;
    options.cf.level0_stop_writes_trigger = 1000;
    let db = Db::open(dir.path(), &options).unwrap();
    for file in 0..FILES {
        db.put(format!("{file:04}"), "old").unwrap();
        db.flush().unwrap();
    }
    let mut it = db.iterator().unwrap();
    let family = db.default_column_family();
    let levels = || {
        let all = db.get_live_files_metadata();
        all.iter().map(|f| f.level).collect::<Vec<_>>()
    };
    // Nothing overlaps: the files are moved as they are.
    let names = |db: &Db| {
        let mut all: Vec<u64> = db
            .get_live_files_metadata()
            .iter()
            .map(|f| f.file_number)
            .collect();
        all.sort_unstable();
        all
    };
    let before = names(&db);
    db.cf(&family).compact_range(None, None).unwrap();
    assert!(levels().iter().all(|&l| l > 0), "{:?}", levels());
    let moved = names(&db).iter().filter(|n| before.contains(n)).count();
    assert!(moved > 0, "nothing was moved: {:?}", levels());
    for file in 0..FILES {
        db.put(format!("{file:04}"), "new").unwrap();
    }
    db.flush().unwrap();
    db.cf(&family).compact_range(None, None).unwrap();
    let mut seen = 0;
    it.seek_to_first();
    while it.valid() {
        assert_eq!(it.value(), b"old");
        seen += 1;
        it.next();
    }
    it.status().unwrap();
    assert_eq!(seen, FILES);
}

/// The blocks of a table that went down without being written again were in the cache twice, the old ones of no use.
#[test]
fn a_table_that_moves_finds_its_blocks_in_the_cache() {
    for max_open_files in [-1, 100] {
        let temp = dirs::scratch().unwrap();
        let mut options = Options::default();
        options.db.create_if_missing = true;
        options.db.max_open_files = max_open_files;
        options.env.statistics = Some(Arc::new(Statistics::new()));
        let db = Db::open(temp.path(), &options).unwrap();
        db.put("key", "value").unwrap();
        db.flush().unwrap();
        assert_eq!(db.get("key").unwrap().unwrap(), b"value");
        let statistics = options.env.statistics.as_ref().unwrap();
        let misses = || statistics.get(Ticker::BlockCacheDataMiss);
        let (before, table) = (misses(), db.get_live_files_metadata()[0].file_number);
        let cf = db.default_column_family();
        db.cf(&cf).compact_range(None, None).unwrap();
        let moved = &db.get_live_files_metadata()[0];
        assert_eq!((moved.level, moved.file_number), (6, table));
        assert_eq!(db.get("key").unwrap().unwrap(), b"value");
        assert_eq!((before, misses()), (1, 1));
    }
}

/// Tables that were opened without a cache have no number there. Those that moved when there was one must not share a number.
#[test]
fn tables_that_move_do_not_mix_their_blocks() {
    let temp = dirs::scratch().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.disable_auto_compactions = true;
    options.cf.table.no_block_cache = true;
    let db = Db::open(temp.path(), &options).unwrap();
    for key in ["a", "z"] {
        db.put(key, key).unwrap();
        db.flush().unwrap();
    }
    let cf = db.default_column_family();
    let change = ("block_based_table_factory", "{no_block_cache=false;}");
    db.cf(&cf).set_options(&[change]).unwrap();
    let tables = || {
        let all = db.get_live_files_metadata().into_iter();
        let mut numbers: Vec<u64> = all.map(|f| f.file_number).collect();
        numbers.sort_unstable();
        numbers
    };
    let before = tables();
    db.cf(&cf).compact_range(None, None).unwrap();
    assert_eq!(tables(), before, "the tables moved");
    for key in ["a", "z", "a"] {
        assert_eq!(db.get(key).unwrap().unwrap(), key.as_bytes());
    }
}
