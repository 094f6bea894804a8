//! Readies: raft's output with payloads, and the messages that wait until items are durable.

use base::{Error, Result};
use bytes::Bytes;
use raft::StateRole;
use raft::eraftpb::{self, MessageType};

use super::super::members::{Change, Members};
use super::super::message::Message;
use super::{Node, Role, Waiting, broken, convert};
use crate::ids::{Group, Index, Term};
use crate::raftlog::RaftLog;
use crate::raftlog::batch::{Item, Kind};
use crate::raftlog::groups::HardState;

/// The flag of items that change the members.
pub(super) const FLAG_CHANGE: u8 = 1;

/// A message with its payloads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outgoing {
    /// The receiver.
    pub to: u64,
    /// The message.
    pub message: Message,
    /// The payload of each entry of an append.
    pub payloads: Vec<Bytes>,
}

/// An entry to be applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Committed {
    /// Its index.
    pub index: Index,
    /// Its term.
    pub term: Term,
    /// The command's head, and the crcs of the payload's blocks. Empty: nothing to do.
    pub inline: Bytes,
    /// Whole blocks.
    pub payload: Bytes,
    /// If the entry changes the members, and `inline` is no command: the members from now on.
    pub members: Option<Members>,
}

/// The replica's current role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleChange {
    /// Its role.
    pub role: Role,
    /// The leader, if known.
    pub leader: Option<u64>,
    /// Its term.
    pub term: Term,
}

/// Everything that has to be done now.
#[derive(Debug, Default)]
#[must_use = "what it holds is given out once"]
pub struct Ready {
    /// To be passed to [`Node::persisted`] once all items are durable.
    pub number: u64,
    /// Messages that may be sent at once.
    pub now: Vec<Outgoing>,
    /// To be appended to the log in this order, behind those of earlier readies; they may be split over several
    /// batches. Empty: [`Node::persisted`] need not be called.
    pub items: Vec<Item>,
    /// Entries to be applied, in this order.
    pub committed: Vec<Committed>,
    /// Reads of this replica that may be served once everything up to the index is applied.
    pub reads: Vec<(u64, Index)>,
    /// Replicas that need a copy of the group, because the log no longer has their next entry, and the index
    /// from which on the log must be kept.
    pub needs_copy: Vec<(u64, Index)>,
    /// The role, if role, leader or term have changed.
    pub role: Option<RoleChange>,
    /// Payloads that could not be read: appends with them are not sent.
    pub unreadable: Vec<Error>,
}

impl Node {
    /// Returns what has to be done, if anything.
    ///
    /// Errors: a committed entry cannot be read, or the caller has neglected its duties; the node has failed.
    pub fn ready(&mut self, log: &RaftLog) -> Result<Option<Ready>> {
        self.check_whole()?;
        if !self.raw.has_ready() {
            return Ok(None);
        }
        let ready = self.next_ready(log);
        self.is_broken = ready.is_err();
        ready.map(Some)
    }

    fn next_ready(&mut self, log: &RaftLog) -> Result<Ready> {
        let mut raw = self.raw.ready();
        self.given = raw.number();
        let mut out = Ready {
            number: self.first_number + raw.number(),
            role: self.role_change(),
            ..Ready::default()
        };
        let entries = raw.take_entries();
        let committed = raw.take_committed_entries();
        let mut messages = raw.take_messages();
        messages.extend(raw.take_persisted_messages());
        let reads = raw.take_read_states();
        let reads = reads
            .iter()
            .filter_map(|r| Some((convert::read(&r.request_ctx)?, r.index)));
        out.reads = reads
            .map(|(read, index)| (read.context, Index(index)))
            .collect();

        let hard = self.hard_state();
        let votes = (hard.term, hard.vote) != (self.hard.term, self.hard.vote);
        let at_once = self.raw.raft.state == StateRole::Leader
            && !votes
            && !self.waiting.iter().any(|w| w.votes && !w.landed);
        let mut after = Vec::new();
        for message in &mut messages {
            let may = at_once && leaves_at_once(message.get_msg_type());
            if !self.rejoin(message) {
                continue;
            }
            if let Some(outgoing) = self.outgoing(message, log, &mut out) {
                (if may { &mut out.now } else { &mut after }).push(outgoing);
            }
        }
        out.items = self.items(&entries)?;
        if votes || (!out.items.is_empty() && hard != self.hard) {
            out.items.push(hard.to_item(self.group));
            self.hard = hard;
        }
        let overwrites = self.raw.mut_store().append(entries);
        self.raw.advance_append_async(raw);
        self.waiting.push_back(Waiting {
            number: out.number,
            landed: out.items.is_empty(),
            overwrites,
            votes,
            after,
        });
        out.now.extend(self.release());
        out.committed = self.committed(committed, log)?;
        self.settled();
        Ok(out)
    }

