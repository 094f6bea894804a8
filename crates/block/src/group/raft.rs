//! One replica of a group: the raft crate over a log that it does not own, guarded against messages that it
//! cannot take.
//!
//! ```text
//!   propose(inline, payload) ─┐                       ┌─> now:   appends, heartbeats, with payloads
//!   step(message, payloads) ──┼─> raft: inline only ──┼─> items: entries with payloads, hard state
//!   tick ─────────────────────┘   stash: payloads     └─> committed, with payloads from the RaftLog
//! ```
//!
//! Raft never sees a payload. A payload waits in the stash until its entry is durable; from then on it is in
//! the [`RaftLog`](crate::raftlog::RaftLog), in memory or in a file. So a follower that lags is served from the
//! files.
//!
//! **The caller's duties.** The items of all readies are appended in their order. When those of a [`Ready`] are
//! durable, the caller passes its number to [`Node::persisted`], which returns the messages that may be sent
//! then. A ready without items needs no such call. After an error of [`Node::ready`] the node is unusable. A
//! new commit index alone is no item: the next hard state includes it, and after a crash a leader sends it
//! again.
//!
//! **Raft 0.7.0, and how its flaws are handled here.**
//! - It panics on messages that no correct peer sends: `check` refuses them. A late rejection makes it move
//!   a follower's progress back behind what is known to match (raft-rs #557): `check` drops such
//!   rejections.
//! - A group of one voter becomes leader in one step, and may send messages of a term that is not durable, or
//!   fail an assertion that all entries are durable. So no message is sent before term and vote are durable,
//!   and the replica does not campaign before all entries are.
//! - A removed leader panics when it counts itself. Here it steps down, after it has tried to transfer the
//!   leadership to a voter that stays.
//! - It leaves the joint state by itself only if the leader that began it is still the leader. Here any leader
//!   leaves it, at a tick.
//! - If an entry is overwritten while its first version is being written, raft may take the end of that write
//!   for the end of the second. So raft is told that entries are durable only when the second write is.
//! - It draws election timeouts from the thread's random generator: they are set again after each call.

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

/// The configuration of a replica.
#[derive(Clone, Debug)]
pub struct Config {
    /// The shortest time without a leader after which a follower campaigns, ticks. The timeout is drawn
    /// from this up to twice this.
    pub election_ticks: usize,
    /// Ticks between a leader's heartbeats.
    pub heartbeat_ticks: usize,
    /// A leader steps down after this time without answers from a quorum, and asks another voter to
    /// campaign, ticks.
    pub unheard_ticks: usize,
    /// The time after opening in which a replica grants no votes, ticks: a leader's lease that it has
    /// forgotten may still be valid. 0 only in a new group.
    pub silent_ticks: usize,
    /// Most inline bytes of one append. A block of 4 KiB is represented by its crc of 4 bytes.
    pub append_inline_bytes: u64,
    /// Most appends that are on their way to a follower.
    pub appends_max: usize,
    /// Most bytes, payloads and inline, of entries that are proposed and not committed.
    pub uncommitted_bytes_max: usize,
    /// Most inline bytes of the committed entries of one ready.
    pub committed_inline_bytes: u64,
    /// Election timeouts are drawn from it.
    pub rng: Rng,
}

impl Config {
    /// The usual configuration.
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

/// The reason why a proposal was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// Another replica is the leader, or none is known.
    NotLeader {
        /// The leader, if known.
        leader: Option<u64>,
    },
    /// Too many bytes are not committed, a transfer of the leadership is under way, or a change of the
    /// members is not over. A later try may succeed.
    Busy,
    /// The proposal is invalid.
    Invalid(&'static str),
}

/// The role of a replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Role {
    /// Follows a leader, or waits for one.
    #[default]
    Follower,
    /// Asks for votes, or whether they would be granted.
    Candidate,
    /// Is the leader.
    Leader,
}

/// The leader's knowledge of another replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The replica.
    pub id: u64,
    /// The last entry up to which its log is known to match the leader's.
    pub matched: Index,
    /// The next entry to send.
    pub next: Index,
    /// Whether it waits for a copy: see [`Node::copied`].
    pub needs_copy: bool,
    /// Whether it has answered since the leader last checked for a quorum.
    pub is_active: bool,
}

/// One replica of a group.
pub struct Node {
    group: Group,
    config: Config,
    raw: RawNode<Heads>,
    /// The members after the last entry that was returned as committed.
    members: Members,
    /// Payloads of entries that are not durable, with their terms.
    stash: BTreeMap<u64, (u64, Bytes)>,
    /// Proposals that are not committed: index and bytes.
    uncommitted: VecDeque<(u64, usize)>,
    uncommitted_bytes: usize,
    /// The last hard state that was returned.
    hard: HardState,
    waiting: VecDeque<Waiting>,
    /// Added to raft's numbers of readies, which restart after a copy.
    first_number: u64,
    /// Raft's number of the last ready.
    given: u64,
    /// Ticks until votes are granted.
    silent: usize,
    /// The election timeout, and the term, role and leader for which it was drawn.
    timeout: (usize, u64, StateRole, u64),
    /// The last term in which a transfer of the leadership was begun; 0: none.
    transfer_term: u64,
    /// The leader's heartbeat round, and the latest round that each other replica has answered.
    round: u64,
    rounds: BTreeMap<u64, u64>,
    unheard: Unheard,
    told: RoleChange,
    is_broken: bool,
}

