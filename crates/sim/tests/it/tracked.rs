//! `track_and_verify_wals_in_manifest`: RocksDB verifies what Ironstone recorded, and the other way round.

use std::path::Path;

use ironstone::{Db, Options, WriteOptions};
use ironstone::{WalIoMode, WalTailPolicy};
use sim::dirs::{self, State};
use sim::oracle::content::everything;
use sim::oracle::{self, RocksDb, RocksOptions, ldb};

const OPTION: &str = "track_and_verify_wals_in_manifest";

const SYNC: WriteOptions = WriteOptions {
    sync: true,
    disable_wal: false,
    no_slowdown: false,
    low_pri: false,
};

fn options(track: bool) -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o.db.avoid_flush_during_recovery = true;
    o.db.track_and_verify_wals_in_manifest = track;
    o
}

/// A database with closed logs that are still needed: another family was flushed in between.
fn ours(dir: &Path) -> State {
    let db = Db::open(dir, &options(true)).unwrap();
    let other = db.create_column_family("other", &options(true).cf).unwrap();
    for i in 0..3 {
        db.put(format!("a{i}"), "1").unwrap();
        db.cf(&other).put(format!("o{i}"), "1").unwrap();
        db.cf(&other).flush().unwrap();
        let default = db.default_column_family();
        db.cf(&default)
            .with(&SYNC)
            .put(format!("b{i}"), "1")
            .unwrap();
    }
    db.close().unwrap();
    State::of(dir).unwrap()
}

/// The logs that are not empty, oldest first.
fn logs(state: &State) -> Vec<String> {
    let log = |n: &&str| n.ends_with("log") && !state.get(n).unwrap().is_empty();
    state.names().filter(log).map(str::to_owned).collect()
}

fn tracking(lib: &std::sync::Arc<oracle::Library>) -> RocksOptions {
    let mut o = lib.options();
    o.set(OPTION, "true").unwrap();
    o.set("avoid_flush_during_recovery", "true").unwrap();
    o
}

/// Opens with Ironstone; returns the number of keys in the default family.
fn open(dir: &Path, track: bool) -> base::Result<usize> {
    let db = Db::open_all(dir, &options(track))?;
    Ok(everything(&db)?[0].1.len())
}

fn named(result: base::Result<usize>, log: &str) {
    let e = result.unwrap_err();
    assert!(e.is_corruption() && e.to_string().contains(log), "{e}");
}

#[test]
fn a_closed_log_that_is_missing_or_short_is_refused() {
    let temp = dirs::scratch().unwrap();
    let state = ours(temp.path());
    let all = logs(&state);
    assert!(all.len() >= 4, "{all:?}");
    for log in &all[..all.len() - 1] {
        let bytes = state.get(log).unwrap();
        let short = state.with(log, bytes[..bytes.len() - 1].to_vec());
        for damaged in [state.without(log), short] {
            damaged.restore(temp.path()).unwrap();
            named(open(temp.path(), true), log);
            if let Some(lib) = oracle::rocksdb() {
                let rocks = RocksDb::open_all(&tracking(&lib), temp.path());
                let e = rocks.map(drop).unwrap_err().to_string();
                let number = log.trim_start_matches('0').trim_end_matches(".log");
                assert!(e.contains("WAL") && e.contains(number), "{e}");
            }
        }
    }
}

#[test]
fn rocksdb_verifies_what_ironstone_recorded() {
    let temp = dirs::scratch().unwrap();
    let state = ours(temp.path());
    assert_eq!(open(temp.path(), true).unwrap(), 6);
    // Reopened, the kept logs are still recorded.
    assert_eq!(open(temp.path(), true).unwrap(), 6);
    // A log with zeros behind its end is longer than its recorded size.
    let log = &logs(&state)[0];
    let mut longer = state.get(log).unwrap().to_vec();
    longer.resize(longer.len() + 5000, 0);
    for state in [
        state.with(log, longer),
        state,
        State::of(temp.path()).unwrap(),
    ] {
        state.restore(temp.path()).unwrap();
        if ldb::available() {
            assert_eq!(ldb::scan(temp.path(), "default").unwrap().len(), 6);
        }
        assert_eq!(open(temp.path(), true).unwrap(), 6);
        let Some(lib) = oracle::rocksdb() else { return };
        let db = RocksDb::open_all(&tracking(&lib), temp.path()).unwrap();
        assert_eq!(db.iterator().collect_all().unwrap().len(), 6);
        db.close();
        assert_eq!(open(temp.path(), true).unwrap(), 6);
    }
}

