//! `cargo xtask peers`: RocksDB 11.8.1 as a shared library under `target/peers/`.
//!
//! RocksDB's Java artifact contains an optimised build for Linux that exports the whole C API, so
//! that Maven can fetch it and nothing is compiled. The file is put in place by a rename after its
//! exports were counted: it is always complete, and a second run does nothing.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The version that is fetched.
pub const VERSION: &str = "11.8.1";
/// Where it is put, from the repository's root. The crate `tools` looks for it there.
pub const PEER: &str = "target/peers/librocksdb-11.8.1.so";

const ARTIFACT: &str = "org.rocksdb:rocksdbjni:11.8.1";
const JAR: &str = "rocksdbjni-11.8.1.jar";
const MEMBER: &str = "librocksdbjni-linux64.so";

/// The path of the library, which is fetched first if it is missing.
pub fn ensure(force: bool) -> Result<PathBuf, String> {
    let peer = crate::root().join(PEER);
    if peer.is_file() && !force {
        return Ok(peer);
    }
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        return Err(format!(
            "{ARTIFACT} is fetched for Linux on x86-64 only; build RocksDB's shared library and \
             name it in IRONSTONE_LIBROCKSDB"
        ));
    }
    let dir = peer.with_extension("fetch");
    fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let fetched = fetch(&dir)
        .and_then(|file| fs::rename(&file, &peer).map_err(|e| format!("{}: {e}", peer.display())));
    let removed = fs::remove_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()));
    fetched.and(removed)?;
    Ok(peer)
}

fn fetch(dir: &Path) -> Result<PathBuf, String> {
    eprintln!("fetching {ARTIFACT} with Maven (92 MB the first time)");
    run_tool(
        Command::new("mvn")
            .args(["--quiet", "--batch-mode", "dependency:copy"])
            .args([
                format!("-Dartifact={ARTIFACT}"),
                format!("-DoutputDirectory={}", dir.display()),
            ]),
        "install Maven, for example: apt-get install maven",
    )?;
    run_tool(
        Command::new("unzip")
            .args(["-o", "-q"])
            .arg(dir.join(JAR))
            .arg(MEMBER)
            .arg("-d")
            .arg(dir),
        "install unzip, for example: apt-get install unzip",
    )?;
    let file = dir.join(MEMBER);
    check(&file)?;
    Ok(file)
}

/// Counts the exported functions, so that a wrong file is not installed.
fn check(file: &Path) -> Result<(), String> {
    let listing = Command::new("nm")
        .args(["-D", "--defined-only"])
        .arg(file)
        .output();
    let Ok(listing) = listing else {
        return Ok(()); // without binutils, those who load it find out
    };
    let text = String::from_utf8_lossy(&listing.stdout);
    let functions = text.lines().filter(|l| l.contains(" T rocksdb_")).count();
    if functions < 1000 {
        return Err(format!(
            "{} exports {functions} functions of the C API, 1000 or more were expected",
            file.display()
        ));
    }
    Ok(())
}

fn run_tool(command: &mut Command, if_missing: &str) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| match e.kind() {
        std::io::ErrorKind::NotFound => format!("{name} is not installed ({if_missing})"),
        _ => format!("{name}: {e}"),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let mut said = String::from_utf8_lossy(&output.stdout).into_owned();
    said.push_str(&String::from_utf8_lossy(&output.stderr));
    Err(format!("{name} failed: {}: {}", output.status, said.trim()))
}
