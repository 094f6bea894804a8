//! Decides what happens to level 0: it is compacted where the fewest bytes are written per byte of level 0.
//!
//! ```text
//!   overlaps nothing below                  moves as it is
//!   far smaller than the base level         becomes one file
//!   going down rewrites more than it has    its newest files become one; it goes down later with more data
//!   the base level could not keep it        together with the base level into the level after it
//!   else                                    into the base level
//! ```
//!
//! Level 0 goes down as a whole, as far as its files overlap. While that runs, its newest files may be
//! merged with each other to keep their number low.

use std::sync::Arc;

use super::files::cheap_span;
use super::files::{Candidate, total};
use super::level::Picker;
use super::{Kind, Plan};

/// Minimum number of level 0 files for a merge among themselves.
const INTRA_LEVEL0_FILES_MIN: usize = 4;
/// Minimum number of the newest level 0 files for a merge before level 0 goes down, when no more files are
/// coming. With fewer, the same bytes would be rewritten too soon.
const TIER_FILES_MIN: usize = 3;
/// Level 0 gathers files as long as going down would rewrite at least this many bytes per byte of its own.
const TIER_REWRITES_MIN: u64 = 1;
/// Level 0 counts as growing if its newest file is at most this many seconds old.
const GROWS_SECONDS: u64 = 15;

impl<F: Candidate> Picker<'_, '_, F> {
    /// Compacts files of level 0 into the base level, or with each other if that is much cheaper.
    pub(super) fn level0(&self) -> Option<Plan<F>> {
        const REASON: &str = "LevelL0FilesNum";
        if self.input.level0_is_busy() {
            return None;
        }
        let output = self.targets.base_level;
        self.move_from_level0(output, REASON)
            .or_else(|| self.merge_small_level0())
            .or_else(|| {
                self.by_priority(0, output).into_iter().find_map(|f| {
                    let range = self.input.levels.range([&f])?;
                    let files = self.input.levels.overlapping(0, &range);
                    self.tiered()
                        .or_else(|| self.through_base(&files, REASON))
                        .or_else(|| self.with_output(0, files, output, REASON))
                })
            })
    }

    /// Compacts the files of level 0, with what they overlap in the base level, into the level after it, if
    /// that writes fewer bytes per byte that arrives there.
    ///
    /// Let level 0 have `a` bytes, the base level `b` bytes with the target `t`, and the level after it `d`
    /// bytes. The direct way writes `1 + d / (a + b)` for each byte. The alternative fills the base level
    /// first and then moves on what exceeds its target: `(a + t) / a + 1 + d / (a + t)`.
    fn through_base(&self, files: &[Arc<F>], reason: &'static str) -> Option<Plan<F>> {
        let levels = &self.input.levels;
        let base = self.targets.base_level;
        let output = base + 1;
        let busy = files.iter().any(|f| f.is_being_compacted());
        if busy || output >= levels.count() || levels.level(output).is_empty() {
            return None;
        }
        let range = levels.range(files)?;
        let middle = levels.clean_cut(base, levels.overlapping(base, &range))?;
        let range = levels.range(files.iter().chain(&middle))?;
        let below = levels.clean_cut(output, levels.overlapping(output, &range))?;
        let range = levels.range(files.iter().chain(&middle).chain(&below))?;
        let (a, b, d) = (total(files), total(&middle), total(&below));
        let target = self.targets.max_bytes(base);
        if a == 0
            || a + b <= target
            || a + b + d > self.input.options.compaction_bytes_max()
            || self.input.conflicts(&range, output)
        {
            return None;
        }
        let (own, full, rest) = (a as f64, (a + target) as f64, d as f64);
        let direct = 1.0 + rest / (a + b) as f64;
        let by_turns = full / own + 1.0 + rest / full;
        if direct >= by_turns {
            return None;
        }
        let mut inputs = vec![(0, files.to_vec()), (base, middle), (output, below)];
        inputs.retain(|(_, files)| !files.is_empty());
        let mut plan = self.input.plan(inputs, output, base, reason);
        plan.score = self.score_of(0);
        plan.grandparents = self.grandparents(&range, output);
        Some(plan)
    }

    /// Whether going down would rewrite more bytes than level 0 has.
    fn level0_is_light(&self) -> bool {
        let levels = &self.input.levels;
        let files = levels.level(0);
        let rewritten = match self.through_base(files, "") {
            Some(plan) => plan.input_bytes().saturating_sub(total(files)),
            None => levels.range(files).map_or(0, |range| {
                total(&levels.overlapping(self.targets.base_level, &range))
            }),
        };
        rewritten >= total(files).saturating_mul(TIER_REWRITES_MIN)
    }

