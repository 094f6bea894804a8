//! Flush: immutable memtables become one level 0 table.
//!
//! The table and its directory entry are synced before the MANIFEST names the table. Only then are the log
//! files that cover the memtables no longer needed.
//!
//! With several column families, the logs before the active one are synced too. The content of the
//! memtables becomes durable here; without the sync, earlier writes to other families could be
//! lost although later ones survive.
//!
//! With `atomic_flush`, all memtables that are immutable in any family at one moment are flushed together, and
//! the MANIFEST gets the edits as one atomic group. Rotations give all families new memtables while no
//! writes are in progress, so the flushed data is a prefix of all writes, with or without a log. The same
//! is done while the database resumes after a failure. The logs may then lack writes that the memtables have. So
//! a table of one family alone would be newer than the data of other families that recovery finds.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::stats::{Activity, HistogramKind, Ticker};
use base::sync::atomic::Ordering;
use base::{Error, ErrorKind, FileNumber, Result, SequenceNumber};
use keyspan::stripes::{Hidden, Tombstones};
use memtable::Memtable;
use table::InternalIterator;

use crate::background::Background;
use crate::background::state::State;
use crate::catalog::family::Family;
use crate::catalog::job_stats::LevelStats;
use crate::compaction::filter::Filter;
use crate::compaction::merge::{DropRules, Merge};
use crate::compaction::output::{Output, OutputContext};
use crate::info::Info;
use crate::info::log::Event;
use crate::shared::change::Change;
use crate::shared::{Shared, Work};
use crate::write::debt;
use manifest::Version;
use manifest::edit::{NewFile, VersionEdit};
use manifest::janitor::Janitor;
use merging::MergingIter;
use options::InfoLogLevel;
use options::hooks::filter::{FilterContext, TableCreationReason};
use options::hooks::listener::{BackgroundErrorReason, FlushJobInfo, FlushReason};
use picking::candidates::level_summary;

/// The immutable memtables of a family, to be written to one table.
struct Job {
    family: Arc<Family>,
    /// From old to new.
    memtables: Vec<Arc<Memtable>>,
    reason: FlushReason,
    /// The number of the job in LOG.
    id: u64,
}

impl Job {
    fn of(family: &Arc<Family>, id: u64) -> Self {
        let mut memtables = family.view.load().imm.clone();
        memtables.reverse();
        Self {
            family: Arc::clone(family),
            memtables,
            reason: family.flush_reason(),
            id,
        }
    }

    fn sum(&self, f: fn(&Memtable) -> u64) -> u64 {
        self.memtables.iter().map(|m| f(m)).sum()
    }
}

/// A job whose table is written.
struct Written {
    job: Job,
    info: FlushJobInfo,
    edit: VersionEdit,
    /// Wall time and CPU time of writing the table, in microseconds.
    micros: u64,
    cpu_micros: u64,
}

/// The next flush, if a flush of a family is due and no flush of this family is under way.
pub(crate) fn next(db: &Arc<Shared>, state: &mut State) -> Option<Work> {
    let families = db.catalog.families.load();
    let first = families
        .iter()
        .find(|f| !state.flushing.contains(&f.id) && f.flush_due() && !f.is_dropped())?;
    let resuming = state.resuming;
    let together = db.options.db.atomic_flush || resuming;
    let jobs: Vec<Job> = if !together {
        vec![Job::of(first, state.next_job())]
    } else if state.flushing.is_empty() {
        let waits = |f: &&Arc<Family>| !f.view.load().imm.is_empty() && !f.is_dropped();
        // These families must count as being flushed too.
        families.iter().filter(waits).for_each(|f| f.want_flush());
        let mut job = |f| Job::of(f, state.next_job());
        families.iter().filter(waits).map(&mut job).collect()
    } else {
        return None;
    };
    let ids: Vec<u32> = jobs.iter().map(|j| j.family.id).collect();
    state.flushing.extend(&ids);
    Some(Box::new(move |db| {
        let _memory_comes = db.writes.share_buffers().flush_begins();
        let _registered = Registered {
            background: &db.background,
            ids,
        };
        let flushed = catch_unwind(AssertUnwindSafe(|| flush(db, jobs, resuming)))
            .unwrap_or_else(|_| Err(Error::aborted("a flush panicked")));
        // Report the failure while the flush is registered: a thread that resumes the database waits for
        // the flush, and must not encounter its failure afterwards.
        if let Err(e) = flushed {
            db.fail_in(BackgroundErrorReason::Flush, "background job", &e);
        }
        Ok(())
    }))
}

