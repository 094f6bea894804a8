//! One budget for the memtables of several databases, as users see it.

use std::fmt;
use std::sync::Arc;

use memtable::WriteBuffers;
use table::BlockCache;

/// Limits the memory of memtables. Share one between databases by
/// [`Env::write_buffer_manager`](crate::Env::write_buffer_manager).
///
/// [`WriteBufferManager::should_flush`] and [`WriteBufferManager::should_stall`] are RocksDB's rules.
///
/// ```
/// use std::sync::Arc;
/// use ironstone::{Options, WriteBufferManager};
/// let budget = Arc::new(WriteBufferManager::new(64 << 20, None, true));
/// let mut options = Options::default();
/// options.env.write_buffer_manager = Some(Arc::clone(&budget));
/// assert_eq!((budget.buffer_size(), budget.memory_usage()), (64 << 20, 0));
/// ```
pub struct WriteBufferManager {
    buffers: Arc<WriteBuffers>,
}

impl WriteBufferManager {
    /// A budget of `buffer_size` bytes; 0 is no limit. Memtables are charged to `cache` if there is one.
    /// With `allow_stall`, writers of all databases wait while the budget is exceeded.
    pub fn new(buffer_size: usize, cache: Option<Arc<BlockCache>>, allow_stall: bool) -> Self {
        Self {
            buffers: Arc::new(WriteBuffers::new(buffer_size, cache, allow_stall)),
        }
    }

    /// The counts of memtable memory, which databases update.
    #[doc(hidden)]
    pub fn buffers(&self) -> Arc<WriteBuffers> {
        Arc::clone(&self.buffers)
    }

    /// Whether there is a limit.
    pub fn enabled(&self) -> bool {
        self.buffers.enabled()
    }

    /// Whether the memory is charged to a cache.
    pub fn cost_to_cache(&self) -> bool {
        self.buffers.is_charged_to_cache()
    }

    /// The limit in bytes.
    pub fn buffer_size(&self) -> usize {
        self.buffers.limit()
    }

    /// Changes the limit. Waiting writers check again.
    pub fn set_buffer_size(&self, bytes: usize) {
        self.buffers.set_limit(bytes);
    }

    /// Sets whether writers wait while the limit is exceeded.
    pub fn set_allow_stall(&self, yes: bool) {
        self.buffers.set_allow_stall(yes);
    }

    /// Bytes of all memtables.
    pub fn memory_usage(&self) -> usize {
        self.buffers.used()
    }

    /// Bytes of the active memtables.
    pub fn mutable_memtable_memory_usage(&self) -> usize {
        self.buffers.active()
    }

    /// Bytes charged to the cache.
    pub fn dummy_entries_in_cache_usage(&self) -> usize {
        self.buffers.charged_to_cache()
    }

    /// Whether a memtable should be flushed: the active ones fill seven eighths of the limit, or the limit
    /// is exceeded and at least half of it is active.
    pub fn should_flush(&self) -> bool {
        self.buffers.should_flush()
    }

    /// Whether writers should wait.
    pub fn should_stall(&self) -> bool {
        self.buffers.should_stall()
    }
}

impl fmt::Debug for WriteBufferManager {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBufferManager")
            .field("buffer_size", &self.buffer_size())
            .field("memory_usage", &self.memory_usage())
            .finish_non_exhaustive()
    }
}
