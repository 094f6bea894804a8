//! Corridors: a line with a width, such as a road, a route or a border.

use base::{Error, Result};

use super::cell::Span;
use super::distance::{RADIUS, farthest};
use super::plane::{in_plane, to_line};
use super::position::{PER_DEGREE, Position, degrees, short_way};
use super::shape::{Rectangle, Relation, Shape};

/// The most positions of a line.
pub const POSITIONS_MAX: usize = 10_000;
/// The most metres to either side of the line.
pub const WIDTH_MAX: f64 = 100_000.0;
/// Longer pieces of a line are cut, because distances are computed in a plane; 10⁻⁷ degrees.
const PIECE: i64 = PER_DEGREE as i64 / 2;

/// All places within a distance of a line. Its pieces are straight in degrees, and go the short way
/// around the Earth.
#[derive(Clone, Debug)]
pub struct Corridor {
    line: Vec<Position>,
    width: f64,
    /// A rectangle that contains the whole corridor.
    around: Rectangle,
    /// How far a place may be north or south of the line, and east or west of it, 10⁻⁷ degrees; both are a little too
    /// far.
    margin: (i64, i64),
}

impl Corridor {
    /// A corridor around a line of at least two positions; `width` is in metres, to either side.
    /// Errors: `InvalidArgument` if there are fewer positions, or more than [`POSITIONS_MAX`]; if
    /// the width is not within 0 and [`WIDTH_MAX`]; or if the line goes around the Earth.
    ///
    /// ```
    /// use tracks::geo::{corridor::Corridor, position::Position, shape::Shape};
    /// let at = |lat, lon| Position::of_degrees(lat, lon).unwrap();
    /// let road = Corridor::new(&[at(59.0, 18.0), at(59.0, 18.1), at(59.1, 18.1)], 50.0)?;
    /// assert!(road.has(at(59.0004, 18.05)) && !road.has(at(59.0006, 18.05)));
    /// # Ok::<(), base::Error>(())
    /// ```
    pub fn new(line: &[Position], width: f64) -> Result<Self> {
        let wrong = |text: String| Err(Error::invalid_argument(format!("a corridor {text}")));
        if !(2..=POSITIONS_MAX).contains(&line.len()) {
            let count = line.len();
            return wrong(format!(
                "of {count} positions, and not of 2 to {POSITIONS_MAX}"
            ));
        }
        if !(0.0..=WIDTH_MAX).contains(&width) {
            return wrong(format!("of {width} metres, and not of 0 to {WIDTH_MAX}"));
        }
        let Some((around, margin)) = around(line, width) else {
            return wrong("that goes around the Earth, or to a pole".to_owned());
        };
        Ok(Self {
            line: in_pieces(line),
            width,
            around,
            margin,
        })
    }

    /// Whether a position in the surrounding rectangle may be near enough to a piece. Says no without computing a
    /// distance, for most pieces of a long line.
    fn may_reach(&self, position: Position, a: Position, b: Position) -> bool {
        let (north, east) = self.margin;
        let lat = i64::from(position.lat());
        let (lat_a, lat_b) = (i64::from(a.lat()), i64::from(b.lat()));
        let lon = i64::from(a.lon());
        let from_a = short_way(i64::from(position.lon()) - lon);
        let length = short_way(i64::from(b.lon()) - lon);
        lat >= lat_a.min(lat_b) - north
            && lat <= lat_a.max(lat_b) + north
            && from_a >= length.min(0) - east
            && from_a <= length.max(0) + east
    }

    /// The distance from a position to the line, metres.
    fn distance(&self, from: Position) -> f64 {
        let pieces = self.line.windows(2).filter_map(|piece| match piece {
            [a, b] => Some(to_line(from, *a, *b)),
            _ => None,
        });
        pieces.fold(f64::INFINITY, f64::min)
    }
}

impl Shape for Corridor {
    fn has(&self, position: Position) -> bool {
        let has = |piece: &[Position]| match piece {
            [a, b] => self.may_reach(position, *a, *b) && to_line(position, *a, *b) <= self.width,
            _ => false,
        };
        self.around.has(position) && self.line.windows(2).any(has)
    }

    fn relation(&self, span: &Span) -> Relation {
        if self.around.relation(span) == Relation::Outside {
            return Relation::Outside;
        }
        let middle = Position::of_units(
            span.south.midpoint(span.north),
            span.west.midpoint(span.east),
        );
        let Ok(middle) = middle else {
            return Relation::Crosses;
        };
        // Distances in tangent planes at different places differ, but by less than a tenth for
        // small spans.
        let reach = farthest(middle, span) * 1.1 + 1.0;
        if reach > WIDTH_MAX {
            return Relation::Crosses;
        }
        let distance = self.distance(middle);
        if distance > self.width + reach {
            Relation::Outside
        } else if distance + reach < self.width {
            Relation::Inside
        } else {
            Relation::Crosses
        }
    }

