//! A queue on threads, for a kernel without io_uring.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use base::sync::thread::JoinHandle;
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError, ranked};
use base::threads::Threads;
use base::{Error, ErrorKind, Result};

use super::{Done, Request, run, signal};

use crate::locks;

/// Maximum number of threads: more of them would not keep a device busier.
const THREADS_MAX: u32 = 64;

#[derive(Debug)]
pub(super) struct Workers {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    work: Condvar,
    done: Condvar,
    event: Arc<OwnedFd>,
}

#[derive(Debug, Default)]
struct State {
    todo: VecDeque<Request>,
    done: Vec<Done>,
    /// Number of requests that threads are executing.
    running: usize,
    closed: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The body of a thread: executes requests until the queue is closed and empty.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            let Some(request) = state.todo.pop_front() else {
                if state.closed {
                    return;
                }
                state = self
                    .work
                    .wait(state)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            state.running += 1;
            drop(state);
            let done = run(request);
            state = self.lock();
            state.running -= 1;
            state.done.push(done);
            self.done.notify_one();
            // Cannot fail except for a full counter, which `signal` accepts; `wait` uses the condition.
            signal(&self.event).ok();
        }
    }
}

impl Workers {
    /// Errors: not one thread could be started.
    pub(super) fn start(depth: u32, threads: &dyn Threads, event: &Arc<OwnedFd>) -> Result<Self> {
        let shared = Arc::new(Shared {
            state: ranked(locks::QUEUE, State::default()),
            work: Condvar::new(),
            done: Condvar::new(),
            event: Arc::clone(event),
        });
        let mut workers = Self {
            shared,
            threads: Vec::new(),
        };
        for n in 0..depth.min(THREADS_MAX) {
            let shared = Arc::clone(&workers.shared);
            let run = Box::new(move || shared.work());
            match threads.start(&format!("ironstone:io{n}"), run) {
                Ok(thread) => workers.threads.push(thread),
                Err(e) if workers.threads.is_empty() => {
                    let what = format!("cannot start a thread for reads and writes: {e}");
                    return Err(Error::new(ErrorKind::Busy, what)
                        .hint("raise the limit of threads (ulimit -u)"));
                }
                Err(_) => break, // fewer threads are enough
            }
        }
        Ok(workers)
    }

    pub(super) fn flying(&self) -> usize {
        let state = self.shared.lock();
        state.todo.len() + state.running + state.done.len()
    }

    pub(super) fn push(&self, request: Request) {
        self.shared.lock().todo.push_back(request);
        self.shared.work.notify_one();
    }

    pub(super) fn wait(&self, at_least: usize, out: &mut VecDeque<Done>) {
        let mut state = self.shared.lock();
        while state.done.len() < at_least && state.todo.len() + state.running > 0 {
            let woken = self.shared.done.wait(state);
            state = woken.unwrap_or_else(PoisonError::into_inner);
        }
        out.extend(state.done.drain(..));
    }
}

/// Completes all requests in flight first.
impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.lock().closed = true;
        self.shared.work.notify_all();
        for thread in self.threads.drain(..) {
            // `run` catches panics of files, so the thread does not panic.
            thread.join().ok();
        }
    }
}
