//! Writes and syncs of logs that fail.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use base::stats::Ticker;
use ironstone::{Db, WriteOptions};
use ironstone::{WalIoMode, WalTailPolicy};
use sim::disk::{Act, Fault, Repeat};
use sim::hooked::{Hook, HookedFs, Op, Verdict};

use super::{
    DIR, Gate, HeldFlush, Machine, SYNC, durable_write, flush_in_background, in_time, is_log,
    log_sync, put, start, until, with,
};

/// The simulated device leaves nothing, half or all of a write that fails, in turn.
#[test]
fn a_failed_durable_write_goes_to_a_new_log_once() {
    for extra in 0..3 {
        let machine = Machine::new(WalIoMode::Direct);
        let (db, mut told) = machine.open_direct();
        for i in 0..extra {
            told.push(put(&db, &SYNC, &format!("before{i}")).unwrap());
        }
        machine
            .disk
            .fail_on(Fault::Eio, Repeat::Once, durable_write);
        told.push(put(&db, &SYNC, "during").unwrap());
        assert_eq!(machine.disk.failed().unwrap().0, Act::WriteDsync);
        assert_eq!(machine.count(Ticker::WalRelogged), 1);
        machine.cut_power(&told, &[]);
        told.push(put(&db, &SYNC, "after").unwrap());
        assert_eq!(machine.count(Ticker::WalRelogged), 1);
        assert!(machine.log_text().contains("what was not durable went to"));
        machine.cut_power(&told, &[]);
        db.close().unwrap();
        let db = machine.open();
        assert_eq!(
            db.property("rocksdb.estimate-num-keys").unwrap(),
            told.len().to_string()
        );
    }
}

#[test]
fn where_the_new_log_fails_too_writes_are_refused_until_resume() {
    let machine = Machine::new(WalIoMode::Direct);
    let (db, mut told) = machine.open_direct();
    let log = machine
        .names(DIR)
        .into_iter()
        .rfind(|n| is_log(Path::new(n)));
    let old: PathBuf = Path::new(DIR).join(log.unwrap());
    machine
        .disk
        .fail_on(Fault::Eio, Repeat::Forever, move |act, path| {
            durable_write(act, path) || (is_log(path) && path != old)
        });
    put(&db, &SYNC, "during").unwrap_err();
    for _ in 0..2 {
        let e = put(&db, &SYNC, "later").unwrap_err();
        assert!(e.to_string().contains("resume"), "{e}");
    }
    assert!(db.put("unsynced", "v").is_err());
    assert!(db.sync_wal().is_err());
    assert_eq!(machine.count(Ticker::WalRelogged), 0);
    assert!(db.get("warm0000").unwrap().is_some(), "reads go on");
    assert!(db.get("during").unwrap().is_none());
    let perhaps = ["during".to_owned()];
    machine.cut_power(&told, &perhaps);
    db.resume().unwrap_err();
    machine.disk.clear_faults();
    db.resume().unwrap();
    machine.cut_power(&told, &perhaps);
    told.push(put(&db, &SYNC, "well again").unwrap());
    machine.cut_power(&told, &perhaps);
    db.close().unwrap();
    machine.reopen(&machine.disk, &told, &perhaps, "closed");
}

/// A log whose first write had failed half way stayed in the archive, and begins with half a record: as long as
/// it was kept, every `get_updates_since` returned an error of damage. Found by chaos, seed 5244.
#[test]
fn a_log_whose_first_write_failed_does_not_hide_the_others() {
    for turn in 0..3 {
        let mut machine = Machine::new(WalIoMode::Buffered);
        machine.options.db.wal_ttl_seconds = 1000;
        let db = machine.open();
        machine.take_turns(&db, turn);
        put(&db, &SYNC, "before").unwrap();
        db.flush().unwrap();
        machine.fail_a_write(&db, "fails");
        assert!(machine.disk.failed().is_some());
        db.resume().unwrap();
        put(&db, &SYNC, "after").unwrap();
        let last = db.latest_sequence_number();
        let updates = db.get_updates_since(last).unwrap();
        assert_eq!(
            (updates.valid(), updates.sequence()),
            (true, last),
            "{turn}"
        );
        // A reader from before the failure gets an error that says which updates are missing, if any are,
        // and where to continue.
        for from in 1..last {
            let mut updates = match db.get_updates_since(from) {
                Ok(updates) => updates,
                Err(e) => {
                    assert!(
                        e.to_string().contains("go on with get_updates_since("),
                        "{e}"
                    );
                    continue;
                }
            };
            while updates.valid() {
                updates.next();
            }
            if let Err(e) = updates.status() {
                assert!(
                    e.to_string().contains("go on with get_updates_since("),
                    "{e}"
                );
            }
        }
        let logs = db.get_sorted_wal_files().unwrap();
        assert!(logs.iter().any(|log| log.start_sequence() <= last));
        db.close().unwrap();
    }
}

