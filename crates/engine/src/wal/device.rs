//! Notices a device that does not answer. A log write that takes longer than `wal_slow_io_ms` is reported
//! while it lasts; it is no failure.

use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The write that the device has now.
#[derive(Default)]
pub(crate) struct Device {
    /// When it began, nanoseconds of the monotonic clock; 0 if there is none.
    since: AtomicU64,
    told: AtomicBool,
}

impl Device {
    pub(crate) fn took_off(&self, now: u64) {
        self.told.store(false, Ordering::Relaxed);
        self.since.store(now, Ordering::Relaxed);
    }

    pub(crate) fn landed(&self) {
        self.since.store(0, Ordering::Relaxed);
    }

    /// How long the write that is under way has taken, in nanoseconds; 0 if there is none.
    pub(crate) fn lasts(&self, now: u64) -> u64 {
        match self.since.load(Ordering::Relaxed) {
            0 => 0,
            since => now.saturating_sub(since),
        }
    }

    /// Whether a write that has taken `nanos` is to be reported: it has taken `limit_ms`, and was not reported yet. 0 is no
    /// limit.
    pub(crate) fn is_to_be_told(&self, nanos: u64, limit_ms: u64) -> bool {
        limit_ms > 0 && nanos >= limit_ms * 1_000_000 && !self.told.swap(true, Ordering::Relaxed)
    }
}
