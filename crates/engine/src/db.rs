//! The database handle. Each method is a few lines; the modules it calls do the work.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use base::stats::Activity;
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, Result};
use io::FileLock;

use crate::batch::WriteBatch;
use crate::closing::{self, Running};
use crate::family::Family;
use crate::locks;
use crate::open::{self, Wanted};
use crate::options::{
    ColumnFamilyDescriptor, ColumnFamilyOptions, CompactRangeOptions, CompactionOptions, Env,
    FlushOptions, Options, ReadOptions, WriteOptions,
};
use crate::outbox;
use crate::read::entries::{self, Entries, KeyBounds, KeyRange};
use crate::read::get;
use crate::read::iter::DbIterator;
use crate::read::snapshot::Snapshot;
use crate::read::sources::Origin;
use crate::shared::Shared;
use crate::write::pending::{self, PendingWrite};
use crate::write::{pipeline, submit};
use crate::{destroy, families, maintenance, properties, resume};

/// A handle to a column family: cheap to clone, valid as long as the database is open. After the family is dropped,
/// the handle can still be used for reads, but not for writes.
pub struct ColumnFamily(pub(crate) Arc<Family>);

impl ColumnFamily {
    pub(crate) fn new(family: Arc<Family>) -> Self {
        family.handle_made();
        Self(family)
    }

    /// The family's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The family's id, as it stands in batches and in the MANIFEST.
    pub fn id(&self) -> u32 {
        self.0.id
    }
}

impl Clone for ColumnFamily {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.0))
    }
}

impl Drop for ColumnFamily {
    fn drop(&mut self) {
        self.0.handle_gone();
    }
}

impl std::fmt::Debug for ColumnFamily {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ColumnFamily({:?}, {})", self.name(), self.id())
    }
}

/// Records addressed to a column family by its handle.
impl WriteBatch {
    /// Sets `key` in a column family. Errors: the key or value is too long for the format.
    pub fn put_cf(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.put_cf_id(family.id(), key.as_ref(), value.as_ref())
    }

    /// Removes `key` from a column family.
    pub fn delete_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_cf_id(family.id(), key.as_ref())
    }

    /// Removes the keys of a column family from `begin` up to, but not including, `end`.
    pub fn delete_range_cf(
        &mut self,
        family: &ColumnFamily,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.delete_range_cf_id(family.id(), begin.as_ref(), end.as_ref())
    }
}

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

