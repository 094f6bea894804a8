//! Values on the lowest level with data get the sequence number 0 once all snapshots see them, and not before.

use ironstone::{CompactRangeOptions, Db, Options};

fn database(options: &Options) -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), options).unwrap();
    (dir, db)
}

fn options() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o.cf.disable_auto_compactions = true;
    o
}

/// The level, and the smallest and largest sequence number of each table.
fn numbers(db: &Db) -> Vec<(usize, u64, u64)> {
    let tables = db.get_live_files_metadata();
    tables
        .iter()
        .map(|t| (t.level, t.smallest_seqno, t.largest_seqno))
        .collect()
}

/// Compacts everything, even what is on the last level already.
fn compact(db: &Db) {
    let all = CompactRangeOptions {
        bottommost_level_compaction: ironstone::BottommostLevelCompaction::Force,
        ..CompactRangeOptions::default()
    };
    db.with(&all).compact_range(None, None).unwrap();
}

fn put(db: &Db, keys: std::ops::Range<u64>, value: &str) {
    for key in keys {
        db.put(key.to_be_bytes(), value).unwrap();
    }
    db.flush().unwrap();
}

fn len(db: &Db) -> usize {
    let mut all = db.iterator().unwrap();
    all.seek_to_first();
    let mut n = 0;
    while all.valid() {
        n += 1;
        all.next();
    }
    all.status().unwrap();
    n
}

#[test]
fn values_that_all_snapshots_see_get_number_0() {
    let (dir, db) = database(&options());
    put(&db, 0..10, "a");
    let old = db.snapshot();
    put(&db, 5..15, "b");
    assert_eq!(numbers(&db).len(), 2);
    compact(&db);
    let [(level, 0, 20)] = numbers(&db)[..] else {
        panic!("{:?}", numbers(&db));
    };
    assert!(level > 0);
    assert_eq!(old.get(5u64.to_be_bytes()).unwrap().unwrap(), b"a");
    assert_eq!(old.get(12u64.to_be_bytes()).unwrap(), None);
    drop(old);
    compact(&db);
    assert_eq!(numbers(&db), [(level, 0, 0)]);
    // What is written now is newer, in memory and in each level.
    db.put(7u64.to_be_bytes(), "c").unwrap();
    db.delete(8u64.to_be_bytes()).unwrap();
    db.delete_range(9u64.to_be_bytes(), 12u64.to_be_bytes())
        .unwrap();
    let check = |db: &Db| {
        let of = |key: u64| db.get(key.to_be_bytes()).unwrap();
        assert_eq!(of(6), Some(b"b".to_vec()));
        assert_eq!(of(7), Some(b"c".to_vec()));
        assert_eq!([of(8), of(9), of(11)], [None, None, None]);
        assert_eq!(of(12), Some(b"b".to_vec()));
        assert_eq!(len(db), 11);
    };
    check(&db);
    db.flush().unwrap();
    check(&db);
    db.close().unwrap();
    let db = Db::open(dir.path(), &options()).unwrap();
    check(&db);
    compact(&db);
    check(&db);
    assert_eq!(numbers(&db), [(level, 0, 0)]);
}

#[test]
fn a_value_above_a_range_deletion_that_is_kept_stays_above_it() {
    let (_dir, db) = database(&options());
    put(&db, 0..10, "a");
    let old = db.snapshot();
    db.delete_range(0u64.to_be_bytes(), 10u64.to_be_bytes())
        .unwrap();
    let deleted = db.snapshot();
    put(&db, 3..4, "b");
    let new = db.snapshot();
    compact(&db);
    drop(old);
    compact(&db);
    let of = |snapshot: &ironstone::Snapshot| snapshot.get(3u64.to_be_bytes()).unwrap();
    assert_eq!(of(&deleted), None);
    assert_eq!(of(&new).unwrap(), b"b");
    drop((deleted, new));
    compact(&db);
    assert_eq!(db.get(3u64.to_be_bytes()).unwrap().unwrap(), b"b");
    assert_eq!(len(&db), 1);
}

#[test]
fn values_above_others_keep_their_numbers() {
    let (_dir, db) = database(&options());
    put(&db, 0..10, "a");
    compact(&db);
    let [(lowest, 0, 0)] = numbers(&db)[..] else {
        panic!("{:?}", numbers(&db));
    };
    put(&db, 5..15, "b");
    let tables = db.get_live_files_metadata();
    let upper = tables.iter().find(|t| t.level == 0).unwrap();
    db.cf(&db.default_column_family())
        .compact_files(&[upper.file_number], 1)
        .unwrap();
    let mut levels = numbers(&db);
    levels.sort_unstable();
    assert_eq!(levels, [(1, 11, 20), (lowest, 0, 0)]);
    let behind = {
        let mut o = options();
        o.db.allow_ingest_behind = true;
        o
    };
    let (_dir, db) = database(&behind);
    put(&db, 0..10, "a");
    compact(&db);
    assert!(
        numbers(&db).iter().all(|(_, smallest, _)| *smallest > 0),
        "older values may still come: {:?}",
        numbers(&db)
    );
}
