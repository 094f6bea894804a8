//! Simulated clocks: each node's time, derived from the true time.
//!
//! ```text
//!   TrueTime ──rate, offset, jumps──> NodeClock: boottime and wall clock of one node
//! ```
//!
//! Only the scheduler advances [`TrueTime`]. A node's boottime runs at its own rate from its own beginning,
//! so the readings of two nodes cannot be compared. The wall clock is the boottime plus an offset that may
//! jump. Boottime never goes back and, like CLOCK_BOOTTIME, advances while a node is paused. There are
//! machines on which that does not hold, and leases are unsafe on them: [`NodeClock::stop`] and
//! [`NodeClock::set_back`] are faults that a test must request by name.
//!
//! Rates are parts in a million of the true rate. Readings are rounded down, which never makes a clock go
//! back: between two changes, a reading is a fixed start plus a rounded part of the time since.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, MutexGuard, PoisonError};

use super::node::NodeId;

/// The true time in nanoseconds of the simulation. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct TrueTime(Arc<AtomicU64>);

impl TrueTime {
    /// The true time now.
    pub fn now(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Advances the true time to `now`.
    ///
    /// # Panics
    /// If that is the past.
    pub fn set(&self, now: u64) {
        let before = self.0.swap(now, Ordering::Relaxed);
        assert!(before <= now, "time went back from {before} to {now} ns");
    }
}

/// A million: the true rate.
const MILLION: i64 = 1_000_000;

/// How one clock deviates from the true time, from some moment on.
#[derive(Clone, Copy, Debug)]
struct Course {
    /// The true time of that moment.
    from: u64,
    /// The boottime at that moment.
    boottime: u64,
    /// By how many parts in a million it is fast; a stopped clock is a million slow.
    fast_ppm: i64,
    /// By how much the wall clock is ahead of the boottime, in nanoseconds.
    wall_ahead: i64,
}

impl Course {
    fn boottime(&self, now: u64) -> u64 {
        let rate = (MILLION + self.fast_ppm) as u128;
        let passed = u128::from(now.saturating_sub(self.from)) * rate / MILLION as u128;
        self.boottime
            .saturating_add(u64::try_from(passed).unwrap_or(u64::MAX))
    }

    /// The same course, expressed from another moment on.
    fn at(&self, now: u64) -> Self {
        Self {
            from: now,
            boottime: self.boottime(now),
            ..*self
        }
    }
}

/// The reading of a correct wall clock when the simulation begins.
const EPOCH_NANOS: i64 = 1_700_000_000_000_000_000;

/// The clocks of one node. Clones share them. They survive the node's process.
#[derive(Clone)]
pub struct NodeClock {
    truth: TrueTime,
    course: Arc<Mutex<Course>>,
}

impl NodeClock {
    /// Correct clocks, except that boottime began `up_nanos` before the simulation.
    pub fn new(truth: &TrueTime, up_nanos: u64) -> Self {
        let now = truth.now();
        let boottime = now.saturating_add(up_nanos);
        Self {
            truth: truth.clone(),
            course: Arc::new(Mutex::new(Course {
                from: now,
                boottime,
                fast_ppm: 0,
                wall_ahead: EPOCH_NANOS + now as i64 - boottime as i64,
            })),
        }
    }

    /// The clock as the product takes it.
    pub fn shared(&self) -> Arc<dyn Clock> {
        Arc::new(self.clone())
    }

    /// Nanoseconds since the node was booted, like CLOCK_BOOTTIME.
    pub fn boottime_nanos(&self) -> u64 {
        self.lock().boottime(self.truth.now())
    }

    /// The true time at which the boottime reaches `boottime`, if nothing changes; now if it has passed;
    /// `None` if it never does. A node's timers fire then.
    pub fn when(&self, boottime: u64) -> Option<u64> {
        let (course, now) = (*self.lock(), self.truth.now());
        let wait = boottime.saturating_sub(course.boottime(now));
        let rate = (MILLION + course.fast_ppm) as u128;
        match (wait, rate) {
            (0, _) => Some(now),
            (_, 0) => None,
            _ => {
                let passed = u128::from(boottime - course.boottime) * MILLION as u128;
                let passed = u64::try_from(passed.div_ceil(rate)).ok()?;
                course.from.checked_add(passed)
            }
        }
    }

