//! [`RocksIter`] and [`RocksSnapshot`]: views of a [`RocksDb`](super::RocksDb) that borrow it.

use base::{Error, Result};

use super::{Cf, RocksDb, RocksReadOptions, api, bytes};

/// A position among the keys of one family. Starts nowhere: seek first.
pub struct RocksIter<'a> {
    pub(super) db: &'a RocksDb,
    pub(super) raw: *mut api::Iterator,
    /// Whether it is at a key; determined once after each move.
    pub(super) valid: bool,
    /// Options that it owns. They are dropped after the iterator, whose [`Drop`] runs first.
    pub(super) _options: Option<RocksReadOptions<'a>>,
}

// SAFETY: RocksDB's iterators may be used from any thread, one at a time.
unsafe impl Send for RocksIter<'_> {}

impl RocksIter<'_> {
    fn api(&self) -> &api::Api {
        &self.db.lib.api
    }

    #[inline]
    fn moved(&mut self) {
        // SAFETY: a live iterator.
        self.valid = unsafe { (self.api().iter_valid)(self.raw) != 0 };
    }

    /// Moves to the first key.
    pub fn seek_to_first(&mut self) {
        // SAFETY: a live iterator.
        unsafe { (self.api().iter_seek_to_first)(self.raw) }
        self.moved();
    }

    /// Moves to the last key.
    pub fn seek_to_last(&mut self) {
        // SAFETY: a live iterator.
        unsafe { (self.api().iter_seek_to_last)(self.raw) }
        self.moved();
    }

    /// Moves to the first key at or after `key`.
    #[inline]
    pub fn seek(&mut self, key: &[u8]) {
        // SAFETY: a live iterator; RocksDB does not keep the bytes.
        unsafe { (self.api().iter_seek)(self.raw, key.as_ptr().cast(), key.len()) }
        self.moved();
    }

    /// Moves to the last key at or before `key`.
    pub fn seek_for_prev(&mut self, key: &[u8]) {
        // SAFETY: a live iterator; RocksDB does not keep the bytes.
        unsafe { (self.api().iter_seek_for_prev)(self.raw, key.as_ptr().cast(), key.len()) }
        self.moved();
    }

    /// Moves one key on. Does nothing if the iterator is not valid.
    #[inline]
    pub fn next(&mut self) {
        if self.valid {
            // SAFETY: a live iterator that is at a key.
            unsafe { (self.api().iter_next)(self.raw) }
            self.moved();
        }
    }

    /// Moves one key back. Does nothing if the iterator is not valid.
    #[inline]
    pub fn prev(&mut self) {
        if self.valid {
            // SAFETY: a live iterator that is at a key.
            unsafe { (self.api().iter_prev)(self.raw) }
            self.moved();
        }
    }

    /// True if the iterator is at a key. False at either end and after an error.
    #[inline]
    pub fn valid(&self) -> bool {
        self.valid
    }

    /// The key; empty if not valid.
    #[inline]
    pub fn key(&self) -> &[u8] {
        if !self.valid {
            return &[];
        }
        let mut len = 0;
        // SAFETY: a live iterator at a key; the bytes stay until it moves, which takes `&mut`.
        unsafe {
            let data = (self.api().iter_key)(self.raw, &raw mut len);
            bytes(data, len)
        }
    }

    /// The value; empty if not valid.
    #[inline]
    pub fn value(&self) -> &[u8] {
        if !self.valid {
            return &[];
        }
        let mut len = 0;
        // SAFETY: a live iterator at a key; the bytes stay until it moves, which takes `&mut`.
        unsafe {
            let data = (self.api().iter_value)(self.raw, &raw mut len);
            bytes(data, len)
        }
    }

    /// The error, if the iterator became invalid because of one.
    pub fn status(&self) -> Result<()> {
        // SAFETY: a live iterator.
        self.db
            .lib
            .call(|api, err| unsafe { (api.iter_get_error)(self.raw, err) })
    }

    /// Refreshes the iterator to the newest content; afterwards it is at no key.
    pub fn refresh(&mut self) -> Result<()> {
        self.valid = false;
        let refresh = self
            .api()
            .iter_refresh
            .ok_or_else(|| Error::not_supported("Iterator::Refresh() in this RocksDB's C API"))?;
        // SAFETY: a live iterator.
        self.db.lib.call(|_, err| unsafe { refresh(self.raw, err) })
    }

    /// All keys and values from the first to the last.
    pub fn collect_all(&mut self) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let mut all = Vec::new();
        self.seek_to_first();
        while self.valid() {
            all.push((self.key().to_vec(), self.value().to_vec()));
            self.next();
        }
        self.status()?;
        Ok(all)
    }
}

