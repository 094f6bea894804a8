//! Many column families: created at once, and each write looks after its own alone.

use std::path::Path;

use ironstone::{
    ColumnFamilyDescriptor, ColumnFamilyOptions, CompressionType, Db, ErrorKind, Options,
};

fn options() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o
}

fn list(names: impl IntoIterator<Item = String>) -> Vec<ColumnFamilyDescriptor> {
    let families = names.into_iter();
    let described =
        families.map(|n| ColumnFamilyDescriptor::new(n, ColumnFamilyOptions::default()));
    described.collect()
}

fn names(db: &Db) -> Vec<String> {
    let families = db.column_families();
    families.iter().map(|f| f.name().to_owned()).collect()
}

fn bytes_of_logs(db: &Db) -> u64 {
    let logs = db.get_sorted_wal_files().unwrap();
    logs.iter().map(|log| log.size_bytes()).sum()
}

fn options_files(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).unwrap().map(|e| e.unwrap().path());
    let files = entries.filter(|p| p.to_string_lossy().contains("OPTIONS-"));
    files.map(|p| std::fs::read_to_string(p).unwrap()).collect()
}

#[test]
fn many_are_created_at_once_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), &options()).unwrap();
    let made = db
        .create_column_families(&list((0..300).map(|i| format!("f{i}"))))
        .unwrap();
    assert_eq!(made.len(), 300);
    for (i, family) in made.iter().enumerate() {
        assert_eq!(family.name(), format!("f{i}"), "in the order of the list");
        db.cf(family).put("k", i.to_string()).unwrap();
    }
    let ids: std::collections::BTreeSet<u32> = made.iter().map(|f| f.id()).collect();
    assert_eq!(ids.len(), 300);
    let newest = options_files(dir.path());
    assert!(
        newest
            .iter()
            .any(|text| text.contains("[CFOptions \"f299\"]"))
    );

    // A name that is taken, a name twice, an option out of range: nothing is created.
    let mut invalid = list(["new".to_owned()]);
    invalid[0].options.table.block_align = true; // not with compression
    invalid[0].options.cf.compression = CompressionType::Lz4;
    for refused in [
        list(["new".to_owned(), "f7".to_owned()]),
        list(["new".to_owned(), "new".to_owned()]),
        [list(["other".to_owned()]), invalid].concat(),
    ] {
        let error = db.create_column_families(&refused).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{error}");
        assert_eq!(names(&db).len(), 301);
    }
    assert!(db.create_column_families(&[]).unwrap().is_empty());
    // The next one has an id of its own.
    let next = db.create_column_family("next", &ColumnFamilyOptions::default());
    assert!(!ids.contains(&next.unwrap().id()));

    let before = names(&db);
    drop(made);
    db.close().unwrap();
    let all = list(before.clone());
    let db = Db::open_cf(dir.path(), &options(), &all).unwrap();
    assert_eq!(names(&db), before);
    let f299 = db.column_family("f299").unwrap();
    assert_eq!(db.cf(&f299).get("k").unwrap().unwrap(), b"299");
}

/// The memtable of one family among many is rotated when it is full, and logs are deleted although the memtables of
/// the others, which have no data, began with the first log.
#[test]
fn a_full_memtable_among_many_is_flushed_and_frees_its_logs() {
    let dir = tempfile::tempdir().unwrap();
    let mut o = options();
    o.cf.cf.write_buffer_size = 64 << 10;
    let db = Db::open(dir.path(), &o).unwrap();
    let made = db
        .create_column_families(&list((0..100).map(|i| format!("f{i}"))))
        .unwrap();
    let busy = db.create_column_family("busy", &o.cf).unwrap();
    for i in 0..4000u32 {
        db.cf(&busy).put(i.to_be_bytes(), [7; 100]).unwrap();
    }
    let active = db.cf(&busy).property("rocksdb.cur-size-active-mem-table");
    let active: u64 = active.unwrap().parse().unwrap();
    assert!(active <= 128 << 10, "{active} bytes in a buffer of 64 KiB");
    db.cf(&busy).flush().unwrap();
    let logs = |db: &Db| db.get_sorted_wal_files().unwrap().len();
    assert!(logs(&db) <= 2, "{} logs", logs(&db));
    // What comes now is in the newest log, and found after a reopening.
    db.cf(&made[50]).put("late", "v").unwrap();
    drop((busy, made));
    let all = list(names(&db));
    db.close().unwrap();
    let db = Db::open_cf(dir.path(), &options(), &all).unwrap();
    let f50 = db.column_family("f50").unwrap();
    assert_eq!(db.cf(&f50).get("late").unwrap().unwrap(), b"v");
    let busy = db.column_family("busy").unwrap();
    assert_eq!(db.cf(&busy).range(..).unwrap().count(), 4000);
}

/// With several families, the logs together are limited without an option: four times all write buffers. A family
/// with little data that keeps the oldest log is flushed then.
#[test]
fn the_limit_of_all_logs_follows_the_families() {
    let dir = tempfile::tempdir().unwrap();
    let mut o = options();
    o.cf.cf.write_buffer_size = 64 << 10;
    o.cf.cf.max_write_buffer_number = 2;
    let db = Db::open(dir.path(), &o).unwrap();
    let quiet = db.create_column_family("quiet", &o.cf).unwrap();
    db.cf(&quiet).put("old", "v").unwrap();
    // Two families of 128 KiB: the limit is a megabyte.
    for i in 0..60_000u32 {
        db.put(i.to_be_bytes(), [7; 100]).unwrap();
    }
    let size = bytes_of_logs(&db);
    assert!(size < 3 << 20, "{size} bytes of logs");
    db.set_db_options(&[("max_total_wal_size", "200000")])
        .unwrap();
    for i in 0..10_000u32 {
        db.put(i.to_be_bytes(), [7; 100]).unwrap();
    }
    db.flush().unwrap();
    let size = bytes_of_logs(&db);
    assert!(size < 1 << 20, "{size} bytes of logs");
    assert_eq!(db.cf(&quiet).get("old").unwrap().unwrap(), b"v");
}
