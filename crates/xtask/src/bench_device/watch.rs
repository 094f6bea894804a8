//! One run at a time, and a process that clears up after a run that was killed.
//!
//! A program can catch Ctrl-C but not every death. So a run starts a watcher in a process group of
//! its own, which the terminal's Ctrl-C does not reach, and holds the only writing end of a pipe
//! to it. A word through the pipe means that all is well; the end of the pipe without it means
//! that the run is gone, however it went, and the watcher sweeps.

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use io::FileLock;

use super::{Stop, disk};

/// What the run says when it has swept itself.
const SWEPT: &str = "swept";

/// Takes the folder for this process. Errors: another run has it.
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

    /// Tells the watcher that there is nothing left to do, and waits for its end.
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

/// What the watcher does: waits for the run's end, and sweeps if the run did not.
pub(crate) fn wait(dir: &Path) -> Result<(), Stop> {
    let mut said = String::new();
    // A pipe that cannot be read is as good as closed.
    std::io::stdin().read_to_string(&mut said).ok();
    if said == SWEPT {
        return Ok(());
    }
    // The run's lock goes with it, a moment later. If another run has it by then, that one sweeps.
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
