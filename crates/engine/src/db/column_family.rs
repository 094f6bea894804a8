//! Handles of column families, and records of batches that are addressed by them.

use std::sync::Arc;

use base::Result;

use crate::batch::WriteBatch;
use crate::catalog::family::Family;
use base::values::entity::WideColumns;

/// A handle to a column family: cheap to clone, valid as long as the database is open. After the family is dropped,
/// the handle can still be used for reads, but not for writes.
pub struct ColumnFamily(pub(crate) Arc<Family>);

impl ColumnFamily {
    pub(crate) fn new(family: Arc<Family>) -> Self {
        family.handle_made();
        Self(family)
    }

    /// The family's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The family's id, which batches and the MANIFEST use.
    pub fn id(&self) -> u32 {
        self.0.id
    }
}

impl Clone for ColumnFamily {
    fn clone(&self) -> Self {
        Self::new(Arc::clone(&self.0))
    }
}

impl Drop for ColumnFamily {
    fn drop(&mut self) {
        self.0.handle_gone();
    }
}

impl std::fmt::Debug for ColumnFamily {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ColumnFamily({:?}, {})", self.name(), self.id())
    }
}

/// A batch at one column family, to which the records are added: see [`WriteBatch::cf`].
#[derive(Debug)]
pub struct BatchCf<'a> {
    batch: &'a mut WriteBatch,
    family: u32,
}

impl WriteBatch {
    /// The batch at one column family: `batch.cf(&users).put("7", "Ada")?`.
    ///
    /// ```
    /// # use ironstone::{ColumnFamilyOptions, Db, Options, WriteBatch};
    /// # let dir = tempfile::tempdir().unwrap();
    /// # let mut options = Options::default();
    /// # options.db.create_if_missing = true;
    /// # let db = Db::open(dir.path(), &options)?;
    /// let users = db.create_column_family("users", &ColumnFamilyOptions::default())?;
    /// let mut batch = WriteBatch::new();
    /// batch.put("last", "7")?;
    /// batch.cf(&users).put("7", "Ada")?;
    /// db.write(&mut batch)?;
    /// # Ok::<(), ironstone::Error>(())
    /// ```
    pub fn cf(&mut self, family: &ColumnFamily) -> BatchCf<'_> {
        BatchCf {
            family: family.id(),
            batch: self,
        }
    }

    /// The batch at the column family with this id: see [`ColumnFamily::id`]. Whether the family exists is checked when
    /// the batch is written.
    pub fn cf_id(&mut self, family: u32) -> BatchCf<'_> {
        BatchCf {
            batch: self,
            family,
        }
    }
}

impl BatchCf<'_> {
    /// Sets `key`. Errors: `InvalidArgument` if the key or the value is too long for the format, or the batch is full.
    /// The other methods fail for the same reasons.
    pub fn put(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<()> {
        self.batch
            .put_cf_id(self.family, key.as_ref(), value.as_ref())
    }

    /// Removes `key`.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.batch.delete_cf_id(self.family, key.as_ref())
    }

    /// Removes the keys from `begin` up to, but not including, `end`.
    pub fn delete_range(&mut self, begin: impl AsRef<[u8]>, end: impl AsRef<[u8]>) -> Result<()> {
        self.batch
            .delete_range_cf_id(self.family, begin.as_ref(), end.as_ref())
    }

    /// Removes `key`. It must have been put exactly once since it was last removed.
    pub fn single_delete(&mut self, key: impl AsRef<[u8]>) -> Result<()> {
        self.batch.single_delete_cf_id(self.family, key.as_ref())
    }

    /// Writes a merge operand for `key`.
    pub fn merge(&mut self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.batch
            .merge_cf_id(self.family, key.as_ref(), operand.as_ref())
    }

    /// Sets `key` to a wide-column entity.
    pub fn put_entity(&mut self, key: impl AsRef<[u8]>, columns: &WideColumns) -> Result<()> {
        self.batch
            .put_entity_cf_id(self.family, key.as_ref(), columns)
    }
}
