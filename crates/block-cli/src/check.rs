//! `ctl store check`: reads everything in a store, and verifies the checksums.
//!
//! A block with a wrong checksum may have been on its way when the store's process died: then the log has it
//! behind the group's checkpoint, and opening the store writes it again. So the log is read first, as an
//! opening reads it, and blocks that the opening would write again do not count as damage.

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;

use base::checksum::crc32c;
use base::{Error, Result};
use block::group::command::Command;
use block::ids::{BLOCK, CHUNK_EXTENTS, Chunk, EXTENT_BLOCKS, Group, Index, Slot, Tree};
use block::raftlog::batch::Kind;
use block::raftlog::groups::Groups;
use block::raftlog::scan::Scan;
use block::shard::doubts;
use block::store::data::{ChunkKey, Doubtful, SLOT_BYTES};
use block::store::page::{self, Doubt, Page};
use block::store::trailer::Trailer;
use io::{AlignedBuf, File, OpenHow, buffer::PAGE};

use crate::offline::Offline;
use crate::{cli, print};

/// A block of a chunk.
type Name = (Group, Tree, Chunk, u32);

/// The result of the check.
#[derive(Default)]
struct Report {
    batches: u64,
    entries: u64,
    extents: u64,
    blocks: u64,
    /// Blocks that an opening would write again.
    in_log: u64,
    damage: Vec<String>,
    /// The chunk of each slot, according to its pages.
    owners: BTreeMap<Slot, ChunkKey>,
    /// Extents with damaged pages: slot and number.
    damaged_pages: Vec<(Slot, u8, Doubt)>,
}

