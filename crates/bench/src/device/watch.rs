//! Allows one run at a time, and cleans up after a run that was killed.
//!
//! A program can catch Ctrl-C, but not every death. So a run starts a watcher in a separate process
//! group, which the terminal's Ctrl-C does not reach, and holds the only writing end of a pipe to
//! it. A word through the pipe means that the run has swept; the end of the pipe without it means
//! that the run has died for any reason, and the watcher sweeps.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use io::FileLock;

use super::{Stop, disk};

/// The message of a run that has swept itself.
const SWEPT: &str = "swept";

/// Locks the folder for this process. Errors: another run has the lock.
pub(crate) fn lock(dir: &Path) -> Result<Box<dyn FileLock>, Stop> {
    let path = dir.join("lock");
    match io::posix::Posix::shared().lock(&path) {
        Ok(lock) => Ok(lock),
        Err(e) if e.kind() == base::ErrorKind::Busy => Err(Stop::Needs(vec![format!(
            "to be alone: another run is under way ({e})"
        )])),
        Err(e) => Err(Stop::Failed(e.to_string())),
    }
}

/// The run's end of the pipe.
pub(crate) struct Watcher(Child);

impl Watcher {
    /// Starts this program with `arguments`, whose command calls [`wait`].
    pub(crate) fn start(arguments: &[&str]) -> Result<Self, String> {
        let program = std::env::current_exe().map_err(|e| e.to_string())?;
        Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .process_group(0)
            .spawn()
            .map(Self)
            .map_err(|e| format!("the watching process: {e}"))
    }

    /// Tells the watcher that there is nothing to sweep, and waits for its end.
    pub(crate) fn dismiss(mut self) -> Result<(), String> {
        if let Some(mut pipe) = self.0.stdin.take() {
            pipe.write_all(SWEPT.as_bytes())
                .map_err(|e| format!("the watching process: {e}"))?;
        }
        let status = self.0.wait().map_err(|e| e.to_string())?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("the watching process: {status}"))
        }
    }
}

/// The watcher: waits for the end of the run, and sweeps if the run did not.
pub(crate) fn wait(dir: &Path) -> Result<(), Stop> {
    let mut said = String::new();
    // A pipe that cannot be read counts as closed.
    std::io::stdin().read_to_string(&mut said).ok();
    if said == SWEPT {
        return Ok(());
    }
    // The run's lock is released a moment after its death. If another run has the lock by then,
    // that one sweeps.
    for _ in 0..50 {
        let Ok(_lock) = lock(dir) else {
            std::thread::sleep(Duration::from_millis(100));
            continue;
        };
        for left in disk::sweep(dir)? {
            eprintln!("the run was ended; removed {left}");
        }
        return Ok(());
    }
    Ok(())
}
