//! File systems that panic: their operation counts as not done, and no thread waits for it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ironstone::WalIoMode;
use ironstone::WriteOptions;
use sim::disk::{Act, Fault, Repeat};
use sim::hooked::{Hook, HookedFs, Op, Verdict};

use super::{DIR, Machine, SYNC, a_moment, durable_write, in_time, is_log, log_writes, put, until};

/// Panics once, at an operation on a file by one of the database's threads.
#[derive(Debug)]
struct PanicsOnce {
    armed: AtomicBool,
    which: fn(Op, &Path) -> bool,
}

impl PanicsOnce {
    /// A machine with this hook, which panics once after it is armed.
    fn under(mode: WalIoMode, which: fn(Op, &Path) -> bool) -> (Machine, Arc<Self>) {
        let mut machine = Machine::new(mode);
        let armed = AtomicBool::new(false);
        let hook = Arc::new(Self { armed, which });
        machine.options.env.fs = HookedFs::over(machine.disk.shared(), Arc::clone(&hook) as _);
        (machine, hook)
    }

    /// Makes a call during which the hook panics.
    fn in_call<T>(&self, call: impl FnOnce() -> T) {
        self.armed.store(true, Ordering::SeqCst);
        let panicked = catch_unwind(AssertUnwindSafe(call)).is_err();
        assert!(panicked && !self.armed.load(Ordering::SeqCst));
    }
}

impl Hook for PanicsOnce {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        if (self.which)(op, path) {
            assert!(!self.armed.swap(false, Ordering::SeqCst), "as planned");
        }
        Verdict::Go
    }
}

/// A file system that panicked when a thread deleted obsolete files ended that thread: it counted as busy
/// for ever, and `pause_background_work` and `wait_for_compact` waited for it.
#[test]
fn a_panic_behind_a_job_takes_no_thread_along() {
    let (machine, hook) = PanicsOnce::under(WalIoMode::Buffered, |op, path| {
        op == Op::Remove && is_log(path)
    });
    let db = machine.open();
    db.put("k", "v").unwrap();
    hook.armed.store(true, Ordering::SeqCst);
    drop(db.flush());
    until("it has panicked", || !hook.armed.load(Ordering::SeqCst));
    in_time("pause, and more", move || {
        drop(db.resume());
        db.pause_background_work().unwrap();
        db.continue_background_work().unwrap();
        db.put("another", "v").unwrap();
        db.flush().unwrap();
        db.wait_for_compact().unwrap();
        db.pause_background_work().unwrap();
        let names = machine.names(DIR);
        let logs = names.iter().filter(|n| is_log(Path::new(n))).count();
        assert_eq!(
            logs, 1,
            "what could not be deleted was forgotten: {names:?}"
        );
        db.continue_background_work().unwrap();
        db.close().unwrap();
    });
}

/// A file system that panicked when a file was made ahead ended the thread that makes them: every later log was
/// a buffered one.
#[test]
fn a_panic_at_the_pool_leaves_a_pool() {
    let (machine, hook) = PanicsOnce::under(WalIoMode::Direct, |op, path| {
        op == Op::Allocate && path.components().any(|c| c.as_os_str() == "log-pool")
    });
    hook.armed.store(true, Ordering::SeqCst);
    in_time("a log that was made ahead", move || {
        let (db, _) = machine.open_direct();
        db.close().unwrap();
    });
    assert!(!hook.armed.load(Ordering::SeqCst));
}

/// Panics when the name of a new CURRENT is about to be made durable.
#[derive(Debug, Default)]
struct PanicsBehindCurrent {
    armed: AtomicBool,
    renamed: AtomicBool,
}

impl Hook for PanicsBehindCurrent {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        let current = op == Op::Rename && path.file_name().is_some_and(|n| n == "CURRENT");
        if current && self.armed.load(Ordering::SeqCst) {
            self.renamed.store(true, Ordering::SeqCst);
        }
        let behind = op == Op::SyncDir && self.renamed.load(Ordering::SeqCst);
        assert!(
            !(behind && self.armed.swap(false, Ordering::SeqCst)),
            "as planned"
        );
        Verdict::Go
    }
}

