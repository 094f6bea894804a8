//! Secondary instances, values with a time to live, and reading without logs.
#![expect(
    clippy::case_sensitive_file_extension_comparisons,
    reason = "RocksDB's file names are in lower case"
)]

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use ironstone::{ColumnFamilyDescriptor, Db, Options, WriteBatch};
use sim::dirs;
use sim::hooked::{Hook, HookedFs, Op, Verdict};
use sim::oracle::content::{difference, everything};
use sim::oracle::{self, RocksDb};

fn options() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o
}

fn follow(dir: &Path, own: &Path) -> Db {
    Db::open_as_secondary(dir, own, &Options::default()).unwrap()
}

#[test]
fn a_secondary_sees_what_the_primary_wrote_when_it_catches_up() {
    let temp = dirs::scratch().unwrap();
    let (dir, own) = (temp.path().join("db"), temp.path().join("own"));
    let db = Db::open(&dir, &options()).unwrap();
    db.put("a", "1").unwrap();
    let second = follow(&dir, &own);
    assert_eq!(second.get("a").unwrap().as_deref(), Some(&b"1"[..]));
    let cf = second.default_column_family();
    let mut old = second.cf(&cf).iterator().unwrap();
    let mut rounds = 0;
    for round in 0..8 {
        for i in 0..300 {
            db.put(format!("{:03}", i * 3 % 301), format!("{round}/{i}"))
                .unwrap();
        }
        match round {
            1 | 2 => db.flush().unwrap(),
            3 => db.compact_range(None, None).unwrap(),
            4 => {
                let other = db.create_column_family("other", &options().cf).unwrap();
                db.cf(&other).put("k", "v").unwrap();
            }
            6 => db
                .drop_column_family(&db.column_family("other").unwrap())
                .unwrap(),
            _ => db.delete("a").unwrap(),
        }
        second.try_catch_up_with_primary().unwrap();
        let (want, have) = (everything(&db).unwrap(), everything(&second).unwrap());
        assert_eq!(difference(&want, &have), None, "round {round}");
        assert_eq!(second.latest_sequence_number(), db.latest_sequence_number());
        rounds += 1;
    }
    assert_eq!(rounds, 8);
    old.seek_to_first();
    assert_eq!((old.key(), old.value()), (&b"a"[..], &b"1"[..]));
    old.next();
    assert!(!old.valid(), "an iterator keeps what it saw");
    assert!(second.put("b", "2").is_err());
    assert!(db.try_catch_up_with_primary().is_err());
    assert!(own.join("LOG").exists());
    drop(second);
    db.put("b", "2").unwrap();
    db.close().unwrap();
    assert_eq!(
        follow(&dir, &own).get("b").unwrap().as_deref(),
        Some(&b"2"[..])
    );
}

/// The primary writes batches of two keys that are always equal; the secondary must always see them equal.
#[test]
fn a_secondary_follows_a_busy_primary() {
    let temp = dirs::scratch().unwrap();
    let (dir, own) = (temp.path().join("db"), temp.path().join("own"));
    let mut o = options();
    o.cf.write_buffer_size = 128 << 10;
    o.cf.level0_file_num_compaction_trigger = 2;
    o.db.max_manifest_file_size = 4096;
    let db = Db::open(&dir, &o).unwrap();
    let second = follow(&dir, &own);
    let done = AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            for i in 0u32.. {
                let mut batch = WriteBatch::new();
                batch.put("first", i.to_string()).unwrap();
                batch
                    .put(format!("filler {}", i % 300), [b'x'; 300])
                    .unwrap();
                batch.put("second", i.to_string()).unwrap();
                db.write(&mut batch).unwrap();
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let mut last = 0;
        let mut moved = 0;
        for _ in 0..2000 {
            if moved > 5 {
                break;
            }
            match second.try_catch_up_with_primary() {
                Ok(()) => {}
                Err(e) => eprintln!("not caught up: {e}"),
            }
            let (a, b) = (second.get("first").unwrap(), second.get("second").unwrap());
            assert_eq!(a, b);
            let number = a.map_or(0, |v| String::from_utf8(v).unwrap().parse::<u32>().unwrap());
            assert!(number >= last, "{number} after {last}");
            moved += u32::from(number > last);
            last = number;
        }
        done.store(true, Ordering::Relaxed);
        assert!(moved > 5, "{moved}");
    });
    second.try_catch_up_with_primary().unwrap();
    let (want, have) = (everything(&db).unwrap(), everything(&second).unwrap());
    assert_eq!(difference(&want, &have), None);
}

