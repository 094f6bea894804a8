//! Traffic of a simulated city: objects drive on roads and report their positions, with the faults
//! of real devices.
//!
//! For tests, benchmarks and demonstrations. Everything is a function of the options: there is no
//! clock and no I/O, and the same seed gives the same reports. The truth is known: each report
//! comes with its true time and position, and [`Traffic::truth`] tells where an object is at any
//! time.
//!
//! ```text
//!   chance    random numbers, looked up by decision
//!   flat      metres north and east
//!   plan      the roads of a city
//!   roads     the city, and the fastest ways in it
//!   drivers   objects that drive, park, and drive on
//!   noise     faults of devices and the network
//!   wheel     which object's report arrives next
//! ```
//!
//! ```
//! use tracks::geo::position::Position;
//! use tracks::sim::{Options, Traffic, Way, noise::Faults, plan::Plan};
//!
//! let options = Options {
//!     objects: 50,
//!     plan: Plan {
//!         radius_m: 2000.0,
//!         destinations: 20,
//!         ..Plan::around(Position::of_degrees(59.3293, 18.0686)?)
//!     },
//!     faults: Faults {
//!         duplicates: 0.1,
//!         ..Faults::none()
//!     },
//!     ..Options::default()
//! };
//! let sent: Vec<_> = Traffic::new(&options)?.take(1000).collect();
//! assert!(sent.iter().any(|sent| sent.way == Way::Again));
//! for sent in &sent {
//!     assert!(sent.report.entity.as_str().starts_with("car-0000"));
//!     assert_eq!(sent.report.point.position, sent.truth.position);
//! }
//! # Ok::<(), base::Error>(())
//! ```

mod chance;
pub mod drivers;
mod flat;
pub mod noise;
pub mod plan;
pub mod roads;
mod wheel;

use std::collections::VecDeque;
use std::fmt::Write;
use std::sync::Arc;

use base::Result;

use self::chance::Chance;
use self::drivers::{Driver, Traits, Truth};
use self::noise::{Clock, Devices, Fate, Faults, Order, within};
use self::plan::Plan;
use self::roads::City;
use self::wheel::Wheel;
use crate::geo::cell::Cell;
use crate::model::name::Name;
use crate::model::report::Report;
use crate::model::time::{SECOND, Time};

/// Stands for no cell.
const NO_CELL: u64 = u64::MAX;

/// The options of a simulation.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Another seed gives different traffic in the same city.
    pub seed: u64,
    /// The number of the first object. An object behaves the same whichever other objects there
    /// are, so that the objects can be distributed among threads.
    pub first: u32,
    /// The number of objects, 1 to 100,000,000.
    pub objects: u32,
    /// The prefix of the names of objects; their numbers follow, with at least six digits.
    pub prefix: String,
    /// The start time, 1970 to 2200.
    pub start: Time,
    /// The city.
    pub plan: Plan,
    /// The mean time between two reports of an object, ms, 100 to 86,400,000. Each one is between
    /// half and one and a half of it.
    pub interval_ms: u32,
    /// The mean time of a stop, ms, 0 to 604,800,000. Each one is between a quarter and seven
    /// quarters of it. 0: objects never stop.
    pub stop_ms: u32,
    /// A report is made only if its cell of depth 40 differs from that of the object's report
    /// before: no two consecutive reports of an object, in the order of their true times, are in
    /// one cell. Parked objects do not report, and objects that are still in the same cell wait for
    /// their next turns, so that there are fewer reports than [`Options::interval_ms`] says.
    /// `duplicates` must be 0.
    pub each_report_changes_cell: bool,
    /// The faults of devices and the network.
    pub faults: Faults,
}

impl Options {
    /// Options without any fault.
    pub fn clean() -> Self {
        Self {
            faults: Faults::none(),
            ..Self::default()
        }
    }

    /// Checks the options. Errors: `InvalidArgument` names the option that is out of its range.
    pub fn check(&self) -> Result<()> {
        within("objects", self.objects, 1..=100_000_000)?;
        within("first", self.first, 0..=u32::MAX - self.objects)?;
        within("start", self.start.0 / SECOND, 0..=7_258_118_400)?;
        within("interval_ms", self.interval_ms, 100..=86_400_000)?;
        within("stop_ms", self.stop_ms, 0..=604_800_000)?;
        if self.each_report_changes_cell {
            within("duplicates", self.faults.duplicates, 0.0..=0.0)
                .map_err(|e| e.hint("a duplicate is in the same cell: each_report_changes_cell"))?;
        }
        Name::new(&format!("{}{}", self.prefix, u32::MAX))?;
        self.faults.check()?;
        self.plan.check()
    }
}

