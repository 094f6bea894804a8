//! A thread that reads for tasks which must not block theirs.
//!
//! ```text
//!   a task ── push, submit ──> mail ──> the thread ── its queue ──> the device
//!     ^                                     │
//!     └────────── is woken <── inbox <──────┘
//! ```
//!
//! Only the thread uses the queue, so no lock is held while the kernel, a file or a waker runs. When the queue fails, each
//! task that waits for it is told, and reads for itself; for the next read the thread makes another queue.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use base::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use base::sync::thread::{self, JoinHandle};
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, ErrorKind, Result};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;

use crate::buffer::AlignedBuf;
use crate::queue::{Act, Done, Queue, Request, clear, new_event, signal};
use crate::queue_maker::Maker;
use crate::{File, locks};

/// After which time a queue with reads in flight is looked at, if nothing else happens.
const AGAIN: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 10_000_000,
};

/// How long a waiting thread lets the thread for reads wake a task before it looks again.
const HELD_UP: Duration = Duration::from_millis(100);

/// The thread. When the last owner drops it, it ends, and its reads in flight are waited for.
#[derive(Debug)]
pub(crate) struct ReadThread {
    shared: Arc<Shared>,
    /// `Some` until it is dropped.
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    /// Readable when there is mail, or a read is done.
    event: Arc<OwnedFd>,
    mail: Mutex<Mail>,
    /// How many tasks are being woken, which may run any code.
    wakes: AtomicUsize,
}

#[derive(Debug, Default)]
struct Mail {
    wanted: Vec<Wanted>,
    /// The thread shall end.
    is_closed: bool,
    /// The thread has ended.
    is_over: bool,
}

/// A read that a task wants.
#[derive(Debug)]
struct Wanted {
    request: Request,
    inbox: Arc<Inbox>,
}

/// What a task's reads have brought.
#[derive(Debug)]
struct Inbox {
    arrived: Mutex<Arrived>,
    came: Condvar,
    /// Nobody wants the reads any more.
    is_left: AtomicBool,
}

#[derive(Debug, Default)]
struct Arrived {
    done: Vec<Done>,
    /// Why the reads that are not done will not be done.
    failure: Option<Error>,
    waker: Option<Waker>,
}

