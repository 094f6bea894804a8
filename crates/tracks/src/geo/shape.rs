//! Areas: which positions are inside, and which cells are inside, outside or across the edge.

use std::f64::consts::PI;

use base::{Error, Result};

use super::cell::Span;
use super::distance::RADIUS;
use super::plane::to_line;
use super::position::{LATITUDE_MAX, LONGITUDE_END, PER_DEGREE, Position, TURN, straight};
use super::surface::Surface;

/// The relation of a span to an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relation {
    /// No place of it is in the area.
    Outside,
    /// All of it is in the area.
    Inside,
    /// It may be partly inside, and must be looked at more closely.
    Crosses,
}

/// An area of the Earth's surface.
pub trait Shape {
    /// Whether a position is inside.
    fn has(&self, position: Position) -> bool;

    /// The relation of a span to the area; [`Relation::Crosses`] if it is not known.
    fn relation(&self, span: &Span) -> Relation;

    /// Whether the line between two positions has a place in common with the area. The line is
    /// straight in degrees, goes the short way, and is at most some hundred kilometres long.
    fn is_crossed(&self, a: Position, b: Position) -> bool;
}

/// An area between two meridians and two parallels, its edges included. If west is greater than
/// east, it crosses the antimeridian, as in RFC 7946. At a pole all meridians meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rectangle {
    parts: Vec<Span>,
}

impl Rectangle {
    /// A rectangle with these edges, in degrees. Errors: `InvalidArgument` if they are not
    /// longitudes and latitudes, or if south is greater than north.
    ///
    /// ```
    /// use tracks::geo::{position::Position, shape::{Rectangle, Shape}};
    /// let fiji = Rectangle::of_degrees(177.0, -19.5, -178.0, -15.5)?;
    /// assert!(fiji.has(Position::of_degrees(-17.7, 178.0)?) && fiji.has(Position::of_degrees(-16.8, -179.9)?));
    /// assert!(!fiji.has(Position::of_degrees(-17.7, 0.0)?));
    /// # Ok::<(), base::Error>(())
    /// ```
    pub fn of_degrees(west: f64, south: f64, east: f64, north: f64) -> Result<Self> {
        // Made into positions, so that they are checked and rounded in the same way.
        Position::of_degrees(south, west)?;
        Position::of_degrees(north, east)?;
        let [west, south, east, north] =
            [west, south, east, north].map(|d| (d * f64::from(PER_DEGREE)).round() as i32);
        if south > north {
            return Err(Error::invalid_argument(format!(
                "south {} is north of north {}",
                super::position::degrees(south),
                super::position::degrees(north)
            ))
            .hint("a rectangle is west, south, east, north"));
        }
        // Longitude 180 is −180.
        let (west, east) = match (west, east) {
            (LONGITUDE_END, LONGITUDE_END) => (-LONGITUDE_END, -LONGITUDE_END),
            (LONGITUDE_END, _) => (-LONGITUDE_END, east),
            _ => (west, east),
        };
        let part = |west, east: i32| Span {
            south,
            north,
            west,
            east: east.min(LONGITUDE_END - 1),
        };
        let mut parts = if west <= east {
            vec![part(west, east)]
        } else {
            vec![part(west, LONGITUDE_END), part(-LONGITUDE_END, east)]
        };
        if east == LONGITUDE_END && west != -LONGITUDE_END {
            parts.push(part(-LONGITUDE_END, -LONGITUDE_END));
        }
        let poles = [(north, LATITUDE_MAX), (south, -LATITUDE_MAX)];
        parts.extend(
            poles
                .into_iter()
                .filter(|(edge, pole)| edge == pole)
                .map(|(pole, _)| Span {
                    south: pole,
                    north: pole,
                    west: 0,
                    east: 0,
                }),
        );
        Ok(Self { parts })
    }
}

impl Shape for Rectangle {
    fn has(&self, position: Position) -> bool {
        self.parts.iter().any(|part| part.has(position))
    }

    fn relation(&self, span: &Span) -> Relation {
        if self.parts.iter().any(|part| part.has_all(span)) {
            Relation::Inside
        } else if self.parts.iter().any(|part| part.meets(span)) {
            Relation::Crosses
        } else {
            Relation::Outside
        }
    }

