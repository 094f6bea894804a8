//! Runs `ironstone` and RocksDB's tools side by side.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

/// The output and the exit status of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    pub(crate) fn new(output: Output) -> Self {
        // A value may be any bytes: each becomes the character of its number.
        let text = |bytes: Vec<u8>| bytes.into_iter().map(char::from).collect();
        Self {
            // A program that a signal ended (ldb aborts on bad hex) has no code.
            code: output.status.code().unwrap_or(1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// The parts that scripts use.
    pub(crate) fn visible(&self) -> (i32, &str) {
        (self.code, &self.stdout)
    }
}

/// Fails with the first line that differs.
pub(crate) fn assert_same(ours: (i32, &str), theirs: (i32, &str), what: &str) {
    assert_eq!(ours.0, theirs.0, "exit codes; {what}");
    let (mut a, mut b) = (ours.1.split('\n'), theirs.1.split('\n'));
    let mut line = 0;
    loop {
        line += 1;
        let (ours, theirs) = (a.next(), b.next());
        assert_eq!(ours, theirs, "line {line}; {what}");
        if ours.is_none() {
            return;
        }
    }
}

/// Runs `ironstone` in a directory.
pub(crate) fn ironstone(cwd: &Path, args: &[&str]) -> Ran {
    run(env!("CARGO_BIN_EXE_ironstone"), cwd, args)
}

/// Runs one of RocksDB's tools in a directory.
pub(crate) fn run(program: &str, cwd: &Path, args: &[&str]) -> Ran {
    let output = Command::new(program).args(args).current_dir(cwd).output();
    Ran::new(output.unwrap_or_else(|e| panic!("{program}: {e}")))
}

/// True if RocksDB's tools are available; prints a message if not.
pub(crate) fn has_tools() -> bool {
    let found = ["ldb", "sst_dump", "db_bench"]
        .iter()
        .all(|tool| Command::new(tool).arg("--help").output().is_ok());
    if !found {
        eprintln!("skipped: ldb, sst_dump or db_bench is not installed (Debian: rocksdb-tools)");
    }
    found
}

/// The corpus of databases that RocksDB wrote; prints a message if it is missing.
pub(crate) fn corpus() -> Option<Vec<PathBuf>> {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/corpus");
    let Ok(entries) = fs::read_dir(dir) else {
        eprintln!("skipped: there is no {dir}");
        return None;
    };
    let mut all: Vec<PathBuf> = entries
        .map(|e| e.unwrap().path())
        .filter(|p| p.is_dir())
        .collect();
    all.sort();
    Some(all)
}

/// A directory with a writable copy of a database in `db`.
pub(crate) fn copy(database: &Path) -> TempDir {
    let root = tempfile::tempdir().unwrap();
    let to = root.path().join("db");
    fs::create_dir(&to).unwrap();
    for entry in fs::read_dir(database).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            continue; // log files made ahead
        }
        // Reading and writing anew drops the read-only mode that a copy would keep.
        let bytes = fs::read(entry.path()).unwrap();
        fs::write(to.join(entry.file_name()), bytes).unwrap();
    }
    root
}

/// The names of a database's files with this ending, sorted.
pub(crate) fn files(database: &Path, suffix: &str) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(database)
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .filter(|n| n.ends_with(suffix))
        .collect();
    names.sort();
    names
}
