//! Opening a database: with too few threads; the replay of logs of several families by several threads; and a
//! database with thousands of tables, with one thread and with many. This prints how long that open took, beside
//! RocksDB: `cargo test -p ironstone-sim --test it opening -- --nocapture`.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

use base::rng::Rng;
use base::sync::thread::JoinHandle;
use base::threads::{Run, SystemThreads, Threads};
use io::FileSystem;
use ironstone::WalIoMode;
use ironstone::{Db, IngestExternalFileOptions, Options, SstFileWriter, WriteBatch};
use sim::disk::{Config, SimDisk};
use sim::hooked::{Hook, HookedFs, Op, Verdict};
use sim::oracle::{self, RocksDb};
use sim::{dirs, oracle::content};

const TABLES: usize = 5000;

#[test]
#[expect(clippy::disallowed_methods, reason = "measures time")]
#[expect(clippy::print_stdout, reason = "says what it measured")]
fn five_thousand_tables() {
    let temp = dirs::scratch().unwrap();
    let dir = temp.path().join("db");
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.cf.disable_auto_compactions = true;
    let mut writer = SstFileWriter::new(&options);
    let mut files = Vec::new();
    for i in 0..TABLES {
        let path = temp.path().join(format!("{i}.sst"));
        writer.open(&path).unwrap();
        for j in 0..10 {
            writer.put(format!("{i:06}/{j}"), [b'v'; 100]).unwrap();
        }
        writer.finish().unwrap();
        files.push(path);
    }
    let start = Instant::now();
    let db = Db::open(&dir, &options).unwrap();
    let how = IngestExternalFileOptions {
        move_files: true,
        ..IngestExternalFileOptions::default()
    };
    db.ingest_external_file(&files, &how).unwrap();
    println!("ingest of {TABLES} tables: {:?}", start.elapsed());
    db.close().unwrap();
    for round in 0..3 {
        for threads in [1, 16] {
            options.db.max_file_opening_threads = threads;
            let start = Instant::now();
            let db = Db::open(&dir, &options).unwrap();
            println!(
                "{round}: Ironstone, {threads:2} threads: {:?}",
                start.elapsed()
            );
            assert!(db.get("004999/9").unwrap().is_some());
            db.close().unwrap();
        }
        if let Some(lib) = oracle::rocksdb() {
            let start = Instant::now();
            let db = RocksDb::open(&lib.options(), &dir).unwrap();
            println!("{round}: RocksDB, 16 threads: {:?}", start.elapsed());
            assert!(db.get(b"004999/9").unwrap().is_some());
        }
    }
}

/// Logs of several families with every kind of record, in batches that span the families. Some batches are
/// larger than the amount that is inserted at once; in some the memtables become full in the middle.
#[test]
fn logs_are_replayed_by_several_threads_as_they_were_written() {
    for (threads, write_buffer_size) in [(16, 64 << 20), (16, 256 << 10), (1, 64 << 20)] {
        let temp = dirs::scratch().unwrap();
        let dir = temp.path().join("db");
        let mut options = Options::default();
        options.db.create_if_missing = true;
        options.db.max_file_opening_threads = threads;
        options.cf.merge_operator = base::merge::parse("stringappend").unwrap();
        let db = Db::open(&dir, &options).unwrap();
        let mut families = vec![db.default_column_family()];
        for name in ["a", "b", "c", "d"] {
            families.push(db.create_column_family(name, &options.cf).unwrap());
        }
        let mut rng = Rng::new(7);
        for _ in 0..4000 {
            let mut batch = WriteBatch::new();
            for _ in 0..=rng.below(6) {
                let family = &families[rng.below(5) as usize];
                let key = format!("{:05}", rng.below(3000));
                match rng.below(10) {
                    0 => batch.cf(family).delete(&key).unwrap(),
                    1 => batch.cf(family).merge(&key, b"more").unwrap(),
                    2 if rng.one_in(20) => {
                        let end = format!("{key}~");
                        batch.cf(family).delete_range(&key, &end).unwrap();
                    }
                    _ => batch
                        .cf(family)
                        .put(&key, vec![b'v'; rng.below(400) as usize])
                        .unwrap(),
                }
            }
            db.write(&mut batch).unwrap();
        }
        let copy = temp.path().join("killed");
        db.pause_background_work().unwrap(); // the directory does not change
        let wanted = content::everything(&db).unwrap();
        dirs::copy(&dir, &copy).unwrap();
        db.continue_background_work().unwrap();
        drop(families);
        db.close().unwrap();
        options.cf.write_buffer_size = write_buffer_size;
        let db = Db::open_all(&copy, &options).unwrap();
        assert_eq!(content::everything(&db).unwrap(), wanted, "{threads}");
        db.close().unwrap();
    }
}

/// A system with a limited number of threads.
#[derive(Debug)]
struct Scarce {
    disk: SimDisk,
    left: AtomicUsize,
    started: AtomicUsize,
    running: Arc<AtomicUsize>,
    /// A thread still ran when the database was no longer locked.
    outlived: Arc<AtomicBool>,
}

impl Threads for Scarce {
    fn start(&self, name: &str, run: Run) -> std::io::Result<JoinHandle<()>> {
        let one_less = |n: usize| n.checked_sub(1);
        self.left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less)
            .map_err(|_| std::io::Error::from_raw_os_error(11))?;
        self.started.fetch_add(1, Ordering::SeqCst);
        self.running.fetch_add(1, Ordering::SeqCst);
        let (running, outlived) = (Arc::clone(&self.running), Arc::clone(&self.outlived));
        let disk = self.disk.clone();
        let run = Box::new(move || {
            run();
            if disk.lock(Path::new("/db/LOCK")).is_ok() {
                outlived.store(true, Ordering::SeqCst);
            }
            running.fetch_sub(1, Ordering::SeqCst);
        });
        SystemThreads.start(name, run)
    }
}

