//! A mutex and a condition variable, whose waits can time out in simulated time.

use std::collections::VecDeque;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, LockResult, PoisonError, TryLockError, TryLockResult};
use std::time::Duration;

use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};
use shuttle::rand::RngCore;

use super::time;

/// A mutex, as the standard library's.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    inner: shuttle::sync::Mutex<T>,
}

/// A guard, as the standard library's.
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    inner: shuttle::sync::MutexGuard<'a, T>,
}

impl<T> Mutex<T> {
    /// See the standard library's.
    pub const fn new(value: T) -> Self {
        Self {
            inner: shuttle::sync::Mutex::new(value),
        }
    }

    /// See the standard library's.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    fn guard<'a>(&'a self, inner: shuttle::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        MutexGuard { mutex: self, inner }
    }

    /// See the standard library's.
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        match self.inner.lock() {
            Ok(inner) => Ok(self.guard(inner)),
            Err(e) => Err(PoisonError::new(self.guard(e.into_inner()))),
        }
    }

    /// See the standard library's.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        match self.inner.try_lock() {
            Ok(inner) => Ok(self.guard(inner)),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(e)) => Err(TryLockError::Poisoned(PoisonError::new(
                self.guard(e.into_inner()),
            ))),
        }
    }

    /// See the standard library's.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

const WAITING: u8 = 0;
const TOLD: u8 = 1;
const EXPIRED: u8 = 2;

/// A thread that sleeps until it is woken, or until its timeout.
#[derive(Debug)]
pub(super) struct Sleeper {
    state: AtomicU8,
    turn: BatchSemaphore,
}

impl Sleeper {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            state: AtomicU8::new(WAITING),
            turn: BatchSemaphore::new(0, Fairness::Unfair),
        })
    }

    fn wake(&self, how: u8) -> bool {
        let first = self
            .state
            .compare_exchange(WAITING, how, Ordering::SeqCst, Ordering::SeqCst);
        if first.is_ok() {
            self.turn.release(1);
        }
        first.is_ok()
    }

    /// Wakes it because of its timeout.
    pub(super) fn expire(&self) {
        self.wake(EXPIRED);
    }

    pub(super) fn is_awake(&self) -> bool {
        self.state.load(Ordering::SeqCst) != WAITING
    }

    /// Sleeps; true if it was woken by its timeout.
    pub(super) fn sleep(&self) -> bool {
        // It is never closed.
        drop(self.turn.acquire_blocking(1));
        self.state.load(Ordering::SeqCst) == EXPIRED
    }
}

/// Whether a wait timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// See the standard library's.
    pub fn timed_out(self) -> bool {
        self.0
    }
}

/// A condition variable, as the standard library's.
#[derive(Debug, Default)]
pub struct Condvar {
    /// Never locked across a point where threads are switched.
    sleepers: std::sync::Mutex<VecDeque<Arc<Sleeper>>>,
}

impl Condvar {
    /// See the standard library's.
    pub const fn new() -> Self {
        Self {
            sleepers: std::sync::Mutex::new(VecDeque::new()),
        }
    }

    fn sleepers(&self) -> std::sync::MutexGuard<'_, VecDeque<Arc<Sleeper>>> {
        self.sleepers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn sleep<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        at_most: Option<Duration>,
    ) -> (LockResult<MutexGuard<'a, T>>, bool) {
        let sleeper = Sleeper::new();
        self.sleepers().push_back(Arc::clone(&sleeper));
        let MutexGuard { mutex, inner } = guard;
        drop(inner);
        let alarm = at_most.map(|time| time::alarm(time, &sleeper));
        let expired = sleeper.sleep();
        drop(alarm);
        if expired {
            self.sleepers().retain(|s| !Arc::ptr_eq(s, &sleeper));
        }
        (mutex.lock(), expired)
    }

    /// See the standard library's.
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        self.sleep(guard, None).0
    }

    /// See the standard library's; the time is simulated.
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        at_most: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let (guard, expired) = self.sleep(guard, Some(at_most));
        let expired = WaitTimeoutResult(expired);
        match guard {
            Ok(guard) => Ok((guard, expired)),
            Err(e) => Err(PoisonError::new((e.into_inner(), expired))),
        }
    }

    /// See the standard library's. Wakes one of several waiters at random.
    pub fn notify_one(&self) {
        time::switch();
        loop {
            let chosen = {
                let mut sleepers = self.sleepers();
                let at = match sleepers.len() {
                    0 => return,
                    1 => 0,
                    n => (shuttle::rand::thread_rng().next_u64() % n as u64) as usize,
                };
                sleepers.remove(at)
            };
            // A waiter that has just timed out must not consume the notification.
            if chosen.is_some_and(|s| s.wake(TOLD)) {
                return;
            }
        }
    }

    /// See the standard library's.
    pub fn notify_all(&self) {
        time::switch();
        let all = std::mem::take(&mut *self.sleepers());
        for sleeper in all {
            sleeper.wake(TOLD);
        }
    }
}
