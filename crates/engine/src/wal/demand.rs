//! What asynchronous writes demand of the thread that brings the log to the device (`write/pending.rs`).
//!
//! An asynchronous write demands that the log becomes durable soon. Whoever waits for that demands it now. Between two
//! device writes that nobody waits for, records gather for [`GATHER`]: they share the device write, and the thread is
//! not woken for each of them. With `wal_sync_interval_ms`, an unsynced write demands it lazily: once the interval is
//! over.

use std::sync::Arc;
use std::time::Duration;

use base::clock::{self, Clock};
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Condvar, Mutex, MutexGuard, PoisonError, ranked};

use crate::locks;
use crate::watermark::Watermark;

/// How long after the beginning of a device write the next one begins, if nobody waits for it.
const GATHER: Duration = Duration::from_millis(1);
/// How long the thread sleeps at most if nothing is demanded.
const LOOK: Duration = Duration::from_millis(250);

/// See the module.
pub(crate) struct Demand {
    state: Mutex<State>,
    changed: Condvar,
    clock: Arc<dyn Clock>,
    /// `wal_sync_interval_ms`, in nanoseconds; 0: nothing is demanded lazily.
    interval: u64,
    /// When unsynced writes are to become durable, by the clock, in nanoseconds; 0: there is none. Set under the lock.
    lazily_at: AtomicU64,
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// The log is to become durable up to this sequence number at least.
    Asked(u64),
    /// All that is in the log is to become durable. Nobody asked for that.
    Lazily,
}

struct State {
    /// The sequence number up to which the log is to become durable.
    target: u64,
    /// The sequence number up to which somebody waits for that.
    awaited: u64,
    /// When records have gathered for long enough, by the clock, in nanoseconds.
    gathered_at: u64,
    sleep: Sleep,
}

/// What the thread does that brings the log to the device.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Sleep {
    /// It works, and looks at the demand afterwards.
    No,
    /// It sleeps until something is demanded.
    Idle,
    /// It sleeps while records gather, until somebody waits.
    Gathering,
}

impl Demand {
    /// No demand. The log is durable up to `last_sequence`. `interval`: `wal_sync_interval_ms`.
    pub(crate) fn new(last_sequence: u64, interval: Duration, clock: &Arc<dyn Clock>) -> Self {
        let state = State {
            target: last_sequence,
            awaited: last_sequence,
            gathered_at: 0,
            sleep: Sleep::No,
        };
        Self {
            state: ranked(locks::WANTED, state),
            changed: Condvar::new(),
            clock: Arc::clone(clock),
            interval: interval.as_nanos() as u64,
            lazily_at: AtomicU64::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether something may have been demanded that is not durable. What was demanded lazily may be on its way.
    pub(crate) fn is_open(&self, durable: &Watermark) -> bool {
        self.lock().target > durable.get() || self.has_interval()
    }

    /// Demands that all logged writes up to `sequence` become durable soon.
    pub(crate) fn soon(&self, sequence: u64) {
        let mut state = self.lock();
        if state.target < sequence {
            state.target = sequence;
            let wakes = state.sleep == Sleep::Idle;
            drop(state);
            if wakes {
                self.changed.notify_one();
            }
        }
    }

    /// Demands that all that was logged before becomes durable within the interval, if there is one. To be called
    /// without the log's lock, by each thread that has logged a write without syncing it.
    pub(crate) fn lazily(&self) {
        // A thread that reads a time here logged its write before the thread below sets it to 0, and only then locks
        // the log to sync it: in the other order, the log's lock would have made it read the 0.
        if self.has_interval() && self.lazily_at.load(Ordering::Relaxed) == 0 {
            self.lazily_in(self.interval);
        }
    }

    /// Demands it now, if there is an interval: because it has failed, or could not be done when it was due.
    pub(crate) fn lazily_again(&self) {
        if self.has_interval() {
            self.lazily_in(0);
        }
    }

    /// Takes what is demanded lazily, whether it is due or not. Returns whether there was such a demand.
    pub(crate) fn take_lazy(&self) -> bool {
        let _state = self.lock();
        self.lazily_at.swap(0, Ordering::Relaxed) > 0
    }

    /// Whether unsynced writes become durable without being asked for: `wal_sync_interval_ms`.
    pub(crate) fn has_interval(&self) -> bool {
        self.interval > 0
    }

    fn lazily_in(&self, nanos: u64) {
        let state = self.lock();
        let at = (self.clock.monotonic_nanos() + nanos).max(1);
        let is_sooner = |before: u64| before > 0 && before <= at;
        if is_sooner(self.lazily_at.load(Ordering::Relaxed)) {
            return;
        }
        self.lazily_at.store(at, Ordering::Relaxed);
        let wakes = state.sleep == Sleep::Idle;
        drop(state);
        if wakes {
            self.changed.notify_one(); // to sleep until then
        }
    }

    /// Demands that all logged writes up to `sequence` become durable now, because somebody waits.
    pub(crate) fn now(&self, sequence: u64) {
        let mut state = self.lock();
        if state.awaited < sequence {
            state.awaited = sequence;
            state.target = state.target.max(sequence);
            let wakes = state.sleep != Sleep::No;
            drop(state);
            if wakes {
                self.changed.notify_one();
            }
        }
    }

    /// Wakes the thread.
    pub(crate) fn wake(&self) {
        drop(self.lock());
        self.changed.notify_all();
    }

    /// Sleeps until something is demanded, at most `at_most`.
    pub(crate) fn sleep(&self, at_most: Duration) {
        drop(self.slept(self.lock(), Sleep::Idle, at_most));
    }

    fn slept<'a>(
        &self,
        mut state: MutexGuard<'a, State>,
        sleep: Sleep,
        at_most: Duration,
    ) -> MutexGuard<'a, State> {
        state.sleep = sleep;
        let mut state = clock::wait_timeout(&*self.clock, &self.changed, state, at_most);
        state.sleep = Sleep::No;
        state
    }

