//! The picker's data: files on levels, and key ranges.

use std::cmp::Ordering;
use std::sync::Arc;

use base::{Comparator, SequenceNumber, key};

use manifest::edit::FileMetaData;

/// The content of a file, according to its properties.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Entries, deletions included.
    pub entries: u64,
    /// Deletions of any kind.
    pub deletions: u64,
    /// Range deletions.
    pub range_deletions: u64,
    /// Entries that were kept for a snapshot.
    pub kept: u64,
    /// Bytes of keys before compression.
    pub(crate) raw_key_bytes: u64,
    /// Bytes of values before compression.
    pub(crate) raw_value_bytes: u64,
}

/// A file as the picker sees it: a table of the database, or a line of a test.
pub trait Candidate {
    /// Its metadata in the MANIFEST.
    fn meta(&self) -> &FileMetaData;
    /// The counts in its table's properties.
    fn counts(&self) -> Counts;
    /// Whether it is an input of a running compaction.
    fn is_being_compacted(&self) -> bool;
    /// Whether its compaction was suggested.
    fn is_marked(&self) -> bool;

    /// Its size in bytes.
    fn size(&self) -> u64 {
        self.meta().file_size
    }

    /// The smallest user key.
    fn smallest(&self) -> &[u8] {
        key::user_key(&self.meta().smallest)
    }

    /// The largest user key.
    fn largest(&self) -> &[u8] {
        key::user_key(&self.meta().largest)
    }

    /// Whether the largest key is the end of a range tombstone, which the file does not include.
    fn ends_before_largest(&self) -> bool {
        // Type 0x0f, with the largest sequence number.
        const SENTINEL: u64 = (SequenceNumber::MAX.0 << 8) | 0x0f;
        key::split(&self.meta().largest).is_some_and(|(_, packed)| packed == SENTINEL)
    }
}

/// A range of user keys.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first key.
    pub smallest: Vec<u8>,
    /// The last key.
    pub largest: Vec<u8>,
    /// Whether the largest key is excluded.
    pub open_end: bool,
}

impl Range {
    /// Whether both ranges have a key in common.
    pub fn overlaps(&self, cmp: &Comparator, other: &Self) -> bool {
        ends_at_or_after(cmp, &self.largest, self.open_end, &other.smallest)
            && ends_at_or_after(cmp, &other.largest, other.open_end, &self.smallest)
    }
}

/// Whether a range that ends at `largest` contains `key` or keys after it.
fn ends_at_or_after(cmp: &Comparator, largest: &[u8], open: bool, key: &[u8]) -> bool {
    match cmp.compare(largest, key) {
        Ordering::Less => false,
        Ordering::Equal => !open,
        Ordering::Greater => true,
    }
}

/// The files of a column family, level by level: newest first on level 0, by key elsewhere.
pub struct Levels<'a, F> {
    /// The order of keys.
    pub comparator: &'a Comparator,
    /// The files of each level.
    pub files: &'a [Arc<Vec<Arc<F>>>],
}

impl<F> Clone for Levels<'_, F> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<F> Copy for Levels<'_, F> {}

impl<'a, F: Candidate> Levels<'a, F> {
    /// How many levels there are.
    pub fn count(&self) -> usize {
        self.files.len()
    }

