//! A replica on a store: its Raft node and its blocks, the requests that wait for entries, and reads.

mod changes;
mod copies;
mod in_place;
mod lease;
mod locks;
mod reads;
mod repair;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use base::{Error, Result};
use bytes::Bytes;

use super::core::{Assignment, Command};
use super::time::ReadMode;
use crate::group::apply::Replica;
use crate::group::command::{self, Op};
use crate::group::members::{Change, Members};
use crate::group::message::{Body, Copy, Entry, Message};
use crate::group::raft::{Config, Node, Outgoing, Ready, Role};
use crate::group::volumes::Verdict;
use crate::ids::{Group, Index, Term};
use crate::memory::pages::Pages;
use crate::raftlog::batch::Item;
use crate::raftlog::groups::GroupLog;
use crate::raftlog::{Checkpoint, RaftLog};
use crate::store::data::{ChunkKey, Reader};
use crate::store::flush::ApplySync;
use crate::store::sync::{Marked, SyncSlot, SyncTicket};
use crate::wire::client::{Outcome, Reason, Request, Response, What};
use changes::Proposal;
use copies::{Giving, Taking};
use in_place::InPlaceWrites;
use locks::{Lock, Locks};
use reads::{Purpose, Reading};
use repair::Repairs;

/// Time between ticks.
pub const TICK: Duration = Duration::from_millis(100);
/// The shortest election timeout, in ticks.
const ELECTION_TICKS: u32 = 10;
/// Beyond this many bytes of proposed and uncommitted entries, a leader lets changes wait.
const UNCOMMITTED_BYTES_MAX: usize = 16 << 20;

/// What the handling of a request needs.
pub(super) struct Inbox<'a> {
    pub(super) now: Duration,
    pub(super) data: &'a Reader,
    pub(super) out: &'a mut VecDeque<Command>,
}

/// A client that waits until an entry is applied.
#[derive(Debug)]
struct Waiting {
    term: Term,
    client: u64,
    id: u64,
    lock: Option<Lock>,
}

/// A request that waits until it may be served.
#[derive(Debug)]
pub(super) struct Asked {
    client: u64,
    request: Request,
}

/// A replica on a store.
#[derive(Debug)]
pub struct Member {
    group: Group,
    node: Node,
    replica: Replica,
    waiting: BTreeMap<Index, Waiting>,
    /// Blocks of changes that are not applied yet.
    locks: Locks,
    /// The most chunks of the group, the existing chunks, and those that uncommitted writes will create.
    chunks_max: u32,
    chunks: BTreeSet<ChunkKey>,
    new_chunks: BTreeMap<ChunkKey, u32>,
    /// Reads that came since the last index was asked for, and the reads for each pending question.
    new_reads: Vec<Asked>,
    asked: BTreeMap<u64, Vec<Asked>>,
    /// Reads that wait until an entry is applied.
    due: BTreeMap<Index, Vec<Asked>>,
    next_context: u64,
    /// When each round of heartbeats began, by its number.
    rounds: VecDeque<(u64, Duration)>,
    read_mode: ReadMode,
    round: u64,
    reading: BTreeMap<u64, Reading>,
    /// For each read of the data file: the reading, its first part, and the number of parts.
    tokens: BTreeMap<u64, (u64, usize, usize)>,
    next_token: u64,
    has_applied: bool,
    /// The members that the group was created with.
    first_members: Members,
    /// Copies that are sent to followers, by replica; and the copy that this follower receives.
    giving: BTreeMap<u64, Giving>,
    taking: Option<Taking>,
    /// In-place writes of blocks.
    in_place: InPlaceWrites,
    /// Blocks that other replicas were asked for.
    repairs: Repairs,
    /// Number of the last note of a copy.
    notes: u64,
    /// Leaders to be told that this follower is ready for a copy.
    answers: Vec<(u64, Copy, u64)>,
    copies_begun: u64,
    copies_done: u64,
    copied_bytes: u64,
}

fn reply(out: &mut VecDeque<Command>, client: u64, id: u64, outcome: Outcome) {
    let response = Response { id, outcome };
    out.push_back(Command::Reply { client, response });
}

fn refuse(out: &mut VecDeque<Command>, client: u64, id: u64, reason: Reason) {
    reply(out, client, id, Outcome::Refused(reason));
}

/// The refusal if the store has no replica of the group.
pub(super) fn refuse_unknown(client: u64, id: u64, out: &mut VecDeque<Command>) {
    refuse(out, client, id, Reason::NotLeader { hint: None });
}

/// The refusal if too many requests wait.
pub(super) fn refuse_busy(client: u64, id: u64, out: &mut VecDeque<Command>) {
    refuse(out, client, id, Reason::Busy);
}

