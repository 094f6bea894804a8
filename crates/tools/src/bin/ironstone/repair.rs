//! `repair`: what the engine can do for a database without a MANIFEST.

use std::io::Write;

use ironstone::{Db, Options};

use crate::cli::Global;
use crate::fail::Outcome;

/// Rebuilds the MANIFEST from the tables and logs. The engine says whether it can.
pub(crate) fn repair(global: &Global, out: &mut dyn Write) -> Outcome {
    Db::repair(global.dir()?, &Options::default())?;
    Ok(writeln!(out, "OK")?)
}
