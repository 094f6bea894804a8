//! `cargo xtask bench-reads`: reads of data that is larger than the caches, several at a time, beside RocksDB and beside
//! what the device can do (fio, io_uring).
//!
//! Both engines read their own database of the same keys, in another order in each round. RocksDB runs with `async_io` off
//! and on. Its prebuilt library has no io_uring; a row of several keys at a time in which its process makes no ring with
//! `async_io` is void there, and is said to be.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::driver::{Setup, output_of, process_stats, rates};
use crate::spread::Spread;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Keys of 16 bytes; with the default size of values, 4.2 GB in each engine
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(10_000..))]
    num: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 400)]
    value_size: u32,
    /// Seconds of each run
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Rounds; each runs everything once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Only rows whose names contain one of these, for example --rows direct [default: all]
    #[arg(long, value_delimiter = ',')]
    rows: Vec<String>,
    /// A library of RocksDB that was built with io_uring [default: the prebuilt one, which has none]
    #[arg(long)]
    peer: Option<PathBuf>,
    /// The directory of the databases, which are removed afterwards [default: target/bench]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// An already built db_bench [default: build it]
    #[arg(long)]
    driver: Option<PathBuf>,
}

/// How the page cache is used.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cache {
    /// Not at all: direct reads.
    Direct,
    /// It is empty at the start.
    Cold,
    /// It has all of the data.
    Warm,
}

/// What fio reads for comparison.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fio {
    /// Blocks at random, with this depth of the queue.
    Random(u32),
    /// The files, from their beginning to their end.
    Sequential,
    /// There is nothing to compare with.
    None,
}

/// The databases.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Each key once, in one sorted run.
    Sorted,
    /// The same, with indexes and filters in partitions.
    Parts,
    /// Keys put at random, without a compaction of all: tables of level 0 and levels below.
    Levels,
}

struct Row {
    name: &'static str,
    cache: Cache,
    shape: Shape,
    benchmark: &'static str,
    /// Keys of a call.
    batch: u32,
    /// More flags, and those of Ironstone alone.
    flags: &'static [&'static str],
    own: &'static [&'static str],
    fio: Fio,
}

const ONE: Row = Row {
    name: "direct ×1",
    cache: Cache::Direct,
    shape: Shape::Sorted,
    benchmark: "readrandom",
    batch: 1,
    flags: &[],
    own: &[],
    fio: Fio::Random(1),
};

/// Indexes, filters and data share a cache of 32 MiB.
const BOUNDED: &[&str] = &["--cache_index_and_filter_blocks", "--cache_size=33554432"];

/// Ranges of 50 keys: Ironstone reads them with one call, RocksDB with an iterator that seeks to each.
const RANGES: Row = Row {
    name: "10 ranges, direct",
    shape: Shape::Levels,
    benchmark: "multiscan",
    flags: &["--use_multiscan=false"],
    own: &["--use_multiscan=true"],
    fio: Fio::None,
    ..ONE
};

const ROWS: [Row; 15] = [
    Row {
        name: "direct ×64",
        benchmark: "multireadrandom",
        batch: 64,
        fio: Fio::Random(32),
        ..ONE
    },
    Row {
        name: "direct ×8",
        benchmark: "multireadrandom",
        batch: 8,
        fio: Fio::Random(8),
        ..ONE
    },
    Row {
        name: "direct, 32 futures",
        benchmark: "multireadrandom",
        batch: 32,
        own: &["--async_gets=32", "--batch_size=1000"],
        fio: Fio::Random(32),
        ..ONE
    },
    ONE,
    Row {
        name: "direct scan",
        benchmark: "readseq",
        fio: Fio::Sequential,
        ..ONE
    },
    Row {
        name: "direct seek",
        shape: Shape::Levels,
        benchmark: "seekrandom",
        fio: Fio::None,
        ..ONE
    },
    Row {
        name: "direct seek, 100 nexts",
        shape: Shape::Levels,
        benchmark: "seekrandom",
        flags: &["--seek_nexts=100"],
        fio: Fio::None,
        ..ONE
    },
    RANGES,
    Row {
        name: "10 ranges, page cache",
        cache: Cache::Warm,
        ..RANGES
    },
    Row {
        name: "cold ×64",
        cache: Cache::Cold,
        benchmark: "multireadrandom",
        batch: 64,
        fio: Fio::Random(32),
        ..ONE
    },
    Row {
        name: "page cache ×64",
        cache: Cache::Warm,
        benchmark: "multireadrandom",
        batch: 64,
        fio: Fio::Random(32),
        ..ONE
    },
    Row {
        name: "bounded, page cache ×1",
        cache: Cache::Warm,
        flags: BOUNDED,
        fio: Fio::None,
        ..ONE
    },
    Row {
        name: "bounded, direct ×1",
        flags: BOUNDED,
        ..ONE
    },
    Row {
        name: "bounded, partitions, page cache ×1",
        cache: Cache::Warm,
        shape: Shape::Parts,
        flags: BOUNDED,
        fio: Fio::None,
        ..ONE
    },
    Row {
        name: "bounded, partitions, direct ×64",
        shape: Shape::Parts,
        benchmark: "multireadrandom",
        batch: 64,
        flags: BOUNDED,
        fio: Fio::Random(32),
        ..ONE
    },
];

