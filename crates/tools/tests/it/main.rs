//! Integration tests of the tools.

#![expect(clippy::unwrap_used, reason = "tests may")]

mod cli;
mod corpus;
mod db_bench;
mod dumps;
mod ldb;
mod librocksdb;