impl Default for Options {
    /// 1000 cars around latitude 0, longitude 0 that report every 10 seconds, stop for 10 minutes,
    /// and have the usual faults.
    fn default() -> Self {
        Self {
            seed: 1,
            first: 0,
            objects: 1000,
            prefix: "car-".to_owned(),
            start: Time(1_767_225_600 * SECOND),
            plan: Plan::default(),
            interval_ms: 10_000,
            stop_ms: 600_000,
            each_report_changes_cell: false,
            faults: Faults::default(),
        }
    }
}

/// How a report arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// After the latency of the network.
    Live,
    /// Late: the device kept it while it had no network.
    Kept,
    /// As a duplicate of one that was [`Way::Live`].
    Again,
}

/// A report that arrives, with the truth.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// The number of the object.
    pub object: u32,
    /// The number of the report among the object's. Missing numbers were not made.
    pub nth: u32,
    /// The time of its arrival.
    pub arrival: Time,
    /// The true time of the report.
    pub time: Time,
    /// The true position of the object at that time.
    pub truth: Truth,
    /// How it arrives.
    pub way: Way,
    /// The clock of the device.
    pub clock: Clock,
    /// The report that the device sends.
    pub report: Report,
}

/// An object, and its next arrival.
#[derive(Clone, Debug)]
struct Object {
    driver: Driver,
    /// The number of the report that arrives next.
    nth: u32,
    /// How many reports before it arrive together with it.
    kept: u16,
    /// Whether the next arrival is a duplicate.
    is_again: bool,
    /// The cell of the last report, if cells have to change.
    cell: u64,
}

/// The parameters that all objects share.
#[derive(Debug)]
struct World {
    city: Arc<City>,
    traits: Traits,
    devices: Devices,
    prefix: String,
    first: u32,
    is_by_cell: bool,
}

/// Reports in the order of their arrival, without an end. Those that arrive at the same time are in
/// the order of their objects, and those of one object are in the order of [`Order`].
///
/// An object takes 72 bytes, and a city with the default plan about 3 MB.
#[derive(Debug)]
pub struct Traffic {
    world: World,
    objects: Vec<Object>,
    wheel: Wheel,
    /// The reports that arrive now.
    ready: VecDeque<Sent>,
    now: Time,
}

impl Traffic {
    /// Starts the traffic. Errors: `InvalidArgument` if an option is out of its range.
    pub fn new(options: &Options) -> Result<Self> {
        options.check()?;
        Self::in_city(Arc::new(City::new(&options.plan)?), options)
    }

    /// Like [`Traffic::new`], in an existing city; [`Options::plan`] is ignored. Errors: as there.
    pub fn in_city(city: Arc<City>, options: &Options) -> Result<Self> {
        options.check()?;
        let chance = Chance::new(options.seed);
        let Time(start) = options.start;
        let interval = i64::from(options.interval_ms) * 1000;
        let stop = i64::from(options.stop_ms) * 1000;
        let world = World {
            city,
            traits: Traits {
                chance,
                start,
                stop,
            },
            devices: Devices::new(chance, options.faults.clone(), start, interval),
            prefix: options.prefix.clone(),
            first: options.first,
            is_by_cell: options.each_report_changes_cell,
        };
        let mut wheel = Wheel::new(options.objects, interval, start);
        let object = |place| {
            let number = world.first + place;
            wheel.put(place, world.arrival(number, 0));
            Object {
                driver: Driver::new(number, &world.city, &world.traits),
                nth: 0,
                kept: 0,
                is_again: false,
                cell: NO_CELL,
            }
        };
        Ok(Self {
            objects: (0..options.objects).map(object).collect(),
            world,
            wheel,
            ready: VecDeque::new(),
            now: options.start,
        })
    }

    /// The arrival of the last report that was returned; at first, the start.
    pub fn now(&self) -> Time {
        self.now
    }

    /// The city.
    pub fn city(&self) -> &Arc<City> {
        &self.world.city
    }

