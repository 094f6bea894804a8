//! The state that the threads of one open database share. Its locks are taken in the order of [`crate::locks`].
//!
//! Each part owns its state and its locks. A function takes the part that it needs, and all of them only if it needs
//! three or more. Reads take none of the parts' locks: they load a family's View and the last sequence number.

pub(crate) mod change;
pub(crate) mod courier;
pub(crate) mod deletions;
pub(crate) mod exclusive;
mod failure;
pub(crate) mod gate;
pub(crate) mod left;
pub(crate) mod live_options;
pub(crate) mod obsolete;
pub(crate) mod persist;
pub(crate) mod snapshot;

use std::path::PathBuf;
use std::sync::Arc;

use base::sync::atomic::Ordering;
use base::{Error, Result};

use crate::background::Background;
use crate::catalog::Catalog;
use crate::catalog::family::Family;
use crate::commit::Writes;
use crate::info::Info;
use crate::info::log::InfoLog;
use crate::shared::deletions::Deletions;
use crate::shared::left::Left;
use crate::shared::live_options::LiveOptions;
use crate::shared::snapshot::SnapshotList;
use crate::wal::{Wal, read_only};
use io::ReadQueues;
use options::{Env, Options};

/// An open database.
pub(crate) struct Shared {
    /// See [`Family::instance`].
    pub(crate) instance: u64,
    pub(crate) dir: PathBuf,
    /// The options as they were when the database was opened. Options in `db` that can change later must be
    /// read from [`Shared::live_options`].
    pub(crate) options: Options,
    pub(crate) read_only: bool,

    pub(crate) live_options: LiveOptions,
    pub(crate) info: Info,
    pub(crate) snapshots: Arc<SnapshotList>,
    pub(crate) left: Left<Shared>,
    pub(crate) catalog: Catalog,
    pub(crate) writes: Writes,
    pub(crate) background: Background,
    pub(crate) wal: Wal,
    pub(crate) deletions: Deletions,
    pub(crate) read_queues: Arc<ReadQueues>,
}

/// The work of a background job, which runs without the state lock.
pub(crate) type Work = Box<dyn FnOnce(&Arc<Shared>) -> Result<()>>;

/// A number that no other database opened by this process has.
pub(crate) fn new_instance() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
    NEXT.fetch_add(1, Ordering::Relaxed)
}

/// The parts that `open` creates before the database exists.
pub(crate) struct Parts {
    pub(crate) instance: u64,
    pub(crate) dir: PathBuf,
    pub(crate) options: Options,
    pub(crate) info_log: InfoLog,
    pub(crate) read_only: bool,
    pub(crate) catalog: Catalog,
    pub(crate) writes: Writes,
    pub(crate) wal: Wal,
    pub(crate) read_queues: Arc<ReadQueues>,
}

impl Shared {
    pub(crate) fn new(parts: Parts) -> Self {
        let env = &parts.options.env;
        for family in parts.catalog.families.load().iter() {
            family.listen(&env.listeners);
        }
        let info = Info::new(parts.info_log, env);
        let background = Background::new(parts.instance, &env.clock);
        let live_options = LiveOptions::new(&parts.options.db, &env.clock);
        Self {
            instance: parts.instance,
            dir: parts.dir,
            options: parts.options,
            read_only: parts.read_only,
            live_options,
            info,
            snapshots: Arc::default(),
            left: Left::default(),
            catalog: parts.catalog,
            writes: parts.writes,
            background,
            wal: parts.wal,
            deletions: Deletions::default(),
            read_queues: parts.read_queues,
        }
    }

    pub(crate) fn env(&self) -> &Env {
        &self.options.env
    }

    /// Errors: the handle is of a family of another open database.
    #[inline]
    pub(crate) fn check_handle(&self, family: &Family) -> Result<()> {
        if family.instance == self.instance {
            Ok(())
        } else {
            Err(foreign_handle(&family.name))
        }
    }

    /// Takes note that all logged writes up to this sequence number survive a power cut.
    #[inline]
    pub(crate) fn is_durable_through(&self, sequence: u64) {
        base::invariant!(
            sequence <= self.writes.order.allocated(),
            "durable through {sequence}, which nobody has written"
        );
        self.wal.durable.raise(sequence);
    }

    /// Refuses new writes and makes the jobs end.
    pub(crate) fn begin_close(&self) {
        self.background.close();
        self.writes.attention.raise();
        self.background.notify();
        self.wal.demand.wake();
        self.info.outbox.wake();
    }

    /// Errors: the sticky failure; the database is read-only; the database is being closed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        if self.read_only {
            return Err(read_only());
        }
        self.background.state().check_writable()
    }
}

#[cold]
fn foreign_handle(name: &str) -> Error {
    Error::invalid_argument(format!(
        "the handle of column family {name:?} is of another database"
    ))
}
