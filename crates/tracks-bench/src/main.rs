//! One run of a benchmark of the tracking service, in a separate process, so that its memory can be
//! measured.
//!
//! `cargo xtask bench-tracks` starts it, alternating between Ironstone and RocksDB, and makes
//! tables of its output, which is JSON.

mod drive;
mod http;
mod load;
mod machine;
mod null;
mod places;
mod query;
mod redis;
mod resp;
mod rocksdb;
mod server;
mod settings;
mod shapes;
mod target;
mod tile38;

use std::path::PathBuf;
use std::process::ExitCode;

use base::Result;
use clap::{Parser, Subcommand};

/// One run of a benchmark of the tracking service; prints JSON.
#[derive(Debug, Parser)]
struct Cli {
    #[command(flatten)]
    target: target::Args,
    #[command(subcommand)]
    task: Task,
}

#[derive(Debug, Subcommand)]
enum Task {
    /// Opens the database, says how long that took, and closes it
    Open,
    /// Reports as fast as they are answered
    Write(drive::Args),
    /// Asks questions, quiet or beside reports
    Query(query::Args),
    /// Reports over HTTP on loopback, or the same without HTTP
    Http(http::Args),
    /// Makes the file of places that objects go through
    Places(places::Args),
}

fn main() -> ExitCode {
    match run(&Cli::parse()) {
        Ok(text) => {
            say(&text);
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("error: {e}");
            ExitCode::FAILURE
        }
    }
}

#[expect(clippy::print_stdout, reason = "a program's answer")]
fn say(text: &str) {
    println!("{text}");
}

fn run(args: &Cli) -> Result<String> {
    match &args.task {
        Task::Open => {
            let clock = base::clock::SystemClock::shared();
            let start = clock.monotonic_nanos();
            let opened = args.target.open()?;
            let seconds = (clock.monotonic_nanos() - start) as f64 / 1e9;
            drop(opened);
            Ok(format!("{{\"open_seconds\":{seconds:.3}}}"))
        }
        Task::Write(how) => drive::run(&args.target, how),
        Task::Query(how) => query::run(&args.target, how),
        Task::Http(how) => http::run(&args.target, how),
        Task::Places(how) => places::make(how).map(|path: PathBuf| path.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        super::Cli::command().debug_assert();
    }
}
