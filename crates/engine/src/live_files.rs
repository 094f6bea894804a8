//! The files of an open database: what they are, and how they are kept from being deleted while
//! somebody copies them.
//!
//! [`capture`] takes down everything that a copy of the database needs, as of one moment between
//! two writes: a MANIFEST up to a length, the tables that it names, the logs up to a length. Files
//! are never changed once they are written, but for the MANIFEST and the active log, which grow,
//! and for old logs, which may be overwritten when they are used again: so tables may be linked,
//! and the others are copied.

use std::path::PathBuf;
use std::sync::Arc;

use base::sync::PoisonError;
use base::{Error, FileNumber, Result};

use crate::family::Family;
use crate::files::{self, FileKind};
use crate::maintenance;
use crate::options::{DbOptions, FlushOptions};
use crate::persist::options_text;
use crate::shared::Shared;
use crate::version::{TableFile, Version};
use crate::wal::WalFileKind;
use crate::write::submit;

/// Files are not deleted while this lives.
pub(crate) struct NoDeletions<'a>(&'a Shared);

impl<'a> NoDeletions<'a> {
    pub(crate) fn begin(db: &'a Shared) -> Self {
        db.disable_file_deletions();
        Self(db)
    }
}

impl Drop for NoDeletions<'_> {
    fn drop(&mut self) {
        self.0.enable_file_deletions();
    }
}

impl Shared {
    /// Files that nothing needs any more are kept until the matching
    /// [`Shared::enable_file_deletions`]. Waits for deletions that are under way.
    pub(crate) fn disable_file_deletions(&self) {
        *self
            .no_deletions
            .lock()
            .unwrap_or_else(PoisonError::into_inner) += 1;
    }

    /// Whether files that nothing needs any more are deleted.
    pub(crate) fn deletions_enabled(&self) -> bool {
        let count = self
            .no_deletions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *count == 0
    }

    /// Ends one [`Shared::disable_file_deletions`]; the last one deletes what has collected.
    pub(crate) fn enable_file_deletions(&self) {
        let mut count = self
            .no_deletions
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *count = count.saturating_sub(1);
        let last = *count == 0;
        drop(count);
        if last && !self.read_only && !self.is_closing() {
            self.delete_obsolete_files();
        }
    }
}

/// A file of the database, and what of it belongs to a copy. RocksDB's `LiveFileStorageInfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveFileStorageInfo {
    /// Its name.
    pub relative_filename: String,
    /// Where it lies.
    pub directory: PathBuf,
    /// The number in its name; 0 for CURRENT.
    pub file_number: u64,
    /// What it is.
    pub file_type: FileKind,
    /// Bytes that belong to the copy.
    pub size: u64,
    /// What the copy holds instead of what the file holds; empty if it is the file's own.
    pub replacement_contents: Vec<u8>,
    /// Whether the file goes on growing, so that a copy is cut at `size`.
    pub trim_to_size: bool,
}

impl LiveFileStorageInfo {
    /// The file's path.
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.relative_filename)
    }
}

/// How [`Db::get_live_files_storage_info`](crate::Db::get_live_files_storage_info) works.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveFilesStorageInfoOptions {
    /// Memtables are flushed first if the logs have this many bytes or more: always with 0,
    /// never with `u64::MAX`.
    pub wal_size_for_flush: u64,
}

/// The state of a database at one moment.
pub(crate) struct Capture {
    /// Tables first; CURRENT is last.
    pub(crate) files: Vec<LiveFileStorageInfo>,
    pub(crate) manifest_size: u64,
    /// The last write that the files hold.
    pub(crate) sequence: u64,
    /// Keeps the tables alive.
    versions: Vec<Arc<Version>>,
}

impl Capture {
    /// The session in which a table was made; `None` if the table does not say, or it is none.
    pub(crate) fn session_of(&self, file: &LiveFileStorageInfo) -> Option<String> {
        if file.file_type != FileKind::Table {
            return None;
        }
        let mut tables = self.versions.iter().flat_map(|v| v.files());
        let (_, table) = tables.find(|(_, f)| f.number().0 == file.file_number)?;
        let session = &table.properties.db_session_id;
        (!session.is_empty()).then(|| session.clone())
    }
}

