//! Reading: gets of one key and of several, iterators, snapshots.

use std::borrow::Cow;
use std::sync::Arc;

use base::stats::Activity;
use base::{Error, Result, SequenceNumber};

use super::cf::Cf;
use super::{ColumnFamily, Db};
use crate::read::block_reads::Wait;
use crate::read::entries::{self, Entries, KeyBounds, KeyRange};
use crate::read::futures::{self, Asked, ReadFuture};
use crate::read::get;
use crate::read::iter::DbIterator;
use crate::read::multi_get::{self, Moment, at_once};
use crate::read::multi_scan::MultiScan;
use crate::read::options::ReadOptions;
use crate::read::pinned::PinnedValue;
use crate::read::sources::Origin;
use crate::shared::snapshot::Snapshot;

/// Reading.
impl Cf<'_> {
    /// The value of `key`. For a wide-column entity this is its default column, which is empty if the entity has none.
    ///
    /// Errors: `InvalidArgument` for a snapshot or family of another database; `NotSupported`, with its name, for an
    /// option that is not supported.
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        let mut value = Vec::new();
        let found = self.get_to(key.as_ref(), &mut value)?;
        Ok(found.then_some(value))
    }

    /// Sets `value` to the value of `key`, and returns whether there is one; otherwise `value` is empty. Its memory is
    /// used if it suffices, unless the value must be merged: that saves an allocation, which is worth it for many reads,
    /// and for values of a megabyte.
    ///
    /// Errors: as [`Cf::get`]; `value` is then empty.
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let mut options = ironstone::Options::default();
    /// # options.db.create_if_missing = true;
    /// # let db = ironstone::Db::open(dir.path(), &options)?;
    /// db.put("1", "one")?;
    /// let mut value = Vec::new();
    /// assert!(db.get_into("1", &mut value)?);
    /// assert_eq!(value, b"one");
    /// assert!(!db.get_into("2", &mut value)? && value.is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        value.clear();
        self.get_to(key.as_ref(), value)
    }

    /// [`Cf::get_into`], if `value` is empty.
    #[inline]
    fn get_to(&self, key: &[u8], value: &mut Vec<u8>) -> Result<bool> {
        self.looked_up(key, |lookup, sequence| {
            get::get(
                &self.shared.info,
                &self.shared.writes,
                lookup,
                sequence,
                value,
            )
        })
    }

    /// Looks `key` up as the options say.
    #[inline]
    fn looked_up<T>(
        &self,
        key: &[u8],
        get: impl FnOnce(get::Lookup<'_>, Option<SequenceNumber>) -> Result<T>,
    ) -> Result<T> {
        self.check()?;
        let sequence = self.read_sequence()?;
        let Some(options) = self.read else {
            let tables = table::ReadOptions {
                activity: Activity::Get,
                ..table::ReadOptions::default()
            };
            return get(get::Lookup::new(self.family, &tables, key), sequence);
        };
        let tables = options.for_tables();
        let lookup = get::Lookup::new(self.family, &tables, key);
        get(lookup.with(&self.shared.writes, options), sequence)
    }

    /// The value of `key` without a copy: see [`PinnedValue`]. Worth it for values from about a kilobyte on.
    ///
    /// Errors: as [`Cf::get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let mut options = ironstone::Options::default();
    /// # options.db.create_if_missing = true;
    /// # let db = ironstone::Db::open(dir.path(), &options)?;
    /// db.put("picture", [7; 4096])?;
    /// let picture = db.get_pinned("picture")?.expect("it was put");
    /// db.delete("picture")?;
    /// assert_eq!(picture.len(), 4096);
    /// assert!(db.get_pinned("picture")?.is_none());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_pinned(&self, key: impl AsRef<[u8]>) -> Result<Option<PinnedValue>> {
        let key = key.as_ref();
        self.looked_up(key, |lookup, sequence| {
            get::get_pinned(&self.shared.info, &self.shared.writes, lookup, sequence)
        })
    }

    /// Calls `read` with the value of `key`, which is not copied, and returns its result; `None` if the key does not
    /// exist. No lock is held during the call.
    ///
    /// Errors: as [`Cf::get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let mut options = ironstone::Options::default();
    /// # options.db.create_if_missing = true;
    /// # let db = ironstone::Db::open(dir.path(), &options)?;
    /// db.put("words", "a few words")?;
    /// let words = db.get_with("words", |value| value.split(|&b| b == b' ').count())?;
    /// assert_eq!(words, Some(3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_with<T>(
        &self,
        key: impl AsRef<[u8]>,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        Ok(self.get_pinned(key)?.map(|value| read(&value)))
    }

    /// [`Cf::get`] as a future, for any executor: see [`ReadFuture`]. The lookup begins now. One thread can have many of them
    /// on their way, which keeps a device busy that does many reads at once.
    ///
    /// Errors: as [`Cf::get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir()?;
    /// # let mut options = ironstone::Options::default();
    /// # options.db.create_if_missing = true;
    /// # let db = ironstone::Db::open(dir.path(), &options)?;
    /// db.put("1", "one")?;
    /// db.put("2", "two")?;
    /// let both = async {
    ///     let (one, two) = futures::future::join(db.get_async("1"), db.get_async("2")).await;
    ///     Ok::<_, ironstone::Error>((one?, two?))
    /// };
    /// let (one, two) = futures::executor::block_on(both)?;
    /// assert_eq!(one.as_deref(), Some(&b"one"[..]));
    /// assert_eq!(two.as_deref(), Some(&b"two"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> ReadFuture<Result<Option<Vec<u8>>>> {
        let key = key.as_ref().to_vec();
        let asked = self.asked();
        ReadFuture::begin(async move { futures::get(asked?, key).await })
    }

    /// [`Cf::multi_get`] as a future, for any executor: see [`ReadFuture`]. The lookup begins now. The blocks of all keys are
    /// read at the same time; after each 32 keys, other tasks may go on.
    ///
    /// Errors of each key: as [`Cf::multi_get`].
    pub fn multi_get_async<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
    ) -> ReadFuture<Vec<Result<Option<Vec<u8>>>>> {
        let keys: Vec<Vec<u8>> = keys.iter().map(|key| key.as_ref().to_vec()).collect();
        let asked = self.asked();
        ReadFuture::begin(async move {
            match asked {
                Ok(asked) => futures::multi_get(asked, keys).await,
                Err(e) => keys.iter().map(|_| Err(e.clone())).collect(),
            }
        })
    }

    /// What a future needs. Errors: as [`Cf::get`].
    fn asked(&self) -> Result<Asked> {
        self.check()?;
        Ok(Asked {
            sequence: self.read_sequence()?,
            shared: Arc::clone(self.shared),
            family: Arc::clone(self.family),
            options: self.options_with_snapshot().into_owned(),
        })
    }

    /// A cursor over the family. Errors: as [`Cf::get`].
    pub fn iterator(&self) -> Result<DbIterator> {
        iterator(self, self.options_with_snapshot())
    }

    /// The entries whose keys are in a range: `db.cf(&users).range("a".."b")?`, or `..` for all keys. See [`Entries`].
    /// `prefix_same_as_start` has no effect, because the range defines the end.
    ///
    /// Errors: as [`Cf::get`]; `InvalidArgument` if the options set bounds or `tailing`.
    pub fn range(&self, range: impl KeyBounds) -> Result<Entries> {
        entries(self, range.into_bounds())
    }

    /// The entries whose keys begin with `prefix`. See [`Entries`].
    ///
    /// Errors: as [`Cf::range`]; `InvalidArgument` for a comparator that is not known to sort keys with the same
    /// prefix next to each other.
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Entries> {
        let range = entries::of_prefix(prefix.as_ref(), self.family.comparator())?;
        entries(self, range)
    }

    /// The entries of several ranges, all as of the same moment, in the order of `ranges`: see [`MultiScan`].
    ///
    /// Errors: as [`Cf::range`].
    pub fn multi_scan<R: KeyBounds>(
        &self,
        ranges: impl IntoIterator<Item = R>,
    ) -> Result<MultiScan> {
        let options = without_bounds(self.options_with_snapshot())?;
        let (origin, sequence) = origin(self, options)?;
        let ranges = ranges.into_iter().map(KeyBounds::into_bounds).collect();
        Ok(MultiScan::new(origin, sequence, ranges))
    }

    /// The values of several keys, all as of the same moment, in the order of `keys`.
    ///
    /// Errors of each key: as [`Cf::get`]; `Aborted` after the values found so far exceed
    /// [`ReadOptions::value_size_soft_limit`]. Keys are looked up in the order of the comparator.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Vec<u8>>>> {
        self.all_looked_up(keys, |moment, keys, out| {
            at_once(multi_get::multi_get(self.parts(), moment, keys, out));
        })
    }

    /// [`Cf::multi_get`] without copies: see [`PinnedValue`]. Errors of each key: as [`Cf::multi_get`].
    pub fn multi_get_pinned<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<PinnedValue>>> {
        self.all_looked_up(keys, |moment, keys, out| {
            at_once(multi_get::multi_get_pinned(self.parts(), moment, keys, out));
        })
    }

    fn parts(&self) -> multi_get::Parts<'_> {
        multi_get::Parts {
            info: &self.shared.info,
            writes: &self.shared.writes,
            queues: &self.shared.read_queues,
            wait: Wait::Blocks,
        }
    }

    /// Looks `keys` up with `get`, as the options say.
    fn all_looked_up<K: AsRef<[u8]>, T>(
        &self,
        keys: &[K],
        get: impl FnOnce(Moment<'_>, Vec<multi_get::Keys<'_>>, &mut [Result<Option<T>>]),
    ) -> Vec<Result<Option<T>>> {
        let options = self.read_options();
        let checked = self.check();
        match checked.and_then(|()| self.read_sequence()) {
            Err(e) => keys.iter().map(|_| Err(e.clone())).collect(),
            Ok(sequence) => {
                let mut out: Vec<_> = keys.iter().map(|_| Ok(None)).collect();
                let keys = keys.iter().map(AsRef::as_ref).enumerate().collect();
                let family = self.family;
                let keys = vec![multi_get::Keys { family, keys }];
                let options = &options;
                get(Moment { options, sequence }, keys, &mut out);
                out
            }
        }
    }

    /// The values of keys in several column families, all as of the same moment, in the order of `keys`. The family of
    /// `self` has no effect. Errors: as [`Cf::multi_get`]. See [`Db::multi_get_families`] for an example.
    pub fn multi_get_families<K: AsRef<[u8]>>(
        &self,
        keys: &[(&ColumnFamily, K)],
    ) -> Vec<Result<Option<Vec<u8>>>> {
        multi_get_families(self, keys)
    }

    /// Cursors over several column families, all as of the same moment: RocksDB's `NewIterators`. The family of `self`
    /// has no effect. Errors: as [`Cf::get`].
    pub fn iterators(&self, families: &[&ColumnFamily]) -> Result<Vec<DbIterator>> {
        let options = self.options_with_snapshot();
        options.check_for_iterator()?;
        let (sequence, _held) = self.one_moment()?;
        let iterator = |family: &&ColumnFamily| {
            self.shared.check_handle(&family.0)?;
            let view = family.0.view.load_full();
            let origin = Origin::new(self.shared, view, &family.0, Cow::Borrowed(&*options));
            Ok(DbIterator::new(Box::new(origin), sequence))
        };
        families.iter().map(iterator).collect()
    }

    /// False if `key` is certainly not in the family, and for a handle or snapshot of another database. True if it is
    /// there, or if finding out would require reading a file.
    pub fn key_may_exist(&self, key: impl AsRef<[u8]>) -> bool {
        let options = self.read_options();
        let checked = self.check();
        let Ok(sequence) = checked.and_then(|()| self.read_sequence()) else {
            return false;
        };
        let tables = table::ReadOptions {
            cache_only: true,
            ..options.for_tables()
        };
        let lookup = get::Lookup::new(self.family, &tables, key.as_ref());
        let db = self.shared;
        let found = get::exists(
            &db.info,
            &db.writes,
            lookup.with(&db.writes, &options),
            sequence,
        );
        found.unwrap_or(true) // the key may exist if the read fails or needs a file
    }
}

