//! Random areas, with an independent test of which places are inside, by other formulas than the service's, from the
//! numbers that the area was made of. Distances are chords of unit vectors and Vincenty's, rectangles are intervals
//! of whole numbers, polygons are winding numbers.

use base::rng::Rng;
use tracks::geo::polygon::{Corner, Polygon};
use tracks::geo::position::Position;
use tracks::geo::shape::{Circle, Rectangle, Shape};
use tracks::geo::surface::Surface;

use crate::world::{at, near, part};

/// 10⁻⁷ degrees in a degree, and around the Earth.
const DEGREE: i64 = 10_000_000;
const TURN: i64 = 360 * DEGREE;
const POLE: i64 = 90 * DEGREE;

/// As documented: (2a + b) / 3 of WGS84.
const RADIUS: f64 = 6_371_008.8;

/// Half of the way around the Earth, rounded up: the greatest radius.
pub(crate) const HALF_AROUND: f64 = 20_015_115.0;

/// A position, with precomputed values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) position: Position,
    lat: i64,
    lon: i64,
    unit: [f64; 3],
}

impl From<Position> for Place {
    fn from(position: Position) -> Self {
        let (lat, lon) = (i64::from(position.lat()), i64::from(position.lon()));
        let radians = |units: i64| (units as f64 / DEGREE as f64).to_radians();
        let ((z, flat), (y, x)) = (radians(lat).sin_cos(), radians(lon).sin_cos());
        Self {
            position,
            lat,
            lon,
            unit: [flat * x, flat * y, z],
        }
    }
}

impl Place {
    /// The distance in metres on a surface. `None` if Vincenty's formula does not converge.
    pub(crate) fn distance(&self, other: &Self, surface: Surface) -> Option<f64> {
        match surface {
            Surface::Sphere => Some(RADIUS * self.angle(other)),
            Surface::Ellipsoid => self.vincenty(other),
        }
    }

    /// The angle between the vectors, exact for small and large ones.
    fn angle(&self, other: &Self) -> f64 {
        let ([a, b, c], [x, y, z]) = (self.unit, other.unit);
        let cross = [b * z - c * y, c * x - a * z, a * y - b * x];
        let sin = cross.iter().map(|n| n * n).sum::<f64>().sqrt();
        sin.atan2(a * x + b * y + c * z)
    }

    /// T. Vincenty's inverse formula (1975), with an error of at most half a millimetre; it does not converge between
    /// nearly opposite places.
    fn vincenty(&self, other: &Self) -> Option<f64> {
        if (self.lat, self.lon) == (other.lat, other.lon) {
            return Some(0.0);
        }
        let (a, f) = (6_378_137.0, 1.0 / 298.257_223_563);
        let b = a * (1.0 - f);
        let radians = |units: i64| (units as f64 / DEGREE as f64).to_radians();
        let reduced = |lat: i64| ((1.0 - f) * radians(lat).tan()).atan().sin_cos();
        let ((s1, c1), (s2, c2)) = (reduced(self.lat), reduced(other.lat));
        let l = radians((other.lon - self.lon + TURN / 2).rem_euclid(TURN) - TURN / 2);
        let mut lambda = l;
        for _ in 0..100 {
            let (sin, cos) = lambda.sin_cos();
            let sin_sigma = (c2 * sin).hypot(c1 * s2 - s1 * c2 * cos);
            let cos_sigma = s1 * s2 + c1 * c2 * cos;
            let sigma = sin_sigma.atan2(cos_sigma);
            let sin_alpha = c1 * c2 * sin / sin_sigma;
            let squared = 1.0 - sin_alpha * sin_alpha;
            // Along the equator it is undefined.
            let middle = if squared > 1e-15 {
                cos_sigma - 2.0 * s1 * s2 / squared
            } else {
                0.0
            };
            let c = f / 16.0 * squared * (4.0 + f * (4.0 - 3.0 * squared));
            let twice = 2.0 * middle * middle - 1.0;
            let before = lambda;
            let by = sigma + c * sin_sigma * (middle + c * cos_sigma * twice);
            lambda = l + (1.0 - c) * f * sin_alpha * by;
            if lambda.abs() > std::f64::consts::PI {
                return None;
            }
            if (lambda - before).abs() < 1e-13 {
                let u = squared * (a * a - b * b) / (b * b);
                let big = 1.0 + u / 16384.0 * (4096.0 + u * (-768.0 + u * (320.0 - 175.0 * u)));
                let small = u / 1024.0 * (256.0 + u * (-128.0 + u * (74.0 - 47.0 * u)));
                let last = small / 6.0 * middle * (4.0 * sin_sigma * sin_sigma - 3.0);
                let last = last * (4.0 * middle * middle - 3.0);
                let rest = middle + small / 4.0 * (cos_sigma * twice - last);
                return Some(b * big * (sigma - small * sin_sigma * rest));
            }
        }
        None
    }