    /// The files of a level; none if there is no such level.
    pub fn level(&self, level: usize) -> &'a [Arc<F>] {
        self.files.get(level).map_or(&[], |files| files.as_slice())
    }

    /// The size of a level's files in bytes.
    pub fn bytes(&self, level: usize) -> u64 {
        total(self.level(level))
    }

    /// The number of levels down to the lowest one that has files.
    pub(crate) fn non_empty(&self) -> usize {
        let lowest = self.files.iter().rposition(|l| !l.is_empty());
        lowest.map_or(0, |l| l + 1)
    }

    /// All files with their level.
    pub fn all(&self) -> impl Iterator<Item = (usize, &'a Arc<F>)> {
        let levels = self.files.iter().enumerate();
        levels.flat_map(|(l, files)| files.iter().map(move |f| (l, f)))
    }

    /// The key range of some files; `None` if there are none.
    pub fn range<'b>(&self, files: impl IntoIterator<Item = &'b Arc<F>>) -> Option<Range>
    where
        F: 'b,
    {
        let cmp = self.comparator;
        let mut files = files.into_iter();
        let first = files.next()?;
        let (mut low, mut high) = (first, first);
        for f in files {
            if cmp.compare(f.smallest(), low.smallest()).is_lt() {
                low = f;
            }
            let further = cmp.compare(f.largest(), high.largest());
            if further.is_gt() || (further.is_eq() && !f.ends_before_largest()) {
                high = f;
            }
        }
        Some(Range {
            smallest: low.smallest().to_vec(),
            largest: high.largest().to_vec(),
            open_end: high.ends_before_largest(),
        })
    }

    /// Whether the file may have a key in the range.
    pub fn meets(&self, file: &F, range: &Range) -> bool {
        let cmp = self.comparator;
        ends_at_or_after(
            cmp,
            file.largest(),
            file.ends_before_largest(),
            &range.smallest,
        ) && ends_at_or_after(cmp, &range.largest, range.open_end, file.smallest())
    }

    /// The files of a level that overlap the range. On level 0 also files that overlap those found, and so
    /// on.
    pub fn overlapping(&self, level: usize, range: &Range) -> Vec<Arc<F>> {
        if level > 0 {
            return self.sorted_overlapping(level, range).to_vec();
        }
        let mut range = range.clone();
        loop {
            let files = self.level(0).iter().filter(|f| self.meets(f, &range));
            let found: Vec<Arc<F>> = files.cloned().collect();
            let Some(grown) = self.range(&found) else {
                return found;
            };
            let both = self.hull(&range, &grown);
            if both == range {
                return found;
            }
            range = both;
        }
    }

    pub(crate) fn hull(&self, a: &Range, b: &Range) -> Range {
        let cmp = self.comparator;
        let low = if cmp.compare(&b.smallest, &a.smallest).is_lt() {
            b
        } else {
            a
        };
        let further = cmp.compare(&b.largest, &a.largest);
        let high = if further.is_gt() || (further.is_eq() && !b.open_end) {
            b
        } else {
            a
        };
        Range {
            smallest: low.smallest.clone(),
            largest: high.largest.clone(),
            open_end: high.open_end,
        }
    }

    /// The files of a sorted level that overlap the range.
    pub fn sorted_overlapping(&self, level: usize, range: &Range) -> &'a [Arc<F>] {
        let cmp = self.comparator;
        let files = self.level(level);
        let from = files.partition_point(|f| {
            !ends_at_or_after(cmp, f.largest(), f.ends_before_largest(), &range.smallest)
        });
        let to = files.partition_point(|f| {
            ends_at_or_after(cmp, &range.largest, range.open_end, f.smallest())
        });
        files.get(from..to.max(from)).unwrap_or_default()
    }

    /// The files, and those of the same level that share a user key with them, so that all versions of a
    /// key stay together. `None` if one of them is being compacted.
    pub(crate) fn clean_cut(&self, level: usize, files: Vec<Arc<F>>) -> Option<Vec<Arc<F>>> {
        let mut files = files;
        if level > 0 {
            while let Some(range) = self.range(&files) {
                let all = self.sorted_overlapping(level, &range);
                if all.len() <= files.len() {
                    break;
                }
                files = all.to_vec();
            }
        }
        (!files.iter().any(|f| f.is_being_compacted())).then_some(files)
    }

    /// The files of a sorted level that lie entirely in the range, and share no user key with files that do
    /// not.
    pub(crate) fn clean_within(&self, level: usize, range: &Range) -> Vec<Arc<F>> {
        let cmp = self.comparator;
        let all = self.level(level);
        let inside = |f: &F| {
            cmp.compare(f.smallest(), &range.smallest).is_ge()
                && cmp.compare(f.largest(), &range.largest).is_le()
        };
        let Some(mut from) = all.iter().position(|f| inside(f)) else {
            return Vec::new();
        };
        let mut to = all.iter().rposition(|f| inside(f)).map_or(from, |i| i + 1);
        let touch = |a: usize, b: usize| match (all.get(a), all.get(b)) {
            (Some(a), Some(b)) => {
                ends_at_or_after(cmp, a.largest(), a.ends_before_largest(), b.smallest())
            }
            _ => false,
        };
        while from < to && from > 0 && touch(from - 1, from) {
            from += 1;
        }
        while from < to && touch(to - 1, to) {
            to -= 1;
        }
        all.get(from..to).unwrap_or_default().to_vec()
    }

    /// Whether no two of the files share a user key.
    pub fn disjoint(&self, files: &[Arc<F>]) -> bool {
        let cmp = self.comparator;
        let mut sorted: Vec<_> = files.iter().collect();
        sorted.sort_by(|a, b| cmp.compare(a.smallest(), b.smallest()));
        sorted.windows(2).all(|w| {
            !ends_at_or_after(
                cmp,
                w[0].largest(),
                w[0].ends_before_largest(),
                w[1].smallest(),
            )
        })
    }

    /// The average size of a value as stored in the files, compressed.
    fn average_value_bytes(&self) -> u64 {
        let mut sum = Counts::default();
        let mut file_bytes = 0u64;
        for (_, f) in self.all() {
            let c = f.counts();
            sum.entries += c.entries.saturating_sub(c.deletions);
            sum.raw_key_bytes += c.raw_key_bytes;
            sum.raw_value_bytes += c.raw_value_bytes;
            file_bytes += f.size();
        }
        let raw = sum.raw_key_bytes + sum.raw_value_bytes;
        if sum.entries == 0 || raw == 0 {
            return 0;
        }
        let value = u128::from(sum.raw_value_bytes) * u128::from(file_bytes);
        (value / u128::from(sum.entries) / u128::from(raw)) as u64
    }

    /// The weights by which the picker compares file sizes.
    pub fn weights(&self) -> Weights {
        let few_deletions = |f: &Arc<F>| {
            let c = f.counts();
            c.deletions == 0 || c.deletions * 2 < c.entries
        };
        if self.all().all(|(_, f)| few_deletions(f)) {
            return Weights(0);
        }
        Weights(self.average_value_bytes())
    }
}