    /// Sets the rate: this many parts in a million fast, or slow if negative.
    ///
    /// # Panics
    /// If that would be backwards.
    pub fn set_rate(&self, fast_ppm: i64) {
        assert!(
            fast_ppm >= -MILLION,
            "a clock that goes back: {fast_ppm} ppm"
        );
        self.change(|course| course.fast_ppm = fast_ppm);
    }

    /// The wall clock jumps, forward or back.
    pub fn jump_wall(&self, by_nanos: i64) {
        self.change(|course| course.wall_ahead = course.wall_ahead.saturating_add(by_nanos));
    }

    /// Both clocks jump forward, as after a machine's sleep.
    pub fn jump_forward(&self, by_nanos: u64) {
        self.change(|course| course.boottime = course.boottime.saturating_add(by_nanos));
    }

    /// A broken machine: both clocks stop until the rate is set.
    pub fn stop(&self) {
        self.set_rate(-MILLION);
    }

    /// A broken machine: boottime and the wall clock go back.
    pub fn set_back(&self, by_nanos: u64) {
        self.change(|course| course.boottime = course.boottime.saturating_sub(by_nanos));
    }

    /// Restores the true rate and the true wall clock; boottime continues from where it is.
    pub fn heal(&self) {
        let now = self.truth.now();
        self.change(|course| {
            course.fast_ppm = 0;
            course.wall_ahead = EPOCH_NANOS + now as i64 - course.boottime as i64;
        });
    }

    fn change(&self, how: impl FnOnce(&mut Course)) {
        let now = self.truth.now();
        let mut course = self.lock();
        *course = course.at(now);
        how(&mut course);
    }

    fn lock(&self) -> MutexGuard<'_, Course> {
        self.course.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for NodeClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (course, now) = (*self.lock(), self.truth.now());
        write!(
            f,
            "{} at {now}, {} ppm fast",
            course.boottime(now),
            course.fast_ppm
        )
    }
}

impl Clock for NodeClock {
    fn wall_micros(&self) -> u64 {
        let (course, now) = (*self.lock(), self.truth.now());
        let nanos = (course.boottime(now) as i64).saturating_add(course.wall_ahead);
        u64::try_from(nanos / 1000).unwrap_or(0)
    }

    /// Boottime, with its faults: a node has a single clock for leases and timers.
    fn monotonic_nanos(&self) -> u64 {
        self.boottime_nanos()
    }

    /// Yields to other threads. Time does not pass: only the scheduler advances it.
    fn sleep(&self, _time: Duration) {
        base::sync::thread::yield_now();
    }
}

/// The paused nodes, as after SIGSTOP: a node's process stands still while its clocks and its peers go on.
#[derive(Clone, Debug, Default)]
pub struct Pauses(Vec<(NodeId, u64)>);

impl Pauses {
    /// Pauses the node until then; a longer pause stays as it is.
    pub fn pause(&mut self, node: NodeId, until: u64) {
        match self.0.iter_mut().find(|p| p.0 == node) {
            Some(pause) => pause.1 = pause.1.max(until),
            None => self.0.push((node, until)),
        }
    }

    /// Ends the pause of a node.
    pub fn resume(&mut self, node: NodeId) {
        self.0.retain(|p| p.0 != node);
    }

    /// Ends all pauses.
    pub fn heal(&mut self) {
        self.0.clear();
    }

    /// When an event of the node that is due at `at` happens.
    pub fn runs_at(&self, node: NodeId, at: u64) -> u64 {
        let until = self.0.iter().find(|p| p.0 == node).map_or(0, |p| p.1);
        at.max(until)
    }

    /// Whether the node is paused at this moment.
    pub fn is_paused(&self, node: NodeId, now: u64) -> bool {
        self.runs_at(node, now) > now
    }
}

