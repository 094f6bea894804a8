//! A Version: the table files of one column family at one moment, immutable and shared.
//!
//! Level 0 files may overlap and are kept newest first. On every other level, files are sorted by key and
//! do not overlap; if a range tombstone ends a file, the next one may begin with the same user key. A
//! [`TableFile`] carries its reader, so a lookup goes from the Version straight to the table. When the last
//! Version that contains a file is gone, and the file no longer belongs to the database, the [`Janitor`]
//! gets its name for deletion.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering as Atomic};

use base::{Comparator, Error, FileNumber, Result, SequenceNumber, key};
use keyspan::clip::FileTombstones;
use keyspan::fragments::covering;
use keyspan::span;
use table::Properties;

use super::edit::{FileMetaData, VersionEdit};
use super::table_cache::{Opened, Slot};
use crate::janitor::Janitor;

/// A table file that is part of some Version.
pub struct TableFile {
    /// Its metadata in the MANIFEST.
    pub meta: FileMetaData,
    /// In memory even while the reader is closed.
    pub properties: Arc<Properties>,
    slot: Slot,
    /// Boxed, because few files have any.
    tombstones: Option<Box<FileTombstones>>,
    on_disk: Arc<FileOnDisk>,
    /// True while the file is an input of a compaction.
    pub being_compacted: AtomicBool,
    /// How much of that compaction is done, in thousandths.
    compacted: AtomicU16,
    /// The compaction of the file was suggested.
    suggested: AtomicBool,
}

/// The file on disk. The tables of all levels that it was moved to share it; it exists as long as any of
/// them is in use.
#[derive(Debug)]
pub struct FileOnDisk {
    path: PathBuf,
    bytes: u64,
    obsolete: AtomicBool,
    janitor: Arc<Janitor>,
}

impl FileOnDisk {
    /// A file that goes to `janitor` if it is obsolete when it is no longer in use.
    pub fn new(path: PathBuf, bytes: u64, janitor: Arc<Janitor>) -> Arc<Self> {
        Arc::new(Self {
            path,
            bytes,
            obsolete: AtomicBool::new(false),
            janitor,
        })
    }
}

impl Drop for FileOnDisk {
    fn drop(&mut self) {
        if self.obsolete.load(Atomic::Relaxed) {
            let path = std::mem::take(&mut self.path);
            self.janitor.add_table(path, self.bytes);
        }
    }
}

/// A compaction holds its inputs, and unmarks them before it releases them.
impl Drop for TableFile {
    fn drop(&mut self) {
        base::invariant!(
            base::sync::thread::panicking() || !self.is_being_compacted(),
            "table {} goes while it is being compacted",
            self.number()
        );
    }
}

impl TableFile {
    /// Errors: the table's range tombstones cannot be read.
    pub fn new(
        mut meta: FileMetaData,
        (reader, slot): (&table::Reader, Slot),
        cmp: &Comparator,
        on_disk: Arc<FileOnDisk>,
    ) -> Result<Arc<Self>> {
        span::make_readable(&mut meta.smallest);
        let properties = Arc::clone(reader.properties());
        let tombstones = if reader.has_range_tombstones() {
            let all = reader
                .range_tombstones()
                .map_err(|e| e.or_file(&on_disk.path))?;
            let clipped = FileTombstones::new(cmp, &meta.smallest, &meta.largest, all);
            (!clipped.lists.is_empty()).then(|| Box::new(clipped))
        } else {
            None
        };
        Ok(Arc::new(Self {
            meta,
            properties,
            slot,
            tombstones,
            on_disk,
            being_compacted: AtomicBool::new(false),
            compacted: AtomicU16::new(0),
            suggested: AtomicBool::new(false),
        }))
    }

    /// The number in its name.
    #[inline]
    pub fn number(&self) -> FileNumber {
        self.meta.number
    }

    /// Its path.
    #[inline]
    pub fn path(&self) -> &Path {
        &self.on_disk.path
    }

    /// The number under which the table's blocks are in the cache.
    pub fn cache_id(&self) -> Option<u64> {
        self.slot.cache_id()
    }

    /// Its rows in the row cache.
    pub fn rows(&self) -> Option<&table::Rows> {
        self.slot.rows()
    }

    /// The file on disk.
    pub fn on_disk(&self) -> Arc<FileOnDisk> {
        Arc::clone(&self.on_disk)
    }

