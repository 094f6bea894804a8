//! Compactions requested by a call, one step at a time.
//!
//! In level style, `compact_range` goes down level by level, in pieces of at most about
//! `max_compaction_bytes`, so that other compactions get their turn. In universal style it merges all files
//! at once. [`Progress`] records what is left to do. A step that conflicts with a running compaction waits
//! for it.

use std::collections::HashMap;
use std::sync::Arc;

use base::{Error, FileNumber, Result};

use super::files::{Candidate, Range};
use super::level::Picker;
use super::{Input, Kind, MANUAL, Plan, automatic};
use options::{BottommostLevelCompaction, CompactRangeOptions, CompactionStyle};

/// The reason of a move requested by `change_level`.
pub const REFIT: &str = "RefitLevel";

/// A caller's request for a compaction.
pub enum Request {
    /// User keys from `begin` to `end`, both inclusive; `None` is unbounded.
    Range {
        /// The first key.
        begin: Option<Vec<u8>>,
        /// The last key.
        end: Option<Vec<u8>>,
        /// As the caller gave them.
        options: CompactRangeOptions,
        /// Levels above this one have no key in the range, although their files may span it.
        first_level: usize,
        /// Files with this number or a larger one were created by the call itself.
        first_new_file: FileNumber,
    },
    /// Compacts these files to this level.
    Files {
        /// The numbers of the files.
        numbers: Vec<u64>,
        /// The level that they go to.
        output_level: usize,
        /// The size of an output file in bytes, about.
        output_file_bytes: u64,
    },
}

/// The progress of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// The level whose files are going down, once the request has begun.
    level: Option<usize>,
    /// Nothing goes further down; only the level itself may still be rewritten.
    at_bottom: bool,
    /// Keys of the level before this one are done.
    from: Option<Vec<u8>>,
    /// The level that holds the result so far.
    result_level: usize,
    /// All levels are done; only `change_level` is left.
    merged: bool,
    done: bool,
}

/// The next step of a request.
pub enum Step<F> {
    /// Run this, then call again.
    Run(Box<Plan<F>>),
    /// Call again when a compaction has ended.
    Wait,
    /// Nothing is left to do.
    Done,
}

/// Errors: files that do not exist or are in another compaction; a level that does not exist or cannot be
/// the target.
pub fn next_step<F: Candidate>(
    input: &Input<'_, F>,
    request: &Request,
    progress: &mut Progress,
) -> Result<Step<F>> {
    if progress.done {
        return Ok(Step::Done);
    }
    match request {
        Request::Files {
            numbers,
            output_level,
            output_file_bytes,
        } => {
            progress.done = true;
            by_number(input, numbers, *output_level, *output_file_bytes)
        }
        Request::Range {
            begin,
            end,
            options,
            first_level,
            first_new_file,
        } => {
            let bounds = Bounds {
                begin: begin.as_deref(),
                end: end.as_deref(),
            };
            let firsts = (*first_level, *first_new_file);
            if !progress.merged {
                let step = match input.options.compaction_style {
                    CompactionStyle::Level | CompactionStyle::None => {
                        by_level(input, bounds, options, firsts, progress)
                    }
                    CompactionStyle::Universal => everything(input, bounds, progress),
                    CompactionStyle::Fifo => {
                        progress.merged = true;
                        automatic(input).map_or(Step::Done, |p| Step::Run(Box::new(p)))
                    }
                };
                if !matches!(step, Step::Done) {
                    return Ok(step);
                }
                progress.merged = true;
            }
            if options.change_level {
                return refit(input, options.target_level, progress);
            }
            progress.done = true;
            Ok(Step::Done)
        }
    }
}

/// User keys, both ends inclusive; `None` is unbounded.
#[derive(Clone, Copy)]
struct Bounds<'a> {
    begin: Option<&'a [u8]>,
    end: Option<&'a [u8]>,
}