/// Makes writes of logs so slow that others begin meanwhile.
#[derive(Debug)]
struct Slow;

impl Hook for Slow {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        if op == Op::Write && is_log(path) {
            std::thread::sleep(std::time::Duration::from_micros(300));
        }
        Verdict::Go
    }
}

#[test]
fn one_of_several_writes_in_the_air_fails() {
    for at in [[10, 90], [11, 30], [13, 14]] {
        // Two failures in a row must be in one log: the log that takes over may not fail too.
        let in_a_row = at[0] + 1 == at[1];
        let failed = Mutex::new(None);
        let mut machine = Machine::new(WalIoMode::Direct);
        machine.options.db.wal_tail_policy = WalTailPolicy::Pad;
        machine.options.db.wal_pipeline_depth = 4;
        machine.options.db.wal_pool_files = 3;
        machine.options.env.fs = HookedFs::over(machine.disk.shared(), Arc::new(Slow));
        let (db, mut told) = machine.open_direct();
        let writes = AtomicU64::new(0);
        let fails = move |act, path: &Path| {
            if !durable_write(act, path) || !at.contains(&writes.fetch_add(1, Ordering::Relaxed)) {
                return false;
            }
            let mut failed = failed.lock().unwrap();
            let first = failed.get_or_insert_with(|| path.to_owned());
            !in_a_row || first == path
        };
        machine.disk.fail_on(Fault::Eio, Repeat::Forever, fails);
        std::thread::scope(|scope| {
            let db = &db;
            let write = move |t: usize| {
                let one = |i| put(db, &SYNC, &format!("t{t}-{i:04}"));
                (0..40).map(one).collect::<base::Result<Vec<_>>>()
            };
            let all: Vec<_> = (0..6).map(|t| scope.spawn(move || write(t))).collect();
            for thread in all {
                told.extend(thread.join().unwrap().unwrap());
            }
        });
        assert!(machine.count(Ticker::WalRelogged) >= 1, "{at:?}");
        machine.cut_power(&told, &[]);
        drop(db);
        machine.reopen(&machine.disk, &told, &[], "closed");
    }
}

/// A second `fdatasync` may succeed although the pages of the first are lost.
#[test]
fn a_failed_fdatasync_is_not_tried_again() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = machine.open();
    let mut told = vec![put(&db, &SYNC, "before").unwrap()];
    let durable = db.durable_seq();
    machine.disk.fail_on(Fault::Sync, Repeat::Once, log_sync);
    put(&db, &SYNC, "during").unwrap_err();
    for key in ["later", "still"] {
        put(&db, &SYNC, key).unwrap_err();
        db.put(key, "v").unwrap_err();
    }
    db.sync_wal().unwrap_err();
    db.wait_durable(db.latest_sequence_number()).unwrap();
    assert_eq!(db.durable_seq(), durable);
    assert_eq!(machine.count(Ticker::WalRelogged), 0);
    let perhaps = ["during".to_owned()];
    machine.cut_power(&told, &perhaps);
    db.resume().unwrap();
    machine.cut_power(&told, &perhaps);
    told.push(put(&db, &SYNC, "well again").unwrap());
    machine.cut_power(&told, &perhaps);
}

/// Writes that were acknowledged without a sync are in the memtables: `resume` flushes them to tables.
#[test]
fn resume_makes_durable_what_was_acknowledged() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = machine.open();
    let mut told = vec![put(&db, &SYNC, "synced").unwrap()];
    db.put("submitted", "v").unwrap();
    machine.disk.fail_on(Fault::Sync, Repeat::Once, log_sync);
    db.sync_wal().unwrap_err();
    db.resume().unwrap();
    told.push("submitted".to_owned());
    machine.cut_power(&told, &[]);
    assert!(db.durable_seq() >= 2);
    db.wait_durable(2).unwrap();
}

