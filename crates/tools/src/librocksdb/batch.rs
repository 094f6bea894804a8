//! [`RocksWriteBatch`]: RocksDB's `WriteBatch`, which can be made from bytes and returns its bytes.

use std::sync::Arc;

use super::{Cf, Library, api, bytes};

/// Several writes that RocksDB applies atomically. A batch names families by number, so it means
/// the same in every database that has families of these numbers.
pub struct RocksWriteBatch {
    lib: Arc<Library>,
    pub(super) raw: *mut api::Batch,
}

// SAFETY: a batch is plain memory of RocksDB's, tied to no thread; changing it takes `&mut`.
unsafe impl Send for RocksWriteBatch {}

impl RocksWriteBatch {
    pub(super) fn new(lib: &Arc<Library>) -> Self {
        // SAFETY: no argument, and the result is freed by Drop.
        let raw = unsafe { (lib.api.writebatch_create)() };
        Self {
            lib: Arc::clone(lib),
            raw,
        }
    }

    /// [`Library::batch_with_checksums`].
    pub(super) fn with_checksums(lib: &Arc<Library>, bytes: usize) -> Self {
        let Some(create) = lib.api.writebatch_create_with_params else {
            return Self::new(lib);
        };
        let lib = Arc::clone(lib);
        // SAFETY: numbers only, and the result is freed by Drop.
        let raw = unsafe { create(0, 0, bytes, 0) };
        Self { lib, raw }
    }

    /// A batch whose representation (8 bytes sequence, 4 bytes count, records) is `data`.
    /// RocksDB checks it when the batch is written.
    pub fn from_data(lib: &Arc<Library>, data: &[u8]) -> Self {
        // SAFETY: RocksDB copies `data`; the result is freed by Drop.
        let raw = unsafe { (lib.api.writebatch_create_from)(data.as_ptr().cast(), data.len()) };
        Self {
            lib: Arc::clone(lib),
            raw,
        }
    }

    /// The representation.
    pub fn data(&self) -> &[u8] {
        let mut len = 0;
        // SAFETY: a live batch; its bytes stay as they are while it is borrowed.
        unsafe {
            let data = (self.lib.api.writebatch_data)(self.raw, &raw mut len);
            bytes(data, len)
        }
    }

    /// The number of counted records.
    pub fn count(&self) -> u32 {
        // SAFETY: a live batch.
        unsafe { (self.lib.api.writebatch_count)(self.raw) as u32 }
    }

    /// Empties the batch.
    pub fn clear(&mut self) {
        // SAFETY: a live batch.
        unsafe { (self.lib.api.writebatch_clear)(self.raw) }
    }

    /// Adds a put into the default family.
    #[inline]
    pub fn put(&mut self, key: &[u8], value: &[u8]) {
        // SAFETY: a live batch; RocksDB copies the bytes.
        unsafe {
            (self.lib.api.writebatch_put)(
                self.raw,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
            );
        }
    }

    /// Adds a put.
    pub fn put_cf(&mut self, cf: Cf<'_>, key: &[u8], value: &[u8]) {
        // SAFETY: a live batch and family; RocksDB copies the bytes.
        unsafe {
            (self.lib.api.writebatch_put_cf)(
                self.raw,
                cf.raw,
                key.as_ptr().cast(),
                key.len(),
                value.as_ptr().cast(),
                value.len(),
            );
        }
    }

    /// Adds a merge operand.
    pub fn merge_cf(&mut self, cf: Cf<'_>, key: &[u8], operand: &[u8]) {
        // SAFETY: a live batch and family; RocksDB copies the bytes.
        unsafe {
            (self.lib.api.writebatch_merge_cf)(
                self.raw,
                cf.raw,
                key.as_ptr().cast(),
                key.len(),
                operand.as_ptr().cast(),
                operand.len(),
            );
        }
    }

    /// Adds a deletion in the default family.
    #[inline]
    pub fn delete(&mut self, key: &[u8]) {
        // SAFETY: a live batch; RocksDB copies the bytes.
        unsafe { (self.lib.api.writebatch_delete)(self.raw, key.as_ptr().cast(), key.len()) }
    }

    /// Adds a deletion.
    pub fn delete_cf(&mut self, cf: Cf<'_>, key: &[u8]) {
        // SAFETY: a live batch and family; RocksDB copies the bytes.
        unsafe {
            (self.lib.api.writebatch_delete_cf)(self.raw, cf.raw, key.as_ptr().cast(), key.len());
        }
    }

    /// Adds a single deletion.
    pub fn single_delete_cf(&mut self, cf: Cf<'_>, key: &[u8]) {
        // SAFETY: a live batch and family; RocksDB copies the bytes.
        unsafe {
            (self.lib.api.writebatch_singledelete_cf)(
                self.raw,
                cf.raw,
                key.as_ptr().cast(),
                key.len(),
            );
        }
    }

    /// Adds the deletion of the keys from `begin` up to, not including, `end`.
    pub fn delete_range_cf(&mut self, cf: Cf<'_>, begin: &[u8], end: &[u8]) {
        // SAFETY: a live batch and family; RocksDB copies the bytes.
        unsafe {
            (self.lib.api.writebatch_delete_range_cf)(
                self.raw,
                cf.raw,
                begin.as_ptr().cast(),
                begin.len(),
                end.as_ptr().cast(),
                end.len(),
            );
        }
    }

    /// Adds a blob that goes to the log only.
    pub fn put_log_data(&mut self, blob: &[u8]) {
        // SAFETY: a live batch; RocksDB copies the bytes.
        unsafe {
            (self.lib.api.writebatch_put_log_data)(self.raw, blob.as_ptr().cast(), blob.len());
        }
    }
}

impl Drop for RocksWriteBatch {
    fn drop(&mut self) {
        // SAFETY: created by this library, freed once.
        unsafe { (self.lib.api.writebatch_destroy)(self.raw) }
    }
}
