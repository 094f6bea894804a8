//! How large each level should be, and how much it needs compaction.
//!
//! ```text
//!   level_compaction_dynamic_level_bytes = false:
//!     target(1) = max_bytes_for_level_base,  target(n + 1) = target(n) × multiplier × additional
//!   true: the largest level is as large as it should be, and the others follow from it upwards until
//!     a target would be at most max_bytes_for_level_base: that is the base level. Level 0 is
//!     compacted into it; levels between are empty, or emptied.
//! ```
//!
//! Sources: RocksDB's wiki, "Leveled Compaction"; measured against it in the tests.

use super::files::{Candidate, Levels, Weights};
use options::{CfOptions, CompactionStyle};

/// Factor that ranks levels that need compaction before those that do not.
const SCALE: f64 = 10.0;

/// The target sizes of the levels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Targets {
    /// The level that level 0 is compacted into.
    pub(crate) base_level: usize,
    /// Target size in bytes of each level; `u64::MAX` above the base level.
    pub(crate) max_bytes: Vec<u64>,
    /// Levels from the base level down to this one should be empty.
    pub(crate) lowest_unnecessary: Option<usize>,
}

impl Targets {
    pub(crate) fn of<F: Candidate>(levels: &Levels<'_, F>, options: &CfOptions) -> Self {
        if options.level_compaction_dynamic_level_bytes
            && options.compaction_style == CompactionStyle::Level
        {
            Self::dynamic(levels, options)
        } else {
            Self::fixed(levels.count(), options)
        }
    }

    fn fixed(count: usize, options: &CfOptions) -> Self {
        let mut max_bytes = Vec::with_capacity(count);
        let mut target = options.max_bytes_for_level_base;
        for level in 0..count {
            if level > 1 {
                let additional = options
                    .max_bytes_for_level_multiplier_additional
                    .0
                    .get(level - 1);
                let additional = f64::from(additional.copied().unwrap_or(1).max(1));
                target = times(target, options.max_bytes_for_level_multiplier * additional);
            }
            max_bytes.push(target);
        }
        Self {
            base_level: 1.min(count.saturating_sub(1)),
            max_bytes,
            lowest_unnecessary: None,
        }
    }

    fn dynamic<F: Candidate>(levels: &Levels<'_, F>, options: &CfOptions) -> Self {
        let count = levels.count();
        let mut out = Self {
            base_level: count.saturating_sub(1),
            max_bytes: vec![u64::MAX; count],
            lowest_unnecessary: None,
        };
        let sizes: Vec<u64> = (0..count).map(|l| levels.bytes(l)).collect();
        let base_max = options.max_bytes_for_level_base;
        let Some(first) = (1..count).find(|&l| sizes[l] > 0) else {
            // Level 0 is compacted directly into the last level.
            if let Some(last) = out.max_bytes.last_mut() {
                *last = base_max;
            }
            return out;
        };
        let multiplier = options.max_bytes_for_level_multiplier;
        let base_min = (base_max as f64 / multiplier) as u64;
        let largest = sizes.iter().skip(1).copied().max().unwrap_or(0);
        let mut size = largest;
        for level in (first..count - 1).rev() {
            size = (size as f64 / multiplier) as u64;
            if out.lowest_unnecessary.is_none() && size <= base_min {
                out.lowest_unnecessary = Some(level);
            }
        }
        let base_size = if size <= base_min {
            // The first level that has files would be smaller than a level is worth.
            out.base_level = first;
            base_min + 1
        } else {
            out.base_level = first;
            while out.base_level > 1 && size > base_max {
                out.base_level -= 1;
                size = (size as f64 / multiplier) as u64;
            }
            size.clamp(1, base_max)
        };
        let mut target = base_size;
        for level in out.base_level..count {
            if level > out.base_level {
                target = times(target, multiplier);
            }
            // No level below level 0 is smaller than level 0 may be.
            out.max_bytes[level] = target.max(base_max);
        }
        out
    }

    pub(crate) fn max_bytes(&self, level: usize) -> u64 {
        self.max_bytes.get(level).copied().unwrap_or(u64::MAX)
    }
}

fn times(a: u64, b: f64) -> u64 {
    let product = a as f64 * b;
    if b <= 0.0 || product >= u64::MAX as f64 {
        a
    } else {
        product as u64
    }
}

/// A level and its score; 1 or more means that it needs compaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Score {
    /// The level.
    pub(crate) level: usize,
    /// Its score.
    pub(crate) score: f64,
}

/// The scores of the levels that can be compacted by score, highest first.
pub(crate) fn scores<F: Candidate>(
    levels: &Levels<'_, F>,
    options: &CfOptions,
    targets: &Targets,
    now: u64,
) -> Vec<Score> {
    let weights = levels.weights();
    let level0 = Level0::of(levels, options, weights);
    let first = match options.compaction_style {
        CompactionStyle::None => return Vec::new(),
        CompactionStyle::Fifo => fifo(levels, options, &level0, now),
        CompactionStyle::Universal => level0.runs as f64 / trigger(options),
        CompactionStyle::Level => level0_score(levels, options, targets, &level0, weights),
    };
    let mut out = vec![Score {
        level: 0,
        score: first,
    }];
    if options.compaction_style == CompactionStyle::Level {
        deeper(levels, options, targets, weights, &mut out);
        // The sort is stable: of levels with equal scores, the upper one comes first.
        out.sort_by(|a, b| b.score.total_cmp(&a.score));
    }
    out
}

