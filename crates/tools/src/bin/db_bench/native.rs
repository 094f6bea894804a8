//! Ironstone as an engine, called directly.

mod options;

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::{Error, Result};
use futures::executor::block_on;
use futures::stream::{self, StreamExt};
use ironstone::backup::{BackupEngine, BackupEngineOptions, CreateBackupOptions, RestoreOptions};
use ironstone::{
    BottommostLevelCompaction, ColumnFamily, ColumnFamilyDescriptor, CompactRangeOptions,
    CompactionOptions, Db, DbIterator, Env, GetMergeOperandsOptions, IngestExternalFileOptions,
    IoPriority, LiveFileMetaData, Options, ReadOptions, SizeApproximationOptions, Snapshot,
    SstFileWriter, WideColumns, WriteBatch, WriteOptions, perf,
};

use crate::counted::{CountedFiles, Counts};
use crate::engine::{self, Bounds, Engine, TableFile};
use crate::flags::Flags;
use options::options;

pub(crate) struct Native {
    db: Db,
    family: ColumnFamily,
    families: Vec<ColumnFamily>,
    read: ReadOptions,
    options: Options,
    files: Option<Arc<Counts>>,
    /// Bytes a second of backups and of restoring; 0 is no limit.
    backup_rates: (u64, u64),
    /// Whether gets do not copy values.
    pinned_gets: bool,
    /// Gets in flight of a batch; 0: a batch is one MultiGet.
    async_gets: usize,
}

/// The state that the databases of a run share.
pub(crate) struct Settings {
    options: Options,
    files: Option<Arc<Counts>>,
}

impl Native {
    fn of(db: Db, flags: &Flags, options: Options, files: Option<Arc<Counts>>) -> Self {
        let names = engine::families(flags);
        Self {
            families: names.iter().filter_map(|n| db.column_family(n)).collect(),
            family: db.default_column_family(),
            db,
            read: ReadOptions {
                verify_checksums: flags.verify_checksum,
                tailing: flags.use_tailing_iterator,
                readahead_size: flags.readahead_size as u64,
                total_order_seek: flags.total_order_seek,
                prefix_same_as_start: flags.prefix_same_as_start,
                auto_prefix_mode: flags.auto_prefix_mode,
                async_io: flags.async_io,
                adaptive_readahead: flags.adaptive_readahead,
                auto_readahead_size: flags.auto_readahead_size,
                optimize_multiget_for_io: flags.optimize_multiget_for_io,
                auto_refresh_iterator_with_snapshot: flags.auto_refresh_iterator_with_snapshot,
                rate_limiter_priority: flags.rate_limit_user_ops.then_some(IoPriority::User),
                ..ReadOptions::default()
            },
            options,
            files,
            backup_rates: (flags.backup_rate_limit, flags.restore_rate_limit),
            pinned_gets: flags.pinned_gets,
            async_gets: usize::try_from(flags.async_gets).unwrap_or(0),
        }
    }

    #[inline]
    fn get_from(
        &self,
        cf: ironstone::Cf<'_>,
        key: &[u8],
        scratch: &mut Vec<u8>,
    ) -> Result<Option<usize>> {
        let cf = cf.with(&self.read);
        if self.pinned_gets {
            return cf.get_with(key, <[u8]>::len);
        }
        let found = cf.get_into(key, scratch)?;
        Ok(found.then_some(scratch.len()))
    }

    fn backups(&self, dir: &Path) -> Result<BackupEngine> {
        let mut options = BackupEngineOptions::new(dir);
        (options.backup_rate_limit, options.restore_rate_limit) = self.backup_rates;
        BackupEngine::open(&options, &Env::default())
    }

    #[inline]
    fn numbered(&self, family: usize) -> Result<&ColumnFamily> {
        self.families
            .get(family)
            .ok_or_else(|| engine::no_family(family))
    }
}

impl Engine for Native {
    type Write = WriteOptions;
    type Batch = WriteBatch;
    type Cursor<'a> = DbIterator;
    type Snapshot<'a> = Snapshot;
    type Settings = Settings;
    type Table = SstFileWriter;
    type Perf = ();

    fn settings(flags: &Flags) -> Result<Settings> {
        let mut options = options(flags)?;
        let files = flags.report_file_operations.then(Arc::<Counts>::default);
        if let Some(counts) = &files {
            let fs = Arc::clone(&options.env.fs);
            options.env.fs = CountedFiles::over(fs, Arc::clone(counts));
        }
        Ok(Settings { options, files })
    }

