//! Where several threads, a failing call and code of the application meet. Each of these hung,
//! wedged or lost a database once.

use std::cmp::Ordering as Order;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use base::Error;
use ironstone::listener::{BackgroundErrorReason, MemTableInfo};
use ironstone::merge_operators::UInt64AddOperator;
use ironstone::options::WalIoMode;
use ironstone::{
    Comparator, Db, Durable, ErrorKind, EventListener, FlushOptions, UserComparator, WriteBatch,
    WriteOptions,
};
use sim::disk::{Act, CrashKind, Fault, Repeat};
use sim::hooked::Op;

use super::{
    DIR, LONG, Machine, SYNC, durable_write, in_time, is_log, log_sync, names, put, until,
};

fn start<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> std::thread::JoinHandle<T> {
    std::thread::Builder::new().spawn(f).unwrap()
}

/// Long enough for another thread to get as far as it can.
fn a_moment() {
    std::thread::sleep(Duration::from_millis(50));
}

fn log_writes(op: Op, path: &Path) -> bool {
    op == Op::Write && is_log(path)
}

fn log_syncs(op: Op, path: &Path) -> bool {
    op == Op::Sync && is_log(path)
}

fn batch(key: &str) -> WriteBatch {
    let mut batch = WriteBatch::new();
    batch.put(key, "v").unwrap();
    batch
}

fn number(db: &Db, key: &str) -> u64 {
    let value = db.get(key).unwrap().unwrap();
    u64::from_le_bytes(value.try_into().unwrap())
}

/// A log failed on a flight of `write_async` while a flush waited for it. What could not be written
/// went to a new log, and the flush sealed the memtable at that one: after the flush and a crash it was
/// replayed on top of the table, and each merge was applied twice.
#[test]
fn merges_are_applied_once_though_their_log_is_mended_during_a_rotation() {
    let (mut machine, gate) = Machine::gated(WalIoMode::Direct);
    machine.options.cf.merge_operator = Some(Arc::new(UInt64AddOperator));
    let (db, _) = machine.open_direct();
    let db = Arc::new(db);
    gate.close(log_writes);
    let mut last = None;
    for _ in 0..5 {
        let mut one = WriteBatch::new();
        one.merge("counter", 1_u64.to_le_bytes()).unwrap();
        last = Some(db.write_async(&WriteOptions::default(), one).unwrap());
    }
    gate.until_held();
    let logs = |disk| {
        let names = names(disk, DIR);
        names.iter().filter(|n| is_log(Path::new(n))).count()
    };
    let before = logs(&machine.disk);
    let flushing = start({
        let db = Arc::clone(&db);
        move || db.flush()
    });
    until("the next log is made", || logs(&machine.disk) > before);
    a_moment();
    machine
        .disk
        .fail_on(Fault::Eio, Repeat::Once, durable_write);
    gate.open();
    in_time("the flush", move || flushing.join().unwrap().unwrap());
    last.unwrap().durable.wait().unwrap();
    assert_eq!(machine.disk.failed().unwrap().0, Act::WriteDsync);
    assert_eq!(number(&db, "counter"), 5);
    let mut rng = base::rng::Rng::new(3);
    for kind in CrashKind::ALL {
        let mut options = machine.options.clone();
        options.env.fs = machine.disk.crash_image(&mut rng, kind).shared();
        let after = Db::open_all(DIR, &options).unwrap();
        assert_eq!(number(&after, "counter"), 5, "{kind:?}");
    }
}

/// A sync that began when the active log was empty, but older ones were not durable, was a flight of
/// no log: the next switch forgot it, nobody was told, and `sync_wal` waited for ever. No fault is
/// needed, only small memtables.
#[test]
fn a_sync_of_older_logs_alone_ends() {
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.cf.cf.write_buffer_size = 64 << 10;
    machine.options.cf.cf.max_write_buffer_number = 6;
    let db = Arc::new(machine.open());
    let done = Arc::new(AtomicBool::new(false));
    let writer = start({
        let (db, done) = (Arc::clone(&db), Arc::clone(&done));
        move || {
            for i in 0_u64.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let key = format!("{:05}", i % 10_000);
                db.put(key, vec![b'v'; 1000]).unwrap();
            }
        }
    });
    let syncing = Arc::clone(&db);
    in_time("five hundred syncs", move || {
        for i in 0..500 {
            match i % 3 {
                0 => syncing.sync_wal().unwrap(),
                1 => {
                    let seq = syncing.write_async(&WriteOptions::default(), batch("async"));
                    syncing.wait_durable(seq.unwrap().seq).unwrap();
                }
                _ => {
                    let write = syncing.write_async(&WriteOptions::default(), batch("async"));
                    write.unwrap().durable.wait().unwrap();
                }
            }
        }
    });
    done.store(true, Ordering::Relaxed);
    writer.join().unwrap();
}

