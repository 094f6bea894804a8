//! Work that takes long holds up nobody who does not need its result.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use ironstone::{
    BottommostLevelCompaction, ColumnFamilyOptions, CompactRangeOptions, CompressionType, Db,
    ErrorKind, FilterDecision, Options, compaction_filter,
};
use sim::hooked::{Hook, HookedFs, Op, Verdict};

use super::{Gate, in_time, is_log, start, until, with};

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "sst")
}

/// A database without automatic compactions whose file operations go through `hook`.
fn open(dir: &Path, hook: Arc<dyn Hook>) -> Arc<Db> {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.disable_auto_compactions = true;
    options.env.fs = HookedFs::new(hook);
    Arc::new(Db::open(dir, &options).unwrap())
}

fn flushed(db: &Db) {
    db.put("key", "value").unwrap();
    db.flush().unwrap();
}

fn compacted(db: &Db) {
    let cf = db.default_column_family();
    db.cf(&cf).compact_range(None, None).unwrap();
}

/// Whoever deleted tables held a lock that each flush needed at its end: while the tables of a dropped family were deleted,
/// nothing could be flushed.
#[test]
fn a_flush_does_not_wait_for_tables_to_be_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let db = open(dir.path(), Arc::clone(&gate) as _);
    flushed(&db);
    flushed(&db);
    db.wait_for_compact().unwrap();
    gate.close(|op, path| op == Op::Remove && is_table(path));
    let compacting = start(with(&db, compacted));
    gate.until_held();
    for _ in 0..3 {
        in_time("a flush", with(&db, flushed));
    }
    let disabling = start(with(&db, Db::disable_file_deletions));
    until("deletions are disabled", || {
        db.property("rocksdb.is-file-deletions-enabled").as_deref() == Some("0")
    });
    in_time("a flush", with(&db, flushed));
    assert!(!disabling.is_finished(), "a table is still being deleted");
    gate.open();
    disabling.join().unwrap();
    compacting.join().unwrap();
    db.enable_file_deletions();
}

/// Takes long to remove a table, and counts the attempts. So many of the next ones fail, which takes twice as long.
#[derive(Debug, Default)]
struct SlowRemoval {
    attempts: AtomicUsize,
    failures: AtomicUsize,
}

impl SlowRemoval {
    fn attempts(&self) -> usize {
        self.attempts.load(Ordering::Relaxed)
    }
}

impl Hook for SlowRemoval {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        if op != Op::Remove || !is_table(path) {
            return Verdict::Go;
        }
        let one_less = |left: usize| left.checked_sub(1);
        let fails = self
            .failures
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
            .is_ok();
        std::thread::sleep(Duration::from_millis(if fails { 120 } else { 60 }));
        self.attempts.fetch_add(1, Ordering::Relaxed);
        if fails {
            Verdict::Fail(5) // EIO
        } else {
            Verdict::Go
        }
    }
}

/// Tables that cannot be removed are tried again after the next job, not all the time.
#[test]
fn tables_that_cannot_be_removed_keep_no_thread_busy() {
    let dir = tempfile::tempdir().unwrap();
    let hook = Arc::new(SlowRemoval::default());
    let db = open(dir.path(), Arc::clone(&hook) as _);
    for _ in 0..5 {
        flushed(&db);
    }
    hook.failures.store(usize::MAX, Ordering::Relaxed);
    compacted(&db);
    until("a removal fails", || hook.attempts() > 0);
    db.wait_for_compact().unwrap();
    let before = hook.attempts();
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(hook.attempts(), before, "who tries again?");
    hook.failures.store(0, Ordering::Relaxed);
    flushed(&db);
    db.wait_for_compact().unwrap();
    assert_eq!(hook.attempts(), before + 5);
}

/// A table whose removal failed, after a long time, kept all others until after the next job.
#[test]
fn a_table_that_cannot_be_removed_keeps_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let hook = Arc::new(SlowRemoval::default());
    let db = open(dir.path(), Arc::clone(&hook) as _);
    for _ in 0..5 {
        flushed(&db);
    }
    hook.failures.store(1, Ordering::Relaxed);
    compacted(&db);
    db.wait_for_compact().unwrap();
    assert_eq!(hook.attempts(), 5);
    let waits = db.int_property("rocksdb.obsolete-sst-files-size");
    assert!(waits > Some(0), "one is still there");
    flushed(&db);
    db.wait_for_compact().unwrap();
    assert_eq!(hook.attempts(), 6);
    assert_eq!(db.int_property("rocksdb.obsolete-sst-files-size"), Some(0));
}