impl Member {
    pub(super) fn open(
        a: &Assignment,
        log: &RaftLog,
        data: &Reader,
        config: Config,
        apply_sync: ApplySync,
        pages: &Pages,
    ) -> Result<Self> {
        let replica = Self::replica_of(a.group, &a.members, log)?.lies_in(pages);
        let (members, applied) = (replica.members(), replica.applied());
        let node = Node::open(a.group, a.replica, members, log, applied, config)?;
        Ok(Self {
            group: a.group,
            node,
            replica,
            waiting: BTreeMap::new(),
            locks: Locks::default(),
            chunks_max: a.chunks_max,
            chunks: data.chunks_of(a.group).into_iter().collect(),
            new_chunks: BTreeMap::new(),
            new_reads: Vec::new(),
            asked: BTreeMap::new(),
            due: BTreeMap::new(),
            next_context: 1,
            rounds: VecDeque::new(),
            read_mode: ReadMode::default(),
            round: 0,
            reading: BTreeMap::new(),
            tokens: BTreeMap::new(),
            next_token: 1,
            has_applied: false,
            first_members: a.members.clone(),
            giving: BTreeMap::new(),
            taking: None,
            notes: 0,
            repairs: Repairs::default(),
            in_place: InPlaceWrites::new(apply_sync == ApplySync::Odsync),
            answers: Vec::new(),
            copies_begun: 0,
            copies_done: 0,
            copied_bytes: 0,
        })
    }

    /// A replica at the log's last durable checkpoint.
    fn replica_of(group: Group, first: &Members, log: &RaftLog) -> Result<Replica> {
        let found = log.groups().get(group);
        let synced = found.map_or_else(Default::default, GroupLog::synced);
        let state = found.map_or_else(Bytes::new, |g| g.state().clone());
        Replica::at(group, synced, &state, first)
    }

    /// Number of copies that it has begun to send and has completed, and their bytes.
    pub fn copies(&self) -> (u64, u64, u64) {
        (self.copies_begun, self.copies_done, self.copied_bytes)
    }

    /// Its Raft node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Its blocks and the state of their volumes.
    pub fn replica(&self) -> &Replica {
        &self.replica
    }

    pub(super) fn dirty_bytes(&self) -> u64 {
        self.replica.dirty_bytes()
    }

    pub(super) fn has_applied(&self) -> bool {
        self.has_applied
    }

    pub(super) fn tick(
        &mut self,
        now: Duration,
        data: &Reader,
        out: &mut VecDeque<Command>,
    ) -> Result<()> {
        self.copies_tick(data, out);
        self.repairs_tick(data, out);
        self.round += 1;
        self.rounds.push_back((self.round, now));
        if self.rounds.len() > 4 * ELECTION_TICKS as usize {
            self.rounds.pop_front();
        }
        self.node.heartbeat_round(self.round);
        self.node.tick()
    }

    /// Sends a message that Raft is not involved in.
    fn send(&self, to: u64, body: Body, payloads: Vec<Bytes>, out: &mut VecDeque<Command>) {
        let message = Message {
            from: self.node.id(),
            to,
            term: self.node.term(),
            body,
        };
        let outgoing = Outgoing {
            to,
            message,
            payloads,
        };
        let group = self.group;
        out.push_back(Command::Send { group, outgoing });
    }

    pub(super) fn message(
        &mut self,
        message: Message,
        payloads: Vec<Bytes>,
        data: &Reader,
        out: &mut VecDeque<Command>,
    ) -> Result<()> {
        match &message.body {
            Body::Copy { .. } => return self.copy_step(message, payloads, data, out),
            &Body::Ask { key, crc } => {
                self.asked_for_block(message.from, key, crc, data, out);
                return Ok(());
            }
            &Body::Have { key, crc } => {
                let bytes = payloads.into_iter().next().unwrap_or_default();
                self.has_block(key, crc, bytes, data, out);
                return Ok(());
            }
            // The log reaches this follower after all: it gives up the copy and continues at its
            // checkpoint; the leader will repeat the entries.
            Body::Append { .. } if self.is_taking() => {
                self.take_no_more();
                return Ok(());
            }
            _ => {}
        }
        if let Body::Append { entries, .. } = &message.body {
            // Every entry in the log will be applied, so an invalid one must not get into it.
            let is_whole = |(entry, payload): (&Entry, &Bytes)| {
                if entry.is_change {
                    return Change::decode(&entry.inline).is_ok();
                }
                entry.inline.is_empty()
                    || (command::is_whole(&entry.inline, payload)
                        && command::Command::decode(&entry.inline, payload.len()).is_ok())
            };
            if !entries.iter().zip(&payloads).all(is_whole) {
                return Err(Error::corruption(
                    "an entry cannot be applied, or its bytes have another checksum than it says",
                ));
            }
        }
        self.node.step(message, payloads)
    }

