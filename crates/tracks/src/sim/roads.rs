//! A city: streets in a grid, ring roads and radials, and the quickest ways to some places.
//!
//! Ring roads and radials cross the streets on bridges and meet them at ramps, so that no crossing has to be computed.
//! For each of the destinations there is the first edge of the quickest way from every node, one byte each. A driver
//! finds its way by one look-up per crossing and remembers nothing of it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::f64::consts::{PI, TAU};
use std::ops::Range;

use base::{Error, Result};

use crate::geo::distance::{RADIUS, distance};
use crate::geo::position::{LATITUDE_MAX, LONGITUDE_END, PER_DEGREE, Position};

/// The most nodes of a city.
const NODES_MAX: f64 = 500_000.0;
/// The most bytes of the ways to all destinations.
const WAYS_BYTES_MAX: f64 = (1 << 30) as f64;
/// The greatest latitude of a centre, degrees: beyond it the grid would be too skew.
const CENTRE_LATITUDE_MAX: f64 = 80.0;
/// Every so many streets, one is a main street.
const MAIN_EVERY: i32 = 5;
/// Radials.
const RADIALS: usize = 8;
/// Ramps of a ring road.
const RAMPS: usize = 2 * RADIALS;
/// Radii of the ring roads, in radii of the city.
const RINGS: [f64; 3] = [0.3, 0.6, 0.95];
/// Where radials begin, in radii of the city.
const RADIALS_BEGIN: f64 = 0.1;
/// The angle of the first radial from east over north, turns.
const FIRST_ANGLE: f64 = 0.0173;
/// A destination's way to itself.
const ARRIVED: u8 = u8::MAX;
/// 10⁻⁷ degrees of a metre along a meridian.
const UNITS_PER_METRE: f64 = PER_DEGREE as f64 * 180.0 / (PI * RADIUS);

/// What a city is built from. The same plan gives the same city.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// The centre, at most 80 degrees north or south.
    pub centre: Position,
    /// Metres from the centre to the last streets, 500 to 100,000.
    pub radius_m: f64,
    /// Metres between two streets, 20 or more, and at most a fifth of the radius.
    pub street_m: f64,
    /// Places that drivers go to, 2 to 10,000.
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

    /// Errors: `InvalidArgument`, where an option is out of its range; it names it.
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
    /// 80 km/h: ring roads, and radials outside of the innermost.
    Fast,
}

impl Road {
    /// The highest speed that is allowed, km/h.
    pub fn kmh(self) -> u32 {
        match self {
            Self::Street => 30,
            Self::Main => 50,
            Self::Fast => 80,
        }
    }

    /// The same in metres a second.
    pub fn speed(self) -> f64 {
        f64::from(self.kmh()) / 3.6
    }
}

/// One direction of a road between two nodes. It is straight in latitude and longitude.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    /// Where it begins, 10⁻⁷ degrees.
    lat: i32,
    lon: i32,
    /// From there to its end, 10⁻⁷ degrees.
    north: i32,
    east: i32,
    /// Metres.
    pub(super) length: f32,
    /// From north over east, 10⁻² degrees.
    pub(super) course: u16,
    pub(super) road: Road,
}

impl Edge {
    const NOWHERE: Self = Self {
        from: 0,
        to: 0,
        lat: 0,
        lon: 0,
        north: 0,
        east: 0,
        length: 0.0,
        course: 0,
        road: Road::Street,
    };

    fn new((from, to): (u32, u32), (a, b): (Position, Position), road: Road) -> Self {
        let north = b.lat() - a.lat();
        let east = wrapped(i64::from(b.lon()) - i64::from(a.lon()));
        let middle = (f64::from(a.lat()) + f64::from(north) / 2.0) / f64::from(PER_DEGREE);
        let to_east = f64::from(east) * middle.to_radians().cos();
        let turn = to_east.atan2(f64::from(north)) / TAU;
        Self {
            from,
            to,
            lat: a.lat(),
            lon: a.lon(),
            north,
            east,
            length: distance(a, b) as f32,
            course: ((turn * 36_000.0).round() as i32).rem_euclid(36_000) as u16,
            road,
        }
    }

