//! The difficult cases of the durable write path: devices that fail, fill up or hang, concurrent writers,
//! and logs that are made ahead or recycled. They run on a simulated disk, so that every test ends with
//! power cuts.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use base::rng::Rng;
use base::stats::{Statistics, Ticker};
use ironstone::listener::FlushJobInfo;
use ironstone::{
    Db, Env, EventListener, FlushOptions, Options, PendingWrite, WriteBatch, WriteOptions,
};
use ironstone::{InfoLogLevel, WalIoMode};
use sim::dirs;
use sim::disk::{Act, Config, CrashKind, Fault, Repeat, SimDisk};
use sim::hooked::{Hook, HookedFs, Op, Verdict};
use sim::oracle::{self, RocksDb, ldb};

mod callbacks;
mod callers;
mod closing;
mod courtesy;
mod errors;
mod held_up;
mod intervals;
mod meetings;
mod own_threads;
mod panics;
mod pending;
mod pool;
mod space;
mod sweeps;
mod writers;

const DIR: &str = "/db";
/// Longer than anything here takes.
const LONG: Duration = Duration::from_secs(20);

const SYNC: WriteOptions = WriteOptions {
    sync: true,
    disable_wal: false,
    no_slowdown: false,
    low_pri: false,
};

fn is_log(path: &Path) -> bool {
    path.extension().is_some_and(|e| e == "log")
}

/// A durable write of a log.
fn durable_write(act: Act, path: &Path) -> bool {
    act == Act::WriteDsync && is_log(path)
}

/// A write of a log that takes new space.
fn growing_write(act: Act, path: &Path) -> bool {
    act == Act::Write && is_log(path)
}

fn log_sync(act: Act, path: &Path) -> bool {
    act == Act::Sync && is_log(path)
}

fn log_writes(op: Op, path: &Path) -> bool {
    op == Op::Write && is_log(path)
}

fn log_syncs(op: Op, path: &Path) -> bool {
    op == Op::Sync && is_log(path)
}

/// A database on a simulated disk.
struct Machine {
    disk: SimDisk,
    stats: Arc<Statistics>,
    options: Options,
}

impl Machine {
    fn new(mode: WalIoMode) -> Self {
        let disk = SimDisk::new(Config::default());
        let stats = Arc::new(Statistics::new());
        let mut options = Options {
            env: Env {
                fs: disk.shared(),
                statistics: Some(Arc::clone(&stats)),
                ..Env::default()
            },
            ..Options::default()
        };
        options.db.create_if_missing = true;
        options.db.stats_dump_period_sec = 0;
        options.db.info_log_level = InfoLogLevel::Info;
        options.db.wal_io_mode = mode;
        options.cf.write_buffer_size = 1 << 20;
        options.cf.arena_block_size = 4096;
        options.cf.disable_auto_compactions = true;
        options.cf.table.no_block_cache = true;
        Self {
            disk,
            stats,
            options,
        }
    }

    /// The same with a gate between engine and disk.
    fn gated(mode: WalIoMode) -> (Self, Arc<Gate>) {
        let mut machine = Self::new(mode);
        let gate = Arc::new(Gate::default());
        machine.options.env.fs = HookedFs::over(machine.disk.shared(), Arc::clone(&gate) as _);
        (machine, gate)
    }

