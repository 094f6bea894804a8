//! Tracks with fewer points: Douglas–Peucker.

use super::plane::{from_line, in_plane};
use super::position::{Position, degrees};

/// Which points of a track stay, so that none is farther than `tolerance` metres from the line between those that stay
/// around it: in order, the first and the last among them. Distances are those in a plane that touches the Earth between the ends of
/// each piece, so they are meant for tracks of some hundred kilometres at most.
///
/// ```
/// use tracks::geo::{position::Position, simplify::simplify};
/// let at = |lat, lon| Position::of_degrees(lat, lon).unwrap();
/// let track = [at(0.0, 0.0), at(0.00001, 0.5), at(0.0, 1.0), at(1.0, 1.0)];
/// assert_eq!(simplify(&track, 100.0), [0, 2, 3]);
/// ```
pub fn simplify(track: &[Position], tolerance: f64) -> Vec<usize> {
    let Some(last) = track.len().checked_sub(1) else {
        return Vec::new();
    };
    let mut stay = vec![0, last];
    // Pieces of which the middle is to be looked at. A stack of our own: a track may have millions of points.
    let mut pieces = vec![(0, last)];
    while let Some((from, to)) = pieces.pop() {
        if let Some((nth, distance)) = farthest(track, from, to)
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

/// The point between two others that is farthest from the line between these, and how far, metres.
fn farthest(track: &[Position], from: usize, to: usize) -> Option<(usize, f64)> {
    let (a, b) = (*track.get(from)?, *track.get(to)?);
    let scale = degrees(a.lat().midpoint(b.lat())).to_radians().cos();
    let end = in_plane(a, b, scale);
    let between = track.iter().enumerate().take(to).skip(from + 1);
    let distances = between.map(|(nth, &p)| (nth, from_line(in_plane(a, p, scale), end)));
    distances.max_by(|(_, x), (_, y)| x.total_cmp(y))
}

#[cfg(test)]
#[expect(clippy::indexing_slicing, reason = "a test may panic")]
mod tests {
    use base::rng::Rng;

    use super::super::position::at;
    use super::*;

    /// A walk of steps of some hundred metres.
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
                let far = farthest(&track, pair[0], pair[1]);
                assert!(far.is_none_or(|(_, distance)| distance <= tolerance));
            }
            assert!(tolerance < 1e6 || stay.len() == 2);
        }
    }

    #[test]
    fn short_tracks_and_those_that_return_are_right() {
        assert!(simplify(&[], 1.0).is_empty());
        let (a, b) = (at(0.0, 179.999), at(0.0, -179.999));
        assert_eq!(simplify(&[a], 1.0), [0]);
        assert_eq!(simplify(&[a, b], 1.0), [0, 1]);
        // It comes back to where it began: the farthest place stays.
        assert_eq!(simplify(&[a, b, a], 100.0), [0, 1, 2]);
        assert_eq!(simplify(&[a, a, a], 100.0), [0, 2]);
    }
}
