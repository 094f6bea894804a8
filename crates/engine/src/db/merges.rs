//! Merging, and the operands as they were written.

use base::{Error, ErrorKind, Result};

use super::Db;
use super::cf::Cf;
use crate::read::get;
use crate::read::options::{ContinueCallback, GetMergeOperandsOptions};

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
impl Cf<'_> {
    /// Writes a merge operand for `key`. Errors: `InvalidArgument` if the family has no merge operator.
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.one(|batch, id| batch.merge_cf_id(id, key.as_ref(), operand.as_ref()))
    }

    /// The merge operands of `key`, oldest first, preceded by the base value if there is one:
    /// `GetMergeOperands`. Empty if the key does not exist. Operands that a compaction has already merged are
    /// returned as one operand, or as part of the base value.
    ///
    /// Errors: `Incomplete` if there are more than `expected_max_number_of_operands`; `InvalidArgument` if there are
    /// operands and the family has no merge operator; `Aborted` if `continue_cb` panics; as [`Cf::get`].
    ///
    /// ```
    /// # let dir = tempfile::tempdir().unwrap();
    /// # use ironstone::GetMergeOperandsOptions;
    /// # use ironstone::merge_operators::StringAppendOperator;
    /// # let mut options = ironstone::Options::default();
    /// # options.db.create_if_missing = true;
    /// # options.cf.merge_operator = Some(std::sync::Arc::new(StringAppendOperator::new(",")));
    /// # let db = ironstone::Db::open(dir.path(), &options)?;
    /// db.put("k", "a")?;
    /// db.merge("k", "b")?;
    /// let operands = db.get_merge_operands("k", GetMergeOperandsOptions::up_to(10))?;
    /// assert_eq!(operands, [b"a", b"b"]);
    /// # Ok::<(), ironstone::Error>(())
    /// ```
    pub fn get_merge_operands(
        &self,
        key: impl AsRef<[u8]>,
        how: GetMergeOperandsOptions<'_>,
    ) -> Result<Vec<Vec<u8>>> {
        self.check()?;
        let options = self.read_options();
        let sequence = self.read_sequence()?;
        let tables = options.for_tables();
        let lookup = get::Lookup::new(self.family, &tables, key.as_ref());
        let lookup = lookup.with(&self.shared.writes, &options);
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

/// Merging in the default column family.
impl Db {
    /// Writes a merge operand for `key`: see [`Cf::merge`].
    pub fn merge(&self, key: impl AsRef<[u8]>, operand: impl AsRef<[u8]>) -> Result<()> {
        self.default_cf().merge(key, operand)
    }

    /// The merge operands of `key`: see [`Cf::get_merge_operands`].
    pub fn get_merge_operands(
        &self,
        key: impl AsRef<[u8]>,
        how: GetMergeOperandsOptions<'_>,
    ) -> Result<Vec<Vec<u8>>> {
        self.default_cf().get_merge_operands(key, how)
    }
}
