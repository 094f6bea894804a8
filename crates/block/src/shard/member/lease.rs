//! When a leader may serve reads: while it is certain that it leads.
//!
//! That is so if it has a lease, or has completed a round of heartbeats since the read came. A lease begins with
//! the start of a round that a quorum has answered, and lasts nine tenths of the shortest time until an election.
//! In both cases, the entries that were committed when the read came are applied first.

use std::collections::VecDeque;
use std::time::Duration;

use super::super::core::Command;
use super::super::time::ReadMode;
use super::{ELECTION_TICKS, Member, TICK};
use crate::ids::Index;
use crate::store::data::Reader;

impl Member {
    pub(in super::super) fn read_by(&mut self, mode: ReadMode) {
        self.read_mode = mode;
    }

    /// Rounds that began before this call give no lease.
    pub(in super::super) fn forget_lease(&mut self) {
        self.rounds.clear();
    }

    /// Whether this replica is certain to be the leader at this moment.
    pub(super) fn has_lease(&self, now: Duration) -> bool {
        if self.read_mode == ReadMode::ReadIndex {
            return false;
        }
        let acked = self.node.quorum_acked_round();
        let begun = acked.and_then(|acked| {
            let of = self.rounds.iter().find(|(round, _)| *round == acked);
            of.map(|(_, begun)| *begun)
        });
        let lease = TICK * (ELECTION_TICKS - 1) * 9 / 10;
        let is_within = begun.is_some_and(|begun| now < begun + lease);
        is_within && self.node.has_applied_own_term() && !self.node.is_transferring()
    }

    /// Asks for one index, for all reads that came since the last question.
    pub(super) fn ask_for_reads(&mut self) {
        // Raft drops a question that comes before the leader has committed an entry of its term.
        let is_early = !self.node.has_applied_own_term();
        if self.new_reads.is_empty() || !self.asked.is_empty() || is_early {
            return;
        }
        let context = self.next_context;
        self.next_context += 1;
        self.asked
            .insert(context, std::mem::take(&mut self.new_reads));
        self.node.read_index(context);
    }

    /// Serves the reads whose entry is applied.
    pub(super) fn serve_due(&mut self, data: &Reader, out: &mut VecDeque<Command>) {
        let later = self.due.split_off(&Index(self.replica.applied().0 + 1));
        let due = std::mem::replace(&mut self.due, later);
        for asked in due.into_values().flatten() {
            self.serve(asked, data, out);
        }
    }
}
