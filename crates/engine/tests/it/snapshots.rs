//! What snapshots keep is given back when they are released, without further writes.

use std::time::Duration;

use base::clock::SystemClock;
use ironstone::{CompressionType, Db, Options};

fn options() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o.cf.compression = CompressionType::None;
    o
}

/// A new database, and its directory.
fn database() -> (tempfile::TempDir, Db) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), &options()).unwrap();
    (dir, db)
}

const KEYS: u64 = 20;
const ROUNDS: u64 = 100;

fn value(round: u64) -> Vec<u8> {
    vec![round as u8; 1000]
}

/// Overwrites all keys again and again, with a snapshot after each round.
fn overwrite(db: &Db) -> Vec<ironstone::Snapshot> {
    let round = |round| {
        for key in 0..KEYS {
            db.put(key.to_be_bytes(), value(round)).unwrap();
        }
        db.snapshot()
    };
    (0..ROUNDS).map(round).collect()
}

fn bytes(db: &Db) -> u64 {
    db.int_property("rocksdb.live-sst-files-size").unwrap()
}

/// Waits until the tables have at most this many bytes, for half a minute.
fn wait_for(db: &Db, most: u64) {
    let clock = SystemClock::shared();
    let began = clock.monotonic_nanos();
    while bytes(db) > most {
        let waited = Duration::from_nanos(clock.monotonic_nanos() - began);
        let left = bytes(db);
        assert!(
            waited < Duration::from_secs(30),
            "{left} bytes are still there"
        );
        clock.sleep(Duration::from_millis(5));
    }
}

/// Waits for a while, and asserts that no table is written again and again.
fn assert_quiet(db: &Db) {
    let names = || {
        let (mut names, _) = db.get_live_files(false).unwrap();
        names.retain(|name| name.contains(".sst"));
        names
    };
    let clock = SystemClock::shared();
    clock.sleep(Duration::from_millis(100));
    let before = names();
    clock.sleep(Duration::from_millis(200));
    assert_eq!(before, names(), "tables are compacted for nothing");
}

#[test]
fn overwritten_entries_go_with_the_last_snapshot_that_sees_them() {
    let (_dir, db) = database();
    let mut snapshots = overwrite(&db);
    db.flush().unwrap();
    db.compact_range(None, None).unwrap();
    let all = KEYS * ROUNDS * 1000;
    assert!(bytes(&db) > all);

    // The newer snapshots alone release nothing: the oldest one is the limit.
    let oldest = snapshots.remove(0);
    let newest = snapshots.pop().unwrap();
    drop(snapshots);
    assert_quiet(&db);
    assert!(bytes(&db) > all);
    for (snapshot, round) in [(&oldest, 0), (&newest, ROUNDS - 1)] {
        assert_eq!(
            snapshot.get(0u64.to_be_bytes()).unwrap().as_deref(),
            Some(&value(round)[..])
        );
    }
    drop(oldest);
    wait_for(&db, 2 * KEYS * 1000);
    assert_eq!(
        newest.get(0u64.to_be_bytes()).unwrap().as_deref(),
        Some(&value(ROUNDS - 1)[..])
    );
    assert_quiet(&db);
    drop(newest);
    assert_quiet(&db);
}

#[test]
fn a_file_of_level_0_is_freed_too() {
    let (_dir, db) = database();
    let snapshots = overwrite(&db);
    db.flush().unwrap();
    assert!(bytes(&db) > KEYS * ROUNDS * 1000);
    for snapshot in snapshots {
        drop(snapshot); // the oldest first, so that each release moves the limit
    }
    wait_for(&db, 2 * KEYS * 1000);
    assert_quiet(&db);
}

#[test]
fn a_range_deletion_frees_what_it_hides() {
    let (_dir, db) = database();
    for key in 0..KEYS * ROUNDS {
        db.put(key.to_be_bytes(), value(key)).unwrap();
    }
    let snapshot = db.snapshot();
    db.delete_range(0u64.to_be_bytes(), u64::MAX.to_be_bytes())
        .unwrap();
    db.flush().unwrap();
    db.compact_range(None, None).unwrap();
    assert!(bytes(&db) > KEYS * ROUNDS * 1000);
    drop(snapshot);
    wait_for(&db, 0);
}

#[test]
fn operands_that_nobody_can_merge_are_not_compacted_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    let mut with_operator = options();
    with_operator.cf.merge_operator = base::merge::parse("uint64add").unwrap();
    let db = Db::open(dir.path(), &with_operator).unwrap();
    let mut snapshots = Vec::new();
    for i in 0..100u64 {
        db.merge("counter", i.to_le_bytes()).unwrap();
        snapshots.push(db.snapshot());
    }
    db.flush().unwrap();
    db.close().unwrap();
    // Without a merge operator, operands stay as they are.
    let db = Db::open(dir.path(), &options()).unwrap();
    drop((snapshots, db.snapshot()));
    db.put("other", "value").unwrap();
    drop(db.snapshot());
    assert_quiet(&db);
}

#[test]
fn a_snapshot_may_outlive_the_database() {
    let (dir, db) = database();
    let snapshots = overwrite(&db);
    db.flush().unwrap();
    db.close().unwrap();
    drop(snapshots);
    let db = Db::open(dir.path(), &options()).unwrap();
    // What an earlier process kept is freed by the first release that may concern it.
    let snapshot = db.snapshot();
    db.put("key", "value").unwrap();
    drop(snapshot);
    wait_for(&db, 2 * KEYS * 1000);
}
