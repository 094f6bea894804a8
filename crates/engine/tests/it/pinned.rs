//! Values without a copy.

use std::sync::Arc;

use ironstone::{
    BlockCache, Cf, Db, ErrorKind, MemtableFactory, Options, PinnedValue, ReadOptions, ReadTier,
    Statistics, Ticker, WideColumns,
};

fn options() -> Options {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.merge_operator = base::merge::parse("stringappend").unwrap();
    options
}

/// All kinds of versions. Returns the keys.
fn fill(cf: &Cf<'_>) -> [&'static str; 8] {
    cf.put("plain", "a value").unwrap();
    cf.put("empty", "").unwrap();
    cf.put("merged", "a").unwrap();
    cf.merge("merged", "b").unwrap();
    let columns = WideColumns::new([("", "default"), ("x", "1")]).unwrap();
    cf.put_entity("entity", &columns).unwrap();
    cf.put_entity("merged entity", &columns).unwrap();
    cf.merge("merged entity", "b").unwrap();
    cf.put("range deleted", "gone").unwrap();
    cf.delete_range("range", "s").unwrap();
    cf.put("deleted", "gone").unwrap();
    cf.delete("deleted").unwrap();
    [
        "plain",
        "empty",
        "merged",
        "merged entity",
        "entity",
        "deleted",
        "range deleted",
        "missing",
    ]
}

fn is_pinned(value: Option<&PinnedValue>) -> bool {
    value.is_some_and(PinnedValue::is_pinned)
}

#[test]
fn a_pinned_get_finds_what_a_get_finds() {
    for factory in [MemtableFactory::SkipList, MemtableFactory::Vector] {
        for cache in [None, Some(Arc::new(BlockCache::new(1 << 20)))] {
            let dir = tempfile::tempdir().unwrap();
            let mut options = options();
            options.db.allow_concurrent_memtable_write = factory == MemtableFactory::SkipList;
            options.cf.memtable_factory = factory;
            options.cf.table.no_block_cache = cache.is_none();
            options.env.block_cache = cache;
            let db = Db::open(dir.path(), &options).unwrap();
            let cf = db.default_column_family();
            let cf = db.cf(&cf);
            let keys = fill(&cf);
            for in_tables in [false, true] {
                let copies = cf.multi_get(&keys);
                let pinned = cf.multi_get_pinned(&keys);
                for ((key, copy), pinned) in keys.iter().zip(copies).zip(pinned) {
                    let (copy, pinned) = (copy.unwrap(), pinned.unwrap());
                    assert_eq!(cf.get(key).unwrap(), copy);
                    assert_eq!(pinned.as_deref(), copy.as_deref(), "{key}");
                    let one = cf.get_pinned(key).unwrap();
                    assert_eq!(one.as_deref(), copy.as_deref(), "{key}");
                    let with = cf.get_with(key, <[u8]>::to_vec).unwrap();
                    assert_eq!(with, copy, "{key}");
                    // A flush merges.
                    let pins = match *key {
                        "plain" | "entity" => true,
                        "merged" | "merged entity" => in_tables,
                        _ => false,
                    };
                    let what = format!("{key}, in tables: {in_tables}");
                    assert_eq!(
                        (is_pinned(one.as_ref()), is_pinned(pinned.as_ref())),
                        (pins, pins),
                        "{what}"
                    );
                    assert_eq!(one.map(PinnedValue::into_vec), copy);
                }
                db.flush().unwrap();
            }
        }
    }
}

#[test]
fn a_pinned_value_stays_when_everything_else_goes() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options();
    options.env.block_cache = Some(Arc::new(BlockCache::new(1 << 20)));
    let db = Db::open(dir.path(), &options).unwrap();
    let value = |i: u32| vec![i as u8; 4096];
    for i in 0..500u32 {
        db.put(i.to_be_bytes(), value(i)).unwrap();
    }
    let snapshot = db.snapshot();
    let mut pinned = Vec::new();
    for in_tables in [false, true] {
        for i in 0..500u32 {
            let found = snapshot.get_pinned(i.to_be_bytes()).unwrap().unwrap();
            assert!(found.is_pinned(), "in tables: {in_tables}");
            pinned.push((i, found));
        }
        db.flush().unwrap();
    }
    drop(snapshot);
    for i in 0..500u32 {
        db.put(i.to_be_bytes(), "another").unwrap();
    }
    db.flush().unwrap();
    db.compact_range(None, None).unwrap();
    db.close().unwrap();
    for (i, found) in pinned {
        assert_eq!(found, value(i));
    }
}

#[test]
fn the_function_of_a_get_may_use_the_database() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), &options()).unwrap();
    db.put("a", "1").unwrap();
    for _ in 0..2 {
        let read = db.get_with("a", |value| {
            db.put("b", value).unwrap();
            db.put("a", "1").unwrap();
            db.flush().unwrap();
            db.get_with("b", <[u8]>::to_vec).unwrap()
        });
        assert_eq!(read.unwrap(), Some(Some(b"1".to_vec())));
    }
    assert_eq!(
        db.get_with("missing", |_| panic!("called")).unwrap(),
        None::<()>
    );
}

#[test]
fn options_and_errors_are_those_of_a_get() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = options();
    let statistics = Arc::new(Statistics::default());
    options.env.statistics = Some(Arc::clone(&statistics));
    let db = Db::open(dir.path(), &options).unwrap();
    for key in ["a", "b", "c"] {
        db.put(key, [7; 100]).unwrap();
    }
    db.get_pinned("a").unwrap();
    assert_eq!(statistics.get(Ticker::NumberKeysRead), 1);
    assert_eq!(statistics.get(Ticker::BytesRead), 100);
    let limited = ReadOptions {
        value_size_soft_limit: 150,
        ..ReadOptions::default()
    };
    let found = db.with(&limited).multi_get_pinned(&["a", "b", "c"]);
    assert!(found[0].is_ok() && found[1].is_ok());
    assert_eq!(found[2].as_ref().unwrap_err().kind(), ErrorKind::Aborted);

    db.delete_range("b", "c").unwrap();
    assert_eq!(db.get_pinned("b").unwrap(), None);
    let ignoring = ReadOptions {
        ignore_range_deletions: true,
        ..ReadOptions::default()
    };
    assert_eq!(
        db.with(&ignoring).get_pinned("b").unwrap().unwrap(),
        [7; 100]
    );
    let cached = ReadOptions {
        read_tier: ReadTier::BlockCache,
        ..ReadOptions::default()
    };
    db.flush().unwrap();
    let e = db.with(&cached).get_pinned("c").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Incomplete, "{e}");
    assert!(db.get_pinned("c").unwrap().unwrap().is_pinned());
    assert!(
        db.with(&cached)
            .get_pinned("c")
            .unwrap()
            .unwrap()
            .is_pinned()
    );

    let other = Db::open(dir.path().join("other"), &self::options()).unwrap();
    let foreign = other.default_column_family();
    let foreign = db.cf(&foreign);
    assert!(foreign.get_pinned("a").is_err());
    assert!(foreign.get_with("a", |_| ()).is_err());
    assert!(foreign.multi_get_pinned(&["a"])[0].is_err());
    let snapshot = db.snapshot();
    db.close().unwrap();
    let e = snapshot.get_pinned("a").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::ShutdownInProgress, "{e}");
}
