//! The command line.

mod args;
mod backup;
mod check;
mod config;
mod demo;
mod export;
mod import;
mod serve;
mod signals;
mod token;

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use base::{Error, Result};

use args::Command;

pub(crate) fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(e) => {
            say(&format!("error: {e}"));
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    let (cli, config) = config::parse()?;
    match cli.command {
        Command::Serve(args) if args.print_config => {
            print(config.trim_end());
            Ok(ExitCode::SUCCESS)
        }
        Command::Serve(args) => serve::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Export(args) => export::run(&args),
        Command::Backup(args) => backup::make(&args),
        Command::Restore(args) => backup::restore(&args),
        Command::Token(args) => token::run(args),
    }
}

/// Errors: there is no database in a folder. Opening it would create one.
fn check_is_there(dir: &Path) -> Result<()> {
    if dir.join("CURRENT").exists() {
        return Ok(());
    }
    Err(Error::not_found("there is no database in this folder").file(dir))
}

/// Prints a line for the operator on stderr. Failures are ignored.
fn say(text: &str) {
    writeln!(std::io::stderr(), "{text}").unwrap_or_default();
}

/// Prints a line of results. A failure is ignored: the reader has seen enough.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .unwrap_or_default();
}
