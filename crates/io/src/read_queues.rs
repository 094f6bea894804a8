//! Queues that are lent to threads which need many blocks at once.
//!
//! ```text
//!   a thread ── lend ──> Lent { queue, buffers } ── dropped ──> idle, for the next thread
//!                  └──── None: all are lent; the thread reads one block after the other
//! ```
//!
//! There are at most two queues for each processor: more would not keep a device busier, and thousands of threads need no
//! more descriptors or threads than a few.

use std::fmt;
use std::num::NonZero;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use base::threads::Threads;
use base::{Error, ErrorKind, Result};

use crate::FileSystem;
use crate::buffer::{AlignedBuf, PAGE};
use crate::locks;
use crate::queue::{Done, Pool, Queue, QueueKind};

/// Requests in flight in one queue, at most.
pub const READS_MAX: u32 = 128;
/// Queues for each processor.
const QUEUES_PER_PROCESSOR: usize = 2;
/// Threads that all queues share where there is no io_uring.
const THREADS: u32 = 32;
/// Bytes of buffers that an idle queue keeps.
const SPARE_BYTES_MAX: usize = 1 << 20;

base::option_enum! {
    /// How reads of many blocks are executed.
    pub enum ReadIoMode {
        /// io_uring, or threads where the kernel has none or does not allow it.
        Auto = "auto",
        /// io_uring.
        Uring = "uring",
        /// Threads.
        Pool = "pool",
        /// One read after the other.
        Off = "off",
    }
}

/// The queues: see the module.
pub struct ReadQueues {
    kind: QueueKind,
    /// Whether threads are used if no ring can be made.
    may_use_threads: bool,
    /// The most queues that exist at a time; 0 if reads are not queued.
    most: usize,
    fs: Arc<dyn FileSystem>,
    threads: Arc<dyn Threads>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Reads>,
    /// How many queues exist, idle or lent.
    made: usize,
    pool: Option<Arc<Pool>>,
}

/// A queue, and buffers for it.
#[derive(Debug)]
struct Reads {
    queue: Queue,
    spare: Vec<AlignedBuf>,
    spare_bytes: usize,
}

impl fmt::Debug for ReadQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ReadQueues({self})")
    }
}

/// One line for the LOG.
impl fmt::Display for ReadQueues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.most, self.kind) {
            (0, _) => f.write_str("one after the other"),
            (n, QueueKind::Threads) => {
                write!(f, "{THREADS} threads, for at most {n} readers at once")
            }
            (n, _) => write!(f, "io_uring, at most {n} rings of {READS_MAX} reads"),
        }
    }
}

impl ReadQueues {
    /// Queues of the kind that `mode` says, and with [`ReadIoMode::Auto`] the reason if no ring could be made: those that the
    /// kernel has not at all are not tried again, but threads are used. A ring is made to see that; other queues are made when
    /// they are first needed. A file system may have queues of its own ([`FileSystem::queue`]).
    ///
    /// Errors, if `mode` is [`ReadIoMode::Uring`]: `NotSupported` if the kernel has none or does not allow it; `IoError` if it
    /// has no descriptor or memory left for one.
    pub fn new(
        mode: ReadIoMode,
        fs: Arc<dyn FileSystem>,
        threads: Arc<dyn Threads>,
    ) -> Result<(Self, Option<Error>)> {
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        let mut queues = Self {
            kind: QueueKind::Ring,
            may_use_threads: mode == ReadIoMode::Auto,
            most: QUEUES_PER_PROCESSOR * processors,
            fs,
            threads,
            state: ranked(locks::READ_QUEUES, State::default()),
        };
        let mut reason = None;
        match mode {
            ReadIoMode::Off => queues.most = 0,
            ReadIoMode::Pool => queues.kind = QueueKind::Threads,
            ReadIoMode::Auto | ReadIoMode::Uring => match queues.first() {
                Ok(queue) => queues.keep_first(queue),
                Err(e) if mode == ReadIoMode::Uring => return Err(e),
                Err(e) => {
                    // What the system lacks just now is tried again for each queue.
                    if e.kind() == ErrorKind::NotSupported {
                        queues.kind = QueueKind::Threads;
                    }
                    reason = Some(e);
                }
            },
        }
        Ok((queues, reason))
    }

