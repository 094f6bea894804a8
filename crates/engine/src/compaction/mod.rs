//! Compaction: keeps level 0 small and the levels below in proportion.
//!
//! ```text
//!   crate picking   chooses the inputs: pure functions of files and options
//!   touch           whether a requested range has any data
//!   run             merges the inputs into new tables, in parts (split), with the cuts of the crate picking
//!   merge           which versions of a key survive
//!   input           the entries to merge, without those that range tombstones hide
//!   zero            gives sequence numbers back that nobody needs
//!   filter          calls the application's compaction filters
//!   output          writes a table and describes it
//!   progress        counts the level 0 files that a compaction has nearly finished
//!   report          LOG, tickers and the family's statistics
//!   install         makes the result part of the database (in this file)
//! ```
//!
//! Several compactions of a family may run at the same time. Each is registered under the state lock before
//! it begins: its files are marked and its keys and levels recorded, so that the next pick avoids them. A
//! compaction installs its result as an edit of the Version that is current at its end. Its inputs are
//! still in that Version, because no other compaction takes marked files, and the results of flushes and
//! compactions that ended meanwhile are kept.

pub(crate) mod filter;
pub(crate) mod input;
pub(crate) mod merge;
pub(crate) mod output;
mod progress;
pub(crate) mod report;
pub(crate) mod run;
pub(crate) mod split;
pub(crate) mod touch;
mod zero;

use std::ops::Deref;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use base::stats::{Activity, Ticker};
use base::sync::atomic::{AtomicBool, Ordering};
use base::{Error, ErrorKind, Result};
use table::{CompressionSettings, CompressionType};

use crate::background::state::{ManualCompaction, State, check_not_canceled};
use crate::background::{Background, lacks_space};
use crate::catalog::family::Family;
use crate::info::Info;
use crate::shared::{Shared, Work};
use manifest::edit::{CompactCursor, NewFile, VersionEdit};
use manifest::{TableFile, Version};
use options::ColumnFamilyOptions;
use options::hooks::listener::BackgroundErrorReason;
use options::hooks::partitioner::PartitionerContext;
use picking::manual::{Step, next_step};
use picking::{self, Input, Kind, Plan, Range, Running, candidates};
use report::Report;
use run::Written;

/// A registered compaction: no other compaction takes its files.
pub(crate) struct Pick {
    plan: Plan<TableFile>,
    /// The number of the compaction in LOG and in the list of running compactions.
    pub(crate) id: u64,
    /// The Version that contains the inputs.
    pub(crate) version: Arc<Version>,
    /// The key range of the inputs.
    pub(crate) range: Range,
    /// The family's options at the time of the pick.
    pub(crate) options: Arc<ColumnFamilyOptions>,
    /// Whether a caller waits for it.
    pub(crate) manual: bool,
    /// 0 means the value in the database's options.
    pub(crate) max_subcompactions: u32,
    canceled: Option<Arc<AtomicBool>>,
}

impl Deref for Pick {
    type Target = Plan<TableFile>;

    fn deref(&self) -> &Plan<TableFile> {
        &self.plan
    }
}

impl Pick {
    /// Errors: `Incomplete` if the caller has canceled the compaction.
    pub(crate) fn check_not_canceled(&self) -> Result<()> {
        check_not_canceled(self.canceled.as_ref())
    }

    /// The compression of the outputs.
    pub(crate) fn compression(&self) -> (CompressionType, CompressionSettings) {
        let options = &self.options.cf;
        if !self.compress {
            return (CompressionType::None, options.compression_opts.settings());
        }
        let lowest = (self.output_level + 1..self.version.num_levels())
            .all(|l| self.version.level(l).is_empty());
        options.compression_of(self.output_level, self.base_level, lowest)
    }

    /// Whether the SST partitioner allows moving the files as they are. It is the application's code: do
    /// not call this under a lock.
    fn partitions_allow_move(&self) -> bool {
        let Some(factory) = &self.options.sst_partitioner_factory else {
            return true;
        };
        self.files().all(|(_, file)| {
            let (smallest, largest) = (file.smallest_user_key(), file.largest_user_key());
            let context = PartitionerContext {
                is_manual_compaction: false,
                output_level: 0,
                smallest_user_key: smallest,
                largest_user_key: largest,
            };
            let partitioner = factory.create_partitioner(&context);
            partitioner.is_none_or(|mut p| p.can_do_trivial_move(smallest, largest))
        })
    }

