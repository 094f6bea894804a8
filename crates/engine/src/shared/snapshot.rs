//! Snapshots: sequence numbers as of which reads see the database.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};

use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, ErrorKind, Result, SequenceNumber};

use crate::locks;
use crate::shared::Shared;

/// The snapshots at one sequence number.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Standing {
    count: usize,
    /// When the first of them was taken, in seconds since 1970.
    since: u64,
}

/// The sequence numbers of the live snapshots, and the snapshots at each.
#[derive(Debug)]
pub(crate) struct SnapshotList {
    live: Mutex<BTreeMap<u64, Standing>>,
    /// The lowest sequence number in `live`, or [`NONE`]; can be read without the lock.
    oldest: AtomicU64,
    released: AtomicBool,
    /// Once the oldest snapshot reaches this sequence number, a compaction may drop what snapshots have kept; or
    /// [`NONE`].
    keeping: AtomicU64,
}

/// No sequence number.
const NONE: u64 = u64::MAX;

impl Default for SnapshotList {
    fn default() -> Self {
        Self {
            live: ranked(locks::SNAPSHOTS, BTreeMap::new()),
            oldest: AtomicU64::new(NONE),
            released: AtomicBool::new(false),
            keeping: AtomicU64::new(NONE),
        }
    }
}

impl SnapshotList {
    /// Takes a snapshot of `db` at the sequence number that `current` returns. No snapshot can be released while
    /// `current` runs. `now` is in seconds since 1970.
    pub(crate) fn take(
        self: &Arc<Self>,
        db: Weak<Shared>,
        now: u64,
        current: impl FnOnce() -> SequenceNumber,
    ) -> Arc<Held> {
        let mut live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        let sequence = current();
        let standing = live.entry(sequence.0).or_insert(Standing {
            count: 0,
            since: now,
        });
        standing.count += 1;
        self.tell_oldest(&live);
        Arc::new(Held {
            sequence,
            list: Arc::clone(self),
            db,
        })
    }

    fn tell_oldest(&self, live: &BTreeMap<u64, Standing>) {
        let oldest = live.keys().next().copied().unwrap_or(NONE);
        self.oldest.store(oldest, Ordering::SeqCst);
    }

    /// Takes note that a compaction may drop something once the oldest snapshot reaches `sequence`. Returns false if
    /// it has reached it already: whoever released a snapshot meanwhile may have missed the note.
    pub(crate) fn keeps_until(&self, sequence: u64) -> bool {
        self.keeping.fetch_min(sequence, Ordering::SeqCst);
        self.oldest.load(Ordering::SeqCst) < sequence
    }

    /// Whether the oldest snapshot has reached the noted sequence number. The note is then taken back.
    fn gives_up(&self) -> bool {
        let keeping = self.keeping.load(Ordering::SeqCst);
        let given_up = keeping != NONE && self.oldest.load(Ordering::SeqCst) >= keeping;
        given_up && self.keeping.swap(NONE, Ordering::SeqCst) != NONE
    }

    /// The oldest snapshot, if there is one. Takes no lock: the caller may hold the state lock, and threads
    /// that [`hold`](Self::hold) the list take the state lock after it.
    pub(crate) fn oldest(&self) -> Option<SequenceNumber> {
        let oldest = self.oldest.load(Ordering::Acquire);
        (oldest != NONE).then_some(SequenceNumber(oldest))
    }

    /// Whether a snapshot has ever been released: the versions that it kept may be worth a compaction.
    pub(crate) fn any_released(&self) -> bool {
        self.released.load(Ordering::Relaxed)
    }

    /// While the guard lives, no snapshot can be taken or released.
    pub(crate) fn hold(&self) -> MutexGuard<'_, BTreeMap<u64, Standing>> {
        self.live.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The sequence numbers in ascending order, each once.
    pub(crate) fn sequences(&self) -> Vec<SequenceNumber> {
        let live = self.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.keys().copied().map(SequenceNumber).collect()
    }

    /// The number of live snapshots.
    pub(crate) fn count(&self) -> u64 {
        self.hold().values().map(|s| s.count as u64).sum()
    }

    /// When the oldest snapshot was taken, in seconds since 1970; 0 if there is none.
    pub(crate) fn oldest_seconds(&self) -> u64 {
        self.hold().values().next().map_or(0, |s| s.since)
    }
}

