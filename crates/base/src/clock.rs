//! Time, injected: the only code that asks the operating system for the time.

use std::any::Any;
use std::fmt::Debug;
use std::mem::ManuallyDrop;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::sync::{Condvar, MutexGuard, PoisonError, thread};

/// A source of time. The simulator has its own.
///
/// A method that panics does no harm to a database: see [`guarded`].
pub trait Clock: Any + Send + Sync + Debug {
    /// Microseconds since 1970-01-01 UTC.
    fn wall_micros(&self) -> u64;
    /// Nanoseconds since some fixed point; never goes backwards.
    fn monotonic_nanos(&self) -> u64;
    /// Like [`Clock::monotonic_nanos`], but also advances while the machine is suspended: for times
    /// that another machine relies on.
    fn boot_nanos(&self) -> u64 {
        self.monotonic_nanos()
    }
    /// CPU time of the calling thread in nanoseconds; always 0 if time is simulated.
    fn thread_cpu_nanos(&self) -> u64 {
        0
    }
    /// Returns when `time` has passed.
    fn sleep(&self, time: Duration) {
        thread::sleep(time);
    }
    /// The real time for which a thread waits if it is to wait at most `time` by this clock.
    fn patience(&self, time: Duration) -> Duration {
        time
    }
}

/// Waits until `changed` is notified, or until `at_most` has passed by the clock. Like every wait for a
/// condition variable, it may wake up spuriously.
pub fn wait_timeout<'a, T>(
    clock: &dyn Clock,
    changed: &Condvar,
    guard: MutexGuard<'a, T>,
    at_most: Duration,
) -> MutexGuard<'a, T> {
    #[expect(clippy::disallowed_methods, reason = "this is the clock's home")]
    let waited = changed.wait_timeout(guard, clock.patience(at_most));
    waited.unwrap_or_else(PoisonError::into_inner).0
}

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock {
    start: Instant,
}

impl SystemClock {
    /// The machine's clock as a trait object.
    pub fn shared() -> Arc<dyn Clock> {
        #[expect(clippy::disallowed_methods, reason = "this is the clock's home")]
        let start = Instant::now();
        Arc::new(Self { start })
    }
}

impl Clock for SystemClock {
    fn wall_micros(&self) -> u64 {
        #[expect(clippy::disallowed_methods, reason = "this is the clock's home")]
        let now = SystemTime::now();
        now.duration_since(UNIX_EPOCH)
            .map_or(0, |d| d.as_micros() as u64)
    }

    fn monotonic_nanos(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }

    fn boot_nanos(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }

    fn thread_cpu_nanos(&self) -> u64 {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
    }
}

/// A clock that never panics, and whose monotonic times never go backwards. From the first panic of `clock` on, the
/// machine's clock replaces it, and continues from the last time that `clock` returned. So a bug in an application's
/// clock ends no thread of a database and interrupts no operation. The panic hook has reported the panic.
///
/// The machine's clock, and a clock that is guarded already, are returned as they are.
#[must_use]
pub fn guarded(clock: &Arc<dyn Clock>) -> Arc<dyn Clock> {
    let known: &dyn Any = &**clock;
    if known.is::<SystemClock>() || known.is::<Guarded>() {
        return Arc::clone(clock);
    }
    Arc::new(Guarded {
        clock: Arc::clone(clock),
        machine: SystemClock::shared(),
        broken: AtomicBool::new(false),
        wall: Hand::default(),
        monotonic: Hand::default(),
        boot: Hand::default(),
    })
}

/// See [`guarded`].
#[derive(Debug)]
struct Guarded {
    clock: Arc<dyn Clock>,
    machine: Arc<dyn Clock>,
    /// The clock has panicked, and is not called any more.
    broken: AtomicBool,
    wall: Hand,
    monotonic: Hand,
    boot: Hand,
}

/// The last answers of one method.
#[derive(Debug, Default)]
struct Hand {
    /// How far the last answer was ahead of the machine's monotonic clock, in the method's unit, modulo 2^64.
    ahead: AtomicU64,
    /// The highest answer.
    highest: AtomicU64,
}

impl Hand {
    /// Records an answer that was given when the machine's clock was at `machine`.
    fn told(&self, answer: u64, machine: u64) {
        self.ahead
            .store(answer.wrapping_sub(machine), Ordering::Relaxed);
    }

    /// The answer when the machine's clock is at `machine`.
    fn guess(&self, machine: u64) -> u64 {
        machine.wrapping_add(self.ahead.load(Ordering::Relaxed))
    }

    /// The highest answer so far, `answer` included.
    fn not_back(&self, answer: u64) -> u64 {
        self.highest
            .fetch_max(answer, Ordering::Relaxed)
            .max(answer)
    }
}

impl Guarded {
    /// The result of calling the clock; `None` if it is broken.
    fn ask<T>(&self, ask: impl Fn(&dyn Clock) -> T) -> Option<T> {
        if self.broken.load(Ordering::Relaxed) {
            return None;
        }
        match catch_unwind(AssertUnwindSafe(|| ask(&*self.clock))) {
            Ok(told) => Some(told),
            Err(panic) => {
                // Its destructor is the application's too, and may panic. It is leaked once.
                let _leaked = ManuallyDrop::new(panic);
                self.broken.store(true, Ordering::Relaxed);
                None
            }
        }
    }

