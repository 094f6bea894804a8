//! What only snapshots keep: entries under newer ones of the same key, and deletions with nothing to delete.

use std::cell::Cell;
use std::sync::Arc;

use super::Input;
use super::files::{Candidate, Counts, Range};
use options::CompactionStyle;

/// A file is compacted only for the entries that were kept if they are at least this part of its entries: one of
/// twenty.
const KEPT_PART: u64 = 20;

/// The lowest sequence number above `oldest`, which is the oldest snapshot's, that it must reach before a compaction
/// can drop what snapshots keep; `None` if they keep nothing that is worth a compaction.
pub fn kept_until<F: Candidate>(input: &Input<'_, F>, oldest: u64) -> Option<u64> {
    // The other styles do not look at what files keep.
    if input.options.compaction_style != CompactionStyle::Level {
        return None;
    }
    // Only a file with a lower number than those before is worth a closer look.
    let lowest = Cell::new(u64::MAX);
    let waits = |seqno| seqno > oldest && seqno < lowest.get();
    find(input, waits, |_, file| -> Option<()> {
        lowest.set(file.meta().largest_seqno);
        None
    });
    Some(lowest.get()).filter(|&n| n < u64::MAX)
}

/// Calls `f` with the files, and their levels, that are worth a compaction once no snapshot sees their older entries,
/// until it returns something: nothing is below them, so that it drops these entries. Their largest sequence number
/// must fit.
pub(super) fn find<'a, F: Candidate, R>(
    input: &Input<'a, F>,
    fits: impl Fn(u64) -> bool,
    mut f: impl FnMut(usize, &'a Arc<F>) -> Option<R>,
) -> Option<R> {
    let levels = &input.levels;
    let is_candidate = |level: usize, f: &Arc<F>| {
        let seqno = f.meta().largest_seqno;
        !f.is_being_compacted() && seqno != 0 && fits(seqno) && pays(level, f.counts())
    };
    let below = |level: usize, range: &Range| {
        (level + 1..levels.count()).any(|l| !levels.sorted_overlapping(l, range).is_empty())
    };
    // Level 0 has the newest file first. The range of all older files together stands for each of them.
    let mut older: Option<Range> = None;
    let level0 = levels.level(0);
    if level0.iter().any(|f| is_candidate(0, f)) {
        for file in level0.iter().rev() {
            let range = levels.range([file])?;
            let beside = older.as_ref().is_some_and(|o| levels.meets(file, o));
            if !beside
                && is_candidate(0, file)
                && !below(0, &range)
                && let Some(found) = f(0, file)
            {
                return Some(found);
            }
            older = Some(older.map_or_else(|| range.clone(), |o| levels.hull(&o, &range)));
        }
    }
    levels
        .all()
        .filter(|(level, _)| *level > 0)
        .find_map(|(level, file)| {
            let fits = is_candidate(level, file) && !below(level, &levels.range([file])?);
            fits.then(|| f(level, file)).flatten()
        })
}

/// Whether a compaction of a file drops enough, if it drops what was kept.
fn pays(level: usize, counts: Counts) -> bool {
    // One deletion may be the file's largest key, kept by an earlier compaction. Level 0 is compacted soon anyway.
    level > 0 && counts.deletions > 1
        || counts.range_deletions > 0
        || counts.kept > 0 && counts.kept >= counts.entries / KEPT_PART
}
