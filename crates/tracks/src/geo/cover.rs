//! Covers: the few ranges of cells that have all of an area.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::cell::Cell;
use super::shape::{Relation, Shape};

/// The most ranges of a cover, unless another number is asked for.
pub const RANGES_MAX: usize = 64;

/// Cells of 40 cuts from one to another, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first.
    pub first: u64,
    /// The last.
    pub last: u64,
    /// All of it is in the area: positions need no test.
    pub is_inside: bool,
}

/// The ranges that have all of an area, `max` at most (at least 2), in their order, none next to another one of its kind.
///
/// The largest cell that lies across the area's edge is cut in halves, again and again.
///
/// ```
/// use tracks::geo::{cover::cover, position::Position, shape::Circle};
/// let circle = Circle::new(Position::of_degrees(59.33, 18.07)?, 500.0)?;
/// let ranges = cover(&circle, 16);
/// assert!(ranges.len() <= 16 && ranges.iter().any(|r| r.is_inside));
/// # Ok::<(), base::Error>(())
/// ```
pub fn cover(shape: &(impl Shape + ?Sized), max: usize) -> Vec<Range> {
    let ranges = cells(shape, max).into_iter().map(|(cell, is_inside)| {
        let (first, last) = cell.range();
        Range {
            first,
            last,
            is_inside,
        }
    });
    merged(ranges.collect())
}

/// The cells that have all of an area, `max` at most (at least 2), none in another one, and whether all of each is in the area.
pub fn cells(shape: &(impl Shape + ?Sized), max: usize) -> Vec<(Cell, bool)> {
    let mut pieces = Pieces::default();
    pieces.add(shape, Cell::EARTH);
    while pieces.len() < max.max(2)
        && let Some(Reverse((_, cell))) = pieces.open.pop()
    {
        match cell.halves() {
            Some(halves) => halves.into_iter().for_each(|half| pieces.add(shape, half)),
            None => pieces.done.push((cell, false)),
        }
    }
    let Pieces { mut done, open } = pieces;
    done.extend(open.into_iter().map(|Reverse((_, cell))| (cell, false)));
    done
}

/// What a cover is made of.
#[derive(Debug, Default)]
struct Pieces {
    done: Vec<(Cell, bool)>,
    /// Cells that are to be cut: the largest is the first, and of equal ones the first in order.
    open: BinaryHeap<Reverse<(u8, Cell)>>,
}

impl Pieces {
    fn len(&self) -> usize {
        self.done.len() + self.open.len()
    }

    fn add(&mut self, shape: &(impl Shape + ?Sized), cell: Cell) {
        match shape.relation(&cell.span()) {
            Relation::Outside => {}
            Relation::Inside => self.done.push((cell, true)),
            Relation::Crosses => self.open.push(Reverse((cell.depth(), cell))),
        }
    }
}

/// In their order, and neighbours of one kind as one.
fn merged(mut ranges: Vec<Range>) -> Vec<Range> {
    ranges.sort_unstable_by_key(|r| r.first);
    let mut out: Vec<Range> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match out.last_mut() {
            Some(last) if last.last + 1 == range.first && last.is_inside == range.is_inside => {
                last.last = range.last;
            }
            _ => out.push(range),
        }
    }
    out
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use base::rng::Rng;

    use super::super::position::{Position, at};
    use super::super::shape::{Circle, Rectangle};
    use super::*;

    /// Where most of the areas below are: near the antimeridian, near a pole, and in Europe.
    fn near(rng: &mut Rng) -> (f64, f64) {
        let part = |rng: &mut Rng, width: f64| rng.below(1_000_001) as f64 / 1e6 * width;
        match rng.below(3) {
            0 => (part(rng, 20.0) - 10.0, part(rng, 20.0) - 190.0),
            1 => (90.0 - part(rng, 8.0), part(rng, 360.0) - 180.0),
            _ => (part(rng, 20.0) + 40.0, part(rng, 30.0)),
        }
    }

    fn around(rng: &mut Rng, (lat, lon): (f64, f64), width: f64) -> Position {
        let part = |rng: &mut Rng| (rng.below(2_000_001) as f64 / 1e6 - 1.0) * width;
        let lat = (lat + part(rng)).clamp(-90.0, 90.0);
        let lon = (lon + part(rng) + 540.0).rem_euclid(360.0) - 180.0;
        at(lat, lon)
    }

    /// What a cover says of positions is true, and it is well formed.
    fn check(shape: &impl Shape, max: usize, probes: &[Position]) -> usize {
        let ranges = cover(shape, max);
        assert!(ranges.len() <= max, "{}", ranges.len());
        for pair in ranges.windows(2) {
            assert!(pair[0].first <= pair[0].last && pair[0].last < pair[1].first);
            assert!(pair[0].last + 1 < pair[1].first || pair[0].is_inside != pair[1].is_inside);
        }
        let mut found = 0;
        for &position in probes {
            let cell = Cell::of(position).range().0;
            let range = ranges.iter().find(|r| (r.first..=r.last).contains(&cell));
            let has = shape.has(position);
            found += usize::from(has);
            match range {
                None => assert!(!has, "{position:?} is left out"),
                Some(range) => assert!(has || !range.is_inside, "{position:?} is not inside"),
            }
        }
        found
    }

    #[test]
    fn covers_have_all_of_rectangles_and_circles() {
        let mut rng = Rng::new(5);
        let mut found = 0;
        for n in 0..3000 {
            let centre = near(&mut rng);
            let width = 10_f64.powi(-(n % 6)) * 5.0;
            let probes: Vec<_> = (0..20)
                .map(|_| around(&mut rng, centre, 2.0 * width))
                .collect();
            let max = [2, 8, 64][n as usize % 3];
            let [a, b] = [0; 2].map(|_| around(&mut rng, centre, width).degrees());
            let (south, north) = (a.0.min(b.0), a.0.max(b.0));
            let rectangle = Rectangle::of_degrees(a.1, south, b.1, north).unwrap();
            found += check(&rectangle, max, &probes);
            let middle = around(&mut rng, centre, width);
            let circle = Circle::new(middle, width * 100_000.0).unwrap();
            found += check(&circle, max, &probes);
        }
        assert!(found > 10_000, "{found}");
    }

    /// More ranges lie closer to the area.
    #[test]
    fn more_ranges_are_closer() {
        let circle = Circle::new(at(59.33, 18.07), 2000.0).unwrap();
        let cells = |max| {
            cover(&circle, max)
                .iter()
                .map(|r| r.last - r.first + 1)
                .sum::<u64>()
        };
        let [few, some, many] = [4, 16, RANGES_MAX].map(cells);
        assert!(few > some && some > many, "{few} {some} {many}");
        // Of 38 × 19 metres at the equator, half as wide there.
        let area = std::f64::consts::PI * 4e6 / (38.2 * 19.1 * 0.51);
        assert!((many as f64) < 1.5 * area, "{many} {area}");
        let all = Rectangle::of_degrees(-180.0, -90.0, 180.0, 90.0).unwrap();
        let earth = Range {
            first: 0,
            last: (1 << 40) - 1,
            is_inside: true,
        };
        assert_eq!(cover(&all, RANGES_MAX), [earth]);
    }
}
