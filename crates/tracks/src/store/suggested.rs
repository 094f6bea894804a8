//! Ranges in which readers have met dead rows: each is suggested for compaction at most once a
//! minute.

use std::collections::{BTreeMap, BTreeSet};

use base::sync::{Mutex, MutexGuard, PoisonError};

use super::Family;

/// The least time between two suggestions of a range.
const PAUSE_NANOS: u64 = 60_000_000_000;
/// The most ranges that are remembered; while there are more, no further one is suggested.
const RANGES_MAX: usize = 1024;

/// The suggested ranges, and the families with dead rows.
#[derive(Debug, Default)]
pub(super) struct Suggested {
    /// When each range was last suggested.
    last: Mutex<BTreeMap<(Family, Vec<u8>), u64>>,
    /// Families in which readers have met dead rows since the last [`Suggested::take_met`].
    met: Mutex<BTreeSet<Family>>,
}

impl Suggested {
    fn met(&self) -> MutexGuard<'_, BTreeSet<Family>> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records that a reader has met dead rows in a family.
    pub(super) fn has_met(&self, family: Family) {
        self.met().insert(family);
    }

    /// Whether a reader has met dead rows since the last call.
    pub(super) fn take_met(&self, family: Family) -> bool {
        self.met().remove(&family)
    }

    /// Allows all ranges again, because there are new tables.
    pub(super) fn forget(&self) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.clear();
    }

    /// Whether to suggest the range of a family that begins at a key, at time `now` in nanoseconds.
    /// If so, this is recorded.
    pub(super) fn is_due(&self, (family, from): (Family, &[u8]), now: u64) -> bool {
        let range = (family, from.to_vec());
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |at: u64| now.saturating_sub(at) >= PAUSE_NANOS;
        if last.get(&range).is_some_and(|at| !is_old(*at)) {
            return false;
        }
        if last.len() >= RANGES_MAX {
            last.retain(|_, at| !is_old(*at));
        }
        if last.len() >= RANGES_MAX {
            return false;
        }
        last.insert(range, now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_readers_have_met_is_taken_once() {
        let suggested = Suggested::default();
        suggested.has_met(Family::Geohash);
        let take = |family| suggested.take_met(family);
        assert!(!take(Family::Visits) && take(Family::Geohash) && !take(Family::Geohash));
    }

    #[test]
    fn a_range_is_asked_for_once_a_minute() {
        let suggested = Suggested::default();
        let is_due = |from: &[u8], now| suggested.is_due((Family::Geohash, from), now);
        assert!(is_due(b"a", 1) && is_due(b"b", 1));
        assert!(!is_due(b"a", PAUSE_NANOS));
        // The same range of another family is a different one.
        assert!(suggested.is_due((Family::Visits, b"a"), 1));
        let later = 1 + PAUSE_NANOS;
        assert!(is_due(b"a", later) && !is_due(b"a", later));
        suggested.forget();
        assert!(is_due(b"a", later));
        let many = (0..3 * RANGES_MAX).filter(|n| is_due(&n.to_be_bytes(), later));
        assert!(many.count() <= RANGES_MAX);
    }
}
