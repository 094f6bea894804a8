//! The queue of writers: one leads at a time, and writes its own batch and those of its followers.
//!
//! A writer that finds no leader leads at once, without a wait and without an allocation. Other writers queue,
//! spin for a moment, and then sleep.
//!
//! In the queue whose groups wait for the device, a leader that is done wakes the first writer in the
//! queue as the next leader. The new leader carries the compatible batches that follow it in the queue.
//!
//! In the other queue, sleeping and being woken cost more than a write. That queue is *barging*: writers
//! that run go before writers that sleep. A leader carries only writers that are awake, and hands over to
//! one of them. If no writer is awake, the leader gives up the lead and tells the first sleeper to take it after
//! waking up, unless another writer was faster. After [`PASSING`] groups have passed the sleepers, the
//! first writer in the queue gets the lead and carries all the others.

use std::collections::VecDeque;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use base::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use base::sync::thread::{self, Thread};
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, Result};

use super::plan::{Patience, Plan};
use crate::batch::WriteBatch;
use crate::catalog::family::Epoch;
use crate::locks;

/// A batch to be written, and how.
pub(crate) struct Request {
    pub(crate) batch: WriteBatch,
    pub(crate) plan: Plan,
    /// The set of families that the batch was checked with.
    pub(crate) checked: Epoch,
}

/// The outcome of entering the queue.
pub(crate) enum Turn<'a> {
    /// The writer leads. No other writer leads until the [`Lead`] is given up.
    Lead(Request, Lead<'a>),
    /// A leader wrote the batch, or the writer was refused: the writer's request, and the last sequence number of
    /// its batch or the error.
    Done(Option<Request>, Result<u64>),
}

const WAITING: u32 = 0;
const LEAD: u32 = 1;
const INSERT: u32 = 2;
const DONE: u32 = 3;
/// There is no leader: take the lead, or wait on. Only followers that are still in the queue have this signal.
/// It is set and cleared under the queue's lock.
const TRY: u32 = 4;

/// A writer in the queue.
pub(crate) struct Follower {
    request: Mutex<Option<Request>>,
    outcome: Mutex<Option<Result<()>>>,
    task: Mutex<Option<Arc<Parallel>>>,
    signal: AtomicU32,
    /// The writer sleeps. Set under the queue's lock.
    asleep: AtomicBool,
    thread: Thread,
}

impl Follower {
    fn tell(&self, signal: u32) {
        self.signal.store(signal, Ordering::Release);
        self.thread.unpark();
    }

    /// Spins for a moment until the signal differs from `from`; `None` if it does not change in that time.
    fn spin(&self, from: u32) -> Option<u32> {
        for _ in 0..SPINS {
            let now = self.signal.load(Ordering::Acquire);
            if now != from {
                return Some(now);
            }
            base::sync::hint::spin_loop();
        }
        None
    }

    /// Waits until the signal differs from `from`.
    fn wait(&self, from: u32) -> u32 {
        if let Some(now) = self.spin(from) {
            return now;
        }
        loop {
            let now = self.signal.load(Ordering::Acquire);
            if now != from {
                return now;
            }
            thread::park();
        }
    }

    fn take_request(&self) -> Option<Request> {
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        request.take()
    }

    /// Runs `f` on the request; `None` if the follower has no request any more.
    pub(super) fn with_request<T>(&self, f: impl FnOnce(&mut Request) -> T) -> Option<T> {
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        request.as_mut().map(f)
    }

    /// Runs `f` on the batch; `None` if the follower has no batch any more.
    pub(crate) fn with_batch<T>(&self, f: impl FnOnce(&mut WriteBatch) -> T) -> Option<T> {
        self.with_request(|r| f(&mut r.batch))
    }

    /// [`Follower::with_batch`] for an `f` that may fail. Errors: also if there is no batch, because a
    /// write that was not done must not be acknowledged.
    pub(crate) fn try_batch<T>(&self, f: impl FnOnce(&mut WriteBatch) -> Result<T>) -> Result<T> {
        self.with_batch(f)
            .unwrap_or_else(|| Err(Error::broken("a writer in a group has no batch")))
    }

    /// Ends the follower's wait with a result.
    pub(crate) fn finish(&self, result: Result<()>) {
        *self.outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(result);
        self.tell(DONE);
    }
}

/// The writers that a leader carries. When it is dropped, those that have no result yet get an error.
pub(crate) struct Followers(Vec<Arc<Follower>>);

impl Followers {
    /// Removes the followers for which `stays` is false.
    pub(super) fn retain(&mut self, stays: impl FnMut(&Arc<Follower>) -> bool) {
        self.0.retain(stays);
    }

