//! Cells: geohashes as bits. The Earth is halved again and again, by longitude first. 40 cuts give
//! cells of 38 × 19 metres at the equator, which are geohashes of eight characters in exactly five
//! bytes.
//!
//! Each cell with fewer cuts is one range of cells with 40 cuts, so that an area is a few ranges of
//! keys.

use super::position::{LATITUDE_MAX, LONGITUDE_END, Position};

/// The greatest depth: the most cuts.
pub const DEPTH_MAX: u8 = 40;
/// Cuts in each of the two directions.
const CUTS: u32 = DEPTH_MAX as u32 / 2;
/// Bytes of a cell of depth 40 in a key.
pub const BYTES: usize = 5;

/// A cell of any depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cell {
    /// One bit for each cut: which half was taken. The first cut has the highest of `depth` bits.
    bits: u64,
    depth: u8,
}

/// The bounds of a cell, or of any rectangle that does not cross the antimeridian, in 10⁻⁷ degrees.
/// All four bounds are inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The least latitude.
    pub south: i32,
    /// The greatest latitude.
    pub north: i32,
    /// The least longitude.
    pub west: i32,
    /// The greatest longitude.
    pub east: i32,
}

impl Cell {
    /// The whole Earth.
    pub const EARTH: Self = Self { bits: 0, depth: 0 };

    /// The cell of depth 40 that contains a position.
    ///
    /// ```
    /// use tracks::geo::{cell::Cell, position::Position};
    /// let cell = Cell::of(Position::of_degrees(57.64911, 10.40744)?);
    /// assert_eq!(cell.geohash(), "u4pruydq");
    /// # Ok::<(), base::Error>(())
    /// ```
    pub fn of(position: Position) -> Self {
        let lat = nth(position.lat(), LATITUDE_MAX);
        let lon = nth(position.lon(), LONGITUDE_END);
        Self {
            bits: spread(lon) << 1 | spread(lat),
            depth: DEPTH_MAX,
        }
    }

    /// The number of its cuts.
    pub fn depth(self) -> u8 {
        self.depth
    }

    /// The cell of depth `depth` that contains this one; the cell itself if it is not deeper than
    /// that.
    #[must_use]
    pub fn at_depth(self, depth: u8) -> Self {
        let depth = depth.min(self.depth);
        Self {
            bits: self.bits >> (self.depth - depth),
            depth,
        }
    }

    /// Its two halves: west and east, or south and north. `None` if it has depth 40.
    pub fn halves(self) -> Option<[Self; 2]> {
        let depth = self.depth + 1;
        (depth <= DEPTH_MAX).then(|| {
            [0, 1].map(|half| Self {
                bits: self.bits << 1 | half,
                depth,
            })
        })
    }

    /// The numbers of the first and the last cell of depth 40 in it; numbers sort like
    /// [`Cell::to_bytes`].
    pub fn range(self) -> (u64, u64) {
        let below = DEPTH_MAX - self.depth;
        let first = self.bits << below;
        (first, first | ((1 << below) - 1))
    }

    /// The positions in it.
    pub fn span(self) -> Span {
        let (first, last) = self.range();
        let (south, north) = (
            units(compact(first), LATITUDE_MAX).0,
            units(compact(last), LATITUDE_MAX).1,
        );
        let (west, east) = (
            units(compact(first >> 1), LONGITUDE_END).0,
            units(compact(last >> 1), LONGITUDE_END).1,
        );
        Span {
            south,
            north,
            west,
            // Longitude 180 is −180.
            east: east.min(LONGITUDE_END - 1),
        }
    }

    /// The cell of depth 40 with this number; only the lowest 40 bits are used.
    pub fn of_number(number: u64) -> Self {
        Self {
            bits: number & ((1 << DEPTH_MAX) - 1),
            depth: DEPTH_MAX,
        }
    }

    /// The number of a cell of depth 40, big-endian, so that bytes sort like numbers.
    pub fn to_bytes(number: u64) -> [u8; BYTES] {
        let [_, _, _, rest @ ..] = number.to_be_bytes();
        rest
    }

    /// The cell of depth 40 with these bytes.
    pub fn of_bytes([a, b, c, d, e]: [u8; BYTES]) -> Self {
        Self {
            bits: u64::from_be_bytes([0, 0, 0, a, b, c, d, e]),
            depth: DEPTH_MAX,
        }
    }

    /// The bits of its cuts as a number, the first cut in the highest of [`Cell::depth`] bits. A
    /// deeper cell is cut off at depth 32.
    pub fn coarse(self) -> u32 {
        self.at_depth(32).bits as u32
    }

    /// The cell with this depth and number. `None` if there is none.
    pub fn of_coarse(number: u32, depth: u8) -> Option<Self> {
        let bits = u64::from(number);
        (depth <= 32 && bits >> depth == 0).then_some(Self { bits, depth })
    }

    /// Its geohash: one character for each five cuts; the rest is left out.
    pub fn geohash(self) -> String {
        const DIGITS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        let count = self.depth / 5;
        let digit = |nth: u8| {
            let bits = self.bits >> (self.depth - 5 * (nth + 1)) & 31;
            DIGITS.get(bits as usize).map_or('?', |&d| d as char)
        };
        (0..count).map(digit).collect()
    }
}

