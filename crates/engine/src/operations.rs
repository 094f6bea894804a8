//! Operations besides put, get and delete: merges, single deletions, wide-column entities, reads of several keys or
//! column families at once, and the cheap check whether a key may exist.

use std::sync::Arc;

use base::{Error, ErrorKind, Result, SequenceNumber};

use crate::batch::WriteBatch;
use crate::db::{ColumnFamily, Db};
use crate::entity::WideColumns;
use crate::options::{ContinueCallback, GetMergeOperandsOptions, ReadOptions, WriteOptions};
use crate::read::get;
use crate::read::iter::DbIterator;
use crate::read::snapshot::Snapshot;
use crate::read::sources::Origin;

/// Records addressed to a column family by its handle.
impl WriteBatch {
    /// Removes `key` from a column family. It must have been put exactly once since it was last removed.
    pub fn single_delete_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.single_delete_cf_id(family.id(), key.as_ref())
    }

    /// Writes a merge operand for `key` in a column family.
    pub fn merge_cf(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.merge_cf_id(family.id(), key.as_ref(), operand.as_ref())
    }

    /// Sets `key` in a column family to a wide-column entity.
    pub fn put_entity_cf(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        columns: &WideColumns,
    ) -> Result<()> {
        self.put_entity_cf_id(family.id(), key.as_ref(), columns)
    }
}

/// Merging: a write that changes a value without reading it.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// use ironstone::merge_operators::UInt64AddOperator;
/// let mut options = ironstone::Options::default();
/// options.db.create_if_missing = true;
/// options.cf.merge_operator = Some(std::sync::Arc::new(UInt64AddOperator));
/// let db = ironstone::Db::open(dir.path(), &options)?;
/// db.merge("visits", 2u64.to_le_bytes())?;
/// db.merge("visits", 3u64.to_le_bytes())?;
/// assert_eq!(db.get("visits")?.unwrap(), 5u64.to_le_bytes());
/// # Ok::<(), ironstone::Error>(())
/// ```
impl Db {
    /// Writes a merge operand for `key` in the default column family. Errors: `InvalidArgument` if the family has
    /// no merge operator.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.merge(key, operand)?;
        self.write(batch)
    }

    /// [`Db::merge`] in a column family.
    pub fn merge_cf(
        &self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.merge_opt(&WriteOptions::default(), family, key, operand)
    }

    /// [`Db::merge_cf`] with options.
    pub fn merge_opt(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        operand: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.shared.check_handle(&family.0)?;
        let mut batch = WriteBatch::new();
        batch.merge_cf(family, key, operand)?;
        self.write_opt(options, batch)
    }
}

/// Merge operands as they were written.
impl Db {
    /// The merge operands of `key` in a column family, oldest first, preceded by the base value if there is one:
    /// `GetMergeOperands`. Empty if the key does not exist. Operands that a compaction has already merged are
    /// returned as one operand, or as part of the base value.
    ///
    /// Errors: `Incomplete` if there are more than `max_operands`; `InvalidArgument` if there are operands and the
    /// family has no merge operator.
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # use ironstone::merge_operators::StringAppendOperator;
    /// # let mut options = ironstone::Options::default();
    /// # options.db.create_if_missing = true;
    /// # options.cf.merge_operator = Some(std::sync::Arc::new(StringAppendOperator::new(",")));
    /// # let db = ironstone::Db::open(dir.path(), &options)?;
    /// db.put("k", "a")?;
    /// db.merge("k", "b")?;
    /// let operands = db.get_merge_operands(&db.default_column_family(), "k", 10)?;
    /// assert_eq!(operands, [b"a", b"b"]);
    /// # Ok::<(), ironstone::Error>(())
    /// ```
    pub fn get_merge_operands(
        &self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        max_operands: usize,
    ) -> Result<Vec<Vec<u8>>> {
        let how = GetMergeOperandsOptions {
            expected_max_number_of_operands: max_operands,
            continue_cb: None,
        };
        self.get_merge_operands_opt(&ReadOptions::default(), family, key, how)
    }

