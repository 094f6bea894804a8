//! Other projects' tools, if they are installed.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use base::clock::SystemClock;

/// Finds the tool; if it is missing, prints what is skipped and where to get it.
pub(crate) fn find(tool: &str, package: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path)
        .map(|dir| dir.join(tool))
        .find(|file| file.is_file());
    if found.is_none() {
        println!("SKIPPED: no {tool}: install the Debian package {package}");
    }
    found
}

/// Runs a tool for at most two minutes; returns its output. Panics if it fails.
pub(crate) fn run(tool: &Path, args: &[&str]) -> String {
    let (ok, text) = try_run(tool, args);
    assert!(ok, "{} {args:?}:\n{text}", tool.display());
    text
}

/// Runs a tool for at most two minutes; returns whether it succeeded, and its output.
pub(crate) fn try_run(tool: &Path, args: &[&str]) -> (bool, String) {
    let out = Command::new("timeout")
        .args(["-k", "5", "120"])
        .arg(tool)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let mut text = String::from_utf8_lossy(&out.stdout).into_owned();
    if !out.status.success() || text.is_empty() {
        text.push_str(&String::from_utf8_lossy(&out.stderr));
    }
    (out.status.success(), text)
}

/// `qemu-nbd` on a Unix socket; ended when dropped.
pub(crate) struct QemuNbd {
    child: Child,
    pub(crate) uri: String,
}

impl QemuNbd {
    pub(crate) fn start(tool: &Path, socket: &Path, args: &[&str]) -> Self {
        let child = Command::new(tool)
            .args(["--persistent", "--shared=8", "-k"])
            .arg(socket)
            .args(args)
            .stdin(Stdio::null())
            .stderr(Stdio::null()) // it complains of clients that disconnect without a message
            .spawn()
            .unwrap();
        let clock = SystemClock::shared();
        for _ in 0..1000 {
            if std::os::unix::net::UnixStream::connect(socket).is_ok() {
                break;
            }
            clock.sleep(Duration::from_millis(10));
        }
        Self {
            child,
            uri: format!("nbd+unix:///?socket={}", socket.display()),
        }
    }

    /// Its process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for QemuNbd {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}
