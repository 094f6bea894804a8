//! Writes whose durability is awaited later, and locked logs.

use std::path::Path;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Wake, Waker};

use ironstone::WalIoMode;
use ironstone::{Db, Durable, ErrorKind, PendingWrite, WriteBatch, WriteOptions};
use sim::disk::{Fault, Repeat};

use super::{
    DIR, LONG, Machine, SYNC, in_time, is_log, log_sync, log_syncs, put, start, until, write_async,
};

/// Counts its wake-ups.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

fn poll(durable: &mut Durable, waker: &Waker) -> Poll<base::Result<()>> {
    Pin::new(durable).poll(&mut Context::from_waker(waker))
}

/// The outcome, which must come in time.
fn outcome(durable: &Durable) -> base::Result<()> {
    let (tx, rx) = mpsc::channel();
    durable.on_ready(move |r| drop(tx.send(r)));
    rx.recv_timeout(LONG).expect("nothing comes of it")
}

#[test]
fn futures_callbacks_and_waits_are_told_when_it_is_durable() {
    let (machine, gate) = Machine::gated(WalIoMode::Buffered);
    let db = machine.open();
    let mut told = vec![put(&db, &SYNC, "before").unwrap()];
    gate.close(log_syncs);
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    let mut polled = write_async(&db, "polled");
    polled.applied.wait().unwrap();
    assert!(db.get("polled").unwrap().is_some());
    assert!(poll(&mut polled.durable, &waker).is_pending());
    let called = write_async(&db, "called");
    let (tx, rx) = mpsc::channel();
    called
        .durable
        .on_ready(move |r| tx.send(r.is_ok()).unwrap());
    let waited = write_async(&db, "waited");
    assert!(polled.seq < called.seq && called.seq < waited.seq);
    assert!(!waited.durable.is_ready() && rx.try_recv().is_err());
    assert!(db.durable_seq() < polled.seq);
    let nothing = sim::disk::CrashKind::Nothing;
    let early = machine
        .disk
        .crash_image(&mut base::rng::Rng::new(1), nothing);
    let perhaps = ["polled", "called", "waited"].map(str::to_owned);
    machine.reopen(&early, &told, &perhaps, "before it is durable");
    gate.open();
    waited.durable.wait().unwrap();
    assert!(rx.recv_timeout(LONG).unwrap());
    until("the waker is called", || woken.0.load(Ordering::SeqCst) > 0);
    assert!(matches!(
        poll(&mut polled.durable, &waker),
        Poll::Ready(Ok(()))
    ));
    assert!(db.durable_seq() >= waited.seq);
    told.extend(perhaps);
    machine.cut_power(&told, &[]);
}

#[test]
fn an_error_reaches_all_who_wait_and_those_who_come_late() {
    let (machine, gate) = Machine::gated(WalIoMode::Buffered);
    let db = machine.open();
    let mut told = vec![put(&db, &SYNC, "before").unwrap()];
    gate.close(log_syncs);
    let mut writes: Vec<PendingWrite> = (0..4)
        .map(|i| write_async(&db, &format!("async{i}")))
        .collect();
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(poll(&mut writes[0].durable, &waker).is_pending());
    let (tx, rx) = mpsc::channel();
    writes[1]
        .durable
        .on_ready(move |r| tx.send(r.is_err()).unwrap());
    let waits = writes[2].durable.clone();
    machine.disk.fail_on(Fault::Sync, Repeat::Forever, log_sync);
    let thread = start(move || waits.wait());
    gate.open();
    assert!(rx.recv_timeout(LONG).unwrap());
    thread.join().unwrap().unwrap_err();
    until("the waker is called", || woken.0.load(Ordering::SeqCst) > 0);
    // A waiter that comes only now gets the error too.
    for write in &writes {
        outcome(&write.durable).unwrap_err();
    }
    assert!(matches!(
        poll(&mut writes[0].durable, &waker),
        Poll::Ready(Err(_))
    ));
    machine.disk.clear_faults();
    db.resume().unwrap();
    // The writes are in tables now.
    for write in &writes {
        outcome(&write.durable).unwrap();
    }
    told.extend((0..4).map(|i| format!("async{i}")));
    let late = write_async(&db, "after");
    outcome(&late.durable).unwrap();
    told.push("after".to_owned());
    machine.cut_power(&told, &[]);
}

/// A log is not given up when the device is only full: waiting writes become durable later.
#[test]
fn what_waits_for_space_is_durable_when_there_is_some() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = machine.open();
    let mut told = vec![put(&db, &SYNC, "before").unwrap()];
    machine
        .disk
        .fail_on(Fault::NoSpace, Repeat::Forever, super::growing_write);
    let write = write_async(&db, "waits");
    std::thread::sleep(std::time::Duration::from_millis(30));
    assert!(!write.durable.is_ready());
    machine.disk.clear_faults();
    until("it is durable", || write.durable.is_ready());
    outcome(&write.durable).unwrap();
    told.push("waits".to_owned());
    machine.cut_power(&told, &[]);
}

