//! Rotation: new memtables and new logs, when the old ones are full or keep too many logs alive.

use std::sync::Arc;

use base::sync::atomic::Ordering;
use base::{FileNumber, Result};
use memtable::Memtable;

use super::admit;
use crate::background::Background;
use crate::catalog::family::{Family, FamilySet};
use crate::catalog::view::View;
use crate::shared::Shared;
use crate::wal::active::{ActiveLog, Guard};
use crate::wal::log_files::LogKind;
use crate::wal::{MENDING, Wal, read_only};
use options::hooks::listener::MemTableInfo;

/// A family is idle if its active memtable has less than 1/`IDLE_PART` of its write buffer and none of its
/// memtables is being flushed. Idle families are flushed only if the logs that they keep are `IDLE_PART` times
/// as large as their memtables.
const IDLE_PART: u64 = 8;
/// Idle families are flushed only if the logs that they keep are this many times as large as the largest
/// write buffer.
const IDLE_LOGS: u64 = 4;
/// Idle families are flushed only if they keep at least this many bytes of logs: recovery reads fewer bytes
/// quickly.
const IDLE_LOGS_MIN: u64 = 64 << 20;
/// For each family to be flushed, idle families must keep this many bytes of logs: a flush takes at least
/// as long as reading them.
const IDLE_LOGS_EACH: u64 = 16 << 20;
/// At most this many idle families are flushed at once, beginning with the oldest logs: full families
/// must wait for these flushes.
const IDLE_MAX: usize = 8;

/// Called after a group was inserted: requests a rotation of memtables that are full, and a closer look if the
/// logs or all memtables together are too large.
#[inline]
pub(crate) fn note_full_memtables(db: &Shared, families: &FamilySet) {
    for family in families.iter() {
        let view = family.view.load();
        if family.is_full(&view.mem) && !family.flush_wanted.swap(true, Ordering::Relaxed) {
            db.writes.attention.raise();
        }
    }
    if logs_too_large(db) || db.writes.buffers().should_flush() {
        db.writes.attention.raise();
    }
}

/// Whether the logs together exceed `max_total_wal_size`. 0 means four times all write buffers, or no limit if
/// there is only one family.
pub(crate) fn logs_too_large(db: &Shared) -> bool {
    let active = db.wal.bytes();
    let set = db.writes.max_total_wal_size.load(Ordering::Relaxed);
    let families = db.catalog.families.load();
    if set == 0 && families.iter().nth(1).is_none() {
        return false; // one family: its own write buffer bounds the log
    }
    let limit = if set > 0 {
        set
    } else {
        default_total_wal_size(&families)
    };
    if active * 2 < limit && active < limit {
        let older: u64 = db.background.state().logs.values().sum();
        return active + older > limit;
    }
    true
}

/// The families that keep the oldest log alive, without those whose oldest memtable is being flushed.
pub(super) fn oldest_log_holders(
    background: &Background,
    families: &FamilySet,
) -> Vec<Arc<Family>> {
    let Some(oldest) = background.state().logs.keys().next().copied() else {
        return Vec::new();
    };
    families
        .iter()
        .filter(|f| {
            let view = f.view.load();
            let keeps = |mem: &Memtable| !mem.is_empty() && mem.log_number() <= oldest;
            !f.is_being_flushed(&view) && keeps(view.imm.last().unwrap_or(&view.mem))
        })
        .cloned()
        .collect()
}

/// Families that have little data in memory, but keep many logs alive that no other family needs. Flushing
/// them costs little, and the next open need not read those logs.
pub(super) fn idle_log_holders(background: &Background, families: &FamilySet) -> Vec<Arc<Family>> {
    let mut largest = 0;
    let mut needed = None; // the oldest log needed by a family that is not idle
    let mut idle = Vec::new();
    for family in families.iter() {
        let view = family.view.load();
        let oldest = view.imm.last().unwrap_or(&view.mem);
        let (number, active) = (oldest.log_number(), view.mem.data_bytes());
        largest = largest.max(family.write_buffer_size());
        let is_idle = active < family.write_buffer_size() / IDLE_PART;
        if is_idle && !family.is_being_flushed(&view) {
            if !oldest.is_empty() {
                let sealed: u64 = view.imm.iter().map(|m| m.data_bytes()).sum();
                idle.push((number, active + sealed, family));
            }
        } else {
            needed = Some(needed.map_or(number, |needed: FileNumber| needed.min(number)));
        }
    }
    let kept: u64 = {
        let state = background.state();
        let active = state.logs.keys().next_back().copied();
        let needed = needed.or(active).unwrap_or_default();
        idle.retain(|(number, ..)| *number < needed);
        let oldest = idle.iter().map(|(number, ..)| *number).min();
        let Some(oldest) = oldest else {
            return Vec::new();
        };
        state
            .logs
            .range(oldest..needed)
            .map(|(_, bytes)| bytes)
            .sum()
    };
    let in_memory: u64 = idle.iter().map(|(_, bytes, _)| bytes).sum();
    let worth = [
        IDLE_LOGS_MIN,
        largest.saturating_mul(IDLE_LOGS),
        in_memory.saturating_mul(IDLE_PART),
        IDLE_LOGS_EACH * idle.len() as u64,
    ];
    if worth.iter().any(|worth| kept < *worth) {
        return Vec::new();
    }
    idle.sort_unstable_by_key(|(number, ..)| *number);
    let first = idle.into_iter().take(IDLE_MAX);
    first.map(|(_, _, family)| Arc::clone(family)).collect()
}

