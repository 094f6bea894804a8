//! Statistics of a family's flushes, compactions and ingestions: the numbers of `rocksdb.cfstats`.
//!
//! All numbers count from the opening of the database. The numbers of an interval are the difference from the
//! last report, which [`Compactions::told`] returns.

use std::collections::BTreeMap;

use base::sync::{Mutex, MutexGuard, PoisonError, ranked};

use crate::locks;

/// The work that had a level as output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LevelStats {
    /// Number of flushes and compactions; trivial moves are not counted.
    pub(crate) count: u64,
    /// The reasons of flushes and compactions, and how often each occurred.
    pub(crate) reasons: BTreeMap<&'static str, u64>,
    /// Wall time in microseconds.
    pub(crate) micros: u64,
    /// CPU time in microseconds.
    pub(crate) cpu_micros: u64,
    /// Bytes of inputs on levels above.
    pub(crate) bytes_read_upper: u64,
    /// Bytes of inputs on the output level.
    pub(crate) bytes_read_output: u64,
    pub(crate) bytes_written: u64,
    /// Bytes of keys and values written, before compression.
    pub(crate) bytes_uncompressed: u64,
    /// Bytes of files that were moved to another level unchanged.
    pub(crate) bytes_moved: u64,
    pub(crate) files_in_upper: u64,
    pub(crate) files_in_output: u64,
    pub(crate) files_written: u64,
    pub(crate) records_in: u64,
    pub(crate) records_dropped: u64,
}

impl LevelStats {
    /// Adds the numbers of `other`.
    pub(crate) fn add(&mut self, other: &Self) {
        for (reason, n) in &other.reasons {
            *self.reasons.entry(reason).or_default() += n;
        }
        self.numbers(other, |mine, n| *mine += n);
    }

    /// The numbers since `earlier`, without reasons.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        let mut out = Self {
            reasons: BTreeMap::new(),
            ..self.clone()
        };
        out.numbers(earlier, |mine, n| *mine = mine.saturating_sub(n));
        out
    }

    fn numbers(&mut self, other: &Self, f: impl Fn(&mut u64, u64)) {
        f(&mut self.count, other.count);
        f(&mut self.micros, other.micros);
        f(&mut self.cpu_micros, other.cpu_micros);
        f(&mut self.bytes_read_upper, other.bytes_read_upper);
        f(&mut self.bytes_read_output, other.bytes_read_output);
        f(&mut self.bytes_written, other.bytes_written);
        f(&mut self.bytes_uncompressed, other.bytes_uncompressed);
        f(&mut self.bytes_moved, other.bytes_moved);
        f(&mut self.files_in_upper, other.files_in_upper);
        f(&mut self.files_in_output, other.files_in_output);
        f(&mut self.files_written, other.files_written);
        f(&mut self.records_in, other.records_in);
        f(&mut self.records_dropped, other.records_dropped);
    }

    /// Bytes of all inputs.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.bytes_read_upper + self.bytes_read_output
    }

    /// Whether there was no flush or compaction.
    pub(crate) fn is_nothing(&self) -> bool {
        self.micros == 0 && self.count == 0
    }
}

/// Data that was added to the family's tables by flushes and ingestions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Incoming {
    pub(crate) flushed_bytes: u64,
    /// Bytes of ingested files.
    pub(crate) added_bytes: u64,
    pub(crate) added_files: u64,
    pub(crate) added_l0_files: u64,
    pub(crate) added_keys: u64,
}

impl Incoming {
    fn add(&mut self, other: &Self) {
        self.flushed_bytes += other.flushed_bytes;
        self.added_bytes += other.added_bytes;
        self.added_files += other.added_files;
        self.added_l0_files += other.added_l0_files;
        self.added_keys += other.added_keys;
    }

    /// The data that came since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            flushed_bytes: self.flushed_bytes - earlier.flushed_bytes,
            added_bytes: self.added_bytes - earlier.added_bytes,
            added_files: self.added_files - earlier.added_files,
            added_l0_files: self.added_l0_files - earlier.added_l0_files,
            added_keys: self.added_keys - earlier.added_keys,
        }
    }

    /// All bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.flushed_bytes + self.added_bytes
    }
}

