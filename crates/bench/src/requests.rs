//! `cargo xtask bench-requests`: the workload of a service that writes three puts and one delete
//! for each request, in one batch over several column families.
//!
//! Both engines run it with their defaults and tuned by hand, alternating. With defaults, RocksDB's
//! level 0 fills up and writers stall; the common remedy is to let level 0 grow to hundreds of
//! files, which makes opening slow. Printed for each: requests per second, the files of level 0,
//! the time of stalls, the time to open afterwards, and the memory.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::driver::{Setup, output_of};

/// The settings with which RocksDB does not stall: more and larger memtables, more threads, and a
/// level 0 that may grow.
const TUNED: [&str; 7] = [
    "--write_buffer_size=134217728",
    "--max_write_buffer_number=6",
    "--max_background_jobs=4",
    "--level0_file_num_compaction_trigger=50",
    "--level0_slowdown_writes_trigger=500",
    "--level0_stop_writes_trigger=1000",
    "--max_bytes_for_level_base=1073741824",
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of distinct keys of each family
    #[arg(long, default_value_t = 20_000_000, value_parser = clap::value_parser!(u64).range(1000..))]
    num: u64,
    /// Seconds of each run
    #[arg(long, default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Threads that write requests
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Column families
    #[arg(long, default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    families: u32,
    /// Number of rounds; each runs the four contestants one after the other
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// The directory of the databases, which are removed afterwards [default: target/bench]
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Further flags of db_bench for all, for example --flag=--value_size=400
    #[arg(long = "flag", allow_hyphen_values = true)]
    flags: Vec<String>,
    /// An already built db_bench [default: build it]
    #[arg(long)]
    driver: Option<PathBuf>,
}

/// An engine with its settings.
struct Contestant {
    name: &'static str,
    rocksdb: bool,
    flags: &'static [&'static str],
}

const CONTESTANTS: [Contestant; 4] = [
    Contestant {
        name: "Ironstone, defaults",
        rocksdb: false,
        flags: &[],
    },
    Contestant {
        name: "RocksDB, defaults",
        rocksdb: true,
        flags: &[],
    },
    Contestant {
        name: "Ironstone, tuned",
        rocksdb: false,
        flags: &TUNED,
    },
    Contestant {
        name: "RocksDB, tuned",
        rocksdb: true,
        flags: &TUNED,
    },
];

/// The figures of one run.
#[derive(Clone, Default)]
struct Outcome {
    requests_per_second: f64,
    /// Level 0 and stalls, in the driver's words.
    seen: String,
    memory_mib: u64,
    written_mib: u64,
    open_millis: f64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let (parent, driver) = (arguments.dir.as_deref(), arguments.driver.as_deref());
    Setup::print("bench-requests", parent, driver, |setup| {
        measure(arguments, setup).map(|outcomes| table(&outcomes))
    })
}

/// The outcomes of every contestant, one for each round.
fn measure(arguments: &Arguments, setup: &Setup) -> Result<Vec<Vec<Outcome>>, String> {
    let mut outcomes = vec![Vec::new(); CONTESTANTS.len()];
    for round in 0..arguments.rounds {
        for (contestant, out) in CONTESTANTS.iter().zip(&mut outcomes) {
            let outcome = once(arguments, contestant, round, setup)?;
            eprintln!(
                "{} {}/{}: {:.0} requests/s {} open {:.0} ms",
                contestant.name,
                round + 1,
                arguments.rounds,
                outcome.requests_per_second,
                outcome.seen,
                outcome.open_millis
            );
            out.push(outcome);
        }
    }
    Ok(outcomes)
}

