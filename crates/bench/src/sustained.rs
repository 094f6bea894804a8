//! `cargo xtask bench-sustained`: minutes of overwriting, on both engines alternating.
//!
//! This shows what short runs hide: writers that stall once compaction lags. Printed for each run:
//! the rate, its worst second, the tail of the latencies, bytes written per byte put, and memory.
//! In addition, the machine's own limits: the tail of an idle loop in slices as long as a put, and
//! the worst second of a loop that only follows pointers through as much memory as a memtable has.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use crate::driver::{Setup, output_of};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Bytes of a memtable
    #[arg(long, default_value_t = 64 << 20, value_parser = clap::value_parser!(u64).range(4096..))]
    write_buffer_size: u64,
    /// The data set, in memtables
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
    buffers: u64,
    /// Seconds of overwriting in each run
    #[arg(long, default_value_t = 600, value_parser = clap::value_parser!(u32).range(2..))]
    seconds: u32,
    /// Writing threads
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Pairs of runs
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
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

/// Bytes of a key and of a value.
const KEY_SIZE: u64 = 16;
const VALUE_SIZE: u64 = 100;

/// The figures of one run.
#[derive(Clone, Copy)]
struct Outcome {
    puts_per_second: f64,
    /// The worst second over the mean of all seconds.
    worst_second: f64,
    p999_micros: f64,
    max_micros: f64,
    /// Bytes written to the device per byte put.
    write_amplification: f64,
    memory_mib: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let (parent, driver) = (arguments.dir.as_deref(), arguments.driver.as_deref());
    Setup::print("bench-sustained", parent, driver, |setup| {
        measure(arguments, setup)
    })
}

/// A Markdown table of all runs.
fn measure(arguments: &Arguments, setup: &Setup) -> Result<String, String> {
    let mut table = String::from(
        "\n| engine | puts a second | worst second over mean | p99.9, µs | longest, µs | bytes written a byte | memory, MiB |\n\
         |---|---:|---:|---:|---:|---:|---:|\n",
    );
    for (pair, rocksdb) in (0..arguments.pairs).flat_map(|p| [(p, false), (p, true)]) {
        let name = if rocksdb { "RocksDB" } else { "Ironstone" };
        let outcome = once(arguments, rocksdb, pair, setup)?;
        let line = row(name, outcome);
        let nanos = 1e9 * f64::from(arguments.threads) / outcome.puts_per_second;
        let idle = format!(
            "| nothing, in slices of {:.1} µs | | {:.2} | {:.1} | | | |\n",
            nanos / 1000.0,
            own_worst_second(arguments),
            idle_p999_micros(nanos as u64)
        );
        eprint!("{line}{idle}");
        table += &line;
        table += &idle;
    }
    Ok(table)
}

/// The p99.9 of the slices of a loop that only reads the clock, each of at least `slice`
/// nanoseconds: the cost of timer interrupts, and of a host that takes the processor away. No
/// operation of that length can do better on this machine.
fn idle_p999_micros(slice: u64) -> f64 {
    const LOOP_NANOS: u64 = 4_000_000_000;
    let clock = base::clock::SystemClock::shared();
    let (begun, mut last) = (clock.monotonic_nanos(), clock.monotonic_nanos());
    let mut slices = Vec::new();
    while last - begun < LOOP_NANOS {
        let now = clock.monotonic_nanos();
        if now - last >= slice {
            slices.push(now - last);
            last = now;
        }
    }
    slices.sort_unstable();
    let at = slices.len() * 999 / 1000;
    slices.get(at).map_or(0.0, |&nanos| nanos as f64 / 1000.0)
}

/// The worst second over the mean, of a loop that follows pointers through as many bytes as a
/// memtable has, for at most a minute. No look-up in memory can be steadier on this machine.
fn own_worst_second(arguments: &Arguments) -> f64 {
    const SECOND: u64 = 1_000_000_000;
    const STEPS: usize = 10_000;
    let len = usize::try_from(arguments.write_buffer_size / 8).unwrap_or(1 << 20);
    // One cycle through all of it, in random order (Sattolo's shuffle).
    let mut next: Vec<usize> = (0..len).collect();
    let mut rng = base::rng::Rng::new(1);
    for i in (1..len).rev() {
        next.swap(i, rng.below(i as u64) as usize);
    }
    let clock = base::clock::SystemClock::shared();
    let mut at = 0;
    let rates: Vec<f64> = (0..arguments.seconds.min(60))
        .map(|_| {
            let (begun, mut steps) = (clock.monotonic_nanos(), 0);
            while clock.monotonic_nanos() - begun < SECOND {
                for _ in 0..STEPS {
                    at = next[at];
                }
                steps += STEPS;
            }
            steps as f64
        })
        .collect();
    std::hint::black_box(at);
    worst_over_mean(&rates)
}