impl Arrived {
    /// What is done, or the failure.
    fn take(&mut self) -> Option<Result<Vec<Done>>> {
        if !self.done.is_empty() {
            return Some(Ok(std::mem::take(&mut self.done)));
        }
        self.failure.clone().map(Err)
    }
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the content, and wakes the task, which counts in `wakes` meanwhile.
    fn put(&self, wakes: &AtomicUsize, change: impl FnOnce(&mut Arrived)) {
        wakes.fetch_add(1, Ordering::SeqCst); // before the waker is taken
        let mut arrived = self.lock();
        change(&mut arrived);
        let waker = arrived.waker.take();
        drop(arrived);
        self.came.notify_all();
        if let Some(waker) = waker {
            // What the application's executor does must not end the thread.
            catch_unwind(AssertUnwindSafe(|| waker.wake())).ok();
        }
        wakes.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Shared {
    /// Tells a task that its reads will not be done.
    fn lose(&self, inbox: &Inbox, e: &Error) {
        inbox.put(&self.wakes, |arrived| arrived.failure = Some(e.clone()));
    }

    fn lock(&self) -> MutexGuard<'_, Mail> {
        self.mail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn over() -> Error {
    Error::aborted("the thread for reads has ended")
}

impl ReadThread {
    /// Errors: the system has no descriptor left, or cannot start a thread.
    pub(crate) fn start(maker: &Arc<Maker>) -> Result<Self> {
        let shared = Arc::new(Shared {
            event: new_event()?,
            mail: ranked(locks::QUEUE, Mail::default()),
            wakes: AtomicUsize::new(0),
        });
        let worker = Worker {
            shared: Arc::clone(&shared),
            maker: Arc::clone(maker),
            queue: None,
            flying: Flying::default(),
            taken: VecDeque::new(),
        };
        let run = Box::new(move || worker.run());
        let thread = maker.threads().start("ironstone:reads", run);
        let thread = thread.map_err(|e| {
            let what = format!("cannot start a thread for reads: {e}");
            Error::new(ErrorKind::Busy, what).hint("raise the limit of threads (ulimit -u)")
        })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Whether it has ended, and is to be replaced.
    pub(crate) fn is_over(&self) -> bool {
        self.shared.lock().is_over
    }

    /// Whether the caller runs on it.
    pub(crate) fn is_this(&self) -> bool {
        let id = self.thread.as_ref().map(|thread| thread.thread().id());
        id == Some(thread::current().id())
    }

    /// The reads of one task, none yet.
    pub(crate) fn reads(self: Arc<Self>) -> AsyncReads {
        AsyncReads {
            thread: self,
            inbox: Arc::new(Inbox {
                arrived: ranked(locks::QUEUE, Arrived::default()),
                came: Condvar::new(),
                is_left: AtomicBool::new(false),
            }),
            unsent: Vec::new(),
        }
    }
}

impl Drop for ReadThread {
    fn drop(&mut self) {
        self.shared.lock().is_closed = true;
        signal(&self.shared.event).ok(); // it fails only for a descriptor that is none
        // A task that it wakes may be what drops the last owner, or wait for who does. It ends by itself then.
        let wakes = self.is_this() || self.shared.wakes.load(Ordering::SeqCst) > 0;
        if let Some(thread) = self.thread.take().filter(|_| !wakes) {
            thread.join().ok(); // it catches panics
        }
    }
}

/// The reads of one task, which is woken when one is done. Dropping it forgets them; their memory lives on until the kernel
/// is done with it.
#[derive(Debug)]
pub struct AsyncReads {
    thread: Arc<ReadThread>,
    inbox: Arc<Inbox>,
    unsent: Vec<Wanted>,
}

impl AsyncReads {
    /// Takes a read that fills `buf`, to be sent by [`AsyncReads::submit`] or by waiting. If the file is direct, offset and
    /// buffer are aligned.
    pub fn push(&mut self, token: u64, file: Arc<dyn File>, offset: u64, buf: AlignedBuf) {
        self.unsent.push(Wanted {
            request: Request {
                token,
                file,
                offset,
                act: Act::Read(buf),
            },
            inbox: Arc::clone(&self.inbox),
        });
    }

    /// Sends the pushed reads. Does not block.
    pub fn submit(&mut self) {
        if self.unsent.is_empty() {
            return;
        }
        let shared = &self.thread.shared;
        let mut mail = shared.lock();
        if mail.is_over {
            drop(mail);
            self.unsent.clear();
            return shared.lose(&self.inbox, &over());
        }
        let is_first = mail.wanted.is_empty();
        mail.wanted.append(&mut self.unsent);
        drop(mail);
        // Others have woken the thread, and it has not looked yet.
        if !is_first {
            return;
        }
        if let Err(e) = signal(&shared.event) {
            // Others may have relied on this signal.
            let unheard = std::mem::take(&mut shared.lock().wanted);
            for wanted in unheard {
                shared.lose(&wanted.inbox, &e);
            }
        }
    }

    /// Sends the pushed reads, blocks until one is done, and returns those that are done since the last call. Not to be called
    /// when no read is on its way.
    ///
    /// Errors: as [`AsyncReads::poll_done`]; also if a task that the thread has woken waits on that thread, or holds it up.
    pub fn wait(&mut self) -> Result<Vec<Done>> {
        self.submit();
        if self.thread.is_this() {
            let what = "a read would be waited for by the thread that does it";
            return Err(Error::aborted(what));
        }
        let mut held_up = 0;
        let mut arrived = self.inbox.lock();
        loop {
            if let Some(result) = arrived.take() {
                return result;
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "only to look again: no result depends on the time"
            )]
            let woken = self.inbox.came.wait_timeout(arrived, HELD_UP);
            let (woken, timeout) = woken.unwrap_or_else(PoisonError::into_inner);
            arrived = woken;
            if timeout.timed_out() {
                let wakes = self.thread.shared.wakes.load(Ordering::SeqCst) > 0;
                held_up = if wakes { held_up + 1 } else { 0 };
                // The task may wait for what this thread does.
                if held_up == 2 {
                    return Err(Error::aborted("the thread for reads is held up by a task"));
                }
            }
        }
    }

    /// Sends the pushed reads, and returns those that are done since the last call. If there is none, the task is woken when
    /// there is one. Not to be called when no read is on its way.
    ///
    /// Errors: the queue has failed; the reads that were not returned will not be done.
    pub fn poll_done(&mut self, cx: &mut Context<'_>) -> Poll<Result<Vec<Done>>> {
        self.submit();
        let waker = cx.waker().clone(); // before the lock, because it is the application's code
        let mut arrived = self.inbox.lock();
        if let Some(result) = arrived.take() {
            return Poll::Ready(result);
        }
        let before = arrived.waker.replace(waker);
        drop(arrived);
        drop(before);
        Poll::Pending
    }
}

impl Drop for AsyncReads {
    fn drop(&mut self) {
        self.inbox.is_left.store(true, Ordering::Relaxed);
        let waker = self.inbox.lock().waker.take();
        drop(waker); // after the lock
    }
}

/// Drops a read that nobody wants, which may be the last owner of its file. A file of the application may panic then.
fn forget(wanted: Wanted) {
    catch_unwind(AssertUnwindSafe(|| drop(wanted))).ok();
}

/// What the thread owns.
struct Worker {
    shared: Arc<Shared>,
    maker: Arc<Maker>,
    /// `None` until it is needed, and after it has failed.
    queue: Option<Queue>,
    flying: Flying,
    /// Mail that was taken, and is not pushed yet.
    taken: VecDeque<Wanted>,
}

/// Who waits for the reads that the queue has, by their numbers.
#[derive(Default)]
struct Flying {
    waiting: Vec<Option<(Arc<Inbox>, u64)>>,
    free: Vec<usize>,
}

impl Flying {
    /// The number of the next read.
    fn next(&self) -> usize {
        self.free.last().copied().unwrap_or(self.waiting.len())
    }

    /// Takes note of who waits for the read with the next number, and under which token.
    fn add(&mut self, inbox: Arc<Inbox>, token: u64) {
        let waiting = Some((inbox, token));
        match self.free.pop() {
            Some(number) => self.waiting[number] = waiting,
            None => self.waiting.push(waiting),
        }
    }

    fn take(&mut self, number: usize) -> Option<(Arc<Inbox>, u64)> {
        let waiting = self.waiting.get_mut(number)?.take()?;
        self.free.push(number);
        Some(waiting)
    }
}

impl Worker {
    fn run(mut self) {
        loop {
            // First, so that nothing that comes later is missed.
            if let Err(e) = clear(&self.shared.event) {
                self.fail(&e);
            }
            let mut mail = self.shared.lock();
            self.taken.extend(mail.wanted.drain(..));
            let is_closed = mail.is_closed;
            drop(mail);
            if is_closed {
                return;
            }
            let came = !self.taken.is_empty();
            while let Some(wanted) = self.taken.pop_front() {
                self.start(wanted);
            }
            if self.collect() || came {
                continue;
            }
            let mut event = [PollFd::new(&*self.shared.event, PollFlags::IN)];
            // What the kernel has not taken, because it was short of memory, is sent again soon.
            let flies = self.queue.as_ref().is_some_and(|queue| !queue.is_empty());
            let timeout = flies.then_some(&AGAIN);
            if let Err(e) = retry_on_intr(|| poll(&mut event, timeout)) {
                let e = std::io::Error::from(e);
                self.fail(&Error::new(ErrorKind::IoError, format!("cannot poll: {e}")));
                thread::yield_now();
            }
        }
    }

    /// Pushes a read to the queue, unless nobody wants it any more.
    fn start(&mut self, wanted: Wanted) {
        if wanted.inbox.is_left.load(Ordering::Relaxed) {
            return forget(wanted);
        }
        let inbox = Arc::clone(&wanted.inbox);
        // A file of the application may panic.
        match catch_unwind(AssertUnwindSafe(|| self.try_start(wanted))) {
            Ok(Ok(())) => {}
            Ok(Err(e)) => self.shared.lose(&inbox, &e),
            Err(_) => {
                let e = Error::aborted("a file panicked");
                self.shared.lose(&inbox, &e);
            }
        }
    }

    fn try_start(&mut self, wanted: Wanted) -> Result<()> {
        let Wanted { mut request, inbox } = wanted;
        let queue = match &mut self.queue {
            Some(queue) => queue,
            none => none.insert(self.maker.make(Some(&self.shared.event))?),
        };
        let token = std::mem::replace(&mut request.token, self.flying.next() as u64);
        match queue.push(request) {
            Ok(()) => self.flying.add(inbox, token),
            Err(e) => {
                self.fail(&e);
                return Err(e);
            }
        }
        Ok(())
    }

    /// Delivers what is done; returns whether it may go on at once.
    fn collect(&mut self) -> bool {
        let Some(queue) = &mut self.queue else {
            return false;
        };
        let has_event = queue.event().is_some();
        let mut out = Vec::new();
        let at_least = usize::from(!has_event);
        if let Err(e) = queue.wait(at_least, &mut out) {
            self.fail(&e);
            return true;
        }
        let came = !out.is_empty();
        for mut done in out {
            let Some((inbox, token)) = self.flying.take(done.token as usize) else {
                continue;
            };
            done.token = token;
            inbox.put(&self.shared.wakes, |arrived| arrived.done.push(done));
        }
        came
    }

    /// The queue has failed.
    fn fail(&mut self, e: &Error) {
        let queue = self.queue.take();
        for (inbox, _) in std::mem::take(&mut self.flying)
            .waiting
            .into_iter()
            .flatten()
        {
            self.shared.lose(&inbox, e);
        }
        drop(queue); // waits for the reads in flight, as far as it can
    }
}

/// Tells all who wait, if the thread ends.
impl Drop for Worker {
    fn drop(&mut self) {
        let mut mail = self.shared.lock();
        mail.is_over = true;
        let wanted = std::mem::take(&mut mail.wanted);
        drop(mail);
        let e = over();
        let inboxes = self.taken.iter().chain(&wanted).map(|wanted| &wanted.inbox);
        for inbox in inboxes {
            self.shared.lose(inbox, &e);
        }
        self.taken.drain(..).chain(wanted).for_each(forget);
        self.fail(&e);
    }
}
