//! Options of databases, tables, reads and writes.
//!
//! [`RocksOptions::set`] takes any option under the name and in the form that OPTIONS files use, so
//! there is a setter only if a setting has no text form (caches, statistics), or if a benchmark
//! avoids strings.

use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{Error, Result};

use super::files::needed;
use super::{Library, RocksDb, RocksSnapshot, api, c_path, c_string};

/// RocksDB's `Env::IO_USER`.
const IO_USER: i32 = 3;

/// A limit for the writes of flushes and compactions.
#[derive(Clone, Copy, Debug)]
pub struct RateLimit {
    /// Bytes a second.
    pub bytes_per_second: i64,
    /// Microseconds between two refills of the budget. RocksDB's default is 100,000.
    pub refill_period_us: i64,
    /// Whether the rate adapts to the load, up to `bytes_per_second`.
    pub auto_tuned: bool,
    /// Whether reads of compactions are limited instead of writes.
    pub reads: bool,
}

/// Options of a database or column family.
pub struct RocksOptions {
    pub(super) lib: Arc<Library>,
    pub(super) raw: *mut api::Options,
}

// SAFETY: options are plain memory of RocksDB's; changing them takes `&mut`.
unsafe impl Send for RocksOptions {}
// SAFETY: as above.
unsafe impl Sync for RocksOptions {}

impl RocksOptions {
    pub(super) fn new(lib: &Arc<Library>) -> Self {
        // SAFETY: no argument, and the result is freed by Drop.
        let raw = unsafe { (lib.api.options_create)() };
        Self {
            lib: Arc::clone(lib),
            raw,
        }
    }

    /// Reads the newest OPTIONS file of the database in `dir`: the options of the database, and of
    /// each family by name. Errors: RocksDB refuses the file.
    pub fn load_latest(
        lib: &Arc<Library>,
        dir: impl AsRef<Path>,
        ignore_unknown: bool,
    ) -> Result<(Self, Vec<(String, Self)>)> {
        let path = c_path(dir.as_ref())?;
        let (mut whole, mut families) = (ptr::null_mut(), ptr::null_mut());
        let (mut count, mut names) = (0, ptr::null_mut());
        let cache = RocksCache::lru(lib, 1 << 20);
        // SAFETY: no argument; freed below.
        let env = unsafe { (lib.api.create_default_env)() };
        // SAFETY: a terminated path, a live environment and cache, and places for the results.
        let loaded = lib.call(|api, err| unsafe {
            (api.load_latest_options)(
                path.as_ptr(),
                env,
                ignore_unknown,
                cache.raw,
                &raw mut whole,
                &raw mut count,
                &raw mut names,
                &raw mut families,
                err,
            );
        });
        // SAFETY: made above, freed once.
        unsafe { (lib.api.env_destroy)(env) };
        loaded.map_err(|e| e.or_file(&dir))?;
        let copy = |raw| Self {
            lib: Arc::clone(lib),
            // SAFETY: live options, freed only below.
            raw: unsafe { (lib.api.options_create_copy)(raw) },
        };
        // SAFETY: RocksDB returned `count` terminated names and as many options; all are copied
        // before they are freed once.
        unsafe {
            let each = (0..count).map(|i| {
                let name = CStr::from_ptr(*names.add(i)).to_string_lossy();
                (name.into_owned(), copy(*families.add(i)))
            });
            let out = (copy(whole), each.collect());
            (lib.api.load_latest_options_destroy)(whole, names, families, count);
            Ok(out)
        }
    }

    /// The library that they belong to.
    pub fn library(&self) -> &Arc<Library> {
        &self.lib
    }

    /// Sets one option by its name in OPTIONS files, for example `write_buffer_size` to `1048576`,
    /// `comparator` to `rocksdb.ReverseBytewiseComparator`, or `block_based_table_factory` to
    /// `{format_version=5;block_size=4096}`. On an error nothing is changed.
    pub fn set(&mut self, name: &str, value: &str) -> Result<&mut Self> {
        self.set_all(&format!("{name}={value}"))
    }

    /// Sets several options: `name=value;name=value`. On an error nothing is changed.
    pub fn set_all(&mut self, text: &str) -> Result<&mut Self> {
        let text = c_string(text)?;
        let new = Self::new(&self.lib);
        // SAFETY: both options are live and distinct; the string is terminated.
        self.lib.call(|api, err| unsafe {
            (api.get_options_from_string)(self.raw, text.as_ptr(), new.raw, err);
        })?;
        *self = new;
        Ok(self)
    }

