//! The threads that compress the blocks of new tables, for `compression_opts.parallel_threads`.
//!
//! A thread is started when all others are busy, up to a limit, and runs until the database closes. If there is no
//! thread at all, a job runs on the thread that submits it.

use std::collections::VecDeque;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use base::sync::thread::JoinHandle;
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError, ranked};
use base::threads::Threads;

use crate::locks;

type Job = Box<dyn FnOnce() + Send>;

/// A pool of threads.
pub(crate) struct CompressionPool {
    shared: Arc<Shared>,
    threads_max: usize,
    starter: Arc<dyn Threads>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    /// The number of threads that wait for a job.
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    closing: bool,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            state: ranked(locks::LEAF, State::default()),
            changed: Condvar::new(),
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The main loop of each thread.
    fn work(&self) {
        let mut state = self.lock();
        loop {
            if let Some(job) = state.jobs.pop_front() {
                drop(state);
                // After a panic the table finds that this job has no result.
                drop(catch_unwind(AssertUnwindSafe(job)));
                state = self.lock();
                continue;
            }
            if state.closing {
                return;
            }
            state.idle += 1;
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

impl CompressionPool {
    /// Creates a pool of at most `threads_max` threads. No thread runs yet.
    pub(crate) fn new(threads_max: usize, starter: Arc<dyn Threads>) -> Self {
        Self {
            shared: Arc::default(),
            threads_max,
            starter,
        }
    }

    /// Starts a thread if all running threads are busy. Returns false if there is no thread at all.
    fn grow(&self, state: &mut State) -> bool {
        if state.jobs.len() >= state.idle && state.threads.len() < self.threads_max {
            let shared = Arc::clone(&self.shared);
            let name = format!("ironstone:zip{}", state.threads.len());
            let thread = self.starter.start(&name, Box::new(move || shared.work()));
            state.threads.extend(thread);
        }
        !state.threads.is_empty()
    }
}

impl table::Compressors for CompressionPool {
    fn run(&self, job: Job) {
        let mut state = self.shared.lock();
        if state.closing || !self.grow(&mut state) {
            drop(state);
            return job();
        }
        state.jobs.push_back(job);
        self.shared.changed.notify_one();
    }

    fn end(&self) {
        let threads = {
            let mut state = self.shared.lock();
            state.closing = true;
            std::mem::take(&mut state.threads)
        };
        self.shared.changed.notify_all();
        for thread in threads {
            drop(thread.join());
        }
    }
}

impl Drop for CompressionPool {
    fn drop(&mut self) {
        table::Compressors::end(self);
    }
}

impl fmt::Debug for CompressionPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompressionPool")
            .field("threads_max", &self.threads_max)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use table::Compressors;

    use super::*;
    use base::threads::SystemThreads;

    #[test]
    fn every_job_runs_and_no_more_threads_than_allowed() {
        for max in [0, 1, 3] {
            let pool = CompressionPool::new(max, SystemThreads::shared());
            let done = Arc::new(AtomicUsize::new(0));
            let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
            for i in 0..200 {
                let (done, now, most) = (Arc::clone(&done), Arc::clone(&now), Arc::clone(&most));
                pool.run(Box::new(move || {
                    most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    base::sync::thread::yield_now();
                    now.fetch_sub(1, Ordering::SeqCst);
                    done.fetch_add(1, Ordering::SeqCst);
                    assert!(max == 0 || i % 50 != 7, "one that panics, on purpose");
                }));
            }
            drop(pool);
            assert_eq!(done.load(Ordering::SeqCst), 200);
            assert!(most.load(Ordering::SeqCst) <= max.max(1));
        }
    }
}
