//! Tests of `ironstone-block` as its users see it: processes, sockets, signals.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test fails by panicking and prints what it skips"
)]

mod bad;
mod cluster;
mod ctl;
mod dev;
mod disks;
mod files;
mod full;
mod loads;
mod metrics;
mod mounts;
mod strangers;
mod terminal;
mod tools;
mod wire;
