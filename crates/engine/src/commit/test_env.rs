//! An environment for tests of the pipeline by itself: it records the steps, and a test decides the outcome of each.

use base::clock::{Clock, SystemClock};
use base::stats::Ticker;
use base::sync::{Mutex, MutexGuard, PoisonError, ranked};
use base::{Error, Result};
use memtable::WriteBuffers;

use std::sync::Arc;

use super::Writes;
use super::pipeline::{CommitEnv, InFlight, Logged, Settings};
use super::queue::{Group, Lead, Request};
use crate::batch::WriteBatch;
use crate::locks;
use crate::wal::LogStep;
use options::DbOptions;

/// A step of a commit. It is recorded with the last sequence number of the batch or group, or 0 before there is one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Admit,
    Slot,
    Log,
    Unlogged,
    Land,
    Insert,
    Inserted,
}

/// See the module.
pub(crate) struct TestEnv<F> {
    pub(crate) writes: Arc<Writes>,
    pub(crate) settings: Settings,
    /// Called before each step; its error is the error of the step.
    act: F,
    /// The log: held while a group is numbered and appended.
    log: Mutex<()>,
    did: Mutex<Vec<(Step, u64)>>,
    failures: Mutex<Vec<String>>,
    clock: Arc<dyn Clock>,
}

/// Writes of an empty database.
pub(crate) fn new_writes() -> Arc<Writes> {
    let buffers = Arc::new(WriteBuffers::new(0, None, false));
    Arc::new(Writes::after(0, &DbOptions::default(), buffers))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<F: Fn(Step, u64) -> Result<()>> TestEnv<F> {
    pub(crate) fn new(act: F) -> Self {
        Self::around(new_writes(), act)
    }

    /// An environment of these writes, which `act` may look at.
    pub(crate) fn around(writes: Arc<Writes>, act: F) -> Self {
        Self {
            writes,
            settings: Settings {
                max_group_bytes: 1 << 20,
                pipelined: false,
                two_queues: false,
                concurrent_inserts: true,
            },
            act,
            log: ranked(locks::LOG, ()),
            did: ranked(locks::LEAF, Vec::new()),
            failures: ranked(locks::LEAF, Vec::new()),
            clock: SystemClock::shared(),
        }
    }

    /// The steps so far, in the order in which they ended.
    pub(crate) fn did(&self) -> Vec<(Step, u64)> {
        lock(&self.did).clone()
    }

    /// The errors that were made sticky.
    pub(crate) fn failures(&self) -> Vec<String> {
        lock(&self.failures).clone()
    }

    fn step(&self, step: Step, at: u64) -> Result<()> {
        (self.act)(step, at)?;
        lock(&self.did).push((step, at));
        Ok(())
    }
}

/// A group on its way to the device.
pub(crate) struct TestFlight<'a, F> {
    env: &'a TestEnv<F>,
    last: u64,
}

impl<F: Fn(Step, u64) -> Result<()>> InFlight for TestFlight<'_, F> {
    fn settle(self) -> Result<()> {
        self.env.step(Step::Land, self.last)
    }
}

impl<F: Fn(Step, u64) -> Result<()>> CommitEnv for TestEnv<F> {
    type Flight<'a>
        = TestFlight<'a, F>
    where
        F: 'a;

    fn settings(&self) -> Settings {
        self.settings
    }

    fn clock(&self) -> &dyn Clock {
        &*self.clock
    }

    fn count(&self, _: Ticker, _: u64) {}

    fn admit(&self, _: &Lead<'_>, _: &Request) -> Result<()> {
        self.step(Step::Admit, 0)
    }

    fn wait_for_slot(&self) -> Result<()> {
        self.step(Step::Slot, 0)
    }

    fn check_again(&self, _: &Request) -> Result<()> {
        Ok(())
    }

    fn check_followers(&self, _: &mut Group) {}

    fn log<'a>(
        &'a self,
        _: &Lead<'_>,
        step: LogStep,
        group: &mut Group,
    ) -> Result<Logged<'a, TestFlight<'a, F>>> {
        let held = lock(&self.log);
        let ticket = self.writes.order.begin(group.count());
        group.number(ticket.first);
        self.step(Step::Log, ticket.last)?;
        drop(held);
        let flight = (step == LogStep::Sync).then_some(TestFlight {
            env: self,
            last: ticket.last,
        });
        Ok(Logged { ticket, flight })
    }

    fn goes_unlogged(&self, _: &Group) {
        lock(&self.did).push((Step::Unlogged, 0));
    }

    fn insert(&self, batch: &WriteBatch) -> Result<()> {
        self.step(Step::Insert, batch.last_sequence())
    }

    fn insert_all(&self, group: &Group, _: bool) -> Result<()> {
        self.insert(&group.lead.batch)?;
        group
            .followers
            .iter()
            .try_for_each(|f| f.try_batch(|batch| self.insert(batch)))
    }

    fn inserted(&self) {
        lock(&self.did).push((Step::Inserted, 0));
    }

    fn fail(&self, what: &str, error: &Error) {
        lock(&self.failures).push(format!("{what}: {error}"));
    }
}
