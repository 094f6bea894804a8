//! Lists the files of an open database, and keeps them from being deleted while they are copied.
//!
//! [`capture`] lists everything that a copy of the database needs, as of one moment between two writes: the
//! MANIFEST up to a certain length, the tables that it names, and the logs up to certain lengths. A table never
//! changes once it is written, so it may be hard-linked. The other files must be copied: the MANIFEST and the
//! active log grow, and old logs may be overwritten when they are reused.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, FileNumber, Result};
use io::FileSystem;

use crate::catalog::Catalog;

use crate::catalog::family::Family;
use crate::db::cf::Cf;
use crate::db::{Db, maintenance};
use crate::shared::Shared;
use crate::shared::live_options::LiveOptions;
use crate::shared::persist::options_text;
use crate::wal::{Wal, WalFileKind};
use crate::write::submit;
use files::{self, FileKind};
use manifest::{TableFile, Version};
use options::{DbOptions, FlushOptions};

/// While this exists, no files are deleted.
pub(crate) struct NoDeletions<'a>(&'a Shared);

impl<'a> NoDeletions<'a> {
    pub(crate) fn begin(db: &'a Shared) -> Self {
        db.deletions.disable();
        Self(db)
    }
}

impl Drop for NoDeletions<'_> {
    fn drop(&mut self) {
        self.0.enable_file_deletions();
    }
}

/// A file of the database, and which part of it belongs to a copy. RocksDB's `LiveFileStorageInfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LiveFileStorageInfo {
    /// The name of the file.
    pub relative_filename: String,
    /// The directory of the file.
    pub directory: PathBuf,
    /// The number in the name; 0 for CURRENT.
    pub file_number: u64,
    /// The kind of file.
    pub file_type: FileKind,
    /// How many bytes of the file belong to the copy.
    pub size: u64,
    /// The contents of the file in the copy, if they differ from those of the file itself; otherwise empty.
    pub replacement_contents: Vec<u8>,
    /// Whether the file may still grow, so that the copy must be cut at `size`.
    pub trim_to_size: bool,
}

impl LiveFileStorageInfo {
    /// The file's path.
    pub fn path(&self) -> PathBuf {
        self.directory.join(&self.relative_filename)
    }
}

/// Options of [`Db::get_live_files_storage_info`](crate::Db::get_live_files_storage_info).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LiveFilesStorageInfoOptions {
    /// Memtables are flushed first if the logs have this many bytes or more: 0 means always, `u64::MAX` never.
    /// Writes that are in no log are flushed in any case. While the WAL is locked, memtables are never flushed.
    pub wal_size_for_flush: u64,
}

/// The state of a database at one moment.
pub(crate) struct Capture {
    /// Tables first; CURRENT is last.
    pub(crate) files: Vec<LiveFileStorageInfo>,
    pub(crate) manifest_size: u64,
    /// The sequence number of the last write that the files contain.
    pub(crate) sequence: u64,
    /// Keeps the tables from being deleted.
    versions: Vec<Arc<Version>>,
}

impl Capture {
    /// By the number of a table: the id of the session that made it, if the table records that.
    pub(crate) fn sessions(&self) -> HashMap<u64, String> {
        let tables = self.versions.iter().flat_map(|v| v.files());
        let known = tables.filter(|(_, f)| !f.properties.db_session_id.is_empty());
        known
            .map(|(_, f)| (f.number().0, f.properties.db_session_id.clone()))
            .collect()
    }
}

/// The list of files.
impl Db {
    /// Keeps every file until the matching [`Db::enable_file_deletions`], so that files can be copied. Calls nest.
    /// Meanwhile, no log files are prepared in advance: once the existing ones are used up, synced writes cost
    /// more.
    pub fn disable_file_deletions(&self) {
        self.shared.deletions.disable();
        if let Ok(files) = self.shared.wal.log_files() {
            files.hold_pool();
        }
    }

    /// Ends one [`Db::disable_file_deletions`]. The end of the last one deletes the files that are no longer needed.
    pub fn enable_file_deletions(&self) {
        if let Ok(files) = self.shared.wal.log_files() {
            files.release_pool();
            self.shared.background.want_logs(); // the pool is filled again
        }
        self.shared.enable_file_deletions();
    }