#[test]
fn rocksdb_follows_us_and_we_follow_it() {
    let Some(lib) = oracle::rocksdb() else { return };
    let temp = dirs::scratch().unwrap();
    let at = |name: &str| temp.path().join(name);
    let db = Db::open(at("ours"), &options()).unwrap();
    db.put("a", "1").unwrap();
    // RocksDB's secondaries refuse an atomic group of the MANIFEST that adds families.
    let more = ["x", "y", "z"].map(|name| ColumnFamilyDescriptor::new(name, options().cf));
    let more = db.create_column_families(&more).unwrap();
    db.cf(&more[1]).put("in y", "1").unwrap();
    drop(more);
    let rocks_second = RocksDb::open_as_secondary(&lib.options(), at("ours"), at("r own")).unwrap();
    let mut o = lib.options();
    o.create_if_missing(true);
    let rocks = RocksDb::open(&o, at("theirs")).unwrap();
    rocks.put(b"a", b"1").unwrap();
    let second = follow(&at("theirs"), &at("own"));
    for round in 0..6 {
        // When it meets the next log, RocksDB's secondary drops the data that is in tables by then.
        if round % 2 == 1 {
            db.flush().unwrap();
            rocks.flush_cf(rocks.default_cf()).unwrap();
        }
        for i in 0..100 {
            let (key, value) = (format!("{i:03}"), format!("{round}"));
            db.put(&key, &value).unwrap();
            rocks.put(key.as_bytes(), value.as_bytes()).unwrap();
        }
        second.try_catch_up_with_primary().unwrap();
        assert_eq!(everything(&second).unwrap()[0].1.len(), 101);
        assert_eq!(
            second.get("050").unwrap().unwrap(),
            round.to_string().as_bytes()
        );
        rocks_second.try_catch_up_with_primary().unwrap();
        let theirs = rocks_second.get(b"050").unwrap();
        assert_eq!(
            theirs.unwrap(),
            round.to_string().as_bytes(),
            "round {round}"
        );
    }
}

#[test]
fn values_with_times_are_rocksdbs() {
    let Some(lib) = oracle::rocksdb() else { return };
    let temp = dirs::scratch().unwrap();
    let dir = temp.path().join("db");
    let db = Db::open_with_ttl(&dir, &options(), 3600).unwrap();
    db.put("ours", "1").unwrap();
    let mut batch = WriteBatch::new();
    batch.put("batch", "2").unwrap();
    batch.delete("nothing").unwrap();
    db.write(&batch).unwrap();
    let cf = db.base().default_column_family();
    let mut it = db.cf(&cf).iterator().unwrap();
    it.inner().seek_to_first();
    assert_eq!((it.key(), it.value()), (&b"batch"[..], &b"2"[..]));
    assert!(it.ttl_timestamp().unwrap() > 1_700_000_000);
    drop(it);
    assert_eq!(db.base().get("ours").unwrap().unwrap().len(), 5);
    db.close().unwrap();
    let rocks = RocksDb::open_with_ttl(&lib.options(), &dir, 3600).unwrap();
    assert_eq!(rocks.get(b"ours").unwrap().as_deref(), Some(&b"1"[..]));
    rocks.put(b"theirs", b"3").unwrap();
    drop(rocks);
    let db = Db::open_with_ttl(&dir, &options(), 3600).unwrap();
    for (key, value) in [("ours", "1"), ("batch", "2"), ("theirs", "3")] {
        assert_eq!(
            db.get(key).unwrap().as_deref(),
            Some(value.as_bytes()),
            "{key}"
        );
    }
    db.base().put("none", "x").unwrap();
    let e = db.get("none").unwrap_err();
    assert!(
        e.is_corruption() && e.to_string().contains("length less"),
        "{e}"
    );
    db.base().put("old", "12345").unwrap();
    assert!(db.get("old").unwrap_err().is_corruption());
    // An expired value is dropped by a compaction; a value without a time stays.
    let expired = [&b"gone"[..], &1_400_000_000_i32.to_le_bytes()].concat();
    db.base().put("expired", expired).unwrap();
    assert!(db.get("expired").unwrap().is_some());
    db.base().flush().unwrap();
    db.base().put("zzz", "more than one file").unwrap();
    db.base().put("a", "more than one file").unwrap();
    db.base().flush().unwrap();
    db.base().cf(&cf_of(&db)).compact_range(None, None).unwrap();
    assert_eq!(db.get("expired").unwrap(), None);
    assert_eq!(db.get("theirs").unwrap().as_deref(), Some(&b"3"[..]));
    assert!(db.base().get("none").unwrap().is_some());
}

