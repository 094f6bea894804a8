//! `cargo xtask tsan`: runs the tests with concurrent threads under the thread sanitizer, which
//! reports data races.
//!
//! The flag of the sanitizer is unstable, and the standard library must be built with it, because
//! otherwise its locks are not recognized. `RUSTC_BOOTSTRAP` lets the pinned toolchain do both.

use std::path::PathBuf;
use std::process::Command;

use xtask::cargo;

/// The tests to run: package, arguments that select its test programs, names of tests.
const SUITES: &[(&str, &[&str], &[&str])] = &[
    ("ironstone-table", &["--lib"], &["cache::"]),
    ("ironstone-log", &["--lib"], &["pool::", "secret::"]),
    ("ironstone-log", &["--test", "it"], &["flights::"]),
    ("ironstone-memtable", &["--lib"], &[]),
    (
        "ironstone",
        &["--lib"],
        &["commit::", "write::", "background::"],
    ),
    ("ironstone-sim", &["--test", "it"], &["write_path::"]),
    ("ironstone-sim", &["--test", "crash"], &["threads::"]),
    ("ironstone-sim", &["--test", "chaos"], &[]),
];

#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// Only the suites of this package
    #[arg(long)]
    package: Option<String>,
    /// Seconds of chaos
    #[arg(long, default_value_t = 60)]
    chaos_seconds: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<(), String> {
    let platform = cargo::platform()?;
    let suppressions = suppressions()?;
    let options = format!("halt_on_error=1:suppressions={}", suppressions.display());
    let wanted = |suite: &&(&str, &[&str], &[&str])| {
        let package = arguments.package.as_deref();
        package.is_none_or(|package| package == suite.0)
    };
    let mut failed = Vec::new();
    for (package, program, tests) in SUITES.iter().filter(wanted) {
        let name = format!("{package} {} {}", program.join(" "), tests.join(" "));
        eprintln!("{name}");
        let status = Command::new("cargo")
            .current_dir(xtask::root())
            .env("RUSTC_BOOTSTRAP", "1")
            .env("RUSTFLAGS", "-Zsanitizer=thread --cfg tsan")
            .env("CARGO_TARGET_DIR", "target/tsan")
            .env("TSAN_OPTIONS", &options)
            .env(
                "IRONSTONE_CHAOS_SECONDS",
                arguments.chaos_seconds.to_string(),
            )
            .args(["test", "--quiet", "-Zbuild-std", "--target", &platform])
            .args(["--package", package])
            .args(*program)
            .arg("--")
            .args(*tests)
            .status()
            .map_err(|e| format!("cargo: {e}"))?;
        if !status.success() {
            failed.push(name);
        }
    }
    if failed.is_empty() {
        return Ok(());
    }
    Err(format!(
        "the sanitizer found something, or a test failed, in: {} (if the standard library's source is \
         missing: rustup component add rust-src)",
        failed.join("; ")
    ))
}

/// A file of suppressions: reports from RocksDB's library are suppressed, because it is built
/// without the sanitizer.
fn suppressions() -> Result<PathBuf, String> {
    let path = xtask::root().join("target/tsan/suppressions");
    let dir = path.parent().unwrap_or(&path);
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(&path, "called_from_lib:librocksdb\nrace:librocksdb\n"))
        .map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}
