//! [`RocksDb`]: an open database.

use std::ffi::{CString, c_char};
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use base::{Error, Result};

use super::{
    Library, RocksIter, RocksOptions, RocksReadOptions, RocksSnapshot, RocksWriteOptions, api,
    bytes, c_path, c_string,
};

/// A database that is open in RocksDB. All methods with `&self` may be called by several threads.
pub struct RocksDb {
    pub(super) lib: Arc<Library>,
    pub(super) raw: *mut api::Db,
    families: Vec<(String, *mut api::Family)>,
    default: *mut api::Family,
    read: RocksReadOptions<'static>,
    pub(super) write: RocksWriteOptions,
}

// SAFETY: RocksDB's databases may be used by several threads at once; the handles and default
// options are only read while the database is shared.
unsafe impl Send for RocksDb {}
// SAFETY: as above.
unsafe impl Sync for RocksDb {}

/// The mode in which a database is opened.
enum How {
    Write,
    Read,
    /// As a secondary instance, with a separate directory.
    Follow(CString),
}

/// A column family of an open database.
#[derive(Clone, Copy)]
pub struct Cf<'a> {
    pub(super) raw: *mut api::Family,
    db: &'a RocksDb,
}

// SAFETY: handles may be used by several threads at once.
unsafe impl Send for Cf<'_> {}
// SAFETY: as above.
unsafe impl Sync for Cf<'_> {}

impl RocksDb {
    /// Opens a database with its default family only; fails if it has more.
    pub fn open(options: &RocksOptions, path: impl AsRef<Path>) -> Result<Self> {
        Self::open_cf(options, path, &[("default", options)])
    }

    /// Opens a database with all of its families, each with the same options.
    pub fn open_all(options: &RocksOptions, path: impl AsRef<Path>) -> Result<Self> {
        let names = Self::list_column_families(options, &path)?;
        let families: Vec<_> = names.iter().map(|n| (n.as_str(), options)).collect();
        Self::open_cf(options, path, &families)
    }

    /// Opens a database with these families, which must be all its families.
    pub fn open_cf(
        options: &RocksOptions,
        path: impl AsRef<Path>,
        families: &[(&str, &RocksOptions)],
    ) -> Result<Self> {
        Self::open_as(options, path.as_ref(), families, &How::Write)
    }

    /// Opens a database read-only, with all its families and the same options for each.
    pub fn open_read_only(options: &RocksOptions, path: impl AsRef<Path>) -> Result<Self> {
        let names = Self::list_column_families(options, &path)?;
        let families: Vec<_> = names.iter().map(|n| (n.as_str(), options)).collect();
        Self::open_read_only_cf(options, path, &families)
    }

    /// Opens a database read-only, with these families.
    pub fn open_read_only_cf(
        options: &RocksOptions,
        path: impl AsRef<Path>,
        families: &[(&str, &RocksOptions)],
    ) -> Result<Self> {
        Self::open_as(options, path.as_ref(), families, &How::Read)
    }

    /// Opens a database that another instance may be writing, with all of its families and the same
    /// options for each; `own` is a directory for its messages.
    pub fn open_as_secondary(
        options: &RocksOptions,
        path: impl AsRef<Path>,
        own: impl AsRef<Path>,
    ) -> Result<Self> {
        let names = Self::list_column_families(options, &path)?;
        let families: Vec<_> = names.iter().map(|n| (n.as_str(), options)).collect();
        let how = How::Follow(c_path(own.as_ref())?);
        Self::open_as(options, path.as_ref(), &families, &how)
    }

    /// A database with its default family only.
    pub(super) fn from_raw(
        lib: Arc<Library>,
        raw: *mut api::Db,
        default: *mut api::Family,
    ) -> Self {
        Self {
            raw,
            families: vec![("default".to_owned(), default)],
            default,
            read: lib.read_options(),
            write: lib.write_options(),
            lib,
        }
    }

    /// Takes over the handle of a family that was created.
    pub(super) fn add_family(&mut self, name: &str, raw: *mut api::Family) {
        self.families.push((name.to_owned(), raw));
    }

