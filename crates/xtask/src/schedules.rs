//! `cargo xtask schedules`: the tests whose threads a scheduler runs, built with `--cfg shuttle` in a
//! target directory of their own.
//!
//! Each schedule is drawn from a number; a failure names it, and the command that runs it again.

use std::process::Command;

use crate::driver;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Schedules of the commit path, over all tests; those of the small parts come on top
    #[arg(long, default_value_t = 20_000)]
    iterations: u64,
    /// The number of the first schedule
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The one test to run, and as many schedules of it as iterations
    #[arg(long)]
    only: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    // With the checks of debug builds, and twice as fast.
    let arguments_of_build = [
        ["--profile", "soak"],
        ["--package", "ironstone-sim"],
        ["--test", "schedules"],
    ];
    let arguments_of_build = arguments_of_build.concat();
    let variables = [
        ("RUSTFLAGS", "--cfg shuttle"),
        ("CARGO_TARGET_DIR", "target/shuttle"),
    ];
    let program = driver::built_with("schedules", &arguments_of_build, &variables)?;
    let mut command = Command::new(&program);
    command
        .args(["--test-threads=1", "--nocapture"])
        .env("IRONSTONE_SCHEDULE_SEED", arguments.seed.to_string())
        .env("IRONSTONE_SCHEDULES", arguments.iterations.to_string())
        .current_dir(crate::root());
    if let Some(only) = &arguments.only {
        command.arg(only).env("IRONSTONE_SCHEDULES_ALONE", "1");
    }
    if arguments.iterations == 1 {
        // Where each thread stands, if none can go on.
        command.env("SHUTTLE_CAPTURE_BACKTRACE", "1");
    }
    let status = command
        .status()
        .map_err(|e| format!("{}: {e}", program.display()))?;
    if status.success() {
        return Ok(());
    }
    Err("a schedule fails; above is how to run it again".to_owned())
}
