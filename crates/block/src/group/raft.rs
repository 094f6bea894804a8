//! One replica of a group: the raft crate, fed with what it may see, over a log that it does not own.
//!
//! ```text
//!   propose(inline, payload) ─┐                       ┌─> now:   appends, heartbeats, with payloads
//!   step(message, payloads) ──┼─> raft: inline only ──┼─> items: entries with payloads, hard state
//!   tick ─────────────────────┘   stash: payloads     └─> committed, with payloads from the RaftLog
//! ```
//!
//! Raft never sees a payload: it waits in the stash until its entry is durable, and is in the
//! [`RaftLog`](crate::raftlog::RaftLog) from then on, in memory or in a file. So a follower that lags is served from the files.
//!
//! **What the caller keeps.** The items of all readies are appended in their order. When those of a [`Ready`] are
//! durable, [`Node::persisted`] is told its number and returns what may leave then. A ready
//! without items needs no call. An error of [`Node::ready`] ends the node. A commit alone is no item: the next
//! hard state has it, and after a crash a leader says it again.
//!
//! **Raft 0.7.0, and what is done about it here.**
//! - It panics on messages that no right peer sends: `check` refuses them. It also goes back behind what it
//!   knows to match on a late rejection (raft-rs #557), which is dropped there.
//! - A group of one voter becomes leader in one step, and may speak of a term that is not durable; or it
//!   asserts that all entries are. So nothing leaves at once before term and vote are durable, and it does not
//!   campaign before all entries are.
//! - A leader that is removed panics when it counts itself. It steps down here, after it has tried to give
//!   the group to a voter that stays.
//! - It leaves the joint state by itself only where the leader that began does. Here any leader does, at a tick.
//! - Where an entry is written over while the one before is on its way, it may take the old one's landing for
//!   the new one's: what is durable is told only when the later one is.
//! - It draws election timeouts from the thread's generator: they are set again after each call.

use std::collections::{BTreeMap, VecDeque};

use base::rng::Rng;
use base::{Error, Result};
use bytes::Bytes;
use raft::eraftpb::{self, EntryType, MessageType};
use raft::{ProgressState, RawNode, StateRole};

use super::members::{Change, Members};
use super::message::{Body, Message, Read};
use crate::ids::{Group, Index, Term};
use crate::raftlog::groups::HardState;
use heads::Heads;

mod check;
mod convert;
mod heads;
mod open;
mod ready;
mod unheard;

use unheard::Unheard;

pub use ready::{Committed, Outgoing, Ready, RoleChange};

/// How a replica behaves.
#[derive(Clone, Debug)]
pub struct Config {
    /// Without a leader for as long a follower campaigns, ticks; up to twice that, as `rng` draws.
    pub election_ticks: usize,
    /// A leader says that it is there each time as many have gone.
    pub heartbeat_ticks: usize,
    /// A leader whom no quorum has answered for as long gives the group away, ticks.
    pub unheard_ticks: usize,
    /// For as long after it was opened a replica gives no vote, ticks: the lease of a leader that it has
    /// forgotten may run. 0 only in a group that is new.
    pub silent_ticks: usize,
    /// What is inline in the entries of one append, bytes. A crc of 4 bytes stands for a block of 4 KiB.
    pub append_inline_bytes: u64,
    /// Appends on their way to a follower.
    pub appends_max: usize,
    /// Entries that are proposed and not committed, bytes of payloads and what is inline.
    pub uncommitted_bytes_max: usize,
    /// What is inline in the committed entries of one ready, bytes.
    pub committed_inline_bytes: u64,
    /// What election timeouts are drawn from.
    pub rng: Rng,
}

impl Config {
    /// The usual one.
    pub fn new(rng: Rng) -> Self {
        Self {
            election_ticks: 10,
            heartbeat_ticks: 1,
            unheard_ticks: 15,
            silent_ticks: 10,
            append_inline_bytes: 4 << 10,
            appends_max: 64,
            uncommitted_bytes_max: 64 << 20,
            committed_inline_bytes: 16 << 10,
            rng,
        }
    }
}

