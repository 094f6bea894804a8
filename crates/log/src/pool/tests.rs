//! Files are filled, taken, retired and held; files that an earlier process left are checked.

use super::filling::RESERVE;
use super::*;
use base::clock::SystemClock;
use io::posix::Posix;

const OPTIONS: PoolOptions = PoolOptions {
    file_bytes: 128 << 10,
    ready: 1,
    direct: false,
    recycle: 0,
};

const LARGE: PoolOptions = PoolOptions {
    file_bytes: 16 << 20,
    ..OPTIONS
};

fn open(logs: &Path, options: PoolOptions) -> Pool {
    Pool::open(Posix::shared(), SystemClock::shared(), logs, options).unwrap()
}

/// A step that is never told to wait or to end.
fn step(pool: &Pool) -> u64 {
    pool.step(&mut |_| true).unwrap()
}

/// Works until a file is ready.
fn fill_one(pool: &Pool) {
    while pool.ready() == 0 {
        step(pool);
    }
}

/// Works until there is nothing to do.
fn fill_all(pool: &Pool) {
    while pool.next().is_some() {
        step(pool);
    }
}

fn fill(bytes: u64, filled: u64, urgent: bool) -> Next {
    Next::Fill {
        bytes,
        filled,
        urgent,
    }
}

#[test]
fn files_are_filled_taken_retired_and_filled_again() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path(), OPTIONS);
    let log = dir.path().join("000004.log");
    assert_eq!(pool.take(&log).unwrap(), None);
    fill_all(&pool);
    assert_eq!(pool.next(), None, "that is enough");
    assert_eq!(pool.take(&log).unwrap(), Some(Taken::Zeroed));
    assert_eq!(std::fs::read(&log).unwrap(), vec![0; 128 << 10]);
    std::fs::write(&log, vec![1; 128 << 10]).unwrap();
    pool.retire(&log, false).unwrap();
    assert!(!log.exists() && pool.next().is_some());
    fill_all(&pool);
    assert_eq!(pool.take(&log).unwrap(), Some(Taken::Zeroed));
    assert_eq!(std::fs::read(&log).unwrap(), vec![0; 128 << 10]);
}

#[test]
fn what_an_earlier_process_left_is_used_only_if_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let sub = dir.path().join(DIR);
    std::fs::create_dir(&sub).unwrap();
    std::fs::write(sub.join("1.zeroing"), vec![0; 100]).unwrap();
    std::fs::write(sub.join("2.zero"), vec![0; 100]).unwrap();
    std::fs::write(sub.join("note.txt"), b"mine").unwrap();
    let pool = open(dir.path(), OPTIONS);
    assert_eq!(pool.ready(), 0);
    assert!(!sub.join("1.zeroing").exists() && sub.join("note.txt").exists());
    drop(pool);
    std::fs::write(sub.join("3.zero"), vec![9; 128 << 10]).unwrap();
    let log = dir.path().join("000004.log");
    let size = 128 << 10;
    let mut late = vec![0; size];
    late[size - 1] = 1;
    for (content, taken) in [
        (vec![9; size], None),
        (late, None),
        (vec![0; size], Some(Taken::Zeroed)),
    ] {
        std::fs::write(sub.join("3.zero"), content).unwrap();
        let pool = open(dir.path(), OPTIONS);
        assert_eq!(pool.take(&log).unwrap(), None, "not looked at yet");
        assert_eq!(pool.next(), Some(Next::Tidy));
        assert_eq!(step(&pool), 0);
        assert_eq!(pool.ready(), usize::from(taken.is_some()));
        assert_eq!(pool.take(&log).unwrap(), taken, "foreign content is no log");
        assert!(!sub.join("3.zero").exists());
    }
}

