//! Whether obsolete files are deleted. They must stay while a copy of the database is made from a list of files.

use base::sync::atomic::{AtomicU32, Ordering};
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError, ranked};

use crate::locks;

/// See the module.
pub(crate) struct Deletions {
    /// The lock is held while logs are deleted. It is taken before all other locks except the lock of the options.
    state: Mutex<State>,
    /// Signaled when nobody deletes tables any more.
    ended: Condvar,
    /// Threads that wait until nobody deletes tables: callers that disable deletions, or delete by themselves.
    wanted: AtomicU32,
    /// How often deletions are disabled. It changes under the lock.
    disabled: AtomicU32,
}

#[derive(Default)]
struct State {
    /// Threads that delete tables, without the lock.
    deleting: u32,
}

/// The permission to delete files. Nobody else has it, and a thread that disables deletions waits.
pub(crate) struct Permit<'a> {
    deletions: &'a Deletions,
    state: MutexGuard<'a, State>,
}

/// The permission to delete tables, without the lock. Others may have it too; a thread that disables deletions waits
/// for all of them.
pub(crate) struct TablePermit<'a>(&'a Deletions);

/// While this exists, no job begins to delete tables, and those that do end soon.
pub(crate) struct Wanted<'a>(&'a Deletions);

impl<'a> Permit<'a> {
    /// Keeps only the permission to delete tables. `None` if a call wants the deletions: the tables are left to it.
    pub(crate) fn for_tables(mut self) -> Option<TablePermit<'a>> {
        if self.deletions.is_wanted() {
            return None;
        }
        self.state.deleting += 1;
        Some(TablePermit(self.deletions))
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

impl<'a> Wanted<'a> {
    fn new(deletions: &'a Deletions) -> Self {
        deletions.wanted.fetch_add(1, Ordering::SeqCst);
        Self(deletions)
    }

    /// Waits until nobody deletes tables. Returns the permission to delete some, or `None` if deletions are disabled.
    pub(crate) fn alone(&self) -> Option<TablePermit<'a>> {
        let mut state = self.0.until_ended(self.0.lock());
        if !self.0.are_enabled() {
            return None;
        }
        state.deleting += 1;
        Some(TablePermit(self.0))
    }
}

impl Drop for Wanted<'_> {
    fn drop(&mut self) {
        self.0.wanted.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Default for Deletions {
    fn default() -> Self {
        Self {
            state: ranked(locks::DELETIONS, State::default()),
            ended: Condvar::new(),
            wanted: AtomicU32::new(0),
            disabled: AtomicU32::new(0),
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
        self.are_enabled().then_some(Permit {
            deletions: self,
            state,
        })
    }

    /// Keeps obsolete files until the matching [`Deletions::enable`]. Waits for deletions that are under way.
    pub(crate) fn disable(&self) {
        let _wanted = self.want();
        let state = self.lock();
        self.disabled.fetch_add(1, Ordering::SeqCst);
        drop(self.until_ended(state));
    }

    /// Makes jobs leave the deletion of tables to this thread.
    pub(crate) fn want(&self) -> Wanted<'_> {
        Wanted::new(self)
    }

    /// Whether somebody waits until nobody deletes tables.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted.load(Ordering::SeqCst) > 0
    }

    fn until_ended<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        while state.deleting > 0 {
            state = self
                .ended
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// Ends one [`Deletions::disable`]. Returns true if it was the last one.
    pub(crate) fn enable(&self) -> bool {
        let _state = self.lock();
        let left = self.disabled.load(Ordering::SeqCst).saturating_sub(1);
        self.disabled.store(left, Ordering::SeqCst);
        left == 0
    }

    /// Whether obsolete files are deleted.
    pub(crate) fn are_enabled(&self) -> bool {
        self.disabled.load(Ordering::SeqCst) == 0
    }
}

#[cfg(test)]
mod tests {
    use base::sync::atomic::AtomicBool;
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
        assert!(deletions.want().alone().is_none());
        assert!(deletions.enable());
        assert!(deletions.begin().is_some());
        assert!(deletions.enable(), "once too often changes nothing");
        assert!(deletions.are_enabled());
    }

    #[test]
    fn who_deletes_tables_keeps_nobody_waiting_but_who_disables_that() {
        let deletions = Deletions::default();
        let first = deletions.begin().unwrap().for_tables().unwrap();
        let second = deletions.begin().unwrap().for_tables().unwrap();
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
            assert!(deletions.is_wanted(), "those that delete must end");
            assert!(!disabled.load(Ordering::SeqCst), "one still deletes");
            drop(second);
        });
        assert!(disabled.load(Ordering::SeqCst) && !deletions.is_wanted());
        assert!(deletions.enable() && deletions.begin().is_some());
    }

    #[test]
    fn jobs_leave_tables_to_a_caller_that_waits_for_them() {
        let deletions = Deletions::default();
        let job = deletions.begin().unwrap().for_tables().unwrap();
        thread::scope(|scope| {
            let caller = scope.spawn(|| drop(deletions.want().alone().unwrap()));
            while !deletions.is_wanted() {
                thread::yield_now();
            }
            // Another job begins beside those that delete: the caller would never be alone.
            let another = deletions.begin().unwrap().for_tables();
            assert!(another.is_none());
            drop(job);
            caller.join().unwrap();
        });
        assert!(deletions.begin().unwrap().for_tables().is_some());
    }
}
