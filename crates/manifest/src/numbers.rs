//! File numbers: tables, logs, MANIFESTs and OPTIONS files share one sequence.

use base::FileNumber;
use base::sync::atomic::{AtomicU64, Ordering};

/// Hands out file numbers. No number is given out twice.
#[derive(Debug)]
pub struct FileNumbers(AtomicU64);

impl FileNumbers {
    /// Numbers from `n` on.
    pub fn starting_at(n: u64) -> Self {
        Self(AtomicU64::new(n))
    }

    /// The next number.
    pub fn take(&self) -> FileNumber {
        FileNumber(self.0.fetch_add(1, Ordering::Relaxed))
    }

    /// The number that will be handed out next.
    pub fn peek(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}
