//! RocksDB as an engine, through its C API.

use std::path::Path;
use std::sync::Arc;

use base::options::{OptionFlag, OptionTable};
use base::{Error, ErrorKind, Result};
use ironstone::DbOptions;
use tools::librocksdb::{
    Cf, Library, RocksDb, RocksIter, RocksOptions, RocksReadOptions, RocksWriteBatch,
    RocksWriteOptions,
};

use crate::engine::{self, Cursor, Engine};
use crate::flags::{Flags, Place};

pub(crate) struct Rocks {
    db: RocksDb,
    options: RocksOptions,
    read: RocksReadOptions<'static>,
    statistics: bool,
}

/// The library that `--engine` names: `librocksdb` or `librocksdb:PATH`.
pub(crate) fn library(flags: &Flags) -> Result<Arc<Library>> {
    match flags.engine.strip_prefix("librocksdb:") {
        Some(path) => Library::open(path),
        None => Library::discover(),
    }
}

fn only_ironstone(name: &str) -> bool {
    DbOptions::infos()
        .iter()
        .any(|info| info.name == name && info.has(OptionFlag::Ironstone))
}

impl Rocks {
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

    fn open(flags: &Flags, dir: &Path) -> Result<Self> {
        let lib = library(flags)?;
        let mut options = lib.options();
        options.create_if_missing(true);
        let mut table = lib.table_options();
        table.block_cache(&lib.lru_cache(flags.cache_size as usize));
        if flags.bloom_bits > 0 {
            table.bloom_filter(f64::from(flags.bloom_bits));
        }
        table
            .block_size(flags.block_size as usize)
            .block_restart_interval(flags.block_restart_interval)
            .format_version(flags.format_version)
            .cache_index_and_filter_blocks(flags.cache_index_and_filter_blocks);
        options.table(&table);
        for option in engine::options(flags) {
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
        if flags.statistics {
            options.enable_statistics();
        }
        let read = lib.read_options().verify_checksums(flags.verify_checksum);
        let names = engine::families(flags);
        options.set("create_missing_column_families", "true")?;
        let families: Vec<_> = names.iter().map(|n| (n.as_str(), &options)).collect();
        Ok(Self {
            db: RocksDb::open_cf(&options, dir, &families)?,
            options,
            read,
            statistics: flags.statistics,
        })
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

    fn cursor(&self) -> Result<Self::Cursor<'_>> {
        Ok(self.db.iterator_opt(&self.read, self.db.default_cf()))
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

    fn statistics(&self) -> Option<String> {
        self.statistics.then(|| self.options.statistics()).flatten()
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