/// Opening and closing.
impl Db {
    /// Opens a database that has only the default column family, or creates one.
    ///
    /// Errors: the database does not exist and `create_if_missing` is false; it has more column families; another
    /// process or handle has it open (`Busy`, naming the holder); its files are damaged.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let default = ColumnFamilyDescriptor::new(families::DEFAULT, options.cf.clone());
        Self::open_cf(path, options, &[default])
    }

    /// Opens a database with these column families. Every family of the database must be listed. Families that do
    /// not exist are created if `create_missing_column_families` is set.
    pub fn open_cf(
        path: impl AsRef<Path>,
        options: &Options,
        families: &[ColumnFamilyDescriptor],
    ) -> Result<Self> {
        open::open(path.as_ref(), options, &Wanted::Listed(families), false)
    }

    /// Opens a database with all of its column families, each with `options.cf`. A family that was written with a
    /// built-in comparator is opened with that comparator.
    pub fn open_all(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        open::open(path.as_ref(), options, &Wanted::All, false)
    }

    /// Like [`Db::open_all`], but changes nothing: it takes no lock and writes nothing, and writes fail. The logs
    /// are replayed into memory. Later writes of another process are not visible.
    pub fn open_read_only(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        open::open(path.as_ref(), options, &Wanted::All, true)
    }

    /// Like [`Db::open_read_only`], with options for each column family. Every family of the database must be
    /// listed.
    pub fn open_cf_read_only(
        path: impl AsRef<Path>,
        options: &Options,
        families: &[ColumnFamilyDescriptor],
    ) -> Result<Self> {
        open::open(path.as_ref(), options, &Wanted::Listed(families), true)
    }

    /// The names of the column families of a database, which need not be open.
    pub fn list_column_families(path: impl AsRef<Path>, env: &Env) -> Result<Vec<String>> {
        open::list_column_families(path.as_ref(), env)
    }

    /// Deletes a database: its files in `path`, its logs there and in `options.db.wal_dir`, and the directories that
    /// are then empty. Other files stay, also those in `options.db.db_log_dir`. Does nothing if there is no database.
    /// A `wal_dir` that another database uses loses that one's logs.
    ///
    /// Errors: the database is open (`Busy`); a file cannot be removed. After a failed removal the rest is no
    /// longer a database, unless the failure came at LOCK or CURRENT. The call may be repeated.
    pub fn destroy(path: impl AsRef<Path>, options: &Options) -> Result<()> {
        destroy::destroy(path.as_ref(), options)
    }

    /// Always fails with `NotSupported`. Use `ironstone salvage` to list and save what can be read of damaged logs.
    pub fn repair(path: impl AsRef<Path>, _options: &Options) -> Result<()> {
        Err(Error::not_supported("Db::repair")
            .file(path)
            .hint("`ironstone salvage` lists and saves what can be read of damaged logs"))
    }

    /// Hands buffered log records to the operating system, stops the background jobs, and releases the lock. Same
    /// as dropping the database, but reports errors.
    ///
    /// Errors: also `Busy` if a listener calls this on a flush or compaction thread. Another thread then closes the
    /// database after that thread has finished its job.
    pub fn close(mut self) -> Result<()> {
        self.shared.check_may_wait("close")?; // on error this drops the database
        let running = self.running.get_mut();
        // No lock is held: a listener that is told of the end may use other databases.
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
            started.inspect_err(|e| db.shared.info_log.error(format_args!("open failed: {e}")))?;
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
        if outbox::belongs_to(self.shared.instance) {
            std::mem::take(running).close_elsewhere(&self.shared);
        } else {
            closing::report(&self.shared, running.close(&self.shared));
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

    /// Creates a column family.
    pub fn create_column_family(
        &self,
        name: &str,
        options: &ColumnFamilyOptions,
    ) -> Result<ColumnFamily> {
        families::create(&self.shared, name, options).map(ColumnFamily::new)
    }

    /// Drops a column family and its data. Existing handles and iterators can still read it.
    pub fn drop_column_family(&self, family: &ColumnFamily) -> Result<()> {
        self.shared.check_handle(&family.0)?;
        families::drop_family(&self.shared, &family.0)
    }
}

/// Writing.
impl Db {
    /// Sets `key` in the default column family, with default options: the write survives the end of the process,
    /// but not a power cut. See [`WriteOptions::sync`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put(key, value)?;
        self.write(batch)
    }

    /// [`Db::put`] to a column family.
    pub fn put_cf(
        &self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.put_opt(&WriteOptions::default(), family, key, value)
    }

    /// [`Db::put_cf`] with options.
    pub fn put_opt(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.shared.check_handle(&family.0)?;
        let mut batch = WriteBatch::new();
        batch.put_cf_id(family.id(), key.as_ref(), value.as_ref())?;
        self.write_opt(options, batch)
    }

    /// Removes `key` from the default column family. A missing key is not an error.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete(key)?;
        self.write(batch)
    }

    /// [`Db::delete`] in a column family.
    pub fn delete_cf(&self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_opt(&WriteOptions::default(), family, key)
    }

    /// [`Db::delete_cf`] with options.
    pub fn delete_opt(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.shared.check_handle(&family.0)?;
        let mut batch = WriteBatch::new();
        batch.delete_cf_id(family.id(), key.as_ref())?;
        self.write_opt(options, batch)
    }

    /// Removes the keys of the default column family from `begin` up to, but not including, `end`. This writes one
    /// small record, however many keys there are.
    ///
    /// Errors: `InvalidArgument` if `end` comes before `begin`. An empty range is not an error.
    pub fn delete_range(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.delete_range(begin, end)?;
        self.write(batch)
    }

    /// [`Db::delete_range`] in a column family.
    pub fn delete_range_cf(
        &self,
        family: &ColumnFamily,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.delete_range_opt(&WriteOptions::default(), family, begin, end)
    }

    /// [`Db::delete_range_cf`] with options.
    pub fn delete_range_opt(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.shared.check_handle(&family.0)?;
        let mut batch = WriteBatch::new();
        batch.delete_range_cf_id(family.id(), begin.as_ref(), end.as_ref())?;
        self.write_opt(options, batch)
    }

    /// Applies a batch atomically: after a crash, either all of it or none of it is there.
    pub fn write(&self, batch: WriteBatch) -> Result<()> {
        self.write_opt(&WriteOptions::default(), batch)
    }

    /// [`Db::write`] with options.
    pub fn write_opt(&self, options: &WriteOptions, batch: WriteBatch) -> Result<()> {
        pipeline::write(&self.shared, options, batch)
    }

    /// Hands the log records buffered in the process to the operating system and, with `sync`, to the device. With
    /// `sync`, all earlier writes are durable when this returns. Needed with `manual_wal_flush`.
    pub fn flush_wal(&self, sync: bool) -> Result<()> {
        submit::flush_wal(&self.shared, sync)
    }

    /// Makes all earlier writes durable.
    pub fn sync_wal(&self) -> Result<()> {
        self.flush_wal(true)
    }
}

