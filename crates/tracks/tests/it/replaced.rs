//! Replaced points: a phone corrects its position at a time. The visit of the former position must
//! go with it; otherwise no point leads to the visit, and an erasure would leave it.

use base::rng::Rng;
use tracks::model::name::Name;
use tracks::model::report::Report;
use tracks::store::Family;

use crate::world::{World, at, report};

fn visits(world: &World) -> usize {
    let rows = world.rows();
    rows.iter().filter(|row| row.0 == Family::Visits).count()
}

fn erase(world: &World, name: &str) {
    let name = Name::new(name).unwrap();
    assert!(world.tracks.erase(&world.fleet(), &name).unwrap());
}

#[test]
fn an_erasure_leaves_no_visit_of_a_point_that_was_replaced() {
    let world = World::new();
    world.send(vec![report("car", 0, at(59.0, 18.0))]);
    world.send(vec![report("car", 0, at(59.1, 18.0))]);
    // In one round, and after a newer point.
    let late = [(50, 59.2), (60, 59.3), (50, 59.4), (50, 59.2), (50, 59.5)];
    world.send(
        late.map(|(time, lat)| report("car", time, at(lat, 18.0)))
            .into(),
    );
    world.send(vec![report("car", 0, at(59.6, 18.0))]);
    world.check();
    assert_eq!(visits(&world), 3);
    erase(&world, "car");
    assert_eq!(visits(&world), 0);
}

#[test]
fn a_visit_stays_while_another_point_has_it() {
    let world = World::new();
    let (here, there) = (at(59.0, 18.0), at(59.1, 18.0));
    world.send(vec![report("car", 0, here), report("car", 1, here)]);
    world.send(vec![report("car", 0, there)]);
    assert_eq!(visits(&world), 2);
    world.check();
    world.send(vec![report("car", 1, there)]);
    assert_eq!(visits(&world), 1);
    world.check();
    // Back again: the visit is written again.
    world.send(vec![report("car", 2, there), report("car", 1, here)]);
    world.send(vec![report("car", 3, here), report("car", 2, here)]);
    world.check();
    assert_eq!(visits(&world), 2);
}

#[test]
fn any_order_of_replacing_leaves_rows_that_agree() {
    for seed in 0..3 {
        let mut rng = Rng::new(seed);
        let world = World::new();
        let one = |rng: &mut Rng| -> Report {
            let name = format!("e{}", rng.below(3));
            let lat = 59.0 + rng.below(4) as f64 / 10.0;
            report(&name, rng.below(12) as i64 * 100 - 600, at(lat, 18.0))
        };
        for _ in 0..20 {
            let count = rng.below(30) + 1;
            world.send((0..count).map(|_| one(&mut rng)).collect());
            world.check();
        }
        (0..3).for_each(|n| erase(&world, &format!("e{n}")));
        assert_eq!(visits(&world), 0, "seed {seed}");
    }
}