    /// The time from one end to the other at the speed that is allowed, µs, at least 1.
    pub(super) fn micros(&self) -> f64 {
        (f64::from(self.length) / self.road.speed() * 1e6).max(1.0)
    }

    /// The same in whole milliseconds, at least 1: what ways are compared by.
    fn millis(&self) -> u32 {
        (self.micros() / 1000.0).ceil() as u32
    }

    /// The place at this share of its length.
    pub(super) fn at(&self, share: f64) -> Position {
        let lat = self.lat + (f64::from(self.north) * share).round() as i32;
        let lon = i64::from(self.lon) + (f64::from(self.east) * share).round() as i64;
        position(lat, lon)
    }
}

/// See the module.
#[derive(Debug)]
pub struct City {
    nodes: Vec<Position>,
    /// The number of each node's first edge, and at the end that of all edges. Edges are in the order of their nodes.
    first: Vec<u32>,
    edges: Vec<Edge>,
    destinations: Vec<u32>,
    /// For each destination and node, which of the node's edges is next.
    ways: Vec<u8>,
}

impl City {
    /// Errors: `InvalidArgument`, where an option is out of its range.
    pub fn new(plan: &Plan) -> Result<Self> {
        plan.check()?;
        let mut draft = Draft::new(plan);
        draft.add_streets();
        let crossings = draft.nodes.len() as u64;
        draft.add_rings_and_radials();
        let count = u64::from(plan.destinations);
        let nth = |n: u64| ((2 * n + 1) * crossings / (2 * count)) as u32;
        let mut city = draft.build((0..count).map(nth).collect());
        city.ways = city
            .destinations
            .iter()
            .flat_map(|&to| city.ways_to(&city.times_to(to)))
            .collect();
        Ok(city)
    }

    /// All roads, each once, as where it begins, where it ends, and its class: what a map shows.
    pub fn roads(&self) -> impl Iterator<Item = (Position, Position, Road)> {
        self.edges
            .iter()
            .filter(|edge| edge.from < edge.to)
            .map(|edge| (edge.at(0.0), edge.at(1.0), edge.road))
    }

    /// How many crossings, ramps and bends there are.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// Metres from a position to the nearest road. It looks at all roads: for tests.
    pub fn off_road(&self, position: Position) -> f64 {
        let scale = 1.0 / UNITS_PER_METRE;
        let shrink = position.degrees().0.to_radians().cos() * scale;
        let to_edge = |edge: &Edge| {
            // The begin of the edge and its end, metres from the position.
            let x = f64::from(wrapped(i64::from(edge.lon) - i64::from(position.lon()))) * shrink;
            let y = f64::from(edge.lat - position.lat()) * scale;
            let (dx, dy) = (f64::from(edge.east) * shrink, f64::from(edge.north) * scale);
            let along = -(x * dx + y * dy) / (dx * dx + dy * dy).max(1e-9);
            let along = along.clamp(0.0, 1.0);
            (x + along * dx).hypot(y + along * dy)
        };
        self.edges.iter().map(to_edge).fold(f64::MAX, f64::min)
    }

    /// How many destinations there are.
    pub(super) fn destinations(&self) -> u64 {
        self.destinations.len() as u64
    }

    pub(super) fn edges(&self) -> u64 {
        self.edges.len() as u64
    }

    pub(super) fn edge(&self, number: u32) -> &Edge {
        self.edges.get(number as usize).unwrap_or(&Edge::NOWHERE)
    }

    /// The edges that begin at a node.
    pub(super) fn edges_from(&self, node: u32) -> Range<u32> {
        let first = |node: u32| self.first.get(node as usize).copied().unwrap_or(0);
        first(node)..first(node + 1)
    }

    /// The first edge of the quickest way from a node to a destination. `None`: it is there.
    pub(super) fn next(&self, destination: u16, node: u32) -> Option<u32> {
        let place = usize::from(destination) * self.nodes.len() + node as usize;
        let way = self.ways.get(place).copied().unwrap_or(ARRIVED);
        (way != ARRIVED).then(|| self.edges_from(node).start + u32::from(way))
    }