/// Each snapshot holds a reference to the list, so none is left.
impl Drop for SnapshotList {
    fn drop(&mut self) {
        base::invariant!(
            base::sync::thread::panicking() || self.count() == 0 && self.oldest().is_none(),
            "snapshots of a list that nobody has"
        );
    }
}

/// A place in the list, which is given up when this is dropped.
pub(crate) struct Held {
    sequence: SequenceNumber,
    list: Arc<SnapshotList>,
    db: Weak<Shared>,
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut live = self
            .list
            .live
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        base::invariant!(
            live.get(&self.sequence.0).is_some_and(|s| s.count > 0),
            "a snapshot at {} that is in no list",
            self.sequence
        );
        let mut first = false;
        if let Some(standing) = live.get_mut(&self.sequence.0) {
            standing.count -= 1;
            if standing.count == 0 {
                live.remove(&self.sequence.0);
                // Before the first release, nobody looks at what snapshots kept.
                first = !self.list.released.swap(true, Ordering::SeqCst);
                self.list.tell_oldest(&live);
            }
        }
        drop(live);
        if (first | self.list.gives_up())
            && let Some(db) = self.db.upgrade()
        {
            db.background.wake(); // a compaction is due
        }
    }
}

/// A consistent view of the whole database, all column families, as it was when
/// [`Db::snapshot`](crate::Db::snapshot) returned. Cheap to clone. The data that it shows is kept until its
/// last clone is dropped. It does not keep the database open.
#[derive(Clone)]
pub struct Snapshot {
    held: Arc<Held>,
}

impl Snapshot {
    /// A snapshot at the last visible sequence number.
    pub(crate) fn take(db: &Arc<Shared>) -> Self {
        let now = db.env().clock.wall_micros() / 1_000_000;
        let weak = Arc::downgrade(db);
        Self {
            held: db.snapshots.take(weak, now, || db.writes.visible()),
        }
    }

    /// The database. Errors: it is closed.
    pub(crate) fn db(&self) -> Result<Arc<Shared>> {
        let db = self.held.db.upgrade();
        db.filter(|db| !db.background.is_closing()).ok_or_else(|| {
            let closed = "the database of the snapshot is closed";
            Error::new(ErrorKind::ShutdownInProgress, closed)
        })
    }

    /// The sequence number of the last write that the snapshot shows.
    pub fn sequence_number(&self) -> u64 {
        self.held.sequence.0
    }

    pub(crate) fn sequence(&self) -> SequenceNumber {
        self.held.sequence
    }

    pub(crate) fn belongs_to(&self, list: &Arc<SnapshotList>) -> bool {
        Arc::ptr_eq(&self.held.list, list)
    }
}

impl PartialEq for Snapshot {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.held, &other.held)
    }
}

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Snapshot({})", self.held.sequence)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `rocksdb.num-snapshots` counted the sequence numbers: two snapshots with no write between
    /// them were one.
    #[test]
    fn snapshots_at_one_number_are_counted_each() {
        let list = Arc::new(SnapshotList::default());
        let take = || list.take(Weak::new(), 1, || SequenceNumber(7));
        let (a, b) = (take(), take());
        assert_eq!((list.count(), list.sequences().len()), (2, 1));
        assert_eq!(list.oldest(), Some(SequenceNumber(7)));
        drop(a);
        assert_eq!((list.count(), list.any_released()), (1, false));
        drop(b);
        assert_eq!((list.count(), list.any_released()), (0, true));
    }

    /// An ingestion held the list and waited for the state lock; the thread that held the state lock picked
    /// a compaction and waited for the list.
    #[test]
    fn a_pick_does_not_wait_for_who_holds_the_list() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = crate::Options::default();
        options.db.create_if_missing = true;
        let db = crate::Db::open(dir.path().join("db"), &options).unwrap();
        drop(db.snapshot()); // from now on the oldest one counts
        let shared = &*db.shared;
        let held = shared.snapshots.hold();
        let (tell, told) = std::sync::mpsc::channel();
        let came = base::sync::thread::scope(|scope| {
            scope.spawn(move || {
                let families = shared.catalog.families.load();
                let state = shared.background.state();
                for family in families.iter() {
                    drop(crate::compaction::automatic(shared, &state, family));
                }
                tell.send(()).unwrap();
            });
            let came = told.recv_timeout(std::time::Duration::from_secs(10));
            drop(held);
            came
        });
        came.unwrap();
    }
}
