//! The database handle. Each method is a few lines; the modules it calls do the work.

pub(crate) mod cache_dump;
pub(crate) mod cf;
pub(crate) mod closing;
mod column_family;
mod entities;
pub(crate) mod families;
mod key_versions;
mod logs;
pub(crate) mod maintenance;
mod merges;
mod reads;
mod set_options;
pub(crate) mod sizes;
pub(crate) mod ttl;
mod writes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, Result};
use io::FileLock;

use crate::catalog::family::Family;
use crate::outbox;
use crate::shared::{Shared, persist};
use crate::{locks, properties};
pub use column_family::{BatchCf, ColumnFamily};
use options::{
    ColumnFamilyDescriptor, ColumnFamilyOptions, CompactRangeOptions, CompactionOptions,
};

use cf::Cf;
use closing::Running;

/// An open database. Methods may be called from any number of threads at once; dropping it
/// closes it.
///
/// See the [crate's documentation](crate) for an example.
pub struct Db {
    pub(crate) shared: Arc<Shared>,
    default: Arc<Family>,
    running: Mutex<Running>,
}

impl std::fmt::Debug for Db {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Db({})", self.shared.dir.display())
    }
}

/// Closing.
impl Db {
    /// Hands buffered log records to the operating system, stops the background jobs, and releases the lock. Writes
    /// that are in no log are flushed to tables first, unless `avoid_flush_during_shutdown` is set. Same as dropping
    /// the database, but reports errors.
    ///
    /// Errors: also `Busy` if a listener calls this on a flush or compaction thread, or a task on the thread that has woken
    /// it. Another thread then closes the database after that thread has finished its job.
    pub fn close(mut self) -> Result<()> {
        // On error this drops the database.
        self.shared.background.check_may_wait("close")?;
        if self.shared.read_queues.is_this_thread() {
            let what = "close: it would wait for this thread, which reads for futures";
            return Err(Error::busy(what).hint("an executor may leave it to a thread of its own"));
        }
        let running = self.running.get_mut();
        // No lock is held: a listener that is called during the close may use other databases.
        let running = running.unwrap_or_else(PoisonError::into_inner);
        running.close(&self.shared)
    }

    pub(crate) fn started(shared: Arc<Shared>, lock: Option<Box<dyn FileLock>>) -> Result<Self> {
        let default = Arc::clone(shared.catalog.families.load().require(0)?);
        // If a thread cannot be started, `db` is dropped and closes like any database: the threads that already run
        // are stopped and joined before the lock is released.
        let db = Self {
            shared,
            default,
            running: ranked(locks::THREADS, Running::new(lock)),
        };
        if !db.shared.read_only {
            let started = db.lock_running().jobs.start(&db.shared);
            started.inspect_err(|e| db.shared.info.log.error(format_args!("open failed: {e}")))?;
        }
        Ok(db)
    }

    pub(crate) fn lock_running(&self) -> MutexGuard<'_, Running> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Db {
    fn drop(&mut self) {
        if self.shared.background.is_closing() {
            return; // close() was called
        }
        let running = self.running.get_mut();
        let running = running.unwrap_or_else(PoisonError::into_inner);
        let shared = &self.shared;
        if outbox::belongs_to(shared.instance) || shared.read_queues.is_this_thread() {
            std::mem::take(running).close_elsewhere(&self.shared);
        } else {
            closing::report(&self.shared.info.log, running.close(&self.shared));
        }
    }
}

/// Column families.
impl Db {
    /// The open column family with this name.
    pub fn column_family(&self, name: &str) -> Option<ColumnFamily> {
        self.shared
            .catalog
            .families
            .load()
            .by_name(name)
            .cloned()
            .map(ColumnFamily::new)
    }

    /// The column family that every database has.
    pub fn default_column_family(&self) -> ColumnFamily {
        ColumnFamily::new(Arc::clone(&self.default))
    }

    /// Every open column family, by id.
    pub fn column_families(&self) -> Vec<ColumnFamily> {
        self.shared
            .catalog
            .families
            .load()
            .iter()
            .cloned()
            .map(ColumnFamily::new)
            .collect()
    }

    /// Creates a column family. Errors: `InvalidArgument` if the name is taken; an option is invalid or not supported;
    /// the MANIFEST cannot be written.
    pub fn create_column_family(
        &self,
        name: &str,
        options: &ColumnFamilyOptions,
    ) -> Result<ColumnFamily> {
        let mut made = families::create(&self.shared, &[(name, options)])?;
        persist::follow_change(&self.shared);
        Ok(ColumnFamily::new(made.remove(0)))
    }