/// A file system panicked when `resume` had begun a new MANIFEST. CURRENT named the new one, edits still went
/// to the old one, and the tables that they removed were deleted.
#[test]
fn a_panic_behind_a_new_manifest_is_a_failure() {
    fn syncs_of_tables(op: Op, path: &Path) -> bool {
        op == Op::Sync && path.extension().is_some_and(|e| e == "sst")
    }
    let (mut machine, gate) = Machine::gated(WalIoMode::Buffered);
    let hook = Arc::new(PanicsBehindCurrent::default());
    let gated = Arc::clone(&machine.options.env.fs);
    machine.options.env.fs = HookedFs::over(gated, Arc::clone(&hook) as _);
    let db = machine.open();
    for key in ["the first", "the second"] {
        put(&db, &SYNC, key).unwrap();
        put(&db, &SYNC, "both").unwrap();
        db.flush().unwrap();
    }
    gate.close(syncs_of_tables);
    let default = db.default_column_family();
    let compact = [
        ("level0_file_num_compaction_trigger", "2"),
        ("disable_auto_compactions", "false"),
    ];
    db.cf(&default).set_options(&compact).unwrap();
    gate.until_held();
    put(&db, &SYNC, "the third").unwrap();
    machine.disk.fail_on(Fault::Eio, Repeat::Once, |act, path| {
        act == Act::Create && path.extension().is_some_and(|e| e == "sst")
    });
    db.flush().unwrap_err();
    hook.armed.store(true, Ordering::SeqCst);
    let db = in_time("resume", move || {
        let told = catch_unwind(AssertUnwindSafe(|| db.resume()));
        assert!(!matches!(told, Ok(Ok(()))), "{told:?}");
        db
    });
    gate.open();
    // The compaction ends, and deletes the files that it takes for obsolete.
    for _ in 0..10 {
        a_moment();
    }
    drop(default);
    in_time("close", move || drop(db.close()));
    let db = machine.open();
    for key in ["the first", "the second", "the third", "both"] {
        assert!(db.get(key).unwrap().is_some(), "{key}");
    }
}

/// A file system panicked when an edit was written to the MANIFEST. Writes continued, and the next edit
/// followed a half one.
#[test]
fn a_panic_at_the_manifest_is_a_failure() {
    for by_flush in [false, true] {
        let (machine, hook) = PanicsOnce::under(WalIoMode::Buffered, |op, path| {
            let name = path.file_name().and_then(|n| n.to_str());
            op == Op::Write && name.is_some_and(|n| n.starts_with("MANIFEST"))
        });
        let db = machine.open();
        put(&db, &SYNC, "before").unwrap();
        if by_flush {
            hook.armed.store(true, Ordering::SeqCst);
            db.flush().unwrap_err();
        } else {
            hook.in_call(|| db.create_column_family("begun", &machine.options.cf));
            // Whether the MANIFEST has the edit is not known, so nothing may be reported as durable.
            put(&db, &SYNC, "refused at once").unwrap_err();
            let refused = db.create_column_family("refused", &machine.options.cf);
            let refused = refused.unwrap_err().to_string();
            assert!(refused.contains("panicked"), "{refused}");
        }
        let db = in_time("resume", move || {
            db.flush().unwrap_err();
            put(&db, &SYNC, "refused").unwrap_err();
            db.resume().unwrap();
            db
        });
        assert!(db.column_family("begun").is_none());
        put(&db, &SYNC, "after").unwrap();
        db.flush().unwrap();
        in_time("close", move || db.close()).unwrap();
        let db = machine.open();
        for key in ["before", "after"] {
            assert!(db.get(key).unwrap().is_some(), "{key}");
        }
    }
}

/// A file system panicked while the database was closed. LOCK was released before the database's threads
/// had ended, or the panic reached the caller of the close.
#[test]
fn a_panic_at_the_end_of_a_close_is_not_the_callers() {
    let (machine, hook) = PanicsOnce::under(WalIoMode::Buffered, |op, path| {
        op == Op::Remove && is_log(path)
    });
    let db = machine.open();
    db.put("k", "v").unwrap();
    machine
        .disk
        .fail_on(Fault::Eio, Repeat::Forever, |act, _| act == Act::Remove);
    db.flush().unwrap();
    // The flush thread deletes files after its job.
    db.pause_background_work().unwrap();
    machine.disk.clear_faults();
    hook.armed.store(true, Ordering::SeqCst);
    in_time("close", move || db.close()).unwrap();
    assert!(!hook.armed.load(Ordering::SeqCst), "nothing was deleted");
    assert!(machine.open().get("k").unwrap().is_some());
}

