//! Several threads together with code of the application: callbacks, wakers, listeners, comparators,
//! partitioners. Each of these hung, wedged or lost a database once.

use std::cmp::Ordering as Order;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, mpsc};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use base::Error;
use ironstone::WalIoMode;
use ironstone::listener::{
    BackgroundErrorReason, CompactionJobInfo, FlushJobInfo, MemTableInfo, TableFileDeletionInfo,
};
use ironstone::{Comparator, Db, Durable, ErrorKind, EventListener, UserComparator, WriteBatch};
use sim::disk::{Fault, Repeat};

use super::{
    LONG, Machine, SYNC, a_moment, in_time, log_sync, log_syncs, put, start, until, with,
    write_async,
};

/// A callback that panicked ended the thread that writes asynchronous writes to the device.
#[test]
fn a_callback_that_panics_takes_no_thread_along() {
    let (machine, gate) = Machine::gated(WalIoMode::Buffered);
    let db = machine.open();
    for _ in 0..3 {
        gate.close(log_syncs);
        let write = write_async(&db, "k");
        gate.until_held();
        write.durable.on_ready(|_| panic!("a callback"));
        gate.open();
        write.durable.wait().unwrap();
    }
    let late = write_async(&db, "late").durable;
    in_time("a later write", move || late.wait().unwrap());
}

