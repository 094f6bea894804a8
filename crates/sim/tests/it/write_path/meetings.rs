//! Several threads together with a failing call. Each of these hung, wedged or lost a database once.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ironstone::WalIoMode;
use ironstone::merge_operators::UInt64AddOperator;
use ironstone::{Db, ErrorKind, EventListener, WriteBatch, WriteOptions};
use sim::disk::{Act, CrashKind, Fault, Repeat};

use super::{
    DIR, HeldFlush, Machine, SYNC, a_moment, durable_write, flush_in_background, in_time, is_log,
    log_sync, log_syncs, log_writes, names, put, start, until, with, write_async,
};

fn number(db: &Db, key: &str) -> u64 {
    let value = db.get(key).unwrap().unwrap();
    u64::from_le_bytes(value.try_into().unwrap())
}

/// A log failed during a flight of `write_async` while a flush waited for it. The unwritten records went to
/// a new log, and the flush sealed the memtable at that one. After the flush and a crash the log was
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
        last = Some(db.write_async(one).unwrap());
    }
    gate.until_held();
    let logs = |disk| {
        let names = names(disk, DIR);
        names.iter().filter(|n| is_log(Path::new(n))).count()
    };
    let before = logs(&machine.disk);
    let flushing = start(with(&db, Db::flush));
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

/// A sync that began when the active log was empty, but older ones were not durable, was a flight of no
/// log. The next switch of logs forgot it, its waiters got no answer, and `sync_wal` waited for ever. No
/// fault is needed, only small memtables.
#[test]
fn a_sync_of_older_logs_alone_ends() {
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.cf.write_buffer_size = 64 << 10;
    machine.options.cf.max_write_buffer_number = 6;
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
                    let write = write_async(&syncing, "async");
                    syncing.wait_durable(write.seq).unwrap();
                }
                _ => {
                    write_async(&syncing, "async").durable.wait().unwrap();
                }
            }
        }
    });
    done.store(true, Ordering::Relaxed);
    writer.join().unwrap();
}

/// The same without chance: a flush has begun a log, which is empty, and all earlier writes are in the older
/// one alone.
#[test]
fn a_sync_of_older_logs_alone_ends_without_another_write() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = Arc::new(machine.open());
    db.pause_background_work().unwrap();
    db.put("in the older log", "v").unwrap();
    flush_in_background(&db);
    let syncing = Arc::clone(&db);
    in_time("a sync", move || syncing.sync_wal().unwrap());
    machine.cut_power(&["in the older log".to_owned()], &[]);
}