/// The same wait beside `resume`: the flight's log was given up, and nobody was told.
#[test]
fn syncs_end_beside_failures_and_resumes() {
    let mut machine = Machine::new(WalIoMode::Auto);
    machine.options.cf.cf.write_buffer_size = 64 << 10;
    let db = Arc::new(machine.open());
    let done = Arc::new(AtomicBool::new(false));
    let threads: Vec<_> = (0..3)
        .map(|n| {
            let (db, done) = (Arc::clone(&db), Arc::clone(&done));
            start(move || {
                while !done.load(Ordering::Relaxed) {
                    match n {
                        0 => drop(db.sync_wal()),
                        1 => drop(put(&db, &SYNC, "synced")),
                        _ => drop(db.put("plain", vec![b'v'; 3000])),
                    }
                }
            })
        })
        .collect();
    for round in 0..40 {
        let fault = if round % 2 == 0 {
            Fault::Eio
        } else {
            Fault::Sync
        };
        machine.disk.fail_on(fault, Repeat::Once, |act, path| {
            durable_write(act, path) || log_sync(act, path)
        });
        std::thread::sleep(Duration::from_millis(5));
        machine.disk.clear_faults();
        let resumed = Arc::clone(&db);
        in_time("resume", move || resumed.resume().unwrap());
    }
    done.store(true, Ordering::Relaxed);
    in_time("the threads", move || {
        for thread in threads {
            thread.join().unwrap();
        }
    });
    db.resume().unwrap();
    put(&db, &SYNC, "after").unwrap();
}

/// A family was dropped while a batch for it waited at the gate, checked already: its insert failed, the
/// batch was there in part, innocent writes of the group got the error though they were logged, and
/// the whole database refused writes.
#[test]
fn a_write_to_a_family_that_is_being_dropped_is_refused_alone() {
    let (machine, gate) = Machine::gated(WalIoMode::Buffered);
    let db = Arc::new(machine.open());
    for round in 0..4 {
        let doomed = db
            .create_column_family("doomed", &machine.options.cf)
            .unwrap();
        gate.close(log_syncs);
        let synced = start({
            let db = Arc::clone(&db);
            move || put(&db, &SYNC, "synced")
        });
        gate.until_held();
        let dropping = start({
            let (db, doomed) = (Arc::clone(&db), doomed.clone());
            move || db.drop_column_family(&doomed)
        });
        a_moment();
        let both = format!("both{round}");
        let writers: Vec<_> = (0..6)
            .map(|n| {
                let (db, doomed, both) = (Arc::clone(&db), doomed.clone(), both.clone());
                start(move || {
                    let mut batch = WriteBatch::new();
                    match n % 3 {
                        0 => batch.put(format!("innocent{n}"), "v").unwrap(),
                        1 => batch.put_cf(&doomed, "key", "v").unwrap(),
                        _ => {
                            batch.put(both, "v").unwrap();
                            batch.put_cf(&doomed, "key", "v").unwrap();
                        }
                    }
                    let options = if n < 3 { SYNC } else { WriteOptions::default() };
                    db.write_opt(&options, batch)
                })
            })
            .collect();
        a_moment();
        gate.open();
        synced.join().unwrap().unwrap();
        dropping.join().unwrap().unwrap();
        for (n, writer) in writers.into_iter().enumerate() {
            let result = in_time("a write", move || writer.join().unwrap());
            match n % 3 {
                0 => result.unwrap(),
                _ => assert_eq!(result.unwrap_err().kind(), ErrorKind::InvalidArgument),
            }
        }
        assert_eq!(db.get(&both).unwrap(), None, "a batch is there in part");
        put(&db, &SYNC, "after").unwrap();
    }
}