/// Weighs files: for a file that consists mostly of deletions, the data that they delete counts too.
#[derive(Clone, Copy, Debug)]
pub struct Weights(u64);

impl Weights {
    /// How many average values each deletion counts for that outnumbers a file's other entries.
    const DELETION_WEIGHT: u64 = 2;

    /// The file's size plus the estimated data that its deletions remove.
    pub fn of<F: Candidate>(self, f: &F) -> u64 {
        let c = f.counts();
        let mut bytes = f.size() + f.meta().compensated_range_deletion_size;
        if c.deletions > 0 && c.deletions * 2 >= c.entries {
            let more = c.deletions * 2 - c.entries;
            bytes = bytes.saturating_add(more.saturating_mul(self.0) * Self::DELETION_WEIGHT);
        }
        bytes
    }
}

/// Bytes of some files.
pub(crate) fn total<'b, F: Candidate + 'b>(files: impl IntoIterator<Item = &'b Arc<F>>) -> u64 {
    files.into_iter().map(|f| f.size()).sum()
}

/// The newest files that are not busy, as long as each additional file lowers the work per file that is
/// removed.
pub(crate) fn cheap_span<F: Candidate>(
    files: &[Arc<F>],
    files_min: usize,
    bytes_per_file_max: u64,
    bytes_max: u64,
) -> Option<&[Arc<F>]> {
    let first = files.first().filter(|f| !f.is_being_compacted())?;
    let mut bytes = first.size();
    let mut per_file = u64::MAX;
    let mut count = 1;
    for f in files.iter().skip(1) {
        bytes = bytes.saturating_add(f.size());
        let new = bytes / count as u64;
        if f.is_being_compacted() || new > per_file || bytes > bytes_max {
            break;
        }
        per_file = new;
        count += 1;
    }
    if count < files_min || per_file >= bytes_per_file_max {
        return None;
    }
    files.get(..count)
}