/// The system had no more threads for an open. Those that the open had started before were not ended and
/// went on, in a database that was no longer locked: together with a second open they flushed the same
/// memtables and deleted each other's tables. Now they are ended and joined before the lock is released.
#[test]
fn an_open_without_enough_threads_leaves_none_behind() {
    let disk = SimDisk::new(Config::default());
    let scarce = Arc::new(Scarce {
        disk: disk.clone(),
        left: AtomicUsize::new(usize::MAX),
        started: AtomicUsize::new(0),
        running: Arc::default(),
        outlived: Arc::default(),
    });
    let mut options = Options::default();
    options.env.fs = disk.shared();
    options.env.threads = Arc::<Scarce>::clone(&scarce);
    options.db.create_if_missing = true;
    // Every kind of thread.
    options.db.max_background_jobs = 8;
    options.db.wal_io_mode = WalIoMode::Direct;
    options.db.wal_ttl_seconds = 3600;
    options.db.stats_dump_period_sec = 600;
    // The content of the log is flushed in the background.
    options.cf.write_buffer_size = 64 << 10;
    let mut keys = 0;
    let mut fill = |db: &Db| {
        for _ in 0..40 {
            db.put(format!("{keys:05}"), [b'v'; 1000]).unwrap();
            keys += 1;
        }
        keys
    };
    let db = Db::open("/db", &options).unwrap();
    fill(&db);
    db.close().unwrap();
    let all = scarce.started.swap(0, Ordering::SeqCst);
    assert!(all >= 8 + 4, "only {all} threads");
    for enough in 0..all {
        scarce.left.store(enough, Ordering::SeqCst);
        let e = Db::open("/db", &options).unwrap_err();
        assert!(e.to_string().contains("background thread"), "{e}");
        let running = scarce.running.load(Ordering::SeqCst);
        assert_eq!(running, 0, "{enough} threads were enough for an open");
        scarce.left.store(usize::MAX, Ordering::SeqCst);
        let db = Db::open("/db", &options).unwrap();
        let written = fill(&db);
        for key in 0..written {
            assert!(db.get(format!("{key:05}")).unwrap().is_some(), "{key}");
        }
        db.close().unwrap();
        assert_eq!(scarce.running.load(Ordering::SeqCst), 0);
    }
    assert!(!scarce.outlived.load(Ordering::SeqCst));
}

/// More threads were asked for than the system had. Those that could not be started were forgotten: the
/// same call again found nothing to change.
#[test]
fn threads_that_could_not_be_started_are_started_later() {
    let disk = SimDisk::new(Config::default());
    let scarce = Arc::new(Scarce {
        disk: disk.clone(),
        left: AtomicUsize::new(usize::MAX),
        started: AtomicUsize::new(0),
        running: Arc::default(),
        outlived: Arc::default(),
    });
    let mut options = Options::default();
    options.env.fs = disk.shared();
    options.env.threads = Arc::<Scarce>::clone(&scarce);
    options.db.create_if_missing = true;
    let db = Db::open("/db", &options).unwrap();
    let before = scarce.started.load(Ordering::SeqCst);
    scarce.left.store(3, Ordering::SeqCst);
    let more = [("max_background_jobs", "12")];
    for _ in 0..2 {
        let e = db.set_db_options(&more).unwrap_err();
        assert!(e.to_string().contains("in force"), "{e}");
        assert_eq!(db.db_options().max_background_jobs, 12);
        assert_eq!(scarce.started.load(Ordering::SeqCst), before + 3);
    }
    scarce.left.store(usize::MAX, Ordering::SeqCst);
    db.set_db_options(&more).unwrap();
    assert_eq!(scarce.started.load(Ordering::SeqCst), before + 10);
    db.put("key", "value").unwrap();
    db.flush().unwrap();
    db.close().unwrap();
    assert_eq!(scarce.running.load(Ordering::SeqCst), 0);
}

/// Just before LOCK is taken, another opener creates the database, writes to it, and closes it.
#[derive(Debug)]
struct SomebodyIsFaster {
    options: Options,
    armed: AtomicBool,
}

impl Hook for SomebodyIsFaster {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        let lock = op == Op::OpenWrite && path.file_name().is_some_and(|n| n == "LOCK");
        if lock && self.armed.swap(false, Ordering::SeqCst) {
            let db = Db::open("/db", &self.options).unwrap();
            db.put("k", "theirs").unwrap();
            db.flush().unwrap();
            db.close().unwrap();
        }
        Verdict::Go
    }
}

/// The open looked for a database before LOCK was taken, and not again. The opener that then got LOCK made a
/// new database of it, and the tables of the other one were removed.
#[test]
fn a_database_that_another_opener_has_just_made_is_opened() {
    let disk = SimDisk::new(Config::default());
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.env.fs = disk.shared();
    let hook = SomebodyIsFaster {
        options: options.clone(),
        armed: AtomicBool::new(true),
    };
    options.env.fs = HookedFs::over(disk.shared(), Arc::new(hook));
    let db = Db::open("/db", &options).unwrap();
    assert_eq!(db.get("k").unwrap().as_deref(), Some(&b"theirs"[..]));
    db.close().unwrap();
}
