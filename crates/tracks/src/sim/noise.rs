//! Faults of devices and the network: inexact positions, silence, late reports, duplicates and
//! wrong clocks.
//!
//! All of them are looked up by the object and the number of its report. A fault changes neither
//! where an object is nor when its n-th report is made: two simulations that differ only in their
//! faults can be compared report by report.

use std::ops::RangeInclusive;

use base::{Error, Result};

use super::chance::{Chance, What};
use super::drivers::Truth;
use super::flat::shifted;
use crate::model::point::{COURSE_END, Point, SPEED_END};
use crate::model::time::{SECOND, Time};

/// The least error of a wrong clock, µs.
const WRONG_CLOCK_LEAST: i64 = 60 * SECOND;
/// The longest time between a report and its duplicate, µs.
const DUPLICATE_AFTER: i64 = 5 * SECOND;
/// The error of a speed, cm/s, per metre of the position's error.
const SPEED_NOISE: f64 = 4.0;
/// The error of a course, 10⁻² degrees, per metre of the position's error.
const COURSE_NOISE: f64 = 40.0;

/// The faults. Shares are 0 to 1.
#[derive(Clone, Debug, PartialEq)]
pub struct Faults {
    /// The standard deviation of a position's error to the north, and to the east, metres, at most
    /// 1000; no error is more than 3.5 times as large. Errors of speeds and courses are
    /// proportional. 0: everything is exact.
    pub noise_m: f64,
    /// The mean time from a report to its arrival, ms, 0 to 3,600,000. It is uniform between 0 and
    /// twice the mean.
    pub latency_ms: u32,
    /// The share of reports that are never made, because the device does not know its position.
    pub gaps: f64,
    /// The share of reports that a device keeps while it has no network. They arrive together with
    /// its next report.
    pub bursts: f64,
    /// The mean number of reports in a row that are missing or kept, 2 to 1000. It is uniform
    /// between 2 and twice the mean less 2.
    pub outage_reports: u32,
    /// The order of reports that arrive together.
    pub order: Order,
    /// The share of reports that arrive again, among those that arrive alone or as the last of
    /// several. The duplicate arrives within five seconds and before the object's next report.
    pub duplicates: f64,
    /// The share of devices whose clock is ahead or behind.
    pub wrong_clocks: f64,
    /// The largest error of such a clock, ms, 60,000 to 86,400,000. Errors are uniform, and at
    /// least a minute.
    pub wrong_clock_ms: u32,
    /// The share of devices that have no clock: their reports have no time.
    pub no_clocks: f64,
}

/// The order of reports that were kept and the one after them, which all arrive at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// In the order in which they were made.
    #[default]
    OldestFirst,
    /// The newest first.
    NewestFirst,
}

impl Faults {
    /// No faults, and reports arrive at once.
    pub fn none() -> Self {
        Self {
            noise_m: 0.0,
            latency_ms: 0,
            gaps: 0.0,
            bursts: 0.0,
            outage_reports: 10,
            order: Order::OldestFirst,
            duplicates: 0.0,
            wrong_clocks: 0.0,
            wrong_clock_ms: 600_000,
            no_clocks: 0.0,
        }
    }

    /// Checks the faults. Errors: `InvalidArgument` names the option that is out of its range.
    pub fn check(&self) -> Result<()> {
        within("noise_m", self.noise_m, 0.0..=1000.0)?;
        within("latency_ms", self.latency_ms, 0..=3_600_000)?;
        within("gaps", self.gaps, 0.0..=1.0)?;
        within("bursts", self.bursts, 0.0..=1.0)?;
        within("outage_reports", self.outage_reports, 2..=1000)?;
        within("duplicates", self.duplicates, 0.0..=1.0)?;
        within("wrong_clocks", self.wrong_clocks, 0.0..=1.0)?;
        within("wrong_clock_ms", self.wrong_clock_ms, 60_000..=86_400_000)?;
        within("no_clocks", self.no_clocks, 0.0..=1.0)?;
        within("no_clocks", self.no_clocks + self.wrong_clocks, 0.0..=1.0).map_err(|e| {
            e.hint("no device has a wrong clock and none: both shares are 1 at most")
        })?;
        let (gap, burst) = self.outage_chances();
        if gap + burst <= 1.0 {
            return Ok(());
        }
        Err(Error::invalid_argument(format!(
            "gaps, bursts: {} and {} leave no report between two outages of {} reports",
            self.gaps, self.bursts, self.outage_reports
        )))
    }

