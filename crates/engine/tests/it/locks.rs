//! How many mutexes an operation takes. Debug builds know.

use base::sync::taken_by;
use ironstone::{Db, Options, WriteOptions};

#[test]
fn a_lone_put_takes_four_mutexes() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    let db = Db::open(dir.path(), &options).unwrap();
    db.put("first", "opens what is opened once").unwrap();
    let unsynced = taken_by(|| db.put("k", "v").unwrap());
    println!("unsynced: {unsynced:?}");
    let sync = WriteOptions {
        sync: true,
        ..WriteOptions::default()
    };
    let family = db.default_column_family();
    let synced = taken_by(|| db.cf(&family).with(&sync).put("k", "v").unwrap());
    println!("synced: {synced:?}");
    let read = taken_by(|| assert!(db.get("k").unwrap().is_some()));
    println!("get: {read:?}");
    // The log, a place in the order, the memtable's index, the end of the place.
    let order = "order of writes";
    assert_eq!(unsynced, ["log", order, "memtable", order]);
    assert_eq!(read.len(), 0, "{read:?}");
}
