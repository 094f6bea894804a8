//! Who writes: one leader at a time, and the followers whose batches it carries.
//!
//! A writer that finds nobody writing leads at once, without a wait and without an allocation.
//! Others queue. When a leader is done it wakes the first in the queue as the next leader, and
//! that one takes along whatever compatible batches wait behind it. No thread ever waits for one
//! that is asleep for another reason than the device.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, Thread};

use base::{Error, Result};

use super::plan::Plan;
use crate::batch::WriteBatch;

/// What a writer brings.
pub(crate) struct Request {
    pub(crate) batch: WriteBatch,
    pub(crate) plan: Plan,
}

/// What a writer that entered the queue has to do.
pub(crate) enum Turn {
    /// Lead: nobody else does until the [`Lead`] is given up.
    Lead(Request),
    /// Nothing: a leader did it all. The last sequence number of the batch.
    Done(Result<u64>),
}

const WAITING: u32 = 0;
const LEAD: u32 = 1;
const INSERT: u32 = 2;
const DONE: u32 = 3;

/// A writer in the queue.
pub(crate) struct Follower {
    request: Mutex<Option<Request>>,
    outcome: Mutex<Option<Result<()>>>,
    task: Mutex<Option<Arc<Parallel>>>,
    signal: AtomicU32,
    thread: Thread,
}

impl Follower {
    fn tell(&self, signal: u32) {
        self.signal.store(signal, Ordering::Release);
        self.thread.unpark();
    }

    /// Waits until the signal is another than `from`.
    fn wait(&self, from: u32) -> u32 {
        for _ in 0..SPINS {
            let now = self.signal.load(Ordering::Acquire);
            if now != from {
                return now;
            }
            std::hint::spin_loop();
        }
        loop {
            let now = self.signal.load(Ordering::Acquire);
            if now != from {
                return now;
            }
            thread::park();
        }
    }

    /// Runs `f` on the batch; `None` if the follower has no batch any more.
    pub(crate) fn with_batch<T>(&self, f: impl FnOnce(&mut WriteBatch) -> T) -> Option<T> {
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        request.as_mut().map(|r| f(&mut r.batch))
    }

    /// Ends the follower's wait with a result.
    pub(crate) fn finish(&self, result: Result<()>) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.tell(DONE);
    }
}

/// Spins before a follower sleeps: a few hundred nanoseconds, less than a sleep costs.
const SPINS: u32 = 100;

#[derive(Default)]
struct Waiting {
    led: bool,
    followers: VecDeque<Arc<Follower>>,
}

/// A queue of writers.
#[derive(Default)]
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
}

/// The lead of a queue: given up when it is dropped, if not before.
pub(crate) struct Lead<'a> {
    queue: Option<&'a Queue>,
}

impl Lead<'_> {
    /// The next in the queue leads.
    pub(crate) fn hand_over(&mut self) {
        if let Some(queue) = self.queue.take() {
            queue.leave();
        }
    }
}

impl Drop for Lead<'_> {
    fn drop(&mut self) {
        self.hand_over();
    }
}