/// Who reads.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Who {
    Fio,
    /// With this `read_io_mode`.
    Ironstone(&'static str),
    /// With `async_io` or without.
    RocksDb(bool),
}

const ALL: [Who; 5] = [
    Who::Fio,
    Who::Ironstone("auto"),
    Who::Ironstone("off"),
    Who::RocksDb(false),
    Who::RocksDb(true),
];

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let fio = Command::new("fio").arg("--version").output();
    fio.map_err(|e| {
        format!("fio: {e}; bench-reads compares with it: install it (apt install fio)")
    })?;
    let (parent, driver) = (arguments.dir.as_deref(), arguments.driver.as_deref());
    Setup::print("bench-reads", parent, driver, |setup| {
        measure(arguments, setup)
    })
}

/// A table of the medians, with one line for each row.
fn measure(arguments: &Arguments, setup: &Setup) -> Result<String, String> {
    let wanted = |row: &&Row| {
        arguments.rows.is_empty() || arguments.rows.iter().any(|name| row.name.contains(name))
    };
    for shape in [Shape::Sorted, Shape::Parts, Shape::Levels] {
        if ROWS.iter().filter(wanted).any(|row| row.shape == shape) {
            fill(arguments, setup, (shape, false))?;
            fill(arguments, setup, (shape, true))?;
        }
    }
    let mut table = String::from(
        "\n| row | fio | `auto`, operations/s | `off` | RocksDB | RocksDB, `async_io` | of fio | × `off` | \
         × RocksDB's better | its peak memory × |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    let mut void = Vec::new();
    for row in ROWS.iter().filter(wanted) {
        let mut rounds: Vec<Round> = Vec::new();
        for round in 0..arguments.pairs {
            let (mut rates, mut memory) = ([0.0; 5], [0.0; 5]);
            for turn in 0..ALL.len() {
                let i = (turn + round as usize) % ALL.len();
                let seed = 100 + round * 10 + turn as u32;
                let run = once(arguments, setup, row, ALL[i], seed)?;
                (rates[i], memory[i]) = (run.per_second, run.memory_mib);
                if ALL[i] == Who::RocksDb(true) && !run.with_ring && row.batch > 1 {
                    void.push(row.name);
                }
            }
            eprintln!("{}, round {}: {rates:.0?}", row.name, round + 1);
            rounds.push(Round { rates, memory });
        }
        line(&mut table, row, &rounds);
    }
    void.dedup();
    if !void.is_empty() {
        let rows = void.join(", ");
        writeln!(
            table,
            "\nVoid for RocksDB with `async_io`, because no io_uring was seen in its process: {rows}. Give a library that \
             has it with --peer. A ring alone does not show that the library was built with coroutines."
        )
        .unwrap_or_default();
    }
    Ok(table)
}

/// What everyone of [`ALL`] has achieved.
struct Round {
    /// Operations per second.
    rates: [f64; 5],
    /// Peak memory in MiB.
    memory: [f64; 5],
}

fn line(table: &mut String, row: &Row, rounds: &[Round]) {
    let spread = |of: &dyn Fn(&[f64; 5]) -> f64| Spread::of(rounds.iter().map(|r| of(&r.rates)));
    let median = |i: usize| spread(&|r| r[i]).median;
    write!(table, "| {} ", row.name).unwrap_or_default();
    for i in 0..ALL.len() {
        let shown = match median(i) {
            none if none.is_nan() => "–".to_owned(),
            median => format!("{median:.0}"),
        };
        write!(table, "| {shown} ").unwrap_or_default();
    }
    let of_fio = match (row.cache, row.fio) {
        (Cache::Direct, Fio::Random(_) | Fio::Sequential) => spread(&|r| r[1] / r[0]).text(),
        _ => "–".to_owned(),
    };
    let of_off = spread(&|r| r[1] / r[2]).text();
    let of_rocksdb = spread(&|r| r[1] / r[3].max(r[4])).text();
    let memory = Spread::of(rounds.iter().map(|r| r.memory[1] / r.memory[3])).text();
    writeln!(table, "| {of_fio} | {of_off} | {of_rocksdb} | {memory} |").unwrap_or_default();
}

fn database(setup: &Setup, (shape, rocksdb): (Shape, bool)) -> PathBuf {
    let engine = if rocksdb { "rocksdb" } else { "ironstone" };
    setup.dir.join(match shape {
        Shape::Sorted => engine.to_owned(),
        Shape::Parts => format!("{engine}-parts"),
        Shape::Levels => format!("{engine}-levels"),
    })
}

fn db_bench(arguments: &Arguments, setup: &Setup, of: (Shape, bool)) -> Command {
    let rocksdb = of.1;
    let mut command = Command::new(&setup.driver);
    let peer = arguments.peer.as_deref().filter(|_| rocksdb);
    let own = peer.map(|path| format!("--engine=librocksdb:{}", path.display()));
    command
        .arg(own.unwrap_or_else(|| setup.engine(rocksdb)))
        .arg(format!("--db={}", database(setup, of).display()))
        .arg(format!("--num={}", arguments.num))
        .arg(format!("--value_size={}", arguments.value_size))
        .args([
            "--key_size=16",
            "--compression_type=none",
            "--bloom_bits=10",
        ])
        .arg("--cache_size=8388608");
    if of.0 == Shape::Parts {
        command.arg("--partition_index_and_filters");
    }
    command
}

/// Makes a database.
fn fill(arguments: &Arguments, setup: &Setup, of: (Shape, bool)) -> Result<(), String> {
    let mut command = db_bench(arguments, setup, of);
    command.arg("--disable_wal").arg(match of.0 {
        Shape::Sorted | Shape::Parts => "--benchmarks=fillseq,compact",
        Shape::Levels => "--benchmarks=fillrandom,waitforcompaction,overwrite",
    });
    output_of(command).map(drop)
}

struct Run {
    per_second: f64,
    memory_mib: f64,
    /// Whether its process has made a ring.
    with_ring: bool,
}

fn once(
    arguments: &Arguments,
    setup: &Setup,
    row: &Row,
    who: Who,
    seed: u32,
) -> Result<Run, String> {
    let of = (row.shape, matches!(who, Who::RocksDb(_)));
    let tables = tables(&database(setup, of))?;
    match row.cache {
        Cache::Direct => {}
        Cache::Cold => tables.iter().try_for_each(|table| forget(table))?,
        Cache::Warm => tables.iter().try_for_each(|table| load(table))?,
    }
    let batch = format!("--batch_size={}", row.batch);
    let mut command = match who {
        Who::Fio => {
            return fio(arguments, row, &tables).map(|per_second| Run {
                per_second,
                memory_mib: f64::NAN,
                with_ring: true,
            });
        }
        Who::Ironstone(mode) => {
            let mut command = db_bench(arguments, setup, of);
            command.arg(format!("--read_io_mode={mode}"));
            command.arg(batch).args(row.own);
            command
        }
        Who::RocksDb(async_io) => {
            let mut command = db_bench(arguments, setup, of);
            command.arg(format!("--async_io={async_io}")).arg(batch);
            command
        }
    };
    if row.cache == Cache::Direct {
        command.arg("--use_direct_reads");
    }
    command
        .arg("--use_existing_db")
        .arg(format!("--benchmarks={}", row.benchmark))
        .args(row.flags)
        .args(["--disable_auto_compactions", "--process_stats"])
        .arg(format!("--duration={}", arguments.seconds))
        .arg(format!("--seed={seed}"));
    let (printed, with_ring) = watched(command)?;
    let rate = rates(&printed, row.benchmark).next();
    let process = process_stats(&printed);
    let (Some(per_second), Some((memory_mib, _))) = (rate, process) else {
        return Err(format!("no result in:\n{printed}"));
    };
    Ok(Run {
        per_second,
        memory_mib: memory_mib as f64,
        with_ring,
    })
}

/// The tables of a database, the largest first.
fn tables(db: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |e| format!("{}: {e}", db.display());
    let mut all = Vec::new();
    for entry in fs::read_dir(db).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        if path.extension().is_some_and(|e| e == "sst") {
            all.push((fs::metadata(&path).map_err(failed)?.len(), path));
        }
    }
    all.sort();
    Ok(all.into_iter().rev().map(|(_, path)| path).collect())
}