/// The log whose sync fails is not the active one.
#[test]
fn resume_after_the_sync_of_a_closed_log_failed() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = machine.open();
    let other = db
        .create_column_family("other", &machine.options.cf)
        .unwrap();
    let mut told = vec![put(&db, &SYNC, "first").unwrap()];
    told.push(put(&db, &WriteOptions::default(), "in the closed log").unwrap());
    db.cf(&other).put("x", "v").unwrap();
    machine.disk.fail_on(Fault::Sync, Repeat::Once, log_sync);
    // The flush of one family begins a new log and leaves the other's data in the old one.
    let flushed = db.cf(&other).flush();
    let wrote = put(&db, &SYNC, "during");
    assert!(flushed.is_err() || wrote.is_err());
    db.put("refused", "v").unwrap_err();
    db.resume().unwrap();
    for i in 0..3 {
        told.push(put(&db, &SYNC, &format!("after{i}")).unwrap());
    }
    machine.cut_power(&told, &["during".to_owned(), "refused".to_owned()]);
}

#[test]
fn failure_after_failure_and_resume_after_resume() {
    let machine = Machine::new(WalIoMode::Direct);
    let (db, mut told) = machine.open_direct();
    let mut perhaps = Vec::new();
    for round in 0..4 {
        machine
            .disk
            .fail_on(Fault::Eio, Repeat::Forever, |act, path| {
                is_log(path) && matches!(act, Act::Write | Act::WriteDsync | Act::Sync)
            });
        put(&db, &SYNC, &format!("lost{round}")).unwrap_err();
        perhaps.push(format!("lost{round}"));
        machine.disk.clear_faults();
        db.resume().unwrap();
        told.push(put(&db, &SYNC, &format!("told{round}")).unwrap());
        machine
            .disk
            .fail_on(Fault::Eio, Repeat::Once, durable_write);
        told.push(put(&db, &SYNC, &format!("again{round}")).unwrap());
        machine.disk.clear_faults();
    }
    machine.cut_power(&told, &perhaps);
    // Burned numbers are not used again.
    let last = db.latest_sequence_number();
    assert!(last >= (told.len() + perhaps.len()) as u64);
}

/// Makes the database fail; its device works again.
fn failed(machine: &Machine, db: &Db) {
    machine
        .disk
        .fail_on(Fault::Eio, Repeat::Forever, |act, path| {
            act != Act::Read && is_log(path)
        });
    put(db, &SYNC, "during").unwrap_err();
    machine.disk.clear_faults();
}

/// `resume` waited for flushes that could not begin while background work was paused, and kept writers out
/// meanwhile. The thread that had paused it and called `resume`, or wrote, waited for ever.
#[test]
fn resume_does_not_wait_for_background_work_that_is_paused() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = Arc::new(machine.open());
    let mut told = vec![put(&db, &SYNC, "before").unwrap()];
    db.pause_background_work().unwrap();
    failed(&machine, &db);
    let e = in_time("resume", with(&db, Db::resume)).unwrap_err();
    assert!(e.to_string().contains("paused"), "{e}");
    put(&db, &SYNC, "still refused").unwrap_err();
    db.continue_background_work().unwrap();
    db.resume().unwrap();
    told.push(put(&db, &SYNC, "after").unwrap());
    machine.cut_power(&told, &["during".to_owned()]);
}

/// The same with a pause in the middle of a `resume`, which goes first.
#[test]
fn a_pause_waits_for_a_resume() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = Arc::new(machine.open());
    for i in 0..20 {
        put(&db, &SYNC, &format!("before{i}")).unwrap();
        failed(&machine, &db);
        let resuming = start(with(&db, Db::resume));
        while in_time("pause", with(&db, Db::pause_background_work)).is_err() {
            std::thread::yield_now();
        }
        in_time(
            "a write",
            with(&db, |db| put(db, &SYNC, "paused").map(drop)),
        )
        .unwrap();
        db.continue_background_work().unwrap();
        resuming.join().unwrap().unwrap();
    }
}

