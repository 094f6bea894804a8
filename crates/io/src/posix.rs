//! The real file system, through plain system calls.
//!
//! - Every descriptor is close-on-exec; new files are 0600 and new directories 0700, because a
//!   database holds what its user would not show to others.
//! - Files opened for writing are never reached through a symbolic link in their last component:
//!   a planted link must not turn a WAL write into a write elsewhere. Reads follow links, so that
//!   tables may be moved to another disk by hand.
//! - An interrupted call is repeated; nothing else is. A failed sync in particular is not: Linux
//!   drops the dirty state of the pages that it could not write.

mod file;
mod lock;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;

use base::{Error, Result};
use rustix::fs::{Mode, OFlags};
use rustix::io::{Errno, retry_on_intr};

use crate::{Create, File, FileLock, FileSystem, Metadata, OpenHow, Probe};

pub(crate) use file::{atomic_write_unit, direct_align};

/// Mode of new files: only the owner reads and writes.
const FILE_MODE: Mode = Mode::from_raw_mode(0o600);
/// Mode of new directories.
const DIR_MODE: u32 = 0o700;

/// The file system of this machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct Posix;

impl Posix {
    /// The file system, as the engine's `Env` wants it.
    pub fn shared() -> Arc<dyn FileSystem> {
        Arc::new(Self)
    }
}

/// An [`Error`] for the failed call `what` on `path`.
fn os_error(what: &str, path: &Path, errno: Errno) -> Error {
    Error::io(what, path, errno.into())
}

/// The flags of `open(2)` for `how`.
fn flags_of(how: OpenHow) -> OFlags {
    let mut flags = OFlags::CLOEXEC;
    flags |= if how.write {
        OFlags::RDWR | OFlags::NOFOLLOW
    } else {
        OFlags::RDONLY
    };
    flags |= match how.create {
        Create::Never => OFlags::empty(),
        Create::IfMissing => OFlags::CREATE,
        Create::New => OFlags::CREATE | OFlags::EXCL,
        Create::Truncate => OFlags::CREATE | OFlags::TRUNC,
    };
    if how.direct {
        flags |= OFlags::DIRECT;
    }
    flags
}

impl FileSystem for Posix {
    fn open(&self, path: &Path, how: OpenHow) -> Result<Arc<dyn File>> {
        if !how.write && how.create != Create::Never {
            return Err(Error::invalid_argument(
                "a file opened only for reading cannot be created",
            )
            .file(path));
        }
        let fd = retry_on_intr(|| rustix::fs::open(path, flags_of(how), FILE_MODE)).map_err(
            |errno| match errno {
                Errno::INVAL if how.direct => no_direct_io(path),
                Errno::LOOP if how.write => os_error("open", path, errno)
                    .hint("files are not written through a symbolic link; name the file itself"),
                Errno::MFILE | Errno::NFILE => os_error("open", path, errno)
                    .hint("raise the limit of open files (ulimit -n): every table is held open"),
                _ => os_error("open", path, errno),
            },
        )?;
        Ok(Arc::new(file::PosixFile::new(fd, path, how)))
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        let m = fs::metadata(path).map_err(|e| Error::io("stat", path, e))?;
        let modified_micros = m
            .modified()
            .ok()
            .and_then(|t| t.duration_since(UNIX_EPOCH).ok())
            .map_or(0, |d| d.as_micros() as u64);
        Ok(Metadata {
            len: m.len(),
            is_dir: m.is_dir(),
            modified_micros,
        })
    }

    fn same_file(&self, a: &Path, b: &Path) -> Result<bool> {
        let identity = |path: &Path| match fs::metadata(path) {
            Ok(m) => Ok(Some((m.dev(), m.ino()))),
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(Error::io("stat", path, e)),
        };
        let first = identity(a)?;
        Ok(first.is_some() && first == identity(b)?)
    }

    fn list(&self, dir: &Path) -> Result<Vec<OsString>> {
        let entries = fs::read_dir(dir).map_err(|e| Error::io("list directory", dir, e))?;
        entries
            .map(|entry| {
                entry
                    .map(|e| e.file_name())
                    .map_err(|e| Error::io("list directory", dir, e))
            })
            .collect()
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(DIR_MODE)
            .create(dir)
            .map_err(|e| Error::io("create directory", dir, e))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        fs::rename(from, to).map_err(|e| Error::io(&format!("rename to {}", to.display()), from, e))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        fs::remove_file(path).map_err(|e| Error::io("remove", path, e))
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        fs::remove_dir(dir).map_err(|e| Error::io("remove directory", dir, e))
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        fs::hard_link(from, to)
            .map_err(|e| Error::io(&format!("link to {}", to.display()), from, e))
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        // The parent of a relative name is the empty path; the call wants a name.
        let dir = if dir.as_os_str().is_empty() {
            Path::new(".")
        } else {
            dir
        };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = retry_on_intr(|| rustix::fs::open(dir, flags, Mode::empty()))
            .map_err(|e| os_error("open directory", dir, e))?;
        retry_on_intr(|| rustix::fs::fsync(&fd)).map_err(|e| os_error("sync directory", dir, e))
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        Ok(Box::new(lock::PosixLock::take(path)?))
    }

    fn probe(&self, dir: &Path) -> Result<Probe> {
        crate::probe::probe(dir)
    }
}

/// The file system under `path` has no `O_DIRECT`.
fn no_direct_io(path: &Path) -> Error {
    Error::not_supported("direct I/O (O_DIRECT) on this file system")
        .file(path)
        .hint("use buffered I/O here, or put the database on ext4 or xfs")
}

/// How many descriptors the process may have open; `None` is without limit.
///
/// ```
/// assert!(io::posix::descriptor_limit().is_none_or(|n| n > 2));
/// ```
pub fn descriptor_limit() -> Option<usize> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    limit.map(|n| usize::try_from(n).unwrap_or(usize::MAX))
}