    /// The probabilities that a report that arrives alone or last is followed by a gap, and by a
    /// burst.
    fn outage_chances(&self) -> (f64, f64) {
        let others = (1.0 - self.gaps - self.bursts).max(1e-9);
        let mean = f64::from(self.outage_reports);
        (self.gaps / others / mean, self.bursts / others / mean)
    }
}

impl Default for Faults {
    /// The faults of a fleet of cars with good devices: 5 m of noise, and a few of each other
    /// fault.
    fn default() -> Self {
        Self {
            noise_m: 5.0,
            latency_ms: 300,
            gaps: 0.02,
            bursts: 0.03,
            duplicates: 0.01,
            wrong_clocks: 0.01,
            no_clocks: 0.01,
            ..Self::none()
        }
    }
}

/// Errors: `InvalidArgument` names the option if its value is out of range.
pub(super) fn within<T>(option: &str, value: T, range: RangeInclusive<T>) -> Result<()>
where
    T: PartialOrd + std::fmt::Display,
{
    if range.contains(&value) {
        return Ok(());
    }
    Err(Error::invalid_argument(format!(
        "{option}: {value} is not within {} and {}",
        range.start(),
        range.end()
    )))
}

/// The clock of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Clock {
    /// It shows the right time.
    Right,
    /// It is ahead by this many µs, or behind if the number is negative.
    Wrong(i64),
    /// The device has no clock: its reports have no time.
    None,
}

impl Clock {
    /// The time that it shows.
    pub fn shows(self, time: Time) -> Option<Time> {
        match self {
            Self::Right => Some(time),
            Self::Wrong(by) => Some(Time(time.0 + by)),
            Self::None => None,
        }
    }
}

/// What happens after a report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    /// Whether it arrives again.
    pub(super) is_doubled: bool,
    /// How many of the next reports are not made.
    pub(super) missing: u32,
    /// How many of the next reports are kept.
    pub(super) kept: u32,
}

/// All devices.
#[derive(Debug)]
pub(super) struct Devices {
    chance: Chance,
    faults: Faults,
    gap: f64,
    burst: f64,
    start: i64,
    interval: i64,
}

impl Devices {
    /// Devices that report every `interval` µs from `start` on.
    pub(super) fn new(chance: Chance, faults: Faults, start: i64, interval: i64) -> Self {
        let (gap, burst) = faults.outage_chances();
        Self {
            chance,
            faults,
            gap,
            burst,
            start,
            interval,
        }
    }

    /// When an object's n-th report is made: at its turn, or up to half an interval later.
    pub(super) fn moment(&self, object: u32, nth: u32) -> Time {
        let late = self.chance.of(What::Moment, object, nth);
        let late = { late }.below(self.interval as u64 / 2);
        let turns = self.interval.saturating_mul(i64::from(nth));
        Time(self.begin(object).saturating_add(turns) + late as i64)
    }

    /// The first report whose turn is at a time, µs, or later.
    pub(super) fn first_at(&self, object: u32, time: i64) -> u32 {
        let since = (time - self.begin(object)).max(0) as u64;
        since.div_ceil(self.interval.max(1) as u64) as u32
    }

    fn begin(&self, object: u32) -> i64 {
        let phase = self.chance.of(What::Phase, object, 0);
        self.start + { phase }.below(self.interval as u64) as i64
    }