    /// Gives all of them the result.
    pub(super) fn finish(&mut self, result: &Result<()>) {
        for f in self.0.drain(..) {
            f.finish(result.clone());
        }
    }
}

impl Deref for Followers {
    type Target = [Arc<Follower>];

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl Drop for Followers {
    fn drop(&mut self) {
        if !self.0.is_empty() {
            self.finish(&Err(Error::aborted("the writer of the group panicked")));
        }
    }
}

/// Spins before a follower sleeps: a few hundred nanoseconds, less than a sleep costs.
const SPINS: u32 = match () {
    () if cfg!(loom) => 1,
    () if cfg!(shuttle) => 2,
    () => 100,
};

/// How many groups may pass a sleeping writer.
const PASSING: u32 = 64;

#[derive(Default)]
struct Waiting {
    followers: VecDeque<Arc<Follower>>,
    /// A follower was told to take the lead ([`TRY`]), and has not reacted yet.
    called: bool,
    /// Groups that have passed the sleeping writers.
    passed: u32,
    /// While the leader is held back: the error for writers that do not wait for it, and their highest patience.
    held: Option<(Error, Patience)>,
}

/// A bit of [`Queue::lead`]: there is a leader.
const LED: u32 = 1;
/// A bit of [`Queue::lead`]: a writer waits in the queue, or locks the queue to do so.
const QUEUED: u32 = 2;

/// A queue of writers.
pub(crate) struct Queue {
    /// [`LED`] and [`QUEUED`]. A writer that is alone takes the lead and gives it up without the lock of `waiting`.
    /// While a writer is queued, both bits change only under that lock.
    lead: AtomicU32,
    waiting: Mutex<Waiting>,
    /// Writers that run go before writers that sleep.
    barging: bool,
}

/// The lead of a queue. It is given up at the latest when this is dropped.
pub(crate) struct Lead<'a> {
    queue: Option<&'a Queue>,
}

impl Lead<'_> {
    /// Gives up the lead: the next writer in the queue leads.
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

impl<'a> Lead<'a> {
    /// Marks the leader as held back while the result lives. Meanwhile writers with at most this patience get
    /// the error instead of waiting, whether they are in the queue already or arrive.
    pub(crate) fn hold(&self, error: &Error, patience: Patience) -> Held<'a> {
        if let Some(queue) = self.queue {
            queue.hold(error, patience);
        }
        Held(self.queue)
    }
}

/// See [`Lead::hold`].
#[must_use = "it ends when it is dropped"]
pub(crate) struct Held<'a>(Option<&'a Queue>);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(queue) = self.0 {
            queue.lock().held = None;
        }
    }
}

/// A queue that is locked. When this is dropped, [`QUEUED`] is set or cleared to match the queue.
struct Locked<'a> {
    waiting: MutexGuard<'a, Waiting>,
    lead: &'a AtomicU32,
}

impl Locked<'_> {
    /// Takes the lead, if there is no leader. [`QUEUED`] must be set.
    fn take_lead(&self) -> bool {
        self.lead.fetch_or(LED, Ordering::AcqRel) & LED == 0
    }
}

impl Deref for Locked<'_> {
    type Target = Waiting;

    fn deref(&self) -> &Waiting {
        &self.waiting
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Waiting {
        &mut self.waiting
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let queued = !self.waiting.followers.is_empty();
        if queued == (self.lead.load(Ordering::Relaxed) & QUEUED != 0) {
            return;
        }
        if queued {
            self.lead.fetch_or(QUEUED, Ordering::AcqRel);
        } else {
            self.lead.fetch_and(!QUEUED, Ordering::AcqRel);
        }
    }
}

impl Queue {
    pub(crate) fn new(barging: bool) -> Self {
        Self {
            lead: AtomicU32::new(0),
            waiting: ranked(locks::QUEUE, Waiting::default()),
            barging,
        }
    }

