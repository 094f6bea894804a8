//! Counters and histograms, which one thread writes and others read at any time.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use base::metrics::Metrics;

/// Buckets of a histogram: two for each doubling, from 8 µs on. One more is for all longer times.
const BUCKETS: usize = 42;

/// The upper bound of a bucket, µs.
fn bound_us(nth: usize) -> u64 {
    let power = 8_u64 << (nth / 2);
    if nth.is_multiple_of(2) {
        power
    } else {
        power + power / 2
    }
}

/// A counter or a gauge.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds to it.
    pub fn add(&self, n: u64) {
        self.0.fetch_add(n, Ordering::Relaxed);
    }

    /// Sets a gauge.
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// The current value.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A histogram of durations.
#[derive(Debug)]
pub struct Histogram {
    buckets: [Counter; BUCKETS + 1],
    nanos: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| Counter::default()),
            nanos: Counter::default(),
        }
    }
}

impl Histogram {
    /// Notes a duration.
    pub fn note(&self, nanos: u64) {
        let us = nanos / 1000;
        // Finds the doubling first, then its half.
        let doubling = (us.max(1) / 8).checked_ilog2().map_or(0, |d| d as usize);
        let from = (doubling * 2).min(BUCKETS);
        let nth = (from..BUCKETS)
            .find(|&n| us < bound_us(n))
            .unwrap_or(BUCKETS);
        if let Some(bucket) = self.buckets.get(nth) {
            bucket.add(1);
        }
        self.nanos.add(nanos);
    }

    /// Number of durations.
    pub fn count(&self) -> u64 {
        self.buckets.iter().map(Counter::get).sum()
    }

    /// Sum of all durations.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.nanos.get())
    }

    /// Writes the samples of a Prometheus histogram, in seconds.
    pub fn write(&self, labels: &[(&str, &str)], out: &mut Metrics) {
        let mut all = 0;
        for (nth, bucket) in self.buckets.iter().enumerate() {
            all += bucket.get();
            let bound = if nth < BUCKETS {
                format!("{}", bound_us(nth) as f64 / 1e6)
            } else {
                "+Inf".to_owned()
            };
            let mut labels = labels.to_vec();
            labels.push(("le", &bound));
            out.sample_of("_bucket", &labels, all);
        }
        out.sample_of("_sum", labels, self.sum().as_secs_f64());
        out.sample_of("_count", labels, all);
    }
}

#[cfg(test)]
mod tests {
    use base::metrics::Kind;

    use super::*;

    #[test]
    fn every_time_is_in_the_bucket_of_its_bounds() {
        for us in (0..4000).chain([1 << 20, 1 << 40]) {
            let h = Histogram::default();
            h.note(us * 1000 + 999);
            let nth = h.buckets.iter().position(|b| b.get() == 1).unwrap();
            assert!(nth == BUCKETS || us < bound_us(nth), "{us}");
            assert!(nth == 0 || us >= bound_us(nth - 1), "{us}");
            assert_eq!(h.count(), 1);
        }
    }

    #[test]
    fn prometheus_reads_sums_of_buckets() {
        let h = Histogram::default();
        h.note(9_000);
        h.note(100_000_000_000);
        let mut m = Metrics::default();
        m.family("x_seconds", Kind::Histogram, "Times");
        h.write(&[("part", "log")], &mut m);
        let text = m.text();
        assert!(text.contains("x_seconds_bucket{part=\"log\",le=\"0.000008\"} 0\n"));
        assert!(text.contains("x_seconds_bucket{part=\"log\",le=\"0.000012\"} 1\n"));
        assert!(text.contains("x_seconds_bucket{part=\"log\",le=\"+Inf\"} 2\n"));
        assert!(
            text.ends_with("x_seconds_count{part=\"log\"} 2\n"),
            "{text}"
        );
    }
}
