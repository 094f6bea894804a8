//! Operations of RocksDB on whole files: tables made outside of a database and their ingestion,
//! checkpoints, export and import, backups.

use std::ffi::CString;
use std::path::Path;
use std::ptr;
use std::sync::Arc;

use base::{Error, Result};

use super::{Cf, Library, RocksDb, RocksOptions, api, bytes, c_path, c_string};

/// A function that the loaded library may lack.
pub(super) fn needed<F: Copy>(f: Option<F>, name: &str) -> Result<F> {
    f.ok_or_else(|| Error::not_supported(format!("this RocksDB has no rocksdb_{name}")))
}

/// Writes a table to be ingested.
pub struct RocksSstFileWriter {
    lib: Arc<Library>,
    raw: *mut api::SstFileWriter,
    env: *mut api::EnvOptions,
}

impl RocksSstFileWriter {
    /// Begins the file at `path`.
    pub fn open(options: &RocksOptions, path: impl AsRef<Path>) -> Result<Self> {
        let lib = Arc::clone(&options.lib);
        let name = c_path(path.as_ref())?;
        // SAFETY: freed by Drop; the writer copies the options.
        let writer = unsafe {
            let env = (lib.api.envoptions_create)();
            let raw = (lib.api.sstfilewriter_create)(env, options.raw);
            Self { lib, raw, env }
        };
        // SAFETY: live writer, terminated name.
        writer.lib.call(|api, err| unsafe {
            (api.sstfilewriter_open)(writer.raw, name.as_ptr(), err);
        })?;
        Ok(writer)
    }

    /// Puts; keys come in ascending order.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        let (k, v) = (key.as_ptr().cast(), value.as_ptr().cast());
        // SAFETY: live writer; RocksDB does not keep the bytes.
        self.lib.call(|api, err| unsafe {
            (api.sstfilewriter_put)(self.raw, k, key.len(), v, value.len(), err);
        })
    }

    /// Adds a merge operand.
    pub fn merge(&self, key: &[u8], operand: &[u8]) -> Result<()> {
        let (k, v) = (key.as_ptr().cast(), operand.as_ptr().cast());
        // SAFETY: live writer; RocksDB does not keep the bytes.
        self.lib.call(|api, err| unsafe {
            (api.sstfilewriter_merge)(self.raw, k, key.len(), v, operand.len(), err);
        })
    }

    /// Deletes.
    pub fn delete(&self, key: &[u8]) -> Result<()> {
        // SAFETY: live writer; RocksDB does not keep the bytes.
        self.lib.call(|api, err| unsafe {
            (api.sstfilewriter_delete)(self.raw, key.as_ptr().cast(), key.len(), err);
        })
    }

    /// Deletes the keys from `begin` up to, not including, `end`.
    pub fn delete_range(&self, begin: &[u8], end: &[u8]) -> Result<()> {
        let (b, e) = (begin.as_ptr().cast(), end.as_ptr().cast());
        // SAFETY: live writer; RocksDB does not keep the bytes.
        self.lib.call(|api, err| unsafe {
            (api.sstfilewriter_delete_range)(self.raw, b, begin.len(), e, end.len(), err);
        })
    }

    /// Completes the file.
    pub fn finish(self) -> Result<()> {
        // SAFETY: live writer.
        self.lib
            .call(|api, err| unsafe { (api.sstfilewriter_finish)(self.raw, err) })
    }
}

impl Drop for RocksSstFileWriter {
    fn drop(&mut self) {
        // SAFETY: created by this library, freed once.
        unsafe {
            (self.lib.api.sstfilewriter_destroy)(self.raw);
            (self.lib.api.envoptions_destroy)(self.env);
        }
    }
}

/// RocksDB's options of an ingestion; options that are not set have RocksDB's defaults.
#[derive(Clone, Copy, Debug, Default)]
pub struct RocksIngest {
    /// `move_files`.
    pub move_files: bool,
    /// `ingest_behind`.
    pub ingest_behind: bool,
    /// `write_global_seqno`, where the library has it; `None` is its default.
    pub write_global_seqno: Option<bool>,
    /// Threads that open the tables, `fill_cache` and `prefetch_lmax_index_and_filter_blocks`; `None`
    /// leaves them unchanged.
    pub opening: Option<(i32, bool, bool)>,
}

