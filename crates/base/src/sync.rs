//! Locks, condition variables, atomics and threads: the standard library's.
//!
//! With `--cfg shuttle` they are those of a scheduler that draws which thread goes on at each of
//! their operations, so that tests can look for schedules that no machine would run by itself, and
//! time is simulated (`time`). With `--cfg loom` they are those of a model checker, which knows weak memory
//! orders (`weak`), for small parts. Code in which threads meet takes them from here. Without either
//! this is nothing but other names for the standard library's types: it costs nothing.
//!
//! Statics, and counters that nobody waits for and nothing is decided by, use the standard library's
//! own: they would be places to switch threads at without anything to find there.

#[cfg(shuttle)]
pub mod explore;
#[cfg(shuttle)]
mod locks;
mod memory;
#[cfg(shuttle)]
pub mod thread;
#[cfg(shuttle)]
pub mod time;
#[cfg(loom)]
mod weak;

pub use memory::Memory;

#[cfg(loom)]
pub use weak::*;

#[cfg(not(any(shuttle, loom)))]
pub use std::hint;
#[cfg(not(any(shuttle, loom)))]
pub use std::sync::{
    Barrier, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard,
    atomic,
};
#[cfg(not(any(shuttle, loom)))]
pub use std::{thread, thread_local};

#[cfg(shuttle)]
pub use locks::{Condvar, Mutex, MutexGuard, WaitTimeoutResult};
#[cfg(shuttle)]
pub use shuttle::{
    hint,
    sync::{Barrier, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic},
    thread_local,
};
