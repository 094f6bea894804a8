//! New logs and new memtables: what happens when one of them is full.

use std::sync::Arc;

use base::sync::PoisonError;
use base::sync::atomic::Ordering;
use base::{ErrorKind, FileNumber, Result};

use super::admit;
use super::log_files::LogKind;
use super::plan::Patience;
use super::wal::{ActiveLog, Guard};
use crate::family::{Family, FamilySet};
use crate::listener::MemTableInfo;
use crate::memtable::Memtable;
use crate::outbox;
use crate::read::view::View;
use crate::shared::{MENDING, Shared, read_only};

/// A family is idle whose active memtable has less than this part of its write buffer and of which nothing is being
/// flushed. Idle families are flushed when the logs that they keep are so many times as large as what they have in memory.
const IDLE_PART: u64 = 8;
/// They are flushed when they keep logs of so many of the largest write buffers.
const IDLE_LOGS: u64 = 4;
/// Fewer bytes of logs take no time to read.
const IDLE_LOGS_MIN: u64 = 64 << 20;
/// For each family that is to be flushed they keep so many: a flush takes as long as to read these, or longer.
const IDLE_LOGS_EACH: u64 = 16 << 20;
/// So many at once, the oldest first: families that are full wait behind them.
const IDLE_MAX: usize = 8;

impl Shared {
    /// After a group was inserted: asks for a rotation of memtables that are full.
    #[inline]
    pub(crate) fn note_full_memtables(&self, families: &FamilySet) {
        for family in families.iter() {
            let view = family.view.load();
            if family.is_full(&view.mem) && !family.flush_wanted.swap(true, Ordering::Relaxed) {
                self.attention.raise();
            }
        }
        if self.logs_too_large() || self.write_buffers().should_flush() {
            self.attention.raise();
        }
    }

    /// Whether the logs together exceed `max_total_wal_size` (0: four times all write buffers).
    pub(crate) fn logs_too_large(&self) -> bool {
        let active = self.log_bytes.load(Ordering::Relaxed);
        let set = self.max_total_wal_size.load(Ordering::Relaxed);
        let families = self.families.load();
        if set == 0 && families.iter().nth(1).is_none() {
            return false; // one family: its own write buffer bounds the log
        }
        let limit = if set > 0 {
            set
        } else {
            default_total_wal_size(&families)
        };
        if active * 2 < limit && active < limit {
            let older: u64 = self.state().logs.values().sum();
            return active + older > limit;
        }
        true
    }

