//! Makes queues of the kind that is wanted, or that the system has.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use base::sync::{Mutex, PoisonError, ranked};
use base::threads::Threads;
use base::{ErrorKind, Result};

use crate::locks;
use crate::queue::{Pool, Queue, QueueKind};
use crate::{File, FileSystem};

/// Requests in flight in one queue, at most.
pub const READS_MAX: u32 = 128;
/// Threads that all queues share where there is no io_uring.
pub(crate) const THREADS: u32 = 32;

pub(crate) struct Maker {
    /// Rings or threads. A file system's own queue comes first.
    kind: QueueKind,
    /// Whether threads are used if no ring can be made.
    may_use_threads: bool,
    fs: Arc<dyn FileSystem>,
    /// Whether the file system has queues of its own, and whether they take files without a descriptor.
    has_own: bool,
    takes_any_file: bool,
    threads: Arc<dyn Threads>,
    pool: Mutex<Option<Arc<Pool>>>,
}

impl Maker {
    pub(crate) fn new(
        kind: QueueKind,
        may_use_threads: bool,
        fs: Arc<dyn FileSystem>,
        threads: Arc<dyn Threads>,
    ) -> Self {
        let own = fs.queue();
        Self {
            kind,
            may_use_threads,
            has_own: own.is_some(),
            takes_any_file: own.is_some_and(|queue| queue.takes_any_file()),
            fs,
            threads,
            pool: ranked(locks::READ_QUEUES, None),
        }
    }

    pub(crate) fn kind(&self) -> QueueKind {
        self.kind
    }

    /// Whether reads of the file can be queued. Otherwise a queue does them at once, one after the other.
    pub(crate) fn takes(&self, file: &dyn File) -> bool {
        self.takes_any_file || file.descriptor().is_some()
    }

    pub(crate) fn threads(&self) -> &dyn Threads {
        &*self.threads
    }

    /// A ring, or the file system's own queue. What the kernel has not at all is not tried again.
    pub(crate) fn try_ring(&mut self) -> Result<Queue> {
        self.first(None).inspect_err(|e| {
            // What the system lacks just now is tried again for each queue.
            if self.may_use_threads && e.kind() == ErrorKind::NotSupported {
                self.kind = QueueKind::Threads;
            }
        })
    }

    /// A queue; `event`, if there is one, becomes readable when a request is done, unless the queue is the file system's own.
    pub(crate) fn make(&self, event: Option<&Arc<OwnedFd>>) -> Result<Queue> {
        if self.kind == QueueKind::Threads && !self.has_own {
            return self.on_threads(event);
        }
        match self.first(event) {
            Err(_) if self.may_use_threads => self.on_threads(event),
            made => made,
        }
    }

    fn first(&self, event: Option<&Arc<OwnedFd>>) -> Result<Queue> {
        match self.fs.queue() {
            Some(backend) => Queue::over(backend, READS_MAX),
            None => Queue::ring(READS_MAX, event.cloned()),
        }
    }

    fn on_threads(&self, event: Option<&Arc<OwnedFd>>) -> Result<Queue> {
        Queue::on(&self.pool()?, READS_MAX, event.cloned())
    }

    fn pool(&self) -> Result<Arc<Pool>> {
        let lock = || self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = &*lock() {
            return Ok(Arc::clone(pool));
        }
        let made = Pool::start(THREADS, self.threads())?;
        // Of two threads that make one at the same time, the second uses the first's.
        let mut slot = lock();
        let pool = Arc::clone(slot.get_or_insert_with(|| Arc::clone(&made)));
        drop(slot); // before a pool that is not used is dropped, which waits for its threads
        Ok(pool)
    }
}