/// The same wait together with `resume`: the flight's log was given up, and its waiters got no answer.
#[test]
fn syncs_end_beside_failures_and_resumes() {
    let mut machine = Machine::new(WalIoMode::Auto);
    machine.options.cf.write_buffer_size = 64 << 10;
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

/// A family was dropped while a batch for it, already checked, waited at the gate. Its insert failed, a
/// part of the batch was there, other writes of the group got the error though they were logged, and the
/// whole database refused writes.
#[test]
fn a_write_to_a_family_that_is_being_dropped_is_refused_alone() {
    let (machine, gate) = Machine::gated(WalIoMode::Buffered);
    let db = Arc::new(machine.open());
    for round in 0..4 {
        let doomed = db
            .create_column_family("doomed", &machine.options.cf)
            .unwrap();
        gate.close(log_syncs);
        let synced = start(with(&db, |db| put(db, &SYNC, "synced")));
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
                        1 => batch.cf(&doomed).put("key", "v").unwrap(),
                        _ => {
                            batch.put(both, "v").unwrap();
                            batch.cf(&doomed).put("key", "v").unwrap();
                        }
                    }
                    let options = if n < 3 { SYNC } else { WriteOptions::default() };
                    db.with(&options).write(&mut batch)
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

/// One log that could not be made ended rotation for ever: it was not tried again, and the memtable grew
/// without bound.
#[test]
fn a_log_that_cannot_be_made_is_tried_again() {
    for fault in [Fault::Eio, Fault::NoSpace] {
        let mut machine = Machine::new(WalIoMode::Buffered);
        machine.options.cf.write_buffer_size = 64 << 10;
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

/// `wait_durable` refused a number that `write_async` had just returned, if an earlier synced group was in
/// flight: writes behind that group are not visible yet.
#[test]
fn a_number_that_was_returned_can_be_waited_for() {
    let (machine, gate) = Machine::gated(WalIoMode::Buffered);
    let db = Arc::new(machine.open());
    gate.close(log_syncs);
    let synced = start(with(&db, |db| put(db, &SYNC, "synced")));
    gate.until_held();
    let write = write_async(&db, "async");
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

/// After `resume` the MANIFEST still asked for the log that had failed: a family whose memtable was waiting
/// for its flush, without later writes, still needed it. The next open stopped at the half record there,
/// and writes that were synced after `resume` were lost, though nothing had crashed.
#[test]
fn a_log_that_failed_is_not_replayed_after_resume() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = machine.open();
    db.put("before", "v").unwrap();
    db.pause_background_work().unwrap();
    flush_in_background(&db);
    let other = db
        .create_column_family("other", &machine.options.cf)
        .unwrap();
    machine
        .disk
        .fail_on(Fault::Eio, Repeat::Forever, |act, path| {
            (act == Act::Write || act == Act::Sync) && is_log(path)
        });
    let failed = db.cf(&other).with(&SYNC).put("failed", vec![b'v'; 3000]);
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

/// Delays the beginning of a flush.
struct SlowFlush(AtomicBool);

impl EventListener for SlowFlush {
    fn on_flush_begin(&self, _: &ironstone::listener::FlushJobInfo) {
        self.0.store(true, Ordering::SeqCst);
        a_moment();
    }
}

/// `resume` returned at once when another thread was resuming, such as the one that does so after a full
/// device: the failure is cleared early, for the flushes. The next write was still refused.
#[test]
fn resume_waits_for_one_that_is_under_way() {
    let listener = Arc::new(SlowFlush(AtomicBool::new(false)));
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.listen(&listener);
    let db = Arc::new(machine.open());
    db.put("in a memtable", "v").unwrap();
    machine.fail_a_sync(&db);
    let resuming = start(with(&db, Db::resume));
    until("the flush of resume", || listener.0.load(Ordering::SeqCst));
    db.resume().unwrap();
    put(&db, &SYNC, "after").unwrap();
    resuming.join().unwrap().unwrap();
}

/// While `resume` flushed memtables, the log was a new, empty one. `sync_wal` found nothing to do and
/// returned, though earlier writes were in no valid log and in no table yet. When the flush then failed
/// too, they were lost with the process.
#[test]
fn nothing_is_durable_while_resume_flushes() {
    let listener = Arc::new(HeldFlush::default());
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.listen(&listener);
    let db = Arc::new(machine.open());
    let resuming = listener.hold_resume(&machine, &db);
    let claimed = [db.sync_wal(), db.flush_wal(false)];
    listener.go.store(true, Ordering::SeqCst);
    resuming.join().unwrap().unwrap();
    for claim in claimed {
        claim.unwrap_err();
    }
    db.sync_wal().unwrap();
}

/// A writer that must not wait had queued before writes were stopped, behind one that then waited, so it
/// waited too. If it was a listener on a flush thread, that was for ever.
#[test]
fn a_write_that_must_not_wait_does_not_wait_behind_one_that_does() {
    let (mut machine, gate) = Machine::gated(WalIoMode::Buffered);
    machine.options.cf.write_buffer_size = 64 << 10;
    machine.options.cf.max_write_buffer_number = 2;
    let db = Arc::new(machine.open());
    db.put("in a memtable", "v").unwrap();
    db.pause_background_work().unwrap();
    flush_in_background(&db);
    gate.close(log_writes);
    let writer = |key: &'static str, bytes, options: WriteOptions| {
        let db = Arc::clone(&db);
        let writer = start(move || {
            let default = db.default_column_family();
            db.cf(&default).with(&options).put(key, vec![b'v'; bytes])
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
