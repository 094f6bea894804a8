//! A group as a client sees it: its presumed leader, and the numbers of the requests to it.
//!
//! Changes are numbered from 1, in the order in which they are first sent. The group remembers an attachment's
//! changes in a window of [`WINDOW`] numbers from the lowest unanswered one. The client uses half of that, both
//! for the span of numbers and for the number of open requests. Further requests wait, in order.

use std::collections::{BTreeSet, VecDeque};

use crate::group::volumes::WINDOW;

/// The most open requests to a group, and the widest span of the numbers of open changes.
pub(super) const OPEN_MAX: u64 = WINDOW / 2;

/// A group that requests are sent to.
#[derive(Debug)]
pub(super) struct Target {
    replicas: Vec<u64>,
    leader: u64,
    /// A store that left a request unanswered, and the time in ns until which other stores are preferred.
    silent: Option<(u64, u64)>,
    next_seq: u64,
    /// Numbers of unanswered changes.
    open: BTreeSet<u64>,
    /// Number of unanswered requests, including reads.
    in_flight: u64,
    /// Requests that wait for room in the window.
    pub(super) waiting: VecDeque<u64>,
    /// Whether the group has the volume's epoch.
    pub(super) attached: bool,
}

impl Target {
    /// A group with these replicas; there must be at least one.
    pub(super) fn new(replicas: Vec<u64>) -> Self {
        Self {
            leader: replicas.first().copied().unwrap_or_default(),
            replicas,
            silent: None,
            next_seq: 1,
            open: BTreeSet::new(),
            in_flight: 0,
            waiting: VecDeque::new(),
            attached: false,
        }
    }

    /// The presumed leader.
    pub(super) fn leader(&self) -> u64 {
        self.leader
    }

    /// Number of replicas: how many stores may have to be asked until one is the leader.
    pub(super) fn replicas(&self) -> usize {
        self.replicas.len()
    }

    /// `store` is not the leader: the next request goes to the hinted store, else to the next replica. Nothing
    /// changes if another leader was found meanwhile. A silent store is passed over, even if it is the hint:
    /// the store that gave the hint may not know yet that it is no longer the leader.
    pub(super) fn leave(&mut self, store: u64, hint: Option<u64>, now: u64) {
        if store != self.leader {
            return;
        }
        let silent = self.silent.filter(|&(_, until)| now < until).map(|s| s.0);
        let may = |&other: &u64| other != store && Some(other) != silent;
        if let Some(hint) = hint.filter(may) {
            self.leader = hint;
            return;
        }
        let at = self.replicas.iter().position(|&r| r == store);
        let behind = self.replicas.iter().cycle().skip(at.map_or(0, |at| at + 1));
        let mut all = behind.take(self.replicas.len()).copied();
        if let Some(next) = all.find(may) {
            self.leader = next;
        }
    }

    /// `store` left a request unanswered: it is passed over until `until`, unless it answers before.
    pub(super) fn no_answer(&mut self, store: u64, now: u64, until: u64) {
        self.silent = Some((store, until));
        self.leave(store, None, now);
    }

    /// `store` has answered: it is silent no more.
    pub(super) fn answered(&mut self, store: u64) {
        self.silent = self.silent.filter(|s| s.0 != store);
    }

    /// Whether another request may be opened.
    pub(super) fn has_room(&self, is_change: bool) -> bool {
        let span = self.next_seq - self.lowest_open();
        self.in_flight < OPEN_MAX && (!is_change || span < OPEN_MAX)
    }

    /// Opens a request. Returns the number of a change; 0 for other requests.
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

    /// Closes a request that has its final answer.
    pub(super) fn close(&mut self, seq: u64) {
        self.in_flight -= 1;
        self.open.remove(&seq);
    }

    /// The lowest number of an unanswered change: all changes below are answered.
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
        target.leave(2, Some(3), 0);
        assert_eq!(target.leader(), 1, "of somebody else");
        target.leave(1, None, 0);
        assert_eq!(target.leader(), 2);
        target.leave(2, Some(2), 0);
        assert_eq!(target.leader(), 3, "a hint to itself");
        target.leave(3, Some(9), 0);
        assert_eq!(target.leader(), 9, "a new replica");
        target.leave(9, None, 0);
        assert_eq!(target.leader(), 1);
    }

    /// The other stores name one that is cut off: it is not asked again at once, which would cost another
    /// timeout.
    #[test]
    fn a_store_without_an_answer_is_passed_over() {
        let mut target = Target::new(vec![1, 2, 3]);
        target.no_answer(1, 100, 200);
        assert_eq!(target.leader(), 2);
        target.leave(2, Some(1), 110);
        assert_eq!(target.leader(), 3);
        target.leave(3, Some(1), 120);
        assert_eq!(target.leader(), 2, "in turn, but for it");
        target.leave(2, Some(1), 200);
        assert_eq!(target.leader(), 1, "it may lead still");
        target.no_answer(1, 200, 300);
        target.answered(2);
        target.leave(2, Some(1), 210);
        assert_eq!(target.leader(), 3);
        target.answered(1);
        target.leave(3, Some(1), 220);
        assert_eq!(target.leader(), 1, "it has answered");
        let mut alone = Target::new(vec![7]);
        alone.no_answer(7, 0, 100);
        assert_eq!(alone.leader(), 7);
    }
}
