//! Polygons with holes, as in GeoJSON (RFC 7946). Edges are straight in degrees; an edge between longitudes that are
//! more than 180 degrees apart goes the short way, over the antimeridian. A position on an edge is in the polygon.
//!
//! All arithmetic is on integers of 10⁻⁷ degrees, so that every test is exact.

use base::{Error, Result};

use super::cell::Span;
use super::position::{LATITUDE_MAX, Position, TURN, short_way, straight, units};
use super::shape::{Relation, Shape};

/// The most vertices of a polygon, including those of its holes.
pub const VERTICES_MAX: usize = 10_000;

/// A place in the plane of longitude and latitude. Rings continue over the antimeridian without a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Vertex {
    x: i64,
    y: i64,
}

/// A corner of a ring. Unlike a [`Position`], it keeps its longitude at a pole and at the antimeridian, which tells
/// how the ring goes on from there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corner {
    lat: i32,
    lon: i32,
}

impl Corner {
    /// The nearest corner. Errors: `InvalidArgument` if a number is not a latitude or longitude in degrees.
    pub fn of_degrees(lat: f64, lon: f64) -> Result<Self> {
        let (lat, lon) = units(lat, lon)?;
        Ok(Self { lat, lon })
    }
}

impl From<Position> for Corner {
    fn from(position: Position) -> Self {
        Self {
            lat: position.lat(),
            lon: position.lon(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Edge {
    a: Vertex,
    b: Vertex,
    /// The number of the ring, and the number of the edge in it.
    at: (usize, usize),
}

/// A polygon; see the module.
#[derive(Clone, Debug)]
pub struct Polygon {
    edges: Vec<Edge>,
}

impl Polygon {
    /// A polygon with an outer ring and holes. Each ring has at least three distinct positions; the first may be
    /// repeated at the end. Errors: `InvalidArgument` if a ring has no area, crosses itself or another one, or goes
    /// around a pole, if a hole is not inside the outer ring, or if there are more than [`VERTICES_MAX`] positions.
    ///
    /// A polygon that contains a pole goes to latitude 90 and along it, for example from longitude 180 to −180, and
    /// back.
    ///
    /// ```
    /// use tracks::geo::{polygon::Polygon, position::Position, shape::Shape};
    /// let at = |lat, lon| Position::of_degrees(lat, lon).unwrap();
    /// let square = [at(0.0, 0.0), at(0.0, 4.0), at(4.0, 4.0), at(4.0, 0.0)];
    /// let hole = [at(1.0, 1.0), at(1.0, 2.0), at(2.0, 2.0), at(2.0, 1.0)];
    /// let polygon = Polygon::new(&[&square, &hole])?;
    /// assert!(polygon.has(at(3.0, 3.0)) && !polygon.has(at(1.5, 1.5)));
    /// # Ok::<(), base::Error>(())
    /// ```
    pub fn new(rings: &[&[impl Into<Corner> + Copy]]) -> Result<Self> {
        let count: usize = rings.iter().map(|ring| ring.len()).sum();
        if rings.is_empty() || count > VERTICES_MAX {
            return Err(wrong(&format!(
                "it has {} rings with {count} positions",
                rings.len()
            ))
            .hint(format!(
                "a polygon has a ring at least, and {VERTICES_MAX} positions at most"
            )));
        }
        let mut edges = Vec::with_capacity(count);
        let mut from = None;
        for (nth, ring) in rings.iter().enumerate() {
            let corners = ring.iter().map(|&corner| corner.into());
            let mut vertices = unrolled(nth, corners, from)?;
            if nth > 0 {
                turn_into(&edges, &mut vertices);
            }
            from = from.or(vertices.first().copied());
            let next = vertices.iter().skip(1).chain(vertices.first());
            let all = vertices.iter().zip(next).enumerate();
            edges.extend(all.map(|(n, (&a, &b))| Edge { a, b, at: (nth, n) }));
        }
        check_crossings(&edges)?;
        check_holes(&edges)?;
        Ok(Self { edges })
    }

    /// Whether a vertex is at this pole: the greatest or least latitude.
    fn reaches(&self, pole: i64) -> bool {
        self.edges.iter().any(|edge| edge.a.y == pole)
    }

    /// Whether a place of the plane is inside, or on an edge.
    fn has_vertex(&self, p: Vertex) -> bool {
        is_in(self.edges.iter(), p)
    }
}

/// Whether a place is on an edge, or has an odd number of edges above it.
fn is_in<'a>(edges: impl Iterator<Item = &'a Edge>, p: Vertex) -> bool {
    let mut is_odd = false;
    for Edge { a, b, .. } in edges {
        let side = cross(*a, *b, p);
        let in_box = |p: i64, a: i64, b: i64| (a.min(b)..=a.max(b)).contains(&p);
        if side == 0 && in_box(p.x, a.x, b.x) && in_box(p.y, a.y, b.y) {
            return true;
        }
        // An edge includes its western end, but not its eastern one.
        if (a.x <= p.x) != (b.x <= p.x) && (side > 0) == (a.x <= p.x) {
            is_odd = !is_odd;
        }
    }
    is_odd
}

impl Shape for Polygon {
    fn has(&self, position: Position) -> bool {
        let (x, y) = (i64::from(position.lon()), i64::from(position.lat()));
        if position.lat().abs() == LATITUDE_MAX {
            return self.reaches(y);
        }
        [-TURN, 0, TURN]
            .into_iter()
            .any(|turn| self.has_vertex(Vertex { x: x + turn, y }))
    }

    fn relation(&self, span: &Span) -> Relation {
        let mut relation = Relation::Outside;
        for turn in [-TURN, 0, TURN] {
            let [west, east] = [span.west, span.east].map(|x| i64::from(x) + turn);
            let [south, north] = [span.south, span.north].map(i64::from);
            if self
                .edges
                .iter()
                .any(|edge| edge.meets([west, east], [south, north]))
            {
                return Relation::Crosses;
            }
            // No edge is in the span, so that all of it is on the same side of each edge.
            if self.has_vertex(Vertex { x: west, y: south }) {
                relation = Relation::Inside;
            }
        }
        // A pole is in the cell with longitude 0, whatever the longitude at which the polygon reaches it.
        let has_pole = |y: i32| (span.west..=span.east).contains(&0) && self.reaches(y.into());
        let poles = [(span.north, LATITUDE_MAX), (span.south, -LATITUDE_MAX)];
        if relation == Relation::Outside && poles.iter().any(|(y, pole)| y == pole && has_pole(*y))
        {
            return Relation::Crosses;
        }
        relation
    }

    fn is_crossed(&self, a: Position, b: Position) -> bool {
        if self.has(a) || self.has(b) {
            return true;
        }
        let (x, to) = straight(a, b);
        [-TURN, 0, TURN].into_iter().any(|turn| {
            let vertex = |x: i64, at: Position| Vertex {
                x: x + turn,
                y: at.lat().into(),
            };
            let line = Edge {
                a: vertex(x, a),
                b: vertex(to, b),
                at: (0, 0),
            };
            self.edges.iter().any(|edge| edge.touches(&line))
        })
    }
}

impl Edge {
    /// Whether it has a place in common with another edge.
    fn touches(&self, other: &Self) -> bool {
        let sides = |e: &Self, of: &Self| [of.a, of.b].map(|p| cross(e.a, e.b, p).signum());
        let may = |[a, b]: [i128; 2]| a * b <= 0;
        let meets = |a: i64, b: i64, c: i64, d: i64| a.min(b) <= c.max(d) && c.min(d) <= a.max(b);
        may(sides(self, other))
            && may(sides(other, self))
            && meets(self.a.x, self.b.x, other.a.x, other.b.x)
            && meets(self.a.y, self.b.y, other.a.y, other.b.y)
    }

    /// Whether it has a place in common with a rectangle.
    fn meets(&self, [west, east]: [i64; 2], [south, north]: [i64; 2]) -> bool {
        let Self { a, b, .. } = *self;
        if a.x.max(b.x) < west
            || a.x.min(b.x) > east
            || a.y.max(b.y) < south
            || a.y.min(b.y) > north
        {
            return false;
        }
        let corners = [(west, south), (west, north), (east, south), (east, north)];
        let sides = corners.map(|(x, y)| cross(a, b, Vertex { x, y }).signum());
        !(sides.iter().all(|s| *s > 0) || sides.iter().all(|s| *s < 0))
    }

    /// Whether two edges cross: each has ends on both sides of the other. Touching is not crossing.
    fn crosses(&self, other: &Self) -> bool {
        let sides = |e: &Self, of: &Self| [of.a, of.b].map(|p| cross(e.a, e.b, p).signum());
        let apart = |[a, b]: [i128; 2]| a * b < 0;
        apart(sides(self, other)) && apart(sides(other, self))
    }

    fn west(&self) -> i64 {
        self.a.x.min(self.b.x)
    }
}

/// Twice the signed area of the triangle: positive if `p` is left of the way from `a` to `b`.
fn cross(a: Vertex, b: Vertex, p: Vertex) -> i128 {
    let product = |m: i64, n: i64| i128::from(m) * i128::from(n);
    product(b.x - a.x, p.y - a.y) - product(b.y - a.y, p.x - a.x)
}

/// The difference in longitude from one corner to the next: the short way, but as written along a pole.
fn step(from: Corner, to: Corner) -> i64 {
    let difference = i64::from(to.lon) - i64::from(from.lon);
    if from.lat == to.lat && to.lat.abs() == LATITUDE_MAX {
        difference
    } else {
        short_way(difference)
    }
}

/// A ring without jumps and repeated positions, near a place of the outer ring.
fn unrolled(
    nth: usize,
    ring: impl ExactSizeIterator<Item = Corner>,
    near: Option<Vertex>,
) -> Result<Vec<Vertex>> {
    let what = |why: &str| wrong(&format!("ring {nth} {why}"));
    let mut vertices: Vec<Vertex> = Vec::with_capacity(ring.len());
    let mut ends: Option<(Corner, Corner)> = None;
    for corner in ring {
        let (x, y) = (i64::from(corner.lon), i64::from(corner.lat));
        let before = vertices.last().copied();
        let x = match (before, ends, near) {
            (Some(before), Some((_, last)), _) => before.x + step(last, corner),
            (_, _, Some(near)) => near.x + short_way(x - near.x),
            _ => x,
        };
        let first = ends.map_or(corner, |(first, _)| first);
        ends = Some((first, corner));
        let vertex = Vertex { x, y };
        if before != Some(vertex) {
            vertices.push(vertex);
        }
    }
    if let (Some(first), Some(last), Some((begin, end))) =
        (vertices.first().copied(), vertices.last().copied(), ends)
    {
        if last.x + step(end, begin) != first.x {
            return Err(what("goes around a pole")
                .hint("let it go to latitude 90 at longitude 180, along it to -180, and back"));
        }
        if first == last {
            vertices.pop();
        }
    }
    let is_flat = match vertices.as_slice() {
        [a, b, rest @ ..] => rest.iter().all(|p| cross(*a, *b, *p) == 0),
        _ => true,
    };
    if is_flat {
        return Err(what("has no area")
            .hint("a ring has at least three positions that are not on one line"));
    }
    Ok(vertices)
}

/// Shifts a hole by whole turns until it is inside the outer ring. The outer ring may be wider than half of the
/// Earth, so that the short way from its first corner may lead to another turn.
fn turn_into(edges: &[Edge], ring: &mut [Vertex]) {
    let west = ring.iter().min_by_key(|vertex| vertex.x).copied();
    let east = ring.iter().max_by_key(|vertex| vertex.x).copied();
    let has = |vertex: Option<Vertex>, turn: i64| {
        let outer = edges.iter().filter(|edge| edge.at.0 == 0);
        vertex.is_some_and(|Vertex { x, y }| is_in(outer, Vertex { x: x + turn, y }))
    };
    // Both ends are tested: a hole that touches the edge of a ring around the Earth is on that edge at two turns.
    let turn = [0, TURN, -TURN]
        .into_iter()
        .find(|&turn| has(west, turn) && has(east, turn));
    for vertex in ring {
        vertex.x += turn.unwrap_or(0);
    }
}

fn check_crossings(edges: &[Edge]) -> Result<()> {
    let mut from_west: Vec<&Edge> = edges.iter().collect();
    from_west.sort_unstable_by_key(|e| e.west());
    for (n, edge) in from_west.iter().enumerate() {
        let east = edge.a.x.max(edge.b.x);
        let behind = from_west
            .iter()
            .skip(n + 1)
            .take_while(|other| other.west() <= east);
        for other in behind {
            if edge.crosses(other) {
                let (a, b) = (edge.at.min(other.at), edge.at.max(other.at));
                return Err(wrong(&format!(
                    "edge {} of ring {} crosses edge {} of ring {}",
                    a.1, a.0, b.1, b.0
                ))
                .hint(
                    "the edges of a polygon meet at their ends only; rings and edges count from 0",
                ));
            }
        }
    }
    Ok(())
}

/// Errors: a hole is not inside the outer ring.
fn check_holes(edges: &[Edge]) -> Result<()> {
    let mut outside = edges.iter().filter(|e| e.at.0 > 0);
    let is_outside = |e: &&Edge| !is_in(edges.iter().filter(|e| e.at.0 == 0), e.a);
    match outside.find(is_outside) {
        Some(edge) => Err(wrong(&format!("ring {} is not within ring 0", edge.at.0))
            .hint("the first ring is the outer one, and the others are its holes")),
        None => Ok(()),
    }
}

fn wrong(what: &str) -> Error {
    Error::invalid_argument(format!("polygon: {what}"))
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use base::rng::Rng;

    use super::super::cover::cover;
    use super::super::position::at;
    use super::*;
    use crate::geo::cell::Cell;

    fn part(rng: &mut Rng) -> f64 {
        rng.below(1_000_001) as f64 / 1e6
    }

    /// A star around a place: vertices at rising angles and random distances.
    fn star(rng: &mut Rng, (lat, lon): (f64, f64), width: f64, count: u32) -> Vec<(f64, f64)> {
        let vertex = |n| {
            let angle = f64::from(n) / f64::from(count) * std::f64::consts::TAU;
            let distance = width * (0.3 + 0.7 * part(rng));
            (lat + distance * angle.sin(), lon + distance * angle.cos())
        };
        (0..count).map(vertex).collect()
    }

    /// The winding number of a ring around a place, by the sum of angles; `None` if the place is too near to the
    /// ring.
    fn turns(ring: &[(f64, f64)], (lat, lon): (f64, f64)) -> Option<i32> {
        let angles: Vec<f64> = ring.iter().map(|(y, x)| (y - lat).atan2(x - lon)).collect();
        let mut sum = 0.0;
        for (a, b) in angles.iter().zip(angles.iter().cycle().skip(1)) {
            let step = (b - a + 3.0 * std::f64::consts::PI).rem_euclid(std::f64::consts::TAU)
                - std::f64::consts::PI;
            if step.abs() > std::f64::consts::PI - 0.02 {
                return None;
            }
            sum += step;
        }
        Some((sum / std::f64::consts::TAU).round() as i32)
    }

    /// RFC 7946 polygons go to a pole and along it; the pole itself is one position, with longitude 0.
    #[test]
    fn polygons_reach_poles() {
        let ring = |corners: &[(f64, f64)]| -> Vec<Corner> {
            let corner = |&(lon, lat): &(f64, f64)| Corner::of_degrees(lat, lon).unwrap();
            corners.iter().map(corner).collect()
        };
        let wedge = ring(&[(100.0, 80.0), (110.0, 80.0), (110.0, 90.0), (100.0, 90.0)]);
        let wedge = Polygon::new(&[&wedge]).unwrap();
        assert!(
            wedge.has(at(85.0, 105.0)) && wedge.has(at(89.9, 109.9)) && wedge.has(at(90.0, 0.0))
        );
        assert!(
            !wedge.has(at(85.0, 99.0)) && !wedge.has(at(85.0, 0.0)) && !wedge.has(at(-90.0, 0.0))
        );
        let pole = Cell::of(at(90.0, 0.0)).at_depth(20).span();
        assert_eq!(wedge.relation(&pole), Relation::Crosses);
        let lons = (-6..=6).map(|n| (f64::from(n) * 30.0, 60.0));
        let mut cap: Vec<_> = lons.chain([(180.0, 90.0), (-180.0, 90.0)]).collect();
        let whole = Polygon::new(&[&ring(&cap)]).unwrap();
        for lon in [-180.0, -170.0, -1.0, 0.0, 100.0, 170.0, 179.9] {
            assert!(
                whole.has(at(85.0, lon)) && whole.has(at(60.0, lon)) && !whole.has(at(59.9, lon))
            );
        }
        assert!(whole.has(at(90.0, 0.0)));
        // The first corner makes no difference.
        cap.rotate_left(14);
        assert!(Polygon::new(&[&ring(&cap)]).unwrap().has(at(85.0, 170.0)));
        cap.retain(|(_, lat)| *lat < 90.0);
        let e = Polygon::new(&[&ring(&cap)]).unwrap_err().to_string();
        assert!(e.contains("around a pole"), "{e}");
        // An edge to the pole goes along its meridian.
        assert!(!wedge.is_crossed(at(70.0, 105.0), at(70.0, 95.0)));
        assert!(wedge.is_crossed(at(70.0, 105.0), at(90.0, 0.0)));
    }

    #[test]
    fn polygons_have_what_their_rings_go_around() {
        let mut rng = Rng::new(8);
        let (mut seen, mut inside) = (0, 0);
        for n in 0..600 {
            let centre = [(50.0, 10.0), (-17.0, 179.9), (5.0, -180.0), (80.0, 0.0)][n % 4];
            let width = 10_f64.powi(-(n as i32 / 4 % 5)) * 4.0;
            let count = 3 + rng.below(40) as u32;
            let outer = star(&mut rng, centre, width, count);
            let hole = star(&mut rng, centre, width * 0.1, 5);
            let positions = |ring: &[(f64, f64)]| {
                ring.iter()
                    .map(|&(lat, lon)| at(lat, lon))
                    .collect::<Vec<_>>()
            };
            // With three or four vertices, the centre, and so the hole, may be outside.
            let with_hole = count > 8;
            let rings = [positions(&outer), positions(&hole)];
            let rings: Vec<&[Position]> = rings
                .iter()
                .take(1 + usize::from(with_hole))
                .map(|r| &r[..])
                .collect();
            let polygon = Polygon::new(&rings).unwrap();
            let ranges = cover(&polygon, 64);
            for _ in 0..100 {
                let place = (
                    centre.0 + (part(&mut rng) * 2.4 - 1.2) * width,
                    centre.1 + (part(&mut rng) * 2.4 - 1.2) * width,
                );
                let position = at(place.0, place.1);
                let has = polygon.has(position);
                let leaf = Cell::of(position).range().0;
                let range = ranges.iter().find(|r| (r.first..=r.last).contains(&leaf));
                assert!(range.map_or(!has, |r| has || !r.is_inside), "{position:?}");
                let around = [turns(&outer, place), turns(&hole, place)];
                if let [Some(outer), Some(hole)] = around {
                    assert_eq!(
                        has,
                        outer != 0 && !(with_hole && hole != 0),
                        "{n}: {place:?}"
                    );
                    seen += 1;
                    inside += u32::from(has);
                }
            }
        }
        assert!(seen > 50_000 && inside > 10_000, "{seen} {inside}");
    }

    /// A hole is found inside even if it is more than half of the Earth away from the first corner.
    #[test]
    fn holes_may_be_far_from_the_first_corner() {
        let ring = |corners: &[(f64, f64)]| -> Vec<Corner> {
            let corner = |&(lon, lat): &(f64, f64)| Corner::of_degrees(lat, lon).unwrap();
            corners.iter().map(corner).collect()
        };
        let band = |west: f64, middle: f64, east: f64| {
            ring(&[
                (west, 0.0),
                (middle, 0.0),
                (east, 0.0),
                (east, 50.0),
                (middle, 50.0),
                (west, 50.0),
            ])
        };
        for (wide, lon) in [
            (band(-100.0, 0.0, 100.0), 90.0),
            (band(100.0, 0.0, -100.0), -90.0),
            (band(10.0, 110.0, -140.0), -150.0),
        ] {
            let hole = ring(&[(lon, 10.0), (lon + 5.0, 10.0), (lon + 5.0, 20.0)]);
            let polygon = Polygon::new(&[&wide, &hole]).unwrap();
            assert!(!polygon.has(at(12.0, lon + 4.0)) && polygon.has(at(12.0, lon - 4.0)));
        }
        // A hole that touches the line at which a ring around the Earth begins and ends.
        let lons = (-6..=6).map(|n| (f64::from(n) * 30.0, 60.0));
        let cap: Vec<_> = lons.chain([(180.0, 90.0), (-180.0, 90.0)]).collect();
        for lon in [170.0, -170.0] {
            let hole = ring(&[(180.0, 70.0), (lon, 70.0), (180.0, 80.0)]);
            let polygon = Polygon::new(&[&ring(&cap), &hole]).unwrap();
            assert!(!polygon.has(at(72.0, 175.0 * lon.signum())));
            assert!(polygon.has(at(72.0, lon)) && polygon.has(at(72.0, -175.0 * lon.signum())));
        }
    }

    #[test]
    fn edges_and_vertices_are_in() {
        let square = [
            at(0.0, 0.0),
            at(0.0, 4.0),
            at(4.0, 4.0),
            at(4.0, 0.0),
            at(0.0, 0.0),
        ];
        let hole = [at(1.0, 1.0), at(1.0, 2.0), at(2.0, 2.0), at(2.0, 1.0)];
        let polygon = Polygon::new(&[&square, &hole]).unwrap();
        for (lat, lon) in [
            (0.0, 0.0),
            (4.0, 4.0),
            (0.0, 2.0),
            (2.0, 4.0),
            (1.0, 1.5),
            (2.0, 2.0),
        ] {
            assert!(polygon.has(at(lat, lon)), "{lat} {lon}");
        }
        for (lat, lon) in [
            (-0.000_000_1, 2.0),
            (2.0, 4.000_000_1),
            (1.000_000_1, 1.5),
            (1.5, 1.5),
        ] {
            assert!(!polygon.has(at(lat, lon)), "{lat} {lon}");
        }
    }

    #[test]
    fn what_is_no_polygon_is_refused_by_name() {
        let ring = |places: &[(f64, f64)]| {
            places
                .iter()
                .map(|&(lat, lon)| at(lat, lon))
                .collect::<Vec<_>>()
        };
        let square = ring(&[(0.0, 0.0), (0.0, 4.0), (4.0, 4.0), (4.0, 0.0)]);
        let far = ring(&[(10.0, 10.0), (10.0, 11.0), (11.0, 11.0)]);
        let bow = ring(&[(0.0, 0.0), (4.0, 4.0), (0.0, 4.0), (4.0, 1.0)]);
        let line = ring(&[(0.0, 0.0), (1.0, 1.0), (2.0, 2.0)]);
        let pole = ring(&[(80.0, 0.0), (80.0, 120.0), (80.0, -120.0)]);
        let over = ring(&[(1.0, 1.0), (1.0, 6.0), (2.0, 6.0)]);
        let many = vec![at(0.0, 0.0); VERTICES_MAX + 1];
        let bad: [(&[&[Position]], &str); 8] = [
            (&[], "0 rings"),
            (&[&many], "10001 positions"),
            (&[&line], "ring 0 has no area"),
            (&[&[]], "ring 0 has no area"),
            (&[&bow], "edge 0 of ring 0 crosses edge 2 of ring 0"),
            (&[&pole], "goes around a pole"),
            (&[&square, &far], "ring 1 is not within ring 0"),
            (&[&square, &over], "crosses edge"),
        ];
        for (rings, what) in bad {
            let e = Polygon::new(rings).unwrap_err().to_string();
            assert!(e.contains(what), "{what}: {e}");
        }
    }

    /// A polygon with the most vertices is checked in bounded time.
    #[test]
    fn the_largest_polygon_is_made() {
        let mut rng = Rng::new(9);
        let ring: Vec<_> = star(&mut rng, (0.0, 0.0), 10.0, VERTICES_MAX as u32)
            .into_iter()
            .map(|(lat, lon)| at(lat, lon))
            .collect();
        let polygon = Polygon::new(&[&ring]).unwrap();
        assert!(polygon.has(at(0.0, 0.0)) && !polygon.has(at(0.0, 11.0)));
    }
}