    /// Turns the move into a merge. A move may leave files of the output level between the moved files, but
    /// a table written by a merge could overlap them. So the merge takes only as many of the inputs as have
    /// no file of the output level in their range. The first input alone has no such file in its range.
    fn merge_instead(&mut self) {
        self.plan.kind = Kind::Merge;
        let levels = candidates::levels(&self.version);
        let output = self.plan.output_level;
        let in_the_way = |files: &[Arc<TableFile>]| {
            let range = levels.range(files);
            range.is_some_and(|r| !levels.sorted_overlapping(output, &r).is_empty())
        };
        if let [(_, files)] = &mut self.plan.inputs[..] {
            while files.len() > 1 && in_the_way(files) {
                files.pop();
            }
        }
    }
}

/// The next compaction, if one is due. Compactions that callers wait for come first.
pub(crate) fn next(db: &Arc<Shared>, state: &mut State) -> Option<Work> {
    if let Some(work) = next_manual(db, state) {
        return Some(work);
    }
    let exclusive = state.manual.iter().any(|m| m.exclusive);
    if exclusive || state.compacting.iter().any(|r| r.exclusive) {
        return None;
    }
    if state.starved_for(&db.env().clock).is_some() {
        return None;
    }
    let families = db.catalog.families.load();
    // Begin with the family after the last compacted family, so that no family waits forever.
    let after = |id: u32| id > state.last_compacted;
    let mut order: Vec<&Arc<Family>> = families.iter().filter(|f| after(f.id)).collect();
    order.extend(families.iter().filter(|f| !after(f.id)));
    for family in order {
        if let Some(found) = automatic(db, state, family) {
            state.last_compacted = family.id;
            return Some(launch(state, family, found, None));
        }
    }
    None
}

/// A picked compaction, and the Version and options that it was picked from.
pub(crate) struct Found {
    version: Arc<Version>,
    options: Arc<ColumnFamilyOptions>,
    plan: Plan<TableFile>,
}

/// The automatic compaction that a family needs now, if any.
pub(crate) fn automatic(db: &Shared, state: &State, family: &Arc<Family>) -> Option<Found> {
    let options = family.options_now();
    if family.is_dropped() || options.cf.disable_auto_compactions || state.held.contains(&family.id)
    {
        return None;
    }
    let version = Arc::clone(&family.view.load().version);
    let plan = loop {
        let picked = with_input(db, state, family, (&*version, &*options), |input| {
            picking::automatic(input).ok_or_else(|| {
                // With `allow_ingest_behind`, nothing is dropped.
                let oldest = db.snapshots.oldest();
                let oldest = oldest.filter(|_| !db.options.db.allow_ingest_behind)?;
                picking::kept_until(input, oldest.0)
            })
        });
        match picked {
            Ok(plan) => break plan,
            // Whoever releases the snapshots that keep it wakes the jobs.
            Err(Some(kept)) if db.snapshots.keeps_until(kept) => return None,
            Err(Some(_)) => {}
            Err(None) => return None,
        }
    };
    Some(Found {
        version,
        options,
        plan,
    })
}