/// Writing without waiting for durability.
impl Db {
    /// Writes a batch without waiting for the device. The result reports when the write is visible and when it is
    /// durable: through a future that any runtime can poll, a callback, or a blocking wait. Many such writes share
    /// one write to the device. `options.sync` has no effect.
    ///
    /// Like any write, the call waits for room in the memtables (unless `no_slowdown` is set), and while other
    /// groups are being logged.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let mut options = ironstone::Options::default();
    /// # options.db.create_if_missing = true;
    /// # let db = ironstone::Db::open(dir.path(), &options)?;
    /// let mut batch = ironstone::WriteBatch::new();
    /// batch.put(b"key", b"value")?;
    /// let write = db.write_async(&ironstone::WriteOptions::default(), batch)?;
    /// write.applied.wait()?;                 // or `.await`
    /// assert!(db.get(b"key")?.is_some());
    /// write.durable.wait()?;
    /// assert!(db.durable_seq() >= write.seq);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_async(&self, options: &WriteOptions, batch: WriteBatch) -> Result<PendingWrite> {
        pending::write(&self.shared, options, batch)
    }

    /// The sequence number up to which every logged write survives a power cut. Writes with `disable_wal` are not
    /// covered.
    pub fn durable_seq(&self) -> u64 {
        self.shared.wal.durable.get()
    }

    /// Waits until the logged write with sequence number `seq` and all earlier ones survive a power cut. Syncs the
    /// log if needed. Errors: there is no such write yet, or it was not logged; the log cannot be synced.
    pub fn wait_durable(&self, seq: u64) -> Result<()> {
        pending::wait_durable(&self.shared, seq)
    }

    /// Stops all writes until [`Db::unlock_wal`], and hands buffered log records to the operating system: the log
    /// files do not change until then. Calls nest. Writers wait, or fail with `Incomplete` if `no_slowdown` is set.
    pub fn lock_wal(&self) -> Result<()> {
        maintenance::lock_wal(&self.shared)
    }

    /// Accepts writes again after a failure because of which the database refuses them: flushes all memtables to
    /// tables, and begins a new log and a new MANIFEST. Does nothing if there was no failure. After the device was
    /// full, the database resumes by itself; this call then waits for that.
    ///
    /// Errors: the failure persists; `Aborted` while background work is paused; `Busy` from a listener on a flush
    /// or compaction thread, because the call would have to wait for that thread, and from a listener that is being
    /// told of a resume.
    pub fn resume(&self) -> Result<()> {
        resume::resume(&self.shared)
    }

    /// Ends one [`Db::lock_wal`]. Errors: the log is not locked.
    pub fn unlock_wal(&self) -> Result<()> {
        maintenance::unlock_wal(&self.shared)
    }
}

