//! redb: a copy-on-write B-tree.

use std::hint::black_box;
use std::path::Path;

use redb::{Database, Durability, ReadableDatabase, ReadableTable, TableDefinition};

use crate::engine::{Engine, Get, Result};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("default");

pub(crate) struct Redb(Database);

impl Redb {
    pub(crate) fn open(dir: &Path, cache: usize) -> Result<Self> {
        let mut builder = Database::builder();
        Ok(Self(
            builder.set_cache_size(cache).create(dir.join("db.redb"))?,
        ))
    }
}

impl Engine for Redb {
    fn put(&mut self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        let mut transaction = self.0.begin_write()?;
        transaction.set_durability(if sync {
            Durability::Immediate
        } else {
            Durability::None
        })?;
        transaction.open_table(TABLE)?.insert(key, value)?;
        transaction.commit()?;
        Ok(())
    }

    fn read(&self, run: &mut dyn FnMut(&mut Get<'_>) -> Result<()>) -> Result<()> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        run(&mut |key| {
            let found = table.get(key)?;
            Ok(found.is_some_and(|value| !black_box(value.value()).is_empty()))
        })
    }

    fn scan(&self, most: u64) -> Result<u64> {
        let table = self.0.begin_read()?.open_table(TABLE)?;
        let mut count = 0;
        for entry in table.iter()?.take(most as usize) {
            let (key, value) = entry?;
            black_box((key.value(), value.value()));
            count += 1;
        }
        Ok(count)
    }
}