    fn lock(&self) -> Locked<'_> {
        Locked {
            waiting: self.waiting.lock().unwrap_or_else(PoisonError::into_inner),
            lead: &self.lead,
        }
    }

    /// Waits for a signal; with `barging` also for a free lead.
    fn wait(&self, me: &Arc<Follower>) -> u32 {
        loop {
            if let Some(signal) = me.spin(WAITING)
                && signal != TRY
            {
                return signal;
            }
            let mut waiting = self.lock();
            match me.signal.load(Ordering::Acquire) {
                WAITING => {}
                TRY => {
                    let queued = waiting.followers.iter().any(|f| Arc::ptr_eq(f, me));
                    debug_assert!(queued, "whoever takes it out of the queue ends the TRY");
                    me.signal.store(WAITING, Ordering::Release);
                    waiting.called = false;
                }
                signal => return signal,
            }
            if self.barging {
                // If this follower is not in the queue any more, a leader carries it.
                let place = waiting.followers.iter().position(|f| Arc::ptr_eq(f, me));
                if let Some(at) = place
                    && waiting.take_lead()
                {
                    waiting.followers.remove(at);
                    return LEAD;
                }
            }
            me.asleep.store(true, Ordering::Release);
            drop(waiting);
            while me.signal.load(Ordering::Acquire) == WAITING {
                thread::park();
            }
            me.asleep.store(false, Ordering::Release);
        }
    }

    /// Waits for a turn. `insert` is called if a leader asks this thread to put its own batch into
    /// the memtables.
    pub(crate) fn enter(
        &self,
        request: Request,
        insert: impl Fn(&WriteBatch) -> Result<()>,
    ) -> Turn<'_> {
        let alone = self
            .lead
            .compare_exchange(0, LED, Ordering::AcqRel, Ordering::Relaxed);
        if alone.is_ok() {
            return Turn::Lead(request, self.lead());
        }
        let me = {
            let mut waiting = self.lock();
            // From here on no writer takes or gives up the lead without the lock.
            self.lead.fetch_or(QUEUED, Ordering::AcqRel);
            if waiting.take_lead() {
                return Turn::Lead(request, self.lead());
            }
            if let Some((e, patience)) = &waiting.held
                && request.plan.patience <= *patience
            {
                let e = e.clone();
                return Turn::Done(Some(request), Err(e));
            }
            let me = Arc::new(Follower {
                request: ranked(locks::WRITER, Some(request)),
                outcome: ranked(locks::WRITER, None),
                task: ranked(locks::WRITER, None),
                signal: AtomicU32::new(WAITING),
                asleep: AtomicBool::new(false),
                thread: thread::current(),
            });
            waiting.followers.push_back(Arc::clone(&me));
            me
        };
        let mut signal = self.wait(&me);
        if signal == INSERT {
            let mut share = Share::of(&me);
            share.result = me.try_batch(|b| insert(b));
            drop(share);
            signal = me.wait(INSERT);
        }
        if signal == LEAD {
            let lead = self.lead();
            let request = me.take_request();
            let request = request.expect("a new leader still has its batch");
            return Turn::Lead(request, lead);
        }
        let request = me.take_request();
        let last = request.as_ref().map_or(0, |r| r.batch.last_sequence());
        let mut outcome = me.outcome.lock().unwrap_or_else(PoisonError::into_inner);
        let outcome = outcome.take().expect("a finished follower has an outcome");
        Turn::Done(request, outcome.map(|()| last))
    }

    /// The followers whose batches the leader carries along: from the front of the queue, as long
    /// as they fit the plan and the group stays under `max_bytes`.
    pub(crate) fn followers(&self, lead: &Request, max_bytes: usize) -> Followers {
        // A writer that queues in this moment is in the next group.
        if self.lead.load(Ordering::Relaxed) & QUEUED == 0 {
            return Followers(Vec::new());
        }
        let mut waiting = self.lock();
        if waiting.followers.is_empty() {
            return Followers(Vec::new());
        }
        let mut group = Vec::new();
        let mut bytes = lead.batch.data().len();
        // A leader with a small batch does not wait for a large group. RocksDB's rule: an eighth of the
        // maximum on top.
        let limit = if bytes <= max_bytes / 8 {
            bytes + max_bytes / 8
        } else {
            max_bytes
        };
        waiting.passed += 1;
        let all = !self.barging || waiting.passed > PASSING;
        if all {
            waiting.passed = 0;
        }
        let mut at = 0;
        while let Some(next) = waiting.followers.get(at) {
            if !all && next.asleep.load(Ordering::Acquire) {
                at += 1;
                continue;
            }
            let request = next.request.lock().unwrap_or_else(PoisonError::into_inner);
            let Some(r) = request.as_ref() else { break };
            let size = r.batch.data().len();
            if !lead.plan.carries(&r.plan) || bytes + size > limit {
                break;
            }
            bytes += size;
            drop(request);
            if next.signal.load(Ordering::Acquire) == TRY {
                next.signal.store(WAITING, Ordering::Release);
                waiting.called = false;
            }
            group.extend(waiting.followers.remove(at));
        }
        Followers(group)
    }

    /// See [`Lead::hold`].
    #[cold]
    fn hold(&self, error: &Error, patience: Patience) {
        let mut waiting = self.lock();
        waiting.held = Some((error.clone(), patience));
        let mut refused = Vec::new();
        waiting.followers.retain(|f| {
            let goes = f.with_request(|r| r.plan.patience <= patience) == Some(true);
            if goes {
                refused.push(Arc::clone(f));
            }
            !goes
        });
        for follower in refused {
            if follower.signal.load(Ordering::Acquire) == TRY {
                waiting.called = false;
            }
            follower.finish(Err(error.clone()));
        }
    }

    /// The lead, which the caller has just taken.
    fn lead(&self) -> Lead<'_> {
        Lead { queue: Some(self) }
    }

    /// How many writers wait in the queue.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.lock().followers.len()
    }

    fn leave(&self) {
        let alone = self
            .lead
            .compare_exchange(LED, 0, Ordering::AcqRel, Ordering::Relaxed);
        if alone.is_ok() {
            return;
        }
        let mut waiting = self.lock();
        let next = if self.barging && waiting.passed < PASSING {
            let awake = |f: &Arc<Follower>| !f.asleep.load(Ordering::Acquire);
            waiting.followers.iter().position(awake)
        } else {
            Some(0)
        };
        if let Some(next) = next.and_then(|at| waiting.followers.remove(at)) {
            // Set under the queue's lock: a follower that handles a TRY at the same time would overwrite it.
            if next.signal.swap(LEAD, Ordering::AcqRel) == TRY {
                waiting.called = false;
            }
            drop(waiting);
            next.thread.unpark();
            return;
        }
        self.lead.fetch_and(!LED, Ordering::AcqRel);
        if let (false, Some(first)) = (waiting.called, waiting.followers.front()) {
            let first = Arc::clone(first);
            waiting.called = true;
            first.signal.store(TRY, Ordering::Release);
            drop(waiting);
            first.thread.unpark();
        }
    }
}

