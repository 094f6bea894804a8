//! What compactions of a family did, by output level: the numbers behind `rocksdb.cfstats`.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// What was done with a level as output.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct LevelStats {
    /// Compactions, trivial moves not counted.
    pub(crate) count: u64,
    /// Why they were, and how often.
    pub(crate) reasons: BTreeMap<&'static str, u64>,
    /// Wall time of compactions.
    pub(crate) micros: u64,
    /// Bytes of inputs on levels above.
    pub(crate) bytes_read_upper: u64,
    /// Bytes of inputs on the output level.
    pub(crate) bytes_read_output: u64,
    pub(crate) bytes_written: u64,
    /// Bytes of files that changed their level as they were.
    pub(crate) bytes_moved: u64,
    pub(crate) files_in_upper: u64,
    pub(crate) files_in_output: u64,
    pub(crate) files_written: u64,
    pub(crate) records_in: u64,
    pub(crate) records_dropped: u64,
}

impl LevelStats {
    /// Adds what another has.
    pub(crate) fn add(&mut self, other: &Self) {
        self.count += other.count;
        for (reason, n) in &other.reasons {
            *self.reasons.entry(reason).or_default() += n;
        }
        self.micros += other.micros;
        self.bytes_read_upper += other.bytes_read_upper;
        self.bytes_read_output += other.bytes_read_output;
        self.bytes_written += other.bytes_written;
        self.bytes_moved += other.bytes_moved;
        self.files_in_upper += other.files_in_upper;
        self.files_in_output += other.files_in_output;
        self.files_written += other.files_written;
        self.records_in += other.records_in;
        self.records_dropped += other.records_dropped;
    }
}

/// What a family remembers of its compactions.
#[derive(Debug, Default)]
pub(crate) struct Compactions {
    levels: Mutex<Vec<LevelStats>>,
    /// By level: where the next compaction of the level starts, with `kRoundRobin`.
    cursors: Mutex<Vec<Option<Vec<u8>>>>,
}

impl Compactions {
    /// Adds to a level's numbers.
    pub(crate) fn add(&self, level: usize, stats: &LevelStats) {
        let mut levels = self.levels.lock().unwrap_or_else(PoisonError::into_inner);
        if levels.len() <= level {
            levels.resize_with(level + 1, LevelStats::default);
        }
        levels[level].add(stats);
    }

    /// The numbers since the database was opened; levels behind the last have none.
    pub(crate) fn levels(&self) -> Vec<LevelStats> {
        self.levels
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
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