    /// The least time from each node to one, ms, by Dijkstra's algorithm. A road takes the same time in both directions.
    fn times_to(&self, to: u32) -> Vec<u32> {
        let mut times = vec![u32::MAX; self.nodes.len()];
        let mut heap = BinaryHeap::from([Reverse((0, to))]);
        while let Some(Reverse((time, node))) = heap.pop() {
            match times.get_mut(node as usize) {
                Some(known) if time < *known => *known = time,
                _ => continue,
            }
            for edge in self.edges_from(node).map(|number| self.edge(number)) {
                let time = time + edge.millis();
                if times
                    .get(edge.to as usize)
                    .is_some_and(|&known| time < known)
                {
                    heap.push(Reverse((time, edge.to)));
                }
            }
        }
        times
    }

    /// Which of each node's edges is next, by the times from all nodes.
    fn ways_to(&self, times: &[u32]) -> Vec<u8> {
        let time = |node: u32| times.get(node as usize).copied().unwrap_or(u32::MAX);
        let way = |node: u32| {
            if time(node) == 0 {
                return ARRIVED;
            }
            let edges = self.edges_from(node);
            let first = edges.start;
            let best = edges.min_by_key(|&number| {
                let edge = self.edge(number);
                time(edge.to).saturating_add(edge.millis())
            });
            best.map_or(ARRIVED, |number| (number - first) as u8)
        };
        (0..self.nodes.len() as u32).map(way).collect()
    }
}

/// A city before its edges are sorted.
struct Draft<'a> {
    plan: &'a Plan,
    /// Metres east and north of the centre.
    nodes: Vec<(f64, f64)>,
    roads: Vec<(u32, u32, Road)>,
    /// The crossings of streets, by column and row from the centre.
    crossings: HashMap<(i32, i32), u32>,
}

impl<'a> Draft<'a> {
    fn new(plan: &'a Plan) -> Self {
        Self {
            plan,
            nodes: Vec::new(),
            roads: Vec::new(),
            crossings: HashMap::new(),
        }
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

    /// A ring road; the nodes where it has ramps.
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
        ramps.iter().for_each(|&node| self.add_ramp(node));
        ramps
    }

    /// A part of a radial between two nodes at an angle, at these metres from the centre.
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

    /// A ramp from a node to the crossing next to it, or, where there is none, next to its way to the centre.
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

    fn build(self, destinations: Vec<u32>) -> City {
        let centre = self.plan.centre;
        let nodes: Vec<Position> = self
            .nodes
            .iter()
            .map(|&(x, y)| shifted(centre, y, x))
            .collect();
        let place = |node: u32| nodes.get(node as usize).copied().unwrap_or(centre);
        let mut edges: Vec<Edge> = self
            .roads
            .iter()
            .flat_map(|&(a, b, road)| [(a, b, road), (b, a, road)])
            .map(|(a, b, road)| Edge::new((a, b), (place(a), place(b)), road))
            .collect();
        edges.sort_by_key(|edge| (edge.from, edge.to, edge.road));
        let first = (0..=nodes.len() as u32)
            .map(|node| edges.partition_point(|edge| edge.from < node) as u32)
            .collect();
        City {
            nodes,
            first,
            edges,
            destinations,
            ways: Vec::new(),
        }
    }
}

/// The n-th of `count` equal angles, from a first one at which roads meet no crossing of streets.
fn angle(nth: usize, count: usize) -> f64 {
    (nth as f64 / count as f64 + FIRST_ANGLE) * TAU
}

/// The position so many metres north and east of another one, for distances that are small against the Earth.
pub(super) fn shifted(from: Position, north: f64, east: f64) -> Position {
    let shrink = from.degrees().0.to_radians().cos().max(1e-3);
    let max = f64::from(LATITUDE_MAX);
    let lat = (f64::from(from.lat()) + north * UNITS_PER_METRE).clamp(-max, max);
    let lon = f64::from(from.lon()) + east * UNITS_PER_METRE / shrink;
    position(lat.round() as i32, lon.round() as i64)
}

/// A position of units, whose longitude may be beyond the antimeridian and whose latitude is right.
fn position(lat: i32, lon: i64) -> Position {
    let lat = lat.clamp(-LATITUDE_MAX, LATITUDE_MAX);
    Position::of_units(lat, wrapped(lon)).expect("both are brought into their ranges")
}