/// See [`Cf::iterator`].
fn iterator(cf: &Cf<'_>, options: Cow<'_, ReadOptions>) -> Result<DbIterator> {
    let (origin, sequence) = origin(cf, options)?;
    Ok(DbIterator::new(Box::new(origin), sequence))
}

/// The content for iterators, and the sequence number to read at.
fn origin(cf: &Cf<'_>, options: Cow<'_, ReadOptions>) -> Result<(Origin, SequenceNumber)> {
    cf.check()?;
    options.check_for_iterator()?;
    let sequence = cf.snapshot_sequence()?;
    let origin = Origin::new(cf.shared, cf.family.view.load_full(), cf.family, options);
    let sequence = sequence.unwrap_or_else(|| cf.shared.writes.visible());
    Ok((origin, sequence))
}

/// The options, if a range can say where an iterator begins and ends.
fn without_bounds(options: Cow<'_, ReadOptions>) -> Result<Cow<'_, ReadOptions>> {
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
    Ok(options)
}

fn entries(cf: &Cf<'_>, range: KeyRange) -> Result<Entries> {
    let options = without_bounds(cf.options_with_snapshot())?;
    let comparator = cf.family.comparator();
    let options = entries::bounded(&options, comparator, &range);
    let cursor = iterator(cf, Cow::Owned(options))?;
    Ok(Entries::new(cursor, comparator.clone(), range))
}

/// See [`Db::multi_get_families`].
fn multi_get_families<K: AsRef<[u8]>>(
    cf: &Cf<'_>,
    keys: &[(&ColumnFamily, K)],
) -> Vec<Result<Option<Vec<u8>>>> {
    let (db, options) = (cf.shared, &*cf.read_options());
    let mut out: Vec<Result<Option<Vec<u8>>>> = keys.iter().map(|_| Ok(None)).collect();
    let (sequence, _held) = match options.check().and_then(|()| cf.one_moment()) {
        Ok(moment) => moment,
        Err(e) => return keys.iter().map(|_| Err(e.clone())).collect(),
    };
    let mut families: Vec<&ColumnFamily> = keys.iter().map(|(family, _)| *family).collect();
    families.sort_by_key(|family| (family.0.instance, family.id()));
    families.dedup_by(|a, b| Arc::ptr_eq(&a.0, &b.0));
    let mut wanted = Vec::with_capacity(families.len());
    for family in families {
        let places = (0..keys.len()).filter(|&i| Arc::ptr_eq(&keys[i].0.0, &family.0));
        if let Err(e) = db.check_handle(&family.0) {
            places.for_each(|place| out[place] = Err(e.clone()));
            continue;
        }
        wanted.push(multi_get::Keys {
            family: &family.0,
            keys: places.map(|i| (i, keys[i].1.as_ref())).collect(),
        });
    }
    let sequence = Some(sequence);
    let moment = Moment { options, sequence };
    at_once(multi_get::multi_get(cf.parts(), moment, wanted, &mut out));
    out
}

impl Cf<'_> {
    /// The sequence number at which several families can be read, and the snapshot that protects it until their
    /// Views are loaded. Every View that is loaded later contains everything that is visible at that number.
    fn one_moment(&self) -> Result<(SequenceNumber, Option<Snapshot>)> {
        if let Some(sequence) = self.snapshot_sequence()? {
            return Ok((sequence, None));
        }
        let held = Snapshot::take(self.shared);
        Ok((held.sequence(), Some(held)))
    }
}

