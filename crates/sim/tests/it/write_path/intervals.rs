//! Unsynced writes that the database brings to the device by itself (`wal_sync_interval_ms`), and those whose
//! durability somebody waits for later.

use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use ironstone::{Db, ErrorKind, FlushOptions, WalIoMode, WalTailPolicy, WriteBatch, WriteOptions};
use sim::disk::{Act, CrashKind, Fault, Repeat};

use super::pending::bytes_of_logs;
use super::{LONG, Machine, SYNC, growing_write, log_sync, log_syncs, put, until};

const UNSYNCED: WriteOptions = WriteOptions {
    sync: false,
    ..SYNC
};

const UNWAITED: FlushOptions = FlushOptions {
    wait: false,
    allow_write_stall: true,
};

fn machine(mode: WalIoMode, interval_ms: u64) -> Machine {
    let mut machine = Machine::new(mode);
    machine.options.db.wal_sync_interval_ms = interval_ms;
    machine
}

fn is_table(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "sst")
}

fn is_manifest(path: &Path) -> bool {
    path.to_string_lossy().contains("MANIFEST")
}

/// Writes a key without a sync. Returns the number of the write.
fn unsynced(db: &Db, key: &str) -> u64 {
    let mut batch = WriteBatch::new();
    batch.put(key, "v").unwrap();
    db.write(&mut batch).unwrap();
    batch.sequence()
}

#[test]
fn unsynced_writes_become_durable_within_the_interval() {
    for (mode, by_hand) in [
        (WalIoMode::Buffered, false),
        (WalIoMode::Buffered, true),
        (WalIoMode::Auto, false),
        (WalIoMode::Direct, false),
    ] {
        let mut machine = machine(mode, 30);
        machine.options.db.manual_wal_flush = by_hand;
        let db = machine.open();
        let mut told = Vec::new();
        // More than one interval, and a pause in which nothing is demanded.
        for i in 0..6 {
            let key = format!("unsynced{i}");
            let number = unsynced(&db, &key);
            told.push(key);
            if i % 2 == 0 {
                continue;
            }
            until("it is durable", || db.durable_seq() >= number);
            machine.cut_power(&told, &[]);
        }
    }
}

#[test]
fn without_an_interval_they_wait_for_somebody_who_asks() {
    let machine = machine(WalIoMode::Buffered, 0);
    let db = machine.open();
    let mut told = vec![put(&db, &SYNC, "before").unwrap()];
    let number = unsynced(&db, "unsynced");
    std::thread::sleep(Duration::from_millis(600)); // more than two looks
    assert!(db.durable_seq() < number);
    let nothing = machine
        .disk
        .crash_image(&mut base::rng::Rng::new(1), CrashKind::Nothing);
    machine.reopen(&nothing, &told, &[], "nobody asked");
    let durable = db.durable(number).unwrap();
    assert!(!durable.is_ready());
    let (tx, rx) = mpsc::channel();
    durable.on_ready(move |r| drop(tx.send(r)));
    rx.recv_timeout(LONG).unwrap().unwrap();
    assert!(db.durable_seq() >= number && durable.is_ready());
    told.push("unsynced".to_owned());
    machine.cut_power(&told, &[]);
    // What is durable needs no log, and what was not logged cannot become durable.
    db.durable(number).unwrap().wait().unwrap();
    let wrong = db.durable(number + 1).unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::InvalidArgument, "{wrong}");
    let unlogged = WriteOptions {
        disable_wal: true,
        ..UNSYNCED
    };
    put(&db, &unlogged, "unlogged").unwrap();
    let wrong = db.durable(db.latest_sequence_number()).unwrap_err();
    assert!(wrong.to_string().contains("not logged"), "{wrong}");
}

/// A write that comes while the device works is in the next sync.
#[test]
fn a_write_during_the_sync_is_in_the_next() {
    let (mut machine, gate) = Machine::gated(WalIoMode::Buffered);
    machine.options.db.wal_sync_interval_ms = 20;
    let db = machine.open();
    gate.close(log_syncs);
    unsynced(&db, "first");
    gate.until_held();
    let second = unsynced(&db, "second");
    gate.open();
    until("it is durable", || db.durable_seq() >= second);
    machine.cut_power(&["first".to_owned(), "second".to_owned()], &[]);
}

