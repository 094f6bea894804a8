//! Building db_bench, the program that both benchmark commands run.

use std::path::PathBuf;
use std::process::Command;

/// Builds db_bench, with optimisation if `release`; the path of the binary.
pub(crate) fn build(release: bool) -> Result<PathBuf, String> {
    eprintln!("building db_bench");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .current_dir(crate::root())
        .args(["build", "--package", "ironstone-tools", "--bin", "db_bench"])
        .arg("--message-format=json-render-diagnostics");
    if release {
        command.arg("--release");
    }
    let output = command
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|e| format!("cargo: {e}"))?;
    if !output.status.success() {
        return Err("db_bench does not build".to_owned());
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .find(|message| {
            message["target"]["name"] == "db_bench" && message["executable"].is_string()
        })
        .and_then(|message| Some(PathBuf::from(message["executable"].as_str()?)))
        .ok_or_else(|| "cargo did not tell where db_bench is".to_owned())
}