/// One log that could not be made ended rotation for ever: nobody looked again, and the memtable grew
/// without bound.
#[test]
fn a_log_that_cannot_be_made_is_tried_again() {
    for fault in [Fault::Eio, Fault::NoSpace] {
        let mut machine = Machine::new(WalIoMode::Buffered);
        machine.options.cf.cf.write_buffer_size = 64 << 10;
        machine.options.db.wal_no_space_wait_ms = 10;
        let db = machine.open();
        let active = || {
            let bytes = db.property("rocksdb.cur-size-active-mem-table").unwrap();
            bytes.parse::<u64>().unwrap()
        };
        machine.disk.fail_on(fault, Repeat::Forever, |act, path| {
            act == Act::Create && is_log(path)
        });
        let mut refused = 0;
        for i in 0..300 {
            refused += usize::from(db.put(format!("{i:04}"), vec![b'v'; 1000]).is_err());
            assert!(active() < 256 << 10, "the memtable grows without bound");
        }
        assert!(refused > 0, "nobody was told");
        machine.disk.clear_faults();
        for i in 0..300 {
            db.put(format!("{i:04}"), vec![b'v'; 1000]).unwrap();
            assert!(active() < 256 << 10);
        }
        db.flush().unwrap();
    }
}

/// A callback that panicked took the thread along that brings asynchronous writes to the device.
#[test]
fn a_callback_that_panics_takes_no_thread_along() {
    let (machine, gate) = Machine::gated(WalIoMode::Buffered);
    let db = machine.open();
    for _ in 0..3 {
        gate.close(log_syncs);
        let write = db
            .write_async(&WriteOptions::default(), batch("k"))
            .unwrap();
        gate.until_held();
        write.durable.on_ready(|_| panic!("a callback"));
        gate.open();
        write.durable.wait().unwrap();
    }
    let late = db.write_async(&WriteOptions::default(), batch("late"));
    let late = late.unwrap().durable;
    in_time("a later write", move || late.wait().unwrap());
}

/// Callbacks ran with the log locked: one that wrote waited for itself.
#[test]
fn a_callback_may_write_and_wait() {
    for step in ["write", "sync", "async", "wait"] {
        let (machine, gate) = Machine::gated(WalIoMode::Auto);
        let db = Arc::new(machine.open());
        gate.close(log_syncs);
        let write = db
            .write_async(&WriteOptions::default(), batch("k"))
            .unwrap();
        gate.until_held();
        let (tx, rx) = mpsc::channel();
        let other = Arc::clone(&db);
        write.durable.on_ready(move |_| {
            match step {
                "write" => other.put("in the callback", "v").unwrap(),
                "sync" => drop(put(&other, &SYNC, "in the callback").unwrap()),
                "async" => drop(
                    other
                        .write_async(&WriteOptions::default(), batch("in the callback"))
                        .unwrap(),
                ),
                _ => {
                    let write = other
                        .write_async(&WriteOptions::default(), batch("in the callback"))
                        .unwrap();
                    write.durable.wait().unwrap();
                }
            }
            drop(other);
            tx.send(()).unwrap();
        });
        gate.open();
        rx.recv_timeout(LONG).expect("the callback hangs");
        assert!(db.get("in the callback").unwrap().is_some());
    }
}

/// Polls its future at once, on the thread that wakes it, and writes when it is ready.
struct Inline {
    db: OnceLock<Arc<Db>>,
    future: Mutex<Option<Durable>>,
    done: mpsc::Sender<()>,
}

impl Wake for Inline {
    fn wake(self: Arc<Self>) {
        let waker = Waker::from(Arc::clone(&self));
        let mut future = self.future.lock().unwrap();
        let Some(durable) = future.as_mut() else {
            return;
        };
        let polled = std::pin::Pin::new(durable).poll(&mut Context::from_waker(&waker));
        if polled.is_ready() {
            *future = None;
            let db = self.db.get().unwrap();
            put(db, &SYNC, "in the waker").unwrap();
            self.done.send(()).unwrap();
        }
    }
}

