//! Logs that are made ahead, and logs that are recycled.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use base::clock::SystemClock;
use base::stats::Ticker;
use ironstone::{Db, Options, WalIoMode};
use log::format::RecordType;
use log::{Pool, PoolOptions};
use sim::hooked::{Hook, HookedFs, Op, Verdict};

use super::sweeps::Nth;
use super::{DIR, Machine, SYNC, a_moment, is_log, put, until};

/// Fails every removal.
#[derive(Debug)]
struct NoRemoval;

impl Hook for NoRemoval {
    fn before(&self, op: Op, _: &Path) -> Verdict {
        if op == Op::Remove {
            Verdict::Fail(5) // EIO
        } else {
            Verdict::Go
        }
    }
}

/// A useless file that could not be removed was tried first, again and again: no log file was made ahead any
/// more.
#[test]
fn a_file_that_cannot_be_removed_does_not_stop_the_filling_of_others() {
    let dir = tempfile::tempdir().unwrap();
    let left = dir.path().join(log::pool::DIR).join("1.zero");
    std::fs::create_dir(left.parent().unwrap()).unwrap();
    std::fs::write(&left, vec![7; 128 << 10]).unwrap(); // not zeros
    let options = PoolOptions {
        file_bytes: 128 << 10,
        ready: 1,
        direct: false,
        recycle: 0,
    };
    let fs = HookedFs::new(Arc::new(NoRemoval));
    let pool = Pool::open(fs, SystemClock::shared(), dir.path(), options).unwrap();
    let mut failed = 0;
    until("a file is ready", || {
        failed += u32::from(pool.step(&mut |_| true).is_err());
        pool.ready() == 1
    });
    assert!(failed > 0 && left.exists() && pool.has_unfit());
}

/// Each file can be removed at the second try, except the one that was tried last.
#[derive(Debug, Default)]
struct OneStays {
    tried: Mutex<Vec<PathBuf>>,
}

const USELESS: usize = 4;

impl Hook for OneStays {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        let mut tried = self.tried.lock().unwrap();
        let known = tried.iter().position(|t| t == path);
        match known {
            Some(i) if op == Op::Remove && i + 1 == USELESS => Verdict::Fail(5),
            None if op == Op::Remove => {
                tried.push(path.to_path_buf());
                Verdict::Fail(5)
            }
            _ => Verdict::Go,
        }
    }
}

/// Of several such files the same one was tried each time, and the others stayed.
#[test]
fn a_file_that_cannot_be_removed_does_not_keep_others() {
    let dir = tempfile::tempdir().unwrap();
    let pool_dir = dir.path().join(log::pool::DIR);
    std::fs::create_dir(&pool_dir).unwrap();
    for i in 0..USELESS {
        std::fs::write(pool_dir.join(format!("{i}.zero")), vec![7; 128 << 10]).unwrap();
    }
    let options = PoolOptions {
        file_bytes: 128 << 10,
        ready: USELESS,
        direct: false,
        recycle: 0,
    };
    let hook = Arc::new(OneStays::default());
    let fs = HookedFs::new(Arc::clone(&hook) as _);
    let pool = Pool::open(fs, SystemClock::shared(), dir.path(), options).unwrap();
    let useless = || {
        let tried = hook.tried.lock().unwrap();
        let there = tried.iter().filter(|path| path.exists()).count();
        (tried.len(), there)
    };
    until("only one is left", || {
        drop(pool.step(&mut |_| true));
        useless() == (USELESS, 1)
    });
}

/// Zeroing hangs: no write waits for it, and the log grows.
#[test]
fn an_empty_pool_does_not_hold_writers_back() {
    let (machine, gate) = Machine::gated(WalIoMode::Direct);
    let (db, mut told) = machine.open_direct();
    assert_eq!(machine.count(Ticker::WalPrecreateMiss), 0);
    // The allocations of a growing log are not held back.
    gate.close(|op, path| op == Op::Allocate && path.starts_with("/db/log-pool"));
    for round in 0..3 {
        db.flush().unwrap();
        for i in 0..20 {
            told.push(put(&db, &SYNC, &format!("without{round}-{i:02}")).unwrap());
        }
    }
    let (hits, misses) = (
        machine.count(Ticker::WalPrecreateHit),
        machine.count(Ticker::WalPrecreateMiss),
    );
    assert!(misses >= 1, "{misses} misses, {hits} hits");
    machine.cut_power(&told, &[]);
    gate.open();
    until("a pool file is taken", || {
        told.push(put(&db, &SYNC, &format!("more{:04}", told.len())).unwrap());
        machine.count(Ticker::WalPrecreateHit) > hits
    });
    told.push(put(&db, &SYNC, "direct").unwrap());
    machine.cut_power(&told, &[]);
}

