//! Full devices, and slow ones.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use base::clock::SystemClock;
use base::stats::Ticker;
use ironstone::WalIoMode;
use ironstone::{ErrorKind, WriteOptions};
use sim::disk::{Act, Fault, Repeat};

use super::{Machine, SYNC, durable_write, growing_write, in_time, log_writes, put, until};

#[test]
fn writes_wait_for_space_and_go_on() {
    for options in [SYNC, WriteOptions::default()] {
        let machine = Machine::new(WalIoMode::Buffered);
        let db = machine.open();
        let mut told = vec![put(&db, &SYNC, "before").unwrap()];
        machine
            .disk
            .fail_on(Fault::NoSpace, Repeat::Forever, growing_write);
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| put(&db, &options, "during"));
            until("it waits", || machine.count(Ticker::WalNoSpace) == 1);
            std::thread::sleep(Duration::from_millis(60));
            assert!(!writer.is_finished());
            machine.disk.clear_faults();
            told.push(writer.join().unwrap().unwrap());
        });
        assert!(machine.count(Ticker::StallMicros) > 0);
        assert!(machine.log_text().contains("the log has space again"));
        told.push(put(&db, &SYNC, "after").unwrap());
        machine.cut_power(&told, &[]);
    }
}

/// `wait_for_compact` waited for a compaction that had no space and was tried again each second: for ever.
/// Found by chaos, seed 7016.
#[test]
fn who_waits_for_compactions_is_told_that_there_is_no_space() {
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.cf.level0_file_num_compaction_trigger = 2;
    let db = Arc::new(machine.open());
    for i in 0..4 {
        put(&db, &SYNC, "the key").unwrap();
        put(&db, &SYNC, &format!("key{i}")).unwrap();
        db.flush().unwrap();
    }
    machine
        .disk
        .fail_on(Fault::NoSpace, Repeat::Forever, |act, path| {
            act == Act::Create && path.extension().is_some_and(|e| e == "sst")
        });
    let default = db.default_column_family();
    db.cf(&default)
        .set_options(&[("disable_auto_compactions", "false")])
        .unwrap();
    let waits = Arc::clone(&db);
    let told = in_time("wait_for_compact", move || waits.wait_for_compact());
    let e = told.unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
    assert!(e.to_string().contains("make space"), "{e}");
    put(&db, &SYNC, "writes go on").unwrap();
    machine.disk.clear_faults();
    // A failure before this call does not end it.
    let waits = Arc::clone(&db);
    in_time("there is space", move || waits.wait_for_compact()).unwrap();
    assert!(db.get("the key").unwrap().is_some());
}

#[test]
fn without_space_writes_fail_after_their_time_and_later_ones_succeed() {
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.db.wal_no_space_wait_ms = 120;
    let db = machine.open();
    let mut told = vec![put(&db, &SYNC, "before").unwrap()];
    db.put("unsynced", "v").unwrap();
    machine
        .disk
        .fail_on(Fault::NoSpace, Repeat::Forever, growing_write);
    for options in [SYNC, WriteOptions::default()] {
        let e = put(&db, &options, "refused").unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
        assert!(e.to_string().contains("make room"), "{e}");
    }
    assert_eq!(machine.count(Ticker::WalNoSpace), 2);
    assert_eq!(db.get("refused").unwrap(), None);
    machine.disk.clear_faults();
    told.push(put(&db, &SYNC, "after").unwrap());
    told.push("unsynced".to_owned());
    machine.cut_power(&told, &[]);
    db.close().unwrap();
    machine.reopen(&machine.disk, &told, &[], "closed");
}

/// The time begins with the first write that finds no space: the writers do not wait one after another.
#[test]
fn writers_wait_for_space_together() {
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.db.wal_no_space_wait_ms = 1500;
    let db = machine.open();
    let mut told = vec![put(&db, &SYNC, "before").unwrap()];
    machine
        .disk
        .fail_on(Fault::NoSpace, Repeat::Forever, growing_write);
    let clock = SystemClock::shared();
    let begun = clock.monotonic_nanos();
    std::thread::scope(|scope| {
        let (db, options) = (&db, [SYNC, WriteOptions::default()]);
        let writers: Vec<_> = (0..16)
            .map(|i| scope.spawn(move || put(db, &options[i % 2], &format!("refused{i}"))))
            .collect();
        for writer in writers {
            let e = writer.join().unwrap().unwrap_err();
            assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
        }
    });
    let took = clock.monotonic_nanos() - begun;
    assert!((1_500_000_000..6_000_000_000).contains(&took), "{took} ns");
    // Those that come later do not wait at all; LOG has one line of all of them.
    for i in 0..50 {
        put(&db, &SYNC, &format!("late{i}")).unwrap_err();
    }
    let late = clock.monotonic_nanos() - begun - took;
    assert!(late < 1_500_000_000, "{late} ns");
    let stalls = machine.log_text().matches("Stalling writes").count();
    assert_eq!(stalls, 1);
    machine.disk.clear_faults();
    told.push(put(&db, &SYNC, "after").unwrap());
    machine.cut_power(&told, &[]);
}

