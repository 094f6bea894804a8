//! Writes a database durably, reads it back, and prints how long each acknowledged write took.
//!
//! ```text
//! cargo run --release --example durable_puts -- [--num N] [--threads T] [--db DIR]
//! ```
//!
//! Three rounds write `N` records of 100 bytes each: one put per sync, ten puts per sync in a
//! batch, and one put per sync from several threads, which share syncs by group commit. Then the
//! database is closed, opened again, and every record is compared with what was written.
//!
//! The database stays where it is, for a look with `ironstone scan` or RocksDB's `ldb`. A database
//! that an earlier run left there is replaced; anything else is not touched.

#![expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "an application: it prints its results and measures real time"
)]

use std::io::{IsTerminal, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ironstone::{Db, Error, Options, Result, WriteBatch, WriteOptions};

/// Key and value together are 100 bytes.
const KEY_BYTES: usize = 16;
const VALUE_BYTES: usize = 84;
/// Records in a batch of the second round.
const BATCH: u64 = 10;
/// Marks a directory as this example's own, so that the next run may replace it.
const MARKER: &str = "DURABLE_PUTS";

const SYNCED: WriteOptions = WriteOptions {
    sync: true,
    disable_wal: false,
    no_slowdown: false,
    low_pri: false,
};

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("error: {message}\n\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let &Arguments { num, threads, .. } = arguments;
    make_room(&arguments.db)?;
    let options = Options::default().with_db(|db| db.create_if_missing = true);
    let db = Db::open(&arguments.db, &options)?;
    std::fs::write(arguments.db.join(MARKER), "").map_err(io_error)?;

    println!("{num} records of 100 bytes in each round; every write is synced\n");
    println!(
        "round                     records/s  writes/s     p50 µs    p99 µs  p99.9 µs    max µs"
    );
    one_by_one(&db, num)?;
    in_batches(&db, num)?;
    from_threads(&db, num, threads)?;
    db.close()?;

    let db = Db::open(&arguments.db, &options)?;
    let start = Instant::now();
    let records = verify(&db, num)?;
    println!(
        "\nreopened and verified {records} records in {:.2} s",
        start.elapsed().as_secs_f64()
    );
    db.close()?;

    let dir = arguments.db.display();
    println!("the database is in {dir}; look at it with");
    println!(
        "  cargo run --release --bin ironstone -- --db={dir} scan --max_keys=3\n  \
         ldb --db={dir} scan --max_keys=3"
    );
    Ok(())
}

/// Round a: each put is a write of its own.
fn one_by_one(db: &Db, num: u64) -> Result<()> {
    let mut round = Round::new("1 thread, single puts", num, 1);
    let family = db.default_column_family();
    for i in 0..num {
        round.measure(|| db.cf(&family).with(&SYNCED).put(key('a', i), value(i)))?;
    }
    round.print();
    Ok(())
}

/// Round b: several puts are one write: all of them survive a crash, or none.
fn in_batches(db: &Db, num: u64) -> Result<()> {
    let mut round = Round::new("1 thread, batches of 10", num, BATCH);
    for start in (0..num).step_by(BATCH as usize) {
        let mut batch = WriteBatch::new();
        for i in start..num.min(start + BATCH) {
            batch.put(key('b', i), value(i))?;
        }
        round.measure(|| db.with(&SYNCED).write(&mut batch))?;
    }
    round.print();
    Ok(())
}

/// Round c: threads put at the same time; those that wait for the device share the next sync.
fn from_threads(db: &Db, num: u64, threads: u64) -> Result<()> {
    let name = format!("{threads} threads, single puts");
    let round = Mutex::new(Round::new(&name, num, 1));
    let next = AtomicU64::new(0);
    let writer = || -> Result<()> {
        let family = db.default_column_family();
        loop {
            let i = next.fetch_add(1, Ordering::Relaxed);
            if i >= num {
                return Ok(());
            }
            let start = Instant::now();
            db.cf(&family).with(&SYNCED).put(key('c', i), value(i))?;
            let took = start.elapsed();
            round.lock().expect("no writer panics").note(took);
        }
    };
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..threads).map(|_| scope.spawn(writer)).collect();
        writers
            .into_iter()
            .try_for_each(|w| w.join().expect("no writer panics"))
    })?;
    round.into_inner().expect("no writer panics").print();
    Ok(())
}

/// Compares every record with what was written: by iteration, which also shows that nothing else
/// is there, and a sample by point lookups.
fn verify(db: &Db, num: u64) -> Result<u64> {
    let mut it = db.iterator()?;
    it.seek_to_first();
    let mut records = 0;
    for round in ['a', 'b', 'c'] {
        for i in 0..num {
            if !it.valid() || it.key() != key(round, i) || it.value() != value(i) {
                it.status()?;
                return Err(Error::corruption(format!(
                    "record {i} of round {round} is missing or wrong"
                )));
            }
            it.next();
            records += 1;
        }
    }
    it.status()?;
    if it.valid() {
        return Err(Error::corruption("there are records that nobody wrote"));
    }
    for i in (0..num).step_by(97) {
        if db.get(key('c', i))?.as_deref() != Some(&value(i)[..]) {
            return Err(Error::corruption(format!("get: record {i} is wrong")));
        }
    }
    Ok(records)
}