/// Takes down the state between two writes. Files must not be deleted meanwhile and until the
/// caller is done with them.
pub(crate) fn capture(
    db: &Shared,
    wal_size_for_flush: u64,
    _guard: &NoDeletions<'_>,
) -> Result<Capture> {
    if db.read_only {
        return Err(crate::shared::read_only());
    }
    {
        // Callbacks are called behind the lock.
        let _courier = db.courier();
        let locks = db.wal_locks.lock().unwrap_or_else(PoisonError::into_inner);
        if *locks > 0 {
            // Nobody writes, until the caller of `lock_wal` says so: nothing can be flushed either.
            return between_writes(db);
        }
    }
    let large = wal_size_for_flush != u64::MAX && log_bytes(db) >= wal_size_for_flush;
    if large || db.has_unlogged_writes() {
        let all: Vec<_> = db.families.load().iter().cloned().collect();
        maintenance::flush(db, &all, &FlushOptions::default())?;
    }
    db.alone(|| between_writes(db))
}

/// Nobody is inside the order of writes.
fn between_writes(db: &Shared) -> Result<Capture> {
    // All of it durable: what is not may be written again to another log, if the device fails, and cut
    // off where it is now.
    submit::sync_unasked(db)?;
    let versions = db.lock_versions();
    let (manifest_number, manifest_size) = versions
        .manifest_end()
        .ok_or_else(|| Error::aborted("there is no MANIFEST: an earlier failure ended it"))?;
    let mut held = Vec::new();
    let mut files = Vec::new();
    for family in db.families.load().iter() {
        let version = Arc::clone(&family.view.load().version);
        files.extend(version.files().map(|(_, f)| table_info(f)));
        held.push(version);
    }
    let own =
        |name: String, file_number: u64, file_type: FileKind, size: u64| LiveFileStorageInfo {
            relative_filename: name,
            directory: db.dir.clone(),
            file_number,
            file_type,
            size,
            replacement_contents: Vec::new(),
            trim_to_size: false,
        };
    files.push(LiveFileStorageInfo {
        trim_to_size: true,
        ..own(
            format!("MANIFEST-{manifest_number}"),
            manifest_number.0,
            FileKind::Manifest,
            manifest_size,
        )
    });
    if let Some((name, number)) = newest_options_file(db)? {
        let text = options_of_a_copy(db).into_bytes();
        files.push(LiveFileStorageInfo {
            size: text.len() as u64,
            replacement_contents: text,
            ..own(name, number.0, FileKind::Options, 0)
        });
    }
    // What the captured MANIFEST declares, though families need less by now: recovery of the copy goes by
    // it. No log goes before it is raised.
    let first = FileNumber(versions.min_log_number_to_keep);
    files.extend(logs(db, first)?);
    let current = format!("MANIFEST-{manifest_number}\n").into_bytes();
    files.push(LiveFileStorageInfo {
        size: current.len() as u64,
        replacement_contents: current,
        ..own("CURRENT".to_owned(), 0, FileKind::Current, 0)
    });
    Ok(Capture {
        files,
        manifest_size,
        sequence: db.visible().0,
        versions: held,
    })
}

/// Bytes in all logs that are alive.
fn log_bytes(db: &Shared) -> u64 {
    let older: u64 = db.state().logs.values().sum();
    older + db.log_bytes.load(std::sync::atomic::Ordering::Relaxed)
}

/// What is called a table's file in a listing.
pub(crate) fn table_info(file: &TableFile) -> LiveFileStorageInfo {
    let path = file.path();
    let name = path.file_name().unwrap_or_default();
    LiveFileStorageInfo {
        relative_filename: name.to_string_lossy().into_owned(),
        directory: crate::file_copies::parent(path).to_path_buf(),
        file_number: file.number().0,
        file_type: FileKind::Table,
        size: file.meta.file_size,
        replacement_contents: Vec::new(),
        trim_to_size: false,
    }
}

/// The name of the newest OPTIONS file.
fn newest_options_file(db: &Shared) -> Result<Option<(String, FileNumber)>> {
    let mut all = files::list(&*db.env().fs, &db.dir)?;
    all.retain(|e| e.kind == FileKind::Options);
    let newest = all.pop();
    Ok(newest.map(|e| (e.name.to_string_lossy().into_owned(), e.number)))
}

/// The OPTIONS file of a copy, whose logs lie beside its other files.
fn options_of_a_copy(db: &Shared) -> String {
    let mut options = DbOptions::clone(&db.db_options());
    options.wal_dir.clear();
    options_text(db, &options)
}

