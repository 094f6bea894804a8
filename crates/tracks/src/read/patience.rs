//! Time limits of queries.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use base::sync::atomic::{AtomicBool, Ordering};
use base::{Error, ErrorKind, Result};

/// The clock is read once for this many rows.
const ROWS: u32 = 256;

/// The time limit of one query. It also counts the rows that were read.
#[derive(Debug)]
pub struct Patience {
    clock: Arc<dyn Clock>,
    most: Duration,
    until: u64,
    rows: Cell<u64>,
    skipped: Cell<u64>,
    left: Cell<u32>,
    /// Set once nobody waits for the answer any more.
    is_over: Arc<AtomicBool>,
}

/// Held by the caller that waits for an answer: when it is dropped, its queries end.
#[derive(Debug, Default)]
pub struct Asker(Arc<AtomicBool>);

/// Tells whether an [`Asker`] still exists.
#[derive(Clone, Debug)]
pub struct Watch(Arc<AtomicBool>);

impl Asker {
    /// A watch for [`Patience::watching`].
    pub fn watch(&self) -> Watch {
        Watch(Arc::clone(&self.0))
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Patience {
    /// A time limit of `most`, from now on.
    pub fn new(clock: Arc<dyn Clock>, most: Duration) -> Self {
        let nanos = u64::try_from(most.as_nanos()).unwrap_or(u64::MAX);
        let until = clock.monotonic_nanos().saturating_add(nanos);
        Self {
            clock,
            most,
            until,
            rows: Cell::new(0),
            skipped: Cell::new(0),
            left: Cell::new(ROWS),
            is_over: Arc::default(),
        }
    }

    /// The same limit; in addition, the query ends when the asker is dropped.
    #[must_use]
    pub fn watching(self, Watch(is_over): Watch) -> Self {
        Self { is_over, ..self }
    }

    /// Counts a row. Errors: `TimedOut`; `Aborted` if nobody waits any more.
    pub(crate) fn row(&self) -> Result<()> {
        self.rows.set(self.rows.get() + 1);
        let left = self.left.get();
        if left > 0 {
            self.left.set(left - 1);
            return Ok(());
        }
        self.left.set(ROWS);
        if self.is_over.load(Ordering::Relaxed) {
            return Err(Error::aborted("nobody waits for the answer any more"));
        }
        if self.clock.monotonic_nanos() < self.until {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::TimedOut,
            format!("the question took longer than {:?}", self.most),
        )
        .hint("ask for a smaller area, a shorter time, or fewer results"))
    }

    /// Whether the time is up.
    pub fn is_over(&self) -> bool {
        self.clock.monotonic_nanos() >= self.until
    }

    /// Counts dead rows that were skipped.
    pub(super) fn skipped_more(&self, count: u64) {
        self.skipped.set(self.skipped.get() + count);
    }

    /// The number of rows that were read.
    pub fn rows(&self) -> u64 {
        self.rows.get()
    }

    /// The number of dead rows of the index that were skipped.
    pub fn skipped(&self) -> u64 {
        self.skipped.get()
    }
}

#[cfg(test)]
mod tests {
    use base::clock::SystemClock;

    use super::*;

    #[test]
    fn a_question_ends_when_its_asker_is_gone() {
        let asker = Asker::default();
        let patience = Patience::new(SystemClock::shared(), Duration::from_secs(60));
        let patience = patience.watching(asker.watch());
        assert!((0..1000).all(|_| patience.row().is_ok()));
        drop(asker);
        let ended = (0..=ROWS).find_map(|_| patience.row().err());
        assert_eq!(ended.unwrap().kind(), ErrorKind::Aborted);
    }
}
