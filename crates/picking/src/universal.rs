//! Universal compaction: adjacent sorted runs are merged.
//!
//! A sorted run is a file of level 0, or a whole level below it. Newer runs come first. These picks are
//! tried in order: all runs, if those above the oldest are too large compared with it; runs of similar
//! size; any runs, if there are more of them than `level0_file_num_compaction_trigger`.
//!
//! ```text
//!   output level:  the last one, if the oldest run is among the inputs
//!                  0, if the next older run is a file of level 0
//!                  else the level above the next older run
//! ```

use std::sync::Arc;

use super::files::{Candidate, total};
use super::level::due_periodically;
use super::{Input, Kind, Plan};
use options::CompactionStopStyle;

struct Run<F> {
    level: usize,
    files: Vec<Arc<F>>,
    size: u64,
    weight: u64,
    busy: bool,
}

fn sorted_runs<F: Candidate>(input: &Input<'_, F>) -> Vec<Run<F>> {
    let weights = input.levels.weights();
    let run = |level: usize, files: Vec<Arc<F>>| Run {
        level,
        size: total(&files),
        weight: files.iter().map(|f| weights.of(&**f)).sum(),
        busy: files.iter().any(|f| f.is_being_compacted()),
        files,
    };
    let mut out: Vec<Run<F>> = input
        .levels
        .level(0)
        .iter()
        .map(|f| run(0, vec![Arc::clone(f)]))
        .collect();
    for level in 1..input.levels.count() {
        let files = input.levels.level(level);
        if !files.is_empty() {
            out.push(run(level, files.to_vec()));
        }
    }
    out
}

pub(super) fn pick<F: Candidate>(input: &Input<'_, F>) -> Option<Plan<F>> {
    let runs = sorted_runs(input);
    let idle = runs.iter().filter(|r| !r.busy).count();
    let trigger = input.options.level0_file_num_compaction_trigger.max(1) as usize;
    let by_shape = || {
        if runs.len() < trigger {
            return None;
        }
        too_much_space(input, &runs)
            .or_else(|| {
                similar_runs(
                    input,
                    &runs,
                    Some(input.options.compaction_options_universal.size_ratio),
                    usize::MAX,
                )
            })
            .or_else(|| {
                let many = idle > trigger;
                many.then(|| similar_runs(input, &runs, None, idle - trigger + 1))
                    .flatten()
            })
    };
    let mut plan = periodic(input, &runs)
        .or_else(by_shape)
        .or_else(|| marked(input, &runs))?;
    plan.score = idle as f64 / trigger as f64;
    Some(plan)
}

/// The oldest run and all newer ones up to the first busy one, if the newer ones are too large compared
/// with the oldest.
fn too_much_space<F: Candidate>(input: &Input<'_, F>, runs: &[Run<F>]) -> Option<Plan<F>> {
    let (base, newer) = runs.split_last()?;
    if base.busy {
        return None;
    }
    let start = newer.iter().rposition(|r| r.busy).map_or(0, |i| i + 1);
    let weight: u64 = newer[start..].iter().map(|r| r.weight).sum();
    let percent = u128::from(
        input
            .options
            .compaction_options_universal
            .max_size_amplification_percent,
    );
    if start == newer.len() || u128::from(weight) * 100 < percent * u128::from(base.size) {
        return None;
    }
    merge(input, runs, start..runs.len(), "UniversalSizeAmplification")
}

/// Adjacent runs, each of them not larger than the newer ones together plus `ratio` percent; `None` takes
/// any.
fn similar_runs<F: Candidate>(
    input: &Input<'_, F>,
    runs: &[Run<F>],
    ratio: Option<u32>,
    runs_max: usize,
) -> Option<Plan<F>> {
    let options = &input.options.compaction_options_universal;
    let most = (options.max_merge_width as usize).min(runs_max);
    let least = options.min_merge_width.max(2) as usize;
    let factor = ratio.map_or(f64::INFINITY, |r| (100.0 + f64::from(r)) / 100.0);
    for start in 0..runs.len() {
        if runs[start].busy {
            continue;
        }
        let mut size = runs[start].weight;
        let mut end = start + 1;
        while end < runs.len() && end - start < most {
            let next = &runs[end];
            if next.busy || (size as f64 * factor) < next.size as f64 {
                break;
            }
            if options.stop_style == CompactionStopStyle::SimilarSize {
                if (next.size as f64 * factor) < size as f64 {
                    break;
                }
                size = next.weight;
            } else {
                size = size.saturating_add(next.weight);
            }
            end += 1;
        }
        if end - start >= least {
            let reason = match ratio {
                Some(_) => "UniversalSizeRatio",
                None => "UniversalSortedRunNum",
            };
            return merge(input, runs, start..end, reason);
        }
    }
    None
}

