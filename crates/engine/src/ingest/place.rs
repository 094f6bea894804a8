//! Chooses the level of an ingested file: the lowest level that it fits in, but above everything that it must hide.
//! These are RocksDB's rules.

use base::{Comparator, Result, key};
use keyspan::span::{Span, before_versions};
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

/// Whether a memtable has an entry between the two user keys, both inclusive, or a range deletion that overlaps
/// them.
pub(super) fn memory_has_keys(view: &View, smallest: &[u8], largest: &[u8]) -> Result<bool> {
    let cmp = &view.version.comparator;
    for mem in std::iter::once(&view.mem).chain(&view.imm) {
        let ranges = mem.tombstone_spans();
        let reaches_in = |s: &Span| {
            cmp.compare(key::user_key(&s.start), largest).is_le()
                && cmp.compare(key::user_key(&s.end), smallest).is_gt()
        };
        if ranges.iter().any(reaches_in) || reaches(&mut mem.iter(), cmp, smallest, largest)? {
            return Ok(true);
        }
    }
    Ok(false)
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
