//! Databases that several threads write to.

use crate::{run_until, states_wanted};
use sim::crash::Tally;
use sim::crash::engine::{Plant, Setup, threads};
use sim::disk::Lie;

#[test]
fn threads_lose_nothing_and_leave_a_prefix() {
    run_until("threads", states_wanted(220_000) / 50, |seed| {
        threads::run(Setup::new(seed))
    });
}

#[test]
fn threads_planted_bugs_are_found() {
    let plants = [
        Plant::AcknowledgeEarly,
        Plant::Disk(Lie::SkipLogSync),
        Plant::Disk(Lie::IgnoreShortWrite),
        Plant::Disk(Lie::Reorder),
        Plant::Disk(Lie::SyncLate),
        Plant::Disk(Lie::ZeroLive),
        Plant::Disk(Lie::PadWithZeros),
    ];
    let mut missed = Vec::new();
    for plant in plants {
        let mut total = Tally::default();
        for seed in 1..=30 {
            let setup = Setup {
                plant,
                ..Setup::new(seed)
            };
            total.add(threads::run(setup));
            if !total.failures.is_empty() {
                break;
            }
        }
        match total.failures.first() {
            Some(what) => println!("{plant:?}: found after {} states: {what}", total.states),
            None => missed.push(format!("{plant:?}: not found: {total}")),
        }
    }
    assert!(missed.is_empty(), "{missed:#?}");
}
