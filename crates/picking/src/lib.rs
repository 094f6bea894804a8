//! Which files to compact: pure functions of the files, the options, the time and the running compactions.
//!
//! ```text
//!   automatic ─┬─ level      the level with the highest score into the next; then marked files, files
//!              │             with what a released snapshot kept, and old files
//!              ├─ universal  adjacent sorted runs of similar size
//!              └─ fifo       deletes the oldest files
//!   manual                   a range level by level; files by number; files to another level
//! ```
//!
//! The code here uses no threads, locks or tables. Files are given as [`Candidate`]s, so that tests can
//! write them as text. A pick is compatible with the running compactions: none of its files is in one of
//! them, and its output overlaps nothing that they will write to the same level.

pub mod candidates;
pub mod cut;
mod fifo;
mod files;
mod kept;
mod level;
mod level0;
pub mod manual;
mod score;
mod universal;

use std::sync::Arc;

pub use files::{Candidate, Counts, Levels, Range};
pub use kept::kept_until;

use files::total;
use options::{CfOptions, CompactionStyle};
use score::Targets;

/// The data from which a compaction is picked.
pub struct Input<'a, F> {
    /// The family's files.
    pub levels: Levels<'a, F>,
    /// The family's options.
    pub options: &'a CfOptions,
    /// Seconds since 1970.
    pub now: u64,
    /// Set once a snapshot has been released: the oldest sequence number that a snapshot still holds, or
    /// the highest number if there are no snapshots. Entries up to this number that are hidden by others up to this number can be dropped.
    pub oldest_snapshot: Option<u64>,
    /// The running compactions of this family.
    pub running: &'a [&'a Running],
    /// By level, for `kRoundRobin`: the key at which the next compaction of the level starts.
    pub cursors: &'a [Option<Vec<u8>>],
}

/// The properties of a running compaction that others must take into account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// A unique id.
    pub id: u64,
    /// The column family.
    pub family: u32,
    /// The uppermost level of its inputs.
    pub start_level: usize,
    /// The level that its outputs go to.
    pub output_level: usize,
    /// The range from the first to the last key of its inputs.
    pub range: Range,
    /// Whether it was requested by a call.
    pub manual: bool,
    /// Whether no other compaction may run at the same time.
    pub exclusive: bool,
}

/// What happens to the inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// They are merged into new files.
    Merge,
    /// They move to another level unchanged.
    Move,
    /// They are deleted.
    Delete,
}

/// The reason of a compaction that was requested by a call.
pub const MANUAL: &str = "ManualCompaction";

/// A compaction to do.
pub struct Plan<F> {
    /// Input files by level, from the upper level down; those of level 0 newest first.
    pub inputs: Vec<(usize, Vec<Arc<F>>)>,
    /// The level that its outputs go to.
    pub output_level: usize,
    /// What happens to the inputs.
    pub kind: Kind,
    /// RocksDB's name of the reason.
    pub reason: &'static str,
    /// The score of the uppermost input level.
    pub score: f64,
    /// Approximate size of an output file in bytes.
    pub target_file_bytes: u64,
    /// Files of the level after the output level that the inputs overlap, by key.
    pub grandparents: Vec<Arc<F>>,
    /// Bytes of grandparents that one output file may overlap.
    pub grandparent_bytes_max: u64,
    /// Whether the outputs are compressed according to the options; otherwise they are not compressed.
    pub compress: bool,
    /// The level that level 0 is compacted into.
    pub base_level: usize,
    /// Where the next compaction of a level starts: level and key.
    pub cursor: Option<(usize, Vec<u8>)>,
}

impl<F: Candidate> Plan<F> {
    /// Every input file with its level.
    pub fn files(&self) -> impl Iterator<Item = (usize, &Arc<F>)> {
        self.inputs
            .iter()
            .flat_map(|(level, files)| files.iter().map(move |f| (*level, f)))
    }