    /// Whether the circle crosses the antimeridian or contains a pole.
    pub(crate) fn crosses_within(&self, metres: f64) -> bool {
        let angle = metres / RADIUS;
        let to_pole = ((POLE - self.lat.abs()) as f64 / DEGREE as f64).to_radians();
        let from_line = ((TURN / 2 - self.lon.abs()) as f64 / DEGREE as f64).to_radians();
        // On a meridian that is at least a quarter turn away, the nearest place is a pole.
        let is_quarter = from_line >= std::f64::consts::FRAC_PI_2;
        let to_line = (from_line.sin() * to_pole.sin()).asin();
        angle > to_pole || (!is_quarter && angle > to_line)
    }

    pub(crate) fn is_east(&self) -> bool {
        self.lon >= 0
    }
}

/// Corners, continued over the antimeridian: longitude, latitude.
type Ring = Vec<(i64, i64)>;

#[derive(Debug)]
enum Truth {
    /// From the west edge, this far eastwards.
    Rectangle {
        west: i64,
        width: i64,
        south: i64,
        north: i64,
    },
    Circle {
        centre: Place,
        radius: f64,
        surface: Surface,
    },
    Polygon {
        outer: Ring,
        hole: Ring,
    },
}

/// The result of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Has {
    Yes,
    No,
    /// No: it is in a hole.
    Hole,
    /// So near to the edge that rounding decides.
    Doubt,
}

/// An area, for the service and for the independent test.
pub(crate) struct Drawn {
    pub(crate) shape: Box<dyn Shape>,
    truth: Truth,
}

impl std::fmt::Debug for Drawn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.truth.fmt(f)
    }
}

impl Drawn {
    /// The independent test.
    pub(crate) fn has(&self, place: &Place) -> Has {
        let of = |is_in| if is_in { Has::Yes } else { Has::No };
        match &self.truth {
            Truth::Rectangle {
                west,
                width,
                south,
                north,
            } => {
                let is_pole = place.lat.abs() == POLE;
                let is_between = (place.lon - west).rem_euclid(TURN) <= *width;
                of((*south..=*north).contains(&place.lat) && (is_pole || is_between))
            }
            Truth::Circle {
                centre,
                radius,
                surface,
            } => in_circle(centre, *radius, *surface, place),
            Truth::Polygon { outer, hole } => in_polygon(outer, hole, place),
        }
    }

    /// Whether it has places on both sides of the antimeridian, or contains a pole.
    pub(crate) fn crosses(&self) -> bool {
        // An odd multiple of 180 degrees is between both.
        let is_over =
            |west: i64, east: i64| (east - 1 + TURN / 2) / TURN > (west + TURN / 2) / TURN;
        match &self.truth {
            Truth::Rectangle {
                west,
                width,
                south,
                north,
            } => {
                // Made positive, because integer division rounds towards 0.
                let west = west + 4 * TURN;
                *north == POLE || *south == -POLE || is_over(west, west + width)
            }
            Truth::Circle { centre, radius, .. } => centre.crosses_within(*radius),
            Truth::Polygon { outer, .. } => {
                let xs = || outer.iter().map(|(x, _)| x + 4 * TURN);
                let (west, east) = (xs().min().unwrap(), xs().max().unwrap());
                outer.iter().any(|(_, y)| y.abs() == POLE) || is_over(west, east)
            }
        }
    }

    pub(crate) fn is_polygon(&self) -> bool {
        matches!(self.truth, Truth::Polygon { .. })
    }

    /// Whether it is more than a quarter of the Earth high or wide.
    pub(crate) fn is_large(&self) -> bool {
        match &self.truth {
            Truth::Rectangle {
                width,
                south,
                north,
                ..
            } => *width > TURN / 4 || north - south > TURN / 4,
            Truth::Circle { radius, .. } => *radius > HALF_AROUND / 4.0,
            Truth::Polygon { outer, .. } => {
                let xs = || outer.iter().map(|(x, _)| *x);
                xs().max().unwrap() - xs().min().unwrap() > TURN / 4
            }
        }
    }
}

