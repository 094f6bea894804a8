//! `repair`: repair of a database without a MANIFEST, as far as the engine supports it.

use std::io::Write;

use ironstone::{Db, Options};

use crate::cli::Global;
use crate::fail::Outcome;

/// Rebuilds the MANIFEST from the tables and logs, if the engine supports it.
pub(crate) fn repair(global: &Global, out: &mut dyn Write) -> Outcome {
    Db::repair(global.dir()?, &Options::default())?;
    Ok(writeln!(out, "OK")?)
}