/// Reading the default column family, with default options. Use [`Db::cf`] for other families and [`Db::with`] for
/// other options.
impl Db {
    /// The value of `key`: see [`Cf::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.default_cf().get(key)
    }

    /// Sets `value` to the value of `key`: see [`Cf::get_into`].
    pub fn get_into(&self, key: impl AsRef<[u8]>, value: &mut Vec<u8>) -> Result<bool> {
        self.default_cf().get_into(key, value)
    }

    /// The value of `key` without a copy: see [`Cf::get_pinned`].
    pub fn get_pinned(&self, key: impl AsRef<[u8]>) -> Result<Option<PinnedValue>> {
        self.default_cf().get_pinned(key)
    }

    /// Calls `read` with the value of `key`, which is not copied: see [`Cf::get_with`].
    pub fn get_with<T>(
        &self,
        key: impl AsRef<[u8]>,
        read: impl FnOnce(&[u8]) -> T,
    ) -> Result<Option<T>> {
        self.default_cf().get_with(key, read)
    }

    /// The value of `key`, as a future: see [`Cf::get_async`].
    pub fn get_async(&self, key: impl AsRef<[u8]>) -> ReadFuture<Result<Option<Vec<u8>>>> {
        self.default_cf().get_async(key)
    }

    /// The values of several keys, as a future: see [`Cf::multi_get_async`].
    pub fn multi_get_async<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
    ) -> ReadFuture<Vec<Result<Option<Vec<u8>>>>> {
        self.default_cf().multi_get_async(keys)
    }

    /// A cursor: see [`Cf::iterator`].
    pub fn iterator(&self) -> Result<DbIterator> {
        self.default_cf().iterator()
    }

    /// The entries whose keys are in a range: `db.range("a".."b")?`, or `..` for all keys. See [`Cf::range`].
    pub fn range(&self, range: impl KeyBounds) -> Result<Entries> {
        self.default_cf().range(range)
    }

    /// The entries whose keys begin with `prefix`: see [`Cf::prefix`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Entries> {
        self.default_cf().prefix(prefix)
    }

    /// The entries of several ranges: see [`Cf::multi_scan`].
    pub fn multi_scan<R: KeyBounds>(
        &self,
        ranges: impl IntoIterator<Item = R>,
    ) -> Result<MultiScan> {
        self.default_cf().multi_scan(ranges)
    }

    /// The values of several keys, all as of the same moment, in the order of `keys`. Errors: as [`Cf::multi_get`].
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Vec<u8>>>> {
        self.default_cf().multi_get(keys)
    }

    /// The values of several keys without copies: see [`Cf::multi_get_pinned`].
    pub fn multi_get_pinned<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<PinnedValue>>> {
        self.default_cf().multi_get_pinned(keys)
    }

    /// The values of keys in several column families, all as of the same moment, in the order of `keys`.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let mut options = ironstone::Options::default();
    /// # options.db.create_if_missing = true;
    /// # let db = ironstone::Db::open(dir.path(), &options)?;
    /// let users = db.create_column_family("users", &ironstone::ColumnFamilyOptions::default())?;
    /// let default = db.default_column_family();
    /// db.cf(&users).put("7", "Ada")?;
    /// let values = db.multi_get_families(&[(&users, "7"), (&default, "7")]);
    /// assert_eq!(values[0].as_ref().unwrap().as_deref(), Some(&b"Ada"[..]));
    /// assert_eq!(values[1].as_ref().unwrap(), &None);
    /// # Ok::<(), ironstone::Error>(())
    /// ```
    pub fn multi_get_families<K: AsRef<[u8]>>(
        &self,
        keys: &[(&ColumnFamily, K)],
    ) -> Vec<Result<Option<Vec<u8>>>> {
        self.default_cf().multi_get_families(keys)
    }

    /// Whether `key` may exist: see [`Cf::key_may_exist`].
    pub fn key_may_exist(&self, key: impl AsRef<[u8]>) -> bool {
        self.default_cf().key_may_exist(key)
    }

    /// A consistent view of the database as it is now.
    pub fn snapshot(&self) -> Snapshot {
        Snapshot::take(&self.shared)
    }

    /// The sequence number of the last write that is visible to reads.
    pub fn latest_sequence_number(&self) -> u64 {
        self.shared.writes.visible().0
    }
}

