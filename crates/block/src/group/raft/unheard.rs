//! A leader that no quorum answers gives the group away.
//!
//! Raft looks for a quorum once in an election timeout, so a leader that hears nobody may lead for nearly two. If the others
//! hear it, their own timeout begins only then: up to four in all without anybody who serves. So the leader looks at each
//! tick, and whoever steps down for want of a quorum tells the voter with most of its entries to campaign at once. That is
//! safe whenever it arrives: who has stepped down leads in this term no more, and a message of an older term is dropped.

use super::{Node, Role};

/// For how long nobody's answers make a quorum, and what was answered last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Unheard {
    ticks: usize,
    term: u64,
    round: Option<u64>,
}

impl Node {
    /// Who has most of a leader's entries, but for itself. `None`: the replica does not lead, or is alone.
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

    /// A tick has gone, before which a leader of `term` had this heir. It may lead no more, by raft's own look.
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
