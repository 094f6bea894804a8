//! Simulated time: it stands still while any thread can go on, and then moves to when the next of
//! those who sleep wants to wake. So a wake-up that was forgotten, and that a timed wait would make up
//! for sooner or later, shows as time that has passed while nobody did anything: [`watch`] says how
//! much of that an operation may take.
//!
//! Now and then the scheduler lets it move although threads could go on, as if those were slow.
//!
//! Everything here is of one test's thread of the operating system, which runs all of its simulated
//! threads. Without [`begin`] no time passes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};

use super::locks::Sleeper;

#[derive(Default)]
struct Time {
    now_nanos: u64,
    /// How much of it passed because nobody could go on.
    idle_nanos: u64,
    /// Who sleeps until when.
    alarms: BTreeMap<(u64, u64), Arc<Sleeper>>,
    last_alarm: u64,
    /// The thread that moves time, and what it waits for when nobody sleeps.
    keeper: Option<(usize, Arc<BatchSemaphore>)>,
    /// The keeper runs because nobody else can.
    idle: bool,
    over: bool,
    /// Operations under way: when they began, by `idle_nanos`, and their limit.
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

/// A place to switch threads at.
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
    // Before it first runs: the scheduler might leave that for last, and those who sleep until then
    // would do so without time.
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

/// The thread that moves time, for the scheduler: it goes on when nobody else can, or when the
/// scheduler lets time run ahead.
pub fn keeper() -> Option<usize> {
    with(|time| time.keeper.as_ref().map(|(task, _)| *task))
}

/// The scheduler tells whether it lets the keeper run because nobody else can.
pub fn keeper_runs(idle: bool) {
    with(|time| time.idle = idle);
}

/// Nanoseconds since [`begin`].
pub fn now_nanos() -> u64 {
    with(|time| time.now_nanos)
}

/// Lets go of an alarm when it is dropped.
pub(super) struct Alarm(u64, u64);

impl Drop for Alarm {
    fn drop(&mut self) {
        let gone = with(|time| time.alarms.remove(&(self.0, self.1)));
        drop(gone);
    }
}

/// Wakes the sleeper after so much time.
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

/// Sleeps for so much time; without [`begin`] only lets others go on.
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

/// An operation is under way while this lives.
#[derive(Debug)]
pub struct Watched(u64);

impl Drop for Watched {
    fn drop(&mut self) {
        let gone = with(|time| time.watched.remove(&self.0));
        drop(gone);
    }
}

/// Ends the execution with a panic if more than `limit` passes in which nobody does anything, while
/// what is returned lives.
pub fn watch(what: String, limit: Duration) -> Watched {
    with(|time| {
        time.last_alarm += 1;
        let began = time.idle_nanos;
        time.watched
            .insert(time.last_alarm, (what, began, nanos(limit)));
        Watched(time.last_alarm)
    })
}