/// Reading.
impl Db {
    /// The value of `key` in the default column family. For a wide-column entity this is its default column, which
    /// is empty if the entity has none.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let options = table::ReadOptions {
            activity: Activity::Get,
            ..table::ReadOptions::default()
        };
        get::get(
            &self.shared,
            get::Lookup::new(&self.default, &options, key.as_ref()),
            None,
        )
    }

    /// [`Db::get`] from a column family.
    pub fn get_cf(&self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.shared.check_handle(&family.0)?;
        let options = table::ReadOptions {
            activity: Activity::Get,
            ..table::ReadOptions::default()
        };
        get::get(
            &self.shared,
            get::Lookup::new(&family.0, &options, key.as_ref()),
            None,
        )
    }

    /// [`Db::get_cf`] with options.
    pub fn get_opt(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<Vec<u8>>> {
        self.shared.check_handle(&family.0)?;
        let sequence = self.read_sequence(options)?;
        let tables = options.for_tables();
        let lookup = get::Lookup::new(&family.0, &tables, key.as_ref());
        get::get(&self.shared, lookup.with(&self.shared, options), sequence)
    }

    /// An iterator over the default column family. If the options are invalid, the iterator is empty and its status
    /// gives the reason.
    pub fn iterator(&self, options: &ReadOptions) -> DbIterator {
        self.iterator_cf(options, &self.default_column_family())
            .unwrap_or_else(DbIterator::refusing)
    }

    /// An iterator over a column family. Errors: `InvalidArgument` for a snapshot of another database;
    /// `NotSupported`, with its name, for an option that is not supported.
    pub fn iterator_cf(&self, options: &ReadOptions, family: &ColumnFamily) -> Result<DbIterator> {
        self.shared.check_handle(&family.0)?;
        options.check_for_iterator()?;
        let sequence = self.snapshot_sequence(options)?;
        let origin = Origin::new(&self.shared, family.0.view.load_full(), &family.0, options);
        let sequence = sequence.unwrap_or_else(|| self.shared.writes.visible());
        Ok(DbIterator::new(Box::new(origin), sequence))
    }

    /// The entries of the default column family whose keys are in a range: `db.range("a".."b")?`, or `..` for all
    /// keys. See [`Entries`].
    ///
    /// Errors: as [`Db::range_cf`].
    pub fn range(&self, range: impl KeyBounds) -> Result<Entries> {
        let family = self.default_column_family();
        self.range_cf(&ReadOptions::default(), &family, range)
    }

    /// [`Db::range`] in a column family, with options. `prefix_same_as_start` has no effect, because the range
    /// defines the end.
    ///
    /// Errors: as [`Db::iterator_cf`]; `InvalidArgument` if the options set bounds or `tailing`.
    pub fn range_cf(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        range: impl KeyBounds,
    ) -> Result<Entries> {
        self.entries(options, family, range.into_bounds())
    }

    /// The entries of the default column family whose keys begin with `prefix`. See [`Entries`].
    ///
    /// Errors: as [`Db::prefix_cf`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Entries> {
        let family = self.default_column_family();
        self.prefix_cf(&ReadOptions::default(), &family, prefix)
    }

    /// [`Db::prefix`] in a column family, with options.
    ///
    /// Errors: as [`Db::range_cf`]; `InvalidArgument` for a comparator that is not known to sort keys with the same
    /// prefix next to each other.
    pub fn prefix_cf(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        prefix: impl AsRef<[u8]>,
    ) -> Result<Entries> {
        let range = entries::of_prefix(prefix.as_ref(), family.0.comparator())?;
        self.entries(options, family, range)
    }

    fn entries(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        range: KeyRange,
    ) -> Result<Entries> {
        if options.tailing {
            return Err(Error::invalid_argument(
                "a tailing iterator has no end: use a cursor",
            ));
        }
        if options.iterate_lower_bound.is_some() || options.iterate_upper_bound.is_some() {
            return Err(Error::invalid_argument(
                "iterate_lower_bound and iterate_upper_bound say what the range says",
            ));
        }
        let comparator = family.0.comparator();
        let options = entries::bounded(options, comparator, &range);
        let cursor = self.iterator_cf(&options, family)?;
        Ok(Entries::new(cursor, comparator.clone(), range))
    }

    /// A consistent view of the database as it is now.
    pub fn snapshot(&self) -> Snapshot {
        let now = self.shared.env().clock.wall_micros() / 1_000_000;
        self.shared
            .snapshots
            .take(now, || self.shared.writes.visible())
    }

    /// The sequence number of the last write that is visible to reads.
    pub fn latest_sequence_number(&self) -> u64 {
        self.shared.writes.visible().0
    }

    /// The sequence number to read at; `None` for the newest. Errors: as [`Db::snapshot_sequence`]; an option that
    /// is not supported.
    #[inline]
    pub(crate) fn read_sequence(
        &self,
        options: &ReadOptions,
    ) -> Result<Option<base::SequenceNumber>> {
        options.check()?;
        self.snapshot_sequence(options)
    }

    pub(crate) fn snapshot_sequence(
        &self,
        options: &ReadOptions,
    ) -> Result<Option<base::SequenceNumber>> {
        match &options.snapshot {
            None => Ok(None),
            Some(s) if s.belongs_to(&self.shared.snapshots) => Ok(Some(s.sequence())),
            Some(_) => Err(Error::invalid_argument(
                "the snapshot is of another database",
            )),
        }
    }
}

