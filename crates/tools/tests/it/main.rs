//! Integration tests of the tools.

#![expect(clippy::unwrap_used, reason = "tests may")]

mod db_bench;
mod librocksdb;
