//! Simulated time: it stands still while any thread can run, and then advances to the next timeout of
//! a sleeping thread. So a forgotten wake-up, which a timed wait would only hide, shows as idle time:
//! time that passes while no thread can run. [`watch`] limits the idle time of an operation.
//!
//! Now and then the scheduler lets time advance although threads could run, as if they were slow.
//!
//! All state here belongs to the operating system's thread of one test, which runs all of the test's
//! simulated threads. Without [`begin`] no time passes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};

use super::locks::Sleeper;

#[derive(Default)]
struct Time {
    now_nanos: u64,
    /// How much time passed because no thread could run.
    idle_nanos: u64,
    /// The sleeping threads, by the time of their timeout and a number.
    alarms: BTreeMap<(u64, u64), Arc<Sleeper>>,
    last_alarm: u64,
    /// The thread that advances time, and the semaphore on which it waits if no thread sleeps.
    keeper: Option<(usize, Arc<BatchSemaphore>)>,
    /// The keeper runs because no other thread can.
    idle: bool,
    over: bool,
    /// Watched operations: name, `idle_nanos` at their start, and their limit in nanoseconds.
    watched: BTreeMap<u64, (String, u64, u64)>,
}

thread_local! {
    static TIME: RefCell<Time> = RefCell::default();
}

fn with<T>(f: impl FnOnce(&mut Time) -> T) -> T {
    TIME.with(|time| f(&mut time.borrow_mut()))
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// A point at which the scheduler may switch threads.
pub fn switch() {
    shuttle::thread::sleep(Duration::ZERO);
}

/// Time passes while this lives.
#[derive(Debug)]
#[must_use = "time passes while it lives"]
pub struct Passing(());

impl Drop for Passing {
    fn drop(&mut self) {
        let keeper = with(|time| {
            time.over = true;
            time.keeper.as_ref().map(|(_, anybody)| Arc::clone(anybody))
        });
        if let (Some(anybody), false) = (keeper, std::thread::panicking()) {
            anybody.release(1);
        }
    }
}

/// Begins a simulation: from here on time passes. Called once, first, by each execution.
pub fn begin() -> Passing {
    let old = with(std::mem::take);
    drop(old);
    let anybody = Arc::new(BatchSemaphore::new(0, Fairness::Unfair));
    let keeper = shuttle::thread::spawn({
        let anybody = Arc::clone(&anybody);
        move || keep(&anybody)
    });
    // Set here, not by the thread itself: the scheduler might run that thread last, and until then
    // threads would sleep without time.
    let keeper = usize::from(keeper.thread().id());
    with(|time| time.keeper = Some((keeper, anybody)));
    Passing(())
}

fn keep(anybody: &BatchSemaphore) {
    while !with(|time| time.over) {
        switch();
        let next = with(|time| {
            let ((due, _), sleeper) = time.alarms.pop_first()?;
            let passes = due.saturating_sub(time.now_nanos);
            time.now_nanos += passes;
            if time.idle {
                time.idle_nanos += passes;
            }
            Some(sleeper)
        });
        let late = with(|time| {
            let late = |(_, since, limit): &&(String, u64, u64)| time.idle_nanos - since > *limit;
            time.watched
                .values()
                .find(late)
                .map(|(what, ..)| what.clone())
        });
        if let Some(what) = late {
            panic!("{what} hangs: simulated time passes, and nobody goes on with it");
        }
        match next {
            Some(sleeper) => sleeper.expire(),
            // It is never closed.
            None => drop(anybody.acquire_blocking(1)),
        }
    }
}

/// The thread that advances time, for the scheduler: it runs when no other thread can, or when the
/// scheduler lets time advance early.
pub fn keeper() -> Option<usize> {
    with(|time| time.keeper.as_ref().map(|(task, _)| *task))
}

/// Called by the scheduler before the keeper runs: `idle` says that no other thread can run.
pub fn keeper_runs(idle: bool) {
    with(|time| time.idle = idle);
}

/// Nanoseconds since [`begin`].
pub fn now_nanos() -> u64 {
    with(|time| time.now_nanos)
}

/// An alarm, which is cancelled when this is dropped.
pub(super) struct Alarm(u64, u64);

impl Drop for Alarm {
    fn drop(&mut self) {
        let gone = with(|time| time.alarms.remove(&(self.0, self.1)));
        drop(gone);
    }
}

/// Wakes the sleeper after the time `after`.
pub(super) fn alarm(after: Duration, sleeper: &Arc<Sleeper>) -> Alarm {
    let (alarm, keeper) = with(|time| {
        time.last_alarm += 1;
        let alarm = (time.now_nanos.saturating_add(nanos(after)), time.last_alarm);
        if !sleeper.is_awake() {
            time.alarms.insert(alarm, Arc::clone(sleeper));
        }
        let first = time.alarms.len() == 1;
        let keeper = time.keeper.as_ref().filter(|_| first);
        (alarm, keeper.map(|(_, anybody)| Arc::clone(anybody)))
    });
    if let Some(anybody) = keeper {
        anybody.release(1);
    }
    Alarm(alarm.0, alarm.1)
}

/// Sleeps for `time`; without [`begin`] only lets other threads run.
pub fn sleep(time: Duration) {
    if keeper().is_none() {
        switch();
        return;
    }
    let sleeper = Sleeper::new();
    let alarm = alarm(time, &sleeper);
    sleeper.sleep();
    drop(alarm);
}

/// Marks an operation as in progress while this lives.
#[derive(Debug)]
pub struct Watched(u64);

impl Drop for Watched {
    fn drop(&mut self) {
        let gone = with(|time| time.watched.remove(&self.0));
        drop(gone);
    }
}

/// Ends the execution with a panic if more than `limit` of idle time passes while the result lives.
pub fn watch(what: String, limit: Duration) -> Watched {
    with(|time| {
        time.last_alarm += 1;
        let began = time.idle_nanos;
        time.watched
            .insert(time.last_alarm, (what, began, nanos(limit)));
        Watched(time.last_alarm)
    })
}
