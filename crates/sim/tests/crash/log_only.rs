//! Crashes of the log alone.

use crate::{run_until, states_wanted};
use sim::crash::Tally;
use sim::crash::log_only::{self, Plant, Setup};
use sim::disk::Lie;

fn setup(seed: u64, plant: Plant) -> Setup {
    Setup {
        seed,
        images: 4,
        plant,
    }
}

#[test]
fn log_only_no_crash_loses_what_was_acknowledged() {
    run_until("log only", states_wanted(220_000), |seed| {
        log_only::run(setup(seed, Plant::None))
    });
}

/// Runs workloads with the bug until a check finds it.
fn seeds_until_found(plant: Plant) -> Result<(u64, Tally), Tally> {
    let mut total = Tally::default();
    for seed in 1..=400 {
        total.add(log_only::run(setup(seed, plant)));
        if !total.failures.is_empty() {
            return Ok((seed, total));
        }
    }
    Err(total)
}

#[test]
fn log_only_planted_bugs_are_found() {
    let plants = [
        Plant::AcknowledgeEarly,
        Plant::NoBoundaryRule,
        Plant::NoTrim,
        Plant::NoPadding,
        Plant::PadWithZeros,
        Plant::Disk(Lie::SkipLogSync),
        Plant::Disk(Lie::SkipDirSync),
        Plant::Disk(Lie::DsyncAsNone),
        Plant::Disk(Lie::IgnoreShortWrite),
        Plant::Disk(Lie::ZeroInterior),
        Plant::Disk(Lie::Reorder),
        Plant::Disk(Lie::SyncLate),
    ];
    crate::all_found(&plants, seeds_until_found);
}
