//! `ctl store check`: everything of a store is read, and compared with its checksums.
//!
//! A block whose checksum is another may be one that was being written when the store's process died: then the
//! log has it, and opening the store writes it again. So entries of the log are read first, and blocks that
//! they write are not damage.

use std::collections::BTreeSet;
use std::process::ExitCode;

use base::checksum::crc32c;
use base::{Error, Result};
use block::group::command::Command;
use block::ids::{BLOCK, CHUNK_EXTENTS, Chunk, EXTENT_BLOCKS, Group, Tree};
use block::raftlog::batch::{Item, Kind};
use block::raftlog::scan::Scan;
use block::store::data::SLOT_BYTES;
use block::store::page::{self, Page};
use block::store::trailer::Trailer;
use io::{AlignedBuf, File, OpenHow, buffer::PAGE};

use crate::offline::Offline;
use crate::{cli, print};

/// A block of a chunk, as the log names it.
type Name = (Group, Tree, Chunk, u32);

/// What was found.
#[derive(Default)]
struct Report {
    batches: u64,
    entries: u64,
    extents: u64,
    blocks: u64,
    /// Blocks that the log would write again.
    in_log: u64,
    damage: Vec<String>,
}

/// Reads everything; the exit code says whether all of it is well.
pub(crate) fn run(args: &cli::Offline) -> Result<ExitCode> {
    let store = Offline::open(&args.dir)?;
    let mut report = Report::default();
    let mut in_log = BTreeSet::new();
    for (number, file) in store.logs()? {
        if let Err(e) = check_log(&*file, &mut report, &mut in_log) {
            report.damage.push(format!("log file {number}: {e}"));
        }
    }
    let path = store.dir.join("data");
    let data = store.fs.open(&path, OpenHow::READ.direct())?;
    let block = &store.superblock;
    let trailer = Trailer::read(&*data, u64::from(block.slots) * SLOT_BYTES);
    if let Err(e) = trailer.and_then(|t| t.check(block.store, block.openings)) {
        report.damage.push(format!("data: {e}"));
    }
    for slot in 0..store.superblock.slots {
        if let Err(e) = check_slot(&*data, slot, &in_log, &mut report) {
            report.damage.push(format!("slot {slot}: {e}"));
        }
    }
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

fn check_log(file: &dyn File, report: &mut Report, in_log: &mut BTreeSet<Name>) -> Result<()> {
    let mut scan = Scan::begin(file)?;
    while let Some(found) = scan.next_batch()? {
        report.batches += 1;
        let entries = found.items.iter().filter(|i| i.kind == Kind::Entry);
        for item in entries {
            report.entries += 1;
            note(item, in_log)?;
        }
    }
    Ok(())
}

fn note(item: &Item, in_log: &mut BTreeSet<Name>) -> Result<()> {
    if item.flags != 0 || item.inline.is_empty() {
        return Ok(());
    }
    let (command, _) = Command::decode(&item.inline, item.payload.len())?;
    let range = command.range;
    for key in range.keys() {
        in_log.insert((item.group, range.tree, range.chunk, key.block.0));
    }
    Ok(())
}

fn check_slot(
    data: &dyn File,
    slot: u32,
    in_log: &BTreeSet<Name>,
    report: &mut Report,
) -> Result<()> {
    let at = u64::from(slot) * SLOT_BYTES;
    let head_bytes = usize::from(CHUNK_EXTENTS) * 2 * page::LEN;
    let mut head = AlignedBuf::zeroed(head_bytes, PAGE)?;
    io::read_exact_at(data, &mut head, at)?;
    let mut extent = AlignedBuf::zeroed(EXTENT_BLOCKS as usize * BLOCK, PAGE)?;
    for (nth, copies) in (0..).zip(head.chunks_exact(2 * page::LEN)) {
        let (first, second) = copies.split_at(page::LEN);
        let Some(page) = Page::newer([first, second])? else {
            continue;
        };
        report.extents += 1;
        let from = at + head_bytes as u64 + nth * extent.len() as u64;
        io::read_exact_at(data, &mut extent, from)?;
        for (block, bytes) in (0..).zip(extent.chunks_exact(BLOCK)) {
            let Some(crc) = page.crc(block) else {
                continue;
            };
            report.blocks += 1;
            let o = &page.owner;
            let number = o.block(block).0;
            let is_in_log = in_log.contains(&(o.group, o.tree, o.chunk, number));
            report.in_log += u64::from(is_in_log);
            if crc32c(bytes) != crc && !is_in_log {
                let e = Error::corruption(format!(
                    "block {number} of chunk {} of tree {} in group {} has another checksum",
                    o.chunk, o.tree, o.group
                ));
                report.damage.push(format!("slot {slot}: {e}"));
            }
        }
    }
    Ok(())
}
