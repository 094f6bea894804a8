//! RocksDB's command-line tools (Debian's `rocksdb-tools`, 7.8.3): a second release as an oracle,
//! in processes of its own.

use std::path::Path;
use std::process::Command;
use std::sync::OnceLock;

use base::{Error, ErrorKind, Result};

use crate::oracle::content::{FamilyContent, Pairs};

/// Whether `ldb` and `sst_dump` are installed; says so on standard error if they are not.
pub fn available() -> bool {
    static FOUND: OnceLock<bool> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let found = ["ldb", "sst_dump"]
            .iter()
            .all(|tool| Command::new(tool).arg("--version").output().is_ok());
        if !found {
            eprintln!("skipped: ldb and sst_dump (package rocksdb-tools) are not installed");
        }
        found
    })
}

fn run(tool: &str, args: &[&str]) -> Result<String> {
    let failed = |text: String| {
        Error::new(
            ErrorKind::Aborted,
            format!("{tool} {}: {text}", args.join(" ")),
        )
    };
    let out = Command::new(tool)
        .args(args)
        .output()
        .map_err(|e| failed(e.to_string()))?;
    let stdout = String::from_utf8_lossy(&out.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&out.stderr);
    if out.status.success() && !stderr.contains("Failed:") {
        return Ok(stdout);
    }
    Err(failed(format!("{}: {stdout}{stderr}", out.status)))
}

/// Runs `ldb` on the database and returns its output. Errors: it fails; the error has its output.
pub fn ldb(dir: &Path, args: &[&str]) -> Result<String> {
    let db = format!("--db={}", dir.display());
    let all: Vec<&str> = std::iter::once(db.as_str())
        .chain(args.iter().copied())
        .collect();
    run("ldb", &all)
}

/// The output of `ldb scan` for a family.
pub fn scan(dir: &Path, family: &str) -> Result<Pairs> {
    let family = format!("--column_family={family}");
    let text = ldb(dir, &["--hex", "--try_load_options", &family, "scan"])?;
    text.lines()
        .map(|line| {
            let (key, value) = line
                .split_once(" : ")
                .ok_or_else(|| Error::aborted(format!("ldb scan printed {line:?}")))?;
            Ok((unhex(key)?, unhex(value)?))
        })
        .collect()
}

/// The output of `ldb scan` for these families.
pub fn scan_all(dir: &Path, families: &[&str]) -> Result<Vec<FamilyContent>> {
    families
        .iter()
        .map(|name| Ok(((*name).to_owned(), scan(dir, name)?)))
        .collect()
}

/// Runs `ldb checkconsistency`.
pub fn check_consistency(dir: &Path) -> Result<()> {
    let text = ldb(dir, &["checkconsistency"])?;
    if text.trim() == "OK" {
        Ok(())
    } else {
        Err(Error::aborted(format!("ldb checkconsistency: {text}")))
    }
}

/// Runs `sst_dump --command=verify`, which checks every block of a table.
pub fn verify_table(file: &Path) -> Result<()> {
    let name = format!("--file={}", file.display());
    let text = run("sst_dump", &[&name, "--command=verify"])?;
    if text.contains("is not a valid") || text.contains("Corruption") {
        return Err(Error::aborted(format!("sst_dump: {text}")).file(file));
    }
    if text.contains("The file is ok") {
        Ok(())
    } else {
        Err(Error::aborted(format!("sst_dump: {text}")).file(file))
    }
}

fn unhex(text: &str) -> Result<Vec<u8>> {
    let bad = || Error::aborted(format!("ldb printed {text:?} where hex was expected"));
    let digits = text.strip_prefix("0x").ok_or_else(bad)?;
    if digits.len() % 2 != 0 || !digits.is_ascii() {
        return Err(bad());
    }
    (0..digits.len())
        .step_by(2)
        .map(|i| u8::from_str_radix(&digits[i..i + 2], 16).map_err(|_| bad()))
        .collect()
}
