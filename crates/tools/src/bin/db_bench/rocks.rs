//! RocksDB as an engine, through its C API.

use std::ffi::CString;
use std::path::{Path, PathBuf};

use base::{ErrorKind, Result};
use tools::librocksdb::{
    Cf, RocksBackupEngine, RocksDb, RocksIngest, RocksIter, RocksOptions, RocksPerf,
    RocksReadOptions, RocksSnapshot, RocksSstFileWriter, RocksTable, RocksWriteBatch,
    RocksWriteOptions,
};

use crate::engine::{self, Bounds, Engine, TableFile};
use crate::flags::Flags;

/// The API that lacks a call, for messages.
const API: &str = "RocksDB's C API";

pub(crate) struct Rocks {
    db: RocksDb,
    options: RocksOptions,
    read: RocksReadOptions<'static>,
    flags: Flags,
}

mod settings;

pub(crate) use settings::library;
use settings::read_options;

impl Rocks {
    fn of(db: RocksDb, flags: &Flags, options: RocksOptions) -> Result<Self> {
        Ok(Self {
            read: read_options(db.library(), flags)?,
            db,
            options,
            flags: flags.clone(),
        })
    }

    #[inline]
    fn get_from(&self, cf: Cf<'_>, key: &[u8], scratch: &mut Vec<u8>) -> Result<Option<usize>> {
        if self.flags.pinned_gets {
            return self.db.get_with(&self.read, cf, key, <[u8]>::len);
        }
        let found = self.db.get_into(&self.read, cf, key, scratch)?;
        Ok(found.then_some(scratch.len()))
    }

    #[inline]
    fn numbered(&self, family: usize) -> Result<Cf<'_>> {
        self.db
            .nth_cf(family)
            .ok_or_else(|| engine::no_family(family))
    }
}

impl Engine for Rocks {
    type Write = RocksWriteOptions;
    type Batch = RocksWriteBatch;
    type Cursor<'a> = RocksIter<'a>;
    type Snapshot<'a> = RocksSnapshot<'a>;
    type Settings = RocksOptions;
    type Table = RocksSstFileWriter;
    type Perf = RocksPerf;

    fn settings(flags: &Flags) -> Result<RocksOptions> {
        settings::options(flags)
    }

    fn open(flags: &Flags, settings: &RocksOptions, dir: &Path) -> Result<Self> {
        let mut options = settings.copy();
        if !flags.wal_dir.is_empty() {
            options.set("wal_dir", &flags.wal_dir)?;
        }
        if flags.use_secondary_db {
            let db = RocksDb::open_as_secondary(&options, dir, &flags.secondary_path)?;
            return Self::of(db, flags, options);
        }
        let names = engine::families(flags);
        options.set("create_missing_column_families", "true")?;
        let families: Vec<_> = names.iter().map(|n| (n.as_str(), &options)).collect();
        let db = if flags.readonly {
            RocksDb::open_read_only_cf(&options, dir, &families)?
        } else {
            RocksDb::open_cf(&options, dir, &families)?
        };
        Self::of(db, flags, options)
    }

    fn open_read_only(flags: &Flags, settings: &RocksOptions, dir: &Path) -> Result<Self> {
        let db = RocksDb::open_read_only(settings, dir)?;
        Self::of(db, flags, settings.copy())
    }

    fn catch_up(&self) -> Result<()> {
        self.db.try_catch_up_with_primary()
    }

    fn close(self) -> Result<()> {
        self.db.close();
        Ok(())
    }

    fn write_options(&self, sync: bool, disable_wal: bool) -> Self::Write {
        let options = self.db.library().write_options();
        let options = options.sync(sync).disable_wal(disable_wal);
        if self.flags.rate_limit_auto_wal_flush {
            return options.limited_as_users();
        }
        options
    }

    #[inline]
    fn put(&self, options: &Self::Write, key: &[u8], value: &[u8]) -> Result<()> {
        self.db.put_opt(options, self.db.default_cf(), key, value)
    }

    #[inline]
    fn delete(&self, options: &Self::Write, key: &[u8]) -> Result<()> {
        self.db.delete_opt(options, self.db.default_cf(), key)
    }

    fn single_delete(&self, options: &Self::Write, key: &[u8]) -> Result<()> {
        self.db
            .single_delete_opt(options, self.db.default_cf(), key)
    }

    fn delete_range(&self, options: &Self::Write, begin: &[u8], end: &[u8]) -> Result<()> {
        let cf = self.db.default_cf();
        self.db.delete_range_opt(options, cf, begin, end)
    }

    #[inline]
    fn merge(&self, options: &Self::Write, key: &[u8], operand: &[u8]) -> Result<()> {
        self.db
            .merge_opt(options, self.db.default_cf(), key, operand)
    }

