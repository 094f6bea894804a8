//! Ironstone as an engine, called directly.

use std::path::Path;
use std::sync::Arc;

use base::options::OptionTable;
use base::stats::Statistics;
use base::{Error, Result};
use ironstone::{
    BlockCache, ColumnFamily, ColumnFamilyDescriptor, Db, DbIterator, Options, ReadOptions,
    WriteBatch, WriteOptions,
};

use crate::engine::{self, Cursor, Engine};
use crate::flags::{Flags, Place};

pub(crate) struct Native {
    db: Db,
    family: ColumnFamily,
    families: Vec<ColumnFamily>,
    read: ReadOptions,
    statistics: Option<Arc<Statistics>>,
}

/// The flags' options. A flag whose option Ironstone does not have is refused unless it says what
/// holds anyway, its default.
fn options(flags: &Flags) -> Result<Options> {
    let mut options = Options::default();
    options.db.create_if_missing = true;
    for option in engine::options(flags) {
        let (name, value) = (option.name, option.value.as_str());
        let set = match option.place {
            Place::Db if known(&options.db, name) => options.db.set(name, value),
            Place::Cf if known(&options.cf.cf, name) => options.cf.cf.set(name, value),
            Place::Table if known(&options.cf.table, name) => options.cf.table.set(name, value),
            _ if option.is_default => Ok(()),
            _ => Err(Error::not_supported(format!("option {name} = {value}"))),
        };
        set?;
    }
    if flags.bloom_bits > 0 {
        let policy = format!("bloomfilter:{}:false", flags.bloom_bits);
        options.cf.table.set("filter_policy", &policy)?;
    }
    options.env.block_cache = Some(Arc::new(BlockCache::new(flags.cache_size as usize)));
    options.env.statistics = flags.statistics.then(|| Arc::new(Statistics::new()));
    Ok(options)
}

fn known(table: &impl OptionTable, name: &str) -> bool {
    table.get(name).is_some()
}

impl Native {
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

    fn open(flags: &Flags, dir: &Path) -> Result<Self> {
        let mut options = options(flags)?;
        options.db.create_missing_column_families = true;
        let wanted: Vec<_> = engine::families(flags)
            .into_iter()
            .map(|name| ColumnFamilyDescriptor::new(name, options.cf.clone()))
            .collect();
        let db = Db::open_cf(dir, &options, &wanted)?;
        let families = wanted
            .iter()
            .filter_map(|w| db.column_family(&w.name))
            .collect();
        Ok(Self {
            families,
            family: db.default_column_family(),
            db,
            read: ReadOptions {
                verify_checksums: flags.verify_checksum,
                ..ReadOptions::default()
            },
            statistics: options.env.statistics,
        })
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
        self.db.put_opt(options, &self.family, key, value)
    }

    #[inline]
    fn delete(&self, options: &Self::Write, key: &[u8]) -> Result<()> {
        self.db.delete_opt(options, &self.family, key)
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
        batch.put_cf(self.numbered(family)?, key, value)
    }

    fn batch_delete_in(&self, batch: &mut Self::Batch, family: usize, key: &[u8]) -> Result<()> {
        batch.delete_cf(self.numbered(family)?, key)
    }

    #[inline]
    fn write(&self, options: &Self::Write, batch: &mut Self::Batch) -> Result<()> {
        self.db.write_opt(options, std::mem::take(batch))
    }

    #[inline]
    fn get(&self, key: &[u8], _scratch: &mut Vec<u8>) -> Result<Option<usize>> {
        let value = self.db.get_opt(&self.read, &self.family, key)?;
        Ok(value.map(|value| value.len()))
    }

    fn cursor(&self) -> Result<Self::Cursor<'_>> {
        self.db.iterator_cf(&self.read, &self.family)
    }

    fn flush(&self) -> Result<()> {
        self.db.flush()
    }

    fn sync_wal(&self) -> Result<()> {
        self.db.flush_wal(true)
    }

    fn compact(&self) -> Result<()> {
        self.db.compact_range(&self.family, None, None)
    }

    fn property(&self, name: &str) -> Option<String> {
        self.db.property(name)
    }

    fn property_of(&self, family: usize, name: &str) -> Option<String> {
        self.db.property_cf(self.families.get(family)?, name)
    }

    fn statistics(&self) -> Option<String> {
        self.statistics.as_ref().map(ToString::to_string)
    }

    fn wait_for_compaction(&self) -> Result<()> {
        self.db.wait_for_compact()
    }
}

impl Cursor for DbIterator {
    fn seek_to_first(&mut self) {
        DbIterator::seek_to_first(self);
    }
    fn seek_to_last(&mut self) {
        DbIterator::seek_to_last(self);
    }
    #[inline]
    fn seek(&mut self, key: &[u8]) {
        DbIterator::seek(self, key);
    }
    #[inline]
    fn next(&mut self) {
        DbIterator::next(self);
    }
    #[inline]
    fn prev(&mut self) {
        DbIterator::prev(self);
    }
    #[inline]
    fn valid(&self) -> bool {
        DbIterator::valid(self)
    }
    #[inline]
    fn key(&self) -> &[u8] {
        DbIterator::key(self)
    }
    #[inline]
    fn value(&self) -> &[u8] {
        DbIterator::value(self)
    }
    fn status(&self) -> Result<()> {
        DbIterator::status(self)
    }
}