    /// How long a report takes to arrive, µs.
    pub(super) fn latency(&self, object: u32, nth: u32) -> i64 {
        let most = 2000 * u64::from(self.faults.latency_ms);
        if most == 0 {
            return 0;
        }
        self.chance.of(What::Latency, object, nth).below(most + 1) as i64
    }

    /// When a report that arrived at `arrival` arrives again; its object's next one arrives at
    /// `next`; µs.
    pub(super) fn again(&self, object: u32, nth: u32, (arrival, next): (i64, i64)) -> i64 {
        let most = (next - arrival).clamp(0, DUPLICATE_AFTER);
        let mut draw = self.chance.of(What::Again, object, nth);
        arrival + draw.below(most as u64) as i64
    }

    /// The order of reports that arrive together.
    pub(super) fn order(&self) -> Order {
        self.faults.order
    }

    pub(super) fn fate(&self, object: u32, nth: u32) -> Fate {
        let mut draw = self.chance.of(What::Fate, object, nth);
        let is_doubled = draw.happens(self.faults.duplicates);
        let which = draw.part();
        let count = 2 + draw.below(2 * u64::from(self.faults.outage_reports) - 3) as u32;
        let (missing, kept) = if which < self.gap {
            (count, 0)
        } else if which < self.gap + self.burst {
            (0, count)
        } else {
            (0, 0)
        };
        Fate {
            is_doubled,
            missing,
            kept,
        }
    }

    pub(super) fn clock(&self, object: u32) -> Clock {
        let mut draw = self.chance.of(What::Clock, object, 0);
        let which = draw.part();
        if which < self.faults.wrong_clocks {
            let more = i64::from(self.faults.wrong_clock_ms) * 1000 - WRONG_CLOCK_LEAST;
            let by = WRONG_CLOCK_LEAST + draw.below(more as u64 + 1) as i64;
            Clock::Wrong(if draw.happens(0.5) { by } else { -by })
        } else if which < self.faults.wrong_clocks + self.faults.no_clocks {
            Clock::None
        } else {
            Clock::Right
        }
    }

