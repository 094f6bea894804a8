//! The folder of backups: one backup is made at a time, by whichever process.

use std::path::Path;

use base::{Error, ErrorKind, Result};
use io::FileLock;
use ironstone::{BackupEngine, BackupEngineOptions, Env};

/// A folder in which this process makes backups, and no other one does until this is dropped.
pub struct Making {
    engine: BackupEngine,
    _lock: Box<dyn FileLock>,
}

impl Making {
    /// Opens a folder, which is made if there is none.
    ///
    /// Errors: `Busy` if another process makes a backup there; the file system's.
    ///
    /// ```
    /// let dir = tempfile::tempdir()?;
    /// let making = tracks::backups::Making::begin(dir.path())?;
    /// let second = tracks::backups::Making::begin(dir.path());
    /// assert_eq!(second.err().map(|e| e.kind()), Some(base::ErrorKind::Busy));
    /// # drop(making);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn begin(dir: &Path) -> Result<Self> {
        let env = Env::default();
        io::create_dirs(&*env.fs, dir)?;
        // First of all, so that the engine knows the backups of whoever had it.
        let lock = env.fs.lock(&dir.join("LOCK")).map_err(|e| match e.kind() {
            ErrorKind::Busy => Error::busy("a backup is being made in this folder already")
                .hint("wait until it is done")
                .file(dir)
                .because(e),
            _ => e,
        })?;
        let engine = BackupEngine::open(&BackupEngineOptions::new(dir), &env)?;
        Ok(Self {
            engine,
            _lock: lock,
        })
    }

    /// The backups.
    pub fn engine(&mut self) -> &mut BackupEngine {
        &mut self.engine
    }

    /// Removes what processes that were killed left of their backups. Errors: some of it is still there; backups can be made.
    pub fn tidy(&mut self) -> Result<()> {
        self.engine.garbage_collect()
    }
}