impl Bounds<'_> {
    fn meet<F: Candidate>(&self, input: &Input<'_, F>, f: &F) -> bool {
        let cmp = input.levels.comparator;
        let before = self.begin.is_some_and(|b| {
            let order = cmp.compare(f.largest(), b);
            order.is_lt() || (order.is_eq() && f.ends_before_largest())
        });
        let behind = self
            .end
            .is_some_and(|e| cmp.compare(f.smallest(), e).is_gt());
        !before && !behind
    }
}

/// Goes down to the lowest level that compactions may write to or that has files, and then rewrites that
/// level if requested.
fn by_level<F: Candidate>(
    input: &Input<'_, F>,
    bounds: Bounds<'_>,
    options: &CompactRangeOptions,
    (first_level, first_new_file): (usize, FileNumber),
    progress: &mut Progress,
) -> Step<F> {
    let levels = &input.levels;
    let met = |level: usize| levels.level(level).iter().any(|f| bounds.meet(input, f));
    let mut level = if let Some(level) = progress.level {
        level
    } else {
        let Some(first) = (first_level..levels.count()).find(|&l| met(l)) else {
            return Step::Done;
        };
        progress.result_level = first;
        first
    };
    let picker = Picker::new(input);
    while !progress.at_bottom && has_next(input, level) {
        progress.level = Some(level);
        let output = match level {
            0 => picker.targets.base_level,
            l => l + 1,
        };
        let step = piece(input, &picker, (level, output), bounds, &|_| true, progress);
        if let Some(step) = step {
            if level == 0 && matches!(step, Step::Run(_)) {
                // Does not wait for files that are flushed meanwhile.
                progress.level = Some(output);
            }
            return step;
        }
        progress.result_level = output;
        progress.from = None;
        level = output;
    }
    if !progress.at_bottom {
        progress.at_bottom = true;
        progress.level = Some(level);
        progress.from = None;
    }
    let own = |f: &F| f.meta().number < first_new_file;
    let taken: &dyn Fn(&F) -> bool = match options.bottommost_level_compaction {
        BottommostLevelCompaction::Skip | BottommostLevelCompaction::IfHaveCompactionFilter => {
            return Step::Done;
        }
        BottommostLevelCompaction::Force => &|_| true,
        BottommostLevelCompaction::ForceOptimized => &own,
    };
    piece(input, &picker, (level, level), bounds, taken, progress).unwrap_or(Step::Done)
}

/// Whether the content of the level goes further down. Level 0's always does.
fn has_next<F: Candidate>(input: &Input<'_, F>, level: usize) -> bool {
    let levels = &input.levels;
    let lowest = if input.options.level_compaction_dynamic_level_bytes {
        levels.count()
    } else {
        levels.non_empty()
    };
    (level == 0 && levels.count() > 1) || level + 1 < lowest
}

/// The next piece of a level; `None` if the level is done.
fn piece<F: Candidate>(
    input: &Input<'_, F>,
    picker: &Picker<'_, '_, F>,
    (level, output): (usize, usize),
    bounds: Bounds<'_>,
    taken: &dyn Fn(&F) -> bool,
    progress: &mut Progress,
) -> Option<Step<F>> {
    let levels = &input.levels;
    let cmp = levels.comparator;
    let behind = |f: &F| {
        let from = progress.from.as_deref();
        from.is_none_or(|from| cmp.compare(f.smallest(), from).is_gt())
    };
    let files = levels.level(level).iter();
    let mut files: Vec<Arc<F>> = files
        .filter(|f| bounds.meet(input, f) && behind(f) && taken(f))
        .cloned()
        .collect();
    if level == 0 {
        files = levels.overlapping(0, &levels.range(&files)?);
    } else {
        let max = input.options.compaction_bytes_max();
        let mut bytes = 0u64;
        let fits = |f: &&Arc<F>| {
            let first = bytes == 0;
            bytes = bytes.saturating_add(f.size());
            first || bytes <= max
        };
        let count = files.iter().take_while(fits).count();
        files.truncate(count);
        // A level that is rewritten file by file must not include files that were just written.
        if !files.is_empty() {
            match levels.clean_cut(level, files) {
                Some(cut) => files = cut,
                None => return Some(Step::Wait),
            }
        }
    }
    let last = files.last()?.largest().to_vec();
    let Some(mut plan) = picker.with_output(level, files, output, MANUAL) else {
        return Some(Step::Wait);
    };
    if level > 0 {
        progress.from = Some(
            plan.inputs
                .first()
                .and_then(|(_, f)| f.last())
                .map_or(last, |f| f.largest().to_vec()),
        );
    }
    progress.result_level = output;
    plan.score = 0.0;
    Some(Step::Run(Box::new(plan)))
}