/// Drops a file from the page cache.
fn forget(table: &Path) -> Result<(), String> {
    let mut command = Command::new("dd");
    command.arg(format!("if={}", table.display())).args([
        "iflag=nocache",
        "count=0",
        "status=none",
    ]);
    output_of(command).map(drop)
}

/// Reads a file, so that the page cache has it.
fn load(table: &Path) -> Result<(), String> {
    let mut command = Command::new("dd");
    command
        .arg(format!("if={}", table.display()))
        .args(["of=/dev/null", "bs=1M", "status=none"]);
    output_of(command).map(drop)
}

/// The standard output of a run, and whether its process had an io_uring at some time. Errors: it failed; with its messages.
fn watched(mut command: Command) -> Result<(String, bool), String> {
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let child = command.spawn().map_err(|e| format!("db_bench: {e}"))?;
    let fds = PathBuf::from(format!("/proc/{}/fd", child.id()));
    base::sync::thread::scope(|scope| {
        let output = scope.spawn(|| child.wait_with_output());
        let mut with_ring = false;
        while !output.is_finished() {
            with_ring = with_ring || has_ring(&fds);
            base::sync::thread::sleep(Duration::from_millis(50));
        }
        let output = output.join().map_err(|_| "a thread panicked")?;
        let output = output.map_err(|e| format!("db_bench: {e}"))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        if output.status.success() {
            return Ok((text(&output.stdout), with_ring));
        }
        let said = text(&output.stderr);
        Err(format!("db_bench failed ({}):\n{said}", output.status))
    })
}

