//! A leader that gets no answers from a quorum steps down, and asks another voter to campaign.
//!
//! Raft checks for a quorum once per election timeout, so an isolated leader may lead for nearly two of them.
//! If the others hear it, their own timeouts start only after that: up to four in all without service. So here
//! the leader checks at each tick. A leader that steps down for want of a quorum asks the voter with the most
//! of its entries to campaign at once. That is safe whenever the message arrives: the old leader no longer
//! leads in this term, and a message of an older term is dropped.

use super::{Node, Role};

/// Ticks since a quorum last answered, and the term and round that it answered last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unheard {
    ticks: usize,
    term: u64,
    round: Option<u64>,
}

impl Node {
    /// The other voter with the most of the leader's entries. `None`: the replica is not the leader, or is
    /// alone.
    pub(super) fn heir(&self) -> Option<u64> {
        let raft = &self.raw.raft;
        if self.role() != Role::Leader {
            return None;
        }
        let matched = |id: u64| raft.prs().get(id).map_or(0, |p| p.matched);
        let others = self.members.voters.iter().copied();
        others
            .filter(|&id| id != raft.id)
            .max_by_key(|&id| (matched(id), id))
    }

    /// Called after a tick, with the leader's term and heir before it. Raft's own check may have deposed the
    /// leader in that tick.
    pub(super) fn look_for_quorum(&mut self, term: u64, heir: Option<u64>) {
        let round = self.quorum_acked_round();
        let before = self.unheard;
        let is_heard = round == Some(self.round) || (term, round) != (before.term, before.round);
        let leads = self.role() == Role::Leader;
        let ticks = if leads && !is_heard {
            before.ticks + 1
        } else {
            0
        };
        self.unheard = Unheard { ticks, term, round };
        let raft = &mut self.raw.raft;
        let Some(heir) = heir.filter(|_| raft.term == term) else {
            return;
        };
        if leads && ticks <= self.config.unheard_ticks {
            return;
        }
        raft.become_follower(term, 0);
        raft.send_timeout_now(heir);
        self.unheard = Unheard::default();
        self.settled();
    }
}