    /// The listener is called for databases that are opened from here on.
    fn listen<L: EventListener + 'static>(&mut self, listener: &Arc<L>) {
        self.options.env.listeners.add(Arc::clone(listener) as _);
    }

    fn open(&self) -> Db {
        Db::open_all(DIR, &self.options).unwrap()
    }

    /// Opens it and writes until the log is a pool file; the keys are `warm…`.
    fn open_direct(&self) -> (Db, Vec<String>) {
        let db = self.open();
        let mut told = Vec::new();
        while self.count(Ticker::WalPrecreateHit) == 0 {
            told.push(put(&db, &SYNC, &format!("warm{:04}", told.len())).unwrap());
            std::thread::sleep(Duration::from_millis(1));
        }
        (db, told)
    }

    /// The device leaves nothing, half or all of a write that fails, in turn. This moves on by so many
    /// turns.
    fn take_turns(&self, db: &Db, turns: usize) {
        for _ in 0..turns {
            self.fail_a_write(db, "takes its turn");
            db.resume().unwrap();
        }
    }

    /// A write of a buffered log fails, and the database refuses writes.
    fn fail_a_write(&self, db: &Db, key: &str) {
        self.disk.fail_on(Fault::Eio, Repeat::Once, growing_write);
        put(db, &WriteOptions::default(), key).unwrap_err();
    }

    /// The sync of a log fails, and the database refuses writes.
    fn fail_a_sync(&self, db: &Db) {
        self.disk.fail_on(Fault::Sync, Repeat::Once, log_sync);
        put(db, &SYNC, "fails").unwrap_err();
    }

    fn count(&self, ticker: Ticker) -> u64 {
        self.stats.get(ticker)
    }

    fn log_text(&self) -> String {
        let text = io::read_file(&self.disk, &Path::new(DIR).join("LOG"), 1 << 20).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    }

    /// Names in a directory, sorted.
    fn names(&self, dir: &str) -> Vec<String> {
        names(&self.disk, dir)
    }

    /// Cuts the power in several ways. Each time all acknowledged keys are there, no others than those that
    /// may be, and no record is logged twice; RocksDB agrees before any recovery of ours.
    fn cut_power(&self, told: &[String], perhaps: &[String]) {
        let mut rng = Rng::new(7);
        for kind in CrashKind::ALL {
            let image = self.disk.crash_image(&mut rng, kind);
            let what = format!("{kind:?}");
            each_is_logged_once(&image, told, &what);
            if matches!(kind, CrashKind::Nothing | CrashKind::Everything) {
                rocksdb_finds(&image, told, perhaps, &what);
            }
            self.reopen(&image, told, perhaps, &what);
        }
    }

    /// Opens an image twice.
    fn reopen(&self, image: &SimDisk, told: &[String], perhaps: &[String], what: &str) {
        let mut options = self.options.clone();
        options.env.fs = image.shared();
        for time in ["first", "second"] {
            let db = Db::open_all(DIR, &options).unwrap();
            let pairs = sim::oracle::content::everything(&db).unwrap().remove(0).1;
            let records = db.property("rocksdb.estimate-num-keys").unwrap();
            let what = format!("{what}, {time} open");
            assert_eq!(records, pairs.len().to_string(), "{what}");
            check(&pairs, told, perhaps, &what);
            db.close().unwrap();
        }
    }
}

/// Opens a database that another thread is still closing.
fn open_again(options: &Options) -> Db {
    let mut again = None;
    until("it can be opened again", || {
        again = Db::open_all(DIR, options).ok();
        again.is_some()
    });
    again.unwrap()
}

fn names(disk: &SimDisk, dir: &str) -> Vec<String> {
    let mut names: Vec<String> = io::FileSystem::list(disk, Path::new(dir))
        .unwrap_or_default()
        .into_iter()
        .map(|n| n.into_string().unwrap())
        .collect();
    names.sort();
    names
}

/// Puts a key; returns it.
fn put(db: &Db, options: &WriteOptions, key: &str) -> base::Result<String> {
    db.with(options).put(key, "v")?;
    Ok(key.to_owned())
}

/// The same, as a pending write.
fn write_async(db: &Db, key: &str) -> PendingWrite {
    let mut batch = WriteBatch::new();
    batch.put(key, "v").unwrap();
    db.write_async(batch).unwrap()
}

/// Begins a flush, also where writes stall because of it.
fn flush_in_background(db: &Db) {
    let options = FlushOptions {
        wait: false,
        allow_write_stall: true,
    };
    db.with(&options).flush().unwrap();
}

fn check(pairs: &[(Vec<u8>, Vec<u8>)], told: &[String], perhaps: &[String], what: &str) {
    let found: Vec<String> = pairs
        .iter()
        .map(|(k, _)| String::from_utf8(k.clone()).unwrap())
        .collect();
    for key in told {
        assert!(found.contains(key), "{what}: {key} is lost: {found:?}");
    }
    for key in &found {
        let known = told.contains(key) || perhaps.contains(key);
        assert!(known, "{what}: nobody wrote {key}");
    }
}

/// Asserts that each key is in the logs at most once.
fn each_is_logged_once(image: &SimDisk, told: &[String], what: &str) {
    let logs = names(image, DIR)
        .into_iter()
        .filter(|n| is_log(Path::new(n)));
    let bytes: Vec<u8> = logs
        .flat_map(|n| io::read_file(image, &Path::new(DIR).join(n), 1 << 30).unwrap())
        .collect();
    let text = String::from_utf8_lossy(&bytes);
    for key in told {
        assert!(
            key.len() > 3,
            "{key} may stand in a nonce or a checksum by chance"
        );
        let digit = |c: char| c.is_ascii_digit();
        let ends = text
            .match_indices(key.as_str())
            .map(|(at, _)| at + key.len());
        let n = ends.filter(|&at| !text[at..].starts_with(digit)).count();
        assert!(n <= 1, "{what}: {key} is logged {n} times");
    }
}