    /// The name of an object.
    pub fn name(&self, object: u32) -> Name {
        self.world.name(object)
    }

    /// The true position of an object at a time, and its movement. Times far before or after
    /// [`Traffic::now`] take longer. `None` if there is no such object, or the time is before the
    /// start.
    pub fn truth(&self, object: u32, at: Time) -> Option<Truth> {
        let World { city, traits, .. } = &self.world;
        let place = object.checked_sub(self.world.first)?;
        let mut driver = self.objects.get(place as usize)?.driver;
        if at.0 < traits.start {
            return None;
        }
        if at.0 < driver.begin() {
            driver = Driver::new(object, city, traits);
        }
        driver.drive(at.0, city, traits);
        Some(driver.truth(at, city))
    }

    /// Makes the reports of an object that are due at `due` arrive, and schedules its next arrival.
    fn arrive(&mut self, place: u32, due: i64) {
        let Self { world, ready, .. } = self;
        let Some(object) = self.objects.get_mut(place as usize) else {
            return;
        };
        let (nth, arrival) = (object.nth, Time(due));
        let way = if object.is_again {
            Way::Again
        } else {
            Way::Live
        };
        for kept in nth.saturating_sub(object.kept.into())..nth {
            ready.extend(world.send(object, kept, arrival, Way::Kept));
        }
        let last = world.send(object, nth, arrival, way);
        let is_made = last.is_some();
        ready.extend(last);
        if world.devices.order() == Order::NewestFirst {
            ready.make_contiguous().reverse();
        }
        let due = world.plan_next(object, (is_made, way), due);
        self.wheel.put(place, due);
    }
}

impl Iterator for Traffic {
    type Item = Sent;

    fn next(&mut self) -> Option<Sent> {
        while self.ready.is_empty() {
            let (place, due) = self.wheel.take()?;
            self.arrive(place, due);
        }
        let sent = self.ready.pop_front()?;
        self.now = sent.arrival;
        Some(sent)
    }
}

impl World {
    fn name(&self, object: u32) -> Name {
        let mut text = String::with_capacity(self.prefix.len() + 10);
        text.push_str(&self.prefix);
        write!(text, "{object:06}").expect("a String takes all text");
        Name::new(&text).expect("the prefix was checked with a number of ten digits")
    }

    /// The arrival of an object's n-th report, µs, as far as the network is concerned.
    fn arrival(&self, object: u32, nth: u32) -> i64 {
        self.devices.moment(object, nth).0 + self.devices.latency(object, nth)
    }

    /// An object's n-th report. `None` if it is not made, because the cell is the same.
    fn send(&self, object: &mut Object, nth: u32, arrival: Time, way: Way) -> Option<Sent> {
        let number = object.driver.object();
        let time = self.devices.moment(number, nth);
        object.driver.drive(time.0, &self.city, &self.traits);
        let truth = object.driver.truth(time, &self.city);
        if self.is_by_cell && truth.is_parked {
            return None;
        }
        let point = self.devices.point(number, nth, &truth);
        if self.is_by_cell {
            let (cell, _) = Cell::of(point.position).range();
            if std::mem::replace(&mut object.cell, cell) == cell {
                return None;
            }
        }
        let clock = self.devices.clock(number);
        Some(Sent {
            object: number,
            nth,
            arrival,
            time,
            truth,
            way,
            clock,
            report: Report {
                entity: self.name(number),
                time: clock.shows(time),
                point,
            },
        })
    }

    /// Decides which report of an object arrives next, after one that was or was not made and
    /// arrived at `now`. Returns its time, µs.
    fn plan_next(&self, object: &mut Object, (is_made, way): (bool, Way), now: i64) -> i64 {
        let (number, nth) = (object.driver.object(), object.nth);
        let mut next = nth + 1;
        let mut fate = Fate::default();
        if is_made {
            fate = self.devices.fate(number, nth);
            next += fate.missing + fate.kept;
        } else if let Some(end) = object.driver.parked_until() {
            next = next.max(self.devices.first_at(number, end));
        }
        let due = self.arrival(number, next).max(now);
        object.is_again = fate.is_doubled && way != Way::Again;
        if object.is_again {
            object.kept = 0;
            return self.devices.again(number, nth, (now, due));
        }
        (object.nth, object.kept) = (next, fate.kept as u16);
        due
    }
}

#[cfg(test)]
mod tests;
