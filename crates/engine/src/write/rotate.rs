//! Rotation: new memtables and new logs, when the old ones are full or keep too many logs alive.
//!
//! A thread that fills a memtable or meets an error raises [`Attention`]. The next leader then looks closer: it
//! rotates what is due.

use std::cmp::Reverse;
use std::sync::Arc;

use base::sync::atomic::Ordering;
use base::{FileNumber, Result};
use memtable::Memtable;

use super::debt;
use crate::catalog::family::{Family, FamilySet};
use crate::commit::Writes;
use crate::commit::order::Closed;
use crate::commit::plan::Patience;
use crate::commit::stall::Attention;
use crate::shared::Shared;
use crate::shared::gate::patience;
use crate::wal::active::ActiveLog;
use crate::wal::log_files::LogKind;
use crate::wal::{Wal, read_only};
use options::hooks::listener::{FlushReason, MemTableInfo};

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

/// Rotates the memtables that are to become immutable. Errors: the database refuses writes; the new log cannot be
/// created; the gate is closed and this thread must not wait.
#[cold]
pub(crate) fn look_closer(db: &Shared) -> Result<()> {
    look_closer_by(db, || db.writes.order.close(patience(&db.background)))
}

/// [`look_closer`] for a thread that does not write. If the gate is kept closed, maybe by this thread,
/// the work is left to the next writer.
pub(crate) fn look_closer_soon(db: &Shared) {
    drop(look_closer_by(db, || db.writes.order.close(Patience::Job)));
}

/// [`look_closer`], with the gate closed by `close`.
#[cold]
pub(super) fn look_closer_by<'a>(
    db: &'a Shared,
    close: impl FnOnce() -> Result<Closed<'a>>,
) -> Result<()> {
    db.writes.attention.clear();
    // A rotation that fails now is still due: the next group must try it again.
    let mut due = StillDue(Some(&db.writes.attention));
    rotate_what_is_due(db, close)?;
    due.0 = None;
    Ok(())
}

/// When dropped, raises the attention of the next group, unless it is empty.
struct StillDue<'a>(Option<&'a Attention>);

impl Drop for StillDue<'_> {
    fn drop(&mut self) {
        if let Some(attention) = self.0 {
            attention.raise();
        }
    }
}

fn rotate_what_is_due<'a>(
    db: &'a Shared,
    close: impl FnOnce() -> Result<Closed<'a>>,
) -> Result<()> {
    db.check_writable()?;
    if to_rotate(db).is_empty() {
        return Ok(());
    }
    let _courier = db.courier();
    let _closed = close()?;
    // The leader of the other queue may have rotated the memtables meanwhile.
    let chosen = to_rotate(db);
    if chosen.is_empty() {
        return Ok(());
    }
    for (family, reason) in &chosen {
        family.set_flush_reason(*reason);
    }
    let (to_seal, sealed): (Vec<_>, Vec<_>) = chosen.iter().partition(|(family, reason)| {
        *reason == FlushReason::WriteBufferFull || !family.view.load().mem.is_empty()
    });
    // Families whose active memtable is empty need no new log.
    for (family, _) in sealed {
        family.want_flush();
    }
    let to_seal: Vec<_> = to_seal.iter().map(|(f, _)| Arc::clone(f)).collect();
    let rotated = if to_seal.is_empty() {
        Ok(())
    } else {
        rotate(db, &to_seal).inspect_err(|_| db.background.wake())
    };
    if let Err(e) = rotated {
        let must = |reason: &FlushReason| {
            *reason != FlushReason::WalFull || logs_too_large(&db.wal, &db.writes)
        };
        if chosen.iter().any(|(_, reason)| must(reason)) {
            return Err(e);
        }
        // Only idle families were chosen: there is still room for writes, and the next new log raises the
        // attention again.
        db.info
            .log
            .warn(format_args!("idle families keep their logs: {e}"));
        return db.check_writable();
    }
    for (family, reason) in &chosen {
        if *reason != FlushReason::WriteBufferFull {
            family.want_flush();
        }
    }
    db.background.wake();
    Ok(())
}

