//! The first things that anybody tries.

use ironstone::{Db, ErrorKind, Options, ReadOptions, WriteBatch, WriteOptions};

fn creating() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o
}

fn scan(db: &Db) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut it = db.iterator().unwrap();
    let mut out = Vec::new();
    it.seek_to_first();
    while it.valid() {
        out.push((it.key().to_vec(), it.value().to_vec()));
        it.next();
    }
    it.status().unwrap();
    out
}

#[test]
fn puts_deletes_batches_and_snapshots_survive_reopens() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), &creating()).unwrap();
    db.put(b"a", b"1").unwrap();
    db.put(b"b", b"2").unwrap();
    let snapshot = db.snapshot();
    let mut batch = WriteBatch::new();
    batch.put(b"b", b"3").unwrap();
    batch.delete(b"a").unwrap();
    batch.put(b"c", b"").unwrap();
    db.with(&WriteOptions {
        sync: true,
        ..Default::default()
    })
    .write(&mut batch)
    .unwrap();
    assert_eq!(db.get(b"a").unwrap(), None);
    assert_eq!(db.get(b"b").unwrap().unwrap(), b"3");
    let old = ReadOptions {
        snapshot: Some(snapshot.clone()),
        ..Default::default()
    };
    let cf = db.default_column_family();
    assert_eq!(db.cf(&cf).with(&old).get(b"a").unwrap().unwrap(), b"1");
    let want = vec![
        (b"b".to_vec(), b"3".to_vec()),
        (b"c".to_vec(), b"".to_vec()),
    ];
    assert_eq!(scan(&db), want);
    db.flush().unwrap();
    assert_eq!(db.property("rocksdb.num-files-at-level0").unwrap(), "1");
    assert_eq!(scan(&db), want);
    assert_eq!(db.cf(&cf).with(&old).get(b"a").unwrap().unwrap(), b"1");
    drop((snapshot, old));
    db.put(b"d", b"4").unwrap();
    db.close().unwrap();
    let db = Db::open(dir.path(), &Options::default()).unwrap();
    let mut want = want;
    want.push((b"d".to_vec(), b"4".to_vec()));
    assert_eq!(scan(&db), want);
    db.cf(&cf).compact_range(None, None).unwrap_or(());
    let cf = db.default_column_family();
    db.cf(&cf).compact_range(None, None).unwrap();
    assert_eq!(scan(&db), want);
    let e = Db::open(dir.path(), &Options::default()).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Busy);
    drop(db);
    let db = Db::open_read_only(dir.path(), &Options::default()).unwrap();
    assert_eq!(scan(&db), want);
    assert_eq!(
        db.put(b"x", b"y").unwrap_err().kind(),
        ErrorKind::NotSupported
    );
}

#[test]
fn many_writes_flush_and_compact_in_the_background() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = creating();
    options.cf.write_buffer_size = 256 << 10;
    options.cf.target_file_size_base = 256 << 10;
    let db = Db::open(dir.path(), &options).unwrap();
    for i in 0..60_000u64 {
        let k = format!("{:08}", (i * 7919) % 20_000);
        db.put(k.as_bytes(), i.to_le_bytes()).unwrap();
    }
    db.wait_for_compact().unwrap();
    let number = |name: &str| -> u32 { db.property(name).unwrap().parse().unwrap() };
    let base = number("rocksdb.base-level");
    let below = number(&format!("rocksdb.num-files-at-level{base}"));
    assert!(below > 0, "{}", db.property("rocksdb.stats").unwrap());
    let all = scan(&db);
    assert_eq!(all.len(), 20_000);
    let mut it = db.iterator().unwrap();
    it.seek_to_last();
    for (k, v) in all.iter().rev() {
        assert_eq!((it.key(), it.value()), (&k[..], &v[..]));
        it.prev();
    }
    assert!(!it.valid());
    drop(it);
    db.close().unwrap();
    let db = Db::open(dir.path(), &options).unwrap();
    assert_eq!(scan(&db), all);
}

#[test]
fn a_value_goes_into_the_buffer_of_the_caller() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.merge_operator = base::merge::parse("stringappend").unwrap();
    let db = Db::open(dir.path(), &options).unwrap();
    db.put("plain", "value").unwrap();
    db.merge("merged", "a").unwrap();
    db.merge("merged", "b").unwrap();
    let mut value = Vec::with_capacity(100);
    let at = value.as_ptr();
    for in_tables in [false, true] {
        assert!(db.get_into("plain", &mut value).unwrap());
        assert_eq!((&value[..], value.as_ptr()), (&b"value"[..], at));
        assert!(!db.get_into("missing", &mut value).unwrap());
        assert_eq!(
            (&value[..], value.as_ptr()),
            (&b""[..], at),
            "in tables: {in_tables}"
        );
        let mut merged = b"something else".to_vec();
        assert!(db.get_into("merged", &mut merged).unwrap());
        assert_eq!(merged, b"a,b");
        db.flush().unwrap();
    }
    let other = Db::open(dir.path().join("other"), &options).unwrap();
    let family = other.create_column_family("f", &ironstone::ColumnFamilyOptions::default());
    assert!(
        db.cf(&family.unwrap())
            .get_into("plain", &mut value)
            .is_err()
    );
    assert!(value.is_empty());
}
