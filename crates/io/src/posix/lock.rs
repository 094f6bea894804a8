//! One opener per database: RocksDB's `LOCK`.
//!
//! The lock on disk is RocksDB's (`fcntl(F_SETLK, F_WRLCK)` over the whole file), so that the two
//! engines keep each other out. Such a lock belongs to the *process*, with two consequences:
//!
//! 1. A second `F_SETLK` in the same process succeeds. So a process-wide table of (device, inode)
//!    refuses the second opener instead.
//! 2. Closing *any* descriptor of the file drops the lock, whichever descriptor took it. So the
//!    table is checked with `stat` before the file is opened, all under one mutex. If a locked file
//!    is opened nevertheless (renamed between the two calls), its descriptor is left open rather than
//!    closed.
//!
//! For the same reason nothing else in the process may open a database's `LOCK`.

use std::collections::BTreeSet;
use std::fs;
use std::os::fd::{AsFd, IntoRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use base::{Error, Result};
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;
use rustix::process::{Flock, FlockOffsetType, FlockType, Pid};

use super::os_error;
use super::place::{Identity, Place, identity};
use crate::FileLock;

/// The locks that this process holds.
static HELD: Mutex<BTreeSet<Identity>> = Mutex::new(BTreeSet::new());

fn held() -> MutexGuard<'static, BTreeSet<Identity>> {
    // The set is consistent at every point where a panic could happen.
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A held lock; dropping it releases it.
#[derive(Debug)]
pub(super) struct PosixLock {
    identity: Identity,
    path: PathBuf,
    fd: Option<OwnedFd>,
}

impl FileLock for PosixLock {}

impl PosixLock {
    pub(super) fn take(place: Place<'_>) -> Result<Self> {
        let path = place.path();
        let mut held = held();
        if let Ok(s) = place.stat()
            && held.contains(&identity(&s))
        {
            return Err(held_here(path));
        }
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let fd = place
            .descriptor(flags)
            .map_err(|e| os_error("open lock file", path, e))?;
        let opened = rustix::fs::fstat(&fd).map_err(|e| os_error("stat lock file", path, e))?;
        let opened = identity(&opened);
        if held.contains(&opened) {
            // Closing the descriptor would drop the lock that another part of this process holds.
            let _kept_open = fd.into_raw_fd();
            return Err(held_here(path));
        }
        lock_whole_file(&fd, path)?;
        // If the file was removed between open and lock, the next opener would create and lock
        // another one.
        if place.stat().ok().map(|s| identity(&s)) != Some(opened) {
            return Err(
                Error::busy("the lock file was replaced while it was being locked")
                    .file(path)
                    .hint("another program is creating or destroying this database; try again"),
            );
        }
        held.insert(opened);
        Ok(Self {
            identity: opened,
            path: path.to_path_buf(),
            fd: Some(fd),
        })
    }
}

impl Drop for PosixLock {
    fn drop(&mut self) {
        let mut held = held();
        // Closing releases the lock; only then may this process take it again.
        drop(self.fd.take());
        let was_held = held.remove(&self.identity);
        debug_assert!(
            was_held,
            "lock of {} was not in the table",
            self.path.display()
        );
    }
}

fn lock_whole_file(fd: &OwnedFd, path: &Path) -> Result<()> {
    match rustix::fs::fcntl_lock(fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(()),
        Err(Errno::AGAIN | Errno::ACCESS) => Err(held_elsewhere(fd, path)),
        Err(e) => Err(os_error("lock", path, e)
            .hint("the file system must support POSIX record locks (fcntl)")),
    }
}

fn held_here(path: &Path) -> Error {
    Error::busy(format!(
        "locked by this process (pid {}): the database is open already",
        std::process::id()
    ))
    .file(path)
    .hint("share the open handle, or close it before opening the database again")
}

/// The error that names the process that holds the lock, if the kernel reports it.
fn held_elsewhere(fd: &OwnedFd, path: &Path) -> Error {
    let question = Flock {
        start: 0,
        length: 0,
        pid: None,
        typ: FlockType::WriteLock,
        offset_type: FlockOffsetType::Set,
    };
    let holder = rustix::process::fcntl_getlk(fd.as_fd(), &question)
        .ok()
        .flatten()
        .and_then(|lock| lock.pid);
    let Some(pid) = holder else {
        return Error::busy("locked by another process")
            .file(path)
            .hint("one process at a time may have a database open; try again when it is closed");
    };
    let who = match process_name(pid) {
        Some(name) => format!("pid {} ({name})", pid.as_raw_nonzero()),
        None => format!("pid {}", pid.as_raw_nonzero()),
    };
    Error::busy(format!("locked by {who}"))
        .file(path)
        .hint("close the database there or stop that process, or open it read-only here")
}

fn process_name(pid: Pid) -> Option<String> {
    let comm = fs::read_to_string(format!("/proc/{}/comm", pid.as_raw_nonzero())).ok()?;
    let name = comm.trim_end();
    (!name.is_empty()).then(|| name.to_owned())
}
