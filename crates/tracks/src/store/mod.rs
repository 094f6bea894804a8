//! What keeps the rows: column families, atomic batches, iterators at one state. [`Engine`] is Ironstone's; benchmarks have others.
//!
//! Batches are RocksDB's write batches, whose bytes all engines of this format take.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::sync::atomic::AtomicBool;
use base::{Error, Result};
use ironstone::WriteBatch;

use crate::model::key::Fleet;
use crate::model::time::Time;

mod engine;
#[cfg(test)]
pub(crate) mod faulty;
mod filter;
mod stalls;
mod suggested;

pub use engine::{Engine, SCRATCH};
pub use stalls::Stall;

/// A column family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// All points: history.
    Default,
    /// Where entities are now, by cell.
    Geohash,
    /// Each entity's newest point.
    Latest,
    /// Which entities were in which cell in which ten minutes.
    Visits,
    /// Names of entities by their numbers.
    Entities,
    /// Fleets, and the version of all this.
    Meta,
    /// Fences.
    Fences,
    /// What entities are inside of.
    Inside,
    /// What happened at fences.
    Events,
}

impl Family {
    /// All, as they are created.
    pub const ALL: [Self; 9] = [
        Self::Default,
        Self::Geohash,
        Self::Latest,
        Self::Visits,
        Self::Entities,
        Self::Meta,
        Self::Fences,
        Self::Inside,
        Self::Events,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Default => "default",
            Self::Geohash => "geohash",
            Self::Latest => "latest",
            Self::Visits => "visits",
            Self::Entities => "entities",
            Self::Meta => "meta",
            Self::Fences => "fences",
            Self::Inside => "inside",
            Self::Events => "events",
        }
    }
}

/// What is called once: with the number of a write, when it and all before it are durable, or with why they may not be.
pub type Told = Box<dyn FnOnce(u64, Result<()>) + Send>;

/// Rows, and writes of several at once. Methods may be called from any number of threads.
pub trait Store: Send + Sync {
    /// The id of a family in batches.
    fn id(&self, family: Family) -> u32;

    /// The value of a key now. Errors: the store's.
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// The state as it is now.
    fn view(&self) -> Box<dyn View + '_>;

    /// Writes a batch: all of it or nothing. Returns its number once reads see it; of two writes, the later one's is greater.
    /// `durable` is called from a thread of the store, or at once, when it survives a power cut, or with why it may not; without
    /// it the write may be lost where the process or the power fails before the store next writes to the device.
    ///
    /// Errors: reads do not see it, and `durable` is not called. Where the log failed behind it, it may come back after a crash.
    fn write(&self, batch: WriteBatch, durable: Option<Told>) -> Result<u64>;

    /// The number of the last write.
    fn last_number(&self) -> u64;

    /// Calls `told` when all writes so far survive a power cut, or with why they may not; as [`Store::write`] does.
    fn when_durable(&self, told: Told);

    /// Waits until the write of a number, and all before it, survive a power cut. Errors: they may not.
    fn wait_durable(&self, number: u64) -> Result<()>;

    /// Why it takes no writes. `None`: it takes them, as far as it knows. It may learn that it does again from a write that is
    /// told of alone.
    fn refuses_writes(&self) -> Option<Error> {
        None
    }

    /// Why it takes writes slowly, or not at all for now. `None`: it takes them as they come, as far as it knows.
    fn stall(&self) -> Option<Stall> {
        None
    }

    /// From now on points of fleets from before these moments may be dropped when tables are merged, and each table with points
    /// is merged once in `every`, if that is said. Errors: the store's.
    fn keep(&self, _oldest: BTreeMap<Fleet, Time>, _every: Option<Duration>) -> Result<()> {
        Ok(())
    }

    /// Gives back the space of a range of rows that will be deleted, as far as that is easy. Errors: the store's.
    fn reclaim(&self, _family: Family, _from: &[u8], _to: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Moves dead rows that readers have met to tables, where they can be merged away: those of what was written last are in
    /// memory. It does not wait for that. Called about once a minute; errors: the store's, and it is done with the next call.
    fn tidy(&self) -> Result<()> {
        Ok(())
    }

    /// Merges the tables that have rows of a range, both ends included, so that what is deleted there is gone, as far as no view is
    /// older than its deletion. Errors: the store's; `Incomplete`, where `canceled` became true.
    fn compact(
        &self,
        _family: Family,
        (_from, _to): (&[u8], &[u8]),
        _canceled: &Arc<AtomicBool>,
    ) -> Result<()> {
        Ok(())
    }

    /// A number that no later view is older than, and that is not below that of any write that is visible now.
    fn visible_number(&self) -> u64 {
        self.last_number()
    }

    /// The number of the oldest view that is there: it has what was there then, also where tables are merged. `None`: there is no
    /// view, or no view keeps anything.
    fn oldest_view(&self) -> Option<u64> {
        None
    }
}

/// One state of a store: what is written later is not in it.
pub trait View {
    /// The value of a key. Errors: the store's.
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Rows with keys from `from` on, and below `to`. Errors: the store's.
    fn rows(&self, family: Family, from: &[u8], to: Option<&[u8]>) -> Result<Box<dyn Rows + '_>>;

    /// A reader has passed over many dead rows in this range, so the store may clean up there, when it has time.
    fn has_dead_rows(&self, _family: Family, _from: &[u8], _to: Option<&[u8]>) {}
}

/// Rows in the order of their keys. Before the first [`Rows::seek`] there is none.
pub trait Rows {
    /// Goes to the first row whose key is not below `key`.
    fn seek(&mut self, key: &[u8]);
    /// Goes to the next row.
    fn next(&mut self);
    /// The row; `None` behind the last, or where reading failed, which [`Rows::status`] says.
    fn row(&self) -> Option<(&[u8], &[u8])>;
    /// Errors: what made reading end early.
    fn status(&self) -> Result<()>;
    /// How many dead rows (deletions, and what they or newer rows hide) were passed over, as far as the store counts them.
    fn skipped(&self) -> u64 {
        0
    }
}

impl fmt::Debug for dyn Store + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

/// Collects what belongs together.
#[derive(Debug)]
pub(crate) struct Batch<'a> {
    store: &'a dyn Store,
    pub(crate) ops: WriteBatch,
}

impl<'a> Batch<'a> {
    pub(crate) fn new(store: &'a dyn Store) -> Self {
        Self {
            store,
            ops: WriteBatch::new(),
        }
    }

    pub(crate) fn put(&mut self, family: Family, key: &[u8], value: &[u8]) -> Result<()> {
        self.ops.put_cf_id(self.store.id(family), key, value)
    }

    pub(crate) fn delete(&mut self, family: Family, key: &[u8]) -> Result<()> {
        self.ops.delete_cf_id(self.store.id(family), key)
    }

    pub(crate) fn delete_range(&mut self, family: Family, from: &[u8], to: &[u8]) -> Result<()> {
        self.ops.delete_range_cf_id(self.store.id(family), from, to)
    }

    pub(crate) fn write(self, durable: Option<Told>) -> Result<u64> {
        self.store.write(self.ops, durable)
    }
}

/// An error of a row that cannot be, with its family.
pub(crate) fn damaged(family: Family, key: &[u8], e: &Error) -> Error {
    let (family, key) = (family.name(), Hex(key));
    Error::corruption(format!("{family}, key {key}: {e}"))
        .hint("`ironstone-tracks check` finds all such rows")
}

/// Bytes, shown as hexadecimal digits.
pub(crate) struct Hex<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}
