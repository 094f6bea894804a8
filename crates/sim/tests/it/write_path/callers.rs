//! Code of the application on the database's threads: the calls that it may make there, whatever other
//! threads wait for, and what is left when it panics. Each of these hung or leaked once.

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use base::options::OptionTable;
use ironstone::WalIoMode;
use ironstone::listener::{BackgroundErrorRecoveryInfo, FlushJobInfo, SubcompactionJobInfo};
use ironstone::{Db, ErrorKind, EventListener, FlushOptions, WriteBatch, WriteOptions};
use sim::disk::{Act, Fault, Repeat};
use sim::hooked::{Hook, HookedFs, Op, Verdict};

use super::{DIR, Machine, SYNC, growing_write, in_time, is_log, log_sync, put, until};

const NO_SLOWDOWN: WriteOptions = WriteOptions {
    sync: false,
    disable_wal: false,
    no_slowdown: true,
    low_pri: false,
};

pub(super) const BACKGROUND: FlushOptions = FlushOptions {
    wait: false,
    allow_write_stall: true,
};

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "sst")
}

/// A writer that must not wait found its memtable full while the WAL was locked, and waited at the gate
/// until it was unlocked. If the same thread had locked it, that was for ever.
#[test]
fn a_write_that_must_not_wait_does_not_wait_to_rotate() {
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.cf.write_buffer_size = 64 << 10;
    let db = Arc::new(machine.open());
    db.put("fills a memtable", vec![b'v'; 80 << 10]).unwrap();
    db.lock_wal().unwrap();
    let impatient = || {
        let db = Arc::clone(&db);
        in_time("no_slowdown", move || put(&db, &NO_SLOWDOWN, "refused"))
    };
    assert_eq!(impatient().unwrap_err().kind(), ErrorKind::Incomplete);
    let waits = std::thread::Builder::new()
        .spawn({
            let db = Arc::clone(&db);
            move || put(&db, &WriteOptions::default(), "waits")
        })
        .unwrap();
    std::thread::sleep(Duration::from_millis(50));
    assert_eq!(impatient().unwrap_err().kind(), ErrorKind::Incomplete);
    db.unlock_wal().unwrap();
    in_time("the other", move || waits.join().unwrap().unwrap());
    put(&db, &NO_SLOWDOWN, "after").unwrap();
}

/// Makes a call when a flush begins, on the thread that flushes.
struct WhenFlushBegins {
    db: OnceLock<Weak<Db>>,
    call: fn(&Db),
    called: AtomicU64,
}

