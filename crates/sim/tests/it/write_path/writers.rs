//! Concurrent writers: groups, queues, and write options.

use std::cmp::Ordering as Order;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use base::stats::Ticker;
use ironstone::{Comparator, Db, ErrorKind, UserComparator, WriteBatch, WriteOptions};
use ironstone::{WalIoMode, WalTailPolicy};
use sim::hooked::Op;

use super::{LONG, Machine, SYNC, in_time, log_syncs, log_writes, put, start, until, with};

const PLAIN: WriteOptions = WriteOptions {
    sync: false,
    disable_wal: false,
    no_slowdown: false,
    low_pri: false,
};
const UNLOGGED: WriteOptions = WriteOptions {
    sync: false,
    disable_wal: true,
    no_slowdown: false,
    low_pri: false,
};

/// Lets several threads write `n` keys each, with the write options that `options` returns for each key.
/// Returns the keys.
fn write_all(
    db: &Db,
    threads: usize,
    n: usize,
    options: impl Fn(usize) -> WriteOptions + Sync,
) -> Vec<String> {
    std::thread::scope(|scope| {
        let options = &options;
        let all: Vec<_> = (0..threads)
            .map(|t| {
                let one = move |i| put(db, &options(i), &format!("t{t}-{i:04}")).unwrap();
                scope.spawn(move || (0..n).map(one).collect::<Vec<_>>())
            })
            .collect();
        all.into_iter().flat_map(|t| t.join().unwrap()).collect()
    })
}

#[test]
fn manual_wal_flush_races_synced_writers() {
    for mode in [WalIoMode::Buffered, WalIoMode::Auto, WalIoMode::Direct] {
        let mut machine = Machine::new(mode);
        machine.options.db.manual_wal_flush = true;
        let db = machine.open();
        let done = std::sync::atomic::AtomicBool::new(false);
        let mut told = std::thread::scope(|scope| {
            let (db, done) = (&db, &done);
            for sync in [false, true] {
                scope.spawn(move || {
                    while !done.load(std::sync::atomic::Ordering::Relaxed) {
                        db.flush_wal(sync).unwrap();
                    }
                });
            }
            let told = write_all(db, 4, 100, |i| if i % 3 == 0 { SYNC } else { PLAIN });
            done.store(true, std::sync::atomic::Ordering::Relaxed);
            told
        });
        db.flush_wal(true).unwrap();
        machine.cut_power(&told, &[]);
        told.push(put(&db, &PLAIN, "in the process").unwrap());
        db.close().unwrap();
        machine.reopen(&machine.disk, &told, &[], "closed");
    }
}

/// With `manual_wal_flush` the log's buffer grew until a call of `flush_wal`. RocksDB hands it over
/// whenever it holds `writable_file_max_buffer_size`, a MiB.
#[test]
fn manual_wal_flush_keeps_no_more_than_a_mebibyte_in_the_process() {
    for mode in [WalIoMode::Buffered, WalIoMode::Direct] {
        let mut machine = Machine::new(mode);
        machine.options.db.manual_wal_flush = true;
        machine.options.cf.write_buffer_size = 16 << 20;
        let db = machine.open();
        for i in 0..4000 {
            let (cf, key) = (db.default_column_family(), format!("key{i:04}"));
            db.cf(&cf).with(&PLAIN).put(key, [7; 1000]).unwrap();
        }
        let killed = machine.disk.kill_image();
        drop(db);
        let mut options = machine.options.clone();
        options.env.fs = killed.shared();
        let db = Db::open("/db", &options).unwrap();
        let has = |i: u64| db.get(format!("key{i:04}")).unwrap().is_some();
        let found = (0..4000).take_while(|&i| has(i)).count();
        assert!((2900..4000).contains(&found), "{mode:?}: {found}");
    }
}

/// `wal_pipeline_depth` is the number of durable writes of a log that are in flight at once: later writers
/// wait, and share the next one.
#[test]
fn as_many_writes_are_on_their_way_as_the_depth_says() {
    for (policy, depth) in [
        (WalTailPolicy::Rewrite, 1),
        (WalTailPolicy::Pad, 1),
        (WalTailPolicy::Pad, 2),
        (WalTailPolicy::Pad, 5),
    ] {
        let (mut machine, gate) = Machine::gated(WalIoMode::Direct);
        machine.options.db.wal_tail_policy = policy;
        machine.options.db.wal_pipeline_depth = depth;
        let (db, mut told) = machine.open_direct();
        let before = machine.count(Ticker::WalFileSynced);
        gate.close(log_writes);
        let held = || gate.held.load(std::sync::atomic::Ordering::Relaxed);
        let keys: Vec<String> = (0..8).map(|i| format!("writer {i}")).collect();
        std::thread::scope(|scope| {
            let mut writers = Vec::new();
            for (i, key) in keys.iter().enumerate() {
                writers.push(scope.spawn(|| put(&db, &SYNC, key).unwrap()));
                let wanted = (i + 1).min(depth as usize);
                until("the write is on its way", || held() >= wanted);
            }
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(held(), depth as usize, "{policy:?} {depth}");
            gate.open();
            told.extend(writers.into_iter().map(|w| w.join().unwrap()));
        });
        let writes = machine.count(Ticker::WalFileSynced) - before;
        assert!(writes >= u64::from(depth), "{policy:?} {depth}: {writes}");
        machine.cut_power(&told, &[]);
        db.close().unwrap();
    }
}

