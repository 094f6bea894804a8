//! Integration tests of the tools.

#![expect(clippy::unwrap_used, reason = "tests may")]

mod cli;
mod compressed_log;
mod corpus;
mod db_bench;
mod db_bench_benchmarks;
mod db_bench_flags;
mod dumps;
mod ldb;
mod ldb_commands;
mod ldb_edges;
mod ldb_writes;
mod librocksdb;
mod log_lines;
mod options;
mod repair;