#[cfg(test)]
mod tests {
    use base::rng::Rng;

    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn a_clock_that_is_right_shows_the_time() {
        let truth = TrueTime::default();
        let clock = NodeClock::new(&truth, 5 * SECOND);
        truth.set(SECOND);
        assert_eq!(clock.boottime_nanos(), 6 * SECOND);
        assert_eq!(clock.shared().monotonic_nanos(), 6 * SECOND);
        assert_eq!(clock.wall_micros(), 1_700_000_001_000_000);
        assert_eq!(clock.when(7 * SECOND), Some(2 * SECOND));
        assert_eq!(clock.when(2 * SECOND), Some(SECOND));
    }

    #[test]
    fn rates_and_jumps() {
        let truth = TrueTime::default();
        let clock = NodeClock::new(&truth, 0);
        clock.set_rate(500_000);
        truth.set(2 * SECOND);
        assert_eq!(clock.boottime_nanos(), 3 * SECOND);
        clock.set_rate(-500_000);
        truth.set(4 * SECOND);
        assert_eq!(clock.boottime_nanos(), 4 * SECOND);
        clock.jump_wall(-(10 * SECOND as i64));
        assert_eq!(clock.wall_micros(), 1_699_999_994_000_000);
        assert_eq!(clock.boottime_nanos(), 4 * SECOND);
        clock.jump_forward(SECOND);
        assert_eq!(clock.boottime_nanos(), 5 * SECOND);
        clock.heal();
        assert_eq!(clock.wall_micros(), 1_700_000_004_000_000);
        truth.set(5 * SECOND);
        assert_eq!(clock.boottime_nanos(), 6 * SECOND);
    }

    #[test]
    fn broken_clocks_are_asked_for_by_name() {
        let truth = TrueTime::default();
        let clock = NodeClock::new(&truth, SECOND);
        clock.stop();
        truth.set(9 * SECOND);
        assert_eq!(clock.boottime_nanos(), SECOND);
        assert_eq!(clock.when(SECOND + 1), None);
        clock.set_rate(0);
        truth.set(10 * SECOND);
        assert_eq!(clock.boottime_nanos(), 2 * SECOND);
        clock.set_back(SECOND / 2);
        assert_eq!(clock.boottime_nanos(), 3 * SECOND / 2);
    }

    #[test]
    #[should_panic(expected = "time went back")]
    fn the_truth_never_goes_back() {
        let truth = TrueTime::default();
        truth.set(2);
        truth.set(1);
    }

    #[test]
    fn boottime_never_goes_back_and_timers_are_exact() {
        let mut rng = Rng::new(8);
        for _ in 0..200 {
            let truth = TrueTime::default();
            let clock = NodeClock::new(&truth, rng.below(100 * SECOND));
            let mut last = clock.boottime_nanos();
            for _ in 0..100 {
                truth.set(truth.now() + rng.below(SECOND));
                match rng.below(4) {
                    0 => clock.set_rate(rng.below(2000) as i64 - 1000),
                    1 => clock.jump_wall(rng.below(1000) as i64 - 500),
                    2 => clock.jump_forward(rng.below(1000)),
                    _ => {}
                }
                let boottime = clock.boottime_nanos();
                assert!(boottime >= last);
                last = boottime;
                let due = boottime + rng.below(3 * SECOND);
                let when = clock.when(due).unwrap();
                // At that moment it is due, and not a nanosecond before.
                let course = *clock.lock();
                assert!(course.boottime(when) >= due);
                assert!(when == truth.now() || course.boottime(when - 1) < due);
            }
        }
    }

    #[test]
    fn a_paused_node_runs_later() {
        const ONE: NodeId = NodeId(1);
        let mut pauses = Pauses::default();
        assert_eq!(pauses.runs_at(ONE, 5), 5);
        pauses.pause(ONE, 10);
        pauses.pause(ONE, 8);
        assert_eq!((pauses.runs_at(ONE, 5), pauses.runs_at(ONE, 12)), (10, 12));
        assert!(
            pauses.is_paused(ONE, 9)
                && !pauses.is_paused(ONE, 10)
                && !pauses.is_paused(NodeId(2), 9)
        );
        pauses.resume(ONE);
        assert_eq!(pauses.runs_at(ONE, 5), 5);
    }
}