/// Logged and unlogged writers never share a group: the log would hold records that were not to be logged,
/// or lack some that were.
#[test]
fn logged_and_unlogged_writers_side_by_side() {
    for pipelined in [false, true] {
        let mut machine = Machine::new(WalIoMode::Auto);
        machine.options.db.enable_pipelined_write = pipelined;
        let db = machine.open();
        let kind = |i: usize| [SYNC, UNLOGGED, PLAIN, UNLOGGED][i % 4];
        let all = write_all(&db, 4, 80, kind);
        db.sync_wal().unwrap();
        let number = |key: &String| key[3..].parse::<usize>().unwrap();
        let (unlogged, told): (Vec<String>, Vec<String>) =
            all.into_iter().partition(|k| kind(number(k)).disable_wal);
        machine.cut_power(&told, &[]);
        let all: Vec<String> = told.iter().chain(&unlogged).cloned().collect();
        assert_eq!(db.latest_sequence_number(), all.len() as u64);
        db.close().unwrap();
        machine.reopen(
            &machine.disk,
            &all,
            &[],
            "closed: unlogged writes are flushed",
        );
    }
}

/// A batch of log data has nothing for a memtable. With `two_write_queues` it returns while an earlier
/// synced write waits for the device; an ordinary write does not.
#[test]
fn batches_for_the_log_alone_do_not_wait_with_two_write_queues() {
    let (mut machine, gate) = Machine::gated(WalIoMode::Buffered);
    machine.options.db.two_write_queues = true;
    let db = machine.open();
    let mut told = vec![put(&db, &SYNC, "before").unwrap()];
    gate.close(log_syncs);
    std::thread::scope(|scope| {
        let db = &db;
        let synced = scope.spawn(move || put(db, &SYNC, "synced").unwrap());
        gate.until_held();
        let ordinary = scope.spawn(move || put(db, &PLAIN, "ordinary").unwrap());
        let (tx, rx) = mpsc::channel();
        scope.spawn(move || {
            for _ in 0..5 {
                let mut batch = WriteBatch::new();
                batch.put_log_data(b"prepared").unwrap();
                tx.send(db.with(&PLAIN).write(&mut batch)).unwrap();
            }
        });
        let results: Vec<_> = (0..5).map(|_| rx.recv_timeout(LONG)).collect();
        let waits = !synced.is_finished() && !ordinary.is_finished();
        gate.open();
        assert!(waits, "what has a place in the order waits for it");
        for result in results {
            result.expect("it waits").unwrap();
        }
        told.extend([synced.join().unwrap(), ordinary.join().unwrap()]);
    });
    db.sync_wal().unwrap();
    machine.cut_power(&told, &[]);
}

#[test]
fn queues_and_pipelines_lose_nothing() {
    for (name, two, pipelined, serial) in [
        ("plain", false, false, false),
        ("two_write_queues", true, false, false),
        ("enable_pipelined_write", false, true, false),
        ("allow_concurrent_memtable_write = false", false, true, true),
    ] {
        let mut machine = Machine::new(WalIoMode::Auto);
        machine.options.db.two_write_queues = two;
        machine.options.db.enable_pipelined_write = pipelined;
        machine.options.db.allow_concurrent_memtable_write = !serial;
        let db = machine.open();
        let told = write_all(&db, 5, 80, |i| if i % 2 == 0 { SYNC } else { PLAIN });
        for key in &told {
            assert!(db.get(key).unwrap().is_some(), "{name}: {key}");
        }
        db.sync_wal().unwrap();
        machine.cut_power(&told, &[]);
    }
}

#[test]
fn wal_min_sync_interval_makes_writers_share_a_sync() {
    let mut machine = Machine::new(WalIoMode::Direct);
    machine.options.db.wal_min_sync_interval = 15_000;
    let (db, mut told) = machine.open_direct();
    let before = machine.count(Ticker::WalFileSynced);
    told.extend(write_all(&db, 8, 8, |_| SYNC));
    let syncs = machine.count(Ticker::WalFileSynced) - before;
    assert!((8..=24).contains(&syncs), "{syncs} syncs for 64 writes");
    machine.cut_power(&told, &[]);
}

/// While the device is busy ten writers gather; a group takes two of them at most.
#[test]
fn max_write_batch_group_size_bytes_bounds_a_group() {
    let (mut machine, gate) = Machine::gated(WalIoMode::Buffered);
    machine.options.db.max_write_batch_group_size_bytes = 2500;
    let db = machine.open();
    put(&db, &SYNC, "before").unwrap();
    gate.close(log_syncs);
    std::thread::scope(|scope| {
        let db = &db;
        let write = move |i: usize| {
            let key = format!("writer{i}");
            db.with(&SYNC).put(key, vec![b'v'; 1000]).unwrap();
        };
        scope.spawn(move || write(0));
        gate.until_held();
        for i in 1..=10 {
            scope.spawn(move || write(i));
        }
        std::thread::sleep(Duration::from_millis(100));
        gate.open();
    });
    let groups = machine.count(Ticker::WriteWithWal) - 2;
    assert!((5..=10).contains(&groups), "{groups} groups of 10 writers");
    let told: Vec<String> = (0..=10).map(|i| format!("writer{i}")).collect();
    machine.cut_power(&told, &["before".to_owned()]);
}

