//! Simplifies tracks: Douglas–Peucker, by place alone or by place and time.

use super::plane::{from_line, in_plane};
use super::position::{Position, degrees};

/// The indexes of the points of a track to keep, in order, the first and the last included. Each
/// dropped point is at most `tolerance` metres from the line between the kept points around it.
/// Distances are computed in a tangent plane between the ends of each piece, so that tracks should
/// be at most some hundred kilometres long.
///
/// ```
/// use tracks::geo::{position::Position, simplify::simplify};
/// let at = |lat, lon| Position::of_degrees(lat, lon).unwrap();
/// let track = [at(0.0, 0.0), at(0.00001, 0.5), at(0.0, 1.0), at(1.0, 1.0)];
/// assert_eq!(simplify(&track, 100.0), [0, 2, 3]);
/// ```
pub fn simplify(track: &[Position], tolerance: f64) -> Vec<usize> {
    split(track.len(), tolerance, |from, to| {
        let (a, b) = (*track.get(from)?, *track.get(to)?);
        let scale = scale(a, b);
        let end = in_plane(a, b, scale);
        let distance = |&p: &Position| from_line(in_plane(a, p, scale), end);
        farthest(track, (from, to), distance)
    })
}

/// The indexes of the points of a track to keep. Each dropped point is at most `tolerance` metres
/// from where the object would have been at that time, had it moved evenly between the kept points
/// around it. So its place at any time, its speed and its stops are preserved within the tolerance.
/// Times rise, in any unit. This is TD-TR of Meratnia and de By (2004).
///
/// ```
/// use tracks::geo::{position::Position, simplify::simplify_in_time};
/// let at = |minute, lon| Ok::<_, base::Error>((minute, Position::of_degrees(0.0, lon)?));
/// // A straight line, on which it stands still from the second minute to the fifth.
/// let track = [at(0, 0.0)?, at(1, 0.1)?, at(2, 0.2)?, at(3, 0.2)?, at(5, 0.2)?, at(6, 0.3)?];
/// assert_eq!(simplify_in_time(&track, 100.0), [0, 2, 4, 5]);
/// # Ok::<(), base::Error>(())
/// ```
pub fn simplify_in_time(track: &[(i64, Position)], tolerance: f64) -> Vec<usize> {
    split(track.len(), tolerance, |from, to| {
        let ((start, a), (end, b)) = (*track.get(from)?, *track.get(to)?);
        let scale = scale(a, b);
        let way = in_plane(a, b, scale);
        let whole = end.saturating_sub(start).max(1) as f64;
        let distance = |&(time, p): &(i64, Position)| {
            let (x, y) = in_plane(a, p, scale);
            let part = time.saturating_sub(start) as f64 / whole;
            (x - part * way.0).hypot(y - part * way.1)
        };
        farthest(track, (from, to), distance)
    })
}

/// Splits a track until no point between the ends of a piece is farther off than the tolerance; the
/// ends of all pieces.
fn split(
    len: usize,
    tolerance: f64,
    farthest: impl Fn(usize, usize) -> Option<(usize, f64)>,
) -> Vec<usize> {
    let Some(last) = len.checked_sub(1) else {
        return Vec::new();
    };
    let mut stay = vec![0, last];
    // Pieces to be looked at. An explicit stack: a track may have millions of points.
    let mut pieces = vec![(0, last)];
    while let Some((from, to)) = pieces.pop() {
        if let Some((nth, distance)) = farthest(from, to)
            && distance > tolerance
        {
            stay.push(nth);
            pieces.extend([(from, nth), (nth, to)]);
        }
    }
    stay.sort_unstable();
    stay.dedup();
    stay
}

fn scale(a: Position, b: Position) -> f64 {
    degrees(a.lat().midpoint(b.lat())).to_radians().cos()
}

