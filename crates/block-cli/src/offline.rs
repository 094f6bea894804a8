//! A store that no process has open, for `ctl`.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, ErrorKind, Result};
use block::raftlog::{self, groups::Groups};
use block::store::superblock::Superblock;
use io::posix::Posix;
use io::{File, FileLock, FileSystem, OpenHow};

/// A store that is locked while it is examined.
pub(crate) struct Offline {
    pub(crate) fs: Arc<dyn FileSystem>,
    pub(crate) dir: PathBuf,
    pub(crate) superblock: Superblock,
    _lock: Box<dyn FileLock>,
}

impl Offline {
    /// Opens a store for reading. Errors: there is no store; a process has it open, which is named.
    pub(crate) fn open(dir: &Path) -> Result<Self> {
        let fs: Arc<dyn FileSystem> = Posix::shared();
        let path = dir.join("STORE");
        if !fs.exists(&path)? {
            return Err(Error::new(ErrorKind::NotFound, "there is no store")
                .file(dir)
                .hint("name the directory of a store, which has a file STORE"));
        }
        let lock = fs.lock(&dir.join("LOCK")).map_err(|e| match e.kind() {
            ErrorKind::Busy => e.hint("a process has the store open: end it first"),
            _ => e,
        })?;
        let superblock = Superblock::read(&*fs.open(&path, OpenHow::READ)?)?;
        Ok(Self {
            fs,
            dir: dir.to_path_buf(),
            superblock,
            _lock: lock,
        })
    }

    /// Log files in use, the oldest first.
    pub(crate) fn logs(&self) -> Result<Vec<(u64, Arc<dyn File>)>> {
        let dir = self.dir.join("log");
        let mut all = Vec::new();
        for name in self.fs.list(&dir)? {
            let text = name.to_string_lossy();
            let number = text.strip_suffix(".log").and_then(|n| n.parse().ok());
            if let Some(number) = number {
                all.push((
                    number,
                    self.fs.open(&dir.join(&name), OpenHow::READ.direct())?,
                ));
            }
        }
        all.sort_by_key(|(number, _)| *number);
        Ok(all)
    }

    /// What an opening would find in the log. Errors: the opening would fail.
    pub(crate) fn log(&self) -> Result<Groups> {
        let options = raftlog::Options {
            store: self.superblock.store,
            unit: self.superblock.unit,
            depth: 1,
            file_bytes: self.superblock.log_bytes,
            reserved_files: 0,
            memory_bytes: 0,
            seed: 0,
        };
        let fs = Arc::clone(&self.fs);
        let newest = self.superblock.log_number;
        raftlog::look(fs, &self.dir.join("log"), &options, newest)
    }
}