/// A waiter gets an error when its time is over; the write becomes durable when there is space.
#[test]
fn who_waits_for_space_is_told_when_it_does_not_come() {
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.db.wal_no_space_wait_ms = 30;
    let db = machine.open();
    machine
        .disk
        .fail_on(Fault::NoSpace, Repeat::Forever, super::growing_write);
    let write = write_async(&db, "waits");
    for _ in 0..2 {
        let e = outcome(&write.durable).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NoSpace);
    }
    machine.disk.clear_faults();
    until("it is durable", || write.durable.is_ready());
    machine.cut_power(&["waits".to_owned()], &[]);
    outcome(&write_async(&db, "after").durable).unwrap();
}

/// Writes that only go to the memory of the process say nothing about space: whoever waits is told in time, however many of
/// them come.
#[test]
fn writes_in_the_process_do_not_prolong_the_wait_for_space() {
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.db.wal_no_space_wait_ms = 300;
    let db = machine.open();
    machine
        .disk
        .fail_on(Fault::NoSpace, Repeat::Forever, super::growing_write);
    let (tx, rx) = mpsc::channel();
    let first = write_async(&db, "async0000");
    first.durable.on_ready(move |r| drop(tx.send(r)));
    let mut told = vec!["async0000".to_owned()];
    let outcome_of_first = loop {
        assert!(told.len() < 3000, "it waits for ever");
        let key = format!("async{:04}", told.len());
        drop(write_async(&db, &key));
        told.push(key);
        if let Ok(outcome) = rx.recv_timeout(std::time::Duration::from_millis(10)) {
            break outcome;
        }
    };
    let e = outcome_of_first.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
    let stalls = machine.log_text().matches("Stalling writes").count();
    assert_eq!(stalls, 1);
    machine.disk.clear_faults();
    let last = write_async(&db, "last");
    told.push("last".to_owned());
    until("it is durable", || last.durable.is_ready());
    machine.cut_power(&told, &[]);
}

#[test]
fn dropped_futures_change_nothing() {
    for mode in [WalIoMode::Buffered, WalIoMode::Direct] {
        let machine = Machine::new(mode);
        let db = machine.open();
        let mut told = Vec::new();
        let mut last = 0;
        for i in 0..100 {
            let key = format!("dropped{i:03}");
            let mut write = write_async(&db, &key);
            last = write.seq;
            if i % 3 == 0 {
                drop(poll(&mut write.durable, Waker::noop()));
            }
            told.push(key);
        }
        until("all are durable", || db.durable_seq() >= last);
        machine.cut_power(&told, &[]);
    }
}

/// A write for which only `applied` is ready waits in the process for the device write before it, and dies
/// with the process there. It is handed over afterwards without any further call.
#[test]
fn what_is_written_asynchronously_waits_in_the_process_for_one_device_write() {
    let (machine, gate) = Machine::gated(WalIoMode::Buffered);
    let db = machine.open();
    let survives = |key: &str| {
        let mut options = machine.options.clone();
        options.env.fs = machine.disk.kill_image().shared();
        let db = Db::open_all(DIR, &options).unwrap();
        db.get(key).unwrap().is_some()
    };
    gate.close(log_syncs);
    let first = write_async(&db, "first");
    first.applied.wait().unwrap();
    gate.until_held();
    assert!(survives("first"));
    let second = write_async(&db, "second");
    second.applied.wait().unwrap();
    assert!(db.get("second").unwrap().is_some() && !survives("second"));
    gate.open();
    until("the second write is handed over", || survives("second"));
    outcome(&second.durable).unwrap();
}

#[test]
fn wait_durable_refuses_what_was_not_logged() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = machine.open();
    db.put("logged", "v").unwrap();
    let logged = db.latest_sequence_number();
    let unlogged = WriteOptions {
        disable_wal: true,
        ..WriteOptions::default()
    };
    put(&db, &unlogged, "unlogged").unwrap();
    let last = db.latest_sequence_number();
    db.wait_durable(logged).unwrap();
    for seq in [last, last + 1] {
        let e = db.wait_durable(seq).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument, "{e}");
    }
    let mut batch = WriteBatch::new();
    batch.put("k", "v").unwrap();
    let e = db.with(&unlogged).write_async(batch).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidArgument);
    machine.cut_power(&["logged".to_owned()], &["unlogged".to_owned()]);
}