impl EventListener for WhenFlushBegins {
    fn on_flush_begin(&self, _: &FlushJobInfo) {
        if let Some(db) = self.db.get().and_then(Weak::upgrade) {
            (self.call)(&db);
            self.called.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// `resume` held the gate and waited for a flush, whose listener waited at the gate: not for a write, which
/// is refused there, but to close the gate too.
#[test]
fn a_listener_that_would_close_the_gate_does_not_hold_resume_up() {
    type Call = fn(&Db);
    let calls: [(&str, Call); 7] = [
        ("flush", |db| {
            drop(db.with(&BACKGROUND).flush());
        }),
        ("create", |db| {
            let options = db.cf(&db.default_column_family()).options();
            drop(db.create_column_family("new", &options));
        }),
        ("drop", |db| {
            let other = db.column_family("other").unwrap();
            drop(db.drop_column_family(&other));
        }),
        ("lock_wal", |db| {
            if db.lock_wal().is_ok() {
                db.unlock_wal().unwrap();
            }
        }),
        ("checkpoint", |db| {
            drop(db.create_checkpoint("/copy", u64::MAX));
        }),
        ("set_db_options", |db| {
            drop(db.set_db_options(&[("max_total_wal_size", "1")]));
        }),
        ("resume", |db| drop(db.resume())),
    ];
    for (what, call) in calls {
        let listener = Arc::new(WhenFlushBegins {
            db: OnceLock::new(),
            call,
            called: AtomicU64::new(0),
        });
        let mut machine = Machine::new(WalIoMode::Buffered);
        machine.listen(&listener);
        let db = Arc::new(machine.open());
        db.create_column_family("other", &machine.options.cf)
            .unwrap();
        listener.db.set(Arc::downgrade(&db)).unwrap();
        db.put("in a memtable", "v").unwrap();
        machine.disk.fail_on(Fault::Sync, Repeat::Once, log_sync);
        put(&db, &SYNC, "fails").unwrap_err();
        let other = Arc::clone(&db);
        in_time(&format!("resume beside {what}"), move || {
            other.resume().unwrap();
        });
        until("the listener has called", || {
            listener.called.load(Ordering::SeqCst) > 0
        });
        put(&db, &SYNC, "after").unwrap();
        db.flush().unwrap();
    }
}

/// Makes calls that wait for compactions, on the threads that do parts of one.
#[derive(Default)]
struct WaitsInAPart {
    db: OnceLock<Weak<Db>>,
    refused: AtomicU64,
    other: Mutex<Vec<String>>,
}

impl EventListener for WaitsInAPart {
    fn on_subcompaction_begin(&self, info: &SubcompactionJobInfo) {
        let Some(db) = self.db.get().and_then(Weak::upgrade) else {
            return;
        };
        if info.subcompaction_job_id == 0 {
            return; // it runs on the thread of the compaction
        }
        let calls: [fn(&Db) -> base::Result<()>; 3] = [
            |db| db.compact_range(None, None),
            Db::wait_for_compact,
            Db::pause_background_work,
        ];
        for call in calls {
            match call(&db) {
                Err(e) if e.kind() == ErrorKind::Busy => {
                    self.refused.fetch_add(1, Ordering::SeqCst);
                }
                result => self.other.lock().unwrap().push(format!("{result:?}")),
            }
        }
    }
}

pub(super) fn with_parts(machine: &mut Machine) {
    machine.options.db.max_subcompactions = 2;
    machine.options.cf.target_file_size_base = 64 << 10;
    let no = ("compression", "kNoCompression");
    machine.options.cf.set(no.0, no.1).unwrap();
    machine.options.cf.write_buffer_size = 4 << 20;
}

pub(super) fn two_layers(db: &Db) {
    for round in 0..2 {
        for i in 0..4000 {
            db.put(format!("{i:06}"), [round; 100]).unwrap();
        }
        db.flush().unwrap();
    }
}

/// A part of a compaction has a thread of its own, which did not count as a compaction thread: a listener
/// that waited there for compactions waited for itself.
#[test]
fn a_listener_on_the_thread_of_a_part_is_told_what_would_wait_for_itself() {
    let listener = Arc::new(WaitsInAPart::default());
    let mut machine = Machine::new(WalIoMode::Buffered);
    with_parts(&mut machine);
    machine.listen(&listener);
    let db = Arc::new(machine.open());
    two_layers(&db);
    listener.db.set(Arc::downgrade(&db)).unwrap();
    in_time("compact_range", move || {
        db.compact_range(None, None).unwrap();
    });
    assert_eq!(*listener.other.lock().unwrap(), Vec::<String>::new());
    assert_eq!(listener.refused.load(Ordering::SeqCst), 3);
}

/// The device had been full, and the waiters for durability had got that error. When there was space again,
/// and another writer's sync had succeeded, later writes got the same error though nothing failed any more.
#[test]
fn who_comes_when_there_is_space_again_is_not_told_that_there_is_none() {
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.db.wal_no_space_wait_ms = 0;
    let db = machine.open();
    let write = |key: &str| {
        let mut batch = WriteBatch::new();
        batch.put(key, "v").unwrap();
        db.write_async(batch).unwrap()
    };
    for round in 0..10 {
        machine
            .disk
            .fail_on(Fault::NoSpace, Repeat::Forever, growing_write);
        let e = write("told").durable.wait().unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
        machine.disk.clear_faults();
        put(&db, &SYNC, "synced").unwrap();
        let later = write("later").durable.wait();
        assert!(later.is_ok(), "round {round}: {later:?}");
    }
}

/// A change of options rotates memtables where logs are too large. It waited for that at a gate that its
/// own thread kept closed.
#[test]
fn options_may_be_changed_while_the_wal_is_locked() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = machine.open();
    db.put("in a memtable", vec![b'v'; 10_000]).unwrap();
    in_time("set_db_options", move || {
        db.lock_wal().unwrap();
        db.set_db_options(&[("max_total_wal_size", "1")]).unwrap();
        db.unlock_wal().unwrap();
        put(&db, &WriteOptions::default(), "after").unwrap();
        db.wait_for_compact().unwrap();
        db.close().unwrap();
    });
}

/// A file that could not be deleted once was never tried again: logs and tables stayed until the next open.
#[test]
fn what_could_not_be_deleted_is_tried_again() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = machine.open();
    let count = |which: fn(&Path) -> bool| {
        let names = machine.names(DIR);
        names.iter().filter(|n| which(Path::new(n))).count()
    };
    for round in 0..4 {
        if round == 1 {
            machine
                .disk
                .fail_on(Fault::Eio, Repeat::Forever, |act, _| act == Act::Remove);
        }
        db.put("k", "v").unwrap();
        db.flush().unwrap();
        db.compact_range(None, None).unwrap();
        db.pause_background_work().unwrap();
        db.continue_background_work().unwrap();
        if round == 1 {
            machine.disk.clear_faults();
        }
    }
    assert_eq!(count(is_table), db.get_live_files_metadata().len());
    assert_eq!(count(is_log), 1, "{:?}", machine.names(DIR));
}

/// An idle family is flushed so that old logs can be deleted, which needs a new log. If that could not be made,
/// a write failed, although the current log had room for it.
#[test]
fn a_write_goes_on_where_idle_families_cannot_be_flushed() {
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.cf.write_buffer_size = 4 << 20;
    machine.options.cf.max_write_buffer_number = 20;
    machine.options.db.max_total_wal_size = 1 << 40;
    let db = machine.open();
    let flush = || db.cf(&db.default_column_family()).flush();
    let idle = db.create_column_family("idle", &machine.options.cf);
    let idle = idle.unwrap();
    db.cf(&idle).put("k", "v").unwrap();
    for _ in 0..70 {
        db.put("k", vec![b'v'; 1 << 20]).unwrap();
    }
    flush().unwrap();
    db.set_db_options(&[("max_total_wal_size", "0")]).unwrap();
    let refused = Arc::new(AtomicU64::new(0));
    let its = Arc::clone(&refused);
    machine
        .disk
        .fail_on(Fault::Eio, Repeat::Forever, move |act, path| {
            let fails = act == Act::Create && is_log(path);
            its.fetch_add(u64::from(fails), Ordering::Relaxed);
            fails
        });
    db.put("k", "goes on").unwrap();
    db.put("k", "and on").unwrap();
    machine.disk.clear_faults();
    // It is not tried again with each write.
    assert_eq!(refused.load(Ordering::Relaxed), 1);
    let tables = || {
        db.cf(&idle)
            .property("rocksdb.num-files-at-level0")
            .unwrap()
    };
    assert_eq!(tables(), "0");
    flush().unwrap();
    db.put("k", "with the next log it is tried again").unwrap();
    db.wait_for_compact().unwrap();
    assert_eq!(tables(), "1");
}

/// Fails the open of a table once.
#[derive(Debug)]
struct CannotOpen(AtomicBool);

impl Hook for CannotOpen {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        let table = op == Op::Open && is_table(path);
        if table && self.0.swap(false, Ordering::SeqCst) {
            return Verdict::Fail(24);
        }
        Verdict::Go
    }
}