/// A waker ran with the log locked too: an executor that polls inline waited for itself.
#[test]
fn an_executor_may_poll_inline() {
    let (machine, gate) = Machine::gated(WalIoMode::Buffered);
    let db = Arc::new(machine.open());
    let (done, rx) = mpsc::channel();
    gate.close(log_syncs);
    let write = db
        .write_async(&WriteOptions::default(), batch("k"))
        .unwrap();
    gate.until_held();
    let inline = Arc::new(Inline {
        db: OnceLock::new(),
        future: Mutex::new(Some(write.durable)),
        done,
    });
    drop(inline.db.set(Arc::clone(&db)));
    Arc::clone(&inline).wake(); // the first poll
    gate.open();
    rx.recv_timeout(LONG).expect("the waker hangs");
}

/// Calls the database from each event.
#[derive(Default)]
struct Caller {
    db: OnceLock<std::sync::Weak<Db>>,
    failed: AtomicU64,
    sealed: AtomicU64,
}

impl Caller {
    fn call(&self) {
        let Some(db) = self.db.get().and_then(std::sync::Weak::upgrade) else {
            return;
        };
        drop(db.get_updates_since(1).map(|mut updates| updates.next()));
        drop(put(&db, &SYNC, "in the listener"));
        db.disable_file_deletions();
        db.enable_file_deletions();
        drop(db.get_live_files(false));
    }
}

impl EventListener for Caller {
    fn on_background_error(&self, _: BackgroundErrorReason, _: &Error) {
        self.failed.fetch_add(1, Ordering::SeqCst);
        self.call();
    }

    fn on_memtable_sealed(&self, _: &MemTableInfo) {
        if self.sealed.fetch_add(1, Ordering::SeqCst) < 20 {
            self.call();
        }
    }
}

/// Listeners were called with the log, the MANIFEST or the gate locked: one that read the log or wrote
/// waited for itself.
#[test]
fn a_listener_may_call_the_database() {
    let caller = Arc::new(Caller::default());
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.cf.cf.write_buffer_size = 64 << 10;
    machine.options.env.listeners.add(Arc::clone(&caller) as _);
    let db = Arc::new(machine.open());
    caller.db.set(Arc::downgrade(&db)).unwrap();
    let other = Arc::clone(&db);
    let disk = machine.disk.clone();
    let told = Arc::clone(&caller);
    in_time("what listeners are told of", move || {
        for i in 0..300 {
            other.put(format!("{i:04}"), vec![b'v'; 1000]).unwrap();
        }
        other.flush().unwrap();
        until("the listener is told of memtables", || {
            told.sealed.load(Ordering::SeqCst) > 2
        });
        disk.fail_on(Fault::Sync, Repeat::Forever, log_sync);
        put(&other, &SYNC, "fails").unwrap_err();
        until("the listener is told", || {
            told.failed.load(Ordering::SeqCst) == 1
        });
        disk.clear_faults();
        other.resume().unwrap();
        put(&other, &SYNC, "after").unwrap();
    });
}

/// An order that panics once, when it is told to.
struct Fragile(Arc<AtomicBool>);

impl UserComparator for Fragile {
    fn name(&self) -> &'static str {
        "fragile"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Order {
        assert!(!self.0.swap(false, Ordering::SeqCst), "a fragile order");
        a.cmp(b)
    }
}