/// The error of a sync that nobody waits for is no secret: the database refuses writes until it is resumed.
#[test]
fn a_sync_that_fails_is_told() {
    let machine = machine(WalIoMode::Buffered, 20);
    let db = machine.open();
    let mut told = vec![put(&db, &SYNC, "before").unwrap()];
    machine.disk.fail_on(Fault::Sync, Repeat::Once, log_sync);
    unsynced(&db, "fails");
    until("writes are refused", || {
        put(&db, &UNSYNCED, "maybe").is_err()
    });
    db.resume().unwrap();
    told.push("fails".to_owned());
    let number = unsynced(&db, "after");
    until("it is durable", || db.durable_seq() >= number);
    told.push("after".to_owned());
    machine.cut_power(&told, &["maybe".to_owned()]);
}

/// The promise holds after a close, too; the next open does not make the old log durable.
#[test]
fn a_close_keeps_the_promise() {
    let machine = machine(WalIoMode::Buffered, 3_600_000);
    let db = machine.open();
    unsynced(&db, "unsynced");
    db.close().unwrap();
    machine.cut_power(&["unsynced".to_owned()], &[]);
}

/// A database that refuses writes because it could not flush still has a log. What it has answered becomes durable as was
/// promised: within the interval, at a close, and if the log is given up by a resume that fails.
#[test]
fn a_failure_of_something_else_does_not_end_the_promise() {
    for (how, interval_ms) in [
        ("interval", 200),
        ("interval, and attempts to resume", 200),
        ("resume", 3_600_000),
        ("close", 3_600_000),
    ] {
        for by_hand in [false, true] {
            let (mut machine, gate) = Machine::gated(WalIoMode::Buffered);
            machine.options.db.wal_sync_interval_ms = interval_ms;
            machine.options.db.manual_wal_flush = by_hand;
            let attempts = how.ends_with("attempts to resume");
            machine.options.db.max_bgerror_resume_count = if attempts { 1000 } else { 0 };
            let db = machine.open();
            let mut told = vec![put(&db, &SYNC, "before").unwrap()];
            // The flush makes the logs before it durable, so the write has to come later.
            gate.close(|_, path| is_table(path));
            db.with(&UNWAITED).flush().unwrap();
            gate.until_held();
            let number = unsynced(&db, "unsynced");
            told.push("unsynced".to_owned());
            machine
                .disk
                .fail_on(Fault::NoSpace, Repeat::Forever, move |_, path| {
                    // The attempts fail before they give up the log.
                    is_table(path) || attempts && is_manifest(path)
                });
            gate.open();
            until("writes are refused", || {
                put(&db, &UNSYNCED, "maybe").is_err()
            });
            match how {
                "resume" => {
                    db.resume().unwrap_err();
                    assert!(db.durable_seq() >= number);
                }
                "close" => db.close().unwrap(),
                _ => until("it is durable", || db.durable_seq() >= number),
            }
            machine.cut_power(&told, &["maybe".to_owned()]);
        }
    }
}

/// `lock_wal` promises that the log's files do not change. The interval's sync, which fills up the last unit of some
/// logs, comes after it.
#[test]
fn a_locked_log_is_synced_when_it_is_unlocked() {
    for (mode, tail) in [
        (WalIoMode::Buffered, WalTailPolicy::Rewrite),
        (WalIoMode::Buffered, WalTailPolicy::Pad),
        (WalIoMode::Direct, WalTailPolicy::Pad),
    ] {
        let mut machine = machine(mode, 30);
        machine.options.db.wal_tail_policy = tail;
        let db = machine.open();
        let number = unsynced(&db, "unsynced");
        db.lock_wal().unwrap();
        let before = bytes_of_logs(&machine);
        std::thread::sleep(Duration::from_millis(200));
        assert_eq!(bytes_of_logs(&machine), before, "{mode:?} {tail:?}");
        db.unlock_wal().unwrap();
        until("it is durable", || db.durable_seq() >= number);
        machine.cut_power(&["unsynced".to_owned()], &[]);
    }
}

