//! A sequence number that only rises, and its waiters: threads, futures and callbacks.
//!
//! Raising it costs two atomic operations while there are no waiters. Wakers and callbacks are the application's
//! code, and the thread that raises the watermark may hold locks. So they are queued, and
//! [`Watermark::deliver`] calls them when no lock is held ([`crate::shared::courier`]).

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context, Poll, Waker};

use base::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, Result};

use crate::locks;
use options::hooks::listener;

/// A callback that is called once: after a sequence number was reached, or with the error that prevents that.
pub(crate) type Callback = Box<dyn FnOnce(Result<()>) + Send>;

/// See the module.
pub(crate) struct Watermark {
    reached: AtomicU64,
    /// Number of waiters of any kind. A waiter is counted before it looks at `reached` for the last time.
    waiting: AtomicUsize,
    /// Whether [`Watermark::deliver`] has work to do. Changes under the lock of `state`.
    undelivered: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

/// Waiters by the sequence number that they wait for, and a number of their own.
type Waiters<T> = BTreeMap<(u64, u64), T>;

/// Takes out the waiters that wait for `reached` or less.
fn take_through<T>(waiters: &mut Waiters<T>, reached: u64) -> Vec<T> {
    let mut taken = Vec::new();
    while let Some(first) = waiters.first_entry()
        && first.key().0 <= reached
    {
        taken.push(first.remove());
    }
    taken
}

/// Wakers and callbacks to be called for one event.
struct Told {
    wakers: Vec<Waker>,
    callbacks: Vec<Callback>,
    failure: Option<Error>,
}

impl Told {
    /// Calls the wakers and callbacks. Returns how many of them panicked.
    fn deliver(self) -> usize {
        fn panics(f: impl FnOnce()) -> usize {
            let run = || listener::telling(f);
            usize::from(catch_unwind(AssertUnwindSafe(run)).is_err())
        }
        let outcome = || self.failure.as_ref().map_or(Ok(()), |e| Err(e.clone()));
        let wakers = self.wakers.into_iter();
        let mut panicked: usize = wakers.map(|waker| panics(|| waker.wake())).sum();
        for callback in self.callbacks {
            panicked += panics(|| callback(outcome()));
        }
        panicked
    }
}

#[derive(Default)]
struct State {
    told: Vec<Told>,
    /// Of futures that were polled, by the number of the future.
    wakers: Waiters<Waker>,
    callbacks: Waiters<Callback>,
    /// The number of the last callback.
    calls: u64,
    /// If set, nothing above `reached` will be reached until this is cleared.
    failure: Option<Error>,
    /// Whether the failure ends when the watermark rises. If so, it counts as a waiter, so that a raise notices it.
    passing: bool,
}

impl Watermark {
    pub(crate) fn at(sequence: u64) -> Self {
        Self {
            reached: AtomicU64::new(sequence),
            waiting: AtomicUsize::new(0),
            undelivered: AtomicBool::new(false),
            state: ranked(locks::LEAF, State::default()),
            changed: Condvar::new(),
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises the watermark to `sequence`, if it is lower.
    pub(crate) fn raise(&self, sequence: u64) {
        if self.reached.fetch_max(sequence, Ordering::SeqCst) >= sequence {
            return;
        }
        if self.waiting.load(Ordering::SeqCst) > 0 {
            self.tell();
        }
    }

    #[cold]
    fn tell(&self) {
        let reached = self.get();
        let mut state = self.state();
        if state.passing {
            self.clear(&mut state);
        }
        let wakers = take_through(&mut state.wakers, reached);
        let callbacks = take_through(&mut state.callbacks, reached);
        self.put_aside(&mut state, wakers, callbacks, None);
        drop(state);
        self.changed.notify_all();
    }

    fn put_aside(
        &self,
        state: &mut State,
        wakers: Vec<Waker>,
        callbacks: Vec<Callback>,
        failure: Option<Error>,
    ) {
        let count = wakers.len() + callbacks.len();
        if count == 0 {
            return;
        }
        self.no_more(count);
        state.told.push(Told {
            wakers,
            callbacks,
            failure,
        });
        self.undelivered.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn has_undelivered(&self) -> bool {
        self.undelivered.load(Ordering::Acquire)
    }

    /// Calls the queued wakers and callbacks. No lock may be held. Returns how many of them panicked.
    #[inline]
    pub(crate) fn deliver(&self) -> usize {
        if !self.has_undelivered() {
            return 0;
        }
        let mut state = self.state();
        self.undelivered.store(false, Ordering::Release);
        let told = std::mem::take(&mut state.told);
        drop(state);
        told.into_iter().map(Told::deliver).sum()
    }

    /// Fails all waiters: they get `error`, and so do later waiters until [`Watermark::resume`].
    pub(crate) fn fail(&self, error: &Error) {
        let mut state = self.state();
        if state.passing {
            self.clear(&mut state);
        }
        self.fail_all(state, error);
    }

    /// [`Watermark::fail`], but only until the watermark rises.
    pub(crate) fn fail_for_now(&self, error: &Error) {
        let mut state = self.state();
        if state.failure.is_none() {
            state.passing = true;
            self.waiting.fetch_add(1, Ordering::SeqCst);
        }
        self.fail_all(state, error);
    }

    fn fail_all(&self, mut state: MutexGuard<'_, State>, error: &Error) {
        state.failure.get_or_insert_with(|| error.clone());
        let wakers = take_through(&mut state.wakers, u64::MAX);
        let callbacks = take_through(&mut state.callbacks, u64::MAX);
        self.put_aside(&mut state, wakers, callbacks, Some(error.clone()));
        drop(state);
        self.changed.notify_all();
    }

    /// Clears the failure.
    pub(crate) fn resume(&self) {
        self.clear(&mut self.state());
    }

    fn clear(&self, state: &mut State) {
        state.failure = None;
        if std::mem::take(&mut state.passing) {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// `Ok` if `sequence` is reached, the failure if there is one; `None` if the waiter must wait.
    fn outcome(&self, state: &State, sequence: u64) -> Option<Result<()>> {
        if self.reached.load(Ordering::SeqCst) >= sequence {
            return Some(Ok(()));
        }
        state.failure.as_ref().map(|e| Err(e.clone()))
    }

    /// Waits until the watermark is at least `sequence`. Errors: the failure.
    pub(crate) fn wait(&self, sequence: u64) -> Result<()> {
        if self.get() >= sequence {
            return Ok(());
        }
        let mut state = self.state();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let outcome = loop {
            if let Some(outcome) = self.outcome(&state, sequence) {
                break outcome;
            }
            state = self
                .changed
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
        };
        drop(state);
        self.no_more(1);
        outcome
    }

    /// Subtracts `count` waiters.
    fn no_more(&self, count: usize) {
        let before = self.waiting.fetch_sub(count, Ordering::SeqCst);
        base::invariant!(before >= count, "{count} wait no more, of {before}");
    }

    /// [`Watermark::wait`] for a future. `future` is the number of the future. It is woken with the waker
    /// that it was polled with last.
    pub(crate) fn poll(&self, sequence: u64, future: u64, cx: &Context<'_>) -> Poll<Result<()>> {
        if self.get() >= sequence {
            return Poll::Ready(Ok(()));
        }
        // Cloning and dropping a waker runs the application's code: not under the lock.
        let waker = cx.waker().clone();
        let mut state = self.state();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if let Some(outcome) = self.outcome(&state, sequence) {
            self.no_more(1);
            drop(state);
            return Poll::Ready(outcome);
        }
        let before = state.wakers.insert((sequence, future), waker);
        if before.is_some() {
            self.no_more(1);
        }
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// Calls `callback` when the watermark is at least `sequence`: at once if it is already, otherwise on a thread
    /// that calls [`Watermark::deliver`].
    pub(crate) fn call(&self, sequence: u64, callback: Callback) {
        let mut state = self.state();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if let Some(outcome) = self.outcome(&state, sequence) {
            self.no_more(1);
            drop(state);
            callback(outcome);
            return;
        }
        state.calls += 1;
        let number = state.calls;
        state.callbacks.insert((sequence, number), callback);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, mpsc};

    use super::*;

    #[test]
    fn threads_futures_and_callbacks_are_told() {
        let mark = Arc::new(Watermark::at(5));
        mark.wait(5).unwrap();
        let (tx, rx) = mpsc::channel();
        let told = tx.clone();
        mark.call(
            7,
            Box::new(move |r| told.send(("call", r.is_ok())).unwrap()),
        );
        let cx = Context::from_waker(Waker::noop());
        assert!(mark.poll(6, 1, &cx).is_pending() && mark.poll(6, 1, &cx).is_pending());
        assert_eq!(mark.state().wakers.len(), 1, "a future has one waker");
        let waiter = Arc::clone(&mark);
        let thread = base::sync::thread::Builder::new()
            .spawn(move || tx.send(("wait", waiter.wait(7).is_ok())).unwrap())
            .unwrap();
        mark.raise(6);
        assert!(mark.poll(6, 1, &cx).is_ready());
        assert!(rx.try_recv().is_err());
        mark.raise(8);
        assert!(rx.try_iter().all(|(who, _)| who == "wait"), "not yet");
        assert_eq!(mark.deliver(), 0);
        thread.join().unwrap();
        assert!(rx.iter().any(|got| got == ("call", true)));
        assert_eq!(mark.waiting.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_failure_reaches_all_who_wait_and_those_who_come_later() {
        let mark = Watermark::at(1);
        let (tx, rx) = mpsc::channel();
        mark.call(2, Box::new(move |r| tx.send(r.is_err()).unwrap()));
        mark.fail(&Error::aborted("no device"));
        assert_eq!(mark.deliver(), 0);
        assert!(rx.recv().unwrap());
        assert!(mark.wait(2).is_err() && mark.wait(1).is_ok());
        mark.resume();
        mark.raise(2);
        mark.wait(2).unwrap();
    }

    #[test]
    fn a_failure_that_passes_ends_when_something_more_is_reached() {
        let mark = Watermark::at(1);
        mark.fail_for_now(&Error::aborted("no space"));
        assert!(mark.wait(2).is_err() && mark.wait(3).is_err());
        mark.fail_for_now(&Error::aborted("still none"));
        mark.raise(2);
        let (tx, rx) = mpsc::channel();
        mark.call(3, Box::new(move |r| tx.send(r.is_ok()).unwrap()));
        mark.raise(3);
        assert_eq!(mark.deliver(), 0);
        assert!(rx.recv().unwrap());
        mark.fail_for_now(&Error::aborted("no space"));
        mark.fail(&Error::aborted("no device"));
        mark.raise(4);
        assert!(mark.wait(5).is_err());
        mark.resume();
        assert_eq!(mark.waiting.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_callback_that_panics_takes_nobody_along() {
        let mark = Watermark::at(0);
        let (tx, rx) = mpsc::channel();
        mark.call(1, Box::new(|_| panic!("a callback of the application")));
        mark.call(1, Box::new(move |r| tx.send(r.is_ok()).unwrap()));
        mark.raise(1);
        assert_eq!((mark.deliver(), mark.deliver()), (1, 0));
        assert!(rx.recv().unwrap());
        assert_eq!(mark.waiting.load(Ordering::SeqCst), 0);
    }
}
