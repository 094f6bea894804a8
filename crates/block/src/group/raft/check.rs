//! The messages that raft may see. It panics on messages that no correct peer sends, so they are refused
//! before.

use base::{Error, Result};
use bytes::Bytes;
use raft::{RawNode, StateRole};

use super::super::members::Change;
use super::super::message::{Body, Entry, Message};
use super::heads::Heads;
use crate::ids::{BLOCK, Index, Term};

/// The largest valid term and index: raft adds to them, and must not overflow.
const NUMBER_MAX: u64 = 1 << 62;
/// The most bytes of an entry's payload.
pub(super) const PAYLOAD_BYTES_MAX: usize = 32 << 20;

/// Whether the inline bytes match the payload: whole blocks, and room for a crc of each.
pub(super) fn payload_fits(inline: &[u8], payload: &[u8]) -> bool {
    payload.len().is_multiple_of(BLOCK)
        && payload.len() <= PAYLOAD_BYTES_MAX
        && u16::try_from(inline.len()).is_ok()
        && inline.len() / 4 >= payload.len() / BLOCK
}

/// Whether raft may see a message; `false`: it is late, and can be dropped without harm.
///
/// Errors: Corruption: no correct replica of the group sends this message.
pub(super) fn message(raw: &RawNode<Heads>, m: &Message, payloads: &[Bytes]) -> Result<bool> {
    let raft = &raw.raft;
    let bad = |why: &str| Err(Error::corruption(format!("message from {}: {why}", m.from)));
    if m.from == 0 || m.from == raft.id || m.to != raft.id {
        return bad("it is from or to somebody else");
    }
    if matches!(
        m.body,
        Body::Copy { .. } | Body::Ask { .. } | Body::Have { .. }
    ) {
        return Ok(false);
    }
    let forwarded = matches!(m.body, Body::ReadIndex { .. });
    if (m.term.0 == 0) != forwarded || m.term.0 > NUMBER_MAX {
        return bad("a term that cannot be");
    }
    let entries = match &m.body {
        Body::Append { entries, .. } => entries.len(),
        _ => 0,
    };
    if entries != payloads.len() {
        return bad("payloads that no entries are for");
    }
    let old = !forwarded && m.term.0 < raft.term;
    match &m.body {
        Body::Append {
            index,
            log_term,
            commit,
            entries,
        } => {
            if let Some(why) = append(m.term, *index, *log_term, *commit, entries, payloads) {
                return bad(why);
            }
        }
        Body::AppendResponse { index, reject, .. } => {
            let last = raft.raft_log.last_index();
            let hint = reject.map_or(0, |(hint, _)| hint.0);
            if index.0 > NUMBER_MAX || hint > NUMBER_MAX {
                return bad("an index that cannot be");
            }
            if raft.state == StateRole::Leader && m.term.0 == raft.term {
                if index.0 > last || hint > last {
                    return bad("it has entries that the leader has not");
                }
                // Such a rejection would make raft move the follower's progress back behind what is known
                // to match.
                let matched = raft.prs().get(m.from).map_or(0, |p| p.matched);
                return Ok(reject.is_none() || (index.0 > matched && hint >= matched));
            }
        }
        Body::Heartbeat { commit, .. } if !old && commit.0 > raft.raft_log.last_index() => {
            return bad("entries are missing that this replica had acknowledged");
        }
        // Raft must not become the leader before all entries are durable. It does not campaign before
        // either.
        Body::VoteResponse { .. } => return Ok(is_durable(raw)),
        Body::TimeoutNow => {
            return Ok(m.term.0 == raft.term && m.from == raft.leader_id && is_durable(raw));
        }
        Body::Vote { index, .. } if index.0 > NUMBER_MAX => {
            return bad("an index that cannot be");
        }
        Body::ReadIndex { read } if read.replica != m.from => {
            return bad("a read of somebody else");
        }
        Body::ReadIndexResponse { read, .. } if read.replica != raft.id => {
            return bad("a read of somebody else");
        }
        Body::ReadIndex { .. } => return Ok(raft.state == StateRole::Leader),
        _ => {}
    }
    Ok(true)
}

/// Whether all entries of the log are durable.
pub(super) fn is_durable(raw: &RawNode<Heads>) -> bool {
    raw.raft.raft_log.persisted == raw.raft.raft_log.last_index()
}

/// The reason why an append is refused.
fn append(
    term: Term,
    index: Index,
    log_term: Term,
    commit: Index,
    entries: &[Entry],
    payloads: &[Bytes],
) -> Option<&'static str> {
    let most = NUMBER_MAX - entries.len() as u64;
    if index.0 > most || commit.0 > NUMBER_MAX || log_term > term {
        return Some("an index or a term that cannot be");
    }
    if (index.0 == 0) != (log_term.0 == 0) {
        return Some("an entry without a term, or a term without an entry");
    }
    let (mut last_index, mut last_term) = (index, log_term);
    for (entry, payload) in entries.iter().zip(payloads) {
        if entry.index.0 != last_index.0 + 1 {
            return Some("entries do not follow each other");
        }
        if entry.term < last_term || entry.term > term || entry.term.0 == 0 {
            return Some("the terms of entries go back, or are to come");
        }
        if !payload_fits(&entry.inline, payload) {
            return Some("a payload that has not a crc for each whole block");
        }
        if entry.is_change && (!payload.is_empty() || Change::decode(&entry.inline).is_err()) {
            return Some("a change of members that is none");
        }
        (last_index, last_term) = (entry.index, entry.term);
    }
    None
}
