//! The plan of a city: its roads.
//!
//! Streets make a grid. Ring roads and radials cross it on bridges and meet it at ramps, so that no crossing has to be
//! computed.

use std::collections::HashMap;
use std::f64::consts::{PI, TAU};

use base::{Error, Result};

use super::flat::{position, shifted};
use crate::geo::position::Position;

/// The most nodes of a city.
const NODES_MAX: f64 = 500_000.0;
/// The most bytes of the table of ways to all destinations.
const WAYS_BYTES_MAX: f64 = (1 << 30) as f64;
/// The greatest latitude of a centre, degrees: beyond it the grid would be too distorted.
const CENTRE_LATITUDE_MAX: f64 = 80.0;
/// Each fifth street is a main street.
const MAIN_EVERY: i32 = 5;
/// The number of radials.
const RADIALS: usize = 8;
/// The number of ramps of a ring road.
const RAMPS: usize = 2 * RADIALS;
/// The radii of the ring roads, as shares of the city's radius.
const RINGS: [f64; 3] = [0.3, 0.6, 0.95];
/// The distance from the centre at which radials begin, as a share of the city's radius.
const RADIALS_BEGIN: f64 = 0.1;
/// The angle of the first radial, counterclockwise from east, in turns.
const FIRST_ANGLE: f64 = 0.0173;

/// The parameters of a city. The same plan gives the same city.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The centre, at most 80 degrees north or south.
    pub centre: Position,
    /// The distance from the centre to the last streets, metres, 500 to 100,000.
    pub radius_m: f64,
    /// The distance between two streets, metres, at least 20 and at most a fifth of the radius.
    pub street_m: f64,
    /// The number of places that drivers go to, 2 to 10,000.
    pub destinations: u16,
}

impl Plan {
    /// A city of 10 km around a centre, with streets every 200 m and 128 destinations.
    pub fn around(centre: Position) -> Self {
        Self {
            centre,
            radius_m: 10_000.0,
            street_m: 200.0,
            destinations: 128,
        }
    }

    /// Checks the plan. Errors: `InvalidArgument` names the option that is out of its range.
    pub fn check(&self) -> Result<()> {
        let (lat, _) = self.centre.degrees();
        let crossings = PI * (self.radius_m / self.street_m).powi(2);
        let ways = crossings * f64::from(self.destinations);
        let wrong = if lat.abs() > CENTRE_LATITUDE_MAX {
            format!("centre: the latitude {lat} is not within −80 and 80")
        } else if !(500.0..=100_000.0).contains(&self.radius_m) {
            format!("radius_m: {} is not within 500 and 100000", self.radius_m)
        } else if !(20.0..=self.radius_m / 5.0).contains(&self.street_m) {
            let most = self.radius_m / 5.0;
            format!("street_m: {} is not within 20 and {most}", self.street_m)
        } else if crossings > NODES_MAX {
            format!(
                "street_m: {} makes more than {NODES_MAX} crossings",
                self.street_m
            )
        } else if !(2..=10_000).contains(&self.destinations) {
            format!(
                "destinations: {} is not within 2 and 10000",
                self.destinations
            )
        } else if f64::from(self.destinations) > crossings / 2.0 || ways > WAYS_BYTES_MAX {
            format!(
                "destinations: {} are too many for {crossings:.0} crossings",
                self.destinations
            )
        } else {
            return Ok(());
        };
        Err(Error::invalid_argument(wrong))
    }
}

impl Default for Plan {
    /// Around latitude 0, longitude 0.
    fn default() -> Self {
        Self::around(position(0, 0))
    }
}

/// The class of a road.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Road {
    /// 30 km/h.
    Street,
    /// 50 km/h: main streets, ramps, and radials near the centre.
    Main,
    /// 80 km/h: ring roads, and radials outside of the innermost ring.
    Fast,
}

impl Road {
    /// The speed limit, km/h.
    pub fn kmh(self) -> u32 {
        match self {
            Self::Street => 30,
            Self::Main => 50,
            Self::Fast => 80,
        }
    }

    /// The speed limit in metres per second.
    pub fn speed(self) -> f64 {
        f64::from(self.kmh()) / 3.6
    }
}

/// A city under construction: its nodes and roads.
pub(super) struct Draft<'a> {
    plan: &'a Plan,
    /// Metres east and north of the centre.
    nodes: Vec<(f64, f64)>,
    /// Each road once, by the nodes at its ends.
    pub(super) roads: Vec<(u32, u32, Road)>,
    /// The crossings of streets, by column and row from the centre.
    crossings: HashMap<(i32, i32), u32>,
}

impl<'a> Draft<'a> {
    pub(super) fn new(plan: &'a Plan) -> Self {
        let mut draft = Self {
            plan,
            nodes: Vec::new(),
            roads: Vec::new(),
            crossings: HashMap::new(),
        };
        draft.add_streets();
        draft.add_rings_and_radials();
        draft
    }

    /// The number of crossings of streets, which are the first nodes.
    pub(super) fn crossings(&self) -> usize {
        self.crossings.len()
    }

    fn node(&mut self, x: f64, y: f64) -> u32 {
        self.nodes.push((x, y));
        (self.nodes.len() - 1) as u32
    }