fn key(round: char, i: u64) -> [u8; KEY_BYTES] {
    let mut key = [b'0'; KEY_BYTES];
    key.copy_from_slice(format!("{round}{i:015}").as_bytes());
    key
}

/// Different for each record, and printable.
fn value(i: u64) -> [u8; VALUE_BYTES] {
    let mut state = i.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    std::array::from_fn(|_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        b'a' + (state % 26) as u8
    })
}

/// What a round measured.
struct Round {
    name: String,
    records: u64,
    records_per_write: u64,
    start: Instant,
    micros: Vec<f64>,
    shown: Instant,
}

impl Round {
    fn new(name: &str, records: u64, records_per_write: u64) -> Self {
        let now = Instant::now();
        Self {
            name: name.to_owned(),
            records,
            records_per_write,
            start: now,
            micros: Vec::new(),
            shown: now,
        }
    }

    fn measure(&mut self, write: impl FnOnce() -> Result<()>) -> Result<()> {
        let start = Instant::now();
        write()?;
        self.note(start.elapsed());
        Ok(())
    }

    /// One acknowledged write; now and then a line on a terminal says how far the round is.
    fn note(&mut self, took: Duration) {
        self.micros.push(took.as_secs_f64() * 1e6);
        if self.shown.elapsed() > Duration::from_millis(200) && std::io::stderr().is_terminal() {
            let done = self.micros.len() as u64 * self.records_per_write;
            eprint!("\r{}: {done} of {}", self.name, self.records);
            // Progress that cannot be shown is no reason to stop.
            drop(std::io::stderr().flush());
            self.shown = Instant::now();
        }
    }

    fn print(&mut self) {
        let seconds = self.start.elapsed().as_secs_f64();
        if std::io::stderr().is_terminal() {
            eprint!("\r{:60}\r", "");
        }
        self.micros.sort_by(f64::total_cmp);
        let at = |p: f64| {
            let last = self.micros.len().saturating_sub(1) as f64;
            let i = (last * p).round() as usize;
            self.micros.get(i).copied().unwrap_or_default()
        };
        println!(
            "{:24} {:10.0} {:9.0} {:10.1} {:9.1} {:9.1} {:9.1}",
            self.name,
            self.records as f64 / seconds,
            self.micros.len() as f64 / seconds,
            at(0.5),
            at(0.99),
            at(0.999),
            at(1.0)
        );
    }
}

/// Removes the database of an earlier run; refuses to touch any other directory.
fn make_room(dir: &Path) -> Result<()> {
    let entries = match std::fs::read_dir(dir) {
        Ok(mut entries) => entries.next(),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(io_error(e)),
    };
    if entries.is_none() {
        return Ok(());
    }
    if !dir.join(MARKER).exists() {
        return Err(
            Error::invalid_argument("not empty, and not made by this example")
                .file(dir)
                .hint("choose another directory with --db"),
        );
    }
    std::fs::remove_dir_all(dir).map_err(io_error)
}

fn io_error(e: std::io::Error) -> Error {
    Error::new(ironstone::ErrorKind::IoError, e.to_string())
}

const USAGE: &str = "durable_puts: write a database durably and read it back

  --num N        records in each of the three rounds (10000)
  --threads T    writers in the third round (4)
  --db DIR       where the database goes (target/durable_puts-db)
  --help         this text";

struct Arguments {
    num: u64,
    threads: u64,
    db: PathBuf,
}

impl Arguments {
    /// `None` if help was asked for. Both `--num 5` and `--num=5` work.
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut out = Self {
            num: 10_000,
            threads: 4,
            db: default_dir(),
        };
        while let Some(word) = words.next() {
            if word == "--help" || word == "-h" {
                return Ok(None);
            }
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
                None => (word, words.next()),
            };
            let value = value.ok_or_else(|| format!("{name} needs a value"))?;
            let number = |least: u64, most: u64| match value.parse() {
                Ok(n) if (least..=most).contains(&n) => Ok(n),
                _ => Err(format!(
                    "{name}: {value} is no number from {least} to {most}"
                )),
            };
            match name.as_str() {
                "--num" => out.num = number(1, 100_000_000)?,
                "--threads" => out.threads = number(1, 256)?,
                "--db" => out.db = PathBuf::from(value),
                _ => return Err(format!("unknown argument {name}")),
            }
        }
        Ok(Some(out))
    }
}

/// `target/durable_puts-db`, as seen from where the command runs if that is the repository.
fn default_dir() -> PathBuf {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = match (std::env::current_dir(), repository.canonicalize()) {
        (Ok(here), Ok(repository)) if here == repository => PathBuf::new(),
        (_, Ok(repository)) => repository,
        _ => std::env::temp_dir(),
    };
    root.join("target").join("durable_puts-db")
}