#[test]
fn what_is_no_plain_file_is_neither_followed_nor_used() {
    let dir = tempfile::tempdir().unwrap();
    let sub = dir.path().join(DIR);
    std::fs::create_dir(&sub).unwrap();
    let mine = dir.path().join("mine");
    std::fs::write(&mine, vec![0; 128 << 10]).unwrap();
    std::fs::create_dir(sub.join("1.zero")).unwrap();
    std::fs::create_dir(sub.join("2.reserve")).unwrap();
    std::os::unix::fs::symlink(&mine, sub.join("3.zero")).unwrap();
    std::os::unix::fs::symlink(&mine, sub.join("4.reserve")).unwrap();
    std::os::unix::fs::symlink("nowhere", sub.join("5.zero")).unwrap();
    let pool = open(dir.path(), OPTIONS);
    let log = dir.path().join("000004.log");
    assert_eq!(pool.take(&log).unwrap(), None);
    step(&pool);
    assert_eq!(pool.take(&log).unwrap(), None);
    // As if the file system were full: only the reserve is left.
    pool.starved.store(true, Ordering::Relaxed);
    assert_eq!(pool.take(&log).unwrap(), None);
    assert!(sub.join("1.zero").is_dir() && sub.join("2.reserve").is_dir());
    assert_eq!(std::fs::read(&mine).unwrap(), vec![0; 128 << 10]);
    fill_all(&pool);
    assert_eq!(pool.take(&log).unwrap(), Some(Taken::Zeroed));
    assert!(!log.is_symlink());
}

/// Regression test: the log directory was removed while the database was open. The pool created it
/// again together with its own, and the next log went there.
#[test]
fn a_directory_that_is_gone_is_not_made_again() {
    let dir = tempfile::tempdir().unwrap();
    let logs = dir.path().join("logs");
    std::fs::create_dir(&logs).unwrap();
    let pool = open(&logs, OPTIONS);
    std::fs::remove_dir(&logs).unwrap();
    assert!(pool.step(&mut |_| true).unwrap_err().is_not_found());
    assert!(!logs.exists());
}

/// Regression test: while a directory was copied, and the database had been asked to keep its files,
/// the file in progress was removed or renamed before the copy reached it.
#[test]
fn what_is_held_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path(), LARGE);
    let log = dir.path().join("000004.log");
    fill_one(&pool);
    assert_eq!(pool.take(&log).unwrap(), Some(Taken::Zeroed));
    // Filled but for the last piece: the next step would rename it.
    for _ in 1..(1 << 20) / PIECE {
        step(&pool);
    }
    let names = || {
        let all = std::fs::read_dir(dir.path().join(DIR)).unwrap();
        all.map(|e| e.unwrap().file_name()).collect::<Vec<_>>()
    };
    let before = names();
    assert_eq!(before, ["2.zeroing"]);
    pool.hold();
    pool.hold();
    pool.release();
    assert_eq!((pool.next(), pool.has_some()), (None, false));
    assert_eq!(step(&pool), 0);
    assert_eq!(pool.take(&log).unwrap(), None);
    assert_eq!(names(), before);
    pool.release();
    assert!(pool.has_some() && pool.next().is_some());
    step(&pool);
    assert_eq!(names(), ["2.zero"]);
    // A ready file may become a log: it is renamed, and is not lost.
    pool.hold();
    assert_eq!(pool.take(&log).unwrap(), Some(Taken::Zeroed));
}

/// `hold` waits for a step in progress, which ends soon. The file that the step was checking is not
/// discarded, but checked again later.
#[test]
fn a_hold_waits_for_the_step_and_the_step_does_not_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let left = dir.path().join(DIR).join("3.zero");
    std::fs::create_dir(dir.path().join(DIR)).unwrap();
    std::fs::write(&left, vec![0; 128 << 10]).unwrap();
    let pool = open(dir.path(), OPTIONS);
    base::sync::thread::scope(|scope| {
        let mut holder = None;
        let go = &mut |_| {
            if holder.is_none() {
                holder = Some(scope.spawn(|| pool.hold()));
            }
            while lock(&pool.bench).holds == 0 {
                base::sync::thread::yield_now();
            }
            true
        };
        assert_eq!(pool.step(go).unwrap(), 0);
    });
    assert!(left.exists() && pool.ready() == 0 && pool.next().is_none());
    pool.release();
    fill_all(&pool);
    assert_eq!(pool.ready(), 1);
    assert!(left.exists());
}