/// Registers families as having a flush under way, until this is dropped.
struct Registered<'a> {
    background: &'a Background,
    ids: Vec<u32>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let ids = &self.ids;
        self.background
            .state()
            .flushing
            .retain(|id| !ids.contains(id));
    }
}

/// Writes each job's memtables to a table, and installs all tables at once. `resuming`: the flush was begun
/// for a resume, even if the resume has ended since.
fn flush(db: &Shared, jobs: Vec<Job>, resuming: bool) -> Result<()> {
    let mut made = Made {
        dir: &db.dir,
        janitor: &db.catalog.tables.janitor,
        written: Vec::with_capacity(jobs.len()),
    };
    for job in jobs {
        made.written.push(write(db, job)?);
    }
    sync_older_logs(db)?;
    // Done before the MANIFEST is locked, so that threads that wait for the lock do not wait for this.
    db.wal.log_files()?.names().make_newest_durable()?;
    let done = install(db, made, resuming)?;
    for w in &done {
        finished(&db.info, w);
    }
    debt::debt_changed(db);
    Ok(())
}

/// Tables that no Change contains yet. If the flush fails, they are deleted.
struct Made<'a> {
    /// The directory of the database.
    dir: &'a Path,
    janitor: &'a Janitor,
    written: Vec<Written>,
}

impl Drop for Made<'_> {
    fn drop(&mut self) {
        for path in tables(self.dir, &self.written) {
            self.janitor.add(path);
        }
    }
}

/// With several families: makes the logs before the active log durable.
fn sync_older_logs(db: &Shared) -> Result<()> {
    if db.catalog.families.load().iter().nth(1).is_none() {
        return Ok(());
    }
    // Sync without holding the log, so that writers can go on.
    for log in db.wal.with(|log| Ok(log.closed_unsynced()))? {
        log.sync()?;
    }
    db.wal.with(|log| {
        log.note_closed();
        Ok(())
    })?;
    db.track_closed_logs()
}

/// The paths of the tables that were written.
fn tables<'a>(dir: &'a Path, done: &'a [Written]) -> impl Iterator<Item = PathBuf> + 'a {
    let new = done.iter().flat_map(|w| &w.edit.new_files);
    new.map(|new| files::table_path(dir, new.meta.number))
}

/// Merges a job's memtables into one level 0 table, unless all of their entries are dropped.
fn write(db: &Shared, job: Job) -> Result<Written> {
    let options = job.family.options_now();
    let mut ctx = OutputContext::of(db, &job.family, options, job.id, TableCreationReason::Flush);
    let snapshots = db.snapshots.sequences();
    ctx.snapshots.clone_from(&snapshots);
    let clock = &db.env().clock;
    let (start, cpu) = (clock.monotonic_nanos(), clock.thread_cpu_nanos());
    let number = ctx.numbers.take();
    let mut info = FlushJobInfo {
        cf_id: job.family.id,
        cf_name: job.family.name.clone(),
        file_number: number,
        flush_reason: job.reason,
        num_memtables: job.memtables.len(),
        file_size: 0,
        smallest_seqno: 0,
        largest_seqno: 0,
        triggered_writes_slowdown: db.writes.stall.writes_delayed(),
        triggered_writes_stop: db.writes.stall.writes_stopped(),
    };
    began(&db.info, &job, number);
    let _at_work = db.background.load.flush();
    db.info.tell(|l| l.on_flush_begin(&info));
    let build = || build_level0(&ctx, &job.memtables, &snapshots, number);
    let new = build().or_else(|e| {
        // A filter that panics must not keep data from its table: the second attempt does not call it.
        let failed = job.family.filter_failed.load(Ordering::Relaxed);
        if e.kind() != ErrorKind::Aborted || !failed {
            return Err(e);
        }
        db.info.log.error(format_args!("flush begun again: {e}"));
        info.file_number = ctx.numbers.take();
        started(&db.info, &job, info.file_number);
        build_level0(&ctx, &job.memtables, &snapshots, info.file_number)
    })?;
    if let Some(new) = &new {
        info.file_size = new.meta.file_size;
        info.smallest_seqno = new.meta.smallest_seqno;
        info.largest_seqno = new.meta.largest_seqno;
    } else {
        db.info
            .log
            .info(format_args!("flush: nothing left to write"));
    }
    let log_number = job.memtables.last().map(|m| m.next_log_number());
    let mut edit = VersionEdit {
        column_family: job.family.id,
        log_number: log_number.map(|n| n.0),
        ..Default::default()
    };
    edit.new_files.extend(new);
    Ok(Written {
        job,
        info,
        edit,
        micros: clock.monotonic_nanos().saturating_sub(start) / 1000,
        cpu_micros: clock.thread_cpu_nanos().saturating_sub(cpu) / 1000,
    })
}

