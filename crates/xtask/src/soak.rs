//! `cargo xtask soak`: the long random tests, built with optimisation and with the checks of debug
//! builds. The arguments are passed to the program `soak` of the crate sim, except that `drill` is
//! one of the measurements.

use std::process::Command;

use xtask::cargo;

use crate::measure;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// model, switches, ttl, chaos, block or drill, and its arguments; --help explains them
    #[arg(trailing_var_arg = true, allow_hyphen_values = true, required = true)]
    arguments: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    if arguments.arguments.first().is_some_and(|a| a == "drill") {
        let drill = arguments.arguments.iter().map(String::as_str);
        return measure::run(std::iter::once("soak").chain(drill));
    }
    if arguments.arguments.iter().any(|a| a == "switches") {
        xtask::peers::ensure(false)?;
    }
    let program = cargo::program("ironstone-sim", "soak", Some("soak"))?;
    let status = Command::new(&program)
        .args(&arguments.arguments)
        .current_dir(xtask::root())
        .status()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("soak {}", arguments.arguments.join(" ")))
}