fn in_circle(centre: &Place, radius: f64, surface: Surface, place: &Place) -> Has {
    let of = |is_in| if is_in { Has::Yes } else { Has::No };
    if (centre.lat, centre.lon) == (place.lat, place.lon) {
        return Has::Yes;
    }
    if surface == Surface::Ellipsoid {
        return match centre.vincenty(place) {
            Some(d) if (d - radius).abs() > 0.001 => of(d < radius),
            _ => Has::Doubt,
        };
    }
    // Squares of chords: no formula for distances is needed.
    let pairs = centre.unit.iter().zip(place.unit);
    let squared: f64 = pairs.map(|(a, b)| (a - b) * (a - b)).sum();
    let chord = 2.0
        * (radius / RADIUS / 2.0)
            .min(std::f64::consts::FRAC_PI_2)
            .sin();
    let doubt = 1e-9 * squared + 1e-14 * squared.sqrt();
    if (squared - chord * chord).abs() <= doubt {
        return Has::Doubt;
    }
    of(squared < chord * chord)
}

fn in_polygon(outer: &Ring, hole: &Ring, place: &Place) -> Has {
    if place.lat.abs() == POLE {
        let has = outer.iter().any(|(_, y)| *y == place.lat);
        return if has { Has::Yes } else { Has::No };
    }
    let mut is_hole = false;
    for turn in -2..=2 {
        let p = (place.lon + turn * TURN, place.lat);
        match (winding(outer, p), winding(hole, p)) {
            (Some(0), _) => {}
            (_, Some(n)) if n != 0 => is_hole = true,
            // On an edge of one of them, or between both.
            _ => return Has::Yes,
        }
    }
    if is_hole { Has::Hole } else { Has::No }
}

/// The winding number of a ring around a place, by the edges that cross the place's latitude; `None` if the place is
/// on an edge.
fn winding(ring: &Ring, (x, y): (i64, i64)) -> Option<i32> {
    let mut winding = 0;
    for (&(ax, ay), &(bx, by)) in ring.iter().zip(ring.iter().cycle().skip(1)) {
        if y < ay.min(by) || y > ay.max(by) || x > ax.max(bx) {
            continue;
        }
        let product = |m: i64, n: i64| i128::from(m) * i128::from(n);
        let side = product(bx - ax, y - ay) - product(by - ay, x - ax);
        if side == 0 && x >= ax.min(bx) {
            return None;
        }
        if ay <= y && by > y && side > 0 {
            winding += 1;
        } else if ay > y && by <= y && side < 0 {
            winding -= 1;
        }
    }
    Some(winding)
}

fn units(degrees: f64) -> i64 {
    (degrees * DEGREE as f64).round() as i64
}

/// At least −180 and less than 180 degrees.
fn wrapped(lon: i64) -> i64 {
    (lon + TURN / 2).rem_euclid(TURN) - TURN / 2
}

fn degrees(units: i64) -> f64 {
    units as f64 / DEGREE as f64
}

/// The centre and the width of an area, degrees.
struct Where {
    lat: f64,
    lon: f64,
    width: f64,
    is_large: bool,
    /// The line that it must cross, if any.
    over: Option<Line>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    Antimeridian,
    Pole,
}

fn some_where(rng: &mut Rng, must_cross: bool) -> Where {
    let is_large = rng.one_in(8);
    let width = if is_large {
        3.0 + part(rng, 177.0)
    } else {
        3.0 * 10_f64.powi(-(rng.below(5) as i32))
    };
    let signed = |rng: &mut Rng, width: f64| part(rng, 2.0 * width) - width;
    let (lat, lon) = if rng.one_in(4) {
        (signed(rng, 90.0), signed(rng, 180.0))
    } else {
        near(rng)
    };
    let over = must_cross.then(|| {
        if rng.one_in(2) {
            Line::Antimeridian
        } else {
            Line::Pole
        }
    });
    let (lat, lon) = match over {
        None => (lat, lon),
        Some(Line::Antimeridian) => {
            let lat = if rng.one_in(4) {
                lat
            } else {
                part(rng, 4.0) - 18.0
            };
            (lat, 180.0 + signed(rng, width * 0.9))
        }
        Some(Line::Pole) => {
            let side = [1.0, -1.0][usize::from(rng.one_in(4))];
            (
                side * (90.0 - part(rng, 0.9 * width.min(90.0))),
                signed(rng, 180.0),
            )
        }
    };
    Where {
        lat,
        lon,
        width,
        is_large,
        over,
    }
}

