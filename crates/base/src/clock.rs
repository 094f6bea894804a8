//! Time, injected: the only code that asks the operating system for the time.

use std::any::Any;
use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
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
    /// The machine's clock behind the trait.
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

/// A clock that never panics: where a method of `clock` does, the machine's clock answers in its place, set as `clock`
/// was when this was called. So a bug in an application's clock ends no thread of a database and breaks off nothing
/// that is half done. The panic hook has reported the panic.
///
/// The machine's clock, and a clock that is guarded already, are returned as they are.
#[must_use]
pub fn guarded(clock: &Arc<dyn Clock>) -> Arc<dyn Clock> {
    let known: &dyn Any = &**clock;
    if known.is::<SystemClock>() || known.is::<Guarded>() {
        return Arc::clone(clock);
    }
    let machine = SystemClock::shared();
    let ahead = |read: &dyn Fn(&dyn Clock) -> u64| {
        let here = read(&*machine);
        let told = catch_unwind(AssertUnwindSafe(|| read(&**clock)));
        told.map_or(0, |told| told.wrapping_sub(here))
    };
    Arc::new(Guarded {
        wall_ahead: ahead(&|clock| clock.wall_micros()),
        monotonic_ahead: ahead(&|clock| clock.monotonic_nanos()),
        boot_ahead: ahead(&|clock| clock.boot_nanos()),
        clock: Arc::clone(clock),
        machine,
    })
}

/// See [`guarded`].
#[derive(Debug)]
struct Guarded {
    clock: Arc<dyn Clock>,
    machine: Arc<dyn Clock>,
    /// How far `clock` was ahead of `machine`, each in the unit of its method, modulo 2^64.
    wall_ahead: u64,
    monotonic_ahead: u64,
    boot_ahead: u64,
}

impl Guarded {
    /// What the clock says, or `otherwise` if it panics.
    fn ask<T>(&self, ask: impl Fn(&dyn Clock) -> T, otherwise: impl FnOnce(&dyn Clock) -> T) -> T {
        catch_unwind(AssertUnwindSafe(|| ask(&*self.clock)))
            .unwrap_or_else(|_| otherwise(&*self.machine))
    }
}

impl Clock for Guarded {
    fn wall_micros(&self) -> u64 {
        let otherwise = |machine: &dyn Clock| machine.wall_micros().wrapping_add(self.wall_ahead);
        self.ask(|clock| clock.wall_micros(), otherwise)
    }

    fn monotonic_nanos(&self) -> u64 {
        let ahead = self.monotonic_ahead;
        let otherwise = |machine: &dyn Clock| machine.monotonic_nanos().wrapping_add(ahead);
        self.ask(|clock| clock.monotonic_nanos(), otherwise)
    }

    fn boot_nanos(&self) -> u64 {
        let otherwise = |machine: &dyn Clock| machine.boot_nanos().wrapping_add(self.boot_ahead);
        self.ask(|clock| clock.boot_nanos(), otherwise)
    }

    fn thread_cpu_nanos(&self) -> u64 {
        self.ask(|clock| clock.thread_cpu_nanos(), |_| 0)
    }

    fn sleep(&self, time: Duration) {
        self.ask(|clock| clock.sleep(time), |machine| machine.sleep(time));
    }

    fn patience(&self, time: Duration) -> Duration {
        self.ask(|clock| clock.patience(time), |_| time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// An hour ahead in each unit; panics once it is broken.
    #[derive(Debug)]
    struct Breaks(AtomicBool);

    const AHEAD: u64 = 3_600_000_000_000;

    impl Breaks {
        fn or<T>(&self, told: T) -> T {
            assert!(!self.0.load(Ordering::Relaxed), "a part of the test");
            told
        }
    }

    impl Clock for Breaks {
        fn wall_micros(&self) -> u64 {
            self.or(AHEAD)
        }
        fn monotonic_nanos(&self) -> u64 {
            self.or(AHEAD)
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

    #[test]
    fn where_a_clock_panics_the_machines_goes_on() {
        let clock = Arc::new(Breaks(AtomicBool::new(false)));
        let guard = guarded(&(Arc::clone(&clock) as Arc<dyn Clock>));
        let all = |guard: &dyn Clock| {
            guard.sleep(Duration::from_nanos(1));
            let times = [
                guard.wall_micros(),
                guard.monotonic_nanos(),
                guard.boot_nanos(),
            ];
            (
                times,
                guard.thread_cpu_nanos(),
                guard.patience(Duration::MAX),
            )
        };
        assert_eq!(all(&*guard), ([AHEAD; 3], 7, Duration::ZERO));
        clock.0.store(true, Ordering::Relaxed);
        let (times, cpu, patience) = all(&*guard);
        // A minute in the smaller unit.
        for time in times {
            assert!((AHEAD..AHEAD + 60_000_000_000).contains(&time), "{time}");
        }
        assert_eq!((cpu, patience), (0, Duration::MAX));
    }

    #[test]
    fn a_clock_is_guarded_once() {
        let machine = SystemClock::shared();
        assert!(Arc::ptr_eq(&guarded(&machine), &machine));
        let guard = guarded(&(Arc::new(Breaks(AtomicBool::new(true))) as Arc<dyn Clock>));
        assert!(Arc::ptr_eq(&guarded(&guard), &guard));
    }
}
