//! Divides the key range of a compaction into parts of about equal size, one for each thread.
//!
//! The boundaries are separator keys of the inputs' indexes. Each key represents the bytes before it, so no
//! data blocks are read to find the boundaries.

use base::Comparator;

use manifest::TableFile;
use picking::{Candidate, Plan};

/// Number of anchors taken from one file.
const ANCHORS_PER_FILE: usize = 128;

/// The user keys at which the second and later parts begin; at most `parts_max - 1`. A part is not much
/// smaller than one output file.
pub(crate) fn boundaries(
    cmp: &Comparator,
    plan: &Plan<TableFile>,
    parts_max: usize,
) -> Vec<Vec<u8>> {
    let bytes = plan.input_bytes();
    let least = plan.target_file_bytes.max(1);
    let parts = usize::try_from(bytes / least)
        .unwrap_or(usize::MAX)
        .min(parts_max);
    if parts < 2 {
        return Vec::new();
    }
    let mut anchors: Vec<(Vec<u8>, u64)> = plan
        .files()
        // The compaction will report errors.
        .filter_map(|(_, f)| f.reader().ok()?.anchors(ANCHORS_PER_FILE).ok())
        .flatten()
        .collect();
    anchors.sort_by(|a, b| cmp.compare(&a.0, &b.0));
    let last = plan
        .files()
        .map(|(_, f)| f.largest())
        .max_by(|a, b| cmp.compare(a, b));
    cut(cmp, &anchors, parts, last.unwrap_or_default())
}

/// The anchors at which the second and later shares of the bytes begin; all anchors are before `last`.
fn cut(cmp: &Comparator, anchors: &[(Vec<u8>, u64)], parts: usize, last: &[u8]) -> Vec<Vec<u8>> {
    let all: u64 = anchors.iter().map(|a| a.1).sum();
    let share = (all / parts as u64).max(1);
    let mut out: Vec<Vec<u8>> = Vec::with_capacity(parts - 1);
    let mut seen = 0u64;
    for (key, bytes) in anchors {
        seen += bytes;
        let due = share * (out.len() as u64 + 1);
        let new = out.last().is_none_or(|b| cmp.compare(b, key).is_lt());
        if seen >= due && out.len() + 1 < parts && new && cmp.compare(key, last).is_lt() {
            out.push(key.clone());
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_about_equal_and_boundaries_ascend() {
        let cmp = Comparator::bytewise();
        let anchors: Vec<(Vec<u8>, u64)> = (0u8..100).map(|i| (vec![i], 10)).collect();
        let cuts = cut(&cmp, &anchors, 4, &[99]);
        assert_eq!(cuts, [vec![24], vec![49], vec![74]]);
        // One key has all the bytes: no empty part is made.
        let same: Vec<(Vec<u8>, u64)> = (0..100).map(|_| (vec![7], 10)).collect();
        assert_eq!(cut(&cmp, &same, 4, &[9]), [vec![7]]);
        assert_eq!(cut(&cmp, &same, 4, &[7]), Vec::<Vec<u8>>::new());
    }
}