/// The batches that one leader writes: its own, and those of its followers.
pub(crate) struct Group {
    pub(crate) lead: Request,
    pub(crate) followers: Followers,
}

impl Group {
    /// Takes the followers that `check` refuses out of the group; they get its error.
    pub(crate) fn refuse(&mut self, check: impl Fn(&Request) -> Result<()>) {
        self.followers
            .retain(|f| match f.with_request(|r| check(r)) {
                Some(Err(e)) => {
                    f.finish(Err(e));
                    false
                }
                _ => true,
            });
    }

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
        for f in self.followers.iter() {
            f.with_batch(&mut number);
        }
    }

    /// Gives the followers the result.
    pub(crate) fn finish(&mut self, result: &Result<()>) {
        self.followers.finish(result);
    }
}

/// A group whose members insert their own batches into the memtables in parallel.
pub(crate) struct Parallel {
    left: AtomicUsize,
    leader: Thread,
    failure: Mutex<Option<Error>>,
}

impl Parallel {
    /// Asks every follower to insert its batch, which already has its sequence number. Runs `own` meanwhile, and
    /// waits for all followers. Returns the error of `own`, or else the first error of a follower.
    pub(crate) fn run(followers: &[Arc<Follower>], own: impl FnOnce() -> Result<()>) -> Result<()> {
        let group = Arc::new(Self {
            left: AtomicUsize::new(followers.len()),
            leader: thread::current(),
            failure: ranked(locks::LEAF, None),
        });
        for f in followers {
            *f.task.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&group));
            f.tell(INSERT);
        }
        let waiting = WaitForAll(&group);
        let own = own();
        drop(waiting);
        let theirs = group
            .failure
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        own.and(theirs.map_or(Ok(()), Err))
    }

    /// Called when a follower is done.
    fn report(&self, result: Result<()>) {
        if let Err(e) = result {
            self.failure
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .get_or_insert(e);
        }
        let left = self.left.fetch_sub(1, Ordering::AcqRel);
        base::invariant!(left > 0, "a follower reports twice");
        if left == 1 {
            self.leader.unpark();
        }
    }
}

/// Waits for the followers, also if the leader's own part panics.
struct WaitForAll<'a>(&'a Parallel);

impl Drop for WaitForAll<'_> {
    fn drop(&mut self) {
        while self.0.left.load(Ordering::Acquire) > 0 {
            thread::park();
        }
    }
}

/// A follower's share of a parallel insert: reported when it is dropped.
struct Share {
    group: Option<Arc<Parallel>>,
    result: Result<()>,
}

impl Share {
    fn of(follower: &Follower) -> Self {
        let mut task = follower.task.lock().unwrap_or_else(PoisonError::into_inner);
        Self {
            group: task.take(),
            result: Err(Error::aborted("a writer panicked while it inserted")),
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if let Some(group) = self.group.take() {
            group.report(std::mem::replace(&mut self.result, Ok(())));
        }
    }
}

#[cfg(test)]
#[path = "queue_tests.rs"]
mod tests;
