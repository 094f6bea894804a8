//! Approximate sizes of key ranges in a column family, and deletion of whole files in a range.

use std::collections::BTreeSet;
use std::sync::Arc;

use base::stats::Activity;
use base::sync::atomic::Ordering;
use base::{Error, FileNumber, Result, key};
use keyspan::span::before_versions;
use memtable::Memtable;
use table::InternalIterator;

use super::cf::Cf;
use crate::catalog::family::Family;
use crate::shared::Shared;
use crate::shared::exclusive::Exclusive;
use manifest::edit::VersionEdit;
use manifest::{TableFile, Version};

/// What [`Cf::get_approximate_sizes`] counts.
#[derive(Clone, Debug, PartialEq)]
pub struct SizeApproximationOptions {
    /// Data in memtables.
    pub include_memtables: bool,
    /// Data in files.
    pub include_files: bool,
    /// The acceptable error, as a fraction of the size of the files that lie wholly in the range. If the files at
    /// the ends of the range are smaller than that in total, they are not read, and half of their size is
    /// counted. 0 or a negative value asks for the best estimate.
    pub files_size_error_margin: f64,
}

impl Default for SizeApproximationOptions {
    fn default() -> Self {
        Self {
            include_memtables: false,
            include_files: true,
            files_size_error_margin: -1.0,
        }
    }
}

/// The keys from the first (inclusive) to the second (exclusive).
pub type Range<'a> = (&'a [u8], &'a [u8]);