    /// The names of the files of the database without its logs, each with a leading slash, and how many bytes of
    /// the MANIFEST belong to it. With `flush_memtable`, memtables are flushed first. Call
    /// [`Db::disable_file_deletions`] before. Errors: `NotSupported` if the database is open for reading only; the
    /// database refuses writes.
    pub fn get_live_files(&self, flush_memtable: bool) -> Result<(Vec<String>, u64)> {
        let guard = NoDeletions::begin(&self.shared);
        if flush_memtable {
            self.flush()?;
        }
        let captured = capture(&self.shared, u64::MAX, &guard)?;
        let files = captured.files.iter();
        let files = files.filter(|f| f.file_type != files::FileKind::Wal);
        let names = files.map(|f| format!("/{}", f.relative_filename)).collect();
        Ok((names, captured.manifest_size))
    }

    /// All files that a copy of the current database consists of, logs included. Call
    /// [`Db::disable_file_deletions`] before, and finish the copy before [`Db::enable_file_deletions`]. Errors: as
    /// [`Db::get_live_files`].
    pub fn get_live_files_storage_info(
        &self,
        options: &LiveFilesStorageInfoOptions,
    ) -> Result<Vec<LiveFileStorageInfo>> {
        let guard = NoDeletions::begin(&self.shared);
        let captured = capture(&self.shared, options.wal_size_for_flush, &guard)?;
        Ok(captured.files)
    }

    /// Every table of every column family.
    pub fn get_live_files_metadata(&self) -> Vec<LiveFileMetaData> {
        let families = self.shared.catalog.families.load();
        let all = families.iter().map(|f| family_metadata(f));
        all.flat_map(|f| f.levels)
            .flat_map(|level| level.files)
            .collect()
    }
}

impl Cf<'_> {
    /// The levels of the family and their tables.
    pub fn get_column_family_metadata(&self) -> Result<ColumnFamilyMetaData> {
        self.check()?;
        Ok(family_metadata(self.family))
    }
}

/// Lists the files of the database between two writes. Files must not be deleted until the caller is done with them.
pub(crate) fn capture(
    db: &Shared,
    wal_size_for_flush: u64,
    _guard: &NoDeletions<'_>,
) -> Result<Capture> {
    if db.read_only {
        return Err(crate::wal::read_only());
    }
    {
        // Callbacks run after the lock is released.
        let _courier = db.courier();
        let locks = db.writes.lock_wal_locks();
        if *locks > 0 {
            // `lock_wal` keeps all writers out until its caller releases them, so nothing can be flushed either.
            return between_writes(db);
        }
    }
    let large = wal_size_for_flush != u64::MAX && db.wal.logs.bytes() >= wal_size_for_flush;
    if large || db.writes.has_unlogged() {
        let all: Vec<_> = db.catalog.families.load().iter().cloned().collect();
        maintenance::flush(db, &all, &FlushOptions::default())?;
    }
    // Most of the logs are synced while writers go on.
    submit::sync_unasked(db)?;
    db.alone(|| between_writes(db))
}