    /// The point of an object's n-th report.
    pub(super) fn point(&self, object: u32, nth: u32, truth: &Truth) -> Point {
        let noise = self.faults.noise_m;
        let mut point = Point::at(truth.position);
        let (mut speed, mut course) = (truth.speed * 100.0, f64::from(truth.course));
        if noise > 0.0 {
            let mut draw = self.chance.of(What::Noise, object, nth);
            point.position = shifted(truth.position, noise * draw.bell(), noise * draw.bell());
            // About two thirds of the positions are within it.
            point.accuracy = Some((noise * 15.0).ceil() as u16);
            if !truth.is_parked {
                speed += SPEED_NOISE * noise * draw.bell();
                course += COURSE_NOISE * noise * draw.bell();
            }
        }
        point.speed = Some(speed.round().clamp(0.0, f64::from(SPEED_END - 1)) as u16);
        // An object that stands still has no course.
        if !truth.is_parked {
            let course = (course.round() as i64).rem_euclid(COURSE_END.into());
            point.course = Some(course as u16);
        }
        point
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::distance::distance;
    use crate::geo::position::at;
    use crate::sim::plan::Road;

    fn devices(faults: Faults) -> Devices {
        faults.check().unwrap();
        Devices::new(Chance::new(3), faults, 1000, 500_000)
    }

    #[test]
    fn moments_go_on_in_turns() {
        let devices = devices(Faults::none());
        for object in 0..50 {
            let mut last = 0;
            for nth in 0..200 {
                let Time(time) = devices.moment(object, nth);
                let turn = 1000 + 500_000 * i64::from(nth);
                assert!((turn..turn + 750_000).contains(&time) && time > last);
                last = time;
            }
            let nth = devices.first_at(object, 7_654_321);
            assert!(devices.moment(object, nth).0 >= 7_654_321);
            assert!(devices.moment(object, nth - 1).0 < 7_654_321 + 250_000);
            assert_eq!(devices.first_at(object, 0), 0);
        }
    }

    #[test]
    fn noise_is_as_great_as_asked() {
        let devices = devices(Faults {
            noise_m: 10.0,
            ..Faults::none()
        });
        let mut truth = Truth {
            position: at(59.0, 18.0),
            speed: 10.0,
            course: 5,
            road: Road::Main,
            is_parked: false,
        };
        let (mut squares, mut near, mut turned) = (0.0, 0, 0);
        for nth in 0..10_000 {
            let point = devices.point(1, nth, &truth);
            point.check().unwrap();
            let off = distance(point.position, truth.position);
            assert!(off < 10.0 * 3.5 * 2.0_f64.sqrt());
            squares += off * off;
            near += u32::from(off * 10.0 <= f64::from(point.accuracy.unwrap()));
            assert!((850..1150).contains(&point.speed.unwrap()));
            turned += u32::from(point.course.unwrap() > 30_000);
        }
        let deviation = (squares / 20_000.0_f64).sqrt();
        assert!((9.8..10.2).contains(&deviation), "{deviation}");
        assert!((6000..7500).contains(&near), "{near}");
        // A course slightly east of north is reported as west of it in half of all cases.
        assert!((4500..5500).contains(&turned), "{turned}");
        (truth.speed, truth.is_parked) = (0.0, true);
        let point = devices.point(1, 1, &truth);
        assert_eq!((point.speed, point.course), (Some(0), None));
    }

    #[test]
    fn clocks_are_wrong_by_minutes() {
        let devices = devices(Faults {
            wrong_clocks: 0.3,
            wrong_clock_ms: 120_000,
            no_clocks: 0.2,
            ..Faults::none()
        });
        let (mut ahead, mut behind, mut none) = (0, 0, 0);
        for object in 0..10_000 {
            match devices.clock(object) {
                Clock::Right => {}
                Clock::Wrong(by) => {
                    assert!((60 * SECOND..=120 * SECOND).contains(&by.abs()));
                    *(if by > 0 { &mut ahead } else { &mut behind }) += 1;
                }
                Clock::None => none += 1,
            }
        }
        assert!((1400..1600).contains(&ahead) && (1400..1600).contains(&behind));
        assert!((1900..2100).contains(&none), "{none}");
    }

    #[test]
    fn what_is_out_of_range_is_refused_by_name() {
        type Change = fn(&mut Faults);
        let bad: [(&str, Change); 13] = [
            ("noise_m", |f| f.noise_m = -1.0),
            ("noise_m", |f| f.noise_m = f64::NAN),
            ("latency_ms", |f| f.latency_ms = 3_600_001),
            ("gaps", |f| f.gaps = 1.1),
            ("bursts", |f| f.bursts = -0.1),
            ("outage_reports", |f| f.outage_reports = 1),
            ("outage_reports", |f| f.outage_reports = 1001),
            ("duplicates", |f| f.duplicates = 2.0),
            ("wrong_clocks", |f| f.wrong_clocks = f64::INFINITY),
            ("wrong_clock_ms", |f| f.wrong_clock_ms = 59_999),
            ("no_clocks", |f| f.no_clocks = 1.5),
            ("no_clocks", |f| (f.no_clocks, f.wrong_clocks) = (0.6, 0.6)),
            ("gaps, bursts", |f| (f.gaps, f.bursts) = (0.6, 0.4)),
        ];
        for (option, change) in bad {
            let mut faults = Faults::default();
            change(&mut faults);
            let e = faults.check().unwrap_err();
            assert_eq!(e.kind(), base::ErrorKind::InvalidArgument);
            assert!(e.to_string().contains(&format!("{option}: ")), "{e}");
        }
    }
}
