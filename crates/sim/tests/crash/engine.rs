//! Crashes of whole databases.

use crate::{run_until, states_wanted};
use sim::crash::Tally;
use sim::crash::engine::{self, Plant, Setup};
use sim::disk::Lie;

/// One engine state is checked for so many states of the log alone: an open database costs about ten times
/// as much as a log.
const SHARE: u64 = 10;

#[test]
fn engine_no_crash_loses_what_was_acknowledged() {
    let states = states_wanted(220_000) / SHARE;
    run_until("engine", states, |seed| engine::run(Setup::new(seed)));
}

/// With `wal_tail_policy = pad`, a power cut may destroy a sector that is being written. With small
/// memtables most logs found the pool empty and grew through the page cache, whose next write went over the
/// sector that held the last acknowledged one. One power cut in six lost it.
#[test]
fn engine_pad_holds_for_growing_logs_too() {
    const SETTINGS: [&[(&str, &str)]; 3] = [
        &[
            ("wal_tail_policy", "pad"),
            ("wal_io_mode", "direct"),
            ("wal_pool_files", "1"),
            ("write_buffer_size", "16384"),
        ],
        &[("wal_tail_policy", "pad"), ("wal_io_mode", "buffered")],
        &[
            ("wal_tail_policy", "atomic"),
            ("wal_pipeline_depth", "1"),
            ("wal_io_mode", "auto"),
            ("wal_pool_files", "0"),
        ],
    ];
    let states = states_wanted(30_000) / SHARE;
    run_until("engine, padded", states, |seed| {
        engine::run(Setup {
            settings: SETTINGS[seed as usize % SETTINGS.len()],
            ..Setup::new(seed)
        })
    });
}

/// Runs workloads with the bug until a check finds it.
fn seeds_until_found(plant: Plant) -> Result<(u64, Tally), Tally> {
    let mut total = Tally::default();
    let settings: &[_] = match plant {
        Plant::Disk(Lie::TearAtomic) => &[
            ("wal_tail_policy", "atomic"),
            ("wal_pipeline_depth", "1"),
            ("wal_io_mode", "direct"),
            ("wal_pool_files", "2"),
        ],
        Plant::Disk(Lie::SplitAtomicGroup) => &[
            ("atomic_flush", "true"),
            ("enable_pipelined_write", "false"),
        ],
        _ => &[],
    };
    for seed in 1..=60 {
        total.add(engine::run(Setup {
            plant,
            settings,
            ..Setup::new(seed)
        }));
        if !total.failures.is_empty() {
            return Ok((seed, total));
        }
    }
    Err(total)
}

#[test]
fn engine_planted_bugs_are_found() {
    let plants = [
        Plant::AcknowledgeEarly,
        Plant::Disk(Lie::SkipLogSync),
        Plant::Disk(Lie::SkipTableSync),
        Plant::Disk(Lie::SkipManifestSync),
        Plant::Disk(Lie::SkipDirSync),
        Plant::Disk(Lie::IgnoreShortWrite),
        Plant::Disk(Lie::ZeroInterior),
        Plant::Disk(Lie::Reorder),
        Plant::Disk(Lie::SyncLate),
        Plant::Disk(Lie::DsyncAsNone),
        Plant::Disk(Lie::ZeroLive),
        Plant::Disk(Lie::PadWithZeros),
        Plant::Disk(Lie::ReuseSequence),
        Plant::Disk(Lie::TearAtomic),
        Plant::Disk(Lie::MoveEarly),
        Plant::Disk(Lie::SplitAtomicGroup),
    ];
    crate::all_found(&plants, seeds_until_found);
}
