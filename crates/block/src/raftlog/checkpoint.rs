//! Checkpoints of groups, and the proof that one is durable: the log drops entries for such a proof alone.

use bytes::Bytes;

use super::batch::{Item, Kind};
use crate::ids::{Group, Index, Term};
use crate::store::sync::SyncTicket;

/// A checkpoint to be appended: a group's state at an entry up to which its data is durable.
#[derive(Debug)]
#[must_use = "the log is kept until it is appended"]
pub struct Checkpoint {
    pub(super) group: Group,
    pub(super) through: Index,
    term: Term,
    state: Bytes,
}

impl Checkpoint {
    /// A checkpoint at the ticket's entry, with the term of that entry and the group's state there.
    #[expect(clippy::needless_pass_by_value, reason = "a ticket is shown once")]
    pub fn at(ticket: SyncTicket, term: Term, state: Bytes) -> Self {
        Self {
            group: ticket.group(),
            through: ticket.through(),
            term,
            state,
        }
    }

    /// The group.
    pub fn group(&self) -> Group {
        self.group
    }

    /// The term of the last entry that it covers.
    pub fn term(&self) -> Term {
        self.term
    }

    /// The group's state at that entry.
    pub fn state(&self) -> &Bytes {
        &self.state
    }

    /// The most bytes that it takes in a batch.
    pub fn bytes(&self) -> usize {
        128 + self.state.len() + self.state.len() / 512
    }

    pub(super) fn items(&self) -> impl Iterator<Item = Item> {
        let first = Item {
            kind: Kind::Checkpoint,
            flags: 0,
            group: self.group,
            index: self.through,
            term: self.term,
            inline: Bytes::new(),
            payload: Bytes::new(),
        };
        let state = Item::states(self.group, (self.through, self.term), &self.state);
        std::iter::once(first).chain(state)
    }
}

/// Proof that a group's data is durable up to an entry, and that the log has a durable checkpoint there.
#[derive(Debug)]
#[must_use = "the log is kept until somebody shows it"]
pub struct TruncateToken {
    pub(super) group: Group,
    pub(super) through: Index,
}

impl TruncateToken {
    /// The group.
    pub fn group(&self) -> Group {
        self.group
    }

    /// The last entry that is covered.
    pub fn through(&self) -> Index {
        self.through
    }
}