/// A ready whose items are not durable, or one behind such a ready.
struct Waiting {
    number: u64,
    landed: bool,
    /// It overwrites entries of earlier readies.
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
    /// Advances time by a tick: see [`Config::election_ticks`].
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

    /// Handles a message of another replica, with the payloads of its entries.
    ///
    /// Errors: Corruption, if no correct replica of the group sends such a message; then nothing has changed.
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
            // Answers of replicas that were removed.
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

    /// Proposes an entry. If it is committed, then with the returned term and at the returned index.
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

    /// Proposes a change of the members. A joint state is left by itself.
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
        // The same as raft does with such a proposal. Raft would have to decode the change first, and
        // expects its own encoding.
        if !self.raw.raft.append_entry(&mut [entry]) {
            return Err(Refused::Busy);
        }
        let (index, term) = (self.raw.raft.raft_log.last_index(), self.raw.raft.term);
        self.raw.raft.pending_conf_index = index;
        self.raw.raft.bcast_append();
        Ok((Index(index), Term(term)))
    }

    /// Proposes the end of the joint state. A leader that is being removed transfers the leadership to a
    /// voter that stays.
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

    /// Asks for the index up to which entries must be applied before a read is served. [`Ready::reads`]
    /// returns it. There is no answer if the leader is not known or has not yet committed an entry of its
    /// term.
    pub fn read_index(&mut self, context: u64) {
        let read = Read {
            replica: self.raw.raft.id,
            context,
        };
        self.raw.read_index(convert::read_bytes(read).to_vec());
    }

    /// Transfers the leadership to a voter, once that has all entries. The transfer is given up after an
    /// election timeout.
    pub fn transfer_leader(&mut self, to: u64) -> Result<(), Refused> {
        self.check_leads()?;
        if !self.members.voters.contains(&to) {
            return Err(Refused::Invalid("only a voter can lead"));
        }
        self.raw.transfer_leader(to);
        self.transfer_term = self.raw.raft.term;
        Ok(())
    }

    /// Campaigns at once; does nothing if the replica must not campaign.
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

    /// Everything up to `index` is applied. Errors: it was not returned as committed.
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

    /// The log has dropped entries up to `through`; those that are applied are dropped here too.
    pub fn truncated(&mut self, through: Index) {
        let applied = self.raw.raft.raft_log.applied;
        self.raw.mut_store().truncate(through.0.min(applied));
    }

    /// The copy that [`Ready::needs_copy`] asked for is complete, or has failed. It may be asked for again.
    pub fn copied(&mut self, to: u64, is_made: bool) {
        let status = if is_made {
            raft::SnapshotStatus::Finish
        } else {
            raft::SnapshotStatus::Failure
        };
        self.raw.report_snapshot(to, status);
    }

    /// A peer cannot be reached: messages to it were probably lost.
    pub fn unreachable(&mut self, id: u64) {
        self.raw.report_unreachable(id);
    }

    /// Sets the round of the heartbeats that are sent from now on. The caller numbers the rounds upwards, and
    /// notes when each began.
    pub fn heartbeat_round(&mut self, round: u64) {
        self.round = round;
    }

    /// The latest round whose heartbeats a quorum has answered in this term. `None`: there is none, or the
    /// replica is not the leader.
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

    /// The role of the replica.
    pub fn role(&self) -> Role {
        match self.raw.raft.state {
            StateRole::Follower => Role::Follower,
            StateRole::Candidate | StateRole::PreCandidate => Role::Candidate,
            StateRole::Leader => Role::Leader,
        }
    }

    /// The leader, if known.
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

    /// The last committed entry, as far as the replica knows.
    pub fn commit(&self) -> Index {
        Index(self.raw.raft.raft_log.committed)
    }

    /// Its last entry, which may not be durable.
    pub fn last(&self) -> Index {
        Index(self.raw.raft.raft_log.last_index())
    }

    /// The members after the last entry that was returned as committed.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Whether this is a leader that has applied an entry of its own term, and so has applied every entry
    /// that was committed before its term.
    pub fn has_applied_own_term(&self) -> bool {
        self.role() == Role::Leader && self.raw.raft.apply_to_current_term()
    }

    /// Whether a transfer of the leadership was begun in this term. Its message may arrive long after the
    /// transfer was given up.
    pub fn is_transferring(&self) -> bool {
        self.raw.raft.lead_transferee.is_some() || self.transfer_term == self.raw.raft.term
    }

    /// Bytes that are proposed and not committed.
    pub fn uncommitted_bytes(&self) -> usize {
        self.uncommitted_bytes
    }

    /// The leader's knowledge of the other replicas, by id.
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

    /// Must follow each call that may have changed raft's state: sets the election timeout, and drops what
    /// belongs to an older term.
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