    fn is_crossed(&self, a: Position, b: Position) -> bool {
        let (from, to) = straight(a, b);
        let lats = (f64::from(a.lat()), f64::from(b.lat()));
        [-TURN, 0, TURN].into_iter().any(|turn| {
            let lons = ((from + turn) as f64, (to + turn) as f64);
            self.parts.iter().any(|part| {
                // The part of the line between its meridians, and of that the part between its
                // latitudes.
                let of =
                    |(a, b): (f64, f64), low: i32, high: i32| within(a, b, low.into(), high.into());
                let (Some(x), Some(y)) = (
                    of(lons, part.west, part.east),
                    of(lats, part.south, part.north),
                ) else {
                    return false;
                };
                x.0.max(y.0) <= x.1.min(y.1)
            })
        })
    }
}

/// The part of the way from `a` to `b`, as fractions of it, on which a coordinate is between `low`
/// and `high`. `None` if there is none.
fn within(a: f64, b: f64, low: f64, high: f64) -> Option<(f64, f64)> {
    if (a - b).abs() < 0.5 {
        // Units are whole numbers: the coordinate does not change.
        return (low..=high).contains(&a).then_some((0.0, 1.0));
    }
    let (from, to) = ((low - a) / (b - a), (high - a) / (b - a));
    let (from, to) = (from.min(to).max(0.0), from.max(to).min(1.0));
    (from <= to).then_some((from, to))
}

/// All places within a distance of a position.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Circle {
    centre: Position,
    radius: f64,
    surface: Surface,
}

/// The most by which rounding may change a distance, metres: it is greatest near the antipode.
pub(crate) const ROUNDING: f64 = 0.5;

impl Circle {
    /// A circle with a radius in metres. Errors: `InvalidArgument` if the radius is negative, not a
    /// number, or more than half of the Earth's circumference.
    pub fn new(centre: Position, radius: f64) -> Result<Self> {
        let max = (RADIUS * PI).ceil();
        if (0.0..=max).contains(&radius) {
            let surface = Surface::Sphere;
            return Ok(Self {
                centre,
                radius,
                surface,
            });
        }
        Err(Error::invalid_argument(format!(
            "a radius of {radius} metres is not within 0 and {max}, half of the Earth's circumference"
        )))
    }

    /// The same circle, with distances on another surface.
    #[must_use]
    pub fn on(self, surface: Surface) -> Self {
        Self { surface, ..self }
    }
}

impl Shape for Circle {
    fn has(&self, position: Position) -> bool {
        self.surface.distance(self.centre, position) <= self.radius
    }

    fn relation(&self, span: &Span) -> Relation {
        if self.surface.nearest(self.centre, span) > self.radius + ROUNDING {
            Relation::Outside
        } else if self.surface.farthest(self.centre, span) < self.radius - ROUNDING {
            Relation::Inside
        } else {
            Relation::Crosses
        }
    }

    fn is_crossed(&self, a: Position, b: Position) -> bool {
        to_line(self.centre, a, b) <= self.radius || self.has(a) || self.has(b)
    }
}

#[cfg(test)]
mod tests {
    use super::super::position::at;
    use super::*;

    #[test]
    fn rectangles_include_their_edges_poles_and_the_antimeridian() {
        let east = Rectangle::of_degrees(170.0, -10.0, 180.0, 10.0).unwrap();
        assert!(
            east.has(at(0.0, 180.0)) && east.has(at(10.0, 170.0)) && !east.has(at(0.0, -179.9))
        );
        let west = Rectangle::of_degrees(180.0, -10.0, -170.0, 10.0).unwrap();
        assert!(west.has(at(0.0, 180.0)) && west.has(at(0.0, -170.0)) && !west.has(at(0.0, 179.9)));
        let all = Rectangle::of_degrees(-180.0, -90.0, 180.0, 90.0).unwrap();
        assert!(
            all.has(at(90.0, 5.0)) && all.has(at(-90.0, 0.0)) && all.has(at(0.0, 179.999_999_9))
        );
        let arctic = Rectangle::of_degrees(20.0, 80.0, 30.0, 90.0).unwrap();
        assert!(arctic.has(at(90.0, -100.0)) && !arctic.has(at(89.9, 0.0)));
        let line = Rectangle::of_degrees(5.0, 5.0, 5.0, 6.0).unwrap();
        assert!(line.has(at(5.5, 5.0)) && !line.has(at(5.5, 5.000_000_1)));
        let meridian = Rectangle::of_degrees(180.0, -90.0, 180.0, 90.0).unwrap();
        assert!(meridian.has(at(5.0, 180.0)) && meridian.has(at(90.0, 7.0)));
        assert!(!meridian.has(at(5.0, 0.0)) && !meridian.has(at(5.0, 179.9)));
        let nearly_all = Rectangle::of_degrees(10.0, 0.0, 9.0, 1.0).unwrap();
        assert!(nearly_all.has(at(0.5, 180.0)) && !nearly_all.has(at(0.5, 9.5)));
    }

