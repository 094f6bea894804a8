//! Errors instead of crashes.

use crate::{run_until_enough, seed_wanted, states_wanted};
use sim::crash::{Tally, errors};
use sim::disk::{Fault, Repeat};

/// Every fault, once and for ever, for one workload.
fn every_fault() -> Vec<(Fault, Repeat)> {
    let each = |fault| [(fault, Repeat::Once), (fault, Repeat::Forever)];
    Fault::ALL.into_iter().flat_map(each).collect()
}

#[test]
fn errors_at_every_io_are_clean_and_lose_nothing() {
    let faults = every_fault();
    let all = faults.len() as u64;
    if seed_wanted().is_some() {
        run_until_enough(
            "errors",
            |_| true,
            |seed| {
                let mut total = Tally::default();
                for &(fault, repeat) in &faults {
                    total.add(errors::run(seed, fault, repeat, 1, 1));
                }
                total
            },
        );
        return;
    }
    let workloads = states_wanted(220_000).div_ceil(55_000);
    run_until_enough(
        "errors",
        |total| total.workloads >= workloads * all,
        |n| {
            let (fault, repeat) = faults[((n - 1) % all) as usize];
            errors::run(1 + (n - 1) / all, fault, repeat, 1, 1)
        },
    );
}