    /// An answer in units of `nanos` nanoseconds.
    fn time(&self, hand: &Hand, nanos: u64, ask: impl Fn(&dyn Clock) -> u64) -> u64 {
        let told = self.ask(ask);
        let machine = self.machine.monotonic_nanos() / nanos;
        told.map_or_else(
            || hand.guess(machine),
            |told| {
                hand.told(told, machine);
                told
            },
        )
    }
}

impl Clock for Guarded {
    fn wall_micros(&self) -> u64 {
        self.time(&self.wall, 1_000, |clock| clock.wall_micros())
    }

    fn monotonic_nanos(&self) -> u64 {
        let told = self.time(&self.monotonic, 1, |clock| clock.monotonic_nanos());
        self.monotonic.not_back(told)
    }

    fn boot_nanos(&self) -> u64 {
        let told = self.time(&self.boot, 1, |clock| clock.boot_nanos());
        self.boot.not_back(told)
    }

    fn thread_cpu_nanos(&self) -> u64 {
        self.ask(|clock| clock.thread_cpu_nanos()).unwrap_or(0)
    }

    fn sleep(&self, time: Duration) {
        if self.ask(|clock| clock.sleep(time)).is_none() {
            self.machine.sleep(time);
        }
    }

    fn patience(&self, time: Duration) -> Duration {
        self.ask(|clock| clock.patience(time)).unwrap_or(time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that shows the time that it was set to; panics once it is broken.
    #[derive(Debug, Default)]
    struct Breaks {
        at: AtomicU64,
        broken: AtomicBool,
        asked: AtomicU64,
    }

    const HOUR: u64 = 3_600_000_000_000;

    impl Breaks {
        fn or<T>(&self, told: T) -> T {
            self.asked.fetch_add(1, Ordering::Relaxed);
            assert!(!self.broken.load(Ordering::Relaxed), "a part of the test");
            told
        }
    }

    impl Clock for Breaks {
        fn wall_micros(&self) -> u64 {
            self.or(self.at.load(Ordering::Relaxed))
        }
        fn monotonic_nanos(&self) -> u64 {
            self.or(self.at.load(Ordering::Relaxed))
        }
        fn thread_cpu_nanos(&self) -> u64 {
            self.or(7)
        }
        fn sleep(&self, _: Duration) {
            self.or(());
        }
        fn patience(&self, _: Duration) -> Duration {
            self.or(Duration::ZERO)
        }
    }

    fn times(guard: &dyn Clock) -> [u64; 3] {
        [
            guard.wall_micros(),
            guard.monotonic_nanos(),
            guard.boot_nanos(),
        ]
    }

    #[test]
    fn from_the_first_panic_on_the_machines_clock_goes_on() {
        let clock = Arc::new(Breaks::default());
        let guard = guarded(&(Arc::clone(&clock) as Arc<dyn Clock>));
        let rest = |guard: &dyn Clock| {
            guard.sleep(Duration::from_nanos(1));
            (guard.thread_cpu_nanos(), guard.patience(Duration::MAX))
        };
        for at in [5, HOUR] {
            clock.at.store(at, Ordering::Relaxed);
            assert_eq!(times(&*guard), [at; 3]);
            assert_eq!(rest(&*guard), (7, Duration::ZERO));
        }
        clock.broken.store(true, Ordering::Relaxed);
        let broken = times(&*guard);
        // A minute in the smaller unit.
        for time in broken {
            assert!((HOUR..HOUR + 60_000_000_000).contains(&time), "{time}");
        }
        assert_eq!(rest(&*guard), (0, Duration::MAX));
        // It is not called again, even if it would answer.
        clock.broken.store(false, Ordering::Relaxed);
        let asked = clock.asked.load(Ordering::Relaxed);
        guard.sleep(Duration::from_millis(2));
        let later = times(&*guard);
        assert!((0..3).all(|i| broken[i] < later[i]), "{broken:?} {later:?}");
        assert_eq!(clock.asked.load(Ordering::Relaxed), asked);
    }

    #[test]
    fn monotonic_times_never_go_back() {
        let clock = Arc::new(Breaks::default());
        let guard = guarded(&(Arc::clone(&clock) as Arc<dyn Clock>));
        clock.at.store(HOUR, Ordering::Relaxed);
        assert_eq!(times(&*guard), [HOUR; 3]);
        clock.at.store(5, Ordering::Relaxed);
        assert_eq!(times(&*guard), [5, HOUR, HOUR], "the date may");
        clock.broken.store(true, Ordering::Relaxed);
        assert!(guard.monotonic_nanos() >= HOUR);
    }

    #[test]
    fn a_clock_is_guarded_once() {
        let machine = SystemClock::shared();
        assert!(Arc::ptr_eq(&guarded(&machine), &machine));
        let guard = guarded(&(Arc::new(Breaks::default()) as Arc<dyn Clock>));
        assert!(Arc::ptr_eq(&guarded(&guard), &guard));
    }
}