/// A compaction is due and cannot begin: `low_pri` writers are held back, others are not.
#[test]
fn low_pri_gives_way_to_compaction() {
    let (mut machine, gate) = Machine::gated(WalIoMode::Buffered);
    machine.options.cf.disable_auto_compactions = false;
    machine.options.cf.level0_file_num_compaction_trigger = 2;
    let db = machine.open();
    let low = WriteOptions {
        low_pri: true,
        ..PLAIN
    };
    let mut told = vec![put(&db, &low, "nothing is due").unwrap()];
    assert_eq!(machine.count(Ticker::StallMicros), 0);
    db.flush().unwrap();
    let tables = || {
        let names = machine.names(super::DIR);
        let is_table = |n: &&String| Path::new(n).extension().is_some_and(|e| e == "sst");
        names.iter().filter(is_table).count()
    };
    // A flush reads its table too, to open it.
    gate.close(|op, path| {
        let thread = std::thread::current();
        let compacts = thread
            .name()
            .is_some_and(|n| n.starts_with("ironstone:low"));
        op == Op::Read && path.extension().is_some_and(|e| e == "sst") && compacts
    });
    told.push(put(&db, &PLAIN, "second table").unwrap());
    let flush = ironstone::FlushOptions {
        wait: false,
        ..ironstone::FlushOptions::default()
    };
    db.with(&flush).flush().unwrap();
    until("there are two tables", || tables() >= 2);
    gate.until_held();
    told.push(put(&db, &PLAIN, "ordinary").unwrap());
    let stalled = machine.count(Ticker::StallMicros);
    let held_back = put(&db, &low, "held back").is_ok();
    let impatient = WriteOptions {
        no_slowdown: true,
        ..low
    };
    let refused = put(&db, &impatient, "refused");
    let more = machine.count(Ticker::StallMicros) - stalled;
    gate.open();
    assert!(held_back && more > 0);
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Incomplete);
    told.push("held back".to_owned());
    db.wait_for_compact().unwrap();
    db.sync_wal().unwrap();
    machine.cut_power(&told, &[]);
}

/// An order that panics on the thread `victim`, when it is armed.
struct Fragile(Arc<AtomicBool>);

impl UserComparator for Fragile {
    fn name(&self) -> &'static str {
        "fragile"
    }

    fn compare(&self, a: &[u8], b: &[u8]) -> Order {
        let victim = std::thread::current().name() == Some("victim");
        assert!(
            !(victim && self.0.load(Ordering::SeqCst)),
            "a fragile order"
        );
        a.cmp(b)
    }
}

/// The leader of a group panicked while its followers inserted their own batches, and they waited for ever
/// for the outcome; or a follower panicked, and the leader waited for it.
#[test]
fn a_group_is_told_whoever_of_it_panics() {
    for victim in [0, 3] {
        let armed = Arc::new(AtomicBool::new(false));
        let (mut machine, gate) = Machine::gated(WalIoMode::Buffered);
        machine.options.cf.comparator = Comparator::user(Arc::new(Fragile(Arc::clone(&armed))));
        let db = Arc::new(machine.open());
        put(&db, &SYNC, "before").unwrap();
        gate.close(log_syncs);
        let first = start(with(&db, |db| put(db, &SYNC, "first")));
        gate.until_held();
        // The writers are one group, large enough that its members insert their own batches. The first one
        // leads.
        let writers: Vec<_> = (0..6)
            .map(|n| {
                let name = if n == victim { "victim" } else { "writer" };
                let db = Arc::clone(&db);
                let writer = std::thread::Builder::new().name(name.to_owned());
                let writer = writer.spawn(move || {
                    let mut batch = WriteBatch::new();
                    for i in 0..20 {
                        batch.put(format!("{n}-{i}"), "v").unwrap();
                    }
                    catch_unwind(AssertUnwindSafe(|| db.with(&SYNC).write(&mut batch)))
                        .is_ok_and(|written| written.is_ok())
                });
                std::thread::sleep(Duration::from_millis(20));
                writer.unwrap()
            })
            .collect();
        armed.store(true, Ordering::SeqCst);
        gate.open();
        first.join().unwrap().unwrap();
        let written = writers
            .into_iter()
            .map(|w| in_time("a member of the group", move || w.join().unwrap()));
        let written: Vec<bool> = written.collect();
        assert!(!written[victim]);
        armed.store(false, Ordering::SeqCst);
        db.resume().unwrap();
        for (n, written) in written.iter().enumerate() {
            let found = db.get(format!("{n}-0")).unwrap().is_some();
            assert!(found || !written, "{n}");
        }
        put(&db, &SYNC, "after").unwrap();
    }
}
