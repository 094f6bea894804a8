//! What only snapshots keep: entries under newer ones of the same key, and deletions with nothing to delete.

use std::sync::Arc;

use super::Input;
use super::files::{Candidate, Levels};
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
    let numbers = kept(input).map(|(_, f)| f.meta().largest_seqno);
    numbers.filter(|seq| *seq > oldest).min()
}

/// The files, with their levels, that are worth a compaction once no snapshot sees their older entries: nothing is
/// below them, so that it drops these entries.
pub(super) fn kept<'b, 'a: 'b, F: Candidate>(
    input: &'b Input<'a, F>,
) -> impl Iterator<Item = (usize, &'a Arc<F>)> + 'b {
    let levels = &input.levels;
    let pays = |f: &F| {
        let counts = f.counts();
        // One deletion may be the file's largest key, kept by an earlier compaction.
        counts.deletions > 1
            || counts.range_deletions > 0
            || counts.kept > 0 && counts.kept >= counts.entries / KEPT_PART
    };
    levels.all().filter(move |(level, f)| {
        let idle = !f.is_being_compacted() && f.meta().largest_seqno != 0;
        idle && pays(f) && is_lowest(levels, *level, f)
    })
}

/// Whether no other file has older entries of the file's keys.
fn is_lowest<F: Candidate>(levels: &Levels<'_, F>, level: usize, file: &Arc<F>) -> bool {
    let Some(range) = levels.range([file]) else {
        return false;
    };
    // Level 0 has the newest file first.
    let older = levels.level(level).iter();
    let mut older = older.skip_while(|f| !Arc::ptr_eq(f, file)).skip(1);
    let beside = level == 0 && older.any(|f| levels.meets(f, &range));
    let below = |l| !levels.sorted_overlapping(l, &range).is_empty();
    !beside && !(level + 1..levels.count()).any(below)
}
