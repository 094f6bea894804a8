//! Conversion from and to the raft crate's messages.
//!
//! The context of a heartbeat is opaque to raft, and comes back in the response. A follower's raft sees
//! `round+8, replica+8, context+8`; the leader's raft sees the read alone, because it looks it up among the
//! waiting reads.

use base::coding::{Decoder, put_u64};
use bytes::Bytes;
use raft::eraftpb::{self, ConfChangeSingle, ConfChangeTransition, ConfChangeType, ConfChangeV2};
use raft::eraftpb::{ConfState, EntryType, MessageType};

use super::super::members::{Change, Members};
use super::super::message::{Body, Entry, Message, Read};
use crate::ids::{Index, Term};

/// The context that raft writes into the vote requests of a transfer.
const TRANSFER: &[u8] = b"CampaignTransfer";

pub(super) fn conf_state(members: &Members) -> ConfState {
    ConfState {
        voters: members.voters.clone(),
        learners: members.learners.clone(),
        voters_outgoing: members.outgoing.clone(),
        ..ConfState::default()
    }
}

pub(super) fn members(state: &ConfState) -> Members {
    Members::new(
        state.voters.clone(),
        state.learners.clone(),
        state.voters_outgoing.clone(),
    )
}

pub(super) fn conf_change(change: &Change) -> ConfChangeV2 {
    let single = |kind: ConfChangeType| {
        move |&id: &u64| ConfChangeSingle {
            change_type: kind,
            node_id: id,
            ..ConfChangeSingle::default()
        }
    };
    let mut changes: Vec<ConfChangeSingle> = Vec::new();
    changes.extend(change.voters.iter().map(single(ConfChangeType::AddNode)));
    changes.extend(
        change
            .learners
            .iter()
            .map(single(ConfChangeType::AddLearnerNode)),
    );
    changes.extend(change.remove.iter().map(single(ConfChangeType::RemoveNode)));
    let mut out = ConfChangeV2::default();
    // Left by an entry of ours: raft would leave it by itself only if the leader that began it stays the
    // leader.
    out.set_transition(if changes.len() > 1 {
        ConfChangeTransition::Explicit
    } else {
        ConfChangeTransition::Auto
    });
    out.set_changes(changes.into());
    out
}

pub(super) fn to_entry(entry: Entry) -> eraftpb::Entry {
    let mut out = eraftpb::Entry {
        index: entry.index.0,
        term: entry.term.0,
        data: entry.inline,
        ..eraftpb::Entry::default()
    };
    if entry.is_change {
        out.set_entry_type(EntryType::EntryConfChangeV2);
    }
    out
}

pub(super) fn is_change(entry: &eraftpb::Entry) -> bool {
    entry.get_entry_type() == EntryType::EntryConfChangeV2
}

fn from_entry(entry: &eraftpb::Entry) -> Entry {
    Entry {
        index: Index(entry.index),
        term: Term(entry.term),
        is_change: is_change(entry),
        inline: entry.data.clone(),
    }
}

pub(super) fn read_bytes(read: Read) -> Bytes {
    let mut out = Vec::with_capacity(16);
    put_u64(&mut out, read.replica);
    put_u64(&mut out, read.context);
    out.into()
}

fn read_of(d: &mut Decoder<'_>) -> Option<Read> {
    Some(Read {
        replica: d.u64()?,
        context: d.u64()?,
    })
}

pub(super) fn read(bytes: &[u8]) -> Option<Read> {
    read_of(&mut Decoder::new(bytes))
}

fn round_bytes(round: u64, read: Option<Read>) -> Bytes {
    let mut out = Vec::with_capacity(24);
    put_u64(&mut out, round);
    if let Some(read) = read {
        out.extend_from_slice(&read_bytes(read));
    }
    out.into()
}

fn read_entry(read: Read) -> Vec<eraftpb::Entry> {
    vec![eraftpb::Entry {
        data: read_bytes(read),
        ..eraftpb::Entry::default()
    }]
}