#[test]
fn ironstone_verifies_what_rocksdb_recorded() {
    let Some(lib) = oracle::rocksdb() else { return };
    let temp = dirs::scratch().unwrap();
    let mut o = tracking(&lib);
    o.create_if_missing(true);
    let mut db = RocksDb::open(&o, temp.path()).unwrap();
    db.create_cf("other", &lib.options()).unwrap();
    db.put(b"a", b"1").unwrap();
    db.put_cf(db.cf("other").unwrap(), b"o", b"1").unwrap();
    db.flush_cf(db.cf("other").unwrap()).unwrap();
    let sync = lib.write_options().sync(true);
    db.put_opt(&sync, db.default_cf(), b"b", b"1").unwrap();
    db.close();
    let state = State::of(temp.path()).unwrap();
    let log = &logs(&state)[0];
    let bytes = state.get(log).unwrap();
    for damaged in [
        state.without(log),
        state.with(log, bytes[..bytes.len() - 1].to_vec()),
    ] {
        damaged.restore(temp.path()).unwrap();
        named(open(temp.path(), true), log);
    }
    state.restore(temp.path()).unwrap();
    assert_eq!(open(temp.path(), false).unwrap(), 2);
}

/// With `wal_tail_policy = pad` the close padded the log when it made it durable. The log then ended later
/// than before, which was taken for a write in progress, so that nothing was recorded.
#[test]
fn a_clean_close_marks_the_end_of_a_log_that_it_fills_up() {
    let temp = dirs::scratch().unwrap();
    let mut options = options(false);
    options.db.wal_tail_policy = WalTailPolicy::Pad;
    options.db.wal_io_mode = WalIoMode::Buffered;
    let db = Db::open(temp.path(), &options).unwrap();
    db.put("key", "1").unwrap();
    db.close().unwrap();
    let state = State::of(temp.path()).unwrap();
    let log = &logs(&state)[0];
    state.without(log).restore(temp.path()).unwrap();
    named(open(temp.path(), false), log);
    state.restore(temp.path()).unwrap();
    assert_eq!(open(temp.path(), false).unwrap(), 1);
}

/// A clean close records the end of the last log whatever the option says. RocksDB opens that, with the
/// option and without, for reading only and for writing; and Ironstone opens what RocksDB leaves.
#[test]
fn rocksdb_opens_what_a_clean_close_has_marked() {
    let temp = dirs::scratch().unwrap();
    let dir = temp.path();
    for i in 0..2 {
        // The second round has a kept log too.
        let db = Db::open(dir, &options(false)).unwrap();
        db.put(format!("key{i}"), "1").unwrap();
        db.close().unwrap();
    }
    let state = State::of(dir).unwrap();
    let all = logs(&state);
    assert_eq!(all.len(), 2);
    for log in &all {
        state.without(log).restore(dir).unwrap();
        named(open(dir, false), log);
    }
    state.restore(dir).unwrap();
    if ldb::available() {
        assert_eq!(ldb::scan(dir, "default").unwrap().len(), 2);
        ldb::check_consistency(dir).unwrap();
        ldb::ldb(dir, &["put", "old", "1"]).unwrap();
        assert_eq!(open(dir, false).unwrap(), 3);
    }
    let Some(lib) = oracle::rocksdb() else { return };
    for (how, keeps) in [(lib.options(), false), (tracking(&lib), true)] {
        state.restore(dir).unwrap();
        let db = RocksDb::open_read_only(&how, dir).unwrap();
        assert_eq!(db.iterator().collect_all().unwrap().len(), 2);
        db.close();
        let db = RocksDb::open(&how, dir).unwrap();
        assert_eq!(db.iterator().collect_all().unwrap().len(), 2);
        db.put(b"rocks", b"1").unwrap();
        db.close();
        let left = logs(&State::of(dir).unwrap());
        assert_eq!(all.iter().all(|log| left.contains(log)), keeps, "{left:?}");
        for _ in 0..2 {
            assert_eq!(open(dir, false).unwrap(), 3);
        }
        let db = RocksDb::open(&how, dir).unwrap();
        assert_eq!(db.iterator().collect_all().unwrap().len(), 3);
        db.close();
    }
}