    fn is_crossed(&self, a: Position, b: Position) -> bool {
        if !self.around.is_crossed(a, b) {
            return false;
        }
        let (south, north) = (a.lat().min(b.lat()), a.lat().max(b.lat()));
        let (south, north) = (
            i64::from(south) - self.margin.0,
            i64::from(north) + self.margin.0,
        );
        let crosses = |piece: &[Position]| match piece {
            [c, d] => {
                i64::from(c.lat().min(d.lat())) <= north
                    && i64::from(c.lat().max(d.lat())) >= south
                    && between_lines((a, b), (*c, *d)) <= self.width
            }
            _ => false,
        };
        self.line.windows(2).any(crosses)
    }
}

/// The distance between two segments, metres.
fn between_lines((a, b): (Position, Position), (c, d): (Position, Position)) -> f64 {
    let scale = degrees(a.lat()).to_radians().cos();
    let [b_xy, c_xy, d_xy] = [b, c, d].map(|p| in_plane(a, p, scale));
    let side = |from: (f64, f64), to: (f64, f64), p: (f64, f64)| {
        (to.0 - from.0) * (p.1 - from.1) - (to.1 - from.1) * (p.0 - from.0)
    };
    let o = (0.0, 0.0);
    let is_crossing = side(o, b_xy, c_xy) * side(o, b_xy, d_xy) < 0.0
        && side(c_xy, d_xy, o) * side(c_xy, d_xy, b_xy) < 0.0;
    if is_crossing {
        return 0.0;
    }
    let ends = [
        to_line(a, c, d),
        to_line(b, c, d),
        to_line(c, a, b),
        to_line(d, a, b),
    ];
    ends.into_iter().fold(f64::INFINITY, f64::min)
}

/// How many short pieces the line between two positions is cut into.
pub(crate) fn pieces(pair: &[Position]) -> i64 {
    let [a, b] = pair else { return 0 };
    let x = short_way(i64::from(b.lon()) - i64::from(a.lon()));
    let y = i64::from(b.lat()) - i64::from(a.lat());
    x.abs().max(y.abs()) / PIECE + 1
}

/// The line with its long pieces cut into short ones.
fn in_pieces(line: &[Position]) -> Vec<Position> {
    let mut out: Vec<Position> = line.first().copied().into_iter().collect();
    for pair in line.windows(2) {
        let [a, b] = pair else { continue };
        let x = short_way(i64::from(b.lon()) - i64::from(a.lon()));
        let y = i64::from(b.lat()) - i64::from(a.lat());
        let count = pieces(pair);
        let at = |n: i64| {
            let lon = short_way(i64::from(a.lon()) + x * n / count);
            Position::of_units((i64::from(a.lat()) + y * n / count) as i32, lon as i32).ok()
        };
        out.extend((1..=count).filter_map(at));
    }
    out
}