    /// Whether opening creates a database that does not exist. Default: false.
    pub fn create_if_missing(&mut self, yes: bool) -> &mut Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.options_set_create_if_missing)(self.raw, u8::from(yes)) };
        self
    }

    /// Whether opening fails if the database exists. Default: false.
    pub fn error_if_exists(&mut self, yes: bool) -> &mut Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.options_set_error_if_exists)(self.raw, u8::from(yes)) };
        self
    }

    /// Compression of new blocks, by the number in the block trailer: 0 none, 1 snappy, 2 zlib, 3
    /// bzip2, 4 lz4, 5 lz4hc, 7 zstd.
    pub fn compression(&mut self, kind: u8) -> &mut Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.options_set_compression)(self.raw, i32::from(kind)) };
        self
    }

    /// How recovery handles damaged logs: 0 tolerate corrupted tail records, 1 absolute
    /// consistency, 2 point in time (the default), 3 skip any corrupted records.
    pub fn wal_recovery_mode(&mut self, mode: u8) -> &mut Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.options_set_wal_recovery_mode)(self.raw, i32::from(mode)) };
        self
    }

    /// Uses the block-based table format with these options.
    pub fn table(&mut self, table: &RocksTableOptions) -> &mut Self {
        // SAFETY: both live; RocksDB copies the table options.
        unsafe { (self.lib.api.options_set_block_based_table_factory)(self.raw, table.raw) };
        self
    }

    /// Limits the writes, or the reads, of flushes and compactions. Errors: the library is too old
    /// for it.
    pub fn rate_limit(&mut self, how: RateLimit) -> Result<&mut Self> {
        const FAIRNESS: i32 = 10; // RocksDB's default
        const READS: i32 = 0; // RateLimiter::Mode
        const WRITES: i32 = 1;
        let create = self.lib.api.ratelimiter_create_with_mode;
        let create = super::files::needed(create, "ratelimiter_create_with_mode")?;
        let mode = if how.reads { READS } else { WRITES };
        // SAFETY: live options; they share the ownership of the limiter.
        unsafe {
            let (rate, refill) = (how.bytes_per_second, how.refill_period_us);
            let limiter = create(rate, refill, FAIRNESS, mode, u8::from(how.auto_tuned));
            (self.lib.api.options_set_ratelimiter)(self.raw, limiter);
            (self.lib.api.ratelimiter_destroy)(limiter);
        }
        Ok(self)
    }

    /// Counts events while databases with these options are open.
    pub fn enable_statistics(&mut self) -> &mut Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.options_enable_statistics)(self.raw) };
        self
    }

    /// The counters as RocksDB prints them; `None` unless statistics are enabled.
    pub fn statistics(&self) -> Option<String> {
        // SAFETY: live options.
        let text = unsafe { (self.lib.api.options_statistics_get_string)(self.raw) };
        self.lib.take_string(text)
    }
}

impl Drop for RocksOptions {
    fn drop(&mut self) {
        // SAFETY: created by this library, freed once; databases keep copies.
        unsafe { (self.lib.api.options_destroy)(self.raw) }
    }
}

/// A block cache that tables of several families and databases may share.
pub struct RocksCache {
    lib: Arc<Library>,
    pub(super) raw: *mut api::Cache,
}

// SAFETY: RocksDB's caches may be used by several threads at once.
unsafe impl Send for RocksCache {}
// SAFETY: as above.
unsafe impl Sync for RocksCache {}

impl RocksCache {
    pub(super) fn lru(lib: &Arc<Library>, capacity: usize) -> Self {
        // SAFETY: the result is freed by Drop.
        let raw = unsafe { (lib.api.cache_create_lru)(capacity) };
        Self::from_raw(lib, raw)
    }

    /// Takes over a cache that the library made.
    pub(super) fn from_raw(lib: &Arc<Library>, raw: *mut api::Cache) -> Self {
        Self {
            lib: Arc::clone(lib),
            raw,
        }
    }
}

impl Drop for RocksCache {
    fn drop(&mut self) {
        // SAFETY: created by this library; RocksDB counts references of its own.
        unsafe { (self.lib.api.cache_destroy)(self.raw) }
    }
}

/// Options of the block-based table format.
pub struct RocksTableOptions {
    lib: Arc<Library>,
    raw: *mut api::TableOptions,
}

impl RocksTableOptions {
    pub(super) fn new(lib: &Arc<Library>) -> Self {
        // SAFETY: the result is freed by Drop.
        let raw = unsafe { (lib.api.block_based_options_create)() };
        Self {
            lib: Arc::clone(lib),
            raw,
        }
    }

