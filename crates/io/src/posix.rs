//! The real file system, through plain system calls.
//!
//! - Every descriptor is close-on-exec; new files have mode 0600 and new directories 0700, because a
//!   database holds private data.
//! - Opening a file for writing does not follow a symbolic link in the last path component: a planted
//!   link must not turn a WAL write into a write elsewhere. Opening for reading follows links, so that
//!   tables may be moved to another disk by hand.
//! - A path is resolved relative to a directory's descriptor: the working directory, or a directory that
//!   is held for a database.
//! - Only a call that was interrupted (`EINTR`) is repeated. In particular, a failed sync is not: Linux
//!   marks the pages that it could not write as clean.

mod file;
mod held;
mod kinds;
mod lock;
mod place;
pub mod probe;

use std::path::Path;
use std::sync::Arc;

use base::{Error, Result};
use rustix::fs::Mode;
use rustix::io::Errno;

use crate::{FileSystem, FileSystemWrapper};
use held::HeldDirs;

pub(crate) use file::{atomic_write_unit, direct_align};

/// Mode of new files: only the owner may read and write.
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
/// Mode of new directories.
const DIR_MODE: Mode = Mode::from_raw_mode(0o700);

/// The file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Posix;

impl Posix {
    /// The file system in the form that the engine's `Env` takes.
    pub fn shared() -> Arc<dyn FileSystem> {
        Arc::new(Self)
    }
}

/// An [`Error`] for the failed call `what` on `path`.
fn os_error(what: &str, path: &Path, errno: Errno) -> Error {
    Error::io(what, path, errno.into())
}

/// The file system that holds no directory.
static NONE_HELD: HeldDirs = HeldDirs::none();

impl FileSystemWrapper for Posix {
    fn inner(&self) -> &dyn FileSystem {
        &NONE_HELD
    }

    fn hold(&self, dir: &Path) -> Result<Option<Arc<dyn FileSystem>>> {
        NONE_HELD.hold(dir)
    }
}

/// The error for a file system that does not support `O_DIRECT`.
fn no_direct_io(path: &Path) -> Error {
    Error::not_supported("direct I/O (O_DIRECT) on this file system")
        .file(path)
        .hint("use buffered I/O here, or put the database on ext4 or xfs")
}

/// Raises the process's soft limit of open descriptors to its hard limit: the soft limit is 1,024 by default, for
/// programs that use `select`. If the system refuses, the limit stays as it is.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, raised).unwrap_or_default();
}

/// How many descriptors the process may have open; `None` if there is no limit.
///
/// ```
/// assert!(io::posix::descriptor_limit().is_none_or(|n| n > 2));
/// ```
pub fn descriptor_limit() -> Option<usize> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map(|n| usize::try_from(n).unwrap_or(usize::MAX))
}