fn worst_over_mean(rates: &[f64]) -> f64 {
    let mean = rates.iter().sum::<f64>() / rates.len().max(1) as f64;
    rates.iter().copied().fold(f64::INFINITY, f64::min) / mean
}

fn row(name: &str, o: Outcome) -> String {
    format!(
        "| {name} | {:.0} | {:.2} | {:.1} | {:.0} | {:.2} | {} |\n",
        o.puts_per_second,
        o.worst_second,
        o.p999_micros,
        o.max_micros,
        o.write_amplification,
        o.memory_mib
    )
}

fn once(arguments: &Arguments, rocksdb: bool, pair: u32, setup: &Setup) -> Result<Outcome, String> {
    let (db, report) = (setup.dir.join("db"), setup.dir.join("report.csv"));
    let num = arguments.write_buffer_size * arguments.buffers / (KEY_SIZE + VALUE_SIZE);
    let command = |benchmarks: &str| {
        let mut command = Command::new(&setup.driver);
        command
            .arg(setup.engine(rocksdb))
            .arg(format!("--db={}", db.display()))
            .arg(format!("--benchmarks={benchmarks}"))
            .arg(format!("--num={num}"))
            .arg(format!("--key_size={KEY_SIZE}"))
            .arg(format!("--value_size={VALUE_SIZE}"))
            .arg(format!(
                "--write_buffer_size={}",
                arguments.write_buffer_size
            ))
            .arg("--compression_type=none")
            .args(&arguments.flags);
        command
    };
    let mut fill = command("fillrandom,waitforcompaction");
    fill.arg("--seed=1");
    output_of(fill)?;
    let mut overwrite = command("overwrite");
    overwrite
        .args(["--use_existing_db", "--histogram", "--process_stats"])
        .arg("--report_interval_seconds=1")
        .arg(format!("--report_file={}", report.display()))
        .arg(format!("--threads={}", arguments.threads))
        .arg(format!("--duration={}", arguments.seconds))
        .arg(format!("--seed={}", 1000 + pair));
    let output = output_of(overwrite)?;
    let seconds = fs::read_to_string(&report).map_err(|e| format!("{}: {e}", report.display()))?;
    fs::remove_dir_all(&db).map_err(|e| format!("{}: {e}", db.display()))?;
    outcome(&output, &seconds).ok_or_else(|| format!("no result of overwrite in:\n{output}"))
}

/// The figures in the output of a run and in its rates per second.
fn outcome(output: &str, seconds: &str) -> Option<Outcome> {
    let line = output.lines().find(|l| l.starts_with("overwrite "))?;
    let (_, rest) = line.split_once("micros/op ")?;
    let (rate, rest) = rest.split_once(" ops/sec ")?;
    let (_, rest) = rest.split_once(" seconds ")?;
    let operations: f64 = rest.split_once(" operations")?.0.parse().ok()?;
    let percentiles = output.lines().find(|l| l.starts_with("Percentiles:"))?;
    let longest = output.lines().find(|l| l.starts_with("Min:"))?;
    let after = |text: &str, mark: &str| -> Option<f64> {
        let (_, rest) = text.split_once(mark)?;
        rest.split_whitespace().next()?.parse().ok()
    };
    let rates: Vec<f64> = seconds
        .lines()
        .skip(1)
        .filter_map(|l| l.split_once(',')?.1.parse().ok())
        .collect();
    let (memory_mib, written_mib) = crate::driver::process_stats(output)?;
    let put = operations * (KEY_SIZE + VALUE_SIZE) as f64;
    Some(Outcome {
        puts_per_second: rate.parse().ok()?,
        worst_second: worst_over_mean(&rates),
        p999_micros: after(percentiles, "P99.9:")?,
        max_micros: after(longest, "Max:")?,
        write_amplification: (written_mib << 20) as f64 / put,
        memory_mib,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found() {
        let output = "overwrite    :       4.000 micros/op 250000 ops/sec 2.000 seconds 500000 operations;   27.6 MB/s\n\
            Microseconds per write:\n\
            Count: 500000 Average: 3.9  StdDev: 1.00\n\
            Min: 1  Median: 3.5  Max: 90000\n\
            Percentiles: P50: 3.50 P75: 4.00 P99: 9.00 P99.9: 21.50 P99.99: 80.00\n\
            Process: peak memory 300 MiB; written 166 MiB; CPU 2.0 seconds\n";
        let o = outcome(output, "secs_elapsed,interval_qps\n1,300000\n2,200000\n").unwrap();
        assert!((o.worst_second - 0.8).abs() < 1e-9);
        assert!((o.p999_micros - 21.5).abs() < 1e-9);
        assert!((o.write_amplification - 3.0).abs() < 0.01);
        assert_eq!((o.memory_mib, o.max_micros as u64), (300, 90000));
        assert!(row("x", o).starts_with("| x | 250000 | 0.80 | 21.5 |"));
        assert!(idle_p999_micros(1_000_000) >= 1000.0);
    }
}
