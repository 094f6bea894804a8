//! Crashes at every event of random workloads, and the checks after them.
//!
//! - [`log_only`]: only the log; fast, so that many states can be checked.
//! - [`engine`]: whole databases.
//! - [`errors`]: an error at every I/O instead of a crash.
//!
//! A *state* is an image of a disk that was opened and checked. These must hold: everything acknowledged as
//! durable is there; what is there is a prefix of what was written; opening the image again gives the same;
//! a crash during the opening changes nothing. Each failure is one line with the command that reproduces
//! it.

pub mod engine;
pub mod errors;
pub mod log_only;
mod model;

use std::fmt;

/// Counts over a run.
#[derive(Clone, Debug, Default)]
pub struct Tally {
    /// Images opened and checked.
    pub states: u64,
    /// Events at which images were taken, or operations that failed on purpose.
    pub points: u64,
    /// Workloads.
    pub workloads: u64,
    /// Log writes that bypassed the page cache.
    pub direct: u64,
    /// Images that RocksDB opened: before Ironstone's recovery, and after it.
    pub rocksdb: [u64; 2],
    /// Images whose MANIFEST RocksDB refused before the recovery, until its torn end was cut off.
    pub manifests_cut: u64,
    /// Images that were not opened by RocksDB, because it would read one of their logs for ever.
    pub endless: u64,
    /// Images refused because a torn end of the MANIFEST may also be a flipped bit.
    pub ambiguous: u64,
    /// The first violations, one line each.
    pub failures: Vec<String>,
}

/// The most failures that are kept.
const FAILURES_MAX: usize = 20;

impl Tally {
    /// Adds the counts of another run.
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

    /// Notes a violation.
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
