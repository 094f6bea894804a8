//! Notices a device that does not answer. A log write that takes longer than `wal_slow_io_ms` is reported
//! while it lasts; it is no failure.

use base::stats::Ticker;
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::info::Info;

/// The log write that is under way.
#[derive(Default)]
pub(crate) struct Device {
    /// When the last log write that is under way began, in nanoseconds of the monotonic clock; 0 if there is none.
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
    fn lasts(&self, now: u64) -> u64 {
        match self.since.load(Ordering::Relaxed) {
            0 => 0,
            since => now.saturating_sub(since),
        }
    }

    /// Reports the write that is under way, if it takes too long: see [`Device::report`].
    pub(crate) fn look(&self, info: &Info, limit_ms: u64) {
        let now = info.clock.monotonic_nanos();
        self.report(info, self.lasts(now), limit_ms);
    }

    /// Reports a write that has taken `nanos`, if that is `limit_ms` or more and was not reported yet. 0 is no limit.
    pub(crate) fn report(&self, info: &Info, nanos: u64, limit_ms: u64) {
        let is_slow = limit_ms > 0 && nanos >= limit_ms * 1_000_000;
        if !is_slow || self.told.swap(true, Ordering::Relaxed) {
            return;
        }
        info.log.warn(format_args!(
            "slow device: a log write takes {} ms so far (wal_slow_io_ms = {limit_ms}); writers wait, \
             nothing is lost",
            nanos / 1_000_000
        ));
        // Only now: a reader of the count must find the line in LOG.
        info.count(Ticker::WalSlowIo, 1);
    }
}