/// Longitude units, or a difference of them, brought within −180 and 180 degrees.
fn wrapped(lon: i64) -> i32 {
    let (half, turn) = (i64::from(LONGITUDE_END), 2 * i64::from(LONGITUDE_END));
    ((lon + half).rem_euclid(turn) - half) as i32
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use base::rng::Rng;

    use super::*;
    use crate::geo::position::at;

    fn small(centre: Position) -> City {
        let plan = Plan {
            radius_m: 1500.0,
            street_m: 250.0,
            destinations: 12,
            ..Plan::around(centre)
        };
        City::new(&plan).unwrap()
    }

    /// Least times by relaxing every edge until nothing changes, as Bellman and Ford do.
    fn times_by_force(city: &City, to: u32) -> Vec<u32> {
        let mut times = vec![u32::MAX; city.nodes()];
        times[to as usize] = 0;
        loop {
            let mut is_done = true;
            for edge in &city.edges {
                let time = times[edge.to as usize].saturating_add(edge.millis());
                if time < times[edge.from as usize] {
                    times[edge.from as usize] = time;
                    is_done = false;
                }
            }
            if is_done {
                return times;
            }
        }
    }

    #[test]
    fn ways_are_the_quickest() {
        let city = small(at(59.33, 18.07));
        for (nth, &to) in city.destinations.iter().enumerate() {
            let times = times_by_force(&city, to);
            assert_eq!(city.times_to(to), times);
            for node in 0..city.nodes() as u32 {
                let (mut here, mut time) = (node, 0);
                while let Some(number) = city.next(nth as u16, here) {
                    let edge = city.edge(number);
                    assert_eq!(edge.from, here);
                    (here, time) = (edge.to, time + edge.millis());
                    assert!(time < 10_000_000);
                }
                // Nothing is out of reach.
                assert_eq!((here, time), (to, times[node as usize]));
            }
        }
    }

    #[test]
    fn quick_roads_are_used() {
        let city = City::new(&Plan::around(at(59.33, 18.07))).unwrap();
        let mut metres = [0.0; 3];
        let mut rng = Rng::new(3);
        for _ in 0..300 {
            let mut here = rng.below(city.nodes() as u64) as u32;
            let to = rng.below(city.destinations()) as u16;
            while let Some(number) = city.next(to, here) {
                let edge = city.edge(number);
                metres[edge.road as usize] += f64::from(edge.length);
                here = edge.to;
            }
        }
        let all: f64 = metres.iter().sum();
        assert!(metres.iter().all(|class| class / all > 0.04), "{metres:?}");
        assert!(all / 300.0 > 5000.0, "{all}");
    }

    #[test]
    fn edges_are_as_long_and_lie_as_they_say() {
        for centre in [at(59.33, 18.07), at(0.0, 179.999), at(-79.9, -180.0)] {
            let city = small(centre);
            let mut classes = [0; 3];
            for edge in &city.edges {
                let [a, b] = [edge.from, edge.to].map(|node| city.nodes[node as usize]);
                assert_eq!((edge.at(0.0), edge.at(1.0)), (a, b));
                assert!((distance(a, b) - f64::from(edge.length)).abs() < 0.001);
                assert!(distance(a, b) < 600.0 && distance(a, centre) < 1510.0);
                let middle = edge.at(0.5);
                let half = f64::from(edge.length) / 2.0;
                assert!((distance(a, middle) - half).abs() < 0.02 + half / 1000.0);
                assert!(city.off_road(middle) < 0.02);
                // Who goes so far on this course comes to the end.
                let (sin, cos) = (f64::from(edge.course) / 36_000.0 * TAU).sin_cos();
                let end = shifted(a, 2.0 * half * cos, 2.0 * half * sin);
                assert!(distance(end, b) < 0.1 + half / 100.0, "{edge:?}");
                classes[edge.road as usize] += 1;
            }
            assert!(classes.iter().all(|&count| count > 50), "{classes:?}");
            assert_eq!(city.roads().count() * 2, city.edges.len());
            assert!((90.0..110.0).contains(&city.off_road(shifted(centre, 125.0, 100.0))));
        }
    }

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
            let e = City::new(&plan).unwrap_err();
            assert_eq!(e.kind(), base::ErrorKind::InvalidArgument);
            assert!(e.to_string().contains(&format!("{option}: ")), "{e}");
        }
    }
}
