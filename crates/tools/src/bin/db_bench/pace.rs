//! Limits of what the threads of a benchmark do together in a second.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::clock::Clock;

/// Lets through so many units a second, evenly: no unit comes earlier than its share of the time.
pub(crate) struct Pace {
    per_second: u64,
    /// When the first unit was taken.
    started: OnceLock<u64>,
    taken: AtomicU64,
    clock: Arc<dyn Clock>,
}

impl Pace {
    /// A limit; `None` if there is none.
    pub(crate) fn new(per_second: u64, clock: &Arc<dyn Clock>) -> Option<Self> {
        (per_second > 0).then(|| Self {
            per_second,
            started: OnceLock::new(),
            taken: AtomicU64::new(0),
            clock: Arc::clone(clock),
        })
    }

    /// Waits until `units` more may be used.
    pub(crate) fn take(&self, units: u64) {
        let before = self.taken.fetch_add(units, Ordering::Relaxed);
        let due = (u128::from(before) * 1_000_000_000 / u128::from(self.per_second)) as u64;
        let now = self.clock.monotonic_nanos();
        let now = now.saturating_sub(*self.started.get_or_init(|| now));
        if now < due {
            std::thread::sleep(Duration::from_nanos(due - now));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::clock::SystemClock;

    #[test]
    fn a_pace_is_kept() {
        let clock = SystemClock::shared();
        let start = clock.monotonic_nanos();
        let pace = Pace::new(10_000, &clock).unwrap();
        for _ in 0..11 {
            pace.take(100);
        }
        // 1,000 of 10,000 a second before the last.
        assert!(clock.monotonic_nanos() - start >= 100_000_000);
        assert!(Pace::new(0, &clock).is_none());
    }
}
