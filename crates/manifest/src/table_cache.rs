//! The readers of a database's tables, with a limit on how many are open at a time.
//!
//! With `max_open_files` = -1, a table's reader is open as long as the table is part of the database, and
//! finding it costs nothing. With a limit, roughly the least recently used readers are closed: as in the
//! clock algorithm, a hand goes around the open ones and closes those that were not used since it last
//! passed. A user that needs a closed reader opens it again. A reader stays open while it is in use, so
//! iterators may hold more files open than the limit.
//!
//! ```text
//!   TableFile ── Slot ──┬─ Always(reader)
//!                       └─ OnDemand ── open: reader or none ◄── the cache's hand closes it
//! ```
//!
//! Lock order: the ring before a slot. A thread that opens a reader holds its slot, and releases the slot
//! before it locks the ring.

use std::collections::VecDeque;
use std::ops::Deref;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use base::perf::{self, PerfCounter};
use base::stats::{HistogramKind, Ticker};
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, ErrorKind, Result};
use table::{Reader, Rows};

use crate::locks;
use options::{DbOptions, Env};

/// Descriptors that RocksDB reserves for files other than tables.
const OTHER_FILES: usize = 10;
/// The least `max_open_files`, as in RocksDB.
const OPEN_FILES_MIN: usize = 20;

/// The open readers, and their number.
#[derive(Debug)]
pub struct TableCache {
    /// `usize::MAX` means no limit.
    capacity: AtomicUsize,
    /// Number of open readers of [`Slot::OnDemand`].
    open: AtomicUsize,
    ring: Mutex<VecDeque<Weak<OnDemand>>>,
}

impl TableCache {
    /// A cache for `max_open_files` of these options.
    pub fn new(options: &DbOptions) -> Self {
        Self {
            capacity: AtomicUsize::new(capacity(options)),
            open: AtomicUsize::new(0),
            ring: ranked(locks::OPEN_TABLES, VecDeque::new()),
        }
    }

    /// Applies a changed `max_open_files`. Tables that were opened without a limit stay open.
    pub fn follow(&self, options: &DbOptions) {
        self.capacity.store(capacity(options), Ordering::Relaxed);
        self.close_surplus(self.lock_ring());
    }

    /// The slot for the reader of a table that was just opened.
    pub fn slot(self: &Arc<Self>, reader: &Arc<Reader>, source: Source) -> Slot {
        if self.capacity.load(Ordering::Relaxed) == usize::MAX {
            return Slot::Always(Arc::clone(reader));
        }
        let slot = Arc::new(OnDemand {
            again: reader.options_to_open_again(),
            reader: ranked(locks::READER, Some(Arc::clone(reader))),
            used: AtomicBool::new(false),
            source,
            cache: Arc::clone(self),
        });
        self.open.fetch_add(1, Ordering::Relaxed);
        self.admit(&slot);
        Slot::OnDemand(slot)
    }

    fn admit(&self, slot: &Arc<OnDemand>) {
        let mut ring = self.lock_ring();
        if ring.len() > 2 * self.open.load(Ordering::Relaxed) + OPEN_FILES_MIN {
            ring.retain(|s| s.strong_count() > 0);
        }
        ring.push_back(Arc::downgrade(slot));
        self.close_surplus(ring);
    }

    /// Closes readers until the limit is met.
    fn close_surplus(&self, mut ring: MutexGuard<'_, VecDeque<Weak<OnDemand>>>) {
        let capacity = self.capacity.load(Ordering::Relaxed);
        let mut closed = Vec::new();
        while self.open.load(Ordering::Relaxed) > capacity {
            let Some(weak) = ring.pop_front() else {
                break;
            };
            let Some(slot) = weak.upgrade() else {
                continue;
            };
            if slot.used.swap(false, Ordering::Relaxed) {
                ring.push_back(weak);
                continue;
            }
            if let Some(reader) = slot.lock().take() {
                self.one_less();
                closed.push(reader);
            }
        }
        drop(ring); // release the lock before files are closed
    }

    /// Counts a reader that was closed.
    fn one_less(&self) {
        let before = self.open.fetch_sub(1, Ordering::Relaxed);
        base::invariant!(before > 0, "a table is closed that was not open");
    }

    fn lock_ring(&self) -> MutexGuard<'_, VecDeque<Weak<OnDemand>>> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Each slot holds the cache, so none is left.
impl Drop for TableCache {
    fn drop(&mut self) {
        let open = self.open.load(Ordering::Relaxed);
        base::invariant!(
            base::sync::thread::panicking() || open == 0,
            "{open} tables are open that no slot has"
        );
    }
}

/// The maximum number of open readers.
fn capacity(options: &DbOptions) -> usize {
    let Ok(wanted) = usize::try_from(options.max_open_files) else {
        return usize::MAX;
    };
    let most = io::posix::descriptor_limit().unwrap_or(usize::MAX);
    wanted.min(most).max(OPEN_FILES_MIN) - OTHER_FILES
}

/// The parameters for opening a table again.
pub struct Source {
    /// The table file.
    pub path: PathBuf,
    /// The expected size of the file in bytes, if it is to be checked.
    pub size: Option<u64>,
    /// Whether it is read past the page cache.
    pub direct: bool,
    /// Its file system, clock and statistics are used.
    pub env: Env,
}

impl Source {
    /// Opens the table. Errors: Corruption naming the file if it is missing, has another size, or is
    /// damaged.
    pub fn open(&self, options: table::ReaderOptions) -> Result<Reader> {
        let began = self.env.clock.monotonic_nanos();
        let opened = self.open_file(options);
        if let Some(s) = &self.env.statistics {
            if opened.is_ok() {
                let nanos = self.env.clock.monotonic_nanos().saturating_sub(began);
                s.add(Ticker::NoFileOpens, 1);
                s.record_time(HistogramKind::TableOpenIoMicros, nanos / 1000);
            } else {
                s.add(Ticker::NoFileErrors, 1);
            }
        }
        opened
    }