/// Calls `f` with the picker's input.
fn with_input<R>(
    db: &Shared,
    state: &State,
    family: &Family,
    (version, options): (&Version, &ColumnFamilyOptions),
    f: impl FnOnce(&Input<'_, TableFile>) -> R,
) -> R {
    let running: Vec<&Running> = state
        .compacting
        .iter()
        .filter(|r| r.family == family.id)
        .collect();
    // With `allow_ingest_behind`, deletions are never dropped, so a compaction would free nothing.
    let frees = db.snapshots.any_released() && !db.options.db.allow_ingest_behind;
    let oldest = || db.snapshots.oldest().map_or(u64::MAX, |oldest| oldest.0);
    let oldest_snapshot = frees.then(oldest);
    let cursors = family.compactions.cursors();
    f(&Input {
        levels: candidates::levels(version),
        options: &options.cf,
        now: db.env().clock.wall_micros() / 1_000_000,
        oldest_snapshot,
        running: &running,
        cursors: &cursors,
    })
}

/// The next step of a compaction that was requested by a call.
fn next_manual(db: &Arc<Shared>, state: &mut State) -> Option<Work> {
    let mut at = 0;
    while let Some(manual) = state.manual.get(at).cloned() {
        let done = match manual_step(db, state, &manual) {
            Ok(Next::Wait) => {
                at += 1;
                continue;
            }
            Ok(Next::Run(family, found)) => {
                let work = launch(state, &family, *found, Some(Arc::clone(&manual)));
                // Only now: `launch` calls user-defined comparators, which may panic.
                manual.running.store(true, Ordering::Relaxed);
                return Some(work);
            }
            Ok(Next::Done) => Ok(()),
            Err(e) => Err(e),
        };
        state.manual.remove(at);
        manual.finish(done);
        db.background.notify();
    }
    None
}

enum Next {
    Run(Arc<Family>, Box<Found>),
    Wait,
    Done,
}

fn manual_step(db: &Shared, state: &State, manual: &ManualCompaction) -> Result<Next> {
    if manual.running.load(Ordering::Relaxed) {
        return Ok(Next::Wait);
    }
    check_not_canceled(manual.canceled.as_ref())?;
    let families = db.catalog.families.load();
    let family = families.get(manual.family).ok_or_else(|| {
        Error::new(
            ErrorKind::ColumnFamilyDropped,
            "compaction: the column family was dropped",
        )
    })?;
    if state.held.contains(&family.id) || (manual.exclusive && !state.compacting.is_empty()) {
        return Ok(Next::Wait);
    }
    let version = Arc::clone(&family.view.load().version);
    let options = family.options_now();
    let mut progress = manual.progress();
    let step = with_input(db, state, family, (&*version, &*options), |input| {
        next_step(input, &manual.request, &mut progress)
    })?;
    Ok(match step {
        Step::Run(mut plan) => {
            // In a requested compaction a filter sees all entries, even of files that would only be moved.
            let refit = plan.reason == picking::manual::REFIT;
            if plan.kind == Kind::Move && !refit && options.has_compaction_filter() {
                plan.kind = Kind::Merge;
            }
            let found = Found {
                version,
                options,
                plan: *plan,
            };
            Next::Run(Arc::clone(family), Box::new(found))
        }
        Step::Wait => Next::Wait,
        Step::Done => Next::Done,
    })
}

/// Registers a compaction. The returned work ends the registration.
fn launch(
    state: &mut State,
    family: &Arc<Family>,
    found: Found,
    manual: Option<Arc<ManualCompaction>>,
) -> Work {
    let Found {
        version,
        options,
        plan,
    } = found;
    let id = state.next_job();
    let files = plan.files().map(|(_, f)| f);
    let range = candidates::levels(&version).range(files).unwrap_or(Range {
        smallest: Vec::new(),
        largest: Vec::new(),
        open_end: true,
    });
    for (_, f) in plan.files() {
        base::invariant!(
            !f.is_being_compacted(),
            "table {} is an input of two compactions",
            f.number()
        );
        f.being_compacted.store(true, Ordering::Relaxed);
    }
    state.compacting.push(Running {
        id,
        family: family.id,
        start_level: plan.start_level(),
        output_level: plan.output_level,
        range: range.clone(),
        manual: manual.is_some(),
        exclusive: manual.as_ref().is_some_and(|m| m.exclusive),
    });
    let mut pick = Pick {
        plan,
        id,
        version,
        range,
        options,
        manual: manual.is_some(),
        max_subcompactions: manual.as_ref().map_or(0, |m| m.max_subcompactions),
        canceled: manual.as_ref().and_then(|m| m.canceled.clone()),
    };
    let family = Arc::clone(family);
    Box::new(move |db| {
        // Do this first: the following steps call the application's code, which may panic.
        let registered = Registered {
            background: &db.background,
            id,
            files: pick.files().map(|(_, f)| Arc::clone(f)).collect(),
            manual: manual.as_deref(),
        };
        let refit = pick.reason == picking::manual::REFIT;
        if pick.kind == Kind::Move && !refit && !pick.partitions_allow_move() {
            pick.merge_instead();
        }
        let result = compact(db, &family, &pick);
        if result.as_ref().is_err_and(is_canceled) {
            db.info.count(Ticker::CompactionCancelled, 1);
        }
        let told = result.as_ref().err().cloned();
        let outcome = fail(db, forgive(&db.info, result));
        if let (Some(manual), Some(e)) = (&manual, told) {
            manual.finish(Err(e));
            db.background
                .state()
                .manual
                .retain(|m| !Arc::ptr_eq(m, manual));
        }
        drop(registered);
        outcome
    })
}

/// Ends the registration of a compaction, however it ends.
struct Registered<'a> {
    background: &'a Background,
    id: u64,
    files: Vec<Arc<TableFile>>,
    manual: Option<&'a ManualCompaction>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        let mut state = self.background.state();
        for f in &self.files {
            f.being_compacted.store(false, Ordering::Relaxed);
            f.set_compacted(0.0);
        }
        state.compacting.retain(|r| r.id != self.id);
        if let Some(manual) = self.manual {
            manual.running.store(false, Ordering::Relaxed);
        }
        drop(state);
        self.background.notify();
    }
}

