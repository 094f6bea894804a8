//! The command line.

mod args;
mod check;
mod demo;
mod serve;
mod signals;
mod token;

use std::io::Write;
use std::process::ExitCode;

use clap::Parser;

use args::{Cli, Command};

pub(crate) fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Serve(args) => serve::run(&args),
        Command::Demo(args) => demo::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Token(args) => token::run(args),
    };
    match done {
        Ok(code) => code,
        Err(e) => {
            say(&format!("error: {e}"));
            ExitCode::FAILURE
        }
    }
}

/// Says something to whoever runs this, on stderr. It is no matter if nobody listens.
fn say(text: &str) {
    writeln!(std::io::stderr(), "{text}").unwrap_or_default();
}

/// Prints a line of results. Whoever does not read them any more has seen enough.
fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")
        .and_then(|()| out.flush())
        .unwrap_or_default();
}
