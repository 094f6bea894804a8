//! Read-only files in memory, to open damaged databases by the hundred thousand.
//!
//! A [`Frozen`] is a [`State`] as a file system under [`DIR`]; a copy with one damaged file shares the
//! others. All changes are refused.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, Result};
use io::{Advice, File, FileLock, FileSystem, Metadata, OpenHow, Probe, SyncKind, WriteSync};

use crate::dirs::State;

/// The directory of the files.
pub const DIR: &str = "/frozen";

/// A read-only directory.
#[derive(Clone, Debug, Default)]
pub struct Frozen(BTreeMap<PathBuf, Arc<[u8]>>);

impl Frozen {
    /// A directory with these files.
    pub fn of(state: &State) -> Self {
        let bytes = |name: &str| Arc::from(state.get(name).unwrap_or_default());
        let files = state.names().map(|n| (Path::new(DIR).join(n), bytes(n)));
        Self(files.collect())
    }

    /// The same with another content of a file.
    #[must_use]
    pub fn with(&self, name: &str, bytes: impl Into<Arc<[u8]>>) -> Self {
        let mut out = self.clone();
        out.0.insert(Path::new(DIR).join(name), bytes.into());
        out
    }

    /// The same without a file.
    #[must_use]
    pub fn without(&self, name: &str) -> Self {
        let mut out = self.clone();
        out.0.remove(&Path::new(DIR).join(name));
        out
    }

    /// Opens a file.
    pub fn file(&self, name: &str) -> Result<Arc<dyn File>> {
        self.open(&Path::new(DIR).join(name), OpenHow::READ)
    }

    fn get(&self, path: &Path) -> Result<&Arc<[u8]>> {
        self.0
            .get(path)
            .ok_or_else(|| Error::not_found("no such file").file(path))
    }
}

fn refused<T>(path: &Path) -> Result<T> {
    Err(Error::not_supported("changing a frozen file").file(path))
}

/// An open file.
#[derive(Debug)]
struct Ice {
    path: PathBuf,
    bytes: Arc<[u8]>,
}

impl File for Ice {
    fn path(&self) -> &Path {
        &self.path
    }

    fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize> {
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        let rest = self.bytes.get(from..).unwrap_or_default();
        let n = rest.len().min(buf.len());
        buf[..n].copy_from_slice(&rest[..n]);
        Ok(n)
    }

    fn write_at(&self, _: &[u8], _: u64, _: WriteSync) -> Result<usize> {
        refused(&self.path)
    }

    fn sync(&self, _: SyncKind) -> Result<()> {
        refused(&self.path)
    }

    fn start_writeback(&self, _: u64, _: u64) -> Result<()> {
        refused(&self.path)
    }

    fn truncate(&self, _: u64) -> Result<()> {
        refused(&self.path)
    }

    fn allocate(&self, _: u64, _: u64, _: bool) -> Result<()> {
        refused(&self.path)
    }

    fn zero(&self, _: u64, _: u64) -> Result<()> {
        refused(&self.path)
    }

    fn len(&self) -> Result<u64> {
        Ok(self.bytes.len() as u64)
    }

    fn advise(&self, _: Advice) {}
}

impl FileSystem for Frozen {
    fn open(&self, path: &Path, how: OpenHow) -> Result<Arc<dyn File>> {
        if how.write {
            return refused(path);
        }
        Ok(Arc::new(Ice {
            path: path.to_owned(),
            bytes: Arc::clone(self.get(path)?),
        }))
    }

    fn metadata(&self, path: &Path) -> Result<Metadata> {
        let is_dir = path == Path::new(DIR);
        let len = if is_dir { 0 } else { self.get(path)?.len() };
        Ok(Metadata {
            len: len as u64,
            is_dir,
            modified_micros: 0,
        })
    }

    fn list(&self, dir: &Path) -> Result<Vec<OsString>> {
        let inside = self.0.keys().filter(|p| p.parent() == Some(dir));
        Ok(inside
            .filter_map(|p| p.file_name())
            .map(OsString::from)
            .collect())
    }

    fn create_dir(&self, dir: &Path) -> Result<()> {
        refused(dir)
    }

    fn rename(&self, from: &Path, _: &Path) -> Result<()> {
        refused(from)
    }

    fn remove(&self, path: &Path) -> Result<()> {
        refused(path)
    }

    fn remove_dir(&self, dir: &Path) -> Result<()> {
        refused(dir)
    }

    fn hard_link(&self, from: &Path, _: &Path) -> Result<()> {
        refused(from)
    }

    fn sync_dir(&self, dir: &Path) -> Result<()> {
        refused(dir)
    }

    fn lock(&self, path: &Path) -> Result<Box<dyn FileLock>> {
        refused(path)
    }

    fn probe(&self, dir: &Path) -> Result<Probe> {
        refused(dir)
    }
}
