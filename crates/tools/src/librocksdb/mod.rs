//! Real RocksDB, loaded at run time: a safe wrapper over the C API of any `librocksdb.so`.
//!
//! So one binary can drive Ironstone and a RocksDB that was not present at compile time: `db_bench`
//! compares the two, and tests let RocksDB read files that Ironstone wrote.
//!
//! ```text
//!   Library ── options() ─> RocksOptions ── RocksDb::open ─> RocksDb ─┬─ Cf     (borrowed)
//!      │                                                              ├─ RocksIter
//!      └── batch() ─> RocksWriteBatch                                 └─ RocksSnapshot
//! ```
//!
//! Invariants:
//! - A library stays loaded until the process ends: RocksDB's background threads outlive its
//!   databases.
//! - A process loads one RocksDB. C++ marks some of RocksDB's static data as unique in a process
//!   (`STB_GNU_UNIQUE`), so a second version would run on the first one's data. [`Library::open`]
//!   refuses it.
//! - Iterators, snapshots and family handles borrow the database; dropping frees everything.
//!
//! ```no_run
//! use tools::librocksdb::{Library, RocksDb};
//! # fn main() -> base::Result<()> {
//! let lib = Library::discover()?;
//! let mut options = lib.options();
//! options.create_if_missing(true).set("compression", "kNoCompression")?;
//! let db = RocksDb::open(&options, "/tmp/example")?;
//! db.put(b"key", b"value")?;
//! assert_eq!(db.get(b"key")?.as_deref(), Some(&b"value"[..]));
//! # Ok(()) }
//! ```

#![expect(
    unsafe_code,
    reason = "calls RocksDB's C API; nothing outside this module does"
)]

mod api;
mod batch;
mod db;
mod files;
mod filter;
mod iter;
mod maintenance;
mod options;
mod shared;
mod writes;

use std::ffi::{CStr, CString, c_char};
use std::mem::ManuallyDrop;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use base::{Error, ErrorKind, Result};

use api::Api;
pub use batch::RocksWriteBatch;
pub use db::{Cf, RocksDb};
pub use files::{
    RocksBackupEngine, RocksBackupInfo, RocksExport, RocksIngest, RocksLiveFile, RocksSstFileWriter,
};
pub use filter::{FilterFunction, FilterVerdict};
pub use iter::{RocksIter, RocksSnapshot};
pub use maintenance::{RocksPerf, RocksTable};
pub use options::{
    RateLimit, RocksCache, RocksOptions, RocksReadOptions, RocksTableOptions, RocksWriteOptions,
};
pub use shared::{KeyOrder, PoolThreads};

/// The environment variable that names the library to use.
pub const LIBRARY_VARIABLE: &str = "IRONSTONE_LIBROCKSDB";

/// The path of RocksDB 11.8.1 after `cargo xtask peers`, relative to the repository's root.
pub const PEER: &str = "target/peers/librocksdb-11.8.1.so";

/// Debian's RocksDB (package `librocksdb7.8`), found by the dynamic loader.
pub const DEBIAN: &str = "librocksdb.so.7.8";

/// A loaded `librocksdb.so`.
pub struct Library {
    api: Api,
    path: PathBuf,
    version: OnceLock<String>,
    _loaded: ManuallyDrop<libloading::Library>,
}

/// The RocksDB of this process.
static LOADED: Mutex<Option<Arc<Library>>> = Mutex::new(None);

