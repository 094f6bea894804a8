//! A queue of asynchronous reads, writes and syncs, for a thread that does other work meanwhile.
//!
//! ```text
//!   push ── submit ──> io_uring, or threads where the kernel has none
//!                          │
//!   wait <── Done ─────────┘      event(): readable when something is done, for epoll
//! ```
//!
//! A queue belongs to one thread. It owns the memory of requests in flight: dropping it waits for all of
//! them. A request for a file without a descriptor (a simulated or counted one) is done at once by
//! [`Queue::push`], with the file's own methods, unless the queue's [`Backend`] takes such files.

mod ring;
mod workers;

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use base::threads::Threads;
use base::{Error, ErrorKind, Result};
use bytes::Bytes;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::{Errno, retry_on_intr};

use crate::{AlignedBuf, File, SyncKind, WriteSync};
use ring::Ring;
pub(crate) use workers::Pool;
use workers::Workers;

/// Maximum number of requests in flight in one queue.
pub const DEPTH_MAX: u32 = 4096;

/// How a queue executes requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueKind {
    /// io_uring, or threads where the kernel has none or does not allow it.
    #[default]
    Auto,
    /// io_uring.
    Ring,
    /// Threads.
    Threads,
    /// A [`Backend`] of a file system's own: only [`Queue::over`] makes such a queue.
    Other,
}

/// The operation of a request.
#[derive(Debug)]
pub enum Act {
    /// Fills the buffer, or less of it at the end of the file.
    Read(AlignedBuf),
    /// Writes all of the slices, contiguously.
    Write(Vec<Bytes>, WriteSync),
    /// Makes completed writes durable; does not wait for requests in flight.
    Sync(SyncKind),
}

/// An operation on a file.
#[derive(Debug)]
pub struct Request {
    /// Returned in [`Done`].
    pub token: u64,
    /// The file.
    pub file: Arc<dyn File>,
    /// The file offset in bytes.
    pub offset: u64,
    /// The operation.
    pub act: Act,
}

/// A completed request.
#[derive(Debug)]
#[must_use = "it may have failed"]
pub struct Done {
    /// The token of the request.
    pub token: u64,
    /// How many bytes were read or written.
    pub result: Result<usize>,
    /// The buffer of a read, of which the first `result` bytes are filled.
    pub buf: Option<AlignedBuf>,
}

/// What executes the requests of a [`Queue`]: io_uring, threads, or a simulator. Dropping it waits for all requests in
/// flight.
pub trait Backend: Send + Debug {
    /// Whether it takes requests for files without a descriptor too.
    fn takes_any_file(&self) -> bool {
        false
    }

    /// How many requests are in flight: pushed, and not yet moved to `out` by [`Backend::wait`].
    fn flying(&self) -> usize;

    /// Takes a request. The queue has made sure that fewer requests are in flight than its depth. Errors: those of the
    /// system; the request is dropped then.
    fn push(&mut self, request: Request) -> Result<()>;

    /// Sends the pushed requests, if they are not on their way yet.
    fn submit(&mut self) -> Result<()>;

    /// Sends the pushed requests, and moves at least `at_least` completed ones to `out`, or all in flight. Errors: those of
    /// the system; no request is lost.
    fn wait(&mut self, at_least: usize, out: &mut VecDeque<Done>) -> Result<()>;
}

/// A queue of asynchronous requests: see the module.
#[derive(Debug)]
pub struct Queue {
    backend: Box<dyn Backend>,
    kind: QueueKind,
    /// Requests that were done at once, or that completed during a wait for others.
    ready: VecDeque<Done>,
    depth: usize,
    event: Option<Arc<OwnedFd>>,
}

impl Queue {
    /// A queue of at most `depth` requests in flight, with an [event](Queue::event). If it needs threads, they are started by
    /// `threads`.
    ///
    /// Errors: `depth` is 0 or more than [`DEPTH_MAX`]; [`QueueKind::Ring`] is asked for and the system has
    /// no io_uring; or the system has no thread or descriptor left.
    pub fn new(kind: QueueKind, depth: u32, threads: &dyn Threads) -> Result<Self> {
        if kind == QueueKind::Other {
            return Err(Error::invalid_argument(
                "a queue over a backend of its own: make it with Queue::over",
            ));
        }
        let event = new_event()?;
        if kind != QueueKind::Threads {
            match Self::ring(depth, Some(Arc::clone(&event))) {
                Err(_) if kind == QueueKind::Auto => {}
                made => return made,
            }
        }
        check_depth(depth)?;
        Self::on(&Pool::start(depth, threads)?, depth, Some(event))
    }

    /// A queue on threads that it shares with others.
    pub(crate) fn on(pool: &Arc<Pool>, depth: u32, event: Option<Arc<OwnedFd>>) -> Result<Self> {
        check_depth(depth)?;
        let workers = Workers::new(pool, event.clone());
        Ok(Self::with(
            Box::new(workers),
            QueueKind::Threads,
            depth,
            event,
        ))
    }

    /// A queue on a backend of a file system's own, without an event. Errors: `depth` is 0 or more than [`DEPTH_MAX`].
    pub fn over(backend: Box<dyn Backend>, depth: u32) -> Result<Self> {
        check_depth(depth)?;
        Ok(Self::with(backend, QueueKind::Other, depth, None))
    }

    /// A queue on io_uring. Without an event, completions cost less.
    pub(crate) fn ring(depth: u32, event: Option<Arc<OwnedFd>>) -> Result<Self> {
        check_depth(depth)?;
        let ring = Ring::new(depth, event.as_deref().map(AsFd::as_fd))?;
        Ok(Self::with(Box::new(ring), QueueKind::Ring, depth, event))
    }

