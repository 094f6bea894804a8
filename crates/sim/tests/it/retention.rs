//! The directory of logs, how long logs are kept, and reading updates from them: `wal_dir`,
//! `WAL_ttl_seconds`, `WAL_size_limit_MB`, `get_sorted_wal_files`, `get_updates_since`.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use base::clock::{Clock, SystemClock};
use ironstone::{
    ColumnFamilyDescriptor, Db, ErrorKind, Options, WalFileKind, WriteBatch, WriteOptions,
};
use sim::dirs;
use sim::hooked::{Hook, HookedFs, Op, Verdict};
use sim::oracle::{self, RocksDb, ldb};

const EROFS: i32 = 30;
const ENOSPC: i32 = 28;
const ENODEV: i32 = 19;

/// The machine's clock, ahead by a time that a test sets.
#[derive(Debug)]
struct Ahead {
    inner: Arc<dyn Clock>,
    seconds: AtomicU64,
}

impl Ahead {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            inner: SystemClock::shared(),
            seconds: AtomicU64::new(0),
        })
    }

    fn advance(&self, seconds: u64) {
        self.seconds.fetch_add(seconds, Ordering::Relaxed);
    }
}

impl Clock for Ahead {
    fn wall_micros(&self) -> u64 {
        self.inner.wall_micros() + self.seconds.load(Ordering::Relaxed) * 1_000_000
    }

    fn monotonic_nanos(&self) -> u64 {
        self.inner.monotonic_nanos()
    }
}

/// Two directories, for a database and its logs.
struct Place {
    _temp: tempfile::TempDir,
    db: PathBuf,
    logs: PathBuf,
}

impl Place {
    fn new() -> Self {
        let temp = dirs::scratch().unwrap();
        Self {
            db: temp.path().join("db"),
            logs: temp.path().join("logs"),
            _temp: temp,
        }
    }

    /// Options with `wal_dir`.
    fn options(&self) -> Options {
        let mut options = plain();
        options.db.wal_dir = self.logs.to_str().unwrap().to_owned();
        options
    }
}

fn plain() -> Options {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    options.db.stats_dump_period_sec = 0;
    options
}

/// Names in a directory that end in `.log`, sorted; empty if there is no directory.
fn logs_in(dir: &Path) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(dir) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.strip_suffix(".log").is_some())
        .collect();
    names.sort();
    names
}

/// Puts a key and begins a new log; the old one is then obsolete.
fn put_and_flush(db: &Db, key: &str) {
    db.put(key, vec![b'v'; 1000]).unwrap();
    db.flush().unwrap();
    db.wait_for_compact().unwrap();
}

fn synced() -> WriteOptions {
    WriteOptions {
        sync: true,
        ..WriteOptions::default()
    }
}

/// The updates that an iterator from `from` on shows now: (sequence, count).
fn updates(db: &Db, from: u64) -> Vec<(u64, u32)> {
    let mut it = db.get_updates_since(from).unwrap();
    let mut out = Vec::new();
    while it.valid() {
        out.push((it.sequence(), it.batch().count()));
        it.next();
    }
    it.status().unwrap();
    out
}

mod wal_dir;

mod archive;

mod updates_since;
