//! How long a question may take.

use std::cell::Cell;
use std::sync::Arc;
use std::time::Duration;

use base::clock::Clock;
use base::{Error, ErrorKind, Result};

/// The clock is asked once for so many rows.
const ROWS: u32 = 256;

/// See the module. It counts the rows that were read, too.
#[derive(Debug)]
pub struct Patience {
    clock: Arc<dyn Clock>,
    most: Duration,
    until: u64,
    rows: Cell<u64>,
    skipped: Cell<u64>,
    left: Cell<u32>,
}

impl Patience {
    /// From now on.
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
        }
    }

    /// A row was read. Errors: `TimedOut`.
    pub(super) fn row(&self) -> Result<()> {
        self.rows.set(self.rows.get() + 1);
        let left = self.left.get();
        if left > 0 {
            self.left.set(left - 1);
            return Ok(());
        }
        self.left.set(ROWS);
        if self.clock.monotonic_nanos() < self.until {
            return Ok(());
        }
        Err(Error::new(
            ErrorKind::TimedOut,
            format!("the question took longer than {:?}", self.most),
        )
        .hint("ask for a smaller area, a shorter time, or fewer results"))
    }

    /// Whether it has taken that long.
    pub fn is_over(&self) -> bool {
        self.clock.monotonic_nanos() >= self.until
    }

    /// Dead rows were passed over.
    pub(super) fn skipped_more(&self, count: u64) {
        self.skipped.set(self.skipped.get() + count);
    }

    /// How many rows were read.
    pub fn rows(&self) -> u64 {
        self.rows.get()
    }

    /// How many dead rows of the index were passed over.
    pub fn skipped(&self) -> u64 {
        self.skipped.get()
    }
}
