//! Whether a power cut has left a damaged page, or something was lost with it.
//!
//! A page is damaged by a power cut only while it is written. What was to be in it are then entries behind the group's
//! checkpoint, or blocks of a copy, and the log has both: the entries are applied again, and the copy is taken anew. Where
//! it has neither, the page was durable once, and was damaged since. Without it blocks would be older than what was
//! answered, or zero, so such a store does not open.
//!
//! What is excused is mended at once: a later opening may have another log.
//!
//! One case cannot be told from the other: a durable page is damaged, and entries behind the checkpoint change its extent.

use std::collections::BTreeSet;
use std::path::Path;

use base::{Error, Result};

use crate::group::command::Command;
use crate::ids::{EXTENT_BLOCKS, Index};
use crate::raftlog::groups::Groups;
use crate::store::data::{ChunkKey, Doubtful};
use crate::store::page::Doubt;

/// What the log will have written again.
#[derive(Debug, Default)]
struct Again {
    /// Extents of chunks that entries behind the checkpoints change.
    extents: BTreeSet<(ChunkKey, u8)>,
}

impl Again {
    /// Errors: an entry that cannot be read.
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

/// What was lost with damaged pages, an error for each extent. `chunks`: those that have a slot; `path`: the data file.
/// Errors: the log has an entry that cannot be read.
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
        // The slot was new: a chunk that has none yet.
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