/// Sizes of ranges, and deletion of whole tables.
impl Cf<'_> {
    /// The approximate number of bytes of the family in each range. Files count with their size on disk,
    /// that is, compressed.
    ///
    /// Errors: `InvalidArgument` if `options` include neither memtables nor files; a table cannot be opened.
    pub fn get_approximate_sizes(
        &self,
        options: &SizeApproximationOptions,
        ranges: &[Range<'_>],
    ) -> Result<Vec<u64>> {
        self.check()?;
        approximate(self.family, options, ranges)
    }

    /// The approximate number of entries and the approximate number of bytes that the memtables have in the range.
    pub fn get_approximate_memtable_stats(&self, range: Range<'_>) -> Result<(u64, u64)> {
        self.check()?;
        Ok(in_memory(self.family, range))
    }

    /// Deletes the tables whose keys all lie in one of the ranges, except those of level 0 and those that are being
    /// compacted. A bound of `None` is unbounded; the end of a range is inclusive with `include_end`. This frees
    /// space quickly but does not delete keys: data in other tables stays, and older versions of deleted keys may
    /// become visible. Waits for compactions of the family that are running.
    ///
    /// Errors: `Busy` if a listener calls this on a flush or compaction thread and a compaction is running; the
    /// database refuses writes; the MANIFEST cannot be written.
    pub fn delete_files_in_ranges(
        &self,
        ranges: &[OpenRange<'_>],
        include_end: bool,
    ) -> Result<()> {
        self.check()?;
        delete_files(self.shared, self.family, ranges, include_end)
    }
}

/// Bytes of the family in each range. Errors: the options count nothing; a table cannot be opened.
pub(crate) fn approximate(
    family: &Family,
    options: &SizeApproximationOptions,
    ranges: &[Range<'_>],
) -> Result<Vec<u64>> {
    if !options.include_memtables && !options.include_files {
        return Err(Error::invalid_argument(
            "Invalid options: neither include_memtables nor include_files is set",
        ));
    }
    let sizes = ranges.iter().map(|&range| {
        let mut size = 0;
        if options.include_files {
            size += in_files(family, range, options.files_size_error_margin)?;
        }
        if options.include_memtables {
            size += in_memory(family, range).1;
        }
        Ok(size)
    });
    sizes.collect()
}

/// Entries and bytes of the family's memtables in a range.
pub(crate) fn in_memory(family: &Family, range: Range<'_>) -> (u64, u64) {
    let view = family.view.load();
    let memtables = std::iter::once(&view.mem).chain(&view.imm);
    memtables.fold((0, 0), |(count, bytes), mem| {
        let n = entries_in(mem, family, range);
        let mean = mem.data_bytes() / (mem.len() as u64).max(1);
        (count + n, bytes + n * mean)
    })
}

fn entries_in(mem: &Arc<Memtable>, family: &Family, (start, limit): Range<'_>) -> u64 {
    if mem.is_empty() {
        return 0;
    }
    let end = before_versions(limit);
    let mut it = mem.iter();
    it.seek(&before_versions(start));
    let mut n = 0;
    while it.valid() && key::compare(family.comparator(), it.key(), &end).is_lt() {
        n += 1;
        it.next();
    }
    n
}

/// Errors: a table that lies only partly in the range cannot be opened.
fn in_files(family: &Family, (start, limit): Range<'_>, margin: f64) -> Result<u64> {
    let cmp = family.comparator();
    if cmp.compare(start, limit).is_ge() {
        return Ok(0);
    }
    let (start, limit) = (before_versions(start), before_versions(limit));
    let version = Arc::clone(&family.view.load().version);
    let (mut whole, mut partly) = (0u64, Vec::new());
    for level in 0..version.num_levels() {
        let before = |f: &Arc<TableFile>| key::compare(cmp, &f.meta.largest, &start).is_lt();
        let behind = |f: &&Arc<TableFile>| key::compare(cmp, &f.meta.smallest, &limit).is_ge();
        let files = version.level(level);
        let meet: Vec<_> = if level == 0 {
            files.iter().filter(|f| !before(f) && !behind(f)).collect()
        } else {
            let first = files.partition_point(before);
            files[first..].iter().take_while(|f| !behind(f)).collect()
        };
        for file in meet {
            let from = key::compare(cmp, &file.meta.smallest, &start);
            let to = key::compare(cmp, &file.meta.largest, &limit);
            if from.is_ge() && to.is_lt() {
                whole += file.meta.file_size;
            } else {
                partly.push(file);
            }
        }
    }
    let rough: u64 = partly.iter().map(|f| f.meta.file_size).sum();
    if margin > 0.0 && (rough as f64) < whole as f64 * margin {
        return Ok(whole + rough / 2);
    }
    for file in partly {
        whole += file.reader()?.approximate_size(&start, &limit)?;
    }
    Ok(whole)
}

/// The bounds between which files are deleted; `None` is unbounded.
pub type OpenRange<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// Removes from the family every file whose keys all lie in one of the ranges. Files of level 0 stay, because they
/// may hide older versions in deeper levels. Data in files that also have keys outside of the range stays too,
/// possibly including older versions of deleted keys.
pub(crate) fn delete_files(
    db: &Shared,
    family: &Arc<Family>,
    ranges: &[OpenRange<'_>],
    include_end: bool,
) -> Result<()> {
    db.check_writable()?;
    // Listeners are called only after the family is free again: they may compact it.
    let _courier = db.courier();
    let _exclusive = Exclusive::take(&db.background, family)?;
    let mut change = db.change().refuse_writes_if_it_fails();
    change.families().require(family.id)?;
    let version = Arc::clone(&family.view.load().version);
    let mut edit = VersionEdit {
        column_family: family.id,
        ..VersionEdit::default()
    };
    for (level, number) in inside(family, &version, ranges, include_end) {
        edit.delete_file(level as u32, number);
    }
    if edit.deleted_files.is_empty() {
        return Ok(());
    }
    let count = edit.deleted_files.len();
    change.files(family, edit, Activity::Unknown)?;
    change.log_and_apply()?;
    drop(version);
    db.info.log.info(format_args!(
        "[{}] DeleteFilesInRanges: {count} files",
        family.name
    ));
    db.writes.attention.raise();
    db.delete_obsolete_files();
    Ok(())
}

/// The files below level 0 whose keys all lie in one of the ranges and that are not being compacted, with their levels.
fn inside(
    family: &Family,
    version: &Version,
    ranges: &[OpenRange<'_>],
    include_end: bool,
) -> BTreeSet<(usize, FileNumber)> {
    let cmp = family.comparator();
    let mut found = BTreeSet::new();
    for level in 1..version.num_levels() {
        let files = version.level(level);
        for (begin, end) in ranges {
            let begins_before = |f: &Arc<TableFile>| {
                begin.is_some_and(|b| cmp.compare(f.smallest_user_key(), b).is_lt())
            };
            let ends_inside = |f: &&Arc<TableFile>| {
                end.is_none_or(|e| {
                    let at_end = cmp.compare(f.largest_user_key(), e);
                    at_end.is_lt() || (include_end && at_end.is_eq())
                })
            };
            let first = files.partition_point(begins_before);
            let free = files[first..]
                .iter()
                .take_while(ends_inside)
                .filter(|f| !f.being_compacted.load(Ordering::Relaxed));
            found.extend(free.map(|f| (level, f.number())));
        }
    }
    found
}