/// All runs from the oldest up to the first busy one, if one of their files is old enough.
fn periodic<F: Candidate>(input: &Input<'_, F>, runs: &[Run<F>]) -> Option<Plan<F>> {
    let due = due_periodically(input);
    let start = runs.iter().rposition(|r| r.busy).map_or(0, |i| i + 1);
    if !runs[start..].iter().any(|r| r.files.iter().any(&due)) {
        return None;
    }
    merge(input, runs, start..runs.len(), "PeriodicCompaction")
}

/// The newest run with a marked file, and the older runs down to the next level that has files.
fn marked<F: Candidate>(input: &Input<'_, F>, runs: &[Run<F>]) -> Option<Plan<F>> {
    let start = runs
        .iter()
        .position(|r| r.files.iter().any(|f| f.is_marked()))?;
    if runs[start].level + 1 >= input.levels.count() && input.levels.count() > 1 {
        return None; // it is already on the lowest level
    }
    let next = runs[start..]
        .iter()
        .position(|r| r.level > runs[start].level);
    let end = next.map_or(runs.len(), |i| start + i + 1);
    merge(input, runs, start..end, "FilesMarkedForCompaction")
}

/// The merge of these runs; `None` if one of them is busy, or another compaction writes to the same place.
fn merge<F: Candidate>(
    input: &Input<'_, F>,
    runs: &[Run<F>],
    which: std::ops::Range<usize>,
    reason: &'static str,
) -> Option<Plan<F>> {
    let chosen = &runs[which.clone()];
    if chosen.iter().any(|r| r.busy) {
        return None;
    }
    let output = match runs.get(which.end) {
        None => input.levels.count() - 1,
        Some(next) => next.level.saturating_sub(1),
    };
    let mut inputs: Vec<(usize, Vec<Arc<F>>)> = Vec::new();
    for run in chosen {
        match inputs.last_mut() {
            Some((level, files)) if *level == run.level => files.extend(run.files.iter().cloned()),
            _ => inputs.push((run.level, run.files.clone())),
        }
    }
    let files: Vec<Arc<F>> = chosen
        .iter()
        .flat_map(|r| r.files.iter().cloned())
        .collect();
    let range = input.levels.range(&files)?;
    if output > 0 && input.conflicts(&range, output) {
        return None;
    }
    let mut plan = input.plan(inputs, output, 1, reason);
    plan.compress = compresses(input, runs, which.end);
    if output > 0 {
        let below = input.levels.sorted_overlapping(output + 1, &range);
        plan.grandparents = below.to_vec();
        let options = &input.options.compaction_options_universal;
        let moves = options.allow_trivial_move
            && chosen.last().is_some_and(|r| r.level != output)
            && input.levels.disjoint(&files);
        if moves {
            plan.kind = Kind::Move;
        }
    }
    Some(plan)
}

/// Whether a merge of the runs up to `end` is compressed: no, once the older runs make up enough of the
/// data.
fn compresses<F: Candidate>(input: &Input<'_, F>, runs: &[Run<F>], end: usize) -> bool {
    let percent = input
        .options
        .compaction_options_universal
        .compression_size_percent;
    let Ok(percent) = u128::try_from(percent) else {
        return true;
    };
    let all: u128 = runs.iter().map(|r| u128::from(r.weight)).sum();
    let older: u128 = runs[end..].iter().map(|r| u128::from(r.size)).sum();
    end == runs.len() || older * 100 < all * percent
}