fn cf_of(db: &ironstone::DbWithTtl) -> ironstone::ColumnFamily {
    db.base().default_column_family()
}

#[test]
fn reading_without_logs() {
    let temp = dirs::scratch().unwrap();
    let dir = temp.path().join("db");
    let db = Db::open(&dir, &options()).unwrap();
    db.put("a", "1").unwrap();
    db.close().unwrap();
    let open = |strict| Db::open_for_read_only(&dir, &Options::default(), strict);
    assert!(open(false).unwrap().get("a").unwrap().is_some());
    let e = open(true).unwrap_err();
    assert!(e.to_string().contains("error_if_wal_file_exists"), "{e}");
}

#[test]
fn many_tables_are_opened_by_several_threads() {
    let temp = dirs::scratch().unwrap();
    let dir = temp.path().join("db");
    let mut o = options();
    o.cf.disable_auto_compactions = true;
    o.cf.level0_stop_writes_trigger = 1000;
    o.cf.level0_slowdown_writes_trigger = 1000;
    let db = Db::open(&dir, &o).unwrap();
    for i in 0..120 {
        db.put(format!("{i:03}"), "v").unwrap();
        db.flush().unwrap();
    }
    let want = everything(&db).unwrap();
    db.close().unwrap();
    for threads in [1, 3, 16] {
        o.db.max_file_opening_threads = threads;
        let db = Db::open(&dir, &o).unwrap();
        assert_eq!(difference(&want, &everything(&db).unwrap()), None);
    }
    let mut victim = dirs::files(&dir)
        .unwrap()
        .into_iter()
        .filter(|(n, _)| n.ends_with(".sst"));
    let (_, victim) = victim.next_back().unwrap();
    std::fs::write(&victim, "damage").unwrap();
    let e = Db::open(&dir, &o).unwrap_err();
    assert!(e.is_corruption() && e.path() == Some(&victim), "{e}");
}

/// Compacts the primary whenever a log is opened.
#[derive(Debug)]
struct Compacting {
    primary: Db,
    times: AtomicUsize,
}

impl Hook for Compacting {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        if op == Op::Open && path.extension().is_some_and(|e| e == "log") {
            let cf = self.primary.default_column_family();
            let metadata = self.primary.cf(&cf).get_column_family_metadata().unwrap();
            let files = metadata.levels.iter().flat_map(|l| &l.files);
            let numbers: Vec<u64> = files.map(|f| f.file_number).collect();
            self.primary.cf(&cf).compact_files(&numbers, 6).unwrap();
            self.times.fetch_add(1, Ordering::Relaxed);
        }
        Verdict::Go
    }
}

/// A secondary accepted only what it had read while the primary's MANIFEST did not change. A primary that
/// compacts all the time kept it from opening, and the error said that a table is missing.
#[test]
fn a_primary_that_always_compacts_is_followed() {
    let temp = dirs::scratch().unwrap();
    let (dir, own) = (temp.path().join("db"), temp.path().join("own"));
    let db = Db::open(&dir, &options()).unwrap();
    db.put("table", "1").unwrap();
    db.flush().unwrap();
    db.put("log", "2").unwrap();
    let hook = Arc::new(Compacting {
        primary: db,
        times: AtomicUsize::new(0),
    });
    let mut following = Options::default();
    following.env.fs = HookedFs::new(Arc::<Compacting>::clone(&hook));
    let second = Db::open_as_secondary(&dir, &own, &following).unwrap();
    for key in ["table", "log"] {
        assert!(second.get(key).unwrap().is_some(), "{key}");
    }
    hook.primary.put("more", "3").unwrap();
    second.try_catch_up_with_primary().unwrap();
    assert!(second.get("more").unwrap().is_some());
    let times = hook.times.load(Ordering::Relaxed);
    assert!((2..10).contains(&times), "{times}");
}
