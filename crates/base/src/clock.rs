//! Time, injected: the only code that asks the operating system for the time.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::sync::{Condvar, MutexGuard, PoisonError, thread};

/// A source of time. The simulator has its own.
pub trait Clock: Send + Sync + Debug {
    /// Microseconds since 1970-01-01 UTC.
    fn wall_micros(&self) -> u64;
    /// Nanoseconds since some fixed point; never goes backwards.
    fn monotonic_nanos(&self) -> u64;
    /// Like [`Clock::monotonic_nanos`], but also advances while the machine is suspended: for times
    /// that another machine relies on.
    fn boot_nanos(&self) -> u64 {
        self.monotonic_nanos()
    }
    /// CPU time of the calling thread in nanoseconds; always 0 if time is simulated.
    fn thread_cpu_nanos(&self) -> u64 {
        0
    }
    /// Returns when `time` has passed.
    fn sleep(&self, time: Duration) {
        thread::sleep(time);
    }
    /// The real time for which a thread waits if it is to wait at most `time` by this clock.
    fn patience(&self, time: Duration) -> Duration {
        time
    }
}

/// Waits until `changed` is notified, or until `at_most` has passed by the clock. Like every wait for a
/// condition variable, it may wake up spuriously.
pub fn wait_timeout<'a, T>(
    clock: &dyn Clock,
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    at_most: Duration,
) -> MutexGuard<'a, T> {
    #[expect(clippy::disallowed_methods, reason = "this is the clock's home")]
    let waited = changed.wait_timeout(guard, clock.patience(at_most));
    waited.unwrap_or_else(PoisonError::into_inner).0
}

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// The machine's clock behind the trait.
    pub fn shared() -> Arc<dyn Clock> {
        #[expect(clippy::disallowed_methods, reason = "this is the clock's home")]
        let start = Instant::now();
        Arc::new(Self { start })
    }
}

impl Clock for SystemClock {
    fn wall_micros(&self) -> u64 {
        #[expect(clippy::disallowed_methods, reason = "this is the clock's home")]
        let now = SystemTime::now();
        now.duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_micros() as u64)
    }

    fn monotonic_nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn boot_nanos(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    fn thread_cpu_nanos(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}
