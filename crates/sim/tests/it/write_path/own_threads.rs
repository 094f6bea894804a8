//! The database's threads that call the application's code, and what that code may do there: drop the database,
//! pause it, wait for it, panic. Each of these hung, or went on in a database that belonged to another opener,
//! once.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use ironstone::WalIoMode;
use ironstone::listener::{BackgroundErrorReason, FlushJobInfo, MemTableInfo};
use ironstone::{Db, Error, EventListener, Options, WriteBatch, WriteBufferManager, WriteOptions};
use sim::disk::{Fault, Repeat};
use sim::hooked::{Hook, HookedFs, Op, Verdict};

use super::closing::{AfterTheLock, LastOwner};
use super::{
    DIR, HeldFlush, Machine, SYNC, a_moment, flush_in_background, growing_write, in_time,
    open_again, put, start, until, with,
};

/// The operating system's number of an input/output error.
const EIO: i32 = 5;

/// Drops its handle when the database is about to be resumed.
struct OnResume(Arc<LastOwner>);

impl EventListener for OnResume {
    fn on_error_recovery_begin(&self, _: BackgroundErrorReason, _: &Error) {
        self.0.let_go();
    }
}

/// The device had been full, and the log's thread resumed. A listener of that event dropped the last
/// handle: the lock was released, and the thread began a log and a MANIFEST all the same.
#[test]
fn nothing_is_resumed_once_the_lock_is_released() {
    let owner = Arc::new(LastOwner::default());
    let hook = Arc::new(AfterTheLock::default());
    let machine = Machine::new(WalIoMode::Buffered);
    let mut options = machine.options.clone();
    options.env.fs = HookedFs::over(machine.disk.shared(), Arc::clone(&hook) as _);
    options
        .env
        .listeners
        .add(Arc::new(OnResume(Arc::clone(&owner))));
    let db = Arc::new(Db::open_all(DIR, &options).unwrap());
    put(&db, &SYNC, "in a memtable").unwrap();
    machine
        .disk
        .fail_on(Fault::NoSpace, Repeat::Once, |_, path| {
            path.extension().is_some_and(|e| e == "sst")
        });
    owner.own(&db);
    // A flush that waits might only see the flush of the resume.
    flush_in_background(&db);
    drop(db);
    until("the listener lets go", || owner.has_let_go());
    let db = open_again(&machine.options);
    let changes = hook.changes_from_now_on();
    assert_eq!(changes, Vec::<String>::new());
    assert!(db.get("in a memtable").unwrap().is_some());
}

/// Closes the database during a resume, on the thread that reports the events of flushes.
#[derive(Default)]
struct ClosesBesideResume {
    db: Mutex<Option<Db>>,
    flushes: AtomicU64,
    closes: AtomicBool,
    closed: Mutex<Option<(String, base::Result<()>)>>,
}

impl EventListener for ClosesBesideResume {
    fn on_flush_begin(&self, _: &FlushJobInfo) {
        // The first flush fails, the second one is the resume's.
        if self.flushes.fetch_add(1, Ordering::SeqCst) == 1 {
            until("somebody closes", || self.closes.load(Ordering::SeqCst));
            a_moment();
        }
    }

    fn on_background_error(&self, _: BackgroundErrorReason, _: &Error) {
        until("it is resumed", || self.flushes.load(Ordering::SeqCst) > 1);
        let Some(db) = self.db.lock().unwrap().take() else {
            return;
        };
        self.closes.store(true, Ordering::SeqCst);
        let result = db.close();
        let thread = std::thread::current();
        let name = thread.name().unwrap_or_default().to_owned();
        *self.closed.lock().unwrap() = Some((name, result));
    }
}

/// The device had been full, and the log's thread resumed. Meanwhile a listener on another of the
/// database's threads closed it. The close did not wait for the resume and was refused, and unlogged writes
/// were lost.
#[test]
fn a_close_on_a_thread_of_its_own_waits_for_the_resume_on_another() {
    let listener = Arc::new(ClosesBesideResume::default());
    let mut machine = Machine::new(WalIoMode::Buffered);
    let quiet = machine.options.clone();
    machine.listen(&listener);
    let db = machine.open();
    let unlogged = WriteOptions {
        disable_wal: true,
        ..WriteOptions::default()
    };
    put(&db, &unlogged, "in no log").unwrap();
    let mut given = listener.db.lock().unwrap();
    machine
        .disk
        .fail_on(Fault::NoSpace, Repeat::Once, |_, path| {
            path.extension().is_some_and(|e| e == "sst")
        });
    // A flush that waits might only see the flush of the resume, which waits for the close.
    flush_in_background(&db);
    *given = Some(db);
    drop(given);
    until("it is closed", || listener.closed.lock().unwrap().is_some());
    let (thread, result) = listener.closed.lock().unwrap().take().unwrap();
    assert_eq!(thread, "ironstone:tell");
    result.unwrap();
    let db = open_again(&quiet);
    assert!(db.get("in no log").unwrap().is_some());
}

/// Pauses background work when a memtable is sealed.
#[derive(Default)]
struct Pauses {
    db: OnceLock<Weak<Db>>,
    paused: AtomicU64,
}

