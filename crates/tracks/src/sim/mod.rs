//! Traffic of a simulated city: objects drive on roads and report where they are, with the faults of real devices.
//!
//! For tests, benchmarks and demonstrations. Everything is a function of the options: there is no clock and no I/O, and
//! the same seed gives the same reports. The truth is known: each report comes with when and where it was really made,
//! and [`Traffic::truth`] says where an object is at any time.
//!
//! ```text
//!   chance    random numbers, looked up by what they decide
//!   flat      metres north and east
//!   plan      which roads a city has
//!   roads     the city, and the quickest ways in it
//!   drivers   objects that drive, park, and drive on
//!   noise     what devices and the network do wrong
//!   wheel     whose report arrives next
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

/// A cell that no object is in.
const NO_CELL: u64 = u64::MAX;

/// What is simulated.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Another seed gives another traffic in the same city.
    pub seed: u64,
    /// The number of the first object. An object does the same whichever others there are: several threads may have a
    /// part of all objects each.
    pub first: u32,
    /// How many objects there are, 1 to 100,000,000.
    pub objects: u32,
    /// What names of objects begin with; their numbers follow, of six digits at least.
    pub prefix: String,
    /// When it begins, 1970 to 2200.
    pub start: Time,
    /// The city.
    pub plan: Plan,
    /// Mean time between two reports of an object, ms, 100 to 86,400,000. It is from half to one and a half of that.
    pub interval_ms: u32,
    /// Mean time of a stop, ms, 0 to 604,800,000. It is from a quarter to seven quarters of that. 0: objects never
    /// stop.
    pub stop_ms: u32,
    /// A report is made only where its position is in another cell of 40 cuts than that of the object's report before:
    /// no two consecutive reports of an object, in the order of their true times, are in one cell. Objects that are
    /// parked do not report, and those in the same cell wait for their next turns, so that there are fewer reports
    /// than [`Options::interval_ms`] says. `duplicates` must be 0.
    pub each_report_changes_cell: bool,
    /// What goes wrong.
    pub faults: Faults,
}

impl Options {
    /// Without any fault.
    pub fn clean() -> Self {
        Self {
            faults: Faults::none(),
            ..Self::default()
        }
    }

    /// Errors: `InvalidArgument`, where an option is out of its range; it names it.
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
    /// 1000 cars around the null island that report every 10 seconds, stop for 10 minutes, and have the usual faults.
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
    /// As soon as the network has it.
    Live,
    /// Late: the device kept it while it had no network.
    Kept,
    /// It is the same again as one that was [`Way::Live`].
    Again,
}

/// A report that arrives, and the truth.
#[derive(Clone, Debug, PartialEq)]
pub struct Sent {
    /// The number of the object.
    pub object: u32,
    /// Which of the object's reports it is. Those that are missing were not made.
    pub nth: u32,
    /// When it arrives.
    pub arrival: Time,
    /// When it was really made.
    pub time: Time,
    /// Where the object was then.
    pub truth: Truth,
    /// How it arrives.
    pub way: Way,
    /// The clock of the device.
    pub clock: Clock,
    /// What the device sends.
    pub report: Report,
}

/// An object, and what of it arrives next.
#[derive(Clone, Debug)]
struct Object {
    driver: Driver,
    /// The number of the report that arrives next.
    nth: u32,
    /// So many reports before it arrive together with it.
    kept: u16,
    /// It has arrived already, and arrives again.
    is_again: bool,
    /// The cell of the last report, where cells have to change.
    cell: u64,
}

/// What all objects need.
#[derive(Debug)]
struct World {
    city: Arc<City>,
    traits: Traits,
    devices: Devices,
    prefix: String,
    first: u32,
    is_by_cell: bool,
}

/// Reports in the order of their arrival, without an end. Those that arrive at the same time are in the order of their
/// objects, and those of one object as [`Order`] says.
///
/// An object takes 72 bytes, and a city of the default plan some 3 MB.
#[derive(Debug)]
pub struct Traffic {
    world: World,
    objects: Vec<Object>,
    wheel: Wheel,
    /// What arrives now.
    ready: VecDeque<Sent>,
    now: Time,
}

impl Traffic {
    /// Errors: `InvalidArgument`, where an option is out of its range.
    pub fn new(options: &Options) -> Result<Self> {
        options.check()?;
        Self::in_city(Arc::new(City::new(&options.plan)?), options)
    }

    /// In a city that is built already, whatever [`Options::plan`] says. Errors: the same.
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

    /// The arrival of the report that was given last; at first, the start.
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

    /// Where an object really is at a time, and how it moves. It takes longer for a time long before or behind
    /// [`Traffic::now`]. `None`: there is no such object, or the time is before the start.
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

    /// Lets arrive what is due of an object at `due`, and then the object wait for what is next.
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

    /// When an object's n-th report arrives, µs, as far as the network is concerned.
    fn arrival(&self, object: u32, nth: u32) -> i64 {
        self.devices.moment(object, nth).0 + self.devices.latency(object, nth)
    }

    /// An object's n-th report. `None`: it is not made, because the cell is the same.
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

    /// Decides what arrives next of an object, after a report that was made or not and arrived at `now`, and when, µs.
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
