//! Tests of plans: how they are drawn, printed, and reduced.

use std::collections::BTreeSet;

use super::*;

#[test]
fn a_seed_is_a_plan() {
    let setup = Setup::new(3);
    let plan = Plan::draw(5, &setup);
    assert_eq!(plan, Plan::draw(5, &setup));
    assert_ne!(plan.events, Plan::draw(6, &setup).events);
    assert!(plan.events.len() >= setup.faults);
}

#[test]
fn every_plan_ends_in_calm() {
    let setup = Setup::new(5);
    for seed in 0..1000 {
        let plan = Plan::draw(seed, &setup);
        let steps: Vec<Event> = plan.steps().collect();
        assert!(steps.is_sorted_by_key(|s| s.at));
        let last = steps.last().unwrap();
        assert_eq!((last.at, &last.fault), (plan.calm_at, &Fault::Calm));
        assert_eq!(plan.end_at - plan.calm_at, setup.calm_nanos);
        for step in steps {
            if let Fault::Pause { nanos, .. } = step.fault {
                assert!(
                    step.at + nanos <= plan.calm_at,
                    "seed {seed}: paused in the calm"
                );
            }
        }
    }
}

#[test]
fn everything_is_drawn_and_damage_stays_where_it_may_be() {
    let mut setup = Setup::new(3);
    setup.weights.broken_clock = 2;
    let mut kinds = BTreeSet::new();
    for seed in 0..500 {
        let mut damaged = BTreeSet::new();
        for step in Plan::draw(seed, &setup).steps() {
            let text = format!("{:?}", step.fault);
            kinds.insert(text.split([' ', '{']).next().unwrap().to_owned());
            match step.fault {
                Fault::Disk { node, fault } => {
                    kinds.insert(format!("{fault:?}").split(' ').next().unwrap().to_owned());
                    if matches!(fault, DiskFault::Rot { .. } | DiskFault::SyncError) {
                        damaged.insert(node);
                    }
                }
                Fault::Partition { side } => assert!((1..3).contains(&side.len())),
                Fault::Cut { from, to } => assert_ne!(from, to),
                _ => {}
            }
        }
        assert!(damaged.len() <= 1, "seed {seed}");
    }
    assert_eq!(kinds.len(), 18 + 5, "{kinds:?}");
}

#[test]
fn weights_of_one_kind() {
    let mut setup = Setup::new(3);
    setup.weights = Weights {
        cut: 1,
        ..Weights::NONE
    };
    for event in Plan::draw(1, &setup).events {
        assert!(matches!(
            event.fault,
            Fault::Cut { .. } | Fault::HealNetwork
        ));
    }
    setup.weights = Weights::NONE;
    assert_eq!(Plan::draw(1, &setup).events, []);
    // A single node cannot be cut off from others.
    Plan::draw(1, &Setup::new(1));
}

#[test]
fn a_plan_has_a_line_for_each_fault() {
    let plan = Plan {
        seed: 0x2a,
        events: vec![
            Event {
                at: 1_500_000_000,
                fault: Fault::Crash {
                    node: NodeId(1),
                    power: true,
                },
            },
            Event {
                at: 2_000_000_001,
                fault: Fault::WallJump {
                    node: NodeId(0),
                    nanos: -1_000_000,
                },
            },
        ],
        calm_at: 3_000_000_000,
        end_at: 4_000_000_000,
    };
    assert_eq!(
        plan.to_string(),
        "plan of seed 0x2a, 2 events\n  \
         #0 at 1.500000000 s: node 1 loses its power\n  \
         #1 at 2.000000001 s: node 0: wall clock jumps back by 0.001000000 s\n  \
         #2 at 3.000000000 s: calm: everything is well\n  \
         end at 4.000000000 s"
    );
    let without = plan.without(0);
    assert_eq!(without.events, plan.events[1..]);
    assert_eq!(plan.without(7), plan);
}

#[test]
fn a_failing_plan_is_reduced_to_what_it_needs() {
    let mut setup = Setup::new(3);
    setup.faults = 60;
    let plan = Plan::draw(11, &setup);
    // Fails if a node crashes while the network is not whole.
    let fails = |plan: &Plan| {
        let mut cut = false;
        plan.events.iter().any(|e| {
            match &e.fault {
                Fault::Partition { .. } | Fault::Cut { .. } => cut = true,
                Fault::HealNetwork => cut = false,
                _ => {}
            }
            cut && matches!(e.fault, Fault::Crash { .. })
        })
    };
    assert!(fails(&plan));
    let small = reduce(&plan, fails);
    assert_eq!(small.events.len(), 2, "{small}");
    assert!(fails(&small));
    assert_eq!((small.calm_at, small.end_at), (plan.calm_at, plan.end_at));
}
