//! Wide-column entities.

use base::Result;

use super::Db;
use super::cf::Cf;
use crate::read::get;
use base::values::entity::WideColumns;

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
impl Cf<'_> {
    /// Sets `key` to an entity.
    pub fn put_entity(&self, key: impl AsRef<[u8]>, columns: &WideColumns) -> Result<()> {
        self.one(|batch, id| batch.put_entity_cf_id(id, key.as_ref(), columns))
    }

    /// The columns of `key`. Errors: as [`Cf::get`].
    pub fn get_entity(&self, key: impl AsRef<[u8]>) -> Result<Option<WideColumns>> {
        self.check()?;
        let options = self.read_options();
        let sequence = self.read_sequence()?;
        let tables = options.for_tables();
        let lookup = get::Lookup::new(self.family, &tables, key.as_ref());
        let db = self.shared;
        get::get_entity(
            &db.info,
            &db.writes,
            lookup.with(&db.writes, &options),
            sequence,
        )
    }
}

/// Entities of the default column family.
impl Db {
    /// Sets `key` to an entity: see [`Cf::put_entity`].
    pub fn put_entity(&self, key: impl AsRef<[u8]>, columns: &WideColumns) -> Result<()> {
        self.default_cf().put_entity(key, columns)
    }

    /// The columns of `key`: see [`Cf::get_entity`].
    pub fn get_entity(&self, key: impl AsRef<[u8]>) -> Result<Option<WideColumns>> {
        self.default_cf().get_entity(key)
    }
}
