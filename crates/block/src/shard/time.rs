//! A time that always advances, even if the clock is faulty.
//!
//! Leases and elections are measured with CLOCK_BOOTTIME, which advances while a machine sleeps and never goes
//! back. With a faulty hypervisor or driver it does go back, or stands still. Then the time continues from
//! where it was, by the monotonic clock as long as that one is correct. The caller is told, because all leases
//! are void then: nobody knows how long the fault lasted.
//!
//! If the clock stands still together with all other clocks of the machine, that cannot be noticed. Where that
//! can happen, reads must not rely on leases: see [`ReadMode`].

use base::{Error, Result};

/// How a leader makes sure that it still leads when it serves a read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadMode {
    /// By its lease, which is valid if the clocks of all stores run at the same speed.
    #[default]
    Lease,
    /// By a round of heartbeats for each batch of reads, independent of clocks.
    ReadIndex,
}

impl std::str::FromStr for ReadMode {
    type Err = Error;

    fn from_str(s: &str) -> Result<Self> {
        match s {
            "lease" => Ok(Self::Lease),
            "read_index" => Ok(Self::ReadIndex),
            _ => Err(Error::invalid_argument(format!(
                "read_mode is lease or read_index, not {s}"
            ))),
        }
    }
}

/// The most that two correct clocks may differ by, in nanoseconds: they are read one after the other.
const TOLERANCE_NANOS: u64 = 10_000_000;

/// A time that always advances.
#[derive(Clone, Copy, Debug, Default)]
pub struct Time {
    latest: u64,
    /// Nanoseconds that the clock has lost so far.
    ahead: u64,
    /// The smallest possible lead of the monotonic clock over the other since the last loss.
    least: Option<i64>,
}

impl Time {
    /// The time now, and what the clock has lost since the last call, both in nanoseconds. `monotonic`: the
    /// monotonic clock before and after the other was read; the thread may have been preempted in between.
    pub fn at(&mut self, boot: u64, monotonic: [u64; 2]) -> (u64, Option<u64>) {
        let [surely, maybe] = monotonic.map(|m| m.wrapping_sub(boot).cast_signed());
        let least = *self.least.get_or_insert(maybe);
        let behind_the_other = u64::try_from(surely.saturating_sub(least)).unwrap_or(0);
        let behind_itself = self.latest.saturating_sub(boot.saturating_add(self.ahead));
        let lost = behind_the_other.max(behind_itself);
        let lost = (lost > TOLERANCE_NANOS).then_some(lost);
        self.least = Some(if lost.is_some() {
            maybe
        } else {
            least.min(maybe)
        });
        self.ahead = self.ahead.saturating_add(lost.unwrap_or(0));
        self.latest = self.latest.max(boot.saturating_add(self.ahead));
        (self.latest, lost)
    }

    /// The clock's reading at this time, if nothing is lost until then.
    pub fn reading_at(&self, time: u64) -> u64 {
        time.saturating_sub(self.ahead)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Both clocks are read at the same moment.
    fn at(time: &mut Time, boot: u64, monotonic: u64) -> (u64, Option<u64>) {
        time.at(boot, [monotonic; 2])
    }

    #[test]
    fn a_clock_that_is_right_is_believed() {
        let mut time = Time::default();
        assert_eq!(at(&mut time, 5000 * MS, 100 * MS), (5000 * MS, None));
        assert_eq!(at(&mut time, 5100 * MS, 201 * MS), (5100 * MS, None));
        // The machine was asleep: the monotonic clock did not advance.
        assert_eq!(at(&mut time, 99_000 * MS, 210 * MS), (99_000 * MS, None));
        assert_eq!(at(&mut time, 99_100 * MS, 310 * MS), (99_100 * MS, None));
        assert_eq!(time.reading_at(99_100 * MS), 99_100 * MS);
    }

    /// A correct clock was taken for faulty if the thread was preempted between reading the two.
    #[test]
    fn a_look_that_takes_long_is_no_wrong_clock() {
        let mut time = Time::default();
        for n in 1..100 {
            let boot = n * 1000 * MS;
            let slow = [boot - n % 3 * 300 * MS, boot + n % 5 * 200 * MS];
            assert_eq!(time.at(boot, slow), (boot, None));
        }
        assert!(time.at(99_000 * MS, [101_000 * MS; 2]).1.is_some());
    }

    #[test]
    fn time_goes_on_where_the_clock_goes_back() {
        let mut time = Time::default();
        assert_eq!(at(&mut time, 5000 * MS, 5000 * MS), (5000 * MS, None));
        assert_eq!(
            at(&mut time, 3000 * MS, 5100 * MS),
            (5100 * MS, Some(2100 * MS))
        );
        assert_eq!(at(&mut time, 3100 * MS, 5200 * MS), (5200 * MS, None));
        assert_eq!(time.reading_at(5300 * MS), 3200 * MS);
        // Both clocks go back: nobody knows how long that took.
        assert_eq!(
            at(&mut time, 100 * MS, 200 * MS),
            (5200 * MS, Some(3000 * MS))
        );
        assert_eq!(at(&mut time, 200 * MS, 300 * MS), (5300 * MS, None));
    }

    #[test]
    fn time_goes_on_where_the_clock_stands_still() {
        let mut time = Time::default();
        at(&mut time, 1000 * MS, 500 * MS);
        let mut lost = 0;
        for n in 1..=100 {
            let (now, by) = at(&mut time, 1000 * MS, (500 + n) * MS);
            lost += by.unwrap_or(0);
            assert!((1000 * MS..=(1000 + n) * MS).contains(&now));
            assert!(now + TOLERANCE_NANOS >= (1000 + n) * MS);
        }
        assert!(lost >= 80 * MS);
    }

    #[test]
    fn small_steps_back_do_not_add_up() {
        let mut time = Time::default();
        at(&mut time, 1000 * MS, 1000 * MS);
        let mut before = 0;
        for n in 1..=100 {
            // A clock of half the speed, which goes back each time.
            let (now, _) = at(&mut time, 1000 * MS + n * MS / 2, (1000 + n) * MS);
            assert!(now >= before);
            before = now;
        }
        assert!(before + TOLERANCE_NANOS >= 1100 * MS);
    }
}
