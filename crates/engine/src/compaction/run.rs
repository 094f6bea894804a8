//! Merges the inputs of a compaction into new tables.

use std::cmp::Ordering;
use std::sync::Arc;

use base::stats::Ticker;
use base::{Error, ErrorKind, Result, SequenceNumber, key};
use table::InternalIterator;

use super::filter::Filter;
use super::merge::{DropRules, MayExistBelow, Merge};
use super::output::{Output, OutputContext};
use super::pick::{MANUAL, Pick};
use super::tombstones::{Hidden, Tombstones};
use crate::family::Family;
use crate::files;
use crate::filter::{FilterContext, TableCreationReason};
use crate::read::level::LevelIter;
use crate::read::merging::MergingIter;
use crate::shared::Shared;
use crate::version::Version;
use crate::version::edit::NewFile;

/// Bytes that a compaction reads at once from each input: RocksDB's default since 8.7.
const READAHEAD_BYTES: usize = 2 << 20;

/// Entries between two looks at whether the database is being closed.
const CHECK_EVERY: u64 = 4096;

/// Writes the survivors of the inputs to new tables of about `target_file_size_base` bytes.
///
/// Errors leave the database as it was; what was written is removed.
pub(crate) fn run(db: &Arc<Shared>, family: &Arc<Family>, pick: &Pick) -> Result<Vec<NewFile>> {
    let mut done = Vec::new();
    let result = write_outputs(db, family, pick, &mut done);
    if result.is_err() {
        for new in &done {
            db.tables
                .janitor
                .add(files::table_path(&db.dir, new.meta.number));
        }
    }
    let read: u64 = pick.files().map(|(_, f)| f.meta.file_size).sum();
    db.count(Ticker::CompactReadBytes, read);
    db.count(
        Ticker::CompactWriteBytes,
        done.iter().map(|f| f.meta.file_size).sum(),
    );
    result.map(|()| done)
}

fn write_outputs(
    db: &Arc<Shared>,
    family: &Arc<Family>,
    pick: &Pick,
    done: &mut Vec<NewFile>,
) -> Result<()> {
    let mut ctx = OutputContext::of(db, family);
    ctx.epoch = pick
        .files()
        .filter_map(|(_, f)| f.meta.epoch_number)
        .min()
        .unwrap_or(0);
    ctx.oldest_ancestor_time = pick
        .files()
        .map(|(_, f)| f.meta.oldest_ancestor_time)
        .filter(|&t| t > 0)
        .min()
        .unwrap_or(ctx.now);
    let cmp = family.comparator();
    let snapshots = db.snapshots.sequences();
    let tombstones = tombstones(family, pick, &snapshots)?;
    let rules = DropRules::drop_deletions(
        cmp.clone(),
        snapshots.clone(),
        below(
            Arc::clone(&pick.version),
            pick.output_level,
            db.options.db.allow_ingest_behind,
        ),
    )
    .family(&ctx)
    .filter(Filter::of(family, &filter_context(family, pick))?)
    .without(tombstones.clone().map(|t| Hidden::by(t, &snapshots)));
    let mut merge = Merge::new(Box::new(input(family, pick)), rules);
    let limit = target_size(family, pick.output_level);
    let mut output = Output::new(&ctx, pick.output_level, db.numbers.take());
    let mut entries = 0u64;
    // Where the output begins, if it is not the first.
    let mut from: Option<Vec<u8>> = None;
    merge.start()?;
    while merge.valid() {
        // All versions of a key go to one file: files of a level share no user key.
        if output.size() >= limit
            && output.last_user_key().is_some_and(|last| {
                cmp.compare(last, key::user_key(merge.key())) != Ordering::Equal
            })
        {
            let to = key::user_key(merge.key());
            if let Some(t) = &tombstones {
                output.add_tombstones(t.between(from.as_deref(), Some(to)))?;
            }
            from = Some(to.to_vec());
            let next = Output::new(&ctx, pick.output_level, db.numbers.take());
            done.extend(std::mem::replace(&mut output, next).finish()?);
        }
        output.add(merge.key(), merge.value())?;
        merge.next()?;
        entries += 1;
        if entries.is_multiple_of(CHECK_EVERY) && db.is_closing() {
            return Err(Error::new(
                ErrorKind::ShutdownInProgress,
                "compaction given up",
            ));
        }
    }
    if let Some(t) = &tombstones {
        output.add_tombstones(t.between(from.as_deref(), None))?;
        db.count(Ticker::CompactionKeyDropRangeDel, merge.num_hidden());
    }
    done.extend(output.finish()?);
    Ok(())
}