impl Library {
    /// Loads the library at `path`, or returns it if it is loaded already. A name without a slash
    /// is searched by the dynamic loader.
    ///
    /// Errors: `NotFound` if it cannot be loaded, `InvalidArgument` naming the missing functions
    /// if it is not a RocksDB, `NotSupported` if this process has loaded another RocksDB.
    pub fn open(path: impl AsRef<Path>) -> Result<Arc<Self>> {
        let path = path.as_ref();
        let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
        let mut loaded = LOADED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lib) = &*loaded {
            if lib.path == path {
                return Ok(Arc::clone(lib));
            }
            return Err(Error::not_supported(
                "a second RocksDB in one process: their static data would mix",
            )
            .file(&path)
            .hint(format!("{} is loaded already", lib.path.display())));
        }
        let lib = Arc::new(Self::load(path)?);
        *loaded = Some(Arc::clone(&lib));
        Ok(lib)
    }

    fn load(path: PathBuf) -> Result<Self> {
        // SAFETY: running a library's initialisers is what loading means; the path is the
        // user's choice of RocksDB.
        let raw = unsafe { libloading::Library::new(&path) }.map_err(|e| {
            Error::not_found(format!("cannot load it: {e}"))
                .file(&path)
                .hint("cargo xtask peers fetches RocksDB 11.8.1")
        })?;
        // Never unloaded: RocksDB's threads may still run.
        let raw = ManuallyDrop::new(raw);
        // SAFETY: names that start with `rocksdb_` are RocksDB's C API, and `raw` stays loaded.
        let api = unsafe { Api::load(&raw) }.map_err(|missing| {
            let shown = missing
                .iter()
                .take(3)
                .copied()
                .collect::<Vec<_>>()
                .join(", ");
            Error::invalid_argument(format!(
                "not a librocksdb with the C API: {} of {} functions are missing: {shown}{}",
                missing.len(),
                Api::REQUIRED.len(),
                if missing.len() > 3 { ", …" } else { "" },
            ))
            .file(&path)
        })?;
        Ok(Self {
            api,
            path,
            version: OnceLock::new(),
            _loaded: raw,
        })
    }

    /// Loads the library that [`LIBRARY_VARIABLE`] names; without it, [`PEER`] if it is there, else
    /// [`DEBIAN`]. If no library is named and this process has loaded one already, returns that
    /// one.
    pub fn discover() -> Result<Arc<Self>> {
        if let Some(path) = std::env::var_os(LIBRARY_VARIABLE) {
            return Self::open(PathBuf::from(path));
        }
        if let Some(lib) = &*LOADED.lock().unwrap_or_else(PoisonError::into_inner) {
            return Ok(Arc::clone(lib));
        }
        if let Some(peer) = peer_path() {
            return Self::open(peer);
        }
        Self::open(DEBIAN).map_err(|e| {
            Error::not_found("no RocksDB found")
                .hint(format!(
                    "run cargo xtask peers, install {DEBIAN}, or set {LIBRARY_VARIABLE}"
                ))
                .because(e)
        })
    }

    /// The path of the library.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// RocksDB's version as it is written to OPTIONS files. The first call makes a small database
    /// in the temporary directory.
    pub fn version(self: &Arc<Self>) -> Result<String> {
        if let Some(version) = self.version.get() {
            return Ok(version.clone());
        }
        let version = options::written_version(self)?;
        Ok(self.version.get_or_init(|| version).clone())
    }

    /// Options with RocksDB's defaults.
    pub fn options(self: &Arc<Self>) -> RocksOptions {
        RocksOptions::new(self)
    }

    /// Options of the block-based table format, with RocksDB's defaults.
    pub fn table_options(self: &Arc<Self>) -> RocksTableOptions {
        RocksTableOptions::new(self)
    }

    /// Options of reads, with RocksDB's defaults.
    pub fn read_options(self: &Arc<Self>) -> RocksReadOptions<'static> {
        RocksReadOptions::new(self)
    }

    /// Options of writes, with RocksDB's defaults.
    pub fn write_options(self: &Arc<Self>) -> RocksWriteOptions {
        RocksWriteOptions::new(self)
    }

    /// A block cache with least-recently-used replacement and room for `capacity` bytes.
    pub fn lru_cache(self: &Arc<Self>, capacity: usize) -> RocksCache {
        RocksCache::lru(self, capacity)
    }

    /// An empty batch.
    pub fn batch(self: &Arc<Self>) -> RocksWriteBatch {
        RocksWriteBatch::new(self)
    }

    /// An empty batch whose entries have checksums of this many bytes: 0 or 8. Without effect where the
    /// C API lacks it: [`Library::checks_batches`].
    pub fn batch_with_checksums(self: &Arc<Self>, bytes: usize) -> RocksWriteBatch {
        RocksWriteBatch::with_checksums(self, bytes)
    }

    /// Whether entries of batches can have checksums.
    pub fn checks_batches(&self) -> bool {
        self.api.writebatch_create_with_params.is_some()
    }

    /// Whether the rate limiter can limit log writes.
    pub fn limits_log(&self) -> bool {
        self.api.writeoptions_set_rate_limiter_priority.is_some()
    }

    /// Calls a function that reports errors through its last argument.
    #[inline]
    fn call<R>(&self, f: impl FnOnce(&Api, api::Err) -> R) -> Result<R> {
        let mut text: *mut c_char = std::ptr::null_mut();
        let out = f(&self.api, &raw mut text);
        if text.is_null() {
            Ok(out)
        } else {
            Err(self.take_error(text))
        }
    }

    #[cold]
    fn take_error(&self, text: *mut c_char) -> Error {
        to_error(&self.take_string(text).unwrap_or_default())
    }

    /// Copies and frees a string that the library allocated; `None` for null.
    fn take_string(&self, text: *mut c_char) -> Option<String> {
        if text.is_null() {
            return None;
        }
        // SAFETY: not null, and the library's strings are terminated.
        let copy = unsafe { CStr::from_ptr(text) }
            .to_string_lossy()
            .into_owned();
        // SAFETY: the library allocated it and nobody else has the pointer.
        unsafe { (self.api.free)(text.cast()) };
        Some(copy)
    }
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Library").field(&self.path).finish()
    }
}

