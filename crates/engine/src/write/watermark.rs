//! A sequence number that only rises, and those who wait for it: threads, futures and callbacks.
//!
//! Raising it costs one atomic operation while nobody waits.

use std::task::{Context, Poll, Waker};

use base::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use base::{Error, Result};

/// A callback that is told once that a sequence number was reached, or why it will not be.
pub(crate) type Callback = Box<dyn FnOnce(Result<()>) + Send>;

/// See the module.
#[derive(Default)]
pub(crate) struct Watermark {
    reached: AtomicU64,
    /// Waiters of any kind; raised before they look at `reached` a last time.
    waiting: AtomicUsize,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    wakers: Vec<(u64, Waker)>,
    callbacks: Vec<(u64, Callback)>,
    /// Nothing above `reached` will be reached until it is cleared.
    failure: Option<Error>,
}

impl Watermark {
    pub(crate) fn at(sequence: u64) -> Self {
        Self {
            reached: AtomicU64::new(sequence),
            ..Self::default()
        }
    }

    pub(crate) fn get(&self) -> u64 {
        self.reached.load(Ordering::Acquire)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises it to `sequence`, if it is lower.
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
        let wakers: Vec<_> = state
            .wakers
            .extract_if(.., |(seq, _)| *seq <= reached)
            .collect();
        let callbacks: Vec<_> = state
            .callbacks
            .extract_if(.., |(seq, _)| *seq <= reached)
            .collect();
        drop(state);
        self.changed.notify_all();
        self.finish(wakers, callbacks, &|| Ok(()));
    }

    fn finish(
        &self,
        wakers: Vec<(u64, Waker)>,
        callbacks: Vec<(u64, Callback)>,
        outcome: &dyn Fn() -> Result<()>,
    ) {
        self.waiting
            .fetch_sub(wakers.len() + callbacks.len(), Ordering::SeqCst);
        for (_, waker) in wakers {
            waker.wake();
        }
        for (_, callback) in callbacks {
            callback(outcome());
        }
    }

    /// Nothing more is reached: everybody who waits gets `error`, and so does who comes later.
    pub(crate) fn fail(&self, error: &Error) {
        let mut state = self.state();
        state.failure.get_or_insert_with(|| error.duplicate());
        let wakers = std::mem::take(&mut state.wakers);
        let callbacks = std::mem::take(&mut state.callbacks);
        drop(state);
        self.changed.notify_all();
        self.finish(wakers, callbacks, &|| Err(error.duplicate()));
    }

    /// What failed works again.
    pub(crate) fn resume(&self) {
        self.state().failure = None;
    }

    /// Whether `sequence` is reached, or why it will not be.
    fn outcome(&self, state: &State, sequence: u64) -> Option<Result<()>> {
        if self.reached.load(Ordering::SeqCst) >= sequence {
            return Some(Ok(()));
        }
        state.failure.as_ref().map(|e| Err(e.duplicate()))
    }

    /// Waits until it is at least `sequence`.
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
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        outcome
    }

    /// The same for a future.
    pub(crate) fn poll(&self, sequence: u64, cx: &Context<'_>) -> Poll<Result<()>> {
        if self.get() >= sequence {
            return Poll::Ready(Ok(()));
        }
        let mut state = self.state();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if let Some(outcome) = self.outcome(&state, sequence) {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            return Poll::Ready(outcome);
        }
        // A future that is polled again replaces its waker.
        let again = state
            .wakers
            .iter_mut()
            .find(|(seq, w)| *seq == sequence && w.will_wake(cx.waker()));
        if again.is_some() {
            self.waiting.fetch_sub(1, Ordering::SeqCst);
        } else {
            state.wakers.push((sequence, cx.waker().clone()));
        }
        Poll::Pending
    }

    /// Calls `callback` once it is at least `sequence`, from the thread that raises it; at once if
    /// it is already.
    pub(crate) fn call(&self, sequence: u64, callback: Callback) {
        let mut state = self.state();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        if let Some(outcome) = self.outcome(&state, sequence) {
            drop(state);
            self.waiting.fetch_sub(1, Ordering::SeqCst);
            callback(outcome);
            return;
        }
        state.callbacks.push((sequence, callback));
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
        assert!(mark.poll(6, &cx).is_pending() && mark.poll(6, &cx).is_pending());
        let waiter = Arc::clone(&mark);
        let thread = base::sync::thread::Builder::new()
            .spawn(move || tx.send(("wait", waiter.wait(7).is_ok())).unwrap())
            .unwrap();
        mark.raise(6);
        assert!(mark.poll(6, &cx).is_ready());
        assert!(rx.try_recv().is_err());
        mark.raise(8);
        thread.join().unwrap();
        let mut got: Vec<_> = rx.iter().take(2).collect();
        got.sort_unstable();
        assert_eq!(got, [("call", true), ("wait", true)]);
        assert_eq!(mark.waiting.load(Ordering::SeqCst), 0);
    }

    #[test]
    fn a_failure_reaches_all_who_wait_and_those_who_come_later() {
        let mark = Watermark::at(1);
        let (tx, rx) = mpsc::channel();
        mark.call(2, Box::new(move |r| tx.send(r.is_err()).unwrap()));
        mark.fail(&Error::aborted("no device"));
        assert!(rx.recv().unwrap());
        assert!(mark.wait(2).is_err() && mark.wait(1).is_ok());
        mark.resume();
        mark.raise(2);
        mark.wait(2).unwrap();
    }
}
