//! The program `bench`: what `cargo xtask bench` and its like run.
#![expect(clippy::print_stdout, reason = "a test that is skipped says so")]
#![expect(clippy::unwrap_used, reason = "a test that meets an error fails")]

mod block_store;
mod device;
mod drill;
mod page;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Held by tests that count a device's operations and by tests that keep the processors busy,
/// because load changes how the kernel merges requests.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A program of the same build. `cargo test --workspace` has built it; otherwise, it is built here if it is missing.
fn program(package: &str, name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_BIN_EXE_bench")).with_file_name(name);
    if !program.exists() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        build.args(["build", "--package", package, "--bin", name]);
        assert!(build.status().unwrap().success());
    }
    program
}
