//! Crashes at every event of seeded workloads, and what must hold afterwards.
//!
//! - [`log_only`]: the log alone; fast, for the great number of states.
//! - [`engine`]: whole databases.
//! - [`errors`]: an error at every I/O instead of a crash.
//!
//! A *state* is one image of a disk that was opened and checked. What must hold in it: everything
//! acknowledged as durable is there; what is there is a prefix of what was written; opening it
//! again gives the same; a crash while it is opened changes nothing. Each failure is one line with
//! what reproduces it.

pub mod engine;
pub mod errors;
pub mod log_only;
mod model;

use std::fmt;

/// What a run did.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Images opened and checked.
    pub states: u64,
    /// Events at which images were taken, or operations that were made to fail.
    pub points: u64,
    /// Workloads.
    pub workloads: u64,
    /// Log writes past the page cache.
    pub direct: u64,
    /// Images that RocksDB opened: before Ironstone's recovery, and after it.
    pub rocksdb: [u64; 2],
    /// Of those before, images whose MANIFEST RocksDB refused until its torn end was cut off.
    pub manifests_cut: u64,
    /// Images that RocksDB was not shown because it would read one of their logs for ever.
    pub endless: u64,
    /// Images refused because a torn end of the MANIFEST may also be a flipped bit.
    pub ambiguous: u64,
    /// The first things that did not hold, one line each.
    pub failures: Vec<String>,
}

/// Failures that a tally keeps.
const FAILURES_MAX: usize = 20;

impl Tally {
    /// Adds what another run did.
    pub fn add(&mut self, other: Self) {
        self.states += other.states;
        self.points += other.points;
        self.workloads += other.workloads;
        self.direct += other.direct;
        self.manifests_cut += other.manifests_cut;
        self.ambiguous += other.ambiguous;
        self.endless += other.endless;
        for (mine, more) in self.rocksdb.iter_mut().zip(other.rocksdb) {
            *mine += more;
        }
        for f in other.failures {
            self.fail(f);
        }
    }

    /// Notes something that does not hold.
    pub fn fail(&mut self, what: String) {
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(what);
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "states: {}, I/O points: {}, workloads: {}, direct log writes: {}, \
             opened by RocksDB before and after: {} {}, torn MANIFESTs cut: {}, \
             endless for RocksDB: {}, ambiguous: {}, lost: {}",
            self.states,
            self.points,
            self.workloads,
            self.direct,
            self.rocksdb[0],
            self.rocksdb[1],
            self.manifests_cut,
            self.endless,
            self.ambiguous,
            self.failures.len()
        )?;
        for failure in &self.failures {
            write!(f, "\n  {failure}")?;
        }
        Ok(())
    }
}