impl RocksDb {
    /// Ingests files into a family.
    pub fn ingest(&self, cf: Cf<'_>, files: &[impl AsRef<Path>], how: RocksIngest) -> Result<()> {
        let names = files
            .iter()
            .map(|f| c_path(f.as_ref()))
            .collect::<Result<Vec<CString>>>()?;
        let pointers: Vec<_> = names.iter().map(|n| n.as_ptr()).collect();
        let api = &self.lib.api;
        let opening = how.opening.map(|values| self.opening(values)).transpose()?;
        // SAFETY: live database and family; the options live through the call, the names too.
        unsafe {
            let options = (api.ingestexternalfileoptions_create)();
            (api.ingestexternalfileoptions_set_move_files)(options, u8::from(how.move_files));
            (api.ingestexternalfileoptions_set_ingest_behind)(options, u8::from(how.ingest_behind));
            if let (Some(set), Some(on)) = (
                api.ingestexternalfileoptions_set_write_global_seqno,
                how.write_global_seqno,
            ) {
                set(options, u8::from(on));
            }
            if let Some(set) = opening {
                set(options);
            }
            let (list, count) = (pointers.as_ptr(), pointers.len());
            let result = self.lib.call(|api, err| {
                (api.ingest_external_file_cf)(self.raw, cf.raw, list, count, options, err);
            });
            (api.ingestexternalfileoptions_destroy)(options);
            result
        }
    }

    /// Sets how ingested tables are opened. Errors: the library is too old for it.
    fn opening(
        &self,
        (threads, fill, prefetch): (i32, bool, bool),
    ) -> Result<impl FnOnce(*mut api::IngestOptions)> {
        let a = &self.lib.api;
        let name = "ingestexternalfileoptions_set_file_opening_threads";
        let set_threads = needed(a.ingestexternalfileoptions_set_file_opening_threads, name)?;
        let name = "ingestexternalfileoptions_set_fill_cache";
        let set_fill = needed(a.ingestexternalfileoptions_set_fill_cache, name)?;
        let name = "ingestexternalfileoptions_set_prefetch_lmax_index_and_filter_blocks";
        let set_prefetch = a.ingestexternalfileoptions_set_prefetch_lmax_index_and_filter_blocks;
        let set_prefetch = needed(set_prefetch, name)?;
        Ok(move |options| {
            // SAFETY: the caller passes live options.
            unsafe {
                set_threads(options, threads);
                set_fill(options, u8::from(fill));
                set_prefetch(options, u8::from(prefetch));
            }
        })
    }

    /// Makes a checkpoint in the new directory `dir`.
    pub fn checkpoint(&self, dir: impl AsRef<Path>, log_size_for_flush: u64) -> Result<()> {
        let name = c_path(dir.as_ref())?;
        self.with_checkpoint(|object| {
            // SAFETY: live object, terminated name.
            self.lib.call(|api, err| unsafe {
                (api.checkpoint_create)(object, name.as_ptr(), log_size_for_flush, err);
            })
        })
    }

    fn with_checkpoint<T>(&self, f: impl FnOnce(*mut api::Checkpoint) -> Result<T>) -> Result<T> {
        // SAFETY: live database; the object is freed once, after use.
        let object = self
            .lib
            .call(|api, err| unsafe { (api.checkpoint_object_create)(self.raw, err) })?;
        let result = f(object);
        // SAFETY: as above.
        unsafe { (self.lib.api.checkpoint_object_destroy)(object) };
        result
    }

    /// Exports a family to the new directory `dir`.
    pub fn export(&self, cf: Cf<'_>, dir: impl AsRef<Path>) -> Result<RocksExport> {
        let name = c_path(dir.as_ref())?;
        let api = &self.lib.api;
        let export = needed(
            api.checkpoint_export_column_family,
            "checkpoint_export_column_family",
        )?;
        let raw = self.with_checkpoint(|object| {
            // SAFETY: live object and family, terminated name.
            self.lib
                .call(|_, err| unsafe { export(object, cf.raw, name.as_ptr(), err) })
        })?;
        Ok(RocksExport {
            lib: Arc::clone(&self.lib),
            raw,
        })
    }

