//! The row cache: lookups find in it what they would find in the tables, and fill it.

use ironstone::{GetMergeOperandsOptions, RowCache, WriteBatch};
use sim::oracle::{self, RocksDb};

use super::*;

/// The value of each key, in the same database opened a second time, without a row cache.
fn without_rows(s: &Simulated, keys: &[String]) -> Vec<Option<Vec<u8>>> {
    let mut options = s.options.clone();
    options.env.row_cache = None;
    options.env.statistics = None;
    let db = Db::open_for_read_only("/db", &options, false).unwrap();
    keys.iter().map(|k| db.get(k).unwrap()).collect()
}

fn ticks(options: &Options, ticker: Ticker) -> u64 {
    options.env.statistics.as_ref().unwrap().get(ticker)
}

/// With rows that all stay, and with room for a few, on a device that does reads in any order.
#[test]
fn lookups_agree_with_and_without_rows() {
    for (rows, blocks) in [(16 << 20, 0), (16 << 20, 8 << 20), (30_000, 0), (0, 60_000)] {
        let rows = Arc::new(RowCache::new(rows));
        let s = Simulated::new(blocks, |o| o.env.row_cache = Some(Arc::clone(&rows)));
        let keys: Vec<_> = (0..KEYS + 50).map(key).collect();
        let expected = without_rows(&s, &keys);
        for _ in 0..2 {
            let got = s.db().multi_get(&keys).into_iter().map(Result::unwrap);
            assert_eq!(got.collect::<Vec<_>>(), expected);
            for (key, expected) in keys.iter().zip(&expected).step_by(7) {
                let future = futures::executor::block_on(s.db().get_async(key));
                assert_eq!(future.unwrap(), *expected);
                let pinned = s.db().get_pinned(key).unwrap();
                assert_eq!(pinned.as_deref(), expected.as_deref());
            }
        }
        check(s.db(), &s.families, &mut Rng::new(8), 20);
        assert!(rows.usage() <= rows.capacity(), "{rows:?}");
        assert_eq!(
            ticks(&s.options, Ticker::RowCacheHit) > 5000,
            rows.capacity() > 1 << 20
        );
    }
}

/// Once its rows are there, a lookup reads no table, although no block is cached; a key that is nowhere does.
#[test]
fn a_row_is_served_without_a_read() {
    let rows = Arc::new(RowCache::new(16 << 20));
    let s = Simulated::new(0, |o| o.env.row_cache = Some(Arc::clone(&rows)));
    let keys: Vec<_> = (0..KEYS).step_by(3).map(key).collect();
    let found = |values: Vec<ironstone::Result<Option<Vec<u8>>>>| -> Vec<_> {
        values.into_iter().map(Result::unwrap).collect()
    };
    let first = found(s.db().multi_get(&keys));
    let present: Vec<_> = keys
        .iter()
        .zip(&first)
        .filter(|(_, v)| v.is_some())
        .collect();
    assert!(present.len() > 500 && rows.len() >= present.len());
    let count = |ticker| ticks(&s.options, ticker);
    let reads = || count(Ticker::LastLevelReadCount) + count(Ticker::NonLastLevelReadCount);
    let rows = || (count(Ticker::RowCacheHit), count(Ticker::RowCacheMiss));
    // Without filters, a key is also looked for in tables that do not have it. What is not found makes no row.
    let (before, (hits, misses)) = (reads(), rows());
    for (key, value) in &present {
        assert_eq!(s.db().get(key).unwrap(), **value);
    }
    let (read, (hits, misses)) = (reads() - before, (rows().0 - hits, rows().1 - misses));
    assert!(
        hits >= present.len() as u64 && read <= misses,
        "{hits} {misses} {read}"
    );
    let before = reads();
    assert_eq!(s.db().get(key(KEYS + 7)).unwrap(), None);
    assert_eq!(s.db().get(format!("{}-", key(7))).unwrap(), None);
    assert!(reads() > before);
}