    /// The items of a ready, and of all before it, are durable. Returns the messages that may be sent now.
    #[must_use = "votes and acknowledgements wait for it"]
    pub fn persisted(&mut self, number: u64) -> Vec<Outgoing> {
        for waiting in &mut self.waiting {
            waiting.landed |= waiting.number <= number;
        }
        let out = self.release();
        self.settled();
        out
    }

    /// Tells raft what is durable, unless an unfinished write overwrites entries.
    fn release(&mut self) -> Vec<Outgoing> {
        if self.waiting.iter().any(|w| w.overwrites && !w.landed) {
            return vec![];
        }
        let mut out = Vec::new();
        let mut durable = None;
        while self.waiting.front().is_some_and(|w| w.landed) {
            let Some(done) = self.waiting.pop_front() else {
                break;
            };
            durable = Some(done.number);
            out.extend(done.after);
        }
        if let Some(number) = durable {
            self.raw.on_persist_ready(number - self.first_number);
            // The log has their payloads from now on.
            let persisted = self.raw.raft.raft_log.persisted;
            self.stash = self.stash.split_off(&(persisted + 1));
        }
        out
    }

    /// The item of a commit index that no ready has returned, to be appended before a checkpoint.
    pub fn commit_item(&self) -> Item {
        let log = &self.raw.raft.raft_log;
        let commit = Index(log.committed.min(log.persisted)).max(self.hard.commit);
        HardState {
            commit,
            ..self.hard
        }
        .to_item(self.group)
    }

    /// The current hard state.
    pub(crate) fn hard_state(&self) -> HardState {
        let hard = self.raw.raft.hard_state();
        HardState {
            term: Term(hard.term),
            vote: hard.vote,
            commit: Index(hard.commit),
        }
    }

    fn role_change(&mut self) -> Option<RoleChange> {
        let now = RoleChange {
            role: self.role(),
            leader: self.leader(),
            term: self.term(),
        };
        (std::mem::replace(&mut self.told, now) != now).then_some(now)
    }

    /// Raft adds entries to a queued append that has none, even if it names another entry than the one before
    /// them: the follower would refuse that. This sets the entry before the first. False: that entry's term is
    /// no longer known; the message is dropped, and the follower asks for the missing entries later.
    fn rejoin(&self, message: &mut eraftpb::Message) -> bool {
        let first = message.get_entries().first();
        let is_append = message.get_msg_type() == MessageType::MsgAppend;
        let before = first.filter(|_| is_append).map(|e| e.index - 1);
        let Some(before) = before.filter(|&before| message.index != before) else {
            return true;
        };
        let term = self.raw.raft.raft_log.term(before);
        if let Ok(term) = term {
            (message.index, message.log_term) = (before, term);
        }
        term.is_ok()
    }

    /// A message with its payloads. `None`: it is not sent.
    fn outgoing(
        &self,
        message: &eraftpb::Message,
        log: &RaftLog,
        ready: &mut Ready,
    ) -> Option<Outgoing> {
        if message.get_msg_type() == MessageType::MsgSnapshot {
            let index = message.get_snapshot().get_metadata().index;
            ready.needs_copy.push((message.to, Index(index)));
            return None;
        }
        let mut payloads = Vec::new();
        if message.get_msg_type() == MessageType::MsgAppend {
            for entry in message.get_entries() {
                match self.payload(entry, log) {
                    Ok(payload) => payloads.push(payload),
                    Err(e) => {
                        // The log may have been truncated after raft made the message. Then the follower needs
                        // a copy, and says so when it misses the entries.
                        let group = log.groups().get(self.group);
                        if group.is_some_and(|g| entry.index >= g.first().0) {
                            ready.unreadable.push(e);
                        }
                        return None;
                    }
                }
            }
        }
        Some(Outgoing {
            to: message.to,
            message: convert::from_raft(message, self.round)?,
            payloads,
        })
    }