    /// Creates a family from exported files.
    pub fn import(
        &mut self,
        name: &str,
        options: &RocksOptions,
        files: &RocksExport,
    ) -> Result<()> {
        let c_name = c_string(name)?;
        let api = &self.lib.api;
        let import = needed(
            api.create_column_family_with_import,
            "create_column_family_with_import",
        )?;
        let create = needed(
            api.import_column_family_options_create,
            "import_column_family_options_create",
        )?;
        let destroy = needed(
            api.import_column_family_options_destroy,
            "import_column_family_options_destroy",
        )?;
        // SAFETY: live database, options and metadata, terminated name; freed once.
        let handle = unsafe {
            let how = create();
            let handle = self
                .lib
                .call(|_, err| import(self.raw, options.raw, c_name.as_ptr(), how, files.raw, err));
            destroy(how);
            handle?
        };
        self.add_family(name, handle);
        Ok(())
    }

    /// The approximate size in bytes of a family's data between the two keys.
    pub fn approximate_size(&self, cf: Cf<'_>, start: &[u8], limit: &[u8]) -> Result<u64> {
        let (mut size, starts, limits) = (0u64, [start.as_ptr().cast()], [limit.as_ptr().cast()]);
        let (start_len, limit_len) = (start.len(), limit.len());
        // SAFETY: arrays of one element each, which live through the call.
        self.lib.call(|api, err| unsafe {
            (api.approximate_sizes_cf)(
                self.raw,
                cf.raw,
                1,
                starts.as_ptr(),
                &raw const start_len,
                limits.as_ptr(),
                &raw const limit_len,
                &raw mut size,
                err,
            );
        })?;
        Ok(size)
    }

    /// Deletes the files that lie entirely between the two keys, both included.
    pub fn delete_files_in_range(&self, cf: Cf<'_>, start: &[u8], limit: &[u8]) -> Result<()> {
        let (s, l) = (start.as_ptr().cast(), limit.as_ptr().cast());
        // SAFETY: live database and family; RocksDB does not keep the bytes.
        self.lib.call(|api, err| unsafe {
            (api.delete_file_in_range_cf)(self.raw, cf.raw, s, start.len(), l, limit.len(), err);
        })
    }

    /// Opens a database of `DBWithTTL`.
    pub fn open_with_ttl(options: &RocksOptions, path: impl AsRef<Path>, ttl: i32) -> Result<Self> {
        let lib = Arc::clone(&options.lib);
        let name = c_path(path.as_ref())?;
        let (families, each) = ([c"default".as_ptr()], [options.raw.cast_const()]);
        let mut default = ptr::null_mut();
        // SAFETY: live options, terminated names; arrays of one element each.
        let raw = lib.call(|api, err| unsafe {
            (api.open_column_families_with_ttl)(
                options.raw,
                name.as_ptr(),
                1,
                families.as_ptr(),
                each.as_ptr(),
                &raw mut default,
                &raw const ttl,
                err,
            )
        })?;
        Ok(Self::from_raw(lib, raw, default))
    }

    /// In a secondary instance: catches up with the primary.
    pub fn try_catch_up_with_primary(&self) -> Result<()> {
        // SAFETY: live database.
        self.lib
            .call(|api, err| unsafe { (api.try_catch_up_with_primary)(self.raw, err) })
    }
}

/// A table for a [`RocksExport`].
#[derive(Clone, Debug, Default)]
pub struct RocksLiveFile {
    /// Its level.
    pub level: i32,
    /// Its name, with a leading slash.
    pub name: String,
    /// Its directory.
    pub directory: String,
    /// Bytes.
    pub size: usize,
    /// The smallest user key.
    pub smallest_key: Vec<u8>,
    /// The largest user key.
    pub largest_key: Vec<u8>,
    /// The smallest sequence number.
    pub smallest_seqno: u64,
    /// The largest sequence number.
    pub largest_seqno: u64,
}

