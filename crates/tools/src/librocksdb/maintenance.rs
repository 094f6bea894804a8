//! Work on the files of a database as a whole: compaction of one level, verification of checksums; and
//! the costs of a thread's operations.

use std::ffi::{CStr, CString, c_char, c_int};
use std::ptr;
use std::sync::Arc;

use base::Result;

use super::files::needed;
use super::{Cf, Library, RocksDb, api, bytes};

/// A table file that is part of a database.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RocksTable {
    /// Its level.
    pub level: i32,
    /// Its name, as `compact_files` wants it.
    pub name: CString,
    /// Its size.
    pub bytes: u64,
    /// The smallest user key in it.
    pub smallest: Vec<u8>,
    /// The largest user key in it.
    pub largest: Vec<u8>,
    /// The smallest and the largest sequence number in it; 0 in libraries that do not report them.
    pub sequences: (u64, u64),
}

/// A key of file `i` of a list.
///
/// # Safety
/// `of` is one of RocksDB's functions for this, the list lives and has the file.
unsafe fn key(
    of: unsafe extern "C" fn(*const api::LiveFiles, c_int, *mut usize) -> api::Bytes,
    list: *const api::LiveFiles,
    i: c_int,
) -> Vec<u8> {
    let mut len = 0;
    // SAFETY: the caller's contract; the bytes belong to the list.
    unsafe {
        let data = of(list, i, &raw mut len);
        bytes(data, len).to_vec()
    }
}

impl RocksDb {
    /// The table files of the database's family of this name: level by level; those of level 0 newest
    /// first.
    pub fn tables(&self, family: &str) -> Result<Vec<RocksTable>> {
        let a = &self.lib.api;
        let list = needed(a.livefiles, "livefiles")?;
        let name_of = needed(
            a.livefiles_column_family_name,
            "livefiles_column_family_name",
        )?;
        // SAFETY: a live database; the list is read while it lives and freed once. Names are
        // terminated strings that belong to the list.
        unsafe {
            let list = list(self.raw);
            let all = (0..(a.livefiles_count)(list))
                .filter(|&i| CStr::from_ptr(name_of(list, i)).to_bytes() == family.as_bytes())
                .map(|i| RocksTable {
                    level: (a.livefiles_level)(list, i),
                    name: CStr::from_ptr((a.livefiles_name)(list, i)).to_owned(),
                    bytes: (a.livefiles_size)(list, i) as u64,
                    smallest: key(a.livefiles_smallestkey, list, i),
                    largest: key(a.livefiles_largestkey, list, i),
                    sequences: (
                        a.livefiles_smallest_seqno.map_or(0, |of| of(list, i)),
                        a.livefiles_largest_seqno.map_or(0, |of| of(list, i)),
                    ),
                })
                .collect();
            (a.livefiles_destroy)(list);
            Ok(all)
        }
    }

    /// Compacts these files of a family into a level. Errors: a file is gone, or is being compacted.
    pub fn compact_files(&self, cf: Cf<'_>, files: &[CString], output_level: i32) -> Result<()> {
        self.compact_files_sized(cf, files, output_level, None)
    }

    /// The same, into files of at most `file_bytes`.
    pub fn compact_files_sized(
        &self,
        cf: Cf<'_>,
        files: &[CString],
        output_level: i32,
        file_bytes: Option<u64>,
    ) -> Result<()> {
        let a = &self.lib.api;
        let limit = a.compaction_options_set_output_file_size_limit;
        let limit = file_bytes
            .map(|_| needed(limit, "compaction_options_set_output_file_size_limit"))
            .transpose()?;
        let create = needed(a.compaction_options_create, "compaction_options_create")?;
        let destroy = needed(a.compaction_options_destroy, "compaction_options_destroy")?;
        let compact = needed(a.compact_files_cf, "compact_files_cf")?;
        let free = needed(
            a.compact_files_output_file_names_destroy,
            "compact_files_output_file_names_destroy",
        )?;
        let names: Vec<*const c_char> = files.iter().map(|f| f.as_ptr()).collect();
        let (mut outputs, mut count) = (ptr::null_mut(), 0);
        // SAFETY: no argument; freed below.
        let options = unsafe { create() };
        if let (Some(limit), Some(bytes)) = (limit, file_bytes) {
            // SAFETY: live options.
            unsafe { limit(options, bytes) };
        }
        let family = self.own(cf);
        // SAFETY: live database, family, options and names, and places for the results; nobody asks
        // for the job's description.
        let done = self.lib.call(|_, err| unsafe {
            compact(
                self.raw,
                family,
                options,
                names.as_ptr(),
                names.len(),
                output_level,
                -1,
                &raw mut outputs,
                &raw mut count,
                ptr::null_mut(),
                err,
            );
        });
        // SAFETY: made above by this library, freed once.
        unsafe {
            destroy(options);
            if !outputs.is_null() {
                free(outputs, count);
            }
        }
        done
    }

    /// Reads every block and verifies its checksum.
    pub fn verify_checksum(&self) -> Result<()> {
        let verify = needed(self.lib.api.verify_checksum, "verify_checksum")?;
        // SAFETY: a live database.
        self.lib.call(|_, err| unsafe { verify(self.raw, err) })
    }

    /// Compares the checksums of whole files with those in the MANIFEST.
    pub fn verify_file_checksums(&self) -> Result<()> {
        let verify = needed(self.lib.api.verify_file_checksums, "verify_file_checksums")?;
        // SAFETY: a live database.
        self.lib.call(|_, err| unsafe { verify(self.raw, err) })
    }
}

/// The costs of the calling thread's operations: RocksDB's `PerfContext`.
pub struct RocksPerf {
    lib: Arc<Library>,
    raw: *mut api::PerfContext,
}

impl RocksPerf {
    /// Starts to measure in this thread, at one of RocksDB's perf levels: 1 nothing, 2 counts, 3
    /// and more times too.
    pub fn start(lib: &Arc<Library>, level: i32) -> Result<Self> {
        let create = needed(lib.api.perfcontext_create, "perfcontext_create")?;
        let reset = needed(lib.api.perfcontext_reset, "perfcontext_reset")?;
        needed(lib.api.perfcontext_destroy, "perfcontext_destroy")?;
        let set = needed(lib.api.set_perf_level, "set_perf_level")?;
        // SAFETY: the calling thread's level and counters; freed by Drop.
        let raw = unsafe {
            set(level);
            let raw = create();
            reset(raw);
            raw
        };
        let lib = Arc::clone(lib);
        Ok(Self { lib, raw })
    }

    /// The counters that are not zero, as RocksDB writes them.
    pub fn report(&self) -> Result<String> {
        let report = needed(self.lib.api.perfcontext_report, "perfcontext_report")?;
        // SAFETY: live; RocksDB returns a terminated string, which is freed by taking it.
        let text = unsafe { report(self.raw, 1) };
        Ok(self.lib.take_string(text).unwrap_or_default())
    }
}

impl Drop for RocksPerf {
    fn drop(&mut self) {
        if let Some(destroy) = self.lib.api.perfcontext_destroy {
            // SAFETY: created by this library, freed once.
            unsafe { destroy(self.raw) }
        }
    }
}