/// Why a proposal was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Another replica leads, or none that is known.
    NotLeader {
        /// Who leads.
        leader: Option<u64>,
    },
    /// Too many bytes are not committed, a transfer of the leader is on its way, or a change of the members
    /// is not over. It may be tried again.
    Busy,
    /// It cannot be.
    Invalid(&'static str),
}

/// What a replica is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// It follows a leader, or waits for one.
    #[default]
    Follower,
    /// It asks for votes, or whether they would be given.
    Candidate,
    /// It leads.
    Leader,
}

/// What a leader knows of another replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Who.
    pub id: u64,
    /// Up to where it has the leader's entries.
    pub matched: Index,
    /// What is sent next.
    pub next: Index,
    /// It waits for a copy: see [`Node::copied`].
    pub needs_copy: bool,
    /// It has answered since the leader last looked for a quorum.
    pub is_active: bool,
}

/// See the module.
pub struct Node {
    group: Group,
    config: Config,
    raw: RawNode<Heads>,
    /// The members behind the last entry that was given out as committed.
    members: Members,
    /// Payloads of entries that are not durable, with their terms.
    stash: BTreeMap<u64, (u64, Bytes)>,
    /// Proposals that are not committed: where, and how many bytes.
    uncommitted: VecDeque<(u64, usize)>,
    uncommitted_bytes: usize,
    /// The hard state that was given out last.
    hard: HardState,
    waiting: VecDeque<Waiting>,
    /// What to add to raft's numbers of readies: they begin anew behind a copy.
    first_number: u64,
    /// Raft's number of the last ready.
    given: u64,
    /// Ticks until votes are given.
    silent: usize,
    /// The election timeout, and for which term, role and leader it was drawn.
    timeout: (usize, u64, StateRole, u64),
    /// The term in which the leader was last to be transferred; 0: none.
    transfer_term: u64,
    /// The leader's round, and the latest that others have answered.
    round: u64,
    rounds: BTreeMap<u64, u64>,
    unheard: Unheard,
    told: RoleChange,
    is_broken: bool,
}

/// A ready that is not durable, or behind one that is not.
struct Waiting {
    number: u64,
    landed: bool,
    /// It writes over entries of those before.
    overwrites: bool,
    /// It has a new term or vote.
    votes: bool,
    after: Vec<Outgoing>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node")
            .field("group", &self.group)
            .field("id", &self.raw.raft.id)
            .field("term", &self.raw.raft.term)
            .field("role", &self.role())
            .finish_non_exhaustive()
    }
}

fn broken(e: &raft::Error) -> Error {
    Error::broken(format!("raft: {e}"))
}

impl Node {
    /// A tick has gone: see [`Config::election_ticks`].
    ///
    /// Errors: the node has failed before.
    pub fn tick(&mut self) -> Result<()> {
        self.check_whole()?;
        self.silent = self.silent.saturating_sub(1);
        let is_leader = self.role() == Role::Leader;
        let id = self.raw.raft.id;
        let alone = self.members.is_quorum(|other| other == id);
        if !is_leader && alone && !check::is_durable(&self.raw) {
            return Ok(());
        }
        let (term, heir) = (self.raw.raft.term, self.heir());
        let ticked = self.raw.tick();
        if ticked && !is_leader {
            self.timeout.0 = 0;
        }
        self.settled();
        self.look_for_quorum(term, heir);
        if self.role() == Role::Leader && self.members.is_joint() {
            self.leave_joint();
        }
        Ok(())
    }

