//! Decides whether a damaged page is the harmless result of a power cut, or whether blocks are lost.
//!
//! A power cut damages a page only while it is written. Then its content comes from entries behind the group's
//! checkpoint, or from blocks of a copy, and both are repaired: the entries are applied again, and the copy is
//! repeated. Otherwise the page was durable once and was damaged since. Without it, blocks would be older than
//! acknowledged, or zero, so such a store does not open.
//!
//! Excused pages are rewritten at once, because a later opening may find another log.
//!
//! One case is not detected: a durable page was damaged later, and entries behind the checkpoint change its
//! extent.

use std::collections::BTreeSet;
use std::path::Path;

use base::{Error, Result};

use crate::group::command::Command;
use crate::ids::{EXTENT_BLOCKS, Index};
use crate::raftlog::groups::Groups;
use crate::store::data::{ChunkKey, Doubtful};
use crate::store::page::Doubt;

/// The extents that replaying the log will write again.
#[derive(Debug, Default)]
struct Again {
    /// Extents of chunks that entries behind the checkpoints change.
    extents: BTreeSet<(ChunkKey, u8)>,
}

impl Again {
    /// Errors: an entry cannot be read.
    fn of(groups: &Groups) -> Result<Self> {
        let mut again = Self::default();
        for (group, log) in groups.iter() {
            for index in log.synced().0.0 + 1..=log.last().0 {
                let Some(entry) = log.entry(Index(index)) else {
                    continue;
                };
                if entry.flags != 0 || entry.inline.is_empty() {
                    continue;
                }
                let (command, _) = Command::decode(&entry.inline, entry.payload.bytes as usize)?;
                let extents = command.range.keys().map(|key| {
                    let extent = (key.block.0 / EXTENT_BLOCKS) as u8;
                    (ChunkKey::of(group, &key), extent)
                });
                again.extents.extend(extents);
            }
        }
        Ok(again)
    }
}

/// The damaged pages that mean lost blocks, an error for each extent. `chunks`: those that have a slot; `path`:
/// the data file. Errors: an entry of the log cannot be read.
pub fn lost(
    doubtful: &[Doubtful],
    groups: &Groups,
    chunks: &BTreeSet<ChunkKey>,
    path: &Path,
) -> Result<Vec<Error>> {
    if doubtful.is_empty() {
        return Ok(Vec::new());
    }
    let again = Again::of(groups)?;
    let is_excused = |d: &&Doubtful| match d.chunk {
        _ if d.doubt == Doubt::Older => true,
        _ if d.doubt == (Doubt::Both { is_first: false }) => false,
        Some(chunk) => {
            let is_copying = groups
                .get(chunk.group)
                .is_some_and(|log| log.copying() > log.synced().0);
            is_copying || again.extents.contains(&(chunk, d.extent))
        }
        // The slot was new, so it belonged to a chunk that has no other slot.
        None => {
            let is_copying = groups.iter().any(|(_, log)| log.copying() > log.synced().0);
            let mut changed = again.extents.iter();
            is_copying || changed.any(|(c, extent)| *extent == d.extent && !chunks.contains(c))
        }
    };
    let lost = doubtful.iter().filter(|d| !is_excused(d));
    Ok(lost
        .map(|d| error(d).file(path).offset(d.offset()))
        .collect())
}

fn error(doubtful: &Doubtful) -> Error {
    let pages = match doubtful.doubt {
        Doubt::Older | Doubt::Newer => "a page",
        Doubt::Both { .. } => "both pages",
    };
    let of = doubtful.chunk.map_or(
        "a chunk that is not known".to_owned(),
        |ChunkKey {
             group, tree, chunk, ..
         }| format!("chunk {chunk} of tree {tree} in group {group}"),
    );
    Error::corruption(format!(
        "{pages} of extent {} in slot {} of {of} cannot be read, and the log does not have what was there",
        doubtful.extent, doubtful.slot
    ))
    .hint("this store has lost blocks, so it must not serve: leave it out, and look after its disk; others have them")
}
