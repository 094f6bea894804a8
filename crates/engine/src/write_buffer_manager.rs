//! One budget for the memtables of several databases.
//!
//! Every chunk that a memtable's arena takes is counted here, from the moment it is taken until the
//! memtable is gone. The memory of *active* memtables is also counted separately: that of immutable ones is
//! already on its way to tables, and more flushes would not bring it there faster.
//!
//! [`WriteBufferManager::should_flush`] and [`WriteBufferManager::should_stall`] are RocksDB's rules. With
//! a cache, the counted memory is charged against the cache's capacity, in steps.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base::clock::{self, Clock};
use base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError, ranked};

use io::Mapping;
use table::BlockCache;
use table::cache::Reservation;

use crate::locks;
use crate::memtable_pool::MemtablePool;

/// The cache is charged in steps of this many bytes, as RocksDB does.
const CHARGE_STEP: usize = 256 << 10;

/// Limits the memory of memtables. Share one between databases by
/// [`Env::write_buffer_manager`](crate::Env::write_buffer_manager).
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
    buffer_size: AtomicUsize,
    allow_stall: AtomicBool,
    used: AtomicUsize,
    active: AtomicUsize,
    cache: Option<Mutex<Charge>>,
    sealed: Mutex<Sealed>,
    /// Number of flushes under way.
    flushing: AtomicUsize,
    freed: Condvar,
    slabs: MemtablePool,
}

/// Memtables that are no longer active, and the threads that wait for their memory.
#[derive(Default)]
struct Sealed {
    /// The numbers of those that may become free. The others are not waited for: a reader holds them, their
    /// flush does not end, or they are kept for transactions.
    awaited: BTreeSet<u64>,
    /// Number of memtables sealed so far.
    number: u64,
    /// Number of threads that wait.
    waiting: usize,
}

/// The charge against a cache.
struct Charge {
    cache: Arc<BlockCache>,
    steps: Vec<Reservation>,
}

impl WriteBufferManager {
    /// A budget of `buffer_size` bytes; 0 is no limit. Memtables are charged to `cache` if there is one.
    /// With `allow_stall`, writers of all databases wait while the budget is exceeded.
    pub fn new(buffer_size: usize, cache: Option<Arc<BlockCache>>, allow_stall: bool) -> Self {
        let charge = |cache| Charge {
            cache,
            steps: Vec::new(),
        };
        Self {
            buffer_size: AtomicUsize::new(buffer_size),
            allow_stall: AtomicBool::new(allow_stall),
            used: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            cache: cache.map(|c| ranked(locks::CACHE_CHARGE, charge(c))),
            sealed: ranked(locks::WRITE_BUFFERS, Sealed::default()),
            flushing: AtomicUsize::new(0),
            freed: Condvar::new(),
            slabs: MemtablePool::default(),
        }
    }

    /// Whether there is a limit.
    pub fn enabled(&self) -> bool {
        self.buffer_size() > 0
    }

    /// Whether the memory is charged to a cache.
    pub fn cost_to_cache(&self) -> bool {
        self.cache.is_some()
    }

    /// The limit in bytes.
    pub fn buffer_size(&self) -> usize {
        self.buffer_size.load(Ordering::Relaxed)
    }

    /// Changes the limit. Waiting writers check again.
    pub fn set_buffer_size(&self, bytes: usize) {
        self.buffer_size.store(bytes, Ordering::Relaxed);
        self.tell_waiting();
    }

    /// Sets whether writers wait while the limit is exceeded.
    pub fn set_allow_stall(&self, yes: bool) {
        self.allow_stall.store(yes, Ordering::Relaxed);
        self.tell_waiting();
    }