fn has_ring(fds: &Path) -> bool {
    let links = fs::read_dir(fds).into_iter().flatten();
    let mut targets = links.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok());
    targets.any(|target| target.as_os_str() == "anon_inode:[io_uring]")
}

/// Direct reads per second of as many bytes as a block takes, or entries per second of a scan without an engine.
fn fio(arguments: &Arguments, row: &Row, tables: &[PathBuf]) -> Result<f64, String> {
    let mut command = Command::new("fio");
    command
        .args(["--name=reads", "--direct=1", "--readonly"])
        .args(["--ioengine=io_uring", "--blockalign=512"])
        .args(["--group_reporting", "--time_based", "--output-format=json"])
        .arg(format!("--runtime={}", arguments.seconds));
    match row.fio {
        Fio::Random(depth) => command
            .args(["--rw=randread", "--bs=4608", "--norandommap"])
            .arg(format!("--iodepth={depth}")),
        Fio::Sequential => command.args(["--rw=read", "--bs=1m", "--iodepth=4"]),
        Fio::None => return Ok(f64::NAN),
    };
    let names: Vec<_> = tables
        .iter()
        .take(50)
        .map(|t| t.display().to_string())
        .collect();
    command.arg(format!("--filename={}", names.join(":")));
    let report = output_of(command)?;
    let report: Value = serde_json::from_str(&report).map_err(|e| format!("fio: {e}"))?;
    let read = &report["jobs"][0]["read"];
    let rate = if row.fio == Fio::Sequential {
        let sizes = tables
            .iter()
            .map(|t| fs::metadata(t).map_or(0, |m| m.len()));
        let entry = sizes.sum::<u64>() as f64 / arguments.num as f64;
        read["bw_bytes"].as_f64().map(|bytes| bytes / entry)
    } else {
        read["iops"].as_f64()
    };
    rate.ok_or_else(|| "fio reported no reads per second".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_a_ring_has_none() {
        let mut command = Command::new("sh");
        command.args(["-c", "echo done"]);
        assert_eq!(watched(command).unwrap(), ("done\n".to_owned(), false));
        let mut command = Command::new("sh");
        command.args(["-c", "echo why >&2; exit 3"]);
        assert!(watched(command).unwrap_err().contains("why"));
        let mut command = Command::new("sh");
        command.args(["-c", "head -c 1000000 /dev/zero"]);
        assert_eq!(watched(command).unwrap().0.len(), 1_000_000);
    }

    #[test]
    fn a_line_has_the_ratios() {
        let mut table = String::new();
        let round = Round {
            rates: [100.0, 90.0, 30.0, 20.0, 45.0],
            memory: [f64::NAN, 40.0, 41.0, 50.0, 51.0],
        };
        line(&mut table, &ROWS[0], &[round]);
        assert!(
            table.starts_with("| direct ×64 | 100 | 90 | 30 | 20 | 45 | 0.90"),
            "{table}"
        );
        assert!(
            table.contains("| 3.00") && table.contains("| 2.00") && table.contains("| 0.80"),
            "{table}"
        );
    }
}
