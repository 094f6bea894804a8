//! RocksDB as an engine, through its C API.

use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::options::{OptionFlag, OptionTable};
use base::{Error, ErrorKind, Result};
use ironstone::DbOptions;
use tools::librocksdb::{
    Cf, Library, RateLimit, RocksBackupEngine, RocksDb, RocksIngest, RocksIter, RocksOptions,
    RocksPerf, RocksReadOptions, RocksSstFileWriter, RocksTable, RocksWriteBatch,
    RocksWriteOptions,
};

use crate::engine::{self, Bounds, Cursor, Engine, TableFile};
use crate::flags::{Flags, Place};
use crate::options::EngineOption;

/// What calls are missing in.
const API: &str = "RocksDB's C API";

pub(crate) struct Rocks {
    db: RocksDb,
    options: RocksOptions,
    read: RocksReadOptions<'static>,
    flags: Flags,
}

/// The library that `--engine` names: `librocksdb` or `librocksdb:PATH`.
pub(crate) fn library(flags: &Flags) -> Result<Arc<Library>> {
    match flags.engine.strip_prefix("librocksdb:") {
        Some(path) => Library::open(path),
        None => Library::discover(),
    }
}

/// The table options as OPTIONS files write them. The cache is one of its own, of RocksDB's default
/// kind.
fn table(flags: &Flags, all: &[EngineOption]) -> String {
    let cache = format!(
        "block_cache={{capacity={};num_shard_bits={};high_pri_pool_ratio={};low_pri_pool_ratio={}}}",
        flags.cache_size,
        flags.cache_numshardbits,
        flags.cache_high_pri_pool_ratio,
        flags.cache_low_pri_pool_ratio
    );
    let options = all.iter().filter(|o| o.place == Place::Table);
    let texts = options.map(|o| format!("{}={}", o.name, o.value));
    let texts: Vec<String> = texts.chain([cache]).collect();
    format!("{{{}}}", texts.join(";"))
}

fn only_ironstone(name: &str) -> bool {
    DbOptions::infos()
        .iter()
        .any(|info| info.name == name && info.has(OptionFlag::Ironstone))
}

/// The flags' options of reads.
fn read_options(lib: &Arc<Library>, flags: &Flags) -> RocksReadOptions<'static> {
    lib.read_options()
        .verify_checksums(flags.verify_checksum)
        .tailing(flags.use_tailing_iterator)
        .readahead_size(flags.readahead_size as usize)
        .total_order_seek(flags.total_order_seek)
        .prefix_same_as_start(flags.prefix_same_as_start)
        .auto_prefix_mode(flags.auto_prefix_mode)
        .async_io(flags.async_io)
        .adaptive_readahead(flags.adaptive_readahead)
}

/// The flags' options. One that RocksDB does not have is refused unless it says what holds anyway.
fn options(flags: &Flags) -> Result<RocksOptions> {
    let lib = library(flags)?;
    let mut options = lib.options();
    options.create_if_missing(true);
    let all = crate::options::options(flags)?;
    for option in &all {
        let ours = only_ironstone(option.name);
        if ours && !option.is_default {
            return Err(Error::not_supported(format!(
                "RocksDB has no option {}",
                option.name
            )));
        }
        if option.place != Place::Table && !ours {
            options.set(option.name, &option.value)?;
        }
    }
    options.set("block_based_table_factory", &table(flags, &all))?;
    if flags.rate_limiter_bytes_per_sec > 0 {
        let how = RateLimit {
            bytes_per_second: flags.rate_limiter_bytes_per_sec as i64,
            refill_period_us: flags.rate_limiter_refill_period_us,
            auto_tuned: flags.rate_limiter_auto_tuned,
            reads: flags.rate_limit_bg_reads,
        };
        options.rate_limit(how)?;
    }
    if flags.statistics {
        options.enable_statistics();
    }
    Ok(options)
}

