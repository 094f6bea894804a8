//! The end of a database: what a close reports, and that nothing happens after it.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base::sync::thread::JoinHandle;
use base::threads::{Run, SystemThreads, Threads};
use ironstone::WalIoMode;
use ironstone::listener::{CompactionJobInfo, FlushJobInfo, SubcompactionJobInfo};
use ironstone::{Db, EventListener, WriteOptions};
use sim::disk::{Act, Fault, Repeat};
use sim::hooked::{Hook, HookedFs, Op, Verdict};

use super::callers::{BACKGROUND, two_layers, with_parts};
use super::{DIR, Machine, SYNC, a_moment, growing_write, in_time, open_again, put, start, until};

/// After a failure `close` returned Ok, though unlogged writes were lost. Found by the schedules.
#[test]
fn close_tells_of_writes_that_are_lost_with_a_failure() {
    for (disable_wal, resumed) in [(true, false), (true, true), (false, false)] {
        let machine = Machine::new(WalIoMode::Buffered);
        let db = machine.open();
        let options = WriteOptions {
            disable_wal,
            ..WriteOptions::default()
        };
        put(&db, &options, "in a memtable").unwrap();
        machine.fail_a_sync(&db);
        if resumed {
            db.resume().unwrap();
        }
        let told = in_time("close", move || db.close()).is_err();
        let found = machine.open().get("in a memtable").unwrap().is_some();
        assert_eq!(told, disable_wal && !resumed);
        assert_eq!(found, !told, "what is lost is told, and nothing else");
    }
}

/// A write of the log failed and lost acknowledged records that only the process had: close returned Ok.
#[test]
fn a_close_tells_of_records_that_a_failed_write_took_along() {
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.db.manual_wal_flush = true;
    let db = machine.open();
    put(&db, &WriteOptions::default(), "in the process").unwrap();
    machine
        .disk
        .fail_on(Fault::Eio, Repeat::Once, growing_write);
    put(&db, &SYNC, "fails").unwrap_err();
    let closed = in_time("close", move || db.close());
    closed.unwrap_err();
}

/// A table could not be written while acknowledged records of an intact log were in the process: close
/// discarded them, and returned Ok.
#[test]
fn a_close_after_a_failure_hands_over_what_the_process_has_of_the_log() {
    for mode in [WalIoMode::Buffered, WalIoMode::Direct] {
        let mut machine = Machine::new(mode);
        machine.options.db.manual_wal_flush = true;
        let db = machine.open();
        for _ in 0..2 {
            put(&db, &WriteOptions::default(), "in a table").unwrap();
            db.flush().unwrap();
        }
        put(&db, &WriteOptions::default(), "in the process").unwrap();
        machine.disk.fail_on(Fault::Eio, Repeat::Once, |act, path| {
            act == Act::Create && path.extension().is_some_and(|e| e == "sst")
        });
        let compact = [
            ("level0_file_num_compaction_trigger", "2"),
            ("disable_auto_compactions", "false"),
        ];
        db.set_options(&compact).unwrap();
        until("the compaction has failed", || {
            put(&db, &WriteOptions::default(), "refused").is_err()
        });
        in_time("close", move || db.close()).unwrap();
        let db = machine.open();
        assert!(db.get("in the process").unwrap().is_some(), "{mode:?}");
    }
}

/// The same with a failure during the close.
#[test]
fn a_failure_during_a_close_takes_nothing_along() {
    for _ in 0..5 {
        let (mut machine, gate) = Machine::gated(WalIoMode::Buffered);
        machine.options.db.manual_wal_flush = true;
        let db = machine.open();
        for _ in 0..2 {
            put(&db, &WriteOptions::default(), "in a table").unwrap();
            db.flush().unwrap();
        }
        put(&db, &WriteOptions::default(), "in the process").unwrap();
        let manifest = |path: &Path| path.to_string_lossy().contains("MANIFEST");
        gate.close(|op, path| op == Op::Sync && path.to_string_lossy().contains("MANIFEST"));
        let compact = [
            ("level0_file_num_compaction_trigger", "2"),
            ("disable_auto_compactions", "false"),
        ];
        let default = db.default_column_family();
        db.cf(&default).set_options(&compact).unwrap();
        drop(default);
        gate.until_held();
        let closing = start(move || db.close());
        a_moment();
        machine
            .disk
            .fail_on(Fault::Eio, Repeat::Once, move |act, path| {
                act == Act::Sync && manifest(path)
            });
        gate.open();
        let closed = in_time("close", move || closing.join().unwrap());
        let found = machine.open().get("in the process").unwrap().is_some();
        assert!(found, "{closed:?}");
    }
}

/// The last owner of a database.
#[derive(Default)]
pub(super) struct LastOwner {
    db: Mutex<Option<Arc<Db>>>,
    let_go: AtomicBool,
}