    /// Whether there are queues at all.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.most > 0
    }

    /// A queue, until the result is dropped; `None` if all are lent, if there are none, or if no more can be made now.
    pub fn lend(&self) -> Option<Lent<'_>> {
        let mut state = self.lock();
        let mut reads = state.idle.pop();
        if reads.is_none() {
            if state.made >= self.most {
                return None;
            }
            state.made += 1;
            drop(state);
            // Given back if this fails or panics.
            let place = Place::of(self);
            reads = self.make().ok().map(Reads::new);
            if reads.is_some() {
                place.keep();
            }
        }
        let reads = reads?;
        Some(Lent {
            queues: self,
            reads: Some(reads),
            has_failed: false,
        })
    }

    /// The file system's own queue, or one on io_uring.
    fn first(&self) -> Result<Queue> {
        match self.fs.queue() {
            Some(backend) => Queue::over(backend, READS_MAX),
            None => Queue::ring(READS_MAX, None),
        }
    }

    /// Makes a queue, which the caller has counted.
    fn make(&self) -> Result<Queue> {
        if self.kind == QueueKind::Threads && self.fs.queue().is_none() {
            return self.on_threads();
        }
        match self.first() {
            Err(_) if self.may_use_threads => self.on_threads(),
            made => made,
        }
    }

    fn on_threads(&self) -> Result<Queue> {
        Queue::on(&self.pool()?, READS_MAX)
    }

    fn pool(&self) -> Result<Arc<Pool>> {
        if let Some(pool) = &self.lock().pool {
            return Ok(Arc::clone(pool));
        }
        let made = Pool::start(THREADS, &*self.threads)?;
        // Of two threads that make one at the same time, the second uses the first's.
        let mut state = self.lock();
        let pool = Arc::clone(state.pool.get_or_insert_with(|| Arc::clone(&made)));
        drop(state); // before a pool that is not used is dropped, which waits for its threads
        Ok(pool)
    }

    fn keep_first(&self, queue: Queue) {
        let mut state = self.lock();
        state.made = 1;
        state.idle.push(Reads::new(queue));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of a queue among those that may exist. It is free again when this is dropped, unless the queue keeps it.
struct Place<'a> {
    queues: &'a ReadQueues,
    is_kept: bool,
}

impl<'a> Place<'a> {
    fn of(queues: &'a ReadQueues) -> Self {
        let is_kept = false;
        Self { queues, is_kept }
    }

    /// The queue exists.
    fn keep(mut self) {
        self.is_kept = true;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            self.queues.lock().made -= 1;
        }
    }
}

/// A lent queue, empty, and buffers for its reads. When it is dropped, it waits for the reads in flight.
#[derive(Debug)]
pub struct Lent<'a> {
    queues: &'a ReadQueues,
    /// `Some` until it is dropped.
    reads: Option<Reads>,
    has_failed: bool,
}

impl Lent<'_> {
    /// A buffer of `len` bytes whose address is a multiple of a page and of `align`, a power of two. It may contain bytes of
    /// earlier reads. Errors: there is not enough memory.
    pub fn buffer(&mut self, len: usize, align: usize) -> Result<AlignedBuf> {
        let kept = self.reads.as_mut().and_then(|reads| reads.take(len));
        let Some(mut buf) = kept.filter(|buf| buf.align() >= align) else {
            return AlignedBuf::zeroed(len, PAGE.max(align));
        };
        buf.resize_for_overwrite(len)?;
        Ok(buf)
    }

    /// The queue has failed: it is not lent again.
    pub fn give_up(&mut self) {
        self.has_failed = true;
    }

    /// Keeps a buffer for a later read.
    pub fn reuse(&mut self, buf: AlignedBuf) {
        if let Some(reads) = &mut self.reads {
            reads.keep(buf);
        }
    }
}

impl Reads {
    fn new(queue: Queue) -> Self {
        Self {
            queue,
            spare: Vec::new(),
            spare_bytes: 0,
        }
    }

    fn take(&mut self, len: usize) -> Option<AlignedBuf> {
        let buf = self.spare.pop()?;
        self.spare_bytes -= buf.capacity();
        (buf.capacity() >= len).then_some(buf)
    }

    fn keep(&mut self, buf: AlignedBuf) {
        if self.spare_bytes + buf.capacity() <= SPARE_BYTES_MAX {
            self.spare_bytes += buf.capacity();
            self.spare.push(buf);
        }
    }
}

impl Deref for Lent<'_> {
    type Target = Queue;
    fn deref(&self) -> &Queue {
        &self
            .reads
            .as_ref()
            .expect("it is there until it is dropped")
            .queue
    }
}

impl DerefMut for Lent<'_> {
    fn deref_mut(&mut self) -> &mut Queue {
        &mut self
            .reads
            .as_mut()
            .expect("it is there until it is dropped")
            .queue
    }
}

/// Gives the queue back. One that fails is dropped.
impl Drop for Lent<'_> {
    fn drop(&mut self) {
        let Some(mut reads) = self.reads.take() else {
            return;
        };
        let place = Place::of(self.queues);
        let flying = reads.queue.len();
        if self.has_failed {
            drop(reads); // while its place is taken
            return;
        }
        if flying > 0 {
            let mut out = Vec::new();
            if reads.queue.wait(flying, &mut out).is_err() {
                drop(reads); // while its place is taken
                return;
            }
            for done in out {
                let Done { buf, .. } = done;
                if let Some(buf) = buf {
                    reads.keep(buf);
                }
            }
        }
        self.queues.lock().idle.push(reads);
        place.keep();
    }
}
