//! `cargo xtask` as a program.
#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]
#![expect(clippy::unwrap_used, reason = "a test that meets an error fails")]

mod bench_block;
mod bench_device;
mod bench_page;
mod drill;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by tests that count a device's operations and by tests that keep the processors busy,
/// because load changes how the kernel merges requests.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}
