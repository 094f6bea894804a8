//! Which ranges the store was asked to clean up, and when: each is asked for once a minute at most.

use std::collections::BTreeMap;

use base::sync::{Mutex, PoisonError};

/// For so long a range is left alone.
const PAUSE_NANOS: u64 = 60_000_000_000;
/// So many ranges are remembered; while there are more, none is asked for.
const RANGES_MAX: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Suggested {
    /// When each was last asked for.
    last: Mutex<BTreeMap<Vec<u8>, u64>>,
}

impl Suggested {
    /// Whether the range that begins at a key should be asked for at `now`, in nanoseconds. It counts as asked for then.
    pub(super) fn is_due(&self, from: &[u8], now: u64) -> bool {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_old = |at: u64| now.saturating_sub(at) >= PAUSE_NANOS;
        if last.get(from).is_some_and(|at| !is_old(*at)) {
            return false;
        }
        if last.len() >= RANGES_MAX {
            last.retain(|_, at| !is_old(*at));
        }
        if last.len() >= RANGES_MAX {
            return false;
        }
        last.insert(from.to_vec(), now);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_asked_for_once_a_minute() {
        let suggested = Suggested::default();
        assert!(suggested.is_due(b"a", 1) && suggested.is_due(b"b", 1));
        assert!(!suggested.is_due(b"a", PAUSE_NANOS));
        let later = 1 + PAUSE_NANOS;
        assert!(suggested.is_due(b"a", later) && !suggested.is_due(b"a", later));
        let many = (0..3 * RANGES_MAX).filter(|n| suggested.is_due(&n.to_be_bytes(), later));
        assert!(many.count() <= RANGES_MAX);
    }
}
