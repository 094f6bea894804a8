//! `cargo xtask web`: bundles the map of ironstone-tracks into `crates/tracks/web/dist`, where the next build embeds it.
//!
//! `crates/tracks/web/build.mjs` does the work: npm fetches the dependencies of the map into
//! `target/web`, once for each lock file. Only changed files are written, so that no needless
//! builds follow.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder of the sources.
const SOURCES: &str = "crates/tracks/web";
/// The folder of the packages.
const MODULES: &str = "target/web";

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Fetch the packages even if they exist
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    bundle(arguments.force)?;
    println!("the next build of ironstone-tracks embeds it");
    Ok(())
}

/// Bundles the map. Returns the folder of its sources, and that of the packages.
pub(crate) fn bundle(force: bool) -> Result<(PathBuf, PathBuf), String> {
    let sources = xtask::root().join(SOURCES);
    let mut command = node(&sources);
    command.arg("build.mjs").args(force.then_some("--force"));
    call(&mut command)?;
    Ok((sources, xtask::root().join(MODULES)))
}

/// A command that runs Node in a folder.
pub(crate) fn node(dir: &Path) -> Command {
    let mut command = Command::new("node");
    command.current_dir(dir);
    command
}

/// Runs a program whose output is shown.
pub(crate) fn call(command: &mut Command) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let status = command.stdin(Stdio::null()).status();
    let status = status.map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => format!("{name}: {e}; install Node 20 or newer, and npm"),
        _ => format!("{name}: {e}"),
    })?;
    let has_worked = status.success();
    has_worked
        .then_some(())
        .ok_or_else(|| format!("{name} ended with {status}"))
}