    /// Bytes of all memtables.
    pub fn memory_usage(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes of the active memtables.
    pub fn mutable_memtable_memory_usage(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Bytes charged to the cache.
    pub fn dummy_entries_in_cache_usage(&self) -> usize {
        self.charge().map_or(0, |c| c.steps.len() * CHARGE_STEP)
    }

    /// Whether a memtable should be flushed: the active ones fill seven eighths of the limit, or the limit
    /// is exceeded and at least half of it is active.
    #[inline]
    pub fn should_flush(&self) -> bool {
        let limit = self.buffer_size();
        if limit == 0 {
            return false;
        }
        let active = self.mutable_memtable_memory_usage();
        active > limit / 8 * 7 || (self.memory_usage() >= limit && active >= limit / 2)
    }

    /// Whether writers should wait.
    #[inline]
    pub fn should_stall(&self) -> bool {
        let limit = self.buffer_size();
        limit > 0 && self.allow_stall.load(Ordering::Relaxed) && self.memory_usage() >= limit
    }

    /// Counts memory that an active memtable took.
    pub(crate) fn reserve(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.active.fetch_add(bytes, Ordering::Relaxed);
        self.adjust_charge();
    }

    /// A memtable with `bytes` bytes is no longer active. Returns the number to free it by.
    pub(crate) fn schedule_free(&self, bytes: usize) -> u64 {
        let before = self.active.fetch_sub(bytes, Ordering::Relaxed);
        base::invariant!(before >= bytes, "{bytes} bytes are sealed, of {before}");
        let mut sealed = self.lock_sealed();
        sealed.number += 1;
        let number = sealed.number;
        sealed.awaited.insert(number);
        number
    }

    /// A memtable that was no longer active is gone.
    pub(crate) fn free(&self, number: u64, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        base::invariant!(before >= bytes, "{bytes} bytes are freed, of {before}");
        self.not_awaited(number);
        self.adjust_charge();
        self.tell_waiting();
    }

    /// The number of the memtable that was sealed last, if memory may still become free.
    pub(crate) fn awaited(&self) -> Option<u64> {
        let sealed = self.lock_sealed();
        (!sealed.awaited.is_empty()).then_some(sealed.number)
    }

    /// Nobody waits any more for memtables that were sealed up to number `through` and are not free yet: it
    /// took too long.
    pub(crate) fn give_up(&self, through: u64) {
        let mut sealed = self.lock_sealed();
        sealed.awaited = sealed.awaited.split_off(&(through + 1));
    }

    fn not_awaited(&self, number: u64) {
        self.lock_sealed().awaited.remove(&number);
    }

    /// Keeps the memory of a memtable that is gone for the active ones, within the limit.
    fn keep(&self, slabs: Vec<Mapping>) {
        let room = self.buffer_size().saturating_sub(self.memory_usage());
        let room = if self.enabled() { room } else { usize::MAX };
        let active = self.mutable_memtable_memory_usage();
        self.slabs.give_back(slabs, active, room);
    }

    /// Gives the memory kept for active memtables back to the system, if none grew lately.
    pub(crate) fn rest(&self, now: u64) {
        self.slabs.rest(now);
    }

    /// A flush of some database begins; until the result is dropped, memory may become free.
    pub(crate) fn flush_begins(self: &Arc<Self>) -> FlushInProgress {
        self.flushing.fetch_add(1, Ordering::Relaxed);
        FlushInProgress(Arc::clone(self))
    }

    /// Whether some database is flushing.
    pub(crate) fn is_flushing(&self) -> bool {
        self.flushing.load(Ordering::Relaxed) > 0
    }

    /// Waits until memory may be free, for at most `at_most`.
    pub(crate) fn wait(&self, clock: &dyn Clock, at_most: Duration) {
        let mut sealed = self.lock_sealed();
        sealed.waiting += 1;
        if self.should_stall() {
            sealed = clock::wait_timeout(clock, &self.freed, sealed, at_most);
        }
        sealed.waiting -= 1;
    }

    fn tell_waiting(&self) {
        if self.lock_sealed().waiting > 0 {
            self.freed.notify_all();
        }
    }

    fn lock_sealed(&self) -> MutexGuard<'_, Sealed> {
        self.sealed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn charge(&self) -> Option<MutexGuard<'_, Charge>> {
        let cache = self.cache.as_ref()?;
        Some(cache.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Charges the cache for the memory in use, rounded up to a step. Steps are given back only when less
    /// than three quarters of the charge is needed, so that the charge does not oscillate.
    fn adjust_charge(&self) {
        let Some(mut charge) = self.charge() else {
            return;
        };
        let wanted = self.memory_usage().div_ceil(CHARGE_STEP);
        while charge.steps.len() < wanted {
            let step = charge.cache.reserve(CHARGE_STEP);
            charge.steps.push(step);
        }
        if wanted < charge.steps.len() / 4 * 3 || wanted == 0 {
            charge.steps.truncate(wanted);
        }
    }
}

/// Each memtable's tracker holds the manager, so none is left.
impl Drop for WriteBufferManager {
    fn drop(&mut self) {
        let counts = (self.memory_usage(), self.mutable_memtable_memory_usage());
        base::invariant!(
            base::sync::thread::panicking() || counts == (0, 0),
            "memory of memtables that are gone: {counts:?}"
        );
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

/// A flush that a manager counts until this is dropped.
#[derive(Debug)]
pub(crate) struct FlushInProgress(Arc<WriteBufferManager>);

impl Drop for FlushInProgress {
    fn drop(&mut self) {
        self.0.flushing.fetch_sub(1, Ordering::Relaxed);
        self.0.tell_waiting();
    }
}

/// The memory counted for one memtable.
#[derive(Debug)]
pub(crate) struct Tracker {
    manager: Arc<WriteBufferManager>,
    bytes: AtomicUsize,
    /// The number that the memtable got when it was sealed.
    sealed: OnceLock<u64>,
}

impl Tracker {
    pub(crate) fn new(manager: Arc<WriteBufferManager>) -> Self {
        Self {
            manager,
            bytes: AtomicUsize::new(0),
            sealed: OnceLock::new(),
        }
    }

    /// Counts memory that the memtable took; only while it is active.
    pub(crate) fn reserve(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.manager.reserve(bytes);
    }

    /// A slab of at least `len` bytes for the memtable, not zeroed; it is not counted yet.
    pub(crate) fn slab(&self, len: usize) -> Option<Mapping> {
        self.manager.slabs.take(len)
    }

    /// The same, but only from what earlier memtables left.
    pub(crate) fn kept_slab(&self, len: usize) -> Option<Mapping> {
        self.manager.slabs.take_kept(len)
    }

    /// The memtable is gone, and leaves these slabs.
    pub(crate) fn end(self, slabs: Vec<Mapping>) {
        let manager = Arc::clone(&self.manager);
        drop(self);
        manager.keep(slabs);
    }

    /// The memtable is no longer active.
    pub(crate) fn seal(&self) {
        self.number();
    }

    /// The memtable is kept after its flush: nobody waits for its memory.
    pub(crate) fn keep(&self) {
        self.manager.not_awaited(self.number());
    }

    fn number(&self) -> u64 {
        let seal = || {
            self.manager
                .schedule_free(self.bytes.load(Ordering::Relaxed))
        };
        *self.sealed.get_or_init(seal)
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        let number = self.number();
        self.manager
            .free(number, self.bytes.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_and_stalls_begin_where_rocksdb_begins_them() {
        let m = Arc::new(WriteBufferManager::new(800, None, true));
        let (a, b) = (Tracker::new(Arc::clone(&m)), Tracker::new(Arc::clone(&m)));
        a.reserve(700);
        assert!(!m.should_flush(), "seven eighths are not exceeded");
        b.reserve(1);
        assert!(m.should_flush() && !m.should_stall());
        b.reserve(99);
        assert!(m.should_flush() && m.should_stall());
        a.seal();
        assert!(!m.should_flush(), "most of it is being flushed already");
        assert!(m.should_stall());
        drop(a);
        assert!(!m.should_stall());
        assert_eq!(
            (m.memory_usage(), m.mutable_memtable_memory_usage()),
            (100, 100)
        );
        drop(b);
        assert_eq!(
            (m.memory_usage(), m.mutable_memtable_memory_usage()),
            (0, 0)
        );
        m.set_buffer_size(0);
        assert!(!m.enabled() && !m.should_flush());
    }

    #[test]
    fn memory_is_kept_for_writers_within_the_limit() {
        const MIB: usize = 1 << 20;
        let kept_of_eight = |active: usize, limit: usize| {
            let m = Arc::new(WriteBufferManager::new(limit, None, true));
            let (gone, grows) = (Tracker::new(Arc::clone(&m)), Tracker::new(Arc::clone(&m)));
            gone.reserve(8 * MIB);
            grows.reserve(active);
            let slabs = (0..4).map(|_| gone.slab(MIB).unwrap()).collect();
            gone.end(slabs);
            m.slabs.bytes()
        };
        assert_eq!(kept_of_eight(20 * MIB, 0), 8 * MIB);
        assert_eq!(kept_of_eight(MIB / 2, 0), 4 * MIB);
        assert_eq!(kept_of_eight(0, 0), 0, "nobody writes");
        assert_eq!(kept_of_eight(20 * MIB, 25 * MIB), 4 * MIB);
    }

    #[test]
    fn memory_that_does_not_come_is_given_up_once() {
        let m = Arc::new(WriteBufferManager::new(100, None, true));
        let sealed = || {
            let tracker = Tracker::new(Arc::clone(&m));
            tracker.reserve(10);
            tracker.seal();
            tracker
        };
        let active = Tracker::new(Arc::clone(&m));
        active.reserve(50);
        assert_eq!(m.awaited(), None, "what is active does not come by itself");
        let held = sealed();
        assert_eq!(m.awaited(), Some(1));
        let next = sealed();
        m.give_up(1);
        assert_eq!(m.awaited(), Some(2), "that one came later");
        drop(held);
        assert_eq!(m.awaited(), Some(2));
        next.keep();
        assert_eq!(m.awaited(), None);
        drop(next);
        drop(sealed());
        assert_eq!((m.memory_usage(), m.awaited()), (50, None));
        drop(active);
    }

    #[test]
    fn the_cache_is_charged_in_steps() {
        let cache = Arc::new(BlockCache::new(64 << 20));
        let m = Arc::new(WriteBufferManager::new(0, Some(Arc::clone(&cache)), false));
        assert!(m.cost_to_cache());
        let a = Tracker::new(Arc::clone(&m));
        a.reserve(1 << 20);
        a.reserve(1);
        assert_eq!(m.dummy_entries_in_cache_usage(), 5 * CHARGE_STEP);
        assert_eq!(cache.usage(), 5 * CHARGE_STEP);
        drop(a);
        assert_eq!(cache.usage(), 0);
    }

    #[test]
    fn who_waits_is_woken_when_memory_is_free() {
        let m = Arc::new(WriteBufferManager::new(10, None, true));
        let a = Tracker::new(Arc::clone(&m));
        a.reserve(20);
        let clock = base::clock::SystemClock::shared();
        base::sync::thread::scope(|s| {
            let waiter = s.spawn(|| {
                while m.should_stall() {
                    m.wait(&*clock, Duration::from_secs(10));
                }
            });
            drop(a);
            waiter.join().unwrap();
        });
        let b = Tracker::new(Arc::clone(&m));
        b.reserve(20);
        m.set_allow_stall(false);
        assert!(!m.should_stall());
    }
}
