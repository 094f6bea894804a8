//! Databases whose values expire: RocksDB's `DBWithTTL`.
//!
//! Each value ends with the time at which it was written, four bytes, little-endian, seconds since
//! 1970. Nothing else tells such a database from others: it must always be opened as one. Values
//! that are older than the time to live go away in compactions, not before: until then reads show
//! them.

use std::path::Path;
use std::sync::Arc;

use base::clock::Clock;
use base::{Error, Result};

use crate::batch::{Record, WriteBatch};
use crate::db::{ColumnFamily, Db};
use crate::options::{Options, ReadOptions, WriteOptions};
use crate::read::iter::DbIterator;

/// Bytes of the time behind each value.
const TIME_LEN: usize = 4;
/// No value is older than RocksDB's time to live: what says so is no time.
const FIRST_TIME: i32 = 1_368_146_402;

/// A database whose values carry the time at which they were written.
#[derive(Debug)]
pub struct DbWithTtl {
    db: Db,
    clock: Arc<dyn Clock>,
}

impl DbWithTtl {
    /// Opens every column family of a database of values with times, or creates one.
    pub fn open(path: impl AsRef<Path>, options: &Options) -> Result<Self> {
        let db = if options.env.fs.exists(&path.as_ref().join("CURRENT"))? {
            Db::open_all(path, options)?
        } else {
            Db::open(path, options)?
        };
        Ok(Self {
            db,
            clock: Arc::clone(&options.env.clock),
        })
    }

    /// The database below, whose values end with their times.
    pub fn base(&self) -> &Db {
        &self.db
    }

    /// [`Db::close`].
    pub fn close(self) -> Result<()> {
        self.db.close()
    }

    /// [`Db::put`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.put_cf(&self.db.default_column_family(), key, value)
    }

    /// [`Db::put_cf`].
    pub fn put_cf(
        &self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put_cf(family, key, value)?;
        self.write_opt(&WriteOptions::default(), &batch)
    }

    /// [`Db::delete`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.db.delete(key)
    }

    /// [`Db::delete_cf`].
    pub fn delete_cf(&self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.db.delete_cf(family, key)
    }

    /// [`Db::write`].
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.write_opt(&WriteOptions::default(), batch)
    }

    /// [`Db::write_opt`]: each value of the batch gets the time of this call. Errors: also
    /// `NotSupported` for records of other kinds than put, merge and the deletions.
    pub fn write_opt(&self, options: &WriteOptions, batch: &WriteBatch) -> Result<()> {
        let now = (self.clock.wall_micros() / 1_000_000) as i32;
        self.db.write_opt(options, with_time(batch, now)?)
    }

    /// [`Db::get`]. Errors: also `Corruption` if the value has no time.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        without_time(self.db.get(key)?)
    }

    /// [`Db::get_cf`]. Errors: also `Corruption` if the value has no time.
    pub fn get_cf(&self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        without_time(self.db.get_cf(family, key)?)
    }

    /// [`Db::iterator_cf`].
    pub fn iterator_cf(&self, options: &ReadOptions, family: &ColumnFamily) -> Result<TtlIterator> {
        self.db.iterator_cf(options, family).map(TtlIterator)
    }
}

/// An iterator over values with times; moved as [`DbIterator`] is, by [`TtlIterator::inner`].
pub struct TtlIterator(DbIterator);

impl std::fmt::Debug for TtlIterator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TtlIterator(valid: {})", self.valid())
    }
}

impl TtlIterator {
    /// The iterator that is moved.
    pub fn inner(&mut self) -> &mut DbIterator {
        &mut self.0
    }

    /// True if it is at an entry.
    pub fn valid(&self) -> bool {
        self.0.valid()
    }

    /// The key of the entry. Only when valid.
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// The value of the entry, without its time; nothing if it is too short to have one. Only when
    /// valid.
    pub fn value(&self) -> &[u8] {
        let value = self.0.value();
        let end = value.len().saturating_sub(TIME_LEN);
        value.get(..end).unwrap_or_default()
    }

    /// When the value was written, seconds since 1970. Only when valid. Errors: `Corruption` if it
    /// has no time.
    pub fn ttl_timestamp(&self) -> Result<i32> {
        time_of(self.0.value())
    }
}

fn with_time(batch: &WriteBatch, now: i32) -> Result<WriteBatch> {
    let mut out = WriteBatch::with_capacity(batch.approximate_size() + 64);
    let mut value_and_time = Vec::new();
    let mut timed = |value: &[u8]| {
        value_and_time.clear();
        value_and_time.extend_from_slice(value);
        value_and_time.extend_from_slice(&now.to_le_bytes());
        std::mem::take(&mut value_and_time)
    };
    for record in batch.records() {
        match record? {
            Record::Put { cf, key, value } => out.put_cf_id(cf, key, &timed(value))?,
            Record::Merge { cf, key, operand } => out.merge_cf_id(cf, key, &timed(operand))?,
            Record::Delete { cf, key } => out.delete_cf_id(cf, key)?,
            Record::SingleDelete { cf, key } => out.single_delete_cf_id(cf, key)?,
            Record::DeleteRange { cf, begin, end } => out.delete_range_cf_id(cf, begin, end)?,
            Record::LogData(blob) => out.put_log_data(blob)?,
            Record::Noop => {}
            other => {
                return Err(Error::not_supported(format!(
                    "{} records in a database of values with times",
                    other.name()
                )));
            }
        }
    }
    Ok(out)
}

fn time_of(value: &[u8]) -> Result<i32> {
    let time = value.last_chunk::<TIME_LEN>().ok_or_else(|| {
        Error::corruption("Error: value's length less than timestamp's")
            .hint("the database was not always opened with a time to live")
    })?;
    let time = i32::from_le_bytes(*time);
    if time < FIRST_TIME {
        return Err(
            Error::corruption("Error: Timestamp < ttl feature release time!")
                .hint("the database was not always opened with a time to live"),
        );
    }
    Ok(time)
}

fn without_time(value: Option<Vec<u8>>) -> Result<Option<Vec<u8>>> {
    let Some(mut value) = value else {
        return Ok(None);
    };
    time_of(&value)?;
    value.truncate(value.len() - TIME_LEN);
    Ok(Some(value))
}
