//! The database handle. Each method is a few lines; the work is done in the modules it names.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use base::stats::Activity;
use base::sync::{Mutex, MutexGuard, PoisonError};
use base::{Error, Result};
use io::FileLock;

use crate::batch::WriteBatch;
use crate::closing::{self, Running};
use crate::family::Family;
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
use crate::wal::WalFile;
use crate::wal::updates::{self, UpdatesIterator};
use crate::write::pending::{self, PendingWrite};
use crate::write::{pipeline, submit};
use crate::{destroy, families, maintenance, properties, resume};

/// A handle to a column family: cheap to clone, valid as long as the database is open. After a
/// drop it can still be read from, not written to.
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

/// Records for column families by handle.
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

    /// Removes the keys of a column family from `begin` up to, and without, `end`.
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
    /// Opens a database that has the default column family only, or creates one.
    ///
    /// Errors: there is no database and `create_if_missing` is false; it has more column families;
    /// another opener holds it (`Busy`, naming the holder); its files are damaged.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let default = ColumnFamilyDescriptor::new(families::DEFAULT, options.cf.clone());
        Self::open_cf(path, options, &[default])
    }

    /// Opens a database with these column families: all that it has must be among them. Missing
    /// ones are created if `create_missing_column_families` is set.
    pub fn open_cf(
        path: impl AsRef<Path>,
        options: &Options,
        families: &[ColumnFamilyDescriptor],
    ) -> Result<Self> {
        open::open(path.as_ref(), options, &Wanted::Listed(families), false)
    }

    /// Opens a database with every column family that it has, each with `options.cf` and, if it is
    /// a built-in one, the comparator that it was written with.
    pub fn open_all(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        open::open(path.as_ref(), options, &Wanted::All, false)
    }

    /// Like [`Db::open_all`], without changing anything: no lock is taken, nothing is written, and
    /// writes fail. The logs are replayed into memory. What another process writes later is not
    /// seen.
    pub fn open_read_only(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        open::open(path.as_ref(), options, &Wanted::All, true)
    }

    /// Like [`Db::open_read_only`], with options for each column family: all that the database has
    /// must be among them.
    pub fn open_cf_read_only(
        path: impl AsRef<Path>,
        options: &Options,
        families: &[ColumnFamilyDescriptor],
    ) -> Result<Self> {
        open::open(path.as_ref(), options, &Wanted::Listed(families), true)
    }

    /// The names of the column families of a database that need not be open.
    pub fn list_column_families(path: impl AsRef<Path>, env: &Env) -> Result<Vec<String>> {
        open::list_column_families(path.as_ref(), env)
    }

    /// Deletes a database: its files in `path`, its logs wherever they are, and the directories if nothing else is in
    /// them. What is no file of a database stays. Nothing to do if there is none.
    ///
    /// Errors: the database is open (`Busy`); a file cannot be removed. It is no database any more then, unless LOCK
    /// or CURRENT was the first that could not: the call may be repeated.
    pub fn destroy(path: impl AsRef<Path>, options: &Options) -> Result<()> {
        destroy::destroy(path.as_ref(), options)
    }

    /// Always `NotSupported`: what can be saved of damaged logs, `ironstone salvage` lists and saves.
    pub fn repair(path: impl AsRef<Path>, _options: &Options) -> Result<()> {
        Err(Error::not_supported("Db::repair")
            .file(path)
            .hint("`ironstone salvage` lists and saves what can be read of damaged logs"))
    }

    /// Hands what is in the log to the operating system, stops the background jobs, and releases
    /// the lock. The same as dropping the database, but tells of errors.
    /// From a listener on a thread that flushes or compacts it is `Busy`: another thread closes the
    /// database when that one is done with its job.
    pub fn close(self) -> Result<()> {
        self.shared.check_may_wait("close")?; // and drops it
        self.lock_running().close(&self.shared)
    }

    pub(crate) fn started(shared: Arc<Shared>, lock: Option<Box<dyn FileLock>>) -> Result<Self> {
        let default = Arc::clone(shared.families.load().require(0)?);
        // If a thread cannot be started, this is closed as any database is: those that run already
        // are ended and joined before the lock goes.
        let db = Self {
            shared,
            default,
            running: Mutex::new(Running::new(lock)),
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
        if self.shared.is_closing() {
            return; // close() was called
        }
        if outbox::belongs_to(self.shared.instance) {
            let running = std::mem::take(&mut *self.lock_running());
            running.close_elsewhere(&self.shared);
        } else {
            closing::report(&self.shared, self.lock_running().close(&self.shared));
        }
    }
}

