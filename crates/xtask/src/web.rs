//! `cargo xtask web`: bundles the map of ironstone-tracks into `crates/tracks/web/dist`, where the next build embeds it.
//!
//! What the map is made of comes by npm under a lock file, into `target/web`: the source tree stays as it is. It is
//! fetched again only when the lock file is another one. The bundler takes a second and runs each time, and writes only
//! what has changed, so that nothing is built again for nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The sources.
const SOURCES: &str = "crates/tracks/web";
/// Where packages are.
const MODULES: &str = "target/web";
/// What npm wants to see.
const WANTED: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Fetch the packages even if they are there
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    bundle(arguments.force)?;
    println!("the next build of ironstone-tracks embeds it");
    Ok(())
}

/// Fetches the packages if they are not there, and bundles the map. The folder of the packages.
pub(crate) fn bundle(force: bool) -> Result<PathBuf, String> {
    let modules = packages(force)?;
    let sources = crate::root().join(SOURCES);
    call(
        Command::new("node")
            .arg(sources.join("build.mjs"))
            .arg(&modules)
            .arg(sources.join("dist")),
    )?;
    Ok(modules)
}

/// The folder with the packages that the lock file names.
fn packages(force: bool) -> Result<PathBuf, String> {
    let (sources, to) = (crate::root().join(SOURCES), crate::root().join(MODULES));
    let said = Command::new("node").arg("--version").output();
    let version = said.map_err(|e| format!("node: {e}; install Node 20 or newer, and npm"))?;
    let version = String::from_utf8_lossy(&version.stdout).trim().to_owned();
    let major = version.trim_start_matches('v').split('.').next();
    if major
        .and_then(|n| n.parse().ok())
        .is_none_or(|n: u32| n < 20)
    {
        return Err(format!("node {version:?}: the map needs Node 20 or newer"));
    }
    // The copy of the lock file is the last thing that is written: where it is, all of it is.
    let (lock, there) = (sources.join("package-lock.json"), to.join("fetched"));
    let wanted = fs::read(&lock).map_err(|e| format!("{}: {e}", lock.display()))?;
    if !force && fs::read(&there).is_ok_and(|has| has == wanted) {
        return Ok(to);
    }
    fs::create_dir_all(&to).map_err(|e| format!("{}: {e}", to.display()))?;
    if there.exists() {
        fs::remove_file(&there).map_err(|e| format!("{}: {e}", there.display()))?;
    }
    for name in WANTED {
        copy(&sources.join(name), &to.join(name))?;
    }
    eprintln!("fetching what the map is made of, with npm");
    call(
        Command::new("npm")
            .args(["ci", "--silent"])
            .current_dir(&to),
    )?;
    fs::write(&there, wanted).map_err(|e| format!("{}: {e}", there.display()))?;
    Ok(to)
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let copied = fs::copy(from, to).map(drop);
    copied.map_err(|e| format!("{} to {}: {e}", from.display(), to.display()))
}

/// Runs a program whose output everybody sees.
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
