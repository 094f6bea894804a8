//! The logs of an open database and their sizes: which are live, and which are obsolete and not deleted yet.

use std::collections::BTreeMap;
use std::ops::Range;

use base::FileNumber;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};

use crate::locks;

/// See the module.
#[derive(Debug)]
pub(crate) struct LiveLogs {
    numbers: Mutex<Numbers>,
    /// Bytes in the active log.
    active: AtomicU64,
    /// Bytes in the other live logs.
    older: AtomicU64,
}

#[derive(Debug, Default)]
struct Numbers {
    /// Logs that are not obsolete, including the active log, with their sizes in bytes; the size of the active log is 0
    /// here.
    live: BTreeMap<FileNumber, u64>,
    /// Logs that are obsolete and not deleted yet.
    obsolete: Vec<FileNumber>,
}

impl LiveLogs {
    /// The logs of a database that is opened, with their sizes in bytes.
    pub(crate) fn new(live: BTreeMap<FileNumber, u64>) -> Self {
        Self {
            active: AtomicU64::new(0),
            older: AtomicU64::new(live.values().sum()),
            numbers: ranked(
                locks::LEAF,
                Numbers {
                    live,
                    obsolete: Vec::new(),
                },
            ),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Numbers> {
        self.numbers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts `bytes` that were appended to the active log.
    #[inline]
    pub(crate) fn add(&self, bytes: u64) {
        self.active.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Takes note that `new` is now the active log instead of `old`.
    pub(super) fn rotated(&self, old: FileNumber, new: FileNumber) {
        let mut numbers = self.lock();
        let bytes = self.active.swap(0, Ordering::Relaxed);
        numbers.live.insert(old, bytes);
        numbers.live.insert(new, 0);
        self.count_older(&numbers);
    }

    fn count_older(&self, numbers: &Numbers) {
        let bytes = numbers.live.values().sum();
        self.older.store(bytes, Ordering::Relaxed);
    }

    /// Bytes in all of them.
    pub(crate) fn bytes(&self) -> u64 {
        // In this order a log that is rotated meanwhile does not count twice.
        let older = self.older.load(Ordering::Relaxed);
        older + self.active.load(Ordering::Relaxed)
    }

    /// Whether all of them together are larger than `limit`, or the active log is half as large.
    #[inline]
    pub(crate) fn exceed(&self, limit: u64) -> bool {
        let active = self.active.load(Ordering::Relaxed);
        active >= limit.div_ceil(2) || active + self.older.load(Ordering::Relaxed) > limit
    }

    /// The oldest live log.
    pub(crate) fn oldest(&self) -> Option<FileNumber> {
        self.lock().live.keys().next().copied()
    }

    /// The newest log; `None` if another process writes the logs.
    pub(crate) fn newest(&self) -> Option<FileNumber> {
        self.lock().live.keys().next_back().copied()
    }

    /// Bytes in the live logs with these numbers, without the active log; `None` if there is no such log.
    pub(crate) fn bytes_of(&self, numbers: Range<FileNumber>) -> Option<u64> {
        if numbers.is_empty() {
            return None;
        }
        let known = self.lock();
        let sizes = known.live.range(numbers).map(|(_, bytes)| *bytes);
        sizes.reduce(|all, bytes| all + bytes)
    }

    /// Takes note that no log before `needed` is needed any more. Returns all obsolete logs that are still to be deleted.
    /// Each of them stays one until [`LiveLogs::is_deleted`], even if a thread panics.
    pub(crate) fn not_needed_before(&self, needed: FileNumber) -> Vec<FileNumber> {
        let mut numbers = self.lock();
        let live = numbers.live.split_off(&needed);
        let obsolete = std::mem::replace(&mut numbers.live, live);
        numbers.obsolete.extend(obsolete.into_keys());
        self.count_older(&numbers);
        numbers.obsolete.clone()
    }

    /// Takes note of an obsolete log that could not be deleted.
    pub(crate) fn is_left(&self, number: FileNumber) {
        self.lock().obsolete.push(number);
    }

    /// Takes note that an obsolete log was deleted.
    pub(crate) fn is_deleted(&self, number: FileNumber) {
        self.lock().obsolete.retain(|n| *n != number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn logs() -> LiveLogs {
        let live = [(3, 10), (5, 20), (8, 0)];
        LiveLogs::new(live.into_iter().map(|(n, b)| (FileNumber(n), b)).collect())
    }

    #[test]
    fn a_rotation_keeps_the_size_of_the_old_log() {
        let logs = logs();
        logs.add(7);
        assert_eq!(logs.bytes(), 37);
        logs.rotated(FileNumber(8), FileNumber(9));
        logs.add(1);
        assert_eq!(logs.bytes(), 38);
        assert_eq!(logs.newest(), Some(FileNumber(9)));
        assert_eq!(logs.bytes_of(FileNumber(5)..FileNumber(9)), Some(27));
        assert_eq!(logs.bytes_of(FileNumber(10)..FileNumber(11)), None);
        assert_eq!(logs.bytes_of(FileNumber(9)..FileNumber(3)), None);
        assert!(logs.exceed(37) && !logs.exceed(38));
        assert!(logs.exceed(2), "the active log has half of it");
    }

    #[test]
    fn an_obsolete_log_stays_one_until_it_is_deleted() {
        let logs = logs();
        let all = |numbers: &[u64]| -> Vec<FileNumber> {
            numbers.iter().map(|n| FileNumber(*n)).collect()
        };
        assert_eq!(logs.not_needed_before(FileNumber(5)), all(&[3]));
        assert_eq!(logs.not_needed_before(FileNumber(8)), all(&[3, 5]));
        assert_eq!((logs.bytes(), logs.oldest()), (0, Some(FileNumber(8))));
        logs.is_deleted(FileNumber(3));
        logs.is_left(FileNumber(2));
        assert_eq!(logs.not_needed_before(FileNumber(8)), all(&[5, 2]));
    }
}
