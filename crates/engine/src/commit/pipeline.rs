//! The steps of a commit, from a batch to an acknowledged, visible write. Every write takes them.
//!
//! ```text
//!   commit ─ Queue::enter ─┬─ follower: sleeps, may insert its own batch, gets its result
//!                          └─ leader:
//!        admit      room in the memtables, or wait                       CommitEnv::admit
//!        slot       for a synced write: the log can take a write         CommitEnv::wait_for_slot
//!        followers  the batches that wait in the queue join the group    queue
//!        number     consecutive sequence numbers, a place in the order   order
//!        log        one append per batch, ONE write for the group        CommitEnv::log
//!        hand over  the next in the queue leads
//!        device     the write lands                                      InFlight::settle
//!        memtable   by the leader, or by every member at once            CommitEnv::insert…
//!        publish    readers see the group, after all before it           order
//! ```
//!
//! This module defines the order of the steps, the thread that takes each step, and the handling of failures.
//! The environment defines the work of each step. So the pipeline can be tested by itself, with an environment
//! that only records the steps.
//!
//! Which of the steps a write takes is data: see [`Plan`](super::plan::Plan). There are two queues, so that a
//! writer that does not wait for the device never queues behind a writer that does. Both queues use the same log,
//! which is locked only for the time of an append, and the same order, in which writes become visible.
//!
//! While a synced group is on its way to the device, the next group gathers. While a group is inserted, the next
//! group is on its way. With [`Settings::pipelined`], a group that does not wait for the device hands over
//! the lead once it is logged; with [`Settings::two_queues`], once it is inserted; otherwise, once it is
//! visible.
//!
//! Invariants
//! - Sequence numbers are assigned and logged in one order, under the log's lock, and published in the
//!   same order.
//! - After the gate no write fails for a reason that could be known before the gate: families do not change
//!   while a group is inside.
//! - A writer that panics gives back the lead and its place in the order, and its followers get an error. If
//!   its group may be written in part, the database refuses writes.
//! - No write is visible before it is in the log as far as its plan says.
//! - A failed log write is indeterminate: the records may or may not come back after a restart.
//!   Its sequence numbers are never used again.

use base::clock::Clock;
use base::perf::{self, PerfCounter, PerfLevel};
use base::stats::Ticker;
use base::sync::PoisonError;
use base::{Error, ErrorKind, Result};

use super::Writes;
use super::order::{Inside, Ticket};
use super::plan::Patience;
use super::queue::{Group, Lead, Parallel, Queue, Request, Turn};
use crate::batch::WriteBatch;
use crate::wal::LogStep;

/// In groups of at least this many records, each member inserts its own batch. With fewer records, the
/// leader is done before the followers would be awake.
const PARALLEL_RECORDS: u64 = 64;

/// The options that shape a commit.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    /// `max_write_batch_group_size_bytes`.
    pub(crate) max_group_bytes: usize,
    /// `enable_pipelined_write`.
    pub(crate) pipelined: bool,
    /// `two_write_queues`.
    pub(crate) two_queues: bool,
    /// `allow_concurrent_memtable_write`.
    pub(crate) concurrent_inserts: bool,
}

/// A group that has its place in the log.
pub(crate) struct Logged<'a, F> {
    pub(crate) ticket: Ticket<'a>,
    /// The log write that must land before the group is as durable as its plan says.
    pub(crate) flight: Option<F>,
}

/// A log write that is on its way to the device. If this is dropped unsettled, the write counts as failed.
pub(crate) trait InFlight {
    /// Waits until the log write has landed.
    fn settle(self) -> Result<()>;
}

/// The parts of the database that a commit needs. Any writer calls [`CommitEnv::insert`], [`CommitEnv::clock`] and
/// [`CommitEnv::count`]; only leaders call the other methods.
pub(crate) trait CommitEnv {
    type Flight<'a>: InFlight
    where
        Self: 'a;

    fn settings(&self) -> Settings;

    fn clock(&self) -> &dyn Clock;

    fn count(&self, ticker: Ticker, n: u64);

