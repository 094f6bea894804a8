//! Flushes and compactions that somebody asks for, and what closing does.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};

use base::{Error, ErrorKind, Result};

use crate::compaction::pick;
use crate::family::Family;
use crate::memtable::Memtable;
use crate::options::FlushOptions;
use crate::shared::{ManualCompaction, Shared};
use crate::write::{admit, submit};

/// Makes the families' active memtables immutable and, with `wait`, waits for their flush.
pub(crate) fn flush(db: &Shared, families: &[Arc<Family>], options: &FlushOptions) -> Result<()> {
    db.check_writable()?;
    let begun = db.order.alone(|| begin_flush(db, families, options))?;
    if options.wait { begun.wait(db) } else { Ok(()) }
}

/// The memtables of some families, on their way to tables.
pub(crate) struct BegunFlush(Vec<(Arc<Family>, Vec<Arc<Memtable>>)>);

/// Makes the families' active memtables immutable and asks for their flush. Nobody is inside the
/// order of writes.
pub(crate) fn begin_flush(
    db: &Shared,
    families: &[Arc<Family>],
    options: &FlushOptions,
) -> Result<BegunFlush> {
    if families.iter().any(|f| !f.view.load().mem.is_empty()) {
        if !options.allow_write_stall {
            for family in families {
                admit::wait_for_memtable_slot(db, family, false)?;
            }
        }
        db.rotate(families)?;
    }
    for family in families {
        family.flush_requested.store(true, Ordering::Relaxed);
    }
    db.notify();
    // What is in memory now; later memtables are not waited for.
    let pending = families
        .iter()
        .map(|f| (Arc::clone(f), f.view.load().imm.clone()));
    Ok(BegunFlush(pending.collect()))
}

impl BegunFlush {
    /// Waits until all of it is in tables.
    pub(crate) fn wait(&self, db: &Shared) -> Result<()> {
        let mut state = db.state();
        loop {
            let left = self.0.iter().any(|(f, memtables)| {
                let view = f.view.load();
                !f.is_dropped()
                    && view
                        .imm
                        .iter()
                        .any(|m| memtables.iter().any(|p| p.id() == m.id()))
            });
            if !left {
                return Ok(());
            }
            state.check_writable()?;
            state = db.wait(state);
        }
    }
}

/// Flushes, then compacts a range of user keys and waits for it.
pub(crate) fn compact_range(
    db: &Shared,
    family: &Arc<Family>,
    begin: Option<&[u8]>,
    end: Option<&[u8]>,
) -> Result<()> {
    flush(db, std::slice::from_ref(family), &FlushOptions::default())?;
    let manual = Arc::new(ManualCompaction {
        family: family.id,
        begin: begin.map(<[u8]>::to_vec),
        end: end.map(<[u8]>::to_vec),
        result: Mutex::new(None),
    });
    let mut state = db.state();
    state.manual.push(Arc::clone(&manual));
    db.notify();
    loop {
        let done = manual
            .result
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(result) = done {
            return result;
        }
        state.check_writable()?;
        state = db.wait(state);
    }
}

/// Waits until no flush and no compaction is running or due, and what they made obsolete is gone.
pub(crate) fn wait_for_jobs(db: &Shared) -> Result<()> {
    let mut state = db.state();
    loop {
        state.check_writable()?;
        let families = db.families.load();
        let due = families.iter().any(|f| {
            let view = f.view.load();
            f.flush_due()
                || (!f.options.cf.disable_auto_compactions
                    && pick::automatic(&view.version, &f.options.cf).is_some())
        });
        if !due && state.busy == 0 {
            return Ok(());
        }
        state = db.wait(state);
    }
}

/// Before the jobs end: what is only in memory goes to a table, if it is not in the log, and the
/// log goes to the operating system.
pub(crate) fn before_close(db: &Shared) -> Result<()> {
    // Also after a failure: a resume may be waiting for the lock.
    let locks = std::mem::take(&mut *db.wal_locks.lock().unwrap_or_else(PoisonError::into_inner));
    if locks > 0 {
        db.order.open();
    }
    if db.read_only || db.state().failure.is_some() {
        return Ok(());
    }
    let result = if db.has_unlogged_writes() && !db.options.db.avoid_flush_during_shutdown {
        let all: Vec<_> = db.families.load().iter().cloned().collect();
        flush(db, &all, &FlushOptions::default())
    } else {
        Ok(())
    };
    let wanted = *db.lock_wanted() > db.durable.get();
    let log = submit::flush_wal(db, wanted);
    match result.and(log) {
        Err(e) if e.kind() == ErrorKind::ShutdownInProgress => Ok(()),
        other => other.map_err(|e: Error| e),
    }
}

/// See [`Db::lock_wal`](crate::Db::lock_wal).
pub(crate) fn lock_wal(db: &Shared) -> Result<()> {
    db.check_writable()?;
    let mut locks = db.wal_locks.lock().unwrap_or_else(PoisonError::into_inner);
    if *locks == 0 {
        db.order.close();
        submit::flush_wal(db, false).inspect_err(|_| db.order.open())?;
    }
    *locks += 1;
    Ok(())
}

/// See [`Db::unlock_wal`](crate::Db::unlock_wal).
pub(crate) fn unlock_wal(db: &Shared) -> Result<()> {
    let mut locks = db.wal_locks.lock().unwrap_or_else(PoisonError::into_inner);
    match *locks {
        0 => return Err(Error::aborted("unlock_wal: the WAL is not locked")),
        1 => db.order.open(),
        _ => {}
    }
    *locks -= 1;
    Ok(())
}