#[test]
fn no_slowdown_does_not_wait_for_space() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = machine.open();
    machine
        .disk
        .fail_on(Fault::NoSpace, Repeat::Forever, growing_write);
    let impatient = WriteOptions {
        no_slowdown: true,
        ..SYNC
    };
    let e = put(&db, &impatient, "refused").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoSpace);
    assert_eq!(machine.count(Ticker::StallMicros), 0);
    machine.disk.clear_faults();
    let told = [put(&db, &impatient, "after").unwrap()];
    machine.cut_power(&told, &[]);
}

/// Direct logs need space ahead only; one small file is kept in reserve for a full device.
#[test]
fn the_reserve_is_used_when_the_pool_cannot_be_filled() {
    let machine = Machine::new(WalIoMode::Direct);
    let db = machine.open();
    let has = |end: &str| {
        let names = machine.names("/db/log-pool");
        names.iter().any(|n| n.ends_with(end))
    };
    until("the pool is full", || has(".zero") && has(".reserve"));
    machine
        .disk
        .fail_on(Fault::NoSpace, Repeat::Forever, |act, path| {
            matches!(act, Act::Create | Act::Zero | Act::Allocate) || growing_write(act, path)
        });
    let mut told = Vec::new();
    for i in 0..3 {
        let key = format!("large{i}");
        db.with(&SYNC).put(&key, vec![b'v'; 60_000]).unwrap();
        told.push(key);
    }
    assert_eq!(machine.count(Ticker::WalPrecreateHit), 1);
    until("the pool is starved", || {
        machine.count(Ticker::WalPrecreateFailed) > 0
    });
    assert!(has(".reserve"));
    machine
        .disk
        .fail_on(Fault::Eio, Repeat::Once, durable_write);
    told.push(put(&db, &SYNC, "goes to the reserve").unwrap());
    assert_eq!(machine.count(Ticker::WalPrecreateHit), 2);
    assert!(!has(".reserve"));
    machine.cut_power(&told, &[]);
    machine.disk.clear_faults();
    until("the pool is full again", || {
        let key = format!("more{}", told.len());
        db.with(&SYNC).put(&key, vec![b'v'; 60_000]).unwrap();
        told.push(key);
        has(".zero") && has(".reserve")
    });
    machine.cut_power(&told, &[]);
}

#[test]
fn a_flush_that_met_a_full_device_is_resumed_by_itself() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = machine.open();
    let mut told = vec![put(&db, &SYNC, "before").unwrap()];
    machine
        .disk
        .fail_on(Fault::NoSpace, Repeat::Forever, |_, path| {
            path.extension().is_some_and(|e| e == "sst")
        });
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::NoSpace);
    put(&db, &SYNC, "refused").unwrap_err();
    machine.cut_power(&told, &[]);
    machine.disk.clear_faults();
    until("writes succeed again", || db.put("by itself", "v").is_ok());
    told.push("by itself".to_owned());
    told.push(put(&db, &SYNC, "after").unwrap());
    machine.cut_power(&told, &[]);
    assert!(machine.log_text().contains("resumed"));
}

/// With `max_bgerror_resume_count=0`, which was refused, the application has to resume a database that met
/// a full device.
#[test]
fn nothing_is_resumed_by_itself_where_that_is_not_wanted() {
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.db.max_bgerror_resume_count = 0;
    let db = machine.open();
    put(&db, &SYNC, "before").unwrap();
    machine
        .disk
        .fail_on(Fault::NoSpace, Repeat::Forever, |_, path| {
            path.extension().is_some_and(|e| e == "sst")
        });
    assert_eq!(db.flush().unwrap_err().kind(), ErrorKind::NoSpace);
    machine.disk.clear_faults();
    // The first automatic attempt would come at once.
    std::thread::sleep(Duration::from_secs(2));
    put(&db, &SYNC, "refused").unwrap_err();
    assert_eq!(machine.count(Ticker::ErrorHandlerAutoresumeCount), 0);
    db.resume().unwrap();
    put(&db, &SYNC, "after").unwrap();
}

