//! What replicas say to each other. The wire layer encodes it; what the raft crate knows of a message is made
//! from it, and never leaves [`super::raft`].

use bytes::Bytes;

use super::command::Range;
use crate::ids::{Index, Term};
use crate::store::dirty::Key;

/// A message to another replica of the group. The payloads of an append's entries, and the bytes of a copy, travel
/// beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who sends it.
    pub from: u64,
    /// To whom.
    pub to: u64,
    /// The sender's term, or for which one it asks; 0 in [`Body::ReadIndex`] only.
    pub term: Term,
    /// What.
    pub body: Body,
}

/// An entry of a group's log, without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its place.
    pub index: Index,
    /// Its term.
    pub term: Term,
    /// Whether it is a change of the members; `inline` is a [`super::members::Change`] then.
    pub is_change: bool,
    /// A command's head and the crcs of its blocks; empty in the first entry of a leader.
    pub inline: Bytes,
}

/// Names a read that waits for an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Read {
    /// The replica that asks.
    pub replica: u64,
    /// Its own number for it.
    pub context: u64,
}

/// Which copy of a group: see the shard's `member/copies.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// Up to which entry it has everything.
    pub through: Index,
    /// That entry's term.
    pub term: Term,
}

/// A step of a copy from a leader to a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyStep {
    /// The leader makes one.
    Offer,
    /// The follower waits for it.
    Ready {
        /// What it has: changes up to there are left out.
        from: Index,
        /// Which time it takes a copy. What it took before that is gone.
        attempt: u64,
    },
    /// Blocks; the bytes of those that have some are the message's payload.
    Blocks {
        /// Of [`CopyStep::Ready`].
        attempt: u64,
        /// Counts these steps.
        number: u64,
        /// Which blocks.
        range: Range,
        /// The CRC-32C of each. `None`: it is zero.
        crcs: Vec<Option<u32>>,
    },
    /// The follower has them.
    Taken {
        /// Which step.
        number: u64,
    },
    /// There are no more. The payload is the group's state.
    End {
        /// Of [`CopyStep::Ready`].
        attempt: u64,
    },
    /// The follower has a checkpoint there.
    Done,
    /// The follower does not take it any more, or anew: it lacks what it took.
    Gone {
        /// Of the step that it refuses.
        attempt: u64,
    },
}

/// What a message says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// The leader's entries, behind the one at `index`.
    Append {
        /// The entry before the first.
        index: Index,
        /// Its term.
        log_term: Term,
        /// The leader's commit.
        commit: Index,
        /// The entries.
        entries: Vec<Entry>,
    },
    /// Up to `index` the logs agree; or not, and where they may.
    AppendResponse {
        /// Up to where; where it is refused, the append's index.
        index: Index,
        /// The follower's commit.
        commit: Index,
        /// A place where the logs may agree, and the follower's term there.
        reject: Option<(Index, Term)>,
    },
    /// Asks for a vote.
    Vote {
        /// Asks only whether it would be given.
        pre: bool,
        /// The leader wants it so.
        transfer: bool,
        /// The candidate's last entry.
        index: Index,
        /// Its term.
        log_term: Term,
        /// The candidate's commit.
        commit: Index,
        /// The term of that entry.
        commit_term: Term,
    },
    /// The answer.
    VoteResponse {
        /// To which question.
        pre: bool,
        /// It is not given.
        reject: bool,
        /// The voter's commit, where it is not given.
        commit: Index,
        /// The term of that entry.
        commit_term: Term,
    },
    /// The leader is there.
    Heartbeat {
        /// Up to where the follower may apply.
        commit: Index,
        /// The leader's round.
        round: u64,
        /// A read that waits for a quorum.
        read: Option<Read>,
    },
    /// The follower has heard it.
    HeartbeatResponse {
        /// The follower's commit.
        commit: Index,
        /// The heartbeat's round.
        round: u64,
        /// The heartbeat's read.
        read: Option<Read>,
    },
    /// A follower asks up to where it must have applied for a read.
    ReadIndex {
        /// The read.
        read: Read,
    },
    /// The leader's answer.
    ReadIndexResponse {
        /// The read.
        read: Read,
        /// Up to where.
        index: Index,
    },
    /// The leader wants the receiver to be the leader.
    TimeoutNow,
    /// A replica cannot read a block, and asks for it. Raft is not told.
    Ask {
        /// Which.
        key: Key,
        /// With this content's CRC-32C.
        crc: u32,
    },
    /// The block that was asked for is the message's payload.
    Have {
        /// Which.
        key: Key,
        /// Its CRC-32C.
        crc: u32,
    },
    /// A copy of what the log does not have any more. Raft is not told.
    Copy {
        /// Which.
        copy: Copy,
        /// What of it.
        step: CopyStep,
    },
}
