//! Statistics: counters ("tickers") and histograms under RocksDB's names.
//!
//! A [`Statistics`] is shared by all parts of a database. Without one, counting costs a branch.
//! Threads count in different shards, so that they do not contend for cache lines; a report adds the
//! shards up.

mod activity;
mod histogram;
mod names;

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use crate::metrics::{Kind, Metrics};

pub use activity::Activity;
pub use histogram::Histogram;
pub use histogram::Shared as SharedHistogram;
pub use names::{HistogramKind, Ticker};

/// How much is counted: each level includes the ones before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum StatsLevel {
    /// Nothing.
    DisableAll = 0,
    /// Tickers, without histograms.
    ExceptHistogramOrTimers = 1,
    /// Histograms too, except those of times.
    ExceptTimers = 2,
    /// Times too, except those that are measured so often that it is expensive: compression.
    ExceptDetailedTimers = 3,
    /// Everything.
    All = 5,
}

impl StatsLevel {
    fn from_u8(n: u8) -> Self {
        match n {
            0 => Self::DisableAll,
            1 => Self::ExceptHistogramOrTimers,
            2 => Self::ExceptTimers,
            3 => Self::ExceptDetailedTimers,
            _ => Self::All,
        }
    }
}

/// Maximum number of shards.
const SHARDS_MAX: usize = 16;

/// The counts of some of the threads.
#[derive(Debug)]
#[repr(align(128))]
struct Shard {
    tickers: Vec<AtomicU64>,
    histograms: Vec<histogram::Shared>,
}

/// One counter per [`Ticker`] and one distribution per [`HistogramKind`].
#[derive(Debug)]
pub struct Statistics {
    /// Their number is a power of two.
    shards: Vec<Shard>,
    level: AtomicU8,
}

/// The number of the calling thread, in the order of first use.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static MINE: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    MINE.with(|mine| {
        if mine.get() == usize::MAX {
            mine.set(NEXT.fetch_add(1, Ordering::Relaxed) & (usize::MAX >> 1));
        }
        mine.get()
    })
}

impl Statistics {
    /// All zero, at [`StatsLevel::ExceptDetailedTimers`], which is RocksDB's default too.
    pub fn new() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let shards = processors.next_power_of_two().min(SHARDS_MAX);
        Self {
            shards: (0..shards)
                .map(|_| Shard {
                    tickers: Ticker::ALL.iter().map(|_| AtomicU64::new(0)).collect(),
                    histograms: HistogramKind::ALL
                        .iter()
                        .map(|_| histogram::Shared::new())
                        .collect(),
                })
                .collect(),
            level: AtomicU8::new(StatsLevel::ExceptDetailedTimers as u8),
        }
    }

    /// Sets how much is counted.
    pub fn set_level(&self, level: StatsLevel) {
        self.level.store(level as u8, Ordering::Relaxed);
    }

    /// How much is counted.
    pub fn level(&self) -> StatsLevel {
        StatsLevel::from_u8(self.level.load(Ordering::Relaxed))
    }

    #[inline]
    fn shard(&self) -> &Shard {
        &self.shards[thread_number() & (self.shards.len() - 1)]
    }

    /// Adds `n` to a ticker.
    #[inline]
    pub fn add(&self, t: Ticker, n: u64) {
        if self.level() > StatsLevel::DisableAll {
            self.shard().tickers[t as usize].fetch_add(n, Ordering::Relaxed);
        }
    }

    /// Counts a value that is not a time: bytes or a number of things.
    #[inline]
    pub fn record(&self, h: HistogramKind, value: u64) {
        if self.level() > StatsLevel::ExceptHistogramOrTimers {
            self.shard().histograms[h as usize].add(value);
        }
    }

    /// Whether times are recorded: if not, the clock need not be read.
    #[inline]
    pub fn wants_times(&self) -> bool {
        self.level() > StatsLevel::ExceptTimers
    }

    /// Whether times of very frequent operations are recorded too.
    #[inline]
    pub fn wants_detailed_times(&self) -> bool {
        self.level() > StatsLevel::ExceptDetailedTimers
    }

    /// Counts a time, in the unit that the histogram's name says.
    #[inline]
    pub fn record_time(&self, h: HistogramKind, value: u64) {
        if self.wants_times() {
            self.shard().histograms[h as usize].add(value);
        }
    }

    /// The count of a ticker.
    pub fn get(&self, t: Ticker) -> u64 {
        self.shards
            .iter()
            .map(|s| s.tickers[t as usize].load(Ordering::Relaxed))
            .sum()
    }

    /// Returns the count of a ticker and resets it to zero.
    pub fn take(&self, t: Ticker) -> u64 {
        self.shards
            .iter()
            .map(|s| s.tickers[t as usize].swap(0, Ordering::Relaxed))
            .sum()
    }

    /// The histogram of a distribution.
    pub fn histogram(&self, h: HistogramKind) -> Histogram {
        let mut out = Histogram::new();
        for shard in &self.shards {
            shard.histograms[h as usize].collect(&mut out);
        }
        out
    }

    /// Sets everything to zero.
    pub fn reset(&self) {
        for shard in &self.shards {
            for t in &shard.tickers {
                t.store(0, Ordering::Relaxed);
            }
            for h in &shard.histograms {
                h.reset();
            }
        }
    }

    /// Everything in the text form that Prometheus collects: a counter for each ticker, a summary
    /// for each histogram. Dots in names become underscores.
    pub fn metrics_text(&self) -> String {
        let mut m = Metrics::default();
        self.metrics(&mut m);
        m.text()
    }

    /// Like [`Statistics::metrics_text`], appended to `m`.
    #[doc(hidden)]
    pub fn metrics(&self, m: &mut Metrics) {
        for &t in Ticker::ALL {
            m.family(t.name(), Kind::Counter, &format!("Ticker {}", t.name()));
            m.sample(&[], self.get(t));
        }
        for &kind in HistogramKind::ALL {
            let h = self.histogram(kind);
            let help = format!("Histogram {}", kind.name());
            m.family(kind.name(), Kind::Summary, &help);
            for (quantile, percent) in [("0.5", 50.0), ("0.95", 95.0), ("0.99", 99.0)] {
                m.sample(&[("quantile", quantile)], h.percentile(percent));
            }
            m.sample_of("_sum", &[], h.sum());
            m.sample_of("_count", &[], h.count());
        }
    }
}

