//! Where readers have met dead rows: which ranges the store was asked to clean up, and when, as each is asked for once a minute at
//! most; and in which families.

use std::collections::{BTreeMap, BTreeSet};

use base::sync::{Mutex, MutexGuard, PoisonError};

use super::Family;

/// For so long a range is left alone.
const PAUSE_NANOS: u64 = 60_000_000_000;
/// So many ranges are remembered; while there are more, none is asked for.
const RANGES_MAX: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Suggested {
    /// When each was last asked for.
    last: Mutex<BTreeMap<(Family, Vec<u8>), u64>>,
    /// Families in which readers have met some since it was taken.
    met: Mutex<BTreeSet<Family>>,
}

impl Suggested {
    fn met(&self) -> MutexGuard<'_, BTreeSet<Family>> {
        self.met.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A reader has met dead rows in a family.
    pub(super) fn has_met(&self, family: Family) {
        self.met().insert(family);
    }

    /// Whether one has since this was asked last.
    pub(super) fn take_met(&self, family: Family) -> bool {
        self.met().remove(&family)
    }

    /// There are new tables: all ranges may be asked for again.
    pub(super) fn forget(&self) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        last.clear();
    }

    /// Whether the range of a family that begins at a key should be asked for at `now`, in nanoseconds. It counts as asked for then.
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
        // That of another family is another one.
        assert!(suggested.is_due((Family::Visits, b"a"), 1));
        let later = 1 + PAUSE_NANOS;
        assert!(is_due(b"a", later) && !is_due(b"a", later));
        suggested.forget();
        assert!(is_due(b"a", later));
        let many = (0..3 * RANGES_MAX).filter(|n| is_due(&n.to_be_bytes(), later));
        assert!(many.count() <= RANGES_MAX);
    }
}
