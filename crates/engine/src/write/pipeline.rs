//! The write path, from a batch to an acknowledged, visible write. Every write takes it.
//!
//! ```text
//!   write ─ check ─ Queue::enter ─┬─ follower: sleeps, may insert its own batch, gets its result
//!                                 └─ leader:
//!        admit      room in the memtables, or wait                       admit
//!        slot       the log can take a write, if one is waited for       submit
//!        followers  the batches that wait behind, one group              group
//!        number     consecutive sequence numbers, a place in the order   order
//!        log        one append per batch, ONE write for the group        submit, wal, log
//!        hand over  the next in the queue leads
//!        device     the write lands                                      submit
//!        memtable   by the leader, or by every member at once            apply
//!        publish    readers see the group, after all before it           order
//! ```
//!
//! Which of the steps a write takes is data: see [`Plan`]. There are two queues, so that a writer that
//! does not wait for the device never queues behind one that does. The two meet at the log, which is
//! locked only for the time of an append, and in the order in which writes become visible.
//!
//! While a synced group is on its way to the device, the next one gathers; while it is inserted, the next
//! one is on its way. With `enable_pipelined_write`, a group that does not wait for the device hands over
//! the lead once it is logged; with `two_write_queues`, once it is inserted; otherwise, once it is
//! visible.
//!
//! Invariants
//! - Sequence numbers are assigned and logged in one order, under the log's lock, and published in the
//!   same order.
//! - Behind the gate no write fails for a reason that could be known before it: families do not change
//!   while a group is inside.
//! - A writer that panics gives back what it holds: the lead, its place in the order, its followers. If
//!   its group may be written in part, the database refuses writes.
//! - No write is visible before it is in the log as far as its plan says.
//! - A failed log write is indeterminate: the records may or may not come back after a restart.
//!   Its sequence numbers are never used again.

use base::perf::{self, PerfCounter, PerfLevel};
use base::stats::{HistogramKind, Ticker};
use base::sync::PoisonError;
use base::sync::atomic::Ordering;
use base::{Error, Result};

use super::admit::{admit, at_the_gate, check_patience, give_way};
use super::apply::{self, Inserter, NewWrites};
use super::submit::{self, Flying, Logged};
use crate::batch::WriteBatch;
use crate::catalog::family::FamilySet;
use crate::commit::group::{Group, Lead, Parallel, Queue, Request, Turn};
use crate::commit::order::Ticket;
use crate::commit::plan::{Patience, Plan};
use crate::hooks::outbox;
use crate::options::WriteOptions;
use crate::shared::Shared;

/// In groups of at least this many records, each member inserts its own batch. With fewer records, the
/// leader is done before the followers would be awake.
const PARALLEL_RECORDS: u64 = 64;

/// Writes a batch: when it returns, the batch is visible and as durable as `options` ask.
pub(crate) fn write(db: &Shared, options: &WriteOptions, batch: WriteBatch) -> Result<()> {
    let plan = Plan::new(options, db.options.db.manual_wal_flush);
    write_planned(db, options, plan, batch).map(|_| ())
}

/// Writes a batch as `plan` says; returns its last sequence number.
pub(crate) fn write_planned(
    db: &Shared,
    options: &WriteOptions,
    mut plan: Plan,
    batch: WriteBatch,
) -> Result<u64> {
    if db.read_only {
        db.check_writable()?;
    }
    if options.sync && options.disable_wal {
        return Err(
            Error::invalid_argument("WriteOptions: sync = true needs the log")
                .hint("set disable_wal = false, or sync = false"),
        );
    }
    let _courier = db.courier();
    let families = db.catalog.families.load();
    apply::check(&batch, &families)?;
    let checked = families.epoch();
    drop(families);
    if outbox::job_for(db.instance).is_some() {
        plan.patience = plan.patience.min(Patience::Job);
    }
    if db.options.db.two_write_queues && batch.count() == 0 && plan.log.is_some() {
        plan = plan.log_only();
    }
    if options.low_pri {
        give_way(db, &plan, batch.data().len())?;
    }
    check_patience(db, &plan)?;
    let queue = if plan.waits_for_device() {
        &db.writes.synced
    } else {
        &db.writes.others
    };
    let insert = |b: &WriteBatch| {
        let families = &db.catalog.families.load();
        apply::insert(b, &NewWrites { families, db })
    };
    let began = db.timer();
    db.record(HistogramKind::BytesPerWrite, batch.data().len() as u64);
    let clock = &*db.env().clock;
    let whole = perf::start(clock);
    let parts = parts_of_a_write();
    let request = Request {
        batch,
        plan,
        checked,
    };
    let turn = queue.enter(request, insert);
    perf::stop(PerfCounter::WriteThreadWaitNanos, clock, whole);
    let written = match turn {
        Turn::Done(result) => {
            db.count(Ticker::WriteDoneByOther, 1);
            result
        }
        Turn::Lead(request) => lead(db, queue, request),
    };
    db.timed(HistogramKind::DbWrite, began);
    if let Some(whole) = whole {
        let taken = clock.monotonic_nanos().saturating_sub(whole);
        let rest = taken.saturating_sub(parts_of_a_write() - parts);
        perf::count(PerfCounter::WritePreAndPostProcessTime, rest);
    }
    written
}

