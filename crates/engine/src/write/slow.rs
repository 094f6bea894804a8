//! Notices a device that does not answer. A log write that takes longer than `wal_slow_io_ms` is reported
//! while it lasts; it is no failure.

use base::stats::Ticker;
use base::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::shared::Shared;

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
}

impl Shared {
    /// Reports the log write that is under way, if it takes too long.
    pub(crate) fn look_at_device(&self) {
        let since = self.device.since.load(Ordering::Relaxed);
        if since != 0 {
            let now = self.env().clock.monotonic_nanos();
            self.note_slow(now.saturating_sub(since));
        }
    }

    /// Reports a log write that has taken `nanos`, if that is too long and was not reported yet.
    pub(crate) fn note_slow(&self, nanos: u64) {
        let limit = self.options.db.wal_slow_io_ms;
        if limit == 0 || nanos < limit * 1_000_000 || self.device.told.swap(true, Ordering::Relaxed)
        {
            return;
        }
        self.info_log.warn(format_args!(
            "slow device: a log write takes {} ms so far (wal_slow_io_ms = {limit}); writers wait, \
             nothing is lost",
            nanos / 1_000_000
        ));
        // Not before: whoever sees the count finds the line in LOG.
        self.count(Ticker::WalSlowIo, 1);
    }
}
