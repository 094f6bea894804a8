//! Which files of a directory have durable names.
//!
//! A file whose name is not durable is lost in a power cut with all that it holds, so a log's name is
//! made durable before anything in it counts as durable, and before anything else that is durable
//! relies on it. Who only writes to a new log waits for neither: files are numbered as they are made
//! ([`Names::note`]), and one sync of the directory serves all up to then.
//!
//! A failed sync of the directory, whoever asked for it, may have lost the names that were not durable
//! then, for good: the next one may succeed without them. That holds for a full device too: the error
//! may be one of an earlier write that the device was slow to tell. Such a file never counts as durable.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use base::sync::{Mutex, MutexGuard, PoisonError};
use base::{Error, Result};
use io::{FileSystem, NewNames};

/// The names in one directory.
#[derive(Debug)]
pub struct Names {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    /// Held during each sync.
    syncing: Mutex<()>,
    state: Mutex<State>,
}

/// Files of which more than their number is remembered.
const REMEMBERED_MAX: usize = 64;

#[derive(Debug, Default)]
struct State {
    /// How many files were noted.
    made: u64,
    /// In the order of their making, with the logs' numbers. What is not here is durable, or nobody's
    /// any more.
    files: BTreeMap<u64, (u64, Name)>,
}

/// What is known of a name.
#[derive(Debug)]
enum Name {
    Fresh(NewNames),
    Durable,
    /// Why it may be lost: trying again could succeed without it.
    Lost(Error),
}

impl State {
    /// Whether the name is durable; `None` if only a sync can tell.
    fn known(&self, nth: u64) -> Option<Result<()>> {
        match self.files.get(&nth) {
            Some((_, Name::Fresh(_))) => None,
            Some((_, Name::Lost(e))) => Some(Err(e.clone())),
            Some((_, Name::Durable)) | None => Some(Ok(())),
        }
    }
}

impl Names {
    /// The names in `dir`; those that are there count as durable.
    pub fn new(fs: Arc<dyn FileSystem>, dir: PathBuf) -> Self {
        Self {
            fs,
            dir,
            syncing: Mutex::default(),
            state: Mutex::default(),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one insertion.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called before a file is created in the directory, or renamed into it.
    pub fn begin(&self) -> NewNames {
        NewNames::begin(&*self.fs, &self.dir)
    }

    /// The log of this number is there. Returns which of all it is.
    pub fn note(&self, number: u64, begun: NewNames) -> u64 {
        let mut state = self.state();
        state.made += 1;
        let nth = state.made;
        if state.files.len() > REMEMBERED_MAX {
            let durable = |name: &Name| matches!(name, Name::Durable);
            state.files.retain(|_, (_, name)| !durable(name));
        }
        state.files.insert(nth, (number, Name::Fresh(begun)));
        nth
    }

    /// The log of this number is about to be removed, or its name to be taken away.
    pub fn forget(&self, number: u64) {
        self.state().files.retain(|_, (n, _)| *n != number);
    }

    /// Returns when the name of file `nth` is durable. If a sync has failed since it was made, it never
    /// is, by this.
    pub fn make_durable(&self, nth: u64) -> Result<()> {
        if let Some(known) = self.state().known(nth) {
            return known;
        }
        let _one = self.syncing.lock().unwrap_or_else(PoisonError::into_inner);
        let made = {
            let state = self.state();
            if let Some(known) = state.known(nth) {
                return known;
            }
            state.made
        };
        let outcome = self.fs.sync_dir(&self.dir);
        let mut state = self.state();
        for (n, (_, name)) in &mut state.files {
            let Name::Fresh(new) = name else { continue };
            let sure = match &outcome {
                Ok(()) => new.check(&*self.fs, &self.dir),
                Err(e) => Err(e.clone()),
            };
            match sure {
                Ok(()) if *n <= made => *name = Name::Durable,
                Ok(()) => {} // made meanwhile
                Err(e) => *name = Name::Lost(e),
            }
        }
        state.known(nth).unwrap_or(Ok(()))
    }

    /// Returns when the newest name is durable, and with it all that were made before, but for those
    /// that may be lost: nothing in such a file ever counts as durable. The directory is where its path
    /// says.
    pub fn make_newest_durable(&self) -> Result<()> {
        let newest = self.state().files.last_key_value().map(|(nth, _)| *nth);
        newest.map_or(Ok(()), |nth| self.make_durable(nth))?;
        self.check_held()
    }

    /// See [`FileSystem::check_held`].
    pub fn check_held(&self) -> Result<()> {
        self.fs.check_held()
    }
}
