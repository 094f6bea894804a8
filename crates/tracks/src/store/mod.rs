//! The interface to the store: column families, atomic batches, iterators over one state.
//! [`Engine`] implements it with Ironstone; benchmarks implement it with other engines.
//!
//! Batches are RocksDB's write batches, whose bytes all engines with this format accept.

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
    /// Newest positions of entities, by cell.
    Geohash,
    /// Each entity's newest point.
    Latest,
    /// Entities by ten minutes and cell.
    Visits,
    /// Names of entities, by their numbers.
    Entities,
    /// Fleets, the version of the rows, notes about unfinished work.
    Meta,
    /// Fences.
    Fences,
    /// The fences that entities are inside of.
    Inside,
    /// Events of fences.
    Events,
}

impl Family {
    /// All families, in the order of their creation.
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

    /// The name of the family.
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

/// A callback that is called once: with the number of a write when it and all before it are
/// durable, or with the reason why they may not be.
pub type Told = Box<dyn FnOnce(u64, Result<()>) + Send>;

/// Rows, and atomic writes of several rows. Methods may be called from any number of threads.
pub trait Store: Send + Sync {
    /// The id of a family in batches.
    fn id(&self, family: Family) -> u32;

    /// The current value of a key. Errors: the store's.
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// A view of the current state.
    fn view(&self) -> Box<dyn View + '_>;

    /// Writes a batch: all of it or nothing. Returns its number once reads see it; later writes
    /// have greater numbers. `durable` is called from a thread of the store, or at once, when the
    /// write survives a power cut, or with the reason why it may not; before that, the write may be
    /// lost with the process. Without `durable`, it survives the end of the process at once, and
    /// about a second later a power cut.
    ///
    /// Errors: reads do not see the batch, and `durable` is not called. If the log failed after the
    /// batch was appended, the batch may reappear after a crash.
    fn write(&self, batch: WriteBatch, durable: Option<Told>) -> Result<u64>;

    /// Takes note that somebody asks for a write to be durable: see [`Store::is_syncing`].
    fn note_asked(&self) {}

    /// Whether a write had better be made durable although nobody asks for that.
    fn is_syncing(&self) -> bool {
        false
    }

    /// Whether a write that reads see may be lost with the process.
    fn may_lose(&self) -> bool {
        false
    }

    /// The number of the last write.
    fn last_number(&self) -> u64;

    /// Calls `told` when all writes so far survive a power cut, or with the reason why they may
    /// not; like [`Store::write`].
    fn when_durable(&self, told: Told);

    /// Waits until the write with a number, and all before it, survive a power cut. Errors: they
    /// may not.
    fn wait_durable(&self, number: u64) -> Result<()>;

    /// The reason why the store refuses writes. `None` if it takes them, as far as it knows. It may
    /// only learn that it takes them again from a write whose durability it reports.
    fn refuses_writes(&self) -> Option<Error> {
        None
    }

    /// The reason why writes are slowed down or stopped for now. `None` if they are not, as far as
    /// the store knows.
    fn stall(&self) -> Option<Stall> {
        None
    }

    /// From now on, points from before the horizon of their fleet may be dropped by compactions,
    /// and each table with points is compacted once in `every`, if it is given. Errors: the
    /// store's.
    fn keep(&self, _oldest: BTreeMap<Fleet, Time>, _every: Option<Duration>) -> Result<()> {
        Ok(())
    }

    /// Frees the space of a range whose rows will be deleted, as far as that is cheap. Errors: the
    /// store's.
    fn reclaim(&self, _family: Family, _from: &[u8], _to: &[u8]) -> Result<()> {
        Ok(())
    }

    /// Moves dead rows that readers have met from memory to tables, where compactions can remove
    /// them. It does not wait for that. To be called about once a minute; after an error the next
    /// call tries again. Errors: the store's.
    fn tidy(&self) -> Result<()> {
        Ok(())
    }

    /// Compacts the tables with rows of a range, both ends included, so that deleted rows are gone,
    /// unless a view is older than their deletion. Errors: the store's; `Incomplete` if `canceled`
    /// became true.
    fn compact(
        &self,
        _family: Family,
        (_from, _to): (&[u8], &[u8]),
        _canceled: &Arc<AtomicBool>,
    ) -> Result<()> {
        Ok(())
    }

    /// A number such that no later view is older, and that is at least that of every write that is
    /// visible now.
    fn visible_number(&self) -> u64 {
        self.last_number()
    }

    /// The number of the oldest view: compactions preserve what it sees. `None` if there is no
    /// view, or if views preserve nothing.
    fn oldest_view(&self) -> Option<u64> {
        None
    }
}

/// One state of a store, without later writes.
pub trait View {
    /// The value of a key. Errors: the store's.
    fn get(&self, family: Family, key: &[u8]) -> Result<Option<Vec<u8>>>;

    /// Rows with keys from `from` on and less than `to`. Errors: the store's.
    fn rows(&self, family: Family, from: &[u8], to: Option<&[u8]>) -> Result<Box<dyn Rows + '_>>;

    /// A reader has skipped many dead rows in this range, so that the store may clean up there when
    /// it has time.
    fn has_dead_rows(&self, _family: Family, _from: &[u8], _to: Option<&[u8]>) {}
}

/// Rows in the order of their keys. Before the first [`Rows::seek`] there is no row.
pub trait Rows {
    /// Goes to the first row whose key is not less than `key`.
    fn seek(&mut self, key: &[u8]);
    /// Goes to the next row.
    fn next(&mut self);
    /// The row; `None` after the last one, or if reading failed, which [`Rows::status`] tells.
    fn row(&self) -> Option<(&[u8], &[u8])>;
    /// Errors: why reading ended early.
    fn status(&self) -> Result<()>;
    /// The number of dead rows (tombstones, and rows hidden by them or by newer rows) that were
    /// skipped, if the store counts them.
    fn skipped(&self) -> u64 {
        0
    }
}

impl fmt::Debug for dyn Store + '_ {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

/// A batch under construction.
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
        self.ops.cf_id(self.store.id(family)).put(key, value)
    }

    pub(crate) fn delete(&mut self, family: Family, key: &[u8]) -> Result<()> {
        self.ops.cf_id(self.store.id(family)).delete(key)
    }

    pub(crate) fn delete_range(&mut self, family: Family, from: &[u8], to: &[u8]) -> Result<()> {
        self.ops.cf_id(self.store.id(family)).delete_range(from, to)
    }

    pub(crate) fn write(self, durable: Option<Told>) -> Result<u64> {
        self.store.write(self.ops, durable)
    }
}

/// An error about an invalid row, with its family and key.
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
