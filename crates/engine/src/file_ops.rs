//! [`Db`]'s operations on whole files: ingestion, checkpoints, export and import, logs, and lists of files. Each method
//! is a few lines; the modules it calls do the work.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, Result};

use crate::checkpoint;
use crate::db::{ColumnFamily, Db};
use crate::export::{self, ExportImportFilesMetaData, ImportColumnFamilyOptions};
use crate::ingest::{self, IngestExternalFileArg, IngestExternalFileOptions};
use crate::live_files::{
    self, ColumnFamilyMetaData, LiveFileMetaData, LiveFileStorageInfo, LiveFilesStorageInfoOptions,
    NoDeletions,
};
use crate::open;
use crate::options::{ColumnFamilyOptions, Options};
use crate::sizes::{self, OpenRange, Range, SizeApproximationOptions};
use crate::sst_file_writer::SstFileWriter;
use crate::wal::WalFile;
use crate::wal::updates::{self, UpdatesIterator};

/// Other ways to open a database.
impl Db {
    /// [`Db::open_read_only`]. Errors: also `Corruption` if `error_if_wal_file_exists` is set and there is a log.
    /// Data that is only in logs would have to be replayed into memory.
    pub fn open_for_read_only(
        path: impl AsRef<Path>,
        options: &Options,
        error_if_wal_file_exists: bool,
    ) -> Result<Self> {
        if error_if_wal_file_exists {
            open::check_no_logs(path.as_ref(), options)?;
        }
        Self::open_read_only(path, options)
    }

    /// Opens a database for reading that another instance, the primary, may have open. All data that the primary
    /// has written is visible, including data that is only in its logs. [`Db::try_catch_up_with_primary`] makes
    /// later writes visible. Messages go to LOG in `secondary_path`; nothing else is written.
    ///
    /// An iterator keeps its view. A snapshot does not keep the primary from deleting old versions: its contents
    /// change when this instance catches up.
    pub fn open_as_secondary(
        path: impl AsRef<Path>,
        secondary_path: impl AsRef<Path>,
        options: &Options,
    ) -> Result<Self> {
        open::open_secondary(path.as_ref(), secondary_path.as_ref(), options)
    }

    /// Makes visible what the primary has written since this instance was opened or last caught up, including new
    /// column families. Open tables stay open; logs are read from their start.
    ///
    /// Errors: the database is open for writing; `TryAgain` if the primary changes its files too fast. After an
    /// error, the previous state stays visible.
    pub fn try_catch_up_with_primary(&self) -> Result<()> {
        open::catch_up(&self.shared)
    }
}

/// Bulk loading.
impl Db {
    /// Adds files written by an [`SstFileWriter`](crate::SstFileWriter) to the default column family, as one atomic
    /// write that is newer than all existing data.
    ///
    /// Errors: a file is damaged, is empty, or was not made by an `SstFileWriter` of Ironstone or RocksDB; it was
    /// written with another comparator or for another column family; the options forbid it. An error leaves the database unchanged.
    pub fn ingest_external_file(
        &self,
        files: &[impl AsRef<Path>],
        options: &IngestExternalFileOptions,
    ) -> Result<()> {
        self.ingest_external_file_cf(&self.default_column_family(), files, options)
    }

    /// [`Db::ingest_external_file`] into a column family.
    pub fn ingest_external_file_cf(
        &self,
        family: &ColumnFamily,
        files: &[impl AsRef<Path>],
        options: &IngestExternalFileOptions,
    ) -> Result<()> {
        self.ingest_external_files(&[IngestExternalFileArg {
            column_family: family.clone(),
            external_files: files.iter().map(|f| f.as_ref().to_path_buf()).collect(),
            options: options.clone(),
        }])
    }

    /// [`Db::ingest_external_file`] into several column families atomically: after a crash, either all files are
    /// there or none.
    pub fn ingest_external_files(&self, args: &[IngestExternalFileArg]) -> Result<()> {
        ingest::ingest(&self.shared, args)
    }

