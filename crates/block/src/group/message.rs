//! Messages between replicas. The wire layer encodes them. The messages of the raft crate are made from them,
//! and never leave [`super::raft`].

use bytes::Bytes;

use super::command::Range;
use crate::ids::{Index, Term};
use crate::store::dirty::Key;

/// A message to another replica of the group. The payloads of an append's entries and the bytes of a copy
/// travel beside it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The sender.
    pub from: u64,
    /// The receiver.
    pub to: u64,
    /// The sender's term, or the term for which it asks; 0 in [`Body::ReadIndex`] only.
    pub term: Term,
    /// The content.
    pub body: Body,
}

/// An entry of a group's log, without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its index.
    pub index: Index,
    /// Its term.
    pub term: Term,
    /// Whether it changes the members; then `inline` is a [`super::members::Change`].
    pub is_change: bool,
    /// A command's head and the crcs of its blocks; empty in the first entry of a leader.
    pub inline: Bytes,
}

/// Names a read that waits for an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Read {
    /// The replica that asks.
    pub replica: u64,
    /// The replica's own number for the read.
    pub context: u64,
}

/// Identifies a copy of a group: see the shard's `member/copies.rs`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy {
    /// The last entry that it includes.
    pub through: Index,
    /// That entry's term.
    pub term: Term,
}

/// A step of a copy from a leader to a follower.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyStep {
    /// The leader offers one.
    Offer,
    /// The follower is ready to receive it.
    Ready {
        /// The last entry that the follower has: changes up to it are left out.
        from: Index,
        /// Number of the follower's attempt. Blocks of earlier attempts are gone.
        attempt: u64,
    },
    /// Blocks. The bytes of those that are not zero are the message's payload.
    Blocks {
        /// The attempt of [`CopyStep::Ready`].
        attempt: u64,
        /// Number of this step, counted from the first.
        number: u64,
        /// The blocks.
        range: Range,
        /// The CRC-32C of each block. `None`: it is zero.
        crcs: Vec<Option<u32>>,
    },
    /// The follower has taken a step's blocks.
    Taken {
        /// The number of the step.
        number: u64,
    },
    /// The last step. The payload is the group's state.
    End {
        /// The attempt of [`CopyStep::Ready`].
        attempt: u64,
    },
    /// The follower has a checkpoint at the end of the copy.
    Done,
    /// The follower has given the copy up, or started it anew: it lacks blocks that it took before.
    Gone {
        /// The attempt of the refused step.
        attempt: u64,
    },
}

/// The content of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    /// Entries of the leader, behind the one at `index`.
    Append {
        /// The index of the entry before the first.
        index: Index,
        /// The term of that entry.
        log_term: Term,
        /// The leader's commit.
        commit: Index,
        /// The entries.
        entries: Vec<Entry>,
    },
    /// The logs agree up to `index`, or the append is rejected with a place where they may agree.
    AppendResponse {
        /// The last index at which the logs agree; if the append is rejected, its index.
        index: Index,
        /// The follower's commit.
        commit: Index,
        /// If rejected: an index at which the logs may agree, and the follower's term there.
        reject: Option<(Index, Term)>,
    },
    /// Asks for a vote.
    Vote {
        /// Asks only whether the vote would be granted.
        pre: bool,
        /// The leader has asked the candidate to take over.
        transfer: bool,
        /// The candidate's last entry.
        index: Index,
        /// The term of that entry.
        log_term: Term,
        /// The candidate's commit.
        commit: Index,
        /// The term of that entry.
        commit_term: Term,
    },
    /// The answer to a vote request.
    VoteResponse {
        /// Whether it answers a pre-vote.
        pre: bool,
        /// The vote is not granted.
        reject: bool,
        /// The voter's commit, if the vote is not granted.
        commit: Index,
        /// The term of that entry.
        commit_term: Term,
    },
    /// The leader's sign of life.
    Heartbeat {
        /// The last entry that the follower may apply.
        commit: Index,
        /// The leader's round.
        round: u64,
        /// A read that waits for a quorum.
        read: Option<Read>,
    },
    /// The answer to a heartbeat.
    HeartbeatResponse {
        /// The follower's commit.
        commit: Index,
        /// The heartbeat's round.
        round: u64,
        /// The heartbeat's read.
        read: Option<Read>,
    },
    /// A follower asks for the index up to which it must have applied before it serves a read.
    ReadIndex {
        /// The read.
        read: Read,
    },
    /// The leader's answer.
    ReadIndexResponse {
        /// The read.
        read: Read,
        /// The index.
        index: Index,
    },
    /// The leader asks the receiver to become the leader.
    TimeoutNow,
    /// A replica cannot read a block, and asks for its content. The raft crate does not see this.
    Ask {
        /// The block.
        key: Key,
        /// The CRC-32C of the content.
        crc: u32,
    },
    /// The content of a requested block, which is the message's payload.
    Have {
        /// The block.
        key: Key,
        /// Its CRC-32C.
        crc: u32,
    },
    /// A step of a copy of entries that the log no longer has. The raft crate does not see this.
    Copy {
        /// The copy.
        copy: Copy,
        /// The step.
        step: CopyStep,
    },
}
