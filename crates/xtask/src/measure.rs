//! The commands that measure: `cargo xtask` passes them on to the program `bench`, which `cargo run` builds when it is
//! needed, so that the checks do not wait for a build of what measurements are made of.
//!
//! Always by way of cargo: a program of an earlier build would measure something else than the source tree has.

use std::ffi::{OsStr, OsString};
use std::os::unix::process::CommandExt as _;

/// The commands of `bench`, as `--help` lists them; `crates/bench/src/main.rs` has the same. Only `bench` knows
/// their arguments.
#[derive(clap::Subcommand)]
pub(crate) enum Task {
    /// Compare Ironstone with RocksDB 11.8.1 by suites of benchmarks
    Bench(Passed),
    /// Compare both engines, with defaults and tuned, on the writes of a service for each request
    BenchRequests(Passed),
    /// Compare both engines during minutes of overwriting: rate, worst second, tail latency,
    /// amplification
    BenchSustained(Passed),
    /// Compare a bulk load: random keys into vector memtables, then one compaction
    BenchBulkload(Passed),
    /// Read data larger than the caches, several keys at a time, beside RocksDB and fio
    BenchReads(Passed),
    /// Compare what a second tier of the block cache and a row cache gain in the same memory
    BenchTiers(Passed),
    /// Measure db_bench itself: its own cost, and RocksDB in it beside RocksDB's own db_bench
    BenchDriver(Passed),
    /// Run RocksDB's benchmark.sh, unmodified, on our db_bench
    BenchmarkSh(Passed),
    /// Count the device operations of a synced put, beside RocksDB and the raw device; needs root
    BenchDevice(Passed),
    /// Compare the block store with its lower bounds and with a rival, with fio over NBD
    BenchBlock(Passed),
    /// Compare the tracking service on both engines: settings, acknowledgements, HTTP, and queries; without
    /// a task, all of them, which takes two and a half hours
    BenchTracks(Passed),
    /// Count the instructions of hot functions; fails if a count exceeds the stored baseline
    Counts(Passed),
}

// Everything passes, `--help` too.
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
pub(crate) struct Passed {
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<OsString>,
}

/// Becomes `bench` with these arguments: its exit status, and the signals that it gets, are those of this process.
/// Returns if that fails.
pub(crate) fn run(arguments: impl IntoIterator<Item: AsRef<OsStr>>) -> Result<(), String> {
    // Not in the folder of the source tree: arguments may be paths.
    let manifest = xtask::root().join("Cargo.toml");
    let failed = xtask::cargo::command()
        .args(["run", "--quiet", "--package", "bench", "--manifest-path"])
        .arg(manifest)
        .arg("--")
        .args(arguments)
        .exec();
    Err(format!("cargo: {failed}"))
}
