//! A walk over the data blocks of an index whose blocks are read when they are needed.
//!
//! ```text
//!   Root(aim) ──> Leaf(aim) ──> There ── next, prev ──> There, or Leaf of the partition beside it, or Ended
//!      needs the top level  needs a partition
//! ```
//!
//! The walk itself reads nothing: it says which block it needs, and goes on when it is given that block.
#![deny(clippy::indexing_slicing)]

use base::{Comparator, Error, Result};

use super::{StoredIndex, bad};
use crate::block::Target;
use crate::handle::BlockHandle;

/// Where the index begins.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Root {
    pub(crate) handle: BlockHandle,
    /// Whether its entries are partitions, not data blocks.
    pub(crate) is_partitioned: bool,
}

/// What a walk looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aim {
    /// The first block that can hold an entry not before the target.
    Seek,
    First,
    Last,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Looks for the partition.
    Root(Aim),
    /// Looks for the entry in the partition.
    Leaf(Aim),
    /// Is at an entry, or behind the last one of a partition.
    There,
    Ended,
}

/// Where a walk has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// At this data block.
    At(BlockHandle),
    /// Before the first data block, or behind the last one.
    End,
    /// It needs this block of the index.
    Needs(BlockHandle),
}

/// A walk: see the module.
#[derive(Clone, Debug)]
pub(crate) struct Walk {
    phase: Phase,
    /// The top level, if the index is partitioned.
    top: Option<StoredIndex>,
    /// The partition, as an entry of the top level.
    part: usize,
    /// The partition, or the whole index.
    leaf: Option<(BlockHandle, StoredIndex)>,
    at: usize,
}

impl Walk {
    pub(crate) fn new(aim: Aim) -> Self {
        Self {
            phase: Phase::Root(aim),
            top: None,
            part: 0,
            leaf: None,
            at: 0,
        }
    }

    /// Begins anew, and keeps the blocks that it has.
    pub(crate) fn restart(&mut self, aim: Aim) {
        self.phase = Phase::Root(aim);
    }

    /// Goes to the next block; nothing happens at the end.
    pub(crate) fn next(&mut self) {
        if self.phase == Phase::There {
            self.at += 1;
        }
    }

    /// Goes to the block before; nothing happens at the end.
    pub(crate) fn prev(&mut self) {
        if self.phase != Phase::There {
            return;
        }
        match (self.at.checked_sub(1), self.part.checked_sub(1)) {
            (Some(at), _) => self.at = at,
            (None, Some(part)) => {
                self.part = part;
                self.phase = Phase::Leaf(Aim::Last);
            }
            (None, None) => self.phase = Phase::Ended,
        }
    }

    /// Takes the block that it needed.
    pub(crate) fn give(&mut self, root: Root, of: BlockHandle, index: StoredIndex) {
        if root.is_partitioned && self.top.is_none() {
            self.top = Some(index);
        } else {
            self.leaf = Some((of, index));
        }
    }

    /// Goes on as far as it can. `target` is what [`Aim::Seek`] seeks.
    ///
    /// Errors: a block of the index is damaged.
    pub(crate) fn step(
        &mut self,
        root: Root,
        comparator: &Comparator,
        target: Option<&Target<'_>>,
    ) -> Result<Step> {
        loop {
            match self.phase {
                Phase::Root(aim) => {
                    self.part = 0;
                    if root.is_partitioned {
                        let Some(top) = &self.top else {
                            return Ok(Step::Needs(root.handle));
                        };
                        self.part = choose(top, aim, comparator, target)?;
                    }
                    self.phase = Phase::Leaf(aim);
                }
                Phase::Leaf(aim) => {
                    let Some(of) = self.partition(root)? else {
                        self.phase = Phase::Ended;
                        continue;
                    };
                    let leaf = self.leaf.as_ref().filter(|(at, _)| *at == of);
                    let Some((_, leaf)) = leaf else {
                        return Ok(Step::Needs(of));
                    };
                    self.at = choose(leaf, aim, comparator, target)?;
                    let is_empty = leaf.len()? == 0;
                    self.phase = match (aim, self.part.checked_sub(1)) {
                        (Aim::Last, Some(part)) if is_empty => {
                            self.part = part;
                            Phase::Leaf(Aim::Last)
                        }
                        (Aim::Last, None) if is_empty => Phase::Ended,
                        _ => Phase::There,
                    };
                }
                Phase::There => {
                    let leaf = self.leaf.as_ref();
                    if let Some((_, leaf)) = leaf
                        && let Some(handle) = leaf.handle(self.at)?
                    {
                        return Ok(Step::At(handle));
                    }
                    // An index that is not partitioned has no next partition.
                    self.part += 1;
                    self.phase = Phase::Leaf(Aim::First);
                }
                Phase::Ended => return Ok(Step::End),
            }
        }
    }

    /// Where the partition is; `None` behind the last one.
    fn partition(&self, root: Root) -> Result<Option<BlockHandle>> {
        if !root.is_partitioned {
            return Ok(Some(root.handle).filter(|_| self.part == 0));
        }
        let Some(top) = &self.top else {
            return Err(Error::broken("a partition without a top level"));
        };
        let Some(part) = top.handle(self.part)? else {
            return Ok(None);
        };
        // Otherwise a small file could have any number of blocks.
        if let Some(before) = self.part.checked_sub(1)
            && let Some(before) = top.handle(before)?
            && part.offset < before.offset.saturating_add(before.size)
        {
            return Err(bad("partitions overlap"));
        }
        Ok(Some(part))
    }

    /// The partition, or the whole index, once the walk has it.
    pub(crate) fn part(&self) -> Option<BlockHandle> {
        self.leaf.as_ref().map(|(of, _)| *of)
    }

    /// The block of the index that the walk looks at, to be named in errors.
    pub(crate) fn looks_at(&self, root: Root) -> BlockHandle {
        match (self.phase, &self.leaf) {
            (Phase::There, Some((leaf, _))) => *leaf,
            (Phase::Leaf(_), Some((leaf, _))) if self.partition(root).ok() == Some(Some(*leaf)) => {
                *leaf
            }
            _ => root.handle,
        }
    }

    /// The first block of this partition, from the current one on, that ends after this offset of the file.
    pub(crate) fn first_ending_after(&self, offset: u64) -> Option<BlockHandle> {
        let (_, leaf) = self.leaf.as_ref()?;
        // What is damaged is said when the walk comes there.
        leaf.first_ending_after(self.at, offset).ok().flatten()
    }

    /// The separator after the block that the walk is at, as stored. Errors: the block of the index is damaged.
    pub(crate) fn separator(&self) -> Result<Option<&[u8]>> {
        match &self.leaf {
            Some((_, leaf)) => leaf.separator(self.at),
            None => Ok(None),
        }
    }
}

/// The entry that is looked for.
fn choose(
    index: &StoredIndex,
    aim: Aim,
    comparator: &Comparator,
    target: Option<&Target<'_>>,
) -> Result<usize> {
    match (aim, target) {
        (Aim::Seek, Some(target)) => index.seek(comparator, target),
        (Aim::Seek, None) => Err(Error::broken("a seek without a target")),
        (Aim::First, _) => Ok(0),
        (Aim::Last, _) => Ok(index.len()?.saturating_sub(1)),
    }
}
