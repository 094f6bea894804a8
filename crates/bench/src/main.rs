//! Measurements: the commands `cargo xtask bench` and similar, one module for each.
//!
//! `crates/xtask/src/measure.rs` lists the same commands, and passes all arguments on. This is a separate crate, so
//! that the checks of xtask are built without the block store, the simulator and the dependencies of pages. The folder
//! `bench/` at the root is different: it has the drivers of rival engines, which `suites::peers` builds.

#![expect(clippy::print_stdout, reason = "a program that prints its results")]

mod benchmark_sh;
mod block_store;
mod bulkload;
mod counts;
mod device;
mod drill;
mod driver;
mod driver_check;
mod limit;
mod reads;
mod requests;
mod spread;
mod suites;
mod sustained;
mod tiers;
mod tracks;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "The project's measurements"
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    Bench(suites::Arguments),
    /// Compare both engines, with defaults and tuned, on the writes of a service for each request
    BenchRequests(requests::Arguments),
    /// Compare both engines during minutes of overwriting: rate, worst second, tail latency,
    /// amplification
    BenchSustained(sustained::Arguments),
    /// Compare a bulk load: random keys into vector memtables, then one compaction
    BenchBulkload(bulkload::Arguments),
    /// Read data larger than the caches, several keys at a time, beside RocksDB and fio
    BenchReads(reads::Arguments),
    /// Compare what a second tier of the block cache and a row cache gain in the same memory
    BenchTiers(tiers::Arguments),
    /// Measure db_bench itself: its own cost, and RocksDB in it beside RocksDB's own db_bench
    BenchDriver(driver_check::Arguments),
    /// Run RocksDB's benchmark.sh, unmodified, on our db_bench
    BenchmarkSh(benchmark_sh::Arguments),
    /// Count the device operations of a synced put, beside RocksDB and the raw device; needs root
    BenchDevice(device::Arguments),
    BenchBlock(block_store::Arguments),
    BenchTracks(tracks::Arguments),
    /// Count the instructions of hot functions; fails if a count exceeds the stored baseline
    Counts(counts::Arguments),
    /// Run this crate's tests of `cargo xtask soak`
    #[command(subcommand)]
    Soak(Soak),
}

#[derive(Subcommand)]
enum Soak {
    Drill(drill::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Bench(arguments) => suites::run(&arguments),
        Task::BenchRequests(arguments) => requests::run(&arguments),
        Task::BenchSustained(arguments) => sustained::run(&arguments),
        Task::BenchBulkload(arguments) => bulkload::run(&arguments),
        Task::BenchReads(arguments) => reads::run(&arguments),
        Task::BenchTiers(arguments) => tiers::run(&arguments),
        Task::BenchDriver(arguments) => driver_check::run(&arguments),
        Task::BenchmarkSh(arguments) => benchmark_sh::run(&arguments),
        Task::BenchTracks(arguments) => tracks::run(&arguments),
        Task::BenchBlock(arguments) => return block_store::run(&arguments),
        Task::BenchDevice(arguments) => return device::run(&arguments),
        Task::Counts(arguments) => counts::run(&arguments),
        Task::Soak(Soak::Drill(arguments)) => drill::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Arguments::command().debug_assert();
    }
}
