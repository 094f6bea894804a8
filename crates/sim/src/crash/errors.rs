//! An error at every I/O of small workloads, instead of a crash.
//!
//! These must hold: the error is returned, without a panic or a hang; after a failed write to the log the
//! next write fails too, unless the disk was merely full; the database opens again afterwards and has what
//! was acknowledged, whether the process or the machine ended.

use std::sync::Arc;

use super::Tally;
use super::engine::{Plant, Setup, Workload, dump, lock, on, open, options};
use super::model::History;
use crate::disk::{Act, Config, CrashKind, Fault, Repeat, SimClock, SimDisk};
use base::rng::Rng;
use base::sync::Mutex;

/// Makes operations fail, one per workload: each `stride`-th, beginning with `first`.
pub fn run(seed: u64, fault: Fault, repeat: Repeat, first: u64, stride: u64) -> Tally {
    let mut tally = Tally {
        workloads: 1,
        ..Tally::default()
    };
    let total = one(seed, None, &mut tally);
    let mut n = first.max(1);
    while n <= total && tally.failures.is_empty() {
        one(seed, Some((n, fault, repeat)), &mut tally);
        tally.points += 1;
        n += stride;
    }
    tally
}

/// One workload with an error at an operation; returns the number of operations.
fn one(seed: u64, fault: Option<(u64, Fault, Repeat)>, tally: &mut Tally) -> u64 {
    let mut rng = Rng::new(seed);
    let setup = Setup::new(seed);
    let clock = SimClock::shared();
    let options = options(&mut rng, &clock, &setup);
    let disk = SimDisk::new(Config::default().with_atomic_writes(4096));
    let history = Arc::new(Mutex::new(History::default()));
    let mut work = Workload::new(
        on(&options, disk.shared()),
        Arc::clone(&history),
        rng.next_u64(),
        Plant::None,
    );
    if let Some((n, fault, repeat)) = fault {
        disk.fail_at(n, fault, repeat);
    }
    let mut fail = |what: String| {
        tally.fail(format!(
            "{what}; {fault:?}; last events: {}; reproduce: IRONSTONE_CRASH_SEED={seed} \
             cargo test -p ironstone-sim --test crash errors",
            last_events(&disk)
        ));
    };
    for _ in 0..14 {
        if let Err(e) = work.step() {
            if disk.failed().is_none() {
                fail(format!("the workload failed: {e}"));
            }
            if let Some(what) = not_sticky(&mut work, &disk, fault.map(|f| f.1)) {
                fail(what);
            }
            break;
        }
    }
    let calls = disk.calls();
    work.close();
    disk.clear_faults();
    let progress = lock(&history).now.clone();
    let images = [
        (disk.kill_image(), true),
        (disk.crash_image(&mut rng, CrashKind::Random), false),
        (disk.crash_image(&mut rng, CrashKind::Nothing), false),
        (disk.crash_image(&mut rng, CrashKind::Everything), false),
    ];
    let mut states = 0;
    for (image, killed) in images {
        states += 1;
        let checked = open(&options, &image)
            .and_then(|found| lock(&history).check(&progress, &found, killed));
        if let Err(what) = checked {
            dump(&image);
            fail(format!("{what}, killed: {killed}"));
        }
    }
    tally.states += states;
    calls
}

fn last_events(disk: &SimDisk) -> String {
    let trace = disk.trace();
    let last = &trace[trace.len().saturating_sub(3)..];
    last.iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join(", ")
}

/// After a failed write or sync of a log, later writes must fail. After other failures, and when a full
/// disk has room again, the next write may succeed.
fn not_sticky(work: &mut Workload, disk: &SimDisk, fault: Option<Fault>) -> Option<String> {
    let (act, path) = disk.failed()?;
    let of_log = path.extension().is_some_and(|e| e == "log")
        && matches!(act, Act::Write | Act::WriteDsync | Act::Sync);
    let wrote = work.write_after_failure()?.is_ok();
    (wrote && of_log && fault != Some(Fault::NoSpace)).then(|| {
        format!(
            "a write succeeded after {act:?} of {} failed",
            path.display()
        )
    })
}