/// The peer in the working directory or in the source tree of this build.
fn peer_path() -> Option<PathBuf> {
    let here = PathBuf::from(PEER);
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .join(PEER);
    [here, source].into_iter().find(|p| p.is_file())
}

/// Converts RocksDB's error text to an [`Error`]; the first words of the text determine the kind.
fn to_error(text: &str) -> Error {
    use ErrorKind as K;
    let kinds = [
        K::NotFound,
        K::Corruption,
        K::NotSupported,
        K::InvalidArgument,
        K::IoError,
        K::Incomplete,
        K::ShutdownInProgress,
        K::TimedOut,
        K::Aborted,
        K::Busy,
        K::TryAgain,
        K::ColumnFamilyDropped,
    ];
    for kind in kinds {
        if let Some(rest) = text.strip_prefix(kind.label()) {
            let kind = if kind == K::IoError && rest.contains("No space left on device") {
                K::NoSpace
            } else {
                kind
            };
            return Error::new(kind, rest.strip_prefix(": ").unwrap_or(rest));
        }
    }
    Error::new(K::Aborted, text)
}

fn c_path(path: &Path) -> Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| Error::invalid_argument("a path with a zero byte").file(path))
}

fn c_string(text: &str) -> Result<CString> {
    CString::new(text).map_err(|_| Error::invalid_argument(format!("{text:?} has a zero byte")))
}

/// The bytes at `data`; nothing for a null pointer or a length of 0.
///
/// # Safety
/// `data` must point to `len` bytes that live, unchanged, for `'a`.
unsafe fn bytes<'a>(data: api::Bytes, len: usize) -> &'a [u8] {
    if data.is_null() || len == 0 {
        return &[];
    }
    // SAFETY: the caller's contract.
    unsafe { std::slice::from_raw_parts(data.cast(), len) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_text_becomes_a_kind_and_a_message() {
        let e = to_error("Invalid argument: x: does not exist");
        assert_eq!(e.kind(), ErrorKind::InvalidArgument);
        assert_eq!(e.to_string(), "Invalid argument: x: does not exist");
        let e = to_error("IO error: No space left on device: While appending");
        assert_eq!(e.kind(), ErrorKind::NoSpace);
        assert_eq!(to_error("odd").kind(), ErrorKind::Aborted);
    }

    #[test]
    fn what_is_not_a_rocksdb_is_refused_with_what_it_lacks() {
        let e = Library::load(PathBuf::from("/nonexistent/librocksdb.so")).unwrap_err();
        assert!(e.is_not_found(), "{e}");
        let e = Library::load(PathBuf::from("libc.so.6")).unwrap_err();
        assert_eq!(e.kind(), ErrorKind::InvalidArgument);
        assert!(e.to_string().contains("rocksdb_free, "), "{e}");
    }
}