impl EventListener for Pauses {
    fn on_memtable_sealed(&self, _: &MemTableInfo) {
        if let Some(db) = self.db.get().and_then(Weak::upgrade) {
            db.pause_background_work().unwrap();
            db.continue_background_work().unwrap();
            self.paused.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// The events of a resume were reported before its turn was over: a listener that paused background work waited
/// for the end of the resume, on the thread that resumed.
#[test]
fn whoever_hears_of_a_resume_may_pause_background_work() {
    let listener = Arc::new(Pauses::default());
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.listen(&listener);
    let db = Arc::new(machine.open());
    put(&db, &WriteOptions::default(), "in a memtable").unwrap();
    machine.fail_a_sync(&db);
    listener.db.set(Arc::downgrade(&db)).unwrap();
    in_time("resume", with(&db, Db::resume)).unwrap();
    assert!(listener.paused.load(Ordering::SeqCst) > 0);
    put(&db, &SYNC, "after").unwrap();
}

/// A resume was given up while its flush was running, which then forgot that it belonged to the resume. One
/// family left the log that had failed, the other did not, and the next open found half of a batch there.
/// The simulated device leaves nothing, half or all of a write that fails, in turn.
#[test]
fn the_flush_of_a_resume_that_was_given_up_leaves_no_half_of_a_batch() {
    for turn in 0..3 {
        let held = Arc::new(HeldFlush::default());
        let mut machine = Machine::new(WalIoMode::Buffered);
        // One memtable is sealed and not flushed yet.
        machine.options.cf.write_buffer_size = 64 << 10;
        machine.options.cf.max_write_buffer_number = 6;
        machine.options.cf.min_write_buffer_number_to_merge = 4;
        let db = machine.open();
        db.create_column_family("other", &machine.options.cf)
            .unwrap();
        machine.take_turns(&db, turn);
        db.flush().unwrap(); // so that the open has nothing to flush
        db.close().unwrap();
        let quiet = machine.options.clone();
        machine.listen(&held);
        let db = Arc::new(machine.open());
        let other = db.column_family("other").unwrap();
        let sealed = || {
            let n = db.cf(&other).property("rocksdb.num-immutable-mem-table");
            n.is_some_and(|n| n != "0")
        };
        for i in 0.. {
            if sealed() {
                break;
            }
            let value = vec![b'v'; 4000];
            db.cf(&other).put(format!("fills{i}"), value).unwrap();
            // This write finds the memtable full and seals it: the new memtable is empty.
            put(&db, &WriteOptions::default(), "in a memtable").unwrap();
        }
        machine
            .disk
            .fail_on(Fault::Eio, Repeat::Once, growing_write);
        let mut batch = WriteBatch::new();
        batch.put("both", "v").unwrap();
        batch.cf(&other).put("both", "v").unwrap();
        db.write(&mut batch).unwrap_err();
        let resuming = start(with(&db, Db::resume));
        until("the flush of resume", || held.begun.load(Ordering::SeqCst));
        db.cancel_all_background_work(false);
        let given_up = resuming.join().unwrap();
        held.go.store(true, Ordering::SeqCst);
        assert!(given_up.is_err(), "{turn}");
        drop((other, db));
        let db = open_again(&quiet);
        let other = db.column_family("other").unwrap();
        let mine = db.get("both").unwrap().is_some();
        let others = db.cf(&other).get("both").unwrap().is_some();
        assert_eq!(mine, others, "{turn}: half of a batch");
        assert!(db.get("in a memtable").unwrap().is_some(), "{turn}");
    }
}

/// Raises the memory limit when a memtable is sealed.
struct Raises(Arc<WriteBufferManager>);

impl EventListener for Raises {
    fn on_memtable_sealed(&self, _: &MemTableInfo) {
        self.0.set_buffer_size(1 << 30);
    }
}

/// A writer that waited for memory did not report its events first: a listener that would have made room was
/// not called.
#[test]
fn whoever_makes_room_hears_that_memory_is_full() {
    let memory = Arc::new(WriteBufferManager::new(1 << 20, None, true));
    let listener = Arc::new(Raises(Arc::clone(&memory)));
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.env.write_buffer_manager = Some(memory);
    machine.options.cf.write_buffer_size = 64 << 20;
    machine.options.cf.max_write_buffer_number = 8;
    machine.listen(&listener);
    let db = Arc::new(machine.open());
    // No flush can make room.
    db.pause_background_work().unwrap();
    in_time(
        "writes",
        with(&db, |db| {
            // Uses more than the limit; the next write waits, and seals that memtable.
            db.put("large", vec![0; 2 << 20]).unwrap();
            db.put("next", "v").unwrap();
        }),
    );
    db.continue_background_work().unwrap();
}

/// Fails the first write of an OPTIONS file, panics at the second, and allows the third.
#[derive(Debug, Default)]
struct FailsThenPanics {
    armed: AtomicBool,
    tries: AtomicU64,
}

impl Hook for FailsThenPanics {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if op == Op::OpenWrite && name.starts_with("OPTIONS") && self.armed.load(Ordering::SeqCst) {
            match self.tries.fetch_add(1, Ordering::SeqCst) {
                0 => return Verdict::Fail(EIO),
                1 => panic!("as planned"),
                _ => {}
            }
        }
        Verdict::Go
    }
}

/// A file system that panicked when a stale OPTIONS file was written again ended the flush thread.
#[test]
fn a_panic_at_the_options_file_takes_no_thread_along() {
    let hook = Arc::new(FailsThenPanics::default());
    let machine = Machine::new(WalIoMode::Buffered);
    let options = Options {
        env: ironstone::Env {
            fs: HookedFs::over(machine.disk.shared(), Arc::clone(&hook) as _),
            ..machine.options.env.clone()
        },
        ..machine.options.clone()
    };
    let db = Db::open_all(DIR, &options).unwrap();
    hook.armed.store(true, Ordering::SeqCst);
    drop(db.set_options(&[("write_buffer_size", "100000")]));
    until("it was written again", || {
        hook.tries.load(Ordering::SeqCst) >= 3
    });
    in_time("flush and close", move || {
        db.put("k", "v").unwrap();
        db.flush().unwrap();
        db.close().unwrap();
    });
}