impl Queue {
    /// Waits for a turn. `insert` is called if a leader asks this thread to put its own batch into
    /// the memtables.
    pub(crate) fn enter(
        &self,
        request: Request,
        insert: impl Fn(&WriteBatch) -> Result<()>,
    ) -> Turn {
        let me = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if !waiting.led {
                waiting.led = true;
                return Turn::Lead(request);
            }
            let me = Arc::new(Follower {
                request: Mutex::new(Some(request)),
                outcome: Mutex::new(None),
                task: Mutex::new(None),
                signal: AtomicU32::new(WAITING),
                thread: thread::current(),
            });
            waiting.followers.push_back(Arc::clone(&me));
            me
        };
        let mut signal = me.wait(WAITING);
        if signal == INSERT {
            let result = me.with_batch(|b| insert(b)).unwrap_or(Ok(()));
            let task = me
                .task
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take();
            if let Some(group) = task {
                group.report(result);
            }
            signal = me.wait(INSERT);
        }
        if signal == LEAD {
            let mut request = me.request.lock().unwrap_or_else(PoisonError::into_inner);
            return Turn::Lead(request.take().expect("a new leader still has its batch"));
        }
        let last = me.with_batch(|b| b.last_sequence()).unwrap_or(0);
        let mut outcome = me.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = outcome.take().expect("a finished follower has an outcome");
        Turn::Done(outcome.map(|()| last))
    }

    /// The followers whose batches the leader carries along: from the front of the queue, as long
    /// as they fit the plan and the group stays under `max_bytes`.
    pub(crate) fn followers(&self, lead: &Request, max_bytes: usize) -> Vec<Arc<Follower>> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let mut group = Vec::new();
        let mut bytes = lead.batch.data().len();
        // A small leader does not wait for a large group: RocksDB's rule, an eighth on top.
        let limit = if bytes <= max_bytes / 8 {
            bytes + max_bytes / 8
        } else {
            max_bytes
        };
        while let Some(next) = waiting.followers.front() {
            let request = next.request.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(r) = request.as_ref() else { break };
            let size = r.batch.data().len();
            if !lead.plan.carries(&r.plan) || bytes + size > limit {
                break;
            }
            bytes += size;
            drop(request);
            group.extend(waiting.followers.pop_front());
        }
        group
    }

    /// What the caller of [`Queue::enter`] that got [`Turn::Lead`] has.
    pub(crate) fn lead(&self) -> Lead<'_> {
        Lead { queue: Some(self) }
    }

    fn leave(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        match waiting.followers.pop_front() {
            Some(next) => next.tell(LEAD),
            None => waiting.led = false,
        }
    }
}

/// What one leader writes: its own batch, and those that it carries.
pub(crate) struct Group {
    pub(crate) lead: Request,
    pub(crate) followers: Vec<Arc<Follower>>,
}

impl Group {
    /// Bytes of all batches.
    pub(crate) fn bytes(&self) -> u64 {
        let size = |f: &Arc<Follower>| f.with_batch(|b| b.data().len() as u64).unwrap_or(0);
        self.lead.batch.data().len() as u64 + self.followers.iter().map(size).sum::<u64>()
    }

    /// Counted records of all batches.
    pub(crate) fn count(&self) -> u64 {
        let count = |f: &Arc<Follower>| f.with_batch(|b| u64::from(b.count())).unwrap_or(0);
        u64::from(self.lead.batch.count()) + self.followers.iter().map(count).sum::<u64>()
    }

    /// Gives the batches consecutive sequence numbers.
    pub(crate) fn number(&mut self, first: u64) {
        let mut next = first;
        let mut number = |batch: &mut WriteBatch| {
            batch.set_sequence(next);
            next += u64::from(batch.count());
        };
        number(&mut self.lead.batch);
        for f in &self.followers {
            f.with_batch(&mut number);
        }
    }

    /// Tells the followers how it went.
    pub(crate) fn finish(&self, result: &Result<()>) {
        for f in &self.followers {
            f.finish(result.as_ref().copied().map_err(Error::duplicate));
        }
    }
}

/// A group whose members put their own batches into the memtables at the same time.
pub(crate) struct Parallel {
    left: AtomicUsize,
    leader: Thread,
    failure: Mutex<Option<Error>>,
}

impl Parallel {
    /// Asks every follower to insert its batch, which already carries its sequence number, runs
    /// `own` meanwhile, and waits for all. The first error is the group's.
    pub(crate) fn run(followers: &[Arc<Follower>], own: impl FnOnce() -> Result<()>) -> Result<()> {
        let group = Arc::new(Self {
            left: AtomicUsize::new(followers.len()),
            leader: thread::current(),
            failure: Mutex::new(None),
        });
        for f in followers {
            *f.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&group));
            f.tell(INSERT);
        }
        let own = own();
        while group.left.load(Ordering::Acquire) > 0 {
            thread::park();
        }
        let theirs = group
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        own.and(theirs.map_or(Ok(()), Err))
    }

    /// A follower is done.
    fn report(&self, result: Result<()>) {
        if let Err(e) = result {
            self.failure
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(e);
        }
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.leader.unpark();
        }
    }
}