impl Span {
    /// Whether a position is in it.
    pub fn has(&self, position: Position) -> bool {
        (self.south..=self.north).contains(&position.lat())
            && (self.west..=self.east).contains(&position.lon())
    }

    /// Whether the whole of another span is in it.
    pub fn has_all(&self, other: &Self) -> bool {
        self.south <= other.south
            && other.north <= self.north
            && self.west <= other.west
            && other.east <= self.east
    }

    /// Whether it has a position in common with another span.
    pub fn meets(&self, other: &Self) -> bool {
        self.south <= other.north
            && other.south <= self.north
            && self.west <= other.east
            && other.west <= self.east
    }
}

/// The index of a coordinate among 2²⁰ equal parts of −`end`..`end`; the greatest latitude is in
/// the last part.
fn nth(coordinate: i32, end: i32) -> u32 {
    let from_start = (i64::from(coordinate) + i64::from(end)) as u64;
    let part = (from_start << CUTS) / (2 * u64::from(end.unsigned_abs()));
    part.min((1 << CUTS) - 1) as u32
}

/// The least and the greatest coordinate of a part.
fn units(nth: u32, end: i32) -> (i32, i32) {
    let width = 2 * u64::from(end.unsigned_abs());
    let first = |nth: u64| ((nth * width).div_ceil(1 << CUTS) as i64 - i64::from(end)) as i32;
    let next = u64::from(nth) + 1;
    let last = if next == 1 << CUTS {
        end
    } else {
        first(next) - 1
    };
    (first(nth.into()), last)
}

/// The 20 bits of a number, each with a zero before it.
fn spread(number: u32) -> u64 {
    (0..CUTS).fold(0, |bits, n| bits | u64::from(number >> n & 1) << (2 * n))
}

/// The inverse of [`spread`]: every second bit, the lowest first.
fn compact(bits: u64) -> u32 {
    (0..CUTS).fold(0, |number, n| number | ((bits >> (2 * n) & 1) as u32) << n)
}

#[cfg(test)]
mod tests {
    use base::rng::Rng;

    use super::*;

    fn anywhere(rng: &mut Rng) -> Position {
        let lat = rng.below(1_800_000_001) as i64 - 900_000_000;
        let lon = rng.below(3_600_000_001) as i64 - 1_800_000_000;
        Position::of_units(lat as i32, lon as i32).unwrap()
    }

    #[test]
    fn bits_are_those_of_a_geohash() {
        let mut rng = Rng::new(1);
        for _ in 0..20_000 {
            let position = anywhere(&mut rng);
            let (lat, lon) = position.degrees();
            let cell = Cell::of(position);
            let coord = geohash::Coord { x: lon, y: lat };
            let theirs = geohash::encode(coord, 8).unwrap();
            // For a coordinate on a cut, the two may differ by one unit, because of rounding.
            let span = cell.span();
            let is_on_a_cut = [span.south, span.north].contains(&position.lat())
                || [span.west, span.east].contains(&position.lon());
            assert!(
                cell.geohash() == theirs || is_on_a_cut,
                "{position:?}: {theirs}"
            );
            assert!(cell.geohash().starts_with(&cell.at_depth(25).geohash()));
        }
    }

    #[test]
    fn a_cell_has_its_positions_and_no_others() {
        let mut rng = Rng::new(2);
        for _ in 0..20_000 {
            let position = anywhere(&mut rng);
            for depth in 0..=DEPTH_MAX {
                let cell = Cell::of(position).at_depth(depth);
                assert!(cell.span().has(position), "{position:?} {depth}");
                let (first, last) = cell.range();
                let leaf = Cell::of(position).range().0;
                assert!((first..=last).contains(&leaf));
                let Some([a, b]) = cell.halves() else {
                    continue;
                };
                assert!(cell.span().has_all(&a.span()) && cell.span().has_all(&b.span()));
                assert!(!a.span().meets(&b.span()));
                assert_eq!(
                    (a.range().0, a.range().1 + 1, b.range().1),
                    (first, b.range().0, last)
                );
            }
            // The corners of a cell are in it, and the units beyond them are not.
            let cell = Cell::of(position);
            let Span {
                south,
                north,
                west,
                east,
            } = cell.span();
            for (lat, lon) in [(south, west), (north, east), (south, east), (north, west)] {
                let corner = Position::of_units(lat, lon).unwrap();
                let at_pole = lat.abs() == LATITUDE_MAX;
                assert!(at_pole || Cell::of(corner) == cell, "{corner:?}");
            }
            for (lat, lon) in [
                (south - 1, west),
                (north + 1, west),
                (south, west - 1),
                (north, east + 1),
            ] {
                let other = Position::of_units(lat, lon);
                assert!(other.is_err() || Cell::of(other.unwrap()) != cell);
            }
        }
    }

    #[test]
    fn bytes_have_the_order_of_numbers() {
        let mut rng = Rng::new(3);
        for _ in 0..1000 {
            let [a, b] = [0; 2].map(|_| Cell::of(anywhere(&mut rng)));
            let [x, y] = [a, b].map(|c| Cell::to_bytes(c.range().0));
            assert_eq!(a.cmp(&b), x.cmp(&y));
            assert_eq!((Cell::of_bytes(x), Cell::of_bytes(y)), (a, b));
        }
        assert_eq!(Cell::EARTH.range(), (0, (1 << 40) - 1));
    }
}