    fn open_as(
        options: &RocksOptions,
        path: &Path,
        families: &[(&str, &RocksOptions)],
        how: &How,
    ) -> Result<Self> {
        let lib = Arc::clone(&options.lib);
        let c_path = c_path(path)?;
        let names: Vec<CString> = families
            .iter()
            .map(|(name, _)| c_string(name))
            .collect::<Result<_>>()?;
        let name_pointers: Vec<_> = names.iter().map(|n| n.as_ptr()).collect();
        let option_pointers: Vec<_> = families.iter().map(|(_, o)| o.raw.cast_const()).collect();
        let mut handles = vec![ptr::null_mut(); families.len()];
        let count = families.len() as i32;
        // SAFETY: the arrays have `count` elements each, and live through the call.
        let opened = lib.call(|api, err| unsafe {
            let (name, names) = (c_path.as_ptr(), name_pointers.as_ptr());
            let (options, each) = (options.raw, option_pointers.as_ptr());
            let out = handles.as_mut_ptr();
            match how {
                How::Write => {
                    (api.open_column_families)(options, name, count, names, each, out, err)
                }
                How::Read => {
                    let open = api.open_for_read_only_column_families;
                    open(options, name, count, names, each, out, 0, err)
                }
                How::Follow(own) => {
                    let (open, own) = (api.open_as_secondary_column_families, own.as_ptr());
                    open(options, name, own, count, names, each, out, err)
                }
            }
        });
        let raw = opened.map_err(|e| e.or_file(path))?;
        let families: Vec<_> = families
            .iter()
            .map(|(name, _)| (*name).to_owned())
            .zip(handles)
            .collect();
        let default = families.iter().find(|(name, _)| name == "default");
        Ok(Self {
            raw,
            default: default.map_or(ptr::null_mut(), |(_, handle)| *handle),
            families,
            read: lib.read_options(),
            write: lib.write_options(),
            lib,
        })
    }

    /// The names of a database's families.
    pub fn list_column_families(
        options: &RocksOptions,
        path: impl AsRef<Path>,
    ) -> Result<Vec<String>> {
        let lib = &options.lib;
        let name = c_path(path.as_ref())?;
        let mut len = 0;
        // SAFETY: live options, terminated name.
        let list = lib
            .call(|api, err| unsafe {
                (api.list_column_families)(options.raw, name.as_ptr(), &raw mut len, err)
            })
            .map_err(|e| e.or_file(&path))?;
        // SAFETY: RocksDB returned `len` terminated strings; they are freed once, after copying.
        unsafe {
            let names = (0..len)
                .map(|i| {
                    let name = std::ffi::CStr::from_ptr(*list.add(i));
                    name.to_string_lossy().into_owned()
                })
                .collect();
            (lib.api.list_column_families_destroy)(list, len);
            Ok(names)
        }
    }

    /// Removes a database that is not open, and its directory if it is then empty.
    pub fn destroy(options: &RocksOptions, path: impl AsRef<Path>) -> Result<()> {
        let name = c_path(path.as_ref())?;
        // SAFETY: live options, terminated name.
        let destroyed = options
            .lib
            .call(|api, err| unsafe { (api.destroy_db)(options.raw, name.as_ptr(), err) });
        destroyed.map_err(|e| e.or_file(&path))
    }

    /// Closes the database, as dropping does: waits for background work, and flushes no data that
    /// the log has.
    pub fn close(self) {}

    /// The library that has the database open.
    pub fn library(&self) -> &Arc<Library> {
        &self.lib
    }