    /// Size of a data block in bytes before compression. Default: 4096.
    pub fn block_size(&mut self, bytes: usize) -> &mut Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.block_based_options_set_block_size)(self.raw, bytes) };
        self
    }

    /// Keys between restart points of a data block. Default: 16.
    pub fn block_restart_interval(&mut self, keys: i32) -> &mut Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.block_based_options_set_block_restart_interval)(self.raw, keys) };
        self
    }

    /// The table format's version.
    pub fn format_version(&mut self, version: i32) -> &mut Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.block_based_options_set_format_version)(self.raw, version) };
        self
    }

    /// The cache of uncompressed blocks.
    pub fn block_cache(&mut self, cache: &RocksCache) -> &mut Self {
        // SAFETY: both live; RocksDB shares the ownership of the cache.
        unsafe { (self.lib.api.block_based_options_set_block_cache)(self.raw, cache.raw) };
        self
    }

    /// Reads without a block cache.
    pub fn no_block_cache(&mut self) -> &mut Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.block_based_options_set_no_block_cache)(self.raw, 1) };
        self
    }

    /// A Bloom filter with this many bits per key in each file.
    pub fn bloom_filter(&mut self, bits_per_key: f64) -> &mut Self {
        // SAFETY: the table options take the new policy over.
        unsafe {
            let policy = (self.lib.api.filterpolicy_create_bloom_full)(bits_per_key);
            (self.lib.api.block_based_options_set_filter_policy)(self.raw, policy);
        }
        self
    }

    /// Whether indexes and filters go through the block cache. Default: false.
    pub fn cache_index_and_filter_blocks(&mut self, yes: bool) -> &mut Self {
        let set = self
            .lib
            .api
            .block_based_options_set_cache_index_and_filter_blocks;
        // SAFETY: live options.
        unsafe { set(self.raw, u8::from(yes)) };
        self
    }
}

impl Drop for RocksTableOptions {
    fn drop(&mut self) {
        // SAFETY: created by this library, freed once.
        unsafe { (self.lib.api.block_based_options_destroy)(self.raw) }
    }
}

/// Options of a read. Iterators made with them borrow them.
pub struct RocksReadOptions<'a> {
    lib: Arc<Library>,
    pub(super) raw: *mut api::ReadOptions,
    /// RocksDB keeps pointers into the bounds.
    lower: Vec<u8>,
    upper: Vec<u8>,
    snapshot: std::marker::PhantomData<&'a ()>,
}

// SAFETY: plain memory of RocksDB's; changing it takes ownership.
unsafe impl Send for RocksReadOptions<'_> {}
// SAFETY: as above.
unsafe impl Sync for RocksReadOptions<'_> {}

impl<'a> RocksReadOptions<'a> {
    pub(super) fn new(lib: &Arc<Library>) -> Self {
        // SAFETY: the result is freed by Drop.
        let raw = unsafe { (lib.api.readoptions_create)() };
        Self {
            lib: Arc::clone(lib),
            raw,
            lower: Vec::new(),
            upper: Vec::new(),
            snapshot: std::marker::PhantomData,
        }
    }

    /// Whether block checksums are verified. Default: true.
    #[must_use]
    pub fn verify_checksums(self, yes: bool) -> Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.readoptions_set_verify_checksums)(self.raw, u8::from(yes)) };
        self
    }

    /// Whether blocks read go into the block cache. Default: true.
    #[must_use]
    pub fn fill_cache(self, yes: bool) -> Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.readoptions_set_fill_cache)(self.raw, u8::from(yes)) };
        self
    }

    /// Reads the content of the snapshot.
    #[must_use]
    pub fn snapshot<'b>(self, snapshot: &'b RocksSnapshot<'_>) -> RocksReadOptions<'b>
    where
        'a: 'b,
    {
        // SAFETY: live options, and the snapshot outlives them by its lifetime.
        unsafe { (self.lib.api.readoptions_set_snapshot)(self.raw, snapshot.raw) };
        self
    }

    /// Iterates from this key on. Must be set before iterators are made.
    #[must_use]
    pub fn lower_bound(mut self, key: &[u8]) -> Self {
        self.lower = key.to_vec();
        let (data, len) = (self.lower.as_ptr().cast(), self.lower.len());
        // SAFETY: live options; `lower` keeps the bytes where they are.
        unsafe { (self.lib.api.readoptions_set_iterate_lower_bound)(self.raw, data, len) };
        self
    }

    /// Iterates up to this key, not including it. Must be set before iterators are made.
    #[must_use]
    pub fn upper_bound(mut self, key: &[u8]) -> Self {
        self.upper = key.to_vec();
        let (data, len) = (self.upper.as_ptr().cast(), self.upper.len());
        // SAFETY: live options; `upper` keeps the bytes where they are.
        unsafe { (self.lib.api.readoptions_set_iterate_upper_bound)(self.raw, data, len) };
        self
    }
}