impl Drop for RocksIter<'_> {
    fn drop(&mut self) {
        // SAFETY: created by this library, freed once, before its database.
        unsafe { (self.api().iter_destroy)(self.raw) }
    }
}

/// Several keys at once.
impl RocksDb {
    /// The values of keys of a family, by `MultiGet`. Errors for all keys: the C API lacks it.
    pub fn multi_get(
        &self,
        options: &RocksReadOptions<'_>,
        cf: Cf<'_>,
        keys: &[&[u8]],
    ) -> Vec<Result<Option<Vec<u8>>>> {
        let mut out = Vec::with_capacity(keys.len());
        self.multi_get_with(options, cf, keys, |value| {
            out.push(value.map(|v| v.map(<[u8]>::to_vec)));
        });
        out
    }

    /// Calls `f` with the value of each key where RocksDB has it, without copying. Errors as
    /// [`RocksDb::multi_get`].
    pub fn multi_get_with(
        &self,
        options: &RocksReadOptions<'_>,
        cf: Cf<'_>,
        keys: &[&[u8]],
        mut f: impl FnMut(Result<Option<&[u8]>>),
    ) {
        let Some(multi_get) = self.lib.api.batched_multi_get_cf else {
            for _ in keys {
                f(Err(Error::not_supported("batched MultiGet in this C API")));
            }
            return;
        };
        let data: Vec<api::Bytes> = keys.iter().map(|k| k.as_ptr().cast()).collect();
        let sizes: Vec<usize> = keys.iter().map(|k| k.len()).collect();
        let mut values = vec![std::ptr::null_mut(); keys.len()];
        let mut errors = vec![std::ptr::null_mut(); keys.len()];
        // SAFETY: live database, options and family; arrays of as many elements as there are keys.
        unsafe {
            multi_get(
                self.raw,
                options.raw,
                cf.raw,
                keys.len(),
                data.as_ptr(),
                sizes.as_ptr(),
                values.as_mut_ptr(),
                errors.as_mut_ptr(),
                0,
            );
        }
        for (value, error) in values.into_iter().zip(errors) {
            if !error.is_null() {
                f(Err(self.lib.take_error(error)));
                continue;
            }
            if value.is_null() {
                f(Ok(None));
                continue;
            }
            let mut len = 0;
            // SAFETY: a live pinned value, destroyed once, after its last use.
            unsafe {
                let data = (self.lib.api.pinnableslice_value)(value, &raw mut len);
                f(Ok(Some(bytes(data, len))));
                (self.lib.api.pinnableslice_destroy)(value);
            }
        }
    }
}

/// The content of a database at one moment.
pub struct RocksSnapshot<'a> {
    pub(super) db: &'a RocksDb,
    pub(super) raw: *const api::Snapshot,
}

// SAFETY: RocksDB's snapshots never change and may be released by any thread.
unsafe impl Send for RocksSnapshot<'_> {}
// SAFETY: as above.
unsafe impl Sync for RocksSnapshot<'_> {}

impl Drop for RocksSnapshot<'_> {
    fn drop(&mut self) {
        // SAFETY: a snapshot of this database, released once, before the database closes.
        unsafe { (self.db.lib.api.release_snapshot)(self.db.raw, self.raw) }
    }
}
