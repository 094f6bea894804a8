//! Operations besides put, get and delete: merges, single deletions, wide-column entities, several
//! keys at once, and the cheap question whether a key may exist.

use base::Result;

use crate::batch::WriteBatch;
use crate::db::{ColumnFamily, Db, lookup};
use crate::entity::WideColumns;
use crate::options::{ReadOptions, WriteOptions};
use crate::read::get;

/// Records for column families by handle.
impl WriteBatch {
    /// Removes `key`, which was put exactly once since it was last removed, from a column family.
    pub fn single_delete_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.single_delete_cf_id(family.id(), key.as_ref())
    }

    /// Gives a column family's merge operator an operand for `key`.
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
    /// Gives the default column family's merge operator an operand for `key`. Errors:
    /// `InvalidArgument` if the family has no operator.
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

/// Removing keys that are put once.
impl Db {
    /// Removes `key` from the default column family. It must have been put exactly once since it
    /// was last removed, and not merged: then the put and the removal vanish together as soon as a
    /// compaction sees both. With other keys what becomes visible is not defined; a compaction that
    /// finds a [`Db::delete`] of the key instead fails, see `enforce_single_del_contracts`.
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

/// Wide-column entities: values with named columns. A plain read gives the default column, the one
/// with the empty name; a plain value is an entity that has only it.
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
        let sequence = self.snapshot_sequence(options)?;
        let tables = options.for_tables();
        let lookup = lookup(&family.0, &tables, key.as_ref());
        get::get_entity(&self.shared, lookup.with(options), sequence)
    }
}

/// Several keys, and keys without their values.
impl Db {
    /// The values of keys in the default column family, all as of one moment, in the order of
    /// `keys`.
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
        match checked.and_then(|()| self.snapshot_sequence(options)) {
            Err(e) => keys.iter().map(|_| Err(e.duplicate())).collect(),
            Ok(sequence) => {
                let keys: Vec<&[u8]> = keys.iter().map(AsRef::as_ref).collect();
                get::multi_get(&self.shared, &family.0, options, &keys, sequence)
            }
        }
    }

    /// False if `key` is certainly not in the default column family; true if it is, or if reading
    /// a file would be needed to know.
    pub fn key_may_exist(&self, key: impl AsRef<[u8]>) -> bool {
        self.key_may_exist_opt(&ReadOptions::default(), &self.default_column_family(), key)
    }

    /// [`Db::key_may_exist`] in a column family.
    pub fn key_may_exist_cf(&self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> bool {
        self.key_may_exist_opt(&ReadOptions::default(), family, key)
    }

    /// [`Db::key_may_exist_cf`] with options. False too with a handle or snapshot of another
    /// database.
    pub fn key_may_exist_opt(
        &self,
        options: &ReadOptions,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
    ) -> bool {
        let checked = self.shared.check_handle(&family.0);
        let Ok(sequence) = checked.and_then(|()| self.snapshot_sequence(options)) else {
            return false;
        };
        let tables = table::ReadOptions {
            cache_only: true,
            ..options.for_tables()
        };
        let lookup = lookup(&family.0, &tables, key.as_ref());
        let found = get::exists(&self.shared, lookup.with(options), sequence);
        found.unwrap_or(true) // what cannot be read, or not without a file, may exist
    }
}