    fn batch(&self) -> Self::Batch {
        match self.flags.write_batch_protection_bytes_per_key {
            0 => self.db.library().batch(),
            bytes => self.db.library().batch_with_checksums(bytes as usize),
        }
    }

    #[inline]
    fn batch_put(&self, batch: &mut Self::Batch, key: &[u8], value: &[u8]) -> Result<()> {
        batch.put(key, value);
        Ok(())
    }

    #[inline]
    fn batch_delete(&self, batch: &mut Self::Batch, key: &[u8]) -> Result<()> {
        batch.delete(key);
        Ok(())
    }

    fn batch_put_in(
        &self,
        batch: &mut Self::Batch,
        family: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        batch.put_cf(self.numbered(family)?, key, value);
        Ok(())
    }

    fn batch_delete_in(&self, batch: &mut Self::Batch, family: usize, key: &[u8]) -> Result<()> {
        batch.delete_cf(self.numbered(family)?, key);
        Ok(())
    }

    #[inline]
    fn write(&self, options: &Self::Write, batch: &mut Self::Batch) -> Result<()> {
        self.db.write_opt(options, batch)?;
        batch.clear();
        Ok(())
    }

    #[inline]
    fn get(&self, key: &[u8], scratch: &mut Vec<u8>) -> Result<Option<usize>> {
        self.get_from(self.db.default_cf(), key, scratch)
    }

    fn delete_range_in(
        &self,
        options: &Self::Write,
        family: usize,
        begin: &[u8],
        end: &[u8],
    ) -> Result<()> {
        let cf = self.numbered(family)?;
        self.db.delete_range_opt(options, cf, begin, end)
    }

    fn merge_in(
        &self,
        options: &Self::Write,
        family: usize,
        key: &[u8],
        operand: &[u8],
    ) -> Result<()> {
        self.db
            .merge_opt(options, self.numbered(family)?, key, operand)
    }

    #[inline]
    fn get_in(&self, family: usize, key: &[u8], scratch: &mut Vec<u8>) -> Result<Option<usize>> {
        self.get_from(self.numbered(family)?, key, scratch)
    }

    fn get_value(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.db
            .get_into(&self.read, self.db.default_cf(), key, value)
    }

    fn get_at_once(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let snapshot = self.db.snapshot();
        let at = read_options(self.db.library(), &self.flags)?.snapshot(&snapshot);
        let cf = self.db.default_cf();
        keys.iter()
            .map(|key| self.db.get_opt(&at, cf, key))
            .collect()
    }

    fn merge_operands(&self, _: &[u8]) -> Result<Vec<Vec<u8>>> {
        Err(engine::no_call(API, "GetMergeOperands"))
    }

    fn entity(&self, _: &[u8]) -> Result<Option<usize>> {
        Err(engine::no_call(API, "GetEntity"))
    }

    fn multi_entity(&self, _: &[&[u8]]) -> Result<(u64, u64)> {
        Err(engine::no_call(API, "MultiGetEntity"))
    }

    fn memtable_stats(&self, _: &[u8], _: &[u8]) -> Result<(u64, u64)> {
        Err(engine::no_call(API, "GetApproximateMemTableStats"))
    }

    fn multi_get(&self, keys: &[&[u8]]) -> Result<(u64, u64)> {
        let (mut found, mut bytes, mut failed) = (0, 0, Ok(()));
        let cf = self.db.default_cf();
        self.db
            .multi_get_with(&self.read, cf, keys, |value| match value {
                Ok(Some(value)) => {
                    found += 1;
                    bytes += value.len() as u64;
                }
                Ok(None) => {}
                Err(e) => failed = Err(e),
            });
        failed.map(|()| (found, bytes))
    }

    fn cursor(&self, bounds: Bounds<'_>) -> Result<Self::Cursor<'_>> {
        let cf = self.db.default_cf();
        if bounds.lower.is_none() && bounds.upper.is_none() {
            return Ok(self.db.iterator_opt(&self.read, cf));
        }
        let within = read_options(self.db.library(), &self.flags)?;
        Ok(self.db.iterator_with(bounded(within, bounds), cf))
    }

    fn multi_scan(&self, _: &[(Vec<u8>, Vec<u8>)], _: bool) -> Result<u64> {
        Err(engine::no_call(API, "MultiScan"))
    }

    fn snapshot(&self) -> RocksSnapshot<'_> {
        self.db.snapshot()
    }