fn exported(image: &SimDisk) -> (tempfile::TempDir, PathBuf) {
    let temp = dirs::scratch().unwrap();
    image.export(temp.path()).unwrap();
    let path = temp.path().join(DIR.trim_start_matches('/'));
    (temp, path)
}

/// Both releases of RocksDB open the image as a crash left it.
fn rocksdb_finds(image: &SimDisk, told: &[String], perhaps: &[String], what: &str) {
    if let Some(lib) = oracle::rocksdb() {
        let (_temp, path) = exported(image);
        let db = RocksDb::open_all(&lib.options(), path).unwrap();
        let pairs = db.iterator().collect_all().unwrap();
        check(&pairs, told, perhaps, &format!("RocksDB, {what}"));
    }
    if ldb::available() {
        let (_temp, path) = exported(image);
        let pairs = ldb::scan(&path, "default").unwrap();
        check(&pairs, told, perhaps, &format!("ldb, {what}"));
    }
}

/// Selects operations.
type Which = fn(Op, &Path) -> bool;

/// Holds operations back while it is closed.
#[derive(Debug, Default)]
struct Gate {
    closed: Mutex<Option<Which>>,
    changed: Condvar,
    /// The number of operations that wait now.
    held: AtomicUsize,
}

impl Gate {
    /// Operations that `which` selects wait from now on.
    fn close(&self, which: Which) {
        *self.lock() = Some(which);
    }

    fn open(&self) {
        *self.lock() = None;
        self.changed.notify_all();
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Which>> {
        self.closed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until an operation is held back.
    fn until_held(&self) {
        until("somebody is held back", || {
            self.held.load(Ordering::Relaxed) > 0
        });
    }
}

impl Hook for Gate {
    fn before(&self, op: Op, path: &Path) -> Verdict {
        let mut closed = self.lock();
        while closed.is_some_and(|which| which(op, path)) {
            self.held.fetch_add(1, Ordering::Relaxed);
            // The wait is limited: a test that fails closes its database.
            closed = self
                .changed
                .wait_timeout_while(closed, LONG, |c| c.is_some())
                .unwrap_or_else(PoisonError::into_inner)
                .0;
            *closed = None;
            self.held.fetch_sub(1, Ordering::Relaxed);
        }
        Verdict::Go
    }
}

/// Holds flushes back until `go` is set.
#[derive(Default)]
struct HeldFlush {
    begun: AtomicBool,
    go: AtomicBool,
}

impl EventListener for HeldFlush {
    fn on_flush_begin(&self, _: &FlushJobInfo) {
        self.begun.store(true, Ordering::SeqCst);
        until("the flush may go on", || self.go.load(Ordering::SeqCst));
    }
}

impl HeldFlush {
    /// Makes a sync of the log fail. Then `resume`, on a thread of its own, waits for the flush of a
    /// memtable, which is held back.
    fn hold_resume(&self, machine: &Machine, db: &Arc<Db>) -> JoinHandle<base::Result<()>> {
        put(db, &WriteOptions::default(), "in a memtable").unwrap();
        machine.fail_a_sync(db);
        let resuming = start(with(db, Db::resume));
        until("the flush of resume", || self.begun.load(Ordering::SeqCst));
        resuming
    }
}

/// Long enough for another thread to get as far as it can.
fn a_moment() {
    std::thread::sleep(Duration::from_millis(50));
}

fn start<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    std::thread::Builder::new().spawn(f).unwrap()
}

/// `f` applied to the database, as a closure for another thread.
fn with<T: 'static, F>(db: &Arc<Db>, f: F) -> impl FnOnce() -> T + Send + 'static + use<T, F>
where
    F: FnOnce(&Db) -> T + Send + 'static,
{
    let db = Arc::clone(db);
    move || f(&db)
}

/// Waits until `is_so` returns true.
#[expect(clippy::disallowed_methods, reason = "tests wait for real")]
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Runs `f` on a thread, and panics if it takes too long.
#[expect(clippy::disallowed_methods, reason = "a hang must not hang the tests")]
fn in_time<T: Send + 'static>(what: &str, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (tx, rx) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || drop(tx.send(f())));
    let Ok(value) = rx.recv_timeout(LONG) else {
        panic!("{what}: no end, or a panic");
    };
    thread.join().unwrap();
    value
}
