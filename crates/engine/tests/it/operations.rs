//! Several keys at once, and keys without their values.

use ironstone::env::SystemClock;
use ironstone::{Db, Options, ReadOptions};
use table::filter::FilterPolicy;

fn options() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o.cf.table.filter_policy = FilterPolicy::Bloom { bits_per_key: 20.0 };
    o
}

#[test]
fn several_keys_are_read_as_of_one_moment_in_the_order_of_the_call() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), &options()).unwrap();
    db.put("a", "1").unwrap();
    db.flush().unwrap();
    db.put("b", "2").unwrap();
    db.put("c", "3").unwrap();
    let snapshot = db.snapshot();
    db.delete("c").unwrap();
    let values = |found: Vec<ironstone::Result<Option<Vec<u8>>>>| -> Vec<Option<String>> {
        let text = |v: Vec<u8>| String::from_utf8(v).unwrap();
        found.into_iter().map(|v| v.unwrap().map(text)).collect()
    };
    let some = |s: &str| Some(s.to_owned());
    let keys = ["c", "a", "zz", "b", "a"];
    let have = values(db.multi_get(&keys));
    assert_eq!(have, [None, some("1"), None, some("2"), some("1")]);
    let cf = db.default_column_family();
    let at = ReadOptions {
        snapshot: Some(snapshot),
        ..ReadOptions::default()
    };
    assert_eq!(values(db.cf(&cf).with(&at).multi_get(&["c"])), [some("3")]);
    assert!(db.cf(&cf).multi_get::<&str>(&[]).is_empty());
}

#[test]
fn a_key_that_may_not_exist_does_not() {
    let dir = tempfile::tempdir().unwrap();
    let db = Db::open(dir.path(), &options()).unwrap();
    assert!(!db.key_may_exist("k"));
    db.put("k", "v").unwrap();
    assert!(db.key_may_exist("k"));
    db.delete("k").unwrap();
    assert!(!db.key_may_exist("k"));
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    drop(db);
    let db = Db::open(dir.path(), &options()).unwrap();
    // Its block is not in the cache: it may be there.
    assert!(db.key_may_exist("k"));
    let absent = (0..1000)
        .filter(|i| !db.key_may_exist(format!("k{i}")))
        .count();
    assert!(absent > 900, "{absent}");
    assert!(db.get("k").unwrap().is_some());
    db.delete("k").unwrap();
    assert!(!db.key_may_exist("k"));
}

/// Regression: level 0 waited for more files than writers may make without being slowed down, and a flush, which waits
/// for room, waited for up to a minute.
#[test]
fn a_flush_does_not_wait_for_a_level_0_that_gathers() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.level0_file_num_compaction_trigger = 2;
    options.cf.level0_slowdown_writes_trigger = 3;
    options.cf.level0_stop_writes_trigger = 4;
    let db = Db::open(dir.path(), &options).unwrap();
    let clock = SystemClock::shared();
    let begun = clock.monotonic_nanos();
    for round in 0..12_u8 {
        for i in 0..100 {
            db.put(format!("{i:06}"), [round; 100]).unwrap();
        }
        db.flush().unwrap();
    }
    let seconds = (clock.monotonic_nanos() - begun) / 1_000_000_000;
    assert!(seconds < 45, "twelve small flushes took {seconds} s");
}
