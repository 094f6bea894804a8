//! `ironstone-block` as its users see it: processes, sockets, signals.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and prints what it skips"
)]

mod cluster;
mod dev;
mod files;
mod loads;
mod strangers;