fn once(
    arguments: &Arguments,
    contestant: &Contestant,
    round: u32,
    setup: &Setup,
) -> Result<Outcome, String> {
    let db = setup.dir.join("db");
    let command = |benchmarks: &str| {
        let mut command = Command::new(&setup.driver);
        command
            .arg(setup.engine(contestant.rocksdb))
            .arg(format!("--db={}", db.display()))
            .arg(format!("--benchmarks={benchmarks}"))
            .arg(format!("--num={}", arguments.num))
            .arg(format!("--num_column_families={}", arguments.families))
            .args([
                "--report_open_timing",
                "--process_stats",
                "--compression_type=none",
            ])
            .args(contestant.flags)
            .args(&arguments.flags);
        command
    };
    let mut write = command("requests");
    write
        .arg(format!("--threads={}", arguments.threads))
        .arg(format!("--duration={}", arguments.seconds))
        .arg(format!("--seed={}", 1000 + round));
    let written = output_of(write)?;
    let mut open = command("levelstats");
    open.arg("--use_existing_db");
    let opened = output_of(open)?;
    fs::remove_dir_all(&db).map_err(|e| format!("{}: {e}", db.display()))?;
    let figures = outcome(&written, &opened);
    figures.ok_or_else(|| format!("no result of requests in:\n{written}{opened}"))
}

/// The figures in the output of a run and of the following open.
fn outcome(written: &str, opened: &str) -> Option<Outcome> {
    let line = written.lines().find(|l| l.starts_with("requests "))?;
    let (_, rest) = line.split_once("micros/op ")?;
    let (rate, _) = rest.split_once(" ops/sec")?;
    let open = opened.lines().find_map(|l| l.strip_prefix("OpenDb:"))?;
    let millis = open.trim().split(' ').next()?;
    let (memory_mib, written_mib) = crate::driver::process_stats(written)?;
    Some(Outcome {
        requests_per_second: rate.parse().ok()?,
        seen: line
            .find("(level 0:")
            .map_or_else(String::new, |at| line[at..].to_owned()),
        open_millis: millis.parse().ok()?,
        memory_mib,
        written_mib,
    })
}

/// A Markdown table; a contestant's figures are those of its median round.
fn table(outcomes: &[Vec<Outcome>]) -> String {
    let medians: Vec<Outcome> = outcomes
        .iter()
        .map(|rounds| {
            let mut rounds = rounds.clone();
            rounds.sort_by(|a, b| a.requests_per_second.total_cmp(&b.requests_per_second));
            rounds.get(rounds.len() / 2).cloned().unwrap_or_default()
        })
        .collect();
    let best = medians
        .iter()
        .zip(&CONTESTANTS)
        .filter(|(_, c)| c.rocksdb)
        .map(|(m, _)| m.requests_per_second)
        .fold(0.0, f64::max);
    let mut out = String::from(
        "\n| engine | requests a second | over RocksDB's best | spread | open, ms | memory, MiB | written, MiB | seen |\n\
         |---|---:|---:|---|---:|---:|---:|---|\n",
    );
    for ((contestant, median), rounds) in CONTESTANTS.iter().zip(&medians).zip(outcomes) {
        let rates = || rounds.iter().map(|r| r.requests_per_second);
        out += &format!(
            "| {} | {:.0} | {:.2} | {:.0}–{:.0} | {:.0} | {} | {} | {} |\n",
            contestant.name,
            median.requests_per_second,
            median.requests_per_second / best,
            rates().fold(f64::INFINITY, f64::min),
            rates().fold(0.0, f64::max),
            median.open_millis,
            median.memory_mib,
            median.written_mib,
            median.seen
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found() {
        let written = "OpenDb:     9.5 milliseconds\n\
            requests     :      12.500 micros/op 80123 ops/sec 1.0 seconds 80 operations;   30.0 MB/s \
            (level 0: 9 files at most; stopped 0.0 %, delayed 1.5 % of the time)\n\
            Process: peak memory 300 MiB; written 900 MiB; CPU 2.0 seconds\n";
        let opened = "OpenDb:     12.25 milliseconds\nLevel Files Size(MB)\n";
        let found = outcome(written, opened).unwrap();
        assert!((found.requests_per_second - 80123.0).abs() < 0.5);
        assert!((found.open_millis - 12.25).abs() < 1e-9);
        assert!(found.seen.starts_with("(level 0: 9 files"));
        assert!(outcome("nothing", opened).is_none());
        let text = table(&[vec![found.clone()], vec![found], vec![], vec![]]);
        assert!(
            text.contains("| Ironstone, defaults | 80123 | 1.00 |"),
            "{text}"
        );
    }
}