/// Turns failures that concern only the caller into success: the compaction was canceled by its caller or by
/// the close of the database, or its filter panicked. The filter is not called again.
fn forgive(info: &Info, result: Result<()>) -> Result<()> {
    result.or_else(|e| match e.kind() {
        ErrorKind::Aborted => {
            info.log.error(format_args!("compaction given up: {e}"));
            Ok(())
        }
        _ if is_canceled(&e) => Ok(()),
        _ => Err(e),
    })
}

/// Makes the database refuse writes before the caller of a compaction gets its error: if the caller
/// then resumes the database, it must find the failure. Lack of space is returned instead, for the job to handle.
fn fail(db: &Shared, outcome: Result<()>) -> Result<()> {
    let Err(e) = outcome else { return Ok(()) };
    if lacks_space(&e) {
        return Err(e);
    }
    db.fail_in(BackgroundErrorReason::Compaction, "background job", &e);
    Ok(())
}

fn is_canceled(e: &Error) -> bool {
    matches!(
        e.kind(),
        ErrorKind::ShutdownInProgress | ErrorKind::Incomplete
    )
}

/// Runs a compaction and makes its result part of the database.
fn compact(db: &Arc<Shared>, family: &Arc<Family>, pick: &Pick) -> Result<()> {
    let report = Report::begin(&db.info, &db.snapshots, family, pick);
    let written = match pick.kind {
        Kind::Merge => run::run(db, family, pick)?,
        Kind::Move => unchanged(pick),
        Kind::Delete => Written::default(),
    };
    let installed = install(db, family, pick, &written.files)?;
    report.end(&db.info, family, pick, &written, installed);
    Ok(())
}

/// The inputs, moved to another level.
fn unchanged(pick: &Pick) -> Written {
    let moved = |f: &Arc<TableFile>| {
        let mut meta = f.meta.clone();
        meta.marked_for_compaction = false;
        NewFile {
            level: pick.output_level as u32,
            meta,
        }
    };
    Written {
        files: pick.files().map(|(_, f)| moved(f)).collect(),
        ..Written::default()
    }
}

/// The tables that a compaction has written.
fn made<'a>(
    dir: &'a Path,
    pick: &'a Pick,
    new_files: &'a [NewFile],
) -> impl Iterator<Item = PathBuf> + 'a {
    let new = new_files.iter().filter(|_| pick.kind == Kind::Merge);
    new.map(|new| files::table_path(dir, new.meta.number))
}

/// Makes the result part of the database. Returns false if the family was dropped, and the result is discarded.
fn install(db: &Shared, family: &Arc<Family>, pick: &Pick, new_files: &[NewFile]) -> Result<bool> {
    let cursor = pick.cursor.as_ref().map(|(level, key)| CompactCursor {
        level: *level as u32,
        key: key.clone(),
    });
    let edit = VersionEdit {
        column_family: family.id,
        deleted_files: pick
            .files()
            .map(|(level, f)| (level as u32, f.number()))
            .collect(),
        new_files: new_files.to_vec(),
        compact_cursors: cursor.into_iter().collect(),
        ..Default::default()
    };
    let tables = &db.catalog.tables;
    // Also if the file system panics, the new tables must go.
    let open = catch_unwind(AssertUnwindSafe(|| {
        tables.open_ahead(family, &edit, Activity::Compaction)
    }));
    let mut change = db.change();
    change.makes(made(&db.dir, pick, new_files));
    if family.is_dropped() {
        db.info.log.info(format_args!(
            "[{}] dropped: compaction discarded",
            family.name
        ));
        return Ok(false);
    }
    let open = open.unwrap_or_else(|panic| resume_unwind(panic))?;
    change.compacted(family, edit, open)?;
    let logged = change.log()?;
    if let Some((level, key)) = &pick.cursor {
        family.compactions.set_cursor(*level, key.clone());
    }
    drop(logged.apply());
    Ok(true)
}