/// A get at a snapshot that is older than the table's newest entry neither uses nor makes rows; `fill_cache` makes none; only
/// the cache may be read, and rows are in it.
#[test]
fn snapshots_and_read_options_are_kept() {
    let rows = Arc::new(RowCache::new(1 << 20));
    let mut o = options(0);
    o.env.fs = Arc::new(SimDisk::new(Config::default()));
    o.env.row_cache = Some(Arc::clone(&rows));
    let db = Db::open("/db", &o).unwrap();
    db.put("a", "1").unwrap();
    let old = db.snapshot();
    db.put("a", "2").unwrap();
    db.put("b", "2").unwrap();
    db.flush().unwrap();
    let at_old = ReadOptions {
        snapshot: Some(old),
        ..ReadOptions::default()
    };
    let value = |read: &ReadOptions| db.with(read).get("a").unwrap().unwrap();
    assert_eq!((value(&at_old), rows.len()), (b"1".to_vec(), 0));
    let no_fill = ReadOptions {
        fill_cache: false,
        ..ReadOptions::default()
    };
    assert_eq!((value(&no_fill), rows.len()), (b"2".to_vec(), 0));
    assert_eq!(db.get("a").unwrap().unwrap(), b"2");
    assert_eq!((rows.len(), value(&at_old)), (1, b"1".to_vec()));
    assert_eq!((value(&no_fill), rows.len()), (b"2".to_vec(), 1));
    let cached = ReadOptions {
        read_tier: ReadTier::BlockCache,
        ..ReadOptions::default()
    };
    assert_eq!(value(&cached), b"2");
    let e = db.with(&cached).get("b").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Incomplete);
    // A snapshot that sees the whole table uses its rows.
    let new = ReadOptions {
        snapshot: Some(db.snapshot()),
        ..ReadOptions::default()
    };
    let hits = ticks(&o, Ticker::RowCacheHit);
    assert_eq!(value(&new), b"2");
    assert_eq!(ticks(&o, Ticker::RowCacheHit), hits + 1);
}

/// What one kind of lookup left out of a row, another one finds, also one that does not wait for the device.
#[test]
fn a_row_that_is_cut_is_read_again() {
    let rows = Arc::new(RowCache::new(1 << 20));
    let mut o = options(0);
    o.env.fs = Arc::new(SimDisk::new(Config::default()));
    o.env.row_cache = Some(Arc::clone(&rows));
    let db = Db::open("/db", &o).unwrap();
    let mut snapshots = Vec::new();
    for (key, count) in [("few", 3), ("many", 300)] {
        db.put(key, "base").unwrap();
        snapshots.push(db.snapshot());
        for n in 0..count {
            db.merge(key, format!("{n}")).unwrap();
            snapshots.push(db.snapshot());
        }
    }
    db.flush().unwrap();
    drop(snapshots);
    for (key, count) in [("few", 3), ("many", 300)] {
        let mut one = |_: &[u8]| false;
        let cut = GetMergeOperandsOptions {
            continue_cb: Some(&mut one),
            ..GetMergeOperandsOptions::up_to(1000)
        };
        assert_eq!(db.get_merge_operands(key, cut).unwrap().len(), 1);
        let mut all = vec!["base".to_owned()];
        all.extend((0..count).map(|n| n.to_string()));
        let merged = futures::executor::block_on(db.get_async(key)).unwrap();
        assert_eq!(String::from_utf8(merged.unwrap()).unwrap(), all.join(","));
        rows.set_capacity(0);
        rows.set_capacity(1 << 20);
        let mut one = |_: &[u8]| false;
        let cut = GetMergeOperandsOptions {
            continue_cb: Some(&mut one),
            ..GetMergeOperandsOptions::up_to(1000)
        };
        assert_eq!(db.get_merge_operands(key, cut).unwrap().len(), 1);
        for _ in 0..2 {
            let merged = db.get(key).unwrap().unwrap();
            assert_eq!(String::from_utf8(merged).unwrap(), all.join(","));
            let operands = db.get_merge_operands(key, GetMergeOperandsOptions::up_to(1000));
            let operands = operands.unwrap();
            assert_eq!(operands.len(), all.len());
        }
    }
}