/// Compacts all files of the family into the last level, which is rewritten too, because a filter,
/// compression or TTL that applied to it may have changed. If level 0 is the only level, this happens only
/// if one of its files overlaps the bounds.
fn everything<F: Candidate>(
    input: &Input<'_, F>,
    bounds: Bounds<'_>,
    progress: &mut Progress,
) -> Step<F> {
    let levels = &input.levels;
    let inputs: Vec<_> = (0..levels.count())
        .map(|l| (l, levels.level(l).to_vec()))
        .filter(|(_, files)| !files.is_empty())
        .collect();
    let output = levels.count() - 1;
    let mut all = inputs.iter().flat_map(|(_, files)| files);
    if all.clone().any(|f| f.is_being_compacted()) {
        return Step::Wait;
    }
    progress.merged = true;
    progress.result_level = output;
    if inputs.is_empty() || (output == 0 && !all.any(|f| bounds.meet(input, f))) {
        return Step::Done;
    }
    Step::Run(Box::new(input.plan(inputs, output, 1, MANUAL)))
}

/// Moves the files of the level that holds the result to `target`, unchanged.
fn refit<F: Candidate>(
    input: &Input<'_, F>,
    target: i32,
    progress: &mut Progress,
) -> Result<Step<F>> {
    let levels = &input.levels;
    let from = progress.result_level;
    let files = levels.level(from).to_vec();
    if files.is_empty() {
        progress.done = true;
        return Ok(Step::Done);
    }
    if !input.running.is_empty() || files.iter().any(|f| f.is_being_compacted()) {
        return Ok(Step::Wait);
    }
    let empty = |l: usize| levels.level(l).is_empty();
    let to = match usize::try_from(target) {
        Ok(to) => to,
        // The uppermost level that can be reached through empty levels.
        Err(_) => (1..from)
            .rev()
            .take_while(|&l| empty(l))
            .last()
            .unwrap_or(from),
    };
    progress.done = true;
    let refuse = |why: &str| {
        Err(Error::not_supported(format!(
            "compact_range: change_level from level {from} to level {to}: {why}"
        )))
    };
    if to >= levels.count() {
        return Err(no_such_level(
            input,
            &format!("compact_range: target_level = {to}"),
        ));
    }
    if to == from {
        return Ok(Step::Done);
    }
    if from == 0 && files.len() > 1 {
        return refuse("level 0 has several files, which may overlap");
    }
    if to == 0 && files.len() > 1 {
        return refuse("level 0 can take one file only, since there the age of files counts");
    }
    let mut between = if to < from {
        to..from
    } else {
        from + 1..to + 1
    };
    if !between.all(empty) {
        return refuse("levels between them have files");
    }
    let mut plan = input.plan(vec![(from, files)], to, to.max(1), REFIT);
    plan.kind = Kind::Move;
    Ok(Step::Run(Box::new(plan)))
}

#[cold]
fn no_such_level<F: Candidate>(input: &Input<'_, F>, what: &str) -> Error {
    let (lowest, num_levels) = (input.levels.count() - 1, input.options.num_levels);
    let e = Error::invalid_argument(format!("{what}, but the lowest level is {lowest}"));
    if num_levels.unsigned_abs() as usize > input.levels.count() {
        return e.hint(format!(
            "num_levels = {num_levels}, of which allow_ingest_behind keeps the last one free"
        ));
    }
    e.hint(format!("num_levels = {num_levels}"))
}

