//! Level compaction.
//!
//! By score: picks a file of the level that needs compaction most, in the order of `compaction_pri`, with
//! the files that it overlaps in the next level. [`super::level0`] handles level 0.

use std::sync::Arc;

use super::files::{Candidate, Range, total};
use super::score::{Score, Targets, scores};
use super::{Input, Kind, Plan, kept};
use options::CompactionPri;

/// Maximum number of files that one compaction moves down a level.
const MOVED_FILES_MAX: usize = 4;

pub(super) fn pick<F: Candidate>(input: &Input<'_, F>) -> Option<Plan<F>> {
    if input.levels.count() < 2 {
        return None;
    }
    let picker = Picker::new(input);
    picker
        .by_score()
        .or_else(|| picker.marked())
        .or_else(|| picker.freed_by_snapshots())
        .or_else(|| picker.expired())
        .or_else(|| picker.periodic())
}

/// Where a file goes that is compacted for a reason other than its level's size.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Destination {
    Same,
    Next,
    /// The next level, unless no level below has files.
    NextIfAny,
}

pub(super) struct Picker<'a, 'b, F> {
    pub(super) input: &'b Input<'a, F>,
    pub(super) targets: Targets,
    scores: Vec<Score>,
}

impl<'a, 'b, F: Candidate> Picker<'a, 'b, F> {
    pub(super) fn new(input: &'b Input<'a, F>) -> Self {
        let targets = Targets::of(&input.levels, input.options);
        let scores = scores(&input.levels, input.options, &targets, input.now);
        Self {
            input,
            targets,
            scores,
        }
    }

    fn below(&self, level: usize) -> usize {
        if level == 0 {
            self.targets.base_level
        } else {
            level + 1
        }
    }

    fn by_score(&self) -> Option<Plan<F>> {
        let mut level0_waits = false;
        for s in self.scores.iter().take_while(|s| s.score >= 1.0) {
            // Level 0 waits for this level: more work on it would prolong the wait.
            if level0_waits && s.level == self.targets.base_level {
                continue;
            }
            let found = if s.level == 0 {
                if self.level0_gathers() {
                    continue;
                }
                let found = self.level0();
                level0_waits = found.is_none();
                found.or_else(|| self.intra_level0())
            } else {
                self.one_level(s.level)
            };
            if let Some(mut plan) = found {
                plan.score = s.score;
                return Some(plan);
            }
        }
        None
    }

    fn one_level(&self, level: usize) -> Option<Plan<F>> {
        const REASON: &str = "LevelMaxLevelSize";
        let output = level + 1;
        let in_turn = self.input.options.compaction_pri == CompactionPri::RoundRobin;
        for f in self.by_priority(level, output) {
            if f.is_being_compacted() {
                if in_turn {
                    return None;
                }
                continue;
            }
            let found = self
                .input
                .levels
                .clean_cut(level, vec![f])
                .map(|files| self.extended(level, files, output))
                .and_then(|files| self.with_output(level, files, output, REASON));
            if let Some(mut plan) = found {
                plan.cursor = in_turn.then(|| self.cursor_after(level, &plan)).flatten();
                return Some(plan);
            }
            if in_turn {
                return None;
            }
        }
        None
    }

    /// Where the level's next compaction starts: at the file after the inputs, or at the first file.
    fn cursor_after(&self, level: usize, plan: &Plan<F>) -> Option<(usize, Vec<u8>)> {
        let files = self.input.levels.level(level);
        let last = plan.inputs.first()?.1.last()?.meta().number;
        let at = files.iter().position(|f| f.meta().number == last)?;
        let next = files.get(at + 1).or(files.first())?;
        Some((level, next.meta().smallest.clone()))
    }

    /// If a single file overlaps nothing in the output level, adds the files after it that overlap nothing
    /// either.
    fn extended(&self, level: usize, files: Vec<Arc<F>>, output: usize) -> Vec<Arc<F>> {
        let levels = &self.input.levels;
        let all = levels.level(level);
        let max = self.input.options.compaction_bytes_max();
        let alone = |files: &[Arc<F>]| {
            let range = levels.range(files);
            range.is_some_and(|r| levels.sorted_overlapping(output, &r).is_empty())
        };
        let [one] = &files[..] else { return files };
        if !alone(&files) || !self.input.options.compression_per_level.0.is_empty() {
            return files;
        }
        let number = one.meta().number;
        let start = all
            .iter()
            .position(|f| f.meta().number == number)
            .unwrap_or(all.len());
        let mut files = files;
        for f in all.iter().skip(start + 1) {
            let mut more = files.clone();
            more.push(Arc::clone(f));
            if more.len() > MOVED_FILES_MAX
                || f.is_being_compacted()
                || total(&more) > max
                || !alone(&more)
                || levels
                    .clean_cut(level, more.clone())
                    .is_none_or(|c| c.len() != more.len())
            {
                break;
            }
            files = more;
        }
        files
    }