/// Entries of ingested tables have the sequence number that the MANIFEST gives them: snapshots from before do not see them,
/// and make no rows of them.
#[test]
fn rows_of_ingested_tables_respect_snapshots() {
    let rows = Arc::new(RowCache::new(1 << 20));
    let mut o = options(0);
    let dir = dirs::scratch().unwrap();
    o.env.row_cache = Some(Arc::clone(&rows));
    let db = Db::open(dir.path().join("db"), &o).unwrap();
    db.put("b", "old").unwrap();
    db.flush().unwrap();
    let old = ReadOptions {
        snapshot: Some(db.snapshot()),
        ..ReadOptions::default()
    };
    let file = dir.path().join("file.sst");
    let mut writer = ironstone::SstFileWriter::new(&o);
    writer.open(&file).unwrap();
    for (key, value) in [("a", "new"), ("b", "new")] {
        writer.put(key, value).unwrap();
    }
    writer.finish().unwrap();
    db.ingest_external_file(&[&file], &ironstone::IngestExternalFileOptions::default())
        .unwrap();
    for _ in 0..2 {
        let before = ["a", "b"].map(|key| db.with(&old).get(key).unwrap());
        assert_eq!(before, [None, Some(b"old".to_vec())]);
        let now = ["a", "b"].map(|key| db.get(key).unwrap().unwrap());
        assert_eq!(now, [b"new"; 2]);
    }
    assert_eq!(rows.len(), 3);
    db.delete_range("a", "c").unwrap();
    assert_eq!(
        db.get("a").unwrap(),
        None,
        "the row is below a range deletion"
    );
    assert_eq!(db.with(&old).get("b").unwrap().unwrap(), b"old");
}

/// Tables that move to another level, and tables that are closed and opened again, keep their rows.
#[test]
fn tables_that_change_places_keep_their_rows() {
    let rows = Arc::new(RowCache::new(1 << 20));
    let mut o = options(0);
    o.env.fs = Arc::new(SimDisk::new(Config::default()));
    o.env.row_cache = Some(Arc::clone(&rows));
    o.db.max_open_files = 20;
    let db = Db::open("/db", &o).unwrap();
    for n in 0..60 {
        db.put(key(n), format!("v{n}")).unwrap();
        db.flush().unwrap();
    }
    for round in 0..3 {
        for n in 0..60 {
            assert_eq!(
                db.get(key(n)).unwrap().unwrap(),
                format!("v{n}").into_bytes()
            );
        }
        assert_eq!(rows.len(), 60, "round {round}");
        if round == 1 {
            db.compact_range(None, None).unwrap(); // they do not overlap, and move
        }
    }
}

/// RocksDB counts the same hits and misses.
#[test]
fn rocksdb_counts_the_same() {
    let Some(lib) = oracle::rocksdb() else { return };
    let temp = dirs::scratch().unwrap();
    let mut o = options(0);
    o.cf.merge_operator = None;
    o.env.row_cache = Some(Arc::new(RowCache::new(1 << 20)));
    let db = Db::open(temp.path().join("ours"), &o).unwrap();
    let mut theirs = lib.options();
    theirs.create_if_missing(true);
    theirs.enable_statistics();
    theirs.set("disable_auto_compactions", "true").unwrap();
    theirs.row_cache(&lib.lru_cache(1 << 20)).unwrap();
    let rocks = RocksDb::open(&theirs, temp.path().join("theirs")).unwrap();
    for round in 0..3 {
        let mut batch = WriteBatch::new();
        for n in (0..100).filter(|n| n % (round + 1) == 0) {
            let value = format!("{round}");
            batch.put(key(n), &value).unwrap();
            rocks.put(key(n).as_bytes(), value.as_bytes()).unwrap();
        }
        db.write(&mut batch).unwrap();
        db.flush().unwrap();
        rocks.flush().unwrap();
    }
    for _ in 0..2 {
        // RocksDB does not look at the range of a table if there are few: the keys are in the ranges of all.
        for n in 0..99 {
            let theirs = rocks.get(key(n).as_bytes()).unwrap();
            assert_eq!(db.get(key(n)).unwrap(), theirs);
        }
    }
    let text = theirs.statistics().unwrap();
    for ticker in [Ticker::RowCacheHit, Ticker::RowCacheMiss] {
        let line = format!("{} COUNT : {}", ticker.name(), ticks(&o, ticker));
        assert!(text.contains(&line), "{line} is not in {text}");
    }
}
