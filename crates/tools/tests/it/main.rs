//! Integration tests of the tools.

#![expect(clippy::unwrap_used, reason = "tests may")]

mod librocksdb;
