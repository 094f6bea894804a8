//! Iterators that follow what is written, and what they keep alive.

use super::*;

#[test]
fn a_tailing_iterator_sees_what_is_written() {
    let Some(both) = Both::new() else { return };
    let ours = ReadOptions {
        tailing: true,
        ..ReadOptions::default()
    };
    let theirs = both.lib.read_options().tailing(true);
    let mut it = both.iterators(&ours, &theirs);
    assert_eq!(it.first(), END);
    both.put("a", "1");
    both.put("c", "1");
    assert_eq!(it.first(), entry("a", "1"));
    both.put("c", "2");
    both.put("d", "1");
    assert_eq!(it.next(), entry("c", "2"));
    both.flush();
    both.put("e", "1");
    assert_eq!(it.next(), entry("d", "1"));
    assert_eq!(it.next(), entry("e", "1"));
    assert_eq!(it.next(), END);
    both.put("f", "1");
    assert_eq!(it.seek("f"), entry("f", "1"));
    both.flush();
    both.merge("g", "x");
    assert_eq!(it.next(), entry("g", "x"));
    // It cannot move backwards, and can be used again afterwards.
    it.ours.prev();
    it.theirs.prev();
    assert_eq!(it.place("prev"), (None, Some(ErrorKind::NotSupported)));
    assert_eq!(it.seek("a"), entry("a", "1"));
    it.ours.seek_to_last();
    it.theirs.seek_to_last();
    assert_eq!(it.place("to last"), (None, Some(ErrorKind::NotSupported)));
    // New range deletions are seen, which RocksDB's does not support.
    it.ours.seek(b"a");
    both.ours.delete_range("b", "e").unwrap();
    it.ours.next();
    assert_eq!(it.ours.key(), b"e");
    both.ours.delete_range("f", "g").unwrap();
    it.ours.next();
    assert_eq!((it.ours.key(), it.ours.value()), (&b"g"[..], &b"x"[..]));
    let at = ReadOptions {
        snapshot: Some(both.ours.snapshot()),
        ..ours
    };
    let refused = both.ours.with(&at).iterator().unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotSupported);
}

#[test]
fn a_tailing_iterator_over_a_vector() {
    let temp = dirs::scratch().unwrap();
    let mut o = options();
    o.cf.memtable_factory = ironstone::MemtableFactory::Vector;
    o.db.allow_concurrent_memtable_write = false;
    let db = Db::open(temp.path(), &o).unwrap();
    let tailing = ReadOptions {
        tailing: true,
        ..ReadOptions::default()
    };
    let mut it = db.with(&tailing).iterator().unwrap();
    for i in 0..20 {
        db.put(format!("{i:02}"), "v").unwrap();
        if i == 0 {
            it.seek_to_first();
        } else {
            it.next();
        }
        assert_eq!(it.key(), format!("{i:02}").as_bytes());
    }
}

#[test]
fn refreshing() {
    let Some(both) = Both::new() else { return };
    both.put("a", "1");
    let ours = ReadOptions::default();
    let theirs = both.lib.read_options();
    let mut it = both.iterators(&ours, &theirs);
    assert_eq!(it.first(), entry("a", "1"));
    both.put("a", "2");
    both.put("b", "2");
    let refresh = |it: &mut Pair<'_>| {
        it.ours.refresh().unwrap();
        it.theirs.refresh().unwrap();
        assert_eq!(it.place("refreshed"), END);
    };
    refresh(&mut it);
    assert_eq!(it.first(), entry("a", "2"));
    both.flush();
    both.delete_range("a", "b");
    refresh(&mut it);
    assert_eq!(it.first(), entry("b", "2"));
    // Refreshed to a snapshot, and back.
    let snapshot = both.ours.snapshot();
    both.ours.put("0", "later").unwrap();
    it.ours.refresh_with_snapshot(Some(&snapshot)).unwrap();
    it.ours.seek_to_first();
    assert_eq!(it.ours.key(), b"b");
    it.ours.refresh().unwrap();
    it.ours.seek_to_first();
    assert_eq!(it.ours.key(), b"0");
    let temp = dirs::scratch().unwrap();
    let other = Db::open(temp.path(), &options()).unwrap();
    let stray = other.snapshot();
    assert!(it.ours.refresh_with_snapshot(Some(&stray)).is_err());
    other.put("0", "1").unwrap();
    let mut it = other.with(&ours).iterator().unwrap();
    other.close().unwrap();
    it.seek_to_first();
    assert_eq!(it.key(), b"0");
    let e = it.refresh().unwrap_err();
    assert_eq!(e.kind(), ErrorKind::ShutdownInProgress);
}

#[test]
fn a_tailing_iterator_in_a_prefix() {
    let temp = dirs::scratch().unwrap();
    let mut o = options();
    o.cf.prefix_extractor = Some(SliceTransform::fixed_prefix(2));
    o.cf.memtable_prefix_bloom_size_ratio = 0.1;
    let db = Db::open(temp.path(), &o).unwrap();
    for key in ["aa1", "aa9", "bb1", "cc1"] {
        db.put(key, "").unwrap();
    }
    db.flush().unwrap();
    db.put("zz", "").unwrap();
    for same in [false, true] {
        let tailing = ReadOptions {
            tailing: true,
            prefix_same_as_start: same,
            ..ReadOptions::default()
        };
        let mut it = db.with(&tailing).iterator().unwrap();
        // The memtable has nothing with this prefix yet.
        it.seek(b"aa1");
        let new = if same { "aa3" } else { "aa2" };
        db.put(new, "").unwrap();
        let mut seen = Vec::new();
        while it.valid() {
            seen.push(String::from_utf8_lossy(it.key()).into_owned());
            it.next();
        }
        it.status().unwrap();
        if same {
            assert_eq!(seen, ["aa1", "aa2", "aa3", "aa9"]);
        } else {
            assert_eq!(seen, ["aa1", "aa2", "aa9", "bb1", "cc1", "zz"]);
        }
        db.flush().unwrap();
    }
}

