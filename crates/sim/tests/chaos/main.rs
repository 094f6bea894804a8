//! Many threads do everything at once while I/O fails and processes die: `sim::chaos`, for a given time.
//!
//! `IRONSTONE_CHAOS_SECONDS=n` sets the time; without it the test does nothing. `IRONSTONE_CHAOS_SEED=s` sets
//! the first seed. The test is alone in its process: it looks for threads that are left, and ends the process
//! when an operation hangs.
#![expect(clippy::print_stdout, reason = "the counts are what a run is for")]
#![expect(clippy::disallowed_methods, reason = "runs are timed")]

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use sim::chaos::{Plan, Tally, Watch, run};

    const ROUND: Duration = Duration::from_secs(4);
    const BOUND: Duration = Duration::from_secs(120);

    fn variable(name: &str) -> Option<f64> {
        std::env::var(name).ok()?.parse().ok()
    }

    #[test]
    fn everything_goes_wrong_at_once() {
        let Some(seconds) = variable("IRONSTONE_CHAOS_SECONDS") else {
            println!("skipped: IRONSTONE_CHAOS_SECONDS does not say for how long");
            return;
        };
        let first = variable("IRONSTONE_CHAOS_SEED").unwrap_or(1.0) as u64;
        let watch = Watch::start(BOUND, None).unwrap();
        let mut tally = Tally::default();
        let begun = Instant::now();
        while begun.elapsed().as_secs_f64() < seconds {
            let plan = Plan {
                seed: first + tally.rounds,
                time: ROUND,
                without: Vec::new(),
                options: String::new(),
            };
            let again = format!(
                "cargo xtask soak chaos --rounds 1 --seed {} --round-seconds {}",
                plan.seed,
                ROUND.as_secs()
            );
            watch.set_repeat(again.clone());
            if let Err(text) = run(&plan, &watch, &mut tally) {
                panic!("{text}\nrepeat: {again}");
            }
        }
        let (ms, what) = watch.longest();
        println!(
            "{} rounds, {} lives, {} operations, {} failed calls, {} panics; longest {ms} ms: {what}",
            tally.rounds,
            tally.lives,
            watch.operations(),
            tally.faults,
            tally.panics
        );
    }
}