/// A comparator that panicked in one put wedged all writers and flushes for ever: the group, its place
/// in the order, the gate and the lead were not given back.
#[test]
fn nobody_waits_for_a_writer_that_panicked() {
    for threads in [1, 8] {
        let armed = Arc::new(AtomicBool::new(false));
        let (mut machine, gate) = Machine::gated(WalIoMode::Buffered);
        machine.options.cf.comparator = Comparator::user(Arc::new(Fragile(Arc::clone(&armed))));
        let db = Arc::new(machine.open());
        let mut told = vec![put(&db, &SYNC, "a").unwrap(), put(&db, &SYNC, "b").unwrap()];
        gate.close(log_syncs);
        let first = start({
            let db = Arc::clone(&db);
            move || put(&db, &SYNC, "first")
        });
        gate.until_held();
        // They are one group, large enough to be inserted by its members.
        let writers: Vec<_> = (0..threads)
            .map(|n| {
                let db = Arc::clone(&db);
                start(move || {
                    let mut batch = WriteBatch::new();
                    for i in 0..20 {
                        batch.put(format!("panic{n}-{i}"), "v").unwrap();
                    }
                    let write = || db.write_opt(&SYNC, batch);
                    catch_unwind(AssertUnwindSafe(write)).map_err(drop)
                })
            })
            .collect();
        a_moment();
        armed.store(true, Ordering::SeqCst);
        gate.open();
        // The one that panics may be it.
        if in_time("the first write", move || first.join()).is_ok_and(|r| r.is_ok()) {
            told.push("first".to_owned());
        }
        let outcomes: Vec<_> = writers
            .into_iter()
            .map(|w| in_time("a write", move || w.join().unwrap()))
            .collect();
        assert!(!armed.load(Ordering::SeqCst), "nobody panicked");
        let other = Arc::clone(&db);
        in_time("what comes after", move || {
            // Refused, as the group may be there in part; not waited for.
            let e = put(&other, &SYNC, "later").unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Aborted);
            other
                .flush_opt(&FlushOptions::default(), &other.default_column_family())
                .unwrap_err();
            other.resume().unwrap();
            put(&other, &SYNC, "resumed").unwrap();
            other.flush().unwrap();
        });
        told.push("resumed".to_owned());
        for key in &told {
            assert!(db.get(key).unwrap().is_some(), "{key}");
        }
        drop(outcomes);
        let db = Arc::into_inner(db).unwrap();
        in_time("close", move || db.close().unwrap());
        let db = machine.open();
        for key in &told {
            assert!(db.get(key).unwrap().is_some(), "{key}");
        }
    }
}

/// `wait_durable` refused a number that `write_async` had just returned, while an earlier synced group
/// was on its way: what comes behind that is not visible yet.
#[test]
fn a_number_that_was_returned_can_be_waited_for() {
    let (machine, gate) = Machine::gated(WalIoMode::Buffered);
    let db = Arc::new(machine.open());
    gate.close(log_syncs);
    let synced = start({
        let db = Arc::clone(&db);
        move || put(&db, &SYNC, "synced")
    });
    gate.until_held();
    let write = db
        .write_async(&WriteOptions::default(), batch("async"))
        .unwrap();
    let waiting = start({
        let db = Arc::clone(&db);
        move || db.wait_durable(write.seq)
    });
    a_moment();
    gate.open();
    in_time("the wait", move || waiting.join().unwrap().unwrap());
    synced.join().unwrap().unwrap();
    let e = db.wait_durable(write.seq + 1).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
}

/// After `resume` the MANIFEST still asked for the log that had failed: a family whose memtable was
/// waiting for its flush, with nothing written since, stayed at it. The next open stopped at the half
/// record there, and what was written and synced after `resume` was lost, though nothing had crashed.
#[test]
fn a_log_that_failed_is_not_replayed_after_resume() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = machine.open();
    db.put("before", "v").unwrap();
    db.pause_background_work().unwrap();
    let background = FlushOptions {
        wait: false,
        allow_write_stall: true,
    };
    db.flush_opt(&background, &db.default_column_family())
        .unwrap();
    let other = db
        .create_column_family("other", &machine.options.cf)
        .unwrap();
    machine
        .disk
        .fail_on(Fault::Eio, Repeat::Forever, |act, path| {
            (act == Act::Write || act == Act::Sync) && is_log(path)
        });
    let failed = db.put_opt(&SYNC, &other, "failed", vec![b'v'; 3000]);
    failed.unwrap_err();
    machine.disk.clear_faults();
    db.continue_background_work().unwrap();
    db.resume().unwrap();
    put(&db, &SYNC, "after").unwrap();
    db.close().unwrap();
    let db = machine.open();
    for key in ["before", "after"] {
        assert!(db.get(key).unwrap().is_some(), "{key}");
    }
}

/// Writes when a flush is done, on the thread that flushes.
#[derive(Default)]
struct WritesAfterFlush {
    db: OnceLock<std::sync::Weak<Db>>,
    wrote: AtomicU64,
}

