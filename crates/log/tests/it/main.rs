//! The log with real files, compared with the results of real RocksDB for the same files.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and says what it skips"
)]

mod batches;
mod fences;
mod flights;
mod frames;
mod helpers;
mod manifest;
mod read_wal;
mod recovery_cases;
mod write_errors;