/// The same after background work was ended for good: `resume` waited for ever, and no write was possible.
#[test]
fn resume_does_not_wait_for_background_work_that_was_ended() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = Arc::new(machine.open());
    let told = [put(&db, &SYNC, "before").unwrap()];
    db.cancel_all_background_work(true);
    failed(&machine, &db);
    let e = in_time("resume", with(&db, Db::resume)).unwrap_err();
    assert!(e.to_string().contains("canceled"), "{e}");
    in_time("a write", with(&db, |db| put(db, &SYNC, "x").map(drop))).unwrap_err();
    machine.cut_power(&told, &["during".to_owned()]);
}

/// Holds one durable write of a log back, which then fails: when a copy of the database has listed the
/// logs, or when the test releases it.
#[derive(Debug, Default)]
struct FailsLate {
    armed: AtomicBool,
    held: AtomicBool,
    released: AtomicBool,
    mended: AtomicBool,
}

impl FailsLate {
    fn wait_for(&self, what: &AtomicBool) {
        let mut left = 2000;
        while !what.load(Ordering::SeqCst) && left > 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
            left -= 1;
        }
        assert!(left > 0, "waited too long: {self:?}");
    }
}

impl Hook for FailsLate {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        if op == Op::Write && is_log(path) && self.armed.swap(false, Ordering::SeqCst) {
            self.held.store(true, Ordering::SeqCst);
            self.wait_for(&self.released);
            return Verdict::Fail(5);
        }
        // Archived logs are listed after the live ones.
        let between = op == Op::Look && path.ends_with("archive");
        if between && self.held.load(Ordering::SeqCst) {
            self.released.store(true, Ordering::SeqCst);
            self.wait_for(&self.mended);
        }
        Verdict::Go
    }
}

/// A write of the log failed while a checkpoint was made. After the checkpoint had listed the logs, the
/// records went to a new one. The checkpoint had neither the records nor an error, although they had been
/// visible long before.
#[test]
fn a_checkpoint_has_what_goes_to_another_log_meanwhile() {
    for released_by_list in [true, false] {
        let mut machine = Machine::new(WalIoMode::Direct);
        machine.options.db.wal_tail_policy = WalTailPolicy::Pad;
        machine.options.db.wal_pipeline_depth = 4;
        machine.options.db.wal_pool_files = 3;
        let hook = Arc::new(FailsLate::default());
        machine.options.env.fs = HookedFs::over(machine.disk.shared(), Arc::clone(&hook) as _);
        let (db, mut told) = machine.open_direct();
        let db = Arc::new(db);
        hook.armed.store(true, Ordering::SeqCst);
        let mut batch = ironstone::WriteBatch::new();
        batch.put("late", "v").unwrap();
        let pending = db.write_async(batch).unwrap();
        pending.applied.wait().unwrap();
        hook.wait_for(&hook.held);
        let watched = Arc::clone(&hook);
        let durable = pending.durable;
        let watcher = start(move || {
            // A copy that waits for the write does not list the logs before.
            let millis = if released_by_list { 500 } else { 50 };
            std::thread::sleep(std::time::Duration::from_millis(millis));
            watched.released.store(true, Ordering::SeqCst);
            durable.wait().unwrap();
            watched.mended.store(true, Ordering::SeqCst);
        });
        let copy = with(&db, |db| db.create_checkpoint("/copy", u64::MAX));
        in_time("the checkpoint", copy).unwrap();
        watcher.join().unwrap();
        assert_eq!(machine.count(Ticker::WalRelogged), 1);
        let copy = Db::open_all("/copy", &machine.options).unwrap();
        assert!(
            copy.get("late").unwrap().is_some(),
            "the copy lacks a write"
        );
        copy.close().unwrap();
        told.push("late".to_owned());
        machine.cut_power(&told, &[]);
    }
}

