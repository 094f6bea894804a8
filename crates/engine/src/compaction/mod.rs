//! Compaction: keeps level 0 small and the levels below in proportion.
//!
//! ```text
//!   pick    what to compact: a pure function of the Version and the options
//!   run     merges the inputs into new tables
//!   merge   which versions of a key survive
//!   tombstones  what range tombstones hide, and which of them go on
//!   filter  calls users' compaction filters
//!   output  writes a table and describes it
//!   install makes the result part of the database (here)
//! ```
//!
//! One compaction per column family runs at a time; several families compact in parallel.

pub(crate) mod exclusive;
pub(crate) mod filter;
pub(crate) mod merge;
pub(crate) mod output;
pub(crate) mod pick;
pub(crate) mod run;
pub(crate) mod tombstones;

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use base::{Error, ErrorKind, Result};

use crate::events::Event;
use crate::family::Family;
use crate::jobs::Work;
use crate::shared::{ManualCompaction, Shared, State};
use crate::version::edit::{NewFile, VersionEdit};
use crate::version::set::next_version;
use pick::Pick;

/// The next compaction, if there is one to do: one that somebody waits for comes first.
pub(crate) fn next(db: &Arc<Shared>, state: &mut State) -> Option<Work> {
    if let Some(i) = state
        .manual
        .iter()
        .position(|m| !state.compacting.contains(&m.family))
    {
        let manual = state.manual.remove(i);
        state.compacting.push(manual.family);
        return Some(Box::new(move |db| run_manual(db, &manual)));
    }
    let families = db.families.load();
    for family in families.iter() {
        if state.compacting.contains(&family.id)
            || family.is_dropped()
            || family.options.cf.disable_auto_compactions
        {
            continue;
        }
        let version = Arc::clone(&family.view.load().version);
        if let Some(pick) = pick::automatic(&version, &family.options.cf) {
            let family = Arc::clone(family);
            state.compacting.push(family.id);
            return Some(Box::new(move |db| {
                let result = compact(db, &family, pick);
                finished(db, family.id);
                forgive(db, result)
            }));
        }
    }
    None
}

fn finished(db: &Shared, family: u32) {
    db.state().compacting.retain(|&id| id != family);
    db.notify();
}

/// Failures that concern nobody but the caller: of a compaction that the closing of the database
/// cut short, or whose filter panicked. The filter is not called again.
fn forgive(db: &Shared, result: Result<()>) -> Result<()> {
    result.or_else(|e| match e.kind() {
        ErrorKind::ShutdownInProgress => Ok(()),
        ErrorKind::Aborted => {
            db.log.error(format_args!("compaction given up: {e}"));
            Ok(())
        }
        _ => Err(e),
    })
}

fn run_manual(db: &Arc<Shared>, manual: &ManualCompaction) -> Result<()> {
    let families = db.families.load();
    let result = match families.get(manual.family) {
        None => Err(Error::new(
            ErrorKind::ColumnFamilyDropped,
            "compact_range: it was dropped",
        )),
        Some(family) => {
            let version = Arc::clone(&family.view.load().version);
            let range = (manual.begin.as_deref(), manual.end.as_deref());
            match pick::range(&version, family.comparator(), range) {
                Some(mut pick) => {
                    // A filter sees what somebody asks to be compacted, also if it would only move.
                    pick.trivial_move &= !family.options.has_compaction_filter();
                    compact(db, family, pick)
                }
                None => Ok(()),
            }
        }
    };
    finished(db, manual.family);
    let told = result.as_ref().copied().map_err(Error::duplicate);
    *manual.result.lock().unwrap_or_else(PoisonError::into_inner) = Some(told);
    forgive(db, result)
}

/// Runs a compaction and makes its result part of the database.
fn compact(db: &Arc<Shared>, family: &Arc<Family>, pick: Pick) -> Result<()> {
    for (_, file) in pick.files() {
        file.being_compacted.store(true, Ordering::Relaxed);
    }
    let result = compact_marked(db, family, &pick);
    for (_, file) in pick.files() {
        file.being_compacted.store(false, Ordering::Relaxed);
    }
    result
}

fn compact_marked(db: &Arc<Shared>, family: &Arc<Family>, pick: &Pick) -> Result<()> {
    let start = db.env().clock.wall_micros();
    let new_files = if pick.trivial_move {
        pick.files()
            .map(|(_, f)| NewFile {
                level: pick.output_level as u32,
                meta: f.meta.clone(),
            })
            .collect()
    } else {
        run::run(db, family, pick)?
    };
    let bytes: u64 = new_files.iter().map(|f| f.meta.file_size).sum();
    let count = new_files.len() as u64;
    install(db, family, pick, new_files)?;
    let event = if pick.trivial_move {
        "trivial_move"
    } else {
        "compaction_finished"
    };
    db.log.event(
        &Event::new(event)
            .text("cf_name", &family.name)
            .text("compaction_reason", pick.reason)
            .number("output_level", pick.output_level as u64)
            .number("num_input_files", pick.files().count() as u64)
            .number("num_output_files", count)
            .number("total_output_size", bytes)
            .number(
                "compaction_time_micros",
                db.env().clock.wall_micros().saturating_sub(start),
            ),
    );
    Ok(())
}

fn install(db: &Shared, family: &Arc<Family>, pick: &Pick, new_files: Vec<NewFile>) -> Result<()> {
    let edit = VersionEdit {
        column_family: family.id,
        deleted_files: pick
            .files()
            .map(|(level, f)| (level as u32, f.number()))
            .collect(),
        new_files,
        ..Default::default()
    };
    let mut versions = db.lock_versions();
    let families = db.families.load();
    if family.is_dropped() {
        db.log.info(format_args!(
            "[{}] dropped: compaction discarded",
            family.name
        ));
        return Ok(());
    }
    let version = Arc::new(next_version(&db.tables, family, &edit)?);
    let last = db.visible().0;
    versions.log(&db.tables, &db.numbers, &families, last, edit)?;
    let state = db.state();
    let view = family.view.load_full();
    family.view.store(Arc::new(view.with_version(version)));
    drop(state);
    drop(versions);
    db.notify();
    Ok(())
}
