//! Searches that stop in the middle of a key, at tables that are closed meanwhile, beside limits, and where the application's
//! own code runs.

use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Mutex, OnceLock};

use base::clock::SystemClock;
use io::{IoPriority, RateLimiter, RateLimiterMode, RateLimiterOptions};
use ironstone::{CompressionType, Snapshot};

use super::*;

/// Keys whose versions fill many blocks and several files: operands of hundreds of snapshots, range deletions between, and
/// tables that are closed while a search waits.
#[test]
fn searches_stop_in_the_middle_of_a_key() {
    for cached in [false, true] {
        let disk = SimDisk::new(Config::default());
        let mut o = options(0);
        o.env.fs = Arc::new(disk.clone());
        o.db.max_open_files = 20;
        o.cf.table.block_size = 100;
        o.cf.target_file_size_base = 1500;
        let (db, families) = open(Path::new("/db"), &o);
        let cf = db.cf(&families[0]);
        let mut snapshots: Vec<Snapshot> = Vec::new();
        let mut rng = Rng::new(4);
        for n in 0..900 {
            let name = key(rng.below(40));
            match n % 100 {
                70 => cf.delete_range(key(10), key(20)).unwrap(),
                71 => cf.put(&name, "base").unwrap(),
                _ => cf.merge(&name, format!("{n}-{}", "m".repeat(30))).unwrap(),
            }
            if n % 3 == 0 {
                snapshots.push(db.snapshot());
            }
            if n % 150 == 149 {
                cf.flush().unwrap();
            }
            if n == 600 {
                cf.compact_range(None, None).unwrap();
            }
        }
        disk.set_page_cache(cached);
        let keys: Vec<_> = (0..41).map(key).collect();
        for snapshot in snapshots.iter().step_by(13) {
            let before = disk.queued_reads();
            let at = db.with(snapshot);
            let expected: Vec<_> = keys.iter().map(|k| at.get(k).unwrap()).collect();
            let got = at.multi_get(&keys).into_iter().map(Result::unwrap);
            assert_eq!(got.collect::<Vec<_>>(), expected);
            assert!(disk.queued_reads() > before + 30);
        }
    }
}

/// What the page cache has is not queued, and every value is right.
#[test]
fn the_page_cache_is_asked_first() {
    let s = Simulated::new(0, |_| {});
    let keys: Vec<_> = (0..KEYS).step_by(7).map(key).collect();
    let mut reads = Vec::new();
    for cached in [false, true] {
        s.disk.set_page_cache(cached);
        let before = s.disk.queued_reads();
        check(s.db(), &s.families, &mut Rng::new(8), 5);
        s.db()
            .multi_get(&keys)
            .into_iter()
            .for_each(|v| drop(v.unwrap()));
        reads.push(s.disk.queued_reads() - before);
    }
    assert!(reads[1] < reads[0] * 4 / 5, "{reads:?}");
}

/// An open for reading, and a secondary, write nothing to see whether files can be read directly.
#[test]
fn direct_reads_are_found_out_without_a_write() {
    let s = Simulated::new(30_000, |o| o.db.use_direct_reads = true);
    let expected = s.db().get(key(5)).unwrap();
    let before = s.disk.trace().len();
    let read_only = Db::open_read_only("/db", &s.options).unwrap();
    let got = read_only.multi_get(&[key(5)]).remove(0).unwrap();
    assert_eq!(got, expected);
    let calls = s.disk.trace();
    let changes = calls[before..]
        .iter()
        .filter(|event| !matches!(event.act, Act::Open | Act::Read));
    assert_eq!(changes.count(), 0);
    drop(read_only);
    let before = s.disk.trace().len();
    let secondary = Db::open_as_secondary("/db", "/secondary", &s.options).unwrap();
    let calls = s.disk.trace();
    let changed = calls[before..]
        .iter()
        .filter(|event| !matches!(event.act, Act::Open | Act::Read))
        .filter(|event| !event.path.starts_with("/secondary"));
    assert_eq!(
        changed
            .map(|event| (&*event.path, event.act))
            .collect::<Vec<_>>(),
        [(Path::new("/"), Act::SyncDir)] // for the name of /secondary
    );
    let got = secondary.multi_get(&[key(5)]).remove(0).unwrap();
    assert_eq!(got, expected);
}

/// A limit of the values' size bounds what is read: values that come before the first one do not pile up.
#[test]
fn the_size_limit_bounds_the_memory() {
    let disk = SimDisk::new(Config::default());
    let mut o = options(0);
    o.env.fs = Arc::new(disk.clone());
    let merged = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&merged);
    let operator = ironstone::merge_operator("counted", move |_, _, operands| {
        count.fetch_add(1, Ordering::Relaxed);
        Some(operands.concat())
    });
    o.cf.merge_operator = Some(operator);
    let (db, _) = open(Path::new("/db"), &o);
    db.put(key(0), "first").unwrap();
    db.flush().unwrap();
    for n in 1..KEYS {
        db.merge(key(n), [7; 100]).unwrap();
    }
    let limited = ReadOptions {
        value_size_soft_limit: 1000,
        ..ReadOptions::default()
    };
    merged.store(0, Ordering::Relaxed);
    let keys: Vec<_> = (0..KEYS).map(key).collect();
    let got = db.with(&limited).multi_get(&keys);
    assert_eq!(got.iter().filter(|v| v.is_ok()).count(), 11);
    let merged = merged.load(Ordering::Relaxed);
    assert!(merged < 30, "{merged} values for a limit of ten");
}

