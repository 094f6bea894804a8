//! The write path, from a batch to an acknowledged, visible write. Every write takes it.
//!
//! ```text
//!   write ─ check ─ Queue::enter ─┬─ follower: sleeps, may insert its own batch, gets its result
//!                                 └─ leader:
//!        admit      room in the memtables, or wait                       admit
//!        followers  the batches that wait behind, one group              group
//!        number     consecutive sequence numbers                         here
//!        log        one append per batch, ONE write for the group        wal, log
//!        memtable   by the leader, or by every member at once            apply
//!        publish    readers see the group; wake everybody                here
//!        leave      the next in the queue leads                          group
//! ```
//!
//! Which of the steps a write takes is data: see [`Plan`].
//!
//! Invariants
//! - Sequence numbers are given, logged and published in one order: the leader's.
//! - Nothing is visible before it is in the log as far as its plan says.
//! - A failed log write is indeterminate: the records may or may not come back after a restart.
//!   Its sequence numbers are never used again, and the database refuses writes from then on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::stats::Ticker;
use base::{Error, Result};

use super::admit::{admit, give_way};
use super::apply;
use super::group::{Follower, Parallel, Request, Turn};
use super::plan::{LogStep, Plan};
use crate::batch::WriteBatch;
use crate::options::WriteOptions;
use crate::shared::Shared;

/// From this many records on, the members of a group insert their batches themselves: below, the
/// leader is done before they would be awake.
const PARALLEL_RECORDS: u32 = 64;

/// Writes a batch: when it returns, the batch is visible and as durable as `options` ask.
pub(crate) fn write(db: &Shared, options: &WriteOptions, batch: WriteBatch) -> Result<()> {
    if db.read_only {
        return db.check_writable();
    }
    if options.sync && options.disable_wal {
        return Err(
            Error::invalid_argument("WriteOptions: sync = true needs the log")
                .hint("set disable_wal = false, or sync = false"),
        );
    }
    let families = db.families.load();
    apply::check(&batch, &families)?;
    drop(families);
    let plan = Plan::new(options, db.options.db.manual_wal_flush);
    if options.low_pri {
        give_way(db, &plan, batch.data().len())?;
    }
    let insert = |b: &WriteBatch| apply::insert(b, &**db.families.load());
    match db.queue.enter(Request { batch, plan }, insert) {
        Turn::Done(result) => {
            db.count(Ticker::WriteDoneByOther, 1);
            result
        }
        Turn::Lead(mut request) => {
            let result = lead(db, &mut request);
            db.queue.leave();
            result
        }
    }
}

/// Runs `f` while no group is being written, for rotations and log switches.
pub(crate) fn exclusively<T>(db: &Shared, f: impl FnOnce() -> Result<T>) -> Result<T> {
    let request = Request {
        batch: WriteBatch::new(),
        plan: Plan::exclusive(),
    };
    match db.queue.enter(request, |_| Ok(())) {
        Turn::Lead(_) => {
            let result = f();
            db.queue.leave();
            result
        }
        Turn::Done(_) => Err(Error::aborted("a rotation was carried by another writer")),
    }
}

fn lead(db: &Shared, request: &mut Request) -> Result<()> {
    admit(db, &request.plan, request.batch.data().len())?;
    let max_bytes = db.options.db.max_write_batch_group_size_bytes as usize;
    let followers = db.queue.followers(request, max_bytes);
    let result = write_group(db, request, &followers);
    db.count(Ticker::WriteDoneBySelf, 1);
    for f in &followers {
        f.finish(result.as_ref().copied().map_err(Error::duplicate));
    }
    result
}

fn write_group(db: &Shared, lead: &mut Request, followers: &[Arc<Follower>]) -> Result<()> {
    let first = db.last_allocated.load(Ordering::Relaxed) + 1;
    let mut next = first;
    let mut number = |batch: &mut WriteBatch| {
        batch.set_sequence(next);
        next += u64::from(batch.count());
    };
    number(&mut lead.batch);
    for f in followers {
        f.with_batch(&mut number);
    }
    // From here on these numbers are used, whatever happens.
    db.last_allocated.store(next - 1, Ordering::Relaxed);

    match lead.plan.log {
        Some(step) => {
            log_group(db, step, lead, followers).inspect_err(|e| db.fail("log write", e))?;
        }
        None => db.unlogged.store(true, Ordering::Release),
    }
    if lead.plan.memtable {
        let records = (next - first) as u32;
        insert_group(db, records, lead, followers).inspect_err(|e| db.fail("memtable", e))?;
    }
    db.count(Ticker::NumberKeysWritten, next - first);
    publish(db, next - 1);
    Ok(())
}

/// One append per batch, then one write and, if asked for, one sync for all of them.
fn log_group(
    db: &Shared,
    step: LogStep,
    lead: &Request,
    followers: &[Arc<Follower>],
) -> Result<()> {
    let files = db.log_files()?;
    let size = |f: &Arc<Follower>| f.with_batch(|b| b.data().len() as u64).unwrap_or(0);
    let bytes = lead.batch.data().len() as u64 + followers.iter().map(size).sum::<u64>();
    let next = db.with_log(|log| Ok(log.successor(files, step, bytes, || db.notify())))?;
    if let Some(kind) = next {
        db.switch_log(kind)?;
    }
    db.with_log(|log| {
        // The fence goes with the last batch of the group.
        let fence = step == LogStep::Sync;
        log.append(lead.batch.data(), fence && followers.is_empty())?;
        for (i, f) in followers.iter().enumerate() {
            let fence = fence && i + 1 == followers.len();
            f.with_batch(|b| log.append(b.data(), fence))
                .unwrap_or(Ok(()))?;
        }
        match step {
            LogStep::Append => {}
            LogStep::Submit => log.submit(files)?,
            LogStep::Sync => {
                log.sync()?;
                db.count(Ticker::WalFileSynced, 1);
            }
        }
        Ok(())
    })?;
    db.count(Ticker::WalFileBytes, bytes);
    db.count(Ticker::BytesWritten, bytes);
    db.count(Ticker::WriteWithWal, 1);
    db.log_bytes.fetch_add(bytes, Ordering::Relaxed);
    Ok(())
}

fn insert_group(
    db: &Shared,
    records: u32,
    lead: &Request,
    followers: &[Arc<Follower>],
) -> Result<()> {
    let families = db.families.load();
    let parallel = db.options.db.allow_concurrent_memtable_write
        && !followers.is_empty()
        && records >= PARALLEL_RECORDS;
    if parallel {
        Parallel::run(followers, || apply::insert(&lead.batch, &**families))?;
    } else {
        apply::insert(&lead.batch, &**families)?;
        for f in followers {
            f.with_batch(|b| apply::insert(b, &**families))
                .unwrap_or(Ok(()))?;
        }
    }
    db.note_full_memtables(&families);
    Ok(())
}

/// Makes everything up to `last` visible. The leader alone publishes, in order.
fn publish(db: &Shared, last: u64) {
    db.last_sequence.store(last, Ordering::Release);
}

/// Hands the log's process buffer to the operating system, and makes it durable if `sync`.
pub(crate) fn flush_wal(db: &Shared, sync: bool) -> Result<()> {
    db.check_writable()?;
    let files = db.log_files()?;
    let result = db.with_log(|log| if sync { log.sync() } else { log.submit(files) });
    result.inspect_err(|e| db.fail("flush_wal", e))
}