    fn cursor_at<'s>(
        &'s self,
        snapshot: &'s RocksSnapshot<'_>,
        bounds: Bounds<'_>,
    ) -> Result<RocksIter<'s>> {
        let at = read_options(self.db.library(), &self.flags)?.snapshot(snapshot);
        let cf = self.db.default_cf();
        Ok(self.db.iterator_with(bounded(at, bounds), cf))
    }

    fn approximate_size(&self, begin: &[u8], end: &[u8]) -> Result<u64> {
        self.db.approximate_size(self.db.default_cf(), begin, end)
    }

    fn flush(&self) -> Result<()> {
        self.db.flush()
    }

    fn sync_wal(&self) -> Result<()> {
        self.db.flush_wal(true)
    }

    fn compact(&self, rewrites: bool) -> Result<()> {
        const IF_HAVE_COMPACTION_FILTER: u8 = 1;
        let cf = self.db.default_cf();
        if rewrites {
            self.db.compact_range(cf, None, None);
        } else {
            let how = IF_HAVE_COMPACTION_FILTER;
            self.db.compact_range_with(cf, None, None, how);
        }
        Ok(())
    }

    fn tables(&self) -> Result<Vec<(i32, CString)>> {
        let tables = self.db.tables("default")?;
        Ok(tables.into_iter().map(|t| (t.level, t.name)).collect())
    }

    fn compact_files(&self, names: &[CString], output_level: i32) -> Result<()> {
        self.db
            .compact_files(self.db.default_cf(), names, output_level)
    }

    fn table_files(&self) -> Result<Vec<TableFile>> {
        let tables = self.db.tables("default")?.into_iter();
        let file = |t: RocksTable| TableFile {
            level: t.level,
            name: t.name,
            bytes: t.bytes,
            smallest: t.smallest,
            largest: t.largest,
            sequences: t.sequences,
        };
        Ok(tables.map(file).collect())
    }

    fn compact_into(&self, tables: &[TableFile], level: i32, file_bytes: u64) -> Result<()> {
        let names: Vec<CString> = tables.iter().map(|t| t.name.clone()).collect();
        let cf = self.db.default_cf();
        self.db
            .compact_files_sized(cf, &names, level, Some(file_bytes))
    }

    fn set_options(&self, options: &[(&str, &str)]) -> Result<()> {
        self.db.set_options(self.db.default_cf(), options)
    }

    fn verify_checksum(&self) -> Result<()> {
        self.db.verify_checksum()
    }

    fn verify_file_checksums(&self) -> Result<()> {
        self.db.verify_file_checksums()
    }

    fn backup(&self, dir: &Path) -> Result<()> {
        RocksBackupEngine::open(&self.options, dir)?.create(&self.db, true)
    }

    fn restore(&self, from: &Path, to: &Path) -> Result<()> {
        RocksBackupEngine::open(&self.options, from)?.restore(None, to)
    }

    fn perf_start(&self, level: i32) -> Result<RocksPerf> {
        RocksPerf::start(self.db.library(), level)
    }

    fn perf_report(&self, perf: &RocksPerf) -> Result<String> {
        perf.report()
    }

    fn property(&self, name: &str) -> Option<String> {
        self.db.property(name)
    }

    fn property_of(&self, family: usize, name: &str) -> Option<String> {
        self.db.property_cf(self.db.nth_cf(family)?, name)
    }

    fn wait_for_compaction(&self) -> Result<()> {
        match self.db.wait_for_compaction() {
            Err(e) if e.kind() == ErrorKind::NotSupported => engine::poll_for_compaction(self),
            done => done,
        }
    }

    fn table(&self, path: &Path) -> Result<RocksSstFileWriter> {
        RocksSstFileWriter::open(&self.options, path)
    }

    fn table_put(&self, table: &mut RocksSstFileWriter, key: &[u8], value: &[u8]) -> Result<()> {
        table.put(key, value)
    }

    fn table_finish(&self, table: RocksSstFileWriter) -> Result<()> {
        table.finish()
    }

    fn ingest(&self, files: &[PathBuf]) -> Result<()> {
        let flags = &self.flags;
        let opening = (
            flags.ingest_external_file_file_opening_threads,
            flags.ingest_external_file_fill_cache,
            flags.ingest_external_file_prefetch_lmax_index_and_filter_blocks,
        );
        let how = RocksIngest {
            move_files: true,
            opening: (opening != (1, true, true)).then_some(opening),
            ..RocksIngest::default()
        };
        self.db.ingest(self.db.default_cf(), files, how)
    }

    fn statistics(&self) -> Option<String> {
        self.options.statistics()
    }
}

/// Options with the bounds of a cursor.
fn bounded<'a>(mut within: RocksReadOptions<'a>, bounds: Bounds<'_>) -> RocksReadOptions<'a> {
    if let Some(lower) = bounds.lower {
        within = within.lower_bound(lower);
    }
    if let Some(upper) = bounds.upper {
        within = within.upper_bound(upper);
    }
    within
}

engine::cursor!(RocksIter<'_>);