/// The numbers of the table files in a directory.
fn tables(dir: &Path) -> BTreeSet<String> {
    let files = dirs::files(dir).unwrap();
    let is_table = |n: &String| Path::new(n).extension().is_some_and(|e| e == "sst");
    files.into_keys().filter(is_table).collect()
}

#[test]
fn an_iterator_at_a_snapshot_lets_old_files_go() {
    for refreshes in [false, true] {
        let temp = dirs::scratch().unwrap();
        let db = Db::open(temp.path(), &options()).unwrap();
        for round in 0..3 {
            for i in 0..50 {
                db.put(format!("{i:02}"), round.to_string()).unwrap();
            }
            db.flush().unwrap();
        }
        let at = ReadOptions {
            snapshot: Some(db.snapshot()),
            auto_refresh_iterator_with_snapshot: refreshes,
            ..ReadOptions::default()
        };
        let mut it = db.with(&at).iterator().unwrap();
        it.seek_to_first();
        let old = tables(temp.path());
        db.put("00a", "later").unwrap();
        let cf = db.default_column_family();
        db.cf(&cf).compact_range(None, None).unwrap();
        for i in 1..10 {
            it.next();
            assert_eq!(it.key(), format!("{i:02}").as_bytes());
            assert_eq!(it.value(), b"2");
        }
        for i in (0..9).rev() {
            it.prev();
            assert_eq!(it.key(), format!("{i:02}").as_bytes());
        }
        db.put("zz", "more").unwrap();
        db.flush().unwrap();
        db.wait_for_compact().unwrap();
        let kept = tables(temp.path()).intersection(&old).count();
        assert_eq!(kept == 0, refreshes, "{kept} of {old:?}");
        it.seek(b"40");
        assert_eq!((it.key(), it.value()), (&b"40"[..], &b"2"[..]));
    }
}

#[test]
fn iterators_outlive_families_files_and_the_database() {
    let temp = dirs::scratch().unwrap();
    let db = Db::open(temp.path(), &options()).unwrap();
    let cf = db.create_column_family("gone", &options().cf).unwrap();
    for i in 0..100 {
        db.cf(&cf).put(format!("{i:02}"), "v").unwrap();
        if i % 30 == 0 {
            db.cf(&cf).flush().unwrap();
        }
    }
    let mut it = db.cf(&cf).iterator().unwrap();
    it.seek_to_first();
    db.cf(&cf).compact_range(None, None).unwrap();
    db.drop_column_family(&cf).unwrap();
    db.put("a", "b").unwrap();
    db.flush().unwrap();
    for i in 1..50 {
        it.next();
        assert_eq!(it.key(), format!("{i:02}").as_bytes());
    }
    it.refresh().unwrap();
    it.seek(b"20");
    assert_eq!(it.key(), b"20");
    db.close().unwrap();
    for i in (0..20).rev() {
        it.prev();
        assert_eq!(it.key(), format!("{i:02}").as_bytes());
    }
    it.prev();
    assert!(!it.valid() && it.status().is_ok());
}

#[test]
fn properties_of_iterators() {
    let temp = dirs::scratch().unwrap();
    let db = Db::open(temp.path(), &options()).unwrap();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    for pin_data in [false, true] {
        db.merge("c", "3").unwrap();
        let o = ReadOptions {
            pin_data,
            ..ReadOptions::default()
        };
        let mut it = db.with(&o).iterator().unwrap();
        let get = |it: &DbIterator, name: &str| {
            let value = it.property(&format!("rocksdb.iterator.{name}")).unwrap();
            String::from_utf8_lossy(&value).into_owned()
        };
        assert_eq!(get(&it, "is-key-pinned"), "Iterator is not valid.");
        it.seek_to_first();
        let yes = if pin_data { "1" } else { "0" };
        assert_eq!(get(&it, "is-key-pinned"), "0");
        assert_eq!(get(&it, "is-value-pinned"), yes);
        assert_eq!(get(&it, "internal-key"), "a");
        db.put("e", "5").unwrap();
        it.refresh().unwrap();
        it.seek(b"e");
        assert_eq!(get(&it, "is-key-pinned"), yes);
        assert_eq!(get(&it, "is-value-pinned"), yes);
        it.seek(b"c");
        assert_eq!(get(&it, "is-value-pinned"), "0"); // merged
        let time = it.property("rocksdb.iterator.write-time").unwrap();
        assert_eq!(time, u64::MAX.to_le_bytes());
        let number = |it: &DbIterator| get(it, "super-version-number").parse::<u64>().unwrap();
        let before = number(&it);
        db.flush().unwrap();
        assert_eq!(number(&it), before);
        it.refresh().unwrap();
        assert!(number(&it) > before);
        db.put("d", "4").unwrap();
        let e = it.property("rocksdb.iterator.what").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    }
}