    fn open(flags: &Flags, settings: &Settings, dir: &Path) -> Result<Self> {
        let mut options = settings.options.clone();
        let files = settings.files.clone();
        if !flags.wal_dir.is_empty() {
            options.db = options
                .db
                .with_text(&format!("wal_dir={}", flags.wal_dir))?;
        }
        if flags.use_secondary_db {
            let db = Db::open_as_secondary(dir, &flags.secondary_path, &options)?;
            return Ok(Self::of(db, flags, options, files));
        }
        options.db.create_missing_column_families = true;
        let wanted: Vec<_> = engine::families(flags)
            .into_iter()
            .map(|name| ColumnFamilyDescriptor::new(name, options.cf.clone()))
            .collect();
        let db = if flags.readonly {
            Db::open_cf_read_only(dir, &options, &wanted)?
        } else {
            Db::open_cf(dir, &options, &wanted)?
        };
        Ok(Self::of(db, flags, options, files))
    }

    fn open_read_only(flags: &Flags, settings: &Settings, dir: &Path) -> Result<Self> {
        let options = settings.options.clone();
        let db = Db::open_read_only(dir, &options)?;
        Ok(Self::of(db, flags, options, settings.files.clone()))
    }

    fn file_operations(&self) -> Option<String> {
        self.files.as_ref().map(|counts| counts.take())
    }

    fn catch_up(&self) -> Result<()> {
        self.db.try_catch_up_with_primary()
    }

    fn close(self) -> Result<()> {
        drop((self.family, self.families));
        self.db.close()
    }

    fn write_options(&self, sync: bool, disable_wal: bool) -> Self::Write {
        WriteOptions {
            sync,
            disable_wal,
            ..WriteOptions::default()
        }
    }

    #[inline]
    fn put(&self, options: &Self::Write, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.cf(&self.family).with(options).put(key, value)
    }

    #[inline]
    fn delete(&self, options: &Self::Write, key: &[u8]) -> Result<()> {
        self.db.cf(&self.family).with(options).delete(key)
    }

    fn single_delete(&self, options: &Self::Write, key: &[u8]) -> Result<()> {
        self.db.cf(&self.family).with(options).single_delete(key)
    }

    fn delete_range(&self, options: &Self::Write, begin: &[u8], end: &[u8]) -> Result<()> {
        self.db
            .cf(&self.family)
            .with(options)
            .delete_range(begin, end)
    }

    #[inline]
    fn merge(&self, options: &Self::Write, key: &[u8], operand: &[u8]) -> Result<()> {
        self.db.cf(&self.family).with(options).merge(key, operand)
    }

    fn batch(&self) -> Self::Batch {
        WriteBatch::new()
    }

    #[inline]
    fn batch_put(&self, batch: &mut Self::Batch, key: &[u8], value: &[u8]) -> Result<()> {
        batch.put(key, value)
    }

    #[inline]
    fn batch_delete(&self, batch: &mut Self::Batch, key: &[u8]) -> Result<()> {
        batch.delete(key)
    }

    fn batch_put_in(
        &self,
        batch: &mut Self::Batch,
        family: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        batch.cf(self.numbered(family)?).put(key, value)
    }

    fn batch_delete_in(&self, batch: &mut Self::Batch, family: usize, key: &[u8]) -> Result<()> {
        batch.cf(self.numbered(family)?).delete(key)
    }

    #[inline]
    fn write(&self, options: &Self::Write, batch: &mut Self::Batch) -> Result<()> {
        let written = self.db.with(options).write(batch);
        batch.clear();
        written
    }

    #[inline]
    fn get(&self, key: &[u8], scratch: &mut Vec<u8>) -> Result<Option<usize>> {
        self.get_from(self.db.cf(&self.family), key, scratch)
    }

    fn delete_range_in(
        &self,
        options: &Self::Write,
        family: usize,
        begin: &[u8],
        end: &[u8],
    ) -> Result<()> {
        let family = self.numbered(family)?;
        self.db.cf(family).with(options).delete_range(begin, end)
    }

    fn merge_in(
        &self,
        options: &Self::Write,
        family: usize,
        key: &[u8],
        operand: &[u8],
    ) -> Result<()> {
        let family = self.numbered(family)?;
        self.db.cf(family).with(options).merge(key, operand)
    }

    #[inline]
    fn get_in(&self, family: usize, key: &[u8], scratch: &mut Vec<u8>) -> Result<Option<usize>> {
        self.get_from(self.db.cf(self.numbered(family)?), key, scratch)
    }

    fn get_value(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        let cf = self.db.cf(&self.family).with(&self.read);
        cf.get_into(key, value)
    }

    fn get_at_once(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let at = ReadOptions {
            snapshot: Some(self.db.snapshot()),
            ..self.read.clone()
        };
        keys.iter()
            .map(|key| self.db.cf(&self.family).with(&at).get(key))
            .collect()
    }

