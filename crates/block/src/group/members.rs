//! The members of a group, and how they change.
//!
//! ```text
//!   {1,2,3} ── Change +4,5,6 -1,2,3 ──> voters {4,5,6}, outgoing {1,2,3} ── Change::leave ──> {4,5,6}
//!               one entry of the log       joint: both majorities decide      one entry of the log
//! ```
//!
//! A change of one replica needs no joint state. A voter is never turned into a learner: it is removed, and
//! comes back under another id. The lists are sorted, so that equal members have equal bytes.

use base::coding::{Decoder, put_u16, put_u64};
use base::{Error, Result};

/// The most bytes of an encoding.
pub const ENCODED_MAX: usize = 4 << 10;

/// The replicas of a group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Members {
    /// Replicas that vote and count for a majority.
    pub voters: Vec<u64>,
    /// Replicas that receive entries and do not vote.
    pub learners: Vec<u64>,
    /// The voters before a change that is not over: their majority counts too. Empty: no change is under
    /// way.
    pub outgoing: Vec<u64>,
}

impl Members {
    /// A group of voters.
    pub fn of(voters: &[u64]) -> Self {
        Self::new(voters.to_vec(), vec![], vec![])
    }

    /// Sorts the lists.
    pub(super) fn new(
        mut voters: Vec<u64>,
        mut learners: Vec<u64>,
        mut outgoing: Vec<u64>,
    ) -> Self {
        voters.sort_unstable();
        learners.sort_unstable();
        outgoing.sort_unstable();
        Self {
            voters,
            learners,
            outgoing,
        }
    }

    /// Whether a change is under way.
    pub fn is_joint(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Whether a replica votes, before or after the change that is under way.
    pub fn is_voter(&self, id: u64) -> bool {
        self.voters.contains(&id) || self.outgoing.contains(&id)
    }

    /// Whether the replicas for which `has` is true are a quorum.
    pub fn is_quorum(&self, has: impl Fn(u64) -> bool) -> bool {
        let majority = |of: &[u64]| of.iter().filter(|&&id| has(id)).count() > of.len() / 2;
        majority(&self.voters) && (self.outgoing.is_empty() || majority(&self.outgoing))
    }

    /// Appends the encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        put_lists(out, [&self.voters, &self.learners, &self.outgoing]);
    }

    /// The inverse of [`Members::encode`]. Errors: Corruption, also if no group can have such members.
    pub fn decode(from: &mut Decoder<'_>) -> Result<Self> {
        let lists = lists(from).ok_or_else(|| Error::corruption("members of a group end early"))?;
        let [voters, learners, outgoing] = lists;
        let members = Self::new(voters, learners, outgoing);
        members.check()?;
        Ok(members)
    }

    /// Errors: Corruption, if no group can have such members.
    pub fn check(&self) -> Result<()> {
        let mut voters = self.voters.clone();
        voters.extend(self.outgoing.iter().filter(|id| !self.voters.contains(id)));
        let voting = voters.len();
        voters.extend(&self.learners);
        if self.voters.is_empty() || !are_ids(&voters) || voting > IDS_MAX {
            return Err(Error::corruption(format!("no group can have {self:?}")));
        }
        Ok(())
    }

    /// The reason why `change` cannot be applied to these members. It is the same on all replicas, so that an
    /// entry with such a change has no effect on any of them.
    pub fn refuses(&self, change: &Change) -> Option<&'static str> {
        if self.is_joint() != change.is_leave() {
            return Some("one change begins when the one before it is over");
        }
        if change.is_leave() {
            return None;
        }
        let all = change.ids();
        let is_new_voter = |id: &u64| !self.voters.contains(id);
        let is_new = |id: &u64| is_new_voter(id) && !self.learners.contains(id);
        let kept = self.voters.iter().filter(|id| !change.remove.contains(id));
        if !are_ids(&all)
            || !change.voters.iter().all(is_new_voter)
            || !change.learners.iter().all(is_new)
            || change.remove.iter().any(is_new)
        {
            return Some("a replica is named twice, is there already, or is not there");
        }
        if kept.count() + change.voters.len() == 0 {
            return Some("no voter would be left");
        }
        None
    }
}