/// A random area; with `must_cross`, it crosses the antimeridian or a pole. Some have edges, corners or centres at
/// places.
pub(crate) fn some_shape(rng: &mut Rng, places: &[Place], must_cross: bool) -> Drawn {
    let kind = rng.below(3);
    // Retried, so that each kind is as frequent as intended, however rarely it can be made.
    for _ in 0..1000 {
        let of = some_where(rng, must_cross);
        let place = (rng.one_in(8) && !places.is_empty())
            .then(|| places[rng.below(places.len() as u64) as usize]);
        let drawn = match kind {
            0 => Some(some_rectangle(rng, &of, place)),
            1 => Some(some_circle(rng, &of, place)),
            _ => some_polygon(rng, &of, place),
        };
        if let Some(drawn) = drawn.filter(|drawn| !must_cross || drawn.crosses()) {
            return drawn;
        }
    }
    panic!("no shape of kind {kind} can be made");
}

fn some_rectangle(rng: &mut Rng, of: &Where, place: Option<Place>) -> Drawn {
    let mut half = |width: f64| units(part(rng, width));
    let (x, y) = (half(of.width), half(of.width / 2.0));
    let (lat, lon) = (units(of.lat), units(of.lon));
    let (mut south, mut north) = ((lat - y).max(-POLE), (lat + y).min(POLE));
    let (mut west, width) = (lon - x, (2 * x).min(TURN));
    if of.over == Some(Line::Pole) {
        if lat > 0 {
            north = POLE;
        } else {
            south = -POLE;
        }
    }
    if let Some(place) = place {
        west = place.lon - [0, width][rng.below(2) as usize];
        (south, north) = (south.min(place.lat), north.max(place.lat));
    }
    let from = wrapped(west);
    let mut to = wrapped(west + width);
    // 180 and −180 are the same, unless the width is 0.
    if to == -TURN / 2 && width > 0 && rng.one_in(2) {
        to = TURN / 2;
    }
    let (from, to) = if width == TURN {
        (-TURN / 2, TURN / 2)
    } else {
        (from, to)
    };
    let [west_, south_, east_, north_] = [from, south, to, north].map(degrees);
    Drawn {
        shape: Box::new(Rectangle::of_degrees(west_, south_, east_, north_).unwrap()),
        truth: Truth::Rectangle {
            west,
            width,
            south,
            north,
        },
    }
}

fn some_circle(rng: &mut Rng, of: &Where, place: Option<Place>) -> Drawn {
    let centre = at(of.lat.clamp(-90.0, 90.0), degrees(wrapped(units(of.lon))));
    let centre = place.map_or(centre, |place| place.position);
    let surface = [Surface::Sphere, Surface::Ellipsoid][usize::from(rng.one_in(16))];
    let radius = match rng.below(8) {
        0 if of.is_large => 20_000_000.0,
        1 if of.is_large => HALF_AROUND,
        0 => 0.0,
        _ => part(rng, of.width * 111_000.0),
    };
    circle(centre, radius, surface)
}

pub(crate) fn circle(centre: Position, radius: f64, surface: Surface) -> Drawn {
    Drawn {
        shape: Box::new(Circle::new(centre, radius).unwrap().on(surface)),
        truth: Truth::Circle {
            centre: centre.into(),
            radius,
            surface,
        },
    }
}