    /// The table's reader, opened if it is closed.
    #[inline]
    pub fn reader(&self) -> Result<Opened<'_>> {
        self.slot.get(false)
    }

    /// The same for a read with these options, which may forbid opening files.
    #[inline]
    pub fn reader_for(&self, options: &table::ReadOptions) -> Result<Opened<'_>> {
        self.slot.get(options.cache_only)
    }

    /// The reader if it is open.
    pub fn open_reader(&self) -> Option<Arc<table::Reader>> {
        self.slot.if_open()
    }

    /// The reader if it is never closed.
    #[inline]
    pub fn always_open(&self) -> Option<&Arc<table::Reader>> {
        self.slot.always_open()
    }

    /// Whether it is an input of a running compaction.
    #[inline]
    pub fn is_being_compacted(&self) -> bool {
        self.being_compacted.load(Atomic::Relaxed)
    }

    /// Sets how much is done of the compaction that has the file as an input: 0 to 1.
    pub fn set_compacted(&self, part: f64) {
        let thousandths = (part.clamp(0.0, 1.0) * 1000.0) as u16;
        self.compacted.store(thousandths, Atomic::Relaxed);
    }

    /// How much is done of the compaction that has the file as an input: 0 to 1.
    pub fn compacted(&self) -> f64 {
        f64::from(self.compacted.load(Atomic::Relaxed)) / 1000.0
    }

    /// Suggests to compact the file soon.
    pub fn suggest_compaction(&self) {
        self.suggested.store(true, Atomic::Relaxed);
    }

    /// Whether its compaction was suggested.
    pub fn is_suggested(&self) -> bool {
        self.suggested.load(Atomic::Relaxed)
    }

    /// The file leaves the database: it is deleted when nothing refers to it any more.
    pub fn mark_obsolete(&self) {
        self.on_disk.obsolete.store(true, Atomic::Relaxed);
    }

    /// Whether the user key lies between the file's smallest and largest.
    #[inline]
    pub fn spans(&self, cmp: &Comparator, user_key: &[u8]) -> bool {
        cmp.compare(self.smallest_user_key(), user_key) != Ordering::Greater
            && !self.ends_before(cmp, user_key)
    }

    /// Whether everything in the file is before the user key. A file that a range tombstone
    /// extends up to a key ends before that key.
    #[inline]
    pub fn ends_before(&self, cmp: &Comparator, user_key: &[u8]) -> bool {
        match cmp.compare(self.largest_user_key(), user_key) {
            Ordering::Less => true,
            Ordering::Equal => span::is_sentinel(&self.meta.largest),
            Ordering::Greater => false,
        }
    }

    /// The range tombstones, if the file has any.
    #[inline]
    pub fn tombstones(&self) -> Option<&FileTombstones> {
        self.tombstones.as_deref()
    }

    /// The sequence number of the newest range tombstone that covers the user key in `seek_key` and is not
    /// newer than its sequence number; 0 if there is none.
    #[inline]
    pub fn covering_tombstone(&self, cmp: &Comparator, seek_key: &[u8]) -> u64 {
        self.tombstones.as_ref().map_or(0, |t| {
            let limit = key::split(seek_key).map_or(0, |(_, packed)| packed >> 8);
            covering(&t.lists, cmp, seek_key, SequenceNumber(limit))
        })
    }

    /// The smallest user key, included.
    #[inline]
    pub fn smallest_user_key(&self) -> &[u8] {
        key::user_key(&self.meta.smallest)
    }

    /// The largest user key; included unless it is the end of a range tombstone.
    #[inline]
    pub fn largest_user_key(&self) -> &[u8] {
        key::user_key(&self.meta.largest)
    }
}

/// The files of a level, shared by the Versions and cursors that have them.
pub type Files = Arc<Vec<Arc<TableFile>>>;

/// The files of a column family.
pub struct Version {
    /// The order of its keys.
    pub comparator: Comparator,
    /// Number of levels, from 0 on, that take part in compactions: all, or all but the last.
    compacted_levels: usize,
    levels: Vec<Files>,
    /// The files of each level that have range tombstones.
    with_tombstones: Vec<Files>,
}

impl Version {
    /// A Version without files. With `ingest_behind`, the last level is reserved for files that are
    /// ingested below all others.
    pub fn empty(comparator: Comparator, num_levels: usize, ingest_behind: bool) -> Self {
        Self {
            comparator,
            compacted_levels: num_levels - usize::from(ingest_behind && num_levels > 1),
            levels: vec![Files::default(); num_levels],
            with_tombstones: vec![Files::default(); num_levels],
        }
    }

    /// How many levels it has, with or without files.
    #[inline]
    pub fn num_levels(&self) -> usize {
        self.levels.len()
    }

    /// The files of a level: newest first on level 0, by key elsewhere.
    #[inline]
    pub fn level(&self, level: usize) -> &[Arc<TableFile>] {
        self.levels.get(level).map_or(&[], |files| files.as_slice())
    }