impl Rocks {
    fn of(db: RocksDb, flags: &Flags, options: RocksOptions) -> Self {
        Self {
            read: read_options(db.library(), flags),
            db,
            options,
            flags: flags.clone(),
        }
    }

    /// Limits of backups are refused: not through this API.
    fn no_backup_rates(&self) -> Result<()> {
        if self.flags.backup_rate_limit + self.flags.restore_rate_limit > 0 {
            return Err(Error::not_supported(
                "backup_rate_limit and restore_rate_limit for librocksdb",
            ));
        }
        Ok(())
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
    type Table = RocksSstFileWriter;
    type Perf = RocksPerf;

    fn open(flags: &Flags, dir: &Path) -> Result<Self> {
        let mut options = options(flags)?;
        let names = engine::families(flags);
        options.set("create_missing_column_families", "true")?;
        let families: Vec<_> = names.iter().map(|n| (n.as_str(), &options)).collect();
        let db = RocksDb::open_cf(&options, dir, &families)?;
        Ok(Self::of(db, flags, options))
    }

    fn open_read_only(flags: &Flags, dir: &Path) -> Result<Self> {
        let options = options(flags)?;
        let db = RocksDb::open_read_only(&options, dir)?;
        Ok(Self::of(db, flags, options))
    }

    fn close(self) -> Result<()> {
        self.db.close();
        Ok(())
    }

    fn write_options(&self, sync: bool, disable_wal: bool) -> Self::Write {
        let options = self.db.library().write_options();
        options.sync(sync).disable_wal(disable_wal)
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
        self.db.library().batch()
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
        let cf = self.db.default_cf();
        let found = self.db.get_into(&self.read, cf, key, scratch)?;
        Ok(found.then_some(scratch.len()))
    }

    fn get_value(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.db
            .get_into(&self.read, self.db.default_cf(), key, value)
    }

    fn get_at_once(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        let snapshot = self.db.snapshot();
        let at = read_options(self.db.library(), &self.flags).snapshot(&snapshot);
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
        let mut within = read_options(self.db.library(), &self.flags);
        if let Some(lower) = bounds.lower {
            within = within.lower_bound(lower);
        }
        if let Some(upper) = bounds.upper {
            within = within.upper_bound(upper);
        }
        Ok(self.db.iterator_with(within, cf))
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

    fn compact(&self) -> Result<()> {
        self.db.compact_range(self.db.default_cf(), None, None);
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
        self.no_backup_rates()?;
        RocksBackupEngine::open(&self.options, dir)?.create(&self.db, true)
    }

    fn restore(&self, from: &Path, to: &Path) -> Result<()> {
        self.no_backup_rates()?;
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
        let how = RocksIngest {
            move_files: true,
            ..RocksIngest::default()
        };
        self.db.ingest(self.db.default_cf(), files, how)
    }

    fn statistics(&self) -> Option<String> {
        self.flags
            .statistics
            .then(|| self.options.statistics())
            .flatten()
    }
}

impl Cursor for RocksIter<'_> {
    fn seek_to_first(&mut self) {
        RocksIter::seek_to_first(self);
    }
    fn seek_to_last(&mut self) {
        RocksIter::seek_to_last(self);
    }
    #[inline]
    fn seek(&mut self, key: &[u8]) {
        RocksIter::seek(self, key);
    }
    fn seek_for_prev(&mut self, key: &[u8]) {
        RocksIter::seek_for_prev(self, key);
    }
    #[inline]
    fn next(&mut self) {
        RocksIter::next(self);
    }
    #[inline]
    fn prev(&mut self) {
        RocksIter::prev(self);
    }
    #[inline]
    fn valid(&self) -> bool {
        RocksIter::valid(self)
    }
    #[inline]
    fn key(&self) -> &[u8] {
        RocksIter::key(self)
    }
    #[inline]
    fn value(&self) -> &[u8] {
        RocksIter::value(self)
    }
    fn status(&self) -> Result<()> {
        RocksIter::status(self)
    }
}
