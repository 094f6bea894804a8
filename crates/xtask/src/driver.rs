//! Builds programs, and runs db_bench, with which the benchmark commands compare engines.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds db_bench, optimised if `release`. Returns the path of the binary.
pub(crate) fn build(release: bool) -> Result<PathBuf, String> {
    program("ironstone-tools", "db_bench", release.then_some("release"))
}

/// The workspace's default members that have programs.
const SHIPPED: [&str; 3] = ["ironstone-tools", "ironstone-block-cli", "ironstone-tracks"];

/// Builds a program with a given profile, or with that of development. Returns the path of the
/// binary.
pub(crate) fn program(package: &str, name: &str, profile: Option<&str>) -> Result<PathBuf, String> {
    let mut arguments = vec!["--bin", name];
    // What is shipped is built from the default members together, as a plain `cargo run` does. One package alone would
    // have dependencies with fewer features, and nearly everything would be built once more.
    if !SHIPPED.contains(&package) {
        arguments.extend(["--package", package]);
    }
    if let Some(profile) = profile {
        arguments.extend(["--profile", profile]);
    }
    built(name, &arguments)
}

/// Builds a program with these arguments of `cargo build`. Returns the path of the binary.
pub(crate) fn built(name: &str, arguments: &[&str]) -> Result<PathBuf, String> {
    built_with(name, arguments, &[])
}

/// Like [`built`], with environment variables for cargo.
pub(crate) fn built_with(
    name: &str,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<PathBuf, String> {
    eprintln!("building {name}");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(crate::root())
        .arg("build")
        .args(arguments)
        .envs(variables.iter().copied())
        .arg("--message-format=json-render-diagnostics")
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    if !output.status.success() {
        return Err(format!("{name} does not build"));
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find(|message| message["target"]["name"] == name && message["executable"].is_string())
        .and_then(|message| Some(PathBuf::from(message["executable"].as_str()?)))
        .ok_or_else(|| format!("cargo did not tell where {name} is"))
}

/// The target platform of this machine, under the compiler's name.
pub(crate) fn platform() -> Result<String, String> {
    let said = Command::new("rustc")
        .arg("-vV")
        .output()
        .map_err(|e| format!("rustc: {e}"))?;
    String::from_utf8_lossy(&said.stdout)
        .lines()
        .find_map(|l| l.strip_prefix("host: "))
        .map(str::to_owned)
        .ok_or_else(|| "rustc -vV does not name a host".to_owned())
}

/// The standard output of a run of db_bench. Errors: it failed; with its output.
pub(crate) fn output_of(command: Command) -> Result<String, String> {
    outputs_of(command).map(|(results, _)| results)
}

/// The standard output of a run of db_bench, and its standard error. Errors: it failed; with its
/// output.
pub(crate) fn outputs_of(mut command: Command) -> Result<(String, String), String> {
    let output = command.output().map_err(|e| format!("db_bench: {e}"))?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() {
        return Ok((text(&output.stdout), text(&output.stderr)));
    }
    let arguments: Vec<_> = command.get_args().map(|a| a.to_string_lossy()).collect();
    Err(format!(
        "db_bench {} failed:\n{}",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr)
    ))
}

/// The setting of a comparison.
pub(crate) struct Setup {
    /// The path of db_bench.
    pub(crate) driver: PathBuf,
    peer: PathBuf,
    /// A temporary directory of the comparison.
    pub(crate) dir: PathBuf,
}

impl Setup {
    /// Calls `measure` after fetching RocksDB, building db_bench unless `driver` is given, and
    /// making a directory under `parent` (by default `target/bench`), which is removed afterwards.
    pub(crate) fn with<T>(
        name: &str,
        parent: Option<&Path>,
        driver: Option<&Path>,
        measure: impl FnOnce(&Self) -> Result<T, String>,
    ) -> Result<T, String> {
        let peer = crate::peers::ensure(false)?;
        let driver = driver.map_or_else(|| build(true), |path| Ok(path.to_owned()))?;
        let parent = parent.map_or_else(|| crate::root().join("target/bench"), Path::to_owned);
        let dir = parent.join(format!("{name}-{}", std::process::id()));
        let failed = |e| format!("{}: {e}", dir.display());
        fs::create_dir_all(&dir).map_err(failed)?;
        let measured = measure(&Self {
            driver,
            peer,
            dir: dir.clone(),
        });
        let removed = fs::remove_dir_all(&dir).map_err(failed);
        let measured = measured?;
        removed.map(|()| measured)
    }

    /// Like [`Setup::with`]; prints what `measure` returns.
    pub(crate) fn print(
        name: &str,
        parent: Option<&Path>,
        driver: Option<&Path>,
        measure: impl FnOnce(&Self) -> Result<String, String>,
    ) -> Result<(), String> {
        print!("{}", Self::with(name, parent, driver, measure)?);
        Ok(())
    }

    /// The value of `--engine` of db_bench, for Ironstone or for RocksDB.
    pub(crate) fn engine(&self, rocksdb: bool) -> String {
        if rocksdb {
            format!("--engine=librocksdb:{}", self.peer.display())
        } else {
            "--engine=ironstone".to_owned()
        }
    }
}

/// The output of `--process_stats`: peak memory in MiB, and MiB written.
pub(crate) fn process_stats(output: &str) -> Option<(u64, u64)> {
    let line = output
        .lines()
        .find_map(|l| l.strip_prefix("Process: peak memory "))?;
    let (memory, rest) = line.split_once(" MiB; written ")?;
    let (written, _) = rest.split_once(" MiB")?;
    Some((memory.parse().ok()?, written.parse().ok()?))
}
