//! Queues that are lent to threads which need many blocks at once.
//!
//! ```text
//!   a thread ── lend ──> Lent { queue, buffers } ── dropped ──> idle, for the next thread
//!                  └──── None: all are lent; the thread reads one block after the other
//! ```
//!
//! There are at most two queues for each processor: more would not keep a device busier, and thousands of threads need no
//! more descriptors or threads than a few.
//!
//! Tasks that must not block their thread get [`AsyncReads`]: one more queue, on a thread of its own, serves all of them.

use std::fmt;
use std::num::NonZero;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use base::sync::atomic::{AtomicBool, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use base::threads::Threads;
use base::{Error, Result};

use crate::buffer::AlignedBuf;
use crate::locks;
use crate::queue::{Done, Queue, QueueKind};
use crate::queue_maker::{Maker, READS_MAX, THREADS};
use crate::read_thread::{AsyncReads, ReadThread};
use crate::{File, FileSystem};

/// Queues for each processor.
const QUEUES_PER_PROCESSOR: usize = 2;
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
    maker: Arc<Maker>,
    /// The most queues that are lent at a time; 0 if reads are not queued.
    most: usize,
    state: Mutex<State>,
    /// Started when it is first needed.
    thread: Mutex<Option<Arc<ReadThread>>>,
    /// Whether the last queue that was used has failed.
    has_failed: AtomicBool,
}

#[derive(Debug, Default)]
struct State {
    idle: Vec<Reads>,
    /// How many queues exist, idle or lent.
    made: usize,
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
        match (self.most, self.maker.kind()) {
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
        let kind = match mode {
            ReadIoMode::Pool => QueueKind::Threads,
            _ => QueueKind::Ring,
        };
        let mut maker = Maker::new(kind, mode == ReadIoMode::Auto, fs, threads);
        let (mut state, mut reason) = (State::default(), None);
        if matches!(mode, ReadIoMode::Auto | ReadIoMode::Uring) {
            match maker.try_ring() {
                Ok(queue) => {
                    state.made = 1;
                    state.idle.push(Reads::new(queue));
                }
                Err(e) if mode == ReadIoMode::Uring => return Err(e),
                Err(e) => reason = Some(e),
            }
        }
        let queues = Self {
            maker: Arc::new(maker),
            most: match mode {
                ReadIoMode::Off => 0,
                _ => QUEUES_PER_PROCESSOR * processors,
            },
            state: ranked(locks::READ_QUEUES, state),
            thread: ranked(locks::READ_QUEUES, None),
            has_failed: AtomicBool::new(false),
        };
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
            reads = self.maker.make(None).ok().map(Reads::new);
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

    /// Reads that nobody waits for on a thread: `None` if there are no queues, if the thread that does the reads cannot be
    /// started now, or if this is that thread: a task that it has woken must not wait for it.
    pub fn unattended(&self) -> Option<AsyncReads> {
        if !self.is_on() {
            return None;
        }
        let running = self.lock_thread().clone();
        if let Some(thread) = running.filter(|thread| !thread.is_over()) {
            return (!thread.is_this()).then(|| thread.reads());
        }
        let made = Arc::new(ReadThread::start(&self.maker).ok()?);
        // Of two that start one at the same time, the second uses the first's.
        let mut slot = self.lock_thread();
        let before = slot.take();
        let others = before.clone().filter(|thread| !thread.is_over());
        let thread = others.unwrap_or_else(|| Arc::clone(&made));
        *slot = Some(Arc::clone(&thread));
        drop(slot); // before one that is not used is dropped, which waits for its end
        drop((before, made));
        Some(thread.reads())
    }

    /// Whether this is the thread that does the reads of [`ReadQueues::unattended`], and runs a task that it has woken.
    pub fn is_this_thread(&self) -> bool {
        let running = self.lock_thread().clone();
        running.is_some_and(|thread| thread.is_this())
    }

    /// Whether reads of the file can be queued. Otherwise a queue does them at once, one after the other.
    pub fn takes(&self, file: &dyn File) -> bool {
        self.maker.takes(file)
    }

    /// Whether a failure of a queue is to be said: not if it was before, until a queue has worked again.
    pub fn is_news(&self, failed: bool) -> bool {
        self.has_failed.load(Ordering::Relaxed) != failed
            && self.has_failed.swap(failed, Ordering::Relaxed) != failed
    }

    fn lock_thread(&self) -> MutexGuard<'_, Option<Arc<ReadThread>>> {
        self.thread.lock().unwrap_or_else(PoisonError::into_inner)
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
            return AlignedBuf::for_reads(len, align);
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
