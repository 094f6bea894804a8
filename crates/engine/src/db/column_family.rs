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

    /// The family's id, as it stands in batches and in the MANIFEST.
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

/// Records addressed to a column family by its handle.
impl WriteBatch {
    /// Sets `key` in a column family. Errors: the key or value is too long for the format.
    pub fn put_cf(
        &mut self,
        family: &ColumnFamily,
        key: impl AsRef<[u8]>,
        value: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.put_cf_id(family.id(), key.as_ref(), value.as_ref())
    }

    /// Removes `key` from a column family.
    pub fn delete_cf(&mut self, family: &ColumnFamily, key: impl AsRef<[u8]>) -> Result<()> {
        self.delete_cf_id(family.id(), key.as_ref())
    }

    /// Removes the keys of a column family from `begin` up to, but not including, `end`.
    pub fn delete_range_cf(
        &mut self,
        family: &ColumnFamily,
        begin: impl AsRef<[u8]>,
        end: impl AsRef<[u8]>,
    ) -> Result<()> {
        self.delete_range_cf_id(family.id(), begin.as_ref(), end.as_ref())
    }

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