    /// Whether level 0, although it has a score, waits for more files because it is too light to go down.
    /// While it grows, it waits for one and a half times as many files as the trigger, but never for so many that a
    /// manual flush would wait for a compaction: one file more would slow writers down.
    pub(super) fn level0_gathers(&self) -> bool {
        let files = self.input.levels.level(0).len();
        let trigger = self.level0_trigger();
        let enough = if self.level0_grows() {
            trigger + trigger / 2
        } else {
            trigger
        };
        let slowdown = self.input.options.level0_slowdown_writes_trigger;
        let free = (slowdown.unsigned_abs() as usize).saturating_sub(1);
        files < enough.min(free) && self.level0_is_light()
    }

    /// Whether level 0 is currently receiving files.
    fn level0_grows(&self) -> bool {
        let newest = self.input.levels.level(0).first();
        newest.is_some_and(|f| {
            let made = f.meta().file_creation_time;
            made > 0 && self.input.now.saturating_sub(made) <= GROWS_SECONDS
        })
    }

    fn level0_trigger(&self) -> usize {
        let trigger = self.input.options.level0_file_num_compaction_trigger;
        trigger.unsigned_abs() as usize
    }

    /// Merges the newest files of level 0 into one, if they are of similar size, few enough files are left
    /// afterwards, and level 0 is too light to go down: it goes down later, with more data.
    fn tiered(&self) -> Option<Plan<F>> {
        let files = self.input.levels.level(0);
        let options = self.input.options;
        let max = options.max_bytes_for_level_base.saturating_mul(2);
        let (mut run, mut bytes) = (0, 0u64);
        for f in files {
            let size = f.meta().file_size;
            let alike = run == 0 || size * run as u64 <= bytes.saturating_mul(2);
            if f.is_being_compacted() || !alike || bytes + size > max {
                break;
            }
            run += 1;
            bytes += size;
        }
        let trigger = self.level0_trigger();
        let least = if self.level0_grows() {
            TIER_FILES_MIN.max(trigger + 1)
        } else {
            TIER_FILES_MIN
        };
        let small = run >= least && files.len() - run + 1 < trigger;
        (small && self.level0_is_light())
            .then(|| self.within_level0(files.iter().take(run).cloned().collect()))
    }

    /// Moves the oldest files of level 0 unchanged, as far as they overlap neither each other nor the
    /// output level.
    fn move_from_level0(&self, output: usize, reason: &'static str) -> Option<Plan<F>> {
        let levels = &self.input.levels;
        if levels.level(output).is_empty() || !self.input.options.compression_per_level.0.is_empty()
        {
            return None;
        }
        let mut files: Vec<Arc<F>> = Vec::new();
        for f in levels.level(0).iter().rev() {
            if f.is_being_compacted() {
                break;
            }
            let mut more = files.clone();
            more.push(Arc::clone(f));
            let free = levels
                .range([f])
                .is_some_and(|r| levels.sorted_overlapping(output, &r).is_empty());
            if !free || !levels.disjoint(&more) {
                break;
            }
            files = more;
        }
        let range = levels.range(&files)?;
        // Newer files of level 0 stay above, and files of the output level between the moved ones stay in
        // place.
        if self.input.conflicts(&range, output)
            || !self
                .input
                .can_move(0, &files, output, self.targets.base_level)
        {
            return None;
        }
        let mut plan = self.finished(0, files, Vec::new(), output, reason);
        plan.kind = Kind::Move;
        Some(plan)
    }

    /// Merges all of level 0 into one file, if the base level is so much larger that a merge with it would
    /// mostly rewrite the base level.
    fn merge_small_level0(&self) -> Option<Plan<F>> {
        let levels = &self.input.levels;
        let files = levels.level(0);
        let least = self.level0_trigger().max(2);
        let factor = self.input.options.max_bytes_for_level_multiplier.max(10.0);
        let base = levels.bytes(self.targets.base_level) as f64;
        if files.len() < least
            || base <= total(files) as f64 * factor
            || files.iter().any(|f| f.is_being_compacted())
        {
            return None;
        }
        Some(self.within_level0(files.to_vec()))
    }

    fn within_level0(&self, files: Vec<Arc<F>>) -> Plan<F> {
        let base = self.targets.base_level;
        self.input
            .plan(vec![(0, files)], 0, base, "LevelL0FilesNum")
    }

    /// Merges the newest files of level 0 with each other while the older ones are busy.
    pub(super) fn intra_level0(&self) -> Option<Plan<F>> {
        let files = self.input.levels.level(0);
        if files.len() < self.level0_trigger() + 2 {
            return None;
        }
        let max = self.input.options.compaction_bytes_max();
        let span = cheap_span(files, INTRA_LEVEL0_FILES_MIN, u64::MAX, max)?;
        Some(self.within_level0(span.to_vec()))
    }
}
