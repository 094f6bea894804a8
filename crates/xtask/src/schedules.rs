//! `cargo xtask schedules`: runs tests whose threads are controlled by a scheduler, built with
//! `--cfg shuttle` in a separate target directory.
//!
//! Each schedule is derived from a seed; a failure prints the seed, and the command that repeats
//! the run.

use std::process::Command;

use xtask::cargo;

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Number of schedules of the commit path, over all tests; the schedules of the small parts are
    /// additional
    #[arg(long, default_value_t = 20_000)]
    iterations: u64,
    /// The number of the first schedule
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// The only test to run, with as many schedules as iterations
    #[arg(long)]
    only: Option<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    // With the checks of debug builds, and twice as fast. Of the engine and the simulated disk alone: all else would be
    // most of the build.
    let arguments_of_build = [
        ["--profile", "soak"],
        ["--package", "ironstone-sim"],
        ["--test", "schedules"],
    ];
    let mut arguments_of_build = arguments_of_build.concat();
    arguments_of_build.push("--no-default-features");
    let variables = [
        ("RUSTFLAGS", "--cfg shuttle"),
        ("CARGO_TARGET_DIR", "target/shuttle"),
    ];
    let program = cargo::built_with("schedules", &arguments_of_build, &variables)?;
    let mut command = Command::new(&program);
    command
        .args(["--test-threads=1", "--nocapture"])
        .env("IRONSTONE_SCHEDULE_SEED", arguments.seed.to_string())
        .env("IRONSTONE_SCHEDULES", arguments.iterations.to_string())
        .current_dir(xtask::root());
    if let Some(only) = &arguments.only {
        command.arg(only).env("IRONSTONE_SCHEDULES_ALONE", "1");
    }
    if arguments.iterations == 1 {
        // Shows the state of each thread at a deadlock.
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
