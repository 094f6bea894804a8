//! Queues on threads, for a kernel without io_uring.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use base::sync::thread::JoinHandle;
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError, ranked};
use base::threads::Threads;
use base::{Error, ErrorKind, Result};

use super::{Backend, Done, Request, run, signal};
use crate::locks;

/// Maximum number of threads: more of them would not keep a device busier.
const THREADS_MAX: u32 = 64;

/// Threads that execute the requests of one queue or several. Dropped with the last queue; the threads then complete all
/// requests first.
#[derive(Debug)]
pub(crate) struct Pool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

/// What the threads share.
#[derive(Debug)]
struct Shared {
    todo: Mutex<Todo>,
    work: Condvar,
}

#[derive(Debug, Default)]
struct Todo {
    requests: VecDeque<(Request, Arc<Mailbox>)>,
    closed: bool,
}

/// The completed requests of one queue.
#[derive(Debug)]
struct Mailbox {
    done: Mutex<Vec<Done>>,
    came: Condvar,
    event: Option<Arc<OwnedFd>>,
}

impl Mailbox {
    fn lock(&self) -> MutexGuard<'_, Vec<Done>> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn put(&self, done: Done) {
        self.lock().push(done);
        self.came.notify_one();
        if let Some(event) = &self.event {
            // Cannot fail except for a full counter, which `signal` accepts; `wait` uses the condition.
            signal(event).ok();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Todo> {
        self.todo.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of a thread: executes requests until the pool is closed and nothing is to do.
    fn work(&self) {
        let mut todo = self.lock();
        loop {
            if let Some((request, mailbox)) = todo.requests.pop_front() {
                drop(todo);
                mailbox.put(run(request));
                todo = self.lock();
                continue;
            }
            if todo.closed {
                return;
            }
            let woken = self.work.wait(todo);
            todo = woken.unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Pool {
    /// Starts `count` threads, at most 64. Errors: not one thread could be started.
    pub(crate) fn start(count: u32, threads: &dyn Threads) -> Result<Arc<Self>> {
        let shared = Arc::new(Shared {
            todo: ranked(locks::QUEUE, Todo::default()),
            work: Condvar::new(),
        });
        let mut pool = Self {
            shared,
            threads: Vec::new(),
        };
        for n in 0..count.min(THREADS_MAX) {
            let shared = Arc::clone(&pool.shared);
            let run = Box::new(move || shared.work());
            match threads.start(&format!("ironstone:io{n}"), run) {
                Ok(thread) => pool.threads.push(thread),
                Err(e) if pool.threads.is_empty() => {
                    let what = format!("cannot start a thread for reads and writes: {e}");
                    return Err(Error::new(ErrorKind::Busy, what)
                        .hint("raise the limit of threads (ulimit -u)"));
                }
                Err(_) => break, // fewer threads are enough
            }
        }
        Ok(Arc::new(pool))
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // `run` catches panics of files, so the thread does not panic.
            thread.join().ok();
        }
    }
}

/// The backend of a queue that uses a pool.
#[derive(Debug)]
pub(super) struct Workers {
    pool: Arc<Pool>,
    mailbox: Arc<Mailbox>,
    flying: usize,
}

impl Workers {
    pub(super) fn new(pool: &Arc<Pool>, event: Option<Arc<OwnedFd>>) -> Self {
        Self {
            pool: Arc::clone(pool),
            mailbox: Arc::new(Mailbox {
                done: ranked(locks::QUEUE, Vec::new()),
                came: Condvar::new(),
                event,
            }),
            flying: 0,
        }
    }
}

impl Backend for Workers {
    fn flying(&self) -> usize {
        self.flying
    }

    fn push(&mut self, request: Request) -> Result<()> {
        let work = (request, Arc::clone(&self.mailbox));
        self.pool.shared.lock().requests.push_back(work);
        self.pool.shared.work.notify_one();
        self.flying += 1;
        Ok(())
    }

    fn submit(&mut self) -> Result<()> {
        Ok(())
    }

    fn wait(&mut self, at_least: usize, out: &mut VecDeque<Done>) -> Result<()> {
        let at_least = at_least.min(self.flying);
        let mut done = self.mailbox.lock();
        while done.len() < at_least {
            let woken = self.mailbox.came.wait(done);
            done = woken.unwrap_or_else(PoisonError::into_inner);
        }
        self.flying -= done.len();
        out.extend(done.drain(..));
        Ok(())
    }
}

/// Waits for all requests in flight.
impl Drop for Workers {
    fn drop(&mut self) {
        let mut out = VecDeque::new();
        // Waiting on a condition does not fail.
        self.wait(self.flying, &mut out).ok();
    }
}