/// The index of the point between two others that is farthest off, and its distance in metres.
fn farthest<T>(
    track: &[T],
    (from, to): (usize, usize),
    distance: impl Fn(&T) -> f64,
) -> Option<(usize, f64)> {
    let between = track.iter().enumerate().take(to).skip(from + 1);
    let distances = between.map(|(nth, p)| (nth, distance(p)));
    distances.max_by(|(_, x), (_, y)| x.total_cmp(y))
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use base::rng::Rng;

    use super::super::distance::distance;
    use super::super::position::{at, short_way};
    use super::*;

    /// A random walk with steps of some hundred metres.
    fn walk(rng: &mut Rng, (mut lat, mut lon): (f64, f64), steps: usize) -> Vec<Position> {
        let mut step = || rng.below(1_000_001) as f64 / 1e8 - 0.005;
        let next = |_| {
            (lat, lon) = (lat + step(), lon + step());
            at(lat, lon)
        };
        (0..steps).map(next).collect()
    }

    #[test]
    fn no_point_is_farther_from_the_line_than_the_tolerance() {
        let mut rng = Rng::new(10);
        for n in 0..200 {
            let centre = [(50.0, 10.0), (-17.0, 180.0), (70.0, -30.0)][n % 3];
            let track = walk(&mut rng, centre, 200);
            let tolerance = [0.0, 50.0, 500.0, 1e6][n % 4];
            let stay = simplify(&track, tolerance);
            assert_eq!((stay[0], *stay.last().unwrap()), (0, 199));
            assert!(stay.is_sorted());
            for pair in stay.windows(2) {
                let (a, b) = (track[pair[0]], track[pair[1]]);
                let end = in_plane(a, b, scale(a, b));
                let mut between = track[pair[0]..pair[1]].iter();
                let is_near =
                    |&p: &Position| from_line(in_plane(a, p, scale(a, b)), end) <= tolerance;
                assert!(between.all(is_near));
            }
            assert!(tolerance < 1e6 || stay.len() == 2);
        }
    }

    #[test]
    fn no_point_was_farther_from_where_it_would_have_been_then() {
        let mut rng = Rng::new(11);
        for n in 0..200 {
            let centre = [(50.0, 10.0), (-17.0, 179.99), (70.0, -30.0)][n % 3];
            let mut time = 0;
            let mut timed = |p: Position| {
                time += 1 + i64::try_from(rng.below(100)).unwrap();
                (time, p)
            };
            let walk = walk(&mut Rng::new(n as u64), centre, 200);
            // Each place twice: the object stands still for a while.
            let track: Vec<_> = walk.iter().flat_map(|&p| [timed(p), timed(p)]).collect();
            let tolerance = [0.0, 50.0, 500.0, 1e6][n % 4];
            let stay = simplify_in_time(&track, tolerance);
            for pair in stay.windows(2) {
                let ((start, a), (end, b)) = (track[pair[0]], track[pair[1]]);
                for &(time, p) in &track[pair[0]..pair[1]] {
                    let part = (time - start) as f64 / (end - start) as f64;
                    let east = short_way(i64::from(b.lon()) - i64::from(a.lon())) as f64;
                    let north = f64::from(b.lat() - a.lat());
                    let lon = f64::from(a.lon()) + part * east;
                    let there = at(
                        (f64::from(a.lat()) + part * north) / 1e7,
                        (lon / 1e7 + 180.0).rem_euclid(360.0) - 180.0,
                    );
                    let off = distance(there, p);
                    assert!(off <= tolerance * 1.01 + 0.05, "{off} m of {tolerance}");
                }
            }
            // Simplifying again changes nothing.
            let left: Vec<_> = stay.iter().map(|&nth| track[nth]).collect();
            assert_eq!(simplify_in_time(&left, tolerance).len(), left.len());
        }
    }

    #[test]
    fn short_tracks_and_those_that_return_are_right() {
        assert!(simplify(&[], 1.0).is_empty());
        let (a, b) = (at(0.0, 179.999), at(0.0, -179.999));
        assert_eq!(simplify(&[a], 1.0), [0]);
        assert_eq!(simplify(&[a, b], 1.0), [0, 1]);
        // The track returns to its start: the farthest place is kept.
        assert_eq!(simplify(&[a, b, a], 100.0), [0, 1, 2]);
        assert_eq!(simplify(&[a, a, a], 100.0), [0, 2]);
    }
}
