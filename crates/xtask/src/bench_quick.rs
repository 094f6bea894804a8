//! `cargo xtask bench-quick`: Ironstone beside RocksDB 11.8.1, in minutes.
//!
//! A machine's speed changes while one measures, so a lone time says little. Each measurement is a
//! pair: the same benchmark with the same seed and options on Ironstone and on RocksDB, one right
//! after the other, by the same driver. What counts is the ratio within a pair; the median over
//! the pairs is reported with the smallest and the largest.

mod report;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::driver::Setup;
use report::Report;

/// The benchmarks that are known here; what each run does is in [`Bench::of`].
const DEFAULT: &str = "fillseq,fillrandom,fillsync,overwrite,readrandom,readseq";

/// The database of runs that make their own.
const NEW: &str = "new";

/// Options that both engines get.
const COMMON: [&str; 6] = [
    "--threads=1",
    "--compression_type=none",
    "--bloom_bits=10",
    "--write_buffer_size=67108864",
    "--cache_size=1073741824",
    "--key_size=16",
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Keys in the database (16 bytes, with values of 100 bytes)
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    num: u64,
    /// Pairs of each benchmark
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// Synced puts of a fillsync run
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..))]
    syncs: u64,
    /// Benchmarks, separated by commas
    #[arg(long, default_value = DEFAULT, value_delimiter = ',')]
    benchmarks: Vec<String>,
    /// Where the databases are made; they are removed afterwards [default: target/bench]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Further flags of db_bench for both engines, for example --flag=--block_size=16384
    #[arg(long = "flag", allow_hyphen_values = true)]
    flags: Vec<String>,
    /// Write the report as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Write each pair as a line of tab-separated values
    #[arg(long, value_name = "FILE")]
    tsv: Option<PathBuf>,
}

/// The two sides of a pair.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Ironstone,
    RocksDb,
}

/// How a benchmark is run.
struct Bench {
    name: String,
    /// Benchmarks of the measured run; the last line of `name` counts.
    run: String,
    /// Whether the run works on the database `database` that [`Session::prepare`] made.
    existing: bool,
    /// Readers share one; writers must not change it.
    database: &'static str,
    flags: Vec<String>,
}

impl Bench {
    fn of(name: &str, arguments: &Arguments) -> Result<Self, String> {
        let (run, database) = match name {
            "fillseq" | "fillrandom" | "fillbatch" | "fillsync" => (name.to_owned(), NEW),
            // Debt of one run must not slow the next.
            "overwrite" => (format!("{name},waitforcompaction"), "overwrite"),
            // The first scan brings every block into the cache.
            "readrandom" | "readmissing" | "seekrandom" | "readseq" | "readreverse" => {
                (format!("readseq,{name}"), "read")
            }
            _ => {
                return Err(format!(
                    "unknown benchmark '{name}' (there are {DEFAULT},fillbatch,readmissing,\
                     seekrandom,readreverse)"
                ));
            }
        };
        let flags = if name == "fillsync" {
            vec![format!("--writes={}", arguments.syncs)]
        } else {
            Vec::new()
        };
        Ok(Self {
            name: name.to_owned(),
            run,
            existing: database != NEW,
            database,
            flags,
        })
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let benches = arguments
        .benchmarks
        .iter()
        .map(|name| Bench::of(name, arguments))
        .collect::<Result<Vec<_>, _>>()?;
    let report = Setup::with("bench-quick", arguments.dir.as_deref(), None, |setup| {
        Session { arguments, setup }.measure(&benches)
    })?;
    print!("{}", report.table());
    if let Some(path) = &arguments.json {
        write(path, &report.json())?;
    }
    if let Some(path) = &arguments.tsv {
        write(path, &report.tsv())?;
    }
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), String> {
    fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

/// What all runs share.
struct Session<'a> {
    arguments: &'a Arguments,
    setup: &'a Setup,
}

impl Session<'_> {
    fn measure(&self, benches: &[Bench]) -> Result<Report, String> {
        let mut flags: Vec<String> = COMMON.map(str::to_owned).to_vec();
        flags.push(format!("--num={}", self.arguments.num));
        flags.extend(self.arguments.flags.iter().cloned());
        let mut report = Report::new(flags);
        for database in ["overwrite", "read"] {
            if benches.iter().any(|bench| bench.database == database) {
                self.prepare(database, &report.flags)?;
            }
        }
        for bench in benches {
            for pair in 0..self.arguments.pairs {
                let ours = self.once(bench, Side::Ironstone, pair, &report.flags)?;
                let theirs = self.once(bench, Side::RocksDb, pair, &report.flags)?;
                eprintln!(
                    "{} {}/{}: Ironstone {ours:.3} µs, RocksDB {theirs:.3} µs, ratio {:.2}",
                    bench.name,
                    pair + 1,
                    self.arguments.pairs,
                    theirs / ours
                );
                report.add(&bench.name, ours, theirs);
            }
        }
        Ok(report)
    }

    /// Fills and compacts a database for each engine.
    fn prepare(&self, database: &str, flags: &[String]) -> Result<(), String> {
        eprintln!("filling and compacting the databases to {database}");
        for side in [Side::Ironstone, Side::RocksDb] {
            let mut command = self.command(side, database, flags);
            command.args([
                "--benchmarks=fillrandom,compact,waitforcompaction",
                "--seed=1",
            ]);
            crate::driver::output_of(command)?;
        }
        Ok(())
    }

    /// Microseconds of an operation.
    fn once(&self, bench: &Bench, side: Side, pair: u32, flags: &[String]) -> Result<f64, String> {
        let mut command = self.command(side, bench.database, flags);
        command
            .arg(format!("--benchmarks={}", bench.run))
            .arg(format!("--seed={}", 1000 + pair))
            .args(&bench.flags);
        if bench.existing {
            command.arg("--use_existing_db");
        }
        let output = crate::driver::output_of(command)?;
        micros(&output, &bench.name)
            .ok_or_else(|| format!("no result of {} in:\n{output}", bench.name))
    }

    fn command(&self, side: Side, database: &str, flags: &[String]) -> Command {
        let dir = match side {
            Side::Ironstone => "ironstone",
            Side::RocksDb => "rocksdb",
        };
        let database = self.setup.dir.join(dir).join(database);
        let mut command = Command::new(&self.setup.driver);
        command
            .arg(self.setup.engine(side == Side::RocksDb))
            .arg(format!("--db={}", database.display()))
            .args(flags);
        command
    }
}

/// The figure of the last result line of a benchmark: `fillseq      :       6.897 micros/op …`.
fn micros(output: &str, name: &str) -> Option<f64> {
    output
        .lines()
        .rev()
        .filter_map(|line| line.split_once(" : "))
        .find(|(first, _)| first.trim() == name)
        .and_then(|(_, rest)| rest.split_once(" micros/op"))
        .and_then(|(figure, _)| figure.trim().parse().ok())
        .filter(|micros: &f64| *micros > 0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_result_line_counts() {
        let output = "DB path: [/x]\n\
            readseq      :       0.942 micros/op 1048657 ops/sec 0.010 seconds 10 operations;\n\
            readseq      :       0.502 micros/op 1048657 ops/sec 0.010 seconds 10 operations;\n\
            fillsync     :     734.695 micros/op 2713 ops/sec 7.369 seconds 20000 operations;\n";
        assert_eq!(micros(output, "readseq"), Some(0.502));
        assert_eq!(micros(output, "fillsync"), Some(734.695));
        assert_eq!(micros(output, "fillseq"), None);
    }
}
