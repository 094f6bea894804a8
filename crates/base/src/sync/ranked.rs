//! Debug builds: mutexes that know their place in the order of locks, and check it.
//!
//! A thread that locks a mutex of a [`Rank`] may hold only mutexes of lower ranks, so that no two threads can wait for
//! each other. Release builds use the standard library's types, and check nothing.

use std::cell::RefCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::{LockResult, PoisonError, TryLockError, TryLockResult, WaitTimeoutResult};
use std::time::Duration;

use super::Rank;

std::thread_local! {
    /// The ranks that this thread holds, in the order in which it took them.
    static HELD: RefCell<Vec<Rank>> = const { RefCell::new(Vec::new()) };
    /// The locks that this thread has taken since [`taken_by`] began.
    static TAKEN: RefCell<Option<Vec<&'static str>>> = const { RefCell::new(None) };
}

/// The names of the ranked locks that this thread takes while it runs `f`, in their order, for tests that count them.
/// Only in debug builds.
pub fn taken_by(f: impl FnOnce()) -> Vec<&'static str> {
    TAKEN.set(Some(Vec::new()));
    f();
    TAKEN.take().unwrap_or_default()
}

/// A rank that the thread holds until this is dropped.
#[derive(Debug)]
struct Held(Option<Rank>);

impl Held {
    /// The thread is about to lock a mutex of this rank. Panics if it holds one of this rank or a higher one.
    #[track_caller]
    fn take(rank: Option<Rank>) -> Self {
        if let Some(rank) = rank {
            // Destructors of thread-local variables may lock when this one is gone.
            let last = HELD.try_with(|held| {
                let held = held.borrow();
                held.iter().copied().max_by_key(|r| r.level)
            });
            if let Ok(Some(last)) = last
                && last.level >= rank.level
                && !std::thread::panicking()
            {
                panic!(
                    "the lock \"{}\" is taken by a thread that holds \"{}\": it comes before that",
                    rank.name, last.name
                );
            }
        }
        Self::took(rank)
    }

    /// Records that the thread holds a mutex of this rank.
    fn took(rank: Option<Rank>) -> Self {
        if let Some(rank) = rank {
            HELD.try_with(|held| held.borrow_mut().push(rank)).ok();
            TAKEN
                .try_with(|taken| {
                    if let Some(taken) = &mut *taken.borrow_mut() {
                        taken.push(rank.name);
                    }
                })
                .ok();
        }
        Self(rank)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(rank) = self.0 else {
            return;
        };
        HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if let Some(at) = held.iter().rposition(|r| r.level == rank.level) {
                held.remove(at);
            }
        })
        .ok();
    }
}

/// A mutex, as the standard library's.
#[derive(Default)]
pub struct Mutex<T: ?Sized> {
    rank: Option<Rank>,
    inner: std::sync::Mutex<T>,
}

/// A guard, as the standard library's.
#[must_use = "it unlocks at once"]
pub struct MutexGuard<'a, T: ?Sized> {
    // The mutex is unlocked before its rank is given back.
    inner: std::sync::MutexGuard<'a, T>,
    held: Held,
}

impl<T> Mutex<T> {
    /// See the standard library's.
    pub const fn new(value: T) -> Self {
        Self {
            rank: None,
            inner: std::sync::Mutex::new(value),
        }
    }

    pub(super) const fn ranked(rank: Rank, value: T) -> Self {
        Self {
            rank: Some(rank),
            inner: std::sync::Mutex::new(value),
        }
    }

    /// See the standard library's.
    pub fn into_inner(self) -> LockResult<T> {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// See the standard library's.
    #[track_caller]
    pub fn lock(&self) -> LockResult<MutexGuard<'_, T>> {
        let held = Held::take(self.rank);
        match self.inner.lock() {
            Ok(inner) => Ok(MutexGuard { inner, held }),
            Err(e) => Err(PoisonError::new(MutexGuard {
                inner: e.into_inner(),
                held,
            })),
        }
    }