fn began(info: &Info, job: &Job, table: FileNumber) {
    let (name, id) = (&job.family.name, job.id);
    for memtable in &job.memtables {
        info.log.info(format_args!(
            "[{name}] [JOB {id}] Flushing memtable id {} with next log file: {}, marked_for_flush: 0",
            memtable.id(),
            memtable.next_log_number()
        ));
    }
    started(info, job, table);
    info.log.event(
        &Event::new("flush_started")
            .text("cf_name", &job.family.name)
            .number("job", job.id)
            .number("num_memtables", job.memtables.len() as u64)
            .number("total_num_input_entries", job.sum(|m| m.len() as u64))
            .number("num_deletes", job.sum(Memtable::num_deletes))
            .number("total_data_size", job.sum(Memtable::data_bytes))
            .number("memory_usage", job.sum(|m| m.memory_usage() as u64))
            .number("num_range_deletes", job.sum(Memtable::num_range_deletes))
            .text("flush_reason", job.reason.name()),
    );
}

fn started(info: &Info, job: &Job, table: FileNumber) {
    info.log.info(format_args!(
        "[{}] [JOB {}] Level-0 flush table #{table}: started",
        job.family.name, job.id
    ));
}

/// Reports a flush after its result is part of the database.
fn finished(info: &Info, written: &Written) {
    let family = &written.job.family;
    let view = family.view.load_full();
    let levels = (0..view.version.num_levels()).map(|l| view.version.level(l).len() as u64);
    let options = family.options();
    let (codec, _) = options.cf.compression_of(0, 1, false);
    let (name, id, flushed) = (&family.name, written.job.id, &written.info);
    info.log.info(format_args!(
        "[{name}] [JOB {id}] Level-0 flush table #{}: {} bytes OK",
        flushed.file_number, flushed.file_size
    ));
    info.log.info(format_args!(
        "[{name}] [JOB {id}] Flush lasted {} microseconds, and {} cpu microseconds.",
        written.micros, written.cpu_micros
    ));
    if info.log.is_on(InfoLogLevel::Info) {
        let now = info.log.now_seconds();
        let summary = level_summary(&view.version, &options.cf, now);
        info.log
            .info(format_args!("[{name}] Level summary: {summary}"));
    }
    info.log.event(
        &Event::new("flush_finished")
            .text("cf_name", &family.name)
            .number("job", written.job.id)
            .text("output_compression", codec.property_name())
            .numbers("lsm_state", levels)
            .number("immutable_memtables", view.imm.len() as u64),
    );
    info.tell(|l| l.on_flush_completed(flushed));
}

fn count(info: &Info, written: &Written, version: &Version) {
    let job = &written.job;
    let bytes = written.info.file_size;
    let of_table = version.level(0).iter().find(|f| {
        let new = written.edit.new_files.first();
        new.is_some_and(|n| n.meta.number == f.number())
    });
    let raw = of_table.map_or(0, |f| {
        let p = &f.properties;
        p.raw_key_size + p.raw_value_size
    });
    job.family.compactions.add_flush(&LevelStats {
        count: 1,
        reasons: [(job.reason.name(), 1)].into(),
        micros: written.micros,
        cpu_micros: written.cpu_micros,
        bytes_written: bytes,
        bytes_uncompressed: raw,
        files_written: written.edit.new_files.len() as u64,
        records_in: job.sum(|m| m.len() as u64),
        ..LevelStats::default()
    });
    info.count(Ticker::FlushWriteBytes, bytes);
    let payload = job.sum(Memtable::data_bytes);
    info.count(Ticker::MemtablePayloadBytesAtFlush, payload);
    info.count(
        Ticker::MemtableGarbageBytesAtFlush,
        payload.saturating_sub(raw),
    );
    let memory = job.sum(|m| m.memory_usage() as u64);
    info.record(HistogramKind::FlushMemtableMemoryBytes, memory);
    info.record(HistogramKind::FlushMemtableTotalDataSizeBytes, payload);
    let of_reason = match job.reason {
        FlushReason::WriteBufferFull => Some((
            Ticker::FlushReasonWriteBufferFull,
            HistogramKind::FlushWriteBufferFullMemtableMemoryBytes,
        )),
        FlushReason::WriteBufferManager => Some((
            Ticker::FlushReasonWriteBufferManager,
            HistogramKind::FlushWriteBufferManagerMemtableMemoryBytes,
        )),
        _ => None,
    };
    if let Some((ticker, histogram)) = of_reason {
        info.count(ticker, 1);
        info.record(histogram, memory);
    }
    if let Some(s) = &info.statistics {
        s.record_time(HistogramKind::FlushTime, written.micros);
    }
}