    pub(super) fn persisted(&mut self, number: u64, out: &mut VecDeque<Command>) {
        if number >= copies::NOTE {
            return self.noted(number);
        }
        for outgoing in self.node.persisted(number) {
            let group = self.group;
            out.push_back(Command::Send { group, outgoing });
        }
    }

    /// Whether a round of write-back is under way.
    pub(super) fn is_in_round(&self) -> bool {
        self.replica.is_in_round()
    }

    /// Takes some dirty blocks: of the round of write-back under way, or of a new round if one may begin.
    pub(super) fn mark(&mut self, bytes_max: u64, may_begin: bool) -> Option<Marked> {
        let is_in_round = self.is_in_round();
        let wants = is_in_round || (may_begin && self.has_applied);
        if !wants || !self.may_mark() || !self.in_place.may_mark() {
            return None;
        }
        let marked = self.replica.mark(bytes_max)?;
        if !is_in_round {
            self.has_applied = false;
        }
        Some(marked)
    }

    /// Number of in-place writes that wait for others.
    pub(super) fn waiting_in_place(&self) -> usize {
        self.in_place.waiting()
    }

    /// Whether more changes of clients must wait: they would only wait for other replicas, and messages that a
    /// slow replica does not take would be sent again.
    pub(super) fn is_crowded(&self) -> bool {
        self.node.role() == Role::Leader && self.node.uncommitted_bytes() >= UNCOMMITTED_BYTES_MAX
    }

    /// Number of clients' changes on their way.
    pub(super) fn changes(&self) -> usize {
        let merges = self.reading.values().filter(|r| r.is_merge());
        self.waiting.len() + merges.count()
    }

    pub(super) fn settle(
        &mut self,
        ticket: SyncTicket,
        slot: SyncSlot,
    ) -> Result<Option<Checkpoint>> {
        self.replica.settle(ticket, slot)
    }

    pub(super) fn give_back(&mut self, marked: Marked) {
        self.replica.give_back(marked);
        self.has_applied = true;
    }

    /// Transfers the leadership to the active follower with the most of its entries, if there is one.
    pub(super) fn hand_over(&mut self) {
        let progress = self.node.progress();
        let voters = &self.node.members().voters;
        let others = progress
            .iter()
            .filter(|p| p.is_active && !p.needs_copy && voters.contains(&p.id));
        if let Some(best) = others.max_by_key(|p| p.matched).map(|p| p.id) {
            let given = self.node.transfer_leader(best);
            debug_assert!(given.is_ok(), "{given:?}");
        }
    }

    pub(super) fn truncated(&mut self, through: Index) {
        self.node.truncated(through);
    }

    /// Continues a copy that it receives; returns an item for the log, with the number under which to
    /// report it as durable.
    pub(super) fn copy_on(
        &mut self,
        log: &RaftLog,
        data: &Reader,
        out: &mut VecDeque<Command>,
    ) -> Result<Option<(u64, Item)>> {
        if self
            .takes_from()
            .is_some_and(|leader| self.node.leader() != Some(leader))
        {
            self.take_no_more();
        }
        self.take_on(log, data, out)
    }

    /// The next ready, after applying its committed entries; `None`: there is nothing to do.
    pub(super) fn ready(
        &mut self,
        log: &RaftLog,
        data: &Reader,
        out: &mut VecDeque<Command>,
    ) -> Result<Option<Ready>> {
        // Entries that it knows to be committed are no longer in the log; the node is reopened behind the
        // copy.
        if self.is_taking() && self.node.is_behind(log) {
            return Ok(None);
        }
        self.ask_for_reads();
        while !self.locks.is_quiet()
            && let Some((asked, lock)) = self.locks.next()
        {
            self.begin_change(asked, lock, data, out);
        }
        let Some(mut ready) = self.node.ready(log)? else {
            return Ok(None);
        };
        let group = self.group;
        for outgoing in ready.now.drain(..) {
            out.push_back(Command::Send { group, outgoing });
        }
        if ready.role.is_some() && self.node.role() != Role::Leader {
            self.resign(out);
        }
        if let Some(e) = ready.unreadable.pop() {
            return Err(e.hint(
                "a follower needs an entry that cannot be read: bring its own files back, or leave the store out",
            ));
        }
        for (to, _) in std::mem::take(&mut ready.needs_copy) {
            self.give(to, out);
        }
        for entry in std::mem::take(&mut ready.committed) {
            self.apply(&entry, out)?;
        }
        for (context, index) in std::mem::take(&mut ready.reads) {
            let reads = self.asked.remove(&context).unwrap_or_default();
            self.due.entry(index).or_default().extend(reads);
        }
        self.serve_due(data, out);
        Ok(Some(ready))
    }