    /// The grid, within the radius.
    fn add_streets(&mut self) {
        let Plan {
            radius_m: radius,
            street_m: street,
            ..
        } = *self.plan;
        let half = (radius / street) as i32;
        let class = |line: i32| match line % MAIN_EVERY {
            0 => Road::Main,
            _ => Road::Street,
        };
        for row in -half..=half {
            for column in -half..=half {
                let (x, y) = (f64::from(column) * street, f64::from(row) * street);
                if x.hypot(y) > radius {
                    continue;
                }
                let here = self.node(x, y);
                self.crossings.insert((column, row), here);
                if let Some(&west) = self.crossings.get(&(column - 1, row)) {
                    self.roads.push((west, here, class(row)));
                }
                if let Some(&south) = self.crossings.get(&(column, row - 1)) {
                    self.roads.push((south, here, class(column)));
                }
            }
        }
    }

    fn add_rings_and_radials(&mut self) {
        let radius = self.plan.radius_m;
        let mut ends: Vec<u32> = Vec::new();
        for turn in 0..RADIALS {
            let (sin, cos) = angle(turn, RADIALS).sin_cos();
            let begin = RADIALS_BEGIN * radius;
            let node = self.node(begin * cos, begin * sin);
            self.add_ramp(node);
            ends.push(node);
        }
        let mut inside = RADIALS_BEGIN;
        for (outside, road) in RINGS.into_iter().zip([Road::Main, Road::Fast, Road::Fast]) {
            let ring = self.add_ring(outside * radius);
            let meets = ring.into_iter().step_by(RAMPS / RADIALS);
            for (turn, (end, meet)) in ends.iter_mut().zip(meets).enumerate() {
                let angle = angle(turn, RADIALS);
                self.add_radial(
                    (*end, meet),
                    angle,
                    (inside * radius, outside * radius),
                    road,
                );
                *end = meet;
            }
            inside = outside;
        }
    }

    /// Adds a ring road. Returns the nodes at which it has ramps.
    fn add_ring(&mut self, radius: f64) -> Vec<u32> {
        let pieces = (radius * TAU / (1.5 * self.plan.street_m) / RAMPS as f64).ceil();
        let count = RAMPS * pieces.max(2.0) as usize;
        let nodes: Vec<u32> = (0..count)
            .map(|n| {
                let (sin, cos) = angle(n, count).sin_cos();
                self.node(radius * cos, radius * sin)
            })
            .collect();
        let nexts = nodes.iter().cycle().skip(1);
        for (&node, &next) in nodes.iter().zip(nexts) {
            self.roads.push((node, next, Road::Fast));
        }
        let ramps: Vec<u32> = nodes.into_iter().step_by(count / RAMPS).collect();
        for &node in &ramps {
            self.add_ramp(node);
        }
        ramps
    }

    /// Adds a part of a radial between two nodes at an angle, at these distances from the centre in
    /// metres.
    fn add_radial(&mut self, (from, to): (u32, u32), angle: f64, (r, end): (f64, f64), road: Road) {
        let (sin, cos) = angle.sin_cos();
        let pieces = ((end - r) / (2.0 * self.plan.street_m)).ceil().max(1.0) as u32;
        let mut last = from;
        for piece in 1..pieces {
            let r = r + (end - r) * f64::from(piece) / f64::from(pieces);
            let node = self.node(r * cos, r * sin);
            self.roads.push((last, node, road));
            if piece % 4 == 0 {
                self.add_ramp(node);
            }
            last = node;
        }
        self.roads.push((last, to, road));
    }

    /// Adds a ramp from a node to the nearest crossing, or if there is none, to one nearer to the
    /// centre.
    fn add_ramp(&mut self, node: u32) {
        let Some(&(x, y)) = self.nodes.get(node as usize) else {
            return;
        };
        let street = self.plan.street_m;
        let crossing = (0..100).rev().find_map(|part| {
            let share = f64::from(part + 1) / 100.0;
            let [column, row] = [x, y].map(|metres| (metres * share / street).round() as i32);
            self.crossings.get(&(column, row)).copied()
        });
        self.roads
            .extend(crossing.map(|crossing| (crossing, node, Road::Main)));
    }

    /// The positions of the nodes.
    pub(super) fn positions(&self) -> Vec<Position> {
        let place = |&(x, y): &(f64, f64)| shifted(self.plan.centre, y, x);
        self.nodes.iter().map(place).collect()
    }
}

/// The n-th of `count` equal angles; the first one is chosen so that roads meet no crossing of
/// streets.
fn angle(nth: usize, count: usize) -> f64 {
    (nth as f64 / count as f64 + FIRST_ANGLE) * TAU
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::geo::position::at;

    #[test]
    fn what_cannot_be_built_is_refused_by_name() {
        let plan = Plan::around(at(1.0, 2.0));
        let with = |change: fn(&mut Plan)| {
            let mut plan = plan.clone();
            change(&mut plan);
            plan
        };
        let bad = [
            ("centre", with(|p| p.centre = at(80.1, 0.0))),
            ("radius_m", with(|p| p.radius_m = f64::NAN)),
            ("radius_m", with(|p| p.radius_m = 499.0)),
            ("street_m", with(|p| p.street_m = 19.0)),
            ("street_m", with(|p| p.street_m = 2001.0)),
            ("street_m", with(|p| p.radius_m = 100_000.0)),
            ("destinations", with(|p| p.destinations = 1)),
            ("destinations", with(|p| p.street_m = 2000.0)),
        ];
        for (option, plan) in bad {
            let e = plan.check().unwrap_err();
            assert_eq!(e.kind(), base::ErrorKind::InvalidArgument);
            assert!(e.to_string().contains(&format!("{option}: ")), "{e}");
        }
    }
}