/// Maintenance and information.
impl Db {
    /// Flushes the memtables of all column families and waits until they are in tables.
    ///
    /// Errors: the flush failed, and the database refuses writes until it is resumed. After the device was full,
    /// the database resumes by itself; a call that is still waiting then may return the result of that.
    pub fn flush(&self) -> Result<()> {
        let all: Vec<_> = self
            .shared
            .catalog
            .families
            .load()
            .iter()
            .cloned()
            .collect();
        maintenance::flush(&self.shared, &all, &FlushOptions::default())
    }

    /// Flushes the memtables of a column family and waits until they are in a table.
    pub fn flush_cf(&self, family: &ColumnFamily) -> Result<()> {
        self.flush_opt(&FlushOptions::default(), family)
    }

    /// [`Db::flush_cf`] with options.
    pub fn flush_opt(&self, options: &FlushOptions, family: &ColumnFamily) -> Result<()> {
        self.shared.check_handle(&family.0)?;
        maintenance::flush(&self.shared, std::slice::from_ref(&family.0), options)
    }

    /// Compacts everything from `begin` to `end`, both inclusive (`None` is unbounded), and waits for it. Memtables
    /// that overlap the range are flushed first; then the data is compacted level by level down to the lowest one.
    /// With universal compaction all tables are merged, whatever the range.
    pub fn compact_range(
        &self,
        family: &ColumnFamily,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        self.compact_range_opt(&CompactRangeOptions::default(), family, begin, end)
    }

    /// [`Db::compact_range`] with options. Errors: also `Incomplete` if it was canceled; `change_level` is not
    /// possible.
    pub fn compact_range_opt(
        &self,
        options: &CompactRangeOptions,
        family: &ColumnFamily,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        self.shared.check_handle(&family.0)?;
        maintenance::compact_range(&self.shared, &family.0, (begin, end), options)
    }

