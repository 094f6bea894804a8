//! Random operations on a database and on a `BTreeMap`, which must always agree.
//!
//! ```text
//!   seed ─> Rng ─> options (Setup) ─> operation ─┬─> Ironstone ─┐
//!                                                └─> Model ─────┴─ compare
//! ```
//!
//! The operations depend only on the seed and on the model, never on the database, so a seed runs the same
//! operations each time; only the timing of background jobs differs between runs. A failure is reduced by
//! looking for the shortest run of the same seed after which a comparison of everything fails.
//!
//! A crash is a copy of the directory that is made while the file system is frozen
//! ([`HookedFs::frozen`](crate::hooked::HookedFs::frozen)) and the database is open: that is the state after
//! the death of the process. The run continues with the copy; at times it also continues with a checkpoint or a
//! restored backup.

mod check;
mod copies;
mod ingest;
mod jobs;
mod reads;
mod runner;
pub(crate) mod setup;
pub(crate) mod store;
mod ttl;
mod writes;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base::sync::atomic::{AtomicU64, Ordering};
use base::sync::{Mutex, PoisonError};

pub use setup::Setup;
pub use ttl::run as run_ttl;

/// The environment variable with the number of operations of the long test.
pub const OPS_VARIABLE: &str = "IRONSTONE_MODEL_OPS";
/// The environment variable with the only seed to run.
pub const SEED_VARIABLE: &str = "IRONSTONE_MODEL_SEED";
/// The environment variable with the factor by which rare operations are more frequent.
pub const RARE_VARIABLE: &str = "IRONSTONE_MODEL_RARE";

/// The parameters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Determines the options and the operations.
    pub seed: u64,
    /// Number of operations.
    pub operations: u64,
    /// The factor by which rare operations, those on files, families and whole databases, are more frequent
    /// than in a long run.
    pub rare: u64,
}

/// How often each kind of operation ran, over several runs.
#[derive(Debug, Default)]
pub struct Counts {
    done: AtomicU64,
    by_name: Mutex<BTreeMap<&'static str, u64>>,
}

impl Counts {
    /// Number of operations so far.
    pub fn operations(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Adds what a run has counted since the last call.
    fn take(&self, counted: &mut BTreeMap<&'static str, u64>) {
        let mut all = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, n) in std::mem::take(counted) {
            *all.entry(name).or_default() += n;
            self.done.fetch_add(n, Ordering::Relaxed);
        }
    }
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.by_name.lock().unwrap_or_else(PoisonError::into_inner);
        let each: Vec<String> = all.iter().map(|(name, n)| format!("{n} {name}")).collect();
        f.write_str(&each.join(", "))
    }
}

/// A disagreement.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The parameters of the run.
    pub plan: Plan,
    /// The number of operations after which it was noticed.
    pub operation: u64,
    /// The difference.
    pub what: String,
    /// The last operations, oldest first.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        let Plan { seed, rare, .. } = self.plan;
        let (n, what) = (self.operation, &self.what);
        write!(
            f,
            "seed {seed} fails at operation {n}: {what}\n\
             repeat with cargo xtask soak model --only --seed {seed} --rare {rare} --ops {n}, or in a \
             test with {SEED_VARIABLE}={seed} {RARE_VARIABLE}={rare} {OPS_VARIABLE}={n}"
        )
    }
}

/// Runs a plan, and compares everything at the end.
///
/// # Errors
/// The first disagreement.
pub fn run(plan: Plan, counts: &Arc<Counts>) -> Result<(), Box<Failure>> {
    runner::Runner::start(plan, counts)?.run()
}

/// Runs plans on `threads` threads, in order, until one fails.
///
/// # Errors
/// The first disagreement.
pub fn run_all(plans: &[Plan], threads: usize, counts: &Arc<Counts>) -> Result<(), Box<Failure>> {
    let next = AtomicU64::new(0);
    let failed: Mutex<Option<Box<Failure>>> = Mutex::new(None);
    let lock = || failed.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        while lock().is_none() {
            let at = next.fetch_add(1, Ordering::Relaxed) as usize;
            let Some(plan) = plans.get(at) else { break };
            if let Err(failure) = run(*plan, counts) {
                *lock() = Some(failure);
            }
        }
    };
    base::sync::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(work);
        }
    });
    let failure = lock().take();
    failure.map_or(Ok(()), Err)
}

/// Looks for the shortest failing prefix of the failed run, in a few tries.
pub fn shrink(failure: Failure) -> Failure {
    let (mut good, mut best) = (0, failure);
    let counts = Arc::new(Counts::default());
    for _ in 0..16 {
        if best.operation <= good + 1 {
            break;
        }
        let operations = good + (best.operation - good) / 2;
        let plan = Plan {
            operations,
            ..best.plan
        };
        match run(plan, &counts) {
            Ok(()) => good = operations,
            Err(smaller) if smaller.operation < best.operation => best = *smaller,
            Err(_) => break,
        }
    }
    best
}