    /// The readers that are always open of the files that may have versions of a user key, newest versions first; one of each
    /// sorted level.
    pub fn open_readers_for<'v>(
        &'v self,
        seek_key: &'v [u8],
    ) -> impl Iterator<Item = &'v Arc<table::Reader>> {
        let user_key = key::user_key(seek_key);
        let spans = move |f: &&Arc<TableFile>| f.spans(&self.comparator, user_key);
        let level0 = self.level(0).iter().filter(spans);
        let sorted = 1..self.num_levels();
        let sorted = sorted.filter_map(move |level| self.files_for(level, seek_key).next());
        level0.chain(sorted).filter_map(|file| file.always_open())
    }

    /// [`Version::level`], to be kept beyond the Version.
    #[inline]
    pub fn share_level(&self, level: usize) -> Files {
        self.levels.get(level).map(Arc::clone).unwrap_or_default()
    }

    /// The files of every level that compactions read and write.
    pub fn compacted_levels(&self) -> &[Files] {
        &self.levels[..self.compacted_levels.min(self.levels.len())]
    }

    /// All files with their level.
    pub fn files(&self) -> impl Iterator<Item = (usize, &Arc<TableFile>)> {
        self.levels
            .iter()
            .enumerate()
            .flat_map(|(l, files)| files.iter().map(move |f| (l, f)))
    }

    /// The size of a level's files in bytes.
    pub fn level_bytes(&self, level: usize) -> u64 {
        self.level(level).iter().map(|f| f.meta.file_size).sum()
    }

    /// On a sorted level: the files that may hold versions of the user key in `seek_key`, from new to old.
    /// Usually there is one; there are more if files share the user key at their boundaries.
    #[inline]
    pub fn files_for<'v, 'k>(&'v self, level: usize, seek_key: &'k [u8]) -> FilesFor<'v, 'k> {
        let files = self.level(level);
        let i = files.partition_point(|f| {
            key::compare(&self.comparator, &f.meta.largest, seek_key) == Ordering::Less
        });
        FilesFor {
            comparator: &self.comparator,
            files: &files[i..],
            user_key: key::user_key(seek_key),
        }
    }

    /// The files of a level that may hold a user key between the two, both inclusive; `None` is unbounded.
    pub fn overlapping(
        &self,
        level: usize,
        smallest: Option<&[u8]>,
        largest: Option<&[u8]>,
    ) -> Vec<Arc<TableFile>> {
        let cmp = &self.comparator;
        let below = |f: &Arc<TableFile>| smallest.is_some_and(|s| f.ends_before(cmp, s));
        let above = |f: &Arc<TableFile>| {
            largest.is_some_and(|l| cmp.compare(f.smallest_user_key(), l) == Ordering::Greater)
        };
        let files = self.level(level);
        if level == 0 {
            let meet = files.iter().filter(|f| !below(f) && !above(f));
            return meet.cloned().collect();
        }
        let from = files.partition_point(below);
        let meet = files[from..].iter().take_while(|f| !above(f));
        meet.cloned().collect()
    }

    /// The file of a level with this number and smallest key.
    pub fn find(&self, level: usize, meta: &FileMetaData) -> Option<&Arc<TableFile>> {
        let files = self.level(level);
        let first = match level {
            0 => files.iter().position(|f| f.number() == meta.number)?,
            _ => files.partition_point(|f| {
                key::compare(&self.comparator, &f.meta.smallest, &meta.smallest).is_lt()
            }),
        };
        files.get(first).filter(|f| f.number() == meta.number)
    }

    /// The files of a level that have range tombstones, in the order of the level.
    #[inline]
    pub fn with_tombstones(&self, level: usize) -> &Files {
        &self.with_tombstones[level]
    }

    /// Whether a level may have anything between two user keys; the end is exclusive.
    pub fn has_between(&self, level: usize, begin: &[u8], end: &[u8]) -> bool {
        let cmp = &self.comparator;
        let meets = |f: &Arc<TableFile>| {
            cmp.compare(f.smallest_user_key(), end).is_lt() && !f.ends_before(cmp, begin)
        };
        let files = self.level(level);
        if level == 0 {
            return files.iter().any(meets);
        }
        let first = files.partition_point(|f| f.ends_before(cmp, begin));
        files.get(first).is_some_and(meets)
    }

    /// This Version without the files that the edit deletes, and with the given new files.
    ///
    /// Errors: Corruption if a deleted file is not here, a level does not exist, or files of a
    /// sorted level overlap.
    pub fn apply(&self, edit: &VersionEdit, added: Vec<(usize, Arc<TableFile>)>) -> Result<Next> {
        let mut levels = self.levels.clone();
        let mut removed = Vec::new();
        let mut touched = BTreeSet::new();
        let mut deleted: BTreeMap<usize, HashSet<FileNumber>> = BTreeMap::new();
        for &(level, number) in &edit.deleted_files {
            if !deleted.entry(level as usize).or_default().insert(number) {
                return Err(Error::corruption(format!(
                    "the MANIFEST deletes file {number} from level {level} twice"
                )));
            }
        }
        for (level, mut numbers) in deleted {
            if let Some(files) = levels.get_mut(level) {
                let files = Arc::make_mut(files);
                removed.extend(files.extract_if(.., |f| numbers.remove(&f.number())));
                touched.insert(level);
            }
            if let Some(number) = numbers.iter().min() {
                return Err(Error::corruption(format!(
                    "the MANIFEST deletes file {number} from level {level}, where it is not"
                )));
            }
        }
        // A file that only moves to another level is not removed.
        let moved: HashSet<FileNumber> = added.iter().map(|(_, f)| f.number()).collect();
        removed.retain(|r: &Arc<TableFile>| !moved.contains(&r.number()));
        for (level, file) in added {
            let count = levels.len();
            let files = levels.get_mut(level).ok_or_else(|| {
                Error::corruption(format!(
                    "file {} stands on level {level}, but num_levels is {count}",
                    file.number()
                ))
            })?;
            Arc::make_mut(files).push(file);
            touched.insert(level);
        }
        let mut with_tombstones = self.with_tombstones.clone();
        for level in touched {
            let files = Arc::make_mut(&mut levels[level]);
            sort_level(&self.comparator, level, files);
            check_level(&self.comparator, level, files)?;
            let has = |f: &&Arc<TableFile>| f.tombstones().is_some();
            with_tombstones[level] = Arc::new(files.iter().filter(has).cloned().collect());
        }
        let version = Self {
            comparator: self.comparator.clone(),
            compacted_levels: self.compacted_levels,
            levels,
            with_tombstones,
        };
        Ok(Next { version, removed })
    }
}