    /// The compaction of `files` of `level`, which must be a clean cut, with the output level's files that
    /// they overlap; `None` if some of these are busy.
    pub(super) fn with_output(
        &self,
        level: usize,
        files: Vec<Arc<F>>,
        output: usize,
        reason: &'static str,
    ) -> Option<Plan<F>> {
        let levels = &self.input.levels;
        if output >= levels.count() || files.iter().any(|f| f.is_being_compacted()) {
            return None;
        }
        let mut files = files;
        let mut range = levels.range(&files)?;
        let mut below = Vec::new();
        if output != level {
            below = levels.clean_cut(output, levels.overlapping(output, &range))?;
            if let (false, Some(grown)) = (below.is_empty(), self.grown(level, &files, &below)) {
                files = grown;
            }
            range = levels.range(files.iter().chain(&below))?;
        }
        if self.input.conflicts(&range, output) {
            return None;
        }
        let moves = below.is_empty()
            && self
                .input
                .can_move(level, &files, output, self.targets.base_level);
        let mut plan = self.finished(level, files, below, output, reason);
        if moves {
            plan.kind = Kind::Move;
        }
        plan.grandparents = self.grandparents(&range, output);
        Some(plan)
    }

    pub(super) fn finished(
        &self,
        level: usize,
        files: Vec<Arc<F>>,
        below: Vec<Arc<F>>,
        output: usize,
        reason: &'static str,
    ) -> Plan<F> {
        let mut inputs = vec![(level, files)];
        if !below.is_empty() {
            inputs.push((output, below));
        }
        let base = self.targets.base_level;
        let mut plan = self.input.plan(inputs, output, base, reason);
        plan.score = self.score_of(level);
        plan
    }

    pub(super) fn score_of(&self, level: usize) -> f64 {
        let found = self.scores.iter().find(|s| s.level == level);
        found.map_or(0.0, |s| s.score)
    }

    pub(super) fn grandparents(&self, range: &Range, output: usize) -> Vec<Arc<F>> {
        // The next level that has files: data stays on the output level until it moves there.
        let levels = &self.input.levels;
        (output + 1..levels.count())
            .map(|l| levels.sorted_overlapping(l, range))
            .find(|files| !files.is_empty())
            .unwrap_or_default()
            .to_vec()
    }

    /// More files of the upper level that fit between the ends of the output level's files, as long as they
    /// do not bring in more files of the output level.
    fn grown(&self, level: usize, files: &[Arc<F>], below: &[Arc<F>]) -> Option<Vec<Arc<F>>> {
        let levels = &self.input.levels;
        let all = levels.range(files.iter().chain(below))?;
        let fits = |more: &[Arc<F>]| {
            let size = total(more) + total(below);
            more.len() > files.len()
                && (self.input.options.ignore_max_compaction_bytes_for_input
                    || size < self.input.options.compaction_bytes_max())
                && !more.iter().any(|f| f.is_being_compacted())
        };
        let same_below = |more: &[Arc<F>]| {
            let output = self.below(level);
            let range = levels.range(more);
            let found = range.map(|r| levels.overlapping(output, &r));
            let cut = found.and_then(|files| levels.clean_cut(output, files));
            cut.is_some_and(|files| files.len() == below.len())
        };
        let touching = levels.clean_cut(level, levels.overlapping(level, &all));
        if let Some(more) = touching
            && fits(&more)
            && same_below(&more)
        {
            return Some(more);
        }
        if level == 0 {
            return None; // files of level 0 already come with all files that they overlap
        }
        let inside = levels.clean_within(level, &all);
        (fits(&inside) && same_below(&inside)).then_some(inside)
    }

    /// A level's files in the order in which they are tried.
    pub(super) fn by_priority(&self, level: usize, output: usize) -> Vec<Arc<F>> {
        let levels = &self.input.levels;
        let files = levels.level(level);
        let mut out = files.to_vec();
        match self.input.options.compaction_pri {
            CompactionPri::ByCompensatedSize => {
                let weights = levels.weights();
                out.sort_by_key(|f| std::cmp::Reverse(weights.of(&**f)));
            }
            CompactionPri::OldestLargestSeqFirst => out.sort_by_key(|f| f.meta().largest_seqno),
            CompactionPri::OldestSmallestSeqFirst => out.sort_by_key(|f| f.meta().smallest_seqno),
            CompactionPri::MinOverlappingRatio => {
                let weights = levels.weights();
                let boost = Boost::new(self.input, level);
                let ratio = |f: &Arc<F>| {
                    let range = levels.range([f]);
                    let below = range.map_or(0, |r| total(levels.sorted_overlapping(output, &r)));
                    let weight = weights.of(&**f).max(1);
                    below.saturating_mul(1024) / weight / boost.of(&**f)
                };
                out.sort_by_cached_key(ratio);
            }
            CompactionPri::RoundRobin => {
                if let Some(Some(cursor)) = self.input.cursors.get(level)
                    && level > 0
                {
                    let cmp = levels.comparator;
                    let from = files.partition_point(|f| {
                        base::key::compare(cmp, &f.meta().smallest, cursor).is_lt()
                    });
                    out.rotate_left(from);
                }
            }
        }
        out
    }