/// The logs from number `first` on; the active one as far as it is durable.
fn logs(db: &Shared, first: FileNumber) -> Result<Vec<LiveFileStorageInfo>> {
    let mut out = Vec::new();
    for (number, kind) in db.wal.numbers()? {
        if kind != WalFileKind::Alive || number < first {
            continue;
        }
        let path = db.wal.path(number);
        let size = match db.durable_end(number) {
            Some(size) => size,
            None => db.env().fs.metadata(&path)?.len,
        };
        out.push(LiveFileStorageInfo {
            relative_filename: format!("{number}.log"),
            directory: db.wal.dir().to_path_buf(),
            file_number: number.0,
            file_type: FileKind::Wal,
            size,
            replacement_contents: Vec::new(),
            trim_to_size: true,
        });
    }
    Ok(out)
}

/// A table of an open database. RocksDB's `LiveFileMetaData`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveFileMetaData {
    /// The family that it belongs to.
    pub column_family_name: String,
    /// Its level.
    pub level: usize,
    /// Its name, with a slash before it: `/000009.sst`.
    pub name: String,
    /// The number in its name.
    pub file_number: u64,
    /// Where it lies.
    pub directory: PathBuf,
    /// Bytes.
    pub size: u64,
    /// The smallest sequence number in it.
    pub smallest_seqno: u64,
    /// The largest sequence number in it.
    pub largest_seqno: u64,
    /// The smallest user key.
    pub smallestkey: Vec<u8>,
    /// The largest user key.
    pub largestkey: Vec<u8>,
    /// The smallest internal key, as the MANIFEST has it.
    pub smallest: Vec<u8>,
    /// The largest internal key, as the MANIFEST has it.
    pub largest: Vec<u8>,
    /// Whether a compaction reads it.
    pub being_compacted: bool,
    /// Entries, range deletions included.
    pub num_entries: u64,
    /// Deletions of every kind.
    pub num_deletions: u64,
    /// When its oldest data was written, seconds since 1970; 0 is unknown.
    pub oldest_ancester_time: u64,
    /// When it was made, seconds since 1970; 0 is unknown.
    pub file_creation_time: u64,
    /// Its place in level 0: newer files have larger ones.
    pub epoch_number: u64,
}

/// A level of a family. RocksDB's `LevelMetaData`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelMetaData {
    /// Its number.
    pub level: usize,
    /// Bytes of its files.
    pub size: u64,
    /// Its files, in the order in which they are searched.
    pub files: Vec<LiveFileMetaData>,
}

/// A family and its files. RocksDB's `ColumnFamilyMetaData`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnFamilyMetaData {
    /// Bytes of all its files.
    pub size: u64,
    /// Their number.
    pub file_count: usize,
    /// The family's name.
    pub name: String,
    /// Every level, empty ones too.
    pub levels: Vec<LevelMetaData>,
}

/// What a family's tables are.
pub(crate) fn family_metadata(family: &Family) -> ColumnFamilyMetaData {
    family_metadata_of(&family.name, &family.view.load().version)
}

/// What the tables of a Version of the family are.
pub(crate) fn family_metadata_of(name: &str, version: &Version) -> ColumnFamilyMetaData {
    let levels: Vec<LevelMetaData> = (0..version.num_levels())
        .map(|level| LevelMetaData {
            level,
            size: version.level_bytes(level),
            files: version
                .level(level)
                .iter()
                .map(|f| file_metadata(name, level, f))
                .collect(),
        })
        .collect();
    ColumnFamilyMetaData {
        size: levels.iter().map(|l| l.size).sum(),
        file_count: levels.iter().map(|l| l.files.len()).sum(),
        name: name.to_owned(),
        levels,
    }
}

fn file_metadata(family: &str, level: usize, file: &TableFile) -> LiveFileMetaData {
    let place = table_info(file);
    let meta = &file.meta;
    let properties = &file.properties;
    LiveFileMetaData {
        column_family_name: family.to_owned(),
        level,
        name: format!("/{}", place.relative_filename),
        file_number: meta.number.0,
        directory: place.directory,
        size: meta.file_size,
        smallest_seqno: meta.smallest_seqno,
        largest_seqno: meta.largest_seqno,
        smallestkey: file.smallest_user_key().to_vec(),
        largestkey: file.largest_user_key().to_vec(),
        smallest: meta.smallest.clone(),
        largest: meta.largest.clone(),
        being_compacted: file.is_being_compacted(),
        num_entries: properties.num_entries,
        num_deletions: properties.num_deletions,
        oldest_ancester_time: meta.oldest_ancestor_time,
        file_creation_time: meta.file_creation_time,
        epoch_number: meta.epoch_number.unwrap_or(0),
    }
}