/// The Version after an edit.
pub struct Next {
    /// The Version itself.
    pub version: Version,
    /// Files of the previous Version that are not part of this one. They are obsolete once the edit is
    /// durable.
    pub removed: Vec<Arc<TableFile>>,
}

/// See [`Version::files_for`].
pub struct FilesFor<'v, 'k> {
    comparator: &'v Comparator,
    /// The files that end at or after the key.
    files: &'v [Arc<TableFile>],
    user_key: &'k [u8],
}

impl<'v> Iterator for FilesFor<'v, '_> {
    type Item = &'v Arc<TableFile>;

    #[inline]
    fn next(&mut self) -> Option<&'v Arc<TableFile>> {
        let (file, rest) = self.files.split_first()?;
        self.files = rest;
        let begins = file.smallest_user_key();
        (self.comparator.compare(begins, self.user_key) != Ordering::Greater).then_some(file)
    }
}

/// Sorts level 0 newest first, by epoch if both files have one and otherwise by sequence number; other
/// levels by key.
fn sort_level(cmp: &Comparator, level: usize, files: &mut [Arc<TableFile>]) {
    if level == 0 {
        files.sort_by_key(|f| Reverse(age(&f.meta)));
    } else {
        files.sort_by(|a, b| key::compare(cmp, &a.meta.smallest, &b.meta.smallest));
    }
}

/// The key that sorts level 0 files from old to new.
pub fn age(meta: &FileMetaData) -> (u64, u64, u64, u64) {
    (
        meta.epoch_number.unwrap_or(0),
        meta.largest_seqno,
        meta.smallest_seqno,
        meta.number.0,
    )
}

fn check_level(cmp: &Comparator, level: usize, files: &[Arc<TableFile>]) -> Result<()> {
    if level == 0 {
        return Ok(());
    }
    for pair in files.windows(2) {
        if key::compare(cmp, &pair[0].meta.largest, &pair[1].meta.smallest) != Ordering::Less {
            let key = |k: &[u8]| match key::split(k) {
                Some((user_key, packed)) => format!(
                    "'{}' at {}, type {}",
                    user_key.escape_ascii(),
                    packed >> 8,
                    packed & 0xff
                ),
                None => "no key".to_owned(),
            };
            let shown = |f: &TableFile| {
                let (first, last) = (key(&f.meta.smallest), key(&f.meta.largest));
                format!("{} ({first}, to {last})", f.number())
            };
            return Err(Error::corruption(format!(
                "files of level {level} overlap: {} and {}",
                shown(&pair[0]),
                shown(&pair[1])
            )));
        }
    }
    Ok(())
}
