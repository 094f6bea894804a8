//! `cargo xtask bench-bulkload`: random keys into an empty database without readers, then one full
//! compaction; both engines alternate.
//!
//! The settings are those of `benchmark.sh bulkload`: no log, vector memtables, no compactions
//! during the load, and no limits for level 0.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::driver::{Setup, output_of, process_stats};
use crate::spread::Spread;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Keys
    #[arg(long, default_value_t = 8_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    num: u64,
    /// Pairs of runs
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pairs: u32,
    /// The directory of the databases, which are removed afterwards [default: target/bench]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Further flags of db_bench for both, for example --flag=--value_size=400
    #[arg(long = "flag", allow_hyphen_values = true)]
    flags: Vec<String>,
    /// An already built db_bench [default: build it]
    #[arg(long)]
    driver: Option<PathBuf>,
}

/// The settings of the load.
const LOAD: [&str; 10] = [
    "--disable_wal",
    "--memtablerep=vector",
    "--allow_concurrent_memtable_write=false",
    "--disable_auto_compactions",
    "--level0_file_num_compaction_trigger=10485760",
    "--level0_slowdown_writes_trigger=10485760",
    "--level0_stop_writes_trigger=10485760",
    "--max_background_jobs=4",
    "--subcompactions=2",
    "--level_compaction_dynamic_level_bytes",
];

/// The figures of one run.
#[derive(Clone, Copy)]
struct Outcome {
    fill_seconds: f64,
    compact_seconds: f64,
    memory_mib: u64,
    written_mib: u64,
}

impl Outcome {
    fn seconds(self) -> f64 {
        self.fill_seconds + self.compact_seconds
    }
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let (parent, driver) = (arguments.dir.as_deref(), arguments.driver.as_deref());
    Setup::print("bench-bulkload", parent, driver, |setup| {
        measure(arguments, setup)
    })
}

/// A Markdown table of all runs, and the median of the pairs' ratios.
fn measure(arguments: &Arguments, setup: &Setup) -> Result<String, String> {
    let mut table = String::from(
        "\n| engine | fill, s | compact, s | both, s | memory, MiB | written, MiB |\n\
         |---|---:|---:|---:|---:|---:|\n",
    );
    let mut ratios = Vec::new();
    for pair in 0..arguments.pairs {
        let mut seconds = [0.0; 2];
        for (rocksdb, seconds) in [false, true].into_iter().zip(&mut seconds) {
            let outcome = once(arguments, rocksdb, pair, setup)?;
            *seconds = outcome.seconds();
            let line = format!(
                "| {} | {:.2} | {:.2} | {:.2} | {} | {} |\n",
                if rocksdb { "RocksDB" } else { "Ironstone" },
                outcome.fill_seconds,
                outcome.compact_seconds,
                outcome.seconds(),
                outcome.memory_mib,
                outcome.written_mib
            );
            eprint!("{line}");
            table.push_str(&line);
        }
        ratios.push(seconds[1] / seconds[0]);
    }
    let ratio = Spread::of(ratios.into_iter()).text();
    table.push_str(&format!("\nRocksDB's time over Ironstone's: {ratio}\n"));
    Ok(table)
}

fn once(arguments: &Arguments, rocksdb: bool, pair: u32, setup: &Setup) -> Result<Outcome, String> {
    let db = setup.dir.join("db");
    let mut command = Command::new(&setup.driver);
    command
        .arg(setup.engine(rocksdb))
        .arg(format!("--db={}", db.display()))
        .arg("--benchmarks=fillrandom,compact")
        .arg(format!("--num={}", arguments.num))
        .arg(format!("--seed={}", 1000 + pair))
        .arg("--process_stats")
        .args(LOAD)
        .args(&arguments.flags);
    let printed = output_of(command)?;
    fs::remove_dir_all(&db).map_err(|e| format!("{}: {e}", db.display()))?;
    outcome(&printed).ok_or_else(|| format!("no result in:\n{printed}"))
}

/// The figures in the output of a run.
fn outcome(printed: &str) -> Option<Outcome> {
    let seconds = |benchmark: &str| -> Option<f64> {
        let line = printed
            .lines()
            .find(|l| l.split_whitespace().next() == Some(benchmark))?;
        let (before, _) = line.split_once(" seconds")?;
        before.split_whitespace().last()?.parse().ok()
    };
    let (memory_mib, written_mib) = process_stats(printed)?;
    Some(Outcome {
        fill_seconds: seconds("fillrandom")?,
        compact_seconds: seconds("compact")?,
        memory_mib,
        written_mib,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found() {
        let printed = "\
fillrandom   :       1.043 micros/op 958772 ops/sec 8.344 seconds 8000000 operations;  106.1 MB/s
compact      : 4000000.000 micros/op 0 ops/sec 4.250 seconds 1 operations;
Process: peak memory 110 MiB; written 3542 MiB; CPU 55.7 seconds
";
        let found = outcome(printed).unwrap();
        assert!((found.fill_seconds - 8.344).abs() < 1e-9);
        assert!((found.compact_seconds - 4.25).abs() < 1e-9);
        assert_eq!((found.memory_mib, found.written_mib), (110, 3542));
        assert!(outcome("").is_none());
    }
}
