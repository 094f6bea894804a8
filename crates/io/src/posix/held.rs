//! Directories that are held by their descriptors, whatever becomes of their names.
//!
//! While a descriptor is open, the inode behind it is not given to another directory. So a path leads
//! to the directory that is held if, and only if, both have the same device and inode now.

use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use rustix::io::Errno;

use super::lock::PosixLock;
use super::place::{self, Identity, Place, identity};
use super::{Posix, os_error};
use crate::{File, FileLock, FileSystem, Metadata, OpenHow, Probe};

/// The file system of this machine, with directories that are held.
#[derive(Clone, Debug, Default)]
pub(super) struct HeldDirs {
    dirs: Vec<Arc<HeldDir>>,
}

/// A directory that is held.
#[derive(Debug)]
struct HeldDir {
    /// As paths of the files in it begin.
    path: PathBuf,
    /// From the root, without following links: the process may go to another directory.
    name: PathBuf,
    fd: OwnedFd,
    /// Which it is.
    identity: Identity,
}

impl HeldDirs {
    /// The same with one more.
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

    /// Where the path leads: from the innermost directory that is held.
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

    /// Errors: the path does not lead here.
    fn check(&self) -> Result<()> {
        let there = Place::named(&self.name).stat();
        if there.is_ok_and(|there| identity(&there) == self.identity) {
            return Ok(());
        }
        // Some file systems give a directory that is changed for the first time another number.
        let (here, links) = identity_of(&self.fd, &self.path)?;
        match there {
            Ok(there) if identity(&there) == here => Ok(()),
            Ok(_) => Err(self.error("another directory has taken the place of the database's")),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::STALE) => {
                Err(self.error("the database's directory was removed, renamed or unmounted"))
            }
            // A process that has given up its rights does not see its own directories any more.
            Err(Errno::ACCESS) if links > 0 => Ok(()),
            Err(e) => Err(os_error("stat", &self.path, e)),
        }
    }
}

/// Which directory it is, and how many names it has.
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

    /// By the descriptor that is held since the opening, which is told of every error since then.
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
        Posix.probe(dir)
    }

    fn hold(&self, dir: &Path) -> Result<Option<Arc<dyn FileSystem>>> {
        self.with(dir).map(Some)
    }

    fn check_held(&self) -> Result<()> {
        self.dirs.iter().try_for_each(|dir| dir.check())
    }
}