/// Checks everything; the exit code says whether there is damage.
pub(crate) fn run(args: &cli::Offline) -> Result<ExitCode> {
    let store = Offline::open(&args.dir)?;
    let mut report = Report::default();
    let (in_log, groups) = check_logs(&store, &mut report)?;
    check_data(&store, &in_log, &groups, &mut report)?;
    if args.json {
        let all = serde_json::json!({
            "store": store.superblock.store.to_string(), "batches": report.batches,
            "entries": report.entries, "extents": report.extents, "blocks": report.blocks,
            "blocks_in_log": report.in_log, "damage": report.damage,
        });
        print(&all.to_string());
    } else {
        print(&format!(
            "store {}: {} batches with {} entries; {} extents with {} blocks, of which the log has {} newer",
            store.superblock.store,
            report.batches,
            report.entries,
            report.extents,
            report.blocks,
            report.in_log
        ));
        for damage in &report.damage {
            print(&format!("damaged: {damage}"));
        }
    }
    Ok(if report.damage.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// The blocks that an opening would write again, and the groups that it would find in the log. If the opening
/// would fail, all blocks that the log names, and no groups.
fn check_logs(store: &Offline, report: &mut Report) -> Result<(BTreeSet<Name>, Groups)> {
    let mut named = BTreeSet::new();
    let mut damage = Vec::new();
    for (_, file) in store.logs()? {
        if let Err(e) = check_log(&*file, report, &mut named) {
            damage.push(e.to_string());
        }
    }
    match store.log() {
        // A file that a crash has left may not be needed any more.
        Ok(groups) => Ok((to_be_written(&groups)?, groups)),
        Err(e) => {
            let text = e.to_string();
            damage.retain(|other| !text.starts_with(other));
            report.damage.push(text);
            report.damage.append(&mut damage);
            Ok((named, Groups::default()))
        }
    }
}

fn check_log(file: &dyn File, report: &mut Report, named: &mut BTreeSet<Name>) -> Result<()> {
    let mut scan = Scan::begin(file)?;
    while let Some(found) = scan.next_batch()? {
        report.batches += 1;
        let entries = found.items.iter().filter(|i| i.kind == Kind::Entry);
        for i in entries {
            report.entries += 1;
            note(i.group, (i.flags, &i.inline), i.payload.len(), named)?;
        }
    }
    Ok(())
}

fn to_be_written(groups: &Groups) -> Result<BTreeSet<Name>> {
    let mut all = BTreeSet::new();
    for (group, log) in groups.iter() {
        for index in log.synced().0.0 + 1..=log.last().0 {
            if let Some(e) = log.entry(Index(index)) {
                let bytes = e.payload.bytes as usize;
                note(group, (e.flags, &e.inline), bytes, &mut all)?;
            }
        }
    }
    Ok(all)
}

/// Adds the blocks of an entry.
fn note(
    group: Group,
    (flags, inline): (u8, &[u8]),
    payload_bytes: usize,
    out: &mut BTreeSet<Name>,
) -> Result<()> {
    if flags != 0 || inline.is_empty() {
        return Ok(());
    }
    let (command, _) = Command::decode(inline, payload_bytes)?;
    let range = command.range;
    for key in range.keys() {
        out.insert((group, range.tree, range.chunk, key.block.0));
    }
    Ok(())
}

fn check_data(
    store: &Offline,
    in_log: &BTreeSet<Name>,
    groups: &Groups,
    report: &mut Report,
) -> Result<()> {
    let path = store.dir.join("data");
    let data = store.fs.open(&path, OpenHow::READ.direct())?;
    let block = &store.superblock;
    let trailer = Trailer::read(&*data, u64::from(block.slots) * SLOT_BYTES);
    if let Err(e) = trailer.and_then(|t| t.check(block.store, block.openings)) {
        report.damage.push(e.to_string());
    }
    for slot in (0..block.slots).map(Slot) {
        if let Err(e) = check_slot(&*data, slot, in_log, report) {
            let at = u64::from(slot.0) * SLOT_BYTES;
            let e = e.or_file(&path).offset(at);
            report.damage.push(format!("slot {slot}: {e}"));
        }
    }
    let pages = std::mem::take(&mut report.damaged_pages).into_iter();
    let doubtful: Vec<Doubtful> = pages
        .map(|(slot, extent, doubt)| Doubtful {
            slot,
            extent,
            chunk: report.owners.get(&slot).copied(),
            doubt,
        })
        .collect();
    let chunks = report.owners.values().copied().collect();
    let lost = doubts::lost(&doubtful, groups, &chunks, &path)?;
    report.damage.extend(lost.iter().map(Error::to_string));
    Ok(())
}

fn check_slot(
    data: &dyn File,
    slot: Slot,
    in_log: &BTreeSet<Name>,
    report: &mut Report,
) -> Result<()> {
    let at = u64::from(slot.0) * SLOT_BYTES;
    let head_bytes = usize::from(CHUNK_EXTENTS) * 2 * page::LEN;
    let mut head = AlignedBuf::zeroed(head_bytes, PAGE)?;
    io::read_exact_at(data, &mut head, at)?;
    let mut extent = AlignedBuf::zeroed(EXTENT_BLOCKS as usize * BLOCK, PAGE)?;
    for (nth, copies) in (0..).zip(head.chunks_exact(2 * page::LEN)) {
        let (first, second) = copies.split_at(page::LEN);
        let (page, doubt) = Page::of_extent([first, second])?;
        report
            .damaged_pages
            .extend(doubt.map(|doubt| (slot, nth, doubt)));
        let Some(page) = page else { continue };
        let o = &page.owner;
        report.owners.insert(slot, ChunkKey::of_page(o));
        report.extents += 1;
        let from = at + head_bytes as u64 + u64::from(nth) * extent.len() as u64;
        io::read_exact_at(data, &mut extent, from)?;
        for (block, bytes) in (0..).zip(extent.chunks_exact(BLOCK)) {
            let Some(crc) = page.crc(block) else {
                continue;
            };
            report.blocks += 1;
            let number = o.block(block).0;
            let is_in_log = in_log.contains(&(o.group, o.tree, o.chunk, number));
            report.in_log += u64::from(is_in_log);
            if crc32c(bytes) != crc && !is_in_log {
                let e = Error::corruption(format!(
                    "block {number} of chunk {} of tree {} in group {} has another checksum",
                    o.chunk, o.tree, o.group
                ));
                let e = e
                    .file(data.path())
                    .offset(from + u64::from(block) * BLOCK as u64);
                report.damage.push(format!("slot {slot}: {e}"));
            }
        }
    }
    Ok(())
}