impl EventListener for WritesAfterFlush {
    fn on_flush_completed(&self, _: &ironstone::listener::FlushJobInfo) {
        if let Some(db) = self.db.get().and_then(std::sync::Weak::upgrade) {
            drop(put(&db, &SYNC, "in the listener"));
            self.wrote.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// `resume` held the gate and waited for a flush, whose listener wrote, and waited at the gate.
#[test]
fn a_listener_that_writes_after_a_flush_does_not_hold_resume_up() {
    let listener = Arc::new(WritesAfterFlush::default());
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine
        .options
        .env
        .listeners
        .add(Arc::clone(&listener) as _);
    let db = Arc::new(machine.open());
    listener.db.set(Arc::downgrade(&db)).unwrap();
    db.put("in a memtable", "v").unwrap();
    machine.disk.fail_on(Fault::Sync, Repeat::Once, log_sync);
    put(&db, &SYNC, "fails").unwrap_err();
    let other = Arc::clone(&db);
    in_time("resume", move || other.resume().unwrap());
    until("the listener has written", || {
        listener.wrote.load(Ordering::SeqCst) > 0
    });
    put(&db, &SYNC, "after").unwrap();
}

/// Takes its time when a flush begins.
struct SlowFlush(AtomicBool);

impl EventListener for SlowFlush {
    fn on_flush_begin(&self, _: &ironstone::listener::FlushJobInfo) {
        self.0.store(true, Ordering::SeqCst);
        a_moment();
    }
}

/// `resume` returned at once when somebody else was resuming, such as the thread that does so after a
/// full device: the failure is cleared early, for the flushes. The next write was still refused.
#[test]
fn resume_waits_for_one_that_is_under_way() {
    let listener = Arc::new(SlowFlush(AtomicBool::new(false)));
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine
        .options
        .env
        .listeners
        .add(Arc::clone(&listener) as _);
    let db = Arc::new(machine.open());
    db.put("in a memtable", "v").unwrap();
    machine.disk.fail_on(Fault::Sync, Repeat::Once, log_sync);
    put(&db, &SYNC, "fails").unwrap_err();
    let resuming = start({
        let db = Arc::clone(&db);
        move || db.resume()
    });
    until("the flush of resume", || listener.0.load(Ordering::SeqCst));
    db.resume().unwrap();
    put(&db, &SYNC, "after").unwrap();
    resuming.join().unwrap().unwrap();
}

/// Holds flushes until it is told to let them go on.
#[derive(Default)]
struct HeldFlush {
    begun: AtomicBool,
    go: AtomicBool,
}

impl EventListener for HeldFlush {
    fn on_flush_begin(&self, _: &ironstone::listener::FlushJobInfo) {
        self.begun.store(true, Ordering::SeqCst);
        until("the flush may go on", || self.go.load(Ordering::SeqCst));
    }
}

/// While `resume` brought memtables to tables, the log was a new one with nothing in it: `sync_wal` found
/// nothing to do and returned, though what had been written was in no log that counts and in no table yet.
/// When the flush then failed too, it was gone with the process.
#[test]
fn nothing_is_durable_while_resume_flushes() {
    let listener = Arc::new(HeldFlush::default());
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine
        .options
        .env
        .listeners
        .add(Arc::clone(&listener) as _);
    let db = Arc::new(machine.open());
    put(&db, &WriteOptions::default(), "in a memtable").unwrap();
    machine.disk.fail_on(Fault::Sync, Repeat::Once, log_sync);
    put(&db, &SYNC, "fails").unwrap_err();
    let resuming = start({
        let db = Arc::clone(&db);
        move || db.resume()
    });
    until("the flush of resume", || {
        listener.begun.load(Ordering::SeqCst)
    });
    let claimed = [db.sync_wal(), db.flush_wal(false)];
    listener.go.store(true, Ordering::SeqCst);
    resuming.join().unwrap().unwrap();
    for claim in claimed {
        claim.unwrap_err();
    }
    db.sync_wal().unwrap();
}

/// Panics when it is first asked whether a file may stay as it is.
#[derive(Debug)]
struct PanicsOnce(AtomicBool);

impl ironstone::SstPartitionerFactory for PanicsOnce {
    fn name(&self) -> &'static str {
        "panics once"
    }

    fn create_partitioner(
        &self,
        _: &ironstone::PartitionerContext<'_>,
    ) -> Option<Box<dyn ironstone::SstPartitioner>> {
        assert!(self.0.swap(true, Ordering::SeqCst), "as planned");
        None
    }
}

/// A partitioner panicked when a compaction asked it whether files may move as they are. The files
/// counted as being compacted from then on, and whoever asked for a compaction of them waited for ever.
#[test]
fn a_partitioner_that_panics_leaves_no_files_behind() {
    let mut machine = Machine::new(WalIoMode::Buffered);
    let factory = PanicsOnce(AtomicBool::new(false));
    machine.options.cf.sst_partitioner_factory = Some(Arc::new(factory));
    let db = Arc::new(machine.open());
    db.put("a key", "v").unwrap();
    db.flush().unwrap();
    in_time("compact_range", move || {
        let default = db.default_column_family();
        db.compact_range(&default, None, None).unwrap_err();
        db.resume().unwrap();
        db.compact_range(&default, None, None).unwrap();
        db.wait_for_compact().unwrap();
    });
}

/// Writes when a flush begins, on the thread that flushes, until it is refused.
#[derive(Default)]
struct FillsMemtables {
    db: OnceLock<std::sync::Weak<Db>>,
    refused: Mutex<Option<Error>>,
}

impl EventListener for FillsMemtables {
    fn on_flush_begin(&self, _: &ironstone::listener::FlushJobInfo) {
        let Some(db) = self.db.get().and_then(std::sync::Weak::upgrade) else {
            return;
        };
        let refused = (0..20).find_map(|i| db.put(format!("{i}"), vec![b'v'; 16 << 10]).err());
        *self.refused.lock().unwrap() = refused;
    }
}

/// A listener wrote on the thread that flushes, filled the memtables, and waited for the flush that
/// waited for it: for ever.
#[test]
fn a_listener_on_a_thread_that_flushes_does_not_wait_for_itself() {
    let listener = Arc::new(FillsMemtables::default());
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.cf.cf.write_buffer_size = 64 << 10;
    machine.options.cf.cf.max_write_buffer_number = 2;
    machine
        .options
        .env
        .listeners
        .add(Arc::clone(&listener) as _);
    let db = Arc::new(machine.open());
    listener.db.set(Arc::downgrade(&db)).unwrap();
    db.put("in a memtable", "v").unwrap();
    let flushing = Arc::clone(&db);
    in_time("flush", move || flushing.flush().unwrap());
    let refused = listener.refused.lock().unwrap().take().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Incomplete, "{refused}");
    put(&db, &SYNC, "after").unwrap();
}

/// Calls what waits for flushes and compactions, on the threads that do them.
#[derive(Default)]
struct Waits {
    db: OnceLock<std::sync::Weak<Db>>,
    refused: AtomicU64,
}

impl Waits {
    fn call(&self, calls: &[fn(&Db) -> base::Result<()>]) {
        let Some(db) = self.db.get().and_then(std::sync::Weak::upgrade) else {
            return;
        };
        for call in calls {
            let e = call(&db).unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Busy, "{e}");
            self.refused.fetch_add(1, Ordering::SeqCst);
        }
        db.cancel_all_background_work(true);
    }
}