/// Many switches of logs: once the pool is filled, no log is a growing file.
#[test]
fn logs_are_taken_from_the_pool_and_their_files_filled_again() {
    let mut machine = Machine::new(WalIoMode::Direct);
    machine.options.db.wal_pool_files = 2;
    let (db, mut told) = machine.open_direct();
    for round in 0..6 {
        db.flush().unwrap();
        told.push(put(&db, &SYNC, &format!("round{round}")).unwrap());
        let ready = || {
            let names = machine.names("/db/log-pool");
            names
                .iter()
                .any(|n| Path::new(n).extension().is_some_and(|e| e == "zero"))
        };
        let before = machine.count(Ticker::WalPrecreateMiss);
        if ready() {
            // A file has this name a moment before the pool counts it: its directory is synced in between.
            a_moment();
            db.flush().unwrap();
            told.push(put(&db, &SYNC, &format!("again{round}")).unwrap());
            assert_eq!(machine.count(Ticker::WalPrecreateMiss), before);
        }
        machine.cut_power(&told, &[]);
    }
    assert!(machine.count(Ticker::WalPrecreateHit) >= 2);
}

/// A user copied the directory of a database after disabling file deletions. The log file that was being
/// made was gone, or had another name, when the copy came to it.
#[test]
fn files_in_the_making_stay_while_deletions_are_disabled() {
    let mut machine = Machine::new(WalIoMode::Direct);
    machine.options.cf.write_buffer_size = 4 << 20;
    let (db, mut told) = machine.open_direct();
    let being_made = || {
        let names = machine.names("/db/log-pool").into_iter();
        names
            .filter(|n| n.ends_with(".zeroing"))
            .collect::<Vec<_>>()
    };
    let mut before = Vec::new();
    until("a file is being made", || {
        let key = format!("many{:05}", told.len());
        db.with(&SYNC).put(&key, vec![1; 4 << 10]).unwrap();
        told.push(key);
        db.disable_file_deletions();
        before = being_made();
        if before.is_empty() {
            db.enable_file_deletions();
        }
        !before.is_empty()
    });
    // Enough to finish the file, and to need it.
    for i in 0..400 {
        let key = format!("held{i:03}");
        db.with(&SYNC).put(&key, vec![2; 16 << 10]).unwrap();
        told.push(key);
    }
    db.flush().unwrap();
    assert_eq!(being_made(), before);
    machine.cut_power(&told, &[]);
    let hits = machine.count(Ticker::WalPrecreateHit);
    db.enable_file_deletions();
    until("logs come from the pool again", || {
        told.push(put(&db, &SYNC, &format!("after{:05}", told.len())).unwrap());
        machine.count(Ticker::WalPrecreateHit) > hits
    });
    machine.cut_power(&told, &[]);
}

/// The types of the records at the starts of the logs.
fn first_types(machine: &Machine) -> Vec<u8> {
    let logs = machine.names(DIR).into_iter();
    logs.filter(|n| is_log(Path::new(n)))
        .filter_map(|n| {
            let bytes = io::read_file(&machine.disk, &Path::new(DIR).join(&n), 1 << 30).unwrap();
            bytes.get(6).copied().filter(|&t| t != 0)
        })
        .collect()
}

/// Rounds of writes with a flush after each, so that logs become free; each log is shorter than the one
/// whose file it reuses.
fn rounds(machine: &Machine, db: &Db, name: &str, told: &mut Vec<String>) {
    for round in 0..5 {
        for i in 0..(12 - 2 * round) {
            let key = format!("{name}-{round}-{i:02}");
            let value = format!("value of {round} {i} {}", "x".repeat(200));
            db.with(&SYNC).put(&key, value).unwrap();
            told.push(key);
        }
        machine.cut_power(told, &[]);
        if round < 4 {
            db.flush().unwrap();
            db.wait_for_compact().unwrap();
        }
    }
}

/// The records behind the end of a recycled log are another log's: no reader returns them.
#[test]
fn recycled_logs_are_read_to_their_end_and_no_further() {
    for mode in [WalIoMode::Buffered, WalIoMode::Direct] {
        let mut machine = Machine::new(mode);
        machine.options.db.recycle_log_file_num = 2;
        let db = machine.open();
        let mut told = Vec::new();
        rounds(&machine, &db, "first", &mut told);
        if mode == WalIoMode::Buffered {
            assert!(machine.count(Ticker::WalRecycled) >= 2, "{mode:?}");
        }
        let recyclable = RecordType::FULL.0 + 4..=RecordType::LAST.0 + 4;
        let types = first_types(&machine);
        assert!(types.iter().all(|t| recyclable.contains(t)), "{types:?}");
        drop(db);
        machine.reopen(&machine.disk, &told, &[], "closed");
    }
}

