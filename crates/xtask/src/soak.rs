//! `cargo xtask soak`: the long random tests, built with optimisation and with the checks of debug
//! builds. The arguments are passed to the program `soak` of the crate sim, except that `drill` is
//! run here.

use std::process::Command;

use clap::Parser as _;

use crate::{drill, driver};

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// model, switches, ttl, chaos, block or drill, and its arguments; --help tells of them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    if arguments.arguments.first().is_some_and(|a| a == "drill") {
        return drill::run(&drill::Arguments::parse_from(&arguments.arguments));
    }
    if arguments.arguments.iter().any(|a| a == "switches") {
        crate::peers::ensure(false)?;
    }
    let program = driver::program("ironstone-sim", "soak", Some("soak"))?;
    let status = Command::new(&program)
        .args(&arguments.arguments)
        .current_dir(crate::root())
        .status()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("soak {}", arguments.arguments.join(" ")))
}
