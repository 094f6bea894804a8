//! Writing: puts, deletions, whole batches; with and without waiting for durability.

use base::Result;

use super::cf::Cf;
use super::{Db, maintenance};
use crate::batch::WriteBatch;
use crate::write::pending::{self, Durable, PendingWrite};
use crate::write::resume;
use crate::write::{pipeline, submit};

/// Writing. Without [`WriteOptions`](crate::WriteOptions), a write survives the end of the process, but not a power
/// cut: see [`WriteOptions::sync`](crate::WriteOptions::sync).
impl Cf<'_> {
    /// A batch of one write to the family.
    #[inline]
    pub(super) fn batch_of_one(
        &self,
        add: impl FnOnce(&mut WriteBatch, u32) -> Result<()>,
    ) -> Result<WriteBatch> {
        self.check()?;
        let mut batch = WriteBatch::new();
        add(&mut batch, self.family.id)?;
        Ok(batch)
    }

    #[inline]
    pub(super) fn one(&self, add: impl FnOnce(&mut WriteBatch, u32) -> Result<()>) -> Result<()> {
        self.write(&mut self.batch_of_one(add)?)
    }

    /// Sets `key`.
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.one(|batch, id| batch.put_cf_id(id, key.as_ref(), value.as_ref()))
    }

    /// Removes `key`. A missing key is not an error.
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.one(|batch, id| batch.delete_cf_id(id, key.as_ref()))
    }

    /// Removes the keys from `begin` up to, but not including, `end`. This writes one small record, however many keys
    /// there are.
    ///
    /// Errors: `InvalidArgument` if `end` comes before `begin`. An empty range is not an error.
    pub fn delete_range(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        self.one(|batch, id| batch.delete_range_cf_id(id, begin.as_ref(), end.as_ref()))
    }

    /// Removes `key`. The key must have been put exactly once since it was last removed, and must not have been merged.
    /// A compaction that sees both the put and its removal then drops both. For other keys the visible result is
    /// undefined. A compaction that finds a [`Db::delete`] of the key instead of a put fails; see
    /// `enforce_single_del_contracts`.
    pub fn single_delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.one(|batch, id| batch.single_delete_cf_id(id, key.as_ref()))
    }

    /// Applies a batch atomically: after a crash, either all of its records are in the database or none. Each record
    /// of the batch has its own family; the family of `self` has no effect. The records stay in the batch: it can be
    /// written again, or [cleared](WriteBatch::clear) and filled anew without a new allocation. Only a panic during
    /// the write, for example in a file system, leaves the batch empty.
    ///
    /// Errors: after `Incomplete` (writers would have to wait), `InvalidArgument` and `NotSupported` nothing was
    /// written. After any other error the batch may or may not be in the database, also after a restart. Write it
    /// again only if applying it twice does no harm. The database then refuses writes until it is resumed. The
    /// exception is `NoSpace` if the log had no space for the batch: the database accepts writes again as soon as
    /// there is space.
    pub fn write(&self, batch: &mut WriteBatch) -> Result<()> {
        pipeline::write(self.shared, &self.write, batch)
    }

    /// Writes a batch without waiting for the device: see [`Db::write_async`]. [`WriteOptions::sync`] has no effect.
    ///
    /// Errors: as [`Cf::write`]; `InvalidArgument` with [`WriteOptions::disable_wal`].
    ///
    /// [`WriteOptions::sync`]: crate::WriteOptions::sync
    /// [`WriteOptions::disable_wal`]: crate::WriteOptions::disable_wal
    pub fn write_async(&self, batch: WriteBatch) -> Result<PendingWrite> {
        pending::write(self.shared, &self.write, batch)
    }
}