/// A new table that could not be opened stayed in the directory until the next open.
#[test]
fn a_flush_that_is_not_installed_leaves_no_table() {
    let mut machine = Machine::new(WalIoMode::Buffered);
    let hook = Arc::new(CannotOpen(AtomicBool::new(false)));
    machine.options.env.fs = HookedFs::over(machine.disk.shared(), Arc::clone(&hook) as _);
    let db = machine.open();
    db.put("k", "v").unwrap();
    hook.0.store(true, Ordering::SeqCst);
    db.flush().unwrap_err();
    assert!(!hook.0.load(Ordering::SeqCst));
    db.resume().unwrap();
    db.put("k", "v").unwrap();
    db.flush().unwrap();
    db.pause_background_work().unwrap();
    let names = machine.names(DIR);
    let tables = names.iter().filter(|n| is_table(Path::new(n))).count();
    assert_eq!(tables, db.get_live_files_metadata().len(), "{names:?}");
}

/// A flush that failed in the middle left its table until the next open: on a full device each attempt to
/// resume took some more of the last space.
#[test]
fn a_flush_that_fails_leaves_no_table() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = machine.open();
    db.put("k", vec![b'v'; 100_000]).unwrap();
    machine
        .disk
        .fail_on(Fault::Eio, Repeat::Forever, |act, path| {
            act == Act::Sync && is_table(path)
        });
    db.flush().unwrap_err();
    for _ in 0..3 {
        db.resume().unwrap_err();
    }
    machine.disk.clear_faults();
    db.resume().unwrap();
    db.flush().unwrap();
    db.pause_background_work().unwrap();
    let names = machine.names(DIR);
    let tables = names.iter().filter(|n| is_table(Path::new(n))).count();
    assert_eq!(tables, db.get_live_files_metadata().len(), "{names:?}");
}

