//! Schedules of a whole database on a simulated disk: at each lock, atomic and wait a scheduler decides
//! which thread runs next, and when time moves. Only with `--cfg shuttle`: `cargo xtask schedules`.
#![cfg(shuttle)]

mod book;
mod check;
mod clients;
mod small;
mod world;

use base::sync::explore::explore;

/// Every mode of writing, both queues, asynchronous writes, manual syncs of the log, flushes, rotations,
/// families that are created and dropped; no disk operation fails.
#[test]
fn commit_path() {
    explore("commit_path", 40, |seed| {
        world::run(seed, world::Kind::Sound)
    });
}

/// The same, while disk operations fail once or for a while, with `resume`.
#[test]
fn failing_disk() {
    explore("failing_disk", 40, |seed| {
        world::run(seed, world::Kind::Failing)
    });
}

/// The same, and the database is closed while writes are in flight.
#[test]
fn closing() {
    explore("closing", 20, |seed| world::run(seed, world::Kind::Closing));
}
