//! Rate limits for all threads of a benchmark together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use base::clock::Clock;

use crate::flags::Flags;

/// Allows a number of units per second, evenly distributed: no unit passes before its time.
pub(crate) struct Pace {
    since: RwLock<Since>,
    clock: Arc<dyn Clock>,
}

/// The units that were allowed at the current rate.
struct Since {
    per_second: u64,
    /// When the first unit was taken.
    started: OnceLock<u64>,
    taken: AtomicU64,
}

impl Since {
    fn new(per_second: u64) -> Self {
        Self {
            per_second: per_second.max(1),
            started: OnceLock::new(),
            taken: AtomicU64::new(0),
        }
    }
}

impl Pace {
    /// A limit; `None` if there is none.
    pub(crate) fn new(per_second: u64, clock: &Arc<dyn Clock>) -> Option<Self> {
        (per_second > 0).then(|| Self {
            since: RwLock::new(Since::new(per_second)),
            clock: Arc::clone(clock),
        })
    }

    /// Changes the rate; it is at least one unit a second.
    pub(crate) fn set(&self, per_second: u64) {
        *self.since.write().unwrap_or_else(PoisonError::into_inner) = Since::new(per_second);
    }

    /// Waits until `units` more units are allowed.
    pub(crate) fn take(&self, units: u64) {
        let (due, now) = {
            let since = self.since.read().unwrap_or_else(PoisonError::into_inner);
            let before = since.taken.fetch_add(units, Ordering::Relaxed);
            let due = u128::from(before) * 1_000_000_000 / u128::from(since.per_second);
            let now = self.clock.monotonic_nanos();
            let now = now.saturating_sub(*since.started.get_or_init(|| now));
            (due as u64, now)
        };
        if now < due {
            std::thread::sleep(Duration::from_nanos(due - now));
        }
    }
}

/// `--sine_write_rate` and `--sine_mix_rate`: a rate that follows a curve and is updated each interval.
pub(crate) struct Sine {
    interval: u64,
    next: u64,
}

impl Sine {
    /// A rate that is updated each time this many milliseconds have passed.
    pub(crate) fn new(interval_ms: u64) -> Self {
        let interval = interval_ms.saturating_mul(1_000_000);
        Self {
            interval,
            next: interval,
        }
    }

    /// The new rate if an update is due, `elapsed` nanoseconds after the start.
    pub(crate) fn due(&mut self, flags: &Flags, elapsed: u64) -> Option<f64> {
        if elapsed <= self.next {
            return None;
        }
        self.next = elapsed + self.interval;
        Some(sine_rate(flags, elapsed as f64 * 1e-9))
    }
}

/// The value of the curve after this many seconds.
pub(crate) fn sine_rate(flags: &Flags, seconds: f64) -> f64 {
    flags.sine_a * (flags.sine_b * seconds + flags.sine_c).sin() + flags.sine_d
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

    #[test]
    fn a_sine_moves_the_rate() {
        let flags = Flags {
            sine_a: 100.0,
            sine_b: std::f64::consts::FRAC_PI_2,
            sine_d: 300.0,
            ..Flags::default()
        };
        let mut sine = Sine::new(500);
        assert_eq!(sine.due(&flags, 400_000_000), None);
        let rate = sine.due(&flags, 1_000_000_000).unwrap();
        assert!((rate - 400.0).abs() < 1e-6, "{rate}");
        assert_eq!(sine.due(&flags, 1_400_000_000), None);
        let rate = sine.due(&flags, 3_000_000_000).unwrap();
        assert!((rate - 200.0).abs() < 1e-6, "{rate}");
    }
}