    /// Creates column families, all or none, and returns their handles in the order of the list. If the process or the
    /// machine fails meanwhile, the first ones of the list may be there. For many families this is much faster than
    /// [`Db::create_column_family`], which writes the options of all families to a file each time. Errors: as there;
    /// `InvalidArgument` also if two have the same name.
    ///
    /// ```
    /// use ironstone::{ColumnFamilyDescriptor, ColumnFamilyOptions, Db, Options};
    /// # let dir = tempfile::tempdir().unwrap();
    /// let mut options = Options::default();
    /// options.db.create_if_missing = true;
    /// let db = Db::open(dir.path(), &options)?;
    /// let families = (0..100).map(|i| {
    ///     ColumnFamilyDescriptor::new(format!("tenant-{i}"), ColumnFamilyOptions::default())
    /// });
    /// let tenants = db.create_column_families(&families.collect::<Vec<_>>())?;
    /// db.cf(&tenants[7]).put("key", "value")?;
    /// # Ok::<(), ironstone::Error>(())
    /// ```
    pub fn create_column_families(
        &self,
        families: &[ColumnFamilyDescriptor],
    ) -> Result<Vec<ColumnFamily>> {
        let list: Vec<_> = families
            .iter()
            .map(|d| (d.name.as_str(), &d.options))
            .collect();
        let made = families::create(&self.shared, &list)?;
        if !made.is_empty() {
            persist::follow_change(&self.shared);
        }
        Ok(made.into_iter().map(ColumnFamily::new).collect())
    }

    /// Drops a column family and its data. Existing handles and iterators can still read it.
    ///
    /// Errors: `InvalidArgument` for the default family, a family that was dropped already, or a handle of another
    /// database; the MANIFEST cannot be written.
    pub fn drop_column_family(&self, family: &ColumnFamily) -> Result<()> {
        self.shared.check_handle(&family.0)?;
        families::drop_family(&self.shared, &family.0)
    }
}

