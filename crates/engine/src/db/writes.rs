//! Writing: puts, deletions, whole batches; with and without waiting for durability.

use base::Result;

use super::{ColumnFamily, Db, maintenance};
use crate::batch::WriteBatch;
use crate::write::pending::{self, PendingWrite};
use crate::write::{pipeline, resume, submit};
use options::WriteOptions;
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

/// Removing keys that were put once.
impl Db {
    /// Removes `key` from the default column family. The key must have been put exactly once since it was last
    /// removed, and must not have been merged. The put and its removal then vanish together as soon as a compaction
    /// sees both. For other keys the visible result is undefined. A compaction that finds a [`Db::delete`] of the
    /// key instead of a put fails; see `enforce_single_del_contracts`.
    pub fn single_delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.single_delete(key)?;
        self.write(batch)
    }

    /// [`Db::single_delete`] in a column family.
    pub fn single_delete_cf(&self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.single_delete_opt(&WriteOptions::default(), family, key)
    }

    /// [`Db::single_delete_cf`] with options.
    pub fn single_delete_opt(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.shared.check_handle(&family.0)?;
        let mut batch = WriteBatch::new();
        batch.single_delete_cf(family, key)?;
        self.write_opt(options, batch)
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
        maintenance::unlock_wal(&self.shared.writes)
    }
}
