//! Databases whose values expire: RocksDB's `DBWithTTL`.
//!
//! Each value ends with the time at which it was written: four bytes, little-endian, seconds since 1970. Nothing
//! else marks such a database, so it must always be opened with [`Db::open_with_ttl`]. Expired values are removed
//! by compactions; until then they are still visible to reads.
//!
//! Merge operands end with a time too. The operator gets operands and base values without their times, and the
//! merged result gets the time of the merge. Operands do not expire, but base values do.

use std::path::Path;
use std::sync::Arc;

use base::clock::Clock;
use base::merge::MergeOperator;
use base::{Error, Result};

use super::cf::{CallOptions, Cf};
use super::{ColumnFamily, Db};
use crate::batch::{Record, WriteBatch};
use crate::read::futures::ReadFuture;
use crate::read::iter::DbIterator;
use options::hooks::filter::{
    CompactionFilter, CompactionFilterFactory, FilterContext, FilterDecision, FilterValue,
};
use options::{ColumnFamilyOptions, Options};

/// Length in bytes of the time at the end of each value.
const TIME_LEN: usize = 4;
/// RocksDB's time to live did not exist before this time: a smaller number is not a valid time.
const FIRST_TIME: i32 = 1_368_146_402;

/// A database whose values end with the time at which they were written.
#[derive(Debug)]
pub struct DbWithTtl {
    db: Db,
    clock: Arc<dyn Clock>,
    ttl: i32,
}

impl Db {
    /// Opens a database whose values carry times, with all of its column families, or creates one. A value is
    /// removed when a compaction finds it more than `ttl` seconds after it was written; never if `ttl` is 0 or
    /// less.
    ///
    /// Errors: as [`Db::open_all`].
    pub fn open_with_ttl(path: impl AsRef<Path>, options: &Options, ttl: i32) -> Result<DbWithTtl> {
        let clock = base::clock::guarded(&options.env.clock);
        let mut options = options.clone();
        options.cf = timed(&options.cf, &clock, ttl);
        let db = if options.env.fs.exists(&path.as_ref().join("CURRENT"))? {
            Self::open_all(path, &options)?
        } else {
            Self::open(path, &options)?
        };
        Ok(DbWithTtl { db, clock, ttl })
    }
}

impl DbWithTtl {
    /// [`Db::create_column_family`] with a time to live of its own: RocksDB's `CreateColumnFamilyWithTtl`. When the
    /// database is opened again, the family gets the database's time to live.
    pub fn create_column_family_with_ttl(
        &self,
        name: &str,
        options: &ColumnFamilyOptions,
        ttl: i32,
    ) -> Result<ColumnFamily> {
        let options = timed(options, &self.clock, ttl);
        self.db.create_column_family(name, &options)
    }

    /// The time to live in seconds.
    pub fn ttl(&self) -> i32 {
        self.ttl
    }

    /// The underlying database, whose values end with their times.
    pub fn base(&self) -> &Db {
        &self.db
    }

    /// [`Db::close`].
    pub fn close(self) -> Result<()> {
        self.db.close()
    }

    /// The database at one column family: see [`Db::cf`].
    pub fn cf<'a>(&'a self, family: &'a ColumnFamily) -> TtlCf<'a> {
        TtlCf {
            cf: self.db.cf(family),
            clock: &*self.clock,
        }
    }

    /// The database at its default column family, with options: see [`Db::with`].
    pub fn with<'a>(&'a self, options: &'a impl CallOptions) -> TtlCf<'a> {
        self.default_cf().with(options)
    }

    fn default_cf(&self) -> TtlCf<'_> {
        TtlCf {
            cf: self.db.default_cf(),
            clock: &*self.clock,
        }
    }

    /// [`Db::put`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.default_cf().put(key, value)
    }

    /// [`Db::merge`]. The operand gets the time of this call.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.default_cf().merge(key, operand)
    }

    /// [`Db::delete`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.default_cf().delete(key)
    }

    /// [`TtlCf::write`], whatever the families of the batch.
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.default_cf().write(batch)
    }

    /// [`Db::get`]. Errors: also `Corruption` if the value has no time.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.default_cf().get(key)
    }

    /// [`Db::get_async`]. Errors: also `Corruption` for a value that has no time.
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> ReadFuture<Result<Option<Vec<u8>>>> {
        self.default_cf().get_async(key)
    }

    /// [`Db::multi_get_async`]. Errors: also `Corruption` for a value that has no time.
    pub fn multi_get_async<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
    ) -> ReadFuture<Vec<Result<Option<Vec<u8>>>>> {
        self.default_cf().multi_get_async(keys)
    }

    /// [`Db::multi_get`]. Errors: also `Corruption` for a value that has no time.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Vec<u8>>>> {
        self.default_cf().multi_get(keys)
    }

    /// [`Db::iterator`].
    pub fn iterator(&self) -> Result<TtlIterator> {
        self.default_cf().iterator()
    }
}