/// The range tombstones of the inputs, without those that have nothing below to hide.
fn tombstones(
    family: &Family,
    pick: &Pick,
    snapshots: &[SequenceNumber],
) -> Result<Option<Arc<Tombstones>>> {
    let inputs = pick.files().map(|(_, f)| f);
    let mut all = Tombstones::of_files(family.comparator(), inputs, snapshots)?;
    if let Some(all) = &mut all {
        let version = &pick.version;
        // Level 0 is no order by itself: what is written there may lie above any other of its files.
        let first = match pick.output_level {
            0 => 0,
            level => level + 1,
        };
        all.drop_obsolete(snapshots, &|begin, end| {
            (first..version.num_levels()).any(|level| version.has_between(level, begin, end))
        });
    }
    Ok(all.map(Arc::new))
}

fn filter_context(family: &Family, pick: &Pick) -> FilterContext {
    FilterContext {
        is_full_compaction: pick.files().count() == pick.version.files().count(),
        is_manual_compaction: pick.reason == MANUAL,
        input_start_level: pick.inputs.first().map_or(0, |(level, _)| *level),
        column_family_id: family.id,
        reason: TableCreationReason::Compaction,
    }
}

/// `target_file_size_base`, times `target_file_size_multiplier` per level below the first.
fn target_size(family: &Family, level: usize) -> u64 {
    let options = &family.options.cf;
    let factor = u64::from(options.target_file_size_multiplier.max(1).unsigned_abs());
    (1..level).fold(options.target_file_size_base, |size, _| {
        size.saturating_mul(factor)
    })
}

fn input(family: &Family, pick: &Pick) -> MergingIter {
    let options = table::ReadOptions {
        verify_checksums: true,
        fill_cache: false,
        readahead_bytes: READAHEAD_BYTES,
        cache_only: false,
    };
    let cmp = family.comparator();
    let mut children: Vec<Box<dyn InternalIterator>> = Vec::new();
    for (level, files) in &pick.inputs {
        if *level == 0 {
            for f in files {
                let one = vec![Arc::clone(f)];
                children.push(Box::new(LevelIter::new(cmp.clone(), one, options)));
            }
        } else {
            children.push(Box::new(LevelIter::new(
                cmp.clone(),
                files.clone(),
                options,
            )));
        }
    }
    MergingIter::new(cmp.clone(), children)
}

/// Whether a key may be in a level below the output. Asked with ascending keys, so each level
/// keeps a position and the whole compaction walks over it once. Where files may be ingested behind
/// everything, any key may still come.
fn below(version: Arc<Version>, output_level: usize, ingest_behind: bool) -> MayExistBelow {
    if ingest_behind {
        return Box::new(|_| true);
    }
    let mut positions = vec![0usize; version.num_levels()];
    Box::new(move |user_key| {
        for (level, at) in positions.iter_mut().enumerate().skip(output_level + 1) {
            let files = version.level(level);
            while let Some(f) = files.get(*at) {
                if version.comparator.compare(f.largest_user_key(), user_key) != Ordering::Less {
                    if version.comparator.compare(f.smallest_user_key(), user_key)
                        != Ordering::Greater
                    {
                        return true;
                    }
                    break;
                }
                *at += 1;
            }
        }
        false
    })
}
