//! Group commit: one leader at a time writes its own batch and those of its followers.
//!
//! A writer that finds no leader leads at once, without a wait and without an allocation. Others queue,
//! spin for a moment, and then sleep.
//!
//! In the queue whose groups wait for the device, a leader that is done wakes the first writer in the
//! queue as the next leader. The new leader carries the compatible batches that wait behind it.
//!
//! In the other queue, sleeping and being woken cost more than a write. That queue is *barging*: writers
//! that run go before writers that sleep. A leader carries only writers that are awake, and hands over to
//! one of them. If there are none, it gives up the lead and tells the first sleeper to take it after
//! waking up, unless another writer was faster. After [`PASSING`] groups have passed the sleepers, the
//! first sleeper gets the lead and carries all the others.

use std::collections::VecDeque;
use std::sync::Arc;

use base::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use base::sync::thread::{self, Thread};
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, Result};

use super::plan::{Patience, Plan};
use crate::batch::WriteBatch;
use crate::catalog::family::Epoch;
use crate::locks;

/// What a writer brings.
pub(crate) struct Request {
    pub(crate) batch: WriteBatch,
    pub(crate) plan: Plan,
    /// Which set of families the batch was checked with.
    pub(crate) checked: Epoch,
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
/// Nobody leads: take the lead, or wait on. Only followers that are still in the queue have this signal.
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

    /// Spins for a moment until the signal differs from `from`; `None` if it does not.
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

    /// Runs `f` on the request; `None` if the follower has none any more.
    fn with_request<T>(&self, f: impl FnOnce(&mut Request) -> T) -> Option<T> {
        let mut request = self.request.lock().unwrap_or_else(PoisonError::into_inner);
        request.as_mut().map(f)
    }

    /// Runs `f` on the batch; `None` if the follower has none any more.
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
    led: bool,
    followers: VecDeque<Arc<Follower>>,
    /// A follower was told to take the lead ([`TRY`]), and has not reacted yet.
    called: bool,
    /// Groups that have passed the sleeping writers.
    passed: u32,
    /// If the leader is held back: why, and the highest patience of writers that do not wait for it.
    held: Option<(Error, Patience)>,
}

/// A queue of writers.
pub(crate) struct Queue {
    waiting: Mutex<Waiting>,
    /// Writers that run go before writers that sleep.
    barging: bool,
}

/// The lead of a queue: given up when it is dropped, if not before.
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
    /// The leader is held back while the result lives. Meanwhile writers with at most this patience get
    /// the error instead of waiting: those in the queue, and those that arrive.
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