/// Writes were stopped for a flush or a compaction, and background work had been ended for good. The writer
/// waited for ever, and so did `flush`, which waits for room.
#[test]
fn nobody_waits_for_background_work_that_was_ended() {
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.cf.write_buffer_size = 64 << 10;
    machine.options.cf.max_write_buffer_number = 2;
    let db = Arc::new(machine.open());
    db.put("before", "v").unwrap();
    db.cancel_all_background_work(true);
    let writing = Arc::clone(&db);
    let e = in_time("a write", move || {
        (0..400).find_map(|i| {
            let key = format!("{i:04}");
            writing.put(key, vec![b'v'; 1000]).err()
        })
    });
    let e = e.expect("writes are stopped");
    assert_eq!(e.kind(), ErrorKind::ShutdownInProgress, "{e}");
    let flushing = Arc::clone(&db);
    let e = in_time("flush", move || flushing.flush().unwrap_err());
    assert_eq!(e.kind(), ErrorKind::ShutdownInProgress, "{e}");
    let db = Arc::into_inner(db).unwrap();
    in_time("close", move || db.close().unwrap());
}

/// Wakes the waiting thread.
struct Unpark(std::thread::Thread);

impl std::task::Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// A blocking executor.
fn block_on<F: Future + Unpin>(mut future: F) -> F::Output {
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let mut cx = std::task::Context::from_waker(&waker);
    loop {
        if let std::task::Poll::Ready(out) = std::pin::Pin::new(&mut future).poll(&mut cx) {
            return out;
        }
        std::thread::park_timeout(Duration::from_secs(1));
    }
}

/// A callback, on the thread that writes to the device, waited for another write through a future, and so
/// for itself. With `wait` it did not.
#[test]
fn a_callback_may_block_on_a_future() {
    let (machine, gate) = Machine::gated(WalIoMode::Buffered);
    let db = Arc::new(machine.open());
    let write = |db: &Db| {
        let mut batch = WriteBatch::new();
        batch.put("k", "v").unwrap();
        db.write_async(batch).unwrap()
    };
    gate.close(|op, path| op == Op::Sync && is_log(path));
    let first = write(&db);
    gate.until_held();
    let (tx, rx) = std::sync::mpsc::channel();
    let other = Arc::clone(&db);
    first.durable.on_ready(move |_| {
        let second = write(&other);
        drop(tx.send(block_on(second.durable)));
    });
    gate.open();
    rx.recv_timeout(Duration::from_secs(8))
        .expect("the callback hangs")
        .unwrap();
}

/// Resumes again each time a resume is reported as failed.
#[derive(Default)]
struct ResumesAgain {
    db: OnceLock<Weak<Db>>,
    answers: Mutex<Vec<ErrorKind>>,
}

impl EventListener for ResumesAgain {
    fn on_error_recovery_end(&self, info: &BackgroundErrorRecoveryInfo) {
        let Some(db) = self.db.get().and_then(Weak::upgrade) else {
            return;
        };
        if info.new_bg_error.is_err() {
            let answer = db.resume().unwrap_err().kind();
            self.answers.lock().unwrap().push(answer);
        }
    }
}

/// A listener resumed again when a resume had failed. The failure of the second one was reported from
/// inside the first, and so on, until the stack overflowed and the process died.
#[test]
fn a_listener_that_resumes_again_is_told_to_do_it_later() {
    let listener = Arc::new(ResumesAgain::default());
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.listen(&listener);
    let db = Arc::new(machine.open());
    assert!(listener.db.set(Arc::downgrade(&db)).is_ok());
    machine
        .disk
        .fail_on(Fault::Eio, Repeat::Forever, |act, path| {
            act != Act::Read && is_log(path)
        });
    put(&db, &SYNC, "fails").unwrap_err();
    assert_ne!(db.resume().unwrap_err().kind(), ErrorKind::Busy);
    assert_eq!(*listener.answers.lock().unwrap(), [ErrorKind::Busy]);
    machine.disk.clear_faults();
    db.resume().unwrap();
}

/// Ending background work first flushed the writes that were in no log, and waited for that: for ever, if
/// background work was paused by the same thread.
#[test]
fn background_work_that_is_paused_can_be_ended() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = Arc::new(machine.open());
    let unlogged = WriteOptions {
        disable_wal: true,
        ..WriteOptions::default()
    };
    put(&db, &unlogged, "in no log").unwrap();
    db.pause_background_work().unwrap();
    let other = Arc::clone(&db);
    in_time("cancel", move || other.cancel_all_background_work(true));
    assert!(
        machine.log_text().contains("background work is paused"),
        "nothing says what stays in memory"
    );
    db.continue_background_work().unwrap();
    let db = Arc::into_inner(db).unwrap();
    in_time("close", move || db.close().unwrap());
}