    /// Makes room for a group, or waits for room. While the leader is held back, queued writers may be refused.
    fn admit(&self, lead: &Lead<'_>, request: &Request) -> Result<()>;

    /// Waits until the log can take a synced write. Followers gather meanwhile.
    fn wait_for_slot(&self) -> Result<()>;

    /// Refuses a batch if one of its families was dropped since it was checked. Called inside the gate.
    fn check_again(&self, request: &Request) -> Result<()>;

    /// [`CommitEnv::check_again`] for the followers of a group. Followers that are refused leave the group.
    fn check_followers(&self, group: &mut Group);

    /// Gives the group its sequence numbers and its ticket under the log's lock, appends it, and begins what
    /// `step` asks for.
    fn log<'a>(
        &'a self,
        lead: &Lead<'_>,
        step: LogStep,
        group: &mut Group,
    ) -> Result<Logged<'a, Self::Flight<'a>>>;

    /// Called before a group that is not logged is numbered.
    fn goes_unlogged(&self, group: &Group);

    /// Puts one batch into the memtables. Members of a group call it at the same time.
    fn insert(&self, batch: &WriteBatch) -> Result<()>;

    /// Puts all batches of a group into the memtables. `few`: the group has at most one record.
    fn insert_all(&self, group: &Group, few: bool) -> Result<()>;

    /// A group was inserted.
    fn inserted(&self);

    /// Makes an error sticky: a write may be in the database in part.
    fn fail(&self, what: &str, error: &Error);
}

impl Writes {
    /// Commits a batch, as a leader or as a follower. Returns the request, and the batch's last sequence number.
    pub(crate) fn commit<E: CommitEnv>(
        &self,
        env: &E,
        request: Request,
    ) -> (Option<Request>, Result<u64>) {
        let queue = if request.plan.waits_for_device() {
            &self.synced
        } else {
            &self.others
        };
        let clock = env.clock();
        let whole = perf::start(clock);
        let parts = parts_of_a_write();
        let turn = queue.enter(request, |batch| env.insert(batch));
        perf::stop(PerfCounter::WriteThreadWaitNanos, clock, whole);
        let written = match turn {
            Turn::Done(request, result) => {
                env.count(Ticker::WriteDoneByOther, 1);
                (request, result)
            }
            Turn::Lead(request, lead) => {
                let (request, result) = self.lead(env, queue, lead, request);
                (Some(request), result)
            }
        };
        if let Some(whole) = whole {
            let taken = clock.monotonic_nanos().saturating_sub(whole);
            let rest = taken.saturating_sub(parts_of_a_write() - parts);
            perf::count(PerfCounter::WritePreAndPostProcessTime, rest);
        }
        written
    }

    fn lead<E: CommitEnv>(
        &self,
        env: &E,
        queue: &Queue,
        mut lead: Lead<'_>,
        request: Request,
    ) -> (Request, Result<u64>) {
        let _inside = match self.pass_the_gate(env, &lead, &request) {
            Ok(inside) => inside,
            Err(e) => return (request, Err(e)),
        };
        let followers = queue.followers(&request, env.settings().max_group_bytes);
        let mut group = Group {
            lead: request,
            followers,
        };
        env.check_followers(&mut group);
        let result = self.write_group(env, &mut lead, &mut group);
        env.count(Ticker::WriteDoneBySelf, 1);
        lead.hand_over();
        group.finish(&result);
        let last = result.map(|()| group.lead.batch.last_sequence());
        (group.lead, last)
    }

