//! Flush: immutable memtables become one level 0 table.
//!
//! The table is synced, its directory entry too, before the MANIFEST names it; only then do the
//! log files that cover the memtables stop being needed.
//!
//! With several column families, the logs behind the active one are synced too: what the memtables
//! hold becomes durable here, and what was written before it to other families must not be lost
//! when it is not.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use base::stats::Ticker;
use base::{ErrorKind, Result, SequenceNumber};
use table::InternalIterator;

use crate::compaction::filter::Filter;
use crate::compaction::merge::{DropRules, Merge};
use crate::compaction::output::{Output, OutputContext};
use crate::compaction::tombstones::{Hidden, Tombstones};
use crate::events::Event;
use crate::family::Family;
use crate::files;
use crate::filter::{FilterContext, TableCreationReason};
use crate::jobs::Work;
use crate::memtable::Memtable;
use crate::read::merging::MergingIter;
use crate::shared::{Shared, State};
use crate::version::edit::{NewFile, VersionEdit};
use crate::version::set::next_version;

/// The next flush, if a family has enough immutable memtables and none of its own under way.
pub(crate) fn next(db: &Arc<Shared>, state: &mut State) -> Option<Work> {
    let families = db.families.load();
    let family = families
        .iter()
        .find(|f| !state.flushing.contains(&f.id) && f.flush_due() && !f.is_dropped())?;
    let family = Arc::clone(family);
    state.flushing.push(family.id);
    Some(Box::new(move |db| {
        let result = flush_family(db, &family);
        db.state().flushing.retain(|&id| id != family.id);
        result
    }))
}

/// Writes all immutable memtables of the family to one table and installs it.
pub(crate) fn flush_family(db: &Shared, family: &Arc<Family>) -> Result<()> {
    family.flush_requested.store(false, Ordering::Relaxed);
    let mut memtables = family.view.load().imm.clone();
    if memtables.is_empty() {
        return Ok(());
    }
    memtables.reverse(); // oldest first
    let file = write_level0(db, family, &memtables).or_else(|e| {
        // A filter that panics keeps no data from its table: it is not called again.
        let filter = e.kind() == ErrorKind::Aborted && family.filter_failed.load(Ordering::Relaxed);
        if !filter {
            return Err(e);
        }
        db.log.error(format_args!("flush begun again: {e}"));
        write_level0(db, family, &memtables)
    })?;
    if db.families.load().iter().nth(1).is_some() {
        // Not while holding the log: writers go on.
        for log in db.with_log(|log| Ok(log.closed_unsynced()))? {
            log.sync()?;
        }
        db.with_log(|log| {
            log.note_closed();
            Ok(())
        })?;
        db.track_closed_logs()?;
    }
    let log_number = memtables
        .last()
        .map(|m| m.next_log_number())
        .unwrap_or_default();
    let mut edit = VersionEdit {
        column_family: family.id,
        log_number: Some(log_number.0),
        ..Default::default()
    };
    edit.new_files.extend(file);
    install(db, family, &memtables, edit)
}

/// Merges the memtables into one level 0 table; `None` if nothing of them is worth writing.
pub(crate) fn write_level0(
    db: &Shared,
    family: &Arc<Family>,
    memtables: &[Arc<Memtable>],
) -> Result<Option<NewFile>> {
    let ctx = OutputContext::of(db, family);
    let snapshots = db.snapshots.sequences();
    write_memtables(&ctx, memtables, &snapshots, db)
}

fn write_memtables(
    ctx: &OutputContext<'_>,
    memtables: &[Arc<Memtable>],
    snapshots: &[SequenceNumber],
    db: &Shared,
) -> Result<Option<NewFile>> {
    let start = db.env().clock.wall_micros();
    let number = ctx.numbers.take();
    db.log.event(
        &Event::new("flush_started")
            .number("num_memtables", memtables.len() as u64)
            .number(
                "num_entries",
                memtables.iter().map(|m| m.len() as u64).sum(),
            )
            .number(
                "num_deletes",
                memtables.iter().map(|m| m.num_deletes()).sum(),
            )
            .number(
                "num_range_deletes",
                memtables.iter().map(|m| m.num_range_deletes()).sum(),
            )
            .number(
                "total_data_size",
                memtables.iter().map(|m| m.data_bytes()).sum(),
            )
            .number(
                "memory_usage",
                memtables.iter().map(|m| m.memory_usage() as u64).sum(),
            )
            .text("flush_reason", "Write Buffer Full"),
    );
    let new = build_level0(ctx, memtables, snapshots, number)?;
    if let Some(new) = &new {
        db.count(Ticker::FlushWriteBytes, new.meta.file_size);
        let micros = db.env().clock.wall_micros().saturating_sub(start);
        db.log.event(
            &Event::new("table_file_creation")
                .text("cf_name", &ctx.family.name)
                .number("file_number", new.meta.number.0)
                .number("file_size", new.meta.file_size)
                .number("flush_micros", micros),
        );
    } else {
        db.log.info(format_args!("flush: nothing left to write"));
    }
    Ok(new)
}

/// Merges memtables into the table `number`; recovery uses it before the database exists.
pub(crate) fn build_level0(
    ctx: &OutputContext<'_>,
    memtables: &[Arc<Memtable>],
    snapshots: &[SequenceNumber],
    number: base::FileNumber,
) -> Result<Option<NewFile>> {
    let children: Vec<Box<dyn InternalIterator>> = memtables
        .iter()
        .map(|m| Box::new(m.iter()) as Box<dyn InternalIterator>)
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
        reason: TableCreationReason::Flush,
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

/// Makes the edit durable, then swaps the family's View.
fn install(
    db: &Shared,
    family: &Arc<Family>,
    memtables: &[Arc<Memtable>],
    mut edit: VersionEdit,
) -> Result<()> {
    let mut versions = db.lock_versions();
    if family.is_dropped() {
        // The MANIFEST does not know the family any more.
        for new in &edit.new_files {
            let path = files::table_path(&db.dir, new.meta.number);
            db.tables.janitor.add(path);
        }
        return Ok(());
    }
    let version = Arc::new(next_version(&db.tables, family, &edit)?);
    let families = db.families.load();
    let needed = families
        .iter()
        .map(|f| {
            if f.id == family.id {
                edit.log_number.unwrap_or(0)
            } else {
                f.log_number().0
            }
        })
        .min()
        .unwrap_or(0);
    let needed = needed.max(versions.min_log_number_to_keep);
    if needed > versions.min_log_number_to_keep {
        edit.min_log_number_to_keep = Some(needed);
    }
    let log_number = edit.log_number.unwrap_or(0);
    let last = db.visible().0;
    versions.log(&db.tables, &db.numbers, &families, last, edit)?;
    // Not before: a MANIFEST that begins just now describes the database without this edit.
    versions.min_log_number_to_keep = needed;
    let state = db.state();
    let view = family.view.load_full();
    family
        .view
        .store(Arc::new(view.flushed(memtables, version)));
    family.set_log_number(base::FileNumber(log_number));
    drop(state);
    drop(versions);
    db.notify();
    Ok(())
}