impl EventListener for Waits {
    fn on_flush_completed(&self, _: &ironstone::listener::FlushJobInfo) {
        self.call(&[Db::flush, Db::wait_for_compact, Db::pause_background_work]);
    }

    fn on_compaction_completed(&self, _: &ironstone::listener::CompactionJobInfo) {
        self.call(&[
            |db| db.compact_range(&db.default_column_family(), None, None),
            Db::wait_for_compact,
            Db::pause_background_work,
        ]);
    }
}

/// A listener that flushed on the only thread that flushes waited for itself.
#[test]
fn a_listener_is_told_what_would_wait_for_itself() {
    for compacts in [false, true] {
        let listener = Arc::new(Waits::default());
        let mut machine = Machine::new(WalIoMode::Buffered);
        machine
            .options
            .env
            .listeners
            .add(Arc::clone(&listener) as _);
        let db = Arc::new(machine.open());
        for key in ["a key", "a key", "another"] {
            db.put(key, "v").unwrap();
            db.flush().unwrap();
        }
        listener.db.set(Arc::downgrade(&db)).unwrap();
        in_time("a job", move || {
            if compacts {
                drop(db.compact_range(&db.default_column_family(), None, None));
            } else {
                db.put("the last", "v").unwrap();
                drop(db.flush());
            }
            until("the listener was refused", || {
                listener.refused.load(Ordering::SeqCst) >= 3
            });
        });
    }
}

