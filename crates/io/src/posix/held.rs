//! Directories that are held by their descriptors, whatever happens to their names.
//!
//! While a descriptor is open, its inode number is not reused. So a path leads to the held directory
//! if and only if both have the same device and inode now.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use rustix::io::Errno;

use super::lock::PosixLock;
use super::place::{self, Identity, Place, identity};
use super::{os_error, probe};
use crate::{File, FileLock, FileSystem, Metadata, OpenHow, Probe};

/// The file system of this machine, with held directories.
#[derive(Clone, Debug)]
pub(super) struct HeldDirs {
    dirs: Vec<Arc<HeldDir>>,
}

/// A held directory.
#[derive(Debug)]
struct HeldDir {
    /// The prefix with which callers address the files in it.
    path: PathBuf,
    /// The absolute path, with links unresolved: the working directory of the process may change.
    name: PathBuf,
    fd: OwnedFd,
    /// Its device and inode when it was opened.
    identity: Identity,
}

impl HeldDirs {
    /// The file system without held directories.
    pub(super) const fn none() -> Self {
        Self { dirs: Vec::new() }
    }

    /// The same file system with one more held directory.
    pub(super) fn with(&self, dir: &Path) -> Result<Arc<dyn FileSystem>> {
        let here = dir.as_os_str().is_empty();
        let name = if here { Path::new(".") } else { dir };
        let fd = Place::named(name).directory()?;
        let held = HeldDir {
            path: dir.to_path_buf(),
            name: std::path::absolute(name).map_err(|e| Error::io("find", dir, e))?,
            identity: identity_of(&fd, dir)?.0,
            fd,
        };
        let mut new = self.clone();
        new.dirs.push(Arc::new(held));
        Ok(Arc::new(new))
    }

    /// Resolves a path: relative to the innermost held directory that contains it, if there is one.
    fn place<'a>(&'a self, path: &'a Path) -> Place<'a> {
        let inside = self.dirs.iter().filter_map(|dir| {
            let name = path.strip_prefix(&dir.path).ok()?;
            Some((name, dir))
        });
        match inside.min_by_key(|(name, _)| name.as_os_str().len()) {
            Some((name, dir)) => Place::within(&dir.fd, name, path),
            None => Place::named(path),
        }
    }
}

impl HeldDir {
    fn error(&self, message: &str) -> Error {
        Error::new(ErrorKind::IoError, message)
            .file(&self.path)
            .hint(
                "what is written now would not be found here. Bring the directory back and call \
                 resume, or close the database",
            )
    }

    /// Errors: the path no longer leads to this directory.
    fn check(&self) -> Result<()> {
        let there = Place::named(&self.name).stat();
        if there.is_ok_and(|there| identity(&there) == self.identity) {
            return Ok(());
        }
        // On some file systems a directory gets another inode number with its first change.
        let (here, links) = identity_of(&self.fd, &self.path)?;
        match there {
            Ok(there) if identity(&there) == here => Ok(()),
            Ok(_) => Err(self.error("another directory has taken the place of the database's")),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE) => {
                Err(self.error("the database's directory was removed, renamed or unmounted"))
            }
            // A process that has dropped its privileges may no longer be allowed to see its directories.
            Err(Errno::ACCESS) if links > 0 => Ok(()),
            Err(e) => Err(os_error("stat", &self.path, e)),
        }
    }
}

/// The device and inode of a directory, and its link count.
fn identity_of(dir: &OwnedFd, path: &Path) -> Result<(Identity, u64)> {
    let s = rustix::fs::fstat(dir).map_err(|e| os_error("stat", path, e))?;
    Ok((identity(&s), s.st_nlink as u64))
}

impl FileSystem for HeldDirs {
    fn open(&self, path: &Path, how: OpenHow) -> Result<Arc<dyn File>> {
        self.place(path).open(how)
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.place(path).metadata()
    }

    fn same_file(&self, a: &Path, b: &Path) -> Result<bool> {
        self.place(a).is_same(self.place(b))
    }

    fn list(&self, dir: &Path) -> Result<Vec<OsString>> {
        self.place(dir).list()
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        self.place(dir).create_dir()
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.place(from).rename(self.place(to))
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.place(path).remove()
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.place(dir).remove_dir()
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.place(from).hard_link(self.place(to))
    }

    /// Syncs through the descriptor that has been open since the start, so that every error since then is
    /// reported to it.
    fn sync_dir(&self, dir: &Path) -> Result<()> {
        match self.dirs.iter().find(|held| held.path == dir) {
            Some(held) => place::sync(&held.fd).map_err(|e| os_error("sync directory", dir, e)),
            None => self.place(dir).sync_dir(),
        }
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        Ok(Box::new(PosixLock::take(self.place(path))?))
    }

    fn probe(&self, dir: &Path) -> Result<Probe> {
        probe::probe(dir)
    }

    fn hold(&self, dir: &Path) -> Result<Option<Arc<dyn FileSystem>>> {
        self.with(dir).map(Some)
    }

    fn check_held(&self) -> Result<()> {
        self.dirs.iter().try_for_each(|dir| dir.check())
    }
}