/// Column families.
impl Db {
    /// The open column family of this name.
    pub fn column_family(&self, name: &str) -> Option<ColumnFamily> {
        self.shared
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

    /// Drops a column family and its data. Handles and iterators that exist still read it.
    pub fn drop_column_family(&self, family: &ColumnFamily) -> Result<()> {
        self.shared.check_handle(&family.0)?;
        families::drop_family(&self.shared, &family.0)
    }
}

/// Writing.
impl Db {
    /// Sets `key` in the default column family, with default options: the write survives the
    /// death of the process, not a power cut. See [`WriteOptions::sync`].
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

    /// Removes `key` from the default column family. Not an error if it is not there.
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

    /// Removes the keys of the default column family from `begin` up to, and without, `end`: one
    /// small record, however many keys there are.
    ///
    /// Errors: `InvalidArgument` if `end` comes before `begin`. A range of nothing is no error.
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

    /// Applies a batch: all of it or, after a crash, possibly none of it.
    pub fn write(&self, batch: WriteBatch) -> Result<()> {
        self.write_opt(&WriteOptions::default(), batch)
    }

    /// [`Db::write`] with options.
    pub fn write_opt(&self, options: &WriteOptions, batch: WriteBatch) -> Result<()> {
        pipeline::write(&self.shared, options, batch)
    }

    /// Hands the log's process buffer to the operating system and, with `sync`, to the device:
    /// everything written before is then durable. Needed with `manual_wal_flush`.
    pub fn flush_wal(&self, sync: bool) -> Result<()> {
        submit::flush_wal(&self.shared, sync)
    }

    /// Makes everything written before durable.
    pub fn sync_wal(&self) -> Result<()> {
        self.flush_wal(true)
    }
}

/// Writing, and waiting for durability later.
impl Db {
    /// Writes a batch without waiting for the device, and tells when it is visible and when it is
    /// durable: by a future that any runtime can poll, a callback, or a wait. Many such writes
    /// share one write of the device. `options.sync` makes no difference.
    ///
    /// It waits where any write does: for room in the memtables (unless `no_slowdown`), and for the
    /// moment in which other groups are logged.
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

    /// Every logged write up to this sequence number survives a power cut. Writes with
    /// `disable_wal` do not count.
    pub fn durable_seq(&self) -> u64 {
        self.shared.durable.get()
    }

    /// Waits until the logged write with sequence number `seq`, and all before it, survive a power
    /// cut; brings the log to the device if need be. Errors: there is no such write yet, or it was
    /// not logged; what made the device fail.
    pub fn wait_durable(&self, seq: u64) -> Result<()> {
        pending::wait_durable(&self.shared, seq)
    }

    /// Stops all writes until [`Db::unlock_wal`], and hands the log to the operating system: its
    /// files do not change meanwhile. Calls nest. Writers wait, or fail with `Incomplete` if they
    /// have `no_slowdown`.
    pub fn lock_wal(&self) -> Result<()> {
        maintenance::lock_wal(&self.shared)
    }

    /// Accepts writes again after a failure that made the database refuse them: brings all memtables
    /// to tables, with a new log and a new MANIFEST. Nothing to do if there was no failure; after
    /// a full device the database does it by itself, and then this waits for it. Errors: what still
    /// fails; `Aborted` while background work is paused; `Busy` from a listener on a thread that flushes
    /// or compacts, for which it would have to wait, and from one that is told of a resume.
    pub fn resume(&self) -> Result<()> {
        resume::resume(&self.shared)
    }

    /// Ends [`Db::lock_wal`]. Errors: it was not called.
    pub fn unlock_wal(&self) -> Result<()> {
        maintenance::unlock_wal(&self.shared)
    }
}

/// Reading.
impl Db {
    /// The value of `key` in the default column family; of a wide-column entity the default
    /// column, or nothing.
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

    /// An iterator over the default column family. With options that are refused it shows nothing,
    /// and its status says why.
    pub fn iterator(&self, options: &ReadOptions) -> DbIterator {
        self.iterator_cf(options, &self.default_column_family())
            .unwrap_or_else(DbIterator::refusing)
    }

