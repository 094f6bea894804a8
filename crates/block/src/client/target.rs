//! A group as a client sees it: who leads it, and the numbers of the requests to it.
//!
//! Changes are numbered from 1, in the order in which they are sent first. The group knows an attachment's
//! changes in a window of [`WINDOW`] numbers from the lowest that has no answer; half of that is used here, for
//! the numbers as well as for what is open at once. The rest waits, in order.

use std::collections::{BTreeSet, VecDeque};

use crate::group::volumes::WINDOW;

/// The most requests to a group that are open at once, and the most numbers between the lowest and the highest.
pub(super) const OPEN_MAX: u64 = WINDOW / 2;

/// See the module.
#[derive(Debug)]
pub(super) struct Target {
    replicas: Vec<u64>,
    leader: u64,
    next_seq: u64,
    /// Numbers of changes without an answer.
    open: BTreeSet<u64>,
    /// Requests without an answer, reads among them.
    in_flight: u64,
    /// Requests that wait for room.
    pub(super) waiting: VecDeque<u64>,
    /// Whether it has the volume's epoch.
    pub(super) attached: bool,
}

impl Target {
    /// A group with these replicas, of which there is at least one.
    pub(super) fn new(replicas: Vec<u64>) -> Self {
        Self {
            leader: replicas.first().copied().unwrap_or_default(),
            replicas,
            next_seq: 1,
            open: BTreeSet::new(),
            in_flight: 0,
            waiting: VecDeque::new(),
            attached: false,
        }
    }

    /// Who leads, as far as known.
    pub(super) fn leader(&self) -> u64 {
        self.leader
    }

    /// How many stores may have to be asked until one leads.
    pub(super) fn replicas(&self) -> usize {
        self.replicas.len()
    }

    /// `store` does not lead, or does not answer: asks the one that it names, else the next in turn. Nothing
    /// changes where another was found meanwhile.
    pub(super) fn leave(&mut self, store: u64, hint: Option<u64>) {
        if store != self.leader {
            return;
        }
        if let Some(hint) = hint.filter(|&hint| hint != store) {
            self.leader = hint;
            return;
        }
        let at = self.replicas.iter().position(|&r| r == store);
        let next = at.map_or(0, |at| (at + 1) % self.replicas.len());
        if let Some(&next) = self.replicas.get(next) {
            self.leader = next;
        }
    }

    /// Whether another request may be open.
    pub(super) fn has_room(&self, is_change: bool) -> bool {
        let span = self.next_seq - self.lowest_open();
        self.in_flight < OPEN_MAX && (!is_change || span < OPEN_MAX)
    }

    /// Opens a request; a change has a number, all else 0.
    pub(super) fn open(&mut self, is_change: bool) -> u64 {
        self.in_flight += 1;
        if !is_change {
            return 0;
        }
        let seq = self.next_seq;
        self.next_seq += 1;
        self.open.insert(seq);
        seq
    }

    /// A request is answered for good.
    pub(super) fn close(&mut self, seq: u64) {
        self.in_flight -= 1;
        self.open.remove(&seq);
    }

    /// Changes below have their answers.
    pub(super) fn lowest_open(&self) -> u64 {
        self.open.first().copied().unwrap_or(self.next_seq)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_never_leave_the_window() {
        let mut target = Target::new(vec![1]);
        for want in 1..=OPEN_MAX {
            assert!(target.has_room(true));
            assert_eq!(target.open(true), want);
        }
        assert!(!target.has_room(true) && !target.has_room(false));
        for seq in 2..=OPEN_MAX {
            target.close(seq);
        }
        assert!(!target.has_room(true), "the first is still open");
        assert!(target.has_room(false));
        assert_eq!((target.open(false), target.lowest_open()), (0, 1));
        target.close(1);
        assert_eq!(target.lowest_open(), OPEN_MAX + 1);
        assert!(target.has_room(true));
    }

    #[test]
    fn the_leader_is_looked_for_in_turn() {
        let mut target = Target::new(vec![1, 2, 3]);
        target.leave(2, Some(3));
        assert_eq!(target.leader(), 1, "of somebody else");
        target.leave(1, None);
        assert_eq!(target.leader(), 2);
        target.leave(2, Some(2));
        assert_eq!(target.leader(), 3, "a hint to itself");
        target.leave(3, Some(9));
        assert_eq!(target.leader(), 9, "a new replica");
        target.leave(9, None);
        assert_eq!(target.leader(), 1);
    }
}