/// Nanoseconds that the perf counters have for the parts of this thread's writes; 0 if times are not
/// counted.
fn parts_of_a_write() -> u64 {
    if perf::level() <= PerfLevel::EnableCount {
        return 0;
    }
    [
        PerfCounter::WriteThreadWaitNanos,
        PerfCounter::WriteDelayTime,
        PerfCounter::WriteWalTime,
        PerfCounter::WriteMemtableTime,
    ]
    .map(perf::get)
    .iter()
    .sum()
}

fn lead(db: &Shared, queue: &Queue, request: Request) -> Result<u64> {
    let mut lead = queue.lead();
    let plan = request.plan;
    let clock = &*db.env().clock;
    let delayed = perf::start(clock);
    admit(db, &lead, &plan, request.batch.data().len())?;
    perf::stop(PerfCounter::WriteDelayTime, clock, delayed);
    if plan.waits_for_device() {
        submit::wait_for_slot(db)?; // followers gather meanwhile
    }
    let _inside = at_the_gate(&lead, plan.patience, |p| db.writes.order.enter(p))?;
    // From here on families are neither made nor dropped.
    let families = db.catalog.families.load();
    check_again(&request, &families)?;
    let max_bytes = db.options.db.max_write_batch_group_size_bytes as usize;
    let followers = queue.followers(&request, max_bytes);
    let mut group = Group {
        lead: request,
        followers,
    };
    group.refuse(|follower| check_again(follower, &families));
    drop(families);
    let result = write_group(db, &mut lead, &mut group);
    db.count(Ticker::WriteDoneBySelf, 1);
    lead.hand_over();
    group.finish(&result);
    result.map(|()| group.lead.batch.last_sequence())
}

/// Refuses a batch if one of its families was dropped since it was checked.
#[inline]
fn check_again(request: &Request, families: &FamilySet) -> Result<()> {
    if request.checked == families.epoch() {
        return Ok(());
    }
    apply::check_families(&request.batch, families)
}

/// A group that has its place in the order and is not over yet. A panic leaves it half done, in the log
/// or in the memtables, so that the database must refuse writes.
struct Halfway<'a> {
    db: &'a Shared,
    ticket: Ticket<'a>,
}

impl Drop for Halfway<'_> {
    fn drop(&mut self) {
        if !self.ticket.is_over() {
            let error = Error::aborted("a write panicked: it may be there in part");
            self.db.fail("write", &error);
        }
    }
}

fn write_group(db: &Shared, lead: &mut Lead<'_>, group: &mut Group) -> Result<()> {
    let plan = group.lead.plan;
    let clock = &*db.env().clock;
    let logging = perf::start(clock);
    let Logged { ticket, flight } = if let Some(step) = plan.log {
        submit::log_group(db, lead, step, group)?
    } else {
        db.writes.unlogged.store(true, Ordering::Release);
        db.count(Ticker::BytesWritten, group.bytes());
        let ticket = db.writes.order.begin(group.count());
        group.number(ticket.first);
        Logged {
            ticket,
            flight: None,
        }
    };
    let mut halfway = Halfway { db, ticket };
    if flight.is_some() || db.options.db.enable_pipelined_write || !plan.memtable {
        lead.hand_over();
    }
    let landed = flight.map_or(Ok(()), Flying::settle);
    if plan.log.is_some() {
        perf::stop(PerfCounter::WriteWalTime, clock, logging);
    }
    let inserting = perf::start(clock);
    let written = landed.and_then(|()| insert_group(db, &halfway.ticket, group));
    perf::stop(PerfCounter::WriteMemtableTime, clock, inserting);
    halfway.ticket.end(written.is_ok());
    written?;
    db.count(Ticker::NumberKeysWritten, group.count());
    if plan.memtable && !plan.detached {
        if db.options.db.two_write_queues {
            lead.hand_over(); // to writers that have nothing to wait for, perhaps
        }
        halfway.ticket.wait();
    }
    Ok(())
}

fn insert_group(db: &Shared, ticket: &Ticket<'_>, group: &Group) -> Result<()> {
    if !group.lead.plan.memtable {
        return Ok(());
    }
    let families = db.catalog.families.load();
    let concurrent = db.options.db.allow_concurrent_memtable_write;
    let alone = (!concurrent).then(|| {
        db.writes
            .memtable_writer
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    });
    let target = NewWrites {
        families: &families,
        db,
    };
    let records = ticket.last + 1 - ticket.first;
    let lead = &group.lead.batch;
    let inserted = if concurrent && !group.followers.is_empty() && records >= PARALLEL_RECORDS {
        Parallel::run(&group.followers, || apply::insert(lead, &target))
    } else {
        let mut inserter = Inserter::new(&target, records <= 1);
        let add = |inserter: &mut Inserter<'_, _>| {
            inserter.add(lead)?;
            group
                .followers
                .iter()
                .try_for_each(|f| f.try_batch(|b| inserter.add(b)))
        };
        add(&mut inserter).map(|()| inserter.finish())
    };
    drop(alone);
    inserted.inspect_err(|e| db.fail("memtable", e))?;
    db.note_full_memtables(&families);
    Ok(())
}