/// Callbacks ran with the log locked: a callback that wrote waited for itself.
#[test]
fn a_callback_may_write_and_wait() {
    for step in ["write", "sync", "async", "wait"] {
        let (machine, gate) = Machine::gated(WalIoMode::Auto);
        let db = Arc::new(machine.open());
        gate.close(log_syncs);
        let write = write_async(&db, "k");
        gate.until_held();
        let (tx, rx) = mpsc::channel();
        let other = Arc::clone(&db);
        write.durable.on_ready(move |_| {
            match step {
                "write" => other.put("in the callback", "v").unwrap(),
                "sync" => drop(put(&other, &SYNC, "in the callback").unwrap()),
                "async" => drop(write_async(&other, "in the callback")),
                _ => {
                    let write = write_async(&other, "in the callback");
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

/// A waker also ran with the log locked: an executor that polls inline waited for itself.
#[test]
fn an_executor_may_poll_inline() {
    let (machine, gate) = Machine::gated(WalIoMode::Buffered);
    let db = Arc::new(machine.open());
    let (done, rx) = mpsc::channel();
    gate.close(log_syncs);
    let write = write_async(&db, "k");
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

/// Listeners were called with the log, the MANIFEST or the gate locked: a listener that read the log or
/// wrote waited for itself.
#[test]
fn a_listener_may_call_the_database() {
    let caller = Arc::new(Caller::default());
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.cf.write_buffer_size = 64 << 10;
    machine.listen(&caller);
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

/// An order that panics once, when it is armed.
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

/// A comparator that panicked in one put wedged all writers and flushes for ever: the group, its place in
/// the order, the gate and the leadership were not given back.
#[test]
fn nobody_waits_for_a_writer_that_panicked() {
    for threads in [1, 8] {
        let armed = Arc::new(AtomicBool::new(false));
        let (mut machine, gate) = Machine::gated(WalIoMode::Buffered);
        machine.options.cf.comparator = Comparator::user(Arc::new(Fragile(Arc::clone(&armed))));
        let db = Arc::new(machine.open());
        let mut told = ["before", "between"]
            .map(|k| put(&db, &SYNC, k).unwrap())
            .to_vec();
        gate.close(log_syncs);
        let first = start(with(&db, |db| put(db, &SYNC, "first")));
        gate.until_held();
        // The writers are one group, large enough that its members insert their own batches.
        let writers: Vec<_> = (0..threads)
            .map(|n| {
                let db = Arc::clone(&db);
                start(move || {
                    let mut batch = WriteBatch::new();
                    for i in 0..20 {
                        batch.put(format!("panic{n}-{i}"), "v").unwrap();
                    }
                    let write = || db.with(&SYNC).write(&mut batch);
                    catch_unwind(AssertUnwindSafe(write)).map_err(drop)
                })
            })
            .collect();
        a_moment();
        armed.store(true, Ordering::SeqCst);
        gate.open();
        // The first writer may be the one that panics.
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
            // Refused, since a part of the group may be there; but it does not hang.
            let e = put(&other, &SYNC, "later").unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Aborted);
            other
                .cf(&other.default_column_family())
                .flush()
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

/// Writes when a flush is done, on the thread that flushes.
#[derive(Default)]
struct WritesAfterFlush {
    db: OnceLock<std::sync::Weak<Db>>,
    wrote: AtomicU64,
}

impl EventListener for WritesAfterFlush {
    fn on_flush_completed(&self, _: &FlushJobInfo) {
        if let Some(db) = self.db.get().and_then(std::sync::Weak::upgrade) {
            drop(put(&db, &SYNC, "in the listener"));
            self.wrote.fetch_add(1, Ordering::SeqCst);
        }
    }
}

/// `resume` held the gate and waited for a flush, whose listener wrote and waited at the gate.
#[test]
fn a_listener_that_writes_after_a_flush_does_not_hold_resume_up() {
    let listener = Arc::new(WritesAfterFlush::default());
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.listen(&listener);
    let db = Arc::new(machine.open());
    listener.db.set(Arc::downgrade(&db)).unwrap();
    db.put("in a memtable", "v").unwrap();
    machine.fail_a_sync(&db);
    let other = Arc::clone(&db);
    in_time("resume", move || other.resume().unwrap());
    until("the listener has written", || {
        listener.wrote.load(Ordering::SeqCst) > 0
    });
    put(&db, &SYNC, "after").unwrap();
}

/// Panics at the first question whether a file may be moved as it is.
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

/// A partitioner panicked when a compaction asked it whether files may be moved as they are. The files
/// counted as being compacted from then on, and every manual compaction of them waited for ever.
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
        db.cf(&default).compact_range(None, None).unwrap_err();
        db.resume().unwrap();
        db.cf(&default).compact_range(None, None).unwrap();
        db.wait_for_compact().unwrap();
    });
}

/// Writes when a flush begins, on the thread that flushes, until a write is refused.
#[derive(Default)]
struct FillsMemtables {
    db: OnceLock<std::sync::Weak<Db>>,
    refused: Mutex<Option<Error>>,
}

impl EventListener for FillsMemtables {
    fn on_flush_begin(&self, _: &FlushJobInfo) {
        let Some(db) = self.db.get().and_then(std::sync::Weak::upgrade) else {
            return;
        };
        let refused = (0..20).find_map(|i| db.put(format!("{i}"), vec![b'v'; 16 << 10]).err());
        *self.refused.lock().unwrap() = refused;
    }
}

/// A listener wrote on the thread that flushes, filled the memtables, and waited for the flush, which
/// waited for the listener.
#[test]
fn a_listener_on_a_thread_that_flushes_does_not_wait_for_itself() {
    let listener = Arc::new(FillsMemtables::default());
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.cf.write_buffer_size = 64 << 10;
    machine.options.cf.max_write_buffer_number = 2;
    machine.listen(&listener);
    let db = Arc::new(machine.open());
    listener.db.set(Arc::downgrade(&db)).unwrap();
    db.put("in a memtable", "v").unwrap();
    let flushing = Arc::clone(&db);
    in_time("flush", move || flushing.flush().unwrap());
    let refused = listener.refused.lock().unwrap().take().unwrap();
    assert_eq!(refused.kind(), ErrorKind::Incomplete, "{refused}");
    put(&db, &SYNC, "after").unwrap();
}

/// Makes calls that wait for flushes and compactions, on the threads that do them.
#[derive(Default)]
struct Waits {
    db: OnceLock<std::sync::Weak<Db>>,
    /// True: acts on events of compactions; false: of flushes.
    of_compactions: bool,
    calls: AtomicU64,
    not_refused: Mutex<Vec<String>>,
}

/// Makes a call on the thread that reports the event.
struct Calls {
    db: OnceLock<std::sync::Weak<Db>>,
    call: fn(&Db) -> base::Result<()>,
    done: Mutex<Vec<base::Result<()>>>,
}

impl Calls {
    fn new(call: fn(&Db) -> base::Result<()>) -> Arc<Self> {
        Arc::new(Self {
            db: OnceLock::new(),
            call,
            done: Mutex::default(),
        })
    }

    fn call(&self) {
        let Some(db) = self.db.get().and_then(std::sync::Weak::upgrade) else {
            return;
        };
        let result = (self.call)(&db);
        self.done.lock().unwrap().push(result);
    }
}

impl EventListener for Calls {
    fn on_memtable_sealed(&self, _: &MemTableInfo) {
        self.call();
    }

    fn on_table_file_deleted(&self, _: &TableFileDeletionInfo) {
        self.call();
    }
}

/// A change of options sealed a memtable, and reported it with the lock of the options held. A listener
/// that changed options waited for itself, and every later change of options or families waited too.
#[test]
fn whoever_hears_of_a_change_of_options_may_change_options() {
    let listener = Calls::new(|db| {
        let default = db.default_column_family();
        db.cf(&default)
            .set_options(&[("max_write_buffer_number", "5")])
    });
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.listen(&listener);
    let db = Arc::new(machine.open());
    db.put("in a memtable", vec![b'v'; 10_000]).unwrap();
    listener.db.set(Arc::downgrade(&db)).unwrap();
    in_time("set_db_options", move || {
        db.set_db_options(&[("max_total_wal_size", "1")]).unwrap();
        until("the listener has called", || {
            !listener.done.lock().unwrap().is_empty()
        });
    });
}

/// The deletion of files was reported while compactions of the family were held off: a listener that compacted
/// it waited for itself.
#[test]
fn whoever_hears_of_deleted_files_may_compact() {
    let listener = Calls::new(|db| db.compact_range(None, None));
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.listen(&listener);
    let db = Arc::new(machine.open());
    for key in ["a", "b"] {
        db.put(key, "v").unwrap();
        db.flush().unwrap();
    }
    db.compact_range(None, None).unwrap();
    listener.db.set(Arc::downgrade(&db)).unwrap();
    in_time("delete_files_in_range", move || {
        db.cf(&db.default_column_family())
            .delete_files_in_ranges(&[(None, None)], true)
            .unwrap();
        until("the listener has called", || {
            !listener.done.lock().unwrap().is_empty()
        });
        db.compact_range(None, None).unwrap();
    });
}

const WAITING_CALLS: [fn(&Db) -> base::Result<()>; 4] = [
    Db::flush,
    |db| db.compact_range(None, None),
    Db::wait_for_compact,
    Db::pause_background_work,
];

impl Waits {
    fn call(&self, on_compaction: bool, calls: [fn(&Db) -> base::Result<()>; 4]) {
        if on_compaction != self.of_compactions {
            return;
        }
        let Some(db) = self.db.get().and_then(std::sync::Weak::upgrade) else {
            return;
        };
        for call in calls {
            match call(&db) {
                Err(e) if e.kind() == ErrorKind::Busy => {}
                result => self.not_refused.lock().unwrap().push(format!("{result:?}")),
            }
            self.calls.fetch_add(1, Ordering::SeqCst);
        }
        db.cancel_all_background_work(true);
    }
}

impl EventListener for Waits {
    fn on_flush_completed(&self, _: &FlushJobInfo) {
        self.call(false, WAITING_CALLS);
    }

    fn on_compaction_completed(&self, _: &CompactionJobInfo) {
        self.call(true, WAITING_CALLS);
    }
}

/// A listener that flushed on the only flush thread waited for itself. A listener that flushed on a compaction
/// thread and one that compacted on a flush thread waited for each other, and both for the end of a pause.
#[test]
fn a_listener_is_told_what_would_wait_for_itself() {
    for compacts in [false, true] {
        let listener = Arc::new(Waits {
            of_compactions: compacts,
            ..Waits::default()
        });
        let mut machine = Machine::new(WalIoMode::Buffered);
        machine.listen(&listener);
        let db = Arc::new(machine.open());
        for key in ["a key", "a key", "another"] {
            db.put(key, "v").unwrap();
            db.flush().unwrap();
        }
        listener.db.set(Arc::downgrade(&db)).unwrap();
        let told = Arc::clone(&listener);
        in_time("a job", move || {
            if compacts {
                drop(db.compact_range(None, None));
            } else {
                db.put("the last", "v").unwrap();
                drop(db.flush());
            }
            until("the listener has called", || {
                told.calls.load(Ordering::SeqCst) >= 4
            });
        });
        assert_eq!(*listener.not_refused.lock().unwrap(), Vec::<String>::new());
    }
}

/// Makes a file for a key that is written all the time.
fn external_file(machine: &Machine, path: &str) {
    let mut writer = ironstone::SstFileWriter::new(&machine.options);
    writer.open(path).unwrap();
    writer.put("a key", "ingested").unwrap();
    writer.finish().unwrap();
}

/// An ingestion held writers back while it waited for a flush. If background work was paused just then, and
/// the thread that had paused it wrote, all of them waited for ever; so did a listener that wrote on the
/// flush thread.
#[test]
fn an_ingestion_holds_up_nobody_whom_its_flush_waits_for() {
    let listener = Arc::new(WritesAfterFlush::default());
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.listen(&listener);
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

/// An ingestion waited until the WAL was unlocked, and kept compactions of its family away meanwhile. The
/// thread that had locked the WAL waited for such a compaction, for ever.
#[test]
fn who_has_locked_the_wal_may_compact_what_is_ingested_into() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = Arc::new(machine.open());
    for _ in 0..2 {
        db.put("a key", "written").unwrap();
        db.flush().unwrap();
    }
    external_file(&machine, "/new.sst");
    db.lock_wal().unwrap();
    let ingesting = Arc::clone(&db);
    let ingestion = start(move || {
        let how = ironstone::IngestExternalFileOptions::default();
        ingesting.ingest_external_file(&["/new.sst"], &how)
    });
    a_moment();
    let locked = Arc::clone(&db);
    in_time("a compaction", move || {
        let default = locked.default_column_family();
        locked.cf(&default).compact_range(None, None).unwrap();
        locked.unlock_wal().unwrap();
    });
    in_time("the ingestion", move || ingestion.join().unwrap()).unwrap();
    assert_eq!(db.get("a key").unwrap().unwrap(), b"ingested"[..]);
}
