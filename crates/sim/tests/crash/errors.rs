//! Errors instead of crashes.

use crate::{seed_wanted, states_wanted};
use sim::crash::{Tally, errors};
use sim::disk::{Fault, Repeat};

#[test]
fn errors_at_every_io_are_clean_and_lose_nothing() {
    let workloads = states_wanted(220_000).div_ceil(55_000);
    let seeds = seed_wanted().map_or(1..=workloads, |s| s..=s);
    let mut total = Tally::default();
    for seed in seeds {
        for fault in Fault::ALL {
            for repeat in [Repeat::Once, Repeat::Forever] {
                total.add(errors::run(seed, fault, repeat, 1, 1));
            }
        }
    }
    println!("errors: {total}");
    assert!(total.failures.is_empty(), "errors: {total}");
}