/// A column family of a [`DbWithTtl`], with the options of the calls that are made through it: see [`Cf`].
#[derive(Clone, Copy)]
pub struct TtlCf<'a> {
    cf: Cf<'a>,
    clock: &'a dyn Clock,
}

impl std::fmt::Debug for TtlCf<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TtlCf({:?})", self.cf)
    }
}

impl<'a> TtlCf<'a> {
    /// [`Cf::with`].
    #[must_use = "the options are those of the result"]
    pub fn with(mut self, options: &'a impl CallOptions) -> Self {
        self.cf = self.cf.with(options);
        self
    }

    fn one(&self, add: impl FnOnce(&mut WriteBatch, u32) -> Result<()>) -> Result<()> {
        self.write(&self.cf.batch_of_one(add)?)
    }

    /// [`Cf::put`].
    pub fn put(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.one(|batch, id| batch.put_cf_id(id, key.as_ref(), value.as_ref()))
    }

    /// [`Cf::merge`]. The operand gets the time of this call.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.one(|batch, id| batch.merge_cf_id(id, key.as_ref(), operand.as_ref()))
    }

    /// [`Cf::delete`].
    pub fn delete(&self, key: impl AsRef<[u8]>) -> Result<()> {
        self.cf.delete(key)
    }

    /// Applies a batch atomically. Each value of the batch gets the time of this call. Errors: also `NotSupported` for
    /// records other than puts, merges and deletions.
    pub fn write(&self, batch: &WriteBatch) -> Result<()> {
        self.cf.write(&mut with_time(batch, now(self.clock))?)
    }

    /// [`Cf::get`]. Errors: also `Corruption` if the value has no time.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        without_time(self.cf.get(key)?)
    }

    /// [`Cf::get_async`]. Errors: also `Corruption` for a value that has no time.
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> ReadFuture<Result<Option<Vec<u8>>>> {
        let value = self.cf.get_async(key);
        ReadFuture::begin(async move { without_time(value.await?) })
    }

    /// [`Cf::multi_get_async`]. Errors: also `Corruption` for a value that has no time.
    pub fn multi_get_async<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
    ) -> ReadFuture<Vec<Result<Option<Vec<u8>>>>> {
        let found = self.cf.multi_get_async(keys);
        ReadFuture::begin(async move {
            let found = found.await.into_iter();
            found.map(|value| without_time(value?)).collect()
        })
    }

    /// [`Cf::multi_get`]. Errors: also `Corruption` for a value that has no time.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Vec<u8>>>> {
        let found = self.cf.multi_get(keys);
        found.into_iter().map(|v| without_time(v?)).collect()
    }

    /// [`Cf::iterator`].
    pub fn iterator(&self) -> Result<TtlIterator> {
        self.cf.iterator().map(TtlIterator)
    }
}

/// An iterator over values with times. Move it through the [`DbIterator`] that [`TtlIterator::inner`] returns.
pub struct TtlIterator(DbIterator);

impl std::fmt::Debug for TtlIterator {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TtlIterator(valid: {})", self.valid())
    }
}

impl TtlIterator {
    /// The underlying iterator, which moves this iterator.
    pub fn inner(&mut self) -> &mut DbIterator {
        &mut self.0
    }

    /// Whether the iterator is at an entry.
    pub fn valid(&self) -> bool {
        self.0.valid()
    }

    /// The key of the entry. Only when valid.
    pub fn key(&self) -> &[u8] {
        self.0.key()
    }

    /// The value of the entry without its time; empty if it is too short to contain one. Only when valid.
    pub fn value(&self) -> &[u8] {
        let value = self.0.value();
        let end = value.len().saturating_sub(TIME_LEN);
        value.get(..end).unwrap_or_default()
    }

    /// When the value was written, in seconds since 1970. Only when valid. Errors: `Corruption` if the value has no
    /// time.
    pub fn ttl_timestamp(&self) -> Result<i32> {
        time_of(self.0.value())
    }
}

