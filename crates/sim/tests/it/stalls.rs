//! Writers that are delayed or stopped: when, why, what is reported, and when the stall ends.
//!
//! A rate limiter keeps compactions from making progress, in Ironstone and in RocksDB alike.
#![expect(
    clippy::disallowed_methods,
    reason = "stalls are waited for in real time"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use base::clock::SystemClock;
use base::stats::{Statistics, Ticker};
use ironstone::listener::{WriteStallCause, WriteStallCondition, WriteStallInfo};
use ironstone::{
    Db, ErrorKind, EventListener, IoPriority, Options, RateLimiter, RateLimiterOptions,
    WriteBufferManager, WriteOptions,
};
use sim::dirs;
use sim::oracle::{self, RocksDb};

const FREE: u64 = 1 << 30;
const IMPATIENT: WriteOptions = WriteOptions {
    sync: false,
    disable_wal: false,
    no_slowdown: true,
    low_pri: false,
};

#[derive(Default)]
struct Heard(Mutex<Vec<WriteStallInfo>>);

impl EventListener for Heard {
    fn on_stall_conditions_changed(&self, info: &WriteStallInfo) {
        let mut heard = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        heard.push(info.clone());
    }
}

impl Heard {
    fn all(&self) -> Vec<WriteStallInfo> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

fn limiter(rate: u64) -> Arc<RateLimiter> {
    let options = RateLimiterOptions {
        refill_period_us: 10_000,
        ..RateLimiterOptions::new(rate)
    };
    Arc::new(RateLimiter::new(options, SystemClock::shared()))
}

fn options() -> Options {
    let mut o = Options::default();
    o.db.create_if_missing = true;
    o.db.stats_dump_period_sec = 0;
    o.cf.compression = ironstone::CompressionType::None;
    o
}

/// Makes a database with so many overlapping files in level 0.
fn with_files(dir: &Path, files: usize) {
    let mut o = options();
    o.cf.disable_auto_compactions = true;
    let db = Db::open(dir, &o).unwrap();
    for i in 0..files {
        for k in 0..20 {
            db.put(format!("k{k:02}"), vec![b'a' + i as u8; 500])
                .unwrap();
        }
        db.flush().unwrap();
    }
    db.close().unwrap();
}

/// Opens a database whose compactions make no progress until the limiter is set free.
fn standing_still(dir: &Path, o: &mut Options) -> (Db, Arc<RateLimiter>) {
    let limiter = limiter(1);
    o.env.rate_limiter = Some(Arc::clone(&limiter));
    (Db::open(dir, o).unwrap(), limiter)
}

fn until(what: &str, ready: impl Fn() -> bool) {
    let start = Instant::now();
    while !ready() {
        assert!(start.elapsed() < Duration::from_secs(20), "never: {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn number(db: &Db, name: &str) -> u64 {
    db.property(&format!("rocksdb.{name}"))
        .unwrap()
        .parse()
        .unwrap()
}

fn stall_stats(db: &Db) -> BTreeMap<String, u64> {
    let cf = db.default_column_family();
    let map = db
        .cf(&cf)
        .map_property("rocksdb.cf-write-stall-stats")
        .unwrap();
    map.into_iter()
        .map(|(k, v)| (k, v.parse().unwrap()))
        .collect()
}

#[test]
fn too_many_files_stop_writers_until_a_compaction_is_done() {
    let dir = dirs::scratch().unwrap();
    with_files(dir.path(), 6);
    let heard = Arc::new(Heard::default());
    let statistics = Arc::new(Statistics::new());
    let mut o = options();
    o.cf.level0_file_num_compaction_trigger = 4;
    o.cf.level0_slowdown_writes_trigger = 5;
    o.cf.level0_stop_writes_trigger = 6;
    o.env.listeners.add(Arc::clone(&heard) as _);
    o.env.statistics = Some(Arc::clone(&statistics));
    let (db, limiter) = standing_still(dir.path(), &mut o);
    let cf = db.default_column_family();
    assert_eq!(number(&db, "is-write-stopped"), 1);
    let e = db.cf(&cf).with(&IMPATIENT).put("k", "v").unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Incomplete);
    assert!(
        e.to_string().contains("raise level0_stop_writes_trigger"),
        "{e}"
    );
    std::thread::scope(|s| {
        let writer = s.spawn(|| db.put("patient", "v"));
        std::thread::sleep(Duration::from_millis(60));
        assert!(!writer.is_finished(), "it must wait");
        limiter.set_bytes_per_second(FREE);
        writer.join().unwrap().unwrap();
    });
    assert_eq!(number(&db, "is-write-stopped"), 0);
    db.cf(&cf).with(&IMPATIENT).put("k", "v").unwrap();
    assert!(statistics.get(Ticker::StallMicros) > 40_000);
    assert!(
        limiter.total_bytes_through(IoPriority::Low) > 5000,
        "compaction"
    );
    assert_eq!(limiter.total_bytes_through(IoPriority::High), 0);
    db.flush().unwrap();
    assert!(limiter.total_bytes_through(IoPriority::High) > 500, "flush");
    let stats = stall_stats(&db);
    assert!(stats["l0-file-count-limit-stops"] >= 1, "{stats:?}");
    assert_eq!(stats["total-stops"], stats["l0-file-count-limit-stops"]);
    assert_eq!(stats["memtable-limit-stops"], 0);
    // The thread that compacted tells it, perhaps after the flush of this one.
    until("the end of the stop is told", || heard.all().len() > 1);
    let heard = heard.all();
    assert_eq!(heard[0].cause, Some(WriteStallCause::L0FileCountLimit));
    assert_eq!(heard[0].cur, WriteStallCondition::Stopped);
    assert_eq!(heard[0].option, "level0_stop_writes_trigger");
    let last = heard.last().unwrap();
    assert_eq!(
        (last.cur, last.cause),
        (WriteStallCondition::Normal, None),
        "{heard:?}"
    );
    let log = std::fs::read_to_string(dir.path().join("LOG")).unwrap();
    assert!(
        log.contains(
            "[default] Stopping writes because we have 6 level-0 files; option \
             level0_stop_writes_trigger = 6 allows more"
        ),
        "{log}"
    );
}

#[test]
fn many_files_delay_writers_and_fail_those_that_must_not_wait() {
    let dir = dirs::scratch().unwrap();
    with_files(dir.path(), 6);
    let mut o = options();
    o.cf.level0_slowdown_writes_trigger = 6;
    o.db.delayed_write_rate = 1 << 20;
    let (db, limiter) = standing_still(dir.path(), &mut o);
    let cf = db.default_column_family();
    let rate = number(&db, "actual-delayed-write-rate");
    assert!(rate > 0 && rate <= 1 << 20, "{rate}");
    assert_eq!(number(&db, "is-write-stopped"), 0);
    let e = db.cf(&cf).with(&IMPATIENT).put("k", "v").unwrap_err();
    assert!(
        e.to_string().contains("level0_slowdown_writes_trigger"),
        "{e}"
    );
    let start = Instant::now();
    for i in 0..64 {
        db.put(format!("slow{i}"), vec![0; 4096]).unwrap();
    }
    // A quarter of a MiB at a MiB per second; the controller may ask for less.
    let took = start.elapsed();
    assert!(took > Duration::from_millis(150), "{took:?}");
    assert!(took < Duration::from_secs(15), "{took:?}");
    limiter.set_bytes_per_second(FREE);
    until("compacted", || number(&db, "num-files-at-level0") < 4);
    until("free again", || {
        number(&db, "actual-delayed-write-rate") == 0 || {
            db.put("tick", "v").unwrap();
            false
        }
    });
}

#[test]
fn full_memtables_stop_writers_until_a_flush_is_done() {
    let dir = dirs::scratch().unwrap();
    let mut o = options();
    o.cf.write_buffer_size = 64 << 10;
    o.cf.arena_block_size = 4096;
    let (db, limiter) = standing_still(dir.path(), &mut o);
    let cf = db.default_column_family();
    let mut written = 0;
    while db
        .cf(&cf)
        .with(&IMPATIENT)
        .put(format!("k{written}"), vec![0; 1000])
        .is_ok()
    {
        written += 1;
        assert!(written < 1000, "never stopped");
    }
    assert_eq!(number(&db, "num-immutable-mem-table"), 2);
    assert_eq!(number(&db, "is-write-stopped"), 1);
    assert_eq!(stall_stats(&db)["memtable-limit-stops"], 1);
    std::thread::scope(|s| {
        let writer = s.spawn(|| db.put("patient", "v"));
        std::thread::sleep(Duration::from_millis(30));
        assert!(!writer.is_finished());
        limiter.set_bytes_per_second(FREE);
        writer.join().unwrap().unwrap();
    });
    for i in 0..written {
        assert!(db.get(format!("k{i}")).unwrap().is_some());
    }
}

/// A writer that found the memtables full, and waited for a flush, did not report the stall until later:
/// listeners heard that writes were stopped when they no longer were.
#[test]
fn listeners_hear_that_writes_are_stopped_while_they_are() {
    let dir = dirs::scratch().unwrap();
    let heard = Arc::new(Heard::default());
    let mut o = options();
    o.cf.write_buffer_size = 64 << 10;
    o.cf.arena_block_size = 4096;
    o.env.listeners.add(Arc::clone(&heard) as _);
    let (db, limiter) = standing_still(dir.path(), &mut o);
    let told = std::thread::scope(|s| {
        let writer = s.spawn(|| {
            for i in 0..400 {
                db.put(format!("k{i}"), vec![0; 1000]).unwrap();
            }
        });
        let stopped = |i: &WriteStallInfo| i.cur == WriteStallCondition::Stopped;
        let mut told = false;
        // Waits for a limited time: the writer cannot finish before the limiter is set free.
        for _ in 0..1000 {
            told = heard.all().iter().any(stopped);
            if told || writer.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let told = told && !writer.is_finished();
        limiter.set_bytes_per_second(FREE);
        writer.join().unwrap();
        told
    });
    assert!(told, "{:?}", heard.all());
}

/// A write that must not wait for memory was told to raise `db_write_buffer_size`. That option never makes
/// a writer wait, and it is refused together with the limit that does.
#[test]
fn who_must_not_wait_for_memory_is_told_the_limit_that_holds() {
    for own in [false, true] {
        let dir = dirs::scratch().unwrap();
        let mut o = options();
        let name = if own {
            o.env.write_buffer_manager =
                Some(Arc::new(WriteBufferManager::new(1 << 20, None, true)));
            "raise buffer_size of the WriteBufferManager"
        } else {
            o.db.memory_limit = 4 << 20;
            "raise memory_limit"
        };
        let (db, limiter) = standing_still(dir.path(), &mut o);
        let cf = db.default_column_family();
        let mut n = 0;
        let e = loop {
            let put = db
                .cf(&cf)
                .with(&IMPATIENT)
                .put(format!("k{n}"), vec![0; 10_000]);
            if let Err(e) = put {
                break e;
            }
            n += 1;
            assert!(n < 10_000, "never stopped");
        };
        assert_eq!(e.kind(), ErrorKind::Incomplete);
        assert!(e.to_string().contains(name), "{e}");
        limiter.set_bytes_per_second(FREE);
        db.close().unwrap();
    }
}

#[test]
fn a_budget_of_memory_is_kept_over_two_databases() {
    let dirs = [dirs::scratch().unwrap(), dirs::scratch().unwrap()];
    let budget = Arc::new(WriteBufferManager::new(512 << 10, None, true));
    let mut o = options();
    o.cf.write_buffer_size = 64 << 20;
    o.cf.arena_block_size = 16 << 10;
    o.env.write_buffer_manager = Some(Arc::clone(&budget));
    let dbs: Vec<Db> = dirs
        .iter()
        .map(|d| Db::open(d.path(), &o).unwrap())
        .collect();
    let mut most = 0;
    for i in 0..3000 {
        for db in &dbs {
            db.put(format!("k{i}"), vec![0; 500]).unwrap();
        }
        most = most.max(budget.memory_usage());
    }
    assert!(most < 600 << 10, "{most}");
    for (db, dir) in dbs.iter().zip(&dirs) {
        assert_eq!(db.get("k0").unwrap().unwrap().len(), 500);
        db.flush().unwrap();
        let log = std::fs::read_to_string(dir.path().join("LOG")).unwrap();
        assert!(
            log.contains("\"flush_reason\": \"Write Buffer Manager\""),
            "{log}"
        );
        assert!(log.contains("\"flush_reason\": \"Manual Flush\""));
    }
    drop(dbs);
    assert_eq!(budget.memory_usage(), 0);
}

/// Ends the test if `f` takes too long.
fn in_time<T: Send + 'static>(what: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (tx, rx) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new()
        .spawn(move || drop(tx.send(f())))
        .unwrap();
    let Ok(value) = rx.recv_timeout(Duration::from_secs(30)) else {
        panic!("{what}: no end, or a panic");
    };
    thread.join().unwrap();
    value
}

/// A thread changed data while it iterated over it, and waited for memory that its own iterator held.
#[test]
fn memory_that_an_iterator_holds_is_not_waited_for() {
    let dir = dirs::scratch().unwrap();
    let budget = Arc::new(WriteBufferManager::new(512 << 10, None, true));
    let mut o = options();
    o.cf.write_buffer_size = 64 << 20;
    o.cf.arena_block_size = 16 << 10;
    o.env.write_buffer_manager = Some(Arc::clone(&budget));
    let db = Db::open(dir.path(), &o).unwrap();
    for i in 0..700 {
        db.put(format!("k{i:04}"), vec![0; 500]).unwrap();
    }
    let most = in_time("the loop", move || {
        let mut most = 0;
        let mut it = db.iterator().unwrap();
        it.seek_to_first();
        while it.valid() {
            let key = it.key().to_vec();
            for n in 0..4 {
                db.put([&key[..], &[b'a' + n]].concat(), vec![1; 500])
                    .unwrap();
            }
            most = most.max(budget.memory_usage());
            it.next();
        }
        it.status().unwrap();
        most
    });
    assert!(most < 1 << 20, "it is not unbounded: {most}");
}

/// A database without writers held all the memory, and another one, which held nothing, waited for it.
#[test]
fn memory_of_an_idle_database_is_not_waited_for() {
    let dirs = [dirs::scratch().unwrap(), dirs::scratch().unwrap()];
    let budget = Arc::new(WriteBufferManager::new(512 << 10, None, true));
    let mut o = options();
    o.cf.write_buffer_size = 64 << 20;
    o.cf.arena_block_size = 16 << 10;
    o.env.write_buffer_manager = Some(Arc::clone(&budget));
    let [a, b] = dirs.each_ref().map(|d| Db::open(d.path(), &o).unwrap());
    a.put("all at once", vec![0; 600 << 10]).unwrap();
    assert!(budget.memory_usage() > budget.buffer_size());
    in_time("the other's writes", move || {
        for i in 0..100 {
            b.put(format!("k{i}"), vec![0; 500]).unwrap();
        }
    });
    drop(a);
}

/// The words, the keys and the counts are the same, for the same number of files and the same triggers.
#[test]
fn rocksdb_tells_the_same() {
    let Some(lib) = oracle::rocksdb() else { return };
    for (files, slowdown, stop) in [(5, 10, 20), (6, 5, 20), (7, 5, 7)] {
        let dir = dirs::scratch().unwrap();
        with_files(dir.path(), files);
        let mut theirs = lib.options();
        theirs
            .set_all(&format!(
                "level0_file_num_compaction_trigger=4;level0_slowdown_writes_trigger={slowdown};\
                 level0_stop_writes_trigger={stop};compression=kNoCompression"
            ))
            .unwrap();
        let slow = tools::librocksdb::RateLimit {
            bytes_per_second: 20_000,
            refill_period_us: 100_000,
            auto_tuned: false,
            reads: false,
        };
        theirs.rate_limit(slow).unwrap();
        let db = RocksDb::open(&theirs, dir.path()).unwrap();
        let cf = db.default_cf();
        let ask = |name: &str| db.property_cf(cf, &format!("rocksdb.{name}")).unwrap();
        let rocks = (
            ask("is-write-stopped"),
            ask("actual-delayed-write-rate") != "0",
        );
        let text = ask("cf-write-stall-stats");
        let db_text = ask("db-write-stall-stats");
        db.close();
        let dir = dirs::scratch().unwrap();
        with_files(dir.path(), files);
        let mut o = options();
        o.cf.level0_slowdown_writes_trigger = slowdown;
        o.cf.level0_stop_writes_trigger = stop;
        let (db, limiter) = standing_still(dir.path(), &mut o);
        let stopped = db.property("rocksdb.is-write-stopped").unwrap();
        let delayed = files >= slowdown as usize && files < stop as usize;
        assert_eq!((stopped, delayed), rocks, "{files}");
        // Counts differ: they depend on how often the conditions were checked.
        let keys = |text: &str| -> Vec<String> {
            let parts = text.trim_end().split(", ");
            let name = |p: &str| p.rsplit_once(": ").map(|(name, _)| name.to_owned());
            parts.filter_map(name).collect()
        };
        let ours = db.property("rocksdb.cf-write-stall-stats").unwrap();
        assert_eq!(keys(&ours), keys(&text), "{ours}\n{text}");
        let ours = db.property("rocksdb.db-write-stall-stats").unwrap();
        assert_eq!(keys(&ours), keys(&db_text), "{ours}\n{db_text}");
        limiter.set_bytes_per_second(FREE);
    }
}
