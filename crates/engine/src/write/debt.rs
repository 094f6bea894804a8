//! Debt: the flushes and compactions that are due, as the write controller sees them.
//!
//! Every operation that changes the debt (a rotation, a flush, a compaction, a change of the set of families)
//! calls [`debt_changed`], which hands the debt of all families to the
//! [controller](crate::commit::write_controller) and reports changes of the write stall conditions.

use std::sync::Arc;

use base::sync::atomic::Ordering;

use crate::catalog::family::{Family, FamilySet};
use crate::commit::write_controller::{Change, Debt, Limits};
use crate::info::log::Event;
use crate::shared::Shared;
use options::hooks::listener::{WriteStallCause, WriteStallCondition, WriteStallInfo};
use picking::candidates::pending_compaction_bytes;

/// How full the active memtable is: 0 to 1.
pub(super) fn fill(family: &Family) -> f64 {
    let bytes = family.view.load().mem.memory_usage() as f64;
    (bytes / family.write_buffer_size() as f64).min(1.0)
}

/// Bytes written to all families so far.
pub(super) fn written(families: &FamilySet) -> u64 {
    families.iter().map(|f| f.written()).sum()
}

pub(super) fn debt_of(family: &Family) -> Debt {
    let view = family.view.load();
    let level0 = view.version.level(0);
    Debt {
        immutable: view.imm.len(),
        fill: fill(family),
        l0_files: level0.len(),
        l0_done: level0.iter().map(|f| f.compacted()).sum(),
        pending_bytes: pending_compaction_bytes(&view.version, &family.options().cf),
        l0_compacting: level0.iter().any(|f| f.is_being_compacted()),
    }
}

/// Measures the debt of all families, and reports changes of the write stall conditions in LOG and to listeners.
/// The caller must not hold the state lock.
pub(crate) fn debt_changed(db: &Shared) {
    db.writes.limit_logs(&db.catalog.families);
    let families = db.catalog.families.load();
    let now = db.env().clock.monotonic_nanos();
    let mut changes = Vec::new();
    {
        let mut controller = db.writes.stall.lock();
        let written = written(&families);
        for f in families.iter() {
            let debt = debt_of(f);
            let limits = Limits::of(&f.options().cf);
            if let Some(change) = controller.observe(now, f.id, limits, debt, written) {
                changes.push((Arc::clone(f), change, debt));
            }
        }
        controller.keep(|id| families.get(id).is_some());
        controller.tick(now, written);
        db.writes.stall.allowance.store(0, Ordering::Relaxed);
        db.writes.stall.publish(&controller);
    }
    for (family, change, debt) in &changes {
        tell(db, family, *change, debt);
    }
    db.background.wake();
}

fn tell(db: &Shared, family: &Family, change: Change, debt: &Debt) {
    let Change { prev, cur, cause } = change;
    let name = &family.name;
    let option = cause.map_or("", |c| c.option(cur));
    if let Some(cause) = cause {
        let value = base::options::OptionTable::get(&family.options().cf, option);
        db.info.log.warn(format_args!(
            "[{name}] {}; option {option} = {} allows more",
            describe(db, family, cur, cause, debt),
            value.unwrap_or_default()
        ));
    } else {
        db.info
            .log
            .info(format_args!("[{name}] writes are free again"));
    }
    db.info.log.event(
        &Event::new("write_stall")
            .text("cf_name", name)
            .text("condition", cur.name())
            .text("previous", prev.name())
            .text("cause", cause.map_or("", WriteStallCause::name))
            .text("option", option),
    );
    let info = WriteStallInfo {
        cf_name: name.clone(),
        cur,
        prev,
        cause,
        option,
    };
    db.info
        .tell_later(move |l| l.on_stall_conditions_changed(&info));
}

/// Describes a stall in RocksDB's words.
fn describe(
    db: &Shared,
    family: &Family,
    condition: WriteStallCondition,
    cause: WriteStallCause,
    debt: &Debt,
) -> String {
    let delayed = condition == WriteStallCondition::Delayed;
    let verb = if delayed { "Stalling" } else { "Stopping" };
    let what = match cause {
        WriteStallCause::MemtableLimit => format!(
            "we have {} immutable memtables (waiting for flush), max_write_buffer_number is set \
             to {}",
            debt.immutable,
            family.options().cf.max_write_buffer_number
        ),
        WriteStallCause::L0FileCountLimit => format!("we have {} level-0 files", debt.l0_files),
        WriteStallCause::PendingCompactionBytes => {
            format!(
                "of estimated pending compaction bytes {}",
                debt.pending_bytes
            )
        }
        WriteStallCause::WriteBufferManagerLimit => "memtables use too much memory".to_owned(),
    };
    let at = if delayed {
        format!(" rate {}", rate(db))
    } else {
        String::new()
    };
    format!("{verb} writes because {what}{at}")
}

/// The rate to which writers are limited now, in bytes per second; 0 if they are not held back.
pub(crate) fn rate(db: &Shared) -> u64 {
    let now = db.env().clock.monotonic_nanos();
    let written = written(&db.catalog.families.load());
    let mut controller = db.writes.stall.lock();
    controller.tick(now, written);
    db.writes.stall.publish(&controller);
    controller.felt_rate(now).map_or(0, |r| r as u64)
}