/// Merges memtables into the table `number`. Recovery uses this before the database exists.
pub(crate) fn build_level0(
    ctx: &OutputContext<'_>,
    memtables: &[Arc<Memtable>],
    snapshots: &[SequenceNumber],
    number: base::FileNumber,
) -> Result<Option<NewFile>> {
    let children: Vec<Box<dyn InternalIterator>> = memtables
        .iter()
        .map(|m| Box::new(m.pass()) as Box<dyn InternalIterator>)
        .collect();
    let input = MergingIter::new(ctx.family.comparator().clone(), children);
    let comparator = ctx.family.comparator();
    let spans: Vec<_> = memtables.iter().flat_map(|m| m.tombstone_spans()).collect();
    let tombstones = Tombstones::new(comparator, &spans, snapshots).map(Arc::new);
    let context = FilterContext {
        is_full_compaction: false,
        is_manual_compaction: false,
        input_start_level: 0,
        column_family_id: ctx.family.id,
        reason: ctx.teller.reason,
    };
    let rules = DropRules::keep_deletions(comparator.clone(), snapshots.to_vec())
        .family(ctx)
        .filter(Filter::of(ctx.family, &context)?)
        .without(tombstones.clone().map(|t| Hidden::by(t, snapshots)));
    let mut merge = Merge::new(Box::new(input), rules);
    let mut output = Output::new(ctx, 0, number);
    merge.start()?;
    while merge.valid() {
        output.add(merge.key(), merge.value())?;
        merge.next()?;
    }
    if let Some(t) = &tombstones {
        output.add_tombstones(t.between(None, None))?;
    }
    output.finish()
}

/// After a failure, the logs may have batches that were never acknowledged. All families must stop needing these
/// logs at the same time: otherwise a crash in between would bring half of a batch back. No writes are in
/// progress, so the first log that a family needs is the log of its oldest memtable that is not flushed here.
fn leave_logs_together(change: &mut Change<'_>, done: &mut [Written]) {
    for family in Arc::clone(change.families()).iter() {
        let view = family.view.load();
        let flushed = done.iter_mut().find(|w| w.edit.column_family == family.id);
        let gone: &[Arc<Memtable>] = flushed.as_ref().map_or(&[], |w| &w.job.memtables);
        let stays = |m: &&Arc<Memtable>| !gone.iter().any(|g| Arc::ptr_eq(g, m));
        let oldest = view.imm.iter().rev().find(stays).unwrap_or(&view.mem);
        let first = oldest.log_number();
        match flushed {
            Some(w) => w.edit.log_number = Some(first.0),
            None => change.leaves_logs(family, first),
        }
    }
}

/// Makes the tables part of the database, all of them or none.
fn install(db: &Shared, mut made: Made<'_>, resuming: bool) -> Result<Vec<Written>> {
    let mut change = db.change();
    let mut done = std::mem::take(&mut made.written);
    // The MANIFEST does not know dropped families any more.
    let dropped: Vec<_> = done.extract_if(.., |w| w.job.family.is_dropped()).collect();
    change.discard(tables(&db.dir, &dropped));
    change.makes(tables(&db.dir, &done));
    if done.is_empty() {
        return Ok(done);
    }
    if resuming {
        leave_logs_together(&mut change, &mut done);
    }
    for w in &done {
        let (edit, memtables) = (w.edit.clone(), w.job.memtables.clone());
        change.flush(&w.job.family, edit, Activity::Flush, memtables)?;
    }
    let needed = change.first_needed_log();
    change.needs_logs_from(needed);
    let logged = change.log()?;
    // Count before the Views change, so that a thread that waits for the flush finds it counted.
    for (w, version) in done.iter().zip(logged.versions()) {
        count(&db.info, w, version);
    }
    drop(logged.apply());
    Ok(done)
}
