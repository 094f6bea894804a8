//! Histograms with RocksDB's buckets, percentiles and layout.
//!
//! The bucket limits are 1, 2 and then each 1.5 times the one before, truncated to the leading two
//! digits; a bucket holds the values up to and including its limit.
//!
//! [`Histogram`] belongs to one thread, or is the sum of many; [`Shared`] is added to by several
//! threads at once.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Number of buckets that values of 64 bits need.
const BUCKETS: usize = 109;

/// A distribution of values: times in microseconds, sizes in bytes, numbers of things.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    min: u64,
    max: u64,
    count: u64,
    sum: u64,
    sum_of_squares: f64,
}

fn limits() -> &'static [u64] {
    static LIMITS: OnceLock<Vec<u64>> = OnceLock::new();
    LIMITS.get_or_init(|| {
        let mut limits = vec![1u64, 2];
        let mut next = 2.0 * 1.5;
        while next < u64::MAX as f64 {
            let mut limit = next as u64;
            let mut scale = 1;
            while limit / 10 > 10 {
                limit /= 10;
                scale *= 10;
            }
            limits.push(limit * scale);
            next *= 1.5;
        }
        limits
    })
}

fn bucket_of(value: u64) -> usize {
    let bucket = limits().partition_point(|&limit| limit < value);
    bucket.min(BUCKETS - 1)
}

impl Histogram {
    /// Without any value.
    pub fn new() -> Self {
        Self {
            counts: vec![0; BUCKETS],
            min: u64::MAX,
            max: 0,
            count: 0,
            sum: 0,
            sum_of_squares: 0.0,
        }
    }

    /// Counts a value.
    pub fn add(&mut self, value: u64) {
        self.counts[bucket_of(value)] += 1;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.count += 1;
        self.sum = self.sum.wrapping_add(value);
        self.sum_of_squares += value as f64 * value as f64;
    }

    /// Whether no value was counted.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The sum of all values.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// The smallest value; 0 if there is none.
    pub fn min(&self) -> u64 {
        if self.count == 0 { 0 } else { self.min }
    }

    /// The largest value; 0 if there is none.
    pub fn max(&self) -> u64 {
        self.max
    }

    /// Adds what another histogram counted.
    pub fn merge(&mut self, other: &Self) {
        for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
            *mine += theirs;
        }
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
        self.count += other.count;
        self.sum = self.sum.wrapping_add(other.sum);
        self.sum_of_squares += other.sum_of_squares;
    }

    /// The value that `percent` of the values do not exceed, interpolated within its bucket; 0 if
    /// there is none.
    pub fn percentile(&self, percent: f64) -> f64 {
        let threshold = self.count as f64 * (percent / 100.0);
        let mut below = 0;
        for (bucket, &count) in self.counts.iter().enumerate() {
            if (below + count) as f64 >= threshold {
                let (left, right) = bounds(bucket);
                let position = if count == 0 {
                    0.0
                } else {
                    (threshold - below as f64) / count as f64
                };
                let value = left as f64 + (right - left) as f64 * position;
                return value.max(self.min() as f64).min(self.max as f64);
            }
            below += count;
        }
        self.max as f64
    }

    /// The mean; 0 if there is no value.
    pub fn average(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        self.sum as f64 / self.count as f64
    }

    /// The standard deviation; 0 if there is no value.
    pub fn standard_deviation(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let average = self.average();
        let variance = self.sum_of_squares / self.count as f64 - average * average;
        variance.max(0.0).sqrt()
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Self::new()
    }
}

fn bounds(bucket: usize) -> (u64, u64) {
    let limits = limits();
    let left = if bucket == 0 { 0 } else { limits[bucket - 1] };
    (left, limits[bucket])
}

impl fmt::Display for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (count, average) = (self.count, self.average());
        let deviation = self.standard_deviation();
        writeln!(
            f,
            "Count: {count} Average: {average:.4}  StdDev: {deviation:.2}"
        )?;
        let median = self.percentile(50.0);
        writeln!(
            f,
            "Min: {}  Median: {median:.4}  Max: {}",
            self.min(),
            self.max
        )?;
        writeln!(
            f,
            "Percentiles: P50: {:.2} P75: {:.2} P99: {:.2} P99.9: {:.2} P99.99: {:.2}",
            median,
            self.percentile(75.0),
            self.percentile(99.0),
            self.percentile(99.9),
            self.percentile(99.99)
        )?;
        writeln!(f, "{}", "-".repeat(54))?;
        let scale = 100.0 / count.max(1) as f64;
        let mut total = 0;
        for (bucket, &n) in self.counts.iter().enumerate().filter(|(_, n)| **n > 0) {
            total += n;
            let (left, right) = bounds(bucket);
            let (share, upto) = (scale * n as f64, scale * total as f64);
            let open = if bucket == 0 { '[' } else { '(' };
            let marks = "#".repeat((share / 5.0 + 0.5) as usize);
            writeln!(
                f,
                "{open} {left:7}, {right:7} ] {n:8} {share:7.3}% {upto:7.3}% {marks}"
            )?;
        }
        Ok(())
    }
}

