//! Reading: gets of one key and of several, iterators, snapshots.

use std::sync::Arc;

use base::stats::Activity;
use base::{Error, Result, SequenceNumber};

use super::{ColumnFamily, Db};
use crate::read::entries::{self, Entries, KeyBounds, KeyRange};
use crate::read::get;
use crate::read::iter::DbIterator;
use crate::read::options::ReadOptions;
use crate::read::sources::Origin;
use crate::shared::snapshot::Snapshot;
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
            &self.shared.info,
            &self.shared.writes,
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
            &self.shared.info,
            &self.shared.writes,
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
        get::get(
            &self.shared.info,
            &self.shared.writes,
            lookup.with(&self.shared.writes, options),
            sequence,
        )
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

/// Reads of several keys, and checks without reading values.
impl Db {
    /// The values of several keys in the default column family, all as of the same moment, in the order of `keys`.
    pub fn multi_get<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<Option<Vec<u8>>>> {
        self.multi_get_opt(&ReadOptions::default(), &self.default_column_family(), keys)
    }

    /// [`Db::multi_get`] from a column family.
    pub fn multi_get_cf<K: AsRef<[u8]>>(
        &self,
        family: &ColumnFamily,
        keys: &[K],
    ) -> Vec<Result<Option<Vec<u8>>>> {
        self.multi_get_opt(&ReadOptions::default(), family, keys)
    }

    /// [`Db::multi_get_cf`] with options.
    pub fn multi_get_opt<K: AsRef<[u8]>>(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        keys: &[K],
    ) -> Vec<Result<Option<Vec<u8>>>> {
        let checked = self.shared.check_handle(&family.0);
        match checked.and_then(|()| self.read_sequence(options)) {
            Err(e) => keys.iter().map(|_| Err(e.clone())).collect(),
            Ok(sequence) => {
                let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
                let mut bytes = Some(options.value_size_soft_limit);
                let db = &self.shared;
                get::multi_get(
                    &db.info, &db.writes, &family.0, options, &keys, sequence, &mut bytes,
                )
            }
        }
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
    /// db.put_cf(&users, "7", "Ada")?;
    /// let read = ironstone::ReadOptions::default();
    /// let values = db.multi_get_families(&read, &[(&users, "7"), (&default, "7")]);
    /// assert_eq!(values[0].as_ref().unwrap().as_deref(), Some(&b"Ada"[..]));
    /// assert_eq!(values[1].as_ref().unwrap(), &None);
    /// # Ok::<(), ironstone::Error>(())
    /// ```
    pub fn multi_get_families<K: AsRef<[u8]>>(
        &self,
        options: &ReadOptions,
        keys: &[(&ColumnFamily, K)],
    ) -> Vec<Result<Option<Vec<u8>>>> {
        let mut out: Vec<Result<Option<Vec<u8>>>> = keys.iter().map(|_| Ok(None)).collect();
        let (sequence, _held) = match options.check().and_then(|()| self.one_moment(options)) {
            Ok(moment) => moment,
            Err(e) => return keys.iter().map(|_| Err(e.clone())).collect(),
        };
        let mut families: Vec<&ColumnFamily> = keys.iter().map(|(family, _)| *family).collect();
        families.sort_by_key(|family| (family.0.instance, family.id()));
        families.dedup_by(|a, b| Arc::ptr_eq(&a.0, &b.0));
        let mut bytes = Some(options.value_size_soft_limit);
        for family in families {
            let places = (0..keys.len()).filter(|&i| Arc::ptr_eq(&keys[i].0.0, &family.0));
            let (places, wanted): (Vec<usize>, Vec<&[u8]>) =
                places.map(|i| (i, keys[i].1.as_ref())).unzip();
            let found = if let Err(e) = self.shared.check_handle(&family.0) {
                wanted.iter().map(|_| Err(e.clone())).collect()
            } else {
                let (db, sequence) = (&self.shared, Some(sequence));
                get::multi_get(
                    &db.info, &db.writes, &family.0, options, &wanted, sequence, &mut bytes,
                )
            };
            for (place, value) in places.into_iter().zip(found) {
                out[place] = value;
            }
        }
        out
    }

    /// Iterators over several column families, all as of the same moment: RocksDB's `NewIterators`. Errors: as
    /// [`Db::iterator_cf`].
    pub fn new_iterators(
        &self,
        options: &ReadOptions,
        families: &[&ColumnFamily],
    ) -> Result<Vec<DbIterator>> {
        options.check_for_iterator()?;
        let (sequence, _held) = self.one_moment(options)?;
        let iterator = |family: &&ColumnFamily| {
            self.shared.check_handle(&family.0)?;
            let view = family.0.view.load_full();
            let origin = Origin::new(&self.shared, view, &family.0, options);
            Ok(DbIterator::new(Box::new(origin), sequence))
        };
        families.iter().map(iterator).collect()
    }

    /// The sequence number at which several families can be read, and the snapshot that protects it until their
    /// Views are loaded: every View that is loaded later contains all that is visible at that number.
    fn one_moment(&self, options: &ReadOptions) -> Result<(SequenceNumber, Option<Snapshot>)> {
        if let Some(sequence) = self.snapshot_sequence(options)? {
            return Ok((sequence, None));
        }
        let held = self.snapshot();
        Ok((held.sequence(), Some(held)))
    }

    /// False if `key` is certainly not in the default column family. True if it is there, or if finding out would
    /// require reading a file.
    pub fn key_may_exist(&self, key: impl AsRef<[u8]>) -> bool {
        self.key_may_exist_opt(&ReadOptions::default(), &self.default_column_family(), key)
    }

    /// [`Db::key_may_exist`] in a column family.
    pub fn key_may_exist_cf(&self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> bool {
        self.key_may_exist_opt(&ReadOptions::default(), family, key)
    }

    /// [`Db::key_may_exist_cf`] with options. Also false for a handle or snapshot of another database.
    pub fn key_may_exist_opt(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> bool {
        let checked = self.shared.check_handle(&family.0);
        let Ok(sequence) = checked.and_then(|()| self.read_sequence(options)) else {
            return false;
        };
        let tables = table::ReadOptions {
            cache_only: true,
            ..options.for_tables()
        };
        let lookup = get::Lookup::new(&family.0, &tables, key.as_ref());
        let found = get::exists(
            &self.shared.info,
            &self.shared.writes,
            lookup.with(&self.shared.writes, options),
            sequence,
        );
        found.unwrap_or(true) // the key may exist if the read fails or needs a file
    }
}
