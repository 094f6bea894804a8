//! A path relative to a directory's descriptor, and the operations on it.

use std::ffi::{OsStr, OsString};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use base::{Error, Result};
use rustix::fs::{AtFlags, CWD, Dir, FileType, OFlags, Stat};
use rustix::io::{Errno, retry_on_intr};

use super::file::PosixFile;
use super::{DIR_MODE, FILE_MODE, no_direct_io, os_error};
use crate::{Create, File, Metadata, OpenHow};

/// Device and inode: the identity of a file, whatever its name.
pub(super) type Identity = (u64, u64);

/// The identity in the result of `stat`.
pub(super) fn identity(s: &Stat) -> Identity {
    (s.st_dev, s.st_ino)
}

/// A name, and the directory in which it is resolved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    base: BorrowedFd<'a>,
    name: &'a Path,
    /// The whole path, for messages.
    path: &'a Path,
}

impl<'a> Place<'a> {
    /// A path that is resolved from the working directory.
    pub(super) fn named(path: &'a Path) -> Self {
        Self {
            base: CWD,
            name: path,
            path,
        }
    }

    /// `name` in the directory `base`; the directory itself if the name is empty.
    pub(super) fn within(base: &'a OwnedFd, name: &'a Path, path: &'a Path) -> Self {
        use std::os::fd::AsFd;
        let empty = name.as_os_str().is_empty();
        Self {
            base: base.as_fd(),
            name: if empty { Path::new(".") } else { name },
            path,
        }
    }

    pub(super) fn path(self) -> &'a Path {
        self.path
    }

    fn error(self, what: &str, errno: Errno) -> Error {
        os_error(what, self.path, errno)
    }

    /// `open(2)`; the mode matters only for new files.
    pub(super) fn descriptor(self, flags: OFlags) -> Result<OwnedFd, Errno> {
        retry_on_intr(|| rustix::fs::openat(self.base, self.name, flags, FILE_MODE))
    }

    /// `stat(2)`.
    pub(super) fn stat(self) -> Result<Stat, Errno> {
        rustix::fs::statat(self.base, self.name, AtFlags::empty())
    }

    /// Opens the directory, to resolve names in it.
    pub(super) fn directory(self) -> Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        self.descriptor(flags)
            .map_err(|e| self.error("open directory", e))
    }

    pub(super) fn open(self, how: OpenHow) -> Result<Arc<dyn File>> {
        if !how.write && how.create != Create::Never {
            return Err(Error::invalid_argument(
                "a file opened only for reading cannot be created",
            )
            .file(self.path));
        }
        let fd = self
            .descriptor(flags_of(how))
            .map_err(|errno| match errno {
                Errno::INVAL if how.direct => no_direct_io(self.path),
                Errno::LOOP if how.write => self
                    .error("open", errno)
                    .hint("files are not written through a symbolic link; name the file itself"),
                Errno::MFILE | Errno::NFILE => self
                    .error("open", errno)
                    .hint("raise the limit of open files (ulimit -n): every table is held open"),
                _ => self.error("open", errno),
            })?;
        Ok(Arc::new(PosixFile::new(fd, self.path, how)))
    }

    pub(super) fn metadata(self) -> Result<Metadata> {
        let s = self.stat().map_err(|e| self.error("stat", e))?;
        // The fields are u64 with raw system calls, and i64 with the C library, which Miri uses.
        let micros = i128::from(s.st_mtime) * 1_000_000 + i128::from(s.st_mtime_nsec) / 1000;
        Ok(Metadata {
            len: u64::try_from(s.st_size).unwrap_or(0),
            is_dir: FileType::from_raw_mode(s.st_mode) == FileType::Directory,
            modified_micros: u64::try_from(micros).unwrap_or(0),
        })
    }

    fn identity(self) -> Result<Option<Identity>> {
        match self.stat() {
            Ok(s) => Ok(Some(identity(&s))),
            Err(Errno::NOENT) => Ok(None),
            Err(e) => Err(self.error("stat", e)),
        }
    }

    pub(super) fn is_same(self, other: Place<'_>) -> Result<bool> {
        let first = self.identity()?;
        Ok(first.is_some() && first == other.identity()?)
    }

    pub(super) fn list(self) -> Result<Vec<OsString>> {
        let failed = |e| self.error("list directory", e);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let entries = Dir::new(self.descriptor(flags).map_err(failed)?).map_err(failed)?;
        let mut out = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_bytes();
            if !matches!(name, b"." | b"..") {
                out.push(OsStr::from_bytes(name).to_owned());
            }
        }
        Ok(out)
    }

    pub(super) fn create_dir(self) -> Result<()> {
        match rustix::fs::mkdirat(self.base, self.name, DIR_MODE) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) if self.metadata().is_ok_and(|m| m.is_dir) => Ok(()),
            Err(e) => Err(self.error("create directory", e)),
        }
    }

    pub(super) fn rename(self, to: Place<'_>) -> Result<()> {
        rustix::fs::renameat(self.base, self.name, to.base, to.name)
            .map_err(|e| self.error(&format!("rename to {}", to.path.display()), e))
    }

    pub(super) fn remove(self) -> Result<()> {
        rustix::fs::unlinkat(self.base, self.name, AtFlags::empty())
            .map_err(|e| self.error("remove", e))
    }

    pub(super) fn remove_dir(self) -> Result<()> {
        rustix::fs::unlinkat(self.base, self.name, AtFlags::REMOVEDIR)
            .map_err(|e| self.error("remove directory", e))
    }

    pub(super) fn hard_link(self, to: Place<'_>) -> Result<()> {
        rustix::fs::linkat(self.base, self.name, to.base, to.name, AtFlags::empty())
            .map_err(|e| self.error(&format!("link to {}", to.path.display()), e))
    }

    pub(super) fn sync_dir(self) -> Result<()> {
        // The parent of a relative name is the empty path, which cannot be opened.
        let here = self.name.as_os_str().is_empty();
        let fd = if here {
            Place::named(Path::new(".")).directory()?
        } else {
            self.directory()?
        };
        sync(&fd).map_err(|e| self.error("sync directory", e))
    }
}

/// Makes the entries of an open directory durable.
pub(super) fn sync(dir: &OwnedFd) -> Result<(), Errno> {
    retry_on_intr(|| rustix::fs::fsync(dir))
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
