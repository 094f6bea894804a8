//! Directories: made durably, held while a database is open, and what their syncs say.
//!
//! A path may come to name another directory, or none, while a database is open: it is removed, renamed,
//! or its volume is unmounted. So a database that writes holds its directories
//! ([`hold`], [`FileSystem::hold`]): its work stays in them, whatever their names become, and
//! [`FileSystem::check_held`] tells before anything is acknowledged.
//!
//! A failed sync of a directory may lose the names that were new then, and a later one succeed without
//! them: an error of the device is told once, to one caller. So the failed syncs of held directories
//! are counted, whoever asked for them, and [`NewNames`] counts as durable only what was made since the
//! last one.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, PoisonError};
use base::{Error, ErrorKind, Result};

use crate::{File, FileLock, FileSystem, Metadata, OpenHow, Probe};

/// The directory above `path`, as the calls want it.
fn parent(path: &Path) -> &Path {
    match path.parent() {
        Some(above) if !above.as_os_str().is_empty() => above,
        _ => Path::new("."),
    }
}

/// Creates a directory and what is missing above it; the names of all that it creates are durable.
/// Not an error if the directory exists. After an error nothing of it is there.
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
            // A name that may be lost must not look like one that was there before.
            for made in missing.iter().skip(i) {
                drop(fs.remove_dir(made));
            }
            return made;
        }
    }
    Ok(())
}

/// The same file system for a database that works in `dir`, besides the directories that `fs` holds.
pub fn hold(fs: &Arc<dyn FileSystem>, dir: &Path) -> Result<Arc<dyn FileSystem>> {
    Ok(Arc::new(Held {
        inner: fs.hold(dir)?.unwrap_or_else(|| Arc::clone(fs)),
        dir: Arc::new(Dir {
            path: dir.to_path_buf(),
            syncing: Mutex::default(),
            failed: AtomicU64::new(0),
        }),
    }))
}

/// Names that are about to be made in a directory, or removed from it, and then made durable.
#[derive(Clone, Copy, Debug)]
pub struct NewNames {
    failed: u64,
}

impl NewNames {
    /// To be called before the first of them is made.
    pub fn begin(fs: &dyn FileSystem, dir: &Path) -> Self {
        Self {
            failed: fs.failed_syncs(dir),
        }
    }

    /// Makes those durable that were made since. Errors: this sync fails, or another one has failed
    /// meanwhile and may have lost them.
    pub fn sync(&self, fs: &dyn FileSystem, dir: &Path) -> Result<()> {
        fs.sync_dir(dir)?;
        self.check(fs, dir)
    }

    /// Errors: a sync of the directory has failed since.
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

/// A file system, and a directory of it that is held.
#[derive(Debug)]
struct Held {
    inner: Arc<dyn FileSystem>,
    dir: Arc<Dir>,
}

/// A directory whose failed syncs are counted.
#[derive(Debug)]
struct Dir {
    path: PathBuf,
    /// Held during each sync: a success beside a failure tells nothing.
    syncing: Mutex<()>,
    failed: AtomicU64,
}

impl FileSystem for Held {
    fn open(&self, path: &Path, how: OpenHow) -> Result<Arc<dyn File>> {
        self.inner.open(path, how)
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        self.inner.metadata(path)
    }

    fn list(&self, dir: &Path) -> Result<Vec<OsString>> {
        self.inner.list(dir)
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        self.inner.create_dir(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.rename(from, to)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        self.inner.remove(path)
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        self.inner.remove_dir(dir)
    }

    fn hard_link(&self, from: &Path, to: &Path) -> Result<()> {
        self.inner.hard_link(from, to)
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

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        self.inner.lock(path)
    }

    fn probe(&self, dir: &Path) -> Result<Probe> {
        self.inner.probe(dir)
    }

    fn same_file(&self, a: &Path, b: &Path) -> Result<bool> {
        self.inner.same_file(a, b)
    }

    fn hold(&self, dir: &Path) -> Result<Option<Arc<dyn FileSystem>>> {
        let Some(inner) = self.inner.hold(dir)? else {
            return Ok(None);
        };
        Ok(Some(Arc::new(Self {
            inner,
            dir: Arc::clone(&self.dir),
        })))
    }

    fn check_held(&self) -> Result<()> {
        self.inner.check_held()
    }

    fn failed_syncs(&self, dir: &Path) -> u64 {
        if dir == self.dir.path {
            self.dir.failed.load(Ordering::Acquire)
        } else {
            self.inner.failed_syncs(dir)
        }
    }
}