const TABLES: usize = 50;

/// A database whose flush thread has begun to delete fifty tables, which an iterator had kept. That takes three seconds.
fn deletes_many(dir: &Path) -> (Arc<SlowRemoval>, Arc<Db>) {
    let hook = Arc::new(SlowRemoval::default());
    let db = open(dir, Arc::clone(&hook) as _);
    for _ in 0..TABLES {
        flushed(&db);
    }
    let iterator = db.iterator().unwrap();
    compacted(&db);
    db.wait_for_compact().unwrap();
    drop(iterator);
    flushed(&db);
    until("tables are deleted", || hook.attempts() > 0);
    (hook, db)
}

/// Pauses, and calls that disable deletions, waited until a flush thread had deleted everything.
#[test]
fn a_pause_does_not_wait_until_all_tables_are_deleted() {
    type Calls = (&'static str, fn(&Db), fn(&Db));
    let calls: [Calls; 2] = [
        (
            "pause_background_work",
            |db| db.pause_background_work().unwrap(),
            |db| db.continue_background_work().unwrap(),
        ),
        (
            "disable_file_deletions",
            Db::disable_file_deletions,
            Db::enable_file_deletions,
        ),
    ];
    for (name, begin, end) in calls {
        let dir = tempfile::tempdir().unwrap();
        let (hook, db) = deletes_many(dir.path());
        begin(&db);
        let removed = hook.attempts();
        assert!(removed < TABLES, "{name} waited for {removed}");
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(hook.attempts(), removed, "{name}: who deletes?");
        end(&db);
        db.wait_for_compact().unwrap();
        assert_eq!(hook.attempts(), TABLES, "{name}");
    }
}

/// A cancellation that waits does not wait for the deletion of all tables either: the end of the database deletes the rest.
#[test]
fn a_cancellation_does_not_wait_until_all_tables_are_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let (hook, db) = deletes_many(dir.path());
    db.cancel_all_background_work(true);
    let removed = hook.attempts();
    assert!(removed < TABLES, "waited for {removed}");
    drop(db);
    assert_eq!(hook.attempts(), TABLES);
}

/// A call that makes tables obsolete returns when all that are obsolete by then are gone, although jobs delete some too.
#[test]
fn obsolete_tables_are_gone_when_a_family_was_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (hook, db) = deletes_many(dir.path());
    let cf = db
        .create_column_family("short", &ColumnFamilyOptions::default())
        .unwrap();
    db.drop_column_family(&cf).unwrap();
    assert_eq!(hook.attempts(), TABLES);
}

/// While a call deletes tables, jobs leave theirs to it. Who waits for the jobs waits for the call.
#[test]
fn the_end_of_the_jobs_is_the_end_of_a_call_that_deletes_their_tables() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let db = open(dir.path(), Arc::clone(&gate) as _);
    flushed(&db);
    flushed(&db);
    let iterator = db.iterator().unwrap();
    compacted(&db);
    db.wait_for_compact().unwrap();
    drop(iterator);
    gate.close(|op, path| op == Op::Remove && is_table(path));
    let call = start(with(&db, |db| {
        db.disable_file_deletions();
        db.enable_file_deletions(); // deletes what the iterator has kept
    }));
    gate.until_held();
    flushed(&db);
    in_time("a compaction", with(&db, compacted));
    let waiting = start(with(&db, |db| db.wait_for_compact().unwrap()));
    std::thread::sleep(Duration::from_millis(300));
    assert!(!waiting.is_finished(), "tables are still there");
    gate.open();
    call.join().unwrap();
    waiting.join().unwrap();
    assert_eq!(db.int_property("rocksdb.obsolete-sst-files-size"), Some(0));
}

/// A file system that panics once.
#[derive(Debug, Default)]
struct PanickingRemoval(AtomicUsize);

impl Hook for PanickingRemoval {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        if op == Op::Remove && is_table(path) {
            let before = self.0.fetch_add(1, Ordering::Relaxed);
            assert!(before > 0, "planned: the file system panics");
        }
        Verdict::Go
    }
}

/// After a panic in the file system, the tables behind that one waited for the next job.
#[test]
fn tables_behind_a_panic_are_deleted_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let hook = Arc::new(PanickingRemoval::default());
    let db = open(dir.path(), Arc::clone(&hook) as _);
    for _ in 0..5 {
        flushed(&db);
    }
    compacted(&db);
    db.wait_for_compact().unwrap();
    // The one whose removal panicked was tried again at the end of the others, or waits for the next job.
    assert!(hook.0.load(Ordering::Relaxed) >= 5);
    flushed(&db);
    db.wait_for_compact().unwrap();
    assert_eq!(db.int_property("rocksdb.obsolete-sst-files-size"), Some(0));
}