/// Maintenance and information of one column family.
impl Cf<'_> {
    /// Flushes the memtables of this family alone, as [`FlushOptions`](crate::FlushOptions) say. Errors: as
    /// [`Db::flush`].
    pub fn flush(&self) -> Result<()> {
        self.check()?;
        maintenance::flush(self.shared, std::slice::from_ref(self.family), &self.flush)
    }

    /// Flushes the memtables of all families, as [`FlushOptions`](crate::FlushOptions) say. The family of `self` has no
    /// effect. Errors: as [`Db::flush`].
    pub fn flush_all(&self) -> Result<()> {
        let families = self.shared.catalog.families.load();
        let all: Vec<_> = families.iter().cloned().collect();
        drop(families);
        maintenance::flush(self.shared, &all, &self.flush)
    }

    /// Compacts everything from `begin` to `end`, both inclusive (`None` is unbounded), and waits for it. Memtables
    /// that overlap the range are flushed first; then the data is compacted level by level down to the lowest one.
    /// With universal compaction all tables are merged, whatever the range.
    ///
    /// Errors: also `Incomplete` if it was canceled through [`CompactRangeOptions`]; `NotSupported` if `change_level`
    /// is set and the files cannot be moved to the requested level.
    pub fn compact_range(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<()> {
        self.check()?;
        let default = CompactRangeOptions::default();
        let options = self.compact_range.unwrap_or(&default);
        maintenance::compact_range(self.shared, self.family, (begin, end), options)
    }

    /// Compacts the table files with these numbers to a level, and waits for it, as [`CompactionOptions`] say. Other
    /// files are added where that is needed to keep old data from ending up above newer data.
    ///
    /// Errors: `InvalidArgument` if a file number or the level does not exist; `Aborted` if another compaction uses
    /// one of the files.
    pub fn compact_files(&self, files: &[u64], output_level: usize) -> Result<()> {
        self.check()?;
        let default = CompactionOptions::default();
        let options = self.compact_files.unwrap_or(&default);
        maintenance::compact_files(
            &self.shared.background,
            self.family,
            files,
            output_level,
            options,
        )
    }

    /// Marks the files that overlap the range from `begin` to `end`, both inclusive, for compaction in the
    /// background. Files on the lowest level are not compacted.
    pub fn suggest_compact_range(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<()> {
        self.check()?;
        maintenance::suggest_compact_range(self.shared, self.family, (begin, end))
    }

    /// A property of the family or of the database, by RocksDB's name, for example `rocksdb.stats` or
    /// `rocksdb.num-files-at-level0`; `None` if the name is unknown.
    pub fn property(&self, name: &str) -> Option<String> {
        properties::get(self.shared, self.family, name)
    }

    /// A numeric property; `None` for any other property.
    pub fn int_property(&self, name: &str) -> Option<u64> {
        properties::get_int(self.shared, self.family, name)
    }

    /// A property whose value is a map, for example `rocksdb.cf-write-stall-stats`; `None` if the name is unknown
    /// or the property is not a map.
    pub fn map_property(&self, name: &str) -> Option<BTreeMap<String, String>> {
        properties::get_map(self.shared, self.family, name)
    }
}

/// Maintenance and information.
impl Db {
    /// Flushes the memtables of all column families and waits until they are in tables.
    ///
    /// Errors: the flush failed, and the database refuses writes until it is resumed. After the device was full,
    /// the database resumes by itself. A call that still waits at that time may return the result of that resume.
    pub fn flush(&self) -> Result<()> {
        self.default_cf().flush_all()
    }

    /// Compacts a range of the default column family: see [`Cf::compact_range`].
    pub fn compact_range(&self, begin: Option<&[u8]>, end: Option<&[u8]>) -> Result<()> {
        self.default_cf().compact_range(begin, end)
    }

    /// Starts no flush or compaction until [`Db::continue_background_work`], and waits for those that are running.
    /// Calls nest. Meanwhile, writers wait once the memtables are full.
    ///
    /// Errors: `Busy` if a listener calls this on a flush or compaction thread; the database refuses writes.
    pub fn pause_background_work(&self) -> Result<()> {
        maintenance::pause_background_work(&self.shared.background)
    }

    /// Ends one [`Db::pause_background_work`]. Errors: background work is not paused.
    pub fn continue_background_work(&self) -> Result<()> {
        maintenance::continue_background_work(&self.shared.background)
    }

    /// Stops flushes and compactions for good, so that closing the database is fast. Writes that are in no log are
    /// flushed first, unless `avoid_flush_during_shutdown` is set. With `wait`, returns when no flush and no compaction
    /// is running any more. Later calls that need one fail with `ShutdownInProgress`.
    pub fn cancel_all_background_work(&self, wait: bool) {
        maintenance::cancel_all_background_work(&self.shared, wait);
    }

    /// A property of the default column family or of the database: see [`Cf::property`].
    pub fn property(&self, name: &str) -> Option<String> {
        self.default_cf().property(name)
    }

    /// A numeric property of the default column family or of the database; `None` for any other property.
    pub fn int_property(&self, name: &str) -> Option<u64> {
        self.default_cf().int_property(name)
    }

    /// The sum of a numeric property over all column families: RocksDB's `GetAggregatedIntProperty`. A property of
    /// the whole database, such as `rocksdb.num-snapshots`, is added once for each family; a property of the block
    /// cache counts once. `None` if the property is not numeric.
    pub fn aggregated_int_property(&self, name: &str) -> Option<u64> {
        properties::aggregated_int(&self.shared, name)
    }

    /// A property whose value is a map: see [`Cf::map_property`].
    pub fn map_property(&self, name: &str) -> Option<BTreeMap<String, String>> {
        self.default_cf().map_property(name)
    }

    /// Properties, compaction statistics by level, tickers and histograms, in Prometheus's text format. Properties
    /// of column families have the label `cf`; properties of levels also have the label `level`. Tickers and
    /// histograms are included if `options.env.statistics` is set.
    pub fn metrics_text(&self) -> String {
        properties::metrics_text(&self.shared)
    }

    /// Waits until no flush and no compaction is running or due.
    ///
    /// Errors: the database refuses writes; `Aborted` while background work is paused; a compaction ran out of space
    /// and will be tried again.
    pub fn wait_for_compact(&self) -> Result<()> {
        maintenance::wait_for_jobs(&self.shared)
    }

    /// Reads every block of every table of all column families and compares its checksum. RocksDB's
    /// `VerifyChecksum`.
    ///
    /// # Errors
    /// `Corruption`, with file and offset, for the first block that is damaged.
    pub fn verify_checksum(&self) -> Result<()> {
        for family in self.shared.catalog.families.load().iter() {
            let version = Arc::clone(&family.view.load().version);
            for (_, file) in version.files() {
                file.reader()?.verify_checksums()?;
            }
        }
        Ok(())
    }

    /// The directory of the database.
    pub fn path(&self) -> PathBuf {
        self.shared.dir.clone()
    }
}
