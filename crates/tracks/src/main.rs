//! `ironstone-tracks`: the tracking service as a process.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::main()
}