#[test]
fn recycling_goes_on_and_off_and_on_again() {
    let mut machine = Machine::new(WalIoMode::Buffered);
    let mut told = Vec::new();
    for (life, recycle) in [2, 0, 2, 0].into_iter().enumerate() {
        machine.options.db.recycle_log_file_num = recycle;
        machine.options.db.avoid_flush_during_recovery = life % 2 == 1;
        let db = machine.open();
        rounds(&machine, &db, &format!("life{life}"), &mut told);
        // The process is killed.
        let image = machine.disk.kill_image();
        drop(db);
        machine.disk = image;
        machine.options.env.fs = machine.disk.shared();
    }
    assert!(machine.count(Ticker::WalRecycled) >= 4);
}

/// Files are filled, become logs, are given back and used again; a step that fails is tried again the next
/// time.
fn life(pool: &Pool, dir: &Path, recyclable: bool) {
    for round in 0..4 {
        for _ in 0..20 {
            drop(pool.step(&mut |_| true));
        }
        let log = dir.join(format!("{round}.log"));
        drop(pool.take(&log));
        for _ in 0..2 {
            if log.exists() {
                drop(pool.retire(&log, recyclable));
            }
        }
    }
}

/// A file of the pool whose renaming, reading, syncing or removing failed was on no list any more, and kept
/// its space until the next open.
#[test]
fn whichever_call_fails_no_file_of_the_pool_is_forgotten() {
    let mut swept = 0;
    for recyclable in [false, true] {
        for n in 0..200 {
            let hook = Nth::off();
            let dir = tempfile::tempdir().unwrap();
            let left = dir.path().join(log::pool::DIR).join("1.zero");
            std::fs::create_dir(left.parent().unwrap()).unwrap();
            std::fs::write(&left, vec![0; 128 << 10]).unwrap();
            let options = PoolOptions {
                file_bytes: 128 << 10,
                ready: 2,
                direct: false,
                recycle: usize::from(recyclable),
            };
            let fs = HookedFs::new(Arc::clone(&hook) as _);
            let pool = Pool::open(fs, SystemClock::shared(), dir.path(), options).unwrap();
            hook.arm(n);
            life(&pool, dir.path(), recyclable);
            let Some((op, path)) = hook.disarm() else {
                break;
            };
            for _ in 0..100 {
                pool.step(&mut |_| true).unwrap();
            }
            assert_eq!(pool.next(), None);
            let names: Vec<_> = std::fs::read_dir(left.parent().unwrap())
                .unwrap()
                .map(|e| e.unwrap().file_name())
                .collect();
            // The other file is the reserve.
            assert_eq!(names.len(), pool.ready() + 1, "{op:?} {path:?}: {names:?}");
            swept += 1;
        }
    }
    assert!(swept > 50, "{swept}");
}

/// While it is on, the length of a log cannot be read, and no log can be removed.
#[derive(Debug, Default)]
struct NoLength {
    is_on: AtomicBool,
    /// The length is not refused: the file system panics.
    panics: bool,
}

impl Hook for NoLength {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        let fails = matches!(op, Op::Look | Op::Remove) && is_log(path);
        if !fails || !self.is_on.load(Ordering::Relaxed) {
            return Verdict::Go;
        }
        assert!(!self.panics, "planted panic");
        Verdict::Fail(5) // EIO
    }
}

/// The file of a log that could not be begun stayed until the next open, if its length could not be read after it was
/// created, or if it could not be removed.
#[test]
fn a_log_that_was_never_used_is_removed_at_last() {
    for panics in [false, true] {
        removed_at_last(NoLength {
            panics,
            ..NoLength::default()
        });
    }
}

fn removed_at_last(hook: NoLength) {
    let dir = tempfile::tempdir().unwrap();
    let hook = Arc::new(hook);
    let options = Options::default()
        .with_db(|db| db.create_if_missing = true)
        .with_env(|env| env.fs = HookedFs::new(Arc::clone(&hook) as _));
    let db = Db::open(dir.path(), &options).unwrap();
    let logs = || {
        let names = std::fs::read_dir(dir.path()).unwrap();
        names
            .filter(|e| is_log(&e.as_ref().unwrap().path()))
            .count()
    };
    assert_eq!(logs(), 1);
    hook.is_on.store(true, Ordering::Relaxed);
    for _ in 0..3 {
        db.put("key", "value").unwrap();
        let flushed = catch_unwind(AssertUnwindSafe(|| db.flush()));
        assert!(!matches!(flushed, Ok(Ok(()))), "{flushed:?}");
    }
    assert!(logs() > 1, "no log was begun in vain");
    hook.is_on.store(false, Ordering::Relaxed);
    until("the other logs are removed", || {
        db.put("key", "value").unwrap();
        db.flush().unwrap();
        logs() == 1
    });
}
