//! Crashes and errors at every I/O, on a simulated disk.
//!
//! `IRONSTONE_CRASH_STATES=n` scales the number of states; `IRONSTONE_CRASH_SEED=s` runs the one
//! workload that a failure names; `IRONSTONE_CRASH_DUMP=dir` copies the first image of a database
//! that fails to `dir`.
#![expect(clippy::print_stdout, reason = "the counts are what a run is for")]

#[cfg(test)]
mod engine;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod log_only;
#[cfg(test)]
mod regressions;

/// The number of states to reach: `usual`, or what the environment says.
#[cfg(test)]
fn states_wanted(usual: u64) -> u64 {
    std::env::var("IRONSTONE_CRASH_STATES")
        .ok()
        .and_then(|s| s.parse().ok())
        .unwrap_or(usual)
}

/// The seed of a failure to look at again.
#[cfg(test)]
fn seed_wanted() -> Option<u64> {
    std::env::var("IRONSTONE_CRASH_SEED").ok()?.parse().ok()
}

/// Runs workloads until `states` are checked, and asserts that nothing was lost.
#[cfg(test)]
fn run_until(what: &str, states: u64, mut run: impl FnMut(u64) -> sim::crash::Tally) {
    let mut total = sim::crash::Tally::default();
    if let Some(seed) = seed_wanted() {
        total.add(run(seed));
    } else {
        let mut seed = 1;
        while total.states < states && total.failures.is_empty() {
            total.add(run(seed));
            seed += 1;
        }
    }
    println!("{what}: {total}");
    assert!(total.failures.is_empty(), "{what}: {total}");
}
