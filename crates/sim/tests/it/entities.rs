//! Wide-column entities: written and read by RocksDB and by Ironstone, merged, scanned, compacted.

use base::merge::parse;
use ironstone::{Db, Options, WideColumns, WriteBatch};
use sim::dirs;
use sim::oracle::{self, RocksDb, RocksWriteBatch, ldb};

fn columns(of: &[(&str, &str)]) -> WideColumns {
    WideColumns::new(of.iter().copied()).unwrap()
}

fn options() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o.cf.merge_operator = parse("stringappend").unwrap();
    o
}

/// Entities with and without default column, a plain value, and merges on all of them.
fn batch() -> WriteBatch {
    let mut b = WriteBatch::new();
    b.put_entity("a", &columns(&[("", "default"), ("x", "1"), ("y", "")]))
        .unwrap();
    b.put_entity("b", &columns(&[("x", "1")])).unwrap();
    b.put("c", "plain").unwrap();
    b.put_entity("d", &columns(&[("", "default"), ("x", "1")]))
        .unwrap();
    b.merge("d", "2").unwrap();
    b.merge("d", "3").unwrap();
    b.put_entity("e", &columns(&[("x", "1")])).unwrap();
    b.merge("e", "2").unwrap();
    b.put_entity("f", &WideColumns::default()).unwrap();
    b.put_entity("g", &columns(&[("x", "gone")])).unwrap();
    b.delete("g").unwrap();
    b.put_entity("h", &columns(&[("x", "gone")])).unwrap();
    b.single_delete("h").unwrap();
    b
}

fn expected() -> Vec<(&'static str, WideColumns)> {
    vec![
        ("a", columns(&[("", "default"), ("x", "1"), ("y", "")])),
        ("b", columns(&[("x", "1")])),
        ("c", columns(&[("", "plain")])),
        ("d", columns(&[("", "default,2,3"), ("x", "1")])),
        ("e", columns(&[("", ",2"), ("x", "1")])),
        ("f", WideColumns::default()),
    ]
}

fn check(what: &str, db: &Db) {
    let want = expected();
    for (k, columns) in &want {
        assert_eq!(&db.get_entity(k).unwrap().unwrap(), columns, "{what}: {k}");
        let default = columns.get(b"").unwrap_or_default();
        assert_eq!(db.get(k).unwrap().unwrap(), default, "{what}: {k}");
    }
    assert_eq!(db.get_entity("g").unwrap(), None, "{what}");
    assert_eq!(db.get_entity("h").unwrap(), None, "{what}");
    let mut it = db.iterator().unwrap();
    let mut forward = Vec::new();
    it.seek_to_first();
    while it.valid() {
        let default = it.columns().get(b"").unwrap_or_default().to_vec();
        assert_eq!(it.value(), default, "{what}");
        forward.push((it.key().to_vec(), it.columns()));
        it.next();
    }
    it.status().unwrap();
    let mut backward = Vec::new();
    it.seek_to_last();
    while it.valid() {
        backward.insert(0, (it.key().to_vec(), it.columns()));
        it.prev();
    }
    it.status().unwrap();
    let want: Vec<_> = want
        .into_iter()
        .map(|(k, c)| (k.as_bytes().to_vec(), c))
        .collect();
    assert_eq!(forward, want, "{what}");
    assert_eq!(backward, want, "{what}");
}

#[test]
fn entities_are_read_from_log_memtable_and_tables() {
    let temp = dirs::scratch().unwrap();
    let db = Db::open(temp.path(), &options()).unwrap();
    db.write(&mut batch()).unwrap();
    check("memtable", &db);
    drop(db);
    let db = Db::open(temp.path(), &options()).unwrap();
    check("reopened", &db);
    db.flush().unwrap();
    check("flushed", &db);
    let cf = db.default_column_family();
    db.cf(&cf).compact_range(None, None).unwrap();
    check("compacted", &db);
    db.merge("a", "more").unwrap();
    let merged = db.get_entity("a").unwrap().unwrap();
    assert_eq!(merged.get(b""), Some(&b"default,more"[..]));
    db.flush().unwrap();
    db.cf(&cf).compact_range(None, None).unwrap();
    assert_eq!(db.get_entity("a").unwrap().unwrap(), merged);
}

#[test]
fn entities_pass_between_rocksdb_and_ironstone() {
    let Some(lib) = oracle::rocksdb() else { return };
    for flush in [false, true] {
        let temp = dirs::scratch().unwrap();
        let dir = temp.path().join("db");
        let mut theirs = lib.options();
        theirs.create_if_missing(true);
        theirs.set("merge_operator", "stringappend").unwrap();
        let db = RocksDb::open(&theirs, &dir).unwrap();
        db.write(&RocksWriteBatch::from_data(&lib, batch().data()))
            .unwrap();
        if flush {
            db.flush().unwrap();
        }
        drop(db);
        let db = Db::open(&dir, &options()).unwrap();
        check("RocksDB's", &db);
        let cf = db.default_column_family();
        db.merge("e", "3").unwrap();
        db.flush().unwrap();
        db.cf(&cf).compact_range(None, None).unwrap();
        drop(db);
        if ldb::available() {
            let pairs = ldb::scan(&dir, "default").unwrap();
            assert_eq!(pairs.len(), 6);
            assert_eq!(pairs[0], (b"a".to_vec(), b"default".to_vec()));
            assert_eq!(pairs[4], (b"e".to_vec(), b",2,3".to_vec()));
        }
        let db = RocksDb::open(&theirs, &dir).unwrap();
        for (k, want) in expected() {
            let want = match k {
                "e" => b",2,3",
                _ => want.get(b"").unwrap_or_default(),
            };
            assert_eq!(db.get(k.as_bytes()).unwrap().unwrap(), want, "{k}");
        }
        drop(db);
    }
}

#[test]
fn a_batch_with_a_damaged_entity_is_refused() {
    let temp = dirs::scratch().unwrap();
    let db = Db::open(temp.path(), &options()).unwrap();
    let mut b = WriteBatch::new();
    b.put("x", "1").unwrap();
    b.put_entity("k", &columns(&[("x", "1")])).unwrap();
    let mut data = b.into_data();
    *data.last_mut().unwrap() = 0;
    let len = data.len();
    data[len - 2] = 9; // the length of the column's value
    let e = db
        .write(&mut WriteBatch::from_data(data).unwrap())
        .unwrap_err();
    assert!(e.is_corruption(), "{e}");
    assert_eq!(db.get("x").unwrap(), None);
}
