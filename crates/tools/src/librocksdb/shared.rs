//! Objects that databases share and to which options only point: caches, memory budgets,
//! comparators, the logger, background threads.

use std::cmp::Ordering;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::Arc;

use base::Result;

use super::files::needed;
use super::{Library, RocksCache, RocksOptions, api, bytes};

/// A comparator with the name that is stored in files.
#[derive(Clone, Copy)]
pub struct KeyOrder {
    /// The name.
    pub name: &'static CStr,
    /// Compares two keys. It must not panic.
    pub compare: fn(&[u8], &[u8]) -> Ordering,
}

/// Threads of RocksDB's pools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolThreads {
    /// For flushes.
    pub high: i32,
    /// For compactions.
    pub low: i32,
    /// For compactions into the last level; if 0, the threads for other compactions run these.
    pub bottom: i32,
}

impl Library {
    /// A block cache of 2^`shard_bits` shards (-1: derived from the size) with clock eviction. `charge`
    /// is the mean size of an entry, 0 if unknown. Errors: the library is too old for it.
    pub fn hyper_clock_cache(
        self: &Arc<Self>,
        capacity: usize,
        charge: usize,
        shard_bits: i32,
    ) -> Result<RocksCache> {
        let a = &self.api;
        let name = "hyper_clock_cache_options_create";
        let create = needed(a.hyper_clock_cache_options_create, name)?;
        let name = "hyper_clock_cache_options_set_num_shard_bits";
        let shards = needed(a.hyper_clock_cache_options_set_num_shard_bits, name)?;
        let name = "cache_create_hyper_clock_opts";
        let cache = needed(a.cache_create_hyper_clock_opts, name)?;
        let name = "hyper_clock_cache_options_destroy";
        let destroy = needed(a.hyper_clock_cache_options_destroy, name)?;
        // SAFETY: live options, freed once; the cache is freed by Drop.
        let raw = unsafe {
            let options = create(capacity, charge);
            shards(options, shard_bits);
            let raw = cache(options);
            destroy(options);
            raw
        };
        Ok(RocksCache::from_raw(self, raw))
    }

    /// A block cache of 2^`shard_bits` shards (-1: derived from the size) with LRU eviction.
    /// Errors: the library is too old for it.
    pub fn lru_cache_of(self: &Arc<Self>, capacity: usize, shard_bits: i32) -> Result<RocksCache> {
        let a = &self.api;
        let create = needed(a.lru_cache_options_create, "lru_cache_options_create")?;
        let name = "lru_cache_options_set_capacity";
        let size = needed(a.lru_cache_options_set_capacity, name)?;
        let name = "lru_cache_options_set_num_shard_bits";
        let shards = needed(a.lru_cache_options_set_num_shard_bits, name)?;
        let cache = needed(a.cache_create_lru_opts, "cache_create_lru_opts")?;
        let destroy = needed(a.lru_cache_options_destroy, "lru_cache_options_destroy")?;
        // SAFETY: live options, freed once; the cache is freed by Drop.
        let raw = unsafe {
            let options = create();
            size(options, capacity);
            shards(options, shard_bits);
            let raw = cache(options);
            destroy(options);
            raw
        };
        Ok(RocksCache::from_raw(self, raw))
    }

    /// Sets how many background threads the process has for all databases. Errors: the library is too
    /// old for it.
    pub fn background_threads(&self, threads: PoolThreads) -> Result<()> {
        let a = &self.api;
        let low = needed(a.env_set_background_threads, "env_set_background_threads")?;
        let name = "env_set_high_priority_background_threads";
        let high = needed(a.env_set_high_priority_background_threads, name)?;
        let name = "env_set_bottom_priority_background_threads";
        let bottom = needed(a.env_set_bottom_priority_background_threads, name)?;
        self.with_env(|env| {
            // SAFETY: a live environment, which is the process's.
            unsafe {
                high(env, threads.high);
                bottom(env, threads.bottom);
                low(env, threads.low);
            }
        });
        Ok(())
    }

    /// Lowers the I/O (`io`) or CPU priority of the background threads. Errors: the library is too old for
    /// it.
    pub fn lower_priority(&self, io: bool) -> Result<()> {
        let a = &self.api;
        let (low, high, names) = if io {
            (
                a.env_lower_thread_pool_io_priority,
                a.env_lower_high_priority_thread_pool_io_priority,
                "env_lower_thread_pool_io_priority",
            )
        } else {
            (
                a.env_lower_thread_pool_cpu_priority,
                a.env_lower_high_priority_thread_pool_cpu_priority,
                "env_lower_thread_pool_cpu_priority",
            )
        };
        let (low, high) = (needed(low, names)?, needed(high, names)?);
        self.with_env(|env| {
            // SAFETY: a live environment, which is the process's.
            unsafe {
                low(env);
                high(env);
            }
        });
        Ok(())
    }

