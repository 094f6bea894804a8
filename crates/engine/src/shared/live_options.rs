//! The options of the whole database that are in force, their changes, and whether the OPTIONS file has these changes.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::{ArcSwap, Guard as Loaded};
use base::clock::Clock;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};

use crate::commit::Writes;
use crate::locks;
use options::DbOptions;

/// The time after which a stale OPTIONS file is written again.
const AGAIN: Duration = Duration::from_secs(1);

/// See the module. The options of a family are in its `Family`.
pub(crate) struct LiveOptions {
    db: ArcSwap<DbOptions>,
    /// Held while options change, and while an OPTIONS file is written. It is taken before all other locks.
    change: Mutex<()>,
    /// When (monotonic nanoseconds) a stale OPTIONS file is to be written again; 0 if it is not stale.
    due: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl LiveOptions {
    pub(crate) fn new(options: &DbOptions, clock: &Arc<dyn Clock>) -> Self {
        Self {
            db: ArcSwap::from_pointee(options.clone()),
            change: ranked(locks::OPTIONS, ()),
            due: AtomicU64::new(0),
            clock: Arc::clone(clock),
        }
    }

    /// The options that are in force.
    pub(crate) fn get(&self) -> Loaded<Arc<DbOptions>> {
        self.db.load()
    }

    /// Puts other options in force. The caller holds [`LiveOptions::lock`].
    pub(crate) fn set(&self, options: DbOptions, writes: &Writes) {
        writes
            .max_total_wal_size
            .store(options.max_total_wal_size, Ordering::Relaxed);
        self.db.store(Arc::new(options));
    }

    /// To be held while options change, and while an OPTIONS file is written.
    pub(crate) fn lock(&self) -> MutexGuard<'_, ()> {
        self.change.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the newest OPTIONS file lacks a change that is in force.
    pub(crate) fn is_stale(&self) -> bool {
        self.due.load(Ordering::Acquire) > 0
    }

    /// How long to wait before a stale OPTIONS file is written again; `None` if it is not stale.
    pub(crate) fn due_in(&self) -> Option<Duration> {
        let due = self.due.load(Ordering::Acquire);
        let left = || due.saturating_sub(self.clock.monotonic_nanos());
        (due > 0).then(|| Duration::from_nanos(left()))
    }

    /// Called after an attempt to write the file did not complete: the attempt is repeated later.
    pub(crate) fn put_off(&self) {
        self.due.store(self.again(), Ordering::Release);
    }

    /// Called after an attempt to write the file. Returns true if the file is stale now and was not stale before.
    pub(super) fn tried(&self, written: bool) -> bool {
        let due = if written { 0 } else { self.again() };
        let before = self.due.swap(due, Ordering::AcqRel);
        before == 0 && due > 0
    }

    fn again(&self) -> u64 {
        self.clock.monotonic_nanos() + AGAIN.as_nanos() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::clock::SystemClock;

    #[test]
    fn a_file_is_stale_from_a_failure_to_the_next_success() {
        let live = LiveOptions::new(&DbOptions::default(), &SystemClock::shared());
        assert!(!live.is_stale() && live.due_in().is_none());
        assert!(live.tried(false), "stale from now on");
        assert!(!live.tried(false), "it was stale already");
        assert!(live.is_stale() && live.due_in().is_some_and(|left| left <= AGAIN));
        assert!(!live.tried(true) && !live.is_stale());
        live.put_off();
        assert!(live.is_stale());
    }
}
