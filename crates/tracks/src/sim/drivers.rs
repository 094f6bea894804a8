//! Moving objects: they drive to a destination, look for a place to park near it, park, and drive
//! on.
//!
//! The state of a driver is its current leg: a piece of one edge at one speed between two times, or
//! a stop. All later legs follow from it, from the seed and from the number of legs so far. So the
//! position at a time does not depend on how often it was asked for before, and a driver has 40
//! bytes.

use super::chance::{Chance, What};
use super::plan::Road;
use super::roads::City;
use crate::geo::position::Position;
use crate::model::time::Time;

/// The most edges on which a driver looks for a place to park.
const SEEKING_EDGES: u64 = 8;
/// The most by which an edge takes longer than at the speed limit, as a share.
const SLOWNESS: f64 = 0.5;

/// The true position of an object, and its movement.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Truth {
    /// The position.
    pub position: Position,
    /// Metres per second, at most the speed limit of its road.
    pub speed: f64,
    /// Course, clockwise from north, 10⁻² degrees, below 36,000; of a parked object, the course
    /// with which it arrived.
    pub course: u16,
    /// The class of its road.
    pub road: Road,
    /// Whether it is parked: its speed is 0.
    pub is_parked: bool,
}

/// Parameters that all drivers share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traits {
    pub(super) chance: Chance,
    /// The start of the simulation, µs.
    pub(super) start: i64,
    /// The mean length of stops, µs.
    pub(super) stop: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Driving,
    /// It is at its destination and looks for a place to park, on at most this many more edges.
    Seeking(u8),
    Parked,
}

/// An object that drives; see the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Driver {
    /// The begin and the end of the leg, µs.
    begin: i64,
    end: i64,
    object: u32,
    edge: u32,
    /// Where on the edge the leg begins and ends, as shares of its length.
    from: f32,
    to: f32,
    /// The number of legs so far.
    legs: u32,
    destination: u16,
    doing: Doing,
}

impl Driver {
    /// The object at the start: half of all objects are parked, if stops take time.
    pub(super) fn new(object: u32, city: &City, traits: &Traits) -> Self {
        let mut draw = traits.chance.of(What::Start, object, 0);
        let place = (0.1 + 0.8 * draw.part()) as f32;
        let mut driver = Self {
            begin: traits.start,
            end: traits.start,
            object,
            edge: draw.below(city.edges()) as u32,
            from: place,
            to: place,
            legs: 0,
            destination: 0,
            doing: Doing::Parked,
        };
        // Parking is not allowed on a fast road.
        if draw.happens(0.5) && city.edge(driver.edge).road != Road::Fast {
            driver.end += (traits.stop as f64 * draw.part()) as i64;
        }
        driver
    }

    /// Advances to a time, µs; does nothing if it is there already.
    pub(super) fn drive(&mut self, to: i64, city: &City, traits: &Traits) {
        while self.end <= to {
            self.start_leg(city, traits);
        }
    }

    /// The number of the object.
    pub(super) fn object(&self) -> u32 {
        self.object
    }

    /// The begin of the leg, µs.
    pub(super) fn begin(&self) -> i64 {
        self.begin
    }

    /// The end of its stop, µs. `None` if it drives.
    pub(super) fn parked_until(&self) -> Option<i64> {
        (self.doing == Doing::Parked).then_some(self.end)
    }

    /// The true position at a time within its leg.
    pub(super) fn truth(&self, time: Time, city: &City) -> Truth {
        let edge = city.edge(self.edge);
        let (from, to) = (f64::from(self.from), f64::from(self.to));
        let lasts = (self.end - self.begin).max(1) as f64;
        let done = ((time.0 - self.begin) as f64 / lasts).clamp(0.0, 1.0);
        Truth {
            position: edge.at(from + (to - from) * done),
            speed: f64::from(edge.length) * (to - from) / lasts * 1e6,
            course: edge.course,
            road: edge.road,
            is_parked: self.doing == Doing::Parked,
        }
    }

    fn start_leg(&mut self, city: &City, traits: &Traits) {
        let mut draw = traits.chance.of(What::Leg, self.object, self.legs);
        self.legs = self.legs.wrapping_add(1);
        self.begin = self.end;
        match self.doing {
            Doing::Parked => {
                self.destination = draw.below(city.destinations()) as u16;
                self.doing = Doing::Driving;
                (self.from, self.to) = (self.to, 1.0);
            }
            Doing::Seeking(0) => {
                self.doing = Doing::Parked;
                self.from = self.to;
                let lasts = traits.stop as f64 * (0.25 + 1.5 * draw.part());
                self.end += lasts as i64;
                return;
            }
            Doing::Driving => {
                let node = city.edge(self.edge).to;
                if let Some(next) = city.next(self.destination, node) {
                    (self.edge, self.from, self.to) = (next, 0.0, 1.0);
                } else {
                    let edges = draw.below(SEEKING_EDGES) as u8;
                    self.seek(edges, city, draw.part(), draw.part());
                }
            }
            Doing::Seeking(left) => self.seek(left - 1, city, draw.part(), draw.part()),
        }
        let edge = city.edge(self.edge);
        let share = f64::from(self.to - self.from);
        let lasts = edge.micros() * share * (1.0 + SLOWNESS * draw.part());
        self.end += (lasts.ceil() as i64).max(1);
    }

