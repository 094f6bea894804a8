//! Reads, writes and syncs on their way, several at once, for a thread that goes on meanwhile.
//!
//! ```text
//!   push ── submit ──> io_uring, or threads where the kernel has none
//!                          │
//!   wait <── Done ─────────┘      event(): readable when something is done, for epoll
//! ```
//!
//! A queue belongs to one thread. It owns the memory of what is on its way: whoever drops it waits for all
//! of that. A request of a file that is not the system's (a simulated or counted one) is done at once by
//! whoever pushes it, with the file's own methods.

mod ring;
mod workers;

use std::collections::VecDeque;
use std::io::IoSlice;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use base::threads::Threads;
use base::{Error, ErrorKind, Result};
use bytes::Bytes;
use rustix::event::{EventfdFlags, eventfd};
use rustix::io::retry_on_intr;

use crate::{AlignedBuf, File, SyncKind, WriteSync};
use ring::Ring;
use workers::Workers;

/// The most that may be on its way in one queue.
pub const DEPTH_MAX: u32 = 4096;

/// How a queue brings requests to the system.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QueueKind {
    /// io_uring, or threads where the kernel has none or does not allow it.
    #[default]
    Auto,
    /// io_uring.
    Ring,
    /// Threads of its own.
    Threads,
}

/// What is to be done.
#[derive(Debug)]
pub enum Act {
    /// Fills the buffer, as far as the file goes.
    Read(AlignedBuf),
    /// Writes all of the slices, one behind the other.
    Write(Vec<Bytes>, WriteSync),
    /// Makes durable what was written before; requests on their way are not waited for.
    Sync(SyncKind),
}

/// What is to be done, and to which file.
#[derive(Debug)]
pub struct Request {
    /// Given back in [`Done`].
    pub token: u64,
    /// The file.
    pub file: Arc<dyn File>,
    /// Where in it, bytes from its start.
    pub offset: u64,
    /// What.
    pub act: Act,
}

/// What became of a request.
#[derive(Debug)]
#[must_use = "it may have failed"]
pub struct Done {
    /// The request's.
    pub token: u64,
    /// How many bytes were read or written.
    pub result: Result<usize>,
    /// The buffer of a read, filled so far.
    pub buf: Option<AlignedBuf>,
}

/// See the module.
#[derive(Debug)]
pub struct Queue {
    backend: Backend,
    /// Done at once, or met while something else was waited for.
    ready: VecDeque<Done>,
    depth: usize,
    event: Arc<OwnedFd>,
}

#[derive(Debug)]
enum Backend {
    Ring(Box<Ring>),
    Workers(Workers),
}

impl Queue {
    /// A queue of at most `depth` requests on their way. Threads, where it needs any, are started by
    /// `threads`.
    ///
    /// Errors: `depth` is 0 or more than [`DEPTH_MAX`]; the system has no io_uring, if that is asked for, or
    /// no thread or descriptor left.
    pub fn new(kind: QueueKind, depth: u32, threads: &dyn Threads) -> Result<Self> {
        if !(1..=DEPTH_MAX).contains(&depth) {
            return Err(Error::invalid_argument(format!(
                "a queue of {depth} requests: it must be 1 to {DEPTH_MAX}"
            )));
        }
        let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|e| system("make an eventfd", e.into()))?;
        let event = Arc::new(event);
        let backend = match kind {
            QueueKind::Threads => Err(Error::not_supported("io_uring was not asked for")),
            QueueKind::Auto | QueueKind::Ring => Ring::new(depth, event.as_fd()),
        };
        let backend = match backend {
            Ok(ring) => Backend::Ring(Box::new(ring)),
            Err(e) if kind == QueueKind::Ring => return Err(e),
            Err(_) => Backend::Workers(Workers::start(depth, threads, &event)?),
        };
        Ok(Self {
            backend,
            ready: VecDeque::new(),
            depth: depth as usize,
            event,
        })
    }

    /// [`QueueKind::Ring`] or [`QueueKind::Threads`].
    pub fn kind(&self) -> QueueKind {
        match self.backend {
            Backend::Ring(_) => QueueKind::Ring,
            Backend::Workers(_) => QueueKind::Threads,
        }
    }

    /// How many requests are on their way, or done and not yet given out.
    pub fn len(&self) -> usize {
        self.ready.len() + self.flying()
    }

    /// True if all that was pushed is given out.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn flying(&self) -> usize {
        match &self.backend {
            Backend::Ring(ring) => ring.flying(),
            Backend::Workers(workers) => workers.flying(),
        }
    }

    /// Takes a request, to be sent by [`Queue::submit`] or [`Queue::wait`]. Where as many as may be are on
    /// their way, waits for one. Errors: the system's, of that wait; the request is dropped then.
    pub fn push(&mut self, request: Request) -> Result<()> {
        if request.file.descriptor().is_none() {
            self.ready.push_back(run(request));
            return self.tell();
        }
        while self.flying() >= self.depth {
            self.meet(1)?;
        }
        match &mut self.backend {
            Backend::Ring(ring) => ring.push(request),
            Backend::Workers(workers) => {
                workers.push(request);
                Ok(())
            }
        }
    }

    /// Sends what was pushed.
    pub fn submit(&mut self) -> Result<()> {
        match &mut self.backend {
            Backend::Ring(ring) => ring.submit(0),
            Backend::Workers(_) => Ok(()),
        }
    }

    /// Sends what was pushed, waits until at least `at_least` requests are done, or all that there are, and
    /// moves all that are done to `out`, in no order. Errors: the system's; nothing is lost.
    pub fn wait(&mut self, at_least: usize, out: &mut Vec<Done>) -> Result<()> {
        let more = at_least.saturating_sub(self.ready.len());
        self.meet(more.min(self.flying()))?;
        out.extend(self.ready.drain(..));
        Ok(())
    }

    /// Readable when something is done since the last [`Queue::clear_event`].
    pub fn event(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }

    /// Makes [`Queue::event`] wait for what is done from here on: before [`Queue::wait`] is asked with 0.
    pub fn clear_event(&self) -> Result<()> {
        let mut count = [0; 8];
        match retry_on_intr(|| rustix::io::read(&*self.event, &mut count)) {
            Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
            Err(e) => Err(system("read an eventfd", e.into())),
        }
    }

    fn tell(&self) -> Result<()> {
        signal(&self.event).map_err(|e| system("write an eventfd", e.into()))
    }

    /// Sends, waits for `at_least` of those that fly, and takes what is done.
    fn meet(&mut self, at_least: usize) -> Result<()> {
        match &mut self.backend {
            Backend::Ring(ring) => ring.wait(at_least, &mut self.ready),
            Backend::Workers(workers) => {
                workers.wait(at_least, &mut self.ready);
                Ok(())
            }
        }
    }
}

fn signal(event: &OwnedFd) -> rustix::io::Result<()> {
    match retry_on_intr(|| rustix::io::write(event, &1_u64.to_ne_bytes())) {
        // It is readable already.
        Ok(_) | Err(rustix::io::Errno::AGAIN) => Ok(()),
        Err(e) => Err(e),
    }
}

fn system(what: &str, e: std::io::Error) -> Error {
    Error::new(ErrorKind::IoError, format!("cannot {what}: {e}"))
}

/// Does a request with the file's own methods. A file that panics has failed.
fn run(request: Request) -> Done {
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
    let panicked = |_| Err(Error::aborted("the file panicked").file(file.path()));
    Done {
        token,
        result: result.unwrap_or_else(panicked),
        buf,
    }
}

/// Writes `slices` but for the first `done` bytes, which are written; returns how many there are in all.
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