    /// [`Db::get_merge_operands`] with options. Errors: also `Aborted` if `continue_cb` panics.
    pub fn get_merge_operands_opt(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        how: GetMergeOperandsOptions<'_>,
    ) -> Result<Vec<Vec<u8>>> {
        self.shared.check_handle(&family.0)?;
        let sequence = self.read_sequence(options)?;
        let tables = options.for_tables();
        let lookup = get::Lookup::new(&family.0, &tables, key.as_ref());
        let lookup = lookup.with(&self.shared, options);
        let goes_on = how.continue_cb.map(|ask| ask as ContinueCallback<'_>);
        let found = get::merge_operands(&self.shared, lookup, sequence, goes_on)?;
        let max = how.expected_max_number_of_operands;
        if found.len() > max {
            let message = format!(
                "Insufficient capacity for merge operands: there are {}, room for {max}",
                found.len()
            );
            return Err(Error::new(ErrorKind::Incomplete, message));
        }
        Ok(found)
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

/// Wide-column entities: values with named columns. A plain read returns the default column, whose name is empty. A
/// plain value is an entity with only that column.
///
/// ```
/// # let dir = tempfile::tempdir().unwrap();
/// # let mut options = ironstone::Options::default();
/// # options.db.create_if_missing = true;
/// # let db = ironstone::Db::open(dir.path(), &options)?;
/// let columns = ironstone::WideColumns::new([("", "Ada"), ("born", "1815")])?;
/// db.put_entity("1", &columns)?;
/// assert_eq!(db.get("1")?.unwrap(), b"Ada");
/// assert_eq!(db.get_entity("1")?.unwrap().get(b"born"), Some(&b"1815"[..]));
/// # Ok::<(), ironstone::Error>(())
/// ```
impl Db {
    /// Sets `key` in the default column family to an entity.
    pub fn put_entity(&self, key: impl AsRef<[u8]>, columns: &WideColumns) -> Result<()> {
        let mut batch = WriteBatch::new();
        batch.put_entity(key, columns)?;
        self.write(batch)
    }

    /// [`Db::put_entity`] in a column family.
    pub fn put_entity_cf(
        &self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        columns: &WideColumns,
    ) -> Result<()> {
        self.put_entity_opt(&WriteOptions::default(), family, key, columns)
    }

    /// [`Db::put_entity_cf`] with options.
    pub fn put_entity_opt(
        &self,
        options: &WriteOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        columns: &WideColumns,
    ) -> Result<()> {
        self.shared.check_handle(&family.0)?;
        let mut batch = WriteBatch::new();
        batch.put_entity_cf(family, key, columns)?;
        self.write_opt(options, batch)
    }

    /// The columns of `key` in the default column family.
    pub fn get_entity(&self, key: impl AsRef<[u8]>) -> Result<Option<WideColumns>> {
        let family = self.default_column_family();
        self.get_entity_opt(&ReadOptions::default(), &family, key)
    }

    /// [`Db::get_entity`] from a column family.
    pub fn get_entity_cf(
        &self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<WideColumns>> {
        self.get_entity_opt(&ReadOptions::default(), family, key)
    }

    /// [`Db::get_entity_cf`] with options.
    pub fn get_entity_opt(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> Result<Option<WideColumns>> {
        self.shared.check_handle(&family.0)?;
        let sequence = self.read_sequence(options)?;
        let tables = options.for_tables();
        let lookup = get::Lookup::new(&family.0, &tables, key.as_ref());
        get::get_entity(&self.shared, lookup.with(&self.shared, options), sequence)
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
                get::multi_get(db, &family.0, options, &keys, sequence, &mut bytes)
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
                get::multi_get(db, &family.0, options, &wanted, sequence, &mut bytes)
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
        let found = get::exists(&self.shared, lookup.with(&self.shared, options), sequence);
        found.unwrap_or(true) // the key may exist if the read fails or needs a file
    }
}