    fn with_env(&self, f: impl FnOnce(*mut api::Env)) {
        // SAFETY: no argument; freed below, which leaves the process's environment.
        let env = unsafe { (self.api.create_default_env)() };
        f(env);
        // SAFETY: made above, freed once.
        unsafe { (self.api.env_destroy)(env) };
    }
}

impl RocksOptions {
    /// A copy of the options, with the same caches and other shared objects.
    #[must_use]
    pub fn copy(&self) -> Self {
        Self {
            lib: Arc::clone(&self.lib),
            // SAFETY: live options; the copy is freed by Drop.
            raw: unsafe { (self.lib.api.options_create_copy)(self.raw) },
        }
    }

    /// Sets the statistics level: from 0, nothing, to 5, everything. They must be enabled.
    pub fn statistics_level(&mut self, level: i32) -> Result<&mut Self> {
        let name = "options_set_statistics_level";
        let set = needed(self.lib.api.options_set_statistics_level, name)?;
        // SAFETY: live options.
        unsafe { set(self.raw, level) };
        Ok(self)
    }

    /// Limits the memory of memtables to `bytes` (0 is no limit), and charges it to a cache.
    pub fn write_buffers_in(&mut self, bytes: usize, cache: &RocksCache) -> Result<&mut Self> {
        let a = &self.lib.api;
        let name = "write_buffer_manager_create_with_cache";
        let create = needed(a.write_buffer_manager_create_with_cache, name)?;
        let name = "options_set_write_buffer_manager";
        let set = needed(a.options_set_write_buffer_manager, name)?;
        let name = "write_buffer_manager_destroy";
        let destroy = needed(a.write_buffer_manager_destroy, name)?;
        // SAFETY: live options and cache; the options keep a reference of their own.
        unsafe {
            let manager = create(bytes, cache.raw, false);
            set(self.raw, manager);
            destroy(manager);
        }
        Ok(self)
    }

    /// Sets a row cache.
    pub fn row_cache(&mut self, cache: &RocksCache) -> Result<&mut Self> {
        let set = needed(self.lib.api.options_set_row_cache, "options_set_row_cache")?;
        // SAFETY: live options and cache; RocksDB shares the ownership of the cache.
        unsafe { set(self.raw, cache.raw) };
        Ok(self)
    }

    /// Writes messages to standard error instead of LOG.
    pub fn log_to_stderr(&mut self) -> Result<&mut Self> {
        const INFO: c_int = 1;
        let a = &self.lib.api;
        let name = "logger_create_stderr_logger";
        let create = needed(a.logger_create_stderr_logger, name)?;
        let set = needed(a.options_set_info_log, "options_set_info_log")?;
        let destroy = needed(a.logger_destroy, "logger_destroy")?;
        // SAFETY: live options; without a prefix; the options keep a reference of their own.
        unsafe {
            let logger = create(INFO, ptr::null());
            set(self.raw, logger);
            destroy(logger);
        }
        Ok(self)
    }

    /// Sets the comparator.
    pub fn comparator(&mut self, order: KeyOrder) -> &mut Self {
        let api = &self.lib.api;
        // Databases keep a pointer to the comparator, so it is never freed.
        let state: &'static KeyOrder = Box::leak(Box::new(order));
        // SAFETY: the functions have the types that RocksDB calls, the state stays, and the options are
        // live.
        unsafe {
            let state = ptr::from_ref(state).cast_mut().cast();
            let comparator = (api.comparator_create)(state, nothing, compare, name);
            (api.options_set_comparator)(self.raw, comparator);
        }
        self
    }
}

unsafe extern "C" fn nothing(_: *mut c_void) {}

unsafe extern "C" fn name(state: *mut c_void) -> *const c_char {
    // SAFETY: the state is the order that `comparator` leaked.
    unsafe { (*state.cast::<KeyOrder>()).name.as_ptr() }
}

unsafe extern "C" fn compare(
    state: *mut c_void,
    a: api::Bytes,
    a_len: usize,
    b: api::Bytes,
    b_len: usize,
) -> c_int {
    // SAFETY: the state is the order that `comparator` leaked; RocksDB passes live bytes.
    let order = unsafe {
        let compare = (*state.cast::<KeyOrder>()).compare;
        compare(bytes(a, a_len), bytes(b, b_len))
    };
    order as c_int
}