    /// The families with data in the oldest log that is not being flushed.
    pub(crate) fn oldest_log_holders(&self, families: &FamilySet) -> Vec<Arc<Family>> {
        let Some(oldest) = self.state().logs.keys().next().copied() else {
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

    /// Families that have little in memory and keep many logs alive by it, which no other family needs: to flush them
    /// costs little, and the next open need not read those logs. None where `max_total_wal_size` says how large logs
    /// may become, or families are flushed together.
    pub(crate) fn idle_log_holders(&self, families: &FamilySet) -> Vec<Arc<Family>> {
        let set = self.max_total_wal_size.load(Ordering::Relaxed);
        if set > 0 || self.options.db.atomic_flush {
            return Vec::new();
        }
        let mut largest = 0;
        let mut needed = None; // the oldest log that a family needs which is not idle
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
            let state = self.state();
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

    /// Starts a new log and gives each of `families` a new active memtable. Nobody is inside
    /// the order of writes.
    pub(crate) fn rotate(&self, families: &[Arc<Family>]) -> Result<()> {
        let kind = self.with_log(|log| Ok(log.kind()))?;
        let number = self.next_log(None, kind)?;
        self.log_files()?.note_sealed();
        self.install_memtables(families, number);
        self.wake(); // the pool may have little time for the next file
        Ok(())
    }

    /// Runs `f` while nobody is inside the order of writes, for rotations and changes of the set of
    /// families. What is to be told is told afterwards.
    /// Errors: also what keeps the gate closed, if this thread must not wait for it.
    pub(crate) fn alone<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<T> {
        let _courier = self.courier();
        let _closed = self.order.close(self.patience())?;
        f()
    }

    /// The same for who keeps something that whoever keeps the gate closed may wait for: `None`, and `f` was
    /// not run, if somebody does. See [`Shared::wait_for_gate`].
    pub(crate) fn alone_unless_kept<T>(&self, f: impl FnOnce() -> Result<T>) -> Result<Option<T>> {
        let _courier = self.courier();
        let _closed = match self.order.close(Patience::Job) {
            Err(e) if e.kind() == ErrorKind::Incomplete && self.patience() > Patience::Job => {
                return Ok(None);
            }
            closed => closed?,
        };
        f().map(Some)
    }

    /// Waits until nobody keeps the gate closed, as long as this thread may.
    pub(crate) fn wait_for_gate(&self) -> Result<()> {
        self.order.close(self.patience()).map(drop)
    }

    /// How long this thread may wait at the gate.
    pub(crate) fn patience(&self) -> Patience {
        match outbox::job_for(self.instance) {
            Some(_) => Patience::Job,
            None => Patience::All,
        }
    }

    /// Gives each of `families` a new active memtable, whose data is in the log `number` and later
    /// ones. Nobody is inside the order of writes.
    pub(crate) fn install_memtables(&self, families: &[Arc<Family>], number: FileNumber) {
        let all = self.families.load();
        let mut sealed = Vec::new();
        let state = self.state();
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
                // Nothing that comes is in older logs; without immutable memtables they may go.
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
            self.tell_later(move |l| l.on_memtable_sealed(&info));
        }
        admit::debt_changed(self);
    }

    /// Makes a new file the active log, if `from` still is. Returns the active log's number.
    pub(crate) fn switch_log(&self, from: FileNumber, kind: LogKind) -> Result<FileNumber> {
        self.next_log(Some(from), kind)
    }

    /// Makes a new file the active log: an empty one, whichever was active before, or none if that is
    /// not `only_from`. Returns the active log's number.
    fn next_log(&self, only_from: Option<FileNumber>, kind: LogKind) -> Result<FileNumber> {
        let _one_at_a_time = self
            .log_switch
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let files = self.log_files()?;
        loop {
            let active = self.active_log_number()?;
            if only_from.is_some_and(|from| from != active) {
                return Ok(active);
            }
            let number = self.numbers.take();
            let new = files.create(number, kind)?;
            let how = new.describe(kind);
            let mut guard = self
                .lock_when_landed()
                .inspect_err(|_| files.discard_unused(number))?;
            let log = guard.as_mut().ok_or_else(read_only)?;
            let old = log.number;
            if old != active {
                // A failed log was replaced meanwhile, by one with a higher number: what could not be
                // written to the one before is in it.
                drop(guard);
                files.discard_unused(number);
                continue;
            }
            if let Err(e) = log.switch(new) {
                self.fail("log switch", &e);
                drop(guard);
                files.discard_unused(number);
                return Err(e);
            }
            self.note_new_log(old, number);
            // An idle family may keep the old one.
            self.attention.raise();
            self.info_log.info(format_args!("log {number}: {how}"));
            return Ok(number);
        }
    }

    /// `new` is the active log, and `old` is not any more.
    pub(crate) fn note_new_log(&self, old: FileNumber, new: FileNumber) {
        let bytes = self.log_bytes.swap(0, Ordering::Relaxed);
        let mut state = self.state();
        state.logs.insert(old, bytes);
        state.logs.insert(new, 0);
    }

    /// Locks the log when nothing of it is on its way. Errors: the database has failed.
    fn lock_when_landed(&self) -> Result<Guard<'_>> {
        let mut guard = self.lock_log();
        while guard.as_ref().is_some_and(ActiveLog::is_flying) {
            guard = self.wait_for_landing(guard, Some(MENDING));
            // Whoever began the flight that failed mends the log or gives it up.
            self.state().check_not_failed()?;
        }
        Ok(guard)
    }
}

fn default_total_wal_size(families: &FamilySet) -> u64 {
    let all = families.iter().map(|f| f.write_buffers_size());
    all.fold(0, u64::saturating_add).saturating_mul(4)
}
