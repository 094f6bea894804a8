//! One budget for the memtables of several databases.
//!
//! Every chunk that a memtable's arena takes is counted here, from the moment it is taken until the
//! memtable is gone. The memory of *active* memtables is also counted separately: that of immutable ones is
//! already on its way to tables, and more flushes would not bring it there faster.
//!
//! [`WriteBuffers::should_flush`] and [`WriteBuffers::should_stall`] are the rules of RocksDB's
//! `WriteBufferManager`. With a cache, the counted memory is charged against the cache's capacity, in steps.

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
use crate::pool::{Left, Pool};

/// The cache is charged in steps of this many bytes, as RocksDB does.
const CHARGE_STEP: usize = 256 << 10;

/// Limits the memory of memtables. Databases share it.
pub struct WriteBuffers {
    limit: AtomicUsize,
    allow_stall: AtomicBool,
    used: AtomicUsize,
    active: AtomicUsize,
    cache: Option<Mutex<Charge>>,
    sealed: Mutex<Sealed>,
    /// Number of flushes under way.
    flushing: AtomicUsize,
    freed: Condvar,
    slabs: Pool,
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

impl WriteBuffers {
    /// A budget of `limit` bytes; 0 is no limit. Memtables are charged to `cache` if there is one.
    /// With `allow_stall`, writers of all databases wait while the budget is exceeded.
    pub fn new(limit: usize, cache: Option<Arc<BlockCache>>, allow_stall: bool) -> Self {
        let charge = |cache| Charge {
            cache,
            steps: Vec::new(),
        };
        Self {
            limit: AtomicUsize::new(limit),
            allow_stall: AtomicBool::new(allow_stall),
            used: AtomicUsize::new(0),
            active: AtomicUsize::new(0),
            cache: cache.map(|c| ranked(locks::CACHE_CHARGE, charge(c))),
            sealed: ranked(locks::WRITE_BUFFERS, Sealed::default()),
            flushing: AtomicUsize::new(0),
            freed: Condvar::new(),
            slabs: Pool::default(),
        }
    }

    /// Whether there is a limit.
    pub fn enabled(&self) -> bool {
        self.limit() > 0
    }

    /// Whether the memory is charged to a cache.
    pub fn is_charged_to_cache(&self) -> bool {
        self.cache.is_some()
    }

    /// The limit in bytes.
    pub fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    /// Changes the limit. Waiting writers check again.
    pub fn set_limit(&self, bytes: usize) {
        self.limit.store(bytes, Ordering::Relaxed);
        self.tell_waiting();
    }

    /// Sets whether writers wait while the limit is exceeded.
    pub fn set_allow_stall(&self, yes: bool) {
        self.allow_stall.store(yes, Ordering::Relaxed);
        self.tell_waiting();
    }

    /// Bytes of all memtables.
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Bytes of the active memtables.
    pub fn active(&self) -> usize {
        self.active.load(Ordering::Relaxed)
    }

    /// Bytes charged to the cache.
    pub fn charged_to_cache(&self) -> usize {
        self.charge().map_or(0, |c| c.steps.len() * CHARGE_STEP)
    }

    /// Whether a memtable should be flushed: the active ones fill seven eighths of the limit, or the limit
    /// is exceeded and at least half of it is active.
    #[inline]
    pub fn should_flush(&self) -> bool {
        let limit = self.limit();
        if limit == 0 {
            return false;
        }
        let active = self.active();
        active > limit / 8 * 7 || (self.used() >= limit && active >= limit / 2)
    }

    /// Whether writers should wait.
    #[inline]
    pub fn should_stall(&self) -> bool {
        let limit = self.limit();
        limit > 0 && self.allow_stall.load(Ordering::Relaxed) && self.used() >= limit
    }

    /// Counts memory that an active memtable took.
    pub fn reserve(&self, bytes: usize) {
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.active.fetch_add(bytes, Ordering::Relaxed);
        self.adjust_charge();
    }

