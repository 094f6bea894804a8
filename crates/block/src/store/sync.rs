//! Proofs that blocks are durable in the data file. The log can be truncated only with a [`SyncTicket`], and
//! only an fdatasync that has returned makes one.
//!
//! ```text
//!   Dirty::mark ──> Marked ──> Data::write_back ──> Written ──> Written::sync ──> SyncTicket
//!     one slot a group           nothing removed      consumed: no second try       settle, checkpoint
//! ```
//!
//! The constructors are private to this file. A group has one [`SyncSlot`], so two write-backs of a block
//! can never overtake each other, and no list of dirty blocks can be taken twice.

use base::{Error, Result};

use super::data::Data;
use super::dirty::Write;
use crate::ids::{Group, Index};

/// The right of a group to have blocks on their way. Each group has exactly one.
#[derive(Debug)]
#[must_use = "without it the group never writes anything back"]
pub struct SyncSlot {
    group: Group,
}

impl SyncSlot {
    /// The slot of a new dirty map.
    pub(super) fn only_one_of(group: Group) -> Self {
        Self { group }
    }

    pub(super) fn is_of(&self, group: Group) -> bool {
        self.group == group
    }

    /// The blocks to be written back; once they are durable, everything up to `through` is.
    pub(super) fn mark(self, through: Index, writes: Vec<Write>) -> Marked {
        Marked {
            slot: self,
            through,
            writes,
        }
    }
}

/// A group's blocks that are to be written back.
#[derive(Debug)]
#[must_use = "give it back, or write it back"]
pub struct Marked {
    slot: SyncSlot,
    through: Index,
    writes: Vec<Write>,
}

impl Marked {
    /// The group.
    pub fn group(&self) -> Group {
        self.slot.group
    }

    /// The blocks, in order.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    pub(super) fn take_apart(self) -> (SyncSlot, Vec<Write>) {
        (self.slot, self.writes)
    }
}

/// Blocks that are written to the operating system, and not durable yet.
#[derive(Debug)]
#[must_use = "nothing of it is durable yet"]
pub struct Written<'d> {
    data: &'d mut Data,
    marks: Vec<(SyncSlot, Index)>,
}

/// Blocks that could not be written; they are still in memory.
#[derive(Debug)]
pub struct Failed {
    /// The error.
    pub error: Error,
    /// The blocks, to be given back to each [`Dirty`](super::dirty::Dirty).
    pub marked: Vec<Marked>,
}

impl Data {
    /// Writes blocks and the pages of their extents to the operating system; `pace` is called with the bytes of
    /// each write before it, and may wait. Errors: the blocks stay with the caller.
    pub fn write_back(
        &mut self,
        marked: Vec<Marked>,
        pace: &mut dyn FnMut(u64),
    ) -> Result<Written<'_>, Failed> {
        for m in &marked {
            if let Err(error) = self.write(m.group(), m.writes(), pace) {
                return Err(Failed { error, marked });
            }
        }
        let marks = marked.into_iter().map(|m| (m.slot, m.through)).collect();
        Ok(Written { data: self, marks })
    }
}

impl Written<'_> {
    /// One fdatasync for all blocks. Errors: it is unknown what is durable, and nothing may be tried again;
    /// every later call on the data file returns the error.
    pub fn sync(self) -> Result<Vec<(SyncTicket, SyncSlot)>> {
        self.data.sync()?;
        let tickets = self.marks.into_iter().map(|(slot, through)| {
            let group = slot.group;
            (SyncTicket { group, through }, slot)
        });
        Ok(tickets.collect())
    }
}

/// The proof that everything of a group up to an entry is durable in the data file.
#[derive(Debug)]
#[must_use = "the log is kept until somebody shows it"]
pub struct SyncTicket {
    group: Group,
    through: Index,
}

impl SyncTicket {
    /// The group.
    pub fn group(&self) -> Group {
        self.group
    }

    /// The last entry that is covered.
    pub fn through(&self) -> Index {
        self.through
    }
}