    fn with(
        backend: Box<dyn Backend>,
        kind: QueueKind,
        depth: u32,
        event: Option<Arc<OwnedFd>>,
    ) -> Self {
        Self {
            backend,
            kind,
            ready: VecDeque::new(),
            depth: depth as usize,
            event,
        }
    }

    /// What executes the requests; never [`QueueKind::Auto`].
    pub fn kind(&self) -> QueueKind {
        self.kind
    }

    /// How many requests are in flight, or done and not yet returned.
    pub fn len(&self) -> usize {
        self.ready.len() + self.backend.flying()
    }

    /// True if every pushed request has been returned.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes a request, to be sent by [`Queue::submit`] or [`Queue::wait`]. If `depth` requests are in
    /// flight, waits for one of them. Errors: those of the system; the request is dropped then.
    pub fn push(&mut self, request: Request) -> Result<()> {
        if request.file.descriptor().is_none() && !self.backend.takes_any_file() {
            self.ready.push_back(run(request));
            return self.tell();
        }
        while self.backend.flying() >= self.depth {
            self.backend.wait(1, &mut self.ready)?;
        }
        self.backend.push(request)
    }

    /// Sends the pushed requests.
    pub fn submit(&mut self) -> Result<()> {
        self.backend.submit()
    }

    /// Sends the pushed requests, waits until at least `at_least` of them are done (or all, if there are
    /// fewer), and moves all completed requests to `out`, in no particular order. Errors: those of the
    /// system; no request is lost.
    pub fn wait(&mut self, at_least: usize, out: &mut Vec<Done>) -> Result<()> {
        let more = at_least.saturating_sub(self.ready.len());
        let more = more.min(self.backend.flying());
        self.backend.wait(more, &mut self.ready)?;
        out.extend(self.ready.drain(..));
        Ok(())
    }

    /// A descriptor that becomes readable when a request has completed since the last
    /// [`Queue::clear_event`]; `None` if the queue was made without one.
    pub fn event(&self) -> Option<BorrowedFd<'_>> {
        self.event.as_deref().map(AsFd::as_fd)
    }

    /// Makes [`Queue::event`] unreadable until the next completion. Call it before [`Queue::wait`] with 0.
    pub fn clear_event(&self) -> Result<()> {
        self.event.as_deref().map_or(Ok(()), clear)
    }

    fn tell(&self) -> Result<()> {
        self.event.as_deref().map_or(Ok(()), signal)
    }
}

fn check_depth(depth: u32) -> Result<()> {
    if (1..=DEPTH_MAX).contains(&depth) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "a queue of {depth} requests: it must be 1 to {DEPTH_MAX}"
    )))
}

/// An event that is not readable yet.
pub(crate) fn new_event() -> Result<Arc<OwnedFd>> {
    let made = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
    made.map(Arc::new)
        .map_err(|e| system("make an eventfd", e.into()))
}

/// Makes an event readable.
pub(crate) fn signal(event: &OwnedFd) -> Result<()> {
    match retry_on_intr(|| rustix::io::write(event, &1_u64.to_ne_bytes())) {
        // `AGAIN`: the counter is full, so the descriptor is readable already.
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(e) => Err(system("write an eventfd", e.into())),
    }
}

/// Makes an event unreadable.
pub(crate) fn clear(event: &OwnedFd) -> Result<()> {
    let mut count = [0; 8];
    match retry_on_intr(|| rustix::io::read(event, &mut count)) {
        Ok(_) | Err(Errno::AGAIN) => Ok(()),
        Err(e) => Err(system("read an eventfd", e.into())),
    }
}

fn system(what: &str, e: std::io::Error) -> Error {
    Error::new(ErrorKind::IoError, format!("cannot {what}: {e}"))
}

/// Executes a request with the file's own methods. A panic of the file counts as a failure.
pub(crate) fn run(request: Request) -> Done {
    let Request {
        token,
        file,
        offset,
        act,
    } = request;
    let mut buf = None;
    let result = catch_unwind(AssertUnwindSafe(|| match act {
        Act::Read(into) => file.read_at(buf.insert(into), offset),
        Act::Write(slices, sync) => write_from(&*file, &slices, 0, offset, sync),
        Act::Sync(kind) => file.sync(kind).map(|()| 0),
    }));
    let panicked = |_| {
        let e = Error::aborted("the file panicked");
        // What has panicked may panic again when it is asked for its name.
        let named = catch_unwind(AssertUnwindSafe(|| e.clone().file(file.path())));
        Err(named.unwrap_or(e))
    };
    let result = result.unwrap_or_else(panicked);
    // This may be its last owner. What it does then must not end a thread that others wait for.
    catch_unwind(AssertUnwindSafe(|| drop(file))).ok();
    Done { token, result, buf }
}

/// Writes `slices` except for the first `done` bytes, which are written already; returns their total length.
fn write_from(
    file: &dyn File,
    slices: &[Bytes],
    done: usize,
    offset: u64,
    sync: WriteSync,
) -> Result<usize> {
    let mut all: Vec<IoSlice<'_>> = slices.iter().map(|s| IoSlice::new(s)).collect();
    let mut rest = &mut all[..];
    IoSlice::advance_slices(&mut rest, done);
    crate::write_all_vectored_at(file, rest, offset + done as u64, sync)?;
    Ok(slices.iter().map(Bytes::len).sum())
}