    /// A memtable with `bytes` bytes is no longer active. Returns the number to free it by.
    pub fn schedule_free(&self, bytes: usize) -> u64 {
        let before = self.active.fetch_sub(bytes, Ordering::Relaxed);
        base::invariant!(before >= bytes, "{bytes} bytes are sealed, of {before}");
        let mut sealed = self.lock_sealed();
        sealed.number += 1;
        let number = sealed.number;
        sealed.awaited.insert(number);
        number
    }

    /// A memtable that was no longer active is gone.
    pub fn free(&self, number: u64, bytes: usize) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        base::invariant!(before >= bytes, "{bytes} bytes are freed, of {before}");
        self.not_awaited(number);
        self.adjust_charge();
        self.tell_waiting();
    }

    /// The number of the memtable that was sealed last, if memory may still become free.
    pub fn awaited(&self) -> Option<u64> {
        let sealed = self.lock_sealed();
        (!sealed.awaited.is_empty()).then_some(sealed.number)
    }

    /// Threads no longer wait for memtables that were sealed up to number `through` and are not free yet: it
    /// took too long.
    pub fn give_up(&self, through: u64) {
        let mut sealed = self.lock_sealed();
        sealed.awaited = sealed.awaited.split_off(&(through + 1));
    }

    fn not_awaited(&self, number: u64) {
        self.lock_sealed().awaited.remove(&number);
    }

    /// Keeps the memory of a memtable that is gone for the active ones, within the limit.
    fn keep(&self, left: Left) {
        let room = self.limit().saturating_sub(self.used());
        let room = if self.enabled() { room } else { usize::MAX };
        let active = self.active();
        self.slabs.give_back(left, active, room);
    }

    /// Gives the memory kept for active memtables back to the system, if none grew lately.
    pub fn rest(&self, now: u64) {
        self.slabs.rest(now);
    }

    /// A flush of some database begins; until the result is dropped, memory may become free.
    pub fn flush_begins(self: &Arc<Self>) -> FlushInProgress {
        self.flushing.fetch_add(1, Ordering::Relaxed);
        FlushInProgress(Arc::clone(self))
    }

    /// Whether some database is flushing.
    pub fn is_flushing(&self) -> bool {
        self.flushing.load(Ordering::Relaxed) > 0
    }

    /// Waits until memory may be free, for at most `at_most`.
    pub fn wait(&self, clock: &dyn Clock, at_most: Duration) {
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
        let wanted = self.used().div_ceil(CHARGE_STEP);
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
impl Drop for WriteBuffers {
    fn drop(&mut self) {
        let counts = (self.used(), self.active());
        base::invariant!(
            base::sync::thread::panicking() || counts == (0, 0),
            "memory of memtables that are gone: {counts:?}"
        );
    }
}

impl fmt::Debug for WriteBuffers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteBuffers")
            .field("limit", &self.limit())
            .field("used", &self.used())
            .finish_non_exhaustive()
    }
}

/// A flush that a manager counts until this is dropped.
#[derive(Debug)]
pub struct FlushInProgress(Arc<WriteBuffers>);

impl Drop for FlushInProgress {
    fn drop(&mut self) {
        self.0.flushing.fetch_sub(1, Ordering::Relaxed);
        self.0.tell_waiting();
    }
}

/// The memory counted for one memtable.
#[derive(Debug)]
pub struct Tracker {
    budget: Arc<WriteBuffers>,
    bytes: AtomicUsize,
    /// The number that the memtable got when it was sealed.
    sealed: OnceLock<u64>,
}

impl Tracker {
    /// Counts the memory of a memtable that is active and has none yet.
    pub fn new(budget: Arc<WriteBuffers>) -> Self {
        Self {
            budget,
            bytes: AtomicUsize::new(0),
            sealed: OnceLock::new(),
        }
    }

