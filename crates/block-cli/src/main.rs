//! `ironstone-block`: the block store as processes.
//!
//! ```text
//!   chunk   a store with its groups ──┐
//!   nbd     volumes for NBD clients ──┼── the cluster file says what there is, and where
//!   dev     all of it on this machine ┘
//!   ctl     status, top: asks processes · log dump, store check: look into a store that is closed
//! ```

mod check;
mod chunk;
mod cli;
mod cluster;
mod ctl;
mod dev;
mod dump;
mod http;
mod nbd;
mod offline;
mod say;
mod signals;
mod size;
mod status;
mod top;

use std::io::Write;
use std::process::ExitCode;

use base::Result;
use clap::Parser;

use cli::{Cli, Command, Ctl, Log, StoreCommand};
use say::say;

fn main() -> ExitCode {
    let cli = Cli::parse();
    match run(cli) {
        Ok(code) => code,
        Err(e) => {
            say(&format!("error: {e}"));
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.command {
        Command::Chunk(args) => chunk::run(&args)?,
        Command::Nbd(args) => nbd::run(&args)?,
        Command::Dev(args) => dev::run(&args)?,
        Command::Ctl(Ctl::Status(args)) => return ctl::status(&args),
        Command::Ctl(Ctl::Top(args)) => top::run(&args)?,
        Command::Ctl(Ctl::Log(Log::Dump(args))) => dump::run(&args)?,
        Command::Ctl(Ctl::Store(StoreCommand::Check(args))) => return check::run(&args),
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints a line of results. A closed stdout is no error: its reader has seen enough.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .unwrap_or_default();
}