impl Queue {
    pub(crate) fn new(barging: bool) -> Self {
        Self {
            waiting: ranked(locks::QUEUE, Waiting::default()),
            barging,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
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
            if self.barging && !waiting.led {
                // If it is not in the queue any more, a leader carries it.
                let place = waiting.followers.iter().position(|f| Arc::ptr_eq(f, me));
                if let Some(at) = place {
                    waiting.followers.remove(at);
                    waiting.led = true;
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
    ) -> Turn {
        let me = {
            let mut waiting = self.lock();
            if !waiting.led {
                waiting.led = true;
                return Turn::Lead(request);
            }
            if let Some((e, patience)) = &waiting.held
                && request.plan.patience <= *patience
            {
                return Turn::Done(Err(e.clone()));
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
        let mut waiting = self.lock();
        if waiting.followers.is_empty() {
            return Vec::new();
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
        group
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

    /// The lead, for a caller of [`Queue::enter`] that got [`Turn::Lead`].
    pub(crate) fn lead(&self) -> Lead<'_> {
        Lead { queue: Some(self) }
    }

    /// How many writers wait behind the leader.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.lock().followers.len()
    }

    fn leave(&self) {
        let mut waiting = self.lock();
        let next = if self.barging && waiting.passed < PASSING {
            let awake = |f: &Arc<Follower>| !f.asleep.load(Ordering::Acquire);
            waiting.followers.iter().position(awake)
        } else {
            Some(0)
        };
        if let Some(next) = next.and_then(|at| waiting.followers.remove(at)) {
            // Under the queue's lock: a follower that handles a TRY just now would overwrite the signal.
            if next.signal.swap(LEAD, Ordering::AcqRel) == TRY {
                waiting.called = false;
            }
            drop(waiting);
            next.thread.unpark();
            return;
        }
        waiting.led = false;
        if let (false, Some(first)) = (waiting.called, waiting.followers.front()) {
            let first = Arc::clone(first);
            waiting.called = true;
            first.signal.store(TRY, Ordering::Release);
            drop(waiting);
            first.thread.unpark();
        }
    }
}

/// What one leader writes: its own batch, and those that it carries. When it is dropped, followers that
/// have no result yet get an error.
pub(crate) struct Group {
    pub(crate) lead: Request,
    pub(crate) followers: Vec<Arc<Follower>>,
}

impl Drop for Group {
    fn drop(&mut self) {
        if !self.followers.is_empty() {
            self.finish(&Err(Error::aborted("the writer of the group panicked")));
        }
    }
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
        for f in &self.followers {
            f.with_batch(&mut number);
        }
    }

    /// Gives the followers the result.
    pub(crate) fn finish(&mut self, result: &Result<()>) {
        for f in self.followers.drain(..) {
            f.finish(result.clone());
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

    /// A follower is done.
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
mod tests {
    use super::*;
    use crate::options::WriteOptions;
    use std::sync::atomic::{AtomicBool, AtomicU64};

    fn request(n: u64) -> Request {
        let mut batch = WriteBatch::new();
        batch.put(n.to_be_bytes(), b"v").unwrap();
        let plan = Plan::new(&WriteOptions::default(), false);
        Request {
            batch,
            plan,
            checked: Epoch::default(),
        }
    }

    /// Writes as the pipeline does, and returns how often this thread led.
    fn write(queue: &Queue, led: &AtomicBool, written: &AtomicU64, hand_over_early: bool) -> u64 {
        match queue.enter(request(1), |_| Ok(())) {
            Turn::Done(result) => {
                result.unwrap();
                0
            }
            Turn::Lead(lead) => {
                let mut guard = queue.lead();
                assert!(!led.swap(true, Ordering::SeqCst), "two lead at once");
                let followers = queue.followers(&lead, 1 << 20);
                let mut group = Group { lead, followers };
                written.fetch_add(group.count(), Ordering::SeqCst);
                led.store(false, Ordering::SeqCst);
                if hand_over_early {
                    guard.hand_over();
                    thread::yield_now();
                }
                drop(guard);
                group.finish(&Ok(()));
                1
            }
        }
    }

    #[test]
    fn one_leads_and_everybody_is_served_whether_awake_or_asleep() {
        for (barging, early) in [(false, false), (false, true), (true, false), (true, true)] {
            let (queue, led) = (Queue::new(barging), AtomicBool::new(false));
            let (written, leads) = (AtomicU64::new(0), AtomicU64::new(0));
            let (threads, each) = (6, 3000);
            thread::scope(|s| {
                for _ in 0..threads {
                    s.spawn(|| {
                        for _ in 0..each {
                            let n = write(&queue, &led, &written, early);
                            leads.fetch_add(n, Ordering::SeqCst);
                        }
                    });
                }
            });
            assert_eq!(written.into_inner(), threads * each);
            assert!(leads.into_inner() <= threads * each);
            let waiting = queue.lock();
            assert!(!waiting.led && waiting.followers.is_empty());
        }
    }

    /// More threads than processors, and enough writes that every step is interrupted somewhere.
    #[test]
    fn nobody_is_forgotten_in_a_crowd() {
        let (queue, led) = (Queue::new(true), AtomicBool::new(false));
        let written = AtomicU64::new(0);
        let (threads, each) = (8, 60_000);
        thread::scope(|s| {
            for _ in 0..threads {
                s.spawn(|| {
                    for i in 0..each {
                        write(&queue, &led, &written, i % 64 == 0);
                        // About as long as a request takes: the thread is neither always nor never alone.
                        for _ in 0..i % 128 {
                            base::sync::hint::spin_loop();
                        }
                    }
                });
            }
        });
        assert_eq!(written.into_inner(), threads * each);
    }

    #[test]
    fn a_sleeper_is_passed_only_so_often() {
        let (queue, led) = (Queue::new(true), AtomicBool::new(false));
        let written = AtomicU64::new(0);
        let served = AtomicBool::new(false);
        thread::scope(|s| {
            let Turn::Lead(mine) = queue.enter(request(1), |_| Ok(())) else {
                panic!("nobody led")
            };
            let mut lead = queue.lead();
            s.spawn(|| {
                write(&queue, &led, &written, false);
                served.store(true, Ordering::SeqCst);
            });
            while !queue
                .lock()
                .followers
                .iter()
                .any(|f| f.asleep.load(Ordering::SeqCst))
            {
                thread::yield_now();
            }
            // This thread leads again and again, before the sleeper has woken.
            let mut passed = 0;
            loop {
                if let Some(carried) = queue.followers(&mine, 1 << 20).first() {
                    carried.finish(Ok(()));
                    break;
                }
                passed += 1;
                assert!(passed <= PASSING, "a sleeper is passed over and over");
            }
            assert!(passed >= PASSING / 2, "{passed}");
            lead.hand_over();
            drop(mine);
            while !served.load(Ordering::SeqCst) {
                thread::yield_now();
            }
        });
    }
}
