//! The log against real files, and against what real RocksDB makes of the same files.
#![expect(
    clippy::unwrap_used,
    reason = "a test fails by panicking and says what it skips"
)]

mod frames;
mod helpers;
