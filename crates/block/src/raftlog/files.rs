//! The files of a store's log: a fixed set, created with the store.
//!
//! ```text
//!   log/spare-3      not in use; what it holds is of no account
//!   log/000012.log   in use: begun, needed by some group
//! ```
//!
//! A store's log has all its space from the first day: no entry and no checkpoint ever fails for want of it.
//! That is why this is not [`log::Pool`], which creates files ahead for a log of unknown length. A spare file
//! need not be zeros: batches carry their file's number and nonce, so no batch of an earlier log is taken for
//! one of a later.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, Result};
use io::{File, FileSystem, OpenHow, SyncKind};

/// Bytes of zeros per write when the files are created.
const PIECE: u64 = 1 << 20;

/// The files of a log.
#[derive(Debug)]
pub struct Files {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    spare: Vec<PathBuf>,
    /// Number in the name of the next spare file.
    next: u64,
}

/// The result of [`Files::open`].
#[derive(Debug)]
pub struct Found {
    /// The files.
    pub files: Files,
    /// Numbers of those in use, ascending.
    pub used: Vec<u64>,
}

impl Files {
    /// Creates `count` files of `bytes` each in `dir`, which is created too; all are durable. `said` is called
    /// with the bytes written so far.
    pub fn make(
        fs: &Arc<dyn FileSystem>,
        dir: &Path,
        count: u32,
        bytes: u64,
        said: &mut dyn FnMut(u64),
    ) -> Result<()> {
        fs.create_dir(dir)?;
        let mut done = 0;
        for n in 0..count {
            let path = dir.join(format!("spare-{n}"));
            let file = fs.open(&path, OpenHow::CREATE_TRUNCATE.direct())?;
            let mut at = 0;
            while at < bytes {
                let piece = PIECE.min(bytes - at);
                file.zero(at, piece)?;
                (at, done) = (at + piece, done + piece);
                said(done);
            }
            file.sync(SyncKind::All)?;
        }
        fs.sync_dir(dir)
    }

    /// Lists the files in `dir`. Errors: the directory does not exist.
    pub fn open(fs: Arc<dyn FileSystem>, dir: &Path) -> Result<Found> {
        let (mut spare, mut used, mut next) = (Vec::new(), Vec::new(), 0);
        for name in fs.list(dir)? {
            let text = name.to_string_lossy();
            let number = |n: &str| n.parse::<u64>().ok();
            if let Some(n) = text.strip_prefix("spare-").and_then(number) {
                next = next.max(n.saturating_add(1));
                spare.push(dir.join(&name));
            } else if let Some(n) = text.strip_suffix(".log").and_then(number) {
                used.push(n);
            }
        }
        spare.sort();
        used.sort_unstable();
        let files = Self {
            fs,
            dir: dir.to_path_buf(),
            spare,
            next,
        };
        Ok(Found { files, used })
    }

    /// The name of the file with `number`.
    pub fn path(&self, number: u64) -> PathBuf {
        self.dir.join(format!("{number:06}.log"))
    }

    /// Number of files that are not in use.
    pub fn spare(&self) -> usize {
        self.spare.len()
    }

    /// Opens a file in use.
    pub fn get(&self, number: u64) -> Result<Arc<dyn File>> {
        self.fs.open(&self.path(number), OpenHow::UPDATE.direct())
    }

    /// Renames a spare file for `number`, durably, and opens it. Errors: none is left.
    pub fn take(&mut self, number: u64) -> Result<Arc<dyn File>> {
        let Some(spare) = self.spare.pop() else {
            return Err(
                Error::new(base::ErrorKind::NoSpace, "every file of the log is in use")
                    .file(&self.dir)
                    .hint("a group that is not written back needs them: see its checkpoint"),
            );
        };
        let path = self.path(number);
        if let Err(e) = self.fs.rename(&spare, &path) {
            self.spare.push(spare);
            return Err(e);
        }
        self.fs.sync_dir(&self.dir)?;
        self.fs.open(&path, OpenHow::UPDATE.direct())
    }

    /// Turns a file that no group needs into a spare one. The new name need not be durable: after a crash the
    /// file is found to be unneeded again. The next [`Files::take`] makes it durable anyway.
    pub fn free(&mut self, number: u64) -> Result<()> {
        let spare = self.dir.join(format!("spare-{}", self.next));
        self.next += 1;
        self.fs.rename(&self.path(number), &spare)?;
        self.spare.insert(0, spare);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use io::posix::Posix;

    use super::*;

    #[test]
    fn files_go_round() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        let fs = Posix::shared();
        let mut said = Vec::new();
        Files::make(&fs, &log, 3, 3 << 19, &mut |n| said.push(n)).unwrap();
        assert_eq!(said, [2, 3, 5, 6, 8, 9].map(|n| n << 19));
        let Found { mut files, used } = Files::open(Arc::clone(&fs), &log).unwrap();
        assert_eq!((files.spare(), used), (3, vec![]));
        for number in [7, 8, 9] {
            assert_eq!(files.take(number).unwrap().len().unwrap(), 3 << 19);
        }
        let e = files.take(10).unwrap_err();
        assert_eq!(e.kind(), base::ErrorKind::NoSpace, "{e}");
        files.free(7).unwrap();
        let Found { mut files, used } = Files::open(fs, &log).unwrap();
        assert_eq!((files.spare(), used), (1, vec![8, 9]));
        files.take(10).unwrap();
        files.free(8).unwrap();
        assert_eq!(files.spare(), 1);
        assert!(files.get(8).unwrap_err().is_not_found());
        assert_eq!(files.get(9).unwrap().len().unwrap(), 3 << 19);
    }
}
