//! Locks, condition variables, atomics and threads: the standard library's.
//!
//! With `--cfg shuttle` they are those of a test scheduler, which chooses at random which thread runs
//! next at each of their operations, so that tests explore schedules that rarely happen on a real
//! machine; time is simulated (`time`). With `--cfg loom` they are those of a model checker for small
//! parts, which simulates weak memory orders (`weak`). Code that shares data between threads takes
//! them from here. Without either flag, they are only other names for the standard library's types, and
//! cost nothing.
//!
//! Statics, and counters that do not affect what the code does, use the standard library's own types:
//! switching threads at them would not find anything.

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
