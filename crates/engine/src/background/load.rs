//! Counts the background jobs at work, so that compactions give way to flushes if processors are few.
//!
//! A flush makes room for writers; a compaction is seldom urgent. If there are as many jobs as
//! processors, writers become slower, and the flush takes longer and keeps its memory for longer. So a
//! compaction that is not urgent waits during the flush.

use std::time::Duration;

use base::clock::{self, Clock};
use base::sync::atomic::{AtomicUsize, Ordering};
use base::sync::{Condvar, Mutex, PoisonError, ranked};

use crate::locks;

/// How many flushes and compactions are at work.
#[derive(Debug)]
pub(crate) struct JobLoad {
    processors: usize,
    flushes: AtomicUsize,
    compactions: AtomicUsize,
    gate: Mutex<()>,
    /// Signaled when a flush or a compaction has ended.
    flush_ended: Condvar,
}

/// A job at work, until it is dropped.
pub(crate) struct AtWork<'a> {
    load: &'a JobLoad,
    count: &'a AtomicUsize,
}

impl Drop for AtWork<'_> {
    fn drop(&mut self) {
        let before = self.count.fetch_sub(1, Ordering::Relaxed);
        base::invariant!(before > 0, "a job ends twice");
        let gate = self.load.gate.lock();
        drop(gate.unwrap_or_else(PoisonError::into_inner));
        self.load.flush_ended.notify_all();
    }
}

impl Default for JobLoad {
    fn default() -> Self {
        Self::on(std::thread::available_parallelism().map_or(1, usize::from))
    }
}

impl JobLoad {
    fn on(processors: usize) -> Self {
        Self {
            processors,
            flushes: AtomicUsize::new(0),
            compactions: AtomicUsize::new(0),
            gate: ranked(locks::LEAF, ()),
            flush_ended: Condvar::new(),
        }
    }

    pub(crate) fn flush(&self) -> AtWork<'_> {
        self.enter(&self.flushes)
    }

    /// A compaction, or one of the parts of it that run at the same time.
    pub(crate) fn compaction(&self) -> AtWork<'_> {
        self.enter(&self.compactions)
    }

    fn enter<'a>(&'a self, count: &'a AtomicUsize) -> AtWork<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        AtWork { load: self, count }
    }

    /// Whether a flush is at work, and there are at least as many jobs as processors.
    #[inline]
    pub(crate) fn is_full(&self) -> bool {
        let flushes = self.flushes.load(Ordering::Relaxed);
        flushes > 0 && flushes + self.compactions.load(Ordering::Relaxed) >= self.processors
    }

    /// While [`JobLoad::is_full`], waits until a job ends, for at most `at_most`.
    pub(crate) fn step_aside(&self, clock: &dyn Clock, at_most: Duration) {
        let gate = self.gate.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_full() {
            drop(clock::wait_timeout(clock, &self.flush_ended, gate, at_most));
        }
    }
}

#[cfg(test)]
mod tests {
    use base::clock::SystemClock;

    use super::*;

    #[test]
    fn full_is_a_flush_without_a_processor_to_spare() {
        let load = JobLoad::on(2);
        let compaction = load.compaction();
        assert!(!load.is_full(), "no flush");
        let flush = load.flush();
        assert!(load.is_full());
        drop(flush);
        assert!(!load.is_full());
        drop(compaction);
        let flushes = [load.flush(), load.flush()];
        assert!(load.is_full(), "a compaction that begins waits");
        drop(flushes);
        let roomy = JobLoad::on(4);
        let _jobs = [roomy.compaction(), roomy.compaction(), roomy.flush()];
        assert!(!roomy.is_full(), "one is left for writers");
    }

    #[test]
    fn the_end_of_a_flush_ends_the_wait() {
        let load = JobLoad::on(2);
        let _compaction = load.compaction();
        let flush = load.flush();
        let clock = SystemClock::shared();
        load.step_aside(&*clock, Duration::from_millis(1));
        base::sync::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                while load.is_full() {
                    load.step_aside(&*clock, Duration::from_secs(60));
                }
            });
            clock.sleep(Duration::from_millis(10));
            drop(flush);
            waiter.join().unwrap();
        });
    }
}
