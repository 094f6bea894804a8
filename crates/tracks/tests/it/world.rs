//! Shared helpers: a service with a temporary folder, and places.

use base::rng::Rng;
use tracks::check;
use tracks::fleets::Info;
use tracks::geo::position::Position;
use tracks::model::name::Name;
use tracks::model::point::Point;
use tracks::model::report::Report;
use tracks::model::time::{SECOND, Time};
use tracks::service::{Options, Tracks};
use tracks::store::{Family, Store};
use tracks::write::{Ack, Outcome};

/// The arrival of reports.
pub(crate) const NOW: Time = Time(1_700_000_000 * SECOND);

pub(crate) struct World {
    pub(crate) tracks: Tracks,
    pub(crate) dir: tempfile::TempDir,
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let tracks = Tracks::open(dir.path(), &Options::default()).unwrap();
        Self { tracks, dir }
    }

    pub(crate) fn fleet(&self) -> std::sync::Arc<Info> {
        let store = self.tracks.store();
        let name = Name::new("fleet").unwrap();
        self.tracks.fleets().get_or_make(&**store, &name).unwrap()
    }

    /// Sends reports, and waits for the answer.
    pub(crate) fn send(&self, reports: Vec<Report>) -> Vec<base::Result<Outcome>> {
        let fleet = self.fleet();
        let ticket = self.tracks.report_at(&fleet, reports, Ack::Visible, NOW);
        ticket.unwrap().wait().outcomes
    }

    pub(crate) fn check(&self) -> check::Findings {
        let findings = check(&**self.tracks.store());
        assert_eq!(findings.problems, []);
        findings
    }

    /// All rows, except those of fleets.
    pub(crate) fn rows(&self) -> Vec<(Family, Vec<u8>, Vec<u8>)> {
        let view = self.tracks.view();
        let mut out = Vec::new();
        for family in Family::ALL {
            let mut rows = view.rows(family, &[], None).unwrap();
            rows.seek(&[]);
            while let Some((key, value)) = rows.row() {
                out.push((family, key.to_vec(), value.to_vec()));
                rows.next();
            }
            rows.status().unwrap();
        }
        out
    }
}

pub(crate) fn check(store: &dyn Store) -> check::Findings {
    check::check(store, check::Options { visits: true }, &mut |_| ()).unwrap()
}

pub(crate) fn at(lat: f64, lon: f64) -> Position {
    Position::of_degrees(lat, lon).unwrap()
}

pub(crate) fn report(entity: &str, seconds: i64, position: Position) -> Report {
    Report {
        entity: Name::new(entity).unwrap(),
        time: Some(Time(NOW.0 + seconds * SECOND)),
        point: Point::at(position),
    }
}

/// A random number from 0 to `width`.
pub(crate) fn part(rng: &mut Rng, width: f64) -> f64 {
    rng.below(1_000_001) as f64 / 1e6 * width
}

/// The centres of most tests: near the antimeridian, near a pole, and in Europe.
pub(crate) fn near(rng: &mut Rng) -> (f64, f64) {
    match rng.below(3) {
        0 => (part(rng, 4.0) - 18.0, part(rng, 4.0) - 182.0),
        1 => (90.0 - part(rng, 3.0), part(rng, 360.0) - 180.0),
        _ => (part(rng, 4.0) + 57.0, part(rng, 4.0) + 16.0),
    }
}

/// A place up to `width` degrees from another one.
pub(crate) fn around(rng: &mut Rng, (lat, lon): (f64, f64), width: f64) -> Position {
    let part = |rng: &mut Rng| (rng.below(2_000_001) as f64 / 1e6 - 1.0) * width;
    let lat = (lat + part(rng)).clamp(-90.0, 90.0);
    let lon = (lon + part(rng) + 540.0).rem_euclid(360.0) - 180.0;
    at(lat, lon)
}