    /// Waits until the log is to be brought to the device; `None` after a while without demand, if the thread was
    /// woken, or at once if it is not to sleep then. Unless it `can_write`, there is no demand: see
    /// [`Demand::take_lazy`]. Both are asked under the lock, so that whoever changes them and then calls [`Demand::wake`]
    /// is not missed.
    pub(crate) fn next(
        &self,
        durable: &Watermark,
        can_write: impl Fn() -> bool,
        may_idle: impl Fn() -> bool,
    ) -> Option<Due> {
        let mut state = self.lock();
        let is_due = |state: &State| state.target > durable.get() && can_write();
        if !is_due(&state) {
            return self.next_lazily(state, can_write, may_idle);
        }
        let now = self.clock.monotonic_nanos();
        let rest = state.gathered_at.saturating_sub(now);
        if rest > 0 && state.awaited <= durable.get() {
            // Once only: the clock of a test may stand still.
            let rest = Duration::from_nanos(rest).min(GATHER);
            state = self.slept(state, Sleep::Gathering, rest);
            if !is_due(&state) {
                return None;
            }
        }
        state.gathered_at = self.clock.monotonic_nanos() + GATHER.as_nanos() as u64;
        // That is for all that was logged before.
        self.lazily_at.store(0, Ordering::Relaxed);
        Some(Due::Asked(state.target))
    }

