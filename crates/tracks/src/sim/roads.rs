//! A city: roads between nodes, and the fastest ways to the destinations.
//!
//! For each destination, a table has the first edge of the fastest way from every node, one byte
//! each. A driver finds its way by one look-up at each crossing and needs no memory of it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::f64::consts::TAU;
use std::ops::Range;

use base::Result;

use super::flat::{UNITS_PER_METRE, position, wrapped};
use super::plan::{Draft, Plan, Road};
use crate::geo::distance::distance;
use crate::geo::position::{PER_DEGREE, Position};

/// Stands for no edge: the node is the destination.
const ARRIVED: u8 = u8::MAX;
/// One direction of a road between two nodes. It is straight in latitude and longitude.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edge {
    pub(super) from: u32,
    pub(super) to: u32,
    /// The position of its beginning, 10⁻⁷ degrees.
    lat: i32,
    lon: i32,
    /// From its beginning to its end, 10⁻⁷ degrees.
    north: i32,
    east: i32,
    /// The length, metres.
    pub(super) length: f32,
    /// The course, clockwise from north, 10⁻² degrees.
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

    /// The time from one end to the other at the speed limit, µs, at least 1.
    pub(super) fn micros(&self) -> f64 {
        (f64::from(self.length) / self.road.speed() * 1e6).max(1.0)
    }

    /// The same in whole milliseconds, at least 1; ways are compared by it.
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

/// The roads of a city; see the module.
#[derive(Debug)]
pub struct City {
    nodes: Vec<Position>,
    /// The number of each node's first edge, and finally the number of all edges. Edges are sorted
    /// by their nodes.
    first: Vec<u32>,
    edges: Vec<Edge>,
    destinations: Vec<u32>,
    /// For each destination and node, the index of the next edge among the node's edges.
    ways: Vec<u8>,
}

impl City {
    /// Builds a city. Errors: `InvalidArgument` if an option is out of its range.
    pub fn new(plan: &Plan) -> Result<Self> {
        plan.check()?;
        let draft = Draft::new(plan);
        let nodes = draft.positions();
        let place = |node: u32| nodes.get(node as usize).copied().unwrap_or(plan.centre);
        let mut edges: Vec<Edge> = draft
            .roads
            .iter()
            .flat_map(|&(a, b, road)| [(a, b, road), (b, a, road)])
            .map(|(a, b, road)| Edge::new((a, b), (place(a), place(b)), road))
            .collect();
        edges.sort_by_key(|edge| (edge.from, edge.to, edge.road));
        let first = (0..=nodes.len() as u32)
            .map(|node| edges.partition_point(|edge| edge.from < node) as u32)
            .collect();
        let (count, crossings) = (u64::from(plan.destinations), draft.crossings() as u64);
        let nth = |n: u64| ((2 * n + 1) * crossings / (2 * count)) as u32;
        let mut city = Self {
            nodes,
            first,
            edges,
            destinations: (0..count).map(nth).collect(),
            ways: Vec::new(),
        };
        city.ways = city
            .destinations
            .iter()
            .flat_map(|&to| city.ways_to(&city.times_to(to)))
            .collect();
        Ok(city)
    }

    /// All roads, each once, with beginning, end and class: for maps.
    pub fn roads(&self) -> impl Iterator<Item = (Position, Position, Road)> {
        self.edges
            .iter()
            .filter(|edge| edge.from < edge.to)
            .map(|edge| (edge.at(0.0), edge.at(1.0), edge.road))
    }

    /// The number of crossings, ramps and bends.
    pub fn nodes(&self) -> usize {
        self.nodes.len()
    }

    /// The distance from a position to the nearest road, metres. It looks at all roads: for tests.
    pub fn off_road(&self, position: Position) -> f64 {
        let scale = 1.0 / UNITS_PER_METRE;
        let shrink = position.degrees().0.to_radians().cos() * scale;
        let to_edge = |edge: &Edge| {
            // The beginning and the end of the edge, metres from the position.
            let x = f64::from(wrapped(i64::from(edge.lon) - i64::from(position.lon()))) * shrink;
            let y = f64::from(edge.lat - position.lat()) * scale;
            let (dx, dy) = (f64::from(edge.east) * shrink, f64::from(edge.north) * scale);
            let along = -(x * dx + y * dy) / (dx * dx + dy * dy).max(1e-9);
            let along = along.clamp(0.0, 1.0);
            (x + along * dx).hypot(y + along * dy)
        };
        self.edges.iter().map(to_edge).fold(f64::MAX, f64::min)
    }

    /// The number of destinations.
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

    /// The first edge of the fastest way from a node to a destination. `None` if the node is the
    /// destination.
    pub(super) fn next(&self, destination: u16, node: u32) -> Option<u32> {
        let place = usize::from(destination) * self.nodes.len() + node as usize;
        let way = self.ways.get(place).copied().unwrap_or(ARRIVED);
        (way != ARRIVED).then(|| self.edges_from(node).start + u32::from(way))
    }

    /// The shortest time from each node to `to`, ms, by Dijkstra's algorithm. A road takes the same
    /// time in both directions.
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

    /// The index of each node's next edge, by the times from all nodes.
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

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use base::rng::Rng;

    use super::*;
    use crate::geo::position::at;
    use crate::sim::flat::shifted;

    fn small(centre: Position) -> City {
        let plan = Plan {
            radius_m: 1500.0,
            street_m: 250.0,
            destinations: 12,
            ..Plan::around(centre)
        };
        City::new(&plan).unwrap()
    }

    /// The shortest times by relaxing every edge until nothing changes, as Bellman and Ford do.
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
                // Every node can be reached.
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
                // This distance along this course leads to the end.
                let (sin, cos) = (f64::from(edge.course) / 36_000.0 * TAU).sin_cos();
                let end = shifted(a, 2.0 * half * cos, 2.0 * half * sin);
                assert!(distance(end, b) < 0.1 + half / 100.0, "{edge:?}");
                classes[edge.road as usize] += 1;
            }
            assert!(classes.iter().all(|&count| count > 50), "{classes:?}");
            assert_eq!(city.roads().count() * 2, city.edges.len());
            // The northernmost crossing is 1500 m from the centre.
            let off = city.off_road(shifted(centre, 2000.0, 0.0));
            assert!((499.0..501.0).contains(&off), "{off}");
        }
    }
}