/// Starts a new log and gives each of `families` a new active memtable. The gate of the order of
/// writes is closed.
pub(crate) fn rotate(db: &Shared, families: &[Arc<Family>]) -> Result<()> {
    let kind = db.wal.with(|log| Ok(log.kind()))?;
    let number = next_log(db, None, kind)?;
    db.wal.log_files()?.note_sealed();
    install_memtables(db, families, number);
    db.background.wake(); // the pool may have little time to fill the next file
    Ok(())
}

/// Gives each of `families` a new active memtable, whose data is in the log `number` and later ones.
/// The gate of the order of writes is closed.
pub(super) fn install_memtables(db: &Shared, families: &[Arc<Family>], number: FileNumber) {
    let all = db.catalog.families.load();
    let mut sealed = Vec::new();
    let state = db.background.state();
    for family in all.iter() {
        let view = family.view.load_full();
        let rotate = families.iter().any(|f| f.id == family.id) && !view.mem.is_empty();
        if rotate {
            family.seal(&view.mem, number);
            sealed.push(MemTableInfo {
                cf_name: family.name.clone(),
                num_entries: view.mem.len() as u64,
                num_deletes: view.mem.num_deletes(),
            });
            family
                .view
                .store(Arc::new(view.rotated(family.new_memtable(number))));
        } else if view.mem.is_empty() {
            // Later writes are in no older log. Without immutable memtables, the family needs no
            // older log.
            family.view.store(Arc::new(View {
                mem: family.new_memtable(number),
                imm: view.imm.clone(),
                version: Arc::clone(&view.version),
            }));
            if view.imm.is_empty() {
                family.skip_logs(number);
            }
        }
        if rotate || view.mem.is_empty() {
            family.flush_wanted.store(false, Ordering::Relaxed);
        }
    }
    drop(state);
    for info in sealed {
        db.info.tell_later(move |l| l.on_memtable_sealed(&info));
    }
    admit::debt_changed(db);
}

/// Makes a new file the active log, if `from` is still the active log. Returns the number of the active log.
pub(super) fn switch_log(db: &Shared, from: FileNumber, kind: LogKind) -> Result<FileNumber> {
    next_log(db, Some(from), kind)
}

/// Makes a new, empty file the active log; with `only_from`, only if that is still the active log.
/// Returns the active log's number.
fn next_log(db: &Shared, only_from: Option<FileNumber>, kind: LogKind) -> Result<FileNumber> {
    let _one_at_a_time = db.wal.lock_switch();
    let files = db.wal.log_files()?;
    loop {
        let active = db.wal.number()?;
        if only_from.is_some_and(|from| from != active) {
            return Ok(active);
        }
        let number = db.catalog.numbers.take();
        let new = files.create(number, kind)?;
        let how = new.describe(kind);
        let mut guard = lock_when_landed(&db.background, &db.wal)
            .inspect_err(|_| files.discard_unused(number))?;
        let log = guard.as_mut().ok_or_else(read_only)?;
        let old = log.number;
        if old != active {
            // A failed log was replaced meanwhile by a log with a higher number. That log has the records
            // that could not be written to the failed log.
            drop(guard);
            files.discard_unused(number);
            continue;
        }
        if let Err(e) = log.switch(new) {
            db.fail("log switch", &e);
            drop(guard);
            files.discard_unused(number);
            return Err(e);
        }
        note_new_log(&db.background, &db.wal, old, number);
        // An idle family may keep the old log alive.
        db.writes.attention.raise();
        db.info.log.info(format_args!("log {number}: {how}"));
        return Ok(number);
    }
}

/// Takes note that `new` is now the active log instead of `old`.
pub(super) fn note_new_log(background: &Background, wal: &Wal, old: FileNumber, new: FileNumber) {
    let bytes = wal.begin_bytes();
    let mut state = background.state();
    state.logs.insert(old, bytes);
    state.logs.insert(new, 0);
}

/// Locks the log once none of its flights is under way. Errors: the database has failed.
fn lock_when_landed<'a>(background: &Background, wal: &'a Wal) -> Result<Guard<'a>> {
    let mut guard = wal.lock();
    while guard.as_ref().is_some_and(ActiveLog::is_flying) {
        guard = wal.wait_for_landing(guard, Some(MENDING));
        // If a flight failed, the thread that began it mends the log or makes the database fail.
        background.state().check_not_failed()?;
    }
    Ok(guard)
}

fn default_total_wal_size(families: &FamilySet) -> u64 {
    let all = families.iter().map(|f| f.write_buffers_size());
    all.fold(0, u64::saturating_add).saturating_mul(4)
}