/// Writing to the default column family, with default options. Use [`Db::cf`] for other families and [`Db::with`] for
/// other options.
impl Db {
    /// Sets `key`: see [`Cf::put`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default_cf().put(key, value)
    }

    /// Removes `key`: see [`Cf::delete`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default_cf().delete(key)
    }

    /// Removes the keys from `begin` up to, but not including, `end`: see [`Cf::delete_range`].
    pub fn delete_range(&self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        self.default_cf().delete_range(begin, end)
    }

    /// Removes a `key` that was put once: see [`Cf::single_delete`].
    pub fn single_delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default_cf().single_delete(key)
    }

    /// Applies a batch atomically, whatever its families: see [`Cf::write`].
    pub fn write(&self, batch: &mut WriteBatch) -> Result<()> {
        self.default_cf().write(batch)
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
    /// one write to the device: if nobody waits for durability, the log goes to the device once a millisecond.
    ///
    /// Like any write, the call waits for room in the memtables, unless
    /// [`WriteOptions::no_slowdown`](crate::WriteOptions::no_slowdown) is set, and while other groups are being logged.
    /// Errors: as [`Cf::write_async`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let mut options = ironstone::Options::default();
    /// # options.db.create_if_missing = true;
    /// # let db = ironstone::Db::open(dir.path(), &options)?;
    /// let mut batch = ironstone::WriteBatch::new();
    /// batch.put(b"key", b"value")?;
    /// let write = db.write_async(batch)?;
    /// write.applied.wait()?;                 // or `.await`
    /// assert!(db.get(b"key")?.is_some());
    /// write.durable.wait()?;
    /// assert!(db.durable_seq() >= write.seq);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_async(&self, batch: WriteBatch) -> Result<PendingWrite> {
        self.default_cf().write_async(batch)
    }

    /// The sequence number up to which every logged write survives a power cut. Writes with `disable_wal` are not
    /// covered. Asking does not hurry an asynchronous write: [`Durable`](crate::Durable) and
    /// [`Db::wait_durable`] do.
    pub fn durable_seq(&self) -> u64 {
        self.shared.wal.durable.get()
    }

    /// Waits until the logged write with sequence number `seq` and all earlier ones survive a power cut. Syncs the
    /// log if needed. Errors: `InvalidArgument` if there is no such write yet or it was not logged; the log cannot be
    /// synced.
    pub fn wait_durable(&self, seq: u64) -> Result<()> {
        pending::wait_durable(&self.shared, seq)
    }

    /// Ready when the logged write with sequence number `seq` and all earlier ones survive a power cut. Waiting for it
    /// syncs the log if needed. `seq` is the number of a write that has returned, for example
    /// [`WriteBatch::sequence`] of its batch.
    ///
    /// Errors: `InvalidArgument` if neither it nor a later write was logged; the database refuses writes.
    ///
    /// ```
    /// use ironstone::{Db, Options, WriteBatch};
    ///
    /// let dir = tempfile::tempdir()?;
    /// let options = Options::default().with_text("create_if_missing=true")?;
    /// let db = Db::open(dir.path(), &options)?;
    /// let mut batch = WriteBatch::new();
    /// batch.put(b"key", b"value")?;
    /// db.write(&mut batch)?; // survives the end of the process
    /// db.durable(batch.sequence())?.wait()?; // and now a power cut
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn durable(&self, seq: u64) -> Result<Durable> {
        pending::durable(&self.shared, seq)
    }

    /// Stops all writes until [`Db::unlock_wal`], and hands buffered log records to the operating system. The log
    /// files do not change until then. Calls nest. Writers wait, or fail with `Incomplete` if `no_slowdown` is set.
    pub fn lock_wal(&self) -> Result<()> {
        maintenance::lock_wal(&self.shared)
    }

    /// Accepts writes again after a failure that made the database refuse them. Begins a new log and a new MANIFEST,
    /// and flushes all memtables to tables. Does nothing if there was no failure. After the device was full, the
    /// database resumes by itself; this call waits for a resume that is under way.
    ///
    /// Errors: the failure persists; `Aborted` while background work is paused; `Busy` from a listener on a flush
    /// or compaction thread, because the call would have to wait for that thread; `Busy` from a listener that is called
    /// because of a resume.
    pub fn resume(&self) -> Result<()> {
        resume::resume(&self.shared)
    }

    /// Ends one [`Db::lock_wal`]. Errors: `Aborted` if the log is not locked.
    pub fn unlock_wal(&self) -> Result<()> {
        maintenance::unlock_wal(&self.shared.writes, &self.shared.wal)
    }
}
