//! fjall: a log-structured tree.

use std::hint::black_box;
use std::path::Path;

use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use crate::engine::{Engine, Get, Result};

pub(crate) struct Fjall {
    db: Database,
    keys: Keyspace,
}

impl Fjall {
    pub(crate) fn open(dir: &Path, cache: usize) -> Result<Self> {
        let db = Database::builder(dir).cache_size(cache as u64).open()?;
        let keys = db.keyspace("default", KeyspaceCreateOptions::default)?;
        Ok(Self { db, keys })
    }
}

impl Engine for Fjall {
    fn put(&mut self, key: &[u8], value: &[u8], sync: bool) -> Result<()> {
        self.keys.insert(key, value)?;
        if sync {
            self.db.persist(PersistMode::SyncData)?;
        }
        Ok(())
    }

    fn read(&self, run: &mut dyn FnMut(&mut Get<'_>) -> Result<()>) -> Result<()> {
        run(&mut |key| Ok(black_box(self.keys.get(key)?).is_some()))
    }

    fn scan(&self, most: u64) -> Result<u64> {
        let mut count = 0;
        for entry in self.keys.iter().take(most as usize) {
            black_box(entry.into_inner()?);
            count += 1;
        }
        Ok(count)
    }
}