/// Lists the files of the database. The gate of the order of writes is closed.
fn between_writes(db: &Shared) -> Result<Capture> {
    // Sync the logs first: if the device fails, records that are not durable may be written again to another log,
    // and are then cut off from the old log.
    submit::sync_unasked(db)?;
    let versions = db.catalog.lock_versions();
    let (manifest_number, manifest_size) = versions
        .manifest_end()
        .ok_or_else(|| Error::aborted("there is no MANIFEST: an earlier failure ended it"))?;
    let mut held = Vec::new();
    let mut files = Vec::new();
    for family in db.catalog.families.load().iter() {
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
    if let Some((name, number)) = newest_options_file(&*db.env().fs, &db.dir)? {
        let text = options_of_a_copy(&db.catalog, &db.live_options).into_bytes();
        files.push(LiveFileStorageInfo {
            size: text.len() as u64,
            replacement_contents: text,
            ..own(name, number.0, FileKind::Options, 0)
        });
    }
    // The first log that the captured MANIFEST requires, because recovery of the copy starts there, even if the
    // families need fewer logs by now. Logs are deleted only after this number has been raised.
    let first = FileNumber(versions.min_log_number_to_keep);
    files.extend(logs(&db.wal, &*db.env().fs, first)?);
    let current = format!("MANIFEST-{manifest_number}\n").into_bytes();
    files.push(LiveFileStorageInfo {
        size: current.len() as u64,
        replacement_contents: current,
        ..own("CURRENT".to_owned(), 0, FileKind::Current, 0)
    });
    Ok(Capture {
        files,
        manifest_size,
        sequence: db.writes.visible().0,
        versions: held,
    })
}

/// The entry for a table.
pub(crate) fn table_info(file: &TableFile) -> LiveFileStorageInfo {
    let path = file.path();
    let name = path.file_name().unwrap_or_default();
    LiveFileStorageInfo {
        relative_filename: name.to_string_lossy().into_owned(),
        directory: files::copies::parent(path).to_path_buf(),
        file_number: file.number().0,
        file_type: FileKind::Table,
        size: file.meta.file_size,
        replacement_contents: Vec::new(),
        trim_to_size: false,
    }
}

/// The name of the newest OPTIONS file.
fn newest_options_file(fs: &dyn FileSystem, dir: &Path) -> Result<Option<(String, FileNumber)>> {
    let mut all = files::list(fs, dir)?;
    all.retain(|e| e.kind == FileKind::Options);
    let newest = all.pop();
    Ok(newest.map(|e| (e.name.to_string_lossy().into_owned(), e.number)))
}

/// The OPTIONS file of a copy, without `wal_dir`: a copy keeps its logs next to its other files.
fn options_of_a_copy(catalog: &Catalog, live: &LiveOptions) -> String {
    let mut options = DbOptions::clone(&live.get());
    options.wal_dir.clear();
    options_text(catalog, &options)
}

/// The logs from number `first` on; of the active log only the durable part.
fn logs(wal: &Wal, fs: &dyn FileSystem, first: FileNumber) -> Result<Vec<LiveFileStorageInfo>> {
    let mut out = Vec::new();
    for (number, kind) in wal.directory.numbers()? {
        if kind != WalFileKind::Alive || number < first {
            continue;
        }
        let path = wal.directory.path(number);
        let size = if let Some(size) = wal.durable_end(number) {
            size
        } else {
            // What was prepared behind its end may still be there.
            if let Ok(files) = wal.log_files() {
                files.mapped().finish(&path);
            }
            fs.metadata(&path)?.len
        };
        out.push(LiveFileStorageInfo {
            relative_filename: format!("{number}.log"),
            directory: wal.directory.dir().to_path_buf(),
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
    /// The column family that the table belongs to.
    pub column_family_name: String,
    /// Its level.
    pub level: usize,
    /// Its name, with a leading slash: `/000009.sst`.
    pub name: String,
    /// The number in its name.
    pub file_number: u64,
    /// The directory of the file.
    pub directory: PathBuf,
    /// The size of the file in bytes.
    pub size: u64,
    /// The smallest sequence number in it.
    pub smallest_seqno: u64,
    /// The largest sequence number in it.
    pub largest_seqno: u64,
    /// The smallest user key.
    pub smallestkey: Vec<u8>,
    /// The largest user key.
    pub largestkey: Vec<u8>,
    /// The smallest internal key, as in the MANIFEST.
    pub smallest: Vec<u8>,
    /// The largest internal key, as in the MANIFEST.
    pub largest: Vec<u8>,
    /// Whether a running compaction uses it.
    pub being_compacted: bool,
    /// The number of entries, range deletions included.
    pub num_entries: u64,
    /// The number of deletions of every kind.
    pub num_deletions: u64,
    /// When its oldest data was written, in seconds since 1970; 0 if unknown.
    pub oldest_ancester_time: u64,
    /// When the file was created, in seconds since 1970; 0 if unknown.
    pub file_creation_time: u64,
    /// Its age within level 0: newer files have larger epoch numbers.
    pub epoch_number: u64,
}

/// A level of a family. RocksDB's `LevelMetaData`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LevelMetaData {
    /// The number of the level.
    pub level: usize,
    /// The total size of its files in bytes.
    pub size: u64,
    /// Its files, in the order in which they are searched.
    pub files: Vec<LiveFileMetaData>,
}

/// A family and its files. RocksDB's `ColumnFamilyMetaData`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ColumnFamilyMetaData {
    /// The total size of all its files in bytes.
    pub size: u64,
    /// The number of its files.
    pub file_count: usize,
    /// The family's name.
    pub name: String,
    /// Every level, including empty ones.
    pub levels: Vec<LevelMetaData>,
}

/// The metadata of a family's current tables.
pub(crate) fn family_metadata(family: &Family) -> ColumnFamilyMetaData {
    family_metadata_of(&family.name, &family.view.load().version)
}

/// The metadata of the tables of one Version of the family.
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
