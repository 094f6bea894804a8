//! Families and options in one form: `db.cf(&family).with(&options)`; batches that stay with their writers.

use ironstone::batch::Record;
use ironstone::{
    ColumnFamily, ColumnFamilyOptions, CompactRangeOptions, Db, ErrorKind, FlushOptions, Options,
    ReadOptions, WriteBatch, WriteOptions,
};

fn options() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o
}

/// A database with another family than the default one.
fn with_users() -> (tempfile::TempDir, Db, ColumnFamily) {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("db"), &options()).unwrap();
    let users = db.create_column_family("users", &ColumnFamilyOptions::default());
    (dir, db, users.unwrap())
}

/// A write that is refused leaves the batch as it is, so that it can be tried again; so does one that succeeds.
#[test]
fn a_batch_is_given_back() {
    let (_dir, db, users) = with_users();
    let mut batch = WriteBatch::new();
    batch.put("a", "1").unwrap();
    batch.cf(&users).put("b", "2").unwrap();
    let records = |b: &WriteBatch| b.data()[8..].to_vec(); // behind the sequence number
    let wanted = records(&batch);

    let both = WriteOptions {
        sync: true,
        disable_wal: true,
        ..WriteOptions::default()
    };
    assert!(db.with(&both).write(&mut batch).is_err());
    assert_eq!(records(&batch), wanted);

    db.write(&mut batch).unwrap();
    assert_eq!(records(&batch), wanted);
    let first = batch.sequence();
    db.write(&mut batch).unwrap();
    assert_eq!(records(&batch), wanted);
    assert_eq!(batch.sequence(), first + 2);
    assert_eq!(db.get("a").unwrap().unwrap(), b"1");
    assert_eq!(db.cf(&users).get("b").unwrap().unwrap(), b"2");

    db.drop_column_family(&users).unwrap();
    assert!(db.write(&mut batch).is_err());
    assert_eq!(records(&batch), wanted);
    batch.clear();
    assert_eq!(batch.count(), 0);
    db.write(&mut batch).unwrap();
}

/// Batches of writers that another one leads are theirs again afterwards, each its own.
#[test]
fn a_batch_that_another_thread_wrote_is_given_back() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("db"), &options()).unwrap();
    std::thread::scope(|scope| {
        for thread in 0..8_u8 {
            let db = &db;
            scope.spawn(move || {
                let sync = WriteOptions {
                    sync: thread % 2 == 0,
                    ..WriteOptions::default()
                };
                let mut batch = WriteBatch::new();
                for n in 0..200_u32 {
                    let key = [&[thread][..], &n.to_be_bytes()].concat();
                    batch.clear();
                    batch.put(&key, &key).unwrap();
                    db.with(&sync).write(&mut batch).unwrap();
                    let record = batch.records().next().unwrap().unwrap();
                    assert!(matches!(record, Record::Put { key: k, .. } if k == key));
                    assert!(batch.sequence() > 0);
                }
            });
        }
    });
    assert_eq!(db.range(..).unwrap().count(), 8 * 200);
}

/// Each kind of options has its effect, alone and beside the others; a snapshot takes the place of that in the options.
#[test]
fn families_and_options_meet_in_one_form() {
    let (_dir, db, users) = with_users();
    let cf = db.cf(&users);
    db.put("k", "default").unwrap();
    cf.put("k", "old").unwrap();
    let old = db.snapshot();
    cf.put("k", "new").unwrap();
    db.put("k", "changed").unwrap();
    let new = db.snapshot();

    let value = |found: Option<Vec<u8>>| String::from_utf8(found.unwrap()).unwrap();
    assert_eq!(value(cf.get("k").unwrap()), "new");
    assert_eq!(value(cf.with(&old).get("k").unwrap()), "old");
    assert_eq!(value(old.get("k").unwrap()), "default");
    assert_eq!(value(new.get("k").unwrap()), "changed");
    let read = ReadOptions {
        snapshot: Some(new.clone()),
        iterate_upper_bound: Some(b"k".to_vec()),
        ..ReadOptions::default()
    };
    assert_eq!(value(cf.with(&read).with(&old).get("k").unwrap()), "old");
    assert_eq!(value(cf.with(&old).with(&read).get("k").unwrap()), "old");
    // The bound of the options stays.
    let mut it = cf.with(&read).with(&old).iterator().unwrap();
    it.seek_to_first();
    assert!(!it.valid());
    assert_eq!(old.range(..).unwrap().count(), 1);
    assert_eq!(old.prefix("k").unwrap().count(), 1);
    assert!(old.iterator().unwrap().status().is_ok());
}

/// A `Cf` has its own options, and others keep theirs.
#[test]
fn each_kind_of_options_has_its_effect() {
    let (_dir, db, users) = with_users();
    let cf = db.cf(&users);
    let read = ReadOptions::default();
    let unlogged = WriteOptions {
        disable_wal: true,
        ..WriteOptions::default()
    };
    cf.with(&unlogged).with(&read).put("u", "1").unwrap();
    assert_eq!(cf.get("u").unwrap().unwrap(), b"1");
    cf.with(&FlushOptions::default()).flush().unwrap();
    let level0 = || cf.property("rocksdb.num-files-at-level0").unwrap();
    assert_eq!(level0(), "1");
    cf.with(&CompactRangeOptions::default())
        .compact_range(None, None)
        .unwrap();
    assert_eq!(level0(), "0");
    assert_eq!(db.cf(&users).column_family().name(), "users");
}

/// Snapshots and handles of another database are refused by each verb.
#[test]
fn what_is_of_another_database_is_refused() {
    let (dir, db, users) = with_users();
    let other = Db::open(dir.path().join("other"), &options()).unwrap();
    let stray = other.snapshot();
    assert!(db.with(&stray).get("k").is_err());
    assert!(db.with(&stray).iterator().is_err());
    assert!(db.with(&stray).multi_get(&["k"])[0].is_err());
    assert!(other.cf(&users).put("k", "v").is_err());
    assert!(other.cf(&users).get("k").is_err());
    assert!(other.cf(&users).flush().is_err());
}

/// A snapshot does not keep the database open, and says so when it is read later.
#[test]
fn a_snapshot_of_a_closed_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path().join("db"), &options()).unwrap();
    db.put("k", "v").unwrap();
    let snapshot = db.snapshot();
    db.close().unwrap();
    let e = snapshot.get("k").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::ShutdownInProgress);
    assert!(snapshot.range(..).is_err());
    let again = Db::open(dir.path().join("db"), &options()).unwrap();
    assert_eq!(again.get("k").unwrap().unwrap(), b"v");
    assert!(again.with(&snapshot).get("k").is_err());
}
