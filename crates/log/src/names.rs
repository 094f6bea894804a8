//! Which files of a directory have durable names.
//!
//! A file whose name is not durable is lost in a power cut with all that it holds, so a log's name is
//! made durable before anything in it counts as durable, and before anything else that is durable
//! relies on it. Who only writes to a new log waits for neither: files are numbered as they are made
//! ([`Names::note`]), and one sync of the directory serves all up to then.

use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::sync::Arc;

use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Mutex, PoisonError};
use base::{Error, ErrorKind, Result};
use io::FileSystem;

/// The names in one directory.
#[derive(Debug)]
pub struct Names {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    made: AtomicU64,
    /// Up to here names are durable, those in `lost` aside.
    durable: AtomicU64,
    /// Something is in `lost`; set before `durable` rises beyond it.
    any_lost: AtomicBool,
    /// Names that a failed sync may have lost, and why: trying again could succeed without them. Held
    /// during each sync.
    lost: Mutex<Vec<(RangeInclusive<u64>, Error)>>,
}

impl Names {
    /// The names in `dir`; those that are there count as durable.
    pub fn new(fs: Arc<dyn FileSystem>, dir: PathBuf) -> Self {
        Self {
            fs,
            dir,
            made: AtomicU64::new(0),
            durable: AtomicU64::new(0),
            any_lost: AtomicBool::new(false),
            lost: Mutex::default(),
        }
    }

    /// A file was created in the directory, or renamed into it. Returns which it is.
    pub fn note(&self) -> u64 {
        self.made.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Returns when the name of file `nth` is durable. If the sync that was to make it so has failed, it
    /// never is, by this.
    pub fn make_durable(&self, nth: u64) -> Result<()> {
        let reached = || self.durable.load(Ordering::Acquire) >= nth;
        if reached() && !self.any_lost.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut lost = self.lost.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, e)) = lost.iter().find(|(names, _)| names.contains(&nth)) {
            return Err(e.duplicate());
        }
        if reached() {
            return Ok(());
        }
        let made = self.made.load(Ordering::Acquire);
        match self.fs.sync_dir(&self.dir) {
            Ok(()) => {
                self.durable.store(made, Ordering::Release);
                Ok(())
            }
            // Refused before anything was tried.
            Err(e) if e.kind() == ErrorKind::NoSpace => Err(e),
            Err(e) => {
                let first = self.durable.load(Ordering::Acquire) + 1;
                lost.push((first..=made, e.duplicate()));
                self.any_lost.store(true, Ordering::Release);
                Err(e)
            }
        }
    }

    /// The same for all files that were made before the call.
    pub fn make_all_durable(&self) -> Result<()> {
        self.make_durable(self.made.load(Ordering::Acquire))
    }
}
