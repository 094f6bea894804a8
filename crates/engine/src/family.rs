//! A column family while the database is open, and the set of them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use base::{Comparator, Error, FileNumber, Result};

use crate::memtable::Memtable;
use crate::options::ColumnFamilyOptions;
use crate::read::view::View;
use crate::version::Version;

/// One column family.
pub(crate) struct Family {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) options: ColumnFamilyOptions,
    /// What reads look at. Replaced, under the database's state lock, when a memtable is rotated,
    /// flushed, or the Version changes.
    pub(crate) view: ArcSwap<View>,
    /// Logs with a smaller number hold nothing of this family that is not in a table.
    log_number: AtomicU64,
    next_epoch: AtomicU64,
    next_memtable_id: AtomicU64,
    /// The active memtable is full: the next write group rotates it.
    pub(crate) flush_wanted: AtomicBool,
    /// Somebody waits for a flush: it does not wait for `min_write_buffer_number_to_merge`.
    pub(crate) flush_requested: AtomicBool,
    dropped: AtomicBool,
    /// A compaction filter panicked: none is called any more.
    pub(crate) filter_failed: Arc<AtomicBool>,
    /// The database that the family is open in, for handles that stray into another one.
    pub(crate) instance: u64,
}

impl Family {
    pub(crate) fn new(
        id: u32,
        name: String,
        options: ColumnFamilyOptions,
        version: Arc<Version>,
        log_number: FileNumber,
        instance: u64,
    ) -> Self {
        let last_epoch = version
            .files()
            .filter_map(|(_, f)| f.meta.epoch_number)
            .max();
        Self {
            id,
            name,
            view: ArcSwap::from_pointee(View {
                mem: Arc::new(Memtable::new(
                    0,
                    options.comparator.clone(),
                    arena_block_size(&options),
                    log_number,
                )),
                imm: Vec::new(),
                version,
            }),
            options,
            log_number: AtomicU64::new(log_number.0),
            next_epoch: AtomicU64::new(last_epoch.unwrap_or(0) + 1),
            next_memtable_id: AtomicU64::new(1),
            flush_wanted: AtomicBool::new(false),
            flush_requested: AtomicBool::new(false),
            dropped: AtomicBool::new(false),
            filter_failed: Arc::default(),
            instance,
        }
    }

    pub(crate) fn comparator(&self) -> &Comparator {
        &self.options.comparator
    }

    pub(crate) fn log_number(&self) -> FileNumber {
        FileNumber(self.log_number.load(Ordering::Acquire))
    }

    pub(crate) fn set_log_number(&self, n: FileNumber) {
        self.log_number.store(n.0, Ordering::Release);
    }

    /// The epoch of the next file that is made here; level 0 is ordered by it.
    pub(crate) fn take_epoch(&self) -> u64 {
        self.next_epoch.fetch_add(1, Ordering::Relaxed)
    }

    /// An empty memtable whose first writes go to the log `log_number`.
    pub(crate) fn new_memtable(&self, log_number: FileNumber) -> Arc<Memtable> {
        Arc::new(Memtable::new(
            self.next_memtable_id.fetch_add(1, Ordering::Relaxed),
            self.comparator().clone(),
            self.arena_block_size(),
            log_number,
        ))
    }

    pub(crate) fn arena_block_size(&self) -> usize {
        arena_block_size(&self.options)
    }

    /// Whether enough memtables wait for a flush, or somebody waits for it.
    pub(crate) fn flush_due(&self) -> bool {
        let waiting = self.view.load().imm.len();
        let enough = self.options.cf.min_write_buffer_number_to_merge.max(1) as usize;
        waiting >= enough || (waiting > 0 && self.flush_requested.load(Ordering::Relaxed))
    }

    pub(crate) fn mark_dropped(&self) {
        self.dropped.store(true, Ordering::Release);
    }

    pub(crate) fn is_dropped(&self) -> bool {
        self.dropped.load(Ordering::Acquire)
    }
}

/// `arena_block_size`, but at most an eighth of the write buffer, so that small buffers work.
fn arena_block_size(options: &ColumnFamilyOptions) -> usize {
    let set = options.cf.arena_block_size;
    let fits = options.cf.write_buffer_size / 8;
    set.min(fits).max(4096) as usize
}

/// The column families of a database: replaced as a whole when one is created or dropped.
#[derive(Clone, Default)]
pub(crate) struct FamilySet {
    by_id: BTreeMap<u32, Arc<Family>>,
}

impl FamilySet {
    pub(crate) fn insert(&mut self, family: Arc<Family>) {
        self.by_id.insert(family.id, family);
    }

    pub(crate) fn remove(&mut self, id: u32) {
        self.by_id.remove(&id);
    }

    #[inline]
    pub(crate) fn get(&self, id: u32) -> Option<&Arc<Family>> {
        self.by_id.get(&id)
    }

    /// The family with this id, or the error that a caller of the API gets.
    pub(crate) fn require(&self, id: u32) -> Result<&Arc<Family>> {
        self.get(id).ok_or_else(|| {
            Error::invalid_argument(format!(
                "Invalid column family: id {id} was dropped or never created"
            ))
        })
    }

    pub(crate) fn by_name(&self, name: &str) -> Option<&Arc<Family>> {
        self.iter().find(|f| f.name == name)
    }

    /// In order of id.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Family>> {
        self.by_id.values()
    }
}