    /// An iterator over a column family. Errors: `InvalidArgument` for a snapshot of another
    /// database; `NotSupported` naming an option that is refused.
    pub fn iterator_cf(&self, options: &ReadOptions, family: &ColumnFamily) -> Result<DbIterator> {
        self.shared.check_handle(&family.0)?;
        options.check_for_iterator()?;
        let sequence = self.snapshot_sequence(options)?;
        let origin = Origin::new(&self.shared, family.0.view.load_full(), &family.0, options);
        let sequence = sequence.unwrap_or_else(|| self.shared.visible());
        Ok(DbIterator::new(Box::new(origin), sequence))
    }

    /// The entries of the default column family whose keys are in a range: `db.range("a".."b")?`, or `..` for
    /// all of them. See [`Entries`].
    ///
    /// Errors: those of [`Db::range_cf`].
    pub fn range(&self, range: impl KeyBounds) -> Result<Entries> {
        let family = self.default_column_family();
        self.range_cf(&ReadOptions::default(), &family, range)
    }

    /// [`Db::range`] of a column family, with options, of which `prefix_same_as_start` has no effect: the range says where
    /// it ends.
    ///
    /// Errors: those of [`Db::iterator_cf`]; `InvalidArgument` where the options have bounds, or say that the
    /// iterator is tailing.
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
    /// Errors: those of [`Db::prefix_cf`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Entries> {
        let family = self.default_column_family();
        self.prefix_cf(&ReadOptions::default(), &family, prefix)
    }

    /// [`Db::prefix`] of a column family, with options.
    ///
    /// Errors: those of [`Db::range_cf`]; `InvalidArgument` for a comparator of which it is not known that it
    /// keeps keys with one prefix together.
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
        self.shared.snapshots.take(now, || self.shared.visible())
    }

    /// The number of the last write that reads see.
    pub fn latest_sequence_number(&self) -> u64 {
        self.shared.visible().0
    }

    /// The sequence to read at, `None` for the newest. Errors: also an option that is refused.
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

/// The logs.
impl Db {
    /// The logs that hold a batch, archived ones first, in the order in which they were written.
    /// One that begins with damage counts as one without. Errors: a directory or a log cannot be read.
    pub fn get_sorted_wal_files(&self) -> Result<Vec<WalFile>> {
        updates::sorted(&self.shared)
    }

    /// The log that takes writes now; its `start_sequence` is 0. Errors: the database is open for
    /// reading only.
    pub fn get_current_wal_file(&self) -> Result<WalFile> {
        let number = self.shared.newest_log();
        let number = number.ok_or_else(|| {
            Error::not_supported("the current log of a database that is open for reading only")
        })?;
        self.shared.wal.describe(number)
    }

    /// What was written from the sequence number `sequence` on, batch by batch: from the batch
    /// that contains it or, if the logs do not go back so far, from the first one that they have,
    /// whose number is then larger. Logs are kept for it by `WAL_ttl_seconds` and
    /// `WAL_size_limit_MB`. It shows what is in the logs' files: not what was written with
    /// `disable_wal`, and with `manual_wal_flush` what was flushed.
    ///
    /// Errors: `NotFound` if nothing was written with this number yet; as
    /// [`Db::get_sorted_wal_files`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let mut options = ironstone::Options::default();
    /// # options.db.create_if_missing = true;
    /// let db = ironstone::Db::open(dir.path(), &options)?;
    /// db.put("a", "1")?;
    /// let mut updates = db.get_updates_since(1)?;
    /// assert!(updates.valid() && updates.sequence() == 1);
    /// updates.next();
    /// assert!(!updates.valid());
    /// updates.status()?;
    /// db.put("b", "2")?;
    /// updates.next();
    /// assert_eq!(updates.batch().count(), 1);
    /// # Ok::<(), ironstone::Error>(())
    /// ```
    pub fn get_updates_since(&self, sequence: u64) -> Result<UpdatesIterator> {
        updates::since(&self.shared, sequence)
    }
}

/// Maintenance and information.
impl Db {
    /// Writes every column family's memtables to tables and waits for it.
    ///
    /// Errors: the flush failed, and the database refuses writes until it is resumed. Where it resumes by
    /// itself, since the device was full, a call that still waits may return what became of that.
    pub fn flush(&self) -> Result<()> {
        let all: Vec<_> = self.shared.families.load().iter().cloned().collect();
        maintenance::flush(&self.shared, &all, &FlushOptions::default())
    }