/// A merge operator may look up keys itself, also many threads' at once, and may panic: reads on their way are waited for, and
/// the queues come back.
#[test]
fn a_merge_operator_reads_and_panics() {
    static DB: OnceLock<(Db, Vec<ColumnFamily>)> = OnceLock::new();
    static PANICS: AtomicBool = AtomicBool::new(false);
    let disk = SimDisk::new(Config::default());
    let mut o = options(0);
    o.env.fs = Arc::new(disk.clone());
    let operator = ironstone::merge_operator(
        "reads",
        |key: &[u8], _: Option<&[u8]>, operands: &[&[u8]]| {
            if let Some((db, families)) = DB.get() {
                let keys: Vec<Vec<u8>> = (0..20).map(|n| [key, &[n]].concat()).collect();
                let second = db.cf(&families[1]);
                second
                    .multi_get(&keys)
                    .into_iter()
                    .for_each(|v| drop(v.unwrap()));
            }
            assert!(!PANICS.load(Ordering::Relaxed), "a panic for a test");
            Some(operands.concat())
        },
    );
    o.cf.merge_operator = Some(operator);
    let (db, families) = open(Path::new("/db"), &o);
    for n in 0..300 {
        db.merge(key(n), "operand").unwrap();
        db.cf(&families[1])
            .put([key(n).as_bytes(), &[3]].concat(), "inner")
            .unwrap();
    }
    db.flush().unwrap();
    let (db, _) = DB.get_or_init(|| (db, families));
    let keys: Vec<_> = (0..300).map(key).collect();
    for panics in [false, true, false] {
        PANICS.store(panics, Ordering::Relaxed);
        base::sync::thread::scope(|scope| {
            for _ in 0..6 {
                scope.spawn(|| {
                    for value in db.multi_get(&keys) {
                        assert_eq!(value.is_err(), panics);
                    }
                });
            }
        });
    }
}

/// The rate limiter is asked for the same bytes however blocks are read.
#[test]
fn the_rate_limiter_is_charged_once() {
    let dir = dirs::scratch().unwrap();
    let mut o = options(0);
    let (db, _) = fill(dir.path(), &o, 3);
    db.flush().unwrap();
    db.close().unwrap();
    let keys: Vec<_> = (0..KEYS).step_by(11).map(key).collect();
    let mut charged = Vec::new();
    for (mode, direct) in [
        (ReadIoMode::Off, false),
        (ReadIoMode::Auto, false),
        (ReadIoMode::Pool, false),
        (ReadIoMode::Auto, has_direct_io(dir.path())),
    ] {
        let limits = RateLimiterOptions {
            mode: RateLimiterMode::ReadsOnly,
            ..RateLimiterOptions::new(1 << 40)
        };
        let limiter = Arc::new(RateLimiter::new(limits, SystemClock::shared()));
        o.env.rate_limiter = Some(Arc::clone(&limiter));
        o.db.read_io_mode = mode;
        o.db.use_direct_reads = direct;
        let (db, _) = open(dir.path(), &o);
        let read = ReadOptions {
            rate_limiter_priority: Some(IoPriority::User),
            ..ReadOptions::default()
        };
        // One key a call, because keys that share a block share a read.
        for key in &keys {
            drop(db.with(&read).multi_get(&[key]).remove(0).unwrap());
        }
        charged.push(limiter.total_bytes_through(IoPriority::User));
    }
    assert!(
        charged[0] > 0 && charged.iter().all(|&n| n == charged[0]),
        "{charged:?}"
    );
}

/// A thread that runs, or has failed.
struct Running<'a>(&'a AtomicUsize);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Queues that break again and again while many threads use them.
#[test]
fn queues_break_under_many_threads() {
    let s = Simulated::new(20_000, |_| {});
    let running = AtomicUsize::new(30);
    let failures = Mutex::new(0_u64);
    base::sync::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while running.load(Ordering::Relaxed) > 0 {
                s.disk.fail_queues((n % 2 == 0).then_some(n % 7));
                n += 1;
                base::sync::thread::sleep(Duration::from_micros(200));
            }
            s.disk.fail_queues(None);
            *failures.lock().unwrap() = n / 2;
        });
        for seed in 0..30 {
            let (s, running) = (&s, Running(&running));
            scope.spawn(move || {
                let _running = running;
                check(s.db(), &s.families, &mut Rng::new(seed), 6);
            });
        }
    });
    assert!(*failures.lock().unwrap() > 10);
    assert!(s.log().contains("read one block after the other"));
    check(s.db(), &s.families, &mut Rng::new(100), 3);
}

/// Many blocks are needed at once, of any size: what is on its way stays bounded, and all come.
#[test]
fn reads_on_their_way_are_bounded() {
    let disk = SimDisk::new(Config::default());
    let mut o = options(0);
    o.env.fs = Arc::new(disk.clone());
    o.cf.table.block_size = 1 << 20;
    o.cf.compression = CompressionType::None;
    let (db, families) = open(Path::new("/db"), &o);
    for level in 0..3 {
        for n in 0..40 {
            db.put(key(n * 3 + level), vec![n as u8; 1 << 20]).unwrap();
        }
        db.flush().unwrap();
    }
    let keys: Vec<_> = (0..120).map(key).collect();
    let statistics = o.env.statistics.clone().unwrap();
    let values = db.cf(&families[0]).multi_get(&keys);
    for (n, value) in values.into_iter().enumerate() {
        let value = value.unwrap().unwrap();
        assert_eq!((value.len(), value[0]), (1 << 20, (n / 3) as u8));
    }
    let batches = statistics.histogram(HistogramKind::MultigetIoBatchSize);
    assert!(batches.max() <= 10, "{batches:?}");
}
