//! The log against real files, and against what real RocksDB makes of the same files.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod frames;
mod helpers;
mod manifest;
mod read_wal;
mod recovery_cases;
mod write_errors;