/// A writer that must not wait had queued before writes were stopped, behind one that then waited: it
/// waited too. Where it was a listener on a thread that flushes, that was for ever.
#[test]
fn a_write_that_must_not_wait_does_not_wait_behind_one_that_does() {
    let (mut machine, gate) = Machine::gated(WalIoMode::Buffered);
    machine.options.cf.cf.write_buffer_size = 64 << 10;
    machine.options.cf.cf.max_write_buffer_number = 2;
    let db = Arc::new(machine.open());
    db.put("in a memtable", "v").unwrap();
    db.pause_background_work().unwrap();
    let background = FlushOptions {
        wait: false,
        allow_write_stall: true,
    };
    db.flush_opt(&background, &db.default_column_family())
        .unwrap();
    gate.close(log_writes);
    let writer = |key: &'static str, bytes, options: WriteOptions| {
        let db = Arc::clone(&db);
        let writer = start(move || {
            let default = db.default_column_family();
            db.put_opt(&options, &default, key, vec![b'v'; bytes])
        });
        a_moment();
        writer
    };
    let fills = writer("fills a memtable", 70 << 10, WriteOptions::default());
    gate.until_held();
    let waits = writer("waits", 1, WriteOptions::default());
    let no_slowdown = WriteOptions {
        no_slowdown: true,
        ..WriteOptions::default()
    };
    let refused = writer("refused", 1, no_slowdown);
    gate.open();
    fills.join().unwrap().unwrap();
    let refused = in_time("no_slowdown", move || refused.join().unwrap());
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Incomplete);
    assert!(!waits.is_finished());
    db.continue_background_work().unwrap();
    in_time("the other", move || waits.join().unwrap().unwrap());
}

/// Files for a key that is written all the time.
fn external_file(machine: &Machine, path: &str) {
    let mut writer = ironstone::SstFileWriter::new(&machine.options);
    writer.open(path).unwrap();
    writer.put("a key", "ingested").unwrap();
    writer.finish().unwrap();
}

/// An ingestion held writers back while it waited for a flush. When background work was paused just
/// then, and whoever had paused it wrote, nobody went on; nor did a listener that wrote on the thread
/// that flushes.
#[test]
fn an_ingestion_holds_up_nobody_whom_its_flush_waits_for() {
    let listener = Arc::new(WritesAfterFlush::default());
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine
        .options
        .env
        .listeners
        .add(Arc::clone(&listener) as _);
    let db = Arc::new(machine.open());
    listener.db.set(Arc::downgrade(&db)).unwrap();
    let done = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = [false, true]
        .map(|pauses| {
            let (db, done) = (Arc::clone(&db), Arc::clone(&done));
            start(move || {
                while !done.load(Ordering::Relaxed) {
                    if pauses {
                        db.pause_background_work().unwrap();
                    }
                    db.put("a key", "written").unwrap();
                    if pauses {
                        db.continue_background_work().unwrap();
                        std::thread::sleep(Duration::from_millis(2));
                    }
                }
            })
        })
        .into();
    for i in 0..30 {
        let path = format!("/{i}.sst");
        external_file(&machine, &path);
        let ingesting = Arc::clone(&db);
        in_time("an ingestion", move || {
            let how = ironstone::IngestExternalFileOptions::default();
            ingesting.ingest_external_file(&[path], &how).unwrap();
        });
    }
    done.store(true, Ordering::Relaxed);
    for thread in busy {
        in_time("a writer", move || thread.join().unwrap());
    }
}
