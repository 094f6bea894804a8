//! Chooses the level of an ingested file: the lowest level that it fits in, but above everything that it must hide.
//! These are RocksDB's rules.

use std::sync::Arc;

use base::{Comparator, Result, key};
use keyspan::span::before_versions;
use memtable::Memtable;
use table::InternalIterator;

use crate::catalog::view::View;
use manifest::Version;

/// A level, and whether the file hides older data there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) level: usize,
    pub(super) hides: bool,
}

/// The lowest of `levels` levels for a file with these user keys.
pub(super) fn place(
    version: &Version,
    levels: usize,
    smallest: &[u8],
    largest: &[u8],
) -> Result<Place> {
    let mut lowest = 0;
    for level in 0..levels.max(1) {
        if level_has_keys(version, level, smallest, largest)? {
            return Ok(Place {
                level: lowest,
                hides: true,
            });
        }
        if level == 0 || fits(version, level, smallest, largest) {
            lowest = level;
        }
    }
    Ok(Place {
        level: lowest,
        hides: false,
    })
}

/// Whether no file of a sorted level overlaps the range.
pub(super) fn fits(version: &Version, level: usize, smallest: &[u8], largest: &[u8]) -> bool {
    version
        .overlapping(level, Some(smallest), Some(largest))
        .is_empty()
}

/// Whether the level has an entry between the two user keys, both inclusive. A file with range deletions counts as
/// soon as it overlaps the range.
fn level_has_keys(
    version: &Version,
    level: usize,
    smallest: &[u8],
    largest: &[u8],
) -> Result<bool> {
    let options = table::ReadOptions {
        fill_cache: false,
        ..table::ReadOptions::default()
    };
    for file in version.overlapping(level, Some(smallest), Some(largest)) {
        let reader = file.reader()?;
        if reader.has_range_tombstones() {
            return Ok(true);
        }
        let mut it = reader.iter(options);
        if reaches(&mut it, &version.comparator, smallest, largest)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The memtables of a View, and what their range deletions cover.
pub(super) struct Memory<'v> {
    view: &'v View,
    /// From a user key up to another, exclusive; sorted and disjoint.
    covered: Vec<(Vec<u8>, Vec<u8>)>,
}

impl<'v> Memory<'v> {
    pub(super) fn of(view: &'v View) -> Self {
        let cmp = &view.version.comparator;
        let spans = memtables(view).flat_map(|mem| mem.tombstone_spans());
        let ranges = spans.map(|s| {
            (
                key::user_key(&s.start).to_vec(),
                key::user_key(&s.end).to_vec(),
            )
        });
        // A log of another writer may have ranges that end before they begin.
        let mut all: Vec<_> = ranges
            .filter(|(start, end)| cmp.compare(start, end).is_le())
            .collect();
        all.sort_by(|a, b| cmp.compare(&a.0, &b.0));
        let mut covered: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for (start, end) in all {
            match covered.last_mut() {
                Some(last) if cmp.compare(&start, &last.1).is_le() => {
                    if cmp.compare(&end, &last.1).is_gt() {
                        last.1 = end;
                    }
                }
                _ => covered.push((start, end)),
            }
        }
        Self { view, covered }
    }

    /// Whether a memtable has an entry between the two user keys, both inclusive, or a range deletion that overlaps
    /// them.
    pub(super) fn has_keys(&self, smallest: &[u8], largest: &[u8]) -> Result<bool> {
        let cmp = &self.view.version.comparator;
        let first = self
            .covered
            .partition_point(|(_, end)| cmp.compare(end, smallest).is_le());
        let next = self.covered.get(first);
        if next.is_some_and(|(start, _)| cmp.compare(start, largest).is_le()) {
            return Ok(true);
        }
        for mem in memtables(self.view) {
            if reaches(&mut mem.iter(), cmp, smallest, largest)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn memtables(view: &View) -> impl Iterator<Item = &Arc<Memtable>> {
    std::iter::once(&view.mem).chain(&view.imm)
}

fn reaches(
    it: &mut dyn InternalIterator,
    cmp: &Comparator,
    smallest: &[u8],
    largest: &[u8],
) -> Result<bool> {
    it.seek(&before_versions(smallest));
    if it.valid() {
        return Ok(cmp.compare(key::user_key(it.key()), largest).is_le());
    }
    it.status().map(|()| false)
}