    /// The compaction of a single file for a reason other than its level's size.
    fn single(
        &self,
        level: usize,
        file: &Arc<F>,
        destination: Destination,
        reason: &'static str,
    ) -> Option<Plan<F>> {
        let levels = &self.input.levels;
        let last = level + 1 >= levels.non_empty();
        let stays = match destination {
            Destination::Same => true,
            Destination::Next => false,
            Destination::NextIfAny => last && level > 0,
        };
        let output = if stays { level } else { self.below(level) };
        if level == 0 && (self.input.level0_is_busy() || output == 0) {
            return None;
        }
        let files = if level == 0 {
            levels.overlapping(0, &levels.range([file])?)
        } else {
            levels.clean_cut(level, vec![Arc::clone(file)])?
        };
        self.with_output(level, files, output, reason)
    }

    fn idle(&self) -> impl Iterator<Item = (usize, &'a Arc<F>)> {
        let files = self.input.levels.all();
        files.filter(|(_, f)| !f.is_being_compacted())
    }

    /// Files whose compaction was suggested, unless they are already on the lowest level.
    fn marked(&self) -> Option<Plan<F>> {
        let lowest = self.input.levels.non_empty().saturating_sub(1);
        self.idle()
            .filter(|(l, f)| f.is_marked() && (*l < lowest || *l == 0))
            .find_map(|(l, f)| self.single(l, f, Destination::Next, "FilesMarkedForCompaction"))
    }

    /// Files with nothing below, whose deletions and older entries were kept only for snapshots that have been
    /// released. Those of level 0 go to the next level, the others stay where they are.
    fn freed_by_snapshots(&self) -> Option<Plan<F>> {
        let oldest = self.input.oldest_snapshot?;
        kept::find(
            self.input,
            |seqno| seqno <= oldest,
            |level, file| {
                let destination = if level == 0 {
                    Destination::Next
                } else {
                    Destination::Same
                };
                self.single(level, file, destination, "BottommostFiles")
            },
        )
    }

    fn expired(&self) -> Option<Plan<F>> {
        let ttl = self.input.options.ttl_seconds();
        if ttl == 0 || self.input.now <= ttl {
            return None;
        }
        let before = self.input.now - ttl;
        let last = self.input.levels.count() - 1;
        let old = |f: &Arc<F>| {
            let t = f.meta().oldest_ancestor_time;
            t > 0 && t < before
        };
        self.idle()
            .filter(|(l, f)| *l < last && old(f))
            .find_map(|(l, f)| self.single(l, f, Destination::Next, "Ttl"))
    }

    fn periodic(&self) -> Option<Plan<F>> {
        let due = due_periodically(self.input);
        self.idle()
            .filter(|(_, f)| due(f))
            .find_map(|(l, f)| self.single(l, f, Destination::NextIfAny, "PeriodicCompaction"))
    }
}

/// Whether a file is older than `periodic_compaction_seconds`.
pub(super) fn due_periodically<F: Candidate>(input: &Input<'_, F>) -> impl Fn(&Arc<F>) -> bool {
    let period = input.options.periodic_seconds();
    let before = match period {
        0 => 0,
        p => input.now.saturating_sub(p),
    };
    move |f| {
        let made = f.meta().file_creation_time;
        made > 0 && made < before
    }
}

/// Ranks files higher the closer they are to the end of their `ttl`, so that they need no compaction of
/// their own.
struct Boost {
    start: u64,
    range: u64,
    now: u64,
}

impl Boost {
    fn new<F: Candidate>(input: &Input<'_, F>, level: usize) -> Self {
        let ttl = input.options.ttl_seconds();
        let levels = input.levels.non_empty();
        let mut out = Self {
            start: u64::MAX,
            range: 0,
            now: input.now,
        };
        if ttl > 0 && level > 0 && level + 1 < levels {
            let start = ttl / 2;
            // Upper levels begin earlier: their files have further to go to the last level.
            let shift = (levels - level - 1).min(63) as u32;
            out.range = (ttl / 32 * 31).saturating_sub(start) >> shift;
            out.start = start + out.range;
        }
        out
    }

    fn of<F: Candidate>(&self, f: &F) -> u64 {
        let born = f.meta().oldest_ancestor_time;
        let age = self.now.saturating_sub(born);
        if born == 0 || age <= self.start {
            return 1;
        }
        (age - self.start).checked_div(self.range).unwrap_or(0) + 1
    }
}