    /// See the standard library's. It does not wait, so it may be called in any order.
    pub fn try_lock(&self) -> TryLockResult<MutexGuard<'_, T>> {
        let guard = |inner| MutexGuard {
            inner,
            held: Held::took(self.rank),
        };
        match self.inner.try_lock() {
            Ok(inner) => Ok(guard(inner)),
            Err(TryLockError::WouldBlock) => Err(TryLockError::WouldBlock),
            Err(TryLockError::Poisoned(e)) => Err(TryLockError::Poisoned(PoisonError::new(guard(
                e.into_inner(),
            )))),
        }
    }

    /// See the standard library's.
    pub fn get_mut(&mut self) -> LockResult<&mut T> {
        self.inner.get_mut()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
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
        self.inner.fmt(f)
    }
}

/// A condition variable, as the standard library's.
#[derive(Debug, Default)]
pub struct Condvar(std::sync::Condvar);

impl Condvar {
    /// See the standard library's.
    pub const fn new() -> Self {
        Self(std::sync::Condvar::new())
    }

    /// See the standard library's. A waiting thread may hold no rank above the mutex's.
    #[track_caller]
    pub fn wait<'a, T>(&self, guard: MutexGuard<'a, T>) -> LockResult<MutexGuard<'a, T>> {
        let MutexGuard { inner, held } = guard;
        let rank = held.0;
        drop(held);
        let held = Held::take(rank);
        match self.0.wait(inner) {
            Ok(inner) => Ok(MutexGuard { inner, held }),
            Err(e) => Err(PoisonError::new(MutexGuard {
                inner: e.into_inner(),
                held,
            })),
        }
    }

    /// See the standard library's.
    #[track_caller]
    pub fn wait_while<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> LockResult<MutexGuard<'a, T>> {
        while condition(&mut guard) {
            guard = self.wait(guard)?;
        }
        Ok(guard)
    }

    /// See the standard library's, and [`Condvar::wait`].
    #[expect(clippy::disallowed_methods, reason = "the clock waits by this")]
    #[track_caller]
    pub fn wait_timeout<'a, T>(
        &self,
        guard: MutexGuard<'a, T>,
        at_most: Duration,
    ) -> LockResult<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let MutexGuard { inner, held } = guard;
        let rank = held.0;
        drop(held);
        let held = Held::take(rank);
        match self.0.wait_timeout(inner, at_most) {
            Ok((inner, expired)) => Ok((MutexGuard { inner, held }, expired)),
            Err(e) => {
                let (inner, expired) = e.into_inner();
                Err(PoisonError::new((MutexGuard { inner, held }, expired)))
            }
        }
    }

    /// See the standard library's.
    pub fn notify_one(&self) {
        self.0.notify_one();
    }

    /// See the standard library's.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Rank, ranked};
    use super::*;

    const OUTER: Rank = Rank::new(1, "outer");
    const INNER: Rank = Rank::new(2, "inner");

    fn panics(f: impl FnOnce()) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err()
    }

    #[test]
    fn locks_are_taken_in_their_order() {
        let (outer, inner, free) = (ranked(OUTER, 1), ranked(INNER, 2), Mutex::new(3));
        let a = outer.lock().unwrap();
        let b = inner.lock().unwrap();
        drop(a);
        let c = free.lock().unwrap();
        assert!(panics(|| drop(outer.lock())), "behind one of a higher rank");
        let other = ranked(INNER, 4);
        assert!(panics(|| drop(other.lock())), "two of one rank");
        assert_eq!(*outer.try_lock().unwrap(), 1, "this does not wait");
        drop((b, c));
        assert_eq!(*outer.lock().unwrap() + *inner.lock().unwrap(), 3);
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "there is no clock here")]
    fn who_waits_holds_nothing_that_comes_behind() {
        let (outer, inner, changed) = (ranked(OUTER, 1), ranked(INNER, 2), Condvar::new());
        let no_time = Duration::from_millis(1);
        let a = outer.lock().unwrap();
        let b = inner.lock().unwrap();
        let wait = || drop(changed.wait_timeout(a, no_time));
        assert!(panics(wait), "those who lock both would wait for it");
        let b = changed.wait_timeout(b, no_time).unwrap().0;
        drop(b);
        assert!(HELD.with(|held| held.borrow().is_empty()));
    }
}
