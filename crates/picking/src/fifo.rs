//! FIFO compaction: the oldest files are deleted, because of their age or because all files together are
//! too large.

use std::sync::Arc;

use super::files::{Candidate, cheap_span, total};
use super::{Input, Kind, Levels, Plan};
use options::CfOptions;

/// Size in bytes of an output file when small files are merged.
const MERGED_FILE_BYTES: u64 = 16 << 20;

pub(super) fn pick<F: Candidate>(input: &Input<'_, F>) -> Option<Plan<F>> {
    if !input.running.is_empty() {
        return None;
    }
    by_age(input)
        .or_else(|| by_size(input))
        .or_else(|| merge(input))
}

/// The files of level 0 whose data is older than `ttl`, oldest first.
pub(super) fn expired<'a, F: Candidate>(
    levels: &Levels<'a, F>,
    options: &CfOptions,
    now: u64,
) -> impl Iterator<Item = &'a Arc<F>> {
    let ttl = options.ttl_seconds();
    let before = if ttl == 0 { 0 } else { now.saturating_sub(ttl) };
    let old = move |f: &&Arc<F>| {
        let meta = f.meta();
        // All data of a level 0 file was written before the file was created.
        let newest = match meta.file_creation_time {
            0 => meta.oldest_ancestor_time,
            t => t,
        };
        newest > 0 && newest < before
    };
    levels.level(0).iter().rev().take_while(old)
}

fn by_age<F: Candidate>(input: &Input<'_, F>) -> Option<Plan<F>> {
    let files: Vec<Arc<F>> = expired(&input.levels, input.options, input.now)
        .cloned()
        .collect();
    let left = all_bytes(input).saturating_sub(total(&files));
    // If that is not enough, the size limit decides, which deletes these files too.
    if files.is_empty() || left > input.options.compaction_options_fifo.max_table_files_size {
        return None;
    }
    Some(deletion(input, vec![(0, newest_first(files))], "FIFOTtl"))
}

fn by_size<F: Candidate>(input: &Input<'_, F>) -> Option<Plan<F>> {
    let max = input.options.compaction_options_fifo.max_table_files_size;
    let mut left = all_bytes(input);
    let mut inputs = Vec::new();
    // Files on deeper levels come from another compaction style: their data is the oldest. Their ages are
    // not comparable, so they are deleted in key order.
    for level in (0..input.levels.count()).rev() {
        let files = input.levels.level(level);
        let order: Vec<&Arc<F>> = if level == 0 {
            files.iter().rev().collect()
        } else {
            files.iter().collect()
        };
        let mut chosen = Vec::new();
        for f in order {
            if left <= max {
                break;
            }
            left -= f.size();
            chosen.push(Arc::clone(f));
        }
        if !chosen.is_empty() {
            let chosen = if level == 0 {
                newest_first(chosen)
            } else {
                chosen
            };
            inputs.push((level, chosen));
        }
    }
    inputs.reverse();
    (!inputs.is_empty()).then(|| deletion(input, inputs, "FIFOMaxSize"))
}

/// Merges small files of level 0 into one, to keep their number low.
fn merge<F: Candidate>(input: &Input<'_, F>) -> Option<Plan<F>> {
    let options = input.options;
    if !options.compaction_options_fifo.allow_compaction {
        return None;
    }
    let least = options
        .level0_file_num_compaction_trigger
        .max(2)
        .unsigned_abs() as usize;
    let per_file = (options.write_buffer_size as f64 * 1.1) as u64;
    let max = options.compaction_bytes_max();
    let files = cheap_span(input.levels.level(0), least, per_file, max)?;
    let mut plan = input.plan(vec![(0, files.to_vec())], 0, 0, "FIFOReduceNumFiles");
    plan.target_file_bytes = MERGED_FILE_BYTES;
    Some(plan)
}

fn deletion<F: Candidate>(
    input: &Input<'_, F>,
    inputs: Vec<(usize, Vec<Arc<F>>)>,
    reason: &'static str,
) -> Plan<F> {
    let mut plan = input.plan(inputs, 0, 0, reason);
    plan.kind = Kind::Delete;
    plan
}

fn newest_first<F>(mut files: Vec<Arc<F>>) -> Vec<Arc<F>> {
    files.reverse();
    files
}

fn all_bytes<F: Candidate>(input: &Input<'_, F>) -> u64 {
    total(input.levels.all().map(|(_, f)| f))
}
