//! The files that nothing refers to any more, until they are removed.

use std::path::PathBuf;

use base::sync::{Mutex, MutexGuard, PoisonError, ranked};

use crate::locks;

/// A file to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obsolete {
    /// Where it is.
    pub path: PathBuf,
    /// The size of a table; 0 for other files.
    pub bytes: u64,
    /// An attempt to remove it has failed.
    pub failed: bool,
}

/// Collects the files that nothing refers to any more.
#[derive(Debug)]
pub struct Janitor {
    files: Mutex<Vec<Obsolete>>,
}

impl Default for Janitor {
    fn default() -> Self {
        Self {
            files: ranked(locks::JANITOR, Vec::new()),
        }
    }
}

impl Janitor {
    fn files(&self) -> MutexGuard<'_, Vec<Obsolete>> {
        self.files.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a file.
    pub fn add(&self, path: PathBuf) {
        self.add_table(path, 0);
    }

    /// Adds a table file of so many bytes.
    pub fn add_table(&self, path: PathBuf, bytes: u64) {
        self.give_back(Obsolete {
            path,
            bytes,
            failed: false,
        });
    }

    /// Adds a file that was taken and is still there.
    pub fn give_back(&self, file: Obsolete) {
        self.files().push(file);
    }

    /// Bytes of the table files that wait for removal.
    pub fn bytes(&self) -> u64 {
        self.files().iter().map(|f| f.bytes).sum()
    }

    /// Whether a file waits for its first attempt.
    pub fn has_untried(&self) -> bool {
        self.files().iter().any(|f| !f.failed)
    }

    /// Takes all files. Those that could not be removed come last.
    pub fn take(&self) -> Vec<Obsolete> {
        let mut files = std::mem::take(&mut *self.files());
        files.sort_by_key(|f| f.failed);
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_removed_comes_last() {
        let janitor = Janitor::default();
        assert!(!janitor.has_untried());
        janitor.add_table("000003.sst".into(), 7);
        janitor.add("MANIFEST-000002".into());
        let mut taken = janitor.take();
        assert!(janitor.take().is_empty());
        taken[0].failed = true;
        for file in taken {
            janitor.give_back(file);
        }
        assert_eq!(janitor.bytes(), 7);
        assert!(janitor.has_untried());
        let taken = janitor.take();
        assert_eq!(
            taken.iter().map(|f| f.failed).collect::<Vec<_>>(),
            [false, true]
        );
        for file in taken.into_iter().filter(|f| f.failed) {
            janitor.give_back(file);
        }
        assert!(!janitor.has_untried());
    }
}
