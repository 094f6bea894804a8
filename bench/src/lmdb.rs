//! LMDB through heed: a B-tree in a memory map.

use std::hint::black_box;
use std::path::Path;

use heed::types::Bytes;
use heed::{Database, Env, EnvFlags, EnvOpenOptions};

use crate::engine::{Engine, Get, Result};

/// Bytes of addresses that the map takes; the file grows to what is used.
const MAP_SIZE: usize = 64 << 30;

pub(crate) struct Lmdb {
    env: Env,
    db: Database<Bytes, Bytes>,
}

impl Lmdb {
    /// With `sync`, a commit is durable, in LMDB's own order of writes.
    pub(crate) fn open(dir: &Path, sync: bool) -> Result<Self> {
        let mut options = EnvOpenOptions::new();
        options.map_size(MAP_SIZE);
        if !sync {
            // SAFETY: a machine that crashes may lose the database, which only a benchmark uses.
            unsafe { options.flags(EnvFlags::NO_SYNC) };
        }
        // SAFETY: the directory is this process's own, and is opened once.
        let env = unsafe { options.open(dir)? };
        let mut transaction = env.write_txn()?;
        let db = env.create_database(&mut transaction, None)?;
        transaction.commit()?;
        Ok(Self { env, db })
    }
}

impl Engine for Lmdb {
    /// As durable as the database was opened.
    fn put(&mut self, key: &[u8], value: &[u8], _sync: bool) -> Result<()> {
        let mut transaction = self.env.write_txn()?;
        self.db.put(&mut transaction, key, value)?;
        transaction.commit()?;
        Ok(())
    }

    fn read(&self, run: &mut dyn FnMut(&mut Get<'_>) -> Result<()>) -> Result<()> {
        let transaction = self.env.read_txn()?;
        run(&mut |key| Ok(black_box(self.db.get(&transaction, key)?).is_some()))
    }

    fn scan(&self, most: u64) -> Result<u64> {
        let transaction = self.env.read_txn()?;
        let mut count = 0;
        for entry in self.db.iter(&transaction)?.take(most as usize) {
            black_box(entry?);
            count += 1;
        }
        Ok(count)
    }
}