    /// [`Demand::next`] if nobody asks for anything.
    fn next_lazily(
        &self,
        state: MutexGuard<'_, State>,
        can_write: impl Fn() -> bool,
        may_idle: impl Fn() -> bool,
    ) -> Option<Due> {
        let at = self.lazily_at.load(Ordering::Relaxed);
        let mut at_most = LOOK;
        if at > 0 && can_write() {
            let rest = at.saturating_sub(self.clock.monotonic_nanos());
            if rest == 0 {
                self.lazily_at.store(0, Ordering::Relaxed);
                return Some(Due::Lazily);
            }
            at_most = at_most.min(Duration::from_nanos(rest)).max(GATHER);
        }
        if may_idle() {
            drop(self.slept(state, Sleep::Idle, at_most));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::clock::SystemClock;
    use base::sync::thread;

    /// A clock by which no time passes; whoever waits for a time waits for half a minute.
    #[derive(Debug)]
    struct Still;

    impl Clock for Still {
        fn wall_micros(&self) -> u64 {
            0
        }
        fn monotonic_nanos(&self) -> u64 {
            0
        }
        fn boot_nanos(&self) -> u64 {
            0
        }
        fn sleep(&self, _: Duration) {}
        fn patience(&self, _: Duration) -> Duration {
            Duration::from_secs(30)
        }
    }

    #[test]
    fn whoever_waits_ends_the_gathering() {
        let clock: Arc<dyn Clock> = Arc::new(Still);
        let (demand, durable) = (Demand::new(0, Duration::ZERO, &clock), Watermark::at(0));
        demand.soon(1);
        assert_eq!(
            demand.next(&durable, || true, || true),
            Some(Due::Asked(1)),
            "nothing gathers before the first"
        );
        durable.raise(1);
        let real = SystemClock::shared();
        let began = real.monotonic_nanos();
        for seq in (2..20).step_by(2) {
            // In any order: the waiter comes before the gathering or during it.
            thread::scope(|s| {
                s.spawn(|| {
                    demand.soon(seq);
                    demand.soon(seq + 1);
                    demand.now(seq);
                });
                while demand.lock().target < seq {
                    thread::yield_now();
                }
                assert!(
                    demand
                        .next(&durable, || true, || true)
                        .is_some_and(|due| matches!(due, Due::Asked(target) if target >= seq))
                );
            });
            durable.raise(seq + 1);
        }
        let seconds = (real.monotonic_nanos() - began) / 1_000_000_000;
        assert!(
            seconds < 20,
            "slept for {seconds} s although somebody waited"
        );
    }

    #[test]
    fn records_gather_for_a_while_and_no_longer() {
        let clock = SystemClock::shared();
        let (demand, durable) = (Demand::new(0, Duration::ZERO, &clock), Watermark::at(0));
        let began = clock.monotonic_nanos();
        for seq in 1..=5 {
            demand.soon(seq);
            assert_eq!(
                demand.next(&durable, || true, || true),
                Some(Due::Asked(seq))
            );
            durable.raise(seq);
        }
        let gathered = clock.monotonic_nanos() - began;
        // A condition variable may wake up spuriously, but hardly each time.
        assert!(gathered > 2 * GATHER.as_nanos() as u64, "{gathered} ns");
        assert_eq!(demand.next(&durable, || false, || true), None);
    }

    #[test]
    fn a_demand_wakes_the_thread_that_has_nothing_to_do() {
        let clock: Arc<dyn Clock> = Arc::new(Still);
        let (demand, durable) = (Demand::new(0, Duration::ZERO, &clock), Watermark::at(0));
        let real = SystemClock::shared();
        let began = real.monotonic_nanos();
        thread::scope(|s| {
            s.spawn(|| demand.soon(1));
            while demand.next(&durable, || true, || true) != Some(Due::Asked(1)) {}
            durable.raise(1);
            s.spawn(|| {
                while demand.lock().sleep != Sleep::Idle {
                    thread::yield_now();
                }
                demand.wake();
            });
            assert_eq!(demand.next(&durable, || true, || true), None);
        });
        assert_eq!(demand.next(&durable, || true, || false), None);
        let seconds = (real.monotonic_nanos() - began) / 1_000_000_000;
        assert!(seconds < 20, "slept for {seconds} s although it was woken");
    }

    #[test]
    fn unsynced_writes_wait_for_the_interval_unless_somebody_asks() {
        let clock = SystemClock::shared();
        let interval = Duration::from_millis(20);
        let (demand, durable) = (Demand::new(0, interval, &clock), Watermark::at(0));
        let next = || demand.next(&durable, || true, || true);
        let began = clock.monotonic_nanos();
        demand.lazily();
        demand.lazily();
        assert!(demand.is_open(&durable));
        while next().is_none() {}
        assert!(clock.monotonic_nanos() - began >= interval.as_nanos() as u64);
        assert_eq!(next(), None);
        // Again, because it failed; not while the database refuses writes, unless it is taken.
        demand.lazily_again();
        assert_eq!(demand.next(&durable, || false, || true), None);
        assert_eq!(next(), Some(Due::Lazily));
        demand.lazily();
        assert!(demand.take_lazy() && !demand.take_lazy());
        assert_eq!(next(), None);
        // Whoever asks, asks for all that was logged before.
        demand.lazily();
        demand.now(5);
        assert_eq!(next(), Some(Due::Asked(5)));
        durable.raise(5);
        assert_eq!(next(), None);
        // Without an interval nothing is demanded lazily.
        let never = Demand::new(0, Duration::ZERO, &clock);
        never.lazily();
        never.lazily_again();
        assert!(!never.is_open(&durable));
        assert_eq!(never.next(&durable, || true, || false), None);
    }
}
