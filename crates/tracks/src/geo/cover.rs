//! Covers: a few ranges of cells that together contain an area.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::cell::Cell;
use super::shape::{Relation, Shape};

/// The default for the most ranges of a cover.
pub const RANGES_MAX: usize = 64;

/// Consecutive cells of depth 40, as numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// The first cell.
    pub first: u64,
    /// The last cell.
    pub last: u64,
    /// Whether all of it is inside the area, so that its positions need no test.
    pub is_inside: bool,
}

/// The ranges that together contain an area: at most `max` (at least 2), sorted, and merged if
/// neighbours are of the same kind.
///
/// The largest cell that is partly inside the area is halved, again and again.
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

/// The cells that together contain an area, at most `max` (at least 2), none inside another, and
/// for each whether all of it is inside the area.
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

/// A cover that is being built.
#[derive(Debug, Default)]
struct Pieces {
    done: Vec<(Cell, bool)>,
    /// Cells to be halved: the largest first, then in their order.
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

/// Sorts the ranges, and merges neighbours of the same kind.
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

    /// A place near the antimeridian, near a pole, or in Europe: most of the areas below are there.
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

    /// Checks that the cover is well formed, and true for all probes.
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

    /// A cover with more ranges fits the area more closely.
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
        // Cells have 38 × 19 metres at the equator, and half that width here.
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