    /// Takes a message of another replica, with the payloads of its entries.
    ///
    /// Errors: Corruption, where no replica of the group says this that works as it should; nothing has changed.
    /// Or the node has failed before.
    pub fn step(&mut self, message: Message, payloads: Vec<Bytes>) -> Result<()> {
        self.check_whole()?;
        if !check::message(&self.raw, &message, &payloads)? {
            return Ok(());
        }
        if self.silent > 0 && matches!(message.body, Body::Vote { .. }) {
            return Ok(());
        }
        if let Body::HeartbeatResponse { round, .. } = message.body
            && self.role() == Role::Leader
            && message.term.0 == self.raw.raft.term
        {
            let acked = self.rounds.entry(message.from).or_default();
            *acked = round.min(self.round).max(*acked);
        }
        let heads: Vec<(u64, u64)> = match &message.body {
            Body::Append { entries, .. } => entries.iter().map(|e| (e.index.0, e.term.0)).collect(),
            _ => vec![],
        };
        match self.raw.step(convert::to_raft(message)) {
            // Answers of who is not here any more.
            Ok(()) | Err(raft::Error::StepPeerNotFound) => {}
            Err(e) => return Err(broken(&e)),
        }
        let log = &self.raw.raft.raft_log;
        for ((index, term), payload) in heads.into_iter().zip(payloads) {
            let is_taken = index >= log.unstable.offset && index <= log.last_index();
            if !is_taken || !log.match_term(index, term) {
                continue;
            }
            let kept = self.stash.get(&index).is_some_and(|(t, _)| *t == term);
            if !kept {
                self.stash.insert(index, (term, payload));
            }
        }
        self.settled();
        Ok(())
    }

    /// Proposes an entry, and returns where it will be if it is committed: that very term, at that index.
    /// `inline` is not empty, and ends with the crc of each block of the payload.
    pub fn propose(&mut self, inline: Bytes, payload: Bytes) -> Result<(Index, Term), Refused> {
        self.check_leads()?;
        if inline.is_empty() || !check::payload_fits(&inline, &payload) {
            return Err(Refused::Invalid(
                "an entry that is empty, or not whole blocks",
            ));
        }
        let bytes = inline.len() + payload.len();
        let all = self.uncommitted_bytes + bytes;
        if self.uncommitted_bytes > 0 && all > self.config.uncommitted_bytes_max {
            return Err(Refused::Busy);
        }
        let entry = eraftpb::Entry {
            data: inline,
            ..eraftpb::Entry::default()
        };
        let mut message = eraftpb::Message {
            from: self.raw.raft.id,
            ..eraftpb::Message::default()
        };
        message.set_msg_type(MessageType::MsgPropose);
        message.set_entries(vec![entry].into());
        if self.raw.raft.step(message).is_err() {
            return Err(Refused::Busy);
        }
        let (index, term) = (self.raw.raft.raft_log.last_index(), self.raw.raft.term);
        self.stash.insert(index, (term, payload));
        self.uncommitted.push_back((index, bytes));
        self.uncommitted_bytes += bytes;
        Ok((Index(index), Term(term)))
    }

    /// Proposes a change of the members. What is joint is left by itself.
    pub fn propose_members(&mut self, change: &Change) -> Result<(Index, Term), Refused> {
        self.check_leads()?;
        if self.raw.raft.has_pending_conf() || self.raw.raft.lead_transferee.is_some() {
            return Err(Refused::Busy);
        }
        if !change.is_leave() && self.members.is_joint() {
            return Err(Refused::Busy);
        }
        if let Some(why) = self.members.refuses(change) {
            return Err(Refused::Invalid(why));
        }
        let mut entry = eraftpb::Entry {
            data: change.encode().into(),
            ..eraftpb::Entry::default()
        };
        entry.set_entry_type(EntryType::EntryConfChangeV2);
        // What raft does with a proposal once it has read the change, which is its own encoding there.
        if !self.raw.raft.append_entry(&mut [entry]) {
            return Err(Refused::Busy);
        }
        let (index, term) = (self.raw.raft.raft_log.last_index(), self.raw.raft.term);
        self.raw.raft.pending_conf_index = index;
        self.raw.raft.bcast_append();
        Ok((Index(index), Term(term)))
    }