/// A change of the members: one entry of the group's log.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// New voters, including learners that become voters.
    pub voters: Vec<u64>,
    /// New learners.
    pub learners: Vec<u64>,
    /// Replicas that are removed.
    pub remove: Vec<u64>,
}

impl Change {
    /// The change that ends the joint state. The leader proposes it by itself.
    pub fn leave() -> Self {
        Self::default()
    }

    /// Whether it ends the joint state.
    pub fn is_leave(&self) -> bool {
        self.ids().is_empty()
    }

    pub(super) fn ids(&self) -> Vec<u64> {
        [&self.voters[..], &self.learners, &self.remove].concat()
    }

    /// The encoding: the inline bytes of the change's entry.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        put_lists(&mut out, [&self.voters, &self.learners, &self.remove]);
        out
    }

    /// The inverse of [`Change::encode`]. Errors: Corruption.
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        let mut from = Decoder::new(bytes);
        let found = lists(&mut from).filter(|_| from.is_empty());
        let Some([voters, learners, remove]) = found else {
            return Err(Error::corruption("a change of members is no such thing"));
        };
        let change = Self {
            voters,
            learners,
            remove,
        };
        if !are_ids(&change.ids()) {
            return Err(Error::corruption(format!("no group can make {change:?}")));
        }
        Ok(change)
    }
}

/// The most replicas in a list.
const IDS_MAX: usize = 64;

fn are_ids(ids: &[u64]) -> bool {
    let mut sorted = ids.to_vec();
    sorted.sort_unstable();
    sorted.dedup();
    sorted.len() == ids.len() && sorted.first() != Some(&0) && ids.len() <= 2 * IDS_MAX
}

fn put_lists(out: &mut Vec<u8>, lists: [&Vec<u64>; 3]) {
    for list in lists {
        put_u16(out, list.len() as u16);
        for &id in list {
            put_u64(out, id);
        }
    }
}

fn lists(from: &mut Decoder<'_>) -> Option<[Vec<u64>; 3]> {
    let mut out = [vec![], vec![], vec![]];
    for list in &mut out {
        let count = usize::from(from.u16()?);
        if count > IDS_MAX {
            return None;
        }
        for _ in 0..count {
            list.push(from.u64()?);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn majorities_of_both_decide_while_joint() {
        let members = Members::new(vec![4, 5, 6], vec![7], vec![1, 2, 3]);
        assert!(!members.is_quorum(|id| id >= 4));
        assert!(!members.is_quorum(|id| matches!(id, 1 | 2 | 4 | 7)));
        assert!(members.is_quorum(|id| matches!(id, 1 | 2 | 4 | 5)));
        assert!(Members::of(&[9]).is_quorum(|id| id == 9));
    }

    #[test]
    fn changes_that_cannot_be_are_refused() {
        let members = Members::new(vec![1, 2, 3], vec![4], vec![]);
        let change = |voters: &[u64], learners: &[u64], remove: &[u64]| Change {
            voters: voters.to_vec(),
            learners: learners.to_vec(),
            remove: remove.to_vec(),
        };
        assert_eq!(members.refuses(&change(&[4], &[5], &[1])), None);
        for bad in [
            Change::leave(),
            change(&[1], &[], &[]),
            change(&[], &[1], &[]),
            change(&[], &[4], &[]),
            change(&[], &[], &[9]),
            change(&[5], &[5], &[]),
            change(&[0], &[], &[]),
            change(&[], &[], &[1, 2, 3]),
        ] {
            assert!(members.refuses(&bad).is_some(), "{bad:?}");
        }
        let joint = Members::new(vec![4], vec![], vec![1]);
        assert!(joint.refuses(&change(&[5], &[], &[])).is_some());
        assert_eq!(joint.refuses(&Change::leave()), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in proptest::collection::vec(0_u8..4, 0..60)) {
            if let Ok(change) = Change::decode(&bytes) {
                prop_assert_eq!(change.encode(), bytes.clone());
            }
            let mut from = Decoder::new(&bytes);
            if let Ok(members) = Members::decode(&mut from) {
                let mut again = Vec::new();
                members.encode(&mut again);
                prop_assert_eq!(Members::decode(&mut Decoder::new(&again)).unwrap(), members);
            }
        }
    }
}