    fn open_file(&self, options: table::ReaderOptions) -> Result<Reader> {
        let path = &self.path;
        let clock = &*self.env.clock;
        let began = perf::start(clock);
        let mut how = io::OpenHow::READ;
        how.direct = self.direct;
        let file = self.env.fs.open(path, how).map_err(|e| {
            if e.is_not_found() {
                Error::corruption("the MANIFEST names this table file, but it does not exist")
                    .file(path)
                    .hint("restore it, or restore the directory from a backup")
            } else {
                e
            }
        })?;
        perf::stop(PerfCounter::IoOpenNanos, clock, began);
        let size = file.len()?;
        if let Some(expected) = self.size.filter(|&expected| expected != size) {
            return Err(Error::corruption(format!(
                "Sst file size mismatch: the MANIFEST says {expected} bytes, the file has {size}"
            ))
            .file(path));
        }
        Reader::open(file, size, options).map_err(|e| e.or_file(path))
    }
}

/// The place of a table's reader.
pub enum Slot {
    /// Open as long as the table is part of the database.
    Always(Arc<Reader>),
    /// Open if it was used recently.
    OnDemand(Arc<OnDemand>),
}

/// A reader that the cache may close.
pub struct OnDemand {
    reader: Mutex<Option<Arc<Reader>>>,
    /// Whether it was used since the hand last passed.
    used: AtomicBool,
    source: Source,
    again: table::ReaderOptions,
    cache: Arc<TableCache>,
}

impl std::fmt::Debug for OnDemand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("OnDemand").field(&self.source.path).finish()
    }
}

impl OnDemand {
    fn lock(&self) -> MutexGuard<'_, Option<Arc<Reader>>> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(self: &Arc<Self>, cache_only: bool) -> Result<Arc<Reader>> {
        self.used.store(true, Ordering::Relaxed);
        let mut open = self.lock();
        if let Some(reader) = &*open {
            return Ok(Arc::clone(reader));
        }
        if cache_only {
            let message = "the table is not open, and no file may be read";
            return Err(Error::new(ErrorKind::Incomplete, message).file(&self.source.path));
        }
        let clock = &*self.source.env.clock;
        let began = perf::start(clock);
        let reader = Arc::new(self.source.open(self.again.clone())?);
        perf::stop(PerfCounter::FindTableNanos, clock, began);
        *open = Some(Arc::clone(&reader));
        self.cache.open.fetch_add(1, Ordering::Relaxed);
        drop(open);
        self.cache.admit(self);
        Ok(reader)
    }
}

impl Drop for OnDemand {
    fn drop(&mut self) {
        if self.lock().is_some() {
            self.cache.one_less();
        }
    }
}

impl Slot {
    /// The reader, opened if it is closed. With `cache_only`, a closed reader is an `Incomplete` error
    /// instead.
    #[inline]
    pub fn get(&self, cache_only: bool) -> Result<Opened<'_>> {
        match self {
            Self::Always(reader) => Ok(Opened::Always(reader)),
            Self::OnDemand(slot) => slot.get(cache_only).map(Opened::Now),
        }
    }

    /// See [`Reader::cache_id`].
    pub(crate) fn cache_id(&self) -> Option<u64> {
        match self {
            Self::Always(reader) => reader.cache_id(),
            Self::OnDemand(slot) => slot.again.cache_id.filter(|&id| id > 0),
        }
    }

    /// See [`Reader::rows`].
    pub(crate) fn rows(&self) -> Option<&Rows> {
        match self {
            Self::Always(reader) => reader.rows(),
            Self::OnDemand(slot) => slot.again.rows.as_ref(),
        }
    }

    /// The reader if it is never closed.
    #[inline]
    pub(crate) fn always_open(&self) -> Option<&Arc<Reader>> {
        match self {
            Self::Always(reader) => Some(reader),
            Self::OnDemand(_) => None,
        }
    }

    /// The reader if it is open.
    pub(crate) fn if_open(&self) -> Option<Arc<Reader>> {
        match self {
            Self::Always(reader) => Some(Arc::clone(reader)),
            Self::OnDemand(slot) => slot.lock().clone(),
        }
    }
}

/// A table's reader, which stays open as long as this exists.
#[derive(Clone)]
pub enum Opened<'a> {
    /// It is never closed.
    Always(&'a Arc<Reader>),
    /// It may be closed when this is dropped.
    Now(Arc<Reader>),
}

impl Deref for Opened<'_> {
    type Target = Arc<Reader>;

    #[inline]
    fn deref(&self) -> &Arc<Reader> {
        match self {
            Self::Always(reader) => reader,
            Self::Now(reader) => reader,
        }
    }
}
