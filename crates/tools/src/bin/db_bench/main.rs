//! `db_bench`: RocksDB's benchmark driver for Ironstone, and for any RocksDB library for
//! comparison.
//!
//! One binary runs both engines (`--engine`), so that only the engine differs in a comparison: same
//! keys, same values, same clock, same loop. Names, flags and result lines are those of RocksDB's
//! db_bench.
//!
//! ```text
//!   flags ─> benchmarks (names to plans) ─> driver ─> work (one Worker a thread) ─> engine:
//!     └────> options (what the engine gets)   └─ stats, progress, reporter            native, rocks, null
//! ```

mod benchmarks;
mod compare;
mod counted;
mod databases;
mod destroy;
mod driver;
mod engine;
mod environment;
mod families;
mod flags;
mod keys;
mod native;
mod null;
mod older;
mod options;
mod pace;
mod progress;
mod repeat;
mod reporter;
mod requests;
mod rocks;
mod stats;
mod work;

use std::io::Write as _;
use std::process::ExitCode;

use base::clock::SystemClock;
use base::{Error, Result};

use driver::Driver;
use flags::{Command, Flags};

/// The environment variable with flags that follow those of the command line: for scripts that call
/// db_bench with their own flags.
const FLAGS_VARIABLE: &str = "DB_BENCH_FLAGS";

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let more = std::env::var(FLAGS_VARIABLE).unwrap_or_default();
    arguments.extend(more.split_whitespace().map(str::to_owned));
    let flags = match flags::parse(&arguments) {
        Ok(Command::Run(flags)) => flags,
        Ok(Command::Help) => {
            say(&flags::help());
            return ExitCode::SUCCESS;
        }
        Ok(Command::Version) => {
            say(concat!(
                "db_bench (Ironstone) ",
                env!("CARGO_PKG_VERSION"),
                "\n"
            ));
            return ExitCode::SUCCESS;
        }
        Err(errors) => {
            for error in errors {
                eprintln!("{error}");
            }
            eprintln!("db_bench --help lists what there is");
            return ExitCode::FAILURE;
        }
    };
    match run(*flags) {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}

/// Prints to standard output without buffering; ends the program if the output is closed.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    if out
        .write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .is_err()
    {
        std::process::exit(1);
    }
}

fn run(flags: Flags) -> Result<()> {
    if flags.build_info {
        say(&environment::build_info());
        return Ok(());
    }
    let clock = SystemClock::shared();
    if flags.engine == "librocksdb" || flags.engine.starts_with("librocksdb:") {
        let version = rocks::library(&flags)?.version()?;
        let name = format!("RocksDB:    version {version}");
        return Driver::<rocks::Rocks>::run(flags, &name, clock);
    }
    if flags.engine == "ironstone" {
        let name = format!("Ironstone:  version {}", env!("CARGO_PKG_VERSION"));
        return Driver::<native::Native>::run(flags, &name, clock);
    }
    if flags.engine == "null" {
        return Driver::<null::Null>::run(flags, "Engine:     null, which does nothing", clock);
    }
    Err(Error::invalid_argument(format!(
        "engine '{}': must be ironstone, librocksdb, librocksdb:PATH or null",
        flags.engine
    )))
}