/// All numbers up to one moment.
#[derive(Clone, Debug, Default)]
pub(crate) struct Work {
    /// By output level; levels after the last entry have done nothing.
    pub(crate) levels: Vec<LevelStats>,
    /// Work of the low-priority threads: compactions.
    pub(crate) low: LevelStats,
    /// Work of the high-priority threads: flushes.
    pub(crate) high: LevelStats,
    pub(crate) incoming: Incoming,
}

impl Work {
    /// The sum over all levels.
    pub(crate) fn sum(&self) -> LevelStats {
        let mut out = LevelStats::default();
        self.levels.iter().for_each(|l| out.add(l));
        out
    }

    fn at(&mut self, level: usize) -> &mut LevelStats {
        if self.levels.len() <= level {
            self.levels.resize_with(level + 1, LevelStats::default);
        }
        &mut self.levels[level]
    }
}

/// The numbers of the last report, and its time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Told {
    pub(crate) nanos: u64,
    pub(crate) sum: LevelStats,
    pub(crate) incoming: Incoming,
}

/// The statistics of a family's flushes and compactions.
#[derive(Debug)]
pub(crate) struct Compactions {
    work: Mutex<Work>,
    told: Mutex<Told>,
    /// By level, for `kRoundRobin`: where the level's next compaction starts.
    cursors: Mutex<Vec<Option<Vec<u8>>>>,
}

impl Default for Compactions {
    fn default() -> Self {
        Self {
            work: ranked(locks::LEAF, Work::default()),
            told: ranked(locks::LEAF, Told::default()),
            cursors: ranked(locks::LEAF, Vec::new()),
        }
    }
}

impl Compactions {
    fn lock(&self) -> MutexGuard<'_, Work> {
        self.work.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a compaction to a level's numbers.
    pub(crate) fn add(&self, level: usize, stats: &LevelStats) {
        let mut work = self.lock();
        work.at(level).add(stats);
        work.low.add(stats);
    }

    /// Adds a flush.
    pub(crate) fn add_flush(&self, stats: &LevelStats) {
        let mut work = self.lock();
        work.at(0).add(stats);
        work.high.add(stats);
        work.incoming.flushed_bytes += stats.bytes_written;
    }

    /// Adds ingested files.
    pub(crate) fn add_files(&self, incoming: &Incoming) {
        self.lock().incoming.add(incoming);
    }

    /// The numbers since the database was opened.
    pub(crate) fn work(&self) -> Work {
        self.lock().clone()
    }

    /// The numbers of the last report, with which the current interval began.
    pub(crate) fn told(&self) -> Told {
        self.lock_told().clone()
    }

    /// Begins a new interval.
    pub(crate) fn tell(&self, now: Told) {
        *self.lock_told() = now;
    }

    fn lock_told(&self) -> MutexGuard<'_, Told> {
        self.told.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn cursors(&self) -> Vec<Option<Vec<u8>>> {
        self.cursors
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn set_cursor(&self, level: usize, key: Vec<u8>) {
        let mut cursors = self.cursors.lock().unwrap_or_else(PoisonError::into_inner);
        if cursors.len() <= level {
            cursors.resize(level + 1, None);
        }
        cursors[level] = Some(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_is_counted_by_level_by_priority_and_by_interval() {
        let c = Compactions::default();
        let flush = LevelStats {
            count: 1,
            micros: 10,
            bytes_written: 100,
            reasons: [("Manual Flush", 1)].into(),
            ..LevelStats::default()
        };
        let merge = LevelStats {
            count: 1,
            micros: 20,
            bytes_read_upper: 100,
            bytes_written: 60,
            ..LevelStats::default()
        };
        c.add_flush(&flush);
        c.add_flush(&flush);
        c.add(6, &merge);
        let work = c.work();
        assert_eq!((work.levels.len(), work.sum().count), (7, 3));
        assert_eq!((work.high.micros, work.low.micros), (20, 20));
        assert_eq!(work.incoming.bytes(), 200);
        assert_eq!(work.levels[0].reasons["Manual Flush"], 2);
        let told = Told {
            nanos: 5,
            sum: work.sum(),
            incoming: work.incoming,
        };
        assert_eq!(c.told().nanos, 0);
        c.tell(told);
        c.add(6, &merge);
        let (now, before) = (c.work(), c.told());
        assert_eq!(now.sum().since(&before.sum).bytes_written, 60);
        assert_eq!(now.incoming.since(&before.incoming), Incoming::default());
    }
}