    /// Compacts the table files with these numbers to a level, and waits for it. Other files are added where that
    /// is needed to keep old data from ending up above newer data. Errors: `InvalidArgument` if a file number or
    /// the level does not exist; `Aborted` if another compaction uses one of the files.
    pub fn compact_files(
        &self,
        options: &CompactionOptions,
        family: &ColumnFamily,
        files: &[u64],
        output_level: usize,
    ) -> Result<()> {
        self.shared.check_handle(&family.0)?;
        maintenance::compact_files(&self.shared, &family.0, files, output_level, options)
    }

    /// Marks the files that overlap the range from `begin` to `end`, both inclusive, for compaction in the
    /// background. Files on the lowest level are not compacted.
    pub fn suggest_compact_range(
        &self,
        family: &ColumnFamily,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        self.shared.check_handle(&family.0)?;
        maintenance::suggest_compact_range(&self.shared, &family.0, (begin, end))
    }

    /// Starts no flush or compaction until [`Db::continue_background_work`], and waits for those that are running.
    /// Calls nest. Meanwhile, writers wait once the memtables are full.
    pub fn pause_background_work(&self) -> Result<()> {
        maintenance::pause_background_work(&self.shared)
    }

    /// Ends one [`Db::pause_background_work`]. Errors: background work is not paused.
    pub fn continue_background_work(&self) -> Result<()> {
        maintenance::continue_background_work(&self.shared)
    }

    /// Stops flushes and compactions for good, so that closing the database is fast. With `wait`, returns when none
    /// is running any more. Later calls that need one fail with `ShutdownInProgress`.
    pub fn cancel_all_background_work(&self, wait: bool) {
        maintenance::cancel_all_background_work(&self.shared, wait);
    }

    /// A property of the default column family or of the database, by RocksDB's name, for example `rocksdb.stats`
    /// or `rocksdb.num-files-at-level0`; `None` if the name is unknown.
    pub fn property(&self, name: &str) -> Option<String> {
        properties::get(&self.shared, &self.default, name)
    }

    /// [`Db::property`] of a column family.
    pub fn property_cf(&self, family: &ColumnFamily, name: &str) -> Option<String> {
        properties::get(&self.shared, &family.0, name)
    }

    /// A numeric property of the default column family; `None` for any other property.
    pub fn int_property(&self, name: &str) -> Option<u64> {
        properties::get_int(&self.shared, &self.default, name)
    }

    /// [`Db::int_property`] of a column family.
    pub fn int_property_cf(&self, family: &ColumnFamily, name: &str) -> Option<u64> {
        properties::get_int(&self.shared, &family.0, name)
    }

    /// The sum of a numeric property over all column families: RocksDB's `GetAggregatedIntProperty`. A property of
    /// the whole database, such as `rocksdb.num-snapshots`, is added once for each family; a property of the block
    /// cache counts once. `None` if the property is not numeric.
    pub fn aggregated_int_property(&self, name: &str) -> Option<u64> {
        properties::aggregated_int(&self.shared, name)
    }

    /// [`Db::map_property_cf`] of the default column family.
    pub fn map_property(&self, name: &str) -> Option<BTreeMap<String, String>> {
        properties::get_map(&self.shared, &self.default, name)
    }

    /// Properties, compaction statistics by level, tickers and histograms, in Prometheus's text format. Properties
    /// of column families have the label `cf`; properties of levels also have the label `level`. Tickers and
    /// histograms are included if `options.env.statistics` is set.
    pub fn metrics_text(&self) -> String {
        properties::metrics_text(&self.shared)
    }

    /// A property whose value is a map, for example `rocksdb.cf-write-stall-stats`; `None` if the name is unknown
    /// or the property is not a map.
    pub fn map_property_cf(
        &self,
        family: &ColumnFamily,
        name: &str,
    ) -> Option<BTreeMap<String, String>> {
        properties::get_map(&self.shared, &family.0, name)
    }

    /// Waits until no flush and no compaction is running or due.
    pub fn wait_for_compact(&self) -> Result<()> {
        maintenance::wait_for_jobs(&self.shared)
    }
}