impl Default for Statistics {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Statistics {
    /// One line for each ticker and each histogram, as RocksDB prints them.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for &t in Ticker::ALL {
            writeln!(f, "{} COUNT : {}", t.name(), self.get(t))?;
        }
        for &kind in HistogramKind::ALL {
            let h = self.histogram(kind);
            let p = |percent| h.percentile(percent);
            writeln!(
                f,
                "{} P50 : {:.6} P95 : {:.6} P99 : {:.6} P100 : {:.6} COUNT : {} SUM : {}",
                kind.name(),
                p(50.0),
                p(95.0),
                p(99.0),
                p(100.0),
                h.count(),
                h.sum()
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickers_count_and_print() {
        let s = Statistics::new();
        s.add(Ticker::BlockCacheMiss, 3);
        s.add(Ticker::BlockCacheMiss, 2);
        assert_eq!(s.get(Ticker::BlockCacheMiss), 5);
        assert!(
            s.to_string()
                .contains("rocksdb.block.cache.miss COUNT : 5\n")
        );
        assert_eq!(s.take(Ticker::BlockCacheMiss), 5);
        s.add(Ticker::BlockCacheMiss, 1);
        s.reset();
        assert_eq!(s.get(Ticker::BlockCacheMiss), 0);
    }

    #[test]
    fn histograms_print_as_rocksdbs() {
        let s = Statistics::new();
        for n in 1..=100 {
            s.record_time(HistogramKind::DbGet, n);
        }
        let line = "rocksdb.db.get.micros P50 : 50.4000 P95";
        let text = s.to_string();
        let got = text
            .lines()
            .find(|l| l.starts_with("rocksdb.db.get"))
            .unwrap();
        assert!(
            got.ends_with("P100 : 100.000000 COUNT : 100 SUM : 5050"),
            "{got}"
        );
        assert!(got.starts_with(&line[..28]), "{got}");
    }

    #[test]
    fn several_threads_count_together() {
        let s = Statistics::new();
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..1000 {
                        s.add(Ticker::BytesRead, 2);
                        s.record(HistogramKind::BytesPerRead, 7);
                    }
                });
            }
        });
        assert_eq!(s.get(Ticker::BytesRead), 8000);
        let h = s.histogram(HistogramKind::BytesPerRead);
        assert_eq!((h.count(), h.sum(), h.min(), h.max()), (4000, 28000, 7, 7));
    }

    #[test]
    fn levels_leave_out() {
        let s = Statistics::new();
        s.set_level(StatsLevel::ExceptTimers);
        s.record_time(HistogramKind::DbGet, 1);
        s.record(HistogramKind::BytesPerRead, 1);
        assert!(s.histogram(HistogramKind::DbGet).is_empty());
        assert!(!s.histogram(HistogramKind::BytesPerRead).is_empty());
        s.set_level(StatsLevel::DisableAll);
        s.add(Ticker::BytesRead, 1);
        assert_eq!(s.get(Ticker::BytesRead), 0);
    }

    #[test]
    fn metrics_have_names_that_prometheus_takes() {
        let s = Statistics::new();
        s.add(Ticker::BytesRead, 42);
        let text = s.metrics_text();
        assert!(text.contains("# TYPE rocksdb_bytes_read counter\nrocksdb_bytes_read 42\n"));
        assert!(text.contains("rocksdb_db_get_micros_count 0\n"));
        for line in text.lines().filter(|l| !l.starts_with('#')) {
            let name = line.split([' ', '{']).next().unwrap();
            assert!(
                name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'),
                "{line}"
            );
        }
    }
}