/// A sync for which there is no space is made when there is some.
#[test]
fn without_space_the_sync_is_tried_until_there_is_some() {
    let mut machine = machine(WalIoMode::Buffered, 20);
    machine.options.db.manual_wal_flush = true;
    let db = machine.open();
    let mut told = vec![put(&db, &SYNC, "before").unwrap()];
    machine
        .disk
        .fail_on(Fault::NoSpace, Repeat::Forever, growing_write);
    let number = unsynced(&db, "unsynced");
    told.push("unsynced".to_owned());
    until("it has no space", || {
        machine.log_text().contains("the log has no space")
    });
    assert!(db.durable_seq() < number);
    machine.disk.clear_faults();
    until("it is durable", || db.durable_seq() >= number);
    machine.cut_power(&told, &[]);
}

/// A failed flush is tried again by a resume, although the log has no space for what is to be synced: the flush may be what
/// makes some.
#[test]
fn a_sync_without_space_does_not_keep_the_database_from_resuming() {
    let mut machine = machine(WalIoMode::Buffered, 20);
    machine.options.db.manual_wal_flush = true;
    let db = machine.open();
    let mut told = vec![put(&db, &SYNC, "before").unwrap()];
    machine
        .disk
        .fail_on(Fault::NoSpace, Repeat::Forever, |act, path| {
            growing_write(act, path) || is_table(path)
        });
    unsynced(&db, "unsynced");
    told.push("unsynced".to_owned());
    drop(db.with(&UNWAITED).flush());
    until("writes are refused", || {
        put(&db, &UNSYNCED, "maybe").is_err()
    });
    std::thread::sleep(Duration::from_millis(100));
    machine.disk.clear_faults();
    machine
        .disk
        .fail_on(Fault::NoSpace, Repeat::Forever, growing_write);
    until("it is resumed", || {
        machine.log_text().contains("resumed: writes are accepted")
    });
    machine.disk.clear_faults();
    told.push(put(&db, &SYNC, "after").unwrap());
    machine.cut_power(&told, &["maybe".to_owned()]);
}

/// A resume that fails has given up the log. If that log could not be kept, the close says so, and does not take the new
/// log, which is empty, for all there is.
#[test]
fn a_close_says_what_a_failed_resume_has_lost() {
    for (interval_ms, fault, log_fails) in [
        (0, Fault::NoSpace, false),
        (0, Fault::NoSpace, true),
        (3_600_000, Fault::Sync, false),
        (3_600_000, Fault::Sync, true),
    ] {
        let what = format!("{interval_ms} ms, {fault:?}, of the log: {log_fails}");
        let (mut machine, gate) = Machine::gated(WalIoMode::Buffered);
        machine.options.db.wal_sync_interval_ms = interval_ms;
        machine.options.db.manual_wal_flush = true;
        machine.options.db.max_bgerror_resume_count = 0;
        let db = machine.open();
        let mut told = vec![put(&db, &SYNC, "before").unwrap()];
        gate.close(|_, path| is_table(path));
        db.with(&UNWAITED).flush().unwrap();
        gate.until_held();
        unsynced(&db, "in the process");
        let of_table =
            move |act, path: &Path| is_table(path) && (fault == Fault::NoSpace || act == Act::Sync);
        machine
            .disk
            .fail_on(fault, Repeat::Forever, move |act, path| {
                let of_log = growing_write(act, path) || log_sync(act, path);
                of_table(act, path) || log_fails && of_log
            });
        gate.open();
        until("writes are refused", || {
            put(&db, &UNSYNCED, "maybe").is_err()
        });
        db.resume().unwrap_err();
        let closed = db.close();
        machine.disk.clear_faults();
        assert_eq!(closed.is_err(), log_fails, "{what}: {closed:?}");
        if log_fails {
            continue;
        }
        told.push("in the process".to_owned());
        let perhaps = ["maybe".to_owned()];
        if interval_ms > 0 {
            machine.cut_power(&told, &perhaps);
        }
        machine.reopen(&machine.disk.kill_image(), &told, &perhaps, &what);
    }
}
