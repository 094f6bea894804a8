//! Locks, condition variables, atomics and threads: the standard library's.
//!
//! With `--cfg shuttle` they are those of a test scheduler, which chooses at random which thread runs
//! next at each of their operations, so that tests explore schedules that rarely happen on a real
//! machine; time is simulated (`time`). With `--cfg loom` they are those of a model checker for small
//! parts, which simulates weak memory orders (`weak`). Code that shares data between threads takes
//! them from here. Without either flag, they are only other names for the standard library's types, and
//! cost nothing; in debug builds, mutexes check that they are taken in their order (`ranked`).
//!
//! Statics, and counters that do not affect what the code does, use the standard library's own types:
//! switching threads at them would not find anything.

#[cfg(shuttle)]
pub mod explore;
#[cfg(shuttle)]
mod locks;
mod memory;
#[cfg(all(debug_assertions, not(any(shuttle, loom))))]
mod ranked;
#[cfg(shuttle)]
pub mod thread;
#[cfg(shuttle)]
pub mod time;
#[cfg(loom)]
mod weak;

pub use memory::Memory;

#[cfg(loom)]
pub use weak::*;

#[cfg(all(debug_assertions, not(any(shuttle, loom))))]
pub use ranked::{Condvar, Mutex, MutexGuard, taken_by};
#[cfg(not(any(shuttle, loom)))]
pub use std::hint;
#[cfg(not(any(shuttle, loom)))]
pub use std::sync::{Barrier, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic};
#[cfg(not(any(debug_assertions, shuttle, loom)))]
pub use std::sync::{Condvar, Mutex, MutexGuard};
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
/// The place of a lock in the order of all locks, and its name.
///
/// Debug builds check that a thread that waits for a lock holds only locks of lower levels: see [`ranked`](fn@ranked).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Locks with a lower level are taken first.
    pub level: u8,
    /// For messages.
    pub name: &'static str,
}

impl Rank {
    /// A rank.
    pub const fn new(level: u8, name: &'static str) -> Self {
        Self { level, name }
    }
}

/// A mutex of this rank.
pub fn ranked<T>(rank: Rank, value: T) -> Mutex<T> {
    #[cfg(all(debug_assertions, not(any(shuttle, loom))))]
    {
        Mutex::ranked(rank, value)
    }
    #[cfg(not(all(debug_assertions, not(any(shuttle, loom)))))]
    {
        let _ = rank;
        Mutex::new(value)
    }
}
