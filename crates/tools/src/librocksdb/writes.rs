//! Writes to a database: puts, deletions, merges and batches.

use base::Result;

use super::{Cf, RocksDb, RocksWriteBatch, RocksWriteOptions};

impl RocksDb {
    /// Puts into the default family.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_opt(&self.write, self.default_cf(), key, value)
    }

    /// Puts.
    pub fn put_cf(&self, cf: Cf<'_>, key: &[u8], value: &[u8]) -> Result<()> {
        self.put_opt(&self.write, cf, key, value)
    }

    /// Puts with options.
    #[inline]
    pub fn put_opt(
        &self,
        options: &RocksWriteOptions,
        cf: Cf<'_>,
        key: &[u8],
        value: &[u8],
    ) -> Result<()> {
        let (k, v) = (key.as_ptr().cast(), value.as_ptr().cast());
        // SAFETY: live database, options and family; RocksDB does not keep the bytes.
        self.lib.call(|api, err| unsafe {
            (api.put_cf)(
                self.raw,
                options.raw,
                self.own(cf),
                k,
                key.len(),
                v,
                value.len(),
                err,
            );
        })
    }

    /// Deletes from the default family.
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        self.delete_opt(&self.write, self.default_cf(), key)
    }

    /// Deletes.
    pub fn delete_cf(&self, cf: Cf<'_>, key: &[u8]) -> Result<()> {
        self.delete_opt(&self.write, cf, key)
    }

    /// Deletes with options.
    #[inline]
    pub fn delete_opt(&self, options: &RocksWriteOptions, cf: Cf<'_>, key: &[u8]) -> Result<()> {
        // SAFETY: live database, options and family; RocksDB does not keep the bytes.
        self.lib.call(|api, err| unsafe {
            let k = key.as_ptr().cast();
            (api.delete_cf)(self.raw, options.raw, self.own(cf), k, key.len(), err);
        })
    }

    /// Deletes a key that was put once.
    pub fn single_delete_cf(&self, cf: Cf<'_>, key: &[u8]) -> Result<()> {
        self.single_delete_opt(&self.write, cf, key)
    }

    /// Deletes a key that was put once, with options.
    pub fn single_delete_opt(
        &self,
        options: &RocksWriteOptions,
        cf: Cf<'_>,
        key: &[u8],
    ) -> Result<()> {
        // SAFETY: live database, options and family; RocksDB does not keep the bytes.
        self.lib.call(|api, err| unsafe {
            let k = key.as_ptr().cast();
            (api.singledelete_cf)(self.raw, options.raw, self.own(cf), k, key.len(), err);
        })
    }

    /// Deletes the keys from `begin` up to, not including, `end`.
    pub fn delete_range_cf(&self, cf: Cf<'_>, begin: &[u8], end: &[u8]) -> Result<()> {
        self.delete_range_opt(&self.write, cf, begin, end)
    }

    /// Deletes the keys from `begin` up to, not including, `end`, with options.
    pub fn delete_range_opt(
        &self,
        options: &RocksWriteOptions,
        cf: Cf<'_>,
        begin: &[u8],
        end: &[u8],
    ) -> Result<()> {
        let (b, e) = (begin.as_ptr().cast(), end.as_ptr().cast());
        // SAFETY: live database, options and family; RocksDB does not keep the bytes.
        self.lib.call(|api, err| unsafe {
            (api.delete_range_cf)(
                self.raw,
                options.raw,
                self.own(cf),
                b,
                begin.len(),
                e,
                end.len(),
                err,
            );
        })
    }

    /// Adds a merge operand; the family needs a merge operator.
    pub fn merge_cf(&self, cf: Cf<'_>, key: &[u8], operand: &[u8]) -> Result<()> {
        self.merge_opt(&self.write, cf, key, operand)
    }

    /// Adds a merge operand, with options; the family needs a merge operator.
    #[inline]
    pub fn merge_opt(
        &self,
        options: &RocksWriteOptions,
        cf: Cf<'_>,
        key: &[u8],
        operand: &[u8],
    ) -> Result<()> {
        let (k, v) = (key.as_ptr().cast(), operand.as_ptr().cast());
        // SAFETY: live database, options and family; RocksDB does not keep the bytes.
        self.lib.call(|api, err| unsafe {
            (api.merge_cf)(
                self.raw,
                options.raw,
                self.own(cf),
                k,
                key.len(),
                v,
                operand.len(),
                err,
            );
        })
    }

    /// Applies a batch.
    pub fn write(&self, batch: &RocksWriteBatch) -> Result<()> {
        self.write_opt(&self.write, batch)
    }

    /// Applies a batch with options.
    #[inline]
    pub fn write_opt(&self, options: &RocksWriteOptions, batch: &RocksWriteBatch) -> Result<()> {
        // SAFETY: live database, options and batch.
        self.lib
            .call(|api, err| unsafe { (api.write)(self.raw, options.raw, batch.raw, err) })
    }
}