    /// Flushes the column family and hard-links its tables into the new directory `dir`; on another file system
    /// they are copied. An import needs the returned metadata.
    pub fn export_column_family(
        &self,
        family: &ColumnFamily,
        dir: impl AsRef<Path>,
    ) -> Result<ExportImportFilesMetaData> {
        self.shared.check_handle(&family.0)?;
        export::export(&self.shared, &family.0, dir.as_ref())
    }

    /// Creates a column family from the files of an export. Errors: a family with this name exists; a file is
    /// missing, changed or damaged; the comparators differ.
    pub fn create_column_family_with_import(
        &self,
        name: &str,
        options: &ColumnFamilyOptions,
        import: &ImportColumnFamilyOptions,
        metadata: &ExportImportFilesMetaData,
    ) -> Result<ColumnFamily> {
        export::import(&self.shared, name, options, import, metadata).map(ColumnFamily::new)
    }

    /// Deletes the tables whose keys all lie in one of the ranges, except those of level 0 and those that are being
    /// compacted. A bound of `None` is unbounded; the end of a range is inclusive with `include_end`. This frees
    /// space quickly but does not delete keys: data in other tables stays, and older versions of deleted keys may
    /// become visible.
    pub fn delete_files_in_ranges(
        &self,
        family: &ColumnFamily,
        ranges: &[OpenRange<'_>],
        include_end: bool,
    ) -> Result<()> {
        self.shared.check_handle(&family.0)?;
        sizes::delete_files(&self.shared, &family.0, ranges, include_end)
    }
}

impl SstFileWriter {
    /// Tables are for this column family only: an ingestion into another one is refused. RocksDB's argument
    /// `column_family`.
    #[must_use]
    pub fn with_column_family(mut self, family: &ColumnFamily) -> Self {
        self.family = Some((family.id(), family.name().to_owned()));
        self
    }
}

/// Copies of the database, and its list of files.
impl Db {
    /// Makes a copy of the current database in the new directory `dir`. The copy can be opened on its own. Tables
    /// are hard-linked; on another file system they are copied. Memtables are flushed first if the logs have
    /// `log_size_for_flush` bytes or more: always with 0, never with `u64::MAX`. Writers continue meanwhile.
    /// Returns the sequence number of the last write in the copy.
    pub fn create_checkpoint(&self, dir: impl AsRef<Path>, log_size_for_flush: u64) -> Result<u64> {
        checkpoint::create(&self.shared, dir.as_ref(), log_size_for_flush)
    }

    /// Keeps every file until the matching [`Db::enable_file_deletions`], so that files can be copied. Calls nest.
    /// Meanwhile, no log files are prepared in advance: once the existing ones are used up, synced writes cost
    /// more.
    pub fn disable_file_deletions(&self) {
        self.shared.disable_file_deletions();
        if let Ok(files) = self.shared.wal.log_files() {
            files.hold_pool();
        }
    }

    /// Ends one [`Db::disable_file_deletions`]. Ending the last one deletes the files that are no longer needed.
    pub fn enable_file_deletions(&self) {
        if let Ok(files) = self.shared.wal.log_files() {
            files.release_pool();
            self.shared.background.wake(); // the pool is filled again
        }
        self.shared.enable_file_deletions();
    }

    /// The names of the files of the database without its logs, each with a leading slash, and how many bytes of
    /// the MANIFEST belong to it. With `flush_memtable`, memtables are flushed first. Call
    /// [`Db::disable_file_deletions`] before.
    pub fn get_live_files(&self, flush_memtable: bool) -> Result<(Vec<String>, u64)> {
        let guard = NoDeletions::begin(&self.shared);
        if flush_memtable {
            self.flush()?;
        }
        let captured = live_files::capture(&self.shared, u64::MAX, &guard)?;
        let files = captured.files.iter();
        let files = files.filter(|f| f.file_type != crate::files::FileKind::Wal);
        let names = files.map(|f| format!("/{}", f.relative_filename)).collect();
        Ok((names, captured.manifest_size))
    }

    /// All files that a copy of the current database consists of, logs included. Call
    /// [`Db::disable_file_deletions`] before, and finish the copy before [`Db::enable_file_deletions`].
    pub fn get_live_files_storage_info(
        &self,
        options: &LiveFilesStorageInfoOptions,
    ) -> Result<Vec<LiveFileStorageInfo>> {
        let guard = NoDeletions::begin(&self.shared);
        let captured = live_files::capture(&self.shared, options.wal_size_for_flush, &guard)?;
        Ok(captured.files)
    }