/// The raft crate's form of a message.
pub(super) fn to_raft(message: Message) -> eraftpb::Message {
    let mut out = eraftpb::Message {
        from: message.from,
        to: message.to,
        term: message.term.0,
        ..eraftpb::Message::default()
    };
    let kind = match message.body {
        Body::Append {
            index,
            log_term,
            commit,
            entries,
        } => {
            (out.index, out.log_term, out.commit) = (index.0, log_term.0, commit.0);
            out.set_entries(entries.into_iter().map(to_entry).collect());
            MessageType::MsgAppend
        }
        Body::AppendResponse {
            index,
            commit,
            reject,
        } => {
            (out.index, out.commit) = (index.0, commit.0);
            if let Some((hint, term)) = reject {
                (out.reject, out.reject_hint, out.log_term) = (true, hint.0, term.0);
            }
            MessageType::MsgAppendResponse
        }
        Body::Heartbeat {
            commit,
            round,
            read,
        } => {
            out.commit = commit.0;
            out.context = round_bytes(round, read);
            MessageType::MsgHeartbeat
        }
        Body::HeartbeatResponse { commit, read, .. } => {
            out.commit = commit.0;
            out.context = read.map(read_bytes).unwrap_or_default();
            MessageType::MsgHeartbeatResponse
        }
        Body::ReadIndex { read } => {
            out.set_entries(read_entry(read).into());
            MessageType::MsgReadIndex
        }
        Body::ReadIndexResponse { read, index } => {
            out.index = index.0;
            out.set_entries(read_entry(read).into());
            MessageType::MsgReadIndexResp
        }
        Body::TimeoutNow => MessageType::MsgTimeoutNow,
        vote => to_vote(vote, &mut out),
    };
    out.set_msg_type(kind);
    out
}

fn to_vote(body: Body, out: &mut eraftpb::Message) -> MessageType {
    match body {
        Body::Vote {
            pre,
            transfer,
            index,
            log_term,
            commit,
            commit_term,
        } => {
            (out.index, out.log_term) = (index.0, log_term.0);
            (out.commit, out.commit_term) = (commit.0, commit_term.0);
            if transfer {
                out.context = Bytes::from_static(TRANSFER);
            }
            if pre {
                MessageType::MsgRequestPreVote
            } else {
                MessageType::MsgRequestVote
            }
        }
        Body::VoteResponse {
            pre,
            reject,
            commit,
            commit_term,
        } => {
            out.reject = reject;
            (out.commit, out.commit_term) = (commit.0, commit_term.0);
            if pre {
                MessageType::MsgRequestPreVoteResponse
            } else {
                MessageType::MsgRequestVoteResponse
            }
        }
        // `TimeoutNow`: the bodies that raft is not told of never come here.
        _ => MessageType::MsgTimeoutNow,
    }
}

/// Our form of one of raft's messages. `round`: the leader's heartbeat round. `None`: the message is not
/// sent.
pub(super) fn from_raft(message: &eraftpb::Message, round: u64) -> Option<Message> {
    let commit = Index(message.commit);
    let commit_term = Term(message.commit_term);
    let first_read = || read(&message.entries.first()?.data);
    let body = match message.get_msg_type() {
        MessageType::MsgAppend => Body::Append {
            index: Index(message.index),
            log_term: Term(message.log_term),
            commit,
            entries: message.entries.iter().map(from_entry).collect(),
        },
        MessageType::MsgAppendResponse => Body::AppendResponse {
            index: Index(message.index),
            commit,
            reject: message
                .reject
                .then_some((Index(message.reject_hint), Term(message.log_term))),
        },
        MessageType::MsgRequestVote | MessageType::MsgRequestPreVote => Body::Vote {
            pre: message.get_msg_type() == MessageType::MsgRequestPreVote,
            transfer: message.context == TRANSFER,
            index: Index(message.index),
            log_term: Term(message.log_term),
            commit,
            commit_term,
        },
        MessageType::MsgRequestVoteResponse | MessageType::MsgRequestPreVoteResponse => {
            Body::VoteResponse {
                pre: message.get_msg_type() == MessageType::MsgRequestPreVoteResponse,
                reject: message.reject,
                commit,
                commit_term,
            }
        }
        MessageType::MsgHeartbeat => Body::Heartbeat {
            commit,
            round,
            read: read(&message.context),
        },
        MessageType::MsgHeartbeatResponse => {
            let mut d = Decoder::new(&message.context);
            Body::HeartbeatResponse {
                commit,
                round: d.u64()?,
                read: read_of(&mut d),
            }
        }
        MessageType::MsgReadIndex => Body::ReadIndex {
            read: first_read()?,
        },
        MessageType::MsgReadIndexResp => Body::ReadIndexResponse {
            read: first_read()?,
            index: Index(message.index),
        },
        MessageType::MsgTimeoutNow => Body::TimeoutNow,
        _ => return None,
    };
    Some(Message {
        from: message.from,
        to: message.to,
        term: Term(message.term),
        body,
    })
}