/// Reading the default column family as of the snapshot. `db.cf(&users).with(&snapshot)` reads other families. Each
/// of these methods fails with `ShutdownInProgress` if the database is closed.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let mut options = ironstone::Options::default();
/// # options.db.create_if_missing = true;
/// # let db = ironstone::Db::open(dir.path(), &options)?;
/// let users = db.create_column_family("users", &ironstone::ColumnFamilyOptions::default())?;
/// db.put("k", "old")?;
/// let snapshot = db.snapshot();
/// db.put("k", "new")?;
/// db.cf(&users).put("7", "Ada")?;
/// assert_eq!(snapshot.get("k")?.as_deref(), Some(&b"old"[..]));
/// assert_eq!(db.cf(&users).with(&snapshot).get("7")?, None);
/// # Ok::<(), ironstone::Error>(())
/// ```
impl Snapshot {
    /// Runs `read` on the default family at the snapshot.
    fn reading<T>(&self, read: impl FnOnce(Cf<'_>) -> Result<T>) -> Result<T> {
        let db = self.db()?;
        let families = db.catalog.families.load();
        read(Cf::new(&db, families.require(0)?).with(self))
    }

    /// The value of `key`: see [`Cf::get`].
    pub fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>> {
        self.reading(|cf| cf.get(key))
    }

    /// The value of `key` without a copy: see [`Cf::get_pinned`].
    pub fn get_pinned(&self, key: impl AsRef<[u8]>) -> Result<Option<PinnedValue>> {
        self.reading(|cf| cf.get_pinned(key))
    }

    /// A cursor: see [`Cf::iterator`].
    pub fn iterator(&self) -> Result<DbIterator> {
        self.reading(|cf| cf.iterator())
    }

    /// The entries whose keys are in a range: see [`Cf::range`].
    pub fn range(&self, range: impl KeyBounds) -> Result<Entries> {
        self.reading(|cf| cf.range(range))
    }

    /// The entries whose keys begin with `prefix`: see [`Cf::prefix`].
    pub fn prefix(&self, prefix: impl AsRef<[u8]>) -> Result<Entries> {
        self.reading(|cf| cf.prefix(prefix))
    }
}