/// A file system panicked at a write of the log, and the bytes were lost: the next sync found nothing to
/// write, and reported them as durable.
#[test]
fn what_a_panic_kept_from_the_log_is_not_durable() {
    for sync in [true, false] {
        let (mut machine, hook) = PanicsOnce::under(WalIoMode::Buffered, log_writes);
        machine.options.db.manual_wal_flush = true;
        let db = machine.open();
        put(&db, &WriteOptions::default(), "in the process").unwrap();
        hook.in_call(|| db.flush_wal(sync));
        db.flush_wal(sync).unwrap_err();
        put(&db, &SYNC, "refused").unwrap_err();
        db.resume().unwrap();
        let told = [
            "in the process".to_owned(),
            put(&db, &SYNC, "after").unwrap(),
        ];
        machine.cut_power(&told, &["refused".to_owned()]);
    }
}

/// Panics at the first such operation on a log after another log was cut off.
#[derive(Debug)]
struct PanicsAtTheNextLog {
    which: Op,
    armed: AtomicBool,
    cut: Mutex<Option<PathBuf>>,
}

impl Hook for PanicsAtTheNextLog {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        let mut cut = self.cut.lock().unwrap();
        if op == Op::Truncate && is_log(path) && self.armed.swap(false, Ordering::SeqCst) {
            *cut = Some(path.to_path_buf());
        }
        let next = op == self.which && is_log(path);
        if next && cut.as_ref().is_some_and(|cut| cut != path) {
            *cut = None;
            drop(cut);
            panic!("as planned");
        }
        Verdict::Go
    }
}

/// The same after the next log was begun. Its flight belonged to no thread, and a close or resume waited for it
/// for ever. A close that cannot hand over acknowledged writes returns an error.
#[test]
fn a_panic_at_the_next_log_is_a_failure() {
    for (which, resumes) in [
        (Op::Write, true),
        (Op::Write, false),
        (Op::Sync, true),
        (Op::Sync, false),
    ] {
        let mut machine = Machine::new(WalIoMode::Direct);
        machine.options.db.manual_wal_flush = true;
        let hook = Arc::new(PanicsAtTheNextLog {
            which,
            armed: AtomicBool::new(false),
            cut: Mutex::default(),
        });
        machine.options.env.fs = HookedFs::over(machine.disk.shared(), Arc::clone(&hook) as _);
        let (db, _) = machine.open_direct();
        hook.armed.store(true, Ordering::SeqCst);
        put(&db, &WriteOptions::default(), "in the process").unwrap();
        machine
            .disk
            .fail_on(Fault::Eio, Repeat::Once, durable_write);
        let told = catch_unwind(AssertUnwindSafe(|| db.flush_wal(true)));
        assert!(!matches!(told, Ok(Ok(()))), "{which:?}: {told:?}");
        put(&db, &SYNC, "refused").unwrap_err();
        let closed = in_time("all that follows", move || {
            if resumes {
                db.resume().unwrap();
                put(&db, &SYNC, "after").unwrap();
            }
            db.close()
        });
        let found = machine.open().get("in the process").unwrap().is_some();
        assert!(found || closed.is_err(), "{which:?}: lost, and nobody told");
        assert!(closed.is_ok() || !resumes, "{which:?}: {closed:?}");
    }
}

/// A sync of a log had failed, and a file system panicked while the undurable records were moved to another
/// log: every later call waited for that, for ever.
#[test]
fn a_panic_while_a_log_is_mended_is_a_failure() {
    let (mut machine, hook) = PanicsOnce::under(WalIoMode::Direct, |op, path| {
        op == Op::Truncate && is_log(path)
    });
    machine.options.db.manual_wal_flush = true;
    let (db, _) = machine.open_direct();
    put(&db, &WriteOptions::default(), "in the process").unwrap();
    machine
        .disk
        .fail_on(Fault::Eio, Repeat::Once, durable_write);
    hook.in_call(|| db.flush_wal(true));
    in_time("all that follows", move || {
        put(&db, &SYNC, "refused").unwrap_err();
        db.resume().unwrap();
        put(&db, &SYNC, "after").unwrap();
        db.close().unwrap();
    });
    assert!(machine.open().get("in the process").unwrap().is_some());
}
