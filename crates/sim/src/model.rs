//! Random operations on a database and on a `BTreeMap`, which must always agree.
//!
//! ```text
//!   seed ─> Rng ─> options (Setup) ─> operation ─┬─> Ironstone ─┐
//!                                                └─> Model ─────┴─ compare
//! ```
//!
//! The operations depend on the seed and on the model alone, never on the database, so a seed
//! runs the same operations each time; what differs between runs is when background jobs get
//! their turn. A failure is made smaller by looking for the shortest run of the same seed after
//! which a comparison of everything fails.
//!
//! A crash is a copy of the directory that is made while the file system stands still
//! ([`HookedFs::frozen`](crate::hooked::HookedFs::frozen)) and the database is open: what the death of the process leaves.
//! The run goes on with the copy; so it does, at times, with a checkpoint or a restored backup.

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
/// The environment variable with the one seed to run.
pub const SEED_VARIABLE: &str = "IRONSTONE_MODEL_SEED";
/// The environment variable with how many times more often the rare operations come.
pub const RARE_VARIABLE: &str = "IRONSTONE_MODEL_RARE";

/// What one run does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Determines the options and the operations.
    pub seed: u64,
    /// Operations.
    pub operations: u64,
    /// How many times more often than in a long run the rare operations come: those on files,
    /// families and whole databases.
    pub rare: u64,
}

/// How often each kind of operation ran, over several runs.
#[derive(Debug, Default)]
pub struct Counts {
    done: AtomicU64,
    by_name: Mutex<BTreeMap<&'static str, u64>>,
}

impl Counts {
    /// Operations so far.
    pub fn operations(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Takes over what a run has counted since it was asked the last time.
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
    /// The run.
    pub plan: Plan,
    /// After how many operations it showed.
    pub operation: u64,
    /// What differs.
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

/// Runs plans on `threads` threads, in their order, until one fails.
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

/// Looks for the shortest prefix of the failed run that fails, in a few tries.
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
