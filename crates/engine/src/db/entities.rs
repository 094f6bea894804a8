//! Wide-column entities.

use base::Result;

use super::{ColumnFamily, Db};
use crate::batch::WriteBatch;
use crate::read::get;
use crate::read::options::ReadOptions;
use base::values::entity::WideColumns;
use options::WriteOptions;
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
        get::get_entity(
            &self.shared.info,
            &self.shared.writes,
            lookup.with(&self.shared.writes, options),
            sequence,
        )
    }
}
