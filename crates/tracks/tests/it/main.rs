//! The tracking service from outside.
#![expect(clippy::unwrap_used, reason = "tests")]

mod dead_rows;
mod fences;
mod http;
mod import;
mod keep;
mod mqtt;
mod queries;
mod reports;
mod world;
