//! `cargo xtask`: the project's own checks, generators and measurements, one module each.

#![expect(clippy::print_stdout, reason = "a program that prints its results")]

mod bench;
mod bench_block;
mod bench_bulkload;
mod bench_device;
mod bench_driver;
mod bench_requests;
mod bench_sustained;
mod bench_tracks;
mod benchmark_sh;
mod check_map;
mod counts;
mod drill;
mod driver;
mod fuzz;
mod generate;
mod limit;
mod lock_table;
mod loom;
mod map;
mod miri;
mod mutants;
mod peers;
mod schedules;
mod soak;
mod source;
mod spread;
mod tidy;
mod tree;
mod tsan;
mod web;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "The project's own checks, generators and measurements"
)]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Fetch RocksDB 11.8.1, which tests and benchmarks compare with, into target/peers
    Peers(peers::Arguments),
    Bench(bench::Arguments),
    /// Compare both engines, with defaults and tuned, on what a service writes for each request
    BenchRequests(bench_requests::Arguments),
    /// Compare both engines in minutes of overwriting: rate, worst second, tail, amplification
    BenchSustained(bench_sustained::Arguments),
    /// Compare a bulk load: random keys into vector memtables, then one compaction
    BenchBulkload(bench_bulkload::Arguments),
    /// Measure db_bench itself: its own cost, and RocksDB in it beside RocksDB's own db_bench
    BenchDriver(bench_driver::Arguments),
    /// Run RocksDB's benchmark.sh, unmodified, on our db_bench
    BenchmarkSh(benchmark_sh::Arguments),
    /// Count what a synced put costs the device, beside RocksDB and the raw device; needs root
    BenchDevice(bench_device::Arguments),
    BenchBlock(bench_block::Arguments),
    BenchTracks(bench_tracks::Arguments),
    /// Count the instructions of the hot leaves; fails where they are more than stored
    Counts(counts::Arguments),
    /// Plant bugs, one at a time, and see that a test finds each; takes an hour
    Mutants(mutants::Arguments),
    /// Run the long random tests: against a model, in turns with RocksDB
    Soak(soak::Arguments),
    /// Run the tests whose threads a scheduler runs, each under many schedules
    Schedules(schedules::Arguments),
    /// Run models of what is shared without locks in every order that memory allows
    Loom(loom::Arguments),
    /// Interpret the tests of what handles memory by hand, and of codecs; needs a nightly toolchain
    Miri(miri::Arguments),
    /// Run the tests in which threads meet under the thread sanitizer
    Tsan(tsan::Arguments),
    /// Feed every decoder with anything, for some seconds each
    Fuzz(fuzz::Arguments),
    /// Bundle the map of ironstone-tracks, which the next build embeds; needs Node and npm
    Web(web::Arguments),
    /// Look at the map of ironstone-tracks in headless Chromium, and compare it with what the service answers
    CheckMap(check_map::Arguments),
    /// Check the rules of the source tree: modules, layers, unsafe islands, documents
    Tidy(tidy::Arguments),
    /// Print what each file is: the first sentence of its documentation
    Map(map::Arguments),
    /// Write the documents that are made from the option tables
    Gen(generate::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().task {
        Task::Peers(arguments) => peers::run(&arguments),
        Task::Bench(arguments) => bench::run(&arguments),
        Task::BenchRequests(arguments) => bench_requests::run(&arguments),
        Task::BenchSustained(arguments) => bench_sustained::run(&arguments),
        Task::BenchBulkload(arguments) => bench_bulkload::run(&arguments),
        Task::BenchDriver(arguments) => bench_driver::run(&arguments),
        Task::BenchmarkSh(arguments) => benchmark_sh::run(&arguments),
        Task::BenchTracks(arguments) => bench_tracks::run(&arguments),
        Task::BenchBlock(arguments) => return bench_block::run(&arguments),
        Task::BenchDevice(arguments) => return bench_device::run(&arguments),
        Task::Counts(arguments) => counts::run(&arguments),
        Task::Mutants(arguments) => mutants::run(&arguments),
        Task::Soak(arguments) => soak::run(&arguments),
        Task::Schedules(arguments) => schedules::run(&arguments),
        Task::Loom(arguments) => loom::run(&arguments),
        Task::Miri(arguments) => miri::run(&arguments),
        Task::Tsan(arguments) => tsan::run(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Web(arguments) => web::run(&arguments),
        Task::CheckMap(arguments) => check_map::run(&arguments),
        Task::Tidy(arguments) => tidy::run(&arguments),
        Task::Map(arguments) => map::run(&arguments),
        Task::Gen(arguments) => generate::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("error: {message}");
            ExitCode::FAILURE
        }
    }
}

/// The root of the source tree that this binary was built from.
fn root() -> std::path::PathBuf {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Arguments::command().debug_assert();
    }
}