/// Panics when the next log moves into the archive.
#[derive(Debug, Default)]
struct PanickingArchive(AtomicBool);

impl Hook for PanickingArchive {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        let moves = op == Op::Rename && is_log(path);
        let now = moves && self.0.swap(false, Ordering::Relaxed);
        assert!(!now, "planned: the file system panics");
        Verdict::Go
    }
}

/// A panic while logs were deleted kept the tables until after the next job.
#[test]
fn a_panic_among_logs_keeps_no_tables() {
    let dir = tempfile::tempdir().unwrap();
    let hook = Arc::new(PanickingArchive::default());
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.db.wal_ttl_seconds = 1000;
    options.cf.disable_auto_compactions = true;
    options.env.fs = HookedFs::new(Arc::clone(&hook) as _);
    let db = Db::open(dir.path(), &options).unwrap();
    for _ in 0..3 {
        flushed(&db);
    }
    let iterator = db.iterator().unwrap();
    compacted(&db);
    db.wait_for_compact().unwrap();
    drop(iterator);
    hook.0.store(true, Ordering::Relaxed);
    flushed(&db);
    db.wait_for_compact().unwrap();
    assert!(!hook.0.load(Ordering::Relaxed), "nothing panicked");
    assert_eq!(db.int_property("rocksdb.obsolete-sst-files-size"), Some(0));
}

/// The tables that an iterator had kept were deleted by the next flush, all of them, before there could be another flush.
#[test]
fn a_flush_that_is_due_does_not_wait_until_all_tables_are_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let (hook, db) = deletes_many(dir.path());
    flushed(&db);
    let removed = hook.attempts();
    assert!(removed < TABLES, "the flush waited for {removed}");
    db.wait_for_compact().unwrap();
    assert_eq!(hook.attempts(), TABLES);
}

/// The log was synced while no writer could go on, all that had gathered in it.
#[test]
fn a_checkpoint_syncs_the_log_beside_writers() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let db = open(&dir.path().join("db"), Arc::clone(&gate) as _);
    db.put("key", "value").unwrap();
    gate.close(|op, path| op == Op::Sync && is_log(path));
    let target = dir.path().join("copy");
    let copying = start(with(&db, move |db| db.create_checkpoint(target, u64::MAX)));
    gate.until_held();
    in_time("a put", with(&db, |db| db.put("key", "another").unwrap()));
    gate.open();
    copying.join().unwrap().unwrap();
}

/// Compactions looked after each 512 entries that they wrote whether they should end, give way to a flush, or tell how far they
/// are: with values of a megabyte, that was after half a gigabyte, and never if a filter dropped everything.
#[test]
fn a_compaction_ends_soon_if_it_is_canceled() {
    for (entries, bytes, decision) in [
        (20, 1 << 20, FilterDecision::Keep),
        (2_000, 10, FilterDecision::Remove),
    ] {
        let temp = tempfile::tempdir().unwrap();
        let canceled = Arc::new(AtomicBool::new(false));
        let seen = Arc::new(AtomicUsize::new(0));
        let (cancel, count) = (Arc::clone(&canceled), Arc::clone(&seen));
        let mut options = Options::default();
        options.db.create_if_missing = true;
        options.cf.compression = CompressionType::None;
        options.cf.disable_auto_compactions = true;
        options.cf.compaction_filter = Some(compaction_filter("Cancels", move |_, _, _| {
            if count.fetch_add(1, Ordering::Relaxed) == 2 {
                cancel.store(true, Ordering::Relaxed);
            }
            decision.clone()
        }));
        let db = Db::open(temp.path(), &options).unwrap();
        for n in 0..entries {
            db.put(format!("key{n:04}"), vec![b'v'; bytes]).unwrap();
        }
        db.flush().unwrap();
        let cf = db.default_column_family();
        let how = CompactRangeOptions {
            bottommost_level_compaction: BottommostLevelCompaction::Force,
            canceled: Some(canceled),
            ..Default::default()
        };
        let e = db.cf(&cf).with(&how).compact_range(None, None).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::Incomplete, "{e}");
        let seen = seen.load(Ordering::Relaxed) as u64;
        assert!(seen <= entries / 3, "{seen} of {entries}");
    }
}
