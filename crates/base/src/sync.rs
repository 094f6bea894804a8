//! Locks, condition variables, atomics and threads: the standard library's.
//!
//! With `--cfg shuttle` they are those of a scheduler that draws which thread goes on at each of
//! their operations, so that tests can look for schedules that no machine would run by itself.
//! Code in which threads meet takes them from here. Statics and counters that nobody waits for may
//! use the standard library's own.

#[cfg(not(shuttle))]
pub use std::hint;
#[cfg(not(shuttle))]
pub use std::sync::{
    Barrier, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic,
};
#[cfg(not(shuttle))]
pub use std::{thread, thread_local};

#[cfg(shuttle)]
pub use shuttle::{
    hint,
    sync::{
        Barrier, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard,
        RwLockWriteGuard, atomic,
    },
    thread, thread_local,
};
