//! The checks of a write before its commit, and the work of the database in each step of
//! [the pipeline](crate::commit::pipeline).

use base::clock::Clock;
use base::stats::{HistogramKind, Ticker};
use base::sync::atomic::Ordering;
use base::{Error, Result};

use super::apply::{self, Inserter, NewWrites};
use super::pace::{give_way, impatient, pace};
use super::rotate::look_closer_by;
use super::submit::{self, Flying};
use crate::batch::WriteBatch;
use crate::catalog::family::FamilySet;
use crate::commit::Writes;
use crate::commit::pipeline::{CommitEnv, Logged, Settings, at_the_gate};
use crate::commit::plan::{Patience, Plan};
use crate::commit::queue::{Group, Lead, Request};
use crate::outbox;
use crate::shared::Shared;
use crate::wal::LogStep;
use options::{Env, WriteOptions};

/// Writes a batch. On success the batch is visible and as durable as `options` require. The records stay in `batch`.
pub(crate) fn write(db: &Shared, options: &WriteOptions, batch: &mut WriteBatch) -> Result<()> {
    let plan = Plan::new(options, db.options.db.manual_wal_flush);
    write_planned(db, options, plan, batch).map(|_| ())
}

/// Writes a batch with the steps of `plan`; returns its last sequence number.
pub(crate) fn write_planned(
    db: &Shared,
    options: &WriteOptions,
    mut plan: Plan,
    batch: &mut WriteBatch,
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
    apply::check(batch, &families)?;
    let checked = families.epoch();
    drop(families);
    if outbox::job_for(db.instance).is_some() {
        plan.patience = plan.patience.min(Patience::Job);
    }
    if db.options.db.two_write_queues && batch.count() == 0 && plan.log.is_some() {
        plan = plan.log_only();
    }
    if options.low_pri {
        give_way(&db.catalog, &db.info, &plan, batch.data().len())?;
    }
    check_patience(&db.writes, db.env(), &plan)?;
    let began = db.info.timer();
    db.info
        .record(HistogramKind::BytesPerWrite, batch.data().len() as u64);
    let lent = Lent(batch);
    let request = Request {
        batch: lent.0.lend(),
        plan,
        checked,
    };
    let (request, written) = db.writes.commit(db, request);
    if let Some(request) = request {
        *lent.0 = request.batch;
    }
    drop(lent);
    db.info.timed(HistogramKind::DbWrite, began);
    written
}

/// The place of a batch that is being written. If the batch does not come back because of a panic, an empty batch
/// stays there.
struct Lent<'a>(&'a mut WriteBatch);

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.0.make_whole();
    }
}

/// Fails a write that would have to wait but must not, before it queues behind a write that waits.
#[inline]
fn check_patience(writes: &Writes, env: &Env, plan: &Plan) -> Result<()> {
    if !plan.patience.bears_stalls()
        && (!writes.stall.is_normal() || writes.buffers().should_stall())
    {
        return Err(impatient(writes, env));
    }
    Ok(())
}

/// Refuses a batch if one of its families was dropped since it was checked.
#[inline]
fn check_again(request: &Request, families: &FamilySet) -> Result<()> {
    if request.checked == families.epoch() {
        return Ok(());
    }
    apply::check_families(&request.batch, families)
}

impl CommitEnv for Shared {
    type Flight<'a> = Flying<'a>;

    #[inline]
    fn settings(&self) -> Settings {
        let options = &self.options.db;
        Settings {
            max_group_bytes: options.max_write_batch_group_size_bytes as usize,
            pipelined: options.enable_pipelined_write,
            two_queues: options.two_write_queues,
            concurrent_inserts: options.allow_concurrent_memtable_write,
        }
    }

    #[inline]
    fn clock(&self) -> &dyn Clock {
        &*self.env().clock
    }

    #[inline]
    fn count(&self, ticker: Ticker, n: u64) {
        self.info.count(ticker, n);
    }

    #[inline]
    fn admit(&self, lead: &Lead<'_>, request: &Request) -> Result<()> {
        let (plan, writes) = (&request.plan, &self.writes);
        if writes.attention.raised() {
            let gate = |p| writes.order.close(p);
            look_closer_by(self, || at_the_gate(lead, plan.patience, gate))?;
        }
        if writes.stall.is_shaping() || writes.buffers().should_stall() {
            check_patience(writes, self.env(), plan)?;
            pace(self, lead, plan, request.batch.data().len())?;
        }
        Ok(())
    }

    fn wait_for_slot(&self) -> Result<()> {
        let interval = self.options.db.wal_min_sync_interval;
        self.wal.wait_for_slot(interval)
    }

    #[inline]
    fn check_again(&self, request: &Request) -> Result<()> {
        check_again(request, &self.catalog.families.load())
    }

    #[inline]
    fn check_followers(&self, group: &mut Group) {
        if group.followers.is_empty() {
            return;
        }
        let families = self.catalog.families.load();
        group.refuse(|follower| check_again(follower, &families));
    }

    #[inline]
    fn log<'a>(
        &'a self,
        lead: &Lead<'_>,
        step: LogStep,
        group: &mut Group,
    ) -> Result<Logged<'a, Flying<'a>>> {
        submit::log_group(self, lead, step, group)
    }

    fn goes_unlogged(&self, group: &Group) {
        self.writes.unlogged.store(true, Ordering::Release);
        self.count(Ticker::BytesWritten, group.bytes());
    }

    fn insert(&self, batch: &WriteBatch) -> Result<()> {
        let families = &self.catalog.families.load();
        let writes = &self.writes;
        apply::insert(batch, &NewWrites { families, writes })
    }

    #[inline]
    fn insert_all(&self, group: &Group, few: bool) -> Result<()> {
        let families = &self.catalog.families.load();
        let writes = &self.writes;
        let target = NewWrites { families, writes };
        let mut inserter = Inserter::new(&target, few);
        inserter.add(&group.lead.batch)?;
        for follower in group.followers.iter() {
            follower.try_batch(|batch| inserter.add(batch))?;
        }
        inserter.finish();
        Ok(())
    }

    #[inline]
    fn inserted(&self) {
        let writes = &self.writes;
        if self.wal.logs.exceed(writes.log_limit()) || writes.buffers().should_flush() {
            writes.attention.raise();
        }
    }

    fn fail(&self, what: &str, error: &Error) {
        Shared::fail(self, what, error);
    }
}
