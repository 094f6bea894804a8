//! Time, injected: the only place that asks the operating system what time it is.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// A source of time. The simulator has its own.
pub trait Clock: Send + Sync + Debug {
    /// Microseconds since 1970-01-01 UTC.
    fn wall_micros(&self) -> u64;
    /// Nanoseconds since some fixed point; never goes backwards.
    fn monotonic_nanos(&self) -> u64;
    /// Nanoseconds that the calling thread has run; always 0 where time is simulated.
    fn thread_cpu_nanos(&self) -> u64 {
        0
    }
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

    fn thread_cpu_nanos(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}
