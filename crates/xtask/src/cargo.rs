//! How cargo is called: it builds programs of this workspace, and runs them.

use std::path::PathBuf;
use std::process::Command;

/// The cargo that runs this program; without one, that of the path.
pub fn command() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// The workspace's default members that have programs.
const SHIPPED: [&str; 3] = ["ironstone-tools", "ironstone-block-cli", "ironstone-tracks"];

/// Builds a program with a given profile, or with that of development. Returns the path of the
/// binary.
pub fn program(package: &str, name: &str, profile: Option<&str>) -> Result<PathBuf, String> {
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
pub fn built(name: &str, arguments: &[&str]) -> Result<PathBuf, String> {
    built_with(name, arguments, &[])
}

/// Like [`built`], with environment variables for cargo.
pub fn built_with(
    name: &str,
    arguments: &[&str],
    variables: &[(&str, &str)],
) -> Result<PathBuf, String> {
    eprintln!("building {name}");
    let output = command()
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
pub fn platform() -> Result<String, String> {
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