    fn apply(
        &mut self,
        entry: &crate::group::raft::Committed,
        out: &mut VecDeque<Command>,
    ) -> Result<()> {
        if self.is_taking() {
            // The copy includes the entry, or the log is replayed from the checkpoint later.
            return self.node.applied(entry.index);
        }
        let applied = self.replica.apply(entry)?;
        self.has_applied = true;
        self.node.applied(entry.index)?;
        if let (false, Some(key)) = (entry.payload.is_empty(), applied.range.keys().next()) {
            let chunk = ChunkKey::of(self.group, &key);
            if applied.verdict == Verdict::Apply {
                self.new_chunks.remove(&chunk);
                self.chunks.insert(chunk);
            } else {
                self.uncount_chunk(chunk);
            }
        }
        let waiting = self.waiting.remove(&entry.index);
        let goes_in_place =
            self.in_place.is_on && applied.verdict == Verdict::Apply && !entry.payload.is_empty();
        if goes_in_place {
            let mine = waiting.as_ref().filter(|w| w.term == entry.term);
            let client = mine.map(|w| (w.client, w.id));
            self.write_in_place(entry.index, applied.range, entry.payload.clone(), client);
        }
        let Some(waiting) = waiting else {
            return Ok(());
        };
        if let Some(lock) = waiting.lock {
            self.locks.end(lock);
        }
        let outcome = if waiting.term == entry.term {
            match applied.verdict {
                Verdict::Apply | Verdict::Again => Outcome::Done,
                Verdict::Fenced => Outcome::Refused(Reason::Fenced {
                    epoch: self.replica.epoch(applied.range.tree),
                }),
                Verdict::OutOfWindow => Outcome::Refused(Reason::TooFar),
                Verdict::TooMany => Outcome::Refused(Reason::NoSpace),
            }
        } else {
            Outcome::Refused(self.not_leader())
        };
        if !goes_in_place || outcome != Outcome::Done {
            reply(out, waiting.client, waiting.id, outcome);
        }
        Ok(())
    }

    fn not_leader(&self) -> Reason {
        let hint = self.node.leader().filter(|&id| id != self.node.id());
        Reason::NotLeader { hint }
    }

    /// Another replica is the leader: waiting requests are refused, so that the clients ask there.
    fn resign(&mut self, out: &mut VecDeque<Command>) {
        let reason = self.not_leader();
        for (_, w) in std::mem::take(&mut self.waiting) {
            refuse(out, w.client, w.id, reason.clone());
        }
        self.new_chunks.clear();
        self.give_no_more();
        for a in self.locks.clear() {
            refuse(out, a.client, a.request.id, reason.clone());
        }
        let asked = std::mem::take(&mut self.asked).into_values().flatten();
        let due = std::mem::take(&mut self.due).into_values().flatten();
        let new = std::mem::take(&mut self.new_reads);
        for a in asked.chain(due).chain(new) {
            refuse(out, a.client, a.request.id, reason.clone());
        }
        // The blocks that were read for a merge may be overwritten before this replica is the leader again.
        let (merges, reads) = std::mem::take(&mut self.reading)
            .into_iter()
            .partition(|(_, r)| r.is_merge());
        let merges: BTreeMap<u64, Reading> = merges;
        self.reading = reads;
        for (_, r) in merges {
            if let Purpose::Client(a) = r.purpose {
                refuse(out, a.client, a.request.id, reason.clone());
            }
        }
    }

    pub(super) fn request(&mut self, inbox: Inbox<'_>, client: u64, request: Request) {
        let Inbox { now, data, out } = inbox;
        let id = request.id;
        if self.node.role() != Role::Leader || self.is_taking() {
            return refuse(out, client, id, self.not_leader());
        }
        let epoch = self.replica.epoch(request.tree);
        match request.what {
            What::Attach => {}
            // The entry with the higher epoch is not applied here yet.
            _ if request.origin.epoch > epoch => return refuse(out, client, id, Reason::Busy),
            _ if request.origin.epoch < epoch => {
                return refuse(out, client, id, Reason::Fenced { epoch });
            }
            _ => {}
        }
        match request.what {
            What::Read(_) | What::Status(_) => {
                let asked = Asked { client, request };
                if self.has_lease(now) && self.replica.applied() >= self.node.commit() {
                    self.serve(asked, data, out);
                } else {
                    self.new_reads.push(asked);
                }
            }
            What::Attach => {
                let epoch = Proposal {
                    op: Op::Epoch,
                    lock: None,
                    crcs: &[],
                    payload: Bytes::new(),
                };
                self.propose(client, &request, epoch, out);
            }
            What::Write { .. } | What::Zero(_) | What::Trim(_) => {
                self.change(client, request, data, out);
            }
        }
    }
}
