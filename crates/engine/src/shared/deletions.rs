//! Whether obsolete files are deleted. They must stay while a copy of the database is made from a list of files.

use base::sync::{Mutex, MutexGuard, PoisonError, ranked};

use crate::locks;

/// See the module.
pub(crate) struct Deletions {
    /// How often deletions are disabled. The lock is held while files are deleted. It is taken before all other
    /// locks except the lock of the options.
    disabled: Mutex<u32>,
}

impl Default for Deletions {
    fn default() -> Self {
        Self {
            disabled: ranked(locks::DELETIONS, 0),
        }
    }
}

impl Deletions {
    fn lock(&self) -> MutexGuard<'_, u32> {
        self.disabled.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be held while files are deleted: a thread that disables deletions waits for it. `None` if they are disabled.
    pub(crate) fn begin(&self) -> Option<MutexGuard<'_, u32>> {
        Some(self.lock()).filter(|disabled| **disabled == 0)
    }

    /// Keeps obsolete files until the matching [`Deletions::enable`]. Waits for deletions that are under way.
    pub(crate) fn disable(&self) {
        *self.lock() += 1;
    }

    /// Ends one [`Deletions::disable`]. Returns true if it was the last one.
    pub(crate) fn enable(&self) -> bool {
        let mut count = self.lock();
        *count = count.saturating_sub(1);
        *count == 0
    }

    /// Whether obsolete files are deleted.
    pub(crate) fn are_enabled(&self) -> bool {
        *self.lock() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_deleted_once_all_have_enabled_that() {
        let deletions = Deletions::default();
        assert!(deletions.are_enabled() && deletions.begin().is_some());
        deletions.disable();
        deletions.disable();
        assert!(!deletions.enable());
        assert!(!deletions.are_enabled() && deletions.begin().is_none());
        assert!(deletions.enable());
        assert!(deletions.begin().is_some());
        assert!(deletions.enable(), "once too often changes nothing");
        assert!(deletions.are_enabled());
    }
}