/// A histogram that several threads add to.
#[derive(Debug)]
pub struct Shared {
    counts: [AtomicU64; BUCKETS],
    min: AtomicU64,
    max: AtomicU64,
    sum: AtomicU64,
    /// The sum of the values' squares; it wraps like RocksDB's.
    sum_of_squares: AtomicU64,
}

impl Shared {
    /// Without any value.
    pub fn new() -> Self {
        Self {
            counts: [const { AtomicU64::new(0) }; BUCKETS],
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            sum_of_squares: AtomicU64::new(0),
        }
    }

    /// Counts a value.
    pub fn add(&self, value: u64) {
        self.counts[bucket_of(value)].fetch_add(1, Ordering::Relaxed);
        if value < self.min.load(Ordering::Relaxed) {
            self.min.fetch_min(value, Ordering::Relaxed);
        }
        if value > self.max.load(Ordering::Relaxed) {
            self.max.fetch_max(value, Ordering::Relaxed);
        }
        self.sum.fetch_add(value, Ordering::Relaxed);
        let square = value.wrapping_mul(value);
        self.sum_of_squares.fetch_add(square, Ordering::Relaxed);
    }

    /// Adds the counts so far to `out`.
    pub fn collect(&self, out: &mut Histogram) {
        for (mine, theirs) in out.counts.iter_mut().zip(&self.counts) {
            let n = theirs.load(Ordering::Relaxed);
            *mine += n;
            out.count += n;
        }
        out.min = out.min.min(self.min.load(Ordering::Relaxed));
        out.max = out.max.max(self.max.load(Ordering::Relaxed));
        out.sum = out.sum.wrapping_add(self.sum.load(Ordering::Relaxed));
        out.sum_of_squares += self.sum_of_squares.load(Ordering::Relaxed) as f64;
    }

    /// Removes all values.
    pub fn reset(&self) {
        for n in &self.counts {
            n.store(0, Ordering::Relaxed);
        }
        self.min.store(u64::MAX, Ordering::Relaxed);
        self.max.store(0, Ordering::Relaxed);
        self.sum.store(0, Ordering::Relaxed);
        self.sum_of_squares.store(0, Ordering::Relaxed);
    }
}

impl Default for Shared {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_are_rocksdbs() {
        let expected = [
            1, 2, 3, 4, 6, 10, 15, 22, 34, 51, 76, 110, 170, 250, 380, 580, 870, 1300,
        ];
        assert_eq!(limits()[..18], expected);
        assert_eq!(limits().len(), BUCKETS);
        assert_eq!(bucket_of(0), 0);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn layout_and_percentiles_are_rocksdbs() {
        // The counts of a real readreverse of RocksDB 7.8.3, and what it printed for them.
        let (mut h, shared) = (Histogram::new(), Shared::new());
        for (value, count) in [
            (0, 9949),
            (2, 45),
            (3, 1),
            (5, 1),
            (8, 2),
            (40, 1),
            (261, 1),
        ] {
            for _ in 0..count {
                h.add(value);
                shared.add(value);
            }
        }
        let text = h.to_string();
        let after = text.split_once('\n').unwrap().1;
        assert_eq!(
            after,
            "Min: 0  Median: 0.5026  Max: 261\n\
             Percentiles: P50: 0.50 P75: 0.75 P99: 1.00 P99.9: 1.91 P99.99: 51.00\n\
             ------------------------------------------------------\n\
             [       0,       1 ]     9949  99.490%  99.490% ####################\n\
             (       1,       2 ]       45   0.450%  99.940% \n\
             (       2,       3 ]        1   0.010%  99.950% \n\
             (       4,       6 ]        1   0.010%  99.960% \n\
             (       6,      10 ]        2   0.020%  99.980% \n\
             (      34,      51 ]        1   0.010%  99.990% \n\
             (     250,     380 ]        1   0.010% 100.000% \n"
        );
        let mut twice = h.clone();
        twice.merge(&h);
        assert_eq!(twice.count(), 20000);
        assert!((twice.percentile(50.0) - h.percentile(50.0)).abs() < 1e-9);
        let mut collected = Histogram::new();
        shared.collect(&mut collected);
        assert_eq!(collected.to_string(), text);
        shared.reset();
        let mut nothing = Histogram::new();
        shared.collect(&mut nothing);
        assert!(nothing.is_empty());
        assert_eq!((nothing.min(), nothing.max()), (0, 0));
    }
}
