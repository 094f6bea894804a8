//! Records that Ironstone does not read yet, or not without an operator, in tables and logs that RocksDB
//! wrote. They are refused by name, at open or at a read; compactions keep them; reads never return other
//! data.

use std::sync::Arc;

use ironstone::{Db, ErrorKind, Options};
use sim::dirs::{self, State};
use sim::oracle::content::everything;
use sim::oracle::{self, Library, RocksDb};

/// Writes one record of a kind among plain ones, in the log or in a table.
fn write(lib: &Arc<Library>, dir: &std::path::Path, kind: &str, flush: bool) {
    let mut options = lib.options();
    options.create_if_missing(true);
    if kind == "merge" {
        options.set("merge_operator", "stringappend").unwrap();
    }
    let db = RocksDb::open(&options, dir).unwrap();
    let cf = db.default_cf();
    for i in 0..20 {
        db.put(format!("key{i:02}").as_bytes(), b"value").unwrap();
    }
    // Written below the next table, so that a wrong reader would show it.
    db.flush().unwrap();
    match kind {
        "merge" => db.merge_cf(cf, b"key07", b"more").unwrap(),
        "delete_range" => db.delete_range_cf(cf, b"key05", b"key09").unwrap(),
        _ => db.single_delete_cf(cf, b"key07").unwrap(),
    }
    db.put(b"key30", b"value").unwrap();
    if flush {
        db.flush().unwrap();
    }
    db.close();
}

#[test]
fn merges_are_never_read_as_something_else() {
    let Some(lib) = oracle::rocksdb() else { return };
    let (kind, words, refusal) = ("merge", "no merge operator", ErrorKind::InvalidArgument);
    for flush in [false, true] {
        let temp = dirs::scratch().unwrap();
        let dir = temp.path().join("db");
        write(&lib, &dir, kind, flush);
        let before = State::of(&dir).unwrap();
        let what = format!("{kind}, flushed: {flush}");
        let e = match Db::open_all(&dir, &Options::default()) {
            Err(e) => {
                let now = State::of(&dir).unwrap();
                assert_eq!(before.changes(&now), None, "{what}");
                e
            }
            Ok(db) => {
                let cf = db.default_column_family();
                let e = db.get("key07").expect_err(&what);
                assert_eq!(e.kind(), refusal, "{what}: get: {e}");
                assert_eq!(db.get("key30").unwrap().unwrap(), b"value");
                let e = db.cf(&cf).compact_range(None, None);
                if let Ok(()) = e {
                    // It was kept as it was: still refused.
                    let e = db.get("key07").expect_err(&what);
                    assert_eq!(e.kind(), refusal, "{what}: {e}");
                }
                everything(&db).expect_err(&what)
            }
        };
        assert_eq!(e.kind(), refusal, "{what}: {e}");
        assert!(e.to_string().contains(words), "{what}: {e}");
        // RocksDB still reads all of it.
        let have = oracle::scan(&lib, &dir, |_| {
            let mut o = lib.options();
            o.set("merge_operator", "stringappend")?;
            Ok(o)
        })
        .unwrap();
        let found = have[0].1.iter().find(|(k, _)| k == b"key07");
        assert_eq!(found.unwrap().1, b"value,more", "{what}");
    }
}

#[test]
fn range_deletions_of_rocksdb_delete() {
    let Some(lib) = oracle::rocksdb() else { return };
    for flush in [false, true] {
        let temp = dirs::scratch().unwrap();
        let dir = temp.path().join("db");
        write(&lib, &dir, "delete_range", flush);
        let db = Db::open_all(&dir, &Options::default()).unwrap();
        let cf = db.default_column_family();
        for _ in 0..2 {
            assert_eq!(db.get("key04").unwrap().unwrap(), b"value");
            assert_eq!(db.get("key05").unwrap(), None);
            assert_eq!(db.get("key08").unwrap(), None);
            assert_eq!(db.get("key09").unwrap().unwrap(), b"value");
            assert_eq!(everything(&db).unwrap()[0].1.len(), 17);
            db.cf(&cf).compact_range(None, None).unwrap();
        }
    }
}

#[test]
fn single_deletions_of_rocksdb_delete() {
    let Some(lib) = oracle::rocksdb() else { return };
    for flush in [false, true] {
        let temp = dirs::scratch().unwrap();
        let dir = temp.path().join("db");
        write(&lib, &dir, "single_delete", flush);
        let db = Db::open_all(&dir, &Options::default()).unwrap();
        assert_eq!(db.get("key07").unwrap(), None);
        assert_eq!(everything(&db).unwrap()[0].1.len(), 20);
        let cf = db.default_column_family();
        db.cf(&cf).compact_range(None, None).unwrap();
        assert_eq!(everything(&db).unwrap()[0].1.len(), 20);
    }
}