    /// Chooses an edge that is not fast and does not lead back, if there is one. After it there are
    /// `left` more.
    fn seek(&mut self, left: u8, city: &City, which: f64, place: f64) {
        let came = *city.edge(self.edge);
        let all = city.edges_from(came.to);
        let is_good = |number: &u32| {
            let edge = city.edge(*number);
            edge.to != came.from && edge.road != Road::Fast
        };
        let good = all.clone().filter(is_good).count();
        let nth = (which * good as f64) as usize;
        // In a dead end it turns. The upper end of a ramp is a dead end.
        let edge = all.clone().filter(is_good).nth(nth).or_else(|| {
            all.clone()
                .find(|number| city.edge(*number).to == came.from)
        });
        self.edge = edge.unwrap_or(all.start);
        self.from = 0.0;
        self.to = match left {
            0 => (0.1 + 0.8 * place) as f32,
            _ => 1.0,
        };
        self.doing = Doing::Seeking(left);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::distance::distance;
    use crate::geo::position::at;
    use crate::model::time::SECOND;
    use crate::sim::plan::Plan;

    fn city() -> City {
        let plan = Plan {
            radius_m: 3000.0,
            destinations: 40,
            ..Plan::around(at(59.33, 18.07))
        };
        City::new(&plan).unwrap()
    }

    fn traits(stop: i64) -> Traits {
        Traits {
            chance: Chance::new(1),
            start: 1000 * SECOND,
            stop: stop * SECOND,
        }
    }

    #[test]
    fn a_driver_is_small() {
        assert!(size_of::<Driver>() <= 40);
    }

    #[test]
    fn they_keep_to_roads_and_to_their_speeds() {
        let (city, traits) = (city(), traits(100));
        let mut reached = [false; 3];
        for object in 0..20 {
            let mut driver = Driver::new(object, &city, &traits);
            let mut last: Option<Truth> = None;
            for tenth in 0..20_000 {
                let time = Time(traits.start + tenth * SECOND / 10);
                driver.drive(time.0, &city, &traits);
                let truth = driver.truth(time, &city);
                assert!(truth.speed <= truth.road.speed() + 1e-9);
                if let Some(before) = last {
                    // Positions are whole centimetres. A step may span two legs with different
                    // speeds.
                    let moved = distance(before.position, truth.position);
                    let most = before.speed.max(truth.speed).max(Road::Fast.speed());
                    assert!(moved <= most / 10.0 + 0.02, "{object} {moved}");
                    if before.road == truth.road && before.course == truth.course {
                        assert!(moved <= truth.road.speed() / 10.0 + 0.02);
                    }
                }
                if tenth % 500 == 0 {
                    assert!(city.off_road(truth.position) < 0.1);
                }
                if let Some(reached) = reached.get_mut(truth.road as usize) {
                    *reached |= truth.speed > truth.road.speed() * 0.95;
                }
                last = Some(truth);
            }
        }
        assert_eq!(reached, [true; 3]);
    }

    #[test]
    fn they_stop_and_go_on() {
        let (city, traits) = (city(), traits(300));
        let (mut stops, mut stopped, mut driven) = (0, 0, 0);
        for object in 0..100 {
            let mut driver = Driver::new(object, &city, &traits);
            while driver.end < traits.start + 20_000 * SECOND {
                driver.start_leg(&city, &traits);
                let lasts = driver.end - driver.begin;
                let truth = driver.truth(Time(driver.begin), &city);
                assert_eq!(truth.is_parked, truth.speed <= 0.0);
                if truth.is_parked {
                    assert!((75 * SECOND..=525 * SECOND).contains(&lasts));
                    assert_ne!(truth.road, Road::Fast);
                    stops += 1;
                    stopped += lasts;
                } else {
                    driven += lasts;
                }
            }
        }
        let mean = stopped / stops / SECOND;
        assert!((280..320).contains(&mean), "{mean}");
        let trip = driven / stops / SECOND;
        assert!((200..900).contains(&trip), "{trip}");
    }

    #[test]
    fn without_stops_they_drive_on() {
        let (city, traits) = (city(), traits(0));
        for object in 0..100 {
            let mut driver = Driver::new(object, &city, &traits);
            for second in 0..1000 {
                let time = Time(traits.start + second * SECOND);
                driver.drive(time.0, &city, &traits);
                assert!(!driver.truth(time, &city).is_parked);
            }
        }
    }

    #[test]
    fn where_one_is_does_not_depend_on_how_often_it_is_asked() {
        let (city, traits) = (city(), traits(60));
        for object in 0..50 {
            let end = Time(traits.start + 5000 * SECOND);
            let mut often = Driver::new(object, &city, &traits);
            let mut once = often;
            for second in 0..5000 {
                often.drive(traits.start + second * SECOND, &city, &traits);
            }
            often.drive(end.0, &city, &traits);
            once.drive(end.0, &city, &traits);
            assert_eq!(often.truth(end, &city), once.truth(end, &city));
        }
    }
}
