//! Which files of a directory have durable names (directory entries).
//!
//! A power cut loses a file whose name is not durable, with all its content. So a log's name is made
//! durable before anything in the log counts as durable, and before anything durable relies on the
//! log. A writer that only appends to a new log does not wait for that: files are numbered in the
//! order of their creation ([`Names::note`]), and one sync of the directory covers all files created
//! before it.
//!
//! After a failed sync of the directory, whoever called it, names that were not yet durable may be
//! lost for good: the next sync may succeed without them. The same is true if the device is full,
//! because the error may come from an earlier write and be reported late. A file with such a name
//! never counts as durable.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, Result};
use io::{FileSystem, NewNames};

use crate::locks;

/// The names in one directory.
#[derive(Debug)]
pub struct Names {
    fs: Arc<dyn FileSystem>,
    dir: PathBuf,
    /// Held during each sync.
    syncing: Mutex<()>,
    state: Mutex<State>,
}

/// With more files than this, the next [`Names::note`] drops those whose names are durable.
const REMEMBERED_MAX: usize = 64;

#[derive(Debug, Default)]
struct State {
    /// How many files were noted.
    made: u64,
    /// Files in the order of their creation, each with its log's number. A file that is not listed has
    /// a durable name, or was forgotten.
    files: BTreeMap<u64, (u64, Name)>,
}

/// What is known about a name.
#[derive(Debug)]
enum Name {
    Fresh(NewNames),
    Durable,
    /// May be lost, with the error: another sync could succeed although the name is gone.
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
    /// The names in `dir`; names that exist already count as durable.
    pub fn new(fs: Arc<dyn FileSystem>, dir: PathBuf) -> Self {
        Self {
            fs,
            dir,
            syncing: ranked(locks::NAMES_SYNC, ()),
            state: ranked(locks::NAMES, State::default()),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is a single operation: a panic cannot leave the state half changed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Call this before a file is created in the directory or renamed into it.
    pub fn begin(&self) -> NewNames {
        NewNames::begin(&*self.fs, &self.dir)
    }

    /// Notes that the log with this number was created. Returns its place in the order of creation.
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

    /// Forgets the log with this number, which is about to be removed or renamed.
    pub fn forget(&self, number: u64) {
        self.state().files.retain(|_, (n, _)| *n != number);
    }

    /// Returns when the name of file `nth` is durable. If a sync of the directory has failed since the
    /// file was created, returns the error of that sync, now and on every later call.
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
                Ok(()) => {} // created during the sync
                Err(e) => *name = Name::Lost(e),
            }
        }
        state.known(nth).unwrap_or(Ok(()))
    }

    /// Returns when the newest name is durable, and with it all earlier names except those that may be
    /// lost; nothing in a file with a lost name ever counts as durable. Then checks that the directory
    /// is still at its path.
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