/// The result of an export, and the input of an import.
pub struct RocksExport {
    lib: Arc<Library>,
    raw: *mut api::ExportMetadata,
}

impl RocksExport {
    /// Describes files that another program exported.
    pub fn of(lib: &Arc<Library>, comparator: &str, files: &[RocksLiveFile]) -> Result<Self> {
        let a = &lib.api;
        let create = needed(
            a.export_import_files_metadata_create,
            "export_import_files_metadata_create",
        )?;
        let set_name = needed(
            a.export_import_files_metadata_set_db_comparator_name,
            "export_import_files_metadata_set_db_comparator_name",
        )?;
        let set_files = needed(
            a.export_import_files_metadata_set_files,
            "export_import_files_metadata_set_files",
        )?;
        let list_create = needed(a.livefiles_create, "livefiles_create")?;
        let add = needed(a.livefiles_add, "livefiles_add")?;
        let file_create = needed(a.livefile_create, "livefile_create")?;
        let set_level = needed(a.livefile_set_level, "livefile_set_level")?;
        let set_file_name = needed(a.livefile_set_name, "livefile_set_name")?;
        let set_directory = needed(a.livefile_set_directory, "livefile_set_directory")?;
        let set_size = needed(a.livefile_set_size, "livefile_set_size")?;
        let set_smallest = needed(a.livefile_set_smallest_key, "livefile_set_smallest_key")?;
        let set_largest = needed(a.livefile_set_largest_key, "livefile_set_largest_key")?;
        let set_first = needed(a.livefile_set_smallest_seqno, "livefile_set_smallest_seqno")?;
        let set_last = needed(a.livefile_set_largest_seqno, "livefile_set_largest_seqno")?;
        let comparator = c_string(comparator)?;
        // SAFETY: RocksDB copies every string; `add` and `set_files` take what they are given.
        unsafe {
            let list = list_create();
            for file in files {
                let (name, directory) = (c_string(&file.name)?, c_string(&file.directory)?);
                let one = file_create();
                set_level(one, file.level);
                set_file_name(one, name.as_ptr());
                set_directory(one, directory.as_ptr());
                set_size(one, file.size);
                set_smallest(
                    one,
                    file.smallest_key.as_ptr().cast(),
                    file.smallest_key.len(),
                );
                set_largest(
                    one,
                    file.largest_key.as_ptr().cast(),
                    file.largest_key.len(),
                );
                set_first(one, file.smallest_seqno);
                set_last(one, file.largest_seqno);
                add(list, one);
            }
            let raw = create();
            set_name(raw, comparator.as_ptr().cast_mut());
            set_files(raw, list);
            Ok(Self {
                lib: Arc::clone(lib),
                raw,
            })
        }
    }

    /// The files that were exported.
    pub fn files(&self) -> Result<Vec<RocksLiveFile>> {
        let a = &self.lib.api;
        let get = needed(
            a.export_import_files_metadata_get_files,
            "export_import_files_metadata_get_files",
        )?;
        let directory = needed(a.livefiles_directory, "livefiles_directory")?;
        let first = needed(a.livefiles_smallest_seqno, "livefiles_smallest_seqno")?;
        let last = needed(a.livefiles_largest_seqno, "livefiles_largest_seqno")?;
        // SAFETY: RocksDB returns terminated strings and keys of the length it says, which live
        // until the list is freed; indexes are below the count.
        unsafe {
            let list = get(self.raw);
            let text = |t: *const std::ffi::c_char| {
                std::ffi::CStr::from_ptr(t).to_string_lossy().into_owned()
            };
            let key =
                |f: unsafe extern "C" fn(*const api::LiveFiles, i32, *mut usize) -> api::Bytes,
                 i| {
                    let mut len = 0;
                    let at = f(list, i, &raw mut len);
                    bytes(at, len).to_vec()
                };
            let all = (0..(a.livefiles_count)(list))
                .map(|i| RocksLiveFile {
                    level: (a.livefiles_level)(list, i),
                    name: text((a.livefiles_name)(list, i)),
                    directory: text(directory(list, i)),
                    size: (a.livefiles_size)(list, i),
                    smallest_key: key(a.livefiles_smallestkey, i),
                    largest_key: key(a.livefiles_largestkey, i),
                    smallest_seqno: first(list, i),
                    largest_seqno: last(list, i),
                })
                .collect();
            (a.livefiles_destroy)(list);
            Ok(all)
        }
    }
}

