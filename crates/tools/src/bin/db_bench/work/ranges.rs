//! Loops over ranges of keys.

use base::Result;
use base::stats::Histogram;

use super::Worker;
use crate::benchmarks::Plan;
use crate::engine::{Bounds, Cursor, Engine};
use crate::keys::random_number;
use crate::stats::Op;

/// Bytes of keys and values in the longest range of `multiscanrandom`.
const RANGE_BYTES: u64 = 1 << 20;
/// Maximum number of ranges that it reads at once.
const RANGES: u64 = 64;

/// Keys in a range of `multiscan` without `--seek_nexts`, as in RocksDB's db_bench.
const STRIDED_KEYS: u64 = 50;

/// Keys in the longest range of `multiscanrandom`.
fn longest(plan: &Plan) -> u64 {
    (RANGE_BYTES / (plan.key_size + plan.value_size).max(1) as u64).max(1)
}

/// Sorts ranges by start, and cuts off the part of each range that lies in an earlier one. Each
/// range is a start and a length.
fn without_overlaps(mut ranges: Vec<(u64, u64)>) -> Vec<(u64, u64)> {
    ranges.sort_unstable();
    let mut end = 0;
    ranges.retain_mut(|(start, len)| {
        let own_end = *start + *len;
        *start = (*start).max(end);
        *len = own_end.saturating_sub(*start);
        end = end.max(own_end);
        *len > 0
    });
    ranges
}

impl<E: Engine> Worker<'_, E> {
    /// Up to 64 random ranges that do not overlap.
    fn random_ranges(&mut self) -> Vec<(u64, u64)> {
        let (plan, longest) = (self.plan, longest(self.plan));
        let count = 1 + self.rng.below(RANGES);
        let random = (0..count).map(|_| {
            let len = 1 + self.rng.below(longest);
            let starts = plan.num.saturating_sub(len) + 1;
            (random_number(&mut self.rng, starts, 0.0), len)
        });
        without_overlaps(random.collect())
    }

    /// `--multiscan_size` ranges of `--seek_nexts` keys, with `--multiscan_stride` keys between them.
    fn strided_ranges(&mut self) -> Vec<(u64, u64)> {
        let (flags, num) = (self.flags, self.plan.num.max(1));
        let len = match u64::try_from(flags.seek_nexts) {
            Ok(0) | Err(_) => STRIDED_KEYS,
            Ok(len) => len,
        };
        let step = len.saturating_add(flags.multiscan_stride);
        let all = step.saturating_mul(flags.multiscan_size);
        let starts = num.saturating_sub(all).max(1);
        let start = random_number(&mut self.rng, starts, 0.0);
        let nth = |n: u64| start.saturating_add(step.saturating_mul(n));
        let firsts = (0..flags.multiscan_size).map(nth);
        firsts
            .take_while(|first| *first < num)
            .map(|first| (first, len.min(num - first)))
            .collect()
    }

    /// Reads several ranges: with one call, or one after the other with one cursor.
    pub(super) fn scan_ranges(&mut self, is_random: bool) -> Result<()> {
        let (flags, reverse) = (self.flags, self.flags.reverse_iterator);
        let (keys, mut limit) = (self.keys(), self.limit());
        let (mut scans, mut rows, mut taken) = (0u64, 0u64, 1);
        // RocksDB: a scan takes as many of the reads as it had keys.
        while limit.take(taken, &self.stats) {
            self.pick_engine();
            let mut ranges = if is_random {
                self.random_ranges()
            } else {
                self.strided_ranges()
            };
            if reverse {
                ranges.reverse();
            }
            let of = |n| {
                let mut key = keys.room();
                keys.write(n, &mut key);
                key
            };
            let bounds = ranges
                .iter()
                .map(|(start, len)| (of(*start), of(start + len)));
            let bounds: Vec<_> = bounds.collect();
            let rows_before = rows;
            if flags.use_multiscan {
                rows += self.engine.multi_scan(&bounds, reverse)?;
            } else {
                let mut cursor = self.engine.cursor(Bounds::default())?;
                for ((begin, end), (_, len)) in bounds.iter().zip(ranges) {
                    rows += scan(&mut cursor, (begin, end), len, reverse);
                    cursor.status()?;
                }
            }
            taken = (rows - rows_before).max(1);
            scans += 1;
            self.stats.finished(1, Op::MultiScan);
            self.pace_reads(1);
        }
        let each = rows.checked_div(scans).unwrap_or(0);
        self.stats.add_message(&format!(
            "(multiscans:{scans} rows_scanned:{rows} rows_per_multiscan:{each} \
             max_range_keys:{})",
            longest(self.plan)
        ));
        Ok(())
    }

    /// Estimates the number of memtable entries in ranges of `batch_size` keys.
    pub(super) fn memtable_stats(&mut self) -> Result<()> {
        let (keys, mut limit, len) = (self.keys(), self.limit(), self.plan.batch_size);
        let (mut begin, mut end) = (keys.room(), keys.room());
        let mut counts = Histogram::default();
        while limit.take(1, &self.stats) {
            self.pick_engine();
            let starts = self.plan.num.saturating_sub(len);
            let start = random_number(&mut self.rng, starts, 0.0);
            keys.write(start, &mut begin);
            keys.write(start + len, &mut end);
            let (count, _) = self.engine.memtable_stats(&begin, &end)?;
            counts.add(count);
            self.stats.finished(1, Op::Other);
        }
        self.stats
            .add_message(&format!("\nReported entry count stats (expected {len}):"));
        self.stats.add_message(&format!("\n{counts}"));
        Ok(())
    }
}

/// Reads the keys from `begin` up to `end`, at most `most` keys, in either direction. Returns their
/// number.
fn scan(cursor: &mut impl Cursor, (begin, end): (&[u8], &[u8]), most: u64, reverse: bool) -> u64 {
    let mut rows = 0;
    if reverse {
        cursor.seek_for_prev(end);
        if cursor.valid() && cursor.key() >= end {
            cursor.prev();
        }
        while rows < most && cursor.valid() && cursor.key() >= begin {
            rows += 1;
            cursor.prev();
        }
    } else {
        cursor.seek(begin);
        while rows < most && cursor.valid() && cursor.key() < end {
            rows += 1;
            cursor.next();
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_lose_what_others_have() {
        let ranges = vec![(50, 10), (0, 10), (5, 10), (52, 3), (5, 2)];
        assert_eq!(without_overlaps(ranges), [(0, 10), (10, 5), (50, 10)]);
    }
}
