//! Directories: created durably, held while a database is open, and their failed syncs counted.
//!
//! While a database is open, its directory may be removed, renamed or unmounted, so that its path names
//! another directory, or none. So a database that writes holds its directories ([`hold`],
//! [`FileSystem::hold`]): it keeps working in the same directories whatever happens to their names,
//! and calls [`FileSystem::check_held`] before anything is acknowledged.
//!
//! After a failed sync of a directory, names that were new may be lost, and a later sync may succeed
//! without them: the kernel reports an error of the device once, to one caller. So all failed syncs of
//! held directories are counted, whoever called them, and [`NewNames`] counts a name as durable only if
//! no sync has failed since before it was made.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, PoisonError, ranked};
use base::{Error, ErrorKind, Result};

use crate::locks;
use crate::{FileSystem, FileSystemWrapper};

/// The parent directory of `path`; `.` instead of an empty path.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    }
}

/// Creates a directory and its missing parents, and makes their names durable. Not an error if the
/// directory exists. After an error, the directories created so far are removed again.
pub fn create_dirs(fs: &dyn FileSystem, dir: &Path) -> Result<()> {
    let mut missing = Vec::new();
    for above in dir.ancestors().filter(|d| !d.as_os_str().is_empty()) {
        if fs.exists(above)? {
            break;
        }
        missing.push(above);
    }
    if missing.is_empty() {
        return fs.create_dir(dir);
    }
    for (i, new) in missing.iter().enumerate().rev() {
        let made = fs.create_dir(new).and_then(|()| fs.sync_dir(parent(new)));
        if made.is_err() {
            // A retry must not take a name that may be lost for one that existed before.
            for made in missing.iter().skip(i) {
                drop(fs.remove_dir(made));
            }
            return made;
        }
    }
    Ok(())
}

/// The same file system that also holds `dir` and counts its failed syncs.
pub fn hold(fs: &Arc<dyn FileSystem>, dir: &Path) -> Result<Arc<dyn FileSystem>> {
    Ok(Arc::new(Held {
        inner: fs.hold(dir)?.unwrap_or_else(|| Arc::clone(fs)),
        dir: Arc::new(Dir {
            path: dir.to_path_buf(),
            syncing: ranked(locks::DIRECTORY, ()),
            failed: AtomicU64::new(0),
        }),
    }))
}

/// Names to be created in a directory, or removed from it, and the check that this is durable.
#[derive(Clone, Copy, Debug)]
pub struct NewNames {
    failed: u64,
}

impl NewNames {
    /// Call this before the first of the names is created or removed.
    pub fn begin(fs: &dyn FileSystem, dir: &Path) -> Self {
        Self {
            failed: fs.failed_syncs(dir),
        }
    }

    /// Makes the changes since [`NewNames::begin`] durable. Errors: this sync fails, or another one has
    /// failed since and may have lost them.
    pub fn sync(&self, fs: &dyn FileSystem, dir: &Path) -> Result<()> {
        fs.sync_dir(dir)?;
        self.check(fs, dir)
    }

    /// Errors: a sync of the directory has failed since [`NewNames::begin`].
    pub fn check(&self, fs: &dyn FileSystem, dir: &Path) -> Result<()> {
        if fs.failed_syncs(dir) == self.failed {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::IoError,
            "a sync of the directory has failed while names were made in it: they may be lost",
        )
        .file(dir))
    }
}

/// A file system with a held directory.
#[derive(Debug)]
struct Held {
    inner: Arc<dyn FileSystem>,
    dir: Arc<Dir>,
}

/// A directory whose failed syncs are counted.
#[derive(Debug)]
struct Dir {
    path: PathBuf,
    /// Locked during each sync: the success of a sync that runs beside a failing one proves nothing.
    syncing: Mutex<()>,
    failed: AtomicU64,
}

impl FileSystemWrapper for Held {
    fn inner(&self) -> &dyn FileSystem {
        &*self.inner
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        if dir != self.dir.path {
            return self.inner.sync_dir(dir);
        }
        let _one = self
            .dir
            .syncing
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.inner.sync_dir(dir).inspect_err(|_| {
            self.dir.failed.fetch_add(1, Ordering::AcqRel);
        })
    }

    fn hold(&self, dir: &Path) -> Result<Option<Arc<dyn FileSystem>>> {
        let held = self.inner.hold(dir)?.map(|inner| {
            let dir = Arc::clone(&self.dir);
            Arc::new(Self { inner, dir }) as _
        });
        Ok(held)
    }

    fn failed_syncs(&self, dir: &Path) -> u64 {
        if dir == self.dir.path {
            self.dir.failed.load(Ordering::Acquire)
        } else {
            self.inner.failed_syncs(dir)
        }
    }
}
