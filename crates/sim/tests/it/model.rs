//! Random operations compared with a `BTreeMap`: the short form of `cargo xtask soak model`.

use std::sync::Arc;

use sim::model::{
    Counts, OPS_VARIABLE, Plan, RARE_VARIABLE, SEED_VARIABLE, run, run_all, run_ttl, shrink,
};

/// Operations in all, unless [`OPS_VARIABLE`] says otherwise.
const OPERATIONS: u64 = 200_000;
/// Sets of options.
const SETS: u64 = 20;
/// How many times more often the rare operations come than in a long run.
const RARE: u64 = 5;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number in the environment variable"))
}

#[test]
fn random_operations_agree_with_a_map_under_twenty_sets_of_options() {
    let total = number(OPS_VARIABLE).unwrap_or(OPERATIONS);
    let rare = number(RARE_VARIABLE).unwrap_or(RARE);
    let counts = Arc::new(Counts::default());
    if let Some(seed) = number(SEED_VARIABLE) {
        let plan = Plan {
            seed,
            operations: total,
            rare,
        };
        if let Err(failure) = run(plan, &counts) {
            panic!("{failure}");
        }
        return;
    }
    let plans: Vec<Plan> = (0..SETS)
        .map(|seed| Plan {
            seed,
            operations: total.div_ceil(SETS),
            rare,
        })
        .collect();
    let done = run_all(&plans, 2, &counts);
    eprintln!("model: {} operations: {counts}", counts.operations());
    if let Err(failure) = done {
        eprintln!("{failure}\nlooking for a shorter run");
        panic!("{}", shrink(*failure));
    }
}

#[test]
fn values_expire_as_a_map_says() {
    for seed in 0..6 {
        if let Err(what) = run_ttl(seed, 4000) {
            panic!("{what}");
        }
    }
}
