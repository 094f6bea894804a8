//! Kernels over a whole database: the path of a lone writer or reader, in its own thread.

use std::hint::black_box;
use std::path::PathBuf;

use base::Result;
use ironstone::{Db, Options};

use crate::{Kernel, inputs, measured};

pub(crate) const KERNELS: &[Kernel] = &[
    Kernel::new("db_put", 10_000, db_put),
    Kernel::new("db_get", 10_000, db_get),
    Kernel::new("db_multi_get", 9_600, db_multi_get),
];

/// A folder that is removed when this is dropped.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// A database in the current folder. Its log is written by calls: whether a window of a mapped log is ready in time
/// depends on another thread.
struct Database {
    db: Db,
    _folder: Folder, // goes after the database is closed
}

impl Database {
    fn new() -> Result<Self> {
        let dir = PathBuf::from(format!("db-{}", std::process::id()));
        let options = Options::default().with_db(|db| {
            db.create_if_missing = true;
            db.wal_mapped = false;
        });
        let folder = Folder(dir);
        let db = Db::open(&folder.0, &options)?;
        Ok(Self {
            db,
            _folder: folder,
        })
    }

    fn put(&self, order: &[u64], value: &[u8]) -> Result<()> {
        for &i in order {
            self.db.put(inputs::user_key(i), value)?;
        }
        Ok(())
    }
}

/// Unsynced puts.
fn db_put(operations: u64) -> Result<()> {
    let (database, value) = (Database::new()?, inputs::value());
    let order = inputs::shuffled(operations);
    database.put(&order, &value)?; // the thread's own state is there
    measured(&mut || database.put(&order, &value))
}

/// Gets of keys that are in the memtable.
fn db_get(operations: u64) -> Result<()> {
    let (database, value) = (Database::new()?, inputs::value());
    let order = inputs::shuffled(operations);
    database.put(&order, &value)?;
    let mut get = || {
        for &i in &order {
            black_box(database.db.get(inputs::user_key(i))?);
        }
        Ok(())
    };
    get()?;
    measured(&mut get)
}

/// Lookups of 32 keys at once, whose blocks are in the cache.
fn db_multi_get(operations: u64) -> Result<()> {
    const AT_ONCE: usize = 32;
    let (database, value) = (Database::new()?, inputs::value());
    let order = inputs::shuffled(operations);
    database.put(&order, &value)?;
    database.db.flush()?;
    let keys: Vec<_> = order.iter().map(|&i| inputs::user_key(i)).collect();
    let mut get = || {
        for keys in keys.chunks(AT_ONCE) {
            for value in database.db.multi_get(keys) {
                black_box(value?);
            }
        }
        Ok(())
    };
    get()?;
    measured(&mut get)
}