/// The families whose active memtable is to become immutable, and the reason. The memtable is full; or it
/// keeps old logs alive while the logs together exceed `max_total_wal_size`; or it belongs to an idle family
/// that keeps many logs alive for little data; or it is the oldest memtable while all memtables together are
/// too large. With `atomic_flush`, all other families with data are included.
fn to_rotate(db: &Shared) -> Vec<(Arc<Family>, FlushReason)> {
    let families = db.catalog.families.load();
    let mut chosen: Vec<(Arc<Family>, FlushReason)> = Vec::new();
    let mut choose = |family: &Arc<Family>, reason| {
        if !chosen.iter().any(|(f, _)| f.id == family.id) {
            chosen.push((Arc::clone(family), reason));
        }
    };
    for f in families.iter() {
        if f.flush_wanted.load(Ordering::Relaxed) {
            choose(f, FlushReason::WriteBufferFull);
        }
    }
    if logs_too_large(&db.wal, &db.writes) {
        for f in oldest_log_holders(&db.wal, &families) {
            choose(&f, FlushReason::WalFull);
        }
    }
    let limited = db.writes.max_total_wal_size.load(Ordering::Relaxed) > 0;
    if !limited && !db.options.db.atomic_flush {
        for f in idle_log_holders(&db.wal, &families) {
            choose(&f, FlushReason::WalFull);
        }
    }
    if db.writes.buffers().should_flush()
        && let Some(f) = oldest_memtable(&families)
    {
        choose(f, FlushReason::WriteBufferManager);
    }
    if let Some((_, reason)) = chosen.first()
        && db.options.db.atomic_flush
    {
        let reason = *reason;
        for f in families.iter() {
            if !f.view.load().mem.is_empty() && !chosen.iter().any(|(c, _)| c.id == f.id) {
                chosen.push((Arc::clone(f), reason));
            }
        }
    }
    chosen
}

/// The family with the oldest memtable; of several such families, the family with the most data. Families that
/// are due for a flush anyway do not count.
fn oldest_memtable(families: &FamilySet) -> Option<&Arc<Family>> {
    let idle = |f: &&Arc<Family>| {
        let view = f.view.load();
        let has_some = !(view.imm.is_empty() && view.mem.is_empty());
        has_some && !f.is_being_flushed(&view)
    };
    families.iter().filter(idle).min_by_key(|f| {
        let view = f.view.load();
        let oldest = view.imm.last().unwrap_or(&view.mem);
        (oldest.log_number(), Reverse(view.mem.data_bytes()))
    })
}

/// Requests a rotation of the memtables that are full, and a closer look if the logs or all memtables together are too
/// large. Called after options have changed; writers look after what they have filled themselves.
pub(crate) fn note_full_memtables(db: &Shared) {
    for family in db.catalog.families.load().iter() {
        if family.wants_rotation(&family.view.load().mem) {
            db.writes.attention.raise();
        }
    }
    if logs_too_large(&db.wal, &db.writes) || db.writes.buffers().should_flush() {
        db.writes.attention.raise();
    }
}

/// Whether the logs together exceed `max_total_wal_size`, or its default.
pub(crate) fn logs_too_large(wal: &Wal, writes: &Writes) -> bool {
    wal.logs.exceed(writes.log_limit())
}

/// The families that keep the oldest log alive, without those whose oldest memtable is being flushed.
fn oldest_log_holders(wal: &Wal, families: &FamilySet) -> Vec<Arc<Family>> {
    let Some(oldest) = wal.logs.oldest() else {
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
fn idle_log_holders(wal: &Wal, families: &FamilySet) -> Vec<Arc<Family>> {
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
    let needed = needed.or_else(|| wal.logs.newest()).unwrap_or_default();
    idle.retain(|(number, ..)| *number < needed);
    let Some(oldest) = idle.iter().map(|(number, ..)| *number).min() else {
        return Vec::new();
    };
    let kept = wal.logs.bytes_of(oldest..needed).unwrap_or(0);
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
    db.background.want_logs(); // there may be little time to fill the next file
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
            view.mem.begin_with_log(number);
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
    debt::debt_changed(db);
}

/// Makes a new file the active log, if `from` is still the active log. Returns the number of the active log.
pub(super) fn switch_log(db: &Shared, from: FileNumber, kind: LogKind) -> Result<FileNumber> {
    next_log(db, Some(from), kind)
}

/// Makes a new, empty file the active log; with `only_from`, only if that is still the active log.
/// Returns the active log's number.
fn next_log(db: &Shared, only_from: Option<FileNumber>, kind: LogKind) -> Result<FileNumber> {
    let _one_at_a_time = db.wal.lock_switch();
    loop {
        let active = db.wal.number()?;
        if only_from.is_some_and(|from| from != active) {
            return Ok(active);
        }
        let mut next = db.wal.create_next(&db.catalog.numbers, kind)?;
        // If a flight failed, the thread that began it mends the log or makes the database fail.
        let landed = |log: &ActiveLog| !log.is_flying();
        let guard = next.lock(landed, || db.background.state().check_not_failed())?;
        let Some(mut guard) = guard else { continue };
        let log = guard.as_mut().ok_or_else(read_only)?;
        if log.number != active {
            continue; // a failed log was replaced meanwhile
        }
        let number = next
            .begin(log, ActiveLog::switch)
            .inspect_err(|e| db.fail("log switch", e))?;
        drop(guard);
        // An idle family may keep the old log alive.
        db.writes.attention.raise();
        db.info.log.info(format_args!("log {number}: {}", next.how));
        return Ok(number);
    }
}
