//! A million random operations against a `BTreeMap`.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use sim::model::{Counts, Failure, OPS_VARIABLE, SEED_VARIABLE, run, shrink};

/// Operations in all, unless [`OPS_VARIABLE`] says otherwise.
const OPERATIONS: u64 = 1_000_000;
/// Operations of one seed.
const OPERATIONS_A_SEED: u64 = 20_000;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(text.parse().expect("a number in the environment variable"))
}

#[test]
fn a_million_random_operations_agree_with_a_map() {
    let total = number(OPS_VARIABLE).unwrap_or(OPERATIONS);
    let counts = Counts::default();
    if let Some(seed) = number(SEED_VARIABLE) {
        if let Err(failure) = run(seed, total, &counts) {
            panic!("{failure}");
        }
        return;
    }
    let seeds = total.div_ceil(OPERATIONS_A_SEED);
    let next = AtomicU64::new(0);
    let failed: Mutex<Option<Failure>> = Mutex::new(None);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while failed.lock().unwrap().is_none() {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= seeds {
                        break;
                    }
                    if let Err(failure) = run(seed, OPERATIONS_A_SEED, &counts) {
                        *failed.lock().unwrap() = Some(*failure);
                    }
                }
            });
        }
    });
    eprintln!(
        "model: {} operations, {seeds} seeds: {counts}",
        seeds * OPERATIONS_A_SEED
    );
    if let Some(failure) = failed.into_inner().unwrap() {
        eprintln!("{failure}\nlooking for a shorter run");
        panic!("{}", shrink(failure));
    }
}