/// Fields that are set directly.
impl RocksReadOptions<'_> {
    /// Seeks consider all files in spite of a prefix extractor. Default: false.
    #[must_use]
    pub fn total_order_seek(self, yes: bool) -> Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.readoptions_set_total_order_seek)(self.raw, u8::from(yes)) };
        self
    }

    /// Iterators end at the end of the prefix that was sought. Default: false.
    #[must_use]
    pub fn prefix_same_as_start(self, yes: bool) -> Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.readoptions_set_prefix_same_as_start)(self.raw, u8::from(yes)) };
        self
    }

    /// Filters of prefixes are used where the bounds allow it. Default: false.
    #[must_use]
    pub fn auto_prefix_mode(self, yes: bool) -> Self {
        if let Some(set) = self.lib.api.readoptions_set_auto_prefix_mode {
            // SAFETY: live options.
            unsafe { set(self.raw, u8::from(yes)) };
        }
        self
    }

    /// Iterators also show later writes. Default: false.
    #[must_use]
    pub fn tailing(self, yes: bool) -> Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.readoptions_set_tailing)(self.raw, u8::from(yes)) };
        self
    }

    /// Bytes that iterators read ahead; 0 adapts to what they read.
    #[must_use]
    pub fn readahead_size(self, bytes: usize) -> Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.readoptions_set_readahead_size)(self.raw, bytes) };
        self
    }

    /// Reads several blocks at once if the library supports it. Default: false. Without effect
    /// where the C API lacks it.
    #[must_use]
    pub fn async_io(self, yes: bool) -> Self {
        if let Some(set) = self.lib.api.readoptions_set_async_io {
            // SAFETY: live options.
            unsafe { set(self.raw, u8::from(yes)) };
        }
        self
    }

    /// Keeps the size of the read-ahead from one file to the next. Default: false. Without effect
    /// where the C API lacks it.
    #[must_use]
    pub fn adaptive_readahead(self, yes: bool) -> Self {
        if let Some(set) = self.lib.api.readoptions_set_adaptive_readahead {
            // SAFETY: live options.
            unsafe { set(self.raw, u8::from(yes)) };
        }
        self
    }

    /// Reads ahead no further than the bound of an iterator. Default: true in newer libraries. Without
    /// effect where the C API lacks it.
    #[must_use]
    pub fn auto_readahead_size(self, yes: bool) -> Self {
        if let Some(set) = self.lib.api.readoptions_set_auto_readahead_size {
            // SAFETY: live options.
            unsafe { set(self.raw, u8::from(yes)) };
        }
        self
    }

    /// `MultiGet` reads several levels at once. Default: true. Without effect where the C API lacks it.
    #[must_use]
    pub fn optimize_multiget_for_io(self, yes: bool) -> Self {
        if let Some(set) = self.lib.api.readoptions_set_optimize_multiget_for_io {
            // SAFETY: live options.
            unsafe { set(self.raw, u8::from(yes)) };
        }
        self
    }

    /// The rate limiter limits these reads with the priority of users. Errors: the library is too
    /// old for it.
    pub fn limited_as_users(self) -> Result<Self> {
        let name = "readoptions_set_rate_limiter_priority";
        let set = needed(self.lib.api.readoptions_set_rate_limiter_priority, name)?;
        // SAFETY: live options.
        unsafe { set(self.raw, IO_USER) };
        Ok(self)
    }

    /// Iterators keep the blocks that they have visited. Default: false.
    #[must_use]
    pub fn pin_data(self, yes: bool) -> Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.readoptions_set_pin_data)(self.raw, u8::from(yes)) };
        self
    }

    /// Range tombstones hide nothing. Default: false.
    #[must_use]
    pub fn ignore_range_deletions(self, yes: bool) -> Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.readoptions_set_ignore_range_deletions)(self.raw, u8::from(yes)) };
        self
    }

    /// The read tier: 0 everything, 1 the block cache, 2 persisted data, 3 memtables.
    #[must_use]
    pub fn read_tier(self, tier: i32) -> Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.readoptions_set_read_tier)(self.raw, tier) };
        self
    }

    /// Internal keys that one move of an iterator may skip; 0 is no limit.
    #[must_use]
    pub fn max_skippable_internal_keys(self, keys: u64) -> Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.readoptions_set_max_skippable_internal_keys)(self.raw, keys) };
        self
    }

    /// Microseconds since 1970 after which reads of files fail; 0 is never.
    #[must_use]
    pub fn deadline(self, micros: u64) -> Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.readoptions_set_deadline)(self.raw, micros) };
        self
    }

    /// Bytes of values after which a `MultiGet` skips its remaining keys.
    #[must_use]
    pub fn value_size_soft_limit(self, bytes: u64) -> Self {
        if let Some(set) = self.lib.api.readoptions_set_value_size_soft_limit {
            // SAFETY: live options.
            unsafe { set(self.raw, bytes) };
        }
        self
    }

    /// Iterators with a snapshot switch to newer files. Default: false.
    #[must_use]
    pub fn auto_refresh_iterator_with_snapshot(self, yes: bool) -> Self {
        if let Some(set) = self
            .lib
            .api
            .readoptions_set_auto_refresh_iterator_with_snapshot
        {
            // SAFETY: live options.
            unsafe { set(self.raw, u8::from(yes)) };
        }
        self
    }
}