/// After `resume` the MANIFEST still asked for the log that had failed, if no memtable had data whose flush
/// could have changed that: the next open found half a record there. The simulated device leaves nothing,
/// half or all of a write that fails, in turn.
#[test]
fn a_log_that_failed_is_not_replayed_where_nothing_was_in_memory() {
    for extra in 0..3 {
        let machine = Machine::new(WalIoMode::Buffered);
        let db = machine.open();
        let before = (0..=extra).map(|i| put(&db, &SYNC, &format!("before{i}")).unwrap());
        let mut told: Vec<String> = before.collect();
        db.flush().unwrap();
        machine
            .disk
            .fail_on(Fault::Eio, Repeat::Forever, |act, path| {
                (act == Act::Write || act == Act::Sync) && is_log(path)
            });
        let large = vec![b'v'; 3000];
        db.with(&SYNC).put("failed", large).unwrap_err();
        machine.disk.clear_faults();
        db.resume().unwrap();
        told.push(put(&db, &SYNC, "after").unwrap());
        machine.cut_power(&told, &[]);
        db.close().unwrap();
        let db = machine.open();
        for key in &told {
            assert!(db.get(key).unwrap().is_some(), "{key}");
        }
    }
}

/// The log whose sync the test holds back.
static OLDER: OnceLock<PathBuf> = OnceLock::new();

fn older_sync(op: Op, path: &Path) -> bool {
    op == Op::Sync && OLDER.get().is_some_and(|older| older == path)
}

fn table_writes(op: Op, path: &Path) -> bool {
    op == Op::Write && path.extension().is_some_and(|e| e == "sst")
}

/// `sync_wal` waited only for an older log when the database failed. That log's sync failed while `resume`
/// was running, which had given the log up. The error was taken for a failure of the new log, and the
/// database refused writes again.
#[test]
fn a_log_that_was_given_up_fails_nobody_else() {
    let (mut machine, logs) = Machine::gated(WalIoMode::Buffered);
    let tables = Arc::new(Gate::default());
    machine.options.env.fs = HookedFs::over(
        Arc::clone(&machine.options.env.fs),
        Arc::clone(&tables) as _,
    );
    let db = Arc::new(machine.open());
    db.put("older", "v").unwrap();
    let names = machine.names(DIR);
    let older = names.into_iter().rfind(|n| is_log(Path::new(n))).unwrap();
    OLDER.set(Path::new(DIR).join(&older)).unwrap();
    tables.close(table_writes);
    flush_in_background(&db);
    tables.until_held();
    logs.close(older_sync);
    let syncing = start(with(&db, Db::sync_wal));
    logs.until_held();
    tables.open();
    until("the older log has gone", || {
        !machine.names(DIR).contains(&older)
    });
    db.put("newer", "v").unwrap();
    machine
        .disk
        .fail_on(Fault::Sync, Repeat::Once, |act, path| {
            log_sync(act, path) && !older_sync(Op::Sync, path)
        });
    put(&db, &SYNC, "fails").unwrap_err();
    tables.close(table_writes);
    let resuming = start(with(&db, Db::resume));
    tables.until_held();
    machine
        .disk
        .fail_on(Fault::Sync, Repeat::Once, |act, path| {
            act == Act::Sync && older_sync(Op::Sync, path)
        });
    logs.open();
    in_time("sync_wal", move || syncing.join().unwrap()).unwrap_err();
    tables.open();
    in_time("resume", move || resuming.join().unwrap()).unwrap();
    put(&db, &SYNC, "after").unwrap();
}

/// `resume` clears the failure for the flushes that it needs. A write that looked for a failure just then,
/// and came to the gate when `resume` had failed, went into the new log, which lacks all earlier writes.
/// When the process ended, that write was there, and acknowledged ones before it were not.
#[test]
fn a_write_that_was_let_through_while_resume_tried_is_refused() {
    let listener = Arc::new(HeldFlush::default());
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.db.wal_min_sync_interval = 500_000;
    machine.listen(&listener);
    let db = Arc::new(machine.open());
    let resuming = listener.hold_resume(&machine, &db);
    // The write passes the check, and waits until half a second has passed since the last sync.
    let late = start(with(&db, |db| put(db, &SYNC, "late")));
    std::thread::sleep(std::time::Duration::from_millis(50));
    machine.disk.fail_on(Fault::Eio, Repeat::Once, |act, path| {
        act == Act::Write && path.extension().is_some_and(|e| e == "sst")
    });
    listener.go.store(true, Ordering::SeqCst);
    resuming.join().unwrap().unwrap_err();
    late.join().unwrap().unwrap_err();
    db.resume().unwrap();
    put(&db, &SYNC, "after").unwrap();
}
