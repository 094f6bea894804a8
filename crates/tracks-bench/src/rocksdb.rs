//! The store on RocksDB.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};

use base::threads::{SystemThreads, Threads};
use base::{Error, Result};
use ironstone::WriteBatch;
use tools::librocksdb::{
    Cf, Library, RocksDb, RocksIter, RocksOptions, RocksSnapshot, RocksWriteBatch,
    RocksWriteOptions,
};
use tracks::store::{Family, Rows, Store, Told, View};

/// How writes become durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Sync {
    /// Each write that somebody waits for is synced by itself.
    Each,
    /// One thread syncs the log again and again, and tells those whose writes were there before.
    Flusher,
}

/// An open RocksDB database.
pub(crate) struct Rocks {
    inner: Arc<Inner>,
    waiting: Option<Sender<Told>>,
}

struct Inner {
    db: RocksDb,
    plain: RocksWriteOptions,
    synced: RocksWriteOptions,
}

impl Rocks {
    pub(crate) fn open(lib: &Arc<Library>, dir: &str, text: &str, sync: Sync) -> Result<Self> {
        let mut options: RocksOptions = lib.options();
        options.create_if_missing(true);
        options.set("create_missing_column_families", "true")?;
        options.set_all(text)?;
        let families: Vec<_> = Family::ALL.iter().map(|f| (f.name(), &options)).collect();
        let inner = Arc::new(Inner {
            db: RocksDb::open_cf(&options, dir, &families)?,
            plain: lib.write_options(),
            synced: lib.write_options().sync(true),
        });
        let waiting = match sync {
            Sync::Each => None,
            Sync::Flusher => Some(flusher(&inner)?),
        };
        Ok(Self { inner, waiting })
    }

    pub(crate) fn db(&self) -> &RocksDb {
        &self.inner.db
    }

    fn family(&self, family: Family) -> Result<Cf<'_>> {
        self.inner.db.cf(family.name())
    }
}

fn flusher(inner: &Arc<Inner>) -> Result<Sender<Told>> {
    let (sender, waiting) = channel::<Told>();
    let inner = Arc::clone(inner);
    let run = move || {
        while let Ok(first) = waiting.recv() {
            let all: Vec<Told> = std::iter::once(first).chain(waiting.try_iter()).collect();
            let result = inner.db.flush_wal(true);
            for told in all {
                told(0, result.clone());
            }
        }
    };
    SystemThreads
        .start("flusher", Box::new(run))
        .map_err(|e| Error::io("cannot start a thread", "", e))?;
    Ok(sender)
}

impl Store for Rocks {
    fn id(&self, family: Family) -> u32 {
        // In the order of creation, which is how RocksDB numbers families.
        family as u32
    }

    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.inner.db.get_cf(self.family(family)?, key)
    }

    fn view(&self) -> Box<dyn View + '_> {
        Box::new(At {
            rocks: self,
            snapshot: self.inner.db.snapshot(),
        })
    }

    fn write(&self, batch: WriteBatch, durable: Option<Told>) -> Result<u64> {
        let db = &self.inner.db;
        let batch = RocksWriteBatch::from_data(db.library(), batch.data());
        let is_synced = durable.is_some() && self.waiting.is_none();
        let options = if is_synced {
            &self.inner.synced
        } else {
            &self.inner.plain
        };
        db.write_opt(options, &batch)?;
        match (durable, &self.waiting) {
            (Some(told), Some(waiting)) => drop(waiting.send(told)),
            (Some(told), None) => told(db.latest_sequence_number(), Ok(())),
            (None, _) => {}
        }
        Ok(db.latest_sequence_number())
    }

    fn last_number(&self) -> u64 {
        self.inner.db.latest_sequence_number()
    }

    fn when_durable(&self, told: Told) {
        let number = self.inner.db.latest_sequence_number();
        told(number, self.inner.db.flush_wal(true));
    }

    fn wait_durable(&self, _number: u64) -> Result<()> {
        self.inner.db.flush_wal(true)
    }
}

struct At<'a> {
    rocks: &'a Rocks,
    snapshot: RocksSnapshot<'a>,
}

impl View for At<'_> {
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let db = &self.rocks.inner.db;
        let options = db.library().read_options().snapshot(&self.snapshot);
        db.get_opt(&options, self.rocks.family(family)?, key)
    }

    fn rows(&self, family: Family, from: &[u8], to: Option<&[u8]>) -> Result<Box<dyn Rows + '_>> {
        let db = &self.rocks.inner.db;
        let mut options = db.library().read_options().snapshot(&self.snapshot);
        options = options.lower_bound(from);
        if let Some(to) = to {
            options = options.upper_bound(to);
        }
        let rows = db.iterator_with(options, self.rocks.family(family)?);
        Ok(Box::new(Iter(rows)))
    }
}

struct Iter<'a>(RocksIter<'a>);

impl Rows for Iter<'_> {
    fn seek(&mut self, key: &[u8]) {
        self.0.seek(key);
    }

    fn next(&mut self) {
        self.0.next();
    }

    fn row(&self) -> Option<(&[u8], &[u8])> {
        self.0.valid().then(|| (self.0.key(), self.0.value()))
    }

    fn status(&self) -> Result<()> {
        self.0.status()
    }
}