fn with_time(batch: &WriteBatch, now: i32) -> Result<WriteBatch> {
    let mut out = WriteBatch::with_capacity(batch.approximate_size() + 64);
    let mut value_and_time = Vec::new();
    let mut stamped = |value: &[u8]| {
        value_and_time.clear();
        value_and_time.extend_from_slice(value);
        value_and_time.extend_from_slice(&now.to_le_bytes());
        std::mem::take(&mut value_and_time)
    };
    for record in batch.records() {
        match record? {
            Record::Put { cf, key, value } => out.put_cf_id(cf, key, &stamped(value))?,
            Record::Merge { cf, key, operand } => out.merge_cf_id(cf, key, &stamped(operand))?,
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

/// The options with a filter that removes expired values before the application's own filter sees them, and with a
/// merge operator that handles times.
fn timed(options: &ColumnFamilyOptions, clock: &Arc<dyn Clock>, ttl: i32) -> ColumnFamilyOptions {
    let mut out = options.clone();
    let filter = out.compaction_filter.take();
    let factory = out.compaction_filter_factory.take();
    out.compaction_filter_factory = Some(Arc::new(TtlFilterFactory {
        ttl,
        clock: Arc::clone(clock),
        filter,
        factory,
    }));
    out.merge_operator = out.merge_operator.map(|inner| {
        let clock = Arc::clone(clock);
        Arc::new(TtlMergeOperator { inner, clock }) as Arc<dyn MergeOperator>
    });
    out
}

/// Wraps the application's operator, which knows nothing about times.
struct TtlMergeOperator {
    inner: Arc<dyn MergeOperator>,
    clock: Arc<dyn Clock>,
}

impl TtlMergeOperator {
    fn with_time(&self, mut merged: Vec<u8>) -> Vec<u8> {
        merged.extend_from_slice(&now(&*self.clock).to_le_bytes());
        merged
    }
}

/// The operands without their times; `None` if an operand is too short to contain a time.
fn without_times<'a>(operands: &[&'a [u8]]) -> Option<Vec<&'a [u8]>> {
    operands.iter().map(|o| plain(o)).collect()
}

fn plain(with_time: &[u8]) -> Option<&[u8]> {
    with_time.split_last_chunk::<TIME_LEN>().map(|(p, _)| p)
}

fn now(clock: &dyn Clock) -> i32 {
    (clock.wall_micros() / 1_000_000) as i32
}

impl MergeOperator for TtlMergeOperator {
    fn name(&self) -> &'static str {
        "TtlMergeOperator"
    }

    fn full_merge(
        &self,
        key: &[u8],
        existing: Option<&[u8]>,
        operands: &[&[u8]],
    ) -> Option<Vec<u8>> {
        let existing = match existing {
            Some(value) => Some(plain(value)?),
            None => None,
        };
        let merged = self
            .inner
            .full_merge(key, existing, &without_times(operands)?)?;
        Some(self.with_time(merged))
    }

    fn partial_merge(&self, key: &[u8], operands: &[&[u8]]) -> Option<Vec<u8>> {
        let merged = self.inner.partial_merge(key, &without_times(operands)?)?;
        Some(self.with_time(merged))
    }

    fn allow_single_operand(&self) -> bool {
        self.inner.allow_single_operand()
    }
}

/// Makes a [`TtlFilter`] around the application's filter.
struct TtlFilterFactory {
    ttl: i32,
    clock: Arc<dyn Clock>,
    filter: Option<Arc<dyn CompactionFilter>>,
    factory: Option<Arc<dyn CompactionFilterFactory>>,
}

impl CompactionFilterFactory for TtlFilterFactory {
    fn name(&self) -> &'static str {
        "TtlCompactionFilterFactory"
    }

    fn create(&self, context: &FilterContext) -> Option<Box<dyn CompactionFilter>> {
        let inner = match (&self.filter, &self.factory) {
            (Some(filter), _) => Inner::Shared(Arc::clone(filter)),
            (None, Some(factory)) => factory.create(context).map_or(Inner::None, Inner::Own),
            (None, None) => Inner::None,
        };
        Some(Box::new(TtlFilter {
            ttl: self.ttl,
            now: i64::from(now(&*self.clock)),
            inner,
        }))
    }
}

/// The application's filter.
enum Inner {
    None,
    Shared(Arc<dyn CompactionFilter>),
    Own(Box<dyn CompactionFilter>),
}

/// Removes values that have expired.
struct TtlFilter {
    ttl: i32,
    /// When the compaction began, in seconds since 1970.
    now: i64,
    inner: Inner,
}

impl CompactionFilter for TtlFilter {
    fn name(&self) -> &'static str {
        "Delete By TTL"
    }

    fn filter(&self, level: usize, key: &[u8], value: FilterValue<'_>) -> FilterDecision {
        let FilterValue::Value(with_time) = value else {
            return FilterDecision::Keep;
        };
        // A value without a valid time stays, so that a read can report the corruption.
        let Ok(time) = time_of(with_time) else {
            return FilterDecision::Keep;
        };
        if self.ttl > 0 && i64::from(time) + i64::from(self.ttl) < self.now {
            return FilterDecision::Remove;
        }
        let inner: &dyn CompactionFilter = match &self.inner {
            Inner::None => return FilterDecision::Keep,
            Inner::Shared(filter) => &**filter,
            Inner::Own(filter) => &**filter,
        };
        let plain = with_time.get(..with_time.len() - TIME_LEN);
        let plain = FilterValue::Value(plain.unwrap_or_default());
        match inner.filter(level, key, plain) {
            FilterDecision::ChangeValue(mut value) => {
                value.extend_from_slice(&time.to_le_bytes());
                FilterDecision::ChangeValue(value)
            }
            other => other,
        }
    }
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
