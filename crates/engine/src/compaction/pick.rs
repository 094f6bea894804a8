//! Which files to compact: pure functions of a Version and the options.
//!
//! Every level has a score: level 0 its number of files over
//! `level0_file_num_compaction_trigger`, the others their bytes over their target
//! (`max_bytes_for_level_base`, times `max_bytes_for_level_multiplier` per level). The level with
//! the highest score of at least 1 is compacted into the next one.

use std::cmp::Ordering;
use std::sync::Arc;

use base::Comparator;

use crate::options::CfOptions;
use crate::version::{TableFile, Version};

/// A compaction to do.
pub(crate) struct Pick {
    /// Input files by level, from the upper level down.
    pub(crate) inputs: Vec<(usize, Vec<Arc<TableFile>>)>,
    pub(crate) output_level: usize,
    /// The inputs overlap nothing, each other included: they only change their level.
    pub(crate) trivial_move: bool,
    /// RocksDB's word for why.
    pub(crate) reason: &'static str,
    /// The Version that the inputs are from.
    pub(crate) version: Arc<Version>,
}

impl Pick {
    /// Every input file with its level.
    pub(crate) fn files(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        self.inputs
            .iter()
            .flat_map(|(level, files)| files.iter().map(move |f| (*level, f)))
    }
}

/// The reason of a compaction that somebody called for.
pub(crate) const MANUAL: &str = "ManualCompaction";

/// How much each level needs compaction; 1 and more does.
pub(crate) fn scores(version: &Version, options: &CfOptions) -> Vec<f64> {
    let mut target = options.max_bytes_for_level_base as f64;
    let mut out = Vec::with_capacity(version.num_levels());
    for level in 0..version.num_levels() {
        if level == 0 {
            let trigger = options.level0_file_num_compaction_trigger.max(1);
            out.push(version.level(0).len() as f64 / f64::from(trigger));
            continue;
        }
        if level > 1 {
            target *= options.max_bytes_for_level_multiplier;
        }
        let last = level + 1 == version.num_levels();
        out.push(if last {
            0.0
        } else {
            version.level_bytes(level) as f64 / target
        });
    }
    out
}

/// The compaction that the levels' scores ask for.
pub(crate) fn automatic(version: &Arc<Version>, options: &CfOptions) -> Option<Pick> {
    let scores = scores(version, options);
    let mut order: Vec<usize> = (0..scores.len()).filter(|&l| scores[l] >= 1.0).collect();
    order.sort_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    order
        .into_iter()
        .find_map(|level| from_level(version, options, level))
}

fn from_level(version: &Arc<Version>, options: &CfOptions, level: usize) -> Option<Pick> {
    if level + 1 >= version.num_levels() {
        return None;
    }
    if level == 0 {
        let files = version.level(0).to_vec();
        return pick(version, options, 0, files, "LevelL0FilesNum");
    }
    // The largest file first: it frees the most.
    let mut files = version.level(level).to_vec();
    files.sort_by_key(|f| std::cmp::Reverse(f.meta.file_size));
    files
        .into_iter()
        .find_map(|f| pick(version, options, level, vec![f], "LevelMaxLevelSize"))
}

/// A compaction of `files` of `level` with what they overlap in the next level; `None` if a file
/// is in another compaction.
fn pick(
    version: &Arc<Version>,
    options: &CfOptions,
    level: usize,
    files: Vec<Arc<TableFile>>,
    reason: &'static str,
) -> Option<Pick> {
    let cmp = &version.comparator;
    let (smallest, largest) = extent(cmp, &files)?;
    let below = version.overlapping(level + 1, Some(&smallest), Some(&largest));
    if files.iter().chain(&below).any(|f| f.is_being_compacted()) {
        return None;
    }
    let trivial_move = below.is_empty() && disjoint(cmp, &files) && {
        // What a move would put above two levels down is bounded, or the next compaction is huge.
        let grand = version.overlapping(level + 2, Some(&smallest), Some(&largest));
        grand.iter().map(|f| f.meta.file_size).sum::<u64>() <= max_compaction_bytes(options)
    };
    let mut inputs = vec![(level, files)];
    if !below.is_empty() {
        inputs.push((level + 1, below));
    }
    Some(Pick {
        inputs,
        output_level: level + 1,
        trivial_move,
        reason,
        version: Arc::clone(version),
    })
}

/// Everything between two user keys (`None` is open), from all levels, into the lowest level that
/// has any of it, or level 1.
pub(crate) fn range(
    version: &Arc<Version>,
    cmp: &Comparator,
    (begin, end): (Option<&[u8]>, Option<&[u8]>),
) -> Option<Pick> {
    let (mut begin, mut end) = (begin.map(<[u8]>::to_vec), end.map(<[u8]>::to_vec));
    loop {
        let inputs: Vec<_> = (0..version.num_levels())
            .map(|l| (l, version.overlapping(l, begin.as_deref(), end.as_deref())))
            .filter(|(_, files)| !files.is_empty())
            .collect();
        let all: Vec<_> = inputs.iter().flat_map(|(_, f)| f.iter().cloned()).collect();
        let (smallest, largest) = extent(cmp, &all)?;
        // Files reach beyond the range: what they overlap there must come along.
        let grows_down = begin
            .as_ref()
            .is_some_and(|b| cmp.compare(&smallest, b).is_lt());
        let grows_up = end
            .as_ref()
            .is_some_and(|e| cmp.compare(&largest, e).is_gt());
        if !grows_down && !grows_up {
            let lowest = inputs.last().map_or(0, |(l, _)| *l);
            return Some(Pick {
                inputs,
                output_level: lowest.max(1).min(version.num_levels() - 1),
                trivial_move: false,
                reason: MANUAL,
                version: Arc::clone(version),
            });
        }
        if grows_down {
            begin = Some(smallest);
        }
        if grows_up {
            end = Some(largest);
        }
    }
}

/// `max_compaction_bytes`, or 25 times the target file size if it is 0.
fn max_compaction_bytes(options: &CfOptions) -> u64 {
    match options.max_compaction_bytes {
        0 => options.target_file_size_base.saturating_mul(25),
        set => set,
    }
}

/// Smallest and largest user key of some files; `None` if there are none.
fn extent(cmp: &Comparator, files: &[Arc<TableFile>]) -> Option<(Vec<u8>, Vec<u8>)> {
    let smallest = files
        .iter()
        .map(|f| f.smallest_user_key())
        .min_by(|a, b| cmp.compare(a, b))?;
    let largest = files
        .iter()
        .map(|f| f.largest_user_key())
        .max_by(|a, b| cmp.compare(a, b))?;
    Some((smallest.to_vec(), largest.to_vec()))
}

/// Whether no two of the files share a user key.
fn disjoint(cmp: &Comparator, files: &[Arc<TableFile>]) -> bool {
    let mut sorted: Vec<_> = files.iter().collect();
    sorted.sort_by(|a, b| cmp.compare(a.smallest_user_key(), b.smallest_user_key()));
    sorted
        .windows(2)
        .all(|w| cmp.compare(w[0].largest_user_key(), w[1].smallest_user_key()) == Ordering::Less)
}