    #[test]
    fn what_is_no_area_is_refused() {
        let e = Rectangle::of_degrees(0.0, 10.0, 1.0, 9.0).unwrap_err();
        assert!(
            e.to_string().contains("south 10 is north of north 9"),
            "{e}"
        );
        assert!(Rectangle::of_degrees(0.0, 0.0, 540.0, 1.0).is_err());
        assert!(Rectangle::of_degrees(f64::NAN, 0.0, 1.0, 1.0).is_err());
        for radius in [-1.0, f64::NAN, f64::INFINITY, 20_037_600.0] {
            let e = Circle::new(at(0.0, 0.0), radius).unwrap_err().to_string();
            assert!(e.contains("half of the Earth"), "{e}");
        }
    }

    #[test]
    fn lines_cross_areas_or_pass_them() {
        let rectangle = Rectangle::of_degrees(10.0, 50.0, 11.0, 51.0).unwrap();
        let fiji = Rectangle::of_degrees(177.0, -19.5, -178.0, -15.5).unwrap();
        let circle = Circle::new(at(50.5, 10.5), 20_000.0).unwrap();
        let crossed = |shape: &dyn Shape, a: (f64, f64), b: (f64, f64)| {
            let (a, b) = (at(a.0, a.1), at(b.0, b.1));
            assert_eq!(shape.is_crossed(a, b), shape.is_crossed(b, a));
            shape.is_crossed(a, b)
        };
        assert!(crossed(&rectangle, (50.5, 9.0), (50.5, 12.0)));
        assert!(crossed(&rectangle, (49.0, 10.5), (52.0, 10.5)));
        assert!(crossed(&rectangle, (50.2, 10.2), (50.3, 10.3)));
        assert!(crossed(&rectangle, (49.9, 9.99), (51.1, 10.5)));
        assert!(!crossed(&rectangle, (49.5, 9.6), (50.6, 9.4)));
        assert!(!crossed(&rectangle, (50.9, 9.5), (51.5, 10.5)));
        assert!(crossed(&fiji, (-17.0, 176.0), (-17.0, -177.0)));
        assert!(crossed(&fiji, (-17.0, 179.0), (-17.0, -179.0)));
        assert!(!crossed(&fiji, (-14.0, 179.0), (-14.0, -179.0)));
        assert!(crossed(&circle, (50.5, 10.0), (50.5, 11.0)));
        assert!(!crossed(&circle, (50.8, 10.0), (50.8, 11.0)));
        assert!(!crossed(&circle, (50.5, 10.0), (50.5, 10.1)));
    }

    #[test]
    fn circles_reach_over_poles_and_around_the_earth() {
        let pole = Circle::new(at(89.0, 0.0), 200_000.0).unwrap();
        assert!(pole.has(at(89.5, 180.0)) && pole.has(at(90.0, 0.0)) && !pole.has(at(88.0, 180.0)));
        let all = Circle::new(at(10.0, 10.0), 20_015_115.0).unwrap();
        assert!(all.has(at(-10.0, -170.0)));
        let none = Circle::new(at(10.0, 10.0), 0.0).unwrap();
        assert!(none.has(at(10.0, 10.0)) && !none.has(at(10.0, 10.000_000_1)));
    }
}
