//! Where entities move, the index has a deletion for each cell that one has left. A reader that passes over many says so,
//! and they go.

use std::sync::Arc;
use std::time::Duration;

use base::clock::SystemClock;
use base::threads::SystemThreads;
use tracks::geo::shape::Rectangle;
use tracks::read::{Filter, within};
use tracks::service::{Options, Tracks};
use tracks::store::{Engine, Store};

use crate::world::{NOW, at, report};
use tracks::model::name::Name;
use tracks::write::Ack;

#[test]
fn dead_rows_that_readers_meet_are_cleaned_up() {
    let dir = tempfile::tempdir().unwrap();
    let engine = Engine::open(dir.path()).unwrap();
    let db = Arc::clone(engine.db());
    let store: Arc<dyn Store> = Arc::new(engine);
    let clock = SystemClock::shared();
    let tracks = Tracks::over(store, &Options::default(), clock, &SystemThreads).unwrap();
    let name = Name::new("fleet").unwrap();
    let fleet = tracks.fleet_or_make(&name).unwrap();
    // Each move in a file of its own: in one, the deletion would go when it is written.
    for step in 0..3 {
        let reports = (0..1000).map(|n| {
            let lat = 59.0 + f64::from(n % 30) * 0.001 + f64::from(step) * 0.05;
            report(&format!("e{n}"), step.into(), at(lat, 18.0))
        });
        let ticket = tracks.report_at(&fleet, reports.collect(), Ack::Visible, NOW);
        let outcomes = ticket.unwrap().wait().outcomes;
        assert!(outcomes.iter().all(Result::is_ok));
        db.flush().unwrap();
    }
    // Where they were, and nobody is.
    let area = Rectangle::of_degrees(17.9, 58.99, 18.1, 59.09).unwrap();
    let skipped = || {
        let patience = tracks.patience();
        let view = tracks.view();
        let asked = (&area as _, Filter::default());
        let page = within(&*view, fleet.fleet, asked, (10, None), &patience).unwrap();
        assert_eq!(page.hits, []);
        patience.skipped()
    };
    let before = skipped();
    assert!(before >= 2000, "{before} dead rows were passed over");
    for _ in 0..1500 {
        if skipped() == 0 {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} dead rows stay", skipped());
}