/// A polygon, always with a hole. `None` if it would contain a pole, which only a wedge does as polygons must.
fn some_polygon(rng: &mut Rng, of: &Where, place: Option<Place>) -> Option<Drawn> {
    let (mut outer, mut hole) = if of.over == Some(Line::Pole) {
        wedge(rng, of)
    } else {
        let width = of.width.min(85.0);
        let corners = 5 + rng.below(12);
        // No edge is nearer to the centre than this: corners have a least distance from it, and neighbouring corners
        // a largest angle.
        let inner = 0.4 * (std::f64::consts::PI * 1.8 / corners as f64).cos();
        let count = 3 + rng.below(6);
        (
            star(rng, (of.lat, of.lon), width, corners),
            star(rng, (of.lat, of.lon), width * inner * 0.95, count),
        )
    };
    if let (Some(place), Some(&(x, y)), true) = (place, outer.first(), of.over.is_none()) {
        for corner in outer.iter_mut().chain(&mut hole) {
            *corner = (corner.0 + place.lon - x, corner.1 + place.lat - y);
        }
    }
    let is_star = of.over != Some(Line::Pole);
    if is_star && outer.iter().any(|(_, y)| y.abs() >= POLE) {
        return None;
    }
    let corners = |ring: &Ring| -> Vec<Corner> {
        let is_pole = |y: i64| y.abs() == POLE;
        let corner = |&(x, y): &(i64, i64)| {
            let x = if is_pole(y) { x } else { wrapped(x) };
            Corner::of_degrees(degrees(y), degrees(x)).unwrap()
        };
        ring.iter().map(corner).collect()
    };
    let polygon = Polygon::new(&[&corners(&outer)[..], &corners(&hole)]);
    let polygon = polygon.unwrap_or_else(|e| panic!("{e}: {outer:?}, {hole:?}"));
    Some(Drawn {
        shape: Box::new(polygon),
        truth: Truth::Polygon { outer, hole },
    })
}

/// Corners in order around a place, degrees.
fn star(rng: &mut Rng, (lat, lon): (f64, f64), width: f64, corners: u64) -> Ring {
    let corner = |n: u64, rng: &mut Rng| {
        let angle = (n as f64 + part(rng, 0.8)) / corners as f64;
        let (sin, cos) = (angle * std::f64::consts::TAU).sin_cos();
        let far = width * (0.4 + part(rng, 0.6));
        (units(lon + far * cos), units(lat + far * sin))
    };
    (0..corners).map(|n| corner(n, rng)).collect()
}

/// A polygon from somewhere up to a pole and along it, between longitudes −180 and 180, as it must be written there.
fn wedge(rng: &mut Rng, of: &Where) -> (Ring, Ring) {
    let height = of.width.min(80.0);
    let span = if rng.one_in(4) {
        360.0
    } else {
        1.0 + part(rng, 359.0)
    };
    let west = part(rng, 360.0 - span) - 180.0;
    let points = 4 + rng.below(12);
    let mut outer: Ring = (0..=points)
        .map(|n| {
            let lon = west + span * n as f64 / points as f64;
            (units(lon), units(90.0 - height * (0.5 + part(rng, 0.5))))
        })
        .collect();
    // Around the pole, it ends where it begins.
    let (first, last) = (outer[0], outer.len() - 1);
    if span >= 360.0 {
        outer[last].1 = first.1;
    }
    outer.push((outer[last].0, POLE));
    outer.push((first.0, POLE));
    let middle = (90.0 - height * 0.25, west + span / 2.0);
    let count = 3 + rng.below(6);
    let mut hole = star(rng, middle, (height * 0.2).min(span * 0.4), count);
    if of.lat < 0.0 {
        for corner in outer.iter_mut().chain(&mut hole) {
            corner.1 = -corner.1;
        }
    }
    (outer, hole)
}

/// Checks the independent formulas with known distances.
#[test]
fn the_second_opinion_knows_its_distances() {
    let of = |lat, lon| Place::from(at(lat, lon));
    let d = |a: Place, b: Place, s| a.distance(&b, s).unwrap();
    let (a, b) = (of(59.3293, 18.0686), of(59.8586, 17.6389));
    assert!((d(a, b, Surface::Sphere) - 63_630.0).abs() < 1.0);
    assert!((d(a, b, Surface::Ellipsoid) - 63_766.0).abs() < 1.0);
    let quarter = d(of(0.0, 5.0), of(90.0, 0.0), Surface::Ellipsoid);
    assert!((quarter - 10_001_965.729).abs() < 0.001, "{quarter}");
    let line = d(of(0.0, 179.5), of(0.0, -179.5), Surface::Ellipsoid);
    assert!((line - 111_319.491).abs() < 0.001, "{line}");
    assert!(of(0.0, 179.0).crosses_within(112_000.0) && !of(0.0, 179.0).crosses_within(111_000.0));
    assert!(of(89.0, 0.0).crosses_within(112_000.0) && !of(89.0, 0.0).crosses_within(111_000.0));
    assert!(!of(0.0, 10.0).crosses_within(10_000_000.0));
}