impl LastOwner {
    pub(super) fn own(&self, db: &Arc<Db>) {
        *self.db.lock().unwrap() = Some(Arc::clone(db));
    }

    pub(super) fn has_let_go(&self) -> bool {
        self.let_go.load(Ordering::SeqCst)
    }

    pub(super) fn let_go(&self) {
        let db = self.db.lock().unwrap().take();
        if let Some(db) = db {
            until("it is the last", || Arc::strong_count(&db) == 1);
            drop(db);
            self.let_go.store(true, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(300));
        }
    }
}

struct OnFlush(Arc<LastOwner>);

impl EventListener for OnFlush {
    fn on_flush_begin(&self, _: &FlushJobInfo) {
        self.0.let_go();
    }
}

struct OnCompaction(Arc<LastOwner>);

impl EventListener for OnCompaction {
    fn on_compaction_begin(&self, _: &CompactionJobInfo) {
        self.0.let_go();
    }
}

struct OnPart(Arc<LastOwner>);

impl EventListener for OnPart {
    fn on_subcompaction_begin(&self, info: &SubcompactionJobInfo) {
        if info.subcompaction_job_id > 0 {
            self.0.let_go();
        }
    }
}

/// Counts changes after the database belongs to another opener.
#[derive(Debug, Default)]
pub(super) struct AfterTheLock {
    others: AtomicBool,
    changes: Mutex<Vec<String>>,
}

impl AfterTheLock {
    /// From now on the database belongs to another opener. Returns the changes of the next moment.
    pub(super) fn changes_from_now_on(&self) -> Vec<String> {
        self.others.store(true, Ordering::SeqCst);
        std::thread::sleep(Duration::from_millis(600));
        self.changes.lock().unwrap().clone()
    }
}

impl Hook for AfterTheLock {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        if op.changes() && self.others.load(Ordering::SeqCst) {
            let thread = std::thread::current();
            let name = thread.name().unwrap_or_default().to_owned();
            let mut changes = self.changes.lock().unwrap();
            changes.push(format!("{name}: {op:?} {}", path.display()));
        }
        Verdict::Go
    }
}

/// A system that has no thread left for closing the database.
#[derive(Debug)]
struct NoneToClose;

impl Threads for NoneToClose {
    fn start(&self, name: &str, run: Run) -> std::io::Result<JoinHandle<()>> {
        if name == "ironstone:close" {
            return Err(std::io::Error::from_raw_os_error(11)); // EAGAIN
        }
        SystemThreads.start(name, run)
    }
}

/// A listener dropped the last handle on a thread that flushes or compacts. The lock was released, and the
/// thread continued its job, wrote to the MANIFEST, and deleted logs that belonged to another opener by
/// then. On the thread of a part of a compaction it waited for itself: later only where the system had no
/// thread left to close the database.
#[test]
fn nothing_is_changed_once_the_lock_is_released() {
    for threads in [SystemThreads::shared(), Arc::new(NoneToClose)] {
        nothing_is_changed_with(&threads);
    }
}

fn nothing_is_changed_with(threads: &Arc<dyn Threads>) {
    type Make = fn(Arc<LastOwner>) -> Arc<dyn EventListener>;
    let all: [(&str, Make); 3] = [
        ("a flush", |o| Arc::new(OnFlush(o))),
        ("a compaction", |o| Arc::new(OnCompaction(o))),
        ("a part of one", |o| Arc::new(OnPart(o))),
    ];
    for (what, make) in all {
        let owner = Arc::new(LastOwner::default());
        let hook = Arc::new(AfterTheLock::default());
        let mut machine = Machine::new(WalIoMode::Buffered);
        with_parts(&mut machine);
        let mut options = machine.options.clone();
        options.env.fs = HookedFs::over(machine.disk.shared(), Arc::clone(&hook) as _);
        options.env.threads = Arc::clone(threads);
        options.env.listeners.add(make(Arc::clone(&owner)));
        let db = Arc::new(Db::open_all(DIR, &options).unwrap());
        two_layers(&db);
        db.put("in a memtable", "v").unwrap();
        let default = db.default_column_family();
        if what == "a flush" {
            owner.own(&db);
            db.cf(&default).with(&BACKGROUND).flush().unwrap();
        } else {
            db.cf(&default)
                .set_options(&[("disable_auto_compactions", "false")])
                .unwrap();
            owner.own(&db);
            db.cf(&default).suggest_compact_range(None, None).unwrap();
            db.cf(&default)
                .set_options(&[("level0_file_num_compaction_trigger", "2")])
                .unwrap();
        }
        drop((db, default));
        until("the listener lets go", || owner.has_let_go());
        let db = open_again(&machine.options);
        let changes = hook.changes_from_now_on();
        assert_eq!(changes, Vec::<String>::new(), "{what}, {threads:?}");
        assert!(db.get("in a memtable").unwrap().is_some(), "{what}");
    }
}
