//! Databases that several threads write to.

use crate::{run_until, states_wanted};
use sim::crash::Tally;
use sim::crash::engine::{Plant, Setup, threads};
use sim::disk::Lie;

#[test]
fn threads_lose_nothing_and_leave_a_prefix() {
    run_until("threads", states_wanted(220_000) / 100, |seed| {
        threads::run(Setup::new(seed))
    });
}

/// Settings with which log writes are most often in flight at the same time.
const SIDE_BY_SIDE: &[(&str, &str)] = &[
    ("wal_io_mode", "direct"),
    ("wal_pool_files", "2"),
    ("wal_tail_policy", "pad"),
    ("recycle_log_file_num", "2"),
    ("wal_pipeline_depth", "8"),
    ("wal_min_sync_interval", "0"),
    ("manual_wal_flush", "false"),
    ("max_total_wal_size", "0"),
    ("write_buffer_size", "131072"),
];

#[test]
fn threads_lose_nothing_with_writes_side_by_side() {
    run_until("side by side", states_wanted(220_000) / 100, |seed| {
        threads::run(Setup {
            settings: SIDE_BY_SIDE,
            operations: 150,
            ..Setup::new(seed)
        })
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
