//! Schedules: a whole database on a simulated disk, of which a scheduler decides at each lock, atomic
//! and wait which thread goes on, and when time moves. Only with `--cfg shuttle`: `cargo xtask schedules`.
#![cfg(shuttle)]

mod book;
mod check;
mod clients;
mod small;
mod world;

use base::sync::explore::explore;

/// Every plan of writing, both queues, asynchronous writes, syncs of the log by call, flushes, rotations,
/// families that come and go; no operation of the disk fails.
#[test]
fn commit_path() {
    explore("commit_path", 40, |seed| {
        world::run(seed, world::Kind::Sound)
    });
}

/// The same, while operations of the disk fail once or for a while, with `resume`.
#[test]
fn failing_disk() {
    explore("failing_disk", 40, |seed| {
        world::run(seed, world::Kind::Failing)
    });
}

/// The same, and the database is closed while writes are on their way.
#[test]
fn closing() {
    explore("closing", 20, |seed| world::run(seed, world::Kind::Closing));
}