    fn merge_operands(&self, key: &[u8]) -> Result<Vec<Vec<u8>>> {
        let how = GetMergeOperandsOptions {
            expected_max_number_of_operands: usize::MAX,
            continue_cb: None,
        };
        self.db
            .cf(&self.family)
            .with(&self.read)
            .get_merge_operands(key, how)
    }

    fn entity(&self, key: &[u8]) -> Result<Option<usize>> {
        let columns = self.db.cf(&self.family).with(&self.read).get_entity(key)?;
        let bytes = |columns: WideColumns| columns.iter().map(|(n, v)| n.len() + v.len()).sum();
        Ok(columns.map(bytes))
    }

    fn multi_entity(&self, keys: &[&[u8]]) -> Result<(u64, u64)> {
        let at = ReadOptions {
            snapshot: Some(self.db.snapshot()),
            ..self.read.clone()
        };
        let (mut found, mut bytes) = (0, 0);
        for key in keys {
            if let Some(columns) = self.db.cf(&self.family).with(&at).get_entity(key)? {
                found += 1;
                bytes += columns
                    .iter()
                    .map(|(n, v)| n.len() + v.len())
                    .sum::<usize>();
            }
        }
        Ok((found, bytes as u64))
    }

    fn memtable_stats(&self, begin: &[u8], end: &[u8]) -> Result<(u64, u64)> {
        self.db
            .cf(&self.family)
            .get_approximate_memtable_stats((begin, end))
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<(u64, u64)> {
        fn sum<T: AsRef<[u8]>>(values: Vec<Result<Option<T>>>) -> Result<(u64, u64)> {
            let (mut found, mut bytes) = (0, 0);
            for value in values {
                if let Some(value) = value? {
                    found += 1;
                    bytes += value.as_ref().len() as u64;
                }
            }
            Ok((found, bytes))
        }
        let cf = self.db.cf(&self.family).with(&self.read);
        if self.async_gets > 0 {
            let gets = stream::iter(keys).map(|key| cf.get_async(key));
            let values = gets.buffer_unordered(self.async_gets).collect();
            return sum(block_on(values));
        }
        if self.pinned_gets {
            return sum(cf.multi_get_pinned(keys));
        }
        sum(cf.multi_get(keys))
    }

    fn cursor(&self, bounds: Bounds<'_>) -> Result<Self::Cursor<'_>> {
        if bounds.lower.is_none() && bounds.upper.is_none() {
            return self.db.cf(&self.family).with(&self.read).iterator();
        }
        let within = bounded(&self.read, bounds);
        self.db.cf(&self.family).with(&within).iterator()
    }

    fn multi_scan(&self, ranges: &[(Vec<u8>, Vec<u8>)], reverse: bool) -> Result<u64> {
        let ranges = ranges.iter().map(|(begin, end)| begin..end);
        let mut rows = 0;
        for mut entries in self
            .db
            .cf(&self.family)
            .with(&self.read)
            .multi_scan(ranges)?
        {
            if reverse {
                for entry in entries.rev() {
                    std::hint::black_box(entry?);
                    rows += 1;
                }
                continue;
            }
            while let Some(entry) = entries.next_ref() {
                entry?;
                rows += 1;
            }
        }
        Ok(rows)
    }

    fn snapshot(&self) -> Snapshot {
        self.db.snapshot()
    }

    fn cursor_at<'s>(&'s self, snapshot: &'s Snapshot, bounds: Bounds<'_>) -> Result<DbIterator> {
        let at = ReadOptions {
            snapshot: Some(snapshot.clone()),
            ..bounded(&self.read, bounds)
        };
        self.db.cf(&self.family).with(&at).iterator()
    }

    fn approximate_size(&self, begin: &[u8], end: &[u8]) -> Result<u64> {
        let options = SizeApproximationOptions::default();
        let sizes = self
            .db
            .cf(&self.family)
            .get_approximate_sizes(&options, &[(begin, end)])?;
        Ok(sizes.into_iter().sum())
    }

    fn flush(&self) -> Result<()> {
        self.db.flush()
    }

    fn sync_wal(&self) -> Result<()> {
        self.db.flush_wal(true)
    }

    fn compact(&self, rewrites: bool) -> Result<()> {
        let mut options = CompactRangeOptions::default();
        if rewrites {
            options.bottommost_level_compaction = BottommostLevelCompaction::ForceOptimized;
        }
        let family = self.db.cf(&self.family);
        family.with(&options).compact_range(None, None)
    }

    fn tables(&self) -> Result<Vec<(i32, CString)>> {
        let tables = self.db.get_live_files_metadata().into_iter();
        let named = tables.map(|t| (t.level as i32, t.file_number.to_string()));
        Ok(named
            .filter_map(|(level, name)| Some((level, CString::new(name).ok()?)))
            .collect())
    }

    fn compact_files(&self, names: &[CString], output_level: i32) -> Result<()> {
        let numbers = names
            .iter()
            .filter_map(|name| name.to_str().ok()?.parse().ok());
        let numbers: Vec<u64> = numbers.collect();
        let options = CompactionOptions::default();
        self.db
            .cf(&self.family)
            .with(&options)
            .compact_files(&numbers, output_level as usize)
    }

    fn table_files(&self) -> Result<Vec<TableFile>> {
        let family = self.db.cf(&self.family).get_column_family_metadata()?;
        let tables = family.levels.into_iter().flat_map(|level| level.files);
        let file = |t: LiveFileMetaData| {
            Ok(TableFile {
                level: t.level as i32,
                name: CString::new(t.name)
                    .map_err(|_| Error::corruption("a table's name has a zero"))?,
                bytes: t.size,
                smallest: t.smallestkey,
                largest: t.largestkey,
                sequences: (t.smallest_seqno, t.largest_seqno),
            })
        };
        tables.map(file).collect()
    }

    fn compact_into(&self, tables: &[TableFile], level: i32, file_bytes: u64) -> Result<()> {
        let number = |table: &TableFile| {
            let name = table.name.to_str().ok()?;
            name.trim_start_matches('/').split('.').next()?.parse().ok()
        };
        let numbers: Vec<u64> = tables.iter().filter_map(number).collect();
        let options = CompactionOptions {
            output_file_size_limit: file_bytes,
            ..CompactionOptions::default()
        };
        self.db
            .cf(&self.family)
            .with(&options)
            .compact_files(&numbers, level as usize)
    }

    fn set_options(&self, options: &[(&str, &str)]) -> Result<()> {
        self.db.cf(&self.family).set_options(options)
    }

    fn verify_checksum(&self) -> Result<()> {
        self.db.verify_checksum()
    }

    fn verify_file_checksums(&self) -> Result<()> {
        Err(Error::not_supported(
            "verify_file_checksums of an open database",
        ))
    }

    fn backup(&self, dir: &Path) -> Result<()> {
        let mut engine = self.backups(dir)?;
        let options = CreateBackupOptions {
            flush_before_backup: true,
            ..CreateBackupOptions::default()
        };
        engine.create_new_backup(&self.db, options).map(|_| ())
    }

    fn restore(&self, from: &Path, to: &Path) -> Result<()> {
        let options = RestoreOptions::default();
        self.backups(from)?
            .restore_db_from_latest_backup(to, to, &options)
    }

    fn table(&self, path: &Path) -> Result<SstFileWriter> {
        let mut table = SstFileWriter::new(&self.options);
        table.open(path)?;
        Ok(table)
    }

    fn table_put(&self, table: &mut SstFileWriter, key: &[u8], value: &[u8]) -> Result<()> {
        table.put(key, value)
    }

    fn table_finish(&self, mut table: SstFileWriter) -> Result<()> {
        table.finish().map(drop)
    }

    fn ingest(&self, files: &[PathBuf]) -> Result<()> {
        let options = IngestExternalFileOptions {
            move_files: true,
            ..IngestExternalFileOptions::default()
        };
        self.db.ingest_external_file(files, &options)
    }

    fn perf_start(&self, level: i32) -> Result<()> {
        perf::set_level(match level {
            ..=1 => perf::PerfLevel::Disable,
            2 => perf::PerfLevel::EnableCount,
            _ => perf::PerfLevel::EnableTime,
        });
        perf::reset();
        Ok(())
    }

    fn perf_report(&self, (): &()) -> Result<String> {
        Ok(perf::report())
    }

    fn property(&self, name: &str) -> Option<String> {
        self.db.property(name)
    }

    fn property_of(&self, family: usize, name: &str) -> Option<String> {
        self.db.cf(self.families.get(family)?).property(name)
    }

    fn statistics(&self) -> Option<String> {
        let statistics = self.options.env.statistics.as_ref();
        statistics.map(ToString::to_string)
    }

    fn wait_for_compaction(&self) -> Result<()> {
        self.db.wait_for_compact()
    }
}

/// Options with the bounds of a cursor.
fn bounded(options: &ReadOptions, bounds: Bounds<'_>) -> ReadOptions {
    ReadOptions {
        iterate_lower_bound: bounds.lower.map(<[u8]>::to_vec),
        iterate_upper_bound: bounds.upper.map(<[u8]>::to_vec),
        ..options.clone()
    }
}

engine::cursor!(DbIterator);