    /// An open family; `NotFound` if none has this name.
    pub fn cf(&self, name: &str) -> Result<Cf<'_>> {
        self.families
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, raw)| self.handle(*raw))
            .ok_or_else(|| Error::not_found(format!("no column family {name} is open")))
    }

    /// The family `default`.
    #[inline]
    pub fn default_cf(&self) -> Cf<'_> {
        self.handle(self.default)
    }

    /// The family number `i` among the opened ones; `None` if there are fewer.
    #[inline]
    pub fn nth_cf(&self, i: usize) -> Option<Cf<'_>> {
        self.families.get(i).map(|(_, raw)| self.handle(*raw))
    }

    #[inline]
    fn handle(&self, raw: *mut api::Family) -> Cf<'_> {
        Cf { raw, db: self }
    }

    /// The handle of a family of this database.
    #[inline]
    pub(super) fn own(&self, cf: Cf<'_>) -> *mut api::Family {
        assert!(ptr::eq(cf.db, self), "a column family of another database");
        cf.raw
    }

    /// The names of the open families.
    pub fn cf_names(&self) -> impl Iterator<Item = &str> {
        self.families.iter().map(|(name, _)| name.as_str())
    }

    /// Creates a family.
    pub fn create_cf(&mut self, name: &str, options: &RocksOptions) -> Result<()> {
        let c_name = c_string(name)?;
        // SAFETY: live database and options, terminated name.
        let handle = self.lib.call(|api, err| unsafe {
            (api.create_column_family)(self.raw, options.raw, c_name.as_ptr(), err)
        })?;
        self.families.push((name.to_owned(), handle));
        Ok(())
    }

    /// Drops a family and its data.
    pub fn drop_cf(&mut self, name: &str) -> Result<()> {
        let handle = self.cf(name)?.raw;
        // SAFETY: live database and family.
        self.lib.call(|api, err| unsafe {
            (api.drop_column_family)(self.raw, handle, err);
        })?;
        self.families.retain(|(_, raw)| *raw != handle);
        // SAFETY: created by this library; nothing borrows it, for `self` is borrowed mutably.
        unsafe { (self.lib.api.column_family_handle_destroy)(handle) };
        Ok(())
    }

    /// The value of a key in the default family.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(&self.read, self.default_cf(), key, <[u8]>::to_vec)
    }

    /// The value of a key.
    pub fn get_cf(&self, cf: Cf<'_>, key: &[u8]) -> Result<Option<Vec<u8>>> {
        self.get_with(&self.read, cf, key, <[u8]>::to_vec)
    }

    /// The value of a key, read with options.
    pub fn get_opt(
        &self,
        options: &RocksReadOptions<'_>,
        cf: Cf<'_>,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>> {
        self.get_with(options, cf, key, <[u8]>::to_vec)
    }

    /// Calls `f` with the value where RocksDB has it, without copying.
    pub fn get_with<R>(
        &self,
        options: &RocksReadOptions<'_>,
        cf: Cf<'_>,
        key: &[u8],
        f: impl FnOnce(&[u8]) -> R,
    ) -> Result<Option<R>> {
        let (k, len) = (key.as_ptr().cast(), key.len());
        // SAFETY: live database, options and family.
        let pinned = self.lib.call(|api, err| unsafe {
            (api.get_pinned_cf)(self.raw, options.raw, self.own(cf), k, len, err)
        })?;
        if pinned.is_null() {
            return Ok(None);
        }
        let mut len = 0;
        // SAFETY: the slice lives until it is destroyed below; should `f` panic, it leaks.
        unsafe {
            let data = (self.lib.api.pinnableslice_value)(pinned, &raw mut len);
            let out = f(bytes(data, len));
            (self.lib.api.pinnableslice_destroy)(pinned);
            Ok(Some(out))
        }
    }

    /// Copies the value of a key into `out`, replacing its content; false if there is none.
    /// Allocates nothing if the value fits and the library has `rocksdb_get_into_buffer_cf`.
    #[inline]
    pub fn get_into(
        &self,
        options: &RocksReadOptions<'_>,
        cf: Cf<'_>,
        key: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        out.clear();
        let Some(get) = self.lib.api.get_into_buffer_cf else {
            let found = self.get_with(options, cf, key, |v| out.extend_from_slice(v))?;
            return Ok(found.is_some());
        };
        loop {
            let (mut len, mut found) = (0, 0);
            let (k, to, room) = (key.as_ptr().cast(), out.as_mut_ptr().cast(), out.capacity());
            // SAFETY: live database, options and family; `to` has `room` bytes.
            let fits = self.lib.call(|_, err| unsafe {
                let (value_len, found) = (&raw mut len, &raw mut found);
                let (db, options, cf) = (self.raw, options.raw, self.own(cf));
                get(
                    db,
                    options,
                    cf,
                    k,
                    key.len(),
                    to,
                    room,
                    value_len,
                    found,
                    err,
                )
            })?;
            if found == 0 {
                return Ok(false);
            }
            if fits != 0 {
                // SAFETY: RocksDB wrote `len` bytes, which fit.
                unsafe { out.set_len(len) };
                return Ok(true);
            }
            out.reserve(len);
        }
    }

    /// An iterator over the default family.
    pub fn iterator(&self) -> RocksIter<'_> {
        self.iterator_opt(&self.read, self.default_cf())
    }

    /// An iterator over a family.
    pub fn iterator_cf(&self, cf: Cf<'_>) -> RocksIter<'_> {
        self.iterator_opt(&self.read, cf)
    }

    /// An iterator with options. Errors show in [`RocksIter::status`].
    pub fn iterator_opt<'a>(
        &'a self,
        options: &'a RocksReadOptions<'_>,
        cf: Cf<'_>,
    ) -> RocksIter<'a> {
        // SAFETY: live database, options and family; the first two outlive the iterator.
        let raw = unsafe { (self.lib.api.create_iterator_cf)(self.raw, options.raw, self.own(cf)) };
        RocksIter {
            db: self,
            raw,
            valid: false,
            _options: None,
        }
    }

    /// An iterator that keeps its options, and with them their bounds.
    pub fn iterator_with<'a>(&'a self, options: RocksReadOptions<'a>, cf: Cf<'_>) -> RocksIter<'a> {
        // SAFETY: live database, options and family; RocksDB copies the options and keeps pointers to
        // the bounds, which stay where they are while the iterator has the options.
        let raw = unsafe { (self.lib.api.create_iterator_cf)(self.raw, options.raw, self.own(cf)) };
        RocksIter {
            db: self,
            raw,
            valid: false,
            _options: Some(options),
        }
    }

    /// A snapshot of the current content.
    pub fn snapshot(&self) -> RocksSnapshot<'_> {
        // SAFETY: a live database; Drop releases it.
        let raw = unsafe { (self.lib.api.create_snapshot)(self.raw) };
        RocksSnapshot { db: self, raw }
    }

    /// Flushes the memtables of every open family, and waits.
    pub fn flush(&self) -> Result<()> {
        for (_, raw) in &self.families {
            self.flush_cf(self.handle(*raw))?;
        }
        Ok(())
    }

    /// Flushes a family's memtables, and waits.
    pub fn flush_cf(&self, cf: Cf<'_>) -> Result<()> {
        // SAFETY: live database and family; the options are freed once.
        unsafe {
            let options = (self.lib.api.flushoptions_create)();
            let result = self
                .lib
                .call(|api, err| (api.flush_cf)(self.raw, options, self.own(cf), err));
            (self.lib.api.flushoptions_destroy)(options);
            result
        }
    }

    /// Writes the log's buffer to the file, and optionally syncs it.
    pub fn flush_wal(&self, sync: bool) -> Result<()> {
        // SAFETY: a live database.
        self.lib
            .call(|api, err| unsafe { (api.flush_wal)(self.raw, u8::from(sync), err) })
    }

    /// Compacts the keys between `begin` and `end`, and also rewrites the last level. `None` is
    /// unbounded. The C API reports no error.
    pub fn compact_range(&self, cf: Cf<'_>, begin: Option<&[u8]>, end: Option<&[u8]>) {
        const FORCE_OPTIMIZED: u8 = 3;
        self.compact_range_with(cf, begin, end, FORCE_OPTIMIZED);
    }

    /// The same, with the number of RocksDB's `BottommostLevelCompaction`.
    pub fn compact_range_with(
        &self,
        cf: Cf<'_>,
        begin: Option<&[u8]>,
        end: Option<&[u8]>,
        bottommost: u8,
    ) {
        let (b, b_len) = begin.map_or((ptr::null(), 0), |k| (k.as_ptr().cast(), k.len()));
        let (e, e_len) = end.map_or((ptr::null(), 0), |k| (k.as_ptr().cast(), k.len()));
        let api = &self.lib.api;
        // SAFETY: live database and family; the options are freed once.
        unsafe {
            let options = (api.compactoptions_create)();
            (api.compactoptions_set_bottommost_level_compaction)(options, bottommost);
            (api.compact_range_cf_opt)(self.raw, self.own(cf), options, b, b_len, e, e_len);
            (api.compactoptions_destroy)(options);
        }
    }

    /// Waits until no flush or compaction is running or due. `NotSupported` in a library that
    /// cannot (before RocksDB 8).
    pub fn wait_for_compaction(&self) -> Result<()> {
        let api = &self.lib.api;
        let (Some(create), Some(wait), Some(destroy)) = (
            api.wait_for_compact_options_create,
            api.wait_for_compact,
            api.wait_for_compact_options_destroy,
        ) else {
            return Err(Error::not_supported("rocksdb_wait_for_compact").file(self.lib.path()));
        };
        // SAFETY: a live database; the options are freed once.
        unsafe {
            let options = create();
            let result = self.lib.call(|_, err| wait(self.raw, options, err));
            destroy(options);
            result
        }
    }

    /// A property of the default family; `None` for a name that RocksDB does not know.
    pub fn property(&self, name: &str) -> Option<String> {
        self.property_cf(self.default_cf(), name)
    }

    /// A property of a family.
    pub fn property_cf(&self, cf: Cf<'_>, name: &str) -> Option<String> {
        let name = c_string(name).ok()?;
        // SAFETY: live database and family, terminated name.
        let text =
            unsafe { (self.lib.api.property_value_cf)(self.raw, self.own(cf), name.as_ptr()) };
        self.lib.take_string(text)
    }

    /// A property of a family that is a number; `None` for any other.
    pub fn int_property_cf(&self, cf: Cf<'_>, name: &str) -> Option<u64> {
        let name = c_string(name).ok()?;
        let mut out = 0;
        // SAFETY: live database and family, terminated name, room for the number.
        let failed = unsafe {
            (self.lib.api.property_int_cf)(self.raw, self.own(cf), name.as_ptr(), &raw mut out)
        };
        (failed == 0).then_some(out)
    }

    /// Changes options of a family while it is open.
    pub fn set_options(&self, cf: Cf<'_>, options: &[(&str, &str)]) -> Result<()> {
        let family = self.own(cf);
        with_texts(options, |count, names, values| {
            // SAFETY: live database and family; the arrays have `count` terminated strings.
            self.lib.call(|api, err| unsafe {
                (api.set_options_cf)(self.raw, family, count, names, values, err);
            })
        })
    }

    /// Changes options of the whole database while it is open. Errors: also `NotSupported` if the
    /// library is too old for it.
    pub fn set_db_options(&self, options: &[(&str, &str)]) -> Result<()> {
        let Some(set) = self.lib.api.set_db_options else {
            return Err(Error::not_supported("rocksdb_set_db_options").file(self.lib.path()));
        };
        with_texts(options, |count, names, values| {
            // SAFETY: live database; the arrays have `count` terminated strings.
            self.lib
                .call(|_, err| unsafe { set(self.raw, count, names, values, err) })
        })
    }

    /// The sequence number of the newest write.
    pub fn latest_sequence_number(&self) -> u64 {
        // SAFETY: a live database.
        unsafe { (self.lib.api.get_latest_sequence_number)(self.raw) }
    }
}

/// Calls `f` with the names and the values as arrays of terminated strings, and their number.
fn with_texts(
    options: &[(&str, &str)],
    f: impl FnOnce(i32, *const *const c_char, *const *const c_char) -> Result<()>,
) -> Result<()> {
    let texts = options
        .iter()
        .map(|(name, value)| Ok((c_string(name)?, c_string(value)?)))
        .collect::<Result<Vec<_>>>()?;
    let names: Vec<_> = texts.iter().map(|(name, _)| name.as_ptr()).collect();
    let values: Vec<_> = texts.iter().map(|(_, value)| value.as_ptr()).collect();
    f(texts.len() as i32, names.as_ptr(), values.as_ptr())
}

impl Drop for RocksDb {
    fn drop(&mut self) {
        // SAFETY: created by this library, freed once, families first; iterators and snapshots
        // borrow `self` and are gone.
        unsafe {
            for (_, handle) in &self.families {
                (self.lib.api.column_family_handle_destroy)(*handle);
            }
            (self.lib.api.close)(self.raw);
        }
    }
}
