//! Statistics about reads of a table's file: number, bytes and times.
//!
//! Without statistics and with the perf level off, they cost two branches per read.

use std::sync::Arc;

use base::clock::Clock;
use base::perf::{self, PerfCounter, PerfLevel};
use base::stats::{Activity, HistogramKind, SharedHistogram, Statistics, Ticker};
use base::{Error, Result};
use io::{File, IoPriority, RateLimiter, read_exact_at};

/// Records statistics about the reads of one table.
#[derive(Clone, Debug, Default)]
pub struct ReadMeter {
    /// The clock; without it, no times are recorded.
    pub clock: Option<Arc<dyn Clock>>,
    /// Tickers and histograms of the database.
    pub statistics: Option<Arc<Statistics>>,
    /// Latencies in microseconds of the reads of all tables on the same level.
    pub latency: Option<Arc<SharedHistogram>>,
    /// Whether the table is on the last level.
    pub last_level: bool,
    /// The rate limiter for reads with a priority.
    pub limiter: Option<Arc<RateLimiter>>,
}

impl ReadMeter {
    /// Whether reads with this priority may have to wait.
    pub(super) fn limits(&self, priority: Option<IoPriority>) -> bool {
        self.limiter.is_some() && priority.is_some()
    }

    /// Waits until `bytes` may be read.
    #[inline]
    pub(super) fn charge(&self, bytes: u64, priority: Option<IoPriority>) {
        if let (Some(limiter), Some(priority)) = (&self.limiter, priority) {
            limiter.request(bytes, priority);
        }
    }

    /// Fills `bytes` from the file, and records the read.
    ///
    /// # Errors
    /// Those of reading.
    pub(super) fn read(
        &self,
        file: &dyn File,
        bytes: &mut [u8],
        offset: u64,
        activity: Activity,
    ) -> Result<()> {
        let timer = self.block_timer();
        let result = read_exact_at(file, bytes, offset);
        self.was_read(bytes.len() as u64, activity, timer);
        result
    }

    /// Records a read of `bytes`, with the timer from [`ReadMeter::block_timer`]; without one, no time is recorded.
    pub(super) fn was_read(&self, bytes: u64, activity: Activity, timer: Option<u64>) {
        perf::count(PerfCounter::IoBytesRead, bytes);
        if let Some(clock) = &self.clock {
            perf::stop(PerfCounter::IoReadNanos, clock.as_ref(), for_perf(timer));
        }
        if let Some(statistics) = &self.statistics {
            self.count(statistics, bytes, activity, timer);
        }
    }

    fn count(&self, s: &Statistics, bytes: u64, activity: Activity, timer: Option<u64>) {
        let (count, size) = if self.last_level {
            (Ticker::LastLevelReadCount, Ticker::LastLevelReadBytes)
        } else {
            (Ticker::NonLastLevelReadCount, Ticker::NonLastLevelReadBytes)
        };
        s.add(count, 1);
        s.add(size, bytes);
        let Some(micros) = self.micros(timer) else {
            return;
        };
        s.record_time(HistogramKind::SstReadMicros, micros);
        if let Some(own) = activity.read_histogram() {
            s.record_time(own, micros);
        }
        if let Some(latency) = &self.latency {
            latency.add(micros);
        }
    }

    /// Starts a timer for a read, or for reading a block including decompression.
    pub(super) fn block_timer(&self) -> Option<u64> {
        let wanted = self.statistics.as_ref().is_some_and(|s| s.wants_times());
        self.timer(wanted || perf::level() > PerfLevel::EnableCount)
    }

    /// Records the read of a block, with the timer from [`ReadMeter::block_timer`].
    pub(super) fn block_read(&self, histogram: HistogramKind, timer: Option<u64>) {
        if let Some(clock) = &self.clock {
            perf::stop(PerfCounter::BlockReadTime, clock.as_ref(), for_perf(timer));
        }
        if let (Some(s), Some(micros)) = (&self.statistics, self.micros(timer)) {
            s.record_time(histogram, micros);
        }
    }

    /// Verifies a checksum by `f`, and records it.
    pub(super) fn checksum(&self, f: impl FnOnce() -> Result<()>) -> Result<()> {
        let timer = self.timer(perf::level() > PerfLevel::EnableCount);
        let result = f();
        if let Some(clock) = &self.clock {
            perf::stop(PerfCounter::BlockChecksumTime, clock.as_ref(), timer);
        }
        let Some(s) = &self.statistics else {
            return result;
        };
        s.add(Ticker::BlockChecksumComputeCount, 1);
        if result.as_ref().is_err_and(Error::is_corruption) {
            s.add(Ticker::BlockChecksumMismatchCount, 1);
        }
        result
    }

    /// Decompresses by `f`, and records it. `from` is the number of compressed bytes, `to` that of the others.
    pub(super) fn decompress<T>(
        &self,
        from: usize,
        f: impl FnOnce() -> Result<T>,
        to: impl FnOnce(&T) -> usize,
    ) -> Result<T> {
        let statistics = self.statistics.as_ref();
        let detailed = statistics.is_some_and(|s| s.wants_detailed_times());
        let timer = self.timer(detailed || perf::level() > PerfLevel::EnableCount);
        let out = f()?;
        if let Some(clock) = &self.clock {
            let counter = PerfCounter::BlockDecompressTime;
            perf::stop(counter, clock.as_ref(), for_perf(timer));
        }
        if let Some(s) = statistics {
            s.add(Ticker::NumberBlockDecompressed, 1);
            s.add(Ticker::BytesDecompressedFrom, from as u64);
            s.add(Ticker::BytesDecompressedTo, to(&out) as u64);
            if let (true, Some(nanos)) = (detailed, self.nanos(timer)) {
                s.record_time(HistogramKind::DecompressionTimesNanos, nanos);
            }
        }
        Ok(out)
    }

    fn timer(&self, wanted: bool) -> Option<u64> {
        let clock = self.clock.as_ref().filter(|_| wanted)?;
        Some(clock.monotonic_nanos())
    }

    fn nanos(&self, timer: Option<u64>) -> Option<u64> {
        let now = self.clock.as_ref()?.monotonic_nanos();
        Some(now.saturating_sub(timer?))
    }

    fn micros(&self, timer: Option<u64>) -> Option<u64> {
        self.nanos(timer).map(|n| n / 1000)
    }
}

/// The timer, if the calling thread's perf level records times.
fn for_perf(timer: Option<u64>) -> Option<u64> {
    timer.filter(|_| perf::level() > PerfLevel::EnableCount)
}
