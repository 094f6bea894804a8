//! Chooses the column family of an operation: `--num_column_families`, `--num_hot_column_families`
//! and `--column_family_distribution`.
//!
//! The number of a key determines its family, so that a read benchmark finds the keys of an earlier
//! fill. Only the hot families are used at a time; fill benchmarks move on to the next families in
//! stages.

use std::sync::atomic::{AtomicUsize, Ordering};

use base::{Error, Result};

use crate::flags::Flags;

/// The families of a run.
#[derive(Debug)]
pub(crate) struct Families {
    all: usize,
    hot: usize,
    /// Percentage of operations for each hot family; empty: all families get the same share.
    shares: Vec<u64>,
    /// The current stage: the first hot families, the next ones, and so on.
    stage: AtomicUsize,
}

impl Families {
    /// The families that the flags ask for. Errors: an invalid distribution.
    pub(crate) fn new(flags: &Flags) -> Result<Self> {
        let all = flags.num_column_families.max(1).unsigned_abs() as usize;
        let hot = match flags.num_hot_column_families.max(0).unsigned_abs() as usize {
            0 => all,
            hot => hot.min(all),
        };
        let text = &flags.column_family_distribution;
        let mut shares = Vec::new();
        if all > 1 && !text.is_empty() {
            let numbers: Option<Vec<u64>> =
                text.split(',').map(|n| n.trim().parse().ok()).collect();
            shares = numbers.unwrap_or_default();
            if shares.iter().sum::<u64>() != 100 || shares.len() != hot {
                return Err(Error::invalid_argument(format!(
                    "column_family_distribution {text}: must be {hot} numbers whose sum is 100"
                )));
            }
        }
        Ok(Self {
            all,
            hot,
            shares,
            stage: AtomicUsize::new(0),
        })
    }

    /// The number of the family for the key with this number.
    #[inline]
    pub(crate) fn of(&self, number: u64) -> usize {
        if self.all == 1 {
            return 0;
        }
        self.among_hot(number) + self.stage.load(Ordering::Acquire) * self.hot
    }

    fn among_hot(&self, number: u64) -> usize {
        if self.shares.is_empty() {
            return (number % self.hot as u64) as usize;
        }
        let (percent, mut sum) = (number % 100, 0);
        // As RocksDB has it: a share of 10 is that of the numbers 0 to 10.
        let place = self.shares.iter().position(|share| {
            sum += share;
            sum >= percent
        });
        place.unwrap_or(0)
    }

    /// Switches to the hot families for write number `next` of `writes`, unless a later stage has begun
    /// already.
    #[inline]
    pub(crate) fn enter(&self, next: u64, writes: u64) {
        let stages = self.all / self.hot;
        if stages > 1 {
            let last = writes.saturating_sub(1);
            let stage = next.min(last) / (last / stages as u64 + 1);
            let stage = (stage as usize).min(stages - 1);
            self.stage.fetch_max(stage, Ordering::AcqRel);
        }
    }

    /// Returns to the first families, because the database is new.
    pub(crate) fn restart(&self) {
        self.stage.store(0, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn families(all: i32, hot: i32, distribution: &str) -> Result<Families> {
        Families::new(&Flags {
            num_column_families: all,
            num_hot_column_families: hot,
            column_family_distribution: distribution.to_owned(),
            ..Flags::default()
        })
    }

    #[test]
    fn a_number_picks_a_hot_family() {
        let four = families(4, 0, "").unwrap();
        let of: Vec<usize> = (0..6).map(|n| four.of(n)).collect();
        assert_eq!(of, [0, 1, 2, 3, 0, 1]);
        assert_eq!(families(1, 0, "").unwrap().of(77), 0);

        let stages = families(6, 2, "").unwrap();
        stages.enter(99, 300);
        assert_eq!((stages.of(0), stages.of(1), stages.of(2)), (0, 1, 0));
        stages.enter(100, 300);
        assert_eq!((stages.of(0), stages.of(1), stages.of(2)), (2, 3, 2));
        stages.enter(700, 300);
        stages.enter(1, 300);
        assert_eq!(stages.of(1), 5);
        stages.restart();
        assert_eq!(stages.of(1), 1);
    }

    #[test]
    fn shares_are_hundredths() {
        let families_of = families(3, 0, "10,20,70").unwrap();
        let mut counts = [0; 3];
        for number in 0..1000 {
            counts[families_of.of(number)] += 1;
        }
        assert_eq!(counts, [110, 200, 690]);
        let e = families(3, 0, "10,20,71").unwrap_err().to_string();
        assert!(e.contains("must be 3 numbers whose sum is 100"), "{e}");
        assert!(families(3, 2, "10,20,70").is_err());
    }
}