impl Drop for RocksExport {
    fn drop(&mut self) {
        if let Some(destroy) = self.lib.api.export_import_files_metadata_destroy {
            // SAFETY: created by this library, freed once.
            unsafe { destroy(self.raw) }
        }
    }
}

/// A backup, as RocksDB describes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RocksBackupInfo {
    /// Its id.
    pub id: u32,
    /// When it was made, seconds since 1970.
    pub timestamp: i64,
    /// Bytes.
    pub size: u64,
    /// Files.
    pub number_files: u32,
}

/// RocksDB's backup engine.
pub struct RocksBackupEngine {
    lib: Arc<Library>,
    raw: *mut api::BackupEngine,
}

impl RocksBackupEngine {
    /// Opens the backups in `dir`.
    pub fn open(options: &RocksOptions, dir: impl AsRef<Path>) -> Result<Self> {
        let lib = Arc::clone(&options.lib);
        let name = c_path(dir.as_ref())?;
        // SAFETY: live options, terminated name.
        let raw = lib.call(|api, err| unsafe {
            (api.backup_engine_open)(options.raw, name.as_ptr(), err)
        })?;
        Ok(Self { lib, raw })
    }

    /// Makes a backup.
    pub fn create(&self, db: &RocksDb, flush: bool) -> Result<()> {
        // SAFETY: live engine and database.
        self.lib.call(|api, err| unsafe {
            (api.backup_engine_create_new_backup_flush)(self.raw, db.raw, u8::from(flush), err);
        })
    }

    /// The intact backups.
    pub fn info(&self) -> Vec<RocksBackupInfo> {
        let api = &self.lib.api;
        // SAFETY: live engine; the information is freed once, and indexes are below the count.
        unsafe {
            let info = (api.backup_engine_get_backup_info)(self.raw);
            let all = (0..(api.backup_engine_info_count)(info))
                .map(|i| RocksBackupInfo {
                    id: (api.backup_engine_info_backup_id)(info, i),
                    timestamp: (api.backup_engine_info_timestamp)(info, i),
                    size: (api.backup_engine_info_size)(info, i),
                    number_files: (api.backup_engine_info_number_files)(info, i),
                })
                .collect();
            (api.backup_engine_info_destroy)(info);
            all
        }
    }

    /// Verifies a backup's sizes.
    pub fn verify(&self, id: u32) -> Result<()> {
        // SAFETY: live engine.
        self.lib
            .call(|api, err| unsafe { (api.backup_engine_verify_backup)(self.raw, id, err) })
    }

    /// Deletes all backups but the newest `keep`.
    pub fn purge(&self, keep: u32) -> Result<()> {
        // SAFETY: live engine.
        self.lib
            .call(|api, err| unsafe { (api.backup_engine_purge_old_backups)(self.raw, keep, err) })
    }

    /// Restores a backup to `dir`; the newest if `id` is `None`.
    pub fn restore(&self, id: Option<u32>, dir: impl AsRef<Path>) -> Result<()> {
        let name = c_path(dir.as_ref())?;
        // SAFETY: live engine, terminated name; the options are freed once.
        unsafe {
            let options = (self.lib.api.restore_options_create)();
            let name = name.as_ptr();
            let result = self.lib.call(|api, err| match id {
                Some(id) => (api.backup_engine_restore_db_from_backup)(
                    self.raw, name, name, options, id, err,
                ),
                None => (api.backup_engine_restore_db_from_latest_backup)(
                    self.raw, name, name, options, err,
                ),
            });
            (self.lib.api.restore_options_destroy)(options);
            result
        }
    }
}

impl Drop for RocksBackupEngine {
    fn drop(&mut self) {
        // SAFETY: opened by this library, closed once.
        unsafe { (self.lib.api.backup_engine_close)(self.raw) };
        self.raw = ptr::null_mut();
    }
}