    /// Leaves the joint state if it is time, or gives the group to a voter that stays.
    fn leave_joint(&mut self) {
        let raft = &mut self.raw.raft;
        if raft.has_pending_conf() || raft.lead_transferee.is_some() {
            return;
        }
        if self.members.voters.contains(&raft.id) {
            let left = self.propose_members(&Change::leave());
            debug_assert!(left.is_ok(), "{left:?}");
            return;
        }
        let matched = |id: u64| raft.prs().get(id).map_or(0, |p| p.matched);
        let best = self.members.voters.iter().copied();
        if let Some(best) = best.max_by_key(|&id| (matched(id), id)) {
            self.raw.transfer_leader(best);
            self.transfer_term = self.raw.raft.term;
        }
    }

    /// Asks up to where must have been applied before a read is answered: [`Ready::reads`] says it, or
    /// nothing does, where the leader is not known or has committed nothing yet.
    pub fn read_index(&mut self, context: u64) {
        let read = Read {
            replica: self.raw.raft.id,
            context,
        };
        self.raw.read_index(convert::read_bytes(read).to_vec());
    }

    /// A leader gives the group to a voter once that has all entries; within an election timeout, or not at all.
    pub fn transfer_leader(&mut self, to: u64) -> Result<(), Refused> {
        self.check_leads()?;
        if !self.members.voters.contains(&to) {
            return Err(Refused::Invalid("only a voter can lead"));
        }
        self.raw.transfer_leader(to);
        self.transfer_term = self.raw.raft.term;
        Ok(())
    }

    /// Campaigns at once; nothing where the replica may not vote, or knows a leader still.
    pub fn campaign(&mut self) -> Result<()> {
        self.check_whole()?;
        let raft = &self.raw.raft;
        if self.silent > 0 || !raft.promotable() || !check::is_durable(&self.raw) {
            return Ok(());
        }
        self.raw.campaign().map_err(|e| broken(&e))?;
        self.settled();
        Ok(())
    }

    /// Everything up to `index` is applied. Errors: it was not given out as committed.
    pub fn applied(&mut self, index: Index) -> Result<()> {
        let log = &self.raw.raft.raft_log;
        if index.0 < log.applied || index.0 > log.committed.min(log.persisted) {
            return Err(Error::broken(format!(
                "entry {index} of group {} was said to be applied",
                self.group
            )));
        }
        self.raw.advance_apply_to(index.0);
        self.raw.mut_store().applied = index.0;
        Ok(())
    }

    /// The log has dropped entries up to `through`, or what of them is applied here.
    pub fn truncated(&mut self, through: Index) {
        let applied = self.raw.raft.raft_log.applied;
        self.raw.mut_store().truncate(through.0.min(applied));
    }

    /// The copy that [`Ready::needs_copy`] asked for has been made, or not; it may be asked for again.
    pub fn copied(&mut self, to: u64, is_made: bool) {
        let status = if is_made {
            raft::SnapshotStatus::Finish
        } else {
            raft::SnapshotStatus::Failure
        };
        self.raw.report_snapshot(to, status);
    }

    /// A peer cannot be reached: what was sent is likely lost.
    pub fn unreachable(&mut self, id: u64) {
        self.raw.report_unreachable(id);
    }

    /// Heartbeats that leave from now on are of this round. The caller numbers rounds upwards, and notes when
    /// each began.
    pub fn heartbeat_round(&mut self, round: u64) {
        self.round = round;
    }