/// A rectangle that contains a whole corridor, and how far it is from the line to the north and to the east, 10⁻⁷ degrees.
/// `None` if it would go around the Earth or contain a pole.
fn around(line: &[Position], width: f64) -> Option<(Rectangle, (i64, i64))> {
    let degrees_of = |metres: f64| (metres / RADIUS).to_degrees();
    let margin = degrees_of(width) * 1.01 + 1e-6;
    let mut x = i64::from(line.first()?.lon());
    let (mut west, mut east) = (x, x);
    for position in line {
        x += short_way(i64::from(position.lon()) - x);
        (west, east) = (west.min(x), east.max(x));
    }
    let lats = || line.iter().map(|p| degrees(p.lat()));
    let south = lats().fold(90.0, f64::min) - margin;
    let north = lats().fold(-90.0, f64::max) + margin;
    let widest = south.abs().max(north.abs());
    if widest > 89.0 {
        return None;
    }
    let sideways = margin / widest.to_radians().cos();
    let [west, east] =
        [(west, -sideways), (east, sideways)].map(|(x, by)| x as f64 / f64::from(PER_DEGREE) + by);
    if east - west >= 350.0 {
        return None;
    }
    let wrapped = |lon: f64| (lon + 180.0).rem_euclid(360.0) - 180.0;
    let rectangle = Rectangle::of_degrees(wrapped(west), south, wrapped(east), north).ok()?;
    let units = |degrees: f64| (degrees * f64::from(PER_DEGREE)).ceil() as i64;
    Some((rectangle, (units(margin), units(sideways))))
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use base::rng::Rng;

    use super::super::cell::Cell;
    use super::super::cover::{RANGES_MAX, cover};
    use super::super::position::at;
    use super::*;

    #[test]
    fn corridors_have_what_is_near_and_covers_have_corridors() {
        let mut rng = Rng::new(9);
        let mut found = 0;
        for n in 0..300 {
            let (lat, lon) = [(57.0, 16.0), (-17.0, 179.9), (70.0, -179.95)][n % 3];
            let mut part = |by: f64| (rng.below(2_000_001) as f64 / 1e6 - 1.0) * by;
            let near = |lat: f64, lon: f64| at(lat, (lon + 540.0).rem_euclid(360.0) - 180.0);
            let line: Vec<_> = (0..4)
                .map(|_| near(lat + part(0.2), lon + part(0.2)))
                .collect();
            let width = [0.0, 30.0, 1000.0, 9000.0][n % 4];
            let corridor = Corridor::new(&line, width).unwrap();
            let ranges = cover(&corridor, RANGES_MAX);
            for n in 0..100 {
                let p = if n < line.len() {
                    line[n]
                } else {
                    near(lat + part(0.3), lon + part(0.3))
                };
                let has = corridor.has(p);
                let cell = Cell::of(p).range().0;
                let range = ranges.iter().find(|r| (r.first..=r.last).contains(&cell));
                assert!(range.is_some() || !has, "{p:?} is left out");
                assert!(
                    has || range.is_none_or(|r| !r.is_inside),
                    "{p:?} is not inside"
                );
                assert!(n >= line.len() || has);
                found += usize::from(has);
            }
        }
        assert!(found > 2000, "{found}");
    }

    #[test]
    fn lines_cross_corridors() {
        let road = Corridor::new(&[at(59.0, 18.0), at(59.0, 18.1)], 50.0).unwrap();
        let crossed = |a: (f64, f64), b: (f64, f64)| road.is_crossed(at(a.0, a.1), at(b.0, b.1));
        assert!(crossed((58.99, 18.05), (59.01, 18.05)));
        assert!(crossed((58.99, 18.05), (58.9996, 18.05)));
        assert!(!crossed((58.99, 18.05), (58.9994, 18.05)));
        assert!(!crossed((58.99, 18.2), (59.01, 18.2)));
        assert!(crossed((59.0001, 18.05), (59.0001, 18.06)));
    }

    #[test]
    fn what_is_no_corridor_is_refused() {
        let said = |line: &[Position], width| Corridor::new(line, width).unwrap_err().to_string();
        let line = [at(0.0, 0.0), at(0.0, 1.0)];
        assert!(said(&line[..1], 1.0).contains("1 positions"));
        for width in [-1.0, f64::NAN, 1e6] {
            assert!(said(&line, width).contains("metres"));
        }
        let round: Vec<_> = (0..10)
            .map(|n| at(0.0, f64::from(n) * 40.0 - 180.0))
            .collect();
        assert!(said(&round, 1.0).contains("around the Earth"));
        assert!(said(&[at(89.5, 0.0), at(0.0, 0.0)], 1.0).contains("pole"));
    }

    /// What is left out without computing a distance is what a distance would leave out.
    #[test]
    fn pieces_are_left_out_only_where_they_are_too_far() {
        let mut rng = Rng::new(10);
        let (mut near, mut out) = (0, 0);
        for n in 0..2000 {
            let (lat, lon) = [(57.0, 16.0), (-60.0, 179.9), (80.0, -179.95), (0.0, 0.0)][n % 4];
            let mut part = |by: f64| (rng.below(2_000_001) as f64 / 1e6 - 1.0) * by;
            let mut place = || {
                let lon: f64 = lon + part(0.4) + 540.0;
                at(lat + part(0.4), lon.rem_euclid(360.0) - 180.0)
            };
            let line = [place(), place(), place()];
            let corridor = Corridor::new(&line, [0.0, 50.0, 5000.0, 100_000.0][n / 4 % 4]).unwrap();
            for _ in 0..20 {
                let (p, q) = (place(), place());
                let is_near = corridor.around.has(p) && corridor.distance(p) <= corridor.width;
                assert_eq!(corridor.has(p), is_near, "{p:?} {line:?}");
                let pieces = corridor.line.windows(2);
                let crosses =
                    |c: &[Position]| between_lines((p, q), (c[0], c[1])) <= corridor.width;
                let is_crossed = corridor.around.is_crossed(p, q) && pieces.clone().any(crosses);
                assert_eq!(
                    corridor.is_crossed(p, q),
                    is_crossed,
                    "{p:?} {q:?} {line:?}"
                );
                near += usize::from(is_near);
                out += pieces
                    .filter(|c| !corridor.may_reach(p, c[0], c[1]))
                    .count();
            }
        }
        assert!(near > 3000 && out > 3000, "{near} {out}");
    }
}