    /// The uppermost level of the inputs.
    pub fn start_level(&self) -> usize {
        self.inputs.first().map_or(0, |(level, _)| *level)
    }

    /// The size of the inputs in bytes.
    pub fn input_bytes(&self) -> u64 {
        total(self.files().map(|(_, f)| f))
    }
}

/// The compaction that is needed most, if any is needed and can run now.
pub fn automatic<F: Candidate>(input: &Input<'_, F>) -> Option<Plan<F>> {
    match input.options.compaction_style {
        CompactionStyle::Level => level::pick(input),
        CompactionStyle::Universal => universal::pick(input),
        CompactionStyle::Fifo => fifo::pick(input),
        CompactionStyle::None => None,
    }
}

/// Each level's score, by level; levels that are never compacted by score have 0.
pub fn scores<F: Candidate>(levels: &Levels<'_, F>, options: &CfOptions, now: u64) -> Vec<f64> {
    let targets = Targets::of(levels, options);
    let mut out = vec![0.0; levels.count()];
    for s in score::scores(levels, options, &targets, now) {
        if let Some(slot) = out.get_mut(s.level) {
            *slot = s.score;
        }
    }
    out
}

impl<F: Candidate> Input<'_, F> {
    /// Whether a compaction of `range` into `level` could overlap the output of a running one.
    fn conflicts(&self, range: &Range, level: usize) -> bool {
        let cmp = self.levels.comparator;
        self.running
            .iter()
            .any(|r| r.output_level == level && r.range.overlaps(cmp, range))
    }

    /// Whether a running compaction takes files of level 0.
    fn level0_is_busy(&self) -> bool {
        self.running.iter().any(|r| r.start_level == 0)
    }

    /// Size in bytes of an output file on a level.
    fn target_file_bytes(&self, level: usize, base_level: usize) -> u64 {
        let options = self.options;
        let relative = match options.compaction_style {
            CompactionStyle::Level
                if options.level_compaction_dynamic_level_bytes && level >= base_level =>
            {
                level - base_level + 1
            }
            CompactionStyle::Universal | CompactionStyle::Fifo if level == 0 => return u64::MAX,
            _ => level,
        };
        let factor = u64::from(options.target_file_size_multiplier.max(1).unsigned_abs());
        (1..relative).fold(options.target_file_size_base, |size, _| {
            size.saturating_mul(factor)
        })
    }

    /// A merge of these inputs, without grandparents.
    fn plan(
        &self,
        inputs: Vec<(usize, Vec<Arc<F>>)>,
        output_level: usize,
        base_level: usize,
        reason: &'static str,
    ) -> Plan<F> {
        Plan {
            inputs,
            output_level,
            kind: Kind::Merge,
            reason,
            score: 0.0,
            target_file_bytes: if output_level == 0 {
                u64::MAX
            } else {
                self.target_file_bytes(output_level, base_level)
            },
            grandparents: Vec::new(),
            grandparent_bytes_max: self.options.compaction_bytes_max(),
            compress: true,
            base_level,
            cursor: None,
        }
    }

    /// Whether the files can be moved to `output_level` unchanged.
    fn can_move(
        &self,
        start_level: usize,
        files: &[Arc<F>],
        output_level: usize,
        base: usize,
    ) -> bool {
        let lowest = |level: usize| level > 0 && level + 1 >= self.levels.non_empty();
        let codec = |level: usize| self.options.compression_of(level, base, lowest(level));
        if start_level == output_level
            || codec(start_level) != codec(output_level)
            || !self.levels.disjoint(files)
        {
            return false;
        }
        files.iter().all(|f| {
            // Limits the overlap of a moved file with the level after the output level, so that the next
            // compaction is not huge.
            let grandparents = self.levels.range([f]).map_or(0, |range| {
                total(self.levels.sorted_overlapping(output_level + 1, &range))
            });
            f.size().saturating_add(grandparents) <= self.options.compaction_bytes_max()
        })
    }
}

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