    /// The latest round whose heartbeats a quorum has answered, in this term. `None`: none, or the replica does
    /// not lead.
    pub fn quorum_acked_round(&self) -> Option<u64> {
        if self.role() != Role::Leader {
            return None;
        }
        let id = self.raw.raft.id;
        let has = |other: u64, round: u64| {
            other == id || self.rounds.get(&other).is_some_and(|&r| r >= round)
        };
        let others = self.rounds.values().copied();
        let rounds = others.chain([self.round]);
        rounds
            .filter(|&round| self.members.is_quorum(|other| has(other, round)))
            .max()
    }

    /// What the replica is.
    pub fn role(&self) -> Role {
        match self.raw.raft.state {
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
            StateRole::Leader => Role::Leader,
        }
    }

    /// Who leads, if that is known.
    pub fn leader(&self) -> Option<u64> {
        Some(self.raw.raft.leader_id).filter(|&id| id != 0)
    }

    /// Its own id.
    pub fn id(&self) -> u64 {
        self.raw.raft.id
    }

    /// Its term.
    pub fn term(&self) -> Term {
        Term(self.raw.raft.term)
    }

    /// Up to where entries are committed, as far as it knows.
    pub fn commit(&self) -> Index {
        Index(self.raw.raft.raft_log.committed)
    }

    /// Its last entry, which may not be durable.
    pub fn last(&self) -> Index {
        Index(self.raw.raft.raft_log.last_index())
    }

    /// The members behind the last entry that was given out as committed.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Whether a leader has applied an entry of its own term: it knows all that was ever committed.
    pub fn has_applied_own_term(&self) -> bool {
        self.role() == Role::Leader && self.raw.raft.apply_to_current_term()
    }

    /// Whether a transfer of the leader was begun in this term. It may arrive long after it was given up.
    pub fn is_transferring(&self) -> bool {
        self.raw.raft.lead_transferee.is_some() || self.transfer_term == self.raw.raft.term
    }

    /// Bytes that are proposed and not committed.
    pub fn uncommitted_bytes(&self) -> usize {
        self.uncommitted_bytes
    }

    /// What a leader knows of the others, by id.
    pub fn progress(&self) -> Vec<Progress> {
        let raft = &self.raw.raft;
        if self.role() != Role::Leader {
            return vec![];
        }
        let others = raft.prs().iter().filter(|(id, _)| **id != raft.id);
        let mut out: Vec<Progress> = others
            .map(|(&id, p)| Progress {
                id,
                matched: Index(p.matched),
                next: Index(p.next_idx),
                needs_copy: p.state == ProgressState::Snapshot,
                is_active: p.recent_active,
            })
            .collect();
        out.sort_unstable_by_key(|p| p.id);
        out
    }

    fn check_whole(&self) -> Result<()> {
        if self.is_broken {
            return Err(Error::broken(format!(
                "the replica of group {} has failed",
                self.group
            )));
        }
        Ok(())
    }

    fn check_leads(&self) -> Result<(), Refused> {
        if self.role() != Role::Leader || self.is_broken {
            let leader = self.leader().filter(|&id| id != self.raw.raft.id);
            return Err(Refused::NotLeader { leader });
        }
        Ok(())
    }

    /// After each call that may have changed raft's state.
    fn settled(&mut self) {
        let raft = &mut self.raw.raft;
        let now = (raft.term, raft.state, raft.leader_id);
        let (timeout, term, state, leader) = self.timeout;
        if timeout == 0 || (term, state, leader) != now {
            let ticks = self.config.election_ticks;
            let drawn = ticks + self.config.rng.below(ticks as u64) as usize;
            self.timeout = (drawn, now.0, now.1, now.2);
            if (term, state) != (now.0, now.1) {
                self.uncommitted.clear();
                self.uncommitted_bytes = 0;
                self.rounds.clear();
            }
        }
        raft.set_randomized_election_timeout(self.timeout.0);
        let last = raft.raft_log.last_index();
        if self.stash.last_key_value().is_some_and(|(&i, _)| i > last) {
            self.stash.split_off(&(last + 1));
        }
    }
}
