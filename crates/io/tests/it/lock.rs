//! One opener per database, in one process and across processes.

use std::path::Path;
use std::process::{Command, Stdio};

use base::ErrorKind;
use io::posix::Posix;
use io::{FileLock, FileSystem};

/// The environment variable with the lock file for the child process below.
const CHILD: &str = "IRONSTONE_TEST_LOCK_CHILD";

fn take(path: &Path) -> base::Result<Box<dyn FileLock>> {
    Posix.lock(path)
}

#[test]
fn the_second_opener_in_this_process_is_refused_and_harms_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let first = take(&path).unwrap();
    let e = take(&path).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Busy);
    let text = e.to_string();
    assert!(text.contains("this process"), "{text}");
    assert!(text.contains("LOCK"), "{text}");
    // The same file under another name is the same lock.
    let alias = dir.path().join("ALIAS");
    std::fs::hard_link(&path, &alias).unwrap();
    assert_eq!(take(&alias).unwrap_err().kind(), ErrorKind::Busy);
    // The refused attempts did not drop the lock for other processes.
    let child = hold_in_child(&path);
    assert!(child.is_err(), "the lock was lost");
    drop(first);
    drop(take(&alias).unwrap());
    drop(take(&path).unwrap());
}

#[test]
fn another_process_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("LOCK");
    let mut child = hold_in_child(&path).unwrap();
    let e = take(&path).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::Busy);
    let text = e.to_string();
    assert!(text.contains(&format!("pid {} (", child.id())), "{text}");
    // Trying twice does not get through either.
    assert!(take(&path).is_err());
    drop(child.stdin.take());
    child.wait().unwrap();
    drop(take(&path).unwrap());
}

#[test]
fn a_missing_directory_is_an_error_with_the_name() {
    let dir = tempfile::tempdir().unwrap();
    let e = take(&dir.path().join("nothing/LOCK")).unwrap_err();
    assert!(e.is_not_found(), "{e}");
}

/// Starts this test binary again as a process that takes the lock and holds it until its standard
/// input ends. An error if it could not take the lock.
#[expect(
    clippy::zombie_processes,
    reason = "the caller of a successful start waits for the child"
)]
fn hold_in_child(path: &Path) -> Result<std::process::Child, String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lock::child_that_holds_a_lock", "--nocapture"])
        .env(CHILD, path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut out = std::io::BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    loop {
        line.clear();
        let n = std::io::BufRead::read_line(&mut out, &mut line).unwrap();
        if line.contains("HELD") {
            return Ok(child);
        }
        if n == 0 || line.contains("REFUSED") {
            drop(child.stdin.take());
            child.wait().unwrap();
            return Err(line);
        }
    }
}

#[test]
fn child_that_holds_a_lock() {
    let Some(path) = std::env::var_os(CHILD) else {
        return;
    };
    match take(Path::new(&path)) {
        Ok(_lock) => {
            println!("HELD");
            let mut rest = String::new();
            std::io::Read::read_to_string(&mut std::io::stdin(), &mut rest).unwrap();
        }
        Err(e) => println!("REFUSED {e}"),
    }
}
