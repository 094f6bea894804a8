//! `cargo xtask bench-tiers`: how much a database gains from a second, compressed tier of the block cache, and from a row
//! cache, in the same memory.
//!
//! All read the same keys one by one, past the page cache, from data that is several times as large as the memory: first to
//! warm the caches, then again, which is measured. RocksDB's C API has no second tier.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use crate::driver::{Setup, output_of, rates};
use crate::spread::Spread;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Keys of 16 bytes with values of 100, half of whose bytes compress away
    #[arg(long, default_value_t = 3_000_000, value_parser = clap::value_parser!(u64).range(100_000..))]
    num: u64,
    /// Reads of each run
    #[arg(long, default_value_t = 400_000, value_parser = clap::value_parser!(u64).range(1..))]
    reads: u64,
    /// Rounds; each runs everything once
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// The directory of the databases, which are removed afterwards [default: target/bench]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// An already built db_bench [default: build it]
    #[arg(long)]
    driver: Option<PathBuf>,
}

/// Which keys are read, and how much of the data fits into memory.
struct Row {
    name: &'static str,
    part: u64,
    /// The exponent of e over the range of keys: 0 is uniform.
    skew: u32,
}

const ROWS: [Row; 2] = [
    Row {
        name: "all keys alike, memory for a third",
        part: 3,
        skew: 0,
    },
    Row {
        name: "few keys of many blocks, memory for a tenth",
        part: 10,
        skew: 15,
    },
];

/// What the memory is given to.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// The block cache.
    Blocks,
    /// A sixth for it, the rest for a second tier.
    Tiers,
    /// A tenth for it, the rest for a row cache.
    Rows,
}

/// What is compared: whether it is RocksDB, and the use of the memory.
const ALL: [(bool, Kind); 5] = [
    (false, Kind::Blocks),
    (false, Kind::Tiers),
    (false, Kind::Rows),
    (true, Kind::Blocks),
    (true, Kind::Rows),
];

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let (parent, driver) = (arguments.dir.as_deref(), arguments.driver.as_deref());
    Setup::print("bench-tiers", parent, driver, |setup| {
        measure(arguments, setup)
    })
}

fn measure(arguments: &Arguments, setup: &Setup) -> Result<String, String> {
    for rocksdb in [false, true] {
        let mut command = db_bench(arguments, setup, rocksdb);
        command.args(["--benchmarks=fillrandom,compact", "--disable_wal"]);
        output_of(command)?;
    }
    let mut table = String::from(
        "\n| reads | blocks, reads/s | second tier | rows | RocksDB: blocks | RocksDB: rows | second tier × blocks | \
         rows × blocks | rows × RocksDB's better |\n\
         |---|---:|---:|---:|---:|---:|---:|---:|---:|\n",
    );
    for row in &ROWS {
        let mut rounds = Vec::new();
        for round in 0..arguments.pairs {
            let mut rates = [0.0; ALL.len()];
            for turn in 0..ALL.len() {
                let i = (turn + round as usize) % ALL.len();
                rates[i] = once(arguments, setup, row, ALL[i], 100 + round)?;
            }
            eprintln!("{}, round {}: {rates:.0?}", row.name, round + 1);
            rounds.push(rates);
        }
        line(&mut table, row.name, &rounds);
    }
    Ok(table)
}

fn line(table: &mut String, name: &str, rounds: &[[f64; ALL.len()]]) {
    let spread = |of: &dyn Fn(&[f64; ALL.len()]) -> f64| Spread::of(rounds.iter().map(of));
    write!(table, "| {name} ").unwrap_or_default();
    for i in 0..ALL.len() {
        write!(table, "| {:.0} ", spread(&|r| r[i]).median).unwrap_or_default();
    }
    let ratios = [
        spread(&|r| r[1] / r[0]),
        spread(&|r| r[2] / r[0]),
        spread(&|r| r[2] / r[3].max(r[4])),
    ];
    for ratio in ratios {
        write!(table, "| {} ", ratio.text()).unwrap_or_default();
    }
    table.push_str("|\n");
}

fn db_bench(arguments: &Arguments, setup: &Setup, rocksdb: bool) -> Command {
    let name = if rocksdb { "rocksdb" } else { "ironstone" };
    let mut command = Command::new(&setup.driver);
    command
        .arg(setup.engine(rocksdb))
        .arg(format!("--db={}", setup.dir.join(name).display()))
        .arg(format!("--num={}", arguments.num))
        .args(["--key_size=16", "--value_size=100", "--bloom_bits=10"])
        .arg("--compression_type=none");
    command
}

fn once(
    arguments: &Arguments,
    setup: &Setup,
    row: &Row,
    (rocksdb, kind): (bool, Kind),
    seed: u32,
) -> Result<f64, String> {
    let memory = arguments.num * 116 / row.part;
    let (blocks, flags): (u64, &[&str]) = match kind {
        Kind::Blocks => (memory, &[]),
        Kind::Tiers => (
            memory / 6,
            &[
                "--use_compressed_secondary_cache",
                "--compressed_secondary_cache_size",
            ],
        ),
        Kind::Rows => (memory / 10, &["--row_cache_size"]),
    };
    let mut command = db_bench(arguments, setup, rocksdb);
    command
        .args(["--use_existing_db", "--use_direct_reads"])
        .args(["--benchmarks=readrandom,readrandom"])
        .arg(format!("--read_random_exp_range={}", row.skew))
        .arg(format!("--reads={}", arguments.reads))
        .arg(format!("--cache_size={blocks}"))
        .arg(format!("--seed={seed}"))
        .args(flags);
    if !flags.is_empty() {
        command.arg((memory - blocks).to_string());
    }
    let printed = output_of(command)?;
    let rate = rates(&printed, "readrandom").last();
    rate.ok_or_else(|| format!("no result in:\n{printed}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_has_the_ratios() {
        let mut table = String::new();
        line(&mut table, "x", &[[10.0, 14.0, 20.0, 8.0, 5.0]]);
        let ratios = ["1.40", "2.00", "2.50"].map(|r| format!("{r} [{r}..{r}]"));
        let expected = format!("| x | 10 | 14 | 20 | 8 | 5 | {} |\n", ratios.join(" | "));
        assert_eq!(table, expected);
    }
}
