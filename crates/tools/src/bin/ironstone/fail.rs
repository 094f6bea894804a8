//! How a command fails: the message on standard error, and the exit code.

use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// What a command returns.
pub(crate) type Outcome<T = ()> = Result<T, Failure>;

/// The reason of a failure.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The engine's error; printed as `Failed: <status>`.
    Status(ironstone::Error),
    /// A message of the command's own; printed the same way.
    Message(String),
    /// The arguments are wrong; the text is complete.
    Usage(String),
    /// The problems that were found are printed already.
    Reported,
    /// The output was closed, or cannot be written.
    Output(io::Error),
}

impl Failure {
    /// A failure with this message.
    pub(crate) fn message(text: impl Into<String>) -> Self {
        Self::Message(text.into())
    }

    /// Prints it; the exit code is 1.
    pub(crate) fn report(&self) -> ExitCode {
        match self {
            Self::Status(e) => note(format_args!("Failed: {e}")),
            Self::Message(text) => note(format_args!("Failed: {text}")),
            Self::Usage(text) => note(format_args!("{}", text.trim_end_matches('\n'))),
            Self::Output(e) if e.kind() != io::ErrorKind::BrokenPipe => {
                note(format_args!("Failed: IO error: writing the output: {e}"));
            }
            Self::Reported | Self::Output(_) => {}
        }
        ExitCode::FAILURE
    }
}

/// Prints a line to standard error. Ignores an error, for example if standard error is closed.
pub(crate) fn note(text: fmt::Arguments<'_>) {
    drop(writeln!(io::stderr().lock(), "{text}"));
}

impl From<ironstone::Error> for Failure {
    fn from(e: ironstone::Error) -> Self {
        Self::Status(e)
    }
}

impl From<io::Error> for Failure {
    fn from(e: io::Error) -> Self {
        Self::Output(e)
    }
}