    fn payload(&self, entry: &eraftpb::Entry, log: &RaftLog) -> Result<Bytes> {
        match self.stash.get(&entry.index) {
            Some((term, payload)) if *term == entry.term => Ok(payload.clone()),
            _ if has_no_payload(entry) => Ok(Bytes::new()),
            _ => from_log(self.group, entry, log),
        }
    }

    /// The entries as items, with the payloads from the stash.
    fn items(&mut self, entries: &[eraftpb::Entry]) -> Result<Vec<Item>> {
        let mut out = Vec::with_capacity(entries.len() + 1);
        for entry in entries {
            let stashed = self.stash.get(&entry.index);
            let payload = stashed.filter(|(term, _)| *term == entry.term);
            let payload = match payload {
                Some((_, payload)) => payload.clone(),
                None if has_no_payload(entry) => Bytes::new(),
                None => {
                    let what = format!("entry {} has lost its payload", entry.index);
                    return Err(Error::broken(what));
                }
            };
            out.push(Item {
                kind: Kind::Entry,
                flags: if convert::is_change(entry) {
                    FLAG_CHANGE
                } else {
                    0
                },
                group: self.group,
                index: Index(entry.index),
                term: Term(entry.term),
                inline: entry.data.clone(),
                payload,
            });
        }
        Ok(out)
    }

    fn committed(&mut self, entries: Vec<eraftpb::Entry>, log: &RaftLog) -> Result<Vec<Committed>> {
        let mut out = Vec::with_capacity(entries.len());
        for entry in entries {
            while self
                .uncommitted
                .front()
                .is_some_and(|&(i, _)| i <= entry.index)
            {
                if let Some((_, bytes)) = self.uncommitted.pop_front() {
                    self.uncommitted_bytes -= bytes;
                }
            }
            let is_change = convert::is_change(&entry);
            out.push(Committed {
                index: Index(entry.index),
                term: Term(entry.term),
                payload: from_log(self.group, &entry, log)?,
                members: if is_change {
                    Some(self.change(&entry)?)
                } else {
                    None
                },
                inline: entry.data,
            });
        }
        Ok(out)
    }

    /// Applies a committed change of the members.
    fn change(&mut self, entry: &eraftpb::Entry) -> Result<Members> {
        let change = Change::decode(&entry.data)?;
        // All replicas refuse the same changes, so a refused one has no effect on any of them.
        if self.members.refuses(&change).is_none() {
            let change = convert::conf_change(&change);
            let state = self
                .raw
                .apply_conf_change(&change)
                .map_err(|e| broken(&e))?;
            self.members = convert::members(&state);
            self.rounds.retain(|&id, _| self.members.is_voter(id));
            let raft = &mut self.raw.raft;
            if raft.state == StateRole::Leader && !self.members.is_voter(raft.id) {
                raft.become_follower(raft.term, 0);
            }
        }
        Ok(self.members.clone())
    }
}

/// The messages that a leader may send before its own log is durable.
fn leaves_at_once(kind: MessageType) -> bool {
    matches!(
        kind,
        MessageType::MsgAppend
            | MessageType::MsgHeartbeat
            | MessageType::MsgTimeoutNow
            | MessageType::MsgReadIndexResp
    )
}

/// True for raft's own entries, and for changes of the members.
fn has_no_payload(entry: &eraftpb::Entry) -> bool {
    entry.data.is_empty() || convert::is_change(entry)
}

/// The payload of an entry of the log.
fn from_log(group: Group, entry: &eraftpb::Entry, log: &RaftLog) -> Result<Bytes> {
    let index = Index(entry.index);
    let found = log.groups().get(group).and_then(|g| g.entry(index));
    match found.filter(|e| e.term.0 == entry.term) {
        Some(found) if found.payload.bytes == 0 => Ok(Bytes::new()),
        Some(_) => log.payload(group, index),
        None => Err(Error::broken(format!(
            "entry {index} of group {group} is not in the log, or another one is"
        ))),
    }
}