    /// Counts memory that the memtable took; only while it is active.
    pub fn reserve(&self, bytes: usize) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        self.budget.reserve(bytes);
    }

    /// A slab of at least `len` bytes for the memtable, not zeroed; it is not counted yet.
    pub fn slab(&self, len: usize) -> Option<Mapping> {
        self.budget.slabs.take(len)
    }

    /// The same, but only from what earlier memtables left.
    pub fn kept_slab(&self, len: usize) -> Option<Mapping> {
        self.budget.slabs.take_kept(len)
    }

    /// Memory of at least `len` bytes for one large entry; it is not counted yet.
    pub fn large(&self, len: usize) -> Option<Mapping> {
        self.budget.slabs.take_large(len)
    }

    /// The memtable is gone, and leaves this memory.
    pub fn end(self, left: Left) {
        let budget = Arc::clone(&self.budget);
        drop(self);
        budget.keep(left);
    }

    /// The memtable is no longer active.
    pub fn seal(&self) {
        self.number();
    }

    /// The memtable is kept after its flush: no thread waits for its memory.
    pub fn keep(&self) {
        self.budget.not_awaited(self.number());
    }

    fn number(&self) -> u64 {
        let seal = || {
            self.budget
                .schedule_free(self.bytes.load(Ordering::Relaxed))
        };
        *self.sealed.get_or_init(seal)
    }
}

impl Drop for Tracker {
    fn drop(&mut self) {
        let number = self.number();
        self.budget.free(number, self.bytes.load(Ordering::Relaxed));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flushes_and_stalls_begin_where_rocksdb_begins_them() {
        let m = Arc::new(WriteBuffers::new(800, None, true));
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
        assert_eq!((m.used(), m.active()), (100, 100));
        drop(b);
        assert_eq!((m.used(), m.active()), (0, 0));
        m.set_limit(0);
        assert!(!m.enabled() && !m.should_flush());
    }

    #[test]
    fn memory_is_kept_for_writers_within_the_limit() {
        const MIB: usize = 1 << 20;
        let kept_of_eight = |active: usize, limit: usize| {
            let m = Arc::new(WriteBuffers::new(limit, None, true));
            let (gone, grows) = (Tracker::new(Arc::clone(&m)), Tracker::new(Arc::clone(&m)));
            gone.reserve(8 * MIB);
            grows.reserve(active);
            let slabs = (0..4).map(|_| gone.slab(MIB).unwrap()).collect();
            gone.end(Left {
                slabs,
                large: Vec::new(),
            });
            m.slabs.bytes()
        };
        assert_eq!(kept_of_eight(20 * MIB, 0), 8 * MIB);
        assert_eq!(kept_of_eight(MIB / 2, 0), 4 * MIB);
        assert_eq!(kept_of_eight(0, 0), 0, "nobody writes");
        assert_eq!(kept_of_eight(20 * MIB, 25 * MIB), 4 * MIB);
    }

    #[test]
    fn memory_that_does_not_come_is_given_up_once() {
        let m = Arc::new(WriteBuffers::new(100, None, true));
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
        assert_eq!((m.used(), m.awaited()), (50, None));
        drop(active);
    }

    #[test]
    fn the_cache_is_charged_in_steps() {
        let cache = Arc::new(BlockCache::new(64 << 20));
        let m = Arc::new(WriteBuffers::new(0, Some(Arc::clone(&cache)), false));
        assert!(m.is_charged_to_cache());
        let a = Tracker::new(Arc::clone(&m));
        a.reserve(1 << 20);
        a.reserve(1);
        assert_eq!(m.charged_to_cache(), 5 * CHARGE_STEP);
        assert_eq!(cache.usage(), 5 * CHARGE_STEP);
        drop(a);
        assert_eq!(cache.usage(), 0);
    }

    #[test]
    fn who_waits_is_woken_when_memory_is_free() {
        let m = Arc::new(WriteBuffers::new(10, None, true));
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
