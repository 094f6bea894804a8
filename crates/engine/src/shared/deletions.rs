//! Whether obsolete files are deleted. They must stay while a copy of the database is made from a list of files.

use base::sync::{Condvar, Mutex, MutexGuard, PoisonError, ranked};

use crate::locks;

/// See the module.
pub(crate) struct Deletions {
    /// The lock is held while logs are deleted. It is taken before all other locks except the lock of the options.
    state: Mutex<State>,
    /// Signaled when nobody deletes tables any more.
    ended: Condvar,
}

#[derive(Default)]
struct State {
    /// How often deletions are disabled.
    disabled: u32,
    /// Threads that delete tables, without the lock.
    deleting: u32,
}

/// The permission to delete files. Nobody else has it, and a thread that disables deletions waits.
pub(crate) struct Permit<'a> {
    deletions: &'a Deletions,
    state: MutexGuard<'a, State>,
}

/// The permission to delete tables. Others may have it too; a thread that disables deletions waits for all of them.
pub(crate) struct TablePermit<'a>(&'a Deletions);

impl<'a> Permit<'a> {
    /// Keeps only the permission to delete tables.
    pub(crate) fn for_tables(mut self) -> TablePermit<'a> {
        self.state.deleting += 1;
        TablePermit(self.deletions)
    }
}

impl Drop for TablePermit<'_> {
    fn drop(&mut self) {
        let mut state = self.0.lock();
        state.deleting -= 1;
        if state.deleting == 0 {
            self.0.ended.notify_all();
        }
    }
}

impl Default for Deletions {
    fn default() -> Self {
        Self {
            state: ranked(locks::DELETIONS, State::default()),
            ended: Condvar::new(),
        }
    }
}

impl Deletions {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be held while files are deleted. `None` if deletions are disabled.
    pub(crate) fn begin(&self) -> Option<Permit<'_>> {
        let state = self.lock();
        (state.disabled == 0).then_some(Permit {
            deletions: self,
            state,
        })
    }

    /// Keeps obsolete files until the matching [`Deletions::enable`]. Waits for deletions that are under way.
    pub(crate) fn disable(&self) {
        let mut state = self.lock();
        state.disabled += 1;
        self.until_ended(state);
    }

    /// Waits for deletions that are under way.
    pub(crate) fn wait(&self) {
        self.until_ended(self.lock());
    }

    fn until_ended(&self, mut state: MutexGuard<'_, State>) {
        while state.deleting > 0 {
            state = self
                .ended
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Ends one [`Deletions::disable`]. Returns true if it was the last one.
    pub(crate) fn enable(&self) -> bool {
        let mut state = self.lock();
        state.disabled = state.disabled.saturating_sub(1);
        state.disabled == 0
    }

    /// Whether obsolete files are deleted.
    pub(crate) fn are_enabled(&self) -> bool {
        self.lock().disabled == 0
    }
}

#[cfg(test)]
mod tests {
    use base::sync::atomic::{AtomicBool, Ordering};
    use base::sync::thread;

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

    #[test]
    fn who_deletes_tables_keeps_nobody_waiting_but_who_disables_that() {
        let deletions = Deletions::default();
        let first = deletions.begin().unwrap().for_tables();
        let second = deletions.begin().unwrap().for_tables();
        let disabled = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                deletions.disable();
                disabled.store(true, Ordering::SeqCst);
            });
            drop(first);
            while deletions.are_enabled() {
                thread::yield_now();
            }
            assert!(deletions.begin().is_none());
            assert!(!disabled.load(Ordering::SeqCst), "one still deletes");
            drop(second);
        });
        assert!(disabled.load(Ordering::SeqCst));
        assert!(deletions.enable() && deletions.begin().is_some());
    }
}
