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

mod check;
mod runner;
mod setup;
mod store;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

pub use setup::Setup;

/// The environment variable with the number of operations of the long test.
pub const OPS_VARIABLE: &str = "IRONSTONE_MODEL_OPS";
/// The environment variable with the one seed to run.
pub const SEED_VARIABLE: &str = "IRONSTONE_MODEL_SEED";

/// How often each kind of operation ran.
#[derive(Debug, Default)]
pub struct Counts {
    /// Puts, deletes of both kinds, merges, entities and batches.
    pub writes: AtomicU64,
    /// Gets, now and at a snapshot.
    pub gets: AtomicU64,
    /// Steps of iterators.
    pub steps: AtomicU64,
    /// Snapshots taken.
    pub snapshots: AtomicU64,
    /// Flushes by call.
    pub flushes: AtomicU64,
    /// Compactions by call.
    pub compactions: AtomicU64,
    /// Closes and opens.
    pub reopens: AtomicU64,
    /// Crashes and opens.
    pub crashes: AtomicU64,
    /// Families created or dropped.
    pub families: AtomicU64,
    /// Comparisons of everything.
    pub scans: AtomicU64,
}

impl fmt::Display for Counts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n = |c: &AtomicU64| c.load(Ordering::Relaxed);
        write!(
            f,
            "{} writes, {} gets, {} iterator steps, {} snapshots, {} flushes, {} compactions, \
             {} reopens, {} crashes, {} families created or dropped, {} full comparisons",
            n(&self.writes),
            n(&self.gets),
            n(&self.steps),
            n(&self.snapshots),
            n(&self.flushes),
            n(&self.compactions),
            n(&self.reopens),
            n(&self.crashes),
            n(&self.families),
            n(&self.scans),
        )
    }
}

/// A disagreement.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
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
        write!(
            f,
            "seed {} fails at operation {}: {}\nrepeat with {SEED_VARIABLE}={} {OPS_VARIABLE}={}",
            self.seed, self.operation, self.what, self.seed, self.operation
        )
    }
}

/// Runs `operations` with a seed, and compares everything at the end.
pub fn run(seed: u64, operations: u64, counts: &Counts) -> Result<(), Box<Failure>> {
    runner::Runner::start(seed, counts)?.run(operations)
}

/// Looks for the shortest prefix of the failed run that fails, in a few tries.
pub fn shrink(failure: Failure) -> Failure {
    let (mut good, mut best) = (0, failure);
    let counts = Counts::default();
    for _ in 0..16 {
        if best.operation <= good + 1 {
            break;
        }
        let middle = good + (best.operation - good) / 2;
        match run(best.seed, middle, &counts) {
            Ok(()) => good = middle,
            Err(smaller) if smaller.operation < best.operation => best = *smaller,
            Err(_) => break,
        }
    }
    best
}