    /// Waits for room, for the log and at the gate. While the result lives, families are neither created nor dropped.
    #[inline]
    fn pass_the_gate<E: CommitEnv>(
        &self,
        env: &E,
        lead: &Lead<'_>,
        request: &Request,
    ) -> Result<Inside<'_>> {
        let delayed = perf::start(env.clock());
        env.admit(lead, request)?;
        perf::stop(PerfCounter::WriteDelayTime, env.clock(), delayed);
        if request.plan.waits_for_device() {
            env.wait_for_slot()?;
        }
        let inside = at_the_gate(lead, request.plan.patience, |p| self.order.enter(p))?;
        env.check_again(request)?;
        Ok(inside)
    }

    fn write_group<E: CommitEnv>(
        &self,
        env: &E,
        lead: &mut Lead<'_>,
        group: &mut Group,
    ) -> Result<()> {
        let (plan, settings, clock) = (group.lead.plan, env.settings(), env.clock());
        let logging = perf::start(clock);
        let Logged { ticket, flight } = match plan.log {
            Some(step) => env.log(lead, step, group)?,
            None => Logged {
                ticket: self.unlogged(env, group),
                flight: None,
            },
        };
        let mut halfway = Halfway { env, ticket };
        if flight.is_some() || settings.pipelined || !plan.memtable {
            lead.hand_over();
        }
        let landed = flight.map_or(Ok(()), InFlight::settle);
        if plan.log.is_some() {
            perf::stop(PerfCounter::WriteWalTime, clock, logging);
        }
        let inserting = perf::start(clock);
        let written = landed.and_then(|()| self.insert_group(env, &halfway.ticket, group));
        perf::stop(PerfCounter::WriteMemtableTime, clock, inserting);
        halfway.ticket.end(written.is_ok());
        written?;
        env.count(Ticker::NumberKeysWritten, group.count());
        if plan.memtable && !plan.detached {
            if settings.two_queues {
                lead.hand_over(); // to writers that have nothing to wait for, perhaps
            }
            halfway.ticket.wait();
        }
        Ok(())
    }

    fn unlogged<E: CommitEnv>(&self, env: &E, group: &mut Group) -> Ticket<'_> {
        env.goes_unlogged(group);
        let ticket = self.order.begin(group.count());
        group.number(ticket.first);
        ticket
    }

    fn insert_group<E: CommitEnv>(
        &self,
        env: &E,
        ticket: &Ticket<'_>,
        group: &Group,
    ) -> Result<()> {
        if !group.lead.plan.memtable {
            return Ok(());
        }
        let concurrent = env.settings().concurrent_inserts;
        let alone = (!concurrent).then(|| {
            self.memtable_writer
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        });
        let records = ticket.last + 1 - ticket.first;
        let parallel = concurrent && !group.followers.is_empty() && records >= PARALLEL_RECORDS;
        let inserted = if parallel {
            Parallel::run(&group.followers, || env.insert(&group.lead.batch))
        } else {
            env.insert_all(group, records <= 1)
        };
        drop(alone);
        inserted.inspect_err(|e| env.fail("memtable", e))?;
        env.inserted();
        Ok(())
    }
}

/// The nanoseconds of the perf counters for the parts of this thread's writes; 0 if times are not counted.
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

/// A group that has its place in the order and is not over yet. A panic may leave it written in part, in the log
/// or in the memtables. The database must then refuse writes.
struct Halfway<'a, 'e, E: CommitEnv> {
    env: &'e E,
    ticket: Ticket<'a>,
}

impl<E: CommitEnv> Drop for Halfway<'_, '_, E> {
    fn drop(&mut self) {
        if !self.ticket.is_over() {
            let error = Error::aborted("a write panicked: it may be there in part");
            self.env.fail("write", &error);
        }
    }
}

/// Runs `pass`, which may have to wait at the gate. While the leader waits there, writers with less
/// patience do not queue behind it: they get the error that `pass` would give them.
#[inline]
pub(crate) fn at_the_gate<T>(
    lead: &Lead<'_>,
    patience: Patience,
    pass: impl Fn(Patience) -> Result<T>,
) -> Result<T> {
    let more = |from: Patience, e: &Error| e.kind() == ErrorKind::Incomplete && patience > from;
    match pass(Patience::None) {
        Err(e) if more(Patience::None, &e) => {
            let _held = lead.hold(&e, Patience::None);
            match pass(Patience::Job) {
                Err(e) if more(Patience::Job, &e) => {
                    let _held = lead.hold(&e, Patience::Job);
                    pass(patience)
                }
                done => done,
            }
        }
        done => done,
    }
}

#[cfg(test)]
#[path = "pipeline_tests.rs"]
mod tests;