#[test]
fn close_makes_pending_writes_durable() {
    let (machine, gate) = Machine::gated(WalIoMode::Buffered);
    let db = machine.open();
    gate.close(log_syncs);
    let writes: Vec<PendingWrite> = (0..3)
        .map(|i| write_async(&db, &format!("async{i}")))
        .collect();
    let opens = Arc::clone(&gate);
    let closing = start(move || in_time("close", move || db.close()));
    std::thread::sleep(std::time::Duration::from_millis(20));
    opens.open();
    closing.join().unwrap().unwrap();
    for write in &writes {
        outcome(&write.durable).unwrap();
    }
    let told: Vec<String> = (0..3).map(|i| format!("async{i}")).collect();
    machine.cut_power(&told, &[]);
}

#[test]
fn close_on_a_device_that_fails_tells_who_waits() {
    for fault in [Fault::Sync, Fault::NoSpace] {
        let (machine, gate) = Machine::gated(WalIoMode::Buffered);
        let db = machine.open();
        gate.close(log_syncs);
        let write = write_async(&db, "async");
        machine.disk.fail_on(fault, Repeat::Forever, |act, path| {
            log_sync(act, path) || super::growing_write(act, path)
        });
        gate.open();
        drop(in_time("close", move || db.close()));
        outcome(&write.durable).unwrap_err();
    }
}

pub(super) fn bytes_of_logs(machine: &Machine) -> Vec<(String, Vec<u8>)> {
    let logs = machine.names(DIR).into_iter();
    logs.filter(|n| is_log(Path::new(n)))
        .map(|n| {
            let bytes = io::read_file(&machine.disk, &Path::new(DIR).join(&n), 1 << 30).unwrap();
            (n, bytes)
        })
        .collect()
}

#[test]
fn a_locked_log_does_not_change_and_its_writers_wait() {
    for mode in [WalIoMode::Buffered, WalIoMode::Direct] {
        let mut machine = Machine::new(mode);
        machine.options.db.manual_wal_flush = mode == WalIoMode::Buffered;
        let db = machine.open();
        let mut told = vec![put(&db, &SYNC, "before").unwrap()];
        told.push(put(&db, &WriteOptions::default(), "in the process").unwrap());
        db.lock_wal().unwrap();
        db.lock_wal().unwrap();
        let before = bytes_of_logs(&machine);
        let all: Vec<u8> = before.iter().flat_map(|(_, b)| b.clone()).collect();
        let handed_over = String::from_utf8_lossy(&all).contains("in the process");
        assert!(handed_over, "lock_wal hands over what the process has");
        std::thread::scope(|scope| {
            let writers: Vec<_> = [SYNC, WriteOptions::default()]
                .into_iter()
                .enumerate()
                .map(|(i, options)| {
                    let db = &db;
                    scope.spawn(move || put(db, &options, &format!("waits{i}")))
                })
                .collect();
            let impatient = WriteOptions {
                no_slowdown: true,
                ..WriteOptions::default()
            };
            std::thread::sleep(std::time::Duration::from_millis(30));
            db.unlock_wal().unwrap();
            std::thread::sleep(std::time::Duration::from_millis(30));
            assert!(writers.iter().all(|w| !w.is_finished()), "locks nest");
            assert_eq!(bytes_of_logs(&machine), before);
            db.unlock_wal().unwrap();
            for writer in writers {
                told.push(writer.join().unwrap().unwrap());
            }
            db.lock_wal().unwrap();
            let e = put(&db, &impatient, "refused").unwrap_err();
            assert_eq!(e.kind(), ErrorKind::Incomplete, "{e}");
            db.unlock_wal().unwrap();
        });
        db.unlock_wal().unwrap_err();
        told.push(put(&db, &SYNC, "after").unwrap());
        machine.cut_power(&told, &[]);
    }
}

#[test]
fn close_does_not_wait_for_a_lock() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = machine.open();
    let told = [put(&db, &SYNC, "before").unwrap()];
    write_async(&db, "async").durable.wait().unwrap();
    db.lock_wal().unwrap();
    in_time("close", move || db.close()).unwrap();
    machine.cut_power(&told, &["async".to_owned()]);
}

/// The failure was a full device, from which the database tries to resume by itself: the resume waited for
/// the lock, and the close waited for the resume.
#[test]
fn close_while_locked_and_failed_does_not_hang() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = machine.open();
    let told = [put(&db, &SYNC, "before").unwrap()];
    machine
        .disk
        .fail_on(Fault::NoSpace, Repeat::Forever, |_, path| {
            path.extension().is_some_and(|e| e == "sst")
        });
    let wait = ironstone::FlushOptions {
        wait: false,
        ..ironstone::FlushOptions::default()
    };
    db.lock_wal().unwrap();
    db.unlock_wal().unwrap();
    db.with(&wait).flush().unwrap();
    while db.lock_wal().is_ok() {
        if machine.log_text().contains("refuses writes") {
            break;
        }
        db.unlock_wal().unwrap();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    std::thread::sleep(std::time::Duration::from_millis(300));
    drop(in_time("close", move || db.close()));
    machine.cut_power(&told, &[]);
}
