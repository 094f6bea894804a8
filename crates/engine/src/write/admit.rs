//! Room for a write group: rotates full memtables, and holds writers back when flushes and
//! compactions do not keep up.
//!
//! The fast path is one load: whoever fills a memtable, changes the number of files, or meets an
//! error raises [`Attention`]; only then does the leader look closer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use base::stats::Ticker;
use base::{Error, ErrorKind, Result};

use super::plan::Plan;
use crate::family::Family;
use crate::shared::Shared;

/// A flag that the write path checks once per group.
#[derive(Default)]
pub(crate) struct Attention(AtomicBool);

impl Attention {
    pub(crate) fn raise(&self) {
        self.0.store(true, Ordering::Release);
    }

    #[inline]
    fn raised(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }

    fn clear(&self) {
        self.0.store(false, Ordering::Release);
    }
}

/// Why writers are held back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pressure {
    None,
    /// Each group waits a little.
    Delay,
    /// Nobody writes until a flush or compaction is done.
    Stop(&'static str, &'static str),
}

/// Lets a group of `bytes` through, after rotating memtables and waiting as needed.
#[inline]
pub(crate) fn admit(db: &Shared, plan: &Plan, bytes: usize) -> Result<()> {
    if db.attention.raised() {
        look_closer(db, plan, bytes)
    } else {
        Ok(())
    }
}

#[cold]
fn look_closer(db: &Shared, plan: &Plan, bytes: usize) -> Result<()> {
    db.attention.clear();
    // The next group must look again, or it would pass by the failure.
    db.check_writable().inspect_err(|_| db.attention.raise())?;
    rotate_full(db, plan)?;
    match pressure(db) {
        Pressure::None => Ok(()),
        Pressure::Delay => {
            db.attention.raise(); // look again at the next group
            delay(db, plan, bytes)
        }
        Pressure::Stop(cause, option) => {
            db.attention.raise();
            wait_while_stopped(db, plan, cause, option)
        }
    }
}

/// Rotates the families whose active memtable is full, and those that keep old logs alive when
/// the logs together exceed `max_total_wal_size`.
fn rotate_full(db: &Shared, plan: &Plan) -> Result<()> {
    let full = families_to_rotate(db);
    for family in &full {
        wait_for_memtable_slot(db, family, plan.no_slowdown)?;
    }
    if full.is_empty() {
        return Ok(());
    }
    db.order.alone(|| {
        // The leader of the other queue may have been here first.
        let full = families_to_rotate(db);
        if full.is_empty() {
            return Ok(());
        }
        db.rotate(&full)
    })
}

fn families_to_rotate(db: &Shared) -> Vec<Arc<Family>> {
    let families = db.families.load();
    let mut full: Vec<Arc<Family>> = families
        .iter()
        .filter(|f| f.flush_wanted.load(Ordering::Relaxed))
        .cloned()
        .collect();
    if db.logs_too_large() {
        full.extend(
            db.oldest_log_holders(&families)
                .into_iter()
                .filter(|f| !f.flush_wanted.load(Ordering::Relaxed)),
        );
    }
    full
}

/// Waits until the family may have another immutable memtable.
pub(crate) fn wait_for_memtable_slot(
    db: &Shared,
    family: &Arc<Family>,
    no_slowdown: bool,
) -> Result<()> {
    let max = family.options.cf.max_write_buffer_number.max(2) as usize - 1;
    let blocked = || family.view.load().imm.len() >= max;
    if blocked() {
        family.flush_requested.store(true, Ordering::Relaxed);
        db.notify();
    }
    wait_until(
        db,
        no_slowdown,
        || !blocked(),
        "memtables are full and flushes do not keep up",
        "max_write_buffer_number",
    )
}

fn pressure(db: &Shared) -> Pressure {
    let mut worst = Pressure::None;
    for family in db.families.load().iter() {
        let options = &family.options.cf;
        let files = family.view.load().version.level(0).len();
        if options.disable_auto_compactions {
            continue;
        }
        if files >= options.level0_stop_writes_trigger as usize {
            return Pressure::Stop("level 0 has too many files", "level0_stop_writes_trigger");
        }
        if files >= options.level0_slowdown_writes_trigger as usize {
            worst = Pressure::Delay;
        }
    }
    worst
}

/// Holds a `low_pri` write of `bytes` back while compactions are due: RocksDB's 1 MiB a second.
pub(crate) fn give_way(db: &Shared, plan: &Plan, bytes: usize) -> Result<()> {
    const LOW_PRI_BYTES_PER_SECOND: u64 = 1 << 20;
    let families = db.families.load();
    let behind = families.iter().any(|f| {
        let options = &f.options.cf;
        let files = f.view.load().version.level(0).len();
        !options.disable_auto_compactions
            && files >= options.level0_file_num_compaction_trigger.max(1) as usize
    });
    if behind {
        hold_back(db, plan, bytes, LOW_PRI_BYTES_PER_SECOND)
    } else {
        Ok(())
    }
}

/// Spaces groups out so that together they write `delayed_write_rate` bytes a second.
fn delay(db: &Shared, plan: &Plan, bytes: usize) -> Result<()> {
    hold_back(db, plan, bytes, db.options.db.delayed_write_rate.max(1))
}

/// Sleeps as long as `bytes` take at `rate` bytes a second.
fn hold_back(db: &Shared, plan: &Plan, bytes: usize, rate: u64) -> Result<()> {
    if plan.no_slowdown {
        return Err(Error::new(ErrorKind::Incomplete, "write would be delayed"));
    }
    let micros = (bytes as u64).saturating_mul(1_000_000) / rate;
    let micros = micros.clamp(1, 1_000_000);
    db.count(Ticker::StallMicros, micros);
    std::thread::sleep(Duration::from_micros(micros));
    Ok(())
}

fn wait_while_stopped(
    db: &Shared,
    plan: &Plan,
    cause: &'static str,
    option: &'static str,
) -> Result<()> {
    wait_until(
        db,
        plan.no_slowdown,
        || !matches!(pressure(db), Pressure::Stop(..)),
        cause,
        option,
    )
}

fn wait_until(
    db: &Shared,
    no_slowdown: bool,
    ready: impl Fn() -> bool,
    cause: &str,
    option: &str,
) -> Result<()> {
    if ready() {
        return Ok(());
    }
    if no_slowdown {
        return Err(
            Error::new(ErrorKind::Incomplete, format!("write would wait: {cause}"))
                .hint(format!("raise {option}, or write with no_slowdown = false")),
        );
    }
    db.log.warn(format_args!(
        "Stalling writes: {cause}; option {option} allows more"
    ));
    let start = db.env().clock.monotonic_nanos();
    let mut state = db.state();
    while !ready() {
        state.check_writable()?;
        state = db.wait(state);
    }
    drop(state);
    let waited = db.env().clock.monotonic_nanos() - start;
    db.count(Ticker::StallMicros, waited / 1000);
    Ok(())
}