    /// Every table of every column family.
    pub fn get_live_files_metadata(&self) -> Vec<LiveFileMetaData> {
        let families = self.shared.catalog.families.load();
        let all = families.iter().map(|f| live_files::family_metadata(f));
        all.flat_map(|f| f.levels)
            .flat_map(|level| level.files)
            .collect()
    }

    /// Reads every block of every table of all column families and compares its checksum. RocksDB's
    /// `VerifyChecksum`.
    ///
    /// # Errors
    /// `Corruption`, with file and offset, for the first block that is damaged.
    pub fn verify_checksum(&self) -> Result<()> {
        for family in self.shared.catalog.families.load().iter() {
            let version = Arc::clone(&family.view.load().version);
            for (_, file) in version.files() {
                file.reader()?.verify_checksums()?;
            }
        }
        Ok(())
    }

    /// The levels of a column family and their tables.
    pub fn get_column_family_metadata(
        &self,
        family: &ColumnFamily,
    ) -> Result<ColumnFamilyMetaData> {
        self.shared.check_handle(&family.0)?;
        Ok(live_files::family_metadata(&family.0))
    }

    /// The approximate number of bytes of the column family in each range. Files count with their size on disk,
    /// that is, compressed.
    pub fn get_approximate_sizes(
        &self,
        family: &ColumnFamily,
        options: &SizeApproximationOptions,
        ranges: &[Range<'_>],
    ) -> Result<Vec<u64>> {
        self.shared.check_handle(&family.0)?;
        sizes::approximate(&family.0, options, ranges)
    }

    /// The approximate number of entries and of bytes that the memtables have in the range.
    pub fn get_approximate_memtable_stats(
        &self,
        family: &ColumnFamily,
        range: Range<'_>,
    ) -> Result<(u64, u64)> {
        self.shared.check_handle(&family.0)?;
        Ok(sizes::in_memory(&family.0, range))
    }

    /// The directory of the database.
    pub fn path(&self) -> PathBuf {
        self.shared.dir.clone()
    }
}

/// The logs.
impl Db {
    /// The logs that contain at least one batch, archived ones first, in the order in which they were written. A
    /// log that is damaged at its start counts as empty. Errors: a directory or a log cannot be read.
    pub fn get_sorted_wal_files(&self) -> Result<Vec<WalFile>> {
        updates::sorted(&self.shared)
    }

    /// The log that currently receives writes; its `start_sequence` is 0. Errors: the database is open read-only.
    pub fn get_current_wal_file(&self) -> Result<WalFile> {
        let number = self.shared.background.newest_log();
        let number = number.ok_or_else(|| {
            Error::not_supported("the current log of a database that is open for reading only")
        })?;
        self.shared.wal.directory.describe(number)
    }

    /// The writes from sequence number `sequence` on, batch by batch. Iteration begins with the batch that contains
    /// `sequence` or, if the logs do not go back that far, with the first batch in them, whose sequence number is
    /// then larger. `WAL_ttl_seconds` and `WAL_size_limit_MB` keep logs for this purpose. Only writes in the log
    /// files are visible: none with `disable_wal`, and with `manual_wal_flush` only those that were flushed.
    ///
    /// Errors: `NotFound` if this sequence number was not written yet; as [`Db::get_sorted_wal_files`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let mut options = ironstone::Options::default();
    /// # options.db.create_if_missing = true;
    /// let db = ironstone::Db::open(dir.path(), &options)?;
    /// db.put("a", "1")?;
    /// let mut updates = db.get_updates_since(1)?;
    /// assert!(updates.valid() && updates.sequence() == 1);
    /// updates.next();
    /// assert!(!updates.valid());
    /// updates.status()?;
    /// db.put("b", "2")?;
    /// updates.next();
    /// assert_eq!(updates.batch().count(), 1);
    /// # Ok::<(), ironstone::Error>(())
    /// ```
    pub fn get_updates_since(&self, sequence: u64) -> Result<UpdatesIterator> {
        updates::since(&self.shared, sequence)
    }
}