/// Compacts these files and all files that must go with them: the older level 0 files that overlap them, and the
/// overlapping files of each level down to the output level.
fn by_number<F: Candidate>(
    input: &Input<'_, F>,
    numbers: &[u64],
    output: usize,
    file_bytes: u64,
) -> Result<Step<F>> {
    let levels = &input.levels;
    if output >= levels.count() {
        return Err(no_such_level(
            input,
            &format!("compact_files: output level {output}"),
        ));
    }
    let mut chosen: Vec<Vec<Arc<F>>> = vec![Vec::new(); levels.count()];
    let all: HashMap<_, _> = levels
        .all()
        .map(|(level, f)| (f.meta().number.0, (level, f)))
        .collect();
    for n in numbers {
        let &(level, file) = all.get(n).ok_or_else(|| {
            Error::invalid_argument(format!(
                "compact_files: table file {n} is not part of the column family"
            ))
        })?;
        if level > output {
            return Err(Error::invalid_argument(format!(
                "compact_files: file {n} is on level {level}, below output level {output}"
            )));
        }
        chosen[level].push(Arc::clone(file));
    }
    let range = complete(input, &mut chosen, output);
    let Some(range) = range else {
        return Err(Error::invalid_argument("compact_files: no files"));
    };
    let inputs: Vec<_> = chosen
        .into_iter()
        .enumerate()
        .filter(|(_, f)| !f.is_empty())
        .collect();
    let busy = inputs
        .iter()
        .flat_map(|(_, f)| f)
        .find(|f| f.is_being_compacted());
    if let Some(f) = busy {
        return Err(Error::aborted(format!(
            "compact_files: file {} is in another compaction",
            f.meta().number
        )));
    }
    if output > 0 && input.conflicts(&range, output) {
        return Err(Error::aborted(format!(
            "compact_files: another compaction writes the same keys to level {output}"
        )));
    }
    let base = Picker::new(input).targets.base_level;
    let mut plan = input.plan(inputs, output, base, MANUAL);
    plan.target_file_bytes = file_bytes;
    plan.grandparents = levels.sorted_overlapping(output + 1, &range).to_vec();
    Ok(Step::Run(Box::new(plan)))
}

/// Adds the files that must not stay above the output level or on it; returns the key range of all files.
fn complete<F: Candidate>(
    input: &Input<'_, F>,
    chosen: &mut [Vec<Arc<F>>],
    output: usize,
) -> Option<Range> {
    let levels = &input.levels;
    if output == 0 {
        // Level 0 files must be adjacent in age: everything between the newest and the oldest is included.
        let all = levels.level(0);
        let is_chosen = |f: &Arc<F>| chosen[0].iter().any(|c| c.meta().number == f.meta().number);
        let first = all.iter().position(is_chosen)?;
        let last = all.iter().rposition(is_chosen)?;
        chosen[0] = all[first..=last].to_vec();
        return levels.range(&chosen[0]);
    }
    let mut range = levels.range(chosen.iter().flatten())?;
    let top = chosen.iter().position(|files| !files.is_empty())?;
    loop {
        for (level, files) in chosen.iter_mut().enumerate().take(output + 1).skip(top) {
            *files = if level == 0 {
                let chosen: Vec<_> = files.iter().map(|f| f.meta().number).collect();
                let all = levels.level(0);
                let from = all.iter().position(|f| chosen.contains(&f.meta().number))?;
                let older = all[from..].iter().filter(|f| levels.meets(f, &range));
                older.cloned().collect()
            } else {
                levels.sorted_overlapping(level, &range).to_vec()
            };
        }
        let grown = levels.range(chosen.iter().flatten())?;
        if grown == range {
            return Some(range);
        }
        range = grown;
    }
}
