//! Merging, and the operands as they were written.

use base::{Error, ErrorKind, Result};

use super::{ColumnFamily, Db};
use crate::batch::WriteBatch;
use crate::read::get;
use crate::read::options::{ContinueCallback, GetMergeOperandsOptions, ReadOptions};
use options::WriteOptions;
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
        let lookup = lookup.with(&self.shared.writes, options);
        let goes_on = how.continue_cb.map(|ask| ask as ContinueCallback<'_>);
        let found = get::merge_operands(
            &self.shared.info,
            &self.shared.writes,
            lookup,
            sequence,
            goes_on,
        )?;
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
