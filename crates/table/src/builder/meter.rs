//! Statistics about the writing of a table.

use std::sync::Arc;

use base::clock::Clock;
use base::perf::{self, PerfCounter, PerfLevel};
use base::stats::{Activity, HistogramKind, Statistics, Ticker};

use crate::compress::CompressionType;

/// Records statistics about the writing of one table.
#[derive(Clone, Debug, Default)]
pub(super) struct WriteMeter {
    pub(super) clock: Option<Arc<dyn Clock>>,
    pub(super) statistics: Option<Arc<Statistics>>,
    pub(super) activity: Activity,
}

impl WriteMeter {
    /// Starts a timer for an operation that is not frequent.
    pub(super) fn timer(&self) -> Option<u64> {
        let wanted = self.statistics.as_ref().is_some_and(|s| s.wants_times())
            || perf::level() > PerfLevel::EnableCount;
        let clock = self.clock.as_ref().filter(|_| wanted)?;
        Some(clock.monotonic_nanos())
    }

    /// Starts a timer for a compression.
    pub(super) fn detailed_timer(&self) -> Option<u64> {
        let statistics = self.statistics.as_ref();
        let wanted = statistics.is_some_and(|s| s.wants_detailed_times());
        let clock = self.clock.as_ref().filter(|_| wanted)?;
        Some(clock.monotonic_nanos())
    }

    fn nanos(&self, timer: Option<u64>) -> Option<u64> {
        let now = self.clock.as_ref()?.monotonic_nanos();
        Some(now.saturating_sub(timer?))
    }

    /// Records that a block was appended.
    pub(super) fn block(&self, timer: Option<u64>) {
        if let (Some(s), Some(nanos)) = (&self.statistics, self.nanos(timer)) {
            s.record_time(HistogramKind::WriteRawBlockMicros, nanos / 1000);
        }
    }

    /// Records that bytes were written to the file.
    pub(super) fn written(&self, bytes: u64, timer: Option<u64>) {
        perf::count(PerfCounter::IoBytesWritten, bytes);
        let timed = perf::level() > PerfLevel::EnableCount;
        if let (Some(clock), true) = (&self.clock, timed) {
            perf::stop(PerfCounter::IoWriteNanos, clock.as_ref(), timer);
        }
        if let (Some(s), Some(nanos)) = (&self.statistics, self.nanos(timer)) {
            s.record_time(HistogramKind::SstWriteMicros, nanos / 1000);
            if let Some(own) = self.activity.write_histogram() {
                s.record_time(own, nanos / 1000);
            }
        }
    }

    /// Records that a block was compressed.
    pub(super) fn compressed(&self, timer: Option<u64>) {
        if let (Some(s), Some(nanos)) = (&self.statistics, self.nanos(timer)) {
            s.record_time(HistogramKind::CompressionTimesNanos, nanos);
        }
    }
}

/// Number of blocks, and their bytes before compression.
#[derive(Clone, Copy, Debug, Default)]
struct Blocks {
    count: u64,
    bytes: u64,
}

impl Blocks {
    fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes as u64;
    }
}

/// Outcomes of compression for the blocks that may be compressed: data and index blocks.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Compression {
    compressed: Blocks,
    stored_bytes: u64,
    rejected: Blocks,
    bypassed: Blocks,
}

impl Compression {
    /// Counts a block of `raw` bytes that is stored in `stored` bytes; `None` if it is stored uncompressed.
    pub(super) fn add(&mut self, kind: CompressionType, raw: usize, stored: Option<usize>) {
        match stored {
            _ if kind == CompressionType::None => self.bypassed.add(raw),
            Some(stored) => {
                self.compressed.add(raw);
                self.stored_bytes += stored as u64;
            }
            None => self.rejected.add(raw),
        }
    }

    /// Number of blocks that are stored compressed.
    pub(super) fn count(&self) -> u64 {
        self.compressed.count
    }

    /// Adds the counts to the tickers.
    pub(super) fn tell(&self, s: &Statistics) {
        s.add(Ticker::NumberBlockCompressed, self.compressed.count);
        s.add(Ticker::BytesCompressedFrom, self.compressed.bytes);
        s.add(Ticker::BytesCompressedTo, self.stored_bytes);
        s.add(Ticker::NumberBlockCompressionRejected, self.rejected.count);
        s.add(Ticker::BytesCompressionRejected, self.rejected.bytes);
        s.add(Ticker::NumberBlockCompressionBypassed, self.bypassed.count);
        s.add(Ticker::BytesCompressionBypassed, self.bypassed.bytes);
    }
}