/// A compaction needs space before it frees any. Without space it fails and is tried again later; reads and
/// writes continue, and nothing is lost.
#[test]
fn a_compaction_that_met_a_full_device_holds_nobody_up() {
    let machine = Machine::new(WalIoMode::Buffered);
    let db = machine.open();
    let mut told = Vec::new();
    for i in 0..3 {
        told.push(put(&db, &SYNC, &format!("key{i}")).unwrap());
        told.push(put(&db, &SYNC, &format!("other{i}")).unwrap()); // so that no file is only moved
        db.flush().unwrap();
    }
    machine
        .disk
        .fail_on(Fault::NoSpace, Repeat::Forever, |_, path| {
            path.extension().is_some_and(|e| e == "sst")
        });
    let cf = db.default_column_family();
    let e = db.cf(&cf).compact_range(None, None).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
    told.push(put(&db, &SYNC, "while it is full").unwrap());
    for key in &told {
        assert!(db.get(key).unwrap().is_some());
    }
    machine.cut_power(&told, &[]);
    machine.disk.clear_faults();
    db.cf(&cf).compact_range(None, None).unwrap();
    let files = db.get_live_files_metadata();
    assert!(files.iter().all(|f| f.level > 0), "{files:?}");
    machine.cut_power(&told, &[]);
    drop(db);
    let db = machine.open();
    assert_eq!(
        db.property("rocksdb.background-errors").as_deref(),
        Some("0")
    );
}

/// The same for a compaction that started by itself: it is done once there is space again.
#[test]
fn a_compaction_that_started_by_itself_waits_for_space() {
    let mut machine = Machine::new(WalIoMode::Buffered);
    machine.options.cf.disable_auto_compactions = false;
    machine.options.cf.level0_file_num_compaction_trigger = 3;
    let db = machine.open();
    let mut told = Vec::new();
    for i in 0..2 {
        told.push(put(&db, &SYNC, &format!("key{i}")).unwrap());
        told.push(put(&db, &SYNC, &format!("other{i}")).unwrap()); // so that no file is only moved
        db.flush().unwrap();
    }
    let level0 = |db: &ironstone::Db| db.property("rocksdb.num-files-at-level0").unwrap();
    let flushed = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&flushed);
    // The flush has room for its table; the compaction after it has none.
    machine
        .disk
        .fail_on(Fault::NoSpace, Repeat::Forever, move |act, path| {
            let table = path.extension().is_some_and(|e| e == "sst");
            let created = table && act == Act::Create;
            let before = seen.fetch_add(usize::from(created), Ordering::Relaxed);
            created && before >= 1
        });
    told.push(put(&db, &SYNC, "key2").unwrap());
    told.push(put(&db, &SYNC, "other2").unwrap());
    db.flush().unwrap();
    until("the compaction has failed", || {
        machine.log_text().to_lowercase().contains("no space")
    });
    assert_eq!(level0(&db), "3");
    for key in &told {
        assert!(db.get(key).unwrap().is_some());
    }
    // A manual compaction does not wait for the next try.
    let cf = db.default_column_family();
    let clock = SystemClock::shared();
    let begun = clock.monotonic_nanos();
    for _ in 0..5 {
        let e = db.cf(&cf).compact_range(None, None).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::NoSpace, "{e}");
    }
    let took = clock.monotonic_nanos() - begun;
    assert!(took < 2_000_000_000, "five compactions took {took} ns");
    machine.disk.clear_faults();
    until("level 0 is compacted", || level0(&db) == "0");
    told.push(put(&db, &SYNC, "after").unwrap());
    machine.cut_power(&told, &[]);
}

#[test]
fn a_slow_device_is_told_of_while_it_is_slow() {
    let (mut machine, gate) = Machine::gated(WalIoMode::Direct);
    machine.options.db.wal_slow_io_ms = 20;
    let (db, mut told) = machine.open_direct();
    assert_eq!(machine.count(Ticker::WalSlowIo), 0);
    gate.close(log_writes);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| put(&db, &SYNC, "slow"));
        until("it is told", || machine.count(Ticker::WalSlowIo) == 1);
        assert!(machine.log_text().contains("slow device"));
        assert!(!writer.is_finished());
        gate.open();
        told.push(writer.join().unwrap().unwrap());
    });
    assert_eq!(machine.count(Ticker::WalSlowIo), 1, "once for each write");
    told.push(put(&db, &SYNC, "fast").unwrap());
    assert_eq!(machine.count(Ticker::WalSlowIo), 1);
    machine.cut_power(&told, &[]);
}