#[test]
fn recycled_logs_are_taken_as_they_are_and_not_by_the_next_process() {
    let dir = tempfile::tempdir().unwrap();
    let options = PoolOptions {
        ready: 0,
        recycle: 1,
        ..OPTIONS
    };
    let pool = open(dir.path(), options);
    let [a, b] = ["000004.log", "000005.log"].map(|n| dir.path().join(n));
    for log in [&a, &b] {
        std::fs::write(log, b"old").unwrap();
        pool.retire(log, true).unwrap();
        assert!(!log.exists());
    }
    assert_eq!(pool.take(&a).unwrap(), Some(Taken::Recycled));
    assert_eq!(std::fs::read(&a).unwrap(), b"old");
    assert_eq!(pool.take(&b).unwrap(), None, "one was kept");
    pool.retire(&a, true).unwrap();
    let pool = open(dir.path(), options);
    assert_eq!(pool.take(&b).unwrap(), None);
}

/// Each call writes one piece, as large as announced. (Earlier, a whole file of 4 MiB was written
/// beside the first puts, and 128 MiB a second later, one MiB at a time: a synced put had to wait
/// for the accumulated writes.)
#[test]
fn each_step_is_one_piece_and_files_grow_from_a_small_one() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path(), LARGE);
    for bytes in [256 << 10, 1 << 20, 4 << 20, 16 << 20, 16 << 20] {
        for filled in (0..bytes).step_by(PIECE as usize) {
            assert_eq!(pool.next(), Some(fill(bytes, filled, true)));
            let mut told = Vec::new();
            let written = pool.step(&mut |n| {
                told.push(n);
                true
            });
            assert_eq!((written.unwrap(), told), (PIECE, vec![PIECE]));
        }
        assert_eq!(pool.ready(), 1);
        let log = dir.path().join("000004.log");
        assert_eq!(pool.take(&log).unwrap(), Some(Taken::Zeroed));
        assert_eq!(log.metadata().unwrap().len(), bytes);
    }
}

/// The first log takes the file that was ready, and the next one does not wait for the reserve.
#[test]
fn a_reserve_in_the_making_waits_where_no_file_is_ready() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path(), LARGE);
    let log = dir.path().join("000004.log");
    fill_one(&pool);
    step(&pool);
    assert_eq!(pool.next(), Some(fill(RESERVE, PIECE, false)));
    assert_eq!(pool.take(&log).unwrap(), Some(Taken::Zeroed));
    assert_eq!(pool.next(), Some(fill(1 << 20, 0, true)));
    fill_one(&pool);
    assert_eq!(pool.next(), Some(fill(RESERVE, PIECE, false)));
    fill_all(&pool);
    assert_eq!(pool.take(&log).unwrap(), Some(Taken::Zeroed));
    assert_eq!(std::fs::read(&log).unwrap(), vec![0; 1 << 20]);
    assert!(lock(&pool.reserve).is_some());
}

#[test]
fn a_step_that_is_not_let_go_writes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path(), LARGE);
    let before = pool.next();
    assert_eq!(pool.step(&mut |_| false).unwrap(), 0);
    assert_eq!((pool.next(), pool.has_some()), (before, false));
}

/// A log that is needed before the next file is done gets the filled part of that file, if it is
/// large enough, and only that part: the rest is an old log.
#[test]
fn what_is_filled_of_a_file_is_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let pool = open(dir.path(), LARGE);
    let log = dir.path().join("000004.log");
    std::fs::create_dir(dir.path().join(DIR)).unwrap();
    std::fs::write(&log, vec![1; 16 << 20]).unwrap();
    pool.last_bytes.store(16 << 20, Ordering::Relaxed);
    pool.retire(&log, false).unwrap();
    for pieces in 1..=4 {
        assert!(!pool.has_some());
        assert_eq!(pool.take(&log).unwrap(), None, "{pieces} pieces");
        step(&pool);
    }
    assert!(pool.has_some() && pool.ready() == 0);
    assert_eq!(pool.take(&log).unwrap(), Some(Taken::Zeroed));
    assert_eq!(std::fs::read(&log).unwrap(), vec![0; 256 << 10]);
    let next = fill(1 << 20, 0, true);
    assert_eq!(pool.next(), Some(next), "and it grows from there");
    step(&pool);
    drop(pool);
    let pool = open(dir.path(), LARGE);
    assert_eq!(std::fs::read_dir(dir.path().join(DIR)).unwrap().count(), 0);
    assert_eq!(pool.take(&log).unwrap(), None);
}