impl Drop for RocksReadOptions<'_> {
    fn drop(&mut self) {
        // SAFETY: created by this library, freed once; iterators borrow the options.
        unsafe { (self.lib.api.readoptions_destroy)(self.raw) }
    }
}

/// Options of a write.
pub struct RocksWriteOptions {
    lib: Arc<Library>,
    pub(super) raw: *mut api::WriteOptions,
}

// SAFETY: plain memory of RocksDB's; changing it takes ownership.
unsafe impl Send for RocksWriteOptions {}
// SAFETY: as above.
unsafe impl Sync for RocksWriteOptions {}

impl RocksWriteOptions {
    pub(super) fn new(lib: &Arc<Library>) -> Self {
        // SAFETY: the result is freed by Drop.
        let raw = unsafe { (lib.api.writeoptions_create)() };
        Self {
            lib: Arc::clone(lib),
            raw,
        }
    }

    /// Whether the write is durable when it returns. Default: false.
    #[must_use]
    pub fn sync(self, yes: bool) -> Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.writeoptions_set_sync)(self.raw, u8::from(yes)) };
        self
    }

    /// Whether the write bypasses the log. Default: false.
    #[must_use]
    pub fn disable_wal(self, yes: bool) -> Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.writeoptions_disable_WAL)(self.raw, i32::from(yes)) };
        self
    }

    /// The rate limiter limits the log writes of this write with the priority of users. Without effect
    /// where the C API lacks it: [`Library::limits_log`].
    #[must_use]
    pub fn limited_as_users(self) -> Self {
        if let Some(set) = self.lib.api.writeoptions_set_rate_limiter_priority {
            // SAFETY: live options.
            unsafe { set(self.raw, IO_USER) };
        }
        self
    }

    /// Whether the write fails instead of waiting during a stall. Default: false.
    #[must_use]
    pub fn no_slowdown(self, yes: bool) -> Self {
        // SAFETY: live options.
        unsafe { (self.lib.api.writeoptions_set_no_slowdown)(self.raw, u8::from(yes)) };
        self
    }
}

impl Drop for RocksWriteOptions {
    fn drop(&mut self) {
        // SAFETY: created by this library, freed once.
        unsafe { (self.lib.api.writeoptions_destroy)(self.raw) }
    }
}

/// The `rocksdb_version` that the library writes into an OPTIONS file: the C API has no function
/// that returns it.
pub(super) fn written_version(lib: &Arc<Library>) -> Result<String> {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let dir = std::env::temp_dir().join(format!(
        "ironstone-rocksdb-version-{}-{}",
        std::process::id(),
        COUNT.fetch_add(1, Ordering::Relaxed)
    ));
    let mut options = RocksOptions::new(lib);
    options.create_if_missing(true).error_if_exists(true);
    drop(RocksDb::open(&options, &dir)?);
    let version = version_in(&dir);
    RocksDb::destroy(&options, &dir)?;
    version
}

fn version_in(dir: &Path) -> Result<String> {
    let entries = std::fs::read_dir(dir).map_err(|e| Error::io("list", dir, e))?;
    let files: Vec<PathBuf> = entries.filter_map(|e| Some(e.ok()?.path())).collect();
    for path in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with("OPTIONS-") {
            let text = std::fs::read_to_string(&path).map_err(|e| Error::io("read", &path, e))?;
            let line = text
                .lines()
                .find_map(|line| line.trim().strip_prefix("rocksdb_version="));
            if let Some(version) = line {
                return Ok(version.to_owned());
            }
        }
    }
    Err(Error::not_found("RocksDB wrote no OPTIONS file with its version").file(dir))
}
