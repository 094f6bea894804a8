//! Crashes and errors at every I/O, on a simulated disk.
//!
//! `IRONSTONE_CRASH_STATES=n` sets the number of states of the log alone, from which the others follow.
//! `IRONSTONE_CRASH_SEED=s` runs the one workload that a failure names. `IRONSTONE_CRASH_DUMP=dir` copies the
//! first image of a database that fails to `dir`.
#![expect(clippy::print_stdout, reason = "the counts are what a run is for")]
#![expect(
    clippy::disallowed_methods,
    reason = "runs are timed and run side by side"
)]

#[cfg(test)]
mod directories;
#[cfg(test)]
mod engine;
#[cfg(test)]
mod errors;
#[cfg(test)]
mod log_only;
#[cfg(test)]
mod peers;
#[cfg(test)]
mod regressions;
#[cfg(test)]
mod threads;

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

/// Threads that run workloads. A database spends half of the time in sleeps and syncs, so there are
/// several.
#[cfg(test)]
const RUNNERS: u64 = 3;

/// Runs workloads until `enough` is true, and asserts that nothing was lost.
#[cfg(test)]
fn run_until_enough(
    what: &str,
    enough: impl Fn(&sim::crash::Tally) -> bool + Sync,
    run: impl Fn(u64) -> sim::crash::Tally + Sync,
) -> sim::crash::Tally {
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Mutex, PoisonError};

    let begun = std::time::Instant::now();
    let total = Mutex::new(sim::crash::Tally::default());
    let next = AtomicU64::new(1);
    let add = |tally| {
        let mut total = total.lock().unwrap_or_else(PoisonError::into_inner);
        total.add(tally);
        !total.failures.is_empty() || enough(&total)
    };
    if let Some(seed) = seed_wanted() {
        add(run(seed));
    } else {
        std::thread::scope(|scope| {
            for _ in 0..RUNNERS {
                scope.spawn(|| while !add(run(next.fetch_add(1, Ordering::Relaxed))) {});
            }
        });
    }
    let total = total.into_inner().unwrap_or_else(PoisonError::into_inner);
    println!("{what}: {total}; {:.1} s", begun.elapsed().as_secs_f64());
    assert!(total.failures.is_empty(), "{what}: {total}");
    total
}

/// Runs workloads until `states` are checked, and asserts that nothing was lost.
#[cfg(test)]
fn run_until(what: &str, states: u64, run: impl Fn(u64) -> sim::crash::Tally + Sync) {
    run_until_enough(what, |total| total.states >= states, run);
}

/// Asserts that every planted bug is found, and prints after how many workloads.
#[cfg(test)]
fn all_found<P: Copy + std::fmt::Debug>(
    plants: &[P],
    seeds_until_found: impl Fn(P) -> Result<(u64, sim::crash::Tally), sim::crash::Tally>,
) {
    let mut missed = Vec::new();
    for &plant in plants {
        match seeds_until_found(plant) {
            Ok((seeds, t)) => println!(
                "{plant:?}: found after {seeds} workloads, {} states: {}",
                t.states, t.failures[0]
            ),
            Err(t) => missed.push(format!("{plant:?}: not found: {t}")),
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