fn trigger(options: &CfOptions) -> f64 {
    f64::from(options.level0_file_num_compaction_trigger.max(1))
}

/// The part of level 0 that is not being compacted.
struct Level0 {
    /// Sorted runs: files of level 0 and, in universal style, levels below.
    runs: u64,
    weight: u64,
}

impl Level0 {
    fn of<F: Candidate>(levels: &Levels<'_, F>, options: &CfOptions, weights: Weights) -> Self {
        let mut out = Self { runs: 0, weight: 0 };
        for f in levels.level(0).iter().filter(|f| !f.is_being_compacted()) {
            out.runs += 1;
            out.weight += weights.of(&**f);
        }
        if options.compaction_style == CompactionStyle::Universal {
            let idle = |l: &usize| {
                let first = levels.level(*l).first();
                first.is_some_and(|f| !f.is_being_compacted())
            };
            out.runs += (1..levels.count()).filter(idle).count() as u64;
        }
        out
    }
}

fn level0_score<F: Candidate>(
    levels: &Levels<'_, F>,
    options: &CfOptions,
    targets: &Targets,
    level0: &Level0,
    weights: Weights,
) -> f64 {
    let mut score = level0.runs as f64 / trigger(options);
    let size = level0.weight as f64;
    if !options.level_compaction_dynamic_level_bytes {
        return score.max(size / options.max_bytes_for_level_base as f64);
    }
    if level0.weight >= options.max_bytes_for_level_base {
        score = score.max(1.01);
    }
    let base_target = targets.max_bytes(targets.base_level);
    if level0.weight > base_target {
        // Level 0 has more than the base level should hold. The base level's actual size then determines
        // the cost of the merge.
        let base: u64 = levels
            .level(targets.base_level)
            .iter()
            .map(|f| weights.of(&**f))
            .sum();
        score = score.max(size / base.max(base_target) as f64);
    }
    if score > 1.0 { score * SCALE } else { score }
}

/// Appends the scores of the levels between level 0 and the last level.
fn deeper<F: Candidate>(
    levels: &Levels<'_, F>,
    options: &CfOptions,
    targets: &Targets,
    weights: Weights,
    out: &mut Vec<Score>,
) {
    // Bytes that the levels above will soon send down.
    let mut incoming = levels.bytes(0) as f64;
    for level in 1..levels.count().saturating_sub(1) {
        let files = levels.level(level);
        let all = levels.bytes(level);
        let idle = files.iter().filter(|f| !f.is_being_compacted());
        let idle: u64 = idle.map(|f| weights.of(&**f)).sum();
        let target = targets.max_bytes(level);
        let unnecessary = targets.lowest_unnecessary.is_some_and(|l| level <= l);
        let mut score = idle as f64 / target as f64;
        if options.level_compaction_dynamic_level_bytes {
            if idle >= target {
                score = idle as f64 / (target as f64 + incoming) * SCALE;
            }
            if let (true, Some(lowest)) = (idle > 0 && unnecessary, targets.lowest_unnecessary) {
                score = score.max(SCALE * (1.001 + 0.001 * (lowest - level) as f64));
            }
        }
        incoming += if unnecessary {
            all
        } else {
            all.saturating_sub(target)
        } as f64;
        out.push(Score { level, score });
    }
}

fn fifo<F: Candidate>(
    levels: &Levels<'_, F>,
    options: &CfOptions,
    level0: &Level0,
    now: u64,
) -> f64 {
    let fifo = &options.compaction_options_fifo;
    let all: u64 = levels.all().map(|(_, f)| f.size()).sum();
    let mut score = all as f64 / fifo.max_table_files_size.max(1) as f64;
    // A score of more than 1 by size means that files are deleted; exactly full is not enough.
    if score <= 1.0 {
        score = score.min(0.999_999);
        if fifo.allow_compaction {
            score = score.max(level0.runs as f64 / trigger(options));
        }
        if super::fifo::expired(levels, options, now).next().is_some() {
            score = score.max(1.0);
        }
    }
    score
}

/// Bytes that compactions have yet to write until every level is within its target. The pending-bytes
/// limits of write stalls are compared with this.
pub(crate) fn pending_compaction_bytes<F: Candidate>(
    levels: &Levels<'_, F>,
    options: &CfOptions,
) -> u64 {
    if options.compaction_style != CompactionStyle::Level {
        return 0;
    }
    let targets = Targets::of(levels, options);
    let level0 = levels.bytes(0);
    let trigger = options.level0_file_num_compaction_trigger.max(1) as usize;
    let mut estimate = 0u64;
    let mut incoming = 0u64;
    if levels.level(0).len() >= trigger || level0 >= options.max_bytes_for_level_base {
        estimate = level0;
        incoming = level0;
    }
    let triggered = incoming > 0;
    for level in targets.base_level..levels.count().saturating_sub(1) {
        let mut size = levels.bytes(level);
        if level == targets.base_level && triggered {
            estimate += size;
        }
        size += std::mem::take(&mut incoming);
        let target = targets.max_bytes(level);
        if size > target {
            incoming = size - target;
            let next = levels.bytes(level + 1);
            if next > 0 {
                // Each byte that goes down is merged with its share of the bytes below.
                let share = next as f64 / size as f64 + 1.0;
                estimate = estimate.saturating_add((incoming as f64 * share) as u64);
            }
        }
    }
    estimate
}
