//! Proofs that blocks are durable in the data file. Who wants the log cut needs a [`SyncTicket`], and the only
//! way to one leads through an fdatasync that has returned.
//!
//! ```text
//!   Dirty::mark ──> Marked ──> Data::write_back ──> Written ──> Written::sync ──> SyncTicket
//!     one slot a group           nothing removed      consumed: no second try       settle, checkpoint
//! ```
//!
//! The constructors are private to this file. A group has one [`SyncSlot`]: two write-backs of a block can
//! never overtake each other, and no list of dirty blocks can be taken away while somebody waits for it.

use base::{Error, Result};

use super::data::Data;
use super::dirty::Write;
use crate::ids::{Group, Index};

/// The right of a group to have blocks on their way. There is one of each group.
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

    /// All that was dirty when everything up to `through` was applied.
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

    /// The blocks, in their order.
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    pub(super) fn take_apart(self) -> (SyncSlot, Vec<Write>) {
        (self.slot, self.writes)
    }
}

/// Blocks that the system has, to be made durable.
#[derive(Debug)]
#[must_use = "nothing of it is durable yet"]
pub struct Written<'d> {
    data: &'d mut Data,
    marks: Vec<(SyncSlot, Index)>,
}

/// Blocks that could not be written: the bytes are here still.
#[derive(Debug)]
pub struct Failed {
    /// Why.
    pub error: Error,
    /// What, to be given back to each [`Dirty`](super::dirty::Dirty).
    pub marked: Vec<Marked>,
}

impl Data {
    /// Writes blocks and the pages of their extents to the system; `pace` is told the bytes before each write,
    /// and may wait. Errors: the blocks are still the caller's.
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
    /// One fdatasync for all. Errors: what is durable is not known, and nothing may be tried again: the data
    /// file is spoilt, and every later call of it returns the error.
    pub fn sync(self) -> Result<Vec<(SyncTicket, SyncSlot)>> {
        self.data.sync()?;
        let tickets = self.marks.into_iter().map(|(slot, through)| {
            let group = slot.group;
            (SyncTicket { group, through }, slot)
        });
        Ok(tickets.collect())
    }
}

/// Everything of the group up to here is durable in the data file.
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

    /// Up to which entry.
    pub fn through(&self) -> Index {
        self.through
    }
}
