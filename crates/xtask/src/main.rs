//! `cargo xtask`: the project's own checks and generators, one module each. Measurements are passed on to the crate
//! `bench`.

#![expect(clippy::print_stdout, reason = "a program that prints its results")]

mod check_map;
mod fuzz;
mod generate;
mod loom;
mod map;
mod measure;
mod miri;
mod mutants;
mod rules;
mod schedules;
mod soak;
mod tsan;
mod web;

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use xtask::peers;

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
    /// Fetch RocksDB 11.8.1 for comparison in tests and benchmarks, into target/peers
    Peers {
        /// Fetch it even if it exists
        #[arg(long)]
        force: bool,
    },
    #[command(flatten)]
    Measure(measure::Task),
    /// Plant bugs, one at a time, and check that a test finds each; takes an hour
    Mutants(mutants::Arguments),
    /// Run the long random tests, for example against a model or alternating with RocksDB
    Soak(soak::Arguments),
    /// Run the tests of concurrent code under many controlled schedules
    Schedules(schedules::Arguments),
    /// Run the loom models of lock-free code, in every order that the memory model allows
    Loom(loom::Arguments),
    /// Run the tests of unsafe code and of codecs under Miri; needs a nightly toolchain
    Miri(miri::Arguments),
    /// Run the tests with several threads under the thread sanitizer
    Tsan(tsan::Arguments),
    /// Fuzz every decoder, for some seconds each
    Fuzz(fuzz::Arguments),
    /// Bundle the map of ironstone-tracks for the next build to embed; needs Node and npm
    Web(web::Arguments),
    /// Open the map of ironstone-tracks in headless Chromium, and compare it with the answers of the service
    CheckMap(check_map::Arguments),
    /// Check the rules of the source tree: modules, layers, unsafe islands, documents
    Tidy,
    /// Print the first sentence of each file's documentation
    Map(map::Arguments),
    /// Generate the documents that come from the option tables
    Gen(generate::Arguments),
}

fn main() -> ExitCode {
    let words = words(std::env::args_os().skip(1).collect());
    let name = OsString::from("cargo xtask");
    let done = match Arguments::parse_from([&name].into_iter().chain(&words)).task {
        Task::Peers { force } => peers::ensure(force)
            .map(|path| println!("RocksDB {}: {}", peers::VERSION, path.display())),
        Task::Measure(_) => measure::run(&words),
        Task::Mutants(arguments) => mutants::run(&arguments),
        Task::Soak(arguments) => soak::run(&arguments),
        Task::Schedules(arguments) => schedules::run(&arguments),
        Task::Loom(arguments) => loom::run(&arguments),
        Task::Miri(arguments) => miri::run(&arguments),
        Task::Tsan(arguments) => tsan::run(&arguments),
        Task::Fuzz(arguments) => fuzz::run(&arguments),
        Task::Web(arguments) => web::run(&arguments),
        Task::CheckMap(arguments) => check_map::run(&arguments),
        Task::Tidy => rules::run(),
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

/// The command line without the program. `help bench quick` becomes `bench quick --help`, because only `bench` has
/// this help.
fn words(mut words: Vec<OsString>) -> Vec<OsString> {
    if words.len() > 1 && words[0] == "help" {
        words.remove(0);
        words.push("--help".into());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn what_measures_is_listed_and_gets_all_arguments() {
        let lines: [&[&str]; 6] = [
            &["bench"],
            &["bench", "--help"],
            &["bench", "quick", "-h"],
            &["bench-device", "--count-only", "--flag=--two_write_queues"],
            &["counts", "--", "merge"],
            &["help", "bench-tracks", "rows"],
        ];
        let help = Arguments::command().render_help().to_string();
        for line in lines {
            let words = words(line.iter().map(OsString::from).collect());
            let all = std::iter::once(OsString::from("x")).chain(words.clone());
            let task = Arguments::try_parse_from(all).map(|a| a.task);
            assert!(matches!(task, Ok(Task::Measure(_))), "{line:?}");
            let name = words[0].to_string_lossy();
            let start = format!("  {name} ");
            assert!(help.lines().any(|l| l.starts_with(&start)), "{help}");
        }
        let own = Arguments::try_parse_from(["x", "tidy", "--help"]);
        assert!(own.is_err_and(|e| e.kind() == clap::error::ErrorKind::DisplayHelp));
    }
}
