//! [`Db`]'s operations on whole files: ingestion, checkpoints, export and import, and what files
//! there are. Each method is a few lines; the work is done in the modules it names.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::Result;

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

/// Other ways to open a database.
impl Db {
    /// [`Db::open_read_only`]. Errors: also `Corruption` if there is a log and
    /// `error_if_wal_file_exists`: what is only in logs would cost memory, or be missed.
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

    /// Opens a database that another instance, the primary, may have open, for reading: all that it
    /// has written, also what is only in its logs. [`Db::try_catch_up_with_primary`] shows what it
    /// has written since. Messages go to LOG in `secondary_path`; nothing else is written.
    ///
    /// An iterator keeps what it sees. A snapshot does not hold the primary back: what it shows
    /// changes when the instance catches up.
    pub fn open_as_secondary(
        path: impl AsRef<Path>,
        secondary_path: impl AsRef<Path>,
        options: &Options,
    ) -> Result<Self> {
        open::open_secondary(path.as_ref(), secondary_path.as_ref(), options)
    }

    /// Shows what the primary has written since this instance was opened or last caught up, new
    /// column families too. Tables that are open stay so; logs are read from their start.
    ///
    /// Errors: the database is open for writing; `TryAgain` if the primary changes its files too
    /// fast. What was seen before is still seen.
    pub fn try_catch_up_with_primary(&self) -> Result<()> {
        open::catch_up(&self.shared)
    }
}

/// Bulk loading.
impl Db {
    /// Makes files of an [`SstFileWriter`](crate::SstFileWriter) part of the default column family,
    /// as one write: all of them, newer than everything before.
    ///
    /// Errors leave the database as it was: a file that is damaged, empty, or was not made by an
    /// `SstFileWriter`, of Ironstone or RocksDB; one that was written under another comparator; what the
    /// options forbid.
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

    /// [`Db::ingest_external_file`] into several column families at once: a crash leaves all files
    /// or none.
    pub fn ingest_external_files(&self, args: &[IngestExternalFileArg]) -> Result<()> {
        ingest::ingest(&self.shared, args)
    }

    /// Flushes the column family and links its tables, or copies them to another file system, into
    /// the new directory `dir`. What is returned is needed to import them.
    pub fn export_column_family(
        &self,
        family: &ColumnFamily,
        dir: impl AsRef<Path>,
    ) -> Result<ExportImportFilesMetaData> {
        self.shared.check_handle(&family.0)?;
        export::export(&self.shared, &family.0, dir.as_ref())
    }

    /// Creates a column family out of the files of an export. Errors: a family of this name
    /// exists; files that are missing, changed or damaged; another comparator.
    pub fn create_column_family_with_import(
        &self,
        name: &str,
        options: &ColumnFamilyOptions,
        import: &ImportColumnFamilyOptions,
        metadata: &ExportImportFilesMetaData,
    ) -> Result<ColumnFamily> {
        export::import(&self.shared, name, options, import, metadata).map(ColumnFamily::new)
    }

    /// Deletes the tables that lie in one of the ranges with all their keys (`None` is open; the
    /// last key counts with `include_end`), but those of level 0. A quick way to give space back,
    /// not a deletion of keys: what lies in other tables stays, older versions of deleted keys
    /// among it.
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

/// Copies of the database, and its files.
impl Db {
    /// Makes a copy of the database as it is now in the new directory `dir`, which opens by itself:
    /// tables are linked, or copied to another file system. Memtables are flushed first if the logs
    /// have `log_size_for_flush` bytes or more: always with 0, never with `u64::MAX`. Writers go on
    /// meanwhile. Returns the number of the last write in it.
    pub fn create_checkpoint(&self, dir: impl AsRef<Path>, log_size_for_flush: u64) -> Result<u64> {
        checkpoint::create(&self.shared, dir.as_ref(), log_size_for_flush)
    }

    /// Keeps every file until the matching [`Db::enable_file_deletions`], so that they can be
    /// copied. Calls nest. No log files are made ahead meanwhile: synced writes cost more when those
    /// that are there have become logs.
    pub fn disable_file_deletions(&self) {
        self.shared.disable_file_deletions();
        if let Ok(files) = self.shared.log_files() {
            files.hold_pool();
        }
    }

    /// Ends one [`Db::disable_file_deletions`]; the last one deletes what is not needed any more.
    pub fn enable_file_deletions(&self) {
        if let Ok(files) = self.shared.log_files() {
            files.release_pool();
            self.shared.wake(); // the pool goes on
        }
        self.shared.enable_file_deletions();
    }

    /// The names of the files that the database consists of, without logs, each with a slash before
    /// it, and how many bytes of the MANIFEST belong to it. With `flush_memtable`, memtables are
    /// flushed first. Call [`Db::disable_file_deletions`] before.
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

    /// Everything that a copy of the database as it is now consists of, logs included. Call
    /// [`Db::disable_file_deletions`] before, and copy before enabling them again.
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
        let families = self.shared.families.load();
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
        for family in self.shared.families.load().iter() {
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

    /// About how many bytes of the column family lie in each range, as they are on disk.
    pub fn get_approximate_sizes(
        &self,
        family: &ColumnFamily,
        options: &SizeApproximationOptions,
        ranges: &[Range<'_>],
    ) -> Result<Vec<u64>> {
        self.shared.check_handle(&family.0)?;
        sizes::approximate(&family.0, options, ranges)
    }

    /// How many entries of the memtables lie in the range, and about how many bytes they have.
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