    /// Writes the family's memtables to a table and waits for it.
    pub fn flush_cf(&self, family: &ColumnFamily) -> Result<()> {
        self.flush_opt(&FlushOptions::default(), family)
    }

    /// [`Db::flush_cf`] with options.
    pub fn flush_opt(&self, options: &FlushOptions, family: &ColumnFamily) -> Result<()> {
        self.shared.check_handle(&family.0)?;
        maintenance::flush(&self.shared, std::slice::from_ref(&family.0), options)
    }

    /// Compacts everything from `begin` to `end`, both included (`None` is open), and waits for it:
    /// memtables that hold some of it are flushed first, then it goes down level by level to the
    /// lowest one. In universal style all tables are merged, whatever the range.
    pub fn compact_range(
        &self,
        family: &ColumnFamily,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        self.compact_range_opt(&CompactRangeOptions::default(), family, begin, end)
    }

    /// [`Db::compact_range`] with options. Errors: also `Incomplete` if it was canceled, and what
    /// `change_level` cannot do.
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

    /// Compacts the table files with these numbers to a level, with those that must go along so that
    /// no old data comes to lie over new, and waits for it. Errors: `InvalidArgument` for a number
    /// or level that is none, `Aborted` if another compaction has a file.
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

    /// Marks the files with keys from `begin` to `end` for compaction, which happens in the
    /// background. Files on the lowest level stay.
    pub fn suggest_compact_range(
        &self,
        family: &ColumnFamily,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
    ) -> Result<()> {
        self.shared.check_handle(&family.0)?;
        maintenance::suggest_compact_range(&self.shared, &family.0, (begin, end))
    }

    /// Lets no flush and no compaction begin until [`Db::continue_background_work`], and waits for
    /// those that run. Calls nest. Writers wait when memtables are full.
    pub fn pause_background_work(&self) -> Result<()> {
        maintenance::pause_background_work(&self.shared)
    }

    /// Ends one [`Db::pause_background_work`]. Errors: it was not called.
    pub fn continue_background_work(&self) -> Result<()> {
        maintenance::continue_background_work(&self.shared)
    }

    /// Ends flushes and compactions for good: before closing, so that it is fast. With `wait`, returns
    /// when none runs any more. Calls that need one fail with `ShutdownInProgress`.
    pub fn cancel_all_background_work(&self, wait: bool) {
        maintenance::cancel_all_background_work(&self.shared, wait);
    }

    /// A property of the default column family or the database, by RocksDB's name, for example
    /// `rocksdb.stats` or `rocksdb.num-files-at-level0`; `None` for a name that is not known.
    pub fn property(&self, name: &str) -> Option<String> {
        properties::get(&self.shared, &self.default, name)
    }

    /// [`Db::property`] of a column family.
    pub fn property_cf(&self, family: &ColumnFamily, name: &str) -> Option<String> {
        properties::get(&self.shared, &family.0, name)
    }

    /// A property of the default column family that is a number; `None` for any other.
    pub fn int_property(&self, name: &str) -> Option<u64> {
        properties::get_int(&self.shared, &self.default, name)
    }

    /// [`Db::int_property`] of a column family.
    pub fn int_property_cf(&self, family: &ColumnFamily, name: &str) -> Option<u64> {
        properties::get_int(&self.shared, &family.0, name)
    }

    /// The sum of a number over all column families: RocksDB's `GetAggregatedIntProperty`. What the
    /// whole database has, such as `rocksdb.num-snapshots`, is in the sum once for each family; the
    /// block cache counts once. `None` for a name that is no number.
    pub fn aggregated_int_property(&self, name: &str) -> Option<u64> {
        properties::aggregated_int(&self.shared, name)
    }

    /// [`Db::map_property_cf`] of the default column family.
    pub fn map_property(&self, name: &str) -> Option<BTreeMap<String, String>> {
        properties::get_map(&self.shared, &self.default, name)
    }

    /// Properties, what was done on each level, tickers and histograms, in the text form that
    /// Prometheus collects: properties of column families have the label `cf`, those of levels also
    /// `level`. Tickers and histograms are there if `options.env.statistics` is set.
    pub fn metrics_text(&self) -> String {
        properties::metrics_text(&self.shared)
    }

    /// A property that is a map, for example `rocksdb.cf-write-stall-stats`; `None` for a name that
    /// is not known, or whose value is no map.
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
